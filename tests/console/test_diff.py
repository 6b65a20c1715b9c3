"""`diff`: what two runs do not have in common."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from click.testing import Result

Json = dict[str, Any]
Command = Callable[..., Result]
Read = Callable[[Result], Json]


def test_diff_names_what_changed(spans: Path, drivetrain: Command, last_json: Read) -> None:
    one = last_json(drivetrain("run", "spans", "--json"))["run"]
    two = last_json(drivetrain("run", "spans", "--param", "by=5", "--json"))["run"]
    answer = last_json(drivetrain("diff", one, two, "--json"))
    assert answer["parameters"] == {"by": [2, "5"]} or answer["parameters"] == {"by": [2, 5]}
    assert answer["nodes"] == {
        "Double": {
            "changes": ["parameter by: 2 -> 5"],
            "properties": {"numbers.total": [1002, 1005]},
            "metrics": {"total": [1002.0, 1005.0]},
        }
    }
    assert "parameter by: 2 -> 5" in drivetrain("diff", one, two).stdout
    assert "nothing differs" in drivetrain("diff", one, one).stdout
