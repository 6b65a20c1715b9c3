"""Caching: the rows of a dataset kept after one pass, in memory or in files that are mapped into it."""

from __future__ import annotations

import fcntl
import glob
import json
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tokenize import TokenError
from typing import Any, BinaryIO, Final

import numpy as np

from ....digest import write_durably
from ....errors import InputError
from .columns import Array, Columns, decoded, encoded, joined_columns, read_only, rows_in, taken
from .dataset import Dataset, State, Stream, measured, row_of
from .shuffling import IndexedDataset

_BLOCK: Final = 65_536
_HEADER: Final = 1024
"""Bytes before an array's values in its file: room for a header of NumPy's format, whose size is known in the end."""
_MANIFEST: Final = "cache.json"


@dataclass(frozen=True, eq=False)
class Cached(IndexedDataset):
    """See `Dataset.cache`. Its state is the next row's number.

    A folder holds an array per column in NumPy's format, `cache.json` says which is which, and of which dataset they
    are. It is written beside and renamed when it is whole.
    """

    parent: Dataset
    folder: Path | None
    _kept: dict[str, Columns] = field(default_factory=dict, repr=False)
    _guard: Any = field(default_factory=threading.Lock, repr=False)

    @property
    def label(self) -> str:
        """In short; where it is kept makes no difference to what comes."""
        return "cache"

    @property
    def parents(self) -> tuple[Dataset, ...]:
        """What is kept."""
        return (self.parent,)

    @property
    def rows(self) -> int | None:  # type: ignore[override]  # computed, not stored
        """As before, or as counted."""
        return rows_in(self._kept["columns"]) if self._kept else self.parent.rows

    def count(self) -> int:
        """How many rows there are, after a pass the first time."""
        return rows_in(self._columns())

    def take(self, rows: Array) -> Columns:
        """The rows of these numbers."""
        return taken(self._columns(), rows)

    def stream(self, epoch: int, state: State = None) -> Stream:
        """See `Dataset.stream`."""
        columns = self._columns()
        for begin in range(row_of(state, rows_in(columns)), rows_in(columns), _BLOCK):
            end = min(begin + _BLOCK, rows_in(columns))
            yield taken(columns, slice(begin, end)), end

    def _columns(self) -> Columns:
        """All rows; the first time, after a pass over the parent."""
        with self._guard:
            if not self._kept:
                self._kept["columns"] = self._in_memory() if self.folder is None else self._in_files(self.folder)
            return self._kept["columns"]

    def _in_memory(self) -> Columns:
        blocks = [block for block, _ in measured(self.parent, 0)]
        return read_only(joined_columns(blocks)) if blocks else {}

    def _in_files(self, folder: Path) -> Columns:
        if not (folder / _MANIFEST).is_file():
            if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
                raise InputError(f"{folder} is not empty, and holds no cache", fix="name a folder of its own")
            with _aside(folder) as aside:
                _write(self.parent, aside, folder)
                with suppress(OSError):  # another process was faster; what it wrote is the same
                    aside.rename(folder)
        return _mapped(folder, str(self.parent))


@contextmanager
def _aside(folder: Path) -> Iterator[Path]:
    """A folder beside a cache's, which is written there and then renamed: who finds a cache finds all of it.

    What is left of it goes in the end; what killed processes left, when the next one begins.
    """
    with _writing(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        for left in folder.parent.glob(f"{glob.escape(folder.name)}.part-*"):
            with _held(left, fcntl.LOCK_NB) as held:
                if held:
                    shutil.rmtree(left, ignore_errors=True)
    while True:
        with _writing(folder):
            aside = Path(tempfile.mkdtemp(prefix=f"{folder.name}.part-", dir=folder.parent))
        with _held(aside):
            if not aside.exists():  # another process took it for what is left, before it was held
                continue
            try:
                yield aside
            finally:
                shutil.rmtree(aside, ignore_errors=True)
            return


@contextmanager
def _held(folder: Path, how: int = 0) -> Iterator[bool]:
    """Hold a folder by the system's lock, which goes with the process; False where it cannot be, or is gone.

    Args:
        folder: It.
        how: 0 to wait until no other holds it, which takes as long as to remove it; LOCK_NB to give up then.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        yield False
        return
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | how)
        except OSError:  # another's, or a file system without locks
            yield False
            return
        yield True
    finally:
        os.close(descriptor)


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    """What the system refuses while a cache is written, as an error that names its folder."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"the cache {folder} cannot be written: {error.strerror or error}",
            fix="name a folder where there is room, or cache() in memory",
        ) from error


def _write(dataset: Dataset, aside: Path, folder: Path) -> None:
    files: dict[str, list[_ArrayFile]] = {}
    kinds: dict[str, str] = {}
    rows = 0
    with ExitStack() as opened:
        for block, _ in measured(dataset, 0):
            parts = {name: encoded(column) for name, column in block.items()}
            if not rows:
                kinds = {name: kind for name, (kind, _) in parts.items()}
                for number, (name, (_, arrays)) in enumerate(parts.items()):
                    files[name] = []
                    for part, array in enumerate(arrays):
                        with _writing(folder):
                            files[name].append(_ArrayFile(aside / _file(number, part), array, opened))
            if kinds != {name: kind for name, (kind, _) in parts.items()}:
                raise InputError(f"the columns of {dataset} change at row {rows}", fix="give the same to all rows")
            for name, (_, arrays) in parts.items():
                for file, array in zip(files[name], arrays, strict=True):
                    with _writing(folder):
                        file.append(array)
            rows += rows_in(block)
        for each in files.values():
            for file in each:
                with _writing(folder):
                    file.end()
    manifest = {"dataset": str(dataset), "rows": rows, "columns": list(kinds.items())}
    with _writing(folder):
        write_durably(aside / _MANIFEST, json.dumps(manifest, indent=1).encode())


def _mapped(folder: Path, dataset: str) -> Columns:
    try:
        manifest = json.loads((folder / _MANIFEST).read_bytes())
        cached = manifest["dataset"]
        columns = _read(folder, manifest["columns"], manifest["rows"]) if cached == dataset else {}
    except (OSError, ValueError, LookupError, TypeError, SyntaxError, TokenError) as error:
        raise InputError(
            f"the cache {folder} is damaged ({type(error).__name__}: {error})", fix="remove it; it is written again"
        ) from error
    if cached != dataset:
        raise InputError(
            f"{folder} holds the cache of another dataset: {cached}, here {dataset}",
            fix="name another folder, or remove it",
        )
    return columns


def _read(folder: Path, kinds: Sequence[tuple[str, str]], rows: int) -> Columns:
    columns: dict[str, Any] = {}
    for number, (name, kind) in enumerate(kinds):
        arrays = [_array(folder / _file(number, part)) for part in range(1 if kind.startswith("array") else 2)]
        *values, lengths = arrays
        if len(lengths) != rows or any(len(each) != lengths.sum() for each in values):
            raise ValueError(f"column {name!r} has not {rows} rows")
        columns[name] = decoded(kind, arrays)
    return columns


def _array(path: Path) -> Array:
    """An array that the system reads when it is looked at."""
    return np.asarray(np.load(path, mmap_mode="r" if path.stat().st_size > _HEADER else None))


def _file(number: int, part: int) -> str:
    return f"{number}{'-lengths' if part else ''}.npy"


class _ArrayFile:
    """An array in NumPy's format, written part by part."""

    def __init__(self, path: Path, like: Array, opened: ExitStack) -> None:
        self._file: BinaryIO = opened.enter_context(path.open("wb"))
        self._file.write(bytes(_HEADER))
        self._dtype, self._shape, self._rows = like.dtype, like.shape[1:], 0

    def append(self, part: Array) -> None:
        """More rows of the same dtype and shape."""
        if part.dtype != self._dtype or part.shape[1:] != self._shape:
            raise InputError(
                f"a column changes from {self._dtype}{list(self._shape)} to {part.dtype}{list(part.shape[1:])}",
                fix="give one shape and dtype to all rows",
            )
        if part.size:  # the bytes: not every dtype has a buffer of its own
            self._file.write(np.ascontiguousarray(part).reshape(-1).view(np.uint8).data)
        self._rows += len(part)

    def end(self) -> None:
        """Write the header, whose size is known now."""
        described = {
            "descr": np.lib.format.dtype_to_descr(self._dtype),
            "fortran_order": False,
            "shape": (self._rows, *self._shape),
        }
        text = repr(described).encode().ljust(_HEADER - 11) + b"\n"
        if len(text) > _HEADER - 10:
            raise InputError(f"a cache holds no arrays of {self._dtype}", fix="make columns of its fields in a map(…)")
        self._file.seek(0)
        self._file.write(b"\x93NUMPY\x01\x00" + (_HEADER - 10).to_bytes(2, "little") + text)
        self._file.flush()
        os.fsync(self._file.fileno())  # the manifest, written last, says that all are whole
