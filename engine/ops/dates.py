"""Times: parts of the calendar, and where a time stands in a cycle. Raw timestamps and dates are read as UTC."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp

from ...errors import InputError
from .._caller import caller
from ..host_ops.dates import PARTS, UNITS
from ..tracing.columns import Column, Fact, read
from ..tracing.primitives import bind_host
from .arguments import Array, Value

__all__ = ["timestamp_cycle", "timestamp_part"]


def timestamp_part(x: Value, part: str, *, unit: str | None = None) -> Value:
    """A part of each time, int32; missing for missing.

    Args:
        x: A raw timestamp or date column; or whole numbers since 1970-01-01 UTC.
        part: "year", "month" (1 to 12), "day" (of the month), "day_of_week" (Monday is 0), "day_of_year" (from 1),
            "hour", "minute", "second", "second_of_day"; or "days" since 1970.
        unit: Of whole numbers: "ns", "us", "ms", "s" or "days". Timestamps and dates need none: they are "ms".

    Raises:
        InputError: It is not a column of whole numbers or times, there is no such part or unit, or whole numbers
            come without a unit.
    """
    return _part(x, part, unit, "timestamp_part")


def _part(x: Value, part: str, unit: str | None, called: str) -> Value:
    """What `timestamp_part` returns; `called` is the op that errors name."""
    column = read(x, f"given to {called}")
    for what, name, allowed in (("part", part, PARTS), ("unit", unit, UNITS)):
        if name is not None and name not in allowed:
            raise InputError(
                f"{called}: no {what} {name!r} of a time", fix=f"use one of {', '.join(allowed)}", where=caller()
            )
    column.check_numeric(f"given to {called}")
    if column.fact.host not in (None, "int64") or (column.fact.host is None and column.values.dtype.kind not in "iu"):
        raise InputError(
            f"column {column.name!r} is not a time", fix="give a timestamp, a date or whole numbers", where=caller()
        )
    if unit is None and not column.fact.time:
        raise InputError(
            f"{called}: column {column.name!r} is of whole numbers, which have no unit of themselves",
            fix=f"say by unit=… what they count since 1970: {', '.join(UNITS)}",
            where=caller(),
        )
    params: dict[str, Any] = {"part": part, "unit": unit or "ms", "column": column.name}
    (parts,) = bind_host("timestamp_part", [column.handle], [("int64", ("b",), True)], params)
    return Column(column.name, "int32", Fact(column.name, parts, "int64", column.fact.complete)).public()


def timestamp_cycle(x: Value, part: str, *, unit: str | None = None) -> Array:
    """float32[batch, 2]: sine and cosine of where a time stands in a cycle, so that 23 o'clock is close to 0.

    Args:
        x: As for `timestamp_part`; NaN where missing.
        part: "month", "day_of_week", "day_of_year", "hour", "minute", "second" or "second_of_day".
        unit: Of whole numbers: "ns", "us", "ms", "s" or "days", as for `timestamp_part`.

    Raises:
        InputError: As `timestamp_part`; or the part does not come round.
    """
    _, first, period = PARTS.get(part, (None, 0, None))
    parts = read(_part(x, part, unit, "timestamp_cycle"))
    if period is None:
        cycles = ", ".join(name for name, (_, _, length) in PARTS.items() if length is not None)
        raise InputError(f"timestamp_cycle: {part} does not come round", fix=f"use one of {cycles}", where=caller())
    angle = (jnp.asarray(parts.__jax_array__(), jnp.float32) - first) * (2 * math.pi / period)
    return jnp.stack([jnp.sin(angle), jnp.cos(angle)], axis=-1)
