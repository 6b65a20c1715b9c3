"""From a list column to flat values and lengths, as the device takes lists, and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...errors import InputError
from .columns import (
    ARROW,
    INT32,
    Assets,
    Kernel,
    Params,
    item_dtype,
    too_wide,
)
from .lists import Lists, lists_of

Flat = tuple[NDArray[Any], Any]  # values, and the lengths of the rows: an array, or of one row a number


def flatten_batch(params: Params, assets: Assets) -> Kernel:
    """Values of all rows one after the other, float32 or int32 [n], and int32 [rows] how many each row has.

    A missing list has none.
    """
    dtype, name = np.dtype(params["dtype"]), str(params["column"])

    def kernel(column: pa.Array) -> Flat:
        lists = lists_of(column)
        values = lists.flat.to_numpy(zero_copy_only=False)
        if dtype == np.int32 and len(values) and not (int(values.min()) in INT32 and int(values.max()) in INT32):
            position = int(np.flatnonzero((values < INT32.start) | (values >= INT32.stop))[0])
            raise too_wide(name, int(lists.rows[position]), values[position])
        with np.errstate(over="ignore"):  # beyond float32 is an infinity, as XLA would have it
            return values.astype(dtype), lists.lengths.astype(np.int32)

    return kernel


def flatten_row(params: Params, assets: Assets) -> Kernel:
    """As `flatten_batch`, for one row's list."""
    dtype, name = np.dtype(params["dtype"]), str(params["column"])

    def kernel(values: list[Any] | None) -> Flat:
        present_values = values or []
        if dtype == np.int32:
            for value in present_values:
                if value not in INT32:
                    raise too_wide(name, None, value)
        with np.errstate(over="ignore"):
            return np.array(present_values, dtype), np.int32(len(present_values))

    return kernel


def unflatten_batch(params: Params, assets: Assets) -> Kernel:
    """A list column of lengths and flat values; each row has a list, perhaps an empty one.

    The kernel raises InputError where the lengths are not of all the values: which of them are left is not known then.
    """
    kind = ARROW[item_dtype(params["dtype"]) or ""]

    def kernel(lengths: NDArray[np.int32], values: NDArray[Any]) -> pa.Array:
        _check_all(params, int(lengths.sum()), len(values))
        return Lists(pa.array(values).cast(kind), lengths.astype(np.int64), np.ones(len(lengths), bool)).column()

    return kernel


def unflatten_row(params: Params, assets: Assets) -> Kernel:
    """As `unflatten_batch`, for one row's values."""
    kind = float if item_dtype(params["dtype"]) == "float64" else int

    def kernel(length: Any, values: NDArray[Any]) -> list[float] | list[int]:
        _check_all(params, int(length), len(values))
        return [kind(value) for value in values]

    return kernel


def _check_all(params: Params, counted: int, entered: int) -> None:
    if counted != entered:
        raise InputError(
            f"output {params.get('output', 'of lists')!r}: its rows have {counted} of the {entered} values "
            "that went in, and a Ragged that comes out of a graph keeps every value of its rows",
            fix="set the values that are not wanted to a number (jnp.where in map_values), or give ragged.to_dense",
        )
