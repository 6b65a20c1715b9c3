"""The intervals of all metrics of a slice: of each model, and of the change from the baseline to the candidate."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from .confidence import Interval
from .config import EvaluationConfig
from .definitions import Metric, Result, checked
from .metrics import COUNTS
from .resampling import bucketed
from .states import MetricState
from .validation import relative_change


def bucketed_states(config: EvaluationConfig, metrics: Mapping[str, Metric]) -> dict[MetricState, MetricState]:
    """The states of metrics that get an interval, and for each the one that keeps it by buckets."""
    if config.confidence is None:
        return {}
    states = dict.fromkeys(metric.state for name, metric in metrics.items() if name not in COUNTS)
    return {state: bucketed(state, config.resampling.parts) for state in states}


def intervals_of(
    config: EvaluationConfig,
    metrics: Mapping[str, Metric],
    models: Sequence[str],
    sums: Sequence[Mapping[MetricState, Any]],
) -> dict[str, dict[str, Interval]]:
    """Model → metric → the two ends of its interval, or the reason why there is none.

    With a baseline, `change` and `relative_change` beside the models. Both models' rows are in the same buckets, so
    that what is hard for both does not widen the interval of their difference.

    Args:
        config: How; without `confidence` the result is empty.
        metrics: By name.
        models: Their names, the candidate's first.
        sums: For each model, state → what it gives of the slice, those of `bucketed_states` among them.
    """
    parts = bucketed_states(config, metrics)
    if not parts:
        return {}
    confidence = config.resampling
    counts, leave_out = confidence.draws(), confidence.method != "bootstrap"
    judged = {name: metric for name, metric in metrics.items() if metric.state in parts and name not in COUNTS}
    values: list[dict[str, Result]] = []
    resampled: list[dict[str, list[Result]]] = []
    for each in sums:
        drawn = {state: each[part].each(counts, leave_out=leave_out) for state, part in parts.items()}
        values.append({name: checked(metric.result(each[metric.state])) for name, metric in judged.items()})
        resampled.append(
            {name: [checked(metric.result(draw)) for draw in drawn[metric.state]] for name, metric in judged.items()}
        )
    intervals: dict[str, dict[str, Interval]] = {}
    for model, value, draws, each in zip(models, values, resampled, sums, strict=True):
        intervals[model] = {}
        for name, metric in judged.items():
            interval = confidence.interval(value[name], draws[name])
            if confidence.method == "delong" and metric.variance is not None:
                interval = _by_formula(config, value[name], metric.variance(each[metric.state]))
            intervals[model][name] = _within_bounds(interval, metric)
    if len(models) > 1:
        for kind, compare in (("change", _change), ("relative_change", _relative)):
            intervals[kind] = {
                name: confidence.interval(
                    compare(values[0][name], values[1][name]),
                    [compare(*pair) for pair in zip(resampled[0][name], resampled[1][name], strict=True)],
                )
                for name in judged
            }
    return intervals


def _by_formula(config: EvaluationConfig, value: Result, variance: Result) -> Interval:
    if isinstance(value, str) or isinstance(variance, str):
        return value if isinstance(value, str) else str(variance)
    return config.resampling.around(value, math.sqrt(variance), math.inf)


def _within_bounds(interval: Interval, metric: Metric) -> Interval:
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
