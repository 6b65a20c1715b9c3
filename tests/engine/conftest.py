"""What the engine's tests share."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
from drivetrain.tests.engine.hurry import hurried


@pytest.fixture(autouse=True)
def _stages_on_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """With DRIVETRAIN_STAGES=gpu every stage without a hint runs on JAX's default device, however small it is."""
    if os.environ.get("DRIVETRAIN_STAGES") == "gpu":
        from drivetrain.engine.lowering import placement, programs

        def hinted(stage, rows, devices):  # type: ignore[no-untyped-def]  # their types need Arrow and JAX
            return placement.device_of(stage, rows, devices) if stage.device else None

        monkeypatch.setattr(programs, "device_of", hinted)


@pytest.fixture(scope="module")
def compiled_in_a_hurry() -> Iterator[None]:
    """For files whose programs run once or a few times each."""
    with hurried():
        yield


@pytest.fixture(scope="session")
def problem() -> ModuleType:
    """The module training_problem.py beside this file; tests are not a package that could import it."""
    path = Path(__file__).with_name("training_problem.py")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def virtual_devices() -> Callable[[int], dict[str, str]]:
    """The environment of a process that sees so many devices, and runs each program once: XLA compiles in a hurry."""
    hurry = "--xla_cpu_use_fusion_emitters=false --xla_backend_optimization_level=0"

    def environment(count: int) -> dict[str, str]:
        flags = f"--xla_force_host_platform_device_count={count} {hurry}"
        return {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}

    return environment


@pytest.fixture
def learn(tmp_path: Path):  # type: ignore[no-untyped-def]  # jax and Arrow are imported when it is used
    """Analyse columns, transform them, and check that single rows give what the batch gives."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq
    from drivetrain import data
    from drivetrain.engine import analyze

    def run(fn, **columns):  # type: ignore[no-untyped-def]
        table = pa.table(columns)
        pq.write_table(table, tmp_path / "data.parquet", row_group_size=3)
        bundle = analyze(fn, data.open_parquet([tmp_path / "data.parquet"]), data.executor("local"))
        (batch,) = table.combine_chunks().to_batches()
        out = bundle.run("transform", batch)
        for place, row in enumerate(table.to_pylist()):
            for name, value in bundle.run_row("transform", row).items():
                if value is None or isinstance(value, str):
                    assert value == out[name][place]
                else:
                    np.testing.assert_allclose(np.asarray(value), out[name][place], rtol=1e-6, atol=1e-6, err_msg=name)
        return bundle, out

    return run
