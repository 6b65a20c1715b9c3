"""Rollbacks of a training, against the same thing written by hand; interrupted and resumed to the bit."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pyarrow as pa
import pytest
from drivetrain.components.epoch_metrics import EpochMetrics
from drivetrain.components.trainer import write_report
from drivetrain.engine import (
    Callback,
    CheckpointPolicy,
    EarlyStopping,
    EpochRecord,
    Model,
    Rollback,
    RollbackRecord,
    SparseTables,
    TensorBoard,
    Trained,
    TrainingProgress,
    TrainingRun,
)
from drivetrain.engine.graphs.graph import FieldSpec
from drivetrain.engine.training.input import from_arrays
from drivetrain.engine.training.training import last_steps
from drivetrain.errors import Canceled, InputError

pytestmark = pytest.mark.engine

SPECS = {name: FieldSpec("float32") for name in ("x", "z", "y")} | {"id": FieldSpec("int32", (), 7)}
EPOCHS, STEPS, BATCH, DEPTH, RATE = 3, 10, 16, 3, 0.05
State = dict[str, Any]


def columns(steps: int = EPOCHS * STEPS, **broken: Mapping[int, float]) -> dict[str, np.ndarray]:
    """A line with an offset for each id, batch by batch; `broken` gives values of a column by step, from 1."""
    random = np.random.default_rng(0)
    x = random.normal(size=steps * BATCH).astype(np.float32)
    ids = random.integers(0, 7, x.size).astype(np.int32)
    y = (2 * x + 1 + ids / 7 + random.normal(size=x.size) / 4).astype(np.float32)
    arrays = {"x": x, "y": y, "z": np.ones_like(x), "id": ids}
    for name, values in broken.items():
        for step, value in values.items():
            arrays[name][(step - 1) * BATCH : step * BATCH] = value
    return arrays


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory, problem: ModuleType) -> Path:
    tables = {"train": pa.table(columns(STEPS)), "eval": pa.table(columns(2))}
    written: Path = problem.write(tmp_path_factory.mktemp("rollback"), tables)
    return written


@pytest.fixture
def run(content: Path) -> TrainingRun:
    return TrainingRun(SPECS, content, epochs=EPOCHS, batch_size=BATCH, seed=3, depth=DEPTH)


class Recorder(Callback):
    """Remembers what it was called with."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.rollbacks: list[RollbackRecord] = []

    def on_step_end(self, progress: TrainingProgress, step: int, loss: float) -> None:
        self.calls.append(step)

    def on_rollback(self, progress: TrainingProgress, record: RollbackRecord) -> None:
        self.calls.append(f"{record.step} to {record.restored_step}")
        self.rollbacks.append(record)

    def state_dict(self) -> Mapping[str, Any]:
        return {"calls": self.calls}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.calls = state["calls"]


def first() -> State:
    return {"w": jnp.float32(0.5), "b": jnp.float32(0), "table": jnp.zeros(7), "idle": jnp.float32(1)}


def output(params: Any, features: Any) -> jax.Array:
    """`idle` has no part in the loss; where z is 0 the gradient of the root is NaN, and its value is not."""
    plain = params["w"] * features["x"] + params["b"] + params["table"][features["id"]]
    root: jax.Array = plain + 0.01 * jnp.sqrt(jnp.mean(features["z"]) * params["w"] ** 2)
    return root


def train(params: Any, state: Any, features: Any, key: jax.Array) -> tuple[jax.Array, Any]:
    """The output centred by a mean of batches that the model keeps, as batch normalisation does."""
    mean = 0.9 * state["mean"] + 0.1 * features["x"].mean()
    return output(params, features) - 0.1 * mean, {"mean": mean}


MODEL = Model(
    lambda key: {"params": first(), "state": {"mean": jnp.float32(0)}},
    lambda variables, features: output(variables["params"], features) - 0.1 * variables["state"]["mean"],
    train,
)


def squared(outputs: Any, batch: Any) -> Any:
    return jnp.mean((outputs - batch["y"]) ** 2)


def fit(run: TrainingRun, arrays: Mapping[str, np.ndarray] | None, **options: Any) -> Trained:
    """Train on batches in their order, or on those of the run."""
    if arrays is not None:
        options = {"data": from_arrays(dict(arrays)).batch(BATCH), "steps_per_epoch": STEPS} | options
    options = {"loss": squared, "optimizer": optax.sgd(RATE), "rollback": Rollback()} | options
    return run.fit(MODEL, label="y", predict=lambda outputs: {"y_hat": outputs}, **options)


def by_hand(
    batches: Sequence[Mapping[str, Any]],
    optimizer: optax.GradientTransformation,
    *,
    every: int | None = None,
    ema: float = 0.0,
    factor: float = 0.5,
) -> tuple[State, State, list[tuple[int, int, int]], list[list[float]]]:
    """The same in plain JAX and optax: averaged parameters, the model's state, rollbacks, losses of each epoch."""

    @jax.jit
    def step_by_hand(now: State, batch: Any, scale: float) -> Any:
        def loss(params: Any) -> Any:
            outputs, after = train(params, now["model"], batch, jax.random.key(0))
            return squared(outputs, batch), after

        (value, model), gradients = jax.value_and_grad(loss, has_aux=True)(now["params"])
        updates, memory = optimizer.update(gradients, now["optimizer"], now["params"])
        params = jax.tree.map(lambda before, update: before + scale * update, now["params"], updates)
        average = jax.tree.map(lambda old, new: ema * old + (1 - ema) * new, now["ema"], params)
        return {"params": params, "ema": average, "model": model, "optimizer": memory}, value, gradients

    current = {
        "params": first(),
        "ema": first(),
        "model": {"mean": jnp.float32(0)},
        "optimizer": optimizer.init(first()),
    }
    good, good_step, scale, rollbacks, epochs = current, 0, 1.0, [], []
    for epoch in range(EPOCHS):
        losses: list[float] = []
        good_losses: list[float] = []
        for begin in range(0, STEPS, DEPTH):
            end = min(begin + DEPTH, STEPS)
            for step in range(epoch * STEPS + begin, epoch * STEPS + end):
                after, loss, gradients = step_by_hand(current, batches[step], scale)
                if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((loss, gradients))):
                    rollbacks.append((step + 1, good_step, epoch * STEPS + end + 1))
                    current, losses, scale = good, list(good_losses), scale * factor
                    break
                current = after
                losses.append(float(loss))
            else:
                passed = (epoch * STEPS + end) // (every or 10**9) > (epoch * STEPS + begin) // (every or 10**9)
                if passed or (end == STEPS and losses):
                    good, good_step, good_losses = current, epoch * STEPS + end, list(losses)
        epochs.append(losses)
    return current["ema"], current["model"], rollbacks, epochs


def check(trained: Trained, expected: tuple[State, State, list[tuple[int, int, int]], list[list[float]]]) -> None:
    params, state, rollbacks, epochs = expected
    for name, value in params.items():
        np.testing.assert_allclose(trained.params["params"][name], value, rtol=2e-5, atol=1e-6, err_msg=name)
    np.testing.assert_allclose(trained.params["state"]["mean"], state["mean"], rtol=1e-5)
    assert [(each.step, each.restored_step, each.resumed_step) for each in trained.rollbacks] == rollbacks
    left = [(number, losses) for number, losses in enumerate(epochs, 1) if losses]
    assert [(record.epoch, STEPS - record.skipped) for record in trained.history] == [
        (n, len(each)) for n, each in left
    ]
    np.testing.assert_allclose([record.loss for record in trained.history], [np.mean(each) for _, each in left], 1e-4)


def split(arrays: Mapping[str, np.ndarray]) -> list[dict[str, np.ndarray]]:
    rows = len(arrays["x"])
    return [{name: array[at : at + BATCH] for name, array in arrays.items()} for at in range(0, rows, BATCH)]


BROKEN: dict[str, Any] = {"x": {5: np.nan, 17: np.inf}, "z": {28: 0.0}}  # the last: of the gradient alone


@pytest.mark.parametrize(
    ("optimizer", "every"),
    [
        (optax.chain(optax.clip_by_global_norm(1.0), optax.adam(optax.cosine_decay_schedule(RATE, 30))), None),
        (optax.MultiSteps(optax.sgd(RATE), 2).gradient_transformation(), 4),
    ],
    ids=["adam", "accumulated"],
)
def test_a_training_with_rollbacks_is_that_by_hand(
    run: TrainingRun, optimizer: optax.GradientTransformation, every: int | None
) -> None:
    arrays = columns(**BROKEN)
    notes: list[str] = []
    recorder = Recorder()
    run = dataclasses.replace(run, note=notes.append)
    options = {"optimizer": optimizer, "ema": 0.8, "callbacks": [recorder]}
    trained = fit(run, arrays, rollback=Rollback(every=every), **options)
    check(trained, expected := by_hand(split(arrays), optimizer, every=every, ema=0.8))
    assert len(trained.rollbacks) == 3
    assert tuple(recorder.rollbacks) == trained.rollbacks
    assert [record.scale for record in trained.rollbacks] == [0.5, 0.25, 0.125]
    step, restored, resumed = expected[2][1]
    line = f"not finite at step {step} (epoch 2, batch 7): back to the state after step {restored}, "
    line += f"on with step {resumed} of 30, updates times 0.25 (rollback 2 of 3); column 'x'"
    assert [note for note in notes if line in note], notes


def test_batches_of_the_split_are_gone_on_with_too(run: TrainingRun, tmp_path: Path, problem: ModuleType) -> None:
    """Where one row makes a batch of each epoch break, wherever it is shuffled to."""
    arrays = columns(STEPS)
    arrays["x"][20] = np.nan
    broken = problem.write(tmp_path, {"train": pa.table(arrays)})
    run = dataclasses.replace(run, examples=broken, eval_split=None)
    trained = fit(run, None, rollback=Rollback(every=1, factor=1))
    batches = [batch for epoch in range(EPOCHS) for batch in run.batches("train", epoch)]
    check(trained, by_hand(batches, optax.sgd(RATE), every=1, factor=1))
    assert len(trained.rollbacks) == EPOCHS


def test_rows_of_tables_are_rolled_back_too(run: TrainingRun) -> None:
    arrays = columns(**BROKEN)
    trained = fit(run, arrays, tables=SparseTables({"table": "id"}, optax.sgd(RATE)))
    check(trained, by_hand(split(arrays), optax.sgd(RATE)))
    assert np.abs(trained.params["params"]["table"]).min() > 0


def everything(run: TrainingRun, *callbacks: Callback) -> Trained:
    """All that a state has: averages, a model's own, an optimizer's, the best epoch, callbacks that remember."""
    options: dict[str, Any] = {"ema": 0.8, "optimizer": optax.adam(RATE), "keep_best": "eval_loss"}
    callbacks = (*callbacks, EarlyStopping(patience=EPOCHS))
    return fit(run, columns(**BROKEN), rollback=Rollback(every=16), callbacks=callbacks, **options)


@pytest.fixture(scope="module")
def uninterrupted(content: Path) -> tuple[Trained, list[Any]]:
    recorder = Recorder()
    run = TrainingRun(SPECS, content, epochs=EPOCHS, batch_size=BATCH, seed=3, depth=DEPTH)
    return everything(run, recorder), recorder.calls


@pytest.mark.parametrize(
    "stop", [16, 23, *(pytest.param(step, marks=pytest.mark.slow) for step in (1, 4, 6, 9, 10, 13, 18, 20, 26))]
)
def test_interrupted_around_rollbacks_the_bits_are_the_same(
    run: TrainingRun, uninterrupted: tuple[Trained, list[Any]], problem: ModuleType, tmp_path: Path, stop: int
) -> None:
    def cancel(done: int, total: int | None, unit: str) -> None:
        if done >= stop * BATCH:
            raise Canceled("stop")

    expected, calls = uninterrupted
    with pytest.raises(Canceled):
        everything(dataclasses.replace(run, work_dir=tmp_path, progress=cancel), Recorder())
    recorder = Recorder()
    resumed = everything(dataclasses.replace(run, work_dir=tmp_path), recorder)
    assert resumed.first_step >= stop
    assert len(expected.rollbacks) == 3
    assert problem.digest(resumed.params) == problem.digest(expected.params)
    assert (resumed.history, resumed.curve, resumed.rollbacks) == (
        expected.history,
        expected.curve,
        expected.rollbacks,
    )
    assert recorder.calls == calls


def test_more_rollbacks_than_are_allowed_end_the_training(run: TrainingRun, tmp_path: Path) -> None:
    notes: list[str] = []
    run = dataclasses.replace(run, note=notes.append, work_dir=tmp_path)
    options: dict[str, Any] = {"checkpoints": CheckpointPolicy(keep_period=15)}
    message = r"not finite at step 17 \(epoch 2, batch 7\), after a rollback\n.*column 'x'"
    for _ in range(2):  # the second attempt knows of the first's rollback
        with pytest.raises(InputError, match=message):
            fit(run, columns(**BROKEN), rollback=Rollback(times=1), **options)
    assert "training resumed at step 16 of 30" in notes
    assert sum(note.startswith("the checkpoint of step 16 remains") for note in notes) == 2
    assert sum("rollback 1 of 1" in note for note in notes) == 1
    with pytest.raises(InputError, match="belong to another training"):
        fit(run, columns(**BROKEN), rollback=Rollback(times=5), **options)


@pytest.mark.parametrize("rollback", [Rollback(times=1), None])
def test_a_gradient_that_is_nan_where_the_loss_is_not_has_its_usual_cause_named(
    run: TrainingRun, rollback: Rollback | None
) -> None:
    def loss(outputs: Any, batch: Any) -> Any:
        beyond = jnp.maximum(outputs - 1e3, 0.0)
        return jnp.where(beyond > 0, jnp.sqrt(beyond), jnp.square(outputs - batch["y"])).mean()

    batch = {name: array[:BATCH] for name, array in columns().items()}
    value, gradients = jax.jit(jax.value_and_grad(lambda params: loss(output(params, batch), batch)))(first())
    assert np.isfinite(value)
    assert np.isnan(gradients["w"])
    with pytest.raises(InputError) as error:
        fit(run, columns(), loss=loss, rollback=rollback)
    assert "sqrt(0) or 0/0, also in what jnp.where leaves out, whose gradient is NaN" in (error.value.fix or "")


def test_an_epoch_of_which_nothing_is_left_counts_for_nobody(run: TrainingRun) -> None:
    arrays = columns(x={20: np.nan})
    stopping = EarlyStopping(patience=1)  # an epoch that changed nothing would end the training
    trained = fit(run, arrays, callbacks=[stopping])
    check(trained, by_hand(split(arrays), optax.sgd(RATE)))
    assert [record.epoch for record in trained.history] == [1, 3]
    with pytest.raises(InputError, match=r"step 10 .*; nothing is left to train on\n.*every="):
        fit(dataclasses.replace(run, epochs=1), columns(x={10: np.nan}))


def test_callbacks_remember_rollbacks_and_no_steps_that_are_gone(run: TrainingRun) -> None:
    recorder = Recorder()
    trained = fit(run, columns(x={13: np.nan, 18: np.nan}), callbacks=[recorder])
    assert recorder.calls == [*range(1, 11), "13 to 10", "18 to 10", *range(20, 31)]
    assert [point for point, _ in trained.curve] == [*range(1, 11), *range(20, 31)]


def test_a_rollback_is_told_everywhere(run: TrainingRun, tmp_path: Path) -> None:
    """As text of TensorBoard, which reads it; as a metric of the node, also by a resumed attempt; on Trainer's page."""
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    arrays = columns(x={7: np.nan, 20: np.nan})
    run = dataclasses.replace(run, work_dir=tmp_path / "work", log_dir=tmp_path / "logs")

    def attempt(stop: float = np.inf) -> tuple[Trained, dict[str, list[tuple[int, float]]]]:
        def cancel(done: int, total: int | None, unit: str) -> None:
            if done >= stop * BATCH:
                raise Canceled("stop")

        points: dict[str, list[tuple[int, float]]] = {}
        metrics = EpochMetrics(lambda name, value, step: points.setdefault(name, []).append((step, value)))
        attempted = dataclasses.replace(run, progress=cancel, callbacks=[metrics])
        return fit(attempted, arrays, rollback=Rollback(every=4), callbacks=[TensorBoard(every=1)]), points

    with pytest.raises(Canceled):
        attempt(stop=12)
    trained, points = attempt()
    assert trained.first_step >= 12
    expected = [(each.step, each.restored_step) for each in trained.rollbacks]
    assert expected == [(7, 6), (20, 16)]
    assert points["rolled_back_to"] == expected
    assert [step for step, _ in points["loss"]] == [10, 20, 30]

    events = accumulator.EventAccumulator(str(run.log_dir), size_guidance={"tensors": 0, "scalars": 0})
    events.Reload()
    texts = events.Tensors("rollback/text_summary")
    assert [event.step for event in texts] == [7, 20]
    text = texts[0].tensor_proto.string_val[0].decode()
    assert text.endswith("back to step 6, on with step 10, updates times 0.5")
    assert [point.step for point in events.Scalars("step/loss")] == [*range(1, 7), *range(10, 20), *range(21, 31)]

    write_report(trained, tmp_path, settings={})
    history = json.loads((tmp_path / "history.json").read_text())
    assert [(each["step"], each["restored_step"]) for each in history["rollbacks"]] == expected
    assert "Rolled back from step 20 to step 16, and on with step 21" in (tmp_path / "report.html").read_text()


def test_curves_go_on_behind_an_epoch_that_was_rolled_back() -> None:
    epochs = [EpochRecord(1, 10, 0.3), EpochRecord(2, 10, 0.2), EpochRecord(5, 10, 0.1)]
    assert last_steps(epochs) == [10, 20, 50]


def test_a_parameter_that_overflows_is_rolled_back(run: TrainingRun) -> None:
    """Though loss and gradients are finite: the parameter has no part in them."""

    def update(updates: Any, state: Any, params: Any = None, *, value: Any, **extra: Any) -> Any:
        return updates | {"idle": jnp.where(value > 1e4, jnp.inf, updates["idle"])}, state

    explodes = optax.GradientTransformationExtraArgs(lambda params: optax.EmptyState(), update)
    arrays = columns(y={13: 1e3})
    trained = fit(run, arrays, optimizer=optax.chain(optax.clip(1.0), explodes, optax.sgd(RATE)))
    assert [(each.step, each.restored_step, each.resumed_step) for each in trained.rollbacks] == [(20, 10, 21)]
    assert "'idle' holds NaN or infinity after step 20" in trained.rollbacks[0].reason
    assert trained.params["params"]["idle"] == 1
    assert [record.epoch for record in trained.history] == [1, 3]


def test_a_state_of_the_model_that_overflows_is_rolled_back(run: TrainingRun, tmp_path: Path) -> None:
    """Though loss, gradients and parameters are finite: batch norm divides by the root of what it keeps the mean of."""

    def train_scaled(params: Any, state: Any, features: Any, key: jax.Array) -> tuple[jax.Array, Any]:
        square = jnp.mean(features["x"] ** 2)
        scaled = params["w"] * features["x"] / jnp.sqrt(1 + square)
        return scaled, {"square": 0.9 * state["square"] + 0.1 * square}

    def apply_scaled(variables: Any, features: Any) -> jax.Array:
        scaled: jax.Array = variables["params"]["w"] * features["x"] / jnp.sqrt(1 + variables["state"]["square"])
        return scaled

    model = Model(
        lambda key: {"params": {"w": jnp.float32(0.5)}, "state": {"square": jnp.float32(1)}}, apply_scaled, train_scaled
    )
    arrays = columns()
    arrays["x"][12 * BATCH] = 3e19

    def train_on(run: TrainingRun, rollback: Rollback | None) -> Trained:
        data = from_arrays(arrays).batch(BATCH)
        options: dict[str, Any] = {"loss": squared, "optimizer": optax.sgd(RATE), "data": data, "rollback": rollback}
        return run.fit(model, label="y", predict=lambda outputs: {"y_hat": outputs}, steps_per_epoch=STEPS, **options)

    trained = train_on(run, Rollback())
    assert [(each.step, each.restored_step, each.resumed_step) for each in trained.rollbacks] == [(20, 10, 21)]
    assert "the model's state 'square' holds NaN or infinity after step 20" in trained.rollbacks[0].reason
    assert np.isfinite(trained.params["state"]["square"])
    assert [record.epoch for record in trained.history] == [1, 3]
    with pytest.raises(InputError, match="the model's state 'square' holds NaN or infinity after step"):
        train_on(dataclasses.replace(run, work_dir=tmp_path), None)


def test_steps_that_a_scaled_loss_leaves_out_are_no_failures(run: TrainingRun) -> None:
    arrays = columns(y={12: 3e3})  # its gradient overflows in float16
    trained = fit(run, arrays, precision="float16")
    assert trained.rollbacks == ()
    assert trained.history[1].skipped > 0


def test_fifty_steps_left_out_in_a_row_are_a_failure(run: TrainingRun) -> None:
    arrays = columns(70, x=dict.fromkeys(range(12, 66), np.nan))
    run = dataclasses.replace(run, epochs=1)
    trained = fit(run, arrays, skip_nonfinite=True, rollback=Rollback(every=4), steps_per_epoch=70)
    assert [(each.step, each.restored_step, each.resumed_step) for each in trained.rollbacks] == [(62, 60, 64)]
    assert [record.skipped for record in trained.history] == [54]
    assert np.isfinite(trained.params["params"]["w"])


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (lambda: Rollback(times=None), "times of the rollback is None"),  # type: ignore[arg-type]
        (lambda: Rollback(times=0), "times of the rollback is 0"),
        (lambda: Rollback(times=2.5), "times of the rollback is 2.5"),  # type: ignore[arg-type]  # there is no end of it
        (lambda: Rollback(every=0), "every of the rollback is 0"),
        (lambda: Rollback(every="4"), "every of the rollback is '4'"),  # type: ignore[arg-type]
        (lambda: Rollback(factor=0), "factor of the rollback is 0"),
        (lambda: Rollback(factor=float("nan")), "factor of the rollback is nan"),
        (lambda: Rollback(factor="half"), "factor of the rollback is 'half'"),  # type: ignore[arg-type]
        (lambda: 2, r"rollback is 2\n.*Rollback\(times=2\)"),
        (lambda: True, r"rollback is True\n.*Rollback\(times=3\)"),
        (lambda: Rollback, r"rollback is the class Rollback\n.*Rollback\(times=3\)"),
    ],
)
def test_options_that_cannot_be(run: TrainingRun, option: Callable[[], Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        fit(run, None, rollback=option())
