"""What is particular to a database: how to connect, what may be retried, what its errors mean; and SQLite's answers."""

from __future__ import annotations

import json
import os
import sqlite3
import stat
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias
from urllib.parse import unquote, urlsplit

from ..errors import DrivetrainError, InputError
from .errors import AlreadyExists, NoStore, SchemaMismatch, StateError, StoreDamaged, StoreUnavailable
from .mounts import filesystem_of
from .roles import Role

_OLDEST = (3, 38, 0)  # RETURNING, STRICT and the -> operator
# WAL keeps its index in memory shared by the processes of one host; over a network two hosts would not see each other.
_NETWORK = {
    "afs", "beegfs", "ceph", "cifs", "fuse.glusterfs", "fuse.s3fs", "fuse.sshfs", "glusterfs", "gpfs", "lustre",
    "ncpfs", "nfs", "nfs4", "smb3", "smbfs",
}  # fmt: skip
_TRIES = 10  # to read a database between two writers
# What SQLite says where it cannot make the files in which readers keep their locks.
_NO_LOCKS = ("SQLITE_FULL", "SQLITE_IOERR", "SQLITE_CANTOPEN", "SQLITE_READONLY")

# What SQLite says of a file whose bytes are wrong; and, as the version of the tables was compared when the file was
# opened, what it says where one of them cannot be found in its catalogue.
_DAMAGE = ("SQLITE_NOTADB", "SQLITE_CORRUPT", "SQLITE_IOERR_SHORT_READ", "SQLITE_FORMAT", "SQLITE_MISMATCH")
_SCHEMA_DAMAGE = (
    "Could not decode to UTF-8",
    "no such ",
    "malformed ",
    "foreign key mismatch",
    "table ",
    "unsupported file format",
)

# SQL: the numbers of a JSON list bound as `ids`, the texts of one bound as `uids`.
IDS = "(SELECT value FROM json_each(:ids))"
UIDS = "(SELECT value FROM json_each(:uids))"
# What a driver opens: `execute`, `executemany`, `in_transaction` and `close`, as sqlite3 has them. Any: the boundary.
Connection: TypeAlias = Any
Row: TypeAlias = Mapping[str, Any]  # a database row: Any is the driver's boundary
Statement: TypeAlias = tuple[str, Mapping[str, Any]]  # SQL, and what it binds
Begun: TypeAlias = tuple[int, list[list[Row]]]  # the time, and the rows that each of the first statements gave
JsonKind = Literal["number", "text", "boolean", "any"]


def microseconds() -> int:
    """Now by this machine's clock, in microseconds since 1970, UTC."""
    return time.time_ns() // 1000


class Dialect(Protocol):
    """What the store asks of a database besides SQL that every one of them takes."""

    location: str  # what to call it in messages; without a password
    readonly: bool
    failure: type[Exception]  # the driver's errors
    migrations: str  # the folder of its schema
    digest_of: str  # SQL: SHA-256 (hex) of the text that stands for {}
    by_bytes: str  # SQL: follows a text that is to be compared by its bytes

    def prepare(self, *, create: bool) -> None:
        """Check that a store can be opened there, or made."""

    def connect(self) -> Connection:
        """A new connection in autocommit mode: transactions are begun by name."""

    def begin_write(self, connection: Connection, first: Sequence[Statement] = (), *, durable: bool = True) -> Begun:
        """Begin a transaction that nobody else writes beside, and run its first statements.

        Returns:
            The time, in microseconds since 1970, UTC, and the rows of each statement.
        """

    def begin_read(self, connection: Connection) -> Begun:
        """Begin a transaction that sees one state of the store; gives the time, and nothing."""

    def now(self, connection: Connection) -> int:
        """The time by the clock that all who share the store go by, in microseconds since 1970, UTC."""

    def enable(self, connection: Connection) -> None:
        """Settings that a new store keeps."""

    def become_owner(self, connection: Connection) -> None:
        """Until the transaction ends, make what is made the property of whom the namespace belongs to, if it is one."""

    def secure(self, connection: Connection) -> None:
        """Give each role of the namespace, if it is one, its rights to all that is there now."""

    def tables(self, connection: Connection) -> set[str]:
        """The names of the tables there are."""

    def statements(self, script: str) -> Iterable[str]:
        """A migration in pieces that can be executed."""

    def json_equals(self, column: str, key: str, value: str) -> str:
        """SQL: the property whose name is bound as `key` has the canonical JSON text bound as `value`."""

    def json_path(self, names: Sequence[str]) -> str | None:
        """The path to a value in a JSON column, through objects by these names; to be bound, or quoted in SQL.

        None where the database can write none: then the JSON `json_within(column, names)` is asked, in SQL too, with
        the names as a JSON list.
        """

    def json_value(self, column: str, path: str, kind: JsonKind) -> str:
        """SQL: the value at a path, itself SQL, where it is of the kind, else NULL.

        A "boolean" is the text true or false; "any" any text that is not NULL where there is a value that is not null.
        """

    def as_json(self, text: str) -> str:
        """SQL: an expression that gives a text of JSON, as a JSON column."""

    def like(self, value: str, pattern: str) -> str:
        """SQL: a text fits the pattern bound as `pattern`: % is any text, _ any character.

        The case of A to Z makes no difference; that of other letters does, whatever language the database is set to.
        """

    def integrity(self, connection: Connection) -> list[str]:
        """What the database finds wrong with itself; empty when it is sound."""

    def files(self) -> dict[int, tuple[int, int]]:
        """The descriptors by which this process has files of the database open, and which file each is."""

    def is_busy(self, error: Exception) -> bool:
        """Whether the same statement may succeed a moment later."""

    def is_lost(self, connection: Connection | None) -> bool:
        """Whether a connection (None: one that could not be made) is of no more use, and a new one may be."""

    def durability(self, connection: Connection) -> list[tuple[bool, str]]:
        """What is known of how commits survive: whether each fact is as it should be, and what it is."""

    def translate(self, error: Exception, needs: Role = "reader") -> DrivetrainError:
        """The one clear error for what the driver raised in something that needs a role."""


class Sqlite:
    """One database file in WAL mode: a durable commit that returned survives a power loss, any other a kill."""

    failure: type[Exception] = sqlite3.Error
    migrations = ""
    digest_of = "sha256_of({})"
    by_bytes = ""  # they always are

    def __init__(self, path: Path, *, readonly: bool) -> None:
        self.path = path.absolute()
        self.location = str(self.path)
        self.readonly = readonly

    def prepare(self, *, create: bool) -> None:
        """Check that a database can live here.

        Args:
            create: Whether it may be made.

        Raises:
            StoreUnavailable: It lies on a network filesystem, or cannot be made.
            NoStore: It may not be made and does not exist.
        """
        if sqlite3.sqlite_version_info < _OLDEST:
            raise StoreUnavailable(
                f"SQLite {sqlite3.sqlite_version} is too old", fix="use a Python built with SQLite 3.38 or newer"
            )
        status = None
        try:
            status = self.path.stat()
        except NotADirectoryError as error:
            message = f"{self.path} cannot be reached: {error.strerror}"
            raise StoreUnavailable(message, fix="choose another --root or --store") from error
        except OSError:
            pass
        if status is not None and stat.S_ISDIR(status.st_mode):
            raise InputError(f"{self.path} is a folder, not a metadata store", fix="name a file, such as metadata.db")
        if not create and status is None:
            raise NoStore(
                f"there is no metadata store at {self.path}", fix="check --root and --store, or run a pipeline first"
            )
        if (filesystem := filesystem_of(self.path)) in _NETWORK:
            raise StoreUnavailable(
                f"{self.path} is on a network filesystem ({filesystem}), where SQLite cannot lock safely",
                fix="put --root on a local disk",
            )
        if create:
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise StoreUnavailable(
                    f"cannot make the folder {self.path.parent}: {error.strerror}", fix="choose another --root"
                ) from error

    def connect(self) -> sqlite3.Connection:
        """A new connection in autocommit mode: transactions are begun by name."""
        if not self.readonly:
            return self._connected(f"{self.path.as_uri()}?mode=rwc")
        failure: sqlite3.Error | None = None
        for _ in range(_TRIES):
            try:
                # In another user's folder SQLite can read only what somebody has open.
                if os.access(self.path.parent, os.W_OK) or self.path.with_name(f"{self.path.name}-wal").exists():
                    return self._reader()
            except sqlite3.OperationalError as error:
                if not _code(error).startswith(_NO_LOCKS):
                    raise
                failure = error
            try:
                from .sqlite_image import read_image  # late: few disks are full

                image = read_image(self.path)
            except OSError as error:
                raise failure or sqlite3.OperationalError(str(error)) from error
            if image is not None:
                return self._in_memory(image)
        raise failure or StoreUnavailable(f"{self.path} is written to all the time", fix="try again later")

    def _reader(self) -> sqlite3.Connection:
        """A connection that has read something: before that SQLite makes no file, and misses none."""
        connection = self._connected(f"{self.path.as_uri()}?mode=ro")
        try:
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            connection.execute("PRAGMA temp_store = MEMORY")
        except BaseException:
            connection.close()
            raise
        return connection

    def _in_memory(self, image: bytes) -> sqlite3.Connection:
        connection = self._connected(":memory:")
        if image:
            connection.deserialize(image)
        return connection

    def _connected(self, uri: str) -> sqlite3.Connection:
        # The busy handler's waits grow without jitter and starve some process for a second: wait little here, and
        # let the caller retry.
        connection = sqlite3.connect(
            uri,
            uri=True,
            timeout=0.02,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
            factory=_SelfClosingConnection,
        )
        connection.row_factory = sqlite3.Row
        connection.execute("PRAGMA foreign_keys = ON")
        connection.create_function("sha256_of", 1, _sha256, deterministic=True)
        connection.create_function("json_within", 2, _json_within, deterministic=True)
        return connection

    def begin_write(
        self, connection: _SelfClosingConnection, first: Sequence[Statement] = (), *, durable: bool = True
    ) -> Begun:
        """Begin with the write lock: a deferred transaction reads first and then fails at its first write.

        One that is not durable leaves it to the next durable one to sync the log, which keeps their order.
        """
        synchronous = "FULL" if durable else "NORMAL"
        if connection.synchronous != synchronous:
            connection.execute(f"PRAGMA synchronous = {synchronous}")
            connection.synchronous = synchronous
        connection.execute("BEGIN IMMEDIATE")
        return microseconds(), connection.together(first)

    def begin_read(self, connection: sqlite3.Connection) -> Begun:
        """Begin with a snapshot: BEGIN alone takes it only at the first read, where nobody would retry."""
        connection.execute("BEGIN")
        try:
            connection.execute("SELECT count(*) FROM schema_version").fetchone()
        except sqlite3.Error:
            connection.execute("ROLLBACK")
            raise
        return microseconds(), []

    def now(self, connection: sqlite3.Connection) -> int:
        """The time by this machine's clock, in microseconds since 1970, UTC."""
        return microseconds()

    def enable(self, connection: sqlite3.Connection) -> None:
        """Settings that the file itself keeps."""
        if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
            connection.execute("PRAGMA journal_mode = WAL")

    def become_owner(self, connection: sqlite3.Connection) -> None:
        """Nothing to do: a file has its owner."""

    def secure(self, connection: sqlite3.Connection) -> None:
        """Nothing to do: the file's permissions are its roles."""

    def tables(self, connection: sqlite3.Connection) -> set[str]:
        """The names of the tables there are."""
        return {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}

    def statements(self, script: str) -> Iterable[str]:
        """The statements of a migration one by one (`executescript` would commit the transaction)."""
        return _statements(script)

    def json_equals(self, column: str, key: str, value: str) -> str:
        """SQL: the property whose JSON path is bound as `key` has the canonical JSON text bound as `value`."""
        return f"{column} -> :{key} = :{value}"

    def json_path(self, names: Sequence[str]) -> str | None:
        """A path of SQLite: each name in quotes; None where one holds what JSON escapes, which releases read apart."""
        if any(json.dumps(name, ensure_ascii=False) != f'"{name}"' for name in names):
            return None
        return "$" + "".join(f'."{name}"' for name in names)

    def json_value(self, column: str, path: str, kind: JsonKind) -> str:
        """SQL: the value at a path, where it is of a kind; see `Dialect.json_value`."""
        types = {"number": "'integer', 'real'", "text": "'text'", "boolean": "'true', 'false'"}
        if kind == "any":
            return f"nullif(json_type({column}, {path}), 'null')"
        value = f"json_type({column}, {path})" if kind == "boolean" else f"json_extract({column}, {path})"
        if (
            kind == "number"
        ):  # as PostgreSQL reads it, and the filter's own numbers are: integers beyond 2**53 are rounded
            value = f"CAST({value} AS REAL)"
        return f"CASE WHEN json_type({column}, {path}) IN ({types[kind]}) THEN {value} END"

    def as_json(self, text: str) -> str:
        """SQL: a text is a JSON column as it is."""
        return text

    def like(self, value: str, pattern: str) -> str:
        """SQL: a text fits a pattern; see `Dialect.like`."""
        return f"{value} LIKE :{pattern}"

    def integrity(self, connection: sqlite3.Connection) -> list[str]:
        """What the database finds wrong with itself; empty when it is sound."""
        problems = [row[0] for row in connection.execute("PRAGMA integrity_check") if row[0] != "ok"]
        broken = connection.execute("PRAGMA foreign_key_check").fetchall()
        return problems + [f"{row[0]} row {row[1]} refers to a missing {row[2]}" for row in broken]

    def files(self) -> dict[int, tuple[int, int]]:
        """The descriptors of the database and of the memory that its readers share.

        Those stay open as long as any connection is; each connection opens and closes the log for itself.
        """
        of_database = set()
        for end in ("", "-shm"):
            with suppress(OSError):
                of_database.add(file_of(self.path.with_name(f"{self.path.name}{end}")))
        files = {}
        with suppress(OSError):  # a system that does not list them
            for number in map(int, os.listdir("/dev/fd")):  # noqa: PTH208 - a path object each would cost more
                with suppress(OSError):  # that of the listing itself
                    if (file := file_of(number)) in of_database:
                        files[number] = file
        return files

    def is_busy(self, error: Exception) -> bool:
        """Whether the same statement may succeed a moment later."""
        return _code(error).startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))

    def is_lost(self, connection: sqlite3.Connection | None) -> bool:
        """Whether a connection is of no more use, and a new one may be: none to a file is."""
        return False

    def durability(self, connection: sqlite3.Connection) -> list[tuple[bool, str]]:
        """None: a commit is on the disk when it returns."""
        return []

    def translate(self, error: Exception, needs: Role = "reader") -> DrivetrainError:
        """The one clear error for what the driver raised."""
        name, text = _code(error), str(error)
        if name.startswith("SQLITE_CONSTRAINT"):
            return self._constraint(name, text)
        if name.startswith("SQLITE_READONLY") and self.readonly:
            return StoreUnavailable(
                f"{self.path} cannot be read: its folder may not be written, and readers keep their locks there",
                fix="copy metadata.db* to a folder of your own and open the copy",
            )
        if name.startswith("SQLITE_READONLY"):
            return StoreUnavailable(f"{self.path} is read-only", fix="check the file's and its folder's permissions")
        if name.startswith(_DAMAGE) or text.startswith(_SCHEMA_DAMAGE):
            return StoreDamaged(self.path, text)
        if name.startswith(("SQLITE_FULL", "SQLITE_IOERR")):
            return StoreUnavailable(
                f"cannot {'read' if self.readonly else 'write'} {self.path}: {text}",
                fix="free space on that disk and try again; a run by `drivetrain resume`",
            )
        if name.startswith("SQLITE_CANTOPEN"):
            return StoreUnavailable(
                f"cannot open {self.path}",
                fix="check that the folder exists and may be written, or give another --root",
            )
        if self.is_busy(error):
            return StoreUnavailable(
                f"{self.path} has been locked by another process all the time", fix="end it, or try again later"
            )
        return StoreUnavailable(f"{self.path}: {text}", fix="run `drivetrain fsck`")

    def _constraint(self, name: str, text: str) -> DrivetrainError:
        if text.startswith("drivetrain: "):
            return StateError(text.removeprefix("drivetrain: "), fix="publish every output once, by one execution")
        if name in {"SQLITE_CONSTRAINT_UNIQUE", "SQLITE_CONSTRAINT_PRIMARYKEY"}:
            columns = text.rpartition(": ")[2]
            if "event" in columns:
                return StateError("an artifact has one producer, and a key and index of an execution one artifact")
            return AlreadyExists(f"there is already a row with the same {columns}", fix="choose another name or uid")
        return InputError(f"the store refused a value: {text}")


class _SelfClosingConnection(sqlite3.Connection):
    """One that closes itself, also where the garbage collector takes it before what would have closed it."""

    synchronous = ""  # as `begin_write` has set it

    def commit_after(self, statements: Sequence[Statement]) -> None:
        """Run the last statements, and commit."""
        for sql, parameters in statements:
            self.execute(sql, parameters)
        self.execute("COMMIT")

    def together(self, statements: Sequence[Statement]) -> list[list[Row]]:
        """The rows of each of several statements, one after the other."""
        return [self.execute(sql, parameters).fetchall() for sql, parameters in statements]

    def tuples(self, sql: str, parameters: Mapping[str, Any]) -> sqlite3.Cursor:
        """The columns of each row that a statement gives, one row after the other."""
        cursor = self.cursor()
        cursor.row_factory = None
        return cursor.execute(sql, parameters)

    def accept_any_text(self, accept: bool) -> None:
        """Whether text that is no UTF-8 is read, its odd bytes as lone surrogates; else it is an error."""
        self.text_factory = (lambda text: text.decode("utf-8", "surrogateescape")) if accept else str

    def returned(self, sql: str, parameters: Iterable[Mapping[str, Any]]) -> Iterator[list[sqlite3.Row]]:
        """The rows that a statement returns, for each of the parameters."""
        return (self.execute(sql, each).fetchall() for each in parameters)

    def __del__(self) -> None:
        self.close()


def parse(url: str | Path, *, readonly: bool) -> Dialect:
    """The database that a path or a URL names.

    `path/metadata.db`, `sqlite:///relative.db`, `sqlite:////absolute.db`, or `postgresql://user@host:port/database`.

    Raises:
        InputError: Another kind of URL, or none.
    """
    text = str(url)
    if not text:
        raise InputError("no metadata store is named", fix="pass a path such as .drivetrain/metadata.db")
    if "\0" in text:
        raise InputError("the metadata store's name holds a NUL", fix="pass a path such as .drivetrain/metadata.db")
    if isinstance(url, Path) or "://" not in text:
        return Sqlite(Path(url), readonly=readonly)
    if text.partition("://")[0] in ("postgresql", "postgres"):
        from .postgres import Postgres

        return Postgres(text, readonly=readonly)
    parts = urlsplit(text)
    if parts.scheme in ("http", "https"):
        raise InputError(
            "this needs the database itself, not a metadata server before it",
            fix="do it on a machine that may connect to the database",
        )
    if parts.scheme != "sqlite" or parts.netloc or len(parts.path) < 2 or parts.query or parts.fragment:
        raise InputError(
            f"{parts.scheme}:// is not a metadata store this version can open",
            fix="use sqlite:///path/to/metadata.db or postgresql://user@host/database",
        )
    return Sqlite(Path(unquote(parts.path[1:])), readonly=readonly)


def file_of(where: Path | int) -> tuple[int, int]:
    """Which file lies at a path, or is open by a descriptor: its device and its number there; raises OSError."""
    status = os.stat(where)  # noqa: PTH116 - of a descriptor too
    return status.st_dev, status.st_ino


@cache
def _statements(script: str) -> tuple[str, ...]:
    statements, statement = [], ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            statements.append(statement)
            statement = ""
    return tuple(statements)


def newer(location: str, version: int, known: int) -> SchemaMismatch:
    """The refusal of a database from the future."""
    return SchemaMismatch(
        f"{location} has schema version {version}; this drivetrain knows up to {known}", fix="upgrade drivetrain"
    )


def _json_within(text: str | None, names: str) -> str | None:
    """The JSON of what lies in the JSON of an object below some names, a JSON list; None where nothing does."""
    value = None if text is None else json.loads(text)
    for name in json.loads(names):
        value = value.get(name) if isinstance(value, dict) else None
    return None if value is None else json.dumps(value)


def _sha256(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def _code(error: Exception) -> str:
    return getattr(error, "sqlite_errorname", None) or ""
