"""The graph: an immutable DAG of typed host nodes and device stages, from raw columns to outputs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final

from ...errors import InputError

BATCH: Final = "b"
"""The symbolic leading dimension of everything that has one value per row."""

COLUMN_DTYPES: Final = ("string", "int64", "float64", "bool")
ARRAY_DTYPES: Final = ("float32", "int32", "bool", "float16", "bfloat16", "int8", "int16", "uint8", "uint16", "uint32")


@dataclass(frozen=True)
class Tensor:
    """One value of the graph.

    Attributes:
        id: Its name within the graph.
        dtype: Of a column: string, int64, float64 or bool; of an array: a JAX dtype.
        shape: `("b",)` for one scalar per row, `("b", 3)` for a vector per row, `()` for one value in all.
        column: True for a nullable Arrow column on the host, False for a dense array.
    """

    id: str
    dtype: str
    shape: tuple[str | int, ...] = (BATCH,)
    column: bool = False

    @property
    def batched(self) -> bool:
        """Whether there is one value per row."""
        return bool(self.shape) and self.shape[0] == BATCH

    def __str__(self) -> str:
        dims = ",".join(map(str, self.shape))
        return f"{self.id}:{self.dtype}{'?' if self.column else ''}[{dims}]"


@dataclass(frozen=True)
class HostNode:
    """What XLA cannot do: an op of `engine.host`, on Arrow columns or one row's Python values."""

    op: str
    inputs: tuple[str, ...]
    outputs: tuple[Tensor, ...]
    params: Mapping[str, Any] = field(default_factory=dict)  # Any: JSON, checked by the op
    assets: tuple[str, ...] = ()

    def __str__(self) -> str:
        settings = [f"{key}={value!r}" for key, value in self.params.items()] + [f"@{asset}" for asset in self.assets]
        return f"{self.op}({', '.join([*self.inputs, *settings])})"


@dataclass(frozen=True)
class DeviceStage:
    """A jitted program: StableHLO with a symbolic batch, called with inputs, then weights.

    Attributes:
        program: Its file in the bundle, and its key among the programs.
        inputs: Tensor ids; None where a pruned graph needs nothing from that input: zeros are given.
        slots: dtype and shape of each input.
        weights: Names of the arrays it takes after the inputs.
        outputs: What it gives; an output nobody needs is simply not read.
        needs: For each output, the positions of the inputs it depends on.
    """

    program: str
    inputs: tuple[str | None, ...]
    slots: tuple[tuple[str, tuple[str | int, ...]], ...]
    weights: tuple[str, ...]
    outputs: tuple[Tensor, ...]
    needs: tuple[tuple[int, ...], ...]

    def __str__(self) -> str:
        given = ", ".join("·" if name is None else name for name in self.inputs)
        return f"device<{self.program}>({given}; {len(self.weights)} weights)"


GraphNode = HostNode | DeviceStage


@dataclass(frozen=True)
class Output:
    """One named result of a signature: the tensor, and for category ids how many ids there are."""

    tensor: str
    size: int | None = None


@dataclass(frozen=True)
class FieldSpec:
    """One named input or output of a signature, or column of transformed examples.

    Attributes:
        dtype: string, int64, float64 or bool for a raw column (each may be missing); a JAX dtype for an array.
        shape: Of one row's value: `()` for a scalar.
        size: How many ids a category has, unknown and missing included; None for what is no category.
    """

    dtype: str
    shape: tuple[int, ...] = ()
    size: int | None = None


@dataclass(frozen=True)
class Graph:
    """Nodes in an order in which they can run, the raw columns they start from, and the named outputs per signature."""

    inputs: Mapping[str, Tensor]
    nodes: tuple[GraphNode, ...]
    signatures: Mapping[str, Mapping[str, Output]]

    def __post_init__(self) -> None:
        object.__setattr__(self, "inputs", MappingProxyType(dict(self.inputs)))
        frozen = {name: MappingProxyType(dict(outputs)) for name, outputs in self.signatures.items()}
        object.__setattr__(self, "signatures", MappingProxyType(frozen))

    def tensors(self) -> dict[str, Tensor]:
        """Every tensor by id, inputs first."""
        found = {tensor.id: tensor for tensor in self.inputs.values()}
        for node in self.nodes:
            found.update((tensor.id, tensor) for tensor in node.outputs)
        return found

    def needed(self, wanted: Iterable[str]) -> Graph:
        """The part of the graph that the wanted tensors depend on, exact per output of a device stage.

        Signatures are kept only where the part still holds all of their outputs.
        """
        live = set(wanted)
        kept: list[GraphNode] = []
        for node in reversed(self.nodes):
            read = [position for position, tensor in enumerate(node.outputs) if tensor.id in live]
            if not read:
                continue
            if isinstance(node, DeviceStage):
                used = {index for position in read for index in node.needs[position]}
                read_from = tuple(name if index in used else None for index, name in enumerate(node.inputs))
                kept.append(replace(node, inputs=read_from))
                live.update(name for name in read_from if name is not None)
            else:
                kept.append(node)
                live.update(node.inputs)
        inputs = {name: tensor for name, tensor in self.inputs.items() if tensor.id in live}
        whole = {
            name: outputs
            for name, outputs in self.signatures.items()
            if all(output.tensor in live for output in outputs.values())
        }
        return Graph(inputs, tuple(reversed(kept)), whole)

    def signature(self, name: str) -> Graph:
        """The part of the graph that one signature needs.

        Raises:
            InputError: There is no such signature.
        """
        if name not in self.signatures:
            raise InputError(f"no signature {name!r}", fix=f"use one of {', '.join(self.signatures)}")
        return self.needed(output.tensor for output in self.signatures[name].values())

    def __repr__(self) -> str:
        lines = [f"Graph({len(self.inputs)} columns, {len(self.nodes)} nodes)"]
        lines += [f"  {tensor}" for tensor in self.inputs.values()]
        lines += [f"  {', '.join(map(str, node.outputs))} = {node}" for node in self.nodes]
        for name, outputs in self.signatures.items():
            lines.append(f"  {name} -> " + ", ".join(f"{key}={out.tensor}" for key, out in outputs.items()))
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:  # Any: JSON
        """The graph as JSON: host nodes executable as they stand, device stages by reference to their program."""
        return {
            "inputs": [[name, _tensor_json(tensor)] for name, tensor in self.inputs.items()],
            "nodes": [_node_json(node) for node in self.nodes],
            "signatures": [
                [name, [[key, {"tensor": out.tensor, "size": out.size}] for key, out in outputs.items()]]
                for name, outputs in self.signatures.items()
            ],
        }

    @classmethod
    def from_json(cls, data: Any) -> Graph:  # Any: JSON from a file, checked here
        """The graph that `to_json` wrote.

        Raises:
            InputError: It is not one: a missing or ill-typed field, an unknown dtype, a tensor used before it exists.
        """
        try:
            graph = cls(
                {_text(name): _tensor(item) for name, item in data["inputs"]},
                tuple(_node(item) for item in data["nodes"]),
                {
                    _text(name): {_text(key): Output(_text(out["tensor"]), _size(out["size"])) for key, out in outputs}
                    for name, outputs in data["signatures"]
                },
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"this is no graph: {error!r:.120}", fix="write the bundle again") from error
        graph._check()
        return graph

    def _check(self) -> None:
        known: set[str] = set()
        for tensor in self.inputs.values():
            known.add(tensor.id)
        for node in self.nodes:
            for name in node.inputs:
                if name is not None and name not in known:
                    raise InputError(f"this is no graph: {name!r:.80} is read before it exists", fix="write it again")
            for tensor in node.outputs:
                if tensor.id in known:
                    raise InputError(f"this is no graph: {tensor.id!r:.80} is made twice", fix="write it again")
                known.add(tensor.id)
        for outputs in self.signatures.values():
            for output in outputs.values():
                if output.tensor not in known:
                    raise InputError(
                        f"this is no graph: output {output.tensor!r:.80} is never made", fix="write it again"
                    )


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
        }
    return {
        "kind": "device",
        "program": node.program,
        "inputs": list(node.inputs),
        "slots": [[dtype, list(shape)] for dtype, shape in node.slots],
        "weights": list(node.weights),
        "outputs": outputs,
        "needs": [list(positions) for positions in node.needs],
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
        )
    if data["kind"] != "device":
        raise ValueError(f"node kind {data['kind']!r}")
    inputs = tuple(None if name is None else _text(name) for name in data["inputs"])
    slots = tuple((_dtype(dtype, column=False), _shape(shape)) for dtype, shape in data["slots"])
    needs = tuple(tuple(_index(item, len(inputs)) for item in positions) for positions in data["needs"])
    if len(slots) != len(inputs) or len(needs) != len(outputs):
        raise ValueError("a device stage's inputs and slots, or outputs and needs, differ in number")
    return DeviceStage(_text(data["program"]), inputs, slots, _texts(data["weights"]), outputs, needs)


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
    for place, dim in enumerate(value):
        if not (isinstance(dim, int) and not isinstance(dim, bool) and dim >= 0) and not (place == 0 and dim == BATCH):
            raise ValueError(f"shape {value!r}")
    return tuple(value)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} is no text")
    return value


def _texts(values: Any) -> tuple[str, ...]:  # Any: JSON
    if not isinstance(values, list):
        raise TypeError(f"{values!r:.40} is no list")
    return tuple(_text(value) for value in values)


def _index(value: object, size: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < size:
        raise ValueError(f"input {value!r}")
    return value


def _size(value: object) -> int | None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
        raise ValueError(f"size {value!r}")
    return value
