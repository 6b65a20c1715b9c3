"""Lengths of time as people write them: `90s`, `15m`, `6h`, `1d12h`."""

from __future__ import annotations

import re
from datetime import timedelta

from ...errors import InputError

_UNITS = {"w": 604800, "d": 86400, "h": 3600, "m": 60, "s": 1}
_LONGEST = 300 * 366 * 86400
"""Seconds; beyond, a moment that it is added to may be one that `datetime` does not have."""


def seconds_of(length: str | float | timedelta) -> int:
    """The whole seconds of a length of time: text such as "1d12h", a number of seconds, or a `timedelta`.

    Raises:
        InputError: It is not a length of time, shorter than a second, or longer than 300 years.
    """
    if isinstance(length, timedelta):
        length = length.total_seconds()
    seconds = length
    if isinstance(length, str):
        parts = re.findall(r"([0-9]{1,12})([smhdw])", length)
        seconds = sum(int(number) * _UNITS[unit] for number, unit in parts)
        if not seconds or "".join(number + unit for number, unit in parts) != length:
            raise InputError(f"{length!r:.60} is not an interval", fix="give e.g. 15m, 6h or 1d12h")
    if isinstance(seconds, (bool, str)) or not 1 <= seconds < _LONGEST:
        raise InputError(
            f"{length!r:.60} is not a length of time of a second or more, and of 300 years at most",
            fix="give e.g. '15m', '6h' or 90",
        )
    return round(seconds)


def spelled(seconds: int) -> str:
    """A length of time in the largest units that give whole numbers: 129600 is "1d12h"."""
    parts = []
    for unit, size in _UNITS.items():
        if unit == "w" and seconds % size:
            continue  # 10d says more than 1w3d
        number, seconds = divmod(seconds, size)
        if number:
            parts.append(f"{number}{unit}")
    return "".join(parts) or "0s"
