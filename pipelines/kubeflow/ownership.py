"""Who works on a run of a cluster: not a process that could be looked up here, but a KFP run; where its records are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from ...metadata import ContextRecord, NotFound, Owner
from ..launcher.home import Home
from ..launcher.runs import Run
from ..launcher.states import RunState

CLUSTER = Owner("kubeflow", "", 0, "")
"""The owner of a run that a cluster works on. Whether it is alive cannot be seen here, so it never counts as dead."""
SIMULATED = "simulate"
"""The runner option of a run that is simulated on this machine: its owner is the simulating process."""


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
    """Record that a cluster works on a run from now on; empty fields of the submission keep their old value."""
    facts = vars(submission) | {"ended": list(submission.ended), "tasks": dict(submission.tasks)}
    recorded = run.context.properties.get("kubeflow") or {}
    wanted: dict[str, object] = {"kubeflow": recorded | {name: value for name, value in facts.items() if value}}
    if not simulated(run):
        wanted["owner"] = CLUSTER.to_dict()
    if all(run.context.properties.get(name) == value for name, value in wanted.items()):
        return run
    return replace(run, context=home.store.update_context(run.context, wanted))


def submission(run: Run) -> Submission:
    """The recorded submission of a run, with empty fields where nothing is recorded."""
    facts = run.context.properties.get("kubeflow") or {}
    ended = tuple(facts.get("ended", ()))
    tasks, artifacts = facts.get("tasks", {}), facts.get("artifacts", "")
    return Submission(facts.get("run", ""), facts.get("host", ""), ended, tasks, artifacts)


def on_cluster(run: Run) -> bool:
    """Whether a cluster works, or worked, on a run."""
    return Owner.from_dict(run.context.properties["owner"]) == CLUSTER


def simulated(run: Run) -> bool:
    """Whether the run is simulated on this machine, and no cluster has it."""
    return SIMULATED in run.options.runner_options


def within_reach(home: Home, artifacts: str) -> bool:
    """Whether this home sees what pods keep at `artifacts`: its payloads lie behind the same URL."""
    url = home.payloads.url
    return url is not None and artifacts in (url, url.removeprefix("file://"))


def end(home: Home, run: Run, state: RunState) -> Run:
    """Record the end of a run of the cluster, unless it has ended; returns it as it is then.

    Raises:
        NotFound: The store does not hold the run.
    """
    context = home.store.find_context("run", run.id)
    if context is None:
        raise NotFound(f"the store does not hold run {run.id}")
    return replace(run, context=_ended(home, context, state))


def _ended(home: Home, context: ContextRecord, state: RunState) -> ContextRecord:
    if context.properties["state"] != RunState.RUNNING:
        return context
    return home.store.update_context(context, {"state": state, "finished": datetime.now(UTC).isoformat()})
