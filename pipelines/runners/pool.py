"""A pool of child processes: each task takes an idle one or a new one, which goes back if it may do another task."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType

from ...errors import DrivetrainError
from ..ir.tasks import parse_task
from ..launcher.launcher import Launcher
from ..launcher.results import NodeResult
from ..launcher.states import EndState
from .children import Child, Supervisor


class Pool:
    """Has tasks done by children that do one after another; from any thread.

    Args:
        supervisor: Gives the tasks to the children.
    """

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._idle: list[Child] = []

    def attempt(
        self,
        name: str,
        retried: int,
        environment: Mapping[str, str] | None = None,
        locks: tuple[int, ...] = (),
        spare: int = 2,
    ) -> NodeResult:
        """Have a task tried once; gives how that ended, also where no process can be had.

        Args:
            name: The task. One whose options ask for an environment gets a process of its variables.
            retried: How often it was tried before.
            environment: Variables of the child beside this process's; the same for every task without locks.
            locks: Descriptors that its process holds as long as it lives; it is then its variables.
            spare: How many other processes may be given the task, where one dies before it begins it.
        """
        launcher = self._supervisor.launcher
        alone = bool(locks or launcher.run.pipeline[parse_task(name)[0]].options.env)
        try:
            child = None if alone else self._take_idle()
            # An idle child looks itself. Where none is, a look here costs less than to start one, mostly for nothing
            # else where all comes from the cache.
            if child is None and not (alone or retried):
                known = self._supervisor.end_without_child(name)
                if known is not None:
                    return known
            if child is None:
                variables = self._supervisor.environment(name) if alone else {}
                child = Child(launcher, {**(environment or {}), **variables}, locks)
        except (DrivetrainError, OSError) as error:
            return launcher.recovery.refuse(name, error)
        again = False
        try:
            ended = self._supervisor.attempt(name, child, retried, last=not spare)
            spoiled = ended is None or ended[0].state in (EndState.FAILED, EndState.CANCELED)
            again = ended is not None and ended[1] and not alone and not spoiled
        finally:
            if again:
                self._idle.append(child)
            else:
                child.retire()
        return ended[0] if ended else self.attempt(name, retried, environment, locks, spare - 1)

    def close(self) -> None:
        """End the idle children: first all are asked to, then each is waited for."""
        for child in self._idle:
            child.dismiss()
        for child in self._idle:
            child.retire()

    def _take_idle(self) -> Child | None:
        """An idle child that still lives (the kernel kills any process where memory runs out); None without one."""
        with suppress(IndexError):
            while True:
                child = self._idle.pop()
                if child.lives:
                    return child
                child.retire()
        return None


class TaskWorker:
    """Launches tasks of one run in a pool of its own, for a system that names them: retries included, from any thread.

    Args:
        supervisor: Gives the tasks to the children.
    """

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._pool = Pool(supervisor)

    @property
    def launcher(self) -> Launcher:
        """The launcher of the run that the tasks belong to."""
        return self._supervisor.launcher

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

    def __enter__(self) -> TaskWorker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.close()
