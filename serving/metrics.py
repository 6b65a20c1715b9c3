"""What the server counts, in Prometheus's text format; TensorFlow Serving's names stand beside ours."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, Final

from prometheus_client.core import CollectorRegistry, CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from .api import ModelRef, StatusCode, VersionState
from .manager import ModelManager

BUCKETS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper ends of the latency buckets, in seconds."""


class _Series:
    """The answers of one version to one kind of request."""

    __slots__ = ("buckets", "requests", "rows", "seconds")

    def __init__(self) -> None:
        self.requests = 0
        self.rows = 0
        self.seconds = 0.0
        self.buckets = [0] * (len(BUCKETS) + 1)


class ServingMetrics:
    """Counts of one process: plain numbers, since a request must not wait for them; made into metrics when asked."""

    def __init__(self) -> None:
        self._series: dict[tuple[str, int, str, str], _Series] = {}
        self._refused: Counter[tuple[str, StatusCode]] = Counter()

    def answered(self, model: str, version: int, rows: int, seconds: float, *, api: str, entrypoint: str) -> None:
        """A request was answered.

        Args:
            model: Which model answered.
            version: And which version of it.
            rows: How many it predicted.
            seconds: From the request to its answer.
            api: "predict", "classify", "regress", "multi_inference" or "infer", the Open Inference Protocol's.
            entrypoint: "REST" or "GRPC".
        """
        series = self._series.get((model, version, api, entrypoint))
        if series is None:
            series = self._series[model, version, api, entrypoint] = _Series()
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
        # The client ends counters in _total, which this one of TensorFlow Serving's does not.
        return generate_latest(registry).replace(b"serving:request_count_total", b"serving:request_count")

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
        # TensorFlow Serving's names and labels, for the dashboards that have them.
        alias = CounterMetricFamily(
            ":tensorflow:serving:request_count", "Requests by how they ended.", labels=["model_name", "status"]
        )
        alias_rows = CounterMetricFamily(
            ":tensorflow:serving:request_example_count", "Rows predicted.", labels=["model"]
        )
        alias_latency = HistogramMetricFamily(
            ":tensorflow:serving:request_latency",
            "Time from a request to its answer, in microseconds.",
            labels=["model_name", "API", "entrypoint"],
        )
        by_model: Counter[str] = Counter()
        rows_of_model: Counter[str] = Counter()
        for (model, version), series in _sums(self._series, lambda key: key[:2]):
            labels = [model, str(version)]
            requests.add_metric([*labels, "OK"], series.requests)
            rows.add_metric(labels, series.rows)
            latency.add_metric(labels, _cumulated(series.buckets, 1.0), series.seconds)
            by_model[model] += series.requests
            rows_of_model[model] += series.rows
        for (model, api, entrypoint), series in _sums(self._series, lambda key: (key[0], *key[2:])):
            alias_latency.add_metric([model, api, entrypoint], _cumulated(series.buckets, 1e6), 1e6 * series.seconds)
        for model, count in by_model.items():
            alias.add_metric([model, "OK"], count)
            alias_rows.add_metric([model], rows_of_model[model])
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
        yield from (requests, rows, latency, loaded, alias, alias_rows, alias_latency)


def _sums(
    series: Mapping[tuple[str, int, str, str], _Series], group: Callable[[tuple[str, int, str, str]], tuple[Any, ...]]
) -> Iterable[tuple[tuple[Any, ...], _Series]]:  # Any: parts of the key
    """Series by a part of their key."""
    groups: dict[tuple[Any, ...], _Series] = {}
    for key, each in series.items():
        total = groups.setdefault(group(key), _Series())
        total.requests += each.requests
        total.rows += each.rows
        total.seconds += each.seconds
        total.buckets = [a + b for a, b in zip(total.buckets, each.buckets, strict=True)]
    return groups.items()


def _cumulated(buckets: Sequence[int], unit: float) -> list[tuple[str, float]]:
    """Each bucket's upper end, in parts of a second, and how many answers took no longer."""
    ends = [*(str(end * unit) for end in BUCKETS), "+Inf"]
    return list(zip(ends, accumulate(buckets), strict=True))


_MOST_SERIES: Final = 1000


class _Snapshot(Collector):
    def __init__(self, metrics: ServingMetrics, models: ModelManager) -> None:
        self._metrics = metrics
        self._models = models

    def collect(self) -> Iterator[Metric]:
        return self._metrics.collect(self._models)
