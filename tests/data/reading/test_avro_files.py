"""Avro input against files that fastavro wrote."""

import io
import uuid
from collections.abc import Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from drivetrain.data import Source
from drivetrain.data.reading import avro_files
from drivetrain.data.reading.avro_files import open_avro
from drivetrain.errors import DrivetrainError, InputError

fastavro = pytest.importorskip("fastavro")


def rows(source: Source) -> list[dict[str, Any]]:
    return [row for shard in range(len(source.shards)) for batch in source.read(shard) for row in batch.to_pylist()]


def write(
    folder: Path, fields: Mapping[str, Any], table: list[dict[str, Any]], name: str = "x.avro", **options: Any
) -> Path:
    schema = {"type": "record", "name": "r", "fields": [{"name": k, "type": kind} for k, kind in fields.items()]}
    with (folder / name).open("wb") as file:
        fastavro.writer(file, schema, table, **options)
    return folder / name


@pytest.mark.parametrize(
    ("kind", "values", "arrow"),
    [
        ("int", [1, -(2**31)], "int32"),
        ("long", [2**63 - 1], "int64"),
        ("float", [0.5], "float"),
        ("double", [0.1, float("inf")], "double"),
        ("boolean", [True, False], "bool"),
        ("string", ["", "ü"], "string"),
        ("bytes", [b"\xff"], "binary"),
        (["null", "long"], [None, 7], "int64"),
        (["string", "null"], ["x", None], "string"),
        ("null", [None], "string"),
        ({"type": "enum", "name": "e", "symbols": ["A", "B"]}, ["B", "A"], "string"),
        ({"type": "fixed", "name": "f", "size": 2}, [b"ab"], "binary"),
        ({"type": "array", "items": ["null", "long"]}, [[1, None], []], "list<element: int64>"),
        (
            {"type": "record", "name": "s", "fields": [{"name": "a", "type": "long"}, {"name": "b", "type": "string"}]},
            [{"a": 1, "b": "x"}],
            "struct<a: int64, b: string>",
        ),
        ({"type": "int", "logicalType": "date"}, [date(2013, 1, 2)], "date32[day]"),
        ({"type": "long", "logicalType": "time-micros"}, [time(1, 2, 3, 4)], "time64[us]"),
        (
            {"type": "long", "logicalType": "timestamp-millis"},
            [datetime(2013, 1, 2, 5, tzinfo=UTC)],
            "timestamp[ms, tz=UTC]",
        ),
        ({"type": "long", "logicalType": "local-timestamp-micros"}, [datetime(2013, 1, 2, 5)], "timestamp[us]"),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            [Decimal("1.25")],
            "decimal128(9, 2)",
        ),
    ],
)
@pytest.mark.parametrize("codec", ["null", "deflate"])
def test_values_come_back_with_the_types_of_the_schema(
    tmp_path: Path, kind: Any, values: list[Any], arrow: str, codec: str
) -> None:
    source = open_avro([write(tmp_path, {"k": "long", "v": kind}, [{"k": 7, "v": v} for v in values], codec=codec)])
    assert str(source.schema.field("v").type) == arrow
    assert [row["v"] for row in rows(source)] == values
    assert rows(source.select(["k"])) == [{"k": 7}] * len(values)


def test_uuids_are_text_and_named_types_are_known_again(tmp_path: Path) -> None:
    one = uuid.UUID(int=1)
    enum = {"type": "enum", "name": "e", "namespace": "our", "symbols": ["A"]}
    kinds = {"u": {"type": "string", "logicalType": "uuid"}, "a": enum, "b": ["null", "our.e"]}
    assert rows(open_avro([write(tmp_path, kinds, [{"u": one, "a": "A", "b": "A"}])])) == [
        {"u": str(one), "a": "A", "b": "A"}
    ]


def test_types_are_joined_over_files_and_counts_need_no_decoding(tmp_path: Path) -> None:
    first = write(tmp_path, {"v": "int"}, [{"v": i} for i in range(50_000)], "1.avro", sync_interval=1000)
    second = write(tmp_path, {"v": ["null", "double"]}, [{"v": None}, {"v": 0.5}], "2.avro")
    source = open_avro([first, second])
    assert (source.rows, str(source.schema.field("v").type)) == (50_002, "double")
    assert [row["v"] for row in rows(source)] == [*map(float, range(50_000)), None, 0.5]
    assert max(len(batch) for batch in source.shards[0].read(source.schema, 65536, False)) == avro_files._BLOCK_ROWS


@pytest.mark.parametrize(
    "kind", [{"type": "map", "values": "long"}, ["long", "string"], {"type": "array", "items": ["long", "string"]}]
)
def test_a_type_without_a_column_type_names_the_column(tmp_path: Path, kind: Any) -> None:
    with pytest.raises(InputError, match="column 'v' is a"):
        open_avro([write(tmp_path, {"v": kind}, [])])


def test_a_cut_or_damaged_file_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path, {"v": "string"}, [{"v": "x" * 50} for _ in range(99)], sync_interval=500)
    whole = path.read_bytes()
    for end in (0, 3, 40, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:end])
        with pytest.raises(InputError, match="cut off or damaged after row"):
            open_avro([path])
    path.write_bytes(whole.replace(b"x" * 50, b"\xff" * 50))
    source = open_avro([path])
    with pytest.raises(InputError, match="cut off or damaged after row 0"):
        rows(source)
    path.write_bytes(b"")
    with pytest.raises(InputError):
        rows(source)
    with pytest.raises(InputError, match="does not exist"):
        open_avro([tmp_path / "none.avro"])


def test_other_schemas_and_changed_files_are_errors(tmp_path: Path) -> None:
    file = io.BytesIO()
    fastavro.writer(file, "long", [1, 2])
    (tmp_path / "x.avro").write_bytes(file.getvalue())
    with pytest.raises(InputError, match="its schema is not a record"):
        open_avro([tmp_path / "x.avro"])
    source = open_avro([write(tmp_path, {"v": "long"}, [{"v": 1}, {"v": 2}])])
    others: list[tuple[dict[str, str], list[dict[str, Any]], str]] = [
        ({"v": "double"}, [{"v": 0.5}, {"v": 2.0}], "column 'v' cannot be read as int64"),
        ({"w": "long"}, [{"w": 1}, {"w": 2}], "column 'v' cannot be read as int64"),
        ({"v": "long"}, [{"v": 1}], "changed while in use"),
    ]
    for kinds, table, message in others:
        write(tmp_path, kinds, table)
        with pytest.raises(InputError, match=message):
            rows(source)


def test_without_the_library_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, {"v": "long"}, [])
    monkeypatch.setitem(__import__("sys").modules, "fastavro", None)
    with pytest.raises(DrivetrainError, match=r"drivetrain\[avro\]"):
        open_avro([path])
