"""The Beam executor on real runners: the bytes of the local one, made by workers in other processes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from drivetrain.data import HashSplit, LocalExecutor, Source, executor, open_parquet, sinks, statistics
from drivetrain.digest import digest_tree
from drivetrain.errors import Canceled, InputError
from drivetrain.tests.beam import servers
from drivetrain.tests.data import passes

pytestmark = [pytest.mark.beam, pytest.mark.slow, pytest.mark.timeout(240)]
pytest.importorskip("apache_beam")


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=servers.marks(name)) for name in servers.RUNNERS],
)
def flags(request: pytest.FixtureRequest) -> Iterator[servers.Flags]:
    """The options of each runner in turn."""
    with servers.RUNNERS[request.param]() as found:
        yield found


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    """Thirty-eight shards, the last one short."""
    rows = 30_000
    path = tmp_path_factory.mktemp("in") / "in.parquet"
    table = pa.table({"a": np.arange(rows), "s": [None if i % 11 == 0 else str(i % 9) for i in range(rows)]})
    pq.write_table(table, path, row_group_size=800)
    return open_parquet([path])


def test_states_are_the_local_ones(flags: servers.Flags, source: Source, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    pids.mkdir()
    state = executor("beam", flags).combine(source, passes.Trace, passes.Double(str(pids))).to_bytes()
    assert state == LocalExecutor().combine(source, passes.Trace, passes.Double()).to_bytes()
    seen = {int(path.name) for path in pids.iterdir()}
    outside = "--environment_type=EXTERNAL" in flags
    assert (os.getpid() in seen) is not outside
    assert len(seen) >= (2 if "--direct_num_workers=2" in flags else 1)


def test_files_are_the_local_ones(flags: servers.Flags, source: Source, tmp_path: Path) -> None:
    double, route = passes.Double(), HashSplit.of({"train": 2, "eval": 1})
    for name, one in (("local", LocalExecutor()), ("beam", executor("beam", flags))):
        one.map(source, double, sinks(tmp_path / name, route.names), route=route).write(tmp_path / name)
        one.exchange(source, "s", 3, tmp_path / name / "buckets", via=double)
    assert digest_tree(tmp_path / "beam") == digest_tree(tmp_path / "local")
    paths = sorted(tmp_path.glob("beam/split=*/*.parquet"))
    read = pa.concat_tables([pq.read_table(path) for path in paths])  # by pyarrow alone: every row, once
    assert sorted(read["a"].to_pylist()) == [2 * i for i in range(30_000)]


def test_statistics_are_the_local_ones(flags: servers.Flags, source: Source) -> None:
    beam = statistics({"all": source}, executor("beam", flags))
    assert beam.state("all").to_bytes() == statistics({"all": source}, LocalExecutor()).state("all").to_bytes()
    assert beam.features("all")["a"]["mean"]["value"] == pytest.approx(np.arange(30_000).mean())


def test_the_users_error_comes_back_as_itself(flags: servers.Flags, source: Source, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        executor("beam", flags).map(source, passes.Fails(), sinks(tmp_path, ["all"]))
    assert (caught.value.message, caught.value.where) == ("row 7 is wrong", "data.csv:7")
    assert not list(tmp_path.rglob("*.parquet"))


def test_cancellation_stops_the_job(flags: servers.Flags, source: Source, tmp_path: Path) -> None:
    def stop(done: int, total: int | None, unit: str) -> None:
        if list(tmp_path.rglob("part-*")):
            raise Canceled("stop")

    with pytest.raises(Canceled):
        executor("beam", flags).map(source, passes.Slow(), sinks(tmp_path, ["all"]), progress=stop)
    assert len(list(tmp_path.rglob("part-*"))) < len(source.shards)
