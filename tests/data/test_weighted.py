"""Values and their weights: counted as TFDV 1.16.1 does, and validated row by row."""

from typing import Any

import pyarrow as pa
import pytest
from drivetrain.data import (
    Schema,
    WeightedFeature,
    anomalous_rows,
    derived,
    infer_schema,
    source_of,
    statistics,
    validate,
)
from drivetrain.data.beam import BeamExecutor
from drivetrain.errors import InputError

PAIR = WeightedFeature("vw", "v", "w")
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
    wrong = {one.feature for one in validate(found, Schema(PAIR.features)).anomalies if one.feature not in columns}
    names = [feature.name for feature in PAIR.features]
    assert wrong == {name for name, bad in zip(names, (told[0], told[1], told[2:] != (0, 0)), strict=True) if bad}


def test_the_rows_that_do_not_match_are_quoted() -> None:
    table = pa.table({"v": [1, None, 3, None], "w": [0.5, 0.5, None, None]})
    source = derived(source_of(table), PAIR)
    schema = infer_schema(statistics(source_of(table)))
    for feature in PAIR.features:
        schema = schema.with_feature(feature)
    found = anomalous_rows(source, validate(statistics(source), schema), schema).anomalies
    assert {(one.feature, one.type): [row["row"] for row in one.rows] for one in found} == {
        ("vw_missing_value", "INT_TYPE_BIG_INT"): [1],
        ("vw_missing_weight", "INT_TYPE_BIG_INT"): [2],
        ("vw_weight_length_diff", "INT_TYPE_BIG_INT"): [1],
        ("vw_weight_length_diff", "INT_TYPE_SMALL_INT"): [2],
    }


def test_the_same_on_beam() -> None:
    source = derived(source_of(pa.table(MIXED)), PAIR)
    local, beam = statistics(source), statistics(source, BeamExecutor())
    assert local.state("data").to_bytes() == beam.state("data").to_bytes()


def test_data_without_the_pair_at_all() -> None:
    source = derived(source_of(pa.table({"x": [1, 2]})), PAIR)
    assert statistics(source).features("data")["vw_weight_length_diff"]["missing"] == 2


def test_names_that_are_taken() -> None:
    with pytest.raises(InputError, match="vw makes a column 'vw_missing_value', which the data has"):
        derived(source_of(pa.table({"v": [1], "vw_missing_value": [0]})), PAIR)
