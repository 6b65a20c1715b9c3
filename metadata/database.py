"""Connections and transactions: one connection per thread, each write alone, busy is retried with jitter."""

from __future__ import annotations

import os
import random
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from ..errors import InputError
from .dialect import Connection, Dialect, file_of, newer
from .errors import NoStore, SchemaMismatch, StoreDamaged, StoreUnavailable
from .journal import KEYS, JournalEntry, append, journalled, pages

_T = TypeVar("_T")
Row = Mapping[str, Any]  # a database row: Any is the driver's boundary
Params = Mapping[str, Any]
Statement: TypeAlias = tuple[str, Params]  # SQL, and what it binds
_PATIENCE = 60.0  # seconds that a write waits for its turn
_MIGRATIONS = Path(__file__).parent / "migrations"
_JOURNAL = 2  # the migration that makes the journal
_INHERITED: list[_Handle] = []
TypeIds: TypeAlias = dict[tuple[str, str], int]  # by kind and name


class Transaction:
    """What runs inside one transaction; what it changes is journalled, whichever method runs the statement."""

    def __init__(self, connection: Connection, now: int, verb: str, append: str, types: TypeIds) -> None:
        self._connection = connection
        self.now = now
        self.types = types  # ids of types, which never change
        self.new_types = TypeIds()  # those that this transaction has seen or made
        self._append = append
        self._entry = JournalEntry(now, verb)
        self._last: list[Statement] = []

    def all(self, sql: str, **params: Any) -> list[Row]:
        """Every row that the statement gives, by column name; every column of those that it changes in the history."""
        statement = journalled(sql)
        rows: list[Row] = self._connection.execute(sql if statement is None else statement.sql, params).fetchall()
        if statement is not None:
            self._note(statement.verb, statement.table, rows)
        return rows

    def first(self, sql: str, **params: Any) -> Row | None:
        """The first row, None if there is none."""
        rows: list[Row] = self.all(sql, **params)
        return rows[0] if rows else None

    def together(self, *statements: Statement) -> list[list[Row]]:
        """The rows that each of several statements gives, which are sent at once where that saves time.

        Each sees what those before it did; after one that fails none is run.
        """
        changing = [journalled(sql) for sql, _ in statements]
        results: list[list[Row]] = self._connection.together(
            [
                (sql if change is None else change.sql, params)
                for (sql, params), change in zip(statements, changing, strict=True)
            ]
        )
        for change, rows in zip(changing, results, strict=True):
            if change is not None:
                self._note(change.verb, change.table, rows)
        return results

    def at_commit(self, sql: str, **params: Any) -> None:
        """Run a statement that changes no history, and whose result nobody waits for, last of all, with the commit."""
        self._last.append((sql, params))

    def run(self, sql: str, **params: Any) -> int:
        """How many rows the statement changed."""
        if journalled(sql) is not None:
            return len(self.all(sql, **params))
        return int(self._connection.execute(sql, params).rowcount)

    def many(self, sql: str, params: Sequence[Params]) -> int:
        """How many rows one statement changed, run once for each of the parameters, in their order."""
        if (statement := journalled(sql)) is None:
            return int(self._connection.executemany(sql, params).rowcount) if params else 0
        count = 0
        for rows in self._connection.returned(statement.sql, params):
            self._note(statement.verb, statement.table, rows)
            count += len(rows)
        return count

    def insert(self, sql: str, **params: Any) -> int:
        """The id of the inserted row (`RETURNING id` in the statement)."""
        return int(self.all(sql, **params)[0]["id"])

    @contextmanager
    def any_text(self) -> Iterator[None]:
        """Read text that is no UTF-8 too, its odd bytes as lone surrogates, while the block runs."""
        self._connection.accept_any_text(True)
        try:
            yield
        finally:
            self._connection.accept_any_text(False)

    def journal_all(self) -> None:
        """Note every row as it is: a store from before there was a journal begins its history with them."""
        for table in KEYS:
            for page in pages(self.all, table):
                self._note("insert", table, page)

    def seal(self) -> None:
        """Add to the journal what was changed since it was last called, if anything was."""
        if (entry := self._entry.take()) is not None:
            self._connection.execute(self._append, entry)

    def commit(self) -> None:
        """Commit, with what is to be added to the journal."""
        if (entry := self._entry.take()) is not None:
            self._last.append((self._append, entry))
        if self._last:
            self._connection.commit_after(self._last)
        else:
            self._connection.execute("COMMIT")

    def _note(self, verb: str, table: str, rows: list[Row]) -> None:
        self._entry.note(verb, table, rows)
        if self._entry.is_full:
            self.seal()


class Joint:
    """The one transaction of a block that writes in several places.

    Attributes:
        transaction: The transaction; None until the first of them writes.
        stack: What ends it.
    """

    def __init__(self) -> None:
        self.transaction: Transaction | None = None
        self.stack = ExitStack()


class Database:
    """A database shared by the threads of a process (and safe across a fork)."""

    def __init__(self, dialect: Dialect, *, clock: Callable[[], int] | None = None) -> None:
        self.dialect = dialect
        self.clock = clock
        self._local = threading.local()
        self._open: weakref.WeakSet[_Handle] = weakref.WeakSet()
        self._closed = False
        self._closed_by = ""
        self._types = TypeIds()
        self._append = append(dialect.digest_of)
        self._proven = False  # whether it was there once: then it is waited for

    @contextmanager
    def write(self, verb: str = "change", *, durable: bool = True) -> Iterator[Transaction]:
        """A transaction that holds the write lock from its first statement; rolled back whole on any error.

        Args:
            verb: What it is for, as the journal calls it.
            durable: Whether it survives a power loss on return. What a run does again anyway need not.
        """
        if self.dialect.readonly:
            raise StoreUnavailable(
                f"{self.dialect.location} was opened to read only",
                fix="do this as a user who may write there; in Python without readonly",
            )
        joint: Joint | None = getattr(self._local, "joint", None)
        if joint is not None:
            if joint.transaction is None:
                begun = self._transaction(partial(self.dialect.begin_write, durable=True), verb)
                joint.transaction = joint.stack.enter_context(begun)
            yield joint.transaction
            return
        with self._transaction(partial(self.dialect.begin_write, durable=durable), verb) as transaction:
            yield transaction
        self._types.update(transaction.new_types)  # committed: what is rolled back has an id that another may get

    @contextmanager
    def joined(self) -> Iterator[Joint]:
        """See that whatever this thread writes in a block is one durable transaction, which ends with the block."""
        joint = Joint()
        self._local.joint = joint
        try:
            with joint.stack:
                yield joint
        finally:
            self._local.joint = None
        if joint.transaction is not None:
            self._types.update(joint.transaction.new_types)

    @contextmanager
    def read(self) -> Iterator[Transaction]:
        """A snapshot: every statement inside sees one and the same state."""
        joint: Joint | None = getattr(self._local, "joint", None)
        if joint is not None and joint.transaction is not None:
            yield joint.transaction
            return
        with self._transaction(self.dialect.begin_read) as transaction:
            yield transaction

    def all(self, sql: str, **params: Any) -> list[Row]:
        """The rows of one statement outside any transaction."""
        return self._patiently(lambda connection: connection.execute(sql, params).fetchall())

    def first(self, sql: str, **params: Any) -> Row | None:
        """The first row of one statement, None if there is none."""
        rows = self.all(sql, **params)
        return rows[0] if rows else None

    def now(self) -> int:
        """The store's clock, in microseconds since 1970, UTC."""
        return self._patiently(self.dialect.now) if self.clock is None else self.clock()

    def integrity(self) -> list[str]:
        """What the database finds wrong with itself."""
        return self._patiently(self.dialect.integrity)

    @contextmanager
    def files_kept(self, by: str) -> Iterator[None]:
        """See that a block closes no file of the database.

        SQLite does not notice: it would wait for locks on what is no file any more, or write into one that has its
        number since. So nothing here uses the database again, not even to close it.

        Args:
            by: What runs in the block.

        Raises:
            StoreUnavailable: It closed some.
        """
        files = self.dialect.files()
        try:
            yield
        finally:
            if any(not _is_open(number, file) for number, file in files.items()):
                self._closed_by = by
                for handle in self._open:
                    handle.pid = 0  # nobody's
                _INHERITED.extend(self._open)
                raise self._lost()

    def _lost(self) -> StoreUnavailable:
        return StoreUnavailable(
            f"{self._closed_by} closed files that are not its own, those of {self.dialect.location} among them",
            fix="let it close what it opened; then `drivetrain resume`, or run by --runner process, in processes of "
            "their own",
        )

    def close(self) -> None:
        """Close every thread's connection."""
        self._closed = True
        for handle in list(self._open):
            handle.close()

    def migrate(self, *, upgrade: bool, create: bool) -> None:
        """Make the tables of a new file; check the version of one that exists.

        Raises:
            NoStore: It has no tables, and they are not to be made.
            SchemaMismatch: A newer version, an older one without `upgrade`, or a file of somebody else.
        """
        scripts = self._scripts()
        version, known = self.versions()
        if version == known:
            return
        if version == 0 and not create:
            raise NoStore(f"{self.dialect.location} is empty", fix="run a pipeline first")
        if self.dialect.readonly:
            self._check(version, known, upgrade=False)
        self._patiently(self.dialect.enable)  # before: SQLite cannot change its journal mode in a transaction
        with self.write("upgrade") as transaction:
            # Asked again under the lock: of several first opens one makes the tables, the others find them.
            version = self._version(self._connection())
            self._check(version, known, upgrade=upgrade)
            for number in range(version + 1, known + 1):
                for statement in self.dialect.statements(scripts[number].read_text(encoding="utf-8")):
                    transaction.run(statement)
                transaction.run(
                    "INSERT INTO schema_version VALUES (:version, :now)", version=number, now=transaction.now
                )
            if 0 < version < _JOURNAL:
                transaction.journal_all()

    def versions(self) -> tuple[int, int]:
        """The version of the schema that is there, 0 where there is none, and of the one that this release writes.

        Raises:
            SchemaMismatch: It is a file of somebody else.
        """
        version = self._patiently(self._version)
        self._proven = True
        return version, max(self._scripts())

    def _scripts(self) -> dict[int, Path]:
        folder = _MIGRATIONS / self.dialect.migrations
        return {int(path.name[:4]): path for path in sorted(folder.glob("[0-9]*.sql"))}

    def _version(self, connection: Connection) -> int:
        tables = self.dialect.tables(connection)
        if not tables:
            return 0
        if not {"schema_version", "artifact", "execution"} <= tables:
            raise SchemaMismatch(f"{self.dialect.location} is not a drivetrain store", fix="name another")
        versions = "SELECT max(version) AS version, count(*) AS steps FROM schema_version"
        row = connection.execute(versions).fetchone()
        version = row["version"]
        # Each version has a row: one alone is of another table, whose page stands where this one's did.
        if not isinstance(version, int) or version < 1 or row["steps"] != version:
            raise StoreDamaged(self.dialect.location, f"its schema version is {version!r}")
        return version

    def _check(self, version: int, known: int, *, upgrade: bool) -> None:
        if version > known:
            raise newer(self.dialect.location, version, known)
        if 0 < version < known and not upgrade:
            raise SchemaMismatch(
                f"{self.dialect.location} has schema version {version}; this drivetrain writes {known}",
                fix="run `drivetrain upgrade`, which keeps a copy of it",
            )

    @contextmanager
    def _transaction(self, begin: Callable[[Connection], int], verb: str = "") -> Iterator[Transaction]:
        if self._patiently(lambda connection: bool(connection.in_transaction)):
            raise RuntimeError("a transaction is already open in this thread")
        try:
            # Ctrl-C may come right after it, so within the block
            connection, now = self._patiently(lambda connection: (connection, begin(connection)))
            now = now if self.clock is None else self.clock()
            transaction = Transaction(connection, now, verb, self._append, self._types)
            yield transaction
            transaction.commit()
        except BaseException as error:
            self._roll_back()
            if isinstance(error, self.dialect.failure):
                raise self.dialect.translate(error) from error
            if isinstance(error, UnicodeDecodeError):
                raise StoreDamaged(self.dialect.location, "its text is not UTF-8") from error
            raise

    def _roll_back(self) -> None:
        if self._closed_by:
            return
        connection = self._local.handle.connection if hasattr(self._local, "handle") else None
        if connection is None:
            return
        with suppress(self.dialect.failure):  # what is lost has rolled back
            if connection.in_transaction:  # after some errors, such as a full disk, SQLite has rolled back itself
                connection.execute("ROLLBACK")
        self._drop_lost()

    def _connection(self) -> Connection:
        if self._closed_by:
            raise self._lost()
        if self._closed:
            raise StoreUnavailable(f"{self.dialect.location} was closed", fix="open it again")
        handle: _Handle | None = getattr(self._local, "handle", None)
        if handle is None or handle.pid != os.getpid():
            # SQLite forbids a forked child to use, or even close, its parent's connections, and PostgreSQL's server
            # would take it for its parent: they are kept, untouched.
            _INHERITED.extend(other for other in self._open if other.pid != os.getpid())
            handle = _Handle(self.dialect.connect())
            self._local.handle = handle
            self._open.add(handle)
        return handle.connection

    def _drop_lost(self) -> bool:
        """Whether this thread's connection was lost; the next is a new one."""
        handle: _Handle | None = getattr(self._local, "handle", None)
        if handle is None or handle.pid != os.getpid():
            return self.dialect.is_lost(None)
        if not self.dialect.is_lost(handle.connection):
            return False
        handle.close()
        del self._local.handle
        return True

    def _patiently(self, attempt: Callable[[Connection], _T]) -> _T:
        """What an attempt returns, tried again while the database is busy or has just lost the connection.

        Raises:
            DrivetrainError: It failed for another reason, or for 60 seconds.
        """
        deadline = time.monotonic() + _PATIENCE
        pause = 0.001
        while True:
            try:
                return attempt(self._connection())
            except self.dialect.failure as error:
                # A server that was never there (a wrong URL) is one error at once; one that was there may restart.
                again = self.dialect.is_busy(error) or (self._drop_lost() and self._proven)
                if not again or time.monotonic() > deadline:
                    raise self.dialect.translate(error) from error
            except UnicodeDecodeError as error:  # by the driver, of a name in the catalogue or a message about it
                raise StoreDamaged(self.dialect.location, "its text is not UTF-8") from error
            except UnicodeEncodeError as error:
                raise InputError(f"text holds a lone surrogate: {error.object!r:.80}", fix="remove it") from error
            # From 0, not around the pause: writers that were refused together would else come back together, and the
            # one that waits longest has no better turn than the others. 50 ms bounds how long a free lock goes unused.
            time.sleep(random.uniform(0, pause))  # noqa: S311
            pause = min(pause * 1.5, 0.05)


def _is_open(number: int, file: tuple[int, int]) -> bool:
    try:
        return file_of(number) == file
    except OSError:
        return False


class _Handle:
    """A connection that closes itself when its thread is gone."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.pid = os.getpid()

    def close(self) -> None:
        if self.pid == os.getpid():
            self.connection.close()

    def __del__(self) -> None:
        self.close()
