"""Value → weight tables: sums of float weights that are exact, so that no order, split or merge of the rows shows.

A weight is held as a whole number of 2^-96 in six limbs of 32 bits, and limbs are added as integers. Weights of 2^-43
and more keep every bit; smaller ones are rounded to that unit, each by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ..aggregates.tables import Numbers
from ..arrays import arrow_of, numpy_of

Limbs = NDArray[np.int64]  # (rows, 6), lowest first

_POINT: Final = 96  # bits below the point
_LIMBS: Final = 6
_BITS: Final = 32
LARGEST: Final = 2.0**62  # no weight is more: sums of 2^34 such rows still fit
UNIT: Final = Fraction(1, 1 << _POINT)
EXACT_BITS: Final = 52  # mantissa bits of a float64


def limbs_of(weights: NDArray[np.float64]) -> Limbs:
    """Finite weights from 0 to `LARGEST` as limbs."""
    found = np.zeros((len(weights), _LIMBS), np.int64)
    rest = weights.copy()
    for place in range(_LIMBS - 1, -1, -1):
        unit = 2.0 ** (_BITS * place - _POINT)
        piece = np.floor(rest / unit)
        rest -= piece * unit  # exact: the leading bits go
        found[:, place] = piece
    found[:, 0] += np.rint(rest * 2.0**_POINT).astype(np.int64)
    return found


def whole(limbs: Limbs) -> list[int]:
    """Each row's weight in units of 2^-96; limbs must be carried, as tables are."""
    words = limbs[:, 0::2].astype(np.uint64) | limbs[:, 1::2].astype(np.uint64) << np.uint64(_BITS)
    low, middle, high = words.T.tolist()
    return [a | b << 64 | c << 128 for a, b, c in zip(low, middle, high, strict=True)]


def limbs_of_whole(weights: Sequence[int]) -> Limbs:
    """The limbs of weights in units of 2^-96."""
    data = b"".join(weight.to_bytes(4 * _LIMBS, "little") for weight in weights)
    return np.frombuffer(data, "<u4").reshape(len(weights), _LIMBS).astype(np.int64)


def total(limbs: Limbs) -> int:
    """The sum of all rows in units of 2^-96; at most 2^31 rows."""
    return units(limbs.sum(axis=0))


def units(row: Any) -> int:
    """One row of limbs, carried or not, in units of 2^-96."""
    return sum(int(limb) << (_BITS * place) for place, limb in enumerate(row))


def running(limbs: Limbs) -> Limbs:
    """The sums of the first 0, 1, 2, … rows, not carried; at most 2^31 rows."""
    return np.concatenate([np.zeros((1, _LIMBS), np.int64), np.cumsum(limbs, axis=0)])


def heaviest(limbs: Limbs, limit: int) -> NDArray[np.int64]:
    """The rows that weigh most, heaviest first, of equal ones the last first; none without weight."""
    rough = limbs @ 2.0 ** (_BITS * np.arange(_LIMBS))  # off by less than the slack below
    least = np.partition(rough, -limit)[-limit] if 0 < limit < len(rough) else 0.0
    rows = np.flatnonzero((rough > 0) & (rough >= least * (1 - 1e-9)))
    order = np.lexsort((rows, *limbs[rows].T))[::-1]  # lexsort's last key, the highest limb, counts most
    found: NDArray[np.int64] = rows[order[:limit]]
    return found


class WeightedTable(NamedTuple):
    """Distinct values and the sum of each one's weights as carried limbs.

    Attributes:
        values: Finite numbers, ascending; or `large_binary` text, in no order before `in_order`.
        limbs: (values, 6).
        bits: Mantissa bits that values keep, the others cut off; None: all, values as they came.
    """

    values: Any  # numpy or pa.LargeBinaryArray
    limbs: Limbs
    bits: int | None = None


def weigh_numbers(values: Numbers, limbs: Limbs) -> WeightedTable:
    """The table of finite numbers and their weights."""
    if values.dtype == np.float64:
        values = values + 0.0  # -0.0 becomes 0.0: they are equal and must have one spelling
    return WeightedTable(*_sum(values, limbs))


def weigh_texts(array: Any, limbs: Limbs) -> WeightedTable:
    """The table of a text or dictionary array without nulls."""
    if not pa.types.is_dictionary(array.type):
        array = array.dictionary_encode()
    codes, sums = _sum(numpy_of(array.indices).astype(np.int64), limbs)
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
    limbs = np.concatenate([table.limbs for table in tables])
    if not isinstance(tables[0].values, np.ndarray):
        return _sum_texts(pa.concat_arrays([table.values for table in tables]), limbs)
    known = [table.bits for table in tables if table.bits is not None]
    if known:
        tables = [coarse(table, min(known)) for table in tables]
    values, sums = _sum(np.concatenate([table.values for table in tables]), limbs)
    return WeightedTable(values, sums, min(known) if known else None)


def in_order(table: WeightedTable) -> WeightedTable:
    """The table with its values ascending."""
    if isinstance(table.values, np.ndarray):
        return table
    order = pc.sort_indices(table.values)
    return WeightedTable(table.values.take(order), table.limbs[numpy_of(order)])


def coarse(table: WeightedTable, bits: int) -> WeightedTable:
    """The same weights with values cut to so many mantissa bits; values may then repeat."""
    return WeightedTable(_cut(np.asarray(table.values, np.float64), bits), table.limbs, bits)


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
    return WeightedTable(*_sum(_cut(values, bits), table.limbs), bits)


def _cut(values: NDArray[np.float64], bits: int) -> NDArray[np.float64]:
    mask = np.int64(-1) << np.int64(EXACT_BITS - bits)
    return (values.view(np.int64) & mask).view(np.float64) + 0.0


def weighted_moments(values: Numbers, weights: Sequence[int]) -> tuple[Fraction, Fraction]:
    """Σwx and Σwx², exactly; weights in units of 2^-96."""
    if values.dtype.kind == "f":
        mantissa, exponent = np.frexp(values.astype(np.float64))
        numbers, shifts = (mantissa * 2.0**53).astype(np.int64).tolist(), (exponent - 53).tolist()
    else:
        numbers, shifts = values.tolist(), [0] * len(values)
    low = min(shifts, default=0)
    first = second = 0
    for number, shift, weight in zip(numbers, shifts, weights, strict=True):
        product = weight * number << (shift - low)
        first += product
        second += product * number << (shift - low)
    scale = Fraction(2) ** low
    return first * scale * UNIT, second * scale * scale * UNIT


def _sum(keys: NDArray[Any], limbs: Limbs) -> tuple[NDArray[Any], Limbs]:
    """Distinct keys, ascending, and the carried sums of their limbs; at most 2^31 rows."""
    if not len(keys):
        return keys, limbs
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    starts = np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1])))
    sums = np.add.reduceat(limbs[order], starts, axis=0)
    for place in range(_LIMBS - 1):
        sums[:, place + 1] += sums[:, place] >> _BITS
        sums[:, place] &= (1 << _BITS) - 1
    return keys[starts], sums


def _sum_texts(values: Any, limbs: Limbs) -> WeightedTable:
    encoded = values.dictionary_encode()
    _, sums = _sum(numpy_of(encoded.indices).astype(np.int64), limbs)
    return WeightedTable(encoded.dictionary, sums)
