"""Payloads behind a URL: what is fetched is what was staged, whatever its names, below its prefix alone."""

from __future__ import annotations

import json
import shutil
from hashlib import sha256
from pathlib import Path

import pytest
from drivetrain.digest import digest_tree
from drivetrain.errors import InputError
from drivetrain.metadata import AlreadyExists, LocalPayloads
from drivetrain.metadata.payload_remote import RemotePayloads
from drivetrain.tests.metadata.behind_url import URI, Sends, another, emptied_memory, files, payloads, url
from drivetrain.tests.metadata.payloads import staged
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

__all__ = ["emptied_memory", "payloads", "url"]

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


def test_a_payload_is_what_a_local_one_would_be(payloads: RemotePayloads, tmp_path: Path) -> None:
    local = LocalPayloads(tmp_path / "local")
    path = staged(payloads)
    twin = local.stage("Node", "uid", "out")
    shutil.copytree(path, twin, dirs_exist_ok=True)
    progress: list[tuple[int, int | None, str]] = []
    assert payloads.publish(path, URI, lambda *much: progress.append(much)) == local.publish(twin, URI)
    assert progress[-1] == (8, 8, "bytes uploaded")
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


def test_names_that_a_store_may_misread_are_digests_there_and_empty_folders_nothing(
    payloads: RemotePayloads, tmp_path: Path
) -> None:
    path = payloads.stage("Node", "uid", "out")
    for name in ("plain.txt", "a#b?.txt", "ü.csv"):
        (path / "content" / name).write_bytes(name.encode())
    (path / "content" / "empty" / "folder").mkdir(parents=True)
    payloads.publish(path, URI)
    digests = {f"_named-{sha256(name.encode()).hexdigest()}" for name in ("a#b?.txt", "ü.csv")}
    assert set(payloads.objects.entries(f"{URI}/content")) == {"plain.txt", *digests}
    there = another(payloads, tmp_path).local(URI) / "content"
    assert sorted(each.name for each in there.iterdir()) == ["a#b?.txt", "plain.txt", "ü.csv"]


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
    with pytest.raises(AlreadyExists, match="another payload is at"):
        payloads.publish(other, URI)
    assert other.exists()
    assert sends.names == []
    assert another(payloads, tmp_path).problems(URI, first.fingerprint) == []


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
