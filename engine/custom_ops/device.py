"""Ops on the device: JAX functions, Pallas kernels and C++ kernels, each with its gradient.

Settings are keyword arguments and constants of the graph; whatever is given by position is an array.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from ...errors import InputError
from .._caller import caller
from ..tracing.columns import Column
from .extensions import owner
from .native import Native, register_target
from .registry import Fn, Op, register, registered

_EXPORTING: Final[ContextVar[bool]] = ContextVar("drivetrain_exporting", default=False)


@contextmanager
def exporting() -> Iterator[None]:
    """While it is open, functions are traced for a bundle, which takes the portable form of Pallas ops.

    JAX keeps what it traced by function and shapes, and does not know of this: where there are Pallas ops, nothing
    traced before or meanwhile is used again.
    """
    forget = any(op.is_interpreted for op in registered())
    token = _EXPORTING.set(True)
    try:
        if forget:
            jax.clear_caches()  # type: ignore[no-untyped-call]  # JAX leaves it untyped
        yield
    finally:
        _EXPORTING.reset(token)
        if forget:
            jax.clear_caches()  # type: ignore[no-untyped-call]  # JAX leaves it untyped


def register_op(name: str, *, gradient: Fn | None = None) -> Callable[[Fn], Op]:
    """Decorate a JAX function as an op: a composition, which needs nothing where a bundle with it runs.

    Args:
        name: `namespace.name`.
        gradient: In place of JAX's own: `gradient(arguments, result, cotangent, **settings)` gives the cotangents of
            the arguments, as a tuple. Forward-mode differentiation is not possible with it.

    Raises:
        InputError: The name is not an op's name, or taken.
    """

    def decorate(fn: Fn) -> Op:
        call = fn if gradient is None else _differentiable(name, fn, gradient)
        shape = partial(_traced_shape, fn)
        return register(
            Op(name, {"default": fn}, call, shape, export="inline", gradient=gradient, defined=_defined(fn))
        )

    return decorate


def pallas_op(
    name: str, *, plain: Fn, platforms: Sequence[str] = ("tpu",), gradient: Fn | None = None
) -> Callable[[Fn], Op]:
    """Decorate a function that calls a Pallas kernel: `kernel(*arrays, interpret, **settings)`.

    On a CPU the kernel is interpreted, on `platforms` it is compiled, elsewhere `plain` runs. A bundle holds `plain`
    wherever it runs: Pallas takes no symbolic batch, and compiled kernels of an untrusted bundle are not run.

    Args:
        name: `namespace.name`.
        plain: The same in plain JAX; its gradient is the op's, and its result gives the op's shape and dtype.
        platforms: JAX platforms that the kernel compiles for.
        gradient: As in `register_op`, in place of `plain`'s.

    Raises:
        InputError: The name is not an op's name, or taken.
    """

    def decorate(fn: Fn) -> Op:
        kernels: dict[str, Fn] = {
            "cpu": partial(fn, interpret=True),
            **{platform: partial(fn, interpret=False) for platform in platforms},
        }
        chosen = _by_platform(kernels, plain)

        def run(*arrays: Any, **settings: Any) -> Any:
            return (plain if _EXPORTING.get() else chosen)(*arrays, **settings)

        backward = gradient or _gradient_of(plain)
        call = _differentiable(name, run, backward)
        every: dict[str, Fn] = {**kernels, "default": plain}
        shape = partial(_traced_shape, plain)
        return register(Op(name, every, call, shape, export="inline", gradient=backward, defined=_defined(fn)))

    return decorate


def ffi_op(
    name: str,
    kernels: Mapping[str, Native],
    *,
    plain: Fn | None = None,
    shape: Fn | None = None,
    gradient: Fn | None = None,
    vmap_method: str = "broadcast_all",
) -> Op:
    """Register a C++ kernel by `jax.ffi`: a custom call of the op's name, which bundles require the op's extension for.

    The kernel is native code that a bundle, perhaps untrusted, calls with whatever shapes and attributes it says:
    it has to compare sizes itself and return an error, before it writes.

    Args:
        name: `namespace.name`, of a namespace that the calling module's distribution or `use` declares.
        kernels: JAX platform → kernel.
        plain: The same in JAX, for other platforms, for the gradient, and for the shape.
        shape: The shape rule, `shape(*arrays, **settings)` → `jax.ShapeDtypeStruct` or a tuple of them; by default that
            of `plain`. Dimensions may be symbolic.
        gradient: As in `register_op`; by default that of `plain`, else there is none.
        vmap_method: How `jax.vmap` treats it, as in `jax.ffi.ffi_call`. "broadcast_all": the kernel takes any number of
            leading dimensions; "sequential": it is called row by row.

    Returns:
        The op. Settings reach the kernel as attributes: float as float32, int as int64, bool and str as they are.

    Raises:
        InputError: Neither `plain` nor `shape` is given, a library cannot be used, the name is taken, or its namespace
            is another's.
    """
    module = str(sys._getframe(1).f_globals.get("__name__", ""))  # the caller's: a kernel of C++ has none itself
    extension = owner(name, module)
    rule = shape if plain is None or shape is not None else partial(_traced_shape, plain)
    if rule is None:
        raise InputError(f"op {name!r} has no shape rule", fix="give plain= or shape=", where=caller())
    if not kernels:
        raise InputError(f"op {name!r} has no kernel", fix='give kernels={"cpu": Native(…)}', where=caller())

    def target(*arrays: Any, **settings: Any) -> Any:
        attributes = {key: _attribute(name, key, value) for key, value in settings.items()}
        results, tree = jax.tree.flatten(rule(*arrays, **settings))
        outputs = jax.ffi.ffi_call(name, results, vmap_method=vmap_method)
        return jax.tree.unflatten(tree, outputs(*arrays, **attributes))

    by_platform: dict[str, Fn] = dict.fromkeys(kernels, target)
    run = target if plain is None else _by_platform(by_platform, plain)
    backward = gradient or (None if plain is None else _gradient_of(plain))
    every: dict[str, Fn] = by_platform if plain is None else {**by_platform, "default": plain}
    symbols = ",".join(f"{platform}={native.library}:{native.symbol}" for platform, native in sorted(kernels.items()))
    for platform, native in kernels.items():
        register_target(name, native, platform)
    call, defined = _differentiable(name, run, backward), f"{module}:{symbols}"
    return register(Op(name, every, call, rule, export="call", gradient=backward, extension=extension, defined=defined))


def _by_platform(kernels: Mapping[str, Fn], plain: Fn) -> Fn:
    def run(*arrays: Any, **settings: Any) -> Any:
        bound = {platform: partial(kernel, **settings) for platform, kernel in kernels.items()}
        return jax.lax.platform_dependent(*arrays, default=partial(plain, **settings), **bound)

    return run


def _gradient_of(plain: Fn) -> Fn:
    def gradient(arguments: Sequence[Any], _: Any, cotangent: Any, **settings: Any) -> tuple[Any, ...]:
        return tuple(jax.vjp(partial(plain, **settings), *arguments)[1](cotangent))

    return gradient


def _differentiable(name: str, run: Fn, gradient: Fn | None) -> Fn:
    """A function of arrays and settings, with the gradient as JAX's reverse-mode rule."""

    def call(*arguments: Any, **settings: Any) -> Any:
        for key, value in settings.items():
            if isinstance(value, (jax.Array, Column)):
                raise InputError(
                    f"op {name!r}: {key} is an array, and settings are constants", fix="give a number", where=caller()
                )

        @jax.custom_vjp
        def op(*arrays: Any) -> Any:
            return run(*arrays, **settings)

        def forward(*arrays: Any) -> Any:
            if gradient is None:
                raise InputError(f"op {name!r} has no gradient", fix="register it with gradient= or plain=")
            # `op`, not `run`: a second derivative then goes through this rule too, not into the kernel.
            result = op(*arrays)
            return result, (arrays, result)

        def backward(kept: Any, cotangent: Any) -> Any:
            assert gradient is not None
            cotangents = gradient(*kept, cotangent, **settings)
            if not isinstance(cotangents, tuple) or len(cotangents) != len(arguments):
                raise InputError(
                    f"the gradient of op {name!r} gave {type(cotangents).__name__}",
                    fix=f"return a tuple with a cotangent for each of the {len(arguments)} arguments",
                )
            return cotangents

        op.defvjp(forward, backward)
        return op(*(value.__jax_array__() if isinstance(value, Column) else jnp.asarray(value) for value in arguments))

    return call


def _attribute(name: str, key: str, value: Any) -> Any:
    if isinstance(value, (bool, str)):
        return value
    if isinstance(value, (int, float)):
        return np.int64(value) if isinstance(value, int) else np.float32(value)
    if isinstance(value, (np.generic, np.ndarray)):
        return value
    raise InputError(
        f"op {name!r}: {key} is {type(value).__name__}, which no kernel takes",
        fix="give a number or text",
        where=caller(),
    )


def _traced_shape(fn: Fn, *arrays: Any, **settings: Any) -> Any:
    return jax.eval_shape(partial(fn, **settings), *arrays)


def _defined(fn: Fn) -> str:
    return f"{getattr(fn, '__module__', '')}:{getattr(fn, '__qualname__', fn)}"
