"""What a metadata server does with a request: who asks for which operation, once, and its result as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias, get_args

from ...digest import is_deep
from ...errors import DrivetrainError, InputError
from ...owner import Asker, Owner, Sight, UnseenOwner, on_behalf
from .. import audit as _audit  # noqa: F401
from ..errors import AlreadyExists, ConflictError, ConnectionLost, LeaseLost, NotFound, StateError, StoreUnavailable
from ..finding import RecordQuery
from ..mlmd import runs as _runs  # noqa: F401 - its operations, as those of the audit
from ..operations import OPERATIONS, Operation
from ..registry import Registry
from ..roles import Role, allows
from ..store import MetadataStore
from .codec import signature_of

FindKind: TypeAlias = Literal["runs", "executions", "artifacts"]

_REMEMBER: Final = (
    "INSERT INTO answered (session, number, asker, at, answer) VALUES (:session, :number, :asker, :at, :answer) "
    "ON CONFLICT (session) DO UPDATE SET number = :number, asker = :asker, at = :at, answer = :answer "
    "WHERE answered.number < :number"
)
_KEPT: Final = 24 * 3600 * 10**6  # microseconds after which a session that was silent is forgotten
_LONGEST: Final = 80  # characters of a session's name
_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


class ForbiddenError(InputError):
    """Whoever asks has no role that may do this."""


@dataclass(frozen=True)
class Person:
    """Who asks.

    Attributes:
        name: As the server has proved it: that of a key, or of a user whom a proxy names.
        roles: What they may do.
    """

    name: str
    roles: frozenset[Role]


@dataclass(frozen=True)
class _Request:
    """An operation as it is asked for; `session` and `number` tell it from all others."""

    arguments: Mapping[str, Any]
    owner: Owner
    session: str
    number: int
    again: bool
    seen: Mapping[Owner, Sight]


class StoreService:
    """A store, as it is asked over the network.

    Args:
        store: What is asked; it is open to write.
    """

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        with store._db.write("answered") as tx:
            tx.run("DELETE FROM answered WHERE at < :before", before=tx.now - _KEPT)

    def answer(self, name: str, body: bytes, person: Person) -> tuple[int, bytes]:
        """The status in HTTP and the JSON of an operation's result, of its error, or of a process to be looked at.

        What changes the store is done once for each number of a session: its answer is kept with the change, in the
        same transaction, until the session's next one.

        Args:
            name: The operation.
            body: The request, JSON.
            person: Who asks.
        """
        try:
            operation = OPERATIONS.get(name)
            if operation is None:
                raise NotFound(f"{name!r:.80} is not an operation of a store", fix="use the server's release")
            signature = signature_of(operation.function)
            request = _read(body, signature.arguments_from_json)
            asker = Asker(request.owner, person.name, request.seen)
            with on_behalf(asker):
                return 200, self._perform(operation, request, person)
        except UnseenOwner as unseen:
            return 200, _encode({"unseen": unseen.owner.to_dict()}).encode()
        except DrivetrainError as error:
            return status_of(error), error_json(error)

    def find(self, kind: FindKind, query: RecordQuery) -> bytes:
        """A page of what a filter fits, as JSON for people and programs: `records` and `next_page_token`.

        Raises:
            InputError: The filter, the order or the page is not valid.
        """
        if kind not in get_args(FindKind):
            raise InputError(f"{kind!r:.40} is nothing that is found", fix="kind=runs, executions or artifacts")
        store = self._store
        finders: dict[str, Callable[[RecordQuery], Any]] = {  # Any: a page of one of three records
            "runs": store.find_runs,
            "executions": store.find_executions,
            "artifacts": store.find_artifacts,
        }
        page = finders[kind](query)
        return _encode({"records": [_shown(each) for each in page.records], "next_page_token": page.next}).encode()

    def close(self) -> None:
        """Close the store."""
        self._store.close()

    def _perform(self, operation: Operation, request: _Request, person: Person) -> bytes:
        arguments = self._attributed(operation, dict(request.arguments), person)
        needed = operation.asked(self._store, arguments)
        if not any(allows(role, each) for role in person.roles for each in needed):
            roles = " or ".join(needed)
            raise ForbiddenError(
                f"{person.name} may not do {operation.name} here: that is for the role {roles}",
                fix="ask who administers the metadata server",
            )
        subject = Registry(self._store) if operation.name.startswith("registry.") else self._store
        signature = signature_of(operation.function)
        if operation.reads:
            result = operation.function(subject, **arguments)
            return _encode({"result": signature.result_to_json(result)}).encode()
        try:
            with self._store._db.joined() as joint:
                if request.again:
                    # With the lock: the first of the two may be at work still.
                    with self._store._db.write(operation.name):
                        if (answer := self._answered(request, person)) is not None:
                            return answer
                result = operation.function(subject, **arguments)
                answer_text = _encode({"result": signature.result_to_json(result)})
                if (tx := joint.transaction) is not None and not tx.run(
                    _REMEMBER,
                    session=request.session,
                    number=request.number,
                    asker=person.name,
                    at=tx.now,
                    answer=answer_text,
                ):
                    raise _DoneBefore
        except _DoneBefore:  # the request came again while this one waited for its turn, and was quicker
            if (answer := self._answered(request, person)) is None:
                raise InputError(f"request {request.number} of its session came after a later one") from None
            return answer
        return answer_text.encode()

    def _answered(self, request: _Request, person: Person) -> bytes | None:
        """The answer that a request got, where it was done."""
        sql = "SELECT answer FROM answered WHERE session = :session AND number = :number AND asker = :asker"
        row = self._store._db.first(sql, session=request.session, number=request.number, asker=person.name)
        return None if row is None else str(row["answer"]).encode()

    def _attributed(self, operation: Operation, arguments: dict[str, Any], person: Person) -> dict[str, Any]:
        """The arguments, in which who does it is the person whom the server knows, whatever the request says.

        An admin may do things for others: the journal tells of both.
        """
        if "admin" in person.roles:
            return arguments
        if "by" in arguments:
            arguments["by"] = person.name
        properties = arguments.get("properties")
        if operation.name in ("context", "update_context") and isinstance(properties, dict) and "by" in properties:
            arguments["properties"] = {**properties, "by": person.name}
        if operation.name == "update_artifact" and isinstance(properties, dict):
            arguments["properties"] = {key: _by(value, person) for key, value in properties.items()}
        return arguments


class _DoneBefore(Exception):  # noqa: N818 - a request that is repeated
    pass


def status_of(error: DrivetrainError) -> int:
    """The status of an error in HTTP. After 502, 503 and 504 a client asks again."""
    if isinstance(error, ConnectionLost):
        return 503
    if isinstance(error, StoreUnavailable):
        return 500
    if isinstance(error, ForbiddenError):
        return 403
    if isinstance(error, NotFound):
        return 404
    return 409 if isinstance(error, ConflictError | StateError | AlreadyExists | LeaseLost) else 400


def error_json(error: DrivetrainError) -> bytes:
    """An error as the client raises it again."""
    # ForbiddenError is an InputError there, as everything that a client does not know is a DrivetrainError.
    name = "InputError" if isinstance(error, ForbiddenError) else type(error).__name__
    body = {"name": name, "message": error.message, "fix": error.fix, "where": error.where}
    return _encode({"error": body}).encode()


def _by(value: Any, person: Person) -> Any:
    """A property, in which the last that was done was done by a person: a pin, or a list of verdicts."""
    if isinstance(value, dict) and "by" in value:
        return {**value, "by": person.name}
    if isinstance(value, list) and value and isinstance(value[-1], dict) and "by" in value[-1]:
        return [*value[:-1], {**value[-1], "by": person.name}]
    return value


def _read(body: bytes, arguments: Callable[[object], dict[str, Any]]) -> _Request:
    with suppress(ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError):
        value = json.loads(body, parse_constant=_no_constant)
        if is_deep(value):
            raise ValueError
        session, number, again = value["session"], value["number"], value["again"]
        numbers = range(1, 2**62)
        if not isinstance(session, str) or not 16 <= len(session) <= _LONGEST or type(number) is not int:
            raise ValueError
        if number not in numbers or not isinstance(again, bool) or not session.isalnum():
            raise ValueError
        owner = Owner.from_dict(value["owner"])
        seen = {Owner.from_dict(each): Sight(_liveness(how), bool(rebooted)) for each, how, rebooted in value["seen"]}
        return _Request(arguments(value["arguments"]), owner, session, number, again, seen)
    raise InputError("the body is no request for an operation", fix="use the server's release")


def _liveness(value: object) -> Literal["alive", "dead", "unknown"]:
    if value not in ("alive", "dead", "unknown"):
        raise ValueError
    return value


def _no_constant(text: str) -> float:
    raise ValueError(f"{text} is not JSON")


def _shown(record: Any) -> dict[str, Any]:
    """A record with its times in ISO 8601, and its process as an object."""
    return {each.name: _plain(getattr(record, each.name)) for each in fields(record)}


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    return value.to_dict() if isinstance(value, Owner) else value
