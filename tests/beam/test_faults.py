"""Workers killed in the middle of a bundle, job services killed and started again: nothing is lost, nothing twice."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from drivetrain.data import LocalExecutor, Source, executor, open_parquet, sinks
from drivetrain.digest import digest_tree
from drivetrain.errors import DrivetrainError
from drivetrain.metadata.fsck import fsck
from drivetrain.pipelines import Home, list_runs, resume
from drivetrain.tests.beam import killed, servers
from drivetrain.tests.conformance.case import BEAM, Case, Step, carry_out, seen
from drivetrain.tests.data import passes

pytestmark = [pytest.mark.beam, pytest.mark.slow, pytest.mark.timeout(600)]
pytest.importorskip("apache_beam")
HELD = Case("tables/penguins:held", (Step(),))


@pytest.fixture
def source(tmp_path: Path) -> Source:
    """Twenty shards."""
    pq.write_table(pa.table({"a": range(2_000), "s": ["x"] * 2_000}), tmp_path / "in.parquet", row_group_size=100)
    return open_parquet([tmp_path / "in.parquet"])


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=servers.marks(name)) for name in ("portable", "prism_pool", "flink", "spark")]
)
def test_a_worker_killed_in_a_bundle(name: str, source: Source, tmp_path: Path) -> None:
    """The pass either fails with an error, or the runner did the bundle again; done once more, its files are right."""
    LocalExecutor().map(source, None, sinks(tmp_path / "local", ["all"])).write(tmp_path / "local")
    kills = passes.Kills(str(tmp_path / "killed"))
    with servers.RUNNERS[name]() as flags:
        walk = executor("beam", flags)
        said = ""
        try:
            walk.map(source, kills, sinks(tmp_path / "beam", ["all"])).write(tmp_path / "beam")
        except DrivetrainError as error:
            said = str(error)
        if said:
            assert "the Beam job failed" in said
            assert not (tmp_path / "beam" / "manifest.json").exists()
            walk.map(source, kills, sinks(tmp_path / "beam", ["all"])).write(tmp_path / "beam")
    assert (tmp_path / "killed").exists()
    assert digest_tree(tmp_path / "beam") == digest_tree(tmp_path / "local")


@servers.HAS_WORKERS_HERE
@pytest.mark.parametrize(
    ("name", "command"),
    [
        pytest.param("prism", servers.prism_command, marks=pytest.mark.prism),
        pytest.param("flink", servers.flink_command, marks=pytest.mark.flink),
    ],
)
def test_a_job_service_started_again(
    name: str, command: Callable[[int], tuple[str, ...]], source: Source, tmp_path: Path
) -> None:
    LocalExecutor().map(source, None, sinks(tmp_path / "local", ["all"])).write(tmp_path / "local")
    port = servers.free_port()
    flags = (*servers.endpoint(port), "--environment_type=LOOPBACK")
    # The workers are threads of the process that submits, and streams of theirs that wait for the killed service would
    # reach the next one under a worker's id that it knows, too: Prism panics when such a stream breaks.
    spawn = multiprocessing.get_context("spawn")
    with servers.listening(*command(port), port=port) as pid, ProcessPoolExecutor(1, spawn) as process:
        message = process.submit(killed.map_until_killed, source, flags, pid, tmp_path / "beam").result()
    assert f"localhost:{port} does not answer any more" in message
    assert "what has ended well stays" in message
    assert not list((tmp_path / "beam").rglob("*.tmp"))
    with servers.listening(*command(port), port=port):
        executor("beam", flags).map(source, passes.Slow(), sinks(tmp_path / "beam", ["all"])).write(tmp_path / "beam")
    assert digest_tree(tmp_path / "beam") == digest_tree(tmp_path / "local")


@pytest.fixture
def homes(tmp_path: Path) -> Iterator[tuple[Home, Home]]:
    """Of the run that is disturbed, and of one that is not."""
    both = Home(tmp_path / "disturbed" / ".drivetrain"), Home(tmp_path / "whole" / ".drivetrain")
    yield both
    for home in both:
        home.close()


def workers_of(pool: int) -> list[psutil.Process]:
    """The processes that a worker pool has started."""
    return [each for each in psutil.Process(pool).children() if "SdkHarness" in " ".join(each.cmdline())]


@pytest.mark.prism
@pytest.mark.parametrize("victim", ["worker", "service"])
def test_a_run_is_finished_after_a_kill(victim: str, homes: tuple[Home, Home]) -> None:
    home, other = homes
    job, pool, errors = servers.free_port(), servers.free_port(), []
    workers = ("-m", servers.POOL, "--service_port", str(pool))
    with servers.listening(sys.executable, *workers, port=pool, env=servers.environment()) as pool_pid:
        BEAM["again"] = (
            *servers.endpoint(job), "--environment_type=EXTERNAL", f"--environment_config=localhost:{pool}"
        )  # fmt: skip

        def walk() -> None:
            try:
                carry_out(HELD.steps[0], HELD, home, "again")
            except DrivetrainError as error:
                errors.append(str(error))

        with servers.listening(*servers.prism_command(job), port=job) as service:
            thread = threading.Thread(target=walk)
            thread.start()
            while not (home.base / "begun").exists():
                assert thread.is_alive(), errors
                time.sleep(0.05)
            if victim == "worker":
                for process in workers_of(pool_pid):
                    process.kill()
            else:
                os.killpg(service, signal.SIGKILL)
            thread.join(240)
            assert not thread.is_alive()
            assert ("the Beam job failed" if victim == "worker" else "does not answer any more") in errors[0]
            assert [run.state for run in list_runs(home)] == ["FAILED"]
            for base in (home.base, other.base):
                base.mkdir(exist_ok=True)
                (base / "go").touch()
            if victim == "worker":
                result = resume(home)
        if victim == "service":
            with servers.listening(*servers.prism_command(job), port=job):
                result = resume(home)
        del BEAM["again"]
    assert result.state == "COMPLETE"
    assert {node.state for node in result.nodes.values()} == {"COMPLETE"}
    assert seen(result, home) == seen(carry_out(HELD.steps[0], HELD, other, "inline"), other)
    ended = sorted(each.state for each in home.store.executions(component="penguins:Hold"))
    assert ended.count("COMPLETE") == 1
    report = fsck(home.store, home.root)
    assert report.clean, report.to_dict()
