"""The process runner: whatever happens to a process fails its own task alone, and nothing of it outlives the run."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from drivetrain.errors import DrivetrainError
from drivetrain.metadata import fsck
from drivetrain.pipelines import Home, PipelineFunction, RunOptions, RunResult, list_runs, resume, run_pipeline
from drivetrain.pipelines.form.ir import Node, NodeOptions, Pipeline
from drivetrain.pipelines.launching import tidy
from drivetrain.pipelines.launching.logs import Logs
from drivetrain.pipelines.launching.outcome import NodeResult, Silent
from drivetrain.pipelines.launching.processes import MARK
from drivetrain.pipelines.run import RUNNERS
from drivetrain.pipelines.runners import children
from drivetrain.pipelines.runners.keeps import refuse_what_is_not_kept

PAGE = (Path(__file__).parents[2] / "docs" / "runners.md").read_text("utf-8")
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


@pytest.fixture(autouse=True)
def nothing_is_left(home: Home, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """After each test: a clean store, and no process."""
    monkeypatch.setenv(MARK, f"test-{tmp_path}")
    yield
    deadline = time.monotonic() + 5
    while workers() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not workers()
    report = fsck(home.store, home.root)
    assert report.clean, report.to_dict()
    assert not list((home.root / "work").rglob("content"))


def test_workers_are_used_again_and_tasks_run_at_once(home: Home, pipe: Pipe) -> None:
    code = "(current().base / f'{current().node}.pid').write_text(f'{os.getpid()} {time.time()}'); time.sleep(0.3)"
    body = f"""
    def one(i):
        return Misbehave.options(cache=False)(Make(count=i), code={code!r})
    dt.map_(one, over=[1, 2, 3, 4, 5, 6])
    """
    result = run_pipeline(home, pipe(body), options=TWO)
    assert result.state == "COMPLETE", [node.reason for node in result.nodes.values()]
    pids = [path.read_text().split()[0] for path in home.base.glob("Misbehave*.pid")]
    assert len(pids) == 6
    assert len(set(pids)) == 2
    assert str(os.getpid()) not in pids
    begun = {e.properties["node"]: e for e in home.store.executions(component="parts:Misbehave")}
    spans = sorted((e.started_at, e.finished_at) for e in begun.values())
    assert any(begin and end and begin < end for (_, end), (begin, _) in itertools.pairwise(spans))


def test_outputs_are_those_of_the_inline_runner(home: Home, pipe: Pipe, tmp_path: Path) -> None:
    body = "n = Make(count=5)\nCheck(n, limit=3)\nUse(n)\nMisbehave(Make.options(id='M2')(count=2), code='1/0')"
    function = pipe(body)
    here = run_pipeline(home, function, options=TWO)
    other = Home(tmp_path / "inline" / ".drivetrain")
    there = run_pipeline(other, function)
    other.close()
    assert states(here) == states(there)
    assert {name: node.reason for name, node in here.nodes.items()} == {
        name: node.reason for name, node in there.nodes.items()
    }
    assert [r.fingerprint for n in here.nodes.values() for rs in n.outputs.values() for r in rs] == [
        r.fingerprint for n in there.nodes.values() for rs in n.outputs.values() for r in rs
    ]
    assert here.nodes["Check"].vetoed


DEATHS = [
    ("os.kill(os.getpid(), 9)", "ended by SIGKILL (killed, or the machine ran out of memory)"),
    ("os.kill(os.getpid(), signal.SIGSEGV)", "ended by SIGSEGV (a crash in native code)"),
    ("os._exit(3)", "ended with status 3 before it could say how"),
    ("os._exit(0)", "ended with status 0 before it could say how"),
]


@pytest.mark.parametrize(("code", "says"), DEATHS)
def test_a_worker_that_dies_fails_its_own_task(home: Home, pipe: Pipe, code: str, says: str) -> None:
    body = f"n = Make()\nm = Misbehave(n, code={'import signal; ' + code!r})\nUse(n)\nAdd(n, m)"
    result = run_pipeline(home, pipe(body), options=ONE)
    assert states(result) == {"Make": "COMPLETE", "Misbehave": "FAILED", "Use": "COMPLETE", "Add": "BLOCKED"}
    assert says in result.nodes["Misbehave"].reason
    (execution,) = home.store.executions(component="parts:Misbehave")
    assert execution.state == "FAILED"
    assert says in str(execution.properties["reason"])
    assert says in log(home, result, "Misbehave")
    assert list_runs(home)[0].state == "FAILED"
    assert home.store.claims() == [] or all(claim.owner.liveness() != "dead" for claim in home.store.claims())


ONCE = "flag = current().base / 'flag'\nif not flag.exists():\n    flag.touch()\n    "


@pytest.mark.parametrize("how", ["os.kill(os.getpid(), 9)", "raise ValueError('once')", "time.sleep(60)"])
def test_what_dies_fails_or_lasts_is_tried_again(home: Home, pipe: Pipe, how: str) -> None:
    notes: list[str] = []

    class Notes(Silent):
        def note(self, node: str, text: str) -> None:
            notes.append(f"{node}: {text}")

        def ended(self, result: NodeResult) -> None:
            notes.append(f"{result.node} {result.state}")

    body = f"Misbehave.options(retries=2, backoff=0.01, timeout=1.5)(Make(), code={ONCE + how!r})"
    result = run_pipeline(home, pipe(body), options=ONE, observer=lambda run: Notes())
    assert result.state == "COMPLETE"
    ended = [execution.state for execution in home.store.executions(component="parts:Misbehave")]
    assert ended == ["COMPLETE", "FAILED"]
    newest = home.store.executions(component="parts:Misbehave")[0]
    assert str(newest.properties["reason"]).endswith("; retry 1 of 2")
    assert sum("retry 1 of 2 in 0.01 s" in note for note in notes) == 1
    assert notes.count("Misbehave COMPLETE") == 1
    assert "Misbehave FAILED" not in notes
    assert log(home, result, "Misbehave").count("=== Misbehave: attempt") == 2


def test_retries_come_to_an_end_and_keep_their_predicate(home: Home, pipe: Pipe) -> None:
    body = """
    n = Make()
    Misbehave.options(retries=2, backoff=0.01)(n, code='os._exit(1)')
    Misbehave.options(id='Not', retries=2, backoff=0.01, retry_on=['OSError'])(n, code='raise ValueError(1)')
    Misbehave.options(id='Late', retries=1, backoff=0.01, timeout=0.5, retry_on=['TimeoutError'])(
        n, code='time.sleep(30)')
    Misbehave.options(id='Asks', retries=1, backoff=0.01, retry_on=['rules:never'])(n, code='os._exit(2)')
    Misbehave.options(id='Broken', retries=1, backoff=0.01, retry_on=['rules:absent'])(n, code='os._exit(4)')
    """
    result = run_pipeline(home, pipe(body, rules="def never(error):\n    return False\n"), options=TWO)
    # Where two die at once, the sweep after one may find the other first: what it abandons has its own record besides.
    ended = [e for e in home.store.executions(component="parts:Misbehave") if e.state != "ABANDONED"]
    tries = [str(e.properties["node"]) for e in ended]
    counted = {name: tries.count(name) for name in result.nodes if name != "Make"}
    assert counted == {"Misbehave": 3, "Not": 1, "Late": 2, "Asks": 1, "Broken": 1}
    assert result.nodes["Late"].reason == "ran longer than its timeout of 0.5 s"
    assert "whether to try again" in result.nodes["Broken"].reason
    # What it hung at is in its log.
    assert "time.sleep(30)" in log(home, result, "Late") or "<string>" in log(home, result, "Late")


def test_a_slot_is_free_while_a_retry_waits(home: Home, pipe: Pipe) -> None:
    body = f"""
    n = Make()
    Misbehave.options(retries=1, backoff=3)(n, code={ONCE + "raise ValueError('once')"!r})
    Use(n)
    """
    result = run_pipeline(home, pipe(body), options=ONE)
    assert result.state == "COMPLETE"
    by_node = {e.properties["node"]: e for e in home.store.executions() if e.state == "COMPLETE"}
    assert by_node["Use"].id < by_node["Misbehave"].id


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
    deadline = time.monotonic() + 30
    while not (path.exists() and path.read_text().strip()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return psutil.Process(int(path.read_text()))


@pytest.mark.parametrize("how", HOW)
def test_a_timeout_ends_grandchildren_of_other_sessions(
    home: Home, pipe: Pipe, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(children, "GRACE", 1.0)
    code = GRANDCHILD.replace("{how}", HOW[how])
    result = run_pipeline(home, pipe(f"Misbehave.options(timeout=1.5)(Make(), code={code!r})"), options=ONE)
    assert result.nodes["Misbehave"].reason == "ran longer than its timeout of 1.5 s"
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
    memory = "import drivetrain.pipelines.launching.tidy as tidy; tidy.MUCH = tidy.resident() - 1\n"
    device = (
        "import drivetrain.pipelines.launching.tidy as tidy; tidy._DEVICES = ('/dev/zero',); os.open('/dev/zero', 0)\n"
    )
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
    assert abs(tidy.resident() - rss) < 0.1 * rss
    monkeypatch.setattr(tidy, "_DEVICES", ("/dev/zero",))
    assert tidy.device() is None
    with Path("/dev/zero").open("rb"):
        assert tidy.device() == "/dev/zero"
    assert tidy.device() is None


def test_a_timeout_and_a_stop_reach_who_never_stops_talking(home: Home, pipe: Pipe) -> None:
    code = "while True: current().progress(1, None, 'steps')"
    body = f"n = Make()\nMisbehave.options(timeout=1)(n, code={code!r})\nUse(n)"
    result = run_pipeline(home, pipe(body), options=ONE)
    assert states(result) == {"Make": "COMPLETE", "Misbehave": "FAILED", "Use": "COMPLETE"}
    assert result.nodes["Misbehave"].reason == "ran longer than its timeout of 1 s"


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


# -- what one task does is undone before the next


def test_nothing_of_a_task_is_seen_by_the_next(home: Home, pipe: Pipe) -> None:
    spoil = """
import logging, signal
os.chdir('/')
os.environ['LEAKED'] = 'yes'
os.environ.pop('HOME', None)
os.umask(0o777)
sys.path.insert(0, '/leaked')
sys.argv.append('leaked')
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.alarm(1)
logging.basicConfig(level=1)
globals()['Use'] = None
globals()['LEAKED'] = 1
sys.stdout.close()
os.close(1)
os.close(2)
sys.stderr = None
"""
    look = """
import logging, signal, json
time.sleep(1.2)
print('seen', flush=True)
os.write(2, b'seen too')
found = dict(cwd=os.getcwd(), leaked='LEAKED' in os.environ, home='HOME' in os.environ, umask=os.umask(0),
    path='/leaked' in sys.path, argv='leaked' in sys.argv, ignored=signal.getsignal(signal.SIGTERM) == signal.SIG_IGN,
    level=logging.getLogger().level, use=Use is None, module='LEAKED' in globals(), pid=os.getpid())
(current().base / 'found').write_text(json.dumps(found))
os.umask(0o022)
"""
    tell = "(current().base / 'pid').write_text(str(os.getpid()))\n"
    body = f"Misbehave.options(id='B')(Misbehave.options(id='A')(Make(), code={tell + spoil!r}), code={look!r})"
    result = run_pipeline(home, pipe(body), options=ONE)
    assert result.state == "COMPLETE", [node.reason for node in result.nodes.values()]
    umask = os.umask(0)
    os.umask(umask)
    assert json.loads((home.base / "found").read_text()) == {
        "cwd": str(Path.cwd()), "leaked": False, "home": True, "umask": umask, "path": False, "argv": False,
        "ignored": False, "level": 30, "use": False, "module": False, "pid": int((home.base / "pid").read_text()),
    }  # fmt: skip
    assert "seen\n" in log(home, result, "B")
    assert "seen too" in log(home, result, "B")
    assert "seen" not in log(home, result, "A")


def test_an_environment_is_its_nodes_alone_and_secrets_are_in_no_log(
    home: Home, pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THE_TOKEN", "hunter2-hunter2")
    code = "print(os.environ.get('TOKEN'), os.environ.get('SIZE'), os.environ.get('PLAIN'), flush=True)\n"
    code += "os.system('echo child $TOKEN')\n"
    code += "(current().base / f'{current().node}.txt').write_text(str(os.environ.get('TOKEN')))"
    body = f"""
    n = Make(count=7)
    env = {{'TOKEN': dt.secret('THE_TOKEN'), 'SIZE': n.total, 'PLAIN': 'x'}}
    a = Misbehave.options(id='A', env=env)(n, code={code!r})
    b = Misbehave.options(id='B', cache=False)(a, code={code!r})
    Misbehave.options(id='C', env={{'TOKEN': dt.secret('THE_TOKEN')}})(b, code={code + "; os.kill(os.getpid(), 9)"!r})
    """
    result = run_pipeline(home, pipe(body), options=ONE)
    assert states(result) == {"Make": "COMPLETE", "A": "COMPLETE", "B": "COMPLETE", "C": "FAILED"}
    assert (home.base / "A.txt").read_text() == "hunter2-hunter2"
    assert (home.base / "B.txt").read_text() == "None"
    assert "*************** 7 x\nchild ***************" in log(home, result, "A")
    assert "None None None" in log(home, result, "B")
    assert "child ***************" in log(home, result, "C")
    for path in home.root.rglob("*"):
        if path.is_file():
            assert b"hunter2" not in path.read_bytes(), path


def test_an_environment_is_part_of_the_key(home: Home, pipe: Pipe) -> None:
    code = "(current().base / f'{current().node}.txt').write_text(os.environ['FLAG'])"
    seen = []
    for flag in ("a", "b", "a"):
        body = f"Misbehave.options(env={{'FLAG': {flag!r}}})(Make(), code={code!r})"
        seen.append(states(run_pipeline(home, pipe(body), options=ONE))["Misbehave"])
    assert seen == ["COMPLETE", "COMPLETE", "CACHED"]


def test_a_secret_that_is_not_set_fails_its_node(home: Home, pipe: Pipe) -> None:
    result = run_pipeline(
        home, pipe("n = Make()\nUse.options(env={'A': dt.secret('NOT_SET')})(n)\nAdd(n, n)"), options=ONE
    )
    assert states(result) == {"Make": "COMPLETE", "Use": "FAILED", "Add": "COMPLETE"}
    assert "the secret NOT_SET is not set" in result.nodes["Use"].reason
    assert result.nodes["Use"].user_error


def test_much_output_is_kept_whole_and_is_no_event(home: Home, pipe: Pipe) -> None:
    code = """
import ctypes
for i in range(10):
    sys.stdout.write(('x' * 1023 + chr(10)) * 1024)
print('{"event": "ended"}')
ctypes.CDLL(None).puts(b'from the C library')
os.system('echo from a grandchild >&2')
"""
    result = run_pipeline(home, pipe(f"Misbehave(Make(), code={code!r})"), options=ONE)
    assert result.state == "COMPLETE"
    text = log(home, result, "Misbehave")
    assert text.count("x") >= 10 * 1023 * 1024
    for said in ('{"event": "ended"}\n', "from the C library\n", "from a grandchild\n"):
        assert said in text
    assert text.splitlines()[-1].startswith("=== Misbehave: COMPLETE after ")


def test_a_node_that_reads_standard_input_finds_nothing(home: Home, pipe: Pipe) -> None:
    result = run_pipeline(home, pipe("Use(Misbehave(Make(), code='assert sys.stdin.read() == \"\"'))"), options=ONE)
    assert result.state == "COMPLETE"


# -- signals to the orchestrator

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
    deadline = time.monotonic() + 60
    while not any(path.read_text() for path in folder.glob(pattern)):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_run_ends_grandchildren(home: Home, pipe: Pipe, number: int) -> None:
    code = GRANDCHILD.replace("{how}", HOW["session"])
    process = orchestrator(home, pipe(f"Use(Misbehave(Make(), code={code!r}))"), grace=2)
    appears(home.base, process)
    grandchild(home)
    os.killpg(process.pid, number)  # as a terminal does
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    answer = json.loads(out.splitlines()[-1])
    assert {name: node["state"] for name, node in answer["nodes"].items()} == {
        "Make": "COMPLETE", "Misbehave": "CANCELED", "Use": "CANCELED"
    }  # fmt: skip
    assert answer["nodes"]["Misbehave"]["reason"] == "stopped while running"
    assert [run.state for run in list_runs(home)] == ["CANCELED"]
    assert [e.state for e in home.store.executions(component="parts:Misbehave")] == ["CANCELED"]


def test_a_second_signal_kills_what_does_not_look_up(home: Home, pipe: Pipe) -> None:
    code = "(current().base / 'begun').write_text('x')\n"
    code += "while True:\n    try:\n        time.sleep(60)\n    except BaseException:\n        pass"
    process = orchestrator(home, pipe(f"Use(Misbehave(Make(), code={code!r}))"), grace=300)
    appears(home.base, process)
    process.send_signal(signal.SIGINT)
    time.sleep(1)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 0, err
    assert json.loads(out.splitlines()[-1])["nodes"]["Misbehave"]["reason"] == "told to stop, and did not"
    assert [e.state for e in home.store.executions(component="parts:Misbehave")] == ["CANCELED"]


@pytest.mark.parametrize("seconds", [0.0, 0.05, 0.3])
def test_no_stop_is_lost_between_tasks(home: Home, pipe: Pipe, seconds: float) -> None:
    """A worker that missed one would be waited for a minute."""
    body = "dt.map_(lambda i: Use.options(cache=False)(Make(count=i)), over=list(range(400)))"
    process = orchestrator(home, pipe(body), grace=60)
    appears(home.root / "logs", process, "*/Make[[]*.log")
    time.sleep(seconds)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=40)
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
    process.communicate(timeout=30)
    deadline = time.monotonic() + 30
    while psutil.pid_exists(worker) or workers():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert list_runs(home)[0].state == "INTERRUPTED"
    result = resume(home)
    assert states(result) == {"Make": "COMPLETE", "Misbehave": "COMPLETE", "Use": "COMPLETE"}
    assert len(home.store.executions(component="parts:Make")) == 1
    assert [e.state for e in home.store.executions(component="parts:Misbehave")] == ["COMPLETE", "CANCELED"]


def test_two_runs_at_once_do_the_same_work_once(home: Home, pipe: Pipe) -> None:
    code = "(current().base / 'count').open('a').write('x'); (current().base / 'begun').write_text('x'); time.sleep(2)"
    function = pipe(f"Use(Misbehave.options(timeout=20)(Make(), code={code!r}))")
    process = orchestrator(home, function)
    appears(home.base, process)
    here = run_pipeline(home, function, options=TWO)
    out, err = process.communicate(timeout=60)
    there = json.loads(out.splitlines()[-1])
    assert here.state == there["state"] == "COMPLETE", err
    assert (home.base / "count").read_text() == "x"
    assert here.nodes["Misbehave"].state == "CACHED"


@pytest.mark.slow
def test_who_waits_for_the_same_work_is_not_timed(home: Home, pipe: Pipe) -> None:
    """A task that waits for another run's does not use its own time up."""
    code = "(current().base / 'begun').write_text('x'); time.sleep(4)"
    function = pipe(f"Misbehave.options(timeout=5)(Make(), code={code!r})")
    process = orchestrator(home, function)
    appears(home.base, process)
    function = pipe(f"Misbehave.options(timeout=1.5)(Make(), code={code!r})")
    result = run_pipeline(home, function, options=ONE)
    process.communicate(timeout=60)
    assert states(result) == {"Make": "CACHED", "Misbehave": "CACHED"}


def test_a_worker_that_cannot_begin_fails_its_task(home: Home, pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    result = run_pipeline(home, pipe("Make()"), options=ONE)
    assert result.state == "FAILED"
    assert "ended with status 1 before it could say how" in result.nodes["Make"].reason
    monkeypatch.setattr(sys, "executable", "/not/there")
    result = run_pipeline(home, pipe("Make()"), options=ONE)
    assert "No such file" in result.nodes["Make"].reason


def test_what_the_inline_runner_cannot_keep_is_refused_before_it_starts(home: Home, pipe: Pipe) -> None:
    for option in ("timeout=1", "env={'A': 'x'}", "cpus=1", "memory='1MB'", "accelerators=1"):
        with pytest.raises(DrivetrainError, match="the inline runner cannot keep") as caught:
            run_pipeline(home, pipe(f"Make.options({option})()"))
        assert "Make" in str(caught.value)
        assert "process" in str(caught.value)
    assert not list_runs(home)


def test_on_exit_learns_how_it_ended(home: Home, pipe: Pipe) -> None:
    body = """
    Misbehave(Make(), code='os._exit(1)')
    with dt.on_exit() as run:
        Make.options(id='Last')(label=run.state)
    """
    result = run_pipeline(home, pipe(body), options=ONE)
    assert result.nodes["Last"].state == "COMPLETE"
    assert result.nodes["Last"].outputs["numbers"][0].properties["label"] == "FAILED"


def test_the_page_tells_what_each_runner_keeps() -> None:
    rows = [line.split("|")[1:-1] for line in PAGE.splitlines() if line.startswith("| ")]
    runners = re.findall(r"`(\w+)`", "".join(rows[0]))
    told = {
        (runner, option): cell.strip() == "yes"
        for row in rows[1:]
        for option in re.findall(r"`(\w+)`", row[0])
        for runner, cell in zip(runners, row[1:], strict=True)
    }
    for option in ("timeout", "env", "cpus", "memory", "accelerators", "priority"):
        for runner in RUNNERS:
            given = {"env": (("A", "x"),)}.get(option, 1)
            node = Node("N", "p:N", None, (), (), (), options=NodeOptions(**{option: given}))  # type: ignore[arg-type]
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("DRIVETRAIN_ACCELERATORS", "1")
                try:
                    refuse_what_is_not_kept(Pipeline("p", (), (node,)), runner)
                    kept = True
                except DrivetrainError:
                    kept = False
            assert told[runner, option] == kept, (runner, option)
