"""Spans: parts of the training data that are analysed one by one, and what their rows have in common."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ...data.examples import Manifest, open_examples
from ...data.sources import ParquetShard, Source, unify
from ...data.types import settle
from ...digest import digest


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
        return cls(_joined(sources), digest("drivetrain.span", parts))

    @staticmethod
    def joined(spans: Iterable[Span]) -> Source:
        """The rows of spans as one source: their shards one after the other, types widened to hold the values of all.

        Raises:
            InputError: They have different columns, or a column's types do not fit together.
        """
        return _joined([span.source for span in spans])

    @staticmethod
    def empty(spans: Iterable[Span]) -> frozenset[str]:
        """The text columns that have no value in any of the spans: such a column may be of any type."""
        empty = [_empty(span.source) for span in spans if span.source.rows]
        return frozenset.intersection(*empty) if empty else frozenset()


def _joined(sources: Sequence[Source]) -> Source:
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
