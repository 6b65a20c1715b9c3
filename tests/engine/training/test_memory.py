"""The memory of a training: what is predicted, what is refused, and what is said where a device had less."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pyarrow as pa
import pytest
from drivetrain.engine import Callback, Model, Trained, TrainingProgress, TrainingRun
from drivetrain.engine.graphs.graph import FieldSpec
from drivetrain.engine.training.program import Program
from drivetrain.errors import InputError

pytestmark = pytest.mark.engine

WIDTH, BATCH, DEPTH = 512, 64, 4
MODULE = "drivetrain.engine.training.memory"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, problem: ModuleType) -> TrainingRun:
    """Two epochs of a dispatch each."""
    values = np.arange(256, dtype=np.float32) / 256
    content = problem.write(tmp_path_factory.mktemp("memory"), {"train": pa.table({"x": values, "y": values})})
    specs = {"x": FieldSpec("float32"), "y": FieldSpec("float32")}
    return TrainingRun(specs, content, epochs=2, batch_size=BATCH, depth=DEPTH, eval_split=None)


@pytest.fixture(scope="module")
def planned(run: TrainingRun) -> Mapping[str, int]:
    """The bytes of a training, by part."""
    return fit(run).memory


def wide(width: int) -> Model:
    return Model(
        lambda key: {"in": jnp.ones(width), "out": jax.random.normal(key, (width, width))},
        lambda params, features: (jnp.tanh(features["x"][:, None] * params["in"]) @ params["out"]).mean(-1),
    )


def fit(run: TrainingRun, width: int = WIDTH, callbacks: tuple[Callback, ...] = ()) -> Trained:
    return run.fit(
        wide(width),
        loss=lambda output, batch: jnp.mean((output - batch["y"]) ** 2),
        predict=lambda output: {"predicted": output},
        optimizer=optax.adam(1e-3),
        label="y",
        callbacks=callbacks,
    )


def test_a_step_is_planned(planned: Mapping[str, int]) -> None:
    parameters = 4 * (WIDTH + WIDTH**2)
    assert planned["state"] == pytest.approx(3 * parameters, abs=100)  # with Adam's two moments; and some counters
    assert planned["batches"] % (2 * BATCH * 4) == 0
    # At least the gradients and one layer's activations, at most some copies of all.
    assert parameters < planned["intermediate"] < 6 * parameters


@pytest.mark.parametrize(
    ("limit", "message"),
    [
        (lambda whole: whole["state"] - 1000, r"needs [\d.]+ MiB \(state [\d.]+ MiB\), and .* has"),
        (
            lambda whole: sum(whole.values()) - 1,
            r"needs .*\(state .*, batches .*, intermediate [\d.]+ MiB\), and .* has",
        ),
    ],
)
def test_what_a_device_cannot_hold_is_refused_before_the_first_step(
    run: TrainingRun,
    planned: Mapping[str, int],
    monkeypatch: pytest.MonkeyPatch,
    limit: Callable[[Any], int],
    message: str,
) -> None:
    class Steps(Callback):
        def on_step_end(self, progress: TrainingProgress, step: int, loss: float) -> None:
            raise AssertionError("a step ran")

    monkeypatch.setattr(f"{MODULE}.total_memory", lambda: limit(planned))
    with pytest.raises(InputError, match=message) as refused:
        fit(run, callbacks=(Steps(),))
    assert "batch_size" in str(refused.value.fix)
    monkeypatch.setattr(f"{MODULE}.total_memory", lambda: sum(planned.values()))
    assert fit(run).steps


def test_a_model_larger_than_the_machine_is_refused_and_never_made(run: TrainingRun) -> None:
    with pytest.raises(InputError, match=r"needs .* GiB \(state "):
        fit(run, width=1_000_000)


def test_a_device_that_had_less_is_named_with_the_step(run: TrainingRun, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Program.train

    def train(this: Program, state: Any, stack: Any, count: int, first: int, key: Any) -> Any:
        if first == DEPTH:
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 17 bytes.")
        return real(this, state, stack, count, first, key)

    monkeypatch.setattr(Program, "train", train)
    said = r"ran out of memory at step 5 \(RESOURCE_EXHAUSTED: .* 17 bytes\.\); planned were state [\d.]+ MiB, batches"
    with pytest.raises(InputError, match=said):
        fit(run)
