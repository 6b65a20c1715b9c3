"""The beam runner when its children die, are stopped, or print what looks like events."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from drivetrain.errors import InputError
from drivetrain.metadata.fsck import fsck
from drivetrain.pipelines import Home, PipelineFunction, RunOptions, list_runs, resume, run_pipeline
from drivetrain.pipelines.runners import beam
from drivetrain.pipelines.runners.steps import LaunchStep, StepShare, steps

Pipe = Callable[..., PipelineFunction[..., object]]
BEAM = RunOptions(runner="beam")
pytestmark = pytest.mark.beam


def clean(home: Home) -> None:
    report = fsck(home.store, home.root)
    assert report.clean, report.to_dict()


@pytest.mark.slow
def test_a_killed_child_fails_its_node_and_nothing_else(home: Home, pipe: Pipe) -> None:
    once = "flag = current().base / 'flag'\nif not flag.exists():\n    flag.touch()\n    os.kill(os.getpid(), 9)"
    body = f"n = Make()\nm = Misbehave(n, code={once!r})\nUse(n)\nAdd(n, m)"
    result = run_pipeline(home, pipe(body), options=BEAM)
    assert result.state == "FAILED"
    assert {name: node.state for name, node in result.nodes.items()} == {
        "Make": "COMPLETE", "Misbehave": "FAILED", "Use": "COMPLETE", "Add": "BLOCKED"
    }  # fmt: skip
    assert "its process was ended by SIGKILL" in result.nodes["Misbehave"].reason
    assert len(home.store.executions(component="parts:Misbehave")) == 1  # not tried again behind the user's back
    clean(home)
    assert resume(home).state == "COMPLETE"
    clean(home)


def test_a_child_that_cannot_begin_fails_its_node(home: Home, pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    result = run_pipeline(home, pipe("Make()"), options=BEAM)
    assert result.state == "FAILED"
    assert "before it could say how" in result.nodes["Make"].reason


def test_what_a_component_prints_is_never_an_event(home: Home, pipe: Pipe) -> None:
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
    printed = (home.root / "logs" / result.run / "Misbehave.log").read_text(errors="replace")
    assert all(text in printed for text in prints)
    assert notes.count("ended") == 2
    assert "note" not in notes


@pytest.mark.slow
@pytest.mark.parametrize(("number", "group"), [(signal.SIGTERM, False), (signal.SIGINT, True)])
def test_a_stopped_driver_ends_its_children(home: Home, pipe: Pipe, number: int, group: bool) -> None:
    wait = "(current().base / 'begun').write_text(str(os.getpid()))\ntime.sleep(600)"
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
    deadline = time.monotonic() + 120
    while not (begun.exists() and begun.read_text()):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    # A terminal's Ctrl-C reaches the children too.
    os.killpg(process.pid, number) if group else process.send_signal(number)
    out, err = process.communicate(timeout=120)
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


LOOPS = """
    def one(item):
        first = Misbehave(Make(count=item), code="(current().base / f'by-{os.getppid()}').touch()")
        return Use(first, amount=item)
    Gather(dt.map_(one, over=[1, 2, 3, 4, 5]{bounded}))
"""
GATHER = """
    import drivetrain as dt
    from .parts import Numbers, made

    @dt.component
    def Gather(numbers: list[Numbers]) -> Numbers:
        return made(sum(one.total for one in numbers))
"""


@pytest.mark.slow
def test_workers_in_other_processes_begin_nothing_once_the_run_is_stopped(home: Home, pipe: Pipe) -> None:
    wait = "(current().base / 'begun').touch()\nwhile not (current().base / 'go').exists(): time.sleep(0.05)"
    function = pipe(f"Use(Misbehave(Make(), code={wait!r}))")
    script = (
        "import sys, json; from pathlib import Path; from drivetrain.pipelines import *\n"
        "flags = ('--direct_running_mode=multi_processing', '--direct_num_workers=2')\n"
        "result = run_pipeline(Home(Path(sys.argv[2])), load_pipeline(Path(sys.argv[1])),"
        " options=RunOptions(runner='beam', runner_options=flags))\n"
        "print(json.dumps(result.to_json()))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(function.project), str(home.root)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    deadline = time.monotonic() + 120
    while not (home.base / "begun").exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    while not any(run.context.properties.get("stopping") for run in list_runs(home)):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    (home.base / "go").touch()
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert {name: node["state"] for name, node in json.loads(out.splitlines()[-1])["nodes"].items()} == {
        "Make": "COMPLETE", "Misbehave": "COMPLETE", "Use": "CANCELED"
    }  # fmt: skip
    assert [run.state for run in list_runs(home)] == ["CANCELED"]
    assert resume(home).state == "COMPLETE"
    clean(home)


@pytest.mark.slow
@pytest.mark.parametrize("bounded", ["", ", max_parallel=2"])
def test_items_are_worked_on_by_workers_in_other_processes(home: Home, pipe: Pipe, bounded: str) -> None:
    body = "from .gather import Gather\n" + textwrap.dedent(LOOPS.replace("{bounded}", bounded))
    flags = ("--direct_running_mode=multi_processing", "--direct_num_workers=2")
    options = RunOptions(runner="beam", runner_options=flags)
    result = run_pipeline(home, pipe(body, gather=GATHER), options=options)
    assert result.state == "COMPLETE"
    assert result.nodes["Gather"].outputs["numbers"][0].properties["total"] == 30
    by = {int(path.name.removeprefix("by-")) for path in home.base.glob("by-*")}
    assert by
    assert os.getpid() not in by
    clean(home)


@pytest.mark.parametrize("bounded", ["", ", max_parallel=2"])
def test_an_element_that_is_worked_on_again_is_not_done_again(
    home: Home, pipe: Pipe, monkeypatch: pytest.MonkeyPatch, bounded: str
) -> None:
    real = beam.launch_share

    def twice(part: StepShare, place: beam.RunAddress, step: LaunchStep) -> list[str]:
        assert real(part, place, step) == real(part, place, step) != []
        return real(part, place, step)

    monkeypatch.setattr(beam, "launch_share", twice)
    body = "from .gather import Gather\n" + textwrap.dedent(LOOPS.replace("{bounded}", bounded))
    result = run_pipeline(home, pipe(body, gather=GATHER), options=RunOptions(runner="beam", cache=False))
    assert {node.state for node in result.nodes.values()} == {"COMPLETE"}
    assert len(home.store.executions(limit=None)) == len(result.nodes) == 16
    clean(home)


def test_steps_keep_what_a_bounded_loop_holds_together(pipe: Pipe) -> None:
    body = """
        from .gather import Gather
        start = Make(count=count)
        def inner(item):
            return Use.options(id="Inner")(start, amount=item)
        def outer(item):
            made = Make.options(id="Each")(count=item)
            return Gather.options(id="Some")([made, Gather.options(id="All")(dt.map_(inner, over=[1, 2], id="inner"))])
        Gather(dt.map_(outer, over=[1, 2], max_parallel=1))
        Gather.options(id="Free")(dt.map_(lambda item: Use.options(id="One")(start, amount=item), over=[1], id="free"))
    """
    pipeline = pipe(body, gather=GATHER).build()
    found = {step.nodes: (step.loop, step.upstream) for step in steps(pipeline, pipeline.ids)}
    assert found == {
        ("Make",): ("", ()),
        ("Each", "Inner", "All", "Some"): ("map", ("Make",)),
        ("Gather",): ("", ("Each",)),
        ("One",): ("", ("Make",)),
        ("Free",): ("", ("One",)),
    }


def test_what_beam_cannot_keep_is_refused_before_the_run(home: Home, pipe: Pipe) -> None:
    with pytest.raises(InputError, match="so many tasks at once, which the beam runner cannot keep"):
        run_pipeline(home, pipe("Make()"), options=RunOptions(runner="beam", parallel=2))
    for option in ("priority=1", "cpus=1", "memory=1000", "accelerators=1"):
        with pytest.raises(InputError, match=r"Make has .*, which the beam runner cannot keep"):
            run_pipeline(home, pipe(f"Make.options({option})()"), options=BEAM)
    assert list_runs(home) == []
