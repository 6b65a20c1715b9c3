"""The state of one column in the statistics pass: exact tables up to a limit of distinct values, sketches beyond it.

Whether a column is exact depends on its rows alone, not on shards: if any part has more distinct values than the limit,
so has the whole.

A list's own numbers are its lengths; its items, and a struct's fields, have states of their own, counted alike: rows of
an item's state are the items of all lists that are there, rows of a field's are the structs that are there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...errors import InputError
from ..aggregates.tables import (
    NumberTable,
    TextTable,
    count_numbers,
    merge_numbers,
    text_bytes,
)
from ..aggregates.text_rows import settle_texts, texts_of
from ..arrays import arrow_of, numpy_of
from ..states import nested, nested_arrays
from .column_sketches import Sketches, table_of, table_values, whole_numbers
from .decimals import has_units, too_long, units_of
from .images import ImageFacts, add_images, merge_images

EXACT_LIMIT: Final = 100_000  # distinct values of a column up to which everything about it is exact
EXACT_BYTES: Final = 1 << 26  # and bytes of its distinct texts together

NUMERIC: Final = frozenset({"bool", "int", "float", "timestamp", "date", "time", "duration", "list"})
TEXT: Final = frozenset({"string", "bytes"})
_UNITS: Final = frozenset({"timestamp", "date", "time", "duration"})


def kind_of(arrow: Any) -> str:
    """The statistics' type of an Arrow type.

    One of bool, int, float, string, bytes, timestamp, date, time, duration, list, struct, null, other.
    """
    types = pa.types
    if types.is_dictionary(arrow):
        return kind_of(arrow.value_type)
    for kind, checks in _KINDS:
        if any(getattr(types, f"is_{check}")(arrow) for check in checks):
            return kind
    return "other"


_KINDS: Final = (
    ("null", ("null",)),
    ("bool", ("boolean",)),
    ("int", ("integer",)),
    ("float", ("floating", "decimal")),
    ("string", ("string", "large_string", "string_view")),
    ("bytes", ("binary", "large_binary", "fixed_size_binary", "binary_view")),
    ("timestamp", ("timestamp",)),
    ("date", ("date",)),
    ("time", ("time",)),
    ("duration", ("duration",)),
    ("list", ("list", "large_list", "fixed_size_list", "list_view", "large_list_view", "map")),
    ("struct", ("struct",)),
)


def _plain_type(arrow: Any) -> Any:
    """The type of the values themselves, which a dictionary, runs or an extension wrap."""
    while True:
        if pa.types.is_dictionary(arrow) or pa.types.is_run_end_encoded(arrow):
            arrow = arrow.value_type
        elif isinstance(arrow, pa.BaseExtensionType):
            arrow = arrow.storage_type
        else:
            return arrow


def plain_array(array: Any) -> Any:
    """An array without runs and extensions, and a dictionary only where it is one of texts without null."""
    while True:
        arrow = array.type
        if isinstance(arrow, pa.BaseExtensionType):
            array = array.storage
        elif pa.types.is_run_end_encoded(arrow):
            array = pc.run_end_decode(array)
        elif pa.types.is_dictionary(arrow) and (kind_of(arrow) not in TEXT or array.dictionary.null_count):
            array = array.dictionary_decode()
        elif pa.types.is_map(arrow):
            array = array.cast(pa.list_(pa.struct([("key", arrow.key_type), ("value", arrow.item_type)])))
        else:
            return array


def _inner_types(arrow: Any) -> Iterator[tuple[str, Any]]:
    """Names and types of what is within a list (its "values"; of a map structs of "key" and "value") or a struct.

    Within decimals of a certain length are their units, named by the decimal places.
    """
    if pa.types.is_map(arrow):
        yield "values", pa.struct([("key", arrow.key_type), ("value", arrow.item_type)])
    elif kind_of(arrow) == "list":
        yield "values", arrow.value_type
    elif pa.types.is_struct(arrow):
        yield from ((field.name, field.type) for field in arrow)
    elif has_units(arrow):
        yield str(arrow.scale), pa.int64()


class ColumnState:
    """What one pass remembers of a column.

    Attributes:
        kind: See `kind_of`; "null" until a batch has a type.
        arrow: The Arrow type's name.
        unit: Of dates and times: "s", "ms", "us", "ns" or "D"; else "".
        zone: Of timestamps: their time zone, or "".
        rows: Rows taken in.
        missing: Rows that are null.
        nan: Rows that are NaN; like infinities, they are not missing, but in no table, moment or quantile.
        positive_infinity, negative_infinity: Rows that are +Inf, and −Inf.
        images: Of bytes, what they are as images; None in states of releases that did not look.
        rounded: Whether decimals of more digits than a float64 keeps were rounded to one.
        sketches: None while the column is exact.
        inner: Of a list the state of its items, as "values"; of a struct those of its fields by name; of decimals, as
            long as all have the same places, that of their units by the number of places.
    """

    def __init__(self, name: str, limit: int = EXACT_LIMIT) -> None:
        self.name = name
        self.limit = limit
        self.kind = "null"
        self.arrow = "null"
        self.unit = ""
        self.zone = ""
        self.rows = 0
        self.missing = 0
        self.nan = 0
        self.positive_infinity = 0
        self.negative_infinity = 0
        self.rounded = False
        self.images: ImageFacts | None = {}
        self.sketches: Sketches | None = None
        self.inner: dict[str, ColumnState] = {}
        # Tables (all of one kind, or TextRows) that wait to be merged: one merge of many is quicker than many of two.
        self._pending: list[Any] = []
        self._pending_size = 0

    @property
    def count(self) -> int:
        """Rows that are not null."""
        return self.rows - self.missing

    @property
    def levels(self) -> list[ColumnState]:
        """The column, the items of its lists, the items of theirs, …: the last is not a list."""
        levels = [self]
        while levels[-1].kind == "list":
            levels.append(levels[-1].inner["values"])
        return levels

    @property
    def fields(self) -> dict[str, ColumnState]:
        """The states of a struct's fields by name; none where it is not a struct."""
        return self.inner if self.kind == "struct" else {}

    @property
    def whole(self) -> bool:
        """Whether all values are integers, be they floats: such as pandas makes of integers where some are missing."""
        if self.kind not in ("int", "float") or self.nan or self.positive_infinity or self.negative_infinity:
            return False
        if self.sketches is not None:
            return self.sketches.whole
        return self.table is None or whole_numbers(self.table.values)

    def add(self, array: Any) -> None:
        """Take in a batch's column (a pyarrow array).

        Raises:
            InputError: Its type differs from the earlier batches'.
        """
        self._accept(array.type)
        array = plain_array(array)
        self.rows += len(array)
        self.missing += array.null_count
        if array.null_count == len(array):  # perhaps of the type null
            return
        if self.kind in TEXT:
            self._push(texts_of(array))
            self.images = add_images(self.images, array)
        elif self.kind in NUMERIC:
            self._push(count_numbers(self._finite(self._numbers(array))))
        if self.inner:
            self._add_inner(array)

    def _add_inner(self, array: Any) -> None:
        if self.kind == "list":
            self.inner["values"].add(pc.list_flatten(array))
            return
        if self.kind == "float":
            for units in self.inner.values():
                units.add(units_of(array))
            return
        present = array.drop_null() if array.null_count else array
        for field, values in zip(array.type, present.flatten(), strict=True):
            self.inner[field.name].add(values)

    def _accept(self, arrow: Any) -> None:
        arrow = _plain_type(arrow)
        kind = kind_of(arrow)
        if kind == "null" or str(arrow) == self.arrow:
            return
        if self.kind != "null":
            self._agree(kind, str(arrow))
            self._agree_inner([name for name, _ in _inner_types(arrow)], first=False)
            return
        self.kind, self.arrow = kind, str(arrow)
        self._agree_inner([name for name, _ in _inner_types(arrow)])
        for name, inner in _inner_types(arrow):
            self.inner[name]._accept(inner)
        if kind == "date":
            self.unit = "D" if pa.types.is_date32(arrow) else "ms"
        elif kind in _UNITS:
            self.unit = arrow.unit
            self.zone = getattr(arrow, "tz", None) or ""

    def _agree(self, kind: str, arrow: str) -> None:
        # int32 and int64 count alike; seconds and milliseconds do not.
        if kind != self.kind or (kind in _UNITS and arrow != self.arrow):
            raise InputError(
                f"column {self.name!r} is {self.arrow} in one part of the data and {arrow} in another",
                fix="write the files with one type per column, or name the column's type when reading them",
            )

    def _agree_inner(self, names: list[str], *, first: bool = True) -> None:
        if self.kind == "float" and not first:  # of different places: only the floats remain
            self.inner = self.inner if set(names) == set(self.inner) else {}
            return
        if len(set(names)) != len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise InputError(f"two fields of column {self.name!r} are named {twice!r}", fix="rename one of them")
        if not self.inner:
            mark = "{}[]" if self.kind == "list" else "{}.{}"
            self.inner = {name: ColumnState(mark.format(self.name, name), self.limit) for name in names}
        elif set(names) != set(self.inner):
            unmatched = sorted(set(names) ^ set(self.inner))
            raise InputError(
                f"field {unmatched[0]!r} of column {self.name!r} is in one part of the data and not in another",
                fix="give all files the same fields",
            )

    def _numbers(self, array: Any) -> Any:
        """The values that are not null, as int64, uint64 or float64."""
        if array.null_count:
            array = array.drop_null()
        if self.kind == "list":
            return numpy_of(pc.list_value_length(array)).astype(np.int64)
        if self.kind == "float" and pa.types.is_decimal(array.type):
            self.rounded = self.rounded or too_long(array)
            array = array.cast(pa.float64())
        values = numpy_of(array)
        if values.dtype == np.uint64:
            return values
        return values.astype(np.float64 if self.kind == "float" else np.int64, copy=False)

    def _finite(self, values: Any) -> Any:
        if self.kind != "float":
            return values
        finite = np.isfinite(values)
        if finite.all():
            return values
        odd = values[~finite]
        self.nan += int(np.isnan(odd).sum())
        self.positive_infinity += int((odd == np.inf).sum())
        self.negative_infinity += int((odd == -np.inf).sum())
        return values[finite]

    def _push(self, table: Any) -> None:
        if not len(table.counts):
            return
        if self.sketches is not None:
            self.sketches.add(table)
            return
        self._pending.append(table)
        self._pending_size += self._size(table)
        if self._pending_size > 2 * self.limit:
            self._settle()

    def _size(self, table: Any) -> int:
        """An upper bound of what the table adds to the limit; 64 MB of text count as much as 100,000 values."""
        text = text_bytes(table.values) if self.kind in TEXT else 0
        return max(len(table.counts), -(-text * self.limit // EXACT_BYTES))

    def compact(self) -> None:
        """Bound the size: tables that may be over the limit together are merged, and become sketches if they are.

        Below that, merging early or late gives the same table, so waiting costs nothing but is faster.
        """
        if self._pending_size > self.limit or (self.sketches is not None and self._pending):
            self._settle()
        for inner in self.inner.values():
            inner.compact()

    def _join(self, limit: int) -> None:
        """Merge the pending tables to one; texts that are certainly beyond the limit stay rows."""
        if self._pending:
            text = self.kind in TEXT
            self._pending = [settle_texts(self._pending, limit, EXACT_BYTES) if text else merge_numbers(self._pending)]

    def _settle(self) -> None:
        self._join(self.limit if self.sketches is None else 0)
        if not self._pending:
            return
        table = self._pending[0]
        self._pending_size = self._size(table)
        if self.sketches is not None or self._pending_size > self.limit:
            self._spill()

    def _spill(self) -> None:
        if self.sketches is None:
            self.sketches = Sketches(text=self.kind in TEXT)
        for table in self._pending:
            self.sketches.add(table)
        self._pending, self._pending_size = [], 0

    def merge(self, other: ColumnState) -> None:
        """Take in the state of the rows that follow.

        Raises:
            InputError: The two are of different types.
        """
        # Storing a state settles it. Both sides are settled here too, so that a state that was stored and read again
        # merges to the same bytes as one that was not.
        self.compact()
        other.compact()
        first = self.kind == "null"
        if first:
            self.kind, self.arrow, self.unit, self.zone = other.kind, other.arrow, other.unit, other.zone
        elif other.kind != "null":
            self._agree(other.kind, other.arrow)
        if other.inner or (self.inner and other.kind == "float"):
            self._agree_inner(list(other.inner), first=first)
        for name, inner in self.inner.items():
            if name in other.inner:
                inner.merge(other.inner[name])
        self.rounded = self.rounded or other.rounded
        self.images = merge_images(self.images, other.images)
        for name in ("rows", "missing", "nan", "positive_infinity", "negative_infinity"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        if self.sketches is None and other.sketches is not None:
            self._settle()
            self._spill()
        if self.sketches is not None and other.sketches is not None:
            self.sketches.merge(other.sketches)
        elif self.sketches is not None:
            other._join(0)
        self._pending += other._pending
        self._pending_size += other._pending_size
        self.compact()

    @property
    def table(self) -> NumberTable | TextTable | None:
        """The exact table, or None where there are only sketches (or nothing: no value, or a type without one)."""
        self._settle()
        return self._pending[0] if self._pending else None

    def to_parts(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The state as JSON-able scalars and named pyarrow arrays."""
        table = self.table
        head: dict[str, Any] = {name: getattr(self, name) for name in _SCALARS}
        arrays: dict[str, Any] = {}
        if table is not None:
            arrays = {"values": table_values(table.values), "counts": arrow_of(table.counts)}
        if self.sketches is not None:
            more, arrays = self.sketches.to_parts()
            head["sketches"] = more
        if self.inner:
            head["inner"] = []
        for index, (name, inner) in enumerate(self.inner.items()):
            more, parts = inner.to_parts()
            head["inner"].append([name, more])
            arrays |= nested(f"inner{index}", parts)
        return head, arrays

    @classmethod
    def from_parts(cls, head: Mapping[str, Any], arrays: Mapping[str, Any]) -> ColumnState:
        """The state that `to_parts` gave."""
        column = cls(head["name"], head["limit"])
        for name in _SCALARS:
            setattr(column, name, head.get(name))
        if "sketches" in head:
            column.sketches = Sketches.from_parts(head["sketches"], arrays, text=column.kind in TEXT)
        elif "values" in arrays:
            column._pending = [table_of(arrays["values"], arrays["counts"])]
            column._pending_size = column._size(column._pending[0])
        parts = nested_arrays(arrays)
        for index, (name, inner) in enumerate(head.get("inner", ())):
            column.inner[name] = cls.from_parts(inner, parts.get(f"inner{index}", {}))
        return column


_SCALARS: Final = (
    "name", "limit", "kind", "arrow", "unit", "zone", "rows", "missing", "nan", "positive_infinity",
    "negative_infinity", "rounded", "images",
)  # fmt: skip
