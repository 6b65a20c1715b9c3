"""Value → weight tables: sums of float weights that are exact, so that no order, split or merge of the rows shows.

A weight is a whole number of units of 2^-96, held as a Python integer in an object array: numpy adds integers of any
size through them, and no sum overflows. Weights of 2^-43 and more keep every bit; smaller ones are rounded to that
unit, each by itself.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ..aggregates.tables import Numbers
from ..arrays import arrow_of, numpy_of

Weights = NDArray[np.object_]  # Python integers of at least 0, in units of 2^-96

_POINT: Final = 96  # bits below the point
_STORED_BYTES: Final = 24  # of a weight in a stored state: room for the sum of 2^34 of the largest
LARGEST: Final = 2.0**62  # no weight is more
UNIT: Final = Fraction(1, 1 << _POINT)
EXACT_BITS: Final = 52  # mantissa bits of a float64


def units_of(weights: NDArray[np.float64]) -> Weights:
    """Finite weights from 0 to `LARGEST` in whole units."""
    scaled = np.ldexp(weights, _POINT)  # a power of two: exact
    units = np.floor(scaled)
    units += np.rint(scaled - units)  # a tie goes down, as it did in the states that are stored
    return _objects(list(map(int, units.tolist())))


def _objects(integers: Sequence[int]) -> Weights:
    # numpy.array would try int64 first, and take it where all fit: sums of those wrap around.
    array = np.empty(len(integers), np.object_)
    array[:] = integers
    return array


def total(weights: Weights) -> int:
    """The sum of all rows, in units."""
    return sum(weights.tolist())


def stored_weights(weights: Weights) -> Any:
    """Weights as a pyarrow array for a state: of each six int64 that hold 32 bits, the lowest first."""
    data = b"".join(weight.to_bytes(_STORED_BYTES, "little") for weight in weights.tolist())
    return arrow_of(np.frombuffer(data, "<u4").astype(np.int64))


def read_weights(stored: Any) -> Weights:
    """The weights that `stored_weights` gave."""
    data = numpy_of(stored).astype("<u4").tobytes()
    return _objects(
        [int.from_bytes(data[at : at + _STORED_BYTES], "little") for at in range(0, len(data), _STORED_BYTES)]
    )


def heaviest(weights: Weights, limit: int) -> list[int]:
    """The rows that weigh most, heaviest first, of equal ones the last first; none without weight."""
    ranked = heapq.nlargest(limit, ((weight, row) for row, weight in enumerate(weights.tolist()) if weight))
    return [row for _, row in ranked]


class WeightedTable(NamedTuple):
    """Distinct values and the sum of each one's weights.

    Attributes:
        values: Finite numbers, ascending; or `large_binary` text, in no order before `in_order`.
        weights: As many, in units of 2^-96.
        bits: Mantissa bits that values keep, the others cut off; None: all, values as they came.
    """

    values: Any  # numpy or pa.LargeBinaryArray
    weights: Weights
    bits: int | None = None


def weigh_numbers(values: Numbers, weights: Weights) -> WeightedTable:
    """The table of finite numbers and their weights."""
    if values.dtype == np.float64:
        values = values + 0.0  # -0.0 becomes 0.0: they are equal and must have one spelling
    return WeightedTable(*_sum(values, weights))


def weigh_texts(array: Any, weights: Weights) -> WeightedTable:
    """The table of a text or dictionary array without nulls."""
    if not pa.types.is_dictionary(array.type):
        array = array.dictionary_encode()
    codes, sums = _sum(numpy_of(array.indices).astype(np.int64), weights)
    texts = array.dictionary.take(arrow_of(codes))
    if pa.types.is_fixed_size_binary(texts.type):
        texts = texts.cast(pa.binary())
    elif not pa.types.is_large_binary(texts.type) and not pa.types.is_binary(texts.type):
        texts = texts.cast(pa.large_string())
    return _sum_texts(texts.cast(pa.large_binary()), sums)  # a dictionary may hold a text twice


def merge_weighted(tables: Sequence[WeightedTable]) -> WeightedTable:
    """The table of all the tables' rows; at least one table, all of numbers or all of text."""
    if len(tables) == 1:
        return tables[0]
    weights = np.concatenate([table.weights for table in tables])
    if not isinstance(tables[0].values, np.ndarray):
        return _sum_texts(pa.concat_arrays([table.values for table in tables]), weights)
    known = [table.bits for table in tables if table.bits is not None]
    if known:
        tables = [coarse(table, min(known)) for table in tables]
    values, sums = _sum(np.concatenate([table.values for table in tables]), weights)
    return WeightedTable(values, sums, min(known) if known else None)


def in_order(table: WeightedTable) -> WeightedTable:
    """The table with its values ascending."""
    if isinstance(table.values, np.ndarray):
        return table
    order = pc.sort_indices(table.values)
    return WeightedTable(table.values.take(order), table.weights[numpy_of(order)])


def coarse(table: WeightedTable, bits: int) -> WeightedTable:
    """The same weights with values cut to so many mantissa bits; values may then repeat."""
    return WeightedTable(_cut(np.asarray(table.values, np.float64), bits), table.weights, bits)


def reduce_to(table: WeightedTable, limit: int) -> WeightedTable:
    """The table with as many mantissa bits as leave at most `limit` values (none at the least).

    The bits kept depend on the rows alone: a part never needs fewer than the whole.
    """
    bits = EXACT_BITS if table.bits is None else table.bits
    values = np.asarray(table.values, np.float64)
    while bits > 0:
        bits -= 1
        cut = _cut(values, bits)  # still ascending
        if 1 + np.count_nonzero(cut[1:] != cut[:-1]) <= limit:
            break
    return WeightedTable(*_sum(_cut(values, bits), table.weights), bits)


def _cut(values: NDArray[np.float64], bits: int) -> NDArray[np.float64]:
    # On the float's own bits, so towards 0 and in order; + 0.0 since a negative subnormal may become -0.0.
    mask = np.int64(-1) << np.int64(EXACT_BITS - bits)
    return (values.view(np.int64) & mask).view(np.float64) + 0.0


def weighted_moments(table: WeightedTable) -> tuple[Fraction, Fraction]:
    """Σwx and Σwx² of a table of numbers, exactly."""
    values = table.values
    mantissas, exponents = values, np.zeros(len(values), np.int64)
    if values.dtype.kind == "f":
        fractions, powers = np.frexp(values.astype(np.float64))
        mantissas, exponents = (fractions * 2.0**53).astype(np.int64), powers - 53
    integers = mantissas.astype(np.object_)
    products = table.weights * integers
    return _scaled_sum(exponents, products) * UNIT, _scaled_sum(2 * exponents, products * integers) * UNIT


def _scaled_sum(exponents: NDArray[np.integer], integers: NDArray[np.object_]) -> Fraction:
    """Σ integers · 2^exponents; those of one exponent are added first, since shifting costs more than adding."""
    sums = zip(*(column.tolist() for column in _sum(exponents, integers)), strict=True)
    return sum((Fraction(2) ** exponent * integer for exponent, integer in sums), Fraction(0))


def _sum(keys: NDArray[Any], weights: Weights) -> tuple[NDArray[Any], Weights]:
    """Distinct keys, ascending, and the sums of their weights."""
    if not len(keys):
        return keys, weights
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    starts = np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1])))
    return keys[starts], np.add.reduceat(weights[order], starts)


def _sum_texts(values: Any, weights: Weights) -> WeightedTable:
    encoded = values.dictionary_encode()
    _, sums = _sum(numpy_of(encoded.indices).astype(np.int64), weights)
    return WeightedTable(encoded.dictionary, sums)
