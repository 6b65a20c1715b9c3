"""The corrupted month of real flights is caught, with its rows; clean data passes; Great Expectations agrees."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from drivetrain.data import (
    Anomalies,
    Source,
    anomalous_rows,
    infer_schema,
    open_files,
    schema_from_yaml,
    schema_to_expectations,
    schema_to_yaml,
    statistics,
    validate,
)
from drivetrain.tests.data.flights import corrupted, month


def source(table: pa.Table, folder: Path, name: str) -> Source:
    pq.write_table(table, folder / f"{name}.parquet", row_group_size=10_000)
    return open_files([folder / f"{name}.parquet"])


@pytest.fixture(scope="module")
def january() -> pa.Table:
    return month(1)


def test_the_corrupted_month(january: pa.Table, tmp_path: Path) -> None:
    schema = infer_schema(statistics({"train": source(january, tmp_path, "clean")}))
    schema = schema_from_yaml(schema_to_yaml(schema))
    bad, rows = corrupted(january)
    data = {"train": source(bad, tmp_path, "bad")}
    found = anomalous_rows(data, validate(statistics(data), schema), schema)
    assert not found.passed
    assert found.errors == 4
    by_name = {(anomaly.type, anomaly.feature): anomaly for anomaly in found.anomalies}
    assert set(by_name) == {
        ("ENUM_TYPE_UNEXPECTED_STRING_VALUES", "carrier"),
        ("UNEXPECTED_DATA_TYPE", "dep_time"),
        ("SCHEMA_MISSING_COLUMN", "time_hour"),
        ("FEATURE_TYPE_LOW_FRACTION_PRESENT", "dest"),
    }
    enum = by_name["ENUM_TYPE_UNEXPECTED_STRING_VALUES", "carrier"]
    assert enum.values == ({"value": "ZZ_NEW", "count": 50},)
    assert [row["row"] for row in enum.rows] == rows["carrier"][:5].tolist()
    assert all(row["values"]["carrier"] == "ZZ_NEW" for row in enum.rows)
    first = bad.slice(int(rows["carrier"][0]), 1).to_pylist()[0]
    assert enum.rows[0]["values"] == first
    missing = by_name["FEATURE_TYPE_LOW_FRACTION_PRESENT", "dest"]
    assert [row["row"] for row in missing.rows] == rows["dest"][:5].tolist()
    assert "missing in 100 of" in missing.message
    as_text = by_name["UNEXPECTED_DATA_TYPE", "dep_time"]
    assert "all that train has of it can be read as int" in as_text.message
    assert (as_text.values, as_text.rows) == ((), ())  # no row is wrong by itself
    assert by_name["SCHEMA_MISSING_COLUMN", "time_hour"].rows == ()
    found.save(tmp_path / "anomalies.json")
    assert Anomalies.load(tmp_path / "anomalies.json").document == found.document
    assert "ZZ_NEW" in found.to_html()


def test_june_against_january(january: pa.Table, tmp_path: Path) -> None:
    schema = infer_schema(statistics(source(january, tmp_path, "january")))
    june = {"train": source(month(6), tmp_path, "june")}
    found = validate(statistics(june), schema)
    # A constant column of January is not a bool, so June's month is fine; five destinations are new.
    assert [(anomaly.type, anomaly.feature) for anomaly in found.anomalies] == [
        ("ENUM_TYPE_UNEXPECTED_STRING_VALUES", "dest")
    ]
    assert {item["value"] for item in found.anomalies[0].values} == {"ABQ", "ACK", "BGR", "MVY", "TVC"}


def test_clean_data_passes(january: pa.Table, tmp_path: Path) -> None:
    found = statistics({"train": source(january, tmp_path, "clean")})
    anomalies = validate(found, infer_schema(found))
    assert anomalies.passed
    assert anomalies.anomalies == ()
    assert anomalies.summary == f"no anomalies in {len(january):,} rows"


@pytest.mark.gx
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::Warning")  # great_expectations and what it imports warn of their own future
def test_great_expectations_agrees(january: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GX_ANALYTICS_ENABLED", "false")
    gx = pytest.importorskip("great_expectations")
    schema = infer_schema(statistics(source(january, tmp_path, "january")))
    suite = json.loads(json.dumps(schema_to_expectations(schema)))
    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = {"globally": False}
    loaded = gx.ExpectationSuite(**suite)
    assert len(loaded.expectations) == len(suite["expectations"])
    batches = context.data_sources.add_pandas("pandas").add_dataframe_asset("rows")
    batch = batches.add_batch_definition_whole_dataframe("whole")
    clean = batch.get_batch({"dataframe": january.to_pandas()}).validate(loaded)
    assert clean.success, [result.expectation_config for result in clean.results if not result.success]
    bad, _ = corrupted(january)
    dirty = batch.get_batch({"dataframe": bad.to_pandas()}).validate(loaded)
    assert not dirty.success
    failed = {result.expectation_config.meta["anomaly"] for result in dirty.results if not result.success}
    assert failed >= {
        "ENUM_TYPE_UNEXPECTED_STRING_VALUES",
        "UNEXPECTED_DATA_TYPE",
        "SCHEMA_MISSING_COLUMN",
        "FEATURE_TYPE_LOW_FRACTION_PRESENT",
    }
