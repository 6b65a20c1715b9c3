"""`fit(gradients=…)`: steps of the user's own, by plain JAX and by a Tape, with all that `fit` does around a step."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pyarrow as pa
import pytest
from drivetrain.engine import Model, Tape, Trained, TrainingRun, function
from drivetrain.engine.graphs.graph import FieldSpec
from drivetrain.errors import Canceled, InputError

pytestmark = pytest.mark.engine

BATCH, RATE, REACH = 32, 0.1, 0.3


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory, problem: ModuleType) -> Path:
    """y = 2 x + 1 with noise."""
    random = np.random.default_rng(1)
    x = random.normal(size=256).astype(np.float32)
    table = pa.table({"x": x, "y": (2 * x + 1 + random.normal(size=256) / 4).astype(np.float32)})
    folder: Path = problem.write(tmp_path_factory.mktemp("custom_step"), {"train": table, "eval": table[:64]})
    return folder


@pytest.fixture
def run(content: Path) -> TrainingRun:
    specs = {name: FieldSpec("float32") for name in ("x", "y")}
    return TrainingRun(specs, content, epochs=2, batch_size=BATCH, seed=3, depth=3)


def apply(params: Any, features: Any) -> Any:
    return params["w"] * features["x"] + params["b"]


LINE = Model(lambda key: {"w": jnp.zeros(()), "b": jnp.zeros(())}, apply)


@function
def mean_square(params: Any, x: Any, y: Any) -> Any:
    return jnp.mean((params["w"] * x + params["b"] - y) ** 2)


def squared(outputs: Any, batch: Any) -> Any:
    return jnp.mean((outputs - batch["y"]) ** 2)


def by_jax(params: Any, state: Any, batch: Any, key: jax.Array) -> Any:
    """Adversarial training (Goodfellow et al., 2015): the loss where x is moved to where it is worse."""
    slope = jax.grad(lambda x: squared(apply(params, {"x": x}), batch))(batch["x"])
    moved = {"x": batch["x"] + REACH * jnp.sign(slope)}
    return *jax.value_and_grad(lambda params: squared(apply(params, moved), batch))(params), state


def by_tape(params: Any, state: Any, batch: Any, key: jax.Array) -> Any:
    with Tape() as inner:
        loss = mean_square(params, batch["x"], batch["y"])
    moved = batch["x"] + REACH * jnp.sign(inner.gradient(loss, batch["x"]))
    with Tape() as outer:
        loss = mean_square(params, moved, batch["y"])
    return loss, outer.gradient(loss, params), state


def fit(run: TrainingRun, gradients: Any, model: Model = LINE, **options: Any) -> Trained:
    options = {"optimizer": optax.sgd(RATE)} | options
    return run.fit(model, loss=squared, predict=lambda output: {"z": output}, label="y", gradients=gradients, **options)


def by_hand(run: TrainingRun) -> list[Any]:
    """The same by formulas, in float64."""
    w: Any = 0.0
    b: Any = 0.0
    for epoch in range(run.epochs):
        for batch in run.batches("train", epoch):
            x, y = (np.asarray(batch[name], np.float64) for name in ("x", "y"))
            x = x + REACH * np.sign((w * x + b - y) * w)
            error = w * x + b - y
            w, b = w - RATE * 2 * np.mean(error * x), b - RATE * 2 * np.mean(error)
    return [w, b]


@pytest.mark.parametrize("gradients", [by_jax, by_tape])
def test_the_users_gradients_are_those_that_train(run: TrainingRun, gradients: Callable[..., Any]) -> None:
    trained = fit(run, gradients)
    np.testing.assert_allclose([trained.params["w"], trained.params["b"]], by_hand(run), rtol=1e-5)
    evaluation = run.eval_data()
    assert evaluation is not None
    losses = [squared(apply(trained.params, batch), batch) for batch in evaluation.epoch(0)]
    assert trained.history[-1].eval_loss == pytest.approx(np.mean(losses), rel=1e-5)  # of `loss`, of what is not moved


def test_frozen_parameters_and_narrow_types_go_with_it(run: TrainingRun) -> None:
    assert fit(run, by_tape, freeze=["b"]).params["b"] == 0
    seen = []

    def noted(params: Any, state: Any, batch: Any, key: jax.Array) -> Any:
        seen.append((params["w"].dtype, batch["x"].dtype, batch["y"].dtype))
        return by_jax(params, state, batch, key)

    trained = fit(run, noted, precision="bfloat16")
    assert seen[0] == (jnp.bfloat16, jnp.bfloat16, jnp.float32)
    assert trained.params["w"].dtype == np.float32
    np.testing.assert_allclose([trained.params["w"], trained.params["b"]], by_hand(run), rtol=0.05)


def counting() -> Model:
    """A line that counts its steps and draws from each step's key."""

    def train(params: Any, state: Any, features: Any, key: jax.Array) -> Any:
        noise = jax.random.normal(key, features["x"].shape) / 10
        return apply(params, features) + noise, {"steps": state["steps"] + 1}

    return Model(
        lambda key: {"params": LINE.init(key), "state": {"steps": jnp.int32(0)}},
        lambda variables, features: apply(variables["params"], features),
        train,
    )


def test_with_state_and_keys_a_stopped_training_ends_with_the_same_bits(run: TrainingRun, tmp_path: Path) -> None:
    model = counting()

    def gradients(params: Any, state: Any, batch: Any, key: jax.Array) -> Any:
        def objective(params: Any) -> Any:
            assert model.train is not None
            outputs, following = model.train(params, state, batch, key)
            return squared(outputs, batch), following

        (loss, following), slopes = jax.value_and_grad(objective, has_aux=True)(params)
        return loss, slopes, following

    def cancel(done: int, total: int | None, unit: str) -> None:
        if done >= 9 * BATCH:
            raise Canceled("enough")

    options: dict[str, Any] = {"model": model, "optimizer": optax.adam(RATE), "ema": 0.9}
    whole = fit(run, gradients, **options)
    assert whole.params["state"]["steps"] == 16
    kept = dataclasses.replace(run, work_dir=tmp_path, checkpoint_seconds=0.0)
    with pytest.raises(Canceled):
        fit(dataclasses.replace(kept, progress=cancel), gradients, **options)
    resumed = fit(kept, gradients, **options)
    assert 0 < resumed.first_step < 16
    assert jax.tree.all(jax.tree.map(np.array_equal, resumed.params, whole.params))


@pytest.mark.parametrize(
    ("results", "message"),
    [
        (lambda params, state: (0.0, params), "returned 2 values, not three values\n.*return loss, gradients, state"),
        (lambda params, state: None, "returned a NoneType, not three values"),
        (lambda params, state: (jnp.zeros(3), params, state), r"loss of gradients= has shape \[3\], not a scalar"),
        (
            lambda params, state: (0.0, {"w": params["w"], "b": None}, state),
            "returned no gradient of 'b'\n.*unconnected='zero'",
        ),
        (
            lambda params, state: (0.0, {"w": jnp.zeros(2), "b": params["b"]}, state),
            r"a gradient of 'w' of shape \[2\], not \[\]",
        ),
        (lambda params, state: (0.0, {**params, "c": 0.0}, state), "a gradient of another structure"),
        (lambda params, state: (0.0, params, {"steps": 1}), "a state of another structure"),
    ],
)
def test_what_is_no_gradient_is_named(run: TrainingRun, results: Callable[..., Any], message: str) -> None:
    with pytest.raises(InputError, match=f"(?s){message}"):
        fit(run, lambda params, state, batch, key: results(params, state))
