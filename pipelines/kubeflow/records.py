"""The records that pods write beside the payloads, store or no store, and how a store takes them in.

Beside the payloads: `records/RUN/run.json` (the run's facts and its compiled pipeline), `records/RUN/TASK.UID.json` for
each execution, and `records/RUN/end.json`. A file is written whole under a name of its own and never changed (only
end.json is, when a run is done again), so pods need no lock, and a store may take them in twice.
"""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

from ...digest import sync_folder
from ...errors import BuildError, InputError
from ...metadata import MetadataStore, described
from ..ir.ir import Pipeline
from ..ir.tasks import parse_task
from ..launcher.flow import Flow
from ..launcher.home import Home, Run
from .ownership import submission

FORMAT = "drivetrain-record/1"
RUN, END = "run.json", "end.json"
TASK_CONTEXTS = ("run", "node", "task")
"""The types of contexts that together identify the task of an execution."""
_FACTS = ("pipeline", "ir", "project", "parameters", "options", "state", "started")
"""The properties that every run has, all of them strings."""
Body: TypeAlias = Mapping[str, Any]  # JSON: Any is its boundary


@dataclass(frozen=True)
class SyncReport:
    """What `sync` took into a store.

    Attributes:
        run: The run's id.
        brought: Tasks whose executions were new to the store.
        known: How many executions the store had already.
        ignored: (file, reason) for each file that is no record of the run, such as a half-written one.
    """

    run: str
    brought: tuple[str, ...]
    known: int
    ignored: tuple[tuple[str, str], ...]

    def to_json(self) -> dict[str, object]:
        """As `sync --json` prints it."""
        ignored = [{"file": name, "why": why} for name, why in self.ignored]
        return {"run": self.run, "brought": list(self.brought), "known": self.known, "ignored": ignored}


class RecordFolder:
    """The records of one run.

    Args:
        home: Where the payloads lie, in a local root or behind a URL.
        run: Id of the run.

    Raises:
        InputError: `run` cannot be the id of a run.
    """

    def __init__(self, home: Home, run: str) -> None:
        # Users of KFP's pages can fill the parameter with anything, and it becomes a path.
        if not re.fullmatch(r"\w[\w.+=@,-]*", run, re.ASCII):
            raise InputError(f"{run!r:.80} is no id of a run", fix="see `drivetrain runs`; in KFP leave it empty")
        self._name = f"records/{run}"
        self._path = home.root / "records" / run
        self._objects = None
        if home.payloads.url is not None:
            from ...metadata.payload_remote import store_at  # with it comes what reaches beyond this machine

            self._objects = store_at(home.payloads.url)

    def names(self) -> list[str]:
        """The names of the run's records, sorted; empty where there are none."""
        if self._objects is not None:
            return [name for name in self._objects.names(self._name) if name.endswith(".json")]
        return sorted(path.name for path in self._path.glob("[!.]*.json"))

    def read(self, name: str) -> Body:
        """A file.

        Raises:
            InputError: It is half-written, or none of ours.
        """
        data = self._objects.read(f"{self._name}/{name}") if self._objects else (self._path / name).read_bytes()
        try:
            body: Body = json.loads(data)
            if body["format"] != FORMAT:
                raise InputError(f"{name} has the format {body['format']!r:.40}", fix=f"this release reads {FORMAT}")
        except (ValueError, KeyError, TypeError):
            raise InputError(
                f"{name} is half-written, or no record", fix="remove it, or let its pod run again"
            ) from None
        return body

    def write(self, name: str, body: Body) -> None:
        """Write a file, whole or not at all; on disk when this returns."""
        data = json.dumps({"format": FORMAT, **body}, sort_keys=True).encode()
        if self._objects is not None:
            self._objects.write(f"{self._name}/{name}", data)
            return
        self._path.mkdir(parents=True, exist_ok=True)
        unfinished = self._path / f".{name}.{secrets.token_hex(4)}"
        with unfinished.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(self._path / name)
        # A rename is durable once its folder is synced; the parent too, as the folder may be new.
        for folder in (self._path, self._path.parent):
            sync_folder(folder)


def write_run(home: Home, run: Run) -> None:
    """Write run.json, unless it is there: facts of a run do not change."""
    folder = RecordFolder(home, run.id)
    if RUN not in folder.names():
        folder.write(RUN, {"id": run.id, "facts": run.context.properties, "ir": run.pipeline.to_json()})


def write_record(home: Home, run: Run, task: str) -> str | None:
    """Record the newest execution of a task, and the run where it has no record yet.

    Returns:
        The file's name; None where the task has no execution that has ended.
    """
    execution = Flow(home.store, run).execution(*parse_task(task))
    if execution is None or execution.state in ("NEW", "RUNNING"):
        return None
    write_run(home, run)
    name = f"{task.replace('[', '=').removesuffix(']')}.{execution.uid[:8]}.json"
    body = {"task": task, "execution": described(home.store, execution), "answers": _answers(home.store, run.id)}
    RecordFolder(home, run.id).write(name, body)
    return name


def write_end(home: Home, run: Run) -> None:
    """Write end.json: state, status and end of the run, with the KFP run that it ended in."""
    facts = run.context.properties
    ending = {name: facts[name] for name in ("state", "status", "finished") if name in facts}
    RecordFolder(home, run.id).write(END, {"kfp_run": submission(run).run, "end": ending})


def read_run(home: Home, run: str) -> Body | None:
    """The contents of run.json, None where there is none.

    Raises:
        InputError: It is half-written, or of another run.
    """
    folder = RecordFolder(home, run)
    if RUN not in folder.names():
        return None
    body = folder.read(RUN)
    if (problem := _problem(RUN, body, run)) is not None:
        raise InputError(f"records/{run}/{RUN} is no record: {problem}", fix="remove it, and let a pod run again")
    return body


def sync(home: Home, run: str) -> SyncReport:
    """Take into the home's store what the records of a run hold and it does not; a second time changes nothing.

    Raises:
        InputError: Neither the store nor the records know the run.
    """
    folder = RecordFolder(home, run)
    names = folder.names()
    bodies: dict[str, Body] = {}
    ignored: list[tuple[str, str]] = []
    for name in names:
        try:
            body = folder.read(name)
        except InputError as error:
            ignored.append((name, error.message))
            continue
        if (problem := _problem(name, body, run)) is None:
            bodies[name] = body
        else:
            ignored.append((name, problem))
    if home.store.find_context("run", run) is None:
        if RUN not in bodies:
            raise InputError(f"there is no run {run}, nor a record of it", fix="see `drivetrain runs`, or --artifacts")
        create_run(home.store, bodies[RUN])
    ended = bodies.pop(END, None)  # applied last: a run must not look ended while executions of it are missing
    bodies.pop(RUN, None)
    for name, answer in (pair for body in bodies.values() for pair in body.get("answers", ())):
        home.store.context("answer", name, answer)
    brought, known_count = [], 0
    # Producers first: an execution can only be brought in once its input artifacts are in the store.
    for name in _in_order(bodies):
        try:
            fresh = home.store.bring_in(bodies[name]["execution"], TASK_CONTEXTS)
        except (InputError, OverflowError) as error:
            ignored.append((name, getattr(error, "message", "it holds a number that no store keeps")))
            continue
        known_count += not fresh
        if fresh:
            brought.append(str(bodies[name].get("task")))
    if ended is not None:
        _end(home.store, run, ended)
    return SyncReport(run, tuple(brought), known_count, tuple(ignored))


def sync_all(home: Home) -> list[SyncReport]:
    """Sync every run that has records beside the home's payloads; folders without a readable run are left out."""
    if home.payloads.url is not None:
        from ...metadata.payload_remote import store_at

        runs = store_at(home.payloads.url).names("records")
    else:
        runs = sorted(path.name for path in home.root.glob("records/*"))
    reports = []
    for run in runs:
        with suppress(InputError):
            reports.append(sync(home, run))
    return reports


def _problem(name: str, body: Body, run: str) -> str | None:
    """Why a file is no record of the run, None where it is one."""
    try:
        if name == END:
            return None if isinstance(body["end"], dict) and "state" in body["end"] and "kfp_run" in body else "no end"
        if name == RUN:
            facts = body["facts"]
            has_facts = all(isinstance(facts[each], str) for each in _FACTS) and isinstance(facts["owner"], dict)
            digest_matches = Pipeline.from_json(body["ir"]).digest == facts["ir"]
            same_run = digest_matches and body["id"] == run
            return None if has_facts and same_run else "it is of another run, or of another pipeline"
        int(body["execution"].get("created") or 0)
        answers = body.get("answers", ())
        if not all(key.startswith(f"{run}/") and isinstance(answer, dict) for key, answer in answers):
            return "its answers are none of its run's"
        uids = [*_uids(body, "inputs"), *_uids(body, "outputs")]
        return None if all(isinstance(uid, str) for uid in uids) else "its artifacts have no uids"
    except (AttributeError, KeyError, TypeError, ValueError, BuildError):
        return "it lacks what a record holds"


def create_run(store: MetadataStore, body: Body) -> None:
    """Create a run in a store that does not have it; of two callers at once, both get the first one's."""
    facts = dict(body["facts"])
    newest = store.artifacts(state=None, limit=1)
    facts["newest"] = newest[0].id if newest else 0  # an id of this store
    store.context("ir", facts["ir"], {"ir": body["ir"]})
    store.context("pipeline", facts["pipeline"])
    store.context("run", body["id"], facts)


def _answers(store: MetadataStore, run: str) -> list[tuple[str, Mapping[str, Any]]]:
    """The answers that a run got from outside (the newest spans, say), which its other pods must reuse."""
    contexts = store.contexts("answer", limit=200)
    return [(each.name, each.properties) for each in contexts if each.name.startswith(f"{run}/")]


def _in_order(bodies: Mapping[str, Body]) -> Iterable[str]:
    """The file names, each after those of the executions that made its inputs; otherwise by when they began."""

    def began(name: str) -> tuple[int, str]:
        return int(bodies[name]["execution"].get("created") or 0), name

    makers = {uid: name for name, body in bodies.items() for uid in _uids(body, "outputs")}
    done: set[str] = set()

    def visit(name: str) -> Iterable[str]:
        if name not in done:
            done.add(name)
            for uid in _uids(bodies[name], "inputs"):
                if uid in makers:
                    yield from visit(makers[uid])
            yield name

    for name in sorted(bodies, key=began):
        yield from visit(name)


def _uids(body: Body, side: str) -> list[str]:
    execution = body["execution"]
    holders = [execution, execution.get("source") or {}] if side == "outputs" else [execution]
    return [each["uid"] for holder in holders for several in holder.get(side, {}).values() for each in several]


def _end(store: MetadataStore, run: str, body: Body) -> None:
    context = store.find_context("run", run)
    if context is None or context.properties["state"] != "RUNNING":
        return
    # An end.json of an earlier KFP run does not end a run that was resubmitted as another KFP run.
    if (context.properties.get("kubeflow") or {}).get("run", body["kfp_run"]) == body["kfp_run"]:
        store.update_context(context, body["end"])
