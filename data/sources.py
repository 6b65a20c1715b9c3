"""A source: numbered shards of a table, and the columns wanted from them."""

from __future__ import annotations

import os
import sys
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from ..errors import InputError, suggest
from .types import UnfitError, common_type, normal_schema, restore, settle

BATCH_ROWS = 65_536


class Shard(Protocol):
    """A piece of a source that one worker reads: a row group, or a whole file of another kind. Small, and pickles."""

    @property
    def path(self) -> str:
        """The file it lies in."""
        ...

    @property
    def rows(self) -> int:
        """How many rows it has."""
        ...

    def read(self, schema: pa.Schema, batch_rows: int, dictionaries: bool) -> Iterator[pa.RecordBatch]:
        """Its rows in order, `schema`'s columns only, in batches of at most `batch_rows`."""
        ...


_REFERENCE: Final = 8  # bytes per row below which a column of strings is taken to repeat few values
_FOOTERS: Final = 64  # footers that a process keeps
_FOOTER_BYTES: Final = 16 << 20  # their bytes, as stored in the files; the newest is kept whatever its size


@dataclass(frozen=True)
class Source:
    """Ordered shards and the columns wanted from each. It names files and holds no rows, so it pickles cheaply.

    Attributes:
        shards: The fixed shard plan; a shard's number is its place here, on every executor.
        schema: Names and normalised types of the columns wanted: plain `string`, never `large_string`, dictionary or
            `null`; times in milliseconds or finer.
        dictionaries: Whether string columns may come as dictionary arrays, which Parquet decodes faster. What an
            accumulator or a hash makes of a batch must not depend on it.
    """

    shards: tuple[Shard, ...]
    schema: pa.Schema
    dictionaries: bool = False

    @property
    def rows(self) -> int:
        """Rows in all shards together."""
        return sum(shard.rows for shard in self.shards)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns wanted, in order."""
        return tuple(self.schema.names)

    def read(self, shard: int | Shard, batch_rows: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        """The rows of one shard in order; every batch but the last has `batch_rows` rows, none is empty.

        Args:
            shard: A shard or its number.
            batch_rows: Rows per batch.

        Raises:
            InputError: The file is gone, damaged, or no longer what it was when the source was opened.
        """
        chosen = self.shards[shard] if isinstance(shard, int) else shard
        return rebatch(chosen.read(self.schema, batch_rows, self.dictionaries), batch_rows)

    def select(self, columns: Iterable[str]) -> Source:
        """The same rows with these columns, in this order.

        Raises:
            InputError: One of them is not there, or named twice.
        """
        wanted = list(columns)
        if len(set(wanted)) < len(wanted):
            twice = next(name for name, count in Counter(wanted).items() if count > 1)
            raise InputError(f"column {twice!r} is named twice", fix="name each once")
        missing = [name for name in wanted if name not in self.schema.names]
        if missing:
            raise InputError(
                f"there is no column {missing[0]!r}", fix=suggest(missing[0], self.schema.names, "the columns are:")
            )
        return replace(self, schema=pa.schema([self.schema.field(name) for name in wanted]))

    def with_dictionaries(self) -> Source:
        """The same rows; string columns may come dictionary-encoded, a dictionary per batch."""
        return replace(self, dictionaries=True)


@dataclass(frozen=True)
class ParquetShard:
    """One row group of a Parquet file."""

    path: str
    row_group: int
    rows: int

    def read(self, schema: pa.Schema, batch_rows: int, dictionaries: bool) -> Iterator[pa.RecordBatch]:
        """See `Shard.read`."""
        strings = {field.name for field in schema if pa.types.is_string(field.type)} if dictionaries else set()
        try:
            stamp, metadata = _footers.of(self.path)
            if self.row_group >= metadata.num_row_groups or metadata.row_group(self.row_group).num_rows != self.rows:
                raise changed_in_use(self.path)
            repeated = _repeated(metadata.row_group(self.row_group), strings)
            with pq.ParquetFile(self.path, metadata=metadata, read_dictionary=repeated) as file:
                if _stamp(self.path) != stamp:  # replaced after its footer was looked up
                    raise changed_in_use(self.path)
                batches = file.iter_batches(
                    batch_size=batch_rows, row_groups=[self.row_group], columns=schema.names, use_threads=False
                )
                for batch in batches:
                    if batch.num_columns != len(schema.names):
                        raise changed_in_use(self.path)
                    yield restore(batch, schema, dictionaries=dictionaries)
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise damaged_file(self.path, error) from error


class _Footers:
    """The footers of the files read last: every row group of a pass needs its file's footer, and parsing is slow."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[tuple[int, ...], pq.FileMetaData]] = {}  # the oldest first
        self._guard = threading.Lock()

    def of(self, path: str) -> tuple[tuple[int, ...], pq.FileMetaData]:
        """A file's stamp and the footer that goes with it; read again where the file was replaced since."""
        stamp = _stamp(path)
        with self._guard:
            stamped = self._kept.get(path)
        if stamped is None or stamped[0] != stamp:
            stamped = stamp, pq.read_metadata(path)
        with self._guard:
            self._kept.pop(path, None)
            self._kept[path] = stamped
            size = sum(footer.serialized_size for _, footer in self._kept.values())
            for oldest in list(self._kept)[:-1]:
                if size <= _FOOTER_BYTES and len(self._kept) <= _FOOTERS:
                    break
                size -= self._kept.pop(oldest)[1].serialized_size
        return stamped


_footers = _Footers()


def _stamp(path: str) -> tuple[int, ...]:
    """Facts about a file, of which at least one changes when it is written again."""
    facts = Path(path).stat()
    return facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns


def _repeated(group: Any, names: set[str]) -> list[str]:
    """The columns that are small, or stored as references to few values; the others are faster as plain strings."""
    chunks = map(group.column, range(group.num_columns)) if names else ()
    return [
        chunk.path_in_schema
        for chunk in chunks
        if chunk.path_in_schema in names and chunk.total_uncompressed_size < _REFERENCE * max(chunk.num_values, 4096)
    ]


def open_parquet(paths: Sequence[Path | str]) -> Source:
    """A source over Parquet files: each row group is a shard; a source of no rows is allowed.

    Raises:
        InputError: A file is missing or damaged, or the files' columns do not fit together.
    """
    shards: list[Shard] = []
    schema: pa.Schema | None = None
    before: pa.Schema | None = None
    for path in map(str, paths):
        sys.audit("open", path, "rb", os.O_RDONLY)  # as Python itself would: pyarrow opens it past Python
        try:
            with pq.ParquetFile(path) as file:
                written = file.schema_arrow
                # Nearly all files are like the one before, and schemas take longer to compare than footers to read.
                file_schema = None if written == before else normal_schema(written, path)
                groups = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:  # the last: of a column's name
            raise damaged_file(path, error) from error
        if file_schema is not None:
            schema = file_schema if schema is None else unify(schema, str(paths[0]), file_schema, path)
            before = written
        shards += [ParquetShard(path, group, rows) for group, rows in enumerate(groups)]
    if schema is None:
        raise InputError("there are no Parquet files to open", fix="name at least one")
    return Source(tuple(shards), settle(schema))


def changed_in_use(path: str) -> InputError:
    """The one error for a file that is no longer what it was when its source was opened."""
    return InputError(f"{path} changed while in use", fix="start again, and do not write to it meanwhile")


def damaged_file(path: str, error: Exception, kind: str = "Parquet") -> InputError:
    """The one error for a file that pyarrow cannot read: it is gone, damaged, or has a type that does not fit."""
    if isinstance(error, FileNotFoundError):
        return InputError(f"{path} does not exist", fix="check the path")
    cause = str(error).splitlines()[0][:200]
    if isinstance(error, UnfitError):
        return InputError(f"{path}: {cause}", fix="write all files with one type that holds every value")
    return InputError(f"{path}: not a whole {kind} file ({cause})", fix="write or copy the file again")


def unify(
    first: pa.Schema, first_path: str, second: pa.Schema, second_path: str, *, or_text: bool = False
) -> pa.Schema:
    """The schema that holds both files' rows: the same columns, types widened (missing → any, integer → float).

    With `or_text`, types that do not fit together become text.

    Raises:
        InputError: The files have different columns, or a column's types do not fit together.
    """
    for name in [*first.names, *second.names]:
        if name not in first.names or name not in second.names:
            has, lacks = (first_path, second_path) if name in first.names else (second_path, first_path)
            raise InputError(f"{lacks} has no column {name!r}, {has} has", fix="give files with the same columns")
    fields = []
    for field in first:
        other = second.field(field.name).type
        joined = common_type(field.type, other)
        if joined is None and or_text:
            joined = pa.string()
        if joined is None:
            raise InputError(
                f"{second_path}: column {field.name!r} is {other}, but {field.type} in {first_path}",
                fix="write both files with one type",
            )
        fields.append(pa.field(field.name, joined))
    return pa.schema(fields)


def rebatch(batches: Iterator[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of exactly `rows`, the last one shorter; empty batches vanish.

    Rows whose texts or bytes together exceed 2 GiB, or whose lists 2^31 items, which one Arrow array cannot hold, come
    as several shorter batches.
    """
    held: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        start = 0
        while count + batch.num_rows - start >= rows:
            take = rows - count
            held.append(batch.slice(start, take))
            yield from _joined(held)
            held, count, start = [], 0, start + take
        if start < batch.num_rows:
            held.append(batch.slice(start))
            count += batch.num_rows - start
    if held:
        yield from _joined(held)


def _joined(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    if len(batches) == 1:
        return batches
    # One batch, unless a column exceeds what the offsets of one array can address: then Arrow leaves it in chunks.
    try:
        table = pa.Table.from_batches(batches).unify_dictionaries().combine_chunks()
    except pa.ArrowInvalid:  # of lists' items and structs' fields it makes no chunks, but an error
        return batches
    return list(table.to_batches())
