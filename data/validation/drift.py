"""The schema's bounds on drift and skew: an anomaly for each number beyond its bound, and for each without a control.

A number equal to its bound passes, as in TFDV. Other than there, what cannot be compared is an anomaly, not a pass.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from ...report.html import number, percent
from ..drift_skew.compare import Comparison
from ..drift_skew.pair import comparable
from ..schemas.comparators import COMPARATORS, CONTROL_MISSING
from ..schemas.schema import Feature, Ratio, Schema
from ..schemas.struct_fields import Path, path_name, state_at, with_fields
from ..stats.column import ColumnState
from ..stats.document import Statistics
from .anomalies import Anomaly

_SIDES: Final = {"drift": ("current", "previous"), "skew": ("training", "serving")}  # TFDV's words


def drift_anomalies(
    statistics: Statistics, control: Statistics, schema: Schema, features: Sequence[Feature], change: str
) -> Iterator[Anomaly]:
    """The anomalies of every data set against the control's of the same name, or the only one that the control has.

    A feature that a data set does not have, or only without values, is not compared: its presence says what that means.
    So nothing is wrong with one that is empty on both sides.

    Args:
        statistics: What is validated.
        control: What it is compared with.
        schema: Gives the severities.
        features: Those of the schema that are looked at.
        change: Which of their bounds: "drift" or "skew".
    """
    only = next(iter(control.splits)) if len(control.splits) == 1 else None
    for split in statistics.splits:
        name = split if split in control.splits else only
        controls = {} if name is None else control.state(name).columns
        for path, spec in with_fields(features, checked=True):
            column, most = state_at(statistics.state(split).columns, path), getattr(spec, change)
            if column is not None and column.rows and most:
                yield from _FeatureBounds(schema, path, spec, split, change, most).check(
                    column, state_at(controls, path)
                )


def row_count_anomalies(
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
        proportion = Fraction(rows, before) if before else math.inf
        low, high = ratio.min, ratio.max
        for kind, bound, broken, word in (
            ("COMPARATOR_LOW_NUM_EXAMPLES", low, low is not None and proportion < Fraction(str(low)), "least"),
            ("COMPARATOR_HIGH_NUM_EXAMPLES", high, high is not None and proportion > Fraction(str(high)), "most"),
        ):
            if broken:
                yield Anomaly(
                    kind, schema.severity_of(kind), split, None,
                    f"{split} has {number(rows)} rows, {float(proportion):.6g} times the {number(before)} of {title}",
                    expected=f"at {word} {bound} times", observed=f"{float(proportion):.6g} times",
                    fix="look for rows that were lost or read twice, or change the ratio in the schema's `rows`",
                )  # fmt: skip


@dataclass(frozen=True)
class _FeatureBounds:
    """The bounds of one feature in one data set."""

    schema: Schema
    path: Path
    spec: Feature
    split: str
    change: str
    most: Mapping[str, float]

    def anomaly(self, kind: str, message: str, **more: Any) -> Anomaly:
        severity = self.spec.severity.get(kind) or self.schema.severity_of(kind)
        path = self.path if len(self.path) > 1 else ()
        return Anomaly(kind, severity, self.split, self.name, message, path=path, **more)

    @property
    def name(self) -> str:
        return path_name(self.path)

    def arrow(self, new: str, old: str) -> str:
        """Two shares in the order of time: from the span before to this one, from training to serving."""
        return f"{new} → {old}" if self.change == "skew" else f"{old} → {new}"

    def check(self, column: ColumnState, control: ColumnState | None) -> Iterator[Anomaly]:
        name, (here, there) = self.name, _SIDES[self.change]
        bounds = self.most
        if not column.levels[-1].count or (control is not None and _is_empty(column) and _is_empty(control)):
            bounds = {comparator: most for comparator, most in bounds.items() if comparator == "missing_rate"}
        if not bounds:
            return
        why, both = "", None
        if control is None or not control.rows:
            why = f"the {there} data has no {name}"
        else:
            both = Comparison(column, control)
            new, old = both.current, both.previous
            if not old.count and set(bounds) != {"missing_rate"}:
                why = f"{name} has no values in the {there} data"
            elif new.count and old.count and not comparable(new, old):
                why = f"{name} is {new.kind}, in the {there} data {old.kind}"
        if why or both is None:
            yield self.anomaly(
                CONTROL_MISSING, f"{why}: nothing to compare the {here} data with",
                expected=f"{name} in the {there} data", observed=why,
                fix=f"give statistics of {there} data that has {name}, or remove its bounds ({self.change})",
            )  # fmt: skip
            return
        for comparator, most in bounds.items():
            yield from self.bound(both, comparator, most)

    def bound(self, both: Comparison, comparator: str, most: float) -> Iterator[Anomaly]:
        wanted, (here, there) = COMPARATORS[comparator], _SIDES[self.change]
        measure = both.measure(wanted.measure)
        distance: float | None = getattr(measure, wanted.field)
        if distance is not None and distance <= most:
            return
        if distance is None and _nothing_to_say(both, wanted.measure):
            return
        shown = (
            f"unknown ({measure.note})" if distance is None else f"{'' if measure.exact else 'about '}{distance:.6g}"
        )
        moved = [] if wanted.measure == "missing_rate" else both.moved()
        where = ""
        if wanted.measure == "missing_rate":
            new, old = (percent((side.missing + side.nan) / side.rows) for side in both.present)
            where = "; " + self.arrow(new, old)
        elif moved:
            first = next((item for item in moved if item["value"] == measure.at), moved[0])
            where = f"; {first['value']!r}: {self.arrow(percent(first['current']), percent(first['previous']))}"
        bound = f", more than {number(most)}" if distance is not None else ""
        yield self.anomaly(
            wanted.anomaly,
            f"the {wanted.title} of {self.name} between {here} and {there} data is {shown}{bound}{where}",
            expected=f"at most {number(most)}",
            observed=shown + where,
            values=tuple({**item, "count": round(item["current"] * both.current.count)} for item in moved),
            fix=f"find what changed in the source of {self.name}, or raise its bound ({self.change}: {comparator})",
        )


def _is_empty(column: ColumnState) -> bool:
    """Whether all values are missing; NaN is, as in the missing rate."""
    return column.levels[-1].count == column.levels[-1].nan


def _nothing_to_say(both: Comparison, measure: str) -> bool:
    """Whether a missing number means that there is nothing to compare, rather than that it is not known."""
    return measure == "chi_squared" and len(both.pair.values) + len(both.pair.odd) < 2
