"""How a task ends, and what follows: a table, so that a new end is thought through in every column."""

from __future__ import annotations

import json

import pytest
from drivetrain.pipelines.launcher.states import EndState, run_state

TABLE = {  # succeeded, final, exit code
    "COMPLETE": (True, True, 0),
    "CACHED": (True, True, 0),
    "SKIPPED": (False, True, 0),
    "BLOCKED": (False, False, 0),
    "FAILED": (False, False, 1),
    "CANCELED": (False, False, 130),
}


def test_what_follows_from_each_end() -> None:
    assert {state.value: (state.succeeded, state.final, state.exit_code) for state in EndState} == TABLE


def test_it_is_stored_as_it_is_called() -> None:
    assert json.dumps({state: state for state in EndState}) == json.dumps({name: name for name in TABLE})
    assert f"{EndState.COMPLETE}" == "COMPLETE"


@pytest.mark.parametrize(
    ("ends", "vetoed", "state"),
    [
        ("COMPLETE CACHED SKIPPED", False, "COMPLETE"),
        ("", False, "COMPLETE"),
        ("COMPLETE BLOCKED", True, "STOPPED"),
        ("COMPLETE CANCELED BLOCKED", True, "CANCELED"),
        ("CANCELED FAILED BLOCKED COMPLETE", True, "FAILED"),
    ],
)
def test_how_a_run_ends(ends: str, vetoed: bool, state: str) -> None:
    assert run_state(map(EndState, ends.split()), vetoed=vetoed) == state
