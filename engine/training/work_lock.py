"""A training's lock on its work folder: two that save checkpoints to the same one would spoil each other's."""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from ...errors import DrivetrainError

_FILE: Final = "training.lock"


@contextmanager
def locked(folder: Path, note: Callable[[str], None]) -> Iterator[None]:
    """Hold a folder for one training.

    The lock is the system's `flock`, which goes with the process, however that ends: kill -9 leaves none. The file
    stays: were it removed, a third could lock a new one while a second holds the old.

    Args:
        folder: Made where it is not there.
        note: Called with a line where the folder cannot be locked, as on a file system that has no locks.

    Raises:
        DrivetrainError: Another training holds it, with its process.
    """
    try:
        file = _lock(folder)
    except OSError as error:
        note(f"{folder} cannot be locked ({error}): see that no second training uses it")
        yield
        return
    with file:
        yield


def _lock(folder: Path) -> IO[str]:
    folder.mkdir(parents=True, exist_ok=True)
    current = f"process {os.getpid()} on {socket.gethostname()}"
    file = (folder / _FILE).open("a+", encoding="utf-8")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        file.truncate(0)
        file.write(current)
        file.flush()
    except BlockingIOError:
        with file:
            file.seek(0)
            holder = file.read() or "a process that is just beginning"
        raise DrivetrainError(
            f"another training uses the work folder {folder}: {holder}{' (this one)' if holder == current else ''}",
            fix="wait for its end, or end it; or give each training a work_dir of its own",
        ) from None
    except BaseException:
        file.close()
        raise
    return file
