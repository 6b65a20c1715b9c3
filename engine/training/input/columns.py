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
    first_kind, *kinds = ({name: _kind(column) for name, column in part.items()} for part in parts)
    if any(kind != first_kind for kind in kinds):
        texts = {tuple((name, _kind_text(column)) for name, column in sorted(part.items())) for part in parts}
        first, second = sorted(texts)[:2]
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


def _kind(column: Array | FlatRows) -> tuple[bool, np.dtype[Any], tuple[int, ...]]:
    values = column.values if isinstance(column, FlatRows) else column
    return values is column, values.dtype, values.shape[1:]


def _kind_text(column: Array | FlatRows) -> str:
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
        str(name): column if isinstance(column, FlatRows) else _of_texts(np.asarray(column))
        for name, column in columns.items()
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


def read_only(columns: Columns) -> Columns:
    """The same rows, for whom they do not belong to: a function that writes into them would change the next epoch."""
    return {
        name: FlatRows(_fixed(column.values), column.splits) if isinstance(column, FlatRows) else _fixed(column)
        for name, column in columns.items()
    }


def _fixed(array: Array) -> Array:
    view = array.view()
    view.flags.writeable = False
    return view


def _of_texts(column: Array) -> Array:
    """Texts or bytes as `str` or `bytes`: in NumPy's arrays of them the longest is part of the dtype of a block."""
    return column.astype(object) if column.dtype.kind in "SUT" else column


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


def row_by_row(fn: Callable[[dict[str, Any]], Any], columns: Columns, step: str) -> dict[str, Any]:
    """The columns of `fn` of each row: a row has the values of the columns by name.

    Where what it gives for a column differs in length from row to row, the column is `FlatRows`; one that was stays so.

    Raises:
        InputError: It gives no mapping, or other columns than for the first row.
    """
    values = _values(columns)
    results = [fn({name: value[row] for name, value in values.items()}) for row in range(rows_in(columns))]
    shapes = [
        ", ".join(map(str, each)) if isinstance(each, Mapping) else f"a {type(each).__name__}" for each in results
    ]
    for result, shape in zip(results, shapes, strict=True):
        if not isinstance(result, Mapping) or shape != shapes[0]:
            raise InputError(
                f"{step} returned {shape} for a row, and {shapes[0]} for the first",
                fix="return a mapping of the same names for each row: {name: the row's value}",
            )
    lists = {name for name, column in columns.items() if isinstance(column, FlatRows)}
    return {name: stacked([result[name] for result in results], name in lists) for name in results[0]}


def _values(columns: Columns) -> dict[str, Any]:
    """Columns whose items are the values of rows."""
    return {name: lists_of(column) if isinstance(column, FlatRows) else column for name, column in columns.items()}


def lists_of(column: FlatRows) -> list[Array]:
    """The values of each row, views."""
    return [column.values[begin:end] for begin, end in zip(column.splits[:-1], column.splits[1:], strict=True)]


def stacked(values: Sequence[Any], lists: bool = False) -> Array | FlatRows:
    """Values of rows as a column; `lists` where they are lists also if all are equally long.

    Raises:
        InputError: Some are texts, some are not.
    """
    if any(isinstance(value, str | bytes) for value in values):
        texts = np.empty(len(values), object)
        texts[:] = values
        kind_of_texts(texts)
        return texts
    arrays = [np.asarray(value) for value in values]
    if (lists or len({array.shape for array in arrays}) > 1) and all(array.ndim for array in arrays):
        return FlatRows(np.concatenate(arrays), splits_of(np.array([len(array) for array in arrays])))
    return np.stack(arrays)


def encoded(column: Array | FlatRows) -> tuple[str, list[Array]]:
    """A column as its kind ("array", "lists", "text", "bytes") and plain arrays: values, and how many each row has.

    A dtype that is not NumPy's, such as bfloat16, stands in the kind ("array bfloat16"), its bits in an array.

    Raises:
        InputError: It holds what is neither numbers nor texts nor bytes.
    """
    if isinstance(column, FlatRows):
        kind, values = _bits(column.values)
        return f"lists{kind}", [values, column.lengths]
    if column.dtype != object:
        kind, values = _bits(column)
        return f"array{kind}", [values]
    kind = kind_of_texts(column)
    texts = [text.encode("utf-8", "surrogatepass") for text in column] if kind == "text" else list(column)
    return kind, [np.frombuffer(b"".join(texts), np.uint8), np.array([len(text) for text in texts], np.int64)]


def _bits(array: Array) -> tuple[str, Array]:
    if array.dtype.isbuiltin != 2:  # NumPy's number for a dtype of another package
        return "", array
    return f" {array.dtype.name}", np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")


def kind_of_texts(column: Array) -> str:
    """Whether an array of objects holds texts ("text") or "bytes".

    Raises:
        InputError: It holds both, or something else.
    """
    for kind, wanted in (("text", str), ("bytes", bytes)):
        if all(isinstance(value, wanted) for value in column):
            return kind
    kinds = " and ".join(sorted({type(value).__name__ for value in column}))
    raise InputError(
        f"a column holds values of {kinds}", fix="return numbers as an array of numbers; or texts alone, or bytes alone"
    )


def decoded(kind: str, arrays: Sequence[Array]) -> Array | FlatRows | Texts:
    """What `encoded` was given; of texts and bytes something that gives them when rows are taken from it."""
    kind, _, dtype = kind.partition(" ")
    values = arrays[0]
    if dtype:
        import ml_dtypes  # JAX's; late, as few columns are of its dtypes

        values = values.view(getattr(ml_dtypes, dtype))
    if kind == "array":
        return values
    rows = FlatRows(values, splits_of(arrays[1]))
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
        texts[:] = raw if self._kind == "bytes" else [text.decode("utf-8", "surrogatepass") for text in raw]
        return texts
