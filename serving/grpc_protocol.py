"""gRPC over HTTP/2, the server's side: messages with their lengths, compression, deadlines, a status behind the answer.

As gRPC's document PROTOCOL-HTTP2 has it. What a method means is its handler's business; see `grpc_server`.
"""

from __future__ import annotations

import asyncio
import logging
import re
import struct
import time
import zlib
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final, TypeAlias
from urllib.parse import quote

from .api import RequestError, StatusCode
from .http2 import STREAM_WINDOW, ErrorCode, Http2Stream, RequestHead, encode_fields

_LOG: Final = logging.getLogger("drivetrain.serving")

Unary: TypeAlias = "Callable[[bytes, GrpcCall], Awaitable[bytes]]"
"""A method of one request and one answer: bytes of a message in, bytes of a message out; raises RequestError."""
Streamed: TypeAlias = "Callable[[AsyncIterator[bytes], GrpcCall], AsyncGenerator[bytes, None]]"
"""A method of many answers; where its request is one, that is the iterator's only item."""
Pairs: TypeAlias = Sequence[tuple[str, str]]

_PREFIX: Final = struct.Struct(">BI")
_COMPRESSIONS: Final = {"identity": 0, "gzip": 31, "deflate": 15}  # and zlib's number for each
_TIMEOUT: Final = re.compile(r"(\d{1,8})([HMSmun])")
_UNITS: Final = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
_PLAIN: Final = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) != "%")  # as it is in a grpc-message
_HEAD: Final = ((b":status", b"200"), (b"content-type", b"application/grpc"))
_ENCODINGS: Final = (b"grpc-accept-encoding", ",".join(_COMPRESSIONS).encode())
_BEGIN: Final = encode_fields((*_HEAD, _ENCODINGS))
_OK: Final = encode_fields(((b"grpc-status", b"0"),))
_MOST_BUFFERED: Final = 64 << 20  # bytes that a connection's requests may keep here, or more for large messages
_LARGE_MESSAGES: Final = 4
_MESSAGE_COST: Final = 128  # bytes that a message of a stream takes here beside its own, which may be none


@dataclass(frozen=True, slots=True)
class GrpcMethod:
    """How calls of a method are answered.

    Attributes:
        unary: What answers, where a call has one request and one answer.
        streamed: What answers, where it has many answers.
        takes_stream: Whether it has many requests.
    """

    unary: Unary | None = None
    streamed: Streamed | None = None
    takes_stream: bool = False


@dataclass(slots=True)
class _Reading:
    """What a request's head means, whichever call it begins."""

    method: GrpcMethod
    headers: Mapping[str, str]
    metadata: Pairs
    compression: int
    timeout: float | None
    refusal: RequestError | None = None
    status: int = 200


_NO_METHOD: Final = GrpcMethod()


@dataclass(frozen=True)
class GrpcHandler:
    """Takes requests over HTTP/2, and has methods answer them.

    Attributes:
        methods: By their paths, "/package.Service/Method".
        max_bytes: Of the largest message that is read, as it is unpacked.
        max_head: Bytes of the largest head.
        request_seconds: For a message to arrive whole.
    """

    methods: Mapping[str, GrpcMethod]
    max_bytes: int
    max_head: int = 16 << 10
    request_seconds: float = 30.0

    def __call__(self, stream: Http2Stream, head: RequestHead) -> GrpcCall:
        """Begin a call."""
        reading: _Reading | None = head.reading
        if reading is None:
            reading = head.reading = self._read(head)
        call = GrpcCall(self, stream, reading)
        if reading.status != 200:
            stream.answer(encode_fields(((b":status", b"%d" % reading.status),)), b"", b"")
        elif reading.refusal is not None:
            call.refuse(reading.refusal)
        return call

    def _read(self, head: RequestHead) -> _Reading:
        # Metadata of bytes, "…-bin", are nothing that we would read.
        metadata = [(name.decode(), value.decode("latin-1")) for name, value in head.fields if name[-4:] != b"-bin"]
        headers = dict(metadata)
        reading = _Reading(_NO_METHOD, headers, metadata, 0, None)
        content_type = headers.get("content-type", "")
        if head.method != b"POST":
            reading.status = 405
        elif not content_type.startswith("application/grpc") or content_type[16:17] not in ("", "+", ";"):
            reading.status = 415
        else:
            try:
                self._interpret(reading, head)
            except RequestError as error:
                reading.refusal = error
        return reading

    def _interpret(self, reading: _Reading, head: RequestHead) -> None:
        if head.size > self.max_head:
            raise RequestError(StatusCode.RESOURCE_EXHAUSTED, f"the metadata have more than {self.max_head:,} bytes")
        method = self.methods.get(head.path.decode("latin-1"))
        if method is None:
            raise RequestError(StatusCode.UNIMPLEMENTED, f"there is no method {head.path.decode('latin-1')!r:.200}")
        encoding = reading.headers.get("grpc-encoding", "identity")
        compression = _COMPRESSIONS.get(encoding)
        if compression is None:
            message = f"there is no compression {encoding!r:.40} here; use {', '.join(_COMPRESSIONS)}"
            raise RequestError(StatusCode.UNIMPLEMENTED, message)
        timeout = reading.headers.get("grpc-timeout")
        if timeout is not None:
            match = _TIMEOUT.fullmatch(timeout)
            if match is None:
                message = f"grpc-timeout is {timeout!r:.40}; use up to eight digits and one of H, M, S, m, u and n"
                raise RequestError(StatusCode.INVALID_ARGUMENT, message)
            reading.timeout = int(match[1]) * _UNITS[match[2]]
        reading.method, reading.compression = method, compression


class GrpcCall:
    """A call: what its client says beside its messages, and what goes behind its answer.

    Attributes:
        headers: Of the request, in small letters; of a name that came twice the last.
        metadata: All of them, in their order.
        deadline: When the client stops waiting, by `time.monotonic`; None: never.
        trailers: What the handler wants to go behind the answer, or behind an error.
    """

    __slots__ = (
        "_compression", "_drained", "_ended", "_handler", "_kept", "_method", "_need", "_owed", "_queue",
        "_queued", "_rest", "_since", "_stream", "_task", "_timer", "_wake", "deadline", "headers", "metadata",
        "trailers",
    )  # fmt: skip

    def __init__(self, handler: GrpcHandler, stream: Http2Stream, reading: _Reading) -> None:
        self._handler = handler
        self._stream = stream
        self._method = reading.method
        self._compression = reading.compression
        self.headers = reading.headers
        self.metadata = reading.metadata
        self.trailers: Pairs = ()
        self.deadline: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._rest = bytearray()  # of a message that is not whole
        self._need = 5
        self._kept = 0  # bytes that the connection counts as ours
        self._ended = False
        # Of streams
        self._queue: deque[tuple[int, bytes]] = deque()  # messages that the handler has not taken, as they came
        self._queued = 0
        self._owed = 0
        self._wake: asyncio.Future[None] | None = None
        self._drained: asyncio.Future[None] | None = None
        loop = asyncio.get_running_loop()
        self._since = 0.0 if self._method.takes_stream else loop.time()  # when what is to be whole soon began
        if reading.timeout is not None:
            self.deadline = time.monotonic() + reading.timeout
            self._timer = loop.call_later(reading.timeout, self._late)

    # --- the stream's side ---

    def body_received(self, data: bytes, ended: bool) -> None:
        """A part of the request's messages."""
        if self._stream.closed:
            return
        self._ended = ended
        try:
            self._take(data)
        except RequestError as error:
            self._abort(error)

    def stream_ended(self) -> None:
        """There is nobody to answer: stop."""
        self._stop()
        self._cancel()

    def output_taken(self) -> None:
        """More may be sent."""
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    def check(self, now: float) -> None:
        """End the call if a message has been on its way for too long."""
        if self._since and now - self._since > self._handler.request_seconds:
            self._abort(RequestError(StatusCode.DEADLINE_EXCEEDED, "the request did not arrive in time"))

    # --- messages ---

    def _take(self, data: bytes) -> None:
        """Have whole messages answered, and keep the rest."""
        fresh = len(data)
        if not self._ended or self._method.takes_stream:
            self._keep(fresh)
        if self._rest:
            self._rest += data
            if len(self._rest) < self._need and not self._ended:
                self._credit(fresh)
                return
            data = bytes(self._rest)
        position, size = 0, len(data)
        largest, messages = self._handler.max_bytes, []
        while size - position >= 5:
            is_packed, length = _PREFIX.unpack_from(data, position)
            if length > largest:
                raise RequestError(
                    StatusCode.RESOURCE_EXHAUSTED, f"a message has {length:,} bytes, of at most {largest:,}"
                )
            if is_packed > 1 or (is_packed and not self._compression):
                raise RequestError(StatusCode.INTERNAL, "a message is compressed in a way that was not announced")
            end = position + 5 + length
            if end > size:
                self._need = end - position
                break
            messages.append((is_packed, data[position + 5 : end]))
            position = end
        else:
            self._need = 5
        self._rest = bytearray(data[position:])
        if self._ended and self._rest:
            raise RequestError(StatusCode.INTERNAL, "the last message is not whole")
        if self._method.takes_stream:
            self._enqueue(messages, fresh)
            return
        self._credit(fresh)
        if len(messages) + len(self._queue) > 1 or (self._ended and not messages and not self._queue):
            raise RequestError(StatusCode.UNIMPLEMENTED, "the method takes one message")
        self._queue.extend(messages)
        if self._ended:
            self._since = 0.0
            content = self._unpacked(*self._queue.popleft())
            if self._method.unary is not None:
                self._start(self._answer(self._method.unary, content))
            elif self._method.streamed is not None:
                self._start(self._answer_many(self._method.streamed, _alone(content)))

    def _enqueue(self, messages: Sequence[tuple[int, bytes]], size: int) -> None:
        """Messages of a stream: the client may send more, as long as the handler does not fall far behind."""
        self._keep(_MESSAGE_COST * len(messages))
        self._queue.extend(messages)
        self._queued += sum(len(content) + 5 + _MESSAGE_COST for _, content in messages)
        if self._queued < STREAM_WINDOW:
            self._credit(size)
        else:
            self._owed += size
        if not self._rest:
            self._since = 0.0
        elif messages or not self._since:
            self._since = asyncio.get_running_loop().time()
        if self._task is None and self._method.streamed is not None:
            self._start(self._answer_many(self._method.streamed, self._contents()))
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def _contents(self) -> AsyncIterator[bytes]:
        """The messages of a stream, as they come."""
        while True:
            while self._queue:
                is_packed, content = self._queue.popleft()
                size = len(content) + 5 + _MESSAGE_COST
                self._queued -= size
                self._keep(-size)
                if self._owed and self._queued < STREAM_WINDOW:
                    self._credit(self._owed)
                    self._owed = 0
                yield self._unpacked(is_packed, content)
            if self._ended:
                return
            self._wake = asyncio.get_running_loop().create_future()
            await self._wake

    def _credit(self, size: int) -> None:
        if not self._ended:
            self._stream.credit(size)

    def _keep(self, size: int) -> None:
        """Count bytes that are kept here, or no more."""
        connection, most = self._stream.connection, max(_MOST_BUFFERED, _LARGE_MESSAGES * self._handler.max_bytes)
        self._kept += size
        connection.buffered += size
        if size > 0 and connection.buffered > most:
            raise RequestError(StatusCode.RESOURCE_EXHAUSTED, "too much of this connection waits; ask for less at once")

    def _unpacked(self, is_packed: int, content: bytes) -> bytes:
        if not is_packed:
            return content
        unpacking, largest = zlib.decompressobj(self._compression), self._handler.max_bytes
        try:
            unpacked = unpacking.decompress(content, largest + 1)
        except zlib.error:
            raise RequestError(StatusCode.INTERNAL, "a message is not compressed as it says") from None
        if len(unpacked) > largest:
            raise RequestError(StatusCode.RESOURCE_EXHAUSTED, f"a message has more than {largest:,} bytes")
        if not unpacking.eof or unpacking.unused_data:
            raise RequestError(StatusCode.INTERNAL, "a message is not compressed as it says")
        if not self._method.takes_stream:
            self._keep(len(unpacked))
        return unpacked

    # --- answers ---

    def _start(self, answering: Coroutine[Any, Any, None]) -> None:
        task = self._task = asyncio.get_running_loop().create_task(answering)
        working = self._stream.connection.working
        working.add(task)  # a loop alone does not keep its tasks
        task.add_done_callback(working.discard)

    async def _answer(self, unary: Unary, content: bytes) -> None:
        try:
            body = await unary(content, self)
        except Exception as error:
            self._failed(error)
            return
        self._finish()
        self._stream.answer(_BEGIN, b"\0" + len(body).to_bytes(4, "big") + body, self._ok())

    async def _answer_many(self, streamed: Streamed, contents: AsyncIterator[bytes]) -> None:
        stream, answers = self._stream, streamed(contents, self)
        try:
            async with aclosing(answers):
                async for body in answers:
                    stream.begin(_BEGIN)
                    if not stream.send(b"\0" + len(body).to_bytes(4, "big") + body):
                        self._drained = asyncio.get_running_loop().create_future()
                        await self._drained
        except Exception as error:
            self._failed(error)
            return
        self._finish()
        stream.begin(_BEGIN)
        stream.end(self._ok())

    def _ok(self) -> bytes:
        return _OK + encode_fields(_encoded(self.trailers)) if self.trailers else _OK

    def _failed(self, error: Exception) -> None:
        if not isinstance(error, RequestError):
            _LOG.error("a call failed", exc_info=error)
            error = RequestError(StatusCode.INTERNAL, "the server failed to answer")
        self._finish()
        self.refuse(error)

    def _finish(self) -> None:
        """The handler is done. A client that has read its answer may ask again before the loop says so of the task."""
        self._stop()
        if self._task is not None:
            self._stream.connection.working.discard(self._task)

    def refuse(self, error: RequestError) -> None:
        """Answer with an error's code and message."""
        self._stop()
        stream = self._stream
        message = quote(error.message, safe=_PLAIN).encode()
        status = [(b"grpc-status", b"%d" % error.code), (b"grpc-message", message), *_encoded(self.trailers)]
        if stream.is_begun:
            stream.end(encode_fields(status))
        else:
            stream.answer(encode_fields((*_HEAD, _ENCODINGS, *status)), b"", b"")

    def _abort(self, error: RequestError) -> None:
        """End the call from outside of its handler."""
        if self._stream.output:
            self._stop()
            self._stream.reset(ErrorCode.CANCEL)  # the client takes no answer
        else:
            self.refuse(error)
        self._cancel()

    def _cancel(self) -> None:
        task, self._task = self._task, None  # its error refers to this call by way of frames: both are to go at once
        if task is not None:
            task.cancel()

    def _late(self) -> None:
        self._abort(RequestError(StatusCode.DEADLINE_EXCEEDED, "the deadline passed before there was an answer"))

    def _stop(self) -> None:
        """Nothing more is to come of the client."""
        if self._timer is not None:
            self._timer.cancel()
        self._stream.connection.buffered -= self._kept
        self._kept = 0
        self._since = 0.0
        self._queue.clear()
        self._rest = bytearray()


async def _alone(content: bytes) -> AsyncIterator[bytes]:
    yield content


def _encoded(pairs: Pairs) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode("ascii", "replace")) for name, value in pairs]
