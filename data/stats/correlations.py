"""Correlation and covariance of every two numeric columns over the rows that have both.

All sums are exact, so that any split and order of the rows gives the same bytes, also where BLAS uses several threads.
Each block of values is cut into pieces of 18 bits on one grid (`_pieces`); float64 adds products of such pieces without
rounding, so a matrix product of the pieces is exact (Ozaki, Ogita, Oishi and Rump 2012), and Python integers collect
the blocks. The results are the true ones, rounded.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations_with_replacement
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...errors import InputError
from ..arrays import numpy_of
from .column import kind_of

MOST: Final = 300  # columns; pairs grow with their square
_BLOCK: Final = 1 << 15  # rows: 2^36 (product of two pieces) × 2^15 stays within float64's 2^53
_BITS: Final = 18
_POINT: Final = 1074  # bits below the point of a sum; twice as many of a product
_NUMERIC: Final = frozenset({"bool", "int", "float"})


class PairSums:
    """Sums over the rows in which two columns both have a finite number; n×n lists of Python integers.

    Attributes:
        names: The numeric columns, in the data's order.
        counts: Rows in which both i and j are finite.
        sums: Σ of i over these, in units of 2^-1074.
        squares: Σ of i² over these, in units of 2^-2148.
        products: Σ of i·j over these, likewise.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self.counts: list[list[int]] = []
        self.sums: list[list[int]] = []
        self.squares: list[list[int]] = []
        self.products: list[list[int]] = []

    def add(self, rows: pa.RecordBatch, features: Mapping[str, pa.Array]) -> None:
        """See `CrossColumnState.add`.

        Raises:
            InputError: There are too many numeric columns.
        """
        numeric = {name: array for name, array in features.items() if kind_of(array.type) in _NUMERIC}
        self._agree(list(numeric))
        if not numeric:
            return
        values = {name: _floats(array) for name, array in numeric.items()}
        indices = [self.names.index(name) for name in values]
        for start in range(0, rows.num_rows, _BLOCK):
            self._add_block([column[start : start + _BLOCK] for column in values.values()], indices)

    def _agree(self, names: Sequence[str]) -> None:
        """A column that was all null so far may turn out numeric: it joins with nothing counted."""
        for name in names:
            if name in self.names:
                continue
            self.names.append(name)
            if len(self.names) > MOST:
                raise InputError(
                    f"correlations of more than {MOST} numeric columns were asked for",
                    fix="name the ones that matter: columns=[…]",
                )
            for matrix in self._matrices():
                for line in matrix:
                    line.append(0)
                matrix.append([0] * len(self.names))

    def _matrices(self) -> tuple[list[list[int]], ...]:
        return self.counts, self.sums, self.squares, self.products

    def _add_block(self, columns: list[NDArray[np.float64]], indices: Sequence[int]) -> None:
        finite = [np.isfinite(column) for column in columns]
        masks = np.column_stack(finite).astype(np.float64)
        pieces = [list(_pieces(np.where(there, column, 0.0))) for column, there in zip(columns, finite, strict=True)]
        lines = [index for index, cut in zip(indices, pieces, strict=True) for _ in cut]
        units = [unit for cut in pieces for _, unit in cut]
        together = masks.T @ masks
        for a, line in enumerate(indices):
            for b, index_b in enumerate(indices):
                self.counts[line][index_b] += int(together[a, b])
        if not units:
            return
        flat = np.column_stack([piece for cut in pieces for piece, _ in cut])
        sums, products = flat.T @ masks, flat.T @ flat
        for a, unit in enumerate(units):
            line = lines[a]
            for b, index_b in enumerate(indices):
                self.sums[line][index_b] += int(sums[a, b]) << (unit + _POINT)
            row = self.products[line]
            for b, other in enumerate(units):
                row[lines[b]] += int(products[a, b]) << (unit + other + 2 * _POINT)
        for index, cut in enumerate(pieces):
            line = indices[index]
            for (first, unit), (second, other) in combinations_with_replacement(cut, 2):
                squares = (first * second) @ masks
                twice = 0 if unit == other else 1  # (a + b)² has 2ab: the product of two pieces is shifted once more
                for b, index_b in enumerate(indices):
                    self.squares[line][index_b] += int(squares[b]) << (unit + other + 2 * _POINT + twice)

    def merge(self, other: PairSums) -> None:
        """Take in the sums of other rows."""
        self._agree(other.names)
        indices = [self.names.index(name) for name in other.names]
        for mine, its in zip(self._matrices(), other._matrices(), strict=True):
            for a, numbers in zip(indices, its, strict=True):
                for b, number in zip(indices, numbers, strict=True):
                    mine[a][b] += number

    def result(self, names: Sequence[str]) -> dict[str, Any]:
        """`{"features", "count", "pearson", "covariance"}`, square lists; divided by n as TFDV and numpy's `ddof=0` do.

        Null where no row has both, and a correlation also where one of the two is constant.
        """
        names = [name for name in names if name in self.names]
        indices = [self.names.index(name) for name in names]
        pairs = [[self._pair(a, b) for b in indices] for a in indices]
        return {
            "features": names,
            "count": [[self.counts[a][b] for b in indices] for a in indices],
            "pearson": [[pair[0] for pair in line] for line in pairs],
            "covariance": [[pair[1] for pair in line] for line in pairs],
        }

    def _pair(self, a: int, b: int) -> tuple[float | None, float | None]:
        n = self.counts[a][b]
        if not n:
            return None, None
        first, second = self.sums[a][b], self.sums[b][a]
        together = n * self.products[a][b] - first * second  # n²·covariance in units of 2^-2148
        spread = (n * self.squares[a][b] - first**2) * (n * self.squares[b][a] - second**2)
        try:
            covariance: float | None = together / (n * n << (2 * _POINT))  # of whole numbers, rounded once
        except OverflowError:
            covariance = None
        if not spread:
            return None, covariance
        # A quotient of integers, of which Cauchy and Schwarz's inequality holds exactly: never above 1.
        size = math.sqrt(together**2 / spread)
        return size if together >= 0 else -size, covariance

    def to_parts(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """See `CrossColumnState.to_parts`; sums are texts: hexadecimal without trailing zero bits, and their number."""
        head = {
            "names": self.names,
            "counts": self.counts,
            "sums": [[_text(number) for number in line] for line in self.sums],
            "squares": [[_text(number) for number in line] for line in self.squares],
            "products": [[_text(number) for number in line] for line in self.products],
        }
        return head, {}

    def load_parts(self, head: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
        """See `CrossColumnState.load_parts`."""
        self.names, self.counts = list(head["names"]), [list(line) for line in head["counts"]]
        for name in ("sums", "squares", "products"):
            setattr(self, name, [[_number(text) for text in line] for line in head[name]])


def _floats(array: pa.Array) -> NDArray[np.float64]:
    """The values as float64, NaN where one is null."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_decimal(array.type):
        array = array.cast(pa.float64())
    missing = numpy_of(array.is_null()) if array.null_count else None
    values = numpy_of(array).astype(np.float64)
    if missing is not None:
        values[missing] = np.nan
    return values


def _pieces(values: NDArray[np.float64]) -> Iterator[tuple[NDArray[np.float64], int]]:
    """Whole numbers of at most 18 bits and the exponent of their unit, top bits first; their sum is the values."""
    rest = values
    while len(rest) and (largest := float(np.abs(rest).max())):
        unit = max(math.frexp(largest)[1] - _BITS, -_POINT)
        piece = np.trunc(np.ldexp(rest, -unit))
        rest = rest - np.ldexp(piece, unit)
        yield piece, unit


def _text(number: int) -> str:
    shift = (number & -number).bit_length() - 1 if number else 0
    return f"{number >> shift:x}:{shift}"


def _number(text: str) -> int:
    digits, _, shift = text.partition(":")
    return int(digits, 16) << int(shift)
