"""`spin`: one node of an earlier run, with today's code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from click.testing import Result

Json = dict[str, Any]
Command = Callable[..., Result]
Read = Callable[[Result], Json]


def test_spin_says_whether_the_content_is_the_same(spans: Path, drivetrain: Command, last_json: Read) -> None:
    run = last_json(drivetrain("run", "spans", "--json"))["run"]
    assert "numbers: as in the run" in drivetrain("spin", "Double").stdout
    pipeline = spans / "pipeline.py"
    pipeline.write_text(pipeline.read_text().replace("+ 1000", "+ 2000"))
    answer = last_json(drivetrain("spin", "Double", "--run", run, "--json"))
    assert answer["outputs"]["numbers"]["same"] is False
    assert answer["outputs"]["numbers"]["properties"] == {"total": 2002}
    assert len(last_json(drivetrain("runs", "--json"))["runs"]) == 1


def test_spin_reads_a_parameter_as_its_type(spans: Path, drivetrain: Command, last_json: Read) -> None:
    last_json(drivetrain("run", "spans", "--json"))
    answer = last_json(drivetrain("spin", "Double", "--param", "by=3", "--json"))
    assert answer["outputs"]["numbers"]["properties"] == {"total": 1003}
    wrong = drivetrain("spin", "Double", "--param", "by=three")
    assert wrong.exit_code == 2
    assert "the parameter 'by' takes int, not 'three'" in wrong.stderr
