"""A slice summed up: what every metric is computed from, made from the slice's rows or from a histogram of scores."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...data.aggregates.sums import ExactSum

Floats = NDArray[np.float64]
Labels = NDArray[np.bool_]

CLIP: Final = 1e-7
_MANTISSA: Final = 10  # bits kept of a score's distance from the nearer end
_OCTAVES: Final = 23  # distances from 1/2 down to 2^-24; closer ones share the outermost bin
_MIDDLE: Final = _OCTAVES << _MANTISSA
BINS: Final = 2 * _MIDDLE + 1


@dataclass(frozen=True)
class Tally:
    """The sums over one slice for one model, y in {0, 1}, p in [0, 1], w ≥ 0 (1 where examples have no weight).

    Attributes:
        rows: Examples.
        scores: Distinct scores ascending, or the middles of the occupied bins.
        positives: Σw of the positive examples at each score.
        negatives: Σw of the negative ones.
        positive_weight: Σw over y = 1.
        negative_weight: Σw over y = 0.
        true_positives: Σw over y = 1 with p above the threshold.
        false_positives: Σw over y = 0 with p above the threshold.
        weighted_prediction: Σw·p.
        weighted_loss: −Σw(y·ln p + (1−y)·ln(1−p)), p clipped to [1e-7, 1 − 1e-7].
        exact: Whether `scores` are the scores themselves. The other sums always are exact, rounded once.
    """

    rows: int
    scores: Floats
    positives: Floats
    negatives: Floats
    positive_weight: float
    negative_weight: float
    true_positives: float
    false_positives: float
    weighted_prediction: float
    weighted_loss: float
    exact: bool

    @property
    def weight(self) -> float:
        """Σw."""
        return self.positive_weight + self.negative_weight

    @property
    def weighted_label(self) -> float:
        """Σw·y."""
        return self.positive_weight


def tally_rows(scores: Floats, labels: Labels, weights: Floats | None, threshold: float) -> Tally:
    """Sum up the rows of a slice.

    The result has the same bits for every order of the rows: they are sorted first, and each sum is rounded once.
    """
    order = np.lexsort((labels, scores) if weights is None else (weights, labels, scores))
    scores, labels = scores[order], labels[order]
    mass = np.ones(len(scores)) if weights is None else weights[order]
    # No score is -1, so the first row always starts a run of equal scores.
    starts = np.flatnonzero(np.diff(scores, prepend=-1.0))
    positives = np.where(labels, mass, 0.0)
    sums = {name: math.fsum(values.tolist()) for name, values in _terms(scores, labels, mass, threshold)}
    return Tally(
        rows=len(scores),
        scores=scores[starts],
        positives=np.add.reduceat(positives, starts) if len(starts) else np.zeros(0),
        negatives=np.add.reduceat(mass - positives, starts) if len(starts) else np.zeros(0),
        exact=True,
        **sums,
    )


class Histogram:
    """The state of a slice too large to keep its scores: mass per bin and label, and the other sums exactly.

    A bin holds the scores whose distance from the nearer of 0 and 1 agrees in its exponent and 10 bits of mantissa,
    so rare and certain predictions are resolved as well as those in the middle. Without weights the state does not
    depend on the order of rows or merges; with weights the bins are float sums in the order of the merge tree.
    """

    __slots__ = ("mass", "rows", "sums")

    def __init__(self) -> None:
        self.rows = 0
        self.mass = np.zeros((2, BINS))
        self.sums = {name: ExactSum() for name in SUMS}

    def add(self, scores: Floats, labels: Labels, weights: Floats | None, threshold: float) -> None:
        """Add rows: their mass to the bins, their terms to the exact sums."""
        self.rows += len(scores)
        mass = np.ones(len(scores)) if weights is None else weights
        cells = bin_of(scores) + BINS * labels
        self.mass += np.bincount(cells, mass, minlength=2 * BINS).reshape(2, BINS)
        for name, values in _terms(scores, labels, mass, threshold):
            self.sums[name].add(values)

    def merge(self, other: Histogram) -> None:
        """Add the rows of another histogram."""
        self.rows += other.rows
        self.mass += other.mass
        for name, total in self.sums.items():
            total.merge(other.sums[name])

    def tally(self) -> Tally:
        """What the metrics are computed from."""
        occupied = np.flatnonzero(self.mass.any(axis=0))
        return Tally(
            rows=self.rows,
            scores=bin_middle(occupied),
            positives=self.mass[1, occupied],
            negatives=self.mass[0, occupied],
            exact=False,
            **{name: total.value() for name, total in self.sums.items()},
        )

    def to_json(self) -> Mapping[str, object]:
        """All but the bins: rows, and each exact sum in hexadecimal."""
        return {"rows": self.rows, "sums": {name: total.to_bytes().hex() for name, total in self.sums.items()}}

    @classmethod
    def from_json(cls, value: Mapping[str, object]) -> Histogram:
        """A histogram with empty bins and the sums that `to_json` wrote."""
        histogram = cls()
        rows, sums = value["rows"], value["sums"]
        if not isinstance(rows, int) or not isinstance(sums, Mapping):
            raise TypeError("rows and sums are missing")
        histogram.rows = rows
        histogram.sums = {name: ExactSum.from_bytes(bytes.fromhex(sums[name])) for name in SUMS}
        return histogram


SUMS: Final = (
    "positive_weight",
    "negative_weight",
    "true_positives",
    "false_positives",
    "weighted_prediction",
    "weighted_loss",
)


def _terms(scores: Floats, labels: Labels, mass: Floats, threshold: float) -> Iterator[tuple[str, Floats]]:
    above = scores > threshold
    yield "positive_weight", mass[labels]
    yield "negative_weight", mass[~labels]
    yield "true_positives", mass[labels & above]
    yield "false_positives", mass[~labels & above]
    yield "weighted_prediction", mass * scores
    clipped = np.clip(scores, CLIP, 1 - CLIP)
    yield "weighted_loss", mass * -np.log(np.where(labels, clipped, 1 - clipped))


def bin_of(scores: Floats) -> NDArray[np.int64]:
    """The bin of each score in [0, 1], never falling as the score rises."""
    # The bits of a positive float32, read as an integer, rise with its value: shifted right, they are the exponent and
    # the first 10 bits of the mantissa, which number bins whose width is relative to the distance.
    bits = np.minimum(scores, 1 - scores).astype(np.float32).view(np.int32) >> (23 - _MANTISSA)
    near = np.clip(bits.astype(np.int64) - ((126 - _OCTAVES) << _MANTISSA), 0, _MIDDLE)
    return np.where(scores <= 0.5, near, BINS - 1 - near)


def bin_middle(bins: NDArray[np.int64]) -> Floats:
    """The score that stands for each bin."""
    near = np.minimum(bins, BINS - 1 - bins)
    low = ((near + ((126 - _OCTAVES) << _MANTISSA)) << (23 - _MANTISSA)).astype(np.int32)
    half = 1 << (22 - _MANTISSA)  # half a bin, in the bits that the shift dropped
    distance = np.where(near == _MIDDLE, 0.5, (low + half).astype(np.int32).view(np.float32).astype(np.float64))
    distance = np.where(near == 0, 0.0, distance)
    return np.where(bins <= _MIDDLE, distance, 1 - distance)
