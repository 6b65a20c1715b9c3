"""Tensors named by what computes them: equal work has equal names, whatever graph it stands in."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

from .graph import Graph, Output
from .nodes import DeviceStage, GraphNode, HostNode, Tensor


@dataclass(frozen=True)
class Contents:
    """Digests of what a lowered graph's nodes refer to, by name.

    Attributes:
        programs: Of device programs.
        weights: Of arrays.
        assets: Of tables.
        code: A host op's name → a text that differs for other code of that name; "" for the engine's own.
    """

    programs: Mapping[str, str]
    weights: Mapping[str, str]
    assets: Mapping[str, str]
    code: Callable[[str], str]


def canonical(graph: Graph, contents: Contents) -> tuple[Graph, dict[str, str]]:
    """A lowered graph with every tensor and program renamed.

    The name of a tensor is a digest of its node: op, params, programs, weights and assets, and likewise of all that the
    node reads. Where the node stands in the user's code is not a part of it.

    Args:
        graph: Its inputs keep their ids.
        contents: Of the programs, weights and assets that it names.

    Returns:
        The graph, in which programs go by their digests; and the new name of each tensor. Raw columns keep their ids
        in the graph: only this mapping has their digests, which include the dtype.
    """
    new_ids = {tensor.id: tensor.id for tensor in graph.inputs.values()}
    names = {tensor.id: _digest(["column", tensor.id, tensor.dtype]) for tensor in graph.inputs.values()}
    nodes: list[GraphNode] = []
    for node in graph.nodes:
        read = [None if name is None else names[name] for name in node.inputs]
        digest = _digest([_described(node, contents), read, [[t.dtype, t.shape, t.column] for t in node.outputs]])
        outputs = tuple(replace(tensor, id=f"{digest}.{position}") for position, tensor in enumerate(node.outputs))
        if isinstance(node, HostNode):
            inputs = tuple(new_ids[name] for name in node.inputs)
            nodes.append(replace(node, inputs=inputs, outputs=outputs))
        elif isinstance(node, DeviceStage):
            slots = tuple(None if name is None else new_ids[name] for name in node.inputs)
            nodes.append(replace(node, inputs=slots, outputs=outputs, program=contents.programs[node.program]))
        for old, new in zip(node.outputs, outputs, strict=True):
            names[old.id] = new_ids[old.id] = new.id
    signatures = {
        name: {key: replace(out, tensor=new_ids[out.tensor]) for key, out in outputs_by_name.items()}
        for name, outputs_by_name in graph.signatures.items()
    }
    return Graph(graph.inputs, tuple(nodes), signatures), names


def union(graphs: Iterable[Graph], signature: str) -> Graph:
    """Canonical graphs as one: what several of them do is done once, and the signature has the outputs of all."""
    inputs: dict[str, Tensor] = {}
    nodes: dict[str, GraphNode] = {}
    outputs: dict[str, Output] = {}
    for graph in graphs:
        inputs.update(graph.inputs)
        nodes.update((node.outputs[0].id, node) for node in graph.nodes if node.outputs[0].id not in nodes)
        outputs.update(graph.signatures[signature])
    return Graph(inputs, tuple(nodes.values()), {signature: outputs})


def _described(node: GraphNode, contents: Contents) -> list[Any]:  # Any: JSON
    """What a node is, beside its inputs and outputs."""
    if isinstance(node, HostNode):
        return ["host", node.op, contents.code(node.op), node.params, [contents.assets[name] for name in node.assets]]
    if isinstance(node, DeviceStage):
        return ["device", contents.programs[node.program], [contents.weights[name] for name in node.weights]]
    raise TypeError(f"{node} is not lowered")


def _digest(value: object) -> str:
    """SHA-256 (hex) of JSON; text counts as it is spelled.

    `drivetrain.digest` would normalise text, and two vocabularies that differ by that alone give different results.
    """
    # dict: the mappings of a graph are read-only ones, which JSON does not know.
    return sha256(json.dumps(value, sort_keys=True, default=dict).encode()).hexdigest()
