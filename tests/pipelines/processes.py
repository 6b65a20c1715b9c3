"""What tests of the process runner look at: states, logs, and the processes that a runner started."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from drivetrain.pipelines import Home, PipelineFunction, RunOptions, RunResult
from drivetrain.pipelines.launcher.logs import Logs
from drivetrain.pipelines.launcher.observers import Observer
from drivetrain.pipelines.launcher.processes import MARK
from drivetrain.pipelines.launcher.results import NodeResult
from drivetrain.pipelines.runners import children

Pipe = Callable[..., PipelineFunction[..., object]]
ONE = RunOptions(runner="process", parallel=1)
TWO = RunOptions(runner="process", parallel=2)


def states(result: RunResult) -> dict[str, str]:
    return {name: node.state for name, node in result.nodes.items()}


def log(home: Home, result: RunResult, task: str) -> str:
    return Logs(home.root, result.run).path(task).read_text()


def workers() -> list[psutil.Process]:
    """Every process that a runner of this test marked."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE and os.environ[MARK] in process.environ().get(MARK, ""):
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return [process for process in found if process.pid != os.getpid()]


GRANDCHILD = """
import subprocess
script = "trap '' TERM INT HUP; echo $$ > {base}/grandchild; while true; do sleep 0.1; done"
script = script.replace("{base}", str(current().base))
{how}
(current().base / 'begun').write_text(str(os.getpid()))
time.sleep(60)
"""
HOW = {
    "session": "subprocess.Popen(['setsid', 'bash', '-c', script])",
    "daemon": "subprocess.run(['bash', '-c', 'setsid bash -c \"$0\" >/dev/null 2>&1 & disown', script])",
    "fork": "if os.fork() == 0:\n    os.setsid()\n    os.execvp('bash', ['bash', '-c', script])",
}


def grandchild(home: Home) -> psutil.Process:
    path = home.base / "grandchild"
    deadline = time.monotonic() + 120
    while not (path.exists() and path.read_text().strip()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return psutil.Process(int(path.read_text()))


def time_is_up_with(path: Path, task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a day pass for the runner as soon as there is this file: after the task has begun, however long it takes."""
    works: list[bool] = []
    relay = children.relay

    def hear(observer: Observer, event: Mapping[str, Any]) -> NodeResult | None:
        works.extend([True] if event["event"] == "working" and event["node"] == task else [])
        return relay(observer, event)

    def clock() -> float:
        return time.monotonic() + (86400 if works and path.exists() else 0)

    monkeypatch.setattr(children, "relay", hear)
    monkeypatch.setattr(children, "time", SimpleNamespace(monotonic=clock))
