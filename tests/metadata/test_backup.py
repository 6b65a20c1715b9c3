"""A backup is one state of the store, checked, whole or not at all; restored, it is that store again."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from drivetrain.digest import sync_folder
from drivetrain.errors import InputError
from drivetrain.metadata import AlreadyExists, MetadataStore, StagedArtifact, StoreDamaged
from drivetrain.metadata.backup import back_up, check_store, database_file, restore
from drivetrain.tests.metadata.power import Disk

WORKERS = Path(__file__).with_name("workers.py")


def publish(store: MetadataStore, name: str) -> None:
    execution = store.start("Make", contexts=[store.context("run", name, {"state": "COMPLETE"})])
    store.publish(execution, {"out": [StagedArtifact("Thing", f"artifacts/Make/{name}/out", "f" * 64, 1)]})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with MetadataStore.open(tmp_path / "metadata.db") as store:
        publish(store, "first")
    return tmp_path / "metadata.db"


def test_a_backup_is_one_state_while_others_write(path: Path, tmp_path: Path) -> None:
    writer = subprocess.Popen([sys.executable, str(WORKERS), "publish", str(path), "0", "150"])
    counts: list[int] = []
    while writer.poll() is None or len(counts) < 2:
        copy = tmp_path / f"{len(counts)}.db"
        back_up(path, copy)
        connection = sqlite3.connect(f"{copy.as_uri()}?mode=ro&immutable=1", uri=True)
        done, outputs = (connection.execute(sql).fetchone()[0] for sql in (
            "SELECT count(*) FROM execution WHERE state = 'COMPLETE'", "SELECT count(*) FROM event"))  # fmt: skip
        assert connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"  # by SQLite itself
        connection.close()
        assert done == outputs
        counts.append(done)
    assert writer.returncode == 0
    assert counts == sorted(counts)
    assert not list(tmp_path.glob(".*"))


def test_what_was_restored_is_the_store_of_then_without_the_log_of_now(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copies" / "a.db"
    back_up(path, copy)
    with MetadataStore.open(path) as store:
        publish(store, "later")
        shutil.copyfile(f"{path}-wal", tmp_path / "log")
    shutil.copyfile(tmp_path / "log", f"{path}-wal")  # as a kill leaves it
    path.write_bytes(b"SQLite format 3\0 but nothing else")
    kept = restore(copy, path)
    assert kept is not None
    assert kept.read_bytes().endswith(b"nothing else")
    with MetadataStore.open(path) as store:
        assert [context.name for context in store.contexts("run")] == ["first"]
        publish(store, "second")
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
    connection.close()


def test_a_damaged_database_gives_no_backup_and_a_damaged_backup_no_database(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    back_up(path, copy)
    whole = path.read_bytes()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA ignore_check_constraints = ON")
    connection.execute("UPDATE execution SET properties = '{'")
    connection.commit()
    connection.close()
    with pytest.raises(StoreDamaged, match="cannot be read"):
        back_up(path, tmp_path / "second.db")
    assert not (tmp_path / "second.db").exists()
    copy.write_bytes(copy.read_bytes()[:8192])
    damaged = path.read_bytes()
    with pytest.raises(StoreDamaged) as refusal:
        restore(copy, path)
    assert (refusal.value.fix or "").startswith("name another copy")
    assert path.read_bytes() == damaged
    path.write_bytes(whole)
    check_store(path)
    assert not list(tmp_path.glob(".*"))


def test_a_backup_replaces_no_file(path: Path, tmp_path: Path) -> None:
    (tmp_path / "there.db").write_text("mine")
    with pytest.raises(AlreadyExists, match="exists"):
        back_up(path, tmp_path / "there.db")
    assert (tmp_path / "there.db").read_text() == "mine"
    with pytest.raises(InputError, match="cannot be written"):
        back_up(path, tmp_path / "there.db" / "below.db")
    with pytest.raises(InputError, match="no file"):
        restore(tmp_path / "missing.db", path)


def test_restoring_leaves_the_copy_alone_beside_nothing_new(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copies" / "a.db"
    back_up(path, copy)
    restore(copy, path)
    assert [each.name for each in copy.parent.iterdir()] == ["a.db"]


@pytest.mark.parametrize("content", ["", "-----BEGIN PUBLIC KEY-----"])
def test_what_is_no_copy_is_not_called_damaged(path: Path, tmp_path: Path, content: str) -> None:
    (tmp_path / "pub.pem").write_text(content)
    with pytest.raises(InputError, match=r"pub\.pem is not a copy of the metadata") as refusal:
        restore(tmp_path / "pub.pem", path)
    assert (refusal.value.fix or "").startswith("name another copy")


def test_a_server_is_copied_by_its_tools() -> None:
    with pytest.raises(InputError) as caught:
        database_file("postgresql://ann:geheimes@host/db")
    assert "pg_dump" in str(caught.value)
    assert "geheimes" not in str(caught.value)


def test_a_copy_is_durable_before_it_has_its_name(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(tmp_path, monkeypatch)
    link, left = os.link, []

    def name(unfinished: Path, target: Path) -> None:
        sync_folder(unfinished.parent)  # as the system may do at any time
        left.append((disk.left(unfinished.parent) or {}).get(unfinished.name))
        link(unfinished, target)

    monkeypatch.setattr(os, "link", name)
    copy = tmp_path / "copies" / "a.db"
    back_up(path, copy)
    assert left == [copy.read_bytes()]
    assert (disk.left(copy.parent) or {})["a.db"] == copy.read_bytes()


def test_the_log_beside_a_copy_is_restored_with_it(path: Path, tmp_path: Path) -> None:
    """What was kept of a killed process's store has its last writes in a log beside it."""
    with MetadataStore.open(path) as store:
        publish(store, "later")
        kept = tmp_path / "metadata.db.replaced-1"
        shutil.copyfile(path, kept)
        shutil.copyfile(f"{path}-wal", f"{kept}-wal")
    restore(kept, tmp_path / "restored" / "metadata.db")
    with MetadataStore.open(tmp_path / "restored" / "metadata.db") as store:
        assert sorted(context.name for context in store.contexts("run")) == ["first", "later"]
    assert {file.name for file in (tmp_path / "restored").iterdir()} == {"metadata.db"}
