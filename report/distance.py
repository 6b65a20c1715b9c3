"""How far apart two descriptions of one feature are, from the numbers that statistics documents keep."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

_Side = tuple[Mapping[str, Any] | None, int]  # a feature's description, and the rows of its data set


def distance(first_side: _Side, second_side: _Side) -> float | None:
    """Jensen–Shannon divergence in bits, 0 to 1, of the shares of values; None where nothing compares.

    Missing rows are a value of their own. Numbers are compared in the cells between both sides' quantiles, so that no
    outlier stretches them; texts by their top values, what is below the top being one value.
    """
    first, second = first_side[0], second_side[0]
    if first is None or second is None or not first_side[1] or not second_side[1]:
        return None if (first is None and second is None) or not (first_side[1] and second_side[1]) else 1.0
    gone = first["missing"] / first_side[1], second["missing"] / second_side[1]
    inner = _described(first), _described(second)
    cells = _cells(*inner)
    if cells is None:
        return divergence([1 - gone[0], gone[0]], [1 - gone[1], gone[1]])
    return divergence(*([*(share * (1 - gone[at]) for share in cells[at]), gone[at]] for at in (0, 1)))


def _described(feature: Mapping[str, Any]) -> Mapping[str, Any]:
    if feature["type"] == "list":
        described: Mapping[str, Any] = feature.get("values") or feature.get("lengths") or feature
        return described if described.get("type") != "list" else described.get("lengths", described)
    return feature


def _cells(first: Mapping[str, Any], second: Mapping[str, Any]) -> tuple[list[float], list[float]] | None:
    spreads = [_finite(side.get("quantiles", {}).get("value")) for side in (first, second)]
    if spreads[0] and spreads[1] and first.get("type") != "bool":
        edges = sorted({*spreads[0], *spreads[1]})
        return _shares(spreads[0], edges), _shares(spreads[1], edges)
    tops = [
        {str(item["value"]): item["count"] for item in side.get("top_values", {}).get("value") or ()}
        for side in (first, second)
    ]
    if not tops[0] or not tops[1]:
        return None
    shares_of_sides = []
    for side, top in zip((first, second), tops, strict=True):
        shares = [top.get(value, 0) / (side.get("count") or sum(top.values())) for value in {**tops[0], **tops[1]}]
        shares_of_sides.append([*shares, max(1 - sum(shares), 0.0)])
    return shares_of_sides[0], shares_of_sides[1]


def _finite(values: Sequence[Any] | None) -> list[float]:
    """Quantiles as ascending numbers, times as seconds; nothing where they are neither."""
    numbers = [_seconds(value) if isinstance(value, str) else float(value) for value in values or ()]
    return numbers if len(numbers) > 1 and all(map(math.isfinite, numbers)) else []


def _seconds(text: str) -> float:
    """ISO 8601 text as seconds; NaN where Python's calendar has no such time."""
    try:
        moment = datetime.fromisoformat(text if "-" in text else f"1970-01-01T{text}")
        return moment.replace(tzinfo=UTC).timestamp()
    except ValueError:
        return math.nan


def _shares(spread: Sequence[float], edges: Sequence[float]) -> list[float]:
    """The share on each edge and between each two, even between neighbouring quantiles, whole on repeated ones."""
    below = [_level(spread, edge, strictly=True) for edge in edges]
    upto = [_level(spread, edge, strictly=False) for edge in edges]
    on = [high - low for low, high in zip(below, upto, strict=True)]
    between = [max(low - high, 0.0) for high, low in zip(upto[:-1], below[1:], strict=True)]
    return [*on, *between]


def _level(spread: Sequence[float], value: float, *, strictly: bool) -> float:
    """The share of rows below a value (`strictly`) or up to it, linear between neighbouring quantiles."""
    steps = len(spread) - 1
    index = bisect_left(spread, value) if strictly else bisect_right(spread, value)
    if index < len(spread) and spread[index] == value:
        return index / steps  # an atom: the quantiles repeat here, or begin here
    if index and spread[index - 1] == value:
        return (index - 1) / steps
    if index == 0:
        return 0.0
    if index > steps:
        return 1.0
    low, high = spread[index - 1], spread[index]
    return (index - 1 + (value - low) / (high - low)) / steps


def divergence(first: Sequence[float], second: Sequence[float]) -> float:
    """Jensen–Shannon divergence in bits of two lists of shares that each sum to 1 (Lin 1991)."""
    total = 0.0
    for p, q in zip(first, second, strict=True):
        middle = (p + q) / 2
        total += sum(share * math.log2(share / middle) / 2 for share in (p, q) if share > 0)
    return min(max(total, 0.0), 1.0)
