"""What the modules of ops share: the names of their types, and checks of arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...errors import InputError
from .._caller import caller
from ..tracing.columns import Size

__all__ = ["Columns"]

Array = Any  # a JAX array (a tracer while tracing): float columns and everything that has no missing value
Value = Any  # a Column or an Array
Columns = Mapping[str, Any]  # what a preprocessing function takes and gives: Column or Array by name


@dataclass(frozen=True)
class LearntText:
    """A text of the whole training data, such as `ops.mode` of words: what `ops.fill_missing` takes for a text column.

    Attributes:
        name: The column it was learnt from.
        handle: A tracer: an asset with that one text.
    """

    name: str
    handle: Any


def most_ids(size: Size | None) -> int | None:
    """How many ids there may be; None where that is not known before the data is read."""
    if size is None or (size.vocabulary is not None and size.most is None):
        return None
    return max(size.extra + (size.most or 0), size.least)


def at_least(name: str, value: object, least: int) -> None:
    """Raise InputError, with the user's line, unless it is a whole number of at least `least`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InputError(f"{name} is {value!r}", fix=f"use a whole number, {least} or more", where=caller())
