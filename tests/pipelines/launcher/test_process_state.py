"""Nothing of a task is seen by the next: its process, its environment, its output."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from drivetrain.pipelines import Home, run_pipeline
from drivetrain.tests.pipelines.processes import ONE, Pipe, log, states

pytestmark = pytest.mark.usefixtures("nothing_is_left")


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
signal.alarm(300)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2, signal.SIGTERM])
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
print('seen', flush=True)
os.write(2, b'seen too')
found = dict(cwd=os.getcwd(), leaked='LEAKED' in os.environ, home='HOME' in os.environ, umask=os.umask(0),
    path='/leaked' in sys.path, argv='leaked' in sys.argv, ignored=signal.getsignal(signal.SIGTERM) == signal.SIG_IGN,
    blocked=len(signal.pthread_sigmask(signal.SIG_BLOCK, ())), alarm=signal.alarm(0),
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
    blocked = len(signal.pthread_sigmask(signal.SIG_BLOCK, ()))  # by who started the tests, a profiler say
    assert json.loads((home.base / "found").read_text()) == {
        "cwd": str(Path.cwd()), "leaked": False, "home": True, "umask": umask, "path": False, "argv": False,
        "ignored": False, "blocked": blocked, "alarm": 0, "level": 30, "use": False, "module": False,
        "pid": int((home.base / "pid").read_text()),
    }  # fmt: skip
    assert "seen\n" in log(home, result, "B")
    assert "seen too" in log(home, result, "B")
    assert "seen" not in log(home, result, "A")


@pytest.mark.slow
def test_a_thread_that_a_task_leaves_keeps_nobody_waiting(
    home: Home, pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("drivetrain.pipelines.runners.children.GRACE", 3600.0)
    code = "import threading; threading.Thread(target=time.sleep, args=[3600]).start()"  # longer than a test may take
    result = run_pipeline(home, pipe(f"Use(Misbehave(Make(), code={code!r}))"), options=ONE)
    assert set(states(result).values()) == {"COMPLETE"}


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
    assert "*** 7 x\nchild ***\n" in log(home, result, "A")
    assert "None None None" in log(home, result, "B")
    assert "child ***\n" in log(home, result, "C")
    for path in home.root.rglob("*"):
        if path.is_file():
            assert b"hunter2" not in path.read_bytes(), path


@pytest.mark.slow
def test_an_environment_is_part_of_the_key(home: Home, pipe: Pipe) -> None:
    code = "(current().base / f'{current().node}.txt').write_text(os.environ['FLAG'])"
    seen = []
    for flag in ("a", "b", "a"):
        body = f"Misbehave.options(env={{'FLAG': {flag!r}}})(Make(), code={code!r})"
        seen.append(states(run_pipeline(home, pipe(body), options=ONE))["Misbehave"])
    assert seen == ["COMPLETE", "COMPLETE", "CACHED"]


def test_a_secret_that_is_not_set_fails_its_node(home: Home, pipe: Pipe) -> None:
    body = "n = Make()\nwith dt.when(n.total > -1):\n    Use.options(env={'A': dt.secret('NOT_SET')})(n)\nAdd(n, n)"
    result = run_pipeline(home, pipe(body), options=ONE)
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
