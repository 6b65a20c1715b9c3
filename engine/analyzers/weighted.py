"""Weighted numbers: how often each (value, weight) occurs, and quantiles by weight."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...data.aggregates.sketches import QuantileSketch
from ...data.aggregates.tables import NumberTable
from ...data.states import frame, read_columns, unframe, write_columns
from .keyed import PER_KEY, Keyed
from .kinds import StateMaker
from .numbers import Numbers
from .states import ColumnsByRole, numbers_of, weights_of

_EXACT: Final = 1 << 20  # distinct pairs of a value and its weight, where no limit is given
_PENDING: Final = 16
_STEP: Final = 2.0**-16  # what a weight counts in once a sketch takes over

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
Pairs = tuple[Floats, Floats, Counts]


class WeightedNumbers:
    """Exact up to `limit` distinct pairs of value and weight; then a sketch, where weights count in steps of 2^-16."""

    def __init__(self, weight_name: str, limit: int | None = None) -> None:
        self.weight_name = weight_name
        self.limit = limit
        self.pairs: list[Pairs] = []
        self.rest = Numbers()  # only its sketch is used

    def add(self, rows: ColumnsByRole) -> None:
        """Take in the present, finite values with a weight above 0."""
        flat = rows.flat()
        assert flat.weight is not None
        weights = weights_of(flat.weight, self.weight_name)
        for column in flat.values:
            values = numbers_of(column).astype(np.float64, copy=False) + 0.0
            kept = np.isfinite(values)
            self.take(np.column_stack([values[kept], weights[kept]]))

    def take(self, values: NDArray[Any]) -> None:
        """Take in finite values and their weights, as float64[n, 2]; what has no weight is left out."""
        numbers, weights = values[values[:, 1] > 0].T
        if len(numbers):
            self._take(_merged([(numbers, weights, np.ones(len(numbers), np.int64))]))

    def _take(self, pairs: Pairs) -> None:
        if self.rest.sketch is not None:
            self.rest.sketch.add(_in_steps(pairs))
            return
        self.pairs.append(pairs)
        if len(self.pairs) >= _PENDING:
            self.compact()

    def merge(self, other: WeightedNumbers) -> None:
        """Add the pairs of other rows; where either side has a sketch, all becomes one."""
        if other.rest.sketch is not None:
            self._to_sketch().merge(other.rest.sketch)
        for pairs in other.pairs:
            self._take(pairs)

    def compact(self) -> None:
        """Merge the pairs that wait into one table; above `limit` distinct pairs it becomes a sketch."""
        if self.pairs:
            self.pairs = [_merged(self.pairs)]
            if len(self.pairs[0][0]) > (_EXACT if self.limit is None else self.limit):
                self._to_sketch()

    def _to_sketch(self) -> QuantileSketch:
        if self.rest.sketch is None:
            self.rest.sketch = QuantileSketch()
        for pairs in self.pairs:
            self.rest.sketch.add(_in_steps(pairs))
        self.pairs = []
        return self.rest.sketch

    def quantiles(self, buckets: int) -> list[float]:
        """Boundary i is the first value at which the cumulative weight exceeds i/buckets of all weight; NaN for none.

        For whole weights that is what `Numbers.quantiles` gives of each value repeated as often as its weight says.
        """
        self.compact()
        if self.rest.sketch is not None:
            return self.rest.quantiles(buckets)
        if not self.pairs:
            return [math.nan] * (buckets - 1)
        values, weights, counts = self.pairs[0]
        starts = np.flatnonzero(np.concatenate(([True], values[1:] != values[:-1])))
        # Float sums, but over pairs that are distinct and sorted: the order of the rows does not show.
        ends = np.cumsum(np.add.reduceat(weights * counts, starts))
        places = np.arange(1, buckets) * ends[-1] / buckets
        boundaries: list[float] = values[starts][np.searchsorted(ends, places, side="right")].tolist()
        return boundaries

    def to_bytes(self) -> bytes:
        """The pairs as Arrow IPC, then the sketch."""
        self.compact()
        values, weights, counts = self.pairs[0] if self.pairs else (np.zeros(0), np.zeros(0), np.zeros(0, np.int64))
        columns = {"value": pa.array(values), "weight": pa.array(weights), "count": pa.array(counts)}
        return frame([write_columns(columns), self.rest.to_bytes()])

    def load(self, data: bytes) -> None:
        """Become the state that `to_bytes` wrote."""
        body, rest = unframe(data)
        values, weights, counts = (column.to_numpy() for column in read_columns(body))
        if len(values):
            self.pairs = [(values, weights, counts)]
        self.rest.load(rest)


def _merged(parts: list[Pairs]) -> Pairs:
    values, weights, counts = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    order = np.lexsort((weights, values))
    values, weights, counts = values[order], weights[order], counts[order]
    changes = (values[1:] != values[:-1]) | (weights[1:] != weights[:-1])
    starts = np.flatnonzero(np.concatenate(([True], changes)))
    return values[starts], weights[starts], np.add.reduceat(counts, starts)


def _in_steps(pairs: Pairs) -> NumberTable:
    values, weights, counts = pairs
    return NumberTable(values, np.rint(weights / _STEP).astype(np.int64) * counts)


STATES: Final[Mapping[str, StateMaker]] = {
    "weighted": lambda options, _: WeightedNumbers(options["weight"]),
    "keyed-weighted": lambda options, _: Keyed(
        partial(WeightedNumbers, options["weight"], PER_KEY), options["key"], options["weight"]
    ),
}
