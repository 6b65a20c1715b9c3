"""What a function does in training alone: dropout, assertions for debugging. Passes drop it from exported graphs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import jax
import jax.numpy as jnp

from ...errors import InputError
from .._caller import caller

Array = Any  # a JAX array

TRAINING_ONLY: Final = "training_only_"
"""Starts the names of calls that give back their first operand once training is over."""


def _training_only(name: str, fn: Callable[..., Array]) -> Callable[..., Array]:
    fn.__name__ = TRAINING_ONLY + name
    return jax.jit(fn)


def dropout(x: Array, rate: float, key: Array) -> Array:
    """`x` with each element zero with probability `rate`, else divided by 1 − rate (Srivastava et al., 2014).

    Args:
        x: Any float array.
        rate: From 0 up to, not including, 1.
        key: A JAX PRNG key.

    Raises:
        InputError: The rate is not such a number.
    """
    if not 0.0 <= rate < 1.0:
        raise InputError(f"the dropout rate is {rate!r}", fix="use 0 or more, and less than 1", where=caller())

    def dropped(x: Array, key: Array) -> Array:
        kept = jax.random.bernoulli(key, 1.0 - rate, x.shape)
        return jnp.where(kept, x / (1.0 - rate), jnp.zeros_like(x))

    return _training_only("dropout", dropped)(x, key)


def debug_assert(x: Array, condition: Array, message: str) -> Array:
    """`x`, having raised if the condition is false anywhere; exported graphs do not ask. See `ops.check` for those.

    Raises:
        InputError: From inside the running program, hence wrapped by JAX: the message and the user's line.
    """
    where = caller()

    def asserted(x: Array, condition: Array) -> Array:
        jax.debug.callback(partial(_complain, message, where), jnp.all(condition))
        return x

    return _training_only("debug_assert", asserted)(x, condition)


def _complain(message: str, where: str | None, holds: Array) -> None:
    if not holds:
        raise InputError(f"debug_assert failed: {message}", fix="look at the values that led here", where=where)
