"""What runs on exit of a run that ends more than once: each node hears of each end, and of none twice."""

from __future__ import annotations

from collections import Counter

import pytest
from drivetrain.pipelines import Home, open_run, resume, run_pipeline
from drivetrain.pipelines.launcher.launcher import Launcher
from drivetrain.pipelines.launcher.runs import record_status, reopen_run
from drivetrain.tests.pipelines.flows import Pipe, flows, states, value


@pytest.fixture
def flow(pipe: Pipe) -> Pipe:
    return flows(pipe)


BODY = """
    Unmended()
    with dt.on_exit() as run:
        first = Note.options(id="First")(text=run.state)
        with dt.when(run.state == "FAILED"):
            Note.options(id="Alarm", after=[first])(text=run.reason)
        with dt.otherwise():
            Note.options(id="Fine", after=[first])(text=run.state)
        Note.options(id="Last", after=[first])(text=run.state)
"""
ENDED = {"Unmended": "COMPLETE", "First": "COMPLETE", "Alarm": "SKIPPED", "Fine": "COMPLETE", "Last": "COMPLETE"}


def made(home: Home) -> Counter[str]:
    """How often each node on exit has run: two of them do so at once."""
    found = home.store.executions(component="parts:Note", state="COMPLETE", limit=None)
    return Counter(str(each.properties["node"]) for each in found)


def test_each_hears_of_the_end_that_came_later_though_the_exit_was_cut_off(home: Home, flow: Pipe) -> None:
    function = flow(BODY)
    first = run_pipeline(home, function)
    assert states(first) == {**ENDED, "Unmended": "FAILED", "Alarm": "COMPLETE", "Fine": "SKIPPED"}
    assert made(home) == {"First": 1, "Alarm": 1, "Last": 1}
    (home.base / "mended").touch()
    # Another process finishes it, and dies when the first node on exit has run.
    run = reopen_run(home, open_run(home, first.run))
    assert Launcher(home, run, resuming=True).launch("Unmended").state == "COMPLETE"
    run, told = record_status(home, run, {"run": run.id, "state": "COMPLETE", "failed": [], "reason": ""})
    assert not told
    assert Launcher(home, run, resuming=told).launch("First").state == "COMPLETE"
    result = resume(home)
    assert states(result) == ENDED
    assert [value(result, name) for name in ("First", "Fine", "Last")] == ["COMPLETE None None"] * 3
    assert made(home) == {"First": 2, "Alarm": 1, "Fine": 1, "Last": 2}
    assert states(resume(home)) == ENDED
    assert made(home).total() == 6
