"""`runs`, `show`, `why`, `lineage`: the past as the store has it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

Json = dict[str, Any]
Command = Callable[..., Result]
Read = Callable[[Result], Json]
Runs = tuple[Json, Json]


@pytest.fixture
def two_runs(shop: Path, drivetrain: Command, last_json: Read) -> Runs:
    """A first run, then one with another helper: (first, second)."""
    first = last_json(drivetrain("run", "shop", "--json"))
    (shop / "helper.py").write_text("def total(rows):\n    return 2 * sum(rows.values())\n")
    return first, last_json(drivetrain("run", "shop", "--json"))


def test_runs_lists_the_newest_first(two_runs: Runs, drivetrain: Command, last_json: Read) -> None:
    found = last_json(drivetrain("runs", "--json"))["runs"]
    assert [run["run"] for run in found] == [two_runs[1]["run"], two_runs[0]["run"]]
    assert found[0]["state"] == "COMPLETE"
    assert found[0]["parameters"] == {"rows": 3, "limit": 10, "fail": "", "seconds": 0.0}
    assert found[0]["started"] < found[0]["finished"]
    assert len(last_json(drivetrain("runs", "-n", "1", "--json"))["runs"]) == 1
    assert two_runs[0]["run"] in drivetrain("runs").stdout


def test_show_says_of_a_past_run_what_run_said(two_runs: Runs, drivetrain: Command, last_json: Read) -> None:
    for run in two_runs:
        shown = last_json(drivetrain("show", run["run"], "--json"))
        assert shown["run"] == run["run"]
        assert shown["state"] == run["state"]
        for name, node in run["nodes"].items():
            for key in ("state", "reason", "outputs"):
                assert shown["nodes"][name][key] == node[key]
    newest = drivetrain("show").stdout
    assert two_runs[1]["run"] in newest
    assert two_runs[1]["nodes"]["Train"]["outputs"]["model"][0]["uri"] in newest.replace("\n", "")
    # A beginning of the id is enough where it is unique.
    assert last_json(drivetrain("show", two_runs[0]["run"][:-1], "--json"))["run"] == two_runs[0]["run"]


def test_show_quotes_a_veto_again(shop: Path, drivetrain: Command) -> None:
    drivetrain("run", "shop", "--param", "rows=11")
    assert "row 17: carrier=ZZ_NEW" in drivetrain("show").stdout


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
