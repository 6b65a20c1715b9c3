"""How many values a row has, and how many distinct ones a column: shape, value counts, unique."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from ...report.html import number
from ..schemas.schema import Count, Feature
from ..stats.column import ColumnState
from .anomalies import Anomaly, NewAnomaly
from .evidence import bounds, numbers_where


def check_counts(spec: Feature, column: ColumnState, new_anomaly: NewAnomaly) -> Iterator[Anomaly]:
    """Where rows do not have as many values as the feature's shape or value counts say."""
    # Lists by level; a column without lists has one value in each row that is not missing.
    lists = column.levels[:-1]
    if spec.shape is not None:
        yield from _shape(spec, column, new_anomaly)
        return
    if spec.value_counts == (Count(),):
        return  # says nothing, as a feature without value counts in TFDV: any number, however nested
    if len(spec.value_counts) != max(len(lists), 1):
        wanted = len(spec.value_counts)
        yield new_anomaly(
            "VALUE_NESTEDNESS_MISMATCH", spec.name,
            f"{spec.name} has {max(len(lists), 1)} levels of values, the schema says {wanted}",
            expected=f"{wanted} levels", observed=column.arrow,
            fix=f"give {spec.name} one value_count for each level in the schema",
        )  # fmt: skip
        return
    for level, (count, state) in enumerate(zip(spec.value_counts, lists or [column], strict=True)):
        if state.count:
            yield from _count(spec, level, count, state, new_anomaly)


def _count(spec: Feature, level: int, wanted: Count, state: ColumnState, new_anomaly: NewAnomaly) -> Iterator[Anomaly]:
    low, high = _ends(state)
    of, all_of = ("row", "rows") if not level else (f"list of level {level}", f"lists of level {level}")
    some, observed = f"some {all_of} of {spec.name} have", _per_list(low, high, of)
    if wanted.min is not None and low < wanted.min:
        yield new_anomaly(
            "FEATURE_TYPE_LOW_NUMBER_VALUES", spec.name, f"{some} fewer than {wanted.min} values",
            expected=f"at least {wanted.min} values per {of}", observed=observed,
            values=_lengths(state, below=wanted.min), level=level,
            fix=f"find what these {all_of} lost, or lower value_count of {spec.name} in the schema",
        )  # fmt: skip
    if wanted.max is not None and high > wanted.max:
        yield new_anomaly(
            "FEATURE_TYPE_HIGH_NUMBER_VALUES", spec.name, f"{some} more than {wanted.max} values",
            expected=f"at most {wanted.max} values per {of}", observed=observed,
            values=_lengths(state, above=wanted.max), level=level,
            fix=f"cut these {all_of}, or raise value_count of {spec.name} in the schema",
        )  # fmt: skip


def _ends(state: ColumnState) -> tuple[int, int]:
    """Fewest and most values of a list that is there; one where it is not a list."""
    if state.kind != "list":
        return 1, 1
    low, high = bounds(state)
    return int(low or 0), int(high or 0)


def _per_list(low: int, high: int, of: str) -> str:
    return f"{low} to {high} values per {of}" if low != high else f"{low} value{'s' * (low != 1)} per {of}"


def fixed_shape(column: ColumnState) -> tuple[int, ...] | None:
    """The sizes of a column's lists by level (of one plain value: 1), if all are alike and nothing is missing."""
    *lists, values = column.levels
    ends = [_ends(state) for state in lists or [column]]
    if any(state.missing for state in (*lists, values)) or any(low != high for low, high in ends):
        return None
    return tuple(low for low, _ in ends)


def _shape(spec: Feature, column: ColumnState, new_anomaly: NewAnomaly) -> Iterator[Anomaly]:
    shape = spec.shape or ()
    fixed, size = fixed_shape(column), math.prod(shape)
    # As in TFDV, what counts is how many values a row has in all, however they are nested.
    if fixed is None or math.prod(fixed) != size:
        levels = column.levels
        lengths = [_per_list(*_ends(state), "row" if not level else f"list of level {level}")
                for level, state in enumerate(levels[:-1] or levels) if state.count]  # fmt: skip
        lengths += [f"{number(state.missing)} {'rows' if not level else f'values of level {level}'} missing"
                 for level, state in enumerate(levels) if state.missing]  # fmt: skip
        yield new_anomaly(
            "INVALID_FEATURE_SHAPE", spec.name, f"{spec.name} does not have the shape {list(shape)}",
            expected=f"{size} value{'s' * (size != 1)} in every row", observed=", ".join(lengths),
            fix=f"fill or drop the rows that differ, or give {spec.name} a value_count in place of its shape",
        )  # fmt: skip


def _lengths(state: ColumnState, *, below: int | None = None, above: int | None = None) -> tuple[dict[str, Any], ...]:
    if state.kind == "list":
        return numbers_where(state, below=below, above=above)
    return ({"value": 1, "count": state.count},)


def check_unique(spec: Feature, wanted: Count, column: ColumnState, new_anomaly: NewAnomaly) -> Iterator[Anomaly]:
    """Where a column has too few or too many distinct values; NaN and the infinities are one each."""
    distinct = distinct_values(column)
    observed = f"{'about ' if column.sketches is not None else ''}{number(distinct)} distinct values"
    if wanted.min is not None and distinct < wanted.min:
        yield new_anomaly(
            "FEATURE_TYPE_LOW_UNIQUE", spec.name, f"{spec.name} has {observed}, fewer than {number(wanted.min)}",
            expected=f"at least {number(wanted.min)} distinct values", observed=observed,
            fix=f"find which values are gone, or lower unique of {spec.name} in the schema",
        )  # fmt: skip
    if wanted.max is not None and distinct > wanted.max:
        yield new_anomaly(
            "FEATURE_TYPE_HIGH_UNIQUE", spec.name, f"{spec.name} has {observed}, more than {number(wanted.max)}",
            expected=f"at most {number(wanted.max)} distinct values", observed=observed,
            fix=f"find where the new values come from, or raise unique of {spec.name} in the schema",
        )  # fmt: skip


def distinct_values(column: ColumnState) -> int:
    """Distinct values of a column, estimated where it only has sketches."""
    odd = sum(bool(rows) for rows in (column.nan, column.positive_infinity, column.negative_infinity))
    if column.sketches is not None:
        return odd + column.sketches.distinct.estimate()
    return odd + (len(column.table.counts) if column.table is not None else 0)
