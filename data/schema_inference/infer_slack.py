"""Bounds proposed with slack: where numbers may lie, and how many rows may lack a value.

A bound on exactly what was seen fires on the next span, so there is none without slack.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from ..aggregates.tables import NumberTable
from ..schemas.schema import Range
from ..stats.column import ColumnState

CONFIDENCE: Final = 0.99  # one-sided


def range_with_slack(column: ColumnState, slack: float) -> Range | None:
    """The column's range, widened at both ends by a share of its span; None for one value, or no finite one.

    There is no end where an infinity was seen, and none that a value cannot have. An end does not cross zero: what was
    never negative (counts, distances, money) is not proposed to become so. Ends are rounded outwards, integers to
    integers and floats to a thousandth of the span's power of ten.
    """
    table = column.table
    if column.sketches is not None:
        low, high = column.sketches.low, column.sketches.high
    elif isinstance(table, NumberTable):
        low, high = table.values[0].item(), table.values[-1].item()
    else:
        return None
    if low is None or high is None or low == high or not math.isfinite(float(high) - float(low)):
        return None
    more = slack * (float(high) - float(low))
    if column.kind == "int":
        bottom, top = low - math.ceil(more), high + math.ceil(more)
    else:
        bottom, top = low - more, high + more
        digits = 3 - math.floor(math.log10(high - low))
        bottom, top = min(_rounded(bottom, digits, math.floor), low), max(_rounded(top, digits, math.ceil), high)
    ends = (0 if bottom < 0 <= low else bottom, 0 if top > 0 >= high else top)
    seen = (column.negative_infinity, column.positive_infinity)
    least, most = (None if beyond or not _is_end(end, column) else end for end, beyond in zip(ends, seen, strict=True))
    return None if least is None and most is None else Range(least, most)


def _is_end(end: float, column: ColumnState) -> bool:
    return -(2**63) <= end < 2**64 if column.kind == "int" else math.isfinite(end)


def _rounded(value: float, digits: int, outwards: Callable[[float], int]) -> float:
    if abs(digits) > 300:  # no float has so many
        return value
    scale = 10.0**digits
    return round(outwards(value * scale) / scale, max(digits, 0)) if math.isfinite(value * scale) else value


def least_present(present: int, rows: int, slack: float) -> float:
    """A smallest share of rows with a value: the lower confidence bound of the share seen, less the slack's part of it.

    The bound is Clopper and Pearson's (1934): few rows prove little. Rounded down to three digits.
    """
    from scipy.special import betaincinv

    bound = float(betaincinv(present, rows - present + 1, 1 - CONFIDENCE)) * max(0.0, 1 - slack)
    return math.floor(bound * 1000) / 1000
