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
class Calibration:
    """A probability for each score, by isotonic regression; linear between the reference's scores, constant beyond.

    Attributes:
        scores: Distinct scores, ascending.
        probabilities: That of each.
    """

    scores: Floats
    probabilities: Floats

    @classmethod
    def fit(cls, scores: Floats, outcomes: Floats, weight: Floats) -> Self:
        """The rising function of the scores that is nearest to what happened (Zadrozny and Elkan 2002).

        Each step is shrunk towards the mean of all by one pseudo-row: the outer steps are often 0 and 1 for want of
        rows, which would make a model look better than it is. Of how many rows a step is, is Kish's effective sample
        size, (Σw)² / Σw² (Kish 1965).

        Args:
            scores: (n,).
            outcomes: (n,) of 0 and 1.
            weight: (n,), some above 0.
        """
        from scipy.optimize import isotonic_regression  # late: half a second to import

        some = weight > 0
        distinct, at = np.unique(scores[some], return_inverse=True)
        mass = np.bincount(at, weight[some])
        means = np.bincount(at, weight[some] * outcomes[some]) / mass
        steps = isotonic_regression(means, weights=mass)
        first, size = steps.blocks[:-1], np.diff(steps.blocks)
        rows = np.add.reduceat(mass, first) ** 2 / np.add.reduceat(np.bincount(at, weight[some] ** 2), first)
        shrunk = (steps.x[first] * rows + np.average(means, weights=mass)) / (rows + 1)
        # A step of few rows moves further than its neighbours, and may pass them.
        return cls(distinct, np.asarray(isotonic_regression(np.repeat(shrunk, size), weights=mass).x))

    def __call__(self, scores: Floats) -> Floats:
        """The probability of each score."""
        return np.interp(scores, self.scores, self.probabilities)


def class_probabilities(scores: Floats, reference: Floats, labels: NDArray[np.int64], weight: Floats) -> Floats:
    """The calibrated probability of each class, (n, k): of each class against the rest, then divided by their sum.

    Args:
        scores: (n,) of yes or no, or (n, k).
        reference: Scores of rows whose labels are known, (m,) or (m, k).
        labels: The class of each, (m,), from 0; of yes or no 1 for yes.
        weight: Their weights, (m,).
    """
    if scores.ndim == 1:
        yes = Calibration.fit(reference, (labels == 1).astype(np.float64), weight)(scores)
        return np.column_stack([1 - yes, yes])
    each = [
        Calibration.fit(reference[:, k], (labels == k).astype(np.float64), weight)(scores[:, k])
        for k in range(scores.shape[1])
    ]
    together = np.column_stack(each)
    total = together.sum(axis=1, keepdims=True)
    # Where no class has any probability, all have the same.
    return np.where(total > 0, together / np.where(total > 0, total, 1.0), 1 / together.shape[1])
