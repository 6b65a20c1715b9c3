"""Each condition of the schema, one by one: triggers, severities, evidence, rows."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from drivetrain.data import (
    Anomalies,
    Anomaly,
    Bool,
    Count,
    Feature,
    Presence,
    Range,
    Ratio,
    Schema,
    StatisticsAccumulator,
    Values,
    anomalous_rows,
    infer_schema,
    open_parquet,
    validate,
)
from drivetrain.data.stats.document import Statistics, from_states, statistics
from drivetrain.errors import InputError
from drivetrain.metadata import Schema as SchemaArtifact


def stats(limit: int = 100_000, **columns: pa.Array) -> Statistics:
    state = StatisticsAccumulator(limit)
    state.add_batch(pa.RecordBatch.from_arrays(list(columns.values()), list(columns)))
    return from_states({"train": state})


def check(array: pa.Array, feature: Feature, limit: int = 100_000, **more: Any) -> list[Anomaly]:
    return list(validate(stats(limit, x=array), Schema((feature,), **more)).anomalies)


def types(array: pa.Array, feature: Feature, limit: int = 100_000, **more: Any) -> list[str]:
    return [anomaly.type for anomaly in check(array, feature, limit, **more)]


def test_presence() -> None:
    half = pa.array([1, None, 2, None])
    assert types(half, Feature("x", presence=Presence(min_fraction=0.5, min_count=2))) == []
    assert types(half, Feature("x", presence=Presence(min_fraction=0.75, min_count=3))) == [
        "FEATURE_TYPE_LOW_FRACTION_PRESENT",
        "FEATURE_TYPE_LOW_NUMBER_PRESENT",
    ]
    assert types(pa.nulls(2, pa.int64()), Feature("x", "int", Presence(1.0, 1))) == ["FEATURE_TYPE_NOT_PRESENT"]
    assert types(pa.nulls(2, pa.string()), Feature("x", "int", Presence())) == []


def test_lists_without_a_text_are_of_another_type() -> None:
    empty = pa.array([[None], None], pa.list_(pa.string()))
    assert types(empty, Feature("x", "int", value_counts=(Count(),))) == ["UNEXPECTED_DATA_TYPE"]


def test_columns() -> None:
    found = validate(stats(y=pa.array([1])), Schema((Feature("x", presence=Presence(min_count=1)), Feature("z"))))
    assert [(anomaly.type, anomaly.feature) for anomaly in found.anomalies] == [
        ("SCHEMA_MISSING_COLUMN", "x"),
        ("SCHEMA_NEW_COLUMN", "y"),
    ]


def test_types_widen_from_int_to_float_only() -> None:
    assert types(pa.array([1]), Feature("x", "float")) == []
    assert types(pa.array([1.5]), Feature("x", "int")) == ["UNEXPECTED_DATA_TYPE"]
    assert types(pa.array([b"a"]), Feature("x", "string")) == []
    assert types(pa.array([True]), Feature("x", "int")) == ["UNEXPECTED_DATA_TYPE"]
    (anomaly,) = check(pa.array(["1", "2", "n/a", "n/a"]), Feature("x", "int"))
    assert anomaly.values == ({"value": "n/a", "count": 2},)


def test_values() -> None:
    array = pa.array(["a"] * 9 + ["q"])
    (anomaly,) = check(array, Feature("x", "string", domain=Values(("a", "b"))))
    assert anomaly.type == "ENUM_TYPE_UNEXPECTED_STRING_VALUES"
    assert anomaly.values == ({"value": "q", "count": 1},)
    # Exactly ten per cent off is not more than 1 − 0.9; TFDV says so because of floats.
    assert types(array, Feature("x", "string", domain=Values(("a",), 0.9))) == []
    assert len(types(array, Feature("x", "string", domain=Values(("a",), 0.91)))) == 1


def test_a_rare_value_in_a_long_tail_is_seen() -> None:
    names = [f"v{i:05d}" for i in range(5_000)]
    array = pa.array([*names, *names, "bad"])
    (anomaly,) = check(array, Feature("x", "string", domain=Values(tuple(names))))
    assert anomaly.values == ({"value": "bad", "count": 1},)


def test_values_where_only_a_summary_is_left() -> None:
    array = pa.array(["a"] * 50 + [f"id{i}" for i in range(50)])
    (anomaly,) = check(array, Feature("x", "string", domain=Values(("a",))), limit=10)
    assert anomaly.message.startswith("about 50 rows")


def test_broken_text() -> None:
    broken = pa.Array.from_buffers(pa.string(), 2, pa.array([b"\xff", b"ok"]).buffers())
    assert types(broken, Feature("x", "string", domain=Values(("ok",)))) == ["ENUM_TYPE_INVALID_UTF8"]
    assert types(broken, Feature("x", "string", domain=Values(("no",)))) == [
        "ENUM_TYPE_INVALID_UTF8",
        "ENUM_TYPE_UNEXPECTED_STRING_VALUES",
    ]


def test_ranges() -> None:
    found = check(pa.array([-5, 3, 900]), Feature("x", "int", domain=Range(0, 100)))
    assert [anomaly.type for anomaly in found] == ["INT_TYPE_SMALL_INT", "INT_TYPE_BIG_INT"]
    assert found[0].values == ({"value": -5, "count": 1},)
    assert types(pa.array([0, 100]), Feature("x", "int", domain=Range(0, 100))) == []
    odd = pa.array([-1.0, math.nan, math.inf, 5.0])
    assert types(odd, Feature("x", "float", domain=Range(0, 10, True, True))) == [
        "FLOAT_TYPE_SMALL_FLOAT",
        "FLOAT_TYPE_BIG_FLOAT",
        "FLOAT_TYPE_HAS_NAN",
        "FLOAT_TYPE_HAS_INF",
    ]
    assert types(pa.array([-math.inf]), Feature("x", "float", domain=Range(0, 10))) == ["FLOAT_TYPE_SMALL_FLOAT"]
    assert types(pa.array([20]), Feature("x", "float", domain=Range(max=10))) == ["FLOAT_TYPE_BIG_FLOAT"]


@pytest.mark.parametrize(("text", "limit"), [(False, 100_000), (False, 1), (True, 100_000)])
@pytest.mark.parametrize("end", ["min", "max"])
def test_an_infinite_value_is_not_answered_by_another_bound(end: str, text: bool, limit: int) -> None:
    """No `max` but none admits infinity."""
    sign = 1 if end == "max" else -1
    inside, outside, endless = 5.0 * sign, 20.0 * sign, math.inf * sign
    feature = Feature("x", "string", domain=Range(-10, 10, parse="float")) if text else Feature("x", "float")
    feature = replace(feature, domain=feature.domain or Range(-10, 10))

    def anomaly(*values: float) -> Anomaly:
        column = pa.array([str(value) for value in values] if text else list(values))
        (found,) = check(column, feature, limit)
        return found

    only = anomaly(inside, 1.0, endless, endless)
    assert only.message == f"x is infinite in 2 rows, {'above 10' if sign > 0 else 'below -10'}"
    assert "division or overflow" in only.fix
    assert f"remove {end}" in only.fix
    both = anomaly(inside, 1.0, endless, outside)
    assert both.message.endswith(", and is infinite in 1 rows")
    assert f"{'raise' if sign > 0 else 'lower'} {end}" in both.fix
    finite = anomaly(inside, 1.0, outside)
    assert "infinite" not in finite.message + finite.fix


def test_bools() -> None:
    flag = Feature("x", "int", domain=Bool())
    assert types(pa.array([0, 1, None]), flag) == []
    assert types(pa.array([-1, 6]), flag) == ["BOOL_TYPE_SMALL_INT", "BOOL_TYPE_BIG_INT"]
    real = Feature("x", "float", domain=Bool())
    assert types(pa.array([0.0, 1.0]), real) == []
    for odd in (0.5, math.nan, math.inf, -math.inf, 2.0):
        assert types(pa.array([0.0, odd]), real) == ["BOOL_TYPE_UNEXPECTED_FLOAT"]
    text = Feature("x", "string", domain=Bool("yes", "no"))
    assert types(pa.array(["yes", "no"]), text) == []
    assert types(pa.array(["yes", "maybe"]), text) == ["BOOL_TYPE_UNEXPECTED_STRING"]


def test_number_of_rows() -> None:
    two = pa.array([1, 2])
    assert types(two, Feature("x"), min_rows=3) == ["DATASET_LOW_NUM_EXAMPLES"]
    assert types(two, Feature("x"), max_rows=1) == ["DATASET_HIGH_NUM_EXAMPLES"]
    nothing = validate(from_states({"train": StatisticsAccumulator()}), Schema((Feature("x"),)))
    assert [anomaly.type for anomaly in nothing.anomalies] == ["DATA_MISSING"]
    assert not nothing.passed


def test_only_errors_block() -> None:
    bad = pa.array(["q"])
    soft = Feature("x", "string", domain=Values(("a",)), severity={"ENUM_TYPE_UNEXPECTED_STRING_VALUES": "WARNING"})
    found = validate(stats(x=bad), Schema((soft,)))
    assert (found.passed, found.errors, len(found.anomalies)) == (True, 0, 1)
    everywhere = Schema((Feature("x", "int"),), severity={"UNEXPECTED_DATA_TYPE": "INFO"})
    found = validate(stats(x=bad), everywhere)
    assert found.passed
    assert found.summary == "1 info (x: UNEXPECTED_DATA_TYPE)"


def test_inference() -> None:
    found = infer_schema(
        stats(
            both=pa.array([0, 1, 1]),
            ones=pa.array([1, 1, 1]),
            word=pa.array(["true", "false", "true"]),
            yes=pa.array(["yes", "no", None]),
            none=pa.nulls(3, pa.string()),
            real=pa.array([0.5, 1.5, 2.5]),
        ),
        max_values=2,
    )
    by_name = {feature.name: feature for feature in found.features}
    assert by_name["both"].domain == Bool()
    assert by_name["ones"].domain is None
    assert by_name["word"].domain == Bool("true", "false")
    assert by_name["yes"].domain == Values(("no", "yes"))
    assert by_name["yes"].presence == Presence(None, 1)
    assert by_name["none"] == Feature("none", "any", Presence(None, 0))
    assert by_name["real"] == Feature("real", "float", Presence(1.0, 1))
    assert infer_schema(stats(x=pa.array(["a", "b", "c"])), max_values=2).features[0].domain is None
    with pytest.raises(InputError, match="no data set has rows"):
        infer_schema(from_states({"train": StatisticsAccumulator()}))
    with pytest.raises(InputError, match=r"no statistics of 'eval'\n.*the data sets are named"):
        infer_schema(stats(x=pa.array([1])), split="eval")
    with pytest.raises(InputError, match="did you mean 'train'"):
        infer_schema(stats(x=pa.array([1])), split="trian")
    with pytest.raises(InputError, match="max_values is -1"):
        infer_schema(stats(x=pa.array([1])), max_values=-1)


def test_rows_are_found_across_shards(tmp_path: Path) -> None:
    table = pa.table(
        {
            "word": ["a", "b", None, "a", "odd", "a", "odd", "odd"],
            "size": [1.0, 99.0, math.nan, math.inf, 5.0, -1.0, 2.0, 99.0],
            "flag": [0, 1, 0, 7, 0, -3, 1, 1],
        }
    )
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=3)
    source = open_parquet([tmp_path / "x.parquet"])
    state = StatisticsAccumulator()
    for batch in table.to_batches():
        state.add_batch(batch)
    schema = Schema(
        (
            Feature("word", "string", Presence(1.0), Values(("a", "b"))),
            Feature("size", "float", domain=Range(0, 10, True, True)),
            Feature("flag", "int", domain=Bool()),
        )
    )
    found = anomalous_rows({"train": source}, validate(from_states({"train": state}), schema), schema, limit=2)
    rows = {anomaly.type: [row["row"] for row in anomaly.rows] for anomaly in found.anomalies}
    assert rows == {
        "FEATURE_TYPE_LOW_FRACTION_PRESENT": [2],
        "ENUM_TYPE_UNEXPECTED_STRING_VALUES": [4, 6],
        "FLOAT_TYPE_SMALL_FLOAT": [5],
        "FLOAT_TYPE_BIG_FLOAT": [1, 3],
        "FLOAT_TYPE_HAS_NAN": [2],
        "FLOAT_TYPE_HAS_INF": [3],
        "BOOL_TYPE_SMALL_INT": [5],
        "BOOL_TYPE_BIG_INT": [3],
    }
    nan = next(anomaly for anomaly in found.anomalies if anomaly.type == "FLOAT_TYPE_HAS_NAN")
    assert nan.rows[0]["values"] == {"size": "nan", "word": None, "flag": 0}
    found.save(tmp_path / "a.json")
    assert Anomalies.load(tmp_path / "a.json").anomalies == found.anomalies


def test_a_column_that_was_not_measured_is_not_called_missing(tmp_path: Path) -> None:
    table = pa.table({"x": [1, 2], "y": [3, 4]})
    statistics(table, columns=["x"]).save(tmp_path)
    (anomaly,) = validate(Statistics.load(tmp_path), infer_schema(table)).anomalies
    assert anomaly.message == "column y is not among the columns that the statistics were asked for"
    assert "add y to the columns=" in anomaly.fix


def test_an_artifact_in_the_place_of_a_schema_is_called_one() -> None:
    artifact: Any = SchemaArtifact.new()
    with pytest.raises(InputError, match="takes a Schema, not an artifact") as caught:
        validate(pa.table({"x": [1]}), artifact)
    assert caught.value.fix == 'read it: load_schema(artifact.content / "schema.yaml")'


def test_rows_are_counted_beyond_a_sample() -> None:
    table = pa.table({"x": range(1000)})
    sample = statistics(table, sample_rate=0.1)
    assert 0 < sample.splits["data"] < 1000
    schema = Schema((Feature("x", "int"),), min_rows=1000, rows_drift=Ratio(0.9, 1.1))
    assert validate(sample, schema, previous=statistics(table)).anomalies == ()
    assert validate(statistics(table), schema, previous=sample).anomalies == ()
    # So are those that have a value, by the sample's share of them; and the fields of structs.
    half = pa.table({"id": range(10_000), "x": [1, None] * 5_000, "s": [{"a": 1}, {"a": None}] * 5_000})
    part = statistics(half, sample_rate=0.1)
    for wanted, expected in ((4_000, []), (6_000, ["x", "s.a"])):
        always = Feature("s", "struct", fields=(Feature("a", "int", Presence(min_count=wanted)),))
        found = validate(part, Schema((Feature("id", "int"), Feature("x", "int", Presence(min_count=wanted)), always)))
        assert [each.feature for each in found.anomalies] == expected
        for anomaly in found.anomalies:
            assert anomaly.type == "FEATURE_TYPE_LOW_NUMBER_PRESENT"
            (estimate,) = re.findall(r"present in about ([\d,]+)", anomaly.observed)
            assert abs(int(estimate.replace(",", "")) - 5_000) < 500
