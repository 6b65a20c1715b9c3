"""Values in lists and structs against a walk over the same rows in plain Python and numpy."""

from __future__ import annotations

import math
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from drivetrain.data import StatisticsAccumulator, executor, open_parquet
from drivetrain.errors import InputError
from hypothesis import given, settings
from hypothesis import strategies as st

DEEP = pa.list_(pa.list_(pa.float64()))
RECORD = pa.struct([("name", pa.string()), ("sizes", pa.large_list(pa.int64()))])
MAP = pa.map_(pa.string(), pa.int64())

numbers = st.none() | st.sampled_from([0.0, -1.5, 2.0, 7.0, math.nan, math.inf, -math.inf])
texts = st.none() | st.sampled_from(["", "a", "bb", "é", "long text"])
deep = st.lists(st.none() | st.lists(st.none() | st.lists(numbers, max_size=4), max_size=3), max_size=8)
sizes = st.none() | st.lists(st.none() | st.integers(-(2**62), 2**62), max_size=3)
records = st.lists(st.none() | st.fixed_dictionaries({"name": texts, "sizes": sizes}), max_size=8)
pairs = st.lists(st.tuples(st.text("ab", max_size=2), st.none() | st.integers(0, 3)), max_size=3)
maps = st.lists(st.none() | pairs, max_size=8)


def described(*arrays: pa.Array, limit: int = 100_000) -> dict[str, Any]:
    return state(*arrays, limit=limit).result()["features"][0]  # type: ignore[no-any-return]


def state(*arrays: pa.Array, limit: int = 100_000) -> StatisticsAccumulator:
    accumulator = StatisticsAccumulator(limit)
    for array in arrays:
        accumulator.add_batch(pa.RecordBatch.from_arrays([array], ["x"]))
    return accumulator


def walk(feature: dict[str, Any], rows: list[Any], arrow: pa.DataType) -> None:
    """Every number of a description, by a walk over Python's values."""
    present = [row for row in rows if row is not None]
    assert (feature["count"], feature["missing"]) == (len(present), len(rows) - len(present))
    if pa.types.is_map(arrow):
        present = [[{"key": key, "value": value} for key, value in row] for row in present]
        arrow = pa.list_(pa.struct([("key", arrow.key_type), ("value", arrow.item_type)]))
    if pa.types.is_struct(arrow):
        assert [field["name"] for field in feature["fields"]] == [field.name for field in arrow]
        for field, said in zip(arrow, feature["fields"], strict=True):
            walk(said, [row[field.name] for row in present], field.type)
    elif pa.types.is_nested(arrow):
        check_numbers(feature["lengths"], [len(row) for row in present])
        assert "name" not in feature["values"]
        walk(feature["values"], [item for row in present for item in row], arrow.value_type)
    elif pa.types.is_string(arrow):
        assert feature["unique"]["value"] == len(set(present))
        check_top(feature["top_values"]["value"], present)
        if present:
            assert feature["avg_length"]["value"] == pytest.approx(np.mean([len(text) for text in present]))
    else:
        finite = [value for value in present if math.isfinite(value)]
        if pa.types.is_floating(arrow):
            assert feature["nan"] == sum(map(math.isnan, present))
            assert feature["positive_infinity"] == present.count(math.inf)
            assert feature["negative_infinity"] == present.count(-math.inf)
        check_numbers(feature, finite)


def check_numbers(feature: dict[str, Any], values: list[Any]) -> None:
    assert feature["unique"]["value"] == len(set(values))
    check_top(feature["top_values"]["value"], values)
    if not values:
        assert (feature["mean"]["value"], feature["min"]["value"]) == (None, None)
        return
    assert (feature["min"]["value"], feature["max"]["value"]) == (min(values), max(values))
    assert feature["zeros"]["value"] == values.count(0)
    assert feature["mean"]["value"] == pytest.approx(math.fsum(values) / len(values), rel=1e-12, abs=1e-9)
    assert feature["std"]["value"] == pytest.approx(np.std(np.asarray(values, np.float64)), rel=1e-9, abs=1e-9)
    assert sum(bucket["count"] for bucket in feature["histogram"]["value"]) == len(values)


def check_top(top_values: list[dict[str, Any]], values: list[Any]) -> None:
    counts = Counter(values)
    assert {item["value"]: item["count"] for item in top_values} == dict(counts.most_common(20)) or len(counts) > 20
    assert [item["count"] for item in top_values] == sorted((item["count"] for item in top_values), reverse=True)


@settings(max_examples=60, deadline=None)
@given(deep, records, maps)
def test_every_number_is_a_walks(deep: list[Any], records: list[Any], maps: list[Any]) -> None:
    for rows, arrow in ((deep, DEEP), (records, RECORD), (maps, MAP)):
        walk(described(pa.array(rows, arrow)), rows, arrow)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.lists(deep, min_size=3, max_size=3), st.lists(records, min_size=3, max_size=3), st.sampled_from([2, 100]))
def test_parts_merge_as_the_whole(deep: list[Any], records: list[Any], limit: int) -> None:
    """Stored in between or not; where all is exact also as from one batch."""
    for parts, arrow in ((deep, DEEP), (records, RECORD)):
        arrays = [pa.array(part, arrow) for part in parts]

        def state_of(array: pa.Array) -> StatisticsAccumulator:
            return state(array, limit=limit)

        first, second, third = map(state_of, arrays)
        first.merge(second)
        first.merge(third)
        stored = StatisticsAccumulator.from_bytes(state_of(arrays[0]).to_bytes())
        for array in arrays[1:]:
            stored.merge(StatisticsAccumulator.from_bytes(state_of(array).to_bytes()))
            stored = StatisticsAccumulator.from_bytes(stored.to_bytes())
        assert stored.to_bytes() == first.to_bytes()
        assert stored.result() == first.result()
        if limit == 100:
            assert first.to_bytes() == state(pa.concat_arrays(arrays), limit=limit).to_bytes()


KINDS = {
    "list": pa.list_(pa.int32()), "large": pa.large_list(pa.int32()), "view": pa.list_view(pa.int32()),
    "large view": pa.large_list_view(pa.int32()), "dictionary": pa.list_(pa.dictionary(pa.int8(), pa.int32())),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_list(kind: str) -> None:
    rows = [[9, 9], [1, None], None, [], [3, 3, 3]]
    walk(described(pa.array(rows, KINDS[kind]).slice(1)), rows[1:], pa.list_(pa.int32()))


def test_fixed_size_lists() -> None:
    rows = [[9, 9], [1, None], None, [3, 4]]
    walk(described(pa.array(rows, pa.list_(pa.int64(), 2)).slice(1)), rows[1:], pa.list_(pa.int64()))


def test_values_beyond_the_limit_are_sketched() -> None:
    rows = [[f"{row}-{item}" for item in range(50)] for row in range(100)]
    feature = described(pa.array(rows), limit=1_000)
    assert feature["lengths"]["mean"] == {"value": 50.0, "exact": True}
    unique = feature["values"]["unique"]
    assert not unique["exact"]
    assert unique["value"] == pytest.approx(5_000, rel=4 * unique["error"])


def test_nothing_in_one_part_and_lists_in_another() -> None:
    rows: list[Any] = [[["a"], None], [[]]]
    lists = pa.array(rows, pa.list_(pa.list_(pa.string())))
    empty = pa.array([[], None], pa.list_(pa.null()))
    nothing = pa.nulls(2)
    for parts in ([nothing, empty, lists], [lists, nothing, empty], [empty, lists, nothing]):
        merged = state(parts[0])
        merged.merge(state(parts[1]))
        merged.merge(state(parts[2]))
        for feature in (described(*parts), merged.result()["features"][0]):
            assert (feature["count"], feature["missing"]) == (3, 3)
            walk(feature["values"], [item for row in rows for item in row], pa.list_(pa.string()))


@pytest.mark.parametrize(
    ("first", "other", "named"),
    [
        (pa.array([[1]]), pa.array([["a"]]), r"column 'x\[\]' is int64"),
        (pa.array([{"a": 1}]), pa.array([{"a": 1, "b": 2}]), "field 'b' of column 'x'"),
        (pa.array([{"a": [1]}]), pa.array([{"a": [1.5]}]), r"column 'x\.a\[\]'"),
    ],
)
def test_what_differs_inside_is_named(first: pa.Array, other: pa.Array, named: str) -> None:
    with pytest.raises(InputError, match=named):
        described(first, other)
    with pytest.raises(InputError, match=named):
        state(first).merge(state(other))


def test_two_fields_of_one_name() -> None:
    twice = pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    with pytest.raises(InputError, match="two fields of column 'x' are named 'a'"):
        described(twice)


def test_wrapped_types() -> None:
    """Extensions, runs and dictionaries count as what they wrap; a null in a dictionary is a missing row."""
    uuid = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"a" * 16, None, b"b" * 16], pa.binary(16)))
    feature = described(uuid)
    assert (feature["type"], feature["count"], feature["unique"]["value"]) == ("bytes", 2, 2)
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array([5, None]))
    walk(described(runs), [5, 5, None], pa.int64())
    coded = pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 0]), pa.array(["a", None]))
    walk(described(coded), ["a", None, None, "a"], pa.string())


@pytest.mark.beam
def test_beam_gives_the_same_bytes(tmp_path: Path) -> None:
    pytest.importorskip("apache_beam")
    generator = np.random.default_rng(0)
    rows = 3_000
    lists = [None if i % 7 == 0 else [[float(j)] * (j % 3) for j in range(i % 4)] for i in range(rows)]
    structs = [{"name": f"n{i % 900}", "sizes": generator.integers(0, 50, i % 3).tolist()} for i in range(rows)]
    table = pa.table({"deep": pa.array(lists, DEEP), "record": pa.array(structs, RECORD)})
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=300)
    source = open_parquet([tmp_path / "x.parquet"])
    states = [executor(name).combine(source, StatisticsAccumulator) for name in ("local", "beam")]
    assert states[0].to_bytes() == states[1].to_bytes()
    walk(states[1].result()["features"][0], lists, DEEP)


def test_long_decimals_are_said_to_be_rounded() -> None:
    short = [Decimal("0.10"), Decimal("-123456789012.25"), None]
    for arrow in (pa.decimal128(38, 2), pa.decimal128(19, 2), pa.decimal256(50, 2)):
        feature = described(pa.array(short, arrow))
        assert feature["min"] == {"value": -123456789012.25, "exact": True}
        long = described(pa.array([*short, Decimal("123456789012345.67")], arrow))
        assert long["max"] == {"value": 123456789012345.67, "exact": False, "error": 2**-53, "method": "float64"}
        assert long["zeros"]["exact"]
    both = state(pa.array([[Decimal("1.5")]], pa.list_(pa.decimal128(38, 18))))
    both.merge(state(pa.array([[Decimal("12345678901234567890.1")]], pa.list_(pa.decimal128(38, 18)))))
    stored = StatisticsAccumulator.from_bytes(both.to_bytes())
    assert not stored.result()["features"][0]["values"]["mean"]["exact"]
