"""Slices as codes: each row of a batch gets the number of its slice, for every list of slice columns."""

from __future__ import annotations

import datetime
import decimal
import json
import math
from collections import Counter
from collections.abc import Sequence
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ..errors import InputError
from .arrays import numpy_of

SliceValue: TypeAlias = str | int | float | bool | None
SliceSpec: TypeAlias = tuple[str, ...]
"""The columns whose values make the slices; () is the overall slice."""
SliceKey: TypeAlias = tuple[int, tuple[SliceValue, ...]]
"""The position of its spec in the configuration, and the value of each column; None where it is missing."""

MISSING: Final = "(missing)"
MAX_SLICES: Final = 10_000


class SliceTable:
    """Numbers slices in the order in which they come up, until `sort` numbers them canonically.

    Attributes:
        specs: The lists of slice columns.
        codes: The number of each slice, by key.
    """

    def __init__(self, specs: Sequence[SliceSpec]) -> None:
        self.specs = tuple(specs)
        self.codes: dict[SliceKey, int] = {}

    def __len__(self) -> int:
        return len(self.codes)

    def code(self, key: SliceKey) -> int:
        """The slice's code, a new one if it has none yet.

        Raises:
            InputError: There are more slices than `MAX_SLICES` for each spec.
        """
        code = self.codes.setdefault(key, len(self.codes))
        if code == MAX_SLICES * len(self.specs):
            raise InputError(
                f"the slices by {[list(spec) for spec in self.specs if spec]} are more than {code:,}",
                fix="slice by columns with few values, or by groups of them: Slice(name, sql=column, groups=16)",
            )
        return code

    def sort(self) -> NDArray[np.int64]:
        """Number the slices by spec and value, missing last; returns each old code's new one."""
        keys = list(self.codes)
        ranked = sorted(range(len(keys)), key=lambda code: (keys[code][0], [rank_of(value) for value in keys[code][1]]))
        renumber = np.empty(len(keys), dtype=np.int64)
        renumber[ranked] = np.arange(len(keys))
        self.codes = {keys[old]: new for new, old in enumerate(ranked)}
        return renumber

    def pairs(self, key: SliceKey) -> list[tuple[str, SliceValue]]:
        """The slice as (column, value) pairs; empty for the overall slice."""
        return list(zip(self.specs[key[0]], key[1], strict=True))


def title(pairs: Sequence[tuple[str, SliceValue]]) -> str:
    """The slice for people: "overall", or "carrier=AA, month=1"."""
    return ", ".join(f"{name}={shown_value(value)}" for name, value in pairs) or "overall"


def shown_value(value: SliceValue) -> str:
    """A value for people: "(missing)" where there is none; in quotes where it is that text."""
    return MISSING if value is None else repr(value) if value == MISSING else str(value)


def distinct_titles(slices: Sequence[Sequence[tuple[str, SliceValue]]]) -> list[str]:
    """The title of each slice; where several have one, as two that hold commas may, texts are in quotes."""
    titles = [title(pairs) for pairs in slices]
    counts = Counter(titles)
    return [
        name
        if counts[name] == 1
        else ", ".join(f"{column}={MISSING if value is None else repr(value)}" for column, value in pairs)
        for name, pairs in zip(titles, slices, strict=True)
    ]


def key_text(pairs: Sequence[tuple[str, SliceValue]]) -> str:
    """The slice for programs: a JSON list of [column, value] pairs with typed values, null where missing."""
    return json.dumps([list(pair) for pair in pairs], ensure_ascii=False, separators=(",", ":"))


def encode_column(name: str, column: pa.Array) -> tuple[NDArray[np.int64], list[SliceValue]]:
    """The index of each row's value among the column's distinct ones, which may hold one twice (null and NaN).

    Raises:
        InputError: The column's type makes no slices, or its bytes are not text.
    """
    if pa.types.is_dictionary(column.type):
        if len(column.dictionary) <= len(column):
            return _of_dictionary(name, column)
        column = column.cast(column.type.value_type)
    if pa.types.is_null(column.type):
        return np.zeros(len(column), dtype=np.int64), [None]
    if pa.types.is_nested(column.type):
        raise InputError(
            f"column {name!r} of type {column.type} makes no slices", fix="slice by text, numbers, booleans or dates"
        )
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        try:
            column = column.cast(pa.large_string())
        except pa.ArrowInvalid as error:
            raise InputError(
                f"column {name!r} of type {column.type} has values that are not UTF-8, which make no slices",
                fix="slice by text, numbers, booleans or dates",
            ) from error
    if pa.types.is_float16(column.type):  # which Arrow does not encode
        column = column.cast(pa.float32())
    encoded = column.dictionary_encode(null_encoding="encode")
    values = [_plain(_as_python(value)) for value in encoded.dictionary]
    return numpy_of(encoded.indices).astype(np.int64), values


def _of_dictionary(name: str, column: pa.DictionaryArray) -> tuple[NDArray[np.int64], list[SliceValue]]:
    """`encode_column` by the indices that are there already; only values that a row has are among those returned."""
    of_entry, values = encode_column(name, column.dictionary)
    of_entry, every = np.append(of_entry, len(values)), [*values, None]  # one more, for no value
    indices = column.indices
    if indices.null_count:
        indices = indices.cast(pa.int64()).fill_null(len(of_entry) - 1)
    entries = numpy_of(indices)
    used = np.flatnonzero(np.bincount(entries, minlength=len(of_entry)))
    present = np.unique(of_entry[used])
    if np.array_equal(present, of_entry[used]) and np.array_equal(used, np.arange(len(used))):
        return entries.astype(np.int64), [every[code] for code in present]
    position = np.zeros(len(every), dtype=np.int64)
    position[present] = np.arange(len(present))
    return position[of_entry].take(entries), [every[code] for code in present]


def _as_python(value: pa.Scalar) -> object:
    try:
        return value.as_py()
    except (OverflowError, ValueError):  # a time beyond the years 1 to 9999, for which Python has no word
        return f"{value.value} ({value.type})"


def _plain(value: object) -> SliceValue:
    if isinstance(value, float):
        if math.isnan(value):
            return None
        return value + 0.0 if math.isfinite(value) else str(value)  # -0.0 is the slice of 0.0
    if value is None or isinstance(value, (str, int, bool)):
        return value
    if isinstance(value, (datetime.datetime, datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, (decimal.Decimal, datetime.timedelta)):
        return str(value)
    raise InputError(f"a value of type {type(value).__name__} makes no slice", fix="slice by text, numbers or dates")


def unravel(number: int, values: Sequence[Sequence[SliceValue]]) -> tuple[SliceValue, ...]:
    """One value of each column, whose indices are the digits of one number (as `encode` composes them)."""
    key: list[SliceValue] = []
    for column in reversed(values):
        number, index = divmod(number, len(column))
        key.append(column[index])
    return tuple(reversed(key))


def rank_of(value: SliceValue) -> tuple[bool, str, object]:
    """Sort key of a slice's value: numbers come first, then text, then what is missing."""
    kind = "number" if isinstance(value, (int, float)) else "text"
    return value is None, kind, 0 if value is None else value
