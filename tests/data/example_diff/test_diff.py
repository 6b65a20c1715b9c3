"""Rows of the same key compared: against joins of pandas and DuckDB, and against planted skew in real flights."""

from __future__ import annotations

import datetime
import json
import math
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from drivetrain.data import ExamplesDiff, LocalExecutor, diff_examples, executor, open_parquet, source_of
from drivetrain.data.example_diff.accumulator import DiffAccumulator, DiffSettings
from drivetrain.data.example_diff.join import join, key_schema
from drivetrain.errors import Canceled, InputError
from drivetrain.tests.data.flights import month
from hypothesis import given, settings
from hypothesis import strategies as st

KEY = ["carrier", "flight", "month", "day", "origin", "sched_dep_time"]

keys = st.one_of(st.none(), st.integers(0, 5))
numbers = st.one_of(st.none(), st.sampled_from([0.0, -0.0, 1.0, 1.0004, math.nan, math.inf]))
texts = st.one_of(st.none(), st.sampled_from(["a", "b", ""]))
tables = st.lists(st.tuples(keys, st.sampled_from("xy"), numbers, texts), min_size=1, max_size=25).map(
    lambda rows: pa.table(
        {
            "id": pa.array([row[0] for row in rows], pa.int64()),
            "part": [row[1] for row in rows],
            "number": pa.array([row[2] for row in rows], pa.float64()),
            "text": pa.array([row[3] for row in rows], pa.string()),
        }
    )
)


def counted(feature: dict[str, Any]) -> list[int]:
    return [feature[name] for name in ("matches", "mismatches", "base_only", "test_only", "both_missing")]


def by_pandas(base: pa.Table, test: pa.Table, *, duplicates: bool) -> dict[str, list[int]]:
    """The counts of each feature by pandas' merge, and Python's own equality."""
    frames = []
    for side in (base, test):
        frame = pd.DataFrame(side.to_pylist(), dtype=object)
        frame = frame[frame["id"].notna()]
        frames.append(frame)
    if not duplicates:
        many = [frame[frame.duplicated(["id", "part"], keep=False)] for frame in frames]
        odd = {(row.id, row.part) for frame in many for row in frame.itertuples()}
        frames = [
            frame[np.array([(row.id, row.part) not in odd for row in frame.itertuples()], bool)] for frame in frames
        ]
    merged = frames[0].merge(frames[1], on=["id", "part"], suffixes=("_base", "_test"))
    expected = {}
    for name in ("number", "text"):
        counts = [0] * 5
        for left, right in zip(merged[f"{name}_base"], merged[f"{name}_test"], strict=True):
            if left is None or right is None:
                counts[4 if left is right else 3 if left is None else 2] += 1
            else:
                counts[not (left == right or (left != left and right != right))] += 1
        expected[name] = counts
    expected["pairs"] = [len(merged)]
    return expected


@settings(max_examples=40, deadline=None)
@given(tables, tables, st.booleans())
def test_counts_are_those_of_a_merge_by_pandas(base: pa.Table, test: pa.Table, duplicates: bool) -> None:
    diff = diff_examples(base, test, ["id", "part"], allow_duplicates=duplicates)
    expected = by_pandas(base, test, duplicates=duplicates)
    assert [diff.counts["pairs"]] == expected["pairs"]
    assert {name: counted(diff[name]) for name in ("number", "text")} == {
        name: expected[name] for name in ("number", "text")
    }
    sides = [[(row["id"], row["part"]) for row in side.to_pylist() if row["id"] is not None] for side in (base, test)]
    assert diff.counts["keys"] == len({*sides[0], *sides[1]})
    assert diff.counts["only_in_base"] == len({*sides[0]} - {*sides[1]})
    assert diff.counts["only_in_test"] == len({*sides[1]} - {*sides[0]})
    many = {key for side in sides for key in side if side.count(key) > 1}
    assert diff.counts["duplicate_keys"] == len(many)
    assert diff.counts["base_rows"] - diff.counts["base_without_key"] == len(sides[0])
    confusion = {(item["base"], item["test"]): item["count"] for item in diff["text"]["confusion"] or ()}
    assert sum(confusion.values()) == sum(counted(diff["text"])[:4])
    assert sum(count for (left, right), count in confusion.items() if left == right) == diff["text"]["matches"]


@settings(max_examples=15, deadline=None)
@given(tables, tables, st.integers(1, 9), st.booleans())
def test_buckets_shards_and_storing_change_nothing(
    base: pa.Table, test: pa.Table, buckets: int, duplicates: bool
) -> None:
    chosen = DiffSettings(("id", "part"), ("number", "text"), 2, 2, 2)
    states = []
    sides = [source_of(side) for side in (base, test)]
    shared = key_schema(sides[0], sides[1], ["id", "part"])
    for count in (1, buckets):
        with tempfile.TemporaryDirectory() as folder:
            parts = [
                LocalExecutor(2).exchange(side, ["id", "part"], count, Path(folder) / str(side_number))
                for side_number, side in enumerate(sides)
            ]
            joined = join(parts[0], parts[1], shared, duplicates=duplicates)
            state = LocalExecutor(2).combine(joined, partial(DiffAccumulator, chosen))
            halves = [DiffAccumulator(chosen) for _ in joined.shards]
            for shard, half in enumerate(halves):
                for batch in joined.read(shard, 3):
                    half.add_batch(batch)
            whole = DiffAccumulator.from_bytes(DiffAccumulator(chosen).to_bytes())
            for half in halves:
                whole.merge(DiffAccumulator.from_bytes(half.to_bytes()))
        states += [state.result(), whole.result()]
    assert all(state == states[0] for state in states)


def skewed(table: pa.Table) -> tuple[pa.Table, dict[str, Any]]:
    """Flights as a server might have logged them: another order, some values other, some rows lost; and which."""
    random = np.random.default_rng(3)
    rows = len(table)
    late = random.random(rows) < 0.02
    delays = table["dep_delay"].to_pylist()
    carriers = table["carrier"].to_pylist()
    renamed = np.array([carrier == "MQ" for carrier in carriers]) & (random.random(rows) < 0.5)
    delays = [None if delay is None else delay + 60 if late[row] else delay for row, delay in enumerate(delays)]
    tails = [None if row % 500 == 0 else tail for row, tail in enumerate(table["tailnum"].to_pylist())]
    served = table.set_column(table.schema.get_field_index("dep_delay"), "dep_delay", pa.array(delays, pa.float64()))
    served = served.set_column(served.schema.get_field_index("tailnum"), "tailnum", pa.array(tails, pa.string()))
    served = served.append_column("airline", pa.array(["XX" if renamed[row] else c for row, c in enumerate(carriers)]))
    base = table.append_column("airline", table["carrier"])
    return base, {
        "test": served.take(pa.array(random.permutation(rows)[: rows - 100])),
        "late": late,
        "renamed": renamed,
    }


@pytest.fixture(scope="module")
def flights() -> tuple[pa.Table, pa.Table]:
    base, planted = skewed(month(6))
    return base, planted["test"]


def test_planted_skew_is_what_duckdb_finds(flights: tuple[pa.Table, pa.Table]) -> None:
    duckdb = pytest.importorskip("duckdb")
    base, test = flights
    diff = diff_examples(base, test, KEY)
    session = duckdb.connect()
    session.register("base", base)
    session.register("test", test)
    on = " and ".join(f"b.{name} = t.{name}" for name in KEY)
    for name in ("dep_delay", "tailnum", "airline", "distance", "time_hour", "arr_delay"):
        expected = session.execute(
            f"select count(*) filter (b.{name} = t.{name}), count(*) filter (b.{name} <> t.{name}),"
            f" count(*) filter (t.{name} is null and b.{name} is not null),"
            f" count(*) filter (b.{name} is null and t.{name} is not null),"
            f" count(*) filter (b.{name} is null and t.{name} is null) from base b join test t on {on}"
        ).fetchone()
        assert counted(diff[name]) == list(expected)
    change = diff["dep_delay"]["difference"]
    assert (change["count"], change["min"], change["max"]) == (diff["dep_delay"]["mismatches"], 60.0, 60.0)
    assert diff.counts["only_in_base"] == 100
    assert diff.counts["duplicate_keys"] == 0
    table = session.execute(
        f"select b.airline, t.airline, count(*) from base b join test t on {on} group by 1, 2"
    ).fetchall()
    assert {(item["base"], item["test"]): item["count"] for item in diff["airline"]["confusion"]} == {
        (left, right): count for left, right, count in table
    }
    assert set(diff.different) == {"dep_delay", "tailnum", "airline"}
    assert diff.summary.endswith("pairs of rows differ, in dep_delay, tailnum, airline")
    sample = diff["airline"]["samples"][0]
    assert (sample["base"], sample["test"]) == ("MQ", "XX")
    assert set(sample["key"]) == set(KEY)


@pytest.mark.beam
def test_the_same_bytes_on_every_executor(flights: tuple[pa.Table, pa.Table], tmp_path: Path) -> None:
    pytest.importorskip("apache_beam")
    for name, table in zip(("base", "test"), flights, strict=True):
        pq.write_table(table, tmp_path / f"{name}.parquet", row_group_size=9_000)
    sides = [open_parquet([tmp_path / f"{name}.parquet"]) for name in ("base", "test")]
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    texts = [
        diff_examples(sides[0], sides[1], KEY, executor=walk, scratch=scratch).to_json()
        for walk in (LocalExecutor(1), LocalExecutor(5), executor("beam"))
    ]
    assert texts[0] == texts[1] == texts[2]
    assert not list(scratch.iterdir())


def feature_of_pair(base: Any, test: Any, **options: Any) -> dict[str, Any]:
    """The diff of one value with another."""
    left, right = (side if isinstance(side, pa.Array) else pa.array([side]) for side in (base, test))
    return diff_examples(pa.table({"id": [1], "v": left}), pa.table({"id": [1], "v": right}), "id", **options)["v"]


MAP = pa.map_(pa.string(), pa.float64())
DAY = datetime.datetime(2013, 6, 1, 12)


@pytest.mark.parametrize(
    ("base", "test", "options", "equal"),
    [
        (1, 1.0, {}, True),
        (2**53 + 1, float(2**53), {}, False),
        (pa.array([2**64 - 1], pa.uint64()), pa.array([-1], pa.int64()), {}, False),
        (pa.array([7], pa.uint64()), pa.array([7], pa.int8()), {}, True),
        (0.1, pa.array([0.1], pa.float32()), {}, False),
        (0.1, pa.array([0.1], pa.float32()), {"float_digits": 6}, True),
        (math.nan, math.nan, {}, True),
        (math.nan, 1.0, {}, False),
        (0.0, -0.0, {}, True),
        (True, True, {}, True),
        (True, 1, {}, False),
        ("1", 1, {}, False),
        ("é", b"\xc3\xa9", {}, True),
        (pa.array([DAY], pa.timestamp("ms")), pa.array([DAY], pa.timestamp("ns")), {}, True),
        (pa.array([DAY], pa.timestamp("ms", "UTC")), pa.array([DAY], pa.timestamp("us", "Europe/Oslo")), {}, True),
        (pa.array([DAY], pa.timestamp("ms", "UTC")), pa.array([DAY], pa.timestamp("ms")), {}, False),
        (datetime.date(2013, 6, 1), pa.array([DAY], pa.timestamp("us")), {}, False),
        (datetime.date(9999, 1, 1), pa.array([datetime.datetime(9999, 1, 1)], pa.timestamp("us")), {}, True),
        ([1, 2], [1, 2], {}, True),
        ([1, 2], [2, 1], {}, False),
        ([0.12, None], [0.1, None], {}, False),
        ([0.12, None], [0.1, None], {"float_digits": 1}, True),
        ({"a": [0.12]}, {"a": [0.1]}, {"float_digits": 1}, True),
        ([], None, {}, False),
        (pa.array([[("a", 0.12)]], MAP), pa.array([[("a", 0.1)]], MAP), {"float_digits": 1}, True),
        (pa.array([[("a", 1)]], MAP), pa.array([[("b", 1)]], MAP), {}, False),
        (pa.array(["1.50"]).cast(pa.decimal128(9, 2)), pa.array(["1.5"]).cast(pa.decimal128(9, 1)), {}, True),
    ],
)  # fmt: skip
def test_what_is_equal(base: Any, test: Any, options: dict[str, Any], equal: bool) -> None:
    assert feature_of_pair(base, test, **options)["matches"] == equal
    assert feature_of_pair(test, base, **options)["matches"] == equal


def test_differences_of_times_are_seconds() -> None:
    later = pa.array([DAY + datetime.timedelta(hours=1)], pa.timestamp("us"))
    assert feature_of_pair(pa.array([DAY], pa.timestamp("us")), later)["difference"]["mean"] == 3600.0
    assert feature_of_pair(pa.array([DAY], pa.timestamp("ms")), later)["difference"]["mean"] == 3600.0
    assert feature_of_pair(1, 4)["difference"]["max"] == 3.0
    assert feature_of_pair(2**53, 2**53 + 1)["difference"]["max"] == 1.0
    assert feature_of_pair(-(2**63), 2**63 - 1)["difference"]["max"] == 2.0**64
    assert feature_of_pair(pa.array([2**64 - 1], pa.uint64()), 0)["difference"]["max"] == -(2.0**64)
    assert feature_of_pair("a", "b")["difference"] is None
    assert feature_of_pair(1.0, math.inf)["difference"] is None


def test_a_type_that_changed_is_said() -> None:
    feature = feature_of_pair("1", 1)
    assert (feature["status"], feature["base_type"], feature["test_type"]) == ("type changed", "string", "int64")
    assert feature["mismatches"] == 1


def test_keys_of_other_types_meet_and_others_are_refused() -> None:
    base = pa.table({"id": pa.array([1, 2, 3], pa.int32()), "v": [1, 2, 3]})
    test = pa.table({"id": [3.0, 2.0, math.nan], "v": [3, 0, 0]})
    diff = diff_examples(base, test, "id")
    assert (diff.counts["pairs"], diff.counts["only_in_test"], counted(diff["v"])[:2]) == (2, 1, [1, 1])
    text = pa.table({"id": ["1"], "v": [1]})
    with pytest.raises(InputError, match="the key 'id' is int32 in the base data and string in the test data"):
        diff_examples(base, text, "id")
    with pytest.raises(InputError, match=r"the test data has no column 'x'"):
        diff_examples(base.append_column("x", base["v"]), text, ["x"])
    with pytest.raises(InputError, match="which is not a key"):
        diff_examples(pa.table({"id": [[1]]}), pa.table({"id": [[1]]}), "id")
    with pytest.raises(InputError, match="without a key"):
        diff_examples(base, test, [])
    large = pa.table({"id": [2**53 + 1], "v": [1]})
    with pytest.raises(InputError, match="the key 'id' of the base data cannot be read as double"):
        diff_examples(large, test, "id")


UTC, OSLO = (pa.timestamp(unit, zone) for unit, zone in (("s", "UTC"), ("ns", "Europe/Oslo")))


@pytest.mark.parametrize(
    ("base", "test", "shared"),
    [
        (pa.array([1, 2**64 - 1], pa.uint64()), pa.array([1, -1], pa.int64()), 1),
        (pa.array([b"a", b"\xff"]), pa.array(["a", "\ufffd"]), "a"),
        (pa.array([0, 7], UTC), pa.array([0, 8], OSLO), "1970-01-01T00:00:00.000000000Z"),
        (np.array([1.5, 2], np.float16), np.array([1.5, 3], np.float16), 1.5),
    ],
)
def test_equal_keys_of_unlike_types_meet(base: Any, test: Any, shared: Any) -> None:
    # The shared key stands twice on a side, to be quoted.
    base, test = pa.array(base), pa.array(test)
    sides = [pa.table({"id": pa.concat_arrays([base, base[:1]])}), pa.table({"id": test})]
    diff = diff_examples(sides[0], sides[1], ["id", "id"])
    counts = [diff.counts[name] for name in ("keys", "duplicate_keys", "only_in_base", "only_in_test")]
    assert counts == [3, 1, 1, 1]
    assert diff.document["pairs"][0]["key_samples"]["duplicate_keys"] == [
        {"key": {"id": shared}, "base_rows": 2, "test_rows": 1}
    ]


def test_what_cannot_be_compared_is_named() -> None:
    views = pa.table({"id": [1], "v": pa.array([[1.0]], pa.list_view(pa.float64()))})
    with pytest.raises(InputError, match=r"column 'v': values of type list_view.* cannot be compared"):
        diff_examples(views, views, "id")
    with pytest.raises(InputError, match="samples=-1"):
        diff_examples(views, views, "id", samples=-1)


def test_columns_to_compare() -> None:
    base = pa.table({"id": [1, 2], "a": [1, 2], "b": [1, 2], "gone": ["x", None]})
    test = pa.table({"id": [1, 2], "a": [1, 3], "b": [1, 3], "new": [1, 1]})
    diff = diff_examples(base, test, "id", ignore=["b"])
    assert {feature["name"]: feature["status"] for feature in diff.document["pairs"][0]["features"]} == {
        "a": "compared", "gone": "only in base", "new": "only in test",
    }  # fmt: skip
    assert (counted(diff["gone"]), counted(diff["new"])) == ([0, 0, 1, 0, 1], [0, 0, 0, 2, 0])
    assert diff.counts["different_pairs"] == 1
    assert diff.summary == "1 of 2 pairs of rows differ, in a; only in base: gone; only in test: new"
    assert diff_examples(base, test, "id", columns=["a"]).different == ("a",)
    with pytest.raises(InputError, match="neither side has a column 'z'"):
        diff_examples(base, test, "id", columns=["z"])


def test_all_rows_of_one_key() -> None:
    rows = 150_000
    side = pa.table({"id": np.zeros(rows, np.int64), "v": np.arange(rows)})
    diff = diff_examples(side, side, "id")
    assert (diff.counts["pairs"], diff.counts["keys"], diff.counts["duplicate_keys"]) == (0, 1, 1)
    assert diff.counts["base_duplicate_rows"] == rows
    few = side.slice(0, 3)
    both = diff_examples(side, few, "id", allow_duplicates=True)
    assert (both.counts["pairs"], both["v"]["matches"], both.counts["keys"]) == (3 * rows, 3, 1)
    assert diff.summary == "no row has a partner of the same key"


def test_several_data_sets_and_how_it_is_kept(tmp_path: Path) -> None:
    base, test = pa.table({"id": [1], "v": ["<b>"]}), pa.table({"id": [1], "v": ["&"]})
    diff = diff_examples({"train": base, "eval": base}, {"eval": test, "train": base}, "id")
    assert [(pair["base"], pair["counts"]["different_pairs"]) for pair in diff.document["pairs"]] == [
        ("train", 0), ("eval", 1),
    ]  # fmt: skip
    crossed = diff_examples({"train": base}, {"train": base, "eval": test}, "id", pairs=[("train", "eval")])
    assert crossed.document["pairs"][0]["test"] == "eval"
    with pytest.raises(InputError, match="no data set is on both sides: a; b, c"):
        diff_examples({"a": base}, {"b": base, "c": base}, "id")
    with pytest.raises(InputError, match="the test data has no data set 'x'"):
        diff_examples(base, test, "id", pairs=[("data", "x")])
    folder = tmp_path / "diffs" / "new"
    diff.save(folder)
    assert ExamplesDiff.load(folder).to_json() == diff.to_json() == (folder / "example_diff.json").read_text()
    assert list(diff.to_pandas()["mismatches"]) == [0, 1]
    only_keys = diff_examples(base.select(["id"]), base.select(["id"]), "id")
    assert (only_keys.summary, len(only_keys.to_pandas()["mismatches"])) == ("0 of 1 pairs of rows differ", 0)
    page = diff.to_html()
    assert page.startswith("<!doctype html>")
    assert "&lt;b&gt;" in page
    assert "<b>'" not in page
    assert "<iframe" in diff._repr_html_()
    (folder / "example_diff.json").write_text(json.dumps({"format": "other"}))
    with pytest.raises(InputError, match="not of the format"):
        ExamplesDiff.load(tmp_path / "diffs" / "new")


def test_progress_rises_to_all_rows_and_may_stop(tmp_path: Path) -> None:
    side = pa.table({"id": np.arange(100_000), "v": np.arange(100_000)})
    calls: list[tuple[int, int | None, str]] = []
    diff_examples(side, side, "id", progress=lambda *call: calls.append(call))
    assert [call[0] for call in calls] == sorted(call[0] for call in calls)
    assert {call[1:] for call in calls} == {(400_000, "rows")}
    assert calls[-1][0] == 400_000

    def stop(done: int, total: int | None, unit: str) -> None:
        if done > 200_000:  # within the join
            raise Canceled("stop")

    with pytest.raises(Canceled):
        diff_examples(side, side, "id", scratch=tmp_path, progress=stop)
    assert not list(tmp_path.iterdir())


def test_text_that_is_no_utf8_and_long_text() -> None:
    broken = pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff"], pa.binary()).buffers())
    feature = feature_of_pair(broken, "a")
    assert (feature["mismatches"], feature["samples"][0]["base"]) == (1, "\\xff")
    long = feature_of_pair("x" * 5_000, "y")
    assert (long["confusion"], len(long["samples"][0]["base"])) == (None, 201)
    assert feature_of_pair("a", "b", confusion=1)["confusion"] is None
    assert feature_of_pair("a", "b", confusion=2)["confusion"] == [{"base": "a", "test": "b", "count": 1}]
    assert pc.equal(broken, broken)[0].as_py()


def test_a_key_of_many_columns() -> None:
    random = np.random.default_rng(5)
    columns = {f"k{number}": random.integers(0, 99, 400) for number in range(12)}  # 99^12 keys do not fit into 64 bits
    base = pa.table({**columns, "v": np.arange(400)})
    test = base.take(pa.array(random.permutation(400)))
    diff = diff_examples(base, test, list(columns))
    assert (diff.counts["pairs"], diff.counts["keys"], diff["v"]["matches"]) == (400, 400, 400)
