"""The inline runner: nodes in this process, one at a time in the main thread, a thread each where branches are ready.

A lone ready node runs in the main thread, so that a debugger and Ctrl-C reach the user's code directly.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from queue import Empty, SimpleQueue
from threading import Thread

from .launcher import Launcher
from .outcome import NodeResult

_GRACE = 30.0
"""Seconds that branches get to notice that the run was stopped; a second Ctrl-C cuts them short."""


def run_inline(launcher: Launcher, nodes: Iterable[str]) -> dict[str, NodeResult]:
    """Launch the nodes in dependency order; a failed one does not stop independent branches."""
    todo = list(nodes)
    waiting = {name: {up for up in launcher.run.pipeline[name].upstream if up in todo} for name in todo}
    results: dict[str, NodeResult] = {}
    ended: SimpleQueue[NodeResult] = SimpleQueue()
    running: set[str] = set()

    def begin(name: str) -> None:
        running.add(name)
        # A daemon: a component that never looks up must not keep a stopped process alive.
        Thread(target=lambda: ended.put(launcher.launch(name)), name=f"drivetrain-node-{name}", daemon=True).start()

    def done(result: NodeResult) -> None:
        results[result.node] = result
        running.discard(result.node)
        for needs in waiting.values():
            needs.discard(result.node)

    try:
        while waiting or running:
            ready = [] if launcher.cancel.is_set() else [name for name, needs in waiting.items() if not needs]
            for name in ready:
                del waiting[name]
            if len(ready) == 1 and not running:
                done(launcher.launch(ready[0]))
                continue
            for name in ready:
                begin(name)
            if not running:
                break
            done(ended.get())
    except KeyboardInterrupt:
        launcher.cancel.set()
        deadline = time.monotonic() + _GRACE
        try:
            while running:
                done(ended.get(timeout=max(0.0, deadline - time.monotonic())))
        except (KeyboardInterrupt, Empty):
            for name in running:
                results[name] = NodeResult(name, "CANCELED", reason="told to stop, and did not")
    return results
