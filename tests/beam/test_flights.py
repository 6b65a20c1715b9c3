"""The main job on Beam's runners, its data passes on the same: the local run's `content/`, byte for byte."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from drivetrain.tests.beam import servers
from drivetrain.tests.examples import flights_job as job

pytestmark = [pytest.mark.beam, pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(900)]
RUNNERS = ("prism", "flink", "spark")


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> job.Done:
    """The job in one process, without Beam."""
    done = job.run(tmp_path_factory.mktemp("local") / ".drivetrain")
    assert done.code == 0, done.err
    return done


@pytest.fixture(scope="module", params=[pytest.param(name, marks=servers.marks(name)) for name in RUNNERS])
def flags(request: pytest.FixtureRequest) -> Iterator[servers.Flags]:
    """The options of each runner in turn."""
    with servers.RUNNERS[request.param]() as found:
        yield found


def test_the_content_is_the_local_runs(flags: servers.Flags, local: job.Done, tmp_path: Path) -> None:
    root = tmp_path / ".drivetrain"
    options = [word for flag in flags for word in ("--beam-option", flag)]
    done = job.run(root, "--runner", "beam", "--executor", "beam", *options, timeout=800)
    assert done.code == 0, done.err
    assert set(done.states.values()) == {"COMPLETE"}
    assert done.fingerprints == local.fingerprints
    paths = sorted(done.path(root, "ExampleGen", "examples").glob("content/split=*/*.parquet"))
    read = pa.concat_tables([pq.read_table(path, columns=["distance"]) for path in paths])
    assert read.num_rows == 336_776
    assert pc.sum(read["distance"]).as_py() == pc.sum(job.flights()["distance"]).as_py()
