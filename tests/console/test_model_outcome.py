"""What a run says of its models at its end, and the exit code of one that had to bless a model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

Json = dict[str, Any]
Command = Callable[..., Result]
Read = Callable[[Result], Json]

PIPELINE = """
from pathlib import Path
import drivetrain as dt
from drivetrain.metadata import Evaluation, Model, PushedModel


@dt.component
def Train(auc: float, span: int) -> Model:
    model = Model.new()
    (model.content / "auc").write_text(f"{auc} {span}")
    return model


@dt.component
def Judge(model: Model, *, auc: float, compared: bool) -> Evaluation:
    blessed = auc > 0.8
    return Evaluation.new(
        blessed=blessed, compared=compared, summary=f"AUC {auc}; " + ("blessed" if blessed else "not blessed: < 0.8")
    )


@dt.component
def Ready(model: Model, *, file: str) -> bool:
    if file and not Path(file).exists():
        raise ValueError("not yet")
    return True


@dt.component
def Push(model: Model, *, destination: str) -> PushedModel:
    return PushedModel.new(destination=destination)


@dt.pipeline
def shop(auc: float = 0.5, compared: bool = True, file: str = "", judge: bool = True, span: int = 0) -> None:
    model = Train(auc, span)
    Ready(model, file=file)
    with dt.when(judge):
        evaluation = Judge(model, auc=auc, compared=compared)
        with dt.when(evaluation.blessed):
            Push(model, destination="serving")
"""
NOTHING = "Nothing was pushed: no model was blessed (Judge: AUC 0.5; not blessed: < 0.8)."
ALONE = "Judge had no baseline to compare with"


@pytest.fixture
def shop(project: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = project("shop", pipeline=PIPELINE)
    monkeypatch.chdir(folder.parent)
    return folder


def last_lines(result: Result) -> list[str]:
    return [line for line in result.stdout.splitlines() if line][-2:]


def test_a_model_that_is_pushed_without_a_blessing_is_told(shop: Path, drivetrain: Command, last_json: Read) -> None:
    text = (shop / "pipeline.py").read_text()
    (shop / "pipeline.py").write_text(
        text.replace("    with dt.when(evaluation.blessed):\n            Push(", "    if True:\n            Push(")
    )
    pushed = "Push pushed all the same: it pushes blessed models only below `with dt.when(evaluation.blessed):`."
    for state in ("COMPLETE", "CACHED"):
        result = drivetrain("run", "shop")
        assert state in result.stdout
        assert last_lines(result)[-1] == pushed
    assert last_json(drivetrain("show", "--json"))["closing"][-1] == pushed
    assert "pushed all the same" not in drivetrain("run", "shop", "--param", "auc=0.9").stdout


def test_nothing_is_pushed_because_nothing_was_blessed(shop: Path, drivetrain: Command, last_json: Read) -> None:
    for state in ("COMPLETE", "CACHED"):
        result = drivetrain("run", "shop")
        assert result.exit_code == 0
        assert state in result.stdout
        assert last_lines(result)[-1] == NOTHING
        required = drivetrain("run", "shop", "--require-blessed")
        assert required.exit_code == 4
        assert last_lines(required)[-1] == NOTHING
    answer = last_json(drivetrain("run", "shop", "--require-blessed", "--json"))
    assert (answer["state"], answer["blessed"], answer["closing"]) == ("COMPLETE", False, [NOTHING])
    shown = drivetrain("show")
    assert (shown.exit_code, last_lines(shown)[-1]) == (0, NOTHING)
    assert last_json(drivetrain("show", "--json"))["closing"] == [NOTHING]
    rerun = drivetrain("rerun")  # as that run was
    assert (rerun.exit_code, last_lines(rerun)[-1]) == (4, NOTHING)


def test_a_blessed_model_is_what_was_required(shop: Path, drivetrain: Command, last_json: Read) -> None:
    for _ in range(2):
        result = drivetrain("run", "shop", "--require-blessed", "--param", "auc=0.9", "--json")
        assert result.exit_code == 0
        assert (last_json(result)["blessed"], last_json(result)["closing"]) == (True, [])


def test_a_blessing_that_was_taken_away_is_the_reason(shop: Path, drivetrain: Command, last_json: Read) -> None:
    drivetrain("run", "shop", "--param", "auc=0.9")
    drivetrain("unbless", "--reason", "wrong labels", "--by", "bob")
    reason = "(Judge: not blessed by bob: wrong labels)."
    run = drivetrain("run", "shop", "--param", "auc=0.9", "--json")
    assert last_json(run)["closing"][-1] == f"Nothing was pushed: no model was blessed {reason}"


@pytest.mark.parametrize("runner", ["inline", pytest.param("process", marks=pytest.mark.slow)])
def test_a_resumed_run_still_has_to_bless(shop: Path, drivetrain: Command, last_json: Read, runner: str) -> None:
    asked = ("--require-blessed", "--param", "file=go", "--runner", runner)
    failed = drivetrain("run", "shop", *asked, "--json")
    assert failed.exit_code == 2
    assert (last_json(failed)["state"], last_json(failed)["blessed"]) == ("FAILED", False)
    Path("go").touch()
    resumed = drivetrain("resume")
    assert (resumed.exit_code, last_lines(resumed)[-1]) == (4, NOTHING)


def test_a_model_that_was_judged_alone(shop: Path, drivetrain: Command, last_json: Read) -> None:
    blessed = f'{ALONE}: the model was blessed without one; first_run="refuse" in its configuration refuses that.'
    for _ in range(2):
        assert last_lines(drivetrain("run", "shop", "--param", "compared=false"))[-2:] == [f"{ALONE}.", NOTHING]
        result = drivetrain("run", "shop", "--param", "compared=false", "--param", "auc=0.9")
        assert last_lines(result)[-1] == blessed
        assert last_lines(drivetrain("show"))[-1] == blessed
    assert last_json(drivetrain("show", "--json"))["closing"] == [blessed]


def test_a_part_of_a_pipeline(shop: Path, drivetrain: Command) -> None:
    part = drivetrain("run", "shop", "--to", "Judge", "--require-blessed")
    assert part.exit_code == 4
    assert last_lines(part)[-1] == NOTHING.replace("Nothing was pushed: no", "No")
    other = drivetrain("run", "shop", "--require-blessed", "--param", "judge=false")
    assert other.exit_code == 4
    assert last_lines(other)[-1] == "Nothing was pushed: no model was blessed (none was judged)."
    silent = drivetrain("run", "shop", "--param", "judge=false")
    assert silent.exit_code == 0
    assert "blessed (" not in silent.stdout


def test_each_span_of_a_backfill(shop: Path, drivetrain: Command, last_json: Read) -> None:
    result = drivetrain("backfill", "shop", "--spans", "1:2", "--require-blessed", "--keep-going", "--json")
    assert result.exit_code == 4
    assert [span["state"] for span in last_json(result)["spans"]] == ["COMPLETE", "COMPLETE"]
    assert drivetrain("backfill", "shop", "--spans", "1:2").exit_code == 0


def test_a_pipeline_that_judges_nothing_cannot_be_held_to_it(project: Callable[..., Path], drivetrain: Command) -> None:
    text = PIPELINE.partition("    with dt.when(judge)")[0]
    refused = drivetrain("run", str(project("shop", pipeline=text)), "--require-blessed")
    assert refused.exit_code == 2
    assert "shop judges no model" in refused.stderr
    assert "add an Evaluator" in refused.stderr


def test_one_model_of_two_that_is_not_blessed(shop: Path, drivetrain: Command, last_json: Read) -> None:
    text = (shop / "pipeline.py").read_text()
    (shop / "pipeline.py").write_text(
        text.replace(
            "        with dt.when(eva",
            "        Judge.options(id='Second')(model, auc=0.9, compared=compared)\n        with dt.when(eva",
        )
    )
    assert drivetrain("run", "shop").exit_code == 0
    result = drivetrain("run", "shop", "--require-blessed", "--json")
    missed = "Not every model was blessed, as --require-blessed asks (Judge: AUC 0.5; not blessed: < 0.8)."
    answer = last_json(result)
    assert (result.exit_code, answer["blessed"], answer["closing"]) == (4, False, [missed])
    assert drivetrain("run", "shop", "--require-blessed", "--param", "auc=0.85").exit_code == 0


def test_the_exit_code_is_documented(drivetrain: Command) -> None:
    for verb in ("run", "resume", "rerun", "backfill"):
        assert "4    complete, but not every model was blessed" in drivetrain(verb, "--help").stdout
    assert "--require-blessed" in drivetrain("run", "--help").stdout
