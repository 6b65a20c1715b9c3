"""One-hot and multi-hot: dense against NumPy's eye, sparse against dense, depths given, bounded and learnt."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from drivetrain import data
from drivetrain.engine import Bundle, analyze, ops, ragged
from drivetrain.engine.host_ops.kernels import host_op
from drivetrain.errors import InputError
from hypothesis import given
from hypothesis import strategies as st

jnp = pytest.importorskip("jax.numpy")
pytestmark = pytest.mark.engine

WORDS = ["b", "a", "c", None, "a", "b", "a", ""]
TABLE = pa.table({"s": WORDS, "l": [[w] if w else [] for w in WORDS], "n": [0, 4, None, 2, 9, -1, 3, 1]})
IDS = [1, 0, 2, 4, 0, 1, 0, 3]  # a, b, c; one id for unknown, as the empty text is, one for missing


def learn(fn: Any) -> tuple[Bundle, Any]:
    bundle = analyze(lambda c: {"y": fn(c)}, data.source_of(TABLE), data.executor("local"))
    (batch,) = TABLE.combine_chunks().to_batches()
    found = bundle.run("transform", batch)["y"]
    for place, row in enumerate(TABLE.to_pylist()):
        alone = bundle.run_row("transform", row)["y"]
        wanted = found[place].as_py() if isinstance(found, pa.Array) else found[place]
        np.testing.assert_array_equal(np.asarray(alone).reshape(np.shape(wanted)), wanted)
    return bundle, found


def test_dense_is_a_row_of_the_identity() -> None:
    _, found = learn(lambda c: ops.one_hot(ops.vocabulary(c["s"], top_k=3)))
    np.testing.assert_array_equal(found, np.eye(5, dtype=np.float32)[IDS])
    _, found = learn(lambda c: ops.one_hot(ops.fill_missing(c["n"], 0), 4))
    inside = [0, -1, 0, 2, -1, -1, 3, 1]
    np.testing.assert_array_equal(found, [np.eye(4)[i] if i >= 0 else np.zeros(4) for i in inside])


def test_sparse_needs_no_depth_known_while_tracing() -> None:
    bundle, found = learn(lambda c: ops.one_hot(ops.vocabulary(c["s"]), sparse=True))
    assert list(map(list, found)) == [[i] for i in IDS]
    assert bundle.signatures["transform"].outputs["y"].size == 5
    learnt = learn(lambda c: ops.one_hot(v := ops.vocabulary(c["s"]), ops.vocabulary_size(v) + 1, sparse=True))[1]
    assert list(map(list, learnt)) == [[i] if i < 4 else [] for i in IDS]  # the missing one is outside
    bundle, found = learn(lambda c: ops.one_hot(c["n"], 4, sparse=True))
    assert list(map(list, found)) == [[0], [], [], [2], [], [], [3], [1]]
    assert bundle.signatures["transform"].outputs["y"].size == 4


def test_sparse_is_what_bags_and_multi_hot_take() -> None:
    table = jnp.arange(10.0).reshape(5, 2)

    def embedded(c: Any) -> Any:
        ids = ops.one_hot(ops.vocabulary(c["s"], top_k=3), sparse=True)
        return jnp.concatenate([ragged.embedding_bag(table, ops.to_ragged(ids)), ops.multi_hot(ids)], axis=-1)

    _, found = learn(embedded)
    np.testing.assert_array_equal(found, np.concatenate([np.asarray(table)[IDS], np.eye(5)[IDS]], axis=-1))


def test_multi_hot_is_as_deep_as_the_vocabulary_may_be() -> None:
    _, found = learn(lambda c: ops.multi_hot(ops.vocabulary(c["l"], top_k=4, oov_buckets=2)))
    wanted = np.zeros((8, 6))
    for row, word in enumerate(WORDS):
        if word:
            wanted[row, "abc".index(word)] = 1
    np.testing.assert_array_equal(found, wanted)
    with pytest.raises(InputError, match=r"test_categories.py:\d+: how many ids there are is not known"):
        learn(lambda c: ops.multi_hot(ops.vocabulary(c["l"])))


@pytest.mark.parametrize(
    ("fn", "says"),
    [
        (lambda c: ops.one_hot(c["s"]), "'s' is text and was given to one_hot"),
        (lambda c: ops.one_hot(c["n"], 0, sparse=True), "depth is 0"),
        (lambda c: ops.one_hot(ops.one_hot(c["n"], 4), sparse=True), "take one place at a time|is not sparse"),
    ],
)
def test_what_has_no_one_hot(fn: Any, says: str) -> None:
    with pytest.raises(InputError, match=rf"test_categories.py:\d+: .*({says})"):
        learn(fn)


@given(st.lists(st.integers(-3, 9), max_size=12), st.none() | st.integers(1, 8), st.booleans())
def test_ids_as_lists_equal_a_loop(ids: list[int], depth: int | None, learnt: bool) -> None:
    params = {} if depth is None or learnt else {"depth": depth}
    more = [np.int32(depth)] if depth is not None and learnt else []
    row, batch = host_op("listed").row(params, ()), host_op("listed").batch(params, ())
    wanted = [[i] if 0 <= i < (depth or 10) else [] for i in ids]
    assert batch(np.array(ids, np.int32), *more).to_pylist() == wanted
    assert [row(np.int32(i), *more) for i in ids] == wanted
