"""A run whose pods end more than once: tasks without a pod are recorded as they ended this time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from drivetrain.pipelines import Home, Run, RunOptions, load_pipeline, open_run
from drivetrain.pipelines.kubeflow import reconcile
from drivetrain.pipelines.kubeflow.ownership import Submission, hand_over
from drivetrain.pipelines.launcher import run_records as records
from drivetrain.pipelines.launcher.launcher import Launcher
from drivetrain.pipelines.launcher.runs import new_run

from .shop import PARTS

SHOP = """
    import drivetrain as dt
    from drivetrain.pipelines import current
    from .parts import *

    @dt.component
    def Wanted() -> int:
        return int((current().base / "wanted").read_text())

    @dt.pipeline
    def shop() -> None:
        wanted = Wanted()
        with dt.when(wanted > 3):
            first = Use.options(id="First")(Make(count=wanted))
        Use.options(id="Second")(first)
        Say(what="beside")
"""


@pytest.fixture
def failed(home: Home, project: Callable[..., Path]) -> Run:
    """Its first end: what the others wait for failed, so that they had no pod."""
    function = load_pipeline(project("shop", parts=PARTS, pipeline=SHOP))
    run = new_run(home, function.build(), function.project, {}, RunOptions("kubeflow"))
    run = hand_over(home, run, Submission("kfp-1"))
    records.write_run(home, run)
    with_pods(home, run, "Wanted", "Say")
    ended = {name: result.state for name, result in reconcile.reconcile_run(home, run, "FAILED").items()}
    assert ended == {
        "Wanted": "FAILED", "Make": "BLOCKED", "First": "BLOCKED", "Second": "BLOCKED", "Say": "COMPLETE"
    }  # fmt: skip
    return open_run(home, run.id)


def with_pods(home: Home, run: Run, *names: str) -> None:
    launcher = Launcher(home, run, resuming=True)
    for name in names:
        launcher.launch(name)
        records.write_record(home, run, name)


@pytest.mark.parametrize(
    ("wanted", "pods", "kfp_state", "ends", "state"),
    [
        (1, (), "SUCCEEDED", ["COMPLETE", "SKIPPED", "SKIPPED", "SKIPPED"], "COMPLETE"),
        (5, ("Make", "First", "Second"), "SUCCEEDED", ["COMPLETE"] * 4, "COMPLETE"),
        (5, ("Make",), "CANCELED", ["COMPLETE", "COMPLETE", "CANCELED", "BLOCKED"], "CANCELED"),
        (5, (), "FAILED", ["COMPLETE", "FAILED", "BLOCKED", "BLOCKED"], "FAILED"),
    ],
)
def test_what_was_held_back_the_first_time(
    home: Home, failed: Run, wanted: int, pods: tuple[str, ...], kfp_state: str, ends: list[str], state: str
) -> None:
    (home.base / "wanted").write_text(str(wanted))
    with_pods(home, failed, "Wanted", *pods)
    for _ in range(2):  # whoever asks again hears the same
        results = reconcile.reconcile_run(home, failed, kfp_state)
        names = ("Wanted", "Make", "First", "Second")
        assert [results[name].state for name in names] == ends
        assert open_run(home, failed.id).state == state
    launcher = Launcher(home, open_run(home, failed.id))
    assert [getattr(launcher.records.read(name), "state", None) for name in names] == ends


def test_a_pod_that_gathers_knows_that_what_it_waits_for_was_skipped(home: Home, failed: Run) -> None:
    (home.base / "wanted").write_text("2")
    with_pods(home, failed, "Wanted")
    launcher = Launcher(home, failed, resuming=True)
    reconcile.reconcile_upstream(launcher, "Second")
    assert launcher.launch("Second").state == "SKIPPED"
    found = [getattr(launcher.records.read(name), "reason", None) for name in ("Make", "First", "Second")]
    assert found == ["Wanted > 3 is false", "Make was skipped", "First was skipped"]
