"""What the rooms of ops share: the names of their types, and checks of arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...errors import InputError
from .._caller import caller

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


def at_least(name: str, value: object, least: int) -> None:
    """Raise InputError, with the user's line, unless it is a whole number of at least `least`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InputError(f"{name} is {value!r}", fix=f"use a whole number, {least} or more", where=caller())
