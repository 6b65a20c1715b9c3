"""Slices by an expression: SQL over the raw columns of a row, evaluated by DuckDB batch by batch."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from ...data.duckdb_session import guarded, lock, open_session
from ...data.slices import SliceTable
from ...errors import InputError
from .slicing import encode

if TYPE_CHECKING:
    import duckdb
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from .config import Slice

_SPECIAL: Final = {
    "SUBQUERY": "a query inside",
    "WINDOW": "a window",
    "STAR": "a star",
    "POSITIONAL_REFERENCE": "a column by position",
    "PARAMETER": "a parameter",
}
_OF_THE_SESSION: Final = ("current_setting", "getvariable", "version")  # which some versions call consistent
_SESSIONS: Final = threading.local()


def columns_of(expression: Slice) -> tuple[str, ...]:
    """The raw columns that the expression names, each once, in their order.

    Raises:
        InputError: It is not one expression, names no column, or its value does not follow from one row alone, as that
            of an aggregate, a window, a query inside or the time of day.
        DrivetrainError: DuckDB is not installed.
    """
    try:
        return _columns(expression.sql, _what(expression))
    except InputError as error:
        raise InputError(error.message, fix=error.fix, where=expression.where) from error


def values_of(expression: Slice, batch: pa.RecordBatch) -> pa.Array:
    """The value of each row, null where the row is in no slice: where a condition is false, or there is no value.

    Of bins it is the name of the bin, of groups the number of the group.

    Raises:
        InputError: DuckDB cannot evaluate it: columns of other types, or a value that cannot be cast.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    from ...data.rowhash import hash_column

    if expression.bins is not None:
        numbers = numbers_of(expression, batch)
        # Before the bins that are only counted have edges, all are one bin: no rows are sliced then.
        edges = () if isinstance(expression.bins, int) else expression.bins
        bins = pa.array(np.searchsorted(np.asarray(edges), numbers, side="right"), mask=np.isnan(numbers))
        return pa.array(expression.bin_names).take(bins)
    values = _evaluated(expression, batch)
    if expression.groups is not None:
        hashes = hash_column(values)
        if pa.types.is_floating(values.type):
            # pandas makes floats of whole numbers where one is missing: 7.0 is of the group of 7.
            floats = values.cast(pa.float64()).to_numpy(zero_copy_only=False)
            whole = (np.abs(floats) < 2**53) & (floats == np.rint(floats))
            wholes = hash_column(pa.array(np.where(whole, floats, 0).astype(np.int64)))
            hashes = np.where(whole, wholes, hashes)
        groups = (hashes % np.uint64(expression.groups)).astype(np.int64)
        return pa.array(groups, mask=values.is_null().to_numpy(zero_copy_only=False))
    if pa.types.is_boolean(values.type):
        return pc.if_else(values, pa.scalar(True), pa.scalar(None, pa.bool_()))
    return values


def numbers_of(expression: Slice, batch: pa.RecordBatch) -> NDArray[np.float64]:
    """The value of each row as a number, NaN where it has none or an infinite one.

    Raises:
        InputError: The values are no numbers, or DuckDB cannot evaluate the expression.
    """
    import numpy as np
    import pyarrow as pa

    values = _evaluated(expression, batch)
    kind = values.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        raise InputError(
            f"{_what(expression)} has bins, and its values are {kind}, no numbers",
            fix="leave out bins, or write an expression of a number, e.g. epoch(scheduled_at)",
            where=expression.where,
        )
    numbers: NDArray[np.float64] = values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return np.where(np.isfinite(numbers), numbers, np.nan)


def _evaluated(expression: Slice, batch: pa.RecordBatch) -> pa.Array:
    import pyarrow as pa

    rows = batch.select(list(columns_of(expression)))
    session = _session()
    try:
        with guarded(session, _what(expression)):
            session.register("rows", rows)
            # One thread, and no sort: the values come in the order of the rows.
            column = session.sql(_query(expression.sql)).to_arrow_table().column(0)
            session.unregister("rows")
    except InputError as error:
        raise InputError(error.message, fix=error.fix, where=expression.where) from error
    values = pa.concat_arrays(column.chunks) if column.num_chunks else pa.nulls(0, column.type)
    if len(values) != batch.num_rows:
        raise InputError(f"{_what(expression)} has {len(values)} values for {batch.num_rows} rows")
    return values


def check_expressions(expressions: Collection[Slice], schema: pa.Schema) -> None:
    """Make sure that the expressions can be evaluated over rows of this schema, which has their columns.

    Raises:
        InputError: One cannot, or has the name of a column.
    """
    import pyarrow as pa

    for expression in expressions:
        if expression.name in schema.names:
            raise InputError(
                f"the slice {expression.name!r} has the name of a column",
                fix="give it another name",
                where=expression.where,
            )
        no_rows = pa.RecordBatch.from_arrays([pa.nulls(0, kind) for kind in schema.types], schema=schema)
        encode(SliceTable([(expression.name,)]), {expression.name: values_of(expression, no_rows)}, 0)


def _what(expression: Slice) -> str:
    return f"the slice {expression.name!r}"


def _query(sql: str) -> str:
    return f"SELECT ({sql}\n) FROM rows"  # noqa: S608 - the user's own SQL; a comment at its end stops at the line


@cache
def _columns(sql: str, what: str) -> tuple[str, ...]:
    session = _session()
    with guarded(session, what):
        names = dict.fromkeys(_names(session, sql, what, ()))
    if not names:
        raise InputError(f"{what} names no column: {sql}", fix="write a condition over raw columns, e.g. hour >= 20")
    folded: dict[str, str] = {}
    for name in names:
        if (other := folded.setdefault(name.casefold(), name)) != name:
            raise InputError(
                f"{what} names {other!r} and {name!r}, which are one column to SQL", fix="rename one of the columns"
            )
    return tuple(names)


def _names(session: duckdb.DuckDBPyConnection, sql: str, what: str, macros: Sequence[str]) -> Iterator[str]:
    (row,) = session.execute("SELECT json_serialize_sql(?)", [_query(sql)]).fetchall()
    tree = json.loads(row[0])
    if tree["error"]:
        raise InputError(f"{what}: {tree['error_message']}", fix=f"correct its SQL, which is read in brackets: ({sql})")
    items = tree["statements"][0]["node"].get("select_list", [])  # of two queries with UNION between, there is none
    if len(tree["statements"]) != 1 or len(items) != 1:
        raise InputError(f"{what} is not one expression: {sql}", fix="write one condition, or one value")
    yield from _walk(session, items[0], what, (), macros)


def _walk(
    session: duckdb.DuckDBPyConnection, node: Any, what: str, bound: tuple[str, ...], macros: Sequence[str]
) -> Iterator[str]:
    """The columns under a node of the syntax tree, without the parameters of lambdas around it."""
    if isinstance(node, list):
        for item in node:
            yield from _walk(session, item, what, bound, macros)
    if not isinstance(node, Mapping):
        return
    kind = node.get("class")
    if kind in _SPECIAL:
        raise _not_of_a_row(what, _SPECIAL[kind])
    if kind == "COLUMN_REF":
        name = node["column_names"][0]  # of a struct's field, the struct
        if name not in bound:
            yield name
        return
    if kind == "LAMBDA":
        bound = (*bound, *_walk(session, node["lhs"], what, (), macros))
        node = node["expr"]
        yield from _walk(session, node, what, bound, macros)
        return
    if kind == "FUNCTION":
        _check_function(session, node["function_name"].lower(), what, macros)
    for item in node.values():
        yield from _walk(session, item, what, bound, macros)


def _check_function(session: duckdb.DuckDBPyConnection, name: str, what: str, macros: Sequence[str]) -> None:
    """Refuse a function whose value does not follow from its arguments alone; of a macro, what it stands for."""
    if (overloads := _overloads().get(name)) is None:
        raise InputError(f"{what}: DuckDB has no function {name!r}", fix="correct its SQL")
    for kind, stability, definition, parameters in overloads:
        if kind == "macro" and name not in macros:
            if set(_names(session, definition, what, (*macros, name))) <= set(parameters):
                continue
        elif kind == "scalar" and stability == "CONSISTENT" and name not in _OF_THE_SESSION:
            continue
        raise _not_of_a_row(what, f"{name}()")


@cache
def _overloads() -> Mapping[str, Sequence[tuple[Any, ...]]]:
    """Type, stability, macro definition and parameters of every function, by name: DuckDB takes as long for one."""
    functions = _session().execute(
        "SELECT DISTINCT function_name, function_type, stability, macro_definition, parameters FROM duckdb_functions()"
    )
    overloads: dict[str, list[tuple[Any, ...]]] = {}
    for name, *overload in functions.fetchall():
        overloads.setdefault(name, []).append(tuple(overload))
    return overloads


def _not_of_a_row(what: str, cause: str) -> InputError:
    return InputError(
        f"{what} has {cause}: its value would not follow from one row alone",
        fix="use raw columns, constants, and functions of them",
    )


def _session() -> duckdb.DuckDBPyConnection:
    """One for each thread; a process that was forked opens its own."""
    if getattr(_SESSIONS, "process", None) != os.getpid():
        session = open_session()
        session.execute("SET TimeZone = 'UTC'")  # not that of the machine
        lock(session)
        _SESSIONS.session, _SESSIONS.process = session, os.getpid()
    return _SESSIONS.session  # type: ignore[no-any-return]  # a thread's attributes have no types
