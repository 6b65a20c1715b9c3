"""An orchestrator that is stopped or killed, and two at once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from drivetrain.pipelines import Home, PipelineFunction, list_runs, resume, run_pipeline
from drivetrain.pipelines.launcher.observers import NullObserver
from drivetrain.pipelines.runners import children
from drivetrain.tests.living import lives
from drivetrain.tests.pipelines.faulty import waits
from drivetrain.tests.pipelines.processes import GRANDCHILD, HOW, ONE, TWO, Pipe, grandchild, states, workers

pytestmark = pytest.mark.usefixtures("nothing_is_left")


SCRIPT = """
import sys, json; from pathlib import Path; from drivetrain.pipelines import *
from drivetrain.pipelines.runners import children; children.GRACE = float(sys.argv[3])
result = run_pipeline(Home(Path(sys.argv[2])), load_pipeline(Path(sys.argv[1])),
    options=RunOptions(runner="process", parallel=2))
print(json.dumps(result.to_json()))
"""


def orchestrator(home: Home, function: PipelineFunction[..., object], grace: float = 10.0) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", SCRIPT, str(function.project), str(home.root), str(grace)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


def appears(folder: Path, process: subprocess.Popen[str], pattern: str = "begun") -> None:
    deadline = time.monotonic() + 120
    while not any(path.read_text() for path in folder.glob(pattern)):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_run_ends_grandchildren(home: Home, pipe: Pipe, number: int) -> None:
    code = GRANDCHILD.replace("{how}", HOW["session"])
    process = orchestrator(home, pipe(f"Use(Misbehave(Make(), code={code!r}))"), grace=60)
    appears(home.base, process)
    grandchild(home)
    os.killpg(process.pid, number)  # as a terminal does
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    answer = json.loads(out.splitlines()[-1])
    assert {name: node["state"] for name, node in answer["nodes"].items()} == {
        "Make": "COMPLETE", "Misbehave": "CANCELED", "Use": "CANCELED"
    }  # fmt: skip
    assert answer["nodes"]["Misbehave"]["reason"] == "stopped while running"
    assert [run.state for run in list_runs(home)] == ["CANCELED"]
    assert [e.state for e in home.store.executions(component="parts:Misbehave")] == ["CANCELED"]


def test_a_second_signal_kills_what_does_not_look_up(home: Home, pipe: Pipe) -> None:
    code = "(current().base / 'begun').write_text('x')\nwhile True:\n    try:\n        time.sleep(60)\n"
    code += "    except BaseException:\n        (current().base / 'asked').write_text('x')"
    process = orchestrator(home, pipe(f"Use(Misbehave(Make(), code={code!r}))"), grace=300)
    appears(home.base, process)
    process.send_signal(signal.SIGINT)
    appears(home.base, process, "asked")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert json.loads(out.splitlines()[-1])["nodes"]["Misbehave"]["reason"] == "asked to stop, and did not"
    assert [e.state for e in home.store.executions(component="parts:Misbehave")] == ["CANCELED"]


@pytest.mark.parametrize("seconds", [0.0, 0.05, 0.3])
def test_no_stop_is_lost_between_tasks(home: Home, pipe: Pipe, seconds: float) -> None:
    """A worker that missed one would be waited for longer than a test may take."""
    body = "dt.map_(lambda i: Use.options(cache=False)(Make(count=i)), over=list(range(400)))"
    process = orchestrator(home, pipe(body), grace=3600)
    appears(home.root / "logs", process, "*/Make[[]*.log")
    time.sleep(seconds)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    assert json.loads(out.splitlines()[-1])["state"] == "CANCELED"
    assert list_runs(home)[0].state == "CANCELED"


@pytest.mark.slow
def test_a_killed_orchestrator_takes_its_workers_along_and_resume_finishes(home: Home, pipe: Pipe) -> None:
    code = "if not (current().base / 'begun').exists():\n" + "\n".join(
        f"    {line}" for line in GRANDCHILD.replace("{how}", HOW["session"]).splitlines() if line
    )
    process = orchestrator(home, pipe(f"n = Make()\nUse(Misbehave(n, code={code!r}))"))
    appears(home.base, process)
    grandchild(home)
    worker = int((home.base / "begun").read_text())
    process.kill()
    process.communicate(timeout=120)
    waits(lambda: not lives(worker) and not workers())
    assert list_runs(home)[0].state == "INTERRUPTED"
    result = resume(home)
    assert states(result) == {"Make": "COMPLETE", "Misbehave": "COMPLETE", "Use": "COMPLETE"}
    assert len(home.store.executions(component="parts:Make")) == 1
    assert [e.state for e in home.store.executions(component="parts:Misbehave")] == ["COMPLETE", "CANCELED"]


@pytest.mark.slow
def test_two_runs_at_once_do_the_same_work_once(home: Home, pipe: Pipe) -> None:
    code = "(current().base / 'count').open('a').write('x'); (current().base / 'begun').write_text('x'); time.sleep(2)"
    function = pipe(f"Use(Misbehave.options(timeout=240)(Make(), code={code!r}))")
    process = orchestrator(home, function)
    appears(home.base, process)
    here = run_pipeline(home, function, options=TWO)
    out, err = process.communicate(timeout=120)
    there = json.loads(out.splitlines()[-1])
    assert here.state == there["state"] == "COMPLETE", err
    assert (home.base / "count").read_text() == "x"
    assert here.nodes["Misbehave"].state == "CACHED"


@pytest.mark.slow
def test_who_waits_for_the_same_work_is_not_timed(home: Home, pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that waits for another run's does not use its own time up."""
    code = "(current().base / 'begun').write_text('x')\n"
    code += "while not (current().base / 'go').exists(): time.sleep(0.02)"
    process = orchestrator(home, pipe(f"Misbehave(Make(), code={code!r})"))
    appears(home.base, process)
    function = pipe(f"Misbehave.options(timeout=3600)(Make(), code={code!r})")
    looks: list[float] = []

    class Waits(NullObserver):
        def note(self, node: str, text: str) -> None:
            if "which does the same work" in text:
                (home.base / "waits").touch()

    def clock() -> float:
        looks.append(86400 if (home.base / "waits").exists() else 0)
        if looks.count(86400) == 10:  # a day has passed, and was seen
            (home.base / "go").touch()
        return time.monotonic() + looks[-1]

    monkeypatch.setattr(children, "time", SimpleNamespace(monotonic=clock))
    result = run_pipeline(home, function, options=ONE, observer=lambda run: Waits())
    process.communicate(timeout=120)
    assert states(result) == {"Make": "CACHED", "Misbehave": "CACHED"}
