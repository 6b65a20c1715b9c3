"""`schema diff`: how two schemas differ."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from click.testing import Result
from drivetrain.tests.console.schema.projects import MINE

Json = dict[str, Any]
Command = Callable[..., Result]
Read = Callable[[Result], Json]


def test_diff(with_schema: Path, drivetrain: Command, last_json: Read) -> None:
    assert drivetrain("run", "look").exit_code == 0
    result = drivetrain("schema", "diff")
    assert result.exit_code == 0
    assert "-    domain: {range: {min: 0, max: 2}}\n" in result.stdout
    assert "+    presence: {min_fraction: 1.0, min_count: 1}\n" in result.stdout
    (with_schema.parent / "new.yaml").write_text(MINE.replace("  # ask Kim", "").replace("  delay", "  lateness"))
    answer = last_json(drivetrain("schema", "diff", "look/schema.yaml", "new.yaml", "--json"))
    assert (answer["added"], answer["removed"], answer["differ"]) == (["lateness"], ["delay"], [])
    (with_schema.parent / "same.yaml").write_text(MINE.replace("  # ask Kim", ""))
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
