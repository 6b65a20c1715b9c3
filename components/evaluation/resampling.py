"""What metrics are computed from, bucket by bucket, and from it what they are computed from in each resample."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...data.aggregates.sums import ExactSum
from ...data.states import nested, nested_arrays
from .cells import Cells
from .classes import Decided, PerClass
from .confidence import Counts
from .rows import SliceRows
from .score_table import BINS, ScoreTable, ScoreTally, add_to_bins, bin_middle, bin_of
from .states import Leaves, MetricState, Sums

_ROWS: Final = "rows of each bucket"  # beside the sums of a state, which has names of its own
_GROUPS: Final = 4096  # of scores in a slice whose rows are at hand: their spread needs no more
_AT_ONCE: Final = 1 << 20  # numbers
_JOINED: Final = 16  # bins of the score table that are one here, as there are as many tables as buckets


@dataclass(frozen=True)
class Resamples:
    """A slice's buckets.

    Attributes:
        occupied: (buckets,), whether there are rows in it.
        draw: From how often each bucket counts in each of some draws, (draws, buckets), to what metrics are computed
            from in each of them.
    """

    occupied: NDArray[np.bool_]
    draw: Callable[[Counts], list[Any]]  # Any: what the state's metrics take

    def of(self, counts: Counts) -> Any:  # as above
        """What metrics are computed from in one draw, (buckets,)."""
        return self.draw(counts[None])[0]


def bucketed(state: MetricState, buckets: int) -> MetricState:
    """The state that gives `Resamples` of what a state gives; its rows have a `bucket`."""
    if isinstance(state, Decided):
        return Decided(state.decisions, bucketed(state.inner, buckets))
    if isinstance(state, PerClass):
        return BucketClasses(bucketed(state.inner, buckets), buckets)
    kinds: dict[str, Callable[..., MetricState]] = {"sums": BucketSums, "scores": BucketScores, "rows": BucketRows}
    return kinds[state.resampled_by](state, buckets)


@dataclass(frozen=True)
class BucketSums(MetricState):
    """Of exact sums, a float sum for each bucket, in the order of the rows and of merges."""

    by_cells = True

    inner: Sums
    buckets: int

    def init(self) -> Leaves:
        """Sums of nothing, (buckets,)."""
        return {name: np.zeros(self.buckets) for name in (*self.inner.init(), _ROWS)}

    def add(self, leaves: Leaves, rows: SliceRows) -> Leaves:
        """Add each row's terms to its bucket."""
        leaves[_ROWS] += np.bincount(rows.buckets, minlength=self.buckets)
        for term in (each.plain(rows) for each in self.inner.terms(rows)):
            values = None if term.is_count(rows) else term.weights(rows)
            leaves[term.name] += np.bincount(rows.buckets[term.of], values, minlength=self.buckets)
        return leaves

    def add_each(self, leaves: Mapping[int, Leaves], rows: SliceRows, cells: Cells) -> None:
        """Add each row's terms to its bucket in each of its slices."""
        sums = {_ROWS: cells.bucket_sums(None, slice(None), self.buckets)}
        for term in (each.plain(rows) for each in self.inner.terms(rows)):
            values = None if term.is_count(rows) else term.weights(rows)
            sums[term.name] = cells.bucket_sums(values, term.of, self.buckets)
        for code, each in leaves.items():
            for name, by_bucket in sums.items():
                each[name] += by_bucket[code]

    def merge(self, left: Leaves, right: Leaves) -> Leaves:
        """Add the float sums of each bucket, (buckets,), in the order of the merge tree."""
        return {name: left[name] + right[name] for name in left}

    def finish(self, leaves: Leaves) -> Resamples:
        """Draws of buckets, each of which gives what the exact sums give."""
        names = [name for name in leaves if name != _ROWS]
        table = np.stack([leaves[name] for name in names])
        most = max(_AT_ONCE // table.size, 1)

        def summed(draws: Counts) -> list[Any]:  # as in MetricState
            with np.errstate(over="ignore", invalid="ignore"):  # what is no number is no metric, which says so
                sums = [
                    (draws[start : start + most, None, :] * table).sum(axis=2).tolist()
                    for start in range(0, len(draws), most)
                ]
                return [self.inner.summed(dict(zip(names, row, strict=True))) for part in sums for row in part]

        return Resamples(leaves[_ROWS] > 0, summed)


@dataclass(frozen=True)
class BucketScores(MetricState):
    """Of a table of scores, one for each bucket; with coarser scores than the table's own."""

    inner: ScoreTable
    buckets: int

    def init(self) -> Leaves:
        """Empty bins, (buckets, 2, bins): negatives, positives."""
        return {"mass": np.zeros((self.buckets, 2, BINS // _JOINED + 1)), _ROWS: np.zeros(self.buckets)}

    def add(self, leaves: Leaves, rows: SliceRows) -> Leaves:
        """Add each row's weight to its bin."""
        mass = leaves["mass"]
        at = _cells(rows, bin_of(rows.prediction) // _JOINED, mass.shape[2])
        add_to_bins(mass, at, None if rows.unweighted else rows.weight)
        leaves[_ROWS] += np.bincount(rows.buckets, minlength=self.buckets)
        return leaves

    def merge(self, left: Leaves, right: Leaves) -> Leaves:
        """Add the masses, (buckets, 2, bins), and the rows of each bucket."""
        for name, sums in left.items():
            sums += right[name]
        return left

    def finish(self, leaves: Leaves) -> Resamples:
        """Draws of buckets over the occupied bins, each of which gives a table of scores."""
        mass = leaves["mass"]
        some = np.flatnonzero((mass != 0).reshape(-1, mass.shape[2]).any(axis=0))
        middles = np.minimum(some * _JOINED + _JOINED // 2, BINS - 1)
        return _of_scores(leaves[_ROWS] > 0, bin_middle(middles), mass[:, :, some])

    def exact(self, rows: SliceRows) -> Resamples:
        """The buckets, from groups of neighbouring scores of about equal size."""
        scores = rows.prediction
        if not bool((scores[1:] >= scores[:-1]).all()):
            rows = rows.take(np.argsort(scores, kind="stable"))
            scores = rows.prediction
        starts = np.flatnonzero(np.concatenate([[True], scores[1:] > scores[:-1]])[: len(scores)])
        if len(starts) > _GROUPS:
            # A group starts with the first new score after each of equally many rows.
            after = np.searchsorted(starts, np.arange(_GROUPS) * len(scores) // _GROUPS).clip(max=len(starts) - 1)
            starts = starts[after[np.diff(after, prepend=-1) > 0]]
        group = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(scores)))
        occupied = np.bincount(rows.buckets, minlength=self.buckets) > 0
        return _of_scores(occupied, scores[starts], _mass(rows, group, (self.buckets, 2, len(starts))))


def _mass(rows: SliceRows, cell: NDArray[np.signedinteger[Any]], shape: tuple[int, ...]) -> NDArray[Any]:
    """Σw by bucket, class and cell: floats, or integers where all rows weigh 1."""
    buckets, _, cells = shape
    weight = None if rows.unweighted else rows.weight
    mass: NDArray[Any] = np.bincount(_cells(rows, cell, cells), weight, minlength=buckets * 2 * cells).reshape(shape)
    return mass


def _cells(rows: SliceRows, cell: NDArray[np.signedinteger[Any]], cells: int) -> NDArray[np.signedinteger[Any]]:
    """Where each row's bucket, class and cell are in an array of (buckets, 2, cells), flat."""
    at: NDArray[np.signedinteger[Any]] = (rows.buckets * 2 + rows.label) * cells + cell
    return at


def _of_scores(occupied: NDArray[np.bool_], scores: NDArray[np.float64], mass: NDArray[Any]) -> Resamples:
    total = mass.sum(axis=0)
    counted = mass.dtype == np.int64
    # Then what is left out can be subtracted: nothing is rounded.
    whole = counted or bool((mass == np.rint(mass)).all())
    bucket, cell = np.nonzero(mass.reshape(len(mass), -1))
    filled = mass[mass != 0]
    few = 8 * len(filled) < mass.size  # as where each row has a score of its own

    def sums_of(counts: Counts, masses: NDArray[Any]) -> NDArray[Any]:
        """(2, scores)."""
        changed = np.flatnonzero(counts != 1)
        if whole and len(changed) == 1:
            sums: NDArray[Any] = total + (counts[changed[0]] - 1) * masses[changed[0]]
        elif few:
            sums = np.bincount(cell, filled * counts[bucket], minlength=total.size).reshape(total.shape)
        else:
            sums = np.einsum("b,bcs->cs", counts.astype(masses.dtype), masses)
        return sums

    def tally(counts: Counts, masses: NDArray[Any]) -> ScoreTally:
        sums = sums_of(counts, masses)
        # Integers make the curves quicker.
        negatives, positives = sums.astype(np.int64, copy=False) if counted else sums
        some = np.flatnonzero((positives + negatives) > 0)
        if len(some) == len(scores):
            return ScoreTally(scores, positives, negatives, exact=False)
        return ScoreTally(scores.take(some), positives.take(some), negatives.take(some), exact=False)

    def drawn(draws: Counts) -> list[ScoreTally]:
        # To add up many buckets is quicker in floats, to leave one out in integers.
        one_left_out = bool(((draws != 1).sum(axis=1) <= 1).all())
        masses = mass if one_left_out else mass.astype(np.float64, copy=False)
        return [tally(counts, masses) for counts in draws]

    return Resamples(occupied, drawn)


@dataclass(frozen=True)
class BucketClasses(PerClass):
    """For each class, the buckets of a state of yes or no and Σw over the class's rows in each bucket."""

    buckets: int

    def positives(self, rows: SliceRows) -> NDArray[np.float64]:
        """Σw over the rows of the class in each bucket, float64 (buckets,)."""
        positives: NDArray[np.float64] = np.bincount(
            rows.buckets, rows.weight * rows.label, minlength=self.buckets
        ).astype(np.float64)
        return positives

    def finish(self, leaves: Leaves) -> Resamples:
        """Draws of buckets; a draw gives for each class its Σw and what the inner state gives."""
        return self._joined(super().finish(leaves))

    def exact(self, rows: SliceRows) -> Resamples:
        """As `finish`, from all rows at once."""
        return self._joined(super().exact(rows))

    def _joined(self, pairs: Sequence[tuple[NDArray[np.float64], Resamples]]) -> Resamples:
        # Each row is a decision of every class, so that all have the same buckets.
        occupied = pairs[0][1].occupied if pairs else np.zeros(self.buckets, dtype=np.bool_)

        def classes(draws: Counts) -> list[Any]:
            drawn = [each.draw(draws) for _, each in pairs]
            return [
                [(float(mass @ counts), each[number]) for (mass, _), each in zip(pairs, drawn, strict=True)]
                for number, counts in enumerate(draws)
            ]

        return Resamples(occupied, classes)


@dataclass(frozen=True)
class BucketRows(MetricState):
    """Of any state, one for each bucket; where the rows are at hand, the rows themselves are drawn."""

    inner: MetricState
    buckets: int

    @property
    def keeps_rows(self) -> bool:  # type: ignore[override]  # the class's own where the state within decides
        """As the state within."""
        return self.inner.keeps_rows

    def init(self) -> Leaves:
        """No rows in any bucket: (buckets,) zeros, and no inner state yet."""
        return {_ROWS: np.zeros(self.buckets)}

    def add(self, leaves: Leaves, rows: SliceRows) -> Leaves:
        """With further rows. Names are "bucket.name"."""
        known = nested_arrays(leaves)
        for bucket, part in rows.by_bucket:
            leaves[_ROWS][bucket] += len(part)
            before = known.get(str(bucket)) or self.inner.init()
            leaves |= nested(str(bucket), self.inner.add(before, part))
        return leaves

    def merge(self, left: Leaves, right: Leaves) -> Leaves:
        """Merge the inner states bucket by bucket; a bucket that one side lacks is the other's."""
        left[_ROWS] = left[_ROWS] + right[_ROWS]
        mine = nested_arrays(left)
        for bucket, theirs in nested_arrays(right).items():
            left |= nested(bucket, self.inner.merge(mine[bucket], theirs) if bucket in mine else theirs)
        return left

    def finish(self, leaves: Leaves) -> Resamples:
        """Draws of buckets, each merged anew from copies of the inner states, as often as drawn."""
        known = nested_arrays(leaves)
        parts = [known.get(str(bucket), {}) for bucket in range(self.buckets)]

        def joined(counts: Counts) -> Any:
            drawn = [
                _copied(part) for part, count in zip(parts, counts.tolist(), strict=True) for _ in range(count) if part
            ]
            return self.inner.finish(reduce(self.inner.merge, drawn, self.inner.init()))

        return Resamples(leaves[_ROWS] > 0, lambda draws: [joined(counts) for counts in draws])

    def exact(self, rows: SliceRows) -> Resamples:
        """Draws of buckets, each computed anew from the rows, repeated as often as drawn."""
        bucket = rows.buckets
        occupied = np.bincount(bucket, minlength=self.buckets) > 0

        def drawn(counts: Counts) -> Any:
            return self.inner.exact(rows.take(np.repeat(np.arange(len(rows)), counts[bucket])))

        return Resamples(occupied, lambda draws: [drawn(counts) for counts in draws])


def _copied(leaves: Leaves) -> Leaves:
    """Leaves that `merge` may change."""
    ours = (ExactSum, np.ndarray)  # which need none of deepcopy's care
    return {name: leaf.copy() if isinstance(leaf, ours) else deepcopy(leaf) for name, leaf in leaves.items()}
