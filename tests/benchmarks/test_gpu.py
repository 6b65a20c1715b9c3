"""The benchmark of a GPU runs on a processor too, and measures every part."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from drivetrain.benchmarks import gpu, ledger

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(600)]


def test_every_part_is_measured(tmp_path: Path) -> None:
    script = Path(ledger.__file__).with_name("gpu.py")
    command = [sys.executable, str(script), "--tiny", "--platforms", "cpu", "--json", str(tmp_path / "figures.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    measured = json.loads((tmp_path / "figures.json").read_text())
    assert measured.keys() == {"hardware", "train", "transform", "serve", "models"}
    assert measured["hardware"]["cpu"].endswith(" on cpu")
    for part, names in {
        "train": {"dense, f32: fit, steps/s", "dense, f32: hand-written loop, steps/s", "ids, f32: fit, steps/s"},
        "transform": {"columns: as placed, M rows/s", "dense: as placed, M rows/s"},
        "serve": {"1 rows, 64 connections: requests/s", "64 rows, 16 connections: p99 ms"},
        "models": {
            f"{model}: {what}"
            for model, unit in {
                "ResNet-50, bf16": "images",
                "BERT-Large, 128 tokens, bf16": "sequences",
                "BERT-Large, 512 tokens, bf16": "sequences",
                "DLRM, f32": "rows",
                "decoder of 124M, bf16": "sequences",
            }.items()
            for what in (f"fit, {unit}/s", f"batch on the device, {unit}/s", "fit / hand-written loop", "fit, TFLOP/s")
        },
    }.items():
        figures = measured[part]["cpu"]
        assert figures.keys() >= names
        assert all(value > 0 for value in figures.values())
        assert all(name in done.stdout for name in figures)


def test_the_table_of_a_gpu_takes_the_room_of_the_one_before() -> None:
    page = gpu.PAGE.read_text("utf-8")
    before, after = page.split(gpu.BEGIN)[0], page.split(gpu.END)[1]
    first = gpu.with_table(page, {"ResNet-50: fit, images/s": 2512.3}, "gpu: some", "2026-01-02")
    second = gpu.with_table(first, {"ResNet-50: fit, images/s": 2600.0, "MFU": 0.5}, "gpu: other", "2026-03-04")
    assert second.startswith(before)
    assert second.endswith(after)
    assert "| ResNet-50: fit, images/s | 2,600 |\n| MFU | 0.5 |" in second
    assert "2026-03-04, gpu: other:" in second
    assert "2026-01-02" not in second
    with pytest.raises(ValueError, match="measured: begin"):
        gpu.with_table("# A page", {}, "", "")
