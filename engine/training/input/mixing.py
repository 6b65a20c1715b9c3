"""Several datasets as one: mixed by weights, in turns, or one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ....errors import InputError
from .columns import Columns, joined_columns, rows_in, taken
from .dataset import Cursor, Dataset, State, Stream, check_seed, damaged, measured, parts_of, random_for

_CHUNK: Final = 4096
"""Rows that are mixed at a time."""


def mix(datasets: Sequence[Dataset], weights: Sequence[float], *, seed: int) -> Dataset:
    """Rows of several datasets, each next one from a dataset drawn by weight, until one that is drawn has no more.

    `mix([a.repeat(), b.repeat()], [0.9, 0.1], seed=0)` never ends.

    Args:
        datasets: They have the same columns.
        weights: One for each, above 0.
        seed: Of the draws.

    Raises:
        InputError: There are no datasets, or not as many weights, or a weight is not above 0.
    """
    return Mixed(_several(datasets), tuple(weights), seed)


def interleave(datasets: Sequence[Dataset], *, rows: int = 1) -> Dataset:
    """`rows` rows of each dataset in turn; those that have no more are passed over."""
    if rows < 1:
        raise InputError(f"interleave of {rows} rows", fix="use 1 or more")
    return Interleaved(_several(datasets), rows)


def concatenate(datasets: Sequence[Dataset]) -> Dataset:
    """The rows of one dataset after the other."""
    return Concatenated(_several(datasets))


def _several(datasets: Sequence[Dataset]) -> tuple[Dataset, ...]:
    if not datasets:
        raise InputError("there are no datasets to put together", fix="give one or more")
    return tuple(datasets)


@dataclass(frozen=True)
class _Joint(Dataset):
    """Several datasets put together."""

    several: tuple[Dataset, ...]

    @property
    def parents(self) -> Sequence[Dataset]:
        """All of them."""
        return self.several

    @property
    def rows(self) -> int | None:  # type: ignore[override]  # computed, not stored
        """Of all together."""
        counts = [dataset.rows for dataset in self.several]
        return None if None in counts else sum(count for count in counts if count is not None)

    def __str__(self) -> str:
        """With the datasets in brackets."""
        return f"{self.label}[{'; '.join(map(str, self.several))}]"


@dataclass(frozen=True)
class Mixed(_Joint):
    """See `mix`. Its state is the number of the next chunk of draws, and a cursor's for each dataset."""

    weights: tuple[float, ...]
    seed: int

    def __post_init__(self) -> None:
        check_seed(self.seed)
        if len(self.weights) != len(self.several):
            raise InputError(f"{len(self.several)} datasets and {len(self.weights)} weights", fix="give one for each")
        for weight in self.weights:
            if not 0 < weight < float("inf"):
                raise InputError(f"a weight is {weight}", fix="use numbers above 0; leave out what is not wanted")

    @property
    def label(self) -> str:
        """In short."""
        return f"mix({', '.join(map(str, self.weights))}, seed={self.seed})"

    @property
    def rows(self) -> int | None:  # type: ignore[override]  # computed, not stored
        """Not known: it depends on the draws."""
        return None

    def stream(self, epoch: int, state: State = None) -> Stream:
        """See `Dataset.stream`."""
        if isinstance(state, list) and state[:1] == [None]:  # it has ended
            return
        chunk, positions = parts_of(state, (0, [None] * len(self.several)))
        shares = np.cumsum(np.divide(self.weights, max(self.weights)))  # of large weights the sum is infinite
        shares /= shares[-1]
        with ExitStack() as opened:
            cursors = _cursors(opened, self.several, epoch, positions)
            while chunk is not None:
                random = random_for(self, self.seed, epoch, chunk)
                drawn = np.searchsorted(shares[:-1], random.random(_CHUNK), side="right")
                block, ended = _drawn(cursors, drawn)
                chunk = None if ended else chunk + 1
                if block is not None:
                    yield block, [chunk, [cursor.state for cursor in cursors]]


def _drawn(cursors: Sequence[Cursor], drawn: npt.NDArray[np.int64]) -> tuple[Columns | None, bool]:
    """The rows of the datasets of these numbers; whether one had no more, before whose turn they end."""
    parts: list[Columns] = []
    slots: list[npt.NDArray[np.int64]] = []
    end = len(drawn)
    for number, cursor in enumerate(cursors):
        mine = np.flatnonzero(drawn[:end] == number)  # what comes after the end need not be read
        part = cursor.take(len(mine))
        count = 0 if part is None else rows_in(part)
        if count < len(mine):
            end = min(end, int(mine[count]))
        if part is not None:
            parts.append(part)
            slots.append(mine[:count])
    order = np.argsort(np.concatenate(slots)) if slots else np.zeros(0, np.int64)
    inside = order[: int(np.searchsorted(np.sort(np.concatenate(slots)), end))] if slots else order
    return (taken(joined_columns(parts), inside) if len(inside) else None), end < len(drawn)


@dataclass(frozen=True)
class Interleaved(_Joint):
    """See `interleave`. Its state is whose turn it is, who still has rows, and a cursor's for each."""

    block: int

    @property
    def label(self) -> str:
        """In short."""
        return f"interleave({self.block})"

    def stream(self, epoch: int, state: State = None) -> Stream:
        """See `Dataset.stream`."""
        everyone = list(range(len(self.several)))
        turn, left, positions = parts_of(state, (0, everyone, [None] * len(everyone)))
        if left != [number for number in everyone if number in left] or turn >= max(1, len(left)):
            raise damaged(state)
        left = list(left)
        with ExitStack() as opened:
            cursors = _cursors(opened, self.several, epoch, positions)
            while left:
                block = cursors[left[turn]].take(self.block)
                if block is None or rows_in(block) < self.block:
                    del left[turn]
                else:
                    turn += 1
                turn %= max(1, len(left))
                if block is not None:
                    yield block, [turn, list(left), [cursor.state for cursor in cursors]]


@dataclass(frozen=True)
class Concatenated(_Joint):
    """See `concatenate`. Its state is the number of the dataset under way, and that one's."""

    @property
    def label(self) -> str:
        """In short."""
        return "concatenate"

    def stream(self, epoch: int, state: State = None) -> Stream:
        """See `Dataset.stream`."""
        first, at = parts_of(state, (0, None))
        if first >= len(self.several):
            raise damaged(state)
        for number in range(first, len(self.several)):
            with closing(measured(self.several[number], epoch, at)) as blocks:
                for block, after in blocks:
                    yield block, [number, after]
            at = None


def _cursors(opened: ExitStack, datasets: Sequence[Dataset], epoch: int, positions: Sequence[Any]) -> list[Cursor]:
    if len(positions) != len(datasets):
        raise damaged(positions)
    return [
        opened.enter_context(closing(Cursor(dataset, epoch, at)))
        for dataset, at in zip(datasets, positions, strict=True)
    ]
