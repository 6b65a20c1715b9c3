"""What of a folder would be left after a power loss: only what was synced, and its name in a folder that was."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


class Disk:
    """Notes what `os.fsync` makes durable: the bytes of a file, the names in a folder.

    Stricter than any file system: one that is mounted may write more, in any order.
    """

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._root = root
        self._files: dict[int, bytes] = {}
        self._folders: dict[int, dict[str, int]] = {}
        real = os.fsync

        def fsync(handle: int) -> None:
            real(handle)
            self._note(Path(f"/proc/self/fd/{handle}").readlink())

        monkeypatch.setattr(os, "fsync", fsync)

    def _note(self, path: Path) -> None:
        number = path.stat().st_ino
        if path.is_dir():
            self._folders[number] = {entry.name: entry.inode() for entry in os.scandir(path)}
        else:
            self._files[number] = path.read_bytes()

    def left(self, path: Path) -> dict[str, bytes] | None:
        """The files below a folder of the root that would be left; None where the folder would not."""
        number = self._root.stat().st_ino
        for name in path.relative_to(self._root).parts:
            number = self._folders.get(number, {}).get(name, -1)
            if number < 0:
                return None
        return self._below(number, "")

    def _below(self, number: int, prefix: str) -> dict[str, bytes]:
        files: dict[str, bytes] = {}
        for name, inside in self._folders.get(number, {}).items():
            if inside in self._files:
                files[prefix + name] = self._files[inside]
            elif inside in self._folders:
                files |= self._below(inside, f"{prefix}{name}/")
        return files


def files(path: Path) -> dict[str, bytes]:
    """The files below a folder."""
    return {file.relative_to(path).as_posix(): file.read_bytes() for file in path.rglob("*") if file.is_file()}
