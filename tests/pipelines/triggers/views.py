"""A world that triggers can look at, made by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from drivetrain.metadata import ArtifactRecord
from drivetrain.pipelines.triggers.trigger import EndedRun, Marks, Signal, Trigger

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def artifact(number: int, kind: str, minutes: float, **properties: object) -> ArtifactRecord:
    """An artifact of that id and type, published so many minutes after BEGIN."""
    at = BEGIN + timedelta(minutes=minutes)
    uri = f"artifacts/{kind}/{number}"
    return ArtifactRecord(number, f"uid-{number}", kind, None, uri, "f" * 64, 1, "LIVE", None, properties, 1, at, at)


@dataclass
class HandMadeView:
    """What is in it at `now`; artifacts of pipelines and nodes by `makers`: id → (pipeline, node)."""

    now: datetime = BEGIN
    published: list[ArtifactRecord] = field(default_factory=list)
    makers: Mapping[int, tuple[str, str]] = field(default_factory=dict)
    ends: list[tuple[str, EndedRun]] = field(default_factory=list)
    files: list[tuple[datetime, int, int | None]] = field(default_factory=list)
    answers: list[tuple[datetime, str | None]] = field(default_factory=list)

    def at(self, moment: datetime) -> HandMadeView:
        """The same world at another moment."""
        return HandMadeView(moment, self.published, self.makers, self.ends, self.files, self.answers)

    def artifacts(self, kind: str, after: int, pipeline: str, made_by: str) -> Sequence[ArtifactRecord]:
        def fits(record: ArtifactRecord) -> bool:
            maker = self.makers.get(record.id, ("shop", "Make"))
            return (not pipeline or maker[0] == pipeline) and (not made_by or maker[1] == made_by)

        return [
            record
            for record in self.published
            if record.type == kind and record.id > after and record.created_at <= self.now and fits(record)
        ]

    def newest_artifact(self) -> int:
        return max((record.id for record in self.published if record.created_at <= self.now), default=0)

    def ended_runs(self, pipeline: str, after: datetime) -> Sequence[EndedRun]:
        return [run for name, run in self.ends if name == pipeline and after < run.finished <= self.now]

    def watermark(self, connection: str, query: str) -> Sequence[Sequence[str | None]]:
        return [[answer] for at, answer in self.answers if at <= self.now][-1:]

    def offsets(self, servers: str, topic: str) -> Mapping[int, int]:
        return {}

    def spans(self, pattern: str) -> Sequence[tuple[int, int | None]]:
        newest: dict[int, int | None] = {}
        for at, span, version in self.files:
            if at <= self.now:
                known = newest.get(span)
                newest[span] = version if known is None or version is None else max(known, version)
        return sorted(newest.items())


class Watcher:
    """A trigger that is looked at again and again, as the scheduler does it."""

    def __init__(self, trigger: Trigger, view: HandMadeView) -> None:
        self.trigger = trigger
        self.view = view
        self.marks: Marks = {}
        self.look(0)

    def look(self, minutes: float) -> Signal:
        """Look at a moment after BEGIN; where a run is due it begins."""
        signal = self.trigger.check(self.view.at(BEGIN + timedelta(minutes=minutes)), self.marks)
        new = {**self.marks, **(signal.started if signal.due else signal.marks)}
        self.marks = {key: mark for key, mark in new.items() if mark is not None}
        return signal
