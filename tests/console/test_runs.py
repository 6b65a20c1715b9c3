"""`runs`: the newest first."""

from collections.abc import Callable
from typing import Any

from click.testing import Result

Json = dict[str, Any]
Command = Callable[..., Result]
Read = Callable[[Result], Json]
Runs = tuple[Json, Json]


def test_runs_lists_the_newest_first(two_runs: Runs, drivetrain: Command, last_json: Read) -> None:
    found = last_json(drivetrain("runs", "--json"))["runs"]
    assert [run["run"] for run in found] == [two_runs[1]["run"], two_runs[0]["run"]]
    assert found[0]["state"] == "COMPLETE"
    assert found[0]["parameters"] == {"rows": 3, "limit": 10, "fail": "", "seconds": 0.0}
    assert found[0]["started"] < found[0]["finished"]
    assert len(last_json(drivetrain("runs", "-n", "1", "--json"))["runs"]) == 1
    assert two_runs[0]["run"] in drivetrain("runs").stdout
