"""Metrics of one class out of several against scikit-learn: of the best score, of the top k, one against the rest."""

from __future__ import annotations

import warnings
from fractions import Fraction
from typing import Any

import drivetrain as dt
import numpy as np
import pyarrow as pa
import pytest
from drivetrain import InputError
from drivetrain.components.evaluation import EvaluationConfig, metric
from drivetrain.components.evaluation.accumulator import MetricsAccumulator
from drivetrain.components.evaluation.multiclass import MULTICLASS_METRICS
from evaluating import measured  # type: ignore[import-not-found]  # conftest puts this folder on the path
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn import metrics as sk


def drawn(seed: int, rows: int, classes: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    rng = np.random.default_rng(seed)
    score = rng.dirichlet(np.full(classes, 0.6), rows)
    label = np.array([rng.choice(classes, p=row) for row in 0.7 * score + 0.3 / classes])
    return label, score, rng.choice([0.5, 1.0, 3.0], rows)


@settings(deadline=None, max_examples=25)
@given(
    seed=st.integers(0, 10_000),
    rows=st.integers(1, 60),
    classes=st.integers(2, 5),
    exact_rows=st.sampled_from([0, 1000]),
)
def test_equal_to_scikit_learn(seed: int, rows: int, classes: int, exact_rows: int) -> None:
    label, score, weight = drawn(seed, rows, classes)
    called = score.argmax(axis=1)
    ours = measured(
        [*MULTICLASS_METRICS, metric("top_k_accuracy", k=2, name="top2")],
        label, score, weight, exact_rows=exact_rows, parts=3,
    )  # fmt: skip
    labels, every = list(range(classes)), {"sample_weight": weight}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn warns of classes without rows
        expected: dict[str, float] = {
            "accuracy": sk.accuracy_score(label, called, **every),
            "micro_f1": sk.f1_score(label, called, average="micro", **every),
            "balanced_accuracy": sk.balanced_accuracy_score(label, called, **every),
            "matthews_correlation": sk.matthews_corrcoef(label, called, **every),
            "cohen_kappa": sk.cohen_kappa_score(label, called, labels=labels, **every),
            "log_loss": sk.log_loss(label, np.clip(score, 1e-7, 1), labels=labels, **every),
            "brier_score": np.average(((score - np.eye(classes)[label]) ** 2).sum(axis=1), weights=weight),
        }
        for average in ("macro", "weighted"):
            values = sk.precision_recall_fscore_support(
                label, called, average=average, labels=labels, zero_division=np.nan, **every
            )
            for name, value in zip(("precision", "recall", "f1"), values, strict=False):
                expected[f"{average}_{name}"] = value
    if classes > 2:
        expected["top2"] = sk.top_k_accuracy_score(label, score, k=2, labels=labels, **every)
    for name, value in expected.items():
        if isinstance(ours[name], str):
            assert name in ("matthews_correlation", "cohen_kappa", "weighted_precision"), name
            assert np.isnan(value) or value == 0
        else:
            assert ours[name] == pytest.approx(value, rel=1e-6 if name == "log_loss" else 1e-9, abs=1e-9), name


@settings(deadline=None, max_examples=15)
@given(seed=st.integers(0, 10_000), exact_rows=st.sampled_from([0, 1000]))
def test_metrics_of_yes_or_no_for_each_class_and_averaged(seed: int, exact_rows: int) -> None:
    label, score, weight = drawn(seed, 40, 3)
    truth = np.eye(3)[label]
    called = score > 0.5
    ours = measured(
        [
            metric("auc", class_id=1, name="auc1"),
            *(metric("auc", average=average, name=f"auc {average}") for average in ("micro", "macro", "weighted")),
            metric("precision", class_id=2, threshold=0.3, name="precision2"),
            *(metric("f1", average=average, name=f"f1 {average}") for average in ("micro", "macro", "weighted")),
            metric("recall", top_k=2, name="recall@2"),
            metric("precision", kth=2, threshold=0.3, name="precision of second"),
            "accuracy",
        ],
        label, score, weight, exact_rows=exact_rows, parts=2,
    )  # fmt: skip
    every: dict[str, Any] = {"sample_weight": weight}
    expected = {
        "precision2": sk.precision_score(label == 2, score[:, 2] > 0.3, zero_division=np.nan, **every),
        **{f"f1 {how}": sk.f1_score(truth, called, average=how, zero_division=np.nan, **every)
           for how in ("micro", "macro", "weighted")},
        "recall@2": sk.top_k_accuracy_score(label, score, k=2, labels=[0, 1, 2], **every),
    }  # fmt: skip
    second = np.argsort(-score, axis=1)[:, 1]
    expected["precision of second"] = sk.precision_score(
        label == second, score[np.arange(40), second] > 0.3, zero_division=np.nan, **every
    )
    if exact_rows and len(set(label)) == 3:
        expected["auc1"] = sk.roc_auc_score(label == 1, score[:, 1], **every)
        expected["auc micro"] = sk.roc_auc_score(truth.ravel(), score.ravel(), sample_weight=np.repeat(weight, 3))
        expected |= {
            f"auc {how}": sk.roc_auc_score(label, score, average=how, multi_class="ovr", **every)
            for how in ("macro", "weighted")
        }
    for name, value in expected.items():
        assert isinstance(ours[name], str) or ours[name] == pytest.approx(value, rel=1e-9), name
        assert np.isnan(value) or not isinstance(ours[name], str), name


@pytest.mark.parametrize("weights", [[2.0, 0.5, 1.0], [0.0, 3.0]])
def test_averages_by_weights_of_classes(weights: list[float]) -> None:
    label, score, weight = drawn(7, 60, 3)
    ours = measured(
        [metric("recall", average=how, class_weights=weights, name=how) for how in ("micro", "macro", "weighted")],
        label, score, weight, parts=2,
    )  # fmt: skip
    factors = np.array([*weights, 0.0][:3])
    truth, called = np.eye(3)[label], score > 0.5
    each = sk.recall_score(truth, called, average=None, sample_weight=weight)
    decisions = np.repeat(weight, 3) * np.tile(factors, 60)
    assert ours == {
        "micro": pytest.approx(sk.recall_score(truth.ravel(), called.ravel(), sample_weight=decisions)),
        "macro": pytest.approx(np.average(each, weights=factors)),
        "weighted": pytest.approx(np.average(each, weights=factors * (truth * weight[:, None]).sum(axis=0))),
    }
    for options, words in (
        ({"class_weights": [1]}, "class_weights needs|are of an average|needs one of the options"),
        ({"average": "macro", "class_weights": [-1]}, "numbers of 0 or more"),
    ):
        with pytest.raises(InputError, match=words):
            EvaluationConfig("y", "p", metrics=[metric("recall", **options)])
    with pytest.raises(InputError, match="there are 4 class_weights for 3 classes"):
        measured([metric("recall", average="macro", class_weights=[1, 1, 1, 1])], label, score)


def test_classes_by_name() -> None:
    score = [[0.7, 0.2, 0.1], [0.1, 0.2, 0.7], [0.2, 0.5, 0.3]]
    options: dict[str, Any] = {"classes": ["cat", "dog", "eel"]}
    metrics = ["accuracy", metric("recall", class_id="eel", name="eels")]
    assert measured(metrics, ["cat", "eel", "eel"], score, **options) == {"accuracy": 2 / 3, "eels": 0.5}
    assert measured(["accuracy"], [10.0, 30.0, 20.0], score, classes=[10, 20, 30]) == {"accuracy": 1.0}
    with pytest.raises(InputError, match=r"none of the classes in 1 of 3 rows: row 2 \('cow'\).*\n.*classes"):
        measured(metrics, ["cat", "eel", "cow"], score, **options)
    with pytest.raises(InputError, match=r"there is no class 'dgo'.*\n.*did you mean 'dog'"):
        EvaluationConfig("y", "p", metrics=[metric("recall", class_id="dgo")], **options)
    with pytest.raises(InputError, match="3 scores in a row, and there are 2 classes"):
        measured(["accuracy"], ["cat", "dog", "dog"], score, task="multiclass", classes=["cat", "dog"])


@pytest.mark.parametrize(
    ("label", "words"),
    [
        ([0, 1, 3], r"no class of the 3 that have scores in 1 of 3 rows: row 2 \(3\)"),
        ([0, 1, -1], r"no position of a class in 1 of 3 rows: row 2 \(-1\)"),
        ([0, 1, 0.5], r"no position of a class in 1 of 3 rows: row 2 \(0.5\)"),
        (["a", "b", "c"], "of type string"),
    ],
)
def test_labels_that_are_no_class(label: list[Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        measured(["macro_f1"], label, np.full((3, 3), 1 / 3))


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (pa.array([[0.5, 0.5], [0.5, None]]), r"missing or NaN in 1 of 2 rows: row 1 \(missing\)"),
        (pa.array([[0.5, 0.5], None]), "missing or NaN in 1 of 2 rows"),
        (pa.array([[0.5, 1.5], [0.5, 0.5]]), r"not a probability in 1 of 2 rows: row 0 \(1.5\)"),
        (pa.array([[0.5, 0.5], [0.5]]), "lists of 1 to 2 values"),
        (pa.array([0.5, 0.5]), "of type double, not a list of numbers"),
    ],
)
def test_scores_that_are_none(column: pa.Array, words: str) -> None:
    def judged() -> None:
        accumulator = MetricsAccumulator(EvaluationConfig("y", "p", metrics=["macro_f1"]))
        accumulator.add_batch(pa.record_batch({"label": pa.array([0, 1]), "candidate": column}))
        accumulator.result()

    with pytest.raises(InputError, match=words):
        judged()


def test_a_class_that_is_never_predicted_has_no_precision() -> None:
    ours = measured(["macro_precision", "macro_recall", "macro_f1"], [0, 1, 1], [[0.9, 0.1], [0.8, 0.2], [0.7, 0.3]])
    assert ours == {"macro_precision": 1 / 3, "macro_recall": 0.5, "macro_f1": 0.25}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"class_id": 1, "average": "macro"}, "needs one of the options class_id, average, top_k and kth"),
        ({"average": "mean"}, "average must be 'micro', 'macro' or 'weighted'"),
        ({"top_k": 0}, "top_k must be a number of classes"),
        ({"kth": True}, "kth must be a number of classes"),
        ({"class_id": -1}, "there is no class -1"),
    ],
)
def test_options_of_several_classes(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        EvaluationConfig("y", "p", metrics=[metric("precision", **options)])


def test_numbers_beyond_the_floats_are_classes_of_their_own() -> None:
    classes = [2**53, 2**53 + 1]
    ours = measured(["accuracy"], np.array(classes), [[0.9, 0.1], [0.1, 0.9]], task="multiclass", classes=classes)
    assert ours == {"accuracy": 1.0}


def test_a_class_beyond_the_scores_is_named() -> None:
    for exact_rows in (0, 1000):
        with pytest.raises(InputError, match="there is no class 5 of 2"):
            measured([metric("auc", class_id=5)], [0, 1], [[0.9, 0.1], [0.2, 0.8]], exact_rows=exact_rows)


def test_the_confusion_matrix_is_drawn() -> None:
    accumulator = MetricsAccumulator(EvaluationConfig("y", "p", metrics=["macro_f1"]))
    score = pa.array([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7]], pa.list_(pa.float64(), 2))
    accumulator.add_batch(pa.record_batch({"label": pa.array([0, 1, 1]), "candidate": score}))
    assert accumulator.result()["plots"] == {"candidate": {"confusion": [[1.0, 0.0], [1.0, 1.0]]}}


@pytest.mark.parametrize("weight", [1e-100, 1e-82, 1.0, 1e78, 1e100])
def test_correlations_do_not_depend_on_the_scale_of_weights(weight: float) -> None:
    rng = np.random.default_rng(6)
    label = rng.integers(0, 3, 400)
    called = np.where(rng.random(400) < 0.7, label, rng.integers(0, 3, 400))
    table = pa.table({"y": label, "p": (np.eye(3)[called] * 0.7 + 0.1).tolist(), "w": np.full(400, weight)})
    metrics = ["matthews_correlation", "cohen_kappa"]
    values = dt.evaluate(table, label="y", predictions="p", weight="w", task="multiclass", metrics=metrics).overall["p"]
    assert values["matthews_correlation"] == pytest.approx(sk.matthews_corrcoef(label, called))
    assert values["cohen_kappa"] == pytest.approx(sk.cohen_kappa_score(label, called))


def test_kappa_of_classes_that_weigh_next_to_nothing() -> None:
    """Chance and accuracy are next to 1 then, and their differences to 1 have hardly a digit left."""
    label, called = [0, 1, 1, 0, 2, 2, 1], [0, 1, 0, 1, 2, 1, 2]
    weight = [1.0, 1e-13, 2e-13, 3e-13, 5e-14, 1e-14, 7e-14]
    table = pa.table({"y": label, "p": (np.eye(3)[called] * 0.7 + 0.1).tolist(), "w": weight})
    values = dt.evaluate(
        table, label="y", predictions="p", weight="w", task="multiclass", metrics=["cohen_kappa"]
    ).overall["p"]
    exact = list(map(Fraction, weight))
    right = sum(w for w, a, b in zip(exact, label, called, strict=True) if a == b) / sum(exact)
    chance = sum(
        sum(w for w, a in zip(exact, label, strict=True) if a == each)
        * sum(w for w, b in zip(exact, called, strict=True) if b == each)
        for each in range(3)
    ) / Fraction(sum(exact) ** 2)
    assert values["cohen_kappa"] == pytest.approx(float((right - chance) / (1 - chance)), rel=1e-15)
