"""What is wrong with a CSV file: which line, and what to do about it."""

from __future__ import annotations

import csv
import io
import re

import pyarrow as pa

from ...errors import InputError
from .csv_dialect import CsvFile

csv.field_size_limit(max(csv.field_size_limit(), 1 << 30))  # of this process; Python's 128 KiB is less than Arrow takes


class LongRowError(InputError):
    """A row that is longer than a block."""


def csv_error(file: CsvFile, error: Exception, block: int, before: int = 0) -> InputError:
    """The user's error for an exception raised while a file, or the piece of it after `before` rows, was read."""
    path = file.path
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    if isinstance(error, FileNotFoundError):
        return InputError(f"{path} does not exist", fix="check the path")
    row = re.search(r"Row #(\d+)", text)
    line = line_of(file, before + int(row.group(1))) if row else None
    ragged = re.search(r"Expected (\d+) columns, got (\d+)(?:: (.*))?", text)
    if ragged:
        wanted, got, cells = ragged.groups()
        quoted = f": {cells[:80]}" if cells else ""
        return InputError(
            f"{path}:{line}: {got} cells where the header has {wanted}{quoted}",
            fix=f"repair the line, quote the cell that holds a {file.delimiter!r}, or declare another delimiter",
        )
    if "UTF8" in text or "UTF-8" in text:
        return encoding_error(file, line)
    if isinstance(error, RuntimeError):  # of a zip: encrypted, or packed by a method that Python does not know
        return InputError(f"{path} cannot be unpacked ({text[:200]})", fix="pack it without a password, by deflate")
    if "straddl" in text:
        return LongRowError(
            f"{path}: a row longer than {block >> 20} MiB, or a quote that is never closed",
            fix='close the quote; a quote in a cell is written ""',
        )
    if isinstance(error, pa.ArrowException | csv.Error):
        return InputError(f"{path}: not a readable CSV ({text[:200]})", fix="repair the file")
    return InputError(f"{path} is damaged ({text[:200]})", fix="write or copy the file again")


def encoding_error(file: CsvFile, line: int | None) -> InputError:
    """The error for bytes that are not text."""
    where = f"{file.path}:{line}" if line else f"{file.path}"
    name = "UTF-8" if file.encoding == "utf-8" else file.encoding
    return InputError(
        f"{where}: not {name} text",
        fix='declare its encoding, e.g. encoding="latin-1", or convert it, e.g. iconv -f latin1 -t utf-8 IN > OUT',
    )


def line_of(file: CsvFile, row: int) -> int:
    """The file's line in which a row (the header is row 1; blank lines do not count) begins."""
    with file.open() as content, io.TextIOWrapper(content, "latin-1", newline="") as text:
        reader = csv.reader(text, delimiter=file.delimiter)
        before = 0
        for cells in reader:
            row -= bool(cells)
            if not row:
                return before + 1
            before = reader.line_num
    return before


def ends_in_quotes(file: CsvFile) -> bool:
    """Whether a quote is opened and never closed."""
    with file.open() as content, io.TextIOWrapper(content, "latin-1", newline="") as text:
        try:
            for _ in csv.reader(text, delimiter=file.delimiter, strict=True):
                pass
        except csv.Error as error:
            return "unexpected end of data" in str(error)
    return False
