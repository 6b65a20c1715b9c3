"""Statistics against a schema: every condition is decided from value tables, so rare values are seen as well.

Names and triggers are TFDV's (1.16), with these differences: integers are welcome in a float column; shares are
compared exactly (10 % off is not more than 1 − 0.9); all values are looked at, not the thousand most frequent; the
largest number of rows is checked without a smallest; no rows at all is an error; only errors block.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

import numpy as np

from ..report.html import number, percent
from .anomalies import Anomalies, Anomaly
from .schema import Bool, Feature, Range, Schema, Values
from .statistics_column import ColumnState
from .statistics_document import Statistics
from .statistics_pass import StatisticsAccumulator
from .tables import NumberTable, TextTable, arrow_of, invalid_utf8, show_text, top

SHOWN: Final = 20  # offending values listed per anomaly


def validate(statistics: Statistics, schema: Schema) -> Anomalies:
    """What in the data does not meet the schema; every data set is checked by itself.

    Args:
        statistics: From `statistics` (or loaded).
        schema: What a person accepted.

    Returns:
        The anomalies, without example rows: `anomalous_rows` adds them.
    """
    found: list[Anomaly] = []
    for split, rows in statistics.splits.items():
        found += _Check(split, rows, schema).all(statistics.state(split))
    return Anomalies(statistics.splits, found)


@dataclass(frozen=True)
class _Check:
    """The checks of one data set."""

    split: str
    rows: int
    schema: Schema

    def anomaly(self, kind: str, feature: str | None, message: str, **more: Any) -> Anomaly:
        return Anomaly(
            type=kind,
            severity=self.schema.severity_of(kind, feature),
            split=self.split,
            feature=feature,
            message=message,
            **more,
        )

    def all(self, state: StatisticsAccumulator) -> Iterator[Anomaly]:
        if not self.rows:
            yield self.anomaly(
                "DATA_MISSING", None, f"{self.split} has no rows", expected="at least one row", observed="0 rows",
                fix="check where the data comes from, and how it is split",
            )  # fmt: skip
            return
        yield from self.size()
        known = set()
        for spec in self.schema.features:
            known.add(spec.name)
            column = state.columns.get(spec.name)
            if column is not None:
                yield from self.column(spec, column)
            elif spec.presence.required:
                yield self.anomaly(
                    "SCHEMA_MISSING_COLUMN", spec.name, f"column {spec.name} is not in the data",
                    expected="the column", observed="no such column",
                    fix=f"bring the column back, or remove {spec.name} from the schema",
                )  # fmt: skip
        for name, column in state.columns.items():
            if name not in known:
                yield self.anomaly(
                    "SCHEMA_NEW_COLUMN", name, f"column {name} is not in the schema",
                    expected="no such column", observed=f"{column.kind}, present in {number(column.count)} rows",
                    values=_listed(column), fix=f"remove the column from the data, or add {name} to the schema",
                )  # fmt: skip

    def size(self) -> Iterator[Anomaly]:
        low, high, has = self.schema.min_rows, self.schema.max_rows, f"{self.split} has {number(self.rows)} rows"
        if low is not None and self.rows < low:
            yield self.anomaly(
                "DATASET_LOW_NUM_EXAMPLES", None, f"{has}, fewer than {number(low)}",
                expected=f"at least {number(low)} rows", observed=f"{number(self.rows)} rows",
                fix="look for rows that were lost, or lower rows.min in the schema",
            )  # fmt: skip
        if high is not None and self.rows > high:
            yield self.anomaly(
                "DATASET_HIGH_NUM_EXAMPLES", None, f"{has}, more than {number(high)}",
                expected=f"at most {number(high)} rows", observed=f"{number(self.rows)} rows",
                fix="look for rows that were read twice, or raise rows.max in the schema",
            )  # fmt: skip

    def column(self, spec: Feature, column: ColumnState) -> Iterator[Anomaly]:
        name = spec.name
        if not column.count:
            if spec.presence.required:
                yield self.anomaly(
                    "FEATURE_TYPE_NOT_PRESENT", name, f"{name} is missing in every row",
                    expected="values", observed=f"missing in all {number(self.rows)} rows",
                    fix=f"find where {name} is lost, or remove its presence from the schema",
                )  # fmt: skip
            return
        yield from self.presence(spec, column)
        if not _type_fits(spec.type, column.kind):
            yield self.unexpected_type(spec, column)
        elif isinstance(spec.domain, Values):
            yield from self.values(spec, spec.domain, column)
        elif isinstance(spec.domain, Range):
            yield from self.range(spec, spec.domain, column)
        elif isinstance(spec.domain, Bool):
            yield from self.bool(spec, spec.domain, column)

    def presence(self, spec: Feature, column: ColumnState) -> Iterator[Anomaly]:
        name, wanted = spec.name, spec.presence
        missing = f"missing in {number(column.missing)} of {number(self.rows)} rows"
        if wanted.min_fraction is not None and Fraction(column.count, self.rows) < Fraction(str(wanted.min_fraction)):
            share = percent(column.count / self.rows)
            yield self.anomaly(
                "FEATURE_TYPE_LOW_FRACTION_PRESENT", name, f"{name} is {missing}",
                expected=f"present in at least {percent(wanted.min_fraction)} of the rows",
                observed=f"present in {share}",
                fix=f"fill or drop these rows, or lower min_fraction of {name} in the schema",
            )  # fmt: skip
        if wanted.min_count is not None and column.count < wanted.min_count:
            yield self.anomaly(
                "FEATURE_TYPE_LOW_NUMBER_PRESENT", name, f"{name} is {missing}",
                expected=f"present in at least {number(wanted.min_count)} rows",
                observed=f"present in {number(column.count)}",
                fix=f"find the rows that lost it, or lower min_count of {name} in the schema",
            )  # fmt: skip

    def unexpected_type(self, spec: Feature, column: ColumnState) -> Anomaly:
        odd = _no_numbers(column) if spec.type in ("int", "float") else ()
        table = column.table
        distinct = f", {number(len(table.counts))} distinct" if table is not None else ""
        hint = f"; e.g. {odd[0]['value']!r} is no number" if odd else ""
        return self.anomaly(
            "UNEXPECTED_DATA_TYPE", spec.name, f"{spec.name} is {column.kind}, the schema says {spec.type}{hint}",
            expected=spec.type, observed=f"{column.kind} ({column.arrow}{distinct})", values=odd or _listed(column),
            fix=f"write {spec.name} as {spec.type}, or change its type in the schema",
        )  # fmt: skip

    def values(self, spec: Feature, domain: Values, column: ColumnState) -> Iterator[Anomaly]:
        broken = invalid_utf8(_texts(column))
        if broken:
            yield self.anomaly(
                "ENUM_TYPE_INVALID_UTF8", spec.name, f"{number(broken)} rows of {spec.name} are no valid UTF-8",
                expected="UTF-8", observed=f"{number(broken)} rows with other bytes",
                fix="read the file with its own encoding",
            )  # fmt: skip
        mass = Fraction(str(domain.min_mass))
        yield from self.off_domain(spec, column, domain.values, mass, "ENUM_TYPE_UNEXPECTED_STRING_VALUES")

    def off_domain(
        self, spec: Feature, column: ColumnState, allowed: tuple[str, ...], mass: Fraction, kind: str
    ) -> Iterator[Anomaly]:
        table, exact, total = _texts(column), column.sketches is None, column.count
        inside = _member(table, allowed)
        # A summary's counts are lower bounds, so what may be off counts as off: never a silent pass.
        off = total - int(table.counts[inside].sum())
        if not off or Fraction(off, total) <= 1 - mass:
            return
        odd = TextTable(table.values.take(arrow_of(np.flatnonzero(~inside))), table.counts[~inside])
        worst = [(show_text(value), count) for value, count in top(odd, SHOWN)]
        names = ", ".join(f"{value!r} ({number(count)})" for value, count in worst[:3])
        more = len(odd.counts) - min(len(worst), 3)
        names += f" and {number(more)} more" if more > 0 else ""
        about = "" if exact else "about "
        share = percent(off / total)
        others = "1 other value" if len(odd.counts) == 1 else f"{number(len(odd.counts))} other values"
        wanted = f"one of {len(allowed)} values" + (
            f" in at least {percent(float(mass))} of the rows" if mass < 1 else ""
        )
        yield self.anomaly(
            kind, spec.name,
            f"{about}{number(off)} rows ({share}) of {spec.name} have values that are not in the schema: {names}",
            expected=wanted, observed=f"{about}{number(off)} rows with {others}",
            values=tuple({"value": value, "count": count} for value, count in worst),
            fix=f"correct these values, or add them to the domain of {spec.name} in the schema",
        )  # fmt: skip

    def range(self, spec: Feature, domain: Range, column: ColumnState) -> Iterator[Anomaly]:
        family, size = ("INT_TYPE", "INT") if spec.type == "int" else ("FLOAT_TYPE", "FLOAT")
        low, high = _bounds(column)
        nan, infinite = column.nan, column.positive_infinity + column.negative_infinity
        where = f"in the range of {spec.name} in the schema"
        if domain.min is not None and low is not None and low < domain.min:
            yield self.anomaly(
                f"{family}_SMALL_{size}", spec.name, f"{spec.name} has values below {number(domain.min)}",
                expected=f"at least {number(domain.min)}", observed=f"smallest {number(low)}",
                values=_numbers_where(column, below=domain.min), fix=f"correct these values, or lower min {where}",
            )  # fmt: skip
        if domain.max is not None and high is not None and high > domain.max:
            yield self.anomaly(
                f"{family}_BIG_{size}", spec.name, f"{spec.name} has values above {number(domain.max)}",
                expected=f"at most {number(domain.max)}", observed=f"largest {number(high)}",
                values=_numbers_where(column, above=domain.max), fix=f"correct these values, or raise max {where}",
            )  # fmt: skip
        if domain.disallow_nan and nan:
            yield self.anomaly(
                "FLOAT_TYPE_HAS_NAN", spec.name, f"{spec.name} is NaN in {number(nan)} rows",
                expected="no NaN", observed=f"{number(nan)} rows",
                fix=f"write a missing value for what is not known, or remove disallow_nan {where}",
            )  # fmt: skip
        if domain.disallow_inf and infinite:
            yield self.anomaly(
                "FLOAT_TYPE_HAS_INF", spec.name, f"{spec.name} is infinite in {number(infinite)} rows",
                expected="finite numbers", observed=f"{number(infinite)} rows",
                fix=f"find the division or overflow behind them, or remove disallow_inf {where}",
            )  # fmt: skip

    def bool(self, spec: Feature, domain: Bool, column: ColumnState) -> Iterator[Anomaly]:
        if spec.type == "string":
            assert domain.true_value is not None
            assert domain.false_value is not None
            pair = (domain.true_value, domain.false_value)
            yield from self.off_domain(spec, column, pair, Fraction(1), "BOOL_TYPE_UNEXPECTED_STRING")
            return
        low, high = _bounds(column)
        fix = f"correct these values, or remove the bool of {spec.name} from the schema"
        if spec.type == "float":
            odd = _numbers_where(column, below=0, above=1, between=True)
            if odd or column.nan or (high is not None and high > 1) or (low is not None and low < 0):
                yield self.anomaly(
                    "BOOL_TYPE_UNEXPECTED_FLOAT", spec.name, f"{spec.name} has values other than 0 and 1",
                    expected="0 or 1", observed=f"{number(low)} to {number(high)}, NaN in {number(column.nan)} rows",
                    values=odd, fix=fix,
                )  # fmt: skip
            return
        if low is not None and low < 0:
            yield self.anomaly(
                "BOOL_TYPE_SMALL_INT", spec.name, f"{spec.name} has values below 0",
                expected="0 or 1", observed=f"smallest {number(low)}", values=_numbers_where(column, below=0), fix=fix,
            )  # fmt: skip
        if high is not None and high > 1:
            yield self.anomaly(
                "BOOL_TYPE_BIG_INT", spec.name, f"{spec.name} has values above 1",
                expected="0 or 1", observed=f"largest {number(high)}", values=_numbers_where(column, above=1), fix=fix,
            )  # fmt: skip


def _type_fits(wanted: str, kind: str) -> bool:
    if wanted in ("any", kind) or kind == "null":
        return True
    return (wanted, kind) in {("float", "int"), ("string", "bytes"), ("bytes", "string")}


def _texts(column: ColumnState) -> TextTable:
    """The column's texts: all of them, or the frequent ones of a column that only has sketches."""
    table = column.table if column.sketches is None else column.sketches.frequent.table
    assert isinstance(table, TextTable)
    return table


def _member(table: TextTable, allowed: tuple[str, ...]) -> np.ndarray[Any, np.dtype[np.bool_]]:
    wanted = {value.encode() for value in allowed}
    return np.fromiter((value in wanted for value in table.values.to_pylist()), np.bool_, len(table.counts))


def _bounds(column: ColumnState) -> tuple[float | None, float | None]:
    """Smallest and largest value, infinities included."""
    low: float | None = None
    high: float | None = None
    table = column.table
    if column.sketches is not None:
        low, high = column.sketches.low, column.sketches.high
    elif isinstance(table, NumberTable):
        low, high = table.values[0].item(), table.values[-1].item()
    if column.negative_infinity:
        low = -np.inf
        high = low if high is None else high
    if column.positive_infinity:
        high = np.inf
        low = high if low is None else low
    return low, high


def _number_table(column: ColumnState) -> NumberTable | None:
    table = column.table if column.sketches is None else column.sketches.frequent.table
    return table if isinstance(table, NumberTable) else None


def _numbers_where(
    column: ColumnState, *, below: float | None = None, above: float | None = None, between: bool = False
) -> tuple[dict[str, Any], ...]:
    """The most frequent numbers below or above a bound (or, with `between`, strictly between them too)."""
    table = _number_table(column)
    if table is None:
        return ()
    chosen = np.zeros(len(table.counts), np.bool_)
    if below is not None:
        chosen |= table.values < below
    if above is not None:
        chosen |= table.values > above
    if between and below is not None and above is not None:
        chosen |= (table.values > below) & (table.values < above)
    part = NumberTable(table.values[chosen], table.counts[chosen])
    return tuple({"value": value, "count": count} for value, count in top(part, SHOWN))


def _listed(column: ColumnState) -> tuple[dict[str, Any], ...]:
    """The column's most frequent texts."""
    if column.kind not in ("string", "bytes") or not column.count:
        return ()
    return tuple({"value": show_text(value), "count": count} for value, count in top(_texts(column), SHOWN))


def _no_numbers(column: ColumnState) -> tuple[dict[str, Any], ...]:
    """The most frequent texts of a column that are no numbers: usually the few that made it a text column."""
    if column.kind != "string":
        return ()
    table = _texts(column)
    odd = np.fromiter((not is_number(value) for value in table.values.to_pylist()), np.bool_, len(table.counts))
    part = TextTable(table.values.take(arrow_of(np.flatnonzero(odd))), table.counts[odd])
    return tuple({"value": show_text(value), "count": count} for value, count in top(part, SHOWN))


def is_number(text: bytes | str) -> bool:
    """Whether a text reads as a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True
