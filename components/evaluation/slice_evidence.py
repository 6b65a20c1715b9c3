"""Whether a slice is worse: Welch's test, the size of the effect, and a permutation test by saddlepoint."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from scipy.special import expit, ndtr, stdtr

from .cut_columns import RowMask
from .rows import Floats

_STEP: Final = 0.01  # standard deviations to which the permutation test rounds losses


def powers_of(x: Floats) -> Floats:
    """Rows, Σx, Σx² and Σx³; shape (4,)."""
    return np.array([len(x), x.sum(), (x * x).sum(), (x * x * x).sum()])


def welch(powers: Floats, rest: Floats) -> tuple[Floats, Floats]:
    """The p-value of Welch's one-sided test that the mean of x is not larger within, and the effect size.

    Losses are skewed, so that t alone finds too little or, of slices in which most rows are wrong, too much: it is
    transformed by its skewness (Hall 1992, "On the Removal of Skewness by Transformation").

    Args:
        powers: See `powers_of`, of each slice; shape (4, …).
        rest: Of the rows that it is compared with.
    """
    sides = []
    for n, first, second, third in (powers, rest):
        mean = first / n
        variance = np.maximum(second / n - mean**2, 0)
        sides.append((n, mean, variance, third / n - 3 * mean * variance - mean**3))
    (n, mean, variance, skew), (m, rest_mean, rest_variance, rest_skew) = sides
    a, b = variance / (n - 1), rest_variance / (m - 1)
    apart = mean - rest_mean
    with np.errstate(divide="ignore", invalid="ignore"):
        t = apart / np.sqrt(a + b)
        df = (a + b) ** 2 / (a**2 / (n - 1) + b**2 / (m - 1))
        skewness = (skew / n**2 - rest_skew / m**2) / (a + b) ** 1.5
        t = t + skewness * t**2 / 3 + skewness**2 * t**3 / 27 + skewness / 6
        effect = apart / np.sqrt((variance + rest_variance) / 2)
        p_value = stdtr(df, -t)
    # Where no loss varies, any difference is sure: the permutation test decides.
    varies = a + b > 0
    return np.where(varies, p_value, apart <= 0), np.where(varies, effect, np.where(apart > 0, np.inf, 0))


def effect_from(sums: Floats, rest: Floats) -> Floats:
    """The difference of mean losses in standard deviations; of Σw, Σw·loss and Σw·loss² within and without, (3, …)."""
    (mean, variance), (rest_mean, rest_variance) = (
        (first / weight, np.maximum(second / weight - (first / weight) ** 2, 0))
        for weight, first, second in (sums, rest)
    )
    spread = np.sqrt((variance + rest_variance) / 2)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(mean > rest_mean, (mean - rest_mean) / spread, np.minimum(mean - rest_mean, 0)))


def effect_of(rows: RowMask, loss: Floats, weight: Floats) -> float:
    """The effect of a slice, from the rows in it, and each row's loss and weight; all (n,)."""
    terms = loss_terms(loss, weight)
    return float(effect_from(*(np.array([float(term[some].sum()) for term in terms]) for some in (rows, ~rows))))


def loss_terms(loss: Floats, weight: Floats) -> tuple[Floats, Floats, Floats]:
    """What `effect_from` takes the sums of: w, w·loss and w·loss² of each row, the losses around their mean; (n,)."""
    centred = loss - np.average(loss, weights=weight)  # or else the squares would cancel
    return weight, weight * centred, weight * centred**2


class Evidence:
    """What a pass of the search looks at.

    Attributes:
        x: What each row adds to the evidence; of mean 0 and variance 1.
        loss: The loss of each row, as it was.
        weight: Its weight.
    """

    def __init__(self, x: Floats, loss: Floats, weight: Floats) -> None:
        self.x, self.loss, self.weight = x, loss, weight
        self.more_powers = (x * x, x * x * x)
        self.powers = powers_of(x)
        self.loss_terms = loss_terms(loss, weight)
        self.loss_sums = np.array([term.sum() for term in self.loss_terms])
        self.permutation = PermutationTest(x)


class PermutationTest:
    """The chance that as many rows, drawn at random, have as large a sum: the permutation test, by saddlepoint.

    Welch's test alone calls a slice worse whose few losses happen to be alike; here the rows are a draw without
    replacement from all. Rows are in or out by independent coins, given how many are in: the double saddlepoint
    approximation (Skovgaard 1987; Booth and Butler 1990), which is a logistic regression of membership on x.
    """

    def __init__(self, x: Floats) -> None:
        _, group = np.unique(np.rint(x / _STEP), return_inverse=True)
        self.counts = np.bincount(group).astype(np.float64)
        self.values = np.bincount(group, x) / self.counts
        self.rows = len(x)

    def p_value(self, n: int, total: float) -> float:
        """The chance that Σx over n rows is at least this much."""
        if total <= 0:
            return 1.0
        if len(self.values) == 2:  # where the approximation, which is of a continuous sum, is half of the chance
            from scipy.stats import hypergeom  # late: slow to import, and seldom needed

            low, high = self.values
            return float(hypergeom.sf(round((total - n * low) / (high - low)) - 1, self.rows, self.counts[1], n))
        c, g, base = self.counts, self.values, math.log(n / (self.rows - n))
        share = n / self.rows
        point, height = np.zeros(2), 0.0  # of n·s + Σ·t − K(s, t), which is concave; K is 0 at 0
        hessian = np.eye(2)
        for _ in range(60):
            odds = base + point[0] + point[1] * g
            chance = expit(odds)
            spread = c * chance * (1 - chance)
            gradient = np.array([n - (c * chance).sum(), total - (c * chance * g).sum()])
            hessian = np.array([[spread.sum(), (spread * g).sum()], [(spread * g).sum(), (spread * g * g).sum()]])
            if np.abs(gradient).max() < 1e-7 * max(n, 1):
                break
            determinant = float(np.linalg.det(hessian))
            if not determinant > 1e-12:  # the largest sum there is, or nearly: what is reached bounds the chance
                break
            step = np.linalg.solve(hessian, gradient)
            for halving in range(40):
                trial = point + step * 0.5**halving
                cumulant = float(
                    (c * (np.logaddexp(math.log1p(-share), math.log(share) + trial[0] + trial[1] * g))).sum()
                )
                reached = float(n * trial[0] + total * trial[1] - cumulant)
                if reached > height:
                    break
            else:
                break
            point, height = trial, reached
        w = math.sqrt(2 * max(height, 0.0))
        u = float(point[1]) * math.sqrt(max(float(np.linalg.det(hessian)), 0.0) / (self.rows * share * (1 - share)))
        if w < 1e-3:
            return 0.5
        correction = math.exp(-0.5 * w * w) / math.sqrt(2 * math.pi) * (1 / u - 1 / w) if u > 0 else 0.0
        return min(max(float(ndtr(-w)) + correction, 0.0), 1.0)
