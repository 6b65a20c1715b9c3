"""The exchange: every row in exactly one bucket, rows of one key in one, the same bytes whoever does it."""

from __future__ import annotations

import decimal
import subprocess
import sys
import tempfile
from datetime import UTC, date, datetime
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import passes  # type: ignore[import-not-found]  # conftest puts this folder on the path
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from drivetrain.data import HashSplit, LocalExecutor, Source, executor, open_parquet, source_of
from drivetrain.digest import digest_tree
from drivetrain.errors import Canceled, InputError
from hypothesis import given
from hypothesis import strategies as st


def table(rows: int = 20_000) -> pa.Table:
    keys = [None if i % 13 == 0 else f"k{i * i % 97}" for i in range(rows)]
    return pa.table({"s": pa.array(keys).dictionary_encode(), "a": np.arange(rows)})


@pytest.fixture
def source(tmp_path: Path) -> Source:
    pq.write_table(table(), tmp_path / "in.parquet", row_group_size=1_700)
    return open_parquet([tmp_path / "in.parquet"])


def rows_of(source: Source) -> list[list[dict[str, Any]]]:
    return [[row for batch in source.read(shard) for row in batch.to_pylist()] for shard in range(len(source.shards))]


@pytest.mark.parametrize("buckets", [1, 7, 300])
def test_rows_of_one_key_are_in_one_bucket_in_order(source: Source, tmp_path: Path, buckets: int) -> None:
    exchanged = LocalExecutor().exchange(source.with_dictionaries(), "s", buckets, tmp_path / "out")
    by_bucket = rows_of(exchanged)
    assert [len(rows) for rows in by_bucket] == [shard.rows for shard in exchanged.shards]
    assert exchanged.rows == 20_000
    assert len(by_bucket) == buckets
    where: dict[str | None, int] = {}
    for bucket, rows in enumerate(by_bucket):
        assert all(where.setdefault(row["s"], bucket) == bucket for row in rows)
        assert [row["a"] for row in rows] == sorted(row["a"] for row in rows)
    assert sorted((row["a"], row["s"]) for rows in by_bucket for row in rows) == [
        (row["a"], row["s"]) for row in table().to_pylist()
    ]
    assert None in where


@pytest.mark.parametrize("threads", [1, 7])
def test_the_bytes_do_not_depend_on_threads_or_encodings(source: Source, tmp_path: Path, threads: int) -> None:
    for name, walk, rows_in in (
        ("a", LocalExecutor(threads), source.with_dictionaries()),
        ("b", LocalExecutor(), source),
    ):
        walk.exchange(rows_in, ["s", "a"], 5, tmp_path / name, via=passes.Double())
    assert digest_tree(tmp_path / "a") == digest_tree(tmp_path / "b")
    assert len(list((tmp_path / "a").iterdir())) == len(source.shards)


@pytest.mark.beam
def test_beam_gives_the_same_bytes(source: Source, tmp_path: Path) -> None:
    pytest.importorskip("apache_beam")
    rows_by_executor = {}
    for name in ("local", "beam"):
        exchanged = executor(name).exchange(source, "s", 5, tmp_path / name, via=passes.Double())
        rows_by_executor[name] = rows_of(exchanged)
    assert digest_tree(tmp_path / "local") == digest_tree(tmp_path / "beam")
    assert rows_by_executor["local"] == rows_by_executor["beam"]
    with pytest.raises(InputError, match="row 7 is wrong"):
        executor("beam").exchange(source, "s", 5, tmp_path / "fails", via=passes.Fails())
    assert not list((tmp_path / "fails").rglob("*shard*"))
    with pytest.raises(Canceled):
        executor("beam").exchange(source, "s", 5, tmp_path / "stops", progress=stop_at_once)
    assert not list((tmp_path / "stops").rglob("*shard*"))


def test_every_type_comes_back(tmp_path: Path) -> None:
    kinds = {
        "decimal": pa.array([decimal.Decimal("1.25"), None], pa.decimal128(9, 2)),
        "time": pa.array([datetime(2013, 6, 1, tzinfo=UTC), None], pa.timestamp("us", "Europe/Oslo")),
        "day": pa.array([date(2013, 6, 1), None]),
        "list": pa.array([[1, None, 3], []], pa.list_(pa.field("element", pa.int32()))),
        "struct": pa.array([{"x": 1.5, "y": "ü"}, None]),
        "bytes": pa.array([b"\xff\0", None]),
        "bool": pa.array([True, None]),
        "small": pa.array([-3, None], pa.int8()),
        "big": pa.array([2**64 - 1, None], pa.uint64()),
        "none": pa.nulls(2),
    }
    rows_in = source_of(pa.table(kinds))
    for key in rows_in.columns:
        exchanged = LocalExecutor().exchange(rows_in, key, 3, tmp_path / key)
        assert exchanged.schema == rows_in.schema
        assert sorted(map(repr, chain(*rows_of(exchanged)))) == sorted(map(repr, rows_of(rows_in)[0]))


@given(st.lists(st.tuples(st.one_of(st.none(), st.integers(-3, 3)), st.text(max_size=2)), min_size=1, max_size=40))
def test_several_columns_are_one_key(rows: list[tuple[int | None, str]]) -> None:
    rows_in = source_of(pa.table({"n": pa.array([n for n, _ in rows], pa.int64()), "t": [t for _, t in rows]}))
    with tempfile.TemporaryDirectory() as folder:
        exchanged = rows_of(LocalExecutor(1).exchange(rows_in, ["n", "t"], 4, Path(folder)))
    pairs = [{(row["n"], row["t"]) for row in bucket} for bucket in exchanged]
    assert sum(map(len, pairs)) == len(set(rows))
    assert sorted(map(repr, chain(*exchanged))) == sorted(repr({"n": n, "t": t}) for n, t in rows)


def test_one_key_only(tmp_path: Path) -> None:
    rows_in = source_of(pa.table({"k": np.zeros(200_000, np.int64), "a": np.arange(200_000)}))
    exchanged = LocalExecutor().exchange(rows_in, "k", 16, tmp_path)
    assert sorted(shard.rows for shard in exchanged.shards) == [0] * 15 + [200_000]
    (full,) = [index for index, shard in enumerate(exchanged.shards) if shard.rows]
    batches = list(exchanged.read(full))
    assert [batch.num_rows for batch in batches] == [65_536, 65_536, 65_536, 3_392]
    assert np.array_equal(pa.Table.from_batches(batches)["a"].to_numpy(), np.arange(200_000))


def test_rows_split_by_the_same_hash_spread_over_all_buckets(tmp_path: Path) -> None:
    # Rows that `split_by` put in one split have hashes that are equal modulo the weights.
    every = pa.table({"k": np.arange(6_000)})
    (batch,) = every.to_batches()
    train = every.filter(pa.array(HashSplit.of({"train": 2, "eval": 2}, by="k")(batch) == 0))
    exchanged = LocalExecutor().exchange(source_of(train), "k", 4, tmp_path)
    share = [shard.rows / len(train) for shard in exchanged.shards]
    assert share == pytest.approx([0.25] * 4, abs=0.05)


def stop_at_once(done: int, total: int | None, unit: str) -> None:
    raise Canceled("stop")


def test_what_stops_or_fails_leaves_nothing_but_what_was_there(source: Source, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "notes.txt").write_text("mine")
    with pytest.raises(Canceled):
        LocalExecutor().exchange(source, "s", 5, out, progress=stop_at_once)
    with pytest.raises(InputError, match="row 7 is wrong"):
        LocalExecutor().exchange(source, "s", 5, out, via=passes.Fails())
    with pytest.raises(InputError, match="no column 'x'"):
        LocalExecutor().exchange(source, ["s", "x"], 5, out)
    with pytest.raises(InputError, match="no key"):
        LocalExecutor().exchange(source, [], 5, out)
    with pytest.raises(InputError, match="0 buckets"):
        LocalExecutor().exchange(source, "s", 0, out)
    assert [path.name for path in out.iterdir()] == ["notes.txt"]


def test_a_source_without_shards(source: Source, tmp_path: Path) -> None:
    nothing = type(source)((), source.schema)
    exchanged = LocalExecutor().exchange(nothing, "s", 2, tmp_path / "out")
    assert (rows_of(exchanged), exchanged.schema) == ([[], []], source.schema)


def test_a_bucket_that_is_gone_is_named(source: Source, tmp_path: Path) -> None:
    exchanged = LocalExecutor().exchange(source, "s", 2, tmp_path / "out")
    (tmp_path / "out" / "shard-00003.arrow").unlink()
    with pytest.raises(InputError, match=r"shard-00003\.arrow cannot be read"):
        rows_of(exchanged)


def test_a_full_disk_is_named_and_leaves_nothing(tmp_path: Path) -> None:
    # A limit on the size of files stands in for the disk: the write fails half-way, in a process of its own.
    code = f"""
import resource, signal
import numpy, pyarrow
from pathlib import Path
from drivetrain.data import LocalExecutor, source_of
from drivetrain.errors import DrivetrainError
source = source_of(pyarrow.table({{"a": numpy.random.default_rng(0).normal(size=200_000)}}))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
try:
    LocalExecutor().exchange(source, "a", 8, Path({str(tmp_path)!r}) / "out")
except DrivetrainError as error:
    print(error.message)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == f"cannot write to {tmp_path / 'out'}: File too large\n"
    assert not list((tmp_path / "out").iterdir())
