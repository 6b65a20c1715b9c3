"""TFRecord files of tf.Example as shards, read without TensorFlow: one scan settles the columns, reading then streams.

A file is records of `length (8 bytes), masked CRC-32C of the length, data, masked CRC-32C of the data`, little endian;
both sums are checked in every pass. Data is a `tf.Example` in protobuf's wire format: a map from a feature's name to a
list of bytes, float32 or int64. Sources: tensorflow/core/lib/io/record_writer.h, tensorflow/core/example/feature.proto.

The columns are the names of all rows of all files, in alphabetical order, since a protobuf map has none. A column whose
rows all hold at most one value is scalar, and a feature without values is missing there; else it is a list, where a
feature without values is an empty list and an absent one missing. Bytes are text where all of them are UTF-8, over all
files. A column with both int64 and float32 becomes float64.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...errors import InputError, missing_extra
from ...progress import Progress
from ..aggregates.tables import is_utf8
from ..sources import Shard, Source, changed_in_use
from ..types import normal_schema, settle
from .compression import is_compressed, open_decompressed
from .tf_example import FeatureValues, NotAnExampleError, parse_example
from .tf_example_block import BYTES, FLOAT, INT64, FlatBlock, parse_block

_BLOCK_BYTES: Final = 4 << 20
_BLOCK_ROWS: Final = 16_384
_SHARD_BYTES: Final = 64 << 20
_HEAD: Final = struct.Struct("<QI")
_FOOT: Final = struct.Struct("<I")

Row = dict[str, FeatureValues]


@dataclass(frozen=True)
class TFRecordShard:
    """A TFRecord file, plain or gzipped, or a piece of a large plain one.

    Attributes:
        path: The file.
        rows: Records in the piece.
        start: The byte at which it begins.
        first: The number in the file of its first record, from 1.
        last: Whether it goes to the end of the file.
    """

    path: str
    rows: int
    start: int = 0
    first: int = 1
    last: bool = True

    def read(self, schema: pa.Schema, batch_rows: int, dictionaries: bool) -> Iterator[pa.RecordBatch]:
        """See `Shard.read`; batches are as the file's blocks give them."""
        count = 0
        wanted = frozenset(name.encode() for name in schema.names)
        pieces = _records(Path(self.path), self.start, self.first)
        for first, records in _blocks(pieces if self.last else islice(pieces, self.rows), self.first):
            count += len(records)
            block = parse_block(records, wanted)
            columns = None if block is None else _flat_columns(block, schema, len(records))
            if columns is None:
                rows = list(_rows(self.path, first, records, wanted))
                try:
                    columns = [_column([row.get(item.name) for row in rows], item.type) for item in schema]
                except (pa.ArrowException, ValueError, TypeError) as error:
                    raise changed_in_use(self.path) from error
            yield pa.RecordBatch.from_arrays(columns, schema=schema)
        if count != self.rows:
            raise changed_in_use(self.path)


def open_tfrecord(paths: Sequence[Path], *, progress: Progress | None = None) -> Source:
    """A source over TFRecord files of tf.Example; each is one shard, a plain one beyond 64 MB several. Scans all once.

    Args:
        paths: In this order.
        progress: Called with the rows scanned; may raise to stop.

    Raises:
        InputError: A file is missing, cut off or damaged (names the record, counted from 1, and its byte), a record is
            no tf.Example, a column mixes bytes and numbers (names file, record and column), or no row has a feature.
        DrivetrainError: google-crc32c is not installed.
    """
    columns: dict[str, _FeatureKind] = {}
    shards: list[Shard] = []
    done = 0
    for path in paths:
        piece = TFRecordShard(str(path), 0, last=False)
        size = 0
        for first, records in _blocks(_records(path)):
            if size >= _SHARD_BYTES and not is_compressed(path):
                shards.append(piece)
                piece, size = TFRecordShard(str(path), 0, piece.start + size, first, last=False), 0
            # numpy walks a block of flat rows at once; any other block is walked row by row, with the same outcome.
            block = parse_block(records)
            if block is None or not _see_flat(columns, block):
                for number, row in enumerate(_rows(str(path), first, records), first):
                    for name, (kind, values) in row.items():
                        column = columns.setdefault(name, _FeatureKind())
                        if not column.see(kind, values):
                            raise _mixed(f"{path}: record {number}", name, kind, column)
            done += len(records)
            piece = replace(piece, rows=piece.rows + len(records))
            size += sum(map(len, records)) + (_HEAD.size + _FOOT.size) * len(records)
            if progress is not None:
                progress(done, None, "rows scanned")
        shards.append(replace(piece, last=True))
    if done and not columns:
        raise InputError(f"{paths[0]}: the records hold no features", fix="write tf.Example messages with features")
    fields = [pa.field(name, columns[name].type) for name in sorted(columns)]
    schema = normal_schema(pa.schema(fields), str(paths[0]))
    return Source(tuple(shards), settle(schema))


def _mixed(where: str, name: str, kind: str | None, column: _FeatureKind) -> InputError:
    was = " or ".join(sorted(column.kinds))
    return InputError(
        f"{where}: column {name!r} holds {kind}, but {was} in records before it",
        fix="write the feature with one kind of list",
    )


class _FeatureKind:
    """What one feature has held so far: the join over all rows, in any order."""

    def __init__(self) -> None:
        self.kinds: set[str] = set()
        self.many = False
        self.text = True

    def see(self, kind: str | None, values: Any) -> bool:
        """Take in a row's values; False if they do not go together with those before."""
        if kind is None:
            return True
        if kind not in self.kinds:
            if self.kinds and "bytes" in (kind, *self.kinds):
                return False
            self.kinds.add(kind)
        if len(values) > 1:
            self.many = True
        if kind == "bytes" and self.text:
            self.text = all(map(is_utf8, values))
        return True

    @property
    def type(self) -> pa.DataType:
        if not self.kinds:
            return pa.null()
        if self.kinds == {"bytes"}:
            kind = pa.string() if self.text else pa.binary()
        else:
            kind = {1: pa.float32() if "float" in self.kinds else pa.int64(), 2: pa.float64()}[len(self.kinds)]
        return pa.list_(kind) if self.many else kind


def _column(features: list[FeatureValues | None], kind: pa.DataType) -> pa.Array:
    item = kind.value_type if pa.types.is_list(kind) else kind
    fitting = _fitting(item)
    if any(feature and feature[0] and feature[0] not in fitting for feature in features):
        raise TypeError("another kind of list than in the scan")
    if pa.types.is_list(kind):
        rows: list[Any] = [feature[1] if feature and feature[0] else None for feature in features]
        # int64 joins float32 as float64; pyarrow would refuse whole numbers beyond 2^53
        if pa.types.is_float64(item):
            rows = [None if row is None else [float(value) for value in row] for row in rows]
        return pa.array(rows, kind)
    if any(feature and len(feature[1]) > 1 for feature in features):
        raise ValueError("more values than in the scan")
    cells = [feature[1][0] if feature and feature[1] else None for feature in features]
    if pa.types.is_float64(item):
        cells = [None if cell is None else float(cell) for cell in cells]
    return pa.array(cells, kind)


def _fitting(kind: pa.DataType) -> tuple[str, ...]:
    """The kinds of lists whose values a column of this type holds."""
    if pa.types.is_floating(kind):
        return ("float",) if pa.types.is_float32(kind) else ("float", "int64")
    return ("int64",) if pa.types.is_integer(kind) else ("bytes",)


def _see_flat(columns: dict[str, _FeatureKind], block: FlatBlock) -> bool:
    """Take in a block; False, and nothing taken in, if it must be seen row by row."""
    seen = []
    for name, column in block.columns.items():
        kinds = {_KINDS[kind] for kind in np.unique(column.kinds[column.kinds > 0]).tolist()}
        every = kinds | (columns[name].kinds if name in columns else set())
        if ("bytes" in every and len(every) > 1) or ("int64" in kinds and block.ints(column) is None):
            return False
        text = "bytes" not in kinds or _texts(block.texts(column))
        seen.append((name, kinds, text))
    for name, kinds, text in seen:
        known = columns.setdefault(name, _FeatureKind())
        known.kinds |= kinds
        known.text = known.text and text
    return True


def _texts(values: list[bytes | None]) -> bool:
    try:
        pa.array(values, pa.binary()).cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return True


def _flat_columns(block: FlatBlock, schema: pa.Schema, rows: int) -> list[pa.Array] | None:
    """A block as columns of the schema; None if it must be read row by row."""
    columns = []
    for item in schema:
        column = block.columns.get(item.name)
        if column is None:
            columns.append(pa.nulls(rows, item.type))
            continue
        kinds = {_KINDS[kind] for kind in np.unique(column.kinds[column.kinds > 0]).tolist()}
        if pa.types.is_list(item.type) or not kinds <= set(_fitting(item.type)):
            return None
        if kinds == {"bytes"}:
            columns.append(pa.array(block.texts(column), item.type))
            continue
        whole = block.ints(column) if "int64" in kinds else np.zeros(rows, np.int64)
        if whole is None:
            return None
        numbers: NDArray[Any] = whole
        if pa.types.is_float32(item.type):
            numbers = block.floats(column)
        elif pa.types.is_float64(item.type):
            numbers = np.where(column.kinds == FLOAT, block.floats(column), whole.astype(np.float64))
        columns.append(pa.array(numbers, item.type, mask=column.kinds == 0))
    return columns


_KINDS: Final = {BYTES: "bytes", FLOAT: "float", INT64: "int64"}


def _rows(path: str, first: int, records: list[bytes], wanted: frozenset[bytes] | None = None) -> Iterator[Row]:
    """Records one by one, the first of which has the number `first`."""
    for number, data in enumerate(records, first):
        try:
            yield parse_example(data, wanted)
        except NotAnExampleError as error:
            raise InputError(
                f"{path}: record {number} is not a tf.Example ({error})", fix="write serialised tf.Example messages"
            ) from error


def _blocks(every: Iterable[bytes], first: int = 1) -> Iterator[tuple[int, list[bytes]]]:
    """The number of the first record, and records, a few megabytes at a time."""
    records: list[bytes] = []
    size = 0
    for number, data in enumerate(every, first):
        records.append(data)
        size += len(data)
        if size >= _BLOCK_BYTES or len(records) >= _BLOCK_ROWS:
            yield first, records
            records, first, size = [], number + 1, 0
    if records:
        yield first, records


def _records(path: Path, offset: int = 0, number: int = 1) -> Iterator[bytes]:
    """The records from a byte on, at which the record of that number begins."""
    crc = _crc32c()
    try:
        with open_decompressed(path) as file:
            if offset:
                file.seek(offset)
            while head := file.read(_HEAD.size):
                where = f"{path}: record {number}, at byte {offset},"
                if len(head) < _HEAD.size:
                    raise _cut(where)
                length, checksum = _HEAD.unpack(head)
                if checksum != _masked(crc(head[:8])):
                    if number == 1:
                        raise InputError(
                            f"{path} is not a TFRecord file: the first record's length fails its checksum",
                            fix="give a TFRecord file; one compressed with gzip must be named .gz, another not",
                        )
                    raise _damaged(where, "length")
                data = file.read(length)
                foot = file.read(_FOOT.size)
                if len(data) < length or len(foot) < _FOOT.size:
                    raise _cut(where)
                if _FOOT.unpack(foot)[0] != _masked(crc(data)):
                    raise _damaged(where, "data")
                yield data
                offset += _HEAD.size + length + _FOOT.size
                number += 1
    except FileNotFoundError as error:
        raise InputError(f"{path} does not exist", fix="check the path") from error
    except (OSError, EOFError, zlib.error, OverflowError, MemoryError) as error:
        raise InputError(
            f"{path}: record {number} cannot be read ({str(error)[:200]})", fix="write or copy the file again"
        ) from error


def _crc32c() -> Callable[[bytes], int]:
    try:
        from google_crc32c import value
    except ImportError as error:
        raise missing_extra("google-crc32c", "tfrecord") from error
    return cast("Callable[[bytes], int]", value)


def _masked(checksum: int) -> int:
    """TFRecord's mask: rotated right by 15 bits, plus a constant (tensorflow/core/lib/hash/crc32c.h)."""
    return (((checksum >> 15) | (checksum << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def _cut(where: str) -> InputError:
    return InputError(f"{where} is cut off: the file ends in it", fix="write or copy the file again")


def _damaged(where: str, part: str) -> InputError:
    return InputError(f"{where} is damaged: its {part} fails the checksum", fix="write or copy the file again")
