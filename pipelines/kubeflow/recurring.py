"""Schedules: runs that the cluster starts by cron in a zone or at an interval; one schedule per name."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Literal

from ...errors import InputError
from ..dsl.pipeline import PipelineFunction
from ..triggers.clock import Cron, Every
from ..triggers.durations import seconds_of, spelled
from ..triggers.schedule import Schedule
from ..triggers.zones import moment_of
from .api_errors import ApiError
from .client import KfpClient, RecurringRun
from .compiler import compile_pipeline
from .cron import to_six, zone
from .settings import ClusterSettings
from .submit import arguments_of, checked

_BY = "drivetrain"
_BETWEEN = " · "


@dataclass(frozen=True)
class When:
    """When runs are started; by `cron` or `every`, not both.

    Attributes:
        cron: Five fields, in `tz`.
        tz: A zone that keeps its offset from UTC, which is all that KFP knows.
        every: An interval: "6h", "1d12h".
        start: The first moment (ISO 8601; in `tz` where it names no offset).
        end: The last one.
        max_concurrency: How many runs of it may be at work at once, 1 to 10.
        catchup: Whether moments that were missed while it was paused or the cluster away are made up for.
    """

    cron: str = ""
    tz: str = "UTC"
    every: str = ""
    start: str = ""
    end: str = ""
    max_concurrency: int = 1
    catchup: bool = True

    @classmethod
    def of(cls, schedule: Schedule) -> When:
        """When a schedule that a pipeline declares runs, where a cluster can tell by its clock alone.

        Raises:
            InputError: It waits for something else than a time.
        """
        trigger, at_once = schedule.trigger, schedule.max_active
        if isinstance(trigger, Cron):
            return cls(trigger.fields, trigger.tz, max_concurrency=at_once, catchup=trigger.catch_up != "none")
        if isinstance(trigger, Every):
            every = spelled(seconds_of(trigger.period))
            return cls(every=every, start=trigger.start, max_concurrency=at_once, catchup=trigger.catch_up != "none")
        raise InputError(
            f"Kubeflow knows times alone, not {trigger}",
            fix="have `drivetrain schedule run` start it where it reaches the store, or give --cron or --every",
        )

    def resolve(self) -> KfpTrigger:
        """The same in KFP's terms.

        Raises:
            InputError: KFP has no such schedule; says why, and what to give instead.
        """
        if bool(self.cron) == bool(self.every):
            raise InputError("a schedule goes by cron or at an interval", fix='give --cron "0 3 * * *" or --every 6h')
        if not 1 <= self.max_concurrency <= 10:
            raise InputError(f"{self.max_concurrency} runs at once are not for KFP", fix="give 1 to 10")
        rough = (_moment(self.start, timedelta(0)), _moment(self.end, timedelta(0)))
        offset = zone(self.tz, *rough)
        start, end = _moment(self.start, offset), _moment(self.end, offset)
        if end is not None and end <= (start or datetime.now(UTC)):
            raise InputError(f"it would end {self.end} before it begins", fix="give a later --end")
        cron = to_six(self.cron, offset) if self.cron else ""
        return KfpTrigger(cron, seconds_of(self.every) if self.every else 0, _rfc3339(start), _rfc3339(end))


@dataclass(frozen=True)
class KfpTrigger:
    """A `When` as KFP takes it: six fields or seconds, and moments in UTC."""

    cron: str
    every: int
    start: str
    end: str


@dataclass(frozen=True)
class ScheduleChange:
    """What `create` did.

    Attributes:
        change: Whether it was "created", "replaced", or "unchanged" because it is there already.
        schedule: As it stands there.
    """

    schedule: RecurringRun
    change: Literal["created", "replaced", "unchanged"]

    def to_json(self) -> dict[str, object]:
        """As `schedule create --json` prints it."""
        return {"change": self.change, **to_json(self.schedule)}


def create(
    client: KfpClient,
    pipeline: PipelineFunction[..., Any],  # Any: what it returns to another pipeline is of no interest
    settings: ClusterSettings,
    when: When,
    parameters: Mapping[str, object] | None = None,
    *,
    name: str = "",
    experiment: str = "",
    replace: bool = False,
) -> ScheduleChange:
    """Have the cluster start runs of a pipeline by itself; an equal schedule of that name stays as it is.

    Each of these runs makes its own record when its first pod starts, and finds in our cache what was done before.

    Args:
        client: KFP's API.
        pipeline: What is run.
        settings: Of its cluster.
        when: When.
        parameters: The values of its parameters.
        name: What it is called; the pipeline's name where empty.
        experiment: The KFP experiment; that of the settings, or the pipeline's name where empty.
        replace: Whether it replaces another schedule of that name, which is deleted once the new one is there.

    Raises:
        BuildError: The pipeline is wrong.
        InputError: KFP cannot keep it or its times, or another schedule has the name.
        ApiError: KFP cannot be asked.
    """
    resolved = when.resolve()
    built = pipeline.build()
    compiled = checked(compile_pipeline(built, settings, project=pipeline.project, lines=pipeline.lines))
    arguments = arguments_of(built, pipeline.values(parameters or {}))
    name = name or built.name
    version = hashlib.sha256(compiled.yaml.encode()).hexdigest()[:12]
    description = _BETWEEN.join([f"{_BY} {version}", _words(when)])
    existing = [schedule for schedule in client.schedules() if schedule.name == name]
    differences = [
        difference
        for schedule in existing
        for difference in _differences(schedule, description, resolved, when, arguments)
    ]
    if len(existing) == 1 and not differences:
        return ScheduleChange(existing[0], "unchanged")
    if existing and not replace:
        raise InputError(
            f"there is another schedule {name!r}: {', '.join(differences) or 'two of them'}",
            fix="give --replace to have this one in its place, or another --name",
        )
    with tempfile.TemporaryDirectory(prefix="drivetrain-") as folder:
        package = Path(folder) / "pipeline.yaml"
        package.write_text(compiled.yaml, encoding="utf-8")
        created = client.recur(
            package,
            name=name,
            description=description,
            experiment=experiment or settings.api.experiment or built.name,
            arguments=arguments,
            max_concurrency=when.max_concurrency,
            no_catchup=not when.catchup,
            service_account=settings.service_account,
            **vars(resolved),
        )
    # The old one goes last: a failure in between leaves two schedules, which is reported, and never none.
    for schedule in existing:
        try:
            client.change_schedule(schedule.id, "deleted")
        except ApiError as error:
            raise ApiError(
                f"{error.message}; the new one, {created.id}, exists beside it, and both start runs",
                fix=f"drivetrain kubeflow schedule delete PROJECT {schedule.id}",
            ) from None
    return ScheduleChange(created, "replaced" if existing else "created")


def named(client: KfpClient, name: str) -> RecurringRun:
    """The schedule of that name or id.

    Raises:
        InputError: There is none, or more than one.
    """
    schedules = [schedule for schedule in client.schedules() if name in (schedule.name, schedule.id)]
    if not schedules:
        raise InputError(f"the cluster has no schedule {name!r}", fix="see `drivetrain kubeflow schedule list`")
    if len(schedules) > 1:
        raise InputError(
            f"{len(schedules)} schedules are called {name!r}",
            fix=f"name one by its id: {', '.join(schedule.id for schedule in schedules)}",
        )
    return schedules[0]


def due(schedule: RecurringRun) -> str:
    """When a schedule is due: in the user's own words, kept in its description; in KFP's where another tool made it."""
    if schedule.description.startswith(f"{_BY} "):
        return schedule.description.partition(_BETWEEN)[2]
    return f"{schedule.cron} (six fields, UTC)" if schedule.cron else f"every {schedule.every} s"


def to_json(schedule: RecurringRun) -> dict[str, object]:
    """As `schedule list --json` prints it."""
    return {
        "id": schedule.id,
        "name": schedule.name,
        "state": schedule.state,
        "when": due(schedule),
        "cron": schedule.cron,
        "every": schedule.every,
        "start": _rfc3339(schedule.start),
        "end": _rfc3339(schedule.end),
        "max_concurrency": schedule.max_concurrency,
        "catchup": not schedule.no_catchup,
        "parameters": dict(schedule.parameters or {}),
    }


def _words(when: When) -> str:
    return f"every {when.every}" if when.every else f"{' '.join(when.cron.split())} {when.tz}"


def _differences(
    there: RecurringRun, description: str, resolved: KfpTrigger, when: When, arguments: Mapping[str, object]
) -> list[str]:
    """How a schedule that is there differs from the one that is wanted."""
    version, _, words = there.description.partition(_BETWEEN)
    differences = []
    if version != description.partition(_BETWEEN)[0]:
        differences.append("it runs another version of the pipeline")
    if (words, there.cron, there.every) != (_words(when), resolved.cron, resolved.every):
        differences.append(f"it is due {due(there)}")
    if (_rfc3339(there.start), _rfc3339(there.end)) != (resolved.start, resolved.end):
        differences.append("it begins or ends at another time")
    if (there.max_concurrency, there.no_catchup) != (when.max_concurrency, not when.catchup):
        differences.append(f"it has {there.max_concurrency} at once, catch-up {'off' if there.no_catchup else 'on'}")
    if dict(there.parameters or {}) != dict(arguments):
        differences.append("it has other parameters")
    return differences


def _moment(text: str, offset: timedelta) -> datetime | None:
    return moment_of(text, timezone(offset)) if text else None


def _rfc3339(moment: datetime | None) -> str:
    if moment is None or moment.timestamp() <= 0:
        return ""
    return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
