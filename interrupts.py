"""How a signal stops a program: by KeyboardInterrupt, and so that its end can say which one it was."""

from __future__ import annotations

import signal
from typing import Final, NoReturn

_RECEIVED: Final[set[int]] = set()


def interrupt(number: int, frame: object) -> NoReturn:
    """Handle a signal: remember it, and raise KeyboardInterrupt in the main thread."""
    _RECEIVED.add(number)
    raise KeyboardInterrupt


def was_terminated() -> bool:
    """Whether SIGTERM was among the signals: a machine or a supervisor ends the program, and no person."""
    return signal.SIGTERM in _RECEIVED
