"""Metrics of yes or no against scikit-learn, in memory and from states, with weights, ties and classes that lack."""

from __future__ import annotations

import math
import warnings
from fractions import Fraction
from typing import Any

import drivetrain as dt
import numpy as np
import pytest
from drivetrain import InputError
from drivetrain.components.evaluation import EvaluationConfig, metric
from drivetrain.components.evaluation.binary import BINARY_METRICS
from evaluating import measured, rounded_rows  # type: ignore[import-not-found]  # conftest puts this folder on the path
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn import metrics as sk

OPTIONS: dict[str, dict[str, float]] = {
    "sensitivity_at_specificity": {"specificity": 0.6},
    "specificity_at_sensitivity": {"sensitivity": 0.6},
    "precision_at_recall": {"recall": 0.6},
    "recall_at_precision": {"precision": 0.4},
    "recall_at_false_positive_rate": {"rate": 0.3},
    "threshold_at_recall": {"recall": 0.6},
}
EVERY = [metric(name, name=name, **OPTIONS.get(name, {})) for name in BINARY_METRICS]


def oracle(label: NDArray[Any], score: NDArray[Any], weight: NDArray[Any], threshold: float) -> dict[str, float]:
    """By scikit-learn, NaN where it has no value."""
    called = score > threshold
    options = {"sample_weight": weight, "zero_division": np.nan}
    tn, fp, fn, tp = sk.confusion_matrix(label, called, sample_weight=weight, labels=[0, 1]).ravel()
    precision, recall, f1, _ = sk.precision_recall_fscore_support(label, called, average="binary", **options)
    of_negatives = sk.precision_recall_fscore_support(label, called, average="binary", pos_label=0, **options)
    values = {
        "accuracy": sk.accuracy_score(label, called, sample_weight=weight),
        "precision": precision,
        "recall": recall,
        "specificity": of_negatives[1],
        "negative_predictive_value": of_negatives[0],
        "f1": f1,
        "f_beta": sk.fbeta_score(label, called, beta=2, **options),
        "threat_score": sk.jaccard_score(label, called, sample_weight=weight),
        "cohen_kappa": sk.cohen_kappa_score(label, called, sample_weight=weight),
        "matthews_correlation": sk.matthews_corrcoef(label, called, sample_weight=weight),
        "log_loss": sk.log_loss(label, np.clip(score, 1e-7, 1 - 1e-7), sample_weight=weight, labels=[0, 1]),
        "brier_score": sk.brier_score_loss(label, score, sample_weight=weight, labels=[0, 1]),
        "true_positives": tp, "false_positives": fp, "true_negatives": tn, "false_negatives": fn,
    }  # fmt: skip
    if weight[label == 1].sum() and weight[label == 0].sum():
        values |= {
            "auc": sk.roc_auc_score(label, score, sample_weight=weight),
            "average_precision": sk.average_precision_score(label, score, sample_weight=weight),
            "balanced_accuracy": sk.balanced_accuracy_score(label, called, sample_weight=weight),
            "informedness": sk.balanced_accuracy_score(label, called, sample_weight=weight, adjusted=True),
        }
    return values


@settings(deadline=None, max_examples=25)
@given(
    seed=st.integers(0, 10_000),
    rows=st.integers(1, 60),
    decimals=st.integers(1, 6),
    threshold=st.sampled_from([0.0, 0.3, 0.5, 0.9, 1.0]),
    exact_rows=st.sampled_from([0, 1000]),
)
def test_equal_to_scikit_learn(seed: int, rows: int, decimals: int, threshold: float, exact_rows: int) -> None:
    label, score, weight = rounded_rows(seed, rows, decimals)
    if not weight.sum():
        return
    names = [*BINARY_METRICS]
    metrics = [metric(name, name=name, **OPTIONS.get(name, {})) for name in names if name != "f_beta"]
    ours = measured(
        [*metrics, metric("f_beta", beta=2, name="f_beta")],
        label, score, weight, threshold=threshold, exact_rows=exact_rows, parts=3,
    )  # fmt: skip
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # scikit-learn warns where a metric is undefined
        theirs = oracle(label, score, weight, threshold)
    for name, value in theirs.items():
        if isinstance(ours[name], str):
            # scikit-learn gives NaN, or 0 where it is said to be 0 for want of a better value.
            assert math.isnan(value) or (name in ("threat_score", "matthews_correlation") and value == 0), name
        elif exact_rows == 0 and name in ("auc", "average_precision"):
            continue  # from bins: see test_metrics
        else:
            assert ours[name] == pytest.approx(value, rel=1e-9, abs=1e-9), name
    assert not any(isinstance(value, float) and not math.isfinite(value) for value in ours.values())


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 10_000), rows=st.integers(2, 60), bound=st.sampled_from([0.0, 0.25, 0.5, 0.8, 1.0]))
def test_points_of_curves_equal_scikit_learn(seed: int, rows: int, bound: float) -> None:
    label, score, weight = rounded_rows(seed, rows, 2)
    weight += 0.5
    if not 0 < label.sum() < rows:
        return
    fpr, tpr, _ = sk.roc_curve(label, score, sample_weight=weight, drop_intermediate=False)
    precision, recall, thresholds = sk.precision_recall_curve(label, score, sample_weight=weight)
    precision, recall = precision[:-1], recall[:-1]  # the last point, (1, 0), is put there by scikit-learn
    slack = 1e-9
    expected = {
        "sensitivity_at_specificity": tpr[1 - fpr >= bound - slack].max(),
        "specificity_at_sensitivity": (1 - fpr)[tpr >= bound - slack].max(),
        "precision_at_recall": precision[recall >= bound - slack].max(),
        "recall_at_precision": recall[precision >= bound - slack].max(initial=-1),
        "recall_at_false_positive_rate": tpr[fpr <= bound + slack].max(),
        "threshold_at_recall": thresholds[recall >= bound - slack].max(),
        "max_recall": 1.0,
    }
    names = {name: next(iter(OPTIONS[name]), None) for name in expected if name in OPTIONS}
    metrics = [metric(name, name=name, **{option: bound}) for name, option in names.items() if option]
    ours = measured([*metrics, "max_recall"], label, score, weight)
    for name, value in expected.items():
        if value == -1:
            assert ours[name] == f"no score has a precision of {bound:g}"
        else:
            assert ours[name] == pytest.approx(value, abs=1e-9), name


def test_rates_follow_from_the_confusion() -> None:
    tp, fp, fn, tn = 3.0, 1.0, 2.0, 4.0
    label, score = [1] * 5 + [0] * 5, [0.9] * 3 + [0.1] * 2 + [0.9] + [0.1] * 4
    ours = measured(EVERY, label, score)
    tpr, fpr = tp / (tp + fn), fp / (fp + tn)
    expected = {
        "fall_out": fpr,
        "miss_rate": 1 - tpr,
        "false_discovery_rate": fp / (fp + tp),
        "false_omission_rate": fn / (fn + tn),
        "prevalence": 0.5,
        "predicted_positive_rate": 0.4,
        "prevalence_threshold": (math.sqrt(tpr * fpr) - fpr) / (tpr - fpr),  # TFMA's form
        "fowlkes_mallows": math.sqrt(tp / (tp + fp) * tpr),
        "markedness": tp / (tp + fp) + tn / (tn + fn) - 1,
        "positive_likelihood_ratio": tpr / fpr,
        "negative_likelihood_ratio": (1 - tpr) / (1 - fpr),
        "diagnostic_odds_ratio": tp * tn / (fp * fn),
        "coefficient_of_discrimination": (3 * 0.9 + 2 * 0.1) / 5 - (0.9 + 4 * 0.1) / 5,
        "relative_coefficient_of_discrimination": (3 * 0.9 + 2 * 0.1) / (0.9 + 4 * 0.1),
        "expected_calibration_error": (abs(3 - 4 * 0.9) + abs(2 - 6 * 0.1)) / 10,
    }
    for name, value in expected.items():
        assert ours[name] == pytest.approx(value, rel=1e-12), name


@pytest.mark.parametrize(
    ("label", "score", "undefined"),
    [
        ([1, 1], [0.2, 0.9], {"auc", "pr_auc", "specificity", "fall_out", "matthews_correlation", "balanced_accuracy"}),
        ([0, 0], [0.2, 0.9], {"auc", "recall", "miss_rate", "average_precision", "max_recall"}),
        ([0, 1], [0.2, 0.3], {"precision", "false_discovery_rate", "fowlkes_mallows", "markedness"}),
        ([0, 0], [0.0, 0.0], {"f1", "f_beta", "threat_score", "recall", "precision"}),
        ([0, 1], [0.9, 0.8], {"negative_predictive_value", "false_omission_rate", "diagnostic_odds_ratio"}),
        ([0, 1], [0.1, 0.8], {"positive_likelihood_ratio", "diagnostic_odds_ratio"}),
    ],
)
def test_what_has_no_value_says_why(label: list[int], score: list[float], undefined: set[str]) -> None:
    ours = measured(EVERY, label, score)
    reasons = {name: value for name, value in ours.items() if isinstance(value, str)}
    assert undefined <= reasons.keys()
    assert all(reasons.values())


def test_rows_without_weight_say_nothing() -> None:
    """But that nothing was positive is 0 positives."""
    ours = measured(EVERY, [0, 1], [0.2, 0.7], [0.0, 0.0])
    counts = {"true_positives", "false_positives", "true_negatives", "false_negatives"}
    assert {name for name, value in ours.items() if not isinstance(value, str)} == counts


def test_a_metric_at_several_thresholds() -> None:
    label, score, _ = rounded_rows(3, 500, 3)
    ours = measured(
        ["recall", metric("recall", threshold=0.2), metric("recall", threshold=0.8, name="strict recall")],
        label, score, threshold=0.4, exact_rows=10, parts=4,
    )  # fmt: skip
    expected = {"recall": 0.4, "recall(threshold=0.2)": 0.2, "strict recall": 0.8}
    assert ours == {name: sk.recall_score(label, score > at) for name, at in expected.items()}


@pytest.mark.parametrize(
    ("item", "words"),
    [
        (("precision", {"treshold": 0.3}), "'precision' has no option 'treshold'.*\n.*did you mean 'threshold'"),
        (("precision", {"threshold": 3}), r"threshold must lie in \[0, 1\], not 3"),
        (("precision_at_recall", {}), r"needs the option 'recall'.*\n.*metric\('precision_at_recall', recall=…\)"),
        (("f_beta", {"beta": 0}), "beta must be above 0"),
        (("auc", {"method": "best"}), "method must be"),
        (("expected_calibration_error", {"buckets": 0}), "at least 1"),
        (("expected_calibration_error", {"low": 1.0}), "low 1.0 is not below high 1.0"),
        (("expected_calibration_error", {"high": "1"}), "high must be a finite number"),
        (("auc", {"method": {}}), "must be text, a number or a list"),
    ],
)
def test_options_are_checked_when_written(item: tuple[str, dict[str, Any]], words: str) -> None:
    with pytest.raises(InputError, match=words):
        EvaluationConfig("y", "p", metrics=[metric(item[0], **item[1])])


def test_small_weights_beside_large_ones_are_not_lost() -> None:
    rows = {"y": [1, 1, 0], "p": [0.9, 0.1, 0.1], "w": [1e16, 1.0, 1.0]}
    wanted = {
        "false_negatives": 1.0,
        "false_omission_rate": 0.5,
        "negative_predictive_value": 0.5,
        "coefficient_of_discrimination": 0.8,
    }
    values = dt.evaluate(rows, label="y", predictions="p", weight="w", metrics=[*wanted]).overall["p"]
    assert values == pytest.approx(wanted)
    rows["w"] = [1e17, 1.0, 1.0]
    metrics = ["coefficient_of_discrimination"]
    values = dt.evaluate(rows, label="y", predictions="p", weight="w", metrics=metrics).overall["p"]
    assert values == pytest.approx({"coefficient_of_discrimination": 0.8})


def test_a_prediction_on_an_edge_belongs_to_the_part_above() -> None:
    rows = {"y": [1] * 50 + [0] * 50, "p": [0.25] * 50 + [0.3] * 50}
    metrics = ["expected_calibration_error"]
    value = dt.evaluate(rows, label="y", predictions="p", metrics=metrics).overall["p"]["expected_calibration_error"]
    assert value == pytest.approx(0.525)


@pytest.mark.parametrize("beta", ["2", 0, -1, True, float("nan"), 1e200])
def test_beta_is_a_number(beta: Any) -> None:
    with pytest.raises(InputError, match="beta must be above 0"):
        EvaluationConfig("y", "p", metrics=[metric("f_beta", beta=beta)])


def test_kappa_of_a_class_that_weighs_next_to_nothing() -> None:
    """Chance and accuracy are next to 1 then, and their differences to 1 have hardly a digit left."""
    tp, fp, tn, fn = 1e-13, 2e-13, 1.0, 3e-13
    rows = {"y": [1, 0, 0, 1], "p": [0.9, 0.9, 0.1, 0.1], "w": [tp, fp, tn, fn]}
    values = dt.evaluate(rows, label="y", predictions="p", weight="w", metrics=["cohen_kappa"]).overall["p"]
    exact = [Fraction(weight) for weight in (tp, fp, tn, fn)]
    all_of, right = sum(exact), exact[0] + exact[2]
    called, positives = exact[0] + exact[1], exact[0] + exact[3]
    chance = (called * positives + (all_of - called) * (all_of - positives)) / all_of**2
    assert values["cohen_kappa"] == pytest.approx(float((right / all_of - chance) / (1 - chance)), rel=1e-12)
