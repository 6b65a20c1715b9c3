"""Feeding lists to device stages: which part of the flat values belongs to which rows, and in what bucket it goes.

In a graph a list on the device is two tensors, both made by one host node "flatten": the values, whose leading
dimension is a symbol of its own ("n1"), and the lengths, one per row. Whatever else has that dimension belongs to the
same rows: two lists that one op made equally long, ids and their weights, share it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...errors import InputError
from ..graphs.nodes import BATCH, DeviceStage, GraphNode, HostNode, Tensor
from .rows import SMALLEST, bucket

FLATTEN: Final = "flatten"
UNFLATTEN: Final = "unflatten"
DEVICE: Final = {"list<int64>": "int32", "list<float64>": "float32"}
"""List columns that the device can take, and the dtype of their values there."""

_ALIKE: Final = ("terms", "tfidf")
"""Host ops that give lists of the same lengths for the same first input."""


class PaddedRange(NamedTuple):
    """What of a dimension goes to the device at once: places `begin` to `end`, filled up to `size` with zeros."""

    begin: int
    end: int
    size: int


def lengths_of(nodes: Iterable[GraphNode]) -> dict[str, str]:
    """Each dimension that counts values, and the first tensor that holds how many of them each row has."""
    return {dim: lengths.id for dim, (_, lengths) in _flattened(nodes).items()}


def values_of(nodes: Iterable[GraphNode]) -> dict[str, Tensor]:
    """Each dimension that counts values, and the first tensor of those values."""
    return {dim: values for dim, (values, _) in _flattened(nodes).items()}


def _flattened(nodes: Iterable[GraphNode]) -> dict[str, tuple[Tensor, ...]]:
    """By dimension what the first of its nodes gives: whatever has that dimension comes after it."""
    outputs_by_dim: dict[str, tuple[Tensor, ...]] = {}
    for node in nodes:
        if isinstance(node, HostNode) and node.op == FLATTEN and len(node.outputs) == 2:
            outputs_by_dim.setdefault(str(node.outputs[0].shape[0]), node.outputs)
    return outputs_by_dim


def lists_by_lengths(nodes: Iterable[GraphNode]) -> dict[str, str]:
    """Of list columns whose rows are known to be as long as those of another: their tensors, and what they are of."""
    return {
        tensor.id: node.inputs[0]
        for node in nodes
        if isinstance(node, HostNode) and node.op in _ALIKE and node.inputs
        for tensor in node.outputs
    }


def flattened(column: Tensor, name: str, dim: str) -> HostNode:
    """The host node that makes values and lengths for the device of a column of lists of numbers.

    Args:
        column: Of dtype list<int64> or list<float64>.
        name: What it is called, also in errors.
        dim: The dimension of its values.
    """
    dtype = DEVICE[column.dtype]
    values = Tensor(f"{name}/values", dtype, (dim,))
    lengths = Tensor(f"{name}/lengths", "int32")
    return HostNode(FLATTEN, (column.id,), (values, lengths), {"dtype": dtype, "column": name})


def counting(stage: DeviceStage, lengths: Mapping[str, str]) -> tuple[str, ...]:
    """The dimensions of a stage's inputs and outputs that count values.

    Raises:
        InputError: It reads values of a dimension that no list of the graph has.
    """
    for name, (_, shape) in zip(stage.inputs, stage.slots, strict=True):
        if name is not None and shape and isinstance(shape[0], str) and shape[0] not in (BATCH, *lengths):
            raise InputError(
                f"device/{stage.program}.stablehlo reads {name!r:.80}, and no list tells how long {shape[0]} is",
                fix="fetch the bundle again, or run the step that made it",
            )
    shapes = [shape for _, shape in stage.slots] + [tensor.shape for tensor in stage.outputs]
    dims = dict.fromkeys(shape[0] for shape in shapes if shape)
    return tuple(dim for dim in dims if isinstance(dim, str) and dim != BATCH)


def padded_ranges(
    dims: Sequence[str], lengths: Mapping[str, Any], rows: PaddedRange, smallest: int = SMALLEST
) -> dict[str, PaddedRange]:
    """The range of every symbolic dimension that belongs to a range of the rows.

    Args:
        dims: Those that count values.
        lengths: How many values each row has, by dimension; one that is not here has none: nothing is read from it.
        rows: The rows that go to the device.
        smallest: The smallest bucket of values.
    """
    ranges = {BATCH: rows}
    for dim in dims:
        each: NDArray[np.int64] = np.asarray(lengths.get(dim, 0), np.int64).reshape(-1)
        begin, count = int(each[: rows.begin].sum()), int(each[rows.begin : rows.end].sum())
        ranges[dim] = PaddedRange(begin, begin + count, bucket(count, smallest))
    return ranges


def filled(values: NDArray[Any], part: PaddedRange) -> NDArray[Any]:
    """That part of an array, filled up with zeros to its size."""
    chosen = values[part.begin : part.end]
    if len(chosen) == part.size:
        return chosen
    return np.concatenate([chosen, np.zeros((part.size - len(chosen), *chosen.shape[1:]), chosen.dtype)])


def zeros(dtype: str, shape: Sequence[str | int], sizes: Mapping[str, PaddedRange]) -> NDArray[Any]:
    """An array in place of one that nothing depends on."""
    return np.zeros(tuple(sizes[dim].size if isinstance(dim, str) else dim for dim in shape), np.dtype(dtype))
