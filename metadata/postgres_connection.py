"""A connection to PostgreSQL: statements that go in one message, prepared once, by psycopg's face of libpq's pipeline.

psycopg has a pipeline of its own, which writes to the socket, and lets the server begin, once for each statement: with
a store's many short ones that took three quarters of the time of a client.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

from psycopg import errors, pq, waiting
from psycopg.adapt import PyFormat, Transformer

from .dialect import IDS, UIDS, Begun, Row, Statement

_NAMED: Final = re.compile(r"(?<![:\w]):([a-z_]\w*)")
_MOST_PREPARED: Final = 256
"""Statements that a connection keeps prepared; others are parsed anew."""
_BATCH: Final = 200
"""Statements of one message: the server's answers to them wait in memory."""
# A writer that waited for its commit to be synced while it holds the lock would let the disk sync one commit at a time.
# So the commit itself does not wait and frees the lock; then this does, which is a commit of its own: its record stands
# behind the other in the server's log, which is synced, and sent to standbys, in order. Many wait for one sync.
_SYNC = "SELECT pg_logical_emit_message(true, 'drivetrain', '')"
_READS = ("SELECT", "WITH")
_FAILED = 3  # INERROR: the status of a transaction in which a statement failed
_Key: TypeAlias = tuple[str, tuple[int, ...]]  # SQL, and the types of what is bound


class StatementResult(NamedTuple):
    """What one statement gave.

    Attributes:
        rows: Its rows, by column name.
        affected: How many rows it gave or changed.
        status: What the server says that it did, as "COMMIT".
    """

    rows: list[Row]
    affected: int
    status: str


class Messages:
    """Sends statements over a connection, all of them in one message where libpq can.

    Args:
        connection: Of psycopg, in autocommit mode. Any: its types want SQL known before the program runs.
    """

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        # psycopg would prepare a ROLLBACK that it runs often, and then have the server forget all that is prepared.
        connection.prepare_threshold = None
        self._prepared: dict[_Key, bytes] = {}

    def send(self, statements: Sequence[Statement]) -> list[StatementResult]:
        """Run statements one after the other; after one that fails none is run.

        Raises:
            psycopg.Error: What the server says of the first that failed, or that it is gone.
        """
        answers: list[StatementResult] = []
        for start in range(0, len(statements), _BATCH):
            answers += self._send([self._bound(*each) for each in statements[start : start + _BATCH]])
        return answers

    def _bound(self, sql: str, parameters: Mapping[str, Any]) -> tuple[_Key, list[Any], Sequence[pq.Format]]:
        numbered, names = _numbered(sql)
        transformer = Transformer(self._connection)
        values = transformer.dump_sequence([parameters[name] for name in names], [PyFormat.AUTO] * len(names))
        return (numbered, tuple(transformer.types or ())), list(values), transformer.formats or ()

    def _send(self, bound: list[tuple[_Key, list[Any], Sequence[pq.Format]]]) -> list[StatementResult]:
        server: pq.abc.PGconn = self._connection.pgconn
        preparing: list[_Key | None] = []  # what each answer to come is of: the preparation of a statement, or None
        new: dict[_Key, bytes] = {}
        server.enter_pipeline_mode()
        try:
            for key, values, formats in bound:
                name = self._prepared.get(key) or new.get(key)
                if name is None and len(self._prepared) + len(new) < _MOST_PREPARED:
                    new[key] = name = b"drivetrain_%d" % (len(self._prepared) + len(new))
                    server.send_prepare(name, key[0].encode(), key[1])
                    preparing.append(key)
                if name is None:
                    server.send_query_params(key[0].encode(), values, key[1], formats)
                else:
                    server.send_query_prepared(name, values, formats)
                preparing.append(None)
            server.pipeline_sync()
            results = self._connection.wait(_results(server, len(preparing)))
            server.exit_pipeline_mode()
        except BaseException:
            self._connection.close()  # half of an answer may be on its way
            raise
        for key_of, result in zip(preparing, results, strict=True):
            if result.status == pq.ExecStatus.FATAL_ERROR:
                raise errors.error_from_result(result)
            if key_of is not None and result.status == pq.ExecStatus.COMMAND_OK:
                self._prepared[key_of] = new[key_of]
        return [self._answer(result) for key_of, result in zip(preparing, results, strict=True) if key_of is None]

    def _answer(self, result: pq.abc.PGresult) -> StatementResult:
        status, count = (result.command_status or b"").decode(), result.command_tuples or 0
        if result.status != pq.ExecStatus.TUPLES_OK:
            return StatementResult([], count, status)
        names = [(result.fname(number) or b"").decode() for number in range(result.nfields)]
        transformer = Transformer(self._connection)
        transformer.set_pgresult(result)
        rows: list[Row] = transformer.load_rows(0, result.ntuples, lambda values: dict(zip(names, values, strict=True)))
        return StatementResult(rows, count, status)


class PostgresConnection:
    """A connection of psycopg with sqlite3's face: names are bound as `:name`."""

    def __init__(self, opened: Any) -> None:
        self._opened = opened
        self._messages = Messages(opened)
        self._wrote = False  # whether the transaction has changed anything

    @property
    def in_transaction(self) -> bool:
        """Whether one is open, or failed and is not rolled back yet."""
        return int(self._opened.info.transaction_status) in (1, 2, _FAILED)  # ACTIVE, INTRANS

    @property
    def closed(self) -> bool:
        """Whether it is of no more use."""
        return bool(self._opened.closed)

    def begin(self, sql: str, clock: str, first: Sequence[Statement] = ()) -> Begun:
        """Begin, ask for the time as `now`, and run the first statements: all are sent at once."""
        self._wrote = False
        try:
            _, asked, *answers = self._send([(sql, {}), (clock, {}), *first])
        except self._opened.Error:
            if self.in_transaction and not self.closed:
                self._opened.execute("ROLLBACK")
            raise
        return int(asked.rows[0]["now"]), [answer.rows for answer in answers]

    def execute(self, sql: str, parameters: Mapping[str, Any] | None = None) -> _Cursor:
        """Run one statement, or without parameters a script of several."""
        if sql == "COMMIT":
            return self._commit([])
        if parameters:
            return _Cursor(self._send([(sql, parameters)])[0])
        self._wrote = self._wrote or not sql.startswith(_READS)
        cursor = self._opened.execute(sql)  # a migration is several statements
        return _Cursor(
            StatementResult(cursor.fetchall() if cursor.description else [], cursor.rowcount, cursor.statusmessage)
        )

    def executemany(self, sql: str, parameters: Sequence[Mapping[str, Any]]) -> _Cursor:
        """Run a statement once for each of the parameters."""
        answers = self._send([(sql, each) for each in parameters])
        return _Cursor(StatementResult([], sum(answer.affected for answer in answers), ""))

    def returned(self, sql: str, parameters: Sequence[Mapping[str, Any]]) -> list[list[Row]]:
        """The rows that a statement returns, for each of the parameters; all are sent at once."""
        return self.together([(sql, each) for each in parameters])

    def together(self, statements: Sequence[Statement]) -> list[list[Row]]:
        """The rows of each of several statements, which are sent at once; after one that fails none is run."""
        return [answer.rows for answer in self._send(statements)]

    def tuples(self, sql: str, parameters: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """The columns of each row that a statement gives."""
        return [tuple(row.values()) for row in self._send([(sql, parameters)])[0].rows]

    def commit_after(self, statements: Sequence[Statement]) -> None:
        """Run the last statements, and commit: all are sent at once."""
        self._commit([] if int(self._opened.info.transaction_status) == _FAILED else statements)

    def accept_any_text(self, accept: bool) -> None:
        """Nothing to do: the server keeps no other text than UTF-8."""

    def close(self) -> None:
        """Close it."""
        self._opened.close()

    def _commit(self, last: Sequence[Statement]) -> _Cursor:
        """Commit after some statements; when it returns, the server has synced what they and those before wrote."""
        sync: list[Statement] = [(_SYNC, {})] if self._wrote or last else []
        answer = self._send([*last, ("COMMIT", {}), *sync])[len(last)]
        if answer.status != "COMMIT":  # the server takes it, and rolls back
            raise self._opened.InternalError("a statement of the transaction had failed: nothing was stored")
        return _Cursor(answer)

    def _send(self, statements: Sequence[Statement]) -> list[StatementResult]:
        self._wrote = self._wrote or not all(sql.startswith((*_READS, "BEGIN", "COMMIT")) for sql, _ in statements)
        return self._messages.send(statements)


class _Cursor:
    """What a statement gave, with sqlite3's face."""

    def __init__(self, answer: StatementResult) -> None:
        self.rowcount = answer.affected
        self._rows = answer.rows

    def fetchall(self) -> list[Row]:
        return self._rows

    def fetchone(self) -> Any:  # Any: a row or None, as sqlite3 types it
        return self._rows[0] if self._rows else None


def _results(server: pq.abc.PGconn, count: int) -> Generator[waiting.Wait, int, list[pq.abc.PGresult]]:
    """The results of so many statements and of what ends them; for `Connection.wait`."""
    while server.flush():
        if (yield waiting.Wait.RW) & waiting.Ready.R:
            server.consume_input()  # a server that cannot answer does not read on
    results: list[pq.abc.PGresult] = []
    while True:
        while server.is_busy():
            yield waiting.Wait.R
            server.consume_input()
        result = server.get_result()
        if result is None:  # behind the result of each statement
            continue
        if result.status == pq.ExecStatus.PIPELINE_SYNC:
            return results
        results.append(result)


@lru_cache(512)
def _numbered(sql: str) -> tuple[str, tuple[str, ...]]:
    """SQL that names what is bound as `:name`, as PostgreSQL takes it, and the names in the order of the numbers."""
    values = "(SELECT CAST(value AS {}) FROM json_array_elements_text(CAST(:{} AS JSON)))"
    sql = sql.replace(IDS, values.format("BIGINT", "ids")).replace(UIDS, values.format("TEXT", "uids"))
    names: dict[str, int] = {}
    numbered = _NAMED.sub(lambda match: f"${names.setdefault(match[1], len(names) + 1)}", sql)
    return numbered, tuple(names)
