"""What a column of bytes holds as images: formats by their first bytes, sizes from headers; no pixel is decoded."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..aggregates.tables import binary
from ..arrays import arrow_of, numpy_of

FORMATS: Final = {
    "bmp": b"BM",
    "gif": b"GIF8",
    "jpeg": b"\xff\xd8\xff",
    "png": b"\x89PNG\r\n\x1a\n",
}
"""First bytes by format, as TFDV knows them (`image_stats_generator.py`)."""

_SEGMENTS: Final = 1000  # of a JPEG looked at before its frame; a file of cameras has a dozen
_STANDALONE: Final = re.compile(rb"[\x01\xd0-\xd8]")  # markers without a length
_FRAME: Final = re.compile(rb"[\xc0-\xc3\xc5-\xc7\xc9-\xcb\xcd-\xcf]")  # start of frame (ITU T.81, table B.1)

ImageFacts = dict[str, int]
"""Counts of values by format, "UNKNOWN" included; and extremes, named min_ or max_, of `bytes` (of all values) and of
`width` and `height` (in pixels, of the images whose header has them). {} where there is no value."""


def add_images(known: ImageFacts | None, array: Any) -> ImageFacts | None:
    """The known facts, merged with those of an array's values; text, which is not an image, adds nothing."""
    arrow = array.type.value_type if pa.types.is_dictionary(array.type) else array.type
    if pa.types.is_string(arrow) or pa.types.is_large_string(arrow) or pa.types.is_string_view(arrow):
        return known
    if pa.types.is_dictionary(array.type):
        array = array.drop_null()
        counts = np.bincount(numpy_of(array.indices), minlength=len(array.dictionary))
        used = np.flatnonzero(counts)
        values, counts = binary(array.dictionary).take(arrow_of(used)), counts[used]
    else:
        values = binary(array).drop_null()
        counts = np.ones(len(values), np.int64)
    sizes = numpy_of(pc.binary_length(values))
    facts = {"min_bytes": int(sizes.min()), "max_bytes": int(sizes.max()), "UNKNOWN": int(counts.sum())}
    for name, magic in FORMATS.items():
        rows = np.flatnonzero(numpy_of(pc.starts_with(values, magic)))
        if not len(rows):
            continue
        facts[name] = int(counts[rows].sum())
        facts["UNKNOWN"] -= facts[name]
        for row in rows:
            data = memoryview(values[int(row)].as_buffer()).cast("B")  # Arrow says signed
            width, height = size_of(name, data) or (0, 0)
            if width and height:
                ends = {"min_width": width, "max_width": width, "min_height": height, "max_height": height}
                facts = merge_images(facts, ends) or {}
    return merge_images(known, facts)


def merge_images(left: ImageFacts | None, right: ImageFacts | None) -> ImageFacts | None:
    """The facts of the values of both; None (not known) if one of them is None."""
    if left is None or right is None:
        return None
    merged = dict(left)
    for name, value in right.items():
        join = min if name.startswith("min_") else max if name.startswith("max_") else int.__add__
        merged[name] = join(merged[name], value) if name in merged else value
    return merged


def size_of(form: str, data: memoryview) -> tuple[int, int] | None:
    """Width and height in pixels by an image's header, or None where the bytes are cut short or of another format.

    Args:
        form: One of `FORMATS`.
        data: The file's bytes, of which only headers are read.
    """
    try:
        return _SIZES[form](data)
    except (struct.error, IndexError):  # cut short
        return None


def _png(data: memoryview) -> tuple[int, int] | None:
    if bytes(data[12:16]) != b"IHDR":
        return None
    width, height = struct.unpack_from(">II", data, 16)
    return width, height


def _gif(data: memoryview) -> tuple[int, int]:
    width, height = struct.unpack_from("<HH", data, 6)
    return width, height


def _bmp(data: memoryview) -> tuple[int, int] | None:
    (head,) = struct.unpack_from("<I", data, 14)
    if head == 12:  # OS/2's
        width, height = struct.unpack_from("<HH", data, 18)
    elif 16 <= head <= 124:
        width, height = struct.unpack_from("<ii", data, 18)
    else:
        return None
    return abs(width), abs(height)  # rows from the top have a negative height


def _jpeg(data: memoryview) -> tuple[int, int] | None:
    position = 2
    for _ in range(_SEGMENTS):
        if data[position] != 0xFF:
            return None
        while data[position + 1] == 0xFF:  # fill bytes
            position += 1
        marker = data[position + 1 : position + 2]
        if _FRAME.match(marker):
            height, width = struct.unpack_from(">HH", data, position + 5)
            return width, height
        if _STANDALONE.match(marker):
            position += 2
        else:
            (length,) = struct.unpack_from(">H", data, position + 2)
            position += 2 + length
    return None


_SIZES: Final[Mapping[str, Callable[[memoryview], tuple[int, int] | None]]] = {
    "bmp": _bmp, "gif": _gif, "jpeg": _jpeg, "png": _png,
}  # fmt: skip


def describe_images(facts: ImageFacts | None) -> dict[str, Any]:
    """The facts as a feature has them: {} without values, only sizes in bytes where no value begins like an image."""
    if not facts:
        return {}
    description: dict[str, Any] = {
        f"{end}_bytes": {"value": facts[f"{end}_bytes"], "exact": True} for end in ("min", "max")
    }
    if image_rows(facts):
        formats = [{"value": name, "count": facts[name]} for name in (*FORMATS, "UNKNOWN") if facts.get(name)]
        sides = [f"{end}_{side}" for side in ("width", "height") for end in ("min", "max")]
        description["images"] = {"formats": formats} | {side: facts[side] for side in sides if side in facts}
    return description


def image_rows(facts: ImageFacts) -> int:
    """How many values begin like an image."""
    return sum(facts.get(name, 0) for name in FORMATS)
