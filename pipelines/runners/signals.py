"""Stops by SIGINT and SIGTERM, of which none is lost.

Python raises what a handler raises wherever the main thread is. In a finalizer or a callback of the garbage collector
(JAX has one) it is printed and ignored, so that the program goes on as if nobody had pressed Ctrl-C. And the kernel may
deliver a signal to any thread: where that is not the main one, Python calls its handler only once the main thread comes
out of its wait. So a handler also sets an event, which is looked at, and no wait is long.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from typing import Final, TypeVar

from ...interrupts import interrupt

T = TypeVar("T")

_LOOK: Final = 0.5
"""Seconds between two looks."""


@contextmanager
def stoppable(cancel: threading.Event) -> Iterator[None]:
    """Within the block SIGINT and SIGTERM set an event, and raise KeyboardInterrupt; in the main thread alone.

    A SIGINT that is ignored, as in the background of a shell, stays so.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def stop(number: int, frame: object) -> None:
        cancel.set()
        interrupt(number, frame)

    handled = [number for number, handler in before.items() if callable(handler) or number == signal.SIGTERM]
    for number in handled:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number in handled:
            signal.signal(number, before[number])


def wait(
    over: threading.Event, cancel: threading.Event, hurry: threading.Event, stop: Callable[[], None] = lambda: None
) -> None:
    """Wait until work in other threads is over.

    Args:
        over: Set by them when it is.
        cancel: Set to ask them to end: by the first stop, if not by its handler.
        hurry: Set by a second stop.
        stop: Called once, when they are asked to end.
    """
    stopped = False
    # Not Thread.join: interrupted, it takes the thread for ended.
    while not over.is_set():
        try:
            if cancel.is_set() and not stopped:
                stopped = True
                stop()
            over.wait(_LOOK)
        except KeyboardInterrupt:
            if stopped:
                hurry.set()
            cancel.set()


def take(queue: SimpleQueue[T], cancel: threading.Event) -> T:
    """Wait for the next item of a queue.

    Raises:
        KeyboardInterrupt: A stop came, or `cancel` is set while there is none.
    """
    while True:
        try:
            return queue.get(timeout=_LOOK)
        except Empty:
            if cancel.is_set():
                raise KeyboardInterrupt from None
