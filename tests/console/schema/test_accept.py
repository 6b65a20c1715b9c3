"""`schema accept`: a file of the project, never over edits made by hand."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from click.testing import Result

Json = dict[str, Any]
Command = Callable[..., Result]
Read = Callable[[Result], Json]


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
