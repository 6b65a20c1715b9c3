"""Values and their weights: counted as TFDV 1.16.1 does, and validated row by row."""

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from drivetrain.data import (
    Anomalies,
    Expectation,
    Feature,
    Schema,
    SchemaError,
    Statistics,
    Suite,
    WeightedFeature,
    anomalous_rows,
    anomalous_table,
    check_expectations,
    derived,
    drift,
    edit_yaml,
    growing_directory,
    infer_schema,
    merge_statistics,
    schema_to_yaml,
    source_of,
    statistics,
    stream,
    update_schema,
    validate,
    validate_instance,
)
from drivetrain.data.beam import BeamExecutor
from drivetrain.errors import InputError

PAIR = WeightedFeature("vw", "v", "w")
FEATURES = (Feature("v"), Feature("w"))
SCHEMA = Schema(FEATURES, weighted=(PAIR,))
MIXED = {
    "v": [[1], [2, 3], None, [], None, [4], [None, 5], []],
    "w": [[1.0], [1.0], [1.0, 1.0], [1.0], None, None, [1.0, 1.0], None],
}
NESTED = [[[1, 2], [3]], [[4]]]


@pytest.mark.parametrize(
    ("columns", "told"),  # told by TFDV: missing values, missing weights, smallest and largest difference of lengths
    [
        (MIXED, (1, 2, -1, 2)),
        ({"v": [[], [1]], "w": [None, [1.0]]}, (0, 1, 0, 0)),
        ({"v": [[1], None, [2, 3]]}, (0, 2, -2, -1)),
        ({"w": [[1.0], [1.0]]}, (2, 0, 1, 1)),
        ({"v": [[1, 2], [], None], "w": [[0.5, 1.0], [], None]}, (0, 0, 0, 0)),
        ({"v": NESTED, "w": [[[1.0], [1.0]], [[1.0]]]}, (0, 0, 0, 0)),
    ],
)
def test_counts_are_those_of_tfdv(columns: dict[str, Any], told: tuple[int, int, int, int]) -> None:
    source = derived(source_of(pa.table(columns)), PAIR)
    found = statistics(source)
    features, difference = found.features("data"), found.features("data")["vw_weight_length_diff"]
    ones = [round(features[name]["mean"]["value"] * source.rows) for name in ("vw_missing_value", "vw_missing_weight")]
    assert (*ones, difference["min"]["value"], difference["max"]["value"]) == told
    total = len(next(iter(columns.values())))
    expected = {
        "WEIGHTED_FEATURE_MISSING_VALUE": [told[0]],
        "WEIGHTED_FEATURE_MISSING_WEIGHT": [told[1]],
        "WEIGHTED_FEATURE_LENGTH_MISMATCH": [*told[2:]],
    }
    anomalies = [one for one in validate(found, SCHEMA).anomalies if one.feature == "vw"]
    assert {one.type: [int(end) for end in re.findall(r"-?\d+", one.observed)] for one in anomalies} == {
        kind: numbers for kind, numbers in expected.items() if any(numbers)
    }
    quoted = anomalous_rows(pa.table(columns), Anomalies({"data": total}, anomalies), SCHEMA, limit=total).anomalies
    values, weights = (columns.get(name, [None] * total) for name in ("v", "w"))
    lengths = [(len(w or ()) - len(v or ())) for v, w in zip(values, weights, strict=True)]
    shown: dict[str, list[Any]] = {
        "WEIGHTED_FEATURE_MISSING_VALUE": [w is not None and v is None for v, w in zip(values, weights, strict=True)],
        "WEIGHTED_FEATURE_MISSING_WEIGHT": [v is not None and w is None for v, w in zip(values, weights, strict=True)],
        "WEIGHTED_FEATURE_LENGTH_MISMATCH": lengths,
    }
    for one in quoted:
        assert [row["row"] for row in one.rows] == np.flatnonzero(shown[one.type]).tolist()


def test_a_row_is_quoted_with_its_value_and_weight_first() -> None:
    table = pa.table({"x": [0, 0, 0, 0], "w": [0.5, 0.5, None, None], "v": [1, None, 3, None]})
    schema = replace(SCHEMA, features=(*SCHEMA.features, Feature("x", "int")))
    found = anomalous_rows(table, validate(table, schema), schema).anomalies
    assert {one.type: [list(row["values"].items()) for row in one.rows] for one in found} == {
        "WEIGHTED_FEATURE_MISSING_VALUE": [[("v", None), ("w", 0.5), ("x", 0)]],
        "WEIGHTED_FEATURE_MISSING_WEIGHT": [[("v", 3), ("w", None), ("x", 0)]],
        "WEIGHTED_FEATURE_LENGTH_MISMATCH": [[("v", None), ("w", 0.5), ("x", 0)], [("v", 3), ("w", None), ("x", 0)]],
    }
    assert {one.feature for one in found} == {"vw"}
    (mismatch,) = (one for one in found if "LENGTH" in one.type)
    assert sorted((item["value"], item["count"]) for item in mismatch.values) == [(-1, 1), (1, 1)]
    rows = anomalous_table(table, validate(table, schema), schema)
    assert rows["anomaly.row"].to_pylist() == [1, 2]
    assert rows["anomaly.types"].to_pylist() == [
        ["vw: WEIGHTED_FEATURE_MISSING_VALUE", "vw: WEIGHTED_FEATURE_LENGTH_MISMATCH"],
        ["vw: WEIGHTED_FEATURE_MISSING_WEIGHT", "vw: WEIGHTED_FEATURE_LENGTH_MISMATCH"],
    ]


def test_statistics_of_any_make() -> None:
    """By the schema, of some columns, by hand, merged, of a slice, saved: the same answer; without any: it says so."""
    table = pa.table({"v": [1, 2], "w": [0.5, None], "s": ["a", "b"]})
    schema = replace(SCHEMA, features=(*SCHEMA.features, Feature("s", "string")))
    ways = [
        statistics(table, schema=schema),
        statistics(table, schema=schema, columns=["v", "w"]),
        statistics(derived(source_of(table), PAIR)),
        statistics(derived(source_of(table), PAIR), schema=schema),
        merge_statistics([statistics(table.slice(at, 1), schema=schema) for at in (0, 1)]),
        statistics(table, schema=schema, slices=["s"]).of_slice("data", "s=b"),
    ]
    for found in ways:
        kinds = [one.type for one in validate(found, schema).anomalies]
        assert kinds == ["WEIGHTED_FEATURE_MISSING_WEIGHT", "WEIGHTED_FEATURE_LENGTH_MISMATCH"]
    (unknown,) = validate(statistics(table), schema).anomalies
    assert (unknown.type, unknown.severity, unknown.feature) == ("STATS_NOT_AVAILABLE", "WARNING", "vw")
    assert statistics(table, schema=Schema()).document == statistics(table).document


def test_what_is_computed_is_no_column_of_the_data(tmp_path: Path) -> None:
    table = pa.table({"v": [1, 2], "w": [0.5, 1.5]})
    plain, found = statistics(table), statistics(table, schema=SCHEMA)
    found.save(tmp_path)
    for one in (found, Statistics.load(tmp_path)):
        assert infer_schema(one) == infer_schema(plain)
        assert validate(one, Schema(FEATURES)).anomalies == ()
        features = [feature for pair in drift(one, plain).pairs for feature in pair.features]
        assert {feature.status for feature in features} == {"compared"}
        suite = Suite("s", tuple(Expectation(kind, kwargs) for kind, kwargs in SHAPE.items()))
        results = check_expectations(one, suite)
        assert results.errors == 0
        assert results.ways["statistics"] == len(SHAPE)
        assert list(one.features("data")) == ["v", "w", *PAIR.columns]  # they are shown


def test_samples_and_pairs_are_of_the_data_alone() -> None:
    random = np.random.default_rng(1)
    weights = [None if one < 0.2 else one for one in random.random(200).tolist()]
    table = pa.table({"v": random.integers(0, 50, 200), "w": pa.array(weights), "s": random.choice(["a", "b"], 200)})
    schema = replace(SCHEMA, features=(*FEATURES, Feature("s")))
    asked: dict[str, Any] = {"correlations": True, "label": "s", "lift": True, "sample_rate": 0.5}
    (plain,) = statistics(table, **asked).document["datasets"]
    (found,) = statistics(table, schema=schema, **asked).document["datasets"]
    assert 60 < plain["rows"] < 140
    assert {key: found[key] for key in plain if key != "features"} == {
        key: value for key, value in plain.items() if key != "features"
    }
    assert [one for one in found["features"] if one["name"] in table.column_names] == plain["features"]


def test_statistics_of_another_pair_of_that_name_do_not_count() -> None:
    table = pa.table({"v": [1, 2], "w": [0.5, None], "x": [1, 2]})
    schema = replace(SCHEMA, features=(*FEATURES, Feature("x")))
    found = statistics(table, schema=schema)
    other = replace(schema, weighted=(WeightedFeature("vw", "v", "x"),))
    (unknown,) = validate(found, other).anomalies
    assert (unknown.type, unknown.observed) == ("STATS_NOT_AVAILABLE", "none computed from 'v' and 'x'")
    assert validate(table, other).anomalies == ()
    for odd in (statistics(table, schema=other), statistics(table)):
        with pytest.raises(InputError, match=r"computed for a schema cannot be merged.*'v' and 'w'"):
            merge_statistics([found, odd])


SHAPE: dict[str, dict[str, Any]] = {
    "expect_table_column_count_to_equal": {"value": 2},
    "expect_table_columns_to_match_set": {"column_set": ["v", "w"], "exact_match": True},
    "expect_table_columns_to_match_ordered_list": {"column_list": ["v", "w"]},
}


def test_a_stream_measures_it(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"v": [1, 2], "w": [0.5, None]}), tmp_path / "in" / "a.parquet")
    (span,) = stream(growing_directory(tmp_path / "in", quiet=0), tmp_path / "out", schema=SCHEMA, idle=0.1)
    assert span.anomalies is not None
    assert {one.type for one in span.anomalies.anomalies} == {
        "WEIGHTED_FEATURE_MISSING_WEIGHT",
        "WEIGHTED_FEATURE_LENGTH_MISMATCH",
    }
    assert [row["row"] for row in span.anomalies.anomalies[0].rows] == [1]


def test_single_examples() -> None:
    found = validate_instance([{"v": 1, "w": 2.0}, {"v": 1, "w": None}], SCHEMA)
    assert {one.type: [row["row"] for row in one.rows] for one in found.anomalies} == {
        "WEIGHTED_FEATURE_MISSING_WEIGHT": [1],
        "WEIGHTED_FEATURE_LENGTH_MISMATCH": [1],
    }


def test_no_change_of_the_schema_hides_it() -> None:
    table = pa.table({"v": [1, 2], "w": [0.5, None], "y": [1, 2]})
    patch = update_schema(SCHEMA, table)
    assert [change.feature for change in patch.changes] == ["y"]
    assert {one.type for one in patch.unresolved} == {
        "WEIGHTED_FEATURE_MISSING_WEIGHT",
        "WEIGHTED_FEATURE_LENGTH_MISMATCH",
    }
    assert patch.accept().weighted == (PAIR,)
    text = schema_to_yaml(SCHEMA) + "# mine\n"
    edited = edit_yaml(text, patch.accept())
    assert edited.kept
    assert "# mine" in edited.text
    patch = update_schema(SCHEMA, table.append_column("vw", table["y"]))  # it cannot become a feature
    assert [change.feature for change in patch.changes] == ["y"]
    assert ("vw", "SCHEMA_NEW_COLUMN") in {(one.feature, one.type) for one in patch.unresolved}


@pytest.mark.parametrize(
    ("weighted", "anomaly", "message"),
    [
        (WeightedFeature("v", "v", "w"), "WEIGHTED_FEATURE_NAME_COLLISION", "'v' is named as a feature is"),
        (
            WeightedFeature("vw", "v", "u"),
            "INVALID_SCHEMA_SPECIFICATION",
            "its weights are of 'u', which is not a",
        ),
        (WeightedFeature("vw", "a", "w"), "INVALID_SCHEMA_SPECIFICATION", "its values are of 'a', which is not a"),
        (WeightedFeature("vw", "v", ""), "INVALID_SCHEMA_SPECIFICATION", "its weights are not a feature"),
        (WeightedFeature("", "v", "w"), "INVALID_SCHEMA_SPECIFICATION", "has no name"),
        (WeightedFeature("vw", "v", "w", "OLD"), "INVALID_SCHEMA_SPECIFICATION", "no stage 'OLD'"),
    ],
)
def test_a_schema_that_contradicts_itself(weighted: WeightedFeature, anomaly: str, message: str) -> None:
    with pytest.raises(SchemaError, match=message) as caught:
        Schema(FEATURES, weighted=(weighted,))
    assert [(one.anomaly, one.feature) for one in caught.value.problems] == [(anomaly, weighted.name)]
    Schema(FEATURES, weighted=(replace(weighted, name="x", value="v", weight="w", stage="DEPRECATED"),))


def test_two_of_one_name() -> None:
    with pytest.raises(SchemaError, match="weighted feature 'vw' appears twice"):
        Schema(FEATURES, weighted=(PAIR, PAIR))


def test_the_page_shows_it() -> None:
    assert "Weighted features" in SCHEMA.to_html()
    assert "Weighted features" not in Schema(FEATURES).to_html()
    (only,) = SCHEMA.to_dict()["weighted"]
    assert only == {"name": "vw", "value": "v", "weight": "w", "stage": ""}


def test_the_same_on_beam() -> None:
    table = pa.table({**MIXED, "x": range(8)})
    features = (*FEATURES, Feature("x"))
    schema = Schema(features, weighted=(PAIR, WeightedFeature("xw", "x", "w")))
    local, beam = statistics(table, schema=schema), statistics(table, BeamExecutor(), schema=schema)
    assert local.state("data").to_bytes() == beam.state("data").to_bytes()


def test_data_without_the_pair_at_all() -> None:
    source = derived(source_of(pa.table({"x": [1, 2]})), PAIR)
    assert statistics(source).features("data")["vw_weight_length_diff"]["missing"] == 2


def test_names_that_are_taken() -> None:
    with pytest.raises(InputError, match="vw makes a column 'vw_missing_value', which the data has"):
        derived(source_of(pa.table({"v": [1], "vw_missing_value": [0]})), PAIR)


def test_pandas_is_not_loaded_for_it(tmp_path: Path) -> None:
    """It takes a third of a second, and pyarrow asks for it wherever it is given a value of Python's."""
    pq.write_table(pa.table(MIXED), tmp_path / "rows.parquet")
    code = (
        "import sys\n"
        "from drivetrain import data\n"
        "pair = data.WeightedFeature('vw', 'v', 'w')\n"
        "schema = data.Schema((data.Feature('v'), data.Feature('w')), weighted=(pair,))\n"
        "found = data.validate(sys.argv[1], schema)\n"
        "assert len(found.anomalies) == 3\n"
        "assert 'pandas' not in sys.modules\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "rows.parquet")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
