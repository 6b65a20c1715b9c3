"""CSV files as shards: one whole scan settles the columns, their types and the row counts; reading then streams.

Dialect: UTF-8, UTF-16 by its byte order mark, or the encoding declared; the delimiter declared or, by the header, found
out (`data.csv_dialect`); `"` quotes, quoted line breaks allowed, blank lines skipped, the same header in every file. A
cell is missing if it is one of `null_values` without quotes. In quotes those words are text in a text column (`"NA"`
may be Namibia, `""` is the empty string) and missing in a column of any other type.

Types are settled over all rows of all files, so no row can contradict them later: a column takes the first type of one
family that fits all its values, else text. The families: int64 → float64; true/false; date → timestamp in ms → in µs;
the same with a zone, kept as UTC. A column without values is text. Blanks around anything but text are ignored.
"""

from __future__ import annotations

import csv
import io
import re
import threading
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import BinaryIO, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from ..errors import InputError
from .csv_dialect import CsvFile
from .sources import Shard, Source, unify
from .types import named_type, normal_schema, settle

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
    encoding: str = "utf-8"
    delimiter: str = ","

    def read(self, schema: pa.Schema, batch_rows: int, dictionaries: bool) -> Iterator[pa.RecordBatch]:
        """See `Shard.read`; batches are as the file's blocks give them."""
        file = CsvFile(Path(self.path), self.encoding, self.delimiter)
        for batch in _text_batches(file, self.null_values, schema.names):
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
    encoding: str | None = None,
    delimiter: str | None = None,
    column_types: Mapping[str, str] | None = None,
    progress: Callable[[int, int | None, str], None] | None = None,
) -> Source:
    """A source over CSV files, each a shard; scans all of them once.

    Args:
        paths: With equal headers; in this order.
        null_values: What a missing cell holds.
        encoding: As Python names it; None for UTF-8, or UTF-16 by its byte order mark.
        delimiter: The one character between cells; None to go by the header, see `CsvFile.of`.
        column_types: Types that the values do not tell, by column, as Arrow names them: "string" keeps the zeros of
            00501, "decimal128(12, 2)" is exact.
        progress: Told of rows scanned; may raise to stop.

    Raises:
        InputError: A file is missing, empty, damaged, not of its encoding, ragged (names the line), or its header
            differs; a value is none of its declared type (names column and row); or an option makes no sense.
    """
    nulls = tuple(null_values)
    declared = {name: named_type(kind, name) for name, kind in (column_types or {}).items()}
    shards: list[Shard] = []
    schema: pa.Schema | None = None
    scanned = 0
    for path in paths:
        try:
            file = CsvFile.of(path, encoding, delimiter)
        except _ERRORS as error:
            raise _explained(CsvFile(path), error) from error
        guesses, rows = _scan(file, nulls, declared, scanned, progress)
        scanned += rows
        found = pa.schema([pa.field(name, guess.type) for name, guess in guesses.items()])
        if schema is not None and set(found.names) == set(schema.names) and found.names != schema.names:
            raise InputError(f"{path}: the columns are in another order than in {paths[0]}", fix="use one header")
        schema = found if schema is None else unify(schema, str(paths[0]), found, str(path), or_text=True)
        shards.append(CsvShard(str(path), rows, nulls, file.encoding, file.delimiter))
    if schema is None:
        raise InputError("there are no CSV files to open", fix="name at least one")
    return Source(tuple(shards), settle(schema))


@dataclass
class _Guess:
    """What type a column may have, after the blocks seen so far: the join of the blocks' types, in any order."""

    family: tuple[pa.DataType, ...] | None = None
    level: int = 0
    text: bool = False
    declared: pa.DataType | None = None

    @property
    def type(self) -> pa.DataType:
        if self.declared is not None:
            return self.declared
        if self.text:
            return pa.string()
        return pa.null() if self.family is None else self.family[self.level]

    def see(self, column: pa.Array, nulls: tuple[str, ...]) -> None:
        if self.declared is not None:
            _parsed(column, self.declared, nulls)
            return
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
    file: CsvFile,
    nulls: tuple[str, ...],
    declared: Mapping[str, pa.DataType],
    before: int,
    progress: Callable[[int, int | None, str], None] | None,
) -> tuple[dict[str, _Guess], int]:
    """What each column can be over the whole file, and its rows."""
    guesses: dict[str, _Guess] = {}
    rows = 0
    quotes = [0]
    for batch in _text_batches(file, nulls, None, quotes):
        if not guesses:
            guesses = {name: _Guess(declared=declared.get(name)) for name in batch.schema.names}
            missing = [name for name in declared if name not in guesses]
            if missing:
                raise InputError(
                    f"column_types: {file.path} has no column {missing[0]!r}",
                    fix=f"its columns are: {', '.join(guesses)}",
                )
        for name, guess in guesses.items():
            try:
                guess.see(batch.column(name), nulls)
            except pa.ArrowInvalid:
                raise _unfit(file, batch.column(name), name, declared[name], nulls, rows) from None
        rows += batch.num_rows
        if progress is not None:
            progress(before + rows, None, "rows scanned")
    if quotes[0] % 2 and _ends_in_quotes(file):
        raise InputError(
            f"{file.path}: a quote is opened and never closed", fix='close it; a quote in a cell is written ""'
        )
    return guesses, rows


def _unfit(
    file: CsvFile, column: pa.Array, name: str, kind: pa.DataType, nulls: tuple[str, ...], before: int
) -> InputError:
    """The error for the first cell that is none of the declared type."""
    for place in range(len(column)):
        try:
            _parsed(column.slice(place, 1), kind, nulls)
        except pa.ArrowInvalid:
            break
    cell = column[place].as_py()
    return InputError(
        f"{file.path}:{_line(file, before + place + 2)}: column {name!r} holds {cell!r:.80}, which is no {kind}",
        fix="repair the cell, name it in null_values, or declare another type",
    )


def _text_batches(
    file: CsvFile, nulls: tuple[str, ...], columns: list[str] | None, quotes: list[int] | None = None
) -> Iterator[pa.RecordBatch]:
    """The cells of a CSV as text, block by block; the first batch may be empty. `quotes` counts quote characters."""
    names = _header(file)
    options = pacsv.ConvertOptions(
        column_types={name: pa.string() for name in names},
        include_columns=columns,
        null_values=list(nulls),
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    try:
        with file.open() as content, _Blocks(content, quotes) as blocks:
            reader = _reader(blocks, file.delimiter, options)
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
        raise _explained(file, error) from error


def _reader(blocks: _Blocks, delimiter: str, options: pacsv.ConvertOptions) -> pacsv.CSVStreamingReader:
    return pacsv.open_csv(
        blocks,
        # Threads walk the shards; and without threads here, errors name the row.
        read_options=pacsv.ReadOptions(block_size=_BLOCK_BYTES, use_threads=False),
        parse_options=pacsv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
        convert_options=options,
    )


def _header(file: CsvFile) -> list[str]:
    try:
        with file.open() as content, io.TextIOWrapper(content, "utf-8-sig", "surrogateescape", newline="") as text:
            reader = csv.reader(text, delimiter=file.delimiter)
            names = next(cells for cells in reader if cells)  # after blank lines, if any
    except StopIteration:
        raise InputError(f"{file.path} is empty", fix="give a file with a header and rows") from None
    except (csv.Error, *_ERRORS) as error:
        raise _explained(file, error) from error
    if any("\0" in name or not name.isprintable() for name in names):
        raise _not_text(file, 1)
    normal_schema(pa.schema([(name, pa.string()) for name in names]), str(file.path))
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


def _explained(file: CsvFile, error: Exception) -> InputError:
    """The user's error for what went wrong in a file: which row, and what to do."""
    path = file.path
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    if isinstance(error, FileNotFoundError):
        return InputError(f"{path} does not exist", fix="check the path")
    row = re.search(r"Row #(\d+)", text)
    line = _line(file, int(row.group(1))) if row else None
    ragged = re.search(r"Expected (\d+) columns, got (\d+)(?:: (.*))?", text)
    if ragged:
        wanted, got, cells = ragged.groups()
        quoted = f": {cells[:80]}" if cells else ""
        return InputError(
            f"{path}:{line}: {got} cells where the header has {wanted}{quoted}",
            fix=f"repair the line, quote the cell that holds a {file.delimiter!r}, or declare another delimiter",
        )
    if "UTF8" in text or "UTF-8" in text:
        return _not_text(file, line)
    if "straddl" in text:
        return InputError(
            f"{path}: a row longer than {_BLOCK_BYTES >> 20} MiB, or a quote that is never closed",
            fix='close the quote; a quote in a cell is written ""',
        )
    if isinstance(error, pa.ArrowException | csv.Error):
        return InputError(f"{path}: not a readable CSV ({text[:200]})", fix="repair the file")
    return InputError(f"{path} is damaged ({text[:200]})", fix="write or copy the file again")


def _not_text(file: CsvFile, line: int | None) -> InputError:
    where = f"{file.path}:{line}" if line else f"{file.path}"
    name = "UTF-8" if file.encoding == "utf-8" else file.encoding
    return InputError(
        f"{where}: not {name} text",
        fix='declare its encoding, e.g. encoding="latin-1", or convert it, e.g. iconv -f latin1 -t utf-8 IN > OUT',
    )


def _line(file: CsvFile, row: int) -> int:
    """The file's line in which a row (the header is row 1; blank lines do not count) begins."""
    with file.open() as content, io.TextIOWrapper(content, "latin-1", newline="") as text:
        reader = csv.reader(text, delimiter=file.delimiter)
        before = 0
        for cells in reader:
            row -= bool(cells)
            if not row:
                return before + 1
            before = reader.line_num
    return before


def _ends_in_quotes(file: CsvFile) -> bool:
    with file.open() as content, io.TextIOWrapper(content, "latin-1", newline="") as text:
        try:
            for _ in csv.reader(text, delimiter=file.delimiter, strict=True):
                pass
        except csv.Error as error:
            return "unexpected end of data" in str(error)
    return False
