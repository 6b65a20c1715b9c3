"""`engine.metrics`: sums over batches, against scikit-learn on all rows at once."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pyarrow as pa
import pytest
from drivetrain.engine import EarlyStopping, Model, TrainingRun, metrics
from drivetrain.engine.graphs.graph import FieldSpec
from drivetrain.errors import InputError

pytestmark = pytest.mark.engine

ROWS, BATCH, CLASSES = 1200, 200, 5


def pairs(outputs: Any, batch: Any) -> tuple[Any, ...]:
    return outputs, batch["label"]


def weighted(outputs: Any, batch: Any) -> tuple[Any, ...]:
    return outputs, batch["label"], batch["weight"]


@cache
def metric_of(name: str, columns: Callable[..., Any]) -> metrics.SplitMetric:
    """The same object for each test, and so one program."""
    metric: metrics.SplitMetric = getattr(metrics, name)(columns)
    return metric


def over_batches(metric: metrics.SplitMetric, outputs: Any, **columns: Any) -> float:
    """As an evaluation takes it: sums of batches, added up, and a number of that."""
    sums = jax.jit(metric)
    total = np.zeros(metric.size)
    for start in range(0, len(outputs), BATCH):
        batch = {name: column[start : start + BATCH] for name, column in columns.items()}
        total += np.asarray(sums(outputs[start : start + BATCH], batch))
    return metric.value(total)


BINARY: dict[str, Callable[..., Any]] = {
    "auc": lambda learn, y, p, w: learn.roc_auc_score(y, p, sample_weight=w),
    "average_precision": lambda learn, y, p, w: learn.average_precision_score(y, p, sample_weight=w),
    "accuracy": lambda learn, y, p, w: learn.accuracy_score(y, p > 0.5, sample_weight=w),
    "precision": lambda learn, y, p, w: learn.precision_score(y, p > 0.5, sample_weight=w),
    "recall": lambda learn, y, p, w: learn.recall_score(y, p > 0.5, sample_weight=w),
    "specificity": lambda learn, y, p, w: learn.recall_score(y, p > 0.5, sample_weight=w, pos_label=0),
    "f1": lambda learn, y, p, w: learn.f1_score(y, p > 0.5, sample_weight=w),
    "balanced_accuracy": lambda learn, y, p, w: learn.balanced_accuracy_score(y, p > 0.5, sample_weight=w),
    "matthews_correlation": lambda learn, y, p, w: learn.matthews_corrcoef(y, p > 0.5, sample_weight=w),
}


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("rate", [0.4, 0.02])
def test_yes_or_no(name: str, rate: float) -> None:
    learn = pytest.importorskip("sklearn.metrics")
    random = np.random.default_rng(0)
    labels = (random.random(ROWS) < rate).astype(np.float32)
    odds = np.log(rate / (1 - rate)) + random.normal(size=ROWS) * 2 + 2 * labels
    scores = (1 / (1 + np.exp(-odds))).astype(np.float32)
    weights = random.integers(0, 4, ROWS).astype(np.float32)
    tolerance = 3e-4 if name in ("auc", "average_precision") else 1e-6
    plain = over_batches(metric_of(name, pairs), scores, label=labels)
    assert plain == pytest.approx(BINARY[name](learn, labels, scores, None), abs=tolerance)
    of_weights = over_batches(metric_of(name, weighted), scores, label=labels, weight=weights)
    assert of_weights == pytest.approx(BINARY[name](learn, labels, scores, weights), abs=tolerance)


def test_scores_that_are_certain_and_equal() -> None:
    learn = pytest.importorskip("sklearn.metrics")
    scores = np.array([0, 0, 0.3, 0.3, 1, 1], np.float32)
    labels = np.array([0, 1, 0, 1, 0, 1], np.float32)
    assert over_batches(metric_of("auc", pairs), scores, label=labels) == learn.roc_auc_score(labels, scores)
    assert over_batches(metric_of("average_precision", pairs), scores, label=labels) == pytest.approx(0.5)


def test_classes() -> None:
    learn = pytest.importorskip("sklearn.metrics")
    random = np.random.default_rng(1)
    labels = random.integers(0, CLASSES - 1, ROWS)  # the last class has no label
    scores = (random.normal(size=(ROWS, CLASSES)) + 2 * np.eye(CLASSES)[labels]).astype(np.float32)
    weights = random.random(ROWS).astype(np.float32)
    for k in (1, 2):
        value = over_batches(metrics.top_k_accuracy(weighted, k), scores, label=labels, weight=weights)
        oracle = learn.top_k_accuracy_score(labels, scores, k=k, sample_weight=weights, labels=range(CLASSES))
        assert value == pytest.approx(oracle, rel=1e-5)
    value = over_batches(metrics.macro_f1(weighted, CLASSES), scores, label=labels, weight=weights)
    oracle = learn.f1_score(labels, scores.argmax(1), average="macro", sample_weight=weights)
    assert value == pytest.approx(oracle, rel=1e-5)


def test_numbers() -> None:
    learn = pytest.importorskip("sklearn.metrics")
    random = np.random.default_rng(2)
    labels = (5000 + random.normal(size=ROWS)).astype(np.float32)
    outputs = (labels + random.normal(size=ROWS) / 2).astype(np.float32)
    weights = random.random(ROWS).astype(np.float32)
    value = over_batches(metrics.rmse(weighted), outputs, label=labels, weight=weights)
    assert value == pytest.approx(learn.root_mean_squared_error(labels, outputs, sample_weight=weights), rel=1e-4)
    value = over_batches(metrics.r2(weighted, center=5000), outputs, label=labels, weight=weights)
    assert value == pytest.approx(learn.r2_score(labels, outputs, sample_weight=weights), rel=1e-4)


def test_what_is_rounded_off_is_no_variance() -> None:
    """R² of it would be any number, the best of all perhaps."""
    random = np.random.default_rng(4)
    for labels in (np.full(ROWS, 0.1), 1e4 + random.normal(size=ROWS)):
        outputs = (labels + random.normal(size=ROWS)).astype(np.float32)
        weights = random.random(ROWS).astype(np.float32)
        value = over_batches(metrics.r2(weighted), outputs, label=labels.astype(np.float32), weight=weights)
        assert np.isnan(value)


def test_without_a_value_it_is_nan() -> None:
    none = np.zeros(4, np.float32)
    assert np.isnan(over_batches(metric_of("auc", pairs), none + 0.5, label=none))
    assert np.isnan(over_batches(metric_of("precision", pairs), none, label=none))
    assert np.isnan(over_batches(metrics.r2(pairs), none, label=none))
    assert np.isnan(over_batches(metric_of("auc", pairs), np.array([-2, 3, 0.5, 1]), label=np.array([0, 1, 0, 1])))


EACH: dict[str, Callable[..., metrics.SplitMetric]] = {
    **{name: getattr(metrics, name) for name in (*BINARY, "rmse", "r2")},
    "top_k_accuracy": metrics.top_k_accuracy,
    "macro_f1": lambda pairs: metrics.macro_f1(pairs, 2),
}


@pytest.mark.parametrize("name", EACH)
def test_of_nan_it_is_nan_unless_the_row_counts_nothing(name: str) -> None:
    """A model that gives NaN has no accuracy; rows of weight 0 are padding, which may hold anything."""
    scores, labels = np.array([0.2, 0.9, 0.8, 0.4], np.float32), np.array([0, 1, 0, 1], np.float32)
    outputs = np.stack([1 - scores, scores], -1) if name in ("top_k_accuracy", "macro_f1") else scores
    broken, unknown = (np.concatenate([array, np.full_like(array[:1], np.nan)]) for array in (outputs, labels))
    known, counted = np.append(labels, np.float32(0)), np.ones(5, np.float32)
    none = np.append(np.ones(4, np.float32), np.float32(0))
    metric = EACH[name](weighted)
    assert np.isnan(over_batches(metric, broken, label=known, weight=counted))
    assert np.isnan(over_batches(metric, np.nan_to_num(broken), label=unknown, weight=counted))
    expected = over_batches(metric, outputs, label=labels, weight=counted[:4])
    assert np.isfinite(expected)
    assert over_batches(metric, broken, label=unknown, weight=none) == expected


def test_of_equal_scores_the_earlier_class_is_the_higher() -> None:
    """Zeros of either sign are equal, as they are to NumPy."""
    scores = np.array([[-0.0, 0.0], [0.0, -0.0]], np.float32)
    assert over_batches(metrics.top_k_accuracy(pairs), scores, label=np.zeros(2)) == 1


@pytest.mark.parametrize(
    ("results", "message"),
    [
        (lambda scores, label: scores, r"gives no tuple of arrays\n.*return \(predictions \[rows\], labels \[rows\]\)"),
        (lambda scores, label: (scores,), r"gives 1 arrays\n"),
        (lambda scores, label: (scores[:, None], label), r"arrays of shape \[4, 1\], \[4\]\n"),
        (lambda scores, label: (scores, label, label[:2]), r"arrays of shape \[4\], \[4\], \[2\]\n"),
    ],
)
def test_what_is_no_pair_is_named(results: Callable[..., Any], message: str) -> None:
    metric = metrics.auc(lambda outputs, batch: results(outputs, batch["label"]))
    with pytest.raises(InputError, match=message):
        metric(jnp.zeros(4), {"label": jnp.zeros(4)})
    with pytest.raises(InputError, match="k is 0"):
        metrics.top_k_accuracy(pairs, 0)
    with pytest.raises(InputError, match=r"sums of shape \[4\], where size is 3"):
        metrics.SplitMetric(lambda outputs, batch: outputs, sum, 3)(jnp.zeros(4), {})


def test_a_training_goes_by_the_metric_of_the_whole_split(tmp_path: Path, problem: ModuleType) -> None:
    learn = pytest.importorskip("sklearn.metrics")
    random = np.random.default_rng(3)
    x = random.normal(size=ROWS).astype(np.float32)
    table = pa.table({"x": x, "label": (x + random.normal(size=ROWS) > 1.5).astype(np.float32)})
    content = problem.write(tmp_path, {"train": table, "eval": table[:ROWS]})
    notes: list[str] = []
    specs = {name: FieldSpec("float32") for name in ("x", "label")}
    run = TrainingRun(specs, content, epochs=3, batch_size=BATCH, note=notes.append)
    trained = run.fit(
        Model(lambda key: jnp.full(2, -0.5), lambda params, features: params[0] * features["x"] + params[1]),
        loss=lambda logits, batch: optax.sigmoid_binary_cross_entropy(logits, batch["label"]).mean(),
        predict=lambda logits: {"probability": jax.nn.sigmoid(logits)},
        optimizer=optax.sgd(0.5),
        label="label",
        metrics={
            "auc": metrics.auc(lambda logits, batch: (jax.nn.sigmoid(logits), batch["label"])),
            "positive": lambda logits, batch: jnp.mean(logits > 0),
            "recall": metrics.recall(pairs, threshold=0.0),
            "of equal labels": metrics.r2(lambda logits, batch: (logits, jnp.ones_like(logits))),
            "of logits": metrics.auc(pairs),
        },
        keep_best=("auc", "max"),
        callbacks=[EarlyStopping("recall", mode="max", patience=5)],
    )
    logits = trained.params[0] * x + trained.params[1]
    record = trained.history[(trained.kept_epoch or 0) - 1]
    assert record.metrics["auc"] == pytest.approx(learn.roc_auc_score(table["label"], logits), abs=2e-4)
    assert record.metrics["positive"] == pytest.approx(np.mean(logits > 0), abs=1e-6)
    assert record.metrics["recall"] == pytest.approx(learn.recall_score(table["label"], logits > 0), abs=1e-6)
    assert len({epoch.metrics["auc"] for epoch in trained.history}) > 1
    assert all(np.isnan(epoch.metrics["of logits"]) for epoch in trained.history)
    equal, wrong = (note for note in notes if "has no value" in note)
    assert equal.startswith("of equal labels has no value: a prediction is NaN, or the labels differ too little")
    assert wrong.startswith("of logits has no value: a prediction is not between 0 and 1 (of logits take jax.nn.sigm")
