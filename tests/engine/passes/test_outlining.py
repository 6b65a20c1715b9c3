"""Repeated parts as calls of one function: when, what stays apart, and the same bits in the end."""

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
from drivetrain.engine.graphs.graph import Graph  # noqa: E402
from drivetrain.engine.graphs.nodes import DeviceOp, Tensor  # noqa: E402
from drivetrain.engine.passes import EXPORTED, inline, outline  # noqa: E402
from drivetrain.engine.tracing.equations import as_function, function_of, graph_of_jaxpr  # noqa: E402

from .graphs import close, ops, optimized, run, same_bits, traced  # noqa: E402

pytestmark = pytest.mark.engine

NAMES = ("a", "b", "c", "d")
COLUMNS = {name: np.linspace(-2, 3, 5, dtype=np.float32) * (at + 1) for at, name in enumerate(NAMES)}
COLUMNS["a"][1] = np.nan


def scaled(x: Any, factor: float = 3.0) -> Any:
    """A dozen ops that read a column."""
    filled = jax.lax.select(x != x, jnp.zeros_like(x), x) * factor
    return jnp.tanh(jnp.sin(filled) * 3.0 + jnp.cos(filled * filled) - jnp.exp(-jnp.abs(filled)))


def of_columns(fn: Callable[..., Any]) -> Graph:
    return traced(fn, None, **COLUMNS)


def unchanged(fn: Callable[..., Any]) -> None:
    graph = inline(of_columns(fn))
    assert outline(graph) is graph


def outlined(fn: Callable[..., Any], calls: int) -> Graph:
    """The graph after the pass: so many calls, whole, and the same bits as before; close to JAX's own."""
    graph = inline(of_columns(fn))
    simplified = optimized(graph, outline)
    assert ops(simplified)["jit"] == calls
    assert len(simplified.nodes) < len(graph.nodes)
    results = run(simplified, **COLUMNS)
    same_bits(results, run(graph, **COLUMNS))
    close(results, {str(at): a for at, a in enumerate(jax.jit(fn)(*COLUMNS.values()))})
    return simplified


def of_five_rows(fn: Callable[..., Any]) -> Graph:
    """The same of arrays that have five rows, inlined."""
    closed = jax.make_jaxpr(fn)(*COLUMNS.values())
    given = [(name, Tensor(name, "float32", (5,))) for name in NAMES]
    return inline(graph_of_jaxpr(closed, given, {str(at): at for at in range(len(closed.out_avals))}))


def runnable(graph: Graph) -> Callable[..., Any]:
    """The graph as a Python function of its columns."""
    (outputs,) = graph.signatures.values()
    made = [node for node in graph.nodes if isinstance(node, DeviceOp)]
    return as_function(function_of(graph, made, NAMES, [output.tensor for output in outputs.values()]))


def bodies(graph: Graph) -> list[Any]:
    return [node.equation.params["jaxpr"] for node in graph.nodes if isinstance(node, DeviceOp) and node.op == "jit"]


def test_columns_that_are_scaled_alike_are_scaled_by_one_function() -> None:
    def fn(a: Any, b: Any, c: Any, d: Any) -> list[Any]:
        return [scaled(a) + scaled(b) + scaled(c) + scaled(d)]

    outlined_graph = outlined(fn, 4)
    assert ops(outlined_graph) == {"jit": 4, "add": 3}
    first, *others = bodies(outlined_graph)
    assert all(body is first for body in others)
    run = runnable(outline(of_five_rows(fn)))
    text = jax.jit(lambda *columns: run(*columns)).lower(*COLUMNS.values()).as_text()
    assert text.count("stablehlo.tanh") == 1
    assert text.count("call @repeated") == 4


def test_what_is_done_with_other_numbers_stays_apart() -> None:
    unchanged(lambda a, b, c, d: [scaled(a, 1.5), scaled(b, 2.5), scaled(c, 3.5), scaled(d, 4.5)])


def test_a_few_ops_cost_less_than_calls() -> None:
    unchanged(lambda *columns: [jnp.exp(jnp.sin(column) * 2.0 - 1.0) for column in columns])


def test_results_within_a_part_are_given_too() -> None:
    def both(*columns: Any) -> list[Any]:
        found = []
        for column in columns:
            sine = jnp.sin(column)
            found += [sine, scaled(sine), jnp.cos(sine)]
        return found

    outlined_graph = outlined(both, 4)
    assert all(len(node.outputs) == 3 for node in outlined_graph.nodes)


def test_only_parts_that_read_in_the_same_places_share_a_function() -> None:
    def mixed(a: Any, b: Any, c: Any, d: Any) -> list[Any]:
        return [scaled(a * b) + a, scaled(b * c) + b, scaled(c * d) + c, scaled(d * d) + d]

    outlined(mixed, 3)


def test_what_comes_back_from_outside_begins_another_part() -> None:
    def softmax(*columns: Any) -> list[Any]:
        parts = [scaled(column) for column in columns]
        total = sum(jnp.exp(part) for part in parts)
        return [scaled(part / total) * part for part in parts]

    outlined(softmax, 8)


def test_parts_of_parts_that_read_one_another_run_in_order() -> None:
    def chained(a: Any, b: Any, c: Any, d: Any) -> list[Any]:
        return [scaled(scaled(a) + b) + scaled(scaled(c) + d) + scaled(scaled(d) + a)]

    outlined(chained, 3)


def test_what_little_repeats_is_left() -> None:
    """To look for the parts costs as much as they would save."""
    unchanged(lambda a, b, c, d: [scaled(a) + scaled(b), c * d])


def test_ops_with_several_results_are_told_apart_by_place() -> None:
    def pairs(*columns: Any) -> list[Any]:
        found = []
        for column in columns:
            keys, places = jax.lax.sort((scaled(column), jnp.arange(column.shape[0]) * 1.0), num_keys=1)
            found.append(keys * 2.0 - places)
        return found

    outlined(pairs, 4)


def test_effects_keep_their_order() -> None:
    def told(*columns: Any) -> list[Any]:
        jax.debug.print("{}", columns[0].sum(), ordered=True)
        return [scaled(column) for column in columns]

    unchanged(told)


def test_parts_on_two_devices_stay_on_them() -> None:
    graph = inline(of_columns(lambda *columns: [scaled(column) for column in columns]))
    of = {"0": "cpu:0", "1": "cpu:0", "2": "cpu:1", "3": "cpu:1"}
    outputs = graph.signatures["call"]
    places = dict.fromkeys(range(len(graph.nodes)), "")
    for name, device in of.items():
        part = {id(node) for node in graph.needed([outputs[name].tensor]).nodes}
        places.update({at: device for at, node in enumerate(graph.nodes) if id(node) in part})
    ops_only = [node for node in graph.nodes if isinstance(node, DeviceOp)]
    nodes = tuple(replace(node, device=places[at]) for at, node in enumerate(ops_only))
    simplified = optimized(replace(graph, nodes=nodes), outline)
    calls = [node for node in simplified.nodes if isinstance(node, DeviceOp) and node.op == "jit"]
    assert [call.device for call in calls] in (["cpu:0", "cpu:0", "cpu:1", "cpu:1"], [])
    same_bits(run(simplified, **COLUMNS), run(graph, **COLUMNS))


def test_a_call_stands_at_the_users_line() -> None:
    outlined_graph = outlined(lambda *columns: [scaled(column) for column in columns], 4)
    lines = [node.where or "" for node in outlined_graph.nodes if isinstance(node, DeviceOp)]
    assert len(lines) == 4
    assert all("test_outlining.py:" in line for line in lines)


def test_gradients_go_through_calls() -> None:
    def fn(*columns: Any) -> list[Any]:
        return [sum(scaled(column).sum() for column in columns)]

    made = outline(of_five_rows(fn))
    assert ops(made)["jit"] == 4
    before = jax.jit(jax.grad(lambda *columns: fn(*columns)[0], argnums=(1, 2)))(*COLUMNS.values())
    after = jax.jit(jax.grad(lambda *columns: runnable(made)(*columns)[0], argnums=(1, 2)))(*COLUMNS.values())
    for a, b in zip(after, before, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


UNARY = [jnp.sin, jnp.cos, jnp.tanh, jnp.abs, lambda x: x * 2.0, lambda x: x - 0.5, jax.nn.sigmoid, jax.nn.relu, scaled]
BINARY = [jnp.add, jnp.multiply, jnp.maximum, lambda x, y: jnp.where(x > y, x, -y)]
STEPS = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 9), st.integers(0, 9)), min_size=6, max_size=14)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(STEPS, STEPS, st.integers(2, 4))
@pytest.mark.slow
def test_any_preparation_of_columns_keeps_its_bits(first: Any, then: Any, times: int) -> None:
    """A random preparation of each column, something of all of them, and a random one of each with that."""

    def prepared(steps: Any, *values: Any) -> Any:
        known = list(values)
        for op, one, other in steps:
            x, y = known[one % len(known)], known[other % len(known)]
            known.append(UNARY[op](x) if op < len(UNARY) else BINARY[op - len(UNARY)](x, y))
        return known[-1] + known[-2]

    def fn(*columns: Any) -> list[Any]:
        parts = [prepared(first, column) for column in columns[:times]]
        both = sum(parts) + columns[-1]
        return [prepared(then, part, both) for part in parts]

    graph = of_columns(fn)
    before = run(graph, **COLUMNS)
    for passes in ((inline, outline), (*EXPORTED, outline)):
        same_bits(run(optimized(graph, passes), **COLUMNS), before)


def test_what_makes_nothing_is_no_part() -> None:
    def silent(*columns: Any) -> Any:
        jax.lax.scan(lambda *_: (None, None), None, length=2)
        return [scaled(column) for column in columns]

    unchanged(silent)

    def heard(*columns: Any) -> Any:
        jax.debug.callback(lambda: None)
        return [scaled(column) for column in columns]

    unchanged(heard)
