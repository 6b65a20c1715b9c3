"""A metric of the user's own: from rows or from a state, in NumPy or JAX, sliced, gated and drawn like ours."""

from __future__ import annotations

import itertools
import json
import pickle
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from drivetrain import BuildError, InputError
from drivetrain.components.evaluation import EvaluationConfig, Metric, SliceRows, Threshold, metric
from drivetrain.components.evaluation.accumulator import MetricsAccumulator
from drivetrain.components.evaluation.outputs import ONLY
from drivetrain.components.evaluation.run import write
from drivetrain.components.evaluation.validation import summary, validate
from drivetrain.components.evaluator import configuration_of
from drivetrain.pipelines import FunctionRef
from evaluating import measured, rounded_rows  # type: ignore[import-not-found]  # conftest puts this folder on the path

EVALUATION = """
from drivetrain.components.evaluation import EvaluationConfig, Threshold, metric
{imports}
config = EvaluationConfig("y", "p", metrics=["auc", {item}], thresholds=[Threshold("profit", lower=0)])
"""
METRICS = """
import numpy as np
from drivetrain.components.evaluation import Metric, SliceRows

def profit(gain=100.0, cost=20.0) -> Metric:
    def earned(rows: SliceRows) -> float:
        called = rows.prediction > 0.5
        return float(np.sum(rows.weight[called] * (gain * rows.label[called] - cost)))
    return Metric.of_rows("Profit", earned, direction="higher")
"""


def profit(gain: float = 100.0, cost: float = 20.0) -> Metric:
    def earned(rows: SliceRows) -> float:
        called = rows.prediction > 0.5
        return float(np.sum(rows.weight[called] * (gain * rows.label[called] - cost)))

    return Metric.of_rows("Profit", earned, direction="higher", plot=lambda rows: [[0.0, 0.0], [1.0, float(len(rows))]])


@cache  # for each shape one program, and not one for each step of each metric
def profit_and_calls() -> Any:
    """In JAX: from the predictions, labels and weights of rows to what they earn, and how many are called."""
    import jax
    import jax.numpy as jnp

    def summed(prediction: Any, label: Any, weight: Any) -> Any:
        called = prediction > 0.5
        return jnp.where(called, weight * (100.0 * label - 20.0), 0.0).sum(), called.sum()

    return jax.jit(summed)


def summed_profit() -> Metric:
    def add(state: Any, rows: SliceRows) -> Any:
        earned, calls = profit_and_calls()(rows.prediction, rows.label, rows.weight)
        return {"sum": state["sum"] + earned, "calls": state["calls"] + calls}

    def merge(left: Any, right: Any) -> Any:
        return {name: left[name] + right[name] for name in left}

    def result(state: Any) -> Any:
        return state["sum"] if state["calls"] else "nothing predicted positive"

    return Metric.reduce("Summed profit", lambda: {"sum": 0.0, "calls": 0}, add, merge, result, direction="higher")


def only_of_numbers() -> Metric:
    return Metric.of_rows("Range", lambda rows: float(np.ptp(rows.label)), tasks=("regression",))


def undirected() -> Metric:
    return Metric.of_rows("Rows", lambda rows: float(len(rows)))


def not_a_metric() -> float:
    return 1.0


def project(tmp_path: Path, item: str, imports: str = "") -> FunctionRef:
    folder = tmp_path / "shop"
    folder.mkdir()
    (folder / "evaluation.py").write_text(EVALUATION.format(item=item, imports=imports))
    (folder / "metrics.py").write_text(METRICS)
    return FunctionRef(folder, "evaluation:config")


def expected(label: Any, score: Any, weight: Any, gain: float = 100.0) -> float:
    """By a loop."""
    return float(sum(w * (gain * y - 20.0) for y, p, w in zip(label, score, weight, strict=True) if p > 0.5))


def test_from_rows_and_from_a_state_in_jax() -> None:
    label, score, weight = rounded_rows(1, 200, 2)
    for exact_rows, parts in itertools.product((0, 1000), (1, 3)):
        ours = measured(
            [profit, metric(profit, gain=50.0, name="half"), "auc"], label, score, weight,
            exact_rows=exact_rows, parts=parts,
        )  # fmt: skip
        assert ours["profit"] == pytest.approx(expected(label, score, weight))
        assert ours["half"] == pytest.approx(expected(label, score, weight, gain=50.0))
        ours = measured([summed_profit, "auc"], label, score, weight, exact_rows=exact_rows, parts=parts)
        assert ours["summed_profit"] == pytest.approx(expected(label, score, weight), rel=1e-5)
    assert measured([summed_profit], [0, 1], [0.1, 0.2])["summed_profit"] == "nothing predicted positive"


@pytest.mark.parametrize(
    ("item", "imports"),
    [
        ("profit", "from .metrics import profit"),
        ("metric(profit, name='profit', cost=20.0)", "from .metrics import profit"),
        ("'metrics:profit'", "from . import metrics"),
    ],
)
def test_in_a_project_and_gated(tmp_path: Path, item: str, imports: str) -> None:
    judged = configuration_of(project(tmp_path, item, imports))
    label, score, _ = rounded_rows(2, 100, 2)
    worker: EvaluationConfig = pickle.loads(pickle.dumps(judged))  # as Beam sends it
    accumulator = MetricsAccumulator(worker)
    accumulator.add_batch(pa.record_batch({"label": pa.array(label), "candidate": pa.array(score)}))
    result = MetricsAccumulator(judged).load(accumulator.to_bytes()).result()
    earned = expected(label, score, np.ones(100))
    assert result["slices"][0]["metrics"]["candidate"]["profit"] == earned
    verdict = validate(result, judged, baseline=False)
    assert verdict["thresholds"][0]["text"].startswith("overall profit")
    assert verdict["blessed"] is (earned >= 0)


def test_a_metric_that_the_configuration_does_not_import(tmp_path: Path) -> None:
    """Its code would be no part of the cache key."""
    for name, item in (("one", "'metrics:profit'"),
                       ("two", "metric('gap', of='metrics:profit', by='g', name='profit')")):  # fmt: skip
        (tmp_path / name).mkdir()
        with pytest.raises(InputError, match=r"'profit' stands in 'metrics', which 'evaluation' does not im.*\n.*from"):
            configuration_of(project(tmp_path / name, item))


def test_what_a_metric_draws_is_in_plots_and_report(tmp_path: Path) -> None:
    judged = EvaluationConfig("y", "p", metrics=[profit], thresholds=[Threshold("profit", lower=0)])
    accumulator = MetricsAccumulator(judged)
    accumulator.add_batch(pa.record_batch({"label": pa.array([0, 1]), "candidate": pa.array([0.2, 0.9])}))
    result = accumulator.result()
    verdict = validate(result, judged, baseline=False)
    evaluation = {
        "metrics": result, "validation": verdict, "summary": summary(result, verdict), "bars": [],
        "titles": {"profit": "Profit"},
    }  # fmt: skip
    write({ONLY: evaluation}, tmp_path, tmp_path)
    assert json.loads((tmp_path / "plots.json").read_text())["models"]["candidate"]["profit"] == [
        [0.0, 0.0],
        [1.0, 2.0],
    ]
    assert "<h2>Profit</h2>" in (tmp_path / "report.html").read_text()
    assert evaluation["summary"] == "profit 80; blessed"


def drawing(point: float = 0.0) -> Metric:
    return Metric.of_rows("Drawing", lambda rows: 0.0, plot=lambda rows: [[0.0, point]])


@pytest.mark.parametrize("name", ["roc", "calibration", "thresholds", "residuals", "confusion", "groups"])
def test_a_plot_with_the_name_of_one_of_ours_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=f"metric '{name}' draws a plot, and a plot of ours has that name"):
        measured([metric(drawing, name=name)], [0, 1], [0.2, 0.9])


@pytest.mark.parametrize("point", [float("nan"), float("inf"), "x"])
def test_a_point_that_cannot_be_drawn_is_named(point: Any) -> None:
    with pytest.raises(InputError, match="the plot of metric 'far' has a point that cannot be drawn"):
        measured([metric(drawing, name="far", point=point)], [0, 1], [0.2, 0.9])


def huge() -> Metric:
    return Metric.of_rows("Huge", lambda rows: 10**400)


def shuffling() -> Metric:
    def shuffled(rows: SliceRows) -> float:
        rows.prediction.sort()
        return 0.0

    return Metric.of_rows("Shuffling", shuffled)


def shuffling_sum() -> Metric:
    def add(state: Any, rows: SliceRows) -> Any:
        rows.prediction.sort()
        return state

    return Metric.reduce("Shuffling", lambda: {"n": 0}, add, lambda left, right: left, lambda state: 0.0)


def test_a_value_beyond_floats_is_undefined() -> None:
    assert measured([huge], [0, 1], [0.2, 0.9])["huge"] == "the result is beyond the largest float"


@pytest.mark.parametrize("changing", [shuffling, shuffling_sum])
def test_a_metric_cannot_change_what_the_next_one_sees(changing: Any) -> None:
    with pytest.raises(ValueError, match="read-only"):
        measured([changing, "auc"], [0, 1], [0.9, 0.2])


def test_mistakes() -> None:
    with pytest.raises(BuildError, match="cannot be named from another process"):
        metric(lambda: profit())
    with pytest.raises(InputError, match="not_a_metric gives a float, not a Metric"):
        measured([not_a_metric], [0], [0.5])
    with pytest.raises(InputError, match=r"'only_of_numbers' judges regression models.*\n.*task=\"regression\""):
        measured([only_of_numbers], [0], [0.5])
    assert measured([only_of_numbers], [0.0, 3.0], [0.5, 0.5], task="regression") == {"only_of_numbers": 3.0}
    judged = EvaluationConfig("y", "p", metrics=[undirected], thresholds=[Threshold("undirected", change_absolute=0)])
    assert EvaluationConfig.from_json(json.loads(json.dumps(judged.to_json()))) == judged
    here = FunctionRef(None, f"{__name__}:JUDGED")
    with pytest.raises(InputError, match="which way is better"):
        configuration_of(here)


JUDGED = EvaluationConfig("y", "p", metrics=[undirected], thresholds=[Threshold("undirected", change_absolute=0)])
