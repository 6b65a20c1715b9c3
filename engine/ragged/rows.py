"""FlatRows: rows of variable length on the host, flat in numpy; read from Arrow lists, padded to buckets."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from ...errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

SMALLEST: Final = 16
"""The smallest bucket."""


def bucket(count: int, smallest: int = SMALLEST) -> int:
    """The power of two that holds `count` values, at least `smallest` (itself a power of two)."""
    return max(smallest, 1 << max(0, count - 1).bit_length())


@dataclass(frozen=True, eq=False)
class FlatRows:
    """Row r holds `values[splits[r]:splits[r + 1]]`.

    Attributes:
        values: [number of values, *value shape].
        splits: int64 [rows + 1], from 0 on, never falling.
    """

    values: NDArray[Any]  # Any: of several dtypes
    splits: NDArray[np.int64]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Values per row, [rows]."""
        return np.diff(self.splits)

    def __len__(self) -> int:
        return len(self.splits) - 1

    def __getitem__(self, rows: NDArray[np.int64] | slice) -> FlatRows:
        """The rows of these numbers, in their order, or of a slice with step 1."""
        if isinstance(rows, slice):
            begin, end, step = rows.indices(len(self))
            if step != 1:
                return self[np.arange(len(self))[rows]]
            splits = self.splits[begin : max(begin, end) + 1]
            return FlatRows(self.values[splits[0] : splits[-1]], splits - splits[0])
        # Gathered in one step: where each wanted row begins in the values, plus the place inside the row.
        splits = splits_of(self.lengths[rows])
        inside = np.arange(splits[-1]) - np.repeat(splits[:-1], np.diff(splits))
        return FlatRows(self.values[np.repeat(self.splits[:-1][rows], np.diff(splits)) + inside], splits)

    def padded(self, capacity: int) -> tuple[NDArray[Any], NDArray[np.int32]]:
        """Values [capacity, *value shape] and segment ids [capacity]; zeros and the number of rows in empty slots."""
        count = len(self.values)
        values = np.zeros((capacity, *self.values.shape[1:]), self.values.dtype)
        values[:count] = self.values
        ids = np.full(capacity, len(self), np.int32)
        ids[:count] = np.repeat(np.arange(len(self), dtype=np.int32), self.lengths)
        return values, ids


def splits_of(lengths: NDArray[Any]) -> NDArray[np.int64]:
    """int64 [rows + 1]: where each row begins, from 0, and where the last one ends."""
    splits = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=splits[1:])
    return splits


def joined(parts: Sequence[FlatRows]) -> FlatRows:
    """The rows of one after the other."""
    if len(parts) == 1:
        return parts[0]
    return FlatRows(
        np.concatenate([part.values for part in parts]),
        splits_of(np.concatenate([part.lengths for part in parts])),
    )


def read_lists(
    array: pa.Array | pa.ChunkedArray, name: str, dtype: str, shape: tuple[int, ...] = (), *, first_row: int = 0
) -> FlatRows:
    """A list column of numbers.

    A null list is an empty one: nothing is known of it, as of a row without values. A null inside a list has
    no such reading and is refused; NaN is a float like any other.

    Args:
        array: An Arrow array of lists (of lists of fixed size, where a value has a shape).
        name: The column, for errors.
        dtype: Of the values.
        shape: Of one value.
        first_row: The number of its first row, for errors.

    Raises:
        InputError: It is not a list column of numbers; a list holds a null; a value does not fit the dtype or the
            shape. The column and the row are named.
    """
    import pyarrow as pa  # late: the workers of an input do without Arrow

    from ...data.types import is_list
    from ..host_ops.lists import lists_of

    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if not is_list(array.type):
        raise InputError(f"feature {name!r} is {array.type}, not a list per row", fix="describe it without list<…>")
    lists = lists_of(array)
    lengths, flat = lists.lengths, lists.flat
    inner = 1
    while is_list(flat.type):
        if flat.null_count:
            raise _null_inside(name, lengths, flat, inner, first_row)
        sizes = lists_of(flat).lengths
        if len(sizes) and (sizes != sizes[0]).any():
            raise InputError(
                f"feature {name!r} holds values of {sizes.min()} to {sizes.max()} numbers, not {list(shape)} each",
                fix="only the number of values may differ from row to row",
            )
        inner *= int(sizes[0]) if len(sizes) else 1
        flat = flat.flatten()
    if not (pa.types.is_integer(flat.type) or pa.types.is_floating(flat.type) or pa.types.is_boolean(flat.type)):
        if not (pa.types.is_null(flat.type) and len(flat) == 0):
            raise InputError(
                f"feature {name!r} holds lists of {flat.type}, not of numbers",
                fix="turn its words into ids in preprocess (ops.vocabulary), or leave it out",
            )
        flat = flat.cast(pa.float32())
    if flat.null_count:
        raise _null_inside(name, lengths, flat, inner, first_row)
    values: NDArray[Any] = flat.to_numpy(zero_copy_only=False)
    count = int(lengths.sum())
    if len(values) != count * math.prod(shape):
        raise InputError(
            f"feature {name!r} holds {len(values)} numbers in {count} values, not {list(shape)} each",
            fix="say the shape of one value",
        )
    _check_fits(values, np.dtype(dtype), name, lengths, inner, first_row)
    with np.errstate(over="ignore"):  # beyond float32 is an infinity, as for a number per row
        return FlatRows(values.astype(dtype, copy=False).reshape(count, *shape), splits_of(lengths))


def _row_at(position: int, lengths: NDArray[np.int64], inner: int) -> int:
    """The row that a flat number stands in."""
    return int(np.searchsorted(np.cumsum(lengths), position // inner, side="right"))


def _null_inside(name: str, lengths: NDArray[np.int64], flat: pa.Array, inner: int, first: int) -> InputError:
    position = int(np.flatnonzero(flat.is_null().to_numpy(zero_copy_only=False))[0])
    row = _row_at(position, lengths, inner)
    return InputError(
        f"feature {name!r} has a missing value inside the list of row {first + row}",
        fix="drop or fill it in preprocess; a whole list may be missing and is then empty",
    )


def _check_fits(
    values: NDArray[Any], target: np.dtype[Any], name: str, lengths: NDArray[np.int64], inner: int, first: int
) -> None:
    if values.dtype.kind == "f" and target.kind in "iub" and len(values):
        raise InputError(
            f"feature {name!r} holds lists of {values.dtype}, not of {target}", fix="describe it as list<float32>"
        )
    if values.dtype.kind in "iu" and target.kind in "iu" and len(values):
        limits = np.iinfo(target)
        outside = (values < limits.min) | (values > limits.max)
        if outside.any():
            position = int(np.flatnonzero(outside)[0])
            row = first + _row_at(position, lengths, inner)
            raise InputError(
                f"feature {name!r} holds {values[position]} in the list of row {row}, which does not fit {target}",
                fix="cast it to float or look it up in a vocabulary in preprocess",
            )
