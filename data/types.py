"""Column types: one spelling for each kind of data, before any digest, schema or comparison."""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc

from ..errors import InputError

_TEXT = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view, pa.types.is_null)
_BYTES = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view)


def normal_type(kind: pa.DataType) -> pa.DataType:
    """The one type for this kind of data, as it comes back from Parquet.

    Text in any encoding is `string`, and so is a column that is missing throughout (`null`); times in seconds become
    milliseconds, which is the coarsest that Parquet keeps; lists are `list`, by their normalised item.
    """
    if pa.types.is_dictionary(kind):
        return normal_type(kind.value_type)
    if any(test(kind) for test in _TEXT):
        return pa.string()
    if any(test(kind) for test in _BYTES):
        return pa.binary()
    if pa.types.is_timestamp(
        kind
    ):  # of a damaged file the zone's name is no text: said here, not in the midst of a pass
        return pa.timestamp("ms" if kind.unit == "s" else kind.unit, kind.tz)
    if pa.types.is_time32(kind):
        return pa.time32("ms")
    if pa.types.is_date64(kind):
        return pa.date32()
    if is_list(kind):
        return pa.list_(pa.field("element", normal_type(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, normal_type(field.type)) for field in kind])
    return kind


def is_list(kind: pa.DataType) -> bool:
    """Whether an Arrow type is one of the lists: of any length, large, or of a fixed one."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def named_type(name: str, column: str) -> pa.DataType:
    """The type that a person names: Arrow's own names, with a unit, zone or digits in brackets.

    E.g. "int64", "float64", "string", "bool", "date32", "timestamp[us]", "timestamp[us, tz=UTC]", "decimal128(12, 2)".

    Raises:
        InputError: No type of a column has that name.
    """
    decimal = re.fullmatch(r"decimal(?:128)?\((\d+),\s*(\d+)\)", name)
    zoned = re.fullmatch(r"timestamp\[(ms|us|ns),\s*tz=([\w/+:-]+)\]", name)
    try:
        if decimal:
            return pa.decimal128(int(decimal[1]), int(decimal[2]))
        return normal_type(pa.timestamp(zoned[1], zoned[2]) if zoned else pa.type_for_alias(name))
    except ValueError:
        raise InputError(
            f"the column {column!r} is declared {name!r}, which names no type",
            fix='say e.g. "string", "int64", "float64", "bool", "date32", "timestamp[us]" or "decimal128(12, 2)"',
        ) from None


def normal_schema(schema: pa.Schema, path: str) -> pa.Schema:
    """The schema with `null` kept (see `settle`), all else normalised, every column nullable, no metadata.

    Raises:
        InputError: Two columns share a name, or one has none.
    """
    seen: set[str] = set()
    for number, name in enumerate(schema.names, 1):
        if not name.strip():
            raise InputError(f"{path}: column {number} has no name", fix="name it in the header, or remove the column")
        if name in seen:
            raise InputError(f"{path}: two columns are named {name!r}", fix="rename one of them")
        seen.add(name)
    return pa.schema([pa.field(field.name, _keep_null(field.type)) for field in schema])


def _keep_null(kind: pa.DataType) -> pa.DataType:
    return kind if pa.types.is_null(kind) else normal_type(kind)


def settle(schema: pa.Schema) -> pa.Schema:
    """The schema with every column that is missing throughout called `string`, so that Parquet keeps it."""
    return pa.schema([pa.field(field.name, normal_type(field.type)) for field in schema])


def common_type(first: pa.DataType, second: pa.DataType) -> pa.DataType | None:
    """The narrowest type that holds the values of both, or None where there is none.

    `null` gives way to anything; integers widen to int64, with floats to float64; dates widen to times, coarse times
    to finer ones of the same zone.
    """
    if first == second or pa.types.is_null(second):
        return first
    if pa.types.is_null(first):
        return second
    if _number(first) and _number(second):
        if pa.types.is_integer(first) and pa.types.is_integer(second):
            return None if pa.uint64() in (first, second) else pa.int64()
        return pa.float64()
    if pa.types.is_date32(first) and pa.types.is_timestamp(second) and second.tz is None:
        return second
    if pa.types.is_date32(second) and pa.types.is_timestamp(first) and first.tz is None:
        return first
    if pa.types.is_timestamp(first) and pa.types.is_timestamp(second) and first.tz == second.tz:
        units = ("s", "ms", "us", "ns")
        return max(first, second, key=lambda kind: units.index(kind.unit))
    return None


def _number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


class UnfitError(pa.ArrowInvalid):  # type: ignore[misc]  # pyarrow ships no types
    """A column's values that its settled type cannot hold; says which column, and a value."""


def restore(batch: pa.RecordBatch, schema: pa.Schema, *, dictionaries: bool = False) -> pa.RecordBatch:
    """The schema's columns of a batch, cast to its types; dictionary columns stay so if `dictionaries`.

    Raises:
        UnfitError: A value does not fit, e.g. a whole number beyond 2^53 a column that other files make float64.
    """
    columns = []
    for field in schema:
        column = batch.column(field.name)
        encoded = pa.types.is_dictionary(column.type)
        if column.type != field.type and not (dictionaries and encoded and column.type.value_type == field.type):
            try:
                column = pc.cast(column, field.type)
            except pa.ArrowInvalid as error:
                raise UnfitError(f"column {field.name!r} does not fit {field.type}: {error}") from error
        columns.append(column)
    fields = [pa.field(field.name, column.type) for field, column in zip(schema, columns, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))
