"""Scaling by statistics of the training data."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from ...errors import InputError
from .._caller import caller
from ..tracing.columns import Column, read
from . import statistics
from .common import Array, Value


def z_score(x: Value) -> Array:
    """float32: (x − mean) / sqrt(var) of the training data; x − mean where var is 0. Missing stays NaN."""
    column = read(x, "given to z_score")
    values = _as_float(column)
    centre, spread = statistics.mean(x), statistics.var(x)
    scale = jnp.where(spread > 0, jax.lax.sqrt(jnp.where(spread > 0, spread, 1.0)), 1.0)
    return (values - jnp.nan_to_num(centre)) / scale


def min_max(x: Value, low: float = 0.0, high: float = 1.0) -> Array:
    """float32: the training data's smallest value at `low`, its largest at `high`, new values beyond are not cut.

    Where they are the same (or there is none) every value is midway; TFT gives a sigmoid there.
    """
    if not low < high:
        raise InputError(f"low {low} is not below high {high}", fix="swap them", where=caller())
    column = read(x, "given to min_max")
    values = _as_float(column)
    least, most = (jnp.asarray(end, jnp.float32) for end in (statistics.min(x), statistics.max(x)))
    span = most - least
    share = jnp.where(span > 0, (values - least) / jnp.where(span > 0, span, 1.0), 0.5)
    return jnp.where(jnp.isnan(values), jnp.nan, low + share * (high - low))


def _as_float(column: Column) -> Array:
    column.check_numeric("scaled")
    values = column.values.astype(jnp.float32)
    return (
        values if column.valid is None or column.values.dtype.kind == "f" else jnp.where(column.valid, values, jnp.nan)
    )
