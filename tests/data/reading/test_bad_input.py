"""Input as it really comes, from ingestion to validation: a right answer, or one clear error; never a silent pass."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import zipfile
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from drivetrain.components.example_gen import ExampleGen
from drivetrain.data import Statistics, infer_schema, open_examples, source_of, statistics, update_schema, validate
from drivetrain.errors import InputError
from drivetrain.metadata import Examples
from drivetrain.pipelines.project.context import LaunchContext, enter

fastavro = pytest.importorskip("fastavro")

Row = dict[str, Any]
NULL = " (where it stands for a missing value, name it in null_values)"
AVRO = {int: "long", float: "double", str: "string", bool: "boolean"}


def walked(data: Any, **options: Any) -> tuple[list[Row], Statistics, list[str]]:
    """Rows as they came into Examples, their statistics, and what was noted; their own schema finds nothing wrong."""
    notes: list[str] = []
    leave = enter(LaunchContext(note=notes.append))
    try:
        examples: Examples = ExampleGen(data, splits={"all": 1}, **options)
    finally:
        leave()
    source = open_examples(examples.content, "all")
    found = statistics({"all": source})
    anomalies = validate(found, infer_schema(found))
    assert anomalies.passed, anomalies
    assert found.document["datasets"][0]["rows"] == source.rows
    return [row for shard in source.shards for batch in source.read(shard) for row in batch.to_pylist()], found, notes


def feature(found: Statistics, name: str) -> dict[str, Any]:
    features: list[dict[str, Any]] = found.document["datasets"][0]["features"]
    return next(one for one in features if one["name"] == name)


def write_csv(path: Path, rows: list[Row]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def write_jsonl(path: Path, rows: list[Row]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_avro(path: Path, rows: list[Row]) -> None:
    fields = [{"name": name, "type": ["null", AVRO[type(value)]]} for name, value in rows[0].items()]
    with path.open("wb") as file:
        fastavro.writer(file, {"type": "record", "name": "row", "fields": fields}, rows)


def write_parquet(path: Path, rows: list[Row]) -> None:
    pq.write_table(pa.Table.from_pylist(rows), path)


WRITERS: dict[str, Callable[[Path, list[Row]], None]] = {
    "csv": write_csv,
    "jsonl": write_jsonl,
    "avro": write_avro,
    "parquet": write_parquet,
}
NAMES = [
    "a.b",
    "q\"u'o",
    "new\nline",
    "tab\there",
    "😀",
    "<b>&",
    "a,b",
    " lead",
    "split=x",
    "null",
    "x/y",
    "no\u00a0break",
    "A",
    "a",
]


@pytest.fixture(name="put", params=list(WRITERS))
def _put(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., str]:
    """Writes rows as a file of each kind."""

    def put(rows: list[Row], name: str = "x") -> str:
        path = tmp_path / f"{name}.{request.param}"
        WRITERS[request.param](path, rows)
        return str(path)

    put.kind = request.param  # type: ignore[attr-defined]
    return put


def test_one_row(put: Callable[..., str]) -> None:
    rows, found, _ = walked(put([{"i": 1, "x": 0.5, "s": "ü"}]))
    assert rows == [{"i": 1, "x": 0.5, "s": "ü"}]
    assert feature(found, "x")["std"]["value"] == 0


@pytest.mark.parametrize("kind", list(WRITERS))
def test_no_rows(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"x.{kind}"
    if kind == "parquet":
        pq.write_table(pa.table({"a": pa.array([], pa.int64())}), path)
    elif kind == "avro":
        with path.open("wb") as file:
            fastavro.writer(file, {"type": "record", "name": "r", "fields": [{"name": "a", "type": "long"}]}, [])
    else:
        path.write_text("a,b\n" if kind == "csv" else "")
    with pytest.raises(InputError, match=rf"x\.{kind}: (no rows|a header but no rows)"):
        ExampleGen(str(path))
    with pytest.raises(InputError, match="the table has no rows"):
        ExampleGen(pd.DataFrame({"a": []}))


def test_an_empty_file(tmp_path: Path) -> None:
    for kind in WRITERS:
        path = tmp_path / f"x.{kind}"
        path.write_bytes(b"")
        with pytest.raises(InputError, match=rf"x\.{kind}"):
            ExampleGen(str(path))


@pytest.mark.slow
def test_five_thousand_columns(put: Callable[..., str]) -> None:
    row = {f"c{number}": number for number in range(5000)}
    rows, found, _ = walked(put([row, row]))
    assert rows == [row, row]
    assert len(found.document["datasets"][0]["features"]) == 5000


def test_columns_without_a_value(put: Callable[..., str]) -> None:
    rows, found, _ = walked(put([{"a": 1, "b": "x"}] + [{"a": None, "b": None}] * 3))
    assert rows[1:] == [{"a": None, "b": None}] * 3
    assert feature(found, "a")["missing"] == 3


@pytest.mark.parametrize(
    "kind", [pa.null(), pa.int64(), pa.string(), pa.timestamp("us"), pa.list_(pa.int64()), pa.bool_()]
)
def test_a_column_that_is_missing_throughout(kind: pa.DataType, tmp_path: Path) -> None:
    table = pa.table({"k": [1, 2], "a": pa.array([None, None], kind)})
    pq.write_table(table, tmp_path / "x.parquet")
    for data in (str(tmp_path / "x.parquet"), table):
        rows, found, _ = walked(data)
        assert [row["a"] for row in rows] == [None, None]
        assert (feature(found, "a")["count"], feature(found, "a")["missing"]) == (0, 2)


def test_every_name_that_a_column_may_have(put: Callable[..., str]) -> None:
    names = ["_x9", "Class"] if put.kind == "avro" else NAMES  # type: ignore[attr-defined]  # Avro allows no others
    row = {name: number for number, name in enumerate(names)}
    rows, found, _ = walked(put([row, row]))
    assert rows == [row, row]
    assert [one["name"] for one in found.document["datasets"][0]["features"]] == names
    assert "<b>&" not in found.to_html()


def test_two_columns_of_one_name(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a,b,a\n1,2,3\n")
    (tmp_path / "x.jsonl").write_text('{"b": 1}\n{"a": 1, "a": 2}\n')
    pq.write_table(pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"]), tmp_path / "x.parquet")
    for name, message in [
        ("x.csv", r"x\.csv: two columns are named 'a'"),
        ("x.jsonl", r"x\.jsonl:2: two fields are named 'a'"),
        ("x.parquet", r"x\.parquet: two columns are named 'a'"),
    ]:
        with pytest.raises(InputError, match=message):
            ExampleGen(str(tmp_path / name))
    with pytest.raises(InputError, match="the DataFrame: two columns are named 'a'"):
        ExampleGen(pd.DataFrame([[1, 2]], columns=["a", "a"]))


def test_whole_numbers_beyond_floats(put: Callable[..., str]) -> None:
    values = [2**53 + 1, 2**63 - 1, -(2**63), None]
    rows, found, _ = walked(put([{"k": 0, "i": value} for value in values]))
    assert [row["i"] for row in rows] == values
    assert feature(found, "i")["max"]["value"] == 2**63 - 1
    assert feature(found, "i")["unique"]["value"] == 3


def test_a_whole_number_that_another_file_makes_a_float(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1, 2**53 + 1]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"a": [0.5]}), tmp_path / "2.parquet")
    with pytest.raises(InputError, match=r"1\.parquet: column 'a' does not fit double: .*9007199254740993"):
        ExampleGen(f"{tmp_path}/?.parquet")


def test_identifiers_of_twenty_digits_stay_apart(tmp_path: Path) -> None:
    values = ["12345678901234567890", "12345678901234567891"]
    (tmp_path / "x.csv").write_text("k,i\n" + "".join(f"0,{value}\n" for value in values))
    (tmp_path / "x.jsonl").write_text("".join(f'{{"k": 0, "i": {value}}}\n' for value in values))
    for name in ("x.csv", "x.jsonl"):
        assert [row["i"] for row in walked(str(tmp_path / name))[0]] == values


def test_decimals_are_exact(tmp_path: Path) -> None:
    values = [Decimal("0.10"), Decimal("12345678901234567890.12"), None]
    table = pa.table({"d": pa.array(values, pa.decimal128(30, 2))})
    pq.write_table(table, tmp_path / "x.parquet")
    (tmp_path / "x.csv").write_text("k,d\n0,0.10\n0,12345678901234567890.12\n0,\n")
    kind = {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 2}
    with (tmp_path / "x.avro").open("wb") as file:
        schema = {"type": "record", "name": "r", "fields": [{"name": "d", "type": ["null", kind]}]}
        fastavro.writer(file, schema, [{"d": value} for value in values])
    given: list[tuple[Any, dict[str, Any]]] = [
        (str(tmp_path / "x.parquet"), {}),
        (str(tmp_path / "x.avro"), {}),
        (str(tmp_path / "x.csv"), {"column_types": {"d": "decimal128(30, 2)"}}),
        (pd.DataFrame({"d": values}), {}),
    ]
    for data, options in given:
        assert [row["d"] for row in walked(data, **options)[0]] == values


def test_times_with_zones(tmp_path: Path) -> None:
    instants = [datetime(2024, 3, 31, 0, 30, tzinfo=UTC), datetime(2024, 3, 31, 1, 30, tzinfo=UTC)]
    (tmp_path / "x.csv").write_text("k,t\n0,2024-03-31T01:30:00+01:00\n0,2024-03-31T01:30:00Z\n")
    (tmp_path / "x.jsonl").write_text('{"t": "2024-03-31T01:30:00+01:00"}\n{"t": "2024-03-31T01:30:00Z"}\n')
    table = pa.table({"t": pa.array(instants, pa.timestamp("us", "Europe/Oslo"))})
    pq.write_table(table, tmp_path / "x.parquet")
    for data in (*(str(tmp_path / f"x.{kind}") for kind in ("csv", "jsonl", "parquet")), table, table.to_pandas()):
        assert [row["t"] for row in walked(data)[0]] == instants  # as instants: across a change to summer time
    (tmp_path / "y.csv").write_text("k,t\n0,2024-03-31T01:30:00+01:00\n0,2024-03-31T01:30:00\n")
    rows, _, _ = walked(str(tmp_path / "y.csv"))  # an instant and a wall clock have nothing in common but their text
    assert [row["t"] for row in rows] == ["2024-03-31T01:30:00+01:00", "2024-03-31T01:30:00"]


def test_a_column_of_mixed_types_is_text_and_told_or_an_error(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("k,v\n0,1\n0,2\n0,foo\n0,2.50\n")
    rows, _, (note,) = walked(str(tmp_path / "x.csv"))
    assert [row["v"] for row in rows] == ["1", "2", "foo", "2.50"]
    assert note.endswith(f"x.csv:4: column 'v' is text, because 'foo' is not a number{NULL}")
    (tmp_path / "x.jsonl").write_text('{"v": 1}\n{"v": "foo"}\n{"v": [2.50]}\n')
    rows, _, (note,) = walked(str(tmp_path / "x.jsonl"))
    assert [row["v"] for row in rows] == ["1", "foo", "[2.50]"]
    assert note.endswith("x.jsonl:2: column 'v' mixes kinds of values, so it is text")
    with pytest.raises(InputError, match="the DataFrame: column 'v' is not a column of one type"):
        ExampleGen(pd.DataFrame({"v": [1, "x", 2.5]}))
    with (tmp_path / "x.avro").open("wb") as file:
        schema = {"type": "record", "name": "r", "fields": [{"name": "v", "type": ["long", "string"]}]}
        fastavro.writer(file, schema, [{"v": 1}, {"v": "x"}])
    with pytest.raises(InputError, match=r"x\.avro: column 'v' is a union of several types"):
        ExampleGen(str(tmp_path / "x.avro"))


def test_a_file_whose_schema_changes_half_way(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("a,b\n" + "1,2\n" * 1000 + "a,b,c\n" + "1,2,3\n" * 1000)
    with pytest.raises(InputError, match=r"x\.csv:1002: 3 cells where the header has 2: a,b,c"):
        ExampleGen(str(path))
    path.write_text("a,b\n" + "1,2\n" * 1000 + "b,a\n" + "1,2\n" * 1000)
    _, _, (note,) = walked(str(path))
    assert note.endswith(f"x.csv:1002: column 'a' is text, because 'b' is not a number{NULL}; so is 'b'")
    path = tmp_path / "x.jsonl"
    path.write_text('{"a": 1}\n' * 10 + '{"b": 2}\n' * 10)
    rows, found, _ = walked(str(path))  # each row has what it has
    assert (rows[0], rows[-1]) == ({"a": 1, "b": None}, {"a": None, "b": 2})
    assert feature(found, "a")["missing"] == feature(found, "b")["missing"] == 10


def test_files_of_other_columns_or_types(put: Callable[..., str], tmp_path: Path) -> None:
    kind = put.kind  # type: ignore[attr-defined]
    put([{"a": 1, "b": 1}], "1")
    put([{"a": 1, "c": 1}], "2")
    if kind == "jsonl":
        assert walked(f"{tmp_path}/?.jsonl")[0] == [{"a": 1, "b": 1, "c": None}, {"a": 1, "b": None, "c": 1}]
    else:
        with pytest.raises(InputError, match=rf"2\.{kind} has no column 'b'"):
            ExampleGen(f"{tmp_path}/?.{kind}")
    put([{"a": 1, "b": "x"}], "2")
    if kind in ("csv", "jsonl"):
        assert [row["b"] for row in walked(f"{tmp_path}/?.{kind}")[0]] == ["1", "x"]
    else:
        with pytest.raises(InputError, match=rf"2\.{kind}: column 'b' is string, but int64 in .*1\.{kind}"):
            ExampleGen(f"{tmp_path}/?.{kind}")


def test_invalid_utf8(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_bytes(b"a,b\nx,y\nz,\xff\n")
    (tmp_path / "x.jsonl").write_bytes(b'{"a": 1}\n{"a": "\xff"}\n')
    for name, message in [("x.csv", r"x\.csv:3: not UTF-8 text"), ("x.jsonl", r"x\.jsonl:2: not UTF-8 text at byte 8")]:
        with pytest.raises(InputError, match=message):
            ExampleGen(str(tmp_path / name))


@pytest.mark.parametrize("distinct", [2, 120_000])
def test_invalid_utf8_that_parquet_calls_text(distinct: int, tmp_path: Path) -> None:
    values = [b"%d" % (number % distinct) for number in range(120_000)]
    values[110_000] = b"\xff\xfe"
    text = pa.Array.from_buffers(pa.string(), len(values), pa.array(values, pa.binary()).buffers())
    pq.write_table(pa.table({"s": text}), tmp_path / "x.parquet", row_group_size=50_000)
    with pytest.raises(InputError, match=r"x\.parquet, row 110,001: column 's' is declared text, but is not UTF-8"):
        ExampleGen(str(tmp_path / "x.parquet"))
    nested = pa.table({"s": pa.ListArray.from_arrays(pa.array(range(120_001), pa.int32()), text)})
    with pytest.raises(InputError, match="the table, row 110,001: column 's'"):
        ExampleGen(nested)
    # Statistics count them, and what is declared text has an anomaly, whether or not every value was kept.
    found = statistics({"all": source_of(str(tmp_path / "x.parquet"))})
    assert feature(found, "s")["invalid_utf8"]["value"] == 1
    schema = infer_schema(found)
    (anomaly,) = validate(found, schema).anomalies
    assert (anomaly.type, anomaly.severity) == ("ENUM_TYPE_INVALID_UTF8", "ERROR")
    assert validate(found, update_schema(schema, found).accept()).passed


def test_a_pipe_is_refused_before_it_is_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.csv")
    for read in (ExampleGen, source_of):
        with pytest.raises(InputError, match=r"x\.csv is a pipe or a device"):
            read(str(tmp_path / "x.csv"))


def test_a_zip_with_a_password(tmp_path: Path) -> None:
    for name, inside in (("x.zip", "x.csv"), ("y.zip", "a/1.png")):
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            archive.writestr(inside, "a\n1\n")
        data = bytearray((tmp_path / name).read_bytes())
        for place in (6, data.find(b"PK\x01\x02") + 8):
            data[place] |= 1
        (tmp_path / name).write_bytes(data)
        with pytest.raises(InputError, match=rf"{name} cannot be unpacked .*password"):
            ExampleGen(str(tmp_path / name))


@pytest.mark.parametrize(("name", "inside"), [("x.zip", "x.csv"), ("y.zip", "a/1.png")])
@pytest.mark.parametrize(
    ("start", "offset", "value", "says"),
    [
        (b"PK\x01\x02", 6, 127, r"version 12\.7"),  # of the format that is needed to unpack it
        (b"PK\x03\x04", 30, 0xB7, "damaged"),  # the first letter of the name, said to be UTF-8
    ],
)
def test_a_zip_that_lies(
    name: str, inside: str, start: bytes, offset: int, value: int, says: str, tmp_path: Path
) -> None:
    with zipfile.ZipFile(tmp_path / name, "w") as archive:
        archive.writestr(inside, "a\n1\n")
    data = bytearray((tmp_path / name).read_bytes())
    data[data.find(start) + offset] = value
    for header, flags in ((b"PK\x03\x04", 7), (b"PK\x01\x02", 9)):
        data[data.find(header) + flags] |= 8  # the name is UTF-8
    (tmp_path / name).write_bytes(data)
    with pytest.raises(InputError, match=says):
        ExampleGen(str(tmp_path / name))


def test_a_small_file_that_unpacks_to_a_huge_one_is_not_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("drivetrain.data.reading.images._LARGEST", 1 << 20)
    with zipfile.ZipFile(tmp_path / "x.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/1.png", bytes(2 << 20))
    with pytest.raises(InputError, match=r"a/1\.png is not a whole image \(more than 1 MiB\)"):
        ExampleGen(str(tmp_path / "x.zip"))
    monkeypatch.setattr("drivetrain.data.reading.csv_files._HEADER_CHARACTERS", 1 << 20)
    (tmp_path / "x.csv.gz").write_bytes(gzip.compress(b"a,b" + b"x" * (2 << 20)))
    with pytest.raises(InputError, match=r"a header of more than 1,048,576 characters"):
        ExampleGen(str(tmp_path / "x.csv.gz"))


def test_long_cells_hide_no_fault(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("a,b\n1,x\n" + '1,"x\n' + "1,x\n" * 100_000)
    with pytest.raises(InputError, match="a quote is opened and never closed"):
        ExampleGen(str(path))
    path.write_text("a,b\n1," + "x" * 200_000 + "\n1,2,3\n")
    with pytest.raises(InputError, match=r"x\.csv:3: 3 cells where the header has 2"):
        ExampleGen(str(path))


def test_a_parquet_file_that_changes_between_two_passes(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"a": range(100), "b": range(100)}), path, row_group_size=50)
    source = source_of(str(path))
    for other in ({"a": range(99), "b": range(99)}, {"b": range(100)}, {"a": range(50), "b": range(50)}):
        pq.write_table(pa.table(other), path, row_group_size=50)
        with pytest.raises(InputError, match=r"x\.parquet changed while in use"):
            list(source.read(1))


def test_half_a_character(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text('{"a": "ok"}\n{"a": "\\ud83d"}\n')
    with pytest.raises(InputError, match=r"x\.jsonl:2: column 'a' holds half a character"):
        ExampleGen(str(tmp_path / "x.jsonl"))
    with pytest.raises(InputError, match="column 'a'"):
        ExampleGen(pd.DataFrame({"a": ["ok", "\ud83d"]}, dtype=object))


@pytest.mark.parametrize("kind", ["parquet", "avro", "csv.gz", "jsonl.gz", "tfrecord"])
@pytest.mark.parametrize("share", [0.3, 0.6, 0.99])
def test_a_truncated_file(kind: str, share: float, tmp_path: Path) -> None:
    path = tmp_path / f"x.{kind}"
    rows = [{"a": number, "b": f"Nr. {number * 7919 % 1000}"} for number in range(2000)]
    if kind == "tfrecord":
        from drivetrain.tests.data.reading.test_tfrecord_files import framed

        path.write_bytes(
            framed(*(b"\x0a\x0d\x0a\x0b\x0a\x01a\x12\x06\x1a\x04\x0a\x02" + b"\x01\x02" for _ in range(200)))
        )
    else:
        WRITERS[kind.removesuffix(".gz")](path, rows)
        if kind.endswith(".gz"):
            path.write_bytes(gzip.compress(path.read_bytes()))
    assert sum(ExampleGen(str(path)).rows.values()) == (200 if kind == "tfrecord" else 2000)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole)) - 5])  # within a record: a TFRecord does not say how many it has
    with pytest.raises(InputError, match=rf"x\.{kind}") as caught:
        ExampleGen(str(path))
    assert caught.value.fix


def test_not_a_number_and_infinite(tmp_path: Path) -> None:
    nan, inf = float("nan"), float("inf")
    pq.write_table(pa.table({"x": [nan, inf, -inf, 1.0, None]}), tmp_path / "x.parquet")
    (tmp_path / "x.csv").write_text("k,x\n0,nan\n0,inf\n0,-inf\n0,1.0\n0,\n")
    for name, nan_rows, missing in (("x.parquet", 1, 1), ("x.csv", 0, 2)):
        _, found, _ = walked(str(tmp_path / name))
        one = feature(found, "x")
        told = (one["nan"], one["positive_infinity"], one["negative_infinity"], one["mean"]["value"], one["missing"])
        assert told == (nan_rows, 1, 1, 1.0, missing)
    assert pd.read_csv(tmp_path / "x.csv")["x"].isna().sum() == 2


@pytest.mark.parametrize("cell", ["nan", "NaN", '"nan"', " nan ", "NA", ""])
def test_what_pandas_reads_as_missing_is_missing_to_a_schema(cell: str, tmp_path: Path) -> None:
    rows = [f"{number},{number}.5" for number in range(200)]
    (tmp_path / "before.csv").write_text("\n".join(["whole,part", *rows]))
    (tmp_path / "after.csv").write_text("\n".join(["whole,part", *rows[1:], f"{cell},{cell}"]))
    anomalies = validate(tmp_path / "after.csv", infer_schema(tmp_path / "before.csv")).anomalies
    assert [(each.feature, each.type) for each in anomalies] == [
        ("whole", "FEATURE_TYPE_LOW_FRACTION_PRESENT"),
        ("part", "FEATURE_TYPE_LOW_FRACTION_PRESENT"),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(WRITERS))
def test_a_string_of_100_mb(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"x.{kind}"
    row = {"s": "x" * 100_000_000, "n": 1}
    WRITERS[kind](path, [{"s": "y", "n": 2}, row])
    examples = ExampleGen(str(path), splits={"train": 1, "eval": 1})
    sources = {name: open_examples(examples.content, name) for name in examples.rows}
    lengths = [
        len(value)
        for source in sources.values()
        for shard in source.shards
        for batch in source.read(shard)
        for value in batch.column("s").to_pylist()
    ]
    assert sorted(lengths) == [1, 100_000_000]
    found = statistics(sources)
    assert validate(found, infer_schema(found)).document is not None
    assert len(io.StringIO(json.dumps(found.document)).getvalue()) < 100_000  # no document quotes it whole
