"""The better answer where TFDV's comparators are wrong, worked out from the input and from what TFDV printed.

Numbers: TFDV's L-infinity and normalized difference of a number are always 0; ours are over its values. NaN and
infinities: TFDV puts the share of each side, a and b, into a cell of its own, which adds ½a + ½b to the divergence;
ours puts both into one cell, which adds ½a·log2(a/m) + ½b·log2(b/m), m = ½(a + b).
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

HIGH = {
    "infinity_norm": "COMPARATOR_L_INFTY_HIGH",
    "jensen_shannon_divergence": "COMPARATOR_JENSEN_SHANNON_DIVERGENCE_HIGH",
    "normalized_abs_difference": "COMPARATOR_NORMALIZED_ABSOLUTE_DIFFERENCE_HIGH",
}
SIDES = {"drift": "previous_span", "skew": "serving"}
ODD = ("nan", "inf", "-inf")


def corrected(
    case: dict[str, Any], feature: dict[str, Any], kinds: list[tuple[str, str]], severity: str
) -> list[tuple[str, str]]:
    """The feature's anomalies with those of its comparators as they should be."""
    name = feature.get("name", "")
    for change, side in SIDES.items():
        control = case.get(side, {}).get(name)
        column = case["input"].get(name)
        if control is None or column is None or column["type"] in ("string", "bytes"):
            continue
        values = [[value for value in one["values"] if value is not None] for one in (column, control)]
        if not all(values):
            continue
        for key, part in feature.get(f"{change}_comparator", {}).items():
            threshold = part.get("threshold", math.inf)
            value = divergence(case, name, change, *values) if "divergence" in key else counted(key, *values)
            kinds = [pair for pair in kinds if pair[0] != HIGH[key]]
            if value > threshold:
                kinds = [*kinds, (HIGH[key], severity)]
    return kinds


def counted(key: str, current: list[Any], control: list[Any]) -> float:
    """L-infinity or normalized difference over values, by counting."""
    a, b = Counter(current), Counter(control)
    if key == "infinity_norm":
        return max(abs(a[value] / len(current) - b[value] / len(control)) for value in a | b)
    return max(abs(a[value] - b[value]) for value in a | b) / (len(current) + len(control))


def divergence(case: dict[str, Any], name: str, change: str, current: list[Any], control: list[Any]) -> float:
    """What TFDV printed, with NaN and infinities of both sides in common cells."""
    printed = next(
        measured["value"]
        for info in case["expected"]["drift_skew_info"]
        if info["path"]["step"] == [name]
        for measured in info[f"{change}_measurements"]
        if measured["type"] == "JENSEN_SHANNON_DIVERGENCE"
    )
    for odd in ODD:
        a, b = current.count(odd) / len(current), control.count(odd) / len(control)
        middle = (a + b) / 2
        printed += sum(share * math.log2(share / middle) for share in (a, b) if share) / 2 - middle
    return float(printed)
