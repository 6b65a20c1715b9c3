"""Cron's five fields, read as Vixie's cron reads them, with errors that name the field.

They are minute, hour, day of month, month, day of week, with names, ranges, steps, lists, Sunday as 0 and 7; where both
kinds of days are restricted either will do, unless one of them begins with a star.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import NoReturn

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
class CronFields:
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

    @property
    def spelled(self) -> tuple[str, str, str, str, str]:
        """The five fields as numbers; a star stays, because it decides how days combine, and what summer time does."""
        minute, hour, day, month, weekday = (
            field.star or explicit(field.values)
            for field in (self.minute, self.hour, self.day, self.month, self.weekday)
        )
        return minute, hour, day, month, weekday


@lru_cache(1024)
def parse_cron(text: str) -> CronFields:
    """Read five fields, or a name for five such as `@daily`.

    Raises:
        InputError: They are not five, or one is wrong; the message names it.
    """
    spelled = _SHORT.get(text.strip().lower(), text).split()
    if text.strip().startswith("@") and text.strip().lower() not in _SHORT:
        refuse_cron(text, f"{text.split()[0]} is not a time", "give five fields, or --every 6h for an interval")
    if len(spelled) == 6:
        refuse_cron(text, "it has six fields", "leave out the seconds: drivetrain adds them for Kubeflow")
    if len(spelled) != 5:
        refuse_cron(text, f"it has {len(spelled)} fields", 'give five: minute hour day month weekday, e.g. "0 3 * * *"')
    return CronFields(
        _field(text, "minute", spelled[0], 0, 59),
        _field(text, "hour", spelled[1], 0, 23),
        _field(text, "day of the month", spelled[2], 1, 31),
        _field(text, "month", spelled[3], 1, 12, _MONTHS, 1),
        _field(text, "day of the week", spelled[4], 0, 7, _DAYS, 0),
    )


def _field(
    text: str, name: str, spelled: str, low: int, high: int, names: tuple[str, ...] = (), first: int = 0
) -> CronField:
    numbers: set[int] = set()
    for part in spelled.split(","):
        match = re.fullmatch(r"(\*|(\w+)(?:-(\w+))?)(?:/(\d+))?", part)
        if match is None:
            hint = "L, W, # and ? are not cron's" if set(part.upper()) & set("LW#?") else f"e.g. {low}, {low}-{high}"
            refuse_cron(text, f"its {name} {part!r} cannot be read", f"give {hint}")
        whole, begin, end, step = match.groups()
        if step is not None and (int(step) == 0 or (whole != "*" and end is None)):
            refuse_cron(text, f"the step of its {name} {part!r} has nothing to go over", "give e.g. */5")
        start = low if whole == "*" else _number(text, name, begin, low, high, names, first)
        stop = high if whole == "*" else start if end is None else _number(text, name, end, low, high, names, first)
        if stop < start:
            refuse_cron(
                text, f"its {name} {part!r} goes backwards", f"give {part.partition('-')[0]}-{high},{low}-{end}"
            )
        numbers |= set(range(start, stop + 1, int(step or 1)))
    if high == 7:
        numbers = {day % 7 for day in numbers}
    values = tuple(sorted(numbers))
    if not spelled.startswith("*"):
        return CronField(values)
    if len(values) == (6 if high == 7 else high) - low + 1:
        return CronField(values, "*")
    head, _, more = spelled.partition(",")
    return CronField(values, f"{head},{explicit(values)}" if more else head)


def _number(text: str, name: str, word: str, low: int, high: int, names: tuple[str, ...], first: int) -> int:
    if word.lower() in names:
        return names.index(word.lower()) + first
    if not re.fullmatch(r"[0-9]{1,2}", word):
        accepted = f"a number, or one of {', '.join(names)}" if names else "a number"
        refuse_cron(text, f"its {name} {word!r} is not valid", f"give {accepted}")
    if not low <= int(word) <= high:
        refuse_cron(text, f"its {name} {word} is out of range", f"give {low} to {high}")
    return int(word)


def explicit(values: Iterable[int]) -> str:
    """Numbers with runs of three and more as ranges."""
    runs: list[list[int]] = []
    for value in values:
        if runs and value == runs[-1][-1] + 1:
            runs[-1].append(value)
        else:
            runs.append([value])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else ",".join(map(str, run)) for run in runs)


def refuse_cron(text: str, reason: str, fix: str) -> NoReturn:
    """Raise the InputError of an expression, with the reason."""
    raise InputError(f"the cron expression {text!r} cannot be a schedule: {reason}", fix=fix)
