"""Batches: rows cut anew, lists padded to one length, rows of like length brought together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....errors import InputError, suggest
from ...ragged.rows import FlatRows, bucket
from .columns import Columns, rows_in, taken
from .dataset import Cursor, InputStep, State, Stream, check_seed, damaged, measured, parts_of, random_for


@dataclass(frozen=True)
class Batched(InputStep):
    """See `Dataset.batch`. Its state is a cursor's."""

    size: int
    drop_remainder: bool = True

    def __post_init__(self) -> None:
        if self.size < 1:
            raise InputError(f"batches of {self.size}", fix="use 1 row or more")

    @property
    def label(self) -> str:
        """In short."""
        return f"batch({self.size}{'' if self.drop_remainder else ', drop_remainder=False'})"

    @property
    def rows(self) -> int | None:  # type: ignore[override]  # computed, not stored
        """Those of full batches, or all."""
        rows = self.parent.rows
        return rows if rows is None or not self.drop_remainder else rows // self.size * self.size

    @property
    def batch_size(self) -> int:  # type: ignore[override]  # as above
        """The rows of each, but of a shorter last one."""
        return self.size

    def stream(self, epoch: int, state: State = None) -> Stream:
        """See `Dataset.stream`."""
        with closing(Cursor(self.parent, epoch, state)) as rows:
            while (batch := rows.take(self.size)) is not None:
                if rows_in(batch) == self.size or not self.drop_remainder:
                    yield batch, rows.state


@dataclass(frozen=True)
class Padded(InputStep):
    """See `Dataset.pad`."""

    length: int | None
    names: tuple[str, ...] = ()
    value: float = 0
    overlong: str = "error"

    def __post_init__(self) -> None:
        if self.length is not None and self.length < 1:
            raise InputError(f"{self.label}: a length of {self.length}", fix="use 1 or more")
        if self.overlong not in ("error", "truncate"):
            raise InputError(f"overlong is {self.overlong!r}", fix='use "error" or "truncate"')

    @property
    def label(self) -> str:
        """In short."""
        wanted = [str(self.length), *self.names, *([f"value={self.value}"] if self.value else [])]
        return f"pad({', '.join([*wanted, *(['truncate'] if self.overlong == 'truncate' else [])])})"

    def stream(self, epoch: int, state: State = None) -> Stream:
        """See `Dataset.stream`."""
        with closing(measured(self.parent, epoch, state)) as blocks:
            for block, after in blocks:
                yield self._padded(block), after

    def _padded(self, block: Columns) -> Columns:
        columns: dict[str, Any] = dict(block)
        for name in self.names or [name for name, column in block.items() if isinstance(column, FlatRows)]:
            column = _lists(block, name, self.label)
            longest = int(column.lengths.max(initial=0))
            length = self.length or self._length(longest)
            if longest > length and self.overlong == "error":
                raise InputError(
                    f"{self.label}: a row of column {name!r} has {longest} values, more than {length}",
                    fix='pad to a larger length, or to None; or cut what is longer: overlong="truncate"',
                )
            refuse_column(f"{name}_length", block, self.label)
            columns[name], columns[f"{name}_length"] = filled(column, length, self.value)
        return columns

    def _length(self, longest: int) -> int:
        """What a bucketed batch is padded to, or the next power of two."""
        if isinstance(self.parent, Bucketed):
            return min(boundary for boundary in self.parent.boundaries if boundary >= longest)
        return bucket(longest, 1)


def filled(column: FlatRows, length: int, value: float) -> tuple[Any, Any]:
    """Lists as an array [rows, length, …], cut or filled up with `value`, and int32 [rows]: how many are real."""
    lengths = np.minimum(column.lengths, length)
    dtype = column.values.dtype
    if dtype.kind in "biu" and not (value == int(value if math.isfinite(value) else 0) and _holds(dtype, int(value))):
        raise InputError(f"lists of {dtype} cannot be filled up with {value}", fix="pad with a value of that dtype")
    array = np.full((len(column), length, *column.values.shape[1:]), value, dtype)
    real = np.arange(length) < lengths[:, None]
    array[real] = column.values[(column.splits[:-1, None] + np.arange(length))[real]]
    return array, lengths.astype(np.int32)


def _holds(dtype: np.dtype[Any], value: int) -> bool:
    limits = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    return bool(limits[0] <= value <= limits[1])


def refuse_column(name: str, block: Columns, step: str) -> None:
    """Refuse to write over a column.

    Raises:
        InputError: There is one of that name.
    """
    if name in block:
        raise InputError(
            f"{step} adds a column {name!r}, and there is one",
            fix="rename it in a map(…), or leave it out by select(…)",
        )


@dataclass(frozen=True)
class Bucketed(InputStep):
    """See `Dataset.bucket`. Its state is a cursor's, the number of the window and of batches that are gone of it."""

    name: str
    boundaries: tuple[int, ...]
    size: int
    window: int
    seed: int

    def __post_init__(self) -> None:
        for what, number in (("batch_size", self.size), ("window", self.window)):
            if number < 1:
                raise InputError(f"{what} is {number}", fix="use 1 or more")
        check_seed(self.seed)
        if not self.boundaries or list(self.boundaries) != sorted(set(self.boundaries)) or self.boundaries[0] < 1:
            raise InputError(f"boundaries are {list(self.boundaries)}", fix="give ascending lengths from 1 on")

    @property
    def label(self) -> str:
        """In short."""
        return f"bucket({self.name}, {list(self.boundaries)}, {self.size}, {self.window}, seed={self.seed})"

    @property
    def rows(self) -> int | None:  # type: ignore[override]  # computed, not stored
        """Those of full batches."""
        rows = self.parent.rows
        return None if rows is None else rows // self.size * self.size

    @property
    def batch_size(self) -> int:  # type: ignore[override]  # as above
        """The rows of each."""
        return self.size

    def stream(self, epoch: int, state: State = None) -> Stream:
        """See `Dataset.stream`."""
        at, window, gone = parts_of(state, (None, 0, 0))
        with closing(Cursor(self.parent, epoch, at)) as rows:
            while (block := rows.take(self.size * self.window)) is not None:
                lengths = _lists(block, self.name, self.label).lengths
                if lengths.max() > self.boundaries[-1]:
                    raise InputError(
                        f"{self.label}: a row of column {self.name!r} has {lengths.max()} values, more than the last "
                        f"boundary, {self.boundaries[-1]}",
                        fix="add a larger boundary, or drop or cut such rows in a step before",
                    )
                order = np.argsort(np.searchsorted(self.boundaries, lengths), kind="stable")
                full = rows_in(block) // self.size
                if gone > full:
                    raise damaged(state)
                # A shorter last batch of the epoch is left out: of random rows, not of the longest ones.
                random = random_for(self, self.seed, epoch, window)
                left_out = random.choice(len(order), len(order) - full * self.size, replace=False)
                order = order[~np.isin(order, left_out)]
                batches = order.reshape(full, self.size)[random.permutation(full)]
                for number in range(gone, full):
                    done = number == full - 1
                    after = [rows.state, window + 1, 0] if done else [at, window, number + 1]
                    yield taken(block, batches[number]), after
                at, window, gone = rows.state, window + 1, 0


def _lists(block: Columns, name: str, step: str) -> FlatRows:
    if name not in block:
        raise InputError(f"{step}: there is no column {name!r}", fix=suggest(name, list(block), "there are"))
    column = block[name]
    if not isinstance(column, FlatRows):
        raise InputError(f"{step}: column {name!r} has no lists", fix="name a column with a list per row")
    return column


def sequences(block: Columns, names: Sequence[str], step: str) -> list[FlatRows]:
    """Columns of lists that are equally long in each row.

    Raises:
        InputError: A column is missing, or has no lists, or lists of another length.
    """
    columns = [_lists(block, name, step) for name in names]
    for name, column in zip(names[1:], columns[1:], strict=True):
        if not np.array_equal(column.splits, columns[0].splits):
            row = int(np.flatnonzero(column.lengths != columns[0].lengths)[0])
            raise InputError(
                f"{step}: a row has {columns[0].lengths[row]} values in {names[0]!r} and {column.lengths[row]} in "
                f"{name!r}",
                fix="pack columns together whose lists are equally long",
            )
    return columns
