"""`engine.metrics`: metrics of the whole eval split that are no means over its batches, from sums taken on the device.

They have the names and definitions of the Evaluator's (docs/evaluation.md), which judges a model when it is trained;
these tell how it comes along, and what early stopping, `keep_best` and a Tuner go by.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from ...errors import InputError
from .model import Outputs

__all__ = [
    "SplitMetric",
    "accuracy",
    "auc",
    "average_precision",
    "balanced_accuracy",
    "f1",
    "macro_f1",
    "matthews_correlation",
    "precision",
    "r2",
    "recall",
    "rmse",
    "specificity",
    "top_k_accuracy",
]

Pairs = Callable[[Outputs, Mapping[str, jax.Array]], tuple[jax.Array, ...]]
"""Predictions and labels from outputs and batch; as a third array weights, [rows], where rows do not count alike."""
Sums = np.ndarray[Any, np.dtype[np.float64]]

_UNDEFINED: Final = (
    "a prediction is not between 0 and 1 (of logits take jax.nn.sigmoid), or all labels are of one class"
)
_BINS: Final = 2**14
"""Of scores, equally wide in their log-odds, so that rare classes whose scores are all near 0 are told apart."""
_ODDS: Final = 17.0  # the log-odds of the float32 next to 1; what is beyond falls into the outermost bins


_LEAST_VARIANCE: Final = 2.0**-20
"""Of the mean square: what is less may be what float32 has rounded off, of labels that are all equal too."""


@dataclass(frozen=True)
class SplitMetric:
    """A metric of all rows that are evaluated: a function of sums over its batches.

    Attributes:
        sums: Float32 [size], from outputs and batch; traced.
        value: The metric, from their sum over all batches; NaN where it has no value.
        size: How many sums.
        undefined: Why it may have no value, in words: noted the first time that it has none.
    """

    sums: Callable[[Outputs, Mapping[str, jax.Array]], jax.Array]
    value: Callable[[Sums], float]
    size: int
    undefined: str = ""

    def __call__(self, outputs: Outputs, batch: Mapping[str, jax.Array]) -> jax.Array:
        """The sums of a batch.

        Raises:
            InputError: There are not as many as `size` says.
        """
        sums = self.sums(outputs, batch)
        if jnp.shape(sums) != (self.size,):
            raise InputError(f"sums of shape {list(jnp.shape(sums))}, where size is {self.size}", fix="let them agree")
        return jnp.asarray(sums, jnp.float32)


def auc(pairs: Pairs) -> SplitMetric:
    """The area under the ROC curve.

    Args:
        pairs: (probabilities [rows], labels [rows] of 0 and 1), and perhaps weights. Those whose log-odds are less than
            0.002 apart may count as equal.
    """

    def value(sums: Sums) -> float:
        negatives, positives = sums.reshape(2, _BINS)
        below = np.cumsum(negatives) - negatives / 2
        return _ratio(float(positives @ below), float(positives.sum() * negatives.sum()))

    return SplitMetric(partial(_histograms, pairs), value, 2 * _BINS, _UNDEFINED)


def average_precision(pairs: Pairs) -> SplitMetric:
    """Precision averaged over recall: sum of (R_i - R_(i-1)) P_i over thresholds; arguments as of `auc`."""

    def value(sums: Sums) -> float:
        negatives, positives = sums.reshape(2, _BINS)[:, ::-1]  # the highest scores first
        hits, calls = np.cumsum(positives), np.cumsum(positives + negatives)
        precisions = np.divide(hits, calls, out=np.zeros_like(hits), where=calls != 0)
        return _ratio(float(positives @ precisions), float(positives.sum()))

    return SplitMetric(partial(_histograms, pairs), value, 2 * _BINS, _UNDEFINED)


def accuracy(pairs: Pairs, threshold: float = 0.5) -> SplitMetric:
    """The share of rows whose prediction is above `threshold` where the label is 1, and not where it is 0.

    Args:
        pairs: (predictions [rows], labels [rows] of 0 and 1), and perhaps weights.
        threshold: A prediction strictly above it counts as positive.
    """
    return _confusion(pairs, threshold, lambda tp, fp, fn, tn: (tp + tn, tp + fp + fn + tn))


def precision(pairs: Pairs, threshold: float = 0.5) -> SplitMetric:
    """TP / (TP + FP); arguments as of `accuracy`."""
    return _confusion(pairs, threshold, lambda tp, fp, fn, tn: (tp, tp + fp))


def recall(pairs: Pairs, threshold: float = 0.5) -> SplitMetric:
    """TP / (TP + FN); arguments as of `accuracy`."""
    return _confusion(pairs, threshold, lambda tp, fp, fn, tn: (tp, tp + fn))


def specificity(pairs: Pairs, threshold: float = 0.5) -> SplitMetric:
    """TN / (TN + FP); arguments as of `accuracy`."""
    return _confusion(pairs, threshold, lambda tp, fp, fn, tn: (tn, tn + fp))


def f1(pairs: Pairs, threshold: float = 0.5) -> SplitMetric:
    """2 TP / (2 TP + FP + FN); arguments as of `accuracy`."""
    return _confusion(pairs, threshold, lambda tp, fp, fn, tn: (2 * tp, 2 * tp + fp + fn))


def balanced_accuracy(pairs: Pairs, threshold: float = 0.5) -> SplitMetric:
    """The mean of recall and specificity; arguments as of `accuracy`."""
    return _confusion(
        pairs, threshold, lambda tp, fp, fn, tn: (tp * (tn + fp) + tn * (tp + fn), 2 * (tp + fn) * (tn + fp))
    )


def matthews_correlation(pairs: Pairs, threshold: float = 0.5) -> SplitMetric:
    """(TP TN - FP FN) / sqrt((TP + FP) (TP + FN) (TN + FP) (TN + FN)); arguments as of `accuracy`."""
    return _confusion(
        pairs,
        threshold,
        lambda tp, fp, fn, tn: (tp * tn - fp * fn, float(np.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn)))),
    )


def top_k_accuracy(pairs: Pairs, k: int = 1) -> SplitMetric:
    """The share of rows whose label is among the k classes of the highest scores.

    Args:
        pairs: (scores [rows, classes], labels [rows], whole numbers from 0), and perhaps weights.
        k: How many. Of equal scores the earlier class is the higher.

    Raises:
        InputError: k is below 1.
    """
    if k < 1:
        raise InputError(f"k is {k}", fix="use 1 or more")

    def sums(outputs: Outputs, batch: Mapping[str, jax.Array]) -> jax.Array:
        scores, labels, weights = _rows(pairs, outputs, batch, dimensions=2)
        top = jax.lax.top_k(scores, min(k, scores.shape[1]))[1]
        hits = (top == labels.astype(jnp.int32)[:, None]).any(axis=1)
        return jnp.stack([jnp.sum(weights * hits), jnp.sum(weights)])

    return SplitMetric(sums, lambda sums: _ratio(*sums.tolist()), 2)


def macro_f1(pairs: Pairs, classes: int) -> SplitMetric:
    """The mean of the classes' F1, a row's class being that of its highest score.

    Args:
        pairs: (scores [rows, classes], labels [rows], whole numbers from 0), and perhaps weights.
        classes: How many there are. One that is neither a label nor predicted does not count.
    """

    def sums(outputs: Outputs, batch: Mapping[str, jax.Array]) -> jax.Array:
        scores, labels, weights = _rows(pairs, outputs, batch, dimensions=2)
        actual = jax.nn.one_hot(labels.astype(jnp.int32), classes)
        called = jax.nn.one_hot(scores.argmax(axis=1), classes)
        return jnp.concatenate([weights @ (actual * called), weights @ (actual + called)])

    def value(sums: Sums) -> float:
        hits, either = sums.reshape(2, classes)
        there = either > 0
        return _ratio(float((2 * hits[there] / either[there]).sum()), float(there.sum()))

    return SplitMetric(sums, value, 2 * classes)


def rmse(pairs: Pairs) -> SplitMetric:
    """The root of the mean squared error of (predictions [rows], labels [rows]), and perhaps weights."""

    def sums(outputs: Outputs, batch: Mapping[str, jax.Array]) -> jax.Array:
        predictions, labels, weights = _rows(pairs, outputs, batch)
        return jnp.stack([jnp.sum(weights * (predictions - labels) ** 2), jnp.sum(weights)])

    return SplitMetric(sums, lambda sums: float(np.sqrt(_ratio(*sums.tolist()))), 2)


def r2(pairs: Pairs, center: float = 0.0) -> SplitMetric:
    """1 - mean squared error / variance of the labels.

    Args:
        pairs: (predictions [rows], labels [rows]), and perhaps weights.
        center: A number near the mean of the labels. Sums are of float32: labels of a large mean and a small variance
            need it, or the metric is NaN.
    """

    def sums(outputs: Outputs, batch: Mapping[str, jax.Array]) -> jax.Array:
        predictions, labels, weights = _rows(pairs, outputs, batch)
        centered = labels - center
        terms = ((predictions - labels) ** 2, centered, centered**2, jnp.ones_like(labels))
        return jnp.stack([jnp.sum(weights * term) for term in terms])

    def value(sums: Sums) -> float:
        errors, total, squares, rows = sums.tolist()
        variance = squares - total * total / rows if rows else 0.0
        return 1 - _ratio(errors, 0.0 if variance < _LEAST_VARIANCE * squares else variance)

    reason = "a prediction is NaN, or the labels differ too little beside their mean (center=… takes that off)"
    return SplitMetric(sums, value, 4, reason)


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else float("nan")


def _confusion(
    pairs: Pairs, threshold: float, ratio: Callable[[float, float, float, float], tuple[float, float]]
) -> SplitMetric:
    """A quotient of true positives, false positives, false negatives and true negatives at a threshold."""

    def sums(outputs: Outputs, batch: Mapping[str, jax.Array]) -> jax.Array:
        predictions, labels, weights = _rows(pairs, outputs, batch)
        called, actual = predictions > threshold, labels > 0.5
        cells = (called & actual, called & ~actual, ~called & actual, ~called & ~actual)
        return jnp.stack([jnp.sum(weights * cell) for cell in cells])

    def value(sums: Sums) -> float:
        # XLA may count a row in its cell alone, and the quotient may be of other cells.
        return float("nan") if np.isnan(sums).any() else _ratio(*ratio(*sums.tolist()))

    return SplitMetric(sums, value, 4)


def _histograms(pairs: Pairs, outputs: Outputs, batch: Mapping[str, jax.Array]) -> jax.Array:
    """The weights of negatives and of positives by score, [2 * bins]; NaN where one is no probability."""
    scores, labels, weights = _rows(pairs, outputs, batch)
    odds = jnp.log(scores) - jnp.log1p(-scores)
    bins = jnp.clip((odds + _ODDS) * (_BINS / (2 * _ODDS)), 0, _BINS - 1).astype(jnp.int32)
    weights = jnp.where((scores >= 0) & (scores <= 1), weights, jnp.nan)
    return jnp.zeros(2 * _BINS).at[bins + _BINS * (labels > 0.5)].add(weights)


def _rows(
    pairs: Pairs, outputs: Outputs, batch: Mapping[str, jax.Array], dimensions: int = 1
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Predictions, labels and weights, float32; where one of a row that counts is NaN, so is its weight.

    So NaN is no negative, and no class. Of a row of weight 0, as padding has it, predictions and labels are 0.

    Raises:
        InputError: They are not two or three arrays of as many rows, or predictions of other dimensions.
    """
    arrays: Any = pairs(outputs, batch)  # the user's: anything
    wanted = "predictions [rows], labels [rows]" if dimensions == 1 else "scores [rows, classes], labels [rows]"
    if not isinstance(arrays, tuple) or len(arrays) not in (2, 3):
        count = len(arrays) if isinstance(arrays, tuple) else "no tuple of"
        raise InputError(f"the function of a metric gives {count} arrays", fix=f"return ({wanted})")
    predictions, labels, *weights = (jnp.asarray(array, jnp.float32) for array in arrays)
    shapes = [predictions.shape[:1] if predictions.ndim == dimensions else None, labels.shape]
    shapes += [each.shape for each in weights]
    if labels.ndim != 1 or any(shape != labels.shape for shape in shapes):
        shown = ", ".join(str(list(jnp.shape(array))) for array in arrays)
        raise InputError(f"the function of a metric gives arrays of shape {shown}", fix=f"return ({wanted})")
    weight = weights[0] if weights else jnp.ones_like(labels)
    unknown = jnp.isnan(labels) | jnp.isnan(predictions).any(axis=tuple(range(1, dimensions)))
    counts = weight != 0
    rows = jnp.expand_dims(counts, tuple(range(1, dimensions)))
    predictions = jnp.where(rows & (predictions != 0), predictions, 0.0)  # -0.0 too, which top_k takes for less than 0
    return predictions, jnp.where(counts, labels, 0.0), jnp.where(counts & unknown, jnp.nan, weight)
