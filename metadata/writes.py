"""The steps that a writing transaction is made of; each assumes the write lock and checks before it changes."""
# ruff: noqa: A002, S608
# A002: `type` is the field's word. S608: only this package's own constants are put into SQL; every value is bound.

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ..owner import Owner
from . import rows, uri
from .claims import closing, lost_lease, owner_json
from .database import Transaction
from .dialect import IDS, Row, Statement
from .errors import AlreadyExists, ConflictError, NotFound, StateError
from .records import (
    ARTIFACT_MOVES,
    EXECUTION_MOVES,
    ArtifactRecord,
    Claim,
    ContextRecord,
    ExecutionRecord,
    StagedArtifact,
)

Inputs = Mapping[str, Sequence[ArtifactRecord]]
_TYPE = "(SELECT id FROM type WHERE kind = '{}' AND name = :type AND version = '')"
_BY_UID = "SELECT * FROM execution WHERE uid = :uid"
_EVENT = (  # by uids, so that it can be sent along with what makes the rows
    "INSERT INTO event (execution_id, direction, key, idx, artifact_id, at) "
    "SELECT e.id, CAST(:direction AS TEXT), CAST(:key AS TEXT), CAST(:index AS BIGINT), a.id, CAST(:now AS BIGINT) "
    "FROM execution e, artifact a WHERE e.uid = :execution AND a.uid = :artifact AND a.state IN ('LIVE', 'REFERENCE')"
)


def type_id(tx: Transaction, kind: str, name: str) -> int:
    """The id of a type, made at its first use."""
    name = rows.name_text(name, f"{kind} type")
    known = tx.types.get((kind, name)) or tx.new_types.get((kind, name))
    if known is None:
        row = tx.first("SELECT id FROM type WHERE kind = :kind AND name = :name AND version = ''", kind=kind, name=name)
        put = "INSERT INTO type (kind, name) VALUES (:kind, :name) RETURNING id"
        known = tx.insert(put, kind=kind, name=name) if row is None else int(row["id"])
        tx.new_types[kind, name] = known
    return known


def context(tx: Transaction, reference: int) -> ContextRecord:
    """The context as it is now."""
    return rows.context(_existing(tx.first(f"{rows.CONTEXT} WHERE c.id = :id", id=reference), "context", reference))


def execution(tx: Transaction, reference: int) -> ExecutionRecord:
    """The execution as it is now."""
    return rows.execution(
        _existing(tx.first(f"{rows.EXECUTION} WHERE e.id = :id", id=reference), "execution", reference)
    )


def artifact(tx: Transaction, reference: int) -> ArtifactRecord:
    """The artifact as it is now."""
    return rows.artifact(_existing(tx.first(f"{rows.ARTIFACT} WHERE a.id = :id", id=reference), "artifact", reference))


def insert_context(tx: Transaction, type: str, name: str, properties: Mapping[str, Any] | None) -> int:
    """The id of the context of that type and name, made if there is none."""
    name = rows.name_text(name, "context name")
    type_ = type_id(tx, "context", type)
    row = tx.first("SELECT id FROM context WHERE type_id = :type AND name = :name", type=type_, name=name)
    if row is not None:
        return int(row["id"])
    return tx.insert(
        "INSERT INTO context (uid, type_id, name, properties, created_at, updated_at) "
        "VALUES (:uid, :type, :name, :properties, :now, :now) RETURNING id",
        uid=rows.uid_text(None),
        type=type_,
        name=name,
        properties=rows.as_json(properties),
        now=tx.now,
    )


def asking_for_context(type: str, name: str) -> Statement:
    """What asks for the context of that type and name."""
    bound = {"type": rows.name_text(type, "context type"), "name": rows.name_text(name, "context name")}
    return f"{rows.CONTEXT} WHERE c.name = :name AND c.type_id = {_TYPE.format('context')}", bound


def new_context(
    tx: Transaction, type: str, name: str, properties: Mapping[str, Any] | None, parents: Sequence[ContextRecord]
) -> ContextRecord:
    """A context that there was none of, below its parents: nothing is below it, so it closes no circle."""
    put: Statement = (
        "INSERT INTO context (uid, type_id, name, properties, created_at, updated_at) "
        "VALUES (:uid, :type, :name, :properties, :now, :now) RETURNING *",
        {
            "uid": rows.uid_text(None),
            "type": type_id(tx, "context", type),
            "name": rows.name_text(name, "context name"),
            "properties": rows.as_json(properties),
            "now": tx.now,
        },
    )
    link = (  # ids count anew in each store: only the uid shows that a parent was read from this one
        "INSERT INTO context_parent (parent_id, child_id) SELECT p.id, c.id FROM context p, context c "
        "WHERE p.uid = :parent AND c.uid = :uid ON CONFLICT DO NOTHING RETURNING parent_id"
    )
    uids = list(dict.fromkeys(each.uid for each in parents))
    (row,), *linked = tx.together(put, *((link, {"parent": uid, "uid": put[1]["uid"]}) for uid in uids))
    for parent in (each for each in parents if not linked[uids.index(each.uid)]):
        raise NotFound(f"context {parent.name!r} is not in this store", fix="read the parent from this store")
    return rows.context({**row, "type": type})


def change_context(tx: Transaction, reference: int, properties: Mapping[str, Any], expected: int | None) -> None:
    """Merge properties into a context's."""
    row = _existing(tx.first("SELECT * FROM context WHERE id = :id", id=reference), "context", reference)
    _expect(row, expected, f"context {row['name']!r}")
    tx.run(
        "UPDATE context SET properties = :properties, version = version + 1, updated_at = :now WHERE id = :id",
        id=reference,
        properties=rows.merged(row["properties"], properties),
        now=tx.now,
    )


def link_parent(tx: Transaction, parent: ContextRecord, child: int) -> None:
    """Put a context below another, once; refused where that closes a circle."""
    context(tx, parent.id)
    above = tx.all(
        "WITH RECURSIVE up (id) AS (SELECT :start UNION SELECT p.parent_id FROM context_parent p "
        "JOIN up ON p.child_id = up.id) SELECT id FROM up",
        start=parent.id,
    )
    if child in {row["id"] for row in above}:
        raise StateError(f"context {parent.name!r} cannot be a parent of itself or of what it is below")
    tx.run(
        "INSERT INTO context_parent (parent_id, child_id) VALUES (:parent, :child) ON CONFLICT DO NOTHING",
        parent=parent.id,
        child=child,
    )


def insert_execution(
    tx: Transaction,
    component: str,
    state: str,
    *,
    name: str | None,
    cache_key: str | None,
    preimage: Mapping[str, Any] | None,
    properties: Mapping[str, Any] | None,
    owner: Owner,
    contexts: Sequence[ContextRecord],
    inputs: Inputs | None,
    cached_from: int | None = None,
    error: str | None = None,
) -> ExecutionRecord:
    """A new execution, in its contexts and with its inputs; the key's preimage is kept beside."""
    component = rows.name_text(component, "execution type")
    type_ = type_id(tx, "execution", component)
    name = None if name is None else rows.name_text(name, "execution name")
    namesake = "SELECT id FROM execution WHERE type_id = :type AND name = :name"
    if name is not None and tx.first(namesake, type=type_, name=name) is not None:
        raise AlreadyExists(f"{component} already has an execution named {name!r}", fix="choose another name")
    cache_key = None if cache_key is None else rows.name_text(cache_key, "cache key")
    running = state == "RUNNING"
    execution_row: Statement = (
        "INSERT INTO execution (uid, type_id, name, cache_key, state, cached_from, properties, error, owner, "
        "created_at, started_at, finished_at, updated_at) VALUES (:uid, :type, :name, :key, :state, :cached_from, "
        ":properties, :error, :owner, :now, :now, :finished, :now) RETURNING *",
        {
            "uid": rows.uid_text(None),
            "type": type_,
            "name": name,
            "key": cache_key,
            "state": state,
            "cached_from": cached_from,
            "properties": rows.as_json(properties),
            "error": rows.free_text(error),
            "owner": owner_json(owner),
            "now": tx.now,
            "finished": None if running else tx.now,
        },
    )
    kept: list[Statement] = []
    if cache_key is not None and preimage is not None:
        put = "INSERT INTO cache_preimage (cache_key, preimage) VALUES (:key, :preimage) ON CONFLICT DO NOTHING"
        kept = [(put, {"key": cache_key, "preimage": rows.as_json(preimage)})]
    uid = str(execution_row[1]["uid"])
    links = _links(tx, uid, contexts, inputs)
    (row,), *stored = tx.together(execution_row, *kept, *links)
    _check_links(tx, contexts, inputs, stored[-len(links) :])
    return rows.execution({**row, "type": component})


def attach(tx: Transaction, uid: str, contexts: Sequence[ContextRecord], inputs: Inputs | None) -> None:
    """Link a new execution to its contexts and its inputs."""
    _check_links(tx, contexts, inputs, tx.together(*_links(tx, uid, contexts, inputs)))


def _links(tx: Transaction, uid: str, contexts: Sequence[ContextRecord], inputs: Inputs | None) -> list[Statement]:
    """What links an execution to each of its inputs that can be taken, then to the contexts that are there."""
    wanted = {f"context_{index}": each for index, each in enumerate(sorted({each.id for each in contexts}))}
    names = ", ".join(f":{name}" for name in wanted) or "NULL"
    put = (
        "INSERT INTO association (context_id, execution_id) SELECT c.id, e.id FROM context c, execution e "
        f"WHERE e.uid = :uid AND c.id IN ({names}) RETURNING context_id"
    )
    taken = [
        _event(tx, uid, "INPUT", key, index, each.uid)
        for key, several in (inputs or {}).items()
        for index, each in enumerate(several)
    ]
    return [*taken, (put, {"uid": uid, **wanted})]


def _check_links(
    tx: Transaction, contexts: Sequence[ContextRecord], inputs: Inputs | None, stored: list[list[Row]]
) -> None:
    """See that an execution was linked to all that it should be; else the transaction comes to nothing."""
    *taken, linked = stored
    ids = [each.id for several in (inputs or {}).values() for each in several]
    if [row["artifact_id"] for events in taken for row in events] != ids:
        _refuse_inputs(tx, inputs or {})
    if absent := {each.id for each in contexts} - {row["context_id"] for row in linked}:
        raise NotFound(f"there is no context {min(absent)} in this store")


def _refuse_inputs(tx: Transaction, inputs: Inputs) -> None:
    """Say which input is not there, or cannot be taken."""
    for key, several in inputs.items():
        for each in several:
            # Ids count anew in each store: only the uid shows that a record was read from this one.
            row = tx.first(f"{rows.ARTIFACT} WHERE a.uid = :uid", uid=each.uid)
            if row is None or row["id"] != each.id:
                raise NotFound(f"artifact {each.uid} is not in this store", fix="read the input from this store")
            if row["state"] not in {"LIVE", "REFERENCE"}:
                raise StateError(
                    f"input {key!r} is {row['state']}: {row['type']} at {row['uri']}", fix="run its producer again"
                )


def move(
    tx: Transaction,
    moved: ExecutionRecord,
    state: str,
    *,
    error: str | None = None,
    properties: Mapping[str, Any] | None = None,
) -> ExecutionRecord:
    """Take an execution to its next state, if it may go there."""
    ((row,),) = tx.together(_moved(tx, moved, state, tx.all(_BY_UID, uid=moved.uid), error, properties))
    return rows.execution({**row, "type": moved.component})


def _moved(
    tx: Transaction,
    moved: ExecutionRecord,
    state: str,
    now: list[Row],
    error: str | None,
    properties: Mapping[str, Any] | None,
) -> Statement:
    """What takes an execution to its next state, if it may go there from its row as it is now."""
    row = _existing(now[0] if now else None, "execution", moved.uid)
    if state not in EXECUTION_MOVES[row["state"]]:
        raise StateError(
            f"execution {row['id']} of {moved.component} is {row['state']} and cannot become {state}",
            fix="start a new execution",
        )
    return (
        "UPDATE execution SET state = :state, error = :error, properties = :properties, version = version + 1, "
        "finished_at = :now, updated_at = :now WHERE id = :id RETURNING *",
        {
            "id": row["id"],
            "state": state,
            "error": rows.free_text(error),
            "properties": rows.merged(row["properties"], properties or {}),
            "now": tx.now,
        },
    )


class Publishing:
    """The end of an execution that becomes COMPLETE, under a claim, which is done; its outputs become LIVE.

    Args:
        moved: The execution.
        outputs: By output name, in order.
        claim: What it was run under.

    Raises:
        InputError: A URI, a name or a uid is malformed.
    """

    def __init__(
        self, moved: ExecutionRecord, outputs: Mapping[str, Sequence[StagedArtifact]], claim: Claim | None
    ) -> None:
        self.moved = moved
        self._claim = claim
        self._keys = list(outputs)
        self._outputs = [
            (key, index, _new(each)) for key, several in outputs.items() for index, each in enumerate(several)
        ]

    @property
    def first(self) -> list[Statement]:
        """What the transaction begins with: it asks for the execution and what is in the way, and ends the claim."""
        done = [] if self._claim is None else [closing(self._claim, "DONE")]
        return [(_BY_UID, {"uid": self.moved.uid}), *done, *(new.clashes for _, _, new in self._outputs)]

    def publish(self, tx: Transaction, properties: Mapping[str, Any] | None) -> dict[str, list[ArtifactRecord]]:
        """Publish, and attribute the outputs to the execution's contexts; gives them."""
        now, *clashes = tx.begun
        if self._claim is not None and not clashes.pop(0):
            raise lost_lease(tx, self._claim)
        complete = _moved(tx, self.moved, "COMPLETE", now, None, properties)
        for (_, _, new), taken in zip(self._outputs, clashes, strict=True):
            new.refuse(taken)
        rows_of = [new.row(tx, self.moved.id, tx.now) for _, _, new in self._outputs]
        events = [_event(tx, self.moved.uid, "OUTPUT", key, index, new.uid) for key, index, new in self._outputs]
        attributed: Statement = (
            "INSERT INTO attribution (context_id, artifact_id) SELECT a.context_id, e.artifact_id "
            "FROM association a JOIN event e ON e.execution_id = a.execution_id AND e.direction = 'OUTPUT' "
            "WHERE a.execution_id = :id",
            {"id": self.moved.id},
        )
        _, *stored = tx.together(complete, *rows_of, *events, attributed)
        published: dict[str, list[ArtifactRecord]] = {key: [] for key in self._keys}
        for (key, _, new), (row,) in zip(self._outputs, stored[: len(rows_of)], strict=True):
            published[key].append(rows.artifact({**row, "type": new.kind}))
        return published


def output(
    tx: Transaction, producer: int, producer_uid: str, key: str, index: int, staged: StagedArtifact, created: int
) -> ArtifactRecord:
    """Store one LIVE output of an execution, made at a time in microseconds since 1970, UTC."""
    new = _new(staged)
    new.refuse(tx.together(new.clashes)[0])
    (row,), _ = tx.together(new.row(tx, producer, created), _event(tx, producer_uid, "OUTPUT", key, index, new.uid))
    return rows.artifact({**row, "type": new.kind})


class _NewArtifact(NamedTuple):
    """An artifact to be stored, whose texts were checked."""

    staged: StagedArtifact
    kind: str
    uid: str
    uri: str
    name: str | None

    @property
    def clashes(self) -> Statement:
        """What asks for artifacts that have its uid, URI or name.

        A uid is never used again; a URI may be, once its payload is gone; a name is unique among those of its type.
        """
        tests = {"uid": "uid = :uid"} if self.staged.uid else {}
        tests["uri"] = "uri = :uri AND state NOT IN ('DELETED', 'ABANDONED')"
        tests |= {} if self.name is None else {"name": f"name = :name AND type_id = {_TYPE.format('artifact')}"}
        selects = [
            f"SELECT '{column}' AS taken, id, producer_id FROM artifact WHERE {test}" for column, test in tests.items()
        ]
        known = {"uid": self.uid, "uri": self.uri, "name": self.name, "type": self.kind}
        return " UNION ALL ".join(selects), known

    def refuse(self, taken: list[Row]) -> None:
        """Refuse it where others have what it needs."""
        if taken:
            column = taken[0]["taken"]
            raise AlreadyExists(
                f"{self.kind} with {column} {getattr(self, column)!r} is artifact {taken[0]['id']} of execution "
                f"{taken[0]['producer_id']}",
                fix="an artifact has one producer: publish under a new uid and URI",
            )

    def row(self, tx: Transaction, producer: int, created: int) -> Statement:
        """What stores it."""
        return (
            "INSERT INTO artifact (uid, type_id, name, uri, fingerprint, size, state, producer_id, properties, "
            "created_at, updated_at) VALUES (:uid, :type, :name, :uri, :fingerprint, :size, 'LIVE', :producer, "
            ":properties, :created, :now) RETURNING *",
            {
                "uid": self.uid,
                "type": type_id(tx, "artifact", self.kind),
                "name": self.name,
                "uri": self.uri,
                "fingerprint": rows.name_text(self.staged.fingerprint, "fingerprint"),
                "size": self.staged.size,
                "producer": producer,
                "properties": rows.as_json(self.staged.properties),
                "created": created,
                "now": tx.now,
            },
        )


def _new(staged: StagedArtifact) -> _NewArtifact:
    return _NewArtifact(
        staged,
        rows.name_text(staged.type, "artifact type"),
        rows.uid_text(staged.uid),
        uri.check(staged.uri),
        None if staged.name is None else rows.name_text(staged.name, "artifact name"),
    )


def reusable(tx: Transaction, cached: ExecutionRecord) -> int:
    """The id of the COMPLETE execution, all of whose outputs are LIVE, that a CACHED one may point to."""
    there = execution(tx, cached.cached_from or cached.id)
    if there.state != "COMPLETE":
        raise StateError(f"execution {there.id} is {there.state}: only a COMPLETE one can be reused")
    lost = tx.first(
        "SELECT a.uri, a.state FROM event v JOIN artifact a ON a.id = v.artifact_id "
        "WHERE v.execution_id = :id AND v.direction = 'OUTPUT' AND a.state <> 'LIVE'",
        id=there.id,
    )
    if lost is not None:
        raise StateError(f"execution {there.id} cannot be reused: {lost['uri']} is {lost['state']}", fix="run it again")
    return there.id


def change_artifact(
    tx: Transaction, reference: int, state: str | None, properties: Mapping[str, Any] | None, expected: int | None
) -> None:
    """Move an artifact to another state and merge properties into its own."""
    row = _existing(tx.first("SELECT * FROM artifact WHERE id = :id", id=reference), "artifact", reference)
    _expect(row, expected, f"artifact {row['uri']}")
    tx.together(_changed_artifact(tx, row, state, properties))


def change_artifacts(
    tx: Transaction, artifacts: Sequence[ArtifactRecord], state: str, properties: Mapping[str, Any]
) -> list[ArtifactRecord]:
    """Move those of some artifacts to a state, and merge properties into theirs, that are as they were read."""
    ids = json.dumps([each.id for each in artifacts])
    now = {row["id"]: row for row in tx.all(f"{rows.ARTIFACT} WHERE a.id IN {IDS}", ids=ids)}
    unchanged = [
        row
        for each in {each.id: each for each in artifacts}.values()
        if (row := _existing(now.get(each.id), "artifact", each.id))["version"] == each.version
    ]
    changed = tx.together(*(_changed_artifact(tx, row, state, properties) for row in unchanged))
    return [rows.artifact({**after, "type": row["type"]}) for row, (after,) in zip(unchanged, changed, strict=True)]


def spare_ancestors(tx: Transaction, reference: int) -> None:
    """Let no collection that was planned before remove what led to an artifact: it leaves what was changed since.

    The next one sees why they are kept, and makes them LIVE again: not everybody who may need them may do that.
    """
    marked = tx.all("SELECT id FROM artifact WHERE state = 'MARKED_FOR_DELETION'")
    if not marked:
        return
    from .lineage import ancestors  # late: a run keeps nothing

    above = ancestors(tx, [reference]) & {row["id"] for row in marked}
    change = f"UPDATE artifact SET version = version + 1, updated_at = :now WHERE id IN {IDS}"
    tx.run(change, ids=json.dumps(sorted(above)), now=tx.now)


def _changed_artifact(tx: Transaction, row: Row, state: str | None, properties: Mapping[str, Any] | None) -> Statement:
    """What moves an artifact to another state, if it may go there, and merges properties into its own."""
    if state is not None and state not in ARTIFACT_MOVES[row["state"]]:
        raise StateError(f"artifact {row['id']} is {row['state']} and cannot become {state}: {row['uri']}")
    moved = "" if state is None else "state = :state, "  # only who may move it may name the column
    return (
        f"UPDATE artifact SET {moved}properties = :properties, version = version + 1, updated_at = :now "
        "WHERE id = :id RETURNING *",
        {
            "id": row["id"],
            "properties": rows.merged(row["properties"], properties or {}),
            "now": tx.now,
            **({} if state is None else {"state": state}),
        },
    )


def _event(tx: Transaction, execution: str, direction: str, key: str, index: int, artifact: str) -> Statement:
    """What stores an event of an execution and an artifact, both by their uids."""
    return _EVENT, {
        "execution": execution,
        "direction": direction,
        "key": rows.name_text(key, f"{direction.lower()} name"),
        "index": index,
        "artifact": artifact,
        "now": tx.now,
    }


def _expect(row: Row, expected: int | None, what: str) -> None:
    if expected is not None and row["version"] != expected:
        raise ConflictError(
            f"{what} is at version {row['version']}, not {expected}: somebody changed it", fix="read it again and retry"
        )


def _existing(row: Row | None, kind: str, reference: object) -> Row:
    if row is None:
        raise NotFound(f"there is no {kind} {reference!r} in this store")
    return row
