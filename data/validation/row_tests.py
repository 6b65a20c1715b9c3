"""Which rows of lists show an anomaly: by any value in them, or by how many values the lists of a level have."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from ..arrays import numpy_of
from ..schemas.schema import Count, Feature
from ..schemas.struct_fields import Path
from ..stats.column import kind_of, plain_array

Mask = NDArray[np.bool_]
Lengths = NDArray[np.int64]


def any_item(test: Callable[[Any], Mask]) -> Callable[[Any], Mask]:
    """A test of values as one of rows: where any value in a row's lists passes; a row that is no list is a value."""

    def rows(column: Any) -> Mask:
        column = plain_array(column)
        if kind_of(column.type) != "list":
            return test(column)
        lengths, items = _open(column)
        marked = np.zeros(len(column), np.bool_)
        marked[np.repeat(np.arange(len(column)), lengths)[rows(items)]] = True
        return marked

    return rows


def inside(path: Path, test: Callable[[Any], Mask]) -> Callable[[Any], Mask]:
    """A test of a column as one of the rows of another: where any struct at the end of a path of fields passes."""
    if not path:
        return test

    def structs(column: Any) -> Mask:
        present = numpy_of(column.is_valid()).astype(np.bool_)
        marked = np.zeros(len(column), np.bool_)
        field = column.type.get_field_index(path[0])  # a name that begins with a dot would be read as a path
        marked[present] = inside(path[1:], test)(pc.struct_field(column.drop_null(), field))
        return marked

    return any_item(structs)


def outside_counts(kind: str, spec: Feature, level: int) -> Callable[[Any], Mask]:
    """Rows with a list, of that level, of too few or too many values; or with more or fewer than the shape holds."""
    if kind == "INVALID_FEATURE_SHAPE":
        return lambda column: _sizes(column) != math.prod(spec.shape or ())
    if level >= len(spec.value_counts):  # of another schema
        return lambda column: np.zeros(len(column), np.bool_)
    return lambda column: _outside(column, kind, spec.value_counts[level], level)


def _outside(column: Any, kind: str, wanted: Count, level: int) -> Mask:
    valid, column = numpy_of(column.is_valid()).astype(np.bool_), plain_array(column)
    lists = kind_of(column.type) == "list"
    if level and not lists:
        return np.zeros(len(column), np.bool_)
    lengths, items = _open(column) if lists else (valid.astype(np.int64), None)
    if level:
        marked = np.zeros(len(column), np.bool_)
        marked[np.repeat(np.arange(len(column)), lengths)[_outside(items, kind, wanted, level - 1)]] = True
        return marked
    if kind == "FEATURE_TYPE_LOW_NUMBER_VALUES":
        return valid & (lengths < (wanted.min or 0))
    return valid & (lengths > (np.iinfo(np.int64).max if wanted.max is None else wanted.max))


def _sizes(column: Any) -> Lengths:
    """Values of each row in all; −1 where one is missing or the lists of a level differ in length."""
    valid, column = numpy_of(column.is_valid()), plain_array(column)
    if kind_of(column.type) != "list":
        return np.where(valid, 1, -1)
    lengths, items = _open(column)
    inner = _sizes(items)
    starts = np.concatenate(([0], np.cumsum(lengths)))
    found = np.where(valid, 0, -1)
    for row in np.flatnonzero(valid & (lengths > 0)):
        sizes = inner[starts[row] : starts[row + 1]]
        found[row] = sizes.sum() if (sizes == sizes[0]).all() and sizes[0] >= 0 else -1
    return found


def _open(column: Any) -> tuple[Lengths, Any]:
    """Each row's number of items (0 where it is missing), and the items of all."""
    lengths = np.zeros(len(column), np.int64)
    lengths[numpy_of(column.is_valid())] = numpy_of(pc.list_value_length(column.drop_null()))
    return lengths, pc.list_flatten(column)
