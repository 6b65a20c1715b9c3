"""Statistics of the real flights equal exact numpy."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from drivetrain.data import open_files
from drivetrain.data.local import LocalExecutor
from drivetrain.data.stats.document import Statistics, statistics
from drivetrain.tests.data.flights import year
from numpy.typing import NDArray


@pytest.fixture(scope="module")
def flights() -> pa.Table:
    return year()


@pytest.fixture(scope="module")
def computed(flights: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> Statistics:
    path = tmp_path_factory.mktemp("flights") / "flights.parquet"
    pq.write_table(flights, path, row_group_size=65_536)
    return statistics({"all": open_files([path])}, LocalExecutor(2))


def test_rows_and_columns(flights: pa.Table, computed: Statistics) -> None:
    assert computed.splits == {"all": 336_776}
    assert list(computed.features("all")) == flights.column_names


def test_numbers_equal_numpy(flights: pa.Table, computed: Statistics) -> None:
    numeric = [field.name for field in flights.schema if pa.types.is_integer(field.type)]
    assert len(numeric) == 14
    for name in numeric:
        column = flights.column(name)
        values = column.drop_null().to_numpy()
        feature = computed.features("all")[name]
        assert feature["type"] == "int"
        assert feature["count"] == len(values)
        assert feature["missing"] == column.null_count
        assert feature["mean"]["value"] == pytest.approx(values.mean(), rel=1e-14)
        assert feature["std"]["value"] == pytest.approx(values.std(), rel=1e-13)
        assert feature["min"]["value"] == values.min()
        assert feature["max"]["value"] == values.max()
        assert feature["zeros"]["value"] == (values == 0).sum()
        assert feature["unique"]["value"] == len(np.unique(values))
        assert feature["median"]["value"] == np.median(values)
        assert feature["quantiles"]["value"] == np.quantile(values, np.arange(11) / 10).tolist()
        buckets = feature["histogram"]["value"]
        if values.min() == values.max():
            assert [bucket["count"] for bucket in buckets] == [len(values)]
        else:
            edges = [bucket["low"] for bucket in buckets] + [buckets[-1]["high"]]
            assert [bucket["count"] for bucket in buckets] == np.histogram(values, bins=edges)[0].tolist()
            assert len({*np.diff(edges)}) == 1  # as many whole numbers in each, or a month in two would be a peak
            assert all(edge == int(edge) for edge in edges)
            assert edges[-2] <= values.max() < edges[-1]
            assert len(buckets) == {"month": 12, "day": 8, "hour": 8, "minute": 10}.get(name, len(buckets)) <= 12
        assert_top(feature, values)
        assert all(item["exact"] for item in feature.values() if isinstance(item, dict))


def assert_top(feature: dict[str, Any], values: NDArray[Any]) -> None:
    distinct, counts = np.unique(values, return_counts=True)
    pairs = sorted(zip(distinct.tolist(), counts.tolist(), strict=True), key=lambda pair: (pair[1], pair[0]))[::-1]
    assert [(item["value"], item["count"]) for item in feature["top_values"]["value"]] == pairs[:20]


def test_texts_equal_numpy(flights: pa.Table, computed: Statistics) -> None:
    for name in ("carrier", "tailnum", "origin", "dest"):
        column = flights.column(name)
        values = np.array(column.drop_null().to_pylist())
        feature = computed.features("all")[name]
        assert (feature["type"], feature["count"], feature["missing"]) == ("string", len(values), column.null_count)
        assert feature["unique"]["value"] == len(np.unique(values))
        assert feature["avg_length"]["value"] == pytest.approx(np.char.str_len(values).mean(), rel=1e-14)
        assert_top(feature, values)


def test_times_are_first_class(flights: pa.Table, computed: Statistics) -> None:
    feature = computed.features("all")["time_hour"]
    assert (feature["type"], feature["zone"]) == ("timestamp", "UTC")
    assert feature["min"] == {"value": "2013-01-01T10:00:00Z", "exact": True}
    assert feature["max"] == {"value": "2014-01-01T04:00:00Z", "exact": True}
    values = flights.column("time_hour").to_numpy()
    assert feature["unique"]["value"] == len(np.unique(values))
    assert feature["median"]["value"] == str(np.sort(values)[len(values) // 2].astype("datetime64[s]")) + "Z"


def test_files_round_trip(computed: Statistics, tmp_path: Path) -> None:
    computed.save(tmp_path)
    again = Statistics.load(tmp_path)
    assert json.loads((tmp_path / "statistics.json").read_text()) == computed.document
    assert again.document == computed.document
    assert again.state("all").to_bytes() == computed.state("all").to_bytes()
    again.save(tmp_path)
    assert again.to_json() == computed.to_json()


def test_threads_do_not_matter(flights: pa.Table, computed: Statistics, tmp_path: Path) -> None:
    path = tmp_path / "flights.parquet"
    pq.write_table(flights, path, row_group_size=65_536)
    from_one_thread = statistics({"all": open_files([path])}, LocalExecutor(1))
    assert from_one_thread.state("all").to_bytes() == computed.state("all").to_bytes()


def test_statistics_and_validation_import_no_pandas(flights: pa.Table, tmp_path: Path) -> None:
    """It costs more than the statistics of all flights; pyarrow imports it where arrays are made carelessly."""
    few = flights.slice(0, 1000).append_column("late", pc.greater(flights["dep_delay"].slice(0, 1000), 0))
    pq.write_table(few, tmp_path / "flights.parquet")
    pyarrow.csv.write_csv(few, tmp_path / "flights.csv")
    code = """
import sys
from drivetrain.data import infer_schema, open_files, statistics, validate
for path in sys.argv[1:]:
    found = statistics(open_files([path]), sample_rate=0.9)
    found.state("data").to_bytes()
    validate(found, infer_schema(found)).to_html() + found.to_html()
    assert "pandas" not in sys.modules, path
"""
    files = [str(tmp_path / "flights.parquet"), str(tmp_path / "flights.csv")]
    subprocess.run([sys.executable, "-c", code, *files], check=True, timeout=60)
