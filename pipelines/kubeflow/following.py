"""How far a run is: our store knows how tasks ended, KFP what it started, Kubernetes why a pod waits."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from ...errors import DrivetrainError, InputError
from ...redaction import redact
from ..ir.tasks import parse_task
from ..launcher.flow import Flow
from ..launcher.home import Home
from ..launcher.logs import Logs
from ..launcher.runs import Run, open_run
from ..launcher.states import EndState, RunState, TaskState, UnfinishedState, task_state
from . import reconcile
from .api_errors import ApiError
from .client import KfpClient, KfpRun
from .kubernetes_api import KubernetesApi, PodStatus
from .ownership import Submission, end, on_cluster, simulated, submission, within_reach
from .submit import with_kfp_run

_GRACE = 30.0
"""Seconds that the closing pod's record may take to arrive after KFP says that the run has ended."""

_ENDED: Mapping[str, RunState] = {
    "SUCCEEDED": RunState.COMPLETE,
    "SKIPPED": RunState.COMPLETE,
    "FAILED": RunState.FAILED,
    "CANCELED": RunState.CANCELED,
}
"""KFP's state of a run that has ended -> ours."""
_STATES: Mapping[str, TaskState] = {
    "PENDING": UnfinishedState.PENDING,
    "RUNNING": UnfinishedState.PENDING,  # its pod has recorded nothing in the store yet
    "SUCCEEDED": EndState.COMPLETE,  # its pod could not reach the store, and its record is beside the payloads
    "SKIPPED": EndState.SKIPPED,
    "FAILED": EndState.FAILED,
    "CANCELING": EndState.CANCELED,
    "CANCELED": EndState.CANCELED,
}
"""KFP's state of a task -> ours, where our store has none."""


@dataclass(frozen=True)
class TaskStatus:
    """A task of a run on a cluster, and how far it is.

    Attributes:
        state: As our store has it; where it has nothing, PENDING for a pod that is there and does not run, and WAITING
            for none.
        reason: Why it ended so, or why its pod does not run.
        seconds: How long it took; 0 where it has not ended.
        pod: The name of its newest pod, "" where none is known.
    """

    task: str
    state: TaskState
    reason: str = ""
    seconds: float = 0.0
    pod: str = ""


@dataclass(frozen=True)
class RunStatus:
    """A run on a cluster.

    Attributes:
        state: As our store has it.
        kfp: KFP's run, None where it could not be asked, or has none.
        tasks: In topological order.
        notes: What could not be asked, or does not agree.
    """

    run: str
    state: RunState
    kfp: KfpRun | None
    tasks: tuple[TaskStatus, ...]
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, object]:
        """As `status --json` prints it."""
        kfp = None
        if self.kfp is not None:
            kfp = {name: getattr(self.kfp, name) for name in ("state", "error", "link")} | {"run": self.kfp.id}
        nodes = {
            task.task: {name: value for name, value in vars(task).items() if name != "task"} for task in self.tasks
        }
        return {"run": self.run, "state": self.state, "kfp": kfp, "nodes": nodes, "notes": list(self.notes)}


def find(home: Home, name: str | None) -> Run:
    """A run by our id, the beginning of one, or KFP's id; the cluster's newest where none is given.

    Raises:
        InputError: There is no such run, or it is not a cluster's.
    """
    contexts = home.store.contexts("run", limit=1000)
    cluster_runs = [context for context in contexts if context.properties.get("kubeflow")]
    if name is None:
        newest = next((run for each in cluster_runs if not simulated(run := open_run(home, each.name))), None)
        if newest is None:
            raise InputError(f"there is no run of a cluster in {home.root}", fix="drivetrain kubeflow submit PROJECT")
        return newest
    by_kfp = [context for context in cluster_runs if context.properties["kubeflow"].get("run") == name]
    run = open_run(home, by_kfp[0].name if by_kfp else name)
    if simulated(run) or (run.options.runner != "kubeflow" and not on_cluster(run)):
        raise InputError(f"run {run.id} is not a cluster's", fix=f"drivetrain show {run.id}")
    return run


def status(home: Home, run: Run, client: KfpClient, cluster: Callable[[], KubernetesApi] | None = None) -> RunStatus:
    """How far a run is. What cannot be asked becomes a note.

    Args:
        home: Where it is recorded.
        run: The run.
        client: KFP's API.
        cluster: The Kubernetes API, asked only where a pod may have something to say.
    """
    notes: list[str] = []
    recorded = submission(run)
    kfp: KfpRun | None = None
    try:
        run = with_kfp_run(home, run, client)
        recorded = submission(run)
        kfp = client.run(recorded.run) if recorded.run else None
    except ApiError as error:
        notes.append(error.message)
    pods: dict[str, PodStatus] = {}
    if cluster is not None and kfp is not None and kfp.state != "SUCCEEDED":
        try:
            with contextlib.closing(cluster()) as connection:
                pods = {pod.task: pod for pod in connection.pods(kfp.id, run.pipeline) if pod.task}
        except DrivetrainError as error:
            notes.append(error.message)
    tasks = _tasks(home, run, kfp, recorded, pods)
    if not _seen_from(home, recorded):
        notes.append(f"the pods keep their record at {recorded.artifacts}, unseen from here: states of tasks are KFP's")
    if kfp is not None and kfp.ended and run.state is RunState.RUNNING:
        notes.append(f"KFP's run is {kfp.state}, and no pod has closed ours: `drivetrain kubeflow sync {run.id}`")
    return RunStatus(run.id, run.state, kfp, tasks, tuple(notes))


def wait(
    home: Home,
    run: Run,
    client: KfpClient,
    *,
    seen: Callable[[KfpRun], None] = lambda run: None,
    every: float = 5.0,
    timeout: float | None = None,
    grace: float = _GRACE,
) -> Run:
    """Wait for a run's end in KFP, then in our store; where no pod records it in time, this process does.

    Raises:
        InputError: It has no KFP run.
        ApiError: It did not end in time, or KFP cannot be asked.
    """
    kfp = client.wait(_kfp_run(run), seen=seen, every=every, timeout=timeout)
    deadline = time.monotonic() + (grace if _seen_from(home, submission(run)) else 0.0)
    while (run := open_run(home, run.id)).state is RunState.RUNNING:
        if time.monotonic() >= deadline:
            return _closed(home, run, kfp)
        time.sleep(min(every, 1.0))
    return run


def close(home: Home, run: Run, client: KfpClient) -> Run:
    """A run, closed if KFP says that it has ended and no pod has closed it.

    Raises:
        ApiError: KFP cannot be asked.
    """
    run = with_kfp_run(home, run, client)
    if run.state is not RunState.RUNNING or not submission(run).run:
        return run
    kfp = client.run(submission(run).run)
    return _closed(home, run, kfp) if kfp.ended else run


def _closed(home: Home, run: Run, kfp: KfpRun) -> Run:
    """Close a run that KFP has ended and no pod closed.

    Its tasks get an end only where this home would have seen the pods' records: elsewhere they may have ended well.
    """
    if not _seen_from(home, submission(run)):
        return end(home, run, _ENDED[kfp.state])
    reconcile.reconcile_run(home, run, kfp.state)
    return open_run(home, run.id)


def _seen_from(home: Home, known: Submission) -> bool:
    """Whether what the pods of a run record gets to this home."""
    return not known.artifacts or within_reach(home, known.artifacts)


def _kfp_run(run: Run) -> str:
    if not (kfp_run := submission(run).run):
        raise InputError(f"run {run.id} has no KFP run", fix=f"drivetrain kubeflow status {run.id}")
    return kfp_run


def terminate(home: Home, run: Run, client: KfpClient, *, every: float = 2.0, timeout: float = 120.0) -> Run:
    """End a run on its cluster, and wait for its end; returns it as recorded.

    Raises:
        InputError: It has no KFP run, or has ended already.
        ApiError: It does not end in time, or KFP cannot be asked.
    """
    run = with_kfp_run(home, run, client)
    kfp = client.run(_kfp_run(run))
    if not kfp.ended:
        client.terminate(kfp.id)
    elif run.state is not RunState.RUNNING:
        raise InputError(
            f"run {run.id} has ended: it is {run.state}, and KFP's run {kfp.state}", fix=f"drivetrain resume {run.id}"
        )
    return wait(home, run, client, every=every, timeout=timeout, grace=every)


def _tasks(
    home: Home, run: Run, kfp: KfpRun | None, known: Submission, pods: Mapping[str, PodStatus]
) -> tuple[TaskStatus, ...]:
    flow = Flow(home.store, run)
    # Of a node in a loop KFP has a task for each item, and does not say for which.
    started = {known.tasks[task.name]: task for task in (kfp.tasks if kfp else ()) if task.name in known.tasks}
    started = {node: task for node, task in started.items() if not run.pipeline.scope(node)}
    statuses = []
    for node in run.pipeline.ids:
        for name in flow.task_names(node):
            execution = flow.execution(*parse_task(name))
            status = TaskStatus(name, task_state(execution))
            if execution is not None:
                reason = str(execution.properties.get("reason", ""))
                status = replace(status, reason=reason, seconds=execution.seconds or 0.0)
            pod, task = pods.get(name), started.get(node)
            if isinstance(status.state, UnfinishedState):
                waits = status.state is UnfinishedState.WAITING
                if task is not None and (task.state in ("FAILED", "CANCELED") or waits):
                    state = _STATES.get(task.state, UnfinishedState.WAITING)
                    status = replace(status, state=state, reason=task.error)
                if pod is not None and pod.phase in ("Pending", "Failed"):
                    state = UnfinishedState.PENDING if pod.phase == "Pending" else EndState.FAILED
                    status = replace(status, state=state, reason=pod.reason or status.reason)
            names = [pod.name] if pod is not None else list(task.pods[-1:]) if task is not None else []
            statuses.append(replace(status, pod=names[0] if names else ""))
    return tuple(statuses)


@dataclass(frozen=True)
class TaskLog:
    """What a task printed, and the pod that it was read from; "" where that was a file on this machine."""

    text: str
    pod: str = ""


def log(home: Home, run: Run, task: str, cluster: Callable[[], KubernetesApi], *, lines: int | None = None) -> TaskLog:
    """What the newest pod of a task printed; only its last `lines` where that is set.

    Raises:
        InputError: There is no such node, or no pod of it.
        ApiError: Kubernetes cannot be asked.
    """
    node, index = parse_task(task)
    run.pipeline[node]  # raises where there is none
    depth = len(run.pipeline.scope(node))
    here = Logs(home.root, run.id).path(task)
    if here.exists():  # of the simulator, or of a run that began here
        text = redact(here.read_text(encoding="utf-8", errors="replace"))
        return TaskLog("".join(text.splitlines(keepends=True)[-lines:] if lines else text))
    recorded = submission(run)
    if task in recorded.ended:
        raise InputError(
            f"{task} has no pod in KFP's run {recorded.run}: it was cached, skipped, or had ended before",
            fix=f"drivetrain why {task} --run {run.id}",
        )
    if len(index) != depth:
        items = f"{node} has one for each item: {node}[{','.join('0' * depth)}]" if depth else f"there is {node}"
        raise InputError(f"{task} is not a task of run {run.id}", fix=items)
    kfp_run = _kfp_run(run)
    gone = f"a log is gone with its pod; how the task ended stays: `drivetrain show {run.id}`"
    with contextlib.closing(cluster()) as connection:
        pods = [pod for pod in connection.pods(kfp_run, run.pipeline) if pod.task == task]
        if not pods:
            raise InputError(f"the cluster has no pod of {task} in run {run.id}, or no longer has it", fix=gone)
        try:
            return TaskLog(connection.log(pods[-1].name, lines), pods[-1].name)
        except ApiError as error:
            if error.status != 404:
                raise
            raise ApiError(f"{error.message}: the pod has been removed", fix=gone, status=404) from None
