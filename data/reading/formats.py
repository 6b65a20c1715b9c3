"""The formats of files that can be read: how their names end, who opens them, and which options are theirs alone.

A new format is its own module, which opens files as a `Source`, and an entry of `FORMATS`. That the files are opened is
told to Python's audit hooks by `open_files`, so an opener may open them past Python, as pyarrow does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from ...errors import InputError
from ...progress import Progress
from ..sources import Source, open_parquet
from .avro_files import open_avro
from .csv_files import NULL_VALUES, open_csv
from .images import holds_images, open_images
from .jsonl_files import open_jsonl
from .tfrecord_files import open_tfrecord


@dataclass(frozen=True)
class ReadOptions:
    """How files are to be read: the arguments of `open_files`. None, or "raise" for `on_error`, is the default.

    Attributes:
        null_values: What a missing cell of a CSV holds.
        encoding: Of a CSV, as Python names it.
        delimiter: Between the cells of a CSV.
        column_types: Types of columns of a CSV where its values do not decide.
        labels: A CSV of the images' labels.
        on_error: What to do with a broken image.
        note: Called with a line for the user.
        progress: Called with the rows scanned so far, how many there are (None: unknown), and their unit.
    """

    null_values: Sequence[str] = NULL_VALUES
    encoding: str | None = None
    delimiter: str | None = None
    column_types: Mapping[str, str] | None = None
    labels: Path | None = None
    on_error: Literal["raise", "skip"] = "raise"
    note: Callable[[str], None] | None = None
    progress: Progress | None = None

    def named(self) -> list[str]:
        """The options other than their default that only some formats have."""
        is_named = {
            "encoding": self.encoding is not None,
            "delimiter": self.delimiter is not None,
            "column_types": bool(self.column_types),
            "labels": self.labels is not None,
            "on_error": self.on_error != "raise",
        }
        return [option for option, named in is_named.items() if named]


@dataclass(frozen=True)
class FileFormat:
    """A format of files.

    Attributes:
        name: For messages.
        ending: A regular expression for how its files' names end, in any case.
        shown: Such endings for people.
        open: Opens files of it as one source.
        options: The names of the `ReadOptions` that only it has.
        holds: Whether a file is of this format, where its name alone does not decide; comes before all endings.
        without_rows: What a file of it has that has no rows, for messages.
    """

    name: str
    ending: str
    shown: str
    open: Callable[[Sequence[Path], ReadOptions], Source]
    options: frozenset[str] = frozenset()
    holds: Callable[[Path], bool] | None = None
    without_rows: str = "no rows"


FORMATS: Final = (
    FileFormat("Parquet", r"\.(parquet|pq)", ".parquet", lambda files, _: open_parquet(files)),
    FileFormat(
        "CSV",
        r"\.([ct]sv(\.gz)?|zip)",
        ".csv or .tsv (each also .gz), .zip (one CSV, or images)",
        lambda files, options: open_csv(
            files,
            null_values=options.null_values,
            encoding=options.encoding,
            delimiter=options.delimiter,
            column_types=options.column_types,
            note=options.note,
            progress=options.progress,
        ),
        options=frozenset({"encoding", "delimiter", "column_types"}),
        without_rows="a header but no rows",
    ),
    FileFormat(
        "JSON lines",
        r"\.(jsonl|ndjson)(\.gz)?",
        ".jsonl or .ndjson (each also .gz)",
        lambda files, options: open_jsonl(files, note=options.note, progress=options.progress),
    ),
    FileFormat("Avro", r"\.avro", ".avro", lambda files, options: open_avro(files, progress=options.progress)),
    FileFormat(
        "TFRecord",
        r"tfrecords?(-\d+-of-\d+)?(\.gz)?",  # TFX's are called data_tfrecord-00000-of-00002.gz
        ".tfrecord (also .gz)",
        lambda files, options: open_tfrecord(files, progress=options.progress),
    ),
    FileFormat(
        "images",
        r"\.(png|jpe?g|gif|bmp|webp|tiff?|tar|tgz|tar\.gz)",
        ".png, .jpg, .gif, .bmp, .webp or .tiff, .tar or .tgz of images",
        lambda files, options: open_images(
            files, labels=options.labels, on_error=options.on_error, note=options.note, progress=options.progress
        ),
        options=frozenset({"labels", "on_error"}),
        holds=holds_images,
    ),
)


def format_of(path: Path) -> FileFormat:
    """The format of a file, by its name; of an archive, by the names of what is in it.

    Raises:
        InputError: It does not exist, is not a file, or is of no format that is known.
    """
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
    # First by content: a .zip of images would else be taken for a zipped CSV.
    for file_format in FORMATS:
        if file_format.holds is not None and file_format.holds(path):
            return file_format
    for file_format in FORMATS:
        if re.search(f"{file_format.ending}$", path.name, re.IGNORECASE):
            return file_format
    raise InputError(
        f"{path}: not a kind of file that can be read",
        fix=f"give {', '.join(file_format.shown for file_format in FORMATS)}",
    )
