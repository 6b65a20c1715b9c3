"""How a change of a key is told: also where the record of a key is damaged."""

from __future__ import annotations

from pathlib import Path

import pytest
from drivetrain.console.differences import difference
from drivetrain.metadata.cache import Change
from drivetrain.pipelines import Home


@pytest.mark.parametrize("kind", ["code", "inputs", "parameters"])
def test_a_whole_part_of_a_key_that_is_something_else_is_shown_as_it_is(tmp_path: Path, kind: str) -> None:
    home = Home(tmp_path / ".drivetrain")
    try:
        change = Change((kind,), "x", "y", f"{kind} changed")
        assert difference(home, change, {}, {}) == {
            "kind": kind.removesuffix("s"), "line": f"{kind} changed", "path": [], "old": "x", "new": "y"
        }  # fmt: skip
    finally:
        home.close()
