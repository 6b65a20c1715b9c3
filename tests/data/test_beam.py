"""The Beam executor gives the bytes of the local one in this process; on other runners, see tests/beam."""

import logging
from pathlib import Path

import numpy as np
import passes  # type: ignore[import-not-found]  # conftest puts this folder on the path
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from drivetrain.data import Executor, HashSplit, LocalExecutor, Source, executor, open_parquet, sinks
from drivetrain.digest import digest_tree
from drivetrain.errors import Canceled, InputError

pytestmark = pytest.mark.beam
pytest.importorskip("apache_beam")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    rows = 30_000
    path = tmp_path_factory.mktemp("in") / "in.parquet"
    table = pa.table({"a": np.arange(rows), "s": [None if i % 11 == 0 else str(i % 9) for i in range(rows)]})
    pq.write_table(table, path, row_group_size=800)
    return open_parquet([path])


def check_same_bytes(walk: Executor, source: Source, folder: Path) -> None:
    """States and parts equal the local executor's."""
    local = LocalExecutor()
    double = passes.Double()
    expected = local.combine(source, passes.Trace, double).to_bytes()
    assert walk.combine(source, passes.Trace, double).to_bytes() == expected
    route = HashSplit.of({"train": 2, "eval": 1})
    for name, run in (("local", local), ("beam", walk)):
        tally = passes.Trace()
        run.map(source, double, sinks(folder / name, route.names), route=route, tally=tally).write(folder / name)
        assert tally.to_bytes() == b"(" + expected + b")"
        run.exchange(source, "s", 3, folder / name / "buckets", via=double)
    assert digest_tree(folder / "beam") == digest_tree(folder / "local")


def test_in_process(source: Source, tmp_path: Path) -> None:
    check_same_bytes(executor("beam"), source, tmp_path)


def test_the_users_error_comes_back_as_itself(source: Source, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        executor("beam").combine(source, passes.Trace, passes.Fails())
    assert (caught.value.message, caught.value.where) == ("row 7 is wrong", "data.csv:7")
    with pytest.raises(InputError, match="row 7"):
        executor("beam").map(source, passes.Fails(), sinks(tmp_path, ["all"]))
    assert not list(tmp_path.rglob("*.tmp"))


@pytest.mark.parametrize("after", [0, 5_000])
def test_cancellation_passes_through(source: Source, tmp_path: Path, after: int) -> None:
    heard: list[int] = []

    def progress(done: int, total: int | None, unit: str) -> None:
        heard.append(done)
        if done >= after:
            raise Canceled("stop")

    with pytest.raises(Canceled):
        executor("beam").combine(source, passes.Trace, progress=progress)
    assert after <= heard[-1] < 30_000 if after else heard == [0]
    with pytest.raises(Canceled):
        executor("beam").map(source, None, sinks(tmp_path, ["all"]), progress=progress)
    assert not list(tmp_path.rglob("*.tmp"))


def test_progress_in_this_process(source: Source) -> None:
    heard: list[int] = []
    executor("beam").combine(source, passes.Trace, progress=lambda done, total, unit: heard.append(done))
    assert heard == sorted(heard)
    assert heard[0] == 0
    assert heard[-1] == 30_000
    assert len(heard) > len(source.shards)


def test_beam_stays_quiet(source: Source, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> None:
    with caplog.at_level(logging.INFO):
        executor("beam").combine(source, passes.Trace)
    assert not [record for record in caplog.records if record.name.startswith("apache_beam")]
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("shards", [1, 2, 1_023, 1_024, 1_025, 2_049, 70_001])
def test_elements_are_whole_branches_of_the_tree(shards: int) -> None:
    from drivetrain.data.beam import blocks

    runs = blocks(shards)
    assert [index for block in runs for index in block] == list(range(shards))
    assert len(runs) <= 1_024
    size = len(runs[0])
    assert size & (size - 1) == 0  # so that every run starts where a branch does
    assert size == 1 or shards > size // 2 * 1_024  # and no run is longer than it must be


def test_runs_of_shards_make_the_local_tree(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drivetrain.data.beam._MOST_BLOCKS", 16)
    assert len(source.shards) == 38  # so that runs are of four, the last one of two
    walked = executor("beam").combine(source, passes.Trace).to_bytes()
    assert walked == LocalExecutor().combine(source, passes.Trace).to_bytes()
