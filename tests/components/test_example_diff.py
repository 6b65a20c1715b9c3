"""ExampleDiff in whole pipelines: an earlier run's examples, the same rows corrected, on both data executors."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from drivetrain.components import ExampleDiff, ExampleGen
from drivetrain.digest import digest_tree
from drivetrain.errors import InputError
from drivetrain.pipelines import Home, RunOptions, RunResult, load_pipeline, run_pipeline
from drivetrain.pipelines.project.context import LaunchContext, enter

EXECUTORS = ["local", pytest.param("beam", marks=pytest.mark.beam)]
PIPELINE = """
import drivetrain as dt
from drivetrain.components import ExampleDiff, ExampleGen
from drivetrain.metadata import Examples

@dt.pipeline
def shop(data: str) -> None:
    examples = ExampleGen(data, split_by="id")
    ExampleDiff(examples, dt.latest(Examples), key="id")
"""


def write(path: Path, corrected: int = 0) -> str:
    fares = np.arange(900) / 4
    fares[:corrected] += 1
    pq.write_table(pa.table({"id": np.arange(900), "fare": fares, "city": ["Oslo", "Bergen"] * 450}), path)
    return str(path)


def run(tmp_path: Path, home: Home, executor: str, corrected: int) -> RunResult:
    folder = tmp_path / "shop"
    folder.mkdir(exist_ok=True)
    (folder / "pipeline.py").write_text(PIPELINE)
    data = write(tmp_path / "data.parquet", corrected)
    return run_pipeline(home, load_pipeline(folder), {"data": data}, RunOptions(executor=executor))


def properties(result: RunResult) -> dict[str, Any]:
    assert result.state == "COMPLETE"
    return dict(result.nodes["ExampleDiff"].outputs["examples_diff"][0].properties)


@pytest.mark.slow
@pytest.mark.parametrize("executor", EXECUTORS)
def test_what_a_second_version_of_the_data_corrects(tmp_path: Path, executor: str) -> None:
    home = Home(tmp_path / "home" / ".drivetrain")
    first = properties(run(tmp_path, home, executor, 0))
    assert first == {
        "pairs": 0, "different": 0, "summary": "there are no other examples yet, nothing to compare with",
    }  # fmt: skip
    second = properties(run(tmp_path, home, executor, 30))
    assert second == {"pairs": 900, "different": 30, "summary": "30 of 900 pairs of rows differ, in fare"}
    again = run(tmp_path, home, executor, 30)
    assert again.nodes["ExampleDiff"].state == "CACHED"
    assert not list((home.root / "work").rglob("*.arrow"))
    home.close()


def test_equal_inputs_give_equal_content(tmp_path: Path) -> None:
    base, test = ExampleGen(write(tmp_path / "a.parquet")), ExampleGen(write(tmp_path / "b.parquet", 3))
    made = [ExampleDiff(base, test, key=["id"]) for _ in range(2)]
    assert digest_tree(made[0].content) == digest_tree(made[1].content)
    document = json.loads((made[0].content / "example_diff.json").read_text())
    assert [pair["test"] for pair in document["pairs"]] == ["train", "eval"]
    assert (made[0].extra / "report.html").read_text().startswith("<!doctype html>")
    crossed = ExampleDiff(base, test, key="id", pairs=[["train", "eval"]])
    assert [pair["base"] for pair in json.loads((crossed.content / "example_diff.json").read_text())["pairs"]] == [
        "train"
    ]
    with pytest.raises(InputError, match="the base data has no column 'nr'"):
        ExampleDiff(base, test, key="nr")


def test_what_a_killed_attempt_left_goes(tmp_path: Path) -> None:
    work = tmp_path / "work"
    code = f"""
import os, signal
from drivetrain.components import ExampleDiff, ExampleGen
from drivetrain.pipelines.project.context import LaunchContext, enter
base, test = ExampleGen({write(tmp_path / "a.parquet")!r}), ExampleGen({write(tmp_path / "b.parquet", 3)!r})
kill = lambda done, total, unit: done and os.kill(os.getpid(), signal.SIGKILL)
from pathlib import Path
enter(LaunchContext(work=Path({str(work)!r}), progress=kill))
ExampleDiff(base, test, key="id")
"""
    killed = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert list(work.rglob("*.arrow"))
    leave = enter(LaunchContext(work=work))
    try:
        base, test = (ExampleGen(str(tmp_path / f"{name}.parquet"), split_by="id") for name in "ab")
        assert ExampleDiff(base, test, key="id").different == 3
    finally:
        leave()
    assert not list(work.iterdir())


@pytest.mark.beam
def test_content_is_the_same_on_beam(tmp_path: Path) -> None:
    pytest.importorskip("apache_beam")
    base, test = ExampleGen(write(tmp_path / "a.parquet")), ExampleGen(write(tmp_path / "b.parquet", 3))
    made = []
    for name in ("local", "beam"):
        leave = enter(LaunchContext(executor=name))
        try:
            made.append(digest_tree(ExampleDiff(base, test, key="id").content))
        finally:
            leave()
    assert made[0] == made[1]
