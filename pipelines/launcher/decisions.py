"""Decisions of people about a run's nodes, recorded in the store by any process before or while a node waits."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from ...errors import InputError
from ..ir.tasks import parse_task
from .home import Home
from .runs import Run

_FIELDS = ("approved", "by", "comment")


def decision(home: Home, run: Run, task: str) -> Mapping[str, object] | None:
    """The decision about a task: approved, by, comment; None until there is one."""
    record = home.store.find_context("decision", f"{run.id}/{task}")
    return None if record is None else {name: record.properties[name] for name in _FIELDS}


def decide(home: Home, run: Run, task: str, *, approved: bool, by: str, comment: str = "") -> None:
    """Record a decision. The first one stands.

    Raises:
        InputError: It was decided before.
    """
    name, now = f"{run.id}/{task}", datetime.now(UTC).isoformat()
    decision_record = {"approved": approved, "by": by, "comment": comment, "at": now}
    recorded = home.store.context("decision", name, decision_record)
    if recorded.properties != decision_record:
        answer = "approved" if recorded.properties["approved"] else "denied"
        raise InputError(
            f"{task} in run {run.id} was {answer} by {recorded.properties['by']} before",
            fix="the first decision counts; run the pipeline again to be asked again",
        )


def asks(run: Run, task: str) -> bool:
    """Whether a task is one that waits for a decision."""
    return run.pipeline[parse_task(task)[0]].asks


def waiting_tasks(home: Home, run: Run) -> list[str]:
    """The tasks of a run that wait for a decision now."""
    running = home.store.executions(context=run.context, state="RUNNING")
    names = [str(execution.properties["node"]) for execution in running]
    return sorted(name for name in names if asks(run, name) and decision(home, run, name) is None)
