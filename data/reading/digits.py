"""scikit-learn's packaged handwritten digits as images: its CSV of grey values, each line as a PNG."""

from __future__ import annotations

import csv
import gzip
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

DIGITS: Final = "sklearn/datasets/data/digits.csv.gz"
"""How the path of that file ends."""


def digit_images(path: Path) -> Iterator[tuple[str, bytes]]:
    """Path and bytes of each digit, sorted by path; a line holds 8 × 8 grey values from 0 to 16, and a label.

    Raises:
        OSError: The file is not there or is damaged.
    """
    with gzip.open(path, "rt", encoding="ascii", newline="") as file:
        rows = [[int(float(cell)) for cell in cells] for cells in csv.reader(file)]
    named = [(f"{label}/{number:05d}.png", pixels) for number, (*pixels, label) in enumerate(rows)]
    for name, pixels in sorted(named):
        yield name, _png([pixels[start : start + 8] for start in range(0, 64, 8)])


def _png(rows: Sequence[Sequence[int]]) -> bytes:
    """An 8-bit grey PNG, stored rather than compressed, so that no version of zlib changes its bytes."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">2I5B", len(rows[0]), len(rows), 8, 0, 0, 0, 0)
    body = b"".join(b"\0" + bytes(min(255, value * 16) for value in row) for row in rows)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(body, 0)) + chunk(b"IEND", b"")
