"""`why`: what changed, and since which run."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from click.testing import Result

Json = dict[str, Any]
Command = Callable[..., Result]
Read = Callable[[Result], Json]
Runs = tuple[Json, Json]


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
