"""Missing values, types and choices: what is done to single rows, with a constant or with a learnt value."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, overload

import jax.numpy as jnp

from ...errors import InputError
from .._caller import caller
from ..tracing.columns import Column, Fact, both, isin, read, result
from ..tracing.overflow import check_whole
from ..tracing.primitives import bind_host, current
from . import statistics
from .arguments import Array, LearntText, Value

__all__ = ["cast", "fill_missing", "imputed", "is_in", "is_missing", "where"]

_RULES: Final[dict[str, Callable[[Value], Any]]] = {
    "mean": statistics.mean,
    "median": statistics.median,
    "mode": statistics.mode,
}


def fill_missing(x: Value, value: Any) -> Value:
    """`x` with `value` where it is missing: a constant, an array such as `ops.mean(x)`, or `ops.mode(x)` of text.

    For a column of lists the constant is a list, and stands for a missing list; an empty list is not missing.

    Returns:
        Text for text, lists for lists; else an array. Integers filled with a float become float32.

    Raises:
        InputError: Text is to be filled with a number, or numbers with text.
    """
    column = read(x, "given to fill_missing")
    column._check_readable()
    if column.item is not None:
        return _fill_lists(column, value)
    if (column.dtype == "string") != isinstance(value, (str, LearntText)) or isinstance(value, (list, tuple)):
        wanted = "text" if column.dtype == "string" else "a number"
        raise InputError(
            f"column {column.name!r} takes {wanted}, not {value!r:.40}", fix=f"fill with {wanted}", where=caller()
        )
    if isinstance(value, float) and not math.isfinite(value):
        raise InputError(f"{value} is not a value to fill with", fix="use a finite number", where=caller())
    if isinstance(value, LearntText):
        (texts,) = bind_host("fill_learnt", [column.handle, value.handle], [("string", ("b",), True)], {})
        return Column(column.name, "string", Fact(column.name, texts, "string"))
    if column.fact.handle is not None and isinstance(value, (str, bool, int, float)):
        return _fill_on_host(column, value)
    valid = column.valid
    if valid is None:
        return column.public()
    filled = jnp.where(valid, column.values, jnp.asarray(value) if not hasattr(value, "dtype") else value)
    return current().note(filled, Fact(column.name, complete=True, size=column.fact.size))


def _fill_lists(column: Column, value: Any) -> Column:
    kinds = {"string": str, "int64": int, "float64": (int, float)}[column.item or ""]
    fits = isinstance(value, (list, tuple)) and not any(isinstance(v, bool) or v != v for v in value)
    if not fits or not all(isinstance(v, kinds) for v in value):  # type: ignore[arg-type]  # a type or two
        raise InputError(
            f"column {column.name!r} takes a {column.dtype}, not {value!r:.40}",
            fix="fill with a list such as []",
            where=caller(),
        )
    filling = [float(v) for v in value] if column.item == "float64" else list(value)
    params = {"value": filling, "dtype": column.dtype}
    (lists,) = bind_host("fill", [column.handle], [(column.dtype, ("b",), True)], params)
    return Column(column.name, column.dtype, Fact(column.name, lists, column.dtype, True, column.fact.size))


def _fill_on_host(column: Column, value: Any) -> Value:
    host, dtype = column.fact.host, column.dtype
    assert host is not None
    if host == "int64" and isinstance(value, float):
        host, dtype = "float64", "float32"
    if (host == "bool") != isinstance(value, bool):
        raise InputError(
            f"column {column.name!r} is {dtype}, {value!r} is not", fix="fill with the same type", where=caller()
        )
    if host == "float64":
        value = float(value)
    (numbers,) = bind_host("fill", [column.fact.handle], [(host, ("b",), True)], {"value": value, "dtype": host})
    time = column.fact.time and host == "int64"
    return Column(column.name, dtype, Fact(column.name, numbers, host, complete=True, time=time)).public()


def is_missing(x: Value) -> Array:
    """Bool array: True where `x` is null, or NaN."""
    column = read(x, "given to is_missing")
    valid = column.valid
    return ~valid if valid is not None else jnp.zeros(_rows(column), bool)


@overload
def imputed(x: Value, how: str = ..., *, indicator: Literal[False] = ...) -> Value: ...
@overload
def imputed(x: Value, how: str = ..., *, indicator: Literal[True]) -> tuple[Value, Array]: ...
def imputed(x: Value, how: str = "mean", *, indicator: bool = False) -> Any:
    """`fill_missing` with the mean, median or mode of the training data; text takes "mode" only.

    Args:
        x: The column.
        how: "mean", "median" or "mode".
        indicator: Whether to give `is_missing(x)` beside it.

    Returns:
        The filled column, or with `indicator` that and a bool array.
    """
    column = read(x, "given to imputed")
    allowed = ("mode",) if column.dtype == "string" else tuple(_RULES)
    if how not in allowed:
        raise InputError(
            f"column {column.name!r} cannot be imputed by {how!r}", fix=f"use {' or '.join(allowed)}", where=caller()
        )
    value = _RULES[how](x)
    filled = fill_missing(x, value > 0 if column.dtype == "bool" and how == "mode" else value)
    return (filled, is_missing(x)) if indicator else filled


def _rows(column: Column) -> Any:
    return (current().batch,) if column.dtype == "string" else column.values.shape


def cast(x: Value, dtype: str) -> Value:
    """`x` as float32, int32, bool (or another 8 to 32-bit JAX dtype), or "string". Missing stays missing.

    Text is parsed (a word that is not a number raises when met), floats are cut towards zero, booleans are 0 and 1. A
    row fails whose float does not fit in the int32 that is asked for.
    """
    column = read(x, "given to cast")
    column._check_readable()
    if dtype == "string":
        return _as_text(column)
    target = _device_dtype(dtype)
    if column.dtype == "string":
        host = {"f": "float64", "i": "int64", "u": "int64", "b": "bool"}[target.kind]
        parsed = {"dtype": host, "column": column.name}
        (handle,) = bind_host("parse", [column.fact.handle], [(host, ("b",), True)], parsed)
        return Column(column.name, str(target), Fact(column.name, handle, host, column.fact.complete)).public()
    if str(target) == column.dtype:
        return column.public()
    if target == jnp.float32 and column.fact.host == "int64" and column.fact.handle is not None:
        # Straight from the host, where a whole number may be wider than the device's int32.
        shown = {"dtype": "float32", "column": column.name}
        (floats,) = bind_host("values", [column.fact.handle], [("float32", ("b",), False)], shown)
        fact = Fact(column.name, column.fact.handle, column.fact.host, column.fact.complete)
        return current().note(floats, fact)
    if jnp.issubdtype(target, jnp.floating):
        values = column.values.astype(target)
        filled = values if column.valid is None else jnp.where(column.valid, values, jnp.nan)
        return current().note(filled, Fact(column.name, None, None, column.fact.complete))
    valid = column.valid
    values = column.values if valid is None else jnp.where(valid, column.values, 0)
    if target == jnp.int32 and jnp.issubdtype(values.dtype, jnp.floating):
        check_whole(column.name, values, valid)
    converted = values.astype(target)
    if valid is None:
        return current().note(converted, Fact(column.name, complete=True, size=column.fact.size))
    return result(column.name, converted, valid)


def _device_dtype(dtype: str) -> Any:
    try:
        target = jnp.dtype(dtype)
    except TypeError:
        target = None
    if target is None or target.itemsize > 4 or target.kind not in "fiubV":
        raise InputError(f"no dtype {dtype!r} on the device", fix="use float32, int32, bool or string", where=caller())
    return target


def _as_text(column: Column) -> Value:
    if column.dtype == "string":
        return column
    if jnp.issubdtype(column.values.dtype, jnp.floating):
        raise InputError(
            f"column {column.name!r} is float: its spelling is not defined",
            fix="cast it to int32 first",
            where=caller(),
        )
    (texts,) = bind_host("text", [column.handle], [("string", ("b",), True)], {})
    return Column(column.name, "string", Fact(column.name, texts, "string", column.fact.complete))


def where(condition: Value, x: Value | str, y: Value | str) -> Value:
    """`x` where the condition holds, else `y`. A missing condition is False; what is taken may be missing.

    Args:
        condition: One boolean per row.
        x: Numbers or booleans; or text, a column or one text for all rows. As `y`.
        y: See `x`.

    Raises:
        InputError: One side is text and the other is not, or a list.
    """
    if any(isinstance(side, str) or (isinstance(side, Column) and side.dtype == "string") for side in (x, y)):
        return _text_where(read(condition, "given to where"), x, y)
    test, a, b = read(condition, "given to where"), read(x, "given to where"), read(y, "given to where")
    for column in (test, a, b):
        column.check_numeric("given to where")
    chosen = test.__jax_array__()
    values = jnp.where(chosen, a.values, b.values)
    valids = [None if column.values.dtype.kind == "f" else column.valid for column in (a, b)]
    if both(*valids) is None:
        return values
    # A side without missing values is valid everywhere; one scalar says so, and broadcasts in `where`.
    ones = jnp.ones((), bool)
    left, right = (ones if valid is None else valid for valid in valids)
    return result(a.name, values, jnp.where(chosen, left, right))


def _text_where(test: Column, x: Value | str, y: Value | str) -> Column:
    test.check_numeric("given to where")
    sides = {"x": x, "y": y}
    fixed = {side: value for side, value in sides.items() if isinstance(value, str)}
    columns = [read(value, "given to where") for value in sides.values() if not isinstance(value, str)]
    for column in columns:
        if column.dtype != "string":
            raise InputError(
                f"where: one side is text, the other is {column.name!r}, {column.dtype}",
                fix="ops.cast(…, 'string') makes text of whole numbers and booleans",
                where=caller(),
            )
    if test.dtype != "bool":
        raise InputError(f"where: the condition is {test.dtype}", fix="compare it, e.g. x > 0", where=caller())
    inputs = [test.handle, *(column.handle for column in columns)]
    (texts,) = bind_host("choose", inputs, [("string", ("b",), True)], fixed)
    name = columns[0].name if columns else test.name
    return Column(name, "string", Fact(name, texts, "string", all(column.fact.complete for column in columns)))


def is_in(x: Value, values: Sequence[Any]) -> Value:  # Any: texts, or whole numbers
    """Whether a text or whole number, or any text of a list, is one of `values`; missing stays missing."""
    column = read(x, "given to is_in")
    kind, wanted = {"string": (str, "texts"), "list<string>": (str, "texts"), "int32": (int, "whole numbers")}.get(
        column.dtype, (None, "no values: compare it with ==")
    )
    if kind is None or isinstance(values, str) or not all(type(value) is kind for value in values):
        raise InputError(
            f"is_in: column {column.name!r} is {column.dtype} and takes {wanted}, not {values!r:.60}",
            fix="is_in(text, ['a', 'b']) or is_in(whole_numbers, [1, 2])",
            where=caller(),
        )
    return isin(column, sorted(set(values)))
