"""Sparse tables: the rows of a batch change as an optimizer has it, computed by numpy; the others are not touched."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
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
    FieldSpec,
    Model,
    Ragged,
    SparseTables,
    Strategy,
    Trained,
    TrainingRun,
    nnx_model,
    rowwise_adagrad,
    rowwise_adam,
)
from drivetrain.engine.ragged import embedding_bag
from drivetrain.engine.training.program import Program, StepOptions
from drivetrain.engine.training.tables import RowUpdates
from drivetrain.errors import Canceled, InputError
from flax import nnx

pytestmark = pytest.mark.engine

USERS, ITEMS, WIDTH, BATCH, DEPTH = 60, 50, 4, 16, 5
SPECS = {
    "user": FieldSpec("int32", size=USERS),
    "item": FieldSpec("int32", size=ITEMS),
    "rating": FieldSpec("float32"),
}
IDS = {"user.table": "user", "item.table": "item"}
LAST = 7  # the users and items from here on occur in no batch


FIRST_USERS, FIRST_ITEMS = (
    np.random.default_rng(seed).normal(size=(rows, WIDTH)).astype(np.float32)
    for seed, rows in enumerate((USERS, ITEMS))
)


def init(key: jax.Array) -> dict[str, Any]:
    """Random, but not from the key: what draws from that takes longer to lower than a step."""
    return {
        "user": {"table": jnp.asarray(FIRST_USERS)},
        "item": {"table": jnp.asarray(FIRST_ITEMS)},
        "bias": jnp.zeros(()),
    }


def apply(params: Any, features: Mapping[str, jax.Array]) -> Any:
    rows = jnp.take(params["user"]["table"], features["user"], axis=0)
    return (rows * params["item"]["table"][features["item"]]).sum(-1) + params["bias"]


MODEL = Model(init, apply)


def loss(outputs: jax.Array, batch: Mapping[str, jax.Array]) -> jax.Array:
    return jnp.mean((outputs - batch["rating"]) ** 2)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, problem: ModuleType) -> TrainingRun:
    """Ratings in which every id that occurs occurs often, in each batch more than once."""
    random = np.random.default_rng(0)
    rows = 20 * BATCH
    columns = {
        "user": random.integers(0, USERS - LAST, rows).astype(np.int32) // 2 * 2,
        "item": random.integers(0, 11, rows).astype(np.int32),
        "rating": random.normal(size=rows).astype(np.float32),
    }
    content = problem.write(tmp_path_factory.mktemp("ratings"), {"train": pa.table(columns), "eval": pa.table(columns)})
    return TrainingRun(SPECS, content, batch_size=BATCH, depth=DEPTH)


def fit(run: TrainingRun, tables: SparseTables | None, optimizer: Any, model: Model = MODEL, **options: Any) -> Trained:
    predict: Any = lambda outputs: {"predicted": outputs}  # noqa: E731
    return run.fit(model, loss=loss, predict=predict, optimizer=optimizer, label="rating", tables=tables, **options)


@pytest.fixture(scope="module")
def first_params(run: TrainingRun) -> Any:
    """What a training of this run begins with, to the bit."""
    state = (
        Program(MODEL, loss, optax.sgd(1), "rating", run.strategy.placement())
        .initial(run.key())
        .compile()(run.key(), {})
    )
    return jax.device_get(state["params"])


def reference(
    run: TrainingRun, params: Any, row_update: Callable[..., Any]
) -> tuple[dict[str, Any], dict[str, set[int]]]:
    """Both tables after an epoch that begins with `params`, in float64.

    `row_update(memory, row, gradient, step)` gives each named row's next.
    """
    tables = {name: params[name]["table"].astype(np.float64) for name in ("user", "item")}
    memory: dict[str, dict[int, Any]] = {"user": {}, "item": {}}
    touched: dict[str, set[int]] = {"user": set(), "item": set()}
    for step, batch in enumerate(run.batches()):
        error = (tables["user"][batch["user"]] * tables["item"][batch["item"]]).sum(-1) - batch["rating"]
        slopes = 2 * error[:, None] / BATCH
        gradients = {
            "user": slopes * tables["item"][batch["item"]],
            "item": slopes * tables["user"][batch["user"]],
        }
        for name, of_places in gradients.items():
            for row in np.unique(batch[name]):
                gradient = of_places[batch[name] == row].sum(0)
                kept = memory[name].setdefault(row, {})
                tables[name][row] = row_update(kept, tables[name][row], gradient, step)
                touched[name].add(int(row))
    return tables, touched


def sgd(kept: dict[str, Any], row: Any, gradient: Any, step: int) -> Any:
    return row - 0.3 * gradient


def adagrad(kept: dict[str, Any], row: Any, gradient: Any, step: int) -> Any:
    kept["sum"] = kept.get("sum", 0.1) + gradient**2
    return row - 0.3 * gradient / np.sqrt(kept["sum"] + 1e-7)


def lazy_adam(kept: dict[str, Any], row: Any, gradient: Any, step: int) -> Any:
    """As torch.optim.SparseAdam has it: moments decay where the row has a gradient, the correction in every step."""
    kept["mean"] = 0.9 * kept.get("mean", 0) + 0.1 * gradient
    kept["square"] = 0.999 * kept.get("square", 0) + 0.001 * gradient**2
    corrected = kept["mean"] / (1 - 0.9 ** (step + 1)), kept["square"] / (1 - 0.999 ** (step + 1))
    return row - 0.03 * corrected[0] / (np.sqrt(corrected[1]) + 1e-8)


def by_rows_adagrad(kept: dict[str, Any], row: Any, gradient: Any, step: int) -> Any:
    kept["sum"] = kept.get("sum", 0) + (gradient**2).mean()
    return row - 0.3 * gradient / (np.sqrt(kept["sum"]) + 1e-8)


def by_rows_adam(kept: dict[str, Any], row: Any, gradient: Any, step: int) -> Any:
    kept["mean"] = 0.9 * kept.get("mean", 0) + 0.1 * gradient
    kept["square"] = 0.999 * kept.get("square", 0) + 0.001 * (gradient**2).mean()
    corrected = kept["mean"] / (1 - 0.9 ** (step + 1)), kept["square"] / (1 - 0.999 ** (step + 1))
    return row - 0.03 * corrected[0] / (np.sqrt(corrected[1]) + 1e-8)


@pytest.mark.parametrize(
    ("optimizer", "row_update"),
    [
        pytest.param(optax.sgd(0.3), sgd, marks=pytest.mark.slow),
        pytest.param(optax.adagrad(0.3), adagrad, marks=pytest.mark.slow),
        (optax.adam(0.03), lazy_adam),
        (rowwise_adagrad(0.3), by_rows_adagrad),
        pytest.param(rowwise_adam(0.03), by_rows_adam, marks=pytest.mark.slow),
    ],
    ids=["sgd", "adagrad", "lazy adam", "row-wise adagrad", "row-wise adam"],
)
def test_rows_change_as_the_optimizer_has_it(
    run: TrainingRun, first_params: Any, optimizer: Any, row_update: Any
) -> None:
    frozen = optax.set_to_zero()  # the bias
    trained = fit(run, SparseTables(IDS, optimizer), frozen)
    expected, touched = reference(run, first_params, row_update)
    for name, rows in (("user", USERS), ("item", ITEMS)):
        table = trained.params[name]["table"]
        np.testing.assert_allclose(table, expected[name], rtol=1e-4, atol=1e-5)
        resting = sorted({*range(rows)} - touched[name])
        assert len(resting) > LAST
        np.testing.assert_array_equal(table[resting], first_params[name]["table"][resting])
        assert np.abs(table - first_params[name]["table"]).max() > 0.1


@pytest.mark.parametrize(
    "optimizer",
    [pytest.param(optax.sgd(0.3), marks=pytest.mark.slow), optax.adagrad(0.3)],
    ids=["sgd", "adagrad"],
)
def test_equals_the_dense_optimizer(run: TrainingRun, optimizer: Any) -> None:
    sparse, dense = (fit(run, tables, optimizer) for tables in (SparseTables(IDS, optimizer), None))
    for one_leaf, other in zip(jax.tree.leaves(sparse.params), jax.tree.leaves(dense.params), strict=True):
        np.testing.assert_allclose(one_leaf, other, rtol=1e-5, atol=1e-6)
    assert sparse.params["bias"] != 0
    assert sparse.history[0].eval_loss == pytest.approx(dense.history[0].eval_loss, rel=1e-5)


@pytest.mark.slow
def test_lists_of_ids_and_features_that_share_a_table(tmp_path: Path, problem: ModuleType) -> None:
    """An item and the items before it, in one table."""
    random = np.random.default_rng(1)
    lengths = random.integers(0, 4, 10 * BATCH)
    history = [random.integers(0, ITEMS - LAST, length).tolist() for length in lengths]
    columns = {
        "item": pa.array(random.integers(0, ITEMS - LAST, 10 * BATCH).astype(np.int32)),
        "history": pa.array(history, pa.list_(pa.int32())),
        "rating": pa.array(random.normal(size=10 * BATCH).astype(np.float32)),
    }
    content = problem.write(tmp_path, {"train": pa.table(columns)})
    specs = {"item": SPECS["item"], "history": FieldSpec("list<int32>", size=ITEMS), "rating": SPECS["rating"]}
    run = TrainingRun(specs, content, batch_size=BATCH, depth=DEPTH, eval_split=None)

    def by_history(params: Any, features: Any) -> Any:
        assert isinstance(features["history"], Ragged)
        table = params["item"]["table"]
        return (table[features["item"]] * embedding_bag(table, features["history"])).sum(-1)

    model = Model(lambda key: {"item": init(key)["item"]}, by_history)
    tables = SparseTables({"item.table": ["item", "history"]}, optax.adagrad(0.3))
    sparse, dense = (fit(run, each, optax.adagrad(0.3), model) for each in (tables, None))
    np.testing.assert_allclose(sparse.params["item"]["table"], dense.params["item"]["table"], rtol=1e-5, atol=1e-6)


def test_an_empty_slot_names_no_row(run: TrainingRun) -> None:
    """Row 0 is looked up in the first step; in the second an empty slot holds a 0, and its moments rest."""

    def of_lists(params: Any, features: Any) -> Any:
        return embedding_bag(params["item"]["table"], features["items"]).sum(-1)

    options = StepOptions(tables=SparseTables({"item.table": "items"}, optax.adam(0.1)))
    program = Program(Model(init, of_lists), loss, optax.sgd(0.1), "rating", run.strategy.placement(), options)
    state = program.initial(run.key()).compile()(run.key(), {})
    moments, rows = [], []
    for step, (values, segments) in enumerate([([0, 5, 5, 9], [0, 1, 2, 2]), ([3, 5, 0, 0], [0, 1, 2, 2])]):
        items = Ragged(jnp.array([values], jnp.int32), jnp.array([segments], jnp.int32), 2)
        stack: Any = {"items": items, "rating": jnp.ones((1, 2))}
        state, _ = program.train(state, stack, 1, step, run.key())
        moments.append(np.array(state["optimizer"].inner_states["tables"].inner_state[0].mu["item"]["table"]))
        rows.append(np.array(state["params"]["item"]["table"]))
    assert np.flatnonzero(moments[0].any(-1)).tolist() == [0, 5]
    assert np.flatnonzero((moments[1] != moments[0]).any(-1)).tolist() == [3, 5]
    assert np.flatnonzero((rows[1] != rows[0]).any(-1)).tolist() == [3, 5]


@pytest.mark.slow
def test_a_module_with_all_options_goes_on_with_the_same_bits(run: TrainingRun, tmp_path: Path) -> None:
    """Two tables of a feature, dropout, float16, a moving average, the best epoch; saved and resumed in the middle."""

    class Both(nnx.Module):
        def __init__(self, rngs: nnx.Rngs) -> None:
            self.wide = nnx.Embed(USERS, 1, rngs=rngs)
            self.user = nnx.Embed(USERS, WIDTH, rngs=rngs)
            self.item = nnx.Embed(ITEMS, WIDTH, rngs=rngs)
            self.dropout = nnx.Dropout(0.1, rngs=rngs)

        def __call__(self, features: Mapping[str, jax.Array]) -> jax.Array:
            products = self.user(features["user"]) * self.item(features["item"])
            return self.dropout(products).sum(-1) + self.wide(features["user"])[:, 0]

    ids = {"wide.embedding": "user", "user.embedding": "user", "item.embedding": "item"}
    options: Any = {"ema": 0.9, "precision": "float16", "skip_nonfinite": True, "keep_best": "eval_loss"}

    def train(run: TrainingRun) -> Trained:
        return fit(run, SparseTables(ids, optax.adam(0.03)), optax.sgd(0.1), nnx_model(Both), **options)

    whole = train(replace(run, epochs=2))

    def stop(done: int, total: int | None, unit: str) -> None:
        if done >= 25 * BATCH:
            raise Canceled("enough")

    with pytest.raises(Canceled):
        train(replace(run, epochs=2, work_dir=tmp_path, progress=stop))
    resumed = train(replace(run, epochs=2, work_dir=tmp_path))
    assert 25 <= resumed.first_step < 40
    for leaf, other in zip(jax.tree.leaves(resumed.params), jax.tree.leaves(whole.params), strict=True):
        np.testing.assert_array_equal(leaf, other)


@pytest.mark.slow
def test_a_step_that_is_left_out_changes_no_row(run: TrainingRun, first_params: Any) -> None:
    def broken(outputs: jax.Array, batch: Mapping[str, jax.Array]) -> jax.Array:
        return loss(outputs, batch) * jnp.where(batch["user"][0] % 12 == 0, 1, jnp.nan)

    adam = optax.adam(0.03)
    options: Any = {"predict": lambda outputs: {"predicted": outputs}, "label": "rating", "skip_nonfinite": True}
    trained = run.fit(MODEL, loss=broken, optimizer=adam, tables=SparseTables(IDS, adam), **options)
    skipped = [batch["user"][0] % 12 != 0 for batch in run.batches()]
    assert trained.history[0].skipped == sum(skipped) < 20
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(trained.params))
    shown = {int(row) for batch, out in zip(run.batches(), skipped, strict=True) if not out for row in batch["user"]}
    changed = (trained.params["user"]["table"] != first_params["user"]["table"]).any(-1)
    assert set(np.flatnonzero(changed).tolist()) == shown
    assert len(shown) < len({int(row) for batch in run.batches() for row in batch["user"]})


def test_nothing_as_large_as_a_table_is_computed(run: TrainingRun) -> None:
    """What XLA plans beside the state is far smaller than a table, which with the dense optimizer it is not."""
    rows = 100_000

    def large(key: jax.Array) -> Any:
        return {**init(key), "user": {"table": jnp.ones((rows, WIDTH))}}

    planned = {}
    for name, tables in (("sparse", SparseTables(IDS, optax.adam(0.03))), ("dense", None)):
        trained = fit(replace(run, eval_split=None), tables, optax.adam(0.03), Model(large, apply))
        planned[name] = trained.memory
    table = rows * WIDTH * 4
    assert planned["sparse"]["state"] == pytest.approx(planned["dense"]["state"], rel=0.01)
    assert planned["sparse"]["state"] >= 3 * table
    assert planned["sparse"]["intermediate"] < table / 20
    assert planned["dense"]["intermediate"] > table


def test_an_id_without_a_row_ends_the_training(run: TrainingRun) -> None:
    few = Model(lambda key: {**init(key), "item": {"table": jnp.ones((10, WIDTH))}}, apply)
    with pytest.raises(InputError, match=r"the loss is nan at step 1 \(epoch 1, batch 1\)"):
        fit(run, SparseTables(IDS, optax.sgd(0.1)), optax.sgd(0.1), few)


def test_rows_over_devices_have_their_memory_beside_them(run: TrainingRun) -> None:
    rules = ((r"(user|item)\.table", ("data",)),)
    strategy = Strategy("rows", axes=(("data", -1),), batch=("data",), rules=rules)
    options = StepOptions(tables=SparseTables(IDS, rowwise_adam(0.1)))
    placement = strategy.placement()
    program = Program(MODEL, loss, optax.sgd(0.1), "rating", placement, options)
    shardings = placement.state_shardings(program.shapes(run.key()))
    split = {
        jax.tree_util.keystr(path, simple=True, separator="."): tuple(leaf.spec)
        for path, leaf in jax.tree_util.tree_flatten_with_path(shardings)[0]
    }
    assert split["params.user.table"] == ("data",)
    kept = [name for name, spec in split.items() if name.startswith("optimizer") and spec == ("data",)]
    assert len(kept) == 4  # two tables, two moments each


def test_a_table_by_another_use_is_refused(run: TrainingRun) -> None:
    def refused(apply: Callable[..., Any], message: str, ids: Any = None) -> None:
        with pytest.raises(InputError, match=message):
            fit(run, SparseTables(ids or IDS, optax.sgd(0.1)), optax.sgd(0.1), Model(init, apply))

    def rows(params: Any, features: Any) -> Any:
        return (params["user"]["table"][features["user"]] * params["item"]["table"][features["item"]]).sum(-1)

    refused(lambda p, f: rows(p, f) + p["user"]["table"].mean(), "the sparse table 'user.table' in the operation")
    refused(lambda p, f: rows(p, f) @ jnp.ones(BATCH) + p["item"]["table"] @ jnp.ones(WIDTH), "'item.table' in the op")
    refused(lambda p, f: rows(p, f) + p["user"]["table"][f["item"]].sum(-1), "'user.table' in a look-up by other ids")
    refused(
        lambda p, f: rows(p, f) + p["user"]["table"][f["user"] // 2].sum(-1), "'user', the ids of a sparse table, in"
    )
    refused(lambda p, f: rows(p, f) + f["user"], "'user', the ids of a sparse table, in")
    refused(lambda p, f: rows(p, f) * (f["user"] > 0), "'user', the ids of a sparse table, in the operation 'gt'")
    refused(lambda p, f: rows(p, f) + p["bias"][None][f["user"]], "'user', the ids of a sparse table, in a look-up in")
    refused(lambda p, f: (rows(p, f), f["user"]), "'user', the ids of a sparse table, in its output")


@pytest.mark.slow
def test_another_table_by_the_same_ids_has_to_be_named(run: TrainingRun) -> None:
    both = Model(lambda key: {**init(key), "wide": jnp.zeros(USERS)}, lambda p, f: apply(p, f) + p["wide"][f["user"]])
    with pytest.raises(InputError, match="in a look-up in another array") as caught:
        fit(run, SparseTables(IDS, optax.sgd(0.1)), optax.sgd(0.1), both)
    assert "name every table" in str(caught.value)
    named = fit(run, SparseTables({**IDS, "wide": "user"}, optax.sgd(0.1)), optax.sgd(0.1), both)
    dense = fit(run, None, optax.sgd(0.1), both)
    np.testing.assert_allclose(named.params["wide"], dense.params["wide"], atol=1e-6)
    assert np.abs(named.params["wide"]).max() > 0.01


@pytest.mark.parametrize(
    ("ids", "optimizer", "message"),
    [
        ({}, optax.sgd(1), "tables names no parameter"),
        ({"users.table": "user"}, optax.sgd(1), "the model has no parameter 'users.table'"),
        ({"bias": "user"}, optax.sgd(1), "the parameter 'bias' is a number"),
        ({"user.table": "users"}, optax.sgd(1), "the ids of feature 'users', which there is not"),
        ({"user.table": "rating"}, optax.sgd(1), "the ids of table 'user.table' are 'rating', the label"),
        ({"user.table": ["user", "item"], "item.table": "item"}, optax.sgd(1), "have the feature 'item' in common"),
        (IDS, optax.MultiSteps(optax.sgd(1), 2).gradient_transformation(), "optax.MultiSteps cannot change"),
        (IDS, optax.adafactor(0.1, min_dim_size_to_factor=1), "which is not by rows"),
    ],
)
def test_what_cannot_be_is_refused(
    run: TrainingRun, ids: Mapping[str, str | Sequence[str]], optimizer: Any, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        fit(run, SparseTables(ids, optimizer), optax.sgd(0.1))


@pytest.mark.parametrize(
    "rows",
    [
        lambda table, ids: table[ids],
        lambda table, ids: jnp.take(table, ids, axis=0, mode="clip"),
        lambda table, ids: jax.checkpoint(lambda table: jnp.tanh(table[ids]))(table),
        lambda table, ids: jax.vmap(lambda position: table[position])(ids),
        lambda table, ids: table.astype(jnp.bfloat16)[ids[:, None]][:, 0],
        lambda table, ids: table[jnp.stack([ids, ids], axis=1)].sum(1),
        lambda table, ids: jax.jit(lambda ids: table[ids])(ids.reshape(4, -1)).reshape(ids.size, -1),
    ],
    ids=["brackets", "take", "rematerialised", "mapped", "half precision", "stacked", "jitted"],
)
def test_ways_to_look_up_are_understood(run: TrainingRun, rows: Callable[..., Any]) -> None:
    """The outputs of the small tables and the new numbers are those of the whole ones."""

    def by_rows(params: Any, features: Any) -> Any:
        return (rows(params["user"]["table"], features["user"]) * params["item"]["table"][features["item"]]).sum(-1)

    updates = RowUpdates(SparseTables(IDS, optax.sgd(1)), optax.sgd(1), Model(init, by_rows), "rating")

    @jax.jit
    def looked_up_and_whole(params: Any, features: Any) -> Any:
        state = {"params": params, "optimizer": updates.optimizer.init(params), "model": {}}
        looked_up = updates.look_up(state, features)
        assert looked_up.state["params"]["user"]["table"].shape == (BATCH, WIDTH)
        return by_rows(looked_up.state["params"], looked_up.features), by_rows(params, features)

    random = np.random.default_rng(0)
    shapes = jax.eval_shape(init, run.key())
    params = jax.tree.map(lambda leaf: random.normal(size=leaf.shape).astype(np.float32), shapes)
    batch = next(run.batches())
    result, expected = looked_up_and_whole(params, {name: batch[name] for name in ("user", "item")})
    np.testing.assert_array_equal(result, expected)


def test_ids_may_be_of_a_narrow_type(run: TrainingRun) -> None:
    """Bytes, which hold fewer numbers than the table has rows; 255 is none of them, and shows."""
    tables = SparseTables({"table": "user"}, optax.sgd(1))
    model = Model(lambda key: {"table": jnp.arange(300.0)[:, None]}, lambda p, f: p["table"][f["user"]][:, 0])
    updates = RowUpdates(tables, optax.sgd(1), model, "rating")
    for rows, expected in ((300, [7, 255, 7]), (200, [7, np.nan, 7])):

        @jax.jit
        def looked_up(params: Any, ids: Any) -> Any:
            state = {"params": params, "optimizer": updates.optimizer.init(params), "model": {}}
            small = updates.look_up(state, {"user": ids})
            return model.apply(small.state["params"], small.features), small.rows["table"]

        table = np.arange(rows, dtype=np.float32)[:, None]
        outputs, places = jax.device_get(looked_up({"table": table}, np.array([7, 255, 7], np.uint8)))
        np.testing.assert_array_equal(outputs, expected)
        assert places[:2].tolist() == [7, min(255, rows)]


def test_ids_that_the_models_own_state_remembers_are_refused(run: TrainingRun) -> None:
    def counting(params: Any, state: Any, features: Any, key: jax.Array) -> Any:
        return apply(params, features), {"last": features["user"][0]}

    counted = Model(
        lambda key: {"params": init(key), "state": {"last": jnp.zeros((), jnp.int32)}},
        lambda variables, features: apply(variables["params"], features),
        counting,
    )
    with pytest.raises(InputError, match="'user', the ids of a sparse table"):
        fit(run, SparseTables(IDS, optax.sgd(0.1)), optax.sgd(0.1), counted)


def test_a_table_can_be_frozen_beside_one_that_learns(run: TrainingRun, first_params: Any) -> None:
    """The dense oracle: `optax.partition`, whose frozen part is set to zero."""
    labels = {"user": {"table": "frozen"}, "item": {"table": "learns"}, "bias": "learns"}
    optimizers = {"learns": optax.sgd(0.3), "frozen": optax.set_to_zero()}
    dense = fit(run, None, optax.partition(optimizers, labels))
    frozen = fit(run, SparseTables(IDS, optax.sgd(0.3)), optax.sgd(0.3), freeze=["user.*"], ema=0.0)
    np.testing.assert_array_equal(frozen.params["user"]["table"], first_params["user"]["table"])
    np.testing.assert_allclose(frozen.params["item"]["table"], dense.params["item"]["table"], rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(frozen.params["bias"], dense.params["bias"], rtol=1e-5)
