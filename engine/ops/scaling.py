"""Scaling by statistics of the training data: z-scores, min-max, and a long-tailed column made normal."""

from __future__ import annotations

from typing import Final

import jax
import jax.numpy as jnp

from ...errors import InputError
from .._caller import caller
from ..tracing.columns import Fact, Inverse, read
from ..tracing.primitives import current
from . import statistics
from .arguments import Array, Value
from .lists import affine
from .statistics import numbers
from .values import cast

__all__ = ["inverse_min_max", "inverse_z_score", "min_max", "scale_to_gaussian", "z_score"]

_NEWTON_STEPS: Final = 8  # four already reach float32's precision from 1e-7 to 3e38


def z_score(x: Value, *, elementwise: bool = False) -> Value:
    """float32: (x − mean) / sqrt(var) of the training data; x − mean where var is 0. Missing stays NaN.

    Args:
        x: A column, or an array of any shape; a column of lists gives lists, list<float64>.
        elementwise: Whether each element of an array [batch, d] has a mean and a variance of its own.
    """
    column = read(x, "given to z_score")
    numbers(column, "given to z_score")
    centre, spread = statistics.mean(x, elementwise=elementwise), statistics.var(x, elementwise=elementwise)
    if column.item is not None:
        return affine(column, jnp.nan_to_num(centre), _deviation(spread), 0.0)
    values = as_float(column, "given to z_score")
    scaled = standardized(values, centre, spread)
    return current().note(scaled, Fact(column.name, inverse=Inverse("z_score", {}, (centre, spread))))


def standardized(values: Array, centre: Array, spread: Array) -> Array:
    """(values − centre) / sqrt(spread); values − centre where the spread is 0, values where nothing is known."""
    return (values - jnp.nan_to_num(centre)) / _deviation(spread)


def _deviation(spread: Array) -> Array:
    return jnp.where(spread > 0, jax.lax.sqrt(jnp.where(spread > 0, spread, 1.0)), 1.0)


def min_max(x: Value, low: float = 0.0, high: float = 1.0, *, elementwise: bool = False) -> Value:
    """float32: the training data's smallest value at `low`, its largest at `high`, new values beyond are not cut.

    Where they are the same (or there is none) every value is midway; TFT gives a sigmoid there. Elementwise, and
    of lists, as `z_score`.
    """
    check_range(low, high)
    column = read(x, "given to min_max")
    numbers(column, "given to min_max")
    least, most = statistics.ends(x, elementwise=elementwise)
    if column.item is not None:
        span = most - least
        scale = jnp.where(span > 0, span / (high - low), jnp.inf)
        return affine(column, jnp.nan_to_num(least), scale, jnp.where(span > 0, low, (low + high) / 2))
    scaled = rescaled(as_float(column, "given to min_max"), least, most, low, high)
    inverse = Inverse("min_max", {"low": low, "high": high}, (least, most))
    return current().note(scaled, Fact(column.name, inverse=inverse))


def rescaled(values: Array, least: Array, most: Array, low: float, high: float) -> Array:
    """Values with `least` moved to `low` and `most` to `high`; midway where these are the same or unknown."""
    span = most - least
    share = jnp.where(span > 0, (values - least) / jnp.where(span > 0, span, 1.0), 0.5)
    return jnp.where(jnp.isnan(values), jnp.nan, low + share * (high - low))


def inverse_z_score(z: Value, x: Value, *, elementwise: bool = False) -> Array:
    """float32: what `z_score(x)` was made from: z · sqrt(var) + mean, with the statistics of column `x`."""
    values = as_float(z, "given to inverse_z_score")
    centre, spread = statistics.mean(x, elementwise=elementwise), statistics.var(x, elementwise=elementwise)
    return values * _deviation(spread) + jnp.nan_to_num(centre)


def inverse_min_max(y: Value, x: Value, low: float = 0.0, high: float = 1.0, *, elementwise: bool = False) -> Array:
    """float32: what `min_max(x, low, high)` was made from; the one value of `x` where it has only one."""
    check_range(low, high)
    values = as_float(y, "given to inverse_min_max")
    least, most = statistics.ends(x, elementwise=elementwise)
    return (values - low) / (high - low) * (most - least) + least


def scale_to_gaussian(x: Value, *, elementwise: bool = False) -> Array:
    """float32: x as it would be were it drawn from a standard normal distribution. Missing stays NaN.

    A Tukey HH distribution is fitted by L-moments to the training data (see `engine/analyzers/tukey.py`) and undone:
    centred and scaled, then each side u = sqrt(W(h·v²)/h) with Lambert's W. Where neither tail is longer than normal,
    or there are fewer than 8 values, that is `z_score`. TFT fits each batch for itself and averages, so its figures
    depend on the batches; these are what it gives for a single batch.
    """
    values = as_float(x, "given to scale_to_gaussian")
    fitted = statistics.tukey(x, elementwise=elementwise)
    centre, scale, left, right = (fitted[..., parameter] for parameter in range(4))
    spread = statistics.var(x, elementwise=elementwise)
    long_tailed = (left > 0) | (right > 0)
    normal = jax.lax.sqrt(jnp.where(spread > 0, spread, 1.0))
    v = (values - centre) / jnp.where(long_tailed, scale, normal)
    return jnp.where(v < 0, -_one_side(-v, left), _one_side(v, right))


def _one_side(v: Array, h: Array) -> Array:
    squared = jnp.minimum(h * v * v, 3e38)
    as_it_is = ~((squared >= 1e-7) & jnp.isfinite(v))  # no tail, or near the middle; NaN and ±inf
    w = _lambert_w(jnp.where(as_it_is, 1.0, squared))
    return jnp.where(as_it_is, v, jnp.sqrt(w / jnp.where(h > 0, h, 1.0)))


def _lambert_w(x: Array) -> Array:
    """The principal branch for x > 0: Newton's method from the bounds of Hoorfar and Hassani (2008)."""
    logs = jnp.log(x)
    safe = jnp.where(x > jnp.e, logs, 1.0)
    w = jnp.where(x > jnp.e, safe - jnp.log(safe), x / jnp.e)
    for _ in range(_NEWTON_STEPS):
        # w − (w − x·e^−w) / (1 + w): e^w would overflow
        w = w - (w - x * jnp.exp(-w)) / (1 + w)
    return w


def check_range(low: float, high: float) -> None:
    """Raise InputError, with the user's line, unless low < high."""
    if not low < high:
        raise InputError(f"low {low} is not below high {high}", fix="swap them", where=caller())


def as_float(x: Value, doing: str) -> Array:
    """The values as float32, NaN where missing; whole numbers of any size. Raises InputError for text and lists."""
    column = read(x, doing)
    column.check_numeric(doing)
    floats: Array = cast(column, "float32")
    return floats
