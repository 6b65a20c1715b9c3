"""States of analyzers by span: a new span reads only itself, a change only what it changes, and no bit differs."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from drivetrain import data
from drivetrain.engine import (
    AnalyzerCache,
    Bundle,
    Span,
    analyze,
    custom_ops,
    ops,
)
from hypothesis import given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.engine

READ: Counter[str] = Counter()


@dataclass(frozen=True)
class CountedShard:
    """A shard that notes how many rows were read of it."""

    shard: Any

    @property
    def path(self) -> str:
        return str(self.shard.path)

    @property
    def rows(self) -> int:
        return int(self.shard.rows)

    def read(self, schema: pa.Schema, batch_rows: int, dictionaries: bool) -> Iterator[pa.RecordBatch]:
        for batch in self.shard.read(schema, batch_rows, dictionaries):
            READ[Path(self.path).stem] += batch.num_rows
            yield batch


def table(seed: int, rows: int = 40) -> pa.Table:
    rng = np.random.default_rng(seed)
    words = np.array(["a", "b", "c", f"w{seed}", None])[rng.integers(0, 5, rows)]
    return pa.table({
        "x": pa.array(rng.lognormal(size=rows), mask=rng.random(rows) < 0.2), "y": rng.normal(size=rows),
        "n": rng.integers(-5, 9, rows), "w": pa.array(words.tolist(), pa.string()),
    })  # fmt: skip


def span(folder: Path, name: str, rows: pa.Table) -> Span:
    path = folder / f"{name}.parquet"
    pq.write_table(rows, path, row_group_size=16)
    source = data.open_parquet([path])
    counted = replace(source, shards=tuple(CountedShard(shard) for shard in source.shards))
    return Span(counted, hashlib.sha256(path.read_bytes()).hexdigest())


def days(folder: Path, count: int) -> list[Span]:
    return [span(folder, f"day{day}", table(day)) for day in range(count)]


def run(fn: Any, spans: list[Span], cache: AnalyzerCache | None) -> tuple[Bundle, dict[str, int]]:
    """The bundle, and how many rows of each span were read."""
    READ.clear()
    return analyze(fn, spans, data.LocalExecutor(2), cache=cache), dict(READ)


def same(first: Bundle, second: Bundle) -> bool:
    """Whether two bundles are equal to the bit, programs, weights and vocabularies."""
    return first.to_files() == second.to_files()


def preprocess(c: Any) -> Any:
    return {
        "z": ops.z_score(c["x"]), "log": jnp.log1p(c["x"]) - ops.mean(jnp.log1p(c["x"])),
        "bucket": ops.bucketize(c["y"], 4), "word": ops.vocabulary(ops.upper(c["w"])),
        "by": ops.z_score_per_key(c["y"], c["w"]), "cov": ops.covariance(jnp.stack([c["x"], c["y"]], -1)),
        "terms": ops.tfidf(ops.vocabulary(ops.split(c["w"], regex="")), 9)[1],
    }  # fmt: skip


def one_phase(c: Any) -> Any:
    columns = preprocess(c)
    return {name: columns[name] for name in ("z", "log", "bucket", "word", "by", "cov")}


@pytest.mark.slow
def test_a_new_span_reads_only_itself_and_no_bit_differs(tmp_path: Path) -> None:
    every = days(tmp_path, 4)
    without, read = run(one_phase, every, None)
    assert read == {f"day{day}": 40 for day in range(4)}
    for count in (1, 2, 3, 4):
        cache = AnalyzerCache(tmp_path / "cache")
        bundle, read = run(one_phase, every[:count], cache)
        assert read == {f"day{count - 1}": 40}
        assert cache.used == (count - 1) * cache.added
    assert same(bundle, without)
    again, read = run(one_phase, every, AnalyzerCache(tmp_path / "cache"))
    assert read == {}
    assert same(again, without)
    window, read = run(one_phase, every[1:], AnalyzerCache(tmp_path / "cache"))
    assert read == {}
    assert same(window, run(one_phase, every[1:], None)[0])


def test_one_pass_over_everything_gives_the_same(tmp_path: Path) -> None:
    every = days(tmp_path, 3)
    whole = data.open_parquet([tmp_path / f"day{day}.parquet" for day in range(3)])
    spans, _ = run(preprocess, every, AnalyzerCache(tmp_path / "cache"))
    assert same(spans, analyze(preprocess, whole, data.LocalExecutor()))


@pytest.mark.slow
@given(st.lists(st.integers(0, 30), min_size=1, max_size=6), st.integers(0, 2**32))
@settings(max_examples=10, deadline=None)
def test_however_the_rows_are_divided(tmp_path_factory: pytest.TempPathFactory, sizes: list[int], seed: int) -> None:
    folder = tmp_path_factory.mktemp("spans")
    rows = table(seed, sum(sizes))
    starts = np.cumsum([0, *sizes])
    spans = [span(folder, str(i), rows.slice(starts[i], size)) for i, size in enumerate(sizes)]
    cache = folder / "cache"
    cold, _ = run(fewer, spans, AnalyzerCache(cache))
    warm, read = run(fewer, spans, AnalyzerCache(cache))
    whole, _ = run(fewer, [span(folder, "whole", rows)], None)
    assert read == {}
    assert same(cold, warm)
    assert same(cold, whole)


def fewer(c: Any) -> Any:
    return {"z": ops.z_score(c["x"]), "bucket": ops.bucketize(c["y"], 4), "word": ops.vocabulary(ops.upper(c["w"]))}


def changed(**others: Callable[[Any], Any]) -> Any:
    return lambda c: {**one_phase(c), **{name: make(c) for name, make in others.items()}}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("other", "made"),
    [
        (changed(log=lambda c: c["x"] * 2 + 1), 0),  # an output that no analyzer reads
        (changed(more=lambda c: ops.median(c["n"])), 1),
        (changed(bucket=lambda c: ops.bucketize(c["y"], 7)), 0),  # the same state, read otherwise
        (changed(log=lambda c: jnp.sqrt(c["x"]) - ops.mean(jnp.sqrt(c["x"]))), 1),
        (changed(word=lambda c: ops.vocabulary(ops.lower(c["w"]))), 1),
        (changed(word=lambda c: ops.vocabulary(ops.upper(c["w"]), top_k=2)), 0),
    ],
)
def test_a_change_of_the_function_analyses_what_it_changes(tmp_path: Path, other: Any, made: int) -> None:
    every = days(tmp_path, 2)
    first = AnalyzerCache(tmp_path / "cache")
    run(one_phase, every, first)
    second = AnalyzerCache(tmp_path / "cache")
    bundle, read = run(other, every, second)
    assert second.added == made * len(every)
    assert read == ({"day0": 40, "day1": 40} if made else {})
    assert same(bundle, run(other, every, None)[0])


def test_lines_and_names_of_outputs_are_no_change(tmp_path: Path) -> None:
    every = days(tmp_path, 2)
    run(fewer, every, AnalyzerCache(tmp_path / "cache"))

    def renamed(columns: Any) -> Any:
        # The same analyzers in another order, under other names, on other lines.
        found = {"c": ops.vocabulary(ops.upper(columns["w"]), name="words"), "b": ops.bucketize(columns["y"], 4)}
        return {**found, "a": ops.z_score(columns["x"])}

    _, read = run(renamed, every, AnalyzerCache(tmp_path / "cache"))
    assert read == {}


def chained(c: Any) -> Any:
    # The second phase reads the median of the first.
    return {"y": ops.z_score(jnp.abs(c["n"] - ops.median(ops.cast(c["n"], "float32"))))}


def test_what_reads_earlier_results_is_analysed_again_when_these_change(tmp_path: Path) -> None:
    like = table(0).set_column(2, "n", pa.array([1, 2, 3, 4] * 10))
    turned = table(1).set_column(2, "n", pa.array([4, 3, 2, 1] * 10))
    other = table(2).set_column(2, "n", pa.array([9] * 40))
    first, second, third = (span(tmp_path, name, rows) for name, rows in (("a", like), ("b", turned), ("c", other)))
    cache = tmp_path / "cache"
    _, read = run(chained, [first], AnalyzerCache(cache))
    assert read == {"a": 80}  # two phases
    kept, read = run(chained, [first, second], AnalyzerCache(cache))
    assert read == {"b": 80}  # it leaves the median as it is, so that of the first span nothing is new
    moved, read = run(chained, [first, third], AnalyzerCache(cache))
    assert read == {"a": 40, "c": 80}  # the median moved: of the first span only the second phase is new
    assert same(moved, run(chained, [first, third], None)[0])
    assert same(kept, run(chained, [first, second], None)[0])


def damage(path: Path, kind: str) -> None:
    raw = bytearray(path.read_bytes())
    if kind == "cut":
        raw = raw[:-7]
    elif kind == "foreign":
        raw = bytearray(b"PK\x03\x04 something else entirely")
    elif kind == "empty":
        raw = bytearray()
    else:
        raw[{"first": 25, "middle": len(raw) // 2, "last": len(raw) - 1}[kind]] ^= 1
    path.write_bytes(bytes(raw))


@pytest.mark.parametrize("kind", ["cut", "foreign", "empty", "first", "middle", "last"])
def test_a_damaged_cache_is_noticed_and_mended(tmp_path: Path, kind: str) -> None:
    every = days(tmp_path, 2)
    cache = tmp_path / "cache"
    wanted, _ = run(fewer, every, AnalyzerCache(cache))
    damage(cache / f"{every[1].digest}.states", kind)
    noticed = AnalyzerCache(cache)
    bundle, read = run(fewer, every, noticed)
    assert same(bundle, wanted)
    assert read == {"day1": 40}
    assert noticed.added > 0
    assert noticed.damaged > 0 or kind == "first"  # a key of another state is nothing to notice
    mended = AnalyzerCache(cache)
    _, read = run(fewer, every, mended)
    assert (read, mended.damaged) == ({}, 0)


@pytest.mark.slow
def test_every_flipped_bit_and_every_length_is_survived(tmp_path: Path) -> None:
    every = days(tmp_path, 1)
    cache = tmp_path / "cache"
    wanted, _ = run(fewer, every, AnalyzerCache(cache))
    path = cache / f"{every[0].digest}.states"
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    for place in rng.integers(0, len(whole), 12):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << int(rng.integers(8))]) + whole[place + 1 :])
        assert same(run(fewer, every, AnalyzerCache(cache))[0], wanted)
        path.write_bytes(whole[:place])
        assert same(run(fewer, every, AnalyzerCache(cache))[0], wanted)
        assert path.read_bytes() == whole


def test_states_move_from_an_earlier_folder_and_only_those_used(tmp_path: Path) -> None:
    every = days(tmp_path, 3)
    run(one_phase, every, AnalyzerCache(tmp_path / "old"))
    cache = AnalyzerCache(tmp_path / "new", earlier=tmp_path / "old")
    _, read = run(fewer, every[1:], cache)
    assert read == {}
    assert sorted(path.stem for path in (tmp_path / "new").iterdir()) == sorted(one.digest for one in every[1:])
    assert not b"".join(path.read_bytes() for path in (tmp_path / "new").iterdir()).count(b"\x80\x04\x95")  # no pickle
    _, read = run(fewer, every[1:], AnalyzerCache(tmp_path / "new"))
    assert read == {}
    old = sum(path.stat().st_size for path in (tmp_path / "old").iterdir())
    assert 0 < sum(path.stat().st_size for path in (tmp_path / "new").iterdir()) < old


class Largest:
    """A user's analyzer."""

    def create(self) -> Any:
        return np.array([-np.inf])

    def add(self, state: Any, x: Any) -> Any:
        return np.nanmax([state, [np.nanmax(x)]], axis=0)

    def merge(self, left: Any, right: Any) -> Any:
        return np.maximum(left, right)

    def extract(self, state: Any) -> Any:
        return state[0]


def test_a_users_reducer_is_kept_if_it_says_what_it_is(tmp_path: Path) -> None:
    every = days(tmp_path, 2)
    cache = tmp_path / "cache"
    plain = Largest()
    for _ in range(2):
        _, read = run(lambda c: {"y": c["y"] / ops.reduce(plain, c["y"])}, every, AnalyzerCache(cache))
        assert read == {"day0": 40, "day1": 40}
    known = Largest()
    known.cache_key = "largest/1"  # type: ignore[attr-defined]
    fn = lambda c: {"y": c["y"] / ops.reduce(known, c["y"])}  # noqa: E731
    cold, _ = run(fn, every, AnalyzerCache(cache))
    warm, read = run(fn, every, AnalyzerCache(cache))
    assert read == {}
    assert same(cold, warm)
    known.cache_key = "largest/2"  # type: ignore[attr-defined]
    assert run(fn, every, AnalyzerCache(cache))[1] == {"day0": 40, "day1": 40}


def test_spans_without_a_digest_are_not_kept(tmp_path: Path) -> None:
    every = [replace(one, digest="") for one in days(tmp_path, 2)]
    cache = AnalyzerCache(tmp_path / "cache")
    run(fewer, every, cache)
    assert (cache.added, (tmp_path / "cache").exists()) == (0, False)


def test_spans_of_whole_and_of_broken_numbers(tmp_path: Path) -> None:
    whole = span(tmp_path, "whole", pa.table({"x": pa.array([1, 2, 3])}))
    broken = span(tmp_path, "broken", pa.table({"x": [0.5, None]}))
    cache = tmp_path / "cache"
    fn = lambda c: {"x": ops.z_score(c["x"])}  # noqa: E731
    bundle, _ = run(fn, [whole, broken], AnalyzerCache(cache))
    assert bundle.signatures["transform"].inputs["x"].dtype == "float64"
    outputs = bundle.run("transform", pa.record_batch({"x": [1.625]}))
    np.testing.assert_allclose(outputs["x"], 0, atol=1e-6)
    assert run(fn, [whole], AnalyzerCache(cache))[1] == {"whole": 3}  # as int64 it is another column
    assert run(fn, [broken, whole], AnalyzerCache(cache))[1] == {}


def test_progress_counts_every_pass_over_every_span(tmp_path: Path) -> None:
    every = days(tmp_path, 3)
    told: list[tuple[int, int | None]] = []

    def progress(done: int, total: int | None, unit: str) -> None:
        assert unit == "rows"
        told.append((done, total))

    analyze(chained, every, data.LocalExecutor(), progress, cache=AnalyzerCache(tmp_path / "cache"))
    assert told[-1] == (240, 240)
    assert {total for _, total in told} == {240}
    assert told == sorted(told)
    told.clear()
    analyze(chained, every, data.LocalExecutor(), progress, cache=AnalyzerCache(tmp_path / "cache"))
    assert told[-1] == (240, 240)


def test_an_op_of_the_projects_is_analysed_again_when_its_file_changes(tmp_path: Path) -> None:
    import sys
    from types import ModuleType

    def load(text: str) -> Any:
        path = tmp_path / "cached_ops.py"
        path.write_text(text)
        module = ModuleType("cached_ops")
        module.__file__ = str(path)
        sys.modules["cached_ops"] = module
        exec(compile(text, str(path), "exec"), module.__dict__)
        return module

    source = (
        "from drivetrain.engine import custom_ops\n"
        "@custom_ops.host_op('cachedops.first', returns='string', by='row')\n"
        "def first(text):\n    return None if text is None else text[:1]\n"
    )
    custom_ops.use("cachedops", distribution="cached-ops", version="1.0")
    every = days(tmp_path, 1)
    cache = tmp_path / "cache"
    try:
        module = load(source)
        fn = lambda c: {"w": ops.vocabulary(module.first(c["w"]))}  # noqa: E731
        assert run(fn, every, AnalyzerCache(cache))[1] == {"day0": 40}
        assert run(fn, every, AnalyzerCache(cache))[1] == {}
        module = load(source.replace("text[:1]", "text[:2]"))
        bundle, read = run(fn, every, AnalyzerCache(cache))
        assert read == {"day0": 40}
        assert "w0" in next(iter(bundle.payload.assets.values())).column("value").to_pylist()
    finally:
        del sys.modules["cached_ops"]
