"""`schema show|infer|accept`: from statistics to a file of the project, never over edits made by hand."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import Result

Json = dict[str, Any]
Command = Callable[..., Result]
Read = Callable[[Result], Json]

PIPELINE = """
import drivetrain as dt
from drivetrain import data
from drivetrain.metadata import Schema, Statistics
from drivetrain.pipelines import Files, resolve_files


@dt.component
def Look(table: Files) -> Statistics:
    made = Statistics.new()
    source = data.open_files([file.path for file in resolve_files(table).files])
    data.statistics({"train": source}).save(made.content)
    return made


@dt.component
def SchemaGen(statistics: Statistics) -> Schema:
    made = Schema.new()
    proposed = data.schema_to_yaml(data.infer_schema(data.Statistics.load(statistics.content)))
    (made.content / "schema.yaml").write_text("# from SchemaGen\\n" + proposed)
    return made


@dt.pipeline
def look(table: str = "table.csv") -> None:
    statistics = Look(table)
"""


@pytest.fixture
def look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drivetrain: Command) -> Path:
    folder = tmp_path / "look"
    folder.mkdir()
    (folder / "pipeline.py").write_text(PIPELINE)
    (folder / "table.csv").write_text("carrier,delay\nAA,1.5\nUA,\nAA,3.0\n")
    monkeypatch.chdir(tmp_path)
    assert drivetrain("run", "look").exit_code == 0
    return folder


def test_infer_prints_what_the_statistics_propose(look: Path, drivetrain: Command, last_json: Read) -> None:
    text = drivetrain("schema", "infer").stdout
    features = yaml.safe_load(text)["features"]
    assert list(features) == ["carrier", "delay"]
    assert last_json(drivetrain("schema", "infer", "--json"))["schema"].strip() == text.strip()
    wrong = drivetrain("schema", "infer", "--split", "eval")
    assert wrong.exit_code == 2
    assert "train" in wrong.stderr


def test_accept_writes_the_projects_file_once_and_never_over_another(
    look: Path, drivetrain: Command, last_json: Read
) -> None:
    accepted = last_json(drivetrain("schema", "accept", "--json"))
    assert accepted["file"] == str(look / "schema.yaml")
    assert accepted["changed"] is True
    text = (look / "schema.yaml").read_text()
    assert yaml.safe_load(text)["features"]["carrier"]
    assert last_json(drivetrain("schema", "accept", "--json"))["changed"] is False
    (look / "schema.yaml").write_text("# mine\n" + text)
    refused = drivetrain("schema", "accept")
    assert refused.exit_code == 2
    assert "-# mine" in refused.stdout
    assert "--replace" in refused.stderr
    assert (look / "schema.yaml").read_text() == "# mine\n" + text
    assert drivetrain("schema", "accept", "--replace").exit_code == 0
    assert (look / "schema.yaml").read_text() == text
    assert drivetrain("schema", "accept", "--to", "other.yaml").exit_code == 0
    assert (look.parent / "other.yaml").read_text() == text


def test_what_schemagen_proposes_goes_before_what_is_inferred(look: Path, drivetrain: Command) -> None:
    pipeline = look / "pipeline.py"
    pipeline.write_text(pipeline.read_text().replace("    statistics = Look(table)", "    SchemaGen(Look(table))"))
    assert drivetrain("run", "look").exit_code == 0
    assert drivetrain("schema", "show").stdout.startswith("# from SchemaGen\n")
    assert drivetrain("schema", "accept").exit_code == 0
    assert (look / "schema.yaml").read_text().startswith("# from SchemaGen\n")


def test_a_run_without_a_schema_or_statistics_says_so(look: Path, shop: Path, drivetrain: Command) -> None:
    missing = drivetrain("schema", "show")
    assert missing.exit_code == 2
    assert "`drivetrain schema infer`" in missing.stderr
    drivetrain("run", "shop")
    nothing = drivetrain("schema", "accept")
    assert nothing.exit_code == 2
    assert "has no statistics" in nothing.stderr


def test_a_schema_comes_from_tfx_and_goes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drivetrain: Command, last_json: Read
) -> None:
    monkeypatch.chdir(tmp_path)
    text = 'feature {\n  name: "x"\n  type: INT\n  presence {\n    min_count: 1\n  }\n}\n'
    (tmp_path / "schema.pbtxt").write_text(text.replace("type", "annotation { tag: 'a' } type"))
    read = drivetrain("schema", "import", "schema.pbtxt")
    assert read.exit_code == 0
    assert read.stderr == "note: schema.pbtxt:3: annotation of feature 'x' is not taken over\n"
    (tmp_path / "schema.yaml").write_text(read.stdout)
    written = drivetrain("schema", "export")
    assert (written.stdout, written.stderr) == (text, "")
    answer = last_json(drivetrain("schema", "import", "schema.pbtxt", "--json"))
    assert answer["schema"].strip() == read.stdout.strip()
    assert len(answer["notes"]) == 1
    (tmp_path / "schema.pbtxt").write_text("feature {\n  nam: 'x' }")
    wrong = drivetrain("schema", "import", "schema.pbtxt")
    assert wrong.exit_code == 2
    assert "error: schema.pbtxt:2:3: Feature has no field 'nam'" in wrong.stderr
