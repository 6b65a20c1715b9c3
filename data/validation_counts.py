"""How many values a row has, and how many distinct ones a column: shape, value counts, unique."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from ..report.html import number
from .anomalies import Anomaly
from .schema import Count, Feature
from .statistics_column import ColumnState
from .validation_evidence import bounds, nesting, numbers_where

Make = Callable[..., Anomaly]  # _Check.anomaly of validation


def check_counts(spec: Feature, column: ColumnState, make: Make) -> Iterator[Anomaly]:
    """Where rows do not have as many values as the feature's shape or value counts say."""
    levels, _ = nesting(column)
    # A column without lists has one value in each row that is not missing.
    low, high = map(int, (end or 0 for end in bounds(column))) if levels else (1, 1)
    observed = f"{low} to {high} values per row" if low != high else f"{low} value{'s' * (low != 1)} per row"
    if spec.shape is not None:
        yield from _shape(spec, column, (low, high), observed, make)
        return
    if len(spec.value_counts) != max(levels, 1):
        wanted = len(spec.value_counts)
        yield make(
            "VALUE_NESTEDNESS_MISMATCH", spec.name,
            f"{spec.name} has {max(levels, 1)} levels of values, the schema says {wanted}",
            expected=f"{wanted} levels", observed=column.arrow,
            fix=f"give {spec.name} one value_count for each level in the schema",
        )  # fmt: skip
        return
    level = spec.value_counts[0]
    if level.min is not None and low < level.min:
        yield make(
            "FEATURE_TYPE_LOW_NUMBER_VALUES", spec.name, f"some rows of {spec.name} have fewer than {level.min} values",
            expected=f"at least {level.min} values per row", observed=observed,
            values=_lengths(column, levels, below=level.min),
            fix=f"find what these rows lost, or lower value_count of {spec.name} in the schema",
        )  # fmt: skip
    if level.max is not None and high > level.max:
        yield make(
            "FEATURE_TYPE_HIGH_NUMBER_VALUES", spec.name, f"some rows of {spec.name} have more than {level.max} values",
            expected=f"at most {level.max} values per row", observed=observed,
            values=_lengths(column, levels, above=level.max),
            fix=f"cut these rows, or raise value_count of {spec.name} in the schema",
        )  # fmt: skip
    if any(count != Count() for count in spec.value_counts[1:]):
        yield make(
            "STATS_NOT_AVAILABLE", spec.name, f"the lists within the lists of {spec.name} are not in the statistics",
            expected="their lengths", observed="lengths of the outer lists",
            fix=f"check them by code, or leave out min and max of the inner levels of {spec.name} in the schema",
        )  # fmt: skip


def _shape(spec: Feature, column: ColumnState, ends: tuple[int, int], observed: str, make: Make) -> Iterator[Anomaly]:
    size = math.prod(spec.shape or ())
    if ends != (size, size) or column.missing:
        missing = f", {number(column.missing)} rows missing" if column.missing else ""
        yield make(
            "INVALID_FEATURE_SHAPE", spec.name, f"{spec.name} does not have the shape {list(spec.shape or ())}",
            expected=f"{size} value{'s' * (size != 1)} in every row", observed=observed + missing,
            fix=f"fill or drop the rows that differ, or give {spec.name} a value_count in place of its shape",
        )  # fmt: skip


def _lengths(
    column: ColumnState, levels: int, *, below: int | None = None, above: int | None = None
) -> tuple[dict[str, Any], ...]:
    return numbers_where(column, below=below, above=above) if levels else ({"value": 1, "count": column.count},)


def check_unique(spec: Feature, wanted: Count, column: ColumnState, make: Make) -> Iterator[Anomaly]:
    """Where a column has too few or too many distinct values; NaN and the infinities are one each."""
    distinct = distinct_values(column)
    observed = f"{'about ' if column.sketches is not None else ''}{number(distinct)} distinct values"
    if wanted.min is not None and distinct < wanted.min:
        yield make(
            "FEATURE_TYPE_LOW_UNIQUE", spec.name, f"{spec.name} has {observed}, fewer than {number(wanted.min)}",
            expected=f"at least {number(wanted.min)} distinct values", observed=observed,
            fix=f"find which values are gone, or lower unique of {spec.name} in the schema",
        )  # fmt: skip
    if wanted.max is not None and distinct > wanted.max:
        yield make(
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
