"""Months through a live server: drift is found in its request log, a retrained model takes over, all is recorded."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

pytest.importorskip("httptools")

from drivetrain.console.exit_codes import OK, STOPPED
from drivetrain.serving.client import Client
from drivetrain.tests.examples.test_months import MONTHS
from drivetrain.tests.serving.running import serving

pytestmark = [pytest.mark.slow, pytest.mark.engine, pytest.mark.timeout(600)]
COLUMNS = ["dep_delay", "distance", "carrier", "origin"]


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The project with its months, in a folder as a user has it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DRIVETRAIN_ROOT", raising=False)
    folder = tmp_path / "examples" / "months"
    shutil.copytree(MONTHS, folder, ignore=shutil.ignore_patterns("data", "__pycache__"))
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "flights"\n')
    subprocess.run([sys.executable, str(folder / "split_months.py")], check=True)
    return tmp_path


def drivetrain(*arguments: str, code: int = OK) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "drivetrain", *arguments, "--json"], capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stderr + done.stdout
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def run(pipeline: str, *parameters: str, code: int = OK) -> dict[str, Any]:
    options = [option for parameter in parameters for option in ("-p", parameter)]
    return drivetrain("run", "examples/months", "--pipeline", pipeline, *options, code=code)


def flights_of(workplace: Path, month: int, rows: int) -> list[dict[str, Any]]:
    """Rows of a month, evenly over its days."""
    table = pq.read_table(workplace / "examples" / "months" / "data" / f"month-{month:02}.parquet", columns=COLUMNS)
    flights: list[dict[str, Any]] = table.take(list(range(0, table.num_rows, table.num_rows // rows))).to_pylist()
    return flights


def ask(address: str, rows: list[dict[str, Any]]) -> set[int]:
    """Ask for all rows, some at a time: the versions that answered."""
    with Client(address, "months") as client:
        return {client.predict(rows[start : start + 20]).version for start in range(0, len(rows), 20)}


@contextmanager
def asked_all_the_time(address: str, rows: list[dict[str, Any]]) -> Iterator[list[int]]:
    versions: list[int] = []
    ended = threading.Event()

    def go_on() -> None:
        with Client(address, "months") as client:
            while not ended.is_set():
                versions.append(client.predict(rows[:5]).version)
                time.sleep(0.005)

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        yield versions
    finally:
        ended.set()
        thread.join(60)


def test_drift_in_what_is_served_leads_to_a_new_model_that_takes_over(workplace: Path) -> None:
    (workplace / "served").mkdir()  # the server waits for what will be in it
    with serving(workplace, "--config", "examples/months/server.yaml", "--poll", "3600") as server:
        first = run("serve_months", "span=1", f"server={server.address}")
        assert first["state"] == "COMPLETE"
        assert ask(server.address, flights_of(workplace, 2, 2000)) == {1}
        time.sleep(2)  # the log is written every second
        log = f"log={workplace}/request-log/months/*/*/*.parquet"
        assert run("watch_months", "span=1", log)["state"] == "COMPLETE"
        file = "examples/months/data/month-02.parquet"  # with a column of times, which JSON has none of
        url = f"{server.address}/v1/models/months"
        assert len(drivetrain("predict", url, file, "--limit", "3")["predictions"]) == 3
        since = time.strftime("since=%Y-%m-%dT%H:%M:%S+00:00", time.gmtime())
        time.sleep(1)
        summer = flights_of(workplace, 7, 2000)
        assert ask(server.address, summer) == {1}
        time.sleep(2)
        stopped = run("watch_months", "span=1", log, since, code=STOPPED)
        (anomalies,) = stopped["nodes"]["ExampleValidator"]["outputs"]["anomalies"]
        report = (workplace / ".drivetrain" / anomalies["uri"] / "content" / "anomalies.json").read_text()
        assert "dep_delay" in report
        with asked_all_the_time(server.address, summer) as versions:
            second = run("serve_months", "span=7", f"server={server.address}")
        assert second["state"] == "COMPLETE"
        assert set(versions) == {1, 2}
        assert ask(server.address, summer) == {2}
        with Client(server.address, "months") as client:
            digest = client.predict(summer[:1]).digest
    traced = drivetrain("trace", digest)
    (push,) = traced["pushed"]
    assert (push["version"], push["serving"]["before"]) == (2, 1)
    assert [step["share"] for step in push["serving"]["steps"]][:2] == [10.0, 50.0]
    assert [span["span"] for span in traced["data"]] == [7]
    assert [evaluation["blessed"] for evaluation in traced["evaluations"]] == [True]
    down = drivetrain("trace", "--span", "1", "--log", "request-log")
    assert [push["version"] for model in down["models"] for push in model["pushed"]] == [1]
    assert all(model["log"] for model in down["models"])
