"""The protocols of `data/`, which compute nothing themselves.

`Accumulator` is a mergeable state, `BatchFn` and `Route` are functions of a batch, and an `Executor` runs these over
the shards of a source. A new statistic is an `Accumulator`, a new place to run is an `Executor`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ..progress import Progress, no_progress
from .examples import Manifest, Sink
from .sources import Source

A = TypeVar("A", bound="Accumulator")


class Accumulator(Protocol):
    """Mergeable state of one pass over record batches: statistics, analyzers and metrics are all of this kind.

    An executor makes one per shard, calls `add_batch` for each batch of it in order and then `compact`; it merges the
    states along one fixed binary tree over the shard numbers (see `tree`), with `compact` after each merge. So a state
    need not be commutative for its result to be the same on every executor. A string column may come plain or
    dictionary-encoded, and the state must not depend on which.

    An accumulator whose bytes do not tell everything about it, such as functions that a user gave, also has a method
    `load(data)`: called on an empty one from the same factory, it returns the state, in place of `from_bytes`.
    """

    def add_batch(self, batch: pa.RecordBatch) -> None:
        """Take in the rows of one batch."""
        ...

    def merge(self, other: Self) -> None:
        """Take in the state of the shards that follow this one's."""
        ...

    def compact(self) -> None:
        """Bound the size before the state is merged, sent or stored."""
        ...

    def result(self) -> Mapping[str, Any]:
        """The finished values by name; each accumulator documents its own (hence Any)."""
        ...

    def to_bytes(self) -> bytes:
        """The state, framed as in `states`, never a pickle; the same shards give the same bytes on every executor."""
        ...

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """The state again.

        Raises:
            InputError: The bytes are not such a state, or of a version this release does not read.
        """
        ...


class BatchFn(Protocol):
    """A function from batch to batch that can be prepared once per worker.

    It must pickle by reference (a Beam worker imports it), and after `setup` several threads may call it at once.
    """

    def setup(self) -> None:
        """Load what every batch needs (a bundle, say); called once per worker before the first batch."""
        ...

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch's new columns; the number of rows may change."""
        ...


class Route(Protocol):
    """Says which sink each row of a batch goes to. It must pickle by reference and not depend on other rows."""

    def __call__(self, batch: pa.RecordBatch) -> NDArray[np.integer]:
        """The number of the sink (its position in the mapping) for each row; shape (rows,)."""
        ...


class Executor(Protocol):
    """Runs a pass over the shards of a source: `local` on threads, `beam` on the workers of a Beam runner.

    All executors give the same bytes: the shards of a source are fixed when it is opened, each is read in order by one
    worker, and what comes of them is put together by shard number, never by who was first.
    """

    def combine(
        self, source: Source, make: Callable[[], A], via: BatchFn | None = None, progress: Progress = no_progress
    ) -> A:
        """One accumulator over all rows.

        Args:
            source: What to read.
            make: Makes an empty accumulator; must pickle by reference.
            via: Applied to every batch first, or None.
            progress: Called with the rows read so far.

        Raises:
            Canceled: `progress` raised it; the other shards are stopped first.
            InputError: A shard could not be read, or the accumulator refused a batch (`where` then names the shard).
        """
        ...

    def map(
        self,
        source: Source,
        fn: BatchFn | None,
        sinks: Mapping[str, Sink],
        *,
        route: Route | None = None,
        tally: Accumulator | None = None,
        progress: Progress = no_progress,
    ) -> Manifest:
        """Write the rows, through `fn`, as Parquet: one part per shard and sink, numbered like the shard.

        Args:
            source: What to read.
            fn: Applied to every batch, or None.
            sinks: Split name to the folder its parts go to, in order.
            route: Which sink a row (as `fn` gave it) goes to; needed where there are several.
            tally: An accumulator without rows, which takes in all that is written, merged as by `combine`; untouched
                where this raises. It must pickle, and be small: there is one for each shard until the end.
            progress: Called with the rows read so far.

        Returns:
            What was written, to be stored with `Manifest.write`.

        Raises:
            Canceled: As for `combine`.
            InputError: A shard could not be read, batches of different schemas came out of `fn`, or `tally` refused a
                batch.
        """
        ...

    def exchange(
        self,
        source: Source,
        key: str | Sequence[str],
        buckets: int,
        folder: Path,
        *,
        via: BatchFn | None = None,
        progress: Progress = no_progress,
    ) -> Source:
        """The rows, through `via`, in buckets by the hash of their key: rows of one key are in one bucket.

        For joins, ranking by query, uniqueness of rows. A missing value is a key like any other. Rows keep the order of
        the source within their bucket, and the files are the same bytes on every executor.

        Args:
            source: What to read.
            key: One column, or several that are the key together.
            buckets: How many, 1 to 4,096. The exchange itself never holds a bucket in memory; its reader may have to.
            folder: Where the rows are written, which the workers share; the caller removes it when done with the
                buckets.
            via: Applied to every batch first, or None.
            progress: Called with the rows read so far.

        Returns:
            A source whose shard i is bucket i; an empty one has no rows.

        Raises:
            Canceled: As for `combine`; what was written is removed, as after every error.
            InputError: A shard could not be read, a key is not a column, or batches of different schemas came out of
                `via`.
            DrivetrainError: The folder cannot be written to, e.g. the disk is full.
        """
        ...
