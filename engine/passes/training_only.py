"""What only training does is dropped from a graph that will serve: dropout, and checks for debugging."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from jax.extend import core as jex

from ..graphs.graph import Graph, Output
from ..graphs.nodes import DeviceOp, GraphNode, Tensor
from ..tracing.equations import Builder, function_of
from ..tracing.training_only import TRAINING_ONLY
from .meaning import Operand, renamed, with_meaning
from .structural import callee, expanded, prune

_SIGNATURE: Final = "body"
_BODIES: Final = {
    "scan": ("jaxpr",),
    "while": ("cond_jaxpr", "body_jaxpr"),
    "cond": ("branches",),
}
"""Ops that hold bodies, and the params that they stand in."""


def drop_training(graph: Graph) -> Graph:
    """Without dropout and `debug_assert`, in functions, loops and branches too: each gives back its first operand."""
    return prune(_without_marked(graph))


def _without_marked(graph: Graph) -> Graph:
    trains_by_id: dict[int, bool] = {}
    graph = expanded(
        graph, lambda node: callee(node) if not _marked(node.equation) and _holds(node, trains_by_id) else None
    )
    meaning: dict[str, Operand] = {}
    nodes: list[GraphNode] = []
    for node in graph.nodes:
        node = renamed(node, meaning)
        if isinstance(node, DeviceOp) and _marked(node.equation):
            meaning[node.outputs[0].id] = node.operands[0]
        else:
            nodes.append(node)
    outer = with_meaning(replace(graph, nodes=tuple(nodes)), meaning) if meaning else graph
    return _in_bodies(outer, trains_by_id)


def _marked(equation: Any) -> bool:  # a jax.extend.core.JaxprEqn
    return str(equation.params.get("name", "")).startswith(TRAINING_ONLY)


def _holds(node: DeviceOp, trains_by_id: dict[int, bool]) -> bool:
    jaxprs = jex.jaxprs_in_params(node.equation.params)
    return any(_trains(getattr(jaxpr, "jaxpr", jaxpr), trains_by_id) for jaxpr in jaxprs)


def _trains(jaxpr: Any, trains_by_id: dict[int, bool]) -> bool:  # a jax.extend.core.Jaxpr
    """Whether something marked for training alone stands in a jaxpr, however deep."""
    trains = trains_by_id.get(id(jaxpr))
    if trains is None:
        trains = trains_by_id[id(jaxpr)] = any(
            _marked(equation)
            or any(_trains(getattr(j, "jaxpr", j), trains_by_id) for j in jex.jaxprs_in_params(equation.params))
            for equation in jaxpr.eqns
        )
    return trains


def _in_bodies(graph: Graph, trains_by_id: dict[int, bool]) -> Graph:
    """The graph without what only training does inside the bodies of loops and branches: a body is a graph too."""
    nodes: list[GraphNode] = []
    changed = False
    for node in graph.nodes:
        if isinstance(node, DeviceOp) and node.op in _BODIES:
            rewritten = _with_bodies(node, lambda body: _body(body) if _trains(body.jaxpr, trains_by_id) else body)
            changed |= rewritten is not node
            node = rewritten
        nodes.append(node)
    return replace(graph, nodes=tuple(nodes)) if changed else graph


def _with_bodies(node: DeviceOp, change: Callable[[Any], Any]) -> DeviceOp:
    """The node with its bodies changed; itself where none is."""
    names = _BODIES[node.op]
    params = dict(node.equation.params)
    before: list[Any] = []
    after: list[Any] = []
    for name in names:
        bodies = params[name] if isinstance(params[name], tuple) else (params[name],)
        changed = tuple(map(change, bodies))
        before += bodies
        after += changed
        params[name] = changed if isinstance(params[name], tuple) else changed[0]
    if all(new is old for new, old in zip(after, before, strict=True)):
        return node
    effects = {effect for body in after for effect in body.jaxpr.effects} & set(node.equation.effects)
    return replace(node, equation=node.equation.replace(params=params, effects=frozenset(effects)))


def _body(closed: Any) -> Any:  # jax.extend.core.ClosedJaxpr, both
    """A body without what only training does; as it is where it has arrays of its own or state, and is not a graph."""
    jaxpr = closed.jaxpr
    if closed.consts or any(hasattr(effect, "input_index") for effect in jaxpr.effects):
        return closed
    builder = Builder(searched=True)
    names = [f"given/{position}" for position in range(len(jaxpr.invars))]
    for name, var in zip(names, jaxpr.invars, strict=True):
        builder.bind(var, name)
    builder.add_jaxpr(jaxpr, ())
    inputs = {
        name: Tensor(name, str(var.aval.dtype), builder.shape(var.aval.shape))
        for name, var in zip(names, jaxpr.invars, strict=True)
    }
    outputs = {str(position): Output(str(builder.read(var, keep=True))) for position, var in enumerate(jaxpr.outvars)}
    constants = builder.constants
    weights = {name: Tensor(name, str(array.dtype), array.shape) for name, array in constants.items()}
    graph = Graph(inputs, tuple(builder.nodes), {_SIGNATURE: outputs}, weights, constants, dims=builder.dims)
    dropped = drop_training(graph)
    if dropped is graph or any(value.shape for value in dropped.values.values()):
        return closed
    ops = [node for node in dropped.nodes if isinstance(node, DeviceOp)]
    results = [output.tensor for output in dropped.signatures[_SIGNATURE].values()]
    avals = {name: var.aval for name, var in zip(names, jaxpr.invars, strict=True)}
    literals = {name: value[()] for name, value in dropped.values.items()}
    return function_of(dropped, ops, names, results, avals=avals, literals=literals, debug_info=jaxpr.debug_info)
