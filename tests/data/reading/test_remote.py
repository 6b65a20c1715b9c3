"""Files behind a URI: fsspec's memory store, and a web server on loopback."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from drivetrain import stores
from drivetrain.addresses import is_url
from drivetrain.data import open_files, statistics
from drivetrain.data.reading.remote import fetch_files
from drivetrain.errors import Canceled, DrivetrainError, InputError
from drivetrain.stores import StorageUnavailable


@pytest.fixture(name="memory")
def _memory() -> Iterator[Any]:
    fsspec = pytest.importorskip("fsspec")
    store = fsspec.filesystem("memory")
    yield store
    store.store.clear()
    store.pseudo_dirs[:] = [""]


class Web:
    """A server of files by path, which can be told to fail, and remembers what it was asked."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.failures: list[int | str] = []  # of the next GETs below `failing`
        self.failing = "/"
        self.asked: list[str] = []
        self.tags = True
        self.knows_head = True
        self.released = threading.Event()
        web = self

        class Handler(BaseHTTPRequestHandler):
            def do_HEAD(self) -> None:
                if not web.knows_head:
                    self.send_error(405)
                    return
                self.answer(with_body=False)

            def do_GET(self) -> None:
                self.answer(with_body=True)

            def answer(self, *, with_body: bool) -> None:
                web.asked.append(f"{self.command} {self.path}")
                fails = web.failures and with_body and self.path.startswith(web.failing)
                failure = web.failures.pop(0) if fails else None
                data = web.files.get(self.path)
                self.send_response(failure if isinstance(failure, int) else 404 if data is None else 200)
                self.send_header("Content-Length", str(len(data or b"")))
                if web.tags:
                    self.send_header("ETag", f'"{hashlib.md5(data or b"").hexdigest()}"')
                self.end_headers()
                if with_body and data and not isinstance(failure, int):
                    self.wfile.write(data[: len(data) // 2] if failure in ("cut", "hang") else data)
                if failure == "hang":
                    web.released.wait(60)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def close(self) -> None:
        self.released.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture(name="web")
def _web(monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    monkeypatch.setattr(stores, "PAUSES", [0.0, 0.0])
    web = Web()
    yield web
    web.close()


def contents(copies: list[tuple[str, Path]]) -> dict[str, bytes]:
    return {name: path.read_bytes() for name, path in copies}


def test_a_glob_is_listed_sorted_and_named_below_what_the_files_share(memory: Any, tmp_path: Path) -> None:
    for name in ("b/2.csv", "a/1.csv", "a/x.txt", "c/d/3.csv"):
        memory.pipe(f"/bucket/{name}", name.encode())
    copies = fetch_files("memory://bucket/**/*.csv", tmp_path)
    assert [name for name, _ in copies] == ["a/1.csv", "b/2.csv", "c/d/3.csv"]
    assert contents(copies) == {name: name.encode() for name, _ in copies}
    assert contents(fetch_files("memory://bucket/a/*.csv", tmp_path)) == {"1.csv": b"a/1.csv"}
    memory.pipe("/bucket/a/1.csv", b"new, as long")
    assert contents(fetch_files("memory://bucket/a/1.csv", tmp_path)) == {"1.csv": b"new, as long"}
    assert not list(tmp_path.glob(".*"))


def test_what_is_not_there_is_named(memory: Any, tmp_path: Path) -> None:
    memory.pipe("/bucket/a.csv", b"x")
    with pytest.raises(InputError, match=r"nothing matches memory://bucket/\*\.parquet"):
        fetch_files("memory://bucket/*.parquet", tmp_path)
    with pytest.raises(InputError, match=r"memory://bucket/b\.csv does not exist"):
        fetch_files("memory://bucket/b.csv", tmp_path)
    with pytest.raises(InputError, match=r"memory://bucket is a folder\n  fix: name its files"):
        fetch_files("memory://bucket", tmp_path)
    with pytest.raises(InputError, match="there is no scheme nosuch://"):
        fetch_files("nosuch://bucket/a", tmp_path)


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    registry = pytest.importorskip("fsspec.registry")
    monkeypatch.delitem(registry._registry, "s3", raising=False)  # of a test that used it
    monkeypatch.setitem(__import__("sys").modules, "s3fs", None)
    with pytest.raises(DrivetrainError, match=r"s3:// needs a package .*\n  fix: pip install s3fs"):
        fetch_files("s3://bucket/a.csv", tmp_path)
    monkeypatch.setitem(__import__("sys").modules, "fsspec", None)
    with pytest.raises(DrivetrainError, match=r"drivetrain\[cloud\]"):
        fetch_files("s3://bucket/a.csv", tmp_path)


@pytest.mark.parametrize(
    "uri",
    [
        "https://me:hunter2@host/a.csv",
        "s3://bucket/a.csv?X-Amz-Signature=hunter2",
        "https://host/a.csv?sv=1&sig=hunter2",
    ],
)
def test_a_secret_in_a_uri_is_refused_and_not_shown(uri: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds a password, a token or a signature") as caught:
        fetch_files(uri, tmp_path)
    assert "hunter2" not in str(caught.value)


def test_a_file_of_the_web_is_fetched_again_only_when_it_changes(web: Web, tmp_path: Path) -> None:
    web.files["/data/x.csv"] = b"a,b\n1,2\n"
    url = f"{web.url}/data/x.csv"
    for _ in range(2):
        assert contents(fetch_files(url, tmp_path)) == {"x.csv": b"a,b\n1,2\n"}
    assert [asked.split()[0] for asked in web.asked] == ["HEAD", "GET", "HEAD"]
    web.files["/data/x.csv"] = b"a,b\n1,3\n"
    assert contents(fetch_files(url, tmp_path)) == {"x.csv": b"a,b\n1,3\n"}
    web.tags = False
    assert contents(fetch_files(url, tmp_path)) == {"x.csv": b"a,b\n1,3\n"}
    assert [asked.split()[0] for asked in web.asked[3:]] == ["HEAD", "GET"] * 2


@pytest.mark.parametrize("failures", [[503], ["cut", 500], ["cut", "cut"]])
def test_what_passes_is_tried_again(web: Web, tmp_path: Path, failures: list[int | str]) -> None:
    web.files["/x.csv"] = b"a\n" * 1000
    web.failures = [*failures]
    assert contents(fetch_files(f"{web.url}/x.csv", tmp_path)) == {"x.csv": b"a\n" * 1000}
    assert web.asked.count("GET /x.csv") == len(failures) + 1


def test_what_lasts_is_told(web: Web, tmp_path: Path) -> None:
    web.files["/x.csv"] = b"a\n" * 1000
    web.failures = ["cut", "cut", "cut"]
    with pytest.raises(StorageUnavailable, match=r"/x\.csv cannot be read after 3 tries \(.*(2000|1000).*\)"):
        fetch_files(f"{web.url}/x.csv", tmp_path)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]  # no half file stays
    web.failures = [403]
    with pytest.raises(InputError, match=r"may not be read .*403"):
        fetch_files(f"{web.url}/x.csv", tmp_path)
    assert web.asked.count("GET /x.csv") == 4
    with pytest.raises(InputError, match=r"/y\.csv does not exist"):
        fetch_files(f"{web.url}/y.csv", tmp_path)
    with pytest.raises(InputError, match="nothing can be listed by HTTP"):
        fetch_files(f"{web.url}/*.csv", tmp_path)


def test_a_server_without_head(web: Web, tmp_path: Path) -> None:
    web.files["/x.csv"] = b"a\n" * 1000
    web.knows_head = False
    web.failures = ["cut"]
    assert contents(fetch_files(f"{web.url}/x.csv", tmp_path)) == {"x.csv": b"a\n" * 1000}
    assert web.asked == ["GET /x.csv", "GET /x.csv"]
    with pytest.raises(InputError, match=r"\.\. ends in no file's name"):
        fetch_files(f"{web.url}/a/..", tmp_path)


def test_names_that_the_web_spells_otherwise(web: Web, tmp_path: Path) -> None:
    long = "x" * 300
    web.files = {"/a%20%C3%BC.csv": b"1", "/a%2520.csv": b"2", f"/{long}.csv": b"3"}
    assert contents(fetch_files(f"{web.url}/a ü.csv", tmp_path)) == {"a ü.csv": b"1"}
    assert contents(fetch_files(f"{web.url}/a%20ü.csv", tmp_path)) == {"a%20ü.csv": b"1"}
    assert contents(fetch_files(f"{web.url}/a%2520.csv", tmp_path)) == {"a%2520.csv": b"2"}
    ((_, path),) = fetch_files(f"{web.url}/{long}.csv", tmp_path)
    assert path.name.endswith("x.csv")
    with pytest.raises(InputError, match="this http:// URL cannot be parsed"):
        fetch_files("http://[::1/x.csv", tmp_path)


@pytest.mark.parametrize("scheme", ["http", "memory"])
def test_progress_is_told_and_may_stop_the_fetching(web: Web, memory: Any, tmp_path: Path, scheme: str) -> None:
    data = bytes(3_000_000)
    web.files["/b/x.csv"] = data
    memory.blocksize = 1 << 20
    memory.pipe("/b/x.csv", data)
    memory.pipe("/b/y.csv", b"12345")
    url = f"{web.url}/b/x.csv" if scheme == "http" else "memory://b/*.csv"
    progress: list[tuple[int, int | None, str]] = []
    fetch_files(url, tmp_path / "whole", lambda *much: progress.append(much))
    total = 3_000_000 if scheme == "http" else 3_000_005
    assert len(progress) > 2
    assert progress[-1] == (total, total, "bytes fetched")
    assert [done for done, _, _ in progress] == sorted(done for done, _, _ in progress)

    def stop(done: int, total: int | None, unit: str) -> None:
        if done:
            raise Canceled("enough")

    with pytest.raises(Canceled):
        fetch_files(url, tmp_path / "half", stop)
    assert not list((tmp_path / "half").rglob("*"))


def test_a_pause_may_be_stopped(web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pauses are longer than a person who cancels a run waits."""
    monkeypatch.setattr(stores, "PAUSES", [60.0])
    web.files["/x.csv"] = b"a\n" * 1000
    web.failures = ["cut"]
    asked = 0

    def stop(done: int, total: int | None, unit: str) -> None:
        nonlocal asked
        asked += 1
        if web.asked.count("GET /x.csv") and not done and asked > 5:
            raise Canceled("enough")

    begun = time.monotonic()
    with pytest.raises(Canceled):
        fetch_files(f"{web.url}/x.csv", tmp_path, stop)
    assert time.monotonic() - begun < 30
    assert web.asked.count("GET /x.csv") == 1


def test_a_server_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "PAUSES", [])
    web = Web()
    web.close()
    with pytest.raises(StorageUnavailable, match=r"cannot be read .*refused"):
        fetch_files(f"{web.url}/x.csv", tmp_path)


def test_data_reads_uris_without_a_pipeline(web: Web, memory: Any, tmp_path: Path) -> None:
    web.files["/x.csv"] = b"a,b\n1,u\n"
    memory.pipe("/bucket/y.csv", b"a,b\n2,v\n")
    local = tmp_path / "z.csv"
    local.write_bytes(b"a,b\n3,w\n")
    source = open_files([f"{web.url}/x.csv", "memory://bucket/*.csv", local.as_uri()])
    rows = [row for shard in source.shards for batch in source.read(shard) for row in batch.to_pylist()]
    assert rows == [{"a": 1, "b": "u"}, {"a": 2, "b": "v"}, {"a": 3, "b": "w"}]
    assert statistics("memory://bucket/*.csv").document["datasets"][0]["rows"] == 1


def test_which_paths_are_urls() -> None:
    assert is_url("s3://a/b")
    assert not is_url("file:///a/b")
    assert not is_url("/a/b")
    assert not is_url("a/b.csv")
