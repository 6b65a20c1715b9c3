"""The beam runner: the DAG is itself a Beam pipeline whose elements are nodes, each launched by the entrypoint.

A failed node is a state, not an exception, so that independent branches go on; a runner's retry of an element is
fenced by the claim, and finds what the first attempt published.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ...errors import missing_extra
from ..launching.launcher import Launcher
from ..launching.outcome import NodeResult, Observer, Silent
from ..node import RECORD

IN_PROCESS = "apache_beam.runners.portability.fn_api_runner.FnApiRunner"
# Elements carry names only; where driver and worker share a process, events find their observer here.
_OBSERVERS: dict[str, Observer] = {}
_CHILDREN: dict[subprocess.Popen[str], str] = {}
_STOPPED: set[str] = set()
_LOCK = threading.Lock()
_WORDLESS = "its process ended before it could say how"
_GRACE = 30.0
"""Seconds that a child gets to record that it was cancelled."""


def run_beam(launcher: Launcher, nodes: Iterable[str]) -> dict[str, NodeResult]:
    """Launch the nodes on a Beam runner (the in-process FnApiRunner unless the runner's options name another)."""
    quiet = logging.root.manager.disable
    try:
        logging.disable(logging.WARNING)  # while imported, Beam warns of cloud libraries that nobody asked for
        import apache_beam as beam
        from apache_beam.options.pipeline_options import PipelineOptions
    except ImportError:
        raise missing_extra("apache-beam", "beam") from None
    finally:
        logging.disable(quiet)
    logging.getLogger("apache_beam").setLevel(logging.ERROR)
    run, todo = launcher.run, list(nodes)
    flags = list(run.options.runner_options)
    if not any(flag.startswith("--runner") for flag in flags):
        flags.append(f"--runner={IN_PROCESS}")
    command = [
        # -P: a file of the working directory must not stand in for a module of Python's.
        *(sys.executable, "-P", "-m", "drivetrain.pipelines.node", "--root", str(launcher.home.root)),
        *(["--store", launcher.home.url] if launcher.home.url else []),
        *("--run", run.id, "--ir", run.pipeline.digest),
    ]

    def walk() -> None:
        with beam.Pipeline(options=PipelineOptions(flags)) as graph:
            ended: dict[str, Any] = {}  # Any: Beam's PCollections have no types
            for name in todo:
                needs = [ended[up] for up in run.pipeline[name].upstream if up in ended]
                # A side input makes the launch wait until every upstream node's element has been worked on.
                upstream = {}
                if needs:
                    upstream["upstream"] = beam.pvalue.AsList(needs | f"{name}/upstream" >> beam.Flatten())
                ended[name] = (
                    graph
                    | f"{name}/id" >> beam.Create([name])
                    | f"{name}/launch" >> beam.Map(launch_child, run.id, command, **upstream)
                )

    _OBSERVERS[run.id] = launcher.observer
    _STOPPED.discard(run.id)  # it may have been stopped in this process before, and is resumed now
    # Beam wraps what is raised inside it, so it walks in a thread, and Ctrl-C reaches the main one, which only waits.
    with ThreadPoolExecutor(1, thread_name_prefix="drivetrain-beam") as pool:
        walking = pool.submit(walk)
        try:
            walking.result()
        except KeyboardInterrupt:
            launcher.cancel.set()
            _end_children(run.id)
            walking.result()
        finally:
            _end_children(run.id)
            _OBSERVERS.pop(run.id, None)
    launcher.home.sweep()  # a child may have been killed
    found = {name: launcher.recorded(name) for name in todo}
    if not launcher.cancel.is_set():
        found = {name: result or NodeResult(name, "FAILED", reason=_WORDLESS) for name, result in found.items()}
    return {name: result for name, result in found.items() if result is not None}


def launch_child(node: str, run: str, command: list[str], upstream: Iterable[str] = ()) -> str:
    """Launch one node in a child process and wait; gives the node's name, whatever its state."""
    observer = _OBSERVERS.get(run, Silent())
    ended = False
    with _LOCK:
        if run in _STOPPED:
            return node
        child = subprocess.Popen(  # noqa: S603
            [*command, "--node", node],
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="replace",
            # It finds what this process finds.
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        )
        _CHILDREN[child] = run
    with child:
        try:
            for line in child.stdout or ():
                printed, separator, event = line.partition(RECORD)
                sys.stdout.write(printed)  # the user's own
                try:
                    ended |= bool(separator) and _relay(observer, json.loads(event))
                except (ValueError, TypeError, KeyError):  # a print ran into it
                    sys.stdout.write(event)
        finally:
            child.wait()
            with _LOCK:
                _CHILDREN.pop(child, None)
    if not ended and run not in _STOPPED:
        observer.ended(NodeResult(node, "FAILED", reason=f"{_WORDLESS} (status {child.returncode})"))
    return node


def _relay(observer: Observer, event: dict[str, Any]) -> bool:
    kind: str = event["event"]
    if kind == "started":
        observer.started(event["node"])
    elif kind == "progress":
        observer.progress(event["node"], event["done"], event["total"], event["unit"])
    elif kind == "note":
        observer.note(event["node"], event["text"])
    elif kind == "ended":
        flags = {"vetoed": event["vetoed"], "user_error": event["user_error"]}
        observer.ended(NodeResult(event["node"], event["state"], event["seconds"], event["reason"], **flags))
    else:
        raise KeyError(kind)
    return kind == "ended"


def _end_children(run: str) -> None:
    """Start no more nodes of a run, and end those at work as Ctrl-C does; each records that it was cancelled."""
    with _LOCK:
        _STOPPED.add(run)
        children = [child for child, owner in _CHILDREN.items() if owner == run]
    for child in children:
        child.terminate()
    deadline = time.monotonic() + _GRACE
    for child in children:
        try:
            child.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            child.kill()
