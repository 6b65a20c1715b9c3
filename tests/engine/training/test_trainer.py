"""Trainer as a component: raw rows to a bundle that predicts what the trained model does; and what it refuses."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import numpy as np
import pyarrow as pa
import pytest
from drivetrain import data, engine
from drivetrain.components.bulk_inferrer import BulkInferrer
from drivetrain.components.evaluation import EvaluationConfig
from drivetrain.components.evaluator import Evaluator
from drivetrain.components.trainer import Trainer
from drivetrain.digest import digest_tree
from drivetrain.engine import Trained, TrainingRun, nnx_model, ops
from drivetrain.engine.training.warm_start import FILE, fitting, read_variables
from drivetrain.errors import Canceled, InputError
from drivetrain.metadata import Examples, Model, TransformGraph
from drivetrain.pipelines import FunctionRef, current
from drivetrain.pipelines.project.context import LaunchContext, enter
from drivetrain.pipelines.project.metrics import Metrics

pytestmark = pytest.mark.engine


def preprocess(columns: Any) -> dict[str, Any]:
    return {
        "delay": ops.z_score(ops.fill_missing(columns["delay"], 0.0)),
        "carrier": ops.vocabulary(columns["carrier"], oov_buckets=1),
        "raw": columns["carrier"],
        "late": ops.cast(columns["arrival"] > 15.0, "float32"),
    }


def train(run: TrainingRun) -> Trained:
    import jax
    import jax.numpy as jnp
    import optax
    from flax import nnx

    assert list(run.features) == ["delay", "carrier", "late"]
    size = run.features["carrier"].size or 0
    assert size == 5  # three carriers, one unknown, missing

    class Wide(nnx.Module):
        def __init__(self, rngs: nnx.Rngs) -> None:
            self.carrier = nnx.Embed(size, 1, rngs=rngs)
            self.delay = nnx.Linear(1, 1, rngs=rngs)

        def __call__(self, features: Any) -> Any:
            return (self.delay(features["delay"][:, None]) + self.carrier(features["carrier"]))[:, 0]

    return run.fit(
        nnx_model(lambda rngs: Wide(rngs)),
        loss=lambda logits, batch: optax.sigmoid_binary_cross_entropy(logits, batch["late"]).mean(),
        predict=lambda logits: {"probability": jax.nn.sigmoid(jnp.asarray(logits))},
        optimizer=optax.adam(run.hyperparameters.get("rate", 0.05)),
        label="late",
        checkpoints=engine.CheckpointPolicy(keep_period=30),
    )


def raw(rows: int, seed: int) -> pa.Table:
    random = np.random.default_rng(seed)
    delay = random.normal(10, 20, rows)
    carrier = random.integers(0, 4, rows)
    return pa.table(
        {
            "delay": pa.array(delay, mask=random.random(rows) < 0.05),
            "carrier": pa.array([("AA", "DL", "UA", None)[number] for number in carrier], pa.string()),
            "arrival": delay + random.normal(0, 10, rows),
        }
    )


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory, problem: ModuleType) -> tuple[Examples, TransformGraph]:
    """Transformed examples and the graph, as Transform makes them."""
    folder = tmp_path_factory.mktemp("trainer")
    content = problem.write(folder / "raw", {"train": raw(2000, 0), "eval": raw(500, 1)})
    transformed: tuple[Examples, TransformGraph] = problem.transformed(content, preprocess)
    return transformed


@pytest.fixture(scope="module")
def base(inputs: tuple[Examples, TransformGraph]) -> tuple[Model, Trained]:
    """What Trainer makes of three epochs, and what the user's function returned to it."""
    kept: list[Trained] = []

    def fn(run: TrainingRun) -> Trained:
        kept.append(train(run))
        return kept[0]

    return Trainer(*inputs, fn=fn, epochs=3, batch_size=100, hyperparameters={"rate": 0.1}), kept[0]


def test_the_bundle_predicts_what_was_trained(
    inputs: tuple[Examples, TransformGraph], base: tuple[Model, Trained]
) -> None:
    model, trained = base
    assert isinstance(model, Model)
    bundle = engine.Bundle.load(model.content)
    assert set(bundle.signatures["predict"].inputs) == {"delay", "carrier"}
    rows = raw(500, 1)
    predicted = bundle.run("predict", rows.select(["delay", "carrier"]).to_batches()[0])["probability"]
    features = {
        name: data.open_examples(inputs[0].content, "eval", [name]).read(0) for name in ("delay", "carrier", "late")
    }
    arrays = {name: next(batches).column(0).to_numpy() for name, batches in features.items()}
    label = arrays.pop("late")
    first = len(label)  # the first part holds half of the rows
    expected = trained.predict(trained.apply(trained.params, arrays))["probability"]
    np.testing.assert_allclose(predicted[:first], expected, atol=1e-5)
    assert np.mean((predicted[:first] > 0.5) == label) > 0.75

    history = json.loads((model.extra / "history.json").read_text())
    assert history["steps"] == 60
    assert history["examples"] == 6000
    assert history["resumed_at_step"] == 0
    losses = [epoch["loss"] for epoch in history["epochs"]]
    assert losses == sorted(losses, reverse=True)
    assert set(history["seconds"]) == {"start", "input", "device", "evaluation", "checkpoints", "host"}
    assert set(history["input_seconds"]) >= {"read, shuffle and batch", "to device"}
    page = (model.extra / "report.html").read_text()
    assert "read, shuffle and batch" in page
    assert page.count("<polyline") == 2
    assert "eval split" in page


def test_a_warm_start_begins_with_another_models_arrays(
    inputs: tuple[Examples, TransformGraph], base: tuple[Model, Trained], tmp_path: Path
) -> None:
    model, trained = base
    kept: list[Trained] = []

    def fn(run: TrainingRun) -> Trained:
        kept.append(train(run))
        return kept[0]

    Trainer(*inputs, base_model=model, fn=fn, batch_size=100, seed=7, hyperparameters={"rate": 0.0})
    jax.tree.map(np.testing.assert_array_equal, kept[0].params, trained.params)
    notes: list[str] = []
    shapes: Any = jax.eval_shape(
        lambda: {
            **trained.params,
            "carrier": {"embedding": np.zeros((9, 1), np.float32)},
            "more": np.zeros(2, np.float32),
        }
    )
    saved = read_variables(model.content, model.extra)
    arrays = fitting(saved, shapes, notes.append)
    assert set(arrays) == {"model/delay/bias", "model/delay/kernel"}
    assert re.fullmatch(
        r"2 of 4 arrays are those of the base model; the others keep their initial values: model/carrier/embedding is "
        r"float32 \[5, 1\] there, not float32 \[9, 1\]; model/more is not in it",
        notes[0],
    )
    with pytest.raises(
        InputError, match="base model has no array that this model begins with: model/dense is not in it"
    ):
        fitting(saved, {"dense": shapes["more"]}, notes.append)
    (tmp_path / FILE).write_bytes(b"nothing")
    with pytest.raises(InputError, match=f"{FILE} is damaged"):
        read_variables(model.content, tmp_path)


def test_a_model_with_state_is_exported_with_it(inputs: tuple[Examples, TransformGraph]) -> None:
    """Batch normalisation in Flax, its statistics in the bundle; a metric and an early end on the page."""
    import jax.numpy as jnp
    import optax
    from flax import nnx

    class Normalised(nnx.Module):
        def __init__(self, rngs: nnx.Rngs) -> None:
            self.norm = nnx.BatchNorm(1, momentum=0.9, rngs=rngs)
            self.drop = nnx.Dropout(0.3, rngs=rngs)
            self.out = nnx.Linear(1, 1, rngs=rngs)

        def __call__(self, features: Any) -> Any:
            return self.out(self.drop(self.norm(features["delay"][:, None])))[:, 0]

    kept: list[Trained] = []

    def fn(run: TrainingRun) -> Trained:
        kept.append(
            run.fit(
                nnx_model(Normalised),
                loss=lambda logits, batch: optax.sigmoid_binary_cross_entropy(logits, batch["late"]).mean(),
                predict=lambda logits: {"probability": jax.nn.sigmoid(jnp.asarray(logits))},
                optimizer=optax.sgd(0.1),
                label="late",
                metrics={"accuracy": lambda logits, batch: jnp.mean((logits > 0) == (batch["late"] > 0.5))},
                callbacks=[engine.EarlyStopping(patience=1, min_delta=10.0)],
                keep_best=("accuracy", "max"),
            )
        )
        return kept[0]

    measured = Metrics()
    leave = enter(LaunchContext(metrics=measured))
    try:
        model = Trainer(*inputs, fn=fn, epochs=5, batch_size=100)
    finally:
        leave()
    trained = kept[0]
    delay = next(data.open_examples(inputs[0].content, "eval", ["delay"]).read(0)).column(0).to_numpy()
    statistics = trained.params["state"]["norm"]
    weights = trained.params["params"]
    normal = (delay - statistics["mean"]) / np.sqrt(statistics["var"] + 1e-5)
    normal = normal * weights["norm"]["scale"] + weights["norm"]["bias"]
    logits = normal * weights["out"]["kernel"][0] + weights["out"]["bias"]
    rows = raw(500, 1).select(["delay", "carrier"]).to_batches()[0]
    predicted = engine.Bundle.load(model.content).run("predict", rows)["probability"]
    np.testing.assert_allclose(predicted[: len(delay)], 1 / (1 + np.exp(-logits)), atol=1e-5)
    history = json.loads((model.extra / "history.json").read_text())
    assert len(history["epochs"]) == 2
    assert history["stopped"].startswith("eval_loss was not better than")
    assert 0.5 < history["epochs"][0]["metrics"]["accuracy"] <= 1
    page = (model.extra / "report.html").read_text()
    assert "Ended early: eval_loss was not better" in page
    accuracies = [epoch["metrics"]["accuracy"] for epoch in history["epochs"]]
    assert history["kept_epoch"] == accuracies.index(max(accuracies)) + 1
    assert f"Exported are the parameters of epoch {history['kept_epoch']}." in page
    properties: dict[str, Any] = measured.properties
    exported = history["epochs"][history["kept_epoch"] - 1]
    expected = {"loss": exported["loss"], "eval_loss": exported["eval_loss"], **exported["metrics"]}
    assert properties["metrics"] == expected
    curves = {"loss": [epoch["loss"] for epoch in history["epochs"]], "accuracy": accuracies}
    assert {name: [value for _, value in properties["metric_steps"][name]] for name in curves} == curves
    assert "accuracy" in page


def test_a_model_that_cannot_be_exported_is_told_before_it_is_trained(
    inputs: tuple[Examples, TransformGraph], tmp_path: Path
) -> None:
    """Each of these trains well with batches of 100 rows."""
    import jax.numpy as jnp
    import optax
    from drivetrain.pipelines.project.context import LaunchContext, enter

    trained: list[int] = []

    def linear(params: Any, features: Any) -> Any:
        return features["delay"] * params["w"]

    def only_full_batches(params: Any, features: Any) -> Any:
        return jnp.take(linear(params, features), jnp.arange(int(features["delay"].shape[0])))

    shown = {"probability": jax.nn.sigmoid}
    for apply, outputs, told in (
        (
            only_full_batches,
            shown,
            r"test_trainer\.py:\d+: this depends on how many rows there are(?s:.*)on the number of rows",
        ),
        (linear, {"mean": jnp.mean}, "give one value or vector per row"),
        (linear, {"late": jax.nn.sigmoid}, "the label's name"),
    ):

        def fit(run: TrainingRun, apply: Any = apply, outputs: Any = outputs) -> Trained:
            return run.fit(
                engine.Model(lambda key: {"w": jnp.zeros(())}, apply),
                loss=lambda logits, batch: optax.sigmoid_binary_cross_entropy(logits, batch["late"]).mean(),
                predict=lambda logits: {name: fn(logits) for name, fn in outputs.items()},
                optimizer=optax.adam(0.1),
                label="late",
            )

        leave = enter(LaunchContext(work=tmp_path, progress=lambda done, total, unit: trained.append(done)))
        try:
            with pytest.raises(InputError) as caught:
                Trainer(*inputs, fn=fit, epochs=2, batch_size=100)
        finally:
            leave()
        assert re.search(told, str(caught.value)), str(caught.value)
        assert trained == []


@pytest.mark.slow
def test_two_trainings_give_equal_content(inputs: tuple[Examples, TransformGraph]) -> None:
    first, second = (Trainer(*inputs, fn=train, batch_size=256) for _ in range(2))
    assert digest_tree(first.content) == digest_tree(second.content)


@pytest.mark.slow
def test_64_bits_elsewhere_change_nothing(inputs: tuple[Examples, TransformGraph], tmp_path: Path) -> None:
    """JAX_ENABLE_X64 is the process's, and no part of a cache key."""
    source = data.open_examples(inputs[0].content, "train")

    def learn() -> engine.Bundle:
        return engine.analyze(lambda c: {"x": ops.z_score(c["delay"])}, source, data.executor("local"))

    graph, model = learn(), Trainer(*inputs, fn=train, batch_size=256)
    enable_x64: Any = jax.enable_x64  # JAX leaves it untyped
    with enable_x64(True):
        wide_graph, wide_model = learn(), Trainer(*inputs, fn=train, batch_size=256)
        predicted = engine.Bundle.load(wide_model.content).run_row("predict", {"delay": 1.0, "carrier": "AA"})
    assert wide_graph.to_files() == graph.to_files()
    assert digest_tree(wide_model.content) == digest_tree(model.content)
    assert predicted == engine.Bundle.load(model.content).run_row("predict", {"delay": 1.0, "carrier": "AA"})


def test_a_loop_of_ones_own(inputs: tuple[Examples, TransformGraph]) -> None:
    def fn(run: TrainingRun) -> Trained:
        rate = np.mean([batch["late"].mean() for epoch in range(run.epochs) for batch in run.batches("train", epoch)])
        params = {"logit": np.float32(np.log(rate / (1 - rate)))}
        run.log_dir.mkdir()
        (run.log_dir / "rate.txt").write_text(str(rate))
        return Trained(
            params,
            apply=lambda params, features: params["logit"] + 0 * features["delay"],
            predict=lambda logits: {"logit": logits},
            label="late",
        )

    model = Trainer(*inputs, fn=fn, batch_size=1000)
    outputs = engine.Bundle.load(model.content).run_row("predict", {"delay": 1.0, "carrier": "AA"})
    share = np.mean(raw(2000, 0)["arrival"].to_numpy() > 15.0)
    assert outputs["logit"] == pytest.approx(np.log(share / (1 - share)), abs=1e-4)
    assert "recorded no history" in (model.extra / "report.html").read_text()
    assert float((model.extra / "logs" / "rate.txt").read_text()) == pytest.approx(share)


@pytest.mark.parametrize("end", ["return run", "sys.exit(3)"])
def test_a_process_that_the_function_forks_does_not_go_on_after_it(end: str) -> None:
    """Two would publish, or end the same trial twice. Forked in a process without JAX."""
    script = f"""
import os, sys
from drivetrain.components.trainer import call_train
from drivetrain.errors import InputError
def train(run):
    if os.fork() == 0:
        {end}
    assert os.wait()[1] == 0
    return "the parent"
try:
    call_train(train, None)
except BaseException as error:
    print(f"{{type(error).__name__}}: {{error.message}}", flush=True)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines() == ["InputError: train returned a str, not Trained"], done.stderr


def test_what_is_refused(inputs: tuple[Examples, TransformGraph], tmp_path: Path) -> None:
    def broken(run: TrainingRun) -> Trained:
        return Trained({"a": {"b": np.full(3, np.nan, np.float32)}}, lambda p, f: 0, lambda o: {}, "late")

    with pytest.raises(InputError, match=r"parameter a\.b holds NaN"):
        Trainer(*inputs, fn=broken)
    with pytest.raises(InputError, match="returned nothing, not Trained"):
        Trainer(*inputs, fn=lambda run: None)
    with pytest.raises(InputError, match="epochs is 0"):
        Trainer(*inputs, fn=train, epochs=0)
    with pytest.raises(InputError, match="batch_size is -1"):
        Trainer(*inputs, fn=train, batch_size=-1)
    for seed in (-1, 2**32):
        with pytest.raises(InputError, match=f"seed is {seed}"):
            Trainer(*inputs, fn=train, seed=seed)
    with pytest.raises(InputError, match="no strategy 'mirrored'"):
        Trainer(*inputs, fn=train, strategy="mirrored")
    with pytest.raises(InputError, match="split 'test'"):
        Trainer(*inputs, fn=train, train_split="test")
    with pytest.raises(InputError, match="2000 rows, fewer than one batch of 4000"):
        Trainer(*inputs, fn=train, batch_size=4000)
    with pytest.raises(InputError, match=r"no 'nope' in run.features \(KeyError\)") as caught:
        Trainer(*inputs, fn=lambda run: run.features["nope"])
    assert (caught.value.where or "").startswith(f"{__file__}:")


def test_a_graph_that_made_other_examples_is_refused(inputs: tuple[Examples, TransformGraph]) -> None:
    """Their outputs have the same names and types, so that nothing else would tell."""

    def doubled(columns: Any) -> dict[str, Any]:
        return {**preprocess(columns), "delay": 2 * ops.z_score(ops.fill_missing(columns["delay"], 0.0))}

    graph = TransformGraph.new()
    engine.analyze(doubled, raw(2000, 0)).save(graph.content)
    with pytest.raises(InputError, match="these examples were made by another graph"):
        Trainer(inputs[0], graph, fn=train)


JUDGED = EvaluationConfig(label="late", prediction="probability")


def test_what_the_models_own_transform_made_is_neither_judged_nor_predicted(
    inputs: tuple[Examples, TransformGraph], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be transformed a second time, and where columns keep their names nothing else would tell."""
    coming: dict[str, Any] = {}
    context = replace(current(), preflight=lambda name, facts: coming.update({name: facts}))
    monkeypatch.setattr("drivetrain.components.trainer.current", lambda: context)
    model = Trainer(*inputs, fn=train, batch_size=100)
    config = FunctionRef(None, f"{__name__}:JUDGED")
    known = {"examples": inputs[0], "split": "train", "config": config, "splits": None, "keep": None}
    assert Evaluator.preflight is not None
    assert BulkInferrer.preflight is not None
    for use in (
        lambda: Evaluator(inputs[0], model, config=config, split="train"),
        lambda: BulkInferrer(inputs[0], [model], require_blessing=False),
        lambda: Evaluator.preflight(known, coming),
        lambda: BulkInferrer.preflight(known, coming),
    ):
        with pytest.raises(InputError, match="these examples are transformed already"):
            use()


@pytest.mark.slow
def test_a_stopped_training_goes_on(inputs: tuple[Examples, TransformGraph], tmp_path: Path) -> None:
    """The launch's work folder carries the checkpoint from one attempt to the next."""
    from drivetrain.pipelines.project.context import LaunchContext, enter

    def stop(done: int, total: int | None, unit: str) -> None:
        assert (total, unit) == (8000, "examples")
        if done > 4000:
            raise Canceled("stop")

    whole = Trainer(*inputs, fn=train, epochs=4, batch_size=100)
    notes: list[str] = []
    leave = enter(LaunchContext(work=tmp_path, progress=stop))
    try:
        with pytest.raises(Canceled):
            Trainer(*inputs, fn=train, epochs=4, batch_size=100)
    finally:
        leave()
    leave = enter(LaunchContext(work=tmp_path, note=notes.append))
    try:
        resumed = Trainer(*inputs, fn=train, epochs=4, batch_size=100)
    finally:
        leave()
    history = json.loads((resumed.extra / "history.json").read_text())
    assert history["resumed_at_step"] >= 40
    assert history["examples"] == 8000 - 100 * history["resumed_at_step"]
    assert digest_tree(resumed.content) == digest_tree(whole.content)
    assert f"training resumed at step {history['resumed_at_step']} of 80" in notes
    kept = sorted((resumed.extra / "checkpoints").iterdir())  # the first at or after steps 30 and 60
    assert [int(path.name) // 30 for path in kept] == [1, 2]
    assert engine.read_checkpoint(kept[1])["params.delay.kernel"].shape == (1, 1)
    assert not (whole.extra / "checkpoints").exists()  # there was no work folder
