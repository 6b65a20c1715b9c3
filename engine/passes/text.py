"""Chains of ops on one text as a single host op, which looks at each distinct word of a batch once."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any, Final

from ..graphs.graph import Graph
from ..graphs.nodes import GraphNode, HostNode
from ..host_ops.fused import LAST, STEPS

_FUSED: Final = "fused"


def fuse_text(graph: Graph) -> Graph:
    """With each chain of ops on one text, such as strip, lower, lookup, as one op on the dictionary of the column."""
    uses = Counter(root for name in graph.signatures for root in graph.roots(name))
    uses.update(name for node in graph.nodes for name in node.inputs if name is not None)
    makers: dict[str, HostNode] = {}
    nodes: dict[int, GraphNode] = {}
    for node in graph.nodes:
        if isinstance(node, HostNode) and node.op in LAST and len(node.inputs) == 1:
            (read,) = node.inputs
            before = makers.get(read)
            if before is not None and uses[read] == 1 and _makes_text(before):
                nodes.pop(id(before))
                steps = [*_steps(before), *_steps(node)]
                assets = (*before.assets, *node.assets)
                node = replace(node, op=_FUSED, inputs=before.inputs, params={"steps": steps}, assets=assets)
            makers[node.outputs[0].id] = node
        nodes[id(node)] = node
    return replace(graph, nodes=tuple(nodes.values())) if len(nodes) < len(graph.nodes) else graph


def _makes_text(node: HostNode) -> bool:
    """Whether other ops of one text can follow it."""
    return all(step["op"] in STEPS for step in _steps(node))


def _steps(node: HostNode) -> list[dict[str, Any]]:  # Any: JSON
    if node.op == _FUSED:
        return list(node.params["steps"])
    return [{"op": node.op, "params": dict(node.params), "assets": len(node.assets)}]
