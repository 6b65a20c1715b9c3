"""The cost of graphs, against hand counts and XLA's own analysis."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")

from drivetrain.engine.graphs.cost import cost, costs  # noqa: E402
from drivetrain.engine.graphs.nodes import Tensor  # noqa: E402
from drivetrain.engine.tracing.equations import graph_of_jaxpr  # noqa: E402

pytestmark = pytest.mark.engine


def graph(fn: Any, *shapes: tuple[int, ...]) -> Any:
    (batch,) = jax.export.symbolic_shape("b")
    structs = [jax.ShapeDtypeStruct((batch, *shape), "float32") for shape in shapes]
    inputs = [(f"x{i}", Tensor(f"x{i}", "float32", ("b", *shape))) for i, shape in enumerate(shapes)]
    return graph_of_jaxpr(jax.make_jaxpr(fn)(*structs), inputs, {"y": 0})


W = np.ones((64, 32), np.float32)


def test_a_product_of_matrices_is_two_operations_per_multiplication() -> None:
    assert cost(graph(lambda x: x @ W, (64,)), rows=100).flops == 2 * 100 * 64 * 32


def test_bytes_are_what_is_read_and_written() -> None:
    ((node, one),) = costs(graph(lambda x: x @ W, (64,)), rows=10)
    assert getattr(node, "op", None) == "dot_general"
    assert one.bytes == 4 * (10 * 64 + 64 * 32 + 10 * 32)


def test_a_network_costs_what_xla_says() -> None:
    def mlp(x: Any) -> Any:
        return jax.nn.softmax(jax.numpy.tanh(x @ W) @ W.T)

    mine = cost(graph(mlp, (64,)), rows=256)
    theirs = jax.jit(mlp).lower(jax.ShapeDtypeStruct((256, 64), "float32")).compile().cost_analysis()
    assert mine.flops == pytest.approx(theirs["flops"], rel=0.05)
    assert mine.transcendentals == pytest.approx(theirs["transcendentals"], rel=0.05)


def test_a_scan_costs_its_body_as_often_as_it_runs_and_an_open_loop_says_so() -> None:
    def scanned(x: Any) -> Any:
        return jax.lax.scan(lambda carry, _: (carry @ np.eye(8, dtype=np.float32), None), x, length=7)[0]

    def looped(x: Any) -> Any:
        return jax.lax.while_loop(lambda y: (y < 9).all(), lambda y: y + 1, x)

    assert cost(graph(scanned, (8,)), rows=5).flops == 7 * 2 * 5 * 8 * 8
    assert cost(graph(scanned, (8,)), rows=5).exact
    assert not cost(graph(looped, (8,)), rows=5).exact
