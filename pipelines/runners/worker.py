"""A worker that is told by another system which task to launch: in children that do one after another."""

from __future__ import annotations

from types import TracebackType

from ..launcher.launcher import Launcher
from ..launcher.results import NodeResult
from ..launcher.states import EndState
from .children import Attending
from .pool import Pool


class Worker:
    """Launches tasks of one run, from any thread.

    Args:
        attending: Who answers for the children.
    """

    def __init__(self, attending: Attending) -> None:
        self._attending = attending
        self._pool = Pool(attending)

    @property
    def launcher(self) -> Launcher:
        """Of the run."""
        return self._attending.launcher

    def launch(self, name: str) -> NodeResult:
        """Have a task done, tried again as its options say; gives how it ended. Never raises."""
        launcher, retried = self.launcher, 0
        launcher.observer.started(name)
        result = self._pool.attempt(name, retried)
        while result.again is not None:
            if launcher.cancel.wait(result.again):
                result = NodeResult(name, EndState.CANCELED, reason="stopped before its next attempt")
                break
            retried += 1
            result = self._pool.attempt(name, retried)
        launcher.observer.ended(result)
        return result

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.close()
