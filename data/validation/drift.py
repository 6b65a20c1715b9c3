"""The schema's bounds on drift and skew: an anomaly for each number above its bound, and for each that has no control.

A number equal to its bound passes, as in TFDV. Other than there, what cannot be compared is an anomaly, not a pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ...report.html import number, percent
from ..drift_skew.compare import Comparison
from ..drift_skew.pair import comparable
from ..schemas.comparators import COMPARATORS, CONTROL_MISSING
from ..schemas.schema import Feature, Schema
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
                yield from _Bounds(schema, path, spec, split, change, most).check(column, state_at(controls, path))


@dataclass(frozen=True)
class _Bounds:
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

    def check(self, column: ColumnState, control: ColumnState | None) -> Iterator[Anomaly]:
        name, (here, there) = self.name, _SIDES[self.change]
        why, both = "", None
        if control is None or not control.rows:
            why = f"the {there} data has no {name}"
        else:
            both = Comparison(column, control)
            new, old = both.current, both.previous
            if not old.count and set(self.most) != {"missing_rate"}:
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
        for comparator, most in self.most.items():
            yield from self.bound(both, comparator, most)

    def bound(self, both: Comparison, comparator: str, most: float) -> Iterator[Anomaly]:
        wanted, (here, there) = COMPARATORS[comparator], _SIDES[self.change]
        measure = both.measure(wanted.measure)
        found: float | None = getattr(measure, wanted.field)
        if found is not None and found <= most:
            return
        if found is None and _nothing_to_say(both, wanted.measure):
            return
        shown = f"unknown ({measure.note})" if found is None else f"{'' if measure.exact else 'about '}{found:.6g}"
        moved = [] if wanted.measure == "missing_rate" else both.moved()
        where = ""
        if wanted.measure == "missing_rate":
            shares = (percent((side.missing + side.nan) / side.rows) for side in reversed(both.present))
            where = "; " + " → ".join(shares)
        elif moved:
            first = next((item for item in moved if item["value"] == measure.at), moved[0])
            where = f"; {first['value']!r}: {percent(first['previous'])} → {percent(first['current'])}"
        bound = f", more than {number(most)}" if found is not None else ""
        yield self.anomaly(
            wanted.anomaly,
            f"the {wanted.title} of {self.name} between {here} and {there} data is {shown}{bound}{where}",
            expected=f"at most {number(most)}",
            observed=shown + where,
            values=tuple({**item, "count": round(item["current"] * both.current.count)} for item in moved),
            fix=f"find what changed in the source of {self.name}, or raise its bound ({self.change}: {comparator})",
        )


def _nothing_to_say(both: Comparison, measure: str) -> bool:
    """Whether a missing number means that nothing is there to be compared, rather than that nothing is known."""
    if measure == "missing_rate":
        return False
    return not both.current.count or (measure == "chi_squared" and both.over == "values")
