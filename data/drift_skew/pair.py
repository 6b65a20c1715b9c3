"""One feature of two data sets over one list of values, or of cells of values, with the rows of each side.

A column whose table is exact gives exact counts. One that only has sketches gives the rows that its summary's values
stand for; `error` then says how far a share can be off.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ..aggregates.sketches import FrequentSketch
from ..aggregates.tables import NumberTable, TextTable, merge_texts, show_text
from ..arrays import numpy_of
from ..stats.column import NUMERIC, TEXT, ColumnState
from ..stats.describe import iso

DISCRETE: Final = 100  # distinct integers up to which each is a cell of its own
RowCounts = NDArray[np.int64]

_ODD: Final = {"NaN": "nan", "+Inf": "positive_infinity", "-Inf": "negative_infinity"}
_TIMES: Final = frozenset({"timestamp", "date", "time"})
OTHERS: Final = "other values"


@dataclass(frozen=True)
class Pair:
    """The rows of both sides per value, values ascending.

    Attributes:
        kind: "number" or "text".
        values: Distinct values of both sides: numpy numbers, or `large_binary`.
        current: Rows of the current side per value.
        previous: Rows of the control per value.
        odd: Names of rows that are not among the values: "NaN", "+Inf", "-Inf", or the "other values" beside the most
            frequent of a summary; only those that occur.
        odd_current: Rows of each of these.
        odd_previous: Likewise.
        discrete: Whether each value is a category: texts, booleans, and integers of up to a hundred values.
        error: Largest error of a value's share (texts) or a cumulative share (numbers); None: exact.
        show: Takes a value's index, returns the value as JSON and people see it.
    """

    kind: str
    values: Any
    current: RowCounts
    previous: RowCounts
    odd: tuple[str, ...]
    odd_current: RowCounts
    odd_previous: RowCounts
    discrete: bool
    error: float | None
    show: Callable[[int], Any]

    @property
    def numeric(self) -> bool:
        """Whether the values are numbers, so that distances between them mean something."""
        return self.kind == "number"


@dataclass(frozen=True)
class CellRows:
    """The rows of both sides per cell; NaN and the other odd ones are cells too.

    Attributes:
        current: Rows of the current side.
        previous: Rows of the control.
        label: Takes a cell's index, returns how JSON and people see it: a value, or "[first, last]" of its values.
    """

    current: RowCounts
    previous: RowCounts
    label: Callable[[int], Any]


def comparable(current: ColumnState, previous: ColumnState) -> bool:
    """Whether the values of two columns can be compared: both texts, both numbers, or times of one unit."""
    for kinds in (frozenset({"bool", "int", "float"}), TEXT):
        if current.kind in kinds:
            return previous.kind in kinds
    same = (current.kind, current.unit) == (previous.kind, previous.unit)
    return same and current.kind in NUMERIC


def pair_of_columns(current: ColumnState, previous: ColumnState) -> Pair:
    """Both columns over their common list of values; they must be `comparable`."""
    return _pair_texts(current, previous) if current.kind in TEXT else _pair_numbers(current, previous)


def _pair_texts(current: ColumnState, previous: ColumnState) -> Pair:
    rough = current.sketches is not None or previous.sketches is not None
    (table, error), (other, other_error) = (_texts(side, rough) for side in (current, previous))
    same = not rough and table.values.equals(other.values)  # the usual case, and merging is slow
    values = table.values if same else merge_texts([table, other]).values
    rest = np.array([current.count - table.total]), np.array([previous.count - other.total])
    some = bool(rest[0] or rest[1])  # as the end of a slice below: True keeps the one count, False none
    return Pair(
        "text",
        values,
        table.counts if same else _placed(table, values),
        other.counts if same else _placed(other, values),
        (OTHERS,) if some else (),
        rest[0][:some],
        rest[1][:some],
        discrete=True,
        error=error + other_error if rough else None,
        show=lambda index: show_text(values[index].as_py()),
    )


def _texts(column: ColumnState, rough: bool) -> tuple[TextTable, float]:
    """The column's values, or where either side has only a summary, a summary of the same kind, and its error."""
    if not rough:
        table = column.table
        return (table if isinstance(table, TextTable) else _NO_TEXT), 0.0
    if column.sketches is not None:
        frequent = column.sketches.frequent
    else:
        frequent = FrequentSketch()
        if isinstance(column.table, TextTable):
            frequent.add(column.table)
    table = frequent.table
    return (table if isinstance(table, TextTable) else _NO_TEXT), frequent.error / max(column.count, 1)


_NO_TEXT: Final = TextTable(pa.nulls(0, pa.large_binary()), np.zeros(0, np.int64))
_NO_NUMBER: Final = NumberTable(np.zeros(0, np.int64), np.zeros(0, np.int64))


def _placed(table: TextTable, values: Any) -> RowCounts:
    rows = np.zeros(len(values), np.int64)
    if len(table.counts):
        rows[numpy_of(pc.index_in(table.values, value_set=values))] = table.counts
    return rows


def numbers(column: ColumnState) -> tuple[NumberTable, float | None]:
    """A column's finite numbers: exact, or a summary's with the largest error of a cumulative share."""
    if column.sketches is None:
        table = column.table
        return (table if isinstance(table, NumberTable) else _NO_NUMBER), None
    summary = column.sketches.quantile.table()
    values = summary.values.copy()
    # The ends are known exactly; what TFDV's buckets span depends on them.
    assert column.sketches.low is not None
    assert column.sketches.high is not None
    values[0], values[-1] = float(column.sketches.low), float(column.sketches.high)
    return NumberTable(values, summary.counts), column.sketches.quantile.error / max(summary.total, 1)


def _pair_numbers(current: ColumnState, previous: ColumnState) -> Pair:
    (table, error), (other, other_error) = numbers(current), numbers(previous)
    values = np.unique(np.concatenate((table.values, other.values)))
    sides = []
    for side in (table, other):
        rows = np.zeros(len(values), np.int64)
        np.add.at(rows, np.searchsorted(values, side.values.astype(values.dtype)), side.counts)
        sides.append(rows)
    odd = [
        (name, getattr(current, field), getattr(previous, field))
        for name, field in _ODD.items()
        if getattr(current, field) or getattr(previous, field)
    ]
    exact = error is None and other_error is None
    whole = "float" not in (current.kind, previous.kind) and current.kind not in _TIMES
    boolean = current.kind == previous.kind == "bool"

    def show(index: int) -> Any:
        value = values[index].item()
        if current.kind in _TIMES:
            return iso(round(value), current.kind, current.unit, current.zone)
        return bool(value) if boolean else value

    return Pair(
        "number",
        values,
        sides[0],
        sides[1],
        tuple(name for name, *_ in odd),
        np.array([rows for _, rows, _ in odd], np.int64),
        np.array([rows for *_, rows in odd], np.int64),
        discrete=exact and whole and len(values) <= DISCRETE,
        error=None if exact else (error or 0.0) + (other_error or 0.0),
        show=show,
    )


def value_cells(pair: Pair) -> CellRows:
    """Every value is a cell."""
    names = pair.odd
    return CellRows(
        np.concatenate((pair.current, pair.odd_current)),
        np.concatenate((pair.previous, pair.odd_previous)),
        lambda index: pair.show(index) if index < len(pair.current) else names[index - len(pair.current)],
    )


def frequent_cells(pair: Pair, certain: float) -> CellRows:
    """Texts of which only a summary is known: those whose share, on either side, is `certain` times its possible error.

    All others are one cell. A summary's counts are lower bounds, and many small errors would add up to a difference.
    """
    least = certain * (pair.error or 0.0)
    totals = (int(rows.sum() + odd.sum()) for rows, odd in _sides(pair))
    shares = [rows / max(total, 1) for (rows, _), total in zip(_sides(pair), totals, strict=True)]
    sure = np.maximum(*shares) >= least
    kept = np.flatnonzero(sure)
    current, previous = (np.append(rows[sure], rows[~sure].sum() + odd.sum()) for rows, odd in _sides(pair))
    return CellRows(current, previous, lambda index: pair.show(int(kept[index])) if index < len(kept) else OTHERS)


def _sides(pair: Pair) -> tuple[tuple[RowCounts, RowCounts], tuple[RowCounts, RowCounts]]:
    return (pair.current, pair.odd_current), (pair.previous, pair.odd_previous)


def equal_mass_cells(pair: Pair, cells: int, *, control: bool) -> CellRows:
    """Cells of neighbouring numbers, each with about the same mass; a value with a cell's mass is a cell of its own.

    So a far outlier moves no edge: it only joins the last cell.

    Args:
        pair: Of numbers.
        cells: About how many.
        control: Whether the mass is that of the control, else of both sides in equal parts (then exchanging the sides
            changes nothing).
    """
    mass = _share(pair.previous)
    if not control:
        mass = (mass + _share(pair.current)) / 2
    first = _starts(mass, cells)
    last = np.append(first[1:], len(mass)) - 1

    def label(index: int) -> Any:
        if index >= len(first):
            return pair.odd[index - len(first)]
        low, high = pair.show(int(first[index])), pair.show(int(last[index]))
        return low if first[index] == last[index] else f"[{low}, {high}]"

    return CellRows(
        np.concatenate((_summed(pair.current, first), pair.odd_current)),
        np.concatenate((_summed(pair.previous, first), pair.odd_previous)),
        label,
    )


def _share(rows: RowCounts) -> NDArray[np.float64]:
    total = int(rows.sum())
    return rows / total if total else np.zeros(len(rows))


def _summed(rows: RowCounts, first: NDArray[np.int64]) -> RowCounts:
    return np.add.reduceat(rows, first) if len(rows) else rows


def _starts(mass: NDArray[np.float64], cells: int) -> NDArray[np.int64]:
    """Where each cell begins; the first at 0."""
    if not len(mass):
        return np.zeros(0, np.int64)
    before = np.concatenate(([0.0], np.cumsum(mass)[:-1]))
    # Shares such as 1/10 are not binary fractions: a hair below a step is the step.
    step = np.minimum(np.floor(before * cells + 1e-9), cells - 1)
    atom = mass * cells >= 1 - 1e-9
    begins = np.concatenate(([True], (step[1:] != step[:-1]) | atom[1:] | atom[:-1]))
    return np.flatnonzero(begins)
