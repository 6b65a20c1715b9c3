"""The pytree against plain Python lists: conversions, arithmetic, rows joined and sliced; how often it compiles."""

from __future__ import annotations

import logging
import math
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pytest
from drivetrain.engine import Ragged, ragged
from drivetrain.errors import InputError
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.experimental.sparse import BCOO

pytestmark = pytest.mark.engine

ROWS = [[1.5, -2.0, 3.0], [], [4.0], [], [0.5, 7.0]]
# Few numbers of rows, so that few shapes are compiled; lengths around the power of two.
numbers = st.floats(-100, 100, width=32, allow_subnormal=False)  # XLA flushes those to 0
lists = st.sampled_from([0, 1, 4]).flatmap(
    lambda rows: st.lists(st.lists(numbers, max_size=20) | st.none(), min_size=rows, max_size=rows)
)
laws = settings(max_examples=25, deadline=None)


def plain(rows: list[list[float] | None]) -> list[list[float]]:
    return [row or [] for row in rows]


@pytest.mark.slow
@laws
@given(lists)
def test_the_form_is_what_it_says(rows: list[list[float] | None]) -> None:
    bag = ragged.from_lists(rows, np.float32)
    count = sum(map(len, plain(rows)))
    assert bag.rows == len(rows)
    assert bag.capacity >= max(count, 16)
    assert math.log2(bag.capacity).is_integer()
    assert bag.capacity == 16 or bag.capacity < 2 * count
    ids = np.asarray(bag.segment_ids)
    assert ids.dtype == np.int32
    np.testing.assert_array_equal(ids[:count], [r for r, row in enumerate(plain(rows)) for _ in row])
    assert (ids[count:] == len(rows)).all()
    assert ragged.to_lists(bag) == plain(rows)
    np.testing.assert_array_equal(bag.lengths, list(map(len, plain(rows))))
    np.testing.assert_array_equal(bag.row_splits, np.cumsum([0, *map(len, plain(rows))]))
    assert int(bag.mask.sum()) == count
    np.testing.assert_array_equal(bag.positions[:count], [p for row in plain(rows) for p in range(len(row))])


@pytest.mark.slow
@laws
@given(lists)
def test_there_and_back(rows: list[list[float] | None]) -> None:
    made, wanted = ragged.from_lists(rows, np.float32), plain(rows)
    arrow = ragged.to_arrow(made)
    assert arrow.to_pylist() == wanted
    assert ragged.to_lists(ragged.from_arrow(arrow)) == wanted
    assert ragged.to_lists(ragged.from_arrow(pa.array(rows, pa.list_(pa.float64())))) == wanted  # None is empty
    assert ragged.to_lists(ragged.from_sparse(*ragged.to_sparse(made))) == wanted
    flat = np.array([value for row in wanted for value in row], np.float32)
    assert ragged.to_lists(ragged.from_row_splits(flat, np.asarray(made.row_splits))) == wanted
    assert ragged.to_lists(ragged.from_lengths(flat, np.asarray(made.lengths))) == wanted
    width = 20
    dense = np.full((len(rows), width), -1, np.float32)
    for number, row in enumerate(wanted):
        dense[number, : len(row)] = row
    np.testing.assert_array_equal(ragged.to_dense(made, width, -1), dense)
    np.testing.assert_array_equal(ragged.to_dense(made, 3, -1), dense[:, :3])
    mask = np.arange(width) < np.array(list(map(len, wanted)), int).reshape(-1, 1)
    np.testing.assert_array_equal(ragged.sequence_mask(made.lengths, width), mask)
    assert ragged.to_lists(ragged.from_dense(dense, mask)) == wanted
    np.testing.assert_array_equal(ragged.to_bcoo(made, width).todense(), np.where(mask, dense, 0))
    assert ragged.to_lists(ragged.from_bcoo(ragged.to_bcoo(made, width))) == wanted


def test_a_mask_with_holes_keeps_the_order() -> None:
    random = np.random.default_rng(0)
    dense, mask = random.normal(size=(6, 5, 2)).astype(np.float32), random.random((6, 5)) < 0.4
    made = ragged.from_dense(dense, mask)
    assert ragged.to_lists(made) == [row[kept].tolist() for row, kept in zip(dense, mask, strict=True)]
    traced = jax.jit(ragged.from_dense)(dense, mask)
    assert ragged.to_lists(traced) == ragged.to_lists(made)
    assert traced.capacity == 32  # all of 30: how many are kept is not known while it is traced


def test_under_jit_splits_keep_the_capacity() -> None:
    bag = ragged.from_lists(ROWS)
    for build, cut in ((ragged.from_lengths, bag.lengths), (ragged.from_row_splits, bag.row_splits)):
        again = jax.jit(build)(bag.values, cut)
        np.testing.assert_array_equal(again.segment_ids, bag.segment_ids)
        np.testing.assert_array_equal(again.values, bag.values)
        assert again.rows == bag.rows


def test_scipy_and_bcoo_agree_on_a_sparse_array() -> None:
    entries = [[0, 0], [2, 1], [2, 0], [3, 0]]
    with_values = BCOO((jnp.arange(4.0), jnp.array(entries)), shape=(4, 5))
    assert ragged.to_lists(ragged.from_bcoo(with_values)) == [[0.0], [], [2.0, 1.0], [3.0]]
    vectors = BCOO((jnp.ones((4, 2)), jnp.array(entries)), shape=(4, 5, 2), indices_sorted=False)
    assert ragged.to_lists(ragged.from_bcoo(vectors))[2] == [[1.0, 1.0], [1.0, 1.0]]


SHARED = {"a": np.float32(2.5), "per_row": np.array([1.0, 2.0, 3.0, 4.0, 5.0], np.float32)}


@pytest.mark.parametrize(
    ("fn", "python"),
    [
        (lambda r: r + 1, lambda v, row: v + 1),
        (lambda r: 1 - r, lambda v, row: 1 - v),
        (lambda r: r * SHARED["a"], lambda v, row: v * 2.5),
        (lambda r: SHARED["a"] * r, lambda v, row: v * 2.5),
        (lambda r: r / SHARED["per_row"], lambda v, row: v / (row + 1)),
        (lambda r: SHARED["per_row"] / r, lambda v, row: (row + 1) / v),
        (lambda r: jnp.asarray(SHARED["per_row"]) - r, lambda v, row: row + 1 - v),
        (lambda r: r * r - abs(r), lambda v, row: v * v - abs(v)),
        (lambda r: -r // 2, lambda v, row: -v // 2),
        (lambda r: (r % 3) ** 2, lambda v, row: (v % 3) ** 2),
        (lambda r: (r > 1) & (r <= 4), lambda v, row: 1 < v <= 4),
        (lambda r: ~(r < 0) | (r >= 2), lambda v, row: not v < 0 or v >= 2),
        (lambda r: r.map_values(jnp.sin), lambda v, row: math.sin(v)),
    ],
)
def test_arithmetic_value_by_value(fn: Any, python: Any) -> None:
    wanted = [[python(value, number) for value in row] for number, row in enumerate(ROWS)]
    for made in (fn(ragged.from_lists(ROWS)), jax.jit(fn)(ragged.from_lists(ROWS))):
        for found, row in zip(ragged.to_lists(made), wanted, strict=True):
            np.testing.assert_allclose(found, row, rtol=1e-6)


def test_vectors_per_value() -> None:
    rows: list[list[list[float]]] = [[[1.0, 2.0]], [], [[3.0, 4.0], [5.0, 6.0]]]
    bag = ragged.from_lists(rows)
    assert bag.values.shape == (16, 2)
    assert ragged.to_lists(bag * np.array([1, 1, 10])) == [[[1, 2]], [], [[30, 40], [50, 60]]]
    assert ragged.to_lists(bag + np.ones((3, 2))) == [[[2, 3]], [], [[4, 5], [6, 7]]]
    assert ragged.to_lists(ragged.from_arrow(ragged.to_arrow(bag), shape=(2,))) == rows
    assert ragged.to_dense(bag, 2).shape == (3, 2, 2)
    assert repr(bag) == "Ragged(3 rows, float32 of [2], capacity 16)"


@laws
@given(lists, lists, st.booleans())
def test_concat(left: list[list[float] | None], right: list[list[float] | None], within: bool) -> None:
    if within:
        count = min(len(left), len(right))
        left, right = left[:count], right[:count]
    parts = [ragged.from_lists(rows, np.float32) for rows in (left, right)]
    made = ragged.concat(parts, within=within)
    a, b = plain(left), plain(right)
    assert ragged.to_lists(made) == ([x + y for x, y in zip(a, b, strict=True)] if within else a + b)
    assert math.log2(made.capacity).is_integer()


@pytest.mark.parametrize("rows", [slice(1, 4), slice(None, None, -1), slice(0, 0), slice(-2, None), slice(None, 9, 2)])
def test_slices_of_rows(rows: slice) -> None:
    bag = ragged.from_lists(ROWS)
    assert ragged.to_lists(bag[rows]) == ROWS[rows]
    assert ragged.to_lists(jax.jit(lambda r: r[rows])(bag)) == ROWS[rows]


def test_vmap_over_a_stack() -> None:
    made = [ragged.from_lists(rows) for rows in (ROWS, ROWS[::-1])]
    stack = jax.tree.map(lambda *leaves: np.stack(leaves), *made)
    sums = jax.vmap(lambda r: ragged.sum(r * 2))(stack)
    np.testing.assert_allclose(sums, [[2 * sum(row) for row in rows] for rows in (ROWS, ROWS[::-1])])


def test_compilations_are_at_most_log2(caplog: pytest.LogCaptureFixture) -> None:
    """Counted twice: how often Python traces the function, and how often JAX says that XLA compiled it."""
    traced, most = [], 100

    @jax.jit
    def pooled_up_to(r: Ragged, table: jax.Array) -> Any:
        traced.append(r.capacity)
        return ragged.embedding_bag(table, r, combiner="mean").sum() + ragged.softmax(r * 0.1).values[0]

    def bag(count: int) -> Ragged:
        return ragged.from_lengths(np.arange(count, dtype=np.int32) % 10, np.array([count, 0]))

    table = jnp.arange(20.0).reshape(10, 2)
    with jax.log_compiles(), caplog.at_level(logging.WARNING):
        for count in range(most + 1):
            pooled_up_to(bag(count), table)
    compiled = [r.message for r in caplog.records if "Finished XLA compilation of jit(pooled_up_to)" in r.message]
    assert len(traced) == len(set(traced)) == len(compiled)
    assert 3 <= len(traced) <= math.log2(most)
    assert set(traced) == {bag(count).capacity for count in range(most + 1)}
    assert len({bag(count).capacity for count in range(1001)}) <= math.log2(1000)


def test_a_length_of_exactly_a_power_of_two_needs_no_more() -> None:
    for count, capacity in ((16, 16), (17, 32), (32, 32), (33, 64), (4096, 4096)):
        bag = ragged.from_lists([[1.0] * count])
        assert bag.capacity == capacity
        assert float(ragged.sum(bag)[0]) == count


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: ragged.from_lists([["a"]]), "the lists hold 'a'"),
        (lambda: ragged.from_lists([[1, None]]), "the lists hold None"),
        (lambda: ragged.from_lists([1, 2]), "'int' object is not iterable"),  # type: ignore[list-item]  # what is wrong
        (lambda: ragged.from_lists([[1.0], [[2.0]]]), "numbers of one shape"),
        (lambda: ragged.from_lists([[2**40]]), "do not fit in int32"),
        (lambda: ragged.from_row_splits(np.ones(3), [0, 2]), "do not split 3 values"),
        (lambda: ragged.from_row_splits(np.ones(3), [0, 3, 2, 3]), "do not split 3 values"),
        (lambda: ragged.from_lengths(np.ones(3), [1, 1]), "do not split 3 values"),
        (lambda: ragged.from_dense(np.ones((2, 3)), np.ones((2, 2), bool)), r"mask \[2, 2\]"),
        (lambda: ragged.from_sparse([[0, 1]], [1.0], (1, 2)), "row 0 has a gap"),
        (lambda: ragged.from_sparse([[0, 0], [0, 0]], [1.0, 2.0], (1, 2)), "place twice"),
        (lambda: ragged.from_sparse([[3, 0]], [1.0], (1, 2)), r"shape \[1, 2\]"),
        (lambda: ragged.from_arrow(pa.array([1.0])), "not a list per row"),
        (lambda: ragged.from_arrow(pa.array([[1.0], [2.0, None]])), "missing value inside the list of row 1"),
        (lambda: ragged.from_arrow(pa.array([["a"]]), dtype="int32"), "lists of string, not of numbers"),
        (lambda: ragged.from_arrow(pa.array([[1], [], [2**40]])), "1099511627776 in the list of row 2"),
        (lambda: ragged.from_arrow(pa.array([[1.5]]), dtype="int32"), "not of int32"),
        (lambda: ragged.from_arrow(pa.array([[[1.0], [2.0, 3.0]]]), shape=(2,)), "values of 1 to 2 numbers"),
        (lambda: ragged.concat([]), "concat of nothing"),
        (
            lambda: ragged.concat([ragged.from_lists([[1]]), ragged.from_lists([[1], []])], within=True),
            r"\[1, 2\] rows",
        ),
        (lambda: ragged.from_lists(ROWS)[cast("slice", 2)], "indexed by 2"),
        (lambda: ragged.from_lists(ROWS) + np.ones(3), r"array of shape \[3\]"),
        (lambda: ragged.from_lists(ROWS) + ragged.from_lists(ROWS[::-1]), "rows of different lengths"),
        (lambda: ragged.from_lists(ROWS).map_values(jnp.sum), "gave .* for 16 values"),
        (lambda: jax.jit(lambda r: ragged.to_lists(r)[0][0])(ragged.from_lists(ROWS)), "traced"),
    ],
)
def test_what_is_refused(wrong: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        wrong()
