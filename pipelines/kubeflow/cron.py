"""Cron in five fields and a zone, as people write it, into the six fields in UTC that Kubeflow takes.

Five fields are read as Vixie's cron reads them: minute, hour, day of month, month, day of week, with names, ranges,
steps, lists, Sunday as 0 and 7; where both kinds of days are restricted either will do, unless one of them begins with
a star. KFP hands six fields, seconds first, to robfig/cron v1, in the server's time, which is UTC in a pod. A fixed
offset moves times, and days with them; what the six fields cannot say after that is refused.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import NoReturn
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from ...errors import InputError

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_SHORT = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_DAY = 24 * 60
_AHEAD = timedelta(days=6 * 366)
"""How far ahead a zone is looked at for a change of its offset."""
_YEARS = (2027, 2028)  # one without and one with a 29th of February


@dataclass(frozen=True)
class CronField:
    """One field of five.

    Attributes:
        values: What it allows, in order.
        star: The field for robfig/cron where it begins with a star; "" where it does not. A star decides whether both
            kinds of days must match or either.
    """

    values: tuple[int, ...]
    star: str = ""


@dataclass(frozen=True)
class Cron:
    """Five fields: `minute`, `hour`, `day` of the month, `month`, `weekday` (0 is Sunday)."""

    minute: CronField
    hour: CronField
    day: CronField
    month: CronField
    weekday: CronField

    @property
    def either(self) -> bool:
        """Whether a day of the month or a day of the week will do; else both must fit."""
        return not self.day.star and not self.weekday.star


def parse(text: str) -> Cron:
    """Read five fields, or a name for five such as `@daily`.

    Raises:
        InputError: They are not five, or one is wrong; the message names it.
    """
    spelled = _SHORT.get(text.strip().lower(), text).split()
    if text.strip().startswith("@") and text.strip().lower() not in _SHORT:
        _refuse(text, f"{text.split()[0]} is not a time", "give five fields, or --every 6h for an interval")
    if len(spelled) == 6:
        _refuse(text, "it has six fields", "leave out the seconds: drivetrain adds them for Kubeflow")
    if len(spelled) != 5:
        _refuse(text, f"it has {len(spelled)} fields", 'give five: minute hour day month weekday, e.g. "0 3 * * *"')
    return Cron(
        _field(text, "minute", spelled[0], 0, 59),
        _field(text, "hour", spelled[1], 0, 23),
        _field(text, "day of the month", spelled[2], 1, 31),
        _field(text, "month", spelled[3], 1, 12, _MONTHS, 1),
        _field(text, "day of the week", spelled[4], 0, 7, _DAYS, 0),
    )


def zone(name: str, start: datetime | None = None, end: datetime | None = None) -> timedelta:
    """The offset of a zone that keeps one between two times (now and six years ahead): a name, or e.g. "+05:30".

    Raises:
        InputError: There is no such zone, or its clocks change: KFP knows no zones, and could not follow.
    """
    named = re.fullmatch(r"(?:UTC|GMT)?([+-])(\d{1,2}):?(\d{2})?", name)
    if named:
        sign, hours, minutes = named.groups()
        offset = timedelta(hours=int(hours), minutes=int(minutes or 0)) * (1 if sign == "+" else -1)
        if abs(offset) > timedelta(hours=15) or int(minutes or 0) > 59:
            raise InputError(f"there is no zone with the offset {name}", fix='give e.g. "+05:30", or Asia/Kolkata')
        return offset
    try:
        clock: tzinfo = UTC if name.upper() == "UTC" else ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InputError(
            f"there is no time zone {name!r}",
            fix="give one as Asia/Tokyo or +09:00; where this machine knows none, pip install tzdata",
        ) from None
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
    cron = parse(text)
    if not any(_lasts(m, d) for m in cron.month.values for d in cron.day.values) and not cron.either:
        _refuse(text, "there is no such date in any year", "give a day that the month has")
    minutes = int(offset.total_seconds()) // 60
    if not minutes:
        return " ".join(["0", *(_spelled(f) for f in (cron.minute, cron.hour, cron.day, cron.month, cron.weekday))])
    local = [(hour, minute) for hour in cron.hour.values for minute in cron.minute.values]
    moved = [divmod(hour * 60 + minute - minutes, _DAY) for hour, minute in local]
    hours, ends = _times(text, {at for _, at in moved})
    clock = ["0", _listed(ends, 0, 59), _listed(hours, 0, 23)]
    if all(len(field.values) == size for field, size in ((cron.day, 31), (cron.month, 12), (cron.weekday, 7))):
        return " ".join([*clock, "*", "*", "*"])
    shifts = {day for day, _ in moved}
    if len(shifts) > 1:
        _refuse(
            text,
            f"its times fall on different days in UTC, {_offset(offset)} of it, while its days are restricted",
            "make two schedules, of the times before and after midnight UTC",
        )
    return " ".join([*clock, *_days(text, cron, shifts.pop())])


def _days(text: str, cron: Cron, shift: int) -> tuple[str, str, str]:
    """Day, month and weekday of six fields, for what falls on so many days later in UTC."""
    if not shift:
        return _spelled(cron.day), _spelled(cron.month), _spelled(cron.weekday)
    every_date = len(cron.day.values) == 31 and len(cron.month.values) == 12
    every_weekday = len(cron.weekday.values) == 7
    weekday = "*" if every_weekday else _listed(sorted({(d + shift) % 7 for d in cron.weekday.values}), 0, 6)
    if every_date and not cron.either:
        return "*", "*", weekday
    if not cron.either and not every_weekday and len(cron.day.values) < 31:
        _refuse(
            text,
            "both its kinds of days must fit, which six fields cannot say of other days than it names",
            "restrict one kind only, or give the times in UTC",
        )
    days, months = _dates(text, cron, shift)
    if (cron.either or not every_weekday) and min(len(months), len(cron.month.values)) < 12:
        _refuse(
            text,
            "its days of the week move out of its months in UTC",
            "leave the months out, or give the times in UTC",
        )
    if cron.either:  # robfig takes either where no field is a star
        return _explicit(days), "*", _explicit(sorted({(d + shift) % 7 for d in cron.weekday.values}))
    return _listed(days, 1, 31), _listed(months, 1, 12), weekday


def _dates(text: str, cron: Cron, shift: int) -> tuple[list[int], list[int]]:
    """Days and months that, taken together, name the dates that are meant and no others, in years of both lengths."""
    meant = {year: set(_moved(year, cron.month.values, cron.day.values, shift)) for year in _YEARS}
    months = sorted({month for dates in meant.values() for month, _ in dates})
    days = sorted({day for dates in meant.values() for _, day in dates})
    for year, dates in meant.items():
        if {(m, d) for m in months for d in days if d <= monthrange(year, m)[1]} != dates:
            _refuse(
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
        _refuse(
            text,
            "its minutes fall into different hours in UTC, which one expression cannot say",
            "make a schedule for each of its minutes",
        )
    return hours, minutes


def _field(
    text: str, name: str, spelled: str, low: int, high: int, names: tuple[str, ...] = (), first: int = 0
) -> CronField:
    numbers: set[int] = set()
    for part in spelled.split(","):
        match = re.fullmatch(r"(\*|(\w+)(?:-(\w+))?)(?:/(\d+))?", part)
        if match is None:
            hint = "L, W, # and ? are not cron's" if set(part.upper()) & set("LW#?") else f"e.g. {low}, {low}-{high}"
            _refuse(text, f"its {name} {part!r} cannot be read", f"give {hint}")
        whole, begin, end, step = match.groups()
        if step is not None and (int(step) == 0 or (whole != "*" and end is None)):
            _refuse(text, f"the step of its {name} {part!r} has nothing to go over", "give e.g. */5")
        start = low if whole == "*" else _number(text, name, begin, low, high, names, first)
        stop = high if whole == "*" else start if end is None else _number(text, name, end, low, high, names, first)
        if stop < start:
            _refuse(text, f"its {name} {part!r} goes backwards", f"give {part.partition('-')[0]}-{high},{low}-{end}")
        numbers |= set(range(start, stop + 1, int(step or 1)))
    if high == 7:
        numbers = {day % 7 for day in numbers}
    values = tuple(sorted(numbers))
    if not spelled.startswith("*"):
        return CronField(values)
    if len(values) == (6 if high == 7 else high) - low + 1:
        return CronField(values, "*")
    head, _, more = spelled.partition(",")
    return CronField(values, f"{head},{_explicit(values)}" if more else head)


def _number(text: str, name: str, word: str, low: int, high: int, names: tuple[str, ...], first: int) -> int:
    if word.lower() in names:
        return names.index(word.lower()) + first
    if not re.fullmatch(r"[0-9]{1,2}", word):
        accepted = f"a number, or one of {', '.join(names)}" if names else "a number"
        _refuse(text, f"its {name} {word!r} is none", f"give {accepted}")
    if not low <= int(word) <= high:
        _refuse(text, f"its {name} {word} is out of range", f"give {low} to {high}")
    return int(word)


def _spelled(field: CronField) -> str:
    """A field for the six-field form where days do not move: a star stays, because it decides how days combine."""
    return field.star or _explicit(field.values)


def _listed(values: Iterable[int], low: int, high: int) -> str:
    values = list(values)
    return "*" if len(values) == high - low + 1 else _explicit(values)


def _explicit(values: Iterable[int]) -> str:
    """Numbers with runs of three and more as ranges."""
    runs: list[list[int]] = []
    for value in values:
        if runs and value == runs[-1][-1] + 1:
            runs[-1].append(value)
        else:
            runs.append([value])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else ",".join(map(str, run)) for run in runs)


def _lasts(month: int, day: int) -> bool:
    return day <= monthrange(_YEARS[1], month)[1]


def _offset(offset: timedelta) -> str:
    minutes = int(offset.total_seconds()) // 60
    return f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}"


def _refuse(text: str, reason: str, fix: str) -> NoReturn:
    raise InputError(f"the cron expression {text!r} cannot be a schedule: {reason}", fix=fix)
