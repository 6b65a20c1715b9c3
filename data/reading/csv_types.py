"""What type a CSV column has: the first of one family that fits all its values, else text; settled block by block."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..arrays import arrow_of, texts

_FAMILIES: Final = (
    (pa.int64(), pa.float64()),
    (pa.bool_(),),
    (pa.date32(), pa.timestamp("ms"), pa.timestamp("us")),
    (pa.timestamp("ms", "UTC"), pa.timestamp("us", "UTC")),
)
_LONGEST: Final = 4096
_WHOLE: Final = r"^\s*[+-]?[0-9]+\s*$"
_TYPED: Final = r"^[-+.0-9]|^(?i:nan|inf|infinity|true|false)$"  # all that any type but text may hold, and more
_TRUTHS: Final = texts(["true", "false"])
_TRUE: Final = _TRUTHS[0]
_MISSING: Final = pa.nulls(1, pa.string())[0]
_PADDED: Final = r"^0[0-9]+(\.|\s*$)"
_ONE, _DIGITS = arrow_of(np.array([1, 16], np.int32))  # a whole number of fewer is a float64
_WORDS: Final = {
    "int": "a whole number",
    "double": "a number",
    "bool": "true or false",
    "date": "a date",
    "timestamp": "a time",
}


@dataclass
class ColumnTypeGuess:
    """The type that a column may have after the blocks seen so far: the join of the blocks' types, in any order.

    Attributes:
        declared: The type it must have, whatever it holds.
        odd: What made a column text that otherwise is of another type: the row (from 1), the cell, and what it is not.
        zeros: The first number that is written with zeros before it, of a numeric column: the row and the cell.
        long: The first whole number, up to 64 bits or beyond, that no float64 is equal to: the row and the cell.
    """

    declared: pa.DataType | None = None
    family: tuple[pa.DataType, ...] | None = None
    level: int = 0
    text: bool = False
    wide: bool = False  # a whole number beyond 64 bits
    broken: bool = False  # a number that is not whole
    odd: tuple[int, str, str] | None = None
    zeros: tuple[int, str] | None = None
    long: tuple[int, str] | None = None

    @property
    def type(self) -> pa.DataType:
        """The type after the blocks so far; null where no value was seen.

        Whole numbers beyond 64 bits, such as long identifiers, are text unless fractions say that they measure.
        """
        if self.declared is not None:
            return self.declared
        if self.text or (self.wide and not self.broken):
            return pa.string()
        return pa.null() if self.family is None else self.family[self.level]

    def see(self, column: pa.Array, nulls: tuple[str, ...], before: int) -> None:
        """Take in a block that begins after `before` rows.

        Raises:
            pa.ArrowInvalid: A value is not of the declared type.
        """
        if self.declared is not None:
            parse_cells(column, self.declared, nulls)
            return
        if self.text or column.null_count == len(column):
            return
        cells = _Cells(column, nulls)
        if self.family is None and cells.blank:
            return
        for family in [self.family] if self.family else _FAMILIES:
            for level in range(self.level if self.family else 0, len(family)):
                if cells.fit(family[level]):
                    self.family, self.level = family, level
                    if family is _FAMILIES[0]:
                        self._see_digits(cells, before)
                    if pa.types.is_floating(family[level]) and not self.broken:
                        self._see_whole(cells)
                    return
        self.text = True
        kind = self.family[-1] if self.family else cells.mostly
        if kind is not None:
            odd_row = cells.first_unfit(kind)
            self.odd = (before + odd_row + 1, column[odd_row].as_py(), _WORDS[re.split(r"\W|\d", str(kind))[0]])

    def _see_digits(self, cells: _Cells, before: int) -> None:
        column = cells.column
        if self.zeros is None:
            longer = pc.and_(pc.starts_with(column, pattern="0"), pc.greater(cells.lengths, _ONE))
            self.zeros = next(_rows(column, longer, _PADDED, before), None)
        if self.long is None and cells.longest >= _DIGITS.as_py():
            long_numbers = _rows(column, pc.greater_equal(cells.lengths, _DIGITS), _WHOLE, before)
            self.long = next(((row, cell) for row, cell in long_numbers if not _has_float64(cell)), None)

    def _see_whole(self, cells: _Cells) -> None:
        whole = cells.whole
        self.wide = self.wide or (whole > 0 and not cells.fit_whole)
        self.broken = self.broken or whole < len(cells.clean) - cells.clean.null_count


def _rows(column: pa.Array, mask: pa.Array, pattern: str, before: int) -> Iterator[tuple[int, str]]:
    """Row and cell of those that are marked and match a pattern."""
    marked_rows = pc.indices_nonzero(mask)
    cells = column.take(marked_rows)
    matching = pc.indices_nonzero(pc.match_substring_regex(cells, pattern))
    for match in matching.to_pylist():
        yield before + marked_rows[match].as_py() + 1, cells[match].as_py()


def _has_float64(whole: str) -> bool:
    """Whether a float64 is equal to a whole number; also where it is out of range, since 1e999 is infinite too."""
    try:
        return int(float(whole)) == int(whole)
    except (OverflowError, ValueError):
        return True


@dataclass
class _Cells:
    """A block of one column, and what it can be read as."""

    column: pa.Array
    nulls: tuple[str, ...]

    @cached_property
    def clean(self) -> pa.Array:
        return _cleaned(self.column, self.nulls)

    @cached_property
    def few(self) -> pa.Array:
        return self.column.drop_null().slice(0, 64)

    @cached_property
    def blank(self) -> bool:
        few = _cleaned(self.few, self.nulls)
        return few.null_count == len(few) and bool(self.clean.null_count == len(self.clean))

    @cached_property
    def whole(self) -> int:
        """How many values are written as whole numbers."""
        return int(pc.sum(pc.match_substring_regex(self.clean, _WHOLE)).as_py() or 0)

    @cached_property
    def fit_whole(self) -> bool:
        """Whether all that are written as whole numbers fit int64."""
        return _Cells(self.clean.filter(pc.match_substring_regex(self.clean, _WHOLE)), self.nulls).fit(pa.int64())

    @cached_property
    def mostly(self) -> pa.DataType | None:
        """The type of which more than half of the first values are, if they are not text."""
        values = self.clean.drop_null().slice(0, 64)
        typed = values.filter(pc.match_substring_regex(values, _TYPED))
        if 2 * len(typed) <= len(values):
            return None
        for family in _FAMILIES:
            fitting = sum(_Cells(typed.slice(index, 1), self.nulls).fit(family[-1]) for index in range(len(typed)))
            if 2 * fitting > len(values):
                return family[-1]
        return None

    @cached_property
    def lengths(self) -> pa.Array:
        return pc.binary_length(self.column)

    @cached_property
    def longest(self) -> int:
        """Bytes of the longest value."""
        return int(pc.max(self.lengths).as_py() or 0)

    def fit(self, kind: pa.DataType) -> bool:
        if self.longest > _LONGEST:  # than any number or time is written; Arrow's refusal would quote it whole
            return False
        if pa.types.is_boolean(kind):
            words = pc.is_in(pc.utf8_lower(self.clean.drop_null()), value_set=_TRUTHS)
            return bool(pc.all(words).as_py())
        try:
            # Arrow goes on after a failure, slowly, so a few cells are tried first.
            parse_cells(self.few, kind, self.nulls)
            parse_cells(self.column, kind, self.nulls)
        except pa.ArrowInvalid:
            return False
        return not (pa.types.is_integer(kind) and self._hexadecimal())

    def first_unfit(self, kind: pa.DataType) -> int:
        """The index of the first value that is not of this type; there is one."""
        low, high = 0, len(self.column)  # the first `low` fit, the first `high` do not
        while high - low > 1:
            middle = (low + high) // 2
            fits = _Cells(self.column.slice(low, middle - low), self.nulls).fit(kind)
            low, high = (middle, high) if fits else (low, middle)
        return low

    def _hexadecimal(self) -> bool:
        """Arrow reads 0x1F as an integer but not as a float, so a later 0.5 could not widen it; here it is text."""
        characters = self.column.buffers()[2].to_pybytes()
        return b"x" in characters or b"X" in characters


def _cleaned(column: pa.Array, nulls: tuple[str, ...]) -> pa.Array:
    trimmed = pc.utf8_trim_whitespace(column)
    return pc.if_else(pc.is_in(trimmed, value_set=texts([*nulls, ""])), _MISSING, trimmed)


def parse_cells(column: pa.Array, kind: pa.DataType, nulls: tuple[str, ...]) -> pa.Array:
    """Text cells as values of a type.

    Raises:
        pa.ArrowInvalid: One of them is not of that type.
    """
    if pa.types.is_string(kind):
        return column
    if pa.types.is_boolean(kind):
        return pc.equal(pc.utf8_lower(_cleaned(column, nulls)), _TRUE)
    try:
        values = pc.cast(column, kind)
    except pa.ArrowInvalid:
        return pc.cast(_cleaned(column, nulls), kind)
    if pa.types.is_floating(kind) and pc.any(pc.is_nan(values)).as_py():  # in quotes, where it may be a missing value
        return pc.cast(_cleaned(column, nulls), kind)
    return values
