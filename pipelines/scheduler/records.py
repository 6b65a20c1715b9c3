"""Schedules as the store keeps them: registered, paused, removed; and the log of what each decided, and why.

A schedule is one record that is changed by compare-and-set. What starts a run is written into it first, with the run's
id: whoever comes next, after a crash too, begins that very run or sees that it has begun, so that each occasion starts
one run and no second.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal

from ...errors import BuildError, DrivetrainError, InputError, suggest
from ...metadata import ConflictError, ContextRecord
from ..dsl.pipeline import PipelineFunction
from ..launcher.home import Home
from ..run import check_runner
from ..triggers.reading import read_schedule
from ..triggers.schedule import SCHEDULES, Schedule, ticks_of
from ..triggers.trigger import Marks
from .snapshot import keep_code

TAG: Final = "schedule"
"""The tag of a run that a schedule started; its value is the schedule's name."""
_PATIENCE: Final = 10.0
"""Seconds for which what a trigger watches is waited for."""
Change = Literal["registered", "changed", "unchanged"]


@dataclass(frozen=True)
class PendingRun:
    """A run that a schedule has decided to start, and of which it does not know yet whether it began.

    Attributes:
        run: Its id.
        at: When it was decided (UTC).
        reason: Why.
    """

    run: str
    at: datetime
    reason: str

    @classmethod
    def of(cls, facts: Mapping[str, str]) -> PendingRun:
        """The pending run as the store has it."""
        return cls(facts["run"], datetime.fromisoformat(facts["at"]), facts["reason"])


@dataclass(frozen=True)
class ScheduleRecord:
    """A schedule in the store.

    Attributes:
        name: Unique in the store: the pipeline's name unless another was chosen.
        pipeline: The pipeline's name.
        digest: Of the pipeline when it was registered.
        project: The folder of its pipeline.py.
        source: The modification time of that file when it was registered, in nanoseconds; None where it was missing.
        registered: When it was registered or an edit of it was followed, in microseconds since 1970; 0 where an earlier
            release did so.
        code: Names the modules that runs have, of one that is pinned: see `snapshot`; None of others, and of one that
            an earlier release registered.
        schedule: When it runs, and how.
        marks: What its trigger remembers.
        paused: Whether it starts no runs.
        pending: The run that it starts now.
        active: Runs that it has started, of which some may be at work.
        resumed: How often each of these was resumed after its process had died.
        said: The reason of its last decision.
        context: Its record.
    """

    name: str
    pipeline: str
    digest: str
    project: Path
    source: int | None
    registered: int
    code: str | None
    schedule: Schedule
    marks: Marks
    paused: bool
    pending: PendingRun | None
    active: tuple[str, ...]
    resumed: Mapping[str, int]
    said: str
    context: ContextRecord

    @classmethod
    def of(cls, context: ContextRecord) -> ScheduleRecord:
        """The schedule that a record describes.

        Raises:
            BuildError: It describes none, or a newer release wrote it.
        """
        facts = context.properties
        try:
            pending = facts["pending"]
            return cls(
                context.name,
                facts["pipeline"],
                facts["digest"],
                Path(facts["project"]),
                facts["source"],
                facts.get("registered", 0),
                facts.get("code"),
                read_schedule(facts["schedule"]),
                dict(facts["marks"]),
                facts["paused"],
                None if pending is None else PendingRun.of(pending),
                tuple(facts["active"]),
                dict(facts.get("resumed", {})),
                facts["said"],
                context,
            )
        except (DrivetrainError, AttributeError, KeyError, TypeError, ValueError) as error:
            cause = error.message if isinstance(error, DrivetrainError) else f"{type(error).__name__}: {error}"
            raise BuildError(
                f"the schedule {context.name!r} cannot be read: {cause}",
                fix="upgrade drivetrain where a newer one registered it, or `drivetrain schedule remove` it",
            ) from None

    def to_json(self) -> dict[str, object]:
        """As `schedule list --json` prints it."""
        return {
            "name": self.name,
            "pipeline": self.pipeline,
            "project": str(self.project),
            "trigger": str(self.schedule.trigger),
            "schedule": self.schedule.to_json(),
            "paused": self.paused,
            "pending": None if self.pending is None else self.pending.run,
            "active": list(self.active),
            "said": self.said,
        }


@dataclass(frozen=True)
class UnreadableSchedule:
    """A record of a schedule that is damaged, or of a newer release: its name, and why it cannot be read."""

    name: str
    error: BuildError


@dataclass(frozen=True)
class Tick:
    """What a schedule decided at a moment; one that decides the same again is not recorded again.

    Attributes:
        at: The moment (UTC).
        run: The run that it started, "" where it started none.
        reason: Why, or why not.
        failed: Whether what it decided could not be done, which people want to hear of.
    """

    at: datetime
    run: str
    reason: str
    failed: bool = False

    def to_json(self) -> dict[str, object]:
        """As `schedule log --json` prints it."""
        failed = {"failed": True} if self.failed else {}
        return {"at": self.at.isoformat(), "run": self.run, "reason": self.reason, **failed}


def register_schedule(
    home: Home, pipeline: PipelineFunction[..., Any], name: str = ""
) -> tuple[ScheduleRecord, Change]:
    """Tell the store of a pipeline's schedule, or of how it has changed; what unchanged triggers remember stays.

    Args:
        home: Where its runs lie.
        pipeline: The pipeline, with a schedule.
        name: What the schedule is called; the pipeline's name where empty.

    Raises:
        BuildError: The pipeline is wrong.
        InputError: It has no schedule, or a runner that there is not; the name cannot be one, or is taken; another name
            has the very schedule.
    """
    built = pipeline.build()
    if pipeline.schedule is None:
        raise InputError(
            f"the pipeline {built.name} has no schedule",
            fix='declare one: @dt.pipeline(schedule=dt.triggers.Cron("0 3 * * *", tz="Europe/Oslo"))',
        )
    facts = {
        "pipeline": built.name,
        "digest": built.digest,
        "project": str(pipeline.project),
        "schedule": pipeline.schedule.to_json(),
        "code": None,
    }
    if pipeline.schedule.version == "pin":
        facts["code"] = keep_code(home, pipeline.project)
    source = {"source": modified(pipeline.project), "registered": home.store.now()}
    check_runner(pipeline.schedule.runner)
    name = name or built.name
    if re.fullmatch(r"\w[\w.-]{0,199}", name) is None:
        raise InputError(
            f"{name!r:.80} cannot be the name of a schedule", fix="give letters, digits and . _ -, 200 at most"
        )
    _refuse_second(home, name, facts)
    at_first = {**_AT_FIRST, "marks": _first_marks(home, pipeline.project, pipeline.schedule)}
    while True:
        context = home.store.find_context(SCHEDULES, name)
        if context is None:
            context = home.store.context(SCHEDULES, name, {**facts, **source, **at_first})
            if context.version == 1:
                return ScheduleRecord.of(context), "registered"
        if _is_removed(context):
            with suppress(ConflictError):  # another process changed it: look again
                changes: dict[str, object] = {**facts, **source, **at_first}
                context = home.store.update_context(context, changes, expected_version=context.version)
                return ScheduleRecord.of(context), "registered"
            continue
        record = ScheduleRecord.of(context)
        if (record.project, record.pipeline) != (pipeline.project, built.name):
            raise InputError(
                f"the schedule {name!r} belongs to the pipeline {record.pipeline} in {record.project}",
                fix="give another --name, or remove that one: `drivetrain schedule remove`",
            )
        is_unchanged = facts.items() <= {"code": None, **context.properties}.items()
        if is_unchanged and source["source"] == record.source:
            return record, "unchanged"
        keys = pipeline.schedule.trigger.keys
        marks = {**at_first["marks"], **{key: mark for key, mark in record.marks.items() if key in keys}}
        with suppress(ConflictError):
            changes = {**facts, **source, "marks": marks}
            context = home.store.update_context(context, changes, expected_version=context.version)
            return ScheduleRecord.of(context), "unchanged" if is_unchanged else "changed"


def _first_marks(home: Home, project: Path, schedule: Schedule) -> Marks:
    """What a schedule's triggers remember from now on; nothing where what they watch cannot be asked now."""
    from .view import Patience, StoreView  # late: a process that begins a run looks at nothing

    view = StoreView(home, project, datetime.now(UTC), Patience(_PATIENCE).of("registering"))
    with suppress(Exception):  # the scheduler's first look at it begins to watch, and reports what is wrong
        marks = schedule.trigger.check(view, {}).marks
        return {key: mark for key, mark in marks.items() if mark is not None}
    return {}


def _refuse_second(home: Home, name: str, facts: Mapping[str, Any]) -> None:
    """Refuse a schedule that is registered under another name: each occasion would start two runs."""
    same = {key: facts[key] for key in ("pipeline", "project", "schedule")}
    for context in home.store.contexts(SCHEDULES, limit=None):
        if context.name != name and not _is_removed(context) and same.items() <= context.properties.items():
            raise InputError(
                f"the schedule {context.name!r} is this one already, and each occasion would start two runs",
                fix=f"remove it (`drivetrain schedule remove {context.name}`), or declare another trigger",
            )


_AT_FIRST: Final[Mapping[str, Any]] = {
    "marks": {}, "paused": False, "removed": False, "pending": None, "active": [], "resumed": {}, "said": "",
}  # fmt: skip


def modified(project: Path) -> int | None:
    """The modification time of a project's pipeline.py in nanoseconds; None where there is none."""
    try:
        return (project / "pipeline.py").stat().st_mtime_ns
    except OSError:
        return None


def _is_removed(context: ContextRecord) -> bool:
    return bool(context.properties.get("removed"))


def schedules(home: Home) -> list[ScheduleRecord]:
    """Every schedule that can be read, by name."""
    return [each for each in recorded_schedules(home) if isinstance(each, ScheduleRecord)]


def recorded_schedules(home: Home) -> list[ScheduleRecord | UnreadableSchedule]:
    """Every schedule, by name."""
    contexts = [each for each in home.store.contexts(SCHEDULES, limit=None) if not _is_removed(each)]
    return [_read(each) for each in sorted(contexts, key=lambda each: each.name)]


def _read(context: ContextRecord) -> ScheduleRecord | UnreadableSchedule:
    try:
        return ScheduleRecord.of(context)
    except BuildError as error:
        return UnreadableSchedule(context.name, error)


def find_schedule(home: Home, name: str) -> ScheduleRecord:
    """The schedule of that name.

    Raises:
        BuildError: It cannot be read.
        InputError: There is none.
    """
    return ScheduleRecord.of(_find(home, name))


def _find(home: Home, name: str) -> ContextRecord:
    context = home.store.find_context(SCHEDULES, name)
    if context is None or _is_removed(context):
        there = [each.name for each in recorded_schedules(home)]
        raise InputError(
            f"there is no schedule {name!r} in {home.root}",
            fix=suggest(name, there, "there are") if there else "register one: `drivetrain schedule register PROJECT`",
        )
    return context


def pause_schedule(home: Home, name: str, *, paused: bool) -> ScheduleRecord:
    """Have a schedule start no runs, or start them again; what becomes due meanwhile is due afterwards.

    Raises:
        InputError: There is no such schedule.
    """
    return change(home, find_schedule(home, name), lambda record: {"paused": paused})


def remove_schedule(home: Home, name: str) -> None:
    """Forget a schedule, also one that cannot be read; its log and its runs stay.

    Raises:
        InputError: There is no such schedule.
    """
    home.store.update_context(_find(home, name), {**_AT_FIRST, "removed": True})


def change(
    home: Home, record: ScheduleRecord, changes: Callable[[ScheduleRecord], Mapping[str, object]]
) -> ScheduleRecord:
    """A schedule after changes, which are asked for anew whenever another process was faster."""
    while wanted := changes(record):
        try:
            return ScheduleRecord.of(
                home.store.update_context(record.context, wanted, expected_version=record.context.version)
            )
        except ConflictError:
            record = ScheduleRecord.of(home.store.context(SCHEDULES, record.name))
    return record


def ticks(home: Home, name: str, limit: int | None = 20) -> list[Tick]:
    """What a schedule decided, the newest first; also of one that was removed.

    Raises:
        InputError: There has been no such schedule.
    """
    if home.store.find_context(SCHEDULES, name) is None:
        _find(home, name)  # which says what there is
    facts = (each.properties for each in home.store.contexts(ticks_of(name), limit=limit))
    return [
        Tick(datetime.fromisoformat(each["at"]), each["run"], each["reason"], each.get("failed") is True)
        for each in facts
    ]


def record_tick(home: Home, name: str, tick: Tick) -> None:
    """Add to a schedule's log; a run's start is there once, however often it is recorded."""
    home.store.context(ticks_of(name), tick.run or tick.at.isoformat(), tick.to_json(), durable=False)
