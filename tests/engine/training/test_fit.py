"""What `fit` can do beyond gradient and update, each against the same thing written by hand; resumed to the bit."""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pyarrow as pa
import pytest
from drivetrain.engine import (
    Callback,
    EarlyStopping,
    EpochRecord,
    Model,
    Trained,
    TrainingProgress,
    TrainingRun,
    function,
)
from drivetrain.engine.graphs.graph import FieldSpec
from drivetrain.engine.training import metrics
from drivetrain.engine.training.input import Dataset, from_arrays
from drivetrain.engine.training.model import nnx_model
from drivetrain.engine.training.program import Program
from drivetrain.engine.training.strategy import STRATEGIES
from drivetrain.engine.training.times import spelled_times
from drivetrain.errors import Canceled, InputError
from flax import nnx

pytestmark = pytest.mark.engine

SPECS = {name: FieldSpec("float32") for name in ("x", "z", "y")}
ROWS, BATCH = 512, 64
RATE = 0.05


def write(folder: Path, problem: ModuleType, **changes: Any) -> Path:
    """y = 2 x - z + 1 with noise, train and eval."""
    random = np.random.default_rng(0)

    def table(rows: int) -> pa.Table:
        x, z = random.normal(size=(2, rows)).astype(np.float32)
        columns = {"x": x, "z": z, "y": (2 * x - z + 1 + random.normal(size=rows) / 4).astype(np.float32)}
        for name, (row, value) in changes.items():
            columns[name][row] = value
        return pa.table(columns)

    content: Path = problem.write(folder, {"train": table(ROWS), "eval": table(BATCH * 2)})
    return content


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory, problem: ModuleType) -> Path:
    return write(tmp_path_factory.mktemp("fit"), problem)


@pytest.fixture
def run(content: Path) -> TrainingRun:
    """8 steps of 64 in each of 4 epochs."""
    return TrainingRun(SPECS, content, epochs=4, batch_size=BATCH, seed=3, depth=3)


def line(scale: float = 1.0) -> Model:
    return Model(
        init=lambda key: {"w": jnp.full(2, 0.5), "b": jnp.zeros(())},
        apply=lambda params, features: (
            (params["w"] * scale * jnp.stack([features["x"], features["z"]], -1)).sum(-1) + params["b"]
        ),
    )


def squared(outputs: Any, batch: Any) -> Any:
    return jnp.mean((outputs - batch["y"]) ** 2)


def fit(run: TrainingRun, model: Model | None = None, **options: Any) -> Trained:
    options = {"loss": squared, "optimizer": optax.sgd(RATE), "predict": lambda output: {"y_hat": output}} | options
    return run.fit(model or line(), label="y", **options)


def by_hand(
    run: TrainingRun, ema: float = 0.0, skipped: Callable[[Mapping[str, Any]], bool] = lambda batch: False
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Gradient descent on the line in float64, from the gradient's formula: averaged parameters after each epoch."""
    weights = average = np.array([0.5, 0.5, 0.0])
    epochs = []
    for epoch in range(run.epochs):
        for batch in run.batches("train", epoch):
            if not skipped(batch):
                matrix = np.stack([batch["x"], batch["z"], np.ones(BATCH)], -1).astype(np.float64)
                weights = weights - RATE * 2 / BATCH * matrix.T @ (matrix @ weights - batch["y"])
                average = ema * average + (1 - ema) * weights
        epochs.append(average)
    return average, epochs


def flat(params: Any) -> np.ndarray:
    return np.array([*params["w"], params["b"]])


def test_parameters_are_averaged(run: TrainingRun) -> None:
    average, epochs = by_hand(run, ema=0.9)
    trained = fit(run, ema=0.9)
    np.testing.assert_allclose(flat(trained.params), average, rtol=1e-5)
    batches = list(run.batches("eval"))
    outputs = [batch["x"] * average[0] + batch["z"] * average[1] + average[2] for batch in batches]
    expected = np.mean([np.mean((out - batch["y"]) ** 2) for out, batch in zip(outputs, batches, strict=True)])
    assert trained.history[-1].eval_loss == pytest.approx(expected, rel=1e-4)  # what will be served is what is judged
    assert np.abs(epochs[-1] - by_hand(run)[0]).max() > 0.01


def test_a_step_is_traced_once_whatever_types_the_parameters_begin_with(run: TrainingRun) -> None:
    traced = 0

    def loss(outputs: Any, batch: Any) -> Any:
        nonlocal traced
        traced += 1
        return squared(outputs, batch)

    model = Model(lambda key: {"w": jnp.full(2, 0.5), "b": 0.0}, line().apply)  # both of weak types
    trained = fit(run, model, loss=loss, optimizer=optax.adam(RATE), ema=0.5)
    assert trained.steps > run.depth > 1  # of more than one dispatch
    assert traced == 2  # for the step, and for the evaluation


def test_metrics_are_means_over_the_eval_split(run: TrainingRun) -> None:
    trained = fit(run, metrics={"mae": lambda outputs, batch: jnp.abs(outputs - batch["y"]).mean()})
    weights = flat(trained.params)
    errors = [
        np.abs(batch["x"] * weights[0] + batch["z"] * weights[1] + weights[2] - batch["y"]).mean()
        for batch in run.batches("eval")
    ]
    assert trained.history[-1].metrics == {"mae": pytest.approx(np.mean(errors), rel=1e-5)}


class Recorder(Callback):
    """Remembers what it was called with."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.weights: list[np.ndarray] = []

    def on_train_begin(self, progress: TrainingProgress) -> None:
        self.calls.append("begin")

    def on_step_end(self, progress: TrainingProgress, step: int, loss: float) -> None:
        self.calls.append(step)

    def on_epoch_end(self, progress: TrainingProgress, record: EpochRecord) -> None:
        self.calls.append(f"epoch {record.epoch}")
        variables = progress.variables()
        self.weights.append(flat(variables) if "w" in variables else np.zeros(0))

    def on_train_end(self, progress: TrainingProgress) -> None:
        self.calls.append("end")

    def state_dict(self) -> Mapping[str, Any]:
        return {"calls": self.calls}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.calls = list(state["calls"])


def test_callbacks_are_called_in_order(run: TrainingRun) -> None:
    recorder = Recorder()
    fit(run, callbacks=[recorder])
    steps = [call for call in recorder.calls if isinstance(call, int)]
    assert steps == list(range(1, 33))
    assert recorder.calls[0] == "begin"
    assert recorder.calls[8:10] == [8, "epoch 1"]
    assert recorder.calls[-3:] == [32, "epoch 4", "end"]
    np.testing.assert_allclose(recorder.weights, by_hand(run)[1], rtol=1e-5)


def test_where_the_time_goes_adds_up(run: TrainingRun, tmp_path: Path) -> None:
    class Slow(Callback):
        def on_epoch_end(self, progress: TrainingProgress, record: EpochRecord) -> None:
            time.sleep(0.1)

    begin = time.perf_counter()
    trained = fit(dataclasses.replace(run, work_dir=tmp_path, checkpoint_seconds=0.0), callbacks=[Slow()])
    whole = time.perf_counter() - begin
    assert sum(trained.seconds.values()) == pytest.approx(whole, abs=0.5)
    assert trained.seconds["host"] >= 0.4
    assert all(trained.seconds[part] > 0 for part in ("start", "input", "device", "evaluation", "checkpoints"))


def test_the_line_on_time_cuts_the_name_of_a_source_of_many_columns() -> None:
    source = f"files(4345 rows: {', '.join(f'column_{number}' for number in range(30))})"
    said = spelled_times({"input": 3.0, "device": 1.0}, {source: 2.5, "batch(64)": 0.1})
    assert said.endswith(f"; the longest at work in the input was {source[:58]}…), 2.5 s")


def test_a_callback_that_raises_is_named(run: TrainingRun, tmp_path: Path) -> None:
    class Broken(Callback):
        def on_step_end(self, progress: TrainingProgress, step: int, loss: float) -> None:
            if step == 20:
                raise KeyError("no such thing")

    kept = dataclasses.replace(run, work_dir=tmp_path, checkpoint_seconds=0.0)
    with pytest.raises(InputError, match=r"Broken\.on_step_end failed after step 20: .*no such thing") as caught:
        fit(kept, callbacks=[Broken()])
    assert "test_fit.py" in (caught.value.where or "")
    assert any((tmp_path / "checkpoints").iterdir())


def test_a_training_ends_early_with_its_best_parameters(run: TrainingRun) -> None:
    """With a rate that grows the loss falls first, then rises."""
    rising = optax.sgd(optax.linear_schedule(0.05, 1.4, 64))
    long = dataclasses.replace(run, epochs=12)
    recorder, notes = Recorder(), list[str]()
    trained = fit(
        dataclasses.replace(long, note=notes.append),
        optimizer=rising,
        callbacks=[recorder, EarlyStopping(patience=2)],
        keep_best="eval_loss",
    )
    losses = [float(record.eval_loss or 0) for record in trained.history]
    best = int(np.argmin(losses))
    assert best > 0
    assert len(losses) == best + 3 < 12
    np.testing.assert_array_equal(flat(trained.params), recorder.weights[best])
    assert trained.stopped.startswith("eval_loss was not better than ")
    assert any("training ends after this epoch" in note for note in notes)
    assert trained.kept_epoch == best + 1
    assert f"the parameters kept are those of epoch {best + 1}: eval_loss {losses[best]:.5f}" in notes
    assert trained.steps == 8 * len(losses)
    assert trained.curve[-1][0] == trained.steps
    last = fit(long, optimizer=rising, callbacks=[EarlyStopping(patience=2)])
    np.testing.assert_array_equal(flat(last.params), recorder.weights[-1])
    assert last.kept_epoch is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"keep_best": "eval_los"}, r"there is no 'eval_los' to monitor\n.*did you mean 'eval_loss'"),
        ({"keep_best": "mae"}, r"'mae' is better is not known\n.*keep_best=\(\"mae\", \"max\"\)"),
        ({"keep_best": True}, r"keep_best is True\n.*keep_best=\"eval_loss\""),
        ({"model": line}, r"the model is the function line, not a Model\n.*nnx_model"),
        ({"loss": "mse"}, r"loss is 'mse', not a function\n.*lambda outputs, batch"),
        ({"predict": None}, r"predict is None, not a function\n.*lambda outputs:"),
        ({"optimizer": "adam"}, r"the optimizer is 'adam'\n.*optax.adam\(1e-3\)"),
        ({"optimizer": optax.sgd}, r"the optimizer is the function sgd\n.*call it: optax.sgd\("),
        ({"metrics": ["accuracy"]}, r"metrics is \['accuracy'\], not functions by name"),
        (
            {"loss": lambda output: output.mean()},
            r"loss is called with \(outputs, batch\): .*\n.*loss=lambda",
        ),
        (
            {"metrics": {"a": lambda output: 0}},
            r"the metric 'a' is called with \(outputs, batch\): ",
        ),
        (
            {"metrics": {"a": metrics.f1}},
            r"is the function f1 of engine.metrics\n.*call it: metrics.f1\(lambda",
        ),
        ({"gradients": lambda params, batch: 0}, r"gradients is called with \(params, state, batch, key\): "),
        ({"callbacks": EarlyStopping()}, r"callbacks is of type EarlyStopping, not a list\n.*callbacks=\["),
        ({"callbacks": [EarlyStopping]}, r"callback EarlyStopping is a class\n.*EarlyStopping\("),
        ({"callbacks": [print]}, r"a callback is the function print\n.*engine.Callback"),
        ({"data": [1, 2]}, r"data is of type list, not a dataset of engine.input"),
        ({"eval_data": "eval"}, r"eval_data is 'eval', not a dataset of engine.input\n.*run.dataset\(\"eval\"\)"),
        ({"keep_best": ("acuracy", "max")}, "there is no 'acuracy' to monitor"),
        ({"keep_best": ("mae", "least")}, "there is no mode 'least'"),
        ({"ema": 1.0}, "ema is 1.0"),
        ({"precision": "bf16"}, "there is no precision 'bf16'"),
        ({"metrics": {"loss": squared}}, "a metric is called 'loss'"),
        (
            {"gradients": "adversarial"},
            r"gradients is 'adversarial', not a function\n.*lambda params, state, batch, key",
        ),
        ({"gradients": print, "precision": "float16"}, r"does not go with precision='float16'\n.*'bfloat16'"),
        ({"metrics": {"each": lambda outputs, batch: outputs}}, r"metric 'each' has shape \[64\]"),
    ],
)
def test_options_that_cannot_be(run: TrainingRun, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        fit(run, **{"metrics": {"mae": squared}} | options)


def test_a_method_that_nothing_calls_is_named(run: TrainingRun) -> None:
    class Misspelt(Callback):
        def on_epoch_ends(self, progress: TrainingProgress, record: EpochRecord) -> None: ...

    with pytest.raises(InputError, match=r"nothing calls Misspelt.on_epoch_ends\n.*did you mean 'on_epoch_end'"):
        fit(run, callbacks=[Misspelt()])


def test_early_stopping_refuses(run: TrainingRun) -> None:
    with pytest.raises(InputError, match="patience is 0"):
        EarlyStopping(patience=0)
    with pytest.raises(InputError, match="min_delta is -1"):
        EarlyStopping(min_delta=-1)
    with pytest.raises(InputError, match=r"no eval_loss to monitor.*no eval split"):
        fit(dataclasses.replace(run, eval_split=None), callbacks=[EarlyStopping()])
    with pytest.raises(InputError, match="there is no 'f1' to monitor"):
        fit(run, callbacks=[EarlyStopping("f1", mode="max")])


def test_steps_that_are_not_finite_are_left_out(tmp_path: Path, problem: ModuleType) -> None:
    broken = write(tmp_path, problem, x=(100, np.nan))
    run = TrainingRun(SPECS, broken, epochs=2, batch_size=BATCH, seed=1, eval_split=None)
    with pytest.raises(InputError, match=r"the loss is nan at step \d+ .*\n.*column 'x'"):
        fit(run)
    trained = fit(run, skip_nonfinite=True, ema=0.5)
    average, _ = by_hand(run, ema=0.5, skipped=lambda batch: bool(np.isnan(batch["x"]).any()))
    np.testing.assert_allclose(flat(trained.params), average, rtol=1e-5)
    assert [record.skipped for record in trained.history] == [1, 1]
    assert all(np.isfinite(record.loss) for record in trained.history)
    with pytest.raises(InputError, match=r"the loss or its gradients were not finite in \d+ steps"):
        fit(run, skip_nonfinite=True, loss=lambda outputs, batch: jnp.log(-1 - outputs**2).mean())


@pytest.mark.parametrize(("precision", "tolerance"), [("bfloat16", 0.03), ("float16", 0.005)])
def test_narrow_types_learn_the_same(run: TrainingRun, precision: str, tolerance: float) -> None:
    types: list[Any] = []

    def apply(params: Any, features: Any) -> Any:
        types.append((params["w"].dtype, features["x"].dtype))
        return line().apply(params, features)

    model = Model(line().init, apply)
    trained = fit(run, model, precision=precision)
    assert (jnp.dtype(precision), jnp.dtype(precision)) in types
    assert trained.params["w"].dtype == np.float32
    left_out = iter([True] * trained.history[0].skipped)  # while the scale was too large, at the beginning
    average, _ = by_hand(run, skipped=lambda batch: next(left_out, False))
    np.testing.assert_allclose(flat(trained.params), average, atol=tolerance)


def test_float16_scales_losses_whose_gradients_would_vanish(run: TrainingRun) -> None:
    """Of a loss times 1e-8 float16 has no gradient: unscaled it would be 0 in most of the parameters."""
    tiny = 1e-8
    trained = fit(
        run,
        loss=lambda outputs, batch: squared(outputs, batch) * tiny,
        optimizer=optax.sgd(RATE / tiny),
        precision="float16",
    )
    assert trained.history[0].skipped == 0
    np.testing.assert_allclose(flat(trained.params), by_hand(run)[0], atol=0.01)
    large = fit(
        run,
        loss=lambda outputs, batch: squared(outputs, batch) * 100,
        optimizer=optax.sgd(RATE / 100),
        precision="float16",
    )
    assert large.history[0].skipped > 0  # a scale of 2 ** 15 overflows, and halves until it does not
    assert large.history[-1].skipped == 0


class Normalised(nnx.Module):
    """Batch normalisation and dropout, as Flax has them."""

    def __init__(self, rate: float = 0.5, *, rngs: nnx.Rngs) -> None:
        self.hidden = nnx.Linear(2, 16, rngs=rngs)
        self.norm = nnx.BatchNorm(16, momentum=0.9, rngs=rngs)
        self.drop = nnx.Dropout(rate, rngs=rngs)
        self.out = nnx.Linear(16, 1, rngs=rngs)

    def __call__(self, features: Mapping[str, jax.Array]) -> jax.Array:
        hidden = nnx.relu(self.norm(self.hidden(jnp.stack([features["x"], features["z"]], -1))))
        return self.out(self.drop(hidden))[:, 0]


def test_batch_statistics_are_those_of_flaxs_own_loop(run: TrainingRun) -> None:
    trained = fit(run, nnx_model(lambda rngs: Normalised(0.0, rngs=rngs)))
    module: Any = nnx.jit(lambda key: Normalised(0.0, rngs=nnx.Rngs(key)))(run.key())
    module.train()
    optimizer = nnx.Optimizer(module, optax.sgd(RATE), wrt=nnx.Param)

    @nnx.jit
    def step(module: Any, optimizer: Any, batch: Any) -> None:
        gradients = nnx.grad(lambda module: squared(module(batch), batch))(module)
        optimizer.update(module, gradients)

    for epoch in range(run.epochs):
        for batch in run.batches("train", epoch):
            step(module, optimizer, batch)
    expected = nnx.to_pure_dict(nnx.state(module, nnx.BatchStat))
    for name in ("mean", "var"):
        np.testing.assert_allclose(trained.params["state"]["norm"][name], expected["norm"][name], rtol=1e-3, atol=1e-5)
    module.eval()
    batch = next(run.batches("eval"))
    features = {name: batch[name] for name in ("x", "z")}
    ours, theirs = jax.jit(trained.apply)(trained.params, features), nnx.jit(lambda module: module(features))(module)
    np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-4)


def test_a_module_in_place_of_what_builds_it_is_refused() -> None:
    module: Any = nnx.eval_shape(lambda: Normalised(0.0, rngs=nnx.Rngs(0)))
    with pytest.raises(InputError, match=r"not a Normalised\n.*nnx_model\(lambda rngs: Normalised\("):
        nnx_model(module)


def test_dropout_draws_anew_in_each_step_and_not_at_all_when_served() -> None:
    model = nnx_model(lambda rngs: Normalised(0.5, rngs=rngs))
    assert model.train is not None
    variables = jax.jit(model.init)(jax.random.key(0))
    features = {"x": np.ones(256, np.float32), "z": np.arange(256, dtype=np.float32)}
    step = jax.jit(model.step)

    def outputs(number: int) -> np.ndarray:
        return np.asarray(step(variables["params"], variables["state"], features, jax.random.key(number))[0])

    assert (outputs(1) == outputs(1)).all()
    assert (outputs(1) != outputs(2)).mean() > 0.9
    module: Any = nnx.jit(lambda key: Normalised(0.5, rngs=nnx.Rngs(key)))(jax.random.key(0))
    module.eval()
    ours, theirs = jax.jit(model.apply)(variables, features), nnx.jit(lambda module: module(features))(module)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)


def test_the_state_of_a_function_is_the_models(run: TrainingRun) -> None:
    @function
    def running_mean(state: Any, value: Any) -> Any:
        count = state["count"] + 1
        mean = state["mean"] + (value - state["mean"]) / count
        return {"count": count, "mean": mean}, mean

    def train(params: Any, state: Any, features: Any, key: Any) -> Any:
        state, mean = running_mean(state, features["x"].mean())
        return line().apply(params, {**features, "x": features["x"] - mean}), state

    model = Model(
        lambda key: {"params": line().init(key), "state": {"count": jnp.zeros(()), "mean": jnp.zeros(())}},
        lambda variables, features: line().apply(variables["params"], features),
        train,
    )
    state = fit(run, model).params["state"]
    means = [batch["x"].mean() for epoch in range(run.epochs) for batch in run.batches("train", epoch)]
    assert state["count"] == len(means) == 32
    assert state["mean"] == pytest.approx(np.mean(means), abs=1e-6)


def everything(run: TrainingRun, recorder: Recorder) -> Trained:
    """Dropout, batch statistics, averages, a scale of losses, a schedule, the best epoch, callbacks that remember."""
    return fit(
        run,
        nnx_model(lambda rngs: Normalised(rngs=rngs)),
        optimizer=optax.adam(optax.cosine_decay_schedule(0.05, 32)),
        ema=0.9,
        precision="float16",
        keep_best="eval_loss",
        callbacks=[recorder, EarlyStopping(patience=3)],
    )


@pytest.fixture(scope="module")
def uninterrupted(content: Path) -> tuple[Trained, Recorder]:
    recorder = Recorder()
    run = TrainingRun(SPECS, content, epochs=4, batch_size=BATCH, seed=3, depth=3)
    return everything(run, recorder), recorder


@pytest.mark.parametrize("stop", [19, *(pytest.param(step, marks=pytest.mark.slow) for step in (1, 7, 8, 24, 31))])
def test_resumed_anywhere_with_everything_on_the_bits_are_the_same(
    run: TrainingRun, uninterrupted: tuple[Trained, Recorder], problem: ModuleType, tmp_path: Path, stop: int
) -> None:
    def cancel(done: int, total: int | None, unit: str) -> None:
        if done >= stop * BATCH:
            raise Canceled("stop")

    expected, heard = uninterrupted
    with pytest.raises(Canceled):
        everything(dataclasses.replace(run, work_dir=tmp_path, progress=cancel), Recorder())
    recorder = Recorder()  # as of another process
    resumed = everything(dataclasses.replace(run, work_dir=tmp_path), recorder)
    assert resumed.first_step >= stop
    assert problem.digest(resumed.params) == problem.digest(expected.params)
    assert (resumed.history, resumed.curve, resumed.stopped) == (expected.history, expected.curve, expected.stopped)
    assert [call for call in recorder.calls if call != "begin"] == [call for call in heard.calls if call != "begin"]


class Stops(Callback):
    """Ends the training at a step; 0: at its begin."""

    def __init__(self, at: int) -> None:
        self.at = at

    def on_train_begin(self, progress: TrainingProgress) -> None:
        if self.at == 0:
            progress.stop("enough")

    def on_step_end(self, progress: TrainingProgress, step: int, loss: float) -> None:
        if step == self.at:
            progress.stop("enough")


@pytest.mark.parametrize(("at", "killed", "saved"), [(10, 11, 14), (0, 3, 6)])
def test_stopped_amid_an_epoch_and_resumed_it_ends_with_that_epoch(
    run: TrainingRun, problem: ModuleType, tmp_path: Path, at: int, killed: int, saved: int
) -> None:
    def cancel(done: int, total: int | None, unit: str) -> None:
        if done >= killed * BATCH:
            raise Canceled("stop")

    expected = fit(run, callbacks=[Stops(at)])
    assert [record.epoch for record in expected.history] == list(range(1, 2 + at // 8))
    with pytest.raises(Canceled):
        fit(dataclasses.replace(run, work_dir=tmp_path, progress=cancel), callbacks=[Stops(at)])
    for first in (saved, expected.steps):  # the last attempt has no step to do
        resumed = fit(dataclasses.replace(run, work_dir=tmp_path, role="trainer"), callbacks=[Stops(at)])
        assert resumed.first_step == first
        assert problem.digest(resumed.params) == problem.digest(expected.params)
        assert [record.loss for record in resumed.history] == [record.loss for record in expected.history]
        assert resumed.stopped == "enough"


class Extremes(Callback):
    """Remembers numbers that JSON does not know."""

    def __init__(self) -> None:
        self.remembered: dict[str, Any] = {"least": float("inf"), "last": [float("nan")], "epochs": 0}

    def on_epoch_end(self, progress: TrainingProgress, record: EpochRecord) -> None:
        self.remembered = {**self.remembered, "epochs": record.epoch}

    def state_dict(self) -> Mapping[str, Any]:
        return self.remembered

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.remembered = dict(state)


def test_what_is_no_number_is_kept_in_checkpoints_too(run: TrainingRun, tmp_path: Path) -> None:
    def cancel(done: int, total: int | None, unit: str) -> None:
        if done >= 19 * BATCH:
            raise Canceled("stop")

    undefined: Any = {"auc": lambda outputs, batch: jnp.nan * outputs.sum()}  # of one class alone, say
    with pytest.raises(Canceled):
        fit(dataclasses.replace(run, work_dir=tmp_path, progress=cancel), metrics=undefined, callbacks=[Extremes()])
    callback = Extremes()
    callback.remembered = {}
    trained = fit(dataclasses.replace(run, work_dir=tmp_path), metrics=undefined, callbacks=[callback])
    assert trained.first_step >= 19
    assert [np.isnan(record.metrics["auc"]) for record in trained.history] == [True] * 4
    assert callback.remembered["least"] == float("inf")
    assert np.isnan(callback.remembered["last"][0])
    assert callback.remembered["epochs"] == 4


def test_a_callback_that_remembers_no_json_is_named(run: TrainingRun, tmp_path: Path) -> None:
    callback = Extremes()
    callback.remembered = {"weights": np.zeros(2)}
    with pytest.raises(InputError, match=r"Extremes\.state_dict failed after step \d+: .*ndarray"):
        fit(dataclasses.replace(run, work_dir=tmp_path, checkpoint_seconds=0.0), callbacks=[callback])


def test_another_option_is_another_training(run: TrainingRun, tmp_path: Path) -> None:
    kept = dataclasses.replace(run, work_dir=tmp_path, checkpoint_seconds=0.0)
    fit(kept)
    with pytest.raises(InputError, match="belong to another training"):
        fit(kept, skip_nonfinite=True)


def test_what_optax_brings_works_as_the_page_says(run: TrainingRun) -> None:
    """Accumulated over two batches of 32 a step is one of 64; what is frozen stays; a rate is lowered on a plateau."""
    halves = dataclasses.replace(run, batch_size=BATCH // 2)
    accumulating = optax.MultiSteps(optax.sgd(RATE), 2).gradient_transformation()
    weights = np.array([0.5, 0.5, 0.0])
    pending = []
    for epoch in range(run.epochs):
        for batch in halves.batches("train", epoch):
            matrix = np.stack([batch["x"], batch["z"], np.ones(BATCH // 2)], -1).astype(np.float64)
            pending.append(4 / BATCH * matrix.T @ (matrix @ weights - batch["y"]))
            if len(pending) == 2:
                weights, pending = weights - RATE * np.mean(pending, axis=0), []
    np.testing.assert_allclose(flat(fit(halves, optimizer=accumulating).params), weights, rtol=1e-5)
    frozen = optax.partition(
        {"trained": optax.sgd(RATE), "frozen": optax.set_to_zero()}, {"w": "trained", "b": "frozen"}
    )
    trained = fit(run, optimizer=frozen)
    assert trained.params["b"] == 0
    assert (trained.params["w"] != 0.5).all()
    plateau = optax.chain(optax.sgd(RATE), optax.contrib.reduce_on_plateau(patience=1, rtol=0.9, factor=0.01))
    stalled = fit(run, optimizer=plateau)
    assert 0.5 < flat(stalled.params)[0] < 1.0  # no step after the first few
    weights = flat(fit(run, Model(line().init, jax.checkpoint(line().apply))).params)
    np.testing.assert_allclose(weights, by_hand(run)[0], rtol=1e-5)


def scaled(columns: Mapping[str, Any], random: np.random.Generator) -> dict[str, Any]:
    return {**columns, "x": columns["x"] + random.normal(size=len(columns["x"])) / 100}


def own_input(run: TrainingRun) -> Dataset:
    """The rows in other batches: a shuffle, noise and a prefetch of its own."""
    return run.dataset().shuffle(run.seed, window=200).map(scaled, seed=1).batch(BATCH).prefetch(3)


def test_a_dataset_of_the_users_is_trained_on(run: TrainingRun) -> None:
    weights = np.array([0.5, 0.5, 0.0])
    for batch in own_input(run).repeat(run.epochs):
        matrix = np.stack([batch["x"], batch["z"], np.ones(BATCH)], -1).astype(np.float64)
        weights = weights - RATE * 2 / BATCH * matrix.T @ (matrix @ weights - batch["y"])
    trained = fit(run, data=own_input(run))
    np.testing.assert_allclose(flat(trained.params), weights, rtol=1e-4)
    assert [record.steps for record in trained.history] == [8] * 4
    assert {"map(scaled, seed=1)", "stack", "to device"} < set(trained.input_seconds)
    longer = fit(run, data=own_input(run), steps_per_epoch=11)
    assert [record.steps for record in longer.history] == [11] * 4
    assert longer.examples == 44 * BATCH


def convolved() -> Model:
    """The line as a convolution over the two features, of which one value is left."""

    def apply(params: Any, features: Any) -> Any:
        rows = jnp.stack([features["x"], features["z"]], -1)[:, :, None]
        kernel = params["w"][:, None, None]
        sums = jax.lax.conv_general_dilated(rows, kernel, (1,), "VALID", dimension_numbers=("NWC", "WIO", "NWC"))
        return sums[:, 0, 0] + params["b"]

    return Model(line().init, apply)


@pytest.mark.parametrize("model", [line(), convolved()], ids=["loop", "one by one"])
def test_steps_one_by_one_are_those_of_a_loop(run: TrainingRun, tmp_path: Path, model: Model) -> None:
    def cancel(done: int, total: int | None, unit: str) -> None:
        if done >= 13 * BATCH:
            raise Canceled("stop")

    metrics = {"mae": lambda outputs, batch: jnp.abs(outputs - batch["y"]).mean()}
    expected = fit(run, line(), metrics=metrics)
    trained = fit(run, model, metrics=metrics)
    np.testing.assert_allclose(flat(trained.params), by_hand(run)[0], rtol=1e-5)
    for record, same in zip(trained.history, expected.history, strict=True):
        assert (record.loss, record.eval_loss) == pytest.approx((same.loss, same.eval_loss), rel=1e-5)
        assert record.metrics == pytest.approx(same.metrics, rel=1e-5)
    kept = dataclasses.replace(run, work_dir=tmp_path)
    with pytest.raises(Canceled):
        fit(dataclasses.replace(kept, progress=cancel), model, metrics=metrics)
    resumed = fit(kept, model, metrics=metrics)
    assert resumed.first_step >= 13
    np.testing.assert_array_equal(flat(resumed.params), flat(trained.params))
    assert resumed.history == trained.history


def test_each_program_is_compiled_once(run: TrainingRun, tmp_path: Path) -> None:
    """The steps, while there is no state yet; also where a training goes on from a checkpoint."""
    programs: list[str] = []

    def note(event: str, duration_secs: float, **about: str | int) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            programs.append(str(about["fun_name"]))

    jax.monitoring.register_event_duration_secs_listener(note)
    try:
        saving = dataclasses.replace(run, work_dir=tmp_path, checkpoint_seconds=0.0)
        fit(saving)
        fresh, programs[:] = Counter(programs), []
        assert fit(saving).first_step
    finally:
        jax.monitoring.unregister_event_duration_listener(note)
    resumed = Counter(programs)
    names = ("jit(initial)", "jit(_steps)", "jit(_sums)")
    assert [fresh[name] for name in names] == [1, 1, 1]
    assert [resumed[name] for name in names] == [0, 1, 1]


def test_convolutions_are_in_no_loop_on_a_processor(run: TrainingRun) -> None:
    """There XLA is many times as slow with them."""
    placement = STRATEGIES["single"].placement()
    stack, count = next(run.train_data.stacks(0, 0, 3))
    on_processor = placement.mesh.devices.flat[0].platform == "cpu"
    for model, in_loop in ((line(), True), (convolved(), not on_processor)):
        program = Program(model, squared, optax.sgd(RATE), "y", placement)
        state = program.initial(run.key()).compile()(run.key(), {})
        text = program.compiled(state, program.feed(stack)).lower(state, stack, count, 0, run.key()).as_text()
        assert ("stablehlo.while" in text) == in_loop


def test_a_dataset_gives_each_feature_in_its_shape(tmp_path: Path, problem: ModuleType) -> None:
    random = np.random.default_rng(0)
    pixels = random.integers(0, 256, (10, 2, 3)).astype(np.uint8)
    visits = [random.normal(size=(count % 3, 2)).astype(np.float32) for count in range(10)]
    table = pa.table({
        "pixels": pa.array(pixels.reshape(10, 6).tolist(), pa.list_(pa.uint8())),  # as Transform writes them
        "visits": pa.array([rows.tolist() for rows in visits], pa.list_(pa.list_(pa.float32()))),
        "y": random.normal(size=10).astype(np.float32),
    })  # fmt: skip
    content = problem.write(tmp_path, {"train": table})
    features = {
        "pixels": FieldSpec("uint8", (2, 3)),
        "visits": FieldSpec("list<float32>", (2,)),
        "y": FieldSpec("float32"),
    }
    (batch,) = TrainingRun(features, content).dataset().batch(10)
    np.testing.assert_array_equal(batch["pixels"], pixels)
    assert batch["pixels"].dtype == np.uint8
    np.testing.assert_array_equal(batch["visits"].values, np.concatenate(visits))
    assert np.diff(batch["visits"].splits).tolist() == [len(rows) for rows in visits]


def test_evaluation_on_a_dataset_of_the_users(run: TrainingRun) -> None:
    trained = fit(run, eval_data=run.dataset("eval").map(lambda columns: {**columns, "y": columns["y"] * 0}).batch(32))
    weights = flat(trained.params)
    batch = next(iter(run.dataset("eval").batch(BATCH * 2)))
    expected = np.mean((np.stack([batch["x"], batch["z"], np.ones(BATCH * 2)], -1) @ weights) ** 2)
    assert trained.history[-1].eval_loss == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("stopped", [3, 8, 13, 26])
def test_a_training_on_a_dataset_goes_on_exactly(run: TrainingRun, tmp_path: Path, stopped: int) -> None:
    def cancel(done: int, total: int | None, unit: str) -> None:
        if done >= stopped * BATCH:
            raise Canceled("stop")

    options: dict[str, Any] = {"data": own_input(run), "steps_per_epoch": 7}
    whole = fit(run, **options)
    kept = dataclasses.replace(run, work_dir=tmp_path)
    with pytest.raises(Canceled):
        fit(dataclasses.replace(kept, progress=cancel), **options)
    resumed = fit(kept, **options)
    assert resumed.first_step >= stopped
    np.testing.assert_array_equal(flat(resumed.params), flat(whole.params))
    assert resumed.history == whole.history
    with pytest.raises(InputError, match="belong to another training"):
        fit(kept, data=run.dataset().batch(BATCH), steps_per_epoch=7)


def test_a_batch_that_breaks_the_loss_of_a_dataset_is_named(run: TrainingRun) -> None:
    def broken(columns: Mapping[str, Any]) -> dict[str, Any]:
        z = columns["z"].copy()
        z[(columns["row"] == 300)] = np.nan
        return {"x": columns["x"], "y": columns["y"], "z": z}

    arrays = {name: np.zeros(512, np.float32) for name in ("x", "z", "y")}
    data = from_arrays({**arrays, "row": np.arange(512)}).map(broken).batch(BATCH)
    with pytest.raises(InputError, match=r"step 5 \(epoch 1, batch 5\)\n.*column 'z' of that batch"):
        fit(run, data=data)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"data": lambda run: run.dataset()}, "gives no batches of one size"),
        ({"data": lambda run: run.dataset().batch(1000)}, r"gives no batch of 1000 rows: files\(512 rows"),
        ({"data": lambda run: run.dataset().filter(lambda c: c["x"] > 0).batch(9)}, r"\n.*add steps_per_epoch"),
        ({"data": lambda run: run.dataset().batch(9), "steps_per_epoch": 0}, "steps_per_epoch is 0"),
        ({"steps_per_epoch": 3}, "steps_per_epoch is of data"),
        ({"data": lambda run: run.dataset().map(lambda c: {**c, "t": ["a"] * len(c["x"])}).batch(9)}, "'t' is"),
        ({"eval_data": lambda run: run.dataset("eval").batch(1000)}, "eval_data gave no batches"),
    ],
)
def test_mistakes_in_a_dataset_are_named(run: TrainingRun, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        fit(run, **{name: value(run) if callable(value) else value for name, value in options.items()})
