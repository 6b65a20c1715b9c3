"""The web as a store: blocks with and without ranges, answers that do not end, connections that are lost."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from drivetrain import stores
from drivetrain.errors import InputError
from drivetrain.stores import Store


def answering(answer: Callable[[int, int], bytes]) -> Iterator[Store]:
    """A store behind a server that answers each request for bytes from one to another with the bytes of `answer`."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            begin, last = self.headers.get("Range", "bytes=0-0").removeprefix("bytes=").split("-")
            self.wfile.write(answer(int(begin), int(last) + 1))

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield Store(f"http://127.0.0.1:{server.server_port}")
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("ranges", [True, False])
def test_blocks_by_http(monkeypatch: pytest.MonkeyPatch, ranges: bool) -> None:
    """A server that knows no ranges sends all each time: what is not asked for is passed over, and not held."""
    monkeypatch.setattr(stores, "_BLOCK", 1000)
    body = bytes(range(256)) * 15

    def answer(begin: int, end: int) -> bytes:
        part = body[begin:end] if ranges else body
        return f"HTTP/1.0 {206 if ranges else 200} OK\r\nContent-Length: {len(part)}\r\n\r\n".encode() + part

    for store in answering(answer):
        assert b"".join(store.blocks("file", len(body))) == body
        assert store.digest("file", len(body)) == hashlib.sha256(body).hexdigest()


def test_a_block_is_no_longer_than_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "_BLOCK", 1000)
    for store in answering(lambda begin, end: b"HTTP/1.0 206 OK\r\n\r\n" + b"x" * 5000):
        assert [len(block) for block in store.blocks("file", 1500)] == [1000, 500]


def test_a_record_that_does_not_end_is_refused_and_one_cut_off_is_asked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stores, "_MOST_RECORD", 1000)
    monkeypatch.setattr(stores, "PAUSES", [0.01])
    for store in answering(lambda *_: b"HTTP/1.0 200 OK\r\n\r\n" + b"x" * 5000):
        with pytest.raises(InputError, match="/file is longer than"):
            store.read("file")
    parts = [b"x" * 10, b"x" * 100]
    for store in answering(lambda *_: b"HTTP/1.0 200 OK\r\nContent-Length: 100\r\n\r\n" + parts.pop(0)):
        assert store.read("file") == b"x" * 100


def test_a_block_whose_connection_is_lost_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "PAUSES", [0.01])
    asked: list[int] = []

    def answer(begin: int, end: int) -> bytes:
        asked.append(begin)
        return b"HTTP/1.0 206 OK\r\nContent-Length: 100\r\n\r\n" + b"x" * (10 if len(asked) == 1 else 100)

    for store in answering(answer):
        assert list(store.blocks("file", 100)) == [b"x" * 100]
    assert asked == [0, 0]


def test_a_file_that_does_not_end_is_refused_where_it_passes_its_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "_MOST_UNTOLD", 3 << 20)
    monkeypatch.setattr(stores, "PAUSES", [0.01])
    sent: list[int] = []

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.wfile.write(b"HTTP/1.0 200 OK\r\n\r\n")

        def do_GET(self) -> None:
            self.wfile.write(b"HTTP/1.0 200 OK\r\n\r\n")
            with suppress(OSError):
                for _ in range(64):
                    sent.append(self.wfile.write(b"x" * (1 << 20)))

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        with pytest.raises(InputError, match=r"/file is longer than the 1,048,576 bytes that it may have"):
            Store(address).fetch("file", tmp_path / "copy", 1 << 20)
        store = Store(f"{address}/file")
        (match,) = store.matches()
        with pytest.raises(InputError, match=r"/file is longer than the 3,145,728 bytes that it may have"):
            store.fetch_match(match, tmp_path / "copy", lambda _: None)
        server.shutdown()
    assert (tmp_path / "copy").stat().st_size <= 4 << 20
