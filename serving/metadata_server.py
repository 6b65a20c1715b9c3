"""The process that stands before metadata stores: operations by HTTP, for machines that hold no database passwords."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, cast
from urllib.parse import parse_qs, unquote, urlsplit

from ..errors import DrivetrainError, InputError
from ..metadata import MetadataStore
from ..metadata.errors import NotFound, StoreUnavailable
from ..metadata.finding import RecordQuery
from ..metadata.remote.service import FindKind, ForbiddenError, StoreService, error_json, status_of
from .http import HttpRequest, HttpResponse
from .metadata_access import AccessFile, Grant
from .thread_server import ThreadServer
from .tls import TlsFiles

_THREADS: Final = 16  # each with a connection to each database
_BODY: Final = 32 << 20
_MOST_RECORDS: Final = 1000  # of a page
_OPERATIONS: Final = "operations"
_LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")
_UNKNOWN: Final = HttpResponse(
    401,
    error_json(InputError("the key is not known", fix="send Authorization: Bearer KEY")),
    headers=(("www-authenticate", 'Bearer realm="drivetrain"'),),
)
_LOG: Final = logging.getLogger("drivetrain.serving")


@dataclass(frozen=True)
class MetadataServerOptions:
    """How stores are shared.

    Attributes:
        access: The file that says which stores there are, and who may what.
        host: The address to listen at.
        port: 0: any that is free.
        tls: What the server proves itself with; None: plain text.
        plain_http: Whether plain text may leave this machine: what is before the server ends TLS.
    """

    access: Path
    host: str = "127.0.0.1"
    port: int = 8600
    tls: TlsFiles | None = None
    plain_http: bool = False


def run_metadata_server(options: MetadataServerOptions, started: Callable[[str], None]) -> None:
    """Answer until SIGTERM or SIGINT.

    Args:
        options: How.
        started: Called with the server's address when the port is open.

    Raises:
        InputError: The port cannot be had, keys would go over the network in plain text, or the file is wrong.
        DrivetrainError: A store cannot be opened.
    """
    if options.tls is None and options.host not in _LOOPBACK and not options.plain_http:
        raise InputError(
            f"keys would reach {options.host} by plain HTTP, which others can read",
            fix="give --tls-cert and --tls-key; or --plain-http, where TLS ends before this server",
        )
    server = MetadataServer(AccessFile(options.access))
    try:
        server.open_all()
        port = ThreadServer(
            options.host, options.port, options.tls, _THREADS, _BODY, _at_once, server.answer, server.refusal
        )
        asyncio.run(port.serve(started))
    finally:
        server.close()


@dataclass
class MetadataServer:
    """Which request goes to which store, and whether it may.

    Attributes:
        file: Who may ask for what.
    """

    file: AccessFile
    _services: dict[str, tuple[str, StoreService]] = field(default_factory=dict, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def open_all(self) -> None:
        """Open every store, so that what cannot be opened is known at once."""
        for namespace in self.file.access.namespaces:
            self._service(namespace)

    def close(self) -> None:
        """Close the stores."""
        for _, service in self._services.values():
            service.close()

    def refusal(self, request: HttpRequest) -> HttpResponse | None:
        """The answer to a request that is refused before its body is read; None of one that may go on."""
        if _at_once(request) is not None:
            return None
        grant = self.file.look().grant(request)
        if grant is None:
            return _UNKNOWN
        if grant.bucket is not None and (wait := grant.bucket.take(time.monotonic())):
            error = StoreUnavailable(f"the key {grant.person.name!r} asks more often than it may", fix="ask less often")
            return HttpResponse(429, error_json(error), headers=(("retry-after", str(math.ceil(wait))),))
        return None

    def answer(self, request: HttpRequest) -> HttpResponse:
        """The answer to a request that was not refused before; it may wait for a database."""
        try:
            grant = self.file.look().grant(request)
            return _UNKNOWN if grant is None else self._answer(request, grant)
        except DrivetrainError as error:
            return HttpResponse(status_of(error), error_json(error))
        except Exception:  # a fault of ours is no business of the client's
            _LOG.exception("%s %s failed", request.method, request.target.partition("?")[0])
            failure = DrivetrainError("the metadata server failed at this", fix="see its log")
            return HttpResponse(500, error_json(failure))

    def _answer(self, request: HttpRequest, grant: Grant) -> HttpResponse:
        parts = urlsplit(request.target)
        match [request.method, *map(unquote, parts.path.split("/"))]:
            case ["POST", "", "v1", namespace, operations, name] if operations == _OPERATIONS:
                status, body = self._allowed(namespace, grant).answer(name, request.body, grant.person)
                _LOG.debug("%s %s %s %d", grant.person.name, namespace, name, status)
                return HttpResponse(status, body)
            case ["GET", "", "v1", namespace, "find"]:
                service = self._allowed(namespace, grant)
                if not grant.person.roles:
                    raise ForbiddenError(f"{grant.person.name} has no role here")
                return HttpResponse(200, service.find(*_query(parts.query)))
        raise NotFound("there is nothing here", fix="ask for /v1/NAMESPACE/find?kind=runs, say")

    def _allowed(self, namespace: str, grant: Grant) -> StoreService:
        # The same for one that there is not: who may not go there learns nothing of it.
        if namespace not in self.file.access.namespaces or not grant.reaches(namespace):
            raise ForbiddenError(
                f"{grant.person.name} may not use the namespace {namespace!r:.80}",
                fix="ask who administers the metadata server",
            )
        return self._service(namespace)

    def _service(self, namespace: str) -> StoreService:
        url = self.file.access.namespaces[namespace]
        with self._lock:
            known = self._services.get(namespace)
            if known is None or known[0] != url:  # the old one stays open for those at work in it
                known = self._services[namespace] = (url, StoreService(MetadataStore.open(url)))
            return known[1]


def _query(text: str) -> tuple[FindKind, RecordQuery]:
    """What is to be found, as a query says.

    Raises:
        InputError: It says something else, or something twice.
    """
    try:
        values = parse_qs(text, keep_blank_values=True, strict_parsing=bool(text), max_num_fields=10)
    except ValueError as error:
        raise InputError(f"the query cannot be read: {error!s:.100}") from None
    names = ("kind", "where", "order", "limit", "page_token")
    for name, several in values.items():
        if name not in names or len(several) > 1:
            raise InputError(f"{name!r:.40} is not known, or is there twice", fix=f"give {', '.join(names)}")
    single = {name: several[0] for name, several in values.items()}
    limit = single.get("limit", "50")
    if not (limit.isascii() and limit.isdecimal() and len(limit) < 6 and 1 <= int(limit) <= _MOST_RECORDS):
        raise InputError(f"{limit!r:.40} is not a number of records", fix=f"give 1 to {_MOST_RECORDS}")
    query = RecordQuery(
        single.get("where", ""), single.get("order", "-id"), int(limit), single.get("page_token") or None
    )
    return cast(FindKind, single.get("kind", "runs")), query  # `find` refuses others


def _at_once(request: HttpRequest) -> HttpResponse | None:
    health = request.method == "GET" and request.target == "/healthz"
    return HttpResponse(200, json.dumps({"status": "ok"}).encode()) if health else None
