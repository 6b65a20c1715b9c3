"""`why`: what changed, and since which run."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from drivetrain.redaction import mark_secret
from drivetrain.tests.console.conftest import HELPER

Json = dict[str, Any]
Command = Callable[..., Result]
Read = Callable[[Result], Json]
Runs = tuple[Json, Json]
TAXIS = """
import drivetrain as dt
from drivetrain.components import ExampleGen, ImportSchema
from drivetrain.metadata import Examples


@dt.component
def Count(examples: Examples) -> int:
    return sum(examples.rows.values())


@dt.pipeline
def taxis(data: str = "trips.csv") -> None:
    Count(ExampleGen(data))
    ImportSchema("schema.yaml")
"""


def test_why_names_the_changed_part_and_the_run_it_compares_with(
    two_runs: Runs, drivetrain: Command, last_json: Read
) -> None:
    first, second = (run["run"] for run in two_runs)
    answer = last_json(drivetrain("why", "Train", "--json"))
    assert answer["run"] == second
    assert answer["compared_with"] == {"run": first, "state": "COMPLETE"}
    assert len(answer["changes"]) == 1
    assert "helper.py" in answer["changes"][0]
    assert "helper.py" in drivetrain("why", "Train").stdout
    downstream = last_json(drivetrain("why", "Judge", "--json"))
    assert [change.split(":")[0] for change in downstream["changes"]] == ["input model"]
    # Judge ran because of Train's model, and Train because of the code.
    assert downstream["causes"] == {"model": f"Train ran: {answer['changes'][0]}"}
    assert f"    Train ran: {answer['changes'][0]}" in drivetrain("why", "Judge").stdout.splitlines()


def test_why_says_where_cached_work_was_done(two_runs: Runs, drivetrain: Command, last_json: Read) -> None:
    answer = last_json(drivetrain("why", "Make", "--json"))
    assert answer["state"] == "CACHED"
    assert answer["cached_from"] == two_runs[0]["run"]
    assert f"same work as run {two_runs[0]['run']}" in drivetrain("why", "Make").stdout
    first = last_json(drivetrain("why", "Make", "--run", two_runs[0]["run"], "--json"))
    assert first["reason"] == "first run"
    assert first["compared_with"] is None


def test_why_of_a_parameter_a_blocked_node_and_an_unknown_one(shop: Path, drivetrain: Command, last_json: Read) -> None:
    drivetrain("run", "shop")
    drivetrain("run", "shop", "--param", "limit=2")
    assert "parameter limit: 10 -> 2" in drivetrain("why", "Guard").stdout
    blocked = drivetrain("why", "Train")
    assert "BLOCKED" in blocked.stdout
    assert "Guard vetoed" in blocked.stdout
    unknown = drivetrain("why", "Trian")
    assert unknown.exit_code == 2
    assert "did you mean 'Train'?" in unknown.stderr


def test_why_shows_the_lines_that_changed_by_definition(shop: Path, drivetrain: Command, last_json: Read) -> None:
    before = 'RATE = 2  # per row\n\n\ndef total(rows):\n    """Add."""\n    return RATE * sum(rows.values())\n'
    (shop / "helper.py").write_text(before)
    drivetrain("run", "shop")
    after = before.replace("# per row", "# a row").replace('"Add."', '"Sum."').replace("return RATE", "return 3 + RATE")
    (shop / "helper.py").write_text("# moves all down\n" + after)
    drivetrain("run", "shop")
    (answer,) = last_json(drivetrain("why", "Train", "--json"))["differences"]
    assert (answer["kind"], answer["file"]) == ("code", "shop/helper.py")
    lines = [f"    return {more}RATE * sum(rows.values())" for more in ("", "3 + ")]
    assert answer["hunks"] == [{"definition": "total", "old": [[6, lines[0]]], "new": [[7, lines[1]]]}]
    printed = drivetrain("why", "Train").stdout.splitlines()
    assert printed[3:] == ["      line 7, total:", f"        - {lines[0]}", f"        + {lines[1]}"]


def test_a_revealed_secret_in_a_source_file_is_not_kept(shop: Path, drivetrain: Command, last_json: Read) -> None:
    mark_secret("a-token-in-the-code")
    for number in (1, 2):
        (shop / "helper.py").write_text(f"{HELPER}TOKEN = 'a-token-in-the-code'\nN = {number}\n")
        drivetrain("run", "shop")
    (answer,) = last_json(drivetrain("why", "Train", "--json"))["differences"]
    assert [hunk["definition"] for hunk in answer["hunks"]] == ["N"]
    stored = list(shop.parent.glob(".drivetrain/metadata.db*"))
    assert not any(b"a-token-in-the-code" in path.read_bytes() for path in stored)
    assert any(b"TOKEN = '***'" in path.read_bytes() for path in stored)


def test_why_tells_the_rows_of_data_that_changed(
    project: Callable[..., Path], drivetrain: Command, last_json: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = project("taxis", pipeline=TAXIS)
    monkeypatch.chdir(folder.parent)
    data, schema = folder.parent / "trips.csv", folder / "schema.yaml"
    schema.write_text("format: drivetrain.schema/1\nfeatures:\n  miles:\n    type: int\n")

    def rows_of(text: str) -> list[str]:
        data.write_text(text)
        assert drivetrain("run", "taxis").exit_code == 0
        answers = [drivetrain("why", node).stdout for node in ("ExampleGen", "Count")]
        return [line.strip() for answer in answers for line in answer.splitlines()]

    rows = [f"{mile},{mile * 2}.5" for mile in range(40)]
    rows_of("\n".join(["miles,fare", *rows, ""]))
    appended = rows_of("\n".join(["miles,fare", *rows, "7,7.5", "8,8.5", ""]))
    (size, grown) = (sum(len(row) + 1 for row in ["miles,fare", *rows, *more]) for more in ([], ["7,7.5", "8,8.5"]))
    assert f"- parameter data: file trips.csv changed ({size} -> {grown} bytes)" in appended
    assert any(line.startswith("- so its examples: 40 -> 42 rows (2 appended), ") for line in appended)
    assert any(line.startswith("- input examples: 40 -> 42 rows (2 appended), ") for line in appended)
    schema.write_text(schema.read_text().replace("int", "float"))
    edited = rows_of("\n".join(["miles,fare", *rows[:-1], "39,0.5", "7,7.5", "8,8.5", ""]))
    assert any(line.startswith("- input examples: 42 rows (1 edited), ") for line in edited)
    imported = drivetrain("why", "ImportSchema").stdout.splitlines()
    assert imported[-3:] == ["      line 5:", "        -     type: int", "        +     type: float"]
    (answer,) = last_json(drivetrain("why", "Count", "--json"))["differences"]
    expected = {"kind": "input", "input": "examples", "rows": [42, 42], "change": "edited", "added": 1, "removed": 1}
    assert answer.items() >= expected.items()
    for part in Path(".drivetrain").glob("artifacts/ExampleGen/*/examples/content/*/*.parquet"):
        part.chmod(0o644)
        part.write_bytes(b"damaged")
    (answer,) = last_json(drivetrain("why", "Count", "--json"))["differences"]
    assert answer["rows"] == [42, 42]
    assert "is not what was published" in answer["not_compared"]


def test_a_cause_is_no_run_of_long_ago_whose_outputs_came_back(
    project: Callable[..., Path], drivetrain: Command, last_json: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = project("taxis", pipeline=TAXIS)
    monkeypatch.chdir(folder.parent)
    (folder / "schema.yaml").write_text("format: drivetrain.schema/1\nfeatures:\n  miles:\n    type: int\n")
    data, pipeline = folder.parent / "trips.csv", folder / "pipeline.py"
    runs: list[Json] = []
    for fare in (2, 3, 2):
        data.write_text(f"miles,fare\n1,{fare}\n")
        if len(runs) == 2:
            pipeline.write_text(pipeline.read_text().replace("sum(examples", "1 + sum(examples"))
        runs.append(last_json(drivetrain("run", "taxis", "--json")))
    assert [run["nodes"]["ExampleGen"]["state"] for run in runs] == ["COMPLETE", "COMPLETE", "CACHED"]
    expected = f"ExampleGen made it in run {runs[0]['run']}"
    assert last_json(drivetrain("why", "Count", "--json"))["causes"] == {"examples": expected}


def test_a_damaged_preimage_is_no_traceback(two_runs: Runs, drivetrain: Command) -> None:
    with closing(sqlite3.connect(".drivetrain/metadata.db")) as connection:
        connection.execute("PRAGMA foreign_keys = OFF")
        connection.execute("UPDATE cache_preimage SET preimage = '{\"a\": 1}'")
        connection.commit()
    result = drivetrain("why", "Train")
    assert result.exit_code == 2
    assert "is damaged: what is kept for the cache key" in result.stderr


LISTS = """
import drivetrain as dt
from drivetrain.metadata import Examples, PushedModel
from drivetrain.pipelines import component, current

@dt.component
def Read(*, week: int) -> Examples:
    examples = Examples.new(span=week, rows={"train": week})
    (examples.content / "rows").write_text("x" * week)
    return examples

@dt.component
def Learn(history: list[Examples]) -> int:
    return len(history)

def gone(outputs, parameters, base):
    return None if (base / "pushed").exists() else "version 1 is no longer there"

@component(verify=gone)
def Push(examples: Examples) -> PushedModel:
    (current().base / "pushed").touch()
    pushed = PushedModel.new(version=1)
    (pushed.content / "receipt").write_text("1")
    return pushed

@dt.pipeline
def weeks(week: int = 1) -> None:
    examples = Read(week=week)
    Learn(dt.resolvers.rolling(examples, 3, before=True, min_spans=0))
    Push(examples)
"""


def test_why_of_an_input_that_is_a_list(
    project: Callable[..., Path], drivetrain: Command, last_json: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project("weeks", pipeline=LISTS))
    runs = [last_json(drivetrain("run", ".", "-p", f"week={week}", "--json"))["run"] for week in (1, 2, 3)]
    first = drivetrain("why", "Learn", "--run", runs[1]).stdout.splitlines()
    assert first[2] == "  - input history: added, 0 -> 1 rows, 0 -> 1 bytes"
    assert first[3] == f"    Read made it in run {runs[0]}"  # in this one it made another
    drivetrain("run", ".", "-p", "week=5")
    drivetrain("run", ".", "-p", "week=9")  # spans 2, 3 and 5 after 1, 2 and 3
    lines = drivetrain("why", "Learn").stdout.splitlines()
    assert [line for line in lines if "input history" in line] == ["  - input history: 6 -> 10 rows, 6 -> 10 bytes"], (
        lines
    )
    assert runs[0] not in "".join(lines[2:])


def test_why_says_what_no_longer_stands_before_it_compares(
    project: Callable[..., Path], drivetrain: Command, last_json: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder := project("weeks", pipeline=LISTS))
    for week in (1, 2):
        drivetrain("run", ".", "-p", f"week={week}")
    next(folder.parent.rglob("pushed")).unlink()  # beside the root
    last = last_json(drivetrain("run", ".", "-p", "week=1", "--json"))
    assert last["nodes"]["Push"]["reason"] == "version 1 is no longer there"
    lines = drivetrain("why", "Push").stdout.splitlines()
    assert lines[1] == "  version 1 is no longer there"
    assert lines[3].startswith("  - input examples: ")


SPANNED = """
import drivetrain as dt
from drivetrain.components import ExampleGen

@dt.pipeline
def weeks(week: int = 1) -> None:
    ExampleGen(dt.files("week-{SPAN}.csv", span=week), null_values=["NA"])
"""


def test_what_was_edited_is_not_hidden_behind_the_files_of_another_span(
    project: Callable[..., Path], drivetrain: Command, last_json: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder := project("weeks", pipeline=SPANNED))
    for beside in (folder, folder.parent):  # data is looked for in the project, and beside the root
        for week in (1, 2):
            (beside / f"week-{week}.csv").write_text("a\n" + "1\n" * week)
    assert drivetrain("run", ".").exit_code == 0
    project("weeks", pipeline=SPANNED.replace('"NA"', '"?"'))
    reason = last_json(drivetrain("run", ".", "-p", "week=2", "--json"))["nodes"]["ExampleGen"]["reason"]
    assert reason.startswith('parameter null_values: "NA" -> "?"; ')
    assert reason.endswith(" (and 1 more)")
