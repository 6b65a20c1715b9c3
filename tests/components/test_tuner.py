"""Tuner as a component: trials are what Trainer trains, what it refuses, and what comes of a search."""

from __future__ import annotations

import gc
import importlib.util
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import textwrap
import time
import weakref
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import drivetrain as dt
import numpy as np
import psutil
import pyarrow as pa
import pytest
from drivetrain import data
from drivetrain.components import Trainer, Tuner
from drivetrain.components.tuning.results import read
from drivetrain.components.tuning.trial import ReadHyperparameters, Training, run_trial
from drivetrain.engine.training.fit import Fit
from drivetrain.errors import BuildError, Canceled, InputError
from drivetrain.metadata import Examples, MetadataStore, TransformGraph, TuningResults, summary_of
from drivetrain.pipelines import FunctionRef, Home, LaunchContext, RunOptions, current, load_pipeline, run_pipeline
from drivetrain.pipelines.project.context import enter
from drivetrain.pipelines.project.metrics import Metrics
from drivetrain.tests.living import lives
from drivetrain.tests.pipelines.faulty import waits

pytest.importorskip("optuna")
pytestmark = pytest.mark.engine

MODEL = '''
"""A logistic regression in plain JAX, and functions that train nothing."""
from drivetrain.engine import EpochRecord, Model, Trained, ops


def preprocess(columns):
    return {"x": ops.z_score(columns["x"]), "late": ops.cast(columns["y"] > 0.0, "float32")}


def train(run):
    import jax
    import jax.numpy as jnp
    import optax

    def apply(params, features):
        return features["x"] * params["w"] + params["b"]

    def loss(logits, batch):
        return optax.sigmoid_binary_cross_entropy(logits, batch["late"]).mean()

    scale = run.hyperparameters.get("scale", 1.0)
    return run.fit(
        Model(lambda key: {"w": jax.random.normal(key, ()), "b": jnp.zeros(())}, apply),
        loss=loss,
        predict=lambda logits: {"probability": jax.nn.sigmoid(logits * scale)},
        optimizer=optax.sgd(run.hyperparameters["rate"]),
        label="late",
        metrics={"accuracy": lambda logits, batch: jnp.mean((logits > 0) == (batch["late"] > 0))},
    )


def by_case(run):
    """Training by a rate that is right or none at all; or nothing that works."""
    if run.hyperparameters["case"] == "broken":
        raise ValueError("no such case")
    run.hyperparameters["rate"] = 5.0 if run.hyperparameters["case"] == "good" else 0.0
    return train(run)


def exploding(run):
    """Updates that are far too large from the second epoch on, which the first rollback makes small enough."""
    import jax
    import jax.numpy as jnp
    import optax
    from drivetrain.engine import Rollback

    def loss(logits, batch):
        losses = optax.sigmoid_binary_cross_entropy(logits, batch["late"])
        return losses.mean() + jnp.where(jnp.abs(logits).max() > 1e6, jnp.inf, 0.0)

    return run.fit(
        Model(lambda key: {"w": jnp.zeros(())}, lambda params, features: features["x"] * params["w"]),
        loss=loss,
        predict=lambda logits: {"probability": jax.nn.sigmoid(logits)},
        optimizer=optax.sgd(lambda count: jnp.where(count < 4, 0.5, 1e30)),
        label="late",
        rollback=Rollback(factor=1e-31),
    )


def quick(run, value=lambda h, seed: (h["x"] - 0.3) ** 2):
    """What training would give: losses that fall to a value, and are best in the epoch before the last."""
    reached = value(run.hyperparameters, run.seed)
    records = [
        EpochRecord(epoch, 1, 9.0, reached + 1 / epoch, {"accuracy": 1 - reached}) for epoch in range(1, run.epochs)
    ]
    last = EpochRecord(run.epochs, 1, 9.0, reached + 1, {"accuracy": 0.5 - reached})
    return Trained({}, None, None, "late", history=(*records, last))
'''


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tuned")
    (folder / "model.py").write_text(MODEL)
    return folder


@pytest.fixture(scope="module")
def model(project: Path) -> Any:
    spec = importlib.util.spec_from_file_location("tuned_model", project / "model.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory, model: Any) -> tuple[Examples, TransformGraph]:
    """Transformed examples and the graph, as Transform makes them."""
    import pyarrow.parquet as pq
    from drivetrain import engine

    folder, random = tmp_path_factory.mktemp("examples"), np.random.default_rng(0)
    sources = {}
    for split, rows in (("train", 400), ("eval", 100)):
        x = random.normal(size=rows)
        pq.write_table(pa.table({"x": x, "y": x + random.normal(size=rows)}), folder / f"{split}.parquet")
        sources[split] = data.open_parquet([folder / f"{split}.parquet"])
    graph, examples = TransformGraph.new(), Examples.new()
    engine.analyze(model.preprocess, sources["train"], data.executor("local")).save(graph.content)
    engine.apply(graph.content, sources, examples.content, data.executor("local"))
    return examples, graph


def test_the_best_hyperparameters_train_what_the_best_trial_trained(inputs: Any, model: Any) -> None:
    notes: list[str] = []
    measured = Metrics()
    leave = enter(LaunchContext(note=notes.append, metrics=measured))
    try:
        tuned = Tuner(
            *inputs, fn=model.train, sampler="random", trials=3, epochs=2, batch_size=100, seed=4,
            space={"rate": dt.log_uniform(1e-2, 10.0), "unread": dt.choice(1, 2)}, hyperparameters={"scale": 2.0},
        )  # fmt: skip
    finally:
        leave()
    body = read(tuned.results.content)
    assert len(body["trials"]) == 3
    for trial in body["trials"]:
        chosen = {**trial["hyperparameters"], "scale": 2.0}
        trained = Trainer(*inputs, fn=model.train, epochs=2, batch_size=100, seed=4, hyperparameters=chosen)
        epochs = json.loads((trained.extra / "history.json").read_text())["epochs"]
        assert trial["curve"] == [[epoch["eval_loss"]] for epoch in epochs]
        assert trial["values"] == {"eval_loss": epochs[-1]["eval_loss"]}
    best = min(body["trials"], key=lambda trial: trial["values"]["eval_loss"])
    assert tuned.best_hyperparameters == {**best["hyperparameters"], "scale": 2.0}
    assert tuned.results.best == tuned.best_hyperparameters
    assert tuned.results.values == best["values"]
    assert measured.properties["metrics"]["best_eval_loss"] == best["values"]["eval_loss"]  # type: ignore[index]
    falling = [trial["values"]["eval_loss"] for trial in body["trials"]]
    points = [[number, min(falling[: number + 1])] for number in range(3)]
    assert measured.properties["metric_steps"]["best_eval_loss"] == points  # type: ignore[index]
    assert "no trial asked for 'unread': the function does not read it" in notes
    summary = summary_of(tuned.results)
    assert summary.columns == ("", "eval_loss", "rate", "unread")
    assert summary.rows[0][0] == f"trial {best['number']}"
    assert summary.numbers == {"best eval_loss": best["values"]["eval_loss"]}
    assert summary.report
    page = (tuned.results.extra / "report.html").read_text()
    assert "Parallel coordinates" in page
    assert "Best so far" in page


def test_a_trial_that_is_interrupted_goes_on_from_its_checkpoint(inputs: Any, model: Any, tmp_path: Path) -> None:
    training = training_of(model.train, inputs)
    whole = run_trial(training, {"rate": 0.5}, tmp_path / "whole", Listener(4))
    assert [each for each in gc.get_objects() if type(each) is Fit] == []  # a search of a thousand trials has room
    stopped = Listener(2)

    def stop(done: int, total: int | None, unit: str) -> None:
        if stopped.epochs == 2:
            raise Canceled("stopped")

    with pytest.raises(Canceled):
        run_trial(training, {"rate": 0.5}, tmp_path / "work", stopped, progress=stop)
    again = Listener(4)
    outcome = run_trial(training, {"rate": 0.5}, tmp_path / "work", again)
    assert (outcome.state, outcome.values, outcome.curve) == ("COMPLETE", whole.values, whole.curve)
    assert any("training resumed at step 8 of 16" in note for note in again.notes)
    assert not (tmp_path / "work").exists()


def test_a_trial_tells_an_epoch_by_its_number_though_one_before_was_rolled_back(
    inputs: Any, model: Any, tmp_path: Path
) -> None:
    """A pruner compares trials by it."""
    heard: list[int] = []

    class Hearing(Listener):
        def epoch(self, curve: Any) -> str | None:
            heard.append(len(curve))
            return None

    training = replace(training_of(model.exploding, inputs), epochs=8)
    outcome = run_trial(training, {}, tmp_path / "work", Hearing(8))
    trained = Trainer(*inputs, fn=model.exploding, epochs=8, batch_size=100)
    epochs = {epoch["epoch"]: epoch for epoch in json.loads((trained.extra / "history.json").read_text())["epochs"]}
    assert list(epochs) == heard == [1, 3, 4, 5, 6, 7, 8]
    assert outcome.to_json()["curve"] == [[epochs.get(epoch, {}).get("eval_loss")] for epoch in range(1, 9)]


def test_a_pruner_ends_a_training_after_an_epoch(inputs: Any, model: Any, tmp_path: Path) -> None:
    tuned = Tuner(
        *inputs, fn=model.train, space={"rate": dt.choice(5.0, 1e-6, 1e-7, 1e-8)}, sampler="grid", pruner="asha",
        epochs=4, batch_size=100,
    )  # fmt: skip
    trials = read(tuned.results.content)["trials"]
    assert [trial["state"] for trial in trials] == ["COMPLETE", "PRUNED", "PRUNED", "PRUNED"]
    assert {len(trial["curve"]) for trial in trials[1:]} <= {1, 2, 3}
    assert tuned.best_hyperparameters == {"rate": 5.0}
    assert "3 stopped early" in summary_of(tuned.results).text


def training_of(fn: Any, inputs: Any) -> Training:
    examples, graph = inputs
    return Training(
        fn=fn, examples=examples.content, graph=graph.content, base_model=None,
        objectives=objectives(), hyperparameters={}, epochs=4, batch_size=100, seed=0, strategy="single",
        train_split="train", eval_split="eval", executions=1, epoch="last",
    )  # fmt: skip


class Circle:
    def __init__(self) -> None:
        self.itself = self


@pytest.mark.parametrize("old", [False, True])
def test_what_a_training_leaves_in_circles_is_freed(inputs: Any, model: Any, tmp_path: Path, old: bool) -> None:
    left: list[weakref.ref[Circle]] = []

    def train(run: Any) -> Any:
        circle = Circle()
        left.append(weakref.ref(circle))
        if old:
            gc.collect()
            gc.collect()
        return model.quick(run)

    assert run_trial(training_of(train, inputs), {"x": 0.5}, tmp_path / "work", Listener(4)).state == "COMPLETE"
    assert [circle() for circle in left] == [None]


class Listener:
    """Keeps what a trial says."""

    def __init__(self, epochs: int) -> None:
        self.epochs, self.notes = 0, list[str]()

    def monitored(self, names: Any) -> None:
        assert "eval_loss" in names

    def epoch(self, curve: Any) -> str | None:
        self.epochs = len(curve)
        return None

    def note(self, text: str) -> None:
        self.notes.append(text)


def objectives() -> Any:
    from drivetrain.components.tuning.objective import objectives_of

    return objectives_of("eval_loss")


SPACE = {"x": dt.uniform(-1.0, 1.0, step=0.25)}


def test_a_training_counts_by_its_last_epoch_or_its_best(inputs: Any, model: Any) -> None:
    for epoch, more in (("last", 1.0), ("best", 1 / 3)):
        tuned = Tuner(*inputs, fn=model.quick, space=SPACE, sampler="grid", epochs=4, epoch=epoch)
        assert tuned.best_hyperparameters == {"x": 0.25}
        assert tuned.results.values["eval_loss"] == pytest.approx(0.05**2 + more)


def test_a_trial_is_as_good_as_the_mean_of_its_trainings(inputs: Any, model: Any) -> None:
    def noisy(run: Any) -> Any:
        return model.quick(run, lambda h, seed: h["x"] + 0.1 * math.sin(seed))

    tuned = Tuner(*inputs, fn=noisy, space=SPACE, sampler="grid", executions_per_trial=3, seed=7)
    means = statistics.fmean(0.1 * math.sin(seed) for seed in (7, 8, 9))
    for trial in read(tuned.results.content)["trials"]:
        assert trial["values"]["eval_loss"] == pytest.approx(trial["hyperparameters"]["x"] + means + 1)


def test_several_objectives_have_a_front(inputs: Any, model: Any) -> None:
    def train(run: Any) -> Any:
        x = run.hyperparameters["x"]
        trained = model.quick(run)
        record = replace(trained.history[-1], eval_loss=abs(x), metrics={"accuracy": x})
        return replace(trained, history=(record,))

    tuned = Tuner(*inputs, fn=train, space=SPACE, sampler="grid", objective={"accuracy": "max", "eval_loss": "min"})
    assert tuned.best_hyperparameters == {"x": 1.0}
    body = read(tuned.results.content)
    assert [body["trials"][number]["hyperparameters"]["x"] for number in body["pareto"]] == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert "Pareto front" in (tuned.results.extra / "report.html").read_text()
    assert "none is better than these in all objectives: 4, 5, 6, 7, 8" in summary_of(tuned.results).text


def test_an_earlier_search_is_gone_on_with(inputs: Any, model: Any) -> None:
    first = Tuner(*inputs, fn=model.quick, space=SPACE, sampler="grid")
    second = Tuner(*inputs, fn=model.quick, space=SPACE, trials=3, sampler="random", earlier=first.results)
    trials = read(second.results.content)["trials"]
    assert len(trials) == 3
    assert trials[0]["hyperparameters"] == first.best_hyperparameters
    notes: list[str] = []
    leave = enter(LaunchContext(note=notes.append))
    try:
        other = {"x": dt.uniform(0.5, 1.0), "y": dt.choice(1, 2)}
        Tuner(*inputs, fn=model.quick, space=other, trials=1, earlier=first.results)
    finally:
        leave()
    assert notes[:2] == [
        "the best hyperparameters of the earlier search are not tried: 'x' cannot be 0.25",
        "9 trials of the earlier search are not of this space: the sampler does not know them",
    ]


def test_a_loop_of_ones_own_tells_its_metrics(inputs: Any, model: Any) -> None:
    from drivetrain.engine import Trained

    def train(run: Any) -> Trained:
        current().metric("error", abs(run.hyperparameters["x"] - 0.3))
        return Trained({}, None, None, "late")  # type: ignore[arg-type]

    tuned = Tuner(*inputs, fn=train, space=SPACE, sampler="grid", objective={"error": "min"})
    assert tuned.best_hyperparameters == {"x": 0.25}


@pytest.mark.parametrize("epoch", ["last", "best"])
@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_an_objective_that_is_not_finite_is_named_as_it_was(
    inputs: Any, model: Any, tmp_path: Path, value: float, epoch: Any
) -> None:
    from drivetrain.engine import Trained

    def train(run: Any) -> Any:
        return model.quick(run, lambda h, seed: value)

    def of_its_own(run: Any) -> Trained:
        current().metric("eval_loss", value if run.seed else -value)
        return Trained({}, None, None, "late")  # type: ignore[arg-type]

    for fn, executions, expected in ((train, 1, value), (of_its_own, 1, -value), (of_its_own, 2, -value)):
        training = replace(training_of(fn, inputs), epoch=epoch, executions=executions)
        outcome = run_trial(training, {"x": 0.0}, tmp_path / "work", Listener(4))
        assert (outcome.state, outcome.reason) == ("FAILED", f"eval_loss is {expected}")


def test_a_trial_that_fails_says_why_and_the_others_go_on(inputs: Any, model: Any) -> None:
    def train(run: Any) -> Any:
        if run.hyperparameters["x"] < -0.8:
            raise InputError("x is too small", fix="begin at -0.5")
        if run.hyperparameters["x"] < -0.5:
            raise ValueError("too small")
        if run.hyperparameters["x"] > 0.5:
            return model.quick(run, lambda h, seed: math.nan)
        return model.quick(run)

    tuned = Tuner(*inputs, fn=train, space=SPACE, sampler="grid")
    trials = read(tuned.results.content)["trials"]
    assert [trial["state"] for trial in trials] == ["FAILED"] * 2 + ["COMPLETE"] * 5 + ["FAILED"] * 2
    assert trials[0]["reason"] == "x is too small; fix: begin at -0.5"
    assert "too small" in trials[1]["reason"]
    assert "test_tuner.py" in trials[1]["reason"]
    assert trials[-1]["reason"] == "eval_loss is nan"
    assert "4 failed; trial 0: x is too small; fix: begin at -0.5" in summary_of(tuned.results).text.splitlines()


def test_what_a_search_finds_out_while_it_works(inputs: Any, model: Any) -> None:
    def failing(run: Any) -> Any:
        raise ValueError("no such file")

    with pytest.raises(InputError, match=r"none of 5 trials completed; the first: .*no such file"):
        Tuner(*inputs, fn=failing, space=SPACE, sampler="grid")
    with pytest.raises(InputError, match="does not read 'rate', which is searched") as error:
        Tuner(*inputs, fn=model.quick, space={"rate": dt.choice(1, 2)}, hyperparameters={"x": 0.1}, sampler="grid")
    assert "it asks for 'x'" in str(error.value)
    with pytest.raises(InputError, match="no trial records the objective 'acuracy'"):
        Tuner(
            *inputs, fn=model.train, space={"rate": dt.choice(0.1, 0.2)}, sampler="grid", objective={"acuracy": "max"},
            batch_size=100,
        )  # fmt: skip


def test_reading_in_any_way_is_seen() -> None:
    ways: list[Any] = [
        lambda h: h["a"], lambda h: h.get("a"), lambda h: "a" in h, lambda h: {**h}, lambda h: dict(h),
        lambda h: list(h), lambda h: (lambda **names: names)(**h), lambda h: h.items(), lambda h: list(h.values()),
        lambda h: h.copy(), lambda h: h | {"b": 2}, lambda h: {"b": 2} | h,
    ]  # fmt: skip
    for way in ways:
        hyperparameters = ReadHyperparameters({"a": 1})
        way(hyperparameters)
        assert hyperparameters.read == {"a"}
        assert json.loads(json.dumps(hyperparameters)) == {"a": 1}


@pytest.fixture
def in_folder(tmp_path: Path) -> Iterator[list[str]]:
    """A launch with a folder for its work, and what it notes."""
    notes: list[str] = []
    leave = enter(LaunchContext(work=tmp_path / "work", note=notes.append))
    yield notes
    leave()


@pytest.mark.slow
def test_trials_are_compared_by_tensorboard(
    inputs: Any, model: Any, in_folder: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The callback shows all hyperparameters, and reads none of them: the function does."""
    pytest.importorskip("tensorboardX")
    from drivetrain.components.tuning import results
    from drivetrain.engine import TensorBoard, TrainingRun
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams import metadata, plugin_data_pb2

    fit = TrainingRun.fit
    board = lambda run, *args, **options: fit(run, *args, callbacks=[TensorBoard(histograms=False)], **options)  # noqa: E731
    monkeypatch.setattr(TrainingRun, "fit", board)
    search: Any = {
        "fn": model.train, "space": {"rate": dt.choice(0.1, 2.0), "unread": dt.choice(7, 8)}, "sampler": "grid",
        "epochs": 2, "batch_size": 100,
    }  # fmt: skip
    tuned = Tuner(*inputs, **search)
    assert any("no trial asked for 'unread'" in note for note in in_folder)
    trials = {str(trial["number"]): trial for trial in read(tuned.results.content)["trials"]}
    logs = tuned.results.extra / "logs"
    assert sorted(path.name for path in logs.iterdir()) == sorted(trials)
    for number, trial in trials.items():
        events = EventAccumulator(str(logs / number))
        events.Reload()
        assert events.Scalars("epoch/eval_loss")[-1].value == pytest.approx(trial["values"]["eval_loss"])
        content = events.SummaryMetadata(metadata.SESSION_START_INFO_TAG).plugin_data.content
        shown = plugin_data_pb2.HParamsPluginData.FromString(content).session_start_info.hparams
        assert {name: shown[name].number_value for name in trial["hyperparameters"]} == trial["hyperparameters"]
    size = max(sum(path.stat().st_size for path in (logs / number).iterdir()) for number in trials)
    monkeypatch.setattr(results, "_LOGS", size + 10)
    bounded = Tuner(*inputs, **search)  # the search has ended: it trains nothing, and the logs are there still
    best = str(read(bounded.results.content)["best"])
    assert [path.name for path in (bounded.results.extra / "logs").iterdir()] == [best]
    assert any("the logs of 3 trials are left out" in note for note in in_folder)


def test_a_trainer_takes_the_results_and_replaces_what_it_is_told(inputs: Any) -> None:
    def train(run: Any) -> Any:
        raise InputError(json.dumps(run.hyperparameters, sort_keys=True))

    results = TuningResults.new(best={"rate": 0.5, "units": 64})
    with pytest.raises(InputError, match=r'^\{"rate": 0.1, "units": 64\}$'):
        Trainer(*inputs, tuned=results, fn=train, hyperparameters={"rate": 0.1})


@dt.component
def MakeExamples() -> Examples:
    """Stands for what makes transformed examples."""
    return Examples.new()


@dt.component
def MakeGraph() -> TransformGraph:
    """Stands for what makes their graph."""
    return TransformGraph.new()


def pipeline_of(**options: Any) -> Any:
    """A pipeline that tunes and trains, built."""

    def tuned_pipeline(epochs: int = 3) -> None:
        examples, graph, fn = MakeExamples(), MakeGraph(), "drivetrain.engine.ops:z_score"
        tuned = Tuner(examples, graph, fn=fn, epochs=epochs, **options)
        Trainer(examples, graph, fn=fn, hyperparameters=tuned.best_hyperparameters)
        Trainer.options(id="Again")(examples, graph, fn=fn, tuned=dt.latest(TuningResults))

    return dt.pipeline(tuned_pipeline).build()


def test_a_pipeline_holds_the_space_as_json() -> None:
    space = {"b": dt.log_uniform(1e-4, 0.1), "a": dt.choice("adam", "sgd")}
    body = json.dumps(json.loads(pipeline_of(space=space, trials=4).to_json()))
    assert '"log"' in body
    assert '"adam"' in body
    assert body.index('"b"') < body.index('"adam"')


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"space": SPACE}, "the search would never end"),
        ({"space": SPACE, "trials": 0}, "trials is 0"),
        ({"space": SPACE, "seconds": 0.0}, "seconds is 0.0"),
        ({"space": SPACE, "seconds": float("nan")}, "seconds is nan"),
        ({"space": SPACE, "seconds": float("inf")}, "seconds is inf"),
        ({"space": SPACE, "trials": 2, "sampler_seed": -1}, "sampler_seed is -1"),
        ({"space": SPACE, "trials": 2, "parallel": 0}, "parallel is 0"),
        ({"space": {}, "trials": 2}, "the search space is empty"),
        ({"space": {"x": 1}, "trials": 2}, "'x': 1 is no domain"),
        ({"space": {"x": dt.uniform(0, 1)}, "sampler": "grid"}, "whose range is continuous"),
        ({"space": SPACE, "trials": 2, "sampler": "tpee"}, "there is no sampler 'tpee'"),
        ({"space": SPACE, "trials": 2, "objective": "accuracy"}, "a smaller or a larger 'accuracy'"),
        ({"space": SPACE, "trials": 2, "eval_split": None}, "nothing but the loss is recorded"),
        ({"space": SPACE, "trials": 2, "hyperparameters": {"x": 1}}, "is searched, and has a fixed value too"),
        ({"space": SPACE, "trials": 2, "first": [{"x": 3.0}]}, "'x' cannot be 3.0"),
        ({"space": SPACE, "trials": 2, "epoch": "first"}, "there is no epoch 'first'"),
    ],
)
def test_a_search_that_cannot_be_is_refused_when_the_pipeline_is_built(options: Any, says: str) -> None:
    with pytest.raises(BuildError) as error:
        pipeline_of(**options)
    assert says in str(error.value)
    assert "test_tuner.py" in (error.value.where or "")


def test_building_imports_no_optuna(tmp_path: Path) -> None:
    script = (
        "import sys, drivetrain as dt\n"
        "from drivetrain.components import Tuner\n"
        "from drivetrain.components.tuning.space import SearchSpace\n"
        "SearchSpace.read({'x': dt.uniform(0, 1)})\n"
        "assert not {'optuna', 'jax', 'sqlalchemy'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


TAKE = """
    import shutil
    import drivetrain as dt
    from drivetrain.components import Tuner
    from drivetrain.metadata import Examples, TransformGraph


    def taken(artifact, folder):
        shutil.copytree(folder, artifact.content, dirs_exist_ok=True)
        return artifact


    @dt.component
    def TakeExamples(*, folder: str) -> Examples:
        return taken(Examples.new(), folder)


    @dt.component
    def TakeGraph(*, folder: str) -> TransformGraph:
        return taken(TransformGraph.new(), folder)


    @dt.pipeline
    def cases(examples: str, graph: str, parallel: int = 1) -> None:
        Tuner(
            TakeExamples(folder=examples), TakeGraph(folder=graph), fn="model:by_case", epochs=3, batch_size=100,
            space={"case": dt.choice("good", "bad", "broken")}, sampler="grid", pruner="asha", parallel=parallel,
            hyperparameters={"rate": 1.0}, seed=4,
        )
"""


@pytest.mark.parametrize("runner", ["inline", pytest.param("process", marks=pytest.mark.slow)])
def test_each_trial_is_recorded_in_the_store(inputs: Any, tmp_path: Path, runner: str) -> None:
    """As study.json says of it; and a Tuner from the cache records none."""
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "pipeline.py").write_text(textwrap.dedent(TAKE))
    parameters = {name: str(each.content) for name, each in zip(("examples", "graph"), inputs, strict=True)}
    with closing(Home(tmp_path / ".drivetrain")) as home:
        for expected in ("COMPLETE", "CACHED"):
            result = run_pipeline(home, load_pipeline(tmp_path), parameters, RunOptions(runner=runner))
            assert result.nodes["Tuner"].state == expected
        [results] = home.store.artifacts(type="TuningResults")
        body = read(home.root / results.uri / "content")
        trials = home.store.executions(component="Trial")[::-1]
        states = {"COMPLETE": "COMPLETE", "CANCELED": "PRUNED", "FAILED": "FAILED"}
        assert [each["state"] for each in body["trials"]] == ["COMPLETE", "PRUNED", "FAILED"]
        for trial, said in zip(trials, body["trials"], strict=True):
            about = trial.properties
            assert (about["number"], states[trial.state]) == (said["number"], said["state"])
            assert about["hyperparameters"] == {**said["hyperparameters"], "rate": 1.0}
            assert trial.metrics == said["values"]
            assert (trial.error or "") == said["reason"]
            assert (about["epochs"], about["seed"]) == (len(said["curve"]), 4)
            assert {key: [each.type for each in several] for key, several in home.store.inputs(trial).items()} == {
                "examples": ["Examples"], "graph": ["TransformGraph"],
            }  # fmt: skip
        seconds = json.loads((home.root / results.uri / "extra" / "attempts.json").read_text())
        assert [each.seconds for each in trials] == [each["seconds"] for each in seconds]


@pytest.mark.slow
def test_processes_give_the_bytes_that_this_process_gives(inputs: Any, project: Path) -> None:
    options: dict[str, Any] = {
        "space": {"rate": dt.log_uniform(1e-2, 10.0), "scale": dt.choice(1.0, 2.0)},
        "sampler": "random", "trials": 4, "epochs": 2, "batch_size": 100,
    }  # fmt: skip
    fn = FunctionRef(project, "model:train")
    here = Tuner(*inputs, fn=fn, **options)
    there = Tuner(*inputs, fn=fn, parallel=2, **options)
    assert (there.results.content / "study.json").read_bytes() == (here.results.content / "study.json").read_bytes()
    assert there.best_hyperparameters == here.best_hyperparameters


PIPELINE = """
    import drivetrain as dt
    from drivetrain.components import ExampleGen, ImportSchema, Transform, Tuner


    @dt.pipeline
    def tuned(parallel: int = 2) -> None:
        examples = ExampleGen("data.csv", split_by="x")
        transform = Transform(examples, ImportSchema("schema.yaml"), fn="model:preprocess")
        Tuner(
            transform.examples, transform.graph, fn="model:train", sampler="random", trials=6, epochs=3, batch_size=20,
            parallel=parallel, space={"rate": dt.log_uniform(1e-2, 10.0)}, hyperparameters={"scale": 2.0},
        )
"""


@pytest.mark.slow
def test_a_run_that_is_killed_goes_on_with_its_search(project: Path, tmp_path: Path) -> None:
    """SIGKILL of the whole run while two processes train: they end with it, and the next run ends as if nothing was."""
    folder = tmp_path / "tuned"
    folder.mkdir()
    (folder / "model.py").write_text(MODEL)
    (folder / "pipeline.py").write_text(textwrap.dedent(PIPELINE))
    random = np.random.default_rng(0)
    lines = [f"{x},{x + noise}" for x, noise in random.normal(size=(300, 2))]
    (folder / "data.csv").write_text("\n".join(["x,y", *lines]) + "\n")
    (folder / "schema.yaml").write_text(
        "format: drivetrain.schema/1\nfeatures:\n  x: {type: float}\n  y: {type: float}\n"
    )
    path = os.pathsep.join(filter(None, sys.path))
    environment = {**os.environ, "PYTHONPATH": path}

    def start(root: str, *words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "drivetrain", "run", str(folder), "--root", str(tmp_path / root), *words]
        streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        return subprocess.Popen(command, env=environment, text=True, start_new_session=True, **streams)

    def study_of(root: str) -> bytes:
        (study,) = (tmp_path / root).glob("artifacts/Tuner/*/results/content/study.json")
        return study.read_bytes()

    killed = start("killed")
    journal: list[Path] = []
    while killed.poll() is None:
        journal = list((tmp_path / "killed").glob("work/nodes/*/study/journal.log"))
        if journal and journal[0].read_text().count('"result"') >= 2:
            break
        time.sleep(0.05)
    assert killed.poll() is None, killed.communicate()[0]
    processes = psutil.Process(killed.pid).children(recursive=True)
    assert len(processes) == 2
    killed.kill()
    output, _ = killed.communicate()
    assert killed.returncode == -signal.SIGKILL, output
    waits(lambda: not any(lives(process.pid) for process in processes))
    ended = journal[0].read_text().count('"result"')
    for root, words in (("killed", ()), ("whole", ("--param", "parallel=1"))):  # the bytes are those of any number
        output, _ = (run := start(root, *words)).communicate(timeout=250)
        assert run.returncode == 0, output
        shown = [line for line in output.splitlines() if "; the best is" in line or ": eval_loss" in line]
        assert len([line for line in shown if " trial " in line and "best of" not in line]) == (
            6 - ended if root == "killed" else 6
        ), output
    assert study_of("killed") == study_of("whole")
    with MetadataStore.open(tmp_path / "killed" / "metadata.db", readonly=True) as store:
        [search] = store.contexts("search")
        assert [run.name for run in store.parents(search)] == [run.name for run in store.contexts("run")][::-1]
        states = [(each.properties["number"], each.state) for each in store.executions(context=search)]
    assert sorted(number for number, state in states if state == "COMPLETE") == list(range(6))
    assert {state for _, state in states} == {"COMPLETE", "ABANDONED"}
