"""Times on the host: what a timestamp or date is as a number, and the parts of a calendar in it, in UTC.

A raw timestamp or date is an int64 column of milliseconds since 1970-01-01 UTC. Parts are of the proleptic Gregorian
calendar, as in NumPy and ISO 8601.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ...data.types import is_list, named_type, normal_type
from ...errors import InputError

UNITS: Final = {"ns": 1_000_000, "us": 1000, "ms": 1, "s": -1000, "days": -86_400_000}
"""Unit → how many are a millisecond; negative: how many milliseconds it has."""

Times = NDArray[np.int64]  # milliseconds


def _since(unit: str, of: str) -> Callable[[Times], NDArray[Any]]:
    def part(times: Times) -> NDArray[Any]:
        at = times.view("M8[ms]")
        count: NDArray[Any] = (at.astype(f"M8[{unit}]") - at.astype(f"M8[{of}]").astype(f"M8[{unit}]")).astype(np.int64)
        return count

    return part


PARTS: Final[dict[str, tuple[Callable[[Times], NDArray[Any]], int, float | None]]] = {
    "year": (lambda times: times.view("M8[ms]").astype("M8[Y]").astype(np.int64) + 1970, 0, None),
    "month": (_since("M", "Y"), 1, 12.0),
    "day": (_since("D", "M"), 1, None),
    "day_of_week": (lambda times: (times // 86_400_000 + 3) % 7, 0, 7.0),  # 1970-01-01 was a Thursday, Monday is 0
    "day_of_year": (_since("D", "Y"), 1, 365.2425),
    "hour": (_since("h", "D"), 0, 24.0),
    "minute": (_since("m", "h"), 0, 60.0),
    "second": (_since("s", "m"), 0, 60.0),
    "second_of_day": (_since("s", "D"), 0, 86_400.0),
    "days": (lambda times: times // 86_400_000, 0, None),
}
"""Part → how it is taken from milliseconds, counted from 0; what the first one is called; its period, if it has one."""


def is_time(kind: pa.DataType) -> bool:
    """Whether an Arrow type is a timestamp or a date."""
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind))


def time_of(kind: pa.DataType) -> str:
    """Which time an Arrow type has, or the values of its lists: "date", "timestamp[us, tz=UTC]", …; "": none."""
    if is_list(kind) or pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_timestamp(kind):
        with suppress(InputError):
            return str(named_type(str(normal_type(kind)), ""))
        return "timestamp"  # of a zone whose name is none
    return "date" if pa.types.is_date(kind) else ""


def time_type(time: str) -> pa.DataType | None:
    """The Arrow type of what `time_of` gave; None where it says no unit, as bundles of earlier releases do.

    Raises:
        InputError: It is no time.
    """
    if time in ("date", "timestamp"):
        return pa.date32() if time == "date" else None
    kind = named_type(time, "")
    if not is_time(kind):
        raise InputError(f"{time!r:.40} is no time", fix="say date, or timestamp with its unit: timestamp[us]")
    return kind


def from_milliseconds(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Times of a type, or lists of them, of int64 milliseconds since 1970 UTC; a date is the day that they are in.

    Raises:
        pyarrow.ArrowInvalid: One of them is beyond what the type holds.
    """
    flat, time = (array.flatten(), kind.value_type) if is_list(kind) else (array, kind)
    if pa.types.is_date32(time) and len(flat):
        # Arrow's own cast wraps round.
        days = pc.divide(flat.drop_null(), 86_400_000)
        if pc.any(pc.greater_equal(pc.abs_checked(days), 2**31 - 1)).as_py():
            raise pa.ArrowInvalid("a date is beyond what date32 holds")
    moment = pa.timestamp("ms", getattr(time, "tz", None))
    return array.cast(pa.list_(moment) if is_list(kind) else moment).cast(kind)


def as_milliseconds(array: pa.Array) -> pa.Array:
    """Timestamps or dates as int64 milliseconds since 1970 UTC, rounded down."""
    kind = array.type
    unit = kind.unit if pa.types.is_timestamp(kind) else "days" if pa.types.is_date32(kind) else "ms"
    whole = array.cast(pa.int32()).cast(pa.int64()) if unit == "days" else array.cast(pa.int64())
    numbers = whole.fill_null(0).to_numpy(zero_copy_only=False)
    return pa.array(_scaled(numbers, unit), mask=~whole.is_valid().to_numpy(zero_copy_only=False))


def as_millisecond(value: dt.date | np.datetime64) -> int | None:
    """One row's time as `as_milliseconds` has it; a datetime without a zone is UTC."""
    if isinstance(value, np.datetime64):
        if np.isnat(value):
            return None
        return int(value.astype("M8[ms]").astype(np.int64))
    if not isinstance(value, dt.datetime):
        value = dt.datetime(value.year, value.month, value.day)
    if value.tzinfo is None:
        value = value.replace(tzinfo=dt.UTC)
    return (value - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(milliseconds=1)


def _scaled(numbers: Times, unit: str) -> Times:
    by = UNITS[unit]
    return numbers // by if by > 0 else numbers * -by


def part_batch(params: Any, assets: Any) -> Callable[[pa.Array], pa.Array]:
    """int64: the part of each time; null for null."""
    take, first, _ = PARTS[params["part"]]
    unit = params["unit"]

    def kernel(column: pa.Array) -> pa.Array:
        valid = column.is_valid().to_numpy(zero_copy_only=False)
        numbers = column.fill_null(0).to_numpy(zero_copy_only=False)
        _check(params, numbers, whole=True)
        return pa.array(take(_scaled(numbers, unit)) + first, mask=~valid)

    return kernel


def part_row(params: Any, assets: Any) -> Callable[[int | None], int | None]:
    """As `part_batch`, for one time."""
    take, first, _ = PARTS[params["part"]]
    unit = params["unit"]

    def kernel(value: int | None) -> int | None:
        if value is None:
            return None
        numbers = np.array([value], np.int64)
        _check(params, numbers, whole=False)
        return int(take(_scaled(numbers, unit))[0]) + first

    return kernel


def _check(params: Any, numbers: Times, *, whole: bool) -> None:
    """Raise InputError for a number that is not a time of its unit: beyond what int64 milliseconds hold."""
    unit = params["unit"]
    most = 2**62 // max(-UNITS[unit], 1)
    if len(numbers) and (int(numbers.min()) < -most or int(numbers.max()) > most):
        row = int(np.flatnonzero((numbers < -most) | (numbers > most))[0])
        at = f" in row {row}" if whole else ""
        raise InputError(
            f"column {params.get('column', '')!r} has {numbers[row]}{at}, which is not a time in {unit} since 1970",
            fix=f"say by unit=… what the numbers count: {', '.join(UNITS)}",
        )
