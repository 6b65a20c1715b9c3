"""`schema diff|update|accept PATCH`: a schema follows its data change by change, and never by itself."""

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
from drivetrain.components import SchemaGen
from drivetrain.metadata import Statistics
from drivetrain.pipelines import Files, resolve_files


@dt.component
def Look(table: Files) -> Statistics:
    made = Statistics.new()
    source = data.open_files([file.path for file in resolve_files(table).files])
    data.statistics({"train": source}).save(made.content)
    return made


@dt.pipeline
def look(table: str = "table.csv") -> None:
    SchemaGen(Look(table))
"""
VALIDATED = """
import drivetrain as dt
from drivetrain.components import ExampleGen, ExampleValidator, ImportSchema, StatisticsGen
from drivetrain.metadata import Statistics


@dt.pipeline
def look(table: str = "table.csv", place: str = "TRAINING") -> None:
    examples = ExampleGen(table, splits={"train": 1})
    statistics = StatisticsGen(examples)
    schema = ImportSchema("schema.yaml")
    ExampleValidator(examples, statistics, schema, previous=dt.latest(Statistics), environment=place)
"""
MINE = """\
format: drivetrain.schema/1
features:
  carrier:  # two letters, says the IATA
    type: string
    domain: {values: [AA, UA]}  # ask Kim
  delay:
    type: float
    domain: {range: {min: 0, max: 2}}
"""


@pytest.fixture
def look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drivetrain: Command) -> Path:
    folder = tmp_path / "look"
    folder.mkdir()
    (folder / "pipeline.py").write_text(PIPELINE)
    (folder / "table.csv").write_text("carrier,delay\nAA,1.5\nZZ,\nAA,-3.0\nUA,9.5\n")
    (folder / "schema.yaml").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    return folder


def test_from_a_run_to_an_accepted_change(look: Path, drivetrain: Command, last_json: Read) -> None:
    assert drivetrain("run", "look").exit_code == 0
    told = drivetrain("schema", "update")
    assert told.exit_code == 0
    assert "1. carrier: ENUM_TYPE_UNEXPECTED_STRING_VALUES (ERROR)\n" in told.stdout
    assert "2. delay: FLOAT_TYPE_SMALL_FLOAT (ERROR)\n" in told.stdout
    assert "-    domain: {range: {min: 0, max: 2}}\n+    domain: {range: {min: 0, max: 9.5}}\n" in told.stdout
    assert (look / "schema.yaml").read_text() == MINE
    patch = look / "schema.patch.yaml"
    assert [change["id"] for change in yaml.safe_load(patch.read_text())["changes"]] == [1, 2, 3]
    again = drivetrain("schema", "update")
    assert again.exit_code == 2
    assert "--replace" in again.stderr
    assert last_json(drivetrain("schema", "update", "--replace", "--json"))["file"] == str(patch)
    some = last_json(drivetrain("schema", "accept", str(patch), "--only", "1,3", "--json"))
    assert some == {"file": str(look / "schema.yaml"), "changed": True, "accepted": [1, 3], "comments_kept": True}
    accepted = (look / "schema.yaml").read_text()
    assert "# two letters, says the IATA\n" in accepted
    assert "values: [AA, UA, ZZ]  # ask Kim\n" in accepted
    assert "{range: {min: 0, max: 9.5}}" in accepted
    assert drivetrain("schema", "accept", str(patch)).exit_code == 0
    assert "{range: {min: -3.0, max: 9.5}}" in (look / "schema.yaml").read_text()
    assert "nothing to change" in drivetrain("schema", "update").stdout
    assert "already so" in drivetrain("schema", "accept", str(patch)).stdout


def test_what_the_run_compared_is_compared_again(look: Path, drivetrain: Command, last_json: Read) -> None:
    """The earlier span, serving and the environment are those of its ExampleValidator."""
    (look / "pipeline.py").write_text(VALIDATED)
    rows = ["carrier,delay", *["AA,1.5"] * 9, "UA,1.5\n"]
    (look / "table.csv").write_text("\n".join(rows))
    mine = MINE.replace("\nfeatures:", "\nenvironments: [TRAINING, SERVING]\nfeatures:")
    mine = mine.replace("  # ask Kim\n", "\n    drift: {l_infinity: 0.1}\n")
    (look / "schema.yaml").write_text(
        f"{mine}  label: {{presence: {{min_count: 1}}, not_in_environments: [SERVING]}}\n"
    )
    assert drivetrain("run", "look", "--param", "place=SERVING").exit_code == 0
    assert "nothing to change" in drivetrain("schema", "update").stdout
    (look / "table.csv").write_text("\n".join(rows).replace("AA", "UA", 5))
    assert drivetrain("run", "look", "--param", "place=SERVING").exit_code == 3
    (change,) = last_json(drivetrain("schema", "update", "--json"))["changes"]
    assert change["anomalies"] == ["COMPARATOR_L_INFTY_HIGH"]
    assert "l_infinity: 0.5" in change["after"]
    told = last_json(drivetrain("schema", "update", "--json", "--replace", "--environment", "TRAINING"))
    assert [change["feature"] for change in told["changes"]] == ["label", "carrier"]
    here = last_json(drivetrain("schema", "update", "--json", "--replace", "--previous", str(look / "table.csv")))
    assert not here["changes"]


def test_a_patch_that_does_not_fit_is_refused(look: Path, drivetrain: Command) -> None:
    data = ("--data", "look/table.csv", "--schema", "look/schema.yaml")
    assert drivetrain("schema", "update", *data, "--to", "mine.yaml").exit_code == 0  # no run is needed
    for options, message in (
        (("mine.yaml", "--to", "look/schema.yaml", "--only", "9"), "the patch has no change 9"),
        (("mine.yaml", "--to", "look/schema.yaml", "--only", "x"), "is no list of changes"),
        (("none.yaml",), "the patch none.yaml cannot be read"),
        (("look/schema.yaml",), "is no patch of the format"),
        (("--only", "1"), "--only is for a patch"),
    ):
        refused = drivetrain("schema", "accept", *options)
        assert refused.exit_code == 2
        assert message in refused.stderr
    (look / "schema.yaml").write_text(MINE.replace("max: 2", "max: 3"))
    stale = drivetrain("schema", "accept", "mine.yaml", "--to", "look/schema.yaml")
    assert stale.exit_code == 2
    assert "the schema now says 3, the patch knew 2" in stale.stderr
    assert drivetrain("schema", "accept", "mine.yaml", "--to", "look/schema.yaml", "--only", "1,2").exit_code == 0


def test_diff(look: Path, drivetrain: Command, last_json: Read) -> None:
    assert drivetrain("run", "look").exit_code == 0
    told = drivetrain("schema", "diff")
    assert told.exit_code == 0
    assert "-    domain: {range: {min: 0, max: 2}}\n" in told.stdout
    assert "+    presence: {min_fraction: 1.0, min_count: 1}\n" in told.stdout
    (look.parent / "new.yaml").write_text(MINE.replace("  # ask Kim", "").replace("  delay", "  lateness"))
    answer = last_json(drivetrain("schema", "diff", "look/schema.yaml", "new.yaml", "--json"))
    assert (answer["added"], answer["removed"], answer["differ"]) == (["lateness"], ["delay"], [])
    (look.parent / "same.yaml").write_text(MINE.replace("  # ask Kim", ""))
    assert drivetrain("schema", "diff", "look/schema.yaml", "same.yaml").stdout == "no difference\n"
    shown = last_json(drivetrain("show", "--json"))
    made = shown["nodes"]["SchemaGen"]["outputs"]
    artifact = next(iter(made.values()))[0]
    for name in (artifact["uri"], artifact["fingerprint"][:12]):
        assert last_json(drivetrain("schema", "diff", "look/schema.yaml", name, "--json"))["differ"] == [
            "carrier", "delay",
        ]  # fmt: skip
        assert drivetrain("schema", "diff", name).stdout == "no difference\n"
    other = next(iter(shown["nodes"]["Look"]["outputs"].values()))[0]["uri"]
    wrong = drivetrain("schema", "diff", "look/schema.yaml", other)
    assert wrong.exit_code == 2
    assert "an artifact of type Statistics" in wrong.stderr
    assert "no file and no artifact" in drivetrain("schema", "diff", "nowhere.yaml").stderr


def test_a_missing_schema_is_named(look: Path, drivetrain: Command) -> None:
    wrong = drivetrain("schema", "update", "--data", "look/table.csv")
    assert wrong.exit_code == 2
    assert "the schema schema.yaml cannot be read" in wrong.stderr


def test_infer_with_slack(look: Path, drivetrain: Command) -> None:
    assert drivetrain("run", "look").exit_code == 0
    text = drivetrain("schema", "infer", "--slack", "0.1").stdout
    assert yaml.safe_load(text)["features"]["delay"]["domain"] == {"range": {"min": -4.25, "max": 10.75}}
    assert "range" not in drivetrain("schema", "infer").stdout
