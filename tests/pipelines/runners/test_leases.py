"""Cores and memory among the tasks of a run, accelerators among all runs of a machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from drivetrain.errors import InputError
from drivetrain.pipelines import Home, PipelineFunction, RunOptions, RunResult, list_runs, run_pipeline
from drivetrain.pipelines.ir.ir import Node
from drivetrain.pipelines.ir.options import NodeOptions
from drivetrain.pipelines.runners.leases import Lease, Machine, find_devices, parse_cards
from drivetrain.tests.pipelines.faulty import waits
from hypothesis import given
from hypothesis import strategies as st

Pipe = Callable[..., PipelineFunction[..., object]]
FOUR = RunOptions(runner="process", parallel=4)


@pytest.fixture(autouse=True)
def own_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Locks of this test's own, and no accelerator unless the test says so."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setenv("DRIVETRAIN_ACCELERATORS", "0")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def node(**options: Any) -> Node:  # Any: each option has a type of its own
    return Node("N", "parts:N", None, (), (), (), options=NodeOptions(**options))


# -- accounting


@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 4), st.integers(0, 8), st.integers(0, 2)), min_size=1, max_size=60)
)
def test_no_more_is_given_than_there_is_and_all_comes_back(steps: list[tuple[bool, int, int, int]]) -> None:
    machine = Machine(4, 8, ("0", "1"))
    held: list[Lease] = []
    for give_back, cpus, memory, devices in steps:
        machine.begin()
        if give_back and held:
            machine.release(held.pop(0))
        elif (lease := machine.take(node(cpus=cpus, memory=memory, accelerators=devices))) is not None:
            assert len(lease.devices) == devices
            held.append(lease)
        assert sum(lease.cpus for lease in held) <= 4
        assert sum(lease.memory for lease in held) <= 8
        taken = [device for lease in held for device in lease.devices]
        assert len(taken) == len(set(taken)) <= 2
    for lease in held:
        machine.release(lease)
    machine.begin()
    whole = machine.take(node(cpus=4, memory=8, accelerators=2))
    assert whole is not None
    machine.release(whole)


def test_who_asks_for_much_is_not_passed_by_for_ever() -> None:
    machine = Machine(4, 0)
    machine.begin()
    small = machine.take(node(cpus=1))
    assert small is not None
    assert machine.take(node(cpus=4)) is None
    assert machine.take(node(cpus=1)) is None  # it would fit, and what came first would never
    assert machine.take(node()) is not None  # asks for nothing
    machine.release(small)
    machine.begin()
    assert machine.take(node(cpus=4)) is not None


def test_none_or_all_of_the_accelerators_and_a_dead_holder_has_none() -> None:
    machine, other = Machine(1, 0, ("0", "1", "2")), Machine(1, 0, ("0", "1", "2"))
    machine.begin()
    held = machine.take(node(accelerators=2))
    assert held is not None
    assert held.devices == ("0", "1")
    other.begin()
    assert other.take(node(accelerators=2)) is None
    assert other.waits_for_others
    other.begin()
    one = other.take(node(accelerators=1))  # the refused one let go of what it had got
    assert one is not None
    assert one.devices == ("2",)
    other.release(one)
    machine.release(held)
    # Held by a process that is killed.
    script = (
        "import time; from drivetrain.pipelines.runners.leases import Machine\n"
        "from drivetrain.pipelines.ir.ir import Node\n"
        "from drivetrain.pipelines.ir.options import NodeOptions\n"
        "m = Machine(1, 0, ('0', '1', '2')); m.begin()\n"
        "l = m.take(Node('N', 'p:N', None, (), (), (), options=NodeOptions(accelerators=3)))\n"
        "print(len(l.devices), flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "3\n"
        other.begin()
        assert other.take(node(accelerators=1)) is None
        process.kill()
    other.begin()
    assert other.take(node(accelerators=3)) is not None


# -- finding them

CARDS = """GPU 0: NVIDIA H200 (UUID: GPU-11111111-aaaa)
GPU 1: NVIDIA A100 (UUID: GPU-22222222-bbbb)
  MIG 3g.20gb     Device  0: (UUID: MIG-33333333-cccc)
  MIG 3g.20gb     Device  1: (UUID: MIG-44444444-dddd)
"""


def test_cards_are_known_by_uuid_and_a_card_in_parts_by_its_parts() -> None:
    assert parse_cards(CARDS) == ("GPU-11111111-aaaa", "MIG-33333333-cccc", "MIG-44444444-dddd")
    assert parse_cards("No devices were found\n") == ()


def test_what_is_told_goes_before_what_is_visible_before_what_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\ncat <<'X'\n{CARDS}X\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("DRIVETRAIN_ACCELERATORS")
    assert find_devices() == ("GPU-11111111-aaaa", "MIG-33333333-cccc", "MIG-44444444-dddd")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,GPU-9")
    assert find_devices() == ("3", "GPU-9")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert find_devices() == ()
    monkeypatch.setenv("DRIVETRAIN_ACCELERATORS", "2")
    assert find_devices() == ("0", "1")
    monkeypatch.setenv("DRIVETRAIN_ACCELERATORS", "two")
    with pytest.raises(InputError, match="DRIVETRAIN_ACCELERATORS is 'two'"):
        find_devices()


# -- in runs

SPAN = """
import json
begin = time.time()
(current().base / f'{current().node}.begun').touch()
while len(list(current().base.glob('*.begun'))) < {meet}:
    time.sleep(0.02)
time.sleep({seconds})
(current().base / f'{current().node}.json').write_text(json.dumps([begin, time.time(),
    os.environ.get('CUDA_VISIBLE_DEVICES'), os.environ.get('XLA_PYTHON_CLIENT_PREALLOCATE'), os.getpid()]))
"""


def spans(home: Home, pattern: str = "*.json") -> dict[str, list[object]]:
    return {path.stem: json.loads(path.read_text()) for path in home.base.glob(pattern)}


def overlap(found: dict[str, list[object]]) -> int:
    """How many were at work at once at most."""
    edges = sorted([(str(f[0]), 1) for f in found.values()] + [(str(f[1]), -1) for f in found.values()])
    most = now = 0
    for _, change in edges:
        now += change
        most = max(most, now)
    return most


def span(seconds: float, meet: int = 1) -> str:
    """What a task does: it takes so long, and waits until so many have begun."""
    return SPAN.replace("{seconds}", str(seconds)).replace("{meet}", str(meet))


def mapped(
    pipe: Pipe, options: str, items: int = 4, seconds: float = 0.4, meet: int = 1
) -> PipelineFunction[..., object]:
    code = span(seconds, meet)
    return pipe(f"""
    def one(i):
        return Misbehave.options(cache=False, {options})(Make(count=i), code={code!r})
    dt.map_(one, over={list(range(items))})
    """)


@pytest.mark.parametrize(
    ("options", "most"), [("cpus=0.6", 1), ("cpus=0.5", 2), ("memory=600", 1), ("memory=500", 2), ("priority=1", 4)]
)
@pytest.mark.slow
def test_tasks_share_cores_and_memory(
    home: Home, pipe: Pipe, options: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Machine, "this", classmethod(lambda cls, devices: cls(1.0, 1000)))
    function = mapped(pipe, options, meet=most)
    assert run_pipeline(home, function, options=FOUR).state == "COMPLETE"
    assert len(spans(home)) == 4
    assert overlap(spans(home)) == most


@pytest.mark.slow
def test_tasks_share_accelerators_and_see_their_own_only(
    home: Home, pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRIVETRAIN_ACCELERATORS", "2")
    assert run_pipeline(home, mapped(pipe, "accelerators=1", meet=2), options=FOUR).state == "COMPLETE"
    found = spans(home)
    assert overlap(found) == 2
    assert {facts[2] for facts in found.values()} == {"0", "1"}
    for device in ("0", "1"):
        assert overlap({name: facts for name, facts in found.items() if facts[2] == device}) == 1
    assert {facts[3] for facts in found.values()} == {None}  # its own: JAX may take it whole
    assert len({facts[4] for facts in found.values()}) == 4  # a process with an accelerator is not used again


def test_who_asked_for_no_accelerator_takes_no_memory_of_one_in_advance(
    home: Home, pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = span(0)
    assert run_pipeline(home, pipe(f"Misbehave(Make(), code={code!r})"), options=FOUR).state == "COMPLETE"
    assert spans(home)["Misbehave"][2:4] == [None, "false"]
    monkeypatch.setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "true")  # what the user says stands
    code += "\n"
    assert run_pipeline(home, pipe(f"Misbehave(Make(), code={code!r})"), options=FOUR).state == "COMPLETE"
    assert spans(home)["Misbehave"][2:4] == [None, "true"]


@pytest.mark.slow
def test_two_runs_at_once_do_not_fight_for_an_accelerator(
    home: Home, pipe: Pipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRIVETRAIN_ACCELERATORS", "1")
    function = mapped(pipe, "accelerators=1", items=2, seconds=0.6)
    script = (
        "import sys; from pathlib import Path; from drivetrain.pipelines import *\n"
        "run_pipeline(Home(Path(sys.argv[2])), load_pipeline(Path(sys.argv[1])), options=RunOptions(runner='process'))"
    )
    other = tmp_path / "other" / ".drivetrain"
    with subprocess.Popen([sys.executable, "-c", script, str(function.project), str(other)]) as process:
        result = run_pipeline(home, function, options=FOUR)
        assert process.wait(200) == 0
    assert result.state == "COMPLETE"
    found = spans(home) | {f"other {path.stem}": json.loads(path.read_text()) for path in other.parent.glob("*.json")}
    assert len(found) == 4
    assert overlap(found) == 1


@pytest.mark.slow
def test_an_accelerator_is_held_until_who_had_it_is_dead(
    home: Home, pipe: Pipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The orchestrator is killed: its worker still ends what it did, and only then is the accelerator free."""
    monkeypatch.setenv("DRIVETRAIN_ACCELERATORS", "1")
    code = "(current().base / 'begun').write_text(str(os.getpid()))\n"
    code += "try:\n    time.sleep(600)\nfinally:\n    time.sleep(2); (current().base / 'ended').touch()"
    function = pipe(f"Misbehave.options(accelerators=1)(Make(), code={code!r})")
    script = (
        "import sys; from pathlib import Path; from drivetrain.pipelines import *\n"
        "run_pipeline(Home(Path(sys.argv[2])), load_pipeline(Path(sys.argv[1])), options=RunOptions(runner='process'))"
    )
    with subprocess.Popen([sys.executable, "-c", script, str(function.project), str(home.root)]) as process:
        waits((home.base / "begun").exists)
        process.kill()
    machine, leases = Machine(1, 0, ("0",)), list[Lease]()

    def taken() -> bool:
        machine.begin()
        lease = machine.take(node(accelerators=1))
        leases.extend([lease] if lease else [])
        return bool(leases)

    waits(taken)
    assert (home.base / "ended").exists()
    machine.release(leases[0])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("cpus=9999", "Use asks for cpus=9999, and this machine has "),
        ("memory='4000TB'", "Use asks for memory=3.725e+06 GiB, and this machine has "),
        ("accelerators=1", "Use asks for accelerators=1, and this machine has 0"),
    ],
)
def test_more_than_there_is_is_told_before_anything_runs(home: Home, pipe: Pipe, options: str, says: str) -> None:
    with pytest.raises(InputError) as caught:
        run_pipeline(home, pipe(f"Use.options({options})(Make())"), options=FOUR)
    assert str(caught.value).startswith(says)
    assert "fix: " in str(caught.value)
    assert not list_runs(home)


def test_the_highest_priority_goes_first(home: Home, pipe: Pipe) -> None:
    body = "\n".join(f"Make.options(id='P{p}', priority={p}, cache=False)()" for p in (1, 3, 2))
    result: RunResult = run_pipeline(home, pipe(body), options=RunOptions(runner="process", parallel=1))
    assert result.state == "COMPLETE"
    order = [e.properties["node"] for e in reversed(home.store.executions(component="parts:Make"))]
    assert order == ["P3", "P2", "P1"]
