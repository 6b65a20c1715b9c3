"""The local executor: the fixed tree, parts by shard and split, cancellation, and what is left after a failure."""

import random
import subprocess
import sys
import threading
from pathlib import Path
from queue import Empty

import numpy as np
import passes  # type: ignore[import-not-found]  # conftest puts this folder on the path
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from drivetrain.data import LocalExecutor, Manifest, Source, executor, open_examples, open_parquet, sinks, splits
from drivetrain.data.tree import MergeTree
from drivetrain.digest import digest_tree
from drivetrain.errors import Canceled, DrivetrainError, InputError


@pytest.fixture
def source(tmp_path: Path) -> Source:
    rows = 40_000
    table = pa.table(
        {
            "a": np.arange(rows),
            "s": pa.array([None if i % 11 == 0 else str(i % 9) for i in range(rows)]).dictionary_encode(),
        }
    )
    pq.write_table(table, tmp_path / "in.parquet", row_group_size=3_100)
    return open_parquet([tmp_path / "in.parquet"])


def tree_of(leaves: list[str]) -> str:
    """The one tree, by its definition: level by level, siblings, the last one alone if it has none."""
    while len(leaves) > 1:
        pairs = [leaves[i : i + 2] for i in range(0, len(leaves), 2)]
        leaves = [f"({pair[0]}{pair[1]})" if len(pair) == 2 else pair[0] for pair in pairs]
    return leaves[0]


@pytest.mark.parametrize("leaves", [1, 2, 3, 5, 8, 13, 37])
def test_any_arrival_order_and_grouping_gives_the_one_tree(leaves: int) -> None:
    names = [f"{index:x}," for index in range(leaves)]
    expected = tree_of(names)
    shuffle = random.Random(leaves)

    def merge(left: str, right: str) -> str:
        return f"({left}{right})"

    for _ in range(40):
        groups = [MergeTree(leaves, merge) for _ in range(shuffle.randint(1, 4))]
        for index in shuffle.sample(range(leaves), leaves):
            shuffle.choice(groups).put(0, index, names[index])
        pieces = [piece for group in groups for piece in group.pieces()]
        shuffle.shuffle(pieces)
        root = MergeTree(leaves, merge)
        for piece in pieces:
            root.put(*piece)
        assert root.root() == expected
        assert len(list(root.pieces())) == 1


def test_leaves_in_order_leave_few_waiting() -> None:
    tree = MergeTree(1000, lambda left, right: left + right)
    for index in range(1000):
        tree.put(0, index, 1)
        assert len(list(tree.pieces())) <= 10
    assert tree.root() == 1000


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_states_do_not_depend_on_the_threads(source: Source, threads: int) -> None:
    seen = LocalExecutor(threads).combine(source, passes.Trace, passes.Double())
    assert seen.to_bytes() == LocalExecutor(1).combine(source, passes.Trace, passes.Double()).to_bytes()
    assert seen.data.count(b"(") >= len(source.shards) - 1


def test_no_shards_give_an_empty_state(source: Source) -> None:
    nothing = type(source)((), source.schema)
    assert LocalExecutor().combine(nothing, passes.Trace).to_bytes() == b""
    with pytest.raises(InputError, match="no shards"):
        LocalExecutor().map(nothing, None, {})


def test_map_writes_one_part_per_shard_and_split(source: Source, tmp_path: Path) -> None:
    content = tmp_path / "content"
    manifest = LocalExecutor().map(source, None, sinks(content, ["even", "odd"]), route=passes.Odd())
    manifest.write(content, span=3)
    assert splits(content) == {"even": 20_000, "odd": 20_000}
    assert list(splits(content)) == ["even", "odd"]
    read = Manifest.read(content)
    assert read.span == 3
    assert [part.path for part in read.parts("odd")] == [
        f"split=odd/part-{index:05d}.parquet" for index in range(len(source.shards))
    ]
    for name, parity in (("even", 0), ("odd", 1)):
        column = pq.read_table(content / f"split={name}").column("a").to_numpy()
        assert np.array_equal(column, np.arange(parity, 40_000, 2))
    opened = open_examples(content, "even", ["s"])
    assert opened.schema == pa.schema([("s", pa.string())])
    assert opened.rows == 20_000
    files = sorted(path.name for path in content.rglob("*") if path.is_file())
    assert len(files) == 2 * len(source.shards) + 1
    again = tmp_path / "again"
    LocalExecutor(1).map(source.with_dictionaries(), None, sinks(again, ["even", "odd"]), route=passes.Odd()).write(
        again, span=3
    )
    assert digest_tree(again).fingerprint == digest_tree(content).fingerprint


def test_parts_have_row_groups_of_65536_rows_in_zstd(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": np.arange(150_000)}), tmp_path / "in.parquet")
    LocalExecutor().map(open_parquet([tmp_path / "in.parquet"]), None, sinks(tmp_path / "out", ["all"]))
    with pq.ParquetFile(tmp_path / "out/split=all/part-00000.parquet") as file:
        meta = file.metadata
        assert [meta.row_group(group).num_rows for group in range(meta.num_row_groups)] == [65_536, 65_536, 18_928]
        assert meta.row_group(0).column(0).compression == "ZSTD"


def test_plain_columns_are_written_without_a_dictionary(tmp_path: Path) -> None:
    pq.write_table(pa.table({"key": ["a", "b"] * 50, "p": np.arange(100) / 7}), tmp_path / "rows.parquet")
    source = open_parquet([tmp_path / "rows.parquet"])
    for plain, encoded in (((), [True, True]), (["p"], [True, False])):
        LocalExecutor().map(source, None, sinks(tmp_path, ["all"], plain))
        with pq.ParquetFile(tmp_path / "split=all" / "part-00000.parquet") as file:
            columns = [file.metadata.row_group(0).column(number) for number in range(2)]
            assert [column.has_dictionary_page for column in columns] == encoded
            assert file.read().equals(pq.read_table(tmp_path / "rows.parquet"))


def test_map_merges_what_it_wrote_into_a_tally_along_the_tree(source: Source, tmp_path: Path) -> None:
    double, tally = passes.Double(), passes.Trace()
    LocalExecutor().map(source, double, sinks(tmp_path / "out", ["even", "odd"]), route=passes.Odd(), tally=tally)
    expected = LocalExecutor(1).combine(source, passes.Trace, double).to_bytes()
    assert tally.to_bytes() == b"(" + expected + b")"
    with pytest.raises(InputError):
        LocalExecutor().map(source, passes.Fails(), sinks(tmp_path / "fails", ["all"]), tally=tally)
    assert tally.to_bytes() == b"(" + expected + b")"


def test_map_applies_the_function(source: Source, tmp_path: Path) -> None:
    LocalExecutor().map(source, passes.Double(), sinks(tmp_path / "out", ["all"]))
    assert np.array_equal(pq.read_table(tmp_path / "out/split=all")["a"].to_numpy(), np.arange(0, 80_000, 2))


def test_cancellation_passes_through_and_stops_the_others(source: Source, tmp_path: Path) -> None:
    before = set(threading.enumerate())

    def progress(done: int, total: int | None, unit: str) -> None:
        assert (total, unit) == (40_000, "rows")
        raise Canceled("stop")

    with pytest.raises(Canceled):
        LocalExecutor().combine(source, passes.Trace, progress=progress)
    out = sinks(tmp_path / "out", ["all"])
    with pytest.raises(Canceled):
        LocalExecutor().map(source, None, out, progress=progress)
    assert set(threading.enumerate()) <= before
    assert not list((tmp_path / "out").rglob("*.tmp"))


def test_progress_ends_at_all_rows(source: Source) -> None:
    heard = []
    LocalExecutor().combine(source, passes.Trace, progress=lambda *seen: heard.append(seen))
    assert heard[-1] == (40_000, 40_000, "rows")
    assert [seen[0] for seen in heard] == sorted(seen[0] for seen in heard)


def test_a_failure_is_the_users_error_and_leaves_no_temporary_file(source: Source, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="row 7 is wrong"):
        LocalExecutor().map(source, passes.Fails(), sinks(tmp_path / "out", ["all"]))
    assert not list((tmp_path / "out").rglob("*.tmp"))


def test_any_error_of_a_function_ends_the_pass(source: Source, tmp_path: Path) -> None:
    """Also one that the executor's own waiting knows."""

    class Fails:
        def setup(self) -> None: ...

        def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
            raise Empty

    with pytest.raises(Empty):
        LocalExecutor(2).map(source, Fails(), sinks(tmp_path / "out", ["all"]))


def test_a_full_disk_is_named_and_leaves_nothing(tmp_path: Path) -> None:
    # A limit on the size of files stands in for the disk: the write fails half-way, in a process of its own.
    code = f"""
import resource, signal, sys
import numpy, pyarrow, pyarrow.parquet
from drivetrain.data import LocalExecutor, open_parquet, sinks
from drivetrain.errors import DrivetrainError
from pathlib import Path
folder = Path({str(tmp_path)!r})
table = pyarrow.table({{"a": numpy.random.default_rng(0).normal(size=200_000)}})
pyarrow.parquet.write_table(table, folder / "in.parquet")
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
try:
    LocalExecutor().map(open_parquet([folder / "in.parquet"]), None, sinks(folder / "out", ["all"]))
except DrivetrainError as error:
    print(error.message)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == f"cannot write to {tmp_path / 'out'}: File too large\n"
    assert not list((tmp_path / "out").rglob("*part*"))


def test_a_sink_that_cannot_be_made_is_named(source: Source, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file in the way")
    with pytest.raises(DrivetrainError, match=r"cannot write to .*out: Not a directory"):
        LocalExecutor().map(source, None, sinks(tmp_path / "out", ["all"]))


def test_several_sinks_need_a_route(source: Source, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="which row goes where"):
        LocalExecutor().map(source, None, sinks(tmp_path, ["a", "b"]))


def test_executors_by_name() -> None:
    assert isinstance(executor(), LocalExecutor)
    with pytest.raises(InputError, match="no executor 'spark'"):
        executor("spark")
    with pytest.raises(InputError, match="takes no options"):
        executor("local", ("--runner=X",))


def test_the_local_path_imports_no_heavy_library() -> None:
    code = (
        "import sys; from drivetrain.data import LocalExecutor, executor; executor();"
        "print([m for m in ('apache_beam', 'jax', 'great_expectations') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
