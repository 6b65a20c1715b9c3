"""Images as rows: bytes as they are, with label, path, size and format; decoded later, in the input pipeline.

Input is image files (a label is the name of the folder an image lies in), or one archive of them (`.zip`, `.tar`,
`.tar.gz`), or scikit-learn's packaged digits, or a CSV of labels beside any of these. Every image is decoded once when
the source is opened, so that a broken one is known by name before anything is written; Pillow (extra `images`) does it.

The columns: `path` (below what the files share), `label` (text; missing where a file lies in no folder of its own),
`image` (the file's bytes), `width`, `height` (pixels, int32), `format` (as Pillow names it, e.g. "PNG").
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import tarfile
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final, Literal, TypeAlias

import pyarrow as pa

from ...errors import InputError, missing_extra
from ...progress import Progress
from ..sources import Shard, Source, changed_in_use
from .csv_files import open_csv
from .digits import DIGITS, digit_images

_ENDING: Final = re.compile(r"\.(png|jpe?g|gif|bmp|webp|tiff?)$", re.IGNORECASE)
_ARCHIVE: Final = re.compile(r"\.(zip|tar|tgz|tar\.gz)$", re.IGNORECASE)
_SHARD_IMAGES: Final = 4096
_BATCH_BYTES: Final = 32 << 20
_LARGEST: Final = 256 << 20  # bytes of an image; what an archive holds may be far larger than the archive
_DAMAGED: Final = (OSError, EOFError, zlib.error, tarfile.TarError, zipfile.BadZipFile, UnicodeDecodeError)
_SCHEMA: Final = pa.schema(
    [
        ("path", pa.string()),
        ("label", pa.string()),
        ("image", pa.binary()),
        ("width", pa.int32()),
        ("height", pa.int32()),
        ("format", pa.string()),
    ]
)

Facts: TypeAlias = tuple[str, str | None, int, int, str]
"""Path, label, width, height, format of an image."""


@dataclass(frozen=True)
class ImageShard:
    """Some images of a folder, or of an archive.

    Attributes:
        path: The folder or the archive.
        images: Their rows, but for the bytes.
    """

    path: str
    images: tuple[Facts, ...]

    @property
    def rows(self) -> int:
        """How many images it holds, one row each."""
        return len(self.images)

    def read(self, schema: pa.Schema, batch_rows: int, dictionaries: bool) -> Iterator[pa.RecordBatch]:
        """See `Shard.read`; the bytes are only read where they are wanted."""
        held: list[dict[str, Any]] = []
        size = 0
        wanted = {facts[0] for facts in self.images} if "image" in schema.names else set()
        contents = _contents(Path(self.path), wanted) if wanted else iter(())
        for path, label, width, height, form in self.images:
            data = None
            if wanted:
                content_path, data = next(contents, ("", b""))
                if content_path != path:
                    raise changed_in_use(self.path)
                size += len(data)
            held.append({"path": path, "label": label, "image": data, "width": width, "height": height, "format": form})
            if len(held) >= batch_rows or size >= _BATCH_BYTES:
                yield pa.RecordBatch.from_pylist(held, schema)
                held, size = [], 0
        if held:
            yield pa.RecordBatch.from_pylist(held, schema)


def holds_images(path: Path) -> bool:
    """Whether a file is an image, or an archive that holds one by name."""
    name = path.as_posix()
    if _ENDING.search(name) or name.endswith(DIGITS):
        return True
    if not _ARCHIVE.search(name):
        return False
    try:
        if name.lower().endswith(".zip"):
            with zipfile.ZipFile(path) as archive:
                return any(_ENDING.search(member) for member in archive.namelist())
        with tarfile.open(path) as tar:
            return any(_ENDING.search(member.name) for member in tar)
    except (*_DAMAGED, RuntimeError):
        return False  # whoever reads it will say what is wrong with it


def open_images(
    paths: Sequence[Path],
    *,
    labels: Path | None = None,
    on_error: Literal["raise", "skip"] = "raise",
    note: Callable[[str], None] | None = None,
    progress: Progress | None = None,
) -> Source:
    """A source over images, 4,096 to a shard; decodes all of them once.

    Args:
        paths: Image files, in this order, or one archive, or scikit-learn's digits.
        labels: A CSV with the columns `path` (as in the source's own, or a file name that is unique) and `label`; None
            to go by folders.
        on_error: What to do with a broken image: raise, or leave it out.
        note: Called with how many images were left out.
        progress: Called with the images decoded; may raise to stop.

    Raises:
        InputError: A file is missing, no image or a broken one (names it), the archive is damaged, or the labels lack
            an image, name one twice or one that is not there.
        DrivetrainError: Pillow is not installed.
    """
    base, names = _listed(paths)
    label_list = None if labels is None else _Labels(labels)
    readable: list[Facts] = []
    broken: list[str] = []
    done = 0
    for name, data in _contents(base, set(names)):
        done += 1
        try:
            width, height, form = _measured(data, _at(base, name))
        except InputError as error:
            if on_error == "raise":
                raise
            broken.append(error.message)
            if label_list is not None:
                label_list.of(name, required=False)
        else:
            folder = PurePosixPath(name).parent.name or None
            label = folder if label_list is None else label_list.of(name, required=True)
            readable.append((name, label, width, height, form))
        if progress is not None:
            progress(done, len(names), "images")
    if label_list is not None:
        label_list.all_used()
    if broken and note is not None:
        note(f"{len(broken)} of {done} images left out; the first: {broken[0]}")
    if broken and not readable:
        raise InputError(f"none of {done} images can be read; the first: {broken[0]}", fix="check the files")
    pieces = [tuple(readable[start : start + _SHARD_IMAGES]) for start in range(0, len(readable), _SHARD_IMAGES)]
    shards: list[Shard] = [ImageShard(str(base), piece) for piece in pieces]
    return Source(tuple(shards), _SCHEMA)


class _Labels:
    """The labels in a CSV, and which of them no image has used yet."""

    def __init__(self, path: Path) -> None:
        source = open_csv([path], column_types={"path": "string", "label": "string"}).select(["path", "label"])
        self._path = path
        self._labels: dict[str, str | None] = {}
        self._unused: dict[str, None] = {}
        for shard in source.shards:
            for batch in source.read(shard):
                for row in batch.to_pylist():
                    if row["path"] in self._labels:
                        raise InputError(f"{path}: two rows label {row['path']!r}", fix="remove one of them")
                    self._labels[row["path"]] = row["label"]
        self._unused = dict.fromkeys(self._labels)

    def of(self, name: str, *, required: bool) -> str | None:
        """The label of an image; None where it has none.

        Raises:
            InputError: It has none and it is required, or its file name is that of several images.
        """
        key = name if name in self._labels else PurePosixPath(name).name
        if key not in self._labels:
            if not required:
                return None
            raise InputError(
                f"{self._path} has no label for {name!r}", fix="add a row with that path, or remove the image"
            )
        if key != name and key not in self._unused:
            raise InputError(
                f"{self._path}: {key!r} names more than one image", fix="write the paths with their folders"
            )
        self._unused.pop(key, None)
        return self._labels[key]

    def all_used(self) -> None:
        if self._unused:
            raise InputError(
                f"{self._path} labels {next(iter(self._unused))!r}, which is not among the images",
                fix="remove the row, or add the image",
            )


def _listed(paths: Sequence[Path]) -> tuple[Path, list[str]]:
    """The folder or archive that the images are in, and their paths within it, in order."""
    if len(paths) == 1 and (_ARCHIVE.search(paths[0].name) or paths[0].as_posix().endswith(DIGITS)):
        return paths[0], _archived(paths[0])
    if any(_ARCHIVE.search(path.name) for path in paths):
        raise InputError(f"{paths[0]}: an archive of images is read alone", fix="give one archive, or image files")
    shared = Path(os.path.commonpath([path.resolve().parent for path in paths]))
    # Files of one folder only: that folder's name is their label
    shared = shared.parent if len({path.resolve().parent for path in paths}) == 1 else shared
    return shared, [path.resolve().relative_to(shared).as_posix() for path in paths]


def _archived(archive: Path) -> list[str]:
    """The paths of the images in an archive, in the order in which `_contents` gives them."""
    name = archive.as_posix().lower()
    with _undamaged(archive):
        if name.endswith(DIGITS):
            return [path for path, _ in digit_images(archive)]
        if name.endswith(".zip"):
            with zipfile.ZipFile(archive) as zipped:
                return [member for member in sorted(zipped.namelist()) if _is_image(member)]
        with tarfile.open(archive) as tar:
            return [item.name for item in tar if item.isfile() and _is_image(item.name)]


def _contents(base: Path, wanted: set[str]) -> Iterator[tuple[str, bytes]]:
    """Path and bytes of the images wanted, sorted by path; a tar's in its own order, which is the only fast one."""
    name = base.as_posix().lower()
    with _undamaged(base):
        if name.endswith(DIGITS):
            yield from ((path, data) for path, data in digit_images(base) if path in wanted)
        elif name.endswith(".zip"):
            with zipfile.ZipFile(base) as archive:
                for member in sorted(archive.namelist()):
                    if member in wanted and _is_image(member):
                        with archive.open(member) as inside:
                            yield member, inside.read(_LARGEST + 1)
        elif _ARCHIVE.search(name) and base.is_file():
            with tarfile.open(base) as tar:
                for item in tar:
                    if item.name in wanted and item.isfile() and _is_image(item.name):
                        file = tar.extractfile(item)
                        yield item.name, b"" if file is None else file.read(_LARGEST + 1)
        else:
            for path in sorted(wanted):
                try:
                    with (base / path).open("rb") as image:
                        data = image.read(_LARGEST + 1)
                    yield path, data
                except OSError as error:
                    raise InputError(
                        f"{base / path} cannot be read: {error.strerror}", fix="check the file and its rights"
                    ) from error


@contextlib.contextmanager
def _undamaged(archive: Path) -> Iterator[None]:
    """What reading an archive raises where it is damaged, as an InputError that names it."""
    try:
        yield
    except RuntimeError as error:  # of a zip: encrypted, or packed by a method that Python does not know
        raise InputError(
            f"{archive} cannot be unpacked ({str(error)[:200]})", fix="pack it without a password, by deflate"
        ) from error
    except _DAMAGED as error:
        raise InputError(f"{archive} is damaged ({str(error)[:200]})", fix="write or copy the file again") from error


def _is_image(member: str) -> bool:
    return _ENDING.search(member) is not None and not member.startswith("__MACOSX/")


def _at(base: Path, name: str) -> str:
    return f"{base}: {name}" if base.is_file() else str(base / name)


def _measured(data: bytes, where: str) -> tuple[int, int, str]:
    """Width, height and format of an image that can be decoded to the last pixel."""
    try:
        from PIL import Image
    except ImportError as error:
        raise missing_extra("pillow", "images") from error
    try:
        if len(data) > _LARGEST:
            raise ValueError(f"more than {_LARGEST >> 20} MiB")
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(io.BytesIO(data)) as image:
                image.verify()  # the checksums of a PNG, which decoding forgives
            with Image.open(io.BytesIO(data)) as image:
                image.load()
                return image.width, image.height, str(image.format)
    except Exception as error:  # Pillow raises what its decoders stumble over
        cause = "it is empty" if not data else (str(error) or type(error).__name__).splitlines()[0][:200]
        cause = re.sub(r" <_io\.BytesIO.*>", "", cause)
        raise InputError(
            f"{where} is not a whole image ({cause})", fix='replace it, or leave broken ones out with on_error="skip"'
        ) from error
