"""The rows that show an anomaly: a second pass over the data, made only when there is something to show."""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa

from ...progress import Progress, no_progress
from ..aggregates.tables import show_text
from ..arrays import arrow_of, python_of
from ..reading.source_of import source_of
from ..schemas.schema import (
    Schema,
)
from ..schemas.struct_fields import feature_at
from ..schemas.weighted_feature import MISMATCHES
from ..sources import Source
from .anomalies import Anomalies
from .row_tests import RowTest, batch_test
from .weighted_features import mismatch_test

EXAMPLES: Final = 5
_WIDE: Final = 40  # columns quoted of a row, the anomaly's own first
_LONG: Final = 200  # characters quoted of a value

_Shown = tuple[tuple[str, ...], RowTest]


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
        progress: Called with the rows looked at.

    Raises:
        InputError: The data cannot be read.
    """
    rows_by_anomaly: dict[int, list[dict[str, Any]]] = {}
    for split, source in _sources(data, anomalies).items():
        rows_by_anomaly |= _search(source, _wanted(split, source, anomalies, schema), limit, progress)
    return anomalies.with_rows(rows_by_anomaly)


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
    data_sets = data if isinstance(data, Mapping) else dict.fromkeys(list(anomalies.splits)[:1], data)
    odd = {anomaly.split for anomaly in anomalies.anomalies}
    return {str(name): source_of(data_set) for name, data_set in data_sets.items() if name in odd}


def _wanted(split: str, source: Source, anomalies: Anomalies, schema: Schema) -> dict[int, _Shown]:
    """By the anomaly's index: its columns, and what marks the rows of a batch that show it."""
    wanted: dict[int, _Shown] = {}
    pairs = {pair.name: pair for pair in schema.weighted}
    for index, anomaly in enumerate(anomalies.anomalies):
        path = anomaly.feature_path
        if anomaly.split != split or not path:
            continue
        pair = pairs.get(path[0]) if anomaly.type in MISMATCHES else None
        if pair is not None:
            wanted[index] = ((pair.value, pair.weight), mismatch_test(pair, anomaly.type))
        elif path[0] in source.columns:
            test = batch_test(anomaly, feature_at(schema, path))
            if test is not None:
                wanted[index] = ((path[0],), test)
    return wanted


def _search(
    source: Source, wanted: dict[int, _Shown], limit: int, progress: Progress
) -> dict[int, list[dict[str, Any]]]:
    rows_by_anomaly: dict[int, list[dict[str, Any]]] = {index: [] for index in wanted}
    start = 0
    for shard in range(len(source.shards)):
        for batch in source.read(shard):
            open_ = [index for index in wanted if len(rows_by_anomaly[index]) < limit]
            if not open_:
                return rows_by_anomaly
            for index in open_:
                names, test = wanted[index]
                hits = np.flatnonzero(test(batch))[: limit - len(rows_by_anomaly[index])]
                rows_by_anomaly[index] += [
                    {"row": start + int(hit), "values": _quote(batch, int(hit), names)} for hit in hits
                ]
            start += batch.num_rows
            progress(start, source.rows, "rows")
    return rows_by_anomaly


def _quote(batch: pa.RecordBatch, row: int, first: tuple[str, ...]) -> dict[str, Any]:
    columns = batch.schema.names
    names = list(dict.fromkeys(name for name in (*first, *columns) if name in columns))[:_WIDE]
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
    return python_of(column[row])


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
