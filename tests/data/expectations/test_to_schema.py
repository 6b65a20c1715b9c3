"""A suite as a schema: the way there and back, and the same answers of the schema as of Great Expectations' rules."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from drivetrain.data import (
    Bool,
    Check,
    Count,
    Expectation,
    Feature,
    Presence,
    Range,
    Schema,
    Suite,
    Values,
    check_expectations,
    check_sql,
    infer_schema,
    schema_from_suite,
    schema_from_yaml,
    schema_to_expectations,
    schema_to_yaml,
    source_of,
    statistics,
    validate,
)
from drivetrain.tests.data.flights import corrupted, month
from hypothesis import example, given, settings
from hypothesis import strategies as st


def expect(name: str, severity: Any = "critical", **kwargs: Any) -> Expectation:
    return Expectation(f"expect_{name}", kwargs, {}, severity)


def of(*expectations: Expectation, base: Schema | None = None) -> tuple[Schema, list[str]]:
    schema, left = schema_from_suite(Suite("mine", expectations), base)
    assert left == schema.expectations[len(base.expectations) if base else 0 :]
    return schema, [one.type.removeprefix("expect_") for one in left]


# --- there and back

severities = st.sampled_from(["WARNING", "INFO"])
texts = st.lists(st.text(min_size=1, max_size=3), min_size=1, max_size=4, unique=True).map(tuple)
shares = st.sampled_from([0.25, 0.5, 0.99])
# Strategies are made here and not as they are drawn from: hypothesis looks through each of them once.
kinds = st.sampled_from(["any", "int", "float", "string", "bool", "timestamp", "bytes"])
presences = st.sampled_from([Presence(), Presence(None, 1), Presence(1.0, 1), Presence(0.5, 1)])
integers, floats = st.integers(-9, 9), st.floats(-9, 9)
booleans = st.booleans()
domains_of_texts = st.one_of(st.builds(Values, texts, st.one_of(st.just(1.0), shares)), st.just(Bool("y", "n")))
counts = st.sampled_from([None, Count(2, 5), Count(2), Count(None, 5)])
names_of_columns = st.lists(st.text(min_size=1, max_size=4), max_size=4, unique=True)
bounds = st.sampled_from([(None, None), (2, 9), (2, None), (None, 9)])
others = st.lists(
    st.sampled_from(
        [
            Expectation("expect_column_mean_to_be_between", {"column": "a", "min_value": 0.5, "list": [1, "NO", None]}),
            expect("column_values_to_be_unique", "info", column="é: {"),
        ]
    ),
    unique_by=lambda expectation: expectation.type,
)


@st.composite
def features(draw: Any, name: str) -> Feature:
    kind = draw(kinds)
    presence = draw(presences)
    severity: dict[str, Any] = {}
    domain: Any = None
    numbers = integers if kind == "int" else floats
    if kind in ("int", "float") and draw(booleans):
        low, high = sorted([draw(numbers), draw(numbers)])
        ends = draw(st.sampled_from([(low, high), (low, None), (None, high)]))
        domain = Range(*ends)
        for end, which in zip(ends, ("SMALL", "BIG"), strict=True):
            if end is not None and draw(booleans):
                severity[f"{kind.upper()}_TYPE_{which}_{kind.upper()}"] = draw(severities)
    elif kind == "string" and draw(booleans):
        domain = draw(domains_of_texts)
    elif kind in ("int", "float", "bool") and draw(booleans):
        domain = Bool()
    unique = draw(counts)
    carried = {
        "SCHEMA_MISSING_COLUMN": presence.required,
        "FEATURE_TYPE_LOW_FRACTION_PRESENT": bool(presence.min_fraction),
        "UNEXPECTED_DATA_TYPE": kind in ("int", "float", "bool", "bytes"),
        "ENUM_TYPE_UNEXPECTED_STRING_VALUES": isinstance(domain, Values),
        "FEATURE_TYPE_LOW_UNIQUE": unique is not None and unique.min is not None,
        "FEATURE_TYPE_HIGH_UNIQUE": unique is not None and unique.max is not None,
    }
    severity |= {key: draw(severities) for key, has in carried.items() if has and draw(booleans)}
    return Feature(name, kind, presence, domain, severity, unique=unique)


@st.composite
def schemas(draw: Any) -> Schema:
    names = draw(names_of_columns)
    low, high = draw(bounds)
    severity: dict[str, Any] = {}
    for end, name in ((low, "DATASET_LOW_NUM_EXAMPLES"), (high, "DATASET_HIGH_NUM_EXAMPLES")):
        if end is not None and draw(booleans):
            severity[name] = draw(severities)
    return Schema(
        tuple(draw(features(name)) for name in names), low, high, severity,
        expectations=tuple(draw(others)),
    )  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(schemas())
def test_there_and_back(schema: Schema) -> None:
    suite = json.loads(json.dumps(schema_to_expectations(schema)))
    back, left = schema_from_suite(suite)
    assert back == schema
    assert left == schema.expectations
    assert schema_from_yaml(schema_to_yaml(back)) == back


def test_what_a_suite_cannot_carry_is_said() -> None:
    lost = Schema(
        (Feature("a", "list", value_counts=(Count(1),), drift={"l_infinity": 0.1}),), checks=(Check("a", "1=1"),)
    )
    said = schema_to_expectations(lost)["meta"]["drivetrain"]["not_expressed"]
    assert "drift of a" in said
    assert "number of values of a" in said
    assert "the check 1=1 of a" in said


def test_inferred_schema_of_flights_comes_back() -> None:
    schema = infer_schema(statistics(month(1)))
    back, left = schema_from_suite(schema_to_expectations(schema))
    # Shapes are what a data frame cannot say.
    assert back.features == tuple(dataclasses.replace(one, shape=None, value_counts=()) for one in schema.features)
    assert not left


# --- a user's own suite


def test_old_and_new_files(tmp_path: Path) -> None:
    old = {
        "expectation_suite_name": "warehouse.orders", "data_asset_type": None, "ge_cloud_id": None,
        "expectations": [
            {"expectation_type": "expect_column_values_to_not_be_null", "meta": {},
             "kwargs": {"column": "id", "result_format": "BASIC", "mostly": 1.0}},
            {"expectation_type": "expect_column_values_to_be_in_type_list",
             "kwargs": {"column": "id", "type_list": ["INTEGER", "BIGINT", "LongType", "int64", "int_"]}},
            {"expectation_type": "expect_column_values_to_match_regex", "kwargs": {"column": "code", "regex": "^A"}},
        ],
        "meta": {"great_expectations_version": "0.15.50"},
    }  # fmt: skip
    folder = tmp_path / "gx" / "expectations" / "warehouse"
    folder.mkdir(parents=True)
    (tmp_path / "gx" / "great_expectations.yml").write_text("")
    (folder / "orders.json").write_text(json.dumps(old))
    schema, left = schema_from_suite(tmp_path)
    assert schema.feature("id") == Feature("id", "int", Presence(1.0, 1))
    assert schema.feature("id").evidence.startswith("from suite warehouse.orders: of type int")
    assert [one.kwargs for one in left] == [{"column": "code", "regex": "^A"}]
    assert schema.severity == {"SCHEMA_NEW_COLUMN": "INFO"}  # a suite says nothing of other columns
    assert schema_from_yaml(schema_to_yaml(schema)) == schema


def test_counts_that_no_file_can_hold_are_left_out() -> None:
    kwargs = {"min_value": 1, "max_value": 10**400}
    suite = {"name": "s", "expectations": [{"type": "expect_table_row_count_to_be_between", "kwargs": kwargs}]}
    schema, left = schema_from_suite(suite)
    assert [expectation.type for expectation in left] == ["expect_table_row_count_to_be_between"]
    assert schema.expectations == left


def test_each_line() -> None:
    schema, left = of(
        expect("table_row_count_to_be_between", min_value=10.0, max_value=20, strict_max=True),
        expect("column_to_exist", "warning", column="a"),
        expect("column_values_to_be_between", "info", column="a", min_value=0, strict_min=True, max_value=7.5),
        expect("column_values_to_be_of_type", column="i", type_="int32"),
        expect("column_values_to_be_between", column="i", min_value=0, strict_min=True, max_value=7.5, strict_max=True),
        expect("column_values_to_be_in_set", column="s", value_set=["x", "y", "x"], mostly=0.9),
        expect("column_values_to_be_of_type", column="b", type_="bool"),
        expect("column_values_to_be_in_set", column="b", value_set=[True, False]),
        expect("column_unique_value_count_to_be_between", "warning", column="s", min_value=1, strict_min=True),
        expect("column_values_to_be_of_type", column="f", type_="float64"),
        expect("column_values_to_not_be_null", column="f"),
        expect("table_columns_to_match_set", column_set=["a", "i", "s", "b", "f", "z"]),
    )
    assert left == []
    assert (schema.min_rows, schema.max_rows) == (10, 19)
    a, i, s, b, f, z = schema.features
    assert a.domain == Range(5e-324, 7.5)
    assert a.severity["FLOAT_TYPE_BIG_FLOAT"] == "INFO"
    assert "SCHEMA_MISSING_COLUMN" not in a.severity  # critical, as the set of columns is
    assert a.severity["FEATURE_TYPE_NOT_PRESENT"] == "INFO"  # it may be there without values
    assert a.evidence == "from suite mine: exists; above 0 to 7.5; exists"
    assert i.domain == Range(1, 7)
    assert (s.type, s.domain, s.unique) == ("string", Values(("x", "y"), 0.9), Count(2))
    assert b.domain == Bool()
    assert f.domain == Range(disallow_nan=True)
    assert z.presence == Presence(None, 1)
    assert "SCHEMA_NEW_COLUMN" not in schema.severity


@pytest.mark.parametrize(
    "one",
    [
        expect("column_values_to_be_between", column="a", min_value=0, mostly=0.9),
        expect("column_values_to_be_between", column="a", min_value="2013-01-01"),
        expect("column_values_to_be_in_set", column="a", value_set=[1, 2]),
        expect("column_values_to_be_in_set", column="a", value_set=["x"], row_condition="b>1"),
        expect("column_values_to_be_of_type", column="a", type_="object"),
        expect("column_values_to_be_in_type_list", column="a", type_list=["int64", "str"]),
        expect("column_values_to_be_unique", column="a"),
        expect("column_proportion_of_non_null_values_to_be_between", column="a", max_value=0.5),
        expect("column_values_to_be_of_type", column="a", type_="int64", mostly=0.5),
        expect("table_row_count_to_equal", value=0),
        expect("table_row_count_to_equal", value=2.5),
        expect("table_columns_to_match_set", column_set=[["a"], 1]),
        Expectation("unexpected_rows_expectation", {"unexpected_rows_query": "SELECT 1 FROM {batch}"}),
    ],
    ids=lambda one: f"{one.type} {sorted(one.kwargs)}",
)
def test_left_over(one: Expectation) -> None:
    schema, left = of(one)
    assert len(left) == 1
    assert schema.features == ()


def test_missing_in_pandas_is_nan_too() -> None:
    # Of a column of unknown type NaN is still GX's to see.
    schema, left = of(expect("column_values_to_not_be_null", column="a", mostly=0.5))
    assert left == ["column_values_to_not_be_null"]
    assert schema.feature("a").presence == Presence(0.5, 1)


def test_two_severities_of_one_line() -> None:
    schema, left = of(
        expect("column_values_to_be_of_type", column="a", type_="int64"),
        expect("column_values_to_not_be_null", column="a", mostly=0.9),
        expect("column_values_to_not_be_null", "warning", column="a"),
        expect("column_values_to_not_be_null", column="a", mostly=0.95),
    )
    assert left == ["column_values_to_not_be_null"]
    assert schema.feature("a").presence.min_fraction == 0.95
    assert schema.expectations[0].severity == "warning"


def test_both_must_hold() -> None:
    base = Schema((Feature("a", "int", Presence(0.9, 1), Range(0, 10), evidence="seen"), Feature("s", "string")), 5)
    schema, left = of(
        expect("column_values_to_be_between", column="a", min_value=-1, max_value=8),
        expect("column_values_to_not_be_null", column="a"),
        expect("column_values_to_be_of_type", column="s", type_="int64"),
        expect("table_row_count_to_be_between", max_value=4),
        base=base,
    )
    assert left == ["column_values_to_be_of_type", "table_row_count_to_be_between"]
    assert schema.feature("a") == Feature("a", "int", Presence(1.0, 1), Range(0, 8))
    assert schema.feature("a").evidence == "seen; from -1 to 8; not null"
    assert schema.min_rows == 5
    assert schema.severity == {}


# --- the same answers

columns = st.fixed_dictionaries(
    {
        "i": st.lists(st.one_of(st.none(), st.integers(-3, 3)), min_size=4, max_size=4).map(
            lambda v: pa.array(v, pa.int64())
        ),
        "f": st.lists(
            st.one_of(st.none(), st.sampled_from([-1.0, 0.0, 0.5, 2.0, math.nan, math.inf])), min_size=4, max_size=4
        ).map(lambda v: pa.array(v, pa.float64())),
        "s": st.lists(st.one_of(st.none(), st.sampled_from(["x", "y", "z", ""])), min_size=4, max_size=4).map(
            lambda v: pa.array(v, pa.string())
        ),
    }
)  # fmt: skip
TYPES = (expect("column_values_to_be_in_type_list", column="i", type_list=["int64", "int32"]),
         expect("column_values_to_be_of_type", column="f", type_="float64"))  # fmt: skip


@st.composite
def wanted(draw: Any) -> Expectation:
    column = draw(st.sampled_from(["i", "f", "s", "gone"]))
    ends = {"min_value": draw(st.sampled_from([None, -1, 0, 1])), "max_value": draw(st.sampled_from([2, 1]))}
    strict = {"strict_min": draw(st.booleans()), "strict_max": draw(st.booleans())}
    mostly = draw(st.sampled_from([{}, {"mostly": 0.5}]))
    kinds = [
        expect("column_values_to_not_be_null", column=column, **mostly),
        expect("column_unique_value_count_to_be_between", column=column, min_value=1, max_value=3, **strict),
        expect("table_row_count_to_be_between", min_value=draw(st.integers(0, 5)), max_value=draw(st.integers(5, 6))),
        expect("column_to_exist", column=draw(st.sampled_from(["i", "gone"]))),
        expect("table_columns_to_match_set", column_set=["i", "f", "s"][: draw(st.integers(2, 3))],
               exact_match=draw(st.booleans())),
    ]  # fmt: skip
    if column == "s":
        kinds.append(expect("column_values_to_be_in_set", column="s", value_set=["x", "y"], **mostly))
    else:
        kinds.append(expect("column_values_to_be_between", column=column, **ends, **strict))
    chosen: Expectation = draw(st.sampled_from(kinds))
    return chosen


NAN_IS_A_VALUE = {
    "i": pa.array([None] * 4, pa.int64()),
    "f": pa.array([None, -1.0, 0.0, math.nan]),
    "s": pa.array([None] * 4, pa.string()),
}


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@example(NAN_IS_A_VALUE, expect("column_unique_value_count_to_be_between", column="f", min_value=1, max_value=2))
@given(columns, wanted())
def test_the_schema_decides_as_the_expectation(data: dict[str, Any], one: Expectation) -> None:
    found = statistics(pa.table(data))
    # `check_expectations` is itself checked against GX in test_expectations_gx.
    theirs = check_expectations(found, Suite("mine", (one,))).passed
    schema, left = of(*TYPES, one)
    types, _ = of(*TYPES)
    ours = validate(found, schema).errors == validate(found, types).errors
    if left:
        ours = ours and check_expectations(found, Suite("mine", schema.expectations)).passed
    assert ours == theirs, (one, validate(found, schema).anomalies)


def test_flights_clean_and_corrupted() -> None:
    january = month(1)
    bad, _ = corrupted(january)
    suite = Suite("flights", (
        expect("column_values_to_be_of_type", column="distance", type_="int64"),
        expect("column_values_to_be_between", column="distance", min_value=1, max_value=5000),
        expect("column_values_to_not_be_null", column="dest"),
        expect("column_values_to_be_in_set", column="carrier", value_set=sorted(set(january["carrier"].to_pylist()))),
        expect("column_mean_to_be_between", column="distance", min_value=100, max_value=5000),
    ))  # fmt: skip
    schema, left = schema_from_suite(suite)
    assert [one.type for one in left] == ["expect_column_values_to_not_be_null", "expect_column_mean_to_be_between"]
    for table in (january, bad):
        found = statistics(table)
        whole = check_expectations(found, suite)
        parts = [validate(found, schema).passed, check_expectations(found, Suite("rest", left)).passed]
        assert whole.passed == all(parts) == (table is january)


def test_the_page_tells_the_truth(tmp_path: Path) -> None:
    """What docs/expectations.md shows works on data of the same columns."""
    blocks = re.findall(
        r"```(\w+)\n(.*?)```", (Path(__file__).parents[3] / "docs" / "expectations.md").read_text(), re.S
    )
    rows = "".join(text for kind, text in blocks if kind == "yaml")
    schema = schema_from_yaml(f"format: drivetrain.schema/1\nfeatures: {{}}\n{rows}")
    assert [len(schema.checks), len(schema.expectations)] == [2, 2]
    table = pa.table({"fare": [10.0, 600.0], "pickup": [1, 5], "dropoff": [2, 4], "trip": [1, 1]})
    anomalies = validate(statistics(table), schema, previous=statistics(table)).anomalies
    assert [one.message for one in anomalies if one.type == "CUSTOM_VALIDATION"] == ["a fare of more than 500"]
    found = check_expectations(statistics(table), Suite("docs", schema.expectations), {"data": source_of(table)})
    assert [one["success"] for one in found.document["results"]] == [False, False]
    query = next(text for _, text in blocks if "check_sql" in text).partition("check_sql(")[2]
    checks = dict(re.findall(r'"([^"]+)": "(SELECT [^"]+)"', query))
    assert len(checks) == 2
    assert [one["result"]["observed_value"] for one in check_sql(table, checks).document["results"]] == [1, 1]


@pytest.mark.parametrize("end", ["NaN", "Infinity", "-Infinity"])
def test_a_count_that_is_not_finite_is_left_over(tmp_path: Path, end: str) -> None:
    item = '{"type": "expect_table_row_count_to_be_between", "kwargs": {"min_value": 1, "max_value": END}}'
    (tmp_path / "s.json").write_text(f'{{"name": "s", "expectations": [{item}]}}'.replace("END", end))
    schema, left = schema_from_suite(tmp_path / "s.json")
    assert schema.max_rows is None
    assert left
