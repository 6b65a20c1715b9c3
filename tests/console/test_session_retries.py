"""What is told of a task between two attempts, while another process runs it: that it waits, as long as it does."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from drivetrain.console.session import view
from drivetrain.pipelines import Home, list_runs, open_run, resume
from drivetrain.tests.pipelines import faulty

Command = Callable[..., Result]
Read = Callable[[Result], dict[str, Any]]

# One is tried again in an hour, one for good not at all, and one is at work meanwhile.
PAUSE = """
n = Make(count=count)
Flaky.options(retries=2, backoff=3600, jitter=0)(n)
Flaky.options(id="Once", retries=2, retry_on=["OSError"])(Make.options(id="Other")(count=9))
Waits(n, name="begun")
"""
DIES = """if flag("tried-" + current().node):
        os._exit(3) if {dies} else None
        raise ValueError("the first time")"""


@pytest.mark.parametrize("runner", ["inline", pytest.param("process", marks=pytest.mark.slow)])
def test_a_task_between_two_attempts_waits(
    tmp_path: Path, drivetrain: Command, last_json: Read, monkeypatch: pytest.MonkeyPatch, runner: str
) -> None:
    project = faulty.write(tmp_path, faulty.body(PAUSE)).project
    parts = (project / "parts.py").read_text()
    dies = DIES.format(dies='current().node == "Flaky"' if runner == "process" else False)
    (project / "parts.py").write_text(
        parts.replace('if flag("tried"):\n        raise ValueError("the first time")', dies)
    )
    home = Home(tmp_path / "home" / ".drivetrain")
    monkeypatch.setenv("DRIVETRAIN_ROOT", str(home.root))
    monkeypatch.chdir(home.base)
    process = faulty.start(home, project, runner)
    # Flaky is WAITING before its first attempt as well, so what is waited for is what it waits for.
    faulty.waits(lambda: list_runs(home) and "for retry" in view(home, open_run(home, None))["Flaky"].reason)
    faulty.waits(
        lambda: {"Flaky": "WAITING", "Once": "FAILED", "Waits": "RUNNING"}.items() <= faulty.shown(home).items()
    )
    run_view = view(home, open_run(home, None))
    assert run_view.state == "RUNNING"
    assert run_view["Waits"].seconds > 0
    why = "its process ended with status 3" if runner == "process" else "ValueError: the first time"
    told, _, left = run_view["Flaky"].reason.partition(" s for retry 1 of 2: ")
    assert 3500 < int(told.removeprefix("waits ")) <= 3600
    assert why in left
    assert run_view["Flaky"].error is None
    assert run_view["Once"].error is not None
    # The record is of the attempt, which failed.
    assert {e.state for e in home.store.executions() if e.properties["node"] == "Flaky"} == {"FAILED"}
    listed = {one["node"]: one["state"] for one in last_json(drivetrain("logs", "--json"))["logs"]}
    assert {name: listed[name] for name in ("Flaky", "Once")} == {"Flaky": "WAITING", "Once": "FAILED"}
    follow = [sys.executable, "-m", "drivetrain", "logs", run_view.id, "Flaky", "-f"]
    with subprocess.Popen(follow, stdout=subprocess.PIPE, text=True) as following:
        assert following.stdout is not None
        while "retry 1 of 2 in 3.6e+03 s" not in following.stdout.readline():
            assert following.poll() is None
        assert following.poll() is None  # it may print more
        faulty.kill(process)
        following.communicate(timeout=120)  # nobody is there to try it again
    after = faulty.shown(home)
    assert (after[""], after["Flaky"]) == ("INTERRUPTED", "FAILED")
    (home.base / "go").touch()
    assert resume(home).state == "COMPLETE"
    assert faulty.shown(home)["Flaky"] == "COMPLETE"
    home.close()
