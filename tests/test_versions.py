"""Versions by themselves: those that several write at once, and numbers that are asked for."""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from drivetrain import InputError, versions
from drivetrain.versions import FolderVersions, versions_at


def files(folder: Path, text: str) -> dict[str, str]:
    folder.mkdir()
    (folder / "manifest.json").write_text(text)
    return {"manifest.json": str(folder / "manifest.json")}


def test_what_a_publisher_gives_up_is_not_taken_from_under_a_sweeper(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sweeper has listed what comes in; its publisher ends, and would remove it before the sweeper opens it."""
    there = FolderVersions(tmp_path / "serving")
    listed, copying = threading.Event(), threading.Event()
    failures: list[BaseException] = []

    def full(*paths: object) -> None:
        copying.set()
        assert listed.wait(30)
        raise OSError(28, "No space left on device")

    def fail() -> None:
        with pytest.raises(InputError, match="No space left"):
            there.publish(files(tmp_path / "a", "a"), facts={})

    real_open = os.open

    def opened_late(path: Any, *rest: Any, **options: Any) -> int:
        if Path(str(path)).name.startswith(".incoming-") and threading.current_thread() is sweeper:
            listed.set()
            publisher.join(0.5)  # without the lock it would be through by then
        return real_open(path, *rest, **options)

    def sweep() -> None:
        try:
            there.sweep()
        except BaseException as error:
            failures.append(error)

    monkeypatch.setattr(shutil, "copyfile", full)
    publisher, sweeper = threading.Thread(target=fail), threading.Thread(target=sweep)
    publisher.start()
    assert copying.wait(30)
    monkeypatch.setattr(os, "open", opened_late)
    sweeper.start()
    sweeper.join(30)
    publisher.join(30)
    assert not failures
    assert list((tmp_path / "serving").iterdir()) == []


def test_who_is_at_work_is_not_swept(tmp_path: Path) -> None:
    incoming = tmp_path / ".incoming-0"
    incoming.mkdir()
    with versions._locked(incoming):
        assert FolderVersions(tmp_path).sweep() == []
    assert FolderVersions(tmp_path).sweep(dry_run=True) == [".incoming-0"]
    assert incoming.exists()
    handle = os.open(incoming, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)  # a dry run holds nothing afterwards
    os.close(handle)


@pytest.mark.parametrize("kind", ["folder", "memory"])
def test_a_number_that_is_asked_for(tmp_path: Path, kind: str) -> None:
    if kind == "memory":
        pytest.importorskip("fsspec")
    there = versions_at(tmp_path / "x" if kind == "folder" else f"memory://versions-{secrets.token_hex(4)}/x")
    first = there.publish(files(tmp_path / "a", "a"), facts={"by": "me"}, number=7, any_equal=True)
    assert (first.number, there.record(7)) == (7, first)
    assert first.facts["by"] == "me"
    assert there.publish(files(tmp_path / "b", "b"), facts={}).number == 8
    again = {"manifest.json": str(tmp_path / "a" / "manifest.json")}
    assert there.publish(again, facts={}, any_equal=True) == first
    assert there.publish(again, facts={}, number=7, any_equal=True) == first
    for taken in (7, 8):
        with pytest.raises(InputError, match=f"has a version {taken} already, of another program"):
            there.publish(files(tmp_path / f"c{taken}", "c"), facts={}, number=taken, any_equal=True)
    assert there.publish(again, facts={}).number == 9  # a server serves the newest


@pytest.mark.parametrize("kind", ["folder", "memory"])
def test_a_signature_goes_with_its_version(tmp_path: Path, kind: str) -> None:
    if kind == "memory":
        pytest.importorskip("fsspec")
    there = versions_at(tmp_path / "x" if kind == "folder" else f"memory://versions-{secrets.token_hex(4)}/x")
    first, second = files(tmp_path / "a", "a"), files(tmp_path / "b", "b")
    there.publish(first, facts={})
    assert "1.sig" not in there.store.names("")
    there.publish(first, facts={}, signature=b"mine")  # the version is there, and was signed since
    assert there.store.read("1.sig") == b"mine"
    there.publish(first, facts={})
    assert there.store.read("1.sig") == b"mine"
    there.publish(first, facts={}, signature=b"yours")
    assert there.store.read("1.sig") == b"yours"
    assert there.publish(second, facts={}, signature=b"ours", keep=1).number == 2
    assert [name for name in there.store.names("") if "." in name] == ["2.json", "2.sig"]
    assert there.numbers() == there.recorded() == [2]
    assert there.sweep() == []


@pytest.mark.parametrize("kind", ["folder", "memory"])
def test_a_warm_up_file_goes_with_its_version_and_is_no_part_of_it(tmp_path: Path, kind: str) -> None:
    if kind == "memory":
        pytest.importorskip("fsspec")
    there = versions_at(tmp_path / "x" if kind == "folder" else f"memory://versions-{secrets.token_hex(4)}/x")
    first, second = files(tmp_path / "a", "a"), files(tmp_path / "b", "b")
    record = there.publish(first, facts={}, warmup=b"{}\n", signature=b"mine")
    assert there.store.read("1.warmup.jsonl") == b"{}\n"
    assert there.publish(first, facts={}, warmup=b"[]\n") == record  # adopted: the bundle is the same
    assert there.store.read("1.warmup.jsonl") == b"[]\n"
    assert there.digest(1) == record.digest
    assert there.publish(second, facts={}, keep=1).number == 2
    assert [name for name in there.store.names("") if "." in name] == ["2.json"]
    assert there.sweep() == []


def test_no_signature_of_an_earlier_version_is_left(tmp_path: Path) -> None:
    there = FolderVersions(tmp_path)
    (tmp_path / "1.sig").write_bytes(b"of what was removed by hand")
    (tmp_path / ".1.sig.0123abcd.tmp").write_bytes(b"half")
    (tmp_path / "1.warmup.jsonl").write_bytes(b"likewise")
    (tmp_path / ".1.warmup.jsonl.0123abcd.tmp").write_bytes(b"half")
    assert there.publish(files(tmp_path / "a", "a"), facts={}).number == 1
    assert there.store.names("") == ["1", "1.json", "a"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "1.json", "a"]
