"""Precision policies: in which type a training step computes, and how losses are scaled where it is a narrow one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import jax
import jax.numpy as jnp

from ...errors import InputError, suggest

_FIRST_SCALE: Final = 2.0**15
_LARGEST_SCALE: Final = 2.0**24
_GROW_AFTER: Final = 2000
"""Steps without an overflow after which the scale doubles; the constants of Micikevicius et al., 2018."""


@dataclass(frozen=True)
class Precision:
    """What a training step computes in; parameters, optimizer, loss and sums are of float32 in every policy.

    Attributes:
        name: What a user calls it.
        compute: The dtype of parameters and features inside the model.
        scaled: Whether the loss is multiplied before its gradient is taken, so that small gradients do not become 0
            (Micikevicius et al., "Mixed Precision Training", 2018): by a factor that halves when a gradient overflows.
    """

    name: str
    compute: Any
    scaled: bool = False

    def cast(self, tree: Any) -> Any:
        """A pytree whose floating arrays are of the computing type."""
        return _cast(tree, self.compute)

    def first_scale(self) -> dict[str, jax.Array]:
        """The scale before the first step, and how many steps it has gone without an overflow."""
        return {"factor": jnp.float32(_FIRST_SCALE), "steps": jnp.int32(0)}

    def next_scale(self, scale: dict[str, jax.Array], finite: jax.Array) -> dict[str, jax.Array]:
        """The scale after a step whose gradients were all finite, or were not."""
        steps = jnp.where(finite, scale["steps"] + 1, 0)
        grows = steps >= _GROW_AFTER
        factor = scale["factor"] * jnp.where(finite, jnp.where(grows, 2.0, 1.0), 0.5)
        return {"factor": jnp.clip(factor, 1.0, _LARGEST_SCALE), "steps": jnp.where(grows, 0, steps)}


def _cast(tree: Any, dtype: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf.astype(dtype) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf, tree)


def in_float32(tree: Any) -> Any:
    """A pytree whose floating arrays are of float32."""
    return _cast(tree, jnp.float32)


PRECISIONS: Final = {
    policy.name: policy
    for policy in (
        Precision("float32", jnp.float32),
        Precision("bfloat16", jnp.bfloat16),
        Precision("float16", jnp.float16, scaled=True),
    )
}


def precision(name: str) -> Precision:
    """A policy by its name.

    Raises:
        InputError: There is none of that name.
    """
    if name not in PRECISIONS:
        raise InputError(f"there is no precision {name!r}", fix=suggest(name, list(PRECISIONS), "there are"))
    return PRECISIONS[name]
