"""Padding, buckets and packing: every value once and where it belongs, against plain loops over the rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from drivetrain.engine.ragged.rows import FlatRows
from drivetrain.engine.training.input import Dataset, from_arrays
from drivetrain.engine.training.input.columns import lists_of
from drivetrain.engine.training.input.packing import best_fit
from hypothesis import given, settings
from hypothesis import strategies as st

lengths = st.lists(st.integers(0, 12), min_size=1, max_size=120)


def rows(counts: list[int]) -> Dataset:
    """Rows of as many values; value 1000 r + k is the k-th of row r, and its half stands beside it."""
    values = [1000 * row + np.arange(count) for row, count in enumerate(counts)]
    flat = np.concatenate([*values, np.zeros(0, np.int64)]).astype(np.int32)
    splits = np.cumsum([0, *counts])
    return from_arrays({
        "row": np.arange(len(counts)), "ids": FlatRows(flat, splits), "half": FlatRows(flat / 2, splits)
    })  # fmt: skip


@given(counts=lengths, size=st.integers(1, 20), length=st.none() | st.integers(12, 20))
@settings(max_examples=60, deadline=None)
def test_padding_keeps_every_value(counts: list[int], size: int, length: int | None) -> None:
    for batch in rows(counts).batch(size, drop_remainder=False).pad(length, "ids", value=-1):
        longest = max(counts[row] for row in batch["row"])
        width = batch["ids"].shape[1]
        assert width == length if length else longest <= width < max(2, 2 * longest)
        for row, ids, count in zip(batch["row"], batch["ids"], batch["ids_length"], strict=True):
            expected = [1000 * row + k for k in range(counts[row])]
            assert ids.tolist() == expected + [-1] * (width - len(expected))
            assert count == counts[row]


def test_padding_cuts_where_it_is_asked_to() -> None:
    batch = next(iter(rows([5, 1]).batch(2).pad(3, "ids", overlong="truncate")))
    assert batch["ids"].tolist() == [[0, 1, 2], [1000, 0, 0]]
    assert batch["ids_length"].tolist() == [3, 1]
    assert isinstance(batch["half"], FlatRows)


@given(counts=lengths, size=st.integers(1, 9), window=st.integers(1, 6), seed=st.integers(0, 9))
@settings(max_examples=60, deadline=None)
def test_buckets_lose_no_full_batch_and_waste_little(counts: list[int], size: int, window: int, seed: int) -> None:
    dataset = rows(counts).bucket("ids", [2, 4, 8, 12], batch_size=size, window=window, seed=seed).pad(None, "ids")
    batches = list(dataset)
    seen = [row for batch in batches for row in batch["row"].tolist()]
    assert len(seen) == len(set(seen)) == len(counts) // size * size == dataset.rows
    for batch in batches:
        assert batch["ids"].shape[0] == size
        longest = max(counts[row] for row in batch["row"])
        assert batch["ids"].shape[1] == next(boundary for boundary in (2, 4, 8, 12) if boundary >= longest)
    for begin in range(0, len(counts) // (size * window) * window, window):  # in a window buckets hardly mix
        kinds = [sorted({int(np.searchsorted([2, 4, 8, 12], counts[row])) for row in batch["row"]})
                 for batch in batches[begin : begin + window]]  # fmt: skip
        assert sum(len(kind) - 1 for kind in kinds) <= 3


@given(counts=lengths, length=st.integers(12, 30), window=st.integers(1, 50))
@settings(max_examples=80, deadline=None)
def test_packing_keeps_every_sequence_whole(counts: list[int], length: int, window: int) -> None:
    packed: list[tuple[list[int], list[float]]] = []
    for block in rows(counts).pack("ids", "half", length=length, window=window):
        assert set(block) == {"ids", "half", "segment_ids", "positions"}
        assert block["ids"].shape[1] == length
        for ids, half, segments, positions in zip(*(block[name] for name in block), strict=True):
            number = 1
            while (slots := np.flatnonzero(segments == number)).size:
                np.testing.assert_array_equal(slots, np.arange(slots[0], slots[0] + len(slots)))  # side by side
                np.testing.assert_array_equal(positions[slots], np.arange(len(slots)))
                packed.append((ids[slots].tolist(), half[slots].tolist()))
                number += 1
            assert segments.max() == number - 1 > 0
            empty = segments == 0
            assert not ids[empty].any()
            assert not positions[empty].any()
    expected = [[1000 * row + k for k in range(count)] for row, count in enumerate(counts) if count]
    assert sorted(ids for ids, _ in packed) == expected
    assert all(half == [value / 2 for value in ids] for ids, half in packed)


@given(counts=st.lists(st.integers(1, 40), min_size=1, max_size=200), capacity=st.integers(40, 80))
def test_best_fit_stays_within_its_bound(counts: list[int], capacity: int) -> None:
    bins = best_fit(counts, capacity)
    assert sorted(number for each in bins for number in each) == list(range(len(counts)))
    assert all(sum(counts[number] for number in each) <= capacity for each in bins)
    assert len(bins) <= 11 / 9 * -(-sum(counts) // capacity) + 4 + len(counts) * (max(counts) > capacity / 2)


def test_packing_wastes_little_of_sequences_as_they_are() -> None:
    counts: Any = np.clip(np.random.default_rng(0).geometric(1 / 60, 20_000), 1, 512).tolist()
    slots = filled = 0
    for block in from_arrays({"ids": [np.zeros(count, np.int32) for count in counts]}).pack("ids", length=512):
        slots += block["segment_ids"].size
        filled += int((block["segment_ids"] > 0).sum())
    assert filled == sum(counts)
    assert filled / slots > 0.99


@pytest.mark.parametrize("size", [1, 3])
def test_lists_stay_lists_in_a_batch(size: int) -> None:
    batch = next(iter(rows([2, 0, 3]).batch(size)))
    assert [values.tolist() for values in lists_of(batch["ids"])] == [[0, 1], [], [2000, 2001, 2002]][:size]
