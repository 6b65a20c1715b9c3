"""Numbers: the table of a column's values, or a sketch of it; quantiles, median, mode and histogram are read off it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...data.aggregates import tables
from ...data.aggregates.sketches import QuantileSketch
from ...data.aggregates.tables import NumberTable, count_numbers, merge_numbers
from ...data.states import frame, read_columns, unframe, write_columns
from ...errors import InputError
from .keyed import PER_KEY, Elementwise, Keyed, elementwise_if_wide, keyed_column, read_each
from .kinds import AnalyzerKind, Params, StateMaker, StateNeed
from .states import ColumnsByRole, finite

_EXACT: Final = 1 << 20  # distinct numbers that a table keeps
_PENDING: Final = 16  # tables of batches merged at once


class Numbers:
    """Distinct numbers and how often each occurs; above `limit` of them a `QuantileSketch`, off by some 0.2 %."""

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self.tables: list[NumberTable] = []
        self.sketch: QuantileSketch | None = None

    def add(self, rows: ColumnsByRole) -> None:
        """Take in every present, finite number of the columns."""
        for column in rows.flat().values:
            self.take(finite(column))

    def take(self, values: NDArray[Any]) -> None:
        """Count finite int64 or float64 numbers; the tables of up to 16 calls are merged at once."""
        if len(values):
            self._take(count_numbers(values))

    def _take(self, table: NumberTable) -> None:
        if self.sketch is not None:
            self.sketch.add(_as_floats(table))
            return
        self.tables.append(table)
        if len(self.tables) >= _PENDING:
            self.compact()

    def merge(self, other: Numbers) -> None:
        """Count the numbers of other rows; where either side has a sketch, all becomes one."""
        if other.sketch is not None:
            self._to_sketch().merge(other.sketch)
        for table in other.tables:
            self._take(table)

    def compact(self) -> None:
        """Merge the tables that wait into one; above `limit` distinct numbers it becomes a sketch."""
        if self.tables:
            self.tables = [merge_numbers(self.tables)]
            if len(self.tables[0].values) > (_EXACT if self.limit is None else self.limit):
                self._to_sketch()

    def _to_sketch(self) -> QuantileSketch:
        if self.sketch is None:
            self.sketch = QuantileSketch()
        for table in self.tables:
            self.sketch.add(_as_floats(table))
        self.tables = []
        return self.sketch

    def table(self) -> NumberTable | None:
        """The values and how many rows each stands for; None where none was seen."""
        self.compact()
        return self.sketch.table() if self.sketch is not None else self.tables[0] if self.tables else None

    def quantiles(self, buckets: int) -> list[float]:
        """Boundary i is the value at position floor(i·N/buckets) of N sorted values (TFT's choice); NaN for N = 0."""
        table = self.table()
        if table is None:
            return [math.nan] * (buckets - 1)
        ends = np.cumsum(table.counts)
        places = [index * int(ends[-1]) // buckets for index in range(1, buckets)]
        boundaries: list[float] = table.values[np.searchsorted(ends, places, side="right")].tolist()
        return boundaries

    def median(self) -> float | int:
        """The middle value, or the midpoint of the two middle ones; NaN for none."""
        table = self.table()
        return math.nan if table is None else tables.median(table)

    def mode(self, name: str) -> float | int:
        """The most frequent value, the smallest of several; NaN for none.

        Raises:
            InputError: There are too many distinct values to count each.
        """
        table = self.table()
        if self.sketch is not None:
            raise InputError(
                f"column {name!r} has more than {_EXACT:,} distinct numbers: none is its mode", fix="use ops.median"
            )
        return math.nan if table is None else table.values[int(np.argmax(table.counts))].item()

    def histogram(self, bins: int | Sequence[float]) -> tuple[list[int], list[float]]:
        """Counts and edges as `numpy.histogram` gives them: the last bucket is closed, what lies outside not counted.

        A number of bins spans the smallest to the largest value; half a unit to each side where they are the same.
        """
        table = self.table()
        if isinstance(bins, int):
            low, high = (0.0, 1.0) if table is None else (float(table.values[0]), float(table.values[-1]))
            if low == high:
                low, high = low - 0.5, high + 0.5
            edges = tables.bucket_edges(low, high, bins)
        else:
            edges = np.asarray(bins, np.float64)
        if table is None:
            return [0] * (len(edges) - 1), edges.tolist()
        inside = (table.values >= edges[0]) & (table.values <= edges[-1])
        counts = tables.histogram(table.values[inside], table.counts[inside], edges)
        return counts.tolist(), edges.tolist()

    def to_bytes(self) -> bytes:
        """The table, or the sketch, as Arrow IPC."""
        self.compact()
        if self.sketch is None:
            table = self.tables[0] if self.tables else NumberTable(np.zeros(0), np.zeros(0, np.int64))
            columns = {"value": pa.array(table.values), "count": pa.array(table.counts)}
            return frame([b"exact", write_columns(columns)])
        head = json.dumps({"odd": [int(odd) for odd in self.sketch.odd], "error": int(self.sketch.error)}).encode()
        return frame([b"sketch", head, *(write_columns({"value": pa.array(level)}) for level in self.sketch.levels)])

    def load(self, data: bytes) -> None:
        """Become the state that `to_bytes` wrote."""
        tag, *parts = unframe(data)
        if tag == b"exact":
            values, counts = read_columns(parts[0])
            if len(values):
                self.tables = [NumberTable(values.to_numpy(), counts.to_numpy())]
            return
        head = json.loads(parts[0])
        self.sketch = QuantileSketch()
        self.sketch.odd, self.sketch.error = head["odd"], head["error"]
        self.sketch.levels = [read_columns(part)[0].to_numpy() for part in parts[1:]]


def _as_floats(table: NumberTable) -> NumberTable:
    return NumberTable(table.values.astype(np.float64), table.counts)


def _quantiles_per_key(params: Params, state: Keyed[Any]) -> pa.Table:
    """Columns `key` and "boundary 0", "boundary 1" …, float64; a row per key. Of keyed numbers, weighted or not."""
    edges = np.array([numbers.quantiles(params["buckets"]) for _, numbers in state.items()], np.float64)
    columns = edges.reshape(-1, params["buckets"] - 1).T
    boundaries = {f"boundary {i}": pa.array(column) for i, column in enumerate(columns)}
    return pa.table({"key": keyed_column(state), **boundaries})


def _numbers(read: Callable[[Params, Numbers], Any]) -> AnalyzerKind:
    return AnalyzerKind(
        elementwise_if_wide("numbers"),
        lambda params, state: read_each(state, lambda numbers: read(params, numbers)),
    )


def _quantiles_need(params: Params) -> StateNeed:
    return ("weighted", ("weight",)) if params.get("weight") else elementwise_if_wide("numbers")(params)


def _quantiles_per_key_need(params: Params) -> StateNeed:
    return ("keyed-weighted", ("key", "weight")) if params.get("weight") else ("keyed-numbers", ("key",))


STATES: Final[Mapping[str, StateMaker]] = {
    "numbers": lambda options, _: Numbers(),
    "elementwise-numbers": lambda options, _: Elementwise(Numbers, options["width"]),
    "keyed-numbers": lambda options, _: Keyed(partial(Numbers, PER_KEY), options["key"]),
}

ANALYZERS: Final = {
    # With weights both read the states of `weighted`, which have `quantiles` too.
    "quantiles": AnalyzerKind(
        _quantiles_need,
        lambda params, state: read_each(state, lambda numbers: numbers.quantiles(params["buckets"])),
    ),
    "quantiles_per_key": AnalyzerKind(_quantiles_per_key_need, _quantiles_per_key),
    "median": _numbers(lambda params, numbers: numbers.median()),
    "mode": _numbers(lambda params, numbers: numbers.mode(params["column"])),
    "histogram_counts": _numbers(lambda params, numbers: numbers.histogram(params["bins"])[0]),
    "histogram_edges": _numbers(lambda params, numbers: numbers.histogram(params["bins"])[1]),
}
