"""The configuration of an evaluation: its mistakes, as JSON, and imported without a model library."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from drivetrain import InputError
from drivetrain.components.evaluation import EvaluationConfig, Slice, Threshold, metric
from drivetrain.components.evaluation.checks import check_columns


def config(*thresholds: Any, **options: Any) -> EvaluationConfig:
    given: dict[str, Any] = {"label": "late", "prediction": "probability", "slices": [[], ["carrier"], ["month"]]}
    return EvaluationConfig(**given | options, thresholds=thresholds)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: config(Threshold("acu", lower=1)), "no metric 'acu'.*\n.*auc"),
        (lambda: Threshold("auc"), "has no bound"),
        (lambda: Threshold("auc", lower=0.9, upper=0.8), "lower 0.9 is above upper 0.8"),
        (lambda: Threshold("auc", lower=float("nan")), "finite"),
        (lambda: Threshold("auc", lower="0.9"), "finite number, not '0.9'"),  # type: ignore[arg-type]
        (lambda: Threshold("calibration", change_absolute=0.1), "which way is better"),
        (lambda: Threshold("auc", lower=0, direction="up"), "'higher' or 'lower'"),  # type: ignore[arg-type]
        (lambda: Threshold("auc", lower=0, slice="carrier"), "list of columns"),
        (lambda: Threshold("auc", lower=0, slice=["carrier", "carrier"]), "'carrier' is given twice"),
        (lambda: config(metrics=["auc", "lift"]), "no metric 'lift'"),
        (lambda: config(metrics=["auc", "auc"]), "'auc' is given twice"),
        (lambda: config(metrics="auc"), "list of names"),
        (lambda: config(slices=["carrier"]), "a slice is a list of column names, not 'carrier'"),
        (lambda: config(slices=[["a", "b"], ["b", "a"]]), "given twice"),
        (lambda: config(slices=[Slice("late", sql="")]), "sql must be a text, not ''"),
        (lambda: config(slices=[Slice("a", sql="b"), ["c", Slice("a", sql="c")]]), "two expressions have the name 'a'"),
        (lambda: config(slices=[Slice("a", sql="b"), ["a"]]), r"\('a',\) is given twice"),
        (lambda: config(slices=[{"name": "a", "SQL": "b"}]), "is not a slice\n.*sql"),
        (lambda: config(slices=[["a", 1]]), "a slice is a list of column names"),
        (lambda: config(slices=Slice("a", sql="b")), "slices must be a list"),
        (lambda: config(slices=[["a", "a"]]), "'a' is given twice"),
        (lambda: config(Threshold("auc", lower=0), metrics=["accuracy"]), "add 'auc' to metrics"),
        (lambda: config(Threshold("auc", lower=0, slice=["dest"])), r"add \['dest'\] to slices"),
        (lambda: config(Threshold("auc", lower=0), Threshold("auc", lower=0)), "given twice"),
        (lambda: config("auc"), "is not a Threshold"),
        (lambda: config(label=""), "label must name a column"),
        (lambda: config(label="p", prediction="p"), "both 'p': any model would be right"),
        (lambda: config(Threshold("auc", lower=90)), "no model keeps this, as the metric lies between 0 and 1"),
        (lambda: config(Threshold("auc", upper=-1)), "no model keeps this"),
        (lambda: config(threshold=2), r"\[0, 1\]"),
        (lambda: config(exact_rows=-1), "exact_rows"),
        (lambda: config(min_examples=2.5), "min_examples must be a count of rows, not 2.5"),
        (lambda: config(min_examples=float("inf")), "min_examples must be a count of rows, not inf"),
        (lambda: config(min_examples=10**400), "min_examples must be a count of rows, not 1000"),
        (lambda: config(thresholds=[Threshold("auc", lower=10**400)]), "lower must be a finite number, not 1000"),
        (lambda: config(first_run="refused"), "first_run must be 'bless' or 'refuse', not 'refused'"),
        (lambda: config(first_run="refused"), "did you mean 'refuse'?"),
        (lambda: EvaluationConfig.from_json({"label": "y", "prediction": "p", "colour": 1}), "not an EvaluationConfig"),
    ],
)
def test_configuration_errors(make: Callable[[], object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        make()


@pytest.mark.parametrize(
    ("bound", "options", "words"),
    [
        (
            Threshold("rmse", upper=3),
            {},
            r"'rmse' judges regression models, .* binary ones\n  fix: write task='regression'",
        ),
        (Threshold("auc", lower=0.8), {"task": "regression"}, r"'auc' judges binary models, .* regression ones"),
        (
            Threshold("gap(of=auc, by=sex)", upper=0.1),
            {"metrics": [metric("gap", of="auc", by="sex")]},
            r"there is no metric 'gap.*\n  fix: did you mean 'gap\(by=sex, of=auc\)'",
        ),
        (
            Threshold("f_beta", lower=0.8),
            {"metrics": [metric("f_beta", beta=2.0)]},
            r"no metric of that name .*\n  fix: did you mean 'f_beta\(beta=2",
        ),
        (Threshold("accuracy", lower=0.8), {"metrics": ["auc"]}, r"no metric of that name .*\n  fix: add 'accuracy'"),
    ],
    ids=lambda case: getattr(case, "metric", None),
)
def test_a_threshold_for_another_kind_of_model_says_so(bound: Threshold, options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        EvaluationConfig(label="late", prediction="score", thresholds=[bound], **options)


def test_configuration_round_trip() -> None:
    judged = config(
        Threshold("auc", lower=0.8, slice=["carrier"]),
        Threshold("log_loss", change_relative=0.1, slice={"month": None}),
    )
    assert judged.thresholds[1].direction == "lower"
    assert judged.slices == ((), ("carrier",), ("month",))
    assert EvaluationConfig.from_json(json.loads(json.dumps(judged.to_json()))) == judged
    hash(judged)


def test_a_slice_by_an_expression_is_named_like_a_column() -> None:
    late = Slice("late", sql="hour >= 20")
    judged = config(
        Threshold("auc", lower=0.8, slice={"late": True}), slices=[late, ["carrier", "late"]],
    )  # fmt: skip
    assert judged.slices == ((), (late,), ("carrier", late))
    assert judged.specs == ((), ("late",), ("carrier", "late"))
    assert judged == config(*judged.thresholds, slices=[["late"], ["carrier", {"name": "late", "sql": "hour >= 20"}]])
    assert EvaluationConfig.from_json(json.loads(json.dumps(judged.to_json()))) == judged
    assert pickle.loads(pickle.dumps(judged)) == judged
    hash(judged)
    assert "test_config.py" in (late.where or "")


def test_importing_the_configuration_loads_no_model_library() -> None:
    code = (
        "import sys, drivetrain.components.evaluation\n"
        "heavy = {'jax', 'flax', 'optax', 'pandas', 'scipy', 'sklearn', 'apache_beam', 'great_expectations'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", ["weight", "query"])
def test_columns_are_texts(name: str) -> None:
    columns: tuple[Any, ...] = (3, "")
    for column in columns:
        with pytest.raises(InputError, match=f"{name} must name a column, not {column!r}"):
            EvaluationConfig("y", "p", **{name: column})
    with pytest.raises(InputError, match=f"the {name} needs the name of a column, not 3"):
        check_columns({columns[0]: f"the {name}"}, ["w"])


def test_numbers_of_numpy_are_written_as_numbers() -> None:
    third: Any = np.int64(3)
    threshold = Threshold("accuracy", lower=0.1, slice={"month": third})
    judged = EvaluationConfig(
        "y", "p", task="multiclass", classes=list(np.arange(2)), slices=[["month"]], thresholds=[threshold]
    )
    assert EvaluationConfig.from_json(json.loads(json.dumps(judged.to_json()))) == judged
    assert (judged.classes, judged.thresholds[0].pinned) == ((0, 1), {"month": 3})


def test_a_wrong_metric_is_named_with_the_line_that_wrote_it() -> None:
    with pytest.raises(InputError, match=r"there is no metric 'log_los'\n  fix: did you mean 'log_loss'") as caught:
        EvaluationConfig("y", "p", metrics=["auc", "log_los"])
    assert (caught.value.where or "").rpartition(":")[0] == __file__


def test_numbers_may_be_of_numpy() -> None:
    """As those that a computation gives; the configuration holds them as JSON does."""
    bounds: dict[str, Any] = {"lower": np.float32(0.25), "upper": np.float64(1), "change_absolute": np.int64(0)}
    options: dict[str, Any] = {"threshold": np.float32(0.25), "min_examples": np.int64(3)}
    at = metric("precision", threshold=np.float32(0.5), name="at")
    judged = EvaluationConfig("y", "p", metrics=[at], thresholds=[Threshold("at", **bounds)], **options)
    (threshold,) = judged.thresholds
    assert (threshold.lower, threshold.upper, threshold.change_absolute) == (0.25, 1.0, 0)
    assert EvaluationConfig.from_json(json.loads(json.dumps(judged.to_json()))) == judged
    nan: Any = np.float32("nan")
    with pytest.raises(InputError, match="finite"):
        Threshold("auc", lower=nan)
