"""A run that is told to stop: its training saves where it is, and goes on from there, in every runner."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import drivetrain as dt
import numpy as np
import pandas as pd
import pytest

PIPELINE = """
import drivetrain as dt
from drivetrain.components import ExampleGen, SchemaGen, StatisticsGen, Trainer, Transform


@dt.pipeline
def stopped(wait: float = 0.0) -> None:
    examples = ExampleGen("rows.csv", splits={"train": 3, "eval": 1})
    transform = Transform(examples, SchemaGen(StatisticsGen(examples)), fn="model:preprocess")
    Trainer(
        transform.examples, transform.graph, fn="model:train", epochs=12, batch_size=20, hyperparameters={"wait": wait}
    )
"""
MODEL = """
import time
import jax.numpy as jnp
import optax
from drivetrain.engine import Callback, Model, ops


def preprocess(columns):
    return {"x": ops.z_score(columns["x"]), "y": ops.cast(columns["y"], "float32")}


class Slowly(Callback):
    def __init__(self, seconds):
        self.seconds = seconds

    def on_epoch_end(self, progress, record):
        if record.epoch == 3 and self.seconds:
            time.sleep(self.seconds)  # a signal comes in here, say


def train(run):
    model = Model(lambda key: {"w": jnp.zeros(()), "b": jnp.zeros(())}, lambda p, f: f["x"] * p["w"] + p["b"])
    return run.fit(
        model,
        loss=lambda output, batch: jnp.mean((output - batch["y"]) ** 2),
        predict=lambda output: {"predicted": output},
        optimizer=optax.adam(0.05),
        label="y",
        callbacks=[Slowly(run.hyperparameters["wait"])],
    )
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stopped")
    x = np.random.default_rng(0).normal(size=400)
    pd.DataFrame({"x": x, "y": 3 * x + 1}).to_csv(folder / "rows.csv", index=False)
    (folder / "pipeline.py").write_text(PIPELINE)
    (folder / "model.py").write_text(MODEL)
    return folder


def history(project: Path) -> dict[str, Any]:
    model = dt.open(root=project / ".drivetrain").artifact("Trainer")
    body: dict[str, Any] = json.loads((model.extra / "history.json").read_bytes())
    return body


@pytest.mark.slow
@pytest.mark.engine
@pytest.mark.parametrize("runner", ["inline", "process"])
def test_sigterm_saves_and_resume_goes_on(project: Path, runner: str) -> None:
    drivetrain, root = [sys.executable, "-m", "drivetrain"], ["--root", str(project / ".drivetrain")]
    command = [*drivetrain, "run", str(project), "--runner", runner, *root]
    subprocess.run(command, check=True, capture_output=True)
    expected = history(project)
    wait = 8.0 if runner == "inline" else 8.5  # another run of the same pipeline
    with subprocess.Popen(
        [*command, "--param", f"wait={wait}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as process:
        assert process.stdout is not None
        printed = next(line for line in process.stdout if "epoch 3 of 12" in line)
        process.send_signal(signal.SIGTERM)
        printed += process.stdout.read()
    assert process.returncode == 143, printed
    assert "; it can go on from step " in printed
    subprocess.run([*drivetrain, "resume", *root], check=True, capture_output=True)
    resumed = history(project)
    assert resumed["resumed_at_step"] == 3 / 12 * expected["steps"]
    assert resumed["epochs"] == expected["epochs"]
