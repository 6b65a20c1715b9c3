"""Lists end to end: analysed, trained on, exported, served on batches, on rows, and by a process of its own."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from drivetrain import data
from drivetrain.engine import (
    Bundle,
    FieldSpec,
    Model,
    TrainingRun,
    analyze,
    apply,
    export_model,
    ops,
    ragged,
)
from drivetrain.engine.host_ops.kernels import host_op
from drivetrain.errors import InputError
from drivetrain.tests.engine.bundles.resealing import reseal
from drivetrain.tests.engine.hurry import hurried
from drivetrain.tests.engine.same_bits import assert_same
from hypothesis import given, settings
from hypothesis import strategies as st

pytestmark = [pytest.mark.engine, pytest.mark.slow]  # many compilations

WIDTH = 40


def preprocess(columns: ops.Columns) -> ops.Columns:
    return {
        "tags": columns["tags"],
        "scores": columns["scores"],
        "age": ops.fill_missing(columns["age"], 0.0),
        "label": ops.fill_missing(columns["label"], 0.0),
    }


def rows(count: int, seed: int, longest: int = 7) -> pa.Table:
    random = np.random.default_rng(seed)
    lengths = np.where(random.random(count) < 0.3, 0, random.integers(0, longest, count))
    tags = [random.integers(0, WIDTH, n).tolist() if n or row % 2 else None for row, n in enumerate(lengths)]
    scores = [random.normal(size=3 * n % 5).tolist() for n in lengths]
    label = [float(2 * sum(tag < WIDTH // 2 for tag in row or ()) > len(row or ())) for row in tags]
    return pa.table(
        {
            "tags": pa.array(tags, pa.list_(pa.int64())),
            "scores": pa.array(scores, pa.list_(pa.float64())),
            "age": pa.array(random.normal(size=count), mask=random.random(count) < 0.1),
            "label": label,
        }
    )


def init(key: jax.Array) -> Any:
    return {"table": 0.1 * jax.random.normal(key, (WIDTH, 4)), "out": jnp.ones(4), "age": jnp.zeros(())}


def model(params: Any, features: Any) -> Any:
    bags = ragged.embedding_bag(params["table"], features["tags"], combiner="mean")
    scores = ragged.max(features["scores"] * 0.1, empty=0) + ragged.sum(ragged.softmax(features["scores"]))
    return bags @ params["out"] + params["age"] * features["age"] + 0.01 * scores


def predict(logits: Any) -> Any:
    return {"probability": jax.nn.sigmoid(logits)}


SPECS = {
    "tags": FieldSpec("list<int64>"),
    "scores": FieldSpec("list<float64>"),
    "age": FieldSpec("float32"),
    "label": FieldSpec("float32"),
}


@pytest.fixture
def in_a_hurry() -> Iterator[None]:
    """For tests whose programs run once, and that compare no bits."""
    with hurried():
        yield


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """The folder with graph, examples and model, and the trained params."""
    folder = tmp_path_factory.mktemp("bags")
    pq.write_table(rows(1200, 0), folder / "raw.parquet", row_group_size=400)
    source = data.open_parquet([folder / "raw.parquet"])
    analyze(preprocess, source, data.executor("local")).save(folder / "graph")
    apply(folder / "graph", {"train": source}, folder / "examples", data.executor("local"))
    run = TrainingRun(SPECS, folder / "examples", epochs=5, batch_size=60, eval_split=None)
    trained = run.fit(
        Model(init, model),
        loss=lambda logits, batch: optax.sigmoid_binary_cross_entropy(logits, batch["label"]).mean(),
        predict=predict,
        optimizer=optax.adam(0.05),
        label="label",
    )
    assert trained.history[-1].loss < 0.8 * trained.history[0].loss
    export_model(folder / "graph", model, trained.params, predict, label="label", out=folder / "model")
    return folder, trained.params


def wanted(params: Any, table: pa.Table) -> np.ndarray:
    """The model row by row in numpy, in double precision."""
    found = []
    for row in table.to_pylist():
        bag = [np.asarray(params["table"], float)[tag] for tag in row["tags"] or ()]
        pooled = np.mean(bag, axis=0) if bag else np.zeros(4)
        scores = row["scores"]
        extra = 0.1 * max(scores) + 1 if scores else 0.0
        logit = pooled @ params["out"] + params["age"] * (row["age"] or 0.0) + 0.01 * extra
        found.append(1 / (1 + np.exp(-logit)))
    return np.array(found)


FRESH = """
import sys, pyarrow.parquet as pq, numpy as np
from drivetrain.engine import Bundle
bundle, table = Bundle.load(sys.argv[1]), pq.read_table(sys.argv[2])
(batch,) = table.combine_chunks().to_batches()
one = [bundle.run_row("predict", row)["probability"] for row in table.to_pylist()[:60]]
np.savez(sys.argv[3], batch=bundle.run("predict", batch)["probability"], rows=one)
"""


def test_batches_rows_a_fresh_process_and_numpy_agree(made: tuple[Path, Any], tmp_path: Path) -> None:
    folder, params = made
    table = rows(9000, 1)  # more than a chunk of 8,192
    (batch,) = table.combine_chunks().to_batches()
    here = Bundle.load(folder / "model").run("predict", batch)["probability"]
    np.testing.assert_allclose(here, wanted(params, table), atol=1e-6)
    pq.write_table(table, tmp_path / "table.parquet")
    arguments = [str(folder / "model"), str(tmp_path / "table.parquet"), str(tmp_path / "out.npz")]
    subprocess.run([sys.executable, "-c", FRESH, *arguments], check=True, cwd=tmp_path, timeout=200, env=os.environ)
    with np.load(tmp_path / "out.npz") as file:
        found = dict(file)
    assert_same(found["batch"], here)
    np.testing.assert_allclose(found["rows"], here[:60], atol=1e-6)
    # and the function that was trained, on what the loader would give of the same rows
    features = {
        "tags": ragged.from_arrow(table["tags"]),
        "scores": ragged.from_arrow(table["scores"]),
        "age": np.nan_to_num(table["age"].to_numpy(zero_copy_only=False)).astype(np.float32),
    }
    trained = jax.jit(lambda p, f: predict(model(p, f)))(params, features)
    np.testing.assert_allclose(here, trained["probability"], atol=1e-6)


def test_a_rows_result_does_not_depend_on_its_batch(made: tuple[Path, Any]) -> None:
    bundle = Bundle.load(made[0] / "model")
    (batch,) = rows(9000, 2).combine_chunks().to_batches()
    whole = bundle.run("predict", batch)["probability"]
    for start, size in ((0, 1), (5, 7), (8100, 511), (17, 513), (8190, 4), (0, 0)):
        part = bundle.run("predict", batch.slice(start, size))["probability"]
        assert_same(part, whole[start : start + size])


@pytest.mark.usefixtures("in_a_hurry")
def test_the_signature_and_extremes(made: tuple[Path, Any]) -> None:
    folder, params = made
    bundle = Bundle.load(folder / "model")
    assert bundle.signatures["predict"].inputs["tags"] == FieldSpec("list<int64>")
    assert set(bundle.signatures["predict"].inputs) == {"tags", "scores", "age"}
    assert "n1" in (folder / "model" / "graph.json").read_text()
    empty = pa.table({"tags": [[]] * 3, "scores": [[]] * 3, "age": [0.0] * 3}).cast(rows(1, 0).drop(["label"]).schema)
    (batch,) = empty.to_batches()
    np.testing.assert_allclose(bundle.run("predict", batch)["probability"], [0.5] * 3)
    alone = bundle.run_row("predict", {"tags": None, "scores": [], "age": 0.0})
    np.testing.assert_allclose(np.asarray(alone["probability"]), 0.5)
    for count in (511, 512, 513):  # the smallest bucket of a batch holds 512
        table = pa.table({"tags": [[1] * count, [2]], "scores": [[], [0.5]], "age": [0.0, 1.0]})
        (batch,) = table.to_batches()
        np.testing.assert_allclose(bundle.run("predict", batch)["probability"], wanted(params, table), atol=1e-6)
        row_outputs = bundle.run_row("predict", {"tags": [1] * count, "scores": [], "age": 0.0})
        np.testing.assert_allclose(np.asarray(row_outputs["probability"]), wanted(params, table)[0], atol=1e-6)


def test_what_a_request_may_not_hold(made: tuple[Path, Any]) -> None:
    bundle = Bundle.load(made[0] / "model")
    with pytest.raises(InputError, match=r"'tags' has 1099511627776 in row 1.*int32"):
        bundle.run("predict", pa.record_batch({"tags": [[1], [2**40]], "scores": [[], []], "age": [0.0, 0.0]}))
    with pytest.raises(InputError, match=r"'tags' has 1099511627776, .*int32"):
        bundle.run_row("predict", {"tags": [2**40], "scores": [], "age": 0.0})
    with pytest.raises(InputError, match="column 'tags'"):
        bundle.run("predict", pa.record_batch({"tags": [1, 2], "scores": [[], []], "age": [0.0, 0.0]}))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.none() | st.lists(st.integers(-(2**31), 2**31 - 1), max_size=5), max_size=6))
def test_flat_kernels_batch_and_row_agree(lists: list[list[int] | None]) -> None:
    params = {"dtype": "int32", "column": "x"}
    values, lengths = host_op("flatten").batch(params, ())(pa.array(lists, pa.list_(pa.int64())))
    assert values.dtype == lengths.dtype == np.int32
    assert values.tolist() == [value for row in lists for value in row or ()]
    assert lengths.tolist() == [len(row or ()) for row in lists]
    back = host_op("unflatten").batch({"dtype": "list<int64>"}, ())(lengths, values)
    assert back.to_pylist() == [row or [] for row in lists]
    assert back.type == pa.list_(pa.int64())
    for row in lists:
        one, length = host_op("flatten").row(params, ())(row)
        assert (one.tolist(), int(length)) == (row or [], len(row or ()))
        assert host_op("unflatten").row({"dtype": "list<int64>"}, ())(length, one) == (row or [])


def pooled(columns: ops.Columns) -> ops.Columns:
    clicks = ops.to_ragged(columns["clicks"])
    minutes = ops.to_ragged(columns["minutes"])
    average = ragged.mean(minutes)
    return {
        "count": clicks.lengths,
        "unlike": ragged.sum(clicks * clicks),
        "average": average,
        "standing": (average - ops.mean(average)) / ops.std(average),  # an analyzer over what was pooled
        "shares": ragged.softmax(minutes),  # a list column again
        "doubled": ops.to_ragged(columns["clicks"]) * 2,
        "label": ops.fill_missing(columns["label"], 0.0),
    }


def clicks(count: int, seed: int) -> pa.Table:
    random = np.random.default_rng(seed)
    lengths = random.integers(0, 5, count)
    return pa.table(
        {
            "clicks": pa.array(
                [random.integers(-9, 9, n).tolist() if n else [None, []][k % 2] for k, n in enumerate(lengths)],
                pa.list_(pa.int64()),
            ),
            "minutes": pa.array([random.normal(size=9 - 2 * n).tolist() for n in lengths], pa.list_(pa.float64())),
            "label": random.integers(0, 2, count).astype(float),
        }
    )


@pytest.mark.usefixtures("in_a_hurry")
def test_lists_on_the_device_inside_preprocess(tmp_path: Path) -> None:
    table = clicks(9000, 0)
    pq.write_table(table, tmp_path / "raw.parquet", row_group_size=2000)
    source = data.open_parquet([tmp_path / "raw.parquet"])
    analyze(pooled, source, data.executor("local")).save(tmp_path / "graph")
    bundle = Bundle.load(tmp_path / "graph")
    assert bundle.signatures["transform"].outputs["shares"] == FieldSpec("list<float64>")
    (batch,) = table.combine_chunks().to_batches()
    outputs = bundle.run("transform", batch)
    raw = table.to_pylist()
    averages = np.array([np.mean(row["minutes"]) for row in raw])
    np.testing.assert_array_equal(outputs["count"], [len(row["clicks"] or ()) for row in raw])
    np.testing.assert_array_equal(outputs["unlike"], [sum(c * c for c in row["clicks"] or ()) for row in raw])
    np.testing.assert_allclose(outputs["average"], averages, atol=1e-6)
    np.testing.assert_allclose(outputs["standing"], (averages - averages.mean()) / averages.std(), atol=1e-5)
    assert [list(row) for row in outputs["doubled"]] == [[2 * c for c in row["clicks"] or ()] for row in raw]
    for shares, row in zip(outputs["shares"][:300], raw, strict=False):
        each = np.exp(row["minutes"])
        np.testing.assert_allclose(shares, each / each.sum(), atol=1e-6)
    for place in (0, 1, 8999):
        row_outputs = bundle.run_row("transform", raw[place])
        for name, value in row_outputs.items():
            np.testing.assert_allclose(np.asarray(value), np.asarray(outputs[name][place]), atol=1e-6)

    # and on: the pooled arrays and the lists that preprocess gave are features of a model, one program in all
    apply(tmp_path / "graph", {"train": source}, tmp_path / "examples", data.executor("local"))
    stored = data.open_examples(tmp_path / "examples", "train")
    assert stored.schema.field("shares").type.value_type == pa.float64()

    def served(params: Any, features: Any) -> Any:
        return features["average"] + params * ragged.max(features["shares"], empty=0) + ragged.sum(features["doubled"])

    export_model(tmp_path / "graph", served, np.float32(3), lambda out: {"out": out}, label="label", out=tmp_path / "m")
    wanted = averages + [
        3 * max(s) + 2 * sum(row["clicks"] or ()) for s, row in zip(outputs["shares"], raw, strict=True)
    ]
    model_bundle = Bundle.load(tmp_path / "m")
    np.testing.assert_allclose(model_bundle.run("predict", batch)["out"], wanted, atol=1e-5)
    np.testing.assert_allclose(np.asarray(model_bundle.run_row("predict", raw[7])["out"]), wanted[7], atol=1e-5)

    # a model that needs one list takes no other, though one program of the transform computes on both
    counted = tmp_path / "counted"
    export_model(
        tmp_path / "graph",
        lambda p, f: f["count"] + p,
        np.float32(1),
        lambda out: {"out": out},
        label="label",
        out=counted,
    )
    assert set(Bundle.load(counted).signatures["predict"].inputs) == {"clicks"}
    lengths = Bundle.load(counted).run("predict", batch.select(["clicks"]))["out"]
    np.testing.assert_array_equal(lengths, outputs["count"] + 1)


@pytest.mark.parametrize(
    ("fn", "message"),
    [
        (lambda c: {"x": ops.to_ragged(c["label"])}, "'label' is float32, no list of numbers"),
        (lambda c: {"x": ops.to_ragged(c["words"])}, "'words' is list<string>, no list of numbers"),
        (lambda c: {"x": ops.to_ragged(c["clicks"]) > 1}, "output 'x' is Ragged.*not a list column"),
    ],
)
def test_what_preprocess_may_not_do(tmp_path: Path, fn: Any, message: str) -> None:
    table = clicks(10, 0).append_column("words", pa.array([["a"]] * 10))
    pq.write_table(table, tmp_path / "raw.parquet")
    with pytest.raises(InputError, match=message) as caught:
        analyze(fn, data.open_parquet([tmp_path / "raw.parquet"]), data.executor("local"))
    assert caught.value.where is not None
    assert "test_served.py" in caught.value.where


@pytest.mark.usefixtures("in_a_hurry")
def test_a_model_may_need_the_lengths_alone(made: tuple[Path, Any], tmp_path: Path) -> None:
    def lengths_and_age(params: Any, features: Any) -> Any:
        return {"lengths": features["tags"].lengths * 1.0, "age": features["age"] + params}

    path = tmp_path / "model"
    export_model(made[0] / "graph", lengths_and_age, np.float32(1), lambda out: out, label="label", out=path)
    bundle = Bundle.load(path)
    assert set(bundle.signatures["predict"].inputs) == {"tags", "age"}
    table = pa.table({"tags": [[1] * 700, [], [2]], "age": [0.0, 1.0, None]})
    (batch,) = table.to_batches()
    np.testing.assert_array_equal(bundle.run("predict", batch)["lengths"], [700, 0, 1])
    np.testing.assert_array_equal(bundle.run("predict", batch)["age"], [1, 2, 1])
    assert bundle.run_row("predict", {"tags": [1] * 40, "age": 0.0}) == {"lengths": 40.0, "age": 1.0}


def dropped(clicks: Any) -> Any:
    """The values above 2 alone, in the same capacity."""
    return ragged.Ragged(clicks.values, jnp.where(clicks.values > 2, clicks.segment_ids, clicks.rows), clicks.rows)


@pytest.mark.usefixtures("in_a_hurry")
def test_lists_that_lost_values_on_the_device_are_refused_not_mixed_up(tmp_path: Path) -> None:
    table = pa.table({"clicks": [[1.0, 3.0], [4.0], []], "label": [0.0, 1.0, 0.0]})
    (batch,) = table.to_batches()
    lists = lambda c: {"kept": dropped(ops.to_ragged(c["clicks"]))}  # noqa: E731
    columns = lambda c: {"clicks": c["clicks"], "label": c["label"]}  # noqa: E731
    analyzed = analyze(lists, data.source_of(table), data.executor("local"), schema=table.schema)
    analyze(columns, data.source_of(table), data.executor("local"), schema=table.schema).save(tmp_path / "graph")
    model = export_model(
        tmp_path / "graph",
        lambda params, features: dropped(features["clicks"]) * params,
        np.float32(1),
        lambda kept: {"kept": kept},
        label="label",
        out=tmp_path / "model",
    )
    for bundle, name in ((analyzed, "transform"), (model, "predict")):
        with pytest.raises(InputError, match="output 'kept': its rows have 2 of the 3 values"):
            bundle.run(name, batch)
        with pytest.raises(InputError, match="output 'kept': its rows have 1 of the 2 values"):
            bundle.run_row(name, {"clicks": [1.0, 3.0], "label": 0.0})
        assert bundle.run_row(name, {"clicks": [3.0, 5.0], "label": 0.0})["kept"] == [3.0, 5.0]


def test_a_stage_that_reads_values_of_no_list_is_refused(made: tuple[Path, Any], tmp_path: Path) -> None:
    shutil.copytree(made[0] / "model", tmp_path / "model")
    graph = (tmp_path / "model" / "graph.json").read_text()
    assert graph.count('"op":"flatten"') == 2
    (tmp_path / "model" / "graph.json").write_text(
        graph.replace('"tags/values","shape":["n1"]', '"tags/values","shape":["n7"]')
    )
    reseal(tmp_path / "model")
    with pytest.raises(InputError, match="reads 'tags/values', and no list tells how long n1 is"):
        Bundle.load(tmp_path / "model").run_row("predict", {"tags": [1], "scores": [], "age": 0.0})
    (tmp_path / "model" / "graph.json").write_text(graph.replace('["n1"]', '["n 1; x"]'))
    reseal(tmp_path / "model")
    with pytest.raises(InputError, match="this is not a graph"):
        Bundle.load(tmp_path / "model")


WORDS = np.array([f"w{number}" for number in range(30)])


def by_vocabulary(columns: ops.Columns) -> ops.Columns:
    return {
        "tags": ops.vocabulary(columns["tags"], oov_buckets=2),
        "label": ops.fill_missing(columns["label"], 0.0),
    }


def worded(count: int, seed: int, words: np.ndarray) -> pa.Table:
    random = np.random.default_rng(seed)
    tags = [random.choice(words, n).tolist() if n else None for n in random.integers(0, 6, count)]
    label = [float(2 * sum(int(tag[1:]) < 15 for tag in row or ()) > len(row or ())) for row in tags]
    return pa.table({"tags": pa.array(tags, pa.list_(pa.string())), "label": label})


@pytest.mark.usefixtures("in_a_hurry")
def test_words_to_ids_to_bags_to_predictions(tmp_path: Path) -> None:
    """A list column of tags, a vocabulary over its values, an embedding bag trained on the ids, and served."""
    from drivetrain.components.trainer import device_features

    pq.write_table(worded(2000, 0, WORDS), tmp_path / "raw.parquet")
    source = data.open_parquet([tmp_path / "raw.parquet"])
    graph = analyze(by_vocabulary, source, data.executor("local"))
    graph.save(tmp_path / "graph")
    apply(tmp_path / "graph", {"train": source}, tmp_path / "examples", data.executor("local"))
    features = device_features(tmp_path / "graph", lambda note: pytest.fail(note))
    assert features["tags"] == FieldSpec("list<int64>", (), 32)  # 30 words and 2 for unknown ones
    size = features["tags"].size
    assert size is not None

    def scores(params: Any, given: Any) -> Any:
        return ragged.embedding_bag(params["table"], given["tags"], combiner="sqrtn")[:, 0] + params["bias"]

    trained = TrainingRun(features, tmp_path / "examples", epochs=8, batch_size=100, eval_split=None).fit(
        Model(lambda key: {"table": jnp.zeros((size, 1)), "bias": jnp.zeros(())}, scores),
        loss=lambda logits, batch: optax.sigmoid_binary_cross_entropy(logits, batch["label"]).mean(),
        predict=predict,
        optimizer=optax.adam(0.05),
        label="label",
    )
    export_model(tmp_path / "graph", scores, trained.params, predict, label="label", out=tmp_path / "model")
    bundle = Bundle.load(tmp_path / "model")
    unseen = worded(700, 1, np.append(WORDS, ["w30", "w31"]))
    (batch,) = unseen.combine_chunks().to_batches()
    found = bundle.run("predict", batch)["probability"]
    assert ((found > 0.5) == unseen["label"].to_numpy()).mean() > 0.9
    ids = dict(zip(graph.payload.assets["vocabulary.tags"]["value"].to_pylist(), range(30), strict=True))
    table_, bias = np.asarray(trained.params["table"], float)[:, 0], float(trained.params["bias"])
    for place, row in enumerate(unseen.to_pylist()[:200]):
        tags = row["tags"] or []
        if set(tags) <= ids.keys():
            logit = sum(table_[ids[tag]] for tag in tags) / np.sqrt(max(1, len(tags))) + bias
            np.testing.assert_allclose(found[place], 1 / (1 + np.exp(-logit)), atol=1e-6)
        row_outputs = bundle.run_row("predict", {"tags": row["tags"]})
        np.testing.assert_allclose(np.asarray(row_outputs["probability"]), found[place], atol=1e-6)


@pytest.mark.usefixtures("in_a_hurry")
def test_serving_compiles_once_per_bucket(made: tuple[Path, Any], caplog: pytest.LogCaptureFixture) -> None:
    bundle = Bundle.load(made[0] / "model")
    with jax.log_compiles(), caplog.at_level(logging.WARNING):
        for count in range(1, 601):
            bundle.run_row("predict", {"tags": [1] * count, "scores": [], "age": 0.0})
    compiled = [record for record in caplog.records if "Finished XLA compilation" in record.message]
    assert 3 <= len(compiled) <= np.log2(600)
