"""The statistics accumulator: every type, every oddity, and the laws of merging."""

from __future__ import annotations

import datetime
import decimal
import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from drivetrain.data.stats.accumulator import StatisticsAccumulator
from drivetrain.data.stats.document import Statistics, from_states, statistics
from drivetrain.errors import InputError
from hypothesis import given, settings
from hypothesis import strategies as st


def accumulate(*batches: pa.RecordBatch, limit: int = 100_000) -> StatisticsAccumulator:
    state = StatisticsAccumulator(limit)
    for batch in batches:
        state.add_batch(batch)
    return state


def describe(array: pa.Array, limit: int = 100_000) -> dict[str, Any]:
    state = accumulate(pa.RecordBatch.from_arrays([array], ["x"]), limit=limit)
    return dict(state.result()["features"][0])


def test_nan_and_infinities_are_counted_apart() -> None:
    feature = describe(pa.array([1.0, math.nan, math.inf, -1.0, 0.0, -math.inf, None, -0.0]))
    assert (feature["count"], feature["missing"]) == (7, 1)
    assert (feature["nan"], feature["positive_infinity"], feature["negative_infinity"]) == (1, 1, 1)
    assert feature["mean"]["value"] == 0.0
    assert feature["std"]["value"] == math.sqrt(0.5)
    assert (feature["min"]["value"], feature["max"]["value"]) == (-1.0, 1.0)
    assert (feature["zeros"]["value"], feature["unique"]["value"]) == (2, 3)


def test_median_is_the_midpoint() -> None:
    assert describe(pa.array([1, 2, 3, 4, 5, 0, None]))["median"]["value"] == 2.5


def test_ties_of_top_values_are_in_descending_order() -> None:
    feature = describe(pa.array(["b", "a", "c", "a", "b", "c", "a", None, "dddd"]))
    pairs = [(item["value"], item["count"]) for item in feature["top_values"]["value"]]
    assert pairs == [("a", 3), ("c", 2), ("b", 2), ("dddd", 1)]
    assert feature["avg_length"]["value"] == 1.375


def test_integers_beyond_2_to_53_stay_exact() -> None:
    big = 2**62 + 1
    feature = describe(pa.array([big, big + 2, -big]))
    assert (feature["min"]["value"], feature["max"]["value"], feature["median"]["value"]) == (-big, big + 2, big)
    assert feature["mean"]["value"] == (big + 2) / 3
    assert describe(pa.array([2**64 - 1, 0], pa.uint64()))["max"]["value"] == 2**64 - 1


def test_extreme_floats_do_not_overflow() -> None:
    feature = describe(pa.array([1.7e308, -1.7e308, 1.7e308]))
    assert feature["mean"]["value"] == pytest.approx(1.7e308 / 3)
    assert feature["std"]["value"] == pytest.approx(np.std([1.7, -1.7, 1.7]) * 1e308)
    assert describe(pa.array([1.7e308, -1.7e308]))["median"]["value"] == 0
    json.dumps(feature, allow_nan=False)
    assert sum(bucket["count"] for bucket in feature["histogram"]["value"]) == 3
    assert describe(pa.array([1e-300, 0.0]))["std"]["value"] == 5e-301  # whose square float64 does not hold


def test_bool() -> None:
    feature = describe(pa.array([True, False, True, None]))
    assert (feature["type"], feature["count"], feature["mean"]["value"]) == ("bool", 3, 2 / 3)
    assert feature["top_values"]["value"] == [{"value": True, "count": 2}, {"value": False, "count": 1}]


def test_dates_and_times_are_iso_text() -> None:
    day = datetime.date(2013, 6, 1)
    assert describe(pa.array([day, None]))["max"]["value"] == "2013-06-01"
    assert describe(pa.array([day], pa.date64()))["max"]["value"] == "2013-06-01"
    moment = datetime.datetime(2013, 6, 1, 12, 30, 0, 250_000)
    assert describe(pa.array([moment]))["min"]["value"] == "2013-06-01T12:30:00.25"
    zoned = pa.array([moment], pa.timestamp("us", "Europe/Oslo"))
    assert describe(zoned)["min"]["value"] == "2013-06-01T12:30:00.25Z"
    assert describe(pa.array([datetime.time(1, 2, 3)]))["min"]["value"] == "01:02:03"


def test_a_column_of_nothing() -> None:
    for array in (pa.nulls(3), pa.nulls(3, pa.float64()), pa.nulls(3, pa.string()), pa.nulls(3, pa.timestamp("us"))):
        feature = describe(array)
        assert (feature["count"], feature["missing"]) == (0, 3)
    assert describe(pa.nulls(3, pa.int64()))["mean"]["value"] is None


def test_null_then_values_takes_the_type() -> None:
    first = pa.RecordBatch.from_arrays([pa.nulls(2)], ["x"])
    second = pa.RecordBatch.from_arrays([pa.array([1, 2])], ["x"])
    feature = accumulate(first, second).result()["features"][0]
    assert (feature["type"], feature["missing"], feature["mean"]["value"]) == ("int", 2, 1.5)


def test_lists_tell_missing_from_empty() -> None:
    feature = describe(pa.array([[1, 2], [], None, [3]]))
    assert (feature["type"], feature["count"], feature["missing"]) == ("list", 3, 1)
    assert (feature["lengths"]["min"]["value"], feature["lengths"]["max"]["value"]) == (0, 2)
    assert describe(pa.array([{"a": 1}, None]))["missing"] == 1
    pairs = pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64()))
    assert describe(pairs)["lengths"]["max"]["value"] == 1


def test_decimals_and_half_floats_are_floats() -> None:
    assert describe(pa.array([decimal.Decimal("1.50"), None]))["mean"]["value"] == 1.5
    assert describe(pa.array(np.array([0.5, 1.5], np.float16)))["mean"]["value"] == 1.0


def test_bytes_and_broken_text() -> None:
    assert describe(pa.array([b"\xff\x00", b"a"]))["avg_length"]["value"] == 1.5
    broken = pa.Array.from_buffers(pa.string(), 2, pa.array([b"\xff", b"ok"]).buffers())
    feature = describe(broken)
    assert feature["invalid_utf8"]["value"] == 1
    assert {item["value"] for item in feature["top_values"]["value"]} == {"\\xff", "ok"}


def test_a_huge_text_is_quoted_in_part() -> None:
    feature = describe(pa.array(["x" * 5_000_000, "y"]))
    assert feature["avg_length"]["value"] == 2_500_000.5
    assert {item["value"] for item in feature["top_values"]["value"]} == {"y", "x" * 1000 + "… (5,000,000 bytes)"}


@pytest.mark.slow
def test_five_thousand_columns() -> None:
    names = [f"c{i}" for i in range(5_000)]
    state = accumulate(pa.RecordBatch.from_arrays([pa.array([1, None])] * 5_000, names))
    assert [feature["name"] for feature in state.result()["features"]] == names
    assert StatisticsAccumulator.from_bytes(state.to_bytes()).to_bytes() == state.to_bytes()


def test_dictionaries_count_as_their_values() -> None:
    plain = pa.array(["x", None, "y", "x"])
    unused = pa.DictionaryArray.from_arrays(pa.array([0, None, 2, 0]), pa.array(["x", "never", "y"]))
    assert describe(unused) == describe(plain)
    assert describe(pa.array([1, 2, 1]).dictionary_encode()) == describe(pa.array([1, 2, 1]))


def test_mixed_types_and_columns_are_refused() -> None:
    number = pa.RecordBatch.from_arrays([pa.array([1])], ["x"])
    text = pa.RecordBatch.from_arrays([pa.array(["1"])], ["x"])
    other = pa.RecordBatch.from_arrays([pa.array([1])], ["y"])
    with pytest.raises(InputError, match="'x' is int64 in one part of the data and string"):
        accumulate(number, text)
    with pytest.raises(InputError, match="'x' is int64"):
        accumulate(number).merge(accumulate(text))
    with pytest.raises(InputError, match="in one part of the data and not in another"):
        accumulate(number, other)
    with pytest.raises(InputError, match="two columns are named 'x'"):
        accumulate(pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], ["x", "x"]))


def test_bytes_that_are_no_state_are_refused() -> None:
    with pytest.raises(InputError, match="not the statistics state"):
        StatisticsAccumulator.from_bytes(b"junk")
    data = bytearray(accumulate(pa.RecordBatch.from_arrays([pa.array([1])], ["x"])).to_bytes())
    data[4] = 99
    with pytest.raises(InputError, match="version 99"):
        StatisticsAccumulator.from_bytes(bytes(data))


def test_no_rows(tmp_path: Path) -> None:
    empty = StatisticsAccumulator()
    assert StatisticsAccumulator.from_bytes(empty.to_bytes()).result() == {"rows": 0, "features": []}
    from_states({"data": empty}).save(tmp_path)
    assert Statistics.load(tmp_path).splits == {"data": 0}


COLUMNS = {
    "number": (pa.float64(), st.none() | st.floats(width=64) | st.sampled_from([0.1, 0.2, 0.3])),
    "whole": (pa.int64(), st.none() | st.integers(-(2**63), 2**63 - 1) | st.integers(0, 5)),
    "text": (pa.string(), st.none() | st.text(max_size=3)),
    "flag": (pa.bool_(), st.none() | st.booleans()),
    "items": (pa.list_(pa.int64()), st.none() | st.lists(st.integers(0, 3), max_size=3)),
}


@st.composite
def batches(draw: st.DrawFn) -> pa.RecordBatch:
    rows = draw(st.integers(0, 30))
    arrays = []
    for kind, values in COLUMNS.values():
        arrays.append(pa.array(draw(st.lists(values, min_size=rows, max_size=rows)), kind))
    return pa.RecordBatch.from_arrays(arrays, list(COLUMNS))


@settings(deadline=None, max_examples=60)
@given(batches(), st.data())
def test_any_split_and_any_order_of_merging_gives_the_same_bytes(batch: pa.RecordBatch, data: st.DataObject) -> None:
    whole = accumulate(batch)
    cuts = sorted(data.draw(st.lists(st.integers(0, batch.num_rows), max_size=4)))
    edges = [0, *cuts, batch.num_rows]
    parts = [accumulate(batch.slice(a, b - a)) for a, b in itertools.pairwise(edges)]
    while len(parts) > 1:
        index = data.draw(st.integers(0, len(parts) - 2))
        right = parts.pop(index + 1)
        if data.draw(st.booleans()):
            right = StatisticsAccumulator.from_bytes(right.to_bytes())
        parts[index].merge(right)
    assert parts[0].to_bytes() == whole.to_bytes()
    assert parts[0].result() == whole.result()


@settings(deadline=None, max_examples=30)
@given(batches())
def test_states_round_trip(batch: pa.RecordBatch) -> None:
    for limit in (100_000, 3):
        state = accumulate(batch, limit=limit)
        again = StatisticsAccumulator.from_bytes(state.to_bytes())
        assert again.to_bytes() == state.to_bytes()
        assert again.result() == state.result()


@pytest.mark.slow
@settings(deadline=None, max_examples=40)
@given(st.lists(batches(), min_size=1, max_size=6), st.data())
def test_storing_a_state_in_between_changes_nothing_with_sketches(
    parts: list[pa.RecordBatch], data: st.DataObject
) -> None:
    direct = [accumulate(part, limit=8) for part in parts]
    stored = [accumulate(part, limit=8) for part in parts]
    for state in (*direct, *stored):
        state.compact()
    while len(direct) > 1:
        index = data.draw(st.integers(0, len(direct) - 2))
        direct[index].merge(direct.pop(index + 1))
        right = StatisticsAccumulator.from_bytes(stored.pop(index + 1).to_bytes())
        stored[index] = StatisticsAccumulator.from_bytes(stored[index].to_bytes())
        stored[index].merge(right)
    assert direct[0].to_bytes() == stored[0].to_bytes()


def test_whether_a_column_is_exact_depends_on_its_rows_alone() -> None:
    values = pa.array([*range(10), *range(10)])
    for cut in range(21):
        left = accumulate(pa.RecordBatch.from_arrays([values.slice(0, cut)], ["x"]), limit=10)
        left.merge(accumulate(pa.RecordBatch.from_arrays([values.slice(cut)], ["x"]), limit=10))
        assert left.result()["features"][0]["unique"] == {"value": 10, "exact": True}
        left.add_batch(pa.RecordBatch.from_arrays([pa.array([99])], ["x"]))
        assert left.result()["features"][0]["unique"]["exact"] is False


def test_histograms_of_data_sets_have_the_same_buckets() -> None:
    first = pa.table({"n": [1, 2, 12, None], "x": [0.0, 1.0, 5.0, 2.0], "l": [[1], [], [7], [1, 2]], "g": list("aabb")})
    other = pa.table({"n": [40, 3, 5, 6], "x": [-5.0, 2.0, 2.0, 3.0], "l": [[9]] * 4, "g": list("abab")})
    weights = [pa.array([1.0, 2.0, 0.5, 0.0]), pa.array([1.0] * 4)]
    both = {name: rows.append_column("w", by) for name, rows, by in zip("pq", (first, other), weights, strict=True)}
    measured = statistics(both, weight="w", slices=["g"], limit=1_000).document["datasets"]
    described = [*measured, *(part for dataset in measured for part in dataset["slices"])]
    edges: dict[str, set[tuple[float, ...]]] = {}
    for dataset in described:
        for feature in dataset["features"]:
            for about in (feature, feature.get("lengths"), feature.get("values")):
                for where in (about, (about or {}).get("weighted")):
                    if buckets := (where or {}).get("histogram", {}).get("value"):
                        ends = (*(bucket["low"] for bucket in buckets), buckets[-1]["high"])
                        edges.setdefault(f"{feature['name']}{about is feature}", set()).add(ends)
    assert edges["nTrue"] == {tuple(range(1, 42, 4))}
    assert edges["xTrue"] == {tuple(np.linspace(-5, 5, 11).tolist())}
    assert edges["lFalse"] == {(0, 1, 2, 3), tuple(range(1, 11))}  # of lengths, of items
    whole = statistics(both["p"], weight="w").features("data")["n"]["histogram"]["value"]
    assert [(bucket["low"], bucket["count"]) for bucket in whole if bucket["count"]] == [(1, 1), (2, 1), (12, 1)]
