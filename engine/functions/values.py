"""What a block leaves in its variables: names without a value, tensors that join, and what cannot."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from ...errors import InputError
from ...user_code import is_users
from .._caller import caller

T = TypeVar("T")

Leaf = Any  # a JAX array, tracer, numpy array or Python number; or what no tensor can be


@contextmanager
def having(variable: ContextVar[T], value: T) -> Iterator[None]:
    """A context variable with a value, for a while."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


class Unset:
    """A variable without a value: never assigned, or given values on several paths that are not one tensor."""

    __slots__ = ("fix", "message", "name", "where")

    def __init__(
        self, name: str, message: str | None = None, *, fix: str | None = None, where: str | None = None
    ) -> None:
        self.name = name
        self.message = message
        self.fix = fix
        self.where = where

    def error(self) -> Exception:
        """The error of a read: InputError where paths disagree, UnboundLocalError where nothing was assigned."""
        if self.message is None:
            return UnboundLocalError(f"{caller()}: {shown(self.name)} is used before it has a value")
        return InputError(self.message, fix=self.fix, where=self.where or caller())


NO_VALUE: Final = Unset("ag__value")
"""What a function returns before a return statement ran; read only after one did, so any tensor may stand for it."""


def shown(name: str) -> str:
    """A variable's name as the user knows it."""
    return "the returned value" if name == "ag__value" else repr(name)


def load(value: Any) -> Any:  # Any: any variable of the user's
    """Read a variable. Raises InputError or UnboundLocalError where it has no value."""
    if type(value) is Unset:
        raise value.error()
    return value


def returned(done: Any, value: Any, always: bool) -> Any:  # Any: a flag, Python's or traced; the user's value
    """What the function gives: the value that a return statement set, or None where none ran."""
    if done is False:
        return None
    if is_traced(done) and not always and value is not None:
        raise InputError(
            "the function returns a value on some paths and none on others", fix="end it by a return", where=caller()
        )
    return load(value)


def none_of(*flags: Any) -> Any:  # Any: bools or traced bools
    """Whether no flag is set; Python's own answer where it is certain."""
    if any(flag is True for flag in flags):
        return False
    traced = [flag for flag in flags if flag is not False]
    if not traced:
        return True
    any_set = traced[0]
    for flag in traced[1:]:
        any_set = jnp.logical_or(any_set, flag)
    return jnp.logical_not(any_set)


def is_traced(value: Any) -> bool:  # Any: anything
    """Whether a value is known only when the graph runs."""
    return isinstance(value, jax.core.Tracer)


def is_number(value: Leaf) -> bool:
    """Whether a leaf can be a tensor."""
    if isinstance(value, (jax.Array, bool, int, float, complex)) or jax.export.is_symbolic_dim(value):
        return True
    return isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in "biufcV"


def truth(value: Any, doing: str) -> Any:  # Any: a tracer; a traced bool back
    """A traced scalar as a boolean. Raises InputError where it has several values."""
    if value.ndim and value.size != 1:
        raise InputError(
            f"{doing} is a tensor of shape {value.shape}, which has no single truth value",
            fix="reduce it by jnp.any or jnp.all, or choose by element: jnp.where, & | ~",
            where=caller(),
        )
    value = value.reshape(()) if value.ndim else value
    return value if value.dtype == bool else value != 0


@dataclass(frozen=True, repr=False)
class Spec:
    """What a leaf is as a tensor. `weak` is JAX's word for the dtype of a Python number, which gives way."""

    shape: tuple[Any, ...]  # Any: dimensions may be symbolic
    dtype: Any  # a numpy dtype
    weak: bool

    @classmethod
    def of(cls, value: Leaf) -> Spec:
        """What a number or array is as a tensor."""
        aval = jax.typeof(jnp.asarray(value) if jax.export.is_symbolic_dim(value) else value)
        return cls(aval.shape, aval.dtype, bool(aval.weak_type))

    def struct(self) -> jax.ShapeDtypeStruct:
        """The shape and dtype that JAX traces with, weak where the value was a Python number."""
        return jax.ShapeDtypeStruct(self.shape, self.dtype, weak_type=self.weak)  # type: ignore[no-untyped-call]

    def cast(self, value: Leaf) -> jax.Array:
        """The value with this dtype; the shape must be its own."""
        array = jnp.asarray(value)
        if self.weak or (array.dtype == self.dtype and not jax.typeof(array).weak_type):
            return array
        return jax.lax.convert_element_type(array, self.dtype)

    def zeros(self) -> jax.Array:
        """An array of zeros with this shape and dtype, for a path that leaves no value."""
        return jnp.zeros(self.shape, self.dtype)

    def __repr__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"


def join(a: Spec, b: Spec) -> Spec | None:
    """The one spec that both leaves can have, where no strong dtype changes; None where there is none."""
    if a.shape != b.shape:
        return None
    if a.dtype == b.dtype:
        return a if not a.weak else b
    if a.weak and b.weak:
        return Spec(a.shape, (a if _rank(a.dtype) > _rank(b.dtype) else b).dtype, False)
    weak, strong = (a, b) if a.weak else (b, a)
    return strong if weak.weak and _rank(weak.dtype) <= _rank(strong.dtype) else None


def _rank(dtype: Any) -> int:  # Any: a numpy dtype
    kinds = (jnp.bool_, jnp.integer, jnp.floating, jnp.complexfloating)
    return next(rank for rank, kind in enumerate(kinds) if jnp.issubdtype(dtype, kind))


def same(a: Leaf, b: Leaf) -> bool:
    """Whether two leaves are one value for certain, so that no tensor is needed."""
    if a is b:
        return True
    if type(a) is not type(b) or isinstance(a, (jax.Array, np.ndarray)):
        return False
    try:
        return bool(a == b)
    except Exception:  # the user's own __eq__: whatever it does, the two are not known to be one
        return False


def described(value: Any) -> str:  # Any: a variable's value
    """A value in an error: the spec of a tensor, or what Python shows."""
    if isinstance(value, Unset):
        return "nothing"
    return str(Spec.of(value)) if isinstance(value, (jax.Array, np.ndarray)) else repr(value)[:40]


Getter = Callable[[], tuple[Any, ...]]  # Any: the block's variables
Setter = Callable[[Sequence[Any]], None]  # Any: as above
Changes = Sequence[tuple[str, str, Callable[[], Any]]]  # Any: the object changed in place


def refuse_changes(changes: Changes, kind: str) -> None:
    """Raise InputError if a block that becomes part of the graph changes a Python object that others can see."""
    for name, how, owner in changes:
        if how == "global":
            what = f"the global {name!r} is assigned"
        elif how == "set":
            if isinstance(owner(), jax.Array):
                continue  # JAX itself says that arrays do not change, and what to write
            what = f"{name!r} is assigned"
        else:
            kinds = Iterator if how == "next" else (list, dict, set, deque)
            if not isinstance(owner(), kinds):
                continue
            what = f"{name!r} is called"
        raise InputError(
            f"{what} inside {kind} that depends on a tensor: the graph can carry local variables only",
            fix="use a local variable; for a list an array made before: x = xs[i], xs = xs.at[i].set(value)",
            where=caller(),
        )


_LEAK: Final = re.compile(r"traced at \S*/functions/(?:carry|branches)\.py.*?created on line (\S+?:\d+)", re.S)


def leaked(name: str, error: Exception) -> InputError | None:
    """What to tell of JAX's UnexpectedTracerError; None where the tensor is of no block of ours."""
    leak = _LEAK.search(str(error))
    if leak is None:
        return None
    return InputError(
        f"{name}: a tensor made inside a loop or branch of the graph is kept outside of it, by a function called there",
        fix="let that function return it instead of keeping it (in a list, an attribute, a nonlocal name)",
        where=leak[1] if is_users(leak[1]) else caller(),
    )
