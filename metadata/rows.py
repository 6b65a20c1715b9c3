"""Between rows and records: the columns that are read, the checks before anything is written."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache, wraps
from typing import Any, TypeVar, cast

from ..digest import canonical_json
from ..errors import InputError
from ..owner import Owner
from .dialect import Row
from .errors import StoreDamaged
from .records import (
    ARTIFACT_MOVES,
    EXECUTION_MOVES,
    ArtifactRecord,
    ArtifactState,
    Claim,
    ContextRecord,
    ExecutionRecord,
    ExecutionState,
    Properties,
)

_T = TypeVar("_T")
_Read = TypeVar("_Read")

ARTIFACT = "SELECT a.*, t.name AS type FROM artifact a JOIN type t ON t.id = a.type_id"
EXECUTION = "SELECT e.*, t.name AS type FROM execution e JOIN type t ON t.id = e.type_id"
TRIALS = (
    "(SELECT s.execution_id FROM association s JOIN context c ON c.id = s.context_id "
    "JOIN type t ON t.id = c.type_id WHERE t.kind = 'context' AND t.name = 'search')"
)
CONTEXT = "SELECT c.*, t.name AS type FROM context c JOIN type t ON t.id = c.type_id"
_decode = json.JSONDecoder().decode
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def when(microseconds: int) -> datetime:
    """A stored time as UTC, exact to the microsecond."""
    return _EPOCH + timedelta(0, 0, microseconds)  # named, they would take longer to pass: there are many


def microseconds(moment: datetime) -> int:
    """A time as it is stored."""
    return (moment - _EPOCH) // timedelta(microseconds=1)


def read_soundly(read: Callable[[_Read], _T]) -> Callable[[_Read], _T]:
    """Say of a row that holds what nobody writes there, where a function that reads one fails, that it is damaged.

    SQLite has no checksums: where a byte of a value changed, it gives another value.
    """

    @wraps(read)
    def checked(row: _Read) -> _T:
        try:
            return read(row)
        except (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError) as error:
            raise StoreDamaged("the metadata store", f"a row of {read.__name__} cannot be read ({error})") from error

    return checked


@read_soundly
def properties(text: str) -> Properties:
    """Properties, as they are stored: the JSON of an object.

    Raises:
        StoreDamaged: They are not the JSON of an object.
    """
    value = _decode(text)
    if not isinstance(value, dict):
        raise ValueError(f"{text!r:.80} is not an object")
    return value


@read_soundly
def artifact(row: Row) -> ArtifactRecord:
    """A row of ARTIFACT as its record."""
    _texts(row, "uid", "type", "uri", "fingerprint")
    _in(row["state"], ARTIFACT_MOVES)
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
        properties=properties(row["properties"]),
        version=row["version"],
        created_at=when(row["created_at"]),
        updated_at=when(row["updated_at"]),
    )


@read_soundly
def execution(row: Row) -> ExecutionRecord:
    """A row of EXECUTION as its record."""
    _texts(row, "uid", "type")
    _in(row["state"], EXECUTION_MOVES)
    return ExecutionRecord(
        id=row["id"],
        uid=row["uid"],
        component=row["type"],
        name=row["name"],
        cache_key=row["cache_key"],
        state=cast(ExecutionState, row["state"]),
        cached_from=row["cached_from"],
        properties=properties(row["properties"]),
        error=row["error"],
        owner=None if row["owner"] is None else owner(row["owner"]),
        version=row["version"],
        created_at=when(row["created_at"]),
        started_at=None if row["started_at"] is None else when(row["started_at"]),
        finished_at=None if row["finished_at"] is None else when(row["finished_at"]),
        updated_at=when(row["updated_at"]),
    )


@read_soundly
@lru_cache(256)  # a run's executions have one or few, and parsing them took a third of reading a long lineage
def owner(text: str) -> Owner:
    """An owner, as it is stored."""
    return Owner.from_dict(json.loads(text))


@read_soundly
def context(row: Row) -> ContextRecord:
    """A row of CONTEXT as its record."""
    _texts(row, "uid", "type", "name")
    return ContextRecord(
        id=row["id"],
        uid=row["uid"],
        type=row["type"],
        name=row["name"],
        properties=properties(row["properties"]),
        version=row["version"],
        created_at=when(row["created_at"]),
        updated_at=when(row["updated_at"]),
    )


@read_soundly
def claim(row: Row) -> Claim:
    """A row of claim as its record."""
    return Claim(
        cache_key=row["cache_key"],
        owner=owner(row["owner"]),
        token=row["token"],
        expires_at=when(row["expires_at"]),
        lease=row["lease"],
    )


def _texts(row: Row, *columns: str) -> None:
    for column in columns:
        if not isinstance(row[column], str):
            raise ValueError(f"its {column} is {row[column]!r:.40}")


def _in(state: object, states: Mapping[str, object]) -> None:
    if state not in states:
        raise ValueError(f"its state is {state!r:.40}")


def as_json(value: Mapping[str, Any] | None) -> str:
    """Properties as the store keeps them.

    Raises:
        InputError: They are not JSON; the message names the property.
    """
    try:
        return canonical_json({} if value is None else value).decode()
    except InputError as error:
        for name, each in value.items() if isinstance(value, Mapping) else ():
            try:
                canonical_json(each)
            except InputError:
                raise InputError(f"the property {name!r:.80}: {error.message}", fix=error.fix) from error
        raise


def merged(stored: str, changes: Mapping[str, Any]) -> str:
    """Stored properties with some of them changed; what is not named stays."""
    if not changes:
        return stored
    if not all(str(name).isascii() for name in changes):
        changes = _decode(as_json(changes))  # a name in the spelling in which it may be there
    return as_json({**properties(stored), **changes})


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
        InputError: It is not a UUID.
    """
    if uid is None:
        digits = os.urandom(16).hex()  # as `uuid.uuid4`, which takes four times as long
        variant = "89ab"[int(digits[16], 16) & 3]
        return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"
    import uuid  # late, as it takes its time: few are handed in

    try:
        return str(uuid.UUID(uid))
    except (ValueError, AttributeError, TypeError) as error:
        raise InputError(f"{uid!r:.80} is not a UUID") from error
