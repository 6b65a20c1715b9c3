"""The weighted twin of a column's state: the weight of its rows, and a table of value → weight.

Up to the limit of distinct values everything is exact. Beyond it numbers keep fewer mantissa bits (as histograms of
relative error do: DDSketch, Masson, Rim and Lee 2019), as many as leave the limit's number of values, and texts only
the heaviest (Misra and Gries 1982, merged as Agarwal and others 2013). Sums, means and deviations stay exact.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ...errors import InputError
from ..aggregates.tables import text_bytes, text_lengths
from ..arrays import arrow_of, numpy_of
from ..states import nested, nested_arrays
from .column import EXACT_BYTES, TEXT, kind_of, plain_array
from .weighted_table import (
    LARGEST,
    WeightedTable,
    Weights,
    heaviest,
    in_order,
    merge_weighted,
    read_weights,
    reduce_to,
    stored_weights,
    total,
    units_of,
    weigh_numbers,
    weigh_texts,
    weighted_moments,
)

_HEAVY: Final = 1_000  # texts kept beyond the limit
_NUMBERS: Final = frozenset({"bool", "int", "float", "timestamp", "date", "time", "duration"})
_UNITS: Final = frozenset({"timestamp", "date", "time", "duration"})


def row_weights(array: Any, name: str, first: int) -> Weights:
    """Each row's weight, a missing one 0.

    Args:
        array: The weight column: numbers, or lists of at most one number.
        name: Its name, for errors.
        first: The first row's number within its part of the data, counted from 0, for errors.

    Raises:
        InputError: The column holds no numbers, or a weight is negative, NaN, infinite or above 2^62 (names the row).
    """
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if kind_of(array.type) == "list":
        lengths = pc.list_value_length(array)
        many = numpy_of(pc.fill_null(pc.greater(lengths, 1), False))
        if many.any():
            raise InputError(
                f"the weight column {name!r} has several weights in row {first + int(np.argmax(many)):,} of its part",
                fix="give each row one weight",
            )
        parents = numpy_of(pc.cast(pc.list_parent_indices(array), pa.int64()))
        flat, rows = pc.list_flatten(array), len(array)
    else:
        flat, rows, parents = array, len(array), None
    kind = kind_of(flat.type)
    if kind not in ("bool", "int", "float", "null"):
        raise InputError(
            f"the weight column {name!r} is {array.type}, not numeric", fix="weigh rows by a column of numbers"
        )
    weights = np.zeros(rows)
    if kind != "null":
        numbers = numpy_of(
            flat.cast(pa.float64(), safe=False).fill_null(0.0) if kind != "bool" else flat.fill_null(False)
        )
        if parents is None:
            weights = numbers.astype(np.float64)
        else:
            weights[parents] = numbers
    wrong = ~((weights >= 0) & (weights <= LARGEST))
    if wrong.any():
        row = int(np.argmax(wrong))
        raise InputError(
            f"the weight column {name!r} has the weight {weights[row]} in row {first + row:,} of its part",
            fix="weights must be finite numbers of at least 0 (and at most 2^62); repair or drop the row",
        )
    return units_of(weights)


class WeightedColumn:
    """Weights by value of one column, of the items of its lists, or of a field of its structs.

    Attributes:
        kind: See `column.kind_of`.
        present: Weight of the rows (or items) that are not null, in units of 2^-96, as all weights here.
        missing: Weight of those that are null.
        odd: Weight of NaN, +Inf and −Inf.
        inner: Of lists "lengths", and "values", each with its row's weight; of structs the fields by name.
        spilled: Whether there were more distinct values than the limit.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.kind = "null"
        self.unit = ""
        self.zone = ""
        self.present = 0
        self.missing = 0
        self.odd = [0, 0, 0]
        self.inner: dict[str, WeightedColumn] = {}
        self.spilled = False
        self.error = 0  # weight that a text's may be short of
        self.moments = (Fraction(0), Fraction(0))  # Σwx, Σwx² of spilled numbers
        self.length = 0  # Σ weight × characters (of bytes: × bytes) of spilled texts
        self.extremes: tuple[Any, Any] | None = None  # of spilled numbers
        self._table: WeightedTable | None = None
        self._ordered = True
        self._pending: list[WeightedTable] = []
        self._pending_size = 0

    def add(self, array: Any, weights: Weights) -> None:
        """Take in a batch's column and the rows' weights."""
        array = plain_array(array)
        self._accept(array.type)
        if array.null_count:
            valid = numpy_of(array.is_valid())
            self.missing += total(weights[~valid])
            array, weights = array.drop_null(), weights[valid]
        self.present += total(weights)
        if self.kind == "list":
            lengths = pc.list_value_length(array).cast(pa.int64())
            self._child("lengths").add(lengths, weights)
            self._child("values").add(pc.list_flatten(array), np.repeat(weights, numpy_of(lengths)))
        elif self.kind == "struct":
            for index, field in enumerate(array.type):
                self._child(field.name).add(pc.struct_field(array, [index]), weights)
        elif self.kind in TEXT:
            self._push(weigh_texts(array, weights))
        elif self.kind in _NUMBERS:
            self._push(weigh_numbers(*self._finite(_numbers(array, self.kind), weights)))

    def _accept(self, arrow: Any) -> None:
        if pa.types.is_dictionary(arrow):
            arrow = arrow.value_type
        kind = kind_of(arrow)
        if kind == "null" or self.kind != "null":  # whether types agree, the unweighted column checks
            return
        self.kind = kind
        if kind == "date":
            self.unit = "D" if pa.types.is_date32(arrow) else "ms"
        elif kind in _UNITS:
            self.unit, self.zone = arrow.unit, getattr(arrow, "tz", None) or ""

    def _child(self, name: str) -> WeightedColumn:
        return self.inner.setdefault(name, WeightedColumn(self.limit))

    def _finite(self, values: NDArray[Any], weights: Weights) -> tuple[NDArray[Any], Weights]:
        if self.kind != "float":
            return values, weights
        finite = np.isfinite(values)
        if finite.all():
            return values, weights
        for index, which in enumerate((np.isnan(values), values == np.inf, values == -np.inf)):
            self.odd[index] += total(weights[which])
        return values[finite], weights[finite]

    def _push(self, table: WeightedTable) -> None:
        if not len(table.weights):
            return
        self._pending.append(table)
        self._pending_size += self._size(table)
        if self._pending_size > 2 * self.limit:
            self._settle()

    def _size(self, table: WeightedTable) -> int:
        """What the table adds to the limit; 64 MB of text count as much as 100,000 values."""
        text = 0 if isinstance(table.values, np.ndarray) else text_bytes(table.values)
        return max(len(table.weights), -(-text * self.limit // EXACT_BYTES))

    def compact(self) -> None:
        """One table of at most the limit's values, ascending."""
        self._settle()
        if self._table is not None and not self._ordered:
            self._table, self._ordered = in_order(self._table), True
        for child in self.inner.values():
            child.compact()

    @property
    def table(self) -> WeightedTable | None:
        """What is known of the values, ascending; None where there were none."""
        self.compact()
        return self._table

    def _settle(self) -> None:
        if self._pending:
            fresh = merge_weighted(self._pending)
            self._pending, self._pending_size = [], 0
            if self.spilled:
                self._keep_sums(fresh)
            self._join(fresh)

    def _join(self, more: WeightedTable) -> None:
        table = more if self._table is None else merge_weighted([self._table, more])
        if not self.spilled and self._size(table) > self.limit:
            self.spilled = True
            self._keep_sums(table)
        if self.spilled and self.kind in TEXT:
            table = self._heaviest(table)
        elif self.spilled and len(table.weights) > self.limit:
            table = reduce_to(table, self.limit)
        self._table, self._ordered = table, False

    def _keep_sums(self, table: WeightedTable) -> None:
        """Add the sums of a table's values before the table is reduced and no longer has them."""
        if self.kind in TEXT:
            self.length += weighted_length(table, self.kind)
            return
        first, second = weighted_moments(table)
        self.moments = self.moments[0] + first, self.moments[1] + second
        low, high = table.values[0].item(), table.values[-1].item()
        self._bound(low, high)

    def _bound(self, low: Any, high: Any) -> None:
        if self.extremes is not None:
            low, high = min(low, self.extremes[0]), max(high, self.extremes[1])
        self.extremes = low, high

    def _heaviest(self, table: WeightedTable) -> WeightedTable:
        if len(table.weights) <= _HEAVY:
            return table
        rows = heaviest(table.weights, _HEAVY + 1)
        cut = table.weights[rows[_HEAVY]] if len(rows) > _HEAVY else 0
        kept = np.array(sorted(row for row in rows if table.weights[row] > cut), np.int64)
        self.error += cut
        return WeightedTable(table.values.take(arrow_of(kept)), table.weights[kept] - cut)

    def merge(self, other: WeightedColumn) -> None:
        """Take in the weights of the rows that follow."""
        self.compact()
        other.compact()
        if self.kind == "null":
            self.kind, self.unit, self.zone = other.kind, other.unit, other.zone
        self.present += other.present
        self.missing += other.missing
        self.odd = [mine + its for mine, its in zip(self.odd, other.odd, strict=True)]
        self.error += other.error
        if other.spilled:
            self._take_sums(other)
        elif self.spilled and other._table is not None:
            self._keep_sums(other._table)
        if other._table is not None:
            self._join(other._table)
        for name, child in other.inner.items():
            self._child(name).merge(child)

    def _take_sums(self, other: WeightedColumn) -> None:
        if not self.spilled:
            self.spilled = True
            if self._table is not None:
                self._keep_sums(self._table)
        self.moments = self.moments[0] + other.moments[0], self.moments[1] + other.moments[1]
        self.length += other.length
        if other.extremes is not None:
            self._bound(*other.extremes)

    def to_parts(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The state as JSON-able scalars and named pyarrow arrays."""
        table = self.table
        head: dict[str, Any] = {name: getattr(self, name) for name in _SCALARS}
        head["moments"] = [str(moment) for moment in self.moments]
        arrays: dict[str, Any] = {}
        if table is not None:
            head["bits"] = table.bits
            text = not isinstance(table.values, np.ndarray)
            arrays = {
                "values": table.values if text else arrow_of(table.values),
                "limbs": stored_weights(table.weights),
            }
        head["inner"] = []
        for index, (name, child) in enumerate(self.inner.items()):
            part, more = child.to_parts()
            head["inner"].append([name, part])
            arrays |= nested(str(index), more)
        return head, arrays

    @classmethod
    def from_parts(cls, head: Mapping[str, Any], arrays: Mapping[str, Any]) -> WeightedColumn:
        """The state that `to_parts` gave."""
        column = cls(head["limit"])
        for name in _SCALARS:
            setattr(column, name, head[name])
        first, second = head["moments"]
        column.moments = Fraction(first), Fraction(second)
        column.extremes = None if head["extremes"] is None else tuple(head["extremes"])
        if "values" in arrays:
            values = arrays["values"]
            text = pa.types.is_large_binary(values.type)
            column._table = WeightedTable(
                values if text else numpy_of(values), read_weights(arrays["limbs"]), head["bits"]
            )
        parts = nested_arrays(arrays)
        for index, (name, child) in enumerate(head["inner"]):
            column.inner[name] = cls.from_parts(child, parts.get(str(index), {}))
        return column


_SCALARS: Final = (
    "limit", "kind", "unit", "zone", "present", "missing", "odd", "spilled", "error", "length", "extremes",
)  # fmt: skip


def weighted_length(table: WeightedTable, kind: str) -> int:
    """Σ weight × length of a table of texts: code points, of bytes their number."""
    lengths: Any = text_lengths(table.values) if kind == "string" else numpy_of(pc.binary_length(table.values))
    return total(lengths.astype(np.object_) * table.weights)


def _numbers(array: Any, kind: str) -> NDArray[Any]:
    """A column's values without nulls as int64, uint64 or float64."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_decimal(array.type):
        array = array.cast(pa.float64())
    values = numpy_of(array)
    if values.dtype == np.uint64:
        return values
    return values.astype(np.float64 if kind == "float" else np.int64, copy=False)
