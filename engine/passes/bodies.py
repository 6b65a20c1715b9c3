"""Passes inside the bodies of loops and branches: a body is a graph too."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import replace
from typing import Any, Final

from jax.extend import core as jex

from ..graphs.graph import Graph, Output
from ..graphs.nodes import DeviceOp, GraphNode, Tensor
from ..tracing.equations import Builder, function_of
from .arithmetic import simplify
from .structural import CALLED, forget_gradients, prune, share

_BODY: Final = "body"
BODIES: Final = {
    "scan": ("jaxpr",),
    "while": ("cond_jaxpr", "body_jaxpr"),
    "cond": ("branches",),
}
"""Ops that hold bodies, and the params that they stand in."""
_CARRIED: Final = "num_carry"


def tidy_bodies(graph: Graph) -> Graph:
    """With the bodies of loops and branches as the outer graph after the passes; scans carry only what is read."""
    made = in_bodies(prune_scans(graph), _tidied, _untidy)
    return graph if made is graph else share(made)


def tidy(node: DeviceOp, read: Container[object]) -> bool:
    """Whether it is plain to see that `tidy_bodies` leaves a loop or branch as it is, where these tensors are read."""
    for name in BODIES[node.op]:
        found = node.equation.params[name]
        for body in found if isinstance(found, tuple) else (found,):
            if _untidy(body.jaxpr):
                return False
    return node.op != "scan" or _pruned_scan(node, [tensor.id in read for tensor in node.outputs]) is node


def _untidy(jaxpr: Any) -> bool:  # a jax.extend.core.Jaxpr
    """Whether a body has calls, bodies of its own or, at a glance, work done twice: looking closer costs time."""
    seen = set()
    for equation in jaxpr.eqns:
        name = equation.primitive.name
        key = (name, *[id(var) for var in equation.invars])
        if name in BODIES or name in CALLED or key in seen:
            return True
        seen.add(key)
    return False


def _tidied(graph: Graph) -> Graph:
    for step in (forget_gradients, simplify, tidy_bodies, prune):
        graph = step(graph)
    return graph


def in_bodies(graph: Graph, step: Callable[[Graph], Graph], worth: Callable[[Any], bool]) -> Graph:
    """The graph with a pass done inside each body whose jaxpr is worth it.

    A body with state or arrays of its own stays as it is.
    """
    nodes: list[GraphNode] = []
    changed = False
    for node in graph.nodes:
        params = BODIES.get(node.op) if isinstance(node, DeviceOp) else None
        if params is not None and isinstance(node, DeviceOp):
            made = _within(node, params, lambda body: _body(body, step) if worth(body.jaxpr) else body)
            changed |= made is not node
            node = made
        nodes.append(node)
    return replace(graph, nodes=tuple(nodes)) if changed else graph


def _within(node: DeviceOp, names: tuple[str, ...], change: Callable[[Any], Any]) -> DeviceOp:
    params = dict(node.equation.params)
    before = [params[name] for name in names]
    for name, found in zip(names, before, strict=True):
        params[name] = tuple(map(change, found)) if isinstance(found, tuple) else change(found)
    after = [params[name] for name in names]
    if all(a is b or (isinstance(a, tuple) and all(map(_is, a, b))) for a, b in zip(after, before, strict=True)):
        return node
    bodies = [body for found in after for body in (found if isinstance(found, tuple) else (found,))]
    effects = {effect for body in bodies for effect in body.jaxpr.effects} & set(node.equation.effects)
    return replace(node, equation=node.equation.replace(params=params, effects=frozenset(effects)))


def _is(a: object, b: object) -> bool:
    return a is b


def _body(closed: Any, step: Callable[[Graph], Graph]) -> Any:  # jax.extend.core.ClosedJaxpr, both
    """A body after a pass; itself where the pass changes nothing, or where it cannot be a graph."""
    jaxpr = closed.jaxpr
    if closed.consts or any(hasattr(effect, "input_index") for effect in jaxpr.effects):
        return closed
    builder = Builder(searched=True)
    inputs = [f"given/{place}" for place in range(len(jaxpr.invars))]
    for name, var in zip(inputs, jaxpr.invars, strict=True):
        builder.bind(var, name)
    builder.add_jaxpr(jaxpr, ())
    given = {
        name: Tensor(name, str(var.aval.dtype), builder.shape(var.aval.shape))
        for name, var in zip(inputs, jaxpr.invars, strict=True)
    }
    wanted = {str(place): Output(str(builder.read(var, keep=True))) for place, var in enumerate(jaxpr.outvars)}
    held = builder.constants
    weights = {name: Tensor(name, str(array.dtype), array.shape) for name, array in held.items()}
    graph = Graph(given, tuple(builder.nodes), {_BODY: wanted}, weights, held, dims=builder.dims)
    made = step(graph)
    if made is graph or any(value.shape for value in made.values.values()):
        return closed
    ops = [node for node in made.nodes if isinstance(node, DeviceOp)]
    results = [output.tensor for output in made.signatures[_BODY].values()]
    avals = {name: var.aval for name, var in zip(inputs, jaxpr.invars, strict=True)}
    literals = {name: value[()] for name, value in made.values.items()}
    return function_of(made, ops, inputs, results, avals=avals, literals=literals, debug_info=jaxpr.debug_info)


def prune_scans(graph: Graph) -> Graph:
    """Without what scans carry or stack and nobody reads."""
    if not any(node.op == "scan" for node in graph.nodes if isinstance(node, DeviceOp)):
        return graph
    read = {root for name in graph.signatures for root in graph.roots(name)}
    nodes: list[GraphNode] = []
    changed = False
    for node in reversed(graph.nodes):
        if isinstance(node, DeviceOp) and node.op == "scan" and not node.equation.effects:
            made = _pruned_scan(node, [tensor.id in read for tensor in node.outputs])
            changed |= made is not node
            node = made
        read.update(name for name in node.inputs if name is not None)
        nodes.append(node)
    return replace(graph, nodes=tuple(reversed(nodes))) if changed else graph


def _pruned_scan(node: DeviceOp, read: list[bool]) -> DeviceOp:
    if all(read):
        return node
    params: Mapping[str, Any] = node.equation.params
    constants, carried = params["num_consts"], params[_CARRIED]
    closed = params["jaxpr"]
    jaxpr = closed.jaxpr
    kept = list(read)
    while True:  # what is carried is needed too if what is needed is made of it
        reached = _reached(jaxpr, [var for var, wanted in zip(jaxpr.outvars, kept, strict=True) if wanted])
        after = [
            wanted or (place < carried and jaxpr.invars[constants + place] in reached)
            for place, wanted in enumerate(kept)
        ]
        if after == kept:
            break
        kept = after
    if all(kept):
        return node
    given = [
        kept[place - constants] if constants <= place < constants + carried else var in reached
        for place, var in enumerate(jaxpr.invars)
    ]
    equations = [e for e in jaxpr.eqns if any(var in reached for var in e.outvars)]
    inner = jaxpr.replace(
        invars=_chosen(jaxpr.invars, given),
        outvars=_chosen(jaxpr.outvars, kept),
        eqns=equations,
        debug_info=jex.DebugInfo("scan", "drivetrain", None, None),
    )
    equation = node.equation
    rest: dict[str, Any] = {
        **params,
        "jaxpr": jex.ClosedJaxpr(inner, closed.consts),
        "num_consts": sum(given[:constants]),
        _CARRIED: sum(kept[:carried]),
    }
    if "linear" in params:
        rest["linear"] = tuple(_chosen(params["linear"], given))
    made = equation.replace(
        invars=_chosen(equation.invars, given), outvars=_chosen(equation.outvars, kept), params=rest
    )
    outputs = tuple(_chosen(node.outputs, kept))
    return replace(node, operands=tuple(_chosen(node.operands, given)), outputs=outputs, equation=made)


def _reached(jaxpr: Any, wanted: list[Any]) -> set[Any]:  # variables of a jaxpr
    """The variables that some of them are made of."""
    live = {var for var in wanted if not isinstance(var, jex.Literal)}
    for equation in reversed(jaxpr.eqns):
        if any(var in live for var in equation.outvars):
            live.update(var for var in equation.invars if not isinstance(var, jex.Literal))
    return live


def _chosen(items: Any, kept: list[bool]) -> list[Any]:
    return [item for item, keep in zip(items, kept, strict=True) if keep]
