"""Checks of rows: they live in the graph, survive export, and fail only the row that breaks them."""

from __future__ import annotations

import math

import jax.numpy as jnp

from ...errors import InputError
from .._caller import caller
from ..tracing.columns import read
from ..tracing.primitives import current
from .arguments import Value

__all__ = ["check", "check_finite", "check_range"]


def check(condition: Value, message: str) -> None:
    """Let every row for which the condition is not true fail, in training and in serving, with the message.

    A condition on a missing value is not true: write `(x >= 0) | ops.is_missing(x)` to let those pass. No pass removes
    a check; a served model keeps all but those that need a raw column which nothing but the label needs.

    Args:
        condition: One bool per row.
        message: What is wrong with such a row, for the person who sent it.

    Raises:
        InputError: While tracing: the condition is not a bool per row, or the message is empty.
    """
    column = read(condition, "given to check")
    if column.dtype != "bool" or column.values.shape != (current().batch,):
        raise InputError(
            f"check got {column.dtype}{list(map(str, column.values.shape if column.dtype != 'string' else ()))}",
            fix="give one bool per row, such as columns['age'] >= 0",
            where=caller(),
        )
    if not message.strip():
        raise InputError("a check without a message", fix="say what is wrong with a row that fails", where=caller())
    holds = column.values if column.valid is None else column.values & column.valid
    current().check(holds, message, caller())


def check_range(x: Value, low: float = -math.inf, high: float = math.inf) -> None:
    """`check` that values lie within `low` and `high`, both included; a missing value passes."""
    if not low <= high:
        raise InputError(f"low {low} is above high {high}", fix="swap them", where=caller())
    column = read(x, "given to check_range")
    column.check_numeric("given to check_range")
    inside = (column.values >= low) & (column.values <= high)
    if column.valid is not None:
        inside = jnp.where(column.valid, inside, True)
    check(inside, f"{column.name} is not from {low:g} to {high:g}")


def check_finite(x: Value) -> None:
    """`check` that values are neither missing, NaN nor infinite. It costs a look at every value: use it where needed.

    `engine.analyze(..., check_floats=True)` does this for every float output.
    """
    column = read(x, "given to check_finite")
    column.check_numeric("given to check_finite")
    finite = jnp.isfinite(column.values)
    if column.valid is not None:
        finite &= column.valid
    if finite.ndim > 1:
        finite = jnp.all(finite, tuple(range(1, finite.ndim)))
    check(finite, f"{column.name} is missing or not finite")
