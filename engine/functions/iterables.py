"""What a for loop of the graph runs over: the rows of tensors, or a range whose bounds are tensors."""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from ...errors import InputError
from .._caller import caller
from .values import is_traced


@dataclass(frozen=True)
class Steps:
    """A range with a tensor among its bounds."""

    start: Any  # integers, Python's or traced
    stop: Any
    step: Any

    @property
    def count(self) -> Any:  # Any: a traced integer
        """How many steps there are: ceil((stop − start) / step), at least 0."""
        up = jnp.asarray(self.step) > 0
        span = jnp.where(up, self.stop - self.start, self.start - self.stop)
        size = jnp.abs(self.step)
        return jnp.maximum(0, (span + size - 1) // size).astype(jnp.int32)

    def at(self, index: Any) -> Any:  # Any: a traced integer
        """The value of the loop variable at a step, counted from 0."""
        return (self.start + index * self.step).astype(self.struct().dtype)

    def struct(self) -> jax.ShapeDtypeStruct:
        """Shape and dtype of the loop variable."""
        dtype = jnp.result_type(self.start, self.stop, self.step)
        return jax.ShapeDtypeStruct((), dtype)  # type: ignore[no-untyped-call]  # JAX types no struct

    def __iter__(self) -> Iterator[Any]:
        raise InputError(
            "a range with a tensor as its bound has no Python iterator here",
            fix="write it as `for i in range(n):` in a converted function",
            where=caller(),
        )


@dataclass(frozen=True)
class Rows:
    """The rows of a tree of tensors with one leading dimension."""

    leaves: list[Any]  # JAX arrays
    tree: Any  # a PyTreeDef
    length: int  # or a symbolic dimension
    first: range | None = None

    @classmethod
    def of(cls, value: Any) -> Rows:  # Any: a tree of arrays of one leading length
        """The rows of a tree of arrays, whose first dimensions are equal."""
        leaves, tree = jax.tree.flatten(value)
        return cls(leaves, tree, leaves[0].shape[0])

    @classmethod
    def of_range(cls, items: range) -> Rows:
        """The indices of a range, as tensors that give way like Python's numbers."""
        leaves, tree = jax.tree.flatten(jnp.arange(items.start, items.stop, items.step))
        return cls(leaves, tree, len(items), items)

    def structs(self) -> list[jax.ShapeDtypeStruct]:
        """What the leaves of one row are."""
        weak = self.first is not None  # an index of Python's gives way, like the number it stands for
        return [
            jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype, weak_type=weak)  # type: ignore[no-untyped-call]
            for leaf in self.leaves
        ]

    def rebuilt(self, leaves: list[Any]) -> Any:  # Any: one row
        """One row, put together from its leaves."""
        return jax.tree.unflatten(self.tree, leaves)

    def row(self, index: Any) -> Any:  # Any: an integer, Python's or traced; one row
        """The row at an index, which may be traced: a tree of arrays without the first dimension."""
        return self.rebuilt([leaf[index] for leaf in self.leaves])

    def __iter__(self) -> Iterator[Any]:
        return (self.row(index) for index in builtins.range(self.length))

    def __len__(self) -> int:
        return self.length


def staged(items: Any) -> Rows | Steps | None:  # Any: what the user iterates over
    """What a loop of the graph runs over; None where Python iterates."""
    if isinstance(items, (Rows, Steps)):
        return items
    if isinstance(items, jax.Array) and items.ndim:
        return Rows.of(items)
    return None


def range_(*bounds: Any) -> Any:  # Any: integers; a range or Steps
    """`range`: Python's own for numbers, `Steps` where one of the bounds is a tensor."""
    bounds = tuple(jnp.asarray(bound) if jax.export.is_symbolic_dim(bound) else bound for bound in bounds)
    if not any(is_traced(bound) for bound in bounds):
        return builtins.range(*bounds)
    for bound in bounds:
        if is_traced(bound) and (bound.ndim or not jnp.issubdtype(bound.dtype, jnp.integer)):
            raise InputError(
                f"range takes whole numbers and was given {bound.dtype}{list(bound.shape)}",
                fix="cast it: n.astype('int32')",
                where=caller(),
            )
    start, stop, step = (0, bounds[0], 1) if len(bounds) == 1 else (*bounds, 1)[:3]
    return Steps(start, stop, step)


def enumerate_(items: Any, start: Any = 0) -> Any:  # Any: what the user iterates over
    """`enumerate`: Python's own, or rows of (int32 index, row) where a tensor is iterated over."""
    over = staged(items)
    if not isinstance(over, Rows):
        return builtins.enumerate(items, start)
    return Rows.of((jnp.arange(over.length, dtype=jnp.int32) + start, _tree(over)))


def zip_(*items: Any, strict: bool = False) -> Any:  # Any: as above
    """`zip` that takes tensors; ranges and numpy arrays beside them become tensors."""
    over = [staged(jnp.arange(item.start, item.stop, item.step) if isinstance(item, range) else item) for item in items]
    if not any(isinstance(staged(item), Rows) for item in items) or not all(isinstance(each, Rows) for each in over):
        return builtins.zip(*items, strict=strict)
    rows = [each for each in over if isinstance(each, Rows)]
    lengths = sorted({each.length for each in rows})
    if strict and len(lengths) > 1:
        raise ValueError(f"zip() arguments have lengths {lengths}")
    return Rows.of(tuple(jax.tree.map(lambda leaf: leaf[: lengths[0]], _tree(each)) for each in rows))


def _tree(over: Rows) -> Any:  # Any: a tree of arrays
    return jax.tree.unflatten(over.tree, over.leaves)
