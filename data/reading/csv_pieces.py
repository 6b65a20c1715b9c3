"""Pieces of a large CSV file that are read apart: where one may end, and what Arrow reads of it.

A row ends at a line feed outside quotes. By the count of quotes before it, that is known only while every quote opens
or closes a cell (or is doubled within one), as Arrow takes a quote amid an unquoted cell for text. So each is looked
at; from the first that stands elsewhere on, the file is not divided any more.
"""

from __future__ import annotations

import io
import threading
from dataclasses import dataclass
from typing import BinaryIO, Final

import numpy as np

_QUOTE: Final = ord('"')
_LINE_FEED: Final = ord("\n")


@dataclass
class CsvPiece:
    """Whole rows of a CSV file.

    Attributes:
        start: The byte at which it begins; 0 means with the header.
        end: The byte before which it ends; None at the end of the file, or where it is still to be found.
        before: The file's rows before it, the header being one.
        size: Bytes after which it may end at the next row; None if it may not.
        quotes: Quote characters in what was read of it.
    """

    start: int = 0
    end: int | None = None
    before: int = 0
    size: int | None = None
    quotes: int = 0


class CsvPieceReader(io.RawIOBase):
    """A piece for Arrow's reading thread, which counts its quotes, finds its end, and can be stopped.

    A thread that still reads while Python shuts down aborts the process, so leaving the context waits for it.
    """

    def __init__(self, file: BinaryIO, piece: CsvPiece, delimiter: str) -> None:
        self._file = file
        self._piece = piece
        self._borders = None if piece.size is None else _RowEnds(delimiter.encode())
        self._position = piece.start
        self._blank = not piece.start
        self._held = b""
        self._stopped = False
        self._lock = threading.Lock()
        if piece.start:
            file.seek(piece.start)

    def readable(self) -> bool:
        """True; `io` asks, and Arrow refuses a file that says otherwise."""
        return True

    def read(self, size: int = -1) -> bytes:
        """The next bytes; none at the end of the piece."""
        piece = self._piece
        if piece.end is not None:
            left = piece.end - self._position
            size = left if size < 0 else min(size, left)
        with self._lock:  # so that whoever leaves the context waits for a read that has begun
            if self._stopped:
                return b""
            if not size:
                return b""
            data = self._held + self._file.read(size - len(self._held) if size > 0 else -1)
        self._held = b""
        if len(data) > 1 and data.endswith(b"\r"):  # Arrow drops a line feed that a block begins with after it
            data, self._held = data[:-1], b"\r"
        if self._borders is not None and piece.size is not None and piece.end is None:
            if self._blank:  # the first piece has the header
                lead = len(data) - len(data.lstrip())
                piece.size += lead
                self._blank = lead == len(data)
            end = self._borders.after(data, piece.start + piece.size - self._position)
            if end is not None:
                data, self._held = data[:end], b""
                piece.end = self._position + end
        self._position += len(data)
        piece.quotes += data.count(b'"')
        return data

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._stopped = True


class _RowEnds:
    """Follows the quotes of a CSV's bytes from the beginning of a row on."""

    def __init__(self, delimiter: bytes) -> None:
        # What may stand before a quote that opens a cell, or after one that closes it. Any other quote is text to
        # Arrow, and from there on the parity of quotes says nothing.
        self._beside = np.frombuffer(delimiter + b'\r\n"', np.uint8)
        self._last = b"\n"
        self._inside = 0
        self._sound = True

    def after(self, data: bytes, least: int) -> int | None:
        """The end of the first row in the next bytes that ends `least` bytes into them or later, if it is certain."""
        if not data or not self._sound:
            return None
        if self._last == b"\n" and data.startswith(b"\xef\xbb\xbf"):
            data, least, mark = data[3:], least - 3, 3
        else:
            mark = 0
        signs = np.frombuffer(self._last + data, np.uint8)
        quotes = np.flatnonzero(signs == _QUOTE)
        # signs[0] is the last byte of the bytes before: kept so that a quote at either edge sees what stands beside it,
        # but already counted among the quotes.
        known = int(len(quotes) > 0 and quotes[0] == 0)
        inside = (np.arange(len(quotes)) - known + self._inside) % 2  # before each
        opening, closing = quotes[(inside == 0) & (quotes > 0)], quotes[(inside == 1) & (quotes < len(signs) - 1)]
        beside = np.concatenate((signs[opening - 1], signs[closing + 1]))
        self._sound = bool(np.isin(beside, self._beside).all())
        before = self._inside
        self._inside = int(before + len(quotes) - known) % 2
        self._last = data[-1:]
        if not self._sound or least >= len(data):
            return None
        # A line feed ends a row where the number of quotes before it is even.
        ends = np.flatnonzero(signs[1:][max(0, least) :] == _LINE_FEED) + max(0, least)
        outside = ends[(before + np.searchsorted(quotes[known:] - 1, ends)) % 2 == 0]
        return int(outside[0]) + 1 + mark if len(outside) else None
