"""Texts kept as rows give the states that counted texts give."""

import hashlib
import time
from collections import Counter
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest
from drivetrain.data.aggregates.sketches import FrequentSketch
from drivetrain.data.aggregates.tables import TextTable, count_texts
from drivetrain.data.aggregates.text_rows import TextRows, settle_texts, text_hashes, texts_of
from drivetrain.data.stats.column import ColumnState
from drivetrain.data.stats.column_sketches import Sketches
from hypothesis import given, settings
from hypothesis import strategies as st


def parts_equal(left: Sketches, right: Sketches) -> bool:
    (head, arrays), (other_head, others) = left.to_parts(), right.to_parts()
    return head == other_head and all(arrays[name].equals(others[name]) for name in arrays)


def rows_of(values: list[bytes]) -> TextRows:
    array = pa.array(values, pa.large_binary())
    return TextRows(array, np.ones(len(values), np.int64), text_hashes(array))


NUMBERED = [f"v{index}".encode() for index in range(6001)]


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(0, 6000), max_size=30).map(lambda more: (len(more) * 37, more)), max_size=4))
def test_sketches_of_rows_and_of_tables_are_equal(batches: list[tuple[int, list[int]]]) -> None:
    counted, kept = Sketches(text=True), Sketches(text=True)
    for start, more in batches:
        values = [NUMBERED[index] for index in [*range(start, start + 2500), *more, *more]]
        counted.add(count_texts(pa.array(values, pa.large_binary())))
        kept.add(rows_of(values))
    if batches:
        assert parts_equal(counted, kept)


def test_a_frequent_value_among_unique_ones_keeps_its_bound() -> None:
    sketch, truth = FrequentSketch(), Counter[bytes]()
    for batch in range(8):
        values = [f"user-{batch}-{index}".encode() for index in range(5000)] + [b"often"] * 200
        truth.update(values)
        sketch.add(rows_of(values))
    assert isinstance(sketch.table, TextTable)
    kept = dict(zip(sketch.table.values.to_pylist(), sketch.table.counts.tolist(), strict=True))
    assert all(count <= truth[value] <= count + sketch.error for value, count in kept.items())
    assert kept[b"often"] + sketch.error >= 1600


@pytest.mark.parametrize("repeats", [1, 3])
def test_a_column_within_the_limit_is_exact_whether_it_was_counted_or_kept(repeats: int) -> None:
    values = [f"user-{index}" for index in range(9000)] * repeats
    state = ColumnState("id")
    for start in range(0, len(values), 9000):
        state.add(pa.array(values[start : start + 9000]))
    table = state.table
    assert state.sketches is None
    assert isinstance(table, TextTable)
    assert table.values.to_pylist() == sorted({value.encode() for value in values})
    assert set(table.counts.tolist()) == {repeats}


def test_settling_gives_rows_only_beyond_the_limit() -> None:
    kept = texts_of(pa.array([None, *(f"user-{index}" for index in range(5000))]))
    assert isinstance(kept, TextRows)
    assert isinstance(settle_texts([kept], 4999, 1 << 20), TextRows)
    table = settle_texts([kept, kept], 5000, 1 << 20)
    assert isinstance(table, TextTable)
    assert table.total == 10_000
    assert isinstance(texts_of(pa.array(["a", "b"] * 4096)), TextTable)
    size = sum(len(f"user-{index}") for index in range(5000))
    assert isinstance(settle_texts([kept, kept], 5000, size), TextTable)
    assert isinstance(settle_texts([kept, kept], 5000, size - 1), TextRows)


def test_of_long_texts_only_as_many_are_kept_as_there_is_room_for() -> None:
    often = [b"often" * 200_000] * 3
    documents = [f"{index} ".encode() * 20_000 for index in range(300)]
    counted, kept, truth = Sketches(text=True), Sketches(text=True), Counter[bytes]()
    for values in (often + documents, documents[:200], [b"short"] * 5 + often):
        truth.update(values)
        counted.add(count_texts(pa.array(values, pa.large_binary())))
        kept.add(rows_of(values))
    assert parts_equal(counted, kept)
    assert isinstance(kept.frequent.table, TextTable)
    assert kept.frequent.table.size <= 1 << 24
    kept_counts = dict(zip(kept.frequent.table.values.to_pylist(), kept.frequent.table.counts.tolist(), strict=True))
    assert kept_counts.keys() >= {b"short", often[0]}
    assert all(
        kept_counts.get(text, 0) <= rows <= kept_counts.get(text, 0) + kept.frequent.error
        for text, rows in truth.items()
    )


def test_the_state_of_a_column_of_documents_is_small() -> None:
    state = ColumnState("text")
    state.add(pa.array([f"{index} " * 20_000 for index in range(1000)] + ["again " * 20_000] * 3))
    state.compact()
    _, arrays = state.to_parts()
    assert state.sketches is not None
    assert sum(array.nbytes for array in arrays.values()) < 1_000_000
    assert abs(state.sketches.distinct.estimate() - 1001) <= 10
    assert isinstance(texts_of(pa.array(["again " * 20_000] * 50)), TextTable)


def test_storing_a_state_in_between_changes_nothing() -> None:
    def leaf(start: int) -> ColumnState:
        state = ColumnState("id", limit=6000)
        state.add(pa.array([f"user-{index}" for index in range(start, start + 5000)]))
        state.compact()
        return state

    ends = []
    for stored in (False, True):
        whole = leaf(0)
        for start in (2500, 5000, 20_000):
            more = leaf(start)
            if stored:
                whole, more = (ColumnState.from_parts(*state.to_parts()) for state in (whole, more))
            whole.merge(more)
        assert whole.sketches is not None
        ends.append(whole.sketches)
    assert parts_equal(*ends)


def fastest(do: Callable[[], object]) -> float:
    """CPU seconds of this thread, of three tries."""
    taken = []
    for _ in range(3):
        begin = time.thread_time()
        do()
        taken.append(time.thread_time() - begin)
    return min(taken)


def test_long_values_are_hashed_by_blake2b_and_in_no_time() -> None:
    values = [b"short", b"x" * 10_000_000, "\N{SNOWMAN}".encode() * 200]
    array = pa.array(values, pa.large_binary())[1:]
    assert fastest(lambda: text_hashes(array)) < 20 * fastest(
        lambda: hashlib.blake2b(values[1], digest_size=8).digest()
    )
    hashes = text_hashes(array)
    for value, hashed in zip(values[1:], hashes.tolist(), strict=True):
        assert hashed == int.from_bytes(hashlib.blake2b(value, digest_size=8).digest(), "little")
