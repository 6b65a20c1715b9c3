"""The process runner: warm workers, tasks at once, what dies fails its own task alone and is tried again."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import signal
import sqlite3
import sys
from pathlib import Path
from typing import Any

import pytest
from drivetrain.errors import DrivetrainError
from drivetrain.pipelines import Home, list_runs, run_pipeline
from drivetrain.pipelines.ir.ir import Node, Pipeline
from drivetrain.pipelines.ir.options import NodeOptions
from drivetrain.pipelines.launcher.observers import NullObserver
from drivetrain.pipelines.launcher.results import NodeResult
from drivetrain.pipelines.run import RUNNERS
from drivetrain.pipelines.runners.capabilities import check_capabilities
from drivetrain.pipelines.runners.children import Child
from drivetrain.tests.pipelines.processes import ONE, TWO, Pipe, log, states, time_is_up_with

PAGE = (Path(__file__).parents[3] / "docs" / "runners.md").read_text("utf-8")
pytestmark = pytest.mark.usefixtures("nothing_is_left")


def test_workers_are_used_again_and_tasks_run_at_once(home: Home, pipe: Pipe) -> None:
    # The first two are at work until both are, however long the second worker takes to begin.
    code = "(current().base / f'{current().node}.pid').write_text(str(os.getpid()))\n"
    code += "while len(list(current().base.glob('*.pid'))) < 2: time.sleep(0.02)"
    body = f"""
    def one(i):
        return Misbehave.options(cache=False)(Make(count=i), code={code!r})
    dt.map_(one, over=[1, 2, 3, 4, 5, 6])
    """
    result = run_pipeline(home, pipe(body), options=TWO)
    assert result.state == "COMPLETE", [node.reason for node in result.nodes.values()]
    pids = [path.read_text() for path in home.base.glob("Misbehave*.pid")]
    assert len(pids) == 6
    assert len(set(pids)) == 2
    assert str(os.getpid()) not in pids
    begun = {e.properties["node"]: e for e in home.store.executions(component="parts:Misbehave")}
    spans = sorted((e.started_at, e.finished_at) for e in begun.values())
    assert any(begin and end and begin < end for (_, end), (begin, _) in itertools.pairwise(spans))


def test_the_garbage_collector_works_while_a_node_does(home: Home, pipe: Pipe) -> None:
    """It rests while the project's modules are imported. One with an environment is its worker's first."""
    body = "Misbehave.options(env={'A': '1'})(Make(), code='import gc; assert gc.isenabled()')"
    result = run_pipeline(home, pipe(body), options=ONE)
    assert states(result) == {"Make": "COMPLETE", "Misbehave": "COMPLETE"}


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


def children_of(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tasks that are handed to children from now on, as they are."""
    handed: list[str] = []
    send = Child.send

    def hand(self: Child, **message: object) -> None:
        handed.extend([str(message["task"])] if "task" in message else [])
        send(self, **message)

    monkeypatch.setattr(Child, "send", hand)
    return handed


def test_what_comes_from_the_cache_or_is_skipped_starts_no_child(
    home: Home, pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = """
    n = Make(count=count)
    Use(n)
    with dt.when(n.total > 99):
        Use.options(id='Skipped')(n)
    Misbehave.options(id='Always', cache=False)(n, code="raise ValueError('always')")
    """
    function = pipe(body)
    run_pipeline(home, function, options=ONE)
    handed = children_of(monkeypatch)
    again = run_pipeline(home, function, options=ONE)
    assert handed == ["Always"]
    assert states(again) == {"Make": "CACHED", "Use": "CACHED", "Skipped": "SKIPPED", "Always": "FAILED"}
    inline = run_pipeline(home, function)
    for name, ended in again.nodes.items():
        assert ended.reason == inline.nodes[name].reason
        assert ended.outputs.keys() == inline.nodes[name].outputs.keys()
        assert log(home, again, name).count(f"=== {name}: {ended.state} after") == 1
        newest, before = home.store.executions(contexts=[home.store.context("node", f"shop.{name}")], limit=2)
        assert (before.properties["run"], newest.properties["run"]) == (again.run, inline.run)
        assert (before.state, before.cache_key) == (newest.state, newest.cache_key)
        assert home.store.inputs(before) == home.store.inputs(newest)
    handed.clear()
    run_pipeline(home, function, {"count": 4}, options=ONE)  # nothing is as it was: the children do it all
    assert handed == ["Make", "Use", "Skipped", "Always"]


ROWS = """
import drivetrain as dt
from drivetrain.pipelines.project.files import Files, SqlQuery

@dt.component
def Rows(*, data: Files | SqlQuery) -> int:
    return 7
"""


def test_some_cached_tasks_only_a_child_looks_up(home: Home, pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a limit or an environment counts, and where a database would be asked twice."""
    with contextlib.closing(sqlite3.connect(home.base / "rows.db")) as connection, connection:
        connection.execute("CREATE TABLE t AS SELECT 1 AS n")
    body = """
    from .rows import Rows
    Make(count=1)
    Make.options(id='Timed', timeout=3600)(count=2)
    Make.options(id='Alone', env={'A': 'x'})(count=3)
    Rows(data=dt.query('SELECT n FROM t', connection='sqlite:///rows.db'))
    """
    function = pipe(body, rows=ROWS)
    assert run_pipeline(home, function, options=ONE).state == "COMPLETE"
    handed = children_of(monkeypatch)
    assert set(states(run_pipeline(home, function, options=ONE)).values()) == {"CACHED"}
    assert sorted(handed) == ["Alone", "Rows", "Timed"]


def test_a_process_that_has_not_imported_the_project_does_not_do_so_to_look(
    home: Home, pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that resumes a run, which it has not built."""
    function = pipe("Make()")
    run_pipeline(home, function, options=ONE)
    handed = children_of(monkeypatch)
    run_pipeline(home, function, options=ONE)
    assert handed == []
    monkeypatch.delitem(sys.modules, "shop.parts")
    assert states(run_pipeline(home, function, options=ONE)) == {"Make": "CACHED"}
    assert handed == ["Make"]
    assert "shop.parts" not in sys.modules


DEATHS = [
    ("os.kill(os.getpid(), 9)", "ended by SIGKILL (killed, or the machine ran out of memory)"),
    ("os.kill(os.getpid(), signal.SIGSEGV)", "ended by SIGSEGV (a crash in native code)"),
    ("os._exit(3)", "ended with status 3 before it could say how"),
    ("os._exit(0)", "ended with status 0 before it could say how"),
    ("os.closerange(3, 256)", "its events among them"),
]


@pytest.mark.parametrize(("code", "says"), DEATHS)
@pytest.mark.slow
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


@pytest.mark.parametrize("how", ["os.kill(os.getpid(), 9)", "raise ValueError('once')", "time.sleep(600)"])
@pytest.mark.slow
def test_what_dies_fails_or_lasts_is_tried_again(
    home: Home, pipe: Pipe, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes: list[str] = []

    class Notes(NullObserver):
        def note(self, node: str, text: str) -> None:
            notes.append(f"{node}: {text}")

        def ended(self, result: NodeResult) -> None:
            notes.append(f"{result.node} {result.state}")

    if how.startswith("time"):
        time_is_up_with(home.base / "flag", "Misbehave", monkeypatch)
    body = f"Misbehave.options(retries=2, backoff=0.01, jitter=0, timeout=3600)(Make(), code={ONCE + how!r})"
    result = run_pipeline(home, pipe(body), options=ONE, observer=lambda run: Notes())
    assert result.state == "COMPLETE"
    ended = [execution.state for execution in home.store.executions(component="parts:Misbehave")]
    assert ended == ["COMPLETE", "FAILED"]
    newest = home.store.executions(component="parts:Misbehave")[0]
    said = {"os": "ended by SIGKILL", "raise": "ValueError: once", "time": "ran longer than its timeout of 3600 s"}
    reason = str(newest.properties["reason"])
    assert reason.startswith("its last execution failed: ")
    assert said[re.split(r"\W", how)[0]] in reason
    assert reason.endswith("; retry 1 of 2")
    assert sum("retry 1 of 2 in 0.01 s" in note for note in notes) == 1
    assert notes.count("Misbehave COMPLETE") == 1
    assert "Misbehave FAILED" not in notes
    assert log(home, result, "Misbehave").count("=== Misbehave: attempt") == 2


@pytest.mark.slow
def test_retries_come_to_an_end_and_keep_their_predicate(home: Home, pipe: Pipe) -> None:
    body = """
    n = Make()
    Misbehave.options(retries=2, backoff=0.01)(n, code='os._exit(1)')
    Misbehave.options(id='Not', retries=2, backoff=0.01, retry_on=['OSError'])(n, code='raise ValueError(1)')
    Misbehave.options(id='Late', retries=1, backoff=0.01, timeout=3, retry_on=['TimeoutError'])(
        n, code='time.sleep(300)')
    Misbehave.options(id='Asks', retries=1, backoff=0.01, retry_on=['rules:never'])(n, code='os._exit(2)')
    Misbehave.options(id='Broken', retries=1, backoff=0.01, retry_on=['rules:broken'])(n, code='os._exit(4)')
    """
    rules = "def never(error):\n    return False\n\ndef broken(error):\n    return 1 / 0\n"
    result = run_pipeline(home, pipe(body, rules=rules), options=TWO)
    # Where two die at once, the sweep after one may find the other first: what it abandons has its own record besides.
    ended = [e for e in home.store.executions(component="parts:Misbehave") if e.state != "ABANDONED"]
    tries = [str(e.properties["node"]) for e in ended]
    counted = {name: tries.count(name) for name in result.nodes if name != "Make"}
    assert counted == {"Misbehave": 3, "Not": 1, "Late": 2, "Asks": 1, "Broken": 1}
    assert result.nodes["Late"].reason == "ran longer than its timeout of 3 s"
    assert "whether to try again" in result.nodes["Broken"].reason
    # What it hung at is in its log.
    assert "time.sleep(300)" in log(home, result, "Late") or "<string>" in log(home, result, "Late")


def test_a_worker_that_dies_while_it_has_nothing_to_do_fails_no_task(home: Home, pipe: Pipe) -> None:
    """Out of memory, the kernel takes any process."""
    pids = "(current().base / f'{current().node}.pid').write_text(str(os.getpid()))\n"
    kills = f"""
{pids}
from drivetrain.metadata import MetadataStore
deadline = time.monotonic() + 120
with MetadataStore.open(current().base / '.drivetrain' / 'metadata.db', readonly=True) as store:
    while not any(e.properties['node'] == 'Idle' for e in store.executions(state='COMPLETE')):
        assert time.monotonic() < deadline
        time.sleep(0.02)
time.sleep(0.5)  # it says so; who does not get to say it has done its task all the same
os.kill(int((current().base / 'Idle.pid').read_text()), 9)
time.sleep(0.2)
"""
    body = f"""
    n = Make()
    killed = Misbehave(n, code={kills!r})
    Misbehave.options(id='Idle')(n, code={pids!r})
    Use(killed)
    Use.options(id='Use2')(killed, amount=2)
    """
    result = run_pipeline(home, pipe(body), options=TWO)
    assert result.state == "COMPLETE", [node.reason for node in result.nodes.values()]


def dying(monkeypatch: pytest.MonkeyPatch, node: str, how: str, times: int = 1) -> list[int]:
    """Have so many workers die that a task is handed to; gives which it was handed to.

    Args:
        monkeypatch: Until when.
        node: The task.
        how: "before" it is written, with it "unread", or when it was "heard" by the worker, which has said so.
        times: How many workers.
    """
    handed: list[int] = []
    send = Child.send

    def hand(self: Child, **message: object) -> None:
        if message.get("task") != node:
            send(self, **message)
            return
        handed.append(self.pid)
        if len(handed) > times:
            send(self, **message)
            return
        if how == "unread":
            os.kill(self.pid, signal.SIGSTOP)
        if how != "before":
            send(self, **message)
        if how == "heard":
            assert self._poll.poll(60_000)
        os.kill(self.pid, signal.SIGKILL)
        self._process.wait()
        if how == "before":
            send(self, **message)

    monkeypatch.setattr(Child, "send", hand)
    return handed


@pytest.mark.parametrize("node", ["Make", "Use"])  # whose worker is new, and has done the other one
@pytest.mark.parametrize("how", ["before", "unread"])
def test_a_task_goes_to_another_worker_where_one_dies_before_it_begins(
    home: Home, pipe: Pipe, monkeypatch: pytest.MonkeyPatch, node: str, how: str
) -> None:
    handed = dying(monkeypatch, node, how)
    result = run_pipeline(home, pipe("Use(Make())"), options=ONE)
    assert states(result) == {"Make": "COMPLETE", "Use": "COMPLETE"}, [each.reason for each in result.nodes.values()]
    assert len(set(handed)) == 2
    (execution,) = home.store.executions(component=f"parts:{node}")
    assert "retry" not in str(execution.properties["reason"])
    told = log(home, result, node)
    assert "ended by SIGKILL" in told
    assert "before the task began: another takes it" in told
    assert told.count(f"=== {node}: attempt 1") == 1


def test_a_task_whose_workers_all_die_before_it_begins_fails(
    home: Home, pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    handed = dying(monkeypatch, "Use", "unread", times=9)
    result = run_pipeline(home, pipe("Use(Make())"), options=ONE)
    assert states(result) == {"Make": "COMPLETE", "Use": "FAILED"}
    assert "ended by SIGKILL" in result.nodes["Use"].reason
    assert len(set(handed)) == len(handed) == 3
    assert [e.state for e in home.store.executions(component="parts:Use")] == ["FAILED"]


def test_a_task_that_may_have_begun_is_not_given_to_another(
    home: Home, pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    handed = dying(monkeypatch, "Misbehave", "heard")
    result = run_pipeline(home, pipe("Misbehave(Make(), code='time.sleep(60)')"), options=ONE)
    assert states(result) == {"Make": "COMPLETE", "Misbehave": "FAILED"}
    assert len(handed) == 1


def test_a_task_that_the_store_knows_of_has_begun_though_nothing_was_heard(
    home: Home, pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = Child.events

    def deaf(self: Child, seconds: float) -> list[dict[str, Any]] | None:
        found = events(self, seconds)
        return found and [event for event in found if event.get("node") != "Misbehave"]

    monkeypatch.setattr(Child, "events", deaf)
    code = "(current().base / 'count').open('a').write('x'); os.kill(os.getpid(), 9)"
    result = run_pipeline(home, pipe(f"Misbehave(Make(), code={code!r})"), options=ONE)
    assert states(result) == {"Make": "COMPLETE", "Misbehave": "FAILED"}
    assert (home.base / "count").read_text() == "x"


@pytest.mark.slow
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


def test_a_worker_that_cannot_begin_fails_its_task(home: Home, pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    result = run_pipeline(home, pipe("Make()"), options=ONE)
    assert result.state == "FAILED"
    assert "ended with status 1 before it could say how" in result.nodes["Make"].reason
    monkeypatch.setattr(sys, "executable", "/not/there")
    result = run_pipeline(home, pipe("Make()"), options=ONE)
    assert "No such file" in result.nodes["Make"].reason


def test_what_the_inline_runner_cannot_keep_is_refused_before_it_starts(home: Home, pipe: Pipe) -> None:
    for option in ("timeout=1", "env={'A': 'x'}", "accelerators=1"):
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
                    check_capabilities(Pipeline("p", (), (node,)), runner)
                    kept = True
                except DrivetrainError:
                    kept = False
            assert told[runner, option] == kept, (runner, option)
