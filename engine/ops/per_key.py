"""Statistics per key: of the rows that share a text, a whole number or a boolean.

The result of the analysis is an asset, a table by key; a host op looks each row's key up and gives its statistics as an
array. A row counts where both its key and its value are present. A key that the training data did not have, or that is
missing, has no statistics: NaN (a count: 0), and each mapper says what it makes of that.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from ...errors import InputError
from .._caller import caller
from ..tracing.columns import Column, Fact, Size, read
from ..tracing.primitives import bind_analyzer, bind_host, current
from .arguments import Array, Value, at_least
from .scaling import as_float, check_range, rescaled, standardized
from .statistics import operands, weight_of

__all__ = [
    "bucketize_per_key", "count_per_key", "max_per_key", "mean_per_key", "min_max_per_key", "min_per_key",
    "quantiles_per_key", "sum_per_key", "var_per_key", "z_score_per_key",
]  # fmt: skip


def count_per_key(key: Value) -> Array:
    """int32 [batch]: how many rows of the training data have this row's key; 0 for a new or missing one."""
    column = _key(key)
    table = bind_analyzer("count_per_key", [column.handle], ("vocabulary", ()), {"column": column.name})
    return _looked_up(column, table, (), 0.0, "int32")


def mean_per_key(x: Value, key: Value) -> Array:
    """float32 [batch]: the mean of `x` over the training rows with this row's key."""
    return _statistics("mean_per_key", x, key, "mean")[:, 0]


def var_per_key(x: Value, key: Value) -> Array:
    """float32 [batch]: the population variance (÷ n) of `x` over the training rows with this row's key."""
    return _statistics("var_per_key", x, key, "var")[:, 0]


def min_per_key(x: Value, key: Value) -> Array:
    """float32 [batch]: the smallest `x` of the training rows with this row's key."""
    return _statistics("min_per_key", x, key, "min")[:, 0]


def max_per_key(x: Value, key: Value) -> Array:
    """float32 [batch]: the largest `x` of the training rows with this row's key."""
    return _statistics("max_per_key", x, key, "max")[:, 0]


def sum_per_key(x: Value, key: Value) -> Array:
    """float32 [batch]: the sum of `x` over the training rows with this row's key."""
    return _statistics("sum_per_key", x, key, "sum")[:, 0]


def quantiles_per_key(x: Value, key: Value, buckets: int, *, weights: Value = None) -> Array:
    """float32 [batch, buckets − 1]: the boundaries that `quantiles` gives for the training rows with this row's key."""
    at_least("buckets", buckets, 2)
    return _learnt("quantiles_per_key", "quantiles_per_key", x, key, {"buckets": buckets}, buckets - 1, weights)


def z_score_per_key(x: Value, key: Value) -> Array:
    """float32: `z_score` with the mean and variance of the row's key. A new or missing key leaves x as it is (TFT)."""
    values = as_float(x, "given to z_score_per_key")
    statistics = _statistics("z_score_per_key", x, key, "mean", "var")
    return standardized(values, statistics[:, 0], statistics[:, 1])


def min_max_per_key(x: Value, key: Value, low: float = 0.0, high: float = 1.0) -> Array:
    """float32: `min_max` with the ends of the row's key. A new or missing key, or one of a single value: midway."""
    check_range(low, high)
    values = as_float(x, "given to min_max_per_key")
    statistics = _statistics("min_max_per_key", x, key, "min", "max")
    return rescaled(values, statistics[:, 0], statistics[:, 1], low, high)


def bucketize_per_key(x: Value, key: Value, buckets: int, *, weights: Value = None) -> Array:
    """int32 ids by the quantiles of the row's key, with weights by the weighted ones.

    Returns:
        0 … buckets−1, `buckets` for a missing value, buckets+1 for a new or missing key (TFT gives −1).
    """
    column = read(x, "given to bucketize_per_key")
    values = as_float(column, "given to bucketize_per_key")
    edges = quantiles_per_key(x, key, buckets, weights=weights)
    ids = jnp.sum(values[:, None] >= edges, axis=-1, dtype=jnp.int32)
    ids = jnp.where(jnp.isnan(values), buckets, ids)
    ids = jnp.where(jnp.isnan(edges).any(axis=-1), buckets + 1, ids)
    return current().note(ids, Fact(column.name, complete=True, size=Size(buckets + 2)))


def _statistics(op: str, x: Value, key: Value, *stats: str) -> Array:
    return _learnt(op, "moments_per_key", x, key, {"stats": list(stats)}, len(stats))


def _learnt(
    op: str, kind: str, x: Value, key: Value, params: dict[str, Any], width: int, weights: Value = None
) -> Array:
    inputs, roles, column = operands(x, f"given to {op}")
    if column.item is not None or (column.fact.handle is None and column.values.ndim != 1):
        raise InputError(
            f"column {column.name!r} has several values per row, per key it needs one",
            fix="take one element at a time",
            where=caller(),
        )
    by = _key(key)
    params = {**params, "roles": [*roles, "key"], "key": by.name, "column": column.name}
    inputs = [*inputs, by.handle]
    if weights is not None:
        counts = weight_of(weights)
        inputs = [*inputs, counts.handle]
        params |= {"roles": [*params["roles"], "weight"], "weight": counts.name}
    table = bind_analyzer(kind, inputs, ("vocabulary", ()), params)
    return _looked_up(by, table, (width,), None, "float32")


def _looked_up(key: Column, table: Any, shape: tuple[int, ...], default: float | None, dtype: str) -> Array:
    params = {"width": shape[0] if shape else None, "default": default, "dtype": dtype}
    (statistics,) = bind_host("per_key", [key.handle, table], [(dtype, ("b", *shape), False)], params)
    return statistics


def _key(key: Value) -> Column:
    column = read(key, "given as a key")
    column._check_readable()
    if column.item is not None or column.dtype.startswith("float"):
        what = "a list" if column.item is not None else "float"
        raise InputError(
            f"column {column.name!r} is {what}, no key", fix="use text, integers or booleans", where=caller()
        )
    return column
