"""What is known of bounds: limits become one clamp, ids that are never negative are not wrapped, results stay."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
from drivetrain.engine.graphs.nodes import DeviceOp  # noqa: E402
from drivetrain.engine.passes import EXPORTED, inline, prune, simplify  # noqa: E402

from .graphs import ops, optimized, run, same_bits, traced  # noqa: E402

pytestmark = pytest.mark.engine

CHAIN = (inline, simplify, prune)
X = np.asarray([-0.0, 0.0, 1.5, np.nan, np.inf, -np.inf, 1e-42, -3.0, 3.4028235e38, -3.4028235e38], np.float32)
IDS = np.asarray([-(2**31), -7, -1, 0, 1, 4, 5, 8, 2**31 - 1], np.int32)
TABLE = np.arange(5, dtype=np.float32) * 10


def check(fn: Any, expected: Any, x: Any, has: dict[str, int]) -> None:
    """Assert how many ops of some kinds the simplified `fn(x)` has, and that it gives numpy's result, and its own bits.

    XLA may take the smallest numbers for zero, and one zero for the other, where numpy does not.
    """
    graph = traced(fn, x=x)
    made = optimized(graph, CHAIN)
    assert {op: ops(made)[op] for op in has} == has, ops(made)
    same_bits(run(made, x=x), run(graph, x=x))
    usual = x[~(abs(x) < np.finfo(np.float32).tiny)] if x.dtype.kind == "f" else x
    same_bits(run(made, x=usual), {"0": expected(usual)})


@pytest.mark.parametrize(
    ("low", "high", "clamps"),
    [
        (-5.0, 5.0, 1),
        (-np.inf, 2.0, 1),
        (0.0, 6.0, 0),
        (-1.0, -0.0, 0),
        (3.0, -3.0, 0),
        (np.nan, 1.0, 0),
        (2.0, 2.0, 1),
    ],
)
def test_two_limits_in_order_are_one_clamp(low: float, high: float, clamps: int) -> None:
    a, b = np.float32(low), np.float32(high)
    has = {"clamp": clamps, "max": 1 - clamps, "min": 1 - clamps}
    lax = jax.lax
    check(lambda x: lax.min(b, lax.max(a, x)), lambda x: np.minimum(b, np.maximum(a, x)), X, has)
    check(lambda x: lax.max(lax.min(x, b), a), lambda x: np.maximum(np.minimum(x, b), a), X, has)


def test_one_limit_twice_and_limits_that_are_no_numbers_stay() -> None:
    check(
        lambda x: jnp.minimum(jnp.minimum(x, 3.0), 5.0),
        lambda x: np.minimum(np.minimum(x, np.float32(3)), np.float32(5)),
        X,
        {"clamp": 0, "min": 2},
    )
    check(
        lambda x: jnp.minimum(jnp.maximum(x, x.shape[0] * 1.0), 5.0),
        lambda x: np.minimum(np.maximum(x, np.float32(len(x))), np.float32(5)),
        X,
        {"clamp": 0},
    )


@pytest.mark.parametrize("dtype", [np.bool_, np.complex64])
def test_limits_of_truths_and_complex_numbers_stay(dtype: Any) -> None:
    x = np.asarray([0, 1, 0], dtype)
    graph = traced(lambda x: jax.lax.min(jax.lax.max(x, dtype(0)), dtype(1)), x=x)
    made = optimized(graph, CHAIN)
    assert ops(made) == {"max": 1, "min": 1}
    same_bits(run(made, x=x), {"0": x})


def test_nan_to_num_stays_the_choices_that_it_is() -> None:
    check(jnp.nan_to_num, np.nan_to_num, X, {"clamp": 0, "select_n": 3})


@pytest.mark.parametrize(
    ("fn", "expected"),
    [
        (lambda i: jnp.clip(i, 0, 4), lambda i: np.clip(i, 0, 4)),
        (lambda i: jnp.where((i >= 0) & (i < 5), i, 4), lambda i: np.where((i >= 0) & (i < 5), i, 4)),
        (lambda i: jnp.minimum(jnp.maximum(i, 0), 4), lambda i: np.clip(i, 0, 4)),
        (lambda i: jnp.clip(jnp.maximum(i, 0).reshape(-1, 1).T.reshape(-1), None, 4), lambda i: np.clip(i, 0, 4)),
        (lambda i: (i > 0).astype(jnp.int32) + 0, lambda i: (i > 0).astype(np.int32)),
        (lambda i: jax.lax.rem(jnp.maximum(i, 0), 5), lambda i: np.maximum(i, 0) % 5),
    ],
)
def test_ids_that_are_never_negative_are_not_wrapped(fn: Any, expected: Any) -> None:
    check(lambda i: jnp.asarray(TABLE)[fn(i)], lambda i: TABLE[expected(i)], IDS, {"select_n": ops_of(fn), "add": 0})


def ops_of(fn: Any) -> int:
    """How many choices a function of ids has itself."""
    return ops(optimized(traced(fn, x=IDS), CHAIN))["select_n"]


@pytest.mark.parametrize(
    "fn",
    [
        lambda i: i,
        lambda i: jnp.abs(i),  # of the least number it is that number
        lambda i: jnp.minimum(i, 4),
        lambda i: jnp.clip(i, -3, 4),
        lambda i: jnp.where((i >= 0) | (i < 5), i, 4),
        lambda i: jnp.where((i >= -1) & (i < 5), i, 4),
        lambda i: jnp.where(i >= 0, i + 1, 4),  # the largest number and one is the least
        lambda i: jnp.where(i >= 0, 4, i),
        lambda i: jnp.maximum(i, 0) - 1,
        lambda i: jnp.maximum(i, 0).astype(jnp.uint8).astype(jnp.int8),
        lambda i: jax.lax.rem(i, 5),
    ],
)
def test_ids_that_may_be_negative_are_wrapped(fn: Any) -> None:
    graph = traced(lambda i: jnp.asarray(TABLE).at[fn(i)].get(mode="fill", fill_value=-1), x=IDS)
    made = optimized(graph, CHAIN)
    wraps = [node for node in made.nodes if isinstance(node, DeviceOp) and node.op == "add"]
    assert len(wraps) >= 1
    assert ops(made)["lt"] >= 1
    same_bits(run(made, x=IDS), run(graph, x=IDS))


def test_what_comparisons_of_numbers_give_is_known() -> None:
    def modulo(x: Any) -> Any:
        return x % 3

    check(modulo, lambda x: x % np.int32(3), IDS, {"eq": 0, "select_n": 1, "rem": 1, "lt": 1})

    def switched(x: Any) -> Any:
        return jax.lax.switch(jnp.argmax(x) % 3, [jnp.negative, jnp.abs, jnp.square], x)

    made = optimized(traced(switched, x=X), EXPORTED)
    assert ops(made) == {"argmax": 1, "rem": 1, "clamp": 1, "cond": 1}
    same_bits(run(made, x=X), run(traced(switched, x=X), x=X))


@settings(max_examples=15)
@example([0.0, 1.0], [0.0, -1.0, -5e-42], ["min", "max", "min", "min"])  # a limit that the device takes for zero
@given(
    st.lists(st.floats(width=32), min_size=1, max_size=6),
    st.lists(st.floats(width=32), min_size=2, max_size=4),
    st.lists(st.sampled_from(["min", "max"]), min_size=4, max_size=4),
)
@pytest.mark.slow
def test_any_chain_of_limits_gives_the_same_bits(values: list[float], limits: list[float], kinds: list[str]) -> None:
    def fn(x: Any) -> Any:
        for limit, kind in zip(limits, kinds, strict=False):
            x = getattr(jax.lax, kind)(x, np.float32(limit))
        return x

    x = np.asarray(values, np.float32)
    graph = traced(fn, x=x)
    same_bits(run(optimized(graph, CHAIN), x=x), run(graph, x=x))
