r"""Spans: parts of the training data that are analysed one by one, and the states of their analyzers kept on disk.

A state is kept under the digest of its span's content and a key of what computes it. A file holds one span's:

    drivetrain-states-1\n, then per state: its key (32 bytes), the SHA-256 of key and state (32), its length (8, little
    endian), the state

Whatever does not match its digest is as if it were not there.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from ...data.examples import Manifest, open_examples
from ...data.sources import ParquetShard, Source, unify
from ...data.types import settle
from ...digest import digest, write_durably
from ...errors import InputError
from .analysis import Analysis
from .states import State

_MAGIC: Final = b"drivetrain-states-1\n"
_HEAD: Final = 32 + 32 + 8


@dataclass(frozen=True)
class Span:
    """A part of the training data.

    Attributes:
        source: Its rows.
        digest: SHA-256 (hex) of its content; "" where that is not known, and its states are not kept.
    """

    source: Source
    digest: str = ""

    @classmethod
    def of(cls, content: Path, splits: Sequence[str]) -> Span:
        """Some splits of an Examples content folder, one after the other; the digest is of its manifest's digests.

        Raises:
            InputError: There is no such split, or a part is missing.
        """
        manifest = Manifest.read(content)
        sources = [open_examples(content, split) for split in splits]
        parts = [[part.sha256 for part in manifest.parts(split)] for split in splits]
        return cls(_one(sources), digest("drivetrain.span", parts))

    @staticmethod
    def joined(spans: Iterable[Span]) -> Source:
        """The rows of spans as one source: their shards one after the other, types widened to hold the values of all.

        Raises:
            InputError: They have different columns, or a column's types do not fit together.
        """
        return _one([span.source for span in spans])

    @staticmethod
    def empty(spans: Iterable[Span]) -> frozenset[str]:
        """The text columns that have no value in any of the spans: such a column may be of any type."""
        found = [_empty(span.source) for span in spans if span.source.rows]
        return frozenset.intersection(*found) if found else frozenset()


def _one(sources: Sequence[Source]) -> Source:
    whole = sources[0]
    for more in sources[1:]:
        schema = whole.schema
        if more.rows and not whole.rows:
            schema = more.schema
        elif more.rows and more.schema != schema:
            schema = settle(unify(_guessed(whole), _path(whole), _guessed(more), _path(more)))
        whole = replace(whole, shards=(*whole.shards, *more.shards), schema=schema)
    return whole


def _guessed(source: Source) -> pa.Schema:
    """The schema with `null` for text columns without a value."""
    empty = _empty(source)
    return pa.schema([pa.field(f.name, pa.null()) if f.name in empty else f for f in source.schema])


def _empty(source: Source) -> frozenset[str]:
    """The text columns of Parquet shards that have no value, by the statistics of the files."""
    empty = {field.name for field in source.schema if pa.types.is_string(field.type)}
    files: dict[str, pq.FileMetaData] = {}
    for shard in source.shards:
        if not empty or not isinstance(shard, ParquetShard):
            return frozenset()
        if shard.path not in files:
            files[shard.path] = pq.read_metadata(shard.path)
        group = files[shard.path].row_group(shard.row_group)
        for column in map(group.column, range(group.num_columns)):
            known = column.statistics
            if known is None or not known.has_null_count or known.null_count < group.num_rows:
                empty.discard(column.path_in_schema)
    return frozenset(empty)


def _path(source: Source) -> str:
    return source.shards[-1].path


class AnalyzerCache:
    """States of analyzers that earlier runs left, in a folder that may be deleted at any time.

    Attributes:
        used: States taken from it.
        made: States that were not there, and are now.
        damaged: States, or ends of files, that did not match their digest.
    """

    def __init__(self, folder: Path, *, earlier: Path | None = None) -> None:
        """`folder` is where states are written, and `earlier` another folder to take them from; else `folder` is."""
        self.folder = folder
        self._earlier = folder if earlier is None else earlier
        self._places: dict[str, dict[bytes, tuple[int, int]]] = {}
        self.used = self.made = self.damaged = 0

    def get(self, span: str, analysis: Analysis, key: str) -> State | None:
        """The state of an analysis of a span, or None."""
        data = self._read(span, bytes.fromhex(key))
        found = None if data is None else state_of(analysis, data)
        self.used += found is not None
        self.damaged += data is not None and found is None
        return found

    def put(self, span: str, states: Mapping[str, bytes], made: int) -> None:
        """Keep the states of a span by key, `made` of which are new."""
        self.made += made
        path = self.folder / f"{span}.states"
        if not states or (self._earlier == self.folder and not made):
            return
        wanted = {bytes.fromhex(key): data for key, data in states.items()}
        known = self._scan(path)
        kept = {key: self._verified(path, key, place) for key, place in known.items() if key not in wanted}
        sink = io.BytesIO()
        sink.write(_MAGIC)
        for key, data in sorted({**wanted, **{key: data for key, data in kept.items() if data is not None}}.items()):
            sink.write(key + _check(key, data) + len(data).to_bytes(8, "little") + data)
        self.folder.mkdir(parents=True, exist_ok=True)
        write_durably(path, sink.getvalue())
        self._places.pop(span, None)

    def _read(self, span: str, key: bytes) -> bytes | None:
        path = self._earlier / f"{span}.states"
        if span not in self._places:
            self._places[span] = self._scan(path)
        place = self._places[span].get(key)
        return None if place is None else self._verified(path, key, place)

    def _scan(self, path: Path) -> dict[bytes, tuple[int, int]]:
        """Where the states of a file are, up to where it is damaged."""
        places: dict[bytes, tuple[int, int]] = {}
        try:
            with path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                at = len(_MAGIC)
                whole = file.read(at) == _MAGIC
                while whole and at < size:
                    head = file.read(_HEAD)
                    length = int.from_bytes(head[64:], "little")
                    whole = len(head) == _HEAD and at + _HEAD + length <= size
                    if whole:
                        places[head[:32]] = (at, length)
                        at += _HEAD + length
                        file.seek(at)
        except FileNotFoundError:
            return {}
        self.damaged += not whole
        return places

    def _verified(self, path: Path, key: bytes, place: tuple[int, int]) -> bytes | None:
        at, length = place
        with path.open("rb") as file:
            file.seek(at + 32)
            checksum, _ = file.read(32), file.read(8)
            data = file.read(length)
        if checksum != _check(key, data):
            self.damaged += 1
            return None
        return data


def state_of(analysis: Analysis, data: bytes) -> State | None:
    """The state that its `to_bytes` wrote; None for bytes that are none."""
    state = analysis.new()
    try:
        state.load(data)
    except (LookupError, ValueError, TypeError, AttributeError, InputError, pa.ArrowException, OSError):
        return None
    return state


def _check(key: bytes, data: bytes) -> bytes:
    return sha256(key + data).digest()
