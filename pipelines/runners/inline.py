"""The inline runner: nodes in this process, one at a time in the main thread, in threads where branches are ready.

A lone ready node runs in the main thread, so that a debugger and Ctrl-C reach the user's code directly.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable
from contextvars import copy_context
from queue import Empty, SimpleQueue
from threading import Thread, current_thread

from ..launcher.launcher import Launcher
from ..launcher.results import NodeResult
from ..launcher.states import EndState
from .schedule import TaskSchedule
from .signals import take

_GRACE = 30.0
"""Seconds that branches get to notice that the run was stopped; a second Ctrl-C cuts them short."""


def run_inline(launcher: Launcher, nodes: Iterable[str]) -> dict[str, NodeResult]:
    """Launch the nodes in dependency order; a failed one does not stop independent branches."""
    schedule = TaskSchedule(launcher.run.pipeline, nodes, launcher.flow.count)
    most = launcher.run.options.parallel or max(4, os.cpu_count() or 1)
    results: dict[str, NodeResult] = {}
    threads: list[Thread] = []  # a thread has a connection to the store, so each does one node after another
    branches: set[str] = set()
    tasks: SimpleQueue[str | None] = SimpleQueue()
    # By name, beside the queue of names: a Ctrl-C may come when a name has left the queue and is not handled yet.
    finished: dict[str, NodeResult] = {}
    ended: SimpleQueue[str] = SimpleQueue()

    def work() -> None:
        thread = current_thread()
        while (name := tasks.get()) is not None:
            thread.name = f"drivetrain-node-{name}"
            finished[name] = copy_context().run(launcher.launch, name)
            thread.name = "drivetrain-idle"
            ended.put(name)

    def begin(name: str) -> None:
        branches.add(name)
        if len(threads) < len(branches):
            # A daemon: a component that never looks up must not keep a stopped process alive.
            threads.append(Thread(target=work, daemon=True))
            threads[-1].start()
        tasks.put(name)

    def done(result: NodeResult) -> None:
        results[result.node] = result
        schedule.end(result.node)
        branches.discard(result.node)

    streams, recursion = (sys.stdin, sys.stdout, sys.stderr), sys.getrecursionlimit()
    try:
        while True:
            ready = []
            while not launcher.cancel.is_set() and len(schedule.running) < most and (name := schedule.take()):
                ready.append(name)
            if len(ready) == 1 and len(schedule.running) == 1:
                done(launcher.launch(ready[0]))
                continue
            for name in ready:
                begin(name)
            if not schedule.running:
                return results
            done(finished[take(ended, launcher.cancel)])
    except KeyboardInterrupt:
        deadline = time.monotonic() + _GRACE
        try:
            launcher.cancel.set()
            while branches - finished.keys():
                ended.get(timeout=max(0.0, deadline - time.monotonic()))
        except (KeyboardInterrupt, Empty):
            pass
        for name in branches:
            results[name] = finished.get(name) or NodeResult(
                name, EndState.CANCELED, reason="asked to stop, and did not"
            )
    finally:
        for _ in threads:
            tasks.put(None)
        # A component may have taken these away, and what follows prints.
        sys.setrecursionlimit(recursion)
        sys.stdin, sys.stdout, sys.stderr = streams
    return results
