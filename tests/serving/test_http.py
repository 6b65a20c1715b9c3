"""The HTTP server, by raw bytes: order, limits, what is ambiguous, slow clients, clients that go away."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar

import pytest

pytest.importorskip("httptools")

from drivetrain.serving.http import Connections, HttpConnection, HttpLimits, HttpRequest, HttpResponse, Respond
from drivetrain.tests.serving.passing_time import pass_time

T = TypeVar("T")
HEAD = b"POST /x HTTP/1.1\r\nHost: a\r\n"


@pytest.fixture(autouse=True)
def _looked_at_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a slow client waits for is its limit, and not the server's next look."""
    monkeypatch.setattr("drivetrain.serving.http._LOOK_SECONDS", 0.05)


def echo(request: HttpRequest, respond: Respond) -> None:
    """The body; `/slow` after a second, `/fail` never."""
    if request.target == "/slow":
        loop = asyncio.get_running_loop()
        loop.call_later(1.0, respond, HttpResponse(200, b"slow" + request.body))
        return
    if request.target == "/fail":
        raise ValueError("no")
    respond(HttpResponse(200, request.body or request.method.encode(), b"text/plain"))


@asynccontextmanager
async def running(
    limits: HttpLimits | None = None, admit: Callable[[HttpRequest], HttpResponse | None] | None = None
) -> AsyncIterator[tuple[int, Connections[HttpConnection]]]:
    """A server, and its port."""
    connections = Connections(partial(HttpConnection, echo, admit=admit), limits or HttpLimits())
    server = await asyncio.get_running_loop().create_server(connections, "127.0.0.1", 0)
    watching = asyncio.ensure_future(connections.watch())
    try:
        yield server.sockets[0].getsockname()[1], connections
    finally:
        watching.cancel()
        server.close()
        await connections.drain(1)
        await asyncio.gather(watching, return_exceptions=True)


def run(test: Callable[[], Coroutine[Any, Any, T]]) -> T:
    return asyncio.run(asyncio.wait_for(test(), 60))


async def exchange(port: int, *parts: bytes, end: bool = True) -> bytes:
    """Everything that comes back for these bytes, until the server closes or nothing comes for a while."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for part in parts:
        writer.write(part)
        await asyncio.sleep(0.001)
    if end:
        writer.write_eof()
    received = b""
    try:
        while chunk := await asyncio.wait_for(reader.read(65536), 10):
            received += chunk
    except (TimeoutError, ConnectionResetError):
        pass
    writer.close()
    return received


async def until_busy(connections: Connections[HttpConnection]) -> None:
    """Until a request has begun to arrive."""
    while not any(connection.busy for connection in connections.open):
        await asyncio.sleep(0.001)


def test_answers_come_in_the_order_of_the_requests() -> None:
    async def test() -> bytes:
        async with running() as (port, connections):
            slow = b"POST /slow HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n1"
            quick = b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nConnection: close\r\n\r\n2"
            waiting = asyncio.ensure_future(exchange(port, slow + quick, end=False))
            await until_busy(connections)
            await pass_time(1)
            return await waiting

    received = run(test)
    assert received.count(b"HTTP/1.1 200 OK") == 2
    assert received.index(b"slow1") < received.index(b"\r\n\r\n2")
    assert received.endswith(b"connection: close\r\n\r\n2")


def test_a_request_in_single_bytes_is_one_request() -> None:
    message = HEAD + b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n"

    async def test() -> bytes:
        async with running() as (port, _):
            return await exchange(port, *(bytes([byte]) for byte in message), end=False)

    assert run(test).endswith(b"\r\n\r\nabcde")


@pytest.mark.parametrize(
    ("message", "status"),
    [
        (HEAD + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (HEAD + b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n", 400),
        (HEAD + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", 400),
        (HEAD + b"Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc", 400),
        (HEAD + b"Content-Length: -3\r\n\r\nabc", 400),
        (HEAD + b"Content-Length: +3\r\n\r\nabc", 400),
        (HEAD + b"Content-Length: 0x3\r\n\r\nabc", 400),
        (HEAD + b"Content-Length: 3, 3\r\n\r\nabc", 400),
        (HEAD + b"Content-Length: 99999999999999999999999\r\n\r\nabc", 400),
        (HEAD + b"Content-Length: 34000000\r\n\r\nabc", 413),
        (HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501),
        (HEAD + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n", 400),
        (HEAD + b"Transfer-Encoding: identity\r\n\r\n", 501),
        (HEAD + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n", 400),
        (HEAD + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nabc\r\n0\r\n\r\n", 400),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n", 400),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\nabc\r\n", 400),
        (HEAD + b" folded: x\r\n\r\n", 400),
        (HEAD + b"no colon\r\n\r\n", 400),
        (HEAD + b"a\x00b: x\r\n\r\n", 400),
        (HEAD + b"a: x\x00y\r\n\r\n", 400),
        (b"POST /x HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b"POST /x HTTP/1.1\r\n\r\n", 400),
        (b"POST /x HTTP/9.9\r\nHost: a\r\n\r\n", 400),
        (b"HELLO /x HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
        (b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
        (b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n", 431),
        (HEAD + b"a: " + b"x" * 20_000 + b"\r\n\r\n", 431),
        (HEAD + b"".join(b"a%d: x\r\n" % number for number in range(3000)) + b"\r\n", 431),
        (b"GET /fail HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", 500),
    ],
)
def test_what_is_no_request_is_refused(message: bytes, status: int) -> None:
    """And nothing after it on its connection is taken for one."""
    after = b"GET /after HTTP/1.1\r\nHost: a\r\n\r\n"

    async def test() -> tuple[bytes, bytes]:
        async with running() as (port, _):
            refused = await exchange(port, message + after, end=False)
            return refused, await exchange(port, after, end=True)

    refused, fresh = run(test)
    assert refused.startswith(b"HTTP/1.1 %d " % status), refused
    assert refused.count(b"HTTP/1.1 ") == 1, refused
    assert fresh.startswith(b"HTTP/1.1 200 OK")


def test_expect_and_head_and_old_clients() -> None:
    async def test() -> list[bytes]:
        async with running() as (port, _):
            return [
                await exchange(port, HEAD + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n", b"ok"),
                await exchange(port, b"HEAD /x HTTP/1.1\r\nHost: a\r\n\r\n"),
                await exchange(port, b"GET /x HTTP/1.0\r\n\r\n", end=False),
            ]

    expected, only_head, old = run(test)
    assert expected.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK")
    assert b"content-length: 4\r\n" in only_head
    assert only_head.endswith(b"\r\n\r\n")
    assert old.endswith(b"connection: close\r\n\r\nGET")


def test_a_wish_for_another_protocol_is_no_reason_not_to_answer() -> None:
    wish = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEA\r\n"
    last = HEAD + b"Content-Length: 3\r\nConnection: close\r\n\r\nabc"

    async def test() -> list[bytes]:
        async with running() as (port, _):
            with_body = HEAD + wish + b"Content-Length: 2\r\n\r\nhi"
            without = b"GET /x HTTP/1.1\r\nHost: a\r\n" + wish + b"\r\n"
            return [await exchange(port, first + last, end=False) for first in (with_body, without)]

    body, nothing = run(test)
    assert (body.count(b"HTTP/1.1 200 OK"), nothing.count(b"HTTP/1.1 200 OK")) == (2, 2)
    assert b"\r\n\r\nhiHTTP" in body
    assert b"\r\n\r\nGETHTTP" in nothing


def test_slow_clients_are_closed() -> None:
    async def test() -> tuple[bytes, bytes, int]:
        async with running(HttpLimits(request_seconds=10, idle_seconds=10)) as (port, connections):
            half, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(HEAD + b"Content-Length: 10\r\n\r\nabc")
            silent, other = await asyncio.open_connection("127.0.0.1", port)
            await until_busy(connections)
            while len(connections.open) < 2:
                await asyncio.sleep(0.001)
            await pass_time(5)
            assert len(connections.open) == 2
            await pass_time(6)
            answers = await half.read(), await silent.read()
            writer.close()
            other.close()
            return *answers, len(connections.open)

    half, silent, left = run(test)
    assert half.startswith(b"HTTP/1.1 408 ")
    assert silent == b""
    assert left == 0


def test_too_many_connections_are_closed() -> None:
    async def test() -> list[bytes]:
        async with running(HttpLimits(connections=2)) as (port, _):
            first = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
            await asyncio.sleep(0.05)
            refused = await exchange(port, HEAD + b"\r\n", end=False)
            for _, writer in first:
                writer.close()
            await asyncio.sleep(0.05)
            return [refused, await exchange(port, HEAD + b"\r\n")]

    refused, later = run(test)
    assert refused == b""
    assert later.startswith(b"HTTP/1.1 200 OK")


def test_draining_answers_what_came_and_closes() -> None:
    async def test() -> tuple[bytes, int]:
        async with running() as (port, connections):
            idle = await asyncio.open_connection("127.0.0.1", port)
            waiting = asyncio.ensure_future(exchange(port, b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n", end=False))
            await until_busy(connections)
            draining = asyncio.ensure_future(connections.drain(5))
            await pass_time(1)
            await draining
            idle[1].close()
            return await waiting, len(connections.open)

    answer, left = run(test)
    assert b"connection: close" in answer
    assert answer.endswith(b"slow")
    assert left == 0


def test_random_bytes_and_cut_requests_end_in_an_answer_or_a_closed_connection() -> None:
    chosen = random.Random(7)
    whole = HEAD + b"Content-Length: 3\r\nConnection: close\r\n\r\nabc"

    def mutated() -> bytes:
        data = bytearray(whole)
        for _ in range(chosen.randint(1, 6)):
            at = chosen.randrange(len(data))
            match chosen.randrange(3):
                case 0:
                    data[at] = chosen.randrange(256)
                case 1:
                    del data[at : at + chosen.randint(1, 9)]
                case _:
                    data[at:at] = bytes(chosen.choices(range(256), k=chosen.randint(1, 9)))
        return bytes(data) or b"x"

    async def test() -> list[bytes]:
        async with running() as (port, _):
            messages = [mutated() for _ in range(300)]
            answers: list[bytes] = []
            for start in range(0, len(messages), 50):
                answers += await asyncio.gather(*(exchange(port, each) for each in messages[start : start + 50]))
            return [*answers, await exchange(port, whole)]

    *answers, last = run(test)
    statuses = {answer[9:12] for answer in answers if answer}
    assert statuses <= {b"200", b"400", b"413", b"431", b"501", b"100"}
    assert last.endswith(b"abc")


def admitted(request: HttpRequest) -> HttpResponse | None:
    assert request.body == b""
    return None if request.headers.get("key") == "right" else HttpResponse(401, b"who are you?")


def test_who_is_not_admitted_is_told_so_before_the_body() -> None:
    async def test() -> None:
        async with running(HttpLimits(body=1000), admitted) as (port, connections):
            for head in (b"", b"Expect: 100-continue\r\n"):  # of a body that never comes, and is not asked for
                received = await exchange(port, HEAD + head + b"Content-Length: 500\r\n\r\n", end=False)
                assert received.startswith(b"HTTP/1.1 401 ")
                assert received.endswith(b"\r\n\r\nwho are you?")
                assert b"connection: close" in received
            # More than there may be, and more than fits on the way: the answer comes through all the same.
            large = b"x" * 5_000_000
            received = await exchange(port, HEAD + b"Content-Length: 5000000\r\n\r\n", large)
            assert received.startswith(b"HTTP/1.1 401 ")
            # What was asked before by the same client is answered first, and what it asks after it is not.
            right = HEAD + b"Key: right\r\nContent-Length: 4\r\n\r\nbody"
            received = await exchange(port, right + HEAD + b"Content-Length: 4\r\n\r\nbody" + right)
            assert received.count(b"HTTP/1.1 200 ") == 1
            assert received.index(b"body") < received.index(b"HTTP/1.1 401 ")
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(HEAD + b"Content-Length: 900\r\n\r\n")
            assert b" 401 " in await reader.readline()
            assert connections.open
            while connections.open:  # one that never goes is closed
                await pass_time(1)
            writer.close()

    run(test)
