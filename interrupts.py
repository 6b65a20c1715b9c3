"""How a signal stops a program: by KeyboardInterrupt, when it suits, and so that its end can say which one it was."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NoReturn

_SAME: Final = 2.0
"""Seconds in which a further signal means the same stop: Ctrl-C comes from the terminal and from a runner, too."""
_RECEIVED: Final[set[int]] = set()


def interrupt(number: int, frame: object) -> NoReturn:
    """Handle a signal: remember it, and raise KeyboardInterrupt in the main thread."""
    _RECEIVED.add(number)
    raise KeyboardInterrupt


def was_terminated() -> bool:
    """Whether SIGTERM was among the signals: a machine or a supervisor ends the program, and no person."""
    return signal.SIGTERM in _RECEIVED


@contextmanager
def deferred() -> Iterator[Callable[[], None]]:
    """Within the block a first SIGINT or SIGTERM waits until the function that it gives is called, or the block ends.

    Then the handler that there was before is called, which raises what it raises. A signal that comes two seconds later
    or more is handled at once. In threads other than the main one, where no handler runs, nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    handlers: dict[int, Callable[[int, Any], Any]] = {}
    for each in (signal.SIGINT, signal.SIGTERM):
        if callable(handler := signal.getsignal(each)):
            handlers[each] = handler
    first: list[tuple[int, float]] = []
    delivered = False

    def hold(number: int, frame: object) -> None:
        if not first:
            first.append((number, time.monotonic()))
        elif time.monotonic() - first[0][1] >= _SAME:
            handlers[number](number, frame)

    def deliver() -> None:
        nonlocal delivered
        if first and not delivered:
            delivered = True
            handlers[first[0][0]](first[0][0], None)

    for number in handlers:
        signal.signal(number, hold)
    try:
        yield deliver
    finally:
        for number, handler in handlers.items():
            if signal.getsignal(number) is hold:  # a handler may have set another
                signal.signal(number, handler)
        deliver()
