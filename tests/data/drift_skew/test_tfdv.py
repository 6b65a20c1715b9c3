"""TFDV's comparators: what it printed, where it is right, and the better result where it is not."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from drivetrain.data import open_files
from drivetrain.data.aggregates.tables import count_numbers
from drivetrain.data.drift_skew.compare import Comparison
from drivetrain.data.drift_skew.report import DriftReport, drift
from drivetrain.data.drift_skew.tfdv import tfdv_histogram, tfdv_jensen_shannon
from drivetrain.data.stats.accumulator import StatisticsAccumulator
from drivetrain.data.stats.document import Statistics, statistics
from drivetrain.tests.data.flights import year

GOLDEN = Path(__file__).parents[2] / "golden"
NAMES = {
    "L_INFTY": "l_infinity",
    "JENSEN_SHANNON_DIVERGENCE": "jensen_shannon",
    "NORMALIZED_ABSOLUTE_DIFFERENCE": "normalized_abs_difference",
}
# Where TFDV is wrong: what we give instead, and why.
BETTER = {
    "drift_linf_numeric_silent": 1.0,  # every 100 became a 1: TFDV looks at no number and passes
    "drift_jsd_nan_mass": 0.0,  # equal data: TFDV puts its NaN into cells that never match
}


def computed(columns: dict[str, Any], path: Path) -> Statistics:
    arrays = {}
    for name, column in columns.items():
        kind = {"int64": pa.int64(), "float32": pa.float32(), "string": pa.string()}[column["type"]]
        values = [float(v) if v in ("nan", "inf", "-inf") else v for v in column["values"]]
        arrays[name] = pa.array(values, kind, from_pandas=False)
    pq.write_table(pa.table(arrays), path)
    return statistics(open_files([path]))


def drift_cases() -> list[Any]:
    cases = json.loads((GOLDEN / "tfdv_cases.json").read_text())["cases"]
    anomalies = []
    for case in cases:
        control = case.get("previous_span") or case.get("serving")
        if control and case["expected"].get("drift_skew_info"):
            anomalies.append(pytest.param(case, control, id=case["name"]))
    return anomalies


@pytest.mark.parametrize(("case", "control"), drift_cases())
def test_golden_case(case: dict[str, Any], control: dict[str, Any], tmp_path: Path) -> None:
    report = drift(computed(case["input"], tmp_path / "a.parquet"), computed(control, tmp_path / "b.parquet"))
    for info in case["expected"]["drift_skew_info"]:
        (name,) = info["path"]["step"]
        for printed in info.get("drift_measurements", []) + info.get("skew_measurements", []):
            value = report[name].measures[NAMES[printed["type"]]].value
            wanted = BETTER.get(case["name"], printed["value"])
            assert value == pytest.approx(wanted, abs=5e-10), (name, printed)
            at = re.search(r"maximum difference is: (\w+)", json.dumps(case["expected"]["anomaly_info"]))
            if at and printed["type"] == "L_INFTY":
                assert report[name].measures["l_infinity"].at == at[1]


def test_there_are_golden_cases() -> None:
    assert {case.id for case in drift_cases()} >= {*BETTER, "drift_jsd_numeric", "normalized_abs_difference"}


def test_a_missing_rate_that_tfdv_ignores(tmp_path: Path) -> None:
    case = next(case.values[0] for case in drift_cases() if case.id == "drift_jsd_ignores_missing")
    current = computed(case["input"], tmp_path / "a.parquet")
    report = drift(current, computed(case["previous_span"], tmp_path / "b.parquet"))
    assert report["x"].measures["jensen_shannon"].value == 0.0  # as TFDV: what is there did not change
    assert report["x"].measures["missing_rate"].value == 0.5


@pytest.fixture(scope="module")
def months(tmp_path_factory: pytest.TempPathFactory) -> tuple[pa.Table, dict[int, Statistics]]:
    flights = year()
    folder = tmp_path_factory.mktemp("months")
    by_type = {}
    for month in (1, 6):
        path = folder / f"{month}.parquet"
        pq.write_table(flights.filter(pc.equal(flights["month"], month)), path)
        by_type[month] = statistics(open_files([path]))
    return flights, by_type


@pytest.fixture(scope="module")
def june(months: tuple[pa.Table, dict[int, Statistics]]) -> DriftReport:
    return drift(months[1][6], months[1][1])


def test_flights_equal_tfdv(june: DriftReport) -> None:
    golden = json.loads((GOLDEN / "flights_anomalies.json").read_text())
    printed = golden["drift_skew_month6_vs_month1"]["drift_skew_info"] + golden["drift_js_strings"]["drift_skew_info"]
    assert len(printed) == 20
    for info in printed:
        (name,) = info["path"]["step"]
        (measurement,) = info["drift_measurements"]
        value = june[name].measures[NAMES[measurement["type"]]].value
        # The bar is 3 %; the quantiles that TFDV's histogram is drawn from are exact here, so nothing remains of it.
        assert value == pytest.approx(measurement["value"], rel=1e-6, abs=1e-12), name


def test_l_infinity_of_flights(june: DriftReport) -> None:
    for name, value, at in (
        ("carrier", 0.009443, "DL"),
        ("origin", 0.009958, "LGA"),
        ("dest", 0.011092, "FLL"),
    ):
        measure = june[name].measures["l_infinity"]
        assert measure.value == pytest.approx(value, abs=1e-6)
        assert measure.at == at
        assert measure.exact


def test_histograms_equal_tfdv(months: tuple[pa.Table, dict[int, Statistics]]) -> None:
    golden = json.loads((GOLDEN / "flights_statistics.json").read_text())
    seen = 0
    for month in (1, 6):
        for name, feature in golden[f"month{month}"]["features"].items():
            if "histogram" not in feature or name == "time_hour":
                continue
            table = months[1][month].column("data", name).table
            edges, rows = tfdv_histogram(table)  # type: ignore[arg-type]
            buckets = feature["histogram"]
            assert rows == pytest.approx([count for *_, count in buckets], rel=1e-6), name
            assert edges[1:] == pytest.approx([high for _, high, _ in buckets], rel=1e-9), name
            seen += 1
    assert seen >= 26


def test_our_cells_ignore_an_outlier_that_stretches_tfdvs_histogram() -> None:
    rng = np.random.default_rng(5)
    a, b = rng.normal(size=5000), rng.normal(size=5000)
    far = np.append(a, 1e6)
    none = np.zeros(0)

    def peer(x: Any, y: Any) -> float:
        return tfdv_jensen_shannon(tfdv_histogram(count_numbers(x)), tfdv_histogram(count_numbers(y)), none, none)

    assert peer(a, b) < 0.02
    assert peer(far, b) > 0.1
    near, moved = (_quantile_divergence(x, b) for x in (a, far))
    assert moved == pytest.approx(near, abs=1e-3)
    assert moved < 0.01


def _quantile_divergence(a: Any, b: Any) -> float:
    states = []
    for values in (a, b):
        state = StatisticsAccumulator()
        state.add_batch(pa.RecordBatch.from_arrays([pa.array(values)], ["x"]))
        states.append(state)
    value = Comparison(states[0].columns["x"], states[1].columns["x"]).measure("jensen_shannon_quantiles").value
    assert value is not None
    return value


@pytest.mark.parametrize("values", [[0.0, 5e-324], [-1.7e308, 1.7e308], [2.0**53, 2.0**53 + 2], [0.0, 0.0, 1.0], [3.0]])
def test_histograms_of_extreme_numbers_hold_every_row(values: list[float]) -> None:
    edges, rows = tfdv_histogram(count_numbers(np.array(values)))
    assert np.isfinite(edges).all()
    assert math.isclose(rows.sum(), len(values))
    assert (rows >= 0).all()
