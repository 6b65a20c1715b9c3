"""Metrics of several labels against scikit-learn, with weights."""

from __future__ import annotations

import warnings

import numpy as np
import pyarrow as pa
import pytest
from drivetrain import InputError, evaluate
from drivetrain.components.evaluation import metric
from drivetrain.components.evaluation.multilabel import MULTILABEL_METRICS
from evaluating import measured  # type: ignore[import-not-found]  # conftest puts this folder on the path
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sk


@settings(deadline=None, max_examples=25)
@given(
    seed=st.integers(0, 10_000),
    rows=st.integers(1, 40),
    labels=st.integers(2, 5),
    exact_rows=st.sampled_from([0, 1000]),
)
def test_equal_to_scikit_learn(seed: int, rows: int, labels: int, exact_rows: int) -> None:
    rng = np.random.default_rng(seed)
    score = np.round(rng.random((rows, labels)), 1)
    label = (rng.random((rows, labels)) < score).astype(float)
    weight = rng.choice([0.5, 1.0, 3.0], rows)
    called = score > 0.5
    ours = measured(
        [*MULTILABEL_METRICS, metric("precision", average="micro", name="precision"),
         metric("recall", class_id=1, name="recall1")],
        label, score, weight, exact_rows=exact_rows, parts=3,
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn warns of labels that never hold
        expected = {
            "exact_match": sk.accuracy_score(label, called, sample_weight=weight),
            "hamming_loss": sk.hamming_loss(label, called, sample_weight=weight),
            "jaccard": sk.jaccard_score(label, called, average="samples", zero_division=1.0, sample_weight=weight),
            "micro_f1": sk.f1_score(label, called, average="micro", sample_weight=weight, zero_division=np.nan),
            "macro_f1": sk.f1_score(label, called, average="macro", sample_weight=weight, zero_division=np.nan),
            "precision": sk.precision_score(label, called, average="micro", sample_weight=weight, zero_division=np.nan),
            "recall1": sk.recall_score(label[:, 1], called[:, 1], sample_weight=weight, zero_division=np.nan),
        }
    for name, value in expected.items():
        assert np.isnan(value) if isinstance(ours[name], str) else ours[name] == pytest.approx(value, rel=1e-9), name


def test_labels_are_0_or_1_and_as_many_as_scores() -> None:
    with pytest.raises(InputError, match=r"neither 0 nor 1 in 1 of 2 rows: row 1 \(2\)"):
        measured(["jaccard"], [[0.0, 1.0], [2.0, 1.0]], [[0.5, 0.5], [0.5, 0.5]])
    with pytest.raises(InputError, match="2 scores in a row, and the label 'y' 3 values"):
        measured(["jaccard"], [[0.0, 1.0, 1.0]], [[0.5, 0.5]])
    empty = pa.array([[], []], pa.list_(pa.float64()))
    with pytest.raises(InputError, match="label 'y' has lists of no values"):
        evaluate({"y": empty, "p": empty}, label="y", predictions="p", task="multilabel")
