"""Scans written as open loops give what JAX's own scans give, to the bit; what cannot be written stays a scan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
from drivetrain.engine.graphs.nodes import DeviceOp  # noqa: E402
from drivetrain.engine.passes import EXPORTED, optimize, write_scans  # noqa: E402
from jax import lax  # noqa: E402

from .graphs import ops, run, same_bits, traced  # noqa: E402

pytestmark = pytest.mark.engine

X = np.random.default_rng(4).normal(size=(3, 5, 4)).astype(np.float32)  # rows, turns, columns
X[0, 0] = np.inf, -np.inf, np.nan, -0.0
W = np.random.default_rng(5).normal(size=(4, 4)).astype(np.float32)


def along(x: Any) -> Any:
    return jnp.swapaxes(x, 0, 1)


def keyed(x: Any, w: Any) -> Any:
    keys = jax.random.split(jax.random.key(3), 5)
    return lax.scan(lambda c, k: (c + jax.random.normal(k, (4,)), None), x[:, 0], keys)[0]


def carried_key(x: Any, w: Any) -> Any:
    def step(c: Any, _: Any) -> Any:
        state, key = c
        key, mine = jax.random.split(key)
        return (state + jax.random.normal(mine, (4,)), key), None

    return lax.scan(step, (x[:, 0], jax.random.key(3)), length=3)[0][0]


def nested(x: Any, w: Any) -> Any:
    def turn(c: Any, row: Any) -> Any:
        inner, seen = lax.scan(lambda d, k: (jnp.tanh(d + k * row), d * 2), c, w, reverse=True)
        return inner, seen.sum(0)

    return lax.scan(turn, x[:, 0], along(x))


def everything(x: Any, w: Any) -> Any:
    """Several of each: constants, carries, what is scanned, what is stacked; a flag, whole numbers, a number."""

    def step(c: Any, row: Any) -> Any:
        state, count, flag, kept = c
        values, place, weight = row
        state = jnp.tanh(values @ w + state) * weight
        made = (state.astype(jnp.bfloat16), flag, count, 7, place > 2, kept)
        return (state, count + place, ~flag, kept), made

    start = (x[:, 0], jnp.int32(3), True, x[:, 1, 0])
    return lax.scan(step, start, (along(x), jnp.arange(5, dtype=jnp.int32), jnp.linspace(0.0, 1.0, 5)))


WRITTEN: dict[str, Callable[[Any, Any], Any]] = {
    "last state": lambda x, w: lax.scan(lambda c, r: (jnp.tanh(r @ w + c), None), x[:, 0], along(x))[0],
    "every state": lambda x, w: lax.scan(lambda c, r: (jnp.tanh(r @ w + c), c), x[:, 0], along(x)),
    "from the end": lambda x, w: lax.scan(lambda c, r: (c + r, c * r), x[:, 0], along(x), reverse=True),
    "nothing scanned": lambda x, w: lax.scan(lambda c, _: (c @ w, c[:, 0]), x[:, 0], length=4),
    "nothing carried": lambda x, w: lax.scan(lambda _, r: (None, jnp.exp(r)), None, along(x))[1],
    "one turn": lambda x, w: lax.scan(lambda c, r: (c + r, c), x[:, 0], along(x)[:1]),
    "numbers": lambda x, w: lax.scan(lambda c, n: (c + n, c * n), jnp.float32(0.5), w[0])[1] + x[:, 0],
    "of everything": everything,
    "a state that stays": lambda x, w: lax.scan(lambda c, r: ((c[0], c[1] + c[0]), r), (x[:, 0], x[:, 1]), along(x)),
    "states that change places": lambda x, w: lax.scan(lambda c, _: (c[::-1], c[0]), (x[:, 0], x[:, 1]), length=3),
    "the same twice": lambda x, w: lax.scan(lambda c, r: (r, (r, r, c, c)), x[:, 0], along(x)),
    "captured": lambda x, w: lax.scan(lambda c, r: (c * W[0] + r @ W, None), x[:, 0], along(x))[0],
    "loops in loops": nested,
    "a carried key": carried_key,
    "a branch within": lambda x, w: lax.scan(
        lambda c, r: (lax.cond(r[0, 0] > 0, jnp.sin, jnp.cos, c), c), x[:, 0], along(x)
    ),
    "batches of rows": lambda x, w: lax.map(lambda row: jnp.cumsum(row, 0) @ w, along(x)),
    "two in a row": lambda x, w: lax.scan(
        lambda c, r: (c - r, c), *lax.scan(lambda c, r: (c + r, jnp.tanh(c)), x[:, 0], along(x))
    ),
}


@pytest.mark.parametrize("what", WRITTEN)
def test_a_scan_is_a_loop_of_the_same_results(what: str) -> None:
    graph = traced(WRITTEN[what], {"w": W}, x=X)
    made = write_scans(graph)
    made.check()
    assert "scan" in ops(graph)
    assert "scan" not in ops(made)
    assert "while" in ops(made)
    same_bits(run(made, x=X), run(graph, x=X))


STAYS: dict[str, Callable[[Any, Any], Any]] = {
    "unrolled": lambda x, w: lax.scan(lambda c, r: (c + r, c), x[:, 0], along(x), unroll=2),
    "no turn": lambda x, w: lax.scan(lambda c, r: (c + r, c), x[:, 0], along(x)[:0]),
    "an effect": lambda x, w: lax.scan(lambda c, r: (c + r, jax.debug.callback(lambda _: None, r)), x[:, 0], along(x))[
        0
    ],
    "scanned keys": keyed,
}


@pytest.mark.parametrize("what", STAYS)
def test_what_is_no_plain_loop_stays_a_scan(what: str) -> None:
    graph = traced(STAYS[what], {"w": W}, x=X)
    assert write_scans(graph) is graph
    assert "scan" in ops(graph)


def test_a_function_called_twice_is_one_loop_for_jax_to_lower() -> None:
    step = jax.jit(lambda x: lax.scan(lambda c, r: (jnp.tanh(c + r), None), x[:, 0], along(x))[0])
    graph = traced(lambda x, w: step(x) - step(x * 2) @ w, {"w": W}, x=X)
    made, _ = optimize(graph, (*EXPORTED, write_scans))
    bodies = [n.equation.params["body_jaxpr"] for n in made.nodes if isinstance(n, DeviceOp) and n.op == "while"]
    assert len(bodies) == 2
    assert bodies[0] is bodies[1]
    same_bits(run(made, x=X), run(graph, x=X))


def test_errors_and_profiles_still_name_the_users_line() -> None:
    graph = traced(WRITTEN["every state"], {"w": W}, x=X)
    lines = {node.where for node in graph.nodes if isinstance(node, DeviceOp) and node.op == "scan"}
    made = {
        n.where for n in write_scans(graph).nodes if isinstance(n, DeviceOp) and n.op in ("while", "broadcast_in_dim")
    }
    assert made == lines != {None}


OPS: list[Callable[[Any, Any, Any], Any]] = [
    lambda a, b, w: jnp.tanh(a) + b,
    lambda a, b, w: a @ w - b,
    lambda a, b, w: jnp.where(a > b, a, -b),
    lambda a, b, w: a * 0.5,
    lambda a, b, w: jnp.concatenate([a[:, 2:], b[:, :2]], -1),
    lambda a, b, w: a.sum(-1, keepdims=True) * jnp.ones((1, 4), jnp.float32),
    lambda a, b, w: b,
]
STEPS = st.lists(st.tuples(st.integers(0, len(OPS) - 1), st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=5)
PLACES = st.lists(st.integers(0, 9), min_size=1, max_size=3)


@pytest.mark.slow
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(STEPS, PLACES, st.lists(st.integers(0, 9), max_size=3), st.booleans(), st.integers(1, 4), st.data())
def test_random_scans(steps: Any, after: Any, stacked: Any, reverse: bool, turns: int, data: st.DataObject) -> None:
    def step(w: Any, carry: Any, row: Any) -> Any:
        values = [*carry, row]
        for op, a, b in steps:
            values.append(OPS[op](values[a % len(values)], values[b % len(values)], w))
        chosen = [values[place % len(values)] for place in (*after, *stacked)]
        return tuple(chosen[: len(after)]), tuple(chosen[len(after) :])

    def scanned(x: Any, w: Any) -> Any:
        start = tuple(x[:, place] for place in range(len(after)))
        last, seen = lax.scan(lambda c, r: step(w, c, r), start, along(x)[:turns], reverse=reverse)
        every = [*last, *seen]
        return [every[place] for place in wanted]

    wanted = data.draw(st.lists(st.integers(0, len(after) + len(stacked) - 1), min_size=1, max_size=3, unique=True))
    graph = traced(scanned, {"w": W}, x=X)
    before = run(graph, x=X)
    same_bits(run(write_scans(graph), x=X), before)
    same_bits(run(optimize(graph, (*EXPORTED, write_scans))[0], x=X), before)
