"""Where rows come from: files of all kinds that drivetrain reads, by row groups, and arrays in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from ....data.sources import Source
from ....data.types import is_list
from ....errors import InputError
from ...ragged.rows import FlatRows, read_lists
from .columns import Array, Columns, checked, read_only, rows_in, stacked, taken
from .dataset import Dataset, State, Stream, damaged, parts_of, random_for, row_of
from .shuffling import IndexedDataset

if TYPE_CHECKING:
    from ...graphs.graph import FieldSpec

_BLOCK: Final = 65_536
"""Rows of a block of arrays."""


def from_source(source: Source) -> Dataset:
    """The rows of files, as `data.open_files`, `data.open_examples` or `open_arrow` opens them.

    Numbers are arrays, of at most 32 bits, lists `FlatRows`, texts and bytes arrays of objects. One row group is in
    memory at a time.
    """
    return FileRows(source)


def from_arrays(columns: Mapping[str, Any]) -> IndexedDataset:
    """Rows in memory: arrays [rows, …], which nobody may change from now on, or lists of values.

    Raises:
        InputError: The columns differ in length, or there are none.
    """
    arrays = {
        name: stacked(column) if isinstance(column, list | tuple) and len(column) else column
        for name, column in columns.items()
    }
    return InMemory(read_only(checked(arrays, "from_arrays(…)")))


@dataclass(frozen=True, eq=False)
class InMemory(IndexedDataset):
    """See `from_arrays`."""

    columns: Columns

    @property
    def label(self) -> str:
        """In short."""
        return f"arrays({rows_in(self.columns)} rows: {', '.join(self.columns)})"

    @property
    def rows(self) -> int:  # type: ignore[override]  # computed, not stored
        """All."""
        return rows_in(self.columns)

    def count(self) -> int:
        """How many rows there are."""
        return self.rows

    def take(self, rows: Array) -> Columns:
        """The rows of these numbers."""
        return taken(self.columns, rows)

    def stream(self, epoch: int, state: State = None) -> Stream:
        """See `Dataset.stream`; the state is the next row's number."""
        for begin in range(row_of(state, self.rows), self.rows, _BLOCK):
            end = min(begin + _BLOCK, self.rows)
            yield taken(self.columns, slice(begin, end)), end


@dataclass(frozen=True)
class FileRows(Dataset):
    """See `from_source`. Its state is the place in the order of shards, and how many rows of that shard are gone.

    Attributes:
        source: The files' shards.
        specs: Of columns whose values have a shape: Parquet says of them only that they are lists.
        seed: Of a random order of shards in each epoch; None keeps theirs.
    """

    source: Source
    specs: Mapping[str, FieldSpec] = field(default_factory=dict, compare=False)
    seed: int | None = None

    @property
    def label(self) -> str:
        """In short."""
        seed = "" if self.seed is None else f", shards in random order {self.seed}"
        return f"files({self.rows} rows: {', '.join(self.source.columns)}{seed})"

    @property
    def rows(self) -> int:  # type: ignore[override]  # computed, not stored
        """All."""
        return self.source.rows

    def shuffled(self, seed: int) -> FileRows:
        """The row groups in random order."""
        return replace(self, seed=seed)

    def stream(self, epoch: int, state: State = None) -> Stream:
        """See `Dataset.stream`."""
        order: Sequence[int] = range(len(self.source.shards))
        if self.seed is not None:
            order = random_for(self, self.seed, epoch, 0).permutation(len(order)).tolist()
        first, gone = parts_of(state, (0, 0))
        if first > len(order) or (gone and (first == len(order) or gone > self.source.shards[order[first]].rows)):
            raise damaged(state)
        for turn in range(first, len(order)):
            shard = self.source.shards[order[turn]]
            row = 0
            for batch in self.source.read(shard):
                row += batch.num_rows
                if row <= gone:
                    continue
                where = f"{Path(shard.path).name}, from row {row - batch.num_rows} of its group on"
                yield from_arrow(batch, where, self.specs), [turn + 1, 0] if row == shard.rows else [turn, row]
            gone = 0


def from_arrow(batch: pa.RecordBatch, where: str, specs: Mapping[str, FieldSpec]) -> Columns:
    """The columns of a record batch; numbers of 64 bits become such of 32.

    What `specs` has is read as that, other columns as their Arrow types are.

    Raises:
        InputError: A value is missing, does not fit, or is of a kind that no array holds. The column is named.
    """
    return {name: _column(batch.column(name), name, where, specs.get(name)) for name in batch.schema.names}


def _column(array: pa.Array, name: str, where: str, spec: FieldSpec | None) -> Array | FlatRows:
    from ..loader import device_dtype, stored_values  # late: it is above

    kind = array.type
    if spec is not None and spec.ragged:
        return _located(lambda: read_lists(array, name, device_dtype(spec).name, spec.shape), where)
    if spec is not None:
        return _located(lambda: stored_values(array, name, spec), where)
    if pa.types.is_fixed_size_list(kind):
        shape: list[int] = []
        while pa.types.is_fixed_size_list(kind):
            shape.append(kind.list_size)
            kind = kind.value_type
        return _located(lambda: stored_values(array, name, _spec(kind, tuple(shape))), where)
    if is_list(kind):
        inner = kind.value_type
        shape = []
        while pa.types.is_fixed_size_list(inner):
            shape.append(inner.list_size)
            inner = inner.value_type
        items = _spec(inner, tuple(shape))
        return _located(lambda: read_lists(array, name, device_dtype(items).name, items.shape), where)
    if pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        if array.null_count:
            row = int(np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))[0])
            raise InputError(f"column {name!r} has no value in row {row} of {where}", fix="fill it, or drop the row")
        texts: Array = array.to_numpy(zero_copy_only=False)
        return texts
    return _located(lambda: stored_values(array, name, _spec(kind, ())), where)


def _located(read: Callable[[], Array | FlatRows], where: str) -> Array | FlatRows:
    try:
        return read()
    except InputError as error:
        raise InputError(f"{error.message} ({where})", fix=error.fix) from None


def _spec(kind: pa.DataType, shape: tuple[int, ...]) -> Any:
    from ...graphs.graph import FieldSpec

    try:
        dtype = np.dtype(kind.to_pandas_dtype()).name
    except (NotImplementedError, TypeError):
        dtype = "float32"  # it is refused by its Arrow type
    return FieldSpec(dtype if dtype in _NUMBERS else "float32", shape)


_NUMBERS: Final = frozenset({
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64",
})  # fmt: skip
