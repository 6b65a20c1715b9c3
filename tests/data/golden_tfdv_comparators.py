"""The better answer where TFDV's comparators are wrong, worked out from the input and from what TFDV printed.

Numbers: TFDV's L-infinity and normalized difference of a number are always 0; ours are over its values. NaN and
infinities: TFDV puts the share of each side, a and b, into a cell of its own, which adds ½a + ½b to the divergence;
ours puts both into one cell, which adds ½a·log2(a/m) + ½b·log2(b/m), m = ½(a + b).
"""

from __future__ import annotations

import json
import math
from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

HIGH = {
    "infinity_norm": "COMPARATOR_L_INFTY_HIGH",
    "jensen_shannon_divergence": "COMPARATOR_JENSEN_SHANNON_DIVERGENCE_HIGH",
    "normalized_abs_difference": "COMPARATOR_NORMALIZED_ABSOLUTE_DIFFERENCE_HIGH",
}
MEASURES = {
    "infinity_norm": "L_INFTY",
    "jensen_shannon_divergence": "JENSEN_SHANNON_DIVERGENCE",
    "normalized_abs_difference": "NORMALIZED_ABSOLUTE_DIFFERENCE",
}
SIDES = {"drift": "previous_span", "skew": "serving"}
ODD = ("nan", "inf", "-inf")


def corrected(case: dict[str, Any], feature: dict[str, Any], kinds: list[str]) -> list[str]:
    """The feature's anomalies with those of its comparators as they should be."""
    if not leaves(case["input"][feature["name"]]["values"]):
        return kinds
    kinds = [kind for kind in kinds if kind not in HIGH.values()]
    for change in SIDES:
        for key, value in measured(case, feature, change).items():
            if value is None:
                kinds = [*kinds, "COMPARATOR_CONTROL_DATA_MISSING"]
            elif value > feature[f"{change}_comparator"][key]["threshold"]:
                kinds = [*kinds, HIGH[key]]
    return kinds


def measured(case: dict[str, Any], feature: dict[str, Any], change: str) -> dict[str, float | None]:
    """Each comparator's value; None where there is nothing to compare with, which TFDV takes for equal, or for shares
    of 0."""
    name = feature["name"]
    column, control = case["input"].get(name), case.get(SIDES[change], {}).get(name)
    bounds = {key: part for key, part in feature.get(f"{change}_comparator", {}).items() if "threshold" in part}
    if column is None or control is None:
        return {}
    current, before = ([_key(value) for value in leaves(one["values"])] for one in (column, control))
    texts = [one["type"] in ("string", "bytes") for one in (column, control)]
    if not current:
        return {}
    if not before or texts[0] != texts[1]:
        return dict.fromkeys(bounds)
    found: dict[str, float | None] = {}
    for key, part in bounds.items():
        if "divergence" in key and not texts[0] and part.get("source", {}).get("type") != "QUANTILES":
            found[key] = divergence(case, name, change, current, before)
            continue
        numbers = not texts[0] and "bool" not in (column["type"], control["type"])
        value = found[key] = counted(key, *(neighbourhoods(current, before) if numbers else (current, before)))
        if texts[0] and not any("bytes_hex" in one for one in (*current, *before)) and _whole(case):
            assert value == pytest.approx(_printed(case, name, change, MEASURES[key]), rel=1e-6, abs=1e-9)
    return found


def about(case: dict[str, Any]) -> float:
    """How far a divergence may be off, TFDV's being of a sketch: where values are NaN or infinite we draw it anew."""
    columns = [column for side in ("input", *SIDES.values()) for column in case.get(side, {}).values()]
    return 0.01 if any(value in ODD for column in columns for value in leaves(column["values"])) else 1e-4


def leaves(value: Any) -> list[Any]:
    """The values within lists, none missing."""
    if isinstance(value, list):
        return [item for one in value for item in leaves(one)]
    return [] if value is None else [value]


def _key(value: Any) -> Any:
    """Bytes are a text where they are UTF-8."""
    if not isinstance(value, dict):
        return value
    try:
        return bytes.fromhex(value["bytes_hex"]).decode()
    except UnicodeDecodeError:
        return json.dumps(value)


def _whole(case: dict[str, Any]) -> bool:
    """Whether TFDV compared all values, not only the most frequent."""
    return "num_rank_histogram_buckets" not in (case["config"].get("stats_options") or {})


def neighbourhoods(current: list[Any], control: list[Any]) -> tuple[list[Any], list[Any]]:
    """Numbers as the cells they are in: integers of up to a hundred values as they are, others in twentieths of the
    mass of both sides in equal parts. A value of a twentieth is a cell of its own."""
    finite = [[value for value in side if value not in ODD] for side in (current, control)]
    distinct = sorted({*finite[0], *finite[1]})
    whole = not any(isinstance(value, float) for value in distinct) and len(distinct) == len({*current, *control})
    if whole and len(distinct) <= 100:
        return current, control
    counts = [(Counter(side), len(side)) for side in finite if side]
    cells: dict[Any, Any] = {odd: odd for odd in ODD}
    before, alone = Fraction(), 0
    for value in distinct:
        mass = sum((Fraction(count[value], rows) for count, rows in counts), Fraction()) / 2
        alone += mass * 20 >= 1
        cells[value] = (min(math.floor(before * 20), 19), alone, value if mass * 20 >= 1 else None)
        before += mass
    return [cells[value] for value in current], [cells[value] for value in control]


def counted(key: str, current: list[Any], control: list[Any]) -> float:
    """A distance over values, by counting."""
    a, b = Counter(current), Counter(control)
    if key == "normalized_abs_difference":
        return max(abs(a[value] - b[value]) for value in a | b) / (len(current) + len(control))
    shares = [(a[value] / len(current), b[value] / len(control)) for value in a | b]
    if key == "infinity_norm":
        return max(abs(one - other) for one, other in shares)
    parts = [share * math.log2(2 * share / sum(pair)) for pair in shares for share in pair if share]
    return math.fsum(parts) / 2


def divergence(case: dict[str, Any], name: str, change: str, current: list[Any], control: list[Any]) -> float:
    """What TFDV printed, but where a side has NaN or infinities: it leaves NaN out that one side alone has, and gives
    each side cells of its own for the rest. There it is worked out from ten buckets of the finite values."""
    if not {*current, *control} & {*ODD}:
        return _printed(case, name, change, "JENSEN_SHANNON_DIVERGENCE")
    sides = [np.array([value for value in side if value not in ODD], np.float64) for side in (current, control)]
    bounds = np.unique(np.concatenate([np.linspace(side.min(), side.max(), 11) for side in sides if len(side)]))
    masses = []
    for side, values in zip((current, control), sides, strict=True):
        finite = [len(values) / len(side) * share for share in _spread(values, bounds)]
        masses.append([*finite, *(side.count(odd) / len(side) for odd in ODD)])
    return (
        math.fsum(
            share * math.log2(2 * share / (p + q)) for p, q in zip(*masses, strict=True) for share in (p, q) if share
        )
        / 2
    )


def _spread(values: Any, bounds: Any) -> Any:
    """The shares of ten buckets, closed above, even within each, over finer bounds; then those of points."""
    points = np.zeros(len(bounds))
    if not len(values) or values.min() == values.max():
        points[np.searchsorted(bounds, values[:1])] = 1.0
        return np.concatenate((np.zeros(len(bounds) - 1), points))
    # Ten buckets are drawn from a thousand quantiles, each even up to the next.
    marks = np.quantile(values, np.arange(1001) / 1000, method="inverted_cdf")
    low, high = marks[:-1], marks[1:]
    edges = np.linspace(values.min(), values.max(), 11)
    upto = [0.0] + [
        float(np.where(high <= edge, 1, np.clip((edge - low) / np.maximum(high - low, 1e-300), 0, 1)).mean())
        for edge in edges[1:]
    ]
    return np.concatenate((np.diff(np.interp(bounds, edges, upto)), points))


def _printed(case: dict[str, Any], name: str, change: str, measure: str) -> float:
    return next(
        float(measured["value"])
        for info in case["expected"]["drift_skew_info"]
        if info["path"]["step"] == [name]
        for measured in info[f"{change}_measurements"]
        if measured["type"] == measure
    )
