"""Time zones by their names or as fixed offsets from UTC, and moments as people write them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
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


def moment_of(text: str, zone: tzinfo = UTC) -> datetime:
    """The moment, in UTC, of a text such as 2026-12-01T03:00; in `zone` where it names no offset.

    Raises:
        InputError: It is not a moment.
    """
    try:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=zone)).astimezone(UTC)
    except (ValueError, TypeError, OverflowError):  # the last: at the ends of the calendar
        raise InputError(f"{text!r} is not a moment", fix="write it as 2026-12-01 or 2026-12-01T03:00") from None
