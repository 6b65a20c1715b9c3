"""Payloads behind a URL: whole or not there, each file sent once, by whoever goes on."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest
from drivetrain import stores
from drivetrain.errors import InputError
from drivetrain.metadata.payload_remote import RemotePayloads
from drivetrain.stores import StorageUnavailable
from drivetrain.tests.metadata.behind_url import URI, WORKERS, Sends, another, emptied_memory, files, payloads, url
from drivetrain.tests.metadata.payloads import staged

__all__ = ["emptied_memory", "payloads", "url"]


def test_two_publish_the_same_at_once(payloads: RemotePayloads, tmp_path: Path) -> None:
    other = another(payloads, tmp_path)
    gate, trees, errors = threading.Barrier(2), [], []

    def publish(publisher: RemotePayloads) -> None:
        for uid in map(str, range(15)):
            path = staged(publisher, uid=uid)
            gate.wait()
            try:
                trees.append(publisher.publish(path, f"artifacts/Node/{uid}/out"))
            except Exception as error:
                errors.append(error)

    threads = [threading.Thread(target=publish, args=(publisher,)) for publisher in (payloads, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len({tree.fingerprint for tree in trees}) == 1
    for each in payloads.published():
        assert payloads.problems(each.uri, trees[0].fingerprint) == []


def test_a_manifest_that_was_half_written_is_none(payloads: RemotePayloads, tmp_path: Path) -> None:
    """As a kill or a full disk leaves one, where a store does not write files whole: to publish again goes on."""
    tree = payloads.publish(staged(payloads), URI)
    whole = payloads.objects.read(f"{URI}/manifest.json")
    for half in (b"", whole[: len(whole) // 2]):
        payloads.objects.write(f"{URI}/manifest.json", half)
        other = RemotePayloads(tmp_path / "another", str(payloads.url))
        assert other.publish(staged(other), URI) == tree
        assert payloads.problems(URI, tree.fingerprint) == []
    payloads.objects.write(f"{URI}/manifest.json", b"")
    with pytest.raises(InputError, match="is not what was published"):
        RemotePayloads(tmp_path / "third", str(payloads.url)).local(URI)


def test_a_share_holds_whole_files_only(tmp_path: Path) -> None:
    """Who sends a file again and is stopped leaves the one that lies there, which may be published by then."""
    payloads = RemotePayloads(tmp_path / "root", f"file://{tmp_path}/share")
    path = payloads.stage("Node", "uid", "out")
    (path / "content" / "data.bin").write_bytes(os.urandom(300_000))
    tree = payloads.publish(path, URI)
    kept = payloads.local(URI) / "content" / "data.bin"
    for name in ("content/data.bin", "manifest.json"):
        command = [sys.executable, str(WORKERS), "send_little", f"file://{tmp_path}/share", str(kept), f"{URI}/{name}"]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        assert "File too large" in done.stdout
    assert payloads.problems(URI, tree.fingerprint) == []
    assert len(list((tmp_path / "share" / URI).rglob("*"))) == 3
    (tmp_path / "share" / URI / "content" / ".nfs00000001").write_bytes(b"what NFS keeps of a deleted file")
    assert payloads.problems(URI, tree.fingerprint) == []
    payloads.remove(URI)
    assert not (tmp_path / "share" / URI).exists()


def test_what_killed_processes_left_read_only_hinders_nobody() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # where another user may go
        Path(folder).chmod(0o777)
        command = [sys.executable, str(WORKERS), "go_on_as_nobody", f"{folder}/roots", f"file://{folder}/share"]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        assert done.stdout == "hello\n"


def test_the_manifest_comes_last(payloads: RemotePayloads, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sends = Sends(monkeypatch, payloads)
    seen = []
    sends.after = lambda name: seen.append(payloads.present(URI))

    def fail(this: object, name: str, data: bytes) -> None:
        raise StorageUnavailable(name)

    path = staged(payloads)
    with monkeypatch.context() as patch:
        patch.setattr(type(payloads.objects), "write", fail)
        with pytest.raises(StorageUnavailable):
            payloads.publish(path, URI)
    assert seen == [False] * 3
    assert len(payloads.objects.entries(URI)) == 3
    assert not payloads.present(URI)
    assert [(each.uri, each.whole) for each in payloads.published()] == [(URI, False)]
    with pytest.raises(InputError, match="is gone, or was never whole"):
        another(payloads, tmp_path).local(URI)
    assert "cannot be read" in payloads.problems(URI)[0]
    sends.names.clear()
    payloads.publish(path, URI)
    assert sends.names == []
    assert payloads.problems(URI) == []


def test_an_upload_goes_on_where_it_stopped(
    payloads: RemotePayloads, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("drivetrain.stores.AT_ONCE", 1)
    sends = Sends(monkeypatch, payloads)
    path = payloads.stage("Node", "uid", "out")
    for number in range(6):
        (path / "content" / f"part-{number}").write_bytes(b"x" * (10 - number))

    def stop(name: str) -> None:
        if name.endswith("part-3"):
            raise StorageUnavailable("enough")

    sends.before = stop
    with pytest.raises(StorageUnavailable):
        payloads.publish(path, URI)
    assert sends.names == [f"content/part-{number}" for number in range(3)]
    sends.before = lambda name: None
    sends.names.clear()
    begun = RemotePayloads(tmp_path / "root", str(payloads.url))  # as the next process does
    begun.publish(path, URI)
    assert sends.names == [f"content/part-{number}" for number in range(3, 6)]
    assert begun.problems(URI) == []


def test_what_was_sent_and_is_there_no_more_is_sent_again(
    payloads: RemotePayloads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("drivetrain.stores.AT_ONCE", 1)
    sends = Sends(monkeypatch, payloads)
    path = staged(payloads)
    sends.after = lambda name: payloads.objects.delete(f"{URI}/content/deep/file.txt") if "empty" in name else None
    payloads.publish(path, URI)
    assert sorted(sends.names) == ["content/deep/file.txt"] * 2 + ["content/empty.txt", "extra/report.html"]
    assert payloads.problems(URI) == []


def test_a_store_that_cuts_files_is_told_of(payloads: RemotePayloads, monkeypatch: pytest.MonkeyPatch) -> None:
    sends = Sends(monkeypatch, payloads)
    sends.after = lambda name: payloads.objects.write(f"{URI}/content/deep/file.txt", b"hell")
    with pytest.raises(StorageUnavailable, match=r"file\.txt is not there as it was sent"):
        payloads.publish(staged(payloads), URI)
    assert not payloads.present(URI)


def test_checksums_are_believed_when_they_are_some(payloads: RemotePayloads, monkeypatch: pytest.MonkeyPatch) -> None:
    """An MD5 that fits spares sending; one that does not is looked into: some stores encrypt, and tell another."""
    counts = {"right": 0, "wrong": 0}
    real = type(payloads.objects).entries
    how = ["right"]

    def entries(this: Any, folder: str) -> dict[str, stores.Entry]:
        entries = real(this, folder)
        for name, entry in entries.items():
            counts[how[0]] += 1
            data = this.read(f"{folder}/{name}") + (b"" if how[0] == "right" else b"encrypted")
            entries[name] = stores.Entry(entry.size, hashlib.md5(data).hexdigest(), entry.changed)
        return entries

    monkeypatch.setattr(type(payloads.objects), "entries", entries)
    sends = Sends(monkeypatch, payloads)
    path = staged(payloads)
    for name, data in files(path).items():  # sent by a process that was killed before it could note that
        payloads.objects.write(f"{URI}/{name}", data)
    payloads.publish(path, URI)
    assert sends.names == []
    how[0] = "wrong"
    payloads.publish(staged(payloads, uid="second"), "artifacts/Node/second/out")
    assert len(sends.names) == 3
    assert counts["right"]
    assert counts["wrong"]
    assert payloads.problems("artifacts/Node/second/out") == []
