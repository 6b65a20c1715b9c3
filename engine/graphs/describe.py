"""What a graph is, in words and numbers: a plain dict for reports and tables, and lines of text."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from ...report.graph import units
from ...report.segments import segments
from .cost import Cost, costs
from .graph import Graph
from .nodes import AnalyzerNode, DeviceOp, DeviceStage, GraphNode, HostNode, Literal, Tensor

LINES: Final = 60
"""So many nodes are shown one by one; in a larger graph those of one line of code, or that repeat, are grouped."""


def describe(
    graph: Graph, rows: int, ops: Mapping[str, Mapping[str, int]] | None = None
) -> dict[str, Any]:  # Any: JSON
    """See `Graph.describe`; `ops` counts the operations of each stage's program."""
    node_costs = costs(graph, rows)
    total = sum((each for _, each in node_costs), Cost())
    nodes = []
    for node, cost in node_costs:
        nodes.append(
            {
                "op": _op(node),
                "called": _called(node),
                "kind": _kind(node),
                "inputs": [name for name in node.inputs if name is not None],
                "outputs": [_described(tensor) for tensor in node.outputs if not tensor.id.startswith("_")],
                "weights": list(node.weights) if isinstance(node, DeviceStage) else [],
                "assets": list(node.assets) if isinstance(node, HostNode) else [],
                "settings": _settings(node),
                "ops": dict((ops or {}).get(node.program, {})) if isinstance(node, DeviceStage) else {},
                "where": getattr(node, "where", None),
                "device": getattr(node, "device", None),
                "flops": cost.flops + cost.transcendentals,
                "bytes": cost.bytes,
                "exact": cost.exact,
            }
        )
    return {
        "inputs": [{"name": name, **_described(tensor)} for name, tensor in graph.inputs.items()],
        "weights": [{**_described(tensor), "bytes": _bytes(tensor)} for tensor in graph.weights.values()],
        "nodes": nodes,
        "signatures": {
            name: {
                "inputs": {key: tensor.id for key, tensor in graph.signature(name).inputs.items()},
                "outputs": {key: output.tensor for key, output in outputs.items()},
                "updates": dict(graph.updates.get(name, {})),
                "checks": [
                    {"tensor": check.tensor, "message": check.message, "where": check.where}
                    for check in graph.checks.get(name, ())
                ],
            }
            for name, outputs in graph.signatures.items()
        },
        "rows": rows,
        "total": {
            "flops": total.flops + total.transcendentals,
            "bytes": total.bytes,
            "exact": all(cost.exact for node, cost in node_costs if isinstance(node, DeviceOp)),
        },
    }


def text(graph: Graph) -> str:
    """The graph in lines, the nodes of a large one by the lines of code that made them."""
    held = sum(map(_bytes, graph.weights.values()))
    size = f" of {units(held, 'B')}" if held else ""
    lines = [f"Graph({len(graph.inputs)} inputs, {len(graph.weights)} weights{size}, {len(graph.nodes):,} nodes)"]
    lines += _few([f"  {tensor}" for tensor in graph.inputs.values()], "inputs")
    lines += _few([f"  {tensor} = weight" for tensor in graph.weights.values()], "weights")
    large = len(graph.nodes) > LINES
    keys = [(_kind(node), getattr(node, "where", None) or _op(node)) if large else None for node in graph.nodes]
    for part in segments(keys, LINES):
        nodes = graph.nodes[part.start : part.stop]
        if len(nodes) == 1:
            lines.append(f"  {', '.join(map(str, nodes[0].outputs))} = {nodes[0]}")
            continue
        ops = ", ".join(f"{count} {op}" for op, count in Counter(map(_op, nodes)).most_common(6))
        wheres = list(dict.fromkeys(where for node in nodes if (where := getattr(node, "where", None))))
        at = f"  # {_shortest(wheres)}" if wheres else ""
        times = f", {part.times} times the same" if part.times > 1 else ""
        lines.append(f"  … {len(nodes):,} nodes{times}: {ops}{at}")
    for name, outputs in graph.signatures.items():
        lines.append(f"  {name} -> " + ", ".join(f"{key}={out.tensor}" for key, out in outputs.items()))
        lines += [f"    {weight} := {tensor}" for weight, tensor in graph.updates.get(name, {}).items()]
        lines += [f"    check {check.tensor}: {check.message}" for check in graph.checks.get(name, ())]
    return "\n".join(lines)


def _few(lines: list[str], what: str) -> list[str]:
    if len(lines) <= LINES:
        return lines
    return [*lines[: LINES // 2], f"  … {len(lines) - LINES // 2 - 5:,} {what}", *lines[-5:]]


def _shortest(wheres: list[str]) -> str:
    names = [where.replace("\\", "/").rsplit("/", 1)[-1] for where in wheres]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more lines" if len(names) > 3 else "")


def _op(node: GraphNode) -> str:
    return node.program if isinstance(node, DeviceStage) else node.op


def _kind(node: GraphNode) -> str:
    if isinstance(node, HostNode):
        return "host"
    if isinstance(node, AnalyzerNode):
        return "analyzer"
    return "stage" if isinstance(node, DeviceStage) else "device"


def _called(node: GraphNode) -> str | None:
    """The function that a device op calls: "relu"."""
    if not isinstance(node, DeviceOp):
        return None
    params = node.equation.params
    name = params.get("name")
    if name is None and "call_jaxpr" in params:  # "relu at functions.py:71"
        name = params["call_jaxpr"].jaxpr.debug_info.func_src_info.split(" ")[0]
    return str(name) if name and str(name) != "<lambda>" else None


def _settings(node: GraphNode) -> str:
    if isinstance(node, DeviceOp):
        return ", ".join(_number(operand) for operand in node.operands if isinstance(operand, Literal))
    if isinstance(node, DeviceStage):
        return ""
    assets = [f"@{asset}" for asset in node.assets] if isinstance(node, HostNode) else []
    return ", ".join([f"{key}={value!r}" for key, value in node.params.items()] + assets)


def _number(literal: Literal) -> str:
    value = np.asarray(literal.value).item()
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _described(tensor: Tensor) -> dict[str, str]:
    dims = ",".join(map(str, tensor.shape))
    return {"id": tensor.id, "type": f"{tensor.dtype}{'?' if tensor.column else ''}[{dims}]"}


def _bytes(tensor: Tensor) -> int:
    if not all(isinstance(dim, int) for dim in tensor.shape):
        return 0
    try:
        return int(np.dtype(tensor.dtype).itemsize) * math.prod(int(dim) for dim in tensor.shape)
    except TypeError:  # a key of JAX's default random numbers; bfloat16, where JAX is not imported
        return (8 if tensor.dtype.startswith("key<") else 2) * math.prod(int(dim) for dim in tensor.shape)
