"""How many rows a data set has in proportion to an earlier span, or to an earlier version of the same span."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from fractions import Fraction

from ...report.html import number
from ..schemas.schema import Ratio, Schema
from .anomalies import Anomaly


def check_rows(
    splits: Mapping[str, int], control: Mapping[str, int], ratio: Ratio, title: str, schema: Schema
) -> Iterator[Anomaly]:
    """Where a data set has too few or too many rows for those of the control's data set of the same name.

    A control of one data set is compared with each. A control without rows is infinitely exceeded, by any row.
    """
    only = next(iter(control)) if len(control) == 1 else None
    for split, rows in splits.items():
        name = split if split in control else only
        if name is None or not rows:  # no rows have an anomaly of their own
            continue
        before = control[name]
        found = Fraction(rows, before) if before else math.inf
        low, high = ratio.min, ratio.max
        for kind, bound, broken, word in (
            ("COMPARATOR_LOW_NUM_EXAMPLES", low, low is not None and found < Fraction(str(low)), "least"),
            ("COMPARATOR_HIGH_NUM_EXAMPLES", high, high is not None and found > Fraction(str(high)), "most"),
        ):
            if broken:
                yield Anomaly(
                    kind, schema.severity_of(kind), split, None,
                    f"{split} has {number(rows)} rows, {float(found):.6g} times the {number(before)} of {title}",
                    expected=f"at {word} {bound} times", observed=f"{float(found):.6g} times",
                    fix="look for rows that were lost or read twice, or change the ratio in the schema's `rows`",
                )  # fmt: skip
