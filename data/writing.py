"""Writing shards as Parquet parts: whole or not at all, by any worker, twice if a runner so wishes."""

from __future__ import annotations

import contextlib
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
from .base import BatchFn, Route
from .examples import ROW_GROUP_ROWS, Manifest, Part, Sink
from .sources import BATCH_ROWS, Source
from .types import restore, settle


class _Part:
    """A part being written under a temporary name, so that a retry or a kill leaves no half file behind it."""

    def __init__(self, sink: Sink, index: int) -> None:
        sink.folder.mkdir(parents=True, exist_ok=True)
        self.final = sink.folder / f"part-{index:05d}.parquet"
        self._temporary = sink.folder / f".{self.final.name}.{secrets.token_hex(4)}.tmp"
        self._writer: pq.ParquetWriter | None = None
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
            self._writer = pq.ParquetWriter(self._temporary, table.schema, compression="zstd")
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
class Written:
    """What one shard became: its part in each sink, in order, and the schema that came out."""

    parts: tuple[Part, ...]
    schema: tuple[tuple[str, str], ...]


def write_shard(
    source: Source,
    index: int,
    fn: BatchFn | None,
    sinks: Mapping[str, Sink],
    route: Route | None,
    on_rows: Callable[[int], None],
) -> Written:
    """Write one shard's rows to its part in every sink; `on_rows` hears of rows read and may raise to stop.

    Raises:
        InputError: See `Executor.map`.
        DrivetrainError: The sinks cannot be written to, e.g. the disk is full.
    """
    if route is None and len(sinks) != 1:
        raise InputError(f"{len(sinks)} sinks and nothing that says which row goes where", fix="pass route=")
    parts: list[_Part] = []
    schema: pa.Schema | None = None
    try:
        for sink in sinks.values():
            parts.append(_Part(sink, index))
        done = 0
        for rows_read, batch in _batches(source, index, fn):
            _check_text(source, index, done, batch)
            done += rows_read
            if schema is None:
                schema = settle(batch.schema)
            elif settle(batch.schema) != schema:
                raise InputError(f"two batches came out of {fn!r} with different columns", fix="return the same ones")
            batch = restore(batch, schema)
            if route is None:
                parts[0].write(batch)
            else:
                chosen = np.asarray(route(batch))
                for number, part in enumerate(parts):
                    rows = np.flatnonzero(chosen == number)
                    if len(rows):
                        part.write(batch.take(arrow_of(rows)))
            on_rows(rows_read)
        if schema is None:  # a shard without rows: its schema is what fn makes of an empty batch
            empty = pa.RecordBatch.from_pylist([], schema=source.schema)
            schema = settle((fn(empty) if fn else empty).schema)
        written = tuple(part.close(schema) for part in parts)
    except BaseException as error:
        for part in parts:
            part.abandon()
        if isinstance(error, OSError):  # of writing: what reading raises is an InputError by now
            cause = os.strerror(error.errno) if error.errno else str(error).splitlines()[0]
            where = next(iter(sinks.values())).folder.parent
            raise DrivetrainError(
                f"cannot write to {where}: {cause}", fix="free space there, or choose another --root"
            ) from error
        raise
    return Written(written, tuple((field.name, str(field.type)) for field in schema))


def _batches(source: Source, index: int, fn: BatchFn | None) -> Iterator[tuple[int, pa.RecordBatch]]:
    for batch in source.read(index, BATCH_ROWS):
        yield batch.num_rows, fn(batch) if fn else batch


def _check_text(source: Source, index: int, before: int, batch: pa.RecordBatch) -> None:
    """See that text is UTF-8: Parquet and Arrow may call any bytes text, and whoever reads them fails much later."""
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if "string" not in str(field.type):
            continue
        try:
            column.validate(full=True)
        except pa.ArrowInvalid:
            place = next((place for place in range(len(column)) if not _reads(column[place])), None)
            if place is None:  # it is in the rows around this slice
                continue
            shard = source.shards[index]
            row = before + place + 1 + sum(one.rows for one in source.shards[:index] if one.path == shard.path)
            raise InputError(
                f"{shard.path}, row {row:,}: column {field.name!r} is declared text, but is not UTF-8",
                fix="write the column as text in UTF-8, or as binary",
            ) from None


def _reads(value: pa.Scalar) -> bool:
    try:
        value.as_py()
    except UnicodeDecodeError:
        return False
    return True


def collect(written: Iterable[Written], sinks: Mapping[str, Sink]) -> Manifest:
    """The manifest over all shards, in shard order.

    Raises:
        InputError: The shards came out with different columns.
    """
    every = list(written)
    if not every:
        raise InputError("the source has no shards, so there is nothing to write", fix="give an input with rows")
    if len({one.schema for one in every}) > 1:
        raise InputError("the shards came out with different columns", fix="return the same columns for every batch")
    named = tuple((name, tuple(one.parts[number] for one in every)) for number, name in enumerate(sinks))
    return Manifest(named, every[0].schema)


def remove_leftovers(sinks: Mapping[str, Sink]) -> None:
    """Remove temporary files that killed workers left in the sinks."""
    for sink in sinks.values():
        for path in sink.folder.glob(".part-*.tmp"):
            path.unlink(missing_ok=True)
