"""DistributionValidator: how every feature's distribution differs from a baseline's, and whether that is too much."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from ..metadata import Anomalies, Examples, Schema, Statistics
from ..pipelines import component, current

if TYPE_CHECKING:
    from ..data import Anomaly, DriftReport, Feature
    from ..data import Schema as SchemaValue
    from ..data import Statistics as StatisticsValue

ALL = "*"
"""In `thresholds`: every feature that the comparator means something for."""


@component(gates="examples")
def DistributionValidator(
    statistics: Statistics,
    baseline: Statistics | None,
    schema: Schema | None = None,
    *,
    examples: Examples | None = None,
    comparator: Literal["drift", "skew"] = "drift",
    thresholds: Mapping[str, Mapping[str, float]] | None = None,
    pairs: Sequence[Sequence[str]] | None = None,
    environment: str | None = None,
) -> Anomalies:
    """Compare the statistics with a baseline's, feature by feature, by the bounds of the schema and the thresholds.

    Args:
        statistics: What is judged.
        baseline: What it is compared with: of an earlier span, `dt.latest(Statistics)`; of training data; or the same
            statistics, to compare splits. None, as `dt.latest` gives on the first run, passes and says so.
        schema: Whose features' `drift` or `skew` are the bounds; of `drift`, also the schema's `rows`.
        examples: Where given, no other consumer of them starts if there is an error (it is a gate). Without them an
            error stops nothing that runs beside it, but the run ends STOPPED, and `dt.latest(passed=True)` sees that.
        comparator: Which bounds of the schema: "drift" (between spans) or "skew" (between training and serving).
        thresholds: Bounds by feature and comparator, e.g. `{"*": {"missing_rate": 0.1}, "fare": {"psi": 0.25}}`;
            they come before the schema's, and a feature's before those of "*", which is every feature.
        pairs: Splits to compare, (of the statistics, of the baseline), e.g. `[["eval", "train"]]`; where None those of
            one name, or all with the only one of the baseline.
        environment: Which of the schema's environments the statistics are of: its other features are not bounded.

    Returns:
        Anomalies: `content/anomalies.json`, one for each number above its bound; `content/drift.json` with every
        measure of every feature, also where all is well; and a report. `passed` is False if any anomaly is an ERROR.
        Without any bound nothing can be an anomaly: the summary says how many features changed by the tests.

    Raises:
        InputError: An input is damaged, a threshold names an unknown comparator, the schema has no such environment,
            or there are no splits to compare.
    """
    from ..data import Anomalies as AnomaliesValue
    from ..data import Schema as SchemaValue
    from ..data import Statistics as StatisticsValue
    from ..data import drift, load_schema, validate
    from ..data.stats.document import from_states
    from ..digest import write_durably
    from ..report.drift import drift_page

    loaded = StatisticsValue.load(statistics.content)
    if baseline is None:
        summary = "passed: there is no baseline yet, nothing to compare with"
        current().note(summary)
        anomalies = Anomalies.new(summary=summary)
        drift_anomalies = AnomaliesValue(loaded.splits, ())
        drift_anomalies.save(anomalies.content / "anomalies.json")
        (anomalies.extra / "report.html").write_text(drift_anomalies.to_html(), "utf-8")
        return anomalies
    control = StatisticsValue.load(baseline.content)
    accepted = SchemaValue() if schema is None else load_schema(schema.content / "schema.yaml")
    # Of no data set: it only raises where the schema has no such environment.
    validate(from_states({}), replace(accepted, checks=()), environment=environment)
    bounds = _bounded(accepted, loaded, comparator, thresholds or {}, environment)
    chosen = None if pairs is None else [(str(new), str(old)) for new, old in pairs]
    report = drift(loaded, control, schema=bounds, comparator=comparator, pairs=chosen)
    drift_anomalies = AnomaliesValue(loaded.splits, _anomalies(loaded, control, bounds, comparator, chosen))
    summary = f"{drift_anomalies.summary}; {_changed(report, bounds, comparator)}"
    anomalies = Anomalies.new(
        passed=drift_anomalies.passed,
        errors=drift_anomalies.errors,
        summary=summary,
        drifted=drift_anomalies.drifted,
    )
    drift_anomalies.save(anomalies.content / "anomalies.json")
    write_durably(anomalies.content / "drift.json", report.to_json().encode())
    page = drift_page(report.to_dict(), passed=drift_anomalies.passed, summary=summary)
    (anomalies.extra / "report.html").write_text(page, "utf-8")
    (anomalies.extra / "anomalies.html").write_text(drift_anomalies.to_html(), "utf-8")
    return anomalies


def _bounded(
    schema: SchemaValue,
    statistics: StatisticsValue,
    comparator: str,
    thresholds: Mapping[str, Mapping[str, float]],
    environment: str | None,
) -> SchemaValue:
    """The schema with the thresholds as bounds; features that it does not check, or not there, have none.

    Raises:
        SchemaError: A threshold names an unknown comparator, or is not a bound.
        InputError: The schema has no such environment.
    """
    from ..data.schemas.comparators import COMPARATORS
    from ..data.schemas.schema import UNCHECKED, Feature

    kinds = {
        name: column.levels[-1].kind
        for split in statistics.splits
        for name, column in statistics.state(split).data_columns.items()
    }
    specs = {spec.name: spec for spec in schema.features}
    features = []
    for name in dict.fromkeys((*specs, *kinds, *thresholds)):
        if name == ALL and name not in kinds:
            continue
        spec = specs.get(name, Feature(name))
        everywhere = {
            key: most
            for key, most in thresholds.get(ALL, {}).items()
            if key not in COMPARATORS or not {kinds.get(name), spec.type} & COMPARATORS[key].useless
        }
        most = {**getattr(spec, comparator), **(everywhere if name in kinds else {}), **thresholds.get(name, {})}
        there = name not in specs or schema.in_environment(spec, environment)
        applied = most if there and spec.stage not in UNCHECKED else {}
        features.append(replace(spec, drift=applied) if comparator == "drift" else replace(spec, skew=applied))
    return replace(schema, features=tuple(features), weighted=())


def _anomalies(
    statistics: StatisticsValue,
    control: StatisticsValue,
    schema: SchemaValue,
    comparator: str,
    pairs: Sequence[tuple[str, str]] | None,
) -> Iterator[Anomaly]:
    from ..data.stats.document import from_states
    from ..data.validation.drift import drift_anomalies, row_count_anomalies

    bounded = [spec for spec in schema.features if _bounds_in(spec, comparator)]
    sides = [(statistics, control)]
    if pairs is not None:
        sides = [(from_states({a: statistics.state(a)}), from_states({b: control.state(b)})) for a, b in pairs]
    for new, old in sides:
        yield from _absent(new, schema, {path: spec for spec in bounded for path, spec in _bounds_in(spec, comparator)})
        yield from drift_anomalies(new, old, schema, bounded, comparator)
        if comparator == "drift" and schema.rows_drift is not None:
            yield from row_count_anomalies(new.splits, old.splits, schema.rows_drift, "the baseline", schema)


def _bounds_in(spec: Feature, comparator: str) -> list[tuple[tuple[str, ...], Feature]]:
    """The feature, and the fields of structs within it, that have bounds, by path."""
    from ..data.schemas.struct_fields import with_fields

    return [(path, feature) for path, feature in with_fields([spec], checked=True) if getattr(feature, comparator)]


def _absent(
    statistics: StatisticsValue, schema: SchemaValue, bounded: Mapping[tuple[str, ...], Feature]
) -> Iterator[Anomaly]:
    """What has bounds and is not there at all: it must not pass because there is nothing to compare."""
    from ..data import Anomaly
    from ..data.schemas.struct_fields import path_name, state_at

    kind = "SCHEMA_MISSING_COLUMN"
    for split in statistics.splits:
        for path, spec in bounded.items():
            if state_at(statistics.state(split).columns, path) is None:
                name = path_name(path)
                yield Anomaly(
                    kind, spec.severity.get(kind) or schema.severity_of(kind), split, name,
                    f"column {name} is not in the data, so its change cannot be bounded",
                    expected="the column", observed="no such column",
                    fix=f"bring the column back, or remove the bounds of {name}", path=path if path[1:] else (),
                )  # fmt: skip


def _changed(report: DriftReport, schema: SchemaValue, comparator: str) -> str:
    compared = len({feature.name for pair in report.pairs for feature in pair.features})
    bounded = any(_bounds_in(spec, comparator) for spec in schema.features)
    how = "" if bounded else " by the tests; no bound is set, so none is an anomaly"
    return f"{len(report.drifted)} of {compared} features changed{how}"
