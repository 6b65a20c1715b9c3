"""A traced function as a graph: it gives what the function gives; state goes in as weights and out as updates."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from drivetrain.engine import TensorSpec, function
from drivetrain.engine.functions import stateful
from drivetrain.engine.graphs.graph import Graph
from drivetrain.engine.lowering.calling import callable_of
from drivetrain.engine.passes import EXPORTED, FROZEN, STRUCTURAL, optimize
from drivetrain.errors import InputError
from drivetrain.tests.engine.functions.table import TABLE, Case
from drivetrain.tests.engine.functions.test_control_flow import IDS, tensors
from drivetrain.tests.engine.zoo import Animal, zoo
from flax import nnx
from hypothesis import given, settings
from hypothesis import strategies as st

pytestmark = [  # many compilations
    pytest.mark.engine,
    pytest.mark.slow,
    pytest.mark.usefixtures("compiled_in_a_hurry"),
]

Arrays = dict[str, Any]


def equal(made: Any, wanted: Any) -> None:
    """Bitwise, in order."""
    for a, b in zip(made, jax.tree.leaves(wanted), strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
        assert a.dtype == jnp.asarray(b).dtype


@pytest.mark.parametrize("case", TABLE, ids=IDS)
def test_a_graph_gives_what_its_function_gives(case: Case) -> None:
    graphs: dict[Any, Any] = {}

    @settings(max_examples=2, deadline=None, derandomize=True)
    @given(st.tuples(*case.inputs))
    def check(drawn: tuple[Any, ...]) -> None:
        values = tensors(drawn)
        traced = function(case.fn).get_concrete_function(*values, **case.static)
        names = [item.name for item in traced.signature.arguments if item.spec is not None]
        assert list(traced.graph.inputs) == names
        run = graphs.setdefault(str(traced), callable_of(traced.graph))
        equal(run(dict(zip(names, values, strict=True))).values(), traced(*values, **case.static))

    check()


@pytest.mark.parametrize("animal", zoo(), ids=lambda animal: animal.name)
def test_the_zoo_as_functions_of_any_batch(animal: Animal) -> None:
    specs = {name: TensorSpec((None, *a.shape[1:]), str(a.dtype)) for name, a in animal.inputs.items()}
    traced = function(autograph=False)(animal.apply).get_concrete_function(animal.params, specs)
    graph = traced.graph
    assert all(graph.inputs[f"given['{name}']"].shape[0] == "b" for name in animal.inputs)
    assert list(graph.signatures["call"]) == sorted(animal.expected())  # JAX's order of a dict
    run = callable_of(graph)
    leaves = dict(zip(graph.inputs, jax.tree.leaves((animal.params, dict(animal.inputs))), strict=True))
    equal(run(leaves).values(), traced(animal.params, dict(animal.inputs)))
    fewer = {name: a[:5] if name.startswith("given[") else a for name, a in leaves.items()}
    equal(run(fewer).values(), traced(animal.params, {name: a[:5] for name, a in animal.inputs.items()}))


def test_names_of_what_goes_in_and_out() -> None:
    table = np.arange(6, dtype=np.float32)

    @function
    def f(t0: Any, pair: Any, *, scale: Any, k: int = 2) -> Any:
        return t0 + table[:2], {"a": [pair[0] * k, pair[1]], "b": scale}

    x = np.ones(2, np.float32)
    graph = f.get_concrete_function(x, (x, x), scale=x).graph
    assert list(graph.inputs) == ["t0", "pair[0]", "pair[1]", "scale"]
    assert list(graph.signatures["call"]) == ["0", "1['a'][0]", "1['a'][1]", "1['b']"]
    graph.check()
    (captured,) = graph.values.values()
    np.testing.assert_array_equal(captured[:2], table[:2])
    assert list(function(jnp.sin).get_concrete_function(x).graph.signatures["call"]) == ["result"]


# --- state ---


def ten_steps(graph: Graph, state: Arrays, batches: list[Arrays]) -> tuple[list[Arrays], Arrays]:
    """The outputs of each step, and the state after the last."""
    run = callable_of(graph)
    outputs = []
    for batch in batches:
        found = run({**state, **batch})
        state = {name: found.pop(name) for name in graph.updates["call"]}
        outputs.append(found)
    return outputs, state


_RANDOM = np.random.default_rng(3)
BATCHES = [{"x": _RANDOM.normal(size=(6, 3)).astype(np.float32)} for _ in range(10)]


def running_mean(state: Any, x: Any) -> Any:
    count = state["n"] + x.shape[0]
    mean = state["mean"] + ((x - state["mean"]) / count).sum(0)
    return {"n": count, "mean": mean}, (x - mean).sum()


def test_ten_steps_of_a_running_mean() -> None:
    start = {"n": np.float32(0), "mean": np.zeros(3, np.float32)}
    fn = function(running_mean)
    traced = fn.get_concrete_function(start, TensorSpec((None, 3)))
    graph = stateful(traced, "state")
    assert list(graph.inputs) == ["x"]
    assert list(graph.weights) == list(graph.updates["call"]) == ["state['mean']", "state['n']"]
    assert list(graph.signatures["call"]) == ["1"]
    outputs, state = ten_steps(graph, {"state['n']": start["n"], "state['mean']": start["mean"]}, BATCHES)
    plain: Any = start
    for made, batch in zip(outputs, BATCHES, strict=True):
        plain, output = traced(plain, batch["x"])
        equal(made.values(), output)
    equal(state.values(), plain)
    assert state["state['n']"] == 60
    np.testing.assert_allclose(
        state["state['mean']"], np.mean([batch["x"] for batch in BATCHES], (0, 1)), rtol=1e-4, atol=1e-6
    )


@pytest.mark.parametrize("passes", [(), STRUCTURAL, EXPORTED, FROZEN], ids=["none", "structural", "exported", "frozen"])
def test_ten_steps_of_training_with_adam(passes: Any) -> None:
    """Params and the optimizer's state; passes keep what changes them."""
    optimizer = optax.adam(0.1)
    params = {"w": np.zeros(3, np.float32), "b": np.zeros((), np.float32)}
    start = (params, optimizer.init(params))

    @function
    def step(params: Any, moments: Any, x: Any) -> Any:
        def loss(params: Any) -> Any:
            return ((x @ params["w"] + params["b"] - x.sum(1)) ** 2).mean()

        value, slopes = jax.value_and_grad(loss)(params)
        changes, moments = optimizer.update(slopes, moments, params)
        return optax.apply_updates(params, changes), moments, value

    traced = step.get_concrete_function(*start, TensorSpec((6, 3)))
    graph, _ = optimize(stateful(traced, "params", "moments"), passes)
    assert list(graph.inputs) == ["x"]
    assert len(graph.updates["call"]) == 2 + 5
    leaves = dict(zip(graph.updates["call"], jax.tree.leaves(start), strict=True))
    outputs, state = ten_steps(graph, leaves, BATCHES)
    plain: Any = start
    for made, batch in zip(outputs, BATCHES, strict=True):
        *plain, loss = step(*plain, batch["x"])
        if passes is FROZEN:
            np.testing.assert_allclose(made["2"], loss, rtol=1e-5)
        else:
            equal(made.values(), loss)
    if passes is not FROZEN:
        equal(state.values(), plain)
    assert outputs[-1]["2"] < outputs[0]["2"] / 2


def test_the_state_of_an_nnx_module() -> None:
    class Counting(nnx.Module):
        def __init__(self) -> None:
            self.norm = nnx.BatchNorm(3, rngs=nnx.Rngs(0))

    module, start = nnx.split(Counting())

    @function
    def step(state: Any, x: Any) -> Any:
        whole = nnx.merge(module, state)
        y = whole.norm(x)
        return {"y": y, "state": nnx.state(whole)}

    traced = step.get_concrete_function(start, TensorSpec((6, 3)))
    graph = stateful(traced, "state")
    assert "state['norm']['mean'].value" in graph.updates["call"]
    assert list(graph.signatures["call"]) == ["y"]
    leaves = dict(zip(graph.updates["call"], jax.tree.leaves(start), strict=True))
    outputs, state = ten_steps(graph, leaves, BATCHES)
    plain: Any = start
    for made, batch in zip(outputs, BATCHES, strict=True):
        found = traced(plain, batch["x"])
        plain = found["state"]
        equal(made.values(), found["y"])
    equal(state.values(), plain)
    assert np.abs(state["state['norm']['mean'].value"]).max() > 0


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg", None])
def test_a_key_of_random_numbers_is_state(impl: str | None) -> None:
    key = jax.random.PRNGKey(1) if impl is None else jax.random.key(1, impl=impl)

    @function
    def step(key: Any, x: Any) -> Any:
        key, use = jax.random.split(key)
        return key, x + jax.random.normal(use, x.shape)

    graph = stateful(step.get_concrete_function(key, BATCHES[0]["x"]), "key")
    outputs, state = ten_steps(graph, {"key": key}, BATCHES)
    plain = key
    for made, batch in zip(outputs, BATCHES, strict=True):
        plain, wanted = step(plain, batch["x"])
        equal(made.values(), wanted)
    assert bool(jnp.all(state["key"] == plain))


def test_one_state_alone_is_all_that_is_returned() -> None:
    graph = stateful(function(lambda w, x: w + x).get_concrete_function(np.ones(3), np.ones(3)), "w")
    assert dict(graph.signatures["call"]) == {}
    assert list(graph.updates["call"]) == ["w"]
    assert graph.signature("call").roots("call") == (graph.updates["call"]["w"],)


@pytest.mark.parametrize(
    ("fn", "state", "says"),
    [
        (lambda w, x: (w, x), ("v",), "no argument 'v'"),
        (lambda w, x: (w[:2], x), ("w",), r"w is float32\[3\], and its next value is float32\[2\]"),
        (lambda w, x: (w > 0, x), ("w",), r"its next value is bool\[3\]"),
        (lambda w, x: ({"w": w}, x), ("w",), r"the state 'w' is w, and 0\['w'\] is returned"),
        (lambda w, x: w + x, ("w", "x"), "'w' is w, and nothing is returned"),
        (lambda w, x: {"v": w, "u": x}, ("w",), r"the state 'w' is w, and v, u|u, v is returned"),
    ],
)
def test_what_is_no_next_value(fn: Any, state: tuple[str, ...], says: str) -> None:
    traced = function(fn).get_concrete_function(np.ones(3, np.float32), np.ones(3, np.float32))
    with pytest.raises(InputError, match=says) as raised:
        stateful(traced, *state)
    assert "test_as_graph.py" in str(raised.value)


def test_a_python_value_is_no_state() -> None:
    traced = function(lambda s, x: (s, x)).get_concrete_function({"rate": 0.5}, np.ones(3, np.float32))
    with pytest.raises(InputError, match=r"s\['rate'\] is 0.5, a Python value"):
        stateful(traced, "s")
