"""Deterministic splits: the split of a row depends on its values, never on its position."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ..errors import InputError, suggest
from .arrays import texts
from .rowhash import hash_column, hash_rows, mix
from .sources import Source

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_MOST = 10**9


def _check_name(name: object) -> None:
    """Raise InputError for a name that no folder of a split can have."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InputError(f"{name!r} cannot name a split", fix="use letters, digits, '_', '-' and '.'")


@dataclass(frozen=True)
class HashSplit:
    """A `Route` that sends each row to one of several splits by hash.

    Equal rows, or rows with an equal value in `by`, always go together. A missing value of `by` is a value.

    Attributes:
        weights: Name and share of each split, in order. With W the sum of the shares, `hash mod W` chooses the split.
        by: The column that decides, or None for the whole row.
    """

    weights: tuple[tuple[str, int], ...]
    by: str | None = None

    @classmethod
    def of(cls, weights: Mapping[Any, object], by: str | None = None) -> Self:  # Any: checked below
        """A split from names and whole-number shares, e.g. {"train": 2, "eval": 1}; order matters.

        Raises:
            InputError: No splits, a share that is not a positive whole number, or a name that cannot be a folder's.
        """
        if not weights or not isinstance(weights, Mapping):
            raise InputError(
                "there are no splits" if not weights else f"splits are names with shares, not {weights!r:.80}",
                fix='say e.g. splits={"train": 2, "eval": 1}',
            )
        shares: list[tuple[str, int]] = []
        for name, weight in weights.items():
            _check_name(name)
            if isinstance(weight, bool) or not isinstance(weight, int) or not 1 <= weight <= _MOST:
                raise InputError(
                    f"split {name!r} has the share {weight!r}",
                    fix=f"use whole numbers from 1 to {_MOST:,}, e.g. 8 and 2 for 0.8 and 0.2",
                )
            shares.append((name, weight))
        return cls(tuple(shares), by)

    @property
    def names(self) -> tuple[str, ...]:
        """The splits' names; a row's number in `__call__` indexes them."""
        return tuple(name for name, _ in self.weights)

    def __call__(self, batch: pa.RecordBatch) -> NDArray[np.integer]:
        """The number of each row's split; int64.

        Raises:
            InputError: There is no column `by`, or one of a type that has no hash.
        """
        if len(self.weights) == 1:
            return np.zeros(len(batch), dtype=np.int64)
        if self.by is None:
            hashes = hash_rows(batch)
        elif self.by in batch.schema.names:
            hashes = mix(hash_column(batch.column(self.by)))
        else:
            raise InputError(
                f"split_by: there is no column {self.by!r}",
                fix=suggest(self.by, batch.schema.names, "the columns are:"),
            )
        bounds = np.cumsum([weight for _, weight in self.weights]).astype(np.uint64)
        chosen: NDArray[np.integer] = np.searchsorted(bounds, hashes % bounds[-1], side="right").astype(np.int64)
        return chosen


_MOST_SPLITS = 100


@dataclass(frozen=True)
class ColumnSplit:
    """A `Route` that sends each row to the split that its value in a column names.

    Attributes:
        names: The splits, in alphabetical order.
        by: The column; text, or whole numbers by their digits.
    """

    names: tuple[str, ...]
    by: str

    @classmethod
    def of(cls, source: Source, by: str) -> Self:
        """A split for each value of the column, which is read once.

        Raises:
            InputError: There is no such column, it holds neither text nor whole numbers, a row has no value in it
                (names file and row), a value cannot name a split, or there are more than a hundred.
        """
        if by not in source.columns:
            raise InputError(
                f"split_column: there is no column {by!r}", fix=suggest(by, source.columns, "the columns are:")
            )
        column = source.select([by])
        kind = column.schema.field(by).type
        if not (pa.types.is_string(kind) or pa.types.is_integer(kind)):
            raise InputError(f"split_column: {by!r} is {kind}", fix="give a column of names, or of whole numbers")
        names: set[str] = set()
        for shard in column.shards:
            before = 0
            for batch in column.read(shard):
                values = batch.column(0)
                if values.null_count:
                    row = before + values.is_null().index(True).as_py() + 1
                    raise InputError(
                        f"split_column: {shard.path} has no value of {by!r} in row {row}",
                        fix="give every row a split, or divide by hash with splits=",
                    )
                names.update(pc.unique(values).cast(pa.string()).to_pylist())
                before += len(batch)
            if len(names) > _MOST_SPLITS:
                raise InputError(
                    f"split_column: {by!r} names more than {_MOST_SPLITS} splits",
                    fix="to keep equal values together, say split_by= instead",
                )
        for name in sorted(names):
            _check_name(name)
        return cls(tuple(sorted(names)), by)

    def __call__(self, batch: pa.RecordBatch) -> NDArray[np.integer]:
        """The number of each row's split; int64.

        Raises:
            InputError: A value names none of the splits: the file changed while in use.
        """
        values = batch.column(self.by).cast(pa.string())
        indices = pc.index_in(values, value_set=texts(self.names))
        if indices.null_count:
            raise InputError(
                f"split_column: a value of {self.by!r} is new: the file changed while in use",
                fix="start again, and do not write to it meanwhile",
            )
        chosen: NDArray[np.integer] = np.asarray(indices.to_pylist(), np.int64)
        return chosen
