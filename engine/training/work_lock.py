"""A training's lock on its work folder: two that save checkpoints to the same one would spoil each other's.

An evaluator beside it has a lock of its own there, and each sees by them whether the other is at work, on any machine.
"""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final, Literal
from weakref import WeakSet

from ...errors import DrivetrainError

Role = Literal["training", "evaluator"]
_HELD: Final = WeakSet[IO[str]]()


def _let_go() -> None:
    """Close the files in a forked process: it holds the locks too, and may outlive the training."""
    for file in list(_HELD):
        file.close()


os.register_at_fork(after_in_child=_let_go)


@contextmanager
def locked(folder: Path, note: Callable[[str], None], role: Role = "training") -> Iterator[None]:
    """Hold a folder for one training, or one evaluator.

    The lock is the system's `flock`, which goes with the process, however that ends: kill -9 leaves none. The file
    stays: were it removed, a third could lock a new one while a second holds the old.

    Args:
        folder: Made where it is not there.
        note: Called with a line where the folder cannot be locked, as on a file system that has no locks.
        role: Who holds it; each role has a lock of its own.

    Raises:
        DrivetrainError: Another of that role holds it, with its process.
    """
    try:
        file, shown = _lock(folder, role)
    except OSError as error:
        note(f"{folder} cannot be locked ({error}): see that no second {role} uses it")
        yield
        return
    with file, shown:
        _HELD.update((file, shown))
        yield


def is_at_work(folder: Path, role: Role) -> bool:
    """Whether a process of that role holds the folder; False too where the file system has no locks."""
    try:
        with _shown(folder, role).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # for as long as the file is open: microseconds
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _shown(folder: Path, role: Role) -> Path:
    """Whose lock `is_at_work` tries: were it the one that refuses a second holder, a look could refuse the first."""
    return folder / f"{role}.at_work"


def _opened(path: Path) -> IO[str]:
    """The file, made where it is not there. What a link names is another's, and would be written over."""
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    return os.fdopen(descriptor, "a+", encoding="utf-8", errors="replace")


def _lock(folder: Path, role: Role) -> tuple[IO[str], IO[str]]:
    folder.mkdir(parents=True, exist_ok=True)
    current = f"process {os.getpid()} on {socket.gethostname()}"
    file = _opened(folder / f"{role}.lock")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        file.truncate(0)
        file.write(current)
        file.flush()
        shown = _opened(_shown(folder, role))
        fcntl.flock(shown, fcntl.LOCK_EX)  # it waits for a look to end
    except BlockingIOError:
        with file:
            file.seek(0)
            holder = file.read() or "a process that is just beginning"
        raise DrivetrainError(
            f"another {role} uses the work folder {folder}: {holder}{' (this one)' if holder == current else ''}",
            fix="wait for its end, or end it; or give each training a work_dir of its own",
        ) from None
    except BaseException:
        file.close()
        raise
    return file, shown
