"""TFDV's histogram and its Jensen–Shannon divergence of numbers, so that thresholds tuned there mean the same here.

TFDV 1.16 draws its STANDARD histogram from a thousand quantiles, which smears up to a thousandth of the rows over the
gap between two values; the same quantiles read off a value table give the same histogram. One thing differs: TFDV puts
the NaN and the infinities of the two sides into cells that never match, so that equal data with NaN looks shifted. Here
they are cells like any other.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..aggregates.tables import NumberTable, bucket_edges
from .measures import jensen_shannon

BUCKETS: Final = 10
QUANTILES: Final = 1000

Floats = NDArray[np.float64]


def tfdv_histogram(table: NumberTable) -> tuple[Floats, Floats]:
    """Edges (11) and rows (10, not whole) of ten buckets of equal width; one value gives one bucket without width.

    A value that is an edge counts to the bucket below it, as in TFDV (its documentation says above).

    Args:
        table: At least one finite number.
    """
    values = table.values.astype(np.float64)
    rows = np.cumsum(table.counts)
    total = int(rows[-1])
    if values[0] == values[-1]:
        return values[[0, -1]], np.array([float(total)])
    # The value at each of the ranks ceil(j · n / 1000), and how many of these ranks it holds.
    ranks = np.maximum(-(-np.arange(QUANTILES + 1) * total // QUANTILES), 1)
    hits = np.bincount(np.searchsorted(rows, ranks), minlength=len(values))
    known = np.flatnonzero(hits)
    marks, below = values[known], rows[known].astype(np.float64)
    # A value's rows lie in as many equal steps as it holds ranks; the first is spread over the gap before the value.
    steps = np.diff(below, prepend=0.0) / hits[known]
    edges = bucket_edges(float(values[0]), float(values[-1]), BUCKETS)
    inner = edges[1:-1]
    left = np.minimum(np.searchsorted(marks, inner, side="right") - 1, len(marks) - 2)
    scale = np.abs(values[[0, -1]]).max()  # so that no difference overflows or vanishes
    part = (inner / scale - marks[left] / scale) / (marks[left + 1] / scale - marks[left] / scale)
    at = np.concatenate(([0.0], below[left] + part * steps[left + 1], [float(total)]))
    return edges, np.diff(at)


def tfdv_jensen_shannon(
    current: tuple[Floats, Floats] | None,
    previous: tuple[Floats, Floats] | None,
    odd_current: Floats,
    odd_previous: Floats,
) -> float:
    """Jensen–Shannon divergence in bits over the union of both histograms' edges, rows even within a bucket.

    Args:
        current: From `tfdv_histogram`; None where there is no finite number.
        previous: Likewise.
        odd_current: Rows of the cells outside the histogram (NaN, infinities); the same cells on both sides.
        odd_previous: Likewise.
    """
    sides = [side for side in (current, previous) if side is not None]
    edges = np.unique(np.concatenate([side[0] for side in sides])) if sides else np.zeros(0)
    points = np.unique([side[0][0] for side in sides if side[0][0] == side[0][-1]])

    def cells(side: tuple[Floats, Floats] | None, odd: Floats) -> Floats:
        within, at = np.zeros(max(len(edges) - 1, 0)), np.zeros(len(points))
        if side is not None and side[0][0] == side[0][-1]:
            at[points == side[0][0]] = side[1].sum()
        elif side is not None:
            within = np.diff(np.interp(edges, side[0], np.concatenate(([0.0], np.cumsum(side[1])))))
        return np.concatenate((within, at, odd))

    return jensen_shannon(cells(current, odd_current), cells(previous, odd_previous))
