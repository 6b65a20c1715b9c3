"""The image of a database is what SQLite itself reads of its file and its log, whatever became of that."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from drivetrain.metadata import sqlite_image
from drivetrain.metadata.sqlite_image import read_image


@pytest.fixture(autouse=True)
def at_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that were written a moment ago count as at rest: nobody writes them in these tests."""
    monkeypatch.setattr(sqlite_image, "_TICK", 0)


def dump(connection: sqlite3.Connection) -> list[str]:
    return [*connection.iterdump(), str(connection.execute("PRAGMA integrity_check").fetchall())]


def by_sqlite(path: Path, folder: Path) -> list[str]:
    """What SQLite reads of copies of the files, as after a crash."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for end in ("", "-wal"):
        if (file := path.with_name(path.name + end)).exists():
            shutil.copy(file, folder)
    with closing(sqlite3.connect(folder / path.name)) as copy:
        return dump(copy)


def by_image(path: Path) -> list[str]:
    image = read_image(path)
    assert image is not None
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.deserialize(image)
        return dump(connection)


@pytest.fixture(params=[512, 4096, 65536])
def writer(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """A database in WAL mode with pages of such a size, whose log grows until a checkpoint is asked for."""
    with closing(sqlite3.connect(tmp_path / "a.db", isolation_level=None)) as connection:
        connection.execute(f"PRAGMA page_size = {request.param}")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute("PRAGMA cache_size = 3")  # so that what is not committed is in the log too
        connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, text TEXT)")
        yield connection


@pytest.mark.parametrize("seed", range(2))
def test_an_image_is_what_sqlite_reads(writer: sqlite3.Connection, tmp_path: Path, seed: int) -> None:
    """After commits, rollbacks, checkpoints, logs begun anew, a database grown smaller, within a transaction."""
    draw, path = random.Random(seed), tmp_path / "a.db"
    for step in range(20):
        writer.execute("BEGIN")
        for _ in range(draw.randrange(1, 40)):
            writer.execute("INSERT INTO t (text) VALUES (?)", (f"{step}" * draw.randrange(1, 300),))
        if step % 3 == 0:
            assert by_image(path) == by_sqlite(path, tmp_path / "copy")  # within the transaction
        writer.execute("ROLLBACK" if draw.random() < 0.3 else "COMMIT")
        if draw.random() < 0.2:
            writer.execute("DELETE FROM t WHERE id % 2")
            writer.execute("VACUUM")
        if draw.random() < 0.4:
            mode = draw.choice(["PASSIVE", "FULL", "RESTART", "TRUNCATE"])
            writer.execute(f"PRAGMA wal_checkpoint({mode})")
        assert by_image(path) == by_sqlite(path, tmp_path / "copy")


def test_a_log_that_is_cut_or_damaged_counts_as_far_as_for_sqlite(writer: sqlite3.Connection, tmp_path: Path) -> None:
    draw, path = random.Random(7), tmp_path / "a.db"
    for step in range(12):
        writer.execute("INSERT INTO t (text) VALUES (?)", (str(step) * 2000,))
    log = (tmp_path / "a.db-wal").read_bytes()
    hurt = tmp_path / "hurt"
    hurt.mkdir()
    shutil.copy(path, hurt)
    for _ in range(30):
        at, bit = draw.randrange(len(log)), 1 << draw.randrange(8)
        flipped = bytes([*log[:at], log[at] ^ bit, *log[at + 1 :]])
        for damaged in (log[:at], flipped):
            (hurt / "a.db-wal").write_bytes(damaged)
            if int.from_bytes(damaged[4:8], "big") == 3_007_000 or len(damaged) < 32:  # else SQLite opens nothing
                assert by_image(hurt / "a.db") == by_sqlite(hurt / "a.db", tmp_path / "copy")


def test_a_database_that_was_just_written_is_looked_at_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    path = tmp_path / "a.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE t (x)")
    path.touch()
    assert read_image(path) is None  # another write in the same tick of the clock would not show
    assert read_image(path) == path.read_bytes()[:18] + b"\1\1" + path.read_bytes()[20:]


def test_an_empty_database_is_no_image(tmp_path: Path) -> None:
    (tmp_path / "a.db").touch()
    assert read_image(tmp_path / "a.db") == b""
