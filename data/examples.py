"""Examples on disk: Parquet parts by split, and the manifest that says what they are."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ..digest import canonical_json, digest_file, write_durably
from ..errors import DrivetrainError, InputError
from .sources import BATCH_ROWS, Source, open_parquet
from .types import restore, settle

if TYPE_CHECKING:
    from .base import BatchFn, Route

FORMAT: Final = 1
MANIFEST: Final = "manifest.json"
ROW_GROUP_ROWS: Final = 65_536


@dataclass(frozen=True)
class Part:
    """One Parquet file: path relative to the content folder, rows, bytes, SHA-256."""

    path: str
    rows: int
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """What a content folder of examples holds.

    Attributes:
        splits: Names in order, each with its parts in shard order.
        schema: Name and Arrow type of each column; normalised.
        span: The span of data the rows belong to.
    """

    splits: tuple[tuple[str, tuple[Part, ...]], ...]
    schema: tuple[tuple[str, str], ...]
    span: int = 0

    @property
    def rows(self) -> dict[str, int]:
        """Rows by split, in order."""
        return {name: sum(part.rows for part in parts) for name, parts in self.splits}

    def parts(self, split: str) -> tuple[Part, ...]:
        """The parts of a split, in shard order.

        Raises:
            InputError: There is no such split.
        """
        for name, parts in self.splits:
            if name == split:
                return parts
        names = ", ".join(name for name, _ in self.splits)
        raise InputError(f"there is no split {split!r}", fix=f"the splits are: {names}")

    def write(self, content: Path, *, span: int | None = None) -> Manifest:
        """Store it as `content/manifest.json`; returns what was stored, with `span` if given."""
        stored = self if span is None else replace(self, span=span)
        body = {
            "format": FORMAT,
            "kind": "drivetrain.examples",
            "schema": stored.schema,
            "span": stored.span,
            "splits": [
                [name, [{"bytes": p.bytes, "path": p.path, "rows": p.rows, "sha256": p.sha256} for p in parts]]
                for name, parts in stored.splits
            ],
        }
        write_durably(content / MANIFEST, canonical_json(body) + b"\n")
        return stored

    @classmethod
    def read(cls, content: Path) -> Manifest:
        """The manifest of a content folder.

        Raises:
            InputError: There is none, it is damaged, or of a format this release does not read.
        """
        path = content / MANIFEST
        try:
            body: Any = json.loads(path.read_bytes())  # Any: JSON, checked below
        except FileNotFoundError:
            raise InputError(f"{content} holds no examples: no {MANIFEST}", fix="run ExampleGen again") from None
        except ValueError as error:
            raise InputError(f"{path} is damaged: {error}", fix="run ExampleGen again") from error
        if not isinstance(body, dict) or body.get("kind") != "drivetrain.examples":
            raise InputError(f"{path} is no manifest of examples", fix="point at the content/ of an Examples artifact")
        if body.get("format") != FORMAT:
            raise InputError(
                f"{path} has format {body.get('format')!r}; this release reads {FORMAT}",
                fix="use the release of drivetrain that wrote it, or run ExampleGen again",
            )
        splits = tuple((name, tuple(Part(**part) for part in parts)) for name, parts in body["splits"])
        return cls(splits, tuple((name, kind) for name, kind in body["schema"]), body["span"])

    @classmethod
    def joined(cls, manifests: Iterable[Manifest]) -> Manifest:
        """One manifest over the splits of several, in order: what a pass per split writes.

        Raises:
            InputError: Their columns differ, or two have a split of one name.
        """
        every = list(manifests)
        splits = tuple(split for manifest in every for split in manifest.splits)
        if len({name for name, _ in splits}) != len(splits):
            raise InputError("two manifests have a split of the same name", fix="write each split once")
        schemas = {manifest.schema for manifest in every if any(manifest.rows.values())} or {every[0].schema}
        if len(schemas) > 1:
            raise InputError("the splits have different columns", fix="write every split with the same function")
        return cls(splits, schemas.pop(), every[0].span)


def splits(content: Path) -> dict[str, int]:
    """Rows of each split of an Examples content folder, in order."""
    return Manifest.read(content).rows


def open_examples(content: Path, split: str, columns: Iterable[str] | None = None) -> Source:
    """A source over one split; each row group is a shard.

    Args:
        content: The content folder of an Examples artifact.
        split: Its name.
        columns: The columns wanted, default all.

    Raises:
        InputError: No such split or column, a format this release does not read, or a part that is missing or not
            of the size it was written with.
    """
    parts = Manifest.read(content).parts(split)
    for part in parts:
        path = content / part.path
        size = path.stat().st_size if path.is_file() else -1
        if size != part.bytes:
            found = "missing" if size < 0 else f"{size} bytes, not {part.bytes}"
            raise InputError(f"{path} is {found}", fix="run `drivetrain fsck --repair`, or ExampleGen again")
    source = open_parquet([content / part.path for part in parts])
    return source if columns is None else source.select(columns)


@dataclass(frozen=True)
class Sink:
    """Where the rows of one split go: a folder of numbered Parquet parts (zstd, row groups of 65,536 rows)."""

    folder: Path


def sinks(content: Path, names: Iterable[str]) -> dict[str, Sink]:
    """A sink `content/split=<name>` for each split name, in order."""
    return {name: Sink(content / f"split={name}") for name in names}


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
        for rows_read, batch in _batches(source, index, fn):
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
                        part.write(batch.take(pa.array(rows)))
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
