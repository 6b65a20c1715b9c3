"""What runs make of spans and versions: new work, hits, one span for a whole run."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from drivetrain.components.example_gen import ExampleGen
from drivetrain.errors import BuildError, InputError
from drivetrain.metadata import Examples
from drivetrain.pipelines import (
    Home,
    Pipeline,
    PipelineFunction,
    RunResult,
    load_pipeline,
    resume,
    run_pipeline,
)

Pipe = Callable[..., PipelineFunction[..., object]]


PARTS = """
    from __future__ import annotations
    from pathlib import Path
    import drivetrain as dt
    from drivetrain.components import ExampleGen
    from drivetrain.metadata import Examples
    from drivetrain.pipelines import Files, resolve_files

    @dt.component
    def Read(data: Files, *, stop: str = "") -> Examples:
        found = resolve_files(data)
        if stop and Path(stop).exists():
            raise ConnectionError("told to stop")
        examples = Examples.new(span=found.span or 0, version=found.version)
        (examples.content / "rows.txt").write_text(found.files[0].path.read_text())
        return examples

    @dt.component
    def Name(examples: Examples) -> str:
        return (examples.content / "rows.txt").read_text().splitlines()[1]

    @dt.component
    def All(*, values: list[int]) -> list[int]:
        return values
"""


@pytest.fixture
def dated(pipe: Pipe) -> Pipe:
    return lambda body, **more: pipe(body, parts=PARTS, **more)


def examples_of(result: RunResult, node: str) -> tuple[int, int | None]:
    (record,) = result.nodes[node].outputs["examples"]
    return record.properties["span"], record.properties["version"]


def test_a_new_span_is_new_work_and_an_old_one_a_hit(home: Home, dated: Pipe, write_files: Callable[..., Path]) -> None:
    folder = write_files("s1/v1/x.csv")
    body = f"ExampleGen({str(folder / 's{SPAN}/v{VERSION}/*')!r})"
    first = run_pipeline(home, dated(body))
    assert examples_of(first, "ExampleGen") == (1, 1)
    assert run_pipeline(home, dated(body)).nodes["ExampleGen"].state == "CACHED"
    (folder / "s2/v1").mkdir(parents=True)
    (folder / "s2/v1/x.csv").write_bytes((folder / "s1/v1/x.csv").read_bytes())  # the same rows, of another day
    second = run_pipeline(home, dated(body))
    assert (second.nodes["ExampleGen"].state, examples_of(second, "ExampleGen")) == ("COMPLETE", (2, 1))
    old = f"ExampleGen(dt.files({str(folder / 's{SPAN}/v{VERSION}/*')!r}, span=1))"
    assert run_pipeline(home, dated(old)).nodes["ExampleGen"].state == "CACHED"
    write_files("s1/v2/x.csv")
    again = run_pipeline(home, dated(old))
    assert (again.nodes["ExampleGen"].state, examples_of(again, "ExampleGen")) == ("COMPLETE", (1, 2))


def test_a_span_by_parameter_and_by_item(home: Home, dated: Pipe, write_files: Callable[..., Path]) -> None:
    folder = write_files("1/x.csv", "2/x.csv", "10/x.csv")
    pattern = str(folder / "{SPAN}/*")
    result = run_pipeline(home, dated(f"Read(dt.files({pattern!r}, span=count))"), {"count": 2})
    assert examples_of(result, "Read") == (2, None)
    body = f"""
        found = dt.loops.spans({pattern!r})
        All(values=found)
        dt.map_(lambda span: Name(Read(dt.files({pattern!r}, span=span))), over=found)
    """
    result = run_pipeline(home, dated(body))
    assert result.nodes["All"].outputs["value"][0].properties["value"] == [1, 2, 10]
    names = [result.nodes[f"Name[{place}]"].outputs["value"][0].properties["value"] for place in range(3)]
    assert names == ["1/x.csv,0", "2/x.csv,0", "10/x.csv,0"]
    write_files("11/x.csv")
    again = run_pipeline(home, dated(body))
    states = {name: node.state for name, node in again.nodes.items()}
    assert [states[f"Read[{place}]"] for place in range(4)] == ["CACHED", "CACHED", "CACHED", "COMPLETE"]


def test_a_pattern_that_is_a_parameter(
    home: Home, project: Callable[..., Path], write_files: Callable[..., Path]
) -> None:
    folder = write_files("1/x.csv", "2/x.csv")
    pipeline = """
    import drivetrain as dt
    from .parts import *

    @dt.pipeline
    def shop(data: str, span: int) -> None:
        Read(data)
        Read.options(id="Told")(dt.files(data, span=span))
        dt.map_(lambda each: Read.options(id="Each")(dt.files(data, span=each)), over=dt.loops.spans(data))
    """
    shop = load_pipeline(project("shop", parts=PARTS, pipeline=pipeline))
    result = run_pipeline(home, shop, {"data": str(folder / "{SPAN}/*"), "span": 1})
    spans = [examples_of(result, node)[0] for node in ("Read", "Told", "Each[0]", "Each[1]")]
    assert spans == [2, 1, 1, 2]


def test_a_query_of_a_day(home: Home, dated: Pipe, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "shop.db") as database:
        database.execute("CREATE TABLE sales (at INTEGER, number INTEGER)")
        database.executemany("INSERT INTO sales VALUES (?, ?)", [(at, at) for at in range(0, 5 * 86400, 43200)])
    database.close()
    within = "WHERE at >= :span_begin AND at < :span_end"
    for more in ("", f", watermark='SELECT max(at) FROM sales {within}'"):
        body = f"""
            sql = "SELECT number FROM sales {within}"
            ExampleGen(dt.query(sql, connection="sqlite:///{tmp_path}/shop.db", span=count{more}))
        """
        seen = []
        for day in (1, 1, 2):
            node = run_pipeline(home, dated(body), {"count": day}).nodes["ExampleGen"]
            held = node.outputs["examples"][0].properties
            seen.append((node.state, held["span"], sum(held["rows"].values())))
        assert seen == [("COMPLETE", 1, 2), ("CACHED", 1, 2), ("COMPLETE", 2, 2)]


def test_spans_that_all_splits_have(home: Home, dated: Pipe, write_files: Callable[..., Path]) -> None:
    folder = write_files("train/1.csv", "train/2.csv", "train/3.csv", "eval/2.csv", "eval/3.csv", "eval/4.csv")
    patterns = {name: str(folder / name / "{SPAN}.csv") for name in ("train", "eval")}
    body = f"""
        both = {patterns!r}
        def month(span):
            return ExampleGen({{name: dt.files(pattern, span=span) for name, pattern in both.items()}})
        dt.map_(month, over=dt.loops.spans(both))
    """
    result = run_pipeline(home, dated(body))
    assert [examples_of(result, f"ExampleGen[{place}]")[0] for place in (0, 1)] == [2, 3]
    assert "ExampleGen[2]" not in result.nodes


def test_a_run_keeps_to_the_span_it_found_first(
    home: Home, dated: Pipe, write_files: Callable[..., Path], tmp_path: Path
) -> None:
    folder = write_files("1/x.csv", "2/x.csv")
    stop = tmp_path / "stop"
    stop.touch()
    body = f"""
        Read(dt.files({str(folder / "{SPAN}/*")!r}), stop={str(stop)!r})
        All(values=dt.loops.spans({str(folder / "{SPAN}/*")!r}))
    """
    assert run_pipeline(home, dated(body)).nodes["Read"].state == "FAILED"
    write_files("3/x.csv")
    stop.unlink()
    resumed = resume(home)
    assert examples_of(resumed, "Read") == (2, None)
    assert resumed.nodes["All"].outputs["value"][0].properties["value"] == [1, 2]
    fresh = run_pipeline(home, dated(body))
    assert examples_of(fresh, "Read") == (3, None)
    assert fresh.nodes["All"].outputs["value"][0].properties["value"] == [1, 2, 3]


def test_without_a_match_the_node_fails_and_says_what_is_there(
    home: Home, dated: Pipe, write_files: Callable[..., Path]
) -> None:
    folder = write_files("1/x.csv")
    body = (
        f"Read(dt.files({str(folder / '{SPAN}/*')!r}, span=5))\n"
        f"All(values=dt.loops.spans({str(folder / 's{SPAN}/*')!r}))"
    )
    result = run_pipeline(home, dated(body))
    assert "with span 5" in result.nodes["Read"].reason
    assert "it has the spans 1" in result.nodes["Read"].reason
    assert result.nodes["Spans"].state == "FAILED"
    assert "no file matches" in result.nodes["Spans"].reason
    assert result.nodes["All"].state == "BLOCKED"


def test_the_compiled_form_keeps_spans(dated: Pipe) -> None:
    plain = dated("Read(dt.files('a/*.csv'))").build()
    assert dict(plain["Read"].parameters)["data"] == {"$files": "a/*.csv"}  # as before there were spans
    body = """
        Read(dt.files("a/{SPAN}.csv", span=count, version=2))
        each = Read.options(id="Each")
        dt.map_(lambda span: each(dt.files("a/{SPAN}.csv", span=span)), over=dt.loops.spans("a/{SPAN}.csv"))
    """
    built = dated(body).build()
    assert dict(built["Read"].parameters)["data"] == {"$files": ["a/{SPAN}.csv", {"$param": "count"}, 2]}
    assert built.upstream("Each") == ("Spans",)
    assert Pipeline.from_json(built.to_json()) == built


def test_what_is_wrong_is_told_when_it_is_built(dated: Pipe) -> None:
    with pytest.raises(BuildError, match="takes the pattern itself"):
        dated("dt.loops.spans(dt.files('{SPAN}'))").build()


def test_a_span_that_is_told_twice(write_files: Callable[..., Path]) -> None:
    pattern = str(write_files("3/x.csv") / "{SPAN}/*")
    assert isinstance(ExampleGen(pattern, span=3), Examples)
    with pytest.raises(InputError, match="span=2, and the files are of span 3"):
        ExampleGen(pattern, span=2)
    with pytest.raises(InputError, match="span=0, and the files are of span 3"):  # 0 is a span like any other
        ExampleGen(pattern, span=0)
    undated = str(write_files("3/x.csv") / "3/*")
    assert (ExampleGen(undated).span, ExampleGen(undated, span=4).span) == (0, 4)


def test_case_1_what_tells_files_apart_is_their_content(home: Home, dated: Pipe, tmp_path: Path) -> None:
    one, two = tmp_path / "1.csv", tmp_path / "2.csv"
    for path, text, time in ((one, "a\n1\n2\n\n", 1), (two, "a\n1\n22\n\n", 3)):
        path.write_text(text)
        os.utime(path, (time, time))
    assert (one.stat().st_size, two.stat().st_size) == (7, 8)
    body = f"ExampleGen({str(tmp_path / '*.csv')!r})"
    assert run_pipeline(home, dated(body)).nodes["ExampleGen"].state == "COMPLETE"
    os.utime(one, (2, 2))
    assert run_pipeline(home, dated(body)).nodes["ExampleGen"].state == "CACHED"
    one.write_text("a\n1\n3\n\n")
    os.utime(one, (2, 2))  # as large and as old as before
    assert run_pipeline(home, dated(body)).nodes["ExampleGen"].state == "COMPLETE"
