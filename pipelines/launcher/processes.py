"""The processes that a node started, and theirs: found by who started them and by a mark that they inherit, and ended.

The mark finds those too whose parent has died, or that began a session of their own.
"""

from __future__ import annotations

import os
import secrets
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import psutil

MARK = "DRIVETRAIN_WORKER"
"""The environment variable that holds the marks, those of processes around it first."""


def marked() -> tuple[str, dict[str, str]]:
    """A new mark, and the environment that gives it to a process."""
    mark = secrets.token_hex(8)
    return mark, {MARK: ":".join(filter(None, (os.environ.get(MARK), mark)))}


@contextmanager
def unstopped() -> Iterator[None]:
    """What is stopped within the block is stopped right after it, so that a process which begins there is known.

    The signals are heard late, not blocked: what begins would inherit that, and not be stopped by them ever.
    """
    held, waiting = True, []

    def late(handler: Callable[[int, FrameType | None], object]) -> Callable[[int, FrameType | None], None]:
        def hear(number: int, frame: FrameType | None) -> None:
            if held:
                waiting.append(number)
            else:  # it came before this was undone
                handler(number, frame)

        return hear

    before = {}
    if threading.current_thread() is threading.main_thread():  # no other hears of signals
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    handlers = {number: handler for number, handler in before.items() if callable(handler)}
    try:
        for number, handler in handlers.items():
            signal.signal(number, late(handler))
        yield
    finally:
        held = False
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for each in waiting:
            signal.raise_signal(each)


def family(pid: int, mark: str) -> list[psutil.Process]:
    """What descends from a process, without itself, or carries the mark ("" is none); zombies are not among it."""
    import psutil  # late: its import is not for a run that ends nothing

    found: dict[int, psutil.Process] = {}
    with suppress(psutil.Error):
        found = {process.pid: process for process in psutil.Process(pid).children(recursive=True)}
    for process in psutil.process_iter() if mark else ():
        with suppress(psutil.Error, OSError):
            if process.pid not in found and mark in _marks(process.environ()):
                found[process.pid] = process
    return [process for number, process in found.items() if number not in (pid, os.getpid()) and _lives(process)]


def terminate(processes: Iterable[psutil.Process]) -> None:
    """Ask processes to end."""
    import psutil

    for process in processes:
        with suppress(psutil.Error):
            process.terminate()


def end(pid: int, mark: str, grace: float) -> int:
    """Ask what descends from a process to end, and after a grace in seconds end it.

    Returns:
        How many there were.
    """
    import psutil

    first = family(pid, mark)
    terminate(first)
    psutil.wait_procs(first, timeout=grace) if first and grace else None
    left = family(pid, mark)
    while left:  # what is being ended may start more
        for process in left:
            with suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(left, timeout=1)
        left = family(pid, mark)
    return len(first)


def _marks(environment: Mapping[str, str]) -> list[str]:
    return environment.get(MARK, "").split(":")


def _lives(process: psutil.Process) -> bool:
    import psutil

    with suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False
