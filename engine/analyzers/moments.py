"""Moments: count, sum, mean, variance, smallest and largest, exact whatever the order of the rows."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
from numpy.typing import NDArray

from ...data.aggregates.sums import ExactMoments
from ...data.states import frame, unframe
from .keyed import Elementwise, Keyed, elementwise_if_wide, keyed_column, read_each
from .kinds import AnalyzerKind, Params, StateMaker
from .states import ColumnsByRole, finite

SCALARS: Final = ("mean", "var", "min", "max", "sum", "count")


class Moments:
    """The state of every scalar analyzer."""

    def __init__(self) -> None:
        self.moments = ExactMoments()
        self.low: float | int | None = None
        self.high: float | int | None = None

    def add(self, rows: ColumnsByRole) -> None:
        """Take in every present, finite number of the columns."""
        for column in rows.flat().values:
            self.take(finite(column))

    def take(self, values: NDArray[Any]) -> None:
        """Add finite int64 or float64 numbers: their exact sums and their range."""
        if len(values):
            self.moments.add(values)
            self._range(values.min().item(), values.max().item())

    def _range(self, low: float | int, high: float | int) -> None:
        # -0.0 equals 0.0 and must not come first by chance.
        self.low = (low if self.low is None else min(self.low, low)) + 0
        self.high = (high if self.high is None else max(self.high, high)) + 0

    def merge(self, other: Moments) -> None:
        """Add the sums of other rows, and widen the range to hold theirs."""
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


class RowCount:
    """How many rows there are, missing ones included."""

    def __init__(self) -> None:
        self.rows = 0

    def add(self, rows: ColumnsByRole) -> None:
        """Count the batch's rows, those with missing values too."""
        self.rows += sum(len(column) for column in rows.values)

    def merge(self, other: RowCount) -> None:
        """Add the count of other rows."""
        self.rows += other.rows

    def compact(self) -> None:
        """Nothing to do: one integer is kept."""

    def to_bytes(self) -> bytes:
        """The count in decimal digits, as ASCII."""
        return str(self.rows).encode()

    def load(self, data: bytes) -> None:
        """Become the state that `to_bytes` wrote."""
        self.rows = int(data)


def _moments_per_key(params: Params, state: Keyed[Moments]) -> pa.Table:
    """Columns `key` and one per statistic of the params, float64; a row per key."""
    statistics = {
        name: pa.array([moments.scalar(name) for _, moments in state.items()], pa.float64()) for name in params["stats"]
    }
    return pa.table({"key": keyed_column(state), **statistics})


def _scalar(name: str) -> AnalyzerKind:
    return AnalyzerKind(
        elementwise_if_wide("moments"), lambda params, state: read_each(state, lambda moments: moments.scalar(name))
    )


STATES: Final[Mapping[str, StateMaker]] = {
    "moments": lambda options, _: Moments(),
    "elementwise-moments": lambda options, _: Elementwise(Moments, options["width"]),
    "keyed-moments": lambda options, _: Keyed(Moments, options["key"]),
    "size": lambda options, _: RowCount(),
}

ANALYZERS: Final = {
    **{name: _scalar(name) for name in SCALARS},
    "moments_per_key": AnalyzerKind(lambda params: ("keyed-moments", ("key",)), _moments_per_key),
    "size": AnalyzerKind(lambda params: ("size", ()), lambda params, state: state.rows),
}
