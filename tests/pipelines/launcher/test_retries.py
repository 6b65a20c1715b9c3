"""The pauses before retries: they grow to a limit, and are shortened by a fraction that is drawn from names alone.

And what others see of a task that is tried again.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from drivetrain.console.session import view
from drivetrain.metadata import ExecutionRecord, MetadataStore
from drivetrain.pipelines import Home, PipelineFunction, RunOptions, list_runs, run_pipeline
from drivetrain.pipelines.ir.options import NodeOptions
from drivetrain.pipelines.launcher.retries import Retries
from hypothesis import given
from hypothesis import strategies as st


def pauses(options: NodeOptions, run: str = "run-1", task: str = "Trainer[3]") -> list[float]:
    retries = Retries(options, Path(), seed=(run, task))
    planned = []
    for _ in range(options.retries):
        pause = retries.next_pause(OSError())
        assert retries.next_pause(OSError()) == pause  # asking again changes nothing
        assert retries.plan(OSError())
        assert retries.planned == pause is not None
        planned.append(pause)
    assert retries.next_pause(OSError()) is None
    return planned


def test_without_jitter_a_pause_is_what_was_asked_for() -> None:
    assert pauses(NodeOptions(retries=5, jitter=0.0, backoff_max=10.0)) == [1.0, 2.0, 4.0, 8.0, 10.0]


@given(st.floats(0, 1), st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=5), st.integers(1, 12))
def test_it_shortens_by_no_more_than_its_fraction(jitter: float, task: str, retries: int) -> None:
    plain = pauses(NodeOptions(retries=retries, jitter=0.0), task=task)
    spread = pauses(NodeOptions(retries=retries, jitter=jitter), task=task)
    assert all(whole * (1 - jitter) - 1e-9 <= short <= whole for whole, short in zip(plain, spread, strict=True))


def test_the_same_names_give_the_same_pauses_and_others_give_others() -> None:
    options = NodeOptions(retries=40, backoff_factor=1.0, jitter=1.0)
    drawn = pauses(options)
    assert pauses(options) == drawn
    assert pauses(options, run="run-2") != drawn != pauses(options, task="Trainer[4]")
    assert len(set(drawn)) == 40
    assert 0.3 < sum(drawn) / 40 < 0.7
    # Another process goes on where this one was: its third pause is the same.
    again = Retries(options, Path(), 2, seed=("run-1", "Trainer[3]"))
    assert again.next_pause(OSError()) == drawn[2]


def test_a_plan_that_is_taken_back_counts_for_nothing() -> None:
    retries = Retries(NodeOptions(retries=1, jitter=0.0), Path(), seed=("run-1", "Trainer"))
    for _ in range(2):
        assert retries.plan(OSError())["retry"]["number"] == 1  # type: ignore[index]
        retries.take_back()
    assert retries.plan(OSError())
    assert retries.plan(OSError()) == {}
    retries.take_back()
    assert (retries.done, retries.planned) == (1, None)


@pytest.mark.parametrize(("runner", "code"), [("inline", "raise ValueError(1)"), ("process", "os._exit(3)")])
def test_nobody_sees_an_attempt_that_failed_and_not_yet_its_retry(
    home: Home,
    pipe: Callable[..., PipelineFunction[..., object]],
    monkeypatch: pytest.MonkeyPatch,
    runner: Any,
    code: str,
) -> None:
    """Another process looks right after each write to the store."""
    finish, seen = MetadataStore.finish, list[tuple[str, str]]()

    def finish_and_look(store: MetadataStore, *arguments: Any, **facts: Any) -> ExecutionRecord:
        ended = finish(store, *arguments, **facts)
        with closing(Home(home.root)) as other:
            task = view(other, list_runs(other)[0])["Misbehave"]
        seen.append((task.state, task.reason.partition(": ")[0]))
        return ended

    monkeypatch.setattr(MetadataStore, "finish", finish_and_look)
    pipeline = pipe(f"Misbehave.options(retries=1, backoff=0, jitter=0)(Make(), code={code!r})")
    result = run_pipeline(home, pipeline, options=RunOptions(runner=runner))
    assert result.state == "FAILED"
    assert seen[0] == ("WAITING", "waits 0 s for retry 1 of 1")
    assert [state for state, _ in seen] == ["WAITING", "FAILED"]
