"""Between list columns and arrays: dense vectors, multi-hot rows, ids as lists of one, flat values and lengths."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...errors import InputError
from .columns import ARROW, INT32, Assets, Kernel, Params, item_dtype, too_wide
from .lists import NAN, Lists, lists_of

Flat = tuple[NDArray[Any], Any]  # values, and the lengths of the rows: an array, or of one row a number


def _flat_values(lists: Lists, dtype: np.dtype[Any], column: str) -> NDArray[Any]:
    """The values of all rows; refuses the first that the device's int32 cannot hold, by its row."""
    values: NDArray[Any] = lists.flat.to_numpy(zero_copy_only=False)
    if dtype == np.int32 and len(values) and not (int(values.min()) in INT32 and int(values.max()) in INT32):
        position = int(np.flatnonzero((values < INT32.start) | (values >= INT32.stop))[0])
        raise too_wide(column, int(lists.rows[position]), values[position])
    return values


def dense_batch(params: Params, assets: Assets) -> Kernel:
    """float32 or int32 [rows, width]: each row's values, then the fill; a missing list is all fill, or NaN."""
    width, dtype, fill = int(params["width"]), np.dtype(params["dtype"]), _fill(params)

    def kernel(column: pa.Array) -> NDArray[Any]:
        lists = lists_of(column)
        is_whole = width > 0 and bool((lists.lengths == width).all())  # as in most batches
        if not is_whole:
            _check_lengths(params, lists)
        values = _flat_values(lists, dtype, params["column"])
        with np.errstate(over="ignore"):  # beyond float32 is an infinity, as XLA would have it
            if is_whole:
                return np.asarray(values.astype(dtype).reshape(len(column), width))
            dense = np.full((len(column), width), fill, dtype)
            dense[lists.rows, lists.places] = values
        return dense

    return kernel


def dense_row(params: Params, assets: Assets) -> Kernel:
    """As `dense_batch`, for one row's list."""
    width, dtype, fill = int(params["width"]), np.dtype(params["dtype"]), _fill(params)

    narrow = dtype == np.int32

    def kernel(values: list[Any] | None) -> NDArray[Any]:
        if values is None:
            _check_missing(params, None)
            return np.full(width, fill, dtype)
        if narrow:
            for value in values:
                if value not in INT32:
                    raise too_wide(params["column"], None, value)
        with np.errstate(over="ignore"):
            if len(values) == width:
                return np.array(values, dtype)
            _check_length(params, len(values), None)
            dense = np.full(width, fill, dtype)
            dense[: len(values)] = values
        return dense

    return kernel


def _fill(params: Params) -> Any:
    fill = params["fill"]
    return fill if fill is not None else NAN if params["dtype"] == "float32" else 0


def _check_lengths(params: Params, lists: Lists) -> None:
    width = int(params["width"])
    wrong = lists.lengths > width if params["shorter"] else lists.lengths != width
    wrong &= lists.valid
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        _check_length(params, int(lists.lengths[row]), row)
    if not lists.valid.all():
        _check_missing(params, int(np.flatnonzero(~lists.valid)[0]))


def _check_length(params: Params, length: int, row: int | None) -> None:
    width = int(params["width"])
    if length > width or (length < width and not params["shorter"]):
        raise InputError(
            f"column {params['column']!r} has a list of {length} values{_at(row)}, not {width}",
            fix=f"cut it before, or widen it: ops.to_dense(…, {length}, fill=…)" if length > width else "fill the list",
        )


def _check_missing(params: Params, row: int | None) -> None:
    if params["fill"] is None and params["dtype"] == "int32":
        raise InputError(
            f"column {params['column']!r} has no list{_at(row)}, and int32 has no room for a missing value",
            fix="give every row a list, or store floats",
        )


def _at(row: int | None) -> str:
    return "" if row is None else f" in row {row}"


def multi_hot_batch(params: Params, assets: Assets) -> Kernel:
    """float32 [rows, depth]: 1 at every id of the row's list; an id outside, and a missing list, is left out."""
    depth = int(params["depth"])

    def kernel(column: pa.Array) -> NDArray[Any]:
        lists = lists_of(column)
        ids = lists.flat.to_numpy(zero_copy_only=False)
        inside = (ids >= 0) & (ids < depth)
        hot = np.zeros((len(column), depth), np.float32)
        hot[lists.rows[inside], ids[inside]] = 1
        return hot

    return kernel


def multi_hot_row(params: Params, assets: Assets) -> Kernel:
    """As `multi_hot_batch`, for one row's list."""
    depth = int(params["depth"])

    def kernel(ids: list[int] | None) -> NDArray[Any]:
        hot = np.zeros(depth, np.float32)
        hot[[each for each in ids or () if 0 <= each < depth]] = 1
        return hot

    return kernel


def listed_batch(params: Params, assets: Assets) -> Kernel:
    """Each row's id as a list of one; an empty list for an id below 0, or not below a depth, given or a parameter."""

    def kernel(ids: NDArray[Any], *depth: Any) -> pa.Array:
        inside = (ids >= 0) & (ids < _depth(params, depth))
        return Lists(pa.array(ids[inside].astype(np.int64)), inside.astype(np.int64), np.ones(len(ids), bool)).column()

    return kernel


def listed_row(params: Params, assets: Assets) -> Kernel:
    """As `listed_batch`, for one id."""
    return lambda value, *depth: [int(value)] if 0 <= value < _depth(params, depth) else []


def _depth(params: Params, depth_inputs: tuple[Any, ...]) -> int:
    return int(depth_inputs[0]) if depth_inputs else int(params.get("depth", INT32.stop))


# --- flat values and lengths, the form in which the device takes lists ---


def flatten_batch(params: Params, assets: Assets) -> Kernel:
    """Values of all rows one after the other, float32 or int32 [n], and int32 [rows] how many each row has.

    A missing list has none.
    """
    dtype, name = np.dtype(params["dtype"]), str(params["column"])

    def kernel(column: pa.Array) -> Flat:
        lists = lists_of(column)
        values = _flat_values(lists, dtype, name)
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
