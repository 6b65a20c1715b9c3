"""How sure a metric is: intervals from what it would be had other rows been drawn.

Rows are put into buckets, at random but the same in every run. The jackknife leaves out one bucket at a time
(Quenouille 1956, Tukey 1958; by groups: Efron and Stein 1981), the bootstrap draws each bucket a Poisson(1) number of
times (Chamandy et al. 2012). Both see buckets only, so that a slice of any size needs no more than one state for each.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from ...errors import InputError, suggest
from .definitions import Result

if TYPE_CHECKING:
    from ...data.rowhash import Hashes

Method: TypeAlias = Literal["jackknife", "bootstrap", "delong"]
Interval: TypeAlias = tuple[float, float] | str
"""Its two ends, or the reason why there is none."""
Counts: TypeAlias = NDArray[np.int64]

_LEAST_BUCKETS: Final = 10
_BUCKETS: Final[Mapping[str, int]] = {"jackknife": 20, "delong": 20, "bootstrap": 100}
_MOST_BUCKETS: Final = 1000


@dataclass(frozen=True)
class Confidence:
    """How intervals are computed.

    Args:
        method: "jackknife" leaves out one bucket of rows at a time; "bootstrap" draws buckets anew, with replacement;
            "delong" computes the interval of the AUC by its formula, which has no weights, and all others as the
            jackknife does.
        level: How often, over many data sets, the interval is to hold the true value.
        buckets: How many parts the rows are put into; 20, of the bootstrap 100.
        resamples: How often the bootstrap draws.
        seed: Which rows share a bucket, and what the bootstrap draws.
        looks_until: Where the metric is looked at again and again while rows are added, and each look may decide: about
            how many rows there are in the end. The interval is then wider, so that it holds the true value at all looks
            together, however many there are, as often as `level` says; it is tightest at so many rows.

    Raises:
        InputError: Another method, or a number out of range.
    """

    method: Method = "jackknife"
    level: float = 0.95
    buckets: int | None = None
    resamples: int = 200
    seed: int = 0
    looks_until: int | None = None

    def __post_init__(self) -> None:
        methods = get_args(Method)
        if self.method not in methods:
            raise InputError(
                f"Confidence: method must be one of {', '.join(methods)}, not {self.method!r}",
                fix=suggest(str(self.method), methods, "use"),
            )
        level: Any = self.level
        if isinstance(level, bool) or not isinstance(level, (int, float)) or not 0 < level < 1:
            raise InputError(f"Confidence: level must lie between 0 and 1, not {self.level!r}", fix="0.95 is usual")
        if self.buckets is None:
            object.__setattr__(self, "buckets", _BUCKETS[self.method])
        for name, least, most in (
            ("buckets", _LEAST_BUCKETS, _MOST_BUCKETS),
            ("resamples", 20, 100_000),
            ("seed", 0, 2**63 - 1),
            ("looks_until", 1, 2**63 - 1),
        ):
            number: Any = getattr(self, name)
            if name == "looks_until" and number is None:
                continue
            if isinstance(number, bool) or not isinstance(number, int) or not least <= number <= most:
                raise InputError(f"Confidence: {name} must be a whole number from {least} to {most}, not {number!r}")

    @property
    def parts(self) -> int:
        """`buckets`, as what it holds once it was checked."""
        assert self.buckets is not None
        return self.buckets

    def draws(self) -> Counts:
        """How often each bucket is in each resample, (resamples, buckets)."""
        if self.method != "bootstrap":
            return 1 - np.eye(self.parts, dtype=np.int64)
        return np.random.Generator(np.random.PCG64(self.seed)).poisson(1.0, (self.resamples, self.parts))

    def bucket_of(self, hashes: Hashes) -> NDArray[np.int16]:
        """The bucket of each row, from a hash of it; rows of one hash stay together."""
        from ...data.rowhash import mix  # late: Arrow, which building a pipeline does not load

        seed = mix(np.array([self.seed], dtype=np.uint64))
        return (mix(hashes ^ seed) % np.uint64(self.parts)).astype(np.int16)

    def interval(self, value: Result, resampled: Sequence[Result], rows: int) -> Interval:
        """The interval around a metric's value.

        value ± t·SE, with Student's t of one degree of freedom less than there are buckets or resamples, whichever are
        fewer. SE² is (g − 1)/g · Σ(θᵢ − θ̄)² over the g buckets left out, or the variance of the resamples.

        Args:
            value: Of all rows.
            resampled: Of each resample; of the jackknife only for buckets that have rows.
            rows: How many it is of.
        """
        if isinstance(value, str):
            return value
        known = np.array([each for each in resampled if not isinstance(each, str)], dtype=np.float64)
        if len(resampled) < _LEAST_BUCKETS:
            return f"rows in {len(resampled)} buckets only, of at least {_LEAST_BUCKETS}"
        if len(known) < len(resampled):
            return f"undefined in {len(resampled) - len(known)} of {len(resampled)} resamples"
        count = len(known)
        spread = float(np.square(known - known.sum() / count).sum())
        bootstrap = self.method == "bootstrap"
        error = math.sqrt(spread / (count - 1) if bootstrap else spread * (count - 1) / count)
        return self.around(value, error, (min(count, self.parts) if bootstrap else count) - 1, rows)

    def around(self, value: float, error: float, freedom: float, rows: int) -> tuple[float, float]:
        """Its ends, value ± t·error, with t of so many degrees of freedom; infinite: of the normal distribution.

        With `looks_until` = m, an asymptotic confidence sequence (Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas
        2024): for n rows value ± error·√(2·(nρ² + 1)/(nρ²)·ln(√(nρ² + 1)/α)), α being 1 − level and ρ² = (L + ln(L +
        1))/m with L = −2·ln α; times t / z, since the error is an estimate.
        """
        half = error * _quantile((1 + self.level) / 2, freedom)
        if self.looks_until is not None:
            alpha = 1 - self.level
            twice = -2 * math.log(alpha)
            ahead = max(rows, 1) * (twice + math.log(twice + 1)) / self.looks_until
            half *= math.sqrt(2 * (ahead + 1) / ahead * math.log(math.sqrt(ahead + 1) / alpha))
            half /= _quantile((1 + self.level) / 2, math.inf)
        return value - half, value + half


@cache
def _quantile(share: float, freedom: float) -> float:
    """That of Student's t; with infinite freedom of the normal distribution."""
    from scipy.special import ndtri, stdtrit  # late: half a second to import

    return float(ndtri(share) if math.isinf(freedom) else stdtrit(freedom, share))


def hash_of(start: int, columns: Sequence[NDArray[Any]]) -> Hashes:
    """A hash of each row, from its position within its shard and from its values.

    By the position rows of equal values part, and by the values rows that are first in their shards.

    Args:
        start: The position of the first row.
        columns: (n,) or (n, k), of floats, whole numbers or booleans.
    """
    from ...data.rowhash import mix  # late, as above

    hashes = mix(np.arange(start, start + len(columns[0]), dtype=np.uint64))
    for column in columns:
        for values in column.T if column.ndim == 2 else (column,):
            hashes = mix(hashes ^ (np.asarray(values, np.float64) + 0.0).view(np.uint64))
    return hashes
