"""Trials in the store: live, killed, stopped, resumed, brought in elsewhere; and nothing takes one for a task."""

from __future__ import annotations

import json
import math
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any
from unittest.mock import patch

import attr
import drivetrain as dt
import pytest
from click.testing import CliRunner
from drivetrain.console.cli import cli
from drivetrain.metadata import ContextRecord, ExecutionRecord, MetadataStore, StoreUnavailable
from drivetrain.metadata.finding import RecordQuery
from drivetrain.metadata.remote.client import KEY
from drivetrain.pipelines import Home, PipelineFunction, RunOptions, open_run, resume, run_pipeline
from drivetrain.pipelines.launcher import run_records
from drivetrain.pipelines.openlineage import LineageEvents
from drivetrain.tests.data.postgres import server
from drivetrain.tests.metadata.remote.server import MetadataServerProcess

__all__ = ["server"]
pytest.importorskip("optuna")
pytest.importorskip("pandas")
pytest.importorskip("openlineage.client")
Pipe = Callable[..., PipelineFunction[..., object]]

SEEK = """
import drivetrain as dt
from drivetrain.tests.pipelines.seeking import seek
from .parts import Numbers, made

@dt.component
def Seek(
    numbers: Numbers, *, folder: str, store: str, trials: int, parallel: int = 1, events: dict[str, list[int]] = {}
) -> Numbers:
    return made(seek(folder, store, trials, parallel, events))
"""


@pytest.fixture
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Home]:
    """A root whose metadata lies in SQLite, or where the test's parameter says."""
    with ExitStack() as until_the_end:
        store = None
        if (where := getattr(request, "param", None)) == "postgres":
            store = request.getfixturevalue("server")
        elif where == "remote":
            process = MetadataServerProcess(tmp_path)
            process.start()
            until_the_end.callback(process.end)
            request.getfixturevalue("monkeypatch").setenv(KEY, process.secret("tests"))
            store = process.namespace("trials", tmp_path / "metadata.db")
        yield until_the_end.enter_context(closing(Home(tmp_path / "home" / ".drivetrain", store=store)))


@pytest.fixture
def seek(home: Home, pipe: Pipe, tmp_path: Path) -> Callable[..., PipelineFunction[..., object]]:
    """`seek(**what Seek takes)` is a pipeline with a search, and a task before and after it."""
    folder = tmp_path / "folder"
    folder.mkdir()

    def write(retries: int = 0, **parameters: Any) -> PipelineFunction[..., object]:
        facts = {"folder": str(folder), "store": home.store.location, "trials": 8, **parameters}
        named = ", ".join(f"{name}={value!r}" for name, value in facts.items())
        body = f"""
            from .seek import Seek
            Use(Seek.options(retries={retries}, backoff=0)(Make(count=count), {named}))
        """
        return pipe(body, seek=SEEK)

    return write


def trials(store: MetadataStore) -> list[ExecutionRecord]:
    """The oldest first."""
    return store.executions(component="Trial")[::-1]


def numbered_states(store: MetadataStore) -> list[tuple[int, str]]:
    return [(each.properties["number"], each.state) for each in trials(store)]


def search_of(store: MetadataStore) -> ContextRecord:
    """The only search, which all trials are in, and in no other context."""
    [context] = store.contexts("search")
    assert {each.id for each in store.executions(context=context)} == {each.id for each in trials(store)}
    assert all(store.contexts_of(each) == [context] for each in trials(store))
    return context


def tasks(store: MetadataStore, run: str) -> list[tuple[str, str]]:
    context = store.find_context("run", run)
    assert context is not None
    return [(each.properties["node"], each.state) for each in store.executions(context=context)[::-1]]


@pytest.mark.parametrize(
    "home",
    [
        "sqlite",
        pytest.param("postgres", marks=(pytest.mark.postgres, pytest.mark.slow)),
        pytest.param("remote", marks=pytest.mark.slow),
    ],
    indirect=True,
)
def test_each_trial_is_an_execution_and_none_is_a_task(home: Home, seek: Pipe) -> None:
    pipeline = seek(events={"fail": [1], "prune": [2], "look": [3]}, trials=5)
    result = run_pipeline(home, pipeline)
    store = home.store
    assert tasks(store, result.run) == [("Make", "COMPLETE"), ("Seek", "COMPLETE"), ("Use", "COMPLETE")]
    assert numbered_states(store) == [(0, "COMPLETE"), (1, "FAILED"), (2, "CANCELED"), (3, "COMPLETE"), (4, "COMPLETE")]
    log = (home.root / "logs" / result.run / "Seek.log").read_text()
    assert "the store says ['RUNNING', 'CANCELED', 'FAILED', 'COMPLETE']" in log

    [task] = store.executions(component="seek:Seek")
    context = search_of(store)
    assert (context.name, task.properties["search"]) == (task.uid, task.uid)
    assert [each.name for each in store.parents(context)] == [result.run]
    for trial in trials(store):
        assert store.inputs(trial) == store.inputs(task)
        assert store.outputs(trial) == {}
        about = trial.properties
        assert (about["run"], about["node"], about["seed"]) == (result.run, "Seek", 3)
        assert about["hyperparameters"].keys() == {"fixed", "x"}
        assert trial.seconds == 0.5
        reached = about["hyperparameters"]["x"] ** 2
        expected = {"COMPLETE": ({"eval_loss": reached}, 2, None),
                    "CANCELED": ({"eval_loss": reached + 1}, 1, "others do better after epoch 1"),
                    "FAILED": ({}, 0, "it diverged")}  # fmt: skip
        assert (dict(trial.metrics), about["epochs"], trial.error) == expected[trial.state]

    complete = [each for each in trials(store) if each.state == "COMPLETE"]
    best = min(complete, key=lambda each: each.metrics["eval_loss"] or math.nan)

    def find(where: str, **options: Any) -> list[int]:
        return [each.id for each in store.find_executions(RecordQuery(where, **options)).records]

    query = f"component = 'Trial' and state = 'COMPLETE' and property.run = '{result.run}'"
    assert find(query, order="metric.eval_loss", limit=1) == [best.id]
    far = [each.id for each in trials(store) if each.properties["hyperparameters"]["x"] > 0]
    assert find(f"search = '{task.uid}' and property.hyperparameters.x > 0", order="id") == far
    assert len(find(f"run = '{result.run}'")) == len(find("search is null")) == 3

    dead = store.find_executions(RecordQuery("state = 'ABANDONED' and search is not null", order="state"), [best.id])
    assert [each.id for each in dead.records] == [best.id]

    frame = dt.find("executions", query, home.root, store.location, order="metric.eval_loss", limit=1)
    assert frame["uid"].tolist() == [best.uid]
    assert frame["node"].tolist() == ["Seek"]
    assert frame["properties.hyperparameters.x"].tolist() == [best.properties["hyperparameters"]["x"]]

    numbers = store.inputs(task)["numbers"][0]
    for hops in (None, 9):
        consumers = store.lineage(numbers, "downstream", max_hops=hops).executions.values()
        assert [each.component for each in consumers] == ["seek:Seek", "parts:Use"]
    assert store.lineage(best, "upstream").artifacts.keys() == {numbers.id}
    assert find(f"made_from = '{numbers.uri}' and search is not null", order="id") == [
        each.id for each in trials(store)
    ]

    again = run_pipeline(home, pipeline)
    assert tasks(store, again.run) == [("Make", "CACHED"), ("Seek", "CACHED"), ("Use", "CACHED")]
    assert len(trials(store)) == 5


def test_what_is_listed_is_what_it_is_without_trials(home: Home, seek: Pipe) -> None:
    """Each listing of the store, and of a copy of which every row of a trial was removed."""
    pipeline = seek(trials=3, events={"fail": [0]})
    run_pipeline(home, pipeline, {"count": 1})
    result = run_pipeline(home, pipeline)
    without = home.root / "without.db"
    with closing(sqlite3.connect(without)) as copy:
        with closing(sqlite3.connect(home.root / "metadata.db")) as whole:
            whole.backup(copy)
        ids = [(each.id,) for each in trials(home.store)]
        for table, column in (("association", "execution_id"), ("event", "execution_id"), ("execution", "id")):
            assert copy.executemany(f"DELETE FROM {table} WHERE {column} = ?", ids).rowcount >= 6
        copy.commit()

    def invoke(*arguments: str) -> str:
        answer = CliRunner().invoke(cli, [*arguments, "--root", str(home.root), "--json"])
        assert answer.exit_code == 0, answer.output
        return answer.stdout

    policy = str(home.root / "keep.yaml")
    listings = (
        ("runs",), ("show", result.run), ("lineage", "Make", "--down"), ("lineage", "Use"), ("cost",), ("logs",),
        ("why", "Seek"), ("gc", "--policy", policy), ("fsck",), ("find", "runs", "metric.eval_loss < 9"),
        ("find", "executions", f"run = '{result.run}'"), ("find", "executions", "node = 'shop.Seek'"),
    )  # fmt: skip
    (home.root / "keep.yaml").write_text("rules:\n- {keep_last: 1}\ngrace: 0\n")
    for listing in listings:
        texts = []
        for store in ([], ["--store", str(without)]):
            texts.append(invoke(*listing, *store))
        assert texts[0] == texts[1]
        assert "Trial" not in texts[0]
    copied = Home(home.root, store=str(without))
    events = [[*LineageEvents(each, "tests").of(open_run(each, result.run))] for each in (home, copied)]
    copied.close()
    assert [attr.asdict(each) for each in events[0]] == [attr.asdict(each) for each in events[1]]
    assert json.loads(invoke("gc", "--policy", policy, "--apply"))["deleted"]
    assert [each.state for each in home.store.artifacts(state=None)] == ["LIVE"] * 3 + ["DELETED"] * 2
    assert json.loads(invoke("fsck"))["missing"] == []
    assert len(trials(home.store)) == 6


@pytest.mark.parametrize("runner", ["inline", "process"])
def test_three_of_eight_trials_are_killed(home: Home, seek: Pipe, runner: str) -> None:
    result = run_pipeline(home, seek(parallel=2, events={"die": [1, 4, 6]}), options=RunOptions(runner=runner))
    store = home.store
    assert tasks(store, result.run) == [("Make", "COMPLETE"), ("Seek", "COMPLETE"), ("Use", "COMPLETE")]
    assert sorted(numbered_states(store)) == sorted(
        [(number, "COMPLETE") for number in range(8)] + [(number, "ABANDONED") for number in (1, 4, 6)]
    )
    search_of(store)
    dead = [each for each in trials(store) if each.state == "ABANDONED"]
    assert all((each.error or "").startswith("its process died: it was ended by SIGKILL") for each in dead)
    for each in dead:
        [retried] = [
            trial
            for trial in trials(store)
            if trial.properties["number"] == each.properties["number"] and trial != each
        ]
        assert retried.properties["hyperparameters"] == each.properties["hyperparameters"]
        assert retried.id > each.id


def test_a_search_whose_process_is_killed_goes_on_with_its_trials(home: Home, seek: Pipe) -> None:
    """In trial 2; and then between what its study and what the store know of trial 3."""
    pipeline = seek(trials=5, retries=2, events={"die": [2], "forget": [3]})
    result = run_pipeline(home, pipeline, options=RunOptions(runner="process"))
    store = home.store
    assert result.state == "COMPLETE"
    ends = [(0, "COMPLETE"), (1, "COMPLETE"), (2, "ABANDONED"), (2, "COMPLETE"), (3, "ABANDONED"), (3, "COMPLETE")]
    assert numbered_states(store) == [*ends, (4, "COMPLETE")]
    context = search_of(store)
    searches = store.executions(component="seek:Seek")[::-1]
    assert [each.state for each in searches] == ["FAILED", "FAILED", "COMPLETE"]
    assert context.name == searches[0].uid == searches[-1].properties["search"]
    caught_up = trials(store)[5]
    assert caught_up.metrics == {"eval_loss": caught_up.properties["hyperparameters"]["x"] ** 2}


def test_a_trial_that_always_ends_the_search_with_it_fails_and_the_search_goes_on(home: Home, seek: Pipe) -> None:
    pipeline = seek(trials=3, retries=3, events={"exit": [1]})
    result = run_pipeline(home, pipeline, options=RunOptions(runner="process"))
    assert result.state == "COMPLETE"
    store = home.store
    assert [each.state for each in store.executions(component="seek:Seek")] == ["COMPLETE", *["FAILED"] * 3]
    assert numbered_states(store) == [(0, "COMPLETE"), *[(1, "ABANDONED")] * 3, (2, "COMPLETE")]
    search_of(store)
    log = (home.root / "logs" / result.run / "Seek.log").read_text()
    cause = r"the search, in the same process, ended with it \(a kill, a crash, or too little memory\)"
    assert len(re.findall(f"trial 1 is trained again, as its process died: {cause}", log)) == 2
    assert len(re.findall(f"trial 1 failed: its process was ended 3 times: {cause}", log)) == 1


def test_a_search_that_is_stopped_and_resumed_goes_on_with_its_trials(home: Home, seek: Pipe) -> None:
    pipeline = seek(trials=4, events={"stop": [1]})
    assert run_pipeline(home, pipeline).state == "CANCELED"
    assert numbered_states(home.store) == [(0, "COMPLETE"), (1, "ABANDONED")]
    assert trials(home.store)[1].error == "the search was stopped"
    assert resume(home).state == "COMPLETE"
    assert numbered_states(home.store)[2:] == [(1, "COMPLETE"), (2, "COMPLETE"), (3, "COMPLETE")]
    search_of(home.store)


@pytest.mark.parametrize("operation", ["start", "publish", "finish"])
def test_what_a_store_did_not_take_it_gets_at_the_end(home: Home, seek: Pipe, operation: str) -> None:
    """It is away as trial 1, which fails, begins, as trial 0 completes, or as trial 1 ends."""
    real = getattr(MetadataStore, operation)
    at_fault = {"start": 1, "publish": 0, "finish": 1}[operation]
    refused: list[Any] = []

    def refuse(this: MetadataStore, first: Any, *arguments: Any, **named: Any) -> Any:
        about = named["properties"] if operation == "start" else first.properties
        if about.get("number") == at_fault and not refused:
            refused.append(about)
            raise StoreUnavailable("the server does not answer", fix="wait")
        return real(this, first, *arguments, **named)

    with patch.object(MetadataStore, operation, refuse):
        result = run_pipeline(home, seek(trials=3, events={"fail": [1]}))
    assert len(refused) == 1
    assert result.state == "COMPLETE"
    assert sorted(numbered_states(home.store)) == [(0, "COMPLETE"), (1, "FAILED"), (2, "COMPLETE")]
    assert (
        f"trial {at_fault} " in (home.root / "logs" / result.run / "Seek.log").read_text().partition("not recorded")[0]
    )


def test_a_store_that_is_lost_gets_the_trials_back(home: Home, seek: Pipe) -> None:
    """From the records beside the payloads, as it does what pods recorded that could not reach it."""
    result = run_pipeline(home, seek(trials=3, events={"fail": [1]}))
    (home.root / "artifacts").rename(home.root / "away")
    other = Home(home.root, store=str(home.root / "other.db"))
    (home.root / "away").rename(home.root / "artifacts")
    first, second = run_records.sync(other, result.run), run_records.sync(other, result.run)
    assert sorted(first.brought) == ["Make", "Seek", "Use"]
    assert (second.brought, second.known, second.ignored) == ((), 3, ())
    assert tasks(other.store, result.run) == tasks(home.store, result.run)
    assert numbered_states(other.store) == numbered_states(home.store)
    here, there = trials(home.store), trials(other.store)
    assert [each.uid for each in there] == [each.uid for each in here]
    assert [each.properties for each in there] == [each.properties for each in here]
    assert [each.name for each in other.store.parents(search_of(other.store))] == [result.run]
    other.close()
