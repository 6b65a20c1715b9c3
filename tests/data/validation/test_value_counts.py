"""Environments, stages, numbers of values, distinct values, text that reads as numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from drivetrain.data import (
    Anomalies,
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
    schema_from_yaml,
    schema_to_yaml,
    validate,
)
from drivetrain.data.stats.document import Statistics, from_states
from drivetrain.errors import InputError


def stats(limit: int = 100_000, **columns: Any) -> Statistics:
    arrays = {name: pa.array(column) if isinstance(column, list) else column for name, column in columns.items()}
    state = StatisticsAccumulator(limit)
    state.add_batch(pa.RecordBatch.from_arrays(list(arrays.values()), list(arrays)))
    return from_states({"train": state})


def types(column: Any, feature: Feature, limit: int = 100_000) -> list[str]:
    return [anomaly.type for anomaly in validate(stats(limit, x=column), Schema((feature,))).anomalies]


LABEL = Schema(
    (Feature("x", presence=Presence(1.0)), Feature("y", presence=Presence(1.0), not_in_environments=("SERVING",))),
    environments=("TRAINING", "SERVING"),
)


def test_environments() -> None:
    both, one = stats(x=[1], y=[1]), stats(x=[1])

    def found(data: Statistics, environment: str | None, schema: Schema = LABEL) -> list[tuple[str, str | None]]:
        return [(a.type, a.feature) for a in validate(data, schema, environment=environment).anomalies]

    assert found(both, "TRAINING") == found(both, None) == found(one, "SERVING") == []
    assert found(one, "TRAINING") == [("SCHEMA_MISSING_COLUMN", "y")]
    assert found(both, "SERVING") == [("SCHEMA_NEW_COLUMN", "y")]
    # A column without a value is not there; TFDV does not look at what else is wrong with it either.
    assert found(stats(x=[1], y=pa.nulls(1, pa.int64())), "SERVING") == []
    with pytest.raises(InputError, match="no environment 'SERVNG'"):
        validate(both, LABEL, environment="SERVNG")
    with pytest.raises(InputError, match="no environment 'T'"):
        validate(both, Schema((Feature("x"),)), environment="T")
    # What a feature names itself is enough, and counts before what it is not in.
    own = Schema((Feature("x"), Feature("y", in_environments=("LAB",))), environments=("TRAINING",))
    assert found(both, "LAB", own) == [("SCHEMA_NEW_COLUMN", "x")]
    assert found(both, "TRAINING", own) == []


@pytest.mark.parametrize(
    ("before", "ratio", "wrong"),
    [
        (4, Ratio(0.5, 2), []),
        (2, Ratio(0.5, 2), []),  # 4 / 2 = 2: both ends belong to it
        (1, Ratio(0.5, 2), ["COMPARATOR_HIGH_NUM_EXAMPLES"]),
        (8, Ratio(0.5, 2), []),
        (9, Ratio(0.5, 2), ["COMPARATOR_LOW_NUM_EXAMPLES"]),
        (9, Ratio(max=2), []),
        (0, Ratio(0.5, 2), ["COMPARATOR_HIGH_NUM_EXAMPLES"]),
        (0, Ratio(0.5), []),
        (40, Ratio(0.1), []),  # as fractions: 4 / 40 is not below a tenth
    ],
)
def test_rows_against_another_span(before: int, ratio: Ratio, wrong: list[str]) -> None:
    four, control = stats(x=[1] * 4), stats(x=pa.array([1] * before, pa.int64()))
    drift, version = Schema((Feature("x"),), rows_drift=ratio), Schema((Feature("x"),), rows_version=ratio)
    assert [anomaly.type for anomaly in validate(four, drift, previous=control).anomalies] == wrong
    assert [anomaly.type for anomaly in validate(four, version, previous_version=control).anomalies] == wrong
    for schema in (drift, version):
        assert validate(four, schema).anomalies == ()
        assert schema_from_yaml(schema_to_yaml(schema)) == schema


@pytest.mark.parametrize(
    "stage", ["PLANNED", "ALPHA", "DEPRECATED", "DEBUG_ONLY", "DISABLED", "BETA", "PRODUCTION", ""]
)
def test_stages(stage: str) -> None:
    feature = Feature("x", "int", Presence(min_count=5), Range(0, 1), stage=stage)
    checked = stage in ("BETA", "PRODUCTION", "")
    assert types([7], feature) == (["FEATURE_TYPE_LOW_NUMBER_PRESENT", "INT_TYPE_BIG_INT"] if checked else [])
    gone = validate(stats(y=[1]), Schema((feature, Feature("y"))))
    assert [a.type for a in gone.anomalies] == (["SCHEMA_MISSING_COLUMN"] if checked else [])


LISTS = [[1], [2, 3], [], None]


@pytest.mark.parametrize(
    ("counts", "wrong"),
    [
        ((Count(),), []),
        ((Count(0, 2),), []),
        ((Count(1),), ["FEATURE_TYPE_LOW_NUMBER_VALUES"]),
        ((Count(None, 1),), ["FEATURE_TYPE_HIGH_NUMBER_VALUES"]),
        ((Count(1, 1),), ["FEATURE_TYPE_LOW_NUMBER_VALUES", "FEATURE_TYPE_HIGH_NUMBER_VALUES"]),
        ((Count(), Count()), ["VALUE_NESTEDNESS_MISMATCH"]),
    ],
)
def test_value_counts(counts: tuple[Count, ...], wrong: list[str]) -> None:
    feature = Feature("x", "int", value_counts=counts)
    assert types(LISTS, feature) == wrong
    assert types(pa.array(LISTS, pa.large_list(pa.int32())), feature) == wrong


def test_plain_columns_have_one_value() -> None:
    assert types([1, 2, None], Feature("x", "int", value_counts=(Count(1, 1),))) == []
    assert types([1, 2, None], Feature("x", "int", value_counts=(Count(2),))) == ["FEATURE_TYPE_LOW_NUMBER_VALUES"]
    assert types([1, 2], Feature("x", "int", shape=())) == types([1, 2], Feature("x", "int", shape=(1, 1))) == []
    assert types([1, None], Feature("x", "int", shape=(1,))) == ["INVALID_FEATURE_SHAPE"]
    assert types([1, 2], Feature("x", "int", shape=(2,))) == ["INVALID_FEATURE_SHAPE"]


def test_shapes() -> None:
    six = [[1, 2, 3, 4, 5, 6]] * 2
    assert types(six, Feature("x", "int", shape=(2, 3))) == []
    assert types([*six, None], Feature("x", "int", shape=(2, 3))) == ["INVALID_FEATURE_SHAPE"]
    assert types([*six, [1]], Feature("x", "int", shape=(2, 3))) == ["INVALID_FEATURE_SHAPE"]
    assert types(pa.array([[1.0, 2.0]], pa.list_(pa.float32(), 2)), Feature("x", "float", shape=(2,))) == []


def test_types_within_lists() -> None:
    anything = (Count(),)
    assert types([["a"]], Feature("x", "int", value_counts=anything)) == ["UNEXPECTED_DATA_TYPE"]
    assert types([["a"]], Feature("x", "string", value_counts=anything)) == []
    assert types([[1]], Feature("x", "float", value_counts=anything)) == []
    assert types([[1]], Feature("x", "int")) == ["UNEXPECTED_DATA_TYPE"]
    assert types([[1]], Feature("x", "list")) == []
    assert types([[[1]]], Feature("x", "int", value_counts=(Count(), Count()))) == []


def test_never_a_silent_pass() -> None:
    """What the statistics cannot decide is said."""
    many = [str(number) for number in range(100)]
    assert types(many, Feature("x", "string", domain=Range(parse="int")), limit=10) == ["STATS_NOT_AVAILABLE"]


def test_unique() -> None:
    assert types(["a", "b", None], Feature("x", "string", unique=Count(2, 2))) == []
    assert types(["a", "b", "c"], Feature("x", "string", unique=Count(4, 2))) == [
        "FEATURE_TYPE_LOW_UNIQUE",
        "FEATURE_TYPE_HIGH_UNIQUE",
    ]
    assert types([1, 2, 3], Feature("x", "int", unique=Count(1, 2))) == ["FEATURE_TYPE_HIGH_UNIQUE"]
    odd = [1.0, float("nan"), float("nan"), float("inf"), float("-inf")]
    assert types(odd, Feature("x", "float", unique=Count(4, 4))) == []
    many = [str(number) for number in range(1000)]
    assert types(many, Feature("x", "string", unique=Count(800, 1200)), limit=10) == []


def test_text_that_reads_as_numbers() -> None:
    whole = Feature("x", "string", domain=Range(0, 10, parse="int"))
    assert types(["1", " 2", "+3", None], whole) == []
    assert types(["1", "2.5", ""], whole) == ["INT_TYPE_NOT_INT_STRING"]
    assert types(["9223372036854775808"], whole) == ["INT_TYPE_NOT_INT_STRING"]
    assert types(["-1", "11", "007"], whole) == ["INT_TYPE_SMALL_INT", "INT_TYPE_BIG_INT"]
    real = Feature("x", "string", domain=Range(0, 10, parse="float", disallow_nan=True, disallow_inf=True))
    assert types(["1e0", "0.5"], real) == []
    assert types(["x", "1_0"], real) == ["FLOAT_TYPE_STRING_NOT_FLOAT"]
    assert types(["-0.5", "nan", "inf"], real) == [
        "FLOAT_TYPE_SMALL_FLOAT",
        "FLOAT_TYPE_BIG_FLOAT",
        "FLOAT_TYPE_HAS_NAN",
        "FLOAT_TYPE_HAS_INF",
    ]


def test_bools() -> None:
    assert types([True, False], Feature("x", "int", domain=Bool())) == []
    assert types([True, False], Feature("x", "int")) == ["UNEXPECTED_DATA_TYPE"]
    assert types(["t", "f"], Feature("x", "string", domain=Bool("t"))) == ["BOOL_TYPE_UNEXPECTED_STRING"]


def test_rows(tmp_path: Path) -> None:
    """The rows that show what is wrong, and none that do not."""
    table = pa.table({"x": LISTS, "s": ["1", "b", None, "3"], "u": ["a", "b", "a", "q"]})
    pq.write_table(table, tmp_path / "x.parquet")
    source = open_parquet([tmp_path / "x.parquet"])
    schema = Schema(
        (
            Feature("x", "int", value_counts=(Count(1, 1),)),
            Feature("s", "string", domain=Range(parse="int")),
            Feature("u", "string", domain=Values(("a", "b")), unique=Count(9)),
        )
    )
    data = from_states({"train": _state(table)})
    found: Anomalies = anomalous_rows({"train": source}, validate(data, schema), schema)
    rows = {anomaly.type: [row["row"] for row in anomaly.rows] for anomaly in found.anomalies}
    assert rows == {
        "FEATURE_TYPE_LOW_NUMBER_VALUES": [2],
        "FEATURE_TYPE_HIGH_NUMBER_VALUES": [1],
        "INT_TYPE_NOT_INT_STRING": [1],
        "ENUM_TYPE_UNEXPECTED_STRING_VALUES": [3],
        "FEATURE_TYPE_LOW_UNIQUE": [],
    }
    shape = Schema((Feature("x", "int", shape=(1,)), Feature("s"), Feature("u")))
    found = anomalous_rows({"train": source}, validate(data, shape), shape)
    assert [[row["row"] for row in anomaly.rows] for anomaly in found.anomalies] == [[1, 2, 3]]


def _state(table: pa.Table) -> StatisticsAccumulator:
    state = StatisticsAccumulator()
    for batch in table.to_batches():
        state.add_batch(batch)
    return state


def test_inference() -> None:
    data = stats(
        one=[[1], [2]], two=[[1.0, 2.0], [3.0, 4.0]], gap=[[1], None], ragged=[["a"], ["b", "c"]], empty=[[], [1]],
        deep=[[[1]], [[2]]], code=["1", "22"], plain=[1, 2],
    )  # fmt: skip
    found = {feature.name: feature for feature in infer_schema(data).features}
    assert {name: (feature.type, feature.shape, feature.value_counts) for name, feature in found.items()} == {
        "one": ("int", (1,), ()),
        "two": ("float", (2,), ()),
        "gap": ("int", None, (Count(1, 1),)),
        "ragged": ("string", None, (Count(1),)),
        "empty": ("int", None, (Count(),)),
        "deep": ("int", (1, 1), ()),
        "code": ("string", None, ()),
        "plain": ("int", None, ()),
    }
    assert found["code"].domain == Range(parse="int")
    assert validate(data, infer_schema(data)).passed
    assert validate(data, infer_schema(data)).anomalies == ()
    counted = infer_schema(data, shapes=False)
    assert [feature.shape for feature in counted.features] == [None] * 8
    assert validate(data, counted).anomalies == ()


def test_values_within_lists_are_checked() -> None:
    anything = (Count(),)
    for values, feature, expected in (
        ([[0, 1], [7]], Feature("x", "int", domain=Range(0, 1), value_counts=anything), ["INT_TYPE_BIG_INT"]),
        ([[0, 1], [2, -1]], Feature("x", "int", domain=Bool(), value_counts=anything),
         ["BOOL_TYPE_SMALL_INT", "BOOL_TYPE_BIG_INT"]),
        ([["a"], ["b", None]], Feature("x", "string", domain=Values(("a",)), value_counts=anything),
         ["ENUM_TYPE_UNEXPECTED_STRING_VALUES"]),
        ([[1.0], [float("nan"), float("inf")]],
         Feature("x", "float", domain=Range(disallow_nan=True, disallow_inf=True), value_counts=anything),
         ["FLOAT_TYPE_HAS_NAN", "FLOAT_TYPE_HAS_INF"]),
        ([["1"], ["x"]], Feature("x", "string", domain=Range(parse="int"), value_counts=anything),
         ["INT_TYPE_NOT_INT_STRING"]),
        ([[7], [7]], Feature("x", "int", unique=Count(2), value_counts=anything), ["FEATURE_TYPE_LOW_UNIQUE"]),
        (pa.array([[], []], pa.list_(pa.string())),
         Feature("x", "string", domain=Values(("a",)), value_counts=anything), []),
    ):  # fmt: skip
        assert types(values, feature) == expected


def test_counts_of_every_level() -> None:
    counts = (Count(1, 2), Count(2, 3))
    deep = Feature("x", "int", value_counts=counts)
    assert types([[[1, 2], [3, 4]], None, [[5, 6, 7]]], deep) == []
    assert types([[[1, 2]] * 3], deep) == ["FEATURE_TYPE_HIGH_NUMBER_VALUES"]
    assert types([[[7]], [[1, 2], None]], deep) == ["FEATURE_TYPE_LOW_NUMBER_VALUES"]
    assert types([[], [[1] * 4]], deep) == ["FEATURE_TYPE_LOW_NUMBER_VALUES", "FEATURE_TYPE_HIGH_NUMBER_VALUES"]
    assert types([[1]], deep) == types([[[[1]]]], deep) == ["VALUE_NESTEDNESS_MISMATCH"]
    assert types([[[1]], []], Feature("x", "int", value_counts=(Count(),))) == []
    assert types([[[1]], []], Feature("x", "int", value_counts=(Count(0),))) == ["VALUE_NESTEDNESS_MISMATCH"]


def test_shapes_of_every_level() -> None:
    cube = Feature("x", "int", shape=(2, 3))
    assert types([[[1, 2, 3]] * 2], cube) == types([[1] * 6], cube) == []
    for odd in ([[1, 2, 3]], [[1, 2, 3], [1, 2]], [[1, 2, 3], None], [[1, 2, 3], [1, 2, None]], None):
        assert types([[[1, 2, 3]] * 2, odd], cube) == ["INVALID_FEATURE_SHAPE"]
        found = infer_schema(stats(x=[[[1, 2, 3]] * 2, odd])).feature("x")
        assert found is not None
        assert found.shape is None
    counted = infer_schema(stats(x=[[[1, 2, 3]] * 2]), shapes=False).feature("x")
    assert counted is not None
    assert counted.value_counts == (Count(2, 2), Count(3, 3))


def test_rows_are_found_by_any_of_their_values() -> None:
    rows = [[["a"], ["z"]], [["a", "a", "b"]], None, [], [["b"], ["b", None]], [["z", "z"]]]
    table = pa.table({"x": pa.array(rows, pa.list_(pa.list_(pa.string())))})
    schema = Schema((Feature("x", "string", domain=Values(("a", "b")), value_counts=(Count(1), Count(None, 2))),))
    found = anomalous_rows(table, validate(stats(x=table["x"].chunk(0)), schema), schema)
    assert {one.type: [row["row"] for row in one.rows] for one in found.anomalies} == {
        "FEATURE_TYPE_LOW_NUMBER_VALUES": [3],
        "FEATURE_TYPE_HIGH_NUMBER_VALUES": [1],
        "ENUM_TYPE_UNEXPECTED_STRING_VALUES": [0, 5],
    }
    square = Schema((Feature("x", "string", shape=(2,)),))
    found = anomalous_rows(table, validate(stats(x=table["x"].chunk(0)), square), square)
    assert [[row["row"] for row in one.rows] for one in found.anomalies] == [[1, 2, 3, 4]]


def test_each_level_shows_its_own_rows() -> None:
    rows = [[["a"], ["b"]], [["a"]], [["a"], []], [[], []], None]
    table = pa.table({"x": rows})
    schema = Schema((Feature("x", "string", value_counts=(Count(2), Count(1))),))
    found = anomalous_rows(table, validate(table, schema), schema)
    assert [(one.type, one.level, [row["row"] for row in one.rows]) for one in found.anomalies] == [
        ("FEATURE_TYPE_LOW_NUMBER_VALUES", 0, [1]),
        ("FEATURE_TYPE_LOW_NUMBER_VALUES", 1, [2, 3]),
    ]
    assert [one.get("level", 0) for one in found.document["anomalies"]] == [0, 1]


def test_rows_of_text_that_reads_as_a_number_out_of_range() -> None:
    big = str(2**53 + 1)
    table = pa.table({"i": ["5", big, None, "-1", "x"], "f": ["nan", "2", "inf", "-1", "?"]})
    whole = Feature("i", "string", domain=Range(0, 2**53, parse="int"))
    real = Feature("f", "string", domain=Range(0, 1, parse="float", disallow_nan=True, disallow_inf=True))
    schema = Schema((whole, real))
    found = anomalous_rows(table, validate(table, schema), schema)
    assert {one.type: [row["row"] for row in one.rows] for one in found.anomalies} == {
        "INT_TYPE_NOT_INT_STRING": [4],
        "INT_TYPE_SMALL_INT": [3],
        "INT_TYPE_BIG_INT": [1],
        "FLOAT_TYPE_STRING_NOT_FLOAT": [4],
        "FLOAT_TYPE_SMALL_FLOAT": [3],
        "FLOAT_TYPE_BIG_FLOAT": [1, 2],
        "FLOAT_TYPE_HAS_NAN": [0],
        "FLOAT_TYPE_HAS_INF": [2],
    }
