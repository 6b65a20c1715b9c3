"""Payloads behind a URL: what is read is compared with what was published, on a disk that may be full."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest
from drivetrain.errors import InputError
from drivetrain.metadata import DiskFull, fetched
from drivetrain.metadata.payload_remote import RemotePayloads
from drivetrain.tests.metadata.behind_url import URI, another, emptied_memory, payloads, small_disk, url
from drivetrain.tests.metadata.payloads import staged

__all__ = ["emptied_memory", "payloads", "small_disk", "url"]


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("content/deep/file.txt", b"hellO", ["content/deep/file.txt changed"]),
        ("content/deep/file.txt", b"hello, world", ["content/deep/file.txt changed"]),
        ("content/empty.txt", None, ["content/empty.txt is missing"]),
        ("content/more.txt", b"", ["content/more.txt is new"]),
        ("extra/report.html", b"<b>", ["extra/report.html changed"]),
        ("stray.txt", b"", ["stray.txt is beside content and extra"]),
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
    problems = payloads.problems(URI)
    assert len(problems) == len(said)
    assert all(text in problem for text, problem in zip(said, problems, strict=True))
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


def test_after_a_power_loss_a_copy_is_mended(
    payloads: RemotePayloads, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What of it is whole is not fetched again."""
    payloads.publish(staged(payloads), URI)
    torn = payloads.local(URI) / "content" / "deep" / "file.txt"
    payloads.close()
    torn.chmod(0o644)
    torn.write_bytes(b"")
    monkeypatch.setattr(fetched, "_start", lambda: b"another start")
    again, names = RemotePayloads(tmp_path / "root", str(payloads.url)), []
    real = type(again.objects).fetch

    def fetch(this: Any, name: str, *rest: Any) -> None:
        names.append(name)
        real(this, name, *rest)

    monkeypatch.setattr(type(again.objects), "fetch", fetch)
    for _ in range(2):
        assert (again.local(URI) / "content" / "deep" / "file.txt").read_text() == "hello"
    assert names == [f"{URI}/content/deep/file.txt"]


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
