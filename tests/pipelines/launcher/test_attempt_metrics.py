"""Metrics of executions in the store: of what ended well, of what failed, of what is reused, behind a URL."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import pytest
from drivetrain.metadata import ExecutionRecord
from drivetrain.metadata.payload_remote import RemotePayloads
from drivetrain.pipelines import Home, PipelineFunction, RunOptions, RunResult, list_runs, resume, run_pipeline
from drivetrain.stores import StorageUnavailable

Pipe = Callable[..., PipelineFunction[..., object]]
MEASURES = """
current().metric('loss', 0.75, step=1)
current().metric('loss', 0.5, step=2)
current().metric('diverged', float('inf'))
"""
METRICS = {"loss": 0.5, "diverged": None}


def measuring(code: str = "") -> str:
    """The body of a pipeline whose second node measures, and then does this."""
    return f"Misbehave(Make(count=count), code={MEASURES + code!r})"


def execution(home: Home, result: RunResult, node: str) -> ExecutionRecord:
    run = home.store.find_context("run", result.run)
    assert run is not None
    return next(each for each in home.store.executions(context=run) if each.properties["node"] == node)


@pytest.mark.parametrize("runner", ["inline", pytest.param("process", marks=pytest.mark.slow)])
def test_metrics_are_recorded_and_come_with_what_is_reused(pipe: Pipe, home: Home, runner: str) -> None:
    pipeline = pipe(measuring())
    first = run_pipeline(home, pipeline, options=RunOptions(runner=runner))
    complete = execution(home, first, "Misbehave")
    assert complete.state == "COMPLETE"
    assert complete.metrics == METRICS
    assert complete.properties["metric_steps"] == {"loss": [[1, 0.75], [2, 0.5]]}
    assert execution(home, first, "Make").metrics == {}
    for _ in range(2):
        cached = execution(home, run_pipeline(home, pipeline), "Misbehave")
        assert cached.state == "CACHED"
        assert cached.metrics == METRICS


def test_an_execution_that_fails_keeps_what_it_measured(pipe: Pipe, home: Home) -> None:
    failed = execution(home, run_pipeline(home, pipe(measuring("raise ValueError('no')"))), "Misbehave")
    assert (failed.state, failed.metrics) == ("FAILED", METRICS)


def test_outputs_that_are_sent_later_bring_their_metrics(pipe: Pipe, tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    away = Home(tmp_path / "away" / ".drivetrain", artifacts=f"file://{tmp_path}/share")
    real = RemotePayloads.publish

    def publish(this: RemotePayloads, staged: Path, uri: str, progress: object) -> object:
        if "Misbehave" in uri:
            raise StorageUnavailable(f"{uri} cannot be written", fix="wait")
        return real(this, staged, uri, progress)  # type: ignore[arg-type]

    calls = tmp_path / "calls"
    calls.write_text("")
    pipeline = pipe(measuring(f"path = Path({str(calls)!r})\npath.write_text(path.read_text() + '.')"))
    with patch.object(RemotePayloads, "publish", publish):
        assert run_pipeline(away, pipeline).state == "FAILED"
    ended = resume(away)
    sent = execution(away, ended, "Misbehave")
    assert (sent.state, sent.metrics) == ("COMPLETE", METRICS)
    assert calls.read_text() == "."
    assert list_runs(away)[0].state == "COMPLETE"
    away.close()


def test_what_is_measured_is_seen_while_the_work_goes_on(pipe: Pipe, home: Home, tmp_path: Path) -> None:
    seen = tmp_path / "seen.json"
    look = f"""
import json
from pathlib import Path

import drivetrain as dt

for step in range(1, 5):
    current().metric('loss', 1 / step, step=step)
run = dt.open(root={str(home.root)!r})
node = run['Misbehave']
Path({str(seen)!r}).write_text(json.dumps([node.state, node.metrics, node.steps, 'class="metric"' in run.to_html()]))
"""
    result = run_pipeline(home, pipe(f"Misbehave(Make(count=count), code={look!r})"))
    state, metrics, steps, drawn = json.loads(seen.read_text())
    assert state == "RUNNING"
    assert metrics == {"loss": 0.25}
    assert steps == {"loss": [[1, 1.0], [2, 0.5], [3, 1 / 3], [4, 0.25]]}
    assert drawn
    assert execution(home, result, "Misbehave").properties["metric_steps"] == steps
    assert not list(home.root.rglob("metrics.jsonl"))
