"""A column's weighted state as plain numbers, shaped as `describe` shapes the unweighted ones.

Quantiles are the averaged inverse of the weights' cumulative share (type 2 of Hyndman and Fan 1996), which for whole
weights is that of rows repeated as often. A histogram spans all values, those without weight as well, as TFDV's does;
top values are those with weight, heaviest first, ties by value descending. An error of `binning` is relative to the
value; one of `misra-gries` is the weight that a value may be short of.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any, Final

import numpy as np

from ..aggregates.sums import rounded
from ..aggregates.tables import show_text
from .column import TEXT
from .describe import Detail, edges_of, inner_columns, iso
from .weighted_column import WeightedColumn, weighted_length
from .weighted_table import (
    UNIT,
    WeightedTable,
    Weights,
    heaviest,
    total,
    weighted_moments,
)

_TIMES: Final = frozenset({"timestamp", "date", "time"})
_NON_FINITE: Final = ("nan", "positive_infinity", "negative_infinity")


def weight_of(units: int) -> float:
    """A weight in units of 2^-96 as a number."""
    return rounded(units * UNIT)


def describe_weighted(column: WeightedColumn, detail: Detail, beside: Sequence[WeightedColumn] = ()) -> dict[str, Any]:
    """The weighted counterpart of a feature: counts are weights; a list has `lengths` and `values`, a struct `fields`.

    `beside` as of `describe_column`.
    """
    description: dict[str, Any] = {"count": weight_of(column.present), "missing": weight_of(column.missing)}
    if column.kind == "list" and column.inner:
        return description | {
            "lengths": _numbers(column.inner["lengths"], detail, inner_columns(beside, "lengths")),
            "values": describe_weighted(column.inner["values"], detail, inner_columns(beside, "values")),
        }
    if column.kind == "struct":
        fields = [
            {"name": name} | describe_weighted(field, detail, inner_columns(beside, name))
            for name, field in column.inner.items()
        ]
        return description | {"fields": fields}
    if column.kind in TEXT:
        return description | _texts(column, detail)
    if column.kind in ("null", "list", "struct", "other"):
        return description
    if column.kind == "float":
        description |= {name: weight_of(units) for name, units in zip(_NON_FINITE, column.odd, strict=True)}
    return description | _numbers(column, detail, beside)


def _texts(column: WeightedColumn, detail: Detail) -> dict[str, Any]:
    table = column.table
    if table is None:
        return {"avg_length": _exact(None), "top_values": _exact([])}
    length = column.length if column.spilled else weighted_length(table, column.kind)
    shown = [
        {"value": show_text(table.values[row].as_py()), "count": weight_of(table.weights[row])}
        for row in heaviest(table.weights, detail.top_values)
    ]
    rough = {"value": shown, "exact": False, "error": weight_of(column.error), "method": "misra-gries"}
    return {
        "avg_length": _exact(rounded(Fraction(length, column.present)) if column.present else None),
        "top_values": rough if column.spilled else _exact(shown),
    }


def _numbers(column: WeightedColumn, detail: Detail, beside: Sequence[WeightedColumn]) -> dict[str, Any]:
    table = column.table
    weights = table.weights if table is not None else np.zeros(0, np.object_)
    finite = column.present - sum(column.odd)
    facts: dict[str, Any] = {}
    if column.kind not in _TIMES:
        mean, std = None, None
        if table is not None and finite:
            sums = column.moments if column.spilled else weighted_moments(table)
            mean, std = _mean_and_deviation(*sums, finite * UNIT)
        facts = {"mean": _exact(mean), "std": _exact(std)}
    values = _values(table, column.extremes)
    precision: dict[str, Any] = {"exact": True}
    if table is not None and table.bits is not None:
        precision = {"exact": False, "error": 2.0 ** -(table.bits + 1), "method": "binning"}
    middle = weighted_quantiles(values, weights, [0.5])
    listed = [
        {"value": _show(column, values[row]), "count": weight_of(weights[row])}
        for row in heaviest(weights, detail.top_values)
    ]
    at_levels = weighted_quantiles(values, weights, detail.quantiles)
    return facts | {
        "median": {"value": _show(column, middle[0]) if middle else None, **precision},
        "quantiles": {"value": [_show(column, value) for value in at_levels], **precision},
        "histogram": {"value": _histogram(column, values, weights, detail.buckets, beside), **precision},
        "top_values": {"value": listed, **precision},
    }


def _mean_and_deviation(first: Fraction, second: Fraction, weight: Fraction) -> tuple[float, float]:
    mean = first / weight
    return rounded(mean), math.sqrt(max(rounded(second / weight - mean**2), 0.0))


def weighted_quantiles(values: Sequence[float], weights: Weights, levels: Sequence[float]) -> list[float]:
    """Quantiles of ascending values; nothing where no value has weight.

    The smallest value whose cumulative share reaches the level; where it just reaches it, the mean of that value and
    the next one with weight. For levels 0 and 1, the smallest and the largest value.
    """
    kept = np.flatnonzero(weights)
    if not len(kept):
        return []
    ends = np.cumsum(weights[kept]).tolist()
    last = len(kept) - 1
    at_levels = []
    for level in levels:
        wanted = Fraction(str(level)) * ends[-1]
        reached = bisect_left(ends, wanted)
        low = values[kept[reached]]
        high = values[kept[min(reached + 1, last)]] if level > 0 and ends[reached] == wanted else low
        at_levels.append(_midpoint(low, high))
    return at_levels


def _midpoint(low: float, high: float) -> float:
    """The mean of two numbers."""
    if low == high:
        return low  # a whole number stays one
    if abs(low) > 1e300:
        return low / 2 + high / 2  # their sum could overflow; halves of small numbers would lose digits
    return (low + high) / 2


def _values(table: WeightedTable | None, extremes: tuple[Any, Any] | None) -> list[Any]:
    """The table's values; of values that were cut, the middle of each one's interval, within `extremes`."""
    if table is None:
        return []
    if table.bits is None:
        values: list[Any] = table.values.tolist()
        return values
    # frexp's mantissa is in [½, 1): an interval of values cut to `bits` is 2^(exponent - 1 - bits) wide.
    mantissa, exponent = np.frexp(table.values)
    half = np.ldexp(np.sign(mantissa), exponent - 2 - table.bits)
    assert extremes is not None
    middles: list[Any] = np.clip(table.values + half, float(extremes[0]), float(extremes[1])).tolist()
    return middles


def _histogram(
    column: WeightedColumn, values: list[Any], weights: Weights, buckets: int, beside: Sequence[WeightedColumn]
) -> list[dict[str, Any]]:
    """Weight per bucket, the buckets being those of the unweighted counterpart."""
    if not values:
        return []
    same_kind = [other for other in beside if other.kind == column.kind and other.unit == column.unit]
    ends = [ends for other in (same_kind or [column]) if (ends := _ends(other)) is not None]
    low, high = min(low for low, _ in ends), max(high for _, high in ends)
    if low == high:
        return [{"low": _show(column, low), "high": _show(column, high), "count": weight_of(total(weights))}]
    edges = edges_of(column.kind, low, high, buckets)
    cuts = [0, *np.searchsorted(np.array(values, np.float64), edges[1:-1], side="left").tolist(), len(values)]
    sums = [total(weights[first:end]) for first, end in pairwise(cuts)]
    shown = [_show(column, edge) if column.kind in _TIMES else edge for edge in edges.tolist()]
    return [{"low": shown[i], "high": shown[i + 1], "count": weight_of(weight)} for i, weight in enumerate(sums)]


def _ends(column: WeightedColumn) -> tuple[Any, Any] | None:
    """The smallest and the largest finite value; None where there is none."""
    if column.extremes is not None:
        return column.extremes
    values = _values(column.table, None)
    return (values[0], values[-1]) if values else None


def _exact(value: Any) -> dict[str, Any]:
    return {"value": value, "exact": True}


def _show(column: WeightedColumn, value: float) -> Any:
    """A number of the column as JSON: times as ISO 8601 text, booleans as such."""
    if column.kind in _TIMES:
        return iso(round(value), column.kind, column.unit, column.zone)
    if column.kind == "bool" and value in (0, 1):
        return bool(value)
    return value
