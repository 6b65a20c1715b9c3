"""The join of two data sets by key columns: one row per key, or per pair of rows, bucket by bucket."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ...errors import InputError, suggest
from ..arrays import numpy_of
from ..sources import Shard, Source
from ..stats.column import kind_of
from ..types import common_type

Codes = NDArray[np.int64]

KEY: Final = "key."
BASE: Final = "base."
TEST: Final = "test."
PAIR: Final = "pair"
BASE_ROWS: Final = "base_rows"
TEST_ROWS: Final = "test_rows"


@dataclass(frozen=True)
class KeyedColumns:
    """A `BatchFn`: the columns wanted of a batch, keys in the type that both sides share, floats of keys rounded."""

    keys: Any  # pa.Schema
    others: tuple[str, ...]
    digits: int | None
    side: str

    def setup(self) -> None:
        """Nothing to prepare: the columns are chosen batch by batch."""

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The columns.

        Raises:
            InputError: A key cannot be cast to that type.
        """
        keys = [self._key(field, batch.column(field.name)) for field in self.keys]
        columns = [*keys, *(batch.column(name) for name in self.others)]
        return pa.RecordBatch.from_arrays(columns, [*self.keys.names, *self.others])

    def _key(self, field: pa.Field, column: Any) -> Any:
        if column.type != field.type:
            try:
                column = column.cast(field.type)
            except pa.ArrowException as error:
                raise InputError(
                    f"the key {field.name!r} of the {self.side} data cannot be read as {field.type}, which both sides "
                    f"share: {str(error)[:200]}",
                    fix="give it one type on both sides",
                ) from error
        if pa.types.is_floating(field.type):
            values = column if self.digits is None else pc.round(column, self.digits, round_mode="half_to_even")
            return pc.if_else(pc.is_nan(values), np.nan, pc.add(values, 0.0))  # one NaN, and no -0.0
        return column


def key_schema(base: Source, test: Source, keys: Sequence[str]) -> pa.Schema:
    """The key columns in the types that hold both sides' values.

    Raises:
        InputError: A side lacks a key, a key is nested, or the sides' types do not fit together.
    """
    fields = []
    for name in keys:
        for side, source in (("base", base), ("test", test)):
            if name not in source.columns:
                raise InputError(
                    f"the {side} data has no column {name!r}", fix=suggest(name, source.columns, "its columns are:")
                )
        here, there = base.schema.field(name).type, test.schema.field(name).type
        kind = _shared(here, there)
        if kind is None:
            raise InputError(
                f"the key {name!r} is {here} in the base data and {there} in the test data",
                fix="give it one type on both sides",
            )
        if pa.types.is_nested(kind):
            raise InputError(f"{name!r} is {kind}, which is not a key", fix="use columns of one plain value per row")
        fields.append(pa.field(name, kind))
    return pa.schema(fields)


def _shared(here: Any, there: Any) -> Any:
    """The type that a key's values are compared in, so that what equals a value's equal is the same key; or None."""
    kind = common_type(here, there)
    if kind is not None:
        return pa.float32() if pa.types.is_float16(kind) else kind  # Arrow's arithmetic has no half floats
    if pa.types.is_integer(here) and pa.types.is_integer(there):
        return pa.decimal128(20, 0)  # holds uint64 and int64
    if {kind_of(here), kind_of(there)} == {"string", "bytes"}:
        return pa.large_binary()
    if pa.types.is_timestamp(here) and pa.types.is_timestamp(there) and here.tz and there.tz:
        return common_type(pa.timestamp(here.unit, "UTC"), pa.timestamp(there.unit, "UTC"))
    return None


def joined_schema(base: pa.Schema, test: pa.Schema, keys: pa.Schema) -> pa.Schema:
    """The columns of the join (see `JoinShard`)."""
    fields = [pa.field(KEY + field.name, field.type) for field in keys]
    fields += [pa.field(BASE_ROWS, pa.int64()), pa.field(TEST_ROWS, pa.int64()), pa.field(PAIR, pa.bool_())]
    for prefix, side in ((BASE, base), (TEST, test)):
        fields += [pa.field(prefix + field.name, field.type) for field in side if field.name not in keys.names]
    return pa.schema(fields)


@dataclass(frozen=True)
class JoinShard:
    """A bucket of both sides, joined.

    Where `pair` is true, a row joins one row of each side with equal keys. Each key comes once with how many rows it
    has on both sides (null where it is repeated); rows that lack a part of the key are counted in one row without a
    key. A key with several rows on a side is not a pair, or with `duplicates` all pairs of its rows.

    In memory at once: the keys of both sides' buckets, and the rows of those that have a partner.
    """

    base: Source
    test: Source
    bucket: int
    keys: Any  # pa.Schema
    duplicates: bool

    @property
    def path(self) -> str:
        """The first file of the base side."""
        return self._sides[0].path

    @property
    def rows(self) -> int:
        """Rows of both sides: what is read, not what comes out."""
        return sum(shard.rows for shard in self._sides)

    @property
    def _sides(self) -> tuple[Shard, Shard]:
        return self.base.shards[self.bucket], self.test.shards[self.bucket]

    def read(self, schema: pa.Schema, batch_rows: int, dictionaries: bool) -> Iterator[pa.RecordBatch]:
        """See `Shard.read`."""
        sides = [self._table(source.select(self.keys.names)) for source in (self.base, self.test)]
        all_keys = pa.concat_tables(sides)
        codes, missing = _codes(all_keys)
        base_codes, test_codes = np.split(codes, [sides[0].num_rows])
        counts = [np.bincount(side, minlength=missing + 1) for side in (base_codes, test_codes)]
        paired = (counts[0] > 0) & (counts[1] > 0)
        if not self.duplicates:
            paired &= (counts[0] == 1) & (counts[1] == 1)
        paired[missing] = False
        first_row = np.zeros(missing + 1, np.int64)
        first_row[codes[::-1]] = np.arange(len(codes))[::-1]  # backwards: of equal codes the first is assigned last
        unpaired = np.flatnonzero(~paired & (counts[0] + counts[1] > 0))
        for start in range(0, len(unpaired), batch_rows):
            chunk = unpaired[start : start + batch_rows]
            rows = pa.array(first_row[chunk], mask=chunk == missing)
            keys = {KEY + name: all_keys[name].take(rows) for name in self.keys.names}
            yield _batch(schema, len(chunk), keys, *(pa.array(side[chunk]) for side in counts), pair=False)
        left, right = (
            self._table(source, paired[side]) for source, side in ((self.base, base_codes), (self.test, test_codes))
        )
        yield from self._pairs(
            schema, batch_rows, left, right, base_codes[paired[base_codes]], test_codes[paired[test_codes]]
        )

    def _table(self, source: Source, wanted: NDArray[np.bool_] | None = None) -> pa.Table:
        """The bucket's rows, or those wanted of them."""
        kept, start = [], 0
        for batch in source.read(self.bucket):
            rows = batch.num_rows
            kept.append(batch if wanted is None else batch.filter(pa.array(wanted[start : start + rows])))
            start += rows
        return pa.Table.from_batches(kept, source.schema)

    def _pairs(
        self, schema: pa.Schema, batch_rows: int, left: pa.Table, right: pa.Table, lefts: Codes, rights: Codes
    ) -> Iterator[pa.RecordBatch]:
        """Every row of the left with each row of the right that has its code, in the left's order, then the right's."""
        if not len(lefts):
            return
        distinct = int(max(lefts.max(), rights.max())) + 1
        left_counts, right_counts = (np.bincount(side, minlength=distinct) for side in (lefts, rights))
        order = np.argsort(rights, kind="stable")
        first_partner = np.cumsum(right_counts) - right_counts
        is_first = np.zeros(len(lefts), np.bool_)
        is_first[np.unique(lefts, return_index=True)[1]] = True
        partners = right_counts[lefts]
        ends = np.cumsum(partners)
        start = 0
        while start < len(lefts):
            before = int(ends[start - 1]) if start else 0
            # As many left rows as give one batch, but at least one, however many partners that has.
            end = max(start + 1, int(np.searchsorted(ends, before + batch_rows, side="right")))
            partners_here = partners[start:end]
            at_left = np.repeat(np.arange(start, end), partners_here)
            within = np.arange(len(at_left)) - np.repeat(ends[start:end] - partners_here - before, partners_here)
            at_right = order[first_partner[lefts[at_left]] + within]
            is_repeat = ~(is_first[at_left] & (within == 0))
            rows, partner_rows = pa.array(at_left), pa.array(at_right)
            columns = {KEY + name: left[name].take(rows) for name in self.keys.names}
            for prefix, side, places in ((BASE, left, rows), (TEST, right, partner_rows)):
                columns |= {prefix + name: side[name].take(places) for name in side.column_names}
            numbers = (pa.array(side[lefts[at_left]], mask=is_repeat) for side in (left_counts, right_counts))
            yield _batch(schema, len(at_left), columns, *numbers, pair=True)
            start = end


def join(base: Source, test: Source, keys: pa.Schema, *, duplicates: bool) -> Source:
    """The join of two sources that were exchanged by the same keys to as many buckets; see `JoinShard`."""
    shards = tuple(JoinShard(base, test, bucket, keys, duplicates) for bucket in range(len(base.shards)))
    return Source(shards, joined_schema(base.schema, test.schema, keys))


def _batch(
    schema: pa.Schema, rows: int, columns: dict[str, Any], base_rows: Any, test_rows: Any, *, pair: bool
) -> pa.RecordBatch:
    """The columns given, in the schema's order; those that are not are missing throughout."""
    known = {**columns, BASE_ROWS: base_rows, TEST_ROWS: test_rows, PAIR: pa.array(np.full(rows, pair))}
    arrays = []
    for field in schema:
        array = known[field.name] if field.name in known else pa.nulls(rows, field.type)
        arrays.append(array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _codes(keys: pa.Table) -> tuple[Codes, int]:
    """A number from 0 for each row's key, the same for equal keys, and the last number, of keys that lack a part."""
    codes = np.zeros(keys.num_rows, np.int64)
    missing = np.zeros(keys.num_rows, np.bool_)
    distinct = 1
    for column in keys.columns:
        encoded = column.dictionary_encode().combine_chunks()
        missing |= ~numpy_of(encoded.is_valid())
        size = max(len(encoded.dictionary), 1)
        if distinct * size > 2**62:  # the product of the columns' sizes must fit 64 bits: renumber first
            values, codes = np.unique(codes, return_inverse=True)
            distinct = len(values)
        codes = codes * size + numpy_of(encoded.indices.fill_null(0))
        distinct *= size
    _, codes = np.unique(np.where(missing, -1, codes), return_inverse=True)
    last = int(codes.max(initial=-1)) + 1
    if missing.any():  # it came first, as -1
        return np.where(missing, last - 1, codes - 1), last - 1
    return codes, last
