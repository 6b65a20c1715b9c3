"""Formats of time that text and integers may have, named as TFX's `TimeDomain` names them."""

from __future__ import annotations

import calendar
import re
from collections.abc import Collection, Mapping
from functools import cache
from typing import Any, Final

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from ..arrays import numpy_of

Mask = NDArray[np.bool_]

# Units per day; such an integer is a time if it lies from 1990-01-01 to before 2030-01-01, as in TFDV.
UNIX: Final[Mapping[str, int]] = {
    "UNIX_DAYS": 1,
    "UNIX_SECONDS": 86_400,
    "UNIX_MILLISECONDS": 86_400_000,
    "UNIX_MICROSECONDS": 86_400_000_000,
    "UNIX_NANOSECONDS": 86_400_000_000_000,
}
RECENT: Final = (1990, 2029)  # the same in years, for text
_FIRST_DAY: Final = 7_305
_LAST_DAY: Final = 21_915  # exclusive

# Names in English, as strptime has them in the C locale.
_DIRECTIVES: Final[Mapping[str, str]] = {
    "a": "|".join(name[:3] for name in calendar.day_name),
    "A": "|".join(calendar.day_name),
    "b": "|".join(name[:3] for name in calendar.month_name[1:]),
    "B": "|".join(calendar.month_name[1:]),
    "d": "3[01]|[12][0-9]|0[1-9]|[1-9]| [1-9]",
    "f": "[0-9]{1,6}",
    "H": "2[0-3]|[01][0-9]|[0-9]",
    "I": "1[0-2]|0[1-9]|[1-9]",
    "j": "36[0-6]|3[0-5][0-9]|[12][0-9][0-9]|0[1-9][0-9]|00[1-9]|[1-9][0-9]|0[1-9]|[1-9]",
    "m": "1[0-2]|0[1-9]|[1-9]",
    "M": "[0-5][0-9]|[0-9]",
    "p": "AM|PM|am|pm",
    "S": "6[01]|[0-5][0-9]|[0-9]",
    "y": "[0-9][0-9]",
    "Y": "[0-9]{4}",
    "z": "Z|[+-](?:[01][0-9]|2[0-3]):?[0-5][0-9]",
    "Z": "[A-Z]{3,5}",
    "%": "%",
}

_DATES: Final = (
    "%Y-%m-%d", "%Y/%m/%d", "%Y%m%d", "%y-%m-%d", "%y/%m/%d",
    "%m-%d-%Y", "%m/%d/%Y", "%m%d%Y", "%m-%d-%y", "%m/%d/%y",
    "%d-%m-%Y", "%d/%m/%Y", "%d%m%Y", "%d-%B-%Y", "%d-%m-%y", "%d/%m/%y", "%d-%B-%y",
)  # fmt: skip
_DIGITS: Final = ("%Y%m%d", "%m%d%Y", "%d%m%Y")
_TIMES: Final = ("%H:%M", "%H:%M:%S", "%H:%M:%S.%f")
# TFDV's, in its order (the first of those that read equally many values is inferred), then ISO 8601 with a zone.
FORMATS: Final = (
    *_DATES,
    *_TIMES,
    "%a %b %d %H:%M:%S %Y",
    *(f"{date}{between}{time}" for date in _DATES for time in _TIMES for between in "T "),
    *(f"%Y-%m-%d{between}{time}%z" for time in _TIMES for between in "T "),
)
_START: Final = rf"^(?:[0-9]|{_DIRECTIVES['a']})"  # how every one of them begins


def format_problem(text: str) -> str | None:
    """Why a text is not a format of time; None where it is one."""
    if text in UNIX:
        return None
    directives = re.findall(r"%(.|$)", text)
    wrong = next((letter for letter in directives if letter not in _DIRECTIVES), None)
    if wrong is not None:
        return f"%{wrong} is not a directive that is known"
    return None if set(directives) - {"%"} else "it has no directive of strptime"


@cache
def pattern(text: str, years: tuple[int, int] | None = None) -> str:
    """The regular expression of a format of strptime; the year is one from the first to the last of `years`."""
    directives = dict(_DIRECTIVES)
    if years is not None:
        directives["Y"] = "|".join(f"{year:04}" for year in range(max(years[0], 0), min(years[1], 9999) + 1))
    parts = re.split(r"%(.)", text)
    inner = "".join(f"(?:{directives[part]})" if odd % 2 else re.escape(part) for odd, part in enumerate(parts))
    return rf"\A(?:{inner})\z"


def reads_as_time(values: Any, text: str, years: tuple[int, int] | None = None) -> Mask:
    """Which of a pyarrow array's texts (none of them null) read as a format of strptime, in these years."""
    hits = _mask(pc.match_substring_regex(values, pattern(text, years)))
    if text in _DIGITS:  # six digits would read as a year and one digit each for month and day
        hits &= numpy_of(pc.binary_length(values)) == 8
    return hits


def marks_of(text: bytes) -> bytes:
    """What is left of a text without letters, digits and spaces."""
    return re.sub(rb"[\w\s]", b"", text)


# Directives read no marks, but for those of zones.
_MARKS: Final = {text: marks_of(re.sub("%.", "", text).encode()) for text in FORMATS if "%z" not in text}


def any_may_read(marks: Collection[bytes], text: str) -> bool:
    """Whether a text with one of these marks may read as one of `FORMATS`; Arrow compiles its pattern at each use."""
    return text not in _MARKS or _MARKS[text] in marks


def looks_like_time(values: Any) -> Mask:
    """Which texts begin as a time of some format in `FORMATS` may: a cheap test before the formats themselves."""
    return _mask(pc.match_substring_regex(values, _START))


def within(values: NDArray[Any], unix: str) -> Mask:
    """Which integers are times from 1990 to 2029, counted from 1970 in a unit of `UNIX`."""
    inside: Mask = (values >= _FIRST_DAY * UNIX[unix]) & (values < _LAST_DAY * UNIX[unix])
    return inside


def _mask(array: Any) -> Mask:
    return numpy_of(array).astype(np.bool_)
