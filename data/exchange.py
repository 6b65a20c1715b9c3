"""The exchange (shuffle): rows divided into buckets on disk by the hash of their key, so that equal keys are together.

Each shard of the source is spilled to one Arrow file, in which each batch belongs to one bucket; a bucket is read back
from all files, in shard order. A worker holds one batch at a time, whatever the size of the source or of a bucket, and
one file per shard (not per shard and bucket) keeps the number of files small.
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

from ..errors import DrivetrainError, InputError, suggest
from .arrays import arrow_of
from .base import BatchFn
from .rowhash import hash_rows, mix
from .sources import Source
from .types import restore, settle
from .writing import schema_through

MOST_BUCKETS: Final = 4096


@dataclass(frozen=True)
class ExchangePlan:
    """What to exchange; small, and pickles.

    Attributes:
        source: Where the rows come from.
        keys: The columns whose hash says which bucket a row belongs to.
        buckets: How many.
        folder: Where the files are written.
    """

    source: Source
    keys: tuple[str, ...]
    buckets: int
    folder: str


@dataclass(frozen=True)
class Spill:
    """The file that one shard was spilled to.

    Attributes:
        path: The file.
        batches: The bucket of each batch in it and the batch's rows, in the file's order.
    """

    path: str
    batches: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class BucketShard:
    """The rows of one bucket.

    Attributes:
        pieces: For each file with rows of the bucket, in shard order, the numbers of its batches.
        rows: How many rows they have together.
    """

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
    """A reader that decodes only these columns."""
    reader = pa.ipc.open_file(file)
    if reader.schema.names == names:
        return reader
    indices = [reader.schema.get_field_index(name) for name in names]
    return pa.ipc.open_file(file, options=pa.ipc.IpcReadOptions(included_fields=indices, use_threads=False))


def plan_exchange(source: Source, key: str | Sequence[str], buckets: int, folder: Path) -> ExchangePlan:
    """The checked plan of an exchange.

    Raises:
        InputError: No key, or not 1 to 4,096 buckets.
    """
    keys = (key,) if isinstance(key, str) else tuple(key)
    if not keys:
        raise InputError("there is no key to exchange rows by", fix="name at least one column")
    if not 1 <= buckets <= MOST_BUCKETS:
        raise InputError(f"rows cannot be exchanged to {buckets} buckets", fix=f"use 1 to {MOST_BUCKETS:,}")
    # Spilled rows are plain, so that their bytes do not depend on how they were encoded.
    return ExchangePlan(replace(source, dictionaries=False), keys, buckets, str(folder))


def bucket_of(batch: pa.RecordBatch, keys: Sequence[str], buckets: int) -> NDArray[np.int64]:
    """The bucket of each row: of `mix(hash_rows(keys))`, so missing keys share one.

    Rows of one split may all have `hash_rows % weights` in common, so the hash is mixed once more: without, they would
    fill some buckets only.

    Raises:
        InputError: A key is not a column, or of a type that has no hash.
    """
    missing = [name for name in keys if name not in batch.schema.names]
    if missing:
        raise InputError(
            f"there is no column {missing[0]!r}", fix=suggest(missing[0], batch.schema.names, "the columns are:")
        )
    try:
        hashes = mix(hash_rows(batch.select(list(keys))))
    except InputError as error:
        raise InputError(
            f"rows cannot be divided by {', '.join(keys)}: {error.message}", fix="use another key"
        ) from error
    return (hashes % np.uint64(buckets)).astype(np.int64)


def spill_shard(plan: ExchangePlan, index: int, via: BatchFn | None, on_rows: Callable[[int], None]) -> Spill:
    """Write one shard's rows, through `via`, to its file; `on_rows` is called with each batch's rows, and may raise.

    Raises:
        InputError: The shard cannot be read, or see `bucket_of`.
        DrivetrainError: The folder cannot be written to, e.g. the disk is full.
    """
    folder = Path(plan.folder)
    final = folder / f"shard-{index:05d}.arrow"
    temporary = folder / f".{final.name}.{secrets.token_hex(4)}.tmp"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        batches = tuple(_spill(plan, index, via, on_rows, temporary))
        temporary.replace(final)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError):  # from writing: sources raise an InputError where they cannot read
            cause = os.strerror(error.errno) if error.errno else str(error).splitlines()[0]
            raise DrivetrainError(f"cannot write to {folder}: {cause}", fix="free space there") from error
        raise
    return Spill(str(final), batches)


def _spill(
    plan: ExchangePlan, index: int, via: BatchFn | None, on_rows: Callable[[int], None], path: Path
) -> Iterator[tuple[int, int]]:
    source = plan.source
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
            bucket = bucket_of(batch, plan.keys, plan.buckets)
            counts = np.bincount(bucket, minlength=plan.buckets)
            # Integers of 16 bits numpy sorts by radix, in linear time. Stable: a bucket keeps the rows' order.
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


def buckets_of(plan: ExchangePlan, spills: Iterable[Spill], via: BatchFn | None) -> Source:
    """The source whose shards are the buckets, from the spills of all shards, in order.

    Raises:
        InputError: The shards came out with different columns.
    """
    shard_spills = list(spills)
    schemas = []
    for spill in shard_spills:
        with pa.OSFile(spill.path) as file, pa.ipc.open_file(file) as reader:
            schemas.append(reader.schema)
    schema = schemas[0] if schemas else schema_through(plan.source, via)
    if any(other != schema for other in schemas):
        raise InputError("the shards came out with different columns", fix="return the same columns for every batch")
    pieces: list[list[tuple[str, tuple[int, ...]]]] = [[] for _ in range(plan.buckets)]
    rows = [0] * plan.buckets
    for spill in shard_spills:
        batches_of: dict[int, list[int]] = {}
        for number, (bucket, count) in enumerate(spill.batches):
            batches_of.setdefault(bucket, []).append(number)
            rows[bucket] += count
        for bucket, numbers in batches_of.items():
            pieces[bucket].append((spill.path, tuple(numbers)))
    shards = tuple(BucketShard(tuple(bucket_pieces), count) for bucket_pieces, count in zip(pieces, rows, strict=True))
    return Source(shards, schema)


def remove_spills(plan: ExchangePlan) -> None:
    """Remove the spills, and what killed workers left half-written; other files in the folder stay."""
    folder = Path(plan.folder)
    for pattern in ("shard-*.arrow", ".shard-*.tmp"):
        for path in folder.glob(pattern):
            with contextlib.suppress(OSError):
                path.unlink()
