"""The better answers, worked out from a case's input by numpy and scipy: what ours must give where TFT's is wrong.

Numbers are those that TFT sees, rounded to float32. What is not finite is left out of every statistic.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.integrate
import scipy.optimize
import scipy.special
import scipy.stats
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def floats(values: Sequence[Any]) -> Floats:
    """Numbers as TFT has them, None as NaN; integers as they are."""
    given = [math.nan if value is None else value for value in values]
    if any(isinstance(value, float) for value in given):
        return np.asarray(given, np.float32).astype(np.float64)
    return np.asarray(given, np.float64)


def finite(values: Floats) -> Floats:
    return values[np.isfinite(values)]


def each(value: Any, fn: Callable[[float], Any]) -> Any:
    """The function of a number, or of every number of a list; nothing of None."""
    if isinstance(value, (list, np.ndarray)):
        return [each(one, fn) for one in value]
    return fn(math.nan if value is None else value)


def scaled(x: float, values: Floats, low: float, high: float) -> float:
    """x with the smallest finite value at `low`, the largest at `high`; midway where these are the same or unknown."""
    known = finite(values)
    if math.isnan(x):
        return math.nan
    if not len(known) or known.min() == known.max():
        return (low + high) / 2
    return float(low + (np.float32(x) - known.min()) / (known.max() - known.min()) * (high - low))


def statistic(name: str, values: Floats) -> float:
    """min, max, sum, mean or var (÷ n) of the finite values."""
    known = finite(values)
    if not len(known):
        return 0.0 if name == "sum" else math.nan
    return float(getattr(np, name)(known))


def quantiles(values: Floats, buckets: int, weights: Floats | None = None) -> Floats:
    """Boundary k: the first value whose cumulative weight exceeds k/buckets of all."""
    weight = np.ones(len(values)) if weights is None else weights
    kept = np.isfinite(values) & (weight > 0)
    if not kept.any():
        return np.full(buckets - 1, math.nan)
    found, places = np.unique(values[kept], return_inverse=True)
    ends = np.cumsum(np.bincount(places, weight[kept]))
    edges: Floats = found[np.searchsorted(ends, np.arange(1, buckets) * ends[-1] / buckets, side="right")]
    return edges


def bucket(x: float, edges: Floats) -> int:
    """The number of boundaries up to x; the id after the last for NaN."""
    return len(edges) + 1 if math.isnan(x) else int((np.float32(x) >= edges).sum())


def projected(rows: Floats, k: int) -> tuple[Floats, Floats]:
    """The k directions of greatest variance, the largest entry of each positive; and how far the variances differ."""
    spread, vectors = np.linalg.eigh(np.cov(rows.T, bias=True))
    order = np.argsort(-spread)
    vectors, spread = vectors[:, order], spread[order]
    signs = np.sign(vectors[np.abs(vectors).round(9).argmax(axis=0), np.arange(vectors.shape[1])])
    apart = np.minimum(np.abs(np.diff(spread, prepend=math.inf)), np.abs(np.diff(spread, append=-math.inf)))
    return (vectors * signs)[:, :k], (apart / max(spread[0], 1e-30))[:k]


def informed(
    rows: list[tuple[list[str], Any, float]], min_diff: float, *, adjusted: bool
) -> tuple[dict[str, float], bool]:
    """What each word tells about the label, in bits; and whether some word is just `min_diff` from independence.

    The mutual information of word and label summed over rows, shares of no row counted as a millionth; adjusted by what
    a hypergeometric distribution would share.
    """
    n = sum(weight for _, _, weight in rows)
    of_label: dict[Any, float] = {}
    of_word: dict[str, dict[Any, float]] = {}
    for words, label, weight in rows:
        of_label[label] = of_label.get(label, 0.0) + weight
        for word in words:
            of_word.setdefault(word, {})
            of_word[word][label] = of_word[word].get(label, 0.0) + weight
    found, tie = {}, False
    for word, counts in of_word.items():
        x = sum(counts.values())
        total = 0.0
        for label, y in of_label.items() if x and round(x) != round(n) else ():
            both = float(np.clip(counts.get(label, 0.0) / x, 1e-6, 1 - 1e-6)) * x
            apart = abs(x * y / n - both)
            tie |= min_diff > 0 and abs(apart - min_diff) < 1e-4
            if apart >= min_diff:
                total += both * math.log2(both * n / (x * y))
                if adjusted:
                    k = np.arange(1, int(min(x, y)) + 1)
                    chance = scipy.stats.hypergeom(int(n), int(x), int(y)).pmf(k)
                    total -= float((k * np.log2(n * k / (x * y)) * chance).sum())
        found[word] = total
    return found, tie


def l_moments(values: Floats) -> Floats:
    """The first four, unbiased: by probability-weighted moments (Hosking, 1990)."""
    x, n = np.sort(values), len(values)
    i = np.arange(n)
    b = [x.mean()]
    share = np.ones(n)
    for r in range(1, 4):
        share = share * (i - r + 1) / (n - r)
        b.append(float((share * x).mean()))
    return np.array([b[0], 2 * b[1] - b[0], 6 * b[2] - 6 * b[1] + b[0], 20 * b[3] - 30 * b[2] + 12 * b[1] - b[0]])


def tail_l_moments(left: float, right: float) -> Floats:
    """Those of the Tukey HH distribution u·exp(h·u²/2), integrated: λr = ∫ Q(F)·P*(r−1)(F) dF, shifted Legendre."""

    u = np.linspace(-60.0, 60.0, 24_001)  # tails of 0.99 still weigh exp(-18) there
    values = u * np.exp((np.where(u < 0, left, right) - 1) * u * u / 2) / math.sqrt(2 * math.pi)
    below = scipy.special.ndtr(u)
    found = [scipy.integrate.simpson(values * scipy.special.eval_sh_legendre(r, below), x=u) for r in range(4)]
    return np.asarray(found, np.float64)


def fitted(moments: Floats) -> tuple[float, float, float, float]:
    """Location, scale and tails of the Tukey HH distribution with these L-moments, by a root finder."""
    skew, kurt = moments[2] / moments[1], min(moments[3] / moments[1], 1 - 1e-5)

    def apart(tails: Any) -> list[float]:
        moments = tail_l_moments(*np.clip(tails, 0, 0.99))
        return [moments[2] / moments[1] - skew, moments[3] / moments[1] - kurt]

    found = scipy.optimize.least_squares(apart, [0.3, 0.3], bounds=(0, 0.99), xtol=1e-9)
    left, right = (float(tail) if tail > 1e-6 else 0.0 for tail in found.x)
    first = tail_l_moments(left, right)
    scale = float(moments[1] / first[1])
    return float(moments[0] - scale * first[0]), scale, left, right


def check_tails(values: Floats, location: float, scale: float, left: float, right: float) -> None:
    """That a Tukey HH distribution has the L-moments of the values."""
    moments = tail_l_moments(left, right)
    wanted = l_moments(finite(values))
    np.testing.assert_allclose(location + scale * moments[0], wanted[0], rtol=1e-3, atol=1e-3 * wanted[1])
    np.testing.assert_allclose(scale * moments[1], wanted[1], rtol=1e-3)
    np.testing.assert_allclose(moments[2:] / moments[1], wanted[2:] / wanted[1], atol=2e-3)


def gaussianized(x: float, location: float, scale: float, left: float, right: float) -> float:
    """u of x = location + scale · u·exp(h·u²/2), by Lambert's W."""
    v = (x - location) / scale
    h = left if v < 0 else right
    if h == 0 or not math.isfinite(v):
        return v
    return math.copysign(math.sqrt(float(scipy.special.lambertw(h * v * v).real) / h), v)
