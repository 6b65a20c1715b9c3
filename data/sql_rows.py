"""The rows of a SQL query: asked once, kept as Parquet, so that every later pass reads the same rows.

A database may change between two passes and gives rows in no order unless the query has an ORDER BY, so the result is
streamed into a folder first. SQLite (`sqlite:///relative.db`, `sqlite:////absolute.db`) needs nothing; PostgreSQL
(`postgresql://user@host/database`) needs the extra `postgres`. Both are opened for reading only.

Types follow the values: integers are int64, reals float64, NUMERIC the nearest float64, text string, BLOB and bytea
bytes, booleans, dates, times and timestamps as such (with a zone in UTC), arrays lists, JSON and UUID their text.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import unquote, urlsplit
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq

from ..errors import InputError, missing_extra
from .sources import Source, open_parquet
from .types import common_type, normal_schema

_ROWS: Final = 16_384
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


class _Cursor(Protocol):
    """What of the DBAPI (PEP 249) is used."""

    @property
    def description(self) -> Sequence[Any] | None: ...

    def execute(self, query: str) -> object: ...

    def fetchmany(self, size: int) -> list[Any]: ...


def open_query(
    url: str, query: str, folder: Path, *, progress: Callable[[int, int | None, str], None] | None = None
) -> Source:
    """A source over the rows that a query gives now, in the order in which it gives them.

    Args:
        url: `sqlite:///path` or `postgresql://…`. Its password is shown in no message; better keep it in ~/.pgpass.
        query: One statement that gives rows. Its last ORDER BY is what fixes their order.
        folder: Where the rows are kept as Parquet files; made if missing, and has to outlive the source.
        progress: Told of rows read; may raise to stop.

    Raises:
        InputError: The database cannot be opened, the query fails or gives no rows, two columns share a name, or a
            column holds values that no one type has (names row and column).
        DrivetrainError: The database's driver is not installed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    parts: list[Path] = []
    kinds: dict[str, pa.DataType] = {}
    rows = 0
    with _cursor(url) as (cursor, errors):
        try:
            cursor.execute(query)
            names = [str(column[0]) for column in cursor.description or ()]
            if not names:
                raise InputError(f"{_shown(url)}: the query gives no rows", fix="give a SELECT")
            normal_schema(pa.schema([pa.field(name, pa.null()) for name in names]), "the query")
            kinds = dict.fromkeys(names, pa.null())
            while block := cursor.fetchmany(_ROWS):
                table = _table(names, block, rows, kinds)
                parts.append(folder / f"rows-{len(parts):05d}.parquet")
                pq.write_table(table, parts[-1], compression="zstd")
                rows += len(block)
                if progress is not None:
                    progress(rows, None, "rows read")
        except errors as error:
            cause = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
            after = f" after row {rows}" if rows else ""
            raise InputError(
                f"{_shown(url)}: the query failed{after}: {cause}", fix="try it in the database"
            ) from error
    if not rows:
        raise InputError(f"{_shown(url)}: the query gives no rows", fix="check its WHERE")
    return open_parquet(parts)


def _table(names: list[str], block: list[Any], before: int, kinds: dict[str, pa.DataType]) -> pa.Table:
    """A block of rows; `kinds` holds each column's type after all blocks so far and is kept up to date."""
    columns = []
    for place, name in enumerate(names):
        values = [row[place] for row in block]
        kind = kinds[name]
        for value_type in dict.fromkeys(map(type, values)):
            first = next(value for value in values if type(value) is value_type)
            try:
                found = _kind(first)
            except TypeError as error:
                raise _unfit(name, values, before, value_type, str(error)) from error
            joined = common_type(kind, found)
            if joined is None:
                raise _unfit(name, values, before, value_type, f"{found} where rows before it have {kind}")
            kind = joined
        kinds[name] = kind
        try:
            columns.append(pa.array([_plain(value, kind) for value in values], kind))
        except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
            raise InputError(
                f"the query's column {name!r} cannot be read as {kind} ({str(error).splitlines()[0][:200]})",
                fix="CAST it in the query",
            ) from error
    return pa.table(dict(zip(names, columns, strict=True)))


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
    row = before + 1 + next(place for place, value in enumerate(values) if type(value) is value_type)
    return InputError(f"the query's row {row}: column {name!r} holds {what}", fix=f"CAST {name} in the query")


@contextmanager
def _cursor(url: str) -> Iterator[tuple[_Cursor, tuple[type[Exception], ...]]]:
    """A cursor over the database, opened for reading only, and what it raises."""
    scheme = urlsplit(url).scheme
    if scheme == "sqlite":
        path = Path(unquote(url.removeprefix("sqlite:///")))
        if not url.startswith("sqlite:///") or not path.is_file():
            raise InputError(
                f"{url}: there is no such database file", fix="say sqlite:///relative or sqlite:////absolute"
            )
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as database:
            yield database.cursor(), (sqlite3.Error, sqlite3.Warning)
        return
    if scheme not in ("postgresql", "postgres"):
        raise InputError(
            f"{_shown(url)}: not a kind of database that can be read", fix="give sqlite:/// or postgresql://"
        )
    try:
        import psycopg as driver
    except ImportError as error:
        raise missing_extra("psycopg", "postgres") from error
    psycopg: Any = driver  # Any: its types want queries known before the program runs
    try:
        connection = psycopg.connect(url)
    except psycopg.Error as error:
        cause = str(error).splitlines()[0][:200]
        raise InputError(f"{_shown(url)} cannot be opened: {cause}", fix="check the URL and the server") from error
    with closing(connection):
        connection.read_only = True
        with connection.cursor(name="drivetrain") as cursor:  # a named cursor streams instead of fetching all
            cursor.itersize = _ROWS
            yield cursor, (psycopg.Error,)


def _shown(url: str) -> str:
    """The URL without user and password."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
