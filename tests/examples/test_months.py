"""Months as spans: what each month learns from, and what runs again when one of them changes."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.engine,
    pytest.mark.timeout(900),
    pytest.mark.usefixtures("programs_compiled_once"),
]
MONTHS = Path(__file__).parents[2] / "examples" / "months"
RUN = ["Transform", "Trainer", "Evaluator"]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project with its twelve files, all months filled in."""
    folder = tmp_path_factory.mktemp("months") / "months"
    shutil.copytree(MONTHS, folder, ignore=shutil.ignore_patterns("data", "__pycache__"))
    subprocess.run([sys.executable, str(folder / "split_months.py")], check=True)
    assert [one["state"] for one in backfill(folder)] == ["COMPLETE"] * 12
    return folder


def command(project: Path, *arguments: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "drivetrain", *arguments, "--root", str(project.parent / ".drivetrain"), "--json"],
        cwd=project.parent, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def backfill(project: Path, spans: str = "1:12") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = command(project, "backfill", "months", "--spans", spans)["spans"]
    return found


def content(project: Path, run: str, node: str, output: str) -> Path:
    shown = command(project, "show", run)["nodes"][node]["outputs"][output]
    return project.parent / ".drivetrain" / str(shown[0]["uri"]) / "content"


def test_a_month_learns_from_itself_and_the_two_before(project: Path) -> None:
    sizes = {month: pq.read_metadata(project / f"data/month-{month:02}.parquet").num_rows for month in range(1, 13)}
    again = backfill(project)
    assert [one["ran"] for one in again] == [[]] * 12  # all cached: a month finds what its first run found
    for one in again:
        month = one["span"]
        rows = sum(
            pq.read_metadata(path).num_rows
            for path in content(project, one["run"], "Transform", "examples").glob("split=*/*.parquet")
        )
        assert rows == sum(sizes[m] for m in range(max(1, month - 2), month + 1))


def test_a_month_that_changes_runs_only_what_depends_on_it(project: Path) -> None:
    path = project / "data" / "month-05.parquet"
    flights = pq.read_table(path)
    pq.write_table(flights.filter(pc.less(flights["day"], 29)), path)
    assert {one["span"]: one["ran"] for one in backfill(project)} == {
        **{month: [] for month in range(1, 13)},
        5: ["ExampleGen", "StatisticsGen", "ExampleValidator", *RUN],
        6: ["ExampleValidator", *RUN],
        7: RUN,
    }
    # The newest month, by itself, is the one that was filled in last.
    newest = command(project, "run", "months")
    assert {node["state"] for node in newest["nodes"].values()} == {"CACHED"}
