"""Sketches keep the error they state, and moments stay exact."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from drivetrain.data.aggregates import sketches
from drivetrain.data.aggregates.sketches import DistinctSketch, FrequentSketch, QuantileSketch, TextSample
from drivetrain.data.aggregates.tables import count_numbers, count_texts
from drivetrain.data.aggregates.text_rows import text_hashes
from drivetrain.data.stats.accumulator import StatisticsAccumulator
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray


@pytest.mark.parametrize(
    "spread",
    [
        lambda normal: normal,
        lambda normal: np.exp(normal * 4),  # nearly all in the lowest of equal intervals
        lambda normal: np.where(normal > 0, normal, np.round(normal)),
        lambda normal: np.where(normal > 0, 1.7e308, -1.7e308) * np.abs(np.sin(normal)),  # a range beyond float64's
        lambda normal: np.floor(np.abs(normal) * 9) * 5e-324,
        lambda normal: np.where(normal > 0, 0.0, -0.0),
    ],
    ids=["normal", "log-normal", "repeated", "widest", "smallest", "zeros"],
)
def test_any_spread_of_many_numbers_is_counted_as_numpy_counts_it(spread: Callable[[Any], Any]) -> None:
    numbers = spread(np.random.default_rng(5).normal(size=20_000))
    table = count_numbers(numbers)
    values, counts = np.unique(numbers, return_counts=True)
    np.testing.assert_array_equal(table.values, values)
    np.testing.assert_array_equal(table.counts, counts)
    assert not np.signbit(table.values[table.values == 0]).any()


def worst_rank_error(sketch: QuantileSketch, values: NDArray[np.float64]) -> int:
    """The largest difference between a true rank and the summary's, over all values."""
    table = sketch.table()
    assert table.total == len(values)
    probes = np.unique(values)
    true = np.searchsorted(np.sort(values), probes, side="right")
    ends = np.concatenate(([0], np.cumsum(table.counts)))
    estimated = ends[np.searchsorted(table.values, probes, side="right")]
    return int(np.abs(true - estimated).max())


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**32 - 1), st.lists(st.integers(1, 3000), min_size=1, max_size=12), st.booleans())
def test_quantiles_keep_their_bound(seed: int, sizes: list[int], repeats: bool) -> None:
    random = np.random.default_rng(seed)
    whole = QuantileSketch()
    every = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sketches, "_WIDTH", 16)
        for size in sizes:
            values = random.normal(size=size)
            if repeats:
                values = np.round(values, 1)
            part = QuantileSketch()
            part.add(count_numbers(values))
            whole.merge(part)
            every.append(values)
        assert worst_rank_error(whole, np.concatenate(every)) <= whole.error


def test_quantiles_of_a_million_rows_are_within_half_a_percent() -> None:
    values = np.random.default_rng(0).normal(size=1_000_000)
    sketch = QuantileSketch()
    for part in np.split(values, 16):
        sketch.add(count_numbers(part))
    assert worst_rank_error(sketch, values) <= sketch.error <= 0.005 * len(values)


@pytest.mark.parametrize("size", [0, 1, 100, 5_000, 200_000])
def test_distinct_counts(size: int) -> None:
    for table in (
        count_numbers(np.arange(size) * 1.5),
        count_texts(pa.array([f"v{i}" for i in range(size)], pa.string())),
    ):
        sketch = DistinctSketch()
        sketch.add(table)
        assert abs(sketch.estimate() - size) <= 4 * sketch.standard_error * size
        again = DistinctSketch()
        again.add(table)
        again.merge(sketch)
        assert (again.registers == sketch.registers).all()


@settings(deadline=None, max_examples=40)
@given(st.lists(st.lists(st.integers(0, 60), max_size=200), min_size=1, max_size=6), st.booleans())
def test_frequent_values_keep_their_bound(parts: list[list[int]], text: bool) -> None:
    whole = FrequentSketch()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sketches, "_CAPACITY", 10)
        for part in parts:
            sketch = FrequentSketch()
            if text:
                sketch.add(count_texts(pa.array([str(value) for value in part], pa.string())))
            else:
                sketch.add(count_numbers(np.array(part, np.int64)))
            whole.merge(sketch)
    true = Counter(value for part in parts for value in part)
    assert whole.table is not None
    kept = dict(zip(map(int, whole.table.values.tolist()), whole.table.counts.tolist(), strict=True))
    assert len(kept) <= 10
    for value, count in true.items():
        assert kept.get(value, 0) <= count <= kept.get(value, 0) + whole.error
    assert whole.error <= sum(true.values()) / 11


def test_a_continuous_column() -> None:
    values = np.random.default_rng(1).normal(1e9, 1.0, size=300_000)
    values[::7] = 1e9
    state = StatisticsAccumulator()
    for part in np.array_split(values, 5):
        piece = StatisticsAccumulator()
        piece.add_batch(pa.RecordBatch.from_arrays([pa.array(part)], ["x"]))
        state.merge(StatisticsAccumulator.from_bytes(piece.to_bytes()))
    feature = state.result()["features"][0]
    assert feature["mean"] == {"value": math.fsum(values) / len(values), "exact": True}
    assert feature["std"]["value"] == pytest.approx(np.std(values - 1e9), rel=1e-9)
    assert (feature["min"]["value"], feature["max"]["value"]) == (values.min(), values.max())
    assert feature["unique"]["method"] == "hyperloglog"
    assert feature["unique"]["value"] == pytest.approx(len(np.unique(values)), rel=0.04)
    first = feature["top_values"]["value"][0]
    true = int((values == 1e9).sum())
    assert first["value"] == 1e9
    assert true - feature["top_values"]["error"] <= first["count"] <= true
    rank = np.searchsorted(np.sort(values), feature["median"]["value"]) / len(values)
    assert feature["median"]["value"] == 1e9 or abs(rank - 0.5) <= feature["median"]["error"]
    assert sum(bucket["count"] for bucket in feature["histogram"]["value"]) == len(values)


def test_a_near_unique_text_column() -> None:
    values = [f"id-{i:07d}" for i in range(150_000)] + ["same"] * 5_000
    state = StatisticsAccumulator()
    state.add_batch(pa.RecordBatch.from_arrays([pa.array(values)], ["x"]))
    feature = state.result()["features"][0]
    assert feature["avg_length"] == {"value": sum(map(len, values)) / len(values), "exact": True}
    assert feature["unique"]["value"] == pytest.approx(150_001, rel=0.04)
    assert feature["top_values"]["value"][0]["value"] == "same"


@settings(deadline=None, max_examples=40)
@given(st.lists(st.lists(st.integers(0, 300), max_size=300), min_size=1, max_size=6), st.integers(1, 20))
def test_a_sample_of_texts_is_exact_however_its_rows_come(parts: list[list[int]], size: int) -> None:
    samples = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sketches, "_SAMPLE", size)
        for part in parts:
            sample = TextSample()
            for start in range(0, len(part), 64):
                values = pa.array([b"%d" % value for value in part[start : start + 64]], pa.large_binary())
                sample.add(values, np.ones(len(values), np.int64), text_hashes(values))
            samples.append(sample)
        for sample in samples[1:]:
            samples[0].merge(sample)
    rows = Counter(b"%d" % value for part in parts for value in part)
    distinct = pa.array(sorted(rows), pa.large_binary())
    order = np.argsort(text_hashes(distinct))[:size]
    wanted = [distinct[int(index)].as_py() for index in order]
    assert samples[0].values.to_pylist() == wanted
    assert samples[0].counts.tolist() == [rows[value] for value in wanted]
