"""Ragged: the pytree. Flat values in a power-of-two bucket, and the row that each of them belongs to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...errors import InputError
from .rows import SMALLEST, bucket

Array = Any  # a JAX array, a numpy array or a tracer


def _operand(ragged: Ragged, other: Any) -> Array:  # Any: what a user writes beside an operator
    """The other side of an operator, to broadcast against the values."""
    if isinstance(other, Ragged):
        same_rows(ragged, other, "arithmetic")
        return other.safe_values
    if not hasattr(other, "shape"):
        return other
    if other.shape == ():
        return other
    if other.shape[0] != ragged.rows:
        raise InputError(
            f"{ragged!r} with an array of shape {list(other.shape)}",
            fix=f"give a number, or one value per row: [{ragged.rows}, …]",
        )
    spread = ragged.spread(other)
    return column(spread, max(spread.ndim, jnp.ndim(ragged.values)))


def _operator(fn: Callable[[Array, Array], Array], *, swap: bool = False) -> Callable[[Ragged, Any], Ragged]:
    def apply(self: Ragged, other: Any) -> Ragged:
        if isinstance(other, (str, list, tuple, dict)) or other is None:
            return NotImplemented  # type: ignore[no-any-return]  # what Python wants here
        beside = _operand(self, other)
        return self.map_values(lambda values: fn(beside, values) if swap else fn(values, beside))

    return apply


@partial(jax.tree_util.register_dataclass, data_fields=("values", "segment_ids"), meta_fields=("rows",))
@dataclass(frozen=True, eq=False)
class Ragged:
    """A variable number of values per row.

    The values of all rows stand one after the other, in the order of the rows, and empty slots behind them fill the
    array up to its capacity: a power of two, so that a program that is compiled per shape is compiled at most log2(n)
    times for up to n values. What stands in an empty slot is arbitrary; functions over `Ragged` never let it reach a
    result or a gradient.

    Attributes:
        values: [capacity, *value shape].
        segment_ids: int32 [capacity]: the row of each value, never falling; the number of rows for an empty slot.
        rows: How many rows there are, those without values included; static under `jax.jit`.
    """

    values: Array
    segment_ids: Array
    rows: int

    @property
    def capacity(self) -> int:
        """Slots, empty ones included."""
        return int(self.segment_ids.shape[0])

    @property
    def mask(self) -> Array:
        """Bool [capacity]: which slots hold a value."""
        return jnp.asarray(self.segment_ids) < self.rows

    @property
    def lengths(self) -> Array:
        """int32 [rows]: values per row."""
        zeros = jnp.zeros(self.rows, jnp.int32)
        return zeros.at[self.segment_ids].add(1, mode="drop", indices_are_sorted=True)

    @property
    def row_splits(self) -> Array:
        """int32 [rows + 1]: where each row begins and the last one ends."""
        return jnp.concatenate([jnp.zeros(1, jnp.int32), jnp.cumsum(self.lengths, dtype=jnp.int32)])

    @property
    def positions(self) -> Array:
        """int32 [capacity]: the place of each value in its row, from 0 on; arbitrary in empty slots."""
        lengths = self.lengths
        return jnp.arange(self.segment_ids.shape[0], dtype=jnp.int32) - self.spread(jnp.cumsum(lengths) - lengths)

    def map_values(self, fn: Callable[[Array], Array]) -> Ragged:
        """The same rows with `fn(values)` for values, [capacity, *any shape].

        Empty slots are given to `fn` as 1 (integers and booleans as 0), so that one which is infinite or undefined at
        0 (log, a reciprocal) spoils no gradient.

        Raises:
            InputError: `fn` gives something else than one value per value.
        """
        mapped = fn(self.safe_values)
        if not getattr(mapped, "shape", ()) or mapped.shape[0] != self.segment_ids.shape[0]:
            shape = getattr(mapped, "shape", type(mapped).__name__)
            raise InputError(
                f"map_values: the function gave {shape} for {self.segment_ids.shape[0]} values",
                fix="give one value per value, [capacity, …]",
            )
        return replace(self, values=mapped)

    @property
    def safe_values(self) -> Array:
        """The values with 1 (integers and booleans 0) in empty slots, through which no gradient passes."""
        values = jnp.asarray(self.values)
        filler = jnp.asarray(jnp.issubdtype(values.dtype, jnp.inexact), values.dtype)
        return jnp.where(column(self.mask, values.ndim), values, filler)

    def spread(self, per_row: Array) -> Array:
        """What stands per row, [rows, ...], beside each of the row's values: [capacity, ...], zeros in empty slots."""
        array = jnp.asarray(per_row)
        if self.rows == 0:  # nothing to gather from, which JAX refuses
            return jnp.zeros((*self.segment_ids.shape, *array.shape[1:]), array.dtype)
        return array.at[self.segment_ids].get(mode="fill", fill_value=0, indices_are_sorted=True)

    def __getitem__(self, rows: slice) -> Ragged:
        """A slice of the rows, in the same capacity; the slice is static.

        Raises:
            InputError: It is an index of something else: one row's length would not be static.
        """
        if not isinstance(rows, slice):
            raise InputError(
                f"a Ragged is indexed by {rows!r:.60}", fix="take a slice, r[3:4], or ragged.to_dense(r, width)[3]"
            )
        places = np.arange(self.rows)[rows]
        # Values of rows outside of the slice become empty slots, which the sort puts behind the others.
        renumbered = np.full(self.rows + 1, len(places), np.int32)
        renumbered[places] = np.arange(len(places))
        return in_row_order(self.values, jnp.asarray(renumbered)[self.segment_ids], len(places))

    # Ragged beside Ragged of the same rows, a number, or an array with something per row.
    __add__, __radd__ = _operator(jnp.add), _operator(jnp.add, swap=True)
    __sub__, __rsub__ = _operator(jnp.subtract), _operator(jnp.subtract, swap=True)
    __mul__, __rmul__ = _operator(jnp.multiply), _operator(jnp.multiply, swap=True)
    __truediv__, __rtruediv__ = _operator(jnp.true_divide), _operator(jnp.true_divide, swap=True)
    __floordiv__, __rfloordiv__ = _operator(jnp.floor_divide), _operator(jnp.floor_divide, swap=True)
    __mod__, __rmod__ = _operator(jnp.mod), _operator(jnp.mod, swap=True)
    __pow__, __rpow__ = _operator(jnp.power), _operator(jnp.power, swap=True)
    __and__, __rand__ = _operator(jnp.bitwise_and), _operator(jnp.bitwise_and, swap=True)
    __or__, __ror__ = _operator(jnp.bitwise_or), _operator(jnp.bitwise_or, swap=True)
    __xor__, __rxor__ = _operator(jnp.bitwise_xor), _operator(jnp.bitwise_xor, swap=True)
    __lt__, __le__ = _operator(jnp.less), _operator(jnp.less_equal)
    __gt__, __ge__ = _operator(jnp.greater), _operator(jnp.greater_equal)
    __array_ufunc__ = None  # numpy, on the left of an operator, leaves it to the methods above

    def __neg__(self) -> Ragged:
        return self.map_values(jnp.negative)

    def __abs__(self) -> Ragged:
        return self.map_values(jnp.abs)

    def __invert__(self) -> Ragged:
        return self.map_values(jnp.logical_not if self.values.dtype == bool else jnp.invert)

    def __repr__(self) -> str:
        dims = ",".join(map(str, jnp.shape(self.values)[1:]))
        of = f" of [{dims}]" if dims else ""
        return f"Ragged({self.rows} rows, {self.values.dtype}{of}, capacity {self.segment_ids.shape[0]})"


def column(per_value: Array, ndim: int) -> Array:
    """[n] as [n, 1, ...] of `ndim` dimensions, to broadcast against values."""
    return per_value.reshape(*per_value.shape, *(1,) * (ndim - per_value.ndim))


def same_rows(left: Ragged, right: Ragged, doing: str) -> None:
    """Raise InputError unless both have the same rows; of traced ones only the shapes can be compared."""
    equal = left.rows == right.rows and left.segment_ids.shape == right.segment_ids.shape
    traced = any(isinstance(side.segment_ids, jax.core.Tracer) for side in (left, right))
    if equal and not traced and left.segment_ids is not right.segment_ids:
        equal = np.array_equal(left.segment_ids, right.segment_ids)
    if not equal:
        raise InputError(
            f"{doing}: {left!r} and {right!r} have rows of different lengths", fix="make both of the same rows"
        )


def in_row_order(values: Array, segment_ids: Array, rows: int) -> Ragged:
    """Values and their rows in any order, `rows` for none; values of one row keep their order."""
    order = jnp.argsort(segment_ids, stable=True)
    return Ragged(jnp.asarray(values)[order], jnp.asarray(segment_ids, jnp.int32)[order], rows)


def concat(parts: Sequence[Ragged], *, within: bool = False) -> Ragged:
    """Several ragged arrays of one value shape as one.

    Args:
        parts: At least one.
        within: False puts the rows of one after those of the other; True joins the first rows of all to one row, the
            second rows, and so on.

    Returns:
        In the bucket that holds the sum of the capacities.

    Raises:
        InputError: There is none; or joined within rows they have different numbers of rows.
    """
    if not parts:
        raise InputError("concat of nothing", fix="give at least one Ragged")
    counts = [part.rows for part in parts]
    if within and any(count != counts[0] for count in counts):
        raise InputError(f"concat within rows: there are {counts} rows", fix="give parts with equally many rows")
    total = counts[0] if within else sum(counts)
    ids, before = [], 0
    for part in parts:
        ids.append(jnp.where(part.mask, jnp.asarray(part.segment_ids) + before, total))
        before += 0 if within else part.rows
    values = jnp.concatenate([jnp.asarray(part.values) for part in parts])
    row_of = jnp.concatenate(ids)
    spare = bucket(len(row_of), SMALLEST) - len(row_of)
    values = jnp.pad(values, [(0, spare)] + [(0, 0)] * (values.ndim - 1))
    return in_row_order(values, jnp.pad(row_of, (0, spare), constant_values=total), total)
