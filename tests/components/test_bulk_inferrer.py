"""BulkInferrer on real bundles: against the bundle itself, on both executors, with rows, names and models that fail."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from drivetrain import BuildError, InputError
from drivetrain.components import BulkInferrer, StatisticsGen
from drivetrain.console.cli import cli
from drivetrain.data import Manifest, executor, open_examples, open_parquet, sinks
from drivetrain.digest import digest_tree
from drivetrain.metadata import Evaluation, Examples, Model, Predictions, Summary, summary_of
from drivetrain.pipelines.project.context import LaunchContext, enter

pytestmark = pytest.mark.engine

SPLITS = {"train": 700, "eval": 150, "empty": 0}
BAD = [3, 130, 131, 699]
"""Rows of the train split whose `size` no model can read."""


def preprocess(columns: Mapping[str, Any]) -> dict[str, Any]:
    from drivetrain.engine import ops

    return {
        "x": ops.fill_missing(columns["x"], 0.0),
        "size": ops.cast(columns["size"], "float32"),
        "word": ops.vocabulary(columns["word"], oov_buckets=1),
        "late": ops.cast(ops.fill_missing(columns["x"], 0.0) > 0.5, "float32"),
    }


def table(rows: int, bad: list[int] | None = None) -> pa.Table:
    rng = np.random.default_rng(7)
    size = [str(number) for number in rng.integers(0, 9, rows).tolist()]
    for row in bad or []:
        size[row] = f"many{row}"
    columns = {
        "id": pa.array(np.arange(rows)),
        "x": pa.array(rng.normal(size=rows), mask=rng.random(rows) < 0.1),
        "size": pa.array(size, pa.string()),
        "word": pa.array([f"w{row % 4}" for row in range(rows)], pa.string()),
    }
    return pa.table(columns)


def examples_of(folder: Path, tables: Mapping[str, pa.Table], rows_of_shard: int = 128) -> Examples:
    examples, written = Examples.new(span=4), []
    for split, rows in tables.items():
        pq.write_table(rows, folder / f"{split}.parquet", row_group_size=rows_of_shard)
        source = open_parquet([folder / f"{split}.parquet"])
        written.append(executor("local").map(source, None, sinks(examples.content, [split])))
    examples.rows = Manifest.joined(written).write(examples.content, span=4).rows
    return examples


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Examples:
    tables = {split: table(rows) for split, rows in SPLITS.items()}
    return examples_of(tmp_path_factory.mktemp("good"), tables)


@pytest.fixture(scope="module")
def spoilt(tmp_path_factory: pytest.TempPathFactory) -> Examples:
    tables = {split: table(rows, BAD if split == "train" else None) for split, rows in SPLITS.items()}
    return examples_of(tmp_path_factory.mktemp("spoilt"), tables)


def model_of(examples: Examples, folder: Path, slope: float) -> Model:
    import jax
    import jax.numpy as jnp
    from drivetrain.engine import analyze, export_model

    analyze(preprocess, open_examples(examples.content, "eval")).save(folder)
    model = Model.new()
    export_model(
        folder,
        lambda params, row: params["slope"] * jnp.log(row["size"] + params["shift"]) + row["x"] + row["word"],
        {"slope": np.float32(slope), "shift": np.float32(1.0 if slope < 9 else -4.0)},
        lambda logit: {"p": jax.nn.sigmoid(logit), "pair": jnp.stack([logit, -logit], -1)},
        label="late",
        out=model.content,
    )
    return model


@pytest.fixture(scope="module")
def model(examples: Examples, tmp_path_factory: pytest.TempPathFactory) -> Model:
    return model_of(examples, tmp_path_factory.mktemp("graph"), 0.5)


@pytest.fixture(scope="module")
def other(examples: Examples, tmp_path_factory: pytest.TempPathFactory) -> Model:
    return model_of(examples, tmp_path_factory.mktemp("graph"), -0.5)


def apply(examples: Examples, *models: Model, **options: Any) -> Predictions:
    return BulkInferrer(examples, list(models), **{"require_blessing": False} | options)


def rows_of(content: Path, split: str) -> pa.Table:
    source = open_examples(content, split)
    batches = [batch for shard in source.shards for batch in source.read(shard)]
    return pa.Table.from_batches(batches, source.schema)


def expected(model: Model, rows: pa.Table, signature: str = "predict") -> dict[str, Any]:
    from drivetrain.engine import Bundle

    return Bundle.load(model.content).run(signature, rows)


def check(rows: pa.Table, outputs: Mapping[str, Any], prefix: str = "") -> None:
    """The columns hold, to the bit, what a bundle returned."""
    for name, values in outputs.items():
        column = rows[f"{prefix}{name}"].combine_chunks()
        numbers = column.flatten().to_numpy(zero_copy_only=False).reshape(values.shape) if values.ndim > 1 else column
        np.testing.assert_array_equal(np.asarray(numbers), values)


def test_predictions_are_what_the_bundle_returns(examples: Examples, model: Model) -> None:
    predictions = apply(examples, model, keep=["id", "word"])
    assert isinstance(predictions, Predictions)
    assert (predictions.rows, predictions.rejected, predictions.span) == (SPLITS, dict.fromkeys(SPLITS, 0), 4)
    assert predictions.outputs == ["p", "pair"]
    for split, count in SPLITS.items():
        rows = rows_of(predictions.content, split)
        assert rows.column_names == ["id", "word", "p", "pair"]
        raw = rows_of(examples.content, split)
        assert rows.select(["id", "word"]).equals(raw.select(["id", "word"]))
        if count:
            check(rows, expected(model, raw))
    assert not (predictions.content / "rejected").exists()
    facts = json.loads((predictions.content / "predictions.json").read_text())
    outputs = expected(model, rows_of(examples.content, "train"))
    assert facts["splits"]["train"]["outputs"]["p"]["mean"] == pytest.approx(outputs["p"].mean(), rel=1e-6)
    assert facts["splits"]["train"]["outputs"]["pair"]["mean"] == pytest.approx(outputs["pair"].mean(axis=0), rel=1e-5)
    assert facts["splits"]["empty"]["outputs"]["p"]["mean"] is None
    assert predictions.summary == "850 rows predicted"


def test_all_columns_are_kept_unless_said(examples: Examples, model: Model) -> None:
    rows = rows_of(apply(examples, model, splits=["eval"]).content, "eval")
    raw = rows_of(examples.content, "eval")
    assert rows.select(raw.column_names).equals(raw)
    assert rows_of(apply(examples, model, splits=["eval"], keep=[]).content, "eval").column_names == ["p", "pair"]


def test_rows_that_fail_are_set_aside_with_the_reason(spoilt: Examples, model: Model) -> None:
    predictions = apply(spoilt, model, keep=["id"])
    assert predictions.rejected == {"train": 4, "eval": 0, "empty": 0}
    assert predictions.rows == {"train": 696, "eval": 150, "empty": 0}
    raw = rows_of(spoilt.content, "train")
    good = raw.take(np.setdiff1d(np.arange(700), BAD))
    rows = rows_of(predictions.content, "train")
    assert rows["id"].equals(good["id"])
    check(rows, expected(model, good))
    rejected = rows_of(predictions.content / "rejected", "train")
    assert rejected.drop_columns("reason").equals(raw.take(BAD))
    for row, reason in zip(BAD, rejected["reason"].to_pylist(), strict=True):
        assert f"many{row}" in reason
    assert Manifest.read(predictions.content / "rejected").rows == {"train": 4}
    assert predictions.summary.startswith("846 rows predicted, 4 rejected (")
    summary = summary_of(predictions)
    assert summary.columns == ("split", "rows", "rejected", "mean p", "mean pair[0]", "mean pair[1]")
    assert [row[:3] for row in summary.rows] == [("train", "696", "4"), ("eval", "150", "0"), ("empty", "0", "0")]
    assert summary.numbers["train.rejected"] == 4
    assert summary.text.splitlines()[1].startswith("  rejected: ")
    assert Summary.from_json(json.loads(json.dumps(summary.to_json()))) == summary


@pytest.mark.slow
@pytest.mark.beam
def test_both_executors_give_the_same_bytes(spoilt: Examples, model: Model, other: Model) -> None:
    prints = []
    for name in ("local", "beam"):
        leave = enter(LaunchContext(executor=name))
        try:
            predictions = apply(spoilt, model, other, names=["old", "new"])
        finally:
            leave()
        prints.append((digest_tree(predictions.content).fingerprint, predictions.properties))
    assert prints[0] == prints[1]


def test_too_many_rows_that_fail_are_one_error(spoilt: Examples, model: Model) -> None:
    assert apply(spoilt, model, max_rejected=4).rejected["train"] == 4
    for most in (0, 1, 3):  # 3: no shard alone has more
        with pytest.raises(
            InputError, match=rf"more than max_rejected={most} rows cannot be used; the first: .*many"
        ) as error:
            apply(spoilt, model, max_rejected=most)
        assert "allow more by max_rejected=" in str(error.value)


def test_the_column_of_reasons_takes_no_column_of_the_examples(tmp_path: Path, model: Model) -> None:
    rows = table(20, [5]).append_column("reason", pa.array(["mine"] * 20))
    predictions = apply(examples_of(tmp_path, {"eval": rows}), model)
    rejected = rows_of(predictions.content / "rejected", "eval")
    assert rejected["reason"].to_pylist() == ["mine"]
    assert "many5" in rejected["rejection_reason"][0].as_py()


def test_no_row_that_can_be_used_is_an_error(tmp_path: Path, model: Model) -> None:
    with pytest.raises(InputError, match=r"not one of the 3 rows can be used; the first: .*many0"):
        apply(examples_of(tmp_path, {"eval": table(3, [0, 1, 2])}), model)


def test_no_rows_are_no_error(tmp_path: Path, model: Model) -> None:
    predictions = apply(examples_of(tmp_path, {"eval": table(0)}), model)
    assert predictions.summary == "0 rows predicted"
    assert rows_of(predictions.content, "eval").column_names == ["id", "x", "size", "word", "p", "pair"]


def test_models_and_signatures_side_by_side(examples: Examples, model: Model, other: Model) -> None:
    raw = rows_of(examples.content, "eval")
    rows = rows_of(apply(examples, model, other, splits=["eval"], keep=["id"]).content, "eval")
    assert rows.column_names == ["id", "model_1_p", "model_1_pair", "model_2_p", "model_2_pair"]
    check(rows, expected(model, raw), "model_1_")
    check(rows, expected(other, raw), "model_2_")
    both = {"signatures": ["predict", "evaluate"], "names": ["new"], "splits": ["eval"], "keep": []}
    rows = rows_of(apply(examples, model, **both).content, "eval")
    check(rows, expected(model, raw), "new_predict_")
    check(rows, expected(model, raw, "evaluate"), "new_evaluate_")
    assert rows.column_names[-1] == "new_evaluate_late"


def test_a_row_that_one_of_two_models_cannot_use_is_rejected(tmp_path: Path, model: Model) -> None:
    """Its reason names the model; the other rows keep the outputs of both."""
    from drivetrain.engine import analyze, ops

    positive = Model.new()
    source = tmp_path / "x.parquet"
    pq.write_table(pa.table({"id": [1]}), source)

    def checked(columns: ops.Columns) -> ops.Columns:
        ops.check(columns["id"] != 7, "seven is too many")
        return {"double": columns["id"] * 2}

    analyze(checked, open_parquet([source])).save(positive.content)
    predict = Model.new()
    analyze(lambda columns: {"half": columns["x"] / 2.0}, {"x": [1.0]}).save(predict.content)
    raw = table(20)
    spoilt = examples_of(tmp_path, {"eval": raw})
    predictions = apply(spoilt, predict, positive, signatures=["transform"], names=["a", "b"], keep=["id"])
    (reason,) = rows_of(predictions.content / "rejected", "eval")["reason"].to_pylist()
    assert reason == "b: check failed: seven is too many (id = 7)"
    rows = rows_of(predictions.content, "eval")
    assert rows["b_double"].to_pylist() == [2 * row for row in range(20) if row != 7]
    np.testing.assert_array_equal(rows["a_half"], raw["x"].to_numpy()[rows["id"].to_numpy()].astype(np.float32) / 2)


def test_nan_is_kept_and_counted(examples: Examples, tmp_path: Path) -> None:
    """The logarithm of a size below 4 is not a number here, and of 4 infinite."""
    broken = model_of(examples, tmp_path / "graph", 9.0)
    predictions = apply(examples, broken, splits=["train"])
    values = rows_of(predictions.content, "train")["p"].to_numpy()
    np.testing.assert_array_equal(values, expected(broken, rows_of(examples.content, "train"))["p"])
    facts = json.loads((predictions.content / "predictions.json").read_text())["splits"]["train"]
    assert facts["rows"] == 700
    assert facts["outputs"]["p"]["undefined"] == np.isnan(values).sum() > 0
    assert facts["outputs"]["p"]["mean"] == pytest.approx(np.nanmean(values.astype(np.float64)), rel=1e-12)
    assert f"missing, NaN or infinite: {np.isnan(values).sum()} of p" in predictions.summary


def test_only_blessed_models_unless_told_otherwise(examples: Examples, model: Model, other: Model) -> None:
    blessed, refused = Evaluation.new(blessed=True), Evaluation.new(blessed=False, summary="AUC 0.61; not blessed")
    options: dict[str, Any] = {"splits": ["eval"], "keep": ["id"]}
    assert BulkInferrer(examples, [model], evaluations=[blessed], **options).rows == {"eval": 150}
    assert BulkInferrer(examples, model, evaluations=blessed, **options).rows == {"eval": 150}  # type: ignore[arg-type]
    with pytest.raises(InputError, match="nothing says that the model is blessed"):
        BulkInferrer(examples, [model], **options)
    with pytest.raises(InputError, match=r"the model is not blessed: AUC 0\.61; not blessed\n.*dt\.when"):
        BulkInferrer(examples, [model], evaluations=[refused], **options)
    with pytest.raises(InputError, match="the model 'model_2' is not blessed"):
        BulkInferrer(examples, [model, other], evaluations=[blessed, refused], **options)
    with pytest.raises(InputError, match="nothing says that the model 'new' is blessed"):
        BulkInferrer(examples, [model, other], evaluations=[blessed], names=["old", "new"], **options)
    with pytest.raises(InputError, match="2 evaluations for 1 models"):
        BulkInferrer(examples, [model], evaluations=[blessed, blessed], **options)
    assert apply(examples, model, evaluations=[refused], **options).rows == {"eval": 150}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"splits": ["evla"]}, r"no split 'evla'.*\n.*did you mean 'eval'"),
        ({"splits": []}, "splits is empty"),
        ({"keep": ["idd"]}, r"keep names the column 'idd'.*\n.*did you mean 'id'"),
        ({"keep": "id"}, r"keep is a list, not 'id'"),
        ({"keep": ["id", "id"]}, "keep names 'id' twice"),
        ({"signatures": ["serve"]}, r"the model has no signature 'serve'\n.*predict"),
        ({"signatures": []}, "signatures is empty"),
        ({"names": ["a", "b"]}, "2 names for 1 models"),
        ({"max_rejected": -1}, "max_rejected must be at least 0"),
    ],
)
def test_what_cannot_be(examples: Examples, model: Model, options: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        apply(examples, model, **options)


def test_columns_that_collide_or_are_not_there(tmp_path: Path, examples: Examples, model: Model, other: Model) -> None:
    taken = examples_of(tmp_path, {"eval": table(5).append_column("p", pa.array([0.5] * 5))})
    with pytest.raises(InputError, match=r"the output 'p' has the name of a column .* kept\n.*leave 'p' out of keep="):
        apply(taken, model)
    assert rows_of(apply(taken, model, keep=["id"]).content, "eval").column_names == ["id", "p", "pair"]
    assert "old_p" in apply(taken, model, names=["old"]).outputs
    narrow = examples_of(tmp_path, {"eval": table(5).drop_columns("size")})
    with pytest.raises(InputError, match="the model reads the column 'size', which the examples do not have"):
        apply(narrow, model)
    with pytest.raises(InputError, match="there is no model to apply"):
        apply(examples)


def test_what_does_not_fit_the_examples_is_refused_before_the_training(examples: Examples) -> None:
    """Trainer asks those that take its model, before it trains."""
    coming = {"models": {"outputs": ("p", "late"), "label_columns": ("x",)}}
    preflight = BulkInferrer.preflight
    assert preflight is not None
    preflight({"examples": examples, "splits": None, "keep": ["id"]}, coming)
    with pytest.raises(InputError, match="keep names the column 'idd'"):
        preflight({"examples": examples, "splits": None, "keep": ["idd"]}, coming)
    with pytest.raises(InputError, match="no split 'test'"):
        preflight({"examples": examples, "splits": ["test"], "keep": None}, coming)


def test_predictions_can_be_used_like_examples(examples: Examples, model: Model) -> None:
    statistics = StatisticsGen(apply(examples, model, keep=["id"], splits=["train", "eval"]))
    (dataset, _) = json.loads((statistics.content / "statistics.json").read_text())["datasets"]
    assert [feature["name"] for feature in dataset["features"]] == ["id", "p", "pair"]


PIPELINE = """
    import drivetrain as dt
    from drivetrain.components import BulkInferrer, ExampleGen
    from drivetrain.metadata import Evaluation, Model

    @dt.component
    def Train(scale: float) -> Model:
        from drivetrain import engine

        model = Model.new()
        engine.analyze(lambda row: {"y": row["x"] * scale}, {"x": [1.0, 2.0]}).save(model.content)
        return model

    @dt.component
    def Judge(model: Model, passes: bool) -> Evaluation:
        return Evaluation.new(blessed=passes, summary="judged")

    @dt.pipeline
    def scaled(passes: bool = True) -> None:
        examples = ExampleGen("rows.csv", splits={"eval": 1})
        model, second = Train(2.0), Train.options(id="Second")(3.0)
        evaluation = Judge(model, passes)
        with dt.when(evaluation.blessed):
            BulkInferrer(
                examples, [model, second], evaluations=[evaluation, evaluation],
                signatures=["transform"], names=["two", "three"],
            )
"""
LATER = """
    import drivetrain as dt
    from drivetrain.components import BulkInferrer, ExampleGen

    @dt.pipeline
    def later() -> None:
        examples = ExampleGen("rows.csv", splits={"eval": 1})
        newest = dt.resolvers.latest_model("blessed", pipeline="scaled")
        BulkInferrer(examples, [newest], require_blessing=False, signatures=["transform"])
"""


def test_in_a_pipeline(project: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs, is cached, shows itself, and is skipped where the model is not blessed."""
    monkeypatch.delenv("DRIVETRAIN_ROOT")
    project("scaled", pipeline=PIPELINE)
    project("later", pipeline=LATER)
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "rows.csv").write_text("id,x\n1,1.5\n2,-4.0\n")
    monkeypatch.chdir(tmp_path)

    def run(*options: str) -> dict[str, str]:
        result = CliRunner().invoke(cli, ["run", "scaled", "--json", *options])
        assert result.exit_code == 0, result.output
        return {name: node["state"] for name, node in json.loads(result.stdout.splitlines()[-1])["nodes"].items()}

    assert run()["BulkInferrer"] == "COMPLETE"
    assert run()["BulkInferrer"] == "CACHED"
    shown = CliRunner().invoke(cli, ["show"]).output
    assert "2 rows predicted" in shown
    assert "mean three_y" in shown
    (part,) = tmp_path.rglob("*/BulkInferrer/*/predictions/content/split=eval/*.parquet")
    rows = pq.ParquetFile(part).read().sort_by("id")
    assert rows["two_y"].to_pylist() == [3.0, -8.0]
    assert rows["three_y"].to_pylist() == [4.5, -12.0]
    assert run("--param", "passes=false")["BulkInferrer"] == "SKIPPED"
    result = CliRunner().invoke(cli, ["run", "later"])
    assert result.exit_code == 0, result.output
    assert "mean y" in result.output  # that of the pipeline above which was blessed


def test_a_call_that_contradicts_itself_is_refused_while_building(project: Callable[..., Path]) -> None:
    from drivetrain.pipelines import load_pipeline

    folder = project("scaled", pipeline=PIPELINE.replace('"three"]', '"two"]'))
    with pytest.raises(BuildError, match="names names 'two' twice"):
        load_pipeline(folder).build()
