"""How mergeable states become bytes: a versioned header, then parts such as JSON, Arrow IPC streams or further states.

Statistics keep their states in `content/`, so every layout here enters fingerprints: change one only with a new version
in its header, and go on reading the old one.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa

from ..errors import InputError
from .arrays import arrow_of, numpy_of

_CUT_SHORT: Final = "they end too early"
# What parsers raise for bytes that another program wrote, or that a disk damaged.
_PARSE_ERRORS: Final = (
    ValueError, LookupError, TypeError, AttributeError, ArithmeticError, OSError, struct.error, pa.ArrowException,
)  # fmt: skip


@contextmanager
def reading_state(kind: str, fix: str) -> Iterator[None]:
    """Turn whatever goes wrong while a state is parsed into the one error for it.

    Args:
        kind: What the bytes should have been, e.g. "statistics state".
        fix: How a user gets a state that can be read.

    Raises:
        InputError: Something went wrong; an InputError from within (of a nested state, say) passes as it is.
    """
    try:
        yield
    except _PARSE_ERRORS as error:
        cause = " ".join(str(error).split())[:200] or type(error).__name__
        raise InputError(f"these bytes are not the {kind} that this release reads: {cause}", fix=fix) from error


@dataclass(frozen=True)
class StateFormat:
    """The outer layout of one kind of state: magic, version, lengths of all parts but the last, then the parts.

    Attributes:
        kind: What errors call such a state.
        magic: Four bytes that its states begin with.
        version: One byte, 1 to 255.
        lengths: A `struct` letter for each part but the last: how its length in bytes is written, little-endian.
        fix: What errors advise where bytes cannot be read.
    """

    kind: str
    magic: bytes
    version: int
    lengths: str
    fix: str

    @cached_property
    def _header(self) -> struct.Struct:
        return struct.Struct(f"<4sB{self.lengths}")

    def pack(self, *parts: bytes) -> bytes:
        """The parts behind their header."""
        return b"".join((self._header.pack(self.magic, self.version, *map(len, parts[:-1])), *parts))

    @contextmanager
    def unpack(self, data: bytes) -> Iterator[list[memoryview]]:
        """The parts, over the same memory; the body of the `with` parses them, its errors become the state's.

        Raises:
            InputError: The bytes are not such a state, are damaged, or of a version that this release does not read.
        """
        with reading_state(self.kind, self.fix):
            yield self._parts(data)

    def _parts(self, data: bytes) -> list[memoryview]:
        if data[:4] != self.magic:
            raise ValueError(f"they do not begin with {self.magic.decode()}")
        if len(data) < self._header.size:
            raise ValueError(_CUT_SHORT)
        _, version, *lengths = self._header.unpack_from(data)
        if version != self.version:
            raise ValueError(f"version {version}, not {self.version}")
        starts = list(accumulate(lengths, initial=self._header.size))
        if starts[-1] > len(data):
            raise ValueError(_CUT_SHORT)
        view = memoryview(data)
        return [view[start:end] for start, end in pairwise([*starts, len(data)])]


def frame(parts: Sequence[bytes]) -> bytes:
    """Any number of parts behind each other, the length of each first (8 bytes, little-endian)."""
    return b"".join(len(part).to_bytes(8, "little") + part for part in parts)


def unframe(data: bytes) -> list[bytes]:
    """The parts that `frame` joined.

    Raises:
        ValueError: The bytes were cut short.
    """
    parts, end = [], 0
    while end < len(data):
        part, end = part_at(data, end)
        parts.append(part)
    return parts


def part_at(data: bytes, start: int) -> tuple[bytes, int]:
    """The part of a frame that begins at a byte, and where it ends.

    Raises:
        ValueError: The bytes were cut short.
    """
    first = start + 8
    end = first + int.from_bytes(data[start:first], "little")
    if max(first, end) > len(data):
        raise ValueError(_CUT_SHORT)
    return data[first:end], end


def to_ipc(table: pa.Table | pa.RecordBatch) -> bytes:
    """A table as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write(table)
    return bytes(sink.getvalue())


def from_ipc(data: bytes | memoryview) -> pa.Table:
    """The table of an Arrow IPC stream, over the same memory."""
    return pa.ipc.open_stream(pa.py_buffer(data)).read_all()


def write_columns(columns: Mapping[str, Any]) -> bytes:
    """Pyarrow arrays of one length as an Arrow IPC stream."""
    return to_ipc(pa.table(dict(columns)))


def read_columns(data: bytes | memoryview) -> list[Any]:
    """The arrays that `write_columns` wrote."""
    return [column.combine_chunks() for column in from_ipc(data).columns]


def write_arrays(arrays: Mapping[str, Any]) -> bytes:
    """Pyarrow arrays of any lengths as an Arrow IPC stream of one row, whose fields are the arrays as lists."""
    lists = [pa.LargeListArray.from_arrays(arrow_of(np.array([0, len(array)])), array) for array in arrays.values()]
    return to_ipc(pa.RecordBatch.from_arrays(lists, list(arrays)))


def read_arrays(data: bytes | memoryview) -> dict[str, Any]:
    """The arrays that `write_arrays` wrote."""
    table = from_ipc(data)
    return {name: column.chunk(0).flatten() for name, column in zip(table.schema.names, table.columns, strict=True)}


def bytes_array(data: bytes) -> Any:
    """Bytes as a pyarrow `uint8` array, so that they can stand among a state's arrays."""
    return arrow_of(np.frombuffer(data, np.uint8))


def array_bytes(array: Any) -> bytes:
    """The bytes that `bytes_array` made an array of."""
    return numpy_of(array).tobytes()


def nested(prefix: str, arrays: Mapping[str, Any]) -> dict[str, Any]:
    """A part's named arrays or sums as they stand among those of the whole: "prefix.name"."""
    return {f"{prefix}.{name}": array for name, array in arrays.items()}


def nested_arrays(arrays: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The parts' named arrays or sums by the prefix that `nested` gave them; those of the whole are left out."""
    parts: dict[str, dict[str, Any]] = {}
    for name, array in arrays.items():
        prefix, dot, rest = name.partition(".")
        if dot:
            parts.setdefault(prefix, {})[rest] = array
    return parts
