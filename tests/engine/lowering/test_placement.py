"""Placement: hints split a graph into stages per device; without one the cost decides."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

pytest.importorskip("jax")

from drivetrain.engine.graphs.nodes import DeviceStage, Tensor
from drivetrain.engine.lowering.placement import device_of
from drivetrain.engine.tracing.device_hints import on
from drivetrain.errors import InputError

pytestmark = pytest.mark.engine


@dataclass(frozen=True)
class Device:
    platform: str
    id: int = 0


GPU, CPU = [Device("gpu", 0), Device("gpu", 1)], [Device("cpu", 0)]
STAGE = DeviceStage(
    "p", ("x",), (("float32", ("b", 100)),), (), (Tensor("y", "float32", ("b", 10)),), ((0,),), flops=2 * 100 * 10
)


def test_small_work_stays_on_the_processor_and_large_work_goes_to_the_accelerator() -> None:
    assert device_of(STAGE, 1, [*GPU, *CPU]) == CPU[0]
    assert device_of(replace(STAGE, flops=2_000_000), 512, [*GPU, *CPU]) is None  # JAX's default: the accelerator
    assert device_of(replace(STAGE, flops=10), 8192, [*GPU, *CPU]) == CPU[0]  # more to move than to do
    assert device_of(STAGE, 8192, CPU) is None


def test_a_hint_overrules_the_cost_and_an_absent_device_is_told() -> None:
    assert device_of(replace(STAGE, device="gpu:1"), 1, [*GPU, *CPU]) == GPU[1]
    assert device_of(replace(STAGE, device="cuda"), 1, [*GPU, *CPU]) == GPU[0]
    assert device_of(replace(STAGE, device="cpu"), 10**6, [*GPU, *CPU]) == CPU[0]
    with pytest.warns(RuntimeWarning, match="wants 'tpu' and runs on cpu: there is only cpu"):
        assert device_of(replace(STAGE, device="tpu"), 1, CPU) is None


def test_a_device_that_is_none_is_refused() -> None:
    with pytest.raises(InputError, match="no device 'GPU 1'"), on("GPU 1"):
        pass


SCRIPT = """
import json, sys, warnings
from pathlib import Path
import jax, jax.numpy as jnp, numpy as np, pyarrow as pa
from drivetrain import data
from drivetrain.engine import Bundle, analyze, on, ops

W = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)

def preprocess(columns):
    x = jnp.stack([ops.z_score(columns[name]) for name in "abc"], -1)
    with on("cpu:3"):
        hidden = jax.nn.relu(x @ W)
    with on("cpu:5"):
        deep = jnp.tanh(hidden @ W.T)
    return {"y": deep.sum(-1) + x[:, 0], "hidden": hidden, "word": ops.vocabulary(columns["w"])}

def plain(columns):
    import contextlib
    global on
    kept, on = on, lambda device: contextlib.nullcontext()
    try:
        return preprocess(columns)
    finally:
        on = kept

rows = np.random.default_rng(0).normal(size=(600, 3))
table = pa.table({**{name: rows[:, place] for place, name in enumerate("abc")}, "w": ["u", "v", "w"] * 200})
local = data.executor("local")
folder = Path(sys.argv[1])
analyze(preprocess, data.source_of(table), local).save(folder / "placed")
placed, whole = Bundle.load(folder / "placed"), analyze(plain, data.source_of(table), local)
batch = table.to_batches()[0]
mine, theirs = placed.run("transform", batch), whole.run("transform", batch)
row = placed.run_row("transform", batch.slice(0, 1).to_pylist()[0])
stages = [node for node in placed.graph.nodes if hasattr(node, "program")]
used = [sorted({str(device.id) for array in [placed._programs(stage, [np.zeros((1, *slot[1][1:]), slot[0]) for slot in
        stage.slots])[0]] for device in array.devices()}) for stage in stages]
print(json.dumps({
    "devices": [stage.device for stage in stages],
    "used": used,
    "others": len([node for node in whole.graph.nodes if hasattr(node, "program")]),
    "worst": max(float(np.abs(mine[name] - theirs[name]).max()) for name in theirs),
    "row": float(abs(row["y"] - mine["y"][0])),
}))
"""


@pytest.mark.slow
def test_hints_become_stages_on_their_devices_with_the_same_results(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path)],
        capture_output=True,
        text=True,
        env={"XLA_FLAGS": "--xla_force_host_platform_device_count=8", "PATH": "/usr/bin:/bin", "HOME": "/tmp"},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    answer = json.loads(done.stdout.splitlines()[-1])
    assert answer["devices"] == [None, "cpu:3", "cpu:5", None]
    assert answer["used"] == [["0"], ["3"], ["5"], ["0"]]
    assert answer["others"] == 1
    assert answer["worst"] < 1e-6
    assert answer["row"] < 1e-6
