"""Bringing the store in line with what KFP did: tasks that got no pod, pods that died, the end of the run.

KFP starts no pod for a task that depends on one that was skipped, failed or blocked, and no pod that is killed can say
so. Exit nodes and the run's own end need a state for every task all the same. The order is always the same: first the
records beside the payloads are taken in, so that what a pod did without the store is never overwritten by a guess;
then, under a claim, each task that still has no end gets one.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime

from ...errors import DrivetrainError
from ...metadata import Owner
from ..ir.tasks import parse_task, task_name
from ..launcher import run_records as records
from ..launcher.heartbeat import heartbeat
from ..launcher.home import Home
from ..launcher.launcher import LEASE, Launcher
from ..launcher.results import NodeResult
from ..launcher.runs import Run, open_run, record_status
from ..launcher.states import EndState
from ..run import end_status, state_of

_NEVER = "its pod never started"
_DIED = "its pod ended without a record: evicted, killed, or out of memory"
_TERMINATED = "its run was terminated while its pod worked"


def reconcile_work(home: Home, run: Run, kfp_state: str = "") -> tuple[Run, bool]:
    """Record how the nodes that are not on exit ended, before exit nodes read it; several pods may call it at once.

    Args:
        home: The run's home.
        run: A run none of whose work pods is left.
        kfp_state: How KFP says that the work ended: "SUCCEEDED", "FAILED", "CANCELED"; "" where it did not say.

    Returns:
        The run with that status, and whether the very same status was recorded before.
    """
    records.sync(home, run.id)
    launcher = Launcher(home, run, resuming=True)
    with _exclusively(home, run):
        results = _results(launcher, [node.id for node in run.pipeline.nodes if not node.on_exit], kfp_state)
        return record_status(home, open_run(home, run.id), end_status(run, results.values()))


def reconcile_upstream(launcher: Launcher, task: str) -> None:
    """Record how everything that a task waits for ended: from the pods' records, or without a pod."""
    if not any(_unknown(launcher, task)):
        return
    records.sync(launcher.home, launcher.run.id)
    with _exclusively(launcher.home, launcher.run):
        _record_pruned(launcher, task)


def _record_pruned(launcher: Launcher, task: str) -> None:
    """Record the tasks that KFP never started, the furthest upstream first.

    The order matters: the launcher decides whether a task is SKIPPED or BLOCKED by the recorded ends of its upstream.
    """
    for name in _unknown(launcher, task):
        _record_pruned(launcher, name)
        if (launcher.records.read(name) is None or _outdated(launcher, name)) and not launcher.flow.may_run(name):
            launcher.launch(name)
            records.write_record(launcher.home, launcher.run, name)


def _unknown(launcher: Launcher, task: str) -> Iterator[str]:
    """The upstream tasks of a task that the store does not know to have ended for good."""
    pipeline = launcher.run.pipeline
    node, index = parse_task(task)
    for up in pipeline.upstream(node):
        for at in launcher.flow.tasks_seen_from(up, index, pipeline.scope(node)):
            execution = launcher.flow.execution(up, at)
            end = EndState.of(execution)
            if end is None or not end.final:
                yield task_name(up, at)


def reconcile_run(home: Home, run: Run, kfp_state: str = "") -> dict[str, NodeResult]:
    """Record how a run ended, once all its pods but this one have; returns the result of every task by name.

    Called by the closing pod, and from outside where KFP ended a run whose closing pod never ran.
    """
    run, _ = reconcile_work(home, run, kfp_state)
    launcher = Launcher(home, run, resuming=True)
    with _exclusively(home, run):
        results = _results(launcher, [node.id for node in run.pipeline.nodes], kfp_state)
    # Even over an end that is recorded: KFP's pages can retry a run that had ended.
    ended = {"state": state_of(results.values()), "finished": datetime.now(UTC).isoformat()}
    records.write_end(home, replace(run, context=home.store.update_context(run.context, ended)))
    return results


def _results(launcher: Launcher, nodes: Iterable[str], kfp_state: str) -> dict[str, NodeResult]:
    """The result of each task; one without an ended execution gets one, in topological order."""
    results: dict[str, NodeResult] = {}
    for node in nodes:
        for name in launcher.flow.task_names(node):
            # KFP says FAILED and no task so far did: then the first without an end is the one whose pod died before
            # it could record anything. Tasks after it were only never started.
            failed = kfp_state == "FAILED" and all(result.state is not EndState.FAILED for result in results.values())
            results[name] = _result(launcher, name, died=failed, terminated=kfp_state == "CANCELED")
    return results


def _result(launcher: Launcher, name: str, *, died: bool, terminated: bool) -> NodeResult:
    home, run = launcher.home, launcher.run
    node, index = parse_task(name)
    execution = launcher.flow.execution(node, index)
    if execution is not None and execution.state == "RUNNING":
        reason = _TERMINATED if terminated else _DIED
        facts = {"reason": reason, "user_error": False}
        end = EndState.CANCELED if terminated else EndState.FAILED
        home.store.finish(execution, end.without_outputs, error=reason, properties=facts)
        home.remove_unpublished(execution)
    elif execution is None or _outdated(launcher, name):
        if not launcher.flow.may_run(name):
            launcher.launch(name)  # runs nothing: it records SKIPPED or BLOCKED with the reason
        else:
            end, reason = (EndState.FAILED, _DIED) if died else (EndState.CANCELED, _NEVER)
            launcher.recovery.after_death(name, -1, end, reason)
        records.write_record(home, run, name)
    recorded = launcher.records.read(name)
    assert recorded is not None
    return recorded


def _outdated(launcher: Launcher, name: str) -> bool:
    """Whether the recorded end of a task is from before its run was resumed and no longer holds.

    No pod can have replaced it, because KFP started none for the task this time.
    """
    execution = launcher.flow.execution(*parse_task(name))
    end = EndState.of(execution)
    if execution is None or end is None or end.final:
        return False
    with contextlib.suppress(DrivetrainError):
        ready = launcher.flow.readiness(launcher.flow.task(name))
        recorded = end, execution.properties.get("reason")
        return end is EndState.BLOCKED if ready.runs else recorded != (ready.verdict.end, ready.reason)
    return False


@contextlib.contextmanager
def _exclusively(home: Home, run: Run) -> Iterator[None]:
    """Hold the run's claim, so that no two pods reconcile it at once."""
    while (claim := home.store.claim(f"kubeflow-settle/{run.id}", owner=Owner.current(), lease=LEASE)) is None:
        time.sleep(0.2)
    try:
        with heartbeat.of(home.store, claim):  # with many tasks it takes longer than a lease
            yield
    finally:
        home.store.release(claim)
