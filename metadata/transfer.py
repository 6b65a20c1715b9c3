"""Many files moved at once: bounded, told of in the caller's thread, stopped as one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TypeAlias, TypeVar

from ..errors import Canceled
from ..progress import Progress

AT_ONCE = 8
"""Files that are moved at the same time."""
_TICK = 0.2

Tell: TypeAlias = Callable[[int], None]
T = TypeVar("T")


class Moving:
    """What is being moved together.

    Args:
        total: Bytes in all.
        unit: What the caller is told of, e.g. "bytes uploaded".
        progress: Told in the caller's thread; may raise to stop.

    Attributes:
        parts: How many parts of each file may be moved at once, so that a single large one is no slower than many.
    """

    parts = 1

    def __init__(self, total: int, unit: str, progress: Progress) -> None:
        self._total, self._unit, self._progress = total, unit, progress
        self._moved: dict[int, int] = {}
        self._stop = threading.Event()
        self._failure: BaseException | None = None

    def each(self, jobs: Sequence[T], do: Callable[[T, Tell], None]) -> None:
        """Do every job, some at a time; `do` is given what it tells its bytes so far to, which raises to stop it.

        Raises:
            Canceled: Progress said so.
            Exception: The first of any job; those that had not begun are left out, the others ended first.
        """
        if not jobs:
            return
        self.parts = max(1, AT_ONCE // len(jobs))

        def one(job: T, tell: Tell) -> None:
            if self._stop.is_set():
                return
            try:
                do(job, tell)
            except BaseException as error:
                self._failure = self._failure or error
                self._stop.set()

        with ThreadPoolExecutor(min(AT_ONCE, len(jobs)), "drivetrain-transfer") as pool:
            pending: set[Future[None]] = {
                pool.submit(one, job, self._teller(number)) for number, job in enumerate(jobs, len(self._moved))
            }
            try:
                while pending:
                    pending = wait(pending, _TICK).not_done
                    if not self._stop.is_set():
                        self._progress(sum(self._moved.values()), self._total, self._unit)
            except BaseException:
                self._stop.set()
                raise
        if self._failure is not None:
            raise self._failure

    def pause(self, seconds: float) -> None:
        """Wait, unless all is stopped.

        Raises:
            Canceled: It is.
        """
        if self._stop.wait(seconds):
            raise Canceled("the transfer was stopped")

    def _teller(self, number: int) -> Tell:
        self._moved[number] = 0

        def tell(done: int) -> None:
            self._moved[number] = done
            if self._stop.is_set():
                raise Canceled("the transfer was stopped")

        return tell
