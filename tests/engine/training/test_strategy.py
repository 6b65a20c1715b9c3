"""Data parallel training on 8 virtual devices does what it says, and equals one device."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from drivetrain.engine.training.strategy import STRATEGIES, Strategy, strategy
from drivetrain.errors import InputError

pytestmark = pytest.mark.engine

SCRIPT = """
import importlib.util, json, sys
from pathlib import Path
import jax, numpy as np, optax
spec = importlib.util.spec_from_file_location("problem", sys.argv[1])
problem = importlib.util.module_from_spec(spec)
spec.loader.exec_module(problem)
from drivetrain.engine.training.program import Program
from drivetrain.engine.training.model import nnx_model
from drivetrain.engine.training.strategy import strategy
from drivetrain.engine.training.training import TrainingRun
from drivetrain.errors import InputError

found, params = {}, {}
for name in ("single", "data_parallel"):
    run = TrainingRun(problem.SPECS, Path(sys.argv[2]), batch_size=64, strategy=strategy(name), depth=5)
    trained = problem.fit(run)
    params[name] = jax.tree.leaves(trained.params)
    placement = run.strategy.placement()
    loss = lambda logits, batch: optax.sigmoid_binary_cross_entropy(logits, batch["late"]).mean()
    program = Program(nnx_model(problem.build), loss, optax.adam(1e-2), "late", placement)
    state = program.initial(run.key()).compile()(run.key(), {})
    stack, count = next(run.train_data.stacks(0, 0, 5))
    fed = program.feed(stack)
    text = program.compiled(state, fed).lower(state, fed, count, 0, run.key()).compile().as_text()
    found[name] = {
        "steps": trained.steps,
        "all_reduce": "all-reduce" in text,
        "shards": [len({str(shard.index) for shard in array.addressable_shards}) for array in fed.values()],
        "shard_shapes": sorted({str(shard.data.shape) for array in fed.values() for shard in array.addressable_shards}),
        "parameter_devices": sorted({len(leaf.sharding.device_set) for leaf in jax.tree.leaves(state["params"])}),
        "replicated": all(leaf.sharding.is_fully_replicated for leaf in jax.tree.leaves(state)),
        "eval_loss": trained.history[-1].eval_loss,
    }
found["difference"] = max(float(np.abs(a - b).max()) for a, b in zip(*params.values(), strict=True))
found["moved"] = max(float(np.abs(a).max()) for a in params["single"])
try:
    problem.fit(TrainingRun(problem.SPECS, Path(sys.argv[2]), batch_size=60, strategy=strategy("data_parallel")))
except InputError as error:
    found["error"] = str(error)
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def eight(
    tmp_path_factory: pytest.TempPathFactory, problem: ModuleType, virtual_devices: Callable[[int], dict[str, str]]
) -> dict[str, Any]:
    """20 steps on one and on 8 virtual devices, in a process of their own: the flag works before JAX starts only."""
    content = problem.examples(tmp_path_factory.mktemp("eight"), train=20 * 64, evaluation=100)
    command = [sys.executable, "-c", SCRIPT, str(problem.__file__), str(content)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, env=virtual_devices(8))
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.slow
def test_the_compiled_step_reduces_over_the_devices(eight: dict[str, Any]) -> None:
    assert eight["data_parallel"]["all_reduce"]
    assert not eight["single"]["all_reduce"]


@pytest.mark.slow
def test_batches_are_split_and_parameters_replicated(eight: dict[str, Any]) -> None:
    parallel = eight["data_parallel"]
    assert parallel["shards"] == [8] * 5
    assert parallel["shard_shapes"] == ["(5, 8)"]
    assert parallel["parameter_devices"] == [8]
    assert parallel["replicated"]
    assert eight["single"]["parameter_devices"] == [1]


@pytest.mark.slow
def test_parameters_equal_those_of_one_device(eight: dict[str, Any]) -> None:
    assert eight["single"]["steps"] == eight["data_parallel"]["steps"] == 20
    assert eight["moved"] > 0.1
    assert eight["difference"] < 1e-5
    # 100 eval rows: one batch of 64, on 8 devices too
    assert eight["data_parallel"]["eval_loss"] == pytest.approx(eight["single"]["eval_loss"], abs=1e-5)


@pytest.mark.slow
def test_a_batch_that_cannot_be_split_is_refused(eight: dict[str, Any]) -> None:
    assert eight["error"] == "batch_size 60 cannot be split over 8 devices\n  fix: use a multiple of 8"


def test_unknown_names_and_too_few_devices() -> None:
    with pytest.raises(InputError, match="no strategy 'mirrored'"):
        strategy("mirrored")
    with pytest.raises(InputError, match="needs 4096 devices"):
        Strategy("wide", axes=(("data", 4096),), batch=("data",)).placement()
    with pytest.raises(InputError, match="needs 4096 devices"):
        Strategy("wide", axes=(("data", -1), ("model", 4096)), batch=("data",)).placement()


@pytest.mark.parametrize("sizes", [(-1, -1), (0, 1), (-2, 2)])
def test_sizes_that_mean_nothing_are_refused(sizes: tuple[int, int]) -> None:
    axes = tuple(zip(("data", "model"), sizes, strict=True))
    with pytest.raises(InputError, match=f"axes of the sizes {sizes[0]}, {sizes[1]}"):
        Strategy("odd", axes=axes)


def test_an_axis_that_cannot_take_all_devices_is_refused() -> None:
    import jax

    shared = Strategy("shared", axes=(("data", -1), ("model", 2)), batch=("data",))
    with pytest.raises(InputError, match="has 5 devices, no multiple of the 2 of its other axes"):
        shared.placement(jax.devices()[:1] * 5)


def test_rules_choose_by_path() -> None:
    import numpy as np
    from jax.sharding import PartitionSpec

    rules = ((r"params\.table", ("data",)), (r"\.mu\.table", ("data",)))
    placement = Strategy("rows", axes=(("data", -1),), batch=("data",), rules=rules).placement()
    state = {"params": {"table": np.zeros((8, 2)), "bias": np.zeros(2)}, "optimizer": [{"mu": {"table": np.zeros(8)}}]}
    split, whole = tuple(PartitionSpec("data")), ()  # type: ignore[no-untyped-call]  # jax leaves it untyped
    specs = {name: tuple(leaf.spec) for name, leaf in placement.state_shardings(state)["params"].items()}
    assert specs == {"table": split, "bias": whole}
    assert tuple(placement.state_shardings(state)["optimizer"][0]["mu"]["table"].spec) == split


def test_one_device_needs_no_multiple() -> None:
    placement = STRATEGIES["single"].placement()
    assert placement.shards == 1
    assert not placement.blocking
