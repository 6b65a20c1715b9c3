"""Every analyzer on local threads and on Beam gives one bundle, to the byte; also with a reducer of the user's own."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from drivetrain import data
from drivetrain.engine import analyze, ops

pytestmark = [pytest.mark.engine, pytest.mark.beam, pytest.mark.slow]


@dataclass(frozen=True)
class Spread:
    """The widest distance between two values of a column, and how many there are."""

    def create(self) -> Any:
        return np.array([np.inf, -np.inf]), np.zeros(1, np.int64)

    def add(self, state: Any, x: Any) -> Any:
        (low, high), count = state[0], state[1]
        kept = x[np.isfinite(x)]
        return np.array([min(low, *kept), max(high, *kept)]), count + len(kept)

    def merge(self, left: Any, right: Any) -> Any:
        ends = np.array([min(left[0][0], right[0][0]), max(left[0][1], right[0][1])])
        return ends, left[1] + right[1]

    def extract(self, state: Any) -> Any:
        return [state[0][1] - state[0][0], state[1][0]]


def initial(word: str) -> str:
    return word[:1]


def everything(c: ops.Columns) -> ops.Columns:
    x, n, w, k = c["x"], c["n"], c["w"], c["k"]
    v = jnp.stack([x, 2 * x + ops.cast(n, "float32")], -1)
    counts, edges = ops.histogram(x, 5)
    return {
        "z": ops.z_score(v, elementwise=True), "g": ops.scale_to_gaussian(x), "median": ops.median(x),
        "mode": ops.mode(n), "size": ops.size(x), "counts": counts, "edges": edges, "b": ops.bucketize(x, 4),
        "bw": ops.bucketize(x, 4, weights=n), "cov": ops.covariance(v), "pca": v @ ops.pca(v, 1),
        "zk": ops.z_score_per_key(x, k), "bk": ops.bucketize_per_key(x, k, 3), "count": ops.count_per_key(k),
        "id": ops.vocabulary(w), "weighted": ops.vocabulary(w, weights=n, name="weighted"),
        "told": ops.vocabulary(w, labels=k, adjusted=True, name="told", coverage_key=initial, top_k=2),
        "filled": ops.imputed(w, "mode"), "own": ops.reduce(Spread(), x, shape=(2,)),
    }  # fmt: skip


@pytest.fixture
def source(tmp_path: Path) -> Any:
    rng = np.random.default_rng(8)
    for part in range(3):
        rows = 70 + part
        x = rng.standard_t(2, rows)
        words = rng.choice(["a", "b", "ab", "c", ""], rows)
        table = pa.table(
            {
                "x": pa.array(x, mask=rng.random(rows) < 0.1),
                "n": rng.integers(0, 9, rows),
                "w": pa.array(words, mask=rng.random(rows) < 0.1),
                "k": pa.array(rng.choice(["p", "q", "r"], rows), mask=rng.random(rows) < 0.1),
            }
        )
        pq.write_table(table, tmp_path / f"part-{part}.parquet", row_group_size=30)
    return data.open_parquet(sorted(tmp_path.glob("*.parquet")))


def test_local_and_beam_give_the_same_bundle(source: Any) -> None:
    local = analyze(everything, source, data.executor("local")).to_files()
    beam = analyze(everything, source, data.executor("beam")).to_files()
    assert local == beam
