"""Pooling against numpy loops, scipy.sparse, BCOO and jax's own dense functions; gradients through values and table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
import scipy.special
from drivetrain.engine import Ragged, ragged
from drivetrain.errors import InputError
from hypothesis import given, settings
from hypothesis import strategies as st

pytestmark = [  # many compilations
    pytest.mark.engine,
    pytest.mark.slow,
    pytest.mark.usefixtures("compiled_in_a_hurry"),
]

numbers = st.floats(-50, 50, width=32, allow_subnormal=False)
lists = st.sampled_from([1, 5]).flatmap(
    lambda rows: st.lists(st.lists(numbers, max_size=18), min_size=rows, max_size=rows)
)
laws = settings(max_examples=25, deadline=None)
ORACLES: dict[str, tuple[Callable[[Any], Any], Callable[[np.ndarray], Any]]] = {
    "sum": (ragged.sum, np.sum),
    "mean": (ragged.mean, lambda row: row.mean() if len(row) else 0),
    "sqrtn": (ragged.sqrtn, lambda row: row.sum() / np.sqrt(len(row)) if len(row) else 0),
    "max": (ragged.max, lambda row: row.max(initial=-np.inf)),
    "min": (ragged.min, lambda row: row.min(initial=np.inf)),
    "max of 0": (lambda r: ragged.max(r, empty=0), lambda row: row.max() if len(row) else 0),
    "any": (lambda r: ragged.any(r > 0), lambda row: (row > 0).any()),
    "all": (lambda r: ragged.all(r > 0), lambda row: (row > 0).all()),
    "count": (lambda r: ragged.sum(r > 0), lambda row: (row > 0).sum()),
    "logsumexp": (ragged.logsumexp, lambda row: scipy.special.logsumexp(row) if len(row) else -np.inf),
}
JITTED = {name: jax.jit(fn) for name, (fn, _) in ORACLES.items()}


@pytest.mark.parametrize("name", ORACLES)
@laws
@given(lists)
def test_reductions_against_numpy(name: str, rows: list[list[float]]) -> None:
    wanted = [ORACLES[name][1](np.array(row, np.float64)) for row in rows]
    found = JITTED[name](ragged.from_lists(rows, np.float32))
    np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=1e-4)
    assert found.dtype == {"any": bool, "all": bool, "count": np.int32}.get(name, np.float32)


@laws
@given(lists)
def test_softmax_against_scipy(rows: list[list[float]]) -> None:
    found = ragged.to_lists(jax.jit(ragged.softmax)(ragged.from_lists(rows, np.float32)))
    for mine, row in zip(found, rows, strict=True):
        np.testing.assert_allclose(mine, scipy.special.softmax(row) if row else [], rtol=1e-4, atol=1e-6)


def test_integers_and_extremes() -> None:
    bag = ragged.from_lists([[3, -7], [], [2**31 - 1]])
    np.testing.assert_array_equal(ragged.max(bag), [3, -(2**31), 2**31 - 1])
    np.testing.assert_array_equal(ragged.min(bag), [-7, 2**31 - 1, 2**31 - 1])
    np.testing.assert_array_equal(ragged.mean(bag), np.array([-2, 0, 2**31 - 1], np.float32))
    big = ragged.from_lists([[1000.0, 1000.0], [-np.inf, 0.0], [-1000.0]])
    np.testing.assert_allclose(ragged.logsumexp(big), [1000 + np.log(2), 0, -1000], rtol=1e-6)
    assert ragged.to_lists(ragged.softmax(big)) == [[0.5, 0.5], [0.0, 1.0], [1.0]]


def test_a_batch_of_empty_rows_only() -> None:
    bag = ragged.from_lists([[], [], []], np.float32)
    for name, (fn, oracle) in ORACLES.items():
        np.testing.assert_array_equal(fn(bag), [oracle(np.zeros(0))] * 3, err_msg=name)
    assert ragged.to_lists(ragged.softmax(bag)) == [[], [], []]
    ids = ragged.from_lists([[], []], np.int32)
    for combiner in ("sum", "mean", "sqrtn", "max"):
        np.testing.assert_array_equal(ragged.embedding_bag(jnp.ones((3, 2)), ids, combiner=combiner), np.zeros((2, 2)))
    gradient = jax.grad(lambda table: ragged.embedding_bag(table, ids).sum())(jnp.ones((3, 2)))
    np.testing.assert_array_equal(gradient, np.zeros((3, 2)))


@pytest.mark.parametrize("pool", [ragged.sum, ragged.mean, ragged.max, ragged.min, ragged.logsumexp])
def test_no_rows_have_a_gradient_of_zeros(pool: Any) -> None:
    none = ragged.from_lists([], np.float32)
    slope = jax.grad(lambda values: pool(replace(none, values=values)).sum())(jnp.asarray(none.values))
    np.testing.assert_array_equal(slope, np.zeros(16))


def test_no_rows_at_all() -> None:
    none = ragged.from_lists([])
    assert ragged.sum(none).shape == ragged.max(none).shape == (0,)
    assert ragged.to_lists(ragged.softmax(none)) == ragged.to_lists(none / np.zeros(0)) == []
    assert ragged.to_dense(none, 3).shape == (0, 3)
    assert ragged.embedding_bag(jnp.ones((3, 2)), ragged.from_lists([], np.int32)).shape == (0, 2)


# Each beside the same of a padded array with a mask, whose jax.grad is the oracle.
ROWS = [[0.5, 2.0, 2.0], [], [1.5], [0.25] * 16]
PADDED = np.zeros((4, 16), np.float32)
MASK = np.zeros((4, 16), bool)
for _number, _row in enumerate(ROWS):
    PADDED[_number, : len(_row)], MASK[_number, : len(_row)] = _row, True
PAIRS: dict[str, tuple[Callable[[Ragged], Any], Callable[[Any], Any]]] = {
    "sum": (ragged.sum, lambda x: jnp.where(MASK, x, 0).sum(1)),
    "mean": (ragged.mean, lambda x: jnp.where(MASK, x, 0).sum(1) / np.maximum(MASK.sum(1), 1)),
    "sqrtn": (ragged.sqrtn, lambda x: jnp.where(MASK, x, 0).sum(1) / np.sqrt(np.maximum(MASK.sum(1), 1))),
    "max": (lambda r: ragged.max(r, empty=0), lambda x: jnp.where(MASK.any(1), jnp.where(MASK, x, -9).max(1), 0)),
    "min": (lambda r: ragged.min(r, empty=0), lambda x: jnp.where(MASK.any(1), jnp.where(MASK, x, 99).min(1), 0)),
    "logsumexp": (
        lambda r: jnp.where(r.lengths > 0, ragged.logsumexp(r), 0),
        lambda x: jnp.where(MASK.any(1), jax.nn.logsumexp(jnp.where(MASK, x, -1e9), 1), 0),
    ),
    "softmax": (
        lambda r: ragged.sum(ragged.softmax(r) * r),
        lambda x: (jax.nn.softmax(jnp.where(MASK, x, -1e9), 1) * jnp.where(MASK, x, 0)).sum(1),
    ),
    "log and power": (
        lambda r: ragged.sum(r.map_values(jnp.log) * r**-0.5 / r),
        lambda x: jnp.where(MASK, jnp.log(jnp.where(MASK, x, 1)) * jnp.where(MASK, x, 1) ** -1.5, 0).sum(1),
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_gradients_against_a_padded_array_with_a_mask(name: str) -> None:
    mine, dense = PAIRS[name]
    weights = jnp.array([1.0, -2.0, 3.0, 0.5])
    made = ragged.from_lists(ROWS)

    def through(values: Any) -> Any:
        return (mine(Ragged(values, made.segment_ids, made.rows)) * weights).sum()

    value, gradient = jax.jit(jax.value_and_grad(through))(jnp.asarray(made.values))
    wanted, dense_gradient = jax.value_and_grad(lambda x: (dense(x) * weights).sum())(jnp.asarray(PADDED))
    np.testing.assert_allclose(value, wanted, rtol=1e-5)
    np.testing.assert_allclose(np.asarray(gradient)[:20], np.asarray(dense_gradient)[MASK], rtol=1e-4, atol=1e-6)
    assert np.isfinite(gradient).all()
    assert not np.asarray(gradient)[20:].any()  # nothing flows into empty slots


bags = st.lists(st.lists(st.tuples(st.integers(0, 6), st.floats(-2, 2, width=16)), max_size=9), min_size=4, max_size=4)
TABLE = np.random.default_rng(0).normal(size=(7, 3)).astype(np.float32)


def loop(rows: list[list[tuple[int, float]]], combiner: str, weighted: bool) -> np.ndarray:
    out = np.zeros((len(rows), 3))
    for number, row in enumerate(rows):
        vectors = [TABLE[i].astype(float) * (w if weighted else 1) for i, w in row]
        weights = [w if weighted else 1.0 for _, w in row]
        by = {"sum": 1.0, "max": 1.0, "mean": sum(weights), "sqrtn": float(np.sqrt(sum(w * w for w in weights)))}
        if vectors and by[combiner]:
            out[number] = (np.max if combiner == "max" else np.sum)(vectors, axis=0) / by[combiner]
    return out


@pytest.mark.parametrize(
    ("combiner", "weighted"),
    [("sum", False), ("mean", False), ("sqrtn", False), ("max", False), ("sum", True), ("mean", True), ("sqrtn", True)],
)
def test_embedding_bag_against_a_loop(combiner: Any, weighted: bool) -> None:
    pooled = jax.jit(lambda ids, weights: ragged.embedding_bag(TABLE, ids, weights if weighted else None, combiner))

    @laws
    @given(bags.filter(lambda rows: all(not row or abs(sum(w for _, w in row)) > 0.1 for row in rows)))
    def law(rows: list[list[tuple[int, float]]]) -> None:
        ids = ragged.from_lists([[i for i, _ in row] for row in rows], np.int32)
        weights = ragged.from_lists([[w for _, w in row] for row in rows], np.float32)
        np.testing.assert_allclose(pooled(ids, weights), loop(rows, combiner, weighted), rtol=1e-3, atol=1e-4)

    law()


def test_weights_that_add_up_to_nothing_give_zeros_and_finite_gradients() -> None:
    ids, weights = ragged.from_lists([[1, 2], []]), ragged.from_lists([[0.0, 0.0], []])
    for combiner in ("mean", "sqrtn"):

        def total(table: Any, values: Any, combiner: Any = combiner) -> Any:
            given = Ragged(values, weights.segment_ids, weights.rows)
            return ragged.embedding_bag(table, ids, given, combiner).sum()

        value, gradients = jax.value_and_grad(total, argnums=(0, 1))(jnp.asarray(TABLE), jnp.asarray(weights.values))
        assert value == 0
        assert all(np.isfinite(gradient).all() for gradient in gradients)


@laws
@given(bags)
def test_a_bag_is_a_sparse_matrix_times_the_table(rows: list[list[tuple[int, float]]]) -> None:
    ids = ragged.from_lists([[i for i, _ in row] for row in rows], np.int32)
    weights = ragged.from_lists([[w for _, w in row] for row in rows], np.float32)
    row_of = [number for number, row in enumerate(rows) for _ in row]
    pairs = [pair for row in rows for pair in row]
    entries = np.array([w for _, w in pairs], np.float32)
    matrix = scipy.sparse.coo_matrix((entries, (row_of, [i for i, _ in pairs])), shape=(4, 7))
    wanted = matrix @ TABLE
    np.testing.assert_allclose(ragged.embedding_bag(TABLE, ids, weights, "sum"), wanted, rtol=1e-4, atol=1e-5)
    held = ragged.bag_matrix(ids, 7, weights)
    np.testing.assert_allclose(held @ TABLE, wanted, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(held.todense(), matrix.todense(), rtol=1e-5, atol=1e-6)
    columns, again = ragged.matrix_bags(held)
    np.testing.assert_allclose(ragged.embedding_bag(TABLE, columns, again, "sum"), wanted, rtol=1e-4, atol=1e-5)
    assert ragged.to_lists(columns) == [sorted(i for i, _ in row) for row in rows]


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn", "max"])
def test_the_tables_gradient_against_one_lookup_after_the_other(combiner: Any) -> None:
    rows = [[1, 1, 4], [], [0], [6, 5, 4, 3, 2, 1, 0]]
    ids = ragged.from_lists(rows)
    slope = jnp.asarray(np.random.default_rng(1).normal(size=(4, 3)), jnp.float32)

    def unrolled(table: Any) -> Any:
        total = jnp.float32(0)
        for number, row in enumerate(rows):
            if row:
                found = jnp.stack([table[i] for i in row])
                by = {"sum": 1, "mean": len(row), "sqrtn": np.sqrt(len(row)), "max": 1}[combiner]
                total += ((found.max(0) if combiner == "max" else found.sum(0)) / by * slope[number]).sum()
        return total

    def mine(table: Any) -> Any:
        return (ragged.embedding_bag(table, ids, combiner=combiner) * slope).sum()

    np.testing.assert_allclose(jax.jit(jax.grad(mine))(TABLE), jax.grad(unrolled)(TABLE), rtol=1e-4, atol=1e-6)


def test_an_id_beyond_the_table_shows() -> None:
    array = np.asarray(ragged.embedding_bag(TABLE, ragged.from_lists([[0], [7], [-1], [1]])))
    np.testing.assert_array_equal(np.isnan(array).all(1), [False, True, True, False])
    np.testing.assert_array_equal(array[3], TABLE[1])


def test_attention_within_rows_against_jaxs_own() -> None:
    random = np.random.default_rng(2)
    keys = ragged.from_lists([random.normal(size=(n, 4)).tolist() for n in (3, 1, 7, 2)])
    query = random.normal(size=(4, 4)).astype(np.float32)
    scores = (keys * query).map_values(lambda products: products.sum(-1) / 2)
    weights = ragged.softmax(scores)
    mine = ragged.sum(keys.map_values(lambda values: values * weights.values[:, None]))
    dense = ragged.to_dense(keys, 7)[:, :, None]  # [rows, keys, heads, width]
    mask = ragged.sequence_mask(keys.lengths, 7)[:, None, None]
    wanted = jax.nn.dot_product_attention(query[:, None, None], dense, dense, mask=mask)
    np.testing.assert_allclose(mine, wanted[:, 0, 0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda ids: ragged.embedding_bag(TABLE, ids, combiner="median"), "no combiner 'median'"),  # type: ignore[arg-type]
        (lambda ids: ragged.embedding_bag(TABLE, ids * 1.0), "the ids are Ragged"),
        (lambda ids: ragged.embedding_bag(TABLE, ids, ids * 1.0, "max"), "weighted values is not defined"),
        (lambda ids: ragged.embedding_bag(TABLE, ids, ragged.from_lists([[1.0]])), "rows of different lengths"),
        (lambda ids: ragged.matrix_bags(jax.experimental.sparse.BCOO.fromdense(jnp.ones((2, 2, 2)))), "has no bags"),
    ],
)
def test_what_is_refused(wrong: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        wrong(ragged.from_lists([[1, 2], [3]]))
