"""Metrics between slices: how far the groups of a column lie apart in any metric, and fairness as such distances.

A group whose value is undefined makes the whole undefined, and the reason names it: to leave groups out that are too
small to have one is what `min_examples` is for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from ...errors import InputError
from .binary import of_confusion
from .definitions import Definition, Metric, Result, ratio
from .rows import TASKS

Groups: TypeAlias = Sequence[tuple[str, Any]]
"""Each group's value of the column as text, and what its metrics are computed from."""

_ALONE: Final = "fewer than two groups"
_ALL_ZERO: Final = "0 in every group"
_NEGATIVE: Final = "below 0 in a group"


def gap(*, of: Metric, by: str | Sequence[str], between: Sequence[str] | None = None) -> Metric:
    """The largest value of the metric `of` among the groups − the smallest; `between` two groups, first − second."""
    if between is None:
        return _between(f"Gap in {of.inline}", of, by, _difference, "lower")
    return _between(f"Gap in {of.inline}", of, by, lambda values: values[0] - values[1], None, _pair(between))


def gap_ratio(*, of: Metric, by: str | Sequence[str], between: Sequence[str] | None = None) -> Metric:
    """The smallest value of the metric `of` among the groups / the largest; `between` two groups, first / second."""
    if between is None:
        return _between(f"Ratio in {of.inline}", of, by, _ratio, "higher")
    pair = _pair(between)

    def quotient(values: Sequence[float]) -> Result:
        return _NEGATIVE if min(values) < 0 else ratio(values[0], values[1], f"0 in {pair[1]}")

    return _between(f"Ratio in {of.inline}", of, by, quotient, None, pair)


def _pair(between: Any) -> tuple[str, str]:  # Any: what a user wrote
    if isinstance(between, str) or len(between) != 2:
        raise InputError(f"between must name two groups, not {between!r}", fix='between=["f", "m"]')
    first, second = map(str, between)
    if first == second:
        raise InputError(f"between names the group {first!r} twice", fix='name two groups: between=["f", "m"]')
    return first, second


def _between(
    title: str,
    of: Metric,
    by: str | Sequence[str],
    compare: Callable[[Sequence[float]], Result],
    direction: Any,
    wanted: Sequence[str] = (),
) -> Metric:
    def result(groups: Groups) -> Result:
        # Several groups may have one name: that of no value is the name of some text, too.
        compared = groups
        if wanted:
            of_name = [[group for group in groups if group[0] == name] for name in wanted]
            for name, its in zip(wanted, of_name, strict=True):
                if len(its) != 1:
                    return f"{len(its)} groups are called {name}" if its else f"no group {name}"
            compared = [group for its in of_name for group in its]
        values: list[float] = []
        for name, summed in compared:
            value = of.result(summed)
            if isinstance(value, str):
                return f"{name}: {value}"
            values.append(value)
        return compare(values) if len(values) > 1 else _ALONE

    columns = (by,) if isinstance(by, str) else tuple(by)
    if not columns:
        raise InputError("by names no column", fix='name one, or several: by="sex"')
    bar = of.bar and not wanted
    title = f"{title} by {', '.join(columns)}"
    compares = {of.title: of.result}
    return Metric(title, direction, of.state, result, bar=bar, by=columns, compares=compares, total=of.total)


def _difference(values: Sequence[float]) -> Result:
    return max(values) - min(values)


def _ratio(values: Sequence[float]) -> Result:
    return _NEGATIVE if min(values) < 0 else ratio(min(values), max(values), _ALL_ZERO)


def demographic_parity_difference(*, by: str | Sequence[str], threshold: float = 0.5) -> Metric:
    """The largest share of predicted positives among the groups − the smallest."""
    return _named("Demographic parity difference", gap, "predicted_positive_rate", by, threshold)


def demographic_parity_ratio(*, by: str | Sequence[str], threshold: float = 0.5) -> Metric:
    """The smallest share of predicted positives among the groups / the largest."""
    return _named("Demographic parity ratio", gap_ratio, "predicted_positive_rate", by, threshold)


def equal_opportunity_difference(*, by: str | Sequence[str], threshold: float = 0.5) -> Metric:
    """The largest recall among the groups − the smallest (Hardt, Price and Srebro 2016)."""
    return _named("Equal opportunity difference", gap, "recall", by, threshold)


def equal_opportunity_ratio(*, by: str | Sequence[str], threshold: float = 0.5) -> Metric:
    """The smallest recall among the groups / the largest."""
    return _named("Equal opportunity ratio", gap_ratio, "recall", by, threshold)


def predictive_parity_difference(*, by: str | Sequence[str], threshold: float = 0.5) -> Metric:
    """The largest precision among the groups − the smallest."""
    return _named("Predictive parity difference", gap, "precision", by, threshold)


def predictive_parity_ratio(*, by: str | Sequence[str], threshold: float = 0.5) -> Metric:
    """The smallest precision among the groups / the largest."""
    return _named("Predictive parity ratio", gap_ratio, "precision", by, threshold)


def equalized_odds_difference(*, by: str | Sequence[str], threshold: float = 0.5) -> Metric:
    """The larger of the gaps in recall and in false positive rate among the groups."""
    return _odds("Equalized odds difference", gap, max, by, threshold)


def equalized_odds_ratio(*, by: str | Sequence[str], threshold: float = 0.5) -> Metric:
    """The smaller of the ratios in recall and in false positive rate among the groups."""
    return _odds("Equalized odds ratio", gap_ratio, min, by, threshold)


def _named(title: str, kind: Callable[..., Metric], name: str, by: str | Sequence[str], threshold: float) -> Metric:
    metric = kind(of=of_confusion(name, threshold=threshold), by=by)
    return metric.titled(f"{title} by {', '.join(metric.by)}")


def _odds(
    title: str, kind: Callable[..., Metric], choose: Callable[..., Result], by: str | Sequence[str], threshold: float
) -> Metric:
    recall, fall_out = (kind(of=of_confusion(name, threshold=threshold), by=by) for name in ("recall", "fall_out"))

    def result(groups: Groups) -> Result:
        # A rate that is 0 in every group sets none of them apart.
        values = [value for value in (recall.result(groups), fall_out.result(groups)) if value != _ALL_ZERO]
        reasons = [value for value in values if isinstance(value, str)]
        return reasons[0] if reasons else choose(values, default=_ALL_ZERO)

    title = f"{title} by {', '.join(recall.by)}"
    compares = {**recall.compares, **fall_out.compares}
    return Metric(title, recall.direction, recall.state, result, bar=True, by=recall.by, compares=compares)


_FAIRNESS: Final = (
    demographic_parity_difference,
    demographic_parity_ratio,
    equalized_odds_difference,
    equalized_odds_ratio,
    equal_opportunity_difference,
    equal_opportunity_ratio,
    predictive_parity_difference,
    predictive_parity_ratio,
)

BETWEEN_SLICES_METRICS: Final[Mapping[str, Definition]] = {
    "gap": Definition(gap, TASKS),
    "gap_ratio": Definition(gap_ratio, TASKS),
    **{build.__name__: Definition(build, ("binary",)) for build in _FAIRNESS},
}
