"""The processes that a node started, and all that those started, so that none outlives the node.

They are found as the children of the node's process, and by a mark in their environment, which they inherit: that
finds those too whose parent has died, or that began a session of their own.
"""

from __future__ import annotations

import os
import secrets
import signal
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import psutil

MARK = "DRIVETRAIN_WORKER"
"""The environment variable that holds the marks, those of processes around it first."""


def new_mark() -> tuple[str, dict[str, str]]:
    """A new mark, and the environment that gives it to a process."""
    mark = secrets.token_hex(8)
    return mark, {MARK: ":".join(filter(None, (os.environ.get(MARK), mark)))}


@contextmanager
def forks_end() -> Iterator[None]:
    """End a process that the block forked and that would go on after it: it has all that this one has, and is not it.

    It would publish, tell the runner how the task ended, and do the next task, as this one does.
    """
    pid, status = os.getpid(), 1
    try:
        yield
        status = 0
    except Exception:
        if os.getpid() != pid:
            traceback.print_exc()
        raise
    finally:
        if os.getpid() != pid:
            os._exit(status)


@contextmanager
def stops_deferred() -> Iterator[None]:
    """Handle SIGINT and SIGTERM that come within the block right after it, so that a process begun there is known.

    The signals are not blocked: a process that is begun would inherit that, and could not be stopped by them ever.
    """
    held, waiting = True, []

    def late(handler: Callable[[int, FrameType | None], object]) -> Callable[[int, FrameType | None], None]:
        def handle(number: int, frame: FrameType | None) -> None:
            if held:
                waiting.append(number)
            else:  # it came before this was undone
                handler(number, frame)

        return handle

    before = {}
    if threading.current_thread() is threading.main_thread():  # Python runs handlers in no other
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


def descendants(pid: int, mark: str) -> list[psutil.Process]:
    """The live processes that descend from one, or carry the mark ("" is none), without that one and this one."""
    if _is_alone(pid, mark):
        return []
    import psutil  # late: its import costs a fifth of what a child process does that runs a small node

    processes: dict[int, psutil.Process] = {}
    with suppress(psutil.Error):
        processes = {process.pid: process for process in psutil.Process(pid).children(recursive=True)}
    for process in psutil.process_iter() if mark else ():
        with suppress(psutil.Error, OSError):
            if process.pid not in processes and mark in _marks(process.environ()):
                processes[process.pid] = process
    return [process for number, process in processes.items() if number not in (pid, os.getpid()) and _lives(process)]


def terminate(processes: Iterable[psutil.Process]) -> None:
    """Send SIGTERM to each process that is still there; does not wait for its end."""
    for process in processes:
        import psutil  # late: mostly there is none

        with suppress(psutil.Error):
            process.terminate()


def end_descendants(pid: int, mark: str, grace: float) -> int:
    """Ask the descendants of a process to end, and kill those that have not after a grace in seconds.

    Returns:
        How many there were.
    """
    first = descendants(pid, mark)
    if not first:
        return 0
    import psutil

    terminate(first)
    psutil.wait_procs(first, timeout=grace) if grace else None
    left = descendants(pid, mark)
    while left:  # what is being ended may start more
        for process in left:
            with suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(left, timeout=1)
        left = descendants(pid, mark)
    return len(first)


def _is_alone(pid: int, mark: str) -> bool:
    """Whether Linux says that nothing descends from a process or carries the mark; False where it does not say."""
    try:
        children = [path.read_bytes().strip() for path in Path(f"/proc/{pid}/task").glob("*/children")]
        numbers = {int(name) for name in os.listdir("/proc") if name.isdigit()} if mark else set()  # noqa: PTH208
    except OSError:
        return False
    if not children or any(children):
        return False
    for number in numbers - {pid, os.getpid()}:
        with suppress(OSError):  # it is gone, or another user's
            if mark.encode() in Path(f"/proc/{number}/environ").read_bytes():
                return False
    return True


def _marks(environment: Mapping[str, str]) -> list[str]:
    return environment.get(MARK, "").split(":")


def _lives(process: psutil.Process) -> bool:
    import psutil

    with suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False
