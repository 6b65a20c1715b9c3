"""Host ops: what XLA cannot do, each with a kernel for an Arrow batch and one for a single row, tested equal.

A column on the host is nullable: `string`, `int64`, `float64` (where NaN is missing too) or `bool`. In a row it is a
Python value or None. String ops work on the distinct values of a batch's dictionary; rows only gather codes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ..errors import InputError
from .fingerprint64 import fingerprint64

Params = Mapping[str, Any]  # Any: JSON
Assets = tuple[pa.Table, ...]
Kernel = Callable[..., Any]  # Any: columns and arrays of the node's types, or one row's values


@dataclass(frozen=True)
class HostOp:
    """An op: given the node's params and assets, each maker prepares once and returns the kernel that runs."""

    batch: Callable[[Params, Assets], Kernel]
    row: Callable[[Params, Assets], Kernel]


def host_op(name: str) -> HostOp:
    """The op of that name.

    Raises:
        InputError: This release has none: the bundle is from a newer one.
    """
    if name not in _OPS:
        raise InputError(
            f"no host op {name!r:.80} in this release", fix="upgrade drivetrain, or write the bundle again"
        )
    return _OPS[name]


_ARROW: Final = {"string": pa.string(), "int64": pa.int64(), "float64": pa.float64(), "bool": pa.bool_()}


def column_dtype(kind: pa.DataType) -> str | None:
    """The host dtype of an Arrow type: string, int64, float64, bool; None for one the engine does not read."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return "string"
    if pa.types.is_boolean(kind):
        return "bool"
    if pa.types.is_integer(kind):
        return "int64"
    return "float64" if pa.types.is_floating(kind) or pa.types.is_null(kind) else None


def as_column(array: pa.Array | pa.ChunkedArray, dtype: str, name: str) -> pa.Array:
    """An Arrow array as a host column of that dtype; a string column may stay dictionary-encoded.

    Raises:
        InputError: Its values are of another kind: text where numbers belong, say.
    """
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    found = column_dtype(array.type)
    allowed = {"float64": ("float64", "int64"), "int64": ("int64",), "bool": ("bool",), "string": ("string",)}[dtype]
    if found not in allowed and not pa.types.is_null(array.type):
        raise InputError(
            f"column {name!r} is {array.type}, the graph reads {dtype}", fix="give it the type it was made with"
        )
    if pa.types.is_dictionary(array.type):
        if dtype == "string":
            return array
        array = array.dictionary_decode()
    try:
        return array if array.type == _ARROW[dtype] else array.cast(_ARROW[dtype])
    except pa.ArrowInvalid as error:
        raise InputError(f"column {name!r} does not fit {dtype}: {error}", fix="keep its values in range") from error


def as_value(value: object, dtype: str, name: str) -> object:
    """One row's value as the host's: None, str, int, float or bool. Raises InputError as `as_column`."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or (dtype == "string" and isinstance(value, str)) or (dtype == "bool" and isinstance(value, bool)):
        return value
    if dtype == "float64" and isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    if dtype == "int64" and isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63:
        return value
    raise InputError(
        f"column {name!r} is {value!r:.80}, the graph reads {dtype}", fix="give it the type it was made with"
    )


def is_missing(value: object) -> bool:
    """Whether a row's value is None or NaN."""
    return value is None or value != value  # NaN


def present(column: pa.Array) -> NDArray[np.bool_]:
    """Which rows of a host column have a value."""
    if pa.types.is_floating(column.type):
        kept: NDArray[np.bool_] = ~np.isnan(column.to_numpy(zero_copy_only=False))
        return kept
    if pa.types.is_dictionary(column.type):
        return np.asarray(_codes(column)[0] < len(column.dictionary)) & ~_null_words(column)
    return np.asarray(pc.is_valid(column).to_numpy(zero_copy_only=False))


def _null_words(column: pa.Array) -> NDArray[np.bool_]:
    """Rows whose dictionary word is itself null: legal Arrow, if odd."""
    if not column.dictionary.null_count:
        return np.zeros(len(column), bool)
    nulls = np.append(column.dictionary.is_null().to_numpy(zero_copy_only=False), False)
    return np.asarray(nulls[_codes(column)[0]])


def _codes(column: pa.Array) -> tuple[NDArray[np.int64], pa.Array]:
    """Codes per row and the words they mean; the code of a missing row is the number of words."""
    encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    words = encoded.dictionary
    codes = encoded.indices.fill_null(len(words)) if encoded.indices.null_count else encoded.indices
    return codes.to_numpy(zero_copy_only=False).astype(np.int64, copy=False), words


def _by_word(column: pa.Array, of_word: Callable[[Any], Any], missing: object, dtype: Any) -> NDArray[Any]:
    """One result per row, worked out once per distinct value; words that no row has are not looked at."""
    codes, words = _codes(column)
    used = np.bincount(codes, minlength=len(words))
    table = [
        missing if word is None or not rows else of_word(word)
        for word, rows in zip(words.to_pylist(), used[: len(words)].tolist(), strict=True)
    ]
    return np.array([*table, missing], dtype=dtype)[codes]


# --- values and valid: the way from a column to the device ----------------------------------------------------------

_INT32: Final = range(-(2**31), 2**31)


def _too_wide(name: str, row: int | None, value: object) -> InputError:
    at = "" if row is None else f" in row {row}"
    return InputError(
        f"column {name!r} has {value}{at}, which does not fit in int32 on the device",
        fix="use it as a category (ops.vocabulary), or store it as float",
    )


def _values_batch(params: Params, assets: Assets) -> Kernel:
    dtype, name = np.dtype(params["dtype"]), str(params["column"])

    def kernel(column: pa.Array) -> NDArray[Any]:
        if pa.types.is_floating(column.type):
            with np.errstate(over="ignore"):  # beyond float32 is an infinity, as XLA would have it
                return np.asarray(column.to_numpy(zero_copy_only=False).astype(dtype))
        filled = column.fill_null(False if dtype.kind == "b" else 0) if column.null_count else column
        values = filled.to_numpy(zero_copy_only=False)
        if dtype == np.int32 and len(values) and not (int(values.min()) in _INT32 and int(values.max()) in _INT32):
            row = int(np.flatnonzero((values < _INT32.start) | (values >= _INT32.stop))[0])
            raise _too_wide(name, row, values[row])
        values = values.astype(dtype)
        if dtype.kind == "f" and column.null_count:
            values[~present(column)] = np.nan
        return np.asarray(values)

    return kernel


def _values_row(params: Params, assets: Assets) -> Kernel:
    dtype, name = np.dtype(params["dtype"]), str(params["column"])
    missing: object = math.nan if dtype.kind == "f" else False if dtype.kind == "b" else 0

    def kernel(value: Any) -> object:
        if value is None:
            return missing
        if dtype == np.int32 and value not in _INT32:
            raise _too_wide(name, None, value)
        if dtype.kind == "f":
            with np.errstate(over="ignore"):
                return dtype.type(value)
        return value

    return kernel


def _valid_batch(params: Params, assets: Assets) -> Kernel:
    return present


def _valid_row(params: Params, assets: Assets) -> Kernel:
    return lambda value: not is_missing(value)


def _column_batch(params: Params, assets: Assets) -> Kernel:
    kind = _ARROW[params["dtype"]]

    def kernel(values: NDArray[Any], valid: NDArray[np.bool_] | None = None) -> pa.Array:
        return pa.array(values, mask=None if valid is None else ~valid).cast(kind)

    return kernel


def _column_row(params: Params, assets: Assets) -> Kernel:
    kind = {"int64": int, "float64": float, "bool": bool}[params["dtype"]]
    return lambda value, valid=True: kind(value) if valid else None


def _require_batch(params: Params, assets: Assets) -> Kernel:
    def kernel(values: NDArray[Any], valid: NDArray[np.bool_]) -> NDArray[Any]:
        if not valid.all():
            raise _required(params, int(np.flatnonzero(~valid)[0]))
        return values

    return kernel


def _require_row(params: Params, assets: Assets) -> Kernel:
    def kernel(value: object, valid: bool) -> object:
        if not valid:
            raise _required(params, None)
        return value

    return kernel


def _required(params: Params, row: int | None) -> InputError:
    at = "" if row is None else f" in row {row}"
    name = params["output"]
    return InputError(
        f"output {name!r} has a missing value{at}, and its {params['dtype']} has no room for one",
        fix=f"in the preprocessing function, ops.fill_missing what {name!r} is made of, or cast it to float32",
    )


# --- fill: a missing value gets one ---------------------------------------------------------------------------------


def _fill_batch(params: Params, assets: Assets) -> Kernel:
    value, kind = params["value"], _ARROW[params["dtype"]]

    def kernel(column: pa.Array) -> pa.Array:
        if pa.types.is_dictionary(column.type):
            codes, words = _codes(column)
            if (codes == len(words)).any() or words.null_count:
                filled = pa.chunked_array([words, pa.array([value], words.type)]).combine_chunks().fill_null(value)
                return filled.take(pa.array(codes))
            return column
        if column.type != kind:
            column = column.cast(kind)
        if pa.types.is_floating(column.type):
            values = column.to_numpy(zero_copy_only=False)
            return pa.array(np.where(np.isnan(values), value, values))
        return column.fill_null(value) if column.null_count else column

    return kernel


def _fill_row(params: Params, assets: Assets) -> Kernel:
    value, is_float = params["value"], params["dtype"] == "float64"
    if is_float:
        value = float(value)
        return lambda given: value if given is None or given != given else float(given)  # NaN
    return lambda given: value if given is None else given


# --- strings --------------------------------------------------------------------------------------------------------


def _lookup_of(params: Params, assets: Assets) -> tuple[dict[str, int], Callable[[str], int], int]:
    words = assets[0].column("value").to_pylist()
    known = {word: index for index, word in enumerate(words)}
    buckets = int(params["oov_buckets"])

    def unknown(word: str) -> int:
        return len(words) + (fingerprint64(word) % buckets if buckets > 1 else 0)

    return known, unknown, len(words) + buckets


def spelled(value: object) -> str:
    """How a value that is no string is looked up: integers in decimal, booleans as true and false."""
    return (
        value if isinstance(value, str) else ("true" if value else "false") if isinstance(value, bool) else str(value)
    )


def _lookup_batch(params: Params, assets: Assets) -> Kernel:
    known, unknown, missing = _lookup_of(params, assets)

    def of_word(word: object) -> int:
        text = spelled(word)
        found = known.get(text)
        return unknown(text) if found is None else found

    return lambda column: _by_word(column, of_word, missing, np.int32)


def _lookup_row(params: Params, assets: Assets) -> Kernel:
    known, unknown, missing = _lookup_of(params, assets)

    def kernel(value: object) -> int:
        if value is None:
            return missing
        text = spelled(value)
        found = known.get(text)
        return unknown(text) if found is None else found

    return kernel


def _hash_batch(params: Params, assets: Assets) -> Kernel:
    buckets = int(params["buckets"])
    return lambda column: _by_word(column, lambda word: fingerprint64(spelled(word)) % buckets, buckets, np.int32)


def _hash_row(params: Params, assets: Assets) -> Kernel:
    buckets = int(params["buckets"])
    return lambda value: buckets if value is None else fingerprint64(spelled(value)) % buckets


_COMPARE: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "in": lambda a, b: a in b,
}


def _compare_batch(params: Params, assets: Assets) -> Kernel:
    """With a constant: once per distinct value. With a second column: row by row, in Arrow's order of UTF-8 bytes."""
    test = _COMPARE[params["test"]]
    if "value" in params:
        value = params["value"]

        def constant(column: pa.Array) -> pa.Array:
            return pa.array(_by_word(column, lambda word: test(word, value), None, object), pa.bool_())

        return constant
    names = {"eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal"}
    return lambda left, right: pc.call_function(names[params["test"]], [_plain(left), _plain(right)])


def _compare_row(params: Params, assets: Assets) -> Kernel:
    test = _COMPARE[params["test"]]
    if "value" in params:
        value = params["value"]
        return lambda left: None if left is None else test(left, value)
    return lambda left, right: None if left is None or right is None else test(left, right)


def _plain(column: pa.Array) -> pa.Array:
    decoded = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
    return decoded.cast(pa.string())


def _parse_of(params: Params) -> Callable[[str], float | int | bool]:
    target, name = params["dtype"], params["column"]

    def parse(word: str) -> float | int | bool:
        try:
            if target == "bool":
                return {"true": True, "false": False}[word.strip().lower()]
            number = int(word) if target == "int64" else float(word)
        except (ValueError, KeyError):
            raise InputError(
                f"column {name!r} has {word!r:.80}, which is no {target}", fix="clean the column, or use ops.vocabulary"
            ) from None
        if target == "int64" and not -(2**63) <= number < 2**63:
            raise _too_wide(name, None, number)
        return number

    return parse


def _parse_batch(params: Params, assets: Assets) -> Kernel:
    parse, kind = _parse_of(params), _ARROW[params["dtype"]]
    return lambda column: pa.array(_by_word(column, parse, None, object), kind)


def _parse_row(params: Params, assets: Assets) -> Kernel:
    parse = _parse_of(params)
    return lambda value: None if value is None else parse(value)


def _text_batch(params: Params, assets: Assets) -> Kernel:
    return lambda column: pa.array(_by_word(column, spelled, None, object), pa.string())


def _text_row(params: Params, assets: Assets) -> Kernel:
    return lambda value: None if value is None else spelled(value)


_OPS: Final = {
    "values": HostOp(_values_batch, _values_row),
    "valid": HostOp(_valid_batch, _valid_row),
    "column": HostOp(_column_batch, _column_row),
    "require": HostOp(_require_batch, _require_row),
    "fill": HostOp(_fill_batch, _fill_row),
    "lookup": HostOp(_lookup_batch, _lookup_row),
    "hash": HostOp(_hash_batch, _hash_row),
    "compare": HostOp(_compare_batch, _compare_row),
    "parse": HostOp(_parse_batch, _parse_row),
    "text": HostOp(_text_batch, _text_row),
}
