"""Copies of what lies elsewhere: made once, by one process of several; removed by least use, never under a reader."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from drivetrain.errors import Canceled, InputError
from drivetrain.metadata import fetched as fetched_module
from drivetrain.metadata.fetched import Fetched

WORKERS = Path(__file__).with_name("workers.py")


def fill(data: bytes) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / "data").write_bytes(data)

    return write


def get(fetched: Fetched, key: str, size: int = 100) -> Path:
    return fetched.get(key, size, fill(key.encode() * (size // len(key))), lambda: None)


def there(fetched: Fetched) -> list[str]:
    return sorted(path.name for path in fetched.folder.glob("[!.]*"))


def age(path: Path, seconds: float) -> None:
    os.utime(path, (time.time() - seconds,) * 2)


def test_what_was_not_used_for_longest_goes_first(tmp_path: Path) -> None:
    fetched = Fetched(tmp_path, 300)
    with fetched.reading():
        for number, key in enumerate("abc"):
            age(get(fetched, key), 100 - number)
    assert there(fetched) == ["a", "b", "c"]
    with fetched.reading():
        assert fetched.find("a") is not None  # used again
    with fetched.reading():
        get(fetched, "d")
    assert there(fetched) == ["a", "c", "d"]
    with fetched.reading():
        get(fetched, "e", 500)  # more than there may be, and needed all the same
    assert there(fetched) == ["e"]
    assert sorted(path.name for path in (tmp_path / ".locks").iterdir()) == ["e"]


def test_what_is_read_stays(tmp_path: Path) -> None:
    fetched, other = Fetched(tmp_path, 100), Fetched(tmp_path, 100)
    with fetched.reading():
        a = get(fetched, "a")
        with other.reading():
            get(other, "b")
            assert there(fetched) == ["a", "b"]
            assert (a / "data").read_bytes() == b"a" * 100
        with other.reading():
            get(other, "c")
        assert there(fetched) == ["a", "c"]
    with other.reading():
        get(other, "d")
    assert there(fetched) == ["d"]
    d = get(fetched, "d")  # outside any block: for as long as the process lives
    with other.reading():
        get(other, "e")
    assert d.is_dir()


def test_several_threads_make_one_copy(tmp_path: Path) -> None:
    filled = []

    def slow(folder: Path) -> None:
        filled.append(1)
        time.sleep(0.2)
        (folder / "data").write_bytes(b"x")

    def work() -> None:
        copies.append(Fetched(tmp_path, 100).get("key", 1, slow, lambda: None))

    copies: list[Path] = []
    threads = [threading.Thread(target=work) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert copies == [tmp_path / "key"] * 5
    assert filled == [1]


def test_who_waits_may_be_stopped(tmp_path: Path) -> None:
    begun, go = threading.Event(), threading.Event()

    def slow(folder: Path) -> None:
        begun.set()
        go.wait(280)

    thread = threading.Thread(target=lambda: Fetched(tmp_path, 100).get("key", 1, slow, lambda: None))
    thread.start()
    assert begun.wait(60)

    def stop() -> None:
        raise Canceled("enough")

    try:
        with pytest.raises(Canceled):
            Fetched(tmp_path, 100).get("key", 1, slow, stop)
    finally:
        go.set()
        thread.join()


def test_a_copy_that_failed_is_gone_on_with(tmp_path: Path) -> None:
    fetched = Fetched(tmp_path, 100)

    def half(folder: Path) -> None:
        (folder / "one").write_bytes(b"1")
        raise ConnectionError

    with pytest.raises(ConnectionError):
        fetched.get("key", 1, half, lambda: None)
    assert there(fetched) == []

    def rest(folder: Path) -> None:
        assert (folder / "one").read_bytes() == b"1"
        (folder / "two").write_bytes(b"2")

    assert sorted(path.name for path in fetched.get("key", 1, rest, lambda: None).iterdir()) == ["one", "two"]
    with pytest.raises(ConnectionError):
        fetched.get("other", 1, half, lambda: None)
    fetched.get("third", 1, fill(b"3"), lambda: None)  # removes what nobody goes on with
    assert not list(tmp_path.glob(".part-*"))


def test_put_keeps_what_is_here_already(tmp_path: Path) -> None:
    fetched = Fetched(tmp_path / "copies", 100)
    for text in ("first", "second"):
        folder = tmp_path / text
        folder.mkdir()
        (folder / "data").write_text(text)
        fetched.put("key", folder)
        assert not folder.exists()
    copy = fetched.find("key")
    assert copy is not None
    assert (copy / "data").read_text() == "first"


def test_a_copy_from_before_the_machine_was_started_is_compared_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power loss may have kept its names and lost its bytes."""
    filled: list[dict[str, bytes]] = []

    def compare(folder: Path) -> None:
        filled.append({path.name: path.read_bytes() for path in folder.iterdir()})
        (folder / "data").write_bytes(b"whole")

    staged = tmp_path / "staged"
    staged.mkdir()
    (staged / "data").write_bytes(b"whole")
    before = Fetched(tmp_path)
    before.put("put", staged)
    before.get("got", 5, compare, lambda: None)
    before.close()
    for key in ("put", "got"):
        (tmp_path / key / "data").write_bytes(b"")
    monkeypatch.setattr(fetched_module, "_start", lambda: b"another start")
    fetched = Fetched(tmp_path)
    for key in ("put", "got"):
        assert fetched.find(key) is None
        assert (fetched.get(key, 5, compare, lambda: None) / "data").read_bytes() == b"whole"
        assert fetched.find(key) is not None
    assert filled == [{}, {"data": b""}, {"data": b""}]


def test_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DRIVETRAIN_FETCHED_GIB", raising=False)
    assert Fetched(tmp_path)._limit == 50 << 30
    monkeypatch.setenv("DRIVETRAIN_FETCHED_GIB", "0.5")
    assert Fetched(tmp_path)._limit == 1 << 29


@pytest.mark.parametrize("text", ["much", "-1", "nan", "inf"])
def test_a_limit_that_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("DRIVETRAIN_FETCHED_GIB", text)
    with pytest.raises(InputError, match="DRIVETRAIN_FETCHED_GIB is"):
        Fetched(tmp_path)


def test_a_file_system_without_locks_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(handle: int, how: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(InputError, match=r"cannot be locked \(.*\)\n  fix: put --root on a disk that can"):
        get(Fetched(tmp_path, 100), "a")


def test_processes_make_one_copy_and_a_killed_one_hinders_nobody(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.touch()

    def start(seconds: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, str(WORKERS), "copy_slowly", str(tmp_path / "copies"), seconds, str(log)]
        )

    killed = start("60")
    while "begun" not in log.read_text():
        assert killed.poll() is None
        time.sleep(0.02)
    others = [start("0.3") for _ in range(3)]
    time.sleep(0.3)
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    assert [other.wait(60) for other in others] == [0] * 3
    assert log.read_text().split() == ["begun", "begun", "made"]
    assert (tmp_path / "copies" / "key" / "data").read_text() == "whole"
