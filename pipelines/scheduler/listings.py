"""The spans behind a pattern of files, looked for again and again: a folder that has not changed is not read again.

Of one that has, only new names are matched. So a look at 100,000 files costs a `stat` of each of their folders.
"""

from __future__ import annotations

import fnmatch
import glob
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Final, TypeAlias

from ...errors import InputError
from ..project.spans import SpanPattern

SPANS: Final = 1 << 63
"""Spans are below this: the store keeps 64 bits."""
_SETTLED: Final = 2_000_000_000
"""Nanoseconds after a change within which another may have the same time, by the clock of a file system."""


@dataclass(frozen=True)
class _Folder:
    """What a folder held when it was last read.

    Attributes:
        changed: Its time of change then, in nanoseconds; None where it has to be read again.
        spans: Each file that matches, and its span; None where its name is of none.
        folders: Names of the folders in it that match.
    """

    changed: int | None = None
    spans: Mapping[str, tuple[int, int | None] | None] = field(default_factory=dict)
    folders: tuple[str, ...] = ()


_Folders: TypeAlias = dict[tuple[str, str], _Folder]
"""By their paths, and the part of the pattern that what is in them has to match."""


@dataclass(frozen=True)
class _PatternListing:
    """The folders behind a pattern, and each span in them with its newest version."""

    folders: _Folders = field(default_factory=dict)
    spans: Sequence[tuple[int, int | None]] = ()

    @property
    def times(self) -> list[tuple[tuple[str, str], int | None]]:
        """When each folder changed."""
        return [(key, folder.changed) for key, folder in self.folders.items()]


class SpanListings:
    """What the folders behind patterns held. One schedule's: its questions come one after another."""

    def __init__(self) -> None:
        self._listings: dict[tuple[str, str], _PatternListing] = {}

    def newest(self, pattern: SpanPattern, folders: Sequence[Path]) -> Sequence[tuple[int, int | None]]:
        """Each span with its newest version, in the first of the folders that has any file.

        Args:
            pattern: Of files on this machine, without `**`.
            folders: Where a relative pattern is looked up.
        """
        parts = pattern.filled({}).split("/")
        for base in [""] if parts[0] == "" else [f"{folder}/" for folder in dict.fromkeys(folders)]:
            before = self._listings.get((base, pattern.text), _PatternListing())
            now = _PatternListing({})
            files = _files(base, parts, pattern, before.folders, now.folders)
            is_unchanged = now.times == before.times and all(each.changed for each in now.folders.values())
            now = _PatternListing(now.folders, before.spans if is_unchanged else _newest(files))
            self._listings[base, pattern.text] = now
            if any(folder.spans for folder in files):
                return now.spans
        return []


def _newest(folders: Sequence[_Folder]) -> Sequence[tuple[int, int | None]]:
    newest: dict[int, int | None] = {}
    for folder in folders:
        for each in filter(None, folder.spans.values()):
            span, version = each
            known = newest.get(span)
            newest[span] = version if known is None or version is None else max(known, version)
    return sorted(newest.items())


def _files(base: str, parts: Sequence[str], pattern: SpanPattern, before: _Folders, now: _Folders) -> Sequence[_Folder]:
    """The folders in which files may match; `now` gets each that was looked at."""
    spelled = [""]
    for part in parts[:-1]:
        if glob.has_magic(part):
            read = [(folder, _read(base, folder, part, None, before, now)) for folder in spelled]
            spelled = [f"{folder}{name}/" for folder, below in read for name in below.folders]
        else:
            spelled = [f"{folder}{part}/" for folder in spelled]
    return [_read(base, folder, parts[-1], pattern, before, now) for folder in spelled]


def _read(base: str, spelled: str, part: str, pattern: SpanPattern | None, before: _Folders, now: _Folders) -> _Folder:
    """A folder's files that match a pattern, or its folders that match a part of one where none is named."""
    path = f"{base}{spelled}" or "."
    key = (path, part)
    folder = before.get(key, _Folder())
    try:
        changed = os.stat(path).st_mtime_ns  # noqa: PTH116 - a Path for each folder would cost as much again
        if changed != folder.changed:
            folder = _filled(path, spelled, _matcher(part), pattern, folder.spans, changed)
    except OSError:  # it is not there, or not yet
        folder = _Folder()
    now[key] = folder
    return folder


def _filled(
    path: str,
    spelled: str,
    matches: Callable[[str], object],
    pattern: SpanPattern | None,
    known: Mapping[str, tuple[int, int | None] | None],
    changed: int,
) -> _Folder:
    spans: dict[str, tuple[int, int | None] | None] = {}
    folders = []
    is_settled = changed < time.time_ns() - _SETTLED
    with os.scandir(path) as entries:
        for entry in entries:
            name = entry.name
            if pattern is not None and name in known:
                spans[name] = known[name]
            elif not matches(name):
                continue
            elif pattern is None:
                if entry.is_dir():
                    folders.append(name)
                elif entry.is_symlink():
                    is_settled = False
            elif entry.is_file():
                spans[name] = _span(pattern, f"{spelled}{name}")
            else:
                is_settled = False  # a link, say, whose file may come: the folder would not change then
    return _Folder(changed if is_settled else None, spans, tuple(sorted(folders)))


def _span(pattern: SpanPattern, path: str) -> tuple[int, int | None] | None:
    with suppress(InputError):  # a date that does not exist: ExampleGen says so when it is asked for it
        read = pattern.read(path)
        if read is not None and read[0] < SPANS:  # digits that are no span: the store could not keep it
            return read[0], read[1]
    return None


@lru_cache(256)
def _matcher(part: str) -> Callable[[str], object]:
    """Whether a name matches a part of a pattern, as glob has it: what begins with a dot only where that is written."""
    matches = re.compile(fnmatch.translate(part)).match
    return matches if part.startswith(".") else lambda name: not name.startswith(".") and matches(name)
