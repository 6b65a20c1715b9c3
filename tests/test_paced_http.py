"""Servers that answer without end, against a server on loopback that speaks as each of them does."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from drivetrain import file_systems, paced_http, stores
from drivetrain.engine import hub
from drivetrain.errors import DrivetrainError
from drivetrain.stores import StorageUnavailable, Store

Send = Callable[[bytes], None]


@contextmanager
def serving(answer: Callable[[bytes, Send], None]) -> Iterator[str]:
    """The address of a server that answers each request, given its head, by what it is told to send."""
    server, over = socket.create_server(("127.0.0.1", 0)), threading.Event()
    threads: list[threading.Thread] = []

    def talk(connection: socket.socket) -> None:
        def send(data: bytes) -> None:
            if over.is_set():
                raise OSError("over")
            connection.sendall(data)

        with connection, suppress(OSError):
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                head += connection.recv(1 << 16)
            answer(head, send)

    def accept() -> None:
        with suppress(OSError):
            while True:
                threads.append(threading.Thread(target=talk, args=[server.accept()[0]], daemon=True))
                threads[-1].start()

    accepting = threading.Thread(target=accept, daemon=True)
    accepting.start()
    try:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
    finally:
        over.set()
        server.shutdown(socket.SHUT_RDWR)  # ends the wait for a connection; to close it does not
        accepting.join()
        server.close()
        for thread in threads:
            thread.join(10)


def _for_ever(send: Send, data: bytes, pause: float) -> None:
    while True:
        send(data)
        time.sleep(pause)


def continues(head: bytes, send: Send) -> None:
    _for_ever(send, b"HTTP/1.1 100 Continue\r\n\r\n", 0.0005)


def slow_head(head: bytes, send: Send) -> None:
    send(b"HTTP/1.1 200 OK\r\nX: ")
    _for_ever(send, b"x", 0.005)


def slow_body(head: bytes, send: Send) -> None:
    send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
    _for_ever(send, b"x", 0.005)


def slow_later(head: bytes, send: Send) -> None:
    send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + b"x" * 300_000)
    _for_ever(send, b"x", 0.005)


def slow_chunks(head: bytes, send: Send) -> None:
    send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    _for_ever(send, b"1\r\nx\r\n", 0.005)


def trailers(head: bytes, send: Send) -> None:
    send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n")
    _for_ever(send, b"X: y\r\n", 0.0005)


def silence(head: bytes, send: Send) -> None:
    send(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab")
    while True:
        time.sleep(0.005)
        send(b"")


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_systems, "_HTTP_TIMEOUT", 0.02)
    monkeypatch.setattr(stores, "PAUSES", [0.01])


USES: dict[str, Callable[[Store, Path], object]] = {
    "read": lambda store, path: store.read("a"),
    "blocks": lambda store, path: list(store.blocks("a", 1_000_000)),
    "fetch": lambda store, path: store.fetch("a", path, 1_000_000),
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("answer", [continues, slow_head, slow_body, slow_later, slow_chunks, trailers, silence])
@pytest.mark.parametrize("use", USES)
def test_an_answer_without_end_is_given_up(
    tmp_path: Path, answer: Callable[[bytes, Send], None], use: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(answer) as url:
        store = Store(url)
        monkeypatch.setattr(store._files, "info", lambda where: {"size": 10})
        begin = time.monotonic()
        with pytest.raises(StorageUnavailable, match=r"after 2 tries .*(came in 0.02 s|timed out)") as raised:
            USES[use](store, tmp_path / "a")
        assert time.monotonic() - begin < 20
        assert raised.value.fix


@pytest.mark.timeout(60)
def test_the_hub_gives_up_a_server_that_never_ends() -> None:
    with serving(continues) as url, pytest.raises(DrivetrainError, match=r"came in 0\.02 s"):
        hub.load(f"{url}/encoder", version=1)


def test_a_long_answer_may_take_longer_than_one_period(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as it comes at the pace."""
    monkeypatch.setattr(file_systems, "_HTTP_TIMEOUT", 0.5)  # a tenth of it between two parts

    def steady(head: bytes, send: Send) -> None:
        send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (12 * paced_http.LEAST))
        for _ in range(12):
            send(b"x" * paced_http.LEAST)
            time.sleep(0.05)

    def fetch(url: str) -> bytes:
        Store(url).fetch("a", tmp_path / "a", 12 * paced_http.LEAST)
        return (tmp_path / "a").read_bytes()

    with serving(steady) as url, ThreadPoolExecutor(2) as pool:
        begin = time.monotonic()
        for answer in [pool.submit(fetch, url), pool.submit(Store(url).read, "a")]:
            assert answer.result() == b"x" * 12 * paced_http.LEAST
            assert time.monotonic() - begin > 0.5
