"""Metrics of a model beside its baseline, row by row: how many decisions change, and how far predictions move.

Of the baseline itself, and without one, they are undefined. Labels do not enter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

import numpy as np

from .definitions import NO_BASELINE, NO_ROWS, Definition, Direction, Metric, Result, mean, ratio
from .rows import Floats, SliceRows
from .states import Sums, Term


@dataclass(frozen=True)
class Compared(Sums):
    """Sums of a model beside its baseline; None where there is none."""

    # A slice without a baseline has sums too: of its weight alone, under this name.
    alone: ClassVar[str] = "alone"

    def terms(self, rows: SliceRows) -> Iterator[Term]:
        """Those of a subclass, or only the weight."""
        if rows.baseline is None:
            yield Term(self.alone, np.ones(len(rows)))
        else:
            yield from self.compare(rows, rows.baseline)

    def compare(self, rows: SliceRows, baseline: Floats) -> Iterator[Term]:
        """Each row's terms."""
        raise NotImplementedError

    def summed(self, sums: Mapping[str, float]) -> Mapping[str, float] | None:
        """The sums."""
        return None if sums.get(self.alone) else sums


@dataclass(frozen=True)
class Flips(Compared):
    """Σw by what the baseline decides, and of the rows that the model decides otherwise."""

    threshold: float = 0.5
    names: ClassVar[tuple[str, ...]] = ("alone", "positives", "negatives", "lost", "gained")

    def compare(self, rows: SliceRows, baseline: Floats) -> Iterator[Term]:
        """Each row's terms."""
        before, after = baseline > self.threshold, rows.prediction > self.threshold
        yield Term("positives", of=before)
        yield Term("negatives", of=~before)
        yield Term("lost", of=before & ~after)
        yield Term("gained", of=~before & after)


@dataclass(frozen=True)
class ClassFlips(Compared):
    """Σw, and of the rows whose class with the highest score is another than the baseline's."""

    names: ClassVar[tuple[str, ...]] = ("alone", "weight", "flipped")

    def compare(self, rows: SliceRows, baseline: Floats) -> Iterator[Term]:
        """Each row's terms."""
        yield Term("weight")
        yield Term("flipped", of=rows.prediction.argmax(axis=1) != baseline.argmax(axis=1))


@dataclass(frozen=True)
class Movements(Compared):
    """Σw, Σw·2|a − b| / |a + b|, and where scores are vectors Σw·cos(a, b) and Σw of those that are not 0."""

    names: ClassVar[tuple[str, ...]] = ("alone", "weight", "symmetric", "cosine", "not_zero")

    def compare(self, rows: SliceRows, baseline: Floats) -> Iterator[Term]:
        """Each row's terms."""
        a, b, weight = rows.prediction, baseline, rows.weight
        yield Term("weight")
        if a.ndim == 1:
            apart, size = 2 * np.abs(a - b), np.abs(a + b)
            # a = -b, both not 0, has no difference of this kind: it counts as NaN, which the result reports.
            share = np.divide(apart, size, out=np.where(apart > 0, np.nan, 0.0), where=size > 0)
            yield Term("symmetric", weight * share)
            return
        lengths = np.sqrt((a**2).sum(axis=1)) * np.sqrt((b**2).sum(axis=1))
        some = lengths > 0
        yield Term("cosine", weight[some] * (a * b).sum(axis=1)[some] / lengths[some], some)
        yield Term("not_zero", of=some)


def flip_rate(*, threshold: float = 0.5) -> Metric:
    """Σw of the rows on whose side of the threshold model and baseline differ / Σw."""
    return _flips("Flip rate", threshold, lambda s: ratio(s["lost"] + s["gained"], _all(s), NO_ROWS))


def positive_to_negative_rate(*, threshold: float = 0.5) -> Metric:
    """Σw of the rows that only the baseline calls positive / Σw of those that it does."""
    return _flips(
        "Positive to negative", threshold, lambda s: ratio(s["lost"], s["positives"], "no baseline positives")
    )


def negative_to_positive_rate(*, threshold: float = 0.5) -> Metric:
    """Σw of the rows that only the model calls positive / Σw of those that the baseline calls negative."""
    return _flips(
        "Negative to positive", threshold, lambda s: ratio(s["gained"], s["negatives"], "no baseline negatives")
    )


def positive_to_positive_rate(*, threshold: float = 0.5) -> Metric:
    """1 − `positive_to_negative_rate`."""
    return _flips(
        "Positive to positive",
        threshold,
        lambda s: ratio(s["positives"] - s["lost"], s["positives"], "no baseline positives"),
        "higher",
    )


def negative_to_negative_rate(*, threshold: float = 0.5) -> Metric:
    """1 − `negative_to_positive_rate`."""
    return _flips(
        "Negative to negative",
        threshold,
        lambda s: ratio(s["negatives"] - s["gained"], s["negatives"], "no baseline negatives"),
        "higher",
    )


def positive_to_negative(*, threshold: float = 0.5) -> Metric:
    """Σw of the rows that only the baseline calls positive."""
    return replace(_flips("Positives lost", threshold, lambda s: s["lost"]), total=True)


def negative_to_positive(*, threshold: float = 0.5) -> Metric:
    """Σw of the rows that only the model calls positive."""
    return replace(_flips("Positives gained", threshold, lambda s: s["gained"]), total=True)


def class_flip_rate() -> Metric:
    """Σw of the rows for which model and baseline predict other classes / Σw."""
    return _compared("Flip rate", "lower", ClassFlips(), lambda s: mean(s, "flipped"))


def symmetric_prediction_difference() -> Metric:
    """Σw·2|a − b| / |a + b| / Σw; two predictions of 0 differ by 0."""
    return _compared("Symmetric prediction difference", "lower", Movements(), lambda s: mean(s, "symmetric"))


def cosine_similarity() -> Metric:
    """The mean cosine of the angle between the scores of model and baseline; rows of which one is all 0 have none."""
    return _compared(
        "Cosine similarity", "higher", Movements(), lambda s: ratio(s["cosine"], s["not_zero"], "all scores are 0")
    )


def _all(sums: Mapping[str, float]) -> float:
    return sums["positives"] + sums["negatives"]


def _flips(
    title: str, threshold: float, result: Callable[[Mapping[str, float]], Result], direction: Direction = "lower"
) -> Metric:
    return _compared(title, direction, Flips(threshold), result)


def _compared(
    title: str, direction: Direction, state: Compared, value: Callable[[Mapping[str, float]], Result]
) -> Metric:
    def result(sums: Any) -> Result:  # a mapping, or None
        return NO_BASELINE if sums is None else value(sums)

    return Metric(title, direction, state, result)


def _scalars(build: Callable[..., Metric]) -> Definition:
    return Definition(build, ("binary",))


COMPARISON_METRICS: Final[Mapping[str, Definition]] = {
    "flip_rate": _scalars(flip_rate),
    "positive_to_negative_rate": _scalars(positive_to_negative_rate),
    "negative_to_positive_rate": _scalars(negative_to_positive_rate),
    "positive_to_positive_rate": _scalars(positive_to_positive_rate),
    "negative_to_negative_rate": _scalars(negative_to_negative_rate),
    "positive_to_negative": _scalars(positive_to_negative),
    "negative_to_positive": _scalars(negative_to_positive),
    "class_flip_rate": Definition(class_flip_rate, ("multiclass",)),
    "symmetric_prediction_difference": Definition(symmetric_prediction_difference, ("binary", "regression")),
    "cosine_similarity": Definition(cosine_similarity, ("multiclass", "multilabel")),
}
