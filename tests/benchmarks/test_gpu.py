"""The benchmark of a GPU runs on a processor too, and measures every part."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from drivetrain.benchmarks import ledger

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(600)]


def test_every_part_is_measured(tmp_path: Path) -> None:
    script = Path(ledger.__file__).with_name("gpu.py")
    command = [sys.executable, str(script), "--tiny", "--platforms", "cpu", "--json", str(tmp_path / "figures.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    measured = json.loads((tmp_path / "figures.json").read_text())
    assert measured.keys() == {"hardware", "train", "transform", "serve"}
    assert measured["hardware"]["cpu"].endswith(" on cpu")
    for part, names in {
        "train": {"dense, f32: fit, steps/s", "dense, f32: hand-written loop, steps/s", "ids, f32: fit, steps/s"},
        "transform": {"columns: as placed, M rows/s", "dense: as placed, M rows/s"},
        "serve": {"1 rows, 64 connections: requests/s", "64 rows, 16 connections: p99 ms"},
    }.items():
        figures = measured[part]["cpu"]
        assert figures.keys() >= names
        assert all(value > 0 for value in figures.values())
        assert all(name in done.stdout for name in figures)
