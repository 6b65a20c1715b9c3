"""Columns computed from a source's own, so that what holds between columns is measured and validated like any other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ..errors import InputError
from .sources import Shard, Source
from .types import normal_type, restore

Derive = Callable[[pa.RecordBatch], Mapping[str, Any]]
"""New columns (Arrow or numpy arrays, or lists) by name, from a batch with all of the data's own."""


def derived(source: Source, derive: Derive, *, columns: Iterable[str] | None = None) -> Source:
    """The source with more columns, which `derive` makes of each batch as it is read.

    Args:
        source: With every column that `derive` looks at.
        derive: Takes a batch (strings plain, never as dictionaries), returns the new columns: one value per row, each
            from its own row alone, since how rows fall into batches is not a promise. It is called once on a batch of
            no rows, to learn the columns' types. For Beam it must pickle by reference.
        columns: The source's columns that `derive` looks at, at least one; its batches then have no others, and other
            columns are not read for it. By default all.

    Raises:
        InputError: `derive` fails on no rows, returns no mapping, no column, or one that is there already, or
            `columns` is empty or names a column that the source does not have.
    """
    seen = source.schema if columns is None else source.select(dict.fromkeys(columns)).schema
    if columns is not None and not len(seen):
        raise InputError(f"{_name(derive)} looks at no column", fix="name one, or leave `columns` out")
    empty = pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in seen], schema=seen)
    new_columns = _derived_columns(derive, empty, source.schema, "a batch of no rows")
    twice = next((name for name in new_columns if name in source.schema.names), None)
    if twice is not None or not new_columns:
        raise InputError(
            f"{_name(derive)} makes {f'a column {twice!r}, which the data has' if new_columns else 'no column'}",
            fix="give new columns names of their own",
        )
    new = [pa.field(name, normal_type(column.type)) for name, column in new_columns.items()]
    schema = pa.schema([*source.schema, *new])
    shards: tuple[Shard, ...] = tuple(DerivedShard(shard, source.schema, seen, derive) for shard in source.shards)
    return Source(shards, schema)


@dataclass(frozen=True)
class DerivedShard:
    """A shard with columns that are computed from its own, batch by batch, as they are read."""

    shard: Shard
    base: Any  # a pyarrow.Schema: the columns of `shard`
    seen: Any  # a pyarrow.Schema: those of them that `derive` looks at
    derive: Derive

    @property
    def path(self) -> str:
        """The file it lies in."""
        return self.shard.path

    @property
    def rows(self) -> int:
        """How many rows it has."""
        return self.shard.rows

    def read(self, schema: pa.Schema, batch_rows: int, dictionaries: bool) -> Iterator[pa.RecordBatch]:
        """See `Shard.read`; nothing is computed where no computed column is wanted."""
        own_names = set(self.base.names).intersection(schema.names)
        if len(own_names) == len(schema.names):
            yield from self.shard.read(schema, batch_rows, dictionaries)
            return
        wanted = own_names.union(self.seen.names)
        for batch in self.shard.read(
            pa.schema([field for field in self.base if field.name in wanted]), batch_rows, dictionaries
        ):
            new_columns = _derived_columns(self.derive, restore(batch, self.seen), schema, self.path)
            columns = []
            for field in schema:
                column = batch.column(field.name) if field.name in own_names else new_columns.get(field.name)
                if column is None:
                    raise InputError(
                        f"{self.path}: {_name(self.derive)} makes no column {field.name!r} here",
                        fix="give the same columns for every batch",
                    )
                columns.append(column)
            yield pa.RecordBatch.from_arrays(columns, names=schema.names)


def _derived_columns(derive: Derive, batch: pa.RecordBatch, schema: pa.Schema, where: str) -> dict[str, Any]:
    name = _name(derive)
    try:
        columns_by_name = derive(batch)
    except Exception as error:  # the user's code may raise anything: name function and place
        raise InputError(
            f"{name} failed on {where} ({type(error).__name__}: {str(error)[:200]})",
            fix="it must take any batch, also one of no rows, and rows with missing values",
        ) from error
    if not isinstance(columns_by_name, Mapping):
        raise InputError(
            f"{name} gave a {type(columns_by_name).__name__}, not columns by name", fix='return {"name": array}'
        )
    columns = {}
    for key, values in columns_by_name.items():
        try:
            column = values if isinstance(values, pa.Array) else pa.array(values)
            if key in schema.names and column.type != schema.field(key).type:
                column = column.cast(schema.field(key).type)
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise InputError(
                f"{where}: the column {key!r} of {name} is not of one type ({str(error)[:200]})",
                fix="return an Arrow array of its type, also for no rows",
            ) from error
        if len(column) != batch.num_rows:
            raise InputError(
                f"{where}: {name} gave {len(column):,} values of {key!r} for {batch.num_rows:,} rows",
                fix="give one value per row",
            )
        columns[str(key)] = column
    return columns


def _name(derive: Derive) -> str:
    return getattr(derive, "__qualname__", None) or str(getattr(derive, "name", derive))
