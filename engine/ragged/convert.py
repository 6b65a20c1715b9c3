"""From what others call variable length to `Ragged`, and back: lists, Arrow, splits, padded arrays, sparse arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa

from ...errors import InputError
from .ragged import Array, Ragged, column, in_row_order
from .rows import FlatRows, bucket, read_lists, splits_of

if TYPE_CHECKING:
    from jax.experimental.sparse import BCOO


def _traced(*arrays: Array) -> bool:
    return any(isinstance(array, jax.core.Tracer) for array in arrays)


def from_lists(
    rows: Sequence[Sequence[object] | None], dtype: Any = None
) -> Ragged:  # Any: what numpy takes for a dtype
    """One list per row, of numbers or of equally shaped arrays; None is an empty row.

    Args:
        rows: The lists.
        dtype: Of the values; by default what numpy makes of them, in 32 bits.

    Raises:
        InputError: A list holds something else than numbers of one shape.
    """
    try:
        flat = [value for row in rows for value in (row if row is not None else ())]
        values = np.asarray(flat, dtype)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"the lists do not hold numbers of one shape: {error}", fix="one level varies: the rows"
        ) from error
    if values.dtype.kind not in "iufb":
        wrong = next(value for value in flat if np.asarray(value).dtype.kind not in "iufb")
        raise InputError(f"the lists hold {wrong!r:.40}", fix="give lists of numbers")
    if dtype is None and values.dtype.itemsize == 8:
        values = _narrow(values)
    return from_row_splits(values, splits_of(np.array([0 if row is None else len(row) for row in rows], np.int64)))


def _narrow(values: Any) -> Any:  # Any: a numpy array
    if values.dtype.kind == "f":
        return values.astype(np.float32)
    if len(values) and not -(2**31) <= values.min() <= values.max() < 2**31:
        raise InputError(
            f"the integers {values.min()} to {values.max()} do not fit in int32 on the device",
            fix="make ids of them, or floats",
        )
    return values.astype(np.int32)


def from_row_splits(values: Array, row_splits: Array) -> Ragged:
    """Row r is `values[row_splits[r]:row_splits[r + 1]]`, as in Arrow and TensorFlow.

    Traced, the values keep their capacity, and those behind the last split are empty slots; given as numpy arrays,
    they are put into their bucket.

    Raises:
        InputError: The splits are not such splits of these values.
    """
    if _traced(values, row_splits):
        return from_lengths(values, row_splits[1:] - row_splits[:-1])
    splits = np.asarray(row_splits, np.int64)
    held = np.asarray(values)
    if splits.ndim != 1 or not len(splits) or splits[0] != 0 or (np.diff(splits) < 0).any() or splits[-1] != len(held):
        raise InputError(
            f"row_splits {splits.tolist()!s:.80} do not split {len(held)} values",
            fix="they begin with 0, never fall, and end with the number of values",
        )
    return from_host(FlatRows(held, splits))


def from_host(rows: FlatRows, capacity: int | None = None) -> Ragged:
    """FlatRows in the bucket that they need, or in that capacity; numpy arrays, which go to the device when used."""
    return Ragged(*rows.padded(bucket(len(rows.values)) if capacity is None else capacity), len(rows))


def from_lengths(values: Array, lengths: Array) -> Ragged:
    """The first `lengths[0]` values are row 0, the next `lengths[1]` row 1 …; traced or not as `from_row_splits`.

    Raises:
        InputError: The lengths do not add up to the number of values (of traced ones that is not known).
    """
    if not _traced(values, lengths):
        return from_row_splits(values, splits_of(np.asarray(lengths)))
    rows, capacity = lengths.shape[0], values.shape[0]
    # At each slot how many rows end just before it; the running sum is the number of the slot's row. Slots behind the
    # last value get `rows`, which marks them as empty; a row that ends at the capacity is dropped.
    ended = jnp.zeros(capacity, jnp.int32).at[jnp.cumsum(lengths)].add(1, mode="drop", indices_are_sorted=True)
    return Ragged(values, jnp.cumsum(ended, dtype=jnp.int32), rows)


def from_dense(dense: Array, mask: Array) -> Ragged:
    """The values of a padded array [rows, width, *value shape] where the mask [rows, width] is true. May be traced.

    Raises:
        InputError: The mask has another shape.
    """
    dense, mask = (array if _traced(array) else jnp.asarray(array) for array in (dense, mask))
    rows, width = mask.shape
    if dense.shape[:2] != (rows, width):
        raise InputError(f"a mask {list(mask.shape)} for an array {list(dense.shape)}", fix="mask is [rows, width]")
    ids = jnp.where(mask, jnp.arange(rows, dtype=jnp.int32)[:, None], rows).reshape(-1)
    flat = dense.reshape(rows * width, *dense.shape[2:])
    spare = bucket(rows * width) - rows * width
    flat = jnp.pad(flat, [(0, spare)] + [(0, 0)] * (flat.ndim - 1))
    ordered = in_row_order(flat, jnp.pad(ids, (0, spare), constant_values=rows), rows)
    if _traced(dense, mask):
        return ordered
    needed = bucket(int(mask.sum()))
    return Ragged(ordered.values[:needed], ordered.segment_ids[:needed], rows)


def from_sparse(indices: Any, values: Any, shape: Sequence[int]) -> Ragged:  # Any: what numpy takes for arrays
    """The rows of a sparse array as TensorFlow and others hold it, entry k at [row, place] = indices[k].

    Args:
        indices: [entries, 2], in any order.
        values: [entries, *value shape].
        shape: (rows, width).

    Raises:
        InputError: An entry is outside of the shape or there twice, or a row has a gap: its places must be 0, 1, …
            (for the columns of a matrix as ids, see `matrix_bags`).
    """
    places, held = np.asarray(indices, np.int64).reshape(-1, 2), np.asarray(values)
    rows = int(shape[0])
    if len(places) != len(held) or (len(places) and ((places < 0) | (places >= np.array(shape[:2]))).any()):
        raise InputError(
            f"{len(places)} indices for {len(held)} values in shape {list(shape)}", fix="each index is [row, place]"
        )
    order = np.lexsort((places[:, 1], places[:, 0]))
    places = places[order]
    splits = splits_of(np.bincount(places[:, 0], minlength=rows))
    gap = places[:, 1] != np.arange(len(places)) - splits[places[:, 0]]
    if gap.any():
        raise InputError(
            f"row {places[gap][0, 0]} has a gap or a place twice, near place {places[gap][0, 1]}",
            fix="places of a row are 0, 1, …; ragged.matrix_bags takes the columns of a matrix as ids",
        )
    return from_host(FlatRows(held[order], splits))


def from_bcoo(matrix: BCOO) -> Ragged:
    """`from_sparse` of a BCOO array [rows, width, *value shape] that is sparse in its first two dimensions."""
    if matrix.n_sparse != 2 or matrix.n_batch:
        raise InputError(
            f"a BCOO of shape {list(matrix.shape)} with {matrix.n_sparse} sparse and {matrix.n_batch} batch dimensions",
            fix="its first two dimensions must be the sparse ones",
        )
    indices = np.asarray(matrix.indices)
    kept = (indices < np.array(matrix.shape[:2])).all(axis=1)  # out of range is BCOO's padding
    return from_sparse(indices[kept], np.asarray(matrix.data)[kept], matrix.shape)


def from_arrow(array: pa.Array | pa.ChunkedArray, *, dtype: str | None = None, shape: tuple[int, ...] = ()) -> Ragged:
    """A list column; a null list is an empty row.

    Args:
        array: Of type list<number>, or list<list<number>> where each value has a shape.
        dtype: Of the values; by default the column's own in 32 bits.
        shape: Of one value.

    Raises:
        InputError: It is not such a column, holds a null inside a list, or an integer beyond 32 bits.
    """
    if dtype is None:
        kind = array.type
        while hasattr(kind, "value_type"):
            kind = kind.value_type
        dtype = "float32" if pa.types.is_null(kind) else np.dtype(kind.to_pandas_dtype()).name
        dtype = {"float64": "float32", "int64": "int32", "uint64": "uint32"}.get(dtype, dtype)
    return from_host(read_lists(array, "the column", dtype, shape))


def to_host(ragged: Ragged) -> FlatRows:
    """The rows as flat numpy values and splits. Raises InputError if traced."""
    if _traced(ragged.values, ragged.segment_ids):
        raise InputError(
            "a traced Ragged has no values yet", fix="use ragged.to_dense(r, width), or return it from the function"
        )
    ids = np.asarray(ragged.segment_ids)
    splits = np.searchsorted(ids, np.arange(ragged.rows + 1))
    return FlatRows(np.asarray(ragged.values)[: splits[-1]], splits.astype(np.int64))


def to_lists(ragged: Ragged) -> list[list[Any]]:  # Any: Python numbers, or lists of them
    """One Python list per row."""
    rows = to_host(ragged)
    flat = rows.values.tolist()
    return [flat[begin:end] for begin, end in zip(rows.splits[:-1], rows.splits[1:], strict=True)]


def to_arrow(ragged: Ragged) -> pa.Array:
    """A large_list column; values with a shape become fixed-size lists, one per dimension."""
    rows = to_host(ragged)
    values = rows.values.astype(np.float32) if rows.values.dtype.name == "bfloat16" else rows.values
    flat = pa.array(values.reshape(-1))
    for size in reversed(values.shape[1:]):
        flat = pa.FixedSizeListArray.from_arrays(flat, size)
    return pa.LargeListArray.from_arrays(pa.array(rows.splits), flat)


def to_dense(ragged: Ragged, width: int, fill: float = 0) -> Array:
    """[rows, width, *value shape]: the first `width` values of each row, `fill` behind a shorter one. May be traced."""
    values = jnp.asarray(ragged.values)
    blank = jnp.full((ragged.rows, width, *values.shape[1:]), fill, values.dtype)
    return blank.at[ragged.segment_ids, ragged.positions].set(values, mode="drop", wrap_negative_indices=False)


def to_sparse(ragged: Ragged) -> tuple[Any, Any, tuple[int, int]]:  # Any: numpy arrays
    """What `from_sparse` takes: indices int64 [entries, 2], values, (rows, longest row)."""
    rows = to_host(ragged)
    row = np.repeat(np.arange(len(rows)), rows.lengths)
    indices = np.stack([row, np.arange(len(row)) - rows.splits[:-1][row]], axis=-1)
    return indices, rows.values, (len(rows), int(rows.lengths.max(initial=0)))


def to_bcoo(ragged: Ragged, width: int) -> BCOO:
    """A sparse array [rows, width, *value shape] with value p of row r at [r, p]; those from `width` on are left out.

    May be traced.
    """
    from jax.experimental.sparse import BCOO

    values = jnp.asarray(ragged.values)
    here = ragged.mask & (ragged.positions < width)
    columns = jnp.where(here, ragged.positions, width)  # out of range is BCOO's own padding
    row = jnp.where(here, jnp.asarray(ragged.segment_ids), ragged.rows)
    entries = jnp.where(column(here, values.ndim), values, 0)
    return BCOO((entries, jnp.stack([row, columns], axis=-1)), shape=(ragged.rows, width, *values.shape[1:]))


def sequence_mask(lengths: Array, width: int) -> Array:
    """Bool [..., width]: true for the first `lengths[...]` places. What `to_dense` filled with values."""
    return jnp.arange(width, dtype=jnp.int32) < jnp.asarray(lengths)[..., None]
