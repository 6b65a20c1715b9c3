"""Spans and versions in file patterns: TFX's cases, number by number."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from drivetrain.components.example_gen import ExampleGen
from drivetrain.data import open_examples
from drivetrain.errors import InputError
from drivetrain.metadata import Examples
from drivetrain.pipelines import (
    PipelineFunction,
    files,
    resolve_files,
)
from drivetrain.pipelines.project.files import find_span, lister, query, resolve_query
from drivetrain.pipelines.project.spans import choose, parse, query_parameters, spans_of
from hypothesis import given
from hypothesis import strategies as st

Pipe = Callable[..., PipelineFunction[..., object]]


def found(folder: Path, pattern: str, **wanted: Any) -> tuple[int, int | None, str]:
    one = find_span(files(pattern, **wanted), (folder,))
    return one.span, one.version, one.pattern


def test_case_1_without_a_span_it_is_0_and_there_is_no_version(write_files: Callable[..., Path]) -> None:
    examples = ExampleGen(str(write_files("a.csv") / "*.csv"))
    assert (examples.span, examples.version) == (0, None)
    assert found(write_files("a.csv"), "*.csv") == (0, None, "*.csv")


def test_case_2_the_newest_span_then_its_newest_version(write_files: Callable[..., Path]) -> None:
    folder = write_files("span1/ver2/x.csv", "span2/ver1/x.csv")
    assert found(folder, "span{SPAN}/ver{VERSION}/*") == (2, 1, "span2/ver1/*")
    write_files("span2/ver10/x.csv", "span2/ver9/x.csv")
    assert found(folder, "span{SPAN}/ver{VERSION}/*") == (2, 10, "span2/ver10/*")
    examples = ExampleGen(str(folder / "span{SPAN}/ver{VERSION}/*"))
    assert (examples.span, examples.version) == (2, 10)


def test_case_3_splits_must_agree(write_files: Callable[..., Path]) -> None:
    folder = write_files("span01/split1/a.csv", "span01/split2/b.csv", "span02/split1/c.csv")
    patterns = {name: str(folder / f"span{{SPAN}}/{name}/*") for name in ("split1", "split2")}
    with pytest.raises(InputError, match="latest span should be the same for each split: split1: 2, split2: 1"):
        ExampleGen(patterns)
    write_files("span02/split2/d.csv")
    assert ExampleGen(patterns).span == 2
    assert resolve_files(patterns["split1"]).pattern == str(folder / "span02/split1/*")
    assert (
        ExampleGen({name: files(pattern, span=1, version=None).pattern for name, pattern in patterns.items()}).span == 2
    )


def test_case_3_versions_must_agree_and_keep_their_digits(write_files: Callable[..., Path]) -> None:
    folder = write_files("a/span02/ver02/x.csv", "b/span02/ver01/x.csv")
    patterns = {name: str(folder / name / "span{SPAN}/ver{VERSION}/*") for name in ("a", "b")}
    with pytest.raises(InputError, match="latest version should be the same for each split: a: 2, b: 1"):
        ExampleGen(patterns)
    write_files("b/span02/ver02/y.csv")
    examples = ExampleGen(patterns)
    assert (examples.span, examples.version, examples.rows) == (2, 2, {"a": 6, "b": 6})
    assert resolve_files(patterns["b"]).pattern == str(folder / "b/span02/ver02/*")


def test_case_3_a_split_without_spans_beside_one_with(write_files: Callable[..., Path]) -> None:
    folder = write_files("span1/a.csv", "eval.csv")
    with pytest.raises(InputError, match="train: 1, eval: none"):
        ExampleGen({"train": str(folder / "span{SPAN}/*"), "eval": str(folder / "eval.csv")})


def test_case_4_widths(write_files: Callable[..., Path]) -> None:
    assert found(write_files("1234/x.csv"), "{SPAN:2}{VERSION:2}/*") == (12, 34, "1234/*")
    folder = write_files("span1/x.csv")
    with pytest.raises(InputError, match=r"no file matches 'span{SPAN:2}/\*' in .*data: there is span1/x.csv"):
        found(folder, "span{SPAN:2}/*")
    for width in ("x", "0", "-1", "", "2.5"):
        with pytest.raises(InputError, match="not a positive integer"):
            found(folder, f"span{{SPAN:{width}}}/*")


def test_case_5_a_span_that_is_told_is_spelled_as_the_pattern_says(write_files: Callable[..., Path]) -> None:
    folder = write_files("span01/x.csv")
    with pytest.raises(InputError, match=r"with span 1 in .*: there is span01/x.csv"):
        found(folder, "span{SPAN}/*", span=1)
    assert found(folder, "span{SPAN:2}/*", span=1) == (1, None, "span01/*")


def test_case_6_dates(write_files: Callable[..., Path]) -> None:
    folder = write_files("19700102/x.csv")
    assert found(folder, "{YYYY}{MM}{DD}/*") == (1, None, "19700102/*")
    write_files("20170101/x.csv")
    assert found(folder, "{YYYY}{MM}{DD}/*") == (17167, None, "20170101/*")
    assert found(folder, "{YYYY}{MM}{DD}/*", span=1) == (1, None, "19700102/*")
    with pytest.raises(InputError, match="days since 1970-01-01"):
        found(folder, "{YYYY}{MM}{DD}/*", span=2)
    write_files("19691231/x.csv")
    with pytest.raises(InputError, match=r"19691231/x.csv: 1969-12-31 is before 1970-01-01"):
        found(folder, "{YYYY}{MM}{DD}/*")
    write_files("20201301/x.csv")
    (folder / "19691231/x.csv").unlink()
    with pytest.raises(InputError, match=r"20201301/x.csv: 2020-13-01 is not a valid date"):
        found(folder, "{YYYY}{MM}{DD}/*")


@pytest.mark.parametrize(
    ("pattern", "says"),
    [
        ("{YYYY}-{MM}/*", "exactly one of each date spec"),
        ("{YYYY}-{MM}-{DD}-{DD}/*", "exactly one of each date spec"),
        ("{YYYY}{MM}{DD}/{SPAN}/*", "exclude each other"),
        ("{VERSION}/*", "a version without a span"),
        ("{SPAN}/{SPAN}/*", "more than once"),
        ("{SPAN}/{VERSION}/{VERSION:2}/*", "more than once"),
        ("{SPAN}{VERSION}/*", "where SPAN ends and VERSION begins"),
        ("{YYYY}{MM}{DD}{VERSION}/*", "where DD ends and VERSION begins"),
        ("data*{SPAN}.csv", "could take some of its digits"),
        ("{SPAN}[0-9].csv", "could take some of its digits"),
    ],
)
def test_case_6_what_makes_no_sense_is_told(pattern: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        parse(pattern)


def test_case_7_what_a_query_may_bind_of_a_span(tmp_path: Path) -> None:
    assert query_parameters(2) == {"span": 2, "span_begin": 172800, "span_end": 259200, "span_date": "19700103"}
    assert query_parameters(1)["span_date"] == "19700102"
    with sqlite3.connect(tmp_path / "shop.db") as database:
        database.execute("CREATE TABLE sales (at INTEGER, day TEXT)")
        database.executemany(
            "INSERT INTO sales VALUES (?, ?)",
            [(at, f"{date(1970, 1, 1) + timedelta(seconds=at):%Y%m%d}") for at in range(0, 5 * 86400, 21600)],
        )
    database.close()
    for sql in (
        "SELECT * FROM sales WHERE at >= :span_begin AND at < :span_end",
        "SELECT * FROM sales WHERE day = :span_date",
    ):
        asked = query(sql, connection=f"sqlite:///{tmp_path}/shop.db", span=2)
        examples = ExampleGen(asked, splits={"all": 1})
        assert (examples.span, examples.version, examples.rows) == (2, None, {"all": 4})
        resolved = resolve_query(asked, (tmp_path,), tmp_path / "fetched")
        assert resolved.span == 2


def rows_of(examples: Examples) -> dict[str, set[Any]]:
    found: dict[str, set[Any]] = {}
    for split in examples.rows:
        source = open_examples(examples.content, split)
        found[split] = {n for shard in source.shards for batch in source.read(shard) for n in batch["n"].to_pylist()}
    return found


def test_case_8_shares_hold_and_a_split_divided_moves_no_other() -> None:
    """The hash is ours, of the row's values and not of its bytes, so which rows go where differs from TFX."""
    table = pa.table({"n": [str(number) for number in range(6000)]})
    train = ExampleGen(table, splits={"train": 2, "eval": 1}).rows["train"]
    assert abs(train - 4000) < 4 * (6000 * 2 / 9) ** 0.5  # four standard deviations; TFX's hash gives 4040
    whole = rows_of(ExampleGen(table, splits={"a": 10, "b": 40, "c": 30}))
    divided = rows_of(ExampleGen(table, splits={"a": 10, "b1": 25, "b2": 15, "c": 30}))
    assert divided["a"] == whole["a"]
    assert divided["c"] == whole["c"]
    assert divided["b1"] | divided["b2"] == whole["b"]
    assert not divided["b1"] & divided["b2"]


@pytest.mark.parametrize(
    "values",
    [
        [1, 2, 3, 4, 5, 6, 7, None],
        [0.5, 1.5, -0.0, 2.5, 1e300, 3.0, 4.0, None],
        [b"a", b"b", b"", b"c", b"d", b"e", b"f", None],
    ],
    ids=["int", "float", "bytes"],
)
def test_case_21_rows_equal_in_a_column_stay_together(values: list[Any]) -> None:
    """Of any type: a float, a missing and an empty value are values too, which TFX refuses."""
    table = pa.table({"n": list(range(400)), "key": values * 50})
    splits = rows_of(ExampleGen(table, splits={"train": 1, "eval": 1}, split_by="key"))
    assert all(splits.values())
    for value in range(len(values)):
        rows = set(range(value, 400, len(values)))
        assert rows <= splits["train"] or rows <= splits["eval"]
    with pytest.raises(InputError, match="there is no column 'absent'"):
        ExampleGen(table, split_by="absent")


# -- more of patterns


def test_a_version_that_is_told(write_files: Callable[..., Path]) -> None:
    folder = write_files("s1/v1/x.csv", "s1/v3/x.csv", "s2/v2/x.csv")
    pattern = "s{SPAN}/v{VERSION}/*"
    assert found(folder, pattern, span=1) == (1, 3, "s1/v3/*")
    assert found(folder, pattern, span=1, version=1) == (1, 1, "s1/v1/*")
    assert found(folder, pattern, version=1) == (1, 1, "s1/v1/*")
    with pytest.raises(
        InputError, match=r"with span 2 version 1 in .*: it has the spans 1 \(version 1\), 1 \(version 3\), 2"
    ):
        found(folder, pattern, span=2, version=1)


@pytest.mark.parametrize(
    ("pattern", "wanted", "says"),
    [
        ("s{SPAN}/*", {"span": 7}, "with span 7 in .*: it has the spans 1, 2"),
        ("t{SPAN}/*", {}, "no file matches 't{SPAN}/\\*' in .*: there is nothing like it"),
        ("s{SPAN}/*", {"version": 1}, "names no version"),
        ("s1/*", {"span": 1}, "names no span"),
        ("s{SPAN}/*", {"span": -1}, "the span is -1"),
        ("s{SPAN}/*", {"span": True}, "the span is True"),
        ("s{SPAN}/*", {"span": "1"}, "the span is '1'"),
        ("s{SPAN:1}/*", {"span": 10}, "span 10 has more than 1 digits"),
        ("{YYYY}{MM}{DD}", {"span": 10**9}, "no date is span"),
    ],
)
def test_what_is_not_there_is_told(
    write_files: Callable[..., Path], pattern: str, wanted: dict[str, Any], says: str
) -> None:
    folder = write_files("s1/x.csv", "s2/x.csv")
    with pytest.raises(InputError, match=says):
        found(folder, pattern, **wanted)


@pytest.mark.parametrize(
    ("count", "says"), [(5, "it has the spans 1, 2, 3, 4, 5"), (7, "it has the spans 3, 4, 5, 6, 7 and 2 before")]
)
def test_spans_that_are_not_named_are_counted(write_files: Callable[..., Path], count: int, says: str) -> None:
    folder = write_files(*(f"s{span}/x.csv" for span in range(1, count + 1)))
    with pytest.raises(InputError) as caught:
        found(folder, "s{SPAN}/*", span=9)
    assert says == caught.value.message[caught.value.message.index("it has") :]


def test_two_spellings_of_a_span_are_not_guessed_at(write_files: Callable[..., Path]) -> None:
    folder = write_files("s1/x.csv", "s01/y.csv", "s0/z.csv")
    with pytest.raises(InputError, match=r"span 1 in two places in .*: s01/\* and s1/\*"):
        found(folder, "s{SPAN}/*")
    assert found(folder, "s{SPAN:2}/*") == (1, None, "s01/*")


def test_what_lies_beside_the_spans_is_no_span(write_files: Callable[..., Path]) -> None:
    folder = write_files("3/a.csv", "latest/a.csv", "12b/a.csv", "4/notes.txt", "9/deeper/a.csv")
    assert found(folder, "{SPAN}/*.csv") == (3, None, "3/*.csv")
    assert found(folder, "**/{SPAN}/**/a.csv") == (9, None, "**/9/**/a.csv")
    assert spans_of("{SPAN}/*", lister((folder,))) == [3, 4]
    assert found(folder, "./{SPAN}/*.csv") == (3, None, "./3/*.csv")


def test_the_first_folder_with_any_is_looked_in(write_files: Callable[..., Path], tmp_path: Path) -> None:
    write_files("a/5/x.csv", "b/7/x.csv")
    folders = (tmp_path / "data/none", tmp_path / "data/a", tmp_path / "data/b")
    assert resolve_files(files("{SPAN}/*"), folders).span == 5
    with pytest.raises(InputError, match=r"data/none or .*data/a"):
        resolve_files(files("x{SPAN}/*"), folders)


@given(
    st.dictionaries(st.integers(0, 999), st.sets(st.integers(0, 99), min_size=1, max_size=3), min_size=1, max_size=5)
)
def test_the_newest_is_found_however_it_is_spelled(history: dict[int, set[int]]) -> None:
    names = [f"s{span:03}/{version}/x.csv" for span, versions in history.items() for version in versions]
    find = lambda pattern: (names, "there")  # noqa: E731 - what a glob gives at most
    span = max(history)
    for pattern in ("s{SPAN}/{VERSION}/*", "s{SPAN:3}/{VERSION}/x.csv", "s{SPAN}/{VERSION}/?.[cd]sv"):
        one = choose(pattern, None, None, find)
        assert (one.span, one.version) == (span, max(history[span]))
    for wanted, versions in history.items():
        assert choose("s{SPAN:3}/{VERSION}/*", wanted, None, find).version == max(versions)


@given(st.dates(date(1970, 1, 1)))
def test_a_date_is_its_days_since_1970(day: date) -> None:
    pattern = parse("y{YYYY}/{MM}-{DD}.csv")
    path = f"y{day.year:04}/{day:%m-%d}.csv"
    read = pattern.read(path)
    assert read is not None
    assert date(1970, 1, 1) + timedelta(days=read[0]) == day
    assert pattern.filled(pattern.digits(read[0], None)) == path


def test_behind_a_uri() -> None:
    fsspec = pytest.importorskip("fsspec")
    store = fsspec.filesystem("memory")
    for name in ("s1/v1/a.csv", "s1/v2/a.csv", "s02/v1/b.csv", "other/c.csv"):
        store.pipe(f"/spans-test/{name}", f"name,n\n{name},1\n".encode())
    pattern = "memory://spans-test/s{SPAN}/v{VERSION}/*.csv"
    examples = ExampleGen(pattern, splits={"all": 1})
    assert (examples.span, examples.version) == (2, 1)
    assert ExampleGen(files(pattern, span=1), splits={"all": 1}).version == 2
    assert spans_of(pattern, lister()) == [1, 2]
    with pytest.raises(
        InputError, match=r"no file matches 'memory://spans-test/s{SPAN}.*with span 3.*it has the spans"
    ):
        ExampleGen(files(pattern, span=3))
    with pytest.raises(InputError, match="nothing can be listed by HTTP"):
        ExampleGen("https://localhost/{SPAN}/a.csv")
