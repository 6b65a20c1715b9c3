"""What every analyzer state is: the protocol, and the columns that it takes in, by role."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ...data.types import is_list
from ...errors import InputError


class Mergeable(Protocol):
    """What every state can do. Equal rows give equal bytes, however they were split and ordered."""

    def merge(self, other: Self) -> None:
        """Take in the state of the rows that follow."""

    def compact(self) -> None:
        """Bring it into its one canonical form, in which it takes the least memory."""

    def to_bytes(self) -> bytes:
        """The canonical state as bytes: they are the analyzer cache's content, and travel between workers."""

    def load(self, data: bytes) -> None:
        """Become the state that `to_bytes` wrote; called on a new one with the same options."""


class State(Mergeable, Protocol):
    """The mergeable state of one analysis."""

    def add(self, rows: ColumnsByRole) -> None:
        """Add a batch's rows; raises InputError where they cannot be analysed."""


class Numeric(Mergeable, Protocol):
    """A state of finite numbers that other states keep one of per key, or per element of a vector."""

    def take(self, values: NDArray[Any]) -> None:
        """Take in finite int64 or float64 values."""


@dataclass(frozen=True)
class ColumnsByRole:
    """What an analysis sees of a batch: its columns by role, all of one length.

    Attributes:
        values: The columns looked at; a vector column is a fixed-size list.
        key: Groups the rows; or None.
        weight: Says how much each row counts; or None.
        label: The class of each row, for the mutual information of word and class; or None.
    """

    values: Sequence[pa.Array]
    key: pa.Array | None = None
    weight: pa.Array | None = None
    label: pa.Array | None = None

    @classmethod
    def of(cls, batch: pa.RecordBatch, columns: Sequence[tuple[str, str]]) -> ColumnsByRole:
        """The columns of a batch by role; "valid" is the role of a boolean column that says which rows count."""
        named: dict[str, list[pa.Array]] = {}
        for role, name in columns:
            named.setdefault(role, []).append(batch.column(name))
        if "valid" in named:
            (valid,) = named.pop("valid")
            named = {
                role: [column.filter(valid) for column in columns_of_role] for role, columns_of_role in named.items()
            }
        single = {role: columns_of_role[0] for role, columns_of_role in named.items() if role != "value"}
        return cls(named.get("value", []), **single)

    def flat(self) -> ColumnsByRole:
        """The same with lists and vectors taken apart: every element has its row's key, weight and label."""
        if not any(is_list(column.type) for column in self.values):
            return self
        others = {"key": self.key, "weight": self.weight, "label": self.label}
        if all(other is None for other in others.values()):
            return ColumnsByRole([column.flatten() if is_list(column.type) else column for column in self.values])
        (column,) = self.values
        parents = pc.list_parent_indices(column)
        others = {role: None if other is None else other.take(parents) for role, other in others.items()}
        return ColumnsByRole([column.flatten()], **others)


def numbers_of(column: pa.Array) -> NDArray[Any]:
    """A column as numpy: int64 where it is whole and nothing is null, else float64 with NaN for null."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int64())
    if column.null_count or not pa.types.is_integer(column.type):
        column_numbers: NDArray[Any] = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        return column_numbers
    return np.asarray(column.to_numpy(zero_copy_only=False)).astype(np.int64, copy=False)


def finite(column: pa.Array) -> NDArray[Any]:
    """The present, finite values of a column: int64 for integers and booleans, else float64."""
    if column.null_count:
        column = column.drop_null()
    return finite_of(numbers_of(column))


def finite_of(values: NDArray[Any]) -> NDArray[Any]:
    """The values without NaN and infinities; integers all are finite."""
    if values.dtype.kind == "f":
        kept = np.isfinite(values)
        return values if kept.all() else values[kept]
    return values


def vectors(column: pa.Array) -> NDArray[np.float64]:
    """A fixed-size list column as float64[rows, width], NaN for null."""
    width = column.type.list_size
    flat = numbers_of(column.flatten()).astype(np.float64, copy=False)
    return flat.reshape(-1, width) if width else np.zeros((len(column), 0))


def weights_of(column: pa.Array, name: str) -> NDArray[np.float64]:
    """Weights as float64.

    Raises:
        InputError: One is missing, negative, or not finite.
    """
    weights = numbers_of(column).astype(np.float64, copy=False)
    bad = ~(np.isfinite(weights) & (weights >= 0))
    if bad.any():
        value = weights[bad][0]
        what = "a missing value" if np.isnan(value) else f"the weight {value:g}"
        raise InputError(f"the weights in column {name!r} have {what}", fix="give finite weights, 0 or more")
    return weights


def texts_of(column: pa.Array) -> pa.Array:
    """A column of keys or words as text: integers in decimal, booleans as true and false."""
    if pa.types.is_boolean(column.type) or pa.types.is_integer(column.type):
        return column.cast(pa.string())
    return column
