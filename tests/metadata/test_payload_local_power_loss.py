"""A payload that was published survives a power loss, whoever made the folders that it lies in."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from drivetrain.digest import sync_folder
from drivetrain.metadata import LocalPayloads, payload_local
from drivetrain.tests.metadata.power import Disk, files

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="asks /proc which file a descriptor is")
URI = "artifacts/Make/7c1e/out"


def staged(payloads: LocalPayloads) -> Path:
    path = payloads.stage("Make", "7c1e", "out")
    for name in ("content/part.bin", "content/deep/er/part.bin", "extra/log.txt"):
        file = path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(name)
    return path


@pytest.mark.parametrize("kind", ["", "artifacts", "artifacts/Make", "artifacts/Make/7c1e"])
def test_what_is_published_is_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Even where another process has made a folder on the way to it, and not synced it yet."""
    (tmp_path / kind).mkdir(parents=True, exist_ok=True)
    payloads, disk = LocalPayloads(tmp_path), Disk(tmp_path, monkeypatch)
    payloads.publish(staged(payloads), URI)
    assert disk.left(tmp_path / URI) == files(tmp_path / URI)


def test_what_is_published_again_is_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the sync after the rename failed, it is there, and was not published."""
    payloads, disk = LocalPayloads(tmp_path), Disk(tmp_path, monkeypatch)

    def failing(folder: Path) -> None:
        if (tmp_path / URI).exists():
            raise OSError(5, "Input/output error")
        sync_folder(folder)

    ready = staged(payloads)
    with monkeypatch.context() as patch:
        patch.setattr(payload_local, "sync_folder", failing)
        with pytest.raises(OSError, match="Input/output"):
            payloads.publish(ready, URI)
    assert disk.left(tmp_path / URI) is None
    payloads.publish(staged(payloads), URI)
    assert disk.left(tmp_path / URI) == files(tmp_path / URI)
