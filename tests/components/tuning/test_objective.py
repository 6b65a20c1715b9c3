"""Objectives, and which trial is the best: checked by looking at all pairs."""

from __future__ import annotations

import pytest
from drivetrain.components.tuning.objective import Objective, best_trial, check_recorded, objectives_of, pareto
from drivetrain.errors import InputError
from hypothesis import given as for_all
from hypothesis import strategies as st

optuna = pytest.importorskip("optuna")


def test_directions() -> None:
    assert objectives_of("eval_loss") == (Objective("eval_loss", "min"),)
    assert objectives_of({"accuracy": "max", "eval_loss": "min"}) == (
        Objective("accuracy", "max"),
        Objective("eval_loss", "min"),
    )
    with pytest.raises(InputError, match="whether a smaller or a larger 'accuracy' is better"):
        objectives_of("accuracy")
    with pytest.raises(InputError, match="no direction 'up'"):
        objectives_of({"accuracy": "up"})
    with pytest.raises(InputError, match="there is no objective"):
        objectives_of({})


def test_an_objective_that_nothing_records() -> None:
    check_recorded(objectives_of({"accuracy": "max"}), ["loss", "eval_loss", "accuracy"])
    with pytest.raises(InputError, match="did you mean 'accuracy'"):
        check_recorded(objectives_of({"acuracy": "max"}), ["loss", "eval_loss", "accuracy"])
    with pytest.raises(InputError, match="eval split that has rows"):
        check_recorded(objectives_of("eval_loss"), ["loss"])


VALUES = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=12)


@for_all(VALUES)
def test_the_pareto_front_is_optunas(values: list[tuple[int, int]]) -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(directions=["maximize", "minimize"])
    for pair in values:
        study.add_trial(optuna.trial.create_trial(values=[float(value) for value in pair]))
    objectives = objectives_of({"accuracy": "max", "eval_loss": "min"})
    numbered = {number: tuple(map(float, pair)) for number, pair in enumerate(values)}
    front = pareto(objectives, numbered)
    assert front == sorted(trial.number for trial in study.best_trials)
    best = best_trial(objectives, numbered)
    assert best in front
    assert best is not None
    top = max(pair[0] for pair in values)
    least = min(pair[1] for pair in values if pair[0] == top)
    assert values[best] == (top, least)
    assert best == values.index((top, least))


def test_no_trial_is_the_best_of_none() -> None:
    assert best_trial(objectives_of("loss"), {}) is None
