"""Reading the store: every question is one statement, or one snapshot."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..digest import canonical_json
from ..errors import InputError
from . import rows
from .database import Database, Transaction
from .errors import NotFound
from .owner import Owner
from .records import ArtifactRecord, Claim, ContextRecord, Direction, ExecutionRecord

_PROPERTY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
Reader = Database | Transaction


def find_context(db: Reader, type: str, name: str) -> ContextRecord | None:
    """The context of that type and name."""
    sql = f"{rows.CONTEXT} WHERE t.kind = 'context' AND t.name = :type AND t.version = '' AND c.name = :name"
    row = db.one(sql, type=type, name=name)
    return None if row is None else rows.context(row)


def contexts(db: Reader, type: str, limit: int | None) -> list[ContextRecord]:
    """The contexts of a type, newest first."""
    sql = f"{rows.CONTEXT} WHERE t.kind = 'context' AND t.name = :type ORDER BY c.id DESC LIMIT :limit"
    return [rows.context(row) for row in db.all(sql, type=type, limit=_limit(limit))]


def parents(db: Reader, child: int) -> list[ContextRecord]:
    """The contexts directly above one."""
    sql = f"{rows.CONTEXT} JOIN context_parent p ON p.parent_id = c.id WHERE p.child_id = :child ORDER BY c.id"
    return [rows.context(row) for row in db.all(sql, child=child)]


def execution(db: Reader, reference: int | str) -> ExecutionRecord:
    """One execution."""
    column = "id" if rows.is_id(reference) else "uid"
    row = db.one(f"{rows.EXECUTION} WHERE e.{column} = :reference", reference=reference)
    if row is None:
        raise NotFound(f"there is no execution {reference!r} in this store")
    return rows.execution(row)


def executions(
    db: Reader, within: Sequence[ContextRecord], component: str | None, state: str | None, limit: int | None
) -> list[ExecutionRecord]:
    """Executions, newest first."""
    params: dict[str, Any] = {"limit": _limit(limit)}
    sql, tests = rows.EXECUTION, []
    for index, each in enumerate(within):
        sql += f" JOIN association s{index} ON s{index}.execution_id = e.id AND s{index}.context_id = :context{index}"
        params[f"context{index}"] = each.id
    if component is not None:
        tests.append("t.name = :component")
        params["component"] = component
    if state is not None:
        tests.append("e.state = :state")
        params["state"] = state
    where = f" WHERE {' AND '.join(tests)}" if tests else ""
    return [rows.execution(row) for row in db.all(f"{sql}{where} ORDER BY e.id DESC LIMIT :limit", **params)]


def linked(db: Reader, execution: int, direction: Direction) -> dict[str, list[ArtifactRecord]]:
    """The artifacts of an execution by key, in order."""
    sql = rows.ARTIFACT.replace(" FROM", ", v.key AS event_key FROM", 1)
    sql += " JOIN event v ON v.artifact_id = a.id WHERE v.execution_id = :execution AND v.direction = :direction"
    found: dict[str, list[ArtifactRecord]] = {}
    for row in db.all(f"{sql} ORDER BY v.key, v.idx", execution=execution, direction=direction):
        found.setdefault(row["event_key"], []).append(rows.artifact(row))
    return found


def find_cached(db: Reader, cache_key: str) -> ExecutionRecord | None:
    """The newest COMPLETE execution under a key whose outputs are all LIVE."""
    row = db.one(
        f"{rows.EXECUTION} WHERE e.cache_key = :key AND e.state = 'COMPLETE' AND NOT EXISTS ("
        "SELECT 1 FROM event v JOIN artifact a ON a.id = v.artifact_id "
        "WHERE v.execution_id = e.id AND v.direction = 'OUTPUT' AND a.state <> 'LIVE') ORDER BY e.id DESC LIMIT 1",
        key=cache_key,
    )
    return None if row is None else rows.execution(row)


def preimage(db: Reader, cache_key: str) -> dict[str, Any] | None:
    """What a key digests."""
    row = db.one("SELECT preimage FROM cache_preimage WHERE cache_key = :key", key=cache_key)
    return None if row is None else dict(json.loads(row["preimage"]))


def last_preimage(
    db: Reader, component: str, context: ContextRecord | None, before: ExecutionRecord | None
) -> dict[str, Any] | None:
    """What the key of a component's newest execution digests."""
    row = db.one(
        "SELECT p.preimage FROM execution e JOIN type t ON t.id = e.type_id "
        "JOIN cache_preimage p ON p.cache_key = e.cache_key "
        "WHERE t.kind = 'execution' AND t.name = :component AND (:before IS NULL OR e.id < :before) "
        "AND (:context IS NULL OR EXISTS (SELECT 1 FROM association s "
        "WHERE s.execution_id = e.id AND s.context_id = :context)) ORDER BY e.id DESC LIMIT 1",
        component=component,
        context=None if context is None else context.id,
        before=None if before is None else before.id,
    )
    return None if row is None else dict(json.loads(row["preimage"]))


def artifact(db: Reader, reference: int | str) -> ArtifactRecord:
    """One artifact."""
    column = "id" if rows.is_id(reference) else "uid"
    row = db.one(f"{rows.ARTIFACT} WHERE a.{column} = :reference", reference=reference)
    if row is None:
        raise NotFound(f"there is no artifact {reference!r} in this store")
    return rows.artifact(row)


def artifact_by_uri(db: Reader, uri: str) -> ArtifactRecord | None:
    """The newest artifact at a URI, a living one before a deleted."""
    row = db.one(
        f"{rows.ARTIFACT} WHERE a.uri = :uri ORDER BY a.state IN ('DELETED', 'ABANDONED'), a.id DESC LIMIT 1", uri=uri
    )
    return None if row is None else rows.artifact(row)


def artifacts(
    db: Database,
    type: str | None,
    state: str | None,
    where: Mapping[str, Any] | None,
    fingerprint: str | None,
    context: ContextRecord | None,
    limit: int | None,
) -> list[ArtifactRecord]:
    """Artifacts, newest first."""
    params: dict[str, Any] = {"limit": _limit(limit)}
    sql, tests = rows.ARTIFACT, []
    if context is not None:
        sql += " JOIN attribution s ON s.artifact_id = a.id AND s.context_id = :context"
        params["context"] = context.id
    for column, value in (("t.name", type), ("a.state", state), ("a.fingerprint", fingerprint)):
        if value is not None:
            name = column.replace(".", "_")
            tests.append(f"{column} = :{name}")
            params[name] = value
    for index, (key, value) in enumerate((where or {}).items()):
        if not _PROPERTY.fullmatch(key):
            raise InputError(f"{key!r:.80} is no property name", fix="use a name such as span")
        tests.append(db.dialect.json_equals("a.properties", f"key{index}", f"value{index}"))
        params |= {f"key{index}": key, f"value{index}": canonical_json(value).decode()}
    condition = f" WHERE {' AND '.join(tests)}" if tests else ""
    return [rows.artifact(row) for row in db.all(f"{sql}{condition} ORDER BY a.id DESC LIMIT :limit", **params)]


def running(db: Reader) -> list[ExecutionRecord]:
    """What is RUNNING, oldest first."""
    return [rows.execution(row) for row in db.all(f"{rows.EXECUTION} WHERE e.state = 'RUNNING' ORDER BY e.id")]


def owner_is_dead(db: Reader, execution: ExecutionRecord, now: int) -> bool:
    """Whether whoever runs an execution certainly does so no more."""
    if execution.owner is None:
        return False
    living = execution.owner.liveness()
    if living != "unknown":
        return living == "dead"
    lease = db.one("SELECT expires_at, state FROM claim WHERE cache_key = :key", key=execution.cache_key)
    if lease is not None and lease["state"] == "HELD":
        return bool(lease["expires_at"] <= now)
    return execution.owner.rebooted()


def claim_holder(db: Reader, cache_key: str) -> Owner | None:
    """Who holds a key."""
    row = db.one("SELECT owner FROM claim WHERE cache_key = :key AND state = 'HELD'", key=cache_key)
    return None if row is None else Owner.from_dict(json.loads(row["owner"]))


def held(db: Reader) -> list[Claim]:
    """Every claim that is held; how long its lease was is not known any more (0)."""
    return [
        Claim(
            row["cache_key"], Owner.from_dict(json.loads(row["owner"])), row["token"], rows.when(row["expires_at"]), 0.0
        )
        for row in db.all("SELECT * FROM claim WHERE state = 'HELD' ORDER BY cache_key")
    ]


def _limit(limit: int | None) -> int:
    if limit is not None and limit < 0:
        raise InputError(f"a limit is not negative: {limit}")
    return -1 if limit is None else limit
