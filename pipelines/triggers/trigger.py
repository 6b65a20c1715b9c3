"""What starts a pipeline by itself: triggers, as values that say at any moment whether a run is due, and why.

A trigger knows nothing but what a `TriggerView` shows it, and what it remembers: a mark, how far it has looked when it
last started a run. So the same view and the same marks give the same answer, in the scheduler, in `schedule test` and
in a replay of a year in a second.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from datetime import datetime, timedelta
from typing import Any, Final, Protocol, TypeAlias

from ...digest import canonical_json
from ...errors import BuildError
from ...metadata import ArtifactRecord
from .durations import seconds_of, spelled

Json: TypeAlias = Any  # a JSON value; Any because the type is recursive and read by key
Marks: TypeAlias = Mapping[str, Json]
"""What triggers remember: trigger (see `Trigger.key`) → how far it has looked."""
Length: TypeAlias = str | int | float | timedelta
ARTIFACTS: Final = "artifacts"
RUNS: Final = "runs"
_CLOCK_WAS_WRONG: Final = timedelta(hours=3)
KIND: Final = "$trigger"
"""Where the IR says which trigger it is."""


@dataclass(frozen=True)
class EndedRun:
    """A run that has ended: its id, how, and when (UTC)."""

    id: str
    state: str
    finished: datetime


class TriggerView(Protocol):
    """What triggers can see at a moment. Nothing of it is from after that moment.

    Attributes:
        now: The moment, in UTC.
    """

    now: datetime

    def artifacts(self, kind: str, after: int, pipeline: str, made_by: str) -> Sequence[ArtifactRecord]:
        """The live artifacts of a type with an id above `after`, oldest first; of the pipeline's node unless empty."""
        ...

    def newest_artifact(self) -> int:
        """The id of the newest artifact of any type, 0 where there is none."""
        ...

    def ended_runs(self, pipeline: str, after: datetime) -> Sequence[EndedRun]:
        """The runs of a pipeline that ended after a moment, in the order of their ends."""
        ...

    def watermark(self, connection: str, query: str) -> Sequence[Sequence[str | None]]:
        """The rows that a query gives, as text."""
        ...

    def offsets(self, servers: str, topic: str) -> Mapping[int, int]:
        """The next offset of each partition of a topic."""
        ...

    def spans(self, pattern: str) -> Sequence[tuple[int, int | None]]:
        """The spans that the files of a pattern have, each with its newest version, None where files name none."""
        ...


@dataclass(frozen=True)
class Signal:
    """What a trigger says at a moment.

    Attributes:
        due: Whether a run is due.
        reason: Why, or why not; the same text for as long as nothing changes.
        marks: What is remembered where no run begins.
        started: What is remembered where one begins.
        wake: The earliest moment (UTC) at which time alone can change the answer; None where it cannot.
        watches: What else can: ARTIFACTS, RUNS.
        poll: Seconds after which to look again, where nothing tells that something came; None where something does.
    """

    due: bool
    reason: str
    marks: Marks = field(default_factory=dict)
    started: Marks = field(default_factory=dict)
    wake: datetime | None = None
    watches: frozenset[str] = frozenset()
    poll: int | None = None


class Trigger:
    """When a pipeline runs by itself. Subclasses are frozen dataclasses, whose fields are JSON values or triggers.

    `a & b` is due when both are, `a | b` when either is.
    """

    def check(self, view: TriggerView, marks: Marks) -> Signal:
        """Whether a run is due. A trigger without a mark begins to watch: what was there before is not for it."""
        raise NotImplementedError

    def follows(self, pipeline: str) -> bool:
        """Whether each run of that pipeline makes it due again at once, so that its own runs would never end."""
        return False

    def __and__(self, other: Trigger) -> AllOf:
        return AllOf((*_parts(self, AllOf), *_parts(other, AllOf)))

    def __or__(self, other: Trigger) -> AnyOf:
        return AnyOf((*_parts(self, AnyOf), *_parts(other, AnyOf)))

    def debounce(self, quiet: Length) -> Debounce:
        """This trigger once nothing new has come for so long ("10m"): many files that arrive together are one run."""
        return Debounce(self, seconds_of(quiet))

    def cooldown(self, period: Length) -> Cooldown:
        """This trigger, but at most once in so long ("6h"); what came meanwhile is due at the end of it."""
        return Cooldown(self, seconds_of(period))

    @property
    def key(self) -> str:
        """The trigger as text that names it among the marks: equal triggers have equal keys, in every release."""
        return canonical_json(self.to_json()).decode()

    def to_json(self) -> Json:
        """The trigger as it stands in the IR; fields that have their default are left out."""
        return {KIND: type(self).__name__} | {name: _to_json(value) for name, value in self._said()}

    @property
    def keys(self) -> frozenset[str]:
        """The keys of its marks, and of those of the triggers that it is made of."""
        inner = [each for _, value in self._said() for each in (value if isinstance(value, tuple) else (value,))]
        return frozenset({self.key}).union(*(each.keys for each in inner if isinstance(each, Trigger)))

    def _said(self) -> list[tuple[str, object]]:
        """The fields that differ from their default."""
        return [
            (each.name, getattr(self, each.name))
            for each in fields(self)  # type: ignore[arg-type]  # every subclass is a dataclass
            if each.default is MISSING or getattr(self, each.name) != each.default
        ]

    def __str__(self) -> str:
        first = fields(self)[0].name  # type: ignore[arg-type]  # every subclass is a dataclass
        texts = [f"{value!r}" if name == first else f"{name}={value!r}" for name, value in self._said()]
        return f"{type(self).__name__}({', '.join(texts)})"


@dataclass(frozen=True)
class AllOf(Trigger):
    """Due when all of its triggers are; what each of them saw counts until then."""

    triggers: tuple[Trigger, ...]

    def check(self, view: TriggerView, marks: Marks) -> Signal:
        """See `Trigger.check`."""
        return _joined([each.check(view, marks) for each in self.triggers], all)

    def follows(self, pipeline: str) -> bool:
        """See `Trigger.follows`."""
        return all(each.follows(pipeline) for each in self.triggers)

    def __str__(self) -> str:
        return " & ".join(f"({each})" if isinstance(each, AnyOf) else str(each) for each in self.triggers)


@dataclass(frozen=True)
class AnyOf(Trigger):
    """Due when one of its triggers is."""

    triggers: tuple[Trigger, ...]

    def check(self, view: TriggerView, marks: Marks) -> Signal:
        """See `Trigger.check`."""
        return _joined([each.check(view, marks) for each in self.triggers], any)

    def follows(self, pipeline: str) -> bool:
        """See `Trigger.follows`."""
        return any(each.follows(pipeline) for each in self.triggers)

    def __str__(self) -> str:
        return " | ".join(map(str, self.triggers))


@dataclass(frozen=True)
class Debounce(Trigger):
    """Due once another trigger has been for `quiet` seconds, in which nothing new came for it."""

    trigger: Trigger
    quiet: int

    def check(self, view: TriggerView, marks: Marks) -> Signal:
        """See `Trigger.check`."""
        inner = self.trigger.check(view, marks)
        if not inner.due:
            return _with_marks(inner, {self.key: None})
        # The marks that a run would leave name the last that came: as long as they stay the same, nothing new has come.
        seen = canonical_json(inner.started).decode()
        mark = marks.get(self.key)
        since = marked_moment(mark["since"], view.now) if mark is not None and mark["seen"] == seen else None
        since = since or view.now
        ready = since + timedelta(seconds=self.quiet)
        if view.now >= ready:
            return _with_marks(inner, {self.key: None})
        reason = f"{inner.reason}, and is waited for until nothing new has come for {spelled(self.quiet)}"
        wake = ready if inner.wake is None else min(ready, inner.wake)
        waiting = {**inner.marks, self.key: {"seen": seen, "since": since.isoformat()}}
        started = {**inner.started, self.key: None}
        return replace(inner, due=False, reason=reason, marks=waiting, started=started, wake=wake)

    def follows(self, pipeline: str) -> bool:
        """See `Trigger.follows`."""
        return self.trigger.follows(pipeline)

    def __str__(self) -> str:
        return f"{_in_brackets(self.trigger)}.debounce({spelled(self.quiet)!r})"


@dataclass(frozen=True)
class Cooldown(Trigger):
    """Due when another trigger is, but not within `period` seconds of when it last started a run."""

    trigger: Trigger
    period: int

    def check(self, view: TriggerView, marks: Marks) -> Signal:
        """See `Trigger.check`."""
        inner = self.trigger.check(view, marks)
        started = {**inner.started, self.key: view.now.isoformat()}
        last = marked_moment(marks.get(self.key), view.now)
        ready = view.now if last is None else last + timedelta(seconds=self.period)
        if view.now >= ready or not inner.due:
            return replace(inner, started=started)
        reason = f"{inner.reason}, but the last run began less than {spelled(self.period)} ago"
        wake = ready if inner.wake is None else min(ready, inner.wake)
        return replace(inner, due=False, reason=reason, started=started, wake=wake)

    def __str__(self) -> str:
        return f"{_in_brackets(self.trigger)}.cooldown({spelled(self.period)!r})"


def marked_moment(mark: str | None, now: datetime) -> datetime | None:
    """The moment that a mark holds (UTC); None where there is none, or it is more than three hours ahead.

    A clock that is set back by less is slow for a while, and no run comes twice; one that is set back by more was
    wrong, as cron has it, and what was done by it counts no longer.
    """
    moment = None if mark is None else datetime.fromisoformat(mark)
    return None if moment is None or moment > now + _CLOCK_WAS_WRONG else moment


def _joined(signals: Sequence[Signal], enough: Callable[[list[bool]], bool]) -> Signal:
    """The signals of several triggers as one: due where enough of them are; the reasons are of those that decide."""
    due = enough([signal.due for signal in signals])
    marks = {key: mark for signal in signals for key, mark in signal.marks.items()}
    # What a trigger saw is used up by a run that it was due for; one that was not keeps watching from where it was.
    started = {
        key: mark for signal in signals for key, mark in (signal.started if signal.due else signal.marks).items()
    }
    return Signal(
        due,
        ("; and " if due else "; ").join(signal.reason for signal in signals if signal.due == due),
        marks,
        started,
        min((signal.wake for signal in signals if signal.wake is not None), default=None),
        frozenset().union(*(signal.watches for signal in signals)),
        min((signal.poll for signal in signals if signal.poll is not None), default=None),
    )


def _with_marks(signal: Signal, marks: Marks) -> Signal:
    """A signal that remembers more, whether a run begins or not."""
    return replace(signal, marks={**signal.marks, **marks}, started={**signal.started, **marks})


def _parts(trigger: Trigger, kind: type[AllOf | AnyOf]) -> tuple[Trigger, ...]:
    if not isinstance(trigger, Trigger):
        raise BuildError(
            f"{trigger!r:.80} is not a trigger", fix="combine triggers: Cron('0 3 * * *') & NewSpan('data/{SPAN}.csv')"
        )
    return trigger.triggers if isinstance(trigger, kind) else (trigger,)


def _in_brackets(trigger: Trigger) -> str:
    return f"({trigger})" if isinstance(trigger, (AllOf, AnyOf)) else str(trigger)


def _to_json(value: object) -> Json:
    if isinstance(value, Trigger):
        return value.to_json()
    return [_to_json(each) for each in value] if isinstance(value, tuple) else value
