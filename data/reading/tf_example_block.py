"""Many serialised tf.Examples at once, by numpy: the flat ones, in which every feature holds exactly one value.

Every record is walked at the same time, one map entry per step, so that a step costs a few numpy operations over all of
them. Whatever is not as flat rows are usually written (lists, features without a value, unpacked numbers, a name twice,
anything malformed) is left to `tf_example.parse_example`, which also says what is wrong. Where `parse_block` gives an
answer, it is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Offsets = NDArray[np.int64]
BYTES, FLOAT, INT64 = 1, 2, 3
_PAD: Final = 16  # bytes that may be looked at beyond the last
_MOST_NAMES: Final = 64  # in one step; more are not a common order of the features


@dataclass(frozen=True)
class FlatColumn:
    """One feature over the records of a block.

    Attributes:
        kinds: By record: 0 absent, `BYTES`, `FLOAT` or `INT64`; uint8.
        starts: By record, where in the block its value begins.
        stops: And where it ends.
    """

    kinds: NDArray[np.uint8]
    starts: Offsets
    stops: Offsets


class FlatBlock:
    """The features of many records by name, and their values."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self._bytes = np.frombuffer(data, np.uint8)
        self.columns: dict[str, FlatColumn] = {}

    def texts(self, column: FlatColumn) -> list[bytes | None]:
        """The bytes by record, None where there are none."""
        data = self.data
        extents = zip((column.kinds == BYTES).tolist(), column.starts.tolist(), column.stops.tolist(), strict=True)
        return [data[start:stop] if held else None for held, start, stop in extents]

    def floats(self, column: FlatColumn) -> NDArray[np.float32]:
        """The float32 by record; anything where there is none."""
        size = len(self.data) - 3
        every = np.ndarray((size,), "<f4", buffer=self.data, strides=(1,))  # one at every byte
        return every[np.where(column.kinds == FLOAT, column.starts, 0)].astype(np.float32)

    def ints(self, column: FlatColumn) -> NDArray[np.int64] | None:
        """The int64 by record, anything where there is none; or None if one is not a single number."""
        held = column.kinds == INT64
        starts = np.where(held, column.starts, 0)
        sizes = np.where(held, column.stops - column.starts, 0)
        numbers = np.zeros(len(held), np.uint64)
        longest = int(sizes.max(initial=0))
        if longest > 10 or (held & (sizes == 0)).any():
            return None
        for index in range(longest):
            inside = sizes > index
            value = self._bytes[starts + index]
            if (inside & ((value >= 0x80) != (sizes > index + 1))).any():
                return None
            numbers |= np.where(inside, value & 0x7F, 0).astype(np.uint64) << np.uint64(7 * index)
        return numbers.view(np.int64)


def parse_block(records: Sequence[bytes], wanted: frozenset[bytes] | None = None) -> FlatBlock | None:
    """The features of serialised tf.Examples; None where they are not all flat.

    Args:
        records: The messages.
        wanted: UTF-8 names of the features to keep, or None for all.
    """
    block = FlatBlock(b"".join(records) + bytes(_PAD))
    data = block._bytes
    lengths = np.fromiter(map(len, records), np.int64, len(records))
    ends = np.cumsum(lengths)
    offset = ends - lengths
    size, width = _varint(data, offset + 1)
    if not ((lengths > 0) & (data[offset] == 0x0A) & (offset + 1 + width + size == ends)).all():
        return None
    offset = offset + 1 + width
    active = np.flatnonzero(offset < ends)
    while len(active):
        at = offset[active]
        size, width = _varint(data, at + 1)
        entry = at + 1 + width
        stop = entry + size
        name = entry + 2
        if not ((data[at] == 0x0A) & (size >= 4) & (stop <= ends[active])).all():
            return None
        name_end = name + data[entry + 1]
        if not ((data[entry] == 0x0A) & (data[entry + 1] < 0x80) & (name_end < stop)).all():
            return None
        # The feature, the list in it, and the list's only value, each a tag and a length, each to the end
        tags, begin = [], name_end
        for _ in range(3):
            tags.append(data[begin])
            size, width = _varint(data, begin + 1)
            begin = begin + 1 + width
            if not ((begin <= stop) & (begin + size == stop)).all():
                return None
        kinds = tags[1] >> 3
        flat = (tags[0] == 0x12) & (tags[1] & 7 == 2) & (kinds >= BYTES) & (kinds <= INT64) & (tags[2] == 0x0A)
        if not (flat & ((kinds != FLOAT) | (size == 4))).all():
            return None
        if not _keep(block, active, (name, name_end), kinds, (begin, stop), wanted, len(records)):
            return None
        offset[active] = stop
        active = active[stop < ends[active]]
    return block


def _keep(
    block: FlatBlock,
    active: Offsets,
    names: tuple[Offsets, Offsets],
    kinds: NDArray[np.uint8],
    values: tuple[Offsets, Offsets],
    wanted: frozenset[bytes] | None,
    count: int,
) -> bool:
    """Put one entry of each active record into its column; False if a record names a feature twice."""
    left = np.arange(len(active))
    lengths = names[1] - names[0]
    for _ in range(_MOST_NAMES):
        if not len(left):
            return True
        name = block.data[int(names[0][left[0]]) : int(names[1][left[0]])]
        same = lengths[left] == len(name)
        for index, character in enumerate(name):
            # Beyond a shorter name is still inside the block, which is padded
            same &= block._bytes[np.minimum(names[0][left] + index, len(block.data) - 1)] == character
        group, left = left[same], left[~same]
        if wanted is not None and name not in wanted:
            continue
        try:
            key = name.decode()
        except UnicodeDecodeError:
            return False
        if key not in block.columns:
            block.columns[key] = FlatColumn(
                np.zeros(count, np.uint8), np.zeros(count, np.int64), np.zeros(count, np.int64)
            )
        column, rows = block.columns[key], active[group]
        if column.kinds[rows].any():
            return False
        column.kinds[rows], column.starts[rows], column.stops[rows] = kinds[group], values[0][group], values[1][group]
    return False


def _varint(data: NDArray[np.uint8], offset: Offsets) -> tuple[Offsets, Offsets]:
    """Lengths of up to four bytes, and how many bytes each takes; -1 where one is longer or would lie outside."""
    value = np.zeros(len(offset), np.int64)
    width = np.zeros(len(offset), np.int64)
    going = offset < len(data) - 4
    for size in range(4):
        byte = data[np.where(going, offset + size, 0)].astype(np.int64)
        value |= np.where(going, (byte & 0x7F) << (7 * size), 0)
        width += going
        going &= byte >= 0x80
        if not going.any():
            break
    return np.where(going | (width == 0), -1, value), width
