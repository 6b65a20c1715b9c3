"""Runs are handed on once each as they change, and a call that fails loses none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from drivetrain.pipelines import Home, PipelineFunction, list_runs, open_run, run_pipeline, tag_run
from drivetrain.pipelines.launcher.following import follow_runs

Pipe = Callable[..., PipelineFunction[..., object]]


def test_a_call_that_fails_is_gone_on_with_whatever_changed_last(pipe: Pipe, home: Home) -> None:
    for _ in range(3):
        run_pipeline(home, pipe("Make(count=count)"))
    newest, middle, oldest = (run.id for run in list_runs(home))
    tag_run(home, open_run(home, oldest), {"late": ""})  # the first one by number is the last that changed
    handed: list[str] = []

    def handle(run: Any, before: Any) -> None:
        if len(handed) == 1:
            raise ConnectionError
        handed.append(run.id)

    with pytest.raises(ConnectionError):
        follow_runs(home, "catalog", "a", handle)
    handed.append("")
    assert follow_runs(home, "catalog", "a", handle) == 2
    assert handed == [middle, "", newest, oldest]
    assert follow_runs(home, "catalog", "a", handle) == 0
    assert follow_runs(home, "catalog", "another", handle) == 3


def test_a_run_at_work_is_handed_on_each_time_with_what_was_remembered(pipe: Pipe, home: Home) -> None:
    run = open_run(home, run_pipeline(home, pipe("Make(count=count)")).run)
    home.store.update_context(run.context, {"state": "RUNNING"})
    seen: list[int | None] = []

    def handle(_: Any, before: int | None) -> int:
        seen.append(before)
        return (before or 0) + 1

    for _ in range(3):
        assert follow_runs(home, "catalog", "a", handle) == 1
    home.store.update_context(run.context, {"state": "COMPLETE"})
    assert follow_runs(home, "catalog", "a", handle) == 1
    assert follow_runs(home, "catalog", "a", handle) == 0
    assert seen == [None, 1, 2, 3]
