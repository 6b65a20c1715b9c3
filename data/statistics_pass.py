"""The statistics accumulator: all columns of a source in one pass."""

from __future__ import annotations

import json
import struct
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa

from ..errors import InputError
from .statistics_column import EXACT_LIMIT, ColumnState
from .statistics_describe import describe_column
from .tables import arrow_of

_MAGIC: Final = b"DTST"
_VERSION: Final = 1
_HEAD: Final = struct.Struct("<4sBI")  # magic, version, bytes of the JSON that follows


class StatisticsAccumulator:
    """Statistics of every column, mergeable; an `Accumulator`.

    Where every column stays within the exact limit, equal rows give equal bytes however they are split into shards.

    Args:
        limit: Distinct values of a column up to which everything about it is exact.
    """

    def __init__(self, limit: int = EXACT_LIMIT) -> None:
        self.limit = limit
        self.rows = 0
        self.columns: dict[str, ColumnState] = {}

    def add_batch(self, batch: pa.RecordBatch) -> None:
        """Take in the rows of one batch.

        Raises:
            InputError: Two columns have one name, or the columns or their types differ from earlier batches'.
        """
        names = batch.schema.names
        if len(set(names)) != len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise InputError(f"two columns are named {twice!r}", fix="rename one of them")
        self._agree(names)
        self.rows += batch.num_rows
        for name, array in zip(names, batch.columns, strict=True):
            self.columns[name].add(array)

    def _agree(self, names: list[str]) -> None:
        if not self.columns:
            self.columns = {name: ColumnState(name, self.limit) for name in names}
        elif set(names) != set(self.columns):
            odd = sorted(set(names) ^ set(self.columns))
            raise InputError(
                f"column {odd[0]!r} is in one part of the data and not in another",
                fix="give all files the same columns",
            )

    def merge(self, other: StatisticsAccumulator) -> None:
        """Take in the state of the shards that follow.

        Raises:
            InputError: The columns or their types differ.
        """
        if not other.columns:
            return
        self._agree(list(other.columns))
        self.rows += other.rows
        for name, column in self.columns.items():
            column.merge(other.columns[name])

    def compact(self) -> None:
        """Bound the size of every column's state."""
        for column in self.columns.values():
            column.compact()

    def result(self) -> dict[str, Any]:
        """`{"rows": …, "features": […]}` as described in `statistics_describe`."""
        return {"rows": self.rows, "features": [describe_column(column) for column in self.columns.values()]}

    def to_bytes(self) -> bytes:
        """Header, JSON with the scalars, and one Arrow IPC stream of one row whose fields are the arrays as lists."""
        heads = []
        fields: dict[str, Any] = {}
        for index, column in enumerate(self.columns.values()):
            head, arrays = column.to_parts()
            heads.append(head)
            for name, array in arrays.items():
                fields[f"{index}.{name}"] = pa.LargeListArray.from_arrays(arrow_of(np.array([0, len(array)])), array)
        body = json.dumps({"limit": self.limit, "rows": self.rows, "columns": heads}, sort_keys=True).encode()
        sink = pa.BufferOutputStream()
        batch = pa.RecordBatch.from_arrays(list(fields.values()), list(fields))
        with pa.ipc.new_stream(sink, batch.schema) as stream:
            stream.write_batch(batch)
        return b"".join((_HEAD.pack(_MAGIC, _VERSION, len(body)), body, sink.getvalue().to_pybytes()))

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """The state that `to_bytes` wrote.

        Raises:
            InputError: The bytes are no statistics state, or of a version this release does not read.
        """
        if len(data) < _HEAD.size or data[:4] != _MAGIC:
            raise InputError("these bytes are no statistics state", fix="compute the statistics again")
        _, version, size = _HEAD.unpack_from(data)
        if version != _VERSION:
            raise InputError(
                f"this statistics state has version {version}, this release reads {_VERSION}",
                fix="compute the statistics again",
            )
        body = json.loads(data[_HEAD.size : _HEAD.size + size])
        table = pa.ipc.open_stream(pa.py_buffer(data)[_HEAD.size + size :]).read_all()
        made = cls(body["limit"])
        made.rows = body["rows"]
        arrays: list[dict[str, Any]] = [{} for _ in body["columns"]]
        for name, column in zip(table.schema.names, table.columns, strict=True):
            index, _, field = name.partition(".")
            arrays[int(index)][field] = column.chunk(0).flatten()
        for head, parts in zip(body["columns"], arrays, strict=True):
            made.columns[head["name"]] = ColumnState.from_parts(head, parts)
        return made
