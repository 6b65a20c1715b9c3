"""Loops carry, and branches give, only what is read; the results that are stay the same to the bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
from drivetrain.engine.graphs.graph import Graph  # noqa: E402
from drivetrain.engine.graphs.nodes import DeviceOp  # noqa: E402
from drivetrain.engine.passes import tidy_bodies  # noqa: E402
from drivetrain.engine.passes.carries import prune_carries  # noqa: E402
from jax import lax  # noqa: E402

from .graphs import optimized, run, same_bits, traced  # noqa: E402

pytestmark = pytest.mark.engine

X = np.random.default_rng(6).normal(size=(3, 4)).astype(np.float32)


def only(graph: Graph, op: str) -> DeviceOp:
    (node,) = (node for node in graph.nodes if isinstance(node, DeviceOp) and node.op == op)
    return node


def pruned(fn: Callable[..., Any], op: str) -> tuple[DeviceOp, DeviceOp]:
    """The node before and after; the results are the same."""
    graph = traced(fn, {"w": X}, x=X)
    made = optimized(graph, prune_carries)
    same_bits(run(made, x=X), run(graph, x=X))
    return only(graph, op), only(made, op)


def text(node: DeviceOp) -> str:
    return str(node.equation)


def test_what_a_while_loop_carries_for_nobody_goes() -> None:
    def step(state: Any) -> Any:
        x, turns, seen, other = state
        return jnp.tanh(x) + 0.1, turns + 1, seen + jnp.cos(x).sum(), other * jnp.exp(seen)

    def fn(x: Any, w: Any) -> Any:
        start = (x, 0, jnp.float32(0), jnp.float32(1))
        return lax.while_loop(lambda state: state[1] < 4, step, start)[0]

    before, after = pruned(fn, "while")
    assert (len(before.outputs), len(after.outputs)) == (4, 2)  # the turns end it
    assert "cos" in text(before)
    assert not {"cos", "exp"} & set(text(after).split())


def test_what_one_carry_is_made_of_stays() -> None:
    def step(state: Any) -> Any:
        x, turns, speed, push = state
        return x + speed, turns + 1, speed * push, push

    def fn(x: Any, w: Any) -> Any:
        return lax.while_loop(lambda state: state[1] < 4, step, (x, 0, jnp.float32(2), w[0, 0]))[0]

    before, after = pruned(fn, "while")
    assert after is before


def test_a_loop_reads_only_what_it_needs_of_what_stays_the_same() -> None:
    def fn(x: Any, w: Any) -> Any:
        heavy, light = w * 2, w[0] + 1
        step = lambda s: (s[0] * light, s[1] + 1, s[2] + (heavy * s[0][:1, :1]).sum())  # noqa: E731
        return lax.while_loop(lambda s: (s[1] < 3) & (light[0] < 99), step, (x, 0, jnp.float32(0)))[0]

    before, after = pruned(fn, "while")
    given = [node.equation.params["body_nconsts"] for node in (before, after)]
    assert given == [2, 1]
    assert after.equation.params["cond_nconsts"] == before.equation.params["cond_nconsts"]


def test_branches_give_only_what_is_read_of_them() -> None:
    def fn(x: Any, w: Any) -> Any:
        tests = jnp.argmax(x.sum(0)) % 3
        several = [lambda a, b: (a, jnp.sin(b), 1), lambda a, b: (a + 1, b, 2), lambda a, b: (jnp.cos(a), b, 3)]
        first, _, last = lax.switch(tests, several, x, w)
        return first, last

    before, after = pruned(fn, "cond")
    assert (len(before.outputs), len(after.outputs)) == (3, 2)
    assert (len(before.operands), len(after.operands)) == (3, 2)
    assert "sin" not in text(after)
    assert "cos" in text(after)


def test_what_has_effects_stays() -> None:
    def step(state: Any) -> Any:
        jax.debug.callback(lambda _: None, state[2])
        return state[0] * 2, state[1] + 1, state[2] + 1

    def fn(x: Any, w: Any) -> Any:
        return lax.while_loop(lambda state: state[1] < 3, step, (x, 0, jnp.float32(0)))[0]

    graph = traced(fn, {"w": X}, x=X)
    assert prune_carries(graph) is graph, "what is said of the third would be lost"


def test_work_for_nobody_goes_from_bodies() -> None:
    def fn(x: Any, w: Any) -> Any:
        def turn(c: Any) -> Any:
            jnp.linalg.svd(c.T @ c)
            return jnp.tanh(c)

        return lax.fori_loop(0, 3, lambda _, c: turn(c), x)

    graph = traced(fn, {"w": X}, x=X)
    made = optimized(graph, tidy_bodies)
    assert "svd" in str(only(graph, "scan").equation)
    assert "svd" not in str(only(made, "scan").equation)
    same_bits(run(made, x=X), run(graph, x=X))


PLACE = st.integers(0, 9)


@pytest.mark.slow
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(PLACE, PLACE, st.booleans()), min_size=1, max_size=5), st.data(), st.booleans())
def test_of_random_loops_what_is_read_stays_the_same(steps: Any, data: st.DataObject, scanned: bool) -> None:
    wanted = data.draw(st.lists(st.integers(0, len(steps) - 1), max_size=3, unique=True))
    ends = data.draw(st.integers(0, len(steps) - 1))

    def step(state: Any) -> Any:
        made = []
        for first, second, adds in steps:
            a, b = state[first % len(state)], state[second % len(state)]
            made.append(jnp.tanh(a) + b if adds else a * b)
        return tuple(made)

    def fn(x: Any, w: Any) -> Any:
        start = tuple(x + place for place in range(len(steps)))
        if scanned:
            last = lax.scan(lambda c, _: (step(c), None), start, length=3)[0]
        else:
            more = lambda s: (s[0] < 4) & (jnp.nan_to_num(s[1][ends]).max() < 1e3)  # noqa: E731
            last = lax.while_loop(more, lambda s: (s[0] + 1, step(s[1])), (0, start))[1]
        return [x.sum(0), *[last[place] for place in wanted]]

    graph = traced(fn, {"w": X}, x=X)
    same_bits(run(prune_carries(graph), x=X), run(graph, x=X))
