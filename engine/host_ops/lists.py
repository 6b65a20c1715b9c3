"""List columns on the host: what one is, how it enters, and the flat values under it.

A list column is an Arrow list of text, int64 or float64; in a row it is a Python list, or None where the list itself
is missing, which is not the same as empty. Inside a list of floats a null is NaN; from lists of text and of whole
numbers, which have no such value, it is dropped where the list enters. So no kernel meets a null inside a list.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...data.types import is_list

NAN: Final = float("nan")


class Lists(NamedTuple):
    """A list column taken apart.

    Attributes:
        flat: The values of all rows, one after another, nothing between them.
        lengths: int64, how many belong to each row; 0 for a missing list.
        valid: Which rows have a list.
    """

    flat: pa.Array
    lengths: NDArray[np.int64]
    valid: NDArray[np.bool_]

    @property
    def ends(self) -> NDArray[np.int64]:
        """Where each row's values end in `flat`."""
        return np.cumsum(self.lengths)

    @property
    def rows(self) -> NDArray[np.int64]:
        """The row of each flat value."""
        return np.repeat(np.arange(len(self.lengths)), self.lengths)

    @property
    def places(self) -> NDArray[np.int64]:
        """The place of each flat value in its list, from 0."""
        return np.arange(len(self.flat)) - np.repeat(self.ends - self.lengths, self.lengths)

    def column(self) -> pa.Array:
        """The Arrow list column that these parts describe."""
        offsets = np.concatenate(([0], self.ends)).astype(np.int32)
        mask = None if self.valid.all() else pa.array(~self.valid)
        return pa.ListArray.from_arrays(pa.array(offsets), self.flat, mask=mask)

    def with_flat(self, flat: pa.Array) -> pa.Array:
        """The list column with other values, one for each."""
        return self._replace(flat=flat).column()

    def where(self, kept: NDArray[np.bool_]) -> Lists:
        """The same lists with only the flat values that the mask keeps; a list may become empty, and stays valid."""
        lengths = np.bincount(self.rows[kept], minlength=len(self.lengths)).astype(np.int64)
        return Lists(self.flat.filter(pa.array(kept)), lengths, self.valid)


def lists_of(column: pa.Array) -> Lists:
    """A list column of any of Arrow's kinds (sliced too) taken apart; nulls inside the lists are left as they are."""
    # By NumPy: on a request's few rows, each of Arrow's functions would take longer than all of this.
    if pa.types.is_fixed_size_list(column.type):
        lengths = np.full(len(column), column.type.list_size)
    else:
        lengths = np.diff(column.offsets.to_numpy()).astype(np.int64)
    if not column.null_count:
        return Lists(column.flatten(), lengths, np.ones(len(column), bool))
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    return Lists(column.flatten(), np.where(valid, lengths, 0), valid)


def enter(column: pa.Array, values: Callable[[pa.Array], pa.Array]) -> pa.Array:
    """A raw list column as the host's; `values` makes a host column of the flat values."""
    lists = lists_of(column)
    flat = values(lists.flat)
    if flat is lists.flat and column.type == pa.list_(flat.type) and not flat.null_count:
        return column  # it is the host's already
    if pa.types.is_dictionary(flat.type):
        flat = flat.dictionary_decode().cast(pa.string())
    if flat.null_count and pa.types.is_floating(flat.type):
        flat = pa.array(flat.to_numpy(zero_copy_only=False))
    lists = lists._replace(flat=flat)
    return (lists.where(flat.is_valid().to_numpy(zero_copy_only=False)) if flat.null_count else lists).column()


def enter_row(values: list[Any] | tuple[Any, ...], of_float: bool) -> list[Any]:
    """As `enter`, for one row's list of host values."""
    if of_float:
        return [NAN if value is None else value for value in values]
    return [value for value in values if value is not None]


def on_flat(kernel: Callable[[pa.Array], Any]) -> Callable[[pa.Array], pa.Array]:
    """A batch kernel of scalars as one that takes columns and, inside lists, every value."""

    def either(column: pa.Array) -> Any:
        if not is_list(column.type):
            return kernel(column)
        lists = lists_of(column)
        results = kernel(lists.flat)
        if isinstance(results, pa.Array) and pa.types.is_dictionary(results.type):
            results = results.dictionary_decode()
        return lists.with_flat(
            results if isinstance(results, pa.Array) else pa.array(results.astype(_wide(results.dtype)))
        )

    return either


def _wide(dtype: Any) -> Any:
    return np.float64 if dtype.kind == "f" else np.int64


def on_each(kernel: Callable[[Any], Any], lists: bool) -> Callable[[Any], Any]:
    """As `on_flat`, for one row; `lists` says of what, as a missing list looks like any missing value."""
    return (lambda value: None if value is None else [kernel(item) for item in value]) if lists else kernel
