"""The row hash and the split: fixed vectors, independence of layout, uniformity."""

import datetime
import hashlib
from decimal import Decimal
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from drivetrain.data import HashSplit
from drivetrain.data.rowhash import hash_column, hash_rows
from drivetrain.errors import InputError
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

MASK = 2**64 - 1


def mix(value: int) -> int:
    """SplitMix64 in plain Python: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014."""
    value = (value + 0x9E3779B97F4A7C15) & MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK
    return value ^ (value >> 31)


def text_hash(text: str | bytes, family: int = 4) -> int:
    data = text.encode() if isinstance(text, str) else text
    value = (mix(family) + len(data)) & MASK
    for start in range(0, len(data), 8):
        value = mix(value ^ int.from_bytes(data[start : start + 8], "little"))
    return value


def test_splitmix64_reference_outputs() -> None:
    # The first outputs of the reference generator seeded with 0 and 1234567 (prng.di.unimi.it/splitmix64.c).
    assert mix(0) == 0xE220A8397B1DCDAF
    assert mix(1234567) == 6457827717110365317


@settings(deadline=None)
@given(st.lists(st.none() | st.text(max_size=40), max_size=30), st.integers(0, 5))
def test_text_is_hashed_as_documented_in_every_encoding(values: Any, start: int) -> None:
    plain = pa.array(values, pa.string())
    expected = [mix(0) if value is None else text_hash(value) for value in values]
    assert hash_column(plain).tolist() == expected
    assert hash_column(plain.cast(pa.large_string())).tolist() == expected
    assert hash_column(plain.dictionary_encode()).tolist() == expected
    assert hash_column(plain.slice(start)).tolist() == expected[start:]


def test_long_text_is_hashed_by_its_digest() -> None:
    def long_hash(data: bytes) -> int:
        value = (mix(4) + len(data)) & MASK
        digest = hashlib.sha256(data).digest()
        for start in range(0, 32, 8):
            value = mix(value ^ int.from_bytes(digest[start : start + 8], "little"))
        return value

    values = ["short", "x" * 4096, "x" * 4097, None, "é" * 10_000]
    expected = [mix(0) if v is None else long_hash(v.encode()) if len(v) > 4096 else text_hash(v) for v in values]
    column = pa.array(values)
    assert hash_column(column).tolist() == expected
    assert hash_column(column.slice(2)).tolist() == expected[2:]


@settings(deadline=None)
@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), max_size=30), st.integers(0, 5))
def test_integers_are_hashed_as_documented(values: Any, start: int) -> None:
    column = pa.array(values, pa.int64())
    expected = [mix(0) if value is None else mix((mix(1) + value) & MASK) for value in values]
    assert hash_column(column).tolist() == expected
    assert hash_column(column.slice(start)).tolist() == expected[start:]


def test_a_dictionary_as_large_as_its_index_type_hashes_its_nulls() -> None:
    codes = pa.array([*range(128), None], pa.int8())
    column = pa.DictionaryArray.from_arrays(codes, pa.array([str(value) for value in range(128)]))
    assert hash_column(column).tolist() == hash_column(column.cast(pa.string())).tolist()


def test_fixed_vectors() -> None:
    # These decide which rows of stored data are in which split: they never change.
    batch = pa.RecordBatch.from_pydict(
        {
            "i": pa.array([1, None, -1], pa.int32()),
            "f": pa.array([0.5, -0.0, None], pa.float32()),
            "s": ["a", "", None],
            "b": [True, None, False],
            "l": [[1, 2], [], None],
            "t": pa.array([0, 1, None], pa.timestamp("ms")),
        }
    )
    assert hash_rows(batch).tolist() == VECTORS
    assert HashSplit.of({"train": 2, "eval": 1})(batch).tolist() == [value % 3 // 2 for value in VECTORS]


VECTORS = [9026104818441445436, 5613902927203264207, 15150904384823617994]


def test_equal_values_hash_equally_and_different_ones_do_not() -> None:
    same = pa.array([0.0, -0.0]), pa.array([0.0, 0.0], pa.float32())
    assert len({value for column in same for value in hash_column(column).tolist()}) == 1
    assert len(set(hash_column(pa.array([float("nan"), -float("nan")])).tolist())) == 1
    assert hash_column(pa.array([7], pa.int8())) == hash_column(pa.array([7], pa.uint64()))
    different = [
        *hash_column(pa.array([None, "", "0", "\0", "\0\0", "null"])).tolist(),
        *hash_column(pa.array([0, 1])).tolist(),
        *hash_column(pa.array([0.0, 1.0])).tolist(),
        *hash_column(pa.array([False, True])).tolist(),
        *hash_column(pa.array([b"", b"0"])).tolist(),
        *hash_column(pa.array([[], [0], [0, 0], [None], [[1], []]][:4], pa.list_(pa.int64()))).tolist(),
        *hash_column(pa.array([datetime.date(1970, 1, 1)])).tolist(),
        *hash_column(pa.array([datetime.datetime(1970, 1, 1)])).tolist(),
    ]
    assert len(set(different)) == len(different)


def test_nested_and_decimal_columns() -> None:
    column = pa.array([{"a": 1, "b": "x"}, None, {"a": None, "b": "x"}])
    assert len(set(hash_column(column).tolist())) == 3
    assert hash_column(pa.array([Decimal("1.50")])).tolist() == [text_hash("1.50")]
    lists = pa.array([["a", "b"], ["b", "a"], [], None, ["a", "b"]])
    hashes = hash_column(lists).tolist()
    assert hashes[0] == hashes[4]
    assert len(set(hashes)) == 4
    assert hash_column(lists.slice(2)).tolist() == hashes[2:]
    with pytest.raises(InputError, match="no row hash"):
        hash_column(pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())))


@cache
def table(rows: int = 3000) -> pa.Table:
    random = np.random.default_rng(3)
    return pa.table(
        {
            "id": np.arange(rows),
            "f": random.normal(size=rows),
            "s": pa.array([None if i % 7 == 0 else f"value {i % 50}" for i in range(rows)]),
        }
    )


@cache
def whole_and_its_splits() -> tuple[pa.RecordBatch, list[int]]:
    (whole,) = table().to_batches()
    return whole, HashSplit.of({"train": 2, "eval": 1})(whole).tolist()


@settings(deadline=None)
@given(st.lists(st.integers(1, 700), min_size=1, max_size=9), st.permutations(["id", "f", "s"]))
def test_layout_and_column_order_do_not_matter(sizes: list[int], order: list[str]) -> None:
    whole, expected = whole_and_its_splits()
    start, chosen = 0, []
    for size in [*sizes, whole.num_rows]:
        batch = whole.slice(start, size).select(order)
        chosen += HashSplit.of({"train": 2, "eval": 1})(batch).tolist()
        start += size
    assert chosen == expected


@pytest.mark.parametrize("by", [None, "id"])
def test_splits_get_their_shares(by: str | None) -> None:
    rows = 120_000
    batch = pa.RecordBatch.from_pydict({"id": np.arange(rows), "month": np.arange(rows) % 12})
    weights = {"train": 5, "eval": 3, "test": 2}
    counts = np.bincount(HashSplit.of(weights, by)(batch), minlength=3)
    assert stats.chisquare(counts, rows * np.array([0.5, 0.3, 0.2])).pvalue > 1e-3


@pytest.mark.parametrize("values", [np.arange(64_000), np.arange(64_000) * 1024.0, None])
def test_hashes_are_uniform_in_their_low_and_high_bits(values: Any) -> None:
    column = pa.array([f"N{i:05d}" for i in range(64_000)]) if values is None else pa.array(values)
    hashes = hash_column(column)
    for bits in (hashes & np.uint64(63), hashes >> np.uint64(58)):
        assert stats.chisquare(np.bincount(bits.astype(np.int64), minlength=64)).pvalue > 1e-4
    assert len(np.unique(hashes)) == len(hashes)


def test_rows_equal_in_a_column_stay_together() -> None:
    batch = table().combine_chunks().to_batches()[0]
    chosen = HashSplit.of({"a": 1, "b": 1}, "s")(batch)
    groups: dict[str | None, set[int]] = {}
    for value, split in zip(batch["s"].to_pylist(), chosen, strict=True):
        groups.setdefault(value, set()).add(int(split))
    assert all(len(splits) == 1 for splits in groups.values())
    assert None in groups


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({}, "no splits"),
        (["a", "b"], "names with shares"),
        ({1: 1}, "1 cannot name a split"),
        ({"a": 0}, "the share 0"),
        ({"a": 2**70}, "whole numbers from 1 to 1,000,000,000"),
        ({"a": 1.5}, "the share 1.5"),
        ({"a": True}, "True"),
        ({"a/b": 1}, "a/b"),
    ],
)
def test_senseless_splits(weights: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        HashSplit.of(weights)


def test_an_unknown_column_is_named() -> None:
    with pytest.raises(InputError, match="no column 'nope'"):
        HashSplit.of({"a": 1, "b": 1}, "nope")(table().to_batches()[0])
