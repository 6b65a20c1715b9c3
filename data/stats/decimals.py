"""Decimals of 16 to 18 digits, which a float64 rounds: counted in whole units of their last place."""

from __future__ import annotations

import sys
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..arrays import arrow_of

_LONGEST: Final = 18  # digits that every int64 holds


def has_units(arrow: Any) -> bool:
    """Whether values of the Arrow type are counted in units of their last place."""
    return bool(pa.types.is_decimal(arrow)) and sys.float_info.dig < arrow.precision <= _LONGEST


def units_of(decimals: Any) -> Any:
    """The decimals that are there, as int64 in units of their last place."""
    present = _wide(decimals.drop_null() if decimals.null_count else decimals)
    pairs = np.frombuffer(present.buffers()[1], "<i8")[2 * present.offset :]  # 128 bits, the low half first
    return arrow_of(pairs[: 2 * len(present) : 2].astype(np.int64))


def too_long(decimals: Any) -> bool:
    """Whether one of the decimals has more digits than every float64 keeps."""
    arrow = decimals.type
    if arrow.precision <= sys.float_info.dig or not len(decimals):
        return False
    ends = pc.min_max(_wide(decimals)).as_py().values()
    return any(end and end.adjusted() + 1 + arrow.scale > sys.float_info.dig for end in ends)


def _wide(decimals: Any) -> Any:
    arrow = decimals.type
    if arrow.bit_width == 128 or arrow.precision > 38:
        return decimals
    return decimals.cast(pa.decimal128(arrow.precision, arrow.scale))
