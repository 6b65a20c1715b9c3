"""`bless` and `unbless`: what a person says against an evaluation, kept with who and why, and gone by from then on."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from drivetrain.errors import InputError
from drivetrain.pipelines import Home
from drivetrain.pipelines.launcher.verdicts import decisions, overrule

Json = dict[str, Any]
Command = Callable[..., Result]
Read = Callable[[Result], Json]

PIPELINE = """
import drivetrain as dt
from drivetrain.metadata import Evaluation, Model, PushedModel


@dt.component
def Train(size: int) -> Model:
    model = Model.new()
    (model.content / "weights").write_text(str(size))
    return model


@dt.component
def Judge(model: Model, *, baseline: Model | None = None) -> Evaluation:
    size = int((model.content / "weights").read_text())
    beside = None if baseline is None else (baseline.content / "weights").read_text()
    return Evaluation.new(blessed=size > 5, summary=f"size {size} beside {beside}")


@dt.component
def Push(model: Model) -> PushedModel:
    return PushedModel.new(destination="serving/shop", version=7)


@dt.pipeline
def shop(size: int = 3) -> None:
    model = Train(size)
    evaluation = Judge(model, baseline=dt.latest_blessed())
    with dt.when(evaluation.blessed):
        Push(model)


@dt.pipeline
def twice(size: int = 8) -> None:
    model = Train(size)
    Judge(model, baseline=dt.latest_blessed())
    Judge.options(id="Again")(model)
"""


@pytest.fixture
def shop(project: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = project("shop", pipeline=PIPELINE)
    monkeypatch.chdir(folder.parent)
    return folder


def run(drivetrain: Command, last_json: Read, shop: Path, size: int = 3) -> Json:
    result = drivetrain("run", str(shop), "-p", f"size={size}", "--json")
    assert result.exit_code == 0, result.output
    return last_json(result)


def states(answer: Json) -> dict[str, str]:
    return {name: node["state"] for name, node in answer["nodes"].items()}


def test_a_model_that_was_blessed_by_hand_is_pushed_by_the_next_run(
    shop: Path, drivetrain: Command, last_json: Read
) -> None:
    first = run(drivetrain, last_json, shop)
    assert states(first)["Push"] == "SKIPPED"
    said = last_json(drivetrain("bless", "--by", "ada", "--reason", "good enough for a start", "--json"))
    assert (said["node"], said["blessed"], said["was"], said["by"]) == ("Judge", True, False, "ada")
    second = run(drivetrain, last_json, shop)
    assert states(second) == states(first) | {"Train": "CACHED", "Judge": "CACHED", "Push": "COMPLETE"}
    assert second["blessed"] is True
    shown = drivetrain("show")
    assert "Judge: blessed by ada at 20" in shown.output
    assert "good enough for a start" in shown.output
    listed = last_json(drivetrain("runs", "--json"))
    assert all(each["blessed"] for each in listed["runs"])


def test_the_blessing_is_taken_and_the_model_before_counts(shop: Path, drivetrain: Command, last_json: Read) -> None:
    run(drivetrain, last_json, shop, 8)
    run(drivetrain, last_json, shop, 9)
    taken = drivetrain("unbless", "--reason", "wrong labels", "--by", "bob")
    assert taken.exit_code == 0, taken.output
    assert "not blessed, by bob" in taken.output
    assert "it was pushed already, to serving/shop, version 7" in taken.output
    third = run(drivetrain, last_json, shop, 3)
    with closing(Home(Path(".drivetrain"))) as home:
        assert home.store.artifacts(type="Evaluation")[0].properties["summary"] == "size 3 beside 8"
    again = drivetrain("bless", third["run"], "--reason", "x")
    assert again.exit_code == 0
    with closing(Home(Path(".drivetrain"))) as home:
        newest = home.store.artifacts(type="Evaluation", where={"summary": "size 9 beside 8"})[0]
        assert [entry["reason"] for entry in decisions(newest)] == ["wrong labels"]
        back = overrule(home.store, newest, blessed=True, by="ada", reason="they were right")
        assert [(entry["was"], entry["blessed"]) for entry in decisions(back)] == [(True, False), (False, True)]
        with pytest.raises(InputError, match="somebody else decided at the same moment"):
            overrule(home.store, newest, blessed=True, by="eve", reason="at once")


def test_where_a_model_was_pushed_is_said_once(shop: Path, drivetrain: Command, last_json: Read) -> None:
    run(drivetrain, last_json, shop, 8)
    assert drivetrain("run", "shop", "--param", "size=8", "--no-cache").exit_code == 0
    taken = drivetrain("unbless", "--reason", "wrong labels")
    assert taken.exit_code == 0
    assert taken.output.count("pushed already") == taken.output.count("serving/shop, version 7") == 1


def test_what_cannot_be_is_refused(
    shop: Path, drivetrain: Command, last_json: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = run(drivetrain, last_json, shop)
    for arguments, words in (
        (("unbless", "--reason", "x"), "the model is not blessed"),
        (("bless", "--reason", "  "), "there is no reason"),
        (("bless",), "--reason"),
        (("bless", first["run"], "Juge", "--reason", "x"), "did you mean 'Judge'"),
        (("bless", "2020", "--reason", "x"), "2020"),
    ):
        result = drivetrain(*arguments)
        assert result.exit_code == 2, arguments
        assert words in result.stderr, result.stderr
    drivetrain("bless", "--reason", "x", "--by", "ada")
    assert "blessed, since ada said so" in drivetrain("bless", "--reason", "y").stderr


def test_help_has_an_example(drivetrain: Command) -> None:
    for verb in ("bless", "unbless"):
        assert f"drivetrain {verb} --reason" in drivetrain(verb, "--help").output


def test_the_blessing_is_taken_from_the_model_whichever_evaluation_gave_it(
    shop: Path, drivetrain: Command, last_json: Read
) -> None:
    run(drivetrain, last_json, shop, 7)
    both = drivetrain("run", str(shop), "--pipeline", "twice", "--json")
    assert both.exit_code == 0, both.output
    taken = drivetrain("unbless", last_json(both)["run"], "Again", "--by", "ada", "--reason", "wrong")
    assert "1 more evaluation had blessed it: no more" in taken.output, taken.output
    run(drivetrain, last_json, shop, 9)
    with closing(Home(Path(".drivetrain"))) as home:
        assert home.store.artifacts(type="Evaluation")[0].properties["summary"] == "size 9 beside 7"
