"""Times in a request: a model reads them as milliseconds since 1970; programs have dates, and people write ISO 8601."""

from __future__ import annotations

import re
from datetime import date, datetime
from typing import Any, Final

IN_WORDS: Final = 'milliseconds since 1970 (UTC), or text such as "2026-01-01" or "2026-01-01T18:30:00Z"'
"""What may be sent for an input of which the bundle says that it is a time."""
_ISO: Final = re.compile(r"\d{4}-")


def time_word(time: str) -> str:
    """What people call a time of a signature: "timestamp", where it is "timestamp[us]"."""
    return time.partition("[")[0]


def in_milliseconds(value: Any, *, texts: bool = False) -> Any:  # Any: a value of a request
    """A value of an int64 input, in which dates are the numbers that the model reads.

    Args:
        value: A date or datetime, which is UTC where it has no zone, becomes milliseconds since 1970; a list item by
            item; anything else is left as it is.
        texts: Whether text in ISO 8601 is a time, too.
    """
    if type(value) is int or value is None:
        return value
    if isinstance(value, list):
        return [in_milliseconds(item, texts=texts) for item in value]
    if texts and isinstance(value, str) and _ISO.match(value):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return value
    if isinstance(value, date):
        from ..engine.host_ops.dates import as_millisecond  # late: it imports Arrow

        return as_millisecond(value)
    return value


def listed(array: Any) -> list[Any]:  # Any: an Arrow array, or chunks of one
    """The values of an Arrow array; times of which Python has none (after the year 9999, say) are milliseconds."""
    try:
        values: list[Any] = array.to_pylist()
    except (OverflowError, ValueError):
        from ..data.arrays import python_of  # late: they import Arrow
        from ..engine.host_ops.dates import as_milliseconds, is_time

        chunks = getattr(array, "chunks", [array])
        values = [
            value
            for chunk in chunks
            for value in (as_milliseconds(chunk).to_pylist() if is_time(array.type) else map(python_of, chunk))
        ]
    return values
