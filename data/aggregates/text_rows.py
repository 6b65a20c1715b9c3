"""Texts that hardly repeat are kept as rows, uncounted: their hashes alone show that they are too many for a table.

Counting such a column into a table sorts and compares every value, only for the sketches to drop nearly all of them.
Two values of different hashes differ, so the distinct hashes are a lower bound of the distinct values; where that bound
does not settle it, the rows are counted after all. What a column's state becomes is the same either way.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ..arrays import arrow_of
from ..rowhash import hash_column
from .tables import (
    Counts,
    TextTable,
    binary,
    count_texts,
    merge_texts,
    radix_sorted,
    sum_texts,
    text_bytes,
    text_offsets,
)

_TRIED: Final = 1024  # first rows of a batch, whose repetitions decide for the batch
_LEAST: Final = 4096  # rows of a batch below which counting is quick anyway
_LARGE: Final = 1 << 22  # bytes of a batch from which copies of long values are avoided
_LONG: Final = 512  # bytes from which one call per value is quicker than a vectorised step per 8 bytes


@dataclass(frozen=True)
class TextRows:
    """Byte strings (pyarrow `large_binary`, none null) in any order, perhaps repeated; rows of each; their hashes."""

    values: Any  # pa.LargeBinaryArray
    counts: Counts
    hashes: NDArray[np.uint64]

    @cached_property
    def ordered(self) -> NDArray[np.uint64]:
        """The hashes in ascending order, sorted once."""
        return radix_sorted(self.hashes, (self.hashes >> np.uint64(48)).astype(np.uint16))


def texts_of(array: Any) -> TextTable | TextRows:
    """A string, binary or dictionary array's values that are not null: counted, unless they hardly repeat."""
    if pa.types.is_dictionary(array.type):
        return count_texts(array)
    if array.nbytes > max(_LARGE, _LONG * len(array)):
        rows = _rows(array)
        return rows if _hardly_repeat(len(np.unique(rows.hashes)), len(rows.hashes)) else count_texts(array)
    if len(array) >= _LEAST:
        tried = array.slice(0, _TRIED).dictionary_encode().dictionary
        if _hardly_repeat(len(tried), _TRIED):
            return _rows(array)
    return count_texts(array)


def _hardly_repeat(distinct: int, rows: int) -> bool:
    return distinct >= rows - rows // 16


def _rows(array: Any) -> TextRows:
    values = binary(array.drop_null() if array.null_count else array)
    return TextRows(values, np.ones(len(values), np.int64), text_hashes(values))


def text_hashes(values: Any) -> NDArray[np.uint64]:
    """A hash per `large_binary` value: `hash_column`'s, of values over 512 bytes BLAKE2b's first 8 bytes."""
    if not len(values):
        return np.zeros(0, np.uint64)
    offsets = text_offsets(values)
    long = np.diff(offsets) > _LONG
    if not long.any():
        return hash_column(values)
    hashes = np.zeros(len(values), np.uint64)
    short = np.flatnonzero(~long)
    hashes[short] = hash_column(values.take(arrow_of(short)))
    data = memoryview(values.buffers()[2])
    for row in np.flatnonzero(long).tolist():
        digest = hashlib.blake2b(data[offsets[row] : offsets[row + 1]], digest_size=8).digest()
        hashes[row] = int.from_bytes(digest, "little")
    return hashes


def hashes_of(texts: TextTable | TextRows) -> NDArray[np.uint64]:
    """The `text_hashes` of the values."""
    return texts.hashes if isinstance(texts, TextRows) else text_hashes(texts.values)


def settle_texts(parts: Sequence[TextTable | TextRows], limit: int, most: int) -> TextTable | TextRows:
    """The table of all the parts' rows, or the rows where their distinct values are certainly too many or too long.

    Args:
        parts: Tables, and rows that were not counted.
        limit: Distinct values that are not too many.
        most: Bytes of the distinct values together that are not too long.
    """
    tables = [part for part in parts if isinstance(part, TextTable)]
    if len(tables) == len(parts):
        return merge_texts(tables)
    hashes = list(map(hashes_of, parts))
    rows = TextRows(
        pa.concat_arrays([part.values for part in parts]) if len(parts) > 1 else parts[0].values,
        np.concatenate([part.counts for part in parts]),
        np.concatenate(hashes),
    )
    too_many = 1 + int((rows.ordered[1:] != rows.ordered[:-1]).sum()) > limit
    return rows if too_many or _least_bytes(rows) > most else counted(rows)


def _least_bytes(rows: TextRows) -> int:
    """A lower bound of the bytes of the distinct values."""
    _, first = np.unique(rows.hashes, return_index=True)
    return int(np.diff(text_offsets(rows.values))[first].sum())


def counted(rows: TextRows) -> TextTable:
    """The table of the rows."""
    return sum_texts(rows.values, rows.counts)


def split_singles(rows: TextRows, known: TextTable | None) -> tuple[TextTable, int, int]:
    """The table of the values that may repeat or be among the known ones; how many others, of one row each, and bytes.

    An equal hash is taken for a repetition, which costs time where it is none, but no correctness.
    """
    suspects = rows.ordered[1:][rows.ordered[1:] == rows.ordered[:-1]]
    if known is not None and len(known.counts):
        suspects = np.sort(np.concatenate((suspects, text_hashes(known.values))))
    repeated = rows.counts > 1
    if len(suspects):
        places = np.minimum(np.searchsorted(suspects, rows.hashes), len(suspects) - 1)
        repeated |= suspects[places] == rows.hashes
    chosen = np.flatnonzero(repeated)
    taken = rows.values.take(arrow_of(chosen))
    left = text_bytes(rows.values) - text_bytes(taken)
    return sum_texts(taken, rows.counts[chosen]), len(repeated) - len(chosen), left
