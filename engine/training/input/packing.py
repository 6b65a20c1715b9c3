"""Packing: several sequences in one row of fixed length, with what attention needs to keep them apart."""

from __future__ import annotations

from bisect import bisect_left, insort
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....errors import InputError
from .batches import refuse_column, sequences
from .columns import Columns
from .dataset import Cursor, State, Stream, UncountedStep


@dataclass(frozen=True)
class Packed(UncountedStep):
    """See `Dataset.pack`. Its state is a cursor's: each window of sequences is packed by itself."""

    names: tuple[str, ...]
    length: int
    window: int

    def __post_init__(self) -> None:
        if not self.names:
            raise InputError("pack() names no column", fix="name those with the sequences")
        for what, number in (("length", self.length), ("window", self.window)):
            if number < 1:
                raise InputError(f"{what} is {number}", fix="use 1 or more")

    @property
    def label(self) -> str:
        """In short."""
        return f"pack({', '.join(self.names)}, length={self.length}, window={self.window})"

    def stream(self, epoch: int, state: State = None) -> Stream:
        """See `Dataset.stream`."""
        with closing(Cursor(self.parent, epoch, state)) as rows:
            while (block := rows.take(self.window)) is not None:
                if packed := self._packed(block):
                    yield packed, rows.state

    def _packed(self, block: Columns) -> Columns:
        columns = sequences(block, self.names, self.label)
        lengths = columns[0].lengths
        if lengths.max(initial=0) > self.length:
            raise InputError(
                f"{self.label}: a sequence has {lengths.max()} values, more than {self.length}",
                fix="pack into a larger length, or cut sequences in a map(…) before",
            )
        bins = best_fit(lengths.tolist(), self.length)
        if not bins:
            return {}
        # Where each value goes: the row of its sequence's bin, behind the sequences that came into it before.
        members = np.concatenate(bins)
        counts = lengths[members]
        row = np.repeat(np.arange(len(bins)), [len(each) for each in bins])
        before = np.cumsum(counts) - counts
        begins = before - before[np.searchsorted(row, np.arange(len(bins)))][row]
        number = np.arange(len(members)) - np.searchsorted(row, row) + 1
        positions = np.arange(counts.sum()) - np.repeat(before, counts)
        slots = np.repeat(row, counts), np.repeat(begins, counts) + positions
        source = np.repeat(columns[0].splits[members], counts) + positions
        result: dict[str, Any] = {}
        for name, column in zip(self.names, columns, strict=True):
            result[name] = np.zeros((len(bins), self.length, *column.values.shape[1:]), column.values.dtype)
            result[name][slots] = column.values[source]
        for name, values in (("segment_ids", np.repeat(number, counts)), ("positions", positions)):
            refuse_column(name, result, self.label)
            result[name] = np.zeros((len(bins), self.length), np.int32)
            result[name][slots] = values
        return result


def best_fit(lengths: list[int], capacity: int) -> list[list[int]]:
    """The numbers of the sequences in each bin: the longest first, each into the fullest bin that it fits.

    "Best fit decreasing" (Johnson 1973): never more than 11/9 of the best number of bins, and 4. Empty ones are left
    out.
    """
    bins: list[list[int]] = []
    room: list[tuple[int, int]] = []  # (free slots, bin), ascending
    for number in sorted(range(len(lengths)), key=lambda each: -lengths[each]):
        length = lengths[number]
        if not length:
            break
        at = bisect_left(room, (length, -1))
        if at == len(room):
            bins.append([number])
            insort(room, (capacity - length, len(bins) - 1))
        else:
            free, chosen = room.pop(at)
            bins[chosen].append(number)
            insort(room, (free - length, chosen))
    return bins
