"""A GPU computes what the processor does: every op, graphs of every kind, trainings; bundles go from one to the other.

`make test-gpu` runs these. Numbers agree to `LAST_BITS`, where functions of single numbers are rounded differently;
products of matrices to `TF32`, since JAX has a GPU round their operands to 10 bits unless it is told "highest".
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from drivetrain.engine import Bundle

from .test_train_serve_equality import UNSEEN, WORDS, rows
from .zoo import zoo

pytestmark = [pytest.mark.engine, pytest.mark.gpu, pytest.mark.timeout(600)]

LAST_BITS: Final = 2e-5
TF32: Final = 1e-2
PLATFORMS: Final = {"cpu": "cpu", "gpu": "cuda,cpu"}
SIDE: Final = Path(__file__).with_name("device_side.py")


def start(platform: str, script: Path, *arguments: object, **variables: str) -> subprocess.Popen[str]:
    """A script on a platform of JAX."""
    return subprocess.Popen(
        [sys.executable, str(script), *map(str, arguments)],
        env={**os.environ, "JAX_PLATFORMS": PLATFORMS[platform], **variables},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> dict[str, Any]:
    """What it printed last."""
    out, errors = process.communicate(timeout=500)
    assert process.returncode == 0, errors[-4000:]
    result: dict[str, Any] = json.loads(out.splitlines()[-1])
    return result


def side(platform: str, *arguments: object, precision: str = "") -> int:
    """Have a device do something; how many stages it ran."""
    variables = {"JAX_DEFAULT_MATMUL_PRECISION": precision} if precision else {}
    done = finish(start(platform, SIDE, *arguments, **variables))
    assert done["platform"] == platform
    return int(done["stages"])


def together(*calls: Any) -> list[Any]:
    """Several of these at once."""
    with ThreadPoolExecutor() as pool:
        return [future.result() for future in [pool.submit(*call) for call in calls]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Bundles made by each device in `cpu` and `gpu`; what each gives on each in `by-cpu-on-gpu` and so on."""
    folder = tmp_path_factory.mktemp("devices")
    pq.write_table(rows(2000, 1, WORDS), folder / "train.parquet", row_group_size=700)
    pq.write_table(rows(10_000, 2, [*WORDS, *UNSEEN]), folder / "raw.parquet")
    together(*((side, platform, "make", folder / platform) for platform in PLATFORMS))
    runs = [(maker, runner) for maker in PLATFORMS for runner in PLATFORMS]
    for maker, runner in runs:
        (folder / f"by-{maker}-on-{runner}").mkdir()
    stages = together(*((side, run, "run", folder / by, folder / f"by-{by}-on-{run}") for by, run in runs))
    assert min(stages) >= 2
    return folder


def compare(ours: pa.Table, reference: pa.Table, within: float, what: str) -> None:
    """Equal but for floats, which are within a part of their size (or of 1)."""
    assert ours.schema.equals(reference.schema)
    for name in ours.schema.names:
        mine, theirs = (table[name].combine_chunks() for table in (ours, reference))
        assert mine.is_valid().equals(theirs.is_valid()), (what, name)
        if pa.types.is_list(mine.type) or pa.types.is_fixed_size_list(mine.type):
            lengths = [[len(item) for item in each.to_pylist() if item is not None] for each in (mine, theirs)]
            assert lengths[0] == lengths[1], (what, name)
            mine, theirs = mine.flatten(), theirs.flatten()
        if pa.types.is_floating(mine.type):
            left, right = (each.to_numpy(zero_copy_only=False) for each in (mine, theirs))
            np.testing.assert_allclose(left, right, rtol=within, atol=within, equal_nan=True, err_msg=f"{what} {name}")
        else:
            assert mine.equals(theirs), (what, name)


@pytest.mark.parametrize("maker", PLATFORMS)
@pytest.mark.parametrize("how", ["batches", "rows"])
def test_a_bundle_made_on_either_transforms_alike_on_both(folder: Path, maker: str, how: str) -> None:
    gpu, cpu = (pq.read_table(folder / f"by-{maker}-on-{runner}" / f"graph-{how}.parquet") for runner in ("gpu", "cpu"))
    products = ["pca"]
    compare(gpu.drop_columns(products), cpu.drop_columns(products), LAST_BITS, "transform")
    compare(gpu.select(products), cpu.select(products), TF32, "transform")


@pytest.mark.parametrize("maker", PLATFORMS)
@pytest.mark.parametrize("how", ["batches", "rows"])
def test_a_bundle_made_on_either_predicts_alike_on_both(folder: Path, maker: str, how: str) -> None:
    gpu, cpu = (pq.read_table(folder / f"by-{maker}-on-{runner}" / f"model-{how}.parquet") for runner in ("gpu", "cpu"))
    difference = np.abs(gpu["p"].to_numpy() - cpu["p"].to_numpy()).max()
    print(f"predictions by {maker}, {how}: at most {difference:.2e} apart")
    compare(gpu, cpu, TF32, "predictions")


def test_highest_precision_predicts_the_same_to_the_last_bits(folder: Path, tmp_path: Path) -> None:
    for name in ("train.parquet", "raw.parquet"):
        (tmp_path / name).symlink_to(folder / name)
    side("cpu", "make", tmp_path / "exact", precision="highest")
    outputs = {platform: tmp_path / platform for platform in PLATFORMS}
    for out in outputs.values():
        out.mkdir()
    together(*((side, platform, "run", tmp_path / "exact", out) for platform, out in outputs.items()))
    for how in ("batches", "rows"):
        gpu, cpu = (pq.read_table(outputs[platform] / f"model-{how}.parquet") for platform in ("gpu", "cpu"))
        compare(gpu, cpu, LAST_BITS, how)


def test_both_write_the_same_programs_and_learn_the_same(folder: Path) -> None:
    for name in ("graph", "model"):
        gpu, cpu = (Bundle.load(folder / maker / name) for maker in ("gpu", "cpu"))
        assert gpu.payload.programs == cpu.payload.programs
        assert gpu.payload.assets.keys() == cpu.payload.assets.keys()
        assert all(gpu.payload.assets[key].equals(cpu.payload.assets[key]) for key in cpu.payload.assets)
        assert gpu.payload.weights.keys() == cpu.payload.weights.keys()
        for key, weight in cpu.payload.weights.items():
            np.testing.assert_allclose(gpu.payload.weights[key], weight, rtol=1e-4, atol=1e-6, err_msg=key)


@pytest.mark.parametrize(("precision", "within"), [("", TF32), ("highest", 1e-4)], ids=["default", "highest"])
def test_graphs_of_every_kind(tmp_path: Path, precision: str, within: float) -> None:
    for platform in PLATFORMS:
        (tmp_path / platform).mkdir()

    def run(platform: str) -> int:
        return side(platform, "zoo", tmp_path / platform, precision=precision)

    together(*((run, platform) for platform in PLATFORMS))
    for animal in zoo():
        gpu, cpu = (dict(np.load(tmp_path / platform / f"{animal.name}.npz")) for platform in ("gpu", "cpu"))
        assert gpu.keys() == cpu.keys()
        for name in cpu:
            scale = max(1.0, float(np.abs(cpu[name]).max()))
            difference = float(np.abs(gpu[name] - cpu[name]).max())
            assert difference <= within * scale, (animal.name, name, difference)


# -- trainings


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory, problem: ModuleType) -> dict[str, object]:
    """300 steps on rows like those of flights: ids that many rows of a batch share, so that gradients are summed."""
    content = problem.examples(tmp_path_factory.mktemp("training") / "content", train=200_000, evaluation=20_000)
    return {"examples": str(content), "epochs": 3, "batch_size": 2000, "depth": 8, "seed": 5, "checkpoint_seconds": 0.0}


def begin(problem: ModuleType, platform: str, **options: object) -> subprocess.Popen[str]:
    """A training on a platform."""
    return start(platform, Path(str(problem.__file__)), json.dumps(options))


def test_a_training_on_a_gpu_comes_to_the_same_loss_and_again_to_the_same_bits(
    problem: ModuleType, training: dict[str, object]
) -> None:
    once, again, cpu = map(finish, [begin(problem, platform, **training) for platform in ("gpu", "gpu", "cpu")])
    assert once["digest"] == again["digest"]
    assert once["losses"] == again["losses"]
    np.testing.assert_allclose(once["losses"], cpu["losses"], rtol=2e-3)
    assert once["losses"][-1][1] < 0.9 * once["losses"][0][0]  # it has learnt something


def resume(problem: ModuleType, platform: str, training: dict[str, object], work: Path) -> dict[str, Any]:
    """A training that is killed on the GPU, and goes on on a platform."""
    process = begin(problem, "gpu", **training, work_dir=str(work), hold=0.6)
    assert process.stdout is not None
    for line in process.stdout:
        if (report := json.loads(line))["done"] >= 0.6 * report["total"]:
            break
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    resumed = finish(begin(problem, platform, **training, work_dir=str(work)))
    assert 0 < resumed["first_step"] < 300
    return resumed


def test_killed_and_resumed_it_ends_with_the_same_bits_and_a_processor_can_go_on(
    problem: ModuleType, training: dict[str, object], tmp_path: Path
) -> None:
    calls = [(resume, problem, platform, training, tmp_path / platform) for platform in PLATFORMS]
    whole, by_cpu, by_gpu = together((lambda: finish(begin(problem, "gpu", **training)),), *calls)
    assert (by_gpu["digest"], by_gpu["losses"]) == (whole["digest"], whole["losses"])
    np.testing.assert_allclose(by_cpu["losses"], whole["losses"], rtol=2e-3)


# -- memory


def test_a_bundle_that_is_not_trusted_touches_no_gpu(folder: Path) -> None:
    from drivetrain.tests.gpu import Peak

    script = (
        "import sys, pyarrow.parquet as pq; from drivetrain.engine import Bundle\n"
        "rows = pq.read_table(sys.argv[2]).slice(0, 600)\n"
        "with Bundle.load(sys.argv[1], isolated=True) as bundle:\n"
        "    print(len(bundle.run('predict', rows)['p']))"
    )
    command = [sys.executable, "-c", script, str(folder / "gpu" / "model"), str(folder / "raw.parquet")]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("XLA_")}
    with Peak() as peak:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout) == (0, "600\n"), done.stderr
    assert peak.bytes < 64 << 20


def test_a_processor_is_not_needed_beside_a_gpu(folder: Path, tmp_path: Path) -> None:
    """JAX_PLATFORMS=cuda alone: JAX then has no device for what placement would leave to the processor."""
    script = (
        "import sys, pyarrow.parquet as pq; from drivetrain.engine import Bundle\n"
        "rows = pq.read_table(sys.argv[2]).slice(0, 600)\n"
        "bundle = Bundle.load(sys.argv[1])\n"
        "print(len(bundle.run('predict', rows)['p']), len(bundle.run_row('predict', rows.to_pylist()[0])))"
    )
    command = [sys.executable, "-c", script, str(folder / "cpu" / "model"), str(folder / "raw.parquet")]
    environment = {**os.environ, "JAX_PLATFORMS": "cuda"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout) == (0, "600 1\n"), done.stderr
