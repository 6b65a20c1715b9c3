"""Moments: count, sum, mean, variance, smallest and largest, exact whatever the order of the rows."""

from __future__ import annotations

import json
import math
from typing import Any, Final

from numpy.typing import NDArray

from ...data.aggregates.sums import ExactMoments
from ...data.states import frame, unframe
from .states import Rows, finite

SCALARS: Final = ("mean", "var", "min", "max", "sum", "count")


class Moments:
    """The state of every scalar analyzer."""

    def __init__(self) -> None:
        self.moments = ExactMoments()
        self.low: float | int | None = None
        self.high: float | int | None = None

    def add(self, rows: Rows) -> None:
        """Take in every present, finite number of the columns."""
        for column in rows.flat().values:
            self.take(finite(column))

    def take(self, values: NDArray[Any]) -> None:
        """Take in finite numbers."""
        if len(values):
            self.moments.add(values)
            self._range(values.min().item(), values.max().item())

    def _range(self, low: float | int, high: float | int) -> None:
        # -0.0 equals 0.0 and must not come first by chance.
        self.low = (low if self.low is None else min(self.low, low)) + 0
        self.high = (high if self.high is None else max(self.high, high)) + 0

    def merge(self, other: Moments) -> None:
        """Take in another state."""
        self.moments.merge(other.moments)
        if other.low is not None and other.high is not None:
            self._range(other.low, other.high)

    def compact(self) -> None:
        """Nothing to do: the size is fixed."""

    def scalar(self, kind: str) -> float | int:
        """One of `SCALARS`; mean, var (÷ n), min and max are NaN where no value was seen."""
        if kind == "count":
            return self.moments.count
        if kind == "sum":
            return self.moments.sum.value()
        if kind == "mean":
            return self.moments.mean()
        if kind == "var":
            return self.moments.variance()
        value = self.low if kind == "min" else self.high
        return math.nan if value is None else value

    def to_bytes(self) -> bytes:
        """The range as JSON, then the exact sums."""
        return frame([json.dumps([self.low, self.high]).encode(), self.moments.to_bytes()])

    def load(self, data: bytes) -> None:
        """Become the state that `to_bytes` wrote."""
        ends, body = unframe(data)
        self.low, self.high = json.loads(ends)
        self.moments = ExactMoments.from_bytes(body)


class Size:
    """How many rows there are, missing ones included."""

    def __init__(self) -> None:
        self.rows = 0

    def add(self, rows: Rows) -> None:
        """Count a batch's rows."""
        self.rows += sum(len(column) for column in rows.values)

    def merge(self, other: Size) -> None:
        """Take in another state."""
        self.rows += other.rows

    def compact(self) -> None:
        """Nothing to do."""

    def to_bytes(self) -> bytes:
        """The number in decimal."""
        return str(self.rows).encode()

    def load(self, data: bytes) -> None:
        """Become the state that `to_bytes` wrote."""
        self.rows = int(data)
