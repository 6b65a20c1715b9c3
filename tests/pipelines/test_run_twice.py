"""Two runs at once, runs that are taken over, clocks that are set: nothing made twice, nothing out of order."""

from __future__ import annotations

import contextlib
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import pytest
from drivetrain import owner
from drivetrain.errors import InputError
from drivetrain.metadata import Owner, StagedArtifact
from drivetrain.metadata.dialect import microseconds
from drivetrain.metadata.fsck import fsck
from drivetrain.pipelines import (
    Home,
    PipelineFunction,
    list_runs,
    load_pipeline,
    resume,
    run_pipeline,
)
from drivetrain.pipelines.launcher.logs import Logs
from drivetrain.pipelines.launcher.observers import NullObserver
from drivetrain.pipelines.launcher.runs import close_run, reopen_run
from drivetrain.pipelines.launcher.states import RunState
from drivetrain.tests.pipelines import faulty

Shop: TypeAlias = PipelineFunction[..., object]
Outputs: TypeAlias = Mapping[str, Sequence[StagedArtifact]]
pytestmark = pytest.mark.usefixtures("nothing_runs_on")


def clean(home: Home) -> None:
    report = fsck(home.store, home.root)
    assert report.clean, report.to_dict()
    assert not list(home.payloads.staging.glob("*"))


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return faulty.write(tmp_path)


TWICE = """
n = Waits(Make(count=count), name="begun")
dt.map_(lambda item: Add(n, Make.options(id="Each")(count=item)), over=[11, 12, 13])
"""


def test_two_runs_at_once_make_everything_once(home: Home, tmp_path: Path) -> None:
    project = faulty.write(tmp_path, faulty.body(TWICE)).project
    both = [faulty.start(home, project, "inline"), faulty.start(home, project, "process")]
    faulty.waits(lambda: len(list_runs(home)) == 2 and (home.base / "begun").exists())
    (home.base / "go").touch()
    answers = [faulty.finish(process) for process in both]
    assert [answer["state"] for answer in answers] == ["COMPLETE"] * 2
    states = [{name: node["state"] for name, node in answer["nodes"].items()} for answer in answers]
    assert all({one, other} == {"COMPLETE", "CACHED"} for one, other in zip(*map(dict.values, states), strict=True))
    made = Counter((home.base / "lines.txt").read_text().splitlines())
    assert set(made.values()) == {1}, made
    assert len(home.store.artifacts()) == len(states[0])
    clean(home)


def test_runs_of_other_parameters_do_not_wait(home: Home, tmp_path: Path) -> None:
    project = faulty.write(tmp_path, faulty.body(TWICE)).project
    slow = faulty.start(home, project, values={"count": 1})
    faulty.appears(home.base / "begun", slow)
    (home.base / "begun").unlink()
    quick = faulty.start(home, project, values={"count": 2})
    faulty.appears(home.base / "begun", quick)  # while the first still waits
    (home.base / "go").touch()
    for process in (slow, quick):
        assert faulty.finish(process)["state"] == "COMPLETE"
    totals = {artifact.properties["total"] for artifact in home.store.artifacts(type="Numbers")}
    assert totals == {1, 2, 11, 12, 13, 14, 15}
    clean(home)


def test_a_run_at_work_is_not_resumed_and_a_killed_one_once(home: Home, tmp_path: Path) -> None:
    project = faulty.write(tmp_path, faulty.body(TWICE)).project
    process = faulty.start(home, project)
    faulty.appears(home.base / "begun", process)
    with pytest.raises(InputError, match=f"being worked on by process {process.pid}"):
        resume(home)
    faulty.kill(process)
    both = [faulty.start(home, project, "resume") for _ in range(2)]
    faulty.waits(lambda: any(one.poll() is not None for one in both))
    refused = next(one for one in both if one.poll() is not None)
    _, err = refused.communicate()
    assert "being worked on by process" in err
    (home.base / "go").touch()
    (other,) = [one for one in both if one is not refused]
    assert faulty.finish(other)["state"] == "COMPLETE"
    assert [run.state for run in list_runs(home)] == ["COMPLETE"]
    clean(home)


def test_a_worker_that_outlives_its_run_has_done_its_task(home: Home, tmp_path: Path) -> None:
    """It notices that it was orphaned, and its component does not; whoever resumes takes what it makes."""
    text = faulty.body("Add(Stubborn.options(cache=False)(Make(count=count)))")
    project = faulty.write(tmp_path, text).project
    process = faulty.start(home, project, "process")
    faulty.appears(home.base / "begun", process)
    faulty.kill(process)
    assert faulty.shown(home) == {"": "INTERRUPTED", "Make": "COMPLETE", "Stubborn": "RUNNING", "Add": "CANCELED"}
    process = faulty.start(home, project, "resume")
    log = Logs(home.root, list_runs(home)[0].id).path("Stubborn")
    faulty.waits(lambda: "which does the same work" in log.read_text() or process.poll() is not None)
    (home.base / "go").touch()
    answer = faulty.finish(process)
    assert answer["state"] == "COMPLETE"
    assert (home.base / "lines.txt").read_text().split() == ["Make", "Stubborn", "Add"]
    clean(home)


def test_of_two_that_take_a_run_over_one_is_refused(home: Home, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other wins between the look and the change."""
    run_pipeline(home, shop)
    before = list_runs(home)[0]
    other = {**Owner.current().to_dict(), "pid": 1, "start_time": ""}  # a process that lives
    home.store.update_context(before.context, {"state": "RUNNING", "owner": other})
    with pytest.raises(InputError, match="being worked on by process 1"):
        reopen_run(home, before)
    close_run(home, before, RunState.FAILED)  # nor may it say how the other's work ended
    assert list_runs(home)[0].state == "RUNNING"


@pytest.mark.parametrize("runner", ["inline", "process"])
def test_another_host_leaves_a_run_alone_while_a_retry_is_waited_for(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runner: str
) -> None:
    """No task of it is at work then; a host that died is followed once its lease is over."""
    text = faulty.body("Flaky.options(retries=1, backoff=300)(Make(count=count))")
    process = faulty.start(home, faulty.write(tmp_path, text).project, runner)
    faulty.waits(lambda: home.store.executions(state="FAILED") or process.poll() is not None)
    assert not home.store.executions(state="RUNNING")
    with monkeypatch.context() as there, contextlib.ExitStack() as after:
        after.callback(process.kill)
        there.setattr("drivetrain.owner._host", lambda: "elsewhere")
        there.setattr("drivetrain.owner._current", owner._current.__wrapped__)
        assert Owner.current().host == "elsewhere"
        assert list_runs(home)[0].state == "RUNNING"
        with pytest.raises(InputError, match="being worked on by process"):
            resume(home)
        faulty.kill(process)
        with home.store._db.write() as transaction:
            transaction.run("UPDATE claim SET expires_at = 0")
        assert resume(home).state == "COMPLETE"
    assert not home.store.claims()
    clean(home)


def test_a_run_holds_nothing_once_it_is_over(home: Home, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[str] = []

    class Looks(NullObserver):
        def started(self, node: str) -> None:
            held.extend(claim.cache_key for claim in home.store.claims())

    result = run_pipeline(home, shop, observer=lambda run: Looks())
    assert f"run/{result.run}" in held
    assert not home.store.claims()
    monkeypatch.setattr("drivetrain.pipelines.runners.inline.run_inline", lambda *_: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        run_pipeline(home, shop)
    assert not home.store.claims()


# -- a clock that is set


def test_history_follows_what_happened_not_the_clock(home: Home, tmp_path: Path) -> None:
    """Each run an hour before the one before it; and an hour forward within a run."""
    text = faulty.body("""
        n = Make(count=count)
        dt.map_(lambda item: Make.options(id="Each", cache=False)(count=item), over=[1])
        Latest(dt.latest(Numbers, node="Make"), made=n)
    """)
    function = faulty.write(tmp_path, text)
    parts = function.project / "parts.py"
    more = "@dt.component\ndef Latest(seen: Numbers | None = None, made: Numbers | None = None) -> int:\n"
    parts.write_text(parts.read_text() + more + "    return seen.total if seen else -1\n")
    function = load_pipeline(function.project)
    offset = 0.0
    home.store._db.clock = lambda: microseconds() + round(offset * 1e6)
    seen = []
    for count in (10, 20, 30):
        result = run_pipeline(home, function, {"count": count})
        seen.append(result.nodes["Latest"].outputs["value"][0].properties["value"])
        offset -= 3600
    assert seen == [-1, 10, 20]
    assert [run.parameters["count"] for run in list_runs(home)] == [30, 20, 10]
    assert all((execution.seconds or 0) >= 0 for execution in home.store.executions())


@pytest.mark.skipif(shutil.which("faketime") is None, reason="needs faketime")
def test_a_process_whose_clock_is_an_hour_slow_sees_what_came_before(home: Home, tmp_path: Path) -> None:
    text = faulty.body('Add(Make(count=count), dt.latest(Numbers, node="Make"))')
    function = faulty.write(tmp_path, text)
    assert run_pipeline(home, function, {"count": 1}).state == "COMPLETE"
    slow = ("faketime", "-f", "-1h")
    answer = faulty.finish(faulty.start(home, function.project, values={"count": 2}, under=slow))
    assert answer["state"] == "COMPLETE"
    newest, older = list_runs(home)
    assert (newest.id, older.parameters["count"]) == (answer["run"], 1)
    assert newest.context.created_at < older.context.created_at
    (added,) = home.store.executions(context=newest.context, component="parts:Add")
    assert home.store.outputs(added)["numbers"][0].properties["total"] == 3
    assert (added.seconds or 0) >= 0
    clean(home)
