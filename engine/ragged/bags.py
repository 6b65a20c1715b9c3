"""Bags of ids: looked up in a table and pooled per row, and the same as a sparse matrix."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from ...errors import InputError
from . import pooling
from .convert import from_row_splits
from .ragged import Array, Ragged, column, same_rows

if TYPE_CHECKING:
    from jax.experimental.sparse import BCOO

Combiner = Literal["sum", "mean", "sqrtn", "max"]


def embedding_bag(table: Array, ids: Ragged, weights: Ragged | None = None, combiner: Combiner = "mean") -> Array:
    """The rows of a table that each bag names, pooled: [rows, *width]; 0 for an empty bag, whatever the combiner.

    With weights w of the values e: sum is Σ w·e; mean is Σ w·e / Σ w; sqrtn is Σ w·e / √Σ w² (as in TensorFlow's
    `embedding_lookup_sparse`); all are 0 where the divisor is. An id that the table has no row for gives NaN, so
    that the fault shows.

    Args:
        table: [ids, *width], of floats.
        ids: One integer per value.
        weights: One number per id, in the same rows.
        combiner: How a bag is pooled.

    Raises:
        InputError: The ids are not integers, one per value; weights of other rows, or with "max"; an unknown combiner.
    """
    if combiner not in ("sum", "mean", "sqrtn", "max"):
        raise InputError(f"there is no combiner {combiner!r}", fix="use sum, mean, sqrtn or max")
    if not jnp.issubdtype(ids.values.dtype, jnp.integer) or ids.values.ndim != 1:
        raise InputError(f"the ids are {ids!r}", fix="give one integer per value (ops.vocabulary makes them)")
    embeddings = ids.map_values(lambda values: _looked_up(jnp.asarray(table), values))
    if weights is None:
        if combiner == "max":
            return pooling.max(embeddings, empty=0)
        return {"sum": pooling.sum, "mean": pooling.mean, "sqrtn": pooling.sqrtn}[combiner](embeddings)
    if combiner == "max":
        raise InputError("the largest of weighted values is not defined", fix='leave the weights out, or use "sum"')
    same_rows(ids, weights, "embedding_bag")
    factors = weights.map_values(lambda values: values.astype(embeddings.values.dtype))
    total = pooling.sum(replace(embeddings, values=embeddings.values * column(factors.values, embeddings.values.ndim)))
    if combiner == "sum":
        return total
    by = pooling.sum(factors if combiner == "mean" else factors * factors)
    known = by != 0
    divisor = jnp.where(known, by, 1)  # before the root, whose slope at 0 is infinite
    divisor = column(divisor if combiner == "mean" else jnp.sqrt(divisor), total.ndim)
    return jnp.where(column(known, total.ndim), total / divisor, 0)


def _looked_up(table: Array, ids: Array) -> Array:
    return table.at[ids].get(mode="fill", fill_value=jnp.nan, wrap_negative_indices=False)


def bag_matrix(ids: Ragged, width: int, weights: Ragged | None = None) -> BCOO:
    """Bags as a sparse matrix [rows, width]: 1 (or the weight) in the column of each id, added up where one repeats.

    `bag_matrix(ids, len(table)) @ table` is `embedding_bag(table, ids, combiner="sum")`.

    Raises:
        InputError: Weights of other rows.
    """
    from jax.experimental.sparse import BCOO

    if weights is not None:
        same_rows(ids, weights, "bag_matrix")
    entries = jnp.ones(ids.segment_ids.shape[0], jnp.float32) if weights is None else jnp.asarray(weights.values)
    columns = jnp.where(ids.mask, jnp.asarray(ids.values), width)  # out of range is BCOO's own padding
    indices = jnp.stack([jnp.asarray(ids.segment_ids), columns.astype(jnp.int32)], axis=-1)
    return BCOO((jnp.where(ids.mask, entries, 0), indices), shape=(ids.rows, width))


def matrix_bags(matrix: BCOO) -> tuple[Ragged, Ragged]:
    """The bags of a sparse matrix: column numbers and entries of each row, in the order of the columns.

    Raises:
        InputError: It is not a two-dimensional matrix with scalar entries, or it is traced.
    """
    if matrix.ndim != 2 or matrix.n_batch or matrix.n_dense:
        raise InputError(f"a BCOO of shape {list(matrix.shape)} has no bags", fix="give a matrix with scalar entries")
    if isinstance(matrix.indices, jax.core.Tracer):
        raise InputError("matrix_bags of a traced matrix: its rows are not known", fix="call it outside of jax.jit")
    indices, entries = np.asarray(matrix.indices), np.asarray(matrix.data)
    kept = (indices < np.array(matrix.shape)).all(axis=1)
    indices, entries = indices[kept], entries[kept]
    order = np.lexsort((indices[:, 1], indices[:, 0]))
    splits = np.searchsorted(indices[order, 0], np.arange(matrix.shape[0] + 1))

    def bags(values: Any) -> Ragged:
        return from_row_splits(values[order], splits)

    return bags(indices[:, 1].astype(np.int32)), bags(entries)
