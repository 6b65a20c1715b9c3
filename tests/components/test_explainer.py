"""The Explainer on a real bundle, through JAX: which columns it finds, what it writes, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import drivetrain as dt
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from drivetrain import InputError
from drivetrain.components.evaluation import EvaluationConfig, Slice, Threshold
from drivetrain.components.explainer import Explainer
from drivetrain.components.explanation.explain import Effort
from drivetrain.data import executor, open_examples, open_parquet, sinks
from drivetrain.digest import digest_tree
from drivetrain.metadata import Examples, Model, summary_of
from drivetrain.pipelines import FunctionRef

pytestmark = pytest.mark.engine
ROWS = 1_200

judged = EvaluationConfig(
    label="late",
    prediction="probability",
    slices=[["carrier"], Slice("delay_bin", sql="dep_delay", bins=3)],
    metrics=["auc", "log_loss"],
    thresholds=[Threshold("auc", lower=0.8)],
    confidence="jackknife",
)
unknown = EvaluationConfig(label="late", prediction="probability", slices=[["tail"]])


def named(constant: str) -> FunctionRef:
    """A constant of this module, as a pipeline names it."""
    return FunctionRef(None, f"{__name__}:{constant}")


def preprocess(columns: Mapping[str, Any]) -> dict[str, Any]:
    from drivetrain.engine import ops

    return {
        "delay": ops.fill_missing(columns["dep_delay"], 0.0),
        "carrier": ops.vocabulary(columns["carrier"], oov_buckets=1),
        "month": ops.cast(columns["month"], "float32"),
        "late": ops.cast(ops.fill_missing(columns["arr_delay"], 0.0) > 15.0, "float32"),
    }


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Examples:
    dice = np.random.default_rng(11)
    delay = dice.exponential(20, ROWS) - 10
    carrier = dice.choice(["AA", "B6", "UA"], ROWS)
    arrival = delay + 10.0 * (carrier == "AA") + dice.normal(0, 8, ROWS)
    columns = {"dep_delay": delay, "arr_delay": arrival, "carrier": carrier, "month": dice.integers(1, 13, ROWS)}
    path = tmp_path_factory.mktemp("raw") / "raw.parquet"
    pq.write_table(pa.table(columns), path, row_group_size=500)
    judged_examples = Examples.new()
    executor("local").map(open_parquet([path]), None, sinks(judged_examples.content, ["eval"])).write(
        judged_examples.content
    )
    return judged_examples


@pytest.fixture(scope="module")
def model(examples: Examples, tmp_path_factory: pytest.TempPathFactory) -> Model:
    import jax
    from drivetrain.engine import analyze, export_model

    graph = tmp_path_factory.mktemp("graph")
    analyze(preprocess, open_examples(examples.content, "eval"), executor("local")).save(graph)
    trained = Model.new()
    export_model(
        graph,
        lambda params, features: (
            params["slope"] * (features["delay"] - 15.0) + params["bias"][features["carrier"]] + 0 * features["month"]
        ),
        {"slope": np.float32(0.2), "bias": np.array([2.0, 0.0, 0.0, 0.0], dtype=np.float32)},
        lambda logits: {"probability": jax.nn.sigmoid(logits)},
        label="late",
        out=trained.content,
    )
    return trained


def test_what_matters_is_measured_written_and_shown(examples: Examples, model: Model) -> None:
    explanation = Explainer(examples, model, config=named("judged"))
    assert explanation.metric == "log_loss"
    assert next(iter(explanation.importance)) == "dep_delay"
    assert explanation.importance["month"] == 0.0
    lines = pq.read_table(explanation.content / "importances.parquet").to_pylist()
    assert {line["slice"].partition("=")[0] for line in lines} == {"overall", "carrier", "delay_bin"}
    assert {line["column"] for line in lines} == {"dep_delay", "carrier", "month"}
    assert all(line["lower"] <= line["importance"] <= line["upper"] for line in lines)
    points = pq.read_table(explanation.content / "dependence.parquet").to_pylist()
    for name in ("overall", next(line["slice"] for line in lines if line["slice"].startswith("carrier"))):
        means = [point["mean"] for point in points if (point["column"], point["slice"]) == ("dep_delay", name)]
        assert len(means) > 5
        assert means == sorted(means)  # the model rises with it
    assert {point["value"] for point in points if point["column"] == "carrier"} == {"AA", "B6", "UA"}
    attributed = pq.read_table(explanation.content / "attributions.parquet")
    assert attributed.column_names == ["row", "output", "dep_delay"]
    assert attributed.num_rows == 100
    facts = json.loads((explanation.content / "explanation.json").read_text("utf-8"))
    assert facts["gap"] < 0.02
    assert facts["rows"] == ROWS
    page = (explanation.extra / "report.html").read_text("utf-8")
    assert "Predictions by dep_delay" in page
    assert "Importance by slice" in page
    summary = summary_of(explanation)
    assert summary.columns[:2] == ("column", "overall")
    assert summary.rows[0][0] == "dep_delay"
    assert summary.text.startswith("worth most to log loss: dep_delay ")
    assert summary.report


def test_the_metric_is_what_explain_gives(examples: Examples, model: Model) -> None:
    explanation = Explainer(examples, model, config=named("judged"), metric="auc", columns=["carrier"], seed=3)
    rows = pa.concat_tables(pq.read_table(path) for path in sorted((examples.content / "split=eval").glob("*.parquet")))
    rows = rows.append_column("late", pa.array(rows["arr_delay"].to_numpy() > 15.0))
    result = dt.explain(rows, model.content, label="late", metric="auc", columns=["carrier"], effort=Effort(seed=3))
    assert explanation.importance == {"carrier": result.importances[0].importance}


def test_equal_inputs_give_equal_content(examples: Examples, model: Model) -> None:
    prints = {digest_tree(Explainer(examples, model, config=named("judged")).content).fingerprint for _ in range(2)}
    assert len(prints) == 1


def test_a_sample_is_recorded(examples: Examples, model: Model) -> None:
    explanation = Explainer(examples, model, config=named("judged"), max_rows=300, repeats=1)
    assert json.loads((explanation.content / "explanation.json").read_text("utf-8"))["rows"] == 300


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"split": "test"}, "no split 'test'"),
        ({"columns": ["tail"]}, "'tail'"),
        ({"metric": "f1"}, "there is no metric 'f1' in the configuration"),
        ({"repeats": 0}, "repeats must be a whole number"),
        ({"config": named("unknown")}, "'tail'"),
    ],
)
def test_what_cannot_be_is_refused(examples: Examples, model: Model, options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        Explainer(examples, model, **{"config": named("judged")} | options)
