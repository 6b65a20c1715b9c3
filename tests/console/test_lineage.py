"""`lineage`: up to the beginning and down to the end."""

from collections.abc import Callable
from typing import Any

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


def test_lineage_of_nothing_says_what_there_is(two_runs: Runs, drivetrain: Command) -> None:
    result = drivetrain("lineage", "artifacts/Nothing/1/x")
    assert result.exit_code == 2
    assert "name a node (Make, Guard, Train, Judge, Push)" in result.stderr
