"""The record of a run in the store: begun, opened, tagged, taken over to be finished, closed."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from ...digest import canonical_json
from ...errors import BuildError, DrivetrainError, InputError
from ...metadata import (
    AlreadyExists,
    ConflictError,
    ContextRecord,
    Owner,
    StoreDamaged,
)
from ...metadata.payload_marker import mark
from ...metadata.rows import name_text
from ...owner import person
from ...redaction import redact
from ..ir.ir import Pipeline
from .home import Home
from .states import RunState


@dataclass(frozen=True)
class RunOptions:
    """How a run is carried out; nothing of it changes what the artifacts hold.

    Attributes:
        runner: Who walks the DAG: "inline", "process" or "beam".
        runner_options: Options of that runner, e.g. Beam's pipeline flags.
        executor: Which executor data passes use: "local" or "beam".
        executor_options: Options of that executor.
        cache: Whether earlier executions may stand in.
        parallel: How many tasks run at once at most; None for as many as the runner finds right.
        only: The nodes that run, of a partial run; all where empty.
        base: The earlier run that stands in for the others.
        require_blessed: Whether a run that does not bless every model it judges, or judges none, falls short, which its
            exit code then says.
        over_budget: Whether it begins though a budget that stops runs is used up.
    """

    runner: str = "inline"
    runner_options: tuple[str, ...] = ()
    executor: str = "local"
    executor_options: tuple[str, ...] = ()
    cache: bool = True
    parallel: int | None = None
    only: tuple[str, ...] = ()
    base: str = ""
    require_blessed: bool = False
    over_budget: bool = False


@dataclass(frozen=True)
class Run:
    """One run of a pipeline, as the store knows it.

    Attributes:
        id: Unique, sorts by time.
        pipeline: The compiled form it runs.
        project: The pipeline's folder, None where nothing of it is needed.
        parameters: The values of the pipeline's parameters.
        options: How it is carried out.
        context: Its record.
        directories: The working directory in which a person gave a parameter, by its name: where a relative path in
            its value is looked up first.
        lapsed: Whether the process that works on it, which cannot be seen from here, had lost its lease when the record
            was read.
    """

    id: str
    pipeline: Pipeline
    project: Path
    parameters: Mapping[str, object]
    options: RunOptions
    context: ContextRecord
    directories: Mapping[str, str] = field(default_factory=dict)
    lapsed: bool = False

    def __repr__(self) -> str:
        return f"Run({self.id}, {self.pipeline.name}, {self.state})"

    @property
    def seconds(self) -> float | None:
        """How long it was worked on; None while it runs, and of one that has no end.

        It is the time from its start to its end; of one that was resumed, the sum of this from its start and from each
        resumption on, without the time between. What a process that died worked on counts up to when the last of its
        tasks began or ended.
        """
        facts = self.context.properties
        if not facts.get("finished") or facts["state"] == RunState.RUNNING:
            return None
        end = datetime.fromisoformat(facts["finished"])
        return float(facts.get("earlier_seconds", 0.0)) + _seconds(_begun(self.context), end)

    def folders(self, base: Path, path: str) -> tuple[Path, ...]:
        """Where a relative path of an input is looked up, in this order: see docs/decisions/0003.

        Args:
            base: The folder that holds the root.
            path: The path, or a pattern of paths, as a node got it.
        """
        working = (Path(folder) for name, folder in self.directories.items() if _holds(self.parameters.get(name), path))
        return (*working, self.project, base)

    @property
    def by(self) -> str:
        """Who started it, as the system calls them; "" where that is not known: of an earlier release, in a cluster."""
        return str(self.context.properties.get("by", ""))

    @property
    def tags(self) -> Mapping[str, str]:
        """What people tagged it with: name → value, "" where it has none."""
        tags: Mapping[str, str] = self.context.properties.get("tags", {})
        return tags

    @property
    def note(self) -> str:
        """What people noted of it."""
        return str(self.context.properties.get("note", ""))

    @property
    def state(self) -> RunState:
        """As it is recorded, but INTERRUPTED where its process died."""
        state = RunState(self.context.properties["state"])
        if state is RunState.RUNNING and (self.lapsed or _owner(self.context).liveness() == "dead"):
            return RunState.INTERRUPTED
        return state


class UnreadableRun(NamedTuple):
    """A run that is recorded, and cannot be opened: a newer drivetrain recorded it, or its record is damaged.

    Attributes:
        id: Its id.
        context: Its record.
        error: Why it cannot be opened, and what to do about it.
    """

    id: str
    context: ContextRecord
    error: DrivetrainError

    @property
    def state(self) -> str:
        """The state as recorded: whether its process is alive is not asked."""
        return str(self.context.properties.get("state", ""))


def new_run(
    home: Home,
    pipeline: Pipeline,
    project: Path,
    parameters: Mapping[str, object],
    options: RunOptions,
    directories: Mapping[str, str] | None = None,
    tags: Mapping[str, str] | None = None,
    note: str = "",
    run_id: str = "",
) -> Run:
    """Record a run that starts now; its pipeline's compiled form goes into the store under its digest.

    Raises:
        InputError: A tag has no name, or a text cannot be recorded.
        AlreadyExists: Another process has begun the run of the id `run_id`.
    """
    started = datetime.now(UTC)
    newest = home.store.artifacts(state=None, limit=1)
    if home.payloads.url is None:
        mark(home.store, home.root, is_new=not newest)
    home.store.context("ir", pipeline.digest, {"ir": pipeline.to_json()})
    home.store.context("pipeline", pipeline.name)
    facts = {
        "pipeline": pipeline.name,
        "ir": pipeline.digest,
        "project": str(project),
        "parameters": json.dumps(dict(parameters)),
        "options": json.dumps(vars(options)),
        "state": RunState.RUNNING,
        "owner": Owner.current().to_dict(),
        "by": person(),
        "started": started.isoformat(),
        **({"directories": dict(directories)} if directories else {}),
        "newest": newest[0].id if newest else 0,  # the last artifact before it: clocks can be set back
        **(_tags({}, tags) if tags else {}),
        **({"note": redact(note)} if note else {}),
    }
    facts = json.loads(canonical_json(facts))  # as they will be read back
    while True:
        context = home.store.context("run", run_id or new_run_id(started), facts)
        if {**context.properties, "by": facts["by"]} == facts:  # a server before the store knows who it is
            return _run(home, context)
        if run_id:
            raise AlreadyExists(f"the run {run_id} has begun already", fix="see `drivetrain runs`")
        # Another run that began in the same second drew the same name.


def new_run_id(moment: datetime) -> str:
    """An id for a run that begins at a moment (UTC): ids sort by it."""
    return f"{moment:%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def tag_run(home: Home, run: Run, tags: Mapping[str, str | None], note: str | None = None) -> Run:
    """Tag a run, take tags from it, or change its note, at any time; gives it as it is then.

    Args:
        home: Where it lies.
        run: The run.
        tags: Name → value, "" for a tag that has none; None takes the tag away.
        note: The text that replaces its note; None for as it is.

    Raises:
        InputError: A tag has no name, or a text cannot be recorded.
    """
    while True:
        context = home.store.find_context("run", run.id) or run.context
        properties = _tags(context.properties.get("tags", {}), tags) | ({} if note is None else {"note": redact(note)})
        with suppress(ConflictError):  # another process changed the run since; its tags stay
            return _run(home, home.store.update_context(context, properties, expected_version=context.version))


def _tags(there: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, Any]:
    """The property `tags` of a run after changes."""
    changed = {**there, **{name_text(name, "tag"): value for name, value in changes.items()}}
    return {"tags": {name: redact(value) for name, value in changed.items() if value is not None}}


def open_run(home: Home, name: str | None) -> Run:
    """A run by id (or a unique beginning of one); the newest where None.

    Raises:
        InputError: There is no such run, or more than one, or a newer drivetrain recorded it.
    """
    if name is not None and (exact := home.store.find_context("run", name)) is not None:
        return _run(home, exact)
    matches = [c for c in home.store.contexts("run", limit=1000 if name else 1) if c.name.startswith(name or "")]
    if len(matches) != 1:
        what = f"run {name!r}" if name else "run"
        raise InputError(
            f"there is {'no' if not matches else 'more than one'} {what} in {home.root}",
            fix="see `drivetrain runs`",
        )
    return _run(home, matches[0])


def list_runs(home: Home, limit: int = 20) -> list[Run]:
    """The newest runs that can be read; one that cannot is left out, with a warning in the log."""
    runs = []
    for run in recorded_runs(home, limit):
        if isinstance(run, Run):
            runs.append(run)
        else:
            import logging  # late: a child process of a runner needs none

            logging.getLogger(__name__).warning("%s", run.error.message)
    return runs


def recorded_runs(
    home: Home, limit: int | None = 20, wanted: Callable[[ContextRecord], bool] = lambda context: True
) -> list[Run | UnreadableRun]:
    """The newest runs, also those that cannot be read; of all where the limit is None. Only those that are wanted."""
    return [read_run(home, context) for context in filter(wanted, home.store.contexts("run", limit=limit))]


def read_run(home: Home, context: ContextRecord) -> Run | UnreadableRun:
    """The run of a record."""
    try:
        return _run(home, context)
    except (InputError, StoreDamaged) as error:
        return UnreadableRun(context.name, context, error)


def reopen_run(home: Home, run: Run) -> Run:
    """Take a run over to finish it.

    A process that cannot be seen from here (another host or container) counts as alive while it holds a lease: the
    run's own (`run_lease`), or, of an earlier release, that of a task.

    Raises:
        InputError: Its process is alive; or it was imported, and cannot be finished here.
        ConflictError: Another process took it over at this moment, and ended it.
    """
    refuse_imported(run)
    owner = _owner(run.context)
    alive = run.state is RunState.RUNNING and owner != Owner.current()
    if alive and owner.liveness() == "unknown":
        home.store.abandon()  # its lease may be dated by a clock that was set back
        running = home.store.executions(context=run.context, state="RUNNING")
        works = home.store.claim_holder(run_lease(run.id)) == owner
        alive = works or not all(home.store.is_dead(execution) for execution in running)
    if alive:
        raise _worked_on(run.id, owner)
    properties: dict[str, Any] = {
        "state": RunState.RUNNING,
        "owner": Owner.current().to_dict(),
        "earlier_seconds": _worked(home, run),
        "resumed": datetime.now(UTC).isoformat(),
    }
    if run.context.properties["state"] not in (RunState.RUNNING, RunState.COMPLETE):
        properties["status"] = None  # it will end anew, and what runs on exit has that to hear of
    try:
        return _run(home, home.store.update_context(run.context, properties, expected_version=run.context.version))
    except ConflictError:
        now = open_run(home, run.id)
        if now.state is RunState.RUNNING:
            raise _worked_on(run.id, _owner(now.context)) from None
        raise


def _worked(home: Home, run: Run) -> float:
    """For how many seconds a run was worked on until now: see `Run.seconds`."""
    if (ended := run.seconds) is not None:
        return ended
    begun = _begun(run.context)
    executions = home.store.executions(context=run.context)
    # When an abandoned one ended is when somebody saw that its process was dead.
    times = [
        each.started_at if each.state == "ABANDONED" else each.finished_at or each.started_at for each in executions
    ]
    last = max((time_ for time_ in times if time_ is not None), default=begun)
    return float(run.context.properties.get("earlier_seconds", 0.0)) + _seconds(begun, last)


def _begun(context: ContextRecord) -> datetime:
    """When the work on a run began that goes on, or was the last."""
    return datetime.fromisoformat(context.properties.get("resumed") or context.properties["started"])


def _seconds(start: datetime, end: datetime) -> float:
    return max(0.0, (end - start).total_seconds())  # the clock may have been set back


def _has_lapsed(home: Home, context: ContextRecord) -> bool:
    """Whether a process that cannot be seen from here works on a run no more: by its leases, as `reopen_run` judges."""
    owner = _owner(context)
    if owner.liveness() != "unknown":
        return False
    over = home.store.is_lease_over(run_lease(context.name), owner)
    if over is None:  # it died before it took one, or is no process but a cluster
        return owner.rebooted()
    return over and all(map(home.store.is_dead, home.store.executions(context=context, state="RUNNING")))


def run_lease(run: str) -> str:
    """What the process that works on a run holds a claim on, also while no task of it is at work."""
    return f"run/{run}"


def refuse_imported(run: Run) -> None:
    """Refuse to run anything of a run that was imported: what it ran is not here.

    Raises:
        InputError: It was imported.
    """
    if (source := run.context.properties.get("imported")) is not None:
        raise InputError(
            f"the run {run.id} was imported from {source}: it can be looked at, not run",
            fix="write its pipeline for drivetrain (docs/from-tfx.md), and run that",
        )


def _worked_on(run: str, owner: Owner) -> InputError:
    return InputError(f"the run {run} is being worked on by {owner}", fix="wait for it, or end that process")


def close_run(home: Home, run: Run, state: RunState) -> None:
    """Record how a run ended, unless another process has taken it over meanwhile."""
    there = home.store.find_context("run", run.id)
    if there is not None and _owner(there) != Owner.current():
        return
    properties = {"state": state, "finished": datetime.now(UTC).isoformat()}
    home.store.update_context(run.context, properties)


def record_status(home: Home, run: Run, status: Mapping[str, object]) -> tuple[Run, bool]:
    """Record how the nodes that are not on exit ended; it is the status that nodes on exit can ask for.

    Returns:
        The run with that status, and whether it had the very same before: then what has run on exit since stays.
    """
    if run.context.properties.get("status") == status:
        return run, True
    newest = home.store.executions(limit=1)
    properties = {"status": dict(status), "exits_after": newest[0].id if newest else 0}
    return replace(run, context=home.store.update_context(run.context, properties)), False


def _run(home: Home, context: ContextRecord) -> Run:
    try:
        return _read_run(home, context)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise StoreDamaged(home.store.location, f"its record of run {context.name} cannot be read ({error})") from error


def _read_run(home: Home, context: ContextRecord) -> Run:
    """A run by its record; raises what Python does where a value of that is not what was written."""
    facts: Mapping[str, Any] = context.properties
    ir = home.store.find_context("ir", facts["ir"])
    if ir is None:
        raise StoreDamaged(home.store.location, f"it does not hold the pipeline of run {context.name}")
    if "imported" not in facts:
        _owner(context)
    float(facts.get("earlier_seconds", 0.0))
    datetime.fromisoformat(facts["started"])
    for time_ in ("finished", "resumed"):
        datetime.fromisoformat(facts[time_]) if facts.get(time_) else None
    state = RunState(facts["state"])
    options: dict[str, Any] = json.loads(facts["options"])
    options = {name: tuple(value) if isinstance(value, list) else value for name, value in options.items()}
    if unknown := sorted(options.keys() - {each.name for each in fields(RunOptions)}):
        raise InputError(
            f"run {context.name} cannot be read: a newer drivetrain recorded it, with the run option {unknown[0]!r}",
            fix="upgrade drivetrain",
        )
    try:
        pipeline = Pipeline.from_json(ir.properties["ir"])
    except BuildError as error:
        raise InputError(f"run {context.name}: {error.message}", fix=error.fix) from None
    return Run(
        id=context.name,
        pipeline=pipeline,
        project=Path(os.fspath(facts["project"])),
        parameters=dict(json.loads(facts["parameters"])),
        options=RunOptions(**options),
        context=context,
        directories=facts.get("directories") or {},
        lapsed="imported" not in facts and state is RunState.RUNNING and _has_lapsed(home, context),
    )


def _holds(value: object, path: str) -> bool:
    """Whether a parameter's value is that path, or holds it."""
    if isinstance(value, Mapping):
        return any(_holds(each, path) for each in value.values())
    if isinstance(value, list | tuple):
        return any(_holds(each, path) for each in value)
    return value == path


def _owner(context: ContextRecord) -> Owner:
    return Owner.from_dict(context.properties["owner"])
