"""How much was measured: examples and their weight, for every kind of model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from .definitions import Definition, Metric
from .rows import TASKS, SliceRows
from .states import Sums, Term


@dataclass(frozen=True)
class RowCounts(Sums):
    """How many rows there are, and Σw."""

    names: ClassVar[tuple[str, ...]] = ("rows", "weight")

    def terms(self, rows: SliceRows) -> Iterator[Term]:
        """1 for each row, and its weight."""
        yield Term("rows", None if rows.unweighted else np.ones(len(rows)))
        yield Term("weight")


def example_count() -> Metric:
    """Rows in the slice; weights do not enter."""
    return Metric("Examples", None, RowCounts(), lambda sums: sums["rows"], total=True)


def weighted_example_count() -> Metric:
    """Σw."""
    return Metric("Weight", None, RowCounts(), lambda sums: sums["weight"], total=True)


COUNT_METRICS: Final[Mapping[str, Definition]] = {
    "example_count": Definition(example_count, TASKS, default=True),
    "weighted_example_count": Definition(weighted_example_count, TASKS),
}
