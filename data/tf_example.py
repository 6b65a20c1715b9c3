"""The protobuf wire format of tf.Example, as far as reading one needs it.

`Example { Features features = 1 }`, `Features { map<string, Feature> feature = 1 }`, `Feature { oneof kind { BytesList
bytes_list = 1; FloatList float_list = 2; Int64List int64_list = 3 } }`, each list `{ repeated … value = 1 }`, numbers
packed or not. What another message would hold is an error rather than skipped, so that nothing is lost unseen. Source:
https://protobuf.dev/programming-guides/encoding/.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any, Final

Values = tuple[str | None, list[Any]]
"""A feature: "bytes", "float" or "int64" (None if no list was set), and its values."""

_KINDS: Final = {1: "bytes", 2: "float", 3: "int64"}
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class NotAnExampleError(ValueError):
    """The bytes are no tf.Example; says why."""


def parse_example(data: bytes, wanted: frozenset[bytes] | None = None) -> dict[str, Values]:
    """The features of a serialised tf.Example by name.

    Args:
        data: The message.
        wanted: UTF-8 names of the features to decode, or None for all.

    Raises:
        NotAnExampleError: It is not one.
    """
    found: dict[str, Values] = {}
    for number, features in _fields(data):
        if number != 1:
            # 2 is what a SequenceExample keeps its sequences in
            raise NotAnExampleError("it is a tf.SequenceExample" if number == 2 else f"it has a field {number}")
        for inner, entry in _fields(features):
            if inner != 1:
                raise NotAnExampleError(f"its features have a field {inner}")
            name, feature = b"", b""
            for part, value in _fields(entry):
                if part == 1:
                    name = value
                elif part == 2:
                    feature = feature + value if feature else value  # concatenated messages are merged ones
                else:
                    raise NotAnExampleError(f"a feature has a field {part}")
            if wanted is None or name in wanted:
                try:
                    found[name.decode()] = _feature(feature)
                except UnicodeDecodeError:
                    raise NotAnExampleError(f"a feature's name is not UTF-8: {name[:40]!r}") from None
    return found


def _feature(data: bytes) -> Values:
    kind = None
    values: list[Any] = []
    for number, items in _fields(data):
        if number not in _KINDS:
            raise NotAnExampleError(f"a feature holds a list of kind {number}")
        if _KINDS[number] != kind:
            kind, values = _KINDS[number], []
        values += _LISTS[number](items)
    return kind, values


def _bytes_list(data: bytes) -> list[bytes]:
    values = []
    for number, value in _fields(data):
        _expect(number)
        values.append(value)
    return values


def _float_list(data: bytes) -> list[float]:
    values: list[float] = []
    for number, value in _fields(data, packed=_FIXED32):
        _expect(number)
        if len(value) % 4:
            raise NotAnExampleError("a list of floats ends within one")
        values += struct.unpack(f"<{len(value) // 4}f", value)
    return values


def _int64_list(data: bytes) -> list[int]:
    values: list[int] = []
    for number, packed in _fields(data, packed=_VARINT):
        _expect(number)
        place = 0
        while place < len(packed):
            value, place = _varint(packed, place)
            values.append(value - (1 << 64) if value >> 63 else value)
    return values


_LISTS: Final[dict[int, Callable[[bytes], list[Any]]]] = {1: _bytes_list, 2: _float_list, 3: _int64_list}


def _expect(number: int) -> None:
    if number != 1:
        raise NotAnExampleError(f"a list has a field {number}")


def _fields(data: bytes, packed: int = _BYTES) -> Iterator[tuple[int, bytes]]:
    """Field numbers and contents; a field not of the wire type `_BYTES` must be of `packed`, one number of a list."""
    place, end = 0, len(data)
    while place < end:
        tag, place = _varint(data, place)
        number, wire = tag >> 3, tag & 7
        if wire == _BYTES:
            length, start = _varint(data, place)
            place = start + length
        elif wire == packed == _FIXED32:
            start, place = place, place + 4
        elif wire == packed == _VARINT:
            start = place
            _, place = _varint(data, place)
        else:
            raise NotAnExampleError(f"field {number} has the wire type {wire}")
        if place > end:
            raise NotAnExampleError("it ends within a field")
        yield number, data[start:place]


def _varint(data: bytes, place: int) -> tuple[int, int]:
    """A number of up to 64 bits, and the place after it."""
    try:
        value = data[place]
        if value < 0x80:
            return value, place + 1
        value &= 0x7F
        for shift in range(7, 70, 7):
            place += 1
            byte = data[place]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value & 0xFFFFFFFFFFFFFFFF, place + 1
    except IndexError:
        raise NotAnExampleError("it ends within a number") from None
    raise NotAnExampleError("a number is longer than 64 bits")
