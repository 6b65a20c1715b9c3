"""Documents: in how many rows' lists each id occurs, for the inverse document frequency."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...data.aggregates.tables import NumberTable, count_numbers, merge_numbers
from ...data.states import read_columns, write_columns
from .kinds import AnalyzerKind, StateMaker
from .states import ColumnsByRole


class Documents:
    """How many lists there are (an empty one is one, a missing one is none), and how many hold each id."""

    def __init__(self) -> None:
        self.documents = 0
        self.table = NumberTable(np.zeros(0, np.int64), np.zeros(0, np.int64))

    def add(self, rows: ColumnsByRole) -> None:
        """Take in one batch's lists of ids."""
        (column,) = rows.values
        self.documents += len(column) - column.null_count
        parents = pc.list_parent_indices(column).to_numpy(zero_copy_only=False).astype(np.int64)
        ids = column.flatten().to_numpy(zero_copy_only=False)  # 0 … 2^31 − 1, so that a pair fits in 63 bits
        # Each (row, id) as one integer, so that an id which a row has twice is one pair, and pair % span is the id.
        span = int(ids.max()) + 1 if len(ids) else 1
        pairs = count_numbers(parents * span + ids).values  # sorted: np.unique hashes, and is ten times as slow here
        self._take(count_numbers(pairs % span))

    def _take(self, table: NumberTable) -> None:
        self.table = merge_numbers([self.table, table])

    def merge(self, other: Documents) -> None:
        """Add the counts of other rows."""
        self.documents += other.documents
        self._take(other.table)

    def compact(self) -> None:
        """Nothing to do: one table is kept."""

    def frequencies(self) -> pa.Table:
        """Columns `id` and `documents` (int64), ids ascending; the first row, of id −1, counts all documents."""
        ids = np.concatenate(([-1], self.table.values)).astype(np.int64)
        counts = np.concatenate(([self.documents], self.table.counts)).astype(np.int64)
        return pa.table({"id": pa.array(ids), "documents": pa.array(counts)})

    def to_bytes(self) -> bytes:
        """The frequencies as Arrow IPC."""
        table = self.frequencies()
        return write_columns({name: table.column(name).combine_chunks() for name in table.column_names})

    def load(self, data: bytes) -> None:
        """Become the state that `to_bytes` wrote."""
        ids, counts = (column.to_numpy() for column in read_columns(data))
        self.documents = int(counts[0])
        self.table = NumberTable(ids[1:], counts[1:])


STATES: Final[Mapping[str, StateMaker]] = {"documents": lambda options, _: Documents()}

ANALYZERS: Final = {
    "documents": AnalyzerKind(lambda params: ("documents", ()), lambda params, state: state.frequencies()),
}
