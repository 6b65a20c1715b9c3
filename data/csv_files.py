"""CSV files as shards: one whole scan settles the columns, their types and the row counts; reading then streams.

Dialect: UTF-8 (a byte order mark is skipped), commas, `"` quotes, quoted line breaks allowed, blank lines skipped, the
same header in every file. A cell is missing if it is one of `null_values` without quotes. In quotes those words are
text in a text column (`"NA"` may be Namibia, `""` is the empty string) and missing in a column of any other type.

Types are settled over all rows of all files, so no row can contradict them later: a column takes the first type of one
family that fits all its values, else text. The families: int64 → float64; true/false; date → timestamp in ms → in µs;
the same with a zone, kept as UTC. A column without values is text. Blanks around anything but text are ignored.
"""

from __future__ import annotations

import csv
import gzip
import io
import re
import threading
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import BinaryIO, Final, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from ..errors import InputError
from .sources import Shard, Source, unify
from .types import normal_schema, settle

NULL_VALUES: Final = ("", "NA")
_BLOCK_BYTES: Final = 4 << 20  # a row must fit in one block
_FAMILIES: Final = (
    (pa.int64(), pa.float64()),
    (pa.bool_(),),
    (pa.date32(), pa.timestamp("ms"), pa.timestamp("us")),
    (pa.timestamp("ms", "UTC"), pa.timestamp("us", "UTC")),
)
_ERRORS: Final = (pa.ArrowException, OSError, EOFError, zlib.error, zipfile.BadZipFile)


@dataclass(frozen=True)
class CsvShard:
    """One CSV file, plain, gzipped, or alone in a zip."""

    path: str
    rows: int
    null_values: tuple[str, ...] = NULL_VALUES

    def read(self, schema: pa.Schema, batch_rows: int, dictionaries: bool) -> Iterator[pa.RecordBatch]:
        """See `Shard.read`; batches are as the file's blocks give them."""
        for batch in _text_batches(Path(self.path), self.null_values, schema.names):
            columns = []
            for item in schema:
                try:
                    columns.append(_parsed(batch.column(item.name), item.type, self.null_values))
                except (pa.ArrowInvalid, KeyError) as error:
                    raise InputError(
                        f"{self.path}: column {item.name!r} is no longer {item.type}: the file changed while in use",
                        fix="start again, and do not write to it meanwhile",
                    ) from error
            yield pa.RecordBatch.from_arrays(columns, schema=schema)


def open_csv(
    paths: Sequence[Path],
    *,
    null_values: Sequence[str] = NULL_VALUES,
    progress: Callable[[int, int | None, str], None] | None = None,
) -> Source:
    """A source over CSV files, each a shard; scans all of them once.

    Args:
        paths: With equal headers; in this order.
        null_values: What a missing cell holds.
        progress: Told of rows scanned; may raise to stop.

    Raises:
        InputError: A file is missing, empty, damaged, not UTF-8, ragged (names the line), or its header differs.
    """
    nulls = tuple(null_values)
    shards: list[Shard] = []
    schema: pa.Schema | None = None
    scanned = 0
    for path in paths:
        guesses, rows = _scan(path, nulls, scanned, progress)
        scanned += rows
        found = pa.schema([pa.field(name, guess.type) for name, guess in guesses.items()])
        if schema is not None and set(found.names) == set(schema.names) and found.names != schema.names:
            raise InputError(f"{path}: the columns are in another order than in {paths[0]}", fix="use one header")
        schema = found if schema is None else unify(schema, str(paths[0]), found, str(path), or_text=True)
        shards.append(CsvShard(str(path), rows, nulls))
    if schema is None:
        raise InputError("there are no CSV files to open", fix="name at least one")
    return Source(tuple(shards), settle(schema))


@dataclass
class _Guess:
    """What type a column may have, after the blocks seen so far: the join of the blocks' types, in any order."""

    family: tuple[pa.DataType, ...] | None = None
    level: int = 0
    text: bool = False

    @property
    def type(self) -> pa.DataType:
        if self.text:
            return pa.string()
        return pa.null() if self.family is None else self.family[self.level]

    def see(self, column: pa.Array, nulls: tuple[str, ...]) -> None:
        if self.text or column.null_count == len(column):
            return
        cells = _Cells(column, nulls)
        if self.family is None and cells.blank:
            return
        for family in [self.family] if self.family else _FAMILIES:
            for level in range(self.level if self.family else 0, len(family)):
                if cells.fit(family[level]):
                    self.family, self.level = family, level
                    return
        self.text = True


@dataclass
class _Cells:
    """A block of one column, and what it can be read as."""

    column: pa.Array
    nulls: tuple[str, ...]

    @cached_property
    def clean(self) -> pa.Array:
        return _cleaned(self.column, self.nulls)

    @cached_property
    def few(self) -> pa.Array:
        return self.column.drop_null().slice(0, 64)

    @cached_property
    def blank(self) -> bool:
        return bool(self.clean.null_count == len(self.clean))

    def fit(self, kind: pa.DataType) -> bool:
        if pa.types.is_boolean(kind):
            words = pc.is_in(pc.utf8_lower(self.clean), value_set=pa.array(["true", "false", None]))
            return bool(pc.all(words).as_py())
        try:
            _parsed(self.few, kind, self.nulls)  # Arrow goes on after a failure, slowly: first see whether a few fit
            _parsed(self.column, kind, self.nulls)
        except pa.ArrowInvalid:
            return False
        return not (pa.types.is_integer(kind) and self._hexadecimal())

    def _hexadecimal(self) -> bool:
        """Arrow reads 0x1F as an integer but not as a float, so a later 0.5 could not widen it; here it is text."""
        characters = self.column.buffers()[2].to_pybytes()
        return b"x" in characters or b"X" in characters


def _cleaned(column: pa.Array, nulls: tuple[str, ...]) -> pa.Array:
    trimmed = pc.utf8_trim_whitespace(column)
    return pc.if_else(pc.is_in(trimmed, value_set=pa.array([*nulls, ""])), pa.scalar(None, pa.string()), trimmed)


def _parsed(column: pa.Array, kind: pa.DataType, nulls: tuple[str, ...]) -> pa.Array:
    """Text cells as values of a type.

    Raises:
        pa.ArrowInvalid: One of them is none.
    """
    if pa.types.is_string(kind):
        return column
    if pa.types.is_boolean(kind):
        return pc.equal(pc.utf8_lower(_cleaned(column, nulls)), "true")
    try:
        return pc.cast(column, kind)
    except pa.ArrowInvalid:
        return pc.cast(_cleaned(column, nulls), kind)


def _scan(
    path: Path, nulls: tuple[str, ...], before: int, progress: Callable[[int, int | None, str], None] | None
) -> tuple[dict[str, _Guess], int]:
    """What each column can be over the whole file, and its rows."""
    guesses: dict[str, _Guess] = {}
    rows = 0
    quotes = [0]
    for batch in _text_batches(path, nulls, None, quotes):
        if not guesses:
            guesses = {name: _Guess() for name in batch.schema.names}
        for name, guess in guesses.items():
            guess.see(batch.column(name), nulls)
        rows += batch.num_rows
        if progress is not None:
            progress(before + rows, None, "rows scanned")
    if quotes[0] % 2 and _ends_in_quotes(path):
        raise InputError(f"{path}: a quote is opened and never closed", fix='close it; a quote in a cell is written ""')
    return guesses, rows


def _text_batches(
    path: Path, nulls: tuple[str, ...], columns: list[str] | None, quotes: list[int] | None = None
) -> Iterator[pa.RecordBatch]:
    """The cells of a CSV as text, block by block; the first batch may be empty. `quotes` counts quote characters."""
    names = _header(path)
    options = pacsv.ConvertOptions(
        column_types={name: pa.string() for name in names},
        include_columns=columns,
        null_values=list(nulls),
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    try:
        with _open(path) as file, _Blocks(file, quotes) as blocks:
            reader = _reader(blocks, options)
            try:
                names = reader.schema.names
                yield pa.RecordBatch.from_pylist([], pa.schema([(name, pa.string()) for name in names]))
                yield from reader
            finally:
                del reader  # it reads ahead on a thread of its own, which ends when nothing refers to it
    except _ERRORS as error:
        if "Empty CSV" in str(error):  # a header without a line end
            yield pa.RecordBatch.from_pylist([], pa.schema([(name, pa.string()) for name in columns or names]))
            return
        raise _explained(path, error) from error


def _reader(file: _Blocks, options: pacsv.ConvertOptions) -> pacsv.CSVStreamingReader:
    return pacsv.open_csv(
        file,
        # Threads walk the shards; and without threads here, errors name the row.
        read_options=pacsv.ReadOptions(block_size=_BLOCK_BYTES, use_threads=False),
        parse_options=pacsv.ParseOptions(newlines_in_values=True),
        convert_options=options,
    )


def _header(path: Path) -> list[str]:
    try:
        with _open(path) as file, io.TextIOWrapper(file, "utf-8-sig", "surrogateescape", newline="") as text:
            names = next(cells for cells in csv.reader(text) if cells)  # after blank lines, if any
    except StopIteration:
        raise InputError(f"{path} is empty", fix="give a file with a header and rows") from None
    except (csv.Error, *_ERRORS) as error:
        raise _explained(path, error) from error
    if any("\0" in name or not name.isprintable() for name in names):
        raise _not_utf8(path, 1)
    normal_schema(pa.schema([(name, pa.string()) for name in names]), str(path))
    return names


class _Blocks(io.RawIOBase):
    """A binary file for Arrow's reading thread: counts quote characters, and can be stopped.

    A thread that still reads while Python shuts down aborts the process, so leaving the context waits for it.
    """

    def __init__(self, file: BinaryIO, quotes: list[int] | None) -> None:
        self._file = file
        self._quotes = quotes
        self._stopped = False
        self._lock = threading.Lock()

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        with self._lock:
            if self._stopped:
                return b""
            data = self._file.read(size)
        if self._quotes is not None:
            self._quotes[0] += data.count(b'"')
        return data

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._stopped = True


def _open(path: Path) -> BinaryIO:
    name = path.name.lower()
    if name.endswith(".gz"):
        return cast("BinaryIO", gzip.open(path, "rb"))
    if not name.endswith(".zip"):
        return path.open("rb")
    with zipfile.ZipFile(path) as archive:
        inside = [m for m in archive.namelist() if not m.endswith("/") and not m.startswith("__MACOSX/")]
        if len(inside) != 1 or not inside[0].lower().endswith(".csv"):
            held = ", ".join(inside[:3]) or "nothing"
            raise InputError(f"{path} holds {held}, not one CSV", fix="unpack it and name the CSV files")
        return cast("BinaryIO", archive.open(inside[0]))


def _explained(path: Path, error: Exception) -> InputError:
    """The user's error for what went wrong in a file: which row, and what to do."""
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    if isinstance(error, FileNotFoundError):
        return InputError(f"{path} does not exist", fix="check the path")
    row = re.search(r"Row #(\d+)", text)
    line = _line(path, int(row.group(1))) if row else None
    ragged = re.search(r"Expected (\d+) columns, got (\d+)(?:: (.*))?", text)
    if ragged:
        wanted, got, cells = ragged.groups()
        quoted = f": {cells[:80]}" if cells else ""
        return InputError(
            f"{path}:{line}: {got} cells where the header has {wanted}{quoted}",
            fix="repair the line, or quote the cell that holds a comma",
        )
    if "UTF8" in text or "UTF-8" in text:
        return _not_utf8(path, line)
    if "straddl" in text:
        return InputError(
            f"{path}: a row longer than {_BLOCK_BYTES >> 20} MiB, or a quote that is never closed",
            fix='close the quote; a quote in a cell is written ""',
        )
    if isinstance(error, pa.ArrowException | csv.Error):
        return InputError(f"{path}: not a readable CSV ({text[:200]})", fix="repair the file")
    return InputError(f"{path} is damaged ({text[:200]})", fix="write or copy the file again")


def _not_utf8(path: Path, line: int | None) -> InputError:
    where = f"{path}:{line}" if line else f"{path}"
    return InputError(f"{where}: not UTF-8 text", fix="convert it, e.g. iconv -f latin1 -t utf-8 IN > OUT")


def _line(path: Path, row: int) -> int:
    """The file's line in which a row (the header is row 1; blank lines do not count) begins."""
    with _open(path) as file, io.TextIOWrapper(file, "latin-1", newline="") as text:
        reader = csv.reader(text)
        before = 0
        for cells in reader:
            row -= bool(cells)
            if not row:
                return before + 1
            before = reader.line_num
    return before


def _ends_in_quotes(path: Path) -> bool:
    with _open(path) as file, io.TextIOWrapper(file, "latin-1", newline="") as text:
        try:
            for _ in csv.reader(text, strict=True):
                pass
        except csv.Error as error:
            return "unexpected end of data" in str(error)
    return False
