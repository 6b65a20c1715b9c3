"""Whether a payload on this machine is as it was published, mostly at the cost of looking at each file's date.

What was whole is remembered with the size, dates and inode of each file. A file that was written since, by whomever,
has another time of its last change, which no program can set. Only then are its bytes read.

In memory file systems it has not: where a program writes once more into a page of a mapping (mmap) that it has written
before, nothing is written to a disk, and no date changes. There the bytes are read each time.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from ..errors import InputError
from .mounts import filesystem_of
from .payload import MANIFEST, PARTS, differences, digests_of, read_manifest

_UNDATED = ("tmpfs", "ramfs", "devtmpfs", "hugetlbfs")


class PayloadChecks:
    """What is known of the payloads below a folder; kept in files, so that other processes know it too.

    Args:
        folder: Where it is kept, a small file for each payload. It may be deleted at any time.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[str, str] = {}
        self._dated: dict[int, bool] = {}  # by device

    def remember(self, uri: str, path: Path) -> None:
        """Note that the payload of that URI, which lies at a path, is whole now."""
        self.keep(uri, self.state(path))

    def state(self, path: Path) -> str:
        """The size, dates and inode of each file of the payload that lies at a path, as a digest."""
        return _state(path)

    def keep(self, uri: str, state: str) -> None:
        """Note that the payload of that URI was whole when its `state` was this."""
        self._known[uri] = state
        with suppress(OSError):  # a root that cannot be written: its bytes are read again
            self._folder.mkdir(parents=True, exist_ok=True)
            self._file(uri).write_text(state, encoding="ascii")

    def forget(self, uri: str) -> None:
        """Forget that a payload was found whole, so that its bytes are read at its next use."""
        self._known.pop(uri, None)
        with suppress(OSError):
            self._file(uri).unlink()

    def problems(self, uri: str, path: Path, fingerprint: str | None) -> list[str]:
        """What is wrong with a payload; its bytes are read only where a file has changed since it was whole."""
        state, known = None, False
        with suppress(OSError):
            state = _state(path)
            known = state == self._known.get(uri) or state.encode() == self._file(uri).read_bytes()
            if known and self._dates_tell(path):
                return []
        problems = compared(path, fingerprint)
        if not problems and state is not None and not known:
            # What it was before it was read: were it looked at now, a write in between would count as compared.
            self.keep(uri, state)
        return problems

    def _dates_tell(self, path: Path) -> bool:
        """Whether the file system of a payload dates every write."""
        device = path.stat().st_dev
        if device not in self._dated:
            self._dated[device] = filesystem_of(path) not in _UNDATED
        return self._dated[device]

    def _file(self, uri: str) -> Path:
        return self._folder / uri.replace("/", ",")


def compared(path: Path, fingerprint: str | None) -> list[str]:
    """What is wrong with the payload that lies at a path, by digests of all its bytes."""
    manifest = path / MANIFEST
    if manifest.exists() and not manifest.is_file():
        return [f"cannot be read: {MANIFEST} is not a file"]  # to open a pipe would wait for ever
    try:
        before = read_manifest(manifest.read_bytes())
        return differences(before, digests_of(path, published=True), fingerprint)
    except (OSError, ValueError, KeyError, TypeError, InputError) as error:
        return [f"cannot be read: {error}"]


def _state(path: Path) -> str:
    sha256 = hashlib.sha256()
    for part in (MANIFEST, *PARTS):
        for line in sorted(_stats(f"{path}/{part}")):
            sha256.update(line.encode(errors="surrogateescape"))
    return sha256.hexdigest()


def _stats(path: str) -> Iterator[str]:
    """A line for a file and for each below a folder."""
    if os.path.islink(path) or not os.path.isdir(path):  # noqa: PTH112, PTH114 - text, as paths would cost more
        with suppress(FileNotFoundError):
            yield _line(path, os.lstat(path))
        return
    with os.scandir(path) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _stats(entry.path)
            else:
                yield _line(entry.path, entry.stat(follow_symlinks=False))


def _line(path: str, status: os.stat_result) -> str:
    times = f"{status.st_mtime_ns} {status.st_ctime_ns}"
    return f"{path}\0{status.st_mode} {status.st_size} {times} {status.st_ino}\0"
