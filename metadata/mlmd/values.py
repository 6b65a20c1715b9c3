"""What ML Metadata stores in a property, as JSON: numbers, text, structures, messages."""

from __future__ import annotations

import base64
import binascii
import math
import struct
from collections.abc import Iterator, Mapping
from typing import Any, Final

from ...errors import InputError

Row = Mapping[str, Any]  # a database row: Any is the driver's boundary
Json = Any  # a JSON value: Any because the type is recursive
_STRUCT: Final = "mlmd-struct::"
_DEEPEST: Final = 100


def decoded(row: Row, where: str) -> Json:
    """The value of a property: the one of its columns that is set; None where none is, as after a downgrade.

    A number that is not a finite one becomes text, a `Struct` an object, and a packed message
    `{"@type": URL, "value": base64}`.

    Raises:
        InputError: A structure is damaged; `where` names the property.
    """
    if row.get("bool_value") is not None:
        return bool(row["bool_value"])
    if (number := row["int_value"]) is not None:
        return number
    if (number := row["double_value"]) is not None:
        return number if not isinstance(number, float) or math.isfinite(number) else str(number)
    try:
        if (text := row["string_value"]) is not None:
            return (
                _structure(base64.b64decode(text[len(_STRUCT) :], validate=True))
                if str(text).startswith(_STRUCT)
                else text
            )
        if (packed := row.get("proto_value")) is not None:
            fields = dict(_fields(base64.b64decode(packed, validate=True)))
            kind = _bytes(fields.get(1, b"")).decode()
            return {"@type": kind, "value": base64.b64encode(_bytes(fields.get(2, b""))).decode()}
    except (binascii.Error, ValueError, IndexError, struct.error, RecursionError) as error:
        raise InputError(f"{where} cannot be read: {error}", fix="restore it from a backup") from None
    raw = row.get("byte_value")
    return None if raw is None else base64.b64encode(raw if isinstance(raw, bytes) else str(raw).encode()).decode()


def _structure(body: bytes, depth: int = 0) -> Json:
    """A serialised `google.protobuf.Struct`: a map from names to values."""
    if depth > _DEEPEST:
        raise ValueError("nested too deeply")
    structure: dict[str, Json] = {}
    for _, entry in _fields(body):
        parts = dict(_fields(_bytes(entry)))
        structure[_bytes(parts.get(1, b"")).decode()] = _value(_bytes(parts.get(2, b"")), depth + 1)
    return structure


def _value(body: bytes, depth: int) -> Json:
    """The JSON value that a serialised `google.protobuf.Value` stands for."""
    for number, value in _fields(body):
        match number:
            case 2:
                (real,) = struct.unpack("<d", _bytes(value))
                return real if math.isfinite(real) else str(real)
            case 3:
                return _bytes(value).decode()
            case 4:
                return bool(value)
            case 5:
                return _structure(_bytes(value), depth)
            case 6:
                if depth > _DEEPEST:
                    raise ValueError("nested too deeply")
                return [_value(_bytes(item), depth + 1) for _, item in _fields(_bytes(value))]
    return None


def _fields(body: bytes) -> Iterator[tuple[int, bytes | int]]:
    """The fields of a message, by the wire format of protocol buffers: number and value."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = body[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
            if shift > 63:
                raise ValueError("a number is too long")

    while at < len(body):
        tag = varint()
        kind = tag & 7
        if kind == 0:
            yield tag >> 3, varint()
            continue
        if kind not in (1, 2, 5):
            raise ValueError(f"an unknown wire type {kind}")
        size = varint() if kind == 2 else 8 if kind == 1 else 4
        if at + size > len(body):
            raise ValueError("it is cut short")
        yield tag >> 3, body[at : at + size]
        at += size


def _bytes(value: bytes | int) -> bytes:
    if isinstance(value, int):
        raise ValueError("a number where bytes belong")
    return value
