"""Drift and skew: how each feature of some data sets differs from the same feature of a control, and by how much.

Span to span, training to serving, split to split: what is compared are two statistics; no rows are read. The report has
every feature, also those that did not change.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from ...errors import InputError, suggest
from ...redaction import printable
from ..frames import frame
from ..schemas.comparators import COMPARATORS
from ..schemas.schema import Schema, check_is_schema
from ..schemas.struct_fields import Path, path_name, with_fields
from ..stats.column import ColumnState
from ..stats.document import Statistics, statistics_of
from .compare import MEASURES, Comparison, Measure
from .measures import benjamini_hochberg, holm

FORMAT: Final = "drivetrain.drift/1"
CORRECTIONS: Final[Mapping[str, Callable[[Sequence[float]], list[float]]]] = {
    "bh": benjamini_hochberg,
    "holm": holm,
    "none": list,
}
# Among millions of rows any difference is significant, so a change must also be one that matters: small effects by
# Cohen (1988) for Cramér's V and h, a tenth of the rows for Kolmogorov–Smirnov and for new values.
SMALL: Final[Mapping[str, float]] = {
    "kolmogorov_smirnov": 0.1,
    "chi_squared": 0.1,
    "new_values": 0.1,
    "missing_rate": 0.2,
}


@dataclass(frozen=True)
class FeatureDrift:
    """How one feature changed, or the lengths of its lists.

    Attributes:
        name: The feature, or the path of a struct's field; with " (lengths)" behind it how many items its lists have,
            "x[] (lengths)" for the lists within its lists.
        status: "compared", "type changed", "only in current" or "only in previous".
        current: `{"type", "rows", "missing", "nan"}` of the current side; empty where it lacks the feature. Of
            lengths, "rows" are the items of the lists.
        previous: Likewise of the control.
        measures: All of `MEASURES` by name; empty where a side lacks the feature.
        moved: Values, or cells of numbers, whose share changed most: `{"value", "current", "previous"}`.
        thresholds: Largest values that the schema allows, by comparator.
        high: Comparators whose number is above its threshold.
        drifted: See `DriftReport`.
        reason: Why it counts as drifted, or "".
        path: Of a field of a struct: the column's name and those of the fields down to it; else ().
    """

    name: str
    status: str
    current: Mapping[str, Any]
    previous: Mapping[str, Any]
    measures: Mapping[str, Measure]
    moved: tuple[Mapping[str, Any], ...] = ()
    thresholds: Mapping[str, float] = field(default_factory=dict)
    high: tuple[str, ...] = ()
    drifted: bool = False
    reason: str = ""
    path: Path = ()

    def number(self, comparator: str) -> float | None:
        """The number that a comparator of the schema looks at; None where its measure has no value."""
        wanted = COMPARATORS[comparator]
        measure = self.measures.get(wanted.measure)
        number: float | None = None if measure is None else getattr(measure, wanted.field)
        return number

    def to_dict(self) -> dict[str, Any]:
        """The feature as JSON-able values."""
        return {
            "name": self.name,
            **({"path": list(self.path)} if self.path else {}),
            "status": self.status,
            "drifted": self.drifted,
            "reason": self.reason,
            "current": dict(self.current),
            "previous": dict(self.previous),
            "measures": [measure.to_dict() for measure in self.measures.values()],
            "moved": [dict(item) for item in self.moved],
            "thresholds": dict(self.thresholds),
            "high": list(self.high),
        }


@dataclass(frozen=True)
class DatasetDrift:
    """How one data set differs from its control.

    Attributes:
        current: The data set's name.
        previous: The control's name.
        rows: Rows of both.
        features: Every feature of either, in the current data's order.
    """

    current: str
    previous: str
    rows: tuple[int, int]
    features: tuple[FeatureDrift, ...]

    def __getitem__(self, name: str) -> FeatureDrift:
        """The feature of that name.

        Raises:
            InputError: There is none.
        """
        for feature in self.features:
            if feature.name == name:
                return feature
        fix = suggest(str(name), [feature.name for feature in self.features])
        raise InputError(f"there is no feature {name!r} in the drift of {self.current}", fix=fix)

    @property
    def drifted(self) -> tuple[str, ...]:
        """Names of the features that drifted."""
        return tuple(feature.name for feature in self.features if feature.drifted)


@dataclass(frozen=True)
class DriftReport:
    """The result of `drift`.

    A feature counts as drifted if the schema bounds it and a number is above its bound; or, where the schema says
    nothing about it, if a test is significant after correction (below `alpha`) and its effect is not small (see
    `SMALL`), or if a side lacks it or its type changed.

    Attributes:
        pairs: One per pair of data sets.
        correction: "bh", "holm" or "none".
        alpha: Largest adjusted p-value that is significant.
        unpaired: Data sets of either side without a partner.
    """

    pairs: tuple[DatasetDrift, ...]
    correction: str
    alpha: float
    unpaired: tuple[str, ...] = ()

    def __repr__(self) -> str:
        parts = (
            f"{pair.current} against {pair.previous}: {len(pair.drifted)} of {len(pair.features)} features drifted"
            for pair in self.pairs
        )
        return printable(f"DriftReport({'; '.join(parts)})")

    def __getitem__(self, name: str) -> FeatureDrift:
        """The feature of that name in the first pair.

        Raises:
            InputError: There is none.
        """
        return self.pairs[0][name]

    @property
    def drifted(self) -> tuple[str, ...]:
        """Names of the features that drifted in any pair."""
        return tuple(dict.fromkeys(name for pair in self.pairs for name in pair.drifted))

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON-able values."""
        return {
            "format": FORMAT,
            "correction": self.correction,
            "alpha": self.alpha,
            "drifted": list(self.drifted),
            "unpaired": list(self.unpaired),
            "pairs": [
                {
                    "current": {"name": pair.current, "rows": pair.rows[0]},
                    "previous": {"name": pair.previous, "rows": pair.rows[1]},
                    "features": [feature.to_dict() for feature in pair.features],
                }
                for pair in self.pairs
            ],
        }

    def to_json(self) -> str:
        """`to_dict` as indented JSON; equal reports give equal text."""
        return json.dumps(self.to_dict(), indent=1, ensure_ascii=False, allow_nan=False) + "\n"

    def to_pandas(self) -> Any:  # a pandas.DataFrame: pandas ships no types
        """One row per pair of data sets, feature and measure.

        Raises:
            DrivetrainError: pandas is not installed.
        """
        return frame(("current", "previous", "feature", "status", "drifted", "measure", *_NUMBERS), self._lines())

    def _lines(self) -> Iterator[tuple[Any, ...]]:
        for pair in self.pairs:
            for feature in pair.features:
                head = (pair.current, pair.previous, feature.name, feature.status, feature.drifted)
                if not feature.measures:
                    yield (*head, None, *(None for _ in _NUMBERS))
                for measure in feature.measures.values():
                    yield (*head, measure.name, *(getattr(measure, field) for field in _NUMBERS))

    def to_html(self) -> str:
        """A self-contained page."""
        from ...report.drift import drift_page

        return drift_page(self.to_dict())

    def _repr_html_(self) -> str:
        from ...report.html import framed

        return framed(self.to_html())


_NUMBERS: Final = (
    "value", "exact", "error", "p_value", "adjusted_p", "effect", "effect_name", "over", "at", "note",
)  # fmt: skip


def drift(
    current: object,
    previous: object,
    *,
    schema: Schema | None = None,
    comparator: Literal["drift", "skew"] = "drift",
    pairs: Sequence[tuple[str, str]] | None = None,
    correction: str = "bh",
    alpha: float = 0.05,
) -> DriftReport:
    """How every feature of `current` differs from the same feature of a control.

    Args:
        current: `Statistics`, or what `statistics` takes: a DataFrame, an Arrow table, a path, …, or such by name.
        previous: The control: an earlier span, the training data, another split; likewise.
        schema: Its features' thresholds decide, where they have any.
        comparator: Which thresholds of the schema: "drift" (between spans) or "skew" (between training and serving).
        pairs: Names of the data sets to compare, (current, previous); where None those of one name, and if there are
            none, all with the only one that the control has.
        correction: For the tests of all features of a pair together: "bh" (Benjamini–Hochberg), "holm" or "none".
        alpha: Largest adjusted p-value that counts as significant.

    Raises:
        InputError: No data sets to compare, an unknown name or correction, or an argument of another type.
    """
    _check_types(alpha, pairs)
    if schema is not None:
        check_is_schema(schema, "drift(current, previous, schema=schema)")
    if correction not in CORRECTIONS:
        raise InputError(f"there is no correction {correction!r}", fix=f"use {', '.join(CORRECTIONS)}")
    if comparator not in ("drift", "skew"):
        raise InputError(f"there is no comparator {comparator!r}", fix="use drift or skew")
    new, old = statistics_of(current), statistics_of(previous)
    chosen = pair_up(new, old) if pairs is None else list(pairs)
    specs = () if schema is None else with_fields(schema.features)
    thresholds = {path: getattr(spec, comparator) for path, spec in specs}
    datasets = []
    for name, control in chosen:
        for side, side_statistics, wanted in (("current", new, name), ("previous", old, control)):
            if wanted not in side_statistics.splits:
                raise InputError(
                    f"the {side} statistics have no data set {wanted!r}", fix=f"use {', '.join(side_statistics.splits)}"
                )
        features = list(_features(new.state(name).data_columns, old.state(control).data_columns, thresholds))
        features = [_judged(item, alpha) for item in _corrected(features, CORRECTIONS[correction])]
        datasets.append(DatasetDrift(name, control, (new.splits[name], old.splits[control]), tuple(features)))
    seen = ({name for name, _ in chosen}, {control for _, control in chosen})
    unpaired = [
        name for side, compared in zip((new, old), seen, strict=True) for name in side.splits if name not in compared
    ]
    return DriftReport(tuple(datasets), correction, alpha, tuple(dict.fromkeys(unpaired)))


def _check_types(alpha: object, pairs: object) -> None:
    if not isinstance(alpha, int | float):
        raise InputError(f"alpha is {alpha!r}, not a number", fix="use e.g. 0.05")
    listed = pairs if isinstance(pairs, list | tuple) else [pairs]
    if pairs is not None and not all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in listed):
        raise InputError(f"pairs is {pairs!r}, not a list of pairs", fix='write e.g. [("eval", "train")]')


def pair_up(current: Statistics, previous: Statistics) -> list[tuple[str, str]]:
    """The data sets to compare: those of one name; if there are none, all with the only one that the control has.

    Raises:
        InputError: There is no such pair.
    """
    names, controls = list(current.splits), list(previous.splits)
    same = [(name, name) for name in names if name in controls]
    if not same and len(controls) == 1:
        return [(name, controls[0]) for name in names]
    if not same:
        raise InputError(
            f"no data set is in both statistics: {', '.join(names) or 'none'}; {', '.join(controls) or 'none'}",
            fix="name the pairs to compare",
        )
    return same


def _features(
    current: Mapping[str, ColumnState],
    previous: Mapping[str, ColumnState],
    thresholds: Mapping[Path, Mapping[str, float]],
    above: Path = (),
) -> Iterator[FeatureDrift]:
    for name in dict.fromkeys((*current, *previous)):
        path = (*above, name)
        new, old = current.get(name), previous.get(name)
        for feature_drift in _column(path_name(path), new, old, thresholds.get(path, {})):
            yield replace(feature_drift, path=path) if above else feature_drift
        if new is not None and old is not None:
            yield from _features(new.levels[-1].fields, old.levels[-1].fields, thresholds, path)


def _column(
    name: str, current: ColumnState | None, previous: ColumnState | None, thresholds: Mapping[str, float]
) -> Iterator[FeatureDrift]:
    if current is None or previous is None:
        status = "only in previous" if current is None else "only in current"
        yield FeatureDrift(name, status, _side(current), _side(previous), {}, thresholds=thresholds)
        return
    feature_drift = _compared(name, Comparison(current, previous), (_side(current), _side(previous)))
    if thresholds:
        values = {comparator: feature_drift.number(comparator) for comparator in thresholds}
        high = [key for key, value in values.items() if value is not None and value > thresholds[key]]
        feature_drift = replace(feature_drift, thresholds=thresholds, high=tuple(high))
    yield feature_drift
    for level in range(min(len(current.levels), len(previous.levels)) - 1):
        both = Comparison(current, previous, lengths=level)
        sides = (_side(items) | {"type": "lengths"} for items in both.present)
        yield _compared(f"{name}{'[]' * level} (lengths)", both, tuple(sides))


def _compared(name: str, both: Comparison, sides: tuple[dict[str, Any], ...]) -> FeatureDrift:
    status = "compared" if both.same_type else "type changed"
    measures = {measure: both.measure(measure) for measure in MEASURES}
    return FeatureDrift(name, status, sides[0], sides[1], measures, tuple(both.moved()))


def _side(column: ColumnState | None) -> dict[str, Any]:
    if column is None:
        return {}
    return {"type": column.kind, "rows": column.rows, "missing": column.missing, "nan": column.nan}


def _corrected(
    features: Sequence[FeatureDrift], correct: Callable[[Sequence[float]], list[float]]
) -> list[FeatureDrift]:
    """The features with the p-values of all their tests adjusted together."""
    tests = [
        (index, name, measure.p_value)
        for index, feature in enumerate(features)
        for name, measure in feature.measures.items()
        if measure.p_value is not None
    ]
    measures = [dict(feature.measures) for feature in features]
    for (index, name, _), adjusted_p in zip(tests, correct([p_value for *_, p_value in tests]), strict=True):
        measures[index][name] = replace(measures[index][name], adjusted_p=adjusted_p)
    return [replace(feature, measures=adjusted) for feature, adjusted in zip(features, measures, strict=True)]


def _judged(feature: FeatureDrift, alpha: float) -> FeatureDrift:
    if feature.thresholds:
        reasons = [
            f"{COMPARATORS[name].title} {feature.number(name):.6g} > {feature.thresholds[name]:g}"
            for name in feature.high
        ]
        return replace(feature, drifted=bool(reasons), reason="; ".join(reasons))
    if feature.status != "compared":
        return replace(feature, drifted=True, reason=feature.status)
    reasons = [
        f"{measure.effect_name} {measure.effect:.3g}, adjusted p {_shown(measure.adjusted_p)}"
        for name, least in SMALL.items()
        if (measure := feature.measures[name]).effect is not None
        and measure.adjusted_p is not None
        and measure.adjusted_p < alpha
        and measure.effect >= least
    ]
    return replace(feature, drifted=True, reason="; ".join(reasons)) if reasons else feature


def _shown(p_value: float) -> str:
    return "< 1e-300" if p_value < 1e-300 else f"{p_value:.2g}"
