"""Input files by pattern: resolved to (path, size, SHA-256) when a node is launched, so that content is the key.

What is not on this machine, files behind a URI and the rows of a query, is fetched first; the content is the key all
the same. The table in `inputs.py` names who fetches: the orchestrator knows nothing of data.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import TypeAlias

from ...digest import digest, digest_file
from ...errors import InputError
from ...inputs import PACKAGED, READERS
from ...progress import Progress, no_progress
from ...redaction import holds_credentials, mark_secret
from .context import current
from .distributions import file_of
from .functions import FunctionRef, user_line
from .spans import (
    Lister,
    SpanMatch,
    choose,
    has_specs,
    listed,
    query_parameters,
)

_UNUSED = 7 * 86400.0
"""Seconds after which a copy that no run has used is removed."""
_HALF = 86400.0
"""Seconds after which a copy that was never completed is removed."""

_FETCH_FILES = FunctionRef(None, READERS["fetch_files"])
_LIST_FILES = FunctionRef(None, READERS["list_files"])
_FETCH_QUERY = FunctionRef(None, READERS["fetch_query"])
_FETCH_OFFSETS = FunctionRef(None, READERS["fetch_offsets"])
_FETCH_WATERMARK = FunctionRef(None, READERS["fetch_watermark"])


@dataclass(frozen=True)
class InputFile:
    """One resolved file: size in bytes, SHA-256 of its bytes; its name, where its path is that of a copy."""

    path: Path
    size: int
    sha256: str
    name: str = ""


@dataclass(frozen=True)
class FileSet:
    """Files by pattern; `files` is filled when the pattern is resolved.

    Attributes:
        pattern: As given; once resolved, without `{SPAN}` and the like.
        files: What it found.
        span: Which span is wanted, the newest where None; once resolved, which it is: None where the pattern names
            none.
        version: The same of the version.
    """

    pattern: str
    files: tuple[InputFile, ...] = ()
    span: int | None = None
    version: int | None = None


Files: TypeAlias = FileSet | str | PathLike[str]
"""What a component's parameter is annotated with when it names input files."""


@dataclass(frozen=True)
class SqlQuery:
    """The rows of a query, see `query`.

    `seen` is what the watermark's query gave when this was resolved, `folders` where a relative SQLite path starts.
    """

    sql: str
    connection: str
    parameters: Mapping[str, object] = field(default_factory=dict)
    watermark: str | None = None
    seen: str | None = None
    folders: tuple[Path, ...] = ()
    span: int | None = None


def query(
    sql: str,
    *,
    connection: str,
    parameters: Mapping[str, object] | None = None,
    watermark: str | None = None,
    span: int | None = None,
) -> SqlQuery:
    """The rows of a SQL query as input: `ExampleGen(dt.query("SELECT …", connection="env:SHOP_DB"))`.

    It is asked when the node is launched, and the rows it gives are the cache key: what changes no row runs nothing
    again. Without an ORDER BY, another order of the rows counts as a change.

    Args:
        sql: One statement that gives rows.
        connection: `env:NAME`, an environment variable that holds a URL; or the URL itself, which must have no
            password: `sqlite:///path`, `postgresql://user@host/database`.
        parameters: Values bound to the placeholders of both statements, `:name` (SQLite), `%(name)s` (PostgreSQL).
        watermark: A cheap query, e.g. `SELECT max(updated_at) FROM orders`, whose answer, with the other arguments, is
            the key instead of the rows; `sql` is then only asked when the answer is new.
        span: The day the rows belong to, in days since 1970-01-01; it is the span of the examples. Both statements may
            bind `span`, `span_begin` and `span_end` (seconds since 1970: `WHERE at >= :span_begin AND at < :span_end`)
            and `span_date` (text, "19700102" for span 1).

    Raises:
        InputError: The connection holds a password.
    """
    sql_query = SqlQuery(sql, connection, dict(parameters or {}), watermark, span=span)
    refuse_password(connection)
    return sql_query


def refuse_password(connection: object) -> None:
    """Check that a connection may be stored and shown; a symbolic one is checked when it has a value.

    Raises:
        InputError: It holds a password, which the message does not show.
    """
    held = isinstance(connection, str) and not connection.startswith("env:")
    if held and (holds_credentials(str(connection)) or re.search(r"\bpassword\s*=", str(connection))):
        raise InputError(
            "the query's connection holds a password, which would be stored with the pipeline",
            fix='put the URL in an environment variable, and say e.g. connection="env:DATABASE_URL"',
            where=user_line(),
        )


def files(pattern: str, *, span: int | None = None, version: int | None = None) -> FileSet:
    """Files by glob pattern (`**` allowed), path, or the short name of a packaged data set, see `inputs.PACKAGED`.

    A relative pattern is looked up in the pipeline's folder, then in the folder that holds the root; one that a person
    gave as a parameter of the run, in the working directory first. `{SPAN}`, or
    `{YYYY}`, `{MM}` and `{DD}`, say where the span stands in it, `{VERSION}` where the version does: of the files that
    are there when the run first asks, those of the newest span are taken, and of these those of the newest version.

    Args:
        pattern: E.g. `"data/span-{SPAN}/v{VERSION}/*.csv"`, `"logs/{YYYY}-{MM}-{DD}.parquet"`.
        span: This span instead of the newest: a number, a parameter of the pipeline, an item of a loop. A date's is
            its days since 1970-01-01.
        version: This version instead of the newest.
    """
    return FileSet(pattern, (), span, version)


def resolve_files(
    value: Files | SqlQuery,
    folders: tuple[Path, ...] = (),
    fetched: Path | None = None,
    progress: Progress | None = None,
) -> FileSet:
    """Find the files and digest them, sorted by path; fetch them first if they are elsewhere.

    Args:
        value: A pattern, a query, or a set that is already resolved (returned as it is).
        folders: Where a relative pattern is looked up, first match wins; the working directory where empty.
        fetched: Where files and rows from elsewhere are kept; in the launch's work folder where None.
        progress: Called as what is fetched grows, may raise to stop it; the launch's where None.

    Raises:
        InputError: Nothing matches, or a match cannot be read; a query fails or gives no rows.
        DrivetrainError: What reads from there is not installed.
    """
    progress = progress or current().progress
    if isinstance(value, SqlQuery):
        rows = _digested("a query", _asked(value, folders, fetched or current().work_dir, progress))
        return replace(rows, span=value.span)
    file_set = value if isinstance(value, FileSet) else FileSet(os.fspath(value))
    if file_set.files:
        return file_set
    if takes_spans(file_set):
        match = find_span(file_set, folders)
        return with_span(resolve_files(FileSet(match.pattern), folders, fetched, progress), match)
    if is_uri(file_set.pattern):
        copies = _FETCH_FILES(file_set.pattern, fetched or current().work_dir / "fetched", progress)
    else:
        copies = [("", path) for path in _paths(file_set.pattern, folders or (Path.cwd(),))]
    return _digested(file_set.pattern, copies)


def takes_spans(value: FileSet) -> bool:
    """Whether the span must still be found: the pattern names one, or the user asked for one."""
    return not value.files and (has_specs(value.pattern) or (value.span, value.version) != (None, None))


def with_span(value: FileSet, match: SpanMatch) -> FileSet:
    """Resolved files, with the span and the version that they were found by."""
    return replace(value, span=match.span, version=match.version)


def find_span(value: FileSet, folders: tuple[Path, ...] = ()) -> SpanMatch:
    """Which span and version a pattern means now; a relative pattern is looked up as `resolve_files` does.

    Raises:
        InputError: There is none, or the pattern makes no sense.
    """
    return choose(local(value.pattern), value.span, value.version, lister(folders))


def lister(folders: tuple[Path, ...] = ()) -> Lister:
    """Finds the files of a glob pattern, in the first of the folders that has any, or behind its URI."""

    def find(pattern: str) -> tuple[list[str], str]:
        if is_uri(pattern):
            return listed(_LIST_FILES(pattern), pattern), "there"
        fixed = Path(re.split(r"[*?\[]", pattern)[0].rpartition("/")[0] or "/")
        places = [fixed] if Path(pattern).is_absolute() else list(dict.fromkeys(folders or (Path.cwd(),)))
        for folder in places:
            matches = glob.glob(pattern, root_dir=folder, recursive=True)  # noqa: PTH207 - see `_paths`
            if files := sorted(match for match in matches if (folder / match).is_file()):
                return files, str(folder)
        return [], " or ".join(map(str, places))

    return find


def local(pattern: str) -> str:
    """A pattern of files on this machine as its paths are spelled."""
    return pattern if is_uri(pattern) else os.path.expanduser(pattern.removeprefix("file://"))  # noqa: PTH111 - keeps ./


def is_uri(pattern: str) -> bool:
    """Whether a pattern is of files behind a URI, and not on this machine."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", pattern) is not None and not pattern.startswith("file://")


def resolve_query(
    value: SqlQuery, folders: tuple[Path, ...], fetched: Path, progress: Progress = no_progress
) -> FileSet | SqlQuery:
    """The query's rows; or, with a watermark, the query with what the watermark is now.

    Raises:
        InputError: A query fails, or gives no rows.
    """
    refuse_password(value.connection)
    if value.watermark is None:
        return resolve_files(value, folders, fetched, progress)
    seen = _FETCH_WATERMARK(value.connection, value.watermark, _bound(value), folders)
    return replace(value, seen=json.dumps(seen, ensure_ascii=False), folders=folders)


def fetch_watermark(connection: str, query: str, folders: tuple[Path, ...]) -> list[list[str | None]]:
    """The rows of a cheap query as text; see `query` for the connection.

    Raises:
        InputError: It fails, or gives more than 100 rows.
    """
    rows: list[list[str | None]] = _FETCH_WATERMARK(connection, query, {}, folders)
    return rows


def fetch_offsets(servers: str, topic: str) -> dict[int, int]:
    """The next offset of each partition of a topic; see `NewMessages` for the servers.

    Raises:
        InputError: The variable that is to hold them is not set.
        DrivetrainError: No broker answers, there is no such topic, or the extra is not installed.
    """
    offsets: dict[int, int] = _FETCH_OFFSETS(servers, topic)
    return offsets


def _bound(value: SqlQuery) -> dict[str, object]:
    """The parameters of both statements: the user's, and those of the span that the statements use."""
    words = set(re.findall(r"\w+", f"{value.sql} {value.watermark}"))
    dated = {} if value.span is None else query_parameters(value.span)
    return {name: bound for name, bound in dated.items() if name in words} | dict(value.parameters)


def _asked(value: SqlQuery, folders: tuple[Path, ...], fetched: Path, progress: Progress) -> list[tuple[str, Path]]:
    """The rows as files, in a folder named by their content.

    They are fetched into a folder of another name first and renamed when complete, so that two runs may fetch the same
    rows at once, and a run that was killed leaves none that are incomplete under the final name.
    """
    refuse_password(value.connection)
    if value.connection.startswith("env:"):
        mark_secret(os.environ.get(value.connection.removeprefix("env:"), ""))
    bases = value.folders or folders or (Path.cwd(),)
    fetched.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="query-", dir=fetched))
    try:
        parts = _FETCH_QUERY(value.connection, value.sql, _bound(value), folder, bases, progress)
        kept = fetched / f"rows-{digest('drivetrain-rows-v1', [digest_file(path) for _, path in parts])[:32]}"
        if not kept.is_dir():
            folder.rename(kept)
        os.utime(kept)  # when it was last used: see `remove_fetched`
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return [(name, kept / name) for name, _ in parts]


def remove_fetched(folder: Path) -> None:
    """Remove what no run has used for a week, and what was never completed; call it while no node runs.

    A copy that is still used saves fetching it again, since the store says that it has not changed.
    """
    now = time.time()
    for path in folder.glob("*"):
        half = path.name.startswith((".", "query-"))
        with contextlib.suppress(OSError):  # another process removes it too
            if now - path.stat().st_mtime > (_HALF if half else _UNUSED):
                shutil.rmtree(path) if path.is_dir() else path.unlink()


class NoFileError(InputError):
    """No file is where one is looked for: nothing, or a folder."""

    @property
    def likely_fix(self) -> str | None:
        """The fix that names a file of nearly that name; None where there is none."""
        return self.fix if self.fix is not None and self.fix.startswith("did you mean") else None


def _digested(pattern: str, paths: list[tuple[str, Path]]) -> FileSet:
    entries = []
    for name, path in paths:
        try:
            entries.append(InputFile(path, path.stat().st_size, digest_file(path), name))
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror}", fix="check the file and its rights") from None
    return FileSet(pattern, tuple(entries))


def _paths(pattern: str, folders: tuple[Path, ...]) -> list[Path]:
    if pattern in PACKAGED:
        return [_packaged(pattern)]
    pattern = pattern.removeprefix("file://")
    for folder in folders:
        text = str(Path(pattern).expanduser()) if Path(pattern).expanduser().is_absolute() else f"{folder}/{pattern}"
        exact = Path(text)
        if exact.is_dir():
            raise NoFileError(f"{exact} is a folder", fix=f"name its files, e.g. {pattern}/*.parquet")
        if exact.is_file():
            return [exact]
        if exact.exists():
            raise InputError(
                f"{exact} is a pipe or a device", fix="write what it gives to a file: it is read more than once"
            )
        globbed = glob.glob(text, recursive=True)  # noqa: PTH207 - Path.glob takes no absolute pattern
        matches = sorted(Path(match) for match in globbed if Path(match).is_file())
        if matches:
            return matches
    import difflib

    places = " or ".join(dict.fromkeys(str(folder) for folder in folders))
    close = difflib.get_close_matches(pattern, [*_beside(pattern, folders), *PACKAGED], 1, 0.75)
    raise NoFileError(
        f"no file matches {pattern!r} in {places}",
        fix=f"did you mean {close[0]!r}?"
        if close
        else f"give a path, a glob pattern, or a packaged data set ({', '.join(PACKAGED)})",
    )


def _beside(pattern: str, folders: tuple[Path, ...]) -> list[str]:
    """The files beside the one that a path names, as it would name them."""
    parent = Path(pattern).parent
    there = [folder / parent for folder in folders if (folder / parent).is_dir()]
    alike = (f"*{Path(pattern).suffix or '.*'}", f"{glob.escape(Path(pattern).stem)}.*")  # schema.yml for schema.yaml
    return list({str(parent / path.name): None for folder in there for like in alike for path in folder.glob(like)})


def _packaged(name: str) -> Path:
    distribution, file = PACKAGED[name]
    path = file_of(distribution, file)
    if path is None:
        raise InputError(f"the packaged data set {name!r} is not installed", fix="pip install 'drivetrain[datasets]'")
    if not path.is_file():
        raise InputError(f"{distribution} does not hold {file}", fix=f"pip install --force-reinstall {distribution}")
    return path
