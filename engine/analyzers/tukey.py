"""L-moments of a column, and the Tukey HH distribution that has them: how `ops.scale_to_gaussian` is fitted.

L-moments: Hosking, "L-moments", J. R. Stat. Soc. B 52, 1990 (the unbiased sample ones). Their form for Tukey's HH:
Headrick and Pant, "Characterizing Tukey h and hh-distributions through L-moments and the L-correlation", ISRN Applied
Mathematics, 2012. The alternating search is TensorFlow Transform's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import numpy as np

from ...data.aggregates.tables import NumberTable
from .keyed import elementwise_if_wide, read_each
from .kinds import AnalyzerKind

_GAUSSIAN: Final = 0.1226017  # L-kurtosis of a normal distribution
_FEWEST: Final = 8
_ROUNDS: Final = 20
_HALVINGS: Final = 11
_CLOSE: Final = 1e-6


def l_moments(table: NumberTable | None) -> tuple[float, float, float, float]:
    """The first four sample L-moments; 0 where there are too few values for one."""
    if table is None:
        return 0.0, 0.0, 0.0, 0.0
    n = table.total
    values = table.values.astype(np.float64)
    centre = float((values * (table.counts / n)).sum())
    ends = np.cumsum(table.counts).astype(np.float64)
    b = [0.0] * 4
    for r in range(min(4, n)):  # b_r = Σ x · [C(end, r+1) − C(start, r+1)] / ((r+1) · C(n, r+1))
        share = np.ones(len(ends))
        for step in range(r + 1):
            share *= np.maximum(ends - step, 0) / (n - step)
        b[r] = float(((values - centre) * np.diff(share, prepend=0.0)).sum()) / (r + 1)
    second = 2 * b[1] - b[0] if n > 1 else 0.0
    third = 6 * b[2] - 6 * b[1] + b[0] if n > 2 else 0.0
    fourth = 20 * b[3] - 30 * b[2] + 12 * b[1] - b[0] if n > 3 else 0.0
    return centre + b[0], second, third, fourth


def tukey_parameters(table: NumberTable | None) -> tuple[float, float, float, float]:
    """Location, scale, and the left and right tail parameters h, both 0 where the tails are no longer than normal.

    Fewer than 8 values do not show the tails, which then count as normal.
    """
    first, second, third, fourth = l_moments(table)
    if second <= 0 or table is None or table.total < _FEWEST:
        return first, 1.0, 0.0, 0.0
    left, right = _tails(third / second, fourth / second)
    mean, scale = _mean_and_scale(left, right)
    return first - second / scale * mean, second / scale, left, right


def _mean_and_scale(left: float, right: float) -> tuple[float, float]:
    c = 1 / math.sqrt(2 * math.pi)
    mean = c * (1 / (left - 1) + 1 / (1 - right))
    top = (1 - left) * math.sqrt(2 - left) + (1 - right) * math.sqrt(2 - right)
    return mean, c * top / ((1 - left) * (1 - right) * math.sqrt((2 - left) * (2 - right)))


def _skewness(left: float, right: float) -> float:
    def part(a: float, b: float) -> float:
        return 12 * math.sqrt(2 - a) * (b - 2) * (b - 1) * math.atan(1 / math.sqrt(2 - a))

    top = part(left, right) - math.pi * (left - right) * (left - 2) * (right - 2) - part(right, left)
    return top / (2 * math.pi * math.sqrt((2 - left) * (2 - right)) * (_minor(left) + _minor(right)))


def _kurtosis(left: float, right: float) -> float:
    a, b = 4 - left, 1 - left
    wide = math.sqrt(a * (2 - left) * b * (2 - right))
    first = right * wide - 2 * math.sqrt(a * b) - (left * (left - 3) * math.sqrt(a * b) + wide)
    second = 30 * (left - 1) * math.sqrt(a * (2 - left) * (2 - right) / b) * (right - 1)
    second *= math.atan(math.sqrt(1 + 2 / (left - 4)))
    third = 30 * (left - 2) * math.sqrt(a * b) * (left - 1) * math.atan(math.sqrt(1 + 2 / (right - 4)))
    return (6 * math.pi * first + second + third) / (
        math.pi * math.sqrt(a * (2 - left) * b) * (_minor(left) + _minor(right))
    )


def _minor(h: float) -> float:
    return (h - 1) * math.sqrt(2 - h)


def _bisect(error: Callable[[float], float], low: float, high: float) -> tuple[float, float]:
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        residual = error(middle)
        low, high = (middle, high) if residual < 0 else (low, middle)
        if abs(residual) < _CLOSE or high - low < _CLOSE:
            break
    return low, high


def _tails(skewness: float, kurtosis: float) -> tuple[float, float]:
    """The left and right h of the HH distribution with that L-skewness and L-kurtosis.

    With h the right parameter and h − delta the left one, L-skewness rises with delta and L-kurtosis with h, so each is
    solved by bisection with the other fixed, in turn. A round does so twice, and keeps first the upper and then the
    lower ends of the brackets: `least` and `most` hold those of (h, delta), which the rounds narrow.
    """
    if kurtosis < _GAUSSIAN:
        return 0.0, 0.0
    if skewness < 0:
        right, left = _tails(-skewness, kurtosis)
        return left, right
    kurtosis = min(kurtosis, 1 - 1e-5)
    h = start = 3 - 1 / math.cos(math.pi / 15 * (kurtosis - 6))  # exact where the skewness is 0
    delta = 0.0
    least, most = [start, 0.0], [1 - 1e-7, start]
    before = (0.0, 0.0)
    for _ in range(_ROUNDS):
        bracketed = False
        if _skewness(h - most[1], h) > skewness:
            bracketed = True
            _, delta = _bisect(lambda d, h=h: _skewness(h - d, h) - skewness, least[1], most[1])  # type: ignore[misc]
            most[1] = delta
        else:
            delta = least[1] = most[1]
        low, high = _bisect(lambda r, d=delta: _kurtosis(r - d, r) - kurtosis, least[0], most[0])  # type: ignore[misc]
        if bracketed:
            h = most[0] = high
            delta, _ = _bisect(lambda d, h=h: _skewness(h - d, h) - skewness, least[1], most[1])  # type: ignore[misc]
            least[1] = delta
            h, _ = _bisect(lambda r, d=delta: _kurtosis(r - d, r) - kurtosis, least[0], most[0])  # type: ignore[misc]
            least[0] = h
        else:
            h = least[0] = most[1] = low
        errors = (_skewness(h - delta, h) - skewness, _kurtosis(h - delta, h) - kurtosis)
        moved = (h - before[0], delta - before[1])
        before = (h, delta)
        if max(map(abs, errors)) < _CLOSE or max(map(abs, moved)) < _CLOSE:
            break
    return h - delta, h


ANALYZERS: Final = {
    "tukey": AnalyzerKind(
        elementwise_if_wide("numbers"),
        lambda params, state: read_each(state, lambda numbers: list(tukey_parameters(numbers.table()))),
    ),
}
