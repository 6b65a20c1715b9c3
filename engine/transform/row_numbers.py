"""Row numbers inside a jaxpr: which integers say no more than whose a value is, so that picking by them mixes no rows.

`v[jnp.arange(n), i]` picks rows by their own numbers, and what `engine.ragged` computes of lists (row numbers of
values, where a row begins) belongs to the same rows. Any other integers may name any row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ..tracing.equations import scan_operands

LISTS: Final = "lists"
"""The mark of integers that say how lists are laid out; the mark of a row's own number is the size of its axis."""

_WRAPPED: Final = "wrapped"  # the mark of integers to which a size was added: negative ones name a row from the end
_WRAPS: Final = ("add", "concatenate", "select_n")
_KEEPS: Final = ("broadcast_in_dim", "convert_element_type", "copy", "expand_dims", "reshape", "squeeze")


@dataclass(frozen=True)
class _RowCount:
    """The mark of the number of rows: its one harmless use is to wrap a negative index around."""

    dim: Any  # a symbolic dimension


Mark = Any  # LISTS, _WRAPPED, a _RowCount, a symbolic dimension, or None
Equation = Any  # jax.extend.core.JaxprEqn


class RowNumbers:
    """The marks of a jaxpr's variables and of those that it calls: one each, or one per column of the last axis."""

    def __init__(self) -> None:
        self._marks: dict[int, tuple[Mark, ...]] = {}

    def mark_of(self, atom: Any, column: int = 0) -> Mark:  # Any: a variable or a literal
        """The mark of a variable, in that column of its last axis."""
        marks = self._marks.get(id(atom), (None,))
        return marks[0] if len(marks) == 1 else marks[column]

    def carry_over(self, inner: Sequence[Any], outer: Sequence[Any]) -> None:
        """Give an inner jaxpr's variables the marks of the outer ones that they stand for; None has no mark."""
        marks = [self._marks.get(id(atom), (None,)) for atom in outer]
        self._marks.update((id(var), mark) for var, mark in zip(inner, marks, strict=True))

    def mark_outputs(self, equation: Equation, *, ours: bool) -> None:
        """Mark an equation's results; `ours` where `engine.ragged` computes them from lists."""
        marks = self._marks_of(equation, ours=ours)
        for var in equation.outvars:
            self._marks[id(var)] = marks if _is_integer(var) else (None,)

    def reads_list_layout(self, equation: Equation) -> bool:
        """Whether all that an equation reads of rows says how values are laid out in lists."""
        read = [atom for atom in equation.invars if rows_of(atom.aval)]
        return bool(read) and all(self._marks.get(id(atom)) == (LISTS,) for atom in read)

    def is_row_count(self, atom: Any) -> bool:  # Any: a variable or a literal
        """Whether a variable is the number of rows, or an index to which it was added."""
        marks = self._marks.get(id(atom), ())
        return any(mark is _WRAPPED or isinstance(mark, _RowCount) for mark in marks)

    def computes_with_row_count(self, equation: Equation) -> bool:
        """Whether an equation uses the number of rows for anything but wrapping an index around."""
        if not any(map(self.is_row_count, equation.invars)):
            return False
        wraps = equation.primitive.name in (*_KEEPS, *_WRAPS)
        return not (wraps and all(map(_is_integer, equation.outvars)))

    def _marks_of(self, equation: Equation, *, ours: bool) -> tuple[Mark, ...]:
        name, params, arguments = equation.primitive.name, equation.params, equation.invars
        if ours or self.reads_list_layout(equation):
            return (LISTS,)
        if name == "dim_as_value":
            return (_RowCount(params["dim"]),)
        if name == "iota":
            # 0, 1, … along an axis of unknown size are the numbers of its rows; along a fixed one they are just
            # integers.
            size = params["shape"][params["dimension"]]
            return (None if isinstance(size, int) else size,)
        if name in _KEEPS:
            kept = self._marks.get(id(arguments[0]), (None,))
            return kept if len(kept) == 1 else (None,)
        # Indexing by several arrays joins them on the last axis, a column for each axis that is indexed: each keeps its
        # mark.
        if name == "concatenate" and params["dimension"] == len(equation.outvars[0].aval.shape) - 1:
            return self._concatenated(arguments)
        if name in ("add", "mul"):
            return (self._after_arithmetic(arguments, neutral=0 if name == "add" else 1),)
        if name == "select_n":
            # JAX wraps negative indices by choosing between i and i + n: both are the same row, or it is no row number.
            first, *others = (self.mark_of(atom) for atom in arguments[1:])
            return (first if all(_same_mark(first, other) for other in others) else None,)
        return (None,)

    def _concatenated(self, parts: Sequence[Any]) -> tuple[Mark, ...]:
        marks: list[Mark] = []
        for part in parts:
            width = part.aval.shape[-1]
            if not isinstance(width, int):
                return (None,)
            marks += [self.mark_of(part, column) for column in range(width)]
        return tuple(marks) or (None,)

    def _after_arithmetic(self, factors: Sequence[Any], *, neutral: int) -> Mark:
        """The mark of row numbers after an addition or a product.

        They stay row numbers where the number of rows is added, as JAX does to wrap negative indices around, or where
        the other operand is neutral. Other integers to which the number of rows is added are marked as wrapped.
        """
        for number, other in (factors, factors[::-1]):
            mark = self.mark_of(number)
            size = self.mark_of(other)
            if mark is not None and not isinstance(mark, _RowCount):
                value = getattr(other, "val", None)
                wraps = isinstance(size, _RowCount) and (mark is LISTS or mark == size.dim)
                if (value is not None and int(value) == neutral) or (neutral == 0 and wraps):
                    return mark
            elif isinstance(size, _RowCount):
                return _WRAPPED
        return None


def rows_of(aval: Any) -> tuple[int, ...]:  # Any: a JAX aval
    """The axes that stand for rows, or for the values of all rows: those of no fixed size."""
    shape = getattr(aval, "shape", ())
    return tuple(axis for axis, size in enumerate(shape) if not isinstance(size, int))


def _is_integer(var: Any) -> bool:
    return getattr(getattr(var.aval, "dtype", None), "kind", "") in "iub"


def _same_mark(left: Mark, right: Mark) -> bool:
    return left is right or (left is not None and right is not None and bool(left == right))


def operands(equation: Equation, count: int) -> Sequence[Any]:
    """The outer variables that an inner jaxpr's inputs stand for; None for what changes from step to step of a loop."""
    name, params, arguments = equation.primitive.name, equation.params, list(equation.invars)
    if name == "cond":
        arguments = arguments[1:]
    elif name in ("scan", "while"):
        arguments = _loop_constants(name, params, arguments)
        arguments += [None] * (count - len(arguments))
    return arguments if len(arguments) == count else [None] * count


def _loop_constants(name: str, params: Mapping[str, Any], arguments: list[Any]) -> list[Any]:
    if name == "scan":
        return arguments[: scan_operands(params)[0]]
    first = params["cond_nconsts"]
    return arguments[first : first + params["body_nconsts"]]
