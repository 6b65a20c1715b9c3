"""The mark on the results of a loop without a bound: a gradient through it is an error that says where."""

from __future__ import annotations

from typing import Any, Final, Never

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from ...errors import InputError

_MARK: Final = Primitive("unbounded_loop")


def unbounded(value: jax.Array, where: str | None) -> jax.Array:
    """The value itself; its gradient raises InputError at `where`. Forward derivatives pass."""
    if not jnp.issubdtype(value.dtype, jnp.inexact):
        return value
    marked: jax.Array = _MARK.bind(value, where=where)  # type: ignore[no-untyped-call]  # JAX types no Primitive
    return marked


@_MARK.def_impl  # type: ignore[untyped-decorator]  # as above
def _run(value: Any, *, where: str | None) -> Any:  # Any: an array
    return value


@_MARK.def_abstract_eval  # type: ignore[untyped-decorator]  # as above
def _shape(aval: Any, *, where: str | None) -> Any:  # Any: an aval
    return aval


def _transposed(*_: Any, where: str | None) -> Never:  # Any: cotangents
    raise InputError(
        "a gradient goes through a loop whose number of steps is not bounded",
        fix="begin its body with set_max_steps(n), or give @function(max_steps=n): at most n steps, with gradients",
        where=where,
    )


def _batched(values: Any, dims: Any, *, where: str | None) -> Any:  # Any: arrays and their batch dimensions
    return unbounded(values[0], where), dims[0]


ad.deflinear2(_MARK, _transposed)  # type: ignore[no-untyped-call]  # JAX types none of these
batching.primitive_batchers[_MARK] = _batched
mlir.register_lowering(_MARK, mlir.lower_fun(_run, multiple_results=False))
