"""The graph: an immutable DAG of typed nodes, from raw columns or arrays to the named outputs of its signatures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from numpy.typing import NDArray

from ...errors import InputError
from .nodes import DeviceOp, DeviceStage, GraphNode, Tensor


@dataclass(frozen=True)
class Output:
    """One named result of a signature: the tensor, and for category ids how many ids there are."""

    tensor: str
    size: int | None = None


@dataclass(frozen=True)
class RowCheck:
    """What must hold of every row of a signature, or that row fails.

    Attributes:
        tensor: Bool, one value per row: True where it holds.
        message: What it means for the user's data.
        where: "file:line" of the check, the file without its folder.
    """

    tensor: str
    message: str
    where: str | None = None


@dataclass(frozen=True)
class FieldSpec:
    """One named input or output of a signature, or column of transformed examples.

    Attributes:
        dtype: string, int64, float64, bool, list<string>, list<int64> or list<float64> for a column (each may be
            missing); a JAX dtype for an array. In transformed examples a list may be of any number: "list<float32>".
        shape: Of one row's value, or of one value of a row's list: `()` for a scalar.
        size: How many ids a category has, unknown and missing included; None for what is not a category.
    """

    dtype: str
    shape: tuple[int, ...] = ()
    size: int | None = None

    @property
    def ragged(self) -> bool:
        """Whether a row is a list of any length: dtype "list<…>"."""
        return self.dtype.startswith("list<")

    @property
    def value_dtype(self) -> str:
        """The dtype of one value: of what a list is of, else `dtype`."""
        return self.dtype[5:-1] if self.ragged else self.dtype


@dataclass(frozen=True)
class Graph:
    """Nodes in an order in which they can run, what they start from, and the named outputs per signature.

    As traced, its device part is single equations (`DeviceOp`); lowered, whole programs (`DeviceStage`).

    Attributes:
        inputs: Raw columns or arrays, by name.
        nodes: In an order in which they can run.
        signatures: Name → output name → tensor.
        weights: Arrays given beside the inputs (params, captured arrays), by name, which is their tensor's id too.
            Those of a lowered graph are named by its stages and held by its bundle.
        values: The weights whose values are known.
        updates: Signature → weight → the tensor that is its next value. This is all there is to mutable state: it
            goes in as a weight and comes out as a tensor.
        checks: Signature → what must hold of its rows. They are roots as outputs are, so that no pass removes them.
        dims: The symbolic dimensions by name, as JAX has them.
    """

    inputs: Mapping[str, Tensor]
    nodes: tuple[GraphNode, ...]
    signatures: Mapping[str, Mapping[str, Output]]
    weights: Mapping[str, Tensor] = field(default_factory=dict)
    values: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    updates: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    checks: Mapping[str, tuple[RowCheck, ...]] = field(default_factory=dict)
    dims: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("inputs", "weights", "values", "checks", "dims"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))
        for name in ("signatures", "updates"):
            frozen = {key: MappingProxyType(dict(items)) for key, items in getattr(self, name).items()}
            object.__setattr__(self, name, MappingProxyType(frozen))

    def tensors(self) -> dict[str, Tensor]:
        """Every tensor by id: inputs, weights, then what the nodes make."""
        tensors = {tensor.id: tensor for tensor in (*self.inputs.values(), *self.weights.values())}
        for node in self.nodes:
            tensors.update((tensor.id, tensor) for tensor in node.outputs)
        return tensors

    def roots(self, signature: str) -> tuple[str, ...]:
        """The tensors that a signature asks for: its outputs, the next values of its weights, its checks."""
        outputs = (output.tensor for output in self.signatures[signature].values())
        checks = (check.tensor for check in self.checks.get(signature, ()))
        return tuple(dict.fromkeys((*outputs, *self.updates.get(signature, {}).values(), *checks)))

    def needed(self, wanted: Iterable[str]) -> Graph:
        """The part of the graph that the wanted tensors depend on, exact per output of a device stage.

        Signatures are kept only where the part still holds all of their outputs, and so is what has an effect.
        """
        live = set(wanted)
        kept: list[GraphNode] = []
        for node in reversed(self.nodes):
            read = [position for position, tensor in enumerate(node.outputs) if tensor.id in live]
            if not read and not (isinstance(node, DeviceOp) and node.equation.effects):
                continue
            if isinstance(node, DeviceStage):
                used = {index for position in read for index in node.needs[position]}
                read_from = tuple(name if index in used else None for index, name in enumerate(node.inputs))
                node = replace(node, inputs=read_from)
                live.update(node.weights)
            kept.append(node)
            live.update(name for name in node.inputs if name is not None)
        signatures = {name: outputs for name, outputs in self.signatures.items() if live.issuperset(self.roots(name))}
        return replace(
            self,
            inputs={name: tensor for name, tensor in self.inputs.items() if tensor.id in live},
            nodes=tuple(reversed(kept)),
            signatures=signatures,
            weights={name: tensor for name, tensor in self.weights.items() if name in live},
            values={name: value for name, value in self.values.items() if name in live},
            updates={name: updates for name, updates in self.updates.items() if name in signatures},
            checks={name: checks for name, checks in self.checks.items() if name in signatures},
        )

    def signature(self, name: str) -> Graph:
        """The part of the graph that one signature needs.

        Raises:
            InputError: There is no such signature.
        """
        if name not in self.signatures:
            raise InputError(f"no signature {name!r}", fix=f"use one of {', '.join(self.signatures)}")
        return self.needed(self.roots(name))

    def describe(self, rows: int = 512) -> dict[str, Any]:  # Any: JSON
        """What there is and what it costs, as JSON: what the drawing is made of.

        Args:
            rows: How many rows the costs are for.

        Returns:
            `inputs` and `weights` (`id`, `type`; a weight's `bytes`), `nodes` (`op`, `kind`, `inputs`, `outputs`,
            `where` in the user's code, `flops`, `bytes`, …), `signatures`, `rows`, and the `total` cost; an op's
            `exact` is False where a loop's turns depend on the data.
        """
        from .describe import describe  # late, here and below: these modules import this one

        return describe(self, rows)

    def to_pandas(self, rows: int = 512) -> Any:  # a pandas.DataFrame: pandas ships no types
        """One line per node: op, kind, shape and dtype of its first result, cost for so many rows, the user's line.

        Raises:
            DrivetrainError: pandas is not installed.
        """
        from ...data.frames import frame

        columns = ("op", "kind", "type", "flops", "bytes", "device", "where")
        nodes = self.describe(rows)["nodes"]
        typed = ({**node, "type": node["outputs"][0]["type"] if node["outputs"] else None} for node in nodes)
        return frame(columns, ([node[column] for column in columns] for node in typed))

    def to_html(self) -> str:
        """A page that works offline: the drawing, the signatures, every node with its cost."""
        from ...report.graph import render

        return render(self.describe(512))

    def _repr_html_(self) -> str:
        from ...report.html import framed

        return framed(self.to_html())

    def __repr__(self) -> str:
        from .describe import text

        return text(self)

    def check(self) -> None:
        """Raise InputError unless every tensor is made once, before it is read."""
        known: set[str] = set()
        for tensor in (*self.inputs.values(), *self.weights.values()):
            known.add(tensor.id)
        for node in self.nodes:
            for name in node.inputs:
                if name is not None and name not in known:
                    raise InputError(
                        f"this is not a graph: {name!r:.80} is read before it exists", fix="write it again"
                    )
            for tensor in node.outputs:
                if tensor.id in known:
                    raise InputError(f"this is not a graph: {tensor.id!r:.80} is made twice", fix="write it again")
                known.add(tensor.id)
        for signature in self.signatures:
            for root in self.roots(signature):
                if root not in known:
                    raise InputError(f"this is not a graph: output {root!r:.80} is never made", fix="write it again")
