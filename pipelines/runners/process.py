"""The process runner: tasks in child processes that do one after another, as many at once as there are cores.

A child does no further task once one failed in it, was stopped, left something running, or had an environment or an
accelerator of its own. The walk itself is a thread, so that Ctrl-C reaches the main one, which only waits.

The order of a stop: the first Ctrl-C sets the launcher's `cancel`. Nothing begins any more; each supervisor asks its
child to end, which records its task as CANCELED and then ends what the task started. A child that has not ended after
a grace, or at the second Ctrl-C, is killed, and only then is its end recorded for it: as long as it lives it may still
publish, and a record made before would contradict that.
"""

from __future__ import annotations

import heapq
import math
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from queue import Empty, SimpleQueue

from ...errors import DrivetrainError
from ..ir.ir import Node
from ..ir.tasks import parse_task
from ..launcher.launcher import Launcher
from ..launcher.results import NodeResult
from ..launcher.states import EndState
from .children import Supervisor
from .leases import Lease, machine_for
from .pool import Pool
from .schedule import TaskSchedule
from .signals import wait

_POLL = 0.5
"""Seconds between looks at whether another run gave an accelerator back."""
_UNTRIED = "stopped before its next attempt"


def run_process(launcher: Launcher, nodes: Iterable[str]) -> dict[str, NodeResult]:
    """Launch the nodes in child processes; a failed one does not stop independent branches.

    The first Ctrl-C cancels what is at work, and waits for it to say so; the second kills it.
    """
    walk = _Walk(launcher, nodes)
    threading.Thread(target=walk.go, name="drivetrain-process", daemon=True).start()
    wait(walk.over, launcher.cancel, walk.hurry)
    if walk.error is not None:
        raise walk.error
    return walk.results


class _Walk:
    """One walk over a pipeline's nodes."""

    def __init__(self, launcher: Launcher, nodes: Iterable[str]) -> None:
        pipeline = launcher.run.pipeline
        self.launcher = launcher
        self.hurry = threading.Event()
        self.over = threading.Event()
        self.results: dict[str, NodeResult] = {}
        self.error: BaseException | None = None
        self._machine = machine_for(pipeline)
        self._most = launcher.run.options.parallel or max(1, math.ceil(self._machine.cpus))
        self._schedule = TaskSchedule(pipeline, nodes, launcher.flow.count)
        self._pool = Pool(Supervisor(launcher, self.hurry))
        self._supervising = ThreadPoolExecutor(self._most, thread_name_prefix="drivetrain-supervisor")
        self._ended: SimpleQueue[tuple[NodeResult, Lease]] = SimpleQueue()
        self._running: set[str] = set()
        self._retried: dict[str, int] = {}
        self._paused: list[tuple[float, str]] = []  # a heap: when it is due, what
        self._granted: Lease | None = None

    def go(self) -> None:
        """Walk until nothing is left to begin or to wait for; an error of the walk's own is kept as `error`."""
        try:
            self._go()
        finally:
            self.over.set()

    def _go(self) -> None:
        try:
            while self._step():
                pass
        except BaseException as error:
            self.error = error
            self.launcher.cancel.set()
        finally:
            self._supervising.shutdown()
            for _, name in self._paused:
                self.results[name] = NodeResult(name, EndState.CANCELED, reason=_UNTRIED)
            self._pool.close()
            if self.launcher.cancel.is_set() or any(each.state is EndState.FAILED for each in self.results.values()):
                # A stop, or the end of its time, may have come when a claim was taken and no attempt begun.
                with suppress(DrivetrainError, OSError):
                    self.launcher.home.sweep()

    def _step(self) -> bool:
        """Begin what can begin and wait until something ends; False where nothing is left."""
        stopped = self.launcher.cancel.is_set()
        waits = False if stopped else self._begin()
        if not self._running and (stopped or not (waits or self._paused)):
            return False
        due = self._paused[0][0] - time.monotonic() if self._paused else math.inf
        with suppress(Empty):
            # What is due and has not begun waits for something else, as does a stop.
            self._end(*self._ended.get(timeout=min(due, _POLL) if due > 0 else _POLL))
        return True

    def _begin(self) -> bool:
        """Begin what is ready and fits; gives whether a task waits for an accelerator that another run may hold."""
        self._machine.begin()
        while self._paused and self._paused[0][0] <= time.monotonic() and len(self._running) < self._most:
            name = self._paused[0][1]
            lease = self._machine.take(self._node(name))
            if lease is None:
                break
            heapq.heappop(self._paused)
            self._start(name, lease)
        while len(self._running) < self._most and (task := self._schedule.take(self._fits)):
            assert self._granted is not None
            self._retried[task] = 0
            self.launcher.observer.started(task)
            self._start(task, self._granted)
        return self._machine.waits_for_others

    def _fits(self, node: Node) -> bool:
        self._granted = self._machine.take(node)
        return self._granted is not None

    def _start(self, name: str, lease: Lease) -> None:
        self._running.add(name)
        self._supervising.submit(self._supervise, name, lease)

    def _supervise(self, name: str, lease: Lease) -> None:
        try:
            result = self._pool.attempt(name, self._retried[name], lease.environment, lease.locks)
        except BaseException as error:
            result = self.launcher.recovery.refuse(name, error)
        self._ended.put((result, lease))

    def _end(self, result: NodeResult, lease: Lease) -> None:
        self._machine.release(lease)
        self._running.discard(result.node)
        if result.again is not None and not self.launcher.cancel.is_set():
            self._retried[result.node] += 1
            heapq.heappush(self._paused, (time.monotonic() + result.again, result.node))
            return
        if result.again is not None:
            result = NodeResult(result.node, EndState.CANCELED, result.seconds, _UNTRIED)
        self.results[result.node] = result
        self._schedule.end(result.node)
        self.launcher.observer.ended(result)

    def _node(self, name: str) -> Node:
        return self.launcher.run.pipeline[parse_task(name)[0]]
