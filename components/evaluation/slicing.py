"""The slices of each row of a batch, for every list of slice columns: one of each, several, or none."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ...data.arrays import numpy_of
from ...data.slices import SliceTable, SliceValue, encode_column, unravel
from ...data.types import is_list
from .cells import Cells, distinct, grouped

NO_SLICE: Final = -1
_Ints: TypeAlias = NDArray[np.int64]


def encode(
    table: SliceTable, columns: Mapping[str, pa.Array], rows: int, optional: Collection[str] = ()
) -> tuple[_Ints | None, NDArray[np.int32]]:
    """The code of each row's slice, (rows, specs); `NO_SLICE` where the row is in none of the spec.

    A list puts its row into the slice of each distinct value in it. A row then comes once without the slices of such
    specs, and once more for each of these slices alone: whatever way equal rows came in, equal ones result.

    Args:
        table: Numbers the slices.
        columns: Each column of its specs.
        rows: How many there are.
        optional: The columns whose nulls mean that the row is in no slice.

    Returns:
        The row that each code is of, None where they are all the rows as they stand, and the codes.

    Raises:
        InputError: A column is of a type that makes no slices, or has too many values.
    """
    return _codes(table, _encoded_all(columns, optional), rows)


def _codes(table: SliceTable, encoded: Mapping[str, _Encoded], rows: int) -> tuple[_Ints | None, NDArray[np.int32]]:
    """What `encode` gives for columns that are encoded."""
    codes = np.full((rows, len(table.specs)), NO_SLICE, dtype=np.int32)
    more: list[tuple[_Ints, int, NDArray[np.int32]]] = []
    for index, spec in enumerate(table.specs):
        if not spec:
            codes[:, index] = table.code((index, ())) if rows else NO_SLICE
            continue
        row: _Ints | None = None
        number: _Ints | None = None
        for name in spec:
            row, number = encoded[name].cross(row, number)
        assert number is not None
        present, inverse = distinct(number, math.prod(len(encoded[name].values) for name in spec))
        keys = [unravel(int(each), [encoded[name].values for name in spec]) for each in present]
        of_row = np.array([table.code((index, key)) for key in keys], dtype=np.int32)[inverse]
        if row is not None and any(encoded[name].starts is not None for name in spec):
            more.append((row, index, of_row))
        else:
            codes[slice(None) if row is None else row, index] = of_row
    if not more:
        return None, codes
    alone = [np.full((len(row), len(table.specs)), NO_SLICE, dtype=np.int32) for row, _, _ in more]
    for part, (_, index, of_row) in zip(alone, more, strict=True):
        part[:, index] = of_row
    return np.concatenate([np.arange(rows), *(row for row, _, _ in more)]), np.concatenate([codes, *alone])


def encode_cells(
    table: SliceTable, columns: Mapping[str, pa.Array], rows: int, optional: Collection[str] = ()
) -> tuple[_Ints | None, NDArray[Any], NDArray[np.int32]]:
    """As `encode`, with the rows that have the same codes in a cell.

    Returns:
        The row that each is of, the cell of each, and the codes of each cell, (cells, specs).

    Raises:
        InputError: As `encode`.
    """
    encoded = _encoded_all(columns, optional)
    if any(column.starts is not None for column in encoded.values()):
        positions, codes = _codes(table, encoded, rows)
        cells = Cells.group(codes, None, 0)
        return positions, cells.of, cells.codes
    # Rows with the same values are in the same slices: of each such group one is looked at.
    of, row = grouped([column.codes for column in encoded.values()], rows)
    some = {name: replace(column, codes=column.codes[row].astype(np.int64)) for name, column in encoded.items()}
    return None, of, _codes(table, some, len(row))[1]


@dataclass(frozen=True, eq=False)
class _Encoded:
    """A column as indices of its distinct values.

    Attributes:
        codes: The index of each value.
        values: What they are.
        starts: Where each row's values start among `codes`, and the end; None where each row has one.
        optional: Whether a row without a value is in no slice.
    """

    codes: _Ints
    values: list[SliceValue]
    starts: _Ints | None
    optional: bool

    def cross(self, row: _Ints | None, number: _Ints | None) -> tuple[_Ints | None, _Ints]:
        """Each entry once for each value of its row, whose index is appended to its number as a digit.

        Without rows, the entries are all rows as they stand; without numbers, they have none yet.
        """
        if self.starts is None:
            digit = self.codes if row is None else self.codes[row]
        else:
            row = np.arange(len(self.starts) - 1) if row is None else row
            first, counts = self.starts[row], np.diff(self.starts)[row]
            ends = np.cumsum(counts)
            within = np.arange(counts.sum()) - np.repeat(ends - counts, counts)
            digit = self.codes[np.repeat(first, counts) + within]
            row = np.repeat(row, counts)
            number = None if number is None else np.repeat(number, counts)
        number = digit if number is None else number * len(self.values) + digit
        if self.optional and None in self.values:
            present = np.array([value is not None for value in self.values], dtype=np.bool_)[digit]
            row, number = np.flatnonzero(present) if row is None else row[present], number[present]
        return row, number


def _encoded_all(columns: Mapping[str, pa.Array], optional: Collection[str]) -> dict[str, _Encoded]:
    return {name: _encoded(name, column, optional=name in optional) for name, column in columns.items()}


def _encoded(name: str, column: pa.Array, *, optional: bool) -> _Encoded:
    kind = column.type
    if not is_list(kind):
        return _Encoded(*encode_column(name, column), None, optional)
    codes, values = encode_column(name, pc.list_flatten(column))
    # Null, NaN and an empty list are all the value None, and -0.0 is 0.0: each row has it once.
    distinct = {value: index for index, value in enumerate(dict.fromkeys([*values, None]))}
    codes = np.array([distinct[value] for value in values], dtype=np.int64)[codes]
    # A null may have values under it, which flattening leaves out.
    lengths = numpy_of(pc.if_else(column.is_valid(), pc.list_value_length(column), 0)).astype(np.int64)
    empty = np.flatnonzero(lengths == 0)
    row = np.concatenate([np.repeat(np.arange(len(column)), lengths), empty])
    codes = np.concatenate([codes, np.full(len(empty), distinct[None])])
    pairs = np.unique(row * len(distinct) + codes)
    starts = np.searchsorted(pairs, np.arange(len(column) + 1) * len(distinct))
    return _Encoded(pairs % len(distinct), list(distinct), starts, optional)
