"""Whole numbers that int32 cannot hold: the row fails, since the device would wrap them around or cut them off."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import jax.numpy as jnp
from jax.extend.core import get_opaque_trace_state

from .._caller import caller
from .primitives import CURRENT

_FIX: Final = "does not fit in int32 on the device: ops.cast the column to float32 before"


def check_arithmetic(
    fn: Callable[..., Any], name: str, operands: Sequence[Any], values: Any
) -> None:  # Any: JAX arrays, numbers
    """Let a row fail whose sum, difference, product or power of whole numbers is beyond int32.

    Args:
        fn: `jnp.add`, `jnp.subtract`, `jnp.multiply` or `jnp.power`; any other is not looked at.
        name: The column's, for the message.
        operands: What it got.
        values: What it gave.
    """
    if values.dtype != jnp.int32 or fn not in _KINDS:
        return
    if fn in (jnp.add, jnp.subtract):
        a, b = (jnp.asarray(operand, jnp.int32) for operand in operands)
        # The signs tell (Warren, Hacker's Delight, 2-13): a sum has that of one of its terms.
        beyond = ((a ^ values) & (b ^ values) if fn is jnp.add else (a ^ b) & (a ^ values)) < 0
    else:
        # In float32 the size is right to a few millionths, and where that leaves it open, a wrapped number has the
        # other sign.
        floats = fn(*(_as_float(operand) for operand in operands))
        beyond = (jnp.abs(floats) > 2.2e9) | ((values < 0) != (floats < 0))
    _check(~beyond, f"{_KINDS[fn]} of {name!r} {_FIX}")


def check_whole(name: str, floats: Any, valid: Any) -> None:  # Any: JAX arrays; None
    """Let a row fail of which a number that is about to be cast to int32 is beyond it."""
    fits = (floats >= -(2.0**31)) & (floats < 2.0**31)
    _check(fits if valid is None else fits | ~valid, f"a number of {name!r} that is cast to int32 does not fit in it")


def _check(fits: Any, message: str) -> None:
    trace, state = CURRENT.get(), get_opaque_trace_state()  # type: ignore[no-untyped-call]  # JAX types it not
    # Not within a function that JAX traces by itself, e.g. a branch of `lax.cond`: its arrays are not known outside.
    if trace is None or trace.state != state or not fits.ndim or fits.shape[0] != trace.batch:
        return
    trace.check(jnp.all(fits, tuple(range(1, fits.ndim))) if fits.ndim > 1 else fits, message, caller())


def _as_float(operand: Any) -> Any:
    """An array as float32; a number as it is, since a whole exponent is more exact than a float."""
    return operand.astype(jnp.float32) if hasattr(operand, "astype") else operand


_KINDS: Final = {jnp.add: "a sum", jnp.subtract: "a difference", jnp.multiply: "a product", jnp.power: "a power"}
