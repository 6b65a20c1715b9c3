"""Decimals of 16 to 18 digits, which a float64 would round: counted as int64 in units of their last place."""

from __future__ import annotations

import decimal
import sys
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..aggregates.sums import ExactMoments, rounded
from ..aggregates.tables import NumberTable, top
from ..arrays import arrow_of

if TYPE_CHECKING:
    from .column import ColumnState

_LONGEST: Final = 18  # digits that every int64 holds


def has_units(arrow: Any) -> bool:
    """Whether values of the Arrow type are counted in units of their last place."""
    return bool(pa.types.is_decimal(arrow)) and sys.float_info.dig < arrow.precision <= _LONGEST


def units_of(decimals: Any) -> Any:
    """The decimals that are not null, as int64 in units of their last place.

    They have at most 18 digits, as `has_units` asks for: of such a number, the low half of its 128 bits is the int64.
    """
    present = _wide(decimals.drop_null() if decimals.null_count else decimals)
    pairs = np.frombuffer(present.buffers()[1], "<i8")[2 * present.offset :]  # 128 bits, the low half first
    return arrow_of(pairs[: 2 * len(present) : 2].astype(np.int64))


def too_long(decimals: Any) -> bool:
    """Whether one of the decimals has more digits than every float64 keeps."""
    arrow = decimals.type
    if arrow.precision <= sys.float_info.dig or not len(decimals):
        return False
    # All have the same digits behind the point, so the smallest or the largest has most digits.
    ends = pc.min_max(_wide(decimals)).as_py().values()
    return any(end and end.adjusted() + 1 + arrow.scale > sys.float_info.dig for end in ends)


def _wide(decimals: Any) -> Any:
    arrow = decimals.type
    if arrow.bit_width == 128 or arrow.precision > 38:
        return decimals
    return decimals.cast(pa.decimal128(arrow.precision, arrow.scale))


def exact_numbers(units: ColumnState, scale: int, levels: tuple[float, ...], top_values: int) -> dict[str, Any]:
    """The statistics of decimals that are exact, by name as in `describe`; text where no float64 is the same number.

    Args:
        units: The state of the decimals in units of their last place.
        scale: Decimal places of a unit.
        levels: Levels of the quantiles.
        top_values: How many frequent values to list.
    """
    unit = Fraction(10) ** -scale

    def exact(value: Any) -> dict[str, Any]:
        return {"value": value, "exact": True}

    if units.sketches is not None:
        counted, moments = None, units.sketches.moments
        low, high = units.sketches.low, units.sketches.high
        assert low is not None  # there are sketches only of many values
        assert high is not None
    else:
        table = units.table
        if not isinstance(table, NumberTable):
            return {}
        counted, moments = table, ExactMoments()
        moments.add(table.values, table.counts)
        low, high = table.values[0].item(), table.values[-1].item()
    facts = {
        "mean": exact(rounded(moments.sum.fraction() / moments.count * unit)),
        "std": exact(moments.std() * float(unit)),
        "min": exact(_shown(Fraction(int(low)) * unit)),
        "max": exact(_shown(Fraction(int(high)) * unit)),
    }
    if counted is None:
        return facts
    pairs = top(counted, top_values)
    return facts | {
        "unique": exact(len(counted.counts)),
        "median": exact(_quantile(counted, Fraction(1, 2), unit)),
        # Of the level as it is written: Fraction(0.1) would be the float next to a tenth.
        "quantiles": exact([_quantile(counted, Fraction(str(level)), unit) for level in levels]),
        "top_values": exact([{"value": _shown(Fraction(int(value)) * unit), "count": count} for value, count in pairs]),
    }


def _quantile(table: NumberTable, level: Fraction, unit: Fraction) -> float | str:
    """As `tables.quantiles` (linear interpolation between two rows), but exact, and rounded only once."""
    ends = np.cumsum(table.counts)
    last = int(ends[-1]) - 1
    below, share = divmod(last * level, 1)
    rows = np.searchsorted(ends, [int(below), min(int(below) + 1, last)], side="right")
    low, high = (int(table.values[row]) for row in rows)
    quantile = (low + (high - low) * share) * unit
    return _shown(quantile) if low == high or not share else rounded(quantile)


def _shown(value: Fraction) -> float | str:
    """A decimal as the float64 whose digits are the same, else as text."""
    number = rounded(value)
    if Fraction(repr(number)) == value:
        return number
    with decimal.localcontext(prec=60):
        return f"{decimal.Decimal(value.numerator) / value.denominator:f}"
