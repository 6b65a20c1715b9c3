"""Payloads behind a URL: what passes is tried again, what lasts is one error, and progress may stop all."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

import pytest
from drivetrain import stores
from drivetrain.errors import Canceled, InputError
from drivetrain.metadata import payload_remote
from drivetrain.metadata.payload import MANIFEST
from drivetrain.metadata.payload_remote import RemotePayloads
from drivetrain.stores import StorageUnavailable
from drivetrain.tests.metadata.behind_url import URI, another, emptied_memory, payloads, url
from drivetrain.tests.metadata.payloads import staged

__all__ = ["emptied_memory", "payloads", "url"]


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
    monkeypatch.setattr(stores, "PAUSES", [0.0, 0.0, 0.0])
    kind = type(payloads.objects._files)
    used = ["put_file", "find", "cat_file", "pipe_file"]
    if not str(payloads.url).startswith("memory:"):  # files in memory are read whole, by `cat_file`
        used.append("get_file")
    left = dict.fromkeys(used, failures)

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


@pytest.mark.parametrize("half", [b"", b'{"content'])
def test_a_manifest_that_another_publisher_is_writing_is_waited_for(
    payloads: RemotePayloads, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, half: bytes
) -> None:
    monkeypatch.setattr(payload_remote, "_SETTLING", (0.01, 0.01, 0.01))
    kind = type(payloads.objects._files)
    real, halves = kind.cat_file, [half, half]

    def cat(files: Any, path: str, *args: Any, **options: Any) -> bytes:
        content = real(files, path, *args, **options)
        return halves.pop() if path.endswith(MANIFEST) and halves else content

    monkeypatch.setattr(kind, "cat_file", cat)
    payloads.publish(staged(payloads), URI)
    assert not halves
    assert another(payloads, tmp_path).problems(URI) == []


def test_what_lasts_is_told_at_once_and_what_does_not_pass_at_last(
    payloads: RemotePayloads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "PAUSES", [0.0, 0.0])
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
    kept = "".join(traceback.format_exception(caught.value))  # as the store keeps it with the execution
    assert "in fail" in kept
    assert "hunter" not in kept
    assert len(tries) <= 3  # once for each file
    tries.clear()
    error[0] = ConnectionError("refused")
    with pytest.raises(StorageUnavailable, match=r"cannot be written after 3 tries \(refused\)\n  fix: check the"):
        payloads.publish(path, URI)
    assert len(tries) <= 9
