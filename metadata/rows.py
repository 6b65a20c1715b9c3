"""Between rows and records: the columns that are read, the checks before anything is written."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, cast

from ..digest import canonical_json
from ..errors import InputError
from .database import Row
from .owner import Owner
from .records import ArtifactRecord, ArtifactState, Claim, ContextRecord, ExecutionRecord, ExecutionState, Properties

ARTIFACT = "SELECT a.*, t.name AS type FROM artifact a JOIN type t ON t.id = a.type_id"
EXECUTION = "SELECT e.*, t.name AS type FROM execution e JOIN type t ON t.id = e.type_id"
CONTEXT = "SELECT c.*, t.name AS type FROM context c JOIN type t ON t.id = c.type_id"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def when(microseconds: int) -> datetime:
    """A stored time as UTC, exact to the microsecond."""
    return _EPOCH + timedelta(microseconds=microseconds)


def artifact(row: Row) -> ArtifactRecord:
    """A row of ARTIFACT as its record."""
    return ArtifactRecord(
        id=row["id"],
        uid=row["uid"],
        type=row["type"],
        name=row["name"],
        uri=row["uri"],
        fingerprint=row["fingerprint"],
        size=row["size"],
        state=cast(ArtifactState, row["state"]),
        producer=row["producer_id"],
        properties=json.loads(row["properties"]),
        version=row["version"],
        created_at=when(row["created_at"]),
        updated_at=when(row["updated_at"]),
    )


def execution(row: Row) -> ExecutionRecord:
    """A row of EXECUTION as its record."""
    return ExecutionRecord(
        id=row["id"],
        uid=row["uid"],
        component=row["type"],
        name=row["name"],
        cache_key=row["cache_key"],
        state=cast(ExecutionState, row["state"]),
        cached_from=row["cached_from"],
        properties=json.loads(row["properties"]),
        error=row["error"],
        owner=None if row["owner"] is None else owner(row["owner"]),
        version=row["version"],
        created_at=when(row["created_at"]),
        started_at=None if row["started_at"] is None else when(row["started_at"]),
        finished_at=None if row["finished_at"] is None else when(row["finished_at"]),
        updated_at=when(row["updated_at"]),
    )


@lru_cache(256)  # a run's executions have one or few, and parsing them took a third of reading a long lineage
def owner(text: str) -> Owner:
    """An owner, as it is stored."""
    return Owner.from_dict(json.loads(text))


def context(row: Row) -> ContextRecord:
    """A row of CONTEXT as its record."""
    return ContextRecord(
        id=row["id"],
        uid=row["uid"],
        type=row["type"],
        name=row["name"],
        properties=json.loads(row["properties"]),
        version=row["version"],
        created_at=when(row["created_at"]),
        updated_at=when(row["updated_at"]),
    )


def claim(row: Row) -> Claim:
    """A row of claim as its record."""
    return Claim(
        cache_key=row["cache_key"],
        owner=owner(row["owner"]),
        token=row["token"],
        expires_at=when(row["expires_at"]),
        lease=row["lease"],
    )


def as_json(value: Mapping[str, Any] | None) -> str:
    """Properties as the store keeps them.

    Raises:
        InputError: They are not JSON.
    """
    return canonical_json({} if value is None else value).decode()


def merged(stored: str, changes: Mapping[str, Any]) -> str:
    """Stored properties with some of them changed; what is not named stays."""
    properties: Properties = json.loads(stored)
    return as_json({**properties, **json.loads(as_json(changes))})


def name_text(name: str, what: str) -> str:
    """A name that may be stored: 1 to 255 characters, NFC, no NUL, no lone surrogate.

    Raises:
        InputError: It is not.
    """
    if not isinstance(name, str):
        raise InputError(f"a {what} must be text, not {name!r:.80}")
    text = name if name.isascii() and "\0" not in name else str(json.loads(canonical_json(name)))
    if not 1 <= len(text) <= 255:
        raise InputError(f"a {what} has 1 to 255 characters, not {len(text)}: {text!r:.60}", fix="shorten it")
    return text


def free_text(text: str | None) -> str | None:
    """Text from outside, such as a traceback, made storable: it must not be lost for an odd character."""
    if text is None:
        return None
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")


def uid_text(uid: str | None) -> str:
    """The given UUID in its canonical spelling, a fresh one if none is given.

    Raises:
        InputError: It is no UUID.
    """
    if uid is None:
        return str(uuid.uuid4())
    try:
        return str(uuid.UUID(uid))
    except (ValueError, AttributeError, TypeError) as error:
        raise InputError(f"{uid!r:.80} is no UUID") from error
