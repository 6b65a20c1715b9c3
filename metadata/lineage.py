"""Lineage: the closure by one recursive query, a bounded walk level by level; no cap on hops."""
# ruff: noqa: S608 (only this package's own constants are put into SQL; every value is bound)

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Set
from typing import Literal

from ..errors import InputError
from . import rows
from .database import Database, Transaction
from .dialect import IDS
from .records import ArtifactRecord, ExecutionRecord, LineageEdge

# Where an execution's outputs stand: a CACHED one reuses another's.
_REUSED = "coalesce(x.cached_from, x.id)"
# From artifacts to all the executions above (their producers) or below (their consumers), through artifacts.
# UNION, not UNION ALL: an execution that is reached on many ways is followed once, so that a diamond of n levels costs
# n steps and not 2^n, and the recursion ends even if events formed a cycle. What is carried along is the execution
# alone, without the hop count: with it the rows of two ways would differ, and none would be dropped. That is why a
# bounded walk (`_walk`) is another function.
_UPSTREAM = """
WITH RECURSIVE reached (execution_id) AS (
    SELECT execution_id FROM event WHERE direction = 'OUTPUT' AND artifact_id = :artifact
    UNION SELECT id FROM execution WHERE id = :execution
    UNION
    SELECT o.execution_id FROM reached r
    JOIN event i ON i.execution_id = r.execution_id AND i.direction = 'INPUT'
    JOIN event o ON o.artifact_id = i.artifact_id AND o.direction = 'OUTPUT'
)
"""
_DOWNSTREAM = f"""
WITH RECURSIVE reached (execution_id) AS (
    SELECT execution_id FROM event WHERE direction = 'INPUT' AND artifact_id = :artifact
    UNION SELECT id FROM execution WHERE id = :execution
    UNION
    SELECT i.execution_id FROM reached r
    JOIN execution x ON x.id = r.execution_id
    JOIN event o ON o.execution_id = {_REUSED} AND o.direction = 'OUTPUT'
    JOIN event i ON i.artifact_id = o.artifact_id AND i.direction = 'INPUT'
)
"""
_EVENTS = "SELECT v.execution_id, v.direction, v.key, v.idx, v.artifact_id FROM event v"
_LINKED = "SELECT x.id, v.direction, v.key, v.idx, v.artifact_id FROM execution x JOIN event v ON v.execution_id ="
_NO_TRIALS = f"v.execution_id NOT IN {rows.TRIALS}"
_OUTPUTS = f"{_LINKED} {_REUSED}"
_REUSED_OUTPUTS = f"{_LINKED} x.cached_from AND v.direction = 'OUTPUT'"


def trace(
    db: Database,
    start: ArtifactRecord | ExecutionRecord,
    direction: Literal["upstream", "downstream"],
    max_hops: int | None,
) -> list[LineageEdge]:
    """The edges of the graph that leads to, or on from, a start, sorted."""
    if direction not in {"upstream", "downstream"}:
        raise InputError(f"lineage has no direction {direction!r}", fix="use upstream or downstream")
    if max_hops is not None and max_hops < 0:
        raise InputError(f"max_hops is not negative: {max_hops}")

    def read(tx: Transaction) -> list[LineageEdge]:
        return sorted(_closure(tx, start, direction) if max_hops is None else _walk(tx, start, direction, max_hops))

    return db.seen(read)


def up_to(
    ends: Set[int],
    edges: Iterable[LineageEdge],
    start: ArtifactRecord | ExecutionRecord,
    direction: Literal["upstream", "downstream"],
) -> list[LineageEdge]:
    """Those of a start's edges that are reached without going on from some artifacts, by id; sorted."""
    to_execution = "OUTPUT" if direction == "upstream" else "INPUT"
    leading = defaultdict[tuple[type, int], list[LineageEdge]](list)
    for edge in edges:
        if edge.direction == to_execution:
            leading[ArtifactRecord, edge.artifact].append(edge)
        else:
            leading[ExecutionRecord, edge.execution].append(edge)
    todo, reached = [(type(start), start.id)], set[LineageEdge]()
    while todo:
        for edge in leading.pop(todo.pop(), ()):
            reached.add(edge)
            if edge.direction == to_execution:
                todo.append((ExecutionRecord, edge.execution))
            elif edge.artifact not in ends:
                todo.append((ArtifactRecord, edge.artifact))
    return sorted(reached)


def closure_sql(direction: Literal["upstream", "downstream"], kind: Literal["artifact", "execution"]) -> str:
    """SQL: the ids of the artifacts, or executions, that lead to the artifact bound as `artifact`, or on from it."""
    recursion = (_UPSTREAM if direction == "upstream" else _DOWNSTREAM).replace(":execution", "NULL")
    if kind == "execution":
        return f"{recursion} SELECT execution_id FROM reached"
    if direction == "upstream":
        inputs = "JOIN event v ON v.execution_id = r.execution_id AND v.direction = 'INPUT'"
        return f"{recursion} SELECT v.artifact_id FROM reached r {inputs}"
    outputs = f"JOIN execution x ON x.id = r.execution_id JOIN event v ON v.execution_id = {_REUSED}"
    return f"{recursion} SELECT v.artifact_id FROM reached r {outputs} AND v.direction = 'OUTPUT'"


def ancestors(db: Database | Transaction, artifacts: Iterable[int]) -> set[int]:
    """The ids of all artifacts that some were made from, directly or not; not theirs, unless one led to another."""
    sql = (
        "WITH RECURSIVE above (artifact) AS ("
        "SELECT i.artifact_id FROM event o JOIN event i ON i.execution_id = o.execution_id AND i.direction = 'INPUT' "
        f"WHERE o.direction = 'OUTPUT' AND o.artifact_id IN {IDS} UNION "
        "SELECT i.artifact_id FROM above a JOIN event o ON o.artifact_id = a.artifact AND o.direction = 'OUTPUT' "
        "JOIN event i ON i.execution_id = o.execution_id AND i.direction = 'INPUT') SELECT artifact FROM above"
    )
    return {row["artifact"] for row in db.all(sql, ids=json.dumps(sorted(artifacts)))}


def _closure(tx: Transaction, start: ArtifactRecord | ExecutionRecord, direction: str) -> list[LineageEdge]:
    artifact = start.id if isinstance(start, ArtifactRecord) else None
    execution = start.id if isinstance(start, ExecutionRecord) else None
    of_reached = f"{_EVENTS} WHERE v.execution_id IN (SELECT execution_id FROM reached)"
    if direction == "upstream":
        sql = f"{_UPSTREAM} {of_reached}"
    else:  # with the outputs of a CACHED one, which another one's events tell
        reused = f"{_REUSED_OUTPUTS} JOIN reached r ON r.execution_id = x.id"
        sql = f"{_DOWNSTREAM} {of_reached} AND {_NO_TRIALS} UNION ALL {reused}"
    edges = [*map(LineageEdge._make, tx.tuples(sql, artifact=artifact, execution=execution))]
    # The start is one of the two: the id of the other is NULL in SQL, which equals nothing, and None here.
    # Of an execution on the way only those edges count that lie on a path: above, outputs that something used.
    on_the_way, ends = ("INPUT", "OUTPUT") if direction == "upstream" else ("OUTPUT", "INPUT")
    wanted = {artifact, *(edge.artifact for edge in edges if edge.direction == on_the_way)}
    return [edge for edge in edges if edge.direction != ends or edge.artifact in wanted]


def _walk(tx: Transaction, start: ArtifactRecord | ExecutionRecord, direction: str, hops: int) -> set[LineageEdge]:
    to_execution, to_artifact = ("OUTPUT", "INPUT") if direction == "upstream" else ("INPUT", "OUTPUT")
    artifacts = {start.id} if isinstance(start, ArtifactRecord) else set()
    executions = {start.id} if isinstance(start, ExecutionRecord) else set()
    seen_artifacts, seen_executions, edges = set(artifacts), set(executions), set[LineageEdge]()
    for _ in range(hops):
        select = f"{_EVENTS} WHERE v.artifact_id IN {IDS} AND v.direction = '{to_execution}' AND {_NO_TRIALS}"
        to_executions = _edges(tx, select, artifacts)
        source, column = (_OUTPUTS, "x.id") if to_artifact == "OUTPUT" else (_EVENTS, "v.execution_id")
        select = f"{source} WHERE {column} IN {IDS} AND v.direction = '{to_artifact}'"
        to_artifacts = _edges(tx, select, executions)
        edges |= to_executions | to_artifacts
        executions = {edge.execution for edge in to_executions} - seen_executions
        artifacts = {edge.artifact for edge in to_artifacts} - seen_artifacts
        seen_executions |= executions
        seen_artifacts |= artifacts
        if not executions and not artifacts:
            break
    return edges


def _edges(tx: Transaction, sql: str, ids: Iterable[int]) -> set[LineageEdge]:
    return set(map(LineageEdge._make, tx.tuples(sql, ids=json.dumps(sorted(ids)))))
