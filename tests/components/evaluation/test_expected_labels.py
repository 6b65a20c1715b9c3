"""Calibrated probabilities, against scikit-learn's isotonic regression and labels that were drawn from known ones."""

from __future__ import annotations

import numpy as np
import pytest
from drivetrain.components.evaluation.expected_labels import Calibration, ClassProbabilities, DistinctScores
from hypothesis import given
from hypothesis import strategies as st
from sklearn.isotonic import IsotonicRegression


@given(st.integers(0, 10_000), st.integers(2, 60), st.booleans())
def test_a_calibration_is_scikit_learns_whose_steps_have_one_row_more(seed: int, rows: int, weighted: bool) -> None:
    generator = np.random.default_rng(seed)
    scores, happened = generator.random(rows).round(1), generator.integers(0, 2, rows).astype(float)
    weight = generator.random(rows) + 0.1 if weighted else np.ones(rows)
    steps = IsotonicRegression(out_of_bounds="clip").fit(scores, happened, weight).predict(scores)
    shrunk = np.zeros(rows)
    for value in np.unique(steps):
        step = steps == value
        count = weight[step].sum() ** 2 / (weight[step] ** 2).sum()  # Kish's effective number of rows
        shrunk[step] = (value * count + np.average(happened, weights=weight)) / (count + 1)
    theirs = IsotonicRegression(out_of_bounds="clip").fit(scores, shrunk, weight)
    at = generator.random(50) * 1.4 - 0.2
    calibration = Calibration.fit(DistinctScores.of(scores), happened, weight)
    np.testing.assert_allclose(calibration(DistinctScores.of(at)), theirs.predict(at), atol=1e-9)
    # A row of weight 0 is as if it was not there.
    some = np.arange(rows) % 3 != 1
    without = Calibration.fit(DistinctScores.of(scores[some]), happened[some], weight[some])
    calibration = Calibration.fit(DistinctScores.of(scores), happened, weight * some)
    np.testing.assert_array_equal(calibration.scores, without.scores)
    np.testing.assert_array_equal(calibration.probabilities, without.probabilities)


@pytest.mark.parametrize(("slope", "most"), [(0.4, 0.7), (1.2, 0.3), (3.0, 0.6)])
def test_a_small_reference_hardly_makes_a_model_look_better(slope: float, most: float) -> None:
    """Steps of 0 and 1 at the ends would: the log-loss came out lower than it is, by as much as it varies.

    It is off by at most so much of its spread between references; most of a model that hardly ranks.
    """
    generator = np.random.default_rng(1)
    errors = []
    for _ in range(60):
        z = slope * generator.normal(size=3_000)
        scores, truth = 1 / (1 + np.exp(-2 * z)), 1 / (1 + np.exp(-z))
        happened = (generator.random(1_000) < truth[:1_000]).astype(float)
        calibration = Calibration.fit(DistinctScores.of(scores[:1_000]), happened, np.ones(1_000))
        expected = calibration(DistinctScores.of(scores[1_000:]))
        gain = np.log(scores[1_000:] / (1 - scores[1_000:]))
        errors.append(((expected - truth[1_000:]) * gain).mean())
    assert abs(np.mean(errors)) < most * np.std(errors)


def test_probabilities_of_classes_add_up() -> None:
    dice = np.random.default_rng(2)
    scores, labels = dice.dirichlet(np.ones(4), 300), dice.integers(0, 3, 300)  # the last class never comes
    probabilities = ClassProbabilities(scores, scores, labels)(np.ones(300))
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
    assert not probabilities[:, 3].any()
    never = ClassProbabilities(np.ones((1, 2)), np.zeros((4, 2)), np.array([2, 2, 2, 2]))(np.ones(4))
    assert never.tolist() == [[0.5, 0.5]]  # no class has any probability
