"""Who works on a run of the cluster: no process that could be looked up here, but a KFP run; where its record is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from ...metadata import ContextRecord, NotFound, Owner
from ..launcher.home import Home, Run

CLUSTER = Owner("kubeflow", "", 0, "")
"""The owner of a run that a cluster works on: whether it lives cannot be told from here, so it is never called dead."""
SIMULATED = "simulate"
"""The option of the runner in a run that is carried out on this machine: its owner is the process that does so."""


@dataclass(frozen=True)
class Submission:
    """What the record of a run says of its KFP run.

    Attributes:
        run: KFP's id of it, "" where none was made.
        host: The API server that took it, "" where a pod made the record.
        ended: The tasks that were found ended when it was submitted, and so have no pod.
        tasks: KFP's name of a task -> the node that it is.
        artifacts: Where its pods keep payloads and records, "" where a pod made the record, which is in their store.
    """

    run: str = ""
    host: str = ""
    ended: tuple[str, ...] = ()
    tasks: Mapping[str, str] = field(default_factory=dict)
    artifacts: str = ""


def hand_over(home: Home, run: Run, submission: Submission) -> Run:
    """Record that a cluster works on a run from here on; what was known of it and is not told anew stays."""
    facts = vars(submission) | {"ended": list(submission.ended), "tasks": dict(submission.tasks)}
    known = run.context.properties.get("kubeflow") or {}
    wanted: dict[str, object] = {"kubeflow": known | {name: value for name, value in facts.items() if value}}
    if not simulated(run):
        wanted["owner"] = CLUSTER.to_dict()
    if all(run.context.properties.get(name) == value for name, value in wanted.items()):
        return run
    return replace(run, context=home.store.update_context(run.context, wanted))


def submission(run: Run) -> Submission:
    """What is known of a run's KFP run."""
    facts = run.context.properties.get("kubeflow") or {}
    ended = tuple(facts.get("ended", ()))
    tasks, artifacts = facts.get("tasks", {}), facts.get("artifacts", "")
    return Submission(facts.get("run", ""), facts.get("host", ""), ended, tasks, artifacts)


def on_cluster(run: Run) -> bool:
    """Whether a cluster works, or worked, on a run."""
    return Owner.from_dict(run.context.properties["owner"]) == CLUSTER


def simulated(run: Run) -> bool:
    """Whether no cluster has a run, but a process that does as if it were one."""
    return SIMULATED in run.options.runner_options


def within_reach(home: Home, artifacts: str) -> bool:
    """Whether what pods keep there can be seen from here: the payloads of this home lie behind the same URL."""
    url = home.payloads.url
    return url is not None and artifacts in (url, url.removeprefix("file://"))


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
