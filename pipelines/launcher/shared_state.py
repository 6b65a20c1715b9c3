"""What components of one process share: the working directory and timers, set back when a component ends."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from typing import Final

_TIMERS: Final = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)


class SharedState:
    """The state that was there when no component ran.

    Components of one process may run at the same time, in threads. So what one of them finds when it begins may be
    what another one changed: only the first to begin records it.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin anew, with no component running."""
        self._lock = threading.Lock()
        self._running = 0
        self._folder: str | None = None
        self._timers: dict[int, tuple[float, float]] = {}

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Set back what the block changes.

        The nodes after it, and the shell, resolve paths by the working directory; the signal of a timer left running
        would end the process in another node.
        """
        with self._lock:
            if not self._running:
                self._folder = _working_directory()
                self._timers = {timer: signal.getitimer(timer) for timer in _TIMERS}
            self._running += 1
        try:
            yield
        finally:
            with self._lock:
                self._running -= 1
                self._restore()

    def _restore(self) -> None:
        if self._folder is not None and _working_directory() != self._folder:
            with contextlib.suppress(OSError):
                os.chdir(self._folder)
        for timer, values in self._timers.items():
            if signal.getitimer(timer)[0] > values[0]:
                signal.setitimer(timer, *values)


SHARED_STATE: Final = SharedState()
"""Of this process."""
if hasattr(os, "register_at_fork"):  # in a forked child none of the components runs, and nobody holds the lock
    os.register_at_fork(after_in_child=SHARED_STATE.forget)


def _working_directory() -> str | None:
    try:
        return os.getcwd()  # noqa: PTH109 - called around every node
    except FileNotFoundError:
        return None
