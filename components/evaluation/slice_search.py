"""The search for slices that are worse: crosses counted in tables, bounds, and what strong evidence leaves."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from .cut_columns import CutColumn, RowMask
from .rows import Floats
from .slice_evidence import Evidence, effect_from, effect_of, powers_of, welch
from .worse_slices import WorseSlice

_KEPT: Final = 1_000  # of the slices of the same columns

_Cross: TypeAlias = tuple[tuple[int, int], ...]
"""A slice: column and value, by their numbers."""


class SliceSearch:
    """The slices of columns, and those of them that are worse.

    A row's loss enters as x = w·(loss − mean loss), scaled to a variance of 1; its mean is 0. A slice is worse than the
    rest where its Σx is too large for chance.

    Attributes:
        columns: What slices are made of.
        counts: For each number of columns, how many slices there could be: an upper bound, known before the search.
    """

    def __init__(
        self, columns: Sequence[CutColumn], rows: int, max_columns: int, min_examples: int, level: float, effect: float
    ) -> None:
        self.columns = columns
        self.rows = rows
        self.min_examples = min_examples
        self.min_effect = effect
        self.level = level
        self.max_columns = max(min(max_columns, len(columns)), 1)
        sizes = [len(column.words) for column in columns]
        self.counts = [
            sum(math.prod(some) for some in itertools.combinations(sizes, width))
            for width in range(1, self.max_columns + 1)
        ]
        self._empty: set[tuple[int, ...]] = set()  # sets of columns no cross of which has enough rows

    def alpha(self, width: int) -> float:
        """The p-value that a slice of so many columns must not exceed."""
        return self.level / self.max_columns / max(self.counts[width - 1], 1)

    def worst(self, loss: Floats, weight: Floats) -> Iterator[WorseSlice]:
        """The slices that are worse; each is tested on what those before it leave."""
        left = loss.copy()
        named: list[_Cross] = []
        while True:
            x = weight * (left - np.average(left, weights=weight))
            x = x - x.mean()
            spread = float(x.std())
            if not spread > 1e-12 * float(np.abs(left).max()) * float(weight.max()):
                return
            best = self._best(Evidence(x / spread, loss, weight), named)
            if best is None:
                return
            cross, p_value = best
            yield self._finding(cross, self.rows_of(cross), p_value, loss, weight)
            named.append(cross)
            self._level(left, weight, named)

    def _level(self, left: Floats, weight: Floats, named: Sequence[_Cross]) -> None:
        """Give the rows of each slice the mean loss of the rows in none of them, or that are not in it."""
        slices = [self.rows_of(cross) for cross in named]
        others = ~np.logical_or.reduce(slices)
        for rows in slices:
            rest = others if weight[others].any() else ~rows
            inner = np.average(left[rows], weights=weight[rows])
            left[rows] -= inner - np.average(left[rest], weights=weight[rest])

    def rows_of(self, cross: _Cross) -> RowMask:
        """Whether each row is in the slice."""
        rows = np.ones(self.rows, dtype=np.bool_)
        for column, which in cross:
            rows &= self.columns[column].rows(which)
        return rows

    def _finding(self, cross: _Cross, rows: RowMask, p_value: float, loss: Floats, weight: Floats) -> WorseSlice:
        words = [self.columns[column].words[which] for column, which in cross]
        inner, rest = (float(np.average(loss[some], weights=weight[some])) for some in (rows, ~rows))
        return WorseSlice(
            ", ".join(text for text, _ in words),
            " AND ".join(sql for _, sql in words),
            tuple(self.columns[column].name for column, _ in cross),
            int(rows.sum()),
            float(weight[rows].sum() / weight.sum()),
            inner,
            rest,
            effect_of(rows, loss, weight),
            p_value,
        )

    def _best(self, evidence: Evidence, named: Sequence[_Cross]) -> tuple[_Cross, float] | None:
        """The slice of the strongest evidence that passes all tests and is not named yet; its p-value, corrected."""
        candidates = [item for width in range(1, self.max_columns + 1) for item in self.candidates(evidence, width)]
        # Of the same rows, the slice of the fewest columns.
        candidates.sort(key=lambda item: (-round(item[0], 9), len(item[1])))
        for _, cross in candidates:
            p_value = None if cross in named else self._p_value(cross, evidence)
            if p_value is not None:
                simplest = self._simplest(cross, p_value, evidence)
                return (cross, p_value) if simplest[0] in named else simplest
        return None

    def _p_value(self, cross: _Cross, evidence: Evidence) -> float | None:
        """Corrected for all slices; None where it is not small enough, or the effect not large enough."""
        rows, x = self.rows_of(cross), evidence.x
        powers, rest = powers_of(x[rows]), powers_of(x[~rows])
        by_welch, effect_left = welch(powers, rest)
        p_value = max(float(by_welch), evidence.permutation.p_value(int(powers[0]), float(powers[1])))
        effect = min(float(effect_left), effect_of(rows, evidence.loss, evidence.weight))
        alpha = self.alpha(len(cross))
        return p_value * self.level / alpha if p_value <= alpha and effect >= self.min_effect else None

    def _simplest(self, cross: _Cross, p_value: float, evidence: Evidence) -> tuple[_Cross, float]:
        """The slice of fewer columns around a cross, where the cross is not clearly worse than the rest of it."""
        rows, x = self.rows_of(cross), evidence.x
        parents = []
        for parent in itertools.combinations(cross, len(cross) - 1) if len(cross) > 1 else ():
            rest = self.rows_of(parent) & ~rows
            apart = float(welch(powers_of(x[rows]), powers_of(x[rest]))[0]) if rest.sum() > 1 else 1.0
            if apart > self.level / max(self.counts[0], 1):
                parents.append((-apart, parent))
        for _, parent in sorted(parents):
            corrected = self._p_value(parent, evidence)
            if corrected is not None:
                return self._simplest(parent, corrected, evidence)
        return cross, p_value

    def candidates(self, evidence: Evidence, width: int) -> Iterator[tuple[float, _Cross]]:
        """Slices of so many columns that pass all but the permutation test, and the z-scores of their Σx.

        Of the slices of the same columns, those with the largest z-scores, `_KEPT` at most.
        """
        x, alpha = evidence.x, self.alpha(width)
        least = -float(ndtri(alpha))
        alive = [np.flatnonzero(_reach(column, x, self.min_examples) >= least) for column in self.columns]
        for numbers in itertools.combinations(range(len(self.columns)), width):
            if not all(len(alive[number]) for number in numbers) or self._is_empty(numbers):
                continue
            columns = [self.columns[number] for number in numbers]
            shape = [column.cells for column in columns]
            cell = columns[0].codes.astype(np.intp)
            for column in columns[1:]:
                cell *= column.cells
                cell += column.codes
            ranges = [column.ranges[:, alive[number]] for number, column in zip(numbers, columns, strict=True)]

            def sums(weights: Floats | None) -> Floats:
                return _sums(np.bincount(cell, weights, math.prod(shape)).reshape(shape), ranges)  # noqa: B023

            n = sums(None)
            enough = (n >= self.min_examples) & (n <= self.rows - self.min_examples)
            if not enough.any():
                if all(len(alive[number]) == len(self.columns[number].words) for number in numbers):
                    self._empty.add(numbers)
                continue
            total = sums(x)
            z = np.full(n.shape, -np.inf)
            z[enough] = total[enough] / np.sqrt(n[enough] * (1 - n[enough] / self.rows))
            hits = np.nonzero(z >= least)
            if len(hits[0]):
                powers = np.array([n[hits], total[hits], *(sums(power)[hits] for power in evidence.more_powers)])
                p_value, effect = welch(powers, evidence.powers[:, None] - powers)
                hits = tuple(axis[(p_value <= alpha) & (effect >= self.min_effect)] for axis in hits)
            if len(hits[0]):
                losses = np.array([sums(term)[hits] for term in evidence.loss_terms])
                effect = effect_from(losses, evidence.loss_sums[:, None] - losses)
                hits = tuple(axis[effect >= self.min_effect] for axis in hits)
            for hit in np.argsort(-z[hits], kind="stable")[:_KEPT].tolist():
                values = [int(axis[hit]) for axis in hits]
                yield (
                    float(z[tuple(values)]),
                    tuple((number, int(alive[number][value])) for number, value in zip(numbers, values, strict=True)),
                )

    def _is_empty(self, numbers: Collection[int]) -> bool:
        return any(some in self._empty for some in itertools.combinations(numbers, len(numbers) - 1))


def _sums(table: NDArray[Any], ranges: Sequence[Floats]) -> Floats:
    """The sums over every combination of ranges of cells, out of a table of cells."""
    for some in ranges:  # the first axis goes, and its ranges come last
        table = np.tensordot(table, some, axes=(0, 0))
    return table


def _reach(column: CutColumn, x: Floats, min_examples: int) -> Floats:
    """For each slice of a column, a bound of the z-score of any cross within it (the bound of SliceLine).

    Σx over n of its rows is at most the sum of all that are positive, and at most n times the largest. The first bound
    falls with n up to half of all rows, and rises beyond; the second rises: so the most is where both meet, or at
    the end.
    """
    rows = len(x)
    positive = np.bincount(column.codes, np.maximum(x, 0), column.cells) @ column.ranges
    count = np.bincount(column.codes, minlength=column.cells) @ column.ranges
    most = np.full(column.cells, -np.inf)
    np.maximum.at(most, column.codes, x)
    largest = np.array([most[low:high].max() for low, high in zip(column.low, column.high, strict=True)])

    def bound(n: NDArray[Any]) -> Floats:
        reach: Floats = np.minimum(positive, n * largest) / np.sqrt(n * (1 - n / rows))
        return reach

    last = np.minimum(count, rows - min_examples)
    meet = np.clip(positive / np.maximum(largest, 1e-300), min_examples, last)
    return np.maximum(bound(meet), bound(last))
