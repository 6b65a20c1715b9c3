"""The Evaluator on real bundles, through JAX: against numpy and scikit-learn, with and without a baseline."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from drivetrain import InputError
from drivetrain.components.evaluation import EvaluationConfig, Slice, Threshold, read_slices, read_validation
from drivetrain.components.evaluator import Evaluator
from drivetrain.data import executor, open_examples, open_parquet, sinks
from drivetrain.digest import digest_tree
from drivetrain.metadata import Examples, Model, Summary, summary_of
from drivetrain.pipelines import FunctionRef, current
from sklearn.metrics import log_loss, roc_auc_score

pytestmark = pytest.mark.engine


def named(constant: str) -> FunctionRef:
    """A constant of this module, as a pipeline names it."""
    return FunctionRef(None, f"{__name__}:{constant}")


ROWS = 3_000
LEFT_OUT = "and 1 more metric: show --json or --html has all of them"
CARRIERS = {"AA": 0.5, "B6": -0.5, "UA": 0.0}

judged = EvaluationConfig(
    label="late",
    prediction="probability",
    slices=[[], ["carrier"], ["carrier", "month"]],
    thresholds=[Threshold("auc", lower=0.8), Threshold("log_loss", change_absolute=0.0, slice=["carrier"])],
)
strict = EvaluationConfig(label="late", prediction="probability", thresholds=[Threshold("auc", lower=0.999)])
refusing = EvaluationConfig(
    label="late", prediction="probability", thresholds=[Threshold("auc", lower=0.8)], first_run="refuse"
)
withholding = EvaluationConfig(
    label="late", prediction="probability", slices=[["carrier"]], min_examples=ROWS,
    thresholds=[Threshold("auc", lower=0.8)],
)  # fmt: skip
by_a_typo = EvaluationConfig(label="late", prediction="probability", slices=[Slice("summer", sql="mnth > 1")])
by_a_type = EvaluationConfig(label="late", prediction="probability", slices=[Slice("x", sql="year(dep_delay) > 1")])
of_a_text, of_a_number, of_a_truth = (
    EvaluationConfig(
        label="late",
        prediction="probability",
        slices=[[name]],
        thresholds=[Threshold("auc", lower=0, slice={name: value})],
    )
    for name, value in (("month", "1"), ("carrier", 7), ("month", True))
)
unknown = EvaluationConfig(label="late", prediction="probability", slices=[["tail"]])
weighed = EvaluationConfig(label="late", prediction="probability", weight="tail")
judging_the_label = EvaluationConfig(label="probability", prediction="late")
not_a_config = {"label": "late"}
half_a_config = {"late": EvaluationConfig(label="late", prediction="probability"), "minutes": "rmse"}
without_names = {7: EvaluationConfig(label="late", prediction="probability")}
of_many_metrics = EvaluationConfig(
    label="late", prediction="probability", slices=[["month"]],
    metrics=["auc", "accuracy", "precision", "recall", "f1", "log_loss", "brier_score", "balanced_accuracy"],
    confidence="jackknife", thresholds=[Threshold("auc", lower=0.8)],
)  # fmt: skip
of_two_outputs = {
    "late": judged,
    "minutes": EvaluationConfig(
        label="dep_delay", prediction="minutes", task="regression", slices=[["month"]],
        thresholds=[Threshold("mae", upper=10.0)],
    ),
}  # fmt: skip
of_two_that_fail = of_two_outputs | {"late": strict}


def preprocess(columns: Mapping[str, Any]) -> dict[str, Any]:
    from drivetrain.engine import ops

    late = ops.fill_missing(columns["arr_delay"], 0.0) > 15.0
    return {
        "delay": ops.fill_missing(columns["dep_delay"], 0.0),
        "carrier": ops.vocabulary(columns["carrier"], oov_buckets=1),
        "late": ops.cast(late, "float32"),
    }


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Examples:
    rng = np.random.default_rng(11)
    delay = rng.exponential(20, ROWS) - 10
    carrier = rng.choice([*CARRIERS, "none"], ROWS)
    table = pa.table(
        {
            "dep_delay": delay,
            "arr_delay": pa.array(delay + rng.normal(0, 12, ROWS), mask=rng.random(ROWS) < 0.05),
            "carrier": pa.array([None if name == "none" else name for name in carrier.tolist()]),
            "month": rng.integers(1, 3, ROWS),
        }
    )
    path = tmp_path_factory.mktemp("raw") / "raw.parquet"
    pq.write_table(table, path, row_group_size=1_100)
    made = Examples.new()
    executor("local").map(open_parquet([path]), None, sinks(made.content, ["eval"])).write(made.content)
    return made


def model_of(examples: Examples, folder: Path, slope: float) -> Model:
    import jax
    from drivetrain.engine import analyze, export_model

    analyze(preprocess, open_examples(examples.content, "eval"), executor("local")).save(folder)
    model = Model.new()
    export_model(
        folder,
        lambda params, features: params["slope"] * (features["delay"] - 15.0) + params["bias"][features["carrier"]],
        {"slope": np.float32(slope), "bias": np.linspace(-0.5, 0.5, 5, dtype=np.float32)},
        lambda logits: {"probability": jax.nn.sigmoid(logits), "minutes": logits / slope + 15.0},
        label="late",
        out=model.content,
    )
    return model


@pytest.fixture(scope="module")
def model(examples: Examples, tmp_path_factory: pytest.TempPathFactory) -> Model:
    return model_of(examples, tmp_path_factory.mktemp("graph"), 0.15)


@pytest.fixture(scope="module")
def worse(examples: Examples, tmp_path_factory: pytest.TempPathFactory) -> Model:
    return model_of(examples, tmp_path_factory.mktemp("graph"), 0.01)


def expected(
    examples: Examples, model: Model, label: str | None = None, output: str = "probability"
) -> tuple[Any, Any]:
    """Label and prediction by another way: numpy for the label, the bundle row by row for the prediction."""
    from drivetrain.engine import Bundle

    bundle = Bundle.load(model.content)
    rows = pq.read_table(sorted((examples.content / "split=eval").glob("*.parquet"))).to_pylist()
    labels = np.array([row[label] if label else (row["arr_delay"] or 0.0) > 15 for row in rows])
    score = np.array([bundle.run_row("predict", row)[output] for row in rows], dtype=np.float64)
    return labels, score


def test_metrics_of_a_real_bundle(examples: Examples, model: Model, worse: Model) -> None:
    evaluation = Evaluator(examples, model, baseline=worse, config=named("judged"))
    table = pq.read_table(evaluation.content / "metrics.parquet").to_pylist()
    values = {row["metric"]: row for row in table if row["slice"] == "overall"}
    label, score = expected(examples, model)
    assert values["auc"]["value"] == pytest.approx(roc_auc_score(label, score), abs=1e-6)
    assert values["log_loss"]["value"] == pytest.approx(log_loss(label, score), abs=1e-5)
    assert values["log_loss"]["baseline"] == pytest.approx(log_loss(*expected(examples, worse)), abs=1e-5)
    assert evaluation.metrics["auc"] == values["auc"]["value"]
    assert evaluation.metrics == {
        name: row["value"] for name, row in values.items() if row["value"] is not None and name != "example_count"
    }
    counts = {row["slice"]: row["n"] for row in table if row["metric"] == "auc"}
    raw = pq.read_table(sorted((examples.content / "split=eval").glob("*.parquet")))
    for carrier, count in Counter(raw["carrier"].fill_null("(missing)").to_pylist()).items():
        assert counts[f"carrier={carrier}"] == count
    assert len(counts) == 1 + 4 + 8
    assert evaluation.blessed
    assert evaluation.summary.endswith("; blessed")
    verdict = json.loads((evaluation.content / "validation.json").read_text())
    assert len(verdict["thresholds"]) == 1 + 4
    assert verdict["baseline"] == "compared"
    assert "blessed" in (evaluation.extra / "report.html").read_text()
    summary = summary_of(evaluation)
    lines = summary.text.splitlines()
    assert lines[0] == "model blessed: 5 of 5 thresholds judged and met"
    assert lines[1:-1] == [f"  {check['text']}" for check in verdict["thresholds"]]
    assert lines[-1] == "and 2 more metrics: show --json or --html has all of them"
    assert summary.columns[:2] == ("slice", "examples")
    assert dict(zip(summary.columns, summary.rows[0], strict=True))["auc"] == f"{values['auc']['value']:.4f}"
    assert {row[0]: int(row[1].replace(",", "")) for row in summary.rows} == counts
    assert summary.numbers["auc"] == values["auc"]["value"]
    assert summary.report
    assert Summary.from_json(json.loads(json.dumps(summary.to_json()))) == summary


def test_equal_inputs_give_equal_content(examples: Examples, model: Model) -> None:
    prints = {digest_tree(Evaluator(examples, model, config=named("judged")).content).fingerprint for _ in range(2)}
    assert len(prints) == 1


def test_what_was_compiled_for_a_model_is_kept(
    examples: Examples, model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is judged again when thresholds change, in another process, and then compiles nothing."""
    from drivetrain.engine.lowering import programs
    from jax import monitoring

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(programs, "_recent", {})
    hits: list[str] = []

    def count(event: str, **_: str | int) -> None:
        hits.append(event)

    Evaluator(examples, model, config=named("judged"))
    kept = sorted((tmp_path / "drivetrain" / "compiled").rglob("*-cache"))
    assert kept
    monkeypatch.setattr(programs, "_recent", {})
    monitoring.register_event_listener(count)
    try:
        Evaluator(examples, model, config=named("judged"))
    finally:
        monitoring.unregister_event_listener(count)
    assert "/jax/compilation_cache/cache_hits" in hits
    assert "/jax/compilation_cache/cache_misses" not in hits
    assert sorted((tmp_path / "drivetrain" / "compiled").rglob("*-cache")) == kept


def test_a_worse_model_is_not_blessed(examples: Examples, model: Model, worse: Model) -> None:
    assert not Evaluator(examples, worse, baseline=model, config=named("judged")).blessed
    evaluation = Evaluator(examples, model, config=named("strict"))
    assert not evaluation.blessed
    assert "not blessed: overall AUC" in evaluation.summary
    assert summary_of(evaluation).text.startswith("model not blessed:\n  overall AUC")


def test_a_summary_says_how_many_slices_are_withheld(examples: Examples, model: Model) -> None:
    summary = summary_of(Evaluator(examples, model, config=named("withholding")))
    rows = int(summary.rows[0][1].replace(",", ""))
    assert summary.text.splitlines()[-2:] == [
        f"4 slices by carrier withheld, each with fewer than {ROWS:,} examples: {rows:,} examples", LEFT_OUT,
    ]  # fmt: skip
    assert [row[0] for row in summary.rows] == ["overall"]


def test_metrics_that_do_not_fit_are_counted(examples: Examples, model: Model) -> None:
    """They were left out without a word."""
    evaluation = Evaluator(examples, model, config=named("of_many_metrics"))
    summary = summary_of(evaluation)
    left_out = len(of_many_metrics.metrics or ()) - (len(summary.columns) - 2)
    assert left_out > 1
    assert summary.text.splitlines()[-1] == f"and {left_out} more metrics: show --json or --html has all of them"
    assert set(summary.numbers) >= set(map(str, of_many_metrics.metrics or ()))  # which --json prints


def test_the_first_model_is_blessed_or_refused(examples: Examples, model: Model, worse: Model) -> None:
    alone = Evaluator(examples, model, config=named("judged"))
    assert (alone.blessed, alone.compared) == (True, False)
    refused = Evaluator(examples, model, config=named("refusing"))
    assert (refused.blessed, refused.compared) == (False, False)
    reason = 'no baseline yet, and first_run="refuse" blesses no model without one'
    assert refused.summary.endswith(f"; not blessed: {reason}")
    assert summary_of(refused).text == f"model not blessed:\n  {reason}\n{LEFT_OUT}"
    assert reason in (refused.extra / "report.html").read_text().replace("&quot;", '"')
    second = Evaluator(examples, model, baseline=worse, config=named("refusing"))
    assert (second.blessed, second.compared) == (True, True)


def test_what_cannot_be_evaluated(examples: Examples, model: Model) -> None:
    with pytest.raises(InputError, match=r"no split 'test'.*\n.*eval"):
        Evaluator(examples, model, config=named("judged"), split="test")
    with pytest.raises(InputError, match=r"\['tail'\] needs the column 'tail'"):
        Evaluator(examples, model, config=named("unknown"))
    with pytest.raises(
        InputError, match="the weight needs the column 'tail', which the examples do not have"
    ) as caught:
        Evaluator(examples, model, config=named("weighed"))
    assert "test_evaluator.py" in (caught.value.where or "")
    with pytest.raises(InputError, match="prediction is 'late', which predict does not give"):
        Evaluator(examples, model, config=named("judging_the_label"))
    with pytest.raises(InputError, match="is a dict, not an EvaluationConfig"):
        Evaluator(examples, model, config=named("not_a_config"))
    with pytest.raises(InputError, match=r"half_a_config\['minutes'\] is a str, not an EvaluationConfig"):
        Evaluator(examples, model, config=named("half_a_config"))
    with pytest.raises(InputError, match="7 is not a valid name for an output"):
        Evaluator(examples, model, config=named("without_names"))


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("by_a_typo", r"the slice 'summer' needs the column 'mnth'.*\n.*month"),
        ("by_a_type", "the slice 'x': Binder Error"),
        ("of_a_text", r"the slice month='1', and the column 'month' holds numbers\n.*: slice={'month': 1}"),
        ("of_a_number", r"the slice carrier=7, and the column 'carrier' holds text\n.*: slice={'carrier': '7'}"),
        ("of_a_truth", "the slice month=True, and the column 'month' holds numbers"),
    ],
)
def test_a_slice_that_cannot_be_is_refused_before_the_training(examples: Examples, config: str, words: str) -> None:
    coming = {"model": {"outputs": ["late", "probability"], "label_columns": []}}
    assert Evaluator.preflight is not None
    with pytest.raises(InputError, match=words) as caught:
        Evaluator.preflight({"examples": examples, "split": "eval", "config": named(config)}, coming)
    assert "test_evaluator.py" in (caught.value.where or "")


def test_judging_by_what_says_little_is_noted(
    examples: Examples, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes: list[str] = []
    context = replace(current(), note=notes.append)
    monkeypatch.setattr("drivetrain.components.evaluator.current", lambda: context)
    Evaluator(examples, model, config=named("judged"))
    assert not any("'train'" in note or "itself" in note for note in notes)
    Evaluator(examples, model, baseline=model, config=named("judged"))
    assert "the baseline is the model itself: no bound on a change can fail" in notes
    rows = open_parquet(sorted((examples.content / "split=eval").glob("*.parquet")))
    train = Examples.new()
    executor("local").map(rows, None, sinks(train.content, ["train"])).write(train.content)
    Evaluator(train, model, config=named("judged"), split="train")
    assert any("judged on the split 'train'" in note for note in notes)


def test_a_bundle_that_is_no_model_is_named(examples: Examples, model: Model) -> None:
    from drivetrain.engine import analyze

    transform = Model.new()
    analyze(preprocess, open_examples(examples.content, "eval"), executor("local")).save(transform.content)
    with pytest.raises(InputError, match=r"the model has no signature 'evaluate', but 'transform'\n.*Trainer"):
        Evaluator(examples, transform, config=named("judged"))
    with pytest.raises(InputError, match="the baseline has no signature 'predict', but 'transform'"):
        Evaluator(examples, model, baseline=transform, config=named("judged"))


def test_columns_with_defaults_may_be_absent(examples: Examples, model: Model, tmp_path: Path) -> None:
    from drivetrain.engine import Bundle

    parts = sorted((examples.content / "split=eval").glob("*.parquet"))
    table = pq.read_table(parts, partitioning=None).drop_columns(["carrier"])
    absent, spelled, lenient = Examples.new(), Examples.new(), Model.new()
    united = table.append_column("carrier", pa.array(["UA"] * len(table)))
    for made, rows in ((absent, table), (spelled, united)):
        path = tmp_path / f"{rows.num_columns}.parquet"
        pq.write_table(rows, path)
        executor("local").map(open_parquet([path]), None, sinks(made.content, ["eval"])).write(made.content)
    with pytest.raises(InputError, match="carrier"):
        Evaluator(absent, model, config=named("strict"))
    Bundle.load(model.content).with_defaults({"carrier": "UA"}).save(lenient.content)
    found = Evaluator(absent, lenient, baseline=lenient, config=named("strict"))
    label, score = expected(spelled, model)
    metrics = {row["metric"]: row["value"] for row in pq.read_table(found.content / "metrics.parquet").to_pylist()}
    assert metrics["auc"] == pytest.approx(roc_auc_score(label, score), abs=1e-9)


def test_outputs_of_a_model_are_judged_together(examples: Examples, model: Model, worse: Model) -> None:
    """Each as it would be alone; `minutes` is judged by a raw column."""
    both = Evaluator(examples, model, baseline=worse, config=named("of_two_outputs"))
    alone = Evaluator(examples, model, baseline=worse, config=named("judged"))
    slices = read_slices(both.content)
    assert [replace(each, output="") for each in slices if each.output == "late"] == read_slices(alone.content)
    delay, minutes = expected(examples, model, label="dep_delay", output="minutes")
    assert both.metrics["minutes.mae"] == pytest.approx(np.abs(minutes - delay).mean(), rel=1e-5)
    assert both.metrics["late.auc"] == alone.metrics["auc"]
    verdict = read_validation(both.content)
    assert both.blessed
    assert verdict["blessed"]
    assert {check["output"] for check in verdict["thresholds"]} == {"late", "minutes"}
    assert verdict["outputs"]["minutes"]["blessed"]
    assert [each.title for each in slices if each.output == "minutes"] == ["overall", "month=1", "month=2"]
    assert both.summary.startswith("late: AUC 0.")
    assert " | minutes: RMSE " in both.summary
    summary = summary_of(both)
    assert isinstance(summary, Summary)
    assert "minutes: month=2" in [row[0] for row in summary.rows]
    page = (both.extra / "report.html").read_text()
    assert all(f"<h2>{title}" in page for title in ("late", "minutes", "minutes: residuals", "late: curves"))


def test_one_output_that_is_not_good_enough_fails_the_model(examples: Examples, model: Model) -> None:
    evaluation = Evaluator(examples, model, config=named("of_two_that_fail"))
    assert not evaluation.blessed
    verdict = read_validation(evaluation.content)
    assert [line.partition(":")[0] for line in verdict["failures"]] == ["late"]
    assert verdict["outputs"]["minutes"]["blessed"]
    assert "model not blessed" in str(summary_of(evaluation))
