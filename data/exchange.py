"""The exchange: rows divided into buckets by the hash of key columns, on disk, so that rows of equal keys are together.

Each shard of the source is spilled to one Arrow file, in which each batch belongs to one bucket; a bucket is read back
from the files in shard order. A worker holds one batch at a time, whatever the size of the source or of a bucket.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ..errors import DrivetrainError, InputError
from .arrays import arrow_of
from .base import BatchFn
from .rowhash import hash_rows, mix
from .sources import Source
from .types import restore, settle

MOST_BUCKETS: Final = 4096


@dataclass(frozen=True)
class Exchange:
    """What is to be exchanged; small, and pickles.

    Attributes:
        source: Where the rows come from.
        keys: The columns whose hash says which bucket a row is in.
        buckets: How many.
        folder: Where the files go.
    """

    source: Source
    keys: tuple[str, ...]
    buckets: int
    folder: str


@dataclass(frozen=True)
class Spill:
    """What became of one shard: its file, and the bucket and rows of each batch in it."""

    path: str
    batches: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class BucketShard:
    """The rows of one bucket: some batches of some files."""

    pieces: tuple[tuple[str, tuple[int, ...]], ...]
    rows: int

    @property
    def path(self) -> str:
        """The first file it lies in."""
        return self.pieces[0][0] if self.pieces else "an empty bucket"

    def read(self, schema: pa.Schema, batch_rows: int, dictionaries: bool) -> Iterator[pa.RecordBatch]:
        """See `Shard.read`; its batches are those that were spilled."""
        for path, numbers in self.pieces:
            try:
                with pa.OSFile(path) as file, _reader(file, schema.names) as reader:
                    for number in numbers:
                        yield restore(reader.get_batch(number), schema, dictionaries=dictionaries)
            except (pa.ArrowException, OSError) as error:
                cause = (str(error) or type(error).__name__).splitlines()[0][:200]
                raise InputError(f"{path} cannot be read ({cause})", fix="exchange the rows again") from error


def _reader(file: pa.NativeFile, names: list[str]) -> pa.ipc.RecordBatchFileReader:
    """A reader that decodes no other columns."""
    reader = pa.ipc.open_file(file)
    if reader.schema.names == names:
        return reader
    places = [reader.schema.get_field_index(name) for name in names]
    return pa.ipc.open_file(file, options=pa.ipc.IpcReadOptions(included_fields=places, use_threads=False))


def plan(source: Source, key: str | Sequence[str], buckets: int, folder: Path) -> Exchange:
    """The exchange, checked.

    Raises:
        InputError: No key, or not 1 to 4,096 buckets.
    """
    keys = (key,) if isinstance(key, str) else tuple(key)
    if not keys:
        raise InputError("there is no key to exchange rows by", fix="name at least one column")
    if not 1 <= buckets <= MOST_BUCKETS:
        raise InputError(f"rows cannot be exchanged to {buckets} buckets", fix=f"use 1 to {MOST_BUCKETS:,}")
    # Spilled rows are plain, so that their bytes do not depend on how they were encoded.
    return Exchange(replace(source, dictionaries=False), keys, buckets, str(folder))


def bucket_of(batch: pa.RecordBatch, keys: Sequence[str], buckets: int) -> NDArray[np.int64]:
    """The bucket of each row: of `mix(hash_rows(keys))`, so missing keys share one.

    Mixed once more, so that rows that were split by the same hash spread over all buckets.

    Raises:
        InputError: A key is no column, or of a type that has no hash.
    """
    missing = [name for name in keys if name not in batch.schema.names]
    if missing:
        raise InputError(f"there is no column {missing[0]!r}", fix=f"the columns are: {', '.join(batch.schema.names)}")
    try:
        hashes = mix(hash_rows(batch.select(list(keys))))
    except InputError as error:
        raise InputError(
            f"rows cannot be divided by {', '.join(keys)}: {error.message}", fix="use another key"
        ) from error
    return (hashes % np.uint64(buckets)).astype(np.int64)


def spill_shard(exchange: Exchange, index: int, via: BatchFn | None, on_rows: Callable[[int], None]) -> Spill:
    """Write one shard's rows, through `via`, to its file; `on_rows` hears of rows read and may raise to stop.

    Raises:
        InputError: The shard cannot be read, or see `bucket_of`.
        DrivetrainError: The folder cannot be written to, e.g. the disk is full.
    """
    folder = Path(exchange.folder)
    final = folder / f"shard-{index:05d}.arrow"
    temporary = folder / f".{final.name}.{secrets.token_hex(4)}.tmp"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        batches = tuple(_spill(exchange, index, via, on_rows, temporary))
        temporary.replace(final)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError):  # of writing: what reading raises is an InputError by now
            cause = os.strerror(error.errno) if error.errno else str(error).splitlines()[0]
            raise DrivetrainError(f"cannot write to {folder}: {cause}", fix="free space there") from error
        raise
    return Spill(str(final), batches)


def _spill(
    exchange: Exchange, index: int, via: BatchFn | None, on_rows: Callable[[int], None], path: Path
) -> Iterator[tuple[int, int]]:
    source = exchange.source
    schema = None if via else source.schema
    writer: pa.ipc.RecordBatchFileWriter | None = None
    with contextlib.ExitStack() as stack:

        def writing(schema: pa.Schema) -> pa.ipc.RecordBatchFileWriter:
            options = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
            return stack.enter_context(pa.ipc.new_file(path, schema, options=options))

        for read in source.read(index):
            batch = via(read) if via else read
            schema = settle(batch.schema) if schema is None else schema
            if settle(batch.schema) != schema:
                raise InputError(f"two batches came out of {via!r} with different columns", fix="return the same ones")
            writer = writer or writing(schema)
            bucket = bucket_of(batch, exchange.keys, exchange.buckets)
            counts = np.bincount(bucket, minlength=exchange.buckets)
            # Of 16 bits, numpy sorts by radix.
            sorted_rows = restore(batch, schema).take(arrow_of(np.argsort(bucket.astype(np.uint16), kind="stable")))
            start = 0
            for number in np.flatnonzero(counts).tolist():
                rows = int(counts[number])
                writer.write_batch(sorted_rows.slice(start, rows))
                yield number, rows
                start += rows
            on_rows(read.num_rows)
        if writer is None:
            writing(schema_through(source, via))


def schema_through(source: Source, via: BatchFn | None) -> pa.Schema:
    """The columns that come out of `via`, found out with no rows."""
    empty = pa.RecordBatch.from_pylist([], schema=source.schema)
    return settle((via(empty) if via else empty).schema)


def buckets_of(exchange: Exchange, spills: Iterable[Spill], via: BatchFn | None) -> Source:
    """The source whose shards are the buckets, from what became of every shard, in order.

    Raises:
        InputError: The shards came out with different columns.
    """
    every = list(spills)
    schemas = []
    for spill in every:
        with pa.OSFile(spill.path) as file, pa.ipc.open_file(file) as reader:
            schemas.append(reader.schema)
    schema = schemas[0] if schemas else schema_through(exchange.source, via)
    if any(other != schema for other in schemas):
        raise InputError("the shards came out with different columns", fix="return the same columns for every batch")
    pieces: list[list[tuple[str, tuple[int, ...]]]] = [[] for _ in range(exchange.buckets)]
    rows = [0] * exchange.buckets
    for spill in every:
        places: dict[int, list[int]] = {}
        for number, (bucket, count) in enumerate(spill.batches):
            places.setdefault(bucket, []).append(number)
            rows[bucket] += count
        for bucket, numbers in places.items():
            pieces[bucket].append((spill.path, tuple(numbers)))
    shards = tuple(BucketShard(tuple(found), count) for found, count in zip(pieces, rows, strict=True))
    return Source(shards, schema)


def remove_spills(exchange: Exchange) -> None:
    """Remove what was spilled, also what killed workers left half-written; what else lies in the folder stays."""
    folder = Path(exchange.folder)
    for pattern in ("shard-*.arrow", ".shard-*.tmp"):
        for path in folder.glob(pattern):
            with contextlib.suppress(OSError):
                path.unlink()
