"""Small graphs for the tests of passes: traced, optimised, run, compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from drivetrain.engine.graphs.graph import Graph
from drivetrain.engine.graphs.nodes import DeviceOp, Tensor
from drivetrain.engine.lowering.calling import callable_of
from drivetrain.engine.passes import Pass, PassReport, optimize
from drivetrain.engine.tracing.equations import graph_of_jaxpr
from drivetrain.engine.tracing.primitives import shaped

Arrays = Mapping[str, np.ndarray[Any, Any]]


def traced(fn: Callable[..., Any], weights: Arrays | None = None, **inputs: np.ndarray[Any, Any]) -> Graph:
    """`fn(*inputs, *weights)` with a symbolic batch; its results are the outputs "0", "1" …."""
    held = dict(weights or {})
    (batch,) = jax.export.symbolic_shape("b")
    shapes = [shaped((batch, *a.shape[1:]), a.dtype) for a in inputs.values()]
    shapes += [shaped(a.shape, a.dtype) for a in held.values()]
    closed = jax.make_jaxpr(fn)(*shapes)
    given = [(name, Tensor(name, str(a.dtype), ("b", *a.shape[1:]))) for name, a in inputs.items()]
    places = {str(place): place for place in range(len(closed.out_avals))}
    return graph_of_jaxpr(closed, given, places, weights=held)


def run(graph: Graph, **inputs: Any) -> dict[str, np.ndarray[Any, Any]]:
    """The outputs and updates of the graph."""
    return {name: np.asarray(array) for name, array in callable_of(graph)(inputs).items()}


def ops(graph: Graph) -> Counter[str]:
    """How many device ops there are of each kind."""
    return Counter(node.op for node in graph.nodes if isinstance(node, DeviceOp))


def same_bits(a: Mapping[str, Any], b: Mapping[str, Any]) -> None:
    """Assert equal outputs: dtypes, shapes and bits, any NaN equal to any other."""
    assert a.keys() == b.keys()
    for name in a:
        left, right = np.asarray(a[name]), np.asarray(b[name])
        assert (left.dtype, left.shape) == (right.dtype, right.shape), name
        if left.dtype.kind == "f":
            assert np.array_equal(np.isnan(left), np.isnan(right)), name
            left, right = np.where(np.isnan(left), 0, left), np.where(np.isnan(right), 0, right)
        assert left.tobytes() == right.tobytes(), name


def close(a: Mapping[str, Any], b: Mapping[str, Any], within: float = 1e-6) -> None:
    """Assert outputs equal to within a part of their scale (at least 1)."""
    assert a.keys() == b.keys()
    for name in a:
        left, right = np.asarray(a[name]), np.asarray(b[name])
        assert (left.dtype, left.shape) == (right.dtype, right.shape), name
        with np.errstate(invalid="ignore"):
            scale = max(1.0, float(np.max(np.abs(right[np.isfinite(right)]), initial=0.0)))
        np.testing.assert_allclose(left, right, rtol=0, atol=within * scale, err_msg=name)


def optimized(graph: Graph, passes: Sequence[Pass] | Pass) -> Graph:
    """The graph after one pass or several; it must be whole, and stay so when they run again."""
    return optimized_with_reports(graph, passes)[0]


def optimized_with_reports(graph: Graph, passes: Sequence[Pass] | Pass) -> tuple[Graph, Sequence[PassReport]]:
    """As `optimized`, with what each pass did."""
    steps = [passes] if callable(passes) else list(passes)
    after, reports = optimize(graph, steps)
    after.check()
    assert reports[0].before == len(graph.nodes)
    assert reports[-1].after == len(after.nodes)
    again, _ = optimize(after, steps)
    assert ops(again) == ops(after), "a second time changes nothing"
    return after, reports


def with_updates(graph: Graph, **updates: str) -> Graph:
    """The graph with outputs turned into the next values of weights."""
    (signature,) = graph.signatures
    outputs = dict(graph.signatures[signature])
    changed = {weight: outputs.pop(name).tensor for weight, name in updates.items()}
    return replace(graph, signatures={signature: outputs}, updates={signature: changed})
