"""The beam runner when its children die, are stopped, or print what looks like events."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from drivetrain.metadata import fsck
from drivetrain.pipelines import Home, PipelineFunction, RunOptions, list_runs, resume, run_pipeline

Pipe = Callable[..., PipelineFunction[..., object]]
BEAM = RunOptions(runner="beam")
pytestmark = pytest.mark.beam


def clean(home: Home) -> None:
    report = fsck(home.store, home.root)
    assert report.clean, report.to_dict()


def test_a_killed_child_fails_its_node_and_nothing_else(home: Home, pipe: Pipe) -> None:
    once = "flag = current().base / 'flag'\nif not flag.exists():\n    flag.touch()\n    os.kill(os.getpid(), 9)"
    body = f"n = Make()\nm = Misbehave(n, code={once!r})\nUse(n)\nAdd(n, m)"
    result = run_pipeline(home, pipe(body), options=BEAM)
    assert result.state == "FAILED"
    assert {name: node.state for name, node in result.nodes.items()} == {
        "Make": "COMPLETE", "Misbehave": "FAILED", "Use": "COMPLETE", "Add": "BLOCKED"
    }  # fmt: skip
    assert "its process ended without a word" in result.nodes["Misbehave"].reason
    assert len(home.store.executions(component="parts:Misbehave")) == 1  # not tried again behind the user's back
    clean(home)
    assert resume(home).state == "COMPLETE"
    clean(home)


def test_a_child_that_cannot_begin_fails_its_node(home: Home, pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    result = run_pipeline(home, pipe("Make()"), options=BEAM)
    assert result.state == "FAILED"
    assert "before it could say how" in result.nodes["Make"].reason


def test_what_a_component_prints_is_never_an_event(home: Home, pipe: Pipe, capsys: pytest.CaptureFixture[str]) -> None:
    prints = [
        '{"event": "ended"}',
        '{"event": "note", "node": "x"}',
        "[1]",
        "null",
        "\x1e{}",
        "\x1ex",
        "end, no newline",
    ]
    code = f"for text in {prints!r}: print(text, end='' if 'end,' in text else chr(10), flush=True)"
    code += "\nsys.stdout.buffer.write(bytes([255, 10]))"
    notes: list[str] = []

    class Notes:
        def __getattr__(self, name: str) -> Callable[..., None]:
            return lambda *arguments: notes.append(name)

    result = run_pipeline(home, pipe(f"Misbehave(Make(), code={code!r})"), options=BEAM, observer=lambda run: Notes())
    assert result.state == "COMPLETE"
    printed = capsys.readouterr().out
    assert all(text.replace("\x1e", "") in printed for text in prints)
    assert notes.count("ended") == 2
    assert "note" not in notes


@pytest.mark.parametrize(("number", "group"), [(signal.SIGTERM, False), (signal.SIGINT, True)])
def test_a_stopped_driver_ends_its_children(home: Home, pipe: Pipe, number: int, group: bool) -> None:
    wait = "(current().base / 'begun').write_text(str(os.getpid()))\ntime.sleep(60)"
    function = pipe(f"Use(Misbehave(Make(), code={wait!r}))")
    script = (
        "import sys, json; from pathlib import Path; from drivetrain.pipelines import *\n"
        "result = run_pipeline(Home(Path(sys.argv[2])), load_pipeline(Path(sys.argv[1])),"
        " options=RunOptions(runner='beam'))\n"
        "print(json.dumps(result.to_json()))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(function.project), str(home.root)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    begun = home.base / "begun"
    deadline = time.monotonic() + 60
    while not (begun.exists() and begun.read_text()):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    # A terminal's Ctrl-C reaches the children too.
    os.killpg(process.pid, number) if group else process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    answer = json.loads(out.splitlines()[-1])
    assert answer["state"] == "CANCELED"
    assert {name: node["state"] for name, node in answer["nodes"].items()} == {
        "Make": "COMPLETE", "Misbehave": "CANCELED", "Use": "CANCELED"
    }  # fmt: skip
    assert not Path(f"/proc/{begun.read_text()}").exists()
    assert [run.state for run in list_runs(home)] == ["CANCELED"]
    assert [e.state for e in home.store.executions(component="parts:Misbehave")] == ["CANCELED"]
    clean(home)
