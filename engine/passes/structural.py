"""Structural passes: which nodes there are, never what they compute. Results stay bitwise equal."""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np

from ..graphs.graph import Graph, Output
from ..graphs.nodes import AnalyzerNode, DeviceOp, DeviceStage, GraphNode, HostNode, Literal, Tensor
from ..tracing.equations import CALLS, Builder

Operand = str | Literal

_UNSHARED: Final = ("rng_uniform",)  # gives other numbers each time


def prune(graph: Graph) -> Graph:
    """Without what no signature needs."""
    return graph.needed(root for name in graph.signatures for root in graph.roots(name))


def inline(graph: Graph) -> Graph:
    """With the bodies of jitted functions in place of the calls. Loops, branches and custom gradients stay calls."""
    calls = [node for node in graph.nodes if isinstance(node, DeviceOp) and node.op in CALLS]
    if not calls:
        return graph
    builder = Builder("inlined/" + str(sum(name.startswith("inlined/") for name in graph.weights)) + "/", _next(graph))
    meaning: dict[str, Operand] = {}
    nodes: list[GraphNode] = []
    for node in graph.nodes:
        node = renamed(node, meaning)
        if not (isinstance(node, DeviceOp) and node.op in CALLS):
            nodes.append(node)
            continue
        results = _inlined(builder, node.equation.params["jaxpr"], node.operands, node.device)
        meaning.update((tensor.id, made) for tensor, made in zip(node.outputs, results, strict=True))
        nodes += builder.nodes
        builder.nodes = []
    held = {name: np.asarray(array) for name, array in builder.constants.items()}
    weights = {name: Tensor(name, str(array.dtype), array.shape) for name, array in held.items()}
    dims = {**graph.dims, **builder.dims}
    whole = replace(
        graph, nodes=tuple(nodes), weights={**graph.weights, **weights}, values={**graph.values, **held}, dims=dims
    )
    return with_meaning(whole, meaning)


def _inlined(builder: Builder, closed: Any, operands: tuple[Operand, ...], device: str | None) -> list[Operand]:
    """Add a jaxpr's equations, calls in it included."""
    start = len(builder.nodes)
    results = builder.inline(closed, operands, device)
    added, builder.nodes[start:] = builder.nodes[start:], []
    meaning: dict[str, Operand] = {}
    for node in added:
        node = renamed(node, meaning)
        if isinstance(node, DeviceOp) and node.op in CALLS:
            inner = _inlined(builder, node.equation.params["jaxpr"], node.operands, node.device)
            meaning.update((tensor.id, made) for tensor, made in zip(node.outputs, inner, strict=True))
        else:
            builder.nodes.append(node)
    return [meaning.get(result, result) if isinstance(result, str) else result for result in results]


def share(graph: Graph) -> Graph:
    """With equal work done once: the same op on the same operands, and equal captured arrays."""
    meaning: dict[str, Operand] = _equal_values(graph)
    seen: dict[Hashable, tuple[Tensor, ...]] = {}
    nodes: list[GraphNode] = []
    for node in graph.nodes:
        node = renamed(node, meaning)
        key = _key(node)
        first = seen.setdefault(key, node.outputs) if key is not None else node.outputs
        if first is node.outputs:
            nodes.append(node)
        else:
            meaning.update((mine.id, theirs.id) for mine, theirs in zip(node.outputs, first, strict=True))
    return with_meaning(replace(graph, nodes=tuple(nodes)), meaning)


def _equal_values(graph: Graph) -> dict[str, Operand]:
    """Captured arrays that equal an earlier one. Params keep apart: they may come to differ."""
    first: dict[Hashable, str] = {}
    meaning: dict[str, Operand] = {}
    for name, value in graph.values.items():
        if "constant/" in name:
            found = first.setdefault((str(value.dtype), value.shape, value.tobytes()), name)
            if found != name:
                meaning[name] = found
    return meaning


def _key(node: GraphNode) -> Hashable | None:
    """What makes two nodes do the same; None for one that is never shared."""
    if isinstance(node, DeviceStage):
        return None
    if isinstance(node, (HostNode, AnalyzerNode)):
        settings = json.dumps(dict(node.params), sort_keys=True)
        return (type(node).__name__, node.op, node.inputs, settings, getattr(node, "assets", ()))
    if node.equation.effects or node.op in _UNSHARED or any(tensor.id.startswith("_") for tensor in node.outputs):
        return None
    operands = tuple(
        (str(operand.dtype), np.asarray(operand.value).tobytes()) if isinstance(operand, Literal) else operand
        for operand in node.operands
    )
    return (node.op, operands, node.device, _frozen(node.equation.params))


def _frozen(value: Any) -> Hashable:  # Any: an equation's params
    """A param as something that is equal where it means the same."""
    if isinstance(value, Mapping):
        return tuple((key, _frozen(item)) for key, item in sorted(value.items()))
    if isinstance(value, (tuple, list)):
        return tuple(map(_frozen, value))
    if hasattr(value, "jaxpr") and hasattr(value, "consts"):
        return ("jaxpr", str(value.jaxpr), tuple(map(id, value.consts)))
    if hasattr(value, "eqns"):
        return ("jaxpr", str(value))
    try:
        hash(value)
    except TypeError:
        return ("object", id(value))
    return (type(value).__name__, value)


def renamed(node: GraphNode, meaning: Mapping[str, Operand]) -> GraphNode:
    """The node with operands replaced by what they mean now."""
    if not any(name in meaning for name in node.inputs if name is not None):
        return node
    if isinstance(node, DeviceOp):
        return replace(node, operands=tuple(meaning.get(o, o) if isinstance(o, str) else o for o in node.operands))
    return replace(node, inputs=tuple(None if n is None else str(meaning.get(n, n)) for n in node.inputs))  # type: ignore[misc]  # None only in stages


def with_meaning(graph: Graph, meaning: Mapping[str, Operand]) -> Graph:
    """The graph with the results of its signatures replaced by what they mean now; a literal becomes a weight."""
    weights, values = dict(graph.weights), dict(graph.values)

    def of(name: str) -> str:
        found = meaning.get(name, name)
        if isinstance(found, str):
            return found
        array = np.asarray(found.value)
        made = f"constant/literal/{array.dtype}/{array}"
        weights[made] = Tensor(made, str(array.dtype), array.shape)
        values[made] = array
        return made

    signatures = {
        name: {key: Output(of(output.tensor), output.size) for key, output in outputs.items()}
        for name, outputs in graph.signatures.items()
    }
    updates = {
        name: {weight: of(tensor) for weight, tensor in updates.items()} for name, updates in graph.updates.items()
    }
    return replace(graph, signatures=signatures, updates=updates, weights=weights, values=values)


def _next(graph: Graph) -> int:
    """A number above those of all tensors t0, t1 and so on."""
    taken = [name.lstrip("_") for name in graph.tensors()]
    return max((int(name[1:]) for name in taken if name[:1] == "t" and name[1:].isdigit()), default=-1) + 1
