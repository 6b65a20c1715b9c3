"""A training that was stopped on 4 devices goes on with 1, 2 or 8: the same data in order, equal parameters."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytestmark = pytest.mark.engine

SCRIPT = """
import importlib.util, json, shutil, sys
from pathlib import Path
spec = importlib.util.spec_from_file_location("problem", sys.argv[1])
problem = importlib.util.module_from_spec(spec)
spec.loader.exec_module(problem)
import jax
import numpy as np
from drivetrain.engine import Callback, Strategy
from drivetrain.engine.training.training import TrainingRun
from drivetrain.errors import Canceled

content, folder, plan = Path(sys.argv[2]), Path(sys.argv[3]), json.loads(sys.argv[4])


class Batches(Callback):
    "Remembers losses: of the same batches in the same order they are the same."

    def __init__(self):
        self.losses = {}

    def on_step_end(self, progress, step, loss):
        self.losses[step] = loss


def strategy(devices):
    rules = ((r"out\\.kernel", ("data",)), (r"hidden\\.kernel", (None, "data")))
    return Strategy(f"data_{devices}", axes=(("data", devices),), batch=("data",), rules=rules)


def stop(done, total, unit):
    if done >= 13 * 64:
        raise Canceled("stop")


def train(devices, work, **options):
    watched = Batches()
    run = TrainingRun(problem.SPECS, content, epochs=2, batch_size=64, depth=5, seed=4, strategy=strategy(devices),
                      work_dir=work, callbacks=[watched], **options)
    return problem.fit(run), watched.losses


for devices, how in plan:
    assert len(jax.devices()) >= devices
    if how == "stop":
        try:
            train(devices, folder / "stopped", progress=stop)
        except Canceled:
            continue
        raise AssertionError("it was not stopped")
    work = None
    if how == "resume":
        work = folder / f"resumed on {devices}"
        shutil.copytree(folder / "stopped", work)
    trained, losses = train(devices, work)
    leaves = jax.tree_util.tree_flatten_with_path(trained.params)[0]
    print(json.dumps({
        "devices": devices, "how": how, "first": trained.first_step, "losses": losses,
        "eval": [epoch.eval_loss for epoch in trained.history],
        "params": {jax.tree_util.keystr(path): np.asarray(leaf).ravel().tolist() for path, leaf in leaves},
    }))
"""


def trainings(
    problem: ModuleType, content: Path, folder: Path, environment: dict[str, str], plan: Any
) -> list[dict[str, Any]]:
    """Those of a plan, in a process of their own."""
    command = [sys.executable, "-c", SCRIPT, str(problem.__file__), str(content), str(folder), json.dumps(plan)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, env=environment)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.slow
def test_a_training_goes_on_with_another_number_of_devices(
    problem: ModuleType, tmp_path: Path, virtual_devices: Callable[[int], dict[str, str]]
) -> None:
    """On 4, with parameters and moments split over them; on in a process with 4 of which it uses fewer, and with 8."""
    content = problem.examples(tmp_path / "content", train=20 * 64, evaluation=128)
    stopped = trainings(
        problem, content, tmp_path, virtual_devices(4), [(4, "whole"), (4, "stop"), (1, "resume"), (2, "resume")]
    )
    whole, *resumed = stopped
    resumed += trainings(problem, content, tmp_path, virtual_devices(8), [(8, "resume")])
    assert [each["devices"] for each in resumed] == [1, 2, 8]
    for each in resumed:
        first = each["first"]
        assert 13 <= first < 40
        assert sorted(map(int, each["losses"])) == list(range(first + 1, 41))
        for step, loss in each["losses"].items():
            assert loss == pytest.approx(whole["losses"][step], abs=1e-6), step
        assert each["eval"] == pytest.approx(whole["eval"], abs=1e-6)
        for name, values in whole["params"].items():
            assert each["params"][name] == pytest.approx(values, abs=1e-6), name
