"""An orchestrator that is killed midway: another one finishes its run, on any runner, as if nothing had happened."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from drivetrain.metadata.fsck import fsck
from drivetrain.pipelines import Home, list_runs, resume
from drivetrain.pipelines.launcher.processes import MARK
from drivetrain.tests.conformance.case import Case, Step, carry_out, seen
from drivetrain.tests.pipelines import faulty

CASE = Case("tables/penguins:held", (Step(),))
STATES = dict.fromkeys(
    ["ExampleGen", "StatisticsGen", "Hold", "SchemaGen", "ExampleValidator", "Each[0]", "Each[1]"], "COMPLETE"
)
SCRIPT = """
import sys
from pathlib import Path
from drivetrain.pipelines import Home
from drivetrain.tests.conformance.case import carry_out
from drivetrain.tests.conformance.test_killed import CASE
carry_out(CASE.steps[0], CASE, Home(Path(sys.argv[1])), sys.argv[2])
"""


@pytest.mark.slow
@pytest.mark.parametrize("runner", ["inline", "process", pytest.param("beam", marks=pytest.mark.beam)])
def test_a_killed_run_is_finished(runner: str, tmp_path: Path) -> None:
    root = tmp_path / runner / ".drivetrain"
    said, home = tmp_path / "said", Home(root)
    with said.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(root), runner], stderr=file, start_new_session=True,
            env={**os.environ, MARK: faulty.mark(home)},
        )  # fmt: skip
    deadline = time.monotonic() + 120
    while not (root.parent / "begun").exists():
        assert process.poll() is None, said.read_text()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    time.sleep(1)  # so that what runs beside it ends, mostly
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    faulty.waits(lambda: not faulty.left(home))  # its children see that it is gone
    other = Home(tmp_path / "whole" / ".drivetrain")
    try:
        assert [run.state for run in list_runs(home)] == ["INTERRUPTED"]
        for base in (home.base, other.base):
            base.mkdir(exist_ok=True)
            (base / "go").touch()
        result = resume(home)
        assert {name: node.state for name, node in result.nodes.items()} == STATES
        assert result.state == "COMPLETE"
        whole = carry_out(CASE.steps[0], CASE, other, "inline")
        assert seen(result, home) == seen(whole, other)
        ended = [each.state for each in home.store.executions(component="penguins:Hold")]
        assert sorted(ended) in (["ABANDONED", "COMPLETE"], ["CANCELED", "COMPLETE"])
        report = fsck(home.store, home.root)
        assert report.clean, report.to_dict()
    finally:
        home.close()
        other.close()
