"""A function that lets rows of a batch look at each other is refused; all that stays within a row is not."""

import dis
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from types import CodeType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from drivetrain import data
from drivetrain.engine import analyze, export_model, ops, ragged
from drivetrain.engine.export import rehearse
from drivetrain.engine.tracing import training_only
from drivetrain.engine.tracing.primitives import shaped
from drivetrain.engine.transform.rowwise import check_rowwise
from drivetrain.errors import InputError
from hypothesis import given, settings
from hypothesis import strategies as st

jax = pytest.importorskip("jax")
jnp = pytest.importorskip("jax.numpy")
pytestmark = pytest.mark.engine

Call = Callable[[Any, Any, Any, Any], Any]
TABLE = pa.table({
    "x": [1.0, 2.5, -3.0, 8.0, 0.5],
    "v": pa.array([[1.0, 2, 0.5], [3, 4, 1], [-5, 6, 2], [0, 1, 3], [2, 2, 2]], pa.list_(pa.float64(), 3)),
    "i": [0, 2, 1, 1, 0],
    "l": [[1.0], [2.0, 3.0], [], [4.0], [5.0, 6.0, 7.0]],
})  # fmt: skip
KERNEL = jnp.ones((1, 1, 3))
EDGES = jnp.array([0.0, 1.0, 2.0])

MIXING: dict[str, Call] = {
    "mean": lambda x, v, i, r: x - jnp.mean(x),
    "max": lambda x, v, i, r: x / x.max(),
    "any": lambda x, v, i, r: jnp.where(jnp.any(x > 5), x, 0.0),
    "median": lambda x, v, i, r: x - jnp.median(x),
    "std of places": lambda x, v, i, r: v / v.std(axis=0),
    "softmax": lambda x, v, i, r: jax.nn.softmax(x),
    "first": lambda x, v, i, r: x - x[0],
    "last": lambda x, v, i, r: jnp.where(x > 0, x, x[-1]),
    "without the first": lambda x, v, i, r: jnp.pad(x[1:], (0, 1)),
    "difference": lambda x, v, i, r: jnp.diff(x, prepend=0.0),
    "running sum": lambda x, v, i, r: jnp.cumsum(x),
    "sorted": lambda x, v, i, r: jnp.sort(x),
    "rank": lambda x, v, i, r: jnp.argsort(x),
    "reversed": lambda x, v, i, r: x[::-1],
    "shifted": lambda x, v, i, r: jnp.roll(x, 1),
    "largest": lambda x, v, i, r: jnp.zeros_like(x) + jax.lax.top_k(x, 1)[0],
    "norm": lambda x, v, i, r: x / jnp.linalg.norm(x),
    "products": lambda x, v, i, r: v @ (v.T @ v),
    "pairs": lambda x, v, i, r: (x[:, None] * x[None, :]).sum(axis=1),
    "counts": lambda x, v, i, r: jax.ops.segment_sum(jnp.ones_like(x), i, 3)[i],
    "set": lambda x, v, i, r: x.at[0].set(1.0),
    "smoothed": lambda x, v, i, r: jax.lax.scan(lambda c, y: (0.9 * c + y, c), 0.0, x)[1],
    "noise": lambda x, v, i, r: x + jax.random.normal(jax.random.key(0), x.shape),
    "inside jit": lambda x, v, i, r: jax.jit(lambda y: y - y.mean())(x),
    "of an analyzer": lambda x, v, i, r: x - ops.mean(jnp.cumsum(x)),
    "picked by numbers": lambda x, v, i, r: x[i],
    "taken by numbers": lambda x, v, i, r: jnp.take(x, i, axis=0),
    "the row before": lambda x, v, i, r: x[jnp.arange(x.shape[0]) - 1],
    "picked in order": lambda x, v, i, r: v[i, jnp.arange(v.shape[0]) % 3],
    "set by numbers": lambda x, v, i, r: x.at[i].set(0.0),
    "added by numbers": lambda x, v, i, r: jnp.zeros_like(x).at[i].add(x),
    "picked in a loop": lambda x, v, i, r: jax.lax.fori_loop(0, 2, lambda _, y: y + x[i], x),
    "overlaid": lambda x, v, i, r: jax.lax.dynamic_update_slice(x, jnp.ones(1), (0,)),
    "convolved": lambda x, v, i, r: jax.lax.conv_general_dilated(x[None, None], KERNEL, (1,), "SAME")[0, 0],
    "pooled in windows": lambda x, v, i, r: jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (3,), (1,), "SAME"),
    "factors": lambda x, v, i, r: jnp.linalg.cholesky(x[:, None] * x[None, :])[:, 0],
    "laid out otherwise": lambda x, v, i, r: v.reshape(3, -1).T,
    "in halves": lambda x, v, i, r: jnp.stack([v, v], -1).reshape(2, -1).sum(0).reshape(-1, 3),
    "column by column": lambda x, v, i, r: v.T.reshape(x.shape[0], 3),
    "flattened by columns": lambda x, v, i, r: v.ravel(order="F").reshape(v.shape),
    "twice over": lambda x, v, i, r: jnp.tile(x, 2).reshape(-1, 2),
    "as many as there are": lambda x, v, i, r: x / x.shape[0],
    "one less": lambda x, v, i, r: x * (x.shape[0] - 1),
    "if there are enough": lambda x, v, i, r: jnp.where(jnp.asarray(x.shape[0]) > 3, x, 0.0),
    "how many there are": lambda x, v, i, r: jnp.full(x.shape, x.shape[0]),
    "how many inside jit": lambda x, v, i, r: jax.jit(lambda y: y * y.shape[0])(x),
    "how many inside a loop": lambda x, v, i, r: jax.lax.fori_loop(0, 2, lambda _, y: y + jnp.float32(x.shape[0]), x),
    "the row far behind": lambda x, v, i, r: x[jnp.arange(x.shape[0]) + (x.shape[0] - 1)],
    "all values": lambda x, v, i, r: ragged.sum(r) / r.values.sum(),
}

WITHIN: dict[str, Call] = {
    "elementwise": lambda x, v, i, r: jnp.log1p(jnp.abs(x)) + ops.mean(x),
    "mean of places": lambda x, v, i, r: v.mean(axis=1),
    "softmax of places": lambda x, v, i, r: jax.nn.softmax(v, axis=-1),
    "sorted places": lambda x, v, i, r: jnp.sort(v, axis=-1)[:, ::-1],
    "largest places": lambda x, v, i, r: jax.lax.top_k(v, 2)[0],
    "running sum of places": lambda x, v, i, r: jnp.cumsum(v, axis=1),
    "shifted places": lambda x, v, i, r: jnp.roll(v, 1, axis=1),
    "one place": lambda x, v, i, r: v[:, 0] + v[:, -1],
    "some places": lambda x, v, i, r: v[:, 1:],
    "a place set": lambda x, v, i, r: v.at[:, 0].set(1.0),
    "the row's place": lambda x, v, i, r: jnp.take_along_axis(v, i[:, None], axis=1)[:, 0],
    "by row numbers": lambda x, v, i, r: v[jnp.arange(v.shape[0]), i],
    "set by row numbers": lambda x, v, i, r: v.at[jnp.arange(v.shape[0]), i].set(0.0),
    "by row numbers in a loop": lambda x, v, i, r: jax.lax.fori_loop(
        0, 2, lambda k, y: y + v[jnp.arange(v.shape[0]), (i + k) % 3], x
    ),
    "by row numbers from outside a loop": lambda x, v, i, r: by_outside(v, i),
    "taken along rows": lambda x, v, i, r: jnp.take(v, jnp.array([2, 0]), axis=1),
    "overlaid places": lambda x, v, i, r: jax.lax.dynamic_update_slice(v, v[:, :1] * 2, (0, 1)),
    "convolved places": lambda x, v, i, r: jax.vmap(lambda row: jnp.convolve(row, jnp.ones(2), mode="same"))(v),
    "windows of places": lambda x, v, i, r: jax.lax.reduce_window(v, 0.0, jax.lax.add, (1, 2), (1, 1), "VALID"),
    "systems": lambda x, v, i, r: jnp.linalg.solve(jnp.eye(3) * 2 + v[:, :, None] * v[:, None, :], v[..., None])[
        ..., 0
    ],
    "one system": lambda x, v, i, r: jax.scipy.linalg.solve_triangular(jnp.tri(3), v.T, lower=True).T,
    "lists summed by hand": lambda x, v, i, r: jax.ops.segment_sum(r.values, r.segment_ids, x.shape[0]),
    "a row's value beside its list's": lambda x, v, i, r: ragged.sum(r.map_values(lambda y: y * x[r.segment_ids])),
    "the first of each list": lambda x, v, i, r: jnp.where(r.lengths > 0, r.values[r.row_splits[:-1]], 0.0),
    "rows unused in jit": lambda x, v, i, r: jax.jit(lambda y: (y * 2, y.mean()))(x)[0],
    "a table's row": lambda x, v, i, r: jnp.eye(3)[i],
    "flattened and back": lambda x, v, i, r: jnp.tanh(v.reshape(-1)).reshape(v.shape),
    "in pairs": lambda x, v, i, r: jnp.concatenate([v, x[:, None]], -1).reshape(-1, 2).max(-1).reshape(-1, 2),
    "in more axes": lambda x, v, i, r: v.reshape(-1, 3, 1, 1).transpose(1, 0, 2, 3).reshape(3, -1).T,
    "places repeated": lambda x, v, i, r: jnp.tile(v, (1, 2)),
    "from the end": lambda x, v, i, r: v[jnp.arange(v.shape[0]), i - 3],
    "as many as there are, of places": lambda x, v, i, r: v / v.shape[1],
    "as many ones": lambda x, v, i, r: jnp.ones(x.shape[0]) * x,
    "transposed": lambda x, v, i, r: v.T.max(axis=0),
    "products": lambda x, v, i, r: v @ jnp.ones((3, 2)),
    "outer": lambda x, v, i, r: jnp.einsum("bi,bj->bij", v, v),
    "one hot": lambda x, v, i, r: jax.nn.one_hot(i, 3),
    "joined": lambda x, v, i, r: jnp.concatenate([v, x[:, None]], axis=-1),
    "interpolated": lambda x, v, i, r: jnp.interp(x, EDGES, EDGES**2),
    "places among edges": lambda x, v, i, r: jnp.searchsorted(EDGES, x),
    "polynomial": lambda x, v, i, r: jnp.polyval(EDGES, x),
    "vmap": lambda x, v, i, r: jax.vmap(lambda row: row / jnp.linalg.norm(row))(v),
    "a loop over places": lambda x, v, i, r: jax.lax.scan(lambda c, y: (c + y, c), jnp.zeros_like(x), v.T)[0],
    "until all are there": lambda x, v, i, r: jax.lax.while_loop(
        lambda s: jnp.any(s < 10), lambda s: jnp.where(s < 10, s + 1, s), x
    ),
    "spectrum": lambda x, v, i, r: jnp.abs(jnp.fft.fft(v)),
    "pooled": lambda x, v, i, r: ragged.mean(r) + ragged.max(r, empty=0),
    "lists": lambda x, v, i, r: r.map_values(jnp.log1p),
    "scaled": lambda x, v, i, r: ops.scale_to_gaussian(x) + ops.z_score(v)[:, 0],
    "an analyzer inside jit": lambda x, v, i, r: jax.jit(lambda y: y - ops.mean(y) + ragged.sum(r))(x),
    "buckets": lambda x, v, i, r: ops.bucketize(x, 3),
    "the same noise": lambda x, v, i, r: v + jax.random.normal(jax.random.key(0), (3,)),
    "unused": lambda x, v, i, r: (x.mean(), x)[1],
}


def by_outside(v: Any, i: Any) -> Any:
    own = jnp.arange(v.shape[0])
    return jax.lax.scan(lambda total, _: (total + v[own, i], None), jnp.zeros(v.shape[0]), None, length=2)[0]


def reads_lists(call: Call) -> bool:
    """Whether a call reads `r`: its code, or that of a function in it."""
    codes = [call.__code__]
    for code in codes:
        codes += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return any(step.argval == "r" for code in codes for step in dis.get_instructions(code))


def learn(calls: dict[str, Call]) -> Any:
    def preprocess(columns: Any) -> Any:
        x, v = columns["x"], columns["v"]
        i, r = ops.fill_missing(ops.cast(columns["i"], "int32"), 0), ops.to_ragged(columns["l"])
        return {name: call(x, v, i, r) for name, call in calls.items()}

    return analyze(preprocess, data.source_of(TABLE), data.executor("local"), schema=TABLE.schema)


@pytest.mark.parametrize("name", MIXING)
def test_rows_that_look_at_each_other_are_refused(name: str) -> None:
    with pytest.raises(InputError, match=r"test_rowwise.py:\d+: .* goes over the rows of a batch") as caught:
        learn({"y": MIXING[name]})
    line = int(str(caught.value.where).rsplit(":", 1)[1])
    assert line == MIXING[name].__code__.co_firstlineno


@pytest.mark.parametrize("lists", [False, True], ids=["arrays", "lists"])
def test_what_stays_within_a_row_is_not(lists: bool) -> None:
    """And a row alone gives what it gives in a batch.

    Many calls are outputs of one bundle, which XLA compiles twice and not a hundred times: for the batch and for a row.
    Those that read lists are apart, since what a row of these takes has no fixed size and is compiled in another way.
    """
    calls = {name: call for name, call in WITHIN.items() if reads_lists(call) == lists}
    bundle = learn(calls)
    (batch,) = TABLE.combine_chunks().to_batches()
    whole = bundle.run("transform", batch)
    assert whole.keys() == calls.keys()
    for place, row in enumerate(TABLE.to_pylist()):
        for name, alone in bundle.run_row("transform", row).items():
            values = whole[name]
            wanted = values[place].as_py() if isinstance(values, pa.Array) else values[place]
            alone = np.asarray(alone).reshape(np.shape(wanted))
            np.testing.assert_allclose(alone, wanted, rtol=1e-6, atol=1e-6, err_msg=name)


@st.composite
def layouts(draw: Any) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """Two shapes (before, values of a row, after) of as many values: `(before, values * rows, after)`."""
    sizes = tuple(draw(st.integers(1, 4)) for _ in range(3))
    left = int(np.prod(sizes))
    first = draw(st.sampled_from([n for n in range(1, left + 1) if left % n == 0]))
    second = draw(st.sampled_from([n for n in range(1, left // first + 1) if left // first % n == 0]))
    return sizes, (first, second, left // first // second)


@settings(max_examples=80, deadline=None)
@given(layouts(), st.integers(2, 5))
def test_a_reshape_is_refused_where_numpy_finds_values_of_other_rows(pair: Any, rows: int) -> None:
    (before, values, after), (first, second, last) = pair
    numbers = np.repeat(np.arange(rows), values)[None, :, None] + np.zeros((before, 1, after), int)
    wanted = np.repeat(np.arange(rows), second)[None, :, None] + np.zeros((first, 1, last), int)
    same = np.array_equal(numbers.reshape(wanted.shape), wanted)

    (b,) = jax.export.symbolic_shape("b")
    whole = shaped((before, values * b, after), np.float32)
    closed = jax.make_jaxpr(lambda x: x.reshape(first, second * b, last))(whole)
    with nullcontext() if same else pytest.raises(InputError, match="reshape goes over the rows"):
        check_rowwise(closed)


def features(columns: Any) -> Any:
    return {**columns, "i": ops.fill_missing(columns["i"], 0), "label": columns["x"] > 1}


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rowwise") / "graph"
    analyze(features, data.source_of(TABLE), data.executor("local"), schema=TABLE.schema).save(folder)
    return folder


def model(call: Call) -> Any:
    return lambda params, given: call(given["x"], given["v"], given["i"], given["l"])


def by_name(made: Any) -> Any:
    return {"y": made}


@pytest.mark.parametrize("name", [name for name in MIXING if name != "of an analyzer"])
def test_a_model_whose_rows_look_at_each_other_is_refused_before_it_is_trained(name: str, graph: Path) -> None:
    for check in (rehearse, partial(export_model, out=graph.parent / "never")):
        with pytest.raises(InputError, match=r"test_rowwise.py:\d+: .* goes over the rows of a batch") as caught:
            check(graph, model(MIXING[name]), np.float32(1), by_name, label="label")
        assert int(str(caught.value.where).rsplit(":", 1)[1]) == MIXING[name].__code__.co_firstlineno
    assert not (graph.parent / "never").exists()


@pytest.mark.parametrize("name", sorted(WITHIN.keys() - {"elementwise", "scaled", "an analyzer inside jit", "buckets"}))
def test_a_model_may_do_what_stays_within_a_row(name: str, graph: Path) -> None:
    rehearse(graph, model(WITHIN[name]), np.float32(1), by_name, "label")


def test_a_model_may_look_at_other_rows_in_training(graph: Path) -> None:
    """Batch normalisation, what predict does not read, and dropout are of training."""

    def apply(params: Any, given: Any, *, train: bool = False) -> Any:
        mean = given["x"].mean() if train else params["mean"]
        hidden = training_only.dropout(given["x"] - mean, 0.5, jax.random.key(0))
        return {"score": hidden, "balance": hidden.mean()}

    rehearse(graph, apply, {"mean": np.float32(1)}, lambda made: {"score": made["score"]}, "label")
    with pytest.raises(InputError, match="reduce_sum goes over the rows"):
        rehearse(graph, partial(apply, train=True), {"mean": np.float32(1)}, lambda m: {"score": m["score"]}, "label")
    with pytest.raises(InputError, match="random_bits goes over the rows"):
        learn({"y": lambda x, v, i, r: training_only.dropout(x, 0.5, jax.random.key(0))})
