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

FeatureValues = tuple[str | None, list[Any]]
"""A feature: "bytes", "float" or "int64" (None if no list was set), and its values."""

_KINDS: Final = {1: "bytes", 2: "float", 3: "int64"}
_VARINT, _BYTES, _FIXED32 = 0, 2, 5
_FLOAT: Final = struct.Struct("<f")


class NotAnExampleError(ValueError):
    """The bytes are not tf.Example; the message says why."""


def parse_example(data: bytes, wanted: frozenset[bytes] | None = None) -> dict[str, FeatureValues]:
    """The features of a serialised tf.Example by name.

    Args:
        data: The message.
        wanted: UTF-8 names of the features to decode, or None for all.

    Raises:
        NotAnExampleError: It is not one.
    """
    try:
        features = _parse_usual(data, wanted)
    except (IndexError, UnicodeDecodeError):
        features = None
    return _parse_any(data, wanted) if features is None else features


def _parse_usual(data: bytes, wanted: frozenset[bytes] | None) -> dict[str, FeatureValues] | None:
    """An example as every writer writes it, parts in order and lengths below 2^14; else None. Much faster.

    Where it is not None it is what `_parse_any` would give: every length must end where the one around it does.
    """
    features: dict[str, FeatureValues] = {}
    end = len(data)
    if not end:
        return features
    offset = 3 if data[1] & 0x80 else 2
    if data[0] != 0x0A or offset + _length(data, 1) != end:
        return None
    while offset < end:
        size = data[offset + 1]
        start = offset + 2
        if size & 0x80:
            size = size & 0x7F | data[start] << 7
            start += 1
            if size >= 1 << 14:
                return None
        stop = start + size
        name_end = start + 2 + data[start + 1]
        if data[offset] != 0x0A or data[start] != 0x0A or data[start + 1] & 0x80 or stop > end:
            return None
        name = data[start + 2 : name_end]
        offset = stop
        if wanted is not None and name not in wanted:
            continue
        # The feature, the list in it, and the list's first value, each a tag and a length
        inner = name_end + (3 if data[name_end + 1] & 0x80 else 2)
        if data[name_end] != 0x12 or inner + _length(data, name_end + 1) != stop:
            return None
        if inner == stop:
            features[name.decode()] = (None, [])
            continue
        kind = _KINDS.get(data[inner] >> 3)
        items = inner + (3 if data[inner + 1] & 0x80 else 2)
        if kind is None or data[inner] & 7 != _BYTES or items + _length(data, inner + 1) != stop:
            return None
        first = items + 2
        if items == stop or data[items] != 0x0A or data[items + 1] & 0x80 or first + data[items + 1] != stop:
            values = _LISTS[data[inner] >> 3](data[items:stop])
        elif kind == "bytes":
            values = [data[first:stop]]
        elif kind == "int64" and stop == first + 1 and data[first] < 0x80:
            values = [data[first]]
        elif kind == "float" and stop == first + 4:
            values = [_FLOAT.unpack_from(data, first)[0]]
        else:
            values = _LISTS[data[inner] >> 3](data[items:stop])
        features[name.decode()] = (kind, values)
    return features


def _length(data: bytes, offset: int) -> int:
    """A length of one or two bytes; too long for anything if it has more."""
    size = data[offset]
    return size if size < 0x80 else size & 0x7F | data[offset + 1] << 7 if data[offset + 1] < 0x80 else 1 << 62


def _parse_any(data: bytes, wanted: frozenset[bytes] | None) -> dict[str, FeatureValues]:
    """An example in any encoding that protobuf allows."""
    feature_values: dict[str, FeatureValues] = {}
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
                    feature_values[name.decode()] = _feature(feature)
                except UnicodeDecodeError:
                    raise NotAnExampleError(f"a feature's name is not UTF-8: {name[:40]!r}") from None
    return feature_values


def _feature(data: bytes) -> FeatureValues:
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
        offset = 0
        while offset < len(packed):
            value, offset = _varint(packed, offset)
            values.append(value - (1 << 64) if value >> 63 else value)
    return values


_LISTS: Final[dict[int, Callable[[bytes], list[Any]]]] = {1: _bytes_list, 2: _float_list, 3: _int64_list}


def _expect(number: int) -> None:
    if number != 1:
        raise NotAnExampleError(f"a list has a field {number}")


def _fields(data: bytes, packed: int = _BYTES) -> Iterator[tuple[int, bytes]]:
    """Field numbers and contents; a field not of the wire type `_BYTES` must be of `packed`, one number of a list."""
    offset, end = 0, len(data)
    while offset < end:
        tag, offset = _varint(data, offset)
        number, wire = tag >> 3, tag & 7
        if wire == _BYTES:
            length, start = _varint(data, offset)
            offset = start + length
        elif wire == packed == _FIXED32:
            start, offset = offset, offset + 4
        elif wire == packed == _VARINT:
            start = offset
            _, offset = _varint(data, offset)
        else:
            raise NotAnExampleError(f"field {number} has the wire type {wire}")
        if offset > end:
            raise NotAnExampleError("it ends within a field")
        yield number, data[start:offset]


def _varint(data: bytes, offset: int) -> tuple[int, int]:
    """A number of up to 64 bits, and the offset after it."""
    try:
        value = data[offset]
        if value < 0x80:
            return value, offset + 1
        value &= 0x7F
        for shift in range(7, 70, 7):
            offset += 1
            byte = data[offset]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value & 0xFFFFFFFFFFFFFFFF, offset + 1
    except IndexError:
        raise NotAnExampleError("it ends within a number") from None
    raise NotAnExampleError("a number is longer than 64 bits")
