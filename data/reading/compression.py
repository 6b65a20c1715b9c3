"""Compressed files, read as what they hold: their names say how they are compressed."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import BinaryIO, cast


def is_compressed(path: Path) -> bool:
    """Whether a file's name says that it is compressed: then it can only be read from its beginning."""
    return path.name.lower().endswith(".gz")


def open_decompressed(path: Path) -> BinaryIO:
    """The content of a file, decompressed while it is read if its name says that it is compressed."""
    return cast("BinaryIO", gzip.open(path, "rb")) if is_compressed(path) else path.open("rb")
