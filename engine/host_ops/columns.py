"""Host columns: how the values of a batch or a row look to the host ops.

A column on the host is nullable: `string`, `int64`, `float64` (where NaN is missing too), `bool`, or a list of one of
the first three (`lists`). Times are int64 (`dates`), decimals float64. In a row it is a Python value or None. String
ops work on the distinct values of a batch's dictionary; rows only gather codes.
"""

from __future__ import annotations

import datetime
import decimal
import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ...data.types import is_list
from ...errors import InputError
from ..graphs.nodes import LIST_DTYPES
from .dates import as_millisecond, as_milliseconds, is_time
from .lists import enter, enter_row, lists_of

Params = Mapping[str, Any]  # Any: JSON
Assets = tuple[pa.Table, ...]
Kernel = Callable[..., Any]  # Any: columns and arrays of the node's types, or one row's values


_NUMBERS: Final = {"int64", "float64"}
_SCALARS: Final = {"string": pa.string(), "int64": pa.int64(), "float64": pa.float64(), "bool": pa.bool_()}
ARROW: Final = {**_SCALARS, **{dtype: pa.list_(_SCALARS[dtype[5:-1]]) for dtype in LIST_DTYPES}}

_WORDS: Final = {"string": "text", "int64": "whole numbers", "float64": "numbers", "bool": "true or false"}
_PLAIN_ITEMS: Final = {"float64": {float}, "string": {str}}  # types that `as_value` leaves alone in a list


def item_dtype(dtype: str) -> str | None:
    """What a list dtype is a list of; None for no list."""
    return dtype[5:-1] if dtype in LIST_DTYPES else None


def column_dtype(kind: pa.DataType) -> str | None:
    """The host dtype of an Arrow type; None for one the engine does not read."""
    if is_list(kind):
        dtype = f"list<{column_dtype(kind.value_type)}>"
        return dtype if dtype in LIST_DTYPES else None
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return "string"
    if pa.types.is_boolean(kind):
        return "bool"
    if pa.types.is_integer(kind) or is_time(kind):
        return "int64"
    return "float64" if pa.types.is_floating(kind) or pa.types.is_decimal(kind) or pa.types.is_null(kind) else None


def as_column(array: pa.Array | pa.ChunkedArray, dtype: str, name: str) -> pa.Array:
    """An Arrow array as a host column of that dtype; a string column may stay dictionary-encoded.

    Numbers are cast where no value changes: integers to floats and whole floats to integers (of which NaN is missing).
    What has no value at all may be of any type.

    Raises:
        InputError: Its values are of another kind, text where numbers belong, say; or a number would change.
    """
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    item = item_dtype(dtype)
    if item is not None and is_list(array.type):
        return enter(array, lambda flat: as_column(flat, item, name))
    stored = column_dtype(array.type)
    if stored != dtype and not {stored, dtype} <= _NUMBERS:
        if array.null_count < len(array):
            raise _of_another_type(name, array.type, dtype)
        return pa.nulls(len(array), ARROW[dtype])
    if pa.types.is_dictionary(array.type):
        if dtype == "string":
            return array
        array = array.dictionary_decode()
    if is_time(array.type):
        array = as_milliseconds(array)
    if array.type == ARROW[dtype]:
        return array
    if dtype == "int64" and pa.types.is_floating(array.type):
        array = pc.if_else(pc.is_nan(array), pa.scalar(None, array.type), array)
    try:
        return array.cast(ARROW[dtype])
    except pa.ArrowInvalid as error:
        if dtype == "float64" and pa.types.is_integer(array.type):
            # Arrow refuses all integers beyond 2^53, also those that floats keep.
            odd = next((value for value in array.to_pylist() if value is not None and int(float(value)) != value), None)
            if odd is None:
                return array.cast(pa.float64(), safe=False)
            raise _changed(name, odd, dtype) from error
        odd = next((value for value in array.to_pylist() if value is not None and not _is_int64(value)), error)
        raise _changed(name, odd, dtype) from error


def as_value(value: object, dtype: str, name: str) -> object:
    """One row's value as the host's: None, str, int, float, bool or a list. Raises InputError as `as_column`.

    What pandas calls missing is None: NaN, NaT and NA.
    """
    item = item_dtype(dtype)
    if item is not None and isinstance(value, np.ndarray) and value.ndim == 1:
        value = value.tolist()
    if item is not None and isinstance(value, (list, tuple)):
        if type(value) is list and {*map(type, value)} == _PLAIN_ITEMS.get(item):
            return value
        return enter_row([as_value(each, item, name) for each in value], item == "float64")
    if dtype == "int64" and isinstance(value, (datetime.date, np.datetime64)):
        return None if is_missing(value) else as_millisecond(value)
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or (dtype == "string" and isinstance(value, str)) or (dtype == "bool" and isinstance(value, bool)):
        return value
    if isinstance(value, (int, float, decimal.Decimal)) and not isinstance(value, bool):
        if dtype == "float64":
            return _as_float(value, name)
        if is_missing(value):
            return None
        if dtype == "int64":
            if not _is_int64(value):
                raise _changed(name, value, dtype)
            return int(value)
    if type(value).__name__ in ("NAType", "NaTType"):
        return None
    raise InputError(f"column {name!r} is {value!r:.80}, the graph reads {dtype}", fix=f"give it {_in_words(dtype)}")


def _as_float(value: int | float | decimal.Decimal, name: str) -> float:
    try:
        number = float(value)
    except (OverflowError, ValueError) as error:
        raise InputError(f"column {name!r} is {value!r:.80}: {error}", fix="keep its values in range") from error
    if isinstance(value, int) and int(number) != value:
        raise _changed(name, value, "float64")
    return number


def _is_int64(value: int | float | decimal.Decimal) -> bool:
    if isinstance(value, int):  # of any size
        return value in INT64
    return math.isfinite(value) and value == int(value) and int(value) in INT64


def _of_another_type(name: str, kind: pa.DataType, dtype: str) -> InputError:
    return InputError(f"column {name!r} is {kind}, the graph reads {dtype}", fix=f"give it {_in_words(dtype)}")


def _in_words(dtype: str) -> str:
    item = item_dtype(dtype)
    return _WORDS[dtype] if item is None else f"lists of {_WORDS[item]}"


def _changed(name: str, value: object, dtype: str) -> InputError:
    return InputError(
        f"column {name!r} has {value!r:.80}, which does not fit {dtype}: the graph reads that",
        fix="round it, or give the column the type it was made with",
    )


def is_missing(value: object) -> bool:
    """Whether a row's value is None or NaN."""
    return value is None or value != value  # NaN


def present(column: pa.Array) -> NDArray[np.bool_]:
    """Which rows of a host column have a value; an empty list is one."""
    if is_list(column.type):
        return lists_of(column).valid
    if pa.types.is_floating(column.type):
        kept: NDArray[np.bool_] = ~np.isnan(column.to_numpy(zero_copy_only=False))
        return kept
    if pa.types.is_dictionary(column.type):
        return np.asarray(codes_of(column)[0] < len(column.dictionary)) & ~_null_words(column)
    if not column.null_count:
        return np.ones(len(column), bool)
    return np.asarray(pc.is_valid(column).to_numpy(zero_copy_only=False))


def _null_words(column: pa.Array) -> NDArray[np.bool_]:
    """Rows whose dictionary word is itself null: legal Arrow, if odd."""
    if not column.dictionary.null_count:
        return np.zeros(len(column), bool)
    nulls = np.append(column.dictionary.is_null().to_numpy(zero_copy_only=False), False)
    return np.asarray(nulls[codes_of(column)[0]])


def codes_of(column: pa.Array) -> tuple[NDArray[np.int64], pa.Array]:
    """Codes per row and the words they mean; the code of a missing row is the number of words."""
    encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    words = encoded.dictionary
    codes = encoded.indices.fill_null(len(words)) if encoded.indices.null_count else encoded.indices
    return codes.to_numpy(zero_copy_only=False).astype(np.int64, copy=False), words


def by_word(column: pa.Array, of_word: Callable[[Any], Any], missing: object, dtype: Any) -> NDArray[Any]:
    """One result per row, worked out once per distinct value; words that no row has are not looked at."""
    codes, words = codes_of(column)
    used = np.bincount(codes, minlength=len(words))
    table = [
        missing if word is None or not rows else of_word(word)
        for word, rows in zip(words.to_pylist(), used[: len(words)].tolist(), strict=True)
    ]
    return np.array([*table, missing], dtype=dtype)[codes]


INT32: Final = range(-(2**31), 2**31)
INT64: Final = range(-(2**63), 2**63)


def too_wide(name: str, row: int | None, value: object, *, time: bool = False) -> InputError:
    """The error for an integer that the device cannot hold; `time`: it is a timestamp or date."""
    at = "" if row is None else f" in row {row}"
    if time:
        # float32 would do, and round a time of our days to 131 seconds.
        return InputError(
            f"column {name!r} is a time, {value} ms since 1970{at}, which does not fit in int32 on the device",
            fix='calculate with ops.timestamp_part(x, "days"), and "second_of_day" where the hour matters',
        )
    return InputError(
        f"column {name!r} has {value}{at}, which does not fit in int32 on the device",
        fix="ops.cast it to float32, or use it as a category (ops.vocabulary)",
    )
