"""Metrics of numbers against scikit-learn and scipy, with weights; what they need of labels and predictions."""

from __future__ import annotations

import math
import sys
from fractions import Fraction

import numpy as np
import pytest
import scipy.stats
from drivetrain import InputError
from drivetrain.components.evaluation import EvaluationConfig, metric
from drivetrain.components.evaluation.regression import REGRESSION_METRICS
from evaluating import measured  # type: ignore[import-not-found]  # conftest puts this folder on the path
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sklearn import metrics as sk

EVERY = [*REGRESSION_METRICS, "mean_label", "mean_prediction"]


@settings(deadline=None, max_examples=25)
@given(
    seed=st.integers(0, 10_000),
    rows=st.integers(2, 60),
    scale=st.sampled_from([1e-3, 1.0, 1e6]),
    exact_rows=st.sampled_from([0, 1000]),
)
def test_equal_to_scikit_learn(seed: int, rows: int, scale: float, exact_rows: int) -> None:
    rng = np.random.default_rng(seed)
    label = np.round(rng.exponential(scale, rows), 6)
    prediction = np.abs(label * rng.normal(1, 0.3, rows))
    weight = rng.choice([0.5, 1.0, 3.0], rows)
    ours = measured(
        [*EVERY, metric("quantile_loss", quantile=0.9, name="q90")],
        label, prediction, weight, exact_rows=exact_rows, parts=3,
    )  # fmt: skip
    some = label != 0
    share = np.abs((prediction - label)[some] / label[some])
    expected = {
        "mse": sk.mean_squared_error(label, prediction, sample_weight=weight),
        "rmse": sk.root_mean_squared_error(label, prediction, sample_weight=weight),
        "mae": sk.mean_absolute_error(label, prediction, sample_weight=weight),
        "mape": 100 * np.average(share, weights=weight[some]),
        "msle": sk.mean_squared_log_error(label, prediction, sample_weight=weight),
        "mean_error": np.average(prediction - label, weights=weight),
        "quantile_loss": sk.mean_pinball_loss(label, prediction, sample_weight=weight, alpha=0.5),
        "q90": sk.mean_pinball_loss(label, prediction, sample_weight=weight, alpha=0.9),
        "r2": sk.r2_score(label, prediction, sample_weight=weight),
        "mean_label": np.average(label, weights=weight),
        "mean_prediction": np.average(prediction, weights=weight),
        "calibration": np.sum(weight * prediction) / np.sum(weight * label),
    }
    for name, value in expected.items():
        assert ours[name] == pytest.approx(value, rel=1e-9, abs=1e-9 * scale), name


@settings(deadline=None, max_examples=60)
@example(errors=[5e-324], weights=[1e-9] * 12, exact_rows=0)  # whose product no float holds either
@given(
    errors=st.lists(st.floats(-1e290, 1e290), min_size=1, max_size=12),
    weights=st.lists(st.sampled_from([1e-9, 0.1, 1.0, 1e9]), min_size=12, max_size=12),
    exact_rows=st.sampled_from([0, 1000]),
)
def test_the_root_of_squares_that_no_float_holds(errors: list[float], weights: list[float], exact_rows: int) -> None:
    """All of float64's range in one slice: against whole numbers."""
    some = [Fraction(weight) for weight in weights[: len(errors)]]
    squared = sum(weight * Fraction(error) ** 2 for weight, error in zip(some, errors, strict=True)) / sum(some)
    root = Fraction(math.isqrt(int(squared * 4**1200)), 2**1200)
    names, label = ["mse", "rmse"], np.zeros(len(errors))
    ours = [measured(names, label, errors, weights[: len(errors)], exact_rows=exact_rows, parts=n) for n in (1, 3)]
    assert ours[0] == ours[1]
    assert ours[0]["rmse"] == pytest.approx(float(root), rel=1e-14, abs=1e-323)
    if Fraction(sys.float_info.min) <= squared <= Fraction(sys.float_info.max) or not squared:
        assert ours[0]["mse"] == pytest.approx(float(squared), rel=1e-14)
    else:
        assert ours[0]["mse"].startswith(f"labels or predictions are too {'large' if squared > 1 else 'small'}")


@settings(deadline=None, max_examples=15)
@given(seed=st.integers(0, 10_000), rows=st.integers(3, 60), copies=st.integers(1, 3))
def test_correlation_equals_scipy(seed: int, rows: int, copies: int) -> None:
    """A weight of 2 is a row written twice."""
    rng = np.random.default_rng(seed)
    label = rng.normal(size=rows)
    prediction = label + rng.normal(size=rows)
    expected = scipy.stats.pearsonr(np.repeat(label, copies), np.repeat(prediction, copies)).statistic ** 2
    ours = measured(["squared_pearson_correlation"], label, prediction, np.full(rows, float(copies)))
    assert ours["squared_pearson_correlation"] == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_variances_of_large_numbers_do_not_cancel() -> None:
    """Seconds since 1970 that differ by a few: Σy² − (Σy)²/n in floats would leave nothing but rounding."""
    label = 1.7e9 + np.array([0.0, 1.0, 2.0, 3.0])
    prediction = label + np.array([0.25, -0.25, 0.25, -0.25])
    for exact_rows in (0, 10):
        ours = measured(["r2", "squared_pearson_correlation"], label, prediction, exact_rows=exact_rows)
        assert ours["r2"] == pytest.approx(1 - 0.0625 / 1.25, rel=1e-12)
        assert ours["squared_pearson_correlation"] == pytest.approx(
            scipy.stats.pearsonr(label - 1.7e9, prediction - 1.7e9).statistic ** 2, rel=1e-12
        )


def test_what_has_no_value_says_why() -> None:
    ours = measured([*EVERY], [2.0, 2.0], [1.0, 3.0])
    assert ours["r2"] == ours["squared_pearson_correlation"] == "all labels are equal"
    ours = measured([*EVERY], [0.0, 0.0], [1.0, -3.0])
    assert ours["mape"] == "all labels are 0"
    assert ours["calibration"] == "the labels sum to 0"
    assert ours["msle"] == "a label or prediction is not above -1"
    ours = measured(["mse", "rmse"], [0.0], [1e200])
    assert ours["mse"].startswith("labels or predictions are too large")
    assert ours["rmse"] == 1e200
    ours = measured(["rmse", "mae"], [-1.7e308], [1.7e308])
    assert ours["rmse"].startswith("labels or predictions are too large")
    ours = measured([*EVERY], [0.0, 1.0], [1.0, 3.0], [0.0, 0.0])
    assert all(isinstance(value, str) for value in ours.values())
    assert not any(isinstance(value, float) and not math.isfinite(value) for value in ours.values())


def test_numbers_need_not_be_probabilities_but_finite() -> None:
    with pytest.raises(InputError, match=r"prediction 'p' of the candidate is infinite in 1 of 2 rows: row 1 \(inf\)"):
        measured(["rmse"], [1.0, 2.0], [1.0, float("inf")])
    with pytest.raises(InputError, match=r"label 'y' is missing in 1 of 2 rows.*\n  fix: leave these rows out"):
        measured(["rmse"], [float("nan"), 2.0], [1.0, 2.0])


def test_the_task_follows_from_the_metrics() -> None:
    assert EvaluationConfig("y", "p", metrics=["mean_label", "rmse"]).task == "regression"
    assert EvaluationConfig("y", "p", metrics=["mean_label"]).task == "binary"
    assert EvaluationConfig("y", "p", metrics=["mean_label"], task="regression").task == "regression"
    usual = EvaluationConfig("y", "p", task="regression")
    assert usual.metrics == (
        "example_count", "rmse", "mae", "mean_error", "r2", "calibration", "mean_label", "mean_prediction"
    )  # fmt: skip
    assert EvaluationConfig.from_json(usual.to_json()) == usual
    with pytest.raises(InputError, match="'rmse' judges regression models, the metrics before it binary ones"):
        EvaluationConfig("y", "p", metrics=["auc", "rmse"])
    with pytest.raises(InputError, match="'auc' judges binary models, this configuration regression ones"):
        EvaluationConfig("y", "p", metrics=["auc"], task="regression")
    with pytest.raises(InputError, match="task must be one of binary, regression, multiclass, multilabel"):
        EvaluationConfig("y", "p", task="regresion")  # type: ignore[arg-type]


def test_a_quantile_lies_between_0_and_1() -> None:
    for quantile in ("x", 1.5, True):
        with pytest.raises(InputError, match="quantile must lie between 0 and 1"):
            EvaluationConfig("y", "p", metrics=[metric("quantile_loss", quantile=quantile)])


@pytest.mark.parametrize(("scale", "says"), [(1e200, "too large"), (1e-200, "too small")])
def test_numbers_whose_squares_are_none_are_named_and_warn_of_nothing(scale: float, says: str) -> None:
    """R² said that no example had any weight, or that all labels were equal; RMSE of the small ones was 0, and of the
    large ones infinite."""
    label = np.array([1.0, 2.0, 4.0, 3.0]) * scale
    names = ["r2", "squared_pearson_correlation", "mse"]
    values = measured([*names, "rmse", "mae"], label, label * 1.5, task="regression")
    assert values["mae"] == pytest.approx(1.25 * scale)
    assert values["rmse"] == pytest.approx(math.sqrt(7.5) / 2 * scale, rel=1e-15)
    for name in names:
        assert values[name].startswith(f"labels or predictions are {says} for their squares to be numbers")
