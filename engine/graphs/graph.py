"""The graph: an immutable DAG of typed host nodes and device stages, from raw columns to outputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from ...errors import InputError
from .nodes import DeviceStage, GraphNode, Tensor


@dataclass(frozen=True)
class Output:
    """One named result of a signature: the tensor, and for category ids how many ids there are."""

    tensor: str
    size: int | None = None


@dataclass(frozen=True)
class FieldSpec:
    """One named input or output of a signature, or column of transformed examples.

    Attributes:
        dtype: string, int64, float64, bool, list<string>, list<int64> or list<float64> for a column (each may be
            missing); a JAX dtype for an array.
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

    def check(self) -> None:
        """Raise InputError unless every tensor is made once, before it is read."""
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
