"""Lists through the loader and the trainer: every value with its row, one bucket per epoch, bits kept by a resume."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pyarrow as pa
import pytest
from drivetrain.engine import FieldSpec, Loader, Model, Ragged, TrainingRun, ragged
from drivetrain.errors import Canceled, InputError
from hypothesis import given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.engine

SPECS = {"row": FieldSpec("int64"), "tags": FieldSpec("list<int64>"), "pairs": FieldSpec("list<float32>", (2,))}


def table(rows: int, seed: int = 0, longest: int = 9) -> pa.Table:
    random = np.random.default_rng(seed)
    lengths = np.where(random.random(rows) < 0.3, 0, random.integers(0, longest, rows))
    tags = [random.integers(0, 50, n).tolist() if n else [None, []][row % 2] for row, n in enumerate(lengths)]
    pairs = [np.full((n % 3, 2), row, np.float32).tolist() for row, n in enumerate(lengths)]
    label = np.array([float(2 * sum(tag < 25 for tag in row or ()) > len(row or ())) for row in tags], np.float32)
    return pa.table(
        {
            "row": np.arange(rows),
            "tags": pa.array(tags, pa.list_(pa.int64())),
            "pairs": pa.array(pairs, pa.list_(pa.list_(pa.float32(), 2))),
            "label": label,
        }
    )


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory, problem: ModuleType) -> Path:
    """503 rows with lists in 3 files of row groups of 100."""
    made: Path = problem.write(tmp_path_factory.mktemp("lists"), {"train": table(503)}, parts=3, group=100)
    return made


@cache
def raw_rows() -> list[dict[str, Any]]:
    return list(table(503).to_pylist())


def expected(rows: Any) -> tuple[list[list[int]], list[Any]]:
    raw = raw_rows()
    return [raw[row]["tags"] or [] for row in rows], [raw[row]["pairs"] for row in rows]


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    batch=st.integers(1, 503),
    seed=st.integers(0, 99),
    epoch=st.integers(0, 9),
    window=st.sampled_from([1, 9000, 10**7]),
)
def test_every_row_has_its_own_values_in_one_bucket(
    stored: Path, batch: int, seed: int, epoch: int, window: int
) -> None:
    loader = Loader(stored, "train", SPECS, batch_size=batch, seed=seed, window_bytes=window)
    shapes = set()
    fullest = 0
    for features in loader.epoch(epoch):
        tags, pairs = expected(features["row"])
        assert ragged.to_lists(features["tags"]) == tags
        assert ragged.to_lists(features["pairs"]) == pairs
        assert features["tags"].rows == batch
        assert features["tags"].values.dtype == np.int32
        assert features["pairs"].values.shape[1:] == (2,)
        shapes.add(features["tags"].values.shape)
        fullest = max(fullest, sum(map(len, tags)))
    ((capacity,),) = shapes
    assert capacity == max(16, 2 ** math.ceil(math.log2(max(fullest, 1))))


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(data=st.data(), batch=st.integers(1, 200), depth=st.integers(1, 12), window=st.sampled_from([1, 9000, 10**7]))
def test_stacks_hold_the_same_batches_from_anywhere(
    stored: Path, data: st.DataObject, batch: int, depth: int, window: int
) -> None:
    loader = Loader(stored, "train", SPECS, batch_size=batch, seed=3, window_bytes=window)
    whole = list(loader.epoch(1))
    start = data.draw(st.integers(0, len(whole)))
    place = start
    for stack, count in Loader(stored, "train", SPECS, batch_size=batch, seed=3, window_bytes=window).stacks(
        1, start, depth
    ):
        assert stack["tags"].values.shape == (depth, *whole[0]["tags"].values.shape)
        assert stack["tags"].rows == batch
        assert (stack["tags"].segment_ids[count:] == batch).all()
        for number in range(count):
            for name in ("tags", "pairs"):
                np.testing.assert_array_equal(stack[name].values[number], whole[place][name].values)
                np.testing.assert_array_equal(stack[name].segment_ids[number], whole[place][name].segment_ids)
            place += 1
    assert place == len(whole)


@pytest.mark.parametrize(
    ("column", "spec", "message"),
    [
        (pa.array([[1], [2, None], [3]]), FieldSpec("list<int64>"), "missing value inside the list of row 1"),
        (pa.array([["a"], [], []]), FieldSpec("list<int64>"), "'x' holds lists of string"),
        (pa.array([[1], [], [2**40]]), FieldSpec("list<int64>"), "1099511627776 in the list of row 2"),
        (pa.array([[1.5], [], []]), FieldSpec("list<int32>"), "'x' holds lists of float64, not of int32"),
        (pa.array([1, 2, 3]), FieldSpec("list<int64>"), "'x' is int64, not a list per row"),
        (pa.array([[[1.0], [1.0, 2.0]], [], []]), FieldSpec("list<float32>", (2,)), "values of 1 to 2 numbers"),
        (pa.array([[1.0], [], []]), FieldSpec("list<float32>", (2,)), r"1 numbers in 1 values, not \[2\] each"),
        (pa.array([[1.0], [2.0, 3.0], []]), FieldSpec("float32"), "3 values in 3 rows|not .* each"),
    ],
)
def test_a_column_that_is_no_such_list(
    problem: ModuleType, tmp_path: Path, column: pa.Array, spec: FieldSpec, message: str
) -> None:
    content = problem.write(tmp_path, {"train": pa.table({"x": column})}, parts=1)
    with pytest.raises(InputError, match=message):
        list(Loader(content, "train", {"x": spec}, batch_size=1).epoch(0))


FEATURES = {"tags": FieldSpec("list<int64>"), "label": FieldSpec("float32")}


def bag_model() -> Model:
    def init(key: jax.Array) -> Any:
        return {"table": 0.1 * jax.random.normal(key, (50, 4)), "out": jnp.ones(4), "bias": jnp.zeros(())}

    def apply(params: Any, features: Any) -> Any:
        assert isinstance(features["tags"], Ragged)
        assert "label" not in features
        return ragged.embedding_bag(params["table"], features["tags"], combiner="sum") @ params["out"] + params["bias"]

    return Model(init, apply)


def fit(run: TrainingRun) -> Any:
    return run.fit(
        bag_model(),
        loss=lambda logits, batch: optax.sigmoid_binary_cross_entropy(logits, batch["label"]).mean(),
        predict=lambda logits: {"probability": jax.nn.sigmoid(logits)},
        optimizer=optax.adam(0.05),
        label="label",
    )


@pytest.fixture(scope="module")
def problem_with_tags(tmp_path_factory: pytest.TempPathFactory, problem: ModuleType) -> Path:
    splits = {"train": table(1500, 1), "eval": table(400, 2)}
    made: Path = problem.write(tmp_path_factory.mktemp("tags"), splits, parts=2, group=300)
    return made


@pytest.mark.slow
def test_a_model_learns_from_bags_alone(problem_with_tags: Path) -> None:
    trained = fit(TrainingRun(features=FEATURES, examples=problem_with_tags, epochs=6, batch_size=50, depth=8))
    first, last = trained.history[0], trained.history[-1]
    assert last.loss < 0.6 * first.loss
    assert last.eval_loss is not None
    assert last.eval_loss < 0.35
    # The first step by hand: the reported loss of a single batch is that of the batch that the loader gives.
    run = TrainingRun(features=FEATURES, examples=problem_with_tags, epochs=1, batch_size=1500, eval_split=None)
    once = fit(run)
    (batch,) = run.batches()
    params = bag_model().init(run.key())
    table_, logits = np.asarray(params["table"]), []
    for row in ragged.to_lists(batch["tags"]):
        logits.append(sum((table_[tag].sum() for tag in row), 0.0))
    z, y = np.array(logits), batch["label"]
    wanted = np.mean(np.logaddexp(0, z) - y * z)
    np.testing.assert_allclose(once.history[0].loss, wanted, rtol=1e-5)


@pytest.mark.slow
def test_a_resumed_training_ends_with_the_same_bits(
    problem_with_tags: Path, tmp_path: Path, problem: ModuleType
) -> None:
    def run(**options: Any) -> TrainingRun:
        return TrainingRun(
            features=FEATURES, examples=problem_with_tags, epochs=3, batch_size=60, depth=4, eval_split=None, **options
        )

    whole = fit(run())

    def stop(done: int, total: int | None, unit: str) -> None:
        if done > 60 * 31:
            raise Canceled("enough")

    with pytest.raises(Canceled):
        fit(run(work_dir=tmp_path, progress=stop))
    rest = fit(run(work_dir=tmp_path))
    assert rest.first_step > 0
    assert problem.digest(rest.params) == problem.digest(whole.params)


SCRIPT = """
import importlib.util, json, sys
from pathlib import Path
import jax, numpy as np
spec = importlib.util.spec_from_file_location("bags", sys.argv[1])
bags = importlib.util.module_from_spec(spec)
spec.loader.exec_module(bags)
from drivetrain.engine import TrainingRun
from drivetrain.engine.training.strategy import strategy
found = {}
for name in ("single", "data_parallel"):
    run = TrainingRun(bags.FEATURES, Path(sys.argv[2]), batch_size=48, depth=4, strategy=strategy(name))
    trained = bags.fit(run)
    stack, _ = next(run.train_data.stacks(0, 0, 4))
    found[name] = [trained.history[0].loss, trained.history[0].eval_loss]
    found[name + " table"] = np.asarray(trained.params["table"]).tolist()
print(json.dumps({**found, "devices": jax.device_count(), "capacity": stack["tags"].values.shape[1]}))
"""


@pytest.mark.slow
@pytest.mark.parametrize("devices", [8, 6])  # a bucket is split over 8 of them; over 6 it does not split evenly
def test_data_parallel_equals_one_device(
    problem_with_tags: Path, devices: int, virtual_devices: Callable[[int], dict[str, str]]
) -> None:
    command = [sys.executable, "-c", SCRIPT, __file__, str(problem_with_tags)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, env=virtual_devices(devices))
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout.splitlines()[-1])
    assert answer["devices"] == devices
    assert answer["capacity"] % 8 == 0
    np.testing.assert_allclose(answer["data_parallel"], answer["single"], rtol=1e-5)
    np.testing.assert_allclose(answer["data_parallel table"], answer["single table"], atol=1e-5)
