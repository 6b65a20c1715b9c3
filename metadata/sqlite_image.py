"""A SQLite database in WAL mode as it is on the disk, read without a lock and without writing a byte.

SQLite itself cannot: readers keep their locks in a file beside the database, which they make if there is none. Where
the disk is full or may only be read, and nobody has the database open, its file and its log are read as they are:
together they are the newest state, as after a crash. The format: https://www.sqlite.org/fileformat2.html#walformat
"""

from __future__ import annotations

import struct
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

_MAGIC: Final = {0x377F0682: "<", 0x377F0683: ">"}
"""The byte order in which a log's checksums were taken."""
_FORMAT: Final = 3_007_000
_LOG_HEAD: Final = 32
_FRAME_HEAD: Final = 24
_TICK: Final = 20_000_000
"""Nanoseconds in which two changes of a file may show the same time: clocks of file systems tick every 1 to 10 ms."""


def read_image(path: Path) -> bytes | None:
    """The bytes of a database with what its log has committed, as a database without a log; None where it just changed.

    Raises:
        OSError: It cannot be read.
    """
    log = path.with_name(f"{path.name}-wal")
    before = _stamps(path, log)
    if any(0 <= time.time_ns() - modified < _TICK for _, modified, _, _ in before):
        time.sleep(_TICK / 1e9)
        return None
    image, log_bytes = bytearray(path.read_bytes()), b""
    with suppress(FileNotFoundError):
        log_bytes = log.read_bytes()
    # Whoever wrote meanwhile has changed a date: also where that was the last, whose log is in the database now.
    if _stamps(path, log) != before:
        return None
    _merge(image, log_bytes)
    if image:
        image[18:20] = b"\1\1"  # of the header: a database without a log, as one in memory has to be
    return bytes(image)


def _stamps(*paths: Path) -> list[tuple[int, int, int, int]]:
    """Size, dates and inode of each file that there is."""
    stamps = []
    for path in paths:
        with suppress(FileNotFoundError):
            status = path.stat()
            stamps.append((status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino))
    return stamps


def _merge(image: bytearray, log: bytes) -> None:
    """Put the pages of a log where they belong, up to its last commit that is whole, as a checkpoint does."""
    if len(log) < _LOG_HEAD:
        return
    magic, version, page_size = struct.unpack_from(">III", log)
    order = _MAGIC.get(magic)
    if order is None or version != _FORMAT or page_size < 512 or page_size & (page_size - 1):
        return
    sums = _checksum(log[: _LOG_HEAD - 8], order, (0, 0))
    if sums != struct.unpack_from(">II", log, _LOG_HEAD - 8):
        return
    salts = log[16:24]
    pending: dict[int, bytes] = {}
    for start in range(_LOG_HEAD, len(log) - _FRAME_HEAD - page_size + 1, _FRAME_HEAD + page_size):
        number, pages = struct.unpack_from(">II", log, start)  # pages: of the database after a commit, else 0
        page = log[start + _FRAME_HEAD : start + _FRAME_HEAD + page_size]
        sums = _checksum(page, order, _checksum(log[start : start + 8], order, sums))
        # Behind the newest frame lie older ones, of another salt, or one that was not written to its end.
        if not number or log[start + 8 : start + 16] != salts or sums != struct.unpack_from(">II", log, start + 16):
            return
        pending[number] = page
        if pages:
            image.extend(bytes(max(0, pages * page_size - len(image))))
            del image[pages * page_size :]
            for at, written in pending.items():
                if at <= pages:
                    image[(at - 1) * page_size : at * page_size] = written
            pending.clear()


def _checksum(data: bytes, order: str, sums: tuple[int, int]) -> tuple[int, int]:
    first, second = sums
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for even, odd in zip(words[::2], words[1::2], strict=True):
        first = (first + even + second) & 0xFFFFFFFF
        second = (second + odd + first) & 0xFFFFFFFF
    return first, second
