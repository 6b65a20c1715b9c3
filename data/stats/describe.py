"""A column's state as plain JSON values: what a statistics document says about one feature.

Rows counted (count, missing, nan, …) are integers and always exact. Every other number is an object that says whether
it is: `{"value": 3.5, "exact": true}`, or
`{"value": 998713, "exact": false, "error": 0.0081, "method": "hyperloglog"}`.
The error of a distinct count is its relative standard error; of quantiles and histograms the largest error in rank, as
a fraction of the rows; of a top value the rows by which its count may be too low. A number without a value (the mean of
nothing) is None. Times are ISO 8601 text, in UTC where the column has a time zone.

A histogram's buckets are [low, high), the last one with its high. Those of whole numbers are whole, and of several data
sets that are described together, and of their slices, they are the same.

Decimals with more than 15 digits are rounded to float64, with the relative error of that ("method": "float64"). Where
their type has 16 to 18 digits, the numbers that `decimals` gives are exact, as text where no float64 is the same.

Bytes have "min_bytes" and "max_bytes" of a value, and where any value begins like an image, "images": their "formats",
and the smallest and largest of their widths and heights in pixels (see `images`).

A list has "lengths", the number of items per list (an empty list is not missing: it has 0), and "values", a description
of the items; of a list of lists, "values" has both again. A struct has "fields", descriptions with names. Their "count"
and "missing" are among what the outer level has: the items of lists, or the structs, that are not null.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..aggregates.sketches import sketch_quantiles
from ..aggregates.sums import ExactMoments
from ..aggregates.tables import (
    NumberTable,
    TextTable,
    bucket_edges,
    histogram,
    invalid_utf8,
    quantiles,
    show_text,
    text_lengths,
    top,
)
from .column import NUMERIC, TEXT, ColumnState
from .decimals import exact_numbers
from .images import describe_images

_TIMES: Final = frozenset({"timestamp", "date", "time"})
_WHOLE: Final = frozenset({"int", "bool", "list"})  # of a list, its length
_DECILES: Final = tuple(level / 10 for level in range(11))


class _HasInner(Protocol):
    @property
    def inner(self) -> Mapping[str, Self]: ...


_Nested = TypeVar("_Nested", bound=_HasInner)


class Detail(NamedTuple):
    """How much a document lists of each column: most frequent values, buckets of a histogram, levels of quantiles."""

    top_values: int = 20
    buckets: int = 10
    quantiles: tuple[float, ...] = _DECILES


def describe_column(
    column: ColumnState,
    detail: Detail = Detail(),  # noqa: B008 - immutable
    beside: Sequence[ColumnState] = (),
) -> dict[str, Any]:
    """The description of a column as JSON-able values (see the module's text).

    Args:
        column: The state.
        detail: How much is listed.
        beside: The same column in all data sets that are described together, this one among them: their histograms
            have the same buckets, so that they can be compared.
    """
    table = column.table
    description: dict[str, Any] = {
        "name": column.name,
        "type": column.kind,
        "arrow": column.arrow,
        "count": column.count,
        "missing": column.missing,
    }
    if column.unit:
        description["unit"] = column.unit
    if column.zone:
        description["zone"] = column.zone
    if column.kind in TEXT:
        description |= _text(column, table if isinstance(table, TextTable) else None, detail)
        return description | describe_images(column.images)
    if column.kind in NUMERIC:
        numbers = table if isinstance(table, NumberTable) else None
        if column.kind == "list":
            values = describe_column(column.inner["values"], detail, inner_columns(beside, "values"))
            del values["name"]
            return description | {"lengths": _numbers(column, numbers, detail, beside), "values": values}
        facts = _numbers(column, numbers, detail, beside)
        facts = _rounded(facts) if column.rounded else facts
        for places, units in column.inner.items():  # of decimals
            facts |= exact_numbers(units, int(places), detail.quantiles, detail.top_values)
        return description | facts
    if column.kind == "struct":
        fields = [
            describe_column(inner, detail, inner_columns(beside, name)) | {"name": name}
            for name, inner in column.inner.items()
        ]
        return description | {"fields": fields}
    return description


def _rounded(facts: dict[str, Any]) -> dict[str, Any]:
    """The numbers of decimals that were rounded to float64: no longer exact, but for rows counted and zeros."""
    rough = {"exact": False, "error": sys.float_info.epsilon / 2, "method": "float64"}
    return {
        name: item | rough if name != "zeros" and isinstance(item, dict) and item["exact"] else item
        for name, item in facts.items()
    }


def _text(column: ColumnState, table: TextTable | None, detail: Detail) -> dict[str, Any]:
    sketches = column.sketches
    if sketches is not None:
        characters = sketches.length if column.kind == "string" else sketches.bytes
        facts = {
            "unique": _distinct(column),
            "avg_length": _exact(characters / column.count),
            "top_values": _frequent(column, detail),
        }
        if column.kind == "string" and sketches.broken:
            facts["invalid_utf8"] = _exact(sketches.broken)
        return facts
    if table is None:
        return {"unique": _exact(0), "avg_length": _exact(None), "top_values": _exact([])}
    lengths = text_lengths(table.values) if column.kind == "string" else None
    total = int((lengths * table.counts).sum()) if lengths is not None else _bytes(table)
    facts = {
        "unique": _exact(len(table.counts)),
        "avg_length": _exact(total / column.count),
        "top_values": _exact(
            [{"value": show_text(value), "count": count} for value, count in top(table, detail.top_values)]
        ),
    }
    if column.kind == "string" and (broken := invalid_utf8(table)):
        facts["invalid_utf8"] = _exact(broken)
    return facts


def _bytes(table: TextTable) -> int:
    return sum(len(value) * int(count) for value, count in zip(table.values.to_pylist(), table.counts, strict=True))


def _numbers(
    column: ColumnState, table: NumberTable | None, detail: Detail, beside: Sequence[ColumnState]
) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    if column.kind == "float":
        facts = {
            "nan": column.nan,
            "positive_infinity": column.positive_infinity,
            "negative_infinity": column.negative_infinity,
        }
    if column.sketches is not None:
        return facts | _from_sketches(column, detail, beside)
    moments = ExactMoments()
    if table is not None:
        moments.add(table.values, table.counts)
    empty = table is None
    low, high = _ends(column) or (None, None)
    if column.kind not in _TIMES:
        facts |= {
            "mean": _exact(None if empty else moments.mean()),
            "std": _exact(None if empty else moments.std()),
            "zeros": _exact(0 if table is None else int(table.counts[table.values == 0].sum())),
        }
    facts |= {
        "min": _exact(_show(column, low)),
        "max": _exact(_show(column, high)),
        "unique": _exact(0 if table is None else len(table.counts)),
    }
    spread = [] if table is None else quantiles(table, detail.quantiles)
    middle = None if table is None else quantiles(table, [0.5])[0]
    pairs = [] if table is None else top(table, detail.top_values)
    return facts | {
        "median": _exact(_show(column, middle)),
        "quantiles": _exact([_show(column, value) for value in spread]),
        "histogram": _exact([] if table is None else _histogram(column, table, detail.buckets, beside)),
        "top_values": _exact([{"value": _show(column, value), "count": count} for value, count in pairs]),
    }


def _from_sketches(column: ColumnState, detail: Detail, beside: Sequence[ColumnState]) -> dict[str, Any]:
    sketches = column.sketches
    assert sketches is not None
    summary = sketches.quantile.table()
    rough = {"exact": False, "error": sketches.quantile.error / max(summary.total, 1), "method": "compaction"}
    facts: dict[str, Any] = {}
    if column.kind not in _TIMES:
        zeros = sketches.zeros
        facts = {
            "mean": _exact(sketches.moments.mean()),
            "std": _exact(sketches.moments.std()),
            "zeros": _exact(zeros),
        }
    assert sketches.low is not None
    assert sketches.high is not None
    ends = {0.0: sketches.low, 1.0: sketches.high}
    inner = zip(detail.quantiles, sketch_quantiles(summary, detail.quantiles), strict=True)
    spread = [ends[level] if level in ends else _whole(column, value) for level, value in inner]
    # The values that a summary kept need not include the extremes; the buckets span the true range.
    clipped = NumberTable(np.clip(summary.values, float(sketches.low), float(sketches.high)), summary.counts)
    return facts | {
        "min": _exact(_show(column, sketches.low)),
        "max": _exact(_show(column, sketches.high)),
        "unique": _distinct(column),
        "median": {"value": _show(column, _whole(column, sketch_quantiles(summary, [0.5])[0])), **rough},
        "quantiles": {"value": [_show(column, value) for value in spread], **rough},
        "histogram": {"value": _histogram(column, clipped, detail.buckets, beside), **rough},
        "top_values": _frequent(column, detail),
    }


def _exact(value: Any) -> dict[str, Any]:
    return {"value": value, "exact": True}


def _distinct(column: ColumnState) -> dict[str, Any]:
    assert column.sketches is not None
    sketch = column.sketches.distinct
    error = round(sketch.standard_error, 4)
    return {"value": sketch.estimate(), "exact": False, "error": error, "method": "hyperloglog"}


def _frequent(column: ColumnState, detail: Detail) -> dict[str, Any]:
    assert column.sketches is not None
    sketch = column.sketches.frequent
    pairs = top(sketch.table, detail.top_values) if sketch.table is not None else []
    shown = [
        {"value": show_text(value) if isinstance(value, bytes) else _show(column, value), "count": count}
        for value, count in pairs
    ]
    return {"value": shown, "exact": False, "error": sketch.error, "method": "misra-gries"}


def _histogram(
    column: ColumnState, table: NumberTable, buckets: int, beside: Sequence[ColumnState]
) -> list[dict[str, Any]]:
    """Buckets of equal width over all the columns' values; where they are all one value, one bucket."""
    same_kind = [other for other in beside if other.kind == column.kind and other.unit == column.unit]
    ends = [ends for other in (same_kind or [column]) if (ends := _ends(other)) is not None]
    low, high = min(low for low, _ in ends), max(high for _, high in ends)
    if low == high:
        return [{"low": _show(column, low), "high": _show(column, high), "count": table.total}]
    edges = edges_of(column.kind, low, high, buckets)
    counts = histogram(table.values, table.counts, edges)
    shown = [_show(column, _whole(column, edge)) if column.kind in _TIMES else edge for edge in edges.tolist()]
    return [{"low": shown[index], "high": shown[index + 1], "count": int(count)} for index, count in enumerate(counts)]


def _ends(column: ColumnState) -> tuple[int | float, int | float] | None:
    """The smallest and the largest finite value; None where there is none."""
    if column.sketches is not None:
        assert column.sketches.low is not None
        assert column.sketches.high is not None
        return column.sketches.low, column.sketches.high
    table = column.table
    return (table.values[0].item(), table.values[-1].item()) if isinstance(table, NumberTable) else None


def inner_columns(beside: Sequence[_Nested], name: str) -> list[_Nested]:
    """What a field of structs, or the items of lists, is in each of several columns that have it."""
    return [other.inner[name] for other in beside if name in other.inner]


def edges_of(kind: str, low: int | float, high: int | float, buckets: int) -> NDArray[np.float64]:
    """The edges of a histogram's buckets: of equal width from low to high; of whole numbers, whole numbers.

    Up to twice as many whole numbers as buckets are wanted have a bucket each; else each bucket holds as many of them,
    and the last may reach beyond the largest. Beyond 2^53, where float64 skips whole numbers, they count as others.
    """
    span = high - low + 1
    if kind not in _WHOLE or max(abs(low), abs(high)) + span >= 1 << 53:
        return bucket_edges(low, high, buckets)
    width = 1 if span <= 2 * buckets else math.ceil(span / buckets)
    return float(low) + width * np.arange(math.ceil(span / width) + 1, dtype=np.float64)


def _whole(column: ColumnState, value: float) -> int | float:
    return value if column.kind == "float" else round(value)


def _show(column: ColumnState, value: int | float | None) -> Any:
    """A number of the column as JSON: times as ISO 8601 text, bool as such, an integer beyond 64 bits as text."""
    if value is None or column.kind == "float":
        return value
    if column.kind == "bool" and value in (0, 1):
        return bool(value)
    if column.kind in _TIMES:
        return iso(round(value), column.kind, column.unit, column.zone)
    return value


_LAST_TIME: Final = (1 << 63) - 1


def iso(value: int, kind: str, unit: str, zone: str) -> str:
    """ISO 8601 text of a date (days or milliseconds), a time of day, or an instant since 1970 (with Z if zoned)."""
    # An edge of a histogram may be rounded beyond int64, whose smallest number is numpy's NaT.
    text = str(np.datetime64(min(max(value, -_LAST_TIME), _LAST_TIME), unit))  # type: ignore[call-overload]  # unit is data
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    if kind == "time":
        return text.partition("T")[2]
    if kind == "date":
        return text[:10] if unit == "ms" else text
    return text + ("Z" if zone else "")
