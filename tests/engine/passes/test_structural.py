"""What structural passes remove on small graphs, and what they must leave alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
from drivetrain.engine.graphs.graph import Graph, Output  # noqa: E402
from drivetrain.engine.graphs.nodes import AnalyzerNode, HostNode, Tensor  # noqa: E402
from drivetrain.engine.passes import (  # noqa: E402
    EXPORTED,
    STRUCTURAL,
    forget_gradients,
    inline,
    optimize,
    prune,
    share,
)
from drivetrain.engine.tracing.equations import graph_of_jaxpr  # noqa: E402
from drivetrain.errors import InputError  # noqa: E402

from .graphs import ops, optimized, run, same_bits, traced, with_updates  # noqa: E402

pytestmark = pytest.mark.engine

X = np.asarray([-0.0, 0.0, 1.5, np.nan, np.inf, -np.inf, 1e-42, -3.0], np.float32)
MATRIX = X[:, None] * np.ones(3, np.float32)


def check(fn: Any, passes: Any, gone: dict[str, int], x: np.ndarray[Any, Any] = X) -> None:
    """Assert what passes remove from `fn(x)`, by the difference in ops, and that nothing else changes."""
    graph = traced(fn, x=x)
    simplified = optimized(graph, passes)
    assert dict(ops(graph) - ops(simplified)) == gone
    same_bits(run(simplified, x=x), run(graph, x=x))


def test_prune_removes_what_no_output_needs() -> None:
    def fn(x: Any) -> Any:
        jnp.cos(jnp.sin(x))
        return x + 1

    check(fn, prune, {"cos": 1, "sin": 1})


def test_prune_keeps_effects() -> None:
    def fn(x: Any) -> Any:
        jax.debug.callback(lambda v: None, x)
        return x + 1

    assert ops(optimized(traced(fn, x=X), STRUCTURAL))["debug_callback"] == 1
    assert ops(optimized(traced(fn, x=X), EXPORTED))["debug_callback"] == 1


def test_share_does_equal_work_once() -> None:
    check(lambda x: jnp.sin(x) * 2 + jnp.sin(x) * 2, share, {"sin": 1, "mul": 1})
    check(lambda x: x + x.astype(jnp.int32) + x.astype(jnp.int32), share, {"convert_element_type": 2})


def test_share_tells_literals_apart_by_their_bits() -> None:
    check(lambda x: (x * 0.0, x * -0.0), share, {})
    check(lambda x: (x.astype(jnp.int8), x.astype(jnp.int16)), share, {})


def test_share_tells_branches_apart_that_give_one_thing_and_several() -> None:
    def both(x: Any) -> Any:
        positive = x.sum() > 0
        one = jax.lax.cond(positive, jnp.sin, jnp.cos, x)
        return one, *jax.lax.cond(positive, lambda y: (y, jnp.sin(y)), lambda y: (jnp.cos(y), y), x)

    check(both, share, {"convert_element_type": 1})


def drawn(partitionable: bool) -> Any:
    with jax.threefry_partitionable(partitionable):
        return jax.random.bits(jax.random.key(0), (4,))


def test_share_tells_apart_what_is_done_under_other_settings() -> None:
    """An equation's context is not a param of it: here it is which numbers a key gives."""
    graph = traced(lambda x: (x, drawn(True), drawn(False), drawn(True)), x=MATRIX)
    simplified = optimized(graph, EXPORTED)
    assert ops(simplified)["random_bits"] == 2
    outputs = run(simplified, x=MATRIX)
    assert outputs["1"].tolist() == drawn(True).tolist() != outputs["2"].tolist() == drawn(False).tolist()


@pytest.mark.slow
def test_share_tells_loops_apart_whose_bodies_have_other_settings() -> None:
    def looped(partitionable: bool) -> Any:
        return jax.lax.scan(lambda c, _: (c + drawn(partitionable), None), jnp.zeros(4, jnp.uint32), length=2)[0]

    graph = traced(lambda x: (x, looped(True), looped(False)), x=MATRIX)
    simplified = optimized(graph, EXPORTED)
    assert ops(simplified)["scan"] == 2
    same_bits(run(simplified, x=MATRIX), run(graph, x=MATRIX))


RAW = Tensor("raw", "int64", column=True)
HOST = HostNode("values", ("raw",), (Tensor("a", "int32"),), {"column": "x"}, ("words",))
ANALYZER = AnalyzerNode("min", ("raw",), (Tensor("a", "int32", ()),), {"column": "x"})


@pytest.mark.parametrize(
    ("first", "changes"),
    [(node, {}) for node in (HOST, ANALYZER)]
    + [
        (node, changes)
        for node in (HOST, ANALYZER)
        for changes in (
            {"op": "max"},
            {"inputs": ("other",)},
            {"params": {"column": "y"}},
            {"params": {"column": 1}},
            {"outputs": (replace(node.outputs[0], dtype="float32"),)},
            {"outputs": (replace(node.outputs[0], shape=("b", 3)),)},
        )
    ]
    + [(HOST, {"assets": ("others",)}), (HOST, {"outputs": (replace(HOST.outputs[0], column=True),)})],
)
def test_share_tells_host_ops_and_analyzers_apart_by_all_that_they_say(first: Any, changes: dict[str, Any]) -> None:
    made = [replace(tensor, id="z") for tensor in changes.get("outputs", first.outputs)]
    again = replace(first, **{**changes, "outputs": tuple(made), "where": "elsewhere.py:1"})
    graph = Graph(
        inputs={"raw": RAW, "other": replace(RAW, id="other")},
        nodes=(first, again),
        signatures={"both": {"one": Output("a"), "two": Output("z")}},
    )
    shared = share(graph)
    assert [node is first for node in shared.nodes] == ([True, False] if changes else [True])
    wanted = "z" if changes else "a"
    assert shared.signatures["both"] == {"one": Output("a"), "two": Output(wanted)}


def test_share_merges_equal_captured_arrays_but_not_params() -> None:
    a, b = np.arange(3, dtype=np.float32), np.arange(3, dtype=np.float32)
    graph = traced(lambda x: (x + a, x + b), x=MATRIX)
    assert len(graph.weights) == 2
    assert len(optimized(graph, STRUCTURAL).weights) == 1
    params = traced(lambda x, v, w: (x + v, x + w), {"v": a, "w": b}, x=MATRIX)
    assert len(optimized(params, EXPORTED).weights) == 2


def test_a_param_that_has_the_name_of_a_captured_array_is_refused() -> None:
    with pytest.raises(InputError, match="constant:0"):
        traced(lambda x, w: x + w, {"constant:0": np.ones(3, np.float32)}, x=MATRIX)
    assert len(traced(lambda x, w: x + w, {"constant/0": np.ones(3, np.float32)}, x=MATRIX).weights) == 1


def test_captured_arrays_inside_functions_are_not_taken_for_each_other() -> None:
    a, b = jnp.arange(3.0), jnp.arange(3.0) * 2
    add_a, add_b = jax.jit(lambda x: x + a), jax.jit(lambda x: x + b)
    check(lambda x: (add_a(x), add_b(x)), share, {}, MATRIX)
    check(lambda x: (add_a(x), add_b(x)), inline, {"jit": 2}, MATRIX)


def test_random_numbers_of_one_key_are_the_same_and_of_two_are_not() -> None:
    def fn(x: Any) -> Any:
        one, two = jax.random.key(1), jax.random.key(2)
        return tuple(x + jax.random.uniform(key, (3,)) for key in (one, one, two))

    graph = traced(fn, x=MATRIX)
    simplified = optimized(graph, EXPORTED)
    assert ops(simplified)["random_bits"] == 2
    same_bits(run(simplified, x=MATRIX), run(graph, x=MATRIX))


def test_work_with_several_results_is_shared_whichever_are_read() -> None:
    check(lambda x: (jax.lax.top_k(x, 2)[0], jax.lax.top_k(x, 2)[0]), share, {"top_k": 1}, MATRIX)
    check(lambda x: (jax.lax.top_k(x, 2)[0], jax.lax.top_k(x, 2)[1]), share, {"top_k": 1}, MATRIX)
    check(lambda x: (jax.lax.top_k(x, 2)[0], jax.lax.top_k(x, 1)[0]), share, {}, MATRIX)


def test_scans_with_equal_bodies_are_shared_and_with_others_not() -> None:
    def scan(x: Any, by: float) -> Any:
        return jax.lax.scan(lambda h, _: (h * by, None), x, length=3)[0]

    check(lambda x: scan(x, 2.0) + scan(x, 2.0), share, {"scan": 1})
    check(lambda x: (scan(x, 0.0), scan(x, -0.0)), share, {})


def test_inline_takes_jitted_functions_and_leaves_custom_gradients() -> None:
    graph = traced(lambda x: jax.nn.relu(jnp.clip(x, 0, 1)), x=X)
    simplified = optimized(graph, inline)
    assert ops(graph)["jit"] == 1
    assert ops(simplified)["jit"] == 0
    assert ops(simplified)["custom_jvp_call"] == 1
    same_bits(run(simplified, x=X), run(graph, x=X))


def test_forget_gradients_takes_custom_gradients_and_recomputation_too() -> None:
    half = jax.custom_vjp(lambda x: x / 2)
    half.defvjp(lambda x: (x / 2, None), lambda _, g: (g / 2,))
    fn = lambda x: jax.checkpoint(jnp.sin)(half(jax.nn.relu(x)))  # noqa: E731
    graph = traced(fn, x=X)
    simplified = optimized(graph, forget_gradients)
    assert set(ops(simplified)) == {"max", "div", "sin"}
    same_bits(run(simplified, x=X), run(graph, x=X))
    assert set(ops(optimized(graph, STRUCTURAL))) == {"custom_jvp_call", "custom_vjp_call", "remat2"}


def test_a_literal_that_an_output_becomes_is_a_weight() -> None:
    graph = traced(lambda x: (jax.jit(lambda x: jnp.float16(2.5))(x), x), x=X)
    simplified = optimized(graph, EXPORTED)
    same_bits(run(simplified, x=X), run(graph, x=X))
    assert ops(simplified) == {}


def test_a_literal_that_a_host_node_reads_becomes_a_weight() -> None:
    graph = traced(lambda x: (jax.jit(lambda x: 2.5)(x), x), x=X)
    given = graph.signatures["call"]["0"].tensor
    host = HostNode("column", (given,), (Tensor("host/column", "float64", (), column=True),), {"dtype": "float64"})
    made, _ = optimize(replace(graph, nodes=(*graph.nodes, host)), (inline,))
    made.check()
    (read,) = made.nodes[-1].inputs
    assert made.values[str(read)] == np.float32(2.5)


def test_updates_stay_what_they_are() -> None:
    count, equal = np.zeros(3, np.float32), np.zeros(3, np.float32)
    graph = traced(lambda x, n, m: (x + n + m, n + x.sum(0), m * 1.0), {"n": count, "m": equal}, x=MATRIX[2:3])
    state = with_updates(graph, n="1", m="2")
    before = run(state, x=MATRIX[2:3])
    for chain in (STRUCTURAL, EXPORTED):
        simplified = optimized(state, chain)
        assert set(simplified.updates["call"]) == {"n", "m"}
        same_bits(run(simplified, x=MATRIX[2:3]), before)
        given = {"n": count + 5, "m": equal - 2}
        same_bits(run(simplified, x=MATRIX[2:3], **given), run(state, x=MATRIX[2:3], **given))


def test_the_report_says_what_went() -> None:
    _, (first,) = optimize(traced(lambda x: jnp.sin(x) + jnp.sin(x), x=X), (share,))
    assert (first.name, first.before, first.after, first.removed) == ("share", 3, 2, {"sin": 1})
    assert str(first).startswith("share: 3 -> 2 nodes in ")
    assert str(first).endswith("(1 sin)")


def test_an_equal_graph_made_of_equations_runs_as_jax_does() -> None:
    def fn(x: Any) -> Any:
        return jnp.tanh(x) @ jnp.ones((3, 2))

    closed = jax.make_jaxpr(fn)(MATRIX)
    graph = graph_of_jaxpr(closed, [("x", Tensor("x", "float32", MATRIX.shape))], {"0": 0})
    np.testing.assert_allclose(run(graph, x=MATRIX)["0"], np.asarray(fn(MATRIX)), rtol=1e-6)
