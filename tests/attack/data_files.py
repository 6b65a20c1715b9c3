"""Data files, damaged: CSV, JSON lines, Parquet, Avro, TFRecords, and what packs them."""

from __future__ import annotations

import gzip
import io
import json
import math
import struct
import zipfile
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
from drivetrain.tests.attack.attack import Attack, Case
from drivetrain.tests.attack.mutations import as_bytes, damage_bytes, draw_bytes, draw_text, edit_text, place

TEXTS = ("flights.csv", "flights.tsv", "flights.jsonl")
NAMES = (*TEXTS, "flights.csv.gz", "flights.zip", "flights.parquet", "flights.avro", "flights.tfrecord")


@dataclass(frozen=True)
class Target:
    """Honest files by name."""

    folder: Path
    files: dict[str, bytes]


def _rows(count: int) -> list[dict[str, Any]]:
    return [
        {"carrier": ("UA", "ÅØ", None, 'a"b')[i % 4], "delay": math.sin(i) * 90, "hour": i % 24, "stamp": 10**9 + i}
        for i in range(count)
    ]


def _separated(rows: list[dict[str, Any]], delimiter: str) -> str:
    lines = [delimiter.join([*rows[0], "when"])]
    for row in rows:
        cells = ["" if value is None else '"' + str(value).replace('"', '""') + '"' for value in row.values()]
        lines.append(delimiter.join([*cells, f"2013-01-{row['hour'] + 1:02}T05:00:00Z"]))
    return "\r\n".join(lines) + "\n"


def _prepare(folder: Path) -> Target:
    import fastavro
    import pyarrow as pa
    import pyarrow.parquet as pq
    from drivetrain.data.arrays import spare_pandas

    spare_pandas()  # it has no part in what follows
    rows = _rows(40)
    csv, lines = _separated(rows, ","), "".join(json.dumps({**row, "tags": ["a", "b"]}) + "\n" for row in rows)
    table = pa.table({
        **{key: [row[key] for row in rows] for key in rows[0]},
        "when": pa.array([10**15 + row["hour"] for row in rows], pa.timestamp("us", "UTC")),
        "lists": [[row["hour"], None] for row in rows],
        "deep": [{"a": row["carrier"]} for row in rows],
        "words": pa.array([row["carrier"] for row in rows]).dictionary_encode(),
    })  # fmt: skip
    parquet, avro, archive = io.BytesIO(), io.BytesIO(), io.BytesIO()
    pq.write_table(table, parquet, row_group_size=15)
    fields = [("carrier", ["null", "string"]), ("delay", "double"), ("hour", "int"), ("stamp", "long")]
    fastavro.writer(
        avro,
        {"type": "record", "name": "r", "fields": [{"name": name, "type": kind} for name, kind in fields]},
        rows,
        codec="deflate",
    )
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("flights.csv", csv)
    files = {
        "flights.csv": csv.encode(),
        "flights.tsv": _separated(rows, "\t").encode(),
        "flights.jsonl": lines.encode(),
        "flights.csv.gz": gzip.compress(csv.encode(), mtime=0),
        "flights.zip": archive.getvalue(),
        "flights.parquet": parquet.getvalue(),
        "flights.avro": avro.getvalue(),
        "flights.tfrecord": b"".join(map(_framed, map(_example, rows))),
    }
    return Target(folder, files)


def _framed(record: bytes) -> bytes:
    return _with_sum(struct.pack("<Q", len(record))) + _with_sum(record)


def _with_sum(data: bytes) -> bytes:
    import google_crc32c

    crc = google_crc32c.value(data)
    return data + struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def _example(row: dict[str, Any]) -> bytes:
    """A tf.Example in protobuf's wire format."""
    features = b""
    for name, value in row.items():
        if value is None:
            feature = b""
        elif isinstance(value, str):
            feature = _field(1, _field(1, value.encode()))
        elif isinstance(value, float):
            feature = _field(2, _field(1, struct.pack("<f", value)))
        else:
            feature = _field(3, _field(1, _varint(value)))
        features += _field(1, _field(1, name.encode()) + _field(2, feature))
    return _field(1, features)


def _field(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    data = b""
    while value > 0x7F:
        data, value = data + bytes([value & 0x7F | 0x80]), value >> 7
    return data + bytes([value])


def _draw(dice: Random) -> Case:
    name = dice.choice(NAMES)
    draw = draw_text if name in TEXTS and dice.random() < 0.7 else draw_bytes
    steps = [draw(dice) for _ in range(dice.choice((1, 1, 2, 3)))]
    if name == "flights.tfrecord" and dice.random() < 0.6:
        steps = [["record", place(dice), *step] for step in steps]
    return [["file", name], *steps]


def _damaged(data: bytes, step: list[Any]) -> bytes:
    if step[0] == "record":  # a record whose sums are right, so that what is in it is read
        record, *rest = _records(data, step[1])
        return rest[0] + _framed(damage_bytes(record, step[2:])) + rest[1]
    changed = damage_bytes(data, step)
    if changed != data:
        return changed
    return as_bytes(edit_text(data.decode("utf-8", "surrogateescape"), step).encode("utf-8", "ignore").decode())


def _records(data: bytes, where: float) -> tuple[bytes, bytes, bytes]:
    """A record, and what lies before and after it."""
    starts, at = [0], 0
    while at + 12 <= len(data):
        at += 16 + struct.unpack_from("<Q", data, at)[0]
        starts.append(at)
    index = min(int(where * (len(starts) - 1)), len(starts) - 2)
    start, stop = starts[index], starts[index + 1]
    return data[start + 12 : stop - 4], data[:start], data[stop:]


def _validate(batch: pa.RecordBatch) -> None:
    try:
        batch.validate(full=True)
    except pa.ArrowInvalid as error:
        if "Invalid UTF8" not in str(error):  # which statistics count, and a schema refuses
            raise


def _check(target: Target, case: Case) -> None:
    from drivetrain.data import infer_schema, open_files, schema_to_yaml, statistics, validate

    names = [step[1] for step in case if step[0] == "file"] or list(target.files)
    for name in names:
        data = target.files[name]
        for step in case:
            if step[0] != "file":
                data = _damaged(data, step)
        (target.folder / name).write_bytes(data)
        source = open_files([target.folder / name])
        for shard in range(len(source.shards)):
            for batch in source.read(shard):
                _validate(batch)
        measured = statistics({"train": source})
        schema = infer_schema(measured)
        schema_to_yaml(schema)
        validate(measured, schema)
        measured.to_html() if hasattr(measured, "to_html") else None


ATTACKS = {"data": Attack(_prepare, _draw, _check, fast=120, slow=600)}
