"""Columns: the rows of an input pipeline, some at a time, by column; what steps do to all of them alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ....errors import InputError
from ...ragged.rows import FlatRows, joined, splits_of

Array = npt.NDArray[Any]  # Any: of several dtypes; of objects where a row has a text or bytes
Columns = Mapping[str, Array | FlatRows]
"""By name: an array [rows, …], or `FlatRows` where each row has a list; of equally many rows."""

_NARROW: Final = {
    np.dtype(wide): np.dtype(narrow)
    for wide, narrow in (("float64", "float32"), ("int64", "int32"), ("uint64", "uint32"))
}


def rows_in(columns: Columns) -> int:
    """How many rows there are."""
    return len(next(iter(columns.values()))) if columns else 0


def taken(columns: Columns, rows: npt.NDArray[np.int64] | slice) -> Columns:
    """The rows of these numbers, in their order, or of a slice. Numbers outside are not noticed."""
    if isinstance(rows, slice):
        return {name: column[rows] for name, column in columns.items()}
    # Of the ways to gather rows "clip" is the fastest: half of the time of `column[rows]`, which looks at each first.
    return {
        name: column.take(rows, axis=0, mode="clip") if isinstance(column, np.ndarray) else column[rows]
        for name, column in columns.items()
    }


def joined_columns(parts: Sequence[Columns]) -> Columns:
    """The rows of one part after the other.

    Raises:
        InputError: The parts have different columns, or a column's shapes or dtypes differ.
    """
    if len(parts) == 1:
        return parts[0]
    kinds = {tuple((name, _kind(column)) for name, column in sorted(part.items())) for part in parts}
    if len(kinds) > 1:
        first, second = sorted(kinds)[:2]
        differs = sorted(set(first) ^ set(second))[0][0]
        shown = " and ".join(dict(kind).get(differs, "not there") for kind in (first, second))
        raise InputError(
            f"rows that do not fit together: column {differs!r} is {shown}",
            fix="have each row of a column of the same shape and dtype; lists of any length are FlatRows",
        )
    whole: dict[str, Array | FlatRows] = {}
    for name, column in parts[0].items():
        columns: list[Any] = [part[name] for part in parts]
        whole[name] = joined(columns) if isinstance(column, FlatRows) else np.concatenate(columns)
    return whole


def _kind(column: Array | FlatRows) -> str:
    if isinstance(column, FlatRows):
        return f"lists of {column.values.dtype}{list(column.values.shape[1:])}"
    return f"{column.dtype}{list(column.shape[1:])}"


def checked(columns: object, step: str, rows: int | None = None) -> Columns:
    """What a user's function gave, as columns.

    Args:
        columns: A mapping of arrays or `FlatRows`.
        step: The step, for errors.
        rows: How many rows it must have.

    Raises:
        InputError: It is no such mapping, or the columns differ in length.
    """
    if not isinstance(columns, Mapping) or not columns:
        kind = "nothing" if columns is None else f"a {type(columns).__name__}"
        raise InputError(f"{step} returned {kind}", fix="return a mapping of columns: {name: array of one row each}")
    arrays = {
        str(name): column if isinstance(column, FlatRows) else np.asarray(column) for name, column in columns.items()
    }
    wanted = rows
    for name, column in arrays.items():
        size = None if isinstance(column, np.ndarray) and column.ndim == 0 else len(column)
        wanted = size if wanted is None else wanted
        if size is None or size != wanted:
            shown = "no rows" if size is None else f"{size} rows"
            raise InputError(
                f"{step} returned column {name!r} with {shown}, not {wanted}",
                fix="return one value per row; filter(…) drops rows",
            )
    return arrays


def narrow(column: Array, name: str) -> Array:
    """An array for a device, which computes in 32 bits: narrowed where it is of 64.

    Raises:
        InputError: It holds integers that do not fit, or no numbers.
    """
    if column.dtype.kind not in "biufV" or column.dtype == object:
        raise InputError(
            f"column {name!r} is {_noun(column)}, not numbers, and goes to no device",
            fix="turn it into numbers in a map(…), or leave it out with select(…)",
        )
    target = _NARROW.get(column.dtype, column.dtype)
    if target == column.dtype:
        return column
    if column.dtype.kind in "iu" and column.size:
        limits = np.iinfo(target)
        if column.min() < limits.min or column.max() > limits.max:
            raise InputError(
                f"column {name!r} holds integers that do not fit {target}",
                fix="cast it to float32 or look it up in a vocabulary",
            )
    with np.errstate(over="ignore"):  # beyond float32 is an infinity, as in an array of JAX
        return column.astype(target)


def _noun(column: Array) -> str:
    return "texts or bytes" if column.dtype == object else f"of {column.dtype}"


def row_by_row(fn: Callable[[dict[str, Any]], Mapping[str, Any]], columns: Columns) -> dict[str, Any]:
    """The columns of `fn` of each row: a row has the values of the columns by name.

    Where what it gives for a column differs in length from row to row, the column is `FlatRows`.
    """
    results = [fn({name: value[row] for name, value in _values(columns).items()}) for row in range(rows_in(columns))]
    return {name: stacked([result[name] for result in results]) for name in results[0]}


def _values(columns: Columns) -> dict[str, Any]:
    """Columns whose items are the values of rows."""
    return {name: lists_of(column) if isinstance(column, FlatRows) else column for name, column in columns.items()}


def lists_of(column: FlatRows) -> list[Array]:
    """The values of each row, views."""
    return [column.values[begin:end] for begin, end in zip(column.splits[:-1], column.splits[1:], strict=True)]


def stacked(values: Sequence[Any]) -> Array | FlatRows:
    """Values of rows as a column."""
    if isinstance(values[0], str | bytes):
        texts = np.empty(len(values), object)
        texts[:] = values
        return texts
    arrays = [np.asarray(value) for value in values]
    if len({array.shape for array in arrays}) > 1 and all(array.ndim for array in arrays):
        return FlatRows(np.concatenate(arrays), splits_of(np.array([len(array) for array in arrays])))
    return np.stack(arrays)


def encoded(column: Array | FlatRows) -> tuple[str, list[Array]]:
    """A column as its kind ("array", "lists", "text", "bytes") and plain arrays: values, and how many each row has."""
    if isinstance(column, FlatRows):
        return "lists", [column.values, column.lengths]
    if column.dtype != object:
        return "array", [column]
    texts = [text.encode() if isinstance(text, str) else bytes(text) for text in column]
    kind = "bytes" if len(column) and isinstance(column[0], bytes) else "text"
    return kind, [np.frombuffer(b"".join(texts), np.uint8), np.array([len(text) for text in texts], np.int64)]


def decoded(kind: str, arrays: Sequence[Array]) -> Array | FlatRows | Texts:
    """What `encoded` was given; of texts and bytes something that gives them when rows are taken from it."""
    if kind == "array":
        return arrays[0]
    rows = FlatRows(arrays[0], splits_of(arrays[1]))
    return rows if kind == "lists" else Texts(rows, kind)


class Texts:
    """Texts or bytes of rows, kept encoded."""

    def __init__(self, rows: FlatRows, kind: str) -> None:
        """One UTF-8 text per row."""
        self._rows, self._kind = rows, kind

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, rows: npt.NDArray[np.int64] | slice) -> Array:
        """The texts of these rows, an array of objects."""
        raw = [values.tobytes() for values in lists_of(self._rows[rows])]
        texts = np.empty(len(raw), object)
        texts[:] = raw if self._kind == "bytes" else [text.decode() for text in raw]
        return texts
