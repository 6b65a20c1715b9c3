"""Frozen parameters keep their bits and cost the optimizer nothing, whatever else a step does."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pyarrow as pa
import pytest
from drivetrain.engine import Model, Trained, TrainingRun
from drivetrain.engine.graphs.graph import FieldSpec
from drivetrain.engine.training.freezing import Freezing
from drivetrain.engine.training.model import nnx_model
from drivetrain.engine.training.program import Program, StepOptions
from drivetrain.errors import Canceled, InputError
from flax import nnx

pytestmark = pytest.mark.engine

WIDTH, BATCH = 8, 32
SPECS = {"x": FieldSpec("float32", (4,)), "y": FieldSpec("float32")}


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory, problem: ModuleType) -> Path:
    x = np.random.default_rng(0).normal(size=(BATCH * 8, 4)).astype(np.float32)
    rows = pa.table({"x": pa.FixedSizeListArray.from_arrays(x.ravel(), 4), "y": x.sum(-1) ** 2})
    folder: Path = problem.write(tmp_path_factory.mktemp("frozen"), {"train": rows, "eval": rows.slice(0, BATCH)})
    return folder


@pytest.fixture
def run(content: Path) -> TrainingRun:
    """8 steps in each of 3 epochs."""
    return TrainingRun(SPECS, content, epochs=3, batch_size=BATCH, depth=3, seed=2)


KERNEL = np.random.default_rng(1).normal(size=(4, WIDTH)).astype(np.float32)
KERNEL[0, 0] = -0.0  # to which adding 0 would give another 0


def init(key: jax.Array) -> dict[str, Any]:
    """No random ones, whose bits differ with how XLA compiles them."""
    return {
        "encoder": {"kernel": jnp.asarray(KERNEL), "bias": jnp.full(WIDTH, 0.1)},
        "head": {"kernel": jnp.asarray(KERNEL[1]), "bias": jnp.zeros(())},
    }


def apply(params: Mapping[str, Any], features: Mapping[str, jax.Array]) -> jax.Array:
    hidden = jnp.tanh(features["x"] @ params["encoder"]["kernel"] + params["encoder"]["bias"])
    output: jax.Array = hidden @ params["head"]["kernel"] + params["head"]["bias"]
    return output


def squared(output: jax.Array, batch: Mapping[str, jax.Array]) -> jax.Array:
    return jnp.mean((output - batch["y"]) ** 2)


def optimizer() -> optax.GradientTransformation:
    """Of one that looks at all gradients together, and changes parameters without any."""
    return optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-2, weight_decay=0.1))


def fit(run: TrainingRun, model: Model | None = None, **options: Any) -> Trained:
    return run.fit(
        model or Model(init, apply),
        loss=squared,
        predict=lambda output: {"predicted": output},
        optimizer=optimizer(),
        label="y",
        **options,
    )


def bits(tree: Any) -> list[bytes]:
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(tree)]


def test_the_rest_is_trained_as_by_optaxs_own_partition(run: TrainingRun) -> None:
    trained = fit(run, freeze=["encoder.*"])
    labels = {"encoder": "frozen", "head": "trained"}
    partition = optax.partition({"trained": optimizer(), "frozen": optax.set_to_zero()}, labels)
    params = init(run.key())
    state = partition.init(params)

    @jax.jit
    def step(params: Any, state: Any, batch: Mapping[str, jax.Array]) -> Any:
        gradients = jax.grad(lambda params: squared(apply(params, {"x": batch["x"]}), batch))(params)
        updates, state = partition.update(gradients, state, params)
        return optax.apply_updates(params, updates), state

    for epoch in range(run.epochs):
        for batch in run.batches("train", epoch):
            params, state = step(params, state, batch)
    jax.tree.map(lambda ours, theirs: np.testing.assert_allclose(ours, theirs, rtol=1e-4), trained.params, params)
    assert bits(trained.params["encoder"]) == bits(init(run.key())["encoder"])
    assert bits(trained.params["head"]) != bits(init(run.key())["head"])


def test_the_optimizer_remembers_nothing_of_them(run: TrainingRun) -> None:
    def elements(freezing: Freezing) -> int:
        placement = run.strategy.placement()
        program = Program(Model(init, apply), squared, optax.adam(0.1), "y", placement, StepOptions(freezing=freezing))
        return sum(leaf.size for leaf in jax.tree.leaves(program.shapes(run.key())["optimizer"]))

    assert elements(Freezing()) - elements(Freezing(("encoder.*",))) == 2 * (4 * WIDTH + WIDTH)
    assert fit(run, freeze=("encoder.*",)).memory["state"] < fit(run).memory["state"]


def test_with_everything_on_they_keep_their_bits_after_an_interruption_too(run: TrainingRun, tmp_path: Path) -> None:
    everything: dict[str, Any] = {"freeze": ["*.kernel"], "ema": 0.9, "precision": "float16", "skip_nonfinite": True}

    def stop(done: int, total: int | None, unit: str) -> None:
        if done >= 13 * BATCH:
            raise Canceled("stop")

    whole = fit(run, **everything)
    first = init(run.key())
    for name in ("encoder", "head"):
        assert bits(whole.params[name]["kernel"]) == bits(first[name]["kernel"])
        assert bits(whole.params[name]["bias"]) != bits(first[name]["bias"])
    with pytest.raises(Canceled):
        fit(dataclasses.replace(run, work_dir=tmp_path, progress=stop), **everything)
    resumed = fit(dataclasses.replace(run, work_dir=tmp_path), **everything)
    assert resumed.first_step >= 13
    assert bits(resumed.params) == bits(whole.params)


def test_a_warm_start_with_frozen_arrays(run: TrainingRun) -> None:
    kernel = np.random.default_rng(1).normal(size=(4, WIDTH)).astype(np.float32)
    base = {"model/encoder/kernel": kernel, "model/head/kernel": np.ones(WIDTH, np.float32)}
    trained = fit(dataclasses.replace(run, base_model=base), freeze=["encoder.*"])
    np.testing.assert_array_equal(trained.params["encoder"]["kernel"], kernel)
    assert (np.asarray(trained.params["head"]["kernel"]) != 1.0).all()


class Normalised(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.encoder = nnx.Linear(4, WIDTH, rngs=rngs)
        self.norm = nnx.BatchNorm(WIDTH, rngs=rngs)
        self.out = nnx.Linear(WIDTH, 1, rngs=rngs)

    def __call__(self, features: Mapping[str, jax.Array]) -> jax.Array:
        return self.out(nnx.relu(self.norm(self.encoder(features["x"]))))[:, 0]


@pytest.mark.slow
def test_statistics_are_frozen_by_their_names_too(run: TrainingRun) -> None:
    trained = fit(run, nnx_model(Normalised), freeze=["encoder.*", "norm.*"])
    first = jax.jit(nnx_model(Normalised).init)(run.key())
    assert bits(trained.params["state"]) == bits(first["state"])
    assert bits(trained.params["params"]["norm"]) == bits(first["params"]["norm"])
    assert bits(trained.params["params"]["out"]) != bits(first["params"]["out"])
    moving = fit(run, nnx_model(Normalised), freeze=["encoder.*"])
    assert bits(moving.params["state"]) != bits(first["state"])


@pytest.mark.parametrize(
    ("freeze", "said", "fix"),
    [
        (["encodr.*"], "no parameter of the model fits 'encodr.*'", "did you mean 'encoder.bias' or 'encoder.kernel'"),
        (["encoder"], "no parameter of the model fits 'encoder'", "did you mean 'encoder.*'"),
        (["*"], "all parameters of the model are frozen", "leave one out"),
        ("encoder.*", "freeze is the text 'encoder.*'", r"freeze=['encoder.*']"),
    ],
)
def test_what_cannot_be_frozen(run: TrainingRun, freeze: Any, said: str, fix: str) -> None:
    with pytest.raises(InputError) as caught:
        fit(run, freeze=freeze)
    assert said in caught.value.message
    assert fix in (caught.value.fix or "")
