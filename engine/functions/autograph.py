"""Python control flow on tensors: a function converted so that its branches and loops become those of the graph.

A transformer of our own in place of diastatic-malt, which keeps a generated file for every function, so that
tracebacks, debuggers and the lines that JAX records point there; whose operators are not an interface; and which ships
no types. Here every node keeps its place in the user's file.
"""

from __future__ import annotations

import builtins
import functools
import sysconfig
from collections.abc import Callable
from contextvars import ContextVar
from types import CodeType, FunctionType, MethodType, SimpleNamespace
from typing import Any, Final, TypeVar

import jax
import jax.numpy as jnp

from ...user_code import is_users
from . import (
    branches,
    iterables,
    loops,
    outer_changes,
    values,
)
from .rewrite import rewritten
from .source import HELPER, compiled, definition, function_of_code, is_generator
from .values import is_traced

F = TypeVar("F", bound=Callable[..., Any])  # Any: any function of the user's

CONVERTING: Final[ContextVar[bool]] = ContextVar("drivetrain_converting", default=False)
"""Whether a converted function is being traced: what the engine then calls for the user is converted as well."""

_MARK: Final = "__drivetrain_do_not_convert__"
_STDLIB: Final = (sysconfig.get_paths()["stdlib"], sysconfig.get_paths()["platstdlib"])


def do_not_convert(fn: F) -> F:
    """Mark a function as one whose Python control flow stays Python's, also where a converted function calls it.

    Returns:
        The function itself.
    """
    setattr(fn, _MARK, True)
    return fn


def convert(fn: Callable[..., Any]) -> Callable[..., Any]:  # Any: the user's function
    """The function with its control flow on tensors as that of the graph, and all that it calls as well.

    Returns:
        A function of the same parameters, closure and globals; `fn` itself where it is not the user's Python code
        (a library's function, a class, a generator, one marked by `do_not_convert`, one without source).
    """
    if isinstance(fn, functools.partial):
        return functools.partial(convert(fn.func), *fn.args, **fn.keywords)
    if isinstance(fn, MethodType):
        inner = convert(fn.__func__)
        return fn if inner is fn.__func__ else MethodType(inner, fn.__self__)
    if not isinstance(fn, FunctionType):
        called = getattr(type(fn), "__call__", None)  # noqa: B004  # the method is wanted, not the answer
        if isinstance(fn, type) or not isinstance(called, FunctionType) or not _convertible(called):
            return fn
        return MethodType(convert(called), fn)
    return _converted(fn) if _convertible(fn) else fn


def _convertible(fn: FunctionType) -> bool:
    code = fn.__code__
    return (
        is_users(code.co_filename)
        and not code.co_filename.startswith(_STDLIB)
        and HELPER not in code.co_freevars
        and not is_generator(code)
        and not getattr(fn, _MARK, False)
    )


_COMPILED: Final[dict[tuple[CodeType, str], CodeType | None]] = {}  # by code and file; None without source


def _converted(fn: FunctionType) -> Callable[..., Any]:
    key = (fn.__code__, fn.__code__.co_filename)
    if key not in _COMPILED:
        tree = definition(fn)
        parts = fn.__qualname__.split(".")
        owner = parts[-2] if len(parts) > 1 and parts[-2] != "<locals>" else None
        _COMPILED[key] = None if tree is None else compiled(rewritten(tree, owner), fn)
    code = _COMPILED[key]
    return fn if code is None else function_of_code(code, fn, HELPERS)


def callee(fn: Any) -> Any:  # Any: whatever the user calls
    """What a call in a converted function runs: the user's functions converted, some builtins fit for tensors."""
    try:
        known = _BUILTINS.get(fn)
    except TypeError:  # not hashable
        known = None
    if known is not None:
        return known
    converted = convert(fn) if callable(fn) else fn
    if converted is fn and _takes_functions(fn):
        return lambda *args, **kwargs: fn(*map(_argument, args), **{key: _argument(v) for key, v in kwargs.items()})
    return converted


def _takes_functions(fn: Any) -> bool:  # Any: whatever the user calls
    """Whether a library may call back: then functions given to it are converted first."""
    module = getattr(fn, "__module__", None) or ""
    if isinstance(fn, (type, jax.stages.Wrapped)):
        return fn in (map, filter) or module == "itertools"
    ours = __name__.partition(".engine.")[0] + ".engine"
    return module.split(".")[0] in ("jax", "functools", "_functools", "builtins") or module.startswith(ours)


def _argument(value: Any) -> Any:  # Any: an argument of the user's
    if type(value) in (list, tuple):  # the branches of lax.switch
        return type(value)(map(_argument, value))
    return convert(value) if isinstance(value, (FunctionType, MethodType, functools.partial)) else value


def _extreme(plain: Callable[..., Any], join: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """`min` or `max` that takes tensors."""

    def run(*args: Any, **kwargs: Any) -> Any:
        items = list(args[0]) if len(args) == 1 and not is_traced(args[0]) else args
        if kwargs or not any(is_traced(item) for item in items):
            return plain(*args, **{key: _argument(value) for key, value in kwargs.items()})
        return functools.reduce(join, items) if len(items) > 1 else (items[0].min() if plain is min else items[0].max())

    return run


def _casting(plain: type, dtype: str) -> Callable[..., Any]:
    """`int`, `float` or `bool` that takes tensors."""

    def run(*args: Any, **kwargs: Any) -> Any:
        if len(args) != 1 or not is_traced(args[0]):
            return plain(*args, **kwargs)
        return jnp.asarray(args[0]).reshape(()).astype(dtype)

    return run


def _length(items: Any) -> Any:  # Any: as `len` takes; a symbolic dimension where the size is not known yet
    return items.shape[0] if is_traced(items) and items.ndim else len(items)


def _every(plain: Callable[[Any], bool], join: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """`any` or `all` that takes tensors."""

    def run(items: Any) -> Any:
        if is_traced(items):
            return join(items)
        truths = list(items)
        return join(jnp.stack(truths)) if any(is_traced(item) for item in truths) else plain(truths)

    return run


_BUILTINS: Final[dict[Any, Callable[..., Any]]] = {
    builtins.range: iterables.range_,
    builtins.enumerate: iterables.enumerate_,
    builtins.zip: iterables.zip_,
    builtins.min: _extreme(min, jnp.minimum),
    builtins.max: _extreme(max, jnp.maximum),
    builtins.int: _casting(int, "int32"),
    builtins.float: _casting(float, "float32"),
    builtins.bool: _casting(bool, "bool"),
    builtins.len: _length,
    builtins.any: _every(any, jnp.any),
    builtins.all: _every(all, jnp.all),
}

HELPERS: Final = SimpleNamespace(
    NO_VALUE=values.NO_VALUE, Unset=values.Unset, and_=branches.and_, assert_=branches.assert_, callee=callee,
    certain=branches.certain, changes=outer_changes.changes, choose=branches.choose, compare=branches.compare,
    for_=loops.for_, formatted=branches.formatted, if_=branches.if_, load=values.load, may_raise=branches.may_raise,
    none_of=values.none_of, not_=branches.not_, or_=branches.or_, returned=values.returned, value=branches.value,
    while_=loops.while_,
)  # fmt: skip
"""The operators that converted code calls as `ag__.name`."""
