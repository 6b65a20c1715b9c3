"""Training and serving agree: rows as `apply` writes them, a fresh process on batches, and that process row by row."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from drivetrain import data
from drivetrain.engine import analyze, apply, export_model, ops, ragged
from drivetrain.engine.custom_ops.registry import host_kernels

pytestmark = pytest.mark.engine

WORDS = ["", "a", "b", "straße", "東京", "naïve", "👩‍👩‍👧", " ", "UPPER", "a b  c", "1.5", "x" * 300]
UNSEEN = ["new", "ünseen", "𝔘", "b "]


def rows(count: int, seed: int, words: list[str]) -> pa.Table:
    rng = np.random.default_rng(seed)

    def some(values: Any, share: float = 0.15) -> pa.Array:
        missing = rng.random(count) < share
        return pa.array([None if gone else value for gone, value in zip(missing, values, strict=True)])

    def lists(make: Any) -> list[Any]:
        return [[make() for _ in range(size)] for size in rng.integers(0, 5, count)]

    odd = np.array([np.nan, np.inf, -np.inf, -0.0, 1e-40, 3e38, 1e300])
    x = np.where(rng.random(count) < 0.1, odd[rng.integers(0, len(odd), count)], rng.lognormal(1, 2, count))
    chosen = [words[place] for place in rng.integers(0, len(words), count)]
    texts = [" ".join(words[place] for place in places) for places in rng.integers(0, len(words), (count, 3))]
    keys = rng.integers(0, 40 if seed == 1 else 50, count)
    return pa.table({
        "x": some(x), "y": rng.normal(5, 2, count), "n": some(rng.integers(-(2**31), 2**31 - 1, count).tolist()),
        "small": some(rng.integers(0, 9, count).tolist()), "flag": some((rng.random(count) < 0.4).tolist()),
        "word": some(chosen), "text": some(texts), "key": some([f"k{n}" for n in keys]),
        "zip": some(rng.integers(0, 30, count).tolist()),
        "tags": some(lists(lambda: str(rng.choice(words)))),
        "numbers": some(lists(lambda: float(rng.choice(odd)) if rng.random() < 0.1 else rng.normal())),
        "pair": pa.array(rng.normal(size=(count, 2)).tolist()),
    })  # fmt: skip


def preprocess(c: ops.Columns) -> ops.Columns:
    x, y, n = c["x"], c["y"], c["n"]
    words = ops.split(ops.lower(c["text"]))
    ids = ops.vocabulary(words, top_k=6, oov_buckets=2)
    terms, weights = ops.tfidf(ids, 10)
    filled = ops.fill_missing(x, ops.median(x))
    finite = jnp.clip(jnp.nan_to_num(filled, posinf=1e6, neginf=-1e6), -1e6, 1e6)
    both = jnp.stack([jnp.log1p(jnp.abs(finite)), y], axis=-1)
    return {
        "z": ops.z_score(x), "mm": ops.min_max(y, -1, 1), "gauss": ops.scale_to_gaussian(y), "raw": x,
        "log": jnp.log1p(jnp.abs(finite)), "missing": ops.is_missing(x), "n_z": ops.z_score(ops.cast(n, "float32")),
        "again": ops.z_score(ops.z_score(finite)), "bucket": ops.bucketize(x, 7),
        "cut": ops.apply_buckets(y, [2.0, 5.0]),
        "n_id": ops.vocabulary(c["small"], oov_buckets=3), "flag_id": ops.vocabulary(c["flag"]),
        "flag": ops.fill_missing(c["flag"], False), "word_id": ops.vocabulary(c["word"], top_k=5, oov_buckets=4),
        "code": ops.apply_vocabulary(c["word"], ["a", "東京"], oov_buckets=0), "word": ops.upper(c["word"]),
        "hash": ops.hash_buckets(c["word"], 64), "strong": ops.hash_buckets(c["text"], 64, key=(1, 2)),
        "joined": ops.join(ops.ngrams(words, (2, 3)), "|"), "bag": ops.bag_of_words(words), "ids": ids, "terms": terms,
        "weights": weights, "hot": ops.multi_hot(ops.hash_buckets(words, 16), 16),
        "count": ops.word_count(c["tags"]) + 0.0,
        "tag_ids": ops.vocabulary(c["tags"], oov_buckets=0), "numbers": ops.z_score(c["numbers"]),
        "number_buckets": ops.bucketize(c["numbers"], 3), "dense": ops.to_dense(c["numbers"], 4, fill=-1.0),
        "parsed": ops.parse(c["word"], "float32", default=-9.0),
        "mode": ops.fill_missing(c["word"], ops.mode(c["word"])),
        "by_key": ops.z_score_per_key(y, c["key"]), "mm_key": ops.min_max_per_key(y, c["zip"]),
        "bucket_key": ops.bucketize_per_key(y, c["key"], 3), "pca": both @ ops.pca(both, 1),
        "pair": ops.to_dense(c["pair"], 2),
        "chosen": ops.where(c["flag"], y, -y), "is_a": ops.fill_missing(c["word"] == "a", False),
        "late": ops.cast(ops.fill_missing(c["y"] > 5, False), "float32"),
    }  # fmt: skip


def model(params: Any, features: Any) -> Any:
    names = ("mm", "gauss", "log", "again", "by_key", "mm_key")
    wide = jnp.stack([jnp.nan_to_num(features[name]) for name in names], axis=-1)
    deep = jnp.tanh(jnp.concatenate([wide, features["hot"], features["pair"]], axis=-1) @ params["w"])
    bag = ragged.embedding_bag(params["table"], features["ids"])
    return (deep * bag).sum(axis=1) + jnp.take(params["words"], features["word_id"])


def compare(found: pa.Table, wanted: pa.Table, what: str) -> None:
    assert found.schema.names == wanted.schema.names
    for name in wanted.schema.names:
        mine, theirs = (table[name].combine_chunks() for table in (found, wanted))
        assert mine.null_count == theirs.null_count, (what, name)
        assert mine.is_valid().equals(theirs.is_valid()), (what, name)
        if pa.types.is_list(mine.type) or pa.types.is_fixed_size_list(mine.type):
            lengths = [[len(item) for item in column.to_pylist() if item is not None] for column in (mine, theirs)]
            assert lengths[0] == lengths[1], (what, name)
            mine, theirs = mine.flatten(), theirs.flatten()
        if pa.types.is_floating(mine.type):
            got, asked = (column.to_numpy(zero_copy_only=False) for column in (mine, theirs))
            np.testing.assert_allclose(got, asked, rtol=1e-6, atol=1e-6, equal_nan=True, err_msg=f"{what} {name}")
        else:
            assert mine.cast(theirs.type).equals(theirs), (what, name)


def check(folder: Path, count: int) -> None:
    pq.write_table(rows(2000, 1, WORDS), folder / "train.parquet", row_group_size=700)
    served = rows(count, 2, [*WORDS, *UNSEEN])
    pq.write_table(served, folder / "raw.parquet", row_group_size=3000)
    executor = data.LocalExecutor(2)
    learnt = analyze(preprocess, data.open_parquet([folder / "train.parquet"]), executor)
    learnt.save(folder / "graph")
    rng = np.random.default_rng(3)
    sizes = learnt.signatures["transform"].outputs
    params = {
        "w": rng.normal(size=(6 + 16 + 2, 8)).astype(np.float32),
        "table": rng.normal(size=(sizes["ids"].size or 0, 8)).astype(np.float32),
        "words": rng.normal(size=sizes["word_id"].size).astype(np.float32),
    }
    predict: Any = lambda logits: {"p": jax.nn.sigmoid(logits)}  # noqa: E731
    export_model(folder / "graph", model, params, predict, label="late", out=folder / "model")

    manifest = apply(folder / "graph", {"serve": data.open_parquet([folder / "raw.parquet"])}, folder / "out", executor)
    written = pa.concat_tables([pq.read_table(folder / "out" / part.path) for part in manifest.parts("serve")])
    assert written.num_rows == count
    side = Path(__file__).with_name("serving_side.py")
    ran = subprocess.run([sys.executable, side, folder], capture_output=True, text=True, check=False, timeout=280)
    assert ran.returncode == 0, ran.stderr
    compare(pq.read_table(folder / "graph-batches.parquet"), written, "batches")
    compare(pq.read_table(folder / "graph-rows.parquet"), written, "rows")

    # Training's side of a prediction: the model's own function on what `apply` wrote.
    own = learnt_features(written, sizes)
    trained: Any = jax.jit(model)
    wanted = pa.table({"p": np.asarray(predict(trained(params, own))["p"])})
    compare(pq.read_table(folder / "model-batches.parquet"), wanted, "predictions of batches")
    compare(pq.read_table(folder / "model-rows.parquet"), wanted, "predictions of rows")
    assert_it_met_everything(served, pq.read_table(folder / "train.parquet"))


def learnt_features(written: pa.Table, sizes: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in ("mm", "gauss", "log", "again", "by_key", "mm_key", "word_id"):
        found[name] = written[name].to_numpy()
    for name in ("hot", "pair"):
        column = written[name].combine_chunks()
        found[name] = column.flatten().to_numpy().reshape(len(column), -1)
    lists = written["ids"].to_pylist()
    found["ids"] = ragged.from_lists([item or [] for item in lists])
    assert sizes["hot"].shape == found["hot"].shape[1:]
    return found


def assert_it_met_everything(served: pa.Table, train: pa.Table) -> None:
    """The rows held what they are there for."""
    x = served["x"].to_numpy(zero_copy_only=False)
    assert served["x"].null_count
    assert all(test(x).any() for test in (np.isnan, np.isposinf, np.isneginf))
    assert {"", None, *UNSEEN} <= set(served["word"].to_pylist())
    assert set(served["key"].to_pylist()) - set(train["key"].to_pylist())
    tags = served["tags"].to_pylist()
    assert [] in tags
    assert None in tags


@pytest.mark.slow
def test_500_rows(tmp_path: Path) -> None:
    check(tmp_path, 500)


@pytest.mark.slow
def test_10000_rows(tmp_path: Path) -> None:
    check(tmp_path, 10_000)


@pytest.mark.parametrize("behind", [b"", b" x", b"\x80\x80", b"\xff\xff", b"\xc3"])
def test_what_lies_behind_a_text_in_memory_is_no_part_of_it(behind: bytes) -> None:
    text = "b  xx b\u3000 ".encode()
    offsets = pa.py_buffer(np.array([0, len(text)], np.int32))
    column = pa.Array.from_buffers(pa.string(), 1, [None, offsets, pa.py_buffer(text + behind)])
    kernels = host_kernels("split")
    params = {"delimiters": None, "pattern": None}
    assert kernels.batch(params, ())(column).to_pylist() == [["b", "xx", "b"]]
    assert kernels.row(params, ())(text.decode()) == ["b", "xx", "b"]
