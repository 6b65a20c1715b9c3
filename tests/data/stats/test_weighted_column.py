"""Weighted statistics against numpy on rows repeated as often as they weigh, and the laws of their states."""

from __future__ import annotations

import datetime
import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from drivetrain.data import statistics
from drivetrain.data.stats.accumulator import StatisticsAccumulator
from drivetrain.data.stats.options import StatisticsOptions
from drivetrain.data.stats.weighted_table import UNIT, total, units_of
from drivetrain.errors import InputError
from hypothesis import given, settings
from hypothesis import strategies as st


def weigh(values: Any, weights: Any, **more: Any) -> dict[str, Any]:
    """The weighted twin of a column."""
    measured = statistics(pa.table({"x": values, "w": weights}), weight="w", **more)
    return dict(measured.features("data")["x"]["weighted"])


def test_whole_weights_are_rows_repeated() -> None:
    random = np.random.default_rng(0)
    values = random.integers(-20, 20, 500) / 4
    weights = random.integers(0, 5, 500)
    rows = np.repeat(values, weights)
    twin = weigh(values, weights, quantiles=[0, 0.125, 0.25, 0.5, 0.75, 1])
    assert twin["count"] == weights.sum()
    assert twin["mean"]["value"] == pytest.approx(rows.mean(), rel=1e-15)
    assert twin["std"]["value"] == pytest.approx(rows.std(), rel=1e-15)
    assert twin["median"]["value"] == np.median(rows)
    levels = [0, 0.125, 0.25, 0.5, 0.75, 1]
    assert twin["quantiles"]["value"] == np.quantile(rows, levels, method="averaged_inverted_cdf").tolist()
    counts, edges = np.histogram(values, 10, weights=weights)
    assert [bucket["count"] for bucket in twin["histogram"]["value"]] == counts.tolist()
    assert [bucket["low"] for bucket in twin["histogram"]["value"]] == edges[:-1].tolist()
    repeated = pd.Series(rows).value_counts().to_dict().items()
    expected = sorted(((count, value) for value, count in repeated), reverse=True)[:20]
    assert [(item["count"], item["value"]) for item in twin["top_values"]["value"]] == expected


def test_float_weights() -> None:
    random = np.random.default_rng(1)
    values, weights = random.normal(size=1_000), random.exponential(size=1_000)
    twin = weigh(values, weights)
    mean = np.average(values, weights=weights)
    assert twin["count"] == math.fsum(weights)
    assert twin["mean"]["value"] == pytest.approx(mean, rel=1e-12)
    assert twin["std"]["value"] == pytest.approx(np.sqrt(np.average((values - mean) ** 2, weights=weights)), rel=1e-12)
    expected = np.quantile(values, np.linspace(0, 1, 11), weights=weights, method="inverted_cdf")
    assert twin["quantiles"]["value"] == expected.tolist()


def test_missing_weights_count_nothing_and_missing_values_are_weighed() -> None:
    measured = statistics(pa.table({"x": [1.0, None, 3.0, math.nan], "w": [2.0, 0.5, None, 0.25]}), weight="w")
    dataset = measured.document["datasets"][0]
    assert (dataset["weight"], dataset["weighted_rows"]) == ("w", 2.75)
    twin = dataset["features"][0]["weighted"]
    assert (twin["count"], twin["missing"], twin["nan"]) == (2.25, 0.5, 0.25)
    assert (twin["mean"]["value"], twin["std"]["value"]) == (1.0, 0.0)
    # The histogram spans the value without weight, too, as TFDV's does.
    assert twin["histogram"]["value"][-1] == {"low": 2.8, "high": 3.0, "count": 0.0}


def test_texts_by_weight() -> None:
    twin = weigh(["a", "bb", "a", "c", "dd", None, "e"], [1.0, 4.0, 0.5, 1.5, 0.0, 9.0, 0.25])
    pairs = [(item["value"], item["count"]) for item in twin["top_values"]["value"]]
    assert pairs == [("bb", 4.0), ("c", 1.5), ("a", 1.5), ("e", 0.25)]  # ties descend, nothing without weight
    assert (twin["count"], twin["missing"]) == (7.25, 9.0)
    assert twin["avg_length"]["value"] == (8 + 1.5 + 1.5 + 0.25) / 7.25


def test_lists_give_each_value_the_weight_of_its_row() -> None:
    twin = weigh(pa.array([[1, 2], [], None, [3, None]]), [1.0, 2.0, 4.0, 0.5])
    assert (twin["count"], twin["missing"]) == (3.5, 4.0)
    assert twin["lengths"]["mean"]["value"] == (2 * 1 + 0 * 2 + 2 * 0.5) / 3.5
    assert (twin["values"]["count"], twin["values"]["missing"]) == (2.5, 0.5)
    assert twin["values"]["mean"]["value"] == (1 + 2 + 1.5) / 2.5
    nested = weigh(pa.array([[["a"], ["b", "a"]], [["b"]]]), [1.0, 3.0])
    pairs = [(item["value"], item["count"]) for item in nested["values"]["values"]["top_values"]["value"]]
    assert pairs == [("b", 4.0), ("a", 2.0)]


def test_dates_truths_and_dictionaries() -> None:
    day = datetime.date(2013, 6, 1)
    twin = weigh(pa.array([day, day + datetime.timedelta(1), day]), [1, 3, 1])
    assert twin["median"]["value"] == "2013-06-02"
    assert "mean" not in twin
    truths = weigh(pa.array([True, False, True]), [1, 3, 1])
    assert truths["top_values"]["value"] == [{"value": False, "count": 3.0}, {"value": True, "count": 2.0}]
    texts = weigh(pa.array(["a", None, "b"]).dictionary_encode(), [1, 3, 2])
    assert [item["value"] for item in texts["top_values"]["value"]] == ["b", "a"]
    encoded = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array([5, 7]))
    assert weigh(encoded, [1, 1, 2])["mean"]["value"] == 6


def test_fields_of_structs_are_weighed_as_columns_of_their_own() -> None:
    rows = [{"lengths": 1, "a.b": [{"x": "u"}]}, None, {"lengths": None, "a.b": [{"x": "v"}, None]}, {"lengths": 4}]
    weights = [1.0, 8.0, 2.0, 0.5]
    twin = weigh(pa.array(rows), weights)
    assert (twin["count"], twin["missing"]) == (3.5, 8.0)
    there = pa.array([row for row in rows if row is not None])
    for index, field in enumerate(twin["fields"]):
        assert field == {"name": there.type[index].name} | weigh(pc.struct_field(there, [index]), [1.0, 2.0, 0.5])
    (item,) = twin["fields"][1]["values"]["fields"]
    assert [(top["value"], top["count"]) for top in item["top_values"]["value"]] == [("v", 2.0), ("u", 1.0)]


def test_weights_in_lists_of_one() -> None:
    assert weigh([1.0, 2.0, 3.0], pa.array([[1.0], [], [3]]))["mean"]["value"] == 2.5
    with pytest.raises(InputError, match="several weights in row 1"):
        weigh([1.0, 2.0], pa.array([[1.0], [1, 2]]))


@pytest.mark.parametrize("bad", [-1.0, math.nan, math.inf, 1e300])
def test_bad_weights_name_column_and_row(bad: float) -> None:
    with pytest.raises(InputError, match=r"'w' has the weight .* in row 2"):
        weigh([1, 2, 3], [1.0, None, bad])


def test_bad_weights_name_the_file_and_its_part(tmp_path: Path) -> None:
    rows = pa.table({"x": range(100), "w": [1.0] * 77 + [-1.0] + [2.0] * 22})
    pq.write_table(rows, tmp_path / "a.parquet", row_group_size=50)
    with pytest.raises(InputError, match=r"a\.parquet, the part from row 50: .* -1\.0 in row 27 of its part"):
        statistics(tmp_path / "a.parquet", weight="w")


def test_bad_weight_columns() -> None:
    with pytest.raises(InputError, match="'w' is string, not numeric"):
        weigh([1, 2], ["a", "b"])
    with pytest.raises(InputError, match="no column 'weight'") as caught:
        statistics(pa.table({"x": [1], "w": [1]}), weight="weight")
    assert "x, w" in str(caught.value)


def test_a_type_that_changes_is_told_as_without_weights() -> None:
    state = StatisticsAccumulator(options=StatisticsOptions(weight="w", correlations=True))
    state.add_batch(pa.record_batch({"x": [1], "w": [1]}))
    with pytest.raises(InputError, match="column 'x' is int64 in one part of the data and string in another"):
        state.add_batch(pa.record_batch({"x": ["a"], "w": [1]}))


def test_nothing_weighs_nothing() -> None:
    empty = state_of([], 100).result()
    assert (empty["weighted_rows"], empty["features"][0]["weighted"]["count"]) == (0.0, 0.0)
    none = weigh([1.0, 2.0], [0, 0])
    assert (none["count"], none["mean"]["value"], none["median"]["value"]) == (0.0, None, None)
    assert none["top_values"]["value"] == []


def test_beyond_the_limit_numbers_are_within_the_stated_error() -> None:
    random = np.random.default_rng(2)
    values, weights = random.lognormal(sigma=2, size=50_000), random.random(50_000)
    twin = weigh(values, weights, limit=2_000)
    mean = np.average(values, weights=weights)
    assert twin["mean"] == {"value": pytest.approx(mean, rel=1e-12), "exact": True}
    assert twin["std"]["value"] == pytest.approx(np.sqrt(np.average((values - mean) ** 2, weights=weights)))
    expected = np.quantile(values, np.linspace(0, 1, 11), weights=weights, method="inverted_cdf")
    assert twin["quantiles"]["exact"] is False
    assert twin["quantiles"]["value"] == pytest.approx(expected, rel=twin["quantiles"]["error"])
    assert twin["quantiles"]["error"] < 0.01


def test_beyond_the_limit_the_heaviest_texts_are_short_by_no_more_than_the_stated_error() -> None:
    random = np.random.default_rng(3)
    words = [f"w{number}" for number in random.zipf(1.2, 60_000) % 50_000]
    weights = random.random(60_000)
    twin = weigh(words, weights, limit=2_000)
    expected = pd.Series(weights).groupby(words).sum()
    tops = twin["top_values"]
    assert tops["exact"] is False
    for item in tops["value"]:
        assert 0 <= expected[item["value"]] - item["count"] + 1e-9 <= tops["error"] + 2e-9
    assert twin["avg_length"]["value"] == pytest.approx(np.average([len(word) for word in words], weights=weights))


WEIGHTS = st.floats(0, 1e9, allow_subnormal=False) | st.sampled_from([0.1, 0.2, 0.3, 1e-9, 2.0**60])


@given(st.lists(WEIGHTS, max_size=30))
def test_sums_of_weights_are_exact(weights: list[float]) -> None:
    kept = [weight for weight in weights if weight == 0 or weight > 1e-12]
    weight = total(units_of(np.array(kept))) * UNIT
    assert float(weight) == math.fsum(kept)


ROWS = st.lists(
    st.tuples(
        st.none() | st.sampled_from([0.0, 1.5, -2.0, math.nan, math.inf, 1e-300]) | st.floats(-1e6, 1e6),
        st.none() | st.sampled_from(["a", "b", "", "ccc"]) | st.text(max_size=3),
        st.none() | st.lists(st.none() | st.integers(-5, 5), max_size=3),
        st.none() | st.fixed_dictionaries({"x": st.none() | st.integers(0, 2), "y": st.none() | st.text(max_size=1)}),
        st.none() | WEIGHTS,
    ),
    max_size=40,
)
STRUCT = pa.struct([("x", pa.int64()), ("y", pa.string())])
SCHEMA = pa.schema(
    [("x", pa.float64()), ("s", pa.string()), ("l", pa.list_(pa.int64())), ("o", STRUCT), ("w", pa.float64())]
)


def state_of(rows: list[Any], limit: int) -> StatisticsAccumulator:
    columns = [list(column) for column in zip(*rows, strict=True)] or [[], [], [], [], []]
    state = StatisticsAccumulator(limit, StatisticsOptions(weight="w"))
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    state.add_batch(pa.RecordBatch.from_arrays(arrays, schema=SCHEMA))
    state.compact()
    return state


@settings(max_examples=60, deadline=None)
@given(ROWS, st.lists(st.integers(0, 40), max_size=3), st.booleans())
def test_any_split_gives_the_same_bytes(rows: list[Any], cuts: list[int], stored: bool) -> None:
    whole_state = state_of(rows, 100_000)
    edges = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    parts = [state_of(rows[a:b], 100_000) for a, b in itertools.pairwise(edges)]
    merged = parts[0]
    for part in parts[1:]:
        if stored:
            merged, part = (StatisticsAccumulator.from_bytes(each.to_bytes()) for each in (merged, part))
        merged.merge(part)
        merged.compact()
    assert merged.to_bytes() == whole_state.to_bytes()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(0, 10)), min_size=1, max_size=60), st.integers(0, 60))
def test_cut_numbers_do_not_depend_on_the_split(rows: list[tuple[float, float]], cut: int) -> None:
    def state(part: list[tuple[float, float]]) -> StatisticsAccumulator:
        accumulator = StatisticsAccumulator(10, StatisticsOptions(weight="w"))
        values, weights = (np.array([row[index] for row in part]) for index in (0, 1))
        accumulator.add_batch(pa.record_batch({"x": values, "w": weights}))
        accumulator.compact()
        return accumulator

    together, left = state(rows), state(rows[:cut])
    left.merge(StatisticsAccumulator.from_bytes(state(rows[cut:]).to_bytes()))
    left.compact()
    assert left.weighted["x"].to_parts() == together.weighted["x"].to_parts()
