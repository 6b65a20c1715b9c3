"""What happens while an element of an input is waited for: others look after it, or nobody wants it any more."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import RLock
from typing import Final

LOOK_SECONDS: Final = 1.0
"""Between two calls of what looks after a wait."""


def _nobody() -> None: ...


_LOOK: Final[ContextVar[Callable[[], None]]] = ContextVar("what looks after a wait", default=_nobody)


@contextmanager
def looked_after(look: Callable[[], None]) -> Iterator[None]:
    """Within the block, what waits for an element in this thread calls a function each second, which may raise."""
    token = _LOOK.set(look)
    try:
        yield
    finally:
        _LOOK.reset(token)


def look() -> None:
    """Call that function."""
    _LOOK.get()()


class Abandoned(BaseException):
    """Raised where a thread waits for an element that nobody wants any more: its steps must not take it for the end."""


class Abandonment:
    """Ends what a thread's steps wait for, of other threads and of processes, when its elements are not wanted."""

    def __init__(self) -> None:
        self._lock = RLock()  # an iterator that is dropped removes its own, whatever this thread is at
        self._ends: list[Callable[[], None]] | None = []

    def set(self) -> None:
        """Nothing is wanted any more."""
        with self._lock:
            ends, self._ends = self._ends or [], None
        for end in ends:
            end()

    def add(self, end: Callable[[], None]) -> None:
        """Call this when nothing is wanted; now, where that is so already."""
        with self._lock:
            if self._ends is not None:
                self._ends.append(end)
                return
        end()

    def remove(self, end: Callable[[], None]) -> None:
        """Do not call it any more."""
        with self._lock:
            if self._ends is not None and end in self._ends:
                self._ends.remove(end)


ABANDONMENT: Final[ContextVar[Abandonment | None]] = ContextVar("of the thread's elements", default=None)


def in_thread(abandonment: Abandonment) -> None:
    """Begin a thread that makes elements for others: nobody looks after its own waits."""
    ABANDONMENT.set(abandonment)
    _LOOK.set(_nobody)
