"""May this task run? The one answer that the launcher, every runner and the Kubeflow compiler give.

A pure function of how the tasks upstream ended: the store is asked by `flow`, which knows a run, and the Kubeflow
compiler asks with what it can know before there is one.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from enum import Enum
from typing import NamedTuple, TypeAlias

from ..ir.expressions import Dependency
from .states import EndState


class Verdict(Enum):
    """What is to happen with a task now: run it, skip it, block it, or wait for what is upstream."""

    RUN = "run"
    SKIP = "skip"
    BLOCK = "block"
    WAIT = "wait"

    @property
    def end(self) -> EndState | None:
        """How a task ends that does not run."""
        return _ENDS.get(self)


_ENDS = {Verdict.SKIP: EndState.SKIPPED, Verdict.BLOCK: EndState.BLOCKED}


class Readiness(NamedTuple):
    """Whether a task runs, and why it does not.

    Attributes:
        verdict: What is to happen with it now.
        reason: Which upstream task or condition decided that; "" where it runs.
        left_out: Whether it is not part of a partial run, so that an earlier run may stand in for it.
    """

    verdict: Verdict
    reason: str = ""
    left_out: bool = False

    @property
    def runs(self) -> bool:
        """Whether the verdict is to run it."""
        return self.verdict is Verdict.RUN


class UpstreamTask(NamedTuple):
    """A task that another one depends on, as far as it is known.

    Attributes:
        name: For the reason.
        end: How it ended; None where it did not, or not yet.
        lost: Why it has no end and will not get one ("did not run"); "" where it has one, or is still to come.
        gathered: Whether it is one item of several that are gathered into a list.
        veto: What it objects to, of a gate that does not let pass what comes after it.
    """

    name: str
    end: EndState | None = None
    lost: str = ""
    gathered: bool = False
    veto: str = ""


Needs: TypeAlias = Iterable[tuple[Dependency, Iterable[UpstreamTask]]]
"""What a task depends on, each with the tasks that are meant: one, or of a loop those of all items."""
READY = Readiness(Verdict.RUN)
_CAUSES = {EndState.FAILED: "failed", EndState.BLOCKED: "is blocked", EndState.CANCELED: "was stopped"}


def readiness(needs: Needs, false_conditions: Iterable[str] = (), *, on_exit: bool = False) -> Readiness:
    """Whether a task, or a loop, may run.

    The first need that forbids it gives the reason. A task upstream that has yet to end makes it wait, unless another
    need forbids it whatever that one comes to.

    Args:
        needs: What it depends on. Both levels may be generators: nothing is asked after the first that forbids it.
        false_conditions: The conditions of its branch that do not hold, as the user wrote them. Looked at last and only
            if everything upstream succeeded, since before that a condition may have no value.
        on_exit: Whether it runs after all others, however they ended: then an optional need may have failed.
    """
    pending = ""
    exhausted: dict[Hashable, str] = {}  # groups of dt.one_of of which something was skipped
    open_groups: set[Hashable] = set()  # groups of which something succeeded, or still may
    for need, upstream in needs:
        for task in upstream:
            if task.end is None and not task.lost:
                pending = pending or f"{task.name} has not ended"
                open_groups.add(need.group)
            elif task.end is not None and task.end.succeeded:
                open_groups.add(need.group)
                # Only `after` asks a gate for its assent; whoever takes a gate's output may look at a veto.
                if need.kind == "after" and task.veto:
                    return Readiness(Verdict.BLOCK, f"{task.name} vetoed: {task.veto}")
            elif task.end is EndState.SKIPPED:
                # A skipped item is left out of the list that is gathered, which may become empty.
                if need.kind == "need" and not task.gathered:
                    return Readiness(Verdict.SKIP, f"{task.name} was skipped")
                if need.kind == "choice":
                    exhausted[need.group] = f"{task.name} was skipped"
            elif not (on_exit and need.kind == "optional"):
                cause = task.lost if task.end is None else _CAUSES[task.end]
                return Readiness(Verdict.BLOCK, f"{task.name} {cause}")
    # After all needs: another one of the group may come later, and so may a failure, which weighs more than a skip.
    for group, reason in exhausted.items():
        if group not in open_groups:
            return Readiness(Verdict.SKIP, reason)
    if pending:
        return Readiness(Verdict.WAIT, pending)
    for condition in false_conditions:
        return Readiness(Verdict.SKIP, f"{condition} is false")
    return READY
