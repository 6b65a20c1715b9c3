"""Metrics of yes or no: at a threshold, along the curves of all thresholds, of calibration, and losses."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ...data.aggregates.sums import ExactSum
from ...errors import InputError
from .definitions import (
    NO_NEGATIVES,
    NO_POSITIVES,
    NO_ROWS,
    ONE_CLASS,
    Definition,
    Direction,
    Metric,
    Result,
    is_finite,
    mean,
    ratio,
)
from .rows import Floats, SliceRows
from .score_table import ScoreTable, ScoreTally
from .states import Leaves, Sums, Term

CLIP: Final = 1e-7
"""Losses keep probabilities this far from 0 and 1, as Keras does."""
_MOST_BUCKETS: Final = 10_000
_LARGEST_BETA: Final = 1e6
Summation: TypeAlias = Literal["interpolation", "minoring", "majoring"]

_NONE_CALLED: Final = "nothing predicted positive"
_ALL_CALLED: Final = "nothing predicted negative"


@dataclass(frozen=True)
class Confusion:
    """Σw of the rows that a threshold calls rightly or wrongly: each summed by itself, since differences may cancel."""

    true_positives: float
    false_positives: float
    false_negatives: float
    true_negatives: float

    @property
    def positives(self) -> float:
        """All whose label is positive."""
        return self.true_positives + self.false_negatives

    @property
    def negatives(self) -> float:
        """All whose label is negative."""
        return self.false_positives + self.true_negatives

    @property
    def uncalled(self) -> float:
        """Predicted negative, rightly or wrongly."""
        return self.true_negatives + self.false_negatives

    @property
    def weight(self) -> float:
        """Σw of all rows, 0 for none."""
        return self.positives + self.negatives

    @property
    def called(self) -> float:
        """Predicted positive, rightly or wrongly."""
        return self.true_positives + self.false_positives


@dataclass(frozen=True)
class AtThreshold(Sums):
    """The confusion of one threshold: a prediction strictly above it counts as positive."""

    threshold: float = 0.5
    names: ClassVar[tuple[str, ...]] = ("true_positives", "false_positives", "false_negatives", "true_negatives")

    def terms(self, rows: SliceRows) -> Iterator[Term]:
        """The weights of each kind of rows."""
        above = rows.prediction > self.threshold
        below = ~above
        yield Term("true_positives", of=above, label=True)
        yield Term("false_positives", of=above, label=False)
        yield Term("false_negatives", of=below, label=True)
        yield Term("true_negatives", of=below, label=False)

    def summed(self, sums: Mapping[str, float]) -> Confusion:
        """The four sums as one confusion."""
        return Confusion(**sums)


def _accuracy(c: Confusion) -> Result:
    """(TP + TN) / all."""
    return ratio(c.true_positives + c.true_negatives, c.weight, NO_ROWS)


def _precision(c: Confusion) -> Result:
    """TP / (TP + FP)."""
    return ratio(c.true_positives, c.called, _NONE_CALLED)


def _recall(c: Confusion) -> Result:
    """TP / (TP + FN)."""
    return ratio(c.true_positives, c.positives, NO_POSITIVES)


def _specificity(c: Confusion) -> Result:
    """TN / (TN + FP)."""
    return ratio(c.true_negatives, c.negatives, NO_NEGATIVES)


def _fall_out(c: Confusion) -> Result:
    """FP / (FP + TN)."""
    return ratio(c.false_positives, c.negatives, NO_NEGATIVES)


def _miss_rate(c: Confusion) -> Result:
    """FN / (FN + TP)."""
    return ratio(c.false_negatives, c.positives, NO_POSITIVES)


def _negative_predictive_value(c: Confusion) -> Result:
    """TN / (TN + FN)."""
    return ratio(c.true_negatives, c.uncalled, _ALL_CALLED)


def _false_discovery_rate(c: Confusion) -> Result:
    """FP / (FP + TP)."""
    return ratio(c.false_positives, c.called, _NONE_CALLED)


def _false_omission_rate(c: Confusion) -> Result:
    """FN / (FN + TN)."""
    return ratio(c.false_negatives, c.uncalled, _ALL_CALLED)


def _prevalence(c: Confusion) -> Result:
    """(TP + FN) / all."""
    return ratio(c.positives, c.weight, NO_ROWS)


def _predicted_positive_rate(c: Confusion) -> Result:
    """(TP + FP) / all."""
    return ratio(c.called, c.weight, NO_ROWS)


def _threat_score(c: Confusion) -> Result:
    """TP / (TP + FN + FP), also called Jaccard's or the critical success index."""
    return ratio(
        c.true_positives, c.positives + c.false_positives, "no positive labels, and nothing predicted positive"
    )


def _balanced_accuracy(c: Confusion) -> Result:
    """(recall + specificity) / 2."""
    return _combined(c, lambda recall, specificity: (recall + specificity) / 2)


def _informedness(c: Confusion) -> Result:
    """Recall + specificity − 1, also called Youden's J."""
    return _combined(c, lambda recall, specificity: recall + specificity - 1)


def _prevalence_threshold(c: Confusion) -> Result:
    """√FPR / (√TPR + √FPR)."""

    def root(recall: float, specificity: float) -> Result:
        alarm, hit = math.sqrt(1 - specificity), math.sqrt(recall)
        return ratio(alarm, hit + alarm, _NONE_CALLED)

    return _combined(c, root)


def _positive_likelihood_ratio(c: Confusion) -> Result:
    """TPR / FPR."""
    return _combined(c, lambda recall, specificity: ratio(recall, 1 - specificity, "no false positives"))


def _negative_likelihood_ratio(c: Confusion) -> Result:
    """FNR / TNR."""
    return _combined(c, lambda recall, specificity: ratio(1 - recall, specificity, "no true negatives"))


def _combined(c: Confusion, combine: Callable[[float, float], Result]) -> Result:
    if not c.positives or not c.negatives:
        return ONE_CLASS if c.weight else NO_ROWS
    return combine(c.true_positives / c.positives, c.true_negatives / c.negatives)


def _diagnostic_odds_ratio(c: Confusion) -> Result:
    """TP·TN / (FP·FN)."""
    wrong = c.false_positives * c.false_negatives
    return ratio(c.true_positives * c.true_negatives, wrong, "no false positives or no false negatives")


def _markedness(c: Confusion) -> Result:
    """Precision + NPV − 1."""
    precision, npv = _precision(c), _negative_predictive_value(c)
    if isinstance(precision, str) or isinstance(npv, str):
        return next(reason for reason in (precision, npv) if isinstance(reason, str))
    return precision + npv - 1


def _fowlkes_mallows(c: Confusion) -> Result:
    """√(precision · recall)."""
    precision, recall = _precision(c), _recall(c)
    if isinstance(precision, str) or isinstance(recall, str):
        return next(reason for reason in (precision, recall) if isinstance(reason, str))
    return math.sqrt(precision * recall)


def _matthews_correlation(c: Confusion) -> Result:
    """(TP·TN − FP·FN) / √((TP+FP)(TP+FN)(TN+FP)(TN+FN))."""
    below = math.sqrt(c.called) * math.sqrt(c.positives) * math.sqrt(c.negatives) * math.sqrt(c.uncalled)
    above = c.true_positives * c.true_negatives - c.false_positives * c.false_negatives
    return ratio(above, below, "only one class among the labels or the predictions")


def _cohen_kappa(c: Confusion) -> Result:
    """(accuracy − chance) / (1 − chance), where chance is how often label and prediction agree by their rates."""
    if not c.weight:
        return NO_ROWS
    # Both multiplied out by the square of the weight, as the differences of numbers near 1 lose digits of rare classes.
    beyond_chance = 2 * (c.true_positives * c.true_negatives - c.false_positives * c.false_negatives)
    most = c.called * c.negatives + c.positives * c.uncalled
    return ratio(beyond_chance, most, "labels and predictions are all of one class")


# name: title, which way is better, whether it is drawn as a bar, value
_OF_CONFUSION: Final[dict[str, tuple[str, Direction | None, bool, Callable[[Confusion], Result]]]] = {
    "accuracy": ("Accuracy", "higher", True, _accuracy),
    "precision": ("Precision", "higher", True, _precision),
    "recall": ("Recall", "higher", True, _recall),
    "specificity": ("Specificity", "higher", True, _specificity),
    "balanced_accuracy": ("Balanced accuracy", "higher", True, _balanced_accuracy),
    "matthews_correlation": ("Matthews correlation", "higher", False, _matthews_correlation),
    "cohen_kappa": ("Cohen's kappa", "higher", False, _cohen_kappa),
    "negative_predictive_value": ("Negative predictive value", "higher", True, _negative_predictive_value),
    "fall_out": ("False positive rate", "lower", True, _fall_out),
    "miss_rate": ("False negative rate", "lower", True, _miss_rate),
    "false_discovery_rate": ("False discovery rate", "lower", True, _false_discovery_rate),
    "false_omission_rate": ("False omission rate", "lower", True, _false_omission_rate),
    "threat_score": ("Threat score", "higher", True, _threat_score),
    "fowlkes_mallows": ("Fowlkes-Mallows index", "higher", True, _fowlkes_mallows),
    "informedness": ("Informedness", "higher", False, _informedness),
    "markedness": ("Markedness", "higher", False, _markedness),
    "prevalence": ("Prevalence", None, True, _prevalence),
    "prevalence_threshold": ("Prevalence threshold", None, True, _prevalence_threshold),
    "predicted_positive_rate": ("Predicted positive rate", None, True, _predicted_positive_rate),
    "positive_likelihood_ratio": ("Positive likelihood ratio", "higher", False, _positive_likelihood_ratio),
    "negative_likelihood_ratio": ("Negative likelihood ratio", "lower", False, _negative_likelihood_ratio),
    "diagnostic_odds_ratio": ("Diagnostic odds ratio", "higher", False, _diagnostic_odds_ratio),
    "true_positives": ("True positives", None, False, lambda c: c.true_positives),
    "false_positives": ("False positives", None, False, lambda c: c.false_positives),
    "true_negatives": ("True negatives", None, False, lambda c: c.true_negatives),
    "false_negatives": ("False negatives", None, False, lambda c: c.false_negatives),
}


_TOTALS: Final = ("true_positives", "false_positives", "true_negatives", "false_negatives")


def of_confusion(name: str, *, threshold: float = 0.5) -> Metric:
    """The metric of that name where a prediction strictly above `threshold` counts as positive."""
    title, direction, bar, result = _OF_CONFUSION[name]
    state = AtThreshold(_unit("threshold", threshold))
    return Metric(title, direction, state, result, bar=bar, total=name in _TOTALS)


def f1(*, threshold: float = 0.5) -> Metric:
    """2·TP / (2·TP + FP + FN)."""
    return f_beta(threshold=threshold).titled("F1")


def f_beta(*, beta: float = 1.0, threshold: float = 0.5) -> Metric:
    """(1 + β²)·TP / ((1 + β²)·TP + β²·FN + FP): recall counts β times as much as precision."""
    if not is_finite(beta) or not 0 < beta <= _LARGEST_BETA:
        raise InputError(f"beta must be above 0 and at most {_LARGEST_BETA:,.0f}, not {beta!r}")

    def result(c: Confusion) -> Result:
        hits = (1 + beta**2) * c.true_positives
        below = hits + beta**2 * c.false_negatives + c.false_positives
        return ratio(hits, below, "no positive labels, and nothing predicted positive")

    return Metric("F-beta", "higher", AtThreshold(_unit("threshold", threshold)), result, bar=True)


# Curves. A point of a curve is a score s, with all that score s or more called positive.


def auc(*, method: Summation = "interpolation") -> Metric:
    """Area under the ROC curve: the chance that a positive scores above a negative, a tie counting half.

    That is the Mann-Whitney statistic divided by the number of pairs (Hanley and McNeil 1982), exact over the
    distinct scores. With method "minoring" a tie counts nothing, with "majoring" as a hit.
    """
    share = {"interpolation": 0.5, "minoring": 0.0, "majoring": 1.0}[_summation(method)]

    def result(tally: ScoreTally) -> Result:
        if not tally.both_classes:
            return ONE_CLASS if len(tally.scores) else NO_ROWS
        positives, negatives, below = tally.rises
        # No BLAS: its order of adding varies.
        pairs = float(np.sum(positives * (below + share * negatives)))
        return min(pairs / tally.weights[1] / tally.weights[0], 1.0)

    variance = _delong_variance if method == "interpolation" else None
    return Metric("AUC", "higher", ScoreTable(), result, bar=True, error=_auc_error, variance=variance)


def _delong_variance(tally: ScoreTally) -> Result:
    """The variance of the AUC after DeLong, DeLong and Clarke-Pearson 1988.

    That of the shares of negatives below each positive, over the number of positives, and that of the shares of
    positives above each negative, over the number of negatives; a tie counts half.
    """
    positives, negatives = tally.positives, tally.negatives
    many, others = float(positives.sum()), float(negatives.sum())
    if min(many, others) < 2:
        return "fewer than two labels of a class"
    below = (np.cumsum(negatives) - negatives / 2) / others
    above = 1 - (np.cumsum(positives) - positives / 2) / many
    area = float(np.sum(positives * below)) / many
    of_positives = float(np.sum(positives * (below - area) ** 2)) / (many - 1) / many
    return of_positives + float(np.sum(negatives * (above - area) ** 2)) / (others - 1) / others


def _auc_error(tally: ScoreTally) -> float:
    """The most by which a histogram's AUC can differ from the exact one: half the pairs that share a bin."""
    if tally.exact or not tally.both_classes:
        return 0.0
    shared = float(np.sum(tally.positives * tally.negatives))
    return 0.5 * shared / float(tally.positives.sum()) / float(tally.negatives.sum())


def pr_auc(*, method: Summation = "interpolation") -> Metric:
    """Area under the precision-recall curve, interpolated after Davis and Goadrich 2006 as Keras and TFMA do.

    Between two neighbouring thresholds, false positives grow linearly with true positives. With method "minoring" or
    "majoring" each step of recall has the lower or the higher precision of its two ends; nothing called has the
    precision of the highest score.
    """
    _summation(method)

    def result(tally: ScoreTally) -> Result:
        if not tally.both_classes:
            return ONE_CLASS if len(tally.scores) else NO_ROWS
        hits, called, next_hits, next_called = tally.steps
        step = hits - next_hits
        first = len(step) - (next_called[-1:] == 0).sum()  # the highest score, above which nothing is called
        if method != "interpolation":
            precision = hits / called
            choose = np.minimum if method == "minoring" else np.maximum
            precision[:first] = choose(precision[:first], next_hits[:first] / next_called[:first])
            return float(np.sum(step * precision)) / tally.all_hits
        slope = step / (called - next_called)
        above, below = next_called[:first], called[:first]
        bend = np.zeros_like(step)  # from the highest score to nothing called the line is straight
        bend[:first] = (next_hits[:first] - slope[:first] * above) * np.log(below / above)
        return float(np.sum(slope * (step + bend))) / tally.all_hits

    return Metric("PR-AUC", "higher", ScoreTable(), result, bar=True)


def average_precision() -> Metric:
    """Σ(Rᵢ − Rᵢ₊₁)·Pᵢ over the points of the curve, Rᵢ and Pᵢ being the recall and precision of score i."""

    def result(tally: ScoreTally) -> Result:
        if not tally.weights[1]:
            return NO_POSITIVES if len(tally.scores) else NO_ROWS
        hits, called, next_hits, _ = tally.steps
        return float(np.sum((hits - next_hits) * (hits / called))) / tally.all_hits

    return Metric("Average precision", "higher", ScoreTable(), result, bar=True)


@dataclass(frozen=True, eq=False)
class _Curve:
    """Recall, false positive rate and precision of each point, by rising score; last the point of nothing called."""

    tally: ScoreTally

    @property
    def scores(self) -> Floats:
        return np.append(self.tally.scores, np.nan)

    @property
    def recall(self) -> Floats:
        recall: Floats = self.tally.hits / self.tally.hits[0]
        return recall

    @property
    def alarms(self) -> Floats:
        alarms: Floats = self.tally.alarms / self.tally.alarms[0]
        return alarms

    @property
    def precision(self) -> Floats:
        hits, called = self.tally.hits, self.tally.hits + self.tally.alarms
        return np.divide(hits, called, out=np.full_like(hits, np.nan), where=called > 0)


def _best(title: str, value: Callable[[_Curve], Floats], kept: Callable[[_Curve], np.ndarray], reason: str) -> Metric:
    """The highest value among the points of the curve that are kept."""

    def result(tally: ScoreTally) -> Result:
        if not tally.both_classes:
            return ONE_CLASS if len(tally.scores) else NO_ROWS
        curve = _Curve(tally)
        values = value(curve)[kept(curve)]
        values = values[~np.isnan(values)]
        return float(values.max()) if len(values) else reason

    return Metric(title, "higher", ScoreTable(), result, bar=True)


_SLACK: Final = 1e-12  # a rate reaches its bound to this, since 0.7 + 0.1 < 0.8 in floats


def sensitivity_at_specificity(*, specificity: float) -> Metric:
    """The highest recall of the points whose specificity is at least `specificity`."""
    limit = 1 - _unit("specificity", specificity) + _SLACK
    return _best("Sensitivity at specificity", lambda c: c.recall, lambda c: c.alarms <= limit, "")


def specificity_at_sensitivity(*, sensitivity: float) -> Metric:
    """The highest specificity of the points whose recall is at least `sensitivity`."""
    limit = _unit("sensitivity", sensitivity) - _SLACK
    return _best("Specificity at sensitivity", lambda c: 1 - c.alarms, lambda c: c.recall >= limit, "")


def precision_at_recall(*, recall: float) -> Metric:
    """The highest precision of the points whose recall is at least `recall`."""
    limit = _unit("recall", recall) - _SLACK
    return _best("Precision at recall", lambda c: c.precision, lambda c: c.recall >= limit, "")


def recall_at_precision(*, precision: float) -> Metric:
    """The highest recall of the points whose precision is at least `precision`."""
    limit = _unit("precision", precision) - _SLACK
    reason = f"no score has a precision of {precision:g}"
    return _best("Recall at precision", lambda c: c.recall, lambda c: c.precision >= limit, reason)


def recall_at_false_positive_rate(*, rate: float) -> Metric:
    """The highest recall of the points whose false positive rate is at most `rate`."""
    limit = _unit("rate", rate) + _SLACK
    return _best("Recall at false positive rate", lambda c: c.recall, lambda c: c.alarms <= limit, "")


def threshold_at_recall(*, recall: float) -> Metric:
    """The highest score s such that calling all that score s or more positive has at least the recall `recall`."""
    limit = _unit("recall", recall) - _SLACK
    metric = _best("Threshold at recall", lambda c: c.scores, lambda c: c.recall >= limit, "")
    return Metric(metric.title, None, metric.state, metric.result)


def max_recall() -> Metric:
    """The recall when everything is called positive: 1 wherever there are positives."""

    def result(tally: ScoreTally) -> Result:
        return 1.0 if tally.weights[1] else NO_POSITIVES

    return Metric("Highest recall", "higher", ScoreTable(), result, bar=True)


# Calibration and losses.


@dataclass(frozen=True)
class LogLosses(Sums):
    """Σw and Σw·(log-loss)."""

    names: ClassVar[tuple[str, ...]] = ("weight", "log_loss")

    def terms(self, rows: SliceRows) -> Iterator[Term]:
        """w, and w times the loss."""
        yield Term("weight")
        losses = np.clip(rows.prediction, CLIP, 1 - CLIP)
        losses -= ~rows.label  # p or p - 1, whose absolute value is what was promised to the label: without a branch
        for step in (np.abs, np.log, np.negative):
            step(losses, out=losses)
        yield Term("log_loss", losses if rows.unweighted else rows.weight * losses)


@dataclass(frozen=True)
class SquaredErrors(Sums):
    """Σw and Σw·(p − y)²."""

    names: ClassVar[tuple[str, ...]] = ("weight", "brier")

    def terms(self, rows: SliceRows) -> Iterator[Term]:
        """w, and w·(p − y)²."""
        yield Term("weight")
        yield Term("brier", rows.weight * (rows.prediction - rows.label) ** 2)


@dataclass(frozen=True)
class MeansByLabel(Sums):
    """Σw and Σw·p over positives and over negatives."""

    names: ClassVar[tuple[str, ...]] = ("positives", "negatives", "of_positives", "of_negatives")

    def terms(self, rows: SliceRows) -> Iterator[Term]:
        """Weights and weighted scores by label."""
        for name, of in (("positives", True), ("negatives", False)):
            yield Term(name, label=of)
            yield Term(f"of_{name}", rows.weighted, label=of)


def log_loss() -> Metric:
    """−Σw(y·ln p + (1−y)·ln(1−p)) / Σw in nats, p clipped to [1e-7, 1 − 1e-7] as Keras does."""
    return Metric("Log-loss", "lower", LogLosses(), lambda sums: mean(sums, "log_loss"))


def brier_score() -> Metric:
    """Σw(p − y)² / Σw."""
    return Metric("Brier score", "lower", SquaredErrors(), lambda sums: mean(sums, "brier"))


def coefficient_of_discrimination() -> Metric:
    """The mean prediction of the positives − that of the negatives (Tjur 2009)."""
    return _discrimination("Coefficient of discrimination", lambda positive, negative: positive - negative)


def relative_coefficient_of_discrimination() -> Metric:
    """The mean prediction of the positives / that of the negatives."""
    reason = "all negatives are predicted 0"
    return _discrimination(
        "Relative coefficient of discrimination", lambda positive, negative: ratio(positive, negative, reason)
    )


def _discrimination(title: str, combine: Callable[[float, float], Result]) -> Metric:
    def result(sums: Mapping[str, float]) -> Result:
        positives, negatives = sums["positives"], sums["negatives"]
        if not positives or not negatives:
            return ONE_CLASS if positives + negatives else NO_ROWS
        return combine(sums["of_positives"] / positives, sums["of_negatives"] / negatives)

    return Metric(title, "higher", MeansByLabel(), result)


@dataclass(frozen=True)
class Gaps(Sums):
    """Σw, and Σw·(y − p) in each of the equal parts of [low, high); the outer ones hold what lies beyond it."""

    parts: int
    low: float
    high: float
    names: ClassVar[tuple[str, ...]] = ("weight",)

    def init(self) -> Leaves:
        """A sum of 0 for the weight and for each part."""
        return {name: ExactSum() for name in (*self.names, *map(str, range(self.parts)))}

    def terms(self, rows: SliceRows) -> Iterator[Term]:
        """Each row's weight, and its w·(y − p) for the part that its prediction is in."""
        yield Term("weight")
        gap = rows.weight * (rows.label - rows.prediction)
        for index, part in enumerate(_between(rows.prediction, _edges(self.parts, self.low, self.high)[1:-1])):
            yield Term(str(index), gap[part], part)


@dataclass(frozen=True)
class CalibrationBuckets(Sums):
    """Σw, Σw·y and Σw·p of the predictions below `low`, in each equal part of [low, high), and from `high` on."""

    parts: int
    low: float
    high: float
    sums: ClassVar[tuple[str, ...]] = ("weight", "label", "prediction")

    @property
    def names(self) -> tuple[str, ...]:  # type: ignore[override]  # as many as there are parts
        """Each sum of each bucket."""
        return tuple(f"{name} {bucket}" for bucket in range(self.parts + 2) for name in self.sums)

    def terms(self, rows: SliceRows) -> Iterator[Term]:
        """Each row's w, w·y and w·p for the bucket that its prediction is in."""
        label, prediction = rows.weight * rows.label, rows.weight * rows.prediction
        for index, part in enumerate(_between(rows.prediction, _edges(self.parts, self.low, self.high))):
            yield Term(f"weight {index}", of=part)
            yield Term(f"label {index}", label[part], part)
            yield Term(f"prediction {index}", prediction[part], part)

    def drawn(self, sums: Mapping[str, float]) -> list[dict[str, float | None]]:
        """The buckets with any weight: the edges `low` and `high`, None where it has none, `weight`, and the means."""
        edges = [None, *_edges(self.parts, self.low, self.high).tolist(), None]
        return [
            {
                "low": edges[bucket],
                "high": edges[bucket + 1],
                "weight": sums[f"weight {bucket}"],
                "prediction": sums[f"prediction {bucket}"] / sums[f"weight {bucket}"],
                "label": sums[f"label {bucket}"] / sums[f"weight {bucket}"],
            }
            for bucket in range(self.parts + 2)
            if sums[f"weight {bucket}"]
        ]


def _edges(parts: int, low: float, high: float) -> Floats:
    return low + np.arange(parts + 1, dtype=np.float64) * (high - low) / parts  # 3 · 0.1 would be above 0.3


def _between(values: Floats, edges: Floats) -> Iterator[slice | NDArray[np.int64]]:
    """The positions of the values below the first edge, of those from each edge to the next, and from the last on."""
    if bool((values[1:] >= values[:-1]).all()):
        ends = np.searchsorted(values, edges)
        yield from (slice(start, end) for start, end in pairwise([0, *ends.tolist(), len(values)]))
        return
    part = np.searchsorted(edges, values, side="right").astype(np.int16)  # which NumPy sorts by radix
    order = np.argsort(part, kind="stable")
    ends = np.searchsorted(part[order], np.arange(len(edges)), side="right")
    yield from (order[start:end] for start, end in pairwise([0, *ends.tolist(), len(values)]))


def expected_calibration_error(*, buckets: int = 10, low: float = 0.0, high: float = 1.0) -> Metric:
    """Σ|Σw·(y − p)| / Σw, the inner sums over `buckets` equal parts of [`low`, `high`] (Naeini et al. 2015).

    A prediction on an edge belongs to the part above it; the outer parts hold what lies beyond. Its plot has the mean
    label of each part by its mean prediction, what lies beyond apart, as TFMA's `CalibrationPlot` does.
    """
    number: Any  # what a user wrote
    for name, number in (("low", low), ("high", high)):
        if not is_finite(number):
            raise InputError(f"{name} must be a finite number, not {number!r}")
    number = buckets
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= _MOST_BUCKETS:
        raise InputError(f"buckets must be at least 1 and at most {_MOST_BUCKETS:,}, not {number!r}")
    if low >= high:
        raise InputError(f"low {low} is not below high {high}", fix="exchange them")

    def result(sums: Mapping[str, float]) -> Result:
        gaps = math.fsum(abs(gap) for name, gap in sums.items() if name != "weight")
        return ratio(gaps, sums["weight"], NO_ROWS)

    drawn = CalibrationBuckets(buckets, low, high)
    state = Gaps(buckets, low, high)
    return Metric("Expected calibration error", "lower", state, result, bar=True, plot=drawn.drawn, plot_state=drawn)


def _unit(name: str, value: Any) -> float:  # Any: what a user wrote
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise InputError(f"{name} must lie in [0, 1], not {value!r}")
    return float(value)


def _summation(method: str) -> str:
    if method not in ("interpolation", "minoring", "majoring"):
        raise InputError(f"method must be 'interpolation', 'minoring' or 'majoring', not {method!r}")
    return method


def _binary(build: Callable[..., Metric], *, default: bool = False) -> Definition:
    return Definition(build, ("binary",), default)


BINARY_METRICS: Final[Mapping[str, Definition]] = {
    "auc": _binary(auc, default=True),
    "pr_auc": _binary(pr_auc, default=True),
    **{name: _binary(partial(of_confusion, name), default=name in ("accuracy", "precision", "recall"))
       for name in _OF_CONFUSION},
    "f1": _binary(f1),
    "f_beta": _binary(f_beta),
    "average_precision": _binary(average_precision),
    "sensitivity_at_specificity": _binary(sensitivity_at_specificity),
    "specificity_at_sensitivity": _binary(specificity_at_sensitivity),
    "precision_at_recall": _binary(precision_at_recall),
    "recall_at_precision": _binary(recall_at_precision),
    "recall_at_false_positive_rate": _binary(recall_at_false_positive_rate),
    "threshold_at_recall": _binary(threshold_at_recall),
    "max_recall": _binary(max_recall),
    "log_loss": _binary(log_loss, default=True),
    "brier_score": _binary(brier_score),
    "expected_calibration_error": Definition(expected_calibration_error, ("binary", "regression")),
    "coefficient_of_discrimination": _binary(coefficient_of_discrimination),
    "relative_coefficient_of_discrimination": _binary(relative_coefficient_of_discrimination),
}  # fmt: skip
