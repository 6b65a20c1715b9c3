"""Avro files as shards: their schemas settle the columns, their block headers the row counts; reading then streams.

A file's schema must be a record; its fields are the columns, the same in every file. Types follow the schema, so they
need no scan of the values: int is int32, long int64, the logical types date, time, timestamp (UTC; the `local-` ones
without a zone) and decimal as such, enum and uuid text, fixed bytes, arrays lists, records structs. A union with null
is its other branch, missing where null. A map or a union of several types has no column type and is an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from ...errors import InputError, missing_extra
from ...progress import Progress
from ..sources import Shard, Source, changed_in_use, unify
from ..types import normal_schema, settle

_BLOCK_ROWS: Final = 16_384
_PRIMITIVES: Final = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "enum": pa.string(),
    "bytes": pa.binary(),
    "fixed": pa.binary(),
}
_LOGICAL: Final[dict[tuple[Any, Any], pa.DataType]] = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "timestamp-millis"): pa.timestamp("ms", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
    ("string", "uuid"): pa.string(),
}


@dataclass(frozen=True)
class AvroShard:
    """An Avro file, which is read from its beginning: one shard."""

    path: str
    rows: int

    def read(self, schema: pa.Schema, batch_rows: int, dictionaries: bool) -> Iterator[pa.RecordBatch]:
        """See `Shard.read`; batches are as the file's blocks give them."""
        count = 0
        for rows in _rows(Path(self.path)):
            columns = []
            for item in schema:
                try:
                    columns.append(pa.array([_plain(row[item.name], item.type) for row in rows], item.type))
                except (pa.ArrowException, KeyError, TypeError, ValueError, OverflowError) as error:
                    raise InputError(
                        f"{self.path}: rows {count + 1} to {count + len(rows)}: column {item.name!r} cannot be read as "
                        f"{item.type} ({str(error).splitlines()[0][:200]})",
                        fix="write the file with values of the type that its schema says",
                    ) from error
            count += len(rows)
            yield pa.RecordBatch.from_arrays(columns, schema=schema)
        if count != self.rows:
            raise changed_in_use(self.path)


def open_avro(paths: Sequence[Path], *, progress: Progress | None = None) -> Source:
    """A source over Avro files, each a shard; reads their schemas and block headers.

    Args:
        paths: With the same columns; in this order.
        progress: Called with the rows counted; may raise to stop.

    Raises:
        InputError: A file is missing, cut off or damaged, its schema is not a record or has a column without a type
            here, or the files' columns differ.
        DrivetrainError: fastavro is not installed.
    """
    shards: list[Shard] = []
    schema: pa.Schema | None = None
    done = 0
    for path in paths:
        file_schema, rows = _scan(path)
        file_schema = normal_schema(file_schema, str(path))
        schema = file_schema if schema is None else unify(schema, str(paths[0]), file_schema, str(path))
        shards.append(AvroShard(str(path), rows))
        done += rows
        if progress is not None:
            progress(done, None, "rows scanned")
    if schema is None:
        raise InputError("there are no Avro files to open", fix="name at least one")
    return Source(tuple(shards), settle(schema))


def _scan(path: Path) -> tuple[pa.Schema, int]:
    """A file's columns, and its rows."""
    fastavro = _fastavro()
    rows = 0
    try:
        with path.open("rb") as file:
            blocks = fastavro.block_reader(file)
            written = blocks.writer_schema
            for block in blocks:
                rows += block.num_records
    except Exception as error:  # fastavro raises what its parsing stumbles over: all of it is the file's fault
        raise _damaged(path, rows, error) from error
    if not isinstance(written, Mapping) or written.get("type") != "record":
        raise InputError(f"{path}: its schema is not a record", fix="write rows as records")
    named: dict[str, Any] = {}
    return pa.schema([pa.field(f["name"], _type(f["type"], named, path, f["name"])) for f in written["fields"]]), rows


def _rows(path: Path) -> Iterator[list[Mapping[str, Any]]]:
    fastavro = _fastavro()
    count = 0
    held: list[Mapping[str, Any]] = []
    try:
        with path.open("rb") as file:
            for row in fastavro.reader(file):
                held.append(row)
                if len(held) == _BLOCK_ROWS:
                    yield held
                    count += len(held)
                    held = []
    except Exception as error:  # as in _scan
        raise _damaged(path, count + len(held), error) from error
    if held:
        yield held


def _type(kind: Any, named: dict[str, Any], path: Path, column: str) -> pa.DataType:
    """The Arrow type of an Avro type; `named` collects the records, enums and fixed types defined on the way."""
    if isinstance(kind, str) and kind in named:
        named_type: pa.DataType = named[kind]
        return named_type
    if isinstance(kind, str) and kind in _PRIMITIVES:
        return _PRIMITIVES[kind]
    if isinstance(kind, list):
        branches = [branch for branch in kind if branch != "null"]
        if not branches:
            return pa.null()
        if len(branches) == 1:
            return _type(branches[0], named, path, column)
    if isinstance(kind, Mapping):
        name, logical = kind["type"], kind.get("logicalType")
        arrow_type: pa.DataType | None = None
        if logical == "decimal":
            # As fastavro gives it: up to 38 digits fit decimal128
            digits, scale = kind["precision"], kind.get("scale", 0)
            arrow_type = pa.decimal128(digits, scale) if digits <= 38 else pa.decimal256(digits, scale)
        elif (name, logical) in _LOGICAL:
            arrow_type = _LOGICAL[name, logical]
        elif name == "array":
            arrow_type = pa.list_(_type(kind["items"], named, path, column))
        elif name == "record":
            fields = [
                pa.field(item["name"], _type(item["type"], named, path, f"{column}.{item['name']}"))
                for item in kind["fields"]
            ]
            arrow_type = pa.struct(fields) if fields else None
        elif not isinstance(name, str) or name != "map":
            arrow_type = _type(name, named, path, column)
        if arrow_type is not None:
            if "name" in kind:
                named[kind["name"]] = named[f"{kind.get('namespace')}.{kind['name']}"] = arrow_type
            return arrow_type
    shown = "a union of several types" if isinstance(kind, list) else "a map or a type that refers to itself"
    raise InputError(f"{path}: column {column!r} is {shown}, which no column can hold", fix="write it as another type")


def _plain(value: Any, kind: pa.DataType) -> Any:
    """A value as pyarrow takes it for this type."""
    if value is None:
        return None
    if pa.types.is_string(kind) and not isinstance(value, str):
        return str(value)  # a UUID
    if pa.types.is_integer(kind) and type(value) is not int:
        raise TypeError(f"{value!r} is not a whole number")
    if pa.types.is_list(kind):
        return [_plain(item, kind.value_type) for item in value]
    if pa.types.is_struct(kind):
        return {item.name: _plain(value[item.name], item.type) for item in kind}
    return value


def _fastavro() -> Any:
    """Any: its reader's rows are what the file holds."""
    try:
        import fastavro
    except ImportError as error:
        raise missing_extra("fastavro", "avro") from error
    return fastavro


def _damaged(path: Path, rows: int, error: Exception) -> InputError:
    if isinstance(error, FileNotFoundError):
        return InputError(f"{path} does not exist", fix="check the path")
    cause = (str(error) or type(error).__name__).splitlines()[0][:200]
    return InputError(f"{path}: cut off or damaged after row {rows} ({cause})", fix="write or copy the file again")
