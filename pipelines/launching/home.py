"""A run's home: the root folder with its store, its payloads and its working folders; and the record of a run."""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ...errors import InputError
from ...metadata import Artifact, ArtifactRecord, ContextRecord, MetadataStore, Owner, Payloads
from ..form.ir import Pipeline
from ..sources.files import remove_fetched


class Home:
    """The root folder, `.drivetrain/` by default: `metadata.db`, `artifacts/`, `work/`.

    Args:
        root: The folder; made if it does not exist.
        store: Where the metadata lies, if not in the root's `metadata.db`.
        readonly: Open for looking only; the root must exist.

    Raises:
        InputError: The root cannot be made or used.
    """

    def __init__(self, root: Path, *, store: str | None = None, readonly: bool = False) -> None:
        self.root = root.absolute()
        if readonly and not self.root.is_dir():
            raise InputError(f"there are no runs in {self.root}", fix="give the root of earlier runs with --root")
        try:
            self.root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"{self.root} cannot be made: {error.strerror}", fix="give another --root") from None
        self.url = store
        self.store = MetadataStore.open(store or self.root / "metadata.db")
        self.payloads = Payloads(self.root)

    @property
    def base(self) -> Path:
        """The folder that relative paths mean: the root's parent."""
        return self.root.parent

    def sweep(self) -> None:
        """End what dead processes were running; remove old copies, and what is staged for nothing that runs."""
        self.store.abandon()
        # The folders first: an execution is recorded before it stages anything.
        staged = [path for path in self.payloads.staging.glob("*") if not path.name.startswith("removed-")]
        if staged:
            running = {execution.uid for execution in self.store.executions(state="RUNNING")}
            for path in staged:
                if path.name not in running:
                    shutil.rmtree(path, ignore_errors=True)
        if (fetched := self.root / "work" / "fetched").is_dir() and not self.store.executions(state="RUNNING", limit=1):
            remove_fetched(fetched)

    def artifact(self, kind: type[Artifact], record: ArtifactRecord) -> Artifact:
        """A published artifact, as a component takes it."""
        return kind.from_record(record, self.payloads.path(record.uri))

    def close(self) -> None:
        """Close the store."""
        self.store.close()


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
    """

    runner: str = "inline"
    runner_options: tuple[str, ...] = ()
    executor: str = "local"
    executor_options: tuple[str, ...] = ()
    cache: bool = True
    parallel: int | None = None
    only: tuple[str, ...] = ()
    base: str = ""


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
    """

    id: str
    pipeline: Pipeline
    project: Path
    parameters: Mapping[str, object]
    options: RunOptions
    context: ContextRecord

    @property
    def state(self) -> str:
        """RUNNING, COMPLETE, FAILED, STOPPED (a gate's veto) or CANCELED; INTERRUPTED where its process died."""
        state = str(self.context.properties["state"])
        if state == "RUNNING" and ((owner := _owner(self.context)).liveness() == "dead" or owner.rebooted()):
            return "INTERRUPTED"
        return state


def new_run(
    home: Home, pipeline: Pipeline, project: Path, parameters: Mapping[str, object], options: RunOptions
) -> Run:
    """Record a run that starts now; its pipeline's compiled form goes into the store under its digest."""
    started = datetime.now(UTC)
    name = f"{started:%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
    home.store.context("ir", pipeline.digest, {"ir": pipeline.to_json()})
    home.store.context("pipeline", pipeline.name)
    context = home.store.context(
        "run",
        name,
        {
            "pipeline": pipeline.name,
            "ir": pipeline.digest,
            "project": str(project),
            "parameters": json.dumps(dict(parameters)),
            "options": json.dumps(vars(options)),
            "state": "RUNNING",
            "owner": Owner.current().to_dict(),
            "started": started.isoformat(),
        },
    )
    return _run(home, context)


def open_run(home: Home, name: str | None) -> Run:
    """A run by id (or a unique beginning of one); the newest where None.

    Raises:
        InputError: There is no such run, or more than one.
    """
    if name is not None and (exact := home.store.find_context("run", name)) is not None:
        return _run(home, exact)
    found = [c for c in home.store.contexts("run", limit=1000 if name else 1) if c.name.startswith(name or "")]
    if len(found) != 1:
        what = f"run {name!r}" if name else "run"
        raise InputError(
            f"there is {'no' if not found else 'more than one'} {what} in {home.root}",
            fix="see `drivetrain runs`",
        )
    return _run(home, found[0])


def list_runs(home: Home, limit: int = 20) -> list[Run]:
    """The newest runs."""
    return [_run(home, context) for context in home.store.contexts("run", limit=limit)]


def reopen_run(home: Home, run: Run) -> Run:
    """Take a run over to finish it.

    A process that cannot be seen from here (another host or container) counts as alive while it holds a lease.

    Raises:
        InputError: Its process is alive.
        ConflictError: Another process takes it over at this moment.
    """
    owner = _owner(run.context)
    alive = run.state == "RUNNING" and owner != Owner.current()
    if alive and owner.liveness() == "unknown":
        running = home.store.executions(context=run.context, state="RUNNING")
        alive = not all(home.store.is_dead(execution) for execution in running)
    if alive:
        raise InputError(
            f"the run {run.id} is being worked on by {owner}",
            fix="wait for it, or end that process",
        )
    properties = {"state": "RUNNING", "owner": Owner.current().to_dict()}
    return _run(home, home.store.update_context(run.context, properties, expected_version=run.context.version))


def close_run(home: Home, run: Run, state: str) -> None:
    """Record how a run ended."""
    properties = {"state": state, "finished": datetime.now(UTC).isoformat()}
    home.store.update_context(run.context, properties)


def _run(home: Home, context: ContextRecord) -> Run:
    facts: Mapping[str, Any] = context.properties
    ir = home.store.find_context("ir", facts["ir"])
    if ir is None:
        raise InputError(f"the store does not hold the pipeline of run {context.name}", fix="drivetrain fsck")
    options: dict[str, Any] = json.loads(facts["options"])
    options = {name: tuple(value) if isinstance(value, list) else value for name, value in options.items()}
    return Run(
        id=context.name,
        pipeline=Pipeline.from_json(ir.properties["ir"]),
        project=Path(os.fspath(facts["project"])),
        parameters=json.loads(facts["parameters"]),
        options=RunOptions(**options),
        context=context,
    )


def _owner(context: ContextRecord) -> Owner:
    return Owner.from_dict(context.properties["owner"])
