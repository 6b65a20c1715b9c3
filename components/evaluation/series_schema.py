"""The types of what a series keeps: rows that come can be joined with rows that wait, or are refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import pyarrow as pa

from ...data.slices import SliceTable
from ...errors import InputError
from .checks import Problems, check_classes, labels_of, scores_of, weights_of
from .config import EvaluationConfig
from .slicing import encode

_SEVERAL: Final = ("candidate", "label")  # whose lists have as many values in each row


def admitted(rows: pa.Table, known: pa.Schema, config: EvaluationConfig) -> tuple[pa.Table, pa.Schema]:
    """The rows as rows of other batches can be joined with them.

    Null is joined with any type, and numbers with numbers as long as none changes its value.

    Args:
        rows: Columns of `Scores`.
        known: The types of all rows before, by column.
        config: What they are measured by.

    Returns:
        The rows, and `known` with their types.

    Raises:
        InputError: A column cannot be joined, or cannot be judged.
    """
    types = {field.name: field.type for field in known}
    columns = {}
    for name in rows.column_names:
        what = _what(name, config)
        column = _normal(rows.column(name), what, fixed=name in _SEVERAL)
        types[name] = _joined(types.get(name, pa.null()), column.type, what)
        columns[name] = _cast(column, types[name], what)
    _check(columns, config)
    return pa.table(columns), pa.schema(types.items())


def converted(rows: pa.Table, types: pa.Schema, config: EvaluationConfig) -> pa.Table:
    """Rows that wait, in the types that others need.

    Raises:
        InputError: A value would change.
    """
    columns = zip(rows.column_names, rows.columns, strict=True)
    return pa.table({name: _cast(column, types.field(name).type, _what(name, config)) for name, column in columns})


def _what(name: str, config: EvaluationConfig) -> str:
    roles = {"candidate": ("prediction", config.prediction), "label": ("label", config.label)}
    role, column = roles.get(name, ("weight", config.weight) if name == "weight" else ("column", name[len("slice:") :]))
    return f"the {role} {column!r}"


def _normal(column: pa.ChunkedArray, what: str, *, fixed: bool) -> pa.ChunkedArray:
    """A column without what says the same in another type: categories, views, lists of one length."""
    if column.null_count == len(column):
        return pa.chunked_array([pa.nulls(len(column))])
    if isinstance(column.type, pa.BaseExtensionType):
        column = column.cast(column.type.storage_type)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_string_view(column.type):
        column = column.cast(pa.large_string())
    if fixed and (pa.types.is_list(column.type) or pa.types.is_large_list(column.type)):
        width = len(column.drop_null()[0])
        try:
            return column.cast(pa.list_(column.type.value_type, width))
        except pa.ArrowInvalid as error:
            raise InputError(f"{what} has lists of several lengths", fix="return as many in each row") from error
    return column


def _joined(known: pa.DataType, new: pa.DataType, what: str) -> pa.DataType:
    schemas = [pa.schema([("", kind)]) for kind in (known, new)]
    try:
        joined = pa.unify_schemas(schemas, promote_options="permissive").field(0).type
    except pa.ArrowTypeError as error:
        raise _unlike(what, known, new) from error
    # Lists of two lengths would be lists of any.
    if pa.types.is_fixed_size_list(known) and not pa.types.is_fixed_size_list(joined):
        raise _unlike(what, known, new)
    return joined


def _cast(column: pa.ChunkedArray, kind: pa.DataType, what: str) -> pa.ChunkedArray:
    try:
        return column.cast(kind)
    except pa.ArrowInvalid as error:
        raise InputError(
            f"{what} has numbers of type {column.type} that are other ones as {kind}, which other rows are: {error}",
            fix="give all rows one type",
        ) from error


def _unlike(what: str, known: pa.DataType, new: pa.DataType) -> InputError:
    return InputError(
        f"{what} is {_text(new)} here and was {_text(known)} before, which cannot be measured together",
        fix=f"convert it to {_text(known)}",
    )


def _text(kind: pa.DataType) -> str:
    if pa.types.is_fixed_size_list(kind):
        return f"lists of {kind.list_size} {kind.value_type}"
    return str(kind)


def _check(columns: Mapping[str, pa.ChunkedArray], config: EvaluationConfig) -> None:
    """Refuse what could never be judged; values that cannot be are counted once their rows are joined."""
    arrays = {name: column.combine_chunks() for name, column in columns.items()}
    uncounted = Problems()
    if "label" in arrays:
        labels_of(arrays["label"], config, uncounted, 0)
        return
    scores, usable = scores_of(arrays["candidate"], repr(config.prediction), config, uncounted, 0)
    if scores.ndim == 2 and usable.any():
        check_classes(np.zeros(len(scores), dtype=np.int64), scores, config, uncounted, 0)
    if config.weight is not None:
        weights_of(arrays["weight"], config.weight, uncounted, 0)
    some = {name: arrays[f"slice:{name}"][:0] for name in config.slice_columns}
    encode(SliceTable(config.specs), some, 0, config.expressions)
