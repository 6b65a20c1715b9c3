"""Slices by the bins of a number: where the bins of equal counts begin is found in a pass before the evaluation."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...data.aggregates.sketches import QuantileSketch
from ...data.aggregates.tables import NumberTable, count_numbers, merge_numbers
from ...data.arrays import arrow_of, numpy_of
from ...data.base import Executor
from ...data.sources import Source
from ...data.states import StateFormat, read_arrays, write_arrays
from ...errors import InputError
from .slice_sql import columns_of, numbers_of

if TYPE_CHECKING:
    from .config import EvaluationConfig, Slice

_EXACT: Final = 1 << 18
"""Distinct values up to which bins have equal counts; beyond it, to about 0.2 % of the rows (see `QuantileSketch`)."""
_STATE: Final = StateFormat("state of quantile bins", b"DTQB", 1, "I", "evaluate again")


def with_bins(config: EvaluationConfig, source: Source, executor: Executor) -> EvaluationConfig:
    """The configuration with the edges of the bins that were only counted; the same where there are none.

    Bin i of k begins at the value of row ⌊i·n / k⌋ of the n rows in order of the number. Rows without one are in no
    bin. Where many rows have the same value there are fewer bins.

    Raises:
        InputError: The expression of a slice is no number, or no row has one.
    """
    counted = [each for each in config.expressions.values() if isinstance(each.bins, int)]
    if not counted:
        return config
    columns = dict.fromkeys(name for each in counted for name in columns_of(each))
    names = [name for name in source.schema.names if name in columns]
    make = partial(_BinEdges, tuple(each.name for each in counted))
    numbers = executor.combine(source.select(names), make, _Numbers(tuple(counted)))
    return config.with_edges({each.name: numbers.edges(each) for each in counted})


@dataclass(frozen=True)
class _Numbers:
    """A batch function: the number of each row, by slice."""

    slices: tuple[Slice, ...]

    def setup(self) -> None:
        """Nothing to prepare."""

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A float64 column for each slice, NaN where there is none."""
        return pa.record_batch(
            [pa.array(numbers_of(each, batch)) for each in self.slices], [s.name for s in self.slices]
        )


@dataclass
class _Counted:
    """The distinct numbers and how often each occurs, or a sketch once there are too many."""

    table: NumberTable = field(default_factory=lambda: count_numbers(np.zeros(0)))
    sketch: QuantileSketch | None = None

    def add(self, table: NumberTable) -> None:
        if self.sketch is None:
            self.table = merge_numbers([self.table, table])
            if len(self.table.values) <= _EXACT:
                return
            table, self.table, self.sketch = self.table, count_numbers(np.zeros(0)), QuantileSketch()
        self.sketch.add(table)

    def merge(self, other: _Counted) -> None:
        if other.sketch is None:
            self.add(other.table)
            return
        if self.sketch is None:
            table, self.table, self.sketch = self.table, count_numbers(np.zeros(0)), QuantileSketch()
            self.sketch.add(table)
        self.sketch.merge(other.sketch)


class _BinEdges:
    """The accumulator of the pass."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.columns = {name: _Counted() for name in names}

    def add_batch(self, batch: pa.RecordBatch) -> None:
        """Count the finite numbers of each slice's column."""
        for name, counted in self.columns.items():
            values: NDArray[np.float64] = numpy_of(batch.column(name))
            counted.add(count_numbers(values[np.isfinite(values)]))

    def merge(self, other: Self) -> None:
        """Add those of the rows that follow."""
        for name, counted in self.columns.items():
            counted.merge(other.columns[name])

    def compact(self) -> None:
        """Nothing to do: a column is a table of bounded size, or a sketch."""

    def result(self) -> Mapping[str, Any]:
        """An empty mapping: the bins are read by `edges`."""
        return {}

    def edges(self, of: Slice) -> tuple[float, ...]:
        """Where the bins after the first begin."""
        assert isinstance(of.bins, int)
        counted = self.columns[of.name]
        table = counted.table if counted.sketch is None else counted.sketch.table()
        if not len(table.values):
            raise InputError(f"the slice {of.name!r} has no number in any row: it has no bins", where=of.where)
        ends = np.cumsum(table.counts)
        rows = [part * int(ends[-1]) // of.bins for part in range(1, of.bins)]
        begins = np.unique(table.values[np.searchsorted(ends, rows, side="right")])
        return tuple(begins[begins > table.values[0]].tolist())

    def to_bytes(self) -> bytes:
        """JSON, and the arrays of the tables and sketches."""
        head: dict[str, Any] = {}
        arrays: dict[str, Any] = {}
        for name, counted in self.columns.items():
            parts = [counted.table.values, counted.table.counts] if counted.sketch is None else counted.sketch.levels
            head[name] = {
                "arrays": [len(arrays) + index for index in range(len(parts))],
                "sketch": None if counted.sketch is None else [counted.sketch.odd, counted.sketch.error],
            }
            arrays |= {str(len(arrays) + index): arrow_of(part) for index, part in enumerate(parts)}
        return _STATE.pack(json.dumps(head).encode(), write_arrays(arrays))

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """The state again.

        Raises:
            InputError: The bytes are not such a state.
        """
        with _STATE.unpack(data) as (head, body):
            columns, arrays = json.loads(bytes(head)), read_arrays(body)
            edges = cls(tuple(columns))
            for name, written in columns.items():
                counted, parts = edges.columns[name], [numpy_of(arrays[str(at)]).copy() for at in written["arrays"]]
                if written["sketch"] is None:
                    counted.table = NumberTable(*parts)
                else:
                    counted.sketch = QuantileSketch()
                    counted.sketch.levels = parts
                    counted.sketch.odd, counted.sketch.error = written["sketch"]
            return edges
