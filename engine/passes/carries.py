"""Loops that carry, and branches that give, only what is read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import compress
from typing import Any, Final

from jax.extend import core as jex

from ..graphs.graph import Graph
from ..graphs.nodes import DeviceOp, GraphNode

_CARRIED: Final = "num_carry"


def prune_carries(graph: Graph) -> Graph:
    """Without what loops carry or stack, and what branches give, that nobody reads; nor what only makes that.

    What has effects stays as it is. A loop turns as often as before: what its test reads is read.
    """
    if not any(node.op in _PRUNED for node in graph.nodes if isinstance(node, DeviceOp)):
        return graph
    read = {root for name in graph.signatures for root in graph.roots(name)}
    nodes: list[GraphNode] = []
    changed = False
    for node in reversed(graph.nodes):
        if isinstance(node, DeviceOp) and node.op in _PRUNED:
            made = pruned(node, [tensor.id in read for tensor in node.outputs])
            changed |= made is not node
            node = made
        read.update(name for name in node.inputs if name is not None)
        nodes.append(node)
    return replace(graph, nodes=tuple(reversed(nodes))) if changed else graph


def pruned(node: DeviceOp, read: Sequence[bool]) -> DeviceOp:
    """A loop or branch without the rest, where these of its results are read; itself if all are, or none."""
    if all(read) or not any(read) or node.equation.effects:
        return node
    return _PRUNED[node.op](node, read)


def _scan(node: DeviceOp, read: Sequence[bool]) -> DeviceOp:
    params = node.equation.params
    constants, carried, body = params["num_consts"], params[_CARRIED], params["jaxpr"]
    kept, reached = _needed(body.jaxpr, constants, carried, read)
    if all(kept):
        return node
    given = [
        kept[place - constants] if constants <= place < constants + carried else id(var) in reached
        for place, var in enumerate(body.jaxpr.invars)
    ]
    inner = _part(body, given, kept, reached)
    return _remade(
        node, given, kept, {"jaxpr": inner, "num_consts": sum(given[:constants]), _CARRIED: sum(kept[:carried])}
    )


def _while(node: DeviceOp, read: Sequence[bool]) -> DeviceOp:
    params = node.equation.params
    test, body = params["cond_jaxpr"], params["body_jaxpr"]
    first, constants = params["cond_nconsts"], params["body_nconsts"]
    tested = _reached(test.jaxpr, test.jaxpr.outvars)
    kept = [wanted or id(var) in tested for wanted, var in zip(read, test.jaxpr.invars[first:], strict=True)]
    if all(kept):
        return node
    kept, reached = _needed(body.jaxpr, constants, len(kept), kept)
    if all(kept):
        return node
    held = [id(var) in reached for var in body.jaxpr.invars[:constants]]
    changed = {
        "cond_jaxpr": _part(test, [True] * first + kept, [True], tested),
        "body_jaxpr": _part(body, held + kept, kept, reached),
        "body_nconsts": sum(held),
    }
    return _remade(node, [True] * first + held + kept, kept, changed)


def _cond(node: DeviceOp, read: Sequence[bool]) -> DeviceOp:
    branches = node.equation.params["branches"]
    reached = [_reached(body.jaxpr, compress(body.jaxpr.outvars, read)) for body in branches]
    given = [
        any(id(body.jaxpr.invars[place]) in found for body, found in zip(branches, reached, strict=True))
        for place in range(len(node.operands) - 1)
    ]
    made = tuple(_part(body, given, read, found) for body, found in zip(branches, reached, strict=True))
    return _remade(node, [True, *given], read, {"branches": made})


_PRUNED: Final[dict[str, Callable[[DeviceOp, Sequence[bool]], DeviceOp]]] = {
    "scan": _scan,
    "while": _while,
    "cond": _cond,
}


def _needed(jaxpr: Any, constants: int, carried: int, read: Sequence[bool]) -> tuple[list[bool], set[int]]:
    """Which results of a loop's body are needed: what is carried is, too, if what is needed is made of it.

    Returns:
        That, and the ids of the variables that they are made of.
    """
    kept = list(read)
    while True:
        reached = _reached(jaxpr, compress(jaxpr.outvars, kept))
        after = [
            wanted or (place < carried and id(jaxpr.invars[constants + place]) in reached)
            for place, wanted in enumerate(kept)
        ]
        if after == kept or all(after):
            return after, reached
        kept = after


def _reached(jaxpr: Any, wanted: Iterable[Any]) -> set[int]:  # variables of a jaxpr: literals have no hash, but an id
    """The ids of the variables that some of them are made of."""
    live = set(map(id, wanted))
    for equation in reversed(jaxpr.eqns):
        if not live.isdisjoint(map(id, equation.outvars)):
            live.update(map(id, equation.invars))
    return live


def _part(closed: Any, given: Sequence[bool], kept: Sequence[bool], reached: set[int]) -> Any:
    """The part of a closed jaxpr, as it is called, that makes what is kept."""
    jaxpr = closed.jaxpr
    inner = jaxpr.replace(
        invars=list(compress(jaxpr.invars, given)),
        outvars=list(compress(jaxpr.outvars, kept)),
        eqns=[e for e in jaxpr.eqns if not reached.isdisjoint(map(id, e.outvars))],
        debug_info=jex.DebugInfo("part", "drivetrain", None, None),
    )
    return jex.ClosedJaxpr(inner, closed.consts)


def _remade(node: DeviceOp, given: Sequence[bool], kept: Sequence[bool], params: dict[str, Any]) -> DeviceOp:
    """The node with some of its operands and results, and other params."""
    equation = node.equation.replace(
        invars=list(compress(node.equation.invars, given)),
        outvars=list(compress(node.equation.outvars, kept)),
        params={**node.equation.params, **params},
    )
    operands, outputs = compress(node.operands, given), compress(node.outputs, kept)
    return replace(node, operands=tuple(operands), outputs=tuple(outputs), equation=equation)
