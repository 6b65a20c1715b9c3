"""Who works on a run of the cluster: no process that could be looked up here, but a KFP run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from ...metadata import ContextRecord, NotFound, Owner
from ..launching.home import Home, Run

CLUSTER = Owner("kubeflow", "", 0, "")
"""The owner of a run that a cluster works on: whether it lives cannot be told from here, so it is never called dead."""


@dataclass(frozen=True)
class Submission:
    """What the record of a run says of its KFP run.

    Attributes:
        run: KFP's id of it, "" where none was made.
        host: The API server that took it, "" where a pod made the record.
        ended: The tasks that were found ended when it was submitted, and so have no pod.
        tasks: KFP's name of a task -> the node that it is.
    """

    run: str = ""
    host: str = ""
    ended: tuple[str, ...] = ()
    tasks: Mapping[str, str] = field(default_factory=dict)


def hand_over(home: Home, run: Run, submission: Submission) -> Run:
    """Record that a cluster works on a run from here on; what was known of it and is not told anew stays."""
    told = vars(submission) | {"ended": list(submission.ended), "tasks": dict(submission.tasks)}
    known = run.context.properties.get("kubeflow") or {}
    wanted = {"owner": CLUSTER.to_dict(), "kubeflow": known | {name: value for name, value in told.items() if value}}
    if all(run.context.properties.get(name) == value for name, value in wanted.items()):
        return run
    return replace(run, context=home.store.update_context(run.context, wanted))


def submission(run: Run) -> Submission:
    """What is known of a run's KFP run."""
    facts = run.context.properties.get("kubeflow") or {}
    ended = tuple(facts.get("ended", ()))
    return Submission(facts.get("run", ""), facts.get("host", ""), ended, facts.get("tasks", {}))


def on_cluster(run: Run) -> bool:
    """Whether a cluster works, or worked, on a run."""
    return Owner.from_dict(run.context.properties["owner"]) == CLUSTER


def end(home: Home, run: Run, state: str) -> Run:
    """Record how a run of the cluster ended, unless that is recorded."""
    there = home.store.find_context("run", run.id)
    if there is None:
        raise NotFound(f"the store does not hold run {run.id}")
    return replace(run, context=_ended(home, there, state))


def _ended(home: Home, context: ContextRecord, state: str) -> ContextRecord:
    if context.properties["state"] != "RUNNING":
        return context
    return home.store.update_context(context, {"state": state, "finished": datetime.now(UTC).isoformat()})
