"""A simulated run: from the compiled documents and parameters to its results in the store and in KFP's terms."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ....errors import DrivetrainError
from ...launcher.home import Home
from ...launcher.launcher import Launcher
from ...launcher.observers import NullObserver, Observer
from ...launcher.results import NodeResult
from ...launcher.runs import Run, open_run
from ...launcher.states import EndState
from ...run import RunResult, state_of
from .. import reconcile
from ..manifests import RUN
from .dag import DagWalk
from .document import Document
from .pods import Eviction, Kubelet, PodRun

_NEVER = "its pod never started"


@dataclass(frozen=True)
class SimulatedCluster:
    """How the simulated cluster behaves.

    Attributes:
        parallel: How many pods at once; as many as there are cores where None.
        fail_fast: Whether Argo starts no further task of a DAG once one failed, as it does unless told otherwise.
        grace: Seconds that a pod gets to end.
        evictions: Pods that are evicted.
        environment: By our task, or "*" for every pod: variables over those that the simulator sets.
    """

    parallel: int | None = None
    fail_fast: bool = False
    grace: float = 30.0
    evictions: tuple[Eviction, ...] = ()
    environment: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


@dataclass(frozen=True)
class SimulatedKfpRun:
    """A run as KFP would report it.

    Attributes:
        kfp_run: KFP's id of it.
        state: How it ended: SUCCEEDED, FAILED, CANCELED.
        pods: Every pod, in the order in which they ended.
        decided: What no pod was started for, or the driver failed at: the task's path, its state, why.
    """

    kfp_run: str
    state: str
    pods: tuple[PodRun, ...]
    decided: tuple[tuple[str, str, str], ...]

    def to_json(self) -> dict[str, object]:
        """As `kubeflow simulate --json` prints it."""
        return {
            "run": self.kfp_run,
            "state": self.state,
            "pods": [
                {"task": ran.where, "attempt": ran.attempt, "status": ran.status, "seconds": round(ran.seconds, 3),
                 "log": str(ran.log)}
                for ran in self.pods
            ],
            "decided": [{"task": task, "state": state, "reason": why} for task, state, why in self.decided],
        }  # fmt: skip


def simulate(
    home: Home,
    document: Document,
    project: Path,
    parameters: Mapping[str, object],
    run: Run | None = None,
    cluster: SimulatedCluster | None = None,
    observer: Observer | None = None,
) -> SimulatedKfpRun:
    """Execute a compiled pipeline on this machine.

    Args:
        home: Whose store and payloads the pods use.
        document: The compiled pipeline.
        project: The folder that is in the image.
        parameters: Values of the pipeline's parameters; the others have their defaults.
        run: The run that was recorded when it was submitted; where None the first pod makes it, as of a recurring one.
        cluster: How the cluster behaves.
        observer: Called as tasks start and end.

    Raises:
        DrivetrainError: KFP would not start the run.
    """
    cluster = cluster or SimulatedCluster()
    simulation = _Simulation(home, document, project, run, cluster, observer or NullObserver())
    # In a thread of its own: a notebook has a loop in this one.
    return _apart(lambda stop: asyncio.run(simulation.go(dict(parameters), stop)))


@dataclass(frozen=True)
class SimulatedResult(RunResult):
    """The result of a run by our store, with what KFP would report of it."""

    kubeflow: SimulatedKfpRun

    def to_json(self) -> dict[str, object]:
        """As `kubeflow simulate --json` prints it."""
        return {**super().to_json(), "kubeflow": self.kubeflow.to_json()}


def result_of(home: Home, run: str, simulated: SimulatedKfpRun) -> SimulatedResult:
    """The result of a simulated run from the store: every task, in topological order."""
    recorded = open_run(home, run)
    launcher = Launcher(home, recorded)
    results: dict[str, NodeResult] = {}
    for node in recorded.pipeline.ids:
        for name in launcher.flow.task_names(node):
            results[name] = launcher.records.read(name) or NodeResult(name, EndState.CANCELED, reason=_NEVER)
    return SimulatedResult(run, state_of(results.values()), results, simulated)


class _Simulation:
    def __init__(
        self,
        home: Home,
        document: Document,
        project: Path,
        run: Run | None,
        cluster: SimulatedCluster,
        observer: Observer,
    ) -> None:
        self._home, self._document, self._project = home, document, project
        self._run, self._cluster, self._observer = run, cluster, observer
        self._decided: list[tuple[str, str, str]] = []
        self._kfp_run = str(uuid.uuid4())
        self._name = run.id if run else f"kubeflow-{self._kfp_run}"

    async def go(self, parameters: dict[str, object], stop: _StopRequests) -> SimulatedKfpRun:
        cluster, home = self._cluster, self._home
        kubelet = Kubelet(
            document=self._document,
            project=self._project.absolute(),
            run_id=self._kfp_run,
            folder=home.root / "logs" / self._name / ".kubeflow" / self._kfp_run[:8],
            environment={"*": {**self._environment(), **cluster.environment.get("*", {})}}
            | {task: values for task, values in cluster.environment.items() if task != "*"},
            limit=asyncio.Semaphore(cluster.parallel or os.cpu_count() or 1),
            grace=cluster.grace,
            evictions=list(cluster.evictions),
            started=lambda where, task: self._observer.started(task) if task else None,
            ended=self._ended,
        )
        walk = DagWalk(
            self._document, kubelet, self._kfp_run, cluster.fail_fast,
            lambda *decision: self._decided.append(decision), kubelet.stopping.is_set,
        )  # fmt: skip
        watching = asyncio.create_task(_watch(stop, kubelet))
        inputs: dict[str, Any] = {**parameters, RUN: self._run.id if self._run else ""}
        try:
            state = await walk.root(inputs)
        finally:
            watching.cancel()
        if kubelet.stopping.is_set():
            state = "CANCELED"  # Argo starts no exit hooks of a run that is terminated
            with suppress(DrivetrainError):  # no pod had created the run yet, or the store is broken
                reconcile.reconcile_run(home, open_run(home, self._name), state)
        return SimulatedKfpRun(self._kfp_run, state, tuple(kubelet.pods), tuple(self._decided))

    def _environment(self) -> dict[str, str]:
        home = self._home
        variables = {"DRIVETRAIN_ROOT": str(home.root), "DRIVETRAIN_KUBEFLOW_RUN": self._kfp_run}
        variables["DRIVETRAIN_STORE"] = home.url or ""
        variables["DRIVETRAIN_ARTIFACTS"] = home.payloads.url or ""
        return variables

    def _ended(self, ran: PodRun) -> None:
        if not ran.task:
            return
        try:
            launcher = Launcher(self._home, open_run(self._home, self._name))
            result = launcher.records.read(ran.task)
        except DrivetrainError:  # the store is broken
            result = None
        if result is None:
            result = NodeResult(ran.task, EndState.FAILED if ran.status else EndState.COMPLETE, ran.seconds, ran.reason)
        self._observer.ended(result)


async def _watch(stop: _StopRequests, kubelet: Kubelet) -> None:
    for often, event in ((1, kubelet.stopping), (2, kubelet.killing)):
        while stop.requests < often:
            await asyncio.sleep(0.1)
        event.set()


class _StopRequests:
    """Counts the requests to end the run: the first terminates it, the second kills its pods."""

    def __init__(self) -> None:
        self.requests = 0


def _apart(work: Callable[[_StopRequests], SimulatedKfpRun]) -> SimulatedKfpRun:
    """Run `work` in a thread; Ctrl-C or SIGTERM terminates the run, a second one kills its pods at once.

    A thread, because a notebook has an event loop in this one already. Signals reach the main thread only, so it waits
    in short steps, and counts them for the loop in the other.
    """
    stop, over = _StopRequests(), threading.Event()
    results: list[SimulatedKfpRun] = []
    failed: list[BaseException] = []

    def go() -> None:
        try:
            results.append(work(stop))
        except BaseException as error:
            failed.append(error)
        finally:
            over.set()

    thread = threading.Thread(target=go, name="drivetrain-kubeflow", daemon=True)
    with _terminable(stop):
        thread.start()
        while not over.wait(0.2):
            pass
    for error in failed:
        while isinstance(error, BaseExceptionGroup):  # of tasks that ran at once
            error = error.exceptions[0]
        raise error
    return results[0]


@contextmanager
def _terminable(stop: _StopRequests) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: object) -> None:
        stop.requests += 1

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
