"""HTTP/2 on one event loop (RFC 9113): frames, streams and their windows; a handler takes requests and answers them.

Small on purpose, since it faces the network: no priorities, no push, no upgrade from HTTP/1. Headers are decoded by
hpack; the blocks of our answers refer to no dynamic table, so that they can be prepared. What a client may have waiting
here is bounded, and so is what it may send without asking for anything: see the constants below.
"""

from __future__ import annotations

import asyncio
import logging
import re
import struct
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, Protocol, TypeAlias, cast

from hpack import Decoder, HPACKError, OversizedHeaderListError

from .access import TokenBucket
from .http import Connections

_LOG: Final = logging.getLogger("drivetrain.serving")

Fields: TypeAlias = Sequence[tuple[bytes, bytes]]
"""Header fields: names in small letters, and values, as they come."""

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
MOST_STREAMS: Final = 1000  # at once of a connection
STREAM_WINDOW: Final = 1 << 20  # bytes that a client may send of a stream before they are taken
_CONNECTION_WINDOW: Final = 4 << 20
_MOST_UNSENT: Final = 64 << 20  # bytes of answers that wait for a client's windows, beyond which it may ask no more
_MOST_BLOCKS: Final = 64  # header blocks that are remembered
_LONGEST_BLOCK: Final = 512  # bytes of such a block
_LONGEST_HEAD: Final = 2048  # and of what it stands for
_MOST_PARTS: Final = 64  # frames of a header block
_MOST_IDLE: Final = 1000  # frames of a client that ask for nothing and take nothing, between two that do
_IDLE_A_SECOND: Final = 100  # of which are forgotten
_TAKEN: Final = 1024  # bytes: a client that takes fewer at a time takes nothing
_SETTINGS_COST: Final = 10  # such frames, for each SETTINGS
_WINDOWS_COST: Final = 4  # streams whose windows change, for one such frame
_MOST_RESETS: Final = 1000.0  # requests at once that a client may reset: nghttp2's limits
_RESETS_A_SECOND: Final = 33.0
_MOST_DISMISSED: Final = 1000  # streams that were ended before the client had, of which more may still come
_WRITE_BYTES: Final = 256 << 10
_GOODBYE_SECONDS: Final = 1.0  # for a client to say that it has read that the connection ends

_FRAME: Final = struct.Struct(">HBBBI")
_MAX_FRAME: Final = 16_384  # bytes of a frame that we take: the least that there may be
_LARGEST_FRAME: Final = 64 << 10  # that we send
_LARGEST_WINDOW: Final = (1 << 31) - 1
_DEFAULT_WINDOW: Final = 65_535
_DATA, _HEADERS, _PRIORITY, _RST_STREAM, _SETTINGS, _PUSH_PROMISE, _PING, _GOAWAY, _WINDOW_UPDATE, _CONTINUATION = (
    range(10)
)
_END_STREAM: Final = 0x1
_ACK: Final = 0x1
_END_HEADERS: Final = 0x4
_PADDED: Final = 0x8
_PRIORITIZED: Final = 0x20
_TABLE_SIZE, _ENABLE_PUSH, _MOST_CONCURRENT, _INITIAL_WINDOW, _FRAME_SIZE, _HEADER_LIST = range(1, 7)
_DEFAULT_TABLE: Final = 4096
_EMPTY_TABLE: Final = b"\x20"  # says that ours has no room
_GOODBYE: Final = b"goodbye\0"
_HTTP_1: Final = re.compile(rb"[A-Z]+ \S+ HTTP/1\.")
_REFUSAL: Final = (
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\nconnection: close\r\n"
    b"content-length: %d\r\n\r\n%b"
)  # for a client that takes this port for the other

_NAME: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+")
_ENDS_FIELD: Final = re.compile(rb"[\0\r\n]")
_PSEUDO: Final = (b":method", b":scheme", b":authority", b":path")
_OF_CONNECTIONS: Final = frozenset(
    (b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade", b"http2-settings")
)


class ErrorCode(IntEnum):
    """Why a stream or a connection is ended: the codes of RFC 9113, section 7."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    SETTINGS_TIMEOUT = 4
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    CONNECT_ERROR = 10
    ENHANCE_YOUR_CALM = 11
    INADEQUATE_SECURITY = 12
    HTTP_1_1_REQUIRED = 13


@dataclass(slots=True, eq=False)
class RequestHead:
    """What a request says before its body. A client that sends the same block again gets the same head.

    Attributes:
        method: "POST", say.
        path: With its query.
        fields: The header fields, without those that begin with a colon.
        size: Bytes of all of them, as HTTP/2 counts: 32 more for each.
        length: Of the body, where it is named.
        reading: What the handler has made of it, to be kept for the next request with the same.
    """

    method: bytes
    path: bytes
    fields: Fields
    size: int
    length: int | None = None
    reading: Any = None  # Any: the handler's own


class StreamReceiver(Protocol):
    """What takes a request's body, and answers on its stream."""

    def body_received(self, data: bytes, ended: bool) -> None:
        """A part of the body; whether it is the last."""
        ...

    def stream_ended(self) -> None:
        """The client has reset the stream, or its connection is gone: there is nobody to answer."""
        ...

    def output_taken(self) -> None:
        """All that waited for the client's windows was sent."""
        ...

    def check(self, now: float) -> None:
        """Called every second or so, with the loop's time: end the stream, if the client is too slow."""
        ...


StreamHandler: TypeAlias = "Callable[[Http2Stream, RequestHead], StreamReceiver]"
"""Called when a request's head is there; what it raises resets the stream."""


class _ConnectionFault(Exception):  # noqa: N818 - what the client is told
    def __init__(self, code: ErrorCode, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class _StreamFault(Exception):  # noqa: N818 - likewise
    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code.name)
        self.code = code


def _refusal(rest_port: int | None) -> bytes:
    """The answer to HTTP/1.1."""
    other = "REST has a port of its own" if rest_port is None else f"REST is at port {rest_port} (--rest-port)"
    reason = f'{{"error":"this port speaks HTTP/2 alone, for gRPC; {other}"}}'.encode()
    return _REFUSAL % (len(reason), reason)


class Http2Stream:
    """A request and its answer.

    Attributes:
        connection: Whose.
        number: Its own.
        closed: Whether it is over, for both sides.
        is_begun: Whether the head of the answer was sent.
        output: What waits to be sent.
    """

    __slots__ = (
        "_credit", "_taken", "_trailers", "closed", "connection", "is_begun", "is_receiving", "left", "number",
        "output", "receive_window", "receiver", "send_window", "stalled",
    )  # fmt: skip

    def __init__(self, connection: Http2Connection, number: int, send_window: int) -> None:
        self.connection = connection
        self.number = number
        self.receiver: StreamReceiver = _NOBODY
        self.closed = False
        self.is_receiving = True  # the client has not ended its side
        self.left: int | None = None  # bytes of the body that are to come, where the head says how many
        self.receive_window = STREAM_WINDOW
        self.send_window = send_window
        self.output: deque[bytes] = deque()  # waits for the client's windows
        self.stalled = 0.0  # since when it waits, or takes next to nothing, by the loop's time
        self._taken = 0  # bytes of the first of them that were sent
        self._credit = 0
        self.is_begun = False
        self._trailers: bytes | None = None

    def answer(self, head: bytes, body: bytes, trailers: bytes) -> None:
        """Send an answer whole, of which nothing was sent, in one write where the client's windows have room for it.

        Args:
            head: A block of `encode_fields`.
            body: Its bytes.
            trailers: A block that follows it; b"": none does, and there is no body either.
        """
        if self.closed:
            return
        connection, size, number = self.connection, len(body), self.number
        if size > min(connection.send_window, self.send_window, connection.frame_size) or (
            size and connection.is_paused
        ):
            self.begin(head)
            self._trailers = trailers
            self.send(body)
            return
        head = connection.own_block(head)
        flags = _END_HEADERS if trailers else _END_HEADERS | _END_STREAM
        frames = _FRAME.pack(len(head) >> 8, len(head) & 255, _HEADERS, flags, number) + head
        if size:
            connection.send_window -= size
            frames += _FRAME.pack(size >> 8, size & 255, _DATA, 0, number) + body
        if trailers:
            flags = _END_HEADERS | _END_STREAM
            frames += _FRAME.pack(len(trailers) >> 8, len(trailers) & 255, _HEADERS, flags, number) + trailers
        connection.write(frames)
        connection.close_stream(self)

    def begin(self, head: bytes) -> None:
        """Send the head of an answer whose body comes in parts."""
        if not self.closed and not self.is_begun:
            self.is_begun = True
            head = self.connection.own_block(head)
            self.connection.write(_frame(_HEADERS, _END_HEADERS, self.number, head))

    def send(self, data: bytes) -> bool:
        """Send a part of the body, after `begin`; whether nothing waits, so that more may follow at once."""
        if self.closed:
            return True
        self.output.append(data)
        self.connection.wait(self, len(data))
        return not self.output

    def end(self, trailers: bytes) -> None:
        """End the answer, after what waits."""
        if self.closed:
            return
        if self.output:
            self._trailers = trailers
        else:
            self.connection.write(_frame(_HEADERS, _END_HEADERS | _END_STREAM, self.number, trailers))
            self.connection.close_stream(self)

    def reset(self, code: ErrorCode) -> None:
        """End it without an answer."""
        if not self.closed:
            self.connection.reset(self.number, code)
            self.connection.close_stream(self, is_told=True)

    def credit(self, size: int) -> None:
        """Let the client send as many bytes more as were taken of what it had sent."""
        self._credit += size
        if self._credit >= STREAM_WINDOW // 2 and self.is_receiving and not self.closed:
            self.receive_window += self._credit
            self.connection.write(_frame(_WINDOW_UPDATE, 0, self.number, self._credit.to_bytes(4, "big")))
            self._credit = 0

    def next_part(self, room: int) -> bytes:
        """So many bytes of what waits, at most."""
        parts = []
        while room and self.output:
            first = self.output[0]
            part = first[self._taken : self._taken + room]
            parts.append(part)
            room -= len(part)
            self._taken += len(part)
            if self._taken == len(first):
                self.output.popleft()
                self._taken = 0
        return parts[0] if len(parts) == 1 else b"".join(parts)

    @property
    def unsent(self) -> int:
        """Bytes that wait."""
        return sum(map(len, self.output)) - self._taken

    @property
    def trailers(self) -> bytes | None:
        """What follows, once nothing waits; None: the answer goes on."""
        return self._trailers


class _Nobody:
    """Receives for a stream that has no receiver yet, or any more."""

    def body_received(self, data: bytes, ended: bool) -> None: ...

    def stream_ended(self) -> None: ...

    def output_taken(self) -> None: ...

    def check(self, now: float) -> None: ...


_NOBODY: Final = _Nobody()


class Http2Connection(asyncio.Protocol):
    """One client's connection.

    Args:
        handler: Takes its requests.
        connections: Those of the server.

    Attributes:
        send_window: Bytes of bodies that the client takes.
        frame_size: Bytes of the largest frame that it takes.
        is_paused: Whether it is slow to read.
        waiting: Streams that could send, if the connection could.
        buffered: Bytes of requests that handlers keep: theirs to count.
        working: The tasks of handlers, those of streams that are over, too: theirs to add and to remove.
    """

    __slots__ = (
        "_block", "_block_flags", "_block_number", "_blocks", "_connections", "_credit", "_decoder", "_dismissed",
        "_handler", "_idle", "_idle_since", "_initial_window", "_is_greeted", "_is_left", "_last", "_loop", "_opening",
        "_prefix", "_promised", "_receive_window", "_resets", "_rest", "_rest_port", "_since", "_stage", "_streams",
        "_timer", "_transport", "_unsent", "buffered", "frame_size", "is_paused", "send_window", "waiting", "working",
    )  # fmt: skip

    def __init__(
        self, handler: StreamHandler, connections: Connections[Http2Connection], rest_port: int | None = None
    ) -> None:
        self._handler = handler
        self._connections = connections
        self._rest_port = rest_port
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._since = self._loop.time()  # when its last request ended, or what is to be whole by now began
        self._rest = b""  # of a frame that is not whole
        self._stage = 0  # of its end: 1 when that was announced, 2 when no more requests are taken, 3 when nothing is
        self._is_left = False  # the client has said that it begins no more streams
        self._is_greeted = False  # the client's preface and settings are there
        self._opening = b""  # what goes before all else, once the client has said what it speaks
        self._last = 0  # the newest stream
        self._promised = 0  # the newest that is answered, at that stage
        self._streams: dict[int, Http2Stream] = {}
        self._dismissed: dict[int, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        # Headers
        self._decoder = Decoder(2 * connections.limits.head)
        self._blocks: dict[bytes, RequestHead] = {}
        self._block: list[bytes] = []  # of which more frames are to come
        self._block_number = 0
        self._block_flags = 0
        self._prefix = b""
        # Windows
        self._receive_window = _CONNECTION_WINDOW
        self._credit = 0
        self._initial_window = _DEFAULT_WINDOW
        self.send_window = _DEFAULT_WINDOW
        self.frame_size = _MAX_FRAME
        self.is_paused = False
        self.waiting: dict[int, Http2Stream] = {}
        self._unsent = 0
        self.buffered = 0
        self.working: set[asyncio.Task[None]] = set()
        # Patience
        self._idle = 0
        self._idle_since = self._since  # when some of them were forgotten
        self._resets = TokenBucket(_RESETS_A_SECOND, _MOST_RESETS, _MOST_RESETS, self._since)

    # --- asyncio's side ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client is there: prepare to say what it may send."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is of no such class
        if not self._connections.admit(self):
            self._transport.abort()
            return
        settings = (
            (_MOST_CONCURRENT, MOST_STREAMS),
            (_INITIAL_WINDOW, STREAM_WINDOW),
            (_HEADER_LIST, self._connections.limits.head),
        )
        payload = b"".join(struct.pack(">HI", *setting) for setting in settings)
        more = (_CONNECTION_WINDOW - _DEFAULT_WINDOW).to_bytes(4, "big")
        self._opening = _frame(_SETTINGS, 0, 0, payload) + _frame(_WINDOW_UPDATE, 0, 0, more)

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone: its requests are nobody's."""
        self._connections.open.discard(self)
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
        self._end_streams()

    def data_received(self, data: bytes) -> None:
        """Parse what came; what breaks the protocol, or is too much, ends the connection and says why."""
        if self._stage == 3:
            return
        if self._rest:
            data = self._rest + data
        position, size = 0, len(data)
        try:
            if not self._is_greeted:
                if _HTTP_1.match(data):
                    self._opening = b""
                    self._leave(_refusal(self._rest_port))
                    return
                position = self._greet(data)
                if not position:
                    self._rest = data
                    return
            while size - position >= 9:
                high, low, kind, flags, number = _FRAME.unpack_from(data, position)
                length = high << 8 | low
                if length > _MAX_FRAME:
                    raise _ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "a frame is too large")
                end = position + 9 + length
                if end > size:
                    break
                payload = data[position + 9 : end]
                position = end
                try:
                    self._frame_received(kind, flags, number & _LARGEST_WINDOW, payload)
                except _StreamFault as fault:
                    self._end_stream(number & _LARGEST_WINDOW, fault.code)
                if self._stage == 3 or (self._stage == 2 and (self._transport is None or self._transport.is_closing())):
                    return
        except _ConnectionFault as fault:
            self._end(fault.code, str(fault))
            return
        if (position or not self._rest) and not self._block_number:
            self._since = self._loop.time()
        self._rest = data[position:]

    def pause_writing(self) -> None:
        """The client is slow to read: nothing more is read of it until it has."""
        self.is_paused = True
        self._since = self._loop.time()
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """The client has read what waited."""
        self.is_paused = False
        self._since = self._loop.time()
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
            self._flush()

    # --- what comes ---

    def _greet(self, data: bytes) -> int:
        """Check that a client speaks HTTP/2; how many bytes that took."""
        if not data.startswith(PREFACE):
            if not PREFACE.startswith(data):
                raise _ConnectionFault(ErrorCode.PROTOCOL_ERROR, "this is no HTTP/2")
            return 0
        start = len(PREFACE)
        if len(data) < start + 9:
            return 0
        if data[start + 3] != _SETTINGS or data[start + 4] & _ACK:
            raise _ConnectionFault(ErrorCode.PROTOCOL_ERROR, "the settings are missing")
        self._is_greeted = True
        self.write(b"")
        return start

    def _frame_received(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        if self._block_number and kind != _CONTINUATION:
            raise _ConnectionFault(ErrorCode.PROTOCOL_ERROR, "a header block is not whole")
        if kind == _DATA:
            self._data(flags, number, payload)
        elif kind == _HEADERS:
            self._headers(flags, number, payload)
        elif kind == _WINDOW_UPDATE:
            self._window_update(number, payload)
        elif kind == _SETTINGS:
            self._settings(flags, number, payload)
        elif kind == _PING:
            self._ping(flags, number, payload)
        elif kind == _RST_STREAM:
            self._rst_stream(number, payload)
        elif kind == _CONTINUATION:
            self._continuation(flags, number, payload)
        elif kind == _PRIORITY:
            self._priority(number, payload)
        elif kind == _GOAWAY:
            self._goaway(number, payload)
        elif kind == _PUSH_PROMISE:
            raise _ConnectionFault(ErrorCode.PROTOCOL_ERROR, "a client promises nothing")
        else:
            self._count_idle()  # an extension

    def _data(self, flags: int, number: int, payload: bytes) -> None:
        size = len(payload)
        self._receive_window -= size
        if self._receive_window < 0:
            raise _ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, "more than the connection's window")
        self._credit += size
        if self._credit >= _CONNECTION_WINDOW // 2:
            self.write(_frame(_WINDOW_UPDATE, 0, 0, self._credit.to_bytes(4, "big")))
            self._receive_window += self._credit
            self._credit = 0
        stream = self._streams.get(number)
        if stream is None or not stream.is_receiving:
            self._check_known(number, "DATA")
            self._count_idle()
            if number not in self._dismissed:
                raise _StreamFault(ErrorCode.STREAM_CLOSED)
            return
        stream.receive_window -= size
        if stream.receive_window < 0:
            raise _StreamFault(ErrorCode.FLOW_CONTROL_ERROR)
        if flags & _PADDED:
            payload = _unpadded(payload)
            stream.credit(size - len(payload))
        ended = bool(flags & _END_STREAM)
        if payload:
            self._idle = 0
        elif not ended:
            self._count_idle()
        if stream.left is not None:
            stream.left -= len(payload)
            if stream.left < 0 or (ended and stream.left):
                raise _StreamFault(ErrorCode.PROTOCOL_ERROR)
        if ended:
            stream.is_receiving = False
        stream.receiver.body_received(payload, ended)

    def _headers(self, flags: int, number: int, payload: bytes) -> None:
        if not number % 2:
            raise _ConnectionFault(ErrorCode.PROTOCOL_ERROR, "HEADERS of a stream that no client begins")
        if flags & _PADDED:
            payload = _unpadded(payload)
        if flags & _PRIORITIZED:
            if len(payload) < 5:
                raise _ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "HEADERS without its priority")
            depends_on_itself = int.from_bytes(payload[:4], "big") & _LARGEST_WINDOW == number
            payload = payload[5:]
            if depends_on_itself:
                raise _ConnectionFault(ErrorCode.PROTOCOL_ERROR, "a stream depends on itself")
        if flags & _END_HEADERS:
            self._block_received(flags, number, payload)
        else:
            self._block, self._block_number, self._block_flags = [payload], number, flags
            self._since = self._loop.time()

    def _continuation(self, flags: int, number: int, payload: bytes) -> None:
        if not number or number != self._block_number:
            raise _ConnectionFault(ErrorCode.PROTOCOL_ERROR, "CONTINUATION of no header block")
        self._block.append(payload)
        size = sum(map(len, self._block))
        if len(self._block) > _MOST_PARTS or size > 2 * self._connections.limits.head:
            raise _ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, "a header block is too large")
        if flags & _END_HEADERS:
            self._block_number = 0
            self._block_received(self._block_flags, number, b"".join(self._block))

    def _block_received(self, flags: int, number: int, block: bytes) -> None:
        """A header block is whole: it begins a request, or ends one; it is decoded in any case, for the next ones."""
        head = self._blocks.get(block)
        fields: Fields = ()
        if head is None:
            table = self._decoder.header_table
            before = table.maxsize, [*table.dynamic_entries]
            try:
                fields = cast(Fields, self._decoder.decode(block, raw=True))
            except OversizedHeaderListError:
                raise _ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, "a header list is too large") from None
            except HPACKError:
                raise _ConnectionFault(ErrorCode.COMPRESSION_ERROR, "a header block is malformed") from None
            # Until the table is changed, the same block means the same.
            is_lasting = before == (table.maxsize, [*table.dynamic_entries])
            if not is_lasting or len(self._blocks) >= _MOST_BLOCKS:
                self._blocks.clear()
        stream = self._streams.get(number)
        if stream is not None:
            # A block that is known is a request's, with fields that no trailers have.
            self._trailers_received(stream, flags, fields if head is None else ((b":path", head.path),))
            return
        if number <= self._last:
            if number not in self._dismissed:
                raise _ConnectionFault(ErrorCode.STREAM_CLOSED, "HEADERS of a stream that is closed")
            self._count_idle()
            return
        self._last = number
        self._idle = 0
        if self._stage == 2:
            self._dismiss(number)  # the client is told so, and asks elsewhere
            return
        busy = max(len(self._streams), len(self.working))
        if busy >= MOST_STREAMS or self._unsent > _MOST_UNSENT:
            raise _StreamFault(ErrorCode.REFUSED_STREAM)
        if head is None:
            head = _request_head(fields)
            if is_lasting and len(block) <= _LONGEST_BLOCK and head.size <= _LONGEST_HEAD:
                self._blocks[block] = head
        stream = self._streams[number] = Http2Stream(self, number, self._initial_window)
        ended = bool(flags & _END_STREAM)
        stream.left = head.length
        if ended:
            stream.is_receiving = False
            if head.length:
                raise _StreamFault(ErrorCode.PROTOCOL_ERROR)
        try:
            receiver = self._handler(stream, head)
        except Exception:  # a fault of ours must not end the others
            _LOG.exception("a request failed")
            raise _StreamFault(ErrorCode.INTERNAL_ERROR) from None
        if not stream.closed:
            stream.receiver = receiver
            if ended:
                receiver.body_received(b"", True)

    def _trailers_received(self, stream: Http2Stream, flags: int, fields: Fields) -> None:
        """The header fields behind a body, which mean nothing here."""
        if not stream.is_receiving:
            raise _StreamFault(ErrorCode.STREAM_CLOSED)
        is_malformed = any(_is_malformed(name, value) for name, value in fields)
        if not flags & _END_STREAM or is_malformed or stream.left:
            raise _StreamFault(ErrorCode.PROTOCOL_ERROR)
        stream.is_receiving = False
        stream.receiver.body_received(b"", True)

    def _rst_stream(self, number: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise _ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "RST_STREAM has no code")
        self._check_known(number, "RST_STREAM")
        stream = self._streams.get(number)
        if stream is None:
            self._count_idle()
            return
        if self._resets.take(self._loop.time()):
            raise _ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, "too many requests are reset")
        self._lose(stream)
        self._close_if_over()

    def _settings(self, flags: int, number: int, payload: bytes) -> None:
        if number:
            raise _ConnectionFault(ErrorCode.PROTOCOL_ERROR, "SETTINGS of a stream")
        if len(payload) % 6 or (flags & _ACK and payload):
            raise _ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "SETTINGS are not whole")
        if flags & _ACK:
            self._count_idle()
            return
        self._count_idle(_SETTINGS_COST + len(payload) // 6)
        for name, value in struct.iter_unpack(">HI", payload):
            if name == _TABLE_SIZE:
                if value < _DEFAULT_TABLE:
                    self._prefix = _EMPTY_TABLE  # the client waits for that, though ours is empty anyway
            elif name == _ENABLE_PUSH:
                if value > 1:
                    raise _ConnectionFault(ErrorCode.PROTOCOL_ERROR, "ENABLE_PUSH is neither 0 nor 1")
            elif name == _INITIAL_WINDOW:
                if value > _LARGEST_WINDOW:
                    raise _ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, "INITIAL_WINDOW_SIZE is too large")
                self._change_windows(value)
            elif name == _FRAME_SIZE:
                if not _MAX_FRAME <= value < 1 << 24:
                    raise _ConnectionFault(ErrorCode.PROTOCOL_ERROR, "MAX_FRAME_SIZE is out of range")
                self.frame_size = min(value, _LARGEST_FRAME)
        self.write(_frame(_SETTINGS, _ACK, 0, b""))
        self._flush()

    def _change_windows(self, size: int) -> None:
        self._count_idle(len(self._streams) // _WINDOWS_COST)
        change, self._initial_window = size - self._initial_window, size
        for stream in self._streams.values():
            stream.send_window += change
            if stream.send_window > _LARGEST_WINDOW:
                raise _ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, "a window is too large")
            if stream.output and stream.send_window > 0:
                self.waiting[stream.number] = stream

    def _ping(self, flags: int, number: int, payload: bytes) -> None:
        if number:
            raise _ConnectionFault(ErrorCode.PROTOCOL_ERROR, "PING of a stream")
        if len(payload) != 8:
            raise _ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "PING has eight bytes")
        self._count_idle()
        if not flags & _ACK:
            self.write(_frame(_PING, _ACK, 0, payload))
        elif payload == _GOODBYE and self._stage == 1:
            self._take_no_more()

    def _window_update(self, number: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise _ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "WINDOW_UPDATE has four bytes")
        more = int.from_bytes(payload, "big") & _LARGEST_WINDOW
        self._count_idle()
        if not number:
            if not more:
                raise _ConnectionFault(ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE of nothing")
            self.send_window += more
            if self.send_window > _LARGEST_WINDOW:
                raise _ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, "the window is too large")
        else:
            self._check_known(number, "WINDOW_UPDATE")
            stream = self._streams.get(number)
            if not more:
                raise _StreamFault(ErrorCode.PROTOCOL_ERROR)
            if stream is None:
                return
            stream.send_window += more
            if stream.send_window > _LARGEST_WINDOW:
                raise _StreamFault(ErrorCode.FLOW_CONTROL_ERROR)
            if stream.output and stream.send_window > 0:
                self.waiting[number] = stream
        if self.waiting:
            self._flush()

    def _goaway(self, number: int, payload: bytes) -> None:
        if number:
            raise _ConnectionFault(ErrorCode.PROTOCOL_ERROR, "GOAWAY of a stream")
        if len(payload) < 8:
            raise _ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "GOAWAY is not whole")
        self._is_left = True
        self._take_no_more()

    def _priority(self, number: int, payload: bytes) -> None:
        if not number:
            raise _ConnectionFault(ErrorCode.PROTOCOL_ERROR, "PRIORITY of no stream")
        if len(payload) != 5:
            raise _StreamFault(ErrorCode.FRAME_SIZE_ERROR)
        if int.from_bytes(payload[:4], "big") & _LARGEST_WINDOW == number:
            raise _StreamFault(ErrorCode.PROTOCOL_ERROR)
        self._count_idle()

    def _check_known(self, number: int, frame: str) -> None:
        if not number or number > self._last or not number % 2:
            raise _ConnectionFault(ErrorCode.PROTOCOL_ERROR, f"{frame} of a stream that was not begun")

    def _count_idle(self, cost: int = 1) -> None:
        self._idle += cost
        if self._idle <= _MOST_IDLE:
            return
        now = self._loop.time()
        self._idle -= min(int((now - self._idle_since) * _IDLE_A_SECOND), self._idle)
        self._idle_since = now
        if self._idle > _MOST_IDLE:
            raise _ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, "too many frames ask for nothing")

    # --- what goes ---

    def write(self, data: bytes) -> None:
        """Send frames."""
        if self._opening:
            data, self._opening = self._opening + data, b""
        if self._transport is not None:
            self._transport.write(data)

    def own_block(self, block: bytes) -> bytes:
        """A header block of ours, the first of them with what the client's settings ask for."""
        if self._prefix:
            block, self._prefix = self._prefix + block, b""
        return block

    def wait(self, stream: Http2Stream, size: int) -> None:
        """So many bytes more of a stream wait: send what can be sent."""
        self._unsent += size
        stream.stalled = self._loop.time()
        if stream.send_window > 0:
            self.waiting[stream.number] = stream
            self._flush()

    def _flush(self) -> None:
        """Send what waits, as far as the client's windows and the network take it, a frame of each stream in turn."""
        waiting, parts, size = self.waiting, [], 0
        now = self._loop.time()
        while waiting and self.send_window > 0 and not self.is_paused:
            number = next(iter(waiting))
            stream = waiting.pop(number)
            data = stream.next_part(min(self.send_window, stream.send_window, self.frame_size))
            sent = len(data)
            self.send_window -= sent
            stream.send_window -= sent
            self._unsent -= sent
            is_last = not stream.output and stream.trailers is not None
            if sent >= _TAKEN or not stream.output:
                self._idle = 0
                stream.stalled = now
            parts.append(_frame(_DATA, 0, number, data))
            size += sent + 9
            if is_last:
                parts.append(_frame(_HEADERS, _END_HEADERS | _END_STREAM, number, stream.trailers or b""))
            elif stream.output and stream.send_window > 0:
                waiting[number] = stream
            if size > _WRITE_BYTES or is_last or not waiting:
                self.write(b"".join(parts))
                parts, size = [], 0
            if is_last:
                self.close_stream(stream)
            elif not stream.output:
                stream.receiver.output_taken()
        if parts:
            self.write(b"".join(parts))

    def reset(self, number: int, code: ErrorCode) -> None:
        """Tell the client that a stream has ended."""
        self.write(_frame(_RST_STREAM, 0, number, int(code).to_bytes(4, "big")))
        self._dismiss(number)

    def _dismiss(self, number: int) -> None:
        if len(self._dismissed) >= _MOST_DISMISSED:
            del self._dismissed[next(iter(self._dismissed))]
        self._dismissed[number] = None

    def close_stream(self, stream: Http2Stream, *, is_told: bool = False) -> None:
        """A stream is answered; a client that still sends is told that nobody reads it."""
        if stream.is_receiving and not is_told:
            self.reset(stream.number, ErrorCode.NO_ERROR)
        self._forget(stream)
        self._close_if_over()

    def _lose(self, stream: Http2Stream) -> None:
        """Nobody waits for a stream's answer any more."""
        receiver = stream.receiver
        self._forget(stream)
        receiver.stream_ended()

    def _forget(self, stream: Http2Stream) -> None:
        stream.closed = True
        stream.receiver = _NOBODY  # they refer to each other, and are to go at once
        self._streams.pop(stream.number, None)
        self.waiting.pop(stream.number, None)
        if stream.output:
            self._unsent -= stream.unsent
            stream.output.clear()
        self._since = self._loop.time()

    def _end_stream(self, number: int, code: ErrorCode) -> None:
        """Reset a stream for a fault of its client."""
        self._count_fault()
        self.reset(number, code)
        stream = self._streams.get(number)
        if stream is not None:
            self._lose(stream)
            self._close_if_over()

    def _count_fault(self) -> None:
        if self._resets.take(self._loop.time()):
            raise _ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, "too many streams are faulty")

    # --- its end ---

    def _end(self, code: ErrorCode, reason: str) -> None:
        """Close it for a fault of its client."""
        self._leave(_goaway(self._last if self._stage < 2 else self._promised, code, reason.encode()))

    def _leave(self, last_words: bytes) -> None:
        """Close it; its client has a moment to read why: what it still sends is dropped."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        self.write(last_words)
        self._stage, self._rest = 3, b""
        self._end_streams()
        if self.is_paused:
            transport.abort()  # it would not be read
            return
        if transport.can_write_eof():
            transport.write_eof()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(_GOODBYE_SECONDS, transport.close)

    def _end_streams(self) -> None:
        for stream in [*self._streams.values()]:
            self._lose(stream)

    def end_when_idle(self) -> None:
        """Close it when its requests are answered: those, too, that the client sends before it reads that."""
        if self._stage == 0:
            self._stage = 1
            self.write(_goaway(_LARGEST_WINDOW, ErrorCode.NO_ERROR) + _frame(_PING, 0, 0, _GOODBYE))
            self._timer = self._loop.call_later(_GOODBYE_SECONDS, self._take_no_more)

    def _take_no_more(self) -> None:
        if self._stage < 2:
            self._stage, self._promised = 2, self._last
            self.write(_goaway(self._last, ErrorCode.NO_ERROR))
            self._close_if_over()

    def _close_if_over(self) -> None:
        if self._stage != 2 or self._streams or self._transport is None:
            return
        if self._is_left and not self.is_paused and self._transport.can_write_eof():
            self._leave(b"")  # to close at once could cost the client its last answers: TCP resets where it sends on
        else:
            self._transport.close()

    def check(self, now: float) -> None:
        """Close it, or streams of it, if its client has been too slow, by the loop's time."""
        limits, waited = self._connections.limits, now - self._since
        if self.is_paused or self._stage == 3:
            if waited > limits.idle_seconds:
                self.abort()  # it does not read its answers
        elif not self._is_greeted or self._block_number or self._rest:
            if waited > limits.request_seconds:
                self._end(ErrorCode.PROTOCOL_ERROR, "a frame did not arrive in time")
        elif not self._streams:
            if waited > limits.idle_seconds:
                self.end_when_idle()
        else:
            for stream in [*self._streams.values()]:
                if stream.output and now - stream.stalled > limits.idle_seconds:
                    self.reset(stream.number, ErrorCode.CANCEL)
                    self._lose(stream)
                else:
                    stream.receiver.check(now)

    def abort(self) -> None:
        """Close it at once."""
        if self._transport is not None:
            self._transport.abort()


def encode_fields(fields: Iterable[tuple[bytes, bytes]]) -> bytes:
    """A header block of literal fields that no table keeps: it means the same on every connection."""
    parts = []
    for name, value in fields:
        if len(name) < 127 and len(value) < 127:  # which nearly all are, in every answer
            parts.append(b"\0%c%b%c%b" % (len(name), name, len(value), value))
        else:
            parts.append(b"\0" + _sized(name) + _sized(value))
    return b"".join(parts)


def _sized(text: bytes) -> bytes:
    """A string as HPACK has it, without Huffman's code, after its length in a prefix of seven bits."""
    size = len(text)
    if size < 127:
        return bytes((size,)) + text
    rest, parts = size - 127, bytearray((127,))
    while rest >= 128:
        parts.append(rest & 127 | 128)
        rest >>= 7
    parts.append(rest)
    return bytes(parts) + text


def _frame(kind: int, flags: int, number: int, payload: bytes) -> bytes:
    return _FRAME.pack(len(payload) >> 8, len(payload) & 255, kind, flags, number) + payload


def _goaway(last: int, code: ErrorCode, reason: bytes = b"") -> bytes:
    return _frame(_GOAWAY, 0, 0, struct.pack(">II", last, code) + reason)


def _unpadded(payload: bytes) -> bytes:
    """What is left without its padding."""
    if not payload or payload[0] >= len(payload):
        raise _ConnectionFault(ErrorCode.PROTOCOL_ERROR, "a frame has more padding than bytes")
    return payload[1 : len(payload) - payload[0]]


def _is_malformed(name: bytes, value: bytes) -> bool:
    """Whether this is no header field, or one of HTTP/1's connections."""
    return (
        _NAME.fullmatch(name) is None
        or _ENDS_FIELD.search(value) is not None
        or name in _OF_CONNECTIONS
        or (name == b"te" and value != b"trailers")
    )


def _request_head(fields: Fields) -> RequestHead:
    """A request's head, where it is as RFC 9113 has it in section 8."""
    pseudo: dict[bytes, bytes] = {}
    rest: list[tuple[bytes, bytes]] = []
    size, length = 0, None
    for name, value in fields:
        size += len(name) + len(value) + 32
        if name in _PSEUDO:
            if rest or name in pseudo:
                raise _StreamFault(ErrorCode.PROTOCOL_ERROR)
            pseudo[name] = value
            continue
        if _is_malformed(name, value):
            raise _StreamFault(ErrorCode.PROTOCOL_ERROR)
        if name == b"content-length":
            if not value.isdigit() or len(value) > 18 or length not in (None, int(value)):
                raise _StreamFault(ErrorCode.PROTOCOL_ERROR)
            length = int(value)
        rest.append((name, value))
    method, path = pseudo.get(b":method", b""), pseudo.get(b":path", b"")
    if not method or not pseudo.get(b":scheme") or path[:1] not in (b"/", b"*"):
        raise _StreamFault(ErrorCode.PROTOCOL_ERROR)
    return RequestHead(method, path, rest, size, length)
