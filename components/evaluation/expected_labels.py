"""The labels that calibrated probabilities expect: confidence-based performance estimation (CBPE).

A row without a label is taken as several rows, one for each class, each with the class as its label and the calibrated
probability of that class as its weight. The metrics of these rows are ratios of expected sums: of an expected confusion
matrix, for instance, as NannyML's documentation describes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from .rows import Floats


@dataclass(frozen=True, eq=False)
class DistinctScores:
    """Scores that are looked at again and again.

    Attributes:
        values: The distinct ones, ascending.
        at: (n,), the position of each score among them.
    """

    values: Floats
    at: NDArray[np.int64]

    @classmethod
    def of(cls, scores: Floats) -> Self:
        """Those of scores, (n,)."""
        return cls(*np.unique(scores, return_inverse=True))


@dataclass(frozen=True, eq=False)
class Calibration:
    """A probability for each score, by isotonic regression; linear between the reference's scores, constant beyond.

    Attributes:
        scores: Distinct scores, ascending.
        probabilities: That of each.
    """

    scores: Floats
    probabilities: Floats

    @classmethod
    def fit(cls, scores: DistinctScores, outcomes: Floats, weight: Floats) -> Self:
        """The rising function of the scores that is nearest to what happened (Zadrozny and Elkan 2002).

        Each step is shrunk towards the mean of all by one pseudo-row: the outer steps are often 0 and 1 for want of
        rows, which would make a model look better than it is. Of how many rows a step is, is Kish's effective sample
        size, (Σw)² / Σw² (Kish 1965).

        Args:
            scores: Of n rows.
            outcomes: (n,) of 0 and 1.
            weight: (n,), some above 0.
        """
        from scipy.optimize import isotonic_regression  # late: half a second to import

        mass, hits, squares = (np.bincount(scores.at, each) for each in (weight, weight * outcomes, weight**2))
        some = mass > 0
        mass, hits, squares = mass[some], hits[some], squares[some]
        steps = isotonic_regression(hits / mass, weights=mass)
        first, size = steps.blocks[:-1], np.diff(steps.blocks)
        rows = np.add.reduceat(mass, first) ** 2 / np.add.reduceat(squares, first)
        shrunk = (steps.x[first] * rows + np.average(hits / mass, weights=mass)) / (rows + 1)
        # A step of few rows moves further than its neighbours, and may pass them.
        probabilities = isotonic_regression(np.repeat(shrunk, size), weights=mass).x
        return cls(scores.values[some], np.asarray(probabilities))

    def __call__(self, scores: DistinctScores) -> Floats:
        """The probability of each score, (n,)."""
        return np.interp(scores.values, self.scores, self.probabilities).take(scores.at)  # sorted it is far quicker


class ClassProbabilities:
    """The calibrated probability of each class: of each class against the rest, then divided by their sum.

    Args:
        scores: (n,) of yes or no, or (n, k).
        reference: Scores of rows whose labels are known, (m,) or (m, k).
        labels: The class of each, (m,), from 0; of yes or no 1 for yes.
    """

    def __init__(self, scores: Floats, reference: Floats, labels: NDArray[np.int64]) -> None:
        self._several = scores.ndim > 1
        pairs = zip(scores.T, reference.T, strict=True) if self._several else [(scores, reference)]
        self._scores = [(DistinctScores.of(each), DistinctScores.of(known)) for each, known in pairs]
        self._happened = [(labels == (k if self._several else 1)).astype(np.float64) for k in range(len(self._scores))]

    def __call__(self, weight: Floats) -> Floats:
        """Those of the rows, (n, k), where the reference's rows have these weights, (m,), some above 0."""
        each = [
            Calibration.fit(known, happened, weight)(scores)
            for (scores, known), happened in zip(self._scores, self._happened, strict=True)
        ]
        if not self._several:
            return np.column_stack([1 - each[0], each[0]])
        together = np.column_stack(each)
        total = together.sum(axis=1, keepdims=True)
        # Where no class has any probability, all have the same.
        return np.where(total > 0, together / np.where(total > 0, total, 1.0), 1 / together.shape[1])
