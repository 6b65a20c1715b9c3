"""Laws of every dataset: what comes equals what NumPy makes of the rows, and any state gives the same rest."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from drivetrain.data import open_files
from drivetrain.engine.ragged.rows import FlatRows
from drivetrain.engine.training.input import (
    Dataset,
    concatenate,
    from_arrays,
    from_source,
    interleave,
    mix,
    open_arrow,
)
from drivetrain.engine.training.input.columns import lists_of, rows_in
from drivetrain.engine.training.input.dataset import step_times
from drivetrain.engine.training.input.shuffling import IndexPermutation
from drivetrain.errors import InputError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

ROWS = 300


def plain(element: Mapping[str, Any]) -> dict[str, Any]:
    """A block as lists of Python."""
    return {
        name: [values.tolist() for values in lists_of(column)] if isinstance(column, FlatRows) else column.tolist()
        for name, column in element.items()
    }


def everything(dataset: Dataset, state: Any = None, most: int = 10**6) -> list[dict[str, Any]]:
    iterator = dataset.iterator(state)
    elements = [plain(element) for element, _ in zip(iterator, range(most), strict=False)]
    iterator.close()
    return elements


def numbers(dataset: Dataset, name: str = "row") -> list[Any]:
    return [value for element in everything(dataset) for value in element[name]]


def table(rows: int = ROWS, first: int = 0) -> dict[str, Any]:
    """Numbered rows: a float, a list of 0 to 6 ids, a text."""
    row = np.arange(first, first + rows)
    words = [np.arange(number % 7) + number for number in row]
    return {"row": row, "half": row / 2, "words": words, "text": [f"row {number}" for number in row]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """300 rows in three files of row groups of 40, two of Parquet and one of Arrow."""
    folder = tmp_path_factory.mktemp("rows")
    for number in range(3):
        part = pa.table({name: pa.array(column) for name, column in table(100, 100 * number).items()})
        if number < 2:
            pq.write_table(part, folder / f"{number}.parquet", row_group_size=40)
        else:
            with pa.ipc.new_file(folder / f"{number}.arrow", part.schema) as file:
                file.write_table(part, max_chunksize=40)
    return folder


@cache
def files(folder: Path) -> Dataset:
    return concatenate([
        from_source(open_files(sorted(folder.glob("*.parquet")))), from_source(open_arrow([folder / "2.arrow"]))
    ])  # fmt: skip


def double(columns: Mapping[str, Any]) -> dict[str, Any]:
    return {**columns, "double": columns["row"] * 2}


def noisy(columns: Mapping[str, Any], random: np.random.Generator) -> dict[str, Any]:
    return {**columns, "noise": random.random(len(columns["row"]))}


def third(columns: Mapping[str, Any]) -> Any:
    return columns["row"] % 3 != 0


@st.composite
def pipelines(draw: st.DrawFn) -> Callable[[Dataset], Dataset]:
    """Functions from a source to a dataset of one to five steps."""
    size = st.integers(1, 90)
    step = st.one_of(
        st.just(lambda rows: rows.map(double)),
        st.just(lambda rows: rows.map(noisy, seed=4)),
        st.just(lambda rows: rows.filter(third)),
        st.just(lambda rows: rows.select("row", "words")),
        st.just(lambda rows: rows.repeat(2)),
        st.just(lambda rows: rows.cache()),
        st.just(lambda rows: rows.cache().shuffle(5)),
        st.just(lambda rows: interleave([rows, rows.filter(third)], rows=7)),
        st.just(lambda rows: mix([rows, rows.repeat()], [0.7, 0.3], seed=2)),
        st.just(lambda rows: concatenate([rows, rows])),
        st.integers(1, 3).map(lambda count: lambda rows: rows.prefetch(count)),
        st.integers(0, 2).map(lambda index: lambda rows: rows.shard(index, 3)),
        size.map(lambda count: lambda rows: rows.batch(count, drop_remainder=count % 2 == 0)),
        size.map(lambda count: lambda rows: rows.shuffle(3, window=count)),
        size.map(
            lambda count: lambda rows: rows.bucket("words", [2, 5, 8], batch_size=count % 9 + 1, window=4, seed=6)
        ),
    )
    steps = draw(st.lists(step, min_size=1, max_size=5))

    def build(rows: Dataset) -> Dataset:
        for add in steps:
            rows = add(rows)
        batches: Dataset = batched(rows)
        return batches

    batched = draw(
        st.sampled_from(
            [
                lambda rows: rows.batch(13),
                lambda rows: rows.batch(13).pad(8, "words"),
                lambda rows: rows.pack("words", length=8, window=20).batch(3),
            ]
        )
    )
    return build


@given(build=pipelines(), data=st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_state_gives_the_same_rest(folder: Path, build: Any, data: st.DataObject) -> None:
    dataset = build(files(folder))
    iterator = dataset.iterator()
    states = [iterator.state()]
    elements = []
    for element in iterator:
        elements.append(plain(element))
        states.append(json.loads(json.dumps(iterator.state())))
        if len(elements) == 60:
            break
    iterator.close()
    for number in {0, len(elements), *data.draw(st.lists(st.integers(0, len(elements)), max_size=4))}:
        again = everything(build(files(folder)), states[number], len(elements) - number)
        assert again == elements[number:]


@pytest.mark.slow
def test_every_state_of_a_long_chain_gives_the_same_rest(folder: Path) -> None:
    def build() -> Dataset:
        mixed = mix([files(folder).shuffle(1, window=50), files(folder).filter(third).repeat(3)], [2, 1], seed=0)
        return mixed.map(noisy, seed=2).batch(7).prefetch(3)

    iterator = build().iterator()
    states, elements = [iterator.state()], []
    for element in iterator:
        elements.append(plain(element))
        states.append(iterator.state())
    assert len(elements) > 30
    for number, state in enumerate(states):
        assert everything(build(), state) == elements[number:]


def test_rows_come_as_they_are_stored(folder: Path) -> None:
    columns = table()
    rows = files(folder)
    assert rows.rows == ROWS
    assert numbers(rows) == list(range(ROWS))
    assert numbers(rows, "text") == columns["text"]
    assert numbers(rows, "words") == [words.tolist() for words in columns["words"]]
    block = next(iter(rows))
    assert (block["row"].dtype, block["half"].dtype) == (np.int32, np.float32)  # as a device computes
    in_memory = from_arrays({**columns, "words": columns["words"]})
    assert [numbers(in_memory, name) for name in columns] == [numbers(rows, name) for name in columns]


@pytest.mark.parametrize("window", [1, 30, 100, 1000])
def test_a_shuffle_gives_every_row_once_an_epoch_in_another_order(folder: Path, window: int) -> None:
    source = from_source(open_files(sorted(folder.glob("*.parquet"))))
    orders = numbers(source.shuffle(7, window=window).repeat(2))
    first, second = orders[:200], orders[200:]
    assert sorted(first) == sorted(second) == list(range(200))
    assert first != second
    assert first != numbers(source.shuffle(8, window=window))


def test_a_shuffle_by_index_is_over_all_rows_and_needs_no_window() -> None:
    rows = 10_007
    source = from_arrays({"row": np.arange(rows)})
    order = np.array(numbers(source.shuffle(3).repeat(2))).reshape(2, rows)
    np.testing.assert_array_equal(np.sort(order), np.tile(np.arange(rows), (2, 1)))
    assert (order[0] != order[1]).mean() > 0.99


@given(rows=st.integers(1, 5000), seed=st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_an_order_that_is_computed_is_a_permutation(rows: int, seed: int) -> None:
    order = IndexPermutation(rows, np.random.default_rng(seed))
    numbered = order(np.arange(rows))
    np.testing.assert_array_equal(np.sort(numbered), np.arange(rows))
    np.testing.assert_array_equal(order(np.arange(rows // 2, rows)), numbered[rows // 2 :])


def test_an_order_that_is_computed_is_random() -> None:
    rows = 3_000_017  # so many that it is not drawn as a whole
    source = from_arrays({"row": np.arange(rows, dtype=np.int32)})
    order = np.concatenate([block["row"] for block in source.shuffle(3)])
    np.testing.assert_array_equal(np.sort(order), np.arange(rows))
    # Of a random order: correlation with the stored one, the mean distance of neighbours (a third of the rows), and
    # how often a row stays where it was (once, whatever the number of rows).
    assert abs(np.corrcoef(order, np.arange(rows))[0, 1]) < 4 / np.sqrt(rows)
    assert np.abs(np.diff(order)).mean() == pytest.approx(rows / 3, rel=0.005)
    assert (order == np.arange(rows)).sum() <= 6
    cells = np.histogram2d(order, np.arange(rows), bins=30)[0]
    assert chisquare(cells.ravel()).pvalue > 0.001


def test_epochs_follow_without_a_seam_where_batch_comes_after_repeat() -> None:
    rows = from_arrays({"row": np.arange(10)})
    assert [len(each["row"]) for each in everything(rows.repeat(3).batch(4, drop_remainder=False))] == [4] * 7 + [2]
    assert [each["row"] for each in everything(rows.batch(4).repeat(2))] == 2 * [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert (rows.repeat(3).batch(4).rows, rows.batch(4).repeat(2).rows) == (28, 16)
    assert rows.batch(4).steps == 2


@pytest.mark.parametrize(
    ("fn", "seed", "says"),
    [
        (noisy, None, r"map\(noisy\) calls noisy\(.*random.*\).* with columns\n.*add seed="),
        (double, 3, r"calls double\(.*\).* with columns and random\n.*leave seed out"),
    ],
)
def test_a_mapped_function_takes_a_random_generator_where_there_is_a_seed(fn: Any, seed: int | None, says: str) -> None:
    with pytest.raises(InputError, match=says):
        from_arrays({"row": np.arange(3)}).map(fn, seed=seed)


def test_shards_are_disjoint_and_complete(folder: Path) -> None:
    parts = [numbers(files(folder).shard(index, 7)) for index in range(7)]
    assert sorted(row for part in parts for row in part) == list(range(ROWS))
    assert [len(part) for part in parts] == [files(folder).shard(index, 7).rows for index in range(7)]


def test_a_mix_keeps_each_datasets_order_and_its_weight() -> None:
    def ids(first: int) -> Dataset:
        return from_arrays({"row": np.arange(first, first + 20_000)})

    mixed = np.array(numbers(mix([ids(0), ids(100_000), ids(200_000)], [0.5, 0.3, 0.2], seed=1)))
    parts = [mixed[mixed // 100_000 == number] for number in range(3)]
    for number, part in enumerate(parts):
        np.testing.assert_array_equal(part, np.arange(len(part)) + 100_000 * number)
    assert len(parts[0]) == 20_000  # it is the first that has no more
    shares = np.array([len(part) for part in parts]) / len(mixed)
    np.testing.assert_allclose(shares, [0.5, 0.3, 0.2], atol=4 * 0.5 / np.sqrt(len(mixed)))


def test_a_mix_reads_no_block_of_what_comes_after_its_end() -> None:
    read: list[int] = []

    def counted(columns: Mapping[str, Any]) -> Mapping[str, Any]:
        read.append(len(columns["row"]))
        return columns

    row = from_arrays({"row": np.arange(10)})
    rows = numbers(mix([row, row.map(counted).repeat()], [0.5, 0.5], seed=0))
    assert len(rows) - 10 <= sum(read) < len(rows)  # ten are of the first; the last block read is of ten


def test_interleave_takes_turns() -> None:
    rows = [from_arrays({"row": np.arange(first, first + count)}) for first, count in ((0, 5), (10, 2), (20, 3))]
    assert numbers(interleave(rows)) == [0, 10, 20, 1, 11, 21, 2, 22, 3, 4]
    assert numbers(interleave(rows, rows=2)) == [0, 1, 10, 11, 20, 21, 2, 3, 22, 4]


def test_a_cache_in_a_folder_is_written_once_and_holds_every_kind_of_column(folder: Path, tmp_path: Path) -> None:
    calls = []

    def counted(columns: Mapping[str, Any]) -> Any:
        calls.append(len(columns["row"]))
        return columns

    def cached() -> Dataset:
        return files(folder).map(counted).cache(tmp_path / "cache")

    expected = everything(files(folder).batch(50))
    assert everything(cached().batch(50)) == expected
    assert sum(calls) == ROWS
    assert everything(cached().batch(50)) == expected
    assert sum(calls) == ROWS
    np.testing.assert_array_equal(np.load(tmp_path / "cache" / "0.npy"), np.arange(ROWS))  # NumPy's own reader
    shuffled = everything(cached().shuffle(1).batch(50))
    texts = [text for element in shuffled for text in element["text"]]
    assert texts == [f"row {row}" for element in shuffled for row in element["row"]]
    assert sorted(texts) == sorted(f"row {row}" for row in range(ROWS))
    with pytest.raises(InputError, match="holds the cache of another dataset"):
        next(iter(files(folder).filter(third).cache(tmp_path / "cache")))


def test_a_cache_holds_any_dtype(tmp_path: Path) -> None:
    columns = {
        "bfloat16": np.arange(6).astype(ml_dtypes.bfloat16),
        "day": np.array(["2020-01-01"] * 6, "datetime64[D]"),
        "deep": np.arange(6.0).reshape(6, *[1] * 24),
        "none": np.zeros((6, 0), np.int8),
        "big": np.arange(6).astype(">i4"),
        "fields": np.zeros(6, [(f"a long name of field {number}", "f4") for number in range(5)]),
        "surrogate": np.array(["\ud800"] * 6, object),
    }
    (block,) = from_arrays(columns).cache(tmp_path / "cache")
    for name, column in columns.items():
        assert block[name].dtype == column.dtype, name
        assert np.array_equal(block[name], column), name
    with pytest.raises(InputError, match="values of int"):
        everything(from_arrays({"x": np.array([1, 2], object)}).cache(tmp_path / "objects"))
    with pytest.raises(InputError, match="values of bytes and str"):
        everything(from_arrays({"x": np.array(["a", b"b"], object)}).cache(tmp_path / "both"))


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / "0.npy").unlink(),
        lambda folder: os.truncate(folder / "0.npy", 1030),
        lambda folder: os.truncate(folder / "0.npy", 40),
        lambda folder: np.save(folder / "0.npy", np.arange(3)),
        lambda folder: np.save(folder / "1-lengths.npy", np.arange(10)),
        lambda folder: (folder / "cache.json").write_text("{"),
        lambda folder: (folder / "cache.json").write_text("[]"),
        lambda folder: (folder / "0.npy").write_bytes(b"\x93NUMPY\x01\x00\x10\x00" + b"x" * 2000),
    ],
)  # fmt: skip
def test_a_damaged_cache_is_named(damage: Any, tmp_path: Path) -> None:
    rows = from_arrays({"row": np.arange(10), "text": [str(number) for number in range(10)]})
    everything(rows.cache(tmp_path / "cache"))
    damage(tmp_path / "cache")
    with pytest.raises(InputError, match=r"the cache .*/cache is damaged") as raised:
        everything(rows.cache(tmp_path / "cache"))
    assert raised.value.fix == "remove it; it is written again"


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="is not empty, and holds no cache"):
        everything(from_arrays({"row": np.arange(3)}).cache(tmp_path / "file"))
    with pytest.raises(InputError, match=r"the cache .*/file/below cannot be written: "):
        everything(from_arrays({"row": np.arange(3)}).cache(tmp_path / "file" / "below"))


def test_a_cache_on_a_full_disk_is_named_and_leaves_nothing(tmp_path: Path) -> None:
    """In a process that may write no larger files: its error is one of those of a full disk."""
    code = f"""
import resource, signal
import numpy as np
from drivetrain.engine.training.input import from_arrays
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
list(from_arrays({{"row": np.arange(100_000), "other": np.arange(100_000)}}).cache({str(tmp_path / "cache")!r}))
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert f"InputError: the cache {tmp_path / 'cache'} cannot be written: File too large" in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_cache_that_was_not_finished_is_written_again(folder: Path, tmp_path: Path) -> None:
    def broken(columns: Mapping[str, Any]) -> Any:
        if columns["row"][0] >= 40:
            raise ValueError("enough")
        return columns

    with pytest.raises(InputError, match="enough"):
        next(iter(files(folder).map(broken).cache(tmp_path / "cache")))
    assert not (tmp_path / "cache").exists()
    assert numbers(files(folder).cache(tmp_path / "cache")) == list(range(ROWS))


def test_what_a_killed_process_left_of_a_cache_goes_and_that_of_a_living_one_stays(tmp_path: Path) -> None:
    code = f"""
import sys
import numpy as np
from drivetrain.engine.training.input import from_arrays

def wait(columns):
    print("at work", flush=True)
    sys.stdin.read()
    return columns

list(from_arrays({{"row": np.arange(3)}}).map(wait).cache({str(tmp_path / "[cache]")!r}))
"""
    options: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with ExitStack() as ending:
        processes: list[Any] = [subprocess.Popen([sys.executable, "-c", code], **options) for _ in range(2)]
        killed, living = processes
        for process in processes:
            ending.enter_context(process)
            ending.callback(process.kill)
            assert process.stdout.readline() == b"at work\n"
        assert len(list(tmp_path.iterdir())) == 2
        killed.kill()
        killed.wait()
        rows = from_arrays({"row": np.arange(3)})
        with pytest.raises(InputError, match="enough"):
            everything(rows.map(_fail).cache(tmp_path / "[cache]"))
        assert len(list(tmp_path.iterdir())) == 1
        living.communicate()
        assert living.returncode == 0
    assert [path.name for path in tmp_path.iterdir()] == ["[cache]"]


def _fail(columns: Mapping[str, Any]) -> Any:
    raise ValueError("enough")


def test_prefetch_works_ahead_and_no_further() -> None:
    taken: list[int] = []

    def note(columns: Mapping[str, Any]) -> Any:
        taken.append(int(columns["row"][0]))
        return columns

    iterator = from_arrays({"row": np.arange(100)}).batch(1).map(note).prefetch(4).iterator()
    next(iterator)
    deadline = time.monotonic() + 20
    while len(taken) < 5 and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.1)
    assert taken == list(range(5))
    threads = threading.active_count()
    iterator.close()
    assert threading.active_count() == threads - 1


def test_an_error_in_the_prefetch_thread_is_raised_after_what_came_before() -> None:
    def broken(columns: Mapping[str, Any]) -> Any:
        if columns["row"][0] == 6:
            raise KeyError("no such thing")
        return columns

    iterator = from_arrays({"row": np.arange(10)}).batch(2).map(broken).prefetch(9).iterator()
    assert [int(next(iterator)["row"][0]) for _ in range(3)] == [0, 2, 4]
    with pytest.raises(InputError, match=r"map\(broken\) failed at rows 6 to 7 of epoch 1: .*no such thing") as caught:
        next(iterator)
    assert "test_dataset.py" in str(caught.value)


def test_a_dropped_iterator_ends_its_thread() -> None:
    before = threading.active_count()
    iterator = from_arrays({"row": np.arange(100)}).batch(1).prefetch(2).iterator()
    next(iterator)
    assert threading.active_count() == before + 1
    del iterator
    deadline = time.monotonic() + 20
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() == before


def test_a_random_map_differs_by_block_and_epoch_and_not_by_run(folder: Path) -> None:
    dataset = files(folder).batch(10).map(noisy, seed=1).repeat(2)
    noise = numbers(dataset, "noise")
    assert len(set(noise)) == 600
    assert noise == numbers(dataset, "noise")
    assert 0.4 < np.mean(noise) < 0.6


def test_steps_of_one_seed_draw_different_numbers() -> None:
    def other(columns: Mapping[str, Any], random: np.random.Generator) -> dict[str, Any]:
        return {**columns, "other": random.random(len(columns["row"]))}

    rows = from_arrays({"row": np.arange(50)}).shuffle(1, window=50).map(noisy, seed=1).map(other, seed=1)
    block = next(iter(rows))
    assert np.abs(np.corrcoef([block["row"], block["noise"], block["other"]])[np.triu_indices(3, 1)]).max() < 0.6


def test_by_row_and_filter_are_those_of_python(folder: Path) -> None:
    def of_row(row: dict[str, Any]) -> dict[str, Any]:
        return {"sum": row["words"].sum(), "again": row["words"][:2], "text": row["text"].upper()}

    mapped = everything(files(folder).filter(third).map(of_row, by_row=True).batch(1000, drop_remainder=False))[0]
    columns = table()
    kept = [row for row in range(ROWS) if row % 3]
    assert mapped["sum"] == [columns["words"][row].sum() for row in kept]
    assert mapped["again"] == [columns["words"][row][:2].tolist() for row in kept]
    assert mapped["text"] == [f"ROW {row}" for row in kept]


def test_where_time_goes_is_told_by_step(folder: Path) -> None:
    def slow(columns: Mapping[str, Any]) -> Any:
        time.sleep(0.05)
        return columns

    with step_times() as times:
        blocks = list(files(folder).batch(100).map(slow).prefetch(1).stream(0))
    assert len(blocks) == 3
    seconds = times.seconds
    assert seconds["map(slow)"] >= 0.15
    assert "prefetch" not in seconds
    assert {"batch(100)", "concatenate"} < set(seconds)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda rows: rows.map(lambda columns: None), r"map\(<lambda>\) returned nothing"),
        (lambda rows: rows.map(lambda columns: {"row": columns["row"][:1]}), r"column 'row' with 1 rows, not 40"),
        (lambda rows: rows.map(lambda columns: {"row": 3}), r"column 'row' with no rows, not 40"),
        (lambda rows: rows.filter(lambda columns: columns["row"]), r"returned int32\[40\], not bool\[40\]"),
        (lambda rows: rows.select("rwo"), "there is no column 'rwo'"),
        (lambda rows: rows.batch(0), "batches of 0"),
        (lambda rows: rows.shuffle(0), r"cannot be reached by number.*\n.*window=100_000"),
        (lambda rows: rows.shuffle(-1, window=3), "seed is -1"),
        (lambda rows: rows.shard(3, 3), "shard 3 of 3"),
        (lambda rows: rows.pad(3, "words").batch(100), "a row of column 'words' has 6 values, more than 3"),
        (lambda rows: rows.pad(3, "half"), "column 'half' has no lists"),
        (lambda rows: rows.pack("words", length=3), "a sequence has 6 values, more than 3"),
        (lambda rows: rows.bucket("words", [2, 4], batch_size=2, window=9, seed=0), "more than the last boundary, 4"),
        (lambda rows: rows.filter(lambda columns: columns["row"] < 0).repeat(), "has no rows to repeat"),
        (lambda rows: mix([rows], [1, 2], seed=0), "1 datasets and 2 weights"),
        (lambda rows: mix([rows, rows], [1, 0], seed=0), "a weight is 0"),
        (lambda rows: mix([rows, rows], [1, float("nan")], seed=0), "a weight is nan"),
        (lambda rows: mix([rows], [1], seed=-1), "seed is -1"),
        (lambda rows: rows.map(noisy, seed=-1), "seed is -1"),
        (lambda rows: rows.shuffle(1.5, window=3), "seed is 1.5"),
        (lambda rows: rows.bucket("words", [9], batch_size=2, window=9, seed=-1), "seed is -1"),
        (lambda rows: rows.map(lambda row: None, by_row=True), "returned a NoneType for a row"),
        (lambda rows: rows.map(lambda row: dict([*row.items()][: 1 + row["row"]]), by_row=True), "and row for the f"),
        (lambda rows: rows.map(lambda row: {"x": "a" if row["row"] else 1}, by_row=True), "values of int and str"),
        (lambda rows: rows.map(lambda c: {**c, "words_length": c["row"]}).pad(9), "adds a column 'words_length'"),
        (lambda rows: rows.map(lambda c: {"positions": c["words"]}).pack("positions", length=9), "adds a column 'pos"),
        (lambda rows: rows.pad(9, value=0.5), "lists of int32 cannot be filled up with 0.5"),
        (lambda rows: rows.pad(9, value=float("nan")), "lists of int32 cannot be filled up with nan"),
        (lambda rows: rows.pad(9, value=2**31), "lists of int32 cannot be filled up with 2147483648"),
        (lambda rows: rows.map(double, workers=-1), "-1 workers"),
        (lambda rows: concatenate([rows, rows.select("row")]).batch(301), "do not fit together: column 'half'"),
    ],
)  # fmt: skip
def test_mistakes_are_named(folder: Path, build: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        everything(build(from_source(open_files(sorted(folder.glob("*.parquet"))))))


def test_a_state_of_other_steps_is_refused(folder: Path) -> None:
    iterator = files(folder).batch(10).iterator()
    next(iterator)
    with pytest.raises(InputError, match=r"(?s)the state is of another dataset: .*batch\(10\), here .*batch\(11\)"):
        files(folder).batch(11).iterator(iterator.state())


def numbered(columns: Mapping[str, Any], first: int) -> dict[str, Any]:
    return {**columns, "row": columns["row"] + first}


def test_a_state_or_a_cache_of_other_settings_is_refused(tmp_path: Path) -> None:
    rows = from_arrays({"row": np.arange(5)})
    by = [rows.map(partial(numbered, first=first)) for first in (1, 2)]
    with pytest.raises(InputError, match=r"(?s)another dataset: .*numbered\(first=1\).*numbered\(first=2\)"):
        by[1].iterator(by[0].iterator().state())
    assert numbers(by[0].cache(tmp_path / "cache")) == [1, 2, 3, 4, 5]
    with pytest.raises(InputError, match="the cache of another dataset"):
        numbers(by[1].cache(tmp_path / "cache"))
    # What another process spells otherwise is no part of it: there the state would be refused.
    assert str(rows.map(partial(dict, first=object()))).endswith("map(dict(first=object))")


def test_a_function_that_writes_into_its_columns_does_not_change_the_next_epoch() -> None:
    def add_there(columns: Mapping[str, Any]) -> Any:
        columns["row"][:] += 1
        return columns

    array = np.arange(5)
    for rows in (from_arrays({"row": array}), from_arrays({"row": array}).cache()):
        with pytest.raises(InputError, match="read-only"):
            numbers(rows.map(add_there).repeat(2))
    assert array.tolist() == [0, 1, 2, 3, 4]


def parts(state: Any, path: tuple[int, ...] = ()) -> list[tuple[int, ...]]:
    """Where each part of a state stands, the state itself first."""
    below = enumerate(state) if isinstance(state, list) else ()
    return [path, *(each for at, part in below for each in parts(part, (*path, at)))]


@given(build=pipelines(), data=st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_state_that_a_person_changed_is_refused_or_gives_rows(folder: Path, build: Any, data: st.DataObject) -> None:
    """It neither hangs nor raises what says nothing; rows that were never there do not come."""
    iterator = build(files(folder)).iterator()
    for _ in range(data.draw(st.integers(0, 8))):
        next(iterator, None)
    state = json.loads(json.dumps(iterator.state()))
    iterator.close()
    *above, last = data.draw(st.sampled_from([("at", *path) for path in parts(state["at"])]))
    whole = state
    for key in above:
        whole = whole[key]
    whole[last] = data.draw(st.sampled_from([None, -1, 3, 10**6, 2.5, "2", True, [], [0], {}, [None, -3], [7, 7, 7]]))
    elements: list[Any] = []
    with suppress(InputError):
        elements = everything(build(files(folder)), state, most=50)
    assert {row for element in elements for row in element.get("row", ())} <= set(range(ROWS))


@pytest.mark.parametrize("state", [[], "x", 5, {}, {"dataset": "arrays(3 rows: row)"}])
def test_what_is_no_state_is_refused(state: Any) -> None:
    with pytest.raises(InputError, match=r"no dataset is ever at the state"):
        from_arrays({"row": np.arange(3)}).iterator(state)


def test_weights_of_any_size_count_by_their_shares() -> None:
    several = [from_arrays({"row": np.full(100, number)}).repeat() for number in range(2)]
    assert 1800 < sum(everything(mix(several, [1e308, 1e308], seed=0), most=1)[0]["row"]) < 2300


def test_lists_stay_lists_where_a_block_has_equally_long_ones() -> None:
    rows = from_arrays({"words": [[1, 2], [3], [4, 5, 6]]}).shuffle(0, window=1)
    whole = everything(rows.map(dict, by_row=True).batch(3))[0]
    assert sorted(whole["words"]) == [[1, 2], [3], [4, 5, 6]]


def test_texts_of_numpy_fit_together_whatever_their_length() -> None:
    several = [from_arrays({"text": np.array(texts)}) for texts in (["a", "b"], ["longer", ""])]
    assert everything(concatenate(several).batch(4)) == [{"text": ["a", "b", "longer", ""]}]


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pa.array([1.0, None]), "'x' has 1 missing values"),
        (pa.array(["a", None]), "column 'x' has no value in row 1 of bad.parquet"),
        (pa.array([1, 2**40]), "do not fit int32"),
        (pa.array([[1], [None]]), "missing value inside the list of row 1"),
    ],
)
def test_a_value_that_no_device_takes_is_named_with_its_file(tmp_path: Path, column: pa.Array, message: str) -> None:
    pq.write_table(pa.table({"x": column}), tmp_path / "bad.parquet")
    with pytest.raises(InputError, match=message) as caught:
        next(iter(from_source(open_files([tmp_path / "bad.parquet"]))))
    assert "bad.parquet" in str(caught.value)


def test_block_boundaries_make_no_difference(folder: Path) -> None:
    """The same rows in blocks of other sizes: what steps regroup is equal."""
    for build in (
        lambda rows: rows.shuffle(1, window=33).batch(10),
        lambda rows: rows.shard(1, 4).batch(10),
        lambda rows: mix([rows, rows.filter(third)], [1, 1], seed=3).batch(10),
        lambda rows: rows.pack("words", length=9, window=30).batch(4),
    ):
        whole = from_arrays(table())
        assert everything(build(whole)) == everything(build(whole.batch(7, drop_remainder=False)))
        assert everything(build(whole)) == everything(build(files(folder)))
    assert rows_in({}) == 0


@pytest.mark.slow
def test_memory_is_bounded_by_what_is_shuffled_together(tmp_path: Path) -> None:
    """480 MB of rows pass through windows of 48 MB in a process that may grow by 250 MB."""
    random = np.random.default_rng(0)
    part = pa.table({f"x{number}": random.random(1_000_000, dtype=np.float32) for number in range(12)})
    for number in range(10):
        pq.write_table(part, tmp_path / f"{number}.parquet", row_group_size=100_000, use_dictionary=False)
    script = (
        "import resource, sys\n"
        "from pathlib import Path\n"
        "from drivetrain.data import open_files\n"
        "from drivetrain.engine.training.input import from_source\n"
        "rows = from_source(open_files(sorted(Path(sys.argv[1]).glob('*.parquet'))))\n"
        "batches = rows.shuffle(0, window=1_000_000).batch(4096).prefetch(2)\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "count = sum(len(batch['x0']) for batch in batches)\n"
        "print(count, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, tmp_path], capture_output=True, text=True, check=True, timeout=250
    )
    count, grown = map(int, done.stdout.split())
    assert count == 10_000_000 // 4096 * 4096
    assert grown < 250  # MB


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
@pytest.mark.parametrize("other", [{"row": []}, {"row": range(20)}, {"row": range(41)}, {"x": range(40)}])
def test_a_file_that_changes_between_two_epochs_is_named(tmp_path: Path, kind: str, other: dict[str, Any]) -> None:
    path = tmp_path / f"a.{kind}"

    def write(columns: dict[str, Any]) -> None:
        table = pa.table({name: pa.array(column, pa.int64()) for name, column in columns.items()})
        if kind == "parquet":
            pq.write_table(table, path, row_group_size=30)
        else:
            with pa.ipc.new_file(path, table.schema) as file:
                file.write_table(table, max_chunksize=30)

    write({"row": range(40)})
    iterator = iter(from_source(open_files([path]) if kind == "parquet" else open_arrow([path])).batch(10).repeat(2))
    for _ in range(4):
        next(iterator)
    write(other)
    with pytest.raises(InputError, match=rf"a\.{kind} changed while in use"):
        list(iterator)
