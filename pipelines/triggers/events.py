"""Triggers by what is in the store: new artifacts, drift, metrics that fell, runs that ended."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC

from ...errors import InputError
from ...metadata import Artifact, ArtifactRecord
from .trigger import ARTIFACTS, RUNS, Marks, Signal, Trigger, TriggerView, marked_moment


class _ArtifactTrigger(Trigger):
    """Due when an artifact came that says so. Its mark is the id of the last that was looked at without effect."""

    pipeline: str
    made_by: str

    @property
    def _kind(self) -> str:
        """The name of the artifact type that is waited for."""
        raise NotImplementedError

    def _why(self, artifacts: Sequence[ArtifactRecord]) -> tuple[int, str]:
        """The index of the first of some artifacts that makes a run due, and why; their number and "" without one."""
        raise NotImplementedError

    def check(self, view: TriggerView, marks: Marks) -> Signal:
        """See `Trigger.check`."""
        mark = marks.get(self.key)
        if mark is None:
            begin = {self.key: view.newest_artifact()}
            return Signal(False, f"{self} watches from now on", begin, begin, watches=frozenset({ARTIFACTS}))
        artifacts = view.artifacts(self._kind, int(mark), self.pipeline, self.made_by)
        count, why = self._why(artifacts)
        before = {self.key: artifacts[count - 1].id if count else int(mark)}
        if not why:
            return Signal(False, f"{self}: nothing new", before, before, watches=frozenset({ARTIFACTS}))
        # A run that begins sees all that came, so it is for all of them; the mark before is kept for a run that is put
        # off, and goes only as far as what had no effect.
        after = {self.key: artifacts[-1].id}
        return Signal(True, f"{self}: {why}", before, after, watches=frozenset({ARTIFACTS}))


@dataclass(frozen=True)
class NewArtifact(_ArtifactTrigger):
    """Due when an artifact of a type is published.

    Attributes:
        kind: The type, or its name: `Model`, "Examples".
        pipeline: By this pipeline; by any where empty.
        made_by: By this node of it; by any where empty.
    """

    kind: str | type[Artifact]
    pipeline: str = ""
    made_by: str = ""

    def __post_init__(self) -> None:
        if isinstance(self.kind, type):
            object.__setattr__(self, "kind", self.kind.__name__)
        _check_maker(self.pipeline, self.made_by)

    @property
    def _kind(self) -> str:
        return str(self.kind)

    def _why(self, artifacts: Sequence[ArtifactRecord]) -> tuple[int, str]:
        if not artifacts:
            return 0, ""
        more = f", and {len(artifacts) - 1} more" if len(artifacts) > 1 else ""
        return 0, f"{artifacts[-1].uri} was published{more}"


@dataclass(frozen=True)
class Drift(_ArtifactTrigger):
    """Due when an `ExampleValidator` finds features beyond the schema's bounds on drift or skew.

    Attributes:
        pipeline: In this pipeline; in any where empty.
        made_by: By this node of it; by any where empty.
        features: One of these, or this one; of any where empty.
    """

    pipeline: str = ""
    made_by: str = ""
    features: Sequence[str] = ()

    def __post_init__(self) -> None:
        names = (self.features,) if isinstance(self.features, str) else tuple(self.features)
        object.__setattr__(self, "features", names)
        _check_maker(self.pipeline, self.made_by)

    @property
    def _kind(self) -> str:
        return "Anomalies"

    def _why(self, artifacts: Sequence[ArtifactRecord]) -> tuple[int, str]:
        for count, anomalies in enumerate(artifacts):
            drifted = [
                name for name in anomalies.properties.get("drifted", []) if not self.features or name in self.features
            ]
            if drifted:
                return count, f"{', '.join(drifted[:3])}{', …' if drifted[3:] else ''} drifted ({anomalies.uri})"
        return len(artifacts), ""


@dataclass(frozen=True)
class MetricDrop(_ArtifactTrigger):
    """Due when an evaluation says that a metric got worse.

    Attributes:
        metric: Its name in the evaluation, e.g. "auc".
        below: It is below this.
        above: It is above this, of a loss.
        by: It is lower by more than this than in the evaluation before.
        pipeline: Of this pipeline; of any where empty.
        made_by: By this node of it; by any where empty.
    """

    metric: str
    below: float | None = None
    above: float | None = None
    by: float | None = None
    pipeline: str = ""
    made_by: str = ""

    def __post_init__(self) -> None:
        _check_maker(self.pipeline, self.made_by)
        bounds = [bound for bound in (self.below, self.above, self.by) if bound is not None]
        if not bounds or not all(map(math.isfinite, bounds)):
            raise InputError(
                f"MetricDrop({self.metric!r}) has no bound, or one that is not a number",
                fix="give e.g. below=0.7 or by=0.02",
            )

    @property
    def _kind(self) -> str:
        return "Evaluation"

    def check(self, view: TriggerView, marks: Marks) -> Signal:
        """See `Trigger.check`. Its mark also holds the metric's value in the last evaluation that has one."""
        mark = marks.get(self.key)
        if mark is None:
            begin = {self.key: [view.newest_artifact(), None]}
            return Signal(False, f"{self} watches from now on", begin, begin, watches=frozenset({ARTIFACTS}))
        number, before = mark
        evaluations = view.artifacts(self._kind, int(number), self.pipeline, self.made_by)
        values = [(record, _metric(record, self.metric)) for record in evaluations]
        unchanged = {self.key: [number, before]}
        last = next((value for _, value in reversed(values) if value is not None), before)
        newest = {self.key: [evaluations[-1].id, last]} if evaluations else unchanged
        for record, value in values:
            if why := self._worse(before, value):
                reason = f"{self}: {self.metric} is {value:.6g}, {why} ({record.uri})"
                return Signal(True, reason, unchanged, newest, watches=frozenset({ARTIFACTS}))
            before = before if value is None else value
            unchanged = {self.key: [record.id, before]}
        return Signal(False, f"{self}: nothing new", unchanged, unchanged, watches=frozenset({ARTIFACTS}))

    def _worse(self, before: float | None, value: float | None) -> str:
        if value is None:
            return ""
        if self.below is not None and value < self.below:
            return f"below {self.below:g}"
        if self.above is not None and value > self.above:
            return f"above {self.above:g}"
        if self.by is not None and before is not None and before - value > self.by:
            return f"{before - value:.6g} lower than before"
        return ""


@dataclass(frozen=True)
class After(Trigger):
    """Due when a run of a pipeline has ended. Its mark is the end of the last that was looked at.

    Attributes:
        pipeline: The pipeline's name.
        state: How it must have ended.
    """

    pipeline: str
    state: str = "COMPLETE"

    def __post_init__(self) -> None:
        if not self.pipeline:
            raise InputError(f"{type(self).__name__} names no pipeline", fix='give its name, such as "ingest"')
        if self.state not in ("COMPLETE", "STOPPED", "FAILED", "CANCELED"):
            raise InputError(f"no run ends {self.state!r:.40}", fix="give COMPLETE, STOPPED, FAILED or CANCELED")

    def follows(self, pipeline: str) -> bool:
        """See `Trigger.follows`."""
        return self.pipeline == pipeline

    def check(self, view: TriggerView, marks: Marks) -> Signal:
        """See `Trigger.check`."""
        mark = marks.get(self.key)
        last = marked_moment(mark, view.now)
        if last is None:
            begin = {self.key: view.now.isoformat()}
            return Signal(False, f"{self} watches from now on", begin, begin, watches=frozenset({RUNS}))
        ended = view.ended_runs(self.pipeline, last)
        fitting = [run for run in ended if run.state == self.state]
        newest = {self.key: ended[-1].finished.astimezone(UTC).isoformat()} if ended else {self.key: mark}
        if not fitting:
            return Signal(False, f"{self}: no run has ended so", newest, newest, watches=frozenset({RUNS}))
        reason = f"{self}: run {fitting[-1].id} ended {self.state}"
        return Signal(True, reason, {self.key: mark}, newest, watches=frozenset({RUNS}))


@dataclass(frozen=True)
class Failed(After):
    """Due when a run of a pipeline has failed."""

    state: str = "FAILED"


def _check_maker(pipeline: str, made_by: str) -> None:
    if made_by and not pipeline:
        raise InputError(f"the node {made_by!r} is named without its pipeline", fix="give pipeline= too")


def _metric(evaluation: ArtifactRecord, name: str) -> float | None:
    """A metric of an evaluation; None where it has none of that name."""
    value = evaluation.metrics.get(name)
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None
