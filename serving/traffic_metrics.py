"""The metrics of rollouts, of their guards and of shadow traffic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from .latency import cumulated
from .shadow import ShadowCounts, merged

_FIGURES: Final = ("error_rate", "refused_rate", "p99_seconds")


class TrafficMetrics(Collector):
    """Of all workers together, since one process decides for them.

    Args:
        statuses: Of the rollouts, as `RolloutControl.statuses` gives them.
        shadows: What came of shadows, in each process.
    """

    def __init__(self, statuses: Sequence[Mapping[str, Any]], shadows: Sequence[Sequence[ShadowCounts]]) -> None:
        self._statuses = statuses
        self._shadows = merged(shadows)

    def collect(self) -> Iterator[Metric]:
        """Those that there is anything to say of."""
        yield from (family for family in (*self._rollout(), *self._shadow()) if family.samples)

    def _rollout(self) -> Iterator[Metric]:
        share = GaugeMetricFamily(
            "drivetrain_serving_traffic_share", "Percent of the requests without a version that a version gets.",
            labels=["model", "version"],
        )  # fmt: skip
        rollbacks = CounterMetricFamily(
            "drivetrain_serving_rollbacks", "Rollouts that the guard or an operator ended, by the limit.",
            labels=["model", "version", "limit"],
        )  # fmt: skip
        figures = GaugeMetricFamily(
            "drivetrain_serving_guard", "What the guard of a rollout sees of its two versions over its window.",
            labels=["model", "role", "figure"],
        )  # fmt: skip
        drift = GaugeMetricFamily(
            "drivetrain_serving_prediction_drift",
            "Population stability index of an output of the version that takes over against the one that serves.",
            labels=["model", "output"],
        )
        for status in self._statuses:
            model, candidate, incumbent = status["model"], status["candidate"], status["incumbent"]
            if candidate is not None:
                share.add_metric([model, str(candidate)], status["share"])
            if incumbent is not None:
                share.add_metric([model, str(incumbent)], 100 - status["share"])
            for version, limit, count in status["rollbacks"]:
                rollbacks.add_metric([model, str(version), limit], count)
            if candidate is None or status["figures"] is None:
                continue
            for role in ("candidate", "incumbent"):
                for name in _FIGURES:
                    if (value := status["figures"][role][name]) is not None:
                        figures.add_metric([model, role, name], value)
            for output, index in status["figures"]["drift"].items():
                drift.add_metric([model, output], index)
        yield from (share, rollbacks, figures, drift)

    def _shadow(self) -> Iterator[Metric]:
        labels = ["model", "version", "answered_by"]
        requests = CounterMetricFamily(
            "drivetrain_serving_shadow_requests", "Requests that a shadow was asked, by how they ended.",
            labels=[*labels, "code"],
        )  # fmt: skip
        dropped = CounterMetricFamily(
            "drivetrain_serving_shadow_dropped", "Requests that a shadow was not asked, by the reason.",
            labels=[*labels, "reason"],
        )  # fmt: skip
        latency = HistogramMetricFamily(
            "drivetrain_serving_shadow_seconds", "Time from a client's answer to the shadow's.", labels=labels
        )
        names = {
            "rows": "Rows of an output that were compared.",
            "differing_rows": "Rows of which a value differs by more than the tolerance.",
            "flipped_rows": "Rows whose class differs.",
            "absolute_difference": "The absolute differences of an output's numbers, added up.",
            "compared_values": "The numbers that were compared.",
        }
        sums = {
            name: CounterMetricFamily(f"drivetrain_serving_shadow_{name}", text, labels=[*labels, "output"])
            for name, text in names.items()
        }
        largest = GaugeMetricFamily(
            "drivetrain_serving_shadow_max_absolute_difference", "The largest difference of an output's numbers.",
            labels=[*labels, "output"],
        )  # fmt: skip
        for each in self._shadows:
            pair = [each.model, str(each.version), str(each.answered)]
            requests.add_metric([*pair, "OK"], each.requests)
            for code, count in each.errors.items():
                requests.add_metric([*pair, code], count)
            for reason, count in each.dropped.items():
                dropped.add_metric([*pair, reason], count)
            latency.add_metric(pair, cumulated(each.buckets, 1.0), each.seconds)
            for output, apart in each.outputs.items():
                values = (apart.rows, apart.differing, apart.flipped, apart.total, apart.compared)
                for name, value in zip(names, values, strict=True):
                    sums[name].add_metric([*pair, output], value)
                largest.add_metric([*pair, output], apart.largest)
        yield from (requests, dropped, latency, *sums.values(), largest)
