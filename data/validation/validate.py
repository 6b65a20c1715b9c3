"""Statistics against a schema: every condition is decided from value tables, so rare values are seen as well.

Names and triggers are TFDV's (1.16), with these differences: integers are welcome in a float column, and whole numbers
of floats where the schema says integers (pandas makes floats of integers with gaps), which is noted; shares are
compared exactly (10 % off is not more than 1 − 0.9); all values are looked at, not the thousand most frequent; the
largest number of rows is checked without a smallest; no rows at all is an error; only errors block.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final

import numpy as np

from ...errors import InputError
from ...report.html import number, percent
from ..aggregates.tables import (
    TextTable,
    broken_texts,
    invalid_utf8,
)
from ..arrays import arrow_of
from ..reading.csv_files import NULL_VALUES, named_nulls
from ..schemas.schema import (
    UNCHECKED,
    Bool,
    Feature,
    Range,
    Schema,
    Semantic,
    Time,
    Values,
    check_is_schema,
)
from ..schemas.struct_fields import below, states_below, with_fields
from ..stats.accumulator import StatisticsAccumulator
from ..stats.column import ColumnState
from .anomalies import Anomalies, Anomaly
from .drift import drift_anomalies, row_count_anomalies
from .evidence import (
    NAMED,
    READ,
    bounds,
    finite_bounds,
    is_member,
    named_texts,
    numbers_where,
    out_of_range,
    shown_texts,
    texts,
    top_not_whole,
    top_texts,
    unit_of,
    unread_texts,
)
from .frame_types import statistics_against
from .image_domain import check_images
from .parsed_numbers import check_parsed
from .time_domain import check_time
from .value_counts import check_counts, check_unique
from .weighted_features import check_weighted

_DECLARED: Final = {
    "int": ("int64", 'dtype={{{!r}: "Int64"}}'),
    "float": ("float64", 'dtype={{{!r}: "float64"}}'),
    "bool": ("bool", 'dtype={{{!r}: "boolean"}}'),
    "string": ("string", 'dtype={{{!r}: "string"}}'),
    "date": ("date32", "parse_dates=[{!r}]"),
    "timestamp": ("timestamp[us]", "parse_dates=[{!r}]"),
}


def validate(
    statistics: object,
    schema: Schema,
    *,
    environment: str | None = None,
    previous: object = None,
    serving: object = None,
    previous_version: object = None,
) -> Anomalies:
    """The anomalies of data against a schema; every data set is checked by itself.

    Args:
        statistics: From `statistics` (or loaded), or what `statistics` takes: a DataFrame, an Arrow table, a path, …
            What lies in memory is read as the schema says where that loses nothing: text as dates, say.
        schema: What a person accepted.
        environment: Only features of this environment may be there (see `Schema.environments`); None: all of them.
        previous: Statistics (or data) of an earlier span; features with `drift` bounds are compared with it.
        serving: Statistics (or data) of serving; features with `skew` bounds are compared with it.
        previous_version: Statistics (or data) of an earlier version of the same span; the schema's `rows_version`
            compares.

    Returns:
        The anomalies, without example rows: `anomalous_rows` adds them. Their `notes` name the columns whose values are
        as the schema says, but not their type, and the data sets of which only a sample was checked.

    Raises:
        InputError: The schema has no such environment, or a check's SQL is wrong; or it is not a schema.
    """
    check_is_schema(schema, "validate(data, schema)", statistics)
    named = (name for _, feature in with_fields(schema.features) for name in feature.in_environments)
    known = {*schema.environments, *named}
    if environment is not None and environment not in known:
        raise InputError(
            f"the schema has no environment {environment!r}",
            fix=f"use one of {', '.join(sorted(known))}" if known else "list the schema's `environments`",
        )
    checked, frame_notes = statistics_against(statistics, schema)
    before, served, version = (
        None if control is None else statistics_against(control, schema)[0]
        for control in (previous, serving, previous_version)
    )
    notes: list[str] = []
    anomalies: list[Anomaly] = []
    for split, rows in checked.splits.items():
        validation = _DataSetValidation(split, rows, schema, environment, sampled=checked.sampled.get(split))
        anomalies += validation.check(checked.state(split))
        notes += validation.notes
    bounded = [
        spec for spec in schema.features
        if spec.stage not in UNCHECKED and schema.in_environment(spec, environment)
    ]  # fmt: skip
    for control, change in ((before, "drift"), (served, "skew")):
        if control is not None:
            anomalies += drift_anomalies(checked, control, schema, bounded, change)
    for control, ratio, title in (
        (before, schema.rows_drift, "the previous span"),
        (version, schema.rows_version, "the previous version"),
    ):
        if control is not None and ratio is not None:
            counts = (checked.splits | checked.sampled, control.splits | control.sampled)
            anomalies += row_count_anomalies(*counts, ratio, title, schema)
    if schema.checks:
        from .sql_checks import check_statistics  # it needs DuckDB

        anomalies += check_statistics(checked, schema.checks, previous=before, environment=environment)
    notes += [
        f"{split}: only a sample was checked, {checked.splits[split]:,} of {rows:,} rows"
        for split, rows in checked.sampled.items()
    ]
    return Anomalies(checked.splits, anomalies, dict.fromkeys([*notes, *frame_notes]), checked.sampled)


@dataclass(frozen=True)
class _DataSetValidation:
    """One data set, or the structs of one of its columns, against a schema.

    Attributes:
        split: The data set's name.
        rows: Its rows; of structs, how many there are.
        schema: Of its columns; of structs, of their fields by their paths' names.
        environment: Only features of this environment may be there; None: all.
        paths: Of fields of structs, by their names in `schema`.
        notes: What was accepted though its type is another; filled by `check`.
        sampled: The rows that there are, where only a sample was looked at.
    """

    split: str
    rows: int
    schema: Schema
    environment: str | None
    paths: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    sampled: int | None = None

    def anomaly(self, kind: str, feature: str | None, message: str, **more: Any) -> Anomaly:
        return Anomaly(
            type=kind,
            severity=self.schema.severity_of(kind, feature),
            split=self.split,
            feature=feature,
            message=message,
            path=self.paths.get(feature or "", ()),
            **more,
        )

    def check(self, state: StatisticsAccumulator) -> Iterator[Anomaly]:
        if not self.rows:
            yield self.anomaly(
                "DATA_MISSING", None, f"{self.split} has no rows", expected="at least one row", observed="0 rows",
                fix="check where the data comes from, and how it is split",
            )  # fmt: skip
            return
        yield from self.check_row_count()
        yield from self.check_features(state.data_columns, state.options.columns)
        for pair in self.schema.weighted:
            if pair.stage not in UNCHECKED and self.in_environment(pair.value) and self.in_environment(pair.weight):
                yield from check_weighted(pair, state.columns, dict(state.options.computed), self.anomaly)

    def in_environment(self, name: str) -> bool:
        """Whether a feature of that name belongs to the environment."""
        spec = self.schema.find_feature(name)
        return spec is None or self.schema.in_environment(spec, self.environment)

    def check_features(
        self, columns: Mapping[str, ColumnState], measured: Sequence[str] | None = None
    ) -> Iterator[Anomaly]:
        """Check each feature; `measured` are the columns that the statistics were asked for, None for all."""
        known = {name for pair in self.schema.weighted for name in pair.columns}  # where computed by hand
        for spec in self.schema.features:
            known.add(spec.name)
            column = columns.get(spec.name)
            if spec.stage in UNCHECKED:
                continue
            inside = self.schema.in_environment(spec, self.environment)
            if column is not None:
                if column.count and not inside:
                    yield self.misplaced(spec, column)
                yield from self.check_column(spec, column, required=inside and spec.presence.required)
            elif inside and spec.presence.required and measured is not None and spec.name not in measured:
                yield self.anomaly(
                    "SCHEMA_MISSING_COLUMN", spec.name,
                    f"column {spec.name} is not among the columns that the statistics were asked for",
                    expected="the column", observed=f"statistics of {', '.join(measured)}",
                    fix=f"add {spec.name} to the columns= of StatisticsGen or data.statistics, or leave columns= out",
                )  # fmt: skip
            elif inside and spec.presence.required:
                yield self.anomaly(
                    "SCHEMA_MISSING_COLUMN", spec.name, f"column {spec.name} is not in the data",
                    expected="the column", observed="no such column",
                    fix=f"bring the column back, or remove {spec.name} from the schema",
                )  # fmt: skip
        for name, column in columns.items():
            if name not in known:
                yield self.anomaly(
                    "SCHEMA_NEW_COLUMN", name, f"column {name} is not in the schema",
                    expected="no such column", observed=f"{column.kind}, present in {number(column.count)} rows",
                    values=top_texts(column), fix=f"remove the column from the data, or add {name} to the schema",
                )  # fmt: skip

    def misplaced(self, spec: Feature, column: ColumnState) -> Anomaly:
        name, environment = spec.name, self.environment
        return self.anomaly(
            "SCHEMA_NEW_COLUMN", name, f"column {name} is not in the environment {environment} of the schema",
            expected="no such column", observed=f"{column.kind}, present in {number(column.count)} rows",
            values=top_texts(column),
            fix=f"remove the column from the data, or add {environment} to the environments of {name} in the schema",
        )  # fmt: skip

    def check_row_count(self) -> Iterator[Anomaly]:
        rows = self.rows if self.sampled is None else self.sampled
        low, high, has = self.schema.min_rows, self.schema.max_rows, f"{self.split} has {number(rows)} rows"
        if low is not None and rows < low:
            yield self.anomaly(
                "DATASET_LOW_NUM_EXAMPLES", None, f"{has}, fewer than {number(low)}",
                expected=f"at least {number(low)} rows", observed=f"{number(rows)} rows",
                fix="look for rows that were lost, or lower rows.min in the schema",
            )  # fmt: skip
        if high is not None and rows > high:
            yield self.anomaly(
                "DATASET_HIGH_NUM_EXAMPLES", None, f"{has}, more than {number(high)}",
                expected=f"at most {number(high)} rows", observed=f"{number(rows)} rows",
                fix="look for rows that were read twice, or raise rows.max in the schema",
            )  # fmt: skip

    def check_column(self, spec: Feature, column: ColumnState, *, required: bool) -> Iterator[Anomaly]:
        name = spec.name
        if not column.count:
            if required:
                yield self.anomaly(
                    "FEATURE_TYPE_NOT_PRESENT", name, f"{name} is missing in every row",
                    expected="values", observed=f"missing in all {number(self.rows)} rows",
                    fix=f"find where {name} is lost, or remove its presence from the schema",
                )  # fmt: skip
            return
        if spec.many:
            yield from check_counts(spec, column, self.anomaly)
        yield from self.check_presence(spec, column)
        values = column.levels[-1]
        typed = values if spec.many else column
        if (spec.type, typed.kind) == ("int", "float") and typed.whole:
            self.notes.append(f"{name} is float ({typed.arrow}) with whole numbers only, which count as int")
        elif not _type_fits(spec, typed.kind):
            yield self.unexpected_type(spec, typed, column)
            return
        if isinstance(spec.domain, Values) or (spec.type == "string" and values.kind == "string"):
            yield from self.check_utf8(spec, values)
        if values.count:
            yield from self.check_domain(spec, values)
        if spec.unique is not None:
            yield from check_unique(spec, spec.unique, values, self.anomaly)
        if spec.fields and values.count:
            yield from self.check_fields(spec, values)

    def check_fields(self, spec: Feature, structs: ColumnState) -> Iterator[Anomaly]:
        path = self.paths.get(spec.name, (spec.name,))
        schema, paths = below(self.schema, path, spec.fields)
        columns = states_below(path, structs)
        paths |= {name: (*path, raw) for name, raw in zip(columns, structs.fields, strict=True)}
        yield from _DataSetValidation(
            self.split, structs.count, schema, self.environment, paths, self.notes, self.of_all_rows(structs.count)
        ).check_features(columns)

    def of_all_rows(self, sample_rows: int) -> int:
        """How many rows of the data set are as so many of those looked at; an estimate where these are a sample."""
        return sample_rows if self.sampled is None else round(sample_rows * self.sampled / self.rows)

    def check_domain(self, spec: Feature, column: ColumnState) -> Iterator[Anomaly]:
        if isinstance(spec.domain, Values):
            yield from self.check_values(spec, spec.domain, column)
        elif isinstance(spec.domain, Range) and spec.domain.parse:
            yield from check_parsed(spec, spec.domain, column, self.anomaly)
        elif isinstance(spec.domain, Range):
            yield from self.check_range(spec, spec.domain, column)
        elif isinstance(spec.domain, Bool):
            yield from self.check_bool(spec, spec.domain, column)
        elif isinstance(spec.domain, Time):
            yield from check_time(spec, spec.domain, column, self.anomaly)
        elif isinstance(spec.domain, Semantic):
            yield from check_images(spec, spec.domain, column, self.anomaly)

    def check_presence(self, spec: Feature, column: ColumnState) -> Iterator[Anomaly]:
        name, wanted = spec.name, spec.presence
        missing = f"missing in {number(column.missing)} of {number(self.rows)} rows"
        # Fractions of the number as it is written: as floats, 1 - 0.9 is less than 0.1 and exactly 10 % would fail.
        if wanted.min_fraction is not None and Fraction(column.count, self.rows) < Fraction(str(wanted.min_fraction)):
            share = percent(column.count / self.rows)
            yield self.anomaly(
                "FEATURE_TYPE_LOW_FRACTION_PRESENT", name, f"{name} is {missing}",
                expected=f"present in at least {percent(wanted.min_fraction)} of the rows",
                observed=f"present in {share}",
                fix=f"fill or drop these rows, or lower min_fraction of {name} in the schema",
            )  # fmt: skip
        present = self.of_all_rows(column.count)
        if wanted.min_count is not None and present < wanted.min_count:
            yield self.anomaly(
                "FEATURE_TYPE_LOW_NUMBER_PRESENT", name, f"{name} is {missing}",
                expected=f"present in at least {number(wanted.min_count)} rows",
                observed=f"present in {'about ' if self.sampled is not None else ''}{number(present)}",
                fix=f"find the rows that lost it, or lower min_count of {name} in the schema",
            )  # fmt: skip

    def unexpected_type(self, spec: Feature, values: ColumnState, column: ColumnState) -> Anomaly:
        odd = top_texts(values)
        hint, correction, declare = "", f"write {spec.name} as {spec.type}", spec.type in _DECLARED
        other = "change its type in the schema"
        if values.kind == "string" and values.count and spec.type in READ:
            unread = unread_texts(values, spec.type)
            odd = shown_texts(unread)
            if odd:
                hint, declare = f"; {named_texts(unread)} cannot be read as {spec.type}", False
                if 2 * unread.counts.sum() <= values.count:
                    nulls = named_nulls([*NULL_VALUES, *(item["value"] for item in odd[:NAMED])])
                    correction = (
                        f"correct these values, read them as missing ({nulls} of ExampleGen or data.open_files)"
                    )
            elif values.sketches is None:
                hint = f"; all that {self.split} has of it can be read as {spec.type}"
        elif (spec.type, values.kind) == ("int", "float"):
            odd = top_not_whole(values)
            if odd:
                worst = odd[0]["value"]
                why = "is beyond 2^53, where floats lose digits" if worst.is_integer() else "is not whole"
                hint = f"; e.g. {worst!r} {why}"
            elif values.nan or values.positive_infinity or values.negative_infinity:
                hint = "; some are NaN or infinite"
            if not all(item["value"].is_integer() for item in odd) or not odd:  # none of these can be read as int
                correction, declare = "correct these values", False
                other = f"write `type: float` for {spec.name} in the schema"
        if declare:
            arrow, pandas = _DECLARED[spec.type]
            correction += (
                f", in a CSV by column_types={{{spec.name!r}: {arrow!r}}} (pandas: {pandas.format(spec.name)})"
            )
        table = values.table
        distinct = f", {number(len(table.counts))} distinct" if table is not None else ""
        return self.anomaly(
            "UNEXPECTED_DATA_TYPE", spec.name, f"{spec.name} is {values.kind}, the schema says {spec.type}{hint}",
            expected=spec.type, observed=f"{values.kind} ({column.arrow}{distinct})", values=odd,
            fix=f"{correction}, or {other}",
        )  # fmt: skip

    def check_utf8(self, spec: Feature, column: ColumnState) -> Iterator[Anomaly]:
        rows, table = unit_of(spec, column), column.table
        if column.sketches is not None:
            broken = column.sketches.broken
        else:
            broken = invalid_utf8(table) if isinstance(table, TextTable) else 0
        if broken:
            yield self.anomaly(
                "ENUM_TYPE_INVALID_UTF8", spec.name, f"{number(broken)} {rows} of {spec.name} are not valid UTF-8",
                expected="UTF-8", observed=f"{number(broken)} {rows} with other bytes",
                fix="read the file with its own encoding",
            )  # fmt: skip

    def check_values(self, spec: Feature, domain: Values, column: ColumnState) -> Iterator[Anomaly]:
        mass = Fraction(str(domain.min_mass))
        yield from self.outside_domain(spec, column, domain.values, mass, "ENUM_TYPE_UNEXPECTED_STRING_VALUES")

    def outside_domain(
        self, spec: Feature, column: ColumnState, allowed: tuple[str, ...], mass: Fraction, kind: str
    ) -> Iterator[Anomaly]:
        table, exact, total = texts(column), column.sketches is None, column.count
        inside = is_member(table, allowed)
        if kind.startswith("ENUM"):
            inside |= broken_texts(table)  # they have an anomaly of their own
        # A summary's counts are lower bounds, so what may be off counts as off: never a silent pass.
        off = total - int(table.counts[inside].sum())
        if not off or Fraction(off, total) <= 1 - mass:
            return
        odd = TextTable(table.values.take(arrow_of(np.flatnonzero(~inside))), table.counts[~inside])
        about = "" if exact else "about "
        share, rows = percent(off / total), unit_of(spec, column)
        others = "1 other value" if len(odd.counts) == 1 else f"{number(len(odd.counts))} other values"
        wanted = f"one of {len(allowed)} values" + (
            f" in at least {percent(float(mass))} of the {rows}" if mass < 1 else ""
        )
        yield self.anomaly(
            kind, spec.name,
            f"{about}{number(off)} {rows} ({share}) of {spec.name} have values that are not in the schema: "
            f"{named_texts(odd)}",
            expected=wanted, observed=f"{about}{number(off)} {rows} with {others}",
            values=shown_texts(odd),
            fix=f"correct these values, or add them to the domain of {spec.name} in the schema",
        )  # fmt: skip

    def check_range(self, spec: Feature, domain: Range, column: ColumnState) -> Iterator[Anomaly]:
        family, size = ("INT_TYPE", "INT") if spec.type == "int" else ("FLOAT_TYPE", "FLOAT")
        low, high = bounds(column)
        least, most = finite_bounds(column)
        nan, infinite = column.nan, column.positive_infinity + column.negative_infinity
        where, rows = f"in the range of {spec.name} in the schema", unit_of(spec, column)
        if domain.min is not None and low is not None and low < domain.min:
            endless = f"{number(column.negative_infinity)} {rows}" if column.negative_infinity else ""
            message, fix = out_of_range(
                spec, "min", domain.min, endless, finite=least is not None and least < domain.min
            )
            yield self.anomaly(
                f"{family}_SMALL_{size}", spec.name, message,
                expected=f"at least {number(domain.min)}", observed=f"smallest {number(low)}",
                values=numbers_where(column, below=domain.min), fix=fix,
            )  # fmt: skip
        if domain.max is not None and high is not None and high > domain.max:
            endless = f"{number(column.positive_infinity)} {rows}" if column.positive_infinity else ""
            message, fix = out_of_range(spec, "max", domain.max, endless, finite=most is not None and most > domain.max)
            yield self.anomaly(
                f"{family}_BIG_{size}", spec.name, message,
                expected=f"at most {number(domain.max)}", observed=f"largest {number(high)}",
                values=numbers_where(column, above=domain.max), fix=fix,
            )  # fmt: skip
        if domain.disallow_nan and nan:
            yield self.anomaly(
                "FLOAT_TYPE_HAS_NAN", spec.name, f"{spec.name} is NaN in {number(nan)} {rows}",
                expected="no NaN", observed=f"{number(nan)} {rows}",
                fix=f"write a missing value for what is not known, or remove disallow_nan {where}",
            )  # fmt: skip
        if domain.disallow_inf and infinite:
            yield self.anomaly(
                "FLOAT_TYPE_HAS_INF", spec.name, f"{spec.name} is infinite in {number(infinite)} {rows}",
                expected="finite numbers", observed=f"{number(infinite)} {rows}",
                fix=f"find the division or overflow behind them, or remove disallow_inf {where}",
            )  # fmt: skip

    def check_bool(self, spec: Feature, domain: Bool, column: ColumnState) -> Iterator[Anomaly]:
        if spec.type in ("string", "bytes"):
            yield from self.outside_domain(spec, column, domain.texts, Fraction(1), "BOOL_TYPE_UNEXPECTED_STRING")
            return
        low, high = bounds(column)
        fix = f"correct these values, or remove the bool of {spec.name} from the schema"
        if spec.type == "float":
            odd = numbers_where(column, below=0, above=1, between=True)
            if odd or column.nan or (high is not None and high > 1) or (low is not None and low < 0):
                yield self.anomaly(
                    "BOOL_TYPE_UNEXPECTED_FLOAT", spec.name, f"{spec.name} has values other than 0 and 1",
                    expected="0 or 1", values=odd, fix=fix,
                    observed=f"{number(low)} to {number(high)}, NaN in {number(column.nan)} {unit_of(spec, column)}",
                )  # fmt: skip
            return
        if low is not None and low < 0:
            yield self.anomaly(
                "BOOL_TYPE_SMALL_INT", spec.name, f"{spec.name} has values below 0",
                expected="0 or 1", observed=f"smallest {number(low)}", values=numbers_where(column, below=0), fix=fix,
            )  # fmt: skip
        if high is not None and high > 1:
            yield self.anomaly(
                "BOOL_TYPE_BIG_INT", spec.name, f"{spec.name} has values above 1",
                expected="0 or 1", observed=f"largest {number(high)}", values=numbers_where(column, above=1), fix=fix,
            )  # fmt: skip


def _type_fits(spec: Feature, kind: str) -> bool:
    wanted = spec.type
    if wanted in ("any", kind) or kind == "null":
        return True
    if kind == "bool":  # a column of true and false also is the integers 0 and 1
        return wanted == "int" and isinstance(spec.domain, Bool)
    return (wanted, kind) in {("float", "int"), ("string", "bytes"), ("bytes", "string")}
