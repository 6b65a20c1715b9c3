"""SQL over rows, by DuckDB: a query names the rows that should not be there (GX's UnexpectedRowsExpectation).

Parquet files are read by DuckDB itself, so a query over a whole table, as GROUP BY, needs no memory for it; rows of
another kind are first written to Parquet in a temporary folder, batch by batch.
"""

from __future__ import annotations

import math
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from ...errors import InputError
from ...progress import Progress, no_progress
from ..aggregates.tables import show_text
from ..arrays import python_of
from ..duckdb_session import (
    TIMEOUT,
    ctrl_c,
    guarded,
    lock,
    open_session,
    require_select,
)
from ..reading.source_of import TableShard, source_of
from ..schemas.checks import SQL_TYPE, Expectation
from ..sources import ParquetShard, Source
from .suite import SHOWN, ExpectationOutcome, ExpectationResults, result_of

if TYPE_CHECKING:
    import duckdb

TABLE: Final = "data"
_BRACES: Final = re.compile(r"\{\{|\}\}|\{[^{}]*\}?|\}")
_FILLED: Final = {"{{": "{", "}}": "}", "{batch}": TABLE}
_LONG: Final = 200  # characters shown of a value
_BATCH: Final = 65_536


def check_sql(
    data: object,
    checks: Mapping[str, str] | Sequence[str] | str,
    *,
    timeout: float = TIMEOUT,
    progress: Progress = no_progress,
) -> ExpectationResults:
    """Run queries, each for the rows that should not be there: `SELECT * FROM data WHERE arrival < departure`.

    Args:
        data: What `source_of` takes, or a mapping of such by data set name.
        checks: A query, or several, by a name for the report or not; the rows are the table `data`, or GX's `{batch}`
            (braces of the query's own are then doubled). One SELECT each.
        timeout: Seconds per query.
        progress: Called with the rows written for DuckDB, where the data is not Parquet.

    Returns:
        A GX validation result: of each query the number of rows (`observed_value`) and up to twenty of them.

    Raises:
        InputError: A query is wrong, reads anything else than the rows, or takes too long; names the check.
        DrivetrainError: DuckDB is not installed.
    """
    checks = [checks] if isinstance(checks, str) else checks
    pairs = checks.items() if isinstance(checks, Mapping) else [("", query) for query in checks]
    wanted = [
        Expectation(SQL_TYPE, {"unexpected_rows_query": query}, {"description": name} if name else {})
        for name, query in pairs
    ]
    data_sets = data if isinstance(data, Mapping) else {"data": data}
    sources = {str(name): source_of(data_set) for name, data_set in data_sets.items()}
    results = []
    for split, source in sources.items():
        outcomes = run_sql(source, dict(enumerate(wanted)), timeout=timeout, progress=progress)
        results += [result_of(expectation, outcomes[index], split, "sql") for index, expectation in enumerate(wanted)]
    return ExpectationResults.of("sql", {name: source.rows for name, source in sources.items()}, results)


def run_sql(
    source: Source,
    expectations: Mapping[int, Expectation],
    *,
    timeout: float = TIMEOUT,
    progress: Progress = no_progress,
) -> dict[int, ExpectationOutcome]:
    """The outcome of each `unexpected_rows_expectation`, by its number.

    Raises:
        InputError: See `check_sql`.
    """
    outcomes = {}
    with _table(source, progress) as session:
        for index, expectation in expectations.items():
            outcomes[index] = _run(session, expectation, timeout)
    return outcomes


def _run(session: duckdb.DuckDBPyConnection, expectation: Expectation, timeout: float) -> ExpectationOutcome:
    query = expectation.kwargs.get("unexpected_rows_query")
    title = str(expectation.meta.get("description") or query)
    what = f"the SQL check {title if len(title) <= _LONG else title[:_LONG] + '…'!r}"
    if not isinstance(query, str):
        raise InputError(f"{what} has no unexpected_rows_query", fix="write one SELECT")
    if len(expectation.kwargs) > 1:
        odd = sorted(set(expectation.kwargs) - {"unexpected_rows_query"})[0]
        raise InputError(f"{what} has the unknown argument {odd!r}", fix="write it into the query")
    if "{batch}" in query:
        query = _filled(query, what)
    count = 0
    shown: list[dict[str, Any]] = []
    with guarded(session, what, timeout=timeout):
        require_select(session, query, what)
        for batch in session.sql(query.rstrip("; \t\r\n")).to_arrow_reader(_BATCH):
            names = _distinct(batch.schema.names)
            for row in range(min(batch.num_rows, SHOWN - len(shown))):
                values = (_shown(python_of(column[row])) for column in batch.columns)
                shown.append(dict(zip(names, values, strict=True)))
            count += batch.num_rows
    return ExpectationOutcome(count == 0, {"observed_value": count, "details": {"unexpected_rows": shown}})


def _filled(query: str, what: str) -> str:
    """The query with the table's name for `{batch}`, and single braces for double ones, as GX does it."""
    odd = next((brace for brace in _BRACES.findall(query) if brace not in _FILLED), None)
    if odd is not None:
        raise InputError(f"{what}: {odd} in braces", fix="double braces other than {batch}")
    return _BRACES.sub(lambda match: _FILLED[match[0]], query)


def _distinct(names: list[str]) -> list[str]:
    """Column names without duplicates, which a join may give."""
    return [name if names.index(name) == index else f"{name}:{index}" for index, name in enumerate(names)]


def _shown(value: Any) -> Any:
    """A value as JSON, cut where it is long."""
    if isinstance(value, bytes):
        value = show_text(value)
    if value is None or isinstance(value, (bool, int)) or (isinstance(value, float) and math.isfinite(value)):
        return value
    text = str(value)
    return text if len(text) <= _LONG else text[:_LONG] + "…"


@contextmanager
def _table(source: Source, progress: Progress) -> Iterator[duckdb.DuckDBPyConnection]:
    """A locked session in which the rows are the view `data`."""
    with tempfile.TemporaryDirectory(prefix="drivetrain-sql-") as folder:
        tables = _in_memory(source)
        files = [] if tables else _whole_files(source) or [_spool(source, Path(folder), progress)]
        session = open_session(files, scratch=Path(folder) / "spill")
        try:
            if tables:
                session.register("source_rows", pa.concat_tables(tables).select(source.columns))
                origin = "source_rows"
            else:
                listed = ", ".join(_text(str(path)) for path in files)
                origin = f"read_parquet([{listed}], union_by_name = true, hive_partitioning = false)"
            columns = ", ".join(_name(name) for name in source.columns)
            with ctrl_c():
                session.execute(f"CREATE VIEW {TABLE} AS SELECT {columns} FROM {origin}")  # noqa: S608 - quoted
            lock(session)
            yield session
        finally:
            session.close()


def _in_memory(source: Source) -> list[pa.Table]:
    """The tables of a source that has nothing else, if DuckDB reads their types."""
    tables = [shard.table for shard in source.shards if isinstance(shard, TableShard)]
    return tables if len(tables) == len(source.shards) and not any(map(_in_parquet_alone, source.schema.types)) else []


def _in_parquet_alone(kind: pa.DataType) -> bool:
    """Whether DuckDB reads a type, or one within it, from Parquet but not from memory."""
    if pa.types.is_float16(kind) or pa.types.is_decimal256(kind):
        return True
    return any(_in_parquet_alone(kind.field(index).type) for index in range(kind.num_fields))


def _whole_files(source: Source) -> list[str]:
    """The Parquet files whose rows are exactly the source's; none if it is of another kind, or a part of files."""
    groups: dict[str, set[int]] = {}
    for shard in source.shards:
        if not isinstance(shard, ParquetShard):
            return []
        groups.setdefault(shard.path, set()).add(shard.row_group)
    for path, some in groups.items():
        with pq.ParquetFile(path) as file:
            if len(some) != file.num_row_groups:
                return []
    return list(groups)


def _spool(source: Source, folder: Path, progress: Progress) -> str:
    path, done = folder / "rows.parquet", 0
    with pq.ParquetWriter(path, source.schema, compression="lz4") as writer:
        for shard in source.shards:
            for batch in source.read(shard):
                writer.write_batch(batch)
                done += batch.num_rows
                progress(done, source.rows, "rows")
    return str(path)


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _name(value: str) -> str:
    return '"' + value.replace('"', '""') + '"'
