"""The rows that show an anomaly: a second pass over the data, made only when there is something to show."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ...progress import Progress, no_progress
from ..aggregates.tables import show_text
from ..arrays import arrow_of, numpy_of
from ..reading.source_of import source_of
from ..schemas.schema import (
    Bool,
    Feature,
    Range,
    Schema,
    Semantic,
    Time,
    Values,
)
from ..schemas.struct_fields import feature_at
from ..schemas.time_formats import UNIX, reads_as_time, within
from ..schemas.weighted_feature import MISMATCHES
from ..sources import Source
from .anomalies import Anomalies, Anomaly
from .evidence import is_number
from .image_domain import odd_images
from .parsed_numbers import reads_as
from .row_tests import any_item, inside, outside_counts
from .weighted_features import unmatched

EXAMPLES: Final = 5
_WIDE: Final = 40  # columns quoted of a row, the anomaly's own first
_LONG: Final = 200  # characters quoted of a value

Mask = NDArray[np.bool_]
_Shown = tuple[tuple[str, ...], Callable[[Any], Mask]]
_OF_ROWS: Final = ("FEATURE_TYPE_", "SCHEMA_", "UNEXPECTED_", "INVALID_FEATURE_SHAPE")  # the others are of values
_MISSING: Final = frozenset(
    {"FEATURE_TYPE_NOT_PRESENT", "FEATURE_TYPE_LOW_FRACTION_PRESENT", "FEATURE_TYPE_LOW_NUMBER_PRESENT"}
)


def anomalous_rows(
    data: object,
    anomalies: Anomalies,
    schema: Schema,
    *,
    limit: int = EXAMPLES,
    progress: Progress = no_progress,
) -> Anomalies:
    """The anomalies with the first rows that show each, in the data's order.

    Reads a data set only if one of its anomalies has rows to show (a column that is gone has none), and only until
    every anomaly has `limit` rows.

    Args:
        data: What the statistics were computed from: what `source_of` takes, or a mapping of such by data set name.
        anomalies: From `validate`.
        schema: The same that `validate` got.
        limit: Rows per anomaly.
        progress: Told the rows looked at.

    Raises:
        InputError: The data cannot be read.
    """
    found: dict[int, list[dict[str, Any]]] = {}
    for split, source in _sources(data, anomalies).items():
        found |= _search(source, _wanted(split, source, anomalies, schema), limit, progress)
    return anomalies.with_rows(found)


def anomalous_table(
    data: object, anomalies: Anomalies, schema: Schema, *, limit: int | None = None
) -> Any:  # a pyarrow.Table: pyarrow ships no types
    """The rows that show any anomaly, whole and with the types they have, as an Arrow table (`.to_pandas()`).

    Three columns stand before the data's own: `anomaly.dataset`, `anomaly.row` (its number within the data set, from
    0) and `anomaly.types` (what it shows, "feature: anomaly").

    Args:
        data: As for `anomalous_rows`.
        anomalies: From `validate`.
        schema: The same that `validate` got.
        limit: Most rows of a data set; None: all.

    Raises:
        InputError: The data cannot be read.
    """
    tables = []
    for split, source in _sources(data, anomalies).items():
        tests = _wanted(split, source, anomalies, schema)
        names = [f"{anomalies.anomalies[index].feature}: {anomalies.anomalies[index].type}" for index in tests]
        start = count = 0
        for batch in (batch for shard in range(len(source.shards)) for batch in source.read(shard) if tests):
            masks = np.stack([test(batch) for _, test in tests.values()])
            hits = np.flatnonzero(masks.any(axis=0))[: None if limit is None else limit - count]
            head = {
                "anomaly.dataset": pa.array([split] * len(hits), pa.string()),
                "anomaly.row": arrow_of(hits.astype(np.int64) + start),
                "anomaly.types": pa.array(
                    [[name for name, mask in zip(names, masks, strict=True) if mask[hit]] for hit in hits],
                    pa.list_(pa.string()),
                ),
            }
            rows = batch.take(arrow_of(hits.astype(np.int64)))
            tables.append(pa.table(head | dict(zip(rows.schema.names, rows.columns, strict=True))))
            start += batch.num_rows
            count += len(hits)
            if count == limit:
                break
    if not tables:
        return pa.table({"anomaly.dataset": [], "anomaly.row": [], "anomaly.types": []})
    return pa.concat_tables(tables, promote_options="permissive")


def _sources(data: object, anomalies: Anomalies) -> dict[str, Source]:
    """The sources of the data sets that have anomalies."""
    given = data if isinstance(data, Mapping) else dict.fromkeys(list(anomalies.splits)[:1], data)
    odd = {anomaly.split for anomaly in anomalies.anomalies}
    return {str(name): source_of(one) for name, one in given.items() if name in odd}


def _wanted(split: str, source: Source, anomalies: Anomalies, schema: Schema) -> dict[int, _Shown]:
    """By the anomaly's place: its columns, and what marks the rows of a batch that show it."""
    wanted: dict[int, _Shown] = {}
    pairs = {pair.name: pair for pair in schema.weighted}
    for index, anomaly in enumerate(anomalies.anomalies):
        path = anomaly.place
        if anomaly.split != split or not path:
            continue
        pair = pairs.get(path[0]) if anomaly.type in MISMATCHES else None
        if pair is not None:
            wanted[index] = ((pair.value, pair.weight), unmatched(pair, anomaly.type))
        elif path[0] in source.columns:
            test = _test(anomaly, feature_at(schema, path))
            if test is not None and not anomaly.type.startswith(_OF_ROWS):
                test = any_item(test)
            if test is not None:
                wanted[index] = ((path[0],), _of_column(path[0], inside(path[1:], test)))
    return wanted


def _of_column(name: str, test: Callable[[Any], Mask]) -> Callable[[Any], Mask]:
    return lambda batch: test(batch.column(name))


def _search(
    source: Source, wanted: dict[int, _Shown], limit: int, progress: Progress
) -> dict[int, list[dict[str, Any]]]:
    found: dict[int, list[dict[str, Any]]] = {index: [] for index in wanted}
    start = 0
    for shard in range(len(source.shards)):
        for batch in source.read(shard):
            open_ = [index for index in wanted if len(found[index]) < limit]
            if not open_:
                return found
            for index in open_:
                names, test = wanted[index]
                hits = np.flatnonzero(test(batch))[: limit - len(found[index])]
                found[index] += [{"row": start + int(hit), "values": _quote(batch, int(hit), names)} for hit in hits]
            start += batch.num_rows
            progress(start, source.rows, "rows")
    return found


def _quote(batch: pa.RecordBatch, row: int, first: tuple[str, ...]) -> dict[str, Any]:
    there = batch.schema.names
    names = list(dict.fromkeys(name for name in (*first, *there) if name in there))[:_WIDE]
    return {name: plain(value_at(batch.column(name), row)) for name in names}


def value_at(column: Any, row: int) -> Any:
    """A value of an Arrow column as Python's; text as its bytes, since not all of it is UTF-8, a timestamp as text."""
    if pa.types.is_dictionary(column.type):
        column = column.slice(row, 1).dictionary_decode()
        row = 0
    kind = column.type
    if pa.types.is_string(kind):
        return column.slice(row, 1).cast(pa.binary())[0].as_py()  # not every string column is UTF-8 in fact
    if pa.types.is_timestamp(kind):
        text = str(np.datetime64(column[row].value, kind.unit)) if column[row].is_valid else None
        return text + "Z" if text and kind.tz else text
    return column[row].as_py()


def plain(value: Any) -> Any:
    """A value as JSON: numbers as they are (NaN and infinities as text), bytes and times as text, long text cut."""
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, bytes):
        value = show_text(value)
    elif isinstance(value, (datetime.date, datetime.time)):
        value = value.isoformat()
    elif isinstance(value, (list, tuple)):
        return [plain(item) for item in value[:_WIDE]]
    elif isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    text = str(value)
    return text if len(text) <= _LONG else text[:_LONG] + "…"


def _test(anomaly: Anomaly, spec: Feature | None) -> Callable[[Any], Mask] | None:
    """What marks the rows of an anomaly in a batch's column; None where no row shows it."""
    kind = anomaly.type
    if kind in _MISSING:
        return _numpy(pc.is_null)
    if kind == "SCHEMA_NEW_COLUMN":
        return _numpy(pc.is_valid)
    if kind == "UNEXPECTED_DATA_TYPE":
        # Where a few texts among numbers made a text column, they are what to look at.
        wants_numbers = spec is not None and spec.type in ("int", "float")
        texts = [item["value"] for item in anomaly.values if wants_numbers and not is_number(item["value"])]
        return lambda column: _among(column, texts) if _is_text(column) and texts else _valid(column)
    if kind == "ENUM_TYPE_INVALID_UTF8":
        return _broken
    if kind in ("FEATURE_TYPE_LOW_NUMBER_VALUES", "FEATURE_TYPE_HIGH_NUMBER_VALUES", "INVALID_FEATURE_SHAPE"):
        return outside_counts(kind, spec, anomaly.level) if spec is not None else None
    domain = spec.domain if spec is not None else None
    if isinstance(domain, Time):
        return _no_time(kind, domain)
    if isinstance(domain, Semantic):
        return odd_images(kind, domain)
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


def _outside_bool(kind: str) -> Callable[[Any], Mask]:
    if kind == "BOOL_TYPE_SMALL_INT":
        return lambda column: _compare(column, lambda values: values < 0)
    if kind == "BOOL_TYPE_BIG_INT":
        return lambda column: _compare(column, lambda values: values > 1)
    return lambda column: _compare(column, lambda values: (values != 0) & (values != 1))


def _outside_range(kind: str, domain: Range) -> Callable[[Any], Mask] | None:
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


def _misread(kind: str, domain: Range) -> Callable[[Any], Mask] | None:
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


def _no_time(kind: str, domain: Time) -> Callable[[Any], Mask] | None:
    if kind != "TIME_TYPE_UNEXPECTED_VALUES":
        return None
    if domain.format in UNIX:
        return lambda column: _compare(column, lambda values: ~within(values, domain.format))

    def test(column: Any) -> Mask:
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        marked = _valid(column)
        marked[marked] = ~reads_as_time(column.drop_null().cast(pa.large_binary()), domain.format)
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


def _is_text(column: Any) -> bool:
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def _valid(column: Any) -> Mask:
    return _mask(column.is_valid())


def _numpy(test: Callable[[Any], Any]) -> Callable[[Any], Mask]:
    return lambda column: _mask(test(column))


def _mask(array: Any) -> Mask:
    return numpy_of(array).astype(np.bool_)
