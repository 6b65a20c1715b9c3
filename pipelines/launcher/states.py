"""How tasks and runs end, and what follows: whether consumers run, whether a resumed run keeps a task, an exit code.

Stores, JSON and the command line spell these as the members are called. Execution states beside them (NEW, RUNNING,
ABANDONED) are not ends: a task whose execution is in one of those is at work, or its process died.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Literal, TypeAlias

from ...metadata import ExecutionRecord


class EndState(StrEnum):
    """How a task ended."""

    COMPLETE = "COMPLETE"
    """It ran, and its outputs are published."""
    CACHED = "CACHED"
    """An earlier execution did the same work, and stands in for it."""
    SKIPPED = "SKIPPED"
    """A branch was not taken, so that it has no outputs; the run is complete all the same."""
    BLOCKED = "BLOCKED"
    """It could not run: something upstream failed, or a gate vetoed."""
    FAILED = "FAILED"
    """It ran, or tried to, and did not succeed."""
    CANCELED = "CANCELED"
    """The run was stopped before it had ended."""

    @classmethod
    def of(cls, execution: ExecutionRecord | None) -> EndState | None:
        """The end that an execution came to; None where there is none, or it has not ended properly."""
        return None if execution is None else _ENDS.get(execution.state)

    @property
    def succeeded(self) -> bool:
        """Whether it has outputs, so that its consumers run."""
        return self is EndState.COMPLETE or self is EndState.CACHED

    @property
    def final(self) -> bool:
        """Whether a resumed run keeps it; any other end is tried again."""
        return self.succeeded or self is EndState.SKIPPED

    @property
    def without_outputs(self) -> Literal["FAILED", "CANCELED"]:
        """This end as `MetadataStore.finish` takes it, of an execution that had begun."""
        return "CANCELED" if self is EndState.CANCELED else "FAILED"

    @property
    def exit_code(self) -> int:
        """Of a process that launched this task and no other: 1 after a failure, 130 after Ctrl-C, else 0."""
        return {EndState.FAILED: 1, EndState.CANCELED: 130}.get(self, 0)


_ENDS: dict[str, EndState] = {state.value: state for state in EndState}


class UnfinishedState(StrEnum):
    """How far a task is that has not ended."""

    WAITING = "WAITING"
    """For what it needs, or for its next attempt."""
    PENDING = "PENDING"
    """Its pod is there, and does not run yet."""
    RUNNING = "RUNNING"
    INTERRUPTED = "INTERRUPTED"
    """Its process died."""


TaskState: TypeAlias = EndState | UnfinishedState


def task_state(execution: ExecutionRecord | None) -> TaskState:
    """A task's state by its newest execution; a process that has died since it was recorded is not looked for."""
    if execution is None:
        return UnfinishedState.WAITING
    died = execution.state == "ABANDONED"
    return EndState.of(execution) or (UnfinishedState.INTERRUPTED if died else UnfinishedState.RUNNING)


class RunState(StrEnum):
    """How a run ended, or how far it is."""

    RUNNING = "RUNNING"
    COMPLETE = "COMPLETE"
    FAILED = "FAILED"
    STOPPED = "STOPPED"
    """A gate vetoed, and nothing failed."""
    CANCELED = "CANCELED"
    INTERRUPTED = "INTERRUPTED"
    """Its process died."""

    @property
    def exit_code(self) -> int:
        """Of a command that carries it out or looks at it: 3 after a veto, 130 after Ctrl-C, 1 after a failure."""
        return {RunState.STOPPED: 3, RunState.CANCELED: 130, RunState.COMPLETE: 0, RunState.RUNNING: 0}.get(self, 1)


def run_state(ends: Iterable[EndState], *, vetoed: bool) -> RunState:
    """How a run ends whose tasks ended so; `vetoed` says whether one of them is a gate that said no.

    BLOCKED is not looked at: there is no blocked task without a failure, a stop or a veto that blocked it.
    """
    states = set(ends)
    if EndState.FAILED in states:
        return RunState.FAILED
    if EndState.CANCELED in states:
        return RunState.CANCELED
    return RunState.STOPPED if vetoed else RunState.COMPLETE
