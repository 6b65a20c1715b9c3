"""Time zones by their names, or as fixed offsets from UTC."""

from __future__ import annotations

import re
from datetime import UTC, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from ...errors import InputError


def time_zone(name: str) -> tzinfo:
    """The zone of a name such as Europe/Oslo; a `datetime.timezone` for UTC and for an offset such as "+05:30".

    Raises:
        InputError: There is no such zone.
    """
    if name.upper() == "UTC":
        return UTC
    offset = re.fullmatch(r"(?:UTC|GMT)?([+-])(\d{1,2}):?(\d{2})?", name)
    if offset is None:
        try:
            return ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise InputError(
                f"there is no time zone {name!r}",
                fix="give one as Asia/Tokyo or +09:00; where this machine knows none, pip install tzdata",
            ) from None
    sign, hours, minutes = offset.groups()
    difference = timedelta(hours=int(hours), minutes=int(minutes or 0)) * (1 if sign == "+" else -1)
    if abs(difference) > timedelta(hours=15) or int(minutes or 0) > 59:
        raise InputError(f"there is no zone with the offset {name}", fix='give e.g. "+05:30", or Asia/Kolkata')
    return timezone(difference)
