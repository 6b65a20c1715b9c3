"""Children between their tasks: taken by whoever has a task, given back if they may do another."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from ...errors import DrivetrainError
from ..ir.tasks import parse_task
from ..launcher.results import NodeResult
from ..launcher.states import EndState
from .children import Attending, Child


class Pool:
    """Has tasks done by children that do one after another; from any thread.

    Args:
        attending: Who answers for the children.
    """

    def __init__(self, attending: Attending) -> None:
        self._attending = attending
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
            name: The task. One whose options ask for an environment gets a process of its own.
            retried: How often it was tried before.
            environment: Variables of the child beside this process's; the same for every task without locks.
            locks: Descriptors that its process holds as long as it lives; it is then its own.
            spare: How many other processes may be given the task, where one dies before it begins it.
        """
        launcher = self._attending.launcher
        alone = bool(locks or launcher.run.pipeline[parse_task(name)[0]].options.env)
        try:
            child = None if alone else self._taken()
            if child is None:
                own = self._attending.environment(name) if alone else {}
                child = Child(launcher, {**(environment or {}), **own}, locks)
        except (DrivetrainError, OSError) as error:
            return launcher.recovery.refuse(name, error)
        again = False
        try:
            ended = self._attending.attempt(name, child, retried, last=not spare)
            spoiled = ended is None or ended[0].state in (EndState.FAILED, EndState.CANCELED)
            again = ended is not None and ended[1] and not alone and not spoiled
        finally:
            if again:
                self._idle.append(child)
            else:
                child.retire()
        return ended[0] if ended else self.attempt(name, retried, environment, locks, spare - 1)

    def close(self) -> None:
        """End the children that wait: told all at once, then waited for."""
        for child in self._idle:
            child.dismiss()
        for child in self._idle:
            child.retire()

    def _taken(self) -> Child | None:
        """One that waits, and lives: memory that runs out takes any process."""
        with suppress(IndexError):
            while True:
                child = self._idle.pop()
                if child.lives:
                    return child
                child.retire()
        return None
