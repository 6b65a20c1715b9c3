"""`show`: a past run as the store has it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

Json = dict[str, Any]
Command = Callable[..., Result]
Read = Callable[[Result], Json]
Runs = tuple[Json, Json]


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


LOOPS = """
    import drivetrain as dt

    @dt.component
    def Part(*, number: int) -> int:
        if number in (3, 5):
            raise ValueError(f"no {number}")
        return number

    @dt.component
    def Total(*, values: list[int]) -> int:
        return sum(values)

    @dt.pipeline
    def loops(many: list[int]) -> None:
        Total(values=dt.map_(lambda item: Part(number=item), over=many))
"""


def test_many_items_share_a_line_and_those_that_failed_have_their_own(
    project: Callable[..., Path], drivetrain: Command, last_json: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = project("loops", pipeline=LOOPS)
    monkeypatch.chdir(folder.parent)
    result = drivetrain("run", "loops", "--param", f"many={list(range(20))}")
    assert result.exit_code == 1
    table = result.stdout[result.stdout.index("reason") :]
    lines = [line.split() for line in table.splitlines()[1:5]]
    named = [[word for word in line if word != "└"][:2] for line in lines]
    assert named == [["Part[20]", "FAILED"], ["Part[3]", "FAILED"], ["Part[5]", "FAILED"], ["Total", "BLOCKED"]]
    assert "18 complete, 2 failed" in table
    shown = last_json(drivetrain("show", "--json"))
    assert shown["nodes"]["Part[3]"]["state"] == "FAILED"
    assert list(shown["nodes"])[:3] == ["Part[0]", "Part[1]", "Part[2]"]
    assert drivetrain("why", "Part[4]").exit_code == 0
    assert drivetrain("lineage", "Part[4]").exit_code == 0
    empty = drivetrain("run", "loops", "--param", "many=[]")
    assert "there are no items" in empty.stdout
    few = drivetrain("run", "loops", "--param", "many=[1,2]")
    assert "Part[1]" in few.stdout
