"""Text: cleaned, taken apart, put together, looked up. Missing text stays missing through every op here.

The empty string is text like any other. An op of one text takes lists of text too and looks at every text in them.
Regular expressions are RE2's (no look-around, no back-references in patterns; linear time), the same in batches and in
single rows. Case and whitespace are Unicode's; TensorFlow's string ops know ASCII alone by default.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from ...errors import InputError
from .._caller import caller
from ..host_ops.text import spelled
from ..tracing.columns import Column, Fact, read
from ..tracing.primitives import bind_host
from .arguments import Value
from .values import cast

__all__ = [
    "concat", "ends_with", "join", "length", "lookup", "lower", "parse", "regex_contains", "regex_full_match",
    "regex_replace", "split", "starts_with", "strip", "substr", "upper",
]  # fmt: skip

_HOST: Final = {"int32": "int64", "float32": "float64", "bool": "bool", "string": "string"}
_DEVICE: Final = {host: device for device, host in _HOST.items()}


def strip(x: Value, characters: str | None = None) -> Value:
    """Text without whitespace, or without any of the characters, at both ends."""
    return _words("strip", x, {"characters": characters})


def lower(x: Value) -> Value:
    """Text in lower case."""
    return _words("lower", x, {})


def upper(x: Value) -> Value:
    """Text in upper case, character by character: ß becomes ẞ."""
    return _words("upper", x, {})


def regex_replace(x: Value, pattern: str, replacement: str) -> Value:
    r"""Text with every match of the pattern replaced; in the replacement, \1 … \9 are the match's groups, \0 all of it.

    Raises:
        InputError: The pattern is not a regular expression of RE2, or the replacement names a group it does not have.
    """
    _check(pattern, lambda: pc.replace_substring_regex(pa.array([""]), pattern, replacement))
    return _words("regex_replace", x, {"pattern": pattern, "replacement": replacement})


def regex_full_match(x: Value, pattern: str) -> Value:
    """Whether the pattern matches all of the text: a boolean column. Raises InputError as `regex_replace`."""
    _check(pattern)
    return _words("matches", x, {"pattern": pattern, "full": True}, "bool", called="regex_full_match")


def regex_contains(x: Value, pattern: str) -> Value:
    """Whether the pattern matches somewhere in the text: a boolean column. Raises InputError as `regex_replace`."""
    _check(pattern)
    return _words("matches", x, {"pattern": pattern, "full": False}, "bool", called="regex_contains")


def starts_with(x: Value, part: str) -> Value:
    """Whether the text starts so: a boolean column."""
    return _words("starts_with", x, {"part": part}, "bool")


def ends_with(x: Value, part: str) -> Value:
    """Whether the text ends so: a boolean column."""
    return _words("ends_with", x, {"part": part}, "bool")


def length(x: Value, unit: str = "chars") -> Value:
    """How many code points ("chars") or UTF-8 "bytes" the text has, int32; of each text of a list, a list<int64>."""
    if unit not in ("chars", "bytes"):
        raise InputError(f"no unit {unit!r}", fix='use "chars" or "bytes"', where=caller())
    return _words("length", x, {"unit": unit}, "int64")


def substr(x: Value, start: int, stop: int | None = None) -> Value:
    """Code points `start` … `stop` − 1 of the text, as Python slices it: negative ones count from the end."""
    return _words("substr", x, {"start": start, "stop": stop})


def split(x: Value, delimiters: str | None = None, *, regex: str | None = None) -> Value:
    """The pieces of the text, a list<string>; empty pieces are dropped, as `tf.compat.v1.string_split` does.

    Args:
        x: A text column.
        delimiters: Every one of these characters separates. Default: whitespace.
        regex: Cut where this matches, instead.

    Returns:
        An empty list for text that is empty or all delimiters; missing for missing.
    """
    if delimiters is not None and regex is not None:
        raise InputError("split by delimiters or by regex, not both", fix="give one of them", where=caller())
    if delimiters == "":
        raise InputError("split by no delimiter", fix='regex="" gives the single characters', where=caller())
    if regex is not None:
        _check(regex)
    column = _text(x, "split")
    params = {"delimiters": delimiters, "pattern": regex}
    return _bound("split", [column], params, "list<string>", column.fact.complete)


def concat(*parts: Value | str, separator: str = "") -> Value:
    """Text columns and constant texts put together row by row; missing where one of them is."""
    if any(isinstance(part, (list, tuple)) for part in parts):
        raise InputError("concat takes columns and texts one by one, not a list", fix="concat(*parts)", where=caller())
    columns = [_text(part, "put together") for part in parts if not isinstance(part, str)]
    if not columns:
        raise InputError("concat of no column", fix="pass at least one text column", where=caller())
    constants = [part if isinstance(part, str) else None for part in parts]
    complete = all(column.fact.complete for column in columns)
    return _bound("concat", columns, {"parts": constants, "separator": separator}, "string", complete)


def join(x: Value, separator: str = " ") -> Value:
    """The texts of each list put together; an empty list is the empty text, a missing one missing."""
    column = texts(x, "joined")
    return _bound("join", [column], {"separator": separator}, "string", column.fact.complete)


def lookup(x: Value, table: Mapping[Any, Any], default: Any = None) -> Value:
    """The value that a table has for each text (or whole number, or boolean).

    Args:
        x: The column, or a list column of text.
        table: From text (numbers, booleans) to text, whole numbers, floats or booleans, all of one kind.
        default: For what is not in the table; None makes it missing, which in lists is not possible.

    Returns:
        A column of the values' kind; missing stays missing, whatever the default: `fill_missing` gives it a value.

    Raises:
        InputError: The table is empty or its values are of several kinds.
    """
    values: list[Any] = [*table.values(), *([] if default is None else [default])]
    kinds = {type(value) for value in values}
    host = {str: "string", int: "int64", bool: "bool", float: "float64"}.get(next(iter(kinds), object))
    if kinds == {int, float}:
        host, values = "float64", [float(value) for value in values]
    elif len(kinds) != 1 or host is None:
        named = ", ".join(sorted(kind.__name__ for kind in kinds)) or "nothing"
        raise InputError(
            f"a lookup table of {named}", fix="use texts, whole numbers, floats or booleans only", where=caller()
        )
    if host == "float64" and not all(abs(value) < float("inf") for value in values):
        raise InputError("a lookup table holds NaN or infinity", fix="use finite numbers", where=caller())
    column = read(x, "looked up")
    if column.dtype in ("int32", "bool"):
        column = read(cast(column, "string"))
    rows = [[spelled(key), value] for key, value in zip(table, values, strict=False)]
    if column.item is not None and default is None:
        raise InputError(f"column {column.name!r} is a list: its texts need a default", fix="default=…", where=caller())
    last = None if default is None else values[-1]
    params = {"table": rows, "default": last, "dtype": host}
    return _words("translate", column, params, host, default is not None, called="lookup")


def parse(x: Value, dtype: str, default: Any = None) -> Value:
    """Text as "float32", "int32" or "bool"; other text gives the default (None: missing). Missing stays missing.

    `ops.cast` is for clean columns: it raises there. Lists of text need a default.
    """
    if dtype not in ("float32", "int32", "bool"):
        raise InputError(f"text is not parsed as {dtype!r}", fix="use float32, int32 or bool", where=caller())
    column = read(x, "parsed")
    if column.item is None:
        column = _text(cast(column, "string") if column.dtype in ("int32", "bool") else column, "parsed")
    elif default is None or dtype == "bool":
        raise InputError(
            f"column {column.name!r} is a list: parse numbers, with a default", fix="default=0", where=caller()
        )
    else:
        column = texts(column, "parsed")
    host = _HOST[dtype]
    kinds = {"int64": (int,), "float64": (int, float), "bool": (bool,)}[host]
    if default is not None and (type(default) not in kinds or default != default):
        raise InputError(f"the default {default!r} is not of type {dtype}", fix=f"use a {dtype}", where=caller())
    if host == "float64" and default is not None:
        default = float(default)
    params = {"dtype": host, "column": column.name, "default": default, "list": column.item is not None}
    host = host if column.item is None else f"list<{host}>"
    return _bound("parse", [column], params, host, column.fact.complete and default is not None)


def texts(x: Value, doing: str) -> Column:
    """A list column of text. Raises InputError, with the user's line, for another."""
    column = read(x, doing)
    column._check_readable()
    if column.dtype != "list<string>":
        raise InputError(
            f"column {column.name!r} is {column.dtype} and was {doing}, which takes lists of text",
            fix="ops.split makes lists of text",
            where=caller(),
        )
    return column


def _text(x: Value, doing: str) -> Column:
    column = read(x, doing)
    column._check_readable()
    if column.dtype != "string":
        raise InputError(
            f"column {column.name!r} is {column.dtype} and was {doing}, which takes text",
            fix='ops.join makes text of lists, ops.cast(…, "string") of whole numbers',
            where=caller(),
        )
    return column


def _words(
    op: str,
    x: Value,
    params: Mapping[str, Any],
    host: str = "string",
    complete: bool = True,
    *,
    called: str | None = None,
) -> Any:
    """An op of every text, of a text column or of lists of text; `called` is its name in `ops`, where that differs."""
    doing = f"given to {called or op}"
    column = read(x, doing)
    if column.item is None:
        column = _text(column, doing)
        return _bound(op, [column], params, host, column.fact.complete and complete)
    if host == "bool":
        column.check_numeric(doing)  # always raises: there are no lists of booleans
    column = texts(column, doing)
    return _bound(op, [column], params, f"list<{host}>", column.fact.complete)


def _bound(op: str, columns: list[Column], params: Mapping[str, Any], host: str, complete: bool) -> Any:
    (handle,) = bind_host(op, [column.handle for column in columns], [(host, ("b",), True)], params)
    name = columns[0].name
    return Column(name, _DEVICE.get(host, host), Fact(name, handle, host, complete)).public()


def _check(pattern: str, run: Any = None) -> None:
    """Raise InputError, with the user's line, where Arrow refuses a pattern."""
    try:
        pc.match_substring_regex(pa.array([""]), pattern)
        if run is not None:
            run()
    except (pa.ArrowInvalid, TypeError) as error:
        raise InputError(
            f"the regular expression {pattern!r:.80} cannot be used: {str(error).splitlines()[0]:.120}",
            fix="use the syntax of RE2: no look-around, no back-references in the pattern",
            where=caller(),
        ) from error
