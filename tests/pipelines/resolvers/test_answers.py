"""The same answer for a whole run, whatever runs beside it."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from drivetrain.metadata import MetadataStore
from drivetrain.pipelines import (
    Home,
    RunOptions,
    RunResult,
    resume,
    run_pipeline,
)
from drivetrain.pipelines.resolvers.answers import Answers
from drivetrain.tests.pipelines.history import Pipe, history, load, states, value


@pytest.fixture
def shop(pipe: Pipe) -> Pipe:
    return history(pipe)


def test_what_another_run_publishes_meanwhile_is_not_seen(home: Home, shop: Pipe, tmp_path: Path) -> None:
    load(home, shop, 1, 2)
    until = tmp_path / "until"
    body = f"""
        done = Wait(until={str(until)!r})
        Show.options(after=[done])(dt.resolvers.rolling(Examples, 9, min_spans=1, node="Load"))
        Show.options(id="Mine", after=[done])(dt.resolvers.all_spans(Load(span=7)))
    """
    slow = shop(body)
    found: list[RunResult] = []
    thread = threading.Thread(target=lambda: found.append(run_pipeline(Home(home.root), slow)))
    thread.start()
    while not Path(f"{until}.waits").exists():
        time.sleep(0.02)
    load(home, shop, 3)
    until.touch()
    thread.join()
    assert found[0].state == "COMPLETE", {name: node.reason for name, node in found[0].nodes.items()}
    assert (value(found[0], "Show"), value(found[0], "Mine")) == (["1", "2"], ["1", "2", "7"])
    assert value(run_pipeline(home, shop("Show(dt.resolvers.all_spans(Examples))\nOne()")), "Show") == [
        "1",
        "2",
        "3",
        "7",
    ]


def test_a_run_that_ends_meanwhile_changes_no_answer(home: Home, shop: Pipe, tmp_path: Path) -> None:
    """A run that began before and is COMPLETE only now counts for the next run, not for this one's second attempt."""
    load(home, shop, 1)
    until, mended = tmp_path / "until", tmp_path / "mended"
    older = shop(f"Load(span=2)\nWait(until={str(until)!r})")
    thread = threading.Thread(target=lambda: run_pipeline(Home(home.root), older))
    thread.start()
    while not Path(f"{until}.waits").exists() or len(home.store.artifacts(type="Examples")) < 2:
        time.sleep(0.02)
    body = (
        "Load(span=9)\n"
        f"Stop(dt.resolvers.rolling(Examples, 9, min_spans=1, node='Load', passed=True), until={str(mended)!r})"
    )
    assert run_pipeline(home, shop(body)).nodes["Stop"].state == "FAILED"
    until.touch()
    thread.join()
    mended.touch()
    assert value(resume(home), "Stop") == ["1"]
    assert value(run_pipeline(home, shop(body)), "Stop") == ["1", "2", "9"]


def test_what_a_run_made_after_this_one_began_is_not_seen_though_it_passed(
    home: Home, shop: Pipe, tmp_path: Path
) -> None:
    load(home, shop, 1)
    began, asks = tmp_path / "began", tmp_path / "asks"
    bodies = {
        began: f"Load.options(after=[Wait(until={str(began)!r})])(span=2)",
        asks: f"done = Wait(until={str(asks)!r})\nLoad(span=9)\n"
        "Show.options(after=[done])(dt.resolvers.all_spans(Examples, node='Load', passed=True))\n"
        "One.options(after=[done])(dt.latest(Examples, node='Load', passed=True))",
    }
    results: dict[Path, RunResult] = {}
    threads = []
    for until, body in bodies.items():  # the one that asks is the younger one
        function = shop(body)
        run = threading.Thread(
            target=lambda until=until, function=function: results.update(
                {until: run_pipeline(Home(home.root), function)}
            ),
            daemon=True,
        )
        run.start()
        threads.append(run)
        while not Path(f"{until}.waits").exists():
            assert run.is_alive(), results
            time.sleep(0.02)
    for until, run in zip(bodies, threads, strict=True):
        until.touch()
        run.join()
    assert [result.state for result in results.values()] == ["COMPLETE", "COMPLETE"]
    assert (value(results[asks], "Show"), value(results[asks], "One")) == (["1"], 1)


def test_a_skip_stays_a_skip_when_resumed(home: Home, shop: Pipe, tmp_path: Path) -> None:
    mended = tmp_path / "mended"
    body = f"mine = Load(span=2)\nShow(dt.resolvers.rolling(mine, 2))\nStop([mine], until={str(mended)!r})"
    assert states(run_pipeline(home, shop(body))) == {"Load": "COMPLETE", "Show": "SKIPPED", "Stop": "FAILED"}
    run = home.store.contexts("run")[0].name
    load(home, shop, 1)
    mended.touch()
    shop(body)  # as it was built for that run
    again = resume(home, run)
    assert states(again) == {"Load": "COMPLETE", "Show": "SKIPPED", "Stop": "COMPLETE"}


def test_what_was_chosen_and_is_deleted_since_is_told(home: Home, shop: Pipe, tmp_path: Path) -> None:
    load(home, shop, 1)
    mended = tmp_path / "mended"
    body = f"Stop(dt.resolvers.rolling(Load(span=2), 2), until={str(mended)!r})"
    run_pipeline(home, shop(body))
    (first,) = [one for one in home.store.artifacts(type="Examples") if one.properties["span"] == 1]
    home.store.update_artifact(first, state="DELETED")
    mended.touch()
    reason = resume(home).nodes["Stop"].reason
    assert f"{first.uri}, which dt.resolvers.rolling(...) gave this run, has been deleted since" in reason


def test_of_two_who_ask_at_once_both_hear_the_first(tmp_path: Path) -> None:
    stores = [MetadataStore.open(tmp_path / "metadata.db") for _ in range(4)]
    run = stores[0].context("run", "one")
    barrier = threading.Barrier(len(stores))
    heard: list[object] = []

    def ask(number: int) -> None:
        def answer() -> int:
            barrier.wait()  # nobody has an answer before all were asked
            return number

        heard.append(Answers(stores[number], run).once(["what"], answer))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(len(stores))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(heard) == len(stores)
    assert len(set(map(str, heard))) == 1
    for store in stores:
        store.close()


@pytest.mark.parametrize("runner", ["process", pytest.param("beam", marks=pytest.mark.beam)])
def test_in_processes_of_their_own(home: Home, shop: Pipe, runner: str) -> None:
    load(home, shop, 1, 2)
    body = """
        mine = Load(span=count)
        Show(dt.resolvers.rolling(mine, 3))
        dt.map_(lambda window: Texts(window), over=dt.loops.sliding(mine, 2))
        Show.options(id="Absent")(dt.resolvers.rolling(mine, 5))
    """
    result = run_pipeline(home, shop(body), {"count": 3}, options=RunOptions(runner=runner))
    assert (value(result, "Show"), value(result, "Texts[1]")) == (["1", "2", "3"], ["2 ", "3 "])
    assert result.nodes["Absent"].state == "SKIPPED"
