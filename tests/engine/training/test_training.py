"""Training: the loss falls to a known optimum, runs are equal bit by bit, and what goes wrong says so."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from drivetrain.engine.graphs.graph import FieldSpec
from drivetrain.engine.training.model import Model, nnx_model
from drivetrain.engine.training.training import TrainingRun
from drivetrain.errors import Canceled, InputError

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory, problem: ModuleType) -> Path:
    made: Path = problem.examples(tmp_path_factory.mktemp("training"))
    return made


@pytest.fixture
def run(problem: ModuleType, content: Path) -> TrainingRun:
    """31 steps of 128 in each of 2 epochs."""
    return TrainingRun(problem.SPECS, content, epochs=2, batch_size=128, seed=3)


@pytest.mark.slow
def test_equals_a_loop_of_plain_optax(run: TrainingRun, problem: ModuleType) -> None:
    """The reference is written with jax and optax alone, a step at a time, on the run's batches."""
    import jax
    import optax

    trained = problem.fit(run)
    model = nnx_model(problem.build)
    params = jax.jit(model.init, compiler_options={"xla_backend_optimization_level": 0})(run.key())
    optimizer = optax.adam(1e-2)
    memory = optimizer.init(params)

    @jax.jit
    def step(params: Any, memory: Any, batch: Any) -> Any:
        def loss(params: Any) -> Any:
            features = {name: value for name, value in batch.items() if name != "late"}
            return optax.sigmoid_binary_cross_entropy(model.apply(params, features), batch["late"]).mean()

        value, gradients = jax.value_and_grad(loss)(params)
        updates, memory = optimizer.update(gradients, memory, params)
        return optax.apply_updates(params, updates), memory, value

    losses: list[list[float]] = []
    for epoch in range(2):
        losses.append([])
        for batch in run.batches("train", epoch):
            params, memory, value = step(params, memory, batch)
            losses[-1].append(float(value))
    for ours, reference in zip(jax.tree.leaves(trained.params), jax.tree.leaves(params), strict=True):
        np.testing.assert_allclose(ours, reference, atol=1e-6)
    assert [record.loss for record in trained.history] == pytest.approx([np.mean(epoch) for epoch in losses], abs=1e-6)
    assert [step for step, _ in trained.curve] == list(range(1, 63))
    assert [value for _, value in trained.curve] == pytest.approx([v for epoch in losses for v in epoch], abs=1e-6)
    assert [record.steps for record in trained.history] == [31, 31]
    features = {name: value for name, value in problem.columns(1000, 1).items() if name != "late"}
    logits = model.apply(params, {name: value[:896] for name, value in features.items()})
    label = problem.columns(1000, 1)["late"][:896]  # 7 full batches of 128
    expected = optax.sigmoid_binary_cross_entropy(logits, label).mean()
    assert trained.history[-1].eval_loss == pytest.approx(float(expected), abs=1e-6)


def test_a_linear_model_reaches_the_optimum_that_sklearn_finds(tmp_path: Path, problem: ModuleType) -> None:
    import jax.numpy as jnp
    import optax
    from sklearn.linear_model import LogisticRegression

    columns = {name: problem.columns(2048)[name] for name in ("dep_delay", "distance", "late")}
    content = problem.write(tmp_path, {"train": pa.table(columns)})
    linear = Model(
        init=lambda key: {"weights": jnp.zeros(2), "bias": jnp.zeros(())},
        apply=lambda params, features: (
            jnp.stack([features["dep_delay"], features["distance"]], -1) @ params["weights"] + params["bias"]
        ),
    )
    specs = {name: FieldSpec("float32") for name in columns}
    trained = TrainingRun(specs, content, epochs=100, batch_size=2048, eval_split=None).fit(
        linear,
        loss=lambda logits, batch: optax.sigmoid_binary_cross_entropy(logits, batch["late"]).mean(),
        predict=lambda logits: {"logit": logits},
        optimizer=optax.sgd(2.0),
        label="late",
    )
    matrix = np.stack([columns["dep_delay"], columns["distance"]], axis=-1).astype(np.float64)
    oracle = LogisticRegression(C=np.inf, tol=1e-10).fit(matrix, columns["late"])
    np.testing.assert_allclose(trained.params["weights"], oracle.coef_[0], rtol=1e-3)
    np.testing.assert_allclose(trained.params["bias"], oracle.intercept_[0], rtol=1e-3)
    assert trained.history[-1].loss < trained.history[0].loss == pytest.approx(np.log(2), abs=1e-6)
    assert trained.history[-1].eval_loss is None


@pytest.mark.slow
@pytest.mark.parametrize("change", [{}, {"depth": 1}, {"depth": 7}], ids=str)
def test_runs_are_equal_bit_by_bit(run: TrainingRun, problem: ModuleType, change: dict[str, int]) -> None:
    again = dataclasses.replace(run, **change)  # type: ignore[arg-type]
    assert problem.digest(problem.fit(run).params) == problem.digest(problem.fit(again).params)


@pytest.mark.slow
def test_another_seed_is_another_model(run: TrainingRun, problem: ModuleType) -> None:
    other = dataclasses.replace(run, seed=4)
    assert problem.digest(problem.fit(run).params) != problem.digest(problem.fit(other).params)


@pytest.mark.slow
def test_progress_and_notes(run: TrainingRun, problem: ModuleType) -> None:
    seen: list[tuple[int, int | None, str]] = []
    notes: list[str] = []
    heard = dataclasses.replace(run, progress=lambda *report: seen.append(report), note=notes.append)
    trained = problem.fit(heard)
    total = 2 * 31 * 128
    assert seen[-1] == (total, total, "examples")
    assert [done for done, _, _ in seen] == sorted(done for done, _, _ in seen)
    assert trained.examples == total
    assert [note.split(":")[0] for note in notes[:-1]] == ["epoch 1 of 2", "epoch 2 of 2"]
    assert re.fullmatch(r"trained in \d+\.\d s: \w+ \d+%(, \w+ \d+%)*(; the longest at work .*)?", notes[-1])


@pytest.mark.slow
def test_cancel_keeps_what_was_done(run: TrainingRun, problem: ModuleType, tmp_path: Path) -> None:
    def stop(done: int, total: int | None, unit: str) -> None:
        if done >= 20 * 128:
            raise Canceled("stop")

    whole = problem.fit(run)
    with pytest.raises(Canceled):
        problem.fit(dataclasses.replace(run, progress=stop, work_dir=tmp_path))
    resumed = problem.fit(dataclasses.replace(run, work_dir=tmp_path))
    assert resumed.first_step >= 20
    assert resumed.steps + resumed.first_step == whole.steps
    assert problem.digest(resumed.params) == problem.digest(whole.params)
    assert resumed.history == whole.history
    assert resumed.curve == whole.curve


def test_a_loop_of_ones_own_sees_the_same_batches(run: TrainingRun) -> None:
    batches = list(run.batches("train", 1))
    assert len(batches) == run.steps_per_epoch == 31
    np.testing.assert_array_equal(next(run.batches("train", 1, 30))["late"], batches[30]["late"])
    assert len(list(run.batches("eval"))) == 7


def test_nan_in_the_data_is_named(problem: ModuleType, tmp_path: Path) -> None:
    columns = problem.columns(640)
    columns["distance"][:] = np.nan
    content = problem.write(tmp_path, {"train": pa.table(columns)})
    run = TrainingRun(problem.SPECS, content, batch_size=64, eval_split=None)
    with pytest.raises(InputError, match=r"loss is nan at step 1 \(epoch 1, batch 1\)\n.*'distance' .* holds NaN"):
        problem.fit(run)


def test_nan_from_the_loss_is_named_with_its_step(problem: ModuleType, run: TrainingRun) -> None:
    import jax.numpy as jnp

    def loss(logits: Any, batch: Any) -> Any:
        return jnp.log(1.0 - 10.0 * jnp.square(logits.mean() - logits[0])).mean()

    with pytest.raises(InputError, match=r"loss is (nan|-?inf) at step \d+ .*\n.*learning rate"):
        problem.fit(run, loss=loss)


def test_what_cannot_be_trained_says_why(problem: ModuleType, run: TrainingRun) -> None:
    import optax

    with pytest.raises(InputError, match=r"loss has shape \[128\]"):
        problem.fit(run, loss=lambda logits, batch: optax.sigmoid_binary_cross_entropy(logits, batch["late"]))
    with pytest.raises(InputError, match="label 'delayed' is not a column"):
        run.fit(nnx_model(problem.build), loss=None, predict=None, optimizer=None, label="delayed")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="no split 'test'"):
        problem.fit(dataclasses.replace(run, eval_split="test"))


def test_nnx_parameters_equal_the_modules_own(problem: ModuleType) -> None:
    """The oracle is the module itself, built and called the way Flax documents."""
    import jax
    from flax import nnx

    model = nnx_model(problem.build)
    params = model.init(jax.random.key(5))
    module = problem.build(nnx.Rngs(5))
    own = nnx.to_pure_dict(nnx.state(module, nnx.Param))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-7), params, own)
    features = {name: value for name, value in problem.columns(10).items() if name != "late"}
    np.testing.assert_allclose(model.apply(params, features), module(features), atol=1e-6)
