"""CSV files as shards: one whole scan settles the columns, their types and the row counts; reading then streams.

Dialect: UTF-8, UTF-16 by its byte order mark, or the encoding declared; the delimiter declared or, by the header, found
out (`csv_dialect`); `"` quotes, quoted line breaks allowed, blank lines skipped, the same header in every file. A
cell is missing if it is one of `null_values` without quotes. In quotes those words are text in a text column (`"NA"`
may be Namibia, `""` is the empty string) and missing in a column of any other type.

A plain file beyond 64 MB is several shards, whole rows each, see `csv_pieces`.

Types are settled over all rows of all files, so no row can contradict them later: a column takes the first type of one
family that fits all its values, else text. The families: int64 → float64; true/false; date → timestamp in ms → in µs;
the same with a zone, kept as UTC. A column without values is text, and so is one of whole numbers of which some exceed
64 bits. Blanks around anything but text are ignored.
"""

from __future__ import annotations

import csv
import io
import json
import math
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.csv as pacsv

from ...errors import InputError, suggest
from ...progress import Progress
from ..sources import Shard, Source, changed_in_use, unify
from ..types import named_type, normal_schema, settle
from .csv_dialect import CsvFile
from .csv_errors import LongRowError, csv_error, encoding_error, ends_in_quotes, line_of
from .csv_pieces import CsvPiece, CsvPieceReader
from .csv_types import ColumnTypeGuess, parse_cells

NULL_VALUES: Final = ("", "NA", "nan", "NaN")  # which pandas and pyarrow too read as missing
_BLOCK_BYTES: Final = 4 << 20
_SHARD_BYTES: Final = 64 << 20
_LONG_BLOCK_BYTES: Final = 512 << 20  # of files with rows longer than a block: a row must fit in one
_KEEP: Final = " (unless column_types declares it a string or decimal128)"
_NULL: Final = " (where it stands for a missing value, name it in null_values)"
_ERRORS: Final = (pa.ArrowException, OSError, EOFError, zlib.error, zipfile.BadZipFile, RuntimeError)
_HEADER_CHARACTERS: Final = 16 << 20


@dataclass(frozen=True)
class CsvShard:
    """One CSV file, plain, gzipped, or alone in a zip; or some rows of a large plain one.

    Attributes:
        path: The file.
        rows: Its rows.
        null_values: What a missing cell holds.
        encoding: Of the file, as Python names it.
        delimiter: Between cells.
        block: Bytes that Arrow takes at once.
        start: The byte at which the rows begin; 0 means with the header.
        end: The byte before which they end; None for the end of the file.
        before: The file's rows before them, the header being one.
    """

    path: str
    rows: int
    null_values: tuple[str, ...] = NULL_VALUES
    encoding: str = "utf-8"
    delimiter: str = ","
    block: int = _BLOCK_BYTES
    start: int = 0
    end: int | None = None
    before: int = 0

    def read(self, schema: pa.Schema, batch_rows: int, dictionaries: bool) -> Iterator[pa.RecordBatch]:
        """See `Shard.read`; batches are as the file's blocks give them."""
        file = CsvFile(Path(self.path), self.encoding, self.delimiter)
        piece = CsvPiece(self.start, self.end, self.before)
        count = 0
        for batch in _text_batches(file, self.null_values, schema.names, self.block, piece):
            count += batch.num_rows
            columns = []
            for item in schema:
                try:
                    columns.append(parse_cells(batch.column(item.name), item.type, self.null_values))
                except (pa.ArrowInvalid, KeyError) as error:
                    raise InputError(
                        f"{self.path}: column {item.name!r} is no longer {item.type}: the file changed while in use",
                        fix="start again, and do not write to it meanwhile",
                    ) from error
            yield pa.RecordBatch.from_arrays(columns, schema=schema)
        if count != self.rows:
            raise changed_in_use(self.path)


def open_csv(
    paths: Sequence[Path],
    *,
    null_values: Sequence[str] = NULL_VALUES,
    encoding: str | None = None,
    delimiter: str | None = None,
    column_types: Mapping[str, str] | None = None,
    note: Callable[[str], None] | None = None,
    progress: Progress | None = None,
) -> Source:
    """A source over CSV files; each is one shard, a plain one beyond 64 MB is several. Scans all of them once.

    Args:
        paths: With equal headers; in this order.
        null_values: What a missing cell holds.
        encoding: As Python names it; None for UTF-8, or UTF-16 by its byte order mark.
        delimiter: The one character between cells; None to go by the header, see `CsvFile.of`.
        column_types: Types where the values do not decide, by column, as Arrow names them: "string" keeps the zeros of
            00501, "decimal128(12, 2)" is exact.
        note: Called with a line about a column that is text for the sake of a few values among numbers or times,
            about numbers that lose digits (the zeros that they begin with, or those that a float64 does not keep), and
            about a first column without a name, such as pandas writes of an index: it is left out.
        progress: Called with the rows scanned; may raise to stop.

    Raises:
        InputError: A file is missing, empty, damaged, not of its encoding, ragged (names the line), or its header
            differs; a value is not of its declared type (names column and row); or an option makes no sense.
    """
    nulls = tuple(null_values)
    declared = {name: named_type(kind, name) for name, kind in (column_types or {}).items()}
    shards: list[Shard] = []
    schema: pa.Schema | None = None
    scanned = 0
    guesses_by_file: list[tuple[CsvFile, dict[str, ColumnTypeGuess]]] = []
    for path in paths:
        try:
            file = CsvFile.of(path, encoding, delimiter)
        except _ERRORS as error:
            raise csv_error(CsvFile(path), error, 0) from error
        # Small blocks keep memory low and spread work; a row must fit in one, so a file with a longer row is scanned
        # again in large ones.
        block = _BLOCK_BYTES
        try:
            guesses, file_shards = _scan(file, nulls, declared, block, scanned, progress)
        except LongRowError:
            block = _LONG_BLOCK_BYTES
            guesses, file_shards = _scan(file, nulls, declared, block, scanned, progress)
        guesses_by_file.append((file, guesses))
        scanned += sum(shard.rows for shard in file_shards)
        file_schema = pa.schema([pa.field(name, guess.type) for name, guess in guesses.items()])
        if schema is not None and set(file_schema.names) == set(schema.names) and file_schema.names != schema.names:
            raise InputError(f"{path}: the columns are in another order than in {paths[0]}", fix="use one header")
        schema = file_schema if schema is None else unify(schema, str(paths[0]), file_schema, str(path), or_text=True)
        shards += file_shards
    if schema is None:
        raise InputError("there are no CSV files to open", fix="name at least one")
    if note is not None:
        if unnamed := next((file for file, _ in guesses_by_file if _unnamed(_header(file))), None):
            note(f"{unnamed.path}:1: the first column has no name and is left out, as an index that pandas wrote")
        if number := next(filter(_is_number, schema.names), None):
            note(f"{paths[0]}:1: a column is named {number!r}: is the first line data? It must name the columns")
        _note_surprises(guesses_by_file, schema, note)
    return Source(tuple(shards), settle(schema))


def _is_number(name: str) -> bool:
    try:
        return math.isfinite(float(name))
    except ValueError:
        return False


def _scan(
    file: CsvFile,
    nulls: tuple[str, ...],
    declared: Mapping[str, pa.DataType],
    block: int,
    before: int,
    progress: Progress | None,
) -> tuple[dict[str, ColumnTypeGuess], list[CsvShard]]:
    """What each column can be over the whole file, and its shards."""
    guesses: dict[str, ColumnTypeGuess] = {}
    shards: list[CsvShard] = []
    rows = quotes = 0
    large = file.plain and file.path.stat().st_size > _SHARD_BYTES
    piece: CsvPiece | None = CsvPiece(size=_SHARD_BYTES if large else None)
    while piece is not None:
        first = rows
        for batch in _text_batches(file, nulls, None, block, piece):
            if not guesses:
                guesses = _guesses(file, batch.schema.names, declared)
            for name, guess in guesses.items():
                try:
                    guess.see(batch.column(name), nulls, rows)
                except pa.ArrowInvalid:
                    raise _unfit(file, batch.column(name), name, declared[name], nulls, rows) from None
            rows += batch.num_rows
            if progress is not None:
                progress(before + rows, None, "rows scanned")
        quotes += piece.quotes
        if rows > first or not shards:
            extent = (piece.start, piece.end, piece.before)
            shards.append(CsvShard(str(file.path), rows - first, nulls, file.encoding, file.delimiter, block, *extent))
        piece = None if piece.end is None else CsvPiece(piece.end, before=rows + 1, size=_SHARD_BYTES)
    # Arrow takes the end of a file for the end of a quote, and would give the rest of the file as one cell. Counting
    # is cheap; only an odd count is worth a second look, since a quote amid an unquoted cell is text.
    if quotes % 2 and ends_in_quotes(file):
        raise InputError(
            f"{file.path}: a quote is opened and never closed", fix='close it; a quote in a cell is written ""'
        )
    return guesses, shards


def _guesses(file: CsvFile, names: list[str], declared: Mapping[str, pa.DataType]) -> dict[str, ColumnTypeGuess]:
    missing = [name for name in declared if name not in names]
    if missing:
        raise InputError(
            f"column_types: {file.path} has no column {missing[0]!r}",
            fix=suggest(missing[0], names, "its columns are:"),
        )
    return {name: ColumnTypeGuess(declared=declared.get(name)) for name in names}


def _note_surprises(
    guesses_by_file: Sequence[tuple[CsvFile, Mapping[str, ColumnTypeGuess]]],
    schema: pa.Schema,
    note: Callable[[str], None],
) -> None:
    """Note the columns that are text for the sake of a few values, and those that lose digits; the first of each."""
    notes: dict[str, dict[str, tuple[CsvFile, int, str]]] = {"text": {}, "zeros": {}, "digits": {}}
    for file, guesses in guesses_by_file:
        for name, guess in guesses.items():
            kind = schema.field(name).type
            shown = "float64" if kind == pa.float64() else str(kind)
            if pa.types.is_string(kind) and guess.odd is not None:
                row, cell, what = guess.odd
                notes["text"].setdefault(name, (file, row, f"text, because {cell!r:.80} is not {what}{_NULL}"))
            if kind in (pa.int64(), pa.float64()) and guess.zeros is not None:
                row, cell = guess.zeros
                notes["zeros"].setdefault(name, (file, row, f"{shown}, so {cell!r:.80} loses its zeros{_KEEP}"))
            if kind == pa.float64() and guess.long is not None:
                row, cell = guess.long
                notes["digits"].setdefault(name, (file, row, f"{shown}, which rounds {cell!r:.80}{_KEEP}"))
    for columns in notes.values():
        for name, (file, row, what) in list(columns.items())[:1]:
            others = [repr(other) for other in columns if other != name]
            named = ", ".join(others[:3]) + (f" and {len(others) - 3} more" if len(others) > 3 else "")
            also = f"; so {'is' if len(others) == 1 else 'are'} {named}" if others else ""
            note(f"{file.path}:{line_of(file, row + 1)}: column {name!r} is {what}{also}")


def _unfit(
    file: CsvFile, column: pa.Array, name: str, kind: pa.DataType, nulls: tuple[str, ...], before: int
) -> InputError:
    """The error for the first cell that is not of the declared type."""
    for row in range(len(column)):
        try:
            parse_cells(column.slice(row, 1), kind, nulls)
        except pa.ArrowInvalid:
            break
    cell = column[row].as_py()
    return InputError(
        f"{file.path}:{line_of(file, before + row + 2)}: column {name!r} holds {cell!r:.80}, not {kind}",
        fix=f"repair the cell, read it as missing ({named_nulls([*nulls, cell])}), or declare another type",
    )


def named_nulls(nulls: Sequence[str]) -> str:
    """How the reading of a CSV is told which cells are missing ones."""
    return f"null_values=[{', '.join(json.dumps(cell[:80], ensure_ascii=False) for cell in nulls)}]"


def _text_batches(
    file: CsvFile,
    nulls: tuple[str, ...],
    columns: list[str] | None,
    block: int,
    piece: CsvPiece,
) -> Iterator[pa.RecordBatch]:
    """The cells of a piece of a CSV as text, block by block; the first batch may be empty."""
    names = _header(file)
    options = pacsv.ConvertOptions(
        column_types={name: pa.string() for name in names},
        include_columns=names[_unnamed(names) :] if columns is None else columns,
        null_values=list(nulls),
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    try:
        with file.open() as content, CsvPieceReader(content, piece, file.delimiter) as blocks:
            reader = _reader(blocks, file.delimiter, options, block, names if piece.start else None)
            try:
                names = reader.schema.names
                yield _no_rows(names)
                yield from reader
            finally:
                del reader  # it reads ahead on a thread of its own, which ends when nothing refers to it
    except _ERRORS as error:
        if "Empty CSV" in str(error):  # a header without a line end
            yield _no_rows(columns or names[_unnamed(names) :])
            return
        raise csv_error(file, error, block, piece.before) from error


def _no_rows(names: list[str]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(0, pa.string())] * len(names), names)


def _reader(
    blocks: CsvPieceReader, delimiter: str, options: pacsv.ConvertOptions, block: int, names: list[str] | None
) -> pacsv.CSVStreamingReader:
    return pacsv.open_csv(
        blocks,
        # Threads walk the shards; and without threads here, errors name the row.
        read_options=pacsv.ReadOptions(block_size=block, use_threads=False, column_names=names),
        parse_options=pacsv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
        convert_options=options,
    )


def _lines(text: io.TextIOWrapper) -> Iterator[str]:
    """The lines of a header; a file without line ends is not read whole."""
    left = _HEADER_CHARACTERS
    while line := text.readline(left):
        left -= len(line)
        if not left:
            raise csv.Error(f"a header of more than {_HEADER_CHARACTERS:,} characters")
        yield line


def _header(file: CsvFile) -> list[str]:
    try:
        with file.open() as content, io.TextIOWrapper(content, "utf-8-sig", "surrogateescape", newline="") as text:
            reader = csv.reader(_lines(text), delimiter=file.delimiter)
            names = next(cells for cells in reader if cells)  # after blank lines, if any
    except StopIteration:
        raise InputError(f"{file.path} is empty", fix="give a file with a header and rows") from None
    except (csv.Error, *_ERRORS) as error:
        raise csv_error(file, error, 0) from error
    if any(
        (ord(sign) < 32 and sign not in "\t\n\r") or "\ud800" <= sign <= "\udfff" for name in names for sign in name
    ):
        raise encoding_error(file, 1)
    normal_schema(pa.schema([(name, pa.string()) for name in names[_unnamed(names) :]]), str(file.path))
    return names


def _unnamed(names: list[str]) -> int:
    """How many columns without a name come before the first that has one: the row names that pandas and R write."""
    return next((index for index, name in enumerate(names) if name), 0)
