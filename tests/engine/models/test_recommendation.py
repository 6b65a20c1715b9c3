"""WideAndDeep and DLRM compute what their papers say, and what one device computes several do."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from drivetrain.engine import Model, nnx_model
from drivetrain.engine.models import DLRM, WideAndDeep, table_ids
from drivetrain.engine.ragged import Ragged
from drivetrain.errors import InputError

pytestmark = pytest.mark.engine

ROWS = {"user": 40, "item": 30, "items": 7}  # one is called as a method of dict
NUMBERS = ("age", "price")


def batch(rows: int = 9) -> dict[str, Any]:  # numpy arrays, where JAX wants its own
    random = np.random.default_rng(0)
    ids = {name: random.integers(0, size, rows).astype(np.int32) for name, size in ROWS.items()}
    return {**ids, **{name: random.normal(size=rows).astype(np.float32) for name in NUMBERS}}


def relu(layers: Mapping[Any, Any], values: np.ndarray) -> np.ndarray:
    for number in range(len(layers)):
        values = np.maximum(values @ layers[number]["kernel"] + layers[number]["bias"], 0)
    return values


def randomised(model: Model) -> Any:
    """Parameters of the model's shapes: a bias or a weight that begins at 0 would hide how it is used."""
    random = np.random.default_rng(1)
    shapes = jax.eval_shape(model.init, jax.random.key(0))
    return jax.tree.map(lambda leaf: random.normal(size=leaf.shape).astype(np.float32), shapes)


def test_dlrm_equals_its_formula_row_by_row() -> None:
    model = nnx_model(lambda rngs: DLRM(ROWS, NUMBERS, width=4, bottom=(8,), top=(16, 8), rngs=rngs))
    params = randomised(model)
    features = batch()
    got = np.asarray(jax.jit(model.apply)(params, features))
    assert got.shape == (9,)
    assert got.dtype == np.float32
    for row in range(9):
        dense = relu(params["bottom"], np.array([features[name][row] for name in NUMBERS]))
        vectors = [dense, *(params["tables"][name]["embedding"][features[name][row]] for name in ROWS)]
        products = [float(vectors[i] @ vectors[j]) for i in range(len(vectors)) for j in range(i)]
        top = relu(params["top"], np.concatenate([dense, products]))
        expected = top @ params["out"]["kernel"] + params["out"]["bias"]
        np.testing.assert_allclose(got[row], expected[0], rtol=2e-4)


@pytest.mark.slow
def test_dlrm_without_numbers_and_with_a_list_of_ids() -> None:
    model = nnx_model(lambda rngs: DLRM({"user": 40, "item": 30}, width=4, top=(), rngs=rngs))
    params = randomised(model)
    assert "bottom" not in params
    user = jnp.array([3, 39, 0], jnp.int32)
    # rows of 2, 0 and 1 ids, and an empty slot that names no row of the table
    items = Ragged(jnp.array([29, 4, 7, 99], jnp.int32), jnp.array([0, 0, 2, 3], jnp.int32), 3)
    features: dict[str, Any] = {"user": user, "item": items}
    got = model.apply(params, features)
    table = params["tables"]["item"]["embedding"]
    bags = np.stack([table[29] + table[4], np.zeros(4), table[7]])
    products = (params["tables"]["user"]["embedding"][user] * bags).sum(-1)
    np.testing.assert_allclose(got, products * params["out"]["kernel"][0, 0] + params["out"]["bias"][0], rtol=1e-4)


def test_wide_and_deep_equals_its_formula() -> None:
    wide, deep = {"items": 7, "user": 40}, {"user": 40, "item": 30}
    model = nnx_model(lambda rngs: WideAndDeep(wide, deep, NUMBERS, width=4, hidden=(8, 4), rngs=rngs))
    params, features = randomised(model), batch()
    numbers = np.stack([features[name] for name in NUMBERS], -1)
    linear = numbers @ params["linear"]["kernel"] + sum(params["wide"][n]["embedding"][features[n]] for n in wide)
    read = np.concatenate([numbers, *(params["tables"][name]["embedding"][features[name]] for name in deep)], -1)
    network = relu(params["hidden"], read) @ params["out"]["kernel"] + params["out"]["bias"]
    np.testing.assert_allclose(jax.jit(model.apply)(params, features), (linear + network)[:, 0], rtol=1e-4)


def test_wide_alone_is_a_linear_model() -> None:
    model = nnx_model(lambda rngs: WideAndDeep({"user": 40}, {}, rngs=rngs))
    assert not np.any(jax.jit(model.init)(jax.random.key(0))["wide"]["user"]["embedding"])
    params = randomised(model)
    user = np.arange(40, dtype=np.int32)
    np.testing.assert_array_equal(
        jax.jit(model.apply)(params, {"user": user}), params["wide"]["user"]["embedding"][:, 0]
    )


@pytest.mark.slow
def test_tables_begin_within_the_papers_bounds_and_in_equal_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drivetrain.engine.models.recommendation._BLOCK", 100)  # a part has 13 blocks, the last shorter
    model = nnx_model(lambda rngs: DLRM({"user": 10_001, "item": 16}, width=4, multiple=8, rngs=rngs))
    params = jax.jit(model.init)(jax.random.key(0))
    user = np.asarray(params["tables"]["user"]["embedding"])
    assert user.shape == (10_008, 4)
    assert params["tables"]["item"]["embedding"].shape == (16, 4)
    bound = 10_008**-0.5
    assert 0.999 * bound < user.max() <= bound
    assert len(np.unique(user)) > 0.99 * user.size  # all are drawn, none twice
    assert user.std() == pytest.approx(bound / np.sqrt(3), rel=0.02)  # of a uniform distribution


def test_an_unknown_id_shows() -> None:
    model = nnx_model(lambda rngs: DLRM({"user": 40, "item": 30}, width=4, rngs=rngs))
    ids = {"user": np.array([0, 40], np.int32), "item": np.array([0, 0], np.int32)}
    got = np.asarray(jax.jit(model.apply)(randomised(model), ids))
    assert np.isfinite(got[0])
    assert np.isnan(got[1])


def test_what_cannot_be_a_model_is_refused() -> None:
    with pytest.raises(InputError, match="the model has no feature"):
        nnx_model(lambda rngs: WideAndDeep({}, {}, rngs=rngs))
    with pytest.raises(InputError, match="the model has no feature"):
        nnx_model(lambda rngs: DLRM({}, rngs=rngs))
    with pytest.raises(InputError, match="no interactions"):
        nnx_model(lambda rngs: DLRM({"user": 3}, rngs=rngs))


def test_table_ids_name_the_parameters() -> None:
    model = nnx_model(lambda rngs: WideAndDeep({"user": 40}, ROWS, rngs=rngs))
    paths = jax.tree_util.tree_flatten_with_path(jax.eval_shape(model.init, jax.random.key(0)))[0]
    names = {jax.tree_util.keystr(path, simple=True, separator=".") for path, _ in paths}
    ids = {**table_ids(ROWS), **table_ids(["user"], "wide")}
    assert set(ids) == {name for name in names if name.endswith("embedding")}
    assert ids["tables.items.embedding"] == "items"


SCRIPT = """
import importlib.util, json, sys
from pathlib import Path
import jax, numpy as np, optax
from drivetrain.engine import SparseTables, Strategy, TrainingRun, nnx_model, rowwise_adam
from drivetrain.engine.models import DLRM, ROWS_OVER_DEVICES, WideAndDeep, table_ids
from drivetrain.engine.models import recommendation
from drivetrain.engine.training.program import Program, StepOptions
recommendation._BLOCK = 2  # so that a part has several
spec = importlib.util.spec_from_file_location("problem", sys.argv[1])
problem = importlib.util.module_from_spec(spec)
spec.loader.exec_module(problem)

by_rows = Strategy("by_rows", axes=(("data", -1),), batch=("data",), rules=ROWS_OVER_DEVICES)
strategies = {"single": Strategy("single", axes=(("data", 1),)), "by_rows": by_rows}
loss = lambda logits, batch: optax.sigmoid_binary_cross_entropy(logits, batch["late"]).mean()
dlrm = lambda rngs: DLRM(problem.IDS, problem.NUMBERS, width=8, bottom=(8,), top=(8,), multiple=4, rngs=rngs)
both = lambda rngs: WideAndDeep(problem.IDS, problem.IDS, problem.NUMBERS, hidden=(8,), multiple=4, rngs=rngs)
ids = {**table_ids(problem.IDS), **table_ids(problem.IDS, "wide")}
trainings = {"dlrm": (dlrm, None), "wide and deep": (both, SparseTables(ids, rowwise_adam(2e-3)))}
result = {}
for name, (build, tables) in trainings.items():
    model, params, optimizer = nnx_model(build), {}, optax.adam(2e-3)
    for kind, strategy in strategies.items():
        run = TrainingRun(problem.SPECS, Path(sys.argv[2]), batch_size=64, strategy=strategy, depth=5, eval_split=None)
        predict = lambda logits: {"logits": logits}
        trained = run.fit(model, loss=loss, predict=predict, optimizer=optimizer, label="late", tables=tables)
        params[kind] = jax.tree.leaves(trained.params)
    program = Program(model, loss, optimizer, "late", by_rows.placement(), StepOptions(tables=tables))
    state = program.initial(run.key()).compile()(run.key(), {})
    first = jax.tree.leaves(jax.device_get(state["params"]))
    stack, count = next(run.train_data.stacks(0, 0, 5))
    state, _ = program.train(state, program.feed(stack), count, 0, run.key())
    named = {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_flatten_with_path(state)[0]}
    arrays = {path: leaf for path, leaf in named.items() if "embedding" in path}
    result[name] = {
        "difference": max(float(np.abs(a - b).max()) for a, b in zip(*params.values(), strict=True)),
        "moved": min(float(np.abs(a - b).max()) for a, b in zip(params["single"], first, strict=True)),
        "parts": {path: leaf.addressable_shards[0].data.shape[0] / leaf.shape[0] for path, leaf in arrays.items()},
    }
print(json.dumps(result))
"""


@pytest.mark.slow
def test_tables_split_over_four_devices_equal_those_of_one(
    tmp_path: Any, problem: ModuleType, virtual_devices: Callable[[int], dict[str, str]]
) -> None:
    content = problem.examples(tmp_path, train=20 * 64, evaluation=100)
    command = [sys.executable, "-c", SCRIPT, str(problem.__file__), str(content)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=virtual_devices(4))
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    for name, tables in (("dlrm", 2), ("wide and deep", 4)):
        assert result[name]["moved"] > 0.001
        assert result[name]["difference"] < 1e-5
        assert len(result[name]["parts"]) == 3 * tables  # with two moments of each
        assert set(result[name]["parts"].values()) == {0.25}
