"""How a CSV file is written: its compression, its encoding and what stands between its cells.

Arrow reads UTF-8, so any other encoding is translated on the way, block by block, and every byte that has no meaning
in it is an error that names the line. Without a word on it, a file is UTF-16 or UTF-32 if it begins with their byte
order mark, else UTF-8; latin-1 and its kin cannot be told apart and must be declared.
"""

from __future__ import annotations

import codecs
import io
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, cast

from ...errors import InputError
from .compression import open_decompressed

_PARQUET: Final = b"PAR1"
_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # begins like UTF-16's, so comes first
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_OTHERS: Final = (";", "\t", "|")
_HEADER_CHARACTERS: Final = 1 << 20


@dataclass(frozen=True)
class CsvFile:
    r"""One CSV file and how it is written.

    Attributes:
        path: The file: plain, gzipped (`.gz`), or alone in a `.zip`.
        encoding: Its encoding as Python names it.
        delimiter: The one character between cells.
    """

    path: Path
    encoding: str = "utf-8"
    delimiter: str = ","

    @classmethod
    def of(cls, path: Path, encoding: str | None = None, delimiter: str | None = None) -> CsvFile:
        r"""The file, with what is not declared detected from its first bytes and its header.

        Args:
            path: The file.
            encoding: As Python names it, or None to go by the byte order mark.
            delimiter: One character, or None: a tab for `.tsv`, else the comma if the header has one, else the one of
                `;`, tab and `|` that it has most of, else the comma.

        Raises:
            InputError: The encoding is unknown or the delimiter no single character, or the file cannot be opened or
                its header not decoded.
            OSError: The file is missing or damaged.
        """
        if encoding is None:
            with cls(path)._decompressed() as file:
                start = file.read(4)
            if start == _PARQUET and _ends_as_parquet(path):
                raise InputError(f"{path} is a Parquet file by its content", fix="name it .parquet")
            encoding = next((name for mark, name in _MARKS if start.startswith(mark)), "utf-8")
        declared = encoding
        try:
            encoding = codecs.lookup(declared).name.removesuffix("-sig")
            "".encode(encoding)  # some codecs, e.g. rot13, do not encode text
        except LookupError:
            raise InputError(
                f"encoding: there is no encoding {declared!r}", fix="say e.g. utf-8, utf-16, latin-1 or cp1252"
            ) from None
        if delimiter is not None:
            if len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n\0':
                raise InputError(f"delimiter: {delimiter!r} cannot divide cells", fix=r'say one character, e.g. ";"')
            return cls(path, encoding, delimiter)
        if path.name.lower().endswith((".tsv", ".tsv.gz")):
            return cls(path, encoding, "\t")
        return cls(path, encoding, _likely(cls(path, encoding)._header()))

    @property
    def plain(self) -> bool:
        """Whether the file's own bytes are read, neither unpacked nor recoded: reading can start at any of them."""
        return self.encoding == "utf-8" and not self.path.name.lower().endswith((".gz", ".zip"))

    def open(self) -> BinaryIO:
        """Its content as UTF-8; a byte order mark may stand before it.

        Raises:
            InputError: It is a zip that holds anything but one CSV. While reading: a byte has no meaning in the
                encoding (names the line).
            OSError: It is missing or damaged.
        """
        file = self._decompressed()
        if self.encoding == "utf-8":
            return file
        return cast("BinaryIO", io.BufferedReader(_Recoded(file, self), 1 << 16))

    def _decompressed(self) -> BinaryIO:
        if not self.path.name.lower().endswith(".zip"):
            return open_decompressed(self.path)
        try:
            with zipfile.ZipFile(self.path) as archive:
                inside = [m for m in archive.namelist() if not m.endswith("/") and not m.startswith("__MACOSX/")]
                if len(inside) != 1 or not inside[0].lower().endswith((".csv", ".tsv")):
                    held = ", ".join(inside[:3]) or "nothing"
                    raise InputError(f"{self.path} holds {held}, not one CSV", fix="unpack it and name the CSV files")
                return cast("BinaryIO", archive.open(inside[0]))
        except UnicodeDecodeError as error:
            raise zipfile.BadZipFile("a name in it cannot be decoded") from error

    def _header(self) -> str:
        """The first line that is not blank, with the line breaks in its quotes."""
        header = ""
        with self.open() as file, io.TextIOWrapper(file, "utf-8-sig", "replace") as text:
            while len(header) < _HEADER_CHARACTERS and (line := text.readline(_HEADER_CHARACTERS)):
                header += line if header else line.lstrip()
                if header and header.count('"') % 2 == 0:
                    break
        return header


def _ends_as_parquet(path: Path) -> bool:
    """Whether it is not a CSV whose first column happens to have the name that a Parquet file begins with."""
    with path.open("rb") as file:
        return file.seek(-len(_PARQUET), io.SEEK_END) > len(_PARQUET) and file.read() == _PARQUET


def _likely(header: str) -> str:
    outside = "".join(header.split('"')[::2])
    if "," in outside:
        return ","
    best = max(_OTHERS, key=outside.count)
    return best if best in outside else ","


class _Recoded(io.RawIOBase):
    """A file's text as UTF-8."""

    def __init__(self, file: BinaryIO, source: CsvFile) -> None:
        self._file = file
        self._source = source
        self._decoder = codecs.getincrementaldecoder(source.encoding)()
        self._ready = memoryview(b"")
        self._lines = 1
        self._ended = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        target = memoryview(cast("bytearray", buffer))
        while not self._ready and not self._ended:
            data = self._file.read(1 << 16)
            self._ended = not data
            before = self._decoder.getstate()
            try:
                text = self._decoder.decode(data, final=self._ended)
                self._ready = memoryview(text.encode())
            except UnicodeDecodeError as error:
                self._decoder.setstate(before)
                good = self._decoder.decode(data[: max(0, error.start - len(before[0]))])
                raise InputError(
                    f"{self._source.path}:{self._lines + good.count(chr(10))}: not {self._source.encoding} text",
                    fix="declare the encoding it is in, or convert it, e.g. iconv -f latin1 -t utf-8 IN > OUT",
                ) from error
            self._lines += text.count("\n")
        count = min(len(target), len(self._ready))
        target[:count] = self._ready[:count]
        self._ready = self._ready[count:]
        return count

    def close(self) -> None:
        self._file.close()
        super().close()
