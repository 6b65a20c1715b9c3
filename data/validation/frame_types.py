"""Tables in memory, read as a schema says where pandas has no such type or does not look for it.

pandas leaves dates and times of a CSV as text, has dates only as times at midnight, and names the index that it wrote
itself "Unnamed: 0". Nothing is read that loses anything: where one value does not fit, the column stays as it is, and
the validation says so. Integers with gaps, which pandas makes floats, are left to it: statistics know whole numbers.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from ..reading.csv_types import ColumnTypeGuess, parse_cells
from ..reading.source_of import TableShard, of_table, source_of
from ..schemas.schema import Schema
from ..sources import Source
from ..stats.column import kind_of
from ..stats.document import Statistics, statistics


def statistics_against(data: object, schema: Schema) -> tuple[Statistics, tuple[str, ...]]:
    """What a schema is checked by: the statistics of data, and notes on what of it was read otherwise than it came.

    Args:
        data: `Statistics`, which are returned as they are, or what `statistics` takes.
        schema: Names the types; its weighted features are measured too.

    Raises:
        InputError: Rows cannot be read from the data; see `source_of`.
    """
    if isinstance(data, Statistics):
        return data, ()
    notes: list[str] = []
    inputs = data if isinstance(data, Mapping) else {"data": data}
    sources = {name: _typed(source_of(part), schema, notes) for name, part in inputs.items()}
    return statistics(sources, schema=schema), tuple(dict.fromkeys(notes))


def _typed(source: Source, schema: Schema, notes: list[str]) -> Source:
    tables = [shard.table for shard in source.shards if isinstance(shard, TableShard)]
    if len(tables) < len(source.shards):
        return source
    table = pa.concat_tables(tables).select(source.columns)
    before = len(notes)
    for index, name in enumerate(table.column_names):
        if name != f"Unnamed: {index}" or schema.find_feature(name) is not None:
            break
        table = table.drop_columns([name])
        notes.append(f"{name} is left out: the index that pandas wrote into a file")
    for spec in schema.features:
        if spec.type in ("date", "timestamp") and spec.name in table.column_names:
            index = table.column_names.index(spec.name)
            column = table.column(index)
            read, what = _as_times(column, spec.type)
            if read is not None:
                table = table.set_column(index, spec.name, read)
                notes.append(f"{spec.name} is {what}, which counts as {spec.type}")
    return source if len(notes) == before else of_table(table)


def _as_times(column: pa.ChunkedArray, wanted: str) -> tuple[pa.ChunkedArray | None, str]:
    """The column as dates or times, and what it was; None where it is neither or loses something."""
    kind = kind_of(column.type)
    if kind == "string":
        texts = pc.cast(column, pa.string()).combine_chunks()
        guess = ColumnTypeGuess()
        guess.see(texts, (), 0)
        read = pa.chunked_array([parse_cells(texts, guess.type, ())]) if kind_of(guess.type) == wanted else None
        return read, f"text that reads as {wanted}"
    if (kind, wanted) == ("timestamp", "date") and column.type.tz is None:
        dates = pc.cast(column, pa.date32(), safe=False)
        midnight = pc.all(pc.equal(pc.cast(dates, column.type), column)).as_py()
        return (dates if midnight is not False else None), "times at midnight"
    return None, ""
