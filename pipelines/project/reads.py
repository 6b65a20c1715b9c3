"""Which files the user's code opens while it is imported or run: they are inputs too, as in a compiler's depfile.

Python tells an audit hook of each file that is opened and each folder that is listed. Where the nearest code on the
stack, libraries aside, is the user's, the file counts: for the execution, and for each module whose code is on the
stack, since what a module has read it may keep, and give to the next node of this process. What other processes open,
and compiled libraries past Python (pyarrow's readers, DuckDB), is not seen: such files are named in the pipeline, by
`dt.files`.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import stat
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any, Final

from ...user_code import is_drivetrains, is_library, is_users

Stamp = tuple[int, int, int, int]
"""Size in bytes (-1 of a folder), times of the last change of content and of the inode in ns, inode.

The stamp of what is not there, or neither a file nor a folder, is None.
"""
_SYSTEM: Final = (
    *(f"{folder}/" for folder in ("/proc", "/dev", "/sys", "/etc", "/lib", "/lib64", "/usr/lib", "/usr/share")),
    *(f"{folder}/" for folder in ("/usr/local/lib", "/run/secrets", sysconfig.get_path("stdlib"))),
    *([f"{sys.prefix}/"] if sys.prefix != sys.base_prefix else []),
)
_IMPORTER: Final = str(Path(__file__).with_name("functions.py"))  # it imports the project's modules for the user
_HASHED: Final = 64 << 20
"""Bytes up to which content decides; of a larger file its size and date."""
_MOST: Final = 10_000
"""Files that are recorded of one execution."""
_SETTLED: Final = 2_000_000_000
"""Nanoseconds after which a change of a file shows in its date, on any file system."""
_WRITES: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# By module: what its code read, what it wrote; what its components' declarations read, which their own keys cover.
_BY_MODULE: Final[dict[str, dict[str, Stamp | None]]] = {}
_DECLARED: Final[dict[str, dict[str, Stamp | None]]] = {}
_WRITTEN: Final[dict[str, set[str]]] = {}
_ACTIVE: Final[list[Reads]] = []
_CURRENT: Final[ContextVar[Reads | None]] = ContextVar("reads", default=None)
_LOCK: Final = threading.Lock()


class Reads:
    """What one execution opened, with the stamp of the first time."""

    def __init__(self) -> None:
        self._begin = time.time_ns()
        self._stamps: dict[str, Stamp | None] = {}
        self._written: set[str] = set()

    def opened(self, path: str, stamp: Stamp | None, *, writes: bool) -> None:
        """Note that a file was opened."""
        if writes:
            self._written.add(path)
        else:
            self._stamps.setdefault(path, stamp)

    def record(
        self, project: Path, modules: Mapping[str, Path], without: Collection[Path]
    ) -> tuple[list[list[object]], int]:
        """What the next run compares, as JSON: [path, stamp, SHA-256] of each file.

        Args:
            project: The folder that paths in it are relative to.
            modules: The source files that count as code, by module; what they have read counts too.
            without: Folders and files that count otherwise, or not at all.

        Returns:
            With how many were left out because there are too many.
        """
        stamps: dict[str, Stamp | None] = {}
        for module in modules:
            stamps.update(_BY_MODULE.get(module, {}))
        stamps.update(self._stamps)  # of the first time: where the file changed before it was read again, that shows
        apart = {str(path) for path in (*modules.values(), *without)}
        folders = tuple(f"{path}/" for path in apart)
        scratch = f"{tempfile.gettempdir()}/"
        paths = []
        for path, stamp in sorted(stamps.items()):
            if path in apart or path.startswith(folders) or not _counts(path, project):
                continue
            if path in self._written:  # its own result, or what it keeps for the next time
                continue
            if stamp is not None and stamp[0] < 0 and stamp_of(path) != stamp:
                continue  # a folder that it works in
            if path.startswith(scratch) and stamp is not None and stamp[1] >= self._begin:
                continue  # a file on the way, e.g. of a child process
            paths.append(path)
        read = [_recorded(path, stamps[path], project) for path in paths[:_MOST]]
        return read, max(0, len(paths) - _MOST)


@contextmanager
def recording(reads: Reads) -> Iterator[None]:
    """Note what the user's code opens within."""
    watch()
    token = _CURRENT.set(reads)
    with _LOCK:
        _ACTIVE.append(reads)
    try:
        yield
    finally:
        with _LOCK:
            _ACTIVE.remove(reads)
        _CURRENT.reset(token)


def first_changed(recorded: Sequence[Any], project: Path) -> str | None:  # Any: JSON from the store
    """The first file that is not as it was when it was read; None where all are."""
    return next((str(path) for path, *before in recorded if not _is_as_before(str(project / path), *before)), None)


def _is_as_before(file: str, before: Sequence[int] | None, digest: str | None) -> bool:
    stamp = stamp_of(file)
    if stamp is None or before is None:
        return stamp is None and before is None
    if digest == "":
        return False
    return stamp == tuple(before) or (digest is not None and _digest(file, stamp) == digest)


@cache
def watch() -> None:
    """Have Python tell of files that are opened from now on; once in a process, since a hook cannot be removed."""
    sys.addaudithook(_hook)


def note_file_read(module: str, path: Path) -> None:
    """Note that a component's declaration in a module reads a file, which is part of that component alone."""
    _DECLARED.setdefault(module, {})[str(path)] = stamp_of(str(path))


def read_at_import(module: str) -> Mapping[str, Stamp | None]:
    """What a module's code and its declarations have read, and how it was then."""
    return {**_BY_MODULE.get(module, {}), **_DECLARED.get(module, {})}


def forget(module: str) -> None:
    """Forget what a module read: it will be imported anew, and where one changed, all that it imported from outside.

    Where none of those changed they stay loaded, and are remembered: they will not be opened again.
    """
    _DECLARED.pop(module, None)
    _WRITTEN.pop(module, None)
    read = _BY_MODULE.pop(module, {})
    files = {getattr(each, "__file__", None): name for name, each in tuple(sys.modules.items())}
    loaded = {path: files[path] for path in read if path in files}
    if all(stamp_of(path) == read[path] for path in loaded):
        if loaded:
            _BY_MODULE[module] = {path: read[path] for path in loaded}
        return
    for name in loaded.values():
        sys.modules.pop(name, None)
        parent, _, child = name.rpartition(".")
        with contextlib.suppress(AttributeError):
            delattr(sys.modules.get(parent), child)


def stamp_of(path: str) -> Stamp | None:
    """A file's or folder's stamp."""
    try:
        status = os.stat(path)  # noqa: PTH116 - asked for thousands of files
    except (OSError, ValueError):
        return None
    folder = stat.S_ISDIR(status.st_mode)
    if not folder and not stat.S_ISREG(status.st_mode):
        return None  # to read a pipe may wait for ever
    return -1 if folder else status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


def _hook(event: str, arguments: tuple[Any, ...]) -> None:  # Any: what the event has
    if event not in ("open", "os.listdir", "os.scandir"):
        return
    with contextlib.suppress(Exception):  # the user's call goes on whatever happens here
        path = arguments[0]
        if path is None:
            path = "."
        if not isinstance(path, (str, bytes, os.PathLike)):
            return  # a file that is open already
        name = os.path.abspath(os.fsdecode(path))  # noqa: PTH100 - links stay: what they mean may change
        if name.startswith(_SYSTEM) or (is_library(name) and not is_users(name)):
            return
        if event == "open" and os.path.isdir(name):  # noqa: PTH112 - to remove what is in it
            return
        name.encode()  # a name that is no text cannot be recorded
        _note(name, event != "open", _is_write(*arguments[1:3]) if event == "open" else False)


def _is_write(mode: object, flags: object) -> bool:
    if isinstance(mode, str):
        return any(letter in mode for letter in "wax+")
    return isinstance(flags, int) and bool(flags & _WRITES)


def _note(name: str, listing: bool, writes: bool) -> None:
    frame: FrameType | None = sys._getframe(2)
    importing = frame is not None and frame.f_code.co_filename.startswith("<frozen importlib")
    if importing and listing:
        return  # the search for a module
    while frame is not None and not is_users(file := frame.f_code.co_filename):
        if is_drivetrains(file) and file != _IMPORTER:
            return
        frame = frame.f_back
    if frame is None:
        return
    if name.endswith(".pyc"):
        name = importlib.util.source_from_cache(name)
    stamp = stamp_of(name)
    current = _CURRENT.get()
    for reads in (current,) if current is not None else tuple(_ACTIVE):  # a thread of the user's has no context
        reads.opened(name, stamp, writes=writes)
    while frame is not None:
        file = frame.f_code.co_filename
        if is_users(file) and _counts(name, Path(file).parent):
            module = frame.f_globals.get("__name__", "")
            if writes:
                _WRITTEN.setdefault(module, set()).add(name)
                _BY_MODULE.get(module, {}).pop(name, None)
            elif name not in _WRITTEN.get(module, ()):
                _BY_MODULE.setdefault(module, {})[name] = stamp
        frame = frame.f_back


def _counts(path: str, project: Path) -> bool:
    """Whether a file may be an input: it is not hidden, nor in a hidden folder that the project is not in."""
    inside = path.removeprefix(os.path.commonpath([path, project]))
    return not any(part.startswith(".") or part == "__pycache__" for part in inside.split("/"))


def _recorded(path: str, stamp: Stamp | None, project: Path) -> list[object]:
    folder = f"{project}/"
    name = path.removeprefix(folder)
    if stamp is None:
        return [name, None, None]
    digest = _digest(path, stamp)
    if stamp_of(path) != stamp:
        digest = ""  # it changed meanwhile: which of the two was read cannot be told
    # Within the grain of the clock, another change would not show in the date: content alone decides then.
    settled = time.time_ns() - max(stamp[1], stamp[2]) > _SETTLED
    return [name, stamp if settled else (stamp[0], 0, 0, 0), digest]


def _digest(path: str, stamp: Stamp) -> str | None:
    """SHA-256 of a file, or of a folder's names; None of a large file."""
    try:
        if stamp[0] < 0:
            names = sorted(name for name in os.listdir(path) if not name.startswith((".", "__pycache__")))  # noqa: PTH208
            return hashlib.sha256("\0".join(names).encode(errors="surrogateescape")).hexdigest()
        if stamp[0] > _HASHED:
            return None
        with open(path, "rb") as file:  # noqa: PTH123
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""
