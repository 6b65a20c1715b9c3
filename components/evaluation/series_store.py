"""What a series of metrics keeps on disk: one SQLite file, changed in transactions, so that a kill loses nothing.

Predictions wait in chunks, Arrow tables of the rows of one window that came together; `predictions` says for each key
in which chunk and row it is, or that its label has come. Labels that come before their predictions wait likewise.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias

import pyarrow as pa

from ...errors import DrivetrainError, InputError

Key: TypeAlias = int | str

_NAME: Final = "series.db"
_FORMAT: Final = 1
_PATIENCE: Final = 60.0  # seconds to wait for another process that writes
_TABLES: Final = """
CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE windows (start INTEGER PRIMARY KEY, predicted INTEGER NOT NULL DEFAULT 0,
    judged INTEGER NOT NULL DEFAULT 0, repeated INTEGER NOT NULL DEFAULT 0, late INTEGER NOT NULL DEFAULT 0,
    unusable INTEGER NOT NULL DEFAULT 0, problem TEXT, closed INTEGER NOT NULL DEFAULT 0);
CREATE TABLE states (start INTEGER NOT NULL, part INTEGER NOT NULL, rows INTEGER NOT NULL, state BLOB NOT NULL,
    PRIMARY KEY (start, part));
CREATE TABLE chunks (chunk INTEGER PRIMARY KEY, waiting INTEGER NOT NULL, rows BLOB NOT NULL);
CREATE TABLE predictions (key PRIMARY KEY, start INTEGER NOT NULL, chunk INTEGER, row INTEGER) WITHOUT ROWID;
CREATE INDEX predictions_by_window ON predictions (start);
CREATE TABLE labels (key PRIMARY KEY, chunk INTEGER NOT NULL, row INTEGER NOT NULL, until INTEGER) WITHOUT ROWID;
CREATE INDEX labels_by_end ON labels (until);
"""


class SeriesStore:
    """The tables of one series. All but `settings` are called within `transaction`.

    Args:
        folder: Where they are; made when something is first written.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._path = folder / _NAME
        self._open: sqlite3.Connection | None = None

    @property
    def exists(self) -> bool:
        """Whether something has been written."""
        return self._path.is_file()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All that is changed within it is kept, or nothing is. Another process waits for its end.

        Raises:
            InputError: The file is not one of a series.
            DrivetrainError: It cannot be read or written: a full disk, another process that does not end.
        """
        with self._errors():
            self.folder.mkdir(parents=True, exist_ok=True)
            with closing(sqlite3.connect(self._path, timeout=_PATIENCE, isolation_level=None)) as connection:
                connection.execute("PRAGMA synchronous = FULL")
                connection.execute("BEGIN IMMEDIATE")
                self._open = connection
                try:
                    self._prepare(connection)
                    yield
                    connection.execute("COMMIT")
                finally:
                    self._open = None
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            raise DrivetrainError(
                f"{self._path} cannot be used: {error}",
                fix="see that the disk has room and that no other process hangs",
            ) from error
        except sqlite3.DatabaseError as error:
            raise InputError(
                f"{self._path} is not a series of metrics that can be read: {error}",
                fix="restore the folder from a backup, or begin a new one",
            ) from error
        except OSError as error:
            raise DrivetrainError(f"{self.folder} cannot be written: {error}", fix="choose another folder") from error

    def _prepare(self, connection: sqlite3.Connection) -> None:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version == 0 and connection.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,):
            for statement in filter(str.strip, _TABLES.split(";")):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {_FORMAT}")
        elif version != _FORMAT:
            raise InputError(f"{self._path} is of format {version}, not {_FORMAT}", fix="begin a new folder")
        connection.execute("CREATE TEMP TABLE batch (key PRIMARY KEY, row INTEGER NOT NULL) WITHOUT ROWID")

    @property
    def _connection(self) -> sqlite3.Connection:
        assert self._open is not None, "outside of a transaction"
        return self._open

    def settings(self) -> dict[str, Any]:
        """What `keep_settings` wrote; empty where nothing was."""
        rows = self._connection.execute("SELECT name, value FROM settings").fetchall()
        return {name: json.loads(value) for name, value in rows}

    def keep_settings(self, values: Mapping[str, Any]) -> None:
        """Write settings, those of these names anew."""
        rows = [(name, json.dumps(value)) for name, value in values.items()]
        self._connection.executemany("INSERT OR REPLACE INTO settings VALUES (?, ?)", rows)

    def batch(self, keys: Sequence[Key]) -> list[int]:
        """Take the keys of a batch to compare the tables with: the rows whose key an earlier row of it has."""
        self._connection.execute("DELETE FROM temp.batch")
        self._connection.executemany(
            "INSERT OR IGNORE INTO temp.batch VALUES (?, ?)", zip(keys, range(len(keys)), strict=True)
        )
        if self._connection.execute("SELECT count(*) FROM temp.batch").fetchone() == (len(keys),):
            return []
        kept = {row for (row,) in self._connection.execute("SELECT row FROM temp.batch")}
        return [row for row in range(len(keys)) if row not in kept]

    def predicted(self) -> list[tuple[int, int, int | None, int]]:
        """The batch's rows whose key has a prediction: (row, window, chunk or None if judged, row of the chunk)."""
        return self._connection.execute(
            "SELECT batch.row, start, chunk, predictions.row FROM temp.batch CROSS JOIN predictions USING (key)"
        ).fetchall()

    def labelled(self) -> list[tuple[int, int, int]]:
        """The batch's rows whose key has a label that waits: (row, chunk, row of the chunk)."""
        return self._connection.execute(
            "SELECT batch.row, chunk, labels.row FROM temp.batch CROSS JOIN labels USING (key)"
        ).fetchall()

    def keep_predictions(self, start: int, keys: Sequence[Key], rows: pa.Table | None) -> None:
        """Remember predictions of a window: until their labels come, or without rows as judged already."""
        chunk = None if rows is None else self._keep_chunk(rows)
        self._connection.executemany(
            "INSERT INTO predictions VALUES (?, ?, ?, ?)",
            ((key, start, chunk, None if chunk is None else row) for row, key in enumerate(keys)),
        )

    def keep_labels(self, keys: Sequence[Key], rows: pa.Table, until: int | None) -> None:
        """Remember labels whose predictions have not come, up to a time of the predictions."""
        chunk = self._keep_chunk(rows)
        self._connection.executemany(
            "INSERT INTO labels VALUES (?, ?, ?, ?)", ((key, chunk, row, until) for row, key in enumerate(keys))
        )

    def _keep_chunk(self, rows: pa.Table) -> int:
        cursor = self._connection.execute(
            "INSERT INTO chunks (waiting, rows) VALUES (?, ?)", (rows.num_rows, _stream(rows))
        )
        assert cursor.lastrowid is not None
        return cursor.lastrowid

    def change_chunks(self, change: Callable[[pa.Table], pa.Table]) -> None:
        """Write the rows of every chunk anew, as a function gives them, in their order."""
        for (chunk,) in self._connection.execute("SELECT chunk FROM chunks").fetchall():
            rows = _stream(change(self.chunk(chunk)))
            self._connection.execute("UPDATE chunks SET rows = ? WHERE chunk = ?", (rows, chunk))

    @property
    def types(self) -> pa.Schema:
        """The types of the columns of all chunks."""
        schema = self.settings().get("types")
        return pa.schema([]) if schema is None else pa.ipc.read_schema(pa.py_buffer(bytes.fromhex(schema)))

    def keep_types(self, types: pa.Schema) -> None:
        """Write the types of the columns of all chunks, which `types` reads."""
        self.keep_settings({"types": types.serialize().to_pybytes().hex()})

    def chunk(self, number: int) -> pa.Table:
        """The rows that were kept under this number."""
        ((rows,),) = self._connection.execute("SELECT rows FROM chunks WHERE chunk = ?", (number,)).fetchall()
        return pa.ipc.open_stream(rows).read_all()

    def take(self, number: int, count: int) -> None:
        """So many rows of a chunk do not wait any more."""
        self._connection.execute("UPDATE chunks SET waiting = waiting - ? WHERE chunk = ?", (count, number))
        self._connection.execute("DELETE FROM chunks WHERE chunk = ? AND waiting <= 0", (number,))

    def judged(self, keys: Sequence[Key]) -> None:
        """These predictions have their labels."""
        self._connection.executemany(
            "UPDATE predictions SET chunk = NULL, row = NULL WHERE key = ?", ((key,) for key in keys)
        )

    def forget_labels(self, keys: Sequence[Key]) -> None:
        """These labels have their predictions."""
        self._connection.executemany("DELETE FROM labels WHERE key = ?", ((key,) for key in keys))

    def expire_labels(self, now: int) -> None:
        """Drop the labels that waited long enough."""
        rows = self._connection.execute("SELECT chunk, count(*) FROM labels WHERE until <= ? GROUP BY chunk", (now,))
        for chunk, count in rows.fetchall():
            self.take(chunk, count)
        self._connection.execute("DELETE FROM labels WHERE until <= ?", (now,))

    def await_labels(self, until: int) -> None:
        """Give the labels that came before any prediction the time up to which they wait."""
        self._connection.execute("UPDATE labels SET until = ? WHERE until IS NULL", (until,))

    def count(self, start: int, problem: str | None = None, **counts: int) -> None:
        """Add to what is counted of a window; the first problem is the one that is kept."""
        self._connection.execute("INSERT OR IGNORE INTO windows (start) VALUES (?)", (start,))
        for column, count in counts.items():
            self._connection.execute(
                f"UPDATE windows SET {column} = {column} + ? WHERE start = ?",  # noqa: S608  # a name of ours
                (count, start),
            )
        if problem is not None:
            self._connection.execute(
                "UPDATE windows SET problem = coalesce(problem, ?) WHERE start = ?", (problem, start)
            )

    def windows(self) -> list[dict[str, Any]]:
        """Each window, the earliest first, with what was counted of it."""
        cursor = self._connection.execute("SELECT * FROM windows ORDER BY start")
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor]

    def closed(self, starts: Sequence[int]) -> set[int]:
        """Which of these windows are closed."""
        rows = self._connection.execute("SELECT start FROM windows WHERE closed")
        return {start for (start,) in rows} & set(starts)

    def close_window(self, start: int) -> None:
        """Forget the keys and the waiting rows of a window: its labels come too late from now on."""
        chunks = self._connection.execute(
            "SELECT DISTINCT chunk FROM predictions WHERE start = ? AND chunk IS NOT NULL", (start,)
        ).fetchall()
        self._connection.executemany("DELETE FROM chunks WHERE chunk = ?", chunks)
        self._connection.execute("DELETE FROM predictions WHERE start = ?", (start,))
        self._connection.execute("UPDATE windows SET closed = 1 WHERE start = ?", (start,))

    def state_sizes(self, start: int) -> list[int]:
        """How many rows each state of a window's metrics sums up, the oldest first: their numbers count from 0."""
        sizes = self._connection.execute("SELECT rows FROM states WHERE start = ? ORDER BY part", (start,))
        return [rows for (rows,) in sizes]

    def state(self, start: int, part: int) -> bytes:
        """The state of a window's metrics that has this number, as bytes."""
        ((state,),) = self._connection.execute(
            "SELECT state FROM states WHERE start = ? AND part = ?", (start, part)
        ).fetchall()
        return bytes(state)

    def put_state(self, start: int, part: int, rows: int, state: bytes) -> None:
        """Write a part anew, in place of itself and all later ones."""
        self._connection.execute("DELETE FROM states WHERE start = ? AND part >= ?", (start, part))
        self._connection.execute("INSERT INTO states VALUES (?, ?, ?, ?)", (start, part, rows, state))


def _stream(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(rows)
    return bytes(sink.getvalue())
