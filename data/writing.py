"""Writing shards as Parquet parts, so that a part is there whole or not at all.

Beam may run a shard again, also while its first run still goes on. Each run writes a file of its own and renames it at
the end; the bytes depend on the rows alone, so it does not matter whose rename comes last.
"""

from __future__ import annotations

import contextlib
import copy
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ..digest import digest_file
from ..errors import DrivetrainError, InputError
from .arrays import arrow_of
from .base import Accumulator, BatchFn, Route
from .examples import ROW_GROUP_ROWS, Manifest, Part, Sink
from .sources import BATCH_ROWS, Source
from .tree import MergeTree, merge_states
from .types import restore, settle


class _PartWriter:
    """A part that is being written, under a temporary name; row groups are whole whatever the batches' sizes."""

    def __init__(self, sink: Sink, index: int) -> None:
        sink.folder.mkdir(parents=True, exist_ok=True)
        self.final = sink.folder / f"part-{index:05d}.parquet"
        self._temporary = sink.folder / f".{self.final.name}.{secrets.token_hex(4)}.tmp"
        self._writer: pq.ParquetWriter | None = None
        self._plain = sink.plain
        self._held: list[pa.RecordBatch] = []
        self._count = 0
        self.rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        self._held.append(batch)
        self._count += batch.num_rows
        if self._count >= ROW_GROUP_ROWS:
            table = pa.Table.from_batches(self._held)
            whole = self._count - self._count % ROW_GROUP_ROWS
            self._flush(table.slice(0, whole))
            self._held = table.slice(whole).combine_chunks().to_batches()
            self._count -= whole

    def _flush(self, table: pa.Table) -> None:
        if self._writer is None:
            repeating = [name for name in table.schema.names if name not in self._plain] if self._plain else True
            self._writer = pq.ParquetWriter(self._temporary, table.schema, compression="zstd", use_dictionary=repeating)
        self._writer.write_table(table, row_group_size=ROW_GROUP_ROWS)
        self.rows += table.num_rows

    def close(self, schema: pa.Schema) -> Part:
        if self._count or self._writer is None:
            self._flush(pa.Table.from_batches(self._held, schema=schema))
        assert self._writer is not None
        self._writer.close()
        self._temporary.replace(self.final)
        path = f"{self.final.parent.name}/{self.final.name}"
        return Part(path, self.rows, self.final.stat().st_size, digest_file(self.final))

    def abandon(self) -> None:
        if self._writer is not None:
            with contextlib.suppress(OSError, pa.ArrowException):  # a full disk: the first error is the one that counts
                self._writer.close()
        with contextlib.suppress(FileNotFoundError):
            self._temporary.unlink()


@dataclass(frozen=True)
class ShardParts:
    """What was written of one shard.

    Attributes:
        parts: One for each sink, in order.
        schema: Name and Arrow type of each column that was written.
        tally: The accumulator over what was written, compacted; None where none is wanted.
    """

    parts: tuple[Part, ...]
    schema: tuple[tuple[str, str], ...]
    tally: Accumulator | None = None


def write_shard(
    source: Source,
    index: int,
    fn: BatchFn | None,
    sinks: Mapping[str, Sink],
    route: Route | None,
    tally: Accumulator | None,
    on_rows: Callable[[int], None],
) -> ShardParts:
    """Write one shard's rows to its part in every sink.

    Args:
        source: What to read.
        index: The shard's number.
        fn: Applied to every batch first, or None.
        sinks: Split name to the folder its parts go to, in order.
        route: Which sink a row goes to; None for a single sink.
        tally: Without rows; a copy of it takes in what is written.
        on_rows: Called with the rows of each batch that was read; may raise to stop.

    Raises:
        InputError: See `Executor.map`.
        DrivetrainError: The sinks cannot be written to, e.g. the disk is full.
    """
    if route is None and len(sinks) != 1:
        raise InputError(f"{len(sinks)} sinks and nothing that says which row goes where", fix="pass route=")
    parts: list[_PartWriter] = []
    schema: pa.Schema | None = None
    tally = copy.deepcopy(tally)
    try:
        for sink in sinks.values():
            parts.append(_PartWriter(sink, index))
        done = 0
        for rows_read, batch in _batches(source, index, fn):
            _check_text(source, index, done, batch)
            done += rows_read
            if schema is None:
                schema = settle(batch.schema)
            elif settle(batch.schema) != schema:
                raise InputError(f"two batches came out of {fn!r} with different columns", fix="return the same ones")
            batch = restore(batch, schema)
            if tally is not None:
                tally.add_batch(batch)
            if route is None:
                parts[0].write(batch)
            else:
                chosen = np.asarray(route(batch))
                for number, part in enumerate(parts):
                    rows = np.flatnonzero(chosen == number)
                    if len(rows):
                        part.write(batch.take(arrow_of(rows)))
            on_rows(rows_read)
        if schema is None:  # a shard without rows
            schema = schema_through(source, fn)
        if tally is not None:
            tally.compact()
        written = tuple(part.close(schema) for part in parts)
    except BaseException as error:
        for part in parts:
            part.abandon()
        if isinstance(error, OSError):  # from writing: sources raise an InputError where they cannot read
            cause = os.strerror(error.errno) if error.errno else str(error).splitlines()[0]
            where = next(iter(sinks.values())).folder.parent
            raise DrivetrainError(
                f"cannot write to {where}: {cause}", fix="free space there, or choose another --root"
            ) from error
        raise
    return ShardParts(written, tuple((field.name, str(field.type)) for field in schema), tally)


def _batches(source: Source, index: int, fn: BatchFn | None) -> Iterator[tuple[int, pa.RecordBatch]]:
    for batch in source.read(index, BATCH_ROWS):
        yield batch.num_rows, fn(batch) if fn else batch


def schema_through(source: Source, fn: BatchFn | None) -> pa.Schema:
    """The columns that come out of a function, found out by a batch of no rows."""
    empty = pa.RecordBatch.from_pylist([], schema=source.schema)
    return settle((fn(empty) if fn else empty).schema)


def _check_text(source: Source, index: int, before: int, batch: pa.RecordBatch) -> None:
    """Raise InputError where text is not UTF-8: Arrow may call any bytes text, and whoever reads them fails later.

    `before` are the shard's rows before this batch.
    """
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if "string" not in str(field.type):
            continue
        try:
            column.validate(full=True)
        except pa.ArrowInvalid:
            bad_row = next((row for row in range(len(column)) if not _is_utf8(column[row])), None)
            if bad_row is None:  # Arrow looks at the whole buffer, this slice may be fine
                continue
            shard = source.shards[index]
            rows_of_earlier_shards = sum(other.rows for other in source.shards[:index] if other.path == shard.path)
            row = rows_of_earlier_shards + before + bad_row + 1
            raise InputError(
                f"{shard.path}, row {row:,}: column {field.name!r} is declared text, but is not UTF-8",
                fix="write the column as text in UTF-8, or as binary",
            ) from None


def _is_utf8(value: pa.Scalar) -> bool:
    try:
        value.as_py()
    except UnicodeDecodeError:
        return False
    return True


def collect(written: Iterable[ShardParts], sinks: Mapping[str, Sink], tally: Accumulator | None = None) -> Manifest:
    """The manifest of all shards' parts, which come in shard order; their tallies are merged into `tally`.

    Raises:
        InputError: The shards came out with different columns.
    """
    shards = list(written)
    if not shards:
        raise InputError("the source has no shards, so there is nothing to write", fix="give an input with rows")
    if len({shard.schema for shard in shards}) > 1:
        raise InputError("the shards came out with different columns", fix="return the same columns for every batch")
    if tally is not None:
        tree: MergeTree[Accumulator] = MergeTree(len(shards), merge_states)
        for index, shard in enumerate(shards):
            assert shard.tally is not None
            tree.put(0, index, shard.tally)
        tally.merge(tree.root())
    splits = tuple((name, tuple(shard.parts[number] for shard in shards)) for number, name in enumerate(sinks))
    return Manifest(splits, shards[0].schema)


def remove_leftovers(sinks: Mapping[str, Sink]) -> None:
    """Remove temporary files that killed workers left in the sinks."""
    for sink in sinks.values():
        for path in sink.folder.glob(".part-*.tmp"):
            path.unlink(missing_ok=True)
