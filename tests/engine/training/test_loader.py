"""Laws of the loader: every row once, any batch reachable, bounded memory, and clear errors."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from types import ModuleType

import numpy as np
import pyarrow as pa
import pytest
from drivetrain.engine.graphs.graph import FieldSpec
from drivetrain.engine.training.loader import Loader
from drivetrain.errors import InputError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

ROW = {"row": FieldSpec("int64")}


@pytest.fixture(scope="module")
def numbered(tmp_path_factory: pytest.TempPathFactory, problem: ModuleType) -> Path:
    """1,003 numbered rows in 3 files of row groups of 100."""
    table = pa.table({"row": np.arange(1003), "double": np.arange(1003) * 2.0})
    made: Path = problem.write(tmp_path_factory.mktemp("numbered"), {"train": table}, parts=3, group=100)
    return made


def rows_of(loader: Loader, epoch: int, start: int = 0) -> list[np.ndarray]:
    return [batch["row"] for batch in loader.epoch(epoch, start)]


windows = st.sampled_from([1, 600, 1200, 3000, 10**6])  # bytes: one group, one or two, three, six, all


@given(batch_size=st.integers(1, 1003), seed=st.integers(0, 2**40), epoch=st.integers(0, 50), window=windows)
@settings(max_examples=60, deadline=None)
def test_every_row_at_most_once_and_only_the_remainder_left_out(
    numbered: Path, batch_size: int, seed: int, epoch: int, window: int
) -> None:
    loader = Loader(numbered, "train", ROW, batch_size=batch_size, seed=seed, window_bytes=window)
    batches = rows_of(loader, epoch)
    assert len(batches) == loader.batches == 1003 // batch_size
    assert all(batch.shape == (batch_size,) and batch.dtype == np.int32 for batch in batches)
    rows = np.concatenate(batches)
    assert len(np.unique(rows)) == len(rows)
    assert rows.min() >= 0
    assert rows.max() < 1003


@pytest.mark.slow
@given(data=st.data(), batch_size=st.integers(1, 300), seed=st.integers(0, 9), window=windows, depth=st.integers(1, 40))
@settings(max_examples=60, deadline=None)
def test_any_batch_is_reached_without_those_before(
    numbered: Path, data: st.DataObject, batch_size: int, seed: int, window: int, depth: int
) -> None:
    def loader() -> Loader:
        return Loader(numbered, "train", ROW, batch_size=batch_size, seed=seed, window_bytes=window)

    whole = rows_of(loader(), 1)
    start = data.draw(st.integers(0, len(whole)))
    np.testing.assert_array_equal(rows_of(loader(), 1, start), whole[start:])
    stacked = [batch for stack, count in loader().stacks(1, start, depth) for batch in stack["row"][:count]]
    np.testing.assert_array_equal(stacked, whole[start:])
    assert all(stack["row"].shape == (depth, batch_size) for stack, _ in loader().stacks(1, start, depth))


def test_columns_stay_together(numbered: Path) -> None:
    specs = {**ROW, "double": FieldSpec("float64")}
    for batch in Loader(numbered, "train", specs, batch_size=64, window_bytes=2000).epoch(0):
        assert batch["double"].dtype == np.float32
        np.testing.assert_array_equal(batch["double"], batch["row"] * 2.0)


def test_order_depends_on_seed_and_epoch_and_mixes(numbered: Path) -> None:
    def order(seed: int, epoch: int) -> np.ndarray:
        return np.concatenate(rows_of(Loader(numbered, "train", ROW, batch_size=1, seed=seed), epoch))

    first = order(0, 0)
    assert not np.array_equal(first, order(0, 1))
    assert not np.array_equal(first, order(1, 0))
    assert abs(np.corrcoef(first, np.arange(1003))[0, 1]) < 0.12  # 4 standard errors


def test_without_shuffle_the_stored_order(numbered: Path) -> None:
    loader = Loader(numbered, "train", ROW, batch_size=17, shuffle=False, window_bytes=1000)
    np.testing.assert_array_equal(np.concatenate(rows_of(loader, 3)), np.arange(1003 // 17 * 17))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from([(2,), (3, 4), ()]))
def test_shapes(problem: ModuleType, tmp_path_factory: pytest.TempPathFactory, shape: tuple[int, ...]) -> None:
    values = np.arange(10 * int(np.prod(shape)), dtype=np.float32).reshape(10, *shape)
    column = pa.array(values.reshape(-1)) if shape else pa.array(values)
    for _ in shape[:1]:
        column = pa.FixedSizeListArray.from_arrays(column, int(np.prod(shape)))
    content = problem.write(tmp_path_factory.mktemp("shapes"), {"train": pa.table({"x": column})})
    loader = Loader(content, "train", {"x": FieldSpec("float32", shape)}, batch_size=5, shuffle=False)
    np.testing.assert_array_equal(np.concatenate([b["x"] for b in loader.epoch(0)]), values)


@pytest.mark.parametrize(
    ("column", "spec", "message"),
    [
        (pa.array([1.0, None, 2.0]), FieldSpec("float32"), "'x' has 1 missing values"),
        (pa.array(["a", "b", "c"]), FieldSpec("int32"), "'x' is of type string"),
        (pa.array([1, 2, 2**40]), FieldSpec("int64"), "do not fit int32"),
        (pa.array([1.0, 2.0, 3.0]), FieldSpec("float32", (2,)), "3 values in 3 rows"),
        (pa.array([[1.0], [2.0, 3.0, 4.0], [5.0, 6.0]]), FieldSpec("float32", (2,)), "6 values in 3 rows"),
        (pa.array([{"a": 1}]), FieldSpec("float32"), "'x' is of type struct"),
    ],
)
def test_a_column_that_cannot_be_trained_on(
    problem: ModuleType, tmp_path: Path, column: pa.Array, spec: FieldSpec, message: str
) -> None:
    content = problem.write(tmp_path, {"train": pa.table({"x": column})}, parts=1)
    with pytest.raises(InputError, match=message):
        list(Loader(content, "train", {"x": spec}, batch_size=1).epoch(0))


def test_wrong_names_and_sizes(numbered: Path) -> None:
    with pytest.raises(InputError, match="split 'test'"):
        Loader(numbered, "test", ROW, batch_size=1)
    with pytest.raises(InputError, match="'nope'"):
        Loader(numbered, "train", {"nope": FieldSpec("int32")}, batch_size=1)
    with pytest.raises(InputError, match=r"1003 rows, fewer than one batch of 2000\n.*1003 or less"):
        Loader(numbered, "train", ROW, batch_size=2000)
    with pytest.raises(InputError, match="seed is -1"):
        Loader(numbered, "train", ROW, batch_size=1, seed=-1)
    with pytest.raises(InputError, match="batch_size is 0"):
        Loader(numbered, "train", ROW, batch_size=0)


@pytest.mark.slow
def test_memory_is_bounded_by_the_window(problem: ModuleType, tmp_path: Path) -> None:
    """320 MB of rows stream through a window of 16 MB in a process that may grow by 160 MB."""
    random = np.random.default_rng(0)
    names = [f"x{number}" for number in range(20)]
    table = pa.table({name: random.random(400_000, dtype=np.float32) for name in names})
    content = problem.write(tmp_path, {"train": pa.concat_tables([table] * 10)}, parts=5)
    script = textwrap.dedent(
        f"""
        import re
        from pathlib import Path
        from drivetrain.engine.graphs.graph import FieldSpec
        from drivetrain.engine.training.loader import Loader
        def peak():  # in KiB; what getrusage tells begins with the peak of the process that started this one
            return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])
        specs = {{f"x{{n}}": FieldSpec("float32") for n in range(20)}}
        loader = Loader(Path({str(content)!r}), "train", specs, batch_size=4096, window_bytes=16 * 2**20)
        before = peak()
        rows = sum(len(batch["x0"]) for batch in loader.epoch(0))
        print(rows, (peak() - before) // 1024)
        """
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=200)
    rows, grown = map(int, done.stdout.split())
    assert rows == 4_000_000 // 4096 * 4096
    assert grown < 160, grown  # MB
