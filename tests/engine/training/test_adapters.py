"""Models of four libraries learn the same from the same weights, and keep their states as each library says."""

from __future__ import annotations

import dataclasses
import sys
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
from drivetrain.engine import Model, Trained, TrainingRun, equinox_model, haiku_model, keras_model, nnx_model
from drivetrain.engine.graphs.graph import FieldSpec
from drivetrain.errors import DrivetrainError, InputError
from drivetrain.tests.engine.hurry import hurried
from flax import nnx
from jax import export

pytestmark = pytest.mark.engine

WIDTH = 8
SPECS = {"x": FieldSpec("float32", (2,)), "y": FieldSpec("float32")}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, problem: ModuleType) -> TrainingRun:
    """16 steps of 32 in each of 2 epochs."""
    random = np.random.default_rng(0)
    x = random.normal(size=(512, 2)).astype(np.float32)
    rows = pa.table({"x": pa.FixedSizeListArray.from_arrays(x.reshape(-1), 2), "y": np.tanh(x[:, 0] * x[:, 1])})
    rows = rows.set_column(1, "y", rows["y"].cast(pa.float32()))
    content = problem.write(tmp_path_factory.mktemp("adapters"), {"train": rows, "eval": rows.slice(0, 128)})
    return TrainingRun(SPECS, content, epochs=2, batch_size=32, seed=1)


def fit(run: TrainingRun, model: Model) -> Trained:
    return run.fit(
        model,
        loss=lambda outputs, batch: jnp.mean((outputs - batch["y"]) ** 2),
        predict=lambda outputs: {"y_hat": outputs},
        optimizer=optax.sgd(0.1),
        label="y",
    )


class Flax(nnx.Module):
    """Two layers, with batch normalisation and dropout between them."""

    def __init__(self, rate: float, *, rngs: nnx.Rngs) -> None:
        self.hidden = nnx.Linear(2, WIDTH, rngs=rngs)
        self.norm = nnx.BatchNorm(WIDTH, momentum=0.9, epsilon=1e-5, rngs=rngs)
        self.drop = nnx.Dropout(rate, rngs=rngs)
        self.out = nnx.Linear(WIDTH, 1, rngs=rngs)

    def __call__(self, features: Mapping[str, Any]) -> Any:
        return self.out(self.drop(nnx.relu(self.norm(self.hidden(features["x"])))))[:, 0]


def flax(run: TrainingRun, rate: float) -> Model:
    return nnx_model(lambda rngs: Flax(rate, rngs=rngs))


def keras(run: TrainingRun, rate: float) -> Model:
    def build() -> Any:
        import keras

        x = keras.Input((2,), name="x")
        hidden = keras.layers.Dense(WIDTH, name="hidden")(x)
        normal = keras.layers.BatchNormalization(momentum=0.9, epsilon=1e-5, name="norm")(hidden)
        dropped = keras.layers.Dropout(rate)(keras.layers.ReLU()(normal))
        out = keras.layers.Dense(1, name="out")(dropped)
        return keras.Model({"x": x}, keras.layers.Reshape(())(out))

    return keras_model(build, seed=run.seed)


def equinox(run: TrainingRun, rate: float) -> Model:
    import equinox as eqx

    class Net(eqx.Module):
        hidden: Any
        norm: Any
        drop: Any
        out: Any

        def __init__(self, key: Any) -> None:
            first, second = jax.random.split(key)
            self.hidden = eqx.nn.Linear(2, WIDTH, key=first)
            self.norm = eqx.nn.BatchNorm(WIDTH, "batch", momentum=0.9, eps=1e-5, mode="batch")
            self.drop = eqx.nn.Dropout(rate)
            self.out = eqx.nn.Linear(WIDTH, 1, key=second)

        def __call__(self, features: Any, state: Any, key: Any = None) -> Any:
            hidden, state = self.norm(self.hidden(features["x"]), state)
            return self.out(self.drop(jax.nn.relu(hidden), key=key))[0], state

    return equinox_model(lambda key: eqx.nn.make_with_state(Net)(key))


def haiku(run: TrainingRun, rate: float) -> Model:
    import haiku as hk

    def forward(features: Any, is_training: bool) -> Any:
        hidden = hk.Linear(WIDTH, name="hidden")(features["x"])
        hidden = hk.BatchNorm(True, True, decay_rate=0.9, name="norm")(hidden, is_training)
        hidden = jax.nn.relu(hidden)
        if is_training and rate:
            hidden = hk.dropout(hk.next_rng_key(), rate, hidden)
        return hk.Linear(1, name="out")(hidden)[:, 0]

    return haiku_model(forward, run.example(2))


LIBRARIES: Mapping[str, Callable[[TrainingRun, float], Model]] = {
    "flax": flax, "keras": keras, "equinox": equinox, "haiku": haiku,
}  # fmt: skip


def with_equal_weights(model: Model) -> Model:
    """The matrices are the same for all, also where one is kept transposed; vectors are zeros and ones anyhow."""
    random = np.random.default_rng(5)
    hidden, out = random.normal(size=(2, WIDTH)).astype(np.float32), random.normal(size=(WIDTH, 1)).astype(np.float32)
    matrices = {(2, WIDTH): hidden, (WIDTH, 2): hidden.T, (WIDTH, 1): out, (1, WIDTH): out.T}

    def init(key: Any) -> Any:
        def equal(path: Any, leaf: Any) -> Any:
            if "norm" in str(path):
                scales = any(word in str(path) for word in ("scale", "gamma", "weight"))
                return jnp.ones_like(leaf) if scales else jnp.zeros_like(leaf)
            return jnp.asarray(matrices[leaf.shape]) if leaf.ndim == 2 else jnp.zeros_like(leaf)

        variables = model.init(key)
        return {**variables, "params": jax.tree_util.tree_map_with_path(equal, variables["params"])}

    return dataclasses.replace(model, init=init)


@pytest.fixture(scope="module")
def trained(run: TrainingRun) -> dict[str, Trained]:
    with hurried():  # their losses are compared, no bits
        return {name: fit(run, with_equal_weights(build(run, 0.0))) for name, build in LIBRARIES.items()}


@pytest.mark.slow
@pytest.mark.parametrize("library", ["keras", "equinox", "haiku"])
def test_losses_are_those_of_flax(trained: dict[str, Trained], library: str) -> None:
    ours, reference = trained[library], trained["flax"]
    np.testing.assert_allclose([loss for _, loss in ours.curve], [loss for _, loss in reference.curve], rtol=1e-4)
    assert reference.curve[-1][1] < 0.7 * reference.curve[0][1]
    # Keras averages as Flax does; the others start their averages without the first zeros.
    rtol = 1e-3 if library == "keras" else 0.1
    assert ours.history[-1].eval_loss == pytest.approx(reference.history[-1].eval_loss, rel=rtol)


@pytest.mark.parametrize("library", LIBRARIES)
def test_dropout_is_drawn_again_in_each_step_and_never_where_it_is_exported(run: TrainingRun, library: str) -> None:
    model = LIBRARIES[library](run, 0.5)
    variables = jax.jit(model.init)(jax.random.key(0))
    features = {"x": next(run.batches())["x"]}
    step, apply = jax.jit(model.step), jax.jit(model.apply)
    params, state = model.parts(variables)
    first, after = step(params, state, features, jax.random.key(1))
    second, _ = step(params, after, features, jax.random.key(2))
    assert (np.asarray(first) != np.asarray(second)).mean() > 0.5
    whole = apply(variables, features)
    np.testing.assert_array_equal(whole, apply(variables, features))
    np.testing.assert_allclose(apply(variables, {"x": features["x"][:1]}), whole[:1], rtol=1e-5)
    (rows,) = export.symbolic_shape("rows")
    shape: Any = jax.ShapeDtypeStruct
    shapes = jax.tree.map(lambda leaf: shape(leaf.shape, leaf.dtype), variables)
    program: Any = export.export(jax.jit(model.apply))(shapes, {"x": shape((rows, 2), jnp.float32)})
    np.testing.assert_allclose(program.call(variables, {"x": features["x"][:7]}), whole[:7], rtol=1e-5)


def test_keras_weights_have_their_paths_whatever_was_built_before(run: TrainingRun) -> None:
    first, second = (keras_model(lambda: _nameless(), seed=3).init(jax.random.key(0)) for _ in range(2))
    assert list(first["params"]) == ["dense/kernel", "dense/bias"]
    assert list(first["params"]) == list(second["params"])
    np.testing.assert_array_equal(first["params"]["dense/kernel"], second["params"]["dense/kernel"])


def _nameless() -> Any:
    import keras

    x = keras.Input((2,), name="x")
    return keras.Model({"x": x}, keras.layers.Dense(1)(x))


def test_what_keras_would_do_unseen_is_refused() -> None:
    import keras

    def regularised() -> Any:
        x = keras.Input((2,), name="x")
        return keras.Model({"x": x}, keras.layers.Dense(1, kernel_regularizer="l2")(x))

    with pytest.raises(InputError, match="losses of its own"):
        keras_model(regularised)
    with pytest.raises(InputError, match="no weights yet"):
        keras_model(lambda: keras.Sequential([keras.layers.Dense(1)]))


def test_a_library_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "haiku", None)
    with pytest.raises(DrivetrainError, match=r"dm-haiku is not installed\n  fix: pip install dm-haiku"):
        haiku_model(lambda features, is_training: features["x"], {})


def test_a_function_for_haiku_takes_two_arguments(run: TrainingRun) -> None:
    pytest.importorskip("haiku")
    with pytest.raises(InputError, match=r"this one takes \(features\)\n.*def forward\(features, is_training\)"):
        haiku_model(lambda features: features["x"], run.example())


def test_a_module_of_equinox_without_state_or_keys(run: TrainingRun) -> None:
    import equinox as eqx

    class Net(eqx.Module):
        layers: Any

        def __init__(self, key: Any) -> None:
            self.layers = eqx.nn.MLP(2, "scalar", WIDTH, 1, key=key)

        def __call__(self, features: Any) -> Any:
            return self.layers(features["x"])

    trained = fit(run, equinox_model(Net))
    assert trained.history[-1].loss < trained.history[0].loss
    assert "layers.layers.0.weight" in trained.params["params"]


@pytest.mark.slow
@pytest.mark.parametrize("library", ["keras", "equinox", "haiku"])
def test_resumed_to_the_bit(run: TrainingRun, problem: ModuleType, tmp_path: Path, library: str) -> None:
    from drivetrain.errors import Canceled

    def cancel(done: int, total: int | None, unit: str) -> None:
        if done >= 11 * 32:
            raise Canceled("stop")

    build = LIBRARIES[library]
    whole = fit(run, build(run, 0.3))
    with pytest.raises(Canceled):
        fit(dataclasses.replace(run, work_dir=tmp_path, progress=cancel), build(run, 0.3))
    resumed = fit(dataclasses.replace(run, work_dir=tmp_path), build(run, 0.3))
    assert resumed.first_step >= 11
    assert problem.digest(resumed.params) == problem.digest(whole.params)
