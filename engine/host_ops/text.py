"""Host ops on text: they look at the distinct words of a batch's dictionary; rows only gather."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...data.types import is_list
from ...errors import InputError
from .columns import (
    ARROW,
    INT32,
    INT64,
    Assets,
    Kernel,
    Params,
    by_word,
)
from .fingerprint64 import fingerprint64
from .lists import lists_of, on_each, on_flat
from .siphash import siphash


def _lookup_of(params: Params, assets: Assets) -> tuple[dict[str, int], Callable[[str], int], int]:
    words = assets[0].column("value").to_pylist() if assets else params["words"]
    known = {word: index for index, word in enumerate(words)}
    buckets, default = int(params["oov_buckets"]), int(params.get("default", -1))

    def unknown(word: str) -> int:
        if not buckets:
            return default
        return len(words) + (fingerprint64(word) % buckets if buckets > 1 else 0)

    return known, unknown, len(words) + buckets


def size_of(params: Params, assets: Assets) -> Kernel:
    """How many words a vocabulary has, for a batch and for a row."""
    size = np.int32(assets[0].num_rows)
    return lambda: size


def spelled(value: object) -> str:
    """How a value that is not a string is looked up: integers in decimal, booleans as true and false."""
    return (
        value if isinstance(value, str) else ("true" if value else "false") if isinstance(value, bool) else str(value)
    )


def lookup_batch(params: Params, assets: Assets) -> Kernel:
    """The id of each word: known, unknown (by hash bucket, or the default) or missing; in lists, of every word."""
    known, unknown, missing = _lookup_of(params, assets)

    def of_word(word: object) -> int:
        text = spelled(word)
        word_id = known.get(text)
        return unknown(text) if word_id is None else word_id

    return on_flat(lambda column: by_word(column, of_word, missing, np.int32))


def lookup_row(params: Params, assets: Assets) -> Kernel:
    """As `lookup_batch`, for one value."""
    known, unknown, missing = _lookup_of(params, assets)

    def kernel(value: object) -> int:
        if value is None:
            return missing
        text = spelled(value)
        word_id = known.get(text)
        return unknown(text) if word_id is None else word_id

    return on_each(kernel, bool(params.get("list")))


def _hash_of(params: Params) -> Callable[[object], int]:
    buckets, key = int(params["buckets"]), params.get("key")
    if key is None:
        return lambda value: fingerprint64(spelled(value)) % buckets
    halves = int(key[0]), int(key[1])
    return lambda value: siphash(spelled(value), halves) % buckets


def hash_batch(params: Params, assets: Assets) -> Kernel:
    """The hash bucket of each word, by SipHash where there is a key; one more id for missing."""
    bucket, missing = _hash_of(params), int(params["buckets"])
    return on_flat(lambda column: by_word(column, bucket, missing, np.int32))


def hash_row(params: Params, assets: Assets) -> Kernel:
    """As `hash_batch`, for one value."""
    bucket, missing = _hash_of(params), int(params["buckets"])
    return on_each(lambda value: missing if value is None else bucket(value), bool(params.get("list")))


_COMPARE: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "in": lambda a, b: any(item in b for item in a) if isinstance(a, list) else a in b,
}


def compare_batch(params: Params, assets: Assets) -> Kernel:
    """With a constant: once per distinct value. With a second column: row by row, in Arrow's order of UTF-8 bytes."""
    test = _COMPARE[params["test"]]
    if "value" in params:
        value = params["value"]

        def constant(column: pa.Array) -> pa.Array:
            if is_list(column.type):
                lists = lists_of(column)
                hits = pc.is_in(lists.flat, pa.array(value, pa.string())).to_numpy(zero_copy_only=False)
                matched = np.bincount(lists.rows[hits], minlength=len(column)) > 0
                return pa.array(matched, mask=~lists.valid)
            return pa.array(by_word(column, lambda word: test(word, value), None, object), pa.bool_())

        return constant
    names = {"eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal"}
    return lambda left, right: pc.call_function(names[params["test"]], [_plain(left), _plain(right)])


def compare_row(params: Params, assets: Assets) -> Kernel:
    """As `compare_batch`, for one value or two."""
    test = _COMPARE[params["test"]]
    if "value" in params:
        value = params["value"]
        return lambda left: None if left is None else test(left, value)
    return lambda left, right: None if left is None or right is None else test(left, right)


def choose_batch(params: Params, assets: Assets) -> Kernel:
    """The text `x` where a condition holds, else `y`; a text of the params is the same for all rows."""
    fixed = {side: pa.scalar(params[side], pa.string()) for side in ("x", "y") if side in params}

    def kernel(test: pa.Array, *columns: pa.Array) -> pa.Array:
        remaining = iter(columns)
        x, y = (fixed[side] if side in fixed else _plain(next(remaining)) for side in ("x", "y"))
        return pc.if_else(pc.fill_null(test, False), x, y)

    return kernel


def choose_row(params: Params, assets: Assets) -> Kernel:
    """As `choose_batch`, for one row."""
    fixed = {side: str(params[side]) for side in ("x", "y") if side in params}

    def kernel(test: bool | None, *values: str | None) -> str | None:
        remaining = iter(values)
        x, y = (fixed[side] if side in fixed else next(remaining) for side in ("x", "y"))
        return x if test else y

    return kernel


def _plain(column: pa.Array) -> pa.Array:
    decoded = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
    return decoded.cast(pa.string())


_REFUSED: Final = object()  # what a word gives that is not a number of the kind, where there is no default


def _parse_of(params: Params) -> Callable[[str], Any]:
    target, default = params["dtype"], params.get("default", _REFUSED)
    # With a default, what the device cannot hold is not a number; else it may still be a category, and is one here.
    whole = INT32 if "default" in params else INT64

    def parse(word: str) -> Any:
        if target == "bool":
            return {"true": True, "false": False}.get(word.strip().lower(), default)
        if "_" in word:  # Python's spelling of 1000 as 1_000, which is nobody else's
            return default
        try:
            number = int(word) if target == "int64" else float(word)
        except ValueError:
            return default
        return number if target != "int64" or number in whole else default

    return parse


def _no_number(params: Params, word: str, row: int | None) -> InputError:
    """The text may be a part of what the column has: other ops come before."""
    kind = {"int64": "a whole number", "float64": "a number", "bool": "true or false"}[params["dtype"]]
    at = "" if row is None else f" in row {row}"
    fix = "ops.parse takes a default for such; ops.vocabulary takes any text"
    return InputError(f"cast: {word!r:.80}, from column {params['column']!r}{at}, is not {kind}", fix=fix)


def parse_batch(params: Params, assets: Assets) -> Kernel:
    """Text as numbers or booleans; a word that is not one gives the default, or raises where there is no default."""
    parse, kind = _parse_of(params), ARROW[params["dtype"]]

    def kernel(column: pa.Array) -> pa.Array:
        parsed = by_word(column, parse, None, object)
        if "default" not in params:
            refused = np.flatnonzero(parsed == _REFUSED)
            if len(refused):
                row = int(refused[0])
                raise _no_number(params, column[row].as_py(), row)
        return pa.array(parsed, kind)

    return on_flat(kernel)


def parse_row(params: Params, assets: Assets) -> Kernel:
    """As `parse_batch`, for one value."""
    parse = _parse_of(params)

    def kernel(value: str | None) -> Any:
        parsed = None if value is None else parse(value)
        if parsed is _REFUSED:
            raise _no_number(params, str(value), None)
        return parsed

    return on_each(kernel, bool(params.get("list")))


def text_batch(params: Params, assets: Assets) -> Kernel:
    """Integers and booleans as they are spelled."""
    return lambda column: pa.array(by_word(column, spelled, None, object), pa.string())


def text_row(params: Params, assets: Assets) -> Kernel:
    """As `text_batch`, for one value."""
    return lambda value: None if value is None else spelled(value)
