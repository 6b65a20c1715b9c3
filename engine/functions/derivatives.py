"""Derivatives of functions: gradients of one's own, Jacobians, Hessians and their products with a vector."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from ...errors import InputError
from .._caller import caller
from .autograph import CONVERTING, convert
from .values import Spec

Tree = Any  # a tree of arrays, the user's
Fn = Callable[..., Tree]


def custom_gradient(fn: Fn) -> Fn:
    """Give a function a gradient of one's own; a decorator.

    Args:
        fn: Returns `(y, grad)`; `grad` takes the gradient of y and returns that of each argument, a tuple where there
            are several; None where the argument has none. What `grad` reads of the computation is kept for the way
            back.

    Returns:
        A function that returns y. Higher derivatives go through `grad`.

    Raises:
        InputError: When it is called or differentiated: `fn` returns something else, or `grad` gives another number
            of gradients, or shapes that are not those of the arguments.
    """

    @functools.wraps(fn)
    def run(*args: Tree, **kwargs: Any) -> Tree:  # Any: passed on to fn as they are
        converting = CONVERTING.get()
        inner = convert(fn) if converting else fn

        @jax.custom_gradient  # type: ignore[untyped-decorator]  # JAX types it not
        def pair(*args: Tree) -> tuple[Tree, Callable[[Tree], Tree]]:
            returned = inner(*args, **kwargs)
            if not (isinstance(returned, tuple) and len(returned) == 2 and callable(returned[1])):
                raise InputError(
                    f"{_name(fn)} must return (y, grad) and returns {type(returned).__name__}",
                    fix="return y, grad",
                    where=_defined(fn),
                )
            value, back = returned
            back = convert(back) if converting else back  # it runs later, when nothing converts any more

            def checked(weight: Tree) -> Tree:
                parts = back(weight)
                shape: Any = jax.tree.structure(parts)  # JAX types no comparison of PyTreeDefs
                if len(args) == 1 and shape == jax.tree.structure(args[0]):
                    parts = (parts,)
                parts = list(parts) if isinstance(parts, (tuple, list)) else [parts]
                none = [index for index, part in enumerate(parts[: len(args)]) if part is None]
                for index in none:
                    parts[index] = jax.tree.map(jnp.zeros_like, args[index])
                _check_parts(fn, tuple(parts), args)
                return parts[0] if len(args) == 1 else tuple(parts)

            return value, checked

        return pair(*args)

    return run


def _check_parts(fn: Fn, parts: tuple[Tree, ...], args: tuple[Tree, ...]) -> None:
    if len(parts) != len(args):
        raise InputError(
            f"the gradient of {_name(fn)} gives {len(parts)} values for {len(args)} arguments",
            fix="give one for each argument",
            where=_defined(fn),
        )
    for index, (part, arg) in enumerate(zip(parts, args, strict=True)):
        shapes = [[Spec.of(leaf).shape for leaf in jax.tree.leaves(tree)] for tree in (part, arg)]
        if shapes[0] != shapes[1]:
            raise InputError(
                f"the gradient of {_name(fn)} for argument {index} has shapes {shapes[0]}, the argument {shapes[1]}",
                fix="give it the shape of the argument",
                where=_defined(fn),
            )


def _name(fn: Fn) -> str:
    return getattr(fn, "__name__", type(fn).__name__)


def _defined(fn: Fn) -> str | None:
    code = getattr(fn, "__code__", None)
    return caller() if code is None else f"{code.co_filename}:{code.co_firstlineno}"


def jacobian(fn: Fn, argnums: int | Sequence[int] = 0) -> Fn:
    """The function that gives the Jacobian.

    Args:
        fn: From arrays to arrays.
        argnums: By which arguments.

    Returns:
        A function of the same arguments; for an output of shape s and an argument of shape t an array of shape s + t,
        in the structure of the output and, for several argnums, a tuple. Forward mode where the output has at least
        as many elements as the arguments and there is such a mode, else reverse mode; both give the same numbers.
    """
    chosen = (argnums,) if isinstance(argnums, int) else tuple(argnums)

    def run(*args: Tree, **kwargs: Any) -> Tree:  # Any: passed on as they are
        input_elements = sum(_elements(args[argnum]) for argnum in chosen)
        output_elements = _elements(jax.eval_shape(functools.partial(fn, **kwargs), *args))
        backward = jax.jacrev(fn, argnums)
        # Forward mode takes a pass for each element of the input, reverse mode one for each of the output.
        forward = output_elements >= input_elements
        return (_first(jax.jacfwd(fn, argnums), backward) if forward else backward)(*args, **kwargs)

    return run


def hessian(fn: Fn, argnums: int | Sequence[int] = 0) -> Fn:
    """The function that gives the Hessian: for an argument of shape t an array of shape t + t.

    Returns:
        A function of the same arguments, by forward over reverse mode.
    """
    return jax.hessian(fn, argnums)


def _first(forward: Fn, backward: Fn) -> Fn:
    """`forward`; `backward` where a gradient of one's own, or an unknown batch, has no forward mode."""

    def run(*args: Tree, **kwargs: Any) -> Tree:  # Any: passed on as they are
        try:
            return forward(*args, **kwargs)
        except TypeError as error:
            if "forward-mode" not in str(error):
                raise
        return backward(*args, **kwargs)

    return run


def hvp(fn: Fn, args: Sequence[Tree], vectors: Sequence[Tree]) -> Tree:
    """The Hessian of a scalar function times a vector, without the Hessian: the derivative of the gradient along it.

    Args:
        fn: From arrays to a scalar.
        args: Where, one for each argument.
        vectors: Along what, in the structure and shapes of `args`.

    Returns:
        The product, a tuple in the structure of `args`; the first of it where there is one argument.

    Raises:
        InputError: The vectors do not fit the arguments, or the function is not scalar.
    """
    shapes = [[jnp.shape(leaf) for leaf in jax.tree.leaves(tree)] for tree in (tuple(args), tuple(vectors))]
    if shapes[0] != shapes[1]:
        raise InputError(
            f"the vectors have shapes {shapes[1]}, the arguments {shapes[0]}",
            fix="give a vector for each argument, of its shape",
            where=caller(),
        )
    _scalar(jax.eval_shape(fn, *args), fn)
    primals, tangents = tuple(args), tuple(vectors)
    slope = jax.grad(fn, tuple(range(len(primals))))
    product = _first(
        lambda: jax.jvp(slope, primals, tangents)[1],
        lambda: jax.vjp(slope, *primals)[1](tangents),  # the Hessian is symmetric
    )()
    return product[0] if len(primals) == 1 else product


def value_and_gradient(fn: Fn, argnums: int | Sequence[int] = 0, *, has_aux: bool = False) -> Fn:
    """The function that gives a scalar function's value and gradient in one pass.

    Args:
        fn: From arrays to a scalar, or with `has_aux` to (scalar, anything).
        argnums: By which arguments.
        has_aux: Whether there is more than the scalar.

    Returns:
        A function of the same arguments that gives (what fn gives, the gradient; a tuple for several argnums).

    Raises:
        InputError: When it is called: the function is not scalar.
    """
    both = jax.value_and_grad(fn, argnums, has_aux=has_aux)

    @functools.wraps(fn)
    def run(*args: Tree, **kwargs: Any) -> Tree:  # Any: passed on as they are
        try:
            return both(*args, **kwargs)
        except TypeError:
            results = jax.eval_shape(functools.partial(fn, **kwargs), *args)
            _scalar(results[0] if has_aux else results, fn)
            raise

    return run


def _scalar(results: Tree, fn: Fn) -> None:
    leaves = jax.tree.leaves(results)
    if len(leaves) != 1 or leaves[0].shape != () or not jnp.issubdtype(leaves[0].dtype, jnp.inexact):
        shown = ", ".join(f"{leaf.dtype}{list(leaf.shape)}" for leaf in leaves)
        raise InputError(
            f"{_name(fn)} gives {shown or 'nothing'}, and only a floating scalar has a gradient",
            fix="sum or average it, or take jacobian",
            where=caller(),
        )


def _elements(tree: Tree) -> int:
    return sum(math.prod(jnp.shape(leaf)) for leaf in jax.tree.leaves(tree))
