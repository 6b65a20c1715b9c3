"""Runs that were imported: their executions, and making one a run of ours once its pipeline is known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from .. import rows, writes
from ..dialect import Row
from ..operations import operation
from ..records import ContextRecord, ExecutionState
from ..store import MetadataStore

_STEPS: Final = """
SELECT x.*, t.name AS type FROM association s JOIN execution x ON x.id = s.execution_id JOIN type t ON t.id = x.type_id
WHERE s.context_id = :run ORDER BY x.id
"""
_EVENTS: Final = """
SELECT s.execution_id, v.direction, v.key, v.artifact_id, t.name AS type
FROM association s JOIN execution x ON x.id = s.execution_id
JOIN event v ON v.execution_id = x.id OR (v.direction = 'OUTPUT' AND v.execution_id = x.cached_from)
JOIN artifact a ON a.id = v.artifact_id JOIN type t ON t.id = a.type_id
WHERE s.context_id = :run ORDER BY s.execution_id, v.direction, v.key, v.idx
"""
_PLACES: Final = """
SELECT s.execution_id, t.name AS type, c.name FROM association s
JOIN association o ON o.execution_id = s.execution_id JOIN context c ON c.id = o.context_id
JOIN type t ON t.id = c.type_id WHERE s.context_id = :run AND t.name IN ('pipeline', 'node') ORDER BY c.id
"""


@dataclass(frozen=True)
class ImportedExecution:
    """An execution of a run that was imported.

    Attributes:
        id: Its id here.
        component: What it is an execution of.
        pipeline: The pipeline's name; "" where nothing says.
        node: The node's name.
        state: How it ended.
        started: When.
        ended: When it was last heard of.
        passed_on: The names of inputs that it gave on as outputs.
        inputs: The artifacts (ids) that it took, by name.
        outputs: Those that it gave or passed on, by name, and their type.
        placed: Whether it is recorded as one of that pipeline's and node's.
    """

    id: int
    component: str
    pipeline: str
    node: str
    state: ExecutionState
    started: datetime
    ended: datetime
    passed_on: tuple[str, ...] = ()
    inputs: dict[str, list[int]] = field(default_factory=dict)
    outputs: dict[str, tuple[str, list[int]]] = field(default_factory=dict)
    placed: bool = False


@operation("reader")
def imported_executions(store: MetadataStore, run: int) -> list[ImportedExecution]:
    """What ran in an imported run, in the order in which it was recorded."""
    with store._db.read() as tx:
        places: dict[int, dict[str, str]] = {}
        for row in tx.all(_PLACES, run=run):
            places.setdefault(row["execution_id"], {})[row["type"]] = row["name"]
        steps = {row["id"]: row for row in tx.all(_STEPS, run=run)}
        events = tx.all(_EVENTS, run=run)
    named = Counter(there["pipeline"] for there in places.values() if "pipeline" in there)
    usual = named.most_common(1)[0][0] if named else ""
    executions = {number: _ran(row, places.get(number, {}), usual) for number, row in steps.items()}
    for event in events:
        execution = executions[event["execution_id"]]
        if event["direction"] == "INPUT" and event["key"] not in execution.passed_on:
            execution.inputs.setdefault(event["key"], []).append(event["artifact_id"])
        else:
            execution.outputs.setdefault(event["key"], (event["type"], []))[1].append(event["artifact_id"])
    return list(executions.values())


@operation()
def adopt(
    store: MetadataStore, run: int, pipeline: str, facts: Mapping[str, Any], nodes: Mapping[int, str]
) -> ContextRecord:
    """Make an imported run one of ours: with what is known of a run, and its executions at their nodes.

    Args:
        store: Where it is.
        run: The id of its context.
        pipeline: The pipeline's name.
        facts: The properties of a run.
        nodes: The nodes of those of its executions that are not placed yet, by the execution's id.
    """
    with store._db.write("import-mlmd", durable=False) as tx:
        there = writes.context(tx, run)
        type_ = writes.type_id(tx, "context", "run")
        name, taken = there.name, "SELECT 1 FROM context WHERE type_id = :type AND name = :name AND id <> :id"
        if tx.first(taken, type=type_, name=name, id=run) is not None:
            name = f"{name[:230]}@{there.properties['mlmd']['store']}"
        tx.run(
            "UPDATE context SET type_id = :type, name = :name, properties = :properties, version = version + 1 "
            "WHERE id = :id",
            id=run,
            type=type_,
            name=name,
            properties=rows.as_json({**there.properties, **facts}),
        )
        places = [writes.insert_context(tx, "pipeline", pipeline, None)]
        for execution, node in nodes.items():
            at = writes.insert_context(tx, "node", f"{pipeline}.{node}"[:255], None)
            for context in (*places, at):
                tx.run(
                    "INSERT INTO association (context_id, execution_id) VALUES (:context, :execution) "
                    "ON CONFLICT DO NOTHING",
                    context=context,
                    execution=execution,
                )
            kept = writes.execution(tx, execution).properties
            if kept.get("node") != node:
                tx.run(
                    "UPDATE execution SET properties = :properties WHERE id = :id",
                    id=execution,
                    properties=rows.as_json({**kept, "node": node}),
                )
        return writes.context(tx, run)


def _ran(row: Row, places: Mapping[str, str], usual: str) -> ImportedExecution:
    record = rows.execution(row)
    there = record.properties.get("mlmd", {})
    known = {**there.get("custom_properties", {}), **there.get("properties", {})}
    # Before it had nodes, TFX kept their names as properties.
    pipeline = places.get("pipeline") or usual or str(known.get("pipeline_name") or "")
    node = places.get("node") or str(known.get("component_id") or "")
    name = node.removeprefix(f"{pipeline}.") or record.component.rpartition(".")[2]
    return ImportedExecution(
        record.id,
        record.component,
        pipeline,
        name,
        record.state,
        record.created_at,
        record.updated_at,
        tuple(record.properties.get("passed_on", ())),
        placed=bool(pipeline) and places.get("pipeline") == pipeline and places.get("node") == f"{pipeline}.{name}",
    )
