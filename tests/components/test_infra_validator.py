"""InfraValidator: the real server is started, asked and compared; what does not serve is not pushed."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("httptools")

from drivetrain import InputError
from drivetrain.components import InfraValidator
from drivetrain.data import Manifest, executor, open_parquet
from drivetrain.data.examples import sinks
from drivetrain.engine import Bundle
from drivetrain.metadata import Examples, InfraValidation, Model
from drivetrain.serving.child import ServerProcess
from drivetrain.serving.config import ModelConfig
from drivetrain.serving.server import ServerOptions
from drivetrain.tests.living import lives
from drivetrain.tests.pipelines.faulty import waits
from drivetrain.tests.serving.bundles import rows_of, write_network
from drivetrain.tests.serving.open_server import open_server

pytestmark = pytest.mark.engine


def examples_of(folder: Path, table: pa.Table) -> Examples:
    """Examples of one split."""
    examples = Examples.new(span=1)
    pq.write_table(table, folder / "eval.parquet")
    written = executor("local").map(open_parquet([folder / "eval.parquet"]), None, sinks(examples.content, ["eval"]))
    examples.rows = Manifest.joined([written]).write(examples.content, span=1).rows
    return examples


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return write_network(tmp_path_factory.mktemp("bundles") / "network", 1, hidden=24)


@pytest.fixture
def model(network: Bundle) -> Model:
    """A network of its own: what is asked may leave files beside it."""
    model = Model.new()
    model.content.rmdir()
    network.save(model.content)
    return model


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Examples:
    return examples_of(tmp_path_factory.mktemp("rows"), rows_of(3, 150))


@pytest.fixture
def served_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has the server be in this process: of a test of what it answers, not of its start."""

    @contextmanager
    def start(base_path: Path, log: Path, most_seconds: float) -> Iterator[ServerProcess]:
        log.touch()
        process: Any = SimpleNamespace(pid=os.getpid())
        with open_server(ServerOptions(poll_seconds=0), [ModelConfig(base_path.name, str(base_path))]) as server:
            yield ServerProcess(server.rest, process, 0.0)

    monkeypatch.setattr(ServerProcess, "start", start)


def read(validation: InfraValidation, name: str) -> Any:
    return json.loads((validation.path / name).read_text())


def test_a_model_that_serves_passes(model: Model, examples: Examples) -> None:
    validation = InfraValidator(model, examples, rows=120)
    assert validation.passed, validation.summary
    assert validation.summary.startswith("passed: 120 rows served as predicted; started in ")
    requests = [json.loads(line) for line in (validation.content / "warmup.jsonl").read_text().splitlines()]
    assert requests == [
        {"instances": [{"x": row}], "signature_name": "predict"} for row in rows_of(3, 120)["x"].to_pylist()
    ]
    assert read(validation, "content/validation.json") == {
        "passed": True, "split": "eval", "rows": 120, "problems": [],
    }  # fmt: skip
    measured = read(validation, "extra/measured.json")
    assert 0 < measured["p50 ms"] <= measured["p99 ms"]
    assert measured["memory MB"] > 50  # of a process that has JAX
    assert "serves after" in (validation.extra / "server.log").read_text()


@pytest.mark.usefixtures("served_here")
def test_bounds_that_are_not_kept(model: Model, examples: Examples) -> None:
    validation = InfraValidator(model, examples, rows=10_000, max_latency_ms=0.001, max_memory_mb=1)
    assert not validation.passed
    assert not (validation.content / "warmup.jsonl").exists()
    outcome = read(validation, "content/validation.json")
    assert outcome["rows"] == 150  # all that there are
    first, second = outcome["problems"]
    assert "at most 0.001 may be" in first
    assert "MB, at most 1 may be" in second


@pytest.mark.usefixtures("served_here")
def test_a_model_whose_predictions_are_not_finite(tmp_path: Path, model: Model) -> None:
    table = rows_of(3, 30).set_column(0, "x", pa.array([[1e300] * 16, *rows_of(3, 29)["x"].to_pylist()]))
    validation = InfraValidator(model, examples_of(tmp_path, table), rows=30)
    # tanh of an infinity is 1, so that this network has a number for it: served as the bundle has it.
    assert validation.passed == bool(np.isfinite(_scores(model, table)).all())


def _scores(model: Model, table: pa.Table) -> Any:
    return Bundle.load(model.content).run("predict", table)["score"]


def test_a_column_that_clients_do_not_have_and_a_slow_start(tmp_path: Path, model: Model, examples: Examples) -> None:
    lacking = examples_of(tmp_path, pa.table({"z": [1.0, 2.0]}))
    validation = InfraValidator(model, lacking)
    assert validation.summary == "not passed: the model reads x, which the examples do not have"
    validation = InfraValidator(model, examples, max_start_seconds=0.01)
    assert validation.summary.startswith("not passed: the server took more than 0.01 s to start")


def test_what_cannot_be_asked(model: Model, examples: Examples) -> None:
    with pytest.raises(InputError, match="no split 'train'"):
        InfraValidator(model, examples, split="train")
    with pytest.raises(InputError, match="rows must be above 0"):
        InfraValidator(model, examples, rows=0)


def test_a_full_disk_is_named(model: Model, examples: Examples, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(source: object, target: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.link", full)
    monkeypatch.setattr("shutil.copy", full)
    with pytest.raises(InputError, match=r"cannot be copied to .*No space left on device"):
        InfraValidator(model, examples)


SERVES = """
import sys, time
from pathlib import Path
from drivetrain.serving.child import ServerProcess

with ServerProcess.start(Path(sys.argv[1]), Path(sys.argv[2]), 60) as server:
    print(server.process.pid, flush=True)
    time.sleep(60)
"""


def test_a_server_ends_with_who_started_it(tmp_path: Path, model: Model) -> None:
    shutil.copytree(model.content, tmp_path / "net" / "1")
    command = [sys.executable, "-c", SERVES, str(tmp_path / "net"), str(tmp_path / "server.log")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        server = int(parent.stdout.readline())
        parent.kill()
    try:
        waits(lambda: not lives(server))
    finally:
        with suppress(ProcessLookupError):
            os.kill(server, signal.SIGKILL)
    assert "told to end" in (tmp_path / "server.log").read_text()


PIPELINE = """
import drivetrain as dt
from drivetrain.components import ExampleGen, ImportModel, InfraValidator, Pusher


@dt.pipeline
def shop(rows: str, bundle: str, limit: float) -> None:
    examples = ExampleGen(rows, splits={"eval": 1})
    model = ImportModel(path=bundle)
    validation = InfraValidator(model, examples, rows=20, max_memory_mb=limit)
    Pusher(model, validation, destination="serving/net")
"""


@pytest.mark.slow
def test_a_pipeline_pushes_what_serves_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from click.testing import CliRunner
    from drivetrain.console.cli import cli

    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "__init__.py").touch()
    (tmp_path / "shop" / "pipeline.py").write_text(PIPELINE)
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "shop"\n')
    write_network(tmp_path / "network", 1, hidden=24)
    pq.write_table(rows_of(3, 50), tmp_path / "rows.parquet")
    states = {}
    for limit in (1.0, 100_000.0):
        arguments = [f"rows={tmp_path}/rows.parquet", f"bundle={tmp_path}/network/manifest.json", f"limit={limit}"]
        options = [part for argument in arguments for part in ("-p", argument)]
        ran = CliRunner().invoke(cli, ["run", "shop", "--json", *options])
        answer = json.loads(ran.stdout.splitlines()[-1])
        states[limit] = {name: node["state"] for name, node in answer["nodes"].items()}
        assert (tmp_path / "serving" / "net" / "1").is_dir() == (limit > 1)
    assert len((tmp_path / "serving" / "net" / "1.warmup.jsonl").read_text().splitlines()) == 20
    assert states[1.0]["Pusher"] == "BLOCKED"
    assert states[100_000.0] == {
        "ExampleGen": "CACHED", "ImportModel": "CACHED", "InfraValidator": "COMPLETE", "Pusher": "COMPLETE",
    }  # fmt: skip
