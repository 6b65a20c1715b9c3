"""Outputs on their way elsewhere: what a power loss tore is not sent, two may send the same, a week begins anew."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from drivetrain.metadata import Artifact, MetadataStore, Payloads, Value, open_payloads
from drivetrain.pipelines.launcher.pending_uploads import PendingUpload, clear, pack, unsent
from drivetrain.stores import StorageUnavailable

pytest.importorskip("fsspec")
UID = "7c1e0b5e-52c4-4a3e-8a43-1c2d3e4f5a6b"
DAY = 86400.0


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MetadataStore]:
    with MetadataStore.open(tmp_path / "metadata.db") as opened:
        yield opened


@pytest.fixture
def payloads(store: MetadataStore, tmp_path: Path) -> Payloads:
    return open_payloads(store, tmp_path, f"file://{tmp_path}/share")


def packed(payloads: Payloads, keys: tuple[str, ...] = ("one", "two")) -> PendingUpload:
    outputs: dict[str, Artifact] = {}
    for key in keys:
        path = payloads.stage("Make", UID, key)
        (path / "content" / "value.json").write_text(f'"{key}"')
        (path / "extra").mkdir(exist_ok=True)
        for number in range(3):
            (path / "extra" / f"log-{number}.txt").write_text(f"{key} {number}")
        outputs[key] = Value(path)
    work = payloads.root / "work" / "nodes" / "key"
    return pack(work, UID, "run", outputs, {key: f"artifacts/Make/{UID}/{key}" for key in keys}, {})


def told(done: int, total: int | None, unit: str) -> None:
    """Nobody listens."""


@pytest.mark.parametrize("torn", ["content/value.json", "extra/log-1.txt"])
def test_what_a_power_loss_tore_is_not_sent(payloads: Payloads, torn: str) -> None:
    upload = packed(payloads)
    work = upload.folder.parent
    assert unsent(work, payloads) == upload
    (upload.folder / "two" / torn).write_bytes(b"")
    assert unsent(work, payloads) is None


def test_two_send_the_same(payloads: Payloads, store: MetadataStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """One was silent past its lease, and goes on; what it has sent and moved away, the other need not send."""
    upload, other = packed(payloads), open_payloads(store, payloads.root)
    real, left = type(payloads.objects).send, [2]  # type: ignore[attr-defined]

    def send(this: Any, path: Path, name: str, *rest: Any) -> None:
        if this is payloads.objects and left[0] == 0:  # type: ignore[attr-defined]
            left[0] = -1
            assert upload.send(other, told).keys() == {"one", "two"}
        elif this is payloads.objects:  # type: ignore[attr-defined]
            left[0] -= 1
        real(this, path, name, *rest)

    monkeypatch.setattr("drivetrain.stores.AT_ONCE", 1)
    monkeypatch.setattr(type(payloads.objects), "send", send)  # type: ignore[attr-defined]
    published = upload.send(payloads, told)
    assert left == [-1]
    for (output,) in published.values():
        assert payloads.problems(output.uri, output.fingerprint) == []


def test_what_is_gone_and_was_not_sent_is_an_error(payloads: Payloads, monkeypatch: pytest.MonkeyPatch) -> None:
    upload = packed(payloads)
    real = type(payloads.objects).send  # type: ignore[attr-defined]

    def send(this: Any, path: Path, name: str, *rest: Any) -> None:
        path.unlink()
        real(this, path, name, *rest)

    monkeypatch.setattr(type(payloads.objects), "send", send)  # type: ignore[attr-defined]
    with pytest.raises(FileNotFoundError):
        upload.send(payloads, told)


def test_the_week_begins_anew_with_each_try(
    payloads: Payloads, store: MetadataStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload = packed(payloads)
    old = time.time() - 6.9 * DAY

    def fail(*_: object) -> None:
        raise StorageUnavailable("not today")

    with monkeypatch.context() as patch:
        patch.setattr(type(payloads.objects), "send", fail)  # type: ignore[attr-defined]
        for _ in range(2):
            os.utime(upload.folder, (old, old))
            with pytest.raises(StorageUnavailable):
                upload.send(payloads, told)
    clear(payloads, store.artifact_by_uri, now=time.time() + 6 * DAY)
    assert unsent(upload.folder.parent, payloads) == upload
    clear(payloads, store.artifact_by_uri, now=time.time() + 8 * DAY)
    assert not upload.folder.exists()
    assert payloads.published() == []
