"""The pauses before retries: they grow to a limit, and are shortened by a fraction that is drawn from names alone."""

from __future__ import annotations

from pathlib import Path

from drivetrain.pipelines.ir.options import NodeOptions
from drivetrain.pipelines.launcher.retries import Retries
from hypothesis import given
from hypothesis import strategies as st


def pauses(options: NodeOptions, run: str = "run-1", task: str = "Trainer[3]") -> list[float]:
    retries = Retries(options, Path(), seed=(run, task))
    return [pause for _ in range(options.retries) if (pause := retries.pause(OSError())) is not None]


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
    assert again.pause(OSError()) == drawn[2]
