"""A first look says that there is nothing to find only where every pass that it spares gives the very graph back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
from drivetrain.engine.graphs.graph import Check, Graph  # noqa: E402
from drivetrain.engine.passes import EXPORTED, FROZEN, STRUCTURAL, optimize, prune  # noqa: E402
from drivetrain.engine.passes.glance import SPARED, at_rest  # noqa: E402
from drivetrain.engine.tracing.marks import dropout  # noqa: E402

from ..zoo import zoo  # noqa: E402
from .graphs import traced, with_updates  # noqa: E402
from .test_random_graphs import ONE, RECIPES, TWO, WEIGHTED, Recipe, weights_of  # noqa: E402

pytestmark = pytest.mark.engine

X = np.ones((2, 4), np.float32)
ALONE = [f"one: {name}" for name in ONE] + [f"two: {name}" for name in TWO] + [f"weighted: {name}" for name in WEIGHTED]


def finds_something(graph: Graph) -> list[str]:
    return [step.__name__ for step in SPARED if step(graph) is not graph]


def looked_at_rightly(graph: Graph) -> bool:
    """Assert that no pass is spared that would find something; whether they are."""
    rests = at_rest(graph)
    if rests:
        assert not finds_something(graph)
        chains = STRUCTURAL, EXPORTED
        assert all(optimize(graph, chain)[0] is graph for chain in chains)
    return rests


def test_of_the_zoo_those_that_hold_nothing_to_find_are_at_rest() -> None:
    resting = {animal.name for animal in zoo() if looked_at_rightly(animal.graph())}
    assert resting == {"rnn", "gru", "newton"}
    assert all(finds_something(animal.graph()) for animal in zoo() if animal.name not in resting)


def steps(x: Any, step: Callable[[Any, Any], Any]) -> Any:
    return jax.lax.scan(step, x, length=3)


def counted(carry: Any, _: Any) -> Any:
    return (jnp.tanh(carry[0]), carry[1] + 1), None


def turning(x: Any, kept: Any, step: Callable[[Any, Any, Any], Any]) -> Any:
    return jax.lax.while_loop(lambda c: c[1] < 3, lambda c: step(*c), (x, 0, kept))


LADDER = np.asarray([1, 2, 3, 4], np.float32)

DISTURBED: dict[str, Callable[[Any, Any], Any]] = {
    "a result that nobody reads": lambda x, w: (jnp.sin(x), jnp.tanh(x @ w))[1],
    "an input that nobody reads": lambda x, w: w,
    "a weight that nobody reads": lambda x, w: jnp.tanh(x),
    "a scan's input, to be stacked for nobody": lambda x, w: steps(x @ w, lambda c, _: (jnp.tanh(c), jnp.sin(c)))[0],
    "a carry that only makes itself": lambda x, w: steps((x @ w, 0), lambda c, _: ((jnp.tanh(c[0]), c[1] + 1), None))[
        0
    ][0],
    "a count while, for nobody": lambda x, w: turning(x @ w, 0.0, lambda c, n, k: (jnp.tanh(c), n + 1, k + 2))[0],
    "a branch's second result": lambda x, w: jax.lax.cond(
        (x @ w).max() > 0, lambda y: (y, jnp.sin(y)), lambda y: (jnp.cos(y), y), x
    )[0],
    "work for nobody in a loop": lambda x, w: steps(x @ w, lambda c, _: (jnp.tanh(c), (jnp.sin(c), None)[1]))[0],
    "work twice in a loop": lambda x, w: steps(x @ w, lambda c, _: (jnp.tanh(c) - jnp.exp(jnp.tanh(c)), None))[0],
    "the same twice": lambda x, w: jnp.tanh(x @ w) - jnp.exp(jnp.tanh(x @ w)),
    "arrays that are equal": lambda x, w: jnp.tanh(x @ w + LADDER) + LADDER.copy(),
    "times one": lambda x, w: (x @ w) * 1.0,
    "a transpose of a transpose": lambda x, w: x @ jnp.transpose(jnp.transpose(w)),
    "limits": lambda x, w: jnp.minimum(jnp.maximum(x @ w, -1.0), 1.0),
    "a call": lambda x, w: jax.nn.silu(x @ w),
    "a gradient of its own": lambda x, w: jax.nn.relu(x @ w),
    "recomputation": lambda x, w: jax.checkpoint(jnp.tanh)(x @ w),
    "a call in a loop": lambda x, w: steps(x @ w, lambda c, _: (jax.nn.silu(c), None))[0],
    "a call in a branch": lambda x, w: jax.lax.cond((x @ w)[0, 0] > 0, jax.nn.silu, jnp.tanh, x),
    "a call while": lambda x, w: jax.lax.while_loop(lambda c: c[0, 0] < 1, jax.nn.silu, x @ w),
    "dropout in a loop": lambda x, w: steps(x @ w, lambda c, _: (dropout(c, 0.5, jax.random.key(0)), None))[0],
}


@pytest.mark.parametrize("what", DISTURBED)
def test_what_passes_would_find_is_seen(what: str) -> None:
    graph = traced(DISTURBED[what], {"w": weights_of(0)["w0"]}, x=X)
    assert finds_something(graph)
    assert not at_rest(graph)


AT_REST: dict[str, Callable[[Any, Any], Any]] = {
    "a layer": lambda x, w: jnp.tanh(x @ w),
    "other numbers": lambda x, w: jnp.tanh(x @ w * 2.0) / 3.0,
    "arrays that differ in shape": lambda x, w: jnp.tanh(x @ w + np.ones((1, 4), np.float32)) * np.ones(1, np.float32),
    "a loop of which everything is read": lambda x, w: steps(x @ w, lambda c, _: (jnp.tanh(c), jnp.sin(c))),
    "a count that ends a loop": lambda x, w: turning(x @ w, 0.5, lambda c, n, k: (jnp.tanh(c) * k, n + 1, k + 2))[0],
    "a branch": lambda x, w: jax.lax.cond((x @ w).max() > 0, jnp.sin, jnp.cos, x),
    "a carry that makes what is read": lambda x, w: steps(x @ w, lambda c, _: (jnp.tanh(c), jnp.sin(c)))[1],
    "an effect": lambda x, w: (jax.debug.callback(lambda _: None, x), jnp.tanh(x @ w))[1],
}


@pytest.mark.parametrize("what", AT_REST)
def test_where_there_is_nothing_to_find_it_is_seen(what: str) -> None:
    assert looked_at_rightly(traced(AT_REST[what], {"w": weights_of(0)["w0"]}, x=X))


def test_an_input_that_nobody_reads_is_seen_whatever_its_name() -> None:
    graph = traced(lambda sin, x: jnp.sin(x), sin=X, x=X)
    assert prune(graph).inputs.keys() == {"x"}
    assert not at_rest(graph)


def test_next_values_and_checks_are_readers() -> None:
    graph = traced(lambda x, w: (jnp.tanh(x @ w), w * 0.5), {"w": weights_of(0)["w0"]}, x=X)
    state = with_updates(graph, w="1")
    assert looked_at_rightly(state)
    (signature,) = state.signatures
    assert not at_rest(replace(state, updates={}))
    checked = replace(state, updates={}, checks={signature: (Check(state.updates[signature]["w"], "small"),)})
    assert looked_at_rightly(checked)


@pytest.mark.parametrize("name", ALONE)
def test_one_op_at_a_time(name: str) -> None:
    recipe = Recipe(((name, 0, 1),), (2,))
    graph = traced(recipe, weights_of(0), x=X, y=X)
    for given_up in (graph, prune(graph)):  # unread inputs and weights hide the rest
        looked_at_rightly(given_up)
    simple, _ = optimize(graph, EXPORTED)
    looked_at_rightly(simple)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(RECIPES, st.integers(0, 9))
def test_no_random_graph_is_at_rest_that_a_pass_would_change(recipe: Recipe, seed: int) -> None:
    graph = traced(recipe, weights_of(seed), x=X, y=X)
    for chain in ((), (prune,), STRUCTURAL, EXPORTED, (*EXPORTED, *EXPORTED), FROZEN):
        looked_at_rightly(optimize(graph, chain)[0])
