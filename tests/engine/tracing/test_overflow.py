"""Whole numbers beyond int32 fail their row by name; a device would wrap them around."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("jax")

import jax
import jax.numpy as jnp
from drivetrain.engine import analyze, ops
from drivetrain.errors import InputError

pytestmark = pytest.mark.engine

EDGES = [0, 1, -1, 2, 46340, 46341, -46341, 65536, -65536, 2**30, -(2**30), 2**31 - 1, -(2**31), -(2**31) + 1]


@pytest.mark.parametrize("name", ["__add__", "__sub__", "__mul__"])
def test_a_row_fails_exactly_where_the_result_does_not_fit(name: str) -> None:
    a, b = (side.ravel().tolist() for side in np.meshgrid(EDGES, EDGES))
    raw = pa.record_batch({"a": [*a, None], "b": [*b, 1]})
    bundle = analyze(lambda c: {"y": ops.fill_missing(getattr(c["a"], name)(c["b"]), -7)}, pa.table(raw.slice(0, 1)))
    out, kept, errors = bundle.run_each("transform", raw)
    exact = [getattr(x, name)(y) for x, y in zip(a, b, strict=True)]  # Python's own, of any size
    fit = [row for row, value in enumerate(exact) if -(2**31) <= value < 2**31]
    assert kept.tolist() == [*fit, len(a)]
    assert out["y"].tolist() == [*(exact[row] for row in fit), -7]
    assert all("does not fit in int32" in error.message for error in errors.values())


@pytest.mark.parametrize(
    "fn", [lambda c: c["price"] * 1_000_000, lambda c: c["price"] ** 3, lambda c: ops.cast(c["carat"] * 1e12, "int32")]
)
def test_prices_do_not_wrap_around(fn: Callable[[Any], Any]) -> None:
    bundle = analyze(lambda c: {"y": ops.fill_missing(fn(c), 0)}, pa.table({"price": [1, None], "carat": [1e-9, None]}))
    assert bundle.run_row("transform", {"price": 10, "carat": 1e-6})["y"] in (10_000_000, 1000, 1_000_000)
    with pytest.raises(InputError, match=r"of '(price|carat|of an expression)' .*(does not|n't) fit") as caught:
        bundle.run_row("transform", {"price": 18_823, "carat": 0.23})
    assert (caught.value.where or "").startswith(__name__.rpartition(".")[2])


def test_functions_that_jax_traces_by_itself_are_left_alone() -> None:
    def fn(columns: ops.Columns) -> ops.Columns:
        price = columns["price"] * 1  # on the device already
        known = ops.fill_missing(price, 0)
        twice = jax.lax.cond(jnp.ones((), bool), lambda: ops.fill_missing(price * 2, 0), lambda: known)
        return {"y": twice}

    assert analyze(fn, pa.table({"price": [1, None]})).run_row("transform", {"price": 4})["y"] == 8
