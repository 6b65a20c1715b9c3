"""Numbers and texts as protobuf's text format spells them."""

from __future__ import annotations

import math
import re
import struct
from typing import Any, Final

_INT64: Final = range(-(1 << 63), 1 << 63)


class EscapeError(ValueError):
    """An escape that does not exist.

    Attributes:
        at: Where it stands in the text.
        escape: How it is spelled.
    """

    def __init__(self, at: int, escape: str) -> None:
        super().__init__(f"there is no escape {escape}")
        self.at = at
        self.escape = escape


def spell(value: Any, kind: str) -> str:
    """A value of a field of that kind."""
    if kind == "string":
        return '"' + "".join(_UNSAFE.get(c) or (c if c.isprintable() else _escaped(c)) for c in value) + '"'
    if kind == "bool":
        return "true" if value else "false"
    if kind in ("float", "double"):
        number = float(value)
        return "nan" if math.isnan(number) else repr(number)  # inf and -inf are spelled alike
    return str(value)


_UNSAFE: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t", '"': '\\"', "'": "\\'", "\\": "\\\\"}


def _escaped(character: str) -> str:
    return "".join(f"\\{byte:03o}" for byte in character.encode())


_ESCAPE: Final = re.compile(r"\\(?:([0-7]{1,3})|[xX]([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))")
_SIMPLE: Final = {"n": b"\n", "r": b"\r", "t": b"\t", "a": b"\a", "b": b"\b", "f": b"\f", "v": b"\v"} | {
    mark: mark.encode() for mark in "\\'\"?"
}


def unescape(body: str) -> bytes:
    """The bytes that the inside of a text in quotes means.

    Raises:
        EscapeError: A backslash stands before something else.
    """
    pieces, at = b"", 0
    for match in _ESCAPE.finditer(body):
        pieces += body[at : match.start()].encode()
        octal, hexadecimal, short, long, other = match.groups()
        code = int(octal, 8) if octal else int(hexadecimal or short or long or "0", 16)
        if octal or hexadecimal:
            valid, piece = code < 256, bytes([code & 255])
        elif short or long:
            valid = code < 0x110000 and not 0xD800 <= code < 0xE000
            piece = chr(code).encode() if valid else b""
        else:
            valid, piece = other in _SIMPLE, _SIMPLE.get(other, b"")
        if not valid:
            raise EscapeError(match.start(), match.group())
        pieces += piece
        at = match.end()
    return pieces + body[at:].encode()


_NAMED: Final = {"inf": math.inf, "infinity": math.inf, "nan": math.nan}


def whole(text: str, minus: bool) -> int | None:
    """A whole number of 64 bits in decimal, octal (0…) or hexadecimal (0x…), or None."""
    base = 16 if text[:2] in ("0x", "0X") else 8 if len(text) > 1 and text[0] == "0" else 10
    try:
        value = int(text, base)
    except ValueError:
        return None
    value = -value if minus else value
    return value if value in _INT64 else None


_DECIMAL: Final = re.compile(r"(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?[fF]?", re.ASCII)


def real(text: str, minus: bool) -> float | None:
    """A number, inf and nan included, or None; octal and hexadecimal are none here, as in protobuf."""
    value = _NAMED.get(text.lower())
    if value is None:
        if not _DECIMAL.fullmatch(text) or re.fullmatch("0[0-9]+", text):
            return None
        value = float(text.rstrip("fF"))
    return -value if minus else value


def single(number: float) -> float:
    """A number as a `float` field holds it: itself, else the shortest decimal that names its 32 bits."""
    bits = _bits(number)
    if bits is None or not math.isfinite(number):
        return number if bits else math.copysign(math.inf, number)
    near: float = struct.unpack("<f", bits)[0]
    if near == number:
        return number
    # A float64 that came from 32 bits has digits that nobody wrote (0.1 → 0.10000000149); the shortest decimal that
    # rounds to the same 32 bits is what protobuf prints.
    shorter = (float(f"{near:.{digits}g}") for digits in range(6, 9))
    return next((short for short in shorter if _bits(short) == bits), near)


def _bits(number: float) -> bytes | None:
    """A number in 32 bits; None where it is too large."""
    try:
        return struct.pack("<f", number)
    except OverflowError:
        return None
