"""`import-mlmd`: the runs of TFX are told like our own, nothing of them is run, and a project goes on beside them."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from drivetrain.console.session import open as open_view
from drivetrain.tests.metadata.mlmd.oracle import execute, make, oracle

Json = dict[str, Any]
Command = Callable[..., Result]
Read = Callable[[Result], Json]
MODEL = "/srv/tfx/taxi/Trainer/model/16"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return make(tmp_path, "tfx")


@pytest.fixture
def runs(file: Path, drivetrain: Command) -> list[str]:
    """The runs as MLMD names them, the oldest first."""
    assert drivetrain("import-mlmd", str(file)).exit_code == 0
    return [one["name"] for one in oracle("tfx")["contexts"] if one["type"] == "pipeline_run"]


def test_it_says_what_came_in_and_that_there_is_no_more(file: Path, drivetrain: Command, last_json: Read) -> None:
    first = drivetrain("import-mlmd", str(file))
    assert "6 runs, 30 artifacts, 50 executions, 90 events" in first.stdout
    assert "nothing new" in drivetrain("import-mlmd", str(file)).stdout
    again = last_json(drivetrain("import-mlmd", str(file), "--json"))
    assert (again["runs"], again["artifacts"], again["events"], again["updated"]) == (0, 0, 0, 0)


def test_runs_are_those_of_mlmd(runs: list[str], drivetrain: Command, last_json: Read) -> None:
    told = last_json(drivetrain("runs", "--json"))["runs"]
    assert [one["run"] for one in reversed(told)] == runs
    assert {one["pipeline"] for one in told} == {"taxi"}
    # What was asked for when the file was made: ok, cached, a new span, a failure, a kill, ok.
    ends = ["COMPLETE", "COMPLETE", "COMPLETE", "FAILED", "INTERRUPTED", "COMPLETE"]
    assert [one["state"] for one in reversed(told)] == ends
    assert all(one["started"] < one["finished"] for one in told)


def test_show_tells_nodes_states_and_where_payloads_lie(runs: list[str], drivetrain: Command, last_json: Read) -> None:
    answer = last_json(drivetrain("show", runs[1], "--json"))
    states = {name: node["state"] for name, node in answer["nodes"].items()}
    assert states == {
        "CsvExampleGen": "CACHED", "schema_importer": "CACHED", "warm_start": "CACHED", "StatisticsGen": "CACHED",
        "latest": "COMPLETE", "ExampleValidator": "CACHED", "Trainer": "COMPLETE", "Evaluator": "COMPLETE",
        "Pusher": "COMPLETE",
    }  # fmt: skip
    assert answer["nodes"]["Trainer"]["outputs"] == {"model": [{"uri": MODEL, "type": "Model", "fingerprint": ""}]}
    text = drivetrain("show", runs[1]).stdout
    assert f"same work as run {runs[0]}" in text
    assert MODEL in text
    assert "stopped by" not in text  # what TFX found, and let pass
    assert "was RUNNING in MLMD" in drivetrain("show", runs[4]).stdout
    assert "MLMD keeps no reason" in drivetrain("show", runs[3]).stdout


def test_a_drawing_has_what_flowed_within_the_run(runs: list[str], tmp_path: Path) -> None:
    view = open_view(runs[0])
    edges = {(edge[0], edge[1]) for edge in view.dag["edges"]}
    assert ("latest", "Trainer") in edges  # the resolver passed on what it chose
    assert ("CsvExampleGen", "Trainer") in edges  # `rows`, a value
    assert ("Trainer", "Evaluator") in edges
    assert ("warm_start", "latest") not in edges  # it looked into history, not at that node
    assert "taxi" in view.to_html()
    assert all("<table" in artifact._repr_html_() for node in view for artifact in node.outputs.values())


def test_lineage_goes_through_runs_by_node_and_by_the_uri_there(
    runs: list[str], drivetrain: Command, last_json: Read
) -> None:
    answer = last_json(drivetrain("lineage", MODEL, "--json"))
    number = next(one["id"] for one in oracle("tfx")["artifacts"] if one["uri"] == MODEL)
    before = {one["id"]: one["uri"] for one in oracle("tfx")["artifacts"]}
    expected = {before[str(one)] for one in oracle("tfx")["upstream"][number]}
    assert {one["uri"] for one in answer["artifacts"]} == {MODEL, *expected}
    assert {one["run"] for one in answer["executions"]} == set(runs[:2])
    assert f"Trainer COMPLETE run {runs[2]}" in drivetrain("lineage", "Pusher", "--run", runs[5]).stdout
    assert runs[5] in drivetrain("lineage", "Trainer", "--down", "--run", runs[0]).stdout


@pytest.mark.parametrize("verb", [["resume"], ["rerun"], ["spin", "Trainer", "--run"]], ids=" ".join)
def test_nothing_of_them_is_run(verb: list[str], runs: list[str], drivetrain: Command) -> None:
    result = drivetrain(*verb, runs[4])
    assert result.exit_code == 2
    assert "was imported from" in result.stderr
    assert "docs/from-tfx.md" in result.stderr


def test_fsck_calls_them_external(runs: list[str], drivetrain: Command, last_json: Read) -> None:
    result = drivetrain("fsck", "--repair")
    assert result.exit_code == 0
    assert "0 payloads checked, 30 external" in result.stdout
    assert last_json(drivetrain("fsck", "--json"))["external"] == 30


def test_a_project_goes_on_beside_them(shop: Path, drivetrain: Command, last_json: Read) -> None:
    """The pipeline of the same name: its own history begins anew, both are told together."""
    file = make(shop.parent, "tfx")
    execute(file, "UPDATE Context SET name = replace(name, 'taxi', 'shop')")
    assert drivetrain("run", "shop").exit_code == 0
    assert drivetrain("import-mlmd", str(file)).exit_code == 0
    again = last_json(drivetrain("run", "shop", "--json"))
    assert {node["state"] for node in again["nodes"].values()} == {"CACHED"}
    assert len(last_json(drivetrain("runs", "--json"))["runs"]) == 8
    assert drivetrain("why", "Train").exit_code == 0
    assert drivetrain("diff", again["run"], "2026", "--json").exit_code == 2  # more than one begins so
    part = last_json(drivetrain("run", "shop", "--from", "Judge", "--param", "rows=4", "--json"))
    assert part["state"] == "COMPLETE"
    assert last_json(drivetrain("fsck", "--json"))["clean"] is True


def test_nothing_chooses_an_imported_artifact(runs: list[str], tmp_path: Path, drivetrain: Command) -> None:
    (tmp_path / "taxi").mkdir()
    (tmp_path / "taxi" / "pipeline.py").write_text(
        "import drivetrain as dt\nfrom drivetrain.metadata import Examples, Model\n\n\n"
        "@dt.component\ndef Look(model: Model | None = None, examples: Examples | None = None) -> str:\n"
        "    return f'{model} {examples}'\n\n\n"
        "@dt.pipeline\ndef taxi() -> None:\n    Look(dt.latest(Model), dt.latest(Examples, passed=True))\n"
    )
    assert drivetrain("run", "taxi").exit_code == 0
    (value,) = (tmp_path / ".drivetrain" / "artifacts" / "Look").rglob("value.json")
    assert value.read_text().strip() == '"None None"'


def test_an_imported_run_is_no_base_of_a_partial_one(shop: Path, drivetrain: Command) -> None:
    file = make(shop.parent, "tfx")
    execute(file, "UPDATE Context SET name = replace(name, 'taxi', 'shop')")
    assert drivetrain("import-mlmd", str(file)).exit_code == 0
    name = oracle("tfx")["contexts"][1]["name"]
    result = drivetrain("run", "shop", "--from", "Judge", "--base", name)
    assert result.exit_code == 2
    assert "was imported from" in result.stderr
    assert "no earlier run of shop has the outputs" in drivetrain("run", "shop", "--from", "Judge").stderr


def test_an_older_tfx_that_kept_names_as_properties(file: Path, drivetrain: Command, last_json: Read) -> None:
    """Before 0.22: contexts of type "run", and nodes only by name."""
    with sqlite3.connect(file) as connection:
        placed = "SELECT a.execution_id, c.name FROM Association a JOIN Context c ON c.id = a.context_id"
        for execution, name in connection.execute(f"{placed} WHERE c.type_id = 12").fetchall():
            known = {"component_id": name.partition(".")[2], "pipeline_name": "taxi"}
            connection.executemany(
                "INSERT INTO ExecutionProperty (execution_id, name, is_custom_property, string_value) "
                "VALUES (?, ?, 0, ?)",
                [(execution, key, value) for key, value in known.items()],
            )
        connection.execute("UPDATE Type SET name = 'run' WHERE name = 'pipeline_run'")
        gone = "FROM Context WHERE type_id IN (10, 12)"
        connection.execute(f"DELETE FROM Association WHERE context_id IN (SELECT id {gone})")
        connection.execute(f"DELETE {gone}")
    connection.close()
    assert last_json(drivetrain("import-mlmd", str(file), "--json"))["runs"] == 6
    answer = last_json(drivetrain("show", "--json"))
    assert answer["pipeline"] == "taxi"
    assert answer["nodes"]["Trainer"]["state"] == "COMPLETE"
    assert len(answer["nodes"]) == 9
    assert drivetrain("lineage", "Pusher").exit_code == 0


def test_a_wrong_file_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drivetrain: Command) -> None:
    monkeypatch.chdir(tmp_path)
    result = drivetrain("import-mlmd", "nowhere.db")
    assert result.exit_code == 2
    assert "there is no file nowhere.db" in result.stderr
    assert "fix:" in result.stderr
