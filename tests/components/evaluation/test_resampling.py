"""Resampled by buckets: as if each metric were computed anew from the rows that were drawn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from drivetrain.components.evaluation import Confidence
from drivetrain.components.evaluation.binary import BINARY_METRICS
from drivetrain.components.evaluation.classes import for_several_classes
from drivetrain.components.evaluation.definitions import Metric
from drivetrain.components.evaluation.multiclass import MULTICLASS_METRICS
from drivetrain.components.evaluation.regression import REGRESSION_METRICS
from drivetrain.components.evaluation.resampling import bucketed
from drivetrain.components.evaluation.rows import SliceRows

BUCKETS = 12
auc = BINARY_METRICS["auc"].build
recall = BINARY_METRICS["recall"].build()
CASES: dict[str, tuple[str, Metric]] = {
    "auc": ("binary", auc()),
    "pr_auc": ("binary", BINARY_METRICS["pr_auc"].build()),
    "recall": ("binary", BINARY_METRICS["recall"].build(threshold=0.4)),
    "ece": ("binary", BINARY_METRICS["expected_calibration_error"].build()),
    "rmse": ("regression", REGRESSION_METRICS["rmse"].build()),
    "r2": ("regression", REGRESSION_METRICS["r2"].build()),
    "macro_f1": ("multiclass", MULTICLASS_METRICS["macro_f1"].build()),
    "auc of a class": ("multiclass", for_several_classes(auc(), "auc", None, class_id=1)),
    "macro auc": ("multiclass", for_several_classes(auc(), "auc", None, average="macro")),
    "weighted f1": ("multiclass", for_several_classes(BINARY_METRICS["f1"].build(), "f1", None, average="weighted")),
    "micro recall": (
        "multiclass",
        for_several_classes(recall, "recall", None, average="micro"),
    ),
    "recall of two": ("multiclass", for_several_classes(recall, "recall", None, top_k=2)),
    "auc of the second": ("multiclass", for_several_classes(auc(), "auc", None, kth=2)),
    "rows": ("regression", Metric.of_rows("Median", lambda rows: float(np.median(rows.prediction)))),
    "reduced": (
        "regression",
        Metric.reduce(
            "Sum",
            lambda: {"sum": np.zeros(1)},
            lambda state, rows: {"sum": state["sum"] + rows.prediction.sum()},
            lambda left, right: {"sum": left["sum"] + right["sum"]},
            lambda state: float(state["sum"][0]),
        ),
    ),
}


def rows_of(task: str, count: int = 400) -> SliceRows:
    rng = np.random.default_rng(3)
    label: Any = rng.integers(0, 2, count) == 1 if task == "binary" else rng.normal(size=count)
    prediction = np.round(rng.random(count), 2)
    if task == "multiclass":
        label, prediction = rng.integers(0, 3, count), rng.random((count, 3))
    bucket = rng.integers(0, BUCKETS - 1, count).astype(np.int16)  # the last stays empty
    rows = SliceRows(label, prediction, rng.choice([0.5, 1.0, 2.0], count), None, bucket)
    return rows if task == "multiclass" else rows.take(np.argsort(prediction, kind="stable"))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("method", ["jackknife", "bootstrap"])
def test_a_resample_is_the_metric_of_the_rows_drawn(name: str, method: Any) -> None:
    task, metric = CASES[name]
    rows = rows_of(task)
    assert rows.bucket is not None
    counts = Confidence(method, buckets=BUCKETS, resamples=20).draws()
    expected = [
        metric.result(metric.state.exact(rows.take(np.repeat(np.arange(len(rows)), row[rows.bucket]))))
        for row in counts
    ]
    expected = expected[:-1] if method == "jackknife" else expected
    state = bucketed(metric.state, BUCKETS)

    def values(resamples: Any) -> list[Any]:
        wanted = counts[resamples.occupied] if method == "jackknife" else counts
        return [metric.result(resamples.of(row)) for row in wanted]

    assert values(state.exact(rows)) == pytest.approx(expected, rel=1e-9)
    if not metric.state.keeps_rows:
        parts = [rows.take(slice(0, 150)), rows.take(slice(150, None))]
        merged = state.merge(*(state.add(state.init(), part) for part in parts))
        loose = 0.02 if state.init().keys() >= {"mass"} or "auc" in name else 1e-9  # scores fall into bins
        assert values(state.finish(merged)) == pytest.approx(expected, rel=loose)


def test_many_scores_are_grouped_without_moving_the_area() -> None:
    rng = np.random.default_rng(4)
    count = 60_000
    label = rng.random(count) < 0.3
    prediction = np.sort(1 / (1 + np.exp(-rng.normal(size=count))))
    rows = SliceRows(label, prediction, np.ones(count), None, rng.integers(0, BUCKETS, count).astype(np.int16))
    metric = auc()
    everything = bucketed(metric.state, BUCKETS).exact(rows).of(np.ones(BUCKETS, dtype=np.int64))
    assert len(everything.scores) == 4096
    assert metric.result(everything) == pytest.approx(metric.result(metric.state.exact(rows)), abs=1e-5)


def test_a_draw_may_have_more_rows_than_there_are() -> None:
    count = 30
    bucket = np.arange(count, dtype=np.int16) % BUCKETS
    rows = SliceRows(np.zeros(count), np.zeros(count), np.ones(count), None, bucket)
    weight = Metric.of_rows("Weight", lambda rows: float(rows.weight.sum()))
    twice = bucketed(weight.state, BUCKETS).exact(rows).of(np.full(BUCKETS, 2))
    assert weight.result(twice) == 2 * count
