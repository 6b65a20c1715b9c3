"""Connections and transactions: one connection per thread, each write alone, busy is retried with jitter."""

from __future__ import annotations

import os
import random
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from functools import cache, partial
from pathlib import Path
from types import TracebackType
from typing import Any, Never, TypeAlias, TypeVar

from ..errors import InputError
from .dialect import Begun, Connection, Dialect, Row, Statement, file_of, newer
from .errors import ConnectionLost, NoStore, SchemaMismatch, StoreDamaged, StoreUnavailable
from .journal import KEYS, JournalEntry, append, journalled, pages
from .roles import Role

_T = TypeVar("_T")
Params = Mapping[str, Any]
_PATIENCE = 60.0  # seconds that a write waits for its turn
_MIGRATIONS = Path(__file__).parent / "migrations"
_JOURNAL = 2  # the migration that makes the journal
_STORED = "SELECT number FROM journal WHERE at = :at AND actor = :actor AND verb = :verb AND changes = :changes"
_INHERITED: list[_Handle] = []
TypeIds: TypeAlias = dict[tuple[str, str], int]  # by kind and name


class Transaction:
    """What runs inside one transaction; what it changes is journalled, whichever method runs the statement."""

    def __init__(self, connection: Connection, begun: Begun, verb: str, append: str, types: TypeIds) -> None:
        self._connection = connection
        self.now, self.begun = begun  # the rows of the statements that were sent along with its beginning
        self.types = types  # ids of types, which never change
        self.new_types = TypeIds()  # those that this transaction has seen or made
        self._append = append
        self._entry = JournalEntry(self.now, verb)
        self._last: list[Statement] = []
        self.sealed: Params | None = None  # the last entry: it is in the journal where the transaction was stored

    def all(self, sql: str, **params: Any) -> list[Row]:
        """Every row that the statement gives, by column name; every column of those that it changes in the history."""
        statement = journalled(sql)
        rows: list[Row] = self._connection.execute(sql if statement is None else statement.sql, params).fetchall()
        if statement is not None:
            self._note(statement.verb, statement.table, rows)
        return rows

    def tuples(self, sql: str, **params: Any) -> Iterable[Sequence[Any]]:
        """The columns, of different names, of every row of a statement that changes nothing: less to make than rows."""
        columns: Iterable[Sequence[Any]] = self._connection.tuples(sql, params)
        return columns

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
            self.sealed = entry
            self._connection.execute(self._append, entry)

    def commit(self) -> None:
        """Commit, with what is to be added to the journal."""
        if (entry := self._entry.take()) is not None:
            self.sealed = entry
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

    def written(
        self,
        verb: str,
        work: Callable[[Transaction], _T],
        *first: Statement,
        durable: bool = True,
        needs: Role = "writer",
    ) -> _T:
        """What work returns that is done in a transaction of its own, as by `write`.

        It is done again, from the beginning, where the connection is lost before it was stored.

        Args:
            verb: What it is for, as the journal calls it.
            work: What is done; it may be called several times.
            first: See `write`.
            durable: See `write`.
            needs: See `write`.
        """

        def attempt() -> _T:
            with self.write(verb, *first, durable=durable, needs=needs) as transaction:
                return work(transaction)

        return self._outlasting(attempt)

    def seen(self, work: Callable[[Transaction], _T]) -> _T:
        """What work returns that reads in one snapshot; it is called again where the connection is lost."""

        def attempt() -> _T:
            with self.read() as transaction:
                return work(transaction)

        return self._outlasting(attempt)

    def _outlasting(self, attempt: Callable[[], _T]) -> _T:
        """What an attempt returns, made again for 60 seconds where the connection was lost amid it.

        Where it is a part of a joint transaction, that is lost with it: whoever began that begins it again.
        """
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                return attempt()
            except ConnectionLost:
                if getattr(self._local, "joint", None) is not None or time.monotonic() > deadline:
                    raise

    def write(
        self, verb: str = "change", *first: Statement, durable: bool = True, needs: Role = "writer"
    ) -> AbstractContextManager[Transaction]:
        """A transaction that holds the write lock from its first statement; rolled back whole on any error.

        Args:
            verb: What it is for, as the journal calls it.
            first: What is run first of all, under the lock, and changes no history: where a server is asked, in one
                message with the beginning. `Transaction.begun` has its rows.
            durable: Whether it survives a power loss on return. What a run does again anyway need not.
            needs: The role that may do it, for who has another.

        Raises:
            ConnectionLost: The connection was, before it was stored.
        """
        if self.dialect.readonly:
            raise StoreUnavailable(
                f"{self.dialect.location} was opened to read only",
                fix="do this as a user who may write there; in Python without readonly",
            )
        joint: Joint | None = getattr(self._local, "joint", None)
        begin = partial(self.dialect.begin_write, first=first, durable=durable or joint is not None)
        transaction = _OpenTransaction(self, begin, verb, needs)
        if joint is None:
            return transaction
        if joint.transaction is None:
            joint.transaction = joint.stack.enter_context(transaction)
        elif first:
            joint.transaction.begun = joint.transaction.together(*first)
        return nullcontext(joint.transaction)

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

    def read(self) -> AbstractContextManager[Transaction]:
        """A snapshot: every statement inside sees one and the same state."""
        joint: Joint | None = getattr(self._local, "joint", None)
        if joint is not None and joint.transaction is not None:
            return nullcontext(joint.transaction)
        return _OpenTransaction(self, self.dialect.begin_read)

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

    def durability(self) -> list[tuple[bool, str]]:
        """What is known of how commits survive: see `Dialect.durability`."""
        return self._patiently(self.dialect.durability)

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
        with self.write("upgrade", needs="admin") as transaction:
            # Asked again under the lock: of several first opens one makes the tables, the others find them.
            version = self._version(self._connection())
            self._check(version, known, upgrade=upgrade)
            self.dialect.become_owner(self._connection())
            for number in range(version + 1, known + 1):
                for statement in self.dialect.statements(_text(scripts[number])):
                    transaction.run(statement)
                transaction.run(
                    "INSERT INTO schema_version VALUES (:version, :now)", version=number, now=transaction.now
                )
            if 0 < version < _JOURNAL:
                transaction.journal_all()
            self.dialect.secure(self._connection())

    def secure(self) -> None:
        """Give the roles of a namespace their rights to all that is there now."""
        with self.write("secure", needs="admin"):
            self.dialect.become_owner(self._connection())
            self.dialect.secure(self._connection())

    def versions(self) -> tuple[int, int]:
        """The version of the schema that is there, 0 where there is none, and of the one that this release writes.

        Raises:
            SchemaMismatch: It is a file of somebody else.
        """
        version = self._patiently(self._version)
        self._proven = True
        return version, max(self._scripts())

    def _scripts(self) -> dict[int, Path]:
        return _migrations(_MIGRATIONS / self.dialect.migrations)

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
            if problems := self.integrity():  # another table's page stands where that of the versions did
                raise StoreDamaged(self.dialect.location, problems[0])
            raise newer(self.dialect.location, version, known)
        if 0 < version < known and not upgrade:
            raise SchemaMismatch(
                f"{self.dialect.location} has schema version {version}; this drivetrain writes {known}",
                fix="run `drivetrain upgrade`, which keeps a copy of it",
            )

    def _failed(self, error: BaseException, needs: Role) -> Never:
        """Undo what was begun, and raise the error as what it means."""
        lost = self._roll_back()
        if isinstance(error, self.dialect.failure):
            raise (self._interrupted(error) if lost else self.dialect.translate(error, needs)) from error
        if isinstance(error, UnicodeDecodeError):
            raise StoreDamaged(self.dialect.location, "its text is not UTF-8") from error
        raise error

    def _was_stored(self, sealed: Params | None, error: Exception) -> bool:
        """Whether a transaction was stored whose COMMIT was not answered, since the connection was lost meanwhile.

        Args:
            sealed: Its entry of the journal; without one nothing tells, and what it did has to bear being done again.
            error: What the COMMIT raised.
        """
        if sealed is None:
            return False
        # With the write lock: the server may not know yet that the connection is lost, and be about to commit.
        try:
            with _OpenTransaction(self, self.dialect.begin_write) as transaction:
                transaction.at_commit("SELECT 1")  # so that the server syncs what is there, before this is said
                return transaction.first(_STORED, **sealed) is not None
        except StoreUnavailable as unavailable:
            message = f"{unavailable.message}; whether what was being stored then is there is not known"
            raise StoreUnavailable(message, fix=unavailable.fix) from error

    def _interrupted(self, error: Exception) -> ConnectionLost:
        translated = self.dialect.translate(error)
        return ConnectionLost(translated.message, fix=translated.fix)

    def _roll_back(self) -> bool:
        """Undo what was begun; whether the connection was lost."""
        if self._closed_by:
            return False
        connection = self._local.handle.connection if hasattr(self._local, "handle") else None
        if connection is None:
            return False
        with suppress(self.dialect.failure):  # what is lost has rolled back
            if connection.in_transaction:  # after some errors, such as a full disk, SQLite has rolled back itself
                connection.execute("ROLLBACK")
        return self._drop_lost()

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


@cache
def _migrations(folder: Path) -> dict[int, Path]:
    return {int(path.name[:4]): path for path in sorted(folder.glob("[0-9]*.sql"))}


@cache
def _text(script: Path) -> str:
    return script.read_text(encoding="utf-8")


def _is_open(number: int, file: tuple[int, int]) -> bool:
    try:
        return file_of(number) == file
    except OSError:
        return False


class _OpenTransaction(AbstractContextManager[Transaction]):
    """A transaction that a block runs in: committed after it, or rolled back whole where it raises.

    Not a generator with `contextmanager`, which takes twice as long: there is one for each write.
    """

    def __init__(
        self, database: Database, begin: Callable[[Connection], Begun], verb: str = "", needs: Role = "reader"
    ) -> None:
        self._database = database
        self._begin = begin
        self._verb = verb
        self._needs = needs
        self._transaction: Transaction | None = None  # while it is open

    def __enter__(self) -> Transaction:
        database, begin = self._database, self._begin
        try:
            # Ctrl-C may come right after it, so within the block
            connection, begun = database._patiently(
                lambda connection: (connection, None if connection.in_transaction else begin(connection))
            )
            if begun is not None:
                now = begun[0] if database.clock is None else database.clock()
                self._transaction = Transaction(
                    connection, (now, begun[1]), self._verb, database._append, database._types
                )
                return self._transaction
        except BaseException as error:
            database._failed(error, self._needs)
        raise RuntimeError("a transaction is already open in this thread")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        transaction, database = self._transaction, self._database
        try:
            if error is not None:
                raise error
            try:
                transaction.commit()  # type: ignore[union-attr]  # it was entered
            except database.dialect.failure as failure:
                if not database._drop_lost():
                    raise
                if not database._was_stored(transaction.sealed, failure):  # type: ignore[union-attr]
                    raise database._interrupted(failure) from failure
        except BaseException as failure:
            self._transaction = None
            database._failed(failure, self._needs)
        self._transaction = None
        # Committed: what is rolled back has an id that another may get.
        database._types.update(transaction.new_types)  # type: ignore[union-attr]

    def __del__(self) -> None:
        if self._transaction is not None:  # Ctrl-C came between the block and its end
            self._database._roll_back()


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
