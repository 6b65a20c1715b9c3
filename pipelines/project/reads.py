"""Which files the user's code opens while it is imported or run: they are inputs too, as in a compiler's depfile.

Python tells an audit hook of each file that is opened and each folder that is listed. Where the nearest code on the
stack, libraries aside, is the user's, the file counts. What other processes open, and compiled libraries past Python
(pyarrow's readers, DuckDB), is not seen: such files are named in the pipeline, by `dt.files`.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import stat
import sys
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

Stamp = tuple[int, int]
"""Size in bytes (-1 of a folder) and time of the last change in ns; the stamp of what is not there is None."""
_SYSTEM: Final = (
    *(f"{folder}/" for folder in ("/proc", "/dev", "/sys", "/etc", "/lib", "/lib64", "/usr/lib", "/usr/share")),
    *(f"{folder}/" for folder in ("/usr/local/lib", "/run/secrets", sys.prefix, sys.base_prefix)),
)
_HASHED: Final = 64 << 20
"""Bytes up to which content decides; of a larger file its size and date."""
_MOST: Final = 10_000
"""Files that are recorded of one execution."""
_SETTLED: Final = 2_000_000_000
"""Nanoseconds after which a change of a file shows in its date, on any file system."""
_WRITES: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# By module: what it read while it was imported; and its components' declarations, whose files their own keys cover.
_AT_IMPORT: Final[dict[str, dict[str, Stamp | None]]] = {}
_DECLARED: Final[dict[str, dict[str, Stamp | None]]] = {}
_WRITTEN_AT_IMPORT: Final[set[str]] = set()
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
        """What the next run compares, as JSON: [path, size, time of change, SHA-256] of each file.

        Args:
            project: The folder that paths in it are relative to.
            modules: The source files that count as code, by module; what they read when they were imported counts too.
            without: Folders and files that count otherwise, or not at all.

        Returns:
            With how many were left out because there are too many.
        """
        stamps = dict(self._stamps)
        for module in modules:
            stamps.update(_AT_IMPORT.get(module, {}))
        apart = {str(path) for path in (*modules.values(), *without)}
        folders = tuple(f"{path}/" for path in apart)
        scratch = f"{tempfile.gettempdir()}/"
        paths = []
        for path, stamp in sorted(stamps.items()):
            if path in apart or path.startswith(folders) or not _counts(path, project):
                continue
            if path in self._written:  # its own result, or what it keeps from one time to the next
                continue
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


def _is_as_before(file: str, size: int | None, changed_at: int, digest: str | None) -> bool:
    stamp = stamp_of(file)
    if stamp is None or size is None:
        return stamp is None and size is None
    if digest == "":
        return False
    return stamp == (size, changed_at) or (digest is not None and _digest(file, stamp) == digest)


@cache
def watch() -> None:
    """Have Python tell of files that are opened from now on; once in a process, since a hook cannot be removed."""
    sys.addaudithook(_hook)


def note_file_read(module: str, path: Path) -> None:
    """Note that a component's declaration in a module reads a file, which is part of that component alone."""
    _DECLARED.setdefault(module, {})[str(path)] = stamp_of(str(path))


def read_at_import(module: str) -> Mapping[str, Stamp | None]:
    """What a module and its declarations read while it was imported, and how it was then."""
    return {**_AT_IMPORT.get(module, {}), **_DECLARED.get(module, {})}


def forget(module: str) -> None:
    """Forget what a module read: it will be imported anew, and with it what changed of the modules that it imported.

    One from outside its project that did not change stays loaded, and is remembered: it will not be opened again.
    """
    _DECLARED.pop(module, None)
    stay = {}
    for path, read in _AT_IMPORT.pop(module, {}).items():
        loaded = [name for name, each in tuple(sys.modules.items()) if getattr(each, "__file__", None) == path]
        if stamp_of(path) == read and loaded:
            stay[path] = read
        else:
            for name in loaded:
                del sys.modules[name]
    if stay:
        _AT_IMPORT[module] = stay


def stamp_of(path: str) -> Stamp | None:
    """A file's or folder's stamp."""
    try:
        status = os.stat(path)  # noqa: PTH116 - asked for thousands of files
    except (OSError, ValueError):
        return None
    return -1 if stat.S_ISDIR(status.st_mode) else status.st_size, status.st_mtime_ns


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
        if name.startswith(_SYSTEM) or is_library(name):
            return
        _note(name, event != "open", _is_write(*arguments[1:3]) if event == "open" else False)


def _is_write(mode: object, flags: object) -> bool:
    if isinstance(mode, str):
        return any(letter in mode for letter in "wax")
    return isinstance(flags, int) and bool(flags & _WRITES)


def _note(name: str, listing: bool, writes: bool) -> None:
    frame: FrameType | None = sys._getframe(2)
    importing = frame is not None and frame.f_code.co_filename.startswith("<frozen importlib")
    if importing and listing:
        return  # the search for a module
    while frame is not None and not is_users(frame.f_code.co_filename):
        if is_drivetrains(frame.f_code.co_filename):
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
        if frame.f_code.co_name == "<module>" and is_users(file) and _counts(name, Path(file).parent):
            if writes:
                _WRITTEN_AT_IMPORT.add(name)
            elif name not in _WRITTEN_AT_IMPORT:
                _AT_IMPORT.setdefault(frame.f_globals.get("__name__", ""), {})[name] = stamp
        frame = frame.f_back


def _counts(path: str, project: Path) -> bool:
    """Whether a file may be an input: it is not hidden, nor in a hidden folder of the project or the user's home."""
    folders = [str(project), str(Path.home())] if "HOME" in os.environ else [str(project)]
    inside = next((path.removeprefix(folder) for folder in folders if path.startswith(f"{folder}/")), path)
    return not any(part.startswith(".") or part == "__pycache__" for part in inside.split("/"))


def _recorded(path: str, stamp: Stamp | None, project: Path) -> list[object]:
    folder = f"{project}/"
    name = path.removeprefix(folder)
    if stamp is None:
        return [name, None, None, None]
    digest = _digest(path, stamp)
    if stamp_of(path) != stamp:
        digest = ""  # it changed meanwhile: which of the two was read cannot be told
    # Within the grain of the clock, another change would not show in the date: content alone decides then.
    changed_at = stamp[1] if time.time_ns() - stamp[1] > _SETTLED else 0
    return [name, stamp[0], changed_at, digest]


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
