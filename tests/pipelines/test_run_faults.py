"""Runs that are cut down at a given step, or stopped by a person: nothing lost, nothing twice."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from drivetrain.errors import InputError
from drivetrain.metadata import MetadataStore, StagedArtifact
from drivetrain.metadata.fsck import fsck
from drivetrain.pipelines import (
    Home,
    PipelineFunction,
    decide,
    list_runs,
    resume,
    run_pipeline,
    waiting_tasks,
)
from drivetrain.pipelines.launcher.logs import Logs
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


@pytest.mark.parametrize("cut", ["renamed/Pair", "recorded/Small", "committed/Last"])
def test_a_run_that_is_killed_at_a_step_is_finished(
    home: Home, shop: Shop, undisturbed: dict[str, list[str]], cut: str
) -> None:
    process = faulty.start(home, shop.project, cut=cut)
    process.communicate(timeout=120)
    assert process.returncode == -9
    before = faulty.shown(home)
    assert before[""] == "INTERRUPTED"
    assert "RUNNING" not in before.values()
    faulty.settled(home, resume(home), undisturbed)
    assert (home.base / "lines.txt").read_text().splitlines().count("Last COMPLETE") == 1


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("last", [False, True])
def test_a_stop_while_a_node_is_published_tells_what_the_store_does(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str, last: bool
) -> None:
    function = faulty.write(tmp_path, faulty.body("n = Make(count=count)" + ("" if last else "\nAdd(n)")))
    publish = MetadataStore.publish

    def stopped(store: MetadataStore, *given: Any, **named: Any) -> object:  # Any: whatever it takes
        monkeypatch.setattr(MetadataStore, "publish", publish)
        if when == "after":
            publish(store, *given, **named)
        raise KeyboardInterrupt

    monkeypatch.setattr(MetadataStore, "publish", stopped)
    result = run_pipeline(home, function)
    assert result.nodes["Make"].state == ("COMPLETE" if when == "after" else "CANCELED")
    assert result.state == ("COMPLETE" if last and when == "after" else "CANCELED")
    assert faulty.shown(home) == {"": result.state, **{name: node.state for name, node in result.nodes.items()}}
    log = Logs(home.root, result.run).path("Make").read_text()
    assert f"=== Make: {result.nodes['Make'].state} after" in log
    clean(home)
    again = resume(home)
    assert (again.state, len(home.store.artifacts())) == ("COMPLETE", 1 if last else 2)
    clean(home)


@pytest.mark.parametrize("cache", [True, False])
def test_a_stop_while_a_node_begins_leaves_nothing_running(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: bool
) -> None:
    function = faulty.write(tmp_path, faulty.body(f"Make.options(cache={cache})(count=count)"))
    start = MetadataStore.start

    def stopped(store: MetadataStore, *given: Any, **named: Any) -> object:  # Any: whatever it takes
        monkeypatch.setattr(MetadataStore, "start", start)
        start(store, *given, **named)
        raise KeyboardInterrupt

    monkeypatch.setattr(MetadataStore, "start", stopped)
    result = run_pipeline(home, function)
    assert (result.state, result.nodes["Make"].state) == ("CANCELED", "CANCELED")
    assert faulty.shown(home) == {"": "CANCELED", "Make": "CANCELED"}
    assert not home.store.executions(state="RUNNING")
    clean(home)
    assert resume(home).state == "COMPLETE"
    clean(home)


LOOP = """
n = Make(count=count)
dt.map_(lambda item: Add(Waits.options(cache=False)(n, name="begun")), over=[1, 2, 3])
with dt.on_exit() as run:
    Last.options(cache=False)(state=run.state)
"""
PAUSE = """
Flaky.options(retries=1, backoff=600)(Make(count=count))
with dt.on_exit() as run:
    Last.options(cache=False)(state=run.state)
"""
EXIT = """
n = Make(count=count)
Waits(n, name="before")
with dt.on_exit() as run:
    Waits.options(id="Exits", cache=False)(Make.options(id="Own")(count=1), name="begun")
    Last.options(cache=False)(state=run.state)
"""
ASKS = """
from drivetrain.components import Approval
Add(Make(count=count))
with dt.when(Approval().approved):
    Make.options(id="Pushed")(count=1)
with dt.on_exit() as run:
    Last.options(cache=False)(state=run.state)
"""


def lines(home: Home) -> list[str]:
    path = home.base / "lines.txt"
    return [line for line in path.read_text().splitlines() if line.startswith("Last")] if path.exists() else []


@pytest.mark.slow
@pytest.mark.parametrize("runner", ["inline", "process"])
def test_ctrl_c_in_a_loop_runs_what_is_on_exit(home: Home, tmp_path: Path, runner: str) -> None:
    process = faulty.start(home, faulty.write(tmp_path, faulty.body(LOOP)).project, runner)
    faulty.appears(home.base / "begun", process)
    process.send_signal(signal.SIGINT)
    answer = faulty.finish(process)
    assert answer["state"] == "CANCELED"
    states = {name: node["state"] for name, node in answer["nodes"].items()}
    alone = {name: state for name, state in states.items() if "[" not in name}
    assert alone == {"Make": "COMPLETE", "Last": "COMPLETE"}
    assert {state for name, state in states.items() if "[" in name} == {"CANCELED"}
    assert lines(home) == ["Last CANCELED"]
    assert faulty.shown(home) == {"": "CANCELED", **states}
    (home.base / "go").touch()
    result = resume(home)
    assert result.state == "COMPLETE"
    assert lines(home) == ["Last CANCELED", "Last COMPLETE"]
    assert result.nodes.keys() == states.keys()
    clean(home)


@pytest.mark.parametrize("runner", ["inline", "process"])
def test_ctrl_c_in_a_pause_between_attempts_ends_it(home: Home, tmp_path: Path, runner: str) -> None:
    process = faulty.start(home, faulty.write(tmp_path, faulty.body(PAUSE)).project, runner)
    faulty.waits(lambda: home.store.executions(state="FAILED") or process.poll() is not None)
    assert faulty.shown(home)[""] == "RUNNING"
    process.send_signal(signal.SIGINT)
    answer = faulty.finish(process)
    assert answer["state"] == "CANCELED"
    assert answer["nodes"]["Flaky"]["state"] == "CANCELED"
    assert lines(home) == ["Last CANCELED"]
    assert faulty.shown(home)[""] == "CANCELED"
    result = resume(home)
    assert result.state == "COMPLETE"
    clean(home)


@pytest.mark.slow
@pytest.mark.parametrize("runner", ["inline", "process"])
def test_a_second_ctrl_c_skips_what_is_on_exit(home: Home, tmp_path: Path, runner: str) -> None:
    process = faulty.start(home, faulty.write(tmp_path, faulty.body(EXIT)).project, runner)
    faulty.appears(home.base / "before", process)
    process.send_signal(signal.SIGINT)
    faulty.appears(home.base / "begun", process)
    process.send_signal(signal.SIGTERM)
    answer = faulty.finish(process)
    assert answer["state"] == "CANCELED"
    assert {name: answer["nodes"][name]["state"] for name in ("Make", "Waits", "Exits")} == {
        "Make": "COMPLETE", "Waits": "CANCELED", "Exits": "CANCELED"
    }  # fmt: skip
    assert faulty.shown(home)[""] == "CANCELED"
    (home.base / "go").touch()
    assert resume(home).state == "COMPLETE"
    assert lines(home)[-1] == "Last COMPLETE"
    clean(home)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_run_that_waits_for_a_person_goes_on_after_it_was_ended(
    home: Home, tmp_path: Path, number: signal.Signals
) -> None:
    process = faulty.start(home, faulty.write(tmp_path, faulty.body(ASKS)).project)
    faulty.waits(lambda: list_runs(home) and waiting_tasks(home, list_runs(home)[0]) == ["Approval"])
    process.send_signal(number)
    process.communicate(timeout=120)
    (run,) = list_runs(home)
    assert run.state == ("INTERRUPTED" if number == signal.SIGKILL else "CANCELED")
    decide(home, run, "Approval", approved=True, by="ada")
    with pytest.raises(InputError, match="was approved by ada before"):
        decide(home, run, "Approval", approved=False, by="bob")
    result = resume(home)
    assert result.state == "COMPLETE"
    assert result.nodes["Pushed"].state == "COMPLETE"
    assert lines(home)[-1] == "Last COMPLETE"
    clean(home)
