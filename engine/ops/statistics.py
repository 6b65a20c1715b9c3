"""Analyzers: numbers of the whole training data, computed in a full pass before anything is transformed."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from ...errors import InputError
from .._caller import caller
from ..tracing.columns import read
from ..tracing.primitives import bind_analyzer, current
from .common import Array, Value, at_least


def mean(x: Value) -> Array:
    """float32 scalar: the mean; NaN for no value."""
    return _analyze("mean", x, "float32")


def var(x: Value) -> Array:
    """float32 scalar: the population variance (÷ n); NaN for no value."""
    return _analyze("var", x, "float32")


def std(x: Value) -> Array:
    """float32 scalar: the square root of `var`."""
    return jnp.sqrt(var(x))


def sum(x: Value) -> Array:  # noqa: A001  # ops.sum is the field's name
    """float32 scalar: the sum, rounded once; 0 for no value."""
    return _analyze("sum", x, "float32")


def count(x: Value) -> Array:
    """int32 scalar: how many values are present and finite."""
    return _analyze("count", x, "int32")


def min(x: Value) -> Array:  # noqa: A001  # as sum
    """Scalar of x's dtype: the smallest value. No value: NaN, or for integers an error of the analysis."""
    return _analyze("min", x, None)


def max(x: Value) -> Array:  # noqa: A001  # as sum
    """Scalar of x's dtype: the largest value; as `min`."""
    return _analyze("max", x, None)


def quantiles(x: Value, buckets: int) -> Array:
    """The `buckets` − 1 boundaries, of x's dtype: boundary i is the value at place floor(i·N/buckets) of N sorted."""
    at_least("buckets", buckets, 2)
    return _analyze("quantiles", x, None, {"buckets": buckets}, (buckets - 1,))


def _analyze(
    kind: str, x: Value, dtype: str | None, params: dict[str, Any] | None = None, shape: tuple[int, ...] = ()
) -> Array:
    column = read(x, f"given to {kind}")
    column.check_numeric(f"given to {kind}")
    if dtype is None:
        dtype = "int32" if column.dtype == "bool" else column.dtype
    if column.fact.handle is not None:
        inputs = [column.fact.handle]
    elif column.values.shape and column.values.shape[0] == current().batch:
        valid = None if column.values.dtype.kind == "f" else column.valid
        inputs = [column.values] if valid is None else [column.values, valid]
    else:
        raise InputError(f"{kind} of something that is not one value per row", fix="pass a column", where=caller())
    return bind_analyzer(kind, inputs, (dtype, shape), {**(params or {}), "column": column.name})
