"""Exact float sums: the same bits for every order, split and merge of the values.

A finite float64 is an integer times a power of two, so a sum of them is one too. Each block is summed per exponent in
integer-valued bins that float64 holds exactly, and the bins are folded into one Python integer in units of 2^-2200;
only reading the value rounds, once, to nearest even.

Σx and Σx² together are quicker where a block's values span no more than some 80 bits, as real columns do: the block is
cut into slices of 21 bits on a grid they share, and a slice's sum and the dot product of two slices are whole numbers
within 2^53, so no order of adding them, nor a fused one, rounds (the error-free slicing of Rump, Ogita and Oishi 2008
and of Ozaki et al. 2012). About 10 ms per million values.
"""

from __future__ import annotations

import math
import struct
from fractions import Fraction
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from ..states import StateFormat, frame, part_at, reading_state

_SCALE: Final = 2200  # bits below the point: the square of the smallest subnormal is 2^-2148
_ONE: Final = 1 << _SCALE
_BLOCK: Final = 1 << 15  # values per block: 2^38 (largest piece of a square) × 2^15 stays within float64's 2^53
_SLICED: Final = 1 << 13  # values per block of slices: 2^40 (largest product of two) × 2^13 = 2^53
_STEP: Final = 21  # bits of a slice: whole numbers from -2^20 to 2^20
_SLICES: Final = 5  # where the values span more bits, bins take over
_STATE: Final = StateFormat("exact sum", b"DTXS", 1, "", "write it again with this release")
_NUMBERS: Final = struct.Struct("<qqqqq")  # count, nan, +inf, -inf, shift


class ExactSum:
    """The exact sum of float or integer values, or of their squares, with counts of what has no finite sum.

    `merge` is commutative and associative, to the bit. Equals `math.fsum` of all values wherever that is defined.

    Attributes:
        count: Values taken in, with NaN and infinities.
    """

    __slots__ = ("_nan", "_negative", "_positive", "_units", "count")

    def __init__(self) -> None:
        self.count = 0
        self._nan = 0
        self._positive = 0
        self._negative = 0
        self._units = 0

    def copy(self) -> ExactSum:
        """The same sum, which may go on by itself."""
        twin = ExactSum.__new__(ExactSum)  # each of its numbers is set here
        twin.count, twin._units = self.count, self._units
        twin._nan, twin._positive, twin._negative = self._nan, self._positive, self._negative
        return twin

    def add(self, values: NDArray[np.generic], counts: NDArray[np.integer] | None = None) -> None:
        """Take in every value, `counts[i]` times if counts are given.

        Args:
            values: One dimension; float16/32/64, any integer or bool.
            counts: Whole numbers ≥ 0, as many as values.
        """
        self._add(values, counts, _sum_floats, _sum_integers)

    def add_squares(self, values: NDArray[np.generic], counts: NDArray[np.integer] | None = None) -> None:
        """Take in the square of every value, not rounded; arguments as in `add`."""
        self._add(values, counts, _sum_squares, _sum_integer_squares)
        if self._negative:  # (-inf)² = +inf
            self._positive += self._negative
            self._negative = 0

    def _add(self, values, counts, floats, integers) -> None:  # type: ignore[no-untyped-def]  # two kernels, one shape
        if counts is None:
            self._add_once(values, 1, floats, integers)
            return
        counts = np.asarray(counts, dtype=np.int64)
        if counts.shape != values.shape or (counts.size and int(counts.min()) < 0):
            raise ValueError("counts must be as many as values, and none negative")
        # Bit by bit of the counts, since a product with a count would not stay within the bits that a bin holds; each
        # bit's sum is multiplied as a Python integer.
        for bit in range(int(counts.max()).bit_length() if counts.size else 0):
            self._add_once(values[(counts >> bit) & 1 == 1], 1 << bit, floats, integers)

    def _add_once(self, values, times, floats, integers) -> None:  # type: ignore[no-untyped-def]  # as above
        self.count += times * len(values)
        if values.dtype.kind in "iub":
            self._units += times * integers(values) << _SCALE
            return
        if values.dtype.kind != "f":
            raise ValueError(f"no exact sum of {values.dtype}")
        values = np.asarray(values, dtype=np.float64)
        finite = np.isfinite(values)
        if not finite.all():
            odd = values[~finite]
            self._nan += times * int(np.isnan(odd).sum())
            self._positive += times * int((odd == np.inf).sum())
            self._negative += times * int((odd == -np.inf).sum())
            values = values[finite]
        self._units += times * floats(values)

    def take(self, units: int, count: int) -> None:
        """Take in `count` finite values whose sum was computed elsewhere: units · 2^-2200."""
        self._units += units
        self.count += count

    def merge(self, other: ExactSum) -> None:
        """Add the values that another sum was made of."""
        self.count += other.count
        self._nan += other._nan
        self._positive += other._positive
        self._negative += other._negative
        self._units += other._units

    def fraction(self) -> Fraction:
        """The sum of the finite values, exactly."""
        return Fraction(self._units, 1 << _SCALE)

    @property
    def finite(self) -> bool:
        """Whether no NaN and no infinity was taken in."""
        return not (self._nan or self._positive or self._negative)

    def value(self) -> float:
        """The sum, rounded once; NaN and infinities as IEEE 754 adds them, and ±inf beyond float64's range."""
        if self._nan or (self._positive and self._negative):
            return math.nan
        if self._positive or self._negative:
            return math.inf if self._positive else -math.inf
        try:
            return self._units / _ONE  # int/int rounds correctly in CPython, subnormal numbers too
        except OverflowError:
            return math.inf if self._units > 0 else -math.inf

    def to_bytes(self) -> bytes:
        """The state; equal for equal multisets of values, whatever the order."""
        shift = (self._units & -self._units).bit_length() - 1 if self._units else 0
        units = self._units >> shift
        body = units.to_bytes((units.bit_length() + 8) // 8, "little", signed=True)
        numbers = _NUMBERS.pack(self.count, self._nan, self._positive, self._negative, shift)
        return _STATE.pack(numbers + body)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """The sum that `to_bytes` wrote.

        Raises:
            InputError: The bytes are not such a state, or of a version this release does not read.
        """
        restored = cls()
        with _STATE.unpack(data) as (body,):
            restored.count, restored._nan, restored._positive, restored._negative, shift = _NUMBERS.unpack_from(body)
            restored._units = int.from_bytes(body[_NUMBERS.size :], "little", signed=True) << shift
        return restored


class ExactMoments:
    """Count, mean, variance and standard deviation from an exact Σx and an exact Σx².

    The textbook formula Σx² − (Σx)²/n cancels badly in floats; here both are exact and subtracted as rationals, so
    each result is the true one rounded (the deviation: rounded twice).
    """

    __slots__ = ("squares", "sum")

    def __init__(self) -> None:
        self.sum = ExactSum()
        self.squares = ExactSum()

    def add(self, values: NDArray[np.generic], counts: NDArray[np.integer] | None = None) -> None:
        """Take in values, `counts[i]` times each if counts are given."""
        if values.dtype == np.float64 and (
            counts is None or (len(counts) == len(values) and bool((counts == 1).all()))
        ):
            floats = np.asarray(values, np.float64)
            for start in range(0, len(floats), _SLICED):
                self._add_block(floats[start : start + _SLICED])
            return
        self.sum.add(values, counts)
        self.squares.add_squares(values, counts)

    def _add_block(self, values: NDArray[np.float64]) -> None:
        sums = _sliced_sums(values)
        if sums is None:
            self.sum.add(values)
            self.squares.add_squares(values)
            return
        self.sum.take(sums[0], len(values))
        self.squares.take(sums[1], len(values))

    def merge(self, other: ExactMoments) -> None:
        """Take in the moments of other values."""
        self.sum.merge(other.sum)
        self.squares.merge(other.squares)

    @property
    def count(self) -> int:
        """How many values were added, NaN and infinities included."""
        return self.sum.count

    def mean(self) -> float:
        """Σx/n; NaN for no values."""
        if not self.count or not self.sum.finite:
            return self.sum.value() if self.count else math.nan
        return rounded(self.sum.fraction() / self.count)

    def variance(self, ddof: int = 0) -> float:
        """(Σx² − (Σx)²/n) / (n − ddof), as numpy defines it; NaN for n ≤ ddof or values that are not finite."""
        spread = self._variance(ddof)
        return math.nan if spread is None else rounded(spread)

    def std(self, ddof: int = 0) -> float:
        """The square root of the variance, also where the variance itself is beyond float64's range."""
        spread = self._variance(ddof)
        if not spread:
            return math.nan if spread is None else 0.0
        # A power of four is taken out and its root put back, which changes no bit of what is in range.
        halves = (spread.numerator.bit_length() - spread.denominator.bit_length()) // 2
        return math.ldexp(math.sqrt(rounded(spread / Fraction(4) ** halves)), halves)

    def _variance(self, ddof: int) -> Fraction | None:
        if self.count <= ddof or not self.sum.finite:
            return None
        spread = self.squares.fraction() - self.sum.fraction() ** 2 / self.count
        return spread / (self.count - ddof)

    def to_bytes(self) -> bytes:
        """The state: length-framed Σx, then Σx²."""
        return frame([self.sum.to_bytes()]) + self.squares.to_bytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """The moments that `to_bytes` wrote.

        Raises:
            InputError: The bytes are not such a state.
        """
        restored = cls()
        with reading_state("exact moments", _STATE.fix):
            first, end = part_at(data, 0)
            restored.sum, restored.squares = ExactSum.from_bytes(first), ExactSum.from_bytes(data[end:])
        return restored


def rounded(number: Fraction) -> float:
    """The nearest float64, ±inf beyond its range."""
    try:
        return number.numerator / number.denominator  # int/int rounds correctly in CPython
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def _sliced_sums(values: NDArray[np.float64]) -> tuple[int, int] | None:
    """Σ values and Σ values² in units of 2^-_SCALE; None where slices cannot hold them, or a value is not finite."""
    largest = max(float(values.max()), -float(values.min()))
    if largest == 0:
        return 0, 0
    top = math.frexp(largest)[1] if largest < math.inf else 1024  # NaN goes there too
    if not -400 < top < 400:  # within it, no product of two slices leaves float64's range
        return None
    slices: list[NDArray[np.float64]] = []
    units: list[int] = []
    rest = values
    unit = top - _STEP + 1
    while True:
        # Adding 1.5 · 2^(unit + 52) shifts the bits below 2^unit out of the float, which rounds to a multiple of it.
        magic = math.ldexp(1.5, unit + 52)
        part = rest + magic
        part -= magic
        slices.append(part)
        units.append(unit)
        rest = rest - part  # exact, at most half a 2^unit
        if not rest.any():
            break
        if len(slices) == _SLICES:
            return None
        unit -= _STEP
    total = squares = 0
    for index, (slice_a, unit_a) in enumerate(zip(slices, units, strict=True)):
        total += int(math.ldexp(float(slice_a.sum()), -unit_a)) << (unit_a + _SCALE)
        for slice_b, unit_b in zip(slices[: index + 1], units, strict=False):
            product = int(math.ldexp(float(slice_a @ slice_b), -unit_a - unit_b)) << (unit_a + unit_b + _SCALE)
            squares += product if slice_b is slice_a else 2 * product
    return total, squares


def _sum_floats(values: NDArray[np.float64]) -> int:
    """Σ values in units of 2^-_SCALE: mantissas in two pieces of 27 and 26 bits, binned by exponent."""
    total = 0
    for start in range(0, len(values), _BLOCK):
        mantissa, exponent = np.frexp(values[start : start + _BLOCK])
        mantissa *= 2.0**27
        high = np.trunc(mantissa)
        low = (mantissa - high) * 2.0**26
        total += _fold(exponent, (high, low), step=26, unit=-53, scale=1)
    return total


def _sum_squares(values: NDArray[np.float64]) -> int:
    """Σ values² likewise: mantissas in three pieces of 18 bits, so that products and their sums stay whole."""
    total = 0
    for start in range(0, len(values), _BLOCK):
        mantissa, exponent = np.frexp(np.abs(values[start : start + _BLOCK]))
        mantissa *= 2.0**18
        a = np.trunc(mantissa)
        mantissa = (mantissa - a) * 2.0**18
        b = np.trunc(mantissa)
        c = (mantissa - b) * 2.0**18
        total += _fold(exponent, (a * a, 2 * a * b, 2 * a * c + b * b, 2 * b * c, c * c), step=18, unit=-108, scale=2)
    return total


def _fold(
    exponent: NDArray[np.int32], pieces: tuple[NDArray[np.float64], ...], *, step: int, unit: int, scale: int
) -> int:
    """Add pieces (most significant first, `step` bits apart) within each exponent, then the exponents."""
    lowest = int(exponent.min())
    bins = exponent - lowest
    sums = [np.bincount(bins, piece) for piece in pieces]
    total = 0
    for index in np.flatnonzero(np.bincount(bins)):
        part = 0
        for column in sums:
            part = (part << step) + int(column[index])
        # Below 0 only for squares of the smallest numbers. Nothing is lost: the last bits of the pieces are zeros then.
        shift = (int(index) + lowest) * scale + unit + _SCALE
        total += part << shift if shift >= 0 else part >> -shift
    return total


def _sum_integers(values: NDArray[np.generic]) -> int:
    if values.dtype.kind != "u" or values.dtype.itemsize < 8:
        values = np.asarray(values, dtype=np.int64)
    # In two halves: sums of 32 bits stay within 64 for 2^31 values, sums of whole integers would wrap around.
    high = int((values >> np.int64(32) if values.dtype.kind == "i" else values >> np.uint64(32)).sum())  # type: ignore[operator]
    low = int((values & values.dtype.type(0xFFFFFFFF)).sum())  # type: ignore[operator]
    return (high << 32) + low


def _sum_integer_squares(values: NDArray[np.generic]) -> int:
    wide = np.asarray(values).astype(np.uint64)
    if values.dtype.kind == "i":
        wide = np.where(np.asarray(values) < 0, np.uint64(0) - wide, wide)
    mask = np.uint64((1 << 22) - 1)
    total = 0
    for start in range(0, len(wide), _BLOCK):
        block = wide[start : start + _BLOCK]
        # (a·2^44 + b·2^22 + c)², mixed terms doubled by one more bit of shift. A product is below 2^44, so that a
        # block's sum stays within 64 bits.
        a, b, c = block >> np.uint64(44), (block >> np.uint64(22)) & mask, block & mask
        for shift, piece in ((88, a * a), (67, a * b), (44, b * b), (45, a * c), (23, b * c), (0, c * c)):
            total += int(piece.sum()) << shift
    return total
