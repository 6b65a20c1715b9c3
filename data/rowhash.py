"""A 64-bit hash of rows, vectorised over Arrow columns: the same for every encoding, batch layout and column order.

Definition (all arithmetic modulo 2^64; `mix` is the finaliser of SplitMix64, Steele, Lea and Flood 2014):

- A missing value hashes to `NULL`, whatever its type.
- Integers, booleans (0 and 1), dates, times and durations: `mix(mix(family) + v)`, v the value as int64.
- Floats of any width: likewise with v the bits of the float64; -0.0 counts as 0.0 and every NaN as one NaN.
- Text (UTF-8) and bytes: `h = mix(family) + length`, then for each little-endian 8-byte word, the last padded with
  zeros, `h = mix(h ^ word)`; of more than 4,096 bytes, for each word of their SHA-256 instead, which is far faster.
- Lists: `mix(mix(family) + length + Σ mix(item_hash + (position + 1) · GOLDEN))`. Structs: as a row of their fields.
- Decimals: as their text.
- A row: `mix(Σ mix(value_hash ^ text_hash(column_name)))`, so columns may come in any order.

`family` is 1 integer, 2 boolean, 3 float, 4 text, 5 bytes, 6 date, 7 time of day, 8 timestamp, 9 duration, 10 list,
so the integer 1, the float 1.0 and the text "1" differ. Plain, large, view and dictionary encodings do not.
"""

from __future__ import annotations

import hashlib
from functools import cache
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ..errors import InputError
from .arrays import arrow_of, numpy_of, texts

Hashes = NDArray[np.uint64]

_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)
_FIRST: Final = np.uint64(0xBF58476D1CE4E5B9)
_SECOND: Final = np.uint64(0x94D049BB133111EB)
_LONG: Final = 4096  # bytes
_MASKS: Final = np.array([(1 << (8 * size)) - 1 for size in range(8)] + [2**64 - 1], dtype=np.uint64)


def mix(values: Hashes) -> Hashes:
    """SplitMix64's step and finaliser: a bijection in which every input bit moves every output bit."""
    mixed = values + _GOLDEN
    mixed ^= mixed >> np.uint64(30)
    mixed *= _FIRST
    mixed ^= mixed >> np.uint64(27)
    mixed *= _SECOND
    mixed ^= mixed >> np.uint64(31)
    return mixed


@cache
def _seed(family: int) -> np.uint64:
    return np.uint64(mix(np.array([family], dtype=np.uint64))[0])


_NULL: Final = _seed(0)


def hash_rows(batch: pa.RecordBatch) -> Hashes:
    """One hash per row over all columns.

    Returns:
        uint64, as many as rows.

    Raises:
        InputError: A column of a type that has no hash (a map or a union).
    """
    return _row([(field.name, column) for field, column in zip(batch.schema, batch.columns, strict=True)], len(batch))


def _row(columns: list[tuple[str, pa.Array]], rows: int) -> Hashes:
    total = np.zeros(rows, dtype=np.uint64)
    for name, column in columns:
        total += mix(hash_column(column) ^ hash_column(texts([name]))[0])
    return mix(total)


def hash_column(column: pa.Array) -> Hashes:
    """One hash per value of a column; uint64, as many as values. Raises InputError as `hash_rows`."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        values = np.append(hash_column(column.dictionary), _NULL)
        codes = np.where(numpy_of(column.indices.is_null()), len(values) - 1, numpy_of(column.indices).astype(np.int64))
        taken: Hashes = values[codes]
        return taken
    if pa.types.is_null(kind):
        return np.full(len(column), _NULL, dtype=np.uint64)
    hashes = _present(column, kind)
    if column.null_count:
        hashes[numpy_of(column.is_null())] = _NULL
    return hashes


def _present(column: pa.Array, kind: pa.DataType) -> Hashes:
    """Hashes of the values, anything where one is missing."""
    if pa.types.is_integer(kind):
        return _words(numpy_of(column), 1)
    if pa.types.is_boolean(kind):
        return _words(numpy_of(column), 2)
    if pa.types.is_floating(kind):
        floats = numpy_of(column).astype(np.float64, copy=False) + 0.0  # a copy; -0.0 + 0.0 is 0.0
        nan = np.isnan(floats)
        if nan.any():
            floats[nan] = np.nan
        return _words(floats.view(np.int64), 3)
    if pa.types.is_decimal(kind):
        return _bytes(column.cast(pa.large_string()), 4)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return _bytes(column.cast(pa.large_string()), 4)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return _bytes(column.cast(pa.large_binary()), 5)
    if pa.types.is_fixed_size_binary(kind):
        return _bytes(column.cast(pa.binary()).cast(pa.large_binary()), 5)
    times = (6, pa.types.is_date), (7, pa.types.is_time), (8, pa.types.is_timestamp), (9, pa.types.is_duration)
    for family, test in times:
        if test(kind):
            return _words(numpy_of(column), family)
    if pa.types.is_fixed_size_list(kind):
        return hash_column(column.cast(pa.list_(kind.value_type)))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _lists(column)
    if pa.types.is_struct(kind):
        fields = [(field.name, pc.struct_field(column, [index])) for index, field in enumerate(kind)]
        return _row(fields, len(column))
    raise InputError(f"a column of type {kind} has no row hash", fix="split by one column: split_by=")


def _words(values: NDArray[np.generic], family: int) -> Hashes:
    wide: Hashes = values.astype(np.uint64 if values.dtype == np.uint64 else np.int64, copy=False).view(np.uint64)
    return mix(wide + _seed(family))


def _bytes(column: pa.Array, family: int) -> Hashes:
    _, offset_buffer, data = column.buffers()
    offsets = np.frombuffer(offset_buffer, np.int64, len(column) + 1, column.offset * 8)
    starts, lengths = offsets[:-1], np.diff(offsets)
    if column.null_count:
        lengths = np.where(numpy_of(column.is_null()), 0, lengths)
    hashes = lengths.astype(np.uint64) + _seed(family)
    long = np.flatnonzero(lengths > _LONG)
    if len(long):
        value = memoryview(data)
        digests = [hashlib.sha256(value[starts[row] : starts[row] + lengths[row]]).digest() for row in long.tolist()]
        for words in np.frombuffer(b"".join(digests), "<u8").reshape(-1, 4).T:
            hashes[long] = mix(hashes[long] ^ words)
        short = np.flatnonzero(lengths <= _LONG)
        hashes[short] = _bytes(column.take(arrow_of(short)), family)
        return hashes
    low, high = (int(offsets[0]), int(offsets[-1])) if len(column) else (0, 0)
    size = high - low
    padded = np.zeros(size + 8, dtype=np.uint8)
    if size:
        padded[:size] = np.frombuffer(data, np.uint8, size, low)
    # A word at every byte, overlapping, so that word k of all values is one indexing, wherever they begin.
    at_byte: Hashes = np.ndarray((size + 1,), dtype="<u8", buffer=padded.data, strides=(1,))
    rows, start = np.flatnonzero(lengths > 0), 0
    while len(rows):
        left = lengths[rows] - start
        word = at_byte[starts[rows] - low + start] & _MASKS[np.minimum(left, 8)]
        hashes[rows] = mix(hashes[rows] ^ word)
        rows, start = rows[left > 8], start + 8
    return hashes


def _lists(column: pa.Array) -> Hashes:
    offsets = numpy_of(column.offsets).astype(np.int64)
    lengths = np.diff(offsets)
    items = hash_column(column.values.slice(offsets[0], offsets[-1] - offsets[0]))
    offsets = offsets - offsets[0]
    position = np.arange(len(items)) - np.repeat(offsets[:-1], lengths)
    # Sums of each list as differences of running sums: all is modulo 2^64, so that these may wrap around.
    running = np.zeros(len(items) + 1, dtype=np.uint64)
    np.cumsum(mix(items + (position + 1).astype(np.uint64) * _GOLDEN), out=running[1:])
    return mix(running[offsets[1:]] - running[offsets[:-1]] + lengths.astype(np.uint64) + _seed(10))
