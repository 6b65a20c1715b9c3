"""Value → count tables of one column: built per batch, merged in any order, and every exact statistic read off them.

A table is canonical: distinct values ascending, each with a count above zero. Equal rows give equal tables however they
were split. Numbers (and dates, times: their integer form) are numpy arrays; text is `large_binary` in byte order, which
for UTF-8 is code point order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ..arrays import arrow_of, numpy_of

Numbers = NDArray[Any]  # int64, uint64 or float64: what the column's type asks for
Counts = NDArray[np.int64]

_SHOWN: Final = 1000  # characters of a value that a document quotes
_LEAST_SPREAD: Final = 4096  # numbers below which sorting is quick anyway
_DENSE: Final = 1024  # integers spread over no more than this, or twice the rows, are counted in an array


class NumberTable(NamedTuple):
    """Distinct finite numbers, ascending (`-0.0` counts as `0.0`), and how often each occurs."""

    values: Numbers
    counts: Counts

    @property
    def total(self) -> int:
        """How many rows were counted: the sum of the counts."""
        return int(self.counts.sum())


class TextTable(NamedTuple):
    """Distinct byte strings (pyarrow `large_binary`), ascending, and how often each occurs."""

    values: Any  # pa.LargeBinaryArray; pyarrow ships no types
    counts: Counts

    @property
    def total(self) -> int:
        """How many rows were counted: the sum of the counts."""
        return int(self.counts.sum())

    @property
    def size(self) -> int:
        """Bytes of the distinct values."""
        return text_bytes(self.values)


def count_numbers(values: Numbers) -> NumberTable:
    """The table of finite numbers (no NaN, no infinity)."""
    if not len(values):
        return NumberTable(values, np.zeros(0, np.int64))
    if values.dtype == np.int64:
        low, high = int(values.min()), int(values.max())
        if high - low < max(_DENSE, 2 * len(values)):
            dense = np.bincount(values - low)
            positions = np.flatnonzero(dense)
            return NumberTable(positions + low, dense[positions])
        values = values.copy()  # sorted in place below, and it may be the batch's own memory
    elif values.dtype == np.float64:
        return _count_runs(_ascending(values + 0.0))  # -0.0 becomes 0.0: they are equal and must have one spelling
    else:
        values = values.copy()
    values.sort()
    return _count_runs(values)


def _ascending(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Finite numbers in order; the array itself may be sorted.

    numpy's quicksort takes five times as long on a processor whose AVX-512 stores are slow (AMD's Zen 4) as on others.
    A radix sort by 65,536 equal intervals takes the same everywhere, unless most values lie in few of the intervals.
    """
    intervals = _intervals(values)
    if intervals is not None:
        return radix_sorted(values, intervals)
    values.sort()
    return values


def ascending_order(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """The positions of numbers, which are not NaN, in ascending order; of equal ones in any."""
    bits = _bits32(values)
    if bits is not None:
        # NumPy sorts 16 bits by radix: first by the lower half, then by the upper.
        by_low = np.argsort(bits.astype(np.uint16), kind="stable")
        high = (bits >> 16).astype(np.uint16)
        order: NDArray[np.int64] = by_low.take(np.argsort(high.take(by_low), kind="stable"))
        return order
    intervals = _intervals(values)
    if intervals is None:
        return np.argsort(values)
    nearly = np.argsort(intervals, kind="stable")
    return nearly[np.argsort(values[nearly], kind="stable")]


def _bits32(values: NDArray[np.float64]) -> NDArray[np.uint32] | None:
    """Integers that rise with the values; None for few values, and unless each is a float of 32 bits."""
    if len(values) < _LEAST_SPREAD:
        return None
    with np.errstate(over="ignore"):  # what becomes infinite is not equal to what it was
        narrow = values.astype(np.float32)
    if not (narrow == values).all():
        return None
    # As integers, floats below 0 fall as they rise, and lie above the others: of them all bits are turned.
    turned = (narrow.view(np.int32) >> 31).view(np.uint32) | np.uint32(1 << 31)
    return narrow.view(np.uint32) ^ turned


def _intervals(values: NDArray[np.float64]) -> NDArray[np.uint16] | None:
    """Which of 65,536 equal intervals each value is in; None for few values, and where most are in few intervals."""
    if len(values) < _LEAST_SPREAD:
        return None
    low, high = float(values.min()), float(values.max())
    if not (0 < high - low < math.inf and 65535 / (high - low) < math.inf):
        return None
    intervals = ((values - low) * (65535 / (high - low))).astype(np.uint16)
    spread = np.bincount(intervals[::16] >> 8).max() <= len(values) // 128  # an eighth of the values looked at
    return intervals if spread else None


def radix_sorted(values: Numbers, keys: NDArray[np.uint16]) -> Numbers:
    """The values in ascending order, by keys that ascend with them: of 16 bits, which numpy sorts by radix."""
    nearly = values[np.argsort(keys, kind="stable")]
    nearly.sort(kind="stable")  # a merge sort, quick on what is nearly in order
    return nearly


def _count_runs(values: Numbers) -> NumberTable:
    """The table of ascending numbers, at least one."""
    changes = values[1:] != values[:-1]
    if changes.all():  # as continuous columns are: nothing to pick
        return NumberTable(values, np.ones(len(values), np.int64))
    starts = np.flatnonzero(np.concatenate(([True], changes)))
    return NumberTable(values[starts], np.diff(starts, append=len(values)))


def count_texts(array: Any) -> TextTable:
    """The table of a string, binary or dictionary array's values that are not null."""
    if not pa.types.is_dictionary(array.type):
        array = array.dictionary_encode()
    indices = array.indices.drop_null() if array.indices.null_count else array.indices
    counts = np.bincount(numpy_of(indices), minlength=len(array.dictionary))
    return sum_texts(binary(array.dictionary), counts)


def merge_numbers(tables: Sequence[NumberTable]) -> NumberTable:
    """The table of all the tables' rows; at least one table."""
    if len(tables) == 1:
        return tables[0]
    values = np.concatenate([table.values for table in tables])
    if len(values) and all((table.counts == 1).all() for table in tables):
        values.sort(kind="stable")  # which merges ascending runs, as the tables are
        return _count_runs(values)
    counts = np.concatenate([table.counts for table in tables])
    if not len(values):
        return NumberTable(values, counts)
    order = np.argsort(values, kind="stable")
    values, counts = values[order], counts[order]
    starts = np.flatnonzero(np.concatenate(([True], values[1:] != values[:-1])))
    return NumberTable(values[starts], np.add.reduceat(counts, starts))


def merge_texts(tables: Sequence[TextTable]) -> TextTable:
    """The table of all the tables' rows; at least one table."""
    if len(tables) == 1:
        return tables[0]
    values = pa.concat_arrays([table.values for table in tables])
    return sum_texts(values, np.concatenate([table.counts for table in tables]))


def sum_texts(values: Any, counts: Counts) -> TextTable:
    """The table of `large_binary` values that may repeat, be null or have no rows."""
    encoded = values.dictionary_encode()
    distinct = encoded.dictionary
    if len(distinct) != len(values) or values.null_count:
        valid = numpy_of(values.is_valid())
        indices = numpy_of(encoded.indices.drop_null())
        # float64 weights hold whole numbers up to 2^53 rows.
        counts = np.bincount(indices, counts[valid], len(distinct)).astype(np.int64)
    order = numpy_of(pc.sort_indices(distinct))
    counts = counts[order].astype(np.int64, copy=False)
    if (counts == 0).any():  # a Parquet dictionary may name values that no row has
        order, counts = order[counts > 0], counts[counts > 0]
    return TextTable(distinct.take(arrow_of(order)), counts)


def binary(values: Any) -> Any:
    """A string or binary array as `large_binary`; texts become UTF-8."""
    if pa.types.is_large_binary(values.type):
        return values
    if not (pa.types.is_string(values.type) or pa.types.is_binary(values.type)):
        text = pa.types.is_string_view(values.type) or pa.types.is_large_string(values.type)  # others need no UTF-8
        values = values.cast(pa.large_string() if text else pa.large_binary())
    return values.cast(pa.large_binary())


def text_offsets(values: Any) -> NDArray[np.int64]:
    """Where each of a `large_binary` array's values begins in its data, then where the last one ends."""
    if not len(values):
        return np.zeros(1, np.int64)
    return np.frombuffer(values.buffers()[1], np.int64, len(values) + 1, 8 * values.offset)


def text_bytes(values: Any) -> int:
    """Bytes of a `large_binary` array's values."""
    offsets = text_offsets(values)
    return int(offsets[-1] - offsets[0])


def text_lengths(values: Any) -> NDArray[np.int64]:
    """Length of each `large_binary` value in code points, read as UTF-8 (continuation bytes not counted)."""
    # Over the same buffers: a cast would refuse values that are not UTF-8, which have a length here like any other.
    text = pa.Array.from_buffers(pa.large_string(), len(values), values.buffers(), offset=values.offset)
    return np.asarray(numpy_of(pc.utf8_length(text)), np.int64)


def invalid_utf8(table: TextTable) -> int:
    """Rows whose value is not valid UTF-8."""
    return int(table.counts[broken_texts(table)].sum())


def broken_texts(table: TextTable) -> NDArray[np.bool_]:
    """Which values are not valid UTF-8."""
    values = table.values
    text = pa.Array.from_buffers(pa.large_string(), len(values), values.buffers(), offset=values.offset)
    try:
        text.validate(full=True)
    except pa.ArrowInvalid:
        return np.fromiter((not is_utf8(value) for value in values.to_pylist()), np.bool_, len(values))
    return np.zeros(len(values), np.bool_)


def is_utf8(value: bytes) -> bool:
    """Whether bytes are text in UTF-8."""
    if value.isascii():
        return True
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def show_text(value: bytes) -> str:
    r"""Text for people and JSON: UTF-8, other bytes as `\xNN`, NUL as `\x00`, cut after a thousand characters."""
    text = value[: 4 * _SHOWN].decode("utf-8", "backslashreplace").replace("\0", "\\x00")
    return text if len(value) <= _SHOWN else f"{text[:_SHOWN]}… ({len(value):,} bytes)"


def top(table: NumberTable | TextTable, limit: int) -> list[tuple[Any, int]]:
    """The most frequent values with their counts: count descending, ties by value descending (TFDV's order)."""
    counts = table.counts
    order = np.lexsort((np.arange(len(counts)), counts))[::-1][:limit]
    if isinstance(table, TextTable):
        values = table.values.take(arrow_of(order)).to_pylist()
    else:
        values = table.values[order].tolist()
    return list(zip(values, counts[order].tolist(), strict=True))


def quantiles(table: NumberTable, levels: Sequence[float]) -> list[int | float]:
    """Quantiles of the rows by linear interpolation between neighbours, as `numpy.quantile` gives them by default.

    A level that falls on a row gives that row's value unchanged (integers of any size stay exact).
    """
    ends = np.cumsum(table.counts)
    last = int(ends[-1]) - 1
    at_levels: list[int | float] = []
    for level in levels:
        rank = last * level
        below = int(rank)
        share = rank - below
        low = table.values[int(np.searchsorted(ends, below, side="right"))].item()
        high = table.values[int(np.searchsorted(ends, min(below + 1, last), side="right"))].item()
        # From the nearer end, as numpy interpolates, so that the results are the same floats.
        if share == 0 or low == high:
            at_levels.append(low)
        elif not math.isfinite(float(high) - float(low)):
            at_levels.append(low * (1 - share) + high * share)
        elif share >= 0.5:
            at_levels.append(high - (high - low) * (1 - share))
        else:
            at_levels.append(low + (high - low) * share)
    return at_levels


def median(table: NumberTable) -> int | float:
    """The middle row's value, or the midpoint of the two middle ones."""
    return quantiles(table, [0.5])[0]


def bucket_edges(low: float, high: float, buckets: int) -> NDArray[np.float64]:
    """Edges of equal-width buckets from low to high, as `numpy.linspace`; also where high − low overflows."""
    if np.isfinite(float(high) - float(low)):
        return np.linspace(float(low), float(high), buckets + 1)
    return np.linspace(float(low) / 2, float(high) / 2, buckets + 1) * 2


def histogram(values: Numbers, counts: Counts, edges: NDArray[np.float64]) -> NDArray[np.int64]:
    """Whole counts per bucket [edge, next edge), the last one closed on both sides."""
    bucket = np.searchsorted(edges[1:-1], values.astype(np.float64), side="right")
    return np.bincount(bucket, counts, len(edges) - 1).astype(np.int64)
