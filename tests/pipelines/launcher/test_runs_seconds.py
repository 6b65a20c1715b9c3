"""How long a run took: the time that it was worked on, not what passed until somebody resumed it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from drivetrain.metadata.dialect import microseconds
from drivetrain.pipelines import Home, PipelineFunction, open_run, resume, run_pipeline

Pipe = Callable[..., PipelineFunction[..., object]]


def test_a_resumed_run_does_not_count_the_time_between(home: Home, pipe: Pipe) -> None:
    run = open_run(home, run_pipeline(home, pipe("Make(count=count)")).run)
    begin = datetime.now(UTC) - timedelta(days=2)
    ended = {"started": begin.isoformat(), "finished": (begin + timedelta(seconds=100)).isoformat()}
    home.store.update_context(run.context, {**ended, "state": "FAILED"})
    assert open_run(home, run.id).seconds == 100
    resume(home, run.id)
    seconds = open_run(home, run.id).seconds
    assert seconds is not None
    assert 100 < seconds < 200
    resume(home, run.id)
    again = open_run(home, run.id).seconds
    assert again is not None
    assert seconds < again < 300


def test_what_a_process_that_died_worked_on_counts_to_the_last_that_is_known_of_it(home: Home, pipe: Pipe) -> None:
    home.store._db.clock = lambda: microseconds() - 172_800_000_000
    run = open_run(home, run_pipeline(home, pipe("Make(count=count)")).run)
    (execution,) = home.store.executions(context=run.context)
    assert execution.finished_at is not None
    begin = execution.finished_at - timedelta(seconds=100)
    home.store._db.clock = microseconds
    owner = {**run.context.properties["owner"], "pid": 2**22 + 1}
    home.store.update_context(
        run.context, {"started": begin.isoformat(), "finished": None, "state": "RUNNING", "owner": owner}
    )
    died = open_run(home, run.id)
    assert (died.state, died.seconds) == ("INTERRUPTED", None)
    resume(home, run.id)
    seconds = open_run(home, run.id).seconds
    assert seconds is not None
    assert 100 < seconds < 200
