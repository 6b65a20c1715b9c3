"""What the server counts, in Prometheus's text format; TensorFlow Serving's names stand beside ours."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from prometheus_client.core import CollectorRegistry, CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from .api import ModelRef, StatusCode, VersionState
from .latency import BUCKETS, cumulated
from .manager import ModelManager
from .shadow import ShadowCounts
from .traffic_metrics import TrafficMetrics


@dataclass(slots=True)
class VersionCounts:
    """The answers of one version to one kind of request.

    Attributes:
        model: Of the version.
        version: Its number.
        api: "predict", "classify", "regress", "multi_inference" or "infer", the Open Inference Protocol's.
        entrypoint: "REST" or "GRPC".
        requests: How many were answered.
        rows: How many rows they had.
        seconds: What they took together.
        buckets: How many took at most as long as each of `BUCKETS` and longer than the one before; last the rest.
    """

    model: str
    version: int
    api: str
    entrypoint: str
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
        logged: Rows that the request log has written: model, how many.
        dropped: Rows that it has lost: model, reason, how many.
        shadows: What came of shadow traffic.
    """

    worker: str
    answered: list[VersionCounts]
    refused: list[tuple[str, int, int]]
    logged: list[tuple[str, int]] = field(default_factory=list)
    dropped: list[tuple[str, str, int]] = field(default_factory=list)
    shadows: list[ShadowCounts] = field(default_factory=list)


class ServingMetrics:
    """Counts of one process: plain numbers, since a request must not wait for them; made into metrics when asked."""

    def __init__(self) -> None:
        self._series: dict[tuple[str, int, str, str], VersionCounts] = {}
        self._refused: Counter[tuple[str, StatusCode]] = Counter()

    def answered(self, model: str, version: int, rows: int, seconds: float, *, api: str, entrypoint: str) -> None:
        """A request was answered.

        Args:
            model: Which model answered.
            version: And which version of it.
            rows: How many it predicted.
            seconds: From the request to its answer.
            api: As in `VersionCounts`.
            entrypoint: Likewise.
        """
        key = (model, version, api, entrypoint)
        series = self._series.get(key)
        if series is None:
            series = self._series[key] = VersionCounts(*key)
        series.requests += 1
        series.rows += rows
        series.seconds += seconds
        series.buckets[bisect_left(BUCKETS, seconds)] += 1

    def refused(self, model: str, code: StatusCode) -> None:
        """A request was not answered."""
        # Names are the client's: one that no model has is counted under none.
        self._refused[model, code] += 1
        if len(self._refused) > _MOST_SERIES and code is StatusCode.NOT_FOUND:
            self._refused["", code] += self._refused.pop((model, code))

    def counts(self, models: ModelManager, worker: str = "") -> ProcessCounts:
        """The counts as they are now."""
        counts = ProcessCounts(
            worker,
            [*self._series.values()],
            [(model, int(code), count) for (model, code), count in self._refused.items()],
            shadows=models.shadows.counts(),
        )
        if models.request_log is not None:
            written, lost = models.request_log.counts()
            counts.logged.extend(written.items())
            counts.dropped.extend((model, reason, count) for (model, reason), count in lost.items())
        return counts

    async def everywhere(self, models: ModelManager) -> list[ProcessCounts]:
        """The counts of every process that answers at this server's port."""
        return [self.counts(models)]

    async def text(self, models: ModelManager) -> bytes:
        """The counts of all processes in Prometheus's text format."""
        processes = await self.everywhere(models)
        registry = CollectorRegistry()
        registry.register(_Snapshot(processes, models))
        registry.register(_ConfigMetrics(await models.is_config_served()))
        registry.register(TrafficMetrics(await models.rollout_statuses(), [each.shadows for each in processes]))
        # The client ends counters in _total, which this one of TensorFlow Serving's does not.
        return generate_latest(registry).replace(b"serving:request_count_total", b"serving:request_count")


_MOST_SERIES: Final = 1000


def _sums(
    series: Iterable[VersionCounts], group: Callable[[VersionCounts], tuple[Any, ...]]
) -> Iterable[tuple[tuple[Any, ...], VersionCounts]]:  # Any: fields of them
    """What series count together, by some of their fields."""
    groups: dict[tuple[Any, ...], VersionCounts] = {}
    for each in series:
        total = groups.setdefault(group(each), VersionCounts(each.model, each.version, each.api, each.entrypoint))
        total.requests += each.requests
        total.rows += each.rows
        total.seconds += each.seconds
        total.buckets = [a + b for a, b in zip(total.buckets, each.buckets, strict=True)]
    return groups.items()


class _ConfigMetrics(Collector):
    def __init__(self, is_served: bool | None) -> None:
        self._is_served = is_served

    def collect(self) -> Iterator[Metric]:
        if self._is_served is not None:
            yield GaugeMetricFamily(
                "drivetrain_serving_config_last_reload_successful",
                "1 where the models are as the file of --config says; 0 where it is damaged, and they stay as before.",
                value=float(self._is_served),
            )


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
        # TensorFlow Serving's names and labels, for the dashboards that have them.
        alias = CounterMetricFamily(
            ":tensorflow:serving:request_count", "Requests by how they ended.",
            labels=["model_name", "status", *several],
        )  # fmt: skip
        alias_rows = CounterMetricFamily(
            ":tensorflow:serving:request_example_count", "Rows predicted.", labels=["model", *several]
        )
        alias_latency = HistogramMetricFamily(
            ":tensorflow:serving:request_latency", "Time from a request to its answer, in microseconds.",
            labels=["model_name", "API", "entrypoint", *several],
        )  # fmt: skip
        logged = CounterMetricFamily(
            "drivetrain_serving_logged_rows", "Rows that the request log has written.", labels=["model", *several]
        )
        dropped = CounterMetricFamily(
            "drivetrain_serving_log_dropped_rows", "Rows that the request log has lost.",
            labels=["model", "reason", *several],
        )  # fmt: skip
        known = set(self._models.names())
        for process in self._processes:
            worker = [process.worker] if several else []
            for (model, version), total in _sums(process.answered, lambda each: (each.model, each.version)):
                labels = [model, str(version)]
                requests.add_metric([*labels, "OK", *worker], total.requests)
                rows.add_metric([*labels, *worker], total.rows)
                latency.add_metric([*labels, *worker], cumulated(total.buckets, 1.0), total.seconds)
            for (model,), total in _sums(process.answered, lambda each: (each.model,)):
                alias.add_metric([model, "OK", *worker], total.requests)
                alias_rows.add_metric([model, *worker], total.rows)
            for kind, total in _sums(process.answered, lambda each: (each.model, each.api, each.entrypoint)):
                alias_latency.add_metric([*kind, *worker], cumulated(total.buckets, 1e6), 1e6 * total.seconds)
            others: Counter[tuple[str, str]] = Counter()
            for model, code, count in process.refused:
                others[model if model in known else "", StatusCode(code).name] += count
            for (model, name), count in others.items():
                requests.add_metric([model, "", name, *worker], count)
                alias.add_metric([model, name, *worker], count)
            for model, count in process.logged:
                logged.add_metric([model, *worker], count)
            for model, reason, count in process.dropped:
                dropped.add_metric([model, reason, *worker], count)
        yield from (requests, rows, latency, self._loaded(), alias, alias_rows, alias_latency)
        yield from (family for family in (logged, dropped) if family.samples)

    def _loaded(self) -> Metric:
        loaded = GaugeMetricFamily(
            "drivetrain_serving_loaded", "1 where a version can be asked.", labels=["model", "version"]
        )
        for model in sorted(self._models.names()):
            for status in self._models.statuses(ModelRef(model)) if self._models.has_versions(model) else []:
                loaded.add_metric([model, str(status.version)], float(status.state is VersionState.AVAILABLE))
        return loaded
