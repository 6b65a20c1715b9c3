"""The end of a run whose tasks had pods: what no pod was started for is recorded, and how all of it ended."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime

from ...errors import DrivetrainError
from ...metadata import Owner
from ..ir.tasks import parse_task, task_name
from ..launcher.heartbeat import heartbeat
from ..launcher.home import Home, Run, open_run, record_status
from ..launcher.launcher import LEASE, Launcher
from ..launcher.results import NodeResult
from ..launcher.states import EndState
from ..run import state_of
from . import records

_NEVER = "its pod never started"
_DIED = "its pod ended without a word: evicted, killed, or out of memory"
_TERMINATED = "its run was terminated while its pod worked"


def reconcile_work(home: Home, run: Run, kfp_state: str = "") -> tuple[Run, bool]:
    """Record how what is not on exit ended, before what is on exit is told of it; once, however many pods ask.

    Args:
        home: The run's home.
        run: The run, of whose work no pod is left.
        kfp_state: How KFP says that the work ended: "SUCCEEDED", "FAILED", "CANCELED"; "" where it did not say.

    Returns:
        The run with that status, and whether it had been told the very same before.
    """
    records.sync(home, run.id)
    launcher = Launcher(home, run, resuming=True)
    with _exclusively(home, run):
        results = _results(launcher, [node.id for node in run.pipeline.nodes if not node.on_exit], kfp_state)
        failed = [result for result in results.values() if result.state is EndState.FAILED]
        status = {
            "run": run.id,
            "state": state_of(results.values()),
            "failed": [result.node for result in failed],
            "reason": failed[0].reason if failed else "",
        }
        return record_status(home, open_run(home, run.id), status)


def reconcile_upstream(launcher: Launcher, task: str) -> None:
    """See that the store knows how all that a task waits for ended: what pods recorded, and what had no pod."""
    if not any(_unknown(launcher, task)):
        return
    records.sync(launcher.home, launcher.run.id)
    with _exclusively(launcher.home, launcher.run):
        _record_pruned(launcher, task)


def _record_pruned(launcher: Launcher, task: str) -> None:
    """Record what was pruned, the furthest first: whether it is skipped or blocked is the launcher's to say."""
    for name in _unknown(launcher, task):
        _record_pruned(launcher, name)
        if (launcher.records.read(name) is None or _outdated(launcher, name)) and not launcher.flow.may_run(name):
            launcher.launch(name)
            records.write_record(launcher.home, launcher.run, name)


def _unknown(launcher: Launcher, task: str) -> Iterator[str]:
    """The tasks that one waits for and of which the store does not know that they ended well."""
    pipeline = launcher.run.pipeline
    node, index = parse_task(task)
    for up in pipeline.upstream(node):
        for at in launcher.flow.tasks_seen_from(up, index, pipeline.scope(node)):
            execution = launcher.flow.execution(up, at)
            end = EndState.of(execution)
            if end is None or not end.final:
                yield task_name(up, at)


def reconcile_run(home: Home, run: Run, kfp_state: str = "") -> dict[str, NodeResult]:
    """Record how a run ended, all its pods but this one having done so; gives the result of every task."""
    run, _ = reconcile_work(home, run, kfp_state)
    launcher = Launcher(home, run, resuming=True)
    with _exclusively(home, run):
        results = _results(launcher, [node.id for node in run.pipeline.nodes], kfp_state)
    # Whatever is recorded: KFP may have had a run that had ended done again.
    ended = {"state": state_of(results.values()), "finished": datetime.now(UTC).isoformat()}
    records.write_end(home, replace(run, context=home.store.update_context(run.context, ended)))
    return results


def _results(launcher: Launcher, nodes: Iterable[str], kfp_state: str) -> dict[str, NodeResult]:
    """How each task ended; what has no execution that ended gets one."""
    results: dict[str, NodeResult] = {}
    for node in nodes:
        for name in launcher.flow.task_names(node):
            # KFP failed, and nothing that is known of did: it is what died before it could say a word.
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
            launcher.launch(name)  # which records why
        else:
            end, reason = (EndState.FAILED, _DIED) if died else (EndState.CANCELED, _NEVER)
            launcher.recovery.after_death(name, -1, end, reason)
        records.write_record(home, run, name)
    recorded = launcher.records.read(name)
    assert recorded is not None
    return recorded


def _outdated(launcher: Launcher, name: str) -> bool:
    """Whether what is recorded of a task is how it ended before its run was resumed, and is not so now.

    KFP started no pod for it that could say so.
    """
    execution = launcher.flow.execution(*parse_task(name))
    end = EndState.of(execution)
    if execution is None or end is None or end.final:
        return False
    with contextlib.suppress(DrivetrainError):
        ready = launcher.flow.readiness(launcher.flow.task(name))
        known = end, execution.properties.get("reason")
        return end is EndState.BLOCKED if ready.runs else known != (ready.verdict.end, ready.reason)
    return False


@contextlib.contextmanager
def _exclusively(home: Home, run: Run) -> Iterator[None]:
    """No two pods of a run settle it at once."""
    while (claim := home.store.claim(f"kubeflow-settle/{run.id}", owner=Owner.current(), lease=LEASE)) is None:
        time.sleep(0.2)
    try:
        with heartbeat.of(home.store, claim):  # of many tasks it takes longer than a lease
            yield
    finally:
        home.store.release(claim)
