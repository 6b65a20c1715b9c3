"""The HTTP/2 connection, by raw frames: answers, windows, what breaks the protocol, what is too much, its end."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import socket
import struct
import tracemalloc
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from http.client import HTTPConnection
from typing import Any, TypeVar

import pytest

pytest.importorskip("hpack")

from drivetrain.serving.http import Connections, HttpLimits
from drivetrain.serving.http2 import (
    MOST_STREAMS,
    PREFACE,
    STREAM_WINDOW,
    ErrorCode,
    Http2Connection,
    Http2Stream,
    RequestHead,
    encode_fields,
)
from drivetrain.tests.serving.grpc_running import handler_running
from drivetrain.tests.serving.http2_frames import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PADDED,
    PING,
    PRIORITIZED,
    PRIORITY,
    PUSH_PROMISE,
    REQUEST,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    FrameClient,
    frame,
    settings,
    window_update,
)
from drivetrain.tests.serving.passing_time import pass_time
from hpack import Decoder, Encoder
from hypothesis import given as examples
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

T = TypeVar("T")
HEAD = encode_fields(((b":status", b"200"),))
TRAILERS = encode_fields(((b"x-sum", b"1"),))
LOG = "drivetrain.serving"


@pytest.fixture(autouse=True)
def _looked_at_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a slow client waits for is its limit, and not the server's next look."""
    monkeypatch.setattr("drivetrain.serving.http._LOOK_SECONDS", 0.05)


class Echo:
    """Answers with the body; "/": with a page; "/head": with what the head says; "/parts": as it comes; "/wait": never.

    "/hold" neither, and it takes nothing of what comes.
    """

    ended = 0

    def __init__(self, stream: Http2Stream, head: RequestHead) -> None:
        if head.path == b"/fail":
            raise ValueError("no")
        self.stream = stream
        self.head = head
        self.body = b""

    def body_received(self, data: bytes, ended: bool) -> None:
        if self.head.path != b"/hold":
            self.stream.credit(len(data))
        if self.head.path == b"/parts":
            self.stream.begin(HEAD)
            if data:
                self.stream.send(data)
            if ended:
                self.stream.end(TRAILERS)
            return
        self.body += data
        if ended and self.head.path == b"/":
            self.body = b"a page"
        if ended and self.head.path == b"/head":
            self.body = repr([self.head.method, self.head.path, *map(tuple, self.head.fields)]).encode()
        if ended and self.head.path != b"/wait":
            self.stream.answer(HEAD, self.body, TRAILERS)

    def stream_ended(self) -> None:
        Echo.ended += 1

    def output_taken(self) -> None: ...

    def check(self, now: float) -> None: ...


@asynccontextmanager
async def running(limits: HttpLimits | None = None) -> AsyncIterator[tuple[int, Connections[Http2Connection]]]:
    """A server, and its port."""
    Echo.ended = 0
    connections = Connections(partial(Http2Connection, Echo), limits or HttpLimits())
    server = await asyncio.get_running_loop().create_server(connections, "127.0.0.1", 0)
    watching = asyncio.ensure_future(connections.watch())
    try:
        yield server.sockets[0].getsockname()[1], connections
    finally:
        watching.cancel()
        server.close()
        await connections.drain(1)
        await asyncio.gather(watching, return_exceptions=True)


def run(test: Callable[[FrameClient], Coroutine[Any, Any, T]], limits: HttpLimits | None = None) -> T:
    """What a test of a connection gives."""

    async def scenario() -> T:
        async with running(limits) as (port, _):
            client = await FrameClient.open(port)
            try:
                return await test(client)
            finally:
                await client.close()

    return asyncio.run(asyncio.wait_for(scenario(), 60))


def request_to(path: str, *fields: tuple[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple((name, path if name == ":path" else value) for name, value in REQUEST) + fields


# --- requests and answers ---


def test_a_body_comes_back_with_what_follows_it() -> None:
    async def test(client: FrameClient) -> None:
        client.send(client.request(1, 0), frame(DATA, 0, 1, b"ab"), frame(DATA, END_STREAM, 1, b"cd"))
        assert await client.body(1) == ({b":status": b"200", b"x-sum": b"1"}, b"abcd")

    run(test)


def test_what_comes_byte_by_byte_means_the_same() -> None:
    async def test(client: FrameClient) -> None:
        request = client.request(1, 0)
        for byte in request + frame(DATA, END_STREAM, 1, b"abc"):
            client.send(bytes((byte,)))
            await client.writer.drain()
            await asyncio.sleep(0)
        assert (await client.body(1))[1] == b"abc"

    run(test)


def test_padding_priorities_continuations_and_trailers() -> None:
    async def test(client: FrameClient) -> None:
        block = client.block(*REQUEST)
        padded = bytes((3,)) + (0).to_bytes(4, "big") + b"\x10" + block[:2] + bytes(3)
        client.send(frame(HEADERS, PADDED | PRIORITIZED, 1, padded))
        client.send(frame(CONTINUATION, 0, 1, block[2:5]), frame(CONTINUATION, END_HEADERS, 1, block[5:]))
        client.send(frame(DATA, PADDED, 1, b"\x02ab\0\0"), client.request(1, END_STREAM, (("x-sum", "2"),)))
        assert (await client.body(1))[1] == b"ab"

    run(test)


@pytest.mark.parametrize("path", ["/echo", "/parts"])
def test_bodies_wait_for_windows(path: str) -> None:
    """In both directions: of the stream, and of the connection."""

    async def test(client: FrameClient) -> None:
        body = bytes(range(256)) * 8192  # two windows of a stream
        client.send(settings(s4=20_000), client.request(1, 0, request_to(path)))
        sent, received, window = 0, b"", STREAM_WINDOW
        while len(received) < len(body):
            while sent < len(body) and window:
                part = body[sent : sent + min(16_384, window)]
                client.send(frame(DATA, END_STREAM if sent + len(part) == len(body) else 0, 1, part))
                sent += len(part)
                window -= len(part)
            each = await client.read()
            assert each is not None
            assert each.kind not in (RST_STREAM, GOAWAY)
            if each.kind == WINDOW_UPDATE and each.stream == 1:
                window += int.from_bytes(each.payload, "big")
            elif each.kind == DATA:
                received += each.payload
                client.send(window_update(len(each.payload)), window_update(len(each.payload), 1))
        assert received == body
        assert (await client.until(HEADERS, 1)).flags & END_STREAM

    run(test)


def test_many_streams_take_turns() -> None:
    """A large answer does not keep the others waiting."""

    async def test(client: FrameClient) -> None:
        client.send(settings(s4=1 << 20), window_update(1 << 24))
        for stream in (1, 3, 5):
            client.send(client.request(stream, 0), *[frame(DATA, 0, stream, bytes(16_384))] * 20)
        client.send(*[frame(DATA, END_STREAM, stream) for stream in (1, 3, 5)])
        ends: list[int] = []
        sizes = {1: 0, 3: 0, 5: 0}
        while len(ends) < 3:
            each = await client.read()
            assert each is not None
            if each.kind == DATA:
                sizes[each.stream] += len(each.payload)
            if each.flags & END_STREAM and each.kind in (DATA, HEADERS):
                ends.append(each.stream)
        assert set(sizes.values()) == {16_384 * 20}

    run(test)


@hypothesis_settings(max_examples=25, deadline=None)
@examples(st.data())
def test_header_fields_arrive_whichever_table_they_come_from(data: st.DataObject) -> None:
    """The encoder is hpack's: with changes of the table's size, fields that it keeps, and the same again and again."""
    names = st.sampled_from(["a", "b", "grpc-timeout", "x-request-id"])
    sent = data.draw(
        st.lists(st.lists(st.tuples(names, st.sampled_from(["1", "2" * 300, "ü"])), max_size=3), max_size=9)
    )
    sizes = data.draw(st.lists(st.sampled_from([None, 0, 100, 4096]), min_size=len(sent), max_size=len(sent)))

    async def test(client: FrameClient) -> None:
        for turn, (fields, size) in enumerate(zip(sent, sizes, strict=True)):
            if size is not None:
                client.encoder.header_table_size = size
            for repeat in range(3):
                stream = 1 + 2 * (3 * turn + repeat)
                client.send(client.request(stream, END_STREAM, request_to("/head", *fields)))
                expected = [(name.encode(), value.encode()) for name, value in request_to("/head", *fields)]
                body = (await client.body(stream))[1]
                plain = [pair for pair in expected if not pair[0].startswith(b":")]
                assert body == repr([b"POST", b"/head", *plain]).encode()

    run(test)


@examples(st.lists(st.tuples(st.binary(min_size=1, max_size=300), st.binary(max_size=20_000)), max_size=5))
@hypothesis_settings(max_examples=50, deadline=None)
def test_our_blocks_are_read_by_another_decoder(fields: list[tuple[bytes, bytes]]) -> None:
    block = encode_fields([(b":status", b"200"), *fields])
    decoded = Decoder(max_header_list_size=1 << 20).decode(block, raw=True)
    assert [tuple(pair) for pair in decoded] == [(b":status", b"200"), *fields]


def test_a_client_without_a_table_is_told_that_ours_is_empty() -> None:
    async def test(client: FrameClient) -> None:
        client.send(settings(s1=0), client.request(1))
        await client.until(SETTINGS, 0)
        client.decoder.max_allowed_table_size = 0
        client.decoder.header_table_size = 4096  # refused, unless the block begins with a change of it
        assert (await client.body(1))[0][b":status"] == b"200"

    run(test)


# --- what breaks the protocol ---


def corpus() -> dict[str, tuple[int, ErrorCode, Callable[[FrameClient], bytes]]]:
    """Frames by what is wrong with them, and how each ends: a connection, or a stream."""
    code = ErrorCode
    plain = dict(REQUEST)

    def fields(**changes: str | None) -> Callable[[FrameClient], bytes]:
        changed = {**plain, **{name.replace("__", ":").replace("_", "-"): value for name, value in changes.items()}}
        return lambda client: client.request(1, END_STREAM, tuple((n, v) for n, v in changed.items() if v is not None))

    def opened(*frames: bytes, path: str = "/wait", flags: int = 0) -> Callable[[FrameClient], bytes]:
        return lambda client: client.request(1, flags, request_to(path)) + b"".join(frames)

    def raw(*frames: bytes) -> Callable[[FrameClient], bytes]:
        return lambda client: b"".join(frames)

    return {
        "DATA of stream 0": (GOAWAY, code.PROTOCOL_ERROR, raw(frame(DATA, 0, 0, b"a"))),
        "DATA of an idle stream": (GOAWAY, code.PROTOCOL_ERROR, raw(frame(DATA, 0, 1, b"a"))),
        "DATA after the end": (RST_STREAM, code.STREAM_CLOSED, opened(frame(DATA, 0, 1, b"a"), flags=END_STREAM)),
        "more padding than bytes": (GOAWAY, code.PROTOCOL_ERROR, opened(frame(DATA, PADDED, 1, b"\x05abc"))),
        "padding of nothing": (GOAWAY, code.PROTOCOL_ERROR, opened(frame(DATA, PADDED, 1))),
        "HEADERS of an even stream": (GOAWAY, code.PROTOCOL_ERROR, lambda client: client.request(2)),
        "HEADERS of stream 0": (GOAWAY, code.PROTOCOL_ERROR, lambda client: client.request(0)),
        "HEADERS of an older stream": (
            GOAWAY, code.STREAM_CLOSED, lambda client: client.request(5, 0, request_to("/wait")) + client.request(3),
        ),
        "trailers that do not end": (RST_STREAM, code.PROTOCOL_ERROR, lambda client: (
            client.request(1, 0, request_to("/wait")) + client.request(1, 0, (("a", "b"),))
        )),
        "a pseudo field among trailers": (
            RST_STREAM, code.PROTOCOL_ERROR,
            lambda client: client.request(1, 0, request_to("/wait")) + client.request(1, END_STREAM, ((":path", "/"),)),
        ),
        "a frame within a header block": (
            GOAWAY, code.PROTOCOL_ERROR,
            lambda client: frame(HEADERS, 0, 1, client.block(*REQUEST)) + frame(PING, 0, 0, bytes(8)),
        ),
        "CONTINUATION of another stream": (
            GOAWAY, code.PROTOCOL_ERROR,
            lambda client: frame(HEADERS, 0, 1, client.block(*REQUEST)) + frame(CONTINUATION, END_HEADERS, 3, b""),
        ),
        "CONTINUATION of nothing": (GOAWAY, code.PROTOCOL_ERROR, raw(frame(CONTINUATION, END_HEADERS, 1, b""))),
        "an index that is not there": (GOAWAY, code.COMPRESSION_ERROR, raw(frame(HEADERS, 5, 1, b"\xff\x20"))),
        "an endless number": (GOAWAY, code.COMPRESSION_ERROR, raw(frame(HEADERS, 5, 1, b"\xff" * 9000))),
        "a string that is cut off": (GOAWAY, code.COMPRESSION_ERROR, raw(frame(HEADERS, 5, 1, b"\0\x7f\x10abc"))),
        "a table that is too large": (GOAWAY, code.COMPRESSION_ERROR, raw(frame(HEADERS, 5, 1, b"\x3f\xff\xff\x7f"))),
        "Huffman's end": (GOAWAY, code.COMPRESSION_ERROR, raw(frame(HEADERS, 5, 1, b"\0\x84\xff\xff\xff\xff\0"))),
        "priority of itself": (GOAWAY, code.PROTOCOL_ERROR, lambda client: frame(
            HEADERS, END_STREAM | END_HEADERS | PRIORITIZED, 1, b"\0\0\0\x01\x10" + client.block(*REQUEST)
        )),
        "HEADERS shorter than their priority": (GOAWAY, code.FRAME_SIZE_ERROR, raw(frame(HEADERS, 0x24, 1, b"abc"))),
        "PRIORITY that is too short": (RST_STREAM, code.FRAME_SIZE_ERROR, opened(frame(PRIORITY, 0, 1, b"abc"))),
        "PRIORITY of stream 0": (GOAWAY, code.PROTOCOL_ERROR, raw(frame(PRIORITY, 0, 0, bytes(5)))),
        "PRIORITY of itself": (RST_STREAM, code.PROTOCOL_ERROR, opened(frame(PRIORITY, 0, 1, b"\0\0\0\x01\0"))),
        "RST_STREAM of an idle stream": (GOAWAY, code.PROTOCOL_ERROR, raw(frame(RST_STREAM, 0, 1, bytes(4)))),
        "RST_STREAM without a code": (GOAWAY, code.FRAME_SIZE_ERROR, opened(frame(RST_STREAM, 0, 1, b"ab"))),
        "SETTINGS of a stream": (GOAWAY, code.PROTOCOL_ERROR, raw(frame(SETTINGS, 0, 1))),
        "SETTINGS that are cut off": (GOAWAY, code.FRAME_SIZE_ERROR, raw(frame(SETTINGS, 0, 0, b"abcde"))),
        "SETTINGS acknowledged with some": (GOAWAY, code.FRAME_SIZE_ERROR, raw(frame(SETTINGS, ACK, 0, bytes(6)))),
        "a push of 2": (GOAWAY, code.PROTOCOL_ERROR, raw(settings(s2=2))),
        "too large a first window": (GOAWAY, code.FLOW_CONTROL_ERROR, raw(settings(s4=1 << 31))),
        "too small a frame": (GOAWAY, code.PROTOCOL_ERROR, raw(settings(s5=16_383))),
        "too large a frame": (GOAWAY, code.PROTOCOL_ERROR, raw(settings(s5=1 << 24))),
        "a promise": (GOAWAY, code.PROTOCOL_ERROR, raw(frame(PUSH_PROMISE, END_HEADERS, 1, bytes(4)))),
        "PING of a stream": (GOAWAY, code.PROTOCOL_ERROR, raw(frame(PING, 0, 1, bytes(8)))),
        "PING of seven bytes": (GOAWAY, code.FRAME_SIZE_ERROR, raw(frame(PING, 0, 0, bytes(7)))),
        "GOAWAY of a stream": (GOAWAY, code.PROTOCOL_ERROR, raw(frame(GOAWAY, 0, 1, bytes(8)))),
        "GOAWAY that is cut off": (GOAWAY, code.FRAME_SIZE_ERROR, raw(frame(GOAWAY, 0, 0, bytes(4)))),
        "a window of nothing": (GOAWAY, code.PROTOCOL_ERROR, raw(window_update(0))),
        "a stream's window of nothing": (RST_STREAM, code.PROTOCOL_ERROR, opened(window_update(0, 1))),
        "a window of an idle stream": (GOAWAY, code.PROTOCOL_ERROR, raw(window_update(1, 1))),
        "a window beyond all": (GOAWAY, code.FLOW_CONTROL_ERROR, raw(window_update((1 << 31) - 1))),
        "a stream's window beyond all": (RST_STREAM, code.FLOW_CONTROL_ERROR, opened(window_update((1 << 31) - 1, 1))),
        "windows beyond all by settings": (
            GOAWAY, code.FLOW_CONTROL_ERROR, opened(window_update(1 << 30, 1), settings(s4=(1 << 31) - 1)),
        ),
        "WINDOW_UPDATE of three bytes": (GOAWAY, code.FRAME_SIZE_ERROR, raw(frame(WINDOW_UPDATE, 0, 0, bytes(3)))),
        "a frame of 16,385 bytes": (GOAWAY, code.FRAME_SIZE_ERROR, opened(frame(DATA, 0, 1, bytes(16_385)))),
        "a frame that claims 16 MiB": (GOAWAY, code.FRAME_SIZE_ERROR, raw(frame(DATA, 0, 1, b"", (1 << 24) - 1))),
        "a stream's window that is not kept": (
            RST_STREAM, code.FLOW_CONTROL_ERROR,
            opened(*[frame(DATA, 0, 1, bytes(16_384))] * (STREAM_WINDOW // 16_384 + 1), path="/hold"),
        ),
        "no method": (RST_STREAM, code.PROTOCOL_ERROR, fields(__method=None)),
        "no scheme": (RST_STREAM, code.PROTOCOL_ERROR, fields(__scheme=None)),
        "no path": (RST_STREAM, code.PROTOCOL_ERROR, fields(__path=None)),
        "an empty path": (RST_STREAM, code.PROTOCOL_ERROR, fields(__path="")),
        "a path that is none": (RST_STREAM, code.PROTOCOL_ERROR, fields(__path="echo")),
        "another pseudo field": (RST_STREAM, code.PROTOCOL_ERROR, fields(__status="200")),
        "a name in capitals": (RST_STREAM, code.PROTOCOL_ERROR, fields(Accept="a")),
        "a name with a space": (RST_STREAM, code.PROTOCOL_ERROR, fields(**{"a b": "c"})),
        "an empty name": (RST_STREAM, code.PROTOCOL_ERROR, fields(**{"": "c"})),
        "a value with a line end": (RST_STREAM, code.PROTOCOL_ERROR, fields(a="b\r\nc: d")),
        "a value with a zero": (RST_STREAM, code.PROTOCOL_ERROR, fields(a="b\0")),
        "a field of connections": (RST_STREAM, code.PROTOCOL_ERROR, fields(connection="close")),
        "chunks": (RST_STREAM, code.PROTOCOL_ERROR, fields(transfer_encoding="chunked")),
        "te of more than trailers": (RST_STREAM, code.PROTOCOL_ERROR, fields(te="gzip")),
        "a length that is none": (RST_STREAM, code.PROTOCOL_ERROR, fields(content_length="+1")),
        "a length of a body that is not there": (RST_STREAM, code.PROTOCOL_ERROR, fields(content_length="1")),
        "a body longer than its length": (RST_STREAM, code.PROTOCOL_ERROR, lambda client: client.request(
            1, 0, request_to("/wait", ("content-length", "2"))) + frame(DATA, 0, 1, b"abc")),
        "a body shorter than its length": (RST_STREAM, code.PROTOCOL_ERROR, lambda client: client.request(
            1, 0, request_to("/wait", ("content-length", "2"))) + frame(DATA, END_STREAM, 1, b"a")),
        "two lengths": (RST_STREAM, code.PROTOCOL_ERROR, lambda client: client.request(
            1, 0, request_to("/wait", ("content-length", "1"), ("content-length", "2")))),
        "the path twice": (RST_STREAM, code.PROTOCOL_ERROR, lambda client: client.request(
            1, END_STREAM, (*REQUEST[:3], (":path", "/"), *REQUEST[3:]))),
        "a request's head as trailers": (RST_STREAM, code.PROTOCOL_ERROR, lambda client: b"".join(
            client.request(stream, flags, request_to("/wait")) for stream, flags in ((1, 0), (3, 0), (1, END_STREAM)))),
        "a pseudo field behind others": (RST_STREAM, code.PROTOCOL_ERROR, lambda client: client.request(
            1, END_STREAM, (("a", "b"), *REQUEST))),
    }  # fmt: skip


@pytest.mark.parametrize("name", corpus())
def test_what_breaks_the_protocol_is_ended_with_its_code(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """A stream alone where that is enough: then the connection still answers."""
    kind, code, make = corpus()[name]

    async def test(client: FrameClient) -> None:
        client.send(make(client))
        ending = await client.until(kind)
        assert ending.code == code
        if kind == GOAWAY:
            assert len(ending.payload) > 8, "the reason is missing"
            await client.end()
        else:
            client.send(client.request(7, 0), frame(DATA, END_STREAM, 7, b"still here"))
            assert (await client.body(7))[1] == b"still here"

    run(test)
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.parametrize(
    "content", [b"GET / HTTP/3\r\nHost: a\r\n\r\n", b"\x16\x03\x01", PREFACE + bytes(9), bytes(99)]
)
def test_what_is_no_http2_is_told_so(content: bytes) -> None:
    async def scenario() -> None:
        async with running() as (port, _):
            client = await FrameClient.open(port, greet=False)
            client.send(content)
            assert [each.code for each in await client.end() if each.kind == GOAWAY] == [ErrorCode.PROTOCOL_ERROR]

    asyncio.run(scenario())


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_client_of_http_1_is_told_so_in_its_words(method: str) -> None:
    """It takes the port for the one of REST; Python's client reads the answer."""

    def ask(port: int) -> tuple[int, bytes]:
        connection = HTTPConnection("127.0.0.1", port, timeout=10)
        connection.request(method, "/v1/models")
        answer = connection.getresponse()
        return answer.status, answer.read()

    async def scenario() -> tuple[int, bytes]:
        async with running() as (port, _):
            return await asyncio.to_thread(ask, port)

    status, body = asyncio.run(scenario())
    assert status == 400
    assert "gRPC" in json.loads(body)["error"]


def test_a_handler_that_fails_ends_its_stream_alone(caplog: pytest.LogCaptureFixture) -> None:
    async def test(client: FrameClient) -> None:
        client.send(client.request(1, END_STREAM, request_to("/fail")), client.request(3, 0))
        assert (await client.until(RST_STREAM, 1)).code == ErrorCode.INTERNAL_ERROR
        client.send(frame(DATA, END_STREAM, 3, b"a"))
        assert (await client.body(3))[1] == b"a"

    run(test)
    assert "ValueError: no" in caplog.text


FRAMES = st.builds(
    frame,
    st.integers(0, 11),
    st.sampled_from([0, 1, 4, 5, 8, 0x20, 0x2D, 0xFF]),
    st.sampled_from([0, 1, 1, 2, 3, 5, 7, (1 << 31) - 1, 1 << 31]),
    st.one_of(
        st.binary(max_size=40),
        st.sampled_from([bytes(4), bytes(5), bytes(8), Encoder().encode(REQUEST), b"\0\x04\0\0\0\x01", b"\xff" * 300]),
    ),
    st.sampled_from([None, None, None, None, None, 0, 3, 70_000]),
)
WHOLE = st.sampled_from([0, END_STREAM]).flatmap(
    lambda flags: st.sampled_from([1, 3, 5, 7, 9]).map(
        lambda stream: frame(HEADERS, flags | END_HEADERS, stream, Encoder().encode(REQUEST))
    )
)


@hypothesis_settings(max_examples=300, deadline=None)
@examples(st.lists(st.one_of(FRAMES, WHOLE), max_size=30), st.integers(1, 400))
def test_any_frames_are_answered_or_end_the_connection(frames: list[bytes], step: int) -> None:
    """The server's own parts are driven without a network, so that what it raises is seen here."""

    async def scenario() -> None:
        connections = Connections(partial(Http2Connection, Echo))
        connection, transport = connections(), Written()
        connection.connection_made(transport)
        content = PREFACE + settings() + b"".join(frames)
        for start in range(0, len(content), step):
            connection.data_received(content[start : start + step])
        connection.check(1e12)
        sent = transport.frames()
        faults = [each for each in sent if each[0] == GOAWAY and int.from_bytes(each[2][4:8], "big")]
        if not faults and not transport.closed:
            transport.content = b""
            connection.data_received(frame(PING, 0, 0, b"12345678"))
            assert (PING, 0, b"12345678") in transport.frames() or connection._rest or connection._block_number
        assert len(faults) <= 1
        assert not faults or sent[-1] == faults[0], "something follows the end"
        connection.connection_lost(None)
        assert connection.buffered == 0
        assert not connection.waiting

    asyncio.run(scenario())


class Written(asyncio.Transport):
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.content = b""
        self.closed = False

    def write(self, data: Any) -> None:
        assert not self.closed
        self.content += data

    def close(self) -> None:
        self.closed = True

    abort = close

    def is_closing(self) -> bool:
        return self.closed

    def can_write_eof(self) -> bool:
        return False

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def frames(self) -> list[tuple[int, int, bytes]]:
        """The kind, the stream and the payload of each."""
        frames, position = [], 0
        while position < len(self.content):
            size = int.from_bytes(self.content[position : position + 3], "big")
            end = position + 9 + size
            kind, stream = self.content[position + 3], int.from_bytes(self.content[position + 5 : position + 9], "big")
            frames.append((kind, stream, self.content[position + 9 : end]))
            position = end
        assert position == len(self.content)
        return frames


# --- what is too much ---


def floods() -> dict[str, Callable[[FrameClient], bytes]]:
    """What asks for nothing, in plenty."""

    def resets(client: FrameClient) -> bytes:
        request = request_to("/wait")
        pairs = ((client.request(n, 0, request), frame(RST_STREAM, 0, n, bytes(4))) for n in range(1, 4000, 2))
        return b"".join(each for pair in pairs for each in pair)

    def bomb(client: FrameClient) -> bytes:
        """A field of 3 kB in the table, then as many references to it as a frame holds."""
        literal = b"\x40" + b"\x01a" + b"\x7f" + bytes((3000 - 127 & 127 | 128, 3000 - 127 >> 7)) + b"b" * 3000
        return frame(HEADERS, 5, 1, literal + b"\xbe" * 12_000)

    def continuations(client: FrameClient) -> bytes:
        return frame(HEADERS, 0, 1, client.block(*REQUEST)) + frame(CONTINUATION, 0, 1, b"") * 1000

    def large_block(client: FrameClient) -> bytes:
        return frame(HEADERS, 0, 1, client.block(*REQUEST)) + frame(CONTINUATION, 0, 1, bytes(16_000)) * 9

    def faults(client: FrameClient) -> bytes:
        return b"".join(client.request(n, END_STREAM, (("a", "b"),)) for n in range(1, 4000, 2))

    def opened(*frames: bytes, streams: int = 1) -> Callable[[FrameClient], bytes]:
        request = request_to("/wait")
        return lambda client: b"".join((*(client.request(1 + 2 * n, 0, request) for n in range(streams)), *frames))

    return {
        "PING": opened(frame(PING, 0, 0, bytes(8)) * 2000),
        "answers to PING": opened(frame(PING, ACK, 0, bytes(8)) * 2000),
        "SETTINGS": opened(settings(s4=1) * 200),
        "SETTINGS of many streams": opened(settings(s4=1) * 20, streams=MOST_STREAMS),
        "a window's size again and again": opened(
            frame(SETTINGS, payload=struct.pack(">HI", 4, 1) * 900), streams=MOST_STREAMS
        ),
        "acknowledgements": opened(frame(SETTINGS, ACK) * 2000),
        "empty DATA": opened(frame(DATA, 0, 1) * 2000),
        "PRIORITY": opened(frame(PRIORITY, 0, 1, bytes(5)) * 2000),
        "windows": opened(window_update(1, 1) * 2000),
        "extensions": opened(frame(0xEE, 0, 1, b"abc") * 2000),
        "DATA of a stream that is over": lambda client: (
            client.request(1, END_STREAM, (("a", "b"),)) + frame(DATA, 0, 1) * 2000
        ),
        "rapid reset": resets,
        "faulty requests": faults,
        "CONTINUATION": continuations,
        "a large block": large_block,
        "an HPACK bomb": bomb,
    }


@pytest.mark.parametrize("name", floods())
def test_floods_end_the_connection(name: str) -> None:
    async def test(client: FrameClient) -> None:
        client.send(floods()[name](client))
        assert (await client.until(GOAWAY)).code == ErrorCode.ENHANCE_YOUR_CALM
        await client.end()

    run(test)


def test_what_is_malformed_or_too_much_leaves_nothing_behind() -> None:
    """Each of them a few times, without a network: memory is flat, with no help of the garbage collector."""

    async def scenario() -> int:
        connections = Connections(partial(Http2Connection, Echo))
        sent = [
            PREFACE + settings() + make(FrameClient(asyncio.StreamReader(), None))  # type: ignore[arg-type]  # sends nothing
            for make in (*[make for _, _, make in corpus().values()], *floods().values())
        ]

        def round_of_all() -> int:
            for frames in sent:
                connection, transport = connections(), Written()
                connection.connection_made(transport)
                for start in range(0, len(frames), 5000):
                    connection.data_received(frames[start : start + 5000])
                connection.connection_lost(None)
            return tracemalloc.get_traced_memory()[0]

        for _ in range(2):
            round_of_all()
        tracemalloc.start()
        gc.disable()
        try:
            before = round_of_all()
            after = [round_of_all() for _ in range(3)][-1]
        finally:
            gc.enable()
            tracemalloc.stop()
        assert not connections.open
        return after - before

    assert asyncio.run(scenario()) < 200_000


def test_requests_beyond_the_limit_are_refused_and_the_others_answered() -> None:
    async def test(client: FrameClient) -> None:
        for stream in range(1, 2 * MOST_STREAMS, 2):
            client.send(client.request(stream, 0))
        last = 2 * MOST_STREAMS + 1
        client.send(client.request(last))
        assert (await client.until(RST_STREAM, last)).code == ErrorCode.REFUSED_STREAM
        client.send(frame(DATA, END_STREAM, 1, b"a"))
        assert (await client.body(1))[1] == b"a"
        client.send(client.request(last + 2, 0), frame(DATA, END_STREAM, last + 2, b"b"))
        assert (await client.body(last + 2))[1] == b"b"

    run(test)


def test_a_client_that_takes_a_byte_at_a_time_is_none_that_takes_something() -> None:
    async def test(client: FrameClient) -> None:
        client.send(settings(s4=0), client.request(1, 0), frame(DATA, END_STREAM, 1, bytes(16_000)))
        client.send(window_update(1, 1) * 2000)
        assert (await client.until(GOAWAY)).code == ErrorCode.ENHANCE_YOUR_CALM

    run(test)


def test_an_answer_that_is_taken_byte_by_byte_is_given_up() -> None:
    """However many bytes a client takes, a thousand at once make a step."""

    async def test(client: FrameClient) -> None:
        client.send(settings(s4=0), client.request(1, 0), frame(DATA, END_STREAM, 1, bytes(16_000)))
        frames = []
        for _ in range(20):
            client.send(window_update(1, 1))
            frames += await client.ping()
            await pass_time(2)
        assert [each.code for each in frames if each.kind == RST_STREAM] == [ErrorCode.CANCEL]

    run(test, HttpLimits(idle_seconds=10))


def test_answers_that_no_window_is_open_for_are_bounded_and_ended() -> None:
    """Requests are refused once 64 MiB wait, and what waits is given up."""

    async def test(client: FrameClient) -> None:
        client.send(settings(s4=0))
        await client.ping()
        body = frame(DATA, 0, 1, bytes(16_384)) * 60  # just under a stream's window
        refused, stream = 0, -1
        tracemalloc.start()
        try:
            while not refused:
                stream += 2
                client.send(client.request(stream, 0))
                client.send(body.replace(b"\0\0\0\0\x01", b"\0" + stream.to_bytes(4, "big")))
                client.send(frame(DATA, END_STREAM, stream))
                refused = len([each for each in await client.ping() if each.kind == RST_STREAM])
                assert stream < 400
            assert tracemalloc.get_traced_memory()[0] < 90 << 20
            await pass_time(21)
            await client.ping()
            assert tracemalloc.get_traced_memory()[0] < 20 << 20, "what waits is still kept"
        finally:
            tracemalloc.stop()

    run(test, HttpLimits(idle_seconds=20))


def test_a_client_that_does_not_read_is_closed() -> None:
    async def scenario() -> None:
        async with running(HttpLimits(idle_seconds=20)) as (port, connections):
            client = await FrameClient.open(port)
            client.send(settings(s4=(1 << 31) - 1), window_update((1 << 30) - 1))
            for stream in range(1, 60, 2):
                client.send(client.request(stream, 0))
                client.send(frame(DATA, 0, stream, bytes(16_384)) * 60 + frame(DATA, END_STREAM, stream))
            while not any(connection.is_paused for connection in connections.open):
                await asyncio.sleep(0.01)
            while connections.open:  # it may take a little more meanwhile
                await pass_time(21)
            await client.close()

    asyncio.run(asyncio.wait_for(scenario(), 600))


@pytest.mark.parametrize(
    "content",
    [b"", PREFACE[:9], PREFACE, PREFACE + settings() + b"\0", PREFACE + settings() + frame(HEADERS, 0, 1, b"\x82")],
    ids=["nothing", "half a preface", "no settings", "half a frame", "half a head"],
)
def test_slow_clients_are_closed(content: bytes) -> None:
    async def scenario() -> None:
        async with running(HttpLimits(request_seconds=10)) as (port, connections):
            client = await FrameClient.open(port, greet=False)
            client.send(content)
            while not connections.open:
                await asyncio.sleep(0.001)
            await pass_time(11)
            assert [each.code for each in await client.end() if each.kind == GOAWAY] == [ErrorCode.PROTOCOL_ERROR]

    asyncio.run(scenario())


def test_a_slow_upload_goes_on_as_long_as_frames_arrive() -> None:
    """Each packet ends within a frame."""

    async def test(client: FrameClient) -> None:
        client.send(client.request(1, 0))
        content = frame(DATA, 0, 1, b"a" * 100) * 12 + frame(DATA, END_STREAM, 1)
        for start in range(0, len(content), 100):
            client.send(content[start : start + 100])
            await pass_time(2)
        assert (await client.body(1))[1] == b"a" * 1200

    run(test, HttpLimits(request_seconds=10))


# --- its end ---


def test_an_idle_connection_is_ended_and_what_was_on_its_way_is_answered() -> None:
    async def test(client: FrameClient) -> None:
        await client.ping()
        await pass_time(11)
        first = await client.until(GOAWAY)
        assert (first.code, first.payload[:4]) == (ErrorCode.NO_ERROR, b"\x7f\xff\xff\xff")
        client.send(client.request(1, 0), frame(DATA, END_STREAM, 1, b"late"))  # was sent before that was read
        ping = await client.until(PING)
        client.send(frame(PING, ACK, 0, ping.payload))
        seen = await client.end()
        assert [each.payload for each in seen if each.kind == DATA] == [b"late"]
        assert [each.payload[:8] for each in seen if each.kind == GOAWAY] == [b"\0\0\0\x01" + bytes(4)]

    run(test, HttpLimits(idle_seconds=10))


def test_what_runs_when_the_server_ends_is_answered_and_what_comes_later_is_not() -> None:
    async def scenario() -> None:
        async with running() as (port, connections):
            client = await FrameClient.open(port)
            client.send(client.request(1, 0))
            await client.ping()
            draining = asyncio.ensure_future(connections.drain(10))
            ping = await client.until(PING)
            client.send(frame(PING, ACK, 0, ping.payload))
            last = await client.until(GOAWAY)
            assert last.payload == b"\0\0\0\x01" + bytes(4)
            client.send(client.request(3, 0), frame(DATA, 0, 3, b"ignored"), window_update(5, 3))
            client.send(frame(DATA, END_STREAM, 1, b"whole"))
            assert (await client.body(1))[1] == b"whole"
            assert {each.kind for each in await client.end()} <= {WINDOW_UPDATE}
            await draining
            assert not connections.open

    asyncio.run(scenario())


def test_a_client_that_leaves_has_its_streams_ended() -> None:
    async def scenario() -> None:
        async with running() as (port, connections):
            client = await FrameClient.open(port)
            client.send(*[client.request(stream, END_STREAM, request_to("/wait")) for stream in (1, 3)])
            client.send(frame(RST_STREAM, 0, 1, int(ErrorCode.CANCEL).to_bytes(4, "big")))
            await client.ping()
            assert Echo.ended == 1
            await client.close()
            while connections.open:
                await asyncio.sleep(0.01)
            assert Echo.ended == 2

    asyncio.run(scenario())


def test_a_client_that_says_goodbye_gets_its_answers_first() -> None:
    """It is told which: what it asks later is not."""

    async def test(client: FrameClient) -> None:
        client.send(client.request(1, 0), frame(GOAWAY, 0, 0, bytes(8)), client.request(3))
        ours = await client.until(GOAWAY)
        assert (ours.code, int.from_bytes(ours.payload[:4], "big")) == (ErrorCode.NO_ERROR, 1)
        client.send(frame(DATA, END_STREAM, 1, b"a"))
        assert (await client.body(1))[1] == b"a"
        assert {each.stream for each in await client.end()} <= {0}

    run(test)


def test_what_a_client_sends_after_its_goodbye_resets_nothing() -> None:
    """Or it could not read the last of its answers any more."""
    with handler_running(Echo) as client, socket.create_connection(("127.0.0.1", client.port)) as connection:
        connection.sendall(PREFACE + settings() + frame(GOAWAY, 0, 0, bytes(8)))
        received = b""
        while data := connection.recv(65536):
            received += data
        for _ in range(3):
            connection.sendall(frame(PING, 0, 0, bytes(8)))
        assert received.endswith(frame(GOAWAY, 0, 0, bytes(8)))
        assert connection.recv(1) == b""
