"""What a task starts ends with it: grandchildren, other sessions, killed workers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from drivetrain.pipelines import Home, list_runs, run_pipeline
from drivetrain.pipelines.launcher import process_state
from drivetrain.pipelines.runners import children
from drivetrain.tests.pipelines import faulty
from drivetrain.tests.pipelines.processes import GRANDCHILD, HOW, ONE, Pipe, states, time_is_up_with

pytestmark = pytest.mark.usefixtures("nothing_is_left")


@pytest.mark.slow
@pytest.mark.parametrize("how", HOW)
def test_a_timeout_ends_grandchildren_of_other_sessions(
    home: Home, pipe: Pipe, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(children, "GRACE", 1.0)
    time_is_up_with(home.base / "grandchild", "Misbehave", monkeypatch)
    code = GRANDCHILD.replace("{how}", HOW[how])
    result = run_pipeline(home, pipe(f"Misbehave.options(timeout=3600)(Make(), code={code!r})"), options=ONE)
    assert result.nodes["Misbehave"].reason == "ran longer than its timeout of 3600 s"
    assert [e.state for e in home.store.executions(component="parts:Misbehave")] == ["FAILED"]
    assert (home.base / "grandchild").exists()  # that it is gone: nothing_is_left


@pytest.mark.parametrize("how", HOW)
def test_a_killed_worker_leaves_no_grandchildren(home: Home, pipe: Pipe, how: str) -> None:
    code = GRANDCHILD.replace("{how}", HOW[how]).replace(
        "time.sleep(60)",
        "while not (current().base / 'grandchild').exists(): time.sleep(0.02)\nos.kill(os.getpid(), 9)",
    )
    result = run_pipeline(home, pipe(f"Misbehave(Make(), code={code!r})"), options=ONE)
    assert result.nodes["Misbehave"].state == "FAILED"
    assert (home.base / "grandchild").exists()


def test_what_a_task_leaves_ends_with_its_worker(home: Home, pipe: Pipe) -> None:
    leave = "import subprocess, threading; subprocess.Popen(['sleep', '600'])\n"
    thread = "import threading; threading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
    state = "from drivetrain.pipelines.launcher import process_state as state; state."
    memory = f"{state}LARGE = state.resident() // 2\n"
    device = f"{state}_DEVICES = ('/dev/zero',); os.open('/dev/zero', 0)\n"
    tell = "(current().base / f'{current().node}.pid').write_text(str(os.getpid()))"
    body = f"""
    a = Misbehave.options(id='A')(Make(), code={leave + tell!r})
    b = Misbehave.options(id='B')(a, code={thread + tell!r})
    c = Misbehave.options(id='C')(b, code={memory + tell!r})
    d = Misbehave.options(id='D')(c, code={device + tell!r})
    e = Misbehave.options(id='E', cache=False)(d, code={tell!r})
    Misbehave.options(id='F', cache=False)(e, code={tell!r})
    """
    result = run_pipeline(home, pipe(body), options=ONE)
    assert result.state == "COMPLETE"
    pids = [(home.base / f"{name}.pid").read_text() for name in "ABCDEF"]
    assert pids[4] == pids[5]
    assert len({*pids[:5]}) == 5


def test_memory_and_devices_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    rss = psutil.Process().memory_info().rss
    assert abs(process_state.resident() - rss) < 0.1 * rss
    monkeypatch.setattr(process_state, "_DEVICES", ("/dev/zero",))
    assert process_state.device() is None
    with Path("/dev/zero").open("rb"):
        assert process_state.device() == "/dev/zero"
    assert process_state.device() is None


def test_a_timeout_and_a_stop_reach_who_never_stops_talking(home: Home, pipe: Pipe) -> None:
    code = "while True: current().progress(1, None, 'steps')"
    body = f"n = Make()\nMisbehave.options(timeout=0.5)(n, code={code!r})\nUse(n)"
    result = run_pipeline(home, pipe(body), options=ONE)
    assert states(result) == {"Make": "COMPLETE", "Misbehave": "FAILED", "Use": "COMPLETE"}
    assert result.nodes["Misbehave"].reason == "ran longer than its timeout of 0.5 s"


KILLED = """
from drivetrain.metadata import MetadataStore
def killed(*given, publish=MetadataStore.publish, os=os, **named):
    {first}
    os.kill(os.getpid(), 9)
MetadataStore.publish = killed
"""


@pytest.mark.parametrize(("first", "state"), [("pass", "FAILED"), ("publish(*given, **named)", "COMPLETE")])
def test_a_worker_killed_while_it_publishes_leaves_all_or_nothing(
    home: Home, pipe: Pipe, first: str, state: str
) -> None:
    result = run_pipeline(home, pipe(f"Misbehave(Make(), code={KILLED.format(first=first)!r})"), options=ONE)
    assert states(result) == {"Make": "COMPLETE", "Misbehave": state}
    assert [e.state for e in home.store.executions(component="parts:Misbehave")] == [state]
    assert len(result.nodes["Misbehave"].outputs) == (state == "COMPLETE")
    assert list((home.root / "artifacts").glob("Misbehave/*/*")) != [] or state == "FAILED"


LATE = {
    "as it commits": """
from drivetrain.metadata import MetadataStore
def late(*given, publish=MetadataStore.publish, time=time, up=current().base / "up", **named):
    published = publish(*given, **named)
    up.touch()
    time.sleep(600)
    return published
MetadataStore.publish = late
""",
    "as it tidies up": """
from drivetrain.pipelines.launcher.attempt import Attempt
Attempt._remove_left = lambda *_, time=time, up=current().base / "up": (up.touch(), time.sleep(600))
""",
    "as it says so": """
from drivetrain.pipelines.launcher.records import TaskRecords
def late(*given, result=TaskRecords._result, time=time, up=current().base / "up", **named):
    TaskRecords._result = result
    up.touch()
    time.sleep(600)
TaskRecords._result = late
""",
}


@pytest.mark.parametrize("when", LATE)
@pytest.mark.parametrize(
    "options",
    ["", *(pytest.param(f"cache=False, {more}", marks=pytest.mark.slow) for more in ("", "retries=1, backoff=0.01"))],
)
def test_time_that_is_up_after_the_commit_fails_nothing(
    home: Home, pipe: Pipe, monkeypatch: pytest.MonkeyPatch, when: str, options: str
) -> None:
    monkeypatch.setattr(children, "GRACE", 5.0)
    time_is_up_with(home.base / "up", "Misbehave", monkeypatch)
    code = f"(current().base / 'count').open('a').write('x')\n{LATE[when]}"
    function = pipe(f"Use(Misbehave.options(timeout=3600, {options})(Make(), code={code!r}))")
    result = run_pipeline(home, function, options=ONE)
    assert states(result) == {"Make": "COMPLETE", "Misbehave": "COMPLETE", "Use": "COMPLETE"}
    assert result.state == list_runs(home)[0].state == "COMPLETE"
    assert [e.state for e in home.store.executions(component="parts:Misbehave")] == ["COMPLETE"]
    assert len(result.nodes["Misbehave"].outputs) == 1
    assert (home.base / "count").read_text() == "x"
    assert faulty.shown(home) == {"": "COMPLETE", **states(result)}


@pytest.mark.slow
def test_a_component_that_swallows_everything_is_killed(
    home: Home, pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(children, "GRACE", 0.5)
    code = "while True:\n    try:\n        time.sleep(60)\n    except BaseException:\n        pass"
    result = run_pipeline(
        home, pipe(f"n = Make()\nMisbehave.options(timeout=1)(n, code={code!r})\nUse(n)"), options=ONE
    )
    assert states(result) == {"Make": "COMPLETE", "Misbehave": "FAILED", "Use": "COMPLETE"}
    assert result.nodes["Misbehave"].reason == "ran longer than its timeout of 1 s"
    (execution,) = home.store.executions(component="parts:Misbehave")
    assert execution.state == "FAILED"
    assert execution.properties["reason"] == "ran longer than its timeout of 1 s"


FORKING = """
    import os
    import drivetrain as dt

    @dt.component
    def Fork(*, then: str) -> int:
        "Forks, and the copy goes on: it returns too, or raises."
        if os.fork() == 0 and then == "raise":
            raise ValueError("of the copy")
        return os.getpid()

    @dt.component
    def Use(number: int) -> int:
        with open("used", "a") as file:
            file.write(f"{os.getpid()}\\n")
        return number

    @dt.pipeline
    def forking(then: str = "return") -> None:
        Use(Fork(then=then))
"""


@pytest.mark.parametrize("then", ["return", "raise"])
@pytest.mark.parametrize("runner", ["inline", "process"])
def test_a_copy_that_a_component_forks_does_not_go_on_as_the_run(
    project: Callable[..., Path], tmp_path: Path, runner: str, then: str
) -> None:
    """It told the runner how the task ended, and took the next one: one run of fifty hung."""
    command = [sys.executable, "-m", "drivetrain", "run", str(project("forking", pipeline=FORKING))]
    options = ["--root", str(tmp_path / "root"), "--runner", runner, "--param", f"then={then}"]
    ran = subprocess.run([*command, *options], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count("forking, run") == 2  # as it begins, and as it ends: of one process
    assert ran.stdout.count("COMPLETE in") == 1
    assert len((tmp_path / "used").read_text().split()) == 1
