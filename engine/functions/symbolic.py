"""Tensors with dimensions that are not known yet: one trace, and one program for every batch size."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from ...errors import InputError
from .._caller import caller
from .values import Spec


@dataclass(frozen=True)
class TensorSpec:
    """The shape and dtype of an argument.

    Attributes:
        shape: A whole number for a fixed dimension; None for any size: as the leading dimension that is the batch,
            the same in every argument, elsewhere each its own; a name for a size shared by all that use the name.
        dtype: A JAX dtype.
    """

    shape: tuple[int | str | None, ...]
    dtype: str = "float32"

    def __post_init__(self) -> None:
        try:
            dtype = jnp.dtype(self.dtype)
        except TypeError as error:
            raise InputError(
                f"TensorSpec has dtype {self.dtype!r}", fix="give a JAX dtype, float32 say", where=caller()
            ) from error
        for dim in self.shape:
            if not (
                dim is None or (isinstance(dim, int) and dim >= 0) or (isinstance(dim, str) and dim.isidentifier())
            ):
                raise InputError(
                    f"TensorSpec has a dimension {dim!r}", fix="give a size, None or a name", where=caller()
                )
        object.__setattr__(self, "shape", tuple(self.shape))
        object.__setattr__(self, "dtype", dtype.name)


def structs(specs: Sequence[Any]) -> list[jax.ShapeDtypeStruct]:  # Any: TensorSpecs, arrays, ShapeDtypeStructs
    """The specs as JAX takes them, with symbolic dimensions of one scope."""
    scope = jax.export.SymbolicScope()
    unnamed = 0
    jax_structs = []
    for spec in specs:
        if not isinstance(spec, TensorSpec):
            jax_structs.append(spec if isinstance(spec, jax.ShapeDtypeStruct) else Spec.of(spec).struct())
            continue
        words = []
        for axis, dim in enumerate(spec.shape):
            if dim is None and axis:
                unnamed += 1
            words.append(str(dim) if dim is not None else f"d{unnamed}" if axis else "b")
        shape = jax.export.symbolic_shape(",".join(words), scope=scope) if words else ()
        jax_structs.append(jax.ShapeDtypeStruct(shape, spec.dtype))  # type: ignore[no-untyped-call]  # JAX types no struct
    return jax_structs


def is_symbolic(shape: Sequence[Any]) -> bool:  # Any: dimensions
    """Whether a dimension is not known yet."""
    return not all(isinstance(dim, int) for dim in shape)


def program(jaxpr: ClosedJaxpr, structs: Sequence[jax.ShapeDtypeStruct]) -> Callable[..., Any]:  # Any: arrays
    """A jaxpr as a compiled function of its tensors; XLA compiles anew for a new size, Python is not run again."""
    run = jax.jit(jaxpr_as_fun(jaxpr))
    if not any(is_symbolic(item.shape) for item in structs):
        return run
    exported = jax.export.export(run)(*structs)
    return jax.jit(exported.call)


def check(names: Sequence[str], tensors: Sequence[Any], wanted: Sequence[jax.ShapeDtypeStruct]) -> None:
    """Compare tensors with what a concrete function takes.

    Raises:
        InputError: One has another rank, dtype or fixed size, two sizes of one name differ, or an unknown one is 0.
    """
    sizes: dict[str, tuple[str, int]] = {}
    for name, tensor, want in zip(names, tensors, wanted, strict=True):
        have = Spec.of(tensor)
        shown = str(Spec(want.shape, want.dtype, False))
        if have.dtype != want.dtype or len(have.shape) != len(want.shape):
            _mismatch(name, have, shown)
        for size, dim in zip(have.shape, want.shape, strict=True):
            if isinstance(dim, int):
                if size != dim:
                    _mismatch(name, have, shown)
                continue
            if size == 0:
                raise InputError(
                    f"argument {name!r} is {have}: {dim} is an unknown size, which is at least 1",
                    fix="leave empty batches out, or trace another concrete function for them",
                    where=caller(),
                )
            other = sizes.setdefault(str(dim), (name, size))
            if other[1] != size:
                raise InputError(
                    f"{dim} is {other[1]} in argument {other[0]!r} and {size} in {name!r}",
                    fix="give both one size, or the TensorSpecs two names",
                    where=caller(),
                )


def _mismatch(name: str, have: Spec, wanted: str) -> None:
    raise InputError(
        f"argument {name!r} is {have}, and the signature says {wanted}", fix="cast or reshape it", where=caller()
    )


def generalised(old: Sequence[Spec], new: Sequence[Spec]) -> list[TensorSpec] | None:
    """Specs that cover both: a size that differs gets a name, one name for one pair of sizes; None if they cannot."""
    names: Mapping[tuple[int, int], str] = {}
    specs: list[TensorSpec] = []
    known = dict(names)
    for a, b in zip(old, new, strict=True):
        if a.dtype != b.dtype or len(a.shape) != len(b.shape):
            return None
        shape = [
            size if size == other_size else known.setdefault((size, other_size), f"n{len(known)}")
            for size, other_size in zip(a.shape, b.shape, strict=True)
        ]
        specs.append(TensorSpec(tuple(shape), str(a.dtype)))
    return specs
