"""What people are told of: runs that ended badly, work again or were stopped, questions, models that were pushed.

Each kind of news comes from an `EventSource`, which looks at the store and remembers how far it has looked. What it
remembers is kept with what has yet to be sent, so that nothing is missed while nobody looks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Protocol, TypeAlias

from ...errors import DrivetrainError
from ...metadata import ArtifactRecord, ContextRecord
from ...metadata.registry import RegisteredModel, Registry, RegistryEntry
from ...redaction import printable
from ..ir.tasks import parse_task
from ..launcher.decisions import waiting_tasks
from ..launcher.home import Home
from ..launcher.runs import Run, open_run
from ..launcher.states import RunState
from ..triggers.schedule import SCHEDULES, ticks_of

Mark: TypeAlias = Any  # a JSON value: what a source remembers, which only that source reads
_TITLES: Final[Mapping[str, str]] = {
    "failed": "{pipeline} failed",
    "recovered": "{pipeline} works again",
    "stopped": "{pipeline} was stopped by validation",
    "approval": "{pipeline} waits for approval",
    "champion": "{pipeline} has a new champion",
}
KINDS: Final = tuple(_TITLES)
_CHAMPION: Final = "champion"
"""The alias of a registered model that is in service, by the field's custom."""
_LONGEST: Final = 500
"""Characters of a reason."""
_OVERLAP: Final = timedelta(minutes=1)
"""How long a transaction may take from its begin, which dates it, to its end, when others see it."""


@dataclass(frozen=True)
class Event:
    """Something that people may want to hear of.

    Each attribute is a line of text without secrets, "" where there is none. Templates name them so.

    Attributes:
        event: Its kind: failed, recovered, stopped, approval or champion.
        pipeline: The pipeline's name.
        run: The run's id.
        node: The task that it is about: that failed, refused, asks or pushed.
        state: How the run ended.
        reason: Why, in one line.
        at: When, in UTC, as ISO 8601.
        schedule: The schedule that started the run.
    """

    event: str
    pipeline: str
    run: str = ""
    node: str = ""
    state: str = ""
    reason: str = ""
    at: str = ""
    schedule: str = ""

    def __post_init__(self) -> None:
        for name, text in asdict(self).items():
            line = printable(text.strip().partition("\n")[0])
            object.__setattr__(self, name, line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…")

    @property
    def title(self) -> str:
        """What happened, in a few words."""
        return _TITLES[self.event].format(pipeline=self.pipeline)

    @property
    def fields(self) -> dict[str, str]:
        """What a template may name: the attributes, and the title."""
        return {**asdict(self), "title": self.title}


FIELDS: Final = (*Event.__dataclass_fields__, "title")


class EventSource(Protocol):
    """Where a kind of news comes from.

    Attributes:
        name: Unique; its mark is kept under it.
    """

    name: str

    def begin(self, home: Home) -> Mark:
        """The mark of who begins to watch now: what was there before is no news."""
        ...

    def look(self, home: Home, mark: Mark) -> tuple[list[Event], Mark]:
        """What came since the mark, the oldest first, and the mark afterwards; the same one where nothing came."""
        ...


class EndedRuns:
    """Runs that failed, were stopped by a gate, or succeeded after a failure; also those whose process died.

    Its mark: `after`, when it last looked (UTC); `open`, runs that had not ended; `ends`, which ends it has seen of the
    runs that changed just before; `failing`, pipelines whose last run failed.
    """

    name = "runs"

    def begin(self, home: Home) -> Mark:
        """See `EventSource.begin`."""
        now = _now(home)
        runs = home.store.contexts("run", limit=None)
        failing: dict[str, bool] = {}
        for run in runs:  # the newest first
            if _failed(run) is not None:
                failing.setdefault(run.properties.get("pipeline", ""), bool(_failed(run)))
        open_ = {run.name for run in runs if _state(home, run) == RunState.RUNNING}
        lately = [run for run in runs if run.updated_at > now - _OVERLAP]
        return {
            "after": now.isoformat(),
            "open": sorted(open_),
            "ends": {run.name: _end(run) for run in lately if run.name not in open_},
            "failing": sorted(name for name, has_failed in failing.items() if has_failed),
        }

    def look(self, home: Home, mark: Mark) -> tuple[list[Event], Mark]:
        """See `EventSource.look`."""
        now, since = _now(home), datetime.fromisoformat(mark["after"]) - _OVERLAP
        changed = {run.name: run for run in home.store.contexts("run", limit=None, changed_after=since)}
        unchanged = (home.store.find_context("run", name) for name in mark["open"] if name not in changed)
        runs = [*changed.values(), *(run for run in unchanged if run is not None)]
        open_, ends, failing = set(), {}, set(mark["failing"])
        events: list[Event] = []
        for run in sorted(runs, key=lambda run: (str(run.properties.get("finished", "")), run.id)):
            state = _state(home, run)
            if state == RunState.RUNNING:
                open_.add(run.name)
                continue
            end = _end(run)
            if run.name in changed:
                ends[run.name] = end
            with suppress(AttributeError, KeyError, TypeError, ValueError):  # a damaged record is no news
                if mark["ends"].get(run.name) != end and _is_news(run, mark, since):
                    events += _news(home, run, state, failing)
        after = {"open": sorted(open_), "ends": ends, "failing": sorted(failing)}
        if after == {key: mark[key] for key in after} and now - datetime.fromisoformat(mark["after"]) < _OVERLAP / 2:
            return events, mark
        return events, {"after": now.isoformat(), **after}


class WaitingApprovals:
    """Questions that a run waits for somebody to answer. Its mark: the tasks that ask, of each run that is at work."""

    name = "approvals"

    def __init__(self) -> None:
        self._asks: dict[str, bool] = {}

    def begin(self, home: Home) -> Mark:
        """See `EventSource.begin`; a question that nobody has answered yet is news all the same."""
        return {}

    def look(self, home: Home, mark: Mark) -> tuple[list[Event], Mark]:
        """See `EventSource.look`."""
        asking: dict[str, list[str]] = {}
        events: list[Event] = []
        runs = {execution.properties.get("run") for execution in home.store.executions(state="RUNNING")}
        for name in sorted(name for name in runs if name):
            run = self._run(home, name)
            if run is not None and (tasks := waiting_tasks(home, run)):
                asking[name] = tasks
                events += [self._event(run, task) for task in tasks if task not in mark.get(name, ())]
        self._asks = {name: asks for name, asks in self._asks.items() if name in runs}
        return events, asking

    def _run(self, home: Home, name: str) -> Run | None:
        """A run that is at work and may ask; None of one that cannot."""
        if self._asks.get(name, True):
            with suppress(DrivetrainError):  # a record that cannot be read asks nobody
                run = open_run(home, name)
                self._asks[name] = any(node.asks for node in run.pipeline.nodes)
                return run if self._asks[name] and run.state is RunState.RUNNING else None
        return None

    def _event(self, run: Run, task: str) -> Event:
        facts = run.context.properties
        message = dict(run.pipeline[parse_task(task)[0]].parameters).get("message")
        question = f"{message}: " if isinstance(message, str) and message else ""
        answer = f"{question}`drivetrain approve {run.id} {task}`, or with --deny"
        at = datetime.now(UTC).isoformat(timespec="seconds")
        return Event("approval", run.pipeline.name, run.id, task, "RUNNING", answer, at, _schedule(facts))


class PushedModels:
    """Models that were pushed to where a server looks for them. Its mark: the id of the last artifact that it saw."""

    name = "pushed"

    def begin(self, home: Home) -> Mark:
        """See `EventSource.begin`."""
        newest = home.store.artifacts(state=None, limit=1)
        return newest[0].id if newest else 0

    def look(self, home: Home, mark: Mark) -> tuple[list[Event], Mark]:
        """See `EventSource.look`."""
        pushed = home.store.artifacts(type="PushedModel", after=mark)
        return [self._event(home, record) for record in reversed(pushed)], pushed[0].id if pushed else mark

    def _event(self, home: Home, record: ArtifactRecord) -> Event:
        contexts = {context.type: context for context in home.store.contexts_of(record)}
        names = {type_: context.name for type_, context in contexts.items()}
        node = names.get("node", "").partition(".")[2]
        schedule = _schedule(contexts["run"].properties) if "run" in contexts else ""
        version, destination = record.properties.get("version"), record.properties.get("destination")
        reason, at = f"version {version} was pushed to {destination}", record.created_at.isoformat(timespec="seconds")
        return Event("champion", names.get("pipeline", ""), names.get("run", ""), node, "", reason, at, schedule)


class MovedChampions:
    """Registered models whose alias `champion` moved. Its mark: how many entries it saw of each model's log."""

    name = "registry"

    def begin(self, home: Home) -> Mark:
        """See `EventSource.begin`."""
        registry = Registry(home.store)
        return {name: registry.entries(name) for name in registry.names()}

    def look(self, home: Home, mark: Mark) -> tuple[list[Event], Mark]:
        """See `EventSource.look`."""
        registry = Registry(home.store)
        entries = {name: registry.entries(name) for name in registry.names()}
        events: list[Event] = []
        for name in sorted(name for name in entries if entries[name] > mark.get(name, 0)):
            with suppress(DrivetrainError):  # a damaged log is no news
                model = registry.model(name)
                moves = [each for each in model.log[mark.get(name, 0) :] if each.facts.get("alias") == _CHAMPION]
                events += [self._event(home, model, move) for move in moves if move.facts.get("version") is not None]
        return events, entries

    def _event(self, home: Home, model: RegisteredModel, move: RegistryEntry) -> Event:
        artifact = home.store.artifact(model.version(move.facts["version"]).artifact)
        names = {context.type: context.name for context in home.store.contexts_of(artifact)}
        reason, at = f"{model.name}: {move}", move.at.isoformat(timespec="seconds")
        return Event("champion", names.get("pipeline", model.name), names.get("run", ""), "", "", reason, at)


class UnbegunRuns:
    """Runs of schedules that could not begin: a budget is used up, or a project does not load.

    Its mark: how many entries it saw of each schedule's log.
    """

    name = "schedules"

    def begin(self, home: Home) -> Mark:
        """See `EventSource.begin`."""
        return {each.name: home.store.count_contexts(ticks_of(each.name)) for each in self._schedules(home)}

    def look(self, home: Home, mark: Mark) -> tuple[list[Event], Mark]:
        """See `EventSource.look`."""
        counts: dict[str, int] = {}
        events: list[Event] = []
        for schedule in self._schedules(home):
            counts[schedule.name] = home.store.count_contexts(ticks_of(schedule.name))
            if new := counts[schedule.name] - mark.get(schedule.name, 0):
                ticks = home.store.contexts(ticks_of(schedule.name), limit=new)
                events += [self._event(schedule, tick) for tick in reversed(ticks) if tick.properties.get("failed")]
        return events, counts

    def _schedules(self, home: Home) -> list[ContextRecord]:
        return home.store.contexts(SCHEDULES, limit=None)

    def _event(self, schedule: ContextRecord, tick: ContextRecord) -> Event:
        pipeline = str(schedule.properties.get("pipeline", schedule.name))
        reason, at = str(tick.properties.get("reason", "")), tick.created_at.isoformat(timespec="seconds")
        return Event("failed", pipeline, reason=reason, at=at, schedule=schedule.name)


def every_source() -> tuple[EventSource, ...]:
    """Every source of news, each with a memory that is its alone."""
    return EndedRuns(), WaitingApprovals(), PushedModels(), MovedChampions(), UnbegunRuns()


def _now(home: Home) -> datetime:
    """By the clock of the store, which dates what changes."""
    return datetime.fromtimestamp(home.store.now() / 1e6, UTC)


def _is_open(run: ContextRecord) -> bool:
    return run.properties.get("state") == RunState.RUNNING


def _failed(run: ContextRecord) -> bool | None:
    """Whether a run failed; None where it says nothing of its pipeline: stopped, canceled, at work, imported."""
    state = run.properties.get("state")
    if "imported" in run.properties or state not in (RunState.FAILED, RunState.COMPLETE):
        return None
    return bool(state == RunState.FAILED)


def _state(home: Home, run: ContextRecord) -> str:
    """How a run ended by its record; RUNNING where it did not, and INTERRUPTED where its process died."""
    if _is_open(run):
        with suppress(DrivetrainError):  # a record that cannot be read says RUNNING for ever
            opened = open_run(home, run.name)
            # One that has ended since its record was read is news at the next look, by its new record.
            return opened.state if _is_open(opened.context) else RunState.RUNNING
    return str(run.properties.get("state", ""))


def _end(run: ContextRecord) -> str:
    """Which end of a run it is: a run that is resumed ends again."""
    facts = run.properties
    return f"{facts.get('state')} {facts.get('resumed') or facts.get('started')}"


def _is_news(run: ContextRecord, mark: Mark, since: datetime) -> bool:
    """Whether a run that has ended did so since the mark: a tag changes a run, too."""
    facts = run.properties
    if "imported" in facts:
        return False
    resumed = facts.get("resumed")
    return (
        run.name in mark["open"]
        or run.created_at > since
        or (resumed is not None and datetime.fromisoformat(resumed) > since)
    )


def _news(home: Home, run: ContextRecord, state: str, failing: set[str]) -> list[Event]:
    """The news of a run that has ended; `failing`, the pipelines whose last run failed, is changed by it."""
    pipeline = run.properties["pipeline"]
    if state in (RunState.FAILED, RunState.INTERRUPTED):
        event = _event(home, "failed", run, state)
        failing.add(pipeline)
    elif state == RunState.STOPPED:
        event = _event(home, "stopped", run, state)
    elif state == RunState.COMPLETE and pipeline in failing:
        event = _event(home, "recovered", run, state)
        failing.remove(pipeline)
    else:
        return []
    return [event]


def _event(home: Home, kind: str, run: ContextRecord, state: str) -> Event:
    facts = run.properties
    node, reason = ("", "") if kind == "recovered" else _cause(home, run, state)
    at = str(facts.get("finished") or datetime.now(UTC).isoformat())
    at = datetime.fromisoformat(at).astimezone(UTC).isoformat(timespec="seconds")
    return Event(kind, facts["pipeline"], run.name, node, state, reason, at, _schedule(facts))


def _cause(home: Home, run: ContextRecord, state: str) -> tuple[str, str]:
    """The task that failed or refused first, and what it says."""
    if state == RunState.INTERRUPTED:
        return "", "its process died"
    wanted = "FAILED" if state == RunState.FAILED else "BLOCKED"
    newest: dict[str, Any] = {}
    for execution in home.store.executions(context=run):
        newest.setdefault(str(execution.properties.get("node", "")), execution)
    for node, execution in reversed(newest.items()):
        if execution.state == wanted:
            reason = str(execution.properties.get("reason") or _last_line(execution.error or ""))
            gate, is_veto, _ = reason.partition(" vetoed: ")
            return (gate if is_veto else node), reason
    return "", "" if state == RunState.STOPPED else "see `drivetrain show`"


def _last_line(text: str) -> str:
    return next((line for line in reversed(text.splitlines()) if line.strip()), "")


def _schedule(facts: Mapping[str, Any]) -> str:
    return str(facts.get("tags", {}).get("schedule", ""))


def in_words(counts: Mapping[str, int]) -> str:
    """How many of each kind: "200 failed, 3 recovered"."""
    return ", ".join(f"{counts[kind]} {kind}" for kind in KINDS if counts.get(kind))


def count(events: Iterable[Event]) -> dict[str, int]:
    """How many events of each kind."""
    counts: dict[str, int] = {}
    for event in events:
        counts[event.event] = counts.get(event.event, 0) + 1
    return counts
