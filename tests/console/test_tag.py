"""`tag`: tags and the note of a run that is there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from click.testing import Result

Json = dict[str, Any]
Command = Callable[..., Result]
Read = Callable[[Result], Json]


def test_a_run_is_tagged_and_noted_later(two_runs: tuple[Json, Json], drivetrain: Command, last_json: Read) -> None:
    first, second = (run["run"] for run in two_runs)
    assert drivetrain("tag").stdout == f"run {second}: no tags\n"
    answer = last_json(drivetrain("tag", "baseline", "team=risk=1", "--note", "[red] wide", "--json"))
    assert answer == {"run": second, "tags": {"baseline": "", "team": "risk=1"}, "note": "[red] wide"}
    assert drivetrain("tag").stdout == f"run {second}: baseline, team=risk=1\n[red] wide\n"
    assert drivetrain("tag", "--run", first, "old").stdout == f"run {first}: old\n"
    assert [run["tags"] for run in last_json(drivetrain("runs", "--json"))["runs"]] == [answer["tags"], {"old": ""}]
    changed = last_json(drivetrain("tag", "team=fraud", "--remove", "baseline", "--remove", "gone", "--json"))
    assert changed == {"run": second, "tags": {"team": "fraud"}, "note": "[red] wide"}
    assert last_json(drivetrain("tag", "--note", "", "--json"))["note"] == ""


def test_a_run_again_has_its_own_tags(two_runs: tuple[Json, Json], drivetrain: Command, last_json: Read) -> None:
    drivetrain("tag", "baseline")
    again = last_json(drivetrain("rerun", "--tag", "again", "--note", "why", "--json"))["run"]
    newest = last_json(drivetrain("runs", "--json"))["runs"][0]
    assert (newest["run"], newest["tags"], newest["note"]) == (again, {"again": ""}, "why")


def test_a_tag_needs_a_name(two_runs: tuple[Json, Json], drivetrain: Command) -> None:
    for refused in (drivetrain("tag", "=x"), drivetrain("run", "shop", "--tag", "")):
        assert refused.exit_code == 2
        assert "a tag has 1 to 255 characters, not 0" in refused.stderr
