"""What the server counts, in Prometheus's text format; TensorFlow Serving's names stand beside ours."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from prometheus_client.core import CollectorRegistry, CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from .api import ModelRef, StatusCode, VersionState
from .manager import ModelManager

BUCKETS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper ends of the latency buckets, in seconds."""


@dataclass(slots=True)
class VersionCounts:
    """The answers of one version.

    Attributes:
        model: Of the version.
        version: Its number.
        requests: How many were answered.
        rows: How many rows they had.
        seconds: What they took together.
        buckets: How many took at most as long as each of `BUCKETS` and longer than the one before; last the rest.
    """

    model: str
    version: int
    requests: int = 0
    rows: int = 0
    seconds: float = 0.0
    buckets: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS) + 1))


@dataclass(frozen=True, slots=True)
class ProcessCounts:
    """What one process counted.

    Attributes:
        worker: Which it is; "" where it is the only one.
        answered: By version.
        refused: Requests that were not answered: model, code, how many.
    """

    worker: str
    answered: list[VersionCounts]
    refused: list[tuple[str, int, int]]


class ServingMetrics:
    """Counts of one process: plain numbers, since a request must not wait for them; made into metrics when asked."""

    def __init__(self) -> None:
        self._series: dict[tuple[str, int], VersionCounts] = {}
        self._refused: Counter[tuple[str, StatusCode]] = Counter()

    def answered(self, model: str, version: int, rows: int, seconds: float) -> None:
        """A request was answered."""
        series = self._series.get((model, version))
        if series is None:
            series = self._series[model, version] = VersionCounts(model, version)
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

    def counts(self, worker: str = "") -> ProcessCounts:
        """The counts as they are now."""
        refused = [(model, int(code), count) for (model, code), count in self._refused.items()]
        return ProcessCounts(worker, [*self._series.values()], refused)

    async def everywhere(self) -> list[ProcessCounts]:
        """The counts of every process that answers at this server's port."""
        return [self.counts()]

    async def text(self, models: ModelManager) -> bytes:
        """All of it."""
        registry = CollectorRegistry()
        registry.register(_Snapshot(await self.everywhere(), models))
        return generate_latest(registry)


_MOST_SERIES: Final = 1000


class _Snapshot(Collector):
    """The metrics of some counts; with several workers each has a label `worker`, since each counts from 0 on."""

    def __init__(self, processes: Sequence[ProcessCounts], models: ModelManager) -> None:
        self._processes = processes
        self._models = models

    def collect(self) -> Iterator[Metric]:
        several = ["worker"] if any(process.worker for process in self._processes) else []
        requests = CounterMetricFamily(
            "drivetrain_serving_requests", "Requests by how they ended.", labels=["model", "version", "code", *several]
        )
        rows = CounterMetricFamily("drivetrain_serving_rows", "Rows predicted.", labels=["model", "version", *several])
        latency = HistogramMetricFamily(
            "drivetrain_serving_seconds", "Time from a request to its answer.", labels=["model", "version", *several]
        )
        alias = CounterMetricFamily(
            ":tensorflow:serving:request_count", "TensorFlow Serving's name for the requests.",
            labels=["model_name", "status", *several],
        )  # fmt: skip
        for process in self._processes:
            self._add(process, [process.worker] if several else [], requests, rows, latency, alias)
        yield from (requests, rows, latency, alias, self._loaded())

    def _add(
        self,
        process: ProcessCounts,
        worker: list[str],
        requests: CounterMetricFamily,
        rows: CounterMetricFamily,
        latency: HistogramMetricFamily,
        alias: CounterMetricFamily,
    ) -> None:
        by_model: Counter[str] = Counter()
        for series in process.answered:
            labels = [series.model, str(series.version)]
            requests.add_metric([*labels, "OK", *worker], series.requests)
            rows.add_metric([*labels, *worker], series.rows)
            total, buckets = 0, []
            for end, count in zip((*BUCKETS, "+Inf"), series.buckets, strict=True):
                total += count
                buckets.append((str(end), total))
            latency.add_metric([*labels, *worker], buckets, series.seconds)
            by_model[series.model] += series.requests
        for model, count in by_model.items():
            alias.add_metric([model, "OK", *worker], count)
        known = set(self._models.names())
        others: Counter[tuple[str, str]] = Counter()
        for model, code, count in process.refused:
            others[model if model in known else "", StatusCode(code).name] += count
        for (model, name), count in others.items():
            requests.add_metric([model, "", name, *worker], count)
            alias.add_metric([model, name, *worker], count)

    def _loaded(self) -> Metric:
        loaded = GaugeMetricFamily(
            "drivetrain_serving_loaded", "1 where a version can be asked.", labels=["model", "version"]
        )
        for model in sorted(self._models.names()):
            for status in self._models.statuses(ModelRef(model)) if self._models.has_versions(model) else []:
                loaded.add_metric([model, str(status.version)], float(status.state is VersionState.AVAILABLE))
        return loaded
