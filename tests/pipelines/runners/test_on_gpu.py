"""Tasks and a real GPU: who leased it sees it by its UUID and may take it whole; who did not takes little of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from drivetrain.pipelines import Home, PipelineFunction, RunOptions, run_pipeline
from drivetrain.pipelines.runners.leases import find_devices

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

Pipe = Callable[..., PipelineFunction[..., object]]
TWO = RunOptions(runner="process", parallel=2)

COMPUTE = """
import json
import jax
import numpy as np
total = float(jax.numpy.ones((512, 512)).sum())
time.sleep(1)  # so that somebody sees the memory
(current().base / f'{current().node}.json').write_text(json.dumps(dict(
    total=total, devices=[device.platform for device in jax.devices()], pid=os.getpid(),
    visible=os.environ.get('CUDA_VISIBLE_DEVICES'))))
"""


@pytest.fixture(autouse=True)
def as_a_user_has_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """Locks of this test's own; nothing said of accelerators or of their memory."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))
    for name in ("DRIVETRAIN_ACCELERATORS", "CUDA_VISIBLE_DEVICES", "XLA_PYTHON_CLIENT_PREALLOCATE"):
        monkeypatch.delenv(name, raising=False)


def reports(home: Home) -> list[dict[str, Any]]:
    """What the tasks wrote."""
    return [json.loads(path.read_text()) for path in home.base.glob("*.json")]


def test_the_gpu_is_known_by_its_uuid() -> None:
    from drivetrain.tests.gpu import uuid

    assert uuid() in find_devices()


def test_a_task_that_leased_it_has_it_whole(home: Home, pipe: Pipe) -> None:
    from drivetrain.tests.gpu import Peak, total_memory

    function = pipe(f"Misbehave.options(accelerators=1)(Make(), code={COMPUTE!r})")
    with Peak() as peak:
        assert run_pipeline(home, function, options=TWO).state == "COMPLETE"
    (report,) = reports(home)
    assert report["visible"] == find_devices()[0]
    assert report["visible"].startswith(("GPU-", "MIG-"))
    assert (report["total"], report["devices"]) == (512.0 * 512, ["gpu"])
    assert peak.bytes > total_memory() // 2  # JAX takes three quarters in advance


def test_tasks_that_leased_none_share_it_and_take_little(home: Home, pipe: Pipe) -> None:
    from drivetrain.tests.gpu import Peak

    function = pipe(f"""
    numbers = Make()
    for number in range(3):
        Misbehave.options(id=f'M{{number}}', cache=False)(numbers, code={COMPUTE!r})
    """)
    with Peak() as peak:
        assert run_pipeline(home, function, options=TWO).state == "COMPLETE"
    assert [report["devices"] for report in reports(home)] == [["gpu"]] * 3
    # Two at once, and a process for each: one that opened a GPU does no further task.
    assert len({report["pid"] for report in reports(home)}) == 3
    assert 0 < peak.bytes < 3 * (2 << 30)


def test_a_task_that_computes_nothing_opens_no_gpu(home: Home, pipe: Pipe) -> None:
    from drivetrain.tests.gpu import Peak

    with Peak() as peak:
        assert run_pipeline(home, pipe("Use(Make())"), options=TWO).state == "COMPLETE"
    assert peak.bytes < 64 << 20
