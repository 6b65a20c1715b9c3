"""`schema update`: a schema follows its data change by change, and never by itself."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from click.testing import Result
from drivetrain.tests.console.schema.projects import MINE, VALIDATED

Json = dict[str, Any]
Command = Callable[..., Result]
Read = Callable[[Result], Json]


def test_from_a_run_to_an_accepted_change(with_schema: Path, drivetrain: Command, last_json: Read) -> None:
    assert drivetrain("run", "look").exit_code == 0
    result = drivetrain("schema", "update")
    assert result.exit_code == 0
    assert "1. carrier: ENUM_TYPE_UNEXPECTED_STRING_VALUES (ERROR)\n" in result.stdout
    assert "2. delay: FLOAT_TYPE_SMALL_FLOAT (ERROR)\n" in result.stdout
    assert "-    domain: {range: {min: 0, max: 2}}\n+    domain: {range: {min: 0, max: 9.5}}\n" in result.stdout
    assert (with_schema / "schema.yaml").read_text() == MINE
    patch = with_schema / "schema.patch.yaml"
    assert [change["id"] for change in yaml.safe_load(patch.read_text())["changes"]] == [1, 2, 3]
    again = drivetrain("schema", "update")
    assert again.exit_code == 2
    assert "--replace" in again.stderr
    assert last_json(drivetrain("schema", "update", "--replace", "--json"))["file"] == str(patch)
    some = last_json(drivetrain("schema", "accept", str(patch), "--only", "1,3", "--json"))
    assert some == {
        "file": str(with_schema / "schema.yaml"),
        "changed": True,
        "accepted": [1, 3],
        "comments_kept": True,
    }
    accepted = (with_schema / "schema.yaml").read_text()
    assert "# two letters, says the IATA\n" in accepted
    assert "values: [AA, UA, ZZ]  # ask Kim\n" in accepted
    assert "{range: {min: 0, max: 9.5}}" in accepted
    assert drivetrain("schema", "accept", str(patch)).exit_code == 0
    assert "{range: {min: -3.0, max: 9.5}}" in (with_schema / "schema.yaml").read_text()
    assert "nothing to change" in drivetrain("schema", "update").stdout
    assert "already so" in drivetrain("schema", "accept", str(patch)).stdout


def test_an_accepted_patch_is_no_obstacle_to_the_next(with_schema: Path, drivetrain: Command, last_json: Read) -> None:
    assert drivetrain("run", "look").exit_code == 0
    patch = last_json(drivetrain("schema", "update", "--json"))["file"]
    assert drivetrain("schema", "accept", patch).exit_code == 0
    (with_schema / "more.csv").write_text("carrier,delay\nQQ,1.5\n")
    options = ("--data", "look/more.csv", "--schema", "look/schema.yaml")
    changes = last_json(drivetrain("schema", "update", *options, "--json"))["changes"]
    assert "QQ" in changes[0]["after"]
    refused = drivetrain("schema", "update", *options)
    assert refused.exit_code == 2
    assert "there is a patch" in refused.stderr


def test_what_the_run_compared_is_compared_again(with_schema: Path, drivetrain: Command, last_json: Read) -> None:
    """The earlier span, serving and the environment are those of its ExampleValidator."""
    (with_schema / "pipeline.py").write_text(VALIDATED)
    rows = ["carrier,delay", *["AA,1.5"] * 9, "UA,1.5\n"]
    (with_schema / "table.csv").write_text("\n".join(rows))
    mine = MINE.replace("\nfeatures:", "\nenvironments: [TRAINING, SERVING]\nfeatures:")
    mine = mine.replace("  # ask Kim\n", "\n    drift: {l_infinity: 0.1}\n")
    (with_schema / "schema.yaml").write_text(
        f"{mine}  label: {{presence: {{min_count: 1}}, not_in_environments: [SERVING]}}\n"
    )
    assert drivetrain("run", "look", "--param", "place=SERVING").exit_code == 0
    assert "nothing to change" in drivetrain("schema", "update").stdout
    (with_schema / "table.csv").write_text("\n".join(rows).replace("AA", "UA", 5))
    assert drivetrain("run", "look", "--param", "place=SERVING").exit_code == 3
    (change,) = last_json(drivetrain("schema", "update", "--json"))["changes"]
    assert change["anomalies"] == ["COMPARATOR_L_INFTY_HIGH"]
    assert "l_infinity: 0.5" in change["after"]
    answer = last_json(drivetrain("schema", "update", "--json", "--replace", "--environment", "TRAINING"))
    assert [change["feature"] for change in answer["changes"]] == ["label", "carrier"]
    here = last_json(
        drivetrain("schema", "update", "--json", "--replace", "--previous", str(with_schema / "table.csv"))
    )
    assert not here["changes"]


def test_a_patch_that_does_not_fit_is_refused(with_schema: Path, drivetrain: Command) -> None:
    data = ("--data", "look/table.csv", "--schema", "look/schema.yaml")
    assert drivetrain("schema", "update", *data, "--to", "mine.yaml").exit_code == 0  # no run is needed
    for options, message in (
        (("mine.yaml", "--to", "look/schema.yaml", "--only", "9"), "the patch has no change 9"),
        (("mine.yaml", "--to", "look/schema.yaml", "--only", "x"), "is not a list of changes"),
        (("none.yaml",), "the patch none.yaml cannot be read"),
        (("look/schema.yaml",), "is not a patch of the format"),
        (("--only", "1"), "--only is for a patch"),
    ):
        refused = drivetrain("schema", "accept", *options)
        assert refused.exit_code == 2
        assert message in refused.stderr
    (with_schema / "schema.yaml").write_text(MINE.replace("max: 2", "max: 3"))
    stale = drivetrain("schema", "accept", "mine.yaml", "--to", "look/schema.yaml")
    assert stale.exit_code == 2
    assert "the schema now says 3, where the patch expects 2" in stale.stderr
    assert drivetrain("schema", "accept", "mine.yaml", "--to", "look/schema.yaml", "--only", "1,2").exit_code == 0


def test_a_missing_schema_is_named(with_schema: Path, drivetrain: Command) -> None:
    wrong = drivetrain("schema", "update", "--data", "look/table.csv")
    assert wrong.exit_code == 2
    assert "the schema schema.yaml cannot be read" in wrong.stderr
