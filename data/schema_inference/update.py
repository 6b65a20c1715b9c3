"""`update_schema`: validate, relax what was violated, and again, until nothing is left to relax."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Final

from ..schemas.problems import SchemaError
from ..schemas.schema import Feature, Ratio, Schema, check_is_schema
from ..schemas.struct_fields import Path, feature_at, state_at, with_feature_at
from ..stats.column import ColumnState
from ..stats.describe import describe_column
from ..stats.document import Statistics
from ..validation.anomalies import Anomalies, Anomaly
from ..validation.frame_types import statistics_against
from ..validation.validate import validate
from .infer import InferenceRules, infer_feature
from .patch import SchemaChange, SchemaPatch, merged, without_stale
from .relax import DOMAIN_LIMIT, ObservedFeature, relax, rounded_down, rounded_up

# A relaxed type may uncover what it hid, and data sets may want different things; a feature that is still changing
# after half of the rounds is DEPRECATED.
_ROUNDS: Final = 8
_CONTROL_OF: Final = {"drift": "previous", "skew": "serving"}
"""Which of the controls each of a feature's comparators compares with."""


def update_schema(
    schema: Schema,
    data: object,
    *,
    environment: str | None = None,
    previous: object = None,
    serving: object = None,
    previous_version: object = None,
    max_values: int = DOMAIN_LIMIT,
) -> SchemaPatch:
    """The changes that a schema needs so that the data passes, to be reviewed one by one.

    Args:
        schema: What was accepted.
        data: `Statistics` that do not pass, or what `statistics` takes. (Anomalies quote only some of the values.)
        environment: As for `validate`.
        previous: As `data`: statistics or data of an earlier span.
        serving: As `data`, of serving.
        previous_version: As `data`, of an earlier version of the span.
        max_values: A list of values that would become longer than this is dropped.

    Raises:
        InputError: The data cannot be read, or the schema has no such environment.
    """
    check_is_schema(schema, "update_schema(schema, data)", data)
    controls = {"previous": previous, "serving": serving, "previous_version": previous_version}
    known = {name: statistics_against(control, schema)[0] for name, control in controls.items() if control is not None}
    return _UpdateRounds(schema, statistics_against(data, schema)[0], known, environment, max_values).patch()


class _UpdateRounds:
    """Rounds of validating and relaxing, and the changes so far.

    Attributes:
        controls: What the data is compared with, by the parameter of `update_schema`.
    """

    def __init__(
        self,
        schema: Schema,
        statistics: Statistics,
        controls: Mapping[str, Statistics],
        environment: str | None,
        max_values: int,
    ) -> None:
        self.statistics = statistics
        self.controls = controls
        self.environment = environment
        self.max_values = max_values
        self.schema = schema
        self.changes: list[SchemaChange] = []

    def patch(self) -> SchemaPatch:
        now = self.schema
        for attempt in range(_ROUNDS):
            grouped: dict[tuple[Path, str], list[Anomaly]] = {}
            for anomaly in self.validated(now).anomalies:
                # What statistics cannot decide is not a reason to demand less, unless it blocks.
                if anomaly.type != "STATS_NOT_AVAILABLE" or anomaly.severity == "ERROR":
                    grouped.setdefault((anomaly.feature_path, anomaly.type), []).append(anomaly)
            # Every group is relaxed from the same schema, so that each change stands by itself and can be rejected.
            for (path, kind), group in grouped.items():
                before = self.part(now, path[0] if path else None)
                after = self.relaxed(now, path, kind, group, late=2 * attempt >= _ROUNDS)
                if before != after:
                    self.add(group[0].feature, kind, group, before, after, later=attempt > 0)
            then = SchemaPatch(self.schema, tuple(self.changes)).accept()
            if then == now:
                break
            now = then
        unresolved = tuple(anomaly for anomaly in self.validated(now).anomalies if anomaly.severity == "ERROR")
        return SchemaPatch(self.schema, tuple(self.changes), unresolved)

    def validated(self, schema: Schema) -> Anomalies:
        return validate(self.statistics, schema, environment=self.environment, **self.controls)

    def part(self, schema: Schema, name: str | None) -> Schema:
        """A schema of one feature alone, or of the rows alone."""
        if name is None:
            return replace(Schema(), min_rows=schema.min_rows, max_rows=schema.max_rows, rows_drift=schema.rows_drift,
                           rows_version=schema.rows_version)  # fmt: skip
        spec = schema.find_feature(name)
        return Schema(() if spec is None else (spec,))

    def add(
        self, name: str | None, kind: str, group: Sequence[Anomaly], before: Schema, after: Schema, *, later: bool
    ) -> None:
        """Keep a change; what one of an earlier round uncovered becomes part of that."""
        many = len(self.statistics.splits) > 1
        reasons = tuple(f"{anomaly.split}: {anomaly.message}" if many else anomaly.message for anomaly in group)
        same_feature = [index for index, change in enumerate(self.changes) if change.feature == name]
        if same_feature and later:
            change = self.changes[same_feature[-1]]
            self.changes[same_feature[-1]] = replace(
                change,
                anomalies=tuple(dict.fromkeys((*change.anomalies, kind))),
                reasons=tuple(dict.fromkeys((*change.reasons, *reasons))),
                after=_folded(change.after, before, after),
            )
            return
        self.changes.append(
            SchemaChange(len(self.changes) + 1, name, (kind,), group[0].severity, reasons, before, after)
        )

    def relaxed(self, now: Schema, path: Path, kind: str, group: Sequence[Anomaly], *, late: bool) -> Schema:
        """The part of the schema that an anomaly is about, relaxed."""
        if not path:
            return self.with_row_bounds(self.part(now, None), kind)
        if any(pair.name == path[0] for pair in now.weighted):
            return self.part(now, path[0])  # the rows are wrong, or a column has a weighted feature's name
        feature = feature_at(now, path)
        for anomaly in group:
            column = state_at(self.statistics.state(anomaly.split).columns, path)
            if feature is not None and (column is None or late):
                feature = replace(feature, stage="DEPRECATED")
            elif column is not None:
                feature = self.relaxed_feature(feature, kind, anomaly.split, path, column)
        if feature is None:
            return Schema()
        return Schema((with_feature_at(now.find_feature(path[0]) or feature, path, feature),))

    def relaxed_feature(
        self, feature: Feature | None, kind: str, split: str, path: Path, column: ColumnState
    ) -> Feature | None:
        if feature is None:
            return replace(infer_feature(describe_column(column), column, InferenceRules()), name=path[-1])
        controls = {change: self.controls[side] for change, side in _CONTROL_OF.items() if side in self.controls}
        rows = self.statistics.splits[split]
        if len(path) > 1:
            rows = column.rows  # the structs that are there
        seen = ObservedFeature(column, rows, split, self.statistics, controls, self.environment, self.max_values, path)
        return without_stale(feature, relax(feature, kind, seen) or feature)

    def with_row_bounds(self, part: Schema, kind: str) -> Schema:
        """The part with its bounds on the number of rows relaxed to what is there."""
        counts = [rows for rows in self.statistics.splits.values() if rows]
        if kind == "DATASET_LOW_NUM_EXAMPLES":
            return replace(part, min_rows=min(counts))
        if kind == "DATASET_HIGH_NUM_EXAMPLES":
            return replace(part, max_rows=max(counts))
        if kind not in ("COMPARATOR_LOW_NUM_EXAMPLES", "COMPARATOR_HIGH_NUM_EXAMPLES"):
            return part
        low = "LOW" in kind
        return replace(
            part,
            rows_drift=self.relaxed_ratio(part.rows_drift, "previous", low=low),
            rows_version=self.relaxed_ratio(part.rows_version, "previous_version", low=low),
        )

    def relaxed_ratio(self, wanted: Ratio | None, side: str, *, low: bool) -> Ratio | None:
        if wanted is None or side not in self.controls:
            return wanted
        control = self.controls[side].splits
        only = next(iter(control)) if len(control) == 1 else ""
        pairs = [
            (rows, control[split if split in control else only])
            for split, rows in self.statistics.splits.items()
            if rows and (split in control or only)
        ]
        shares = [Fraction(rows, before) for rows, before in pairs if before]
        if low and wanted.min is not None and shares:
            return replace(wanted, min=min(wanted.min, rounded_down(min(shares))))
        if not low and wanted.max is not None and pairs:
            endless = any(not before for _, before in pairs)
            most = None if endless else max(wanted.max, rounded_up(max(shares)))
            return replace(wanted, max=most)
        return wanted


def _folded(earlier: Schema, before: Schema, after: Schema) -> Schema:
    """An earlier change's outcome with a later one's; all of the later where the two do not go together."""
    try:
        both: Schema = merged(earlier, before, after)
    except SchemaError:
        return after
    return both
