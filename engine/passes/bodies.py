"""Passes inside the bodies of loops and branches: a body is a graph too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from ..graphs.graph import Graph, Output
from ..graphs.nodes import DeviceOp, GraphNode, Tensor
from ..tracing.equations import Builder, function_of
from .arithmetic import simplify
from .carries import prune_carries, pruned
from .structural import CALLED, forget_gradients, prune, share

_BODY: Final = "body"
BODIES: Final = {
    "scan": ("jaxpr",),
    "while": ("cond_jaxpr", "body_jaxpr"),
    "cond": ("branches",),
}
"""Ops that hold bodies, and the params that they stand in."""
_CLOSED: Final = frozenset((*BODIES, *CALLED))


def tidy_bodies(graph: Graph) -> Graph:
    """With the bodies of loops and branches as the outer graph after the passes, and only what is read of theirs."""
    made = in_bodies(prune_carries(graph), _tidied, _untidy)
    return graph if made is graph else share(made)


def tidy(node: DeviceOp, read: Sequence[bool]) -> bool:
    """Whether it is plain to see that `tidy_bodies` leaves a loop or branch as it is, where these results are read."""
    for name in BODIES[node.op]:
        found = node.equation.params[name]
        for body in found if isinstance(found, tuple) else (found,):
            if _untidy(body.jaxpr):
                return False
    return pruned(node, read) is node


def _untidy(jaxpr: Any) -> bool:  # a jax.extend.core.Jaxpr
    """Whether a body has calls, bodies of its own or, at a glance, work done twice or for nobody.

    Looking closer costs time: variables are compared as they stand, numbers never.
    """
    read = set(map(id, jaxpr.outvars))
    names: list[str] = []
    made: list[Any] = []
    for equation in jaxpr.eqns:
        names.append(equation.primitive.name)
        read.update(map(id, equation.invars))
        made += equation.outvars
    if not _CLOSED.isdisjoint(names) or not read.issuperset(map(id, made)):
        return True
    if len(set(names)) == len(names):
        return False
    return len({(e.primitive.name, *map(id, e.invars)) for e in jaxpr.eqns}) < len(names)


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
