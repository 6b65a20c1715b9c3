"""What a tensor means once a pass has put another tensor, or a literal, in its place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..graphs.graph import Graph, Output
from ..graphs.nodes import DeviceOp, GraphNode, Literal, Tensor
from ..tracing.equations import array_of, literal_name

Operand = str | Literal


def meant(operand: Operand, meaning: Mapping[str, Operand]) -> Operand:
    """What an operand stands for in the end: what it was replaced by may have been replaced itself."""
    while isinstance(operand, str) and operand in meaning:
        operand = meaning[operand]
    return operand


def renamed(node: GraphNode, meaning: Mapping[str, Operand]) -> GraphNode:
    """The node with operands replaced by what they mean now; `with_meaning` makes weights of a host node's literals."""
    if not meaning:
        return node
    if isinstance(node, DeviceOp):
        for operand in node.operands:
            if isinstance(operand, str) and operand in meaning:
                operands = tuple([meant(operand, meaning) for operand in node.operands])
                return DeviceOp(node.op, operands, node.outputs, node.equation, node.device)
        return node
    if not any(name in meaning for name in node.inputs if name is not None):
        return node
    read = tuple(None if name is None else _name(meant(name, meaning)) for name in node.inputs)
    return replace(node, inputs=read)  # type: ignore[arg-type]  # None only in stages


def with_meaning(graph: Graph, meaning: Mapping[str, Operand]) -> Graph:
    """The graph with the results of its signatures replaced by what they mean now; a literal becomes a weight."""
    if not meaning:
        return graph
    literals = {literal_name(operand): operand for operand in meaning.values() if isinstance(operand, Literal)}

    def of(name: str) -> str:
        return _name(meant(name, meaning))

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
    replaced = replace(graph, signatures=signatures, updates=updates, checks=checks)
    if not literals:
        return replaced
    # An equation takes a literal as it is; what is read by name alone, an output or a host node, needs it as a weight.
    read = {root for name in signatures for root in replaced.roots(name)}
    read.update(name for node in graph.nodes if not isinstance(node, DeviceOp) for name in node.inputs if name)
    arrays = {name: array_of(literal) for name, literal in literals.items() if name in read}
    weights = {name: Tensor(name, str(array.dtype), array.shape) for name, array in arrays.items()}
    return replace(replaced, weights={**graph.weights, **weights}, values={**graph.values, **arrays})


def unused_prefix(graph: Graph, stem: str) -> str:
    """A prefix "stem/N/" that no tensor has; below "model/" where all that is made lies there.

    A model's graph is joined to its transform's, which this graph does not show.
    """
    tensor_names = [tensor.id.lstrip("_") for node in graph.nodes for tensor in node.outputs]
    stem = f"model/{stem}" if tensor_names and all(name.startswith("model/") for name in tensor_names) else stem
    known_names = (tensor.id for tensor in (*graph.inputs.values(), *graph.weights.values()))
    names = [name for name in (*tensor_names, *known_names) if name.startswith(stem)]
    free = (n for n in range(len(names) + 1) if not any(name.startswith(f"{stem}/{n}/") for name in names))
    return f"{stem}/{next(free)}/"


def _name(operand: Operand) -> str:
    return literal_name(operand) if isinstance(operand, Literal) else operand
