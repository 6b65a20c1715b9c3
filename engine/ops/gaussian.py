"""Gaussianization: a long-tailed column made normal by the inverse of a fitted Tukey HH distribution."""

from __future__ import annotations

from typing import Final

import jax
import jax.numpy as jnp

from . import statistics
from .arguments import Array, Value
from .scaling import as_float

_NEWTON: Final = 8


def scale_to_gaussian(x: Value, *, elementwise: bool = False) -> Array:
    """float32: x as it would be were it drawn from a standard normal distribution. Missing stays NaN.

    A Tukey HH distribution is fitted by L-moments to the training data (see `engine/analyzers/tukey.py`) and undone:
    centred and scaled, then each side u = sqrt(W(h·v²)/h) with Lambert's W. Where neither tail is longer than normal,
    or fewer than 8 values tell, that is `z_score`. TFT fits each batch for itself and averages, so its figures depend
    on the batches; these do not, and are those of one batch.
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
    for _ in range(_NEWTON):
        # w − (w − x·e^−w) / (1 + w): e^w would overflow
        w = w - (w - x * jnp.exp(-w)) / (1 + w)
    return w
