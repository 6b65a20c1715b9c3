"""What is drawn of residuals and by threshold, against NumPy and scikit-learn."""

from __future__ import annotations

from typing import Any

import drivetrain
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from drivetrain.components.evaluation import EvaluationConfig, metric
from drivetrain.components.evaluation.accumulator import MetricsAccumulator
from drivetrain.components.evaluation.plots import _bin, _bins, _middle
from drivetrain.report.evaluation import _confusion, _rows, _worst_confused
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import multilabel_confusion_matrix


def residuals(label: Any, prediction: Any, weight: Any = None, exact_rows: int = 10_000) -> list[dict[str, float]]:
    config = EvaluationConfig("y", "p", metrics=["rmse"], exact_rows=exact_rows, weight=None if weight is None else "w")
    accumulator = MetricsAccumulator(config)
    columns = {"label": pa.array(label), "candidate": pa.array(prediction)}
    accumulator.add_batch(pa.record_batch(columns | ({} if weight is None else {"weight": pa.array(weight)})))
    drawn: list[dict[str, float]] = accumulator.result()["plots"]["candidate"]["residuals"]
    return drawn


def test_numbers_near_the_largest_float_are_drawn_and_written() -> None:
    rows = {"label": [1e308, -1e308] * 10, "p": [-1e308, 1.7e308] * 10}
    ends = {(group["prediction"], group["low"], group["high"]) for group in residuals(rows["label"], rows["p"])}
    assert ends == {(-1e150,) * 3, (1e150,) * 3}
    assert "Residuals" in drivetrain.evaluate(rows, label="label", predictions="p", task="regression")._repr_html_()


def test_quantiles_of_errors_by_twentieths() -> None:
    rng = np.random.default_rng(1)
    prediction = rng.normal(10, 5, 2_000)
    label = prediction - rng.normal(0, 2, 2_000)
    drawn = residuals(label, prediction)
    assert len(drawn) == 20
    order = np.argsort(prediction)
    for group, rows in zip(drawn, np.split(order, 20), strict=True):
        assert group["weight"] == 100
        assert group["prediction"] == pytest.approx(prediction[rows].mean())
        for name, share in (("low", 0.1), ("middle", 0.5), ("high", 0.9)):
            expected = np.quantile(prediction[rows] - label[rows], share, method="inverted_cdf")
            assert group[name] == pytest.approx(expected), name


def test_from_bins_they_are_near() -> None:
    rng = np.random.default_rng(2)
    prediction = rng.exponential(100, 5_000)
    label = prediction * rng.normal(1, 0.2, 5_000)
    near, exact = residuals(label, prediction, exact_rows=0), residuals(label, prediction)
    assert sum(group["weight"] for group in near) == 5_000
    for name in ("low", "high"):
        theirs = np.interp([50.0, 100.0, 200.0], [g["prediction"] for g in exact], [g[name] for g in exact])
        ours = np.interp([50.0, 100.0, 200.0], [g["prediction"] for g in near], [g[name] for g in near])
        np.testing.assert_allclose(ours, theirs, rtol=0.3)


def test_rows_without_weight_are_not_drawn() -> None:
    assert residuals([1.0, 2.0], [1.0, 2.5], [0.0, 0.0]) == []
    (group,) = residuals([1.0, 2.0], [1.0, 2.5], [0.0, 3.0])
    assert group == {"weight": 3.0, "prediction": 2.5, "low": 0.5, "middle": 0.5, "high": 0.5}


@given(st.lists(st.floats(-1e12, 1e12), min_size=2, max_size=50))
def test_bins_rise_with_numbers(values: list[float]) -> None:
    ordered = np.sort(np.array(values))
    bins = _bin(ordered, 4)
    assert (np.diff(bins) >= 0).all()
    assert bins.min() >= 0
    assert bins.max() < _bins(4)


def test_the_middle_of_a_bin_lies_in_it() -> None:
    bins = np.arange(_bins(8))
    assert (np.diff(_middle(bins, 8)) > 0).all()
    assert (_bin(_middle(bins, 8), 8) == bins).all()


@pytest.mark.parametrize("exact_rows", [10_000, 10])
def test_calibration_by_chosen_buckets(exact_rows: int) -> None:
    """A prediction on an edge belongs to the bucket above it; what lies beyond is a bucket of its own."""
    rng = np.random.default_rng(4)
    prediction = rng.choice(np.linspace(-4, 24, 113), 2_000)  # many on edges
    label, weight = prediction + rng.normal(0, 3, 2_000), rng.random(2_000)
    item = metric("expected_calibration_error", buckets=5, low=0.0, high=20.0)
    config = EvaluationConfig("y", "p", metrics=[item, "rmse"], weight="w", exact_rows=exact_rows)
    accumulator = MetricsAccumulator(config)
    accumulator.add_batch(pa.record_batch({"label": label, "candidate": prediction, "weight": weight}))
    result = accumulator.result()
    edges = [-np.inf, 0.0, 4.0, 8.0, 12.0, 16.0, 20.0, np.inf]
    parts = pd.DataFrame({"label": label * weight, "prediction": prediction * weight, "weight": weight}).groupby(
        pd.cut(prediction, edges, right=False), observed=False
    )
    expected = parts.sum()
    drawn = pd.DataFrame(result["plots"]["candidate"][item.name])
    assert drawn["low"].tolist()[1:] == edges[1:-1]
    np.testing.assert_allclose(drawn["weight"], expected["weight"])
    for name in ("label", "prediction"):
        np.testing.assert_allclose(drawn[name], expected[name] / expected["weight"])
    gaps = (expected["label"] - expected["prediction"]).to_numpy()
    inner = np.add.reduceat(gaps, [0, 2, 3, 4, 5])  # the outermost parts with what lies beyond them
    ece = result["slices"][0]["metrics"]["candidate"][item.name]
    assert ece == pytest.approx(np.abs(inner).sum() / weight.sum())


@given(st.integers(0, 10_000), st.integers(1, 60), st.booleans())
def test_counts_by_threshold_are_scikit_learns(seed: int, rows: int, weighted: bool) -> None:
    generator = np.random.default_rng(seed)
    label, scores = generator.integers(0, 2, rows), generator.random(rows).round(2)  # many lie on a threshold
    weight = generator.choice([0.5, 1.0, 2.0], rows) if weighted else np.ones(rows)
    accumulator = MetricsAccumulator(EvaluationConfig("y", "p", metrics=["auc"], weight="w"))
    columns = {"label": pa.array(label), "candidate": pa.array(scores), "weight": pa.array(weight)}
    accumulator.add_batch(pa.record_batch(columns))
    drawn = accumulator.result()["plots"]["candidate"]["thresholds"]
    assert [row[0] for row in drawn] == [index / 100 for index in range(101)]
    # Each threshold's decisions are those of a label of its own.
    predicted = (scores[:, None] > np.array([row[0] for row in drawn])).astype(int)
    labels = np.repeat(label[:, None], len(drawn), axis=1)
    matrices = multilabel_confusion_matrix(labels, predicted, sample_weight=weight)
    np.testing.assert_allclose([row[1:] for row in drawn], matrices[:, [1, 0, 0, 1], [1, 1, 0, 0]], rtol=1e-6)


def test_of_many_classes_the_page_shows_those_with_the_most_mistakes() -> None:
    """The confusion of 1,000 classes made a page of 42 MB."""
    rng = np.random.default_rng(3)
    matrix = np.diag(rng.integers(1, 9, 300)).astype(float)
    worst = np.sort(rng.choice(300, 50, replace=False))
    matrix[worst[:-1], worst[1:]] += 20
    matrix[worst[-1], worst[0]] += 20
    matrix[5, 9] += 1
    names = [f"c{index}" for index in range(300)]
    shown, rows = _worst_confused(names, matrix.tolist())
    assert shown == [*(f"c{index}" for index in worst), "other (250)"]
    others = np.setdiff1d(np.arange(300), worst)
    joined = np.zeros((300, 51))
    joined[worst, np.arange(50)] = joined[others, 50] = 1
    assert np.array_equal(np.array(rows), joined.T @ matrix @ joined)
    page = str(_confusion(matrix.tolist(), names))
    assert page.count("<tr") == 52
    assert "Of 300 classes the 50 with the most mistakes; the other 250 are put together" in _rows(matrix.tolist())
    assert "classes" not in _rows(matrix[:50, :50].tolist())
