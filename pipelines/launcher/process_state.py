"""The state of a process that does one task after another: what a task changed is undone before the next."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import logging

_SIGNALS = tuple(
    getattr(signal, f"SIG{name}") for name in ("ALRM", "CHLD", "HUP", "INT", "PIPE", "TERM", "USR1", "USR2", "WINCH")
)

LARGE = 1 << 30
"""Bytes of memory: a process that holds more after a task keeps what the task left."""
_DEVICES = ("/dev/nvidia", "/dev/accel", "/dev/vfio/")


class ProcessState:
    """What a process was like when this was made; `undo` makes it so again, as far as it can.

    Args:
        package: The project's: the names in its modules are bound again to what they were once imported. What a
            component changed inside an object, a cache for instance, stays.
    """

    def __init__(self, package: str) -> None:
        self._package = package
        self._threads = set(threading.enumerate())
        self._names: dict[ModuleType, dict[str, object]] = {}
        self._undo = self._snapshot()

    def imported(self) -> None:
        """Take the names in the project's modules that are loaded by now as those to go back to."""
        inside = f"{self._package}."
        for name, module in list(sys.modules.items()):
            if (name == self._package or name.startswith(inside)) and module not in self._names:
                self._names[module] = dict(vars(module))

    def undo(self) -> bool:
        """Go back to that state.

        Returns:
            Whether that is all. False where threads or child processes are left, an accelerator is in use, or much
            memory is held: only the process's end gives that back.
        """
        for module, names in self._names.items():
            now = vars(module)
            for name in now.keys() - names.keys():
                del now[name]
            now.update((name, value) for name, value in names.items() if now.get(name, names) is not value)
        for step in self._undo:
            with contextlib.suppress(OSError, ValueError):
                step()
        left = set(threading.enumerate()) - self._threads
        return not left and not children() and not device() and resident() <= LARGE

    def _snapshot(self) -> list[Callable[[], None]]:
        folder, environment = Path.cwd(), dict(os.environ)
        mask = os.umask(0o077)
        os.umask(mask)
        path, argv, logging_as_it_was = sys.path[:], sys.argv[:], _logging()
        signals = {number: signal.getsignal(number) for number in _SIGNALS}
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())

        def restore_environment() -> None:
            if dict(os.environ) != environment:
                os.environ.clear()
                os.environ.update(environment)

        def restore_lists() -> None:
            sys.path[:], sys.argv[:] = path, argv
            _set_logging(*logging_as_it_was)

        def restore_signals() -> None:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
            for number, handler in signals.items():
                if handler is not None and signal.getsignal(number) != handler:
                    signal.signal(number, handler)

        return [lambda: os.chdir(folder), restore_environment, lambda: _mask(mask), restore_lists, restore_signals]


def device() -> str | None:
    """An accelerator that this process has open; libraries keep it, and memory on it, as long as they live."""
    with contextlib.suppress(OSError):
        for link in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(OSError):  # the one that the folder is read with
                if (target := str(link.readlink())).startswith(_DEVICES):
                    return target
    return None


def resident() -> int:
    """Bytes of memory that this process holds now."""
    with contextlib.suppress(OSError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    import psutil  # late: Linux does without it

    return int(psutil.Process().memory_info().rss)


def children() -> bool:
    """Whether this process has children that live."""
    if (multiprocessing := sys.modules.get("multiprocessing")) is not None:  # else a task has started none by it
        multiprocessing.active_children()  # reaps those that ended
    with contextlib.suppress(OSError):
        listings = [path.read_text() for path in Path("/proc/self/task").glob("*/children")]
        if listings:
            return any(text.strip() for text in listings)
    import psutil  # late: Linux does without it

    return bool(psutil.Process().children())


def _logging() -> tuple[list[logging.Handler], int, int]:
    """The handlers and the level of the root logger, and the level up to which all loggers are silent."""
    if "logging" not in sys.modules:  # as they are once it is imported, which takes a child as long as a small task
        return [], 30, 0  # no handlers, WARNING, nothing
    root = sys.modules["logging"].getLogger()
    return root.handlers[:], root.level, root.manager.disable


def _set_logging(handlers: list[logging.Handler], level: int, disabled: int) -> None:
    if (logging := sys.modules.get("logging")) is None:  # no task has used it
        return
    root = logging.getLogger()
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.disable(disabled)


def _mask(mask: int) -> None:
    os.umask(mask)
