"""Which files the user's code opens while it is imported or run: they are inputs too, as in a compiler's depfile.

Python tells an audit hook of each file that is opened and each folder that is listed. Where the nearest code on the
stack, libraries and drivetrain's own readers aside, is the user's, the file counts: for the execution, and for each
module whose code is on the stack, since what a module has read it may keep, and give to the next node of this process.
What other processes open, and compiled libraries past Python (pyarrow's readers, and with them `pandas.read_parquet`;
DuckDB), is not seen. So where the user's modules import any library, the files that their literals name count as read,
whether they were or not. Those with computed names are named in the pipeline, by `dt.files`.

A file that was named relative to the working directory is kept by that name, which begins with `./`, since it means
another file elsewhere.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.util
import linecache
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
from urllib.parse import unquote, urlsplit

from ...user_code import is_drivetrains, is_library, is_users
from .sources import read_source

Stamp = tuple[int, int, int, int]
"""Size in bytes (-1 of a folder), times of the last change of content and of the inode in ns, inode.

The stamp of what is not there, or neither a file nor a folder, is None.
"""
_SYSTEM: Final = (
    *(f"{folder}/" for folder in ("/proc", "/dev", "/sys", "/etc", "/lib", "/lib64", "/usr/lib", "/usr/share")),
    *(f"{folder}/" for folder in ("/usr/local/lib", "/run/secrets", sysconfig.get_path("stdlib"))),
    *([f"{sys.prefix}/"] if sys.prefix != sys.base_prefix else []),
)
_IN_MEMORY: Final = "/dev/shm/"  # noqa: S108 - below /dev, and as much the user's as any folder
_IMPORTER: Final = str(Path(__file__).with_name("functions.py"))  # it imports the project's modules for the user
# These packages of ours open files for themselves, the others for whoever called them.
_LAUNCHING: Final = tuple(f"{Path(__file__).parents[2] / package}/" for package in ("pipelines", "console"))
_EVENTS: Final = frozenset({"open", "os.listdir", "os.scandir", "sqlite3.connect", "ctypes.dlopen"})
_HASHED: Final = 64 << 20
"""Bytes up to which content decides; of a larger file its size and date."""
_MOST: Final = 10_000
"""Files that are recorded of one execution, and of which a module remembers that it read or wrote them."""
_SETTLED: Final = 2_000_000_000
"""Nanoseconds after which a change of a file shows in its date, on any file system."""
_FOLDERS: Final = 32
"""Folders in which the files are looked for that literals name."""
_WRITES: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# By module: what its code read, and of that as text what is Python's source; what it wrote; what its components'
# declarations read, which their own keys cover.
_BY_MODULE: Final[dict[str, dict[str, Stamp | None]]] = {}
_TEXTS: Final[dict[str, set[str]]] = {}
_WRITTEN: Final[dict[str, set[str]]] = {}
_DECLARED: Final[dict[str, dict[str, Stamp | None]]] = {}
_DATABASES: Final[set[str]] = set()
"""Files of SQLite, which opens none for reading alone."""
_ACTIVE: Final[list[Reads]] = []
_CURRENT: Final[ContextVar[Reads | None]] = ContextVar("reads", default=None)
_LOCK: Final = threading.Lock()


class Reads:
    """What one execution opened, with the stamp of the first time.

    Attributes:
        changed: Files that literals name and that changed meanwhile, as `record` found: they are taken for results.
    """

    def __init__(self) -> None:
        self.changed: list[str] = []
        self._begin = time.time_ns()
        self._named: dict[str, Stamp | None] = {}
        self._stamps: dict[str, Stamp | None] = {}
        self._written: set[str] = set()
        self._texts: set[str] = set()

    def note_files_named(self, modules: Mapping[str, Path], project: Path) -> None:
        """Note the files that literals name, as they are before the code runs: see `files_named`."""
        self._named = {name: stamp_of(_path(name)) for name in files_named(modules, project)}

    def opened(self, name: str, stamp: Stamp | None, *, writes: bool, as_text: bool) -> None:
        """Note that a file was opened; `as_text`: a module's source, which was not to be run."""
        if writes:
            self._written.add(_path(name))
            return
        self._stamps.setdefault(name, stamp)
        if as_text:
            self._texts.add(_path(name))

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
        texts, written = set(self._texts), set[str]()
        for module in modules:
            stamps.update(_BY_MODULE.get(module, {}))
            texts |= _TEXTS.get(module, set())
            written |= _WRITTEN.get(module, set())
        caches = os.environ.get("XDG_CACHE_HOME", "")  # `~/.cache` is hidden
        apart = {str(path) for path in (*modules.values(), *without, *filter(None, [caches]))}
        opened = {_path(name) for name in (*stamps, *self._stamps)}
        for name, stamp in self._named.items():
            if _path(name) in opened | written:
                continue
            if stamp_of(_path(name)) == stamp:
                stamps[name] = stamp
            elif _path(name) not in apart:  # a result, as a rule: nobody saw whether it was opened before
                self.changed.append(name.removeprefix(f"{project}/"))
        stamps.update(self._stamps)  # of the first time: where the file changed before it was read again, that shows
        folders = tuple(f"{path}/" for path in apart)
        scratch = f"{tempfile.gettempdir()}/"
        names = []
        for name, stamp in sorted(stamps.items()):
            path = _path(name)
            if (path in apart and path not in texts) or path.startswith(folders) or not _counts(path, str(project)):
                continue
            if path in self._written:  # its own result, or what it keeps for the next time
                continue
            works_in = path in _DATABASES or (stamp is not None and stamp[0] < 0)
            if works_in and stamp_of(path) != stamp:
                continue  # a folder or a database that it works in
            on_the_way = path.startswith(scratch) and name not in self._named
            if on_the_way and stamp is not None and stamp[1] >= self._begin:
                continue  # a file on the way, e.g. of a child process
            if path.startswith(f"{scratch}drivetrain-"):
                continue  # a copy of what lies elsewhere, which goes with this process
            names.append(name)
        checkout = _checkout(project)
        read = [row for name in names[:_MOST] for row in _recorded(name, stamps[name], project, checkout)]
        return read, max(0, len(names) - _MOST)


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


def files_named(modules: Mapping[str, Path], project: Path) -> list[str]:
    """The names of files that literals of the user's modules name, where these import a library that may open them.

    They are looked for beside the modules, in the project, in the folders around it up to the repository's, in the
    working directory, and in folders there that literals name: `HERE / "data" / "rates.parquet"`.

    Args:
        modules: The source files of the user's modules, by name.
        project: The project's folder.
    """
    sources = [read_source(str(path)) for path in modules.values() if path.suffix == ".py"]
    known = {*sys.stdlib_module_names, __name__.partition(".")[0], *(name.partition(".")[0] for name in modules)}
    siblings = {name.rpartition(".")[2] for name in modules}  # as a script imports what lies beside it
    tops = {name.partition(".")[0] for source in sources for level, name, _ in source.imports if not level}
    if tops <= known | siblings:
        return []
    texts = sorted({text for source in sources for text in source.texts})
    checkout = _checkout(project)
    around = [str(folder) for folder in (project, *project.parents) if f"{folder}/".startswith(checkout)]
    beside = {str(path.parent) for path in modules.values()}
    folders = list(dict.fromkeys([*sorted(beside), *around, _began_in()]))
    relative = _began_in() if _began_in() not in beside.union(around) else None
    names = dict[str, str]()
    for folder in folders:  # which grows meanwhile
        for text in texts:
            path = os.path.abspath(os.path.join(folder, text))  # noqa: PTH100, PTH118 - thousands of them
            if path not in names and (stamp := stamp_of(path)) is not None and _may_count(path):
                if stamp[0] >= 0:
                    names[path] = _kept_as(text, path) if folder == relative else path
                elif path not in folders and len(folders) < _FOLDERS and not f"{project}/".startswith(f"{path}/"):
                    folders.append(path)
    return sorted(names.values())


def first_changed(recorded: Sequence[Any], project: Path) -> str | None:  # Any: JSON from the store
    """The first file that is not as it was when it was read; None where all are."""
    changed = (name for name, *before in recorded if not _is_as_before(_path(name, project), *before))
    return next((str(name).removeprefix("./") for name in changed), None)


def _path(name: str, folder: Path | None = None) -> str:
    """The path of a file by the name under which it is kept, or recorded: then relative to a folder."""
    if folder is None or name.startswith("./"):
        return os.path.abspath(name)  # noqa: PTH100 - links stay: what they mean may change
    return str(folder / name)


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
    with contextlib.suppress(OSError):
        _began_in()
    # What these list folders for, once, is known before: the hook would be told of it while it asks, on and on.
    is_users(__file__)
    is_users(os.devnull)
    sys.addaudithook(_hook)


@cache
def _began_in() -> str:
    """The working directory in which this process began to watch; it may go elsewhere for a while."""
    return os.getcwd()  # noqa: PTH109


def note_file_read(module: str, path: Path) -> None:
    """Note that a component's declaration in a module reads a file, which is part of that component alone."""
    _DECLARED.setdefault(module, {})[str(path)] = stamp_of(str(path))


def read_at_import(module: str) -> Mapping[str, Stamp | None]:
    """What a module's code and its declarations have read, and how it was then."""
    return {**_BY_MODULE.get(module, {}), **_DECLARED.get(module, {})}


def forget(modules: Collection[str], files: Collection[str]) -> None:
    """Forget what a project's modules read: they will be imported anew, and where one changed, all from outside.

    Where none of those changed they stay loaded, and are remembered: they will not be opened again.

    Args:
        modules: The project's, which are no longer in `sys.modules`.
        files: Theirs.
    """
    name_of: dict[str, str] = {}
    for module in modules:
        for remembered in (_DECLARED, _WRITTEN, _TEXTS):
            remembered.pop(module, None)
        read = _BY_MODULE.pop(module, {})
        outside = read.keys() - files
        if outside and not name_of:  # thousands of modules, looked through only where it matters
            name_of = {getattr(each, "__file__", None) or "": name for name, each in tuple(sys.modules.items())}
        loaded = [path for path in outside if path in name_of]
        if all(stamp_of(path) == read[path] for path in loaded):
            if loaded:
                _BY_MODULE[module] = {path: read[path] for path in loaded}
            continue
        for name in (name_of.pop(path) for path in loaded):
            sys.modules.pop(name, None)
            parent, _, child = name.rpartition(".")
            with contextlib.suppress(AttributeError):
                delattr(sys.modules.get(parent), child)


def forget_package(package: str) -> None:
    """Forget what is remembered of a package's modules: another project takes its name."""
    for module in [each for each in _BY_MODULE if each == package or each.startswith(f"{package}.")]:
        del _BY_MODULE[module]


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


def note_missing_module(module: str, folders: Sequence[str]) -> None:
    """Note that a module is nowhere, where the user's code looks for it: it may appear.

    Args:
        module: Its full name.
        folders: Where it was looked for.
    """
    importer = sys._getframe(2)
    frame: FrameType | None = importer
    while frame is not None and _is_importing(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is None or not is_users(frame.f_code.co_filename):
        return  # libraries look for many that are not there
    with contextlib.suppress(Exception):
        for folder in folders:
            for ending in ("", ".py"):
                name = os.path.abspath(f"{folder or '.'}/{module.rpartition('.')[2]}{ending}")  # noqa: PTH100
                if _may_count(name):
                    _note(importer, name, name)


def _is_importing(file: str) -> bool:
    return file.startswith("<frozen importlib") or file in (_IMPORTER, importlib.__file__)


def _hook(event: str, arguments: tuple[Any, ...]) -> None:  # Any: what the event has
    if event not in _EVENTS:
        return
    with contextlib.suppress(Exception):  # the user's call goes on whatever happens here
        path = arguments[0]
        if path is None:
            path = "."
        if not isinstance(path, (str, bytes, os.PathLike)):
            return  # a file that is open already
        text = os.fsdecode(path)
        listing = event in ("os.listdir", "os.scandir")
        if event == "sqlite3.connect":
            _note_database(sys._getframe(1), text)
            return
        if event == "ctypes.dlopen" and "/" not in text:
            return  # a library of the system
        name = os.path.abspath(text)  # noqa: PTH100 - links stay: what they mean may change
        if not _may_count(name):
            return
        if event == "open" and os.path.isdir(name):  # noqa: PTH112 - to remove what is in it
            return
        writes = event == "open" and _is_write(*arguments[1:3])
        _note(sys._getframe(1), name, _kept_as(text, name), listing=listing, writes=writes)


def _may_count(name: str) -> bool:
    """Whether a path is neither the system's nor a library's, nor ours."""
    if name.startswith(_SYSTEM) and not name.startswith(_IN_MEMORY):
        return False
    if is_drivetrains(name) or (is_library(name) and not is_users(name)):
        return False
    name.encode()  # a name that is not text cannot be recorded
    return True


def _kept_as(text: str, name: str) -> str:
    """The name under which a file is kept that was opened by a text, from its absolute path."""
    if os.path.isabs(text) or os.getcwd() != _began_in():  # noqa: PTH109, PTH117
        return name
    return f"./{os.path.normpath(text)}"


def _note_database(frame: FrameType, text: str) -> None:
    """Note that SQLite opens a file, and what lies beside it of changes that are not in it yet."""
    if text.startswith("file:"):
        text = unquote(urlsplit(text).path)
    if not text or text.startswith(":memory:"):
        return
    for each in (text, f"{text}-wal"):
        name = os.path.abspath(each)  # noqa: PTH100
        if _may_count(name) and _note(frame, name, _kept_as(each, name)):
            _DATABASES.add(name)


def _is_write(mode: object, flags: object) -> bool:
    if isinstance(mode, str):
        return any(letter in mode for letter in "wax+")
    return isinstance(flags, int) and bool(flags & _WRITES)


def _note(opener: FrameType, path: str, name: str, *, listing: bool = False, writes: bool = False) -> bool:
    """Note a file where the user's code opens it; gives whether it does.

    Args:
        opener: The frame that opens it.
        path: Its absolute path.
        name: As it is kept.
        listing: Whether it is a folder whose names are asked for.
        writes: Whether it may be written to.
    """
    frame: FrameType | None = opener
    as_code = opener.f_code.co_filename.startswith("<frozen importlib")
    if as_code and listing:
        return False  # the search for a module
    while frame is not None and not is_users(file := frame.f_code.co_filename):
        if file.startswith(_LAUNCHING) and file != _IMPORTER:
            return False
        as_code = as_code or file == linecache.__file__  # for a traceback, or a library that looks at functions
        frame = frame.f_back
    if frame is None:
        return False
    if "/__pycache__/" in path:
        path = name = importlib.util.source_from_cache(path)
    stamp = stamp_of(path)
    as_text = path.endswith(".py") and not as_code
    current = _CURRENT.get()
    for reads in (current,) if current is not None else tuple(_ACTIVE):  # a thread of the user's has no context
        reads.opened(name, stamp, writes=writes, as_text=as_text)
    while frame is not None:
        file = frame.f_code.co_filename
        if is_users(file) and _counts(path, os.path.dirname(file)):  # noqa: PTH120 - of each frame
            module = frame.f_globals.get("__name__", "")
            if writes:
                _add(_WRITTEN, module, path)
                _BY_MODULE.get(module, {}).pop(name, None)
            elif path not in _WRITTEN.get(module, ()):
                read = _BY_MODULE.setdefault(module, {})
                if name in read or len(read) <= _MOST:  # one more than are recorded, so that this is said
                    read[name] = stamp
                if as_text:
                    _add(_TEXTS, module, path)
        frame = frame.f_back
    return True


def _add(paths: dict[str, set[str]], module: str, path: str) -> None:
    """Remember a path of a module's, if these are not too many for a process that lives long."""
    if len(paths.setdefault(module, set())) < _MOST:
        paths[module].add(path)


def _counts(path: str, project: str) -> bool:
    """Whether a file may be an input: it is not hidden, nor in a hidden folder that the project's folder is not in."""
    if "/." not in path and "/__pycache__" not in path:
        return True  # of nearly all files that are opened
    inside = path.removeprefix(os.path.commonpath([path, project]))
    return not any(part.startswith(".") or part == "__pycache__" for part in inside.split("/"))


def _checkout(project: Path) -> str:
    """The folder that is copied or checked out as a whole with a project: the repository's, else the parent."""
    repositories = [folder for folder in project.parents if (folder / ".git").exists()]
    return f"{(repositories or [project.parent])[0]}/".replace("//", "/")


def _recorded(name: str, stamp: Stamp | None, project: Path, checkout: str) -> list[list[object]]:
    """The rows of one file.

    One beside the project has two, by its path and by the way there from the project: which of them its name in the
    code follows is not known, and another checkout of both may lie elsewhere.
    """
    path = _path(name)
    names = [name.removeprefix(f"{project}/")]
    if names == [path] and path.startswith(checkout):
        names.append(os.path.relpath(path, project))
    if stamp is None:
        return [[each, None, None] for each in names]
    digest = _digest(path, stamp)
    if stamp_of(path) != stamp:
        digest = ""  # it changed meanwhile: which of the two was read cannot be told
    # Within the grain of the clock, another change would not show in the date: content alone decides then.
    settled = time.time_ns() - max(stamp[1], stamp[2]) > _SETTLED
    return [[each, stamp if settled else (stamp[0], 0, 0, 0), digest] for each in names]


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
