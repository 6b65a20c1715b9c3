"""Copies of what lies elsewhere: whole and checked, kept by what they hold, fetched once, bounded by least use.

A lock file beside each copy is held exclusively while it is made or removed and shared while it is read, by the
system's `flock`: it goes with the process, however that ends. In it stands in which start of the machine the copy was
whole: in another it is compared again, since a power loss may have kept its names and lost its bytes. To sync every
copy would take longer than fetching most of them.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Final

from ..errors import InputError
from ..owner import Owner
from .errors import DiskFull
from .payload import MANIFEST, PARTS, explain_full_disk

LIMIT_VARIABLE: Final = "DRIVETRAIN_FETCHED_GIB"
_LIMIT: Final = 50.0  # GiB
_TICK: Final = 0.1  # seconds

_READING: ContextVar[dict[Path, int] | None] = ContextVar("drivetrain_reading", default=None)


class Fetched:
    """Folders below one, each named by a key that says what is in it.

    Args:
        folder: Where they lie; made when it is needed.
        limit: Bytes of all copies together, beyond which those that were not used for longest go. Those being read
            stay, so that there may be more.
    """

    def __init__(self, folder: Path, limit: int | None = None) -> None:
        self.folder = folder
        self._limit = _limit() if limit is None else limit
        self._held: dict[Path, int] = {}  # locks of what is read outside any `reading`
        self._guard = threading.Lock()

    def find(self, key: str) -> Path | None:
        """The copy, if there is one; it stays while it is read (see `reading`)."""
        path = self.folder / key
        if not path.is_dir() or not self._share(path):
            return None
        with suppress(OSError):
            os.utime(path)  # when it was last used
        return path

    def get(self, key: str, size: int, fill: Callable[[Path], None], waiting: Callable[[], None]) -> Path:
        """The copy, made by the first that asks for it, among all processes of this machine.

        Args:
            key: Says what is in it.
            size: Bytes it will hold, for which room is made.
            fill: Fills the folder it is given, in which an earlier try may have left something; raises to give up.
            waiting: Called now and then while another process makes it; may raise to stop.

        Raises:
            DiskFull: No space is left although every copy that nobody reads was removed.
        """
        path = self.folder / key
        while (copy := self.find(key)) is None:
            with explain_full_disk(f"fetching to {path}"):
                handle = self._lock(path, fcntl.LOCK_EX)
            if handle is None:
                waiting()
                threading.Event().wait(_TICK)
                continue
            try:
                if not (path.is_dir() and _is_marked_whole(handle)):
                    self._make_room(size, path)
                    self._fill(path, fill)
                    _mark_whole(handle)
            finally:
                os.close(handle)
        return copy

    def put(self, key: str, folder: Path) -> None:
        """Keep a folder as the copy, which is gone from where it lay; where that cannot be, it is just removed."""
        path = self.folder / key
        with suppress(OSError):  # another file system, a full disk: it can be fetched again
            handle = self._lock(path, fcntl.LOCK_EX)
            if handle is not None:
                try:
                    self._make_room(0 if path.is_dir() else _size(folder), path)
                    if not path.is_dir():
                        folder.rename(path)
                        _mark_whole(handle)
                finally:
                    os.close(handle)
        shutil.rmtree(folder, ignore_errors=True)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Copies that are found in this thread stay while the block runs, and may go afterwards."""
        held: dict[Path, int] = {}
        token = _READING.set(held)
        try:
            yield
        finally:
            _READING.reset(token)
            for handle in held.values():
                os.close(handle)

    def close(self) -> None:
        """Let copies go that were found outside any `reading`."""
        with self._guard:
            while self._held:
                os.close(self._held.popitem()[1])

    def _share(self, path: Path) -> bool:
        """Hold a copy for reading; whether it is still there, and need not be compared."""
        held = _READING.get()
        held = self._held if held is None else held
        with self._guard:
            if path in held:
                return path.is_dir()
            handle = self._lock(path, fcntl.LOCK_SH)
            if handle is None:
                return False
            if not (path.is_dir() and _is_marked_whole(handle)):
                os.close(handle)
                return False
            held[path] = handle
        return True

    def _lock(self, path: Path, how: int) -> int | None:
        """The lock of a copy, if nobody has it; `os.close` gives it back."""
        locks = path.parent / ".locks"
        locks.mkdir(parents=True, exist_ok=True)
        name = locks / path.name
        while True:
            handle = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                fcntl.flock(handle, how | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(handle)
                return None
            except OSError as error:
                os.close(handle)
                raise InputError(
                    f"{locks} cannot be locked ({error.strerror})",
                    fix="put --root on a disk that can, e.g. a local one",
                ) from error
            # Between our open and our lock another process may have removed the file with its copy: we would hold a
            # lock on a file without a name, while the next one makes a new file and locks that. So look whether the
            # name still means what we hold, and else begin again.
            with suppress(FileNotFoundError):
                if os.fstat(handle).st_ino == name.stat().st_ino:
                    return handle
            os.close(handle)

    def _fill(self, path: Path, fill: Callable[[Path], None]) -> None:
        part = path.with_name(f".part-{path.name}")
        # A copy of before the last boot is compared in place of being fetched: `fill` keeps the files that are whole.
        if path.is_dir():
            shutil.rmtree(part, ignore_errors=True)
            path.rename(part)
        part.mkdir(exist_ok=True)
        try:
            fill(part)
        except DiskFull:
            if not self._make_room(None, path):
                shutil.rmtree(part, ignore_errors=True)
                raise
            try:
                fill(part)
            except DiskFull:
                shutil.rmtree(part, ignore_errors=True)
                raise
        part.rename(path)

    def _make_room(self, size: int | None, mine: Path) -> bool:
        """Remove what was not used for longest until so many bytes fit below the limit; all of it where None.

        Returns:
            Whether anything was removed.
        """
        copies = []
        for path in self.folder.glob("[!.]*"):
            if path != mine:
                with suppress(OSError):  # another process removes it
                    copies.append((path.stat().st_mtime, path, _size(path)))
        for path in self.folder.glob(".removed-*"):
            shutil.rmtree(path, ignore_errors=True)  # of a process that died meanwhile
        for path in self.folder.glob(".part-*"):
            if path.name != f".part-{mine.name}":
                self._remove(self.folder / path.name.removeprefix(".part-"), path)
        # The time of the folder is that of the last use (`find` sets it), so the first are those not used for longest.
        # What is being read cannot be locked exclusively, and stays: the limit may be exceeded, a reader never loses.
        total = sum(much for _, _, much in copies)
        removed = False
        for _, path, much in sorted(copies):
            if size is not None and total + size <= self._limit:
                break
            if self._remove(path, path):
                total, removed = total - much, True
        return removed

    def _remove(self, path: Path, what: Path) -> bool:
        """Remove a copy, or what there is of one, unless somebody reads or makes it; whether that was so."""
        handle = self._lock(path, fcntl.LOCK_EX)
        if handle is None:
            return False
        try:
            # Renamed first, under the lock, and deleted after it: nobody finds half a copy under its key, and others
            # need not wait for a deletion that may take seconds.
            doomed = what.with_name(f".removed-{secrets.token_hex(8)}")
            what.rename(doomed)
            (path.parent / ".locks" / path.name).unlink(missing_ok=True)
        except FileNotFoundError:
            return False
        finally:
            os.close(handle)
        shutil.rmtree(doomed, ignore_errors=True)
        return True


def _mark_whole(handle: int) -> None:
    """Note in its lock file that a copy was whole after this start of the machine."""
    os.ftruncate(handle, 0)
    os.pwrite(handle, _start(), 0)


def _is_marked_whole(handle: int) -> bool:
    return os.pread(handle, 200, 0) == _start()


def _start() -> bytes:
    """Which start of the machine this is."""
    return Owner.current().boot_id.partition("/")[0].encode()


def _size(folder: Path) -> int:
    """Bytes of a payload's folder, as its manifest says."""
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
        return sum(int(manifest[part]["size"]) for part in PARTS)
    except (OSError, ValueError, KeyError, TypeError):
        return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _limit() -> int:
    text = os.environ.get(LIMIT_VARIABLE, "")
    try:
        much = float(text or _LIMIT)
        if not 0 <= much < float("inf"):
            raise ValueError(text)
    except ValueError:
        raise InputError(f"{LIMIT_VARIABLE} is {text!r:.40}", fix="give GiB as a number, e.g. 50") from None
    return int(much * 2**30)
