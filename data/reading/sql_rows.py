"""The rows of a SQL query: run once, kept as Parquet, so that every later pass reads the same rows.

A database may change between two passes and gives rows in no order unless the query has an ORDER BY, so the result is
streamed into a folder first. SQLite (`sqlite:///relative.db`, `sqlite:////absolute.db`) needs nothing; PostgreSQL
(`postgresql://user@host/database`) needs the extra `postgres`. Both are opened for reading only. Any other database
comes as an open connection of its driver: DBAPI (PEP 249), or ADBC and DuckDB, whose cursors give Arrow.

Types follow the values: integers are int64, reals float64, NUMERIC(p, s) decimal128 of that precision, NUMERIC without
one the nearest float64, where a whole number that would be rounded is an error; text is string, BLOB and bytea bytes,
booleans, dates, times and timestamps as such (with a zone in UTC), arrays lists, JSON and UUID their text. From a
cursor that gives Arrow, types are the driver's, normalised.

A URL with a password belongs in an environment variable, named here as `env:NAME`: no message shows its value.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import parse_qs, unquote, urlsplit
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq

from ...errors import InputError, missing_extra
from ...progress import Progress, no_progress
from ..sources import Source, open_parquet
from ..types import common_type, normal_schema

_ROWS: Final = 16_384
_UNSENDABLE: Final[tuple[type[Exception], ...]] = (UnicodeError, OverflowError)
"""What drivers raise of half characters, and of whole numbers that the database does not have."""
_TYPES: Final[dict[type, pa.DataType]] = {
    type(None): pa.null(),
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    Decimal: pa.float64(),
    str: pa.string(),
    UUID: pa.string(),
    dict: pa.string(),
    bytes: pa.binary(),
    memoryview: pa.binary(),
    date: pa.date32(),
    time: pa.time64("us"),
    datetime: pa.timestamp("us"),
}


class Connection(Protocol):
    """An open connection of a DBAPI driver (PEP 249)."""

    def cursor(self) -> Any:
        """A new cursor. Any: beside PEP 249's methods it may have a driver's own."""
        ...


def open_query(
    connection: str | Connection,
    query: str,
    folder: Path,
    *,
    parameters: Mapping[str, object] | None = None,
    progress: Progress | None = None,
) -> Source:
    """A source over the rows that a query gives now, in the order in which it gives them.

    Args:
        connection: `sqlite:///path`, `postgresql://…`, `env:NAME` (an environment variable that holds one of these), or
            an open connection, which stays open.
        query: One statement that gives rows. Its last ORDER BY is what fixes their order.
        folder: Where the rows are kept as Parquet files; made if missing, and has to outlive the source.
        parameters: Values bound to the query's placeholders, `:name` (SQLite) or `%(name)s` (PostgreSQL).
        progress: Called with the rows read; may raise to stop.

    Raises:
        InputError: The database cannot be opened, the query fails or gives no rows, two columns share a name, or a
            column holds values that no one type has (names row and column).
        DrivetrainError: The database's driver is not installed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    parts: list[Path] = []
    rows = 0
    shown = _display_name(connection)
    with _cursor(connection) as (cursor, errors):
        try:
            if hasattr(cursor, "sql"):  # DuckDB's, whose relations give Arrow without a copy
                cursor = cursor.sql(query, params=dict(parameters or {}))
            else:
                cursor.execute(query, *([dict(parameters)] if parameters else []))
            for table in _tables(cursor, shown):
                parts.append(folder / f"rows-{len(parts):05d}.parquet")
                pq.write_table(table, parts[-1], compression="zstd")
                rows += table.num_rows
                if progress is not None:
                    progress(rows, None, "rows read")
        except (pa.ArrowException, *_UNSENDABLE, *errors) as error:
            cause = _redacted(error, connection)
            after = f" after row {rows}" if rows else ""
            # Without its cause: a driver's own text, in a traceback, may hold what the connection does
            raise InputError(f"{shown}: the query failed{after}: {cause}", fix="try it in the database") from None
    if not rows:
        raise InputError(f"{shown}: the query gives no rows", fix="check its WHERE")
    return open_parquet(parts)


def fetch_query(
    connection: str,
    query: str,
    parameters: Mapping[str, object],
    folder: Path,
    bases: Sequence[Path] = (),
    progress: Progress = no_progress,
) -> list[tuple[str, Path]]:
    """The rows of a query as Parquet files below `folder`, by name; equal rows give equal files.

    Args:
        connection: As for `open_query`; a relative SQLite path is looked up in `bases`, first match wins.
        query: One statement that gives rows.
        parameters: Bound to its placeholders.
        folder: Where the files are kept.
        bases: See `connection`.
        progress: Called with the rows read; may raise to stop.

    Raises:
        InputError: See `open_query`.
    """
    source = open_query(_with_absolute_path(connection, bases), query, folder, parameters=parameters, progress=progress)
    return [(path.name, path) for path in dict.fromkeys(Path(shard.path) for shard in source.shards)]


def fetch_watermark(
    connection: str, query: str, parameters: Mapping[str, object], bases: Sequence[Path] = ()
) -> list[list[str | None]]:
    """The few rows of a query that says whether the data is still the same, as text.

    Raises:
        InputError: See `open_query`; or it gives more than a hundred rows.
    """
    connection = _with_absolute_path(connection, bases)
    with _cursor(connection) as (cursor, errors):
        try:
            cursor.execute(query, *([dict(parameters)] if parameters else []))
            rows = cursor.fetchmany(101)
        except _UNSENDABLE + errors as error:
            raise InputError(
                f"{_display_name(connection)}: the watermark's query failed: {_redacted(error, connection)}",
                fix="try it in the database",
            ) from None
    if len(rows) > 100:
        raise InputError(
            "the watermark's query gives more than 100 rows", fix="give e.g. SELECT max(updated_at) FROM t"
        )
    return [[None if value is None else str(value) for value in row] for row in rows]


def _tables(cursor: Any, shown: str) -> Iterator[pa.Table]:
    """The rows of an executed query as tables; a column has one type in each, which may widen from one to the next."""
    arrow_method = next((name for name in ("to_arrow_reader", "fetch_record_batch") if hasattr(cursor, name)), None)
    if arrow_method is not None:
        reader = getattr(cursor, arrow_method)()
        normal_schema(reader.schema, "the query")
        for batch in reader:
            yield pa.Table.from_batches([batch])
        return
    described = getattr(cursor, "description", None) or ()
    names = [str(column[0]) for column in described]
    if not names:
        raise InputError(f"{shown}: the query gives no rows", fix="give a SELECT")
    normal_schema(pa.schema([pa.field(name, pa.null()) for name in names]), "the query")
    kinds: dict[str, pa.DataType] = dict.fromkeys(names, pa.null())
    decimals = {str(column[0]): _decimal(*column[4:6]) for column in described}
    rows = 0
    while block := cursor.fetchmany(_ROWS):
        yield _table(names, block, rows, kinds, decimals)
        rows += len(block)


def _decimal(digits: Any, scale: Any) -> pa.DataType:
    """What a column's decimals are, by the precision and scale that a driver may state (PEP 249)."""
    is_known = isinstance(digits, int) and isinstance(scale, int) and 0 <= scale <= digits and 0 < digits <= 38
    return pa.decimal128(digits, scale) if is_known else pa.float64()


def _table(
    names: list[str],
    block: list[Any],
    before: int,
    kinds: dict[str, pa.DataType],
    decimals: Mapping[str, pa.DataType],
) -> pa.Table:
    """A block of rows; `kinds` holds each column's type after all blocks so far and is kept up to date."""
    columns = []
    for index, name in enumerate(names):
        values = [row[index] for row in block]
        kind = kinds[name]
        for value_type in dict.fromkeys(map(type, values)):
            first = next(value for value in values if type(value) is value_type)
            try:
                value_kind = decimals[name] if value_type is Decimal else _kind(first)
            except TypeError as error:
                raise _unfit(name, values, before, value_type, str(error)) from error
            joined = common_type(kind, value_kind)
            if joined is None:
                raise _unfit(name, values, before, value_type, f"{value_kind} where rows before it have {kind}")
            kind = joined
        kinds[name] = kind
        try:
            if pa.types.is_floating(kind):
                _see_rounded(name, values, before)
            columns.append(pa.array([_plain(value, kind) for value in values], kind))
        except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
            raise InputError(
                f"the query's column {name!r} cannot be read as {kind} ({str(error).splitlines()[0][:200]})",
                fix="CAST it in the query",
            ) from error
    return pa.table(dict(zip(names, columns, strict=True)))


def _see_rounded(name: str, values: list[Any], before: int) -> None:
    """Refuse a whole number that float64 rounds: an identifier, say, among other numbers or as NUMERIC."""
    for index, value in enumerate(values):
        whole = type(value) is int or (type(value) is Decimal and value.is_finite() and value == int(value))
        if whole and abs(value) > 1 << 53 and int(float(value)) != value:
            raise InputError(
                f"the query's row {before + index + 1}: column {name!r} holds {value}, which float64 rounds",
                fix=f"CAST {name} in the query, e.g. AS numeric(38, 0) or AS text",
            )


def _kind(value: Any) -> pa.DataType:
    """The Arrow type of a value."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        return pa.timestamp("us", "UTC")
    if isinstance(value, list):
        kind = pa.null()
        for item in value:
            joined = common_type(kind, _kind(item))
            if joined is None:
                raise TypeError("a list of more than one type")
            kind = joined
        return pa.list_(kind)
    try:
        return _TYPES[type(value)]
    except KeyError:
        raise TypeError(f"{type(value).__name__}, which has no column type") from None


def _plain(value: Any, kind: pa.DataType) -> Any:
    """A value as pyarrow takes it for this type."""
    if value is None:
        return None
    if pa.types.is_floating(kind):
        return float(value)
    if isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, memoryview):
        return bytes(value)
    if isinstance(value, list):
        return [_plain(item, kind.value_type) for item in value]
    return value


def _unfit(name: str, values: list[Any], before: int, value_type: type, what: str) -> InputError:
    row = before + 1 + next(index for index, value in enumerate(values) if type(value) is value_type)
    return InputError(f"the query's row {row}: column {name!r} holds {what}", fix=f"CAST {name} in the query")


@contextmanager
def _cursor(connection: str | Connection) -> Iterator[tuple[Any, tuple[type[Exception], ...]]]:
    """A cursor (Any: a driver's own) over the database, opened for reading only, and what it raises."""
    if not isinstance(connection, str):
        with closing(connection.cursor()) as cursor:
            yield cursor, (Exception,)  # PEP 249's errors have no class that drivers share
        return
    url = _url(connection)
    shown = _display_name(connection)
    scheme = url.partition(":")[0]
    if scheme == "sqlite":
        path = Path(unquote(url.removeprefix("sqlite:///")))
        if not url.startswith("sqlite:///") or not path.is_file():
            raise InputError(
                f"{shown}: there is no such database file", fix="say sqlite:///relative or sqlite:////absolute"
            )
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as database:
            yield database.cursor(), (sqlite3.Error, sqlite3.Warning)
        return
    if scheme not in ("postgresql", "postgres"):
        raise InputError(f"{shown}: not a kind of database that can be read", fix="give sqlite:/// or postgresql://")
    try:
        import psycopg as driver
    except ImportError as error:
        raise missing_extra("psycopg", "postgres") from error
    psycopg: Any = driver  # Any: its types want queries known before the program runs
    try:
        psycopg.conninfo.conninfo_to_dict(url)
    except psycopg.Error:  # its text quotes the URL
        raise InputError(
            f"{shown}: not a URL that PostgreSQL takes",
            fix="write it postgresql://user:password@host:port/database, "
            "with special characters of the password as %XX",
        ) from None
    try:
        opened = psycopg.connect(url)
    except psycopg.Error as error:
        raise InputError(
            f"{shown} cannot be opened: {_redacted(error, connection)}", fix="check the URL and the server"
        ) from None
    with closing(opened):
        opened.read_only = True
        with opened.cursor(name="drivetrain") as cursor:  # a named cursor streams instead of fetching all
            cursor.itersize = _ROWS
            yield cursor, (psycopg.Error,)


def _url(connection: str) -> str:
    """The URL, from the environment where it is named."""
    if not connection.startswith("env:"):
        return connection
    name = connection.removeprefix("env:")
    try:
        return os.environ[name]
    except KeyError:
        raise InputError(
            f"the environment variable {name} is not set", fix=f"export {name}=postgresql://user:password@host/database"
        ) from None


def _with_absolute_path(connection: str, bases: Sequence[Path]) -> str:
    """The connection with a relative SQLite file as an absolute one, if one of the folders holds it."""
    url = _url(connection)
    path = Path(unquote(url.removeprefix("sqlite:///")))
    if url.startswith("sqlite:///") and not path.is_absolute():
        for base in bases:
            if (base / path).is_file():
                return f"sqlite:///{(base / path).resolve()}"
    return connection


def _display_name(connection: str | Connection) -> str:
    """What messages call a connection: never user, password or options."""
    if not isinstance(connection, str):
        return f"the {type(connection).__module__.partition('.')[0]} connection"
    if connection.startswith("env:"):
        return connection
    if "://" not in connection:
        return "the connection"
    parts = urlsplit(connection)
    host = parts.netloc.rpartition("@")[2]
    # A password with a slash in it ends the part before the host too early
    return f"{parts.scheme}://…" if "@" in parts.path or "@" in parts.query else f"{parts.scheme}://{host}{parts.path}"


def _redacted(error: Exception, connection: str | Connection) -> str:
    """The first line of an error, without the connection's URL or its password."""
    text = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
    if isinstance(connection, str):
        url = _url(connection)
        try:
            parts = urlsplit(url)
            secrets = [
                url,
                parts.password or "",
                unquote(parts.password or ""),
                *parse_qs(parts.query).get("password", []),
            ]
        except ValueError:
            return type(error).__name__
        for secret in sorted(filter(None, secrets), key=len, reverse=True):
            text = text.replace(secret, "…")
    return text
