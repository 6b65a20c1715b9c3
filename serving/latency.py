"""The buckets that latencies are counted in, by their upper ends in seconds."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Final

BUCKETS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Those of the metrics."""
FINE_BUCKETS: Final = tuple(50e-6 * 1.15**index for index in range(100))
"""Those of guards, from 50 µs to a minute: a percentile is at most 15 % above the true one."""


def cumulated(buckets: Sequence[int], unit: float) -> list[tuple[str, float]]:
    """Each upper end of `BUCKETS`, times a unit, and how many took no longer: what Prometheus's histograms hold."""
    ends = [*(str(end * unit) for end in BUCKETS), "+Inf"]
    return list(zip(ends, accumulate(buckets), strict=True))
