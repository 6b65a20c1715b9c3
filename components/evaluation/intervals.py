"""The intervals of all metrics of a slice: of each model, and of the change from the baseline to the candidate."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .confidence import Counts, Interval
from .config import EvaluationConfig
from .definitions import Metric, Result, checked
from .resampling import Resamples, bucketed
from .states import MetricState
from .validation import relative_change


def bucketed_states(config: EvaluationConfig, metrics: Mapping[str, Metric]) -> dict[MetricState, MetricState]:
    """The states of metrics that get an interval, and for each the one that keeps it by buckets."""
    if config.confidence is None:
        return {}
    states = dict.fromkeys(metric.state for metric in metrics.values() if not metric.total)
    return {state: bucketed(state, config.resampling.parts) for state in states}


def intervals_of(
    config: EvaluationConfig,
    metrics: Mapping[str, Metric],
    values: Mapping[str, Mapping[str, Result]],
    sums: Sequence[Mapping[MetricState, Any]],
    rows: int,
) -> dict[str, dict[str, Interval]]:
    """Model → metric → the two ends of its interval, or the reason why there is none.

    With a baseline, `change` and `relative_change` beside the models. Both models' rows are in the same buckets, so
    that what is hard for both does not widen the interval of their difference.

    Args:
        config: How; without `confidence` the result is empty.
        metrics: By name; none between slices.
        values: Model → metric → its value, the candidate's first.
        sums: For each model, state → what it gives of the slice, those of `bucketed_states` among them.
        rows: How many the slice has.
    """
    parts = bucketed_states(config, metrics)
    if not parts:
        return {}
    judged = {name: metric for name, metric in metrics.items() if not metric.total}
    counts = config.resampling.draws()
    resampled: list[dict[str, list[Result]]] = []
    for each in sums:
        drawn = {state: each[part].draw(_differing(config, counts, [each[part]])) for state, part in parts.items()}
        resampled.append(
            {name: [metric.value(draw) for draw in drawn[metric.state]] for name, metric in judged.items()}
        )
    models = list(values)
    intervals = _from_resamples(config, judged, models, list(values.values()), resampled, rows)
    if config.resampling.method == "delong":
        for (model, value), each in zip(values.items(), sums, strict=True):
            for name, metric in judged.items():
                if metric.variance is not None:
                    interval = _by_formula(config, value[name], metric.variance(each[metric.state]), rows)
                    intervals[model][name] = within_bounds(interval, metric)
    return intervals


def intervals_between(
    config: EvaluationConfig,
    name: str,
    metric: Metric,
    models: Sequence[str],
    groups: Sequence[tuple[str, Sequence[Mapping[MetricState, Any]]]],
    rows: int,
) -> dict[str, dict[str, Interval]]:
    """As `intervals_of`, of one metric between slices.

    Args:
        config: How; without `confidence` the result is empty.
        name: What the metric is called.
        metric: The metric.
        models: Their names, the candidate's first.
        groups: The slices' values as text, and their `sums`.
        rows: How many they have together.
    """
    part = bucketed_states(config, {name: metric}).get(metric.state)
    if part is None:
        return {}
    counts = config.resampling.draws()
    values, resampled = [], []
    for model in range(len(models)):
        buckets = [(value, sums[model][part]) for value, sums in groups]
        draws = _differing(config, counts, [each for _, each in buckets])
        values.append({name: between(metric, model, groups)})
        drawn = [[(value, draw) for draw in each.draw(draws)] for value, each in buckets]
        resampled.append({name: [metric.value(list(pairs)) for pairs in zip(*drawn, strict=True)]})
    return _from_resamples(config, {name: metric}, models, values, resampled, rows)


def between(metric: Metric, model: int, groups: Sequence[tuple[str, Sequence[Mapping[MetricState, Any]]]]) -> Result:
    """The value of a metric between slices, for one of the models."""
    return metric.value([(value, sums[model][metric.state]) for value, sums in groups])


def _differing(config: EvaluationConfig, counts: Counts, parts: Sequence[Resamples]) -> Counts:
    """The resamples that differ from all rows: of those without a bucket, the ones whose bucket has rows."""
    if config.resampling.method == "bootstrap":
        return counts
    occupied = np.zeros(counts.shape[1], dtype=np.bool_)
    for part in parts:
        occupied |= part.occupied
    return counts[occupied]


def _from_resamples(
    config: EvaluationConfig,
    metrics: Mapping[str, Metric],
    models: Sequence[str],
    values: Sequence[Mapping[str, Result]],
    resampled: Sequence[Mapping[str, Sequence[Result]]],
    rows: int,
) -> dict[str, dict[str, Interval]]:
    confidence = config.resampling
    intervals = {
        model: {
            name: within_bounds(confidence.interval(value[name], draws[name], rows), metric)
            for name, metric in metrics.items()
        }
        for model, value, draws in zip(models, values, resampled, strict=True)
    }
    if len(models) > 1:
        for kind, compare in (("change", _change), ("relative_change", _relative)):
            intervals[kind] = {
                name: confidence.interval(
                    compare(values[0][name], values[1][name]),
                    [compare(*pair) for pair in zip(resampled[0][name], resampled[1][name], strict=True)],
                    rows,
                )
                for name in metrics
            }
    return intervals


def _by_formula(config: EvaluationConfig, value: Result, variance: Result, rows: int) -> Interval:
    if isinstance(value, str) or isinstance(variance, str):
        return value if isinstance(value, str) else str(variance)
    return config.resampling.around(value, math.sqrt(variance), math.inf, rows)


def within_bounds(interval: Interval, metric: Metric) -> Interval:
    """A share's interval ends at 0 and 1."""
    if isinstance(interval, str) or not metric.bar:
        return interval
    return max(interval[0], 0.0), min(interval[1], 1.0)


def _change(value: Result, before: Result) -> Result:
    if isinstance(value, str) or isinstance(before, str):
        return value if isinstance(value, str) else str(before)
    return value - before


def _relative(value: Result, before: Result) -> Result:
    if isinstance(value, str) or isinstance(before, str):
        return value if isinstance(value, str) else str(before)
    return checked(relative_change(value, before))
