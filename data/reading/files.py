"""Files as one source, of the format that their names say."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Literal

from ...addresses import is_url
from ...errors import InputError
from ...progress import Progress
from ..sources import Source
from .csv_files import NULL_VALUES
from .formats import FORMATS, ReadOptions, format_of
from .remote import fetch_files


def open_files(
    paths: Sequence[Path | str] | Path | str,
    *,
    null_values: Sequence[str] = NULL_VALUES,
    encoding: str | None = None,
    delimiter: str | None = None,
    column_types: Mapping[str, str] | None = None,
    labels: Path | None = None,
    on_error: Literal["raise", "skip"] = "raise",
    note: Callable[[str], None] | None = None,
    progress: Progress | None = None,
) -> Source:
    """One source over files of one format, which follows from their names, in this order.

    The formats are those of `formats.FORMATS`: CSV, Parquet, images, …. What each makes of its values is said in its
    module, e.g. `jsonl_files`. A URI (`s3://…`, `https://…`) is fetched first, see `remote`.

    Args:
        paths: A file, or several, all of one format, with the same columns; column types are unified over all of them.
        null_values: What a missing value looks like in a CSV; see `csv_files`.
        encoding: Of a CSV, as Python names it; None for UTF-8, or UTF-16 by its byte order mark.
        delimiter: Between the cells of a CSV; None to go by its header.
        column_types: Types of columns of a CSV where its values do not decide, e.g. {"zip": "string"}; see `open_csv`.
        labels: A CSV of the images' labels, see `images`.
        on_error: What to do with a broken image; "skip" leaves it out and counts it in a note.
        note: Called with one line where rows were left out, or a column is text for the sake of a few values.
        progress: Called with the rows scanned, which settles their types; may raise to stop.

    Raises:
        InputError: No files, an unknown format, a damaged file, different columns, no rows in any of them, or an
            option for files of another format.
        DrivetrainError: What reads this kind of file is not installed.
    """
    paths = [paths] if isinstance(paths, Path | str) else paths
    files = [copy for path in paths for copy in _local_files(path)]
    if not files:
        raise InputError("there are no input files", fix="name a file, or a glob that matches some")
    by_name = {file_format.name: file_format for file_format in map(format_of, files)}
    if len(by_name) > 1:
        raise InputError(f"the input mixes {' and '.join(sorted(by_name))} files", fix="give files of one kind")
    (file_format,) = by_name.values()
    options = ReadOptions(null_values, encoding, delimiter, column_types, labels, on_error, note, progress)
    for option in options.named():
        if option not in file_format.options:
            owners = " or ".join(other.name for other in FORMATS if option in other.options)
            raise InputError(f"{option}: {files[0]} is {file_format.name}, not {owners}", fix=f"leave {option} out")
    for file in files:  # so that a task's record has what its code reads, also of a format opened past Python
        sys.audit("open", str(file), "rb", os.O_RDONLY)
    source = file_format.open(files, options)
    if not source.rows:
        shown = str(files[0]) if len(files) == 1 else f"{files[0]} and {len(files) - 1} more"
        raise InputError(f"{shown}: {file_format.without_rows}", fix="give a file with at least one row of data")
    return source


def _local_files(path: Path | str) -> list[Path]:
    if isinstance(path, str) and is_url(path):
        return [copy for _, copy in fetch_files(path, _fetched_folder())]
    return [Path(str(path).removeprefix("file://"))]


@cache
def _fetched_folder() -> Path:
    """The folder of what this process fetches outside any pipeline; it goes when the process ends."""
    folder = Path(tempfile.mkdtemp(prefix="drivetrain-fetched-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
