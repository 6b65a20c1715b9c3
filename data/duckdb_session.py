"""DuckDB for SQL that people write: a query sees the rows it is given, but no other file, no network, no extension."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ..errors import InputError, missing_extra

if TYPE_CHECKING:
    import duckdb

MEMORY: Final = 2 << 30  # bytes; what needs more spills into the scratch folder, if there is one
TIMEOUT: Final = 600.0  # seconds per query
_AGAIN: Final = 0.05  # seconds between interruptions of one that is out of time


def open_session(
    files: Sequence[Path | str] = (), *, scratch: Path | None = None, memory: int = MEMORY
) -> duckdb.DuckDBPyConnection:
    """A database in memory with one thread, so that the same rows give the same answer to the last digit.

    Args:
        files: What may be read; everything else on disk and all of the network is refused.
        scratch: Where sorts and joins beyond the memory spill; None: they fail.
        memory: Bytes.

    Raises:
        DrivetrainError: DuckDB is not installed.
    """
    try:
        import duckdb
    except ImportError as error:
        raise missing_extra("duckdb", "sql") from error
    with ctrl_c():
        session = duckdb.connect(
            config={
                "threads": 1,
                "memory_limit": f"{memory}B",
                "temp_directory": str(scratch or ""),
                "autoload_known_extensions": False,
                "autoinstall_known_extensions": False,
                "allow_persistent_secrets": False,
                "python_enable_replacements": False,  # else a query sees this process's variables
            }
        )
        session.execute("SET allowed_paths = ?", [[str(path) for path in files]])
        session.execute("SET enable_external_access = false")
    return session


def lock(session: duckdb.DuckDBPyConnection) -> None:
    """Let no later query change a setting."""
    with ctrl_c():
        session.execute("SET lock_configuration = true")


@contextmanager
def ctrl_c() -> Iterator[None]:
    """Turn the error that DuckDB raises on Ctrl-C into a KeyboardInterrupt again."""
    try:
        yield
    except RuntimeError as error:
        if str(error) == "Query interrupted":
            raise KeyboardInterrupt from error
        raise


@contextmanager
def guarded(session: duckdb.DuckDBPyConnection, what: str, *, timeout: float = TIMEOUT) -> Iterator[None]:
    """Turn DuckDB's errors into one that names the check; interrupt a query that takes too long.

    Args:
        session: Where the query runs.
        what: The check, as a sentence begins.
        timeout: Seconds.

    Raises:
        InputError: The SQL is wrong, refused, out of memory or out of time.
    """
    import duckdb
    import pyarrow as pa

    def interrupt() -> None:
        while not timer.finished.wait(_AGAIN):  # again and again: before the query has begun, an interruption is lost
            session.interrupt()

    timer = threading.Timer(timeout, interrupt)
    try:
        timer.start()
        with ctrl_c():
            yield
    except (duckdb.Error, pa.ArrowException, OSError) as error:  # Arrow's while rows stream
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        cause = lines[0] if lines else type(error).__name__
        if cause.startswith("INTERRUPT Error"):
            raise InputError(f"{what} took more than {timeout:g} s", fix="make its SQL simpler") from error
        raise InputError(f"{what}: {cause}", fix="correct its SQL") from error
    finally:
        timer.cancel()
        if timer.is_alive():  # else it might yet interrupt the next query
            timer.join()


def require_select(session: duckdb.DuckDBPyConnection, query: str, what: str) -> None:
    """Refuse what is not one query that only reads.

    Raises:
        InputError: It is not a SELECT, or more than one statement.
    """
    import duckdb

    if not query.isascii() and any("\ud800" <= character <= "\udfff" for character in query):
        raise InputError(f"{what} has half a character", fix="write it whole")
    statements = session.extract_statements(query)
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        raise InputError(f"{what} is not one SELECT", fix="write one query that only reads")
