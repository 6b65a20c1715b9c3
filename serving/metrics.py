"""What the server counts, in Prometheus's text format; TensorFlow Serving's names stand beside ours."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from typing import Final

from prometheus_client.core import CollectorRegistry, CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from .api import ModelRef, StatusCode, VersionState
from .manager import ModelManager

BUCKETS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper ends of the latency buckets, in seconds."""


class _Series:
    """The answers of one version."""

    __slots__ = ("buckets", "requests", "rows", "seconds")

    def __init__(self) -> None:
        self.requests = 0
        self.rows = 0
        self.seconds = 0.0
        self.buckets = [0] * (len(BUCKETS) + 1)


class ServingMetrics:
    """Counts of one process: plain numbers, since a request must not wait for them; made into metrics when asked."""

    def __init__(self) -> None:
        self._series: dict[tuple[str, int], _Series] = {}
        self._refused: Counter[tuple[str, StatusCode]] = Counter()

    def answered(self, model: str, version: int, rows: int, seconds: float) -> None:
        """A request was answered."""
        series = self._series.get((model, version))
        if series is None:
            series = self._series[model, version] = _Series()
        series.requests += 1
        series.rows += rows
        series.seconds += seconds
        series.buckets[bisect_left(BUCKETS, seconds)] += 1

    def refused(self, model: str, code: StatusCode) -> None:
        """A request was not answered."""
        # Names are the client's: one that no model has is counted under none.
        self._refused[model, code] += 1
        if len(self._refused) > _MOST_SERIES:
            self._refused["", code] += self._refused.pop((model, code))

    def text(self, models: ModelManager) -> bytes:
        """All of it."""
        registry = CollectorRegistry()
        registry.register(_Snapshot(self, models))
        return generate_latest(registry)

    def collect(self, models: ModelManager) -> Iterator[Metric]:
        """The metrics as they are now."""
        known = set(models.names())
        requests = CounterMetricFamily(
            "drivetrain_serving_requests", "Requests by how they ended.", labels=["model", "version", "code"]
        )
        rows = CounterMetricFamily("drivetrain_serving_rows", "Rows predicted.", labels=["model", "version"])
        latency = HistogramMetricFamily(
            "drivetrain_serving_seconds", "Time from a request to its answer.", labels=["model", "version"]
        )
        alias = CounterMetricFamily(
            ":tensorflow:serving:request_count", "TensorFlow Serving's name for the requests.",
            labels=["model_name", "status"],
        )  # fmt: skip
        by_model: Counter[str] = Counter()
        for (model, version), series in self._series.items():
            labels = [model, str(version)]
            requests.add_metric([*labels, "OK"], series.requests)
            rows.add_metric(labels, series.rows)
            total, buckets = 0, []
            for end, count in zip((*BUCKETS, "+Inf"), series.buckets, strict=True):
                total += count
                buckets.append((str(end), total))
            latency.add_metric(labels, buckets, series.seconds)
            by_model[model] += series.requests
        for model, count in by_model.items():
            alias.add_metric([model, "OK"], count)
        others: Counter[tuple[str, StatusCode]] = Counter()
        for (model, code), count in self._refused.items():
            others[model if model in known else "", code] += count
        for (model, code), count in others.items():
            requests.add_metric([model, "", code.name], count)
            alias.add_metric([model, code.name], count)
        loaded = GaugeMetricFamily(
            "drivetrain_serving_loaded", "1 where a version can be asked.", labels=["model", "version"]
        )
        for name in sorted(known):
            for status in models.statuses(ModelRef(name)) if models.has_versions(name) else []:
                loaded.add_metric([name, str(status.version)], float(status.state is VersionState.AVAILABLE))
        yield from (requests, rows, latency, alias, loaded)
        if models.request_log is not None:
            logged = CounterMetricFamily(
                "drivetrain_serving_logged_rows", "Rows that the request log has written.", labels=["model"]
            )
            dropped = CounterMetricFamily(
                "drivetrain_serving_log_dropped_rows", "Rows that the request log has lost.", labels=["model", "reason"]
            )
            written, lost = models.request_log.counts()
            for model, count in written.items():
                logged.add_metric([model], count)
            for (model, reason), count in lost.items():
                dropped.add_metric([model, reason], count)
            yield from (logged, dropped)


_MOST_SERIES: Final = 1000


class _Snapshot(Collector):
    def __init__(self, metrics: ServingMetrics, models: ModelManager) -> None:
        self._metrics = metrics
        self._models = models

    def collect(self) -> Iterator[Metric]:
        return self._metrics.collect(self._models)
