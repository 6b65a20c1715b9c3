"""An input that gives nothing: a line names the step, and the training can still be stopped."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
import pytest
from drivetrain.engine import Model, Trained, TrainingRun
from drivetrain.engine.graphs.graph import FieldSpec
from drivetrain.engine.training import times
from drivetrain.engine.training.input import from_arrays, prefetching
from drivetrain.errors import Canceled
from drivetrain.progress import no_progress
from drivetrain.tests.living import lives

pytestmark = pytest.mark.engine

FUNCTION = """
import os
import signal


def hanging_late(columns):
    if columns["x"][0] >= 64:
        os.write(2, f"hanging {os.getpid()}\\n".encode())  # whole: two processes write there
        while True:
            signal.pause()
    return columns
"""

TRAINING = """
import os

import jax.numpy as jnp
import optax
from drivetrain.engine import Callback, Model, TrainingRun
from drivetrain.engine.graphs.graph import FieldSpec
from drivetrain.engine.training.input import from_arrays, prefetching, workers
from hanging_function import hanging_late

prefetching.LOOK_SECONDS = workers.LOOK_SECONDS = 0.05


class Steps(Callback):
    def on_step_end(self, progress, step, loss):
        os.write(2, f"step {step}\\n".encode())


def train(work):
    rows = from_arrays({name: [number * scale for number in range(128)] for name, scale in (("x", 1.0), ("y", 2.0))})
    run = TrainingRun(
        {name: FieldSpec("float32") for name in ("x", "y")}, work, depth=1, batch_size=8, eval_split=None, work_dir=work
    )
    return run.fit(
        Model(lambda key: {"w": jnp.zeros(())}, lambda params, features: features["x"] * params["w"]),
        loss=lambda output, batch: jnp.mean((output - batch["y"]) ** 2),
        predict=lambda output: {"y_hat": output},
        optimizer=optax.sgd(1e-6),
        label="y",
        data=rows.batch(8).map(hanging_late, workers=1),
        callbacks=[Steps()],
    )
"""


def test_ctrl_c_ends_a_training_whose_worker_hangs(tmp_path: Path) -> None:
    """After a checkpoint of all steps that ran; the worker ends too."""
    (tmp_path / "hanging_function.py").write_text(FUNCTION)  # of its own: the worker imports no JAX
    (tmp_path / "hanging_training.py").write_text(TRAINING)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)])}
    command = [
        sys.executable,
        "-c",
        "import pathlib, sys, hanging_training; hanging_training.train(pathlib.Path(sys.argv[1]))",
        str(tmp_path / "work"),
    ]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        steps, hanging = 0, 0
        while steps < 7 or not hanging:  # the eighth is computed, and the ninth never comes
            name, _, number = next(process.stderr).partition(" ")
            steps = int(number) if name == "step" else steps
            hanging = int(number) if name == "hanging" else hanging
        process.send_signal(signal.SIGINT)
        errors = process.stderr.read()
    assert errors.rstrip().endswith("KeyboardInterrupt"), errors
    assert not lives(hanging)
    saved = [int(path.name) for path in (tmp_path / "work" / "checkpoints").iterdir()]
    assert saved == [8]


def test_a_line_names_the_step_that_gives_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The function waits until it has been named."""
    monkeypatch.setattr(prefetching, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(times, "_SILENT", 0.02)
    named = threading.Event()
    notes: list[str] = []

    def note(text: str) -> None:
        notes.append(text)
        if "waiting_for_a_line" in text and "at work" in text:
            named.set()

    def waiting_for_a_line(columns: Mapping[str, Any]) -> Mapping[str, Any]:
        assert columns["x"][0] != 32 or named.wait(60)
        return columns

    trained = trained_on(replace(hanging_run(tmp_path), note=note), waiting_for_a_line)
    assert trained.steps == 16
    pattern = r"map\(waiting_for_a_line\) has been at work on its next element for \d+ s"
    assert any(re.fullmatch(pattern, text) for text in notes)


def test_a_training_that_waits_for_its_input_can_be_canceled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By who runs it, as in a thread: there it is asked between steps, and here there is none."""
    monkeypatch.setattr(prefetching, "LOOK_SECONDS", 0.01)
    canceled = threading.Event()
    reports: list[int] = []

    def waiting_for_the_end(columns: Mapping[str, Any]) -> Mapping[str, Any]:
        assert columns["x"][0] != 32 or canceled.wait(60)
        return columns

    def progress(done: int, total: int | None, unit: str) -> None:
        reports.append(done)
        if reports.count(24) == 2:  # after the dispatch of the fourth step, and while the fifth has no batch
            canceled.set()
            raise Canceled("canceled")

    run = replace(hanging_run(tmp_path), work_dir=tmp_path / "work", progress=progress)
    with pytest.raises(Canceled):
        trained_on(run, waiting_for_the_end)
    assert [path.name for path in (tmp_path / "work" / "checkpoints").iterdir()] == ["4"]
    assert trained_on(replace(run, progress=no_progress), waiting_for_the_end).first_step == 4


def hanging_run(folder: Path) -> TrainingRun:
    return TrainingRun(
        {name: FieldSpec("float32") for name in ("x", "y")}, folder, depth=1, batch_size=8, eval_split=None
    )


def trained_on(run: TrainingRun, fn: Callable[..., Mapping[str, Any]]) -> Trained:
    """16 steps of 8 rows."""
    x = np.arange(128, dtype=np.float32)
    return run.fit(
        Model(lambda key: {"w": jnp.zeros(())}, lambda params, features: features["x"] * params["w"]),
        loss=lambda output, batch: jnp.mean((output - batch["y"]) ** 2),
        predict=lambda output: {"y_hat": output},
        optimizer=optax.sgd(1e-6),
        label="y",
        data=from_arrays({"x": x, "y": 2 * x}).batch(8).map(fn),
    )
