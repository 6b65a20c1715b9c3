"""Shuffling: rows in another order each epoch, in windows of a stream, or all of them by their numbers."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from ....errors import InputError
from .columns import Array, Columns, rows_in, taken
from .dataset import Cursor, Dataset, InputStep, State, Stream, check_seed, parts_of, random_for, row_of

_BLOCK: Final = 16_384
"""Rows that are fetched by number at a time."""

_FEW: Final = 1 << 20
"""Rows whose order is drawn as a whole, from all orders alike; that of more would take memory."""


class IndexedDataset(Dataset):
    """A dataset whose rows can be reached by number."""

    def count(self) -> int:
        """How many rows there are."""
        raise NotImplementedError

    def take(self, rows: Array) -> Columns:
        """The rows of these numbers, int64 [rows], in their order."""
        raise NotImplementedError


def shuffled(dataset: Dataset, seed: int, window: int | None) -> Dataset:
    """See `Dataset.shuffle`."""
    check_seed(seed)
    if window is None:
        if not isinstance(dataset, IndexedDataset):
            raise InputError(
                f"the rows of {dataset.label} cannot be reached by number, as shuffling all of them needs",
                fix="shuffle(seed, window=100_000) shuffles so many at a time; or put cache(folder) before it",
            )
        return IndexShuffled(dataset, seed)
    if window < 1:
        raise InputError(f"a window of {window} rows", fix="use 1 or more")
    from .sources import FileRows

    return WindowShuffled(dataset.shuffled(seed) if isinstance(dataset, FileRows) else dataset, seed, window)


@dataclass(frozen=True)
class WindowShuffled(InputStep):
    """Rows shuffled in windows. Its state is a cursor's, and the number of the next window."""

    seed: int
    window: int

    @property
    def label(self) -> str:
        """In short."""
        return f"shuffle({self.seed}, window={self.window})"

    @property
    def batch_size(self) -> int | None:  # type: ignore[override]  # computed, not stored
        """They differ."""
        return None

    def stream(self, epoch: int, state: State = None) -> Stream:
        """See `Dataset.stream`."""
        at, window = parts_of(state, (None, 0))
        with closing(Cursor(self.parent, epoch, at)) as rows:
            while (block := rows.take(self.window)) is not None:
                order = random_for(self, self.seed, epoch, window).permutation(rows_in(block))
                window += 1
                yield taken(block, order), [rows.state, window]


@dataclass(frozen=True)
class IndexShuffled(Dataset):
    """All rows in random order. Its state is the place in that order."""

    parent: IndexedDataset
    seed: int

    @property
    def label(self) -> str:
        """In short."""
        return f"shuffle({self.seed})"

    @property
    def parents(self) -> tuple[Dataset, ...]:
        """Whose rows they are."""
        return (self.parent,)

    @property
    def rows(self) -> int | None:  # type: ignore[override]  # computed, not stored
        """As before."""
        return self.parent.rows

    def stream(self, epoch: int, state: State = None) -> Stream:
        """See `Dataset.stream`."""
        rows = self.parent.count()
        random = random_for(self, self.seed, epoch, 0)
        few = random.permutation(rows) if rows <= _FEW else None
        many = IndexPermutation(rows, random)
        for begin in range(row_of(state, rows), rows, _BLOCK):
            end = min(begin + _BLOCK, rows)
            yield self.parent.take(many(np.arange(begin, end)) if few is None else few[begin:end]), end


class IndexPermutation:
    """A random order of `rows` numbers that takes no memory: the number at any place of it is computed.

    A Feistel network of six rounds (Luby and Rackoff 1988) permutes the numbers below the next power of four; what
    falls outside goes through it again until it falls inside ("cycle walking", Black and Rogaway 2002).
    """

    def __init__(self, rows: int, random: np.random.Generator) -> None:
        """An order drawn from the generator."""
        self._rows = rows
        self._bits = np.uint64(max(1, (max(1, rows - 1).bit_length() + 1) // 2))
        self._mask = np.uint64((1 << int(self._bits)) - 1)
        self._keys = random.integers(0, 1 << 64, 6, np.uint64)

    def __call__(self, places: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The numbers at these places, int64 of the same shape."""
        numbers = self._round_trip(places.astype(np.uint64))
        while (outside := numbers >= self._rows).any():
            numbers[outside] = self._round_trip(numbers[outside])
        return numbers.astype(np.int64)

    def _round_trip(self, numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
        left, right = numbers >> self._bits, numbers & self._mask
        for key in self._keys:
            left, right = right, left ^ (_mixed(right ^ key) & self._mask)
        return (left << self._bits) | right


def _mixed(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """A hash of each number: the finaliser of SplitMix64 (Steele, Lea, Flood 2014)."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))
