"""A schema proposed from statistics: types, presence and small domains, each with its evidence. A person accepts it.

Rules as TFDV 1.16 has them, but for these: a column of one value is no bool (`month` of one month's data would be);
text becomes a bool only where both its values were seen; a column without any value has the type "any"; that a plain
column has one value per row is not said.
"""

from __future__ import annotations

from typing import Any, Final

from ..errors import InputError
from .schema import Bool, Count, Domain, Feature, Presence, Range, Schema, Values
from .statistics_column import ColumnState
from .statistics_document import Statistics
from .tables import NumberTable, TextTable, invalid_utf8
from .validation_evidence import bounds, nesting
from .validation_parse import reads_as

MAX_VALUES: Final = 100
_TRUE: Final = frozenset({"TRUE", "true", "SET", "set", "1", ""})
_FALSE: Final = frozenset({"FALSE", "false", "CLEAR", "clear", "0"})


def infer_schema(
    statistics: Statistics, *, split: str | None = None, max_values: int = MAX_VALUES, shapes: bool = True
) -> Schema:
    """The schema that a data set satisfies.

    Args:
        statistics: From `statistics`.
        split: Which data set it is taken from; None: the first that has rows, usually the training data.
        max_values: Text with more distinct values than this gets no list of values.
        shapes: Whether lists of one length, never missing, get a shape; else value counts say it of every column.

    Raises:
        InputError: There is no such data set, or none has rows.
    """
    chosen = split if split is not None else next((name for name, rows in statistics.splits.items() if rows), None)
    if chosen is None:
        raise InputError("no data set has rows, so there is nothing to infer a schema from", fix="check the input")
    features = statistics.features(chosen)
    state = statistics.state(chosen)
    return Schema(
        features=tuple(
            _feature(described, state.columns[name], max_values, shapes) for name, described in features.items()
        )
    )


def _feature(described: dict[str, Any], column: ColumnState, max_values: int, shapes: bool) -> Feature:
    count, missing = column.count, column.missing
    if not count:
        return Feature(column.name, "any", Presence(min_count=0), evidence=f"no value in {column.rows:,} rows")
    evidence = [f"{count:,} of {column.rows:,} rows" if missing else f"all {count:,} rows"]
    unique = described.get("unique")
    if unique:
        evidence.append(f"{unique['value']:,} distinct" if unique["exact"] else f"about {unique['value']:,} distinct")
    if "min" in described and column.kind != "bool":
        evidence.append(f"{described['min']['value']} to {described['max']['value']}")
    levels, kind = nesting(column)
    kind = kind if kind not in ("null", "other") else "any"
    # All present now means always present; a share is not guessed from some missing.
    presence = Presence(min_fraction=None if missing else 1.0, min_count=1)
    shape, value_counts = _lengths(column, levels, evidence) if levels else (None, ())
    if not shapes:
        value_counts = value_counts or (Count(*(shape or (1,)) * 2),)
        shape = None
    return Feature(
        column.name, kind, presence, _domain(column, max_values), evidence=", ".join(evidence), shape=shape,
        value_counts=value_counts,
    )  # fmt: skip


def _lengths(column: ColumnState, levels: int, evidence: list[str]) -> tuple[tuple[int, ...] | None, tuple[Count, ...]]:
    """The shape or the value counts of lists; the statistics know the lengths of the outermost only."""
    low, high = (int(end or 0) for end in bounds(column))
    evidence.append(f"{low} values each" if low == high else f"{low} to {high} values each")
    if low == high > 0 and not column.missing and levels == 1:
        return (low,), ()
    outer = Count(low, high) if low == high > 0 else Count(1 if low else None)
    return None, (outer, *[Count()] * (levels - 1))


def _domain(column: ColumnState, max_values: int) -> Domain | None:
    table = column.table
    if column.kind == "int" and isinstance(table, NumberTable) and table.values.tolist() == [0, 1]:
        return Bool()
    if column.kind != "string" or not isinstance(table, TextTable) or invalid_utf8(table):
        return None
    if len(table.counts) == 2:
        pair = [value.decode() for value in table.values.to_pylist()]
        for true, false in (pair, pair[::-1]):
            if true in _TRUE and false in _FALSE:
                return Bool(true, false)
    if all(reads_as(value.as_py(), "int") is not None for value in table.values):
        return Range(parse="int")
    if len(table.counts) > max_values:
        return None
    return Values(tuple(value.decode() for value in table.values.to_pylist()))
