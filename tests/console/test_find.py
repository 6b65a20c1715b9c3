"""`find`: runs, executions and artifacts by a filter, as text, JSON and a DataFrame."""

import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from drivetrain.errors import InputError

Json = dict[str, Any]
Command = Callable[..., Result]
Read = Callable[[Result], Json]


@pytest.fixture
def runs(shop: Path, drivetrain: Command, last_json: Read) -> list[str]:
    ends = (("-p", "rows=3"), ("-p", "rows=4", "--tag", "best"), ("-p", "fail=user"))
    return [last_json(drivetrain("run", "shop", "--json", *words))["run"] for words in ends]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("", [2, 1, 0]),
        ("state = 'FAILED'", [2]),
        ("parameter.rows = 4", [1]),
        ("parameter.rows >= 3 and state != 'FAILED'", [1, 0]),
        ("tag.best is not null", [1]),
        ("parameter.fail = 'user' and started > -1h", [2]),
        ("pipeline = 'shop' and not tag.best is null", [1]),
        ("state = 'INTERRUPTED'", []),
    ],
)
def test_runs_are_found(runs: list[str], drivetrain: Command, last_json: Read, where: str, expected: list[int]) -> None:
    answer = last_json(drivetrain("find", "runs", where, "--json"))
    assert [each["run"] for each in answer["runs"]] == [runs[index] for index in expected]
    text = drivetrain("find", "runs", where).stdout
    assert all((run in text) == (index in expected) for index, run in enumerate(runs))


def test_a_run_whose_process_died_is_found_as_interrupted(
    runs: list[str], drivetrain: Command, last_json: Read
) -> None:
    from drivetrain.pipelines import Home

    home = Home(Path(".drivetrain"))
    context = home.store.find_context("run", runs[0])
    assert context is not None
    owner = {**context.properties["owner"], "pid": 2**22 + 1}
    home.store.update_context(context, {"state": "RUNNING", "owner": owner})
    home.close()
    for state, expected in (("INTERRUPTED", [runs[0]]), ("RUNNING", [])):
        answer = last_json(drivetrain("find", "runs", f"state = '{state}'", "--json"))
        assert [each["run"] for each in answer["runs"]] == expected


def test_tasks_and_trials_whose_process_died_are_found_as_abandoned(
    runs: list[str], drivetrain: Command, last_json: Read
) -> None:
    """Also before anybody goes on with their work, which records it."""
    begin = (
        "import os\n"
        "from pathlib import Path\n"
        "from drivetrain.pipelines import Home\n"
        "store = Home(Path('.drivetrain')).store\n"
        "store.start('parts:Train', contexts=[], inputs={}, properties={'node': 'Train'})\n"
        "store.start('Trial', contexts=[], inputs={}, properties={'node': 'Seek', 'number': 3})\n"
        "os._exit(9)\n"
    )
    assert subprocess.run([sys.executable, "-c", begin], check=False).returncode == 9
    from drivetrain.pipelines import Home

    with closing(Home(Path(".drivetrain"))) as home:
        home.store.start("Trial", contexts=[], inputs={}, properties={"node": "Seek", "number": 4})
        assert len(home.store.executions(state="RUNNING")) == 3
        for state, expected in (("ABANDONED", ["Trial 3", "parts:Train"]), ("RUNNING", ["Trial 4"])):
            answer = last_json(drivetrain("find", "executions", f"state = '{state}'", "--json"))
            assert [each["state"] for each in answer["executions"]] == [state] * len(expected)
            lines = drivetrain("find", "executions", f"state = '{state}'").stdout.splitlines()[1:]
            assert [line.split("  ")[0] for line in lines] == expected
        answer = last_json(drivetrain("find", "executions", "", "--order", "state", "--limit", "2", "--json"))
        assert [each["state"] for each in answer["executions"]] == ["ABANDONED"] * 2
        page = last_json(drivetrain("find", "executions", "", "--order", "state", "--after", answer["next"], "--json"))
        assert "ABANDONED" not in [each["state"] for each in page["executions"]]


def test_executions_and_artifacts_are_found_by_lineage(runs: list[str], drivetrain: Command, last_json: Read) -> None:
    examples = last_json(drivetrain("find", "artifacts", f"type = 'Examples' and run = '{runs[1]}'", "--json"))[
        "artifacts"
    ]
    assert [each["properties"]["rows"] for each in examples] == [{"train": 4}]
    below = last_json(drivetrain("find", "artifacts", f"made_from = '{examples[0]['uri']}'", "--json"))["artifacts"]
    assert {each["type"] for each in below} == {"Anomalies", "Model", "Evaluation", "PushedModel"}
    failed = last_json(drivetrain("find", "executions", "state = 'FAILED'", "--json"))["executions"]
    assert [(each["node"], each["run"]) for each in failed] == [("Train", runs[2])]
    assert "the column 'x' is missing" in failed[0]["error"]


def test_what_is_named_is_a_column_and_trials_have_their_numbers(runs: list[str], drivetrain: Command) -> None:
    from drivetrain.pipelines import Home

    home = Home(Path(".drivetrain"))
    for number, rate in enumerate((0.5, 0.25)):
        about = {"run": runs[1], "node": "Seek", "number": number, "x": {"a b": rate}}
        trial = home.store.start("Trial", contexts=[], inputs={}, properties=about)
        home.store.publish(trial, {}, properties={"metrics": {"auc": 1 - rate}})
    home.close()
    where = "component = 'Trial' and property.x.\"a b\" > 0"
    header, *rows = drivetrain("find", "executions", where, "--order", "-metric.auc").stdout.splitlines()
    assert header.split()[-3:] == ["metric.auc", 'property.x."a', 'b"']
    assert [(row.split()[:3], row.split()[-2:]) for row in rows] == [
        (["Trial", "1", "Seek"], ["0.75", "0.25"]),
        (["Trial", "0", "Seek"], ["0.5", "0.5"]),
    ]
    text = drivetrain("find", "runs", "parameter.rows >= 3 and parameter.none is null and metric.none is null").stdout
    assert text.splitlines()[0].split() == ["run", "pipeline", "state", "started", "parameter.rows"]


def test_pages_go_on_behind_each_other(runs: list[str], drivetrain: Command, last_json: Read) -> None:
    first = last_json(drivetrain("find", "runs", "--limit", "2", "--order", "started", "--json"))
    second = last_json(drivetrain("find", "runs", "--order", "started", "--after", first["next"], "--json"))
    assert [each["run"] for each in first["runs"] + second["runs"]] == runs
    assert second["next"] is None
    assert f"--after {first['next']}" in drivetrain("find", "runs", "--limit", "2", "--order", "started").stdout
    assert "no runs fit" in drivetrain("find", "runs", "state = 'x'").stdout


def test_a_mistake_is_the_users(runs: list[str], drivetrain: Command) -> None:
    for words in (("runs", "stat = 'x'"), ("artifacts", "state = 'x"), ("runs", "", "--index", "tag.x")):
        result = drivetrain("find", *words)
        assert result.exit_code == 2
    assert drivetrain("find", "artifacts", "property.rows is not null", "--index", "property.rows").exit_code == 0


def test_a_dataframe_of_what_is_found(runs: list[str]) -> None:
    import drivetrain as dt

    frame = dt.find("runs", "parameter.rows >= 3", order="started")
    assert list(frame["run"]) == runs
    assert list(frame["parameters.rows"]) == [3, 4, 3]
    assert str(frame["started"].dtype).startswith("datetime64")
    assert len(dt.find("artifacts")) == len(dt.find("artifacts", limit=None, order="size"))
    assert len(dt.find("executions", limit=2)) == 2
    for kind, nothing in (("runs", "run = ''"), ("executions", "uid = ''"), ("artifacts", "uid = ''")):
        full, empty = dt.find(kind), dt.find(kind, nothing)
        assert len(empty) == 0
        assert list(empty) == [name for name in full if "." not in name]  # so that code may name them
        assert empty["started" if kind != "artifacts" else "created"].dtype.kind == "M"
    with pytest.raises(InputError, match="nothing to find"):
        dt.find("models")
