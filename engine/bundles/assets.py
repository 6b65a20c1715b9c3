"""Vocabularies of a bundle and the like: Arrow IPC files, of which columns are views, so that none unpacks to more."""

from __future__ import annotations

import io
from typing import Final

import pyarrow as pa

_MAGIC: Final = 8  # bytes at the file's begin, before the stream of messages
_HEADER, _COMPRESSION = 8, 10  # fields of Arrow's Message and RecordBatch (format/Message.fbs), as FlatBuffers has them


def write_asset(table: pa.Table) -> bytes:
    """A table as an Arrow IPC file, not compressed."""
    sink = io.BytesIO()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def read_asset(data: memoryview | bytes) -> pa.Table:
    """An Arrow IPC file's table, whose columns are views of its bytes.

    The file is read as the stream that it holds, without the list at its end, so what was looked at is what is used.

    Raises:
        ValueError: The bytes are not such a file, are compressed, or are of a type by which few bytes stand for many.
    """
    stream = pa.py_buffer(data)[_MAGIC:]
    for message in pa.ipc.MessageReader.open_stream(stream):
        if message.type not in ("schema", "record batch"):
            raise ValueError(f"the asset has a message of the kind {message.type!r:.80}")
        if message.type == "record batch" and _is_compressed(message.metadata.to_pybytes()):
            raise ValueError("the asset is compressed: nothing bounds what it unpacks to")
    reader = pa.ipc.open_stream(stream)
    for column in reader.schema:
        if not _is_bounded(column.type):
            raise ValueError(f"the asset's column {column.name!r:.80} is of type {column.type!s:.80}")
    table = reader.read_all()
    table.validate(full=True)  # false offsets would be followed out of the file
    if table.nbytes > len(data) or table.num_rows > 8 * len(data):  # what is true or false takes a bit
        raise ValueError(f"the asset has {len(data)} bytes, and declares {table.num_rows} rows of {table.nbytes} bytes")
    return table


def _is_compressed(metadata: bytes) -> bool:
    from flatbuffers.table import Table

    message = Table(metadata, int.from_bytes(metadata[:4], "little"))
    batch = Table(metadata, message.Indirect(message.Pos + message.Offset(_HEADER)))
    return bool(batch.Offset(_COMPRESSION))


def _is_bounded(type_: pa.DataType) -> bool:
    """Whether an array takes bytes for each of its values: dictionaries, runs and views repeat what is stored once."""
    if isinstance(type_, pa.ListType | pa.LargeListType | pa.FixedSizeListType):
        return getattr(type_, "list_size", 1) > 0 and _is_bounded(type_.value_type)
    if pa.types.is_struct(type_):
        return type_.num_fields > 0 and all(_is_bounded(field.type) for field in type_)
    texts = (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())
    return bool(pa.types.is_primitive(type_) or pa.types.is_decimal(type_) or type_ in texts)
