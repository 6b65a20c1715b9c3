"""Samples by row hash: the same rows for any shards, batches and executor.

Equal rows have equal hashes, so a sample has all copies of a row or none.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...errors import InputError
from ..arrays import arrow_of, numpy_of
from ..rowhash import Hashes, hash_rows, mix
from ..states import array_bytes, bytes_array, from_ipc, to_ipc

SAMPLE_ROWS: Final = 10_000


def seeded_hashes(batch: pa.RecordBatch, seed: int) -> Hashes:
    """A hash per row for this seed.

    Raises:
        InputError: A column is of a type that has no hash (a map or a union).
    """
    try:
        hashes = hash_rows(batch)
    except InputError as error:
        raise InputError(error.message, fix="leave out the column, or sample_rate and label") from error
    return mix(hashes ^ mix(np.array([seed % 2**64], np.uint64)))


def in_sample(batch: pa.RecordBatch, rate: float, seed: int) -> NDArray[np.bool_]:
    """Which rows of the batch are in the sample of this rate."""
    kept: NDArray[np.bool_] = seeded_hashes(batch, seed) < np.uint64(min(int(rate * 2.0**64), 2**64 - 1))
    return kept


def take_rows(batch: pa.RecordBatch, rows: NDArray[np.int64]) -> pa.RecordBatch:
    """The rows of a batch at these indices, in their order."""
    return batch.take(arrow_of(rows))


class RowSample:
    """The distinct rows of smallest hash, each with its number of copies: a mergeable sample, and all rows while few.

    A row whose hash is among the smallest of the whole is among the smallest of every part that has it, so its copies
    are counted exactly (k minimum values; Bar-Yossef and others 2002).

    Attributes:
        rows: Rows seen.
        exact: Whether it still holds every distinct row.
    """

    def __init__(self, seed: int = 0, size: int = SAMPLE_ROWS) -> None:
        self.seed = seed
        self.size = size
        self.rows = 0
        self.exact = True
        self._hashes: Hashes = np.zeros(0, np.uint64)
        self._counts: NDArray[np.int64] = np.zeros(0, np.int64)
        self._table: pa.Table | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        """Add a batch's rows: those with the smallest hashes are kept, with how often each occurs."""
        self.rows += batch.num_rows
        hashes, first, counts = np.unique(seeded_hashes(batch, self.seed), return_index=True, return_counts=True)
        if len(hashes) > self.size:
            self.exact = False
            hashes, first, counts = hashes[: self.size], first[: self.size], counts[: self.size]
        # Only a sample that has dropped a row may skip the larger hashes: from one that is just full, the first row it
        # drops must reach `_join`, which takes note. The largest hash kept is included, as its copies still count.
        if not self.exact and len(self._hashes) == self.size:
            below = int(np.searchsorted(hashes, self._hashes[-1], side="right"))
            hashes, first, counts = hashes[:below], first[:below], counts[:below]
        self._join(hashes, counts, pa.Table.from_batches([_plain(take_rows(batch, first))]))

    def _join(self, hashes: Hashes, counts: NDArray[np.int64], table: pa.Table) -> None:
        if self._table is None:
            self._hashes, self._counts, self._table = hashes, counts.astype(np.int64), table
            return
        if not len(hashes):
            return
        both = np.concatenate([self._hashes, hashes])
        distinct, first, inverse = np.unique(both, return_index=True, return_inverse=True)
        sums = np.zeros(len(distinct), np.int64)
        np.add.at(sums, inverse, np.concatenate([self._counts, counts]))
        if len(distinct) > self.size:
            self.exact = False
        keep = slice(0, self.size)
        joined = pa.concat_tables([self._table, table.select(self._table.schema.names)], promote_options="permissive")
        self._table = joined.take(arrow_of(first[keep])).combine_chunks()
        self._hashes, self._counts = distinct[keep], sums[keep]

    def merge(self, other: RowSample) -> None:
        """Take in the sample of other rows."""
        self.rows += other.rows
        self.exact = self.exact and other.exact
        if other._table is not None:
            self._join(other._hashes, other._counts, other._table)

    def table(self) -> pa.Table | None:
        """At most `size` rows in the order of their hashes, copies in proportion; None before the first batch."""
        if self._table is None:
            return None
        ends = np.cumsum(self._counts)
        total = int(ends[-1]) if len(ends) else 0
        if total <= self.size:
            copies = np.arange(total)
        else:
            # The middle of each of `size` equal parts of the copies: in proportion, without drawing at random.
            copies = ((2 * np.arange(self.size, dtype=np.int64) + 1) * total) // (2 * self.size)
        return self._table.take(arrow_of(np.searchsorted(ends, copies, side="right")))

    def to_parts(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The state as JSON-able scalars and named pyarrow arrays."""
        head = {"seed": self.seed, "size": self.size, "rows": self.rows, "exact": self.exact}
        if self._table is None:
            return head, {}
        table = bytes_array(to_ipc(self._table.combine_chunks()))
        return head, {"hashes": arrow_of(self._hashes), "counts": arrow_of(self._counts), "table": table}

    @classmethod
    def from_parts(cls, head: dict[str, Any], arrays: dict[str, Any]) -> RowSample:
        """The state that `to_parts` gave."""
        sample = cls(head["seed"], head["size"])
        sample.rows, sample.exact = head["rows"], head["exact"]
        if "table" in arrays:
            sample._hashes, sample._counts = numpy_of(arrays["hashes"]), numpy_of(arrays["counts"])
            sample._table = from_ipc(array_bytes(arrays["table"]))
        return sample


def _plain(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Without dictionaries, whose spelling depends on the batch."""
    columns = [c.dictionary_decode() if pa.types.is_dictionary(c.type) else c for c in batch.columns]
    return pa.RecordBatch.from_arrays(columns, batch.schema.names)
