"""Drift of lists: their innermost values, as TFDV printed for the same lists, and their lengths, against scipy."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from drivetrain.data import Schema, drift, statistics, validate
from drivetrain.data.schemas.problems import SchemaError
from drivetrain.data.schemas.schema import Count, Feature
from drivetrain.data.schemas.yaml_read import schema_from_yaml
from scipy import stats

# TFDV 1.16.1, validate_statistics of lists(3) against lists(1): (L-infinity, Jensen-Shannon divergence, normalized
# absolute difference). Of numbers it compares no values but by their histograms.
TFDV = {
    "text": (0.3992248062015504, 0.7984496124031008, 0.1996124031007752),
    "nested": (0.4017467248908297, 0.7934894960635082, 0.2),
    "float": (None, 0.00023339821956662368, None),
    "int": (None, 0.17418410405875798, None),
}


def rows(values: Iterator[Any], step: int) -> list[list[Any] | None]:
    """Lists of 0 to 3 values, every seventh missing."""
    sizes = [None if row % 7 == 6 else row * step % 4 for row in range(200)]
    return [None if size is None else list(islice(values, size)) for size in sizes]


def lists(step: int) -> pa.Table:
    squares = [number * number * step for number in range(600)]
    text = rows(("abcde"[square % 5] for square in squares), step)
    nested = [
        None if row % 11 == 10 else [word for word in text[row : row + row % 3] if word is not None]
        for row in range(200)
    ]
    return pa.table(
        {
            "text": pa.array(text, pa.list_(pa.string())),
            "float": pa.array(rows((square % 97 / 4 for square in squares), step), pa.list_(pa.float32())),
            "int": pa.array(rows((square % 31 for square in squares), step), pa.list_(pa.int64())),
            "nested": pa.array(nested, pa.list_(pa.list_(pa.string()))),
        }
    )


@pytest.mark.parametrize("name", TFDV)
def test_values_of_lists_are_compared_as_in_tfdv(name: str) -> None:
    computed = drift(lists(3), lists(1))[name].measures
    for measure, printed in zip(("l_infinity", "jensen_shannon", "normalized_abs_difference"), TFDV[name], strict=True):
        if printed is not None:
            assert computed[measure].value == pytest.approx(printed, abs=1e-12), measure


def test_lengths_and_missing_rates_have_rows_of_their_own() -> None:
    current, previous = lists(2), lists(1)
    report = drift(current, previous)
    names = [feature.name for feature in report.pairs[0].features]
    assert names == [
        *("text", "text (lengths)", "float", "float (lengths)", "int", "int (lengths)"),
        *("nested", "nested (lengths)", "nested[] (lengths)"),
    ]
    sizes = [[len(row) for row in side["int"].to_pylist() if row is not None] for side in (current, previous)]
    values = [side["int"].combine_chunks().flatten().to_numpy() for side in (current, previous)]
    for name, sides in (("int (lengths)", sizes), ("int", values)):
        wanted = stats.ks_2samp(*sides)
        tested = report[name].measures["kolmogorov_smirnov"]
        assert (tested.value, tested.p_value) == pytest.approx((wanted.statistic, wanted.pvalue))
        assert report[name].measures["wasserstein"].value == pytest.approx(stats.wasserstein_distance(*sides))
    inner = [
        [len(items) for row in side["nested"].to_pylist() if row is not None for items in row]
        for side in (current, previous)
    ]
    distance = report["nested[] (lengths)"].measures["wasserstein"].value
    assert distance == pytest.approx(stats.wasserstein_distance(*inner))
    assert report["int (lengths)"].reason.startswith("D ")


def test_missing_rates_are_of_rows_and_of_items() -> None:
    current = pa.array([[1.0, None], None, [float("nan"), 2.0], []], pa.list_(pa.float64()))
    previous = pa.array([[1.0, 2.0], [2.0], [1.0], [1.0]], pa.list_(pa.float64()))
    report = drift(pa.table({"x": current}), pa.table({"x": previous}))
    rate, items = (report[name].measures["missing_rate"] for name in ("x", "x (lengths)"))
    assert (rate.value, rate.over) == (0.25, "rows")
    assert (items.value, items.over) == (0.5, "items")
    wanted = np.sqrt(stats.chi2_contingency([[2, 0], [2, 5]], correction=False).statistic)
    assert items.p_value == pytest.approx(2 * stats.norm.sf(wanted))
    assert report["x (lengths)"].current == {"type": "lengths", "rows": 4, "missing": 1, "nan": 1}


def test_bounds_of_lists_are_on_their_values() -> None:
    current = pa.table({"x": [["a"], ["b", "b"], [], ["b"]]})
    previous = pa.table({"x": [["a", "a"], ["b"], ["b"], []]})  # lengths alike, a: 1/4 → 1/2
    spec = Feature("x", "string", value_counts=(Count(),), drift={"l_infinity": 0.2})
    (anomaly,) = validate(statistics(current), Schema((spec,)), previous=statistics(previous)).anomalies
    assert anomaly.type == "COMPARATOR_L_INFTY_HIGH"
    assert "is 0.25, more than 0.2; 'b': 50" in anomaly.message
    empty = pa.table({"x": pa.array([[], []], pa.list_(pa.string()))})
    (anomaly,) = validate(statistics(current), Schema((spec,)), previous=statistics(empty)).anomalies
    assert (anomaly.type, anomaly.observed) == (
        "COMPARATOR_CONTROL_DATA_MISSING",
        "x has no values in the previous data",
    )
    texts = pa.table({"x": [[1], [2]]})
    (anomaly,) = validate(statistics(current), Schema((spec,)), previous=statistics(texts)).anomalies
    assert anomaly.observed == "x is string, in the previous data int"


def test_a_list_against_single_values_changed_its_type_and_is_compared_by_values() -> None:
    report = drift(pa.table({"x": [[1], [2, 3]]}), pa.table({"x": [1, 2, 3]}))
    (feature,) = report.pairs[0].features
    assert (feature.status, feature.drifted) == ("type changed", True)
    assert feature.measures["l_infinity"].value == 0
    nothing = drift(pa.table({"x": [[1], [2, 3]]}), pa.table({"x": pa.nulls(3)}))
    assert nothing["x"].status == "compared"


def test_what_means_nothing_for_the_values_of_lists_is_refused() -> None:
    lines = "  x:\n    type: string\n    value_count: {min: 0}\n    drift: {wasserstein: 1}\n"
    with pytest.raises(SchemaError, match="wasserstein means nothing for string"):
        schema_from_yaml(f"format: drivetrain.schema/1\nfeatures:\n{lines}")
    Schema((Feature("x", "list", drift={"wasserstein": 1, "cramers_v": 0.1}),))


def test_fields_of_structs_are_compared_by_path() -> None:
    kind = pa.list_(pa.struct([("a", pa.list_(pa.int64())), ("b.c", pa.string())]))
    current = pa.table({"s": pa.array([[{"a": [1, 2], "b.c": "x"}, {"a": [3], "b.c": None}], [], None], kind)})
    wider = pa.list_(pa.struct([("a", pa.list_(pa.float64())), ("b.c", pa.string()), ("d", pa.int64())]))
    previous = pa.table(
        {"s": pa.array([[{"a": [1.0], "b.c": "x", "d": 1}], [{"a": [2.0], "b.c": "y", "d": 1}]], wider)}
    )
    bound = Feature("a", "int", value_counts=(Count(),), drift={"wasserstein": 0.25})
    schema = Schema((Feature("s", "struct", value_counts=(Count(),), fields=(bound,)),))
    report = drift(current, previous, schema=schema)
    assert [(feature.name, feature.status, feature.path) for feature in report.pairs[0].features] == [
        ("s", "compared", ()),
        ("s (lengths)", "compared", ()),
        ("s.a", "compared", ("s", "a")),
        ("s.a (lengths)", "compared", ("s", "a")),
        ("s.'b.c'", "compared", ("s", "b.c")),
        ("s.d", "only in previous", ("s", "d")),
    ]
    assert report["s.a"].measures["wasserstein"].value == pytest.approx(stats.wasserstein_distance([1, 2, 3], [1, 2]))
    assert report["s.a"].high == ("wasserstein",)
    missing = report["s.'b.c'"].measures["missing_rate"]
    assert (missing.value, missing.over) == (0.5, "rows")
    assert [feature.get("path") for feature in report.to_dict()["pairs"][0]["features"]][1:3] == [None, ["s", "a"]]
