"""The two protocols of the data room: what is accumulated, and who walks the shards."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, Self, TypeVar

import pyarrow as pa

from .sources import Source

A = TypeVar("A", bound="Accumulator")


class Progress(Protocol):
    """Told how far a long task is. It may raise `Canceled`: report often and let that pass through."""

    def __call__(self, done: int, total: int | None, unit: str) -> None:
        """`done` of `total` (None where unknown) `unit`s, e.g. rows, are finished."""
        ...


def no_progress(done: int, total: int | None, unit: str) -> None:
    """The progress that nobody watches."""


class Accumulator(Protocol):
    """Mergeable state of one pass over record batches: statistics, analyzers and metrics are all of this kind.

    `merge` is called along one fixed binary tree over shard numbers, so a state need not be commutative to be
    deterministic. `to_bytes` is a versioned header, Arrow IPC tables and sketch bytes; never pickle.
    """

    def add_batch(self, batch: pa.RecordBatch) -> None:
        """Take in the rows of one batch."""
        ...

    def merge(self, other: Self) -> None:
        """Take in the state of the shards that follow this one's."""
        ...

    def compact(self) -> None:
        """Bound the size before the state is sent or stored."""
        ...

    def result(self) -> Mapping[str, Any]:
        """The finished values. Any: each accumulator documents its own."""
        ...

    def to_bytes(self) -> bytes:
        """The state, the same bytes for the same rows in the same shards on every executor."""
        ...

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """The state again.

        Raises:
            InputError: The bytes are not such a state, or of a version this release does not read.
        """
        ...


class BatchFn(Protocol):
    """A function from batch to batch that can be prepared once per worker. It must pickle by reference."""

    def setup(self) -> None:
        """Load what every batch needs (a bundle, say); called once per worker before the first batch."""
        ...

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch's new columns; the number of rows may change."""
        ...


class Executor(Protocol):
    """Walks the shards of a source: on threads here, or on the workers of a Beam runner. Both give the same bytes."""

    def combine(
        self, source: Source, make: Callable[[], A], via: BatchFn | None = None, progress: Progress = no_progress
    ) -> A:
        """One accumulator over all rows; `make` gives an empty one and must pickle by reference."""
        ...
