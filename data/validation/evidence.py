"""What a column's state shows to a check: its bounds, and the values that break one, most frequent first."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any, Final

import numpy as np

from ...report.html import number
from ..aggregates.tables import NumberTable, TextTable, show_text, top
from ..arrays import arrow_of
from ..schemas.schema import Feature
from ..stats.column import ColumnState
from ..stats.column_sketches import is_whole

SHOWN: Final = 20  # offending values listed per anomaly
NAMED: Final = 3  # offending texts named in a message
READ: Final = frozenset({"int", "float", "bool", "date", "timestamp"})
"""Types of a schema that a CSV's cells may read as."""
_ISO: Final = re.compile(rb"\d{4}-\d\d-\d\d")  # Python reads 20240131 too


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


def finite_bounds(column: ColumnState) -> tuple[float | None, float | None]:
    """Smallest and largest of the finite values."""
    table = column.table
    if column.sketches is not None:
        return column.sketches.low, column.sketches.high
    if isinstance(table, NumberTable):
        return table.values[0].item(), table.values[-1].item()
    return None, None


def bounds(column: ColumnState) -> tuple[float | None, float | None]:
    """Smallest and largest value, infinities included."""
    low, high = finite_bounds(column)
    if column.negative_infinity:
        low = -np.inf
        high = low if high is None else high
    if column.positive_infinity:
        high = np.inf
        low = high if low is None else low
    return low, high


def out_of_range(spec: Feature, end: str, bound: float, infinite: str, *, finite: bool) -> tuple[str, str]:
    """What is wrong with values beyond an end of a feature's range, and what to do: no other bound admits infinity.

    Args:
        spec: The feature.
        end: "min" or "max".
        bound: That end.
        infinite: How many of the values are infinite, with their unit; "" where none is.
        finite: Whether any is finite.
    """
    name, where = spec.name, f"in the range of {spec.name} in the schema"
    side, move = ("below", "lower") if end == "min" else ("above", "raise")
    if infinite and not finite:
        fix = f"find the division or overflow behind them, write missing values for them, or remove {end} {where}"
        return f"{name} is infinite in {infinite}, {side} {number(bound)}", fix
    also = f", and is infinite in {infinite}" if infinite else ""
    correction = (
        "correct these values (behind infinite ones is a division or an overflow)" if also else "correct these values"
    )
    return f"{name} has values {side} {number(bound)}{also}", f"{correction}, or {move} {end} {where}"


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
    return shown_texts(texts(column))


def shown_texts(table: TextTable) -> tuple[dict[str, Any], ...]:
    """The most frequent texts of a table, as an anomaly lists them."""
    return tuple({"value": show_text(value), "count": count} for value, count in top(table, SHOWN))


def named_texts(table: TextTable) -> str:
    """The most frequent texts of a table in a sentence, with their rows: `'a' (20), 'b' (3) and 7 more`."""
    names = ", ".join(f"{show_text(value)!r} ({number(count)})" for value, count in top(table, NAMED))
    more = len(table.counts) - NAMED
    return f"{names} and {number(more)} more" if more > 0 else names


def unread_texts(column: ColumnState, kind: str) -> TextTable:
    """The texts of a text column that do not read as a type of `READ`: usually the few that made it one.

    Of a column that only has sketches, those among the frequent ones.
    """
    table = texts(column)
    unread = np.fromiter((not reads_as_type(text, kind) for text in table.values.to_pylist()), np.bool_)
    return TextTable(table.values.take(arrow_of(np.flatnonzero(unread))), table.counts[unread])


def top_not_whole(column: ColumnState) -> tuple[dict[str, Any], ...]:
    """The most frequent numbers of a float column that are not integers, or too large to be sure of."""
    table = _number_table(column)
    if table is None:
        return ()
    odd = ~is_whole(table.values)
    part = NumberTable(table.values[odd], table.counts[odd])
    return tuple({"value": value, "count": count} for value, count in top(part, SHOWN))


def reads_as_type(text: bytes, kind: str) -> bool:
    """Whether a text reads as a type of `READ`, spelled as in a CSV; as a number for `int` too."""
    text = text.strip()
    if kind == "bool":
        return text.lower() in (b"true", b"false")
    try:
        if kind in ("int", "float"):
            float(text)
            return b"_" not in text  # Python's spelling of 1000 as 1_000, which no CSV has
        datetime.fromisoformat(text.decode())
    except ValueError:
        return False
    return _ISO.match(text) is not None and (kind == "timestamp" or len(text) == len("2024-01-31"))
