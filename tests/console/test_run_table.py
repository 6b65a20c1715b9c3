"""Runs beside each other: metrics, blessing, changed parameters, tags; sorted, filtered, as a DataFrame."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import drivetrain as dt
import pytest
from click.testing import Result
from drivetrain.console.run_table import RunFacts, RunTable
from drivetrain.errors import InputError
from rich.console import Console

pd = pytest.importorskip("pandas")

Json = dict[str, Any]
Command = Callable[..., Result]
Read = Callable[[Result], Json]
PIPELINE = '''
    import drivetrain as dt
    from drivetrain.metadata import Evaluation, Model
    from drivetrain.pipelines import current

    @dt.component
    def Train(*, epochs: int, rate: float) -> Model:
        for epoch in range(epochs):
            current().metric("loss", 1 / (1 + epoch), step=epoch)
        model = Model.new()
        (model.content / "epochs").write_text(str(epochs))
        return model

    @dt.component
    def Judge(model: Model, *, auc: float, scale: float = 1.0) -> Evaluation:
        evaluation = Evaluation.new(blessed=auc > 0.7, metrics={"auc": auc * scale, "log_loss": 1 - auc})
        (evaluation.content / "auc").write_text(str(auc))
        return evaluation

    @dt.pipeline
    def taxi(epochs: int = 1, auc: float = 0.5, data: str = "taxi.csv", twice: bool = False) -> None:
        """Drive."""
        model = Train(epochs=epochs, rate=0.1)
        Judge(model, auc=auc)
        with dt.when(twice):
            Judge.options(id="Again")(model, auc=auc, scale=0.5)
'''


@pytest.fixture
def taxi(project: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, drivetrain: Command, last_json: Read) -> Any:
    """Runs the pipeline with parameters and options, and gives the run's id."""
    folder = project("taxi", pipeline=PIPELINE)
    monkeypatch.chdir(folder.parent)

    def run(*options: str, **parameters: object) -> str:
        assignments = [word for name, value in parameters.items() for word in ("-p", f"{name}={value}")]
        return str(last_json(drivetrain("run", "taxi", *assignments, *options, "--json"))["run"])

    return run


def words(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_metrics_blessing_and_changed_parameters_are_columns(taxi: Any, drivetrain: Command, last_json: Read) -> None:
    first = taxi(auc=0.5)
    second = taxi("--tag", "old", "--tag", "by=me", "--note", "more data", auc=0.75)
    again = taxi(auc=0.75)
    lines = words(drivetrain("runs").stdout)
    title = ["run", "state", "started", "(UTC)", "blessed", "auc", "log_loss", "loss", "auc", "tags", "note"]
    assert lines[0] == title  # the metric `auc`, and the parameter
    assert lines[1][:2] + lines[1][4:] == [again, "COMPLETE", "yes", "0.7500", "0.2500", "1.0000", "0.75"]
    tagged = [second, "COMPLETE", "yes", "0.7500", "0.2500", "1.0000", "0.75", "by=me,", "old", "more", "data"]
    assert lines[2][:2] + lines[2][4:] == tagged
    assert lines[3][:2] + lines[3][4:] == [first, "COMPLETE", "no", "0.5000", "0.5000", "1.0000", "0.5"]
    assert lines[4:] == [["all", "with", "epochs=1,", "data=taxi.csv,", "twice=false"]]

    newest = last_json(drivetrain("runs", "--json"))["runs"][0]
    assert newest["blessed"] is True
    assert newest["metrics"] == {"Judge": {"auc": 0.75, "log_loss": 0.25}, "Train": {"loss": 1.0}}
    assert (newest["tags"], newest["note"]) == ({}, "")
    assert last_json(drivetrain("runs", "--json"))["runs"][1]["tags"] == {"old": "", "by": "me"}
    # Its nodes were cached, and show what they reuse.
    shown = last_json(drivetrain("show", "--json"))
    assert shown["metrics"] == newest["metrics"]
    assert {node["state"] for name, node in shown["nodes"].items() if name != "Again"} == {"CACHED"}
    text = drivetrain("show", second).stdout
    assert "Train: loss 1.0000" in text
    assert "tagged by=me, old" in text
    assert "note: more data" in text


def test_runs_are_sorted_by_a_metric_or_a_parameter_and_filtered_by_tags(
    taxi: Any, drivetrain: Command, last_json: Read
) -> None:
    middle = taxi("--tag", "team=risk", auc=0.6, data="b.csv")
    low = taxi("--tag", "team=fraud", auc=0.3, data="c.csv")
    high = taxi("--tag", "baseline", auc=0.9, data="a.csv", epochs=10)

    def listed(*options: str) -> list[str]:
        return [run["run"] for run in last_json(drivetrain("runs", "--json", *options))["runs"]]

    assert listed("--sort", "auc") == [low, middle, high]
    assert listed("--sort", "-auc") == [high, middle, low]
    assert listed("--sort", "log_loss", "-n", "1") == [high]  # the best of all runs, not of the newest one
    assert listed("--sort", "data") == [high, middle, low]
    assert listed("--sort", "-epochs")[0] == high
    assert listed("--tag", "team") == [low, middle]
    assert listed("--tag", "team", "-n", "1") == [low]
    assert listed("--tag", "team=risk") == [middle]
    assert listed("--tag", "team", "--tag", "baseline") == []
    assert listed("--tag", "team", "--sort", "-auc") == [middle, low]
    assert f"{Path('.drivetrain').absolute()} with team=none" in drivetrain("runs", "--tag", "team=none").stdout
    unknown = drivetrain("runs", "--sort", "ac")
    assert unknown.exit_code == 2
    assert "no run has a metric or a parameter 'ac'" in unknown.stderr
    assert "did you mean 'auc'" in unknown.stderr


def test_runs_without_the_metric_come_last_in_both_directions(taxi: Any, drivetrain: Command, last_json: Read) -> None:
    failed = taxi("--only", "Train", auc=0.9)
    good, bad = taxi(auc=0.8), taxi(auc=0.2)
    for sort, wanted in (("auc", [bad, good, failed]), ("-auc", [good, bad, failed])):
        assert [run["run"] for run in last_json(drivetrain("runs", "--json", "--sort", sort))["runs"]] == wanted


def test_a_metric_of_two_tasks_of_a_run_is_named_with_its_task(taxi: Any, drivetrain: Command, last_json: Read) -> None:
    two, single = taxi(auc=0.8, twice="true"), taxi(auc=0.6)
    assert "Again.auc  Judge.auc  Again.log_loss" in drivetrain("runs").stdout
    assert "blessed  Judge.log_loss" in drivetrain("runs", "--metric", "Judge.log_loss").stdout
    assert [run["run"] for run in last_json(drivetrain("runs", "--json", "--sort", "Judge.auc"))["runs"]] == [
        single,
        two,
    ]
    refused = drivetrain("runs", "--sort", "log_loss")
    assert "Again.log_loss" in refused.stderr
    frame = dt.runs()
    assert frame["metrics.Again.auc"].isna().tolist() == [True, False]
    assert frame["metrics.Judge.auc"].tolist() == [0.6, 0.8]
    assert "metrics.auc" not in frame
    assert frame["metrics.loss"].tolist() == [1.0, 1.0]


def test_the_frame_holds_what_json_says_in_types_that_pandas_computes_with(
    taxi: Any, drivetrain: Command, last_json: Read
) -> None:
    taxi("--tag", "team=risk", "--tag", "x", auc=0.8, epochs=2)
    taxi("--only", "Train", auc=0.3)
    frame = dt.runs()
    rows = last_json(drivetrain("runs", "--json"))["runs"]
    assert list(frame["run"]) == [row["run"] for row in rows]
    assert [time.isoformat() for time in frame["started"]] == [row["started"] for row in rows]
    assert (frame["finished"] - frame["started"] > pd.Timedelta(0)).all()
    assert frame["metrics.loss"].tolist() == [1.0, 0.5]
    assert frame["metrics.auc"].isna().tolist() == [True, False]
    assert frame["blessed"].isna().tolist() == [True, False]
    assert str(frame["blessed"].dtype) == "boolean"
    assert frame["params.epochs"].tolist() == [1, 2]
    assert frame["tags.team"].tolist()[1] == "risk"
    assert frame["tags.team"].isna().tolist() == frame["tags.x"].isna().tolist() == [True, False]
    assert frame.nlargest(1, "metrics.auc")["run"].tolist() == [rows[1]["run"]]
    assert dt.runs(sort="-auc", limit=1)["run"].tolist() == [rows[1]["run"]]
    assert dt.runs(tags=["team=risk"])["run"].tolist() == [rows[1]["run"]]
    empty = dt.runs(tags=["nothing"])
    assert (len(empty), list(empty.columns)[:4]) == (0, ["run", "pipeline", "state", "started"])


def test_a_terminal_too_narrow_names_what_it_does_not_show(taxi: Any, tmp_path: Path) -> None:
    from drivetrain.console.run_table import run_table
    from drivetrain.pipelines import Home

    taxi(auc=0.5, epochs=1)
    taxi(auc=0.6, epochs=2)
    home = Home(tmp_path / ".drivetrain", readonly=True)
    table = run_table(home, limit=None)
    home.close()

    def shown(width: int, *first: str) -> tuple[list[str], str]:
        out = io.StringIO()
        table.show(Console(file=out, width=width), first)
        lines = out.getvalue().splitlines()
        assert all(len(line) <= width for line in lines[:3])
        return lines[0].split()[5:], lines[-1]

    assert shown(200)[0] == ["auc", "log_loss", "loss", "epochs", "auc"]
    titles, rest = shown(85)
    assert titles == ["auc", "epochs", "auc"]
    assert rest == "no room for log_loss, loss: --json and dt.runs() have all"
    assert shown(85, "loss")[0][0] == "loss"
    titles, rest = shown(58)
    assert titles == []
    assert rest == "no room for auc, epochs, auc, log_loss, loss: --json and dt.runs() have all"


def test_a_run_that_cannot_be_read_stands_among_the_others(two_runs: tuple[Json, Json], tmp_path: Path) -> None:
    from drivetrain.pipelines import Home

    home = Home(tmp_path / ".drivetrain")
    context = home.store.find_context("run", two_runs[0]["run"])
    assert context is not None
    home.store.update_context(context, {"options": json.dumps({"weather": "rain"}), "tags": {"old": ""}})
    home.close()
    frame = dt.runs()
    assert frame["run"].tolist() == [two_runs[1]["run"], two_runs[0]["run"]]
    assert frame["params.rows"].isna().tolist() == [False, True]
    assert frame["blessed"].tolist() == [True, True]
    assert dt.runs(tags=["old"])["run"].tolist() == [two_runs[0]["run"]]


def test_nothing_is_sorted_by_what_no_run_has() -> None:
    rows: tuple[RunFacts, ...] = ()
    with pytest.raises(InputError, match="no run has a metric or a parameter 'auc'"):
        RunTable(rows).sorted("-auc")


def test_a_parameter_that_came_later_is_one_that_differs(taxi: Any, drivetrain: Command, tmp_path: Path) -> None:
    file = tmp_path / "taxi" / "pipeline.py"
    file.write_text(file.read_text().replace(', data: str = "taxi.csv"', ""))
    taxi()
    assert drivetrain("runs").stdout.splitlines()[-1] == "all with epochs=1, auc=0.5, twice=false"
    file.write_text(file.read_text().replace("auc: float = 0.5", 'auc: float = 0.5, data: str = "taxi.csv"'))
    taxi()
    lines = words(drivetrain("runs").stdout)
    assert lines[0][-1] == "data"
    assert [line[-1] for line in lines[1:3]] == ["taxi.csv", "1.0000"]
    assert lines[3] == ["all", "with", "epochs=1,", "auc=0.5,", "twice=false"]
