"""How far two distributions over one list of cells lie apart: plain numpy in, numbers out.

Throughout, `current` and `previous` are counts or shares per cell, in the same order; `previous` is the control.
"""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

CellCounts = NDArray[Any]  # int64 or float64, one dimension

PSI_FLOOR: Final = 1e-4  # a share below this counts as this in `psi`: an empty cell has no logarithm
LEAST_EXPECTED: Final = 5.0  # Cochran's rule: rarer cells are pooled before a chi² test
_EXACT_ROWS: Final = 10_000  # rows per side up to which scipy's "auto" computes Kolmogorov–Smirnov exactly


class TestOutcome(NamedTuple):
    """The outcome of a statistical test of "both sides are distributed alike".

    Attributes:
        statistic: The test's statistic.
        p_value: Chance of a statistic this large if nothing changed; 0 where it is below float64's range.
        effect: How large the change is, whatever the number of rows.
    """

    statistic: float
    p_value: float
    effect: float


def shares(counts: CellCounts) -> NDArray[np.float64]:
    """Counts divided by their sum; all 0 where there is nothing."""
    total = counts.sum()
    return counts / total if total else np.zeros(len(counts))


def l_infinity(current: CellCounts, previous: CellCounts) -> tuple[float, int]:
    """Largest difference of two shares of one cell, in [0, 1], and that cell: the last one among ties, as TFDV."""
    apart = np.abs(shares(current) - shares(previous))
    cell = len(apart) - 1 - int(np.argmax(apart[::-1]))
    return float(apart[cell]), cell


def normalized_abs_difference(current: CellCounts, previous: CellCounts) -> float:
    """Largest difference of two counts of one cell over all rows of both sides (TFDV's definition), in [0, 1]."""
    return float(np.abs(current - previous).max() / (current.sum() + previous.sum()))


def jensen_shannon(current: CellCounts, previous: CellCounts) -> float:
    """Jensen–Shannon divergence of the shares in bits: ½KL(P‖M) + ½KL(Q‖M) with M = ½(P + Q), in [0, 1].

    Lin, "Divergence measures based on the Shannon entropy", 1991. It is the square of `scipy.spatial.distance`'s
    Jensen–Shannon distance of base 2.
    """
    p, q = shares(current), shares(previous)
    middle = (p + q) / 2
    return min(max((_relative(p, middle) + _relative(q, middle)) / 2, 0.0), 1.0)


def _relative(part: NDArray[np.float64], whole: NDArray[np.float64]) -> float:
    some = part > 0
    return math.fsum((part[some] * np.log2(part[some] / whole[some])).tolist())


def psi(current: CellCounts, previous: CellCounts, floor: float = PSI_FLOOR) -> float:
    """Population stability index: Σ (p − q) ln(p / q), never below 0; shares below `floor` count as `floor`."""
    p, q = np.maximum(shares(current), floor), np.maximum(shares(previous), floor)
    return math.fsum(((p - q) * np.log(p / q)).tolist())


def wasserstein(values: CellCounts, current: CellCounts, previous: CellCounts) -> float:
    """The earth mover's distance in the unit of the values: the area between the two cumulative distributions.

    Args:
        values: Distinct numbers, ascending; one per cell.
        current: Rows per value.
        previous: Rows per value.

    Returns:
        At least 0; infinite where a float64 cannot hold it.
    """
    apart = np.abs(np.cumsum(shares(current)) - np.cumsum(shares(previous)))[:-1]
    with np.errstate(over="ignore"):
        if values.dtype.kind in "iu":
            # The gap of two 64-bit integers may need 65 bits, and floats would round large neighbours together.
            gaps = values[1:].astype(np.uint64) - values[:-1].astype(np.uint64)
        else:
            gaps = np.diff(values)
        return float((gaps.astype(np.float64) * apart).sum())


def kolmogorov_smirnov(current: CellCounts, previous: CellCounts) -> TestOutcome:
    """The two-sided two-sample test over values in ascending order; its effect is the statistic D, in [0, 1].

    The p-value is that of `scipy.stats.ks_2samp`: exact up to 10,000 rows a side, else asymptotic. With ties (D is then
    smaller than for continuous values) it errs on the large side.
    """
    import scipy.stats as stats

    rows, others = int(current.sum()), int(previous.sum())
    apart = float(np.abs(np.cumsum(shares(current)) - np.cumsum(shares(previous))).max())
    if max(rows, others) <= _EXACT_ROWS:
        ranks = np.arange(len(current))
        with warnings.catch_warnings():  # it warns where it has to fall back to the asymptotic formula
            warnings.simplefilter("ignore", RuntimeWarning)
            # The wrapper looks for NaN and axes, which takes longer than the test.
            test = inspect.unwrap(stats.ks_2samp)
            outcome = test(np.repeat(ranks, current), np.repeat(ranks, previous))
        return TestOutcome(float(outcome.statistic), float(outcome.pvalue), float(outcome.statistic))
    # scipy's own asymptotic formula, but from counts: `ks_2samp` takes every row.
    p_value = float(stats.kstwo.sf(apart, round(rows * others / (rows + others))))
    return TestOutcome(apart, min(max(p_value, 0.0), 1.0), apart)


def chi_squared(current: CellCounts, previous: CellCounts) -> TestOutcome | None:
    """Pearson's test that both sides have the same shares, without Yates' correction; its effect is Cramér's V.

    Cells where either side expects fewer than five rows are pooled into one (see `pool_rare`). None where that leaves
    fewer than two cells, as for an identifier: there is nothing to test.
    """
    import scipy.special as special

    table = pool_rare(current, previous)
    cells = table.shape[1]
    if cells < 2:
        return None
    total = float(table.sum())
    expected = table.sum(axis=1, keepdims=True).astype(np.float64) * table.sum(axis=0) / total
    statistic = float(((table - expected) ** 2 / expected).sum())
    return TestOutcome(statistic, float(special.chdtrc(cells - 1, statistic)), math.sqrt(statistic / total))


def new_values(current: CellCounts, previous: CellCounts) -> TestOutcome:
    """The share of the current rows whose value the control lacks, tested against rows that are dealt at random.

    `chi_squared` pools values that are too rare to be tested one by one, so it does not see that all of them are new.
    Here a value of n rows would by chance be on the current side alone as often as n draws without replacement all
    come from it. The p-value is Cantelli's bound on a sum of such values (it holds whatever the number of rows; such
    events exclude one another rather, so that their variances may be added), the effect is the share beyond chance.
    Identifiers, of one row each, are all new in any data, and no more than that: their p-value is 1, their effect 0.
    """
    import scipy.special as special

    total = current + previous
    rows, both = int(current.sum()), int(total.sum())
    alone = total[previous == 0]
    whole = total[(total > 0) & (total <= rows)].astype(np.float64)
    log = special.gammaln
    chance = np.exp(log(rows + 1) - log(rows - whole + 1) - log(both + 1) + log(both - whole + 1))
    beyond = float(alone.sum() - whole @ chance)
    variance = float(whole**2 @ (chance * (1 - chance)))
    beyond = max(beyond, 0.0) if beyond > 1e-9 * rows else 0.0  # a hair of rounding is nothing
    return TestOutcome(float(alone.sum()) / rows, variance / (variance + beyond**2) if beyond else 1.0, beyond / rows)


def pool_rare(current: CellCounts, previous: CellCounts, least: float = LEAST_EXPECTED) -> CellCounts:
    """Two rows of counts in which each side expects at least `least` in every cell: the rarer ones are one cell.

    If even that cell is too rare, it joins the smallest of the others.
    """
    table = np.stack((current, previous))
    sides = table.sum(axis=1)
    total = table.sum(axis=0)
    table, total = table[:, total > 0], total[total > 0]
    if not sides.all():
        return table[:, :0]
    share = float(sides.min() / sides.sum())
    rare = total * share < least
    kept, rest = table[:, ~rare], table[:, rare].sum(axis=1)
    if not rest.any():
        return kept
    if float(rest.sum()) * share >= least or not kept.shape[1]:
        return np.column_stack((kept, rest))
    kept[:, int(np.argmin(kept.sum(axis=0)))] += rest
    return kept


def two_proportions(current: int, rows: int, previous: int, others: int) -> TestOutcome | None:
    """The pooled two-sided z test that two shares are equal; its effect is Cohen's h, in [0, π].

    Its square is Pearson's chi² of the 2 × 2 table. Cohen, "Statistical Power Analysis", 1988, chapter 6.

    Args:
        current: Rows that have it, of the current side.
        rows: All rows of the current side.
        previous: Rows that have it, of the control.
        others: All rows of the control.

    Returns:
        None where a side has no rows.
    """
    if not rows or not others:
        return None
    p, q, pooled = current / rows, previous / others, (current + previous) / (rows + others)
    spread = math.sqrt(pooled * (1 - pooled) * (1 / rows + 1 / others))
    z = (p - q) / spread if spread else 0.0
    effect = 2 * abs(math.asin(math.sqrt(p)) - math.asin(math.sqrt(q)))
    return TestOutcome(z, math.erfc(abs(z) / math.sqrt(2)), effect)


def benjamini_hochberg(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values that bound the share of false alarms among all alarms (Benjamini & Hochberg 1995)."""
    size = len(p_values)
    order = sorted(range(size), key=lambda index: -p_values[index])
    adjusted, least = [0.0] * size, 1.0
    for above, index in enumerate(order):
        least = min(least, p_values[index] * size / (size - above))
        adjusted[index] = least
    return adjusted


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values that bound the chance of any false alarm (Holm 1979); stricter."""
    size = len(p_values)
    order = sorted(range(size), key=lambda index: p_values[index])
    adjusted, largest = [0.0] * size, 0.0
    for below, index in enumerate(order):
        largest = max(largest, min(p_values[index] * (size - below), 1.0))
        adjusted[index] = largest
    return adjusted
