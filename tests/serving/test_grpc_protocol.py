"""gRPC over our HTTP/2, by gRPC's own clients and, where these send nothing wrong, by raw frames."""

from __future__ import annotations

import asyncio
import gc
import gzip
import threading
import time
import weakref
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from functools import partial
from typing import Any, TypeVar

import pytest

pytest.importorskip("hpack")
pytest.importorskip("grpc")

import grpc
import grpc.aio
from drivetrain.serving.api import RequestError, StatusCode
from drivetrain.serving.grpc_protocol import GrpcCall, GrpcHandler, GrpcMethod
from drivetrain.serving.http import Connections, HttpLimits
from drivetrain.serving.http2 import MOST_STREAMS, STREAM_WINDOW, ErrorCode, Http2Connection
from drivetrain.tests.serving.grpc_running import Client, handler_running
from drivetrain.tests.serving.http2_frames import (
    DATA,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PING,
    RST_STREAM,
    FrameClient,
    frame,
    settings,
    window_update,
)
from drivetrain.tests.serving.passing_time import pass_time
from hypothesis import HealthCheck
from hypothesis import given as examples
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

T = TypeVar("T")
STILL_SECONDS = 0.2
MAX_BYTES = 8 << 20
CALL = (
    (":method", "POST"), (":scheme", "http"), (":path", "/t.T/Echo"), (":authority", "a"), ("te", "trailers"),
    ("content-type", "application/grpc"),
)  # fmt: skip


@pytest.fixture(autouse=True)
def _looked_at_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a slow client waits for is its limit, and not the server's next look."""
    monkeypatch.setattr("drivetrain.serving.http._LOOK_SECONDS", 0.05)


class Methods:
    """What the tests call, and what became of it."""

    def __init__(self) -> None:
        self.cancelled = threading.Event()
        self.taken = 0
        self.running = 0
        self.tasks: weakref.WeakSet[Any] = weakref.WeakSet()  # that wait, or did and are remembered
        self.goes_on = asyncio.Event()  # what was asked to wait for it

    async def echo(self, content: bytes, call: GrpcCall) -> bytes:
        call.trailers = tuple((name, value) for name, value in call.metadata if name.startswith("x-"))
        return content

    async def fail(self, content: bytes, call: GrpcCall) -> bytes:
        if content == b"ours":
            raise ValueError("a secret")
        call.trailers = (("x-why", "so"),)
        raise RequestError(StatusCode.FAILED_PRECONDITION, content.decode())

    async def wait(self, content: bytes, call: GrpcCall) -> bytes:
        self.running += 1
        self.tasks.add(asyncio.current_task())
        try:
            await (self.goes_on.wait() if content == b"event" else asyncio.sleep(float(content or b"60")))
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        finally:
            self.running -= 1
        return b"waited"

    async def count(self, contents: AsyncIterator[bytes], call: GrpcCall) -> AsyncGenerator[bytes, None]:
        """As many answers as the one request says."""
        async for content in contents:
            try:
                for number in range(int(content)):
                    self.taken = number
                    yield b"%d" % number * 1000
            finally:
                self.cancelled.set()

    async def each(self, contents: AsyncIterator[bytes], call: GrpcCall) -> AsyncGenerator[bytes, None]:
        async for content in contents:
            if content == b"fail":
                raise RequestError(StatusCode.OUT_OF_RANGE, "enough")
            self.taken += 1
            yield content
            if content == b"slowly":
                self.tasks.add(asyncio.current_task())
                await asyncio.sleep(60)

    def handler(self, request_seconds: float = 2) -> GrpcHandler:
        methods = {
            "/t.T/Echo": GrpcMethod(self.echo),
            "/t.T/Fail": GrpcMethod(self.fail),
            "/t.T/Wait": GrpcMethod(self.wait),
            "/t.T/Count": GrpcMethod(streamed=self.count),
            "/t.T/Each": GrpcMethod(streamed=self.each, takes_stream=True),
        }
        return GrpcHandler(methods, MAX_BYTES, request_seconds=request_seconds)


@pytest.fixture(scope="module")
def methods() -> Methods:
    return Methods()


@pytest.fixture(scope="module")
def client(methods: Methods) -> Iterator[Client]:
    with handler_running(methods.handler()) as running:
        yield running


def code_of(call: Callable[[], Any]) -> tuple[str, str]:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return caught.value.code().name, caught.value.details()


def once_still(value: Callable[[], int]) -> int:
    """A number that grows, once it has not for a while."""
    before, deadline = -1, time.monotonic() + 60
    while (now := value()) != before:
        assert time.monotonic() < deadline, "it goes on and on"
        before = now
        time.sleep(STILL_SECONDS)
    return now


# --- gRPC's clients ---


@hypothesis_settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@examples(st.binary(max_size=70_000), st.sampled_from([*grpc.Compression]), st.text(st.characters(codec="ascii")))
def test_messages_come_back(client: Client, content: bytes, compression: grpc.Compression, text: str) -> None:
    """With what was said beside them, whichever way they are compressed."""
    value = "".join(each for each in text if each.isprintable()).strip()
    metadata = (("x-a", value), ("x-a", "2"), ("x-b-bin", content[:100]))
    answer, call = client.raw("/t.T/Echo", content, compression=compression, metadata=metadata)
    assert answer == content
    assert tuple(call.trailing_metadata()) == metadata[:2]


def test_messages_larger_than_all_windows(client: Client) -> None:
    content = bytes(range(256)) * (MAX_BYTES // 256)
    assert client.raw("/t.T/Echo", content)[0] == content


@pytest.mark.parametrize("compression", [*grpc.Compression])
def test_messages_that_are_too_large(client: Client, compression: grpc.Compression) -> None:
    """As they are when unpacked: packed, these zeros have a thousandth of that."""
    code, details = client.code("/t.T/Echo", bytes(MAX_BYTES + 1), compression=compression)
    assert code == "RESOURCE_EXHAUSTED"
    assert f"{MAX_BYTES:,}" in details
    assert client.code("/t.T/Echo", bytes(MAX_BYTES), compression=compression)[0] == "OK"


@hypothesis_settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@examples(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=300))
def test_any_text_can_be_an_errors_message(client: Client, text: str) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        client.raw("/t.T/Fail", text.encode() + b".")
    assert (caught.value.code(), caught.value.details()) == (grpc.StatusCode.FAILED_PRECONDITION, text + ".")
    assert dict(caught.value.trailing_metadata()) == {"x-why": "so"}


def test_a_fault_of_ours_is_logged_and_told_without_its_cause(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    code, details = client.code("/t.T/Fail", b"ours")
    assert (code, "secret" in details, "a secret" in caplog.text) == ("INTERNAL", False, True)


def test_what_is_not_there(client: Client) -> None:
    assert client.code("/t.T/Nope", b"")[0] == "UNIMPLEMENTED"
    assert "/t.T/Nope" in client.code("/t.T/Nope", b"")[1]


def test_deadlines_are_kept(client: Client, methods: Methods) -> None:
    """By the server, too: what waits is cancelled."""
    methods.cancelled.clear()
    begin = time.monotonic()
    assert client.code("/t.T/Wait", b"", timeout=0.3)[0] == "DEADLINE_EXCEEDED"
    assert methods.cancelled.wait(5)
    assert time.monotonic() - begin < 5
    assert client.raw("/t.T/Wait", b"0.01", timeout=30)[0] == b"waited"


def test_a_client_that_gives_up_cancels_the_handler(client: Client, methods: Methods) -> None:
    methods.cancelled.clear()
    call = client.channel.unary_unary("/t.T/Wait").future(b"", timeout=60)
    while not methods.running:
        time.sleep(0.01)
    call.cancel()
    assert methods.cancelled.wait(5)
    assert not methods.running


def test_many_answers_to_one_request(client: Client) -> None:
    answers = [*client.channel.unary_stream("/t.T/Count")(b"300", timeout=30)]
    assert answers == [b"%d" % number * 1000 for number in range(300)]
    assert [*client.channel.unary_stream("/t.T/Count")(b"0", timeout=30)] == []


def test_a_slow_reader_holds_the_answers_back(client: Client, methods: Methods) -> None:
    """And the handler stops when the client goes."""
    methods.cancelled.clear()
    methods.taken = 0
    call = client.channel.unary_stream("/t.T/Count")(b"1000000", timeout=60)
    assert next(call) == b"0" * 1000
    assert once_still(lambda: methods.taken) < 200_000
    call.cancel()
    assert methods.cancelled.wait(5)


def test_streams_both_ways(client: Client) -> None:
    sent: list[bytes] = []

    def requests() -> Iterator[bytes]:
        for number in range(50):
            sent.append(b"%d" % number * (1 + 4000 * (number % 7)))
            yield sent[-1]

    assert [*client.channel.stream_stream("/t.T/Each")(requests(), timeout=30)] == sent
    assert [*client.channel.stream_stream("/t.T/Each")(iter(()), timeout=30)] == []
    call = client.channel.stream_stream("/t.T/Each")(iter([b"1", b"fail", b"2"]), timeout=30)
    assert next(call) == b"1"
    assert code_of(lambda: next(call)) == ("OUT_OF_RANGE", "enough")


@pytest.mark.parametrize("compression", [grpc.Compression.Gzip, grpc.Compression.Deflate])
def test_streams_of_compressed_messages(client: Client, compression: grpc.Compression) -> None:
    sent = [bytes(100_000), b"", b"abc" * 1000]
    call = client.channel.stream_stream("/t.T/Each")(iter(sent), timeout=30, compression=compression)
    assert [*call] == sent


def test_a_slow_handler_holds_the_requests_back(client: Client, methods: Methods) -> None:
    sent = 0

    def requests() -> Iterator[bytes]:
        nonlocal sent
        yield b"slowly"
        for _ in range(1000):
            sent += 100_000
            yield bytes(100_000)

    call = client.channel.stream_stream("/t.T/Each")(requests(), timeout=60)
    assert next(call) == b"slowly"
    # What the server has, its window, what is on the way, and what the client keeps.
    assert once_still(lambda: sent) < 4 * STREAM_WINDOW + (8 << 20)
    call.cancel()


def test_many_calls_at_once_on_one_connection(client: Client) -> None:
    """More than there may be streams: the client waits with the others."""

    async def scenario() -> list[bytes]:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{client.port}") as channel:
            call = channel.unary_unary("/t.T/Echo")
            return list(await asyncio.gather(*[call(b"%d" % number) for number in range(3 * MOST_STREAMS)]))

    assert asyncio.run(scenario()) == [b"%d" % number for number in range(3 * MOST_STREAMS)]


def test_metadata_that_are_too_large(client: Client) -> None:
    assert client.code("/t.T/Echo", b"", metadata=(("x-a", "b" * 17_000),))[0] == "RESOURCE_EXHAUSTED"
    assert client.code("/t.T/Echo", b"", metadata=(("x-a", "b" * 7_000),))[0] == "OK"


def test_a_client_does_not_notice_that_its_idle_connection_was_ended(
    methods: Methods, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("drivetrain.serving.http._LOOK_SECONDS", 0.01)
    with handler_running(methods.handler(), limits=HttpLimits(idle_seconds=0.1)) as client:
        for pause in (0.3, 0.09, 0.1, 0.11, 0.12):  # the server looks all the time
            assert client.code("/t.T/Echo", b"a") == ("OK", "")
            time.sleep(pause)
        assert client.code("/t.T/Echo", b"a") == ("OK", "")


def test_calls_go_on_while_the_server_ends() -> None:
    """The one that runs is answered; the client is told not to ask again there."""
    methods = Methods()

    async def scenario() -> tuple[bytes, bytes]:
        loop = asyncio.get_running_loop()
        connections = Connections(partial(Http2Connection, methods.handler()))
        server = await loop.create_server(connections, "127.0.0.1", 0)
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.sockets[0].getsockname()[1]}") as channel:
            call = channel.unary_unary("/t.T/Wait")(b"event")
            stream = channel.stream_stream("/t.T/Each")()
            await stream.write(b"a")
            first = await stream.read()
            while not methods.running:
                await asyncio.sleep(0.005)
            server.close()
            draining = asyncio.ensure_future(connections.drain(20))
            await asyncio.sleep(0.05)
            await stream.write(b"b")
            assert await stream.read() == b"b"
            await stream.done_writing()
            assert await stream.code() is grpc.StatusCode.OK
            assert methods.running
            methods.goes_on.set()
            answers = await call, first
            await draining
        return answers

    assert asyncio.run(asyncio.wait_for(scenario(), 60)) == (b"waited", b"a")


def test_calls_without_an_end_are_cancelled_when_the_server_must_end() -> None:
    methods = Methods()

    async def scenario() -> grpc.StatusCode:
        connections = Connections(partial(Http2Connection, methods.handler()))
        server = await asyncio.get_running_loop().create_server(connections, "127.0.0.1", 0)
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.sockets[0].getsockname()[1]}") as channel:
            call = channel.unary_unary("/t.T/Wait")(b"")
            while not methods.running:
                await asyncio.sleep(0.01)
            server.close()
            await connections.drain(0.2)
            return await call.code()

    assert asyncio.run(asyncio.wait_for(scenario(), 60)) is grpc.StatusCode.UNAVAILABLE
    assert methods.cancelled.is_set()


# --- raw frames ---


def run(test: Callable[[FrameClient, Methods], Coroutine[Any, Any, T]], request_seconds: float = 2.0) -> T:
    async def scenario() -> T:
        methods = Methods()
        handler, limits = methods.handler(request_seconds), HttpLimits(request_seconds=request_seconds)
        connections = Connections(partial(Http2Connection, handler), limits)
        server = await asyncio.get_running_loop().create_server(connections, "127.0.0.1", 0)
        watching = asyncio.ensure_future(connections.watch())
        client = await FrameClient.open(server.sockets[0].getsockname()[1])
        try:
            result = await test(client, methods)
            assert all(connection.buffered == 0 for connection in connections.open)
            return result
        finally:
            await client.close()
            watching.cancel()
            server.close()
            await connections.drain(1)

    return asyncio.run(asyncio.wait_for(scenario(), 60))


def message(content: bytes, packed: int = 0) -> bytes:
    return bytes((packed,)) + len(content).to_bytes(4, "big") + content


def headers(**changes: str | None) -> tuple[tuple[str, str], ...]:
    changed: dict[str, str | None] = {**dict(CALL)}
    changed.update({name.replace("__", ":").replace("_", "-"): value for name, value in changes.items()})
    return tuple((name, value) for name, value in changed.items() if value is not None)


@pytest.mark.parametrize(
    ("fields", "body", "code"),
    [
        (headers(), b"", StatusCode.UNIMPLEMENTED),
        (headers(), message(b"a") + message(b"b"), StatusCode.UNIMPLEMENTED),
        (headers(__path="/t.T/Count"), b"", StatusCode.UNIMPLEMENTED),
        (headers(), message(b"abc")[:-1], StatusCode.INTERNAL),
        (headers(), b"\0\0", StatusCode.INTERNAL),
        (headers(), message(b"a", 1), StatusCode.INTERNAL),
        (headers(grpc_encoding="gzip"), message(b"a", 2), StatusCode.INTERNAL),
        (headers(grpc_encoding="gzip"), message(b"no gzip", 1), StatusCode.INTERNAL),
        (headers(grpc_encoding="gzip"), message(gzip.compress(b"abc" * 99)[:-9], 1), StatusCode.INTERNAL),
        (headers(grpc_encoding="gzip"), message(gzip.compress(b"a") + b"b", 1), StatusCode.INTERNAL),
        (headers(grpc_encoding="gzip"), message(gzip.compress(bytes(MAX_BYTES + 1)), 1), StatusCode.RESOURCE_EXHAUSTED),
        (headers(grpc_encoding="deflate"), message(zlib.compress(b"a"), 1), StatusCode.OK),
        (headers(grpc_encoding="snappy"), message(b"a", 1), StatusCode.UNIMPLEMENTED),
        (headers(), b"\0" + (1 << 31).to_bytes(4, "big"), StatusCode.RESOURCE_EXHAUSTED),
        (headers(grpc_timeout="1"), message(b"a"), StatusCode.INVALID_ARGUMENT),
        (headers(grpc_timeout="999999999S"), message(b"a"), StatusCode.INVALID_ARGUMENT),
        (headers(grpc_timeout="99999999H"), message(b"a"), StatusCode.OK),
        (headers(grpc_timeout="0n", __path="/t.T/Wait"), message(b"5"), StatusCode.DEADLINE_EXCEEDED),
        (headers(__path="/t.T/Echo?a=b"), message(b"a"), StatusCode.UNIMPLEMENTED),
        (headers(__path="*"), message(b"a"), StatusCode.UNIMPLEMENTED),
        (headers(te=None, content_type="application/grpc+proto"), message(b"a"), StatusCode.OK),
        (headers(a_bin="no base64!"), message(b"a"), StatusCode.OK),
        (headers(a="ü"), message(b"a"), StatusCode.OK),
        (headers(__path="/t.T/Each"), b"\0\0\0\0", StatusCode.INTERNAL),
        (headers(__path="/t.T/Each"), message(b"a", 1), StatusCode.INTERNAL),
        (headers(__path="/t.T/Each", grpc_encoding="gzip"), message(b"a", 1), StatusCode.INTERNAL),
        (headers(__path="/t.T/Each"), message(b"a") * 3000, StatusCode.OK),
    ],
    ids=lambda value: value.name if isinstance(value, StatusCode) else "",
)
def test_what_is_no_call_has_its_code(fields: tuple[tuple[str, str], ...], body: bytes, code: StatusCode) -> None:
    """Whole, and in three parts; the connection goes on."""

    async def test(client: FrameClient, methods: Methods) -> None:
        third = max(len(body) // 3, 1)
        for stream, parts in ((1, [body]), (3, [body[:third], body[third : 2 * third], body[2 * third :]])):
            client.send(client.request(stream, 0, fields))
            for part in parts:
                client.send(*[frame(DATA, 0, stream, part[at : at + 16_000]) for at in range(0, len(part), 16_000)])
            client.send(frame(DATA, END_STREAM, stream))
            answer, _ = await client.body(stream)
            assert answer[b"grpc-status"] == b"%d" % code, answer
            assert (b"grpc-message" in answer) is (code != StatusCode.OK)
        client.send(client.request(5, 0, headers()), frame(DATA, END_STREAM, 5, message(b"still here")))
        assert (await client.body(5))[1] == message(b"still here")

    run(test)


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        (headers(__method="GET"), b"405"),
        (headers(content_type=None), b"415"),
        (headers(content_type="application/json"), b"415"),
        (headers(content_type="application/grpc-web"), b"415"),
    ],
)
def test_what_is_no_grpc_is_answered_as_http(fields: tuple[tuple[str, str], ...], status: bytes) -> None:
    async def test(client: FrameClient, methods: Methods) -> None:
        client.send(client.request(1, END_STREAM, fields))
        answer, body = await client.body(1)
        assert (answer, body) == ({b":status": status}, b"")

    run(test)


def test_a_refused_upload_is_told_to_stop_and_the_rest_is_dropped() -> None:
    async def test(client: FrameClient, methods: Methods) -> None:
        client.send(client.request(1, 0, headers(__path="/t.T/Nope")))
        answer, _ = await client.body(1)
        assert answer[b"grpc-status"] == b"%d" % StatusCode.UNIMPLEMENTED
        assert (await client.until(RST_STREAM, 1)).code == ErrorCode.NO_ERROR
        client.send(*[frame(DATA, 0, 1, bytes(16_000))] * 300, frame(DATA, END_STREAM, 1))
        assert {each.kind for each in await client.ping()} <= {8}  # windows alone
        client.send(client.request(3, 0, headers()), frame(DATA, END_STREAM, 3, message(b"a")))
        assert (await client.body(3))[1] == message(b"a")

    run(test)


@pytest.mark.parametrize("path", ["/t.T/Echo", "/t.T/Each"])
def test_a_message_that_does_not_arrive_in_time(path: str) -> None:
    async def test(client: FrameClient, methods: Methods) -> None:
        client.send(client.request(1, 0, headers(__path=path)), frame(DATA, 0, 1, message(b"abc")[:6]))
        await client.ping()
        await pass_time(11)
        answer, _ = await client.body(1)
        assert answer[b"grpc-status"] == b"%d" % StatusCode.DEADLINE_EXCEEDED

    run(test, request_seconds=10)


def test_a_stream_may_be_silent() -> None:
    """Between its messages there is no limit."""

    async def test(client: FrameClient, methods: Methods) -> None:
        client.send(client.request(1, 0, headers(__path="/t.T/Each")), frame(DATA, 0, 1, message(b"a")))
        await client.until(DATA, 1)
        await pass_time(20)
        client.send(frame(DATA, END_STREAM, 1, message(b"b")))
        answer, body = await client.body(1)
        assert (answer[b"grpc-status"], body) == (b"0", message(b"b"))

    run(test, request_seconds=10)


def test_what_a_connection_keeps_is_bounded() -> None:
    """Many large messages that are not whole: some of their calls are refused, and the others are answered."""

    async def test(client: FrameClient, methods: Methods) -> None:
        part = bytes(16_000)
        for stream in range(1, 2 * 100, 2):
            client.send(client.request(stream, 0, headers()))
        body = message(bytes(1 << 20))
        for at in range(0, len(body) - 16_000, 16_000):
            for stream in range(1, 2 * 100, 2):
                client.send(frame(DATA, 0, stream, body[at : at + 16_000] if at == 0 else part))
            await client.writer.drain()
        frames = await client.ping()
        refused = {each.stream for each in frames if each.kind == HEADERS}
        assert 10 < len(refused) < 60
        left = next(stream for stream in range(1, 200, 2) if stream not in refused)
        rest = len(body) - len(range(0, len(body) - 16_000, 16_000)) * 16_000
        client.send(frame(DATA, END_STREAM, left, bytes(rest)))
        client.send(window_update(1 << 24), window_update(1 << 24, left))
        assert (await client.body(left))[0][b"grpc-status"] == b"0"
        client.send(*[frame(RST_STREAM, 0, stream, bytes(4)) for stream in range(1, 200, 2) if stream != left])
        await client.ping()

    run(test, request_seconds=30)  # 100 MB take a while on a busy machine


@pytest.mark.parametrize(("path", "end"), [("Wait", "reset"), ("Each", "reset"), ("Each", "late"), ("Wait", "late")])
def test_a_call_that_was_cancelled_leaves_nothing_to_the_garbage_collector(path: str, end: str) -> None:
    """Thousands of them at once held up everybody while it looked through them."""

    async def test(client: FrameClient, methods: Methods) -> None:
        timeout = "10S" if end == "late" else None
        streams = range(1, 41, 2)
        for stream in streams:
            client.send(client.request(stream, 0, headers(__path=f"/t.T/{path}", grpc_timeout=timeout)))
            client.send(
                frame(DATA, END_STREAM if path == "Wait" else 0, stream, message(b"slowly"[: 6 * (path == "Each")]))
            )
        await client.ping()
        assert len(methods.tasks) == len(streams)
        if end == "reset":
            client.send(*[frame(RST_STREAM, 0, stream, bytes(4)) for stream in streams])
        await client.ping()
        await pass_time(11)
        await client.ping()
        assert not methods.tasks

    gc.collect()
    gc.disable()
    try:
        run(test)
    finally:
        gc.enable()


def test_messages_of_nothing_count_for_what_they_take() -> None:
    """Half a million of them in 3 MB, on streams whose answers nobody takes."""

    async def test(client: FrameClient, methods: Methods) -> None:
        client.send(settings(s4=0))
        streams = range(1, 25, 2)
        for stream in streams:
            client.send(client.request(stream, 0, headers(__path="/t.T/Each")))
            client.send(frame(DATA, 0, stream, message(b"") * 3000) * 17)
        refused = [each.stream for each in await client.ping() if each.kind == RST_STREAM]
        assert refused
        assert len(refused) < 5
        client.send(*[frame(RST_STREAM, 0, stream, bytes(4)) for stream in streams])
        await client.ping()

    run(test, request_seconds=30)


def test_a_deadline_with_an_answer_that_nobody_takes() -> None:
    async def test(client: FrameClient, methods: Methods) -> None:
        client.send(settings(s4=0), client.request(1, 0, headers(grpc_timeout="10S")))
        client.send(frame(DATA, END_STREAM, 1, message(b"a")))
        await client.ping()
        assert not methods.running
        client.send(client.request(3, 0, headers(__path="/t.T/Count", grpc_timeout="10S")))
        client.send(frame(DATA, END_STREAM, 3, message(b"9")))
        await client.ping()
        await pass_time(11)
        assert (await client.until(RST_STREAM, 3)).code == ErrorCode.CANCEL
        client.send(frame(RST_STREAM, 0, 1, bytes(4)))
        await client.ping()

    run(test)


BODIES = st.lists(
    st.one_of(st.binary(max_size=30), st.binary(max_size=30).map(message), st.just(message(gzip.compress(b"a"), 1))),
    max_size=5,
).map(b"".join)


@hypothesis_settings(max_examples=60, deadline=None)
@examples(
    st.lists(
        st.tuples(
            st.sampled_from(["/t.T/Echo", "/t.T/Fail", "/t.T/Each", "/t.T/Nope"]),
            st.sampled_from([None, "gzip", "identity"]),
            BODIES,
            st.integers(1, 40),
            st.sampled_from(["end", "reset", "open"]),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_any_bodies_end_with_a_status(calls: list[tuple[str, str | None, bytes, int, str]]) -> None:
    async def test(client: FrameClient, methods: Methods) -> None:
        ended = set()
        for index, (path, encoding, body, step, end) in enumerate(calls):
            stream = 2 * index + 1
            client.send(client.request(stream, 0, headers(__path=path, grpc_encoding=encoding)))
            client.send(*[frame(DATA, 0, stream, body[at : at + step]) for at in range(0, len(body), step)])
            if end == "end":
                ended.add(stream)
                client.send(frame(DATA, END_STREAM, stream))
            elif end == "reset":
                client.send(frame(RST_STREAM, 0, stream, bytes(4)))
        statuses: dict[int, bytes] = {}
        while ended - statuses.keys():
            each = await client.read()
            assert each is not None, (ended, statuses)
            assert each.kind != GOAWAY
            if each.kind == HEADERS:
                fields = dict(client.decoder.decode(each.payload, raw=True))
                if b"grpc-status" in fields:
                    statuses[each.stream] = fields[b"grpc-status"]
        for stream in range(1, 2 * len(calls) + 1, 2):
            client.send(frame(RST_STREAM, 0, stream, bytes(4)))
        client.send(frame(PING, 0, 0, b"12345678"))
        await client.until(PING)

    run(test)
