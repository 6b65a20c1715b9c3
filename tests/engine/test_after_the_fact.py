"""Transforms written after the engine, from its pages alone: each is analysed, applied, trained, exported and served.

What is served, in batches and row by row, is compared with features by Python, pandas and scikit-learn, put through the
trained parameters in NumPy.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from drivetrain import data
from drivetrain.engine import Bundle, Model, Trained, TrainingRun, analyze, apply, export_model, ops, ragged
from drivetrain.errors import InputError

jax = pytest.importorskip("jax")
jnp = pytest.importorskip("jax.numpy")
optax = pytest.importorskip("optax")
pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("compiled_in_a_hurry")]

Columns = Mapping[str, Any]


def whole_way(
    folder: Path, table: pa.Table, preprocess: Callable[[Columns], Columns], model: Model, epochs: int = 4
) -> tuple[Bundle, Trained, pa.Table]:
    """Analyse, apply, train on the label `label`, export; the model, what was trained, and the transformed rows."""
    pq.write_table(table, folder / "rows.parquet", row_group_size=97)
    source, executor = data.open_parquet([folder / "rows.parquet"]), data.executor("local")
    analyze(preprocess, source, executor).save(folder / "graph")
    graph = Bundle.load(folder / "graph")
    apply(folder / "graph", {"train": source}, folder / "examples", executor)
    run = TrainingRun(
        graph.signatures["transform"].outputs, folder / "examples", epochs=epochs, batch_size=32, eval_split=None
    )
    trained = run.fit(
        model,
        loss=lambda logits, batch: optax.sigmoid_binary_cross_entropy(logits, batch["label"]).mean(),
        predict=lambda logits: {"logit": logits},
        optimizer=optax.adam(0.05),
        label="label",
    )
    assert trained.history[-1].loss < trained.history[0].loss
    export_model(folder / "graph", trained.apply, trained.params, trained.predict, label="label", out=folder / "model")
    parts = sorted((folder / "examples").glob("*/*.parquet"))
    return Bundle.load(folder / "model"), trained, pa.concat_tables([pq.read_table(part) for part in parts])


def agree(bundle: Bundle, table: pa.Table, expected: np.ndarray) -> None:
    """What a batch gives and what each of its rows gives alone is what is expected."""
    (batch,) = table.combine_chunks().to_batches()
    np.testing.assert_allclose(bundle.run("predict", batch)["logit"], expected, rtol=1e-4, atol=1e-4)
    for row, wanted in zip(table.to_pylist(), expected, strict=True):
        np.testing.assert_allclose(
            np.asarray(bundle.run_row("predict", row)["logit"]).reshape(()), wanted, rtol=1e-4, atol=1e-4
        )


def linear(width: int) -> Model:
    """One weight for each number of the feature `x`."""

    def init(key: Any) -> Any:
        return {"w": 0.1 * jax.random.normal(key, (width,)), "b": jnp.zeros(())}

    return Model(init, lambda params, features: features["x"] @ params["w"] + params["b"])


def served(table: pa.Table) -> pa.Table:
    """The first rows without the label, and one of values that training never saw."""
    rows = table.drop(["label"]).slice(0, 40)
    strange: dict[str, Any] = {}
    for field in rows.schema:
        if pa.types.is_list(field.type):
            strange[field.name] = []
        elif pa.types.is_string(field.type):
            strange[field.name] = "2024-07-04T23:59" if field.name == "when" else "never seen"
        else:
            strange[field.name] = None
    return pa.concat_tables([rows, pa.Table.from_pylist([strange], schema=rows.schema)]).combine_chunks()


# Taxi: scaled within the company, buckets of its own distances, the clock out of an ISO time, and rows that must fail.


def taxi(columns: Columns) -> Columns:
    fare = ops.fill_missing(columns["fare"], ops.median(columns["fare"]))
    ops.check(columns["miles"] < 500.0, "no trip is that long")
    parts = {"month": (5, 7, 13), "hour": (11, 13, 24)}
    clock = [
        ops.one_hot(ops.fill_missing(ops.parse(ops.substr(columns["when"], start, stop), "int32", 0), 0), depth)
        for start, stop, depth in parts.values()
    ]
    numbers = jnp.stack([
        ops.z_score_per_key(jnp.log1p(fare), columns["company"]),
        ops.cast(ops.is_missing(columns["fare"]), "float32"),
        jnp.clip(columns["miles"], 0.0, 30.0) / 30.0,
        jnp.log1p(ops.cast(ops.count_per_key(columns["company"]), "float32")),
    ], axis=-1)  # fmt: skip
    within = ops.one_hot(ops.bucketize_per_key(columns["miles"], columns["company"], 4), 6)
    tipped = columns["tip"] > 0.2 * fare
    return {"x": jnp.concatenate([numbers, within, *clock], axis=-1), "label": ops.cast(tipped, "float32")}


def taxi_rows() -> pa.Table:
    rng = np.random.default_rng(7)
    rows = 400
    company = rng.choice(["blue", "green", "yellow"], rows, p=[0.2, 0.3, 0.5])
    fare = rng.lognormal(2.0 + 0.5 * (company == "blue"), 0.4)
    day, hour = rng.integers(1, 28, rows), rng.integers(0, 24, rows)
    return pa.table({
        "fare": pa.array(fare, mask=rng.random(rows) < 0.1),
        "miles": rng.gamma(2.0, 2.0, rows),
        "company": pa.array(company, mask=rng.random(rows) < 0.1),
        "when": [f"2024-{1 + d % 12:02}-{d:02}T{h:02}:15" for d, h in zip(day, hour, strict=True)],
        "tip": fare * np.where(hour > 17, 0.3, 0.1),
    })  # fmt: skip


def taxi_by_pandas(train: pd.DataFrame, rows: pd.DataFrame) -> np.ndarray:
    median = train["fare"].median()
    logs = {name: np.log1p(frame["fare"].fillna(median)) for name, frame in (("train", train), ("rows", rows))}
    groups = logs["train"].groupby(train["company"])
    mean, std = (rows["company"].map(values) for values in (groups.mean(), groups.std(ddof=0)))
    z = np.where(mean.isna(), logs["rows"], (logs["rows"] - mean) / std)
    buckets = []
    for company, miles in zip(rows["company"], rows["miles"], strict=True):
        known = np.sort(train["miles"][train["company"] == company].to_numpy(np.float32))
        edges = [known[place * len(known) // 4] for place in (1, 2, 3)] if len(known) else []
        buckets.append(int(np.searchsorted(edges, np.float32(miles), "right")) if len(known) else 5)
    count = rows["company"].map(train["company"].value_counts()).fillna(0)
    numbers = np.stack([z, rows["fare"].isna(), rows["miles"].clip(0, 30) / 30, np.log1p(count)], axis=-1)
    month, hour = rows["when"].str[5:7].astype(int), rows["when"].str[11:13].astype(int)
    return np.concatenate([numbers, np.eye(6)[buckets], np.eye(13)[month], np.eye(24)[hour]], axis=-1).astype(float)


@pytest.mark.slow
def test_trips_scaled_per_company(tmp_path: Path) -> None:
    table = taxi_rows()
    bundle, trained, made = whole_way(tmp_path, table, taxi, linear(47))
    train = table.to_pandas()
    label = train["tip"] > 0.2 * train["fare"].fillna(train["fare"].median())
    np.testing.assert_array_equal(made["label"], label)
    rows = served(table.rename_columns(["fare", "miles", "company", "when", "label"]))
    rows = rows.set_column(1, "miles", pa.array([*rows["miles"].to_pylist()[:-1], 2.5]))
    agree(bundle, rows, taxi_by_pandas(train, rows.to_pandas()) @ trained.params["w"] + trained.params["b"])


def test_a_trip_that_is_too_long_fails_alone(tmp_path: Path) -> None:
    table = taxi_rows()
    bundle, *_ = whole_way(tmp_path, table, taxi, linear(47))
    rows = table.drop(["tip"]).slice(0, 5).to_pylist()
    rows[3]["miles"] = 5000.0
    with pytest.raises(InputError, match="no trip is that long"):
        bundle.run_row("predict", rows[3])
    with pytest.raises(InputError, match=r"(?s)no trip is that long.*row 3|row 3.*no trip is that long"):
        bundle.run("predict", pa.RecordBatch.from_pylist(rows, schema=table.drop(["tip"]).schema))
    del rows[3]["company"], rows[3]["miles"]
    with pytest.raises(InputError, match=r"company|miles"):
        bundle.run_row("predict", rows[3])


# Text: pairs of words and triples of letters, hashed; what the text looks like.


def letters(columns: Columns) -> Columns:
    text = ops.fill_missing(ops.lower(ops.strip(columns["text"])), "")
    pairs = ops.hash_buckets(ops.bag_of_words(ops.split(text), (1, 2), "_"), 64)
    triples = ops.hash_buckets(ops.ngrams(ops.split(text, regex=""), (3, 3), ""), 32, key=(11, 12))
    looks = jnp.stack([
        jnp.log1p(ops.cast(ops.length(text), "float32")),
        ops.cast(ops.regex_contains(columns["text"], r"[!?]$"), "float32"),
        ops.cast(ops.is_missing(ops.length(columns["text"])), "float32"),
    ], axis=-1)  # fmt: skip
    looks = jnp.where(jnp.isnan(looks), 0.0, looks)
    return {
        "x": jnp.concatenate([ops.multi_hot(pairs, 65), ops.multi_hot(triples, 33), looks], axis=-1),
        "label": ops.cast(columns["label"], "float32"),
    }


def texts() -> pa.Table:
    rng = np.random.default_rng(3)
    good, bad, other = (
        ["great fun", "LOVED it", "so good"],
        ["dull mess", "awful plot"],
        ["the film", "Zoë", "1999", ""],
    )
    rows = []
    for _ in range(300):
        mood = int(rng.integers(2))
        words = [*rng.choice(other, rng.integers(0, 4)), str(rng.choice(good if mood else bad))]
        rng.shuffle(words)
        text = "  ".join(words) + str(rng.choice(["", "!", " ?"]))
        rows.append({"text": None if rng.random() < 0.05 else text, "label": mood})
    return pa.Table.from_pylist(rows)


@pytest.mark.slow
def test_hashed_pairs_of_words_and_triples_of_letters(tmp_path: Path) -> None:
    """The hashes themselves are TFT's in other tests; here each n-gram's place is asked for by itself."""
    table = texts()
    bundle, trained, _ = whole_way(tmp_path, table, letters, linear(101))
    rows = served(table)
    grams: list[tuple[list[str], list[str]]] = []
    for text in rows["text"].to_pylist():
        tidy = (text or "").strip().lower()
        words = tidy.split()
        pairs = [*words, *(f"{a}_{b}" for a, b in pairwise(words))]
        grams.append((pairs, [tidy[i : i + 3] for i in range(len(tidy) - 2)]))
    words = sorted({gram for two in grams for some in two for gram in some})
    asked = analyze(
        lambda c: {"a": ops.hash_buckets(c["gram"], 64), "b": ops.hash_buckets(c["gram"], 32, key=(11, 12))},
        data.source_of(pa.table({"gram": words})),
        data.executor("local"),
    )
    answer = asked.run("transform", pa.RecordBatch.from_pydict({"gram": words}))
    places = {word: (int(answer["a"][i]), int(answer["b"][i])) for i, word in enumerate(words)}
    assert len({a for a, _ in places.values()}) > 20
    expected = np.zeros((len(grams), 101))
    for row, (text, (pairs, triples)) in enumerate(zip(rows["text"].to_pylist(), grams, strict=True)):
        expected[row, [places[gram][0] for gram in pairs]] = 1
        expected[row, [65 + places[gram][1] for gram in triples]] = 1
        tidy = (text or "").strip().lower()
        expected[row, 98:] = [np.log1p(len(tidy)), bool(re.search(r"[!?]$", text or "")), text is None]
    agree(bundle, rows, expected @ trained.params["w"] + trained.params["b"])


# Tags: a bag of embedded words with the largest of them, and minutes pooled before the model.


def basket(columns: Columns) -> Columns:
    minutes = ops.to_ragged(columns["minutes"])
    return {
        "tags": ops.vocabulary(ops.deduplicate(ops.lower(columns["tags"])), top_k=5, oov_buckets=1),
        "pause": jnp.stack([jnp.log1p(ragged.mean(minutes)), ragged.max(minutes, empty=0)], axis=-1) / 10.0,
        "label": ops.cast(columns["label"], "float32"),
    }


def baskets() -> pa.Table:
    rng = np.random.default_rng(5)
    names, weights = ["Tea", "milk", "Rice", "SALT", "salt", "figs", "leek", "rare"], [1.5, 0, -1, 2, 2, -2, 0.5, 0]
    rows = []
    for _ in range(300):
        chosen = rng.integers(0, len(names), rng.integers(0, 6))
        minutes = rng.gamma(2.0, 3.0, rng.integers(0, 9)).tolist()
        rows.append({
            "tags": None if rng.random() < 0.05 else [names[i] for i in chosen],
            "minutes": None if rng.random() < 0.05 else minutes,
            "label": int(sum(weights[i] for i in chosen) > 0.3),
        })  # fmt: skip
    return pa.Table.from_pylist(rows)


def bag_model() -> Model:
    def init(key: Any) -> Any:
        table, out = jax.random.split(key)
        return {"table": 0.3 * jax.random.normal(table, (7, 4)), "out": 0.3 * jax.random.normal(out, (10,))}

    def run(params: Any, features: Any) -> Any:
        bag = ragged.embedding_bag(params["table"], features["tags"], combiner="sqrtn")
        top = ragged.embedding_bag(params["table"], features["tags"], combiner="max")
        return jnp.concatenate([bag, top, features["pause"]], axis=-1) @ params["out"]

    return Model(init, run)


def baskets_by_python(train: list[Any], rows: list[Any], params: Mapping[str, np.ndarray]) -> np.ndarray:
    counts = Counter(tag for row in train for tag in {tag.lower() for tag in row["tags"] or []})
    kept = [word for _, word in sorted(((n, word) for word, n in counts.items()), reverse=True)][:5]
    assert len(counts) == 7
    logits = []
    for row in rows:
        tags = list(dict.fromkeys(tag.lower() for tag in row["tags"] or []))
        ids = [kept.index(tag) if tag in kept else 5 for tag in tags]
        vectors = params["table"][ids] if ids else np.zeros((1, 4))
        minutes = row["minutes"] or [0.0]
        pause = np.array([np.log1p(np.mean(minutes)), np.max(minutes)]) / 10.0
        bag = vectors.sum(axis=0) / np.sqrt(max(len(ids), 1))
        logits.append(np.concatenate([bag, vectors.max(axis=0), pause]) @ params["out"])
    return np.array(logits)


ALONE = """
import json, sys
import numpy as np
from drivetrain.engine import Bundle
bundle = Bundle.load(sys.argv[1])
print(json.dumps([float(np.ravel(bundle.run_row("predict", row)["logit"])[0]) for row in json.load(sys.stdin)]))
"""


@pytest.mark.slow
def test_bags_of_tags_are_served_in_a_process_alone(tmp_path: Path) -> None:
    table = baskets()
    bundle, trained, _ = whole_way(tmp_path, table, basket, bag_model())
    rows = served(table)
    rows = pa.concat_tables([rows, pa.Table.from_pylist([{"tags": ["never", "seen", "Tea"]}], schema=rows.schema)])
    expected = baskets_by_python(table.to_pylist(), rows.to_pylist(), trained.params)
    agree(bundle, rows, expected)
    command = [sys.executable, "-c", ALONE, str(tmp_path / "model")]
    given = json.dumps(rows.to_pylist())
    out = subprocess.run(command, input=given, capture_output=True, text=True, check=True, cwd=tmp_path, timeout=120)
    np.testing.assert_allclose(json.loads(out.stdout), expected, rtol=1e-4, atol=1e-4)


# Words with their tf-idf weights, in a bag before the model and in one inside of it.


def weighed(columns: Columns) -> Columns:
    ids, weights = ops.tfidf(ops.vocabulary(columns["tags"], top_k=5, oov_buckets=1), 6)
    bag = ragged.embedding_bag(jnp.eye(6), ops.to_ragged(ids), ops.to_ragged(weights), "sum")
    return {"weights": weights, "bag": bag, "ids": ids, "label": ops.cast(columns["label"], "float32")}


def weighed_model() -> Model:
    def init(key: Any) -> Any:
        return {"table": 0.3 * jax.random.normal(key, (6, 3)), "out": jnp.ones((9,))}

    def run(params: Any, features: Any) -> Any:
        ids, weights = features["ids"], features["weights"]
        words = ragged.embedding_bag(params["table"], ids, weights, "mean")
        scaled = ragged.embedding_bag(params["table"], ids, weights * 2.0)
        return jnp.concatenate([words + 0 * scaled, features["bag"]], axis=-1) @ params["out"]

    return Model(init, run)


@pytest.mark.slow
def test_ids_and_their_weights_meet_in_a_bag(tmp_path: Path) -> None:
    table = baskets().drop(["minutes"])
    bundle, trained, _ = whole_way(tmp_path, table, weighed, weighed_model())
    lists = [row["tags"] for row in table.to_pylist()]
    counts = Counter(tag for tags in lists for tag in tags or [])
    kept = [word for _, word in sorted(((n, word) for word, n in counts.items()), reverse=True)][:5]

    def bag_of(tags: list[str] | None) -> np.ndarray:
        return np.bincount([kept.index(tag) if tag in kept else 5 for tag in tags or []], minlength=6)

    there = np.array([bag_of(tags) > 0 for tags in lists if tags is not None])
    idf = 1 + np.log((len(there) + 1) / (there.sum(axis=0) + 1))
    rows = served(table)
    bags = np.array([bag_of(tags) / max(len(tags or []), 1) * idf for tags in rows["tags"].to_pylist()])
    words = bags @ trained.params["table"] / np.maximum(bags.sum(axis=1, keepdims=True), 1e-9)
    expected = np.concatenate([words, bags], axis=-1) @ trained.params["out"]
    agree(bundle, rows, expected)
    many = pa.concat_tables([rows] * 250).combine_chunks()  # in more than one chunk
    (batch,) = many.to_batches()
    np.testing.assert_allclose(bundle.run("predict", batch)["logit"], np.tile(expected, 250), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("fn", "told"),
    [
        (lambda c: {"x": np.log1p(c["fare"])}, r"jnp\.log1p"),
        (lambda c: {"x": ops.one_hot(v := ops.vocabulary(c["company"]), ops.vocabulary_size(v))}, "top_k"),
        (lambda c: {"x": ops.one_hot(ops.vocabulary(c["company"]))}, "depth="),
        (
            lambda c: {"x": ops.one_hot(ops.vocabulary(c["company"], top_k=2, coverage_key=len))},
            "how many ids there are is not known",
        ),
        (
            lambda c: {"x": ops.one_hot(v := ops.vocabulary(c["company"]), ops.vocabulary_size(v) + 2)},
            r"features\[name",
        ),
        (lambda c: {"x": ops.where(c["fare"] > 1.0, "dear", c["miles"])}, r"other is 'miles', float32"),
        (lambda c: {"x": ops.where(c["fare"], "dear", "cheap")}, r"condition is float32"),
        (lambda c: {"x": c["fare"] if c["fare"] > 1.0 else 0.0}, r"ops\.where"),
        (lambda c: {"x": c["fair"]}, "did you mean 'fare'"),
        (lambda c: {"x": c["company"] + "!"}, "company.* is text"),
    ],
)
def test_what_a_newcomer_writes_first_is_answered_with_a_way_out(fn: Callable[[Columns], Columns], told: str) -> None:
    with pytest.raises(InputError) as caught:
        analyze(fn, data.source_of(taxi_rows()), data.executor("local"))
    assert re.search(told, str(caught.value)), str(caught.value)
    assert "test_after_the_fact.py" in str(caught.value)


def test_one_hot_is_as_deep_as_the_vocabulary_may_be_and_text_is_chosen(tmp_path: Path) -> None:
    table = taxi_rows().append_column("label", pa.array(np.arange(400.0) % 2))

    def chosen(c: Columns) -> Any:
        return ops.where(c["fare"] > 9.0, c["company"], ops.where(c["miles"] > 4.0, "far", "near"))

    def fn(c: Columns) -> Columns:
        named = chosen(c)
        learnt = ops.learn_vocabulary(c["company"], top_k=5, reserved=["red", "blue"])
        hot = {
            "top": ops.one_hot(ops.vocabulary(named, top_k=3, oov_buckets=2)),
            "few": ops.one_hot(ops.apply_vocabulary(named, learnt, oov_buckets=0)),
            "given": ops.one_hot(ops.apply_vocabulary(named, ["far", "near"])),
        }
        return {"x": jnp.concatenate([*hot.values()], axis=-1), **hot, "label": c["label"]}

    bundle, trained, made = whole_way(tmp_path, table, fn, linear(6 + 8 + 4))
    frame = table.to_pandas()
    named = frame["company"].where(frame["fare"] > 9.0, np.where(frame["miles"] > 4.0, "far", "near"))
    text = analyze(lambda c: {"named": chosen(c)}, data.source_of(table), data.executor("local"))
    (batch,) = table.combine_chunks().to_batches()
    assert text.run("transform", batch)["named"].tolist() == [w if isinstance(w, str) else None for w in named]
    assert named.isna().any()
    counts = sorted(((n, word) for word, n in named.value_counts().items()), reverse=True)
    assert len(counts) == 5
    top = [word for _, word in counts][:3]
    companies = sorted(((n, word) for word, n in frame["company"].value_counts().items()), reverse=True)
    few = ["red", "blue", *(word for _, word in companies if word != "blue")]
    given = ["far", "near"]
    found = {name: np.array(made[name].to_pylist()) for name in ("top", "few", "given")}
    assert {name: hot.shape[1] for name, hot in found.items()} == {"top": 6, "few": 8, "given": 4}
    for row, word in enumerate(named):
        missing = not isinstance(word, str)
        assert found["top"][row].sum() == 1
        places = [5] if missing else [top.index(word)] if word in top else [3, 4]
        assert found["top"][row].argmax() in places
        wanted = np.eye(8)[len(few) if missing else few.index(word)] if missing or word in few else np.zeros(8)
        np.testing.assert_array_equal(found["few"][row], wanted)
        place = 3 if missing else given.index(word) if word in given else 2
        np.testing.assert_array_equal(found["given"][row], np.eye(4)[place])
    x = np.array(made["x"].to_pylist())
    agree(
        bundle, table.drop(["label", "when", "tip"]).slice(0, 60), (x @ trained.params["w"])[:60] + trained.params["b"]
    )


def test_columns_that_are_treated_alike_keep_their_own_numbers(tmp_path: Path) -> None:
    """Equal programs are kept once; what was learnt of one column must not reach another's, in batches or rows."""
    rng = np.random.default_rng(1)
    columns = {name: rng.normal(at, 1.0 + abs(at), 300) for name, at in (("a", 0.0), ("b", 5.0), ("c", -3.0))}
    missing = {name: rng.random(300) < 0.2 for name in columns}
    table = pa.table({name: pa.array(values, mask=missing[name]) for name, values in columns.items()})
    table = table.append_column("label", pa.array((columns["a"] > 0).astype(float)))

    def alike(c: Columns) -> Columns:
        made = {n: ops.z_score(ops.fill_missing(c[n], ops.mean(c[n]))) for n in "abc"}
        return {"x": jnp.stack(list(made.values()), axis=-1), **made, "label": c["label"]}

    bundle, trained, _ = whole_way(tmp_path, table, alike, linear(3))
    filled = table.to_pandas()[list("abc")]
    filled = filled.fillna(filled.mean())
    z = ((filled - filled.mean()) / filled.std(ddof=0)).to_numpy()
    rows = table.drop(["label"])
    agree(bundle, rows.slice(0, 60), z[:60] @ trained.params["w"] + trained.params["b"])
    graph = Bundle.load(tmp_path / "graph")
    for place, row in enumerate(table.slice(0, 20).to_pylist()):
        outputs = graph.run_row("transform", row)
        np.testing.assert_allclose([float(np.asarray(outputs[n]).reshape(())) for n in "abc"], z[place], atol=1e-4)
