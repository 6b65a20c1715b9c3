"""Waits of the main thread that a signal ends for certain."""

from __future__ import annotations

import threading
from queue import Empty, SimpleQueue
from typing import Final, TypeVar

T = TypeVar("T")

_LOOK: Final = 0.5
"""Seconds. The kernel may deliver Ctrl-C to any thread. Where that is not the main one, Python calls its handler only
once the main thread comes out of its wait."""


def wait(event: threading.Event) -> None:
    """Wait until an event is set; KeyboardInterrupt comes through."""
    # Not Thread.join: interrupted, it takes the thread for ended.
    while not event.wait(_LOOK):
        pass


def take(queue: SimpleQueue[T]) -> T:
    """Wait for the next item of a queue; KeyboardInterrupt comes through."""
    while True:
        try:
            return queue.get(timeout=_LOOK)
        except Empty:
            continue
