"""The public calls without a pipeline: every kind of data gives the same answers, and every result is a DataFrame."""

from __future__ import annotations

import csv
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pandas as pd
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
from drivetrain.data import (
    Bool,
    Feature,
    Presence,
    Range,
    Schema,
    Values,
    anomalous_rows,
    anomalous_table,
    diff_examples,
    drift,
    infer_schema,
    schema_to_yaml,
    statistics,
    update_schema,
    validate,
    validate_instance,
)
from drivetrain.errors import DrivetrainError, InputError

ROWS: list[dict[str, Any]] = [
    {"carrier": "AA", "delay": 1.5, "seats": 100},
    {"carrier": "UA", "delay": -2.0, "seats": 180},
    {"carrier": "ZZ", "delay": 30.25, "seats": 9000},
    {"carrier": "AA", "delay": None, "seats": 150},
]
SCHEMA = Schema(
    (
        Feature("carrier", "string", Presence(1.0, 1), Values(("AA", "UA"))),
        Feature("delay", "float", Presence(0.5, 2)),
        Feature("seats", "int", Presence(1.0, 1), Range(0, 500)),
    )
)


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The same rows in every form that is taken."""
    folder = tmp_path_factory.mktemp("face")
    table = pa.Table.from_pylist(ROWS)
    (folder / "parts").mkdir()
    pq.write_table(table.slice(0, 2), folder / "parts" / "a.parquet")
    pq.write_table(table.slice(2), folder / "parts" / "b.parquet")
    pq.write_table(table, folder / "all.parquet")
    with (folder / "all.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, ROWS[0])
        writer.writeheader()
        writer.writerows(ROWS)
    return {
        "rows": ROWS,
        "frame": pd.DataFrame(ROWS),
        "table": table,
        "batch": table.to_batches()[0],
        "dataset": pyarrow.dataset.dataset(folder / "parts"),
        "folder": folder / "parts",
        "pattern": str(folder / "parts" / "*.parquet"),
        "file": str(folder / "all.parquet"),
        "csv": folder / "all.csv",
    }


KINDS = ("rows", "frame", "table", "batch", "dataset", "folder", "pattern", "file", "csv")


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_data_gives_the_same_answers(given: dict[str, Any], kind: str) -> None:
    data, table = given[kind], given["table"]
    assert schema_to_yaml(infer_schema(data)) == schema_to_yaml(infer_schema(statistics(table)))
    found = validate(data, SCHEMA)
    assert {(one.feature, one.type) for one in found.anomalies} == {
        ("carrier", "ENUM_TYPE_UNEXPECTED_STRING_VALUES"),
        ("seats", "INT_TYPE_BIG_INT"),
    }
    with_rows = anomalous_rows(data, found, SCHEMA)
    assert [[row["row"] for row in one.rows] for one in with_rows.anomalies] == [[2], [2]]
    odd = anomalous_table(data, found, SCHEMA)
    assert odd.select(["carrier", "delay", "seats"]).to_pylist() == ROWS[2:3]
    assert odd["anomaly.row"].to_pylist() == [2]
    assert odd["anomaly.types"].to_pylist() == [
        ["carrier: ENUM_TYPE_UNEXPECTED_STRING_VALUES", "seats: INT_TYPE_BIG_INT"]
    ]
    assert not drift(data, table).drifted
    assert validate(data, update_schema(SCHEMA, data).accept()).passed


def test_folders_of_a_partitioned_data_set(tmp_path: Path) -> None:
    table = pa.Table.from_pylist([row | {"month": 1 + number // 2} for number, row in enumerate(ROWS)])
    pyarrow.dataset.write_dataset(table, tmp_path, format="parquet", partitioning=["month"], partitioning_flavor="hive")
    (tmp_path / "_SUCCESS").write_text("")
    assert statistics(tmp_path).to_pandas().set_index("feature").loc["month", "max"] == 2
    (tmp_path / "none").mkdir()
    with pytest.raises(InputError, match="holds no files"):
        statistics(tmp_path / "none")


def test_a_stream_is_read_once(given: dict[str, Any]) -> None:
    def reader() -> pa.RecordBatchReader:
        return given["table"].to_reader(max_chunksize=1)

    found = validate(reader(), SCHEMA, previous=reader())
    assert len(found.anomalies) == 2
    assert [[row["row"] for row in one.rows] for one in anomalous_rows(reader(), found, SCHEMA).anomalies] == [[2], [2]]


def test_rows_of_several_data_sets(given: dict[str, Any]) -> None:
    data = {"train": given["frame"], "eval": given["file"], "clean": given["table"].slice(0, 2)}
    found = validate(data, SCHEMA)
    odd = anomalous_table(data, found, SCHEMA).to_pandas()
    assert odd[["anomaly.dataset", "anomaly.row", "seats"]].to_numpy().tolist() == [
        ["train", 2, 9000], ["eval", 2, 9000],
    ]  # fmt: skip
    assert anomalous_table(data, found, SCHEMA, limit=0).num_rows == 0
    fine = validate(data["clean"], SCHEMA)
    assert anomalous_table(data["clean"], fine, SCHEMA).num_rows == 0


def test_results_are_frames(given: dict[str, Any]) -> None:
    frame = given["frame"]
    numbers = statistics({"train": frame, "eval": frame}).to_pandas().set_index(["dataset", "feature"])
    assert len(numbers) == 6
    assert numbers.loc[("eval", "delay"), "mean"] == pytest.approx(frame["delay"].mean())
    assert numbers.loc[("train", "seats"), "max"] == 9000
    assert numbers.loc[("train", "delay"), "missing"] == 1
    assert numbers["exact"].all()
    assert not statistics(frame, limit=2).to_pandas()["exact"].any()
    schema = SCHEMA.to_pandas().set_index("name")
    assert schema.loc["carrier", "values"] == ["AA", "UA"]
    assert schema.loc["delay", "min_fraction"] == 0.5
    found = validate(frame, SCHEMA)
    listed = anomalous_rows(frame, found, SCHEMA).to_pandas()
    assert listed[["feature", "values", "rows"]].to_numpy().tolist() == [
        ["carrier", ["ZZ"], [2]],
        ["seats", [9000], [2]],
    ]
    assert set(drift(frame, frame).to_pandas()["feature"]) == {"carrier", "delay", "seats"}
    for result in (statistics(frame), SCHEMA, found, drift(frame, frame), update_schema(SCHEMA, frame)):
        assert json.loads(result.to_json())
        assert "<" in result._repr_html_()


def test_a_schema_as_json_says_its_domains() -> None:
    features = json.loads(SCHEMA.to_json())["features"]
    assert features[0]["domain"] == {"kind": "values", "values": ["AA", "UA"], "min_mass": 1.0}
    assert features[1]["domain"] is None


def test_a_schema_is_edited_by_replacing_features() -> None:
    carrier = SCHEMA.feature("carrier")
    assert carrier is not None
    wider = SCHEMA.with_feature(replace(carrier, domain=Values(("AA", "UA", "ZZ"))))
    edited = wider.with_feature(Feature("new", "int"))
    assert [feature.name for feature in edited.features] == ["carrier", "delay", "seats", "new"]
    assert {one.type for one in validate(ROWS, edited).anomalies} == {"INT_TYPE_BIG_INT"}


def test_without_pandas_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    for result in (statistics(pa.table({"x": [1]})), SCHEMA, validate([{"x": 1}], SCHEMA), update_schema(SCHEMA, ROWS)):
        with pytest.raises(DrivetrainError, match=r"drivetrain\[pandas\]"):
            result.to_pandas()


# --- single examples


def test_single_examples() -> None:
    good = {"carrier": "AA", "delay": 2, "seats": 100}
    assert not validate_instance(good, SCHEMA).anomalies
    assert not validate_instance({"carrier": "AA", "seats": 100}, SCHEMA).anomalies  # half of the delays may be missing
    (anomaly,) = validate_instance([good, good | {"carrier": "ZZ"}, good], SCHEMA).anomalies
    assert (anomaly.type, [row["row"] for row in anomaly.rows]) == ("ENUM_TYPE_UNEXPECTED_STRING_VALUES", [1])
    found = validate_instance({"carrier": None, "seats": "many", "extra": 1}, SCHEMA)
    assert {(one.feature, one.type) for one in found.anomalies} == {
        ("carrier", "FEATURE_TYPE_NOT_PRESENT"),
        ("seats", "UNEXPECTED_DATA_TYPE"),
        ("extra", "SCHEMA_NEW_COLUMN"),
    }
    missing = validate_instance({"seats": 1}, SCHEMA)
    assert [(one.feature, one.type) for one in missing.anomalies] == [("carrier", "SCHEMA_MISSING_COLUMN")]


def test_what_holds_of_many_rows_is_not_demanded_of_one() -> None:
    many = Schema(
        (Feature("x", "string", Presence(0.9, 100), Values(("a",), 0.5)), Feature("y", "int", domain=Bool())),
        min_rows=50,
    )
    assert not validate_instance({"x": "b", "y": 1}, many).anomalies
    with pytest.raises(InputError, match="no example"):
        validate_instance([], many)
    with pytest.raises(InputError, match="'x' is not a column of one type"):
        validate_instance([{"x": "a"}, {"x": [1]}], many)


def test_environments_of_single_examples() -> None:
    schema = Schema(
        (Feature("x", "int", Presence(1.0)), Feature("label", "int", Presence(1.0), not_in_environments=("SERVING",))),
        environments=("TRAINING", "SERVING"),
    )
    assert validate_instance({"x": 1}, schema, environment="SERVING").passed
    assert not validate_instance({"x": 1}, schema, environment="TRAINING").passed


def test_nothing_readable_is_named(tmp_path: Path) -> None:
    for call in (infer_schema, lambda data: validate(data, SCHEMA), lambda data: update_schema(SCHEMA, data)):
        with pytest.raises(InputError, match="cannot be read as rows"):
            call(42)
        with pytest.raises(InputError, match=r"none\.parquet"):
            call(tmp_path / "none.parquet")


TABLE = pa.table({"a": [1, 2, 3], "b": ["x", "y", "z"]})
WRONG: list[tuple[str, Any, str]] = [
    (
        "a change by its number alone",
        lambda: update_schema(infer_schema(TABLE), TABLE).accept(cast("Any", 1)),
        "[1, 3]",
    ),
    ("a change by text", lambda: update_schema(infer_schema(TABLE), TABLE).reject(cast("Any", ["1"])), "[1, 3]"),
    ("a slack of text", lambda: infer_schema(TABLE, slack=cast("Any", "x")), "slack is 'x', not a number"),
    ("a truth as slack", lambda: infer_schema(TABLE, slack=True), "slack is True, not a number"),
    ("a fraction of values", lambda: infer_schema(TABLE, max_values=cast("Any", 1.5)), "not a whole number"),
    ("a drift that is not there", lambda: drift(TABLE, TABLE)["aa"], "did you mean 'a'?"),
    ("an alpha of text", lambda: drift(TABLE, TABLE, alpha=cast("Any", "x")), "alpha is 'x', not a number"),
    ("pairs that are none", lambda: drift(TABLE, TABLE, pairs=cast("Any", ["a"])), "not a list of pairs"),
    ("a path for bounds", lambda: drift(TABLE, TABLE, schema=cast("Any", "s.yaml")), "load_schema('s.yaml')"),
    ("a path to update", lambda: update_schema(cast("Any", "s.yaml"), TABLE), "load_schema('s.yaml')"),
    ("an update exchanged", lambda: update_schema(cast("Any", TABLE), SCHEMA), "write update_schema(schema, data)"),
    ("a feature that is not there", lambda: SCHEMA.feature("carier"), "did you mean 'carrier'?"),
    ("a difference that is not there", lambda: diff_examples(TABLE, TABLE, key="a")["bb"], "did you mean 'b'?"),
    ("a key that is no name", lambda: diff_examples(TABLE, TABLE, key=cast("Any", 3)), "key is 3"),
]


@pytest.mark.parametrize(("call", "says"), [pytest.param(call, says, id=name) for name, call, says in WRONG])
def test_a_wrong_argument_is_one_clear_error(call: Any, says: str) -> None:
    with pytest.raises(InputError) as caught:
        call()
    assert says in str(caught.value)


def test_a_feature_that_may_be_missing_is_looked_for() -> None:
    assert SCHEMA.find_feature("carrier") == SCHEMA.feature("carrier")
    assert SCHEMA.find_feature("carier") is None
