"""Cron in five fields and a zone, as people write it, into the six fields in UTC that Kubeflow takes.

KFP hands six fields, seconds first, to robfig/cron v1, in the server's time, which is UTC in a pod. A fixed offset
moves times, and days with them; what the six fields cannot say after that is refused.
"""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta, timezone

from ...errors import InputError
from ..triggers.cron_fields import CronFields, explicit, parse_cron, refuse_cron
from ..triggers.zones import time_zone

_DAY = 24 * 60
_AHEAD = timedelta(days=6 * 366)
"""How far ahead a zone is looked at for a change of its offset."""
_YEARS = (2027, 2028)  # one without and one with a 29th of February


def zone(name: str, start: datetime | None = None, end: datetime | None = None) -> timedelta:
    """The offset of a zone that keeps one between two times (now and six years ahead): a name, or e.g. "+05:30".

    Raises:
        InputError: There is no such zone, or its clocks change: KFP knows no zones, and could not follow.
    """
    clock = time_zone(name)
    if isinstance(clock, timezone):
        return clock.utcoffset(None)
    begin = max(start or datetime.now(UTC), datetime.now(UTC))
    last = min(end or begin + _AHEAD, begin + _AHEAD)
    offset = begin.astimezone(clock).utcoffset() or timedelta(0)
    at = begin
    while at <= last:
        if (other := at.astimezone(clock).utcoffset()) != offset:
            raise InputError(
                f"the clocks of {name} change (from {_offset(offset)} to {_offset(other or timedelta(0))} by "
                f"{at:%Y-%m-%d}), which Kubeflow cannot follow: it knows UTC alone",
                fix=f'give a fixed offset (--tz "{_offset(offset)}"), or UTC, and accept the hour in between',
            )
        at += timedelta(hours=12)
    if offset.total_seconds() % 60:
        raise InputError(f"the offset of {name} is not a whole number of minutes", fix="give a fixed offset")
    return offset


def to_six(text: str, offset: timedelta = timedelta(0)) -> str:
    """Five fields at an offset from UTC as robfig/cron v1 takes six in UTC, seconds first.

    Raises:
        InputError: They are wrong, or six fields cannot express them in UTC; the message says why.
    """
    cron = parse_cron(text)
    if not any(_lasts(m, d) for m in cron.month.values for d in cron.day.values) and not cron.either:
        refuse_cron(text, "there is no such date in any year", "give a day that the month has")
    minutes = int(offset.total_seconds()) // 60
    if not minutes:
        return " ".join(["0", *cron.spelled])
    local = [(hour, minute) for hour in cron.hour.values for minute in cron.minute.values]
    moved = [divmod(hour * 60 + minute - minutes, _DAY) for hour, minute in local]
    hours, ends = _times(text, {at for _, at in moved})
    clock = ["0", _listed(ends, 0, 59), _listed(hours, 0, 23)]
    if all(len(field.values) == size for field, size in ((cron.day, 31), (cron.month, 12), (cron.weekday, 7))):
        return " ".join([*clock, "*", "*", "*"])
    shifts = {day for day, _ in moved}
    if len(shifts) > 1:
        refuse_cron(
            text,
            f"its times fall on different days in UTC, {_offset(offset)} of it, while its days are restricted",
            "make two schedules, of the times before and after midnight UTC",
        )
    return " ".join([*clock, *_days(text, cron, shifts.pop())])


def _days(text: str, cron: CronFields, shift: int) -> tuple[str, str, str]:
    """Day, month and weekday of six fields, for what falls on so many days later in UTC."""
    if not shift:
        return cron.spelled[2:]
    every_date = len(cron.day.values) == 31 and len(cron.month.values) == 12
    every_weekday = len(cron.weekday.values) == 7
    weekday = "*" if every_weekday else _listed(sorted({(d + shift) % 7 for d in cron.weekday.values}), 0, 6)
    if every_date and not cron.either:
        return "*", "*", weekday
    if not cron.either and not every_weekday and len(cron.day.values) < 31:
        refuse_cron(
            text,
            "both its kinds of days must fit, which six fields cannot say of other days than it names",
            "restrict one kind only, or give the times in UTC",
        )
    days, months = _dates(text, cron, shift)
    if (cron.either or not every_weekday) and min(len(months), len(cron.month.values)) < 12:
        refuse_cron(
            text,
            "its days of the week move out of its months in UTC",
            "leave the months out, or give the times in UTC",
        )
    if cron.either:  # robfig takes either where no field is a star
        return explicit(days), "*", explicit(sorted({(d + shift) % 7 for d in cron.weekday.values}))
    return _listed(days, 1, 31), _listed(months, 1, 12), weekday


def _dates(text: str, cron: CronFields, shift: int) -> tuple[list[int], list[int]]:
    """Days and months that, taken together, name the dates that are meant and no others, in years of both lengths."""
    meant = {year: set(_moved(year, cron.month.values, cron.day.values, shift)) for year in _YEARS}
    months = sorted({month for dates in meant.values() for month, _ in dates})
    days = sorted({day for dates in meant.values() for _, day in dates})
    for year, dates in meant.items():
        if {(m, d) for m in months for d in days if d <= monthrange(year, m)[1]} != dates:
            refuse_cron(
                text,
                f"its dates fall a day {'later' if shift > 0 else 'earlier'} in UTC, across the ends of months, which "
                "six fields cannot say",
                "give days that stay within their months, or the times in UTC",
            )
    return days, months


def _moved(year: int, months: Iterable[int], days: Iterable[int], shift: int) -> Iterable[tuple[int, int]]:
    days = tuple(days)
    for month in months:
        for day in days:
            if day <= monthrange(year, month)[1]:
                date = datetime(year, month, day, tzinfo=UTC) + timedelta(days=shift)
                yield date.month, date.day


def _times(text: str, moments: set[int]) -> tuple[list[int], list[int]]:
    hours, minutes = sorted({at // 60 for at in moments}), sorted({at % 60 for at in moments})
    if len(hours) * len(minutes) != len(moments):
        refuse_cron(
            text,
            "its minutes fall into different hours in UTC, which one expression cannot say",
            "make a schedule for each of its minutes",
        )
    return hours, minutes


def _listed(values: Iterable[int], low: int, high: int) -> str:
    values = list(values)
    return "*" if len(values) == high - low + 1 else explicit(values)


def _lasts(month: int, day: int) -> bool:
    return day <= monthrange(_YEARS[1], month)[1]


def _offset(offset: timedelta) -> str:
    minutes = int(offset.total_seconds()) // 60
    return f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}"
