"""The store of a metadata server: the same object as any other, which asks the server for each operation."""

from __future__ import annotations

import http.client
import json
import os
import random
import re
import secrets
import ssl
import threading
import time
import weakref
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

from ...errors import DrivetrainError, InputError
from ...owner import Owner
from .. import errors
from ..database import Database
from ..errors import StoreUnavailable
from ..operations import Operation
from ..store import MetadataStore
from .codec import signature_of

KEY: Final = "DRIVETRAIN_METADATA_KEY"
"""The environment variable that holds the API key."""
KEY_FILE: Final = "DRIVETRAIN_METADATA_KEY_FILE"
"""The one that names a file which holds it."""
PLAIN: Final = "DRIVETRAIN_METADATA_PLAIN_HTTP"
"""The one that, as 1, lets the key go by plain HTTP to another machine."""

_PATIENCE: Final = 60.0  # seconds that a server which was there is waited for, as a database is
_CONNECT: Final = 10.0
_ANSWER: Final = 150.0  # seconds: the server itself waits up to 60 for its turn to write
_LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")
_NAMESPACE: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}")
_AWAY: Final = (502, 503, 504)  # what a proxy says while the server restarts, or it says as it ends
_TOO_OFTEN: Final = 429
_MOST_ROUNDS: Final = 1000  # questions about processes of this machine that one operation may have


def open_remote(url: str, *, readonly: bool = False) -> MetadataStore:
    """Open a namespace of a metadata server.

    Args:
        url: `https://host:port/namespace`.
        readonly: Refuse every write, before the server is asked.

    Raises:
        InputError: The URL does not name a namespace, or the key or the namespace is missing or not known.
        StoreUnavailable: The server does not answer.
    """
    remote = RemoteConnection(url, readonly=readonly)
    store = RemoteStore(remote)
    store.now()
    return store


class RemoteConnection:
    """The way to a namespace of a metadata server: a connection for each thread, kept open.

    Args:
        url: `https://host:port/namespace`.
        readonly: Refuse every write.

    Raises:
        InputError: The URL does not name a namespace, or there is no key.
    """

    def __init__(self, url: str, *, readonly: bool) -> None:
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port = None, None
        namespace = "" if host is None else parts.path.strip("/")
        if host is None or parts.username is not None or parts.query or parts.fragment:
            raise InputError(  # not quoted: it may hold a secret
                "the metadata server's URL cannot be used",
                fix=f"write https://host:port/namespace, and the key into {KEY} or a file that {KEY_FILE} names",
            )
        if not _NAMESPACE.fullmatch(namespace):
            raise InputError(f"{namespace!r:.80} is not a namespace", fix="write https://host:port/namespace")
        self._tls = parts.scheme.lower() == "https"
        self._address = host, port or (443 if self._tls else 80)
        if not self._tls and host not in _LOOPBACK and os.environ.get(PLAIN) != "1":
            raise InputError(
                f"the key would go to {host} by plain HTTP, which others can read",
                fix=f"write https://; where the way there is safe otherwise, set {PLAIN}=1",
            )
        self.readonly = readonly
        shown = f"[{host}]" if ":" in host else host
        self.location = f"{parts.scheme.lower()}://{shown}:{self._address[1]}/{namespace}"
        self._path = f"/v1/{quote(namespace)}/operations/"
        self._key = _key()
        self._local = threading.local()
        self._sessions: weakref.WeakSet[_Session] = weakref.WeakSet()
        self._closed = False
        self._proven = False  # whether it answered once: then it is waited for

    def ask(self, operation: Operation, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """What an operation gives there, asked again while the server is away; it is done once.

        Raises:
            DrivetrainError: What the operation raises there.
            StoreUnavailable: The server did not answer for 60 seconds, or answers what is no answer.
        """
        if self.readonly and not operation.reads:
            raise StoreUnavailable(
                f"{self.location} was opened to read only",
                fix="do this as a user who may write there; in Python without readonly",
            )
        signature = signature_of(operation.function)
        session = self._session()
        request = {
            "arguments": signature.arguments_to_json(args, kwargs),
            "owner": Owner.current().to_dict(),
            "session": session.name,
            "number": session.next_number(),
        }
        seen: list[object] = []
        for _ in range(_MOST_ROUNDS):
            answer = self._answer(operation.name, {**request, "seen": seen}, session)
            if "unseen" not in answer:
                break
            # Only this machine can say whether its processes live.
            owner = Owner.from_dict(answer["unseen"])
            seen.append([owner.to_dict(), owner.liveness(), owner.rebooted()])
        if "error" in answer:
            raise _error(answer["error"])
        try:
            return signature.result_from_json(answer["result"])
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            raise self._strange(error) from None

    def close(self) -> None:
        """Close every thread's connection."""
        self._closed = True
        for session in list(self._sessions):
            session.drop()

    def _answer(self, name: str, request: dict[str, object], session: _Session) -> dict[str, Any]:
        deadline = time.monotonic() + _PATIENCE
        pause = 0.05
        again = False
        while True:
            if self._closed:
                raise StoreUnavailable(f"{self.location} was closed", fix="open it again")
            body = json.dumps({**request, "again": again}, allow_nan=False).encode()
            try:
                status, data = session.post(self._path + name, body, self._key)
                if status == _TOO_OFTEN and time.monotonic() + session.wait < deadline:
                    time.sleep(session.wait)
                    continue
                if status not in _AWAY:
                    self._proven = True
                    return self._read(data)
                why = f"it answers {status}"
            except (OSError, http.client.HTTPException) as error:
                # It may have been done, and the answer lost: `again` has the server look before it does it.
                again, was_kept = True, session.was_kept
                session.drop()
                if was_kept:
                    continue  # the server closes connections that are idle for long
                if isinstance(error, ssl.SSLCertVerificationError):
                    raise StoreUnavailable(
                        f"the certificate of {self.location} cannot be trusted: {error.verify_message}",
                        fix="name a file of the authority's certificate by SSL_CERT_FILE",
                    ) from None
                why = getattr(error, "strerror", None) or str(error) or type(error).__name__
            if not self._proven or time.monotonic() > deadline:
                raise StoreUnavailable(
                    f"the metadata server {self.location} does not answer: {why}",
                    fix="see that the server runs and can be reached, and try again",
                )
            time.sleep(random.uniform(0, pause))  # noqa: S311 - so that those it left do not come back together
            pause = min(pause * 1.5, 2.0)

    def _read(self, data: bytes) -> dict[str, Any]:
        try:
            answer = json.loads(data)
            if isinstance(answer, dict) and answer.keys() & {"result", "error", "unseen"}:
                return answer
            raise ValueError("it is no answer to an operation")
        except (ValueError, RecursionError) as error:
            raise self._strange(error) from None

    def _strange(self, error: Exception) -> StoreUnavailable:
        return StoreUnavailable(
            f"{self.location} answers what cannot be read: {error!s:.200}",
            fix="see that the URL is that of a metadata server, of a release like this one",
        )

    def _session(self) -> _Session:
        session: _Session | None = getattr(self._local, "session", None)
        if session is None or session.pid != os.getpid():  # a forked child shares no connection with its parent
            session = _Session(self._address, tls=self._tls)
            self._local.session = session
            self._sessions.add(session)
        return session


class _Session:
    """One thread's connection, and the numbers of its requests: one is under way at a time."""

    def __init__(self, address: tuple[str, int], *, tls: bool) -> None:
        self.name = secrets.token_hex(16)
        self.pid = os.getpid()
        self.was_kept = False  # whether the last request went by a connection that had answered before
        self.wait = 1.0  # seconds before the next request, where one came too early
        self._address = address
        self._tls = tls
        self._number = 0
        self._connection: http.client.HTTPConnection | None = None

    def next_number(self) -> int:
        self._number += 1
        return self._number

    def post(self, path: str, body: bytes, key: str) -> tuple[int, bytes]:
        self.was_kept = self._connection is not None
        if self._connection is None:
            host, port = self._address
            make = http.client.HTTPSConnection if self._tls else http.client.HTTPConnection
            self._connection = make(host, port, timeout=_CONNECT)
            self._connection.connect()
            self._connection.sock.settimeout(_ANSWER)
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        self._connection.request("POST", path, body, headers)
        answer = self._connection.getresponse()
        data = answer.read()
        if answer.will_close:
            self.drop()
        wait = answer.headers.get("Retry-After", "")
        self.wait = float(wait) if wait.isdecimal() and len(wait) < 6 else 1.0
        return answer.status, data

    def drop(self) -> None:
        if self._connection is not None and self.pid == os.getpid():
            self._connection.close()
        self._connection = None

    def __del__(self) -> None:  # its thread is gone
        self.drop()


class RemoteStore(MetadataStore):
    """The store of a namespace of a metadata server.

    Args:
        remote: The way to it.
    """

    def __init__(self, remote: RemoteConnection) -> None:
        self.remote: RemoteConnection = remote

    @property
    def _db(self) -> Database:  # type: ignore[override]  # there is none to be set
        raise InputError(
            f"this needs the database itself, and {self.location} is a server before it",
            fix="do it on a machine that may connect to the database: --store postgresql://…",
        )

    @property
    def readonly(self) -> bool:
        """Whether it was opened to read only."""
        return self.remote.readonly

    @property
    def location(self) -> str:
        """The server's URL with the namespace."""
        return self.remote.location

    def close(self) -> None:
        """Close every thread's connection."""
        self.remote.close()

    def files_kept(self, by: str) -> AbstractContextManager[None]:
        """Nothing to see to: it has no files, and a connection that was closed is made anew."""
        return nullcontext()


def _key() -> str:
    """The API key, from the environment or a file that it names.

    Raises:
        InputError: There is none.
    """
    key, path = os.environ.get(KEY, ""), os.environ.get(KEY_FILE)
    if not key and path:
        try:
            key = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is no text"
            raise InputError(f"the key file {path} cannot be read: {reason}", fix=f"correct {KEY_FILE}") from None
    key = key.strip()
    if not re.fullmatch(r"[\x21-\x7e]{1,256}", key):
        raise InputError(
            "there is no key for the metadata server" if not key else "the key of the metadata server cannot be one",
            fix=f"set {KEY}, or {KEY_FILE} to a file that holds it: who administers the server makes one",
        )
    return key


def _error(body: Mapping[str, Any]) -> DrivetrainError:
    """The error that was raised there, of the same class."""
    name = str(body.get("name"))
    known = getattr(errors, name, None)
    kind = known if isinstance(known, type) and issubclass(known, DrivetrainError) else DrivetrainError
    error = kind.__new__(kind)
    fix, where = body.get("fix"), body.get("where")
    DrivetrainError.__init__(
        error,
        str(body.get("message", "the metadata server refused this")),
        fix=None if fix is None else str(fix),
        where=None if where is None else str(where),
    )
    return error
