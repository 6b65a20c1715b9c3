"""A training step of the user's: gradients that a function computes in place of `jax.grad` of the loss."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from ...errors import InputError
from .model import ModelState, Params

Gradients = Callable[[Params, ModelState, Mapping[str, jax.Array], jax.Array], tuple[jax.Array, Params, ModelState]]
"""Loss, gradients and the model's next state from parameters, state, batch (the label too) and the step's PRNG key."""


def checked_gradients(results: Any, params: Params, state: ModelState) -> tuple[jax.Array, Params, ModelState]:
    """What such a function returned, seen to be what the optimizer needs.

    Args:
        results: What it returned: the user's, anything.
        params: The parameters of which it was to give gradients.
        state: The model's state before the step.

    Returns:
        The loss, float32 []; gradients in the structure, shapes and dtypes of `params`; the next state in those of
        `state`.

    Raises:
        InputError: It is something else.
    """
    if not isinstance(results, tuple) or len(results) != 3:
        count = f"{len(results)} values" if isinstance(results, tuple) else f"a {type(results).__name__}"
        raise InputError(
            f"gradients= returned {count}, not three values",
            fix="return loss, gradients, state; the state is what came in, where the model has none of its own",
        )
    loss, gradients, following = results
    if jnp.shape(loss) != ():
        raise InputError(f"the loss of gradients= has shape {list(jnp.shape(loss))}, not a scalar", fix="take its mean")
    return jnp.asarray(loss, jnp.float32), _like("gradient", gradients, params), _like("state", following, state)


def _like(what: str, tree: Any, template: Any) -> Any:
    """A pytree with the dtypes of another, whose structure and shapes it must have."""
    shapes, wanted = _shapes(tree), _shapes(template)
    for name, shape in wanted.items():
        if name not in shapes:
            how = (
                "tape.gradient(…, unconnected='zero') gives zeros" if what == "gradient" else "return it as it came in"
            )
            raise InputError(f"gradients= returned no {what} of {name!r}", fix=how)
        if shapes[name] != shape:
            raise InputError(
                f"gradients= returned a {what} of {name!r} of shape {list(shapes[name])}, not {list(shape)}",
                fix="return it in the shape that came in",
            )
    structure: Any = jax.tree.structure(template)  # mypy: of a type without an equality
    if structure != jax.tree.structure(tree):
        raise InputError(
            f"gradients= returned a {what} of another structure: {jax.tree.structure(tree)}", fix=f"return {structure}"
        )
    return jax.tree.map(lambda leaf, before: jnp.asarray(leaf, before.dtype), tree, template)


def _shapes(tree: Any) -> dict[str, tuple[int, ...]]:
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {jax.tree_util.keystr(path, simple=True, separator="."): jnp.shape(leaf) for path, leaf in leaves}
