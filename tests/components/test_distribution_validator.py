"""Drift of whole pipelines: the first run passes and says so, the next is judged, a second try changes nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from drivetrain.components import (
    DistributionValidator,
    ExampleGen,
    ExampleValidator,
    ImportSchema,
    StatisticsGen,
)
from drivetrain.errors import InputError
from drivetrain.metadata import Statistics
from drivetrain.pipelines import Home, RunOptions, RunResult, load_pipeline, run_pipeline
from scipy import stats

EXECUTORS = ["local", pytest.param("beam", marks=[pytest.mark.beam, pytest.mark.slow])]


def span(path: Path, shift: float = 0.0, rows: int = 900, seed: int = 0, **more: Any) -> str:
    """Fares around 20 + shift, and cities of which the share of "Oslo" grows with it."""
    random = np.random.default_rng(seed)
    city = np.where(random.random(rows) < 0.3 + shift / 20, "Oslo", "Bergen")
    pq.write_table(pa.table({"fare": random.normal(20 + shift, 2, rows), "city": city, **more}), path)
    return str(path)


def statistics_of(path: Path, *arguments: Any, **options: Any) -> Statistics:
    return StatisticsGen(ExampleGen(span(path, *arguments, **options), splits={"all": 1}))


PIPELINE = """
import drivetrain as dt
from drivetrain.components import *
from drivetrain.metadata import Examples, Model, Statistics

@dt.component
def Consume(examples: Examples) -> Model:
    return Model.new()

@dt.pipeline
def shop(data: str) -> None:
    examples = ExampleGen(data, splits={"train": 2, "eval": 1})
    statistics = StatisticsGen(examples)
    schema = ImportSchema("schema.yaml")
    previous = dt.latest(Statistics, passed=True)
    ExampleValidator(examples, statistics, schema, previous=previous)
    DistributionValidator(statistics, previous, schema, examples=examples, thresholds={"*": {"psi": 0.5}})
    Consume(examples)
"""
SCHEMA = """
format: drivetrain.schema/1
features:
  fare: {type: float, drift: {wasserstein_sigma: 0.5}}
  city: {type: string, drift: {l_infinity: 0.2}}
"""


def run(tmp_path: Path, home: Home, executor: str, *arguments: Any, **options: Any) -> RunResult:
    folder = tmp_path / "shop"
    folder.mkdir(exist_ok=True)
    (folder / "pipeline.py").write_text(PIPELINE)
    (folder / "schema.yaml").write_text(SCHEMA)
    data = span(tmp_path / "data.parquet", *arguments, **options)
    return run_pipeline(home, load_pipeline(folder), {"data": data}, RunOptions(executor=executor))


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_span_that_drifts_is_held_back_and_stays_so(tmp_path: Path, executor: str) -> None:
    home = Home(tmp_path / "home" / ".drivetrain")
    first = run(tmp_path, home, executor)
    node = first.nodes["DistributionValidator"]
    (made,) = node.outputs["anomalies"]
    assert (first.state, made.properties["passed"]) == ("COMPLETE", True)
    assert made.properties["summary"] == "passed: there is no baseline yet, nothing to compare with"
    assert first.nodes["ExampleValidator"].outputs["anomalies"][0].properties["passed"]

    calm = run(tmp_path, home, executor, seed=1)
    assert calm.state == "COMPLETE"
    (made,) = calm.nodes["DistributionValidator"].outputs["anomalies"]
    assert made.properties["summary"] == "no anomalies in 900 rows; 0 of 2 features changed"
    assert made.properties["drifted"] == []
    table = json.loads((home.payloads.local(made.uri) / "content" / "drift.json").read_text())
    assert [pair["current"]["name"] for pair in table["pairs"]] == ["train", "eval"]
    assert [feature["name"] for feature in table["pairs"][0]["features"]] == ["fare", "city"]

    for state in ("COMPLETE", "CACHED"):  # to try again is not a way through: it meets the same baseline
        drifted = run(tmp_path, home, executor, 6.0, seed=2)
        assert drifted.state == "STOPPED"
        for name in ("DistributionValidator", "ExampleValidator"):
            (made,) = drifted.nodes[name].outputs["anomalies"]
            assert (drifted.nodes[name].state, made.properties["passed"]) == (state, False)
            assert "COMPARATOR_WASSERSTEIN_HIGH" in made.properties["summary"]
            assert "fare" in made.properties["drifted"]
            named = json.loads((home.payloads.local(made.uri) / "content" / "anomalies.json").read_text())["anomalies"]
            assert made.properties["drifted"] == sorted({each["feature"] for each in named})
        assert drifted.nodes["Consume"].state == "BLOCKED"
    # What was held back does not become the measure for what comes next.
    assert run(tmp_path, home, executor, 6.0, seed=3).state == "STOPPED"
    back = run(tmp_path, home, executor, seed=4)
    assert back.state == "COMPLETE"
    home.close()


def test_numbers_are_those_of_scipy(tmp_path: Path) -> None:
    old, new = statistics_of(tmp_path / "old.parquet"), statistics_of(tmp_path / "new.parquet", 3.0, seed=3)
    anomalies = DistributionValidator(new, old, thresholds={"fare": {"kolmogorov_smirnov": 0.1, "wasserstein": 9.0}})
    (anomaly,) = json.loads((anomalies.content / "anomalies.json").read_text())["anomalies"]
    sides = [pq.read_table(tmp_path / name)["fare"].to_numpy() for name in ("new.parquet", "old.parquet")]
    distance = stats.ks_2samp(*sides).statistic
    assert anomaly["type"] == "COMPARATOR_KOLMOGOROV_SMIRNOV_HIGH"
    assert anomaly["observed"].startswith(f"{distance:.6g}")
    assert (anomalies.passed, anomalies.errors) == (False, 1)
    for report in ("report.html", "anomalies.html"):
        assert (anomalies.extra / report).read_text().startswith("<!doctype html>")
    assert ">blocked<" in (anomalies.extra / "report.html").read_text()


def test_every_feature_and_one_apart(tmp_path: Path) -> None:
    old, new = statistics_of(tmp_path / "old.parquet"), statistics_of(tmp_path / "new.parquet", 9.0)
    everywhere = {"*": {"wasserstein_sigma": 0.1, "l_infinity": 1.0}}  # the first means nothing for a text: no anomaly
    anomalies = DistributionValidator(new, old, thresholds=everywhere)
    assert anomalies.summary.startswith("1 error (fare: COMPARATOR_WASSERSTEIN_HIGH)")
    assert DistributionValidator(new, old, thresholds={**everywhere, "fare": {"wasserstein_sigma": 99.0}}).passed
    anomalies = DistributionValidator(new, old)
    assert anomalies.passed
    assert anomalies.summary.endswith("2 of 2 features changed by the tests; no bound is set, so none is an anomaly")


def test_what_is_bounded_and_cannot_be_compared_does_not_pass(tmp_path: Path) -> None:
    old, new = statistics_of(tmp_path / "old.parquet"), statistics_of(tmp_path / "new.parquet")
    more = statistics_of(tmp_path / "more.parquet", tip=np.ones(900))
    absent = DistributionValidator(new, old, thresholds={"tip": {"psi": 0.1}})
    assert absent.summary.startswith("1 error (tip: SCHEMA_MISSING_COLUMN)")
    unknown = DistributionValidator(more, old, thresholds={"tip": {"psi": 0.1}})
    assert unknown.summary.startswith("1 error (tip: COMPARATOR_CONTROL_DATA_MISSING)")
    with pytest.raises(InputError, match="no comparator 'phi'"):
        DistributionValidator(new, old, thresholds={"*": {"phi": 0.1}})


def test_an_environment_without_the_label(tmp_path: Path) -> None:
    old = statistics_of(tmp_path / "old.parquet", late=np.arange(900) % 2)
    new = statistics_of(tmp_path / "new.parquet")
    (tmp_path / "schema.yaml").write_text(
        "format: drivetrain.schema/1\nenvironments: [TRAINING, SERVING]\nfeatures:\n"
        "  late: {type: int, not_in_environments: [SERVING], skew: {l_infinity: 0.1}}\n"
        "  city: {type: string, skew: {l_infinity: 0.9}}\n"
    )
    schema = ImportSchema(str(tmp_path / "schema.yaml"))
    absent = DistributionValidator(new, old, schema, comparator="skew", environment="TRAINING")
    assert absent.summary.startswith("1 error (late: SCHEMA_MISSING_COLUMN)")
    assert DistributionValidator(new, old, schema, comparator="skew", environment="SERVING").passed
    with pytest.raises(InputError, match="no environment 'SERVIN'"):
        DistributionValidator(new, old, schema, comparator="skew", environment="SERVIN")


def test_splits_of_one_data_set(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": np.arange(300) % 7, "fold": np.repeat(["a", "b"], 150)}), tmp_path / "x.parquet")
    statistics = StatisticsGen(ExampleGen(str(tmp_path / "x.parquet"), split_column="fold"))
    anomalies = DistributionValidator(
        statistics, statistics, pairs=[["b", "a"]], thresholds={"fold": {"l_infinity": 0.5}, "x": {"l_infinity": 0.1}}
    )
    (anomaly,) = json.loads((anomalies.content / "anomalies.json").read_text())["anomalies"]
    assert (anomaly["split"], anomaly["feature"]) == ("b", "fold")
    with pytest.raises(InputError, match="no data set 'c'"):
        DistributionValidator(statistics, statistics, pairs=[["c", "a"]])


def test_the_schemas_skew_and_rows(tmp_path: Path) -> None:
    (tmp_path / "schema.yaml").write_text(
        "format: drivetrain.schema/1\nrows: {drift: {min: 0.5}}\nfeatures:\n"
        "  fare: {type: float, skew: {kolmogorov_smirnov: 0.2}}\n  city: {type: string}\n"
    )
    schema = ImportSchema(str(tmp_path / "schema.yaml"))
    old = statistics_of(tmp_path / "old.parquet")
    few, served = statistics_of(tmp_path / "few.parquet", rows=90), statistics_of(tmp_path / "served.parquet", 5.0)
    anomalies = DistributionValidator(few, old, schema)
    assert anomalies.summary.startswith("1 error (all: COMPARATOR_LOW_NUM_EXAMPLES)")
    assert DistributionValidator(old, served, schema, comparator="skew").errors == 1
    examples = ExampleGen(str(tmp_path / "old.parquet"), splits={"all": 1})
    assert ExampleValidator(examples, old, schema, serving=old).passed
    assert ExampleValidator(examples, old, schema, serving=served).errors == 1
    fewer = ExampleGen(str(tmp_path / "few.parquet"), splits={"all": 1})
    assert ExampleValidator(fewer, few, schema, previous=old).errors == 1


def test_fields_of_structs_are_bounded(tmp_path: Path) -> None:
    fields = {"zip": {"type": "int", "drift": {"l_infinity": 0.5}}, "gone": {"drift": {"psi": 1}}}
    schema = {"format": "drivetrain.schema/1", "features": {"home": {"type": "struct", "fields": fields}}}
    (tmp_path / "schema.yaml").write_text(json.dumps(schema))
    old = statistics_of(tmp_path / "old.parquet", home=[{"zip": 1}] * 900)
    new = statistics_of(tmp_path / "new.parquet", home=[{"zip": 2}] * 900)
    anomalies = DistributionValidator(new, old, ImportSchema(str(tmp_path / "schema.yaml")))
    document = json.loads((anomalies.content / "anomalies.json").read_text())
    assert [(one["feature"], one["path"], one["type"]) for one in document["anomalies"]] == [
        ("home.gone", ["home", "gone"], "SCHEMA_MISSING_COLUMN"),
        ("home.zip", ["home", "zip"], "COMPARATOR_L_INFTY_HIGH"),
    ]
