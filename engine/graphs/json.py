"""The JSON of a graph in a bundle: host nodes executable as they stand, device stages by reference to their program."""

from __future__ import annotations

import json
from typing import Any

from ...errors import InputError
from .graph import Graph, Output, RowCheck
from .nodes import ARRAY_DTYPES, COLUMN_DTYPES, SYMBOL, DeviceStage, GraphNode, HostNode, Tensor


def graph_json(graph: Graph) -> dict[str, Any]:  # Any: JSON
    """The graph as JSON values, which `graph_of_json` reads."""
    return {
        "inputs": [[name, _tensor_json(tensor)] for name, tensor in graph.inputs.items()],
        "nodes": [_node_json(node) for node in graph.nodes],
        "signatures": [
            [name, [[key, {"tensor": out.tensor, "size": out.size}] for key, out in outputs.items()]]
            for name, outputs in graph.signatures.items()
        ],
        "checks": [
            [name, [{"tensor": check.tensor, "message": check.message, "where": check.where} for check in checks]]
            for name, checks in graph.checks.items()
            if checks
        ],
    }


def graph_of_json(data: Any) -> Graph:  # Any: JSON from a file, checked here
    """The graph that `graph_json` wrote.

    Raises:
        InputError: It is not one: a missing or ill-typed field, an unknown dtype, a tensor used before it exists.
    """
    try:
        graph = Graph(
            {_text(name): _tensor(item) for name, item in data["inputs"]},
            tuple(_node(item) for item in data["nodes"]),
            {
                _text(name): {_text(key): Output(_text(out["tensor"]), _size(out["size"])) for key, out in outputs}
                for name, outputs in data["signatures"]
            },
            checks={
                _text(name): tuple(
                    RowCheck(_text(item["tensor"]), _text(item["message"]), _text_if_any(item["where"]))
                    for item in checks
                )
                for name, checks in data.get("checks", [])
            },
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"this is not a graph: {error!r:.120}", fix="write the bundle again") from error
    graph.check()
    return graph


def _tensor_json(tensor: Tensor) -> dict[str, object]:
    return {"id": tensor.id, "dtype": tensor.dtype, "shape": list(tensor.shape), "column": tensor.column}


def _node_json(node: GraphNode) -> dict[str, object]:
    outputs = [_tensor_json(tensor) for tensor in node.outputs]
    if isinstance(node, HostNode):
        return {
            "kind": "host",
            "op": node.op,
            "inputs": list(node.inputs),
            "params": dict(node.params),
            "assets": list(node.assets),
            "outputs": outputs,
            "where": node.where,
        }
    if not isinstance(node, DeviceStage):
        raise TypeError(f"{node} is not lowered: equations have no lasting form, programs have")
    return {
        "kind": "device",
        "program": node.program,
        "inputs": list(node.inputs),
        "slots": [[dtype, list(shape)] for dtype, shape in node.slots],
        "weights": list(node.weights),
        "outputs": outputs,
        "needs": [list(positions) for positions in node.needs],
        "device": node.device,
        "flops": node.flops,
    }


def _node(data: Any) -> GraphNode:  # Any: JSON
    outputs = tuple(_tensor(item) for item in data["outputs"])
    if data["kind"] == "host":
        params = data["params"]
        json.dumps(params)
        return HostNode(
            _text(data["op"]),
            _texts(data["inputs"]),
            outputs,
            {_text(k): v for k, v in params.items()},
            _texts(data["assets"]),
            _text_if_any(data.get("where")),
        )
    if data["kind"] != "device":
        raise ValueError(f"node kind {data['kind']!r}")
    inputs = tuple(None if name is None else _text(name) for name in data["inputs"])
    slots = tuple((_dtype(dtype, column=False), _shape(shape)) for dtype, shape in data["slots"])
    needs = tuple(tuple(_index(item, len(inputs)) for item in positions) for positions in data["needs"])
    if len(slots) != len(inputs) or len(needs) != len(outputs):
        raise ValueError("a device stage's inputs and slots, or outputs and needs, differ in number")
    return DeviceStage(
        _text(data["program"]),
        inputs,
        slots,
        _texts(data["weights"]),
        outputs,
        needs,
        _text_if_any(data.get("device")),
        _size(data.get("flops")) or 0,
    )


def _tensor(data: Any) -> Tensor:  # Any: JSON
    column = data["column"]
    if not isinstance(column, bool):
        raise TypeError("column is true or false")
    return Tensor(_text(data["id"]), _dtype(data["dtype"], column=column), _shape(data["shape"]), column)


def _dtype(value: object, *, column: bool) -> str:
    known = COLUMN_DTYPES if column else ARRAY_DTYPES
    if value not in known:
        raise ValueError(f"dtype {value!r}")
    return str(value)


def _shape(value: Any) -> tuple[str | int, ...]:  # Any: JSON
    for axis, dim in enumerate(value):
        counted = isinstance(dim, int) and not isinstance(dim, bool) and dim >= 0
        if not counted and not (axis == 0 and isinstance(dim, str) and SYMBOL.fullmatch(dim)):
            raise ValueError(f"shape {value!r:.80}")
    return tuple(value)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} is not text")
    return value


def _text_if_any(value: object) -> str | None:
    return None if value is None else _text(value)


def _texts(values: Any) -> tuple[str, ...]:  # Any: JSON
    if not isinstance(values, list):
        raise TypeError(f"{values!r:.40} is not a list")
    return tuple(_text(value) for value in values)


def _index(value: object, size: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < size:
        raise ValueError(f"input {value!r}")
    return value


def _size(value: object) -> int | None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
        raise ValueError(f"size {value!r}")
    return value
