"""What goes wrong in a training: one clear error each, with its step and a fix; logs and the last checkpoint remain."""

from __future__ import annotations

import dataclasses
import re
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
from drivetrain.components.trainer import call_train
from drivetrain.engine import (
    Callback,
    EarlyStopping,
    Model,
    TensorBoard,
    Trained,
    TrainingProgress,
    TrainingRun,
    checkpoint_variables,
    read_checkpoint,
)
from drivetrain.engine.graphs.graph import FieldSpec
from drivetrain.engine.training.checkpoint import Checkpoints
from drivetrain.errors import InputError

pytest.importorskip("tensorboardX")
pytestmark = pytest.mark.engine

ROWS, BATCH = 640, 16
SPECS = {name: FieldSpec("float32") for name in ("x", "z", "y")}
Options = Mapping[str, Any]


def table(rows: int, zero: int | None = None) -> pa.Table:
    """y = 2 x + 1; z is 1, and 0 in one row, by default that in the middle."""
    x = np.random.default_rng(0).normal(size=rows).astype(np.float32)
    z = np.ones(rows, np.float32)
    z[rows // 2 : rows // 2 + 1] = 0.0
    if zero is not None:
        z[:], z[zero] = 1.0, 0.0
    return pa.table({"x": x, "z": z, "y": 2 * x + 1})


@pytest.fixture
def run(problem: ModuleType, tmp_path: Path) -> TrainingRun:
    """40 steps, each of which is saved."""
    content = problem.write(tmp_path / "examples", {"train": table(ROWS), "eval": table(BATCH), "empty": table(0)})
    return TrainingRun(
        SPECS,
        content,
        batch_size=BATCH,
        depth=1,
        work_dir=tmp_path / "work",
        log_dir=tmp_path / "logs",
        checkpoint_seconds=0.0,
    )


def apply(params: Mapping[str, jax.Array], features: Mapping[str, jax.Array]) -> jax.Array:
    return params["w"] * features["x"] + params["b"]


LINE = Model(lambda key: {"w": jnp.ones(()), "b": jnp.zeros(())}, apply)


def squared(outputs: jax.Array, batch: Mapping[str, jax.Array]) -> jax.Array:
    return jnp.mean((outputs - batch["y"]) ** 2)


def train(run: TrainingRun, options: Options) -> Trained:
    """As Trainer has it done: what the user's functions raise is an error of his."""
    settings = {
        "model": LINE,
        "loss": squared,
        "predict": lambda output: {"predicted": output},
        "optimizer": optax.sgd(0.05),
        "label": "y",
        **options,
    }
    callbacks = [TensorBoard(every=1, histograms=False, graph=False), *settings.pop("callbacks", ())]
    return call_train(lambda run: run.fit(**settings, callbacks=callbacks), run)


def logged(run: TrainingRun) -> list[int]:
    """The steps whose loss TensorBoard reads."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    if not run.log_dir.exists():
        return []
    events = EventAccumulator(str(run.log_dir), size_guidance={"scalars": 0})
    events.Reload()
    return [event.step for event in events.Scalars("step/loss")] if "step/loss" in events.Tags()["scalars"] else []


def saved(run: TrainingRun) -> tuple[int, Any]:
    """The newest checkpoint's step and parameters."""
    assert run.work_dir is not None
    state = jax.eval_shape(lambda: {"params": LINE.init(jax.random.key(0)), "optimizer": (), "model": {}})
    notes: list[str] = []
    restored = Checkpoints(run.work_dir / "checkpoints", note=notes.append).restore(state)
    assert restored is not None
    assert not notes
    return restored[0], restored[1]["params"]


def step_of_the_zero(run: TrainingRun) -> int:
    """Which step sees the row whose z is 0, from 1."""
    return next(number for number, batch in enumerate(run.batches(), 1) if (batch["z"] == 0).any())


def nan_by_data(run: TrainingRun) -> tuple[Options, int, str, str]:
    loss = lambda outputs, batch: squared(outputs, batch) + jnp.mean(jnp.log(batch["z"] * 2))  # noqa: E731
    step = step_of_the_zero(run)
    return {"loss": loss}, step, rf"the loss is -inf at step {step} \(epoch 1, batch {step}\)", r"log\(0\)"


def growing(run: TrainingRun) -> tuple[Options, int, str, str]:
    weights, batches = np.array([1.0, 0.0], np.float32), run.batches()
    with np.errstate(all="ignore"):
        step = 0
        for batch in batches:
            step += 1
            matrix = np.stack([batch["x"], np.ones_like(batch["x"])], -1)
            errors = matrix @ weights - batch["y"]
            if not np.isfinite(np.mean(errors**2)):
                break
            weights = weights - np.float32(50 * 2 / BATCH) * (matrix.T @ errors)
    return {"optimizer": optax.sgd(50.0)}, step, rf"the loss is (inf|nan) at step {step} ", "lower the learning rate"


def steep(outputs: jax.Array, batch: Mapping[str, jax.Array]) -> jax.Array:
    """The root of 0 has an infinite slope: a finite loss, and a gradient that is not."""
    return squared(outputs, batch) + jnp.mean(jnp.sqrt(batch["z"] * outputs**2))


EXPLODED = r"parameter '[bw]' holds NaN or infinity after step {}.*, where the loss was finite: its gradient exploded"


def exploding(run: TrainingRun) -> tuple[Options, int, str, str]:
    """It is seen before that step is saved; where the step before is being written still, by the next one's loss."""
    step = step_of_the_zero(run)
    said = rf"{EXPLODED.format(step)}|the loss is nan at step {step + 1} "
    return {"loss": steep}, step + 1, said, "clip"


class Broken(Callback):
    """Fails after a step."""

    def on_step_end(self, progress: TrainingProgress, step: int, loss: float) -> None:
        if step == 20:
            raise KeyError("no such thing")


def callback(run: TrainingRun) -> tuple[Options, int, str, str]:
    return {"callbacks": [Broken()]}, 21, r"Broken\.on_step_end failed after step 20: .*no such thing", ""


@pytest.mark.parametrize("break_it", [nan_by_data, growing, exploding, callback])
def test_a_training_that_breaks_keeps_logs_and_the_last_whole_checkpoint(
    run: TrainingRun, break_it: Callable[[TrainingRun], tuple[Options, int, str, str]]
) -> None:
    options, broken, said, fix = break_it(run)
    notes: list[str] = []
    with pytest.raises(InputError, match=said) as caught:
        train(dataclasses.replace(run, note=notes.append), options)
    assert re.search(fix, caught.value.fix or "")
    assert 2 < broken < 40
    assert logged(run) == list(range(1, broken))
    step, params = saved(run)
    # Each step is saved, but the one in whose course the next was reached: it may be at work still.
    assert 1 <= step < broken
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(params))
    assert run.work_dir is not None
    newest = run.work_dir / "checkpoints" / str(step)
    assert f"the checkpoint of step {step} remains: {newest}" in notes
    if break_it is callback:  # put right, it goes on, to the same bits
        resumed = train(run, {"callbacks": [type("Broken", (Callback,), {})()]})
        assert resumed.first_step == step
        whole = train(dataclasses.replace(run, work_dir=None), {})
        assert jax.tree.all(jax.tree.map(np.array_equal, resumed.params, whole.params))


@pytest.mark.parametrize("with_state", [False, True])
def test_another_training_begins_with_the_checkpoint_of_one_that_broke(run: TrainingRun, with_state: bool) -> None:
    def init(key: jax.Array) -> Any:
        params = {"line.0": LINE.init(key)}  # a name with a dot, as Equinox has them
        return {"params": params, "state": {"steps": jnp.zeros(())}} if with_state else params

    def step(params: Any, state: Any, features: Any, key: jax.Array) -> Any:
        return apply(params["line.0"], features), {"steps": state["steps"] + 1}

    def applied(variables: Any, features: Any) -> Any:
        return apply((variables["params"] if with_state else variables)["line.0"], features)

    model = Model(init, applied, step if with_state else None)
    notes: list[str] = []
    with pytest.raises(InputError, match="after step 20"):
        train(dataclasses.replace(run, note=notes.append), {"model": model, "callbacks": [Broken()]})
    folder = Path(notes[-1].partition("remains: ")[2])
    arrays = read_checkpoint(folder)
    again = dataclasses.replace(run, work_dir=None, base_model=checkpoint_variables(str(folder)))
    trained = train(again, {"model": model, "optimizer": optax.sgd(0.0)})
    params = trained.params["params"] if with_state else trained.params
    for name, leaf in params["line.0"].items():
        np.testing.assert_array_equal(leaf, arrays[f"params.line.0.{name}"])
    if with_state:
        assert trained.params["state"]["steps"] == int(folder.name) + trained.steps


def test_a_gradient_that_explodes_in_the_last_step_is_named(
    run: TrainingRun, problem: ModuleType, tmp_path: Path
) -> None:
    rows = table(ROWS)["x"].to_numpy()
    zero = int(np.flatnonzero(rows == list(run.batches())[-1]["x"][3])[0])
    content = problem.write(tmp_path / "others", {"train": table(ROWS, zero), "eval": table(BATCH)})
    run = dataclasses.replace(run, examples=content)
    with pytest.raises(InputError, match=EXPLODED.format(r"40 \(epoch 1, batch 40\)")) as caught:
        train(run, {"loss": steep})
    assert "clip_by_global_norm" in (caught.value.fix or "")
    assert logged(run) == list(range(1, 41))
    assert 1 <= saved(run)[0] < 40


def wide(key: jax.Array) -> Any:
    return {"w": jnp.zeros((1_000_000, 1_000_000)), "b": jnp.zeros(())}


def of_another_shape(params: Mapping[str, jax.Array], features: Mapping[str, jax.Array]) -> jax.Array:
    return jnp.stack([features["x"], features["z"]], -1) @ jnp.ones(3) + params["b"]


@pytest.mark.parametrize(
    ("changes", "options", "said", "fix", "users"),
    [
        pytest.param(
            {}, {"model": Model(wide, apply)}, r"needs [\d.]+ [GTP]iB \(state ", "lower batch_size", False, id="memory"
        ),
        pytest.param(
            {"train_split": "empty"}, {}, "0 rows, fewer than one batch of 16", "ExampleGen", False, id="empty split"
        ),
        pytest.param(
            {"eval_split": "empty"},
            {"callbacks": [EarlyStopping()]},
            "there is no eval_loss to monitor",
            "eval split",
            False,
            id="empty eval split",
        ),
        pytest.param({}, {"label": "yy"}, "the label 'yy' is not a column", "did you mean 'y'", False, id="label"),
        pytest.param(
            {}, {"model": Model(LINE.init, of_another_shape)}, r"\b2\b.*\b3\b", "", True, id="shape inside the model"
        ),
        pytest.param(
            {},
            {"loss": lambda outputs, batch: (outputs - batch["y"]) ** 2},
            r"the loss has shape \[16\], not a scalar",
            "mean",
            False,
            id="shape of the loss",
        ),
        pytest.param(
            {},
            {"model": Model(LINE.init, lambda params, features: apply(params, features)[:, None])},
            "compares each row with every row",
            "last axis",
            False,
            id="shape beside the label",
        ),
    ],
)
def test_what_cannot_be_trained_is_refused_before_the_first_step(
    run: TrainingRun, changes: Options, options: Options, said: str, fix: str, users: bool
) -> None:
    with pytest.raises(InputError, match=said) as caught:
        train(dataclasses.replace(run, **changes), options)
    assert re.search(fix, caught.value.fix or "")
    assert logged(run) == []
    assert run.work_dir is not None
    assert not (run.work_dir / "checkpoints").exists()
    if users:
        assert (caught.value.where or "").startswith(f"{__file__}:")


@pytest.mark.parametrize("name", ["work_dir", "log_dir"])
def test_a_url_as_a_folder_is_refused(run: TrainingRun, name: str) -> None:
    """As a path it would be a folder `s3:` of the working directory, where nobody looks for it."""
    folder: Any = Path("s3://bucket/shop")
    with pytest.raises(InputError, match=f"{name} is s3://…, which is not a folder of this machine"):
        dataclasses.replace(run, **{name: folder})
