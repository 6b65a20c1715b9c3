"""The main job on Beam's runners, and its data passes: the local run's `content/`, byte for byte.

On Prism and Flink a node's passes are jobs of the service that walks the pipeline at the same time. The embedded Spark
has one context for all its jobs, so there it is one or the other.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from drivetrain.tests.beam import servers
from drivetrain.tests.examples import flights_job as job

pytestmark = [
    *(pytest.mark.beam, pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(900)),
    pytest.mark.usefixtures("programs_compiled_once"),
]
USES = [
    ("prism", ("runner", "executor")),
    ("flink", ("runner", "executor")),
    ("spark", ("runner",)),
    ("spark", ("executor",)),
]


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> job.Done:
    """The job in one process, without Beam."""
    done = job.run(tmp_path_factory.mktemp("local") / ".drivetrain")
    assert done.code == 0, done.err
    return done


@pytest.mark.parametrize(
    ("name", "uses"),
    [pytest.param(name, uses, id=f"{name}-{'-'.join(uses)}", marks=servers.marks(name)) for name, uses in USES],
)
def test_the_content_is_the_local_runs(name: str, uses: tuple[str, ...], local: job.Done, tmp_path: Path) -> None:
    with servers.RUNNERS[name]() as flags:
        check(flags, uses, local, tmp_path)


def check(flags: servers.Flags, uses: tuple[str, ...], local: job.Done, tmp_path: Path) -> None:
    """A run on Beam gives what the local one did, and all the rows."""
    root = tmp_path / ".drivetrain"
    options = [word for flag in flags for word in ("--beam-option", flag)]
    done = job.run(root, *(word for use in uses for word in (f"--{use}", "beam")), *options, timeout=800)
    assert done.code == 0, done.err
    assert set(done.states.values()) == {"COMPLETE"}
    assert done.fingerprints == local.fingerprints
    paths = sorted(done.path(root, "ExampleGen", "examples").glob("content/split=*/*.parquet"))
    read = pa.concat_tables([pq.read_table(path, columns=["distance"]) for path in paths])
    assert read.num_rows == 336_776
    assert pc.sum(read["distance"]).as_py() == pc.sum(job.flights()["distance"]).as_py()
