"""The metrics: each a function from a slice's tally to a number, or to the reason why there is none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from .tally import Tally

Result = float | str
"""A metric's value, or the reason why it is undefined."""

NO_ROWS = "no examples with any weight"
ONE_CLASS = "only one class among the labels"


@dataclass(frozen=True)
class Metric:
    """One metric.

    Attributes:
        title: Its name for people.
        direction: Which way is better; None: neither.
        compute: Its value for a slice.
        default: Whether it is measured and shown where a configuration names no metrics.
        bar: Whether reports draw it as a bar; only for values from 0 to 1.
    """

    title: str
    direction: Literal["higher", "lower"] | None
    compute: Callable[[Tally], Result]
    default: bool = True
    bar: bool = False

    @property
    def inline(self) -> str:
        """The title inside a sentence."""
        return self.title if self.title.isupper() else self.title.lower()


def example_count(tally: Tally) -> Result:
    """Rows in the slice; weights do not enter."""
    return float(tally.rows)


def weighted_example_count(tally: Tally) -> Result:
    """Σw."""
    return tally.weight


def auc(tally: Tally) -> Result:
    """Area under the ROC curve: the chance that a positive scores above a negative, a tie counting half.

    That is the Mann-Whitney statistic divided by the number of pairs (Hanley and McNeil 1982), exact over the
    distinct scores.
    """
    if not _both_classes(tally):
        return ONE_CLASS if tally.rows else NO_ROWS
    below = np.cumsum(tally.negatives) - tally.negatives
    pairs = float(np.sum(tally.positives * (below + 0.5 * tally.negatives)))  # no BLAS: its order of adding varies
    return pairs / float(tally.positives.sum()) / float(tally.negatives.sum())


def auc_error(tally: Tally) -> float:
    """The most by which a histogram's AUC can differ from the exact one: half the pairs that share a bin."""
    if tally.exact or not _both_classes(tally):
        return 0.0
    shared = float(np.sum(tally.positives * tally.negatives))
    return 0.5 * shared / float(tally.positives.sum()) / float(tally.negatives.sum())


def pr_auc(tally: Tally) -> Result:
    """Area under the precision-recall curve, interpolated after Davis and Goadrich 2006 as Keras and TFMA do.

    Between two neighbouring thresholds, false positives grow linearly with true positives.
    """
    if not _both_classes(tally):
        return ONE_CLASS if tally.rows else NO_ROWS
    hits = _from_above(tally.positives)
    called = hits + _from_above(tally.negatives)
    step, width = hits[:-1] - hits[1:], called[:-1] - called[1:]
    slope = np.divide(step, width, out=np.zeros_like(step), where=width > 0)
    intercept = hits[1:] - slope * called[1:]
    ratio = np.divide(called[:-1], called[1:], out=np.ones_like(step), where=(called[1:] > 0) & (called[:-1] > 0))
    return float(np.sum(slope * (step + intercept * np.log(ratio)))) / float(hits[0])


def accuracy(tally: Tally) -> Result:
    """(TP + TN) / all, a prediction above the threshold counting as positive."""
    right = tally.true_positives + (tally.negative_weight - tally.false_positives)
    return right / (tally.positive_weight + tally.negative_weight) if tally.weight else NO_ROWS


def precision(tally: Tally) -> Result:
    """TP / (TP + FP)."""
    called = tally.true_positives + tally.false_positives
    return tally.true_positives / called if called else "nothing predicted positive"


def recall(tally: Tally) -> Result:
    """TP / (TP + FN)."""
    return tally.true_positives / tally.positive_weight if tally.positive_weight else "no positive labels"


def log_loss(tally: Tally) -> Result:
    """−Σw(y·ln p + (1−y)·ln(1−p)) / Σw in nats, p clipped to [1e-7, 1 − 1e-7] as Keras does."""
    return tally.weighted_loss / tally.weight if tally.weight else NO_ROWS


def calibration(tally: Tally) -> Result:
    """Σw·p / Σw·y: above 1 the model promises too much."""
    return tally.weighted_prediction / tally.weighted_label if tally.weighted_label else "no positive labels"


def mean_label(tally: Tally) -> Result:
    """Σw·y / Σw."""
    return tally.weighted_label / tally.weight if tally.weight else NO_ROWS


def mean_prediction(tally: Tally) -> Result:
    """Σw·p / Σw."""
    return tally.weighted_prediction / tally.weight if tally.weight else NO_ROWS


METRICS: Mapping[str, Metric] = {
    "example_count": Metric("Examples", None, example_count),
    "weighted_example_count": Metric("Weight", None, weighted_example_count, default=False),
    "auc": Metric("AUC", "higher", auc, bar=True),
    "pr_auc": Metric("PR-AUC", "higher", pr_auc, bar=True),
    "accuracy": Metric("Accuracy", "higher", accuracy, bar=True),
    "precision": Metric("Precision", "higher", precision, bar=True),
    "recall": Metric("Recall", "higher", recall, bar=True),
    "log_loss": Metric("Log-loss", "lower", log_loss),
    "calibration": Metric("Calibration", None, calibration),
    "mean_label": Metric("Mean label", None, mean_label),
    "mean_prediction": Metric("Mean prediction", None, mean_prediction),
}
"""Every metric by name, in the order in which they are shown."""

COUNTS = ("example_count", "weighted_example_count")
"""Metrics that say how much was measured, not how good it is."""

DEFAULT_METRICS = tuple(name for name, metric in METRICS.items() if metric.default)


def _both_classes(tally: Tally) -> bool:
    return bool(tally.positive_weight) and bool(tally.negative_weight)


def _from_above(mass: np.ndarray) -> np.ndarray:
    """What lies at or above each score, and last, above all: 0."""
    return np.concatenate([np.cumsum(mass[::-1])[::-1], [0.0]])
