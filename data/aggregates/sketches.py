"""Mergeable summaries of bounded size for columns with too many distinct values; all deterministic.

Equal rows in equal shards give equal bytes: nothing here draws a random number or depends on a hash seed. Each summary
knows its largest error, or its standard error.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ..arrays import arrow_of
from ..rowhash import hash_column
from .tables import (
    NumberTable,
    TextTable,
    merge_numbers,
    merge_texts,
    text_offsets,
)
from .text_rows import TextRows, counted, hashes_of, split_singles

_WIDTH: Final = 2048  # items that a quantile summary keeps per level
_PRECISION: Final = 14  # HyperLogLog: 2^14 registers, standard error 0.8 %
_BLOCK: Final = 1 << 13  # numbers hashed at a time: temporaries stay in cache, and on the heap
_CAPACITY: Final = 2048  # values that a frequency summary keeps
_BYTES: Final = 1 << 24  # and bytes of them together
_SAMPLE: Final = 512  # distinct texts sampled: a share is known to about 2 %
_BEGINNING: Final = 512  # bytes kept of each


class QuantileSketch:
    """Quantiles by deterministic compaction (Munro & Paterson 1980; Manku, Rajagopalan & Lindsay 1998).

    Level h holds sorted values that stand for 2^h rows each. A level that is too full is halved: every second value
    moves up, alternately the even and the odd ones. One halving shifts any rank by at most 2^h; `error` is the sum of
    these shifts, so a rank is wrong by at most `error` rows (about 0.2 % of them for millions of rows).
    """

    def __init__(self) -> None:
        self.levels: list[NDArray[np.float64]] = []
        self.odd: list[int] = []
        self.error = 0

    def add(self, table: NumberTable) -> None:
        """Take in a table: a value with count 5 = 4 + 1 enters level 2 and level 0, which costs no precision."""
        values = table.values.astype(np.float64)
        counts = table.counts
        deepest = int(counts.max()).bit_length() if len(counts) else 0
        for level in range(deepest):
            chosen = values if deepest == 1 else values[(counts >> level) & 1 == 1]
            if len(chosen):
                self._put(level, chosen)
        self._shrink()

    def merge(self, other: QuantileSketch) -> None:
        """Take in the summary of the rows that follow."""
        for level, values in enumerate(other.levels):
            if len(values):
                self._put(level, values)
        # `odd` is the parity of a level's halvings; that of both histories together is the xor, in either order.
        for level, odd in enumerate(other.odd):
            self.odd[level] ^= odd
        self.error += other.error
        self._shrink()

    def _put(self, level: int, values: NDArray[np.float64]) -> None:
        """Add ascending values to a level, each of which stands for 2^level rows."""
        while len(self.levels) <= level:
            self.levels.append(np.zeros(0))
            self.odd.append(0)
        mine = self.levels[level]
        self.levels[level] = np.sort(np.concatenate((mine, values)), kind="stable") if len(mine) else values

    def _shrink(self) -> None:
        level = 0  # upwards, since what moves up may overfill the next level
        while level < len(self.levels):
            values = self.levels[level]
            if len(values) >= 2 * _WIDTH:
                even = len(values) // 2 * 2  # a last odd value stays, for it stands for no pair
                self._put(level + 1, values[self.odd[level] : even : 2])
                self.levels[level] = values[even:]
                self.odd[level] ^= 1
                self.error += 1 << level
            level += 1

    def table(self) -> NumberTable:
        """The summary as a table of values and the rows each stands for."""
        parts = [
            NumberTable(values, np.full(len(values), 1 << level, np.int64))
            for level, values in enumerate(self.levels)
            if len(values)
        ]
        return merge_numbers(parts) if parts else NumberTable(np.zeros(0), np.zeros(0, np.int64))


class DistinctSketch:
    """Number of distinct values by HyperLogLog (Flajolet et al. 2007), 2^14 registers; merge is a maximum.

    The registers depend on the set of values alone: not on order, repetition or shards.
    """

    standard_error: Final = 1.04 / math.sqrt(1 << _PRECISION)

    def __init__(self) -> None:
        self.registers: NDArray[np.uint8] = np.zeros(1 << _PRECISION, np.uint8)

    def add(self, table: NumberTable | TextTable | TextRows) -> None:
        """Count the distinct values of a table; how many rows each has does not matter."""
        if isinstance(table, (TextRows, TextTable)):
            self.add_hashes(hashes_of(table))
            return
        for start in range(0, len(table.values), _BLOCK):
            self.add_hashes(hash_column(arrow_of(table.values[start : start + _BLOCK])))

    def add_hashes(self, hashes: NDArray[np.uint64]) -> None:
        """Take in the values of these hashes."""
        index = (hashes >> np.uint64(64 - _PRECISION)).astype(np.int64)
        rest = hashes << np.uint64(_PRECISION)
        # The position of the first one-bit is the exponent (biased) of the top 53 bits as a float64. That is exact: the
        # bits cut off are zeros that the shift above brought in. The exponent of 0 is 0, hence the minimum.
        exponent = (rest >> np.uint64(11)).astype(np.float64).view(np.int64) >> 52
        rank = np.minimum(1023 + 53 - exponent, 64 - _PRECISION + 1).astype(np.uint8)
        np.maximum.at(self.registers, index, rank)

    def merge(self, other: DistinctSketch) -> None:
        """Count the values of another sketch too: the larger register of each pair."""
        np.maximum(self.registers, other.registers, out=self.registers)

    def estimate(self) -> int:
        """The number of distinct values, rounded."""
        # Constants, and linear counting where registers are empty, as in figure 3 of Flajolet et al.; their correction
        # of large counts is for hashes of 32 bits.
        size = len(self.registers)
        raw = 0.7213 / (1 + 1.079 / size) * size * size / float(np.exp2(-self.registers.astype(np.float64)).sum())
        empty = int((self.registers == 0).sum())
        return round(size * math.log(size / empty) if raw <= 2.5 * size and empty else raw)


class FrequentSketch:
    """The frequent values by Misra & Gries (1982), merged as Agarwal et al. (2012).

    A kept value's true count lies in [count, count + error]; a value not kept occurs at most `error` times. It keeps as
    many values as there is room for: 2,048, and of texts 16 MiB.
    """

    def __init__(self) -> None:
        self.table: NumberTable | TextTable | None = None
        self.error = 0

    def add(self, table: NumberTable | TextTable | TextRows) -> None:
        """Count a table's values by their rows; the rarest are dropped where there is no room."""
        if not isinstance(table, TextRows):
            self._put(table)
            return
        assert not isinstance(self.table, NumberTable)
        repeated, singles, size = split_singles(table, self.table)
        if singles > _CAPACITY or size > _BYTES:  # more than there is room for, each with one row: none stays
            self._put(repeated, with_singles=True)
        else:
            self._put(counted(table))

    def merge(self, other: FrequentSketch) -> None:
        """Take in the summary of other rows."""
        self.error += other.error
        if other.table is not None:
            self._put(other.table)

    def _put(self, table: NumberTable | TextTable, *, with_singles: bool = False) -> None:
        """Take in a table; `with_singles`: and values of one row each, more than there is room for."""
        merged: NumberTable | TextTable
        if self.table is None or not len(self.table.counts):
            merged = table
        elif isinstance(table, TextTable):
            assert isinstance(self.table, TextTable)
            merged = merge_texts([self.table, table])
        else:
            assert isinstance(self.table, NumberTable)
            merged = merge_numbers([self.table, table])
        cut = _cut(merged, with_singles)
        if cut:
            keep = merged.counts > cut
            self.error += cut
            counts = merged.counts[keep] - cut
            if isinstance(merged, TextTable):
                merged = TextTable(merged.values.take(arrow_of(np.flatnonzero(keep))), counts)
            else:
                merged = NumberTable(merged.values[keep], counts)
        self.table = merged


def _cut(table: NumberTable | TextTable, with_singles: bool) -> int:
    """What to subtract from every count, so that the values left above 0 fit; 0 where all values fit.

    It is the largest count of a value that does not fit, as Agarwal et al. merge. With singles it is at least 1, since
    those, of one row each, are dropped.
    """
    room = _CAPACITY
    if isinstance(table, TextTable) and table.size > _BYTES:
        order = np.argsort(-table.counts)
        sizes = np.diff(text_offsets(table.values))[order]
        room = min(room, int(np.searchsorted(np.cumsum(sizes), _BYTES, side="right")))
    if len(table.counts) <= room:
        return int(with_singles)
    if table.counts.max() == 1:  # as of continuous columns: the largest is the least
        return 1
    return int(-np.partition(-table.counts, room)[room])


class TextSample:
    """The values of smallest hash: a sample of the distinct texts, each with all its rows (Cohen & Kaplan 2007).

    It depends on the rows alone: a value of the sample was among the smallest in every part that has it, so its rows
    are exact, and merging in any order gives the same. Of long values the beginning is kept.

    Attributes:
        hashes: Ascending.
        values: pyarrow `large_binary`, in the order of the hashes.
        counts: Rows of each.
    """

    def __init__(self) -> None:
        self.hashes: NDArray[np.uint64] = np.zeros(0, np.uint64)
        self.values: Any = pa.nulls(0, pa.large_binary())
        self.counts: NDArray[np.int64] = np.zeros(0, np.int64)

    def add(self, values: Any, counts: NDArray[np.int64], hashes: NDArray[np.uint64]) -> None:
        """Take in values, repeated or not, the rows of each, and their `text_hashes`."""
        full = len(self.hashes) == _SAMPLE  # then only smaller hashes enter, and the largest kept goes on counting
        chosen = np.flatnonzero(hashes <= self.hashes[-1]) if full else np.arange(len(hashes))
        if len(chosen) > 8 * _SAMPLE:  # few values repeat: of the smallest hashes, enough are distinct
            # Hashes are spread evenly, so this bound leaves about four times as many as are kept.
            bound = (int(self.hashes[-1]) if full else 2**64 - 1) * 4 * _SAMPLE // len(chosen)
            some = chosen[hashes[chosen] <= np.uint64(bound)]
            chosen = some if len(np.unique(hashes[some])) >= _SAMPLE else chosen
        if len(chosen):
            if len(chosen) < len(values):
                values = values.take(arrow_of(chosen))
            beginnings = pc.binary_slice(values, 0, _BEGINNING)
            self._put(beginnings, counts[chosen], hashes[chosen])

    def merge(self, other: TextSample) -> None:
        """Take in the sample of other rows."""
        if len(other.hashes):
            self._put(other.values, other.counts, other.hashes)

    def _put(self, values: Any, counts: NDArray[np.int64], hashes: NDArray[np.uint64]) -> None:
        known = np.concatenate((self.hashes, hashes))
        distinct, first, which = np.unique(known, return_index=True, return_inverse=True)
        rows = np.zeros(len(distinct), np.int64)
        np.add.at(rows, which, np.concatenate((self.counts, counts)))
        self.hashes, self.counts = distinct[:_SAMPLE], rows[:_SAMPLE]
        self.values = pa.concat_arrays([self.values, values]).take(arrow_of(first[:_SAMPLE]))


def sketch_quantiles(table: NumberTable, levels: Sequence[float]) -> list[float]:
    """The values at the given ranks of a summary's table, without interpolation."""
    ends = np.cumsum(table.counts)
    ranks = [min(int(level * int(ends[-1])), int(ends[-1]) - 1) for level in levels]
    return [float(table.values[int(np.searchsorted(ends, rank, side="right"))]) for rank in ranks]
