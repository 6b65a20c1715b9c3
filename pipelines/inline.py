"""The inline runner: nodes in this process, one at a time in the main thread, a thread each where branches are ready.

A lone ready node runs in the main thread, so that a debugger and Ctrl-C reach the user's code directly.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

from .launcher import Launcher, NodeResult

_GRACE = 30.0
"""Seconds that branches get to notice that the run was stopped."""


def run_inline(launcher: Launcher, nodes: Iterable[str]) -> dict[str, NodeResult]:
    """Launch the nodes in dependency order; a failed one does not stop independent branches."""
    pipeline = launcher.run.pipeline
    todo = list(nodes)
    waiting = {name: {up for up in pipeline[name].upstream if up in todo} for name in todo}
    results: dict[str, NodeResult] = {}
    running: dict[Future[NodeResult], str] = {}
    pool = ThreadPoolExecutor(max_workers=max(1, len(todo)), thread_name_prefix="drivetrain-node")
    try:
        while waiting or running:
            ready = [] if launcher.cancel.is_set() else [name for name, needs in waiting.items() if not needs]
            if not ready and not running:
                break
            for name in ready:
                del waiting[name]
            if len(ready) == 1 and not running:
                _done(launcher.launch(ready[0]), results, waiting)
                continue
            running |= {pool.submit(launcher.launch, name): name for name in ready}
            finished, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in finished:
                del running[future]
                _done(future.result(), results, waiting)
    except KeyboardInterrupt:
        launcher.cancel.set()
        for future in wait(running, timeout=_GRACE).done:
            _done(future.result(), results, waiting)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    return results


def _done(result: NodeResult, results: dict[str, NodeResult], waiting: dict[str, set[str]]) -> None:
    results[result.node] = result
    for needs in waiting.values():
        needs.discard(result.node)
