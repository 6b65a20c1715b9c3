"""`backfill`: a pipeline once for each of many spans."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from drivetrain.console.backfill import parse_spans
from drivetrain.errors import InputError

Json = dict[str, Any]
Command = Callable[..., Result]
Read = Callable[[Result], Json]


def test_backfill_runs_each_span_once_and_finds_it_again(spans: Path, drivetrain: Command, last_json: Read) -> None:
    answer = last_json(drivetrain("backfill", "spans", "--spans", "3,1:2", "--json"))
    assert [(one["span"], one["state"], one["ran"]) for one in answer["spans"]] == [
        (span, "COMPLETE", ["Read", "Double"]) for span in (1, 2, 3)
    ]
    again = last_json(drivetrain("backfill", "spans", "--spans", "2:3", "--json"))
    assert [one["ran"] for one in again["spans"]] == [[], []]
    assert "span 1: COMPLETE  ran nothing; 2 cached" in drivetrain("backfill", "spans", "--spans", "1").stdout


def test_backfill_ends_with_its_runs_beside_each_other(spans: Path, drivetrain: Command, last_json: Read) -> None:
    answer = last_json(drivetrain("backfill", "spans", "--spans", "1:2", "--tag", "year=1", "--json"))
    assert [row["metrics"]["Read"] for row in answer["spans"]] == [{"total": 1.0}, {"total": 2.0}]
    assert [row["blessed"] for row in answer["spans"]] == [None, None]
    ended = drivetrain("backfill", "spans", "--spans", "2:5", "--keep-going", "--note", "again")
    lines = [line.split() for line in ended.stdout.splitlines()][-6:]
    assert lines[0] == ["run", "state", "started", "(UTC)", "Double.total", "Read.total", "span", "note"]
    assert [line[1:2] + line[4:] for line in lines[1:5]] == [
        ["COMPLETE", "1004.0000", "2.0000", "2", "again"],
        ["COMPLETE", "1006.0000", "3.0000", "3", "again"],
        ["FAILED", "4", "again"],
        ["COMPLETE", "1010.0000", "5.0000", "5", "again"],
    ]
    assert lines[5] == ["all", "with", "by=2"]
    tags = [run["tags"] for run in last_json(drivetrain("runs", "--json"))["runs"]]
    assert tags == [{}] * 4 + [{"year": "1"}] * 2


def test_backfill_stops_at_what_fails_unless_told_to_go_on(spans: Path, drivetrain: Command, last_json: Read) -> None:
    stopped = drivetrain("backfill", "spans", "--spans", "3:5", "--json")
    assert stopped.exit_code == 2
    assert [one["span"] for one in last_json(stopped)["spans"]] == [3, 4]
    went_on = drivetrain("backfill", "spans", "--spans", "3:5", "--keep-going", "--json")
    assert went_on.exit_code == 2
    assert [one["state"] for one in last_json(went_on)["spans"]] == ["COMPLETE", "FAILED", "COMPLETE"]
    wrong = drivetrain("backfill", "spans", "--spans", "1", "--span-param", "by2")
    assert wrong.exit_code == 2
    assert "has no parameter 'by2'" in wrong.stderr


def test_what_tasks_say_is_below_their_span(project: Callable[..., Path], drivetrain: Command, last_json: Read) -> None:
    """Such as which spans a window left out; said twice, it stands there once."""
    said = project(
        "noted",
        pipeline="""
        import drivetrain as dt
        from drivetrain.pipelines import current

        @dt.component
        def Read(*, span: int) -> int:
            for _ in range(span):
                current().note(f"span {span} has holes")
            return span

        @dt.pipeline
        def noted(span: int) -> None:
            Read(span=span)
        """,
    )
    lines = drivetrain("backfill", str(said), "--spans", "0:2").stdout.splitlines()
    spans = [line.partition(":")[0] for line in lines if line.startswith(("span ", "  "))]
    assert spans == ["span 0", "span 1", "  Read", "span 2", "  Read"]
    assert lines.count("  Read: span 2 has holes") == 1
    answer = last_json(drivetrain("backfill", str(said), "--spans", "3:4", "--json"))
    assert [row["notes"] for row in answer["spans"]] == [
        [{"node": "Read", "text": f"span {span} has holes"}] for span in (3, 4)
    ]


@pytest.mark.parametrize(
    ("text", "spans"),
    [
        ("1:3", [1, 2, 3]),
        ("5", [5]),
        ("3,1:2,2", [1, 2, 3]),
        ("0", [0]),
        (" 7 : 8 ", [7, 8]),
        ("2017-01-01:2017-01-02", [17167, 17168]),
        ("1970-01-02, 3", [1, 3]),
    ],
)
def test_spans_as_text(text: str, spans: list[int]) -> None:
    assert parse_spans(text) == spans


@pytest.mark.parametrize("text", ["", "3:1", "a", "1:", "-1", "1,,2", "1:2:3", "2017-02-30", "2017-1-1"])
def test_text_that_names_no_spans(text: str) -> None:
    with pytest.raises(InputError, match="names no spans"):
        parse_spans(text)
