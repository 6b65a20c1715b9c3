"""What people decide of a run's nodes: recorded in the store, by any process, before or while the node waits."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from ...errors import InputError
from ..ir.tasks import parse_task
from .home import Home, Run

_FIELDS = ("approved", "by", "comment")


def decision(home: Home, run: Run, task: str) -> Mapping[str, object] | None:
    """What was decided of a task; None until it was."""
    found = home.store.find_context("decision", f"{run.id}/{task}")
    return None if found is None else {name: found.properties[name] for name in _FIELDS}


def decide(home: Home, run: Run, task: str, *, approved: bool, by: str, comment: str = "") -> None:
    """Record a decision. The first one stands.

    Raises:
        InputError: It was decided before.
    """
    name, now = f"{run.id}/{task}", datetime.now(UTC).isoformat()
    mine = {"approved": approved, "by": by, "comment": comment, "at": now}
    there = home.store.context("decision", name, mine)
    if there.properties != mine:
        given = "approved" if there.properties["approved"] else "denied"
        raise InputError(
            f"{task} in run {run.id} was {given} by {there.properties['by']} before",
            fix="the first decision stands; run the pipeline again to be asked again",
        )


def asks(run: Run, task: str) -> bool:
    """Whether a task is one that waits for a decision."""
    return run.pipeline[parse_task(task)[0]].asks


def waiting(home: Home, run: Run) -> list[str]:
    """The tasks of a run that wait for a decision now."""
    found = home.store.executions(context=run.context, state="RUNNING")
    names = [str(execution.properties["node"]) for execution in found]
    return sorted(name for name in names if asks(run, name) and decision(home, run, name) is None)
