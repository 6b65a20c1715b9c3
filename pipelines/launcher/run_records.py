"""The records that are kept of runs beside the payloads, and how a store takes them in.

Beside the payloads: `records/RUN/run.json` (the run's facts and its compiled pipeline), `records/RUN/TASK.UID.json` for
each execution that published, `records/RUN/reused.json` for what it reused, and `records/RUN/end.json`. Pods write one
for every execution, store or no store. A run that finds all in the cache writes none. A file is written whole under a
name of its own and never changed (only the last two are, when a run is done again), so who writes needs no lock, and a
store may take them in twice; one that was lost is made of them anew.
"""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeAlias

from ...digest import sync_folder
from ...errors import BuildError, InputError
from ...metadata import ExecutionRecord, MetadataStore, described
from ...metadata.records import SEARCH
from ..ir.ir import Pipeline
from ..ir.tasks import parse_task
from .flow import Flow
from .home import Home
from .runs import Run
from .states import RunState

FORMAT = "drivetrain-record/1"
RUN, END, REUSED = "run.json", "end.json", "reused.json"
TASK_CONTEXTS = ("run", "node", "task")
"""The types of contexts that together identify the task of an execution."""
_FACTS = ("pipeline", "ir", "project", "parameters", "options", "state", "started")
"""The properties that every run has, all of them strings."""
Body: TypeAlias = Mapping[str, Any]  # JSON: Any is its boundary
_Name: TypeAlias = tuple[int, str]  # which run of several, and the record of it


class SyncReport(NamedTuple):
    """What `sync` took into a store.

    Attributes:
        run: The run's id.
        brought: Tasks whose executions were new to the store.
        known: How many executions the store had already.
        ignored: (file, reason) for each file that is not a record of the run, such as a half-written one.
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
            raise InputError(f"{run!r:.80} is not an id of a run", fix="see `drivetrain runs`; in KFP leave it empty")
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

    def holds(self, name: str) -> bool:
        """Whether there is a file of that name."""
        return name in self.names() if self._objects is not None else (self._path / name).exists()

    def write(self, name: str, body: Body, *, durable: bool = True) -> None:
        """Write a file, whole or not at all; on disk when this returns, where `durable`."""
        data = json.dumps({"format": FORMAT, **body}, sort_keys=True).encode()
        if self._objects is not None:
            self._objects.write(f"{self._name}/{name}", data)
            return
        self._path.mkdir(parents=True, exist_ok=True)
        unfinished = self._path / f".{name}.{secrets.token_hex(4)}"
        with unfinished.open("wb") as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        unfinished.replace(self._path / name)
        if not durable:
            return
        # A rename is durable once its folder is synced; the parent too, as the folder may be new.
        for folder in (self._path, self._path.parent):
            sync_folder(folder)


def write_run(home: Home, run: Run, *, durable: bool = True) -> None:
    """Write run.json, unless it is there: facts of a run do not change."""
    folder = RecordFolder(home, run.id)
    if not folder.holds(RUN):
        facts = {"id": run.id, "facts": run.context.properties, "ir": run.pipeline.to_json()}
        folder.write(RUN, facts, durable=durable)


def write_record(home: Home, run: Run, task: str) -> str | None:
    """Record the newest execution of a task, and the run where it has no record yet.

    Returns:
        The file's name; None where the task has no execution that has ended.
    """
    execution = Flow(home.store, run).execution(*parse_task(task))
    if execution is None or execution.state in ("NEW", "RUNNING"):
        return None
    return keep_record(home, run, task, execution, durable=True)


def keep_record(home: Home, run: Run, task: str, execution: ExecutionRecord, *, durable: bool = False) -> str:
    """Record an ended execution of a task, and the run where it has no record yet; gives the file's name.

    Args:
        home: Where the run lies.
        run: The run.
        task: The task.
        execution: The execution.
        durable: Whether it is on disk on return. It need not be where the store has it, which syncs what it commits.
    """
    write_run(home, run, durable=durable)
    name = f"{task.replace('[', '=').removesuffix(']')}.{execution.uid[:8]}.json"
    body: dict[str, object] = {
        "task": task,
        "execution": described(home.store, execution),
        "answers": _answers(home.store, run.id),
    }
    if SEARCH in execution.properties:
        body["trials"] = _trials(home.store, execution.properties[SEARCH])
    RecordFolder(home, run.id).write(name, body, durable=durable)
    return name


def keep_end(home: Home, run: Run, cached: Iterable[str]) -> None:
    """Record how a run ended of which executions were recorded, and what it reused.

    Args:
        home: Where the run lies.
        run: The run.
        cached: Its tasks that ended as CACHED.
    """
    flow = Flow(home.store, run)
    executions = []
    for task in cached:
        execution = flow.execution(*parse_task(task))
        if execution is not None and execution.cached_from is not None:
            source = {"uid": home.store.execution(execution.cached_from).uid}  # which its own run has recorded
            executions.append({"task": task, "execution": described(home.store, execution, source=source)})
    if executions:
        RecordFolder(home, run.id).write(REUSED, {"executions": executions}, durable=False)
    write_end(home, run, durable=False)


def write_end(home: Home, run: Run, *, durable: bool = True) -> None:
    """Write end.json: state, status, times and end of the run, with the KFP run that it ended in."""
    facts = run.context.properties
    names = ("state", "status", "finished", "resumed", "earlier_seconds")
    ending = {name: facts[name] for name in names if name in facts}
    kfp_run = (facts.get("kubeflow") or {}).get("run", "")
    RecordFolder(home, run.id).write(END, {"kfp_run": kfp_run, "end": ending}, durable=durable)


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
        raise InputError(f"records/{run}/{RUN} is not a record: {problem}", fix="remove it, and let a pod run again")
    return body


def sync(home: Home, run: str) -> SyncReport:
    """Take into the home's store what the records of a run hold and it does not; a second time changes nothing.

    Raises:
        InputError: Neither the store nor the records know the run.
    """
    return _take_in(home, [_RunRecords.of(home, run, keep=True)])[0]


def sync_all(home: Home) -> list[SyncReport]:
    """Sync every run that has records beside the home's payloads; folders without a readable run are left out."""
    if home.payloads.url is not None:
        from ...metadata.payload_remote import store_at

        runs = store_at(home.payloads.url).names("records")
    else:
        runs = sorted(path.name for path in home.root.glob("records/*"))
    all_records = []
    for run in runs:
        with suppress(InputError):
            all_records.append(_RunRecords.of(home, run, keep=False))
    return _take_in(home, all_records)


class _Links(NamedTuple):
    """What an execution's record says of others, which must be taken in before it: uids of artifacts and executions."""

    uid: str
    created: int
    reads: tuple[str, ...]
    makes: tuple[str, ...]
    reuses: str | None
    reused: tuple[str, ...]

    @classmethod
    def of(cls, body: Body) -> _Links:
        """Those of a record.

        Raises:
            AttributeError, KeyError, TypeError, ValueError: It is not one.
        """
        execution = body["execution"]
        source = execution.get("source") or {}

        def uids(artifacts: Mapping[str, Sequence[Body]]) -> tuple[str, ...]:
            return tuple(each["uid"] for several in artifacts.values() for each in several)

        return cls(
            uid=execution["uid"],
            created=int(execution.get("created") or 0),
            reads=uids(execution.get("inputs", {})),
            makes=uids(execution.get("outputs", {})),
            reuses=source.get("uid"),
            reused=uids(source.get("outputs", {})),
        )


class _RunRecords(NamedTuple):
    """What the records of one run hold.

    Attributes:
        folder: Where they lie.
        run: The run's id.
        facts: The contents of run.json, None where there is none.
        end: The contents of end.json, None where there is none.
        links: By record, for each execution.
        ignored: (file, reason) for each file that is not a record.
        kept: Bodies by record; those that are not among them are read again, as all of a store's do not fit in memory.
    """

    folder: RecordFolder
    run: str
    facts: Body | None
    end: Body | None
    links: Mapping[str, _Links]
    ignored: list[tuple[str, str]]
    kept: Mapping[str, Body]

    @classmethod
    def of(cls, home: Home, run: str, *, keep: bool) -> _RunRecords:
        """Read the records of a run.

        Raises:
            InputError: Neither the home's store nor the records know the run.
        """
        folder = RecordFolder(home, run)
        whole: dict[str, Body] = {}
        links: dict[str, _Links] = {}
        ignored: list[tuple[str, str]] = []
        kept: dict[str, Body] = {}
        for file in folder.names():
            try:
                body = folder.read(file)
            except InputError as error:
                ignored.append((file, error.message))
                continue
            if (problem := _problem(file, body, run)) is not None:
                ignored.append((file, problem))
            elif file in (RUN, END):
                whole[file] = body
            else:
                for name, each in _executions(file, body).items():
                    links[name] = _Links.of(each)
                    if keep:
                        kept[name] = each
        facts = whole.get(RUN)
        if facts is None and home.store.find_context("run", run) is None:
            raise InputError(f"there is no run {run}, nor a record of it", fix="see `drivetrain runs`, or --artifacts")
        return cls(folder, run, facts, whole.get(END), links, ignored, kept)

    def body(self, name: str) -> Body:
        """The body of an execution's record, by its name: read again from its file where it was not kept."""
        if name in self.kept:
            return self.kept[name]
        file = name.partition(" ")[0]
        return _executions(file, self.folder.read(file))[name]


def _executions(file: str, body: Body) -> dict[str, Body]:
    """The records of executions that a file holds, by name: of a task, and of the trials of its search."""
    if file != REUSED:
        return {file: body} | {f"{file} {index}": each for index, each in enumerate(body.get("trials", ()))}
    return {f"{REUSED} {index}": each for index, each in enumerate(body["executions"])}


def _take_in(home: Home, all_records: Sequence[_RunRecords]) -> list[SyncReport]:
    """Take in the executions of several runs, each after those that it reads from, of whichever run they are."""
    for records in sorted(all_records, key=lambda each: each.facts["facts"]["started"] if each.facts else ""):
        if records.facts is not None and home.store.find_context("run", records.run) is None:
            create_run(home.store, records.facts)
    brought: list[list[str]] = [[] for _ in all_records]
    known_counts = [0] * len(all_records)
    links = {(number, name): each for number, of in enumerate(all_records) for name, each in of.links.items()}
    for number, name in _in_order(links):
        records = all_records[number]
        try:
            body = records.body(name)
            for key, answer in body.get("answers", ()):
                home.store.context("answer", key, answer)
            fresh = home.store.bring_in(body["execution"], TASK_CONTEXTS)
        except (InputError, OverflowError) as error:
            records.ignored.append((name, getattr(error, "message", "it holds a number that no store keeps")))
            continue
        if "search" in body:  # a trial, which is no task
            if fresh and (run := home.store.find_context("run", records.run)) is not None:
                home.store.context(SEARCH, body["search"], parents=[run])
            continue
        known_counts[number] += not fresh
        if fresh:
            brought[number].append(str(body.get("task")))
    for records in all_records:  # last: a run must not look ended while executions of it are missing
        if records.end is not None:
            _end(home.store, records.run, records.end)
    return [
        SyncReport(records.run, tuple(tasks), known, tuple(records.ignored))
        for records, tasks, known in zip(all_records, brought, known_counts, strict=True)
    ]


def _problem(name: str, body: Body, run: str) -> str | None:
    """Why a file is not a record of the run, None where it is one."""
    try:
        if name == END:
            return None if isinstance(body["end"], dict) and "state" in body["end"] and "kfp_run" in body else "no end"
        if name == RUN:
            facts = body["facts"]
            has_facts = all(isinstance(facts[each], str) for each in _FACTS) and isinstance(facts["owner"], dict)
            digest_matches = Pipeline.from_json(body["ir"]).digest == facts["ir"]
            same_run = digest_matches and body["id"] == run
            return None if has_facts and same_run else "it is of another run, or of another pipeline"
        several = body["executions"] if name == REUSED else body.get("trials", ())
        problem = next(filter(None, (_problem("", each, run) for each in several)), None)
        if name == REUSED or problem is not None:
            return problem
        answers = body.get("answers", ())
        if not all(key.startswith(f"{run}/") and isinstance(answer, dict) for key, answer in answers):
            return "its answers are those of another run"
        links = _Links.of(body)
        uids = (links.uid, *links.reads, *links.makes, *links.reused, links.reuses or "")
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


def _trials(store: MetadataStore, search: str) -> list[Body]:
    """The trials of a search that have ended, the oldest first, as records of executions."""
    context = store.find_context(SEARCH, search)
    trials = store.executions(context=context)[::-1] if context else []
    return [{"search": search, "execution": described(store, each)} for each in trials if each.state != "RUNNING"]


def _in_order(links: Mapping[_Name, _Links]) -> Iterator[_Name]:
    """The records' names, each after those of what it reads from or reuses; otherwise by when they began."""
    by_uid = {each.uid: name for name, each in links.items()}
    makers = {uid: name for name, each in links.items() for uid in each.reused}
    # Over those that reuse what it made: they describe it without what it read.
    makers |= {uid: name for name, each in links.items() for uid in each.makes}
    done: set[_Name] = set()
    entered: set[_Name] = set()
    for first in sorted(links, key=lambda name: (links[name].created, name)):
        stack = [first]
        while stack:
            name = stack[-1]
            if name not in entered:
                entered.add(name)
                before = (by_uid.get(links[name].reuses or ""), *(makers.get(uid) for uid in links[name].reads))
                stack.extend(each for each in before if each is not None and each not in entered)
                continue
            stack.pop()
            if name not in done:
                done.add(name)
                yield name


def _end(store: MetadataStore, run: str, body: Body) -> None:
    context = store.find_context("run", run)
    if context is None or context.properties["state"] != RunState.RUNNING:
        return
    # An end.json of an earlier KFP run does not end a run that was resubmitted as another KFP run.
    if (context.properties.get("kubeflow") or {}).get("run", body["kfp_run"]) == body["kfp_run"]:
        store.update_context(context, body["end"])
