"""The page on the input pipeline, docs/input-pipeline.md: its blocks run, its steps are all there."""

from __future__ import annotations

import io
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
import pyarrow as pa
import pytest
from drivetrain.engine import Model, TrainingRun
from drivetrain.engine.graphs.graph import FieldSpec
from drivetrain.engine.training import input as pipeline
from drivetrain.engine.training.input import Dataset, from_arrays
from PIL import Image

pytestmark = pytest.mark.engine
TEXT = (Path(__file__).parents[4] / "docs" / "input-pipeline.md").read_text("utf-8")
SPECS = {name: FieldSpec("float32") for name in ("carat", "depth", "price")}


@pytest.fixture(scope="module")
def names() -> dict[str, Any]:
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL):
        exec(block, names)
    return names


def test_what_the_page_shows_trains(names: dict[str, Any], tmp_path: Path, problem: ModuleType) -> None:
    carat, depth = np.random.default_rng(0).normal(size=(2, 4096)).astype(np.float32)
    table = pa.table({"carat": carat, "depth": depth, "price": 2 * carat - depth})
    notes: list[str] = []
    run = TrainingRun(
        SPECS, problem.write(tmp_path, {"train": table}), epochs=5, batch_size=64, eval_split=None, note=notes.append
    )
    trained = run.fit(
        Model(
            init=lambda key: {"w": jnp.zeros(2)},
            apply=lambda params, features: jnp.stack([features["carat"], features["depth"]], -1) @ params["w"],
        ),
        loss=lambda outputs, batch: jnp.mean((outputs - batch["price"]) ** 2),
        predict=lambda outputs: {"predicted": outputs},
        optimizer=optax.sgd(0.1),
        label="price",
        data=names["batches"](run),
        steps_per_epoch=20,
    )
    np.testing.assert_allclose(trained.params["w"], [2, -1], atol=0.02)
    assert re.match(r"trained in \d+\.\d s: .*(device|start|host) \d+%", notes[-1])
    names["the_rest_again"](names["batches"](run))


def test_images_are_augmented(names: dict[str, Any]) -> None:
    class Rows(TrainingRun):
        def dataset(self, split: str | None = None) -> Dataset:
            file = io.BytesIO()
            Image.new("RGB", (300, 200), (200, 30, 60)).save(file, "JPEG")
            return from_arrays({"image": [file.getvalue()] * 10})

    batch = next(iter(names["augmented"](Rows(SPECS, Path(), batch_size=5))))
    assert batch["image"].shape == (5, 224, 224, 3)


def test_the_page_names_every_step_and_function() -> None:
    steps = {name for name in vars(Dataset) if not name.startswith("_")}
    steps -= {"iterator", "stream", "label", "parents", "rows", "batch_size", "steps", "waits"}
    functions = set(pipeline.__all__) - {"Dataset", "DatasetIterator"}
    assert {name for name in steps | functions if not re.search(rf"\b{name}\(|`{name}`", TEXT)} == set()
