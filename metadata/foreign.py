"""An execution as JSON that another store takes in: what it read and made, with its own uid and times, once."""
# ruff: noqa: S608
# Only this package's own constants are put into SQL; every value is bound.

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

from ..digest import canonical_json
from ..errors import InputError
from ..owner import Owner
from . import rows, uri, writes
from .claims import owner_json
from .database import Transaction
from .dialect import IDS
from .reader import StoreReader
from .records import EXECUTION_MOVES, ArtifactRecord, ContextRecord, ExecutionRecord, StagedArtifact

Body: TypeAlias = Mapping[str, Any]  # JSON: Any is its boundary
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def described(
    store: StoreReader, execution: ExecutionRecord, *, source: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """An ended execution of a store as JSON; of a CACHED one with the execution that it reuses, under "source".

    Args:
        store: The store.
        execution: The execution.
        source: The uid of the reused execution, instead of the whole of it: whoever takes this in has that already.
    """
    body: dict[str, Any] = {
        "uid": execution.uid,
        "component": execution.component,
        "name": execution.name,
        "cache_key": execution.cache_key,
        "preimage": store.preimage(execution.cache_key) if execution.cache_key else None,
        "state": execution.state,
        "properties": execution.properties,
        "error": execution.error,
        "owner": execution.owner.to_dict() if execution.owner else None,
        "created": _microseconds(execution.created_at),
        "started": _microseconds(execution.started_at),
        "finished": _microseconds(execution.finished_at),
        "contexts": [[context.type, context.name] for context in store.contexts_of(execution)],
        "inputs": {key: [_artifact(each) for each in several] for key, several in store.inputs(execution).items()},
        "outputs": {},
    }
    if execution.cached_from is not None:
        body["source"] = source or described(store, store.execution(execution.cached_from))
    else:
        outputs = store.outputs(execution)
        body["outputs"] = {key: [_artifact(each) for each in several] for key, several in outputs.items()}
    return body


def bring_in(tx: Transaction, body: Body, newest_in: Collection[str] = ()) -> bool:
    """Take in an execution that another store recorded, whole; False where it is here.

    Args:
        tx: A writing transaction.
        body: What `described` gave.
        newest_in: Types of contexts whose newest execution counts, e.g. a node's. An execution is the newest by its
            id here, so one that began before another in all these contexts is left out of them: it would come after it.

    Raises:
        InputError: It is not such a JSON.
    """
    try:
        if _id(tx, "execution", body["uid"]) is not None:
            return False
        if EXECUTION_MOVES.get(body["state"]) != frozenset():  # one that runs would do so for ever: nobody here ends it
            raise ValueError(f"it has not ended, but is {body['state']!r:.40}")
        source: int | None = None
        if body["state"] == "CACHED":
            # Without the inputs of the execution that it reuses: they may be unknown here. The lineage above that
            # execution is complete in the other store alone.
            bring_in(tx, {**body["source"], "inputs": {}}, newest_in)
            source = _id(tx, "execution", body["source"]["uid"])
        owner = Owner.from_dict(body["owner"]) if body["owner"] else Owner.current()
        key = body["cache_key"]
        if key is not None and body["preimage"] is not None:
            tx.run(
                "INSERT INTO cache_preimage (cache_key, preimage) VALUES (:key, :preimage) ON CONFLICT DO NOTHING",
                key=rows.name_text(key, "cache key"),
                preimage=rows.as_json(body["preimage"]),
            )
        uid = rows.uid_text(body["uid"])
        created = tx.insert(
            "INSERT INTO execution (uid, type_id, name, cache_key, state, cached_from, properties, error, owner, "
            "created_at, started_at, finished_at, updated_at) VALUES (:uid, :type, :name, :key, :state, :source, "
            ":properties, :error, :owner, :created, :started, :finished, :now) RETURNING id",
            uid=uid,
            type=writes.type_id(tx, "execution", body["component"]),
            name=body["name"],
            key=key,
            state=body["state"],
            source=source,
            properties=rows.as_json(body["properties"]),
            error=rows.free_text(body["error"]),
            owner=owner_json(owner),
            created=body["created"],
            started=body["started"],
            finished=body["finished"],
            now=tx.now,
        )
        contexts = [
            writes.context(tx, writes.insert_context(tx, type_, name, None)) for type_, name in body["contexts"]
        ]
        ranked_contexts = [context for context in contexts if context.type in newest_in]
        if ranked_contexts and _superseded(tx, ranked_contexts, body["created"]):
            contexts = [context for context in contexts if context not in ranked_contexts]
        writes.attach(tx, uid, contexts, _inputs(tx, body["inputs"]))
        _outputs(tx, created, uid, body["outputs"])
        _attribute(tx, created, source or created)
        return True
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise InputError(f"this is not a record of an execution: {type(error).__name__}: {error}") from None


def _superseded(tx: Transaction, contexts: Collection[ContextRecord], created: int) -> bool:
    """Whether an execution in all these contexts began later."""
    row = tx.first(
        "SELECT e.id FROM execution e WHERE e.created_at > :created AND (SELECT count(*) FROM association a "
        f"WHERE a.execution_id = e.id AND a.context_id IN {IDS}) = :count LIMIT 1",
        created=created,
        ids=canonical_json([context.id for context in contexts]).decode(),
        count=len(contexts),
    )
    return row is not None


def _inputs(tx: Transaction, inputs: Mapping[str, Sequence[Body]]) -> dict[str, list[ArtifactRecord]]:
    return {key: [_input(tx, each) for each in several] for key, several in inputs.items()}


def _input(tx: Transaction, body: Body) -> ArtifactRecord:
    """An artifact that was read, here too; where nothing here knows of it, as one whose producer is not known."""
    there = _id(tx, "artifact", body["uid"])
    if there is None:
        there = tx.insert(
            "INSERT INTO artifact (uid, type_id, name, uri, fingerprint, size, state, producer_id, properties, "
            "created_at, updated_at) VALUES (:uid, :type, :name, :uri, :fingerprint, :size, 'LIVE', NULL, "
            ":properties, :created, :now) RETURNING id",
            uid=rows.uid_text(body["uid"]),
            type=writes.type_id(tx, "artifact", body["type"]),
            name=body["name"],
            uri=uri.check(body["uri"]),
            fingerprint=body["fingerprint"],
            size=body["size"],
            properties=rows.as_json(body["properties"]),
            created=body["created"],
            now=tx.now,
        )
    return writes.artifact(tx, there)


def _outputs(tx: Transaction, producer: int, producer_uid: str, outputs: Mapping[str, Sequence[Body]]) -> None:
    for key, several in outputs.items():
        for index, body in enumerate(several):
            new = StagedArtifact(
                body["type"], body["uri"], body["fingerprint"], body["size"], body["properties"], body["name"],
                body["uid"],
            )  # fmt: skip
            writes.output(tx, producer, producer_uid, key, index, new, body["created"])


def _attribute(tx: Transaction, execution: int, maker: int) -> None:
    tx.run(
        "INSERT INTO attribution (context_id, artifact_id) SELECT a.context_id, e.artifact_id "
        "FROM association a JOIN event e ON e.execution_id = :maker AND e.direction = 'OUTPUT' "
        "WHERE a.execution_id = :id ON CONFLICT DO NOTHING",
        id=execution,
        maker=maker,
    )


def _artifact(record: ArtifactRecord) -> dict[str, Any]:
    return {
        "uid": record.uid,
        "type": record.type,
        "name": record.name,
        "uri": record.uri,
        "fingerprint": record.fingerprint,
        "size": record.size,
        "properties": record.properties,
        "created": _microseconds(record.created_at),
    }


def _id(tx: Transaction, table: str, uid: str) -> int | None:
    row = tx.first(f"SELECT id FROM {table} WHERE uid = :uid", uid=uid)
    return None if row is None else int(row["id"])


def _microseconds(time: datetime | None) -> int | None:
    return None if time is None else (time - _EPOCH) // timedelta(microseconds=1)
