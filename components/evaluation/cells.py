"""Rows of many slices at once: rows of the same slices share a cell, and a slice's sum is one over its cells."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

_Ints: TypeAlias = NDArray[np.int64]
_Floats: TypeAlias = NDArray[np.float64]
_FEW: Final = 4096  # numbers that are counted rather than sorted, however few rows there are
_SORTED: Final = 8  # numbers for each row, from which on these are quicker sorted


@dataclass(frozen=True, eq=False)
class Cells:
    """n rows by the slices they are in, and by their bucket where they have one.

    Attributes:
        of: (n,), the cell of each row.
        codes: (cells, specs), the slice of each spec that a cell's rows are in; negative where they are in none.
        buckets: (cells,), their bucket; 0 where rows have none.
        slices: One more than the largest code there may be.
        labels: (cells,), the label of a cell's rows, where those of another label are in another cell.
    """

    of: _Ints
    codes: NDArray[np.int32]
    buckets: _Ints
    slices: int
    labels: NDArray[np.bool_] | None = None
    _known: dict[int, tuple[Any, Any]] = field(default_factory=dict, repr=False)  # by the array that it was made of

    @classmethod
    def group(cls, codes: NDArray[np.int32], bucket: NDArray[np.int16] | None, slices: int) -> Self:
        """The cells of rows with these codes, (n, specs), and buckets, (n,)."""
        of, row = grouped([*codes.T, *(() if bucket is None else (bucket,))], len(codes))
        buckets = np.zeros(len(row), dtype=np.int64) if bucket is None else bucket[row].astype(np.int64)
        return cls(of, codes[row], buckets, slices)

    def by_label(self, label: NDArray[Any]) -> Cells:
        """The same by the rows' label as well, where that is yes or no; the same where it is something else."""
        if label.dtype != np.bool_ or label.ndim != 1:
            return self

        def halved() -> Cells:
            codes, buckets = np.repeat(self.codes, 2, axis=0), np.repeat(self.buckets, 2)
            labels = np.arange(len(codes)) % 2 == 1
            return Cells(self.of * 2 + label, codes, buckets, self.slices, labels)

        halves: Cells = self.once(label, halved)
        return halves

    def counts(self, of: Any = slice(None), label: bool | None = None) -> list[int]:
        """How many of the rows `of`, a slice of them, a mask or positions, each slice has; or those of a label."""
        mask = isinstance(of, np.ndarray) and of.dtype == np.bool_  # to add it up is quicker than to choose by it
        if mask:
            counts = self.once(of, lambda: self.cell_sums(of))
        else:
            counts = self._counts if isinstance(of, slice) and of == slice(None) else self.cell_sums(None, of)
        whole: list[int] = self.by_slice(counts, label).astype(np.int64).tolist()
        return whole

    @cached_property
    def _counts(self) -> _Floats:
        return self.cell_sums(None)

    def once(self, values: NDArray[Any], compute: Callable[[], Any]) -> Any:  # Any: whatever `compute` gives
        """What was computed of these values before, where states have them in common."""
        known = self._known.get(id(values))
        if known is None:  # which holds on to the values, so that no others have their address
            known = self._known[id(values)] = values, compute()
        return known[1]

    def bucket_sums(self, values: _Floats | None, of: Any, buckets: int) -> _Floats:
        """As `sums`, by bucket as well: (slices, buckets); None counts the rows."""
        by_cell = self.cell_sums(values, of)
        total = np.zeros((self.slices + 1, buckets))
        for column in self._columns:
            at = column * buckets + self.buckets
            total += np.bincount(at, by_cell, minlength=total.size).reshape(total.shape)
        return total[1:]

    @cached_property
    def _columns(self) -> list[_Ints]:
        """For each spec that has codes at all, those of its cells + 1; 0 for none."""
        return [np.maximum(column, -1).astype(np.int64) + 1 for column in self.codes.T if (column >= 0).any()]

    def cell_sums(self, values: Any, of: Any = slice(None)) -> _Floats:
        """Σ values over the rows `of` of each cell, (cells,); None counts them."""
        if len(self.codes) == 1:
            return np.array([float(len(self.of[of]) if values is None else np.sum(values))])
        sums: _Floats = np.bincount(self.of[of], values, minlength=len(self.codes)).astype(np.float64, copy=False)
        return sums

    def by_slice(self, sums: _Floats, label: bool | None = None) -> _Floats:
        """From one number for each cell to their sum for each slice; or of the cells of a label alone."""
        if label is not None:
            assert self.labels is not None, "these are cells of `by_label`"
            sums = np.where(self.labels == label, sums, 0.0)
        total = np.zeros(self.slices + 1)
        for column in self._columns:
            total += np.bincount(column, sums, minlength=len(total))
        return total[1:]

    def positions(self, of: Any = slice(None)) -> Iterator[tuple[int, _Ints | slice]]:
        """Each slice that has some of the rows `of`, and where these stand among them."""
        codes = self.codes[self.of[of]]
        for column in codes.T:
            yield from by_code(column)


def by_code(codes: NDArray[np.int32]) -> Iterator[tuple[int, _Ints | slice]]:
    """Each code that is not negative, and where it stands."""
    order, spans = in_order_of_code(codes)
    for code, span in spans:
        yield code, span if order is None else order[span]


def in_order_of_code(codes: NDArray[np.int32]) -> tuple[_Ints | None, list[tuple[int, slice]]]:
    """Rows with those of each code together, in their order.

    Args:
        codes: (n,), the code of each row; -1 where it has none.

    Returns:
        The positions of the rows, (n,), or None where they stand so already; and each code with its span among them.
    """
    high = int(codes.max(initial=-1))
    if high < 0:
        return None, []
    if int(codes.min()) == high:  # the overall slice needs no sorting
        return None, [(high, slice(None))]
    # NumPy sorts integers of 8 and 16 bits by radix.
    small = (codes + 1).astype(np.min_scalar_type(high + 1), copy=False)
    counts = np.bincount(small)
    ends = np.cumsum(counts)
    present = np.flatnonzero(counts[1:]) + 1
    spans = [(code - 1, slice(ends[code - 1].item(), ends[code].item())) for code in present.tolist()]
    return np.argsort(small, kind="stable"), spans


def grouped(columns: Sequence[NDArray[Any]], rows: int) -> tuple[_Ints, _Ints]:
    """A number for each of the rows, from 0 on, that those with equal integers in each column share; and a row of each.

    Numbers are in the order of the columns' integers.
    """
    of, count = np.zeros(rows, dtype=np.int64), 1
    for column in columns:
        low = int(column.min(initial=0))
        width = int(column.max(initial=0)) - low + 1
        if count * width > max(rows, _FEW):
            of, count = _numbered(of, count)
        if width > 1:
            digits = column - low if low else column
            of = of * width + digits if count > 1 else digits.astype(np.int64, copy=False)
            count *= width
    of, count = _numbered(of, count)
    row = np.zeros(count if rows else 0, dtype=np.int64)
    row[of] = np.arange(rows)  # any row with the number
    return of, row


def _numbered(numbers: _Ints, end: int) -> tuple[_Ints, int]:
    """The position of each number among the distinct ones, and how many these are."""
    if end == 1:
        return numbers, 1
    present, position = distinct(numbers, end)
    return position, len(present)


def distinct(numbers: _Ints, end: int) -> tuple[_Ints, _Ints]:
    """The distinct numbers ascending, and the position of each number among them; all are from 0 to below `end`."""
    if end > max(_SORTED * len(numbers), _FEW):
        return np.unique(numbers, return_inverse=True)
    present = np.flatnonzero(np.bincount(numbers, minlength=end))
    position = np.zeros(end, dtype=np.int64)
    position[present] = np.arange(len(present))
    return present, position.take(numbers)
