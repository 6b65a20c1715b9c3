"""`rerun`: an earlier run again, with today's code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from click.testing import Result

Json = dict[str, Any]
Command = Callable[..., Result]
Read = Callable[[Result], Json]


def test_rerun_takes_the_runs_parameters_and_runs_from_a_node(
    spans: Path, drivetrain: Command, last_json: Read
) -> None:
    first = last_json(drivetrain("run", "spans", "--param", "span=7", "--json"))
    again = last_json(drivetrain("rerun", "--json"))
    assert {node["state"] for node in again["nodes"].values()} == {"CACHED"}
    assert again["nodes"]["Double"]["outputs"] == first["nodes"]["Double"]["outputs"]
    anew = last_json(drivetrain("rerun", first["run"], "--from", "Double", "--param", "by=3", "--json"))
    assert {name: node["state"] for name, node in anew["nodes"].items()} == {"Read": "CACHED", "Double": "COMPLETE"}
    assert anew["nodes"]["Read"]["reason"] == f"taken from run {first['run']}"
