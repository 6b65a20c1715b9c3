"""The Evaluator on bundles of numbers and of several classes, with a baseline: against scikit-learn."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from drivetrain.components.evaluation import EvaluationConfig, Threshold, metric
from drivetrain.components.evaluator import Evaluator
from drivetrain.data import executor, open_examples, open_parquet, sinks
from drivetrain.metadata import Evaluation, Examples, Model, summary_of
from drivetrain.pipelines import FunctionRef
from sklearn import metrics as sk

pytestmark = pytest.mark.engine
ROWS = 600

of_numbers = EvaluationConfig(
    label="price", prediction="estimate", slices=[["kind"]],
    metrics=["rmse", "r2", metric("quantile_loss", quantile=0.9, name="q90"), "symmetric_prediction_difference"],
    thresholds=[Threshold("r2", lower=0.5), Threshold("rmse", change_relative=0.0)],
)  # fmt: skip
of_classes = EvaluationConfig(
    label="kind_id", prediction="probabilities", weight="weight",
    metrics=["accuracy", "macro_f1", "log_loss", metric("auc", class_id=1, name="auc of b"), "class_flip_rate"],
    thresholds=[Threshold("macro_f1", lower=0.3)],
)  # fmt: skip


def preprocess(columns: Mapping[str, Any]) -> dict[str, Any]:
    from drivetrain.engine import ops

    return {
        "size": columns["size"],
        "price": columns["price"],
        "kind_id": ops.vocabulary(columns["kind"], oov_buckets=0, default=0),
    }


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Examples:
    rng = np.random.default_rng(3)
    kind = rng.choice(["a", "b", "c"], ROWS, p=[0.5, 0.3, 0.2])
    size = rng.exponential(50, ROWS) + 40 * (kind == "b")
    table = pa.table(
        {"size": size, "price": 3 * size + rng.normal(0, 30, ROWS), "kind": kind, "weight": rng.random(ROWS)}
    )
    path = tmp_path_factory.mktemp("raw") / "raw.parquet"
    pq.write_table(table, path, row_group_size=250)
    made = Examples.new()
    executor("local").map(open_parquet([path]), None, sinks(made.content, ["eval"])).write(made.content)
    return made


@pytest.fixture(scope="module")
def graph(examples: Examples, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from drivetrain.engine import analyze

    folder = tmp_path_factory.mktemp("graph")
    analyze(preprocess, open_examples(examples.content, "eval"), executor("local")).save(folder)
    return folder


def model_of(graph: Path, label: str, predict: Callable[[Any], Mapping[str, Any]], slope: float) -> Model:
    from drivetrain.engine import export_model

    model = Model.new()
    export_model(
        graph,
        lambda params, features: params["slope"] * features["size"],
        {"slope": np.float32(slope)},
        predict,
        label=label,
        out=model.content,
    )
    return model


def values(evaluation: Evaluation) -> dict[str, dict[str, Any]]:
    rows = pq.read_table(evaluation.content / "metrics.parquet").to_pylist()
    return {row["metric"]: row for row in rows if row["slice"] == "overall"}


def raw(examples: Examples) -> Any:
    return pq.read_table(sorted((examples.content / "split=eval").glob("*.parquet"))).to_pandas()


def test_a_model_of_numbers(examples: Examples, graph: Path) -> None:
    better, worse = (model_of(graph, "price", lambda outputs: {"estimate": outputs}, slope) for slope in (2.9, 2.0))
    evaluation = Evaluator(examples, better, baseline=worse, config=FunctionRef(None, f"{__name__}:of_numbers"))
    frame, measured = raw(examples), values(evaluation)
    price, estimate, before = frame.price, 2.9 * frame["size"], 2.0 * frame["size"]
    assert measured["rmse"]["value"] == pytest.approx(sk.root_mean_squared_error(price, estimate), rel=1e-5)
    assert measured["rmse"]["baseline"] == pytest.approx(sk.root_mean_squared_error(price, before), rel=1e-5)
    assert measured["r2"]["value"] == pytest.approx(sk.r2_score(price, estimate), rel=1e-5)
    assert measured["q90"]["value"] == pytest.approx(sk.mean_pinball_loss(price, estimate, alpha=0.9), rel=1e-5)
    assert measured["symmetric_prediction_difference"]["value"] == pytest.approx(2 * 0.9 / 4.9, rel=1e-5)
    assert evaluation.blessed
    assert evaluation.summary.startswith("RMSE 3")
    assert summary_of(evaluation).columns[2:5] == ("rmse", "r2", "q90")
    page = (evaluation.extra / "report.html").read_text()
    assert "kind=b" in page
    assert "<h2>Residuals of the candidate</h2>" in page


def test_a_model_of_classes(examples: Examples, graph: Path) -> None:
    import jax

    def predict(outputs: Any) -> dict[str, Any]:
        scores = jax.numpy.stack([0 * outputs + 0.5, outputs / 100, -outputs / 100], axis=1)
        return {"probabilities": jax.nn.softmax(scores, axis=1)}

    model, other = (model_of(graph, "kind_id", predict, slope) for slope in (1.0, 0.2))
    evaluation = Evaluator(examples, model, baseline=other, config=FunctionRef(None, f"{__name__}:of_classes"))
    frame, measured = raw(examples), values(evaluation)
    # The vocabulary numbers words by how often they occur: a, b, c.
    label = frame.kind.map({"a": 0, "b": 1, "c": 2})
    scores = np.stack([np.full(ROWS, 0.5), frame["size"] / 100, -frame["size"] / 100], axis=1)
    score = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    called, weight = score.argmax(axis=1), frame.weight
    assert measured["accuracy"]["value"] == pytest.approx(sk.accuracy_score(label, called, sample_weight=weight))
    assert measured["macro_f1"]["value"] == pytest.approx(
        sk.f1_score(label, called, average="macro", sample_weight=weight)
    )
    assert measured["log_loss"]["value"] == pytest.approx(sk.log_loss(label, score, sample_weight=weight), rel=1e-5)
    assert measured["auc of b"]["value"] == pytest.approx(
        sk.roc_auc_score(label == 1, score[:, 1], sample_weight=weight), abs=1e-6
    )
    assert 0 < measured["class_flip_rate"]["value"] < 1
    assert measured["class_flip_rate"]["baseline_undefined"] == "no baseline to compare with"
    assert evaluation.summary.startswith("accuracy 0.")
    assert "<h2>Confusion of the candidate</h2>" in (evaluation.extra / "report.html").read_text()
