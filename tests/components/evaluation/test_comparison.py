"""Metrics of a model beside its baseline against NumPy, scikit-learn and scipy, with weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import scipy.spatial.distance
from drivetrain.components.evaluation import EvaluationConfig, metric
from drivetrain.components.evaluation.accumulator import MetricsAccumulator
from drivetrain.components.evaluation.comparison import COMPARISON_METRICS
from evaluating import measured  # type: ignore[import-not-found]  # conftest puts this folder on the path
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import confusion_matrix

FLIPS = [name for name, definition in COMPARISON_METRICS.items() if "binary" in definition.tasks]


@settings(deadline=None, max_examples=25)
@given(
    seed=st.integers(0, 10_000),
    rows=st.integers(1, 40),
    threshold=st.sampled_from([0.2, 0.5]),
    exact_rows=st.sampled_from([0, 1000]),
)
def test_flips_are_the_confusion_of_two_models(seed: int, rows: int, threshold: float, exact_rows: int) -> None:
    rng = np.random.default_rng(seed)
    before, after = np.round(rng.random((2, rows)), 1)
    label, weight = rng.integers(0, 2, rows), rng.choice([0.5, 1.0, 3.0], rows)
    ours = measured(FLIPS, label, after, weight, before, threshold=threshold, exact_rows=exact_rows, parts=3)
    called = before > threshold, after > threshold
    (kept_no, gained), (lost, kept_yes) = confusion_matrix(*called, labels=[False, True], sample_weight=weight)
    no, yes = kept_no + gained, kept_yes + lost
    sizes = np.abs(after + before)
    apart = np.where(sizes > 0, 2 * np.abs(after - before) / np.where(sizes > 0, sizes, 1), 0)
    expected = {
        "flip_rate": (gained + lost) / (no + yes),
        "positive_to_negative": lost,
        "negative_to_positive": gained,
        "symmetric_prediction_difference": np.average(apart, weights=weight),
    }
    rates = {"positive_to_negative": lost / yes, "positive_to_positive": kept_yes / yes} if yes else {}
    rates |= {"negative_to_positive": gained / no, "negative_to_negative": kept_no / no} if no else {}
    expected |= {f"{name}_rate": rate for name, rate in rates.items()}
    for name, value in ours.items():
        if name in expected:
            assert value == pytest.approx(expected[name], rel=1e-12), name
        else:
            assert value in ("no baseline positives", "no baseline negatives")


def test_flips_of_classes_and_cosines() -> None:
    rng = np.random.default_rng(5)
    before, after = rng.dirichlet([1, 1, 1], (2, 30))
    label, weight = rng.integers(0, 3, 30), rng.random(30)
    ours = measured(["class_flip_rate", "cosine_similarity"], label, after, weight, before)
    flipped = before.argmax(axis=1) != after.argmax(axis=1)
    cosines = [1 - scipy.spatial.distance.cosine(a, b) for a, b in zip(after, before, strict=True)]
    assert ours["class_flip_rate"] == pytest.approx(np.average(flipped, weights=weight))
    assert ours["cosine_similarity"] == pytest.approx(np.average(cosines, weights=weight))


def test_without_a_baseline_there_is_nothing_to_compare() -> None:
    assert set(measured(FLIPS, [0, 1], [0.2, 0.9]).values()) == {"no baseline to compare with"}
    for exact_rows in (0, 10):
        config = EvaluationConfig("y", "p", metrics=["flip_rate"], exact_rows=exact_rows)
        accumulator = MetricsAccumulator(config, baseline=True)
        columns: dict[str, Any] = {"label": [0, 1], "candidate": [0.2, 0.9], "baseline": [0.2, 0.1]}
        accumulator.add_batch(pa.record_batch({name: pa.array(values) for name, values in columns.items()}))
        of_models = accumulator.result()["slices"][0]["metrics"]
        assert of_models == {
            "candidate": {"flip_rate": 0.5}, "baseline": {"flip_rate": "no baseline to compare with"},
        }  # fmt: skip


def test_predictions_that_cancel_have_no_symmetric_difference() -> None:
    name = "symmetric_prediction_difference"
    assert measured([name, "rmse"], [1.0], [2.0], None, [-2.0])[name] == "the result is nan"
    assert measured([name, "rmse"], [1.0, 1.0], [0.0, 3.0], None, [0.0, 1.0])[name] == 0.5
    assert measured([metric(name), "rmse"], [1.0], [2.0])[name] == "no baseline to compare with"
