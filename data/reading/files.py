"""Files as one source, read by what their names say they are."""

from __future__ import annotations

import atexit
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final, Literal

from ...errors import InputError
from ..sources import Source, open_parquet
from .avro_files import open_avro
from .csv_files import open_csv
from .images import holds_images, open_images
from .jsonl_files import open_jsonl
from .remote import fetch_files, is_uri
from .tfrecord_files import open_tfrecord


def open_files(
    paths: Sequence[Path | str],
    *,
    null_values: Sequence[str] = ("", "NA"),
    encoding: str | None = None,
    delimiter: str | None = None,
    column_types: Mapping[str, str] | None = None,
    labels: Path | None = None,
    on_error: Literal["raise", "skip"] = "raise",
    note: Callable[[str], None] | None = None,
    progress: Callable[[int, int | None, str], None] | None = None,
) -> Source:
    """One source over files of one kind, which their names tell, in the order given.

    CSV (`.csv`, `.tsv`, either with `.gz`, a `.zip` with one CSV), Parquet (`.parquet`, `.pq`), JSON lines (`.jsonl`,
    `.ndjson`, either with `.gz`), Avro (`.avro`) and TFRecords of tf.Example (`.tfrecord`, `….tfrecord.gz`,
    `data_tfrecord-00000-of-00002.gz`), images (`.png`, `.jpg`, …, or archives of them); what each makes of its values
    is told by its module, e.g. `jsonl_files`. A URI (`s3://…`, `https://…`) is fetched first, see `remote`.

    Args:
        paths: All of one kind, with the same columns; column types are unified over all of them.
        null_values: What a missing value looks like in a CSV; see `csv_files`.
        encoding: Of a CSV, as Python names it; None for UTF-8, or UTF-16 by its byte order mark.
        delimiter: Between the cells of a CSV; None to go by its header.
        column_types: Types of columns of a CSV that its values do not tell, e.g. {"zip": "string"}; see `open_csv`.
        labels: A CSV of the images' labels, see `images`.
        on_error: What to do with a broken image; "skip" leaves it out and counts it in a note.
        note: Told one line where rows were left out, or a column is text for the sake of a few values.
        progress: Told of rows scanned, which settles their types; may raise to stop.

    Raises:
        InputError: No files, an unknown kind, a damaged file, different columns, no rows in any of them, or an
            option for files of another kind.
        DrivetrainError: What reads this kind of file is not installed.
    """
    files = [copy for path in paths for copy in _here(path)]
    if not files:
        raise InputError("there are no input files", fix="name a file, or a glob that matches some")
    kinds = sorted({_kind(path) for path in files})
    if len(kinds) > 1:
        raise InputError(f"the input mixes {' and '.join(kinds)} files", fix="give files of one kind")
    kind = kinds[0]
    given: dict[str, dict[str, object]] = {
        "CSV": {"encoding": encoding, "delimiter": delimiter, "column_types": column_types or None},
        "images": {"labels": labels, "on_error": None if on_error == "raise" else on_error},
    }
    for owner, options in given.items():
        for option, value in options.items():
            if kind != owner and value is not None:
                raise InputError(f"{option}: {files[0]} is no {owner} but {kind}", fix=f"leave {option} out")
    if kind == "Parquet":
        source = open_parquet(files)
    elif kind == "CSV":
        source = open_csv(
            files,
            null_values=null_values,
            encoding=encoding,
            delimiter=delimiter,
            column_types=column_types,
            note=note,
            progress=progress,
        )
    elif kind == "JSON lines":
        source = open_jsonl(files, note=note, progress=progress)
    elif kind == "Avro":
        source = open_avro(files, progress=progress)
    elif kind == "TFRecord":
        source = open_tfrecord(files, progress=progress)
    else:
        source = open_images(files, labels=labels, on_error=on_error, note=note, progress=progress)
    if not source.rows:
        some = str(files[0]) if len(files) == 1 else f"{files[0]} and {len(files) - 1} more"
        what = "a header but no rows" if kind == "CSV" else "no rows"
        raise InputError(f"{some}: {what}", fix="give a file with at least one row of data")
    return source


def _here(path: Path | str) -> list[Path]:
    if isinstance(path, str) and is_uri(path):
        return [copy for _, copy in fetch_files(path, _fetched())]
    return [Path(str(path).removeprefix("file://"))]


@cache
def _fetched() -> Path:
    """Where this process keeps what it fetched outside any pipeline."""
    folder = Path(tempfile.mkdtemp(prefix="drivetrain-fetched-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


# By the end of a file's name. Also TFX's data_tfrecord-00000-of-00002.gz.
_KINDS: Final = {
    "Parquet": r"\.(parquet|pq)",
    "CSV": r"\.([ct]sv(\.gz)?|zip)",
    "JSON lines": r"\.(jsonl|ndjson)(\.gz)?",
    "Avro": r"\.avro",
    "TFRecord": r"tfrecords?(-\d+-of-\d+)?(\.gz)?",
    "images": r"\.(png|jpe?g|gif|bmp|webp|tiff?|tar|tgz|tar\.gz)",
}


def _kind(path: Path) -> str:
    if path.is_dir():
        raise InputError(f"{path} is a folder", fix=f"name its files, e.g. {path}/*.csv")
    if not path.exists():
        raise InputError(
            f"{path} does not exist",
            fix="check the path" if path.is_absolute() else f"check the path, which starts at {Path.cwd()}",
        )
    if not path.is_file():
        raise InputError(
            f"{path} is a pipe or a device", fix="write what it gives to a file: it is read more than once"
        )
    if holds_images(path):
        return "images"
    for kind, ending in _KINDS.items():
        if re.search(f"{ending}$", path.name, re.IGNORECASE):
            return kind
    raise InputError(
        f"{path}: not a kind of file that can be read",
        fix="give .csv, .tsv, .jsonl or .ndjson (each also .gz), .zip (one CSV, or images), .parquet, .avro, "
        ".tfrecord, .png or .jpg",
    )
