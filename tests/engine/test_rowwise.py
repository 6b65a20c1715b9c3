"""A function that lets rows of a batch look at each other is refused; all that stays within a row is not."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from drivetrain import data
from drivetrain.engine import analyze, ops, ragged
from drivetrain.errors import InputError

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
    "a table's row": lambda x, v, i, r: jnp.eye(3)[i],
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


def learn(call: Call) -> Any:
    def preprocess(columns: Any) -> Any:
        whole = ops.cast(columns["i"], "int32")
        return {"y": call(columns["x"], columns["v"], ops.fill_missing(whole, 0), ops.to_ragged(columns["l"]))}

    return analyze(preprocess, data.source_of(TABLE), data.executor("local"), schema=TABLE.schema)


@pytest.mark.parametrize("name", MIXING)
def test_rows_that_look_at_each_other_are_refused(name: str) -> None:
    with pytest.raises(InputError, match=r"test_rowwise.py:\d+: .* goes over the rows of a batch") as caught:
        learn(MIXING[name])
    line = int(str(caught.value.where).rsplit(":", 1)[1])
    assert line == MIXING[name].__code__.co_firstlineno


@pytest.mark.parametrize("name", WITHIN)
def test_what_stays_within_a_row_is_not(name: str) -> None:
    """And a row alone gives what it gives in a batch."""
    bundle = learn(WITHIN[name])
    (batch,) = TABLE.combine_chunks().to_batches()
    found = bundle.run("transform", batch)["y"]
    for place, row in enumerate(TABLE.to_pylist()):
        alone = bundle.run_row("transform", row)["y"]
        wanted = found[place].as_py() if isinstance(found, pa.Array) else found[place]
        np.testing.assert_allclose(np.asarray(alone).reshape(np.shape(wanted)), wanted, rtol=1e-6, atol=1e-6)
