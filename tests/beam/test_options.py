"""What is refused of Beam's options, and how a job ends that cannot begin: with an error, and soon."""

from __future__ import annotations

import os
import socket
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from drivetrain.beam_job import elsewhere, job_options
from drivetrain.data import LocalExecutor, Source, executor, open_parquet
from drivetrain.errors import DrivetrainError, InputError
from drivetrain.pipelines import Home, RunOptions, list_runs, load_pipeline, run_pipeline
from drivetrain.pipelines.runners.beam import refuse_options
from drivetrain.tests.beam import servers
from drivetrain.tests.data import passes

pytestmark = pytest.mark.beam
pytest.importorskip("apache_beam")
PORTABLE = "--runner=PortableRunner"


@pytest.fixture
def source(tmp_path: Path) -> Source:
    """Two shards."""
    pq.write_table(pa.table({"a": [1, 2, 3], "s": ["x", None, "y"]}), tmp_path / "in.parquet", row_group_size=2)
    return open_parquet([tmp_path / "in.parquet"])


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("DaskRunner", "computes only the last of a pipeline's outputs, and writes empty files"),
        ("apache_beam.runners.dask.dask_runner.DaskRunner", "writes empty files"),
        ("dask", "writes empty files"),
        ("apache_beam.runners.render.RenderRunner", "runs nothing of it"),
    ],
)
def test_runners_that_lie_are_refused(source: Source, name: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        executor("beam", (f"--runner={name}",)).combine(source, passes.Trace)


def test_without_a_runner_beam_downloads_none() -> None:
    from apache_beam.options.pipeline_options import DebugOptions, PortableOptions, StandardOptions

    for flags in ((), ("--runner=DirectRunner",), ("--runner=direct",)):
        assert job_options(flags).view_as(StandardOptions).runner.endswith(".FnApiRunner")
    # Beam's own default for a job service is a container, which has neither our code nor our files.
    here, there = (job_options((PORTABLE, f"--job_endpoint={host}:1")) for host in ("localhost", "beam.example"))
    assert here.view_as(PortableOptions).environment_type == "LOOPBACK"
    assert there.view_as(PortableOptions).environment_type is None
    # Nor does it list all that is installed to workers that are this process.
    experiments = [each.view_as(DebugOptions).experiments for each in (here, there)]
    assert experiments == [["disable_logging_submission_environment"], None]


@pytest.mark.parametrize(
    ("flags", "away"),
    [
        ((), ""),
        ((PORTABLE, "--job_endpoint=localhost:8099"), ""),
        ((PORTABLE, "--job_endpoint=127.0.0.2:8099"), ""),
        ((PORTABLE, "--job_endpoint=[::1]:8099"), ""),
        ((PORTABLE, "--job_endpoint=embed"), ""),
        ((PORTABLE, f"--job_endpoint={socket.gethostname()}:8099"), ""),
        (("--runner=FlinkRunner", "--flink_master=[local]"), ""),
        (("--runner=SparkRunner", "--spark_master_url=local[4]"), ""),
        ((PORTABLE, "--job_endpoint=10.1.2.3:8099"), "--job_endpoint=10.1.2.3:8099"),
        ((PORTABLE, "--job_endpoint=jobs.example:8099"), "--job_endpoint=jobs.example:8099"),
        (
            (PORTABLE, "--job_endpoint=localhost:1", "--environment_type=EXTERNAL", "--environment_config=pool:2"),
            "--environment_config=pool:2",
        ),
        ((PORTABLE, "--job_endpoint=localhost:1", "--environment_type=DOCKER"), "containers"),
        (("--runner=FlinkRunner", "--flink_master=flink.example:8081"), "--flink_master=flink.example:8081"),
        (("--runner=SparkRunner", "--spark_master_url=spark://h:7077"), "--spark_master_url=spark://h:7077"),
        (("--runner=DataflowRunner",), "Dataflow's machines"),
    ],
)
def test_what_is_not_on_this_machine(flags: tuple[str, ...], away: str) -> None:
    assert elsewhere(job_options(flags)).startswith(away)
    assert bool(elsewhere(job_options(flags))) is bool(away)


def test_a_sqlite_file_is_not_for_many_hosts(tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "pipeline.py").write_text("import drivetrain as dt\n\n@dt.pipeline\ndef shop() -> None: ...\n")
    home = Home(tmp_path / ".drivetrain")
    options = RunOptions(runner="beam", runner_options=(PORTABLE, "--job_endpoint=10.1.2.3:8099"))
    with pytest.raises(InputError, match=r"SQLite file.*--job_endpoint=10.1.2.3:8099 cannot share") as caught:
        run_pipeline(home, load_pipeline(tmp_path / "shop"), options=options)
    assert "--executor beam" in str(caught.value.fix)
    assert list_runs(home) == []
    home.close()


def test_no_password_is_sent_to_other_machines(tmp_path: Path) -> None:
    with closing(Home(tmp_path / ".drivetrain")) as home:
        for url in ("postgresql://team:hunter2@db/runs", "postgresql://db/runs?user=team&password=hunter2"):
            home.url = url
            refuse_options((), home)
            with pytest.raises(InputError, match=r"holds a password.*10.1.2.3:8099") as caught:
                refuse_options((PORTABLE, "--job_endpoint=10.1.2.3:8099"), home)
            assert "hunter2" not in str(caught.value)
        home.url = "postgresql://team@db/runs"
        refuse_options((PORTABLE, "--job_endpoint=10.1.2.3:8099"), home)


def test_a_wrong_flag_is_one_error(source: Source, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError, match="cannot read its options: argument --direct_num_workers: invalid int value"):
        executor("beam", ("--direct_num_workers=many",)).combine(source, passes.Trace)
    assert capfd.readouterr() == ("", "")


def test_nobody_answers(source: Source) -> None:
    port = servers.free_port()
    with pytest.raises(InputError, match=rf"nobody answers at localhost:{port}, which --job_endpoint names"):
        executor("beam", servers.endpoint(port)).combine(source, passes.Trace)
    with socket.create_server(("localhost", 0)) as listening:
        flags = (*servers.endpoint(listening.getsockname()[1]), "--environment_type=EXTERNAL")
        with pytest.raises(InputError, match=rf"nobody answers at localhost:{port}, which --environment_config names"):
            executor("beam", (*flags, f"--environment_config=localhost:{port}")).combine(source, passes.Trace)


@pytest.mark.slow
@pytest.mark.timeout(280)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=servers.marks(name)) for name in ("portable", "prism", "flink")]
)
def test_a_worker_that_cannot_start_is_an_error(name: str, source: Source, tmp_path: Path) -> None:
    """A pool starts the first `python` on its PATH: here one that ends at once, as one without Beam does."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to("/bin/false")
    wrong = servers.environment(PATH=f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    with servers.RUNNERS[name]() as flags, servers.pool(wrong) as workers:
        kept = [flag for flag in flags if not flag.startswith("--environment")]
        walk = executor("beam", (*kept, *workers, "--worker_start_timeout=6"))
        with pytest.raises(DrivetrainError, match="no worker of the Beam job has begun in 6 s") as caught:
            walk.combine(source, passes.Trace)
        assert "the first `python` on its PATH" in str(caught.value.fix)
        # The job service is as good as before.
        state = executor("beam", (*kept, *(flag for flag in flags if flag not in kept))).combine(source, passes.Trace)
        assert state.to_bytes() == LocalExecutor().combine(source, passes.Trace).to_bytes()
