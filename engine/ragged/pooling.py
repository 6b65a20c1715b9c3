"""Reductions of each row: sum, mean, sqrtn, max, min, any, all, logsumexp; and the softmax within a row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import jax
import jax.numpy as jnp

from .ragged import Array, Ragged, column


def sum(ragged: Ragged) -> Array:  # noqa: A001  # as in jax.numpy
    """The sum of each row, [rows, *value shape]; 0 for an empty row. Booleans are counted."""
    values = jnp.asarray(ragged.values)
    if values.dtype == bool:
        values = values.astype(jnp.int32)
    return _by_row(jax.ops.segment_sum, ragged, values)


def _by_row(reduce: Callable[..., Array], ragged: Ragged, values: Array) -> Array:
    if ragged.rows == 0:  # JAX has no gradient for a scatter into nothing
        return values[:0]
    reduced: Array = reduce(values, ragged.segment_ids, ragged.rows, indices_are_sorted=True)
    return reduced


def mean(ragged: Ragged) -> Array:
    """The mean of each row, [rows, *value shape], integers as float32; 0 for an empty row."""
    return _divided(ragged, ragged.lengths)


def sqrtn(ragged: Ragged) -> Array:
    """The sum of each row by the square root of its length (TensorFlow's combiner "sqrtn"); 0 for an empty row."""
    return _divided(ragged, jnp.sqrt(ragged.lengths.astype(jnp.float32)))


def _divided(ragged: Ragged, by: Array) -> Array:
    total = sum(ragged)
    if not jnp.issubdtype(total.dtype, jnp.inexact):
        total = total.astype(jnp.float32)
    return total / column(jnp.maximum(by, 1).astype(total.dtype), total.ndim)


def max(ragged: Ragged, empty: float | None = None) -> Array:  # noqa: A001  # as in jax.numpy
    """The largest value of each row, [rows, *value shape]; equal ones share the gradient.

    Args:
        ragged: Of numbers.
        empty: What an empty row has; by default the dtype's lowest value, -inf for floats.
    """
    return _filled(ragged, _by_row(jax.ops.segment_max, ragged, jnp.asarray(ragged.values)), empty)


def min(ragged: Ragged, empty: float | None = None) -> Array:  # noqa: A001  # as in jax.numpy
    """The smallest value of each row; as `max`, an empty row has the dtype's highest value, inf for floats."""
    return _filled(ragged, _by_row(jax.ops.segment_min, ragged, jnp.asarray(ragged.values)), empty)


def _filled(ragged: Ragged, pooled: Array, empty: float | None) -> Array:
    if empty is None:
        return pooled
    return jnp.where(column(ragged.lengths > 0, pooled.ndim), pooled, jnp.asarray(empty, pooled.dtype))


def any(ragged: Ragged) -> Array:  # noqa: A001  # as in jax.numpy
    """Whether some value of each row is true (not 0), bool [rows, *value shape]; False for an empty row."""
    return sum(replace(ragged, values=jnp.asarray(ragged.values) != 0)) > 0


def all(ragged: Ragged) -> Array:  # noqa: A001  # as in jax.numpy
    """Whether every value of each row is true (not 0), bool [rows, *value shape]; True for an empty row."""
    return sum(replace(ragged, values=jnp.asarray(ragged.values) == 0)) == 0


def logsumexp(ragged: Ragged) -> Array:
    """log(sum(exp(values))) of each row, without overflow; -inf for an empty row."""
    top = _top(ragged)
    return jnp.log(sum(_exponentials(ragged, top))) + top


def softmax(ragged: Ragged) -> Ragged:
    """exp(values) over their sum in the row: weights that add up to 1 within each row that has values."""
    weights = _exponentials(ragged, _top(ragged))
    shares: Ragged = weights / sum(weights)
    return shares


def _top(ragged: Ragged) -> Array:
    """The largest finite value of each row, 0 where there is none, as a constant: it cancels out."""
    top = jax.lax.stop_gradient(max(ragged))
    return jnp.where(jnp.isfinite(top), top, 0)


def _exponentials(ragged: Ragged, top: Array) -> Ragged:
    below: Ragged = ragged - top
    return below.map_values(jnp.exp)
