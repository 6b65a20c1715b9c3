"""A list column of tags from examples to an evaluation, through the standard components as plain calls."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from drivetrain import data
from drivetrain.components import Evaluator, SchemaGen, StatisticsGen, Trainer, Transform
from drivetrain.components.evaluation import EvaluationConfig
from drivetrain.engine import Bundle, Model, TrainingRun, ops, ragged
from drivetrain.metadata import Examples
from drivetrain.pipelines import FunctionRef
from sklearn.metrics import roc_auc_score

pytestmark = [pytest.mark.engine, pytest.mark.slow]

judged = EvaluationConfig(label="label", prediction="probability")


def preprocess(columns: ops.Columns) -> ops.Columns:
    return {
        "tags": ops.vocabulary(columns["tags"]),
        "spread": ragged.max(ops.to_ragged(columns["minutes"]), empty=0),
        "label": ops.fill_missing(columns["label"], 0.0),
    }


def train(run: TrainingRun) -> Any:
    size = run.features["tags"].size
    assert size is not None
    return run.fit(
        Model(
            lambda key: {"table": jnp.zeros((size, 1)), "slope": jnp.zeros(())},
            lambda p, f: ragged.embedding_bag(p["table"], cast(Any, f["tags"]))[:, 0] + p["slope"] * f["spread"],
        ),
        loss=lambda logits, batch: optax.sigmoid_binary_cross_entropy(logits, batch["label"]).mean(),
        predict=lambda logits: {"probability": jax.nn.sigmoid(logits)},
        optimizer=optax.adam(0.1),
        label="label",
    )


def table(rows: int, seed: int) -> pa.Table:
    random = np.random.default_rng(seed)
    tags = [[f"w{k}" for k in random.integers(0, 30, n)] if n else None for n in random.integers(0, 6, rows)]
    minutes = [random.normal(size=n).tolist() for n in random.integers(0, 4, rows)]
    label = [float(2 * sum(int(tag[1:]) < 15 for tag in row or ()) > len(row or ())) for row in tags]
    return pa.table({"tags": tags, "minutes": minutes, "label": label})


def test_tags_from_examples_to_an_evaluation(tmp_path: Path) -> None:
    raw, manifests = Examples.new(span=1), []
    splits = {"train": table(1200, 0), "eval": table(300, 1)}
    for name, rows in splits.items():
        pq.write_table(rows, tmp_path / f"{name}.parquet")
        source = data.open_parquet([tmp_path / f"{name}.parquet"])
        manifests.append(data.LocalExecutor().map(source, None, data.sinks(raw.content, [name])))
    raw.rows = data.Manifest.joined(manifests).write(raw.content, span=1).rows

    examples, graph, *_ = Transform(raw, SchemaGen(StatisticsGen(raw)), fn=preprocess)
    model = Trainer(examples, graph, fn=train, epochs=6, batch_size=60)
    epochs = json.loads((model.extra / "history.json").read_text())["epochs"]
    assert epochs[-1]["eval_loss"] < 0.7 * epochs[0]["loss"]

    (batch,) = splits["eval"].combine_chunks().to_batches()
    found = Bundle.load(model.content).run("predict", batch)["probability"]
    auc = roc_auc_score(splits["eval"]["label"].to_numpy(), found)
    assert auc > 0.95
    evaluation = Evaluator(raw, model, config=FunctionRef(None, f"{__name__}:judged"))
    metrics = pq.read_table(evaluation.content / "metrics.parquet").to_pylist()
    (judged_auc,) = (row["value"] for row in metrics if row["metric"] == "auc")
    assert judged_auc == pytest.approx(auc, abs=1e-6)
