"""Scores of two classes summed up: the weight of positives and negatives at each score, or near it in large slices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .cells import Cells, distinct
from .rows import Floats, Labels, SliceRows
from .states import Leaves, MetricState

_MANTISSA: Final = 10  # bits kept of a score's distance from the nearer end
_OCTAVES: Final = 23  # distances from 1/2 down to 2^-24; closer ones share the outermost bin
_MIDDLE: Final = _OCTAVES << _MANTISSA
BINS: Final = 2 * _MIDDLE + 1
_AT_ONCE: Final = 1 << 18  # rows, for whose bins memory is not asked for anew each time
_COUNTERS: Final = 1 << 20  # of the bins of some slices, counted together
_BLOCK: Final = 1 << 14  # rows that a processor's cache holds
_SPARSE: Final = 128  # bins for each row from which on it is quicker to sort the rows than to look at each bin
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
    def _rising(self) -> NDArray[np.int64]:
        """Where positives have any weight."""
        return np.flatnonzero(self.positives != 0)  # of booleans it takes a quarter of the time

    @property
    def rises(self) -> tuple[_Masses, _Masses, Floats]:
        """Of each score at which positives have any weight that and the negatives', and Σw of the negatives below."""
        at = self._rising
        return self.positives[at], self.negatives[at], self.alarms[0] - self.alarms[at]

    @property
    def all_hits(self) -> float:
        """Σw of the positives, added up from above."""
        return float(self.hits[0])

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
        at, falls = self._rising, called[:-1] > called[1:]
        if not falls.all():
            points = np.flatnonzero(np.append(falls, True))
            hits, called = hits[points], called[points]
            at = np.flatnonzero(hits[:-1] > hits[1:])
        above = at + 1
        return hits.take(at), called.take(at), hits.take(above), called.take(above)


class SortedTally(ScoreTally):
    """The scores of rows that all weigh 1.

    Areas are computed from where the positives stand, which are few; all else once it is asked for.

    Args:
        scores: Of the rows, ascending.
        label: Of the rows.
    """

    def __init__(self, scores: Floats, label: Labels) -> None:
        self.__dict__.update(exact=True, _scores=scores, _label=label)  # the class is frozen
        self._scores: Floats
        self._label: Labels

    @cached_property
    def _new(self) -> Labels:
        """Whether each row has another score than the one before it; and last, True."""
        rows = len(self._scores)
        new = np.ones(rows + 1, dtype=np.bool_)
        np.greater(self._scores[1:], self._scores[:-1], out=new[1:rows])
        return new

    @cached_property
    def _bounds(self) -> NDArray[np.int64]:
        """The first row of each distinct score; and last, how many rows there are."""
        return np.flatnonzero(self._new)

    @cached_property
    def _spans(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Of each score of positives: how many have it, and a lower one, its first row, and that behind its last."""
        at = np.flatnonzero(self._label)
        if self._new.all():
            return np.ones(len(at), dtype=np.int64), np.arange(len(at)), at, at + 1
        score = np.cumsum(self._new).take(at) - 1
        other = np.ones(len(at) + 1, dtype=np.bool_)
        np.not_equal(score[1:], score[:-1], out=other[1 : len(at)])
        bounds = np.flatnonzero(other)  # among the positives
        below, score = bounds[:-1], score.take(bounds[:-1])
        return bounds[1:] - below, below, self._bounds.take(score), self._bounds.take(score + 1)

    @cached_property
    def weights(self) -> tuple[float, float]:
        """How many negatives there are, and how many positives."""
        positives = int(np.count_nonzero(self._label))
        return float(len(self._label) - positives), float(positives)

    @property
    def rises(self) -> tuple[_Masses, _Masses, Floats]:
        """As `ScoreTally`."""
        count, below, start, end = self._spans
        return count, end - start - count, (start - below).astype(np.float64)

    @property
    def all_hits(self) -> float:
        """How many positives there are."""
        return self.weights[1]

    @cached_property
    def steps(self) -> tuple[Floats, Floats, Floats, Floats]:
        """As `ScoreTally`."""
        count, below, start, end = (part.astype(np.float64) for part in self._spans)
        hits, rows = self.weights[1] - below, len(self._label)
        return hits, rows - start, hits - count, rows - end

    @cached_property
    def scores(self) -> Floats:
        """The distinct scores."""
        return self._scores[self._new[:-1]]

    @cached_property
    def positives(self) -> NDArray[np.int64]:
        """How many positives each score has."""
        below = np.zeros(len(self._label) + 1, dtype=np.int64)
        np.cumsum(self._label, out=below[1:])
        return np.diff(below.take(self._bounds))

    @cached_property
    def negatives(self) -> NDArray[np.int64]:
        """How many negatives each score has."""
        return np.diff(self._bounds) - self.positives


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
        add_to_bins(leaves["mass"], bin_of(rows.prediction) + BINS * rows.label, rows.weight)
        return leaves

    def add_each(self, leaves: Mapping[int, Leaves], rows: SliceRows, cells: Cells) -> None:
        """Add each row's weight to its bin in each of its slices."""
        for start in range(0, len(rows), _AT_ONCE):
            some = slice(start, start + _AT_ONCE)
            weight = None if rows.unweighted else rows.weight[some]
            self._add_some(leaves, rows.prediction[some], rows.label[some], weight, cells, cells.of[some])

    def _add_some(
        self,
        leaves: Mapping[int, Leaves],
        prediction: Floats,
        label: Labels,
        weight: Floats | None,
        cells: Cells,
        of: NDArray[np.int64],
    ) -> None:
        bins = np.empty(len(of), dtype=np.int64)
        for start in range(0, len(of), _BLOCK):
            block = slice(start, start + _BLOCK)
            np.add(bin_of(prediction[block]), BINS * label[block], out=bins[block])
        # Most models' scores are in few bins: those of many slices together then fit a processor's cache.
        occupied, position = distinct(bins, 2 * BINS)
        width = len(occupied)
        together = max(_COUNTERS // width, 1)
        for column in cells.codes.T:
            codes = [code for code in np.unique(column).tolist() if code in leaves]
            for start in range(0, len(codes), together):
                some = codes[start : start + together]
                first = np.full(cells.slices + 1, len(some) * width)  # the last is for rows in none of them
                first[some] = np.arange(len(some)) * width
                at = first[column].take(of)
                at += position
                sums = np.bincount(at, weight, minlength=(len(some) + 1) * width)
                for number, code in enumerate(some):
                    mass = leaves[code]["mass"].reshape(-1)
                    mass[occupied] += sums[number * width :][:width]

    def merge(self, left: Leaves, right: Leaves) -> Leaves:
        """Add the masses, (2, bins)."""
        left["mass"] += right["mass"]
        return left

    def finish(self, leaves: Leaves) -> ScoreTally:
        """The middles of the occupied bins as scores, with Σw of positives and negatives; not exact."""
        mass = leaves["mass"]
        occupied = np.flatnonzero((mass[0] != 0) | (mass[1] != 0))
        return ScoreTally(bin_middle(occupied), mass[1, occupied], mass[0, occupied], exact=False)

    def exact(self, rows: SliceRows) -> ScoreTally:
        """The distinct scores; the same bits for every order of the rows, since equal scores come sorted."""
        scores = rows.prediction
        if not bool((scores[1:] >= scores[:-1]).all()):
            rows = rows.take(np.argsort(scores, kind="stable"))
            scores = rows.prediction
        if rows.unweighted:
            return SortedTally(scores, rows.label)
        starts = np.flatnonzero(np.concatenate([[True], scores[1:] > scores[:-1]])[: len(scores)])
        masses = (rows.weight * rows.label, rows.weight * ~rows.label)
        positives, negatives = (np.add.reduceat(mass, starts) if len(starts) else mass for mass in masses)
        return ScoreTally(scores[starts], positives, negatives, exact=True)


def _from_above(mass: _Masses) -> Floats:
    sums = np.zeros(len(mass) + 1, dtype=mass.dtype)
    np.cumsum(mass[::-1], out=sums[-2::-1])  # of integers it takes a seventh of the time
    return sums.astype(np.float64, copy=False)


def add_to_bins(mass: Floats, bins: NDArray[np.signedinteger[Any]], weight: Floats | None) -> None:
    """Add to each bin the sum of the weights that are in it, in their order.

    Args:
        mass: Of any shape; it is changed.
        bins: (n,), positions in `mass`, flat.
        weight: (n,); None: all are 1.
    """
    flat = mass.reshape(-1)
    if len(flat) < _SPARSE * len(bins):
        flat += np.bincount(bins, weight, minlength=len(flat))
    else:
        occupied, position = np.unique(bins, return_inverse=True)
        flat[occupied] += np.bincount(position, weight, minlength=len(occupied))


def bin_of(scores: Floats) -> NDArray[np.int32]:
    """The bin of each score in [0, 1], never falling as the score rises."""
    # The bits of a positive float32, read as an integer, rise with its value: shifted right, they are the exponent and
    # the first 10 bits of the mantissa, which number bins whose width is relative to the distance.
    bits = np.minimum(scores, 1 - scores).astype(np.float32).view(np.int32)
    bits >>= 23 - _MANTISSA
    bits -= (126 - _OCTAVES) << _MANTISSA  # of 1/2, the farthest from both ends, this is _MIDDLE
    near = np.maximum(bits, 0, out=bits)
    # From the other end where scores are above 1/2: by arithmetic, as a choice for each takes ten times as long.
    return np.abs((BINS - 1) * (scores > 0.5).astype(np.int32) - near)


def bin_middle(bins: NDArray[np.int64]) -> Floats:
    """The score that stands for each bin."""
    near = np.minimum(bins, BINS - 1 - bins)
    low = ((near + ((126 - _OCTAVES) << _MANTISSA)) << (23 - _MANTISSA)).astype(np.int32)
    half = 1 << (22 - _MANTISSA)  # half a bin, in the bits that the shift dropped
    distance = np.where(near == _MIDDLE, 0.5, (low + half).astype(np.int32).view(np.float32).astype(np.float64))
    distance = np.where(near == 0, 0.0, distance)
    return np.where(bins <= _MIDDLE, distance, 1 - distance)
