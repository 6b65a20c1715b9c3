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
_CUSTOM: Final = {"custom_jvp_call": "call_jaxpr", "custom_vjp_call": "call_jaxpr"}


def prune(graph: Graph) -> Graph:
    """Without what no signature needs."""
    return graph.needed(root for name in graph.signatures for root in graph.roots(name))


def inline(graph: Graph) -> Graph:
    """With the bodies of jitted functions in place of the calls. Loops, branches and custom gradients stay calls."""
    return _expanded(graph, dict.fromkeys(CALLS, "jaxpr"))


def forget_gradients(graph: Graph) -> Graph:
    """With the bodies of functions that have a gradient of their own: for a graph that nobody will differentiate."""
    return _expanded(graph, dict.fromkeys(CALLS, "jaxpr") | _CUSTOM)


def _expanded(graph: Graph, bodies: Mapping[str, str]) -> Graph:
    """With calls replaced by their bodies, found under a param's name by op."""
    if not any(isinstance(node, DeviceOp) and node.op in bodies for node in graph.nodes):
        return graph
    builder = Builder(unused_prefix(graph, "inlined"))
    meaning: dict[str, Operand] = {}
    nodes: list[GraphNode] = []
    todo = list(reversed(graph.nodes))
    while todo:
        node = renamed(todo.pop(), meaning)
        body = bodies.get(node.op) if isinstance(node, DeviceOp) else None
        if body is None or not isinstance(node, DeviceOp):
            nodes.append(node)
            continue
        results = builder.inline(node.equation.params[body], node.operands, node.device)
        meaning.update((tensor.id, made) for tensor, made in zip(node.outputs, results, strict=True))
        todo += reversed(builder.nodes)
        builder.nodes = []
    held = builder.constants
    weights = {name: Tensor(name, str(array.dtype), array.shape) for name, array in held.items()}
    whole = replace(
        graph,
        nodes=tuple(nodes),
        weights={**graph.weights, **weights},
        values={**graph.values, **held},
        dims={**graph.dims, **builder.dims},
    )
    return with_meaning(whole, meaning)


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


def meant(operand: Operand, meaning: Mapping[str, Operand]) -> Operand:
    """What an operand stands for in the end: what it was replaced by may have been replaced itself."""
    while isinstance(operand, str) and operand in meaning:
        operand = meaning[operand]
    return operand


def renamed(node: GraphNode, meaning: Mapping[str, Operand]) -> GraphNode:
    """The node with operands replaced by what they mean now."""
    if not any(name in meaning for name in node.inputs if name is not None):
        return node
    if isinstance(node, DeviceOp):
        return replace(node, operands=tuple(meant(operand, meaning) for operand in node.operands))
    read = tuple(None if name is None else str(meant(name, meaning)) for name in node.inputs)
    return replace(node, inputs=read)  # type: ignore[arg-type]  # None only in stages


def with_meaning(graph: Graph, meaning: Mapping[str, Operand]) -> Graph:
    """The graph with the results of its signatures replaced by what they mean now; a literal becomes a weight."""
    weights, values = dict(graph.weights), dict(graph.values)

    def of(name: str) -> str:
        found = meant(name, meaning)
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
    checks = {
        name: tuple(replace(check, tensor=of(check.tensor)) for check in checks)
        for name, checks in graph.checks.items()
    }
    return replace(graph, signatures=signatures, updates=updates, checks=checks, weights=weights, values=values)


def unused_prefix(graph: Graph, stem: str) -> str:
    """A prefix "stem/N/" that no tensor has."""
    taken = {tuple(name.lstrip("_").split("/")[:2]) for name in graph.tensors()}
    return next(f"{stem}/{n}/" for n in range(len(taken) + 1) if (stem, str(n)) not in taken)
