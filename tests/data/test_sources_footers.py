"""A Parquet footer is parsed once for a pass over its row groups; a file that changed is not taken for the old one."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from drivetrain.data import Source, open_parquet, sources
from drivetrain.errors import InputError


def write(path: Path, first: int = 0, rows: int = 40, group: int = 2) -> Path:
    pq.write_table(pa.table({"a": np.arange(first, first + rows)}), path, row_group_size=group)
    return path


def values(source: Source, shard: int) -> list[int]:
    return [value for batch in source.read(shard) for value in batch.column("a").to_pylist()]


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files whose footers are parsed, each time."""
    read: list[str] = []
    real = pq.read_metadata

    def read_metadata(path: str) -> pq.FileMetaData:
        read.append(Path(path).name)
        return real(path)

    monkeypatch.setattr(pq, "read_metadata", read_metadata)
    return read


def test_a_pass_parses_each_footer_once(tmp_path: Path, parsed: list[str]) -> None:
    paths = [write(tmp_path / f"{name}.parquet", 100 * index) for index, name in enumerate("ab")]
    source = open_parquet(paths)
    assert len(source.shards) == 40
    read_values = [value for shard in range(40) for value in values(source, shard)]
    assert read_values == pq.read_table(paths[0])["a"].to_pylist() + pq.read_table(paths[1])["a"].to_pylist()
    assert parsed == ["a.parquet", "b.parquet"]


def test_threads_read_what_one_would(tmp_path: Path) -> None:
    source = open_parquet([write(tmp_path / f"{index}.parquet", 100 * index) for index in range(5)])
    expected = [values(source, shard) for shard in range(len(source.shards))]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda shard: values(source, shard), range(len(source.shards)))) == expected


@pytest.mark.parametrize("anew", [False, True])
def test_a_file_that_was_written_again_is_read_again(tmp_path: Path, parsed: list[str], anew: bool) -> None:
    """Also of the same size, with its time put back."""
    path = write(tmp_path / "a.parquet")
    source = open_parquet([path])
    assert values(source, 19) == [38, 39]
    times, size = (path.stat().st_atime_ns, path.stat().st_mtime_ns), path.stat().st_size
    probe = tmp_path / "probe"
    probe.touch()
    while probe.stat().st_ctime_ns == path.stat().st_ctime_ns:  # a disk's clock may go in steps
        probe.touch()
    if anew:
        path.unlink()
    write(path, 1000)
    os.utime(path, ns=times)
    assert path.stat().st_size == size
    assert values(source, 19) == [1038, 1039]
    assert parsed == ["a.parquet"] * 2
    write(path, group=3)  # of another size
    with pytest.raises(InputError, match=r"a\.parquet changed while in use"):
        values(source, 0)


def test_a_file_that_is_replaced_as_it_is_opened_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its new bytes would be read by the old footer."""
    path = write(tmp_path / "a.parquet")
    source = open_parquet([path])
    real = pq.ParquetFile

    def replaced(*arguments: object, **options: object) -> pq.ParquetFile:
        write(tmp_path / "other.parquet", 1000).replace(path)
        return real(*arguments, **options)

    monkeypatch.setattr(pq, "ParquetFile", replaced)
    with pytest.raises(InputError, match=r"a\.parquet changed while in use"):
        values(source, 0)


def test_few_footers_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parsed: list[str]) -> None:
    monkeypatch.setattr(sources, "_footers", sources._Footers())
    source = open_parquet([write(tmp_path / f"{index}.parquet", rows=4) for index in range(100)])
    for shard in range(len(source.shards)):
        values(source, shard)
    assert len(sources._footers._kept) == 64
    assert len(parsed) == 100
    monkeypatch.setattr(sources, "_FOOTER_BYTES", 10)
    for shard in (0, 1, 2, 3):
        values(source, shard)
    assert [Path(path).name for path in sources._footers._kept] == ["1.parquet"]
    assert parsed[100:] == ["0.parquet", "1.parquet"]
