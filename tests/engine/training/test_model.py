"""What is asked of a model's arrays."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

pytest.importorskip("jax")

import jax.numpy as jnp
from drivetrain.engine.training import model

pytestmark = pytest.mark.engine


@pytest.mark.parametrize("dtype", [np.float32, np.float16, jnp.bfloat16])
@pytest.mark.parametrize("at", [0, 7, 8, 20])
def test_the_first_array_that_is_not_finite_is_named_wherever_it_is_so(
    monkeypatch: pytest.MonkeyPatch, dtype: type, at: int
) -> None:
    monkeypatch.setattr(model, "_CHECKED", 8)
    values = np.ones(21, np.float32)
    whole = jnp.asarray(values, dtype).reshape(3, 7)
    values[at] = np.inf if at % 2 else np.nan
    broken, none = jnp.asarray(values, dtype).reshape(3, 7), jnp.zeros((0, 2))
    params = {"a": whole, "b": broken, "ids": jnp.arange(3), "none": none}
    assert model.first_broken(params) == "b"
    assert model.first_broken({**params, "b": whole, "scalar": jnp.float32(1)}) is None


def test_a_look_at_a_large_table_takes_little_memory() -> None:
    table = np.zeros((1 << 22, 8), np.float16)
    tracemalloc.start()
    try:
        assert model.first_broken({"table": table}) is None
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < table.size / 8  # an answer for each number at once is a byte each
