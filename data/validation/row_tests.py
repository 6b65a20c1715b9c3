"""What marks the rows that show an anomaly: a mask over a batch, also of values deep in lists and structs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ..arrays import numpy_of
from ..schemas.schema import Bool, Count, Feature, Range, Semantic, Time, Values
from ..schemas.struct_fields import Path
from ..schemas.time_formats import UNIX, reads_as_time, within
from ..stats.column import kind_of, plain_array
from ..stats.column_sketches import is_whole
from .anomalies import Anomaly
from .evidence import READ, reads_as_type
from .image_domain import image_test
from .parsed_numbers import reads_as

Mask = NDArray[np.bool_]
RowTest = Callable[[Any], Mask]
"""A pyarrow column (or, of `batch_test`, a batch) to which of its rows show an anomaly."""
_Lengths = NDArray[np.int64]
_OF_ROWS: Final = ("FEATURE_TYPE_", "SCHEMA_", "UNEXPECTED_", "INVALID_FEATURE_SHAPE")  # the others are of values
_MISSING: Final = frozenset(
    {"FEATURE_TYPE_NOT_PRESENT", "FEATURE_TYPE_LOW_FRACTION_PRESENT", "FEATURE_TYPE_LOW_NUMBER_PRESENT"}
)


def batch_test(anomaly: Anomaly, feature: Feature | None) -> RowTest | None:
    """What marks the rows of a batch that show an anomaly of a column, or of a field of structs in it.

    None where no row shows it.
    """
    test = _test(anomaly, feature)
    if test is None:
        return None
    if not anomaly.type.startswith(_OF_ROWS):
        test = any_item(test)
    name, *path = anomaly.feature_path
    column_test = inside(tuple(path), test)
    return lambda batch: column_test(batch.column(name))


def _test(anomaly: Anomaly, spec: Feature | None) -> RowTest | None:
    """What marks the rows of an anomaly in a batch's column; None where no row shows it."""
    kind = anomaly.type
    if kind in _MISSING:
        return _numpy(pc.is_null)
    if kind == "SCHEMA_NEW_COLUMN":
        return _numpy(pc.is_valid)
    if kind == "UNEXPECTED_DATA_TYPE":
        return lambda column: _of_wrong_type(column, spec)
    if kind == "ENUM_TYPE_INVALID_UTF8":
        return _broken
    if kind in ("FEATURE_TYPE_LOW_NUMBER_VALUES", "FEATURE_TYPE_HIGH_NUMBER_VALUES", "INVALID_FEATURE_SHAPE"):
        return outside_counts(kind, spec, anomaly.level) if spec is not None else None
    domain = spec.domain if spec is not None else None
    if isinstance(domain, Time):
        return _no_time(kind, domain)
    if isinstance(domain, Semantic):
        return image_test(kind, domain)
    if not kind.startswith(("ENUM_", "BOOL_", "INT_", "FLOAT_")):
        return None
    if isinstance(domain, Range) and domain.parse:
        return _misread(kind, domain)
    if isinstance(domain, Values):
        return lambda column: _valid(column) & ~_among(column, domain.values)
    if isinstance(domain, Bool) and domain.texts:
        return lambda column: _valid(column) & ~_among(column, domain.texts)
    if isinstance(domain, Bool):
        return _outside_bool(kind)
    if isinstance(domain, Range):
        return _outside_range(kind, domain)
    return None


def _of_wrong_type(column: Any, spec: Feature | None) -> Mask:
    # Where a few texts among numbers made a text column, they are what to look at.
    if spec is not None and spec.type in READ and kind_of(column.type) == "string":
        return _unread(column, spec.type)
    if spec is not None and spec.type == "int" and kind_of(column.type) == "float":
        return _compare(column, lambda values: ~is_whole(values))
    return _valid(column)


def _unread(column: Any, kind: str) -> Mask:
    encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    words = encoded.dictionary.cast(pa.binary()).to_pylist()
    unread = np.fromiter((word is not None and not reads_as_type(word, kind) for word in words), np.bool_, len(words))
    marked = _valid(column)
    marked[marked] = unread[numpy_of(encoded.indices.drop_null())]
    return marked


def _outside_bool(kind: str) -> RowTest:
    if kind == "BOOL_TYPE_SMALL_INT":
        return lambda column: _compare(column, lambda values: values < 0)
    if kind == "BOOL_TYPE_BIG_INT":
        return lambda column: _compare(column, lambda values: values > 1)
    return lambda column: _compare(column, lambda values: (values != 0) & (values != 1))


def _outside_range(kind: str, domain: Range) -> RowTest | None:
    low, high = domain.min, domain.max
    if kind.endswith(("_SMALL_INT", "_SMALL_FLOAT")) and low is not None:
        return lambda column: _compare(column, lambda values: values < low)
    if kind.endswith(("_BIG_INT", "_BIG_FLOAT")) and high is not None:
        return lambda column: _compare(column, lambda values: values > high)
    if kind.endswith("_HAS_NAN"):
        return lambda column: _compare(column, np.isnan)
    if kind.endswith("_HAS_INF"):
        return lambda column: _compare(column, np.isinf)
    return None


def _misread(kind: str, domain: Range) -> RowTest | None:
    """Where text does not read as a number, or as one that breaks the range."""
    low, high = domain.min, domain.max
    tests: dict[str, Callable[[float | None], bool]] = {
        "STRING": lambda number: number is None,
        "SMALL": lambda number: number is not None and low is not None and number < low,
        "BIG": lambda number: number is not None and high is not None and number > high,
        "NAN": lambda number: number is not None and math.isnan(number),
        "INF": lambda number: number is not None and math.isinf(number),
    }
    test = next((test for word, test in tests.items() if word in kind.split("_")), None)
    if test is None:
        return None

    def rows(column: Any) -> Mask:
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        values = column.cast(pa.binary()).to_pylist()
        marked = (value is not None and test(reads_as(value, domain.parse)) for value in values)
        return np.fromiter(marked, np.bool_, len(values))

    return rows


def _no_time(kind: str, domain: Time) -> RowTest | None:
    if kind != "TIME_TYPE_UNEXPECTED_VALUES":
        return None
    if domain.format in UNIX:
        return lambda column: _compare(column, lambda values: ~within(values, domain.format))

    def test(column: Any) -> Mask:
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        marked = _valid(column)
        marked[marked] = ~reads_as_time(column.drop_null().cast(pa.large_binary()), domain.format, domain.year_ends)
        return marked

    return test


def _compare(column: Any, test: Callable[[Any], Any]) -> Mask:
    valid = _valid(column)
    marked = np.zeros(len(column), np.bool_)
    present = column.drop_null()
    if pa.types.is_decimal(present.type):
        present = present.cast(pa.float64())
    marked[valid] = test(numpy_of(present))
    return marked


def _among(column: Any, texts: Any) -> Mask:
    """Where a text column has one of the texts; compared as bytes."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    allowed = pa.array([text.encode() for text in texts], pa.binary())
    return _mask(pc.is_in(column.cast(pa.binary()), value_set=allowed))


def _broken(column: Any) -> Mask:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    values = column.cast(pa.binary()).to_pylist()
    return np.fromiter((value is not None and not _decodes(value) for value in values), np.bool_, len(values))


def _decodes(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _valid(column: Any) -> Mask:
    return _mask(column.is_valid())


def _numpy(test: Callable[[Any], Any]) -> RowTest:
    return lambda column: _mask(test(column))


def _mask(array: Any) -> Mask:
    return numpy_of(array).astype(np.bool_)


def any_item(test: RowTest) -> RowTest:
    """A test of values as one of rows: where any value in a row's lists passes; a row that is not a list is a value."""

    def rows(column: Any) -> Mask:
        column = plain_array(column)
        if kind_of(column.type) != "list":
            return test(column)
        lengths, items = _open(column)
        marked = np.zeros(len(column), np.bool_)
        marked[np.repeat(np.arange(len(column)), lengths)[rows(items)]] = True
        return marked

    return rows


def inside(path: Path, test: RowTest) -> RowTest:
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


def outside_counts(kind: str, spec: Feature, level: int) -> RowTest:
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


def _sizes(column: Any) -> _Lengths:
    """Values of each row in all; −1 where one is missing or the lists of a level differ in length."""
    valid, column = numpy_of(column.is_valid()), plain_array(column)
    if kind_of(column.type) != "list":
        return np.where(valid, 1, -1)
    lengths, items = _open(column)
    inner = _sizes(items)
    starts = np.concatenate(([0], np.cumsum(lengths)))
    row_sizes = np.where(valid, 0, -1)
    for row in np.flatnonzero(valid & (lengths > 0)):
        sizes = inner[starts[row] : starts[row + 1]]
        row_sizes[row] = sizes.sum() if (sizes == sizes[0]).all() and sizes[0] >= 0 else -1
    return row_sizes


def _open(column: Any) -> tuple[_Lengths, Any]:
    """Each row's number of items (0 where it is missing), and the items of all."""
    lengths = np.zeros(len(column), np.int64)
    lengths[numpy_of(column.is_valid())] = numpy_of(pc.list_value_length(column.drop_null()))
    return lengths, pc.list_flatten(column)
