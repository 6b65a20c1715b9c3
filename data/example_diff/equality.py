"""Whether two values of one feature are equal, over whole columns: by value, not by how they are stored."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ...errors import InputError
from ..arrays import numpy_of
from ..rowhash import hash_column
from ..stats.column import kind_of

Mask = NDArray[np.bool_]

BOTH_MISSING: Final = 0
MATCH: Final = 1
MISMATCH: Final = 2
BASE_ONLY: Final = 3
TEST_ONLY: Final = 4

_TEXT: Final = frozenset({"string", "bytes"})
_NESTED: Final = frozenset({"list", "struct", "other"})
_NANOSECONDS: Final = {"D": 86_400_000_000_000, "s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}


def compared_as(base: Any, test: Any) -> str | None:
    """What values of two Arrow types are compared as, or None where no value of one equals one of the other.

    Returns:
        "bool", "int", "decimal", "float", "text", "time" (dates, times and durations too) or "nested".
    """
    if pa.types.is_decimal(base) or pa.types.is_decimal(test):
        odd = [kind for kind in (base, test) if not pa.types.is_decimal(kind)]
        kinds = {kind_of(kind) for kind in odd} - {"float", "int"}
        floats = any(pa.types.is_floating(kind) for kind in odd)
        return None if kinds else "float" if floats else "decimal"
    kinds = {kind_of(base), kind_of(test)}
    if kinds <= {"int", "float"}:
        return "int" if kinds == {"int"} else "float"
    if kinds <= _TEXT:
        return "text"
    if kinds <= _NESTED:
        return "nested" if len(kinds) == 1 else None
    if kinds <= {"timestamp", "date"}:
        zones = {getattr(kind, "tz", None) is not None for kind in (base, test)}
        return "time" if len(zones) == 1 else None
    if len(kinds) > 1:
        return None
    (kind,) = kinds
    return "bool" if kind == "bool" else "time"


def outcomes(base: Any, test: Any, digits: int | None) -> NDArray[np.int8]:
    """The outcome of each pair of values: `BOTH_MISSING`, `MATCH`, `MISMATCH`, `BASE_ONLY` or `TEST_ONLY`.

    NaN equals NaN and −0.0 equals 0.0; an integer equals the same number as a float, exactly; a time equals the same
    instant in another unit or zone, bytes the same bytes as text. Lists and structs go by a 64-bit hash, in which 1 is
    not 1.0.

    Args:
        base: A column.
        test: Another of the same length.
        digits: Decimals that floats are rounded to first; None: not at all.
    """
    here, there = numpy_of(base.is_valid()), numpy_of(test.is_valid())
    outcome = np.full(len(base), BOTH_MISSING, np.int8)
    outcome[here & ~there] = BASE_ONLY
    outcome[there & ~here] = TEST_ONLY
    both = here & there
    if both.any():
        is_compared = pa.array(both)
        outcome[both] = np.where(_equal(base.filter(is_compared), test.filter(is_compared), digits), MATCH, MISMATCH)
    return outcome


def differences(base: Any, test: Any) -> NDArray[np.float64]:
    """Test − base as float64, of times in seconds; NaN where either is missing or not finite, or it is not a number."""
    kind = compared_as(base.type, test.type)
    change_of_rows = np.full(len(base), np.nan)
    if kind not in ("int", "decimal", "float", "time"):
        return change_of_rows
    both = numpy_of(base.is_valid()) & numpy_of(test.is_valid())
    chosen = pa.array(both)
    left, right = base.filter(chosen), test.filter(chosen)
    if kind == "time" and _unit(left.type) != _unit(right.type):
        change = _whole(right) * (_unit(right.type) / 1e9) - _whole(left) * (_unit(left.type) / 1e9)
    elif kind == "time":
        change = _subtracted(_whole(right), _whole(left)) * (_unit(left.type) / 1e9)
    elif kind == "int" and pa.uint64() not in (left.type, right.type):
        change = _subtracted(_whole(right), _whole(left))
    else:
        with np.errstate(invalid="ignore", over="ignore"):
            change = _floats(right) - _floats(left)
    change[~np.isfinite(change)] = np.nan
    change_of_rows[both] = change
    return change_of_rows


def _subtracted(left: NDArray[np.int64], right: NDArray[np.int64]) -> NDArray[np.float64]:
    """Left − right, rounded once where it fits into 64 bits."""
    if all(abs(int(end)) < 2**62 for side in (left, right) if len(side) for end in (side.min(), side.max())):
        return (left - right).astype(np.float64)
    return left.astype(np.float64) - right.astype(np.float64)


def _equal(base: Any, test: Any, digits: int | None) -> Mask:
    """Where two columns without missing values are equal."""
    kind = compared_as(base.type, test.type)
    if kind is None:
        return np.zeros(len(base), np.bool_)
    if kind == "text":
        return numpy_of(pc.equal(base.cast(pa.large_binary()), test.cast(pa.large_binary())))
    if kind == "nested":
        try:
            return np.asarray(hash_column(_hashable(base, digits)) == hash_column(_hashable(test, digits)))
        except InputError as error:
            raise InputError(
                f"values of type {base.type} cannot be compared", fix="name the column in ignore="
            ) from error
    if kind == "time":
        return _same_time(base, test)
    if kind == "float":
        return _same_float(base, test, digits)
    if base.type != test.type:
        wide = pa.decimal256(76, 38) if kind == "decimal" else pa.decimal128(20, 0)
        base, test = base.cast(wide), test.cast(wide)
    return numpy_of(pc.equal(base, test))


def _same_float(base: Any, test: Any, digits: int | None) -> Mask:
    if digits is None and pa.types.is_integer(test.type):
        base, test = test, base
    left, right = _floats(base), _floats(test)
    if digits is not None:
        left, right = np.round(left, digits), np.round(right, digits)
    same: Mask = (left == right) | (np.isnan(left) & np.isnan(right))
    if digits is None and pa.types.is_integer(base.type):
        # Beyond 2^53 several integers convert to one float, so the float is compared as an integer.
        large = same & (np.abs(right) >= 2.0**53)
        for row in np.flatnonzero(large).tolist():
            same[row] = int(right[row]) == base[row].as_py()
    return same


def _same_time(base: Any, test: Any) -> Mask:
    coarse, fine = sorted((base, test), key=lambda side: -_unit(side.type))
    factor = _unit(coarse.type) // _unit(fine.type)
    # The fine one is divided, since the coarse one, multiplied, may not fit 64 bits.
    whole, rest = np.divmod(_whole(fine), factor)
    return np.asarray((whole == _whole(coarse)) & (rest == 0))


def _unit(kind: Any) -> int:
    """Nanoseconds of a date's, time's or duration's integers."""
    if pa.types.is_date32(kind):
        return _NANOSECONDS["D"]
    return _NANOSECONDS["ms" if pa.types.is_date64(kind) else kind.unit]


def _whole(column: Any) -> NDArray[np.int64]:
    return numpy_of(column).astype(np.int64)


def _floats(column: Any) -> NDArray[np.float64]:
    if pa.types.is_decimal(column.type):
        column = column.cast(pa.float64())
    return numpy_of(column).astype(np.float64)


def _hashable(column: Any, digits: int | None) -> Any:
    """The column with maps as lists of their pairs, and the floats in lists and structs rounded."""
    kind = column.type
    if pa.types.is_map(kind):
        column = column.cast(pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)])))
        kind = column.type
    if pa.types.is_floating(kind) and digits is not None:
        return pc.round(column.cast(pa.float64()), digits, round_mode="half_to_even")
    if pa.types.is_list(kind):
        values = _hashable(column.values, digits)
        if not column.null_count:
            return pa.ListArray.from_arrays(column.offsets, values)
        return pa.ListArray.from_arrays(column.offsets, values, mask=column.is_null())
    if pa.types.is_struct(kind):
        fields = [_hashable(pc.struct_field(column, [index]), digits) for index in range(kind.num_fields)]
        return pa.StructArray.from_arrays(fields, [field.name for field in kind], mask=column.is_null())
    return column
