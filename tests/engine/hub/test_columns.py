"""Modules inside preprocessing functions and models: what a saved graph gave, its new graph gives, in bundles too."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from drivetrain import data, hub
from drivetrain.engine import Bundle, Model, analyze, export_model, ops, ragged
from drivetrain.errors import InputError

pytestmark = pytest.mark.engine

WORDS = ["red", "green", "blue", "red", "red", "green", None, "zzz"]
TABLE = pa.table(
    {
        "word": WORDS,
        "size": [1.0, 2.0, 3.0, 4.0, None, 6.0, 7.0, 8.0],
        "count": [1, 2, 3, 4, 5, 6, 7, None],
        "label": [0.0, 1.0] * 4,
    }
)
VECTORS = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)


def embed(columns: ops.Columns) -> ops.Columns:
    ops.check(ops.fill_missing(columns["size"], 0.0) < 100.0, "size is below 100")
    ids = ops.vocabulary(columns["word"], min_count=2)  # red, green; unknown; missing
    return {"vector": jnp.asarray(VECTORS)[ids], "id": ids, "size": ops.z_score(columns["size"])}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("data") / "data.parquet"
    pq.write_table(TABLE, path)
    return data.open_parquet([path])


@pytest.fixture(scope="module")
def embedding(source: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hub") / "embedding"
    hub.save(analyze(embed, source, data.executor("local")), folder, card=hub.ModelCard("embedding"))
    return folder


def batch(table: pa.Table = TABLE) -> pa.RecordBatch:
    return table.combine_chunks().to_batches()[0]


@pytest.mark.slow
def test_host_ops_and_words_come_along(embedding: Path, source: Any, tmp_path: Path) -> None:
    module = hub.load(embedding)

    def preprocess(columns: ops.Columns) -> ops.Columns:
        outputs = module({"word": ops.lower(columns["word"]), "size": columns["size"]})
        return {
            "vector": 2 * outputs["vector"],
            "hot": ops.one_hot(outputs["id"]),
            "size": outputs["size"],
            "above": outputs["size"] - ops.mean(outputs["size"]),  # an analyzer of what a module gave
            "own": ops.vocabulary(columns["word"]),  # a vocabulary of its own beside that of the module
        }

    analyze(preprocess, source, data.executor("local")).save(tmp_path / "graph")
    (tmp_path / "hub").mkdir()
    bundle = Bundle.load(tmp_path / "graph")  # alone: the module is part of it
    upper = TABLE.set_column(0, "word", pa.array([word and word.upper() for word in WORDS]))
    outputs = bundle.run("transform", batch(upper))
    ids = np.array([0, 1, 2, 0, 0, 1, 3, 2])  # worked out by hand
    np.testing.assert_allclose(outputs["vector"], 2 * VECTORS[ids], rtol=1e-6)
    np.testing.assert_array_equal(outputs["hot"], np.eye(4, dtype=np.float32)[ids])
    sizes = np.array([1, 2, 3, 4, np.nan, 6, 7, 8])
    scaled = (sizes - np.nanmean(sizes)) / np.nanstd(sizes)
    np.testing.assert_allclose(outputs["size"], scaled, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(outputs["above"], scaled - np.nanmean(scaled), rtol=1e-4, atol=1e-6)
    for number, row in enumerate(upper.to_pylist()):
        of_row: dict[str, Any] = bundle.run_row("transform", row)
        np.testing.assert_allclose(of_row["vector"], outputs["vector"][number], rtol=1e-6)
        assert of_row["own"] == outputs["own"][number]
    with pytest.raises(InputError, match=r"check failed in row 1.*: size is below 100"):
        bundle.run("transform", batch(TABLE.set_column(1, "size", pa.array([1.0, 500.0] * 4))))


@pytest.mark.slow
def test_a_module_of_arrays_is_a_feature_column_and_a_layer(embedding: Path, source: Any, tmp_path: Path) -> None:
    weights = np.random.default_rng(1).normal(size=(3, 2)).astype(np.float32)
    hub.save(hub.module(lambda p, x: jnp.tanh(x @ p), weights, VECTORS), tmp_path / "layer")
    layer, words = hub.load(tmp_path / "layer", trainable=True), hub.load(embedding)

    def preprocess(columns: ops.Columns) -> ops.Columns:
        outputs = words({"word": columns["word"], "size": columns["size"]})
        return {"vector": outputs["vector"], "code": layer(outputs["vector"]), "label": columns["label"]}

    analyze(preprocess, source, data.executor("local")).save(tmp_path / "graph")

    def apply(params: Any, features: Any) -> Any:
        return layer(params["layer"], features["vector"]) @ params["head"] + features["code"].sum(-1)

    model = Model(lambda key: {"layer": layer.params, "head": jnp.ones(2)}, apply)
    params = jax.tree.map(lambda leaf: leaf + 0.5, model.init(jax.random.key(0)))
    predict = {"score": lambda score: score}
    bundle = export_model(
        tmp_path / "graph",
        model.apply,
        params,
        lambda score: {"score": predict["score"](score)},
        label="label",
        out=tmp_path / "model",
    )
    ids = np.array([0, 1, 2, 0, 0, 1, 3, 2])
    code = np.tanh(VECTORS[ids] @ weights)
    wanted = np.tanh(VECTORS[ids] @ (weights + 0.5)) @ np.full(2, 1.5) + code.sum(-1)
    saved = Bundle.load(tmp_path / "model")
    np.testing.assert_allclose(saved.run("predict", batch())["score"], wanted, rtol=1e-4)
    assert "model/layer/value" in bundle.payload.weights


def test_required_extensions_come_along(source: Any, tmp_path: Path) -> None:
    from drivetrain.engine import custom_ops

    custom_ops.use("hubtest", distribution="hubtest-ops", version="1.2.0")

    @custom_ops.host_op("hubtest.shout", returns="string", by="row")
    def shout(word: str | None) -> str | None:
        return None if word is None else word.upper()

    inner = analyze(lambda columns: {"id": ops.vocabulary(shout(columns["word"]))}, source, data.executor("local"))
    hub.save(inner, tmp_path / "hub")
    module = hub.load(tmp_path / "hub")
    outer = analyze(lambda columns: {"twice": 2 * module(columns["word"])["id"]}, source, data.executor("local"))
    assert [requirement.op for requirement in outer.extensions] == ["hubtest.shout"]
    shouted = outer.run("transform", batch())["twice"]
    np.testing.assert_array_equal(shouted, 2 * inner.run("transform", batch())["id"])


def test_what_a_module_of_columns_refuses(embedding: Path, source: Any) -> None:
    module = hub.load(embedding)
    local = data.executor("local")
    with pytest.raises(InputError, match=r"embedding@1 runs on the host first \(fill, lookup, values\)"):
        module({"word": WORDS, "size": np.ones(8)})
    with pytest.raises(InputError, match="input 'word' of embedding@1 takes string, column 'count' is int32") as caught:
        analyze(lambda c: module({"word": c["count"], "size": c["size"]}), source, local)
    assert caught.value.where is not None
    assert caught.value.where.startswith(__file__)
    with pytest.raises(InputError, match=r"input 'size' is missing: embedding@1 is \(word: string\[b\], size: float64"):
        analyze(lambda c: module({"word": c["word"]}), source, local)
    with pytest.raises(InputError, match="inputs 'word', 'size' are missing: "):
        analyze(lambda c: module({}), source, local)
    with pytest.raises(InputError, match="takes columns, so no gradient gets through"):
        hub.load(embedding, trainable=True)


@pytest.mark.slow
def test_lists_of_any_length_are_refused(source: Any, tmp_path: Path) -> None:
    def lists(columns: ops.Columns) -> ops.Columns:
        buckets = ops.to_ragged(ops.hash_buckets(ops.split(columns["word"]), 9))
        return {"sum": ragged.sum(buckets)}

    hub.save(analyze(lists, source, data.executor("local")), tmp_path)
    module = hub.load(tmp_path)
    with pytest.raises(InputError, match="works on lists of any length"):
        analyze(lambda columns: {"x": module(columns["word"])["sum"]}, source, data.executor("local"))
