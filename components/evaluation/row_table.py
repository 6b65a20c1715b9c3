"""Rows by column, with the slices that they are in: rows of the same slices share a cell, of which there are few."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...data.aggregates.tables import ascending_order
from .cells import Cells
from .slicing import NO_SLICE

SUMMED: Final = NO_SLICE
"""In place of a slice's code: the row is in its states already, or in no slice."""


@dataclass(frozen=True, eq=False)
class RowTable:
    """n rows. One that is in several slices of a spec comes several times, each time with other codes.

    Attributes:
        columns: `label`, one for each model, and `weight`, `query` and `bucket` where there are such; (n,) or (n, k).
        cell: (n,), the cell of each row.
        codes: (cells, specs) of int32, the slice of each spec that a cell's rows are in, or `SUMMED`.
    """

    columns: Mapping[str, NDArray[Any]]
    cell: NDArray[Any]
    codes: NDArray[np.int32]

    @classmethod
    def of(cls, columns: Mapping[str, NDArray[Any]], codes: NDArray[np.int32]) -> RowTable:
        """Rows with these codes, (n, specs)."""
        cells = Cells.group(codes, None, 0)
        return cls(columns, cells.of, cells.codes)

    def __len__(self) -> int:
        return len(self.cell)

    @property
    def nbytes(self) -> int:
        """Bytes of the rows."""
        return self.cell.nbytes + sum(values.nbytes for values in self.columns.values())

    def column(self, spec: int) -> NDArray[np.int32]:
        """The slice of a spec that each row is in, (n,)."""
        return self.codes[:, spec].take(self.cell)

    def cells(self, slices: int, *, by_bucket: bool = True) -> Cells:
        """The rows by cell, and by bucket where they have one and it matters; codes are below `slices`."""
        bucket = self.columns.get("bucket")
        if bucket is not None and by_bucket:
            return Cells.group(self.codes[self.cell], bucket, slices)
        return self._by_cell if self._by_cell.slices == slices else replace(self._by_cell, slices=slices)

    @cached_property
    def _by_cell(self) -> Cells:
        zeros = np.zeros(len(self.codes), dtype=np.int64)
        return Cells(self.cell, self.codes, zeros, int(self.codes.max(initial=-1)) + 1)

    def take(self, positions: NDArray[np.int64]) -> RowTable:
        """The rows at these positions."""
        # Quicker than by brackets.
        columns = {name: values.take(positions, axis=0) for name, values in self.columns.items()}
        return RowTable(columns, self.cell.take(positions), self.codes)

    def where(self, which: NDArray[np.bool_]) -> RowTable:
        """The rows where a mask holds."""
        return self if which.all() else self.take(np.flatnonzero(which))

    def renumbered(self, codes: NDArray[np.int32]) -> RowTable:
        """The same rows with the code at the position of each; at the last that of `SUMMED`."""
        return RowTable(self.columns, self.cell, codes[self.codes])

    def split(self, codes: Collection[int], slices: int) -> tuple[RowTable, RowTable]:
        """The rows of some slices, with no other code, and the rows that other slices have, without these codes."""
        chosen = np.zeros(slices + 1, dtype=np.bool_)  # the last is that of SUMMED
        chosen[list(codes)] = True
        mine = chosen[self.codes]
        parts = (np.where(mask, self.codes, np.int32(SUMMED)) for mask in (mine, ~mine))
        left, right = (RowTable(self.columns, self.cell, part)._in_some() for part in parts)
        return left, right

    def _in_some(self) -> RowTable:
        some = (self.codes != SUMMED).any(axis=1)
        return self if some.all() else self.where(some[self.cell])

    def by_score(self, names: Sequence[str], *, ties: bool) -> RowTable:
        """The rows ascending by the first of these columns; and where it ties by the others, and then by their slices.

        Whatever way equal rows came in, they then stand alike.
        """
        # Equal slices may have several ranks, but then whole rows are equal, which may stand in any order.
        rank = np.empty(len(self.codes), dtype=np.int64)
        rank[np.lexsort(self.codes.T[::-1])] = np.arange(len(rank))
        keys = [self.columns[name] for name in names if name in self.columns]
        flat = [column for key in keys for column in (key.T if key.ndim == 2 else (key,))]
        first = flat[0]
        sorted_already = bool((first[1:] >= first[:-1]).all())
        order = np.arange(len(first)) if sorted_already else ascending_order(first)
        if not ties:
            return self if sorted_already else self.take(order)
        first = first if sorted_already else first[order]
        equal = first[1:] == first[:-1]
        if equal.any():
            # Only rows that are tied in the first key need the others.
            tied = np.flatnonzero(np.concatenate([[False], equal]) | np.concatenate([equal, [False]]))
            some = order[tied]
            order[tied] = some[np.lexsort([rank[self.cell[some]], *(key[some] for key in flat[::-1])])]
        elif sorted_already:
            return self
        return self.take(order)


def joined(tables: Sequence[RowTable]) -> list[RowTable]:
    """All rows in one table, or none where there are no tables."""
    if len(tables) < 2:
        return list(tables)
    columns = {name: np.concatenate([table.columns[name] for table in tables]) for name in tables[0].columns}
    cells = Cells.group(np.concatenate([table.codes for table in tables]), None, 0)
    of_table = np.split(cells.of.astype(np.int32), np.cumsum([len(table.codes) for table in tables])[:-1])
    cell = np.concatenate([of.take(table.cell) for of, table in zip(of_table, tables, strict=True)])
    return [RowTable(columns, cell, cells.codes)]
