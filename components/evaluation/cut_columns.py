"""Columns cut into cells, and the slices that ranges of cells make: where `find_slices` looks."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ...data.arrays import numpy_of
from ...data.slices import MISSING, encode_column, shown_value
from .rows import Floats

Ints: TypeAlias = NDArray[np.int64]
RowMask: TypeAlias = NDArray[np.bool_]

_MOST_DISTINCT: Final = 10_000  # values beyond which a column of texts is one of names
_MOST_VALUES: Final = 100  # of a column of texts; the table of a cross has a cell for each combination
MOST_BINS: Final = 16  # whose ranges are 135, and those of three columns 2.5 million


@dataclass(frozen=True, eq=False)
class CutColumn:
    """A column cut into cells, and the slices that it makes: ranges of cells.

    Attributes:
        name: Of the column.
        codes: The cell of each row.
        cells: How many there are.
        low: The first cell of each slice.
        high: The cell after its last.
        words: What each is called, and its SQL.
        left_out: What of the column is not searched, if anything.
    """

    name: str
    codes: NDArray[np.uint8]
    cells: int
    low: Ints
    high: Ints
    words: list[tuple[str, str]]
    left_out: str

    @cached_property
    def ranges(self) -> Floats:
        """1 where a slice has a cell; shape (cells, slices)."""
        cell = np.arange(self.cells)[:, None]
        return ((cell >= self.low) & (cell < self.high)).astype(np.float64)

    def rows(self, which: int) -> RowMask:
        """Whether each row is in the slice."""
        rows: RowMask = (self.codes >= self.low[which]) & (self.codes < self.high[which])
        return rows


def cut_column(name: str, column: pa.Array, bins: int, min_examples: int) -> CutColumn | str:
    """The slices of a column that have enough rows within and without; why there are none."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.cast(kind.value_type)
        kind = column.type
    if pa.types.is_null(kind) or is_text(kind) or pa.types.is_boolean(kind):
        cut = _by_value(name, column)
    elif pa.types.is_decimal(kind) or pa.types.is_floating(kind):
        cut = _by_range(name, column.cast(pa.float64()), bins)
    elif pa.types.is_integer(kind) or pa.types.is_date32(kind) or pa.types.is_timestamp(kind):
        cut = _by_range(name, column, bins)
    else:
        return f"{kind} makes no slices"
    if isinstance(cut, str):
        return cut
    codes, slices, left_out = cut
    cells = int(max(high for _, high, *_ in slices)) + 1
    below = np.concatenate([[0], np.cumsum(np.bincount(codes, minlength=cells))])
    slices = [each for each in slices if min_examples <= below[each[1]] - below[each[0]] <= len(codes) - min_examples]
    if not slices:
        return f"no value or range has {min_examples:,} rows within and without"
    low, high = (np.array([each[end] for each in slices], dtype=np.int64) for end in (0, 1))
    return CutColumn(name, codes.astype(np.uint8), cells, low, high, [each[2:] for each in slices], left_out)


_Cut: TypeAlias = tuple[Ints, list[tuple[int, int, str, str]], str]
"""The cell of each row; the slices: the first cell, that after the last, name and SQL; what is not among them."""


def _by_value(name: str, column: pa.Array) -> _Cut | str:
    index, values = encode_column(name, column)
    if len(values) > _MOST_DISTINCT:
        return f"{len(values):,} distinct values"
    counts = np.bincount(index, minlength=len(values))
    frequent = np.argsort(-counts, kind="stable")[:_MOST_VALUES]
    cell = np.full(len(values), len(frequent))  # the others have a cell, and are no slice
    cell[frequent] = np.arange(len(frequent))
    quoted = _quoted(name)
    slices = []
    for number, which in enumerate(frequent.tolist()):
        value = values[which]
        if value is None:
            sql = f"{quoted} IS NULL"
        elif isinstance(value, bool):
            sql = f"{quoted} = {str(value).lower()}"
        else:
            text = str(value).replace("'", "''")
            sql = f"{quoted} = '{text}'"
        slices.append((number, number + 1, f"{name}={shown_value(value)}", sql))
    left_out = f"all but the {_MOST_VALUES} most frequent of {len(values):,} values"
    return cell[index], slices, left_out if len(values) > _MOST_VALUES else ""


def _by_range(name: str, column: pa.Array, bins: int) -> _Cut | str:
    """Cells of equal count, those of few distinct values of one value each; slices are ranges of adjacent ones."""
    valid = numpy_of(pc.fill_null(column.is_valid(), False))
    values = numpy_of(column)
    floats = values.dtype.kind == "f"
    if floats:
        valid = valid & ~np.isnan(values)
    distinct, counts = np.unique(values[valid], return_counts=True)
    if len(distinct) <= bins:
        starts = np.arange(len(distinct))
    else:
        share = int(valid.sum()) / bins
        ends = np.searchsorted(np.cumsum(counts), share * np.arange(1, bins)) + 1
        heavy = np.flatnonzero(counts >= share)  # a cell each
        starts = np.unique(np.concatenate([[0], ends, heavy, heavy + 1]))
        starts = starts[starts < len(distinct)]
        if floats:
            starts = _rounded(starts, distinct, counts, heavy, int(share / 100))
    codes = np.full(len(values), len(starts))
    codes[valid] = np.searchsorted(distinct[starts], values[valid], side="right") - 1
    literal = _literals(column.type)
    quoted = _quoted(name)
    not_nan = f" AND NOT isnan({quoted})" if floats else ""  # which DuckDB takes for the largest number
    bounds = [
        literal(_short(distinct[start - 1], distinct[start], distinct[start]) if floats and start else distinct[start])
        for start in starts.tolist()
    ]
    alone = np.diff([*starts.tolist(), len(distinct)]) == 1
    slices = []
    for low, high in itertools.combinations(range(len(starts) + 1), 2):
        if (low, high) == (0, len(starts)):
            slices.append((low, high, f"{name} not missing", f"{quoted} IS NOT NULL{not_nan}"))
        elif high == low + 1 and alone[low]:
            text, sql = literal(distinct[starts[low]])
            slices.append((low, high, f"{name}={text}", f"{quoted} = {sql}"))
        elif high == len(starts):
            text, sql = bounds[low]
            slices.append((low, high, f"{name} >= {text}", f"{quoted} >= {sql}{not_nan}"))
        elif low == 0:
            text, sql = bounds[high]
            slices.append((low, high, f"{name} < {text}", f"{quoted} < {sql}"))
        else:
            (least, least_sql), (most, most_sql) = bounds[low], bounds[high]
            slices.append(
                (low, high, f"{least} <= {name} < {most}", f"{quoted} >= {least_sql} AND {quoted} < {most_sql}")
            )
    nan = f" OR isnan({quoted})" if floats else ""
    slices.append((len(starts), len(starts) + 1, f"{name}={MISSING}", f"({quoted} IS NULL{nan})"))
    return codes, slices, ""


def _literals(kind: pa.DataType) -> Callable[[Any], tuple[str, str]]:
    """What a value of a column is called, and its SQL."""
    if pa.types.is_floating(kind):
        return _number_literal
    if pa.types.is_integer(kind):
        return lambda value: (str(value), str(value))
    if pa.types.is_date32(kind):
        return lambda value: (str(np.datetime64(int(value), "D")), f"DATE '{np.datetime64(int(value), 'D')}'")
    word, zone = ("TIMESTAMP", "") if kind.tz is None else ("TIMESTAMPTZ", "+00")

    def of_time(value: Any) -> tuple[str, str]:
        text = str(np.datetime64(int(value), kind.unit)).replace("T", " ")
        return text.removesuffix(".000") + zone, f"{word} '{text}{zone}'"

    return of_time


def _number_literal(value: Any) -> tuple[str, str]:
    text = repr(float(value))
    if not math.isfinite(value):
        return text, f"CAST('{text}' AS DOUBLE)"
    # With an exponent it is a DOUBLE; without one it would be a DECIMAL, which may become another double.
    return text.removesuffix(".0"), text if "e" in text else f"{text}e0"


def _rounded(starts: Ints, distinct: Floats, counts: Ints, heavy: Ints, slack: int) -> Ints:
    """Cells that begin at numbers of few figures; so many rows may change cells for it, and heavy values stay alone."""
    below = np.cumsum(counts) - counts
    fixed = {0, *heavy.tolist(), *(heavy + 1).tolist()}
    rounded = []
    for start in starts.tolist():
        if start not in fixed:
            least = int(np.searchsorted(below, below[start] - slack))
            most = int(np.searchsorted(below, below[start] + slack, side="right")) - 1
            bound = _short(distinct[min(least, start - 1)], distinct[start], distinct[most])
            start = int(np.searchsorted(distinct, bound))
        rounded.append(start)
    return np.unique(rounded)


def _short(before: float, value: float, most: float) -> float:
    """The number of the fewest figures near a value that is more than one number, and not more than another."""
    for figures in range(1, 18):
        short = float(f"{value:.{figures}g}")
        if before < short <= most:
            return short
    return value


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def is_text(kind: pa.DataType) -> bool:
    """Whether values of this type are texts, in a dictionary or not."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))
