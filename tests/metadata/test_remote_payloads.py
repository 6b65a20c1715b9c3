"""Payloads behind a URL: whole or not there, sent once, fetched once, compared with what was published."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from drivetrain.digest import digest_tree
from drivetrain.errors import Canceled, InputError
from drivetrain.metadata import AlreadyExists, DiskFull, LocalPayloads, objects
from drivetrain.metadata.payload_remote import RemotePayloads
from drivetrain.urls import StorageUnavailable
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

fsspec = pytest.importorskip("fsspec")

URI = "artifacts/Node/uid/out"
ODD = [
    "a#b ?.txt",
    "%2e%2e",
    "ü/ö.bin",
    "x;y",
    "*.csv",
    "[1]",
    "~",
    "-rf",
    ".hidden",
    "a\\b",
    "a\nb",
    "q?versionId=1",
    "e\u0301",
    "\uf900",
]


@pytest.fixture(autouse=True)
def _memory() -> Iterator[None]:
    yield
    store = fsspec.filesystem("memory")
    store.store.clear()
    store.pseudo_dirs[:] = [""]


@pytest.fixture(params=["memory", "file"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory://bucket/prefix" if request.param == "memory" else f"file://{tmp_path}/share"


@pytest.fixture
def payloads(url: str, tmp_path: Path) -> RemotePayloads:
    return RemotePayloads(tmp_path / "root", url)


def another(payloads: RemotePayloads, tmp_path: Path) -> RemotePayloads:
    """The same payloads as another machine sees them."""
    return RemotePayloads(tmp_path / "another", str(payloads.url))


def staged(payloads: RemotePayloads, text: str = "hello", uid: str = "uid") -> Path:
    path = payloads.stage("Node", uid, "out")
    (path / "content" / "deep").mkdir()
    (path / "content" / "deep" / "file.txt").write_text(text)
    (path / "content" / "empty.txt").write_bytes(b"")
    (path / "extra" / "report.html").write_text("<p>")
    return path


def files(path: Path) -> dict[str, bytes]:
    return {file.relative_to(path).as_posix(): file.read_bytes() for file in path.rglob("*") if file.is_file()}


class Sends:
    """What is sent, by its name behind the URL; `fail` may raise before a file is, or after."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, payloads: RemotePayloads) -> None:
        self.names: list[str] = []
        self.before: Callable[[str], None] = lambda name: None
        self.after: Callable[[str], None] = lambda name: None
        real = type(payloads.objects).send

        def send(this: Any, path: Path, name: str, *rest: Any) -> None:
            self.before(name)
            self.names.append(name.removeprefix(f"{URI}/"))
            real(this, path, name, *rest)
            self.after(name)

        monkeypatch.setattr(type(payloads.objects), "send", send)


def test_a_payload_is_what_a_local_one_would_be(payloads: RemotePayloads, tmp_path: Path) -> None:
    local = LocalPayloads(tmp_path / "local")
    path = staged(payloads)
    twin = local.stage("Node", "uid", "out")
    shutil.copytree(path, twin, dirs_exist_ok=True)
    told: list[tuple[int, int | None, str]] = []
    assert payloads.publish(path, URI, lambda *much: told.append(much)) == local.publish(twin, URI)
    assert told[-1] == (8, 8, "bytes uploaded")
    assert list(payloads.staging_folder("uid").iterdir()) == []
    whole = files(local.local(URI))
    assert json.loads(whole["manifest.json"])["content"]["size"] == 5
    assert {name: payloads.objects.read(f"{URI}/{name}") for name in payloads.objects.entries(URI)} == whole
    for where in (payloads, another(payloads, tmp_path)):
        assert files(where.local(URI)) == whole
        assert all(not file.stat().st_mode & 0o222 for file in where.local(URI).rglob("*") if file.is_file())
        assert where.present(URI)
        assert where.problems(URI, digest_tree(local.local(URI) / "content").fingerprint) == []
        assert [(each.uri, each.whole) for each in where.published()] == [(URI, True)]
    payloads.remove(URI)
    payloads.remove(URI)
    assert payloads.published() == []
    assert payloads.objects.entries("artifacts") == {}
    assert not payloads.present(URI)


def test_who_publishes_need_not_fetch(payloads: RemotePayloads, monkeypatch: pytest.MonkeyPatch) -> None:
    payloads.publish(staged(payloads), URI)

    def fetch(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(type(payloads.objects), "fetch", fetch)
    monkeypatch.setattr(type(payloads.objects), "read", fetch)
    assert (payloads.local(URI) / "content" / "deep" / "file.txt").read_text() == "hello"


def test_a_payload_without_content(payloads: RemotePayloads, tmp_path: Path) -> None:
    payloads.publish(payloads.stage("Node", "uid", "out"), URI)
    there = another(payloads, tmp_path).local(URI)
    assert sorted(path.name for path in there.iterdir()) == ["content", "extra", "manifest.json"]


@pytest.mark.parametrize("name", ODD)
def test_files_may_have_any_name(payloads: RemotePayloads, tmp_path: Path, name: str) -> None:
    path = payloads.stage("Node", "uid", "out")
    (path / "content" / name).parent.mkdir(exist_ok=True)
    (path / "content" / name).write_bytes(b"odd")
    expected = digest_tree(path / "content")
    assert payloads.publish(path, URI) == expected
    other = another(payloads, tmp_path)
    assert digest_tree(other.local(URI) / "content") == expected
    assert other.problems(URI, expected.fingerprint) == []


_names = st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=20).filter(
    lambda name: name not in (".", "..")
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(_names, st.binary(max_size=40), max_size=6))
def test_what_is_fetched_is_what_was_staged(tmp_path: Path, held: dict[str, bytes]) -> None:
    payloads = RemotePayloads(tmp_path / "root", "memory://bucket/law")
    payloads.remove(URI)
    path = payloads.stage("Node", "uid", "out")
    for name, data in held.items():
        (path / "content" / name).write_bytes(data)
    payloads.publish(path, URI)
    shutil.rmtree(tmp_path / "another", ignore_errors=True)
    assert files(another(payloads, tmp_path).local(URI) / "content") == held
    payloads.remove(URI)
    assert payloads.objects.entries("artifacts") == {}


def test_the_same_again_is_no_error_and_another_is(
    payloads: RemotePayloads, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = payloads.publish(staged(payloads), URI)
    sends = Sends(monkeypatch, payloads)
    again = staged(payloads)
    (again / "extra" / "more.txt").write_text("another time")
    assert payloads.publish(again, URI) == first
    assert not again.exists()
    other = staged(payloads, "other")
    with pytest.raises(AlreadyExists, match="another payload lies at"):
        payloads.publish(other, URI)
    assert other.exists()
    assert sends.names == []
    assert another(payloads, tmp_path).problems(URI, first.fingerprint) == []


def test_two_publish_the_same_at_once(payloads: RemotePayloads, tmp_path: Path) -> None:
    other = another(payloads, tmp_path)
    gate, found = threading.Barrier(2), []

    def publish(one: RemotePayloads) -> None:
        path = staged(one)
        gate.wait()
        found.append(one.publish(path, URI))

    threads = [threading.Thread(target=publish, args=(one,)) for one in (payloads, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 2
    assert found[0] == found[1]
    assert payloads.problems(URI, found[0].fingerprint) == []


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
    monkeypatch.setattr("drivetrain.metadata.transfer.AT_ONCE", 1)
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
    monkeypatch.setattr("drivetrain.metadata.transfer.AT_ONCE", 1)
    sends = Sends(monkeypatch, payloads)
    path = staged(payloads)
    sends.after = lambda name: payloads.objects.delete(f"{URI}/content/deep/file.txt") if "empty" in name else None
    payloads.publish(path, URI)
    assert sorted(sends.names) == ["content/deep/file.txt"] * 2 + ["content/empty.txt", "extra/report.html"]
    assert payloads.problems(URI) == []


def test_a_store_that_cuts_files_is_told_of(payloads: RemotePayloads, monkeypatch: pytest.MonkeyPatch) -> None:
    sends = Sends(monkeypatch, payloads)
    sends.after = lambda name: payloads.objects.write(f"{URI}/content/deep/file.txt", b"hell")
    with pytest.raises(StorageUnavailable, match=r"file\.txt does not lie there as it was sent"):
        payloads.publish(staged(payloads), URI)
    assert not payloads.present(URI)


def test_checksums_are_believed_when_they_are_some(payloads: RemotePayloads, monkeypatch: pytest.MonkeyPatch) -> None:
    """An MD5 that fits spares sending; one that does not is looked into: some stores encrypt, and tell another."""
    told = {"right": 0, "wrong": 0}
    real = type(payloads.objects).entries
    how = ["right"]

    def entries(this: Any, folder: str) -> dict[str, objects.Entry]:
        found = real(this, folder)
        for name, entry in found.items():
            told[how[0]] += 1
            data = this.read(f"{folder}/{name}") + (b"" if how[0] == "right" else b"encrypted")
            found[name] = objects.Entry(entry.size, hashlib.md5(data).hexdigest(), entry.changed)
        return found

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
    assert told["right"]
    assert told["wrong"]
    assert payloads.problems("artifacts/Node/second/out") == []


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("content/deep/file.txt", b"hellO", ["content/deep/file.txt changed"]),
        ("content/deep/file.txt", b"hello, world", ["content/deep/file.txt changed"]),
        ("content/empty.txt", None, ["content/empty.txt is missing"]),
        ("content/more.txt", b"", ["content/more.txt is new"]),
        ("extra/report.html", b"<b>", ["extra/report.html changed"]),
        ("stray.txt", b"", ["stray.txt lies beside content and extra"]),
        ("manifest.json", None, ["cannot be read"]),
        ("manifest.json", b"{}", ["cannot be read"]),
        ("manifest.json", b"nonsense", ["cannot be read"]),
    ],
)
def test_every_change_is_seen(
    payloads: RemotePayloads, tmp_path: Path, name: str, data: bytes | None, said: list[str]
) -> None:
    payloads.publish(staged(payloads), URI)
    if data is None:
        payloads.objects.delete(f"{URI}/{name}")
    else:
        payloads.objects.write(f"{URI}/{name}", data)
    found = payloads.problems(URI)
    assert len(found) == len(said)
    assert all(text in problem for text, problem in zip(said, found, strict=True))
    other = another(payloads, tmp_path)
    if "new" in said[0] or "beside" in said[0]:
        assert other.local(URI).is_dir()  # what the manifest does not name is not fetched
        return
    with pytest.raises(InputError, match=r"is not what was published|is gone"):
        other.local(URI)
    assert not list((tmp_path / "another" / "work" / "fetched-payloads").glob("[!.]*"))


def test_the_stores_word_is_what_counts(payloads: RemotePayloads, tmp_path: Path) -> None:
    first = payloads.publish(staged(payloads), URI)
    payloads.remove(URI)
    payloads.publish(staged(payloads, "forged"), URI)
    assert payloads.problems(URI) == []
    assert payloads.problems(URI, first.fingerprint) == ["content is not what the store says"]
    for where in (payloads, another(payloads, tmp_path)):
        assert where.local(URI).is_dir()
        with pytest.raises(InputError, match="is not what was published"):
            where.local(URI, first.fingerprint)


@pytest.mark.parametrize("name", ["../evil.txt", "/etc/evil", "a/../../evil", "a//b", "./a", "a\0b", ""])
def test_a_manifest_leads_nowhere_else(payloads: RemotePayloads, tmp_path: Path, name: str) -> None:
    payloads.publish(staged(payloads), URI)
    body = json.loads(payloads.objects.read(f"{URI}/manifest.json"))
    body["content"]["files"][0]["path"] = name
    payloads.objects.write(f"{URI}/manifest.json", json.dumps(body).encode())
    with pytest.raises(InputError, match="is not what was published"):
        another(payloads, tmp_path).local(URI)
    assert not list(tmp_path.rglob("evil*"))


def test_a_full_disk_while_fetching(payloads: RemotePayloads, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Room is made by removing copies that nobody reads; where that does not help, it is said, and nothing is left."""
    for uid in ("one", "two"):
        payloads.publish(staged(payloads, uid, uid), f"artifacts/Node/{uid}/out")
    other = another(payloads, tmp_path)
    with other.reading():
        first = other.local("artifacts/Node/one/out")
    real, full = type(payloads.objects).fetch, [True]

    def fetch(this: Any, name: str, path: Path, *rest: Any) -> None:
        if full[0] or first.exists():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(this, name, path, *rest)

    monkeypatch.setattr(type(payloads.objects), "fetch", fetch)
    with pytest.raises(DiskFull, match="disk full while fetching artifacts/Node/two/out"):
        other.local("artifacts/Node/two/out")
    assert not list(other.fetched.folder.glob("[!.]*"))
    assert not list(other.fetched.folder.glob(".part-*"))
    full[0] = False
    second = other.local("artifacts/Node/two/out")
    assert (second / "content" / "deep" / "file.txt").read_text() == "two"


def test_progress_may_stop_an_upload_and_a_fetch(payloads: RemotePayloads, tmp_path: Path) -> None:
    def stop(done: int, total: int | None, unit: str) -> None:
        raise Canceled("enough")

    path = staged(payloads)
    with pytest.raises(Canceled):
        payloads.publish(path, URI, stop)
    assert path.is_dir()
    assert not payloads.present(URI)
    payloads.publish(path, URI)
    other = another(payloads, tmp_path)
    with pytest.raises(Canceled):
        other.local(URI, None, stop)
    assert other.local(URI).is_dir()


@pytest.mark.parametrize("failures", [1, 3])
def test_what_passes_is_tried_again(
    payloads: RemotePayloads, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failures: int
) -> None:
    monkeypatch.setattr(objects, "PAUSES", [0.0, 0.0, 0.0])
    kind = type(payloads.objects._files)
    left = {"put_file": failures, "find": failures, "cat_file": failures, "get_file": failures, "pipe_file": failures}

    def flaky(name: str, real: Any) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            if left[name]:
                left[name] -= 1
                raise ConnectionResetError("connection reset")
            return real(*args, **options)

        return call

    for name in left:
        monkeypatch.setattr(kind, name, flaky(name, getattr(kind, name)))
    payloads.publish(staged(payloads), URI)
    assert another(payloads, tmp_path).local(URI).is_dir()
    assert not any(left.values())


def test_what_lasts_is_told_at_once_and_what_does_not_pass_at_last(
    payloads: RemotePayloads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "PAUSES", [0.0, 0.0])
    monkeypatch.setenv("MY_SECRET_KEY", "hunter2-hunter2")
    kind, tries = type(payloads.objects._files), []
    error: list[Exception] = [
        PermissionError("no right for hunter2-hunter2 at https://me:hunter3@host/?sig=hunter4&a=1")
    ]

    def fail(*_: object, **__: object) -> None:
        tries.append(1)
        raise error[0]

    monkeypatch.setattr(kind, "put_file", fail)
    path = staged(payloads)
    with pytest.raises(InputError, match=r"may not be written .*\n  fix: give credentials") as caught:
        payloads.publish(path, URI)
    assert str(payloads.url) in str(caught.value)
    assert "hunter" not in str(caught.value)
    assert len(tries) <= 3  # once for each file
    tries.clear()
    error[0] = ConnectionError("refused")
    with pytest.raises(StorageUnavailable, match=r"cannot be written after 3 tries \(refused\)\n  fix: check the"):
        payloads.publish(path, URI)
    assert len(tries) <= 9


def test_other_names_below_the_prefix_are_no_payloads(payloads: RemotePayloads) -> None:
    payloads.publish(staged(payloads), URI)
    payloads.objects.write("artifacts/strange/file.txt", b"")
    payloads.objects.write("artifacts/loose.txt", b"")
    payloads.objects.write("records/run/task.json", b"{}")
    payloads.objects.write("artifacts_evil/Node/uid/out/manifest.json", b"{}")
    assert [each.uri for each in payloads.published()] == [URI]


def test_links_below_a_shared_folder_are_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "share" / "artifacts").mkdir(parents=True)
    (tmp_path / "share" / "artifacts" / "Node").symlink_to(outside)
    payloads = RemotePayloads(tmp_path / "root", f"file://{tmp_path}/share")
    path = staged(payloads)
    for call in (lambda: payloads.publish(path, URI), lambda: payloads.local(URI), lambda: payloads.remove(URI)):
        with pytest.raises(InputError, match="leads through the link"):
            call()
    assert list(outside.iterdir()) == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("cannot mount a tmpfs here (needs root)")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_a_disk_that_is_full(payloads: RemotePayloads, small_disk: Path) -> None:
    for uid, size in (("one", 300_000), ("two", 350_000), ("much", 900_000)):
        path = payloads.stage("Node", uid, "out")
        (path / "content" / "data.bin").write_bytes(uid.encode() * (size // len(uid)))
        payloads.publish(path, f"artifacts/Node/{uid}/out")
    other = RemotePayloads(small_disk / "root", str(payloads.url))
    with other.reading():
        first = other.local("artifacts/Node/one/out")
        with pytest.raises(DiskFull, match=r"disk full while fetching artifacts/Node/two/out.*\n  fix: free space"):
            other.local("artifacts/Node/two/out")
        assert (first / "content" / "data.bin").stat().st_size == 300_000  # it is being read
    second = other.local("artifacts/Node/two/out")
    assert (second / "content" / "data.bin").stat().st_size == 349_998
    assert not first.exists()
    other.close()
    with pytest.raises(DiskFull):
        other.local("artifacts/Node/much/out")
    assert not second.exists()
    assert list(other.fetched.folder.glob(".part-*")) == []
