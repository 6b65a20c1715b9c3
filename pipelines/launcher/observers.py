"""Who looks on while a run goes on: the events of its tasks, for a terminal, a log, or a process that waits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from .logs import Logs
from .results import NodeResult


class Observer(Protocol):
    """Receives the events of a run, from any thread."""

    def started(self, node: str) -> None:
        """A task is launched; attempts that follow in the same process may say it again."""

    def progress(self, node: str, done: int, total: int | None, unit: str) -> None:
        """A task has done so many of its units; `total` is None where it does not know how many there are."""

    def note(self, node: str, text: str) -> None:
        """A line about a task: a retry, a wait for another process, or what its component says."""

    def ended(self, result: NodeResult) -> None:
        """Called last for a task, with its end state, time and reason."""


class NullObserver:
    """The observer of a run that nobody watches: every event is dropped."""

    def started(self, node: str) -> None:
        """Drop that a task was launched."""

    def progress(self, node: str, done: int, total: int | None, unit: str) -> None:
        """Drop how far a task is."""

    def note(self, node: str, text: str) -> None:
        """Drop a line about a task; its log still gets it (`LoggingObserver`)."""

    def ended(self, result: NodeResult) -> None:
        """Drop that a task has ended; the run's result still holds it."""


class FailsafeObserver:
    """Passes events on until the observer behind it raises; from then on it is silent, since the run must go on."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer

    def started(self, node: str) -> None:
        """Pass on that a task was launched; never raises."""
        self._pass_on(lambda: self._observer.started(node))

    def progress(self, node: str, done: int, total: int | None, unit: str) -> None:
        """Pass on how far a task is; never raises."""
        self._pass_on(lambda: self._observer.progress(node, done, total, unit))

    def note(self, node: str, text: str) -> None:
        """Pass on a line about a task; never raises."""
        self._pass_on(lambda: self._observer.note(node, text))

    def ended(self, result: NodeResult) -> None:
        """Pass on how a task ended; never raises."""
        self._pass_on(lambda: self._observer.ended(result))

    def _pass_on(self, event: Callable[[], None]) -> None:
        try:
            event()
        except Exception:
            self._observer = NullObserver()
            import logging  # late: hardly any observer fails

            logging.getLogger(__name__).warning("the run goes on unobserved: its observer failed", exc_info=True)


class LoggingObserver:
    """Passes events on, and writes the notes of a task into its log."""

    def __init__(self, observer: Observer, logs: Logs) -> None:
        self._observer = observer
        self._logs = logs

    def started(self, node: str) -> None:
        """Pass on that a task was launched; `Logs.begin` writes each attempt's own line."""
        self._observer.started(node)

    def progress(self, node: str, done: int, total: int | None, unit: str) -> None:
        """Pass on how far a task is; the log holds none of it."""
        self._observer.progress(node, done, total, unit)

    def note(self, node: str, text: str) -> None:
        """Pass on a line about a task, then append it to the task's log."""
        self._observer.note(node, text)
        self._logs.write(node, text)

    def printed(self, node: str, text: str, last: str) -> None:
        """Log what a process of a task printed, and pass on as a note its last line, which is to be shown."""
        if text:
            self._logs.write(node, text)
        if last:
            self._observer.note(node, last)

    def ended(self, result: NodeResult) -> None:
        """Pass on how a task ended; `Logs.end` writes the log's last line."""
        self._observer.ended(result)
