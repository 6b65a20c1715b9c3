"""Executions with their inputs and outputs, out of MLMD's events, page by page, makers before takers."""
# ruff: noqa: S608 (only this package's own constants are put into SQL; every value is bound)

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from ...progress import Progress
from .. import rows
from ..database import Transaction
from ..dialect import IDS
from . import names
from .file import MlmdEvent
from .row_mapper import RowMapper, short
from .values import Row

_PREFERRED: Final = (4, 6, 1, 7)  # OUTPUT, INTERNAL_OUTPUT, DECLARED_OUTPUT, PENDING_OUTPUT


@dataclass(frozen=True)
class LinkedArtifact:
    """An artifact as an input or output of an execution there.

    Attributes:
        key: The name of the input or output; "artifact" where MLMD has no path.
        index: Which of those of that name; None where MLMD does not say.
        artifact: Its id there.
        at: When, in milliseconds.
    """

    key: str
    index: int | None
    artifact: int
    at: int


@dataclass
class ExecutionLinks:
    """The inputs and outputs of one execution there, in the order in which they were recorded."""

    inputs: list[LinkedArtifact] = field(default_factory=list)
    outputs: list[LinkedArtifact] = field(default_factory=list)


@dataclass(frozen=True)
class _Event:
    """An artifact of ours as an input or output of an execution; `at` in microseconds since 1970."""

    key: str
    index: int | None
    artifact: int
    at: int


def import_executions(mapper: RowMapper, progress: Progress) -> None:
    """Store the executions that are new, and of those that are known what has changed."""
    source = mapper.source
    order = source.ids()
    if not source.recorded_in_order(names.INPUTS, names.OUTPUTS):
        order = producers_first(order, source.all_events(), names.INPUTS, names.OUTPUTS)
    count = 0
    for page in source.executions(order):
        links = _links_of(source.events([row["id"] for row in page]))
        with mapper.db.write("import-mlmd", durable=False) as tx:
            known = mapper.known(tx, "execution", [row["id"] for row in page])
            artifacts = {
                linked.artifact for execution in links.values() for linked in (*execution.inputs, *execution.outputs)
            }
            page_state = _StoredPage(
                tx, mapper.resolved(tx, "artifact", sorted(artifacts)), [row["id"] for row in known.values()]
            )
            for row in page:
                there = known.get(mapper.uid("execution", row["id"]))
                _import(mapper, tx, page_state, row, there, links.get(row["id"], ExecutionLinks()))
            page_state.store(tx)
        count += len(page)
        progress(count, None, "executions")


def _import(
    mapper: RowMapper, tx: Transaction, page_state: _StoredPage, row: Row, there: Row | None, links: ExecutionLinks
) -> None:
    takes, gives = page_state.resolved(links.inputs), page_state.resolved(links.outputs)
    mapper.count(left_out=len(links.inputs) + len(links.outputs) - len(takes) - len(gives))
    called, state = names.execution_state(mapper.number(row, "last_known_state", "execution"))
    reused = page_state.reused(gives) if state == "CACHED" else None
    if (called == "UNKNOWN" and gives) or (state == "CACHED" and reused is None):
        state = "COMPLETE"
    old = page_state.events.get(there["id"], {}) if there is not None else {}
    taken = {take.artifact for take in takes}
    new_outputs, passed = list[_Event](), list[_Event]()
    for give in gives if reused is None else ():
        if ("OUTPUT", give.artifact) not in old:
            (passed if give.artifact in page_state.seen or give.artifact in taken else new_outputs).append(give)
    number = _row(mapper, tx, row, there, called, state, reused, passed)
    # What is passed on is taken: an artifact has one producer, and inputs come before outputs.
    _events(mapper, page_state, number, "INPUT", [*takes, *passed], old)
    _events(mapper, page_state, number, "OUTPUT", new_outputs, old)
    mapper.count(passed_on=len(passed) if there is None else 0)
    page_state.note_outputs(number, state, new_outputs)


def _row(
    mapper: RowMapper,
    tx: Transaction,
    row: Row,
    there: Row | None,
    called: str,
    state: str,
    reused: int | None,
    passed: list[_Event],
) -> int:
    """The id of an execution here, as it is there now."""
    created, updated = mapper.times(row, "execution")
    properties: dict[str, Any] = {"mlmd": {**mapper.origin(row), "state": called}}
    if node := row.get("node"):
        properties["node"] = str(node).removeprefix(f"{row.get('pipeline')}.")
    if passed:
        properties["passed_on"] = sorted({give.key for give in passed})
    error = _error(row, called, state)
    if state == "ABANDONED":
        properties["reason"] = error
    facts = {"state": state, "source": reused, "error": error, "created": created, "updated": updated}
    if there is None:
        mapper.count(executions=1)
        return tx.insert(
            "INSERT INTO execution (uid, type_id, state, cached_from, properties, error, created_at, started_at, "
            "finished_at, updated_at) VALUES (:uid, :type, :state, :source, :properties, :error, :created, "
            ":created, :updated, :updated) RETURNING id",
            uid=mapper.uid("execution", row["id"]),
            type=mapper.type_id(tx, "execution", short(mapper.type(row, "execution"))),
            properties=rows.as_json(properties),
            **facts,
        )
    number = int(there["id"])
    if there["updated_at"] != updated:
        mapper.update(tx, "execution", number, {"reason": None} | properties, updated)
        tx.run(
            "UPDATE execution SET state = :state, cached_from = :source, error = :error, started_at = :created, "
            "finished_at = :updated WHERE id = :id",
            id=number,
            **facts,
        )
        for run in tx.all("SELECT context_id FROM association WHERE execution_id = :id", id=number):
            if run["context_id"] in mapper.runs:
                mapper.runs[run["context_id"]] = True
    return number


def _events(
    mapper: RowMapper,
    page_state: _StoredPage,
    execution: int,
    direction: Literal["INPUT", "OUTPUT"],
    events: list[_Event],
    old: dict[tuple[str, int], set[str]],
) -> None:
    has_outputs = any(way == "OUTPUT" for way, _ in old)
    for event in events:
        if event.key in old.get((direction, event.artifact), ()):
            continue
        if direction == "INPUT" and has_outputs:  # it was recorded after what the execution gave had been imported
            mapper.count(left_out=1)
            continue
        page_state.add(execution, direction, event)
        old.setdefault((direction, event.artifact), set()).add(event.key)
        mapper.count(events=1)


class _StoredPage:
    """What the store knows of the artifacts and executions of one page, and the events that come to it."""

    def __init__(self, tx: Transaction, artifacts: dict[int, int], executions: list[int]) -> None:
        self._ids = artifacts
        ours = json.dumps(list(artifacts.values()))
        seen = f"SELECT id FROM artifact a WHERE id IN {IDS} AND EXISTS (SELECT 1 FROM event WHERE artifact_id = a.id)"
        self.seen = {row["id"] for row in tx.all(seen, ids=ours)}
        self.events: dict[int, dict[tuple[str, int], set[str]]] = {}
        self._used: dict[tuple[int, str, str], set[int]] = {}
        for row in tx.all(f"SELECT * FROM event WHERE execution_id IN {IDS}", ids=json.dumps(executions)):
            events = self.events.setdefault(row["execution_id"], {})
            events.setdefault((row["direction"], row["artifact_id"]), set()).add(row["key"])
            self._used.setdefault((row["execution_id"], row["direction"], row["key"]), set()).add(row["idx"])
        self._new: list[dict[str, Any]] = []
        self._makers: dict[int, int] = {}
        self._gave: dict[int, set[tuple[str, int]]] = {}
        makers = (
            "SELECT DISTINCT m.execution_id FROM event m JOIN execution x ON x.id = m.execution_id "
            f"WHERE m.artifact_id IN {IDS} AND m.direction = 'OUTPUT' AND x.state = 'COMPLETE'"
        )
        outputs_of_makers = f"SELECT * FROM event WHERE direction = 'OUTPUT' AND execution_id IN ({makers})"
        for row in tx.all(outputs_of_makers, ids=ours):
            self._makers[row["artifact_id"]] = row["execution_id"]
            self._gave.setdefault(row["execution_id"], set()).add((row["key"], row["artifact_id"]))

    def resolved(self, linked_artifacts: Iterable[LinkedArtifact]) -> list[_Event]:
        """These as events here, without those whose artifact is not there."""
        return [
            _Event(short(linked.key), linked.index, self._ids[linked.artifact], linked.at * 1000)
            for linked in linked_artifacts
            if linked.artifact in self._ids
        ]

    def reused(self, gives: list[_Event]) -> int | None:
        """The COMPLETE execution whose outputs these are, exactly."""
        makers = {self._makers.get(give.artifact) for give in gives}
        if len(makers) != 1 or (maker := makers.pop()) is None:
            return None
        return maker if self._gave[maker] == {(give.key, give.artifact) for give in gives} else None

    def note_outputs(self, execution: int, state: str, outputs: list[_Event]) -> None:
        """Note the outputs of an execution, so that a CACHED one later on the page can refer to it."""
        if outputs and state == "COMPLETE":
            self._gave.setdefault(execution, set()).update((give.key, give.artifact) for give in outputs)
            self._makers.update((give.artifact, execution) for give in outputs)

    def add(self, execution: int, direction: str, event: _Event) -> None:
        """Note an event that is to be stored, at its index or the next one that is free."""
        used = self._used.setdefault((execution, direction, event.key), set())
        index = max(0, event.index or 0)
        while index in used:
            index += 1
        used.add(index)
        self.seen.add(event.artifact)
        self._new.append(
            {
                "execution": execution,
                "direction": direction,
                "key": event.key,
                "index": index,
                "artifact": event.artifact,
                "at": event.at,
            }
        )

    def store(self, tx: Transaction) -> None:
        """Store the events, in their order: the store refuses an output that somebody has taken."""
        tx.many(
            "INSERT INTO event (execution_id, direction, key, idx, artifact_id, at) "
            "VALUES (:execution, :direction, :key, :index, :artifact, :at)",
            self._new,
        )
        tx.many(
            "UPDATE artifact SET producer_id = :execution WHERE id = :artifact",
            [event for event in self._new if event["direction"] == "OUTPUT"],
        )


def _error(row: Row, called: str, state: str) -> str | None:
    """What is known of an end that was not good."""
    if state == "ABANDONED":
        return f"it was {called} in MLMD when it was imported"
    if state != "FAILED":
        return None
    kept = row["custom_properties"].get("__execution_result__")
    try:
        result_json = json.loads(kept) if isinstance(kept, str) else kept
        message = result_json.get("resultMessage") or result_json.get("result_message")
    except (ValueError, AttributeError):
        message = kept
    return rows.free_text(str(message)) if message else "MLMD keeps no reason"


# --- what MLMD recorded ---


def _links_of(events: Iterable[MlmdEvent]) -> dict[int, ExecutionLinks]:
    """The inputs and outputs of executions, by id.

    The same output is recorded as declared, pending and done: it counts once, as the best of these. Events of a kind
    that is not known are left out.
    """
    inputs: dict[int, dict[tuple[int, str, int | None], LinkedArtifact]] = {}
    outputs: dict[int, dict[int, tuple[int, LinkedArtifact]]] = {}
    for event in events:
        linked = _linked(event)
        if event.kind in names.INPUTS:
            inputs.setdefault(event.execution, {}).setdefault((linked.artifact, linked.key, linked.index), linked)
        elif event.kind in names.OUTPUTS:
            rank = _PREFERRED.index(event.kind)
            ranked = outputs.setdefault(event.execution, {})
            if linked.artifact not in ranked or rank < ranked[linked.artifact][0]:
                ranked[linked.artifact] = (rank, linked)
    return {
        execution: ExecutionLinks(
            list(inputs.get(execution, {}).values()), [linked for _, linked in outputs.get(execution, {}).values()]
        )
        for execution in inputs.keys() | outputs.keys()
    }


def _linked(event: MlmdEvent) -> LinkedArtifact:
    """A path such as ("examples", 0): TFX writes a name and an index; others write what they like."""
    *front, last = event.path or ("artifact",)
    if isinstance(last, int) and front:
        return LinkedArtifact("/".join(map(str, front)), last, event.artifact, event.at)
    return LinkedArtifact("/".join(map(str, event.path)) or "artifact", None, event.artifact, event.at)


def producers_first(
    executions: Sequence[int], events: Iterable[tuple[int, int, int]], inputs: Sequence[int], outputs: Sequence[int]
) -> list[int]:
    """The executions, makers before takers and before who gives the same again, otherwise by id; cycles come last.

    It holds a few numbers for every event, so it is for stores that were not recorded in order.

    Args:
        executions: Their ids.
        events: Execution, artifact, kind.
        inputs: The kinds of events that take an artifact.
        outputs: Those that make one.
    """
    makers: dict[int, int] = {}
    takers: dict[int, list[int]] = {}
    for execution, artifact, kind in events:
        if kind in outputs:
            makers[artifact] = min(execution, makers.get(artifact, execution))
        if kind in outputs or kind in inputs:
            takers.setdefault(artifact, []).append(execution)
    waits = dict.fromkeys(executions, 0)
    follows: dict[int, list[int]] = {}
    for artifact, maker in makers.items():
        for taker in takers.get(artifact, ()):
            if taker != maker and taker in waits and maker in waits:
                waits[taker] += 1
                follows.setdefault(maker, []).append(taker)
    # Kahn's algorithm; the heap makes the order one and the same, by id wherever the events leave a choice.
    ready = [execution for execution, count in waits.items() if not count]
    heapq.heapify(ready)
    ordered: list[int] = []
    while ready:
        execution = heapq.heappop(ready)
        ordered.append(execution)
        for taker in follows.get(execution, ()):
            waits[taker] -= 1
            if not waits[taker]:
                heapq.heappush(ready, taker)
    return ordered + sorted(execution for execution, count in waits.items() if count)
