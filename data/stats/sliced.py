"""Rows by slice. A row whose column is a list has each of the list's values, and so is in several slices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ...errors import InputError
from ..arrays import numpy_of
from ..slices import SliceValue, encode_column, unravel
from .column import kind_of

Key: TypeAlias = tuple[tuple[str, SliceValue], ...]
Spec: TypeAlias = tuple[tuple[str, tuple[SliceValue, ...] | None], ...]

MOST: Final = 1_000  # slices of a data set
_NUMBERS: Final = frozenset({"int", "float"})


def slice_rows(batch: pa.RecordBatch, specs: Sequence[Spec]) -> Iterator[tuple[Key, NDArray[np.int64]]]:
    """Each slice with rows in the batch, once, and the rows, ascending.

    A row in which a column of the spec is missing (null, NaN, an empty list) is in none of the spec's slices.

    Raises:
        InputError: A column's type makes no slices, or a listed value is of another type than its column.
    """
    encoded: dict[str, tuple[NDArray[np.int64], NDArray[np.int64], list[SliceValue]]] = {}
    seen: set[Key] = set()
    for spec in specs:
        rows = np.arange(batch.num_rows)
        number = np.zeros(batch.num_rows, np.int64)
        sizes = []
        for name, wanted in spec:
            column = batch.column(batch.schema.names.index(name))
            if name not in encoded:
                encoded[name] = _encode(name, column)
            starts, codes, values = encoded[name]
            if wanted is not None:
                starts, codes = _only(starts, codes, _codes_of(name, column.type, wanted, values))
            many = np.diff(starts)[rows]
            # Row i's codes stand at starts[i] + 0, 1, …; the arange below counts on over all rows, so the number of
            # codes before each row is subtracted here.
            first = np.repeat(starts[rows] - np.cumsum(many) + many, many)
            number = np.repeat(number, many) * max(len(values), 1) + codes[first + np.arange(len(first))]
            rows = np.repeat(rows, many)
            sizes.append(values)
        # `number` is the slice of each row: the codes of its columns as digits. A row of lists is there once per value.
        order = np.argsort(number, kind="stable")
        rows, number = rows[order], number[order]
        cuts = np.flatnonzero(number[1:] != number[:-1]) + 1
        for part, at in zip(np.split(rows, cuts), [0, *cuts.tolist()], strict=True):
            if not len(part):
                continue
            slice_values = unravel(int(number[at]), sizes)
            key = tuple((name, value) for (name, _), value in zip(spec, slice_values, strict=True))
            if key not in seen:
                seen.add(key)
                yield key, np.unique(part)


def too_many(specs: Sequence[Spec]) -> InputError:
    """The error for more slices than `MOST`."""
    names = [[name for name, _ in spec] for spec in specs]
    return InputError(
        f"the slices by {names} are more than {MOST:,}",
        fix="slice by columns with few values, or list the values that matter",
    )


def _encode(name: str, column: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.int64], list[SliceValue]]:
    """Where each row's values start, their codes without repeats within a row, and the distinct values."""
    kind = kind_of(column.type)
    if kind == "list" and not pa.types.is_map(column.type):
        rows = numpy_of(pc.list_parent_indices(column).cast(pa.int64()))
        column_values = pc.list_flatten(column)
    else:
        rows, column_values = np.arange(len(column)), column
    codes, values = encode_column(name, column_values)
    # One code per value: what is missing has none, and a list that repeats a value has it once.
    first: dict[tuple[type, SliceValue], int] = {}
    same = np.array([first.setdefault((type(v), v), index) for index, v in enumerate(values)], np.int64)
    present = np.array([value is not None for value in values], np.bool_)
    if len(codes):
        keep = present[codes]
        pairs = np.unique(rows[keep] * max(len(values), 1) + same[codes[keep]])
        rows, codes = np.divmod(pairs, max(len(values), 1))
    starts = np.searchsorted(rows, np.arange(len(column) + 1))
    return starts, codes, values


def _only(
    starts: NDArray[np.int64], codes: NDArray[np.int64], wanted_codes: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    keep = np.isin(codes, wanted_codes)
    return np.concatenate(([0], np.cumsum(keep)))[starts], codes[keep]


def _codes_of(name: str, arrow: Any, wanted: tuple[SliceValue, ...], values: list[SliceValue]) -> NDArray[np.int64]:
    if pa.types.is_dictionary(arrow):
        arrow = arrow.value_type
    kind = kind_of(arrow)
    if kind == "list":
        return _codes_of(name, arrow.value_type, wanted, values)
    for value in wanted:
        fits = (
            isinstance(value, bool) if kind == "bool"
            else isinstance(value, int | float) and not isinstance(value, bool) if kind in _NUMBERS
            else isinstance(value, str) or kind == "null"
        )  # fmt: skip
        if not fits:
            raise InputError(
                f"a slice asks for {name!r} = {value!r}, but the column is {arrow}", fix="write the value in its type"
            )
    return np.array([index for index, value in enumerate(values) if value in wanted], np.int64)
