"""A directory that grows, as a stream: every file that appears in it is read once."""

from __future__ import annotations

import fnmatch
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from ...errors import InputError
from ..reading.files import open_files
from ..sources import BATCH_ROWS
from .micro_spans import Chunk

_UNFINISHED: Final = (".tmp", ".part", ".partial", ".crdownload", "~")
_LOOK: Final = 0.1  # seconds between two looks


def growing_directory(folder: Path | str, pattern: str = "*", *, quiet: float = 2.0) -> DirectoryStream:
    """The files that appear in a directory, oldest first, each read whole and once.

    A file is taken when it has not been written to for `quiet` seconds; write under another name (one that begins with
    "." or "_", or ends in .tmp or .part, is left alone) and rename, and `quiet=0` is safe.

    Args:
        folder: The directory; sub-directories are not looked into.
        pattern: Of the file names wanted, e.g. "*.csv"; what the names may end in, `data.open_files` says.
        quiet: Seconds.

    Raises:
        InputError: There is no such directory.
    """
    path = Path(folder)
    if not path.is_dir():
        raise InputError(f"{path} is not a directory", fix="make it, or name another")
    return DirectoryStream(path, pattern, quiet)


class DirectoryStream:
    """See `growing_directory`; a `Stream`. Its position: size and time of each file that was read and still exists."""

    def __init__(self, folder: Path, pattern: str, quiet: float) -> None:
        self.name = f"{folder}/{pattern}"
        self._folder = folder
        self._pattern = pattern
        self._quiet = quiet
        self._read: dict[str, list[int]] = {}

    def start(self, position: Any | None) -> None:
        """See `Stream.start`."""
        self._read = dict(position or {})

    def poll(self, rows: int, seconds: float) -> list[Chunk]:
        """See `Stream.poll`; a file that was changed after it was read is an error."""
        until = time.monotonic() + seconds
        while not (waiting := self._waiting()):
            if (left := until - time.monotonic()) <= 0:
                return []
            time.sleep(min(_LOOK, left))
        chunks: list[Chunk] = []
        count = 0
        for path, facts in waiting:
            if count >= rows:
                break
            chunk = self._chunk(path)
            self._read[path.name] = facts
            chunks.append(chunk)
            count += chunk.table.num_rows if chunk.table is not None else 0
        return chunks

    def _chunk(self, path: Path) -> Chunk:
        if path.name in self._read:
            changed = InputError(f"{path} was changed after it was read", fix="give new rows a file of their own")
            return Chunk(str(path), error=changed)
        try:
            source = open_files([path])
            batches = [batch for shard in range(len(source.shards)) for batch in source.read(shard, BATCH_ROWS)]
            return Chunk(str(path), pa.Table.from_batches(batches, source.schema))
        except InputError as error:
            return Chunk(str(path), error=error)

    def _waiting(self) -> list[tuple[Path, list[int]]]:
        now = time.time()
        waiting = []
        there = set()
        for path, stat in self._files():
            there.add(path.name)
            facts = [stat.st_size, stat.st_mtime_ns]
            if self._read.get(path.name) != facts and now - stat.st_mtime >= self._quiet:
                waiting.append((path, facts))
        self._read = {name: facts for name, facts in self._read.items() if name in there}
        return sorted(waiting, key=lambda entry: (entry[1][1], entry[0].name))  # by time of writing

    def _files(self) -> Iterator[tuple[Path, os.stat_result]]:
        with os.scandir(self._folder) as entries:
            for entry in entries:
                if entry.name.startswith((".", "_")) or entry.name.endswith(_UNFINISHED):
                    continue
                if fnmatch.fnmatch(entry.name, self._pattern) and entry.is_file():
                    try:
                        yield Path(entry.path), entry.stat()
                    except FileNotFoundError:  # removed meanwhile
                        continue

    def position(self) -> Any:
        """See `Stream.position`."""
        return dict(sorted(self._read.items()))

    def close(self) -> None:
        """See `Stream.close`."""
