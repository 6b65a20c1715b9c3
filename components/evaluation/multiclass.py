"""Metrics of one class out of several: of the class with the highest score, of the top k, and losses.

Of classes with the same score the first counts as higher.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np

from ...errors import InputError
from .binary import CLIP
from .classes import average
from .definitions import NO_ROWS, Definition, Metric, Result, mean, ratio
from .rows import Floats, SliceRows
from .states import Leaves, MetricState, Sums, Term


@dataclass(frozen=True)
class ConfusionMatrix(MetricState):
    """Σw by label and predicted class, (k, k). With weights, float sums in the order of the merge tree."""

    def init(self) -> Leaves:
        """No rows; the matrix comes with the first."""
        return {}

    def add(self, leaves: Leaves, rows: SliceRows) -> Leaves:
        """Add the weights of these rows by label and predicted class."""
        return self.merge(leaves, {"matrix": self.exact(rows)})

    def merge(self, left: Leaves, right: Leaves) -> Leaves:
        """The rows of both."""
        if not left or not right:
            return left or right
        return {"matrix": left["matrix"] + right["matrix"]}

    def finish(self, leaves: Leaves) -> Floats:
        """Σw by label and predicted class, float64 (k, k); (1, 1) zeros for no rows."""
        matrix: Floats = leaves.get("matrix", np.zeros((1, 1)))
        return matrix

    def exact(self, rows: SliceRows) -> Floats:
        """As `finish`, from all rows at once; of equal scores the first class is predicted."""
        classes = rows.prediction.shape[1]
        cells = rows.label * classes + rows.prediction.argmax(axis=1)
        matrix: Floats = np.bincount(cells, rows.weight, minlength=classes**2).astype(np.float64)
        return matrix.reshape(classes, classes)


@dataclass(frozen=True)
class TopHits(Sums):
    """Σw, and Σw of the rows whose label is among the k highest scores."""

    k: int
    names: ClassVar[tuple[str, ...]] = ("weight", "hits")

    def terms(self, rows: SliceRows) -> Iterator[Term]:
        """Each row's weight; a hit where fewer than k classes score higher than the label's."""
        score = np.take_along_axis(rows.prediction, rows.label[:, None], axis=1)
        earlier = np.arange(rows.prediction.shape[1]) < rows.label[:, None]
        ahead = (rows.prediction > score) | ((rows.prediction == score) & earlier)
        yield Term("weight")
        yield Term("hits", of=ahead.sum(axis=1) < self.k)


@dataclass(frozen=True)
class ClassLosses(Sums):
    """Σw, −Σw·ln p of the label's class, and Σw·Σ(p − y)² over classes."""

    names: ClassVar[tuple[str, ...]] = ("weight", "log_loss", "brier")

    def terms(self, rows: SliceRows) -> Iterator[Term]:
        """Each row's weight and weighted losses, scores clipped for the logarithm."""
        score = np.take_along_axis(rows.prediction, rows.label[:, None], axis=1)[:, 0]
        yield Term("weight")
        yield Term("log_loss", rows.weight * -np.log(np.clip(score, CLIP, 1 - CLIP)))
        # Of the label's class (1 - p)², of the others p².
        yield Term("brier", rows.weight * ((rows.prediction**2).sum(axis=1) - score**2 + (1 - score) ** 2))


def accuracy() -> Metric:
    """Σw of the rows whose highest score is the label's / Σw."""
    return Metric(
        "Accuracy",
        "higher",
        ConfusionMatrix(),
        lambda matrix: ratio(float(np.trace(matrix)), float(matrix.sum()), NO_ROWS),
        bar=True,
    )


def top_k_accuracy(*, k: Any = 5) -> Metric:
    """Σw of the rows whose label is among the k highest scores / Σw."""
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise InputError(f"k must be a number of classes, not {k!r}")
    return Metric("Top-k accuracy", "higher", TopHits(k), lambda sums: mean(sums, "hits"), bar=True)


def log_loss() -> Metric:
    """−Σw·ln p / Σw in nats, p being the label's score clipped to [1e-7, 1 − 1e-7]: categorical cross-entropy."""
    return Metric("Log-loss", "lower", ClassLosses(), lambda sums: mean(sums, "log_loss"))


def brier_score() -> Metric:
    """Σw·Σ(p − y)² / Σw, the inner sum over classes (Brier 1950): from 0 to 2."""
    return Metric("Brier score", "lower", ClassLosses(), lambda sums: mean(sums, "brier"))


def balanced_accuracy() -> Metric:
    """The mean recall of the classes that occur among the labels."""
    return _averaged("Balanced accuracy", _recalls, weighted=False)


def matthews_correlation() -> Metric:
    """Matthews' correlation for several classes, R_K (Gorodkin 2004)."""

    def result(matrix: Floats) -> Result:
        if not matrix.any():
            return NO_ROWS
        shares = matrix / matrix.sum()
        labels, called = shares.sum(axis=1), shares.sum(axis=0)
        above = float(np.trace(shares)) - float(np.sum(labels * called))
        # 1 − Σ called², as a sum that vanishes exactly where there is one class.
        apart = [float(np.sum(each * (1 - each))) if np.count_nonzero(each) > 1 else 0.0 for each in (called, labels)]
        return ratio(above, math.sqrt(apart[0] * apart[1]), "only one class among the labels or the predictions")

    return Metric("Matthews correlation", "higher", ConfusionMatrix(), result)


def cohen_kappa() -> Metric:
    """(accuracy − chance) / (1 − chance), where chance is how often label and prediction agree by their rates."""

    def result(matrix: Floats) -> Result:
        labels, called = np.nonzero(matrix)
        if not len(labels):
            return NO_ROWS
        if not np.isfinite(matrix).all():
            return math.nan
        # Multiplied out by the square of the weight, in whole numbers: of numbers near 1, as chance is beside a class
        # that is nearly all, the differences have hardly a digit left.
        by_label, by_class, right = [0] * len(matrix), [0] * len(matrix), 0
        for label, each, weight in zip(labels.tolist(), called.tolist(), _whole(matrix[labels, called]), strict=True):
            by_label[label] += weight
            by_class[each] += weight
            right += weight if label == each else 0
        total = sum(by_label)
        chance = sum(map(operator.mul, by_label, by_class))
        if total**2 == chance:
            return "labels and predictions are all of one class"
        beyond_chance: float = (total * right - chance) / (total**2 - chance)  # of integers of any size
        return beyond_chance

    return Metric("Cohen's kappa", "higher", ConfusionMatrix(), result)


def _whole(values: Floats) -> list[int]:
    """Finite numbers as multiples of one unit, exactly."""
    mantissas, exponents = np.frexp(values)
    whole = np.ldexp(mantissas, 53).astype(np.int64).tolist()
    return [each << shift for each, shift in zip(whole, (exponents - exponents.min()).tolist(), strict=True)]


def _precisions(matrix: Floats) -> list[Result]:
    return _ratios(np.diag(matrix), matrix.sum(axis=0), "the class is never predicted")


def _recalls(matrix: Floats) -> list[Result]:
    return _ratios(np.diag(matrix), matrix.sum(axis=1), "the class is not among the labels")


def _f1s(matrix: Floats) -> list[Result]:
    reason = "the class is neither among the labels nor predicted"
    return _ratios(2 * np.diag(matrix), matrix.sum(axis=0) + matrix.sum(axis=1), reason)


def _ratios(above: Floats, below: Floats, reason: str) -> list[Result]:
    return [ratio(float(a), float(b), reason) for a, b in zip(above, below, strict=True)]


def _averaged(title: str, values: Callable[[Floats], list[Result]], *, weighted: bool) -> Metric:
    def result(matrix: Floats) -> Result:
        if not matrix.sum():
            return NO_ROWS
        return average(values(matrix), matrix.sum(axis=1).tolist() if weighted else None)

    return Metric(title, "higher", ConfusionMatrix(), result, bar=True)


def macro_precision() -> Metric:
    """The mean over classes of TP / (TP + FP); a class that is never predicted has none."""
    return _averaged("Macro precision", _precisions, weighted=False)


def macro_recall() -> Metric:
    """The mean over classes of TP / (TP + FN); a class that is not among the labels has none."""
    return _averaged("Macro recall", _recalls, weighted=False)


def macro_f1() -> Metric:
    """The mean over classes of 2·TP / (2·TP + FP + FN); a class that is neither labelled nor predicted has none."""
    return _averaged("Macro F1", _f1s, weighted=False)


def weighted_precision() -> Metric:
    """As `macro_precision`, weighted by each class's share of the labels."""
    return _averaged("Weighted precision", _precisions, weighted=True)


def weighted_recall() -> Metric:
    """As `macro_recall`, weighted by each class's share of the labels: the accuracy."""
    return _averaged("Weighted recall", _recalls, weighted=True)


def weighted_f1() -> Metric:
    """As `macro_f1`, weighted by each class's share of the labels."""
    return _averaged("Weighted F1", _f1s, weighted=True)


def micro_f1() -> Metric:
    """2·TP / (2·TP + FP + FN) with TP, FP and FN summed over classes: of one class out of several, the accuracy."""
    return accuracy().titled("Micro F1")


def _multiclass(build: Callable[..., Metric], *, default: bool = False) -> Definition:
    return Definition(build, ("multiclass",), default)


MULTICLASS_METRICS: Final[Mapping[str, Definition]] = {
    "accuracy": _multiclass(accuracy, default=True),
    "top_k_accuracy": _multiclass(top_k_accuracy),
    "balanced_accuracy": _multiclass(balanced_accuracy),
    "matthews_correlation": _multiclass(matthews_correlation),
    "cohen_kappa": _multiclass(cohen_kappa),
    "macro_precision": _multiclass(macro_precision, default=True),
    "macro_recall": _multiclass(macro_recall, default=True),
    "macro_f1": _multiclass(macro_f1, default=True),
    "weighted_precision": _multiclass(weighted_precision),
    "weighted_recall": _multiclass(weighted_recall),
    "weighted_f1": _multiclass(weighted_f1),
    "micro_f1": _multiclass(micro_f1),
    "log_loss": _multiclass(log_loss, default=True),
    "brier_score": _multiclass(brier_score),
}
