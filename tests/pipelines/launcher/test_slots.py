"""Cores and memory among all runs of a machine: never too many, fair, nothing held by the dead."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import pytest
from drivetrain.errors import Canceled, InputError
from drivetrain.pipelines import Home, PipelineFunction, Run, RunOptions, RunResult, list_runs, run_pipeline
from drivetrain.pipelines import run as run_module
from drivetrain.pipelines.ir.ir import Node
from drivetrain.pipelines.ir.options import NodeOptions
from drivetrain.pipelines.launcher.observers import NullObserver
from drivetrain.pipelines.launcher.slots import Capacity, SlotRequest, capacity, queue, slot
from drivetrain.pipelines.runners.signals import stoppable
from drivetrain.tests.pipelines.faulty import waits
from hypothesis import given
from hypothesis import strategies as st

Pipe = Callable[..., PipelineFunction[..., object]]
THERE = Capacity(4, 100)


@pytest.fixture(autouse=True)
def slots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pool of this test's own, of two cores; gives the folder of its requests."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setenv("DRIVETRAIN_CPUS", "2")
    monkeypatch.setenv("DRIVETRAIN_MEMORY", "1GiB")
    return tmp_path / "runtime" / "drivetrain" / "slots"


def node(**options: Any) -> Node:  # Any: each option has a type of its own
    return Node("N", "parts:N", None, (), (), (), options=NodeOptions(**options))


def requests_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != "lock")


# -- the rule


class Machine:
    """Requests that come and end in some order, granted by the rule; what is held is counted here anew."""

    def __init__(self) -> None:
        self.requests: list[SlotRequest] = []
        self.order: list[SlotRequest] = []

    def arrive(self, run: str, cpus: float, memory: int = 0) -> None:
        number = max((each.number for each in self.requests), default=0) + 1
        self.requests.append(SlotRequest(number, run, cpus, memory))
        self.grant()

    def grant(self) -> None:
        going, lacking = queue(self.requests, THERE)
        assert not {*going} & lacking.keys()
        assert len(going) + len(lacking) == sum(not each.is_granted for each in self.requests)
        self.requests = [each._replace(is_granted=True) if each in going else each for each in self.requests]
        self.order += going
        held = [each for each in self.requests if each.is_granted]
        assert sum(each.cpus for each in held) <= 4 + 1e-6
        assert sum(each.memory for each in held) <= 100

    def end(self, which: int) -> None:
        """One of those that are at work, counted from who began first."""
        held = [each for each in self.order if each._replace(is_granted=True) in self.requests]
        self.requests.remove(held[which % len(held)]._replace(is_granted=True))
        self.grant()

    @property
    def is_busy(self) -> bool:
        return any(each.is_granted for each in self.requests)


ASKED = st.tuples(st.sampled_from("abcd"), st.sampled_from([0.0, 0.1, 0.5, 1, 2, 4]), st.integers(0, 100))


@given(st.lists(ASKED | st.integers(0, 9), min_size=1, max_size=60))
def test_no_more_is_granted_than_there_is_and_each_request_has_its_turn(
    steps: list[tuple[str, float, int] | int],
) -> None:
    machine = Machine()
    for step in steps:
        if isinstance(step, tuple):
            machine.arrive(*step)
        elif machine.is_busy:
            machine.end(step)
    for _ in range(len(steps)):
        if machine.is_busy:
            machine.end(0)
    assert machine.requests == []
    assert len(machine.order) == sum(isinstance(step, tuple) for step in steps)


def test_a_run_of_a_hundred_nodes_does_not_starve_one_of_three() -> None:
    machine = Machine()
    for _ in range(100):
        machine.arrive("large", 2)
    for _ in range(3):
        machine.arrive("small", 2)
    for _ in range(6):
        machine.end(0)
    # It came last: from then on each other slot is its.
    assert [each.run for each in machine.order] == [
        "large",
        "large",
        "small",
        "large",
        "small",
        "large",
        "small",
        "large",
    ]


def test_equal_runs_go_in_the_order_of_their_arrival_and_share_of_memory_counts_too() -> None:
    machine = Machine()
    machine.arrive("much", 1, 90)
    for run in ("first", "second", "third", "much", "first"):
        machine.arrive(run, 2, 10)
    while machine.is_busy:
        machine.end(0)
    assert [each.run for each in machine.order] == ["much", "first", "second", "third", "much", "first"]
    # Two cores of 4 are less than 60 bytes of 100.
    held = [SlotRequest(1, "cores", 2, 0, True), SlotRequest(2, "bytes", 0, 60, True)]
    waiting = [SlotRequest(3, "bytes", 2, 0), SlotRequest(4, "cores", 2, 0)]
    assert queue([*held, *waiting], THERE) == ([waiting[1]], {waiting[0]: "cpus"})


def test_who_asks_for_much_holds_back_those_behind_it_that_want_the_same() -> None:
    machine = Machine()
    machine.arrive("a", 1)
    machine.arrive("b", 4)
    machine.arrive("c", 1)
    machine.arrive("d", 0, 100)
    assert [each.run for each in machine.order] == ["a", "d"]
    machine.end(0)
    assert [each.run for each in machine.order] == ["a", "d", "b"]


# -- the files


def never(seconds: float) -> None:
    raise AssertionError("it waits")


class Pause:
    """Waits for real; `go` ends all waits."""

    def __init__(self) -> None:
        self.go = threading.Event()

    def __call__(self, seconds: float) -> None:
        if self.go.wait(seconds):
            raise Canceled("the run was stopped")


def test_who_asks_for_nothing_touches_nothing(slots: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DRIVETRAIN_CPUS")
    with slot(node(priority=3), "run", never, print):
        assert not slots.exists()


def test_a_request_is_gone_however_its_block_ends(slots: Path) -> None:
    with slot(node(cpus=2, memory=5), "run", never, print):
        assert requests_in(slots)[0].endswith("_2.0_5_granted")
    for error in (ValueError, KeyboardInterrupt):
        with pytest.raises(error), slot(node(cpus=2, memory=5), "run", never, print):
            raise error
        assert requests_in(slots) == []
    pause, notes = Pause(), list[str]()
    pause.go.set()
    with slot(node(cpus=2), "run", never, print):
        with pytest.raises(Canceled), slot(node(cpus=1), "other", pause, notes.append):
            raise AssertionError
        assert len(requests_in(slots)) == 1
    assert notes == ["waiting for cpus: 1 run at work"]


HOLDER = """
import sys
from drivetrain.pipelines.ir.ir import Node
from drivetrain.pipelines.ir.options import NodeOptions
from drivetrain.pipelines.launcher.slots import slot
import time
node = Node("N", "p:N", None, (), (), (), options=NodeOptions(cpus=float(sys.argv[2])))
with slot(node, sys.argv[1], time.sleep, lambda note: print(note, flush=True)):
    print("holds", flush=True)
    sys.stdin.read()
"""


def hold(run: str, cpus: float) -> subprocess.Popen[str]:
    """A process that has a slot until its standard input is closed."""
    command = [sys.executable, "-c", HOLDER, run, str(cpus)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_what_a_killed_process_had_or_waited_for_is_free_at_once(slots: Path) -> None:
    with ExitStack() as living:
        holder = living.enter_context(hold("a", 2))
        assert said(holder) == "holds"
        first = living.enter_context(hold("b", 2))
        assert said(first) == "waiting for cpus: 1 run at work"
        second = living.enter_context(hold("c", 1))
        assert said(second) == "waiting for cpus: 1 run before it"
        first.kill()  # kill -9 of one that waits
        assert said(second) == "waiting for cpus: 1 run at work"
        holder.kill()  # and of one that has it
        assert said(second) == "holds"
        assert len(requests_in(slots)) == 1
        second.communicate("")
    assert requests_in(slots) == []


@pytest.mark.parametrize(
    ("variable", "text"),
    [(f"DRIVETRAIN_{name}", text) for name in ("CPUS", "MEMORY") for text in ("", "many", "-1", "0", "nan", "1e9x")],
)
def test_what_is_no_amount(monkeypatch: pytest.MonkeyPatch, variable: str, text: str) -> None:
    monkeypatch.setenv(variable, text)
    with pytest.raises(InputError, match=f"{variable} is '{re.escape(text)}'"):
        capacity()


# -- in runs

SPAN = """
begin = time.time()
time.sleep({seconds})
(current().base / f'{{current().run}}.{{current().node}}.span').write_text(f'{{begin}} {{time.time()}}')
"""


def spans(home: Home) -> list[tuple[float, float]]:
    texts = [path.read_text().split() for path in home.base.glob("*.span")]
    return [(float(begin), float(end)) for begin, end in texts]


def most_at_once(times: list[tuple[float, float]]) -> int:
    edges = sorted([(begin, 1) for begin, _ in times] + [(end, -1) for _, end in times])
    return max(sum(change for _, change in edges[: number + 1]) for number in range(len(edges)))


def experiment(pipe: Pipe, seconds: float, options: str = "") -> PipelineFunction[..., object]:
    return pipe(f"Misbehave.options(cache=False, {options})(Make(), code={SPAN.format(seconds=seconds)!r})")


class Noting(NullObserver):
    """Keeps what the tasks of a run say."""

    def __init__(self, notes: list[str]) -> None:
        self.notes = notes

    def note(self, node: str, text: str) -> None:
        self.notes.append(text)


def run_all(home: Home, function: PipelineFunction[..., object], count: int, **options: Any) -> list[str]:
    """Have so many runs at once; gives what they noted."""
    notes: list[str] = []
    results: list[RunResult] = []

    def observe(run: Run) -> Noting:
        return Noting(notes)

    def go() -> None:
        results.append(run_pipeline(home, function, options=RunOptions(**options), observer=observe))

    threads = [threading.Thread(target=go) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [result.state for result in results] == ["COMPLETE"] * count
    return notes


def test_of_24_runs_at_once_two_are_at_work(home: Home, pipe: Pipe, slots: Path) -> None:
    """None of them says what it needs: where the machine's cores are named, each takes one."""
    notes = run_all(home, experiment(pipe, 0.05), 24)
    assert len(spans(home)) == 24
    assert most_at_once(spans(home)) == 2
    assert any(re.fullmatch(r"waiting for cpus: \d+ runs before it", note) for note in notes)
    assert requests_in(slots) == []


def test_memory_is_shared_and_a_run_alone_on_an_unnamed_machine_waits_for_nothing(
    home: Home, pipe: Pipe, monkeypatch: pytest.MonkeyPatch, slots: Path
) -> None:
    monkeypatch.delenv("DRIVETRAIN_CPUS")
    notes = run_all(home, experiment(pipe, 0.1, "memory='600MB'"), 4)
    assert most_at_once(spans(home)) == 1
    assert "waiting for memory: 1 run at work" in notes
    for path in (*home.base.glob("*.span"), slots / "lock"):
        path.unlink()
    slots.rmdir()
    assert run_all(home, experiment(pipe, 0.1), 4) == []
    assert not slots.exists()


@pytest.mark.slow
def test_runs_in_other_processes_share_the_cores_too(home: Home, pipe: Pipe, slots: Path) -> None:
    function = experiment(pipe, 0.3, "cpus=1.5, timeout=0.9")  # which the wait is not counted against
    notes = run_all(home, function, 4, runner="process")
    assert len(spans(home)) == 4
    assert most_at_once(spans(home)) == 1
    assert any("waiting for cpus" in note for note in notes)
    assert requests_in(slots) == []


def test_a_cached_run_asks_for_nothing(home: Home, pipe: Pipe, slots: Path) -> None:
    function = pipe("Use.options(cpus=2)(Make())")
    assert run_pipeline(home, function).state == "COMPLETE"
    (slots / "lock").unlink()
    slots.rmdir()
    with slot(node(cpus=2), "another run", never, print):
        result = run_pipeline(home, function)
        assert {each.state for each in result.nodes.values()} == {"CACHED"}
        assert len(requests_in(slots)) == 1


NESTED = """
from drivetrain.pipelines import Home, load_pipeline, run_pipeline
import json, subprocess
script = "import sys; from pathlib import Path; from drivetrain.pipelines import *; "
script += "print(run_pipeline(Home(Path(sys.argv[1])), load_pipeline(Path(sys.argv[2]))).state)"
project = {project!r}
inner = run_pipeline(Home(current().base / 'inner'), load_pipeline(Path(project)))
other = [sys.executable, '-c', script, str(current().base / 'other'), project]
done = subprocess.run(other, capture_output=True, text=True, timeout=100)
(current().base / 'nested.json').write_text(json.dumps([inner.state, done.stdout.strip()]))
"""


def test_a_run_that_a_component_starts_is_part_of_its_slot(home: Home, pipe: Pipe, tmp_path: Path) -> None:
    """It would wait for itself."""
    project = str(shutil.copytree(pipe("Use.options(cpus=2)(Make())").project, tmp_path / "inner" / "shop"))
    function = pipe(f"Misbehave.options(cpus=2)(Make(), code={NESTED.format(project=project)!r})")
    assert run_pipeline(home, function).state == "COMPLETE"
    assert json.loads((home.base / "nested.json").read_text()) == ["COMPLETE", "COMPLETE"]
    assert "DRIVETRAIN_SLOT_HOLDER" not in os.environ


def test_more_than_there_is_is_refused_before_anything_runs(home: Home, pipe: Pipe) -> None:
    for option, says in (("cpus=3", "cpus=3, and this machine has 2"), ("memory='2GiB'", "memory=2 GiB, and this ma")):
        for runner in ("inline", "process"):
            with pytest.raises(InputError, match=f"Use asks for {says}"):
                run_pipeline(home, pipe(f"Use.options({option})(Make())"), options=RunOptions(runner=runner))
    assert list_runs(home) == []


def test_a_stop_ends_the_wait(home: Home, pipe: Pipe, slots: Path) -> None:
    notes: list[str] = []
    observer = Noting(notes)
    results: list[RunResult] = []
    stop: list[threading.Event] = []

    def observe(run: Run) -> Noting:
        return observer

    def go() -> None:
        results.append(run_pipeline(home, pipe("Make()"), observer=observe))

    def kept(cancel: threading.Event) -> AbstractContextManager[None]:
        stop.append(cancel)
        return stoppable(cancel)

    with slot(node(cpus=2), "another run", never, print):
        thread = threading.Thread(target=go)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(run_module, "stoppable", kept)
            thread.start()
            waits(lambda: notes == ["waiting for cpus: 1 run at work"])
            stop[0].set()
            thread.join(30)
    assert [(each.state, each.nodes["Make"].state) for each in results] == [("CANCELED", "CANCELED")]
    again = run_pipeline(home, pipe("Make()"))  # its claim is free as well
    assert again.state == "COMPLETE"
    assert requests_in(slots) == []
