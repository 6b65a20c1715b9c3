"""`backfill` carries its runs out as `run` does: by any runner, with parameters from a file, on after a failure."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from drivetrain.pipelines import Home, open_run
from drivetrain.pipelines.launcher.flow import Flow

Json = dict[str, Any]
Command = Callable[..., Result]
Read = Callable[[Result], Json]

DAYS = """
    import os
    import drivetrain as dt
    from drivetrain.errors import InputError
    from drivetrain.metadata import Examples
    from drivetrain.pipelines import current

    @dt.component
    def Day(*, span: int, of: str) -> Examples:
        if span == 3 and not (current().base / "mended").exists():
            raise InputError("day 3 is not there", fix="fetch it")
        examples = Examples.new(span=span)
        (examples.content / "day").write_text(f"{of} {span}")
        return examples

    @dt.component
    def Seen(days: list[Examples]) -> list[int]:
        return [one.span for one in days]

    @dt.component
    def Where(*, span: int) -> str:
        return f"{os.environ['PLACE']} {os.getpid()}"

    @dt.pipeline
    def days(span: int = 1, of: str = "month") -> None:
        Seen(dt.resolvers.rolling(Day(span=span, of=of), 2, min_spans=1))
"""
IN_PROCESSES = (
    DAYS.partition("    @dt.pipeline")[0]
    + """
    @dt.pipeline
    def days(span: int = 1) -> None:
        Where.options(env={"PLACE": "oslo"}, timeout=60)(span=span)
"""
)


@pytest.fixture
def days(project: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = project("days", pipeline=DAYS)
    monkeypatch.chdir(folder.parent)
    return folder


def test_parameters_come_from_a_file_too(days: Path, drivetrain: Command, last_json: Read) -> None:
    Path("p.yaml").write_text("of: year\n")
    assert drivetrain("backfill", "days", "--spans", "1:2", "--params", "p.yaml").exit_code == 0
    runs = last_json(drivetrain("runs", "--json"))["runs"]
    assert [run["parameters"] for run in runs] == [{"span": 2, "of": "year"}, {"span": 1, "of": "year"}]


def test_what_only_processes_keep_is_filled_in_by_them(
    project: Callable[..., Path], drivetrain: Command, last_json: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project("days", pipeline=IN_PROCESSES).parent)
    refused = drivetrain("backfill", "days", "--spans", "1:2")
    assert refused.exit_code == 2
    assert "which the inline runner cannot keep" in refused.stderr
    answer = last_json(
        drivetrain("backfill", "days", "--spans", "1:2", "--runner", "process", "--parallel", "1", "--json")
    )
    assert [(one["span"], one["state"]) for one in answer["spans"]] == [(1, "COMPLETE"), (2, "COMPLETE")]
    assert drivetrain("backfill", "days", "--spans", "1", "--beam-option=--x=1").exit_code == 2


def test_a_span_that_failed_is_resumed_and_the_rest_filled_in(days: Path, drivetrain: Command, last_json: Read) -> None:
    stopped = last_json(drivetrain("backfill", "days", "--spans", "1:5", "--json"))["spans"]
    assert [(one["span"], one["state"]) for one in stopped] == [(1, "COMPLETE"), (2, "COMPLETE"), (3, "FAILED")]
    Path("mended").touch()
    resumed = last_json(drivetrain("resume", stopped[-1]["run"], "--json"))
    assert resumed["state"] == "COMPLETE"
    again = last_json(drivetrain("backfill", "days", "--spans", "1:5", "--json"))["spans"]
    assert [(one["span"], one["ran"]) for one in again] == [
        (1, []), (2, []), (3, []), (4, ["Day", "Seen"]), (5, ["Day", "Seen"]),
    ]  # fmt: skip
    home = Home(Path(".drivetrain"))
    (seen,) = Flow(home.store, open_run(home, again[3]["run"])).outputs("Seen")["value"]
    assert seen.properties["value"] == [3, 4]
    home.close()
