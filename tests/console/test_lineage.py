"""`lineage`: up to the beginning and down to the end."""

import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

Json = dict[str, Any]
Command = Callable[..., Result]
Read = Callable[[Result], Json]
Runs = tuple[Json, Json]


def test_lineage_goes_up_to_the_beginning_and_down_to_the_end(
    two_runs: Runs, drivetrain: Command, last_json: Read
) -> None:
    up = last_json(drivetrain("lineage", "Push", "--json"))
    assert [execution["node"] for execution in up["executions"]] == ["Make", "Train", "Push"]
    # Train and Push ran in the second run, on what Make had made in the first.
    assert up["executions"][0]["run"] == two_runs[0]["run"]
    assert {artifact["type"] for artifact in up["artifacts"]} == {"Examples", "Model"}
    text = drivetrain("lineage", "Push").stdout
    assert text.index("Push") < text.index("Train") < text.index("Make")
    made = two_runs[0]["nodes"]["Make"]["outputs"]["examples"][0]
    for start in (made["uri"], f".drivetrain/{made['uri']}", made["fingerprint"][:12]):
        down = last_json(drivetrain("lineage", start, "--down", "--json"))
        nodes = [execution["node"] for execution in down["executions"]]
        # Both runs' Train; Guard too, twice, since a cached execution consumed it as well.
        assert nodes.count("Train") == nodes.count("Push") == 2
        assert {"Guard", "Judge"} <= set(nodes)


def test_lineage_names_the_files_at_its_beginning(
    tmp_path: Path, drivetrain: Command, last_json: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop").mkdir()
    for number in range(7):
        (tmp_path / f"{number}.csv").write_text(f"{number}")
    (tmp_path / "shop" / "prices.json").write_text("3")
    (tmp_path / "shop" / "pipeline.py").write_text(FILES)
    assert drivetrain("run", "shop").exit_code == 0
    reader, adder = last_json(drivetrain("lineage", "Add", "--json"))["executions"]
    digest = hashlib.sha256((tmp_path / "0.csv").read_bytes()).hexdigest()
    assert len(reader["files"]) == 7, reader["files"]
    assert reader["files"][0] == {"parameter": "data", "name": "0.csv", "size": 1, "sha256": digest}
    prices = hashlib.sha256(b"3").hexdigest()
    assert adder["files"] == [{"parameter": None, "name": "prices.json", "size": 1, "sha256": prices}]
    text = drivetrain("lineage", "Add").stdout
    assert f"data: file 0.csv {digest[:12]}" in text
    assert "and 2 more files: --json has all" in text
    assert f"read by its code: file prices.json {prices[:12]}" in text
    assert "file" not in drivetrain("lineage", "Add", "--down").stdout


FILES = """from pathlib import Path
import drivetrain as dt
from drivetrain.metadata import Examples
from drivetrain.pipelines import FileSet

@dt.component
def Read(*, data: FileSet) -> Examples:
    examples = Examples.new(rows={"train": len(data.files)})
    (examples.content / "rows").write_text("rows")
    return examples

@dt.component
def Add(examples: Examples) -> int:
    return int((Path(__file__).parent / "prices.json").read_text())

@dt.pipeline
def shop() -> None:
    Add(Read(data=dt.files("*.csv")))
"""


def test_lineage_of_nothing_says_what_there_is(two_runs: Runs, drivetrain: Command) -> None:
    result = drivetrain("lineage", "artifacts/Nothing/1/x")
    assert result.exit_code == 2
    assert "name a node (Make, Guard, Train, Judge, Push)" in result.stderr


def test_the_versions_of_a_folder_are_named(two_runs: Runs, drivetrain: Command) -> None:
    assert drivetrain("lineage", "serving/shop/2").exit_code == 0
    for start in ("serving/shop", "serving/shop/", "serving/shop/9"):
        result = drivetrain("lineage", start)
        assert (result.exit_code, f"{start} is not a version that was pushed from" in result.stderr) == (2, True)
        assert result.stderr.rstrip().endswith("fix: name a version: serving/shop/2")


def test_branches_that_are_alike_are_drawn_once(shop: Path, drivetrain: Command, last_json: Read) -> None:
    runs = 6
    for number in range(runs):
        (shop / "helper.py").write_text(f"def total(rows):\n    return {number} * sum(rows.values())\n")
        assert drivetrain("run", "shop").exit_code == 0
    folded = drivetrain("lineage", "Make", "--down").stdout
    whole = drivetrain("lineage", "Make", "--down", "--all").stdout
    assert folded.count("Train ") == folded.count("Push ") == 1
    assert whole.count("Train ") == runs
    (line,) = (line for line in folded.splitlines() if "Train " in line)
    newest = last_json(drivetrain("runs", "--json"))["runs"][0]["run"]
    assert newest in line
    assert f"and {runs - 1} more like it" in line
    assert len(folded.splitlines()) < 15 < 30 < len(whole.splitlines())
    # What went another way is not an equal branch.
    assert drivetrain("run", "shop", "--param", "fail=crash").exit_code == 2
    again = drivetrain("lineage", "Make", "--down").stdout
    assert again.count("Train COMPLETE") == again.count("Train FAILED") == 1
    assert drivetrain("run", "shop", "--param", "limit=1").exit_code == 3
    vetoed = drivetrain("lineage", "Make", "--down").stdout
    assert vetoed.count("Guard COMPLETE") == 2
    assert len(re.findall(r"Anomalies \w+ not passed", vetoed)) == 1
    answer = last_json(drivetrain("lineage", "Make", "--down", "--json"))
    assert [execution["node"] for execution in answer["executions"]].count("Train") == runs + 1


CACHED = """
from typing import NamedTuple
import drivetrain as dt
from drivetrain.metadata import AnalyzerCache, Examples, Model, Predictions

class Learnt(NamedTuple):
    model: Model
    cache: AnalyzerCache

def write(artifact, text):
    (artifact.content / "text").write_text(str(text))
    return artifact

@dt.component
def Read(*, week: int) -> Examples:
    return write(Examples.new(span=week, rows={"train": week}), week)

@dt.component
def Learn(examples: Examples, history: list[Examples], cache: AnalyzerCache | None = None) -> Learnt:
    return Learnt(write(Model.new(), examples.span), write(AnalyzerCache.new(), examples.span))

@dt.component
def Predict(model: Model) -> Predictions:
    return write(Predictions.new(rows={"train": 1}), "predicted")

@dt.pipeline
def weeks(week: int = 1, since: int = 0) -> None:
    examples = Read(week=week)
    history = dt.resolvers.rolling(examples, 1, before=True, start=since, min_spans=0)
    Predict(Learn(examples, history, dt.latest(AnalyzerCache)).model)
"""


def test_what_an_analyzer_cache_saw_is_no_data_of_a_model(
    project: Callable[..., Path], drivetrain: Command, last_json: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project("weeks", pipeline=CACHED))
    models = []
    for week in (1, 2, 3):  # the second has no history, the third has the second week
        run = last_json(drivetrain("run", ".", "-p", f"week={week}", "-p", "since=2", "--json"))
        models.append(run["nodes"]["Learn"]["outputs"]["model"][0])
        assert drivetrain("registry", "register", "m").exit_code == 0
    learned = {1: [1], 2: [2, 3], 3: [3]}  # which models, of each week
    for week, those in learned.items():
        down = last_json(drivetrain("trace", "--span", str(week), "--json"))
        assert [each["uri"] for each in down["models"]] == [models[number - 1]["uri"] for number in those]
        assert len(down["predictions"]) == len(those)
        version = last_json(drivetrain("registry", "show", f"m@{week}", "--json"))
        assert [each["span"] for each in version["data"]] == [key for key, value in learned.items() if week in value]
        bulk = last_json(drivetrain("trace", down["predictions"][0]["uri"], "--json"))
        assert [each["span"] for each in bulk["models"][0]["data"]] == [1] if week == 1 else [2]
    up = last_json(drivetrain("lineage", "Learn", "--json"))
    assert [each["type"] for each in up["artifacts"]].count("Examples") == 2
    assert [each["node"] for each in up["executions"]] == ["Read", "Read", "Learn"]
    text = drivetrain("lineage", "Learn").stdout
    assert text.count("AnalyzerCache") == 1, text
    card = drivetrain("registry", "card", "m@2").stdout
    assert "span 2" in card
    assert "span 1" not in card
