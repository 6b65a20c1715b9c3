"""Payloads in an S3 that is not ours: killed uploads, a server that goes away, parts, rights, two publishers."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from drivetrain import stores
from drivetrain.digest import digest_tree
from drivetrain.errors import InputError
from drivetrain.metadata.payload_remote import RemotePayloads
from drivetrain.stores import StorageUnavailable
from drivetrain.tests.s3 import KEY, S3, SECRET, bucket, s3, s3_server

__all__ = ["bucket", "s3", "s3_server"]
pytestmark = pytest.mark.s3

WORKERS = Path(__file__).with_name("workers.py")
URI = "artifacts/Node/uid/out"


def staged(payloads: RemotePayloads, count: int = 3, size: int = 1000) -> Path:
    path = payloads.stage("Node", "uid", "out")
    for number in range(count):
        (path / "content" / f"part-{number:02}").write_bytes(os.urandom(size))
    (path / "extra").mkdir()
    (path / "extra" / "report.html").write_text("<p>")
    return path


def test_a_payload_in_s3(s3: S3, bucket: str, tmp_path: Path) -> None:
    payloads = RemotePayloads(tmp_path / "root", f"{bucket}/prefix")
    path = staged(payloads)
    expected = digest_tree(path / "content")
    assert payloads.publish(path, URI) == expected
    names = sorted([f"content/part-{number:02}" for number in range(3)] + ["extra/report.html"])
    assert sorted(s3.puts()[:-1]) == [f"prefix/{URI}/{name}" for name in names]
    assert s3.puts()[-1] == f"prefix/{URI}/manifest.json"
    other = RemotePayloads(tmp_path / "another", f"{bucket}/prefix/")
    assert digest_tree(other.local(URI, expected.fingerprint) / "content") == expected
    assert other.problems(URI, expected.fingerprint) == []
    assert [(each.uri, each.whole) for each in other.published()] == [(URI, True)]
    changed = other.published()[0].changed
    assert changed is not None
    assert abs(changed - time.time()) < 60
    other.objects.write(f"{URI}/content/part-01", os.urandom(1000))
    with pytest.raises(InputError, match=r"content/part-01 is not what was published"):
        RemotePayloads(tmp_path / "third", f"{bucket}/prefix").local(URI)
    assert other.problems(URI) == ["content/part-01 changed"]
    other.remove(URI)
    assert other.objects.entries("artifacts") == {}


def test_a_sibling_prefix_is_another_root(bucket: str, tmp_path: Path) -> None:
    good = RemotePayloads(tmp_path / "good", f"{bucket}/prefix")
    evil = RemotePayloads(tmp_path / "evil", f"{bucket}/prefix_evil")
    evil.publish(staged(evil), URI)
    assert good.published() == []
    assert not good.present(URI)
    good.publish(staged(good), URI)
    good.remove(URI)
    assert evil.problems(URI) == []


def test_a_large_file_goes_in_parts(s3: S3, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its ETag is not a checksum: the journal and the size stand for it."""
    import s3fs.core  # type: ignore[import-untyped]

    monkeypatch.setattr(s3fs.core, "calculate_chunksize", lambda size, chunksize=None: 5 << 20)
    payloads = RemotePayloads(tmp_path / "root", bucket)
    path = staged(payloads, 1, 11 << 20)
    expected = payloads.publish(path, URI)
    parts = [request for request in s3.asked if request.startswith("PUT ") and "partNumber" in request]
    assert len(parts) == 3
    assert payloads.objects.entries(URI)["content/part-00"].md5 is None
    other = RemotePayloads(tmp_path / "another", bucket)
    assert digest_tree(other.local(URI) / "content") == expected
    assert other.problems(URI, expected.fingerprint) == []


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc how much memory was taken")
def test_a_file_of_any_size_takes_bounded_memory(bucket: str, tmp_path: Path) -> None:
    payloads = RemotePayloads(tmp_path / "root", bucket)
    path = payloads.stage("Node", "uid", "out")
    with (path / "content" / "large").open("wb") as file:
        file.truncate(160 << 20)
    root, other = str(tmp_path / "root"), str(tmp_path / "another")
    for words in (["upload", root, bucket, str(path), URI], ["fetch", other, bucket, URI]):
        command = [sys.executable, str(WORKERS), *words]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        assert int(done.stdout) < 280 << 10  # KiB; in the parts that s3fs chooses 390 MiB, and more for larger ones
    assert payloads.present(URI)


@pytest.mark.slow
def test_a_killed_upload_goes_on_where_it_stopped(s3: S3, bucket: str, tmp_path: Path) -> None:
    """What lies there whole, whether its sender could note that or not, is not sent again."""
    root, ended, count, first = tmp_path / "root", threading.Event(), 12, 5
    asked = itertools.count()

    def before(request: str) -> int | None:
        if not request.startswith("PUT ") or next(asked) < first:
            return None
        ended.wait(280)
        return 503  # to nobody: what was sent to a dead server is not stored

    payloads = RemotePayloads(root, bucket)
    path = staged(payloads, count)
    s3.before = before
    process = subprocess.Popen([sys.executable, str(WORKERS), "upload", str(root), bucket, str(path), URI])
    try:
        while len(there := {name.rpartition("/")[2] for name in payloads.objects.entries(URI)}) < first:
            assert process.poll() is None
            time.sleep(0.05)
    finally:
        process.kill()
        process.wait()
        ended.set()
    s3.before = lambda request: None
    assert len(there) == first
    assert not payloads.present(URI)
    s3.asked.clear()
    expected = payloads.publish(path, URI)
    sent = {name.rpartition("/")[2] for name in s3.puts()}
    assert not sent & there
    assert len(sent | there) == count + 2  # the report and the manifest
    assert RemotePayloads(tmp_path / "another", bucket).problems(URI, expected.fingerprint) == []


@pytest.mark.slow
def test_a_server_that_goes_away_meanwhile(s3: S3, bucket: str, tmp_path: Path) -> None:
    payloads = RemotePayloads(tmp_path / "root", bucket)
    path = staged(payloads, 20)
    gone = threading.Event()

    def before(request: str) -> None:
        if len(s3.puts()) >= 8:
            gone.set()

    s3.before = before

    def restart() -> None:
        assert gone.wait(60)
        s3.stop()
        time.sleep(3)
        s3.start()

    thread = threading.Thread(target=restart)
    thread.start()
    expected = payloads.publish(path, URI)
    thread.join()
    assert RemotePayloads(tmp_path / "another", bucket).problems(URI, expected.fingerprint) == []


def test_a_server_that_stays_away(s3: S3, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "PAUSES", [0.01])
    payloads = RemotePayloads(tmp_path / "root", bucket)
    path = staged(payloads)
    s3.before = lambda request: 503 if request.startswith("PUT") else None
    with pytest.raises(StorageUnavailable, match=rf"{bucket}/{URI}/.* cannot be written after 2 tries") as caught:
        payloads.publish(path, URI)
    assert SECRET not in str(caught.value)
    s3.before = lambda request: None
    payloads.publish(path, URI)
    assert payloads.problems(URI) == []


@pytest.mark.parametrize("status", [500, 503])
def test_a_server_that_fails_now_and_then(
    s3: S3, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setattr(stores, "PAUSES", [0.05] * 4)
    payloads = RemotePayloads(tmp_path / "root", bucket)
    left = [2]

    def before(request: str) -> int | None:
        if request.startswith(("PUT", "GET")) and left[0]:
            left[0] -= 1
            return status
        return None

    s3.before = before
    payloads.publish(staged(payloads), URI)
    left[0] = 2
    assert RemotePayloads(tmp_path / "another", bucket).local(URI).is_dir()


def test_two_publishers_at_once(bucket: str, tmp_path: Path) -> None:
    """As when a lease ran out: both send the same, and the last manifest is as good as the first."""
    first_publisher, second_publisher = (RemotePayloads(tmp_path / name, bucket) for name in ("one", "two"))
    first = staged(first_publisher, 10)
    second = second_publisher.stage("Node", "uid", "out")
    shutil.copytree(first, second, dirs_exist_ok=True)
    trees: list[object] = []
    threads = [
        threading.Thread(target=lambda each, path: trees.append(each.publish(path, URI)), args=(each, path))
        for each, path in ((first_publisher, first), (second_publisher, second))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(trees) == 2
    assert trees[0] == trees[1]
    assert RemotePayloads(tmp_path / "another", bucket).problems(URI) == []


def test_a_bucket_that_is_not_there(s3: S3, bucket: str, tmp_path: Path) -> None:
    payloads = RemotePayloads(tmp_path / "root", f"{bucket}-not/prefix")
    with pytest.raises(InputError, match=r"s3://bucket-\w+-not/prefix/.*there is no such bucket.*\n  fix: make it"):
        payloads.publish(staged(payloads), URI)
    assert not any(request.startswith("PUT /bucket-") and request.count("/") == 1 for request in s3.asked)


def test_no_right_and_no_credentials(s3: S3, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import s3fs

    payloads = RemotePayloads(tmp_path / "root", bucket)
    path = staged(payloads)
    s3.before = lambda request: 403 if request.startswith("PUT") else None
    s3.asked.clear()
    with pytest.raises(
        InputError, match=rf"{bucket}/{URI}/.* may not be written .*\n  fix: give credentials"
    ) as caught:
        payloads.publish(path, URI)
    assert len(s3.puts()) <= 4  # each file once, at most
    assert SECRET not in str(caught.value)
    assert KEY not in str(caught.value)
    s3.before = lambda request: None
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    s3fs.S3FileSystem.clear_instance_cache()
    try:
        with pytest.raises(InputError, match=r"may not be .*[Cc]redentials.*\n  fix: give credentials"):
            RemotePayloads(tmp_path / "root", bucket).publish(path, URI)
    finally:
        s3fs.S3FileSystem.clear_instance_cache()


def test_what_a_payload_costs_is_what_the_page_says(s3: S3, bucket: str, tmp_path: Path) -> None:
    files = 20
    payloads = RemotePayloads(tmp_path / "root", f"{bucket}/prefix")
    path = staged(payloads, files - 1)
    payloads.publish(path, URI)
    writes = [request for request in s3.asked if request.startswith("PUT ")]
    assert len(writes) == files + 1
    assert len(s3.asked) - len(writes) <= 8
    s3.asked.clear()
    assert payloads.present(URI)
    assert len(s3.asked) == 1
    s3.asked.clear()
    RemotePayloads(tmp_path / "another", f"{bucket}/prefix").local(URI)
    reads = [request for request in s3.asked if request.startswith("GET ")]
    assert (len(reads), len(s3.asked)) == (files + 1, files + 2)
