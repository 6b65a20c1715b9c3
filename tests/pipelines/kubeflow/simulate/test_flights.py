"""The main example on the simulated cluster: the bytes that it makes here, and from the cache what has not changed."""

from __future__ import annotations

from pathlib import Path

import pytest
from drivetrain.tests.examples import flights_job as job

pytestmark = [
    *(pytest.mark.kubeflow, pytest.mark.engine, pytest.mark.slow),
    pytest.mark.usefixtures("programs_compiled_once"),
]


@pytest.mark.timeout(900)
def test_flights_are_the_same_on_the_cluster(tmp_path: Path) -> None:
    data = job.sample(tmp_path / "flights.csv", 0.02)
    parameters = ("--param", f"data={data}", "--param", "epochs=1")
    here = job.run(tmp_path / "here" / ".drivetrain", *parameters)
    assert here.code == 0, here.err
    root = tmp_path / "cluster" / ".drivetrain"
    simulate = ("kubeflow", "simulate", str(job.PROJECT), "--root", str(root), *parameters)
    there = job.drive(*simulate, timeout=600)
    assert there.code == 0, there.err
    assert there.states == here.states
    assert there.fingerprints == here.fingerprints
    assert there.result["kubeflow"]["state"] == "SUCCEEDED"
    again = job.drive(*simulate, timeout=600)
    assert again.fingerprints == here.fingerprints
    assert set(again.states.values()) <= {"CACHED", "SKIPPED"}
