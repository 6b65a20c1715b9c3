"""What a column's state shows to a check: its bounds, and the values that break one, most frequent first."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ..aggregates.tables import NumberTable, TextTable, show_text, top
from ..arrays import arrow_of
from ..schemas.schema import Feature
from ..stats.column import ColumnState
from ..stats.column_sketches import is_whole

SHOWN: Final = 20  # offending values listed per anomaly


def nesting(column: ColumnState) -> tuple[int, str]:
    """How many lists are within each other (0: none), and the type of the values in the innermost."""
    levels = column.levels
    return len(levels) - 1, levels[-1].kind


def unit_of(spec: Feature, column: ColumnState) -> str:
    """What the values of a column's state are: rows, or values in the rows' lists."""
    return "rows" if column.name == spec.name else "values"


def texts(column: ColumnState) -> TextTable:
    """The column's texts: all of them, or the frequent ones of a column that only has sketches."""
    table = column.table if column.sketches is None else column.sketches.frequent.table
    assert isinstance(table, TextTable)
    return table


def is_member(table: TextTable, allowed: tuple[str, ...]) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which of a table's texts are among those."""
    wanted = {value.encode() for value in allowed}
    return np.fromiter((value in wanted for value in table.values.to_pylist()), np.bool_, len(table.counts))


def bounds(column: ColumnState) -> tuple[float | None, float | None]:
    """Smallest and largest value, infinities included."""
    low: float | None = None
    high: float | None = None
    table = column.table
    if column.sketches is not None:
        low, high = column.sketches.low, column.sketches.high
    elif isinstance(table, NumberTable):
        low, high = table.values[0].item(), table.values[-1].item()
    if column.negative_infinity:
        low = -np.inf
        high = low if high is None else high
    if column.positive_infinity:
        high = np.inf
        low = high if low is None else low
    return low, high


def _number_table(column: ColumnState) -> NumberTable | None:
    table = column.table if column.sketches is None else column.sketches.frequent.table
    return table if isinstance(table, NumberTable) else None


def numbers_where(
    column: ColumnState, *, below: float | None = None, above: float | None = None, between: bool = False
) -> tuple[dict[str, Any], ...]:
    """The most frequent numbers below or above a bound (or, with `between`, strictly between them too)."""
    table = _number_table(column)
    if table is None:
        return ()
    chosen = np.zeros(len(table.counts), np.bool_)
    if below is not None:
        chosen |= table.values < below
    if above is not None:
        chosen |= table.values > above
    if between and below is not None and above is not None:
        chosen |= (table.values > below) & (table.values < above)
    part = NumberTable(table.values[chosen], table.counts[chosen])
    return tuple({"value": value, "count": count} for value, count in top(part, SHOWN))


def top_texts(column: ColumnState) -> tuple[dict[str, Any], ...]:
    """The column's most frequent texts."""
    if column.kind not in ("string", "bytes") or not column.count:
        return ()
    return tuple({"value": show_text(value), "count": count} for value, count in top(texts(column), SHOWN))


def top_non_numbers(column: ColumnState) -> tuple[dict[str, Any], ...]:
    """The most frequent texts of a column that are no numbers: usually the few that made it a text column."""
    if column.kind != "string":
        return ()
    table = texts(column)
    odd = np.fromiter((not is_number(value) for value in table.values.to_pylist()), np.bool_, len(table.counts))
    part = TextTable(table.values.take(arrow_of(np.flatnonzero(odd))), table.counts[odd])
    return tuple({"value": show_text(value), "count": count} for value, count in top(part, SHOWN))


def top_not_whole(column: ColumnState) -> tuple[dict[str, Any], ...]:
    """The most frequent numbers of a float column that are no integers, or too large to be sure of."""
    table = _number_table(column)
    if table is None:
        return ()
    odd = ~is_whole(table.values)
    part = NumberTable(table.values[odd], table.counts[odd])
    return tuple({"value": value, "count": count} for value, count in top(part, SHOWN))


def is_number(text: bytes | str) -> bool:
    """Whether a text reads as a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True
