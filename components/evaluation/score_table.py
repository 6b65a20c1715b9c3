"""Scores of two classes summed up: the weight of positives and negatives at each score, or near it in large slices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .cells import Cells
from .rows import Floats, SliceRows
from .states import Leaves, MetricState

_MANTISSA: Final = 10  # bits kept of a score's distance from the nearer end
_OCTAVES: Final = 23  # distances from 1/2 down to 2^-24; closer ones share the outermost bin
_MIDDLE: Final = _OCTAVES << _MANTISSA
BINS: Final = 2 * _MIDDLE + 1
_TOGETHER: Final = 16  # slices whose bins are counted together
_BLOCK: Final = 1 << 14  # rows that a processor's cache holds
_Masses: TypeAlias = NDArray[np.float64] | NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class ScoreTally:
    """The scores of a slice.

    Attributes:
        scores: Distinct scores ascending, or the middles of the occupied bins.
        positives: Σw of the positive examples at each score; integers where rows at hand all weigh 1.
        negatives: Σw of the negative ones.
        exact: Whether `scores` are the scores themselves.
    """

    scores: Floats
    positives: _Masses
    negatives: _Masses
    exact: bool

    @cached_property
    def weights(self) -> tuple[float, float]:
        """Σw of all negatives, and of all positives."""
        return float(self.negatives.sum()), float(self.positives.sum())

    @cached_property
    def rises(self) -> NDArray[np.int64]:
        """Where positives have any weight."""
        return np.flatnonzero(self.positives != 0)  # of booleans it takes a quarter of the time

    @property
    def both_classes(self) -> bool:
        """Whether positives and negatives have any weight."""
        return all(self.weights)

    @cached_property
    def hits(self) -> Floats:
        """Σw of the positives at or above each score, and last, above all: 0."""
        return _from_above(self.positives)

    @cached_property
    def alarms(self) -> Floats:
        """Likewise of the negatives."""
        return _from_above(self.negatives)

    @cached_property
    def steps(self) -> tuple[Floats, Floats, Floats, Floats]:
        """The points of the curve where the weight of the positives changes, and for each the next one above it.

        Σw of the positives and of all at or above each such score, and likewise at or above the next score that has any
        weight; above all: 0.
        """
        hits, called = self.hits, self.hits + self.alarms
        at, falls = self.rises, called[:-1] > called[1:]
        if not falls.all():
            points = np.flatnonzero(np.append(falls, True))
            hits, called = hits[points], called[points]
            at = np.flatnonzero(hits[:-1] > hits[1:])
        above = at + 1
        return hits.take(at), called.take(at), hits.take(above), called.take(above)


@dataclass(frozen=True)
class ScoreTable(MetricState):
    """One table for every curve: exact where the rows are at hand, else a histogram.

    A bin of the histogram holds the scores whose distance from the nearer of 0 and 1 agrees in its exponent and 10 bits
    of mantissa, so rare and certain predictions are resolved as well as those in the middle. Without weights it does
    not depend on the order of rows or merges; with weights the bins are float sums in the order of the merge tree.
    """

    resampled_by = "scores"
    any_order = True
    by_cells = True
    exact_by_cells = False

    def init(self) -> Leaves:
        """Empty bins, (2, bins): negatives, positives."""
        return {"mass": np.zeros((2, BINS))}

    def add(self, leaves: Leaves, rows: SliceRows) -> Leaves:
        """Add each row's weight to its bin."""
        cells = bin_of(rows.prediction) + BINS * rows.label
        leaves["mass"] += np.bincount(cells, rows.weight, minlength=2 * BINS).reshape(2, BINS)
        return leaves

    def add_each(self, leaves: Mapping[int, Leaves], rows: SliceRows, cells: Cells) -> None:
        """Add each row's weight to its bin in each of its slices."""
        weight = None if rows.unweighted else rows.weight
        blocks = [slice(start, start + _BLOCK) for start in range(0, len(rows), _BLOCK)]
        bins = np.empty(len(rows), dtype=np.int32)
        for block in blocks:
            bins[block] = bin_of(rows.prediction[block]) + BINS * rows.label[block]
        at = np.empty(len(rows), dtype=np.int64)
        for column in cells.codes.T:
            codes = [code for code in np.unique(column).tolist() if code in leaves]
            for start in range(0, len(codes), _TOGETHER):
                some = codes[start : start + _TOGETHER]
                first = np.full(cells.slices + 1, len(some) * 2 * BINS)  # the last is for rows in none of them
                first[some] = np.arange(len(some)) * 2 * BINS
                begin = first[column]
                for block in blocks:
                    np.add(begin.take(cells.of[block]), bins[block], out=at[block])
                sums = np.bincount(at, weight, minlength=(len(some) + 1) * 2 * BINS)
                for number, code in enumerate(some):
                    leaves[code]["mass"] += sums[number * 2 * BINS :][: 2 * BINS].reshape(2, BINS)

    def merge(self, left: Leaves, right: Leaves) -> Leaves:
        """Add the masses, (2, bins)."""
        left["mass"] += right["mass"]
        return left

    def finish(self, leaves: Leaves) -> ScoreTally:
        """The middles of the occupied bins as scores, with Σw of positives and negatives; not exact."""
        mass = leaves["mass"]
        occupied = np.flatnonzero(mass.any(axis=0))
        return ScoreTally(bin_middle(occupied), mass[1, occupied], mass[0, occupied], exact=False)

    def exact(self, rows: SliceRows) -> ScoreTally:
        """The distinct scores; the same bits for every order of the rows, since equal scores come sorted."""
        scores = rows.prediction
        rising = scores[1:] > scores[:-1]
        if not rising.all() and not bool((scores[1:] >= scores[:-1]).all()):
            rows = rows.take(np.argsort(scores, kind="stable"))
            scores = rows.prediction
            rising = scores[1:] > scores[:-1]
        starts = np.flatnonzero(np.concatenate([[True], rising])[: len(scores)])
        if rows.unweighted:
            ends = np.append(starts[1:], len(scores))[: len(starts)]
            positives = np.diff(np.cumsum(rows.label, dtype=np.int64)[ends - 1], prepend=0)
            negatives = np.diff(ends, prepend=0) - positives
        else:
            masses = (np.where(rows.label, rows.weight, 0), np.where(rows.label, 0, rows.weight))
            positives, negatives = (np.add.reduceat(mass, starts) if len(starts) else mass for mass in masses)
        if len(starts) < len(scores):
            scores = scores[starts]
        return ScoreTally(scores, positives, negatives, exact=True)


def _from_above(mass: _Masses) -> Floats:
    sums = np.zeros(len(mass) + 1, dtype=mass.dtype)
    np.cumsum(mass[::-1], out=sums[-2::-1])  # of integers it takes a seventh of the time
    return sums.astype(np.float64, copy=False)


def bin_of(scores: Floats) -> NDArray[np.int32]:
    """The bin of each score in [0, 1], never falling as the score rises."""
    # The bits of a positive float32, read as an integer, rise with its value: shifted right, they are the exponent and
    # the first 10 bits of the mantissa, which number bins whose width is relative to the distance.
    bits = np.minimum(scores, 1 - scores).astype(np.float32).view(np.int32)
    bits >>= 23 - _MANTISSA
    bits -= (126 - _OCTAVES) << _MANTISSA  # of 1/2, the farthest from both ends, this is _MIDDLE
    near = np.maximum(bits, 0, out=bits)
    return np.where(scores <= 0.5, near, BINS - 1 - near)


def bin_middle(bins: NDArray[np.int64]) -> Floats:
    """The score that stands for each bin."""
    near = np.minimum(bins, BINS - 1 - bins)
    low = ((near + ((126 - _OCTAVES) << _MANTISSA)) << (23 - _MANTISSA)).astype(np.int32)
    half = 1 << (22 - _MANTISSA)  # half a bin, in the bits that the shift dropped
    distance = np.where(near == _MIDDLE, 0.5, (low + half).astype(np.int32).view(np.float32).astype(np.float64))
    distance = np.where(near == 0, 0.0, distance)
    return np.where(bins <= _MIDDLE, distance, 1 - distance)
