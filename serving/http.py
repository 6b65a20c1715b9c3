"""HTTP/1.1 on one event loop: llhttp parses, a handler answers, answers leave in the order of the requests.

Small on purpose, since it faces the network: no files, no redirects, no compression. What is ambiguous is refused (a
length beside chunks, say), everything has a limit, and a client that is slow to send is closed.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache, partial
from http import HTTPStatus
from typing import Final, Generic, Protocol, TypeAlias, TypeVar, cast

import httptools

_LOG: Final = logging.getLogger("drivetrain.serving")
_STATUS_LINE: Final = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}
_STATUS_LINE[499] = b"HTTP/1.1 499 Client Closed Request\r\n"
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_LOOK_SECONDS: Final = 1.0  # between two looks at the clients that are too slow
_LINGER: Final = 2.0  # seconds in which what a client still sends is thrown away, so that it reads why it was refused
_PIPELINED: Final = 64  # requests of a connection that may wait for their answers before no more is read


@dataclass(frozen=True)
class HttpLimits:
    """What a client may send.

    Attributes:
        body: Bytes of a body; more is answered 413.
        head: Bytes of the request line and the headers; more is answered 431.
        connections: At once; a further one is closed.
        request_seconds: For a request to arrive whole; then its connection is answered 408 and closed.
        idle_seconds: Between two requests of a connection.
    """

    body: int = 32 << 20
    head: int = 16 << 10
    connections: int = 10_000
    request_seconds: float = 30.0
    idle_seconds: float = 120.0


@dataclass(slots=True)
class HttpRequest:
    """A request that arrived whole.

    Attributes:
        method: "GET", say.
        target: The path with its query, as it came.
        headers: By name in small letters; of a name that came twice the values joined by a comma.
        body: Its bytes.
        peer: The address that it came from, without a port; "" where that has none.
    """

    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    peer: str = ""


@dataclass(slots=True)
class HttpResponse:
    """An answer.

    Attributes:
        status: 200, say.
        body: Its bytes.
        content_type: Of the body.
        headers: Besides those of length, type and connection; neither names nor values have line ends.
    """

    status: int
    body: bytes
    content_type: bytes = b"application/json"
    headers: tuple[tuple[str, str], ...] = ()


Respond: TypeAlias = Callable[[HttpResponse], None]
Handler: TypeAlias = Callable[[HttpRequest, Respond], None]
"""Calls what it is given with the answer, once, at any time, in the event loop; if it raises, that is answered 500."""


class ServerConnection(Protocol):
    """What the connections of a server, of whichever protocol, do for `Connections`, beside asyncio's own methods."""

    def check(self, now: float) -> None:
        """Close it if its client has been too slow, by the loop's time."""
        ...

    def end_when_idle(self) -> None:
        """Close it as soon as nothing is on its way."""
        ...

    def abort(self) -> None:
        """Close it at once."""
        ...


C = TypeVar("C", bound=ServerConnection)


@dataclass
class Connections(Generic[C]):
    """The open connections of a server.

    Attributes:
        make: Makes a new one that belongs here.
        limits: What clients may send.
        ending: Whether each connection is closed after its next answer.
    """

    make: Callable[[Connections[C]], C]
    limits: HttpLimits = field(default_factory=HttpLimits)
    ending: bool = False
    open: set[C] = field(default_factory=set)

    def __call__(self) -> C:
        """A new one, as asyncio's servers make them."""
        return self.make(self)

    def admit(self, connection: C) -> bool:
        """Whether there is room for a connection that a client has opened; then it is one of the open ones."""
        if len(self.open) >= self.limits.connections or self.ending:
            return False
        self.open.add(connection)
        return True

    async def watch(self) -> None:
        """Close connections whose clients are too slow, for ever."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            for connection in [*self.open]:
                connection.check(loop.time())

    async def drain(self, seconds: float) -> None:
        """Close idle connections, and the others after their answers, at the latest after some seconds."""
        self.ending = True
        for connection in [*self.open]:
            connection.end_when_idle()
        deadline = asyncio.get_running_loop().time() + seconds
        while self.open and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.005)
        for connection in [*self.open]:
            connection.abort()


@dataclass(slots=True)
class _Reply:
    """An answer that is due: None until it is there."""

    keep_alive: bool
    data: bytes | None = None


class HttpConnection(asyncio.Protocol):
    """One client's connection: its requests in, parsed within limits, and their answers out in the same order."""

    __slots__ = (
        "_admit", "_body", "_connections", "_handler", "_head", "_headers", "_lingers", "_loop", "_most_head",
        "_parser", "_paused", "_peer", "_replies", "_since", "_size", "_target", "_transport", "_whole",
    )  # fmt: skip

    def __init__(
        self,
        handler: Handler,
        connections: Connections[HttpConnection],
        admit: Callable[[HttpRequest], HttpResponse | None] | None = None,
    ) -> None:
        """A client's, before it is there.

        Args:
            handler: Answers a request; what it raises before it has is answered 500.
            connections: Those of the server.
            admit: Looks at a request whose head is there, before its body is read; the answer that refuses it, or None.
        """
        self._handler, self._admit = handler, admit
        self._connections = connections
        self._most_head = connections.limits.head
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._replies: deque[_Reply] = deque()
        self._since = self._loop.time()  # when its request began, or its last one ended
        self._paused = False
        self._whole = True
        self._lingers = False
        self._peer = ""
        self._reset()

    def _reset(self) -> None:
        self._target = b""
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self._head = 0
        self._size = 0

    # --- asyncio's side ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client is there."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is of no such class
        if not self._connections.admit(self):
            self._transport.abort()
            return
        address = transport.get_extra_info("peername")
        self._peer = str(address[0]) if isinstance(address, tuple) else ""

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone: its answers have nowhere to go."""
        self._connections.open.discard(self)
        self._replies.clear()
        self._transport = None

    def data_received(self, data: bytes) -> None:
        """Parse what came; a request that is malformed or beyond a limit is answered and ends the connection."""
        if self._transport is None or self._transport.is_closing() or self._lingers:
            return
        try:
            while data:
                data = self._feed(data)
        except httptools.HttpParserCallbackError as error:
            cause = error.__context__
            if isinstance(cause, _Refused):
                self._refuse(cause.status, cause.message)
            elif isinstance(cause, _NotAdmitted):
                self._turn_away(cause.answer)
            else:
                _LOG.error("a request failed", exc_info=error)
                self._refuse(500, "the request failed")
        except httptools.HttpParserError as error:
            self._refuse(400, f"malformed request: {error!s:.100}")

    def _feed(self, data: bytes) -> bytes:
        """Parse bytes, and return those that are still to be parsed: what follows a wish for another protocol.

        Such a request is answered as any other (Java's client begins with one). The parser takes what follows its
        headers for the other protocol, and would take a body for the next request; so the headers are parsed again
        without the wish.
        """
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            rest = data[upgrade.args[0] :]
            if self._has_body():
                wish = ("upgrade", "connection", "http2-settings")
                lines = [f"{name}: {text}" for name, text in self._headers.items() if name not in wish]
                first = f"{self._parser.get_method().decode()} {self._target.decode('latin-1')} HTTP/1.1"
                rest = "\r\n".join([first, *lines, "\r\n"]).encode("latin-1") + rest
            self._parser = httptools.HttpRequestParser(self)
            return rest
        return b""

    def _has_body(self) -> bool:
        return self._headers.get("content-length", "0") != "0" or "transfer-encoding" in self._headers

    def pause_writing(self) -> None:
        """The client is slow to read: nothing more is read of it until it has."""
        self._paused = True
        self._pause_reading()

    def resume_writing(self) -> None:
        """The client has read what waited: its requests are read again."""
        self._paused = False
        self._resume_reading()

    def _pause_reading(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def _resume_reading(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    # --- the parser's side ---

    def on_message_begin(self) -> None:
        """A request begins: forget the last one, and start its clock."""
        self._reset()
        self._whole = False
        self._since = self._loop.time()

    def on_url(self, url: bytes) -> None:
        """A part of the target."""
        self._target = self._target + url if self._target else url
        self._count_head(len(url))

    def on_header(self, name: bytes, value: bytes | None) -> None:
        """Keep a header by its lower-case name; one that came before is joined, or refused where it is ambiguous."""
        key, text = _header_name(name), value.decode("latin-1") if value else ""
        self._count_head(len(key) + len(text) + 4)
        headers = self._headers
        if key in headers:
            if key in ("content-length", "host", "transfer-encoding"):
                raise _Refused(400, f"the header {key} came twice")
            text = f"{headers[key]}, {text}"
        headers[key] = text

    def on_headers_complete(self) -> None:
        """The headers are there."""
        headers = self._headers
        if self._parser.get_method() == b"CONNECT":
            raise _Refused(400, "this is no proxy")
        if "transfer-encoding" in headers:
            if "content-length" in headers:
                raise _Refused(400, "a length and chunks contradict each other")
            if headers["transfer-encoding"].strip().lower() != "chunked":
                raise _Refused(501, "no transfer encoding but chunked is understood")
        if "host" not in headers and self._parser.get_http_version() == "1.1":
            raise _Refused(400, "the header host is missing")
        if (admit := self._admit) is not None:
            method, target = self._parser.get_method().decode("latin-1"), self._target.decode("latin-1")
            if (refusal := admit(HttpRequest(method, target, headers, b"", self._peer))) is not None:
                raise _NotAdmitted(refusal)
        length = headers.get("content-length", "0")
        if length.isdecimal() and int(length) > self._connections.limits.body:
            raise _Refused(413, f"the body has {length} bytes, of at most {self._connections.limits.body:,}")
        if headers.get("expect", "").lower() == "100-continue" and not self._replies and self._transport is not None:
            self._transport.write(_CONTINUE)

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        self._size += len(body)
        if self._size > self._connections.limits.body:
            raise _Refused(413, f"the body has more than {self._connections.limits.body:,} bytes")
        self._body.append(body)

    def on_message_complete(self) -> None:
        """A request is whole."""
        if self._parser.should_upgrade() and self._has_body():
            return  # see `_feed`
        self._whole = True
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        method = self._parser.get_method().decode("latin-1")
        request = HttpRequest(method, self._target.decode("latin-1"), self._headers, body, self._peer)
        reply = _Reply(self._parser.should_keep_alive())
        self._replies.append(reply)
        if len(self._replies) >= _PIPELINED:
            self._pause_reading()
        try:
            self._handler(request, partial(self._answer, reply, method))
        except Exception:  # a fault of ours must not end the connections of others
            _LOG.exception("%s %s failed", method, request.target.partition("?")[0])  # a query may hold a secret
            if reply.data is None:
                self._answer(reply, method, HttpResponse(500, b'{"error":"the server failed to answer"}'))

    def _count_head(self, size: int) -> None:
        self._head += size
        if self._head > self._most_head:
            raise _Refused(431, f"the head has more than {self._most_head:,} bytes")

    # --- answers ---

    def _answer(self, reply: _Reply, method: str, answer: HttpResponse) -> None:
        if self._connections.ending:
            reply.keep_alive = False
        data = head(answer, keep_alive=reply.keep_alive)
        reply.data = data if method == "HEAD" else data + answer.body
        if self._replies and self._replies[0] is reply:
            self._send()

    def _send(self) -> None:
        """Write the answers that are there, up to the first that is not."""
        transport = self._transport
        if transport is None:
            return
        full = len(self._replies) >= _PIPELINED
        parts: list[bytes] = []
        keep_alive = True
        while keep_alive and self._replies and (data := self._replies[0].data) is not None:
            keep_alive = self._replies.popleft().keep_alive
            parts.append(data)
        transport.write(parts[0] if len(parts) == 1 else b"".join(parts))
        self._since = self._loop.time()
        if not keep_alive:
            self._replies.clear()
            if not self._lingers:
                transport.close()
            elif transport.can_write_eof():
                transport.write_eof()
        elif full and not self._paused:
            self._resume_reading()

    def _refuse(self, status: int, message: str) -> None:
        """Answer a malformed request after those before it, and close."""
        self._pause_reading()
        body = b'{"error":"' + message.replace("\\", "\\\\").replace('"', "'").encode() + b'"}'
        reply = _Reply(keep_alive=False)
        self._replies.append(reply)
        self._answer(reply, "", HttpResponse(status, body))

    def _turn_away(self, answer: HttpResponse) -> None:
        """Answer a request whose body is not read. To close at once could cost the client the answer: TCP resets."""
        self._lingers = True
        reply = _Reply(keep_alive=False)
        self._replies.append(reply)
        self._answer(reply, "", answer)

    # --- its end ---

    def check(self, now: float) -> None:
        """Close it if its client has been too slow, by the loop's time."""
        limits, waited = self._connections.limits, now - self._since
        if self._lingers:
            if not self._replies and waited > _LINGER:
                self.abort()
        elif not self._whole and waited > limits.request_seconds:
            self._refuse(408, "the request did not arrive in time")
        elif self._whole and not self._replies and waited > limits.idle_seconds:
            self.abort()
        elif self._paused and waited > limits.idle_seconds:
            self.abort()  # it does not read its answers

    @property
    def busy(self) -> bool:
        """Whether a request is on its way, or an answer."""
        return bool(self._replies) or not (self._whole or self._lingers)

    def end_when_idle(self) -> None:
        """Close it if no request is on its way."""
        if not self.busy and self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close it at once."""
        if self._transport is not None:
            self._transport.abort()


class _Refused(Exception):  # noqa: N818 - what the client is told
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class _NotAdmitted(Exception):  # noqa: N818 - what the client is told
    def __init__(self, answer: HttpResponse) -> None:
        super().__init__(answer.status)
        self.answer = answer


@lru_cache(256)
def _header_name(name: bytes) -> str:
    """In small letters. Clients send the same again and again."""
    return name.decode("latin-1").lower()


def head(answer: HttpResponse, *, keep_alive: bool) -> bytes:
    """The status line and the headers, with the empty line after them."""
    status = _STATUS_LINE.get(answer.status) or f"HTTP/1.1 {answer.status} -\r\n".encode()
    more = "".join([f"{name}: {value}\r\n" for name, value in answer.headers]).encode("latin-1", "replace")
    close = b"" if keep_alive else b"connection: close\r\n"
    form = b"%bcontent-type: %b\r\ncontent-length: %d\r\n%b%b\r\n"
    return form % (status, answer.content_type, len(answer.body), more, close)
