"""Windows of JAX's profiler."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from types import ModuleType

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pyarrow as pa
import pytest
from drivetrain.engine import Model, Profile, TrainingRun
from drivetrain.engine.graphs.graph import FieldSpec
from drivetrain.errors import InputError

pytestmark = pytest.mark.engine


@pytest.fixture
def run(tmp_path: Path, problem: ModuleType) -> TrainingRun:
    """32 steps, 4 a dispatch."""
    values = np.arange(256, dtype=np.float32) / 256
    content = problem.write(tmp_path / "examples", {"train": pa.table({"x": values, "y": 2 * values})})
    specs = {"x": FieldSpec("float32"), "y": FieldSpec("float32")}
    return TrainingRun(specs, content, batch_size=8, depth=4, eval_split=None, log_dir=tmp_path / "logs")


def fit(run: TrainingRun, profile: Profile) -> None:
    run.fit(
        Model(lambda key: jnp.zeros(()), lambda weight, features: weight * features["x"]),
        loss=lambda output, batch: jnp.mean((output - batch["y"]) ** 2),
        predict=lambda output: {"predicted": output},
        optimizer=optax.sgd(0.1),
        label="y",
        callbacks=[profile],
    )


@pytest.mark.parametrize("last", [13, 1000])
def test_a_window_is_recorded(run: TrainingRun, last: int) -> None:
    fit(run, Profile(first=5, last=last))
    (trace,) = run.log_dir.rglob("perfetto_trace.json.gz")
    with gzip.open(trace) as file:
        names = {event.get("name", "") for event in json.load(file)["traceEvents"]}
    assert any("_steps" in name for name in names)  # the compiled loop of the steps ran in it
    assert list(run.log_dir.rglob("*.xplane.pb"))
    Path.unlink(trace)
    fit(run, Profile(first=31, last=32))  # and the profiler is free again


@pytest.mark.parametrize(
    ("first", "last", "message"), [(0, 3, "steps 0 to 3"), (4, 4, "steps 4 to 4"), (40, 50, "has 32")]
)
def test_what_is_refused(run: TrainingRun, first: int, last: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        fit(run, Profile(first=first, last=last))


def test_a_window_inside_another_is_named_and_both_end(run: TrainingRun) -> None:
    with pytest.raises(InputError, match="Profile cannot begin at step"), jax.profiler.trace(run.log_dir / "outer"):
        fit(run, Profile(first=5, last=13))
    fit(run, Profile(first=5, last=13))  # the profiler is free again
