"""Statistics and Great Expectations' pandas engine say the same of the same data; the rest runs on rows."""

from __future__ import annotations

import html.parser
import itertools
import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from drivetrain.data import (
    Expectation,
    Presence,
    Range,
    Source,
    infer_schema,
    open_files,
    schema_from_suite,
    schema_from_yaml,
    schema_to_expectations,
    schema_to_yaml,
    source_of,
    statistics,
)
from drivetrain.data.expectations.check import check_expectations
from drivetrain.data.expectations.from_statistics import decide
from drivetrain.data.expectations.suite import ExpectationOutcome, Suite, read_suite
from drivetrain.errors import InputError
from drivetrain.tests.data.flights import corrupted, month
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

pytestmark = [
    pytest.mark.gx,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::Warning"),  # great_expectations and pandas warn of their own future
]


def expect(name: str, **kwargs: Any) -> Expectation:
    return Expectation(f"expect_{name}", kwargs)


def write(table: pa.Table, path: Path, rows: int = 10_000) -> Source:
    pq.write_table(table, path, row_group_size=rows)
    return open_files([path])


def both(source: Source, expectations: list[Expectation]) -> int:
    """How many of the expectations statistics decided; all of those agree with GX on the rows."""
    from drivetrain.data.expectations.gx import run_on_rows

    state = statistics(source).state("data")
    decided = {index: found for index, one in enumerate(expectations) if (found := decide(state, one)) is not None}
    rows = run_on_rows(source, state, {index: expectations[index] for index in decided})
    for index, mine in decided.items():
        same(mine, rows[index], expectations[index])
    return len(decided)


def same(mine: ExpectationOutcome, theirs: ExpectationOutcome, expectation: Expectation) -> None:
    assert mine.success == theirs.success, (expectation, mine, theirs)
    assert bool(mine.error) == bool(theirs.error), (expectation, mine, theirs)
    keys = (
        "observed_value", "element_count", "unexpected_count", "unexpected_percent", "missing_count", "missing_percent",
        "unexpected_percent_total", "unexpected_percent_nonmissing", "details",
    )  # fmt: skip
    if not mine.error:
        for key in keys:
            close(mine.result.get(key), theirs.result.get(key), expectation)
        if expectation.type.startswith("expect_column_distinct"):
            close(mine.result.get("partial_unexpected_list"), theirs.result.get("partial_unexpected_list"), expectation)
        elif "unexpected_count" in mine.result and not expectation.type.endswith(("be_null", "be_unique")):
            shown = theirs.result.get("partial_unexpected_list", [])
            assert bool(mine.result["partial_unexpected_list"]) == bool(shown), (expectation, mine, theirs)


def close(mine: Any, theirs: Any, expectation: Expectation) -> None:
    if isinstance(mine, dict) and isinstance(theirs, dict):
        assert set(mine) == set(theirs), (expectation, mine, theirs)
        for key in mine:
            close(mine[key], theirs[key], expectation)
    elif isinstance(mine, list) and isinstance(theirs, list):
        assert len(mine) == len(theirs), (expectation, mine, theirs)
        for one, other in zip(mine, theirs, strict=True):
            close(one, other, expectation)
    elif isinstance(mine, int) and isinstance(theirs, float) and abs(mine) > 2**53:  # pandas adds up floats
        assert math.isclose(mine, theirs, rel_tol=1e-14), (expectation, mine, theirs)
    elif isinstance(mine, float) and isinstance(theirs, (int, float)) and math.isfinite(mine):
        assert math.isclose(mine, theirs, rel_tol=1e-9, abs_tol=1e-9), (expectation, mine, theirs)
    else:
        assert mine == theirs or str(mine) == str(theirs), (expectation, mine, theirs)


def remote(page: str) -> list[str]:
    """What a page would load from elsewhere, and what would run; a link to follow is not loaded."""
    found: list[str] = []

    class Reader(html.parser.HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            found.extend(f"{tag} {value}" for _, value in attrs if tag != "a" and "//" in (value or ""))
            found.extend(name for name, _ in attrs if name.startswith("on"))
            found.extend([tag] * (tag in ("script", "link", "img", "iframe", "object")))

    Reader().feed(page)
    return found


def of_numbers(column: str, low: float, high: float, some: list[float]) -> list[Expectation]:
    ends = {"column": column, "min_value": low, "max_value": high}
    aggregates = (
        "min", "max", "mean", "median", "stdev", "sum", "unique_value_count", "proportion_of_unique_values",
        "proportion_of_non_null_values",
    )  # fmt: skip
    return [
        *(expect(f"column_{name}_to_be_between", **ends) for name in aggregates),
        expect("column_max_to_be_between", column=column, max_value=high, strict_max=True),
        expect("column_values_to_be_between", **ends),
        expect("column_values_to_be_between", **ends, strict_min=True, strict_max=True, mostly=0.5),
        expect("column_values_to_be_between", column=column, min_value=low),
        expect("column_values_to_be_in_set", column=column, value_set=some),
        expect("column_values_to_be_in_set", column=column, value_set=some, mostly=0.3),
        expect("column_values_to_not_be_in_set", column=column, value_set=some),
        expect("column_most_common_value_to_be_in_set", column=column, value_set=some, ties_okay=True),
        expect("column_most_common_value_to_be_in_set", column=column, value_set=some),
        *(expect(f"column_distinct_values_to_{name}_set", column=column, value_set=some) for name in SETS),
        expect("column_values_to_be_of_type", column=column, type_="int64"),
        expect("column_values_to_be_of_type", column=column, type_="float64"),
        expect("column_values_to_be_in_type_list", column=column, type_list=["int", "float32", "bool"]),
        *of_any(column),
        *(
            expect(
                "column_quantile_values_to_be_between",
                column=column,
                quantile_ranges={"quantiles": [level], "value_ranges": [[low, high]]},
            )
            for level in (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
        ),
    ]


SETS = ("be_in", "contain", "equal")


def of_any(column: str) -> list[Expectation]:
    return [
        expect("column_to_exist", column=column),
        expect("column_values_to_not_be_null", column=column),
        expect("column_values_to_not_be_null", column=column, mostly=0.5),
        expect("column_values_to_be_null", column=column, mostly=0.5),
        expect("column_values_to_be_unique", column=column),
        expect("column_values_to_be_unique", column=column, mostly=0.5),
        expect("column_unique_value_count_to_be_between", column=column, min_value=2, max_value=4),
        expect("column_proportion_of_unique_values_to_be_between", column=column, min_value=0.5),
        expect("column_proportion_of_non_null_values_to_be_between", column=column, min_value=0.5),
    ]


def of_texts(column: str, some: list[str]) -> list[Expectation]:
    return [
        expect("column_values_to_be_in_set", column=column, value_set=some),
        expect("column_values_to_be_in_set", column=column, value_set=some, mostly=0.5),
        expect("column_values_to_not_be_in_set", column=column, value_set=some),
        expect("column_most_common_value_to_be_in_set", column=column, value_set=some, ties_okay=True),
        *(expect(f"column_distinct_values_to_{name}_set", column=column, value_set=some) for name in SETS),
        expect("column_value_lengths_to_be_between", column=column, min_value=1, max_value=2),
        expect("column_value_lengths_to_be_between", column=column, min_value=1, strict_min=True, mostly=0.5),
        expect("column_value_lengths_to_equal", column=column, value=2),
        *(
            expect(f"column_values_to_{word}match_regex", column=column, regex=regex)
            for word in ("", "not_")
            for regex in ("^[A-Z]", r"\d", r"\w$", r"\s|é", "(?i)a", "[")
        ),
        expect("column_values_to_be_in_type_list", column=column, type_list=["int64", "float64"]),
        *of_any(column),
    ]


def of_table(names: list[str], rows: int) -> list[Expectation]:
    return [
        expect("table_row_count_to_be_between", min_value=rows, max_value=rows),
        expect("table_row_count_to_be_between", min_value=rows + 1),
        expect("table_row_count_to_equal", value=rows),
        expect("table_column_count_to_equal", value=len(names)),
        expect("table_column_count_to_be_between", max_value=1),
        expect("table_columns_to_match_set", column_set=names),
        expect("table_columns_to_match_set", column_set=names[1:]),
        expect("table_columns_to_match_set", column_set=names[1:], exact_match=False),
        expect("table_columns_to_match_set", column_set=[*names, "other"], exact_match=False),
        expect("table_columns_to_match_ordered_list", column_list=names),
        expect("table_columns_to_match_ordered_list", column_list=names[::-1]),
        expect("column_to_exist", column="other"),
        expect("column_to_exist", column=names[1], column_index=1),
        expect("column_to_exist", column=names[0], column_index=1),
        expect("column_values_to_not_be_null", column="other"),
        expect("column_mean_to_be_between", column="other", min_value=0),
    ]


@pytest.mark.parametrize("bad", [False, True])
def test_both_ways_agree_on_flights(bad: bool, tmp_path: Path) -> None:
    january = month(1)
    table = corrupted(january)[0] if bad else january
    source = write(table, tmp_path / "flights.parquet")
    suite = read_suite(schema_to_expectations(infer_schema(statistics(write(january, tmp_path / "clean.parquet")))))
    wanted = [*suite.expectations, *of_table(table.column_names, len(table))]
    for column in ("dep_delay", "distance", "air_time", "month"):
        wanted += of_numbers(column, 0, 5000, [1, 2, 200, 5.0])
    for column in ("carrier", "dest", "tailnum", "dep_time" if bad else "origin"):
        wanted += of_texts(column, ["UA", "AA", "EWR", "LGA", "JFK", "517"])
    decided = both(source, wanted)
    assert decided >= len(wanted) - 10, f"{decided} of {len(wanted)}"


numbers = st.one_of(
    st.none(),
    st.integers(-3, 3).map(float),
    st.just(math.nan),
    st.just(math.inf),
    st.just(-math.inf),
    st.floats(-1e6, 1e6),
)
integers = st.one_of(st.none(), st.integers(-3, 3), st.integers(-(2**52), 2**52))
texts = st.one_of(st.none(), st.sampled_from(["", "A", "b", "Ab", "é1", "a\n", "12", " "]), st.text(max_size=3))
rows = st.tuples(numbers, integers, st.integers(0, 4), texts, st.one_of(st.none(), st.booleans()))


@settings(
    max_examples=12,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.lists(rows, min_size=1, max_size=12), st.integers(1, 12))
def test_both_ways_agree_on_any_columns(tmp_path: Path, data: list[tuple[Any, ...]], size: int) -> None:
    types = {"float": pa.float64(), "int": pa.int64(), "tie": pa.int16(), "text": pa.string(), "bool": pa.bool_()}
    columns = zip(*data, strict=True)
    table = pa.table({name: pa.array(column, types[name]) for name, column in zip(types, columns, strict=True)})
    source = write(table, tmp_path / "any.parquet", size)
    wanted = of_table(list(types), len(data)) + of_any("bool")
    for name in ("float", "int", "tie"):
        wanted += of_numbers(name, -2, 2, [0, 1.0, 3])
    both(source, [*wanted, *of_texts("text", ["A", "b", "12"])])


def test_times_that_pandas_has_none_of_are_named() -> None:
    """And that it takes statistics, where others take rows, too."""
    rows = pa.table({"day": pa.array([3 * 10**6, 0], pa.int32()).cast(pa.date32())})
    suite = Suite("days", (expect("column_values_to_be_increasing", column="day"),))
    with pytest.raises(InputError, match="column 'day' cannot be pandas': year 10183 is out of range"):
        check_expectations(statistics(rows), suite, {"data": source_of(rows)})
    with pytest.raises(InputError, match="check_expectations got Table as statistics"):
        check_expectations(rows, suite)


def test_what_statistics_cannot_decide_runs_on_rows(tmp_path: Path) -> None:
    january, (bad, rows) = month(1), corrupted(month(1))
    sources = {"clean": write(january, tmp_path / "clean.parquet"), "bad": write(bad, tmp_path / "bad.parquet")}
    suite = Suite(
        "flights",
        (
            expect("column_values_to_not_be_null", column="dest"),
            expect("column_pair_values_a_to_be_greater_than_b", column_A="distance", column_B="month"),
            expect("column_values_to_be_in_set", column="carrier", value_set=["UA"], row_condition='origin=="EWR"',
                   condition_parser="pandas"),
            expect("column_values_to_be_increasing", column="day"),
            expect("compound_columns_to_be_unique", column_list=["carrier", "flight", "day", "origin"]),
            expect("column_values_to_match_regex_list", column="carrier", regex_list=["^[A-Z0-9]{2}$"]),
            expect("column_values_to_match_like_pattern", column="carrier", like_pattern="A%"),
        ),
    )  # fmt: skip
    results = check_expectations(statistics(sources), suite, sources)
    found = {(one["meta"]["split"], one["expectation_config"]["type"][7:]): one for one in results.document["results"]}
    ways = [one["meta"]["evaluated_on"] for one in found.values()]
    assert ways == ["statistics", *["rows"] * 6] * 2
    missing = found["bad", "column_values_to_not_be_null"]["result"]
    assert missing["unexpected_count"] == 100
    odd = found["bad", "column_values_to_match_regex_list"]
    assert not odd["success"]
    assert odd["result"]["unexpected_count"] == 50
    assert odd["result"]["partial_unexpected_index_list"] == rows["carrier"][:20].tolist()
    assert found["clean", "column_values_to_match_regex_list"]["success"]
    assert found["clean", "column_values_to_be_increasing"]["success"]
    day = january["day"].to_pylist()
    assert all(one <= other for one, other in itertools.pairwise(day))
    newark = [name for name, origin in zip(january["carrier"].to_pylist(), january["origin"].to_pylist(), strict=True)
              if origin == "EWR"]  # fmt: skip
    condition = found["clean", "column_values_to_be_in_set"]["result"]
    assert (condition["element_count"], condition["unexpected_count"]) == (
        len(newark), sum(name != "UA" for name in newark),
    )  # fmt: skip
    unknown = found["clean", "column_values_to_match_like_pattern"]  # GX has it for SQL only
    assert unknown["exception_info"]["raised_exception"]
    assert not unknown["success"]
    assert check_expectations(statistics(sources), suite, sources).to_json() == results.to_json()

    # The document is GX's own.
    from drivetrain.data.expectations.gx import data_docs
    from great_expectations.core import expectationSuiteValidationResultSchema

    loaded = expectationSuiteValidationResultSchema.load(json.loads(results.to_json()))
    assert len(loaded.results) == 14
    page = data_docs(results, "bad")
    assert "ZZ_NEW" in page
    assert "expectation" in page.lower()


def test_results_of_every_way_are_gx_own(tmp_path: Path) -> None:
    from drivetrain.data.expectations.gx import data_docs
    from great_expectations.core import expectationSuiteValidationResultSchema

    markup = "<script>alert(1)</script><img src=x onerror='a&b'> url(http://a.example) @import b;"
    source = write(pa.table({"a": [3, 1, 2], "b": ["x", markup, "y"], f"x{markup}": [1, 2, 3]}), tmp_path / "a.parquet")
    query = "SELECT * FROM {batch} WHERE a > 1"
    suite = Suite(f"mine {markup}", (
        expect("column_values_to_be_in_set", column="b", value_set=["x", "y"]),
        expect("column_values_to_be_increasing", column="a"),
        expect("table_columns_to_match_ordered_list", column_list=[markup]),
        Expectation("unexpected_rows_expectation", {"unexpected_rows_query": query}),
    ))  # fmt: skip
    results = check_expectations(statistics({markup: source}), suite, {markup: source})
    assert results.ways == {"statistics": 2, "rows": 1, "sql": 1}
    loaded = expectationSuiteValidationResultSchema.load(json.loads(results.to_json()))
    assert not any(one["success"] for one in loaded["results"])
    page = data_docs(results, markup)
    assert remote(page) == []
    text = Text()
    text.feed(page)
    assert markup in text.parts  # as it is, and no markup
    assert "uf70" not in page  # what stands for markup while GX renders
    assert query in text.parts
    assert not re.search(r"@import|url\(", page.replace(html.escape(markup), ""))


@pytest.mark.parametrize(
    ("kind", "says"),
    [("be_in", "off: b"), ("contain", "missing: c"), ("equal", "off: b; missing: c")],
)
def test_data_docs_tell_the_values_that_are_off(kind: str, says: str, caplog: pytest.LogCaptureFixture) -> None:
    """GX 1.24's own renderer fails on them, and logs it."""
    from drivetrain.data.expectations.gx import data_docs

    suite = Suite("sets", (expect(f"column_distinct_values_to_{kind}_set", column="a", value_set=["a", "c"]),))
    results = check_expectations(statistics(pa.table({"a": ["a", "b"]})), suite)
    text = Text()
    text.feed(data_docs(results, "data"))
    assert says in text.parts
    assert not caplog.records


@pytest.mark.slow
@pytest.mark.browser
def test_pages_ask_nothing_of_the_network(tmp_path: Path) -> None:
    """Not even without the policy that forbids it."""
    from drivetrain.data.expectations.gx import data_docs
    from drivetrain.tests.report.browser import browser, chromium

    if chromium() is None:
        pytest.skip("there is no Chromium")
    nasty = (
        "<img src=//a.example/x.png><link rel=stylesheet href=http://a.example>\"' style='background:url(//a.example)'"
    )
    suite = Suite(nasty, (expect("column_values_to_be_in_set", column=nasty, value_set=["x"]),))
    results = check_expectations(statistics({nasty: pa.table({nasty: [nasty]})}), suite)
    policy = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')
    with browser() as tab:
        for page in (data_docs(results, nasty), results.to_html()):
            assert policy.search(page)
            (tmp_path / "page.html").write_text(policy.sub("", page), "utf-8")
            tab.open(tmp_path / "page.html")
            assert tab.ask("document.body.innerText").count(nasty) >= 2
        assert [url for url in tab.requests if not url.startswith(("file:", "about:"))] == []
        assert tab.complaints == []


def test_a_project_that_gx_wrote(tmp_path: Path) -> None:
    import great_expectations as gx

    made: Any = gx.expectations  # untyped names
    suite = gx.ExpectationSuite(name="orders", expectations=[
        made.ExpectColumnValuesToBeOfType(column="a", type_="int64"),
        made.ExpectColumnValuesToNotBeNull(column="a", mostly=0.9, severity="warning", notes="told by sales"),
        made.ExpectColumnValuesToBeBetween(column="a", min_value=1, strict_min=True),
        made.ExpectColumnMeanToBeBetween(column="a", max_value=3),
        made.UnexpectedRowsExpectation(unexpected_rows_query="SELECT * FROM {batch} WHERE a > 4", description="big"),
    ])  # fmt: skip
    gx.get_context(mode="file", project_root_dir=tmp_path).suites.add(suite)
    schema, left = schema_from_suite(tmp_path)
    feature = schema.feature("a")
    assert feature is not None
    assert (feature.type, feature.domain, feature.presence) == ("int", Range(2), Presence(0.9, 1))
    assert feature.severity["FEATURE_TYPE_LOW_FRACTION_PRESENT"] == "WARNING"
    assert [one.type for one in left] == ["expect_column_mean_to_be_between", "unexpected_rows_expectation"]
    assert left[1].meta == {"description": "big"}
    assert schema_from_yaml(schema_to_yaml(schema)) == schema
    # And GX reads what a schema writes.
    written = schema_to_expectations(schema, "back")
    again: Any = gx.ExpectationSuite(**written)
    assert [one.expectation_type for one in again.expectations] == [one["type"] for one in written["expectations"]]


class Text(html.parser.HTMLParser):
    """The texts of a page, as a browser shows them."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []

    def handle_data(self, data: str) -> None:
        self.parts.append(data.strip())


def test_nothing_leaves_this_machine(tmp_path: Path) -> None:
    code = """
import socket, sys
allowed = {"127.0.0.1", "::1", "localhost"}
def refuse(event, args):
    if event in ("socket.connect", "socket.sendto") and isinstance(args[1], tuple) and args[1][0] not in allowed:
        raise SystemExit(f"LEFT {args[1]}")
    if event == "socket.getaddrinfo" and args[0] not in allowed:
        raise SystemExit(f"LEFT {args[0]}")
sys.addaudithook(refuse)
import os, pyarrow as pa, pyarrow.parquet as pq
from drivetrain.data import open_files, statistics
from drivetrain.data.expectations.suite import read_suite
from drivetrain.data.expectations.check import check_expectations
pq.write_table(pa.table({"a": [2, 1]}), sys.argv[1])
source = {"data": open_files([sys.argv[1]])}
one = {"type": "expect_column_values_to_be_increasing", "kwargs": {"column": "a"}}
results = check_expectations(statistics(source), read_suite({"name": "s", "expectations": [one]}), source)
from drivetrain.data.expectations.gx import data_docs
assert data_docs(results, "data")
assert not results.passed and os.environ["GX_ANALYTICS_ENABLED"] == "false"
print("STAYED")
"""
    run = subprocess.run(  # a process of its own: what GX does at import counts
        [sys.executable, "-W", "ignore", "-c", code, str(tmp_path / "a.parquet")],
        capture_output=True, text=True, timeout=120, env={**os.environ, "GX_ANALYTICS_ENABLED": "true"}, check=False,
    )  # fmt: skip
    assert run.stdout.strip().endswith("STAYED"), run.stdout + run.stderr


@pytest.mark.parametrize("word", ["", "not_"])
def test_expressions_on_rows_take_linear_time(word: str, tmp_path: Path) -> None:
    """What GX finds by pandas, also where that would try 2^40 ways."""
    from drivetrain.data.expectations.gx import run_on_rows

    texts = ["a" * 40 + "é", "aaa", None, "é", "b b"]
    patterns = [r"^(?=\w)(\w+)+$", "^(?=a)(a+)+$", "b"]
    table = pa.table({"c": texts})
    source, present = write(table, tmp_path / "x.parquet"), [text for text in texts if text]
    source_statistics = statistics(source).state("data")
    lists = [
        expect(f"column_values_to_{word}match_regex_list", column="c", regex_list=patterns, **on)
        for on in ([{"match_on": "any"}, {"match_on": "all"}] if not word else [{}])
    ]
    single = [expect(f"column_values_to_{word}match_regex", column="c", regex=pattern) for pattern in patterns]
    outcomes = run_on_rows(source, source_statistics, dict(enumerate([*single, *lists])))
    quick = [r"^\w+$", "^a+$", "b"]  # of the same texts
    hits = [[re.search(pattern, text) is not None for text in present] for pattern in quick]
    columns = list(zip(*hits, strict=True))
    expected = [*hits, list(map(any, columns)), *([] if word else [list(map(all, columns))])]
    for index, matching in enumerate(expected):
        odd = [text for text, matches in zip(present, matching, strict=True) if matches is (word == "not_")]
        assert outcomes[index].result["partial_unexpected_list"] == odd, index


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"name": {"type": "string", "pattern": "^(?=a)(a+)+$"}}},
        {"patternProperties": {"^(a+)+$": {"type": "integer"}, "b": False}},
        {"patternProperties": {"^(a+)+$": {}}, "properties": {"b": {}}, "additionalProperties": False},
        {"patternProperties": {"^(a+)+$": {}}, "additionalProperties": {"pattern": "é"}},
        {"$ref": "#/$defs/name", "$defs": {"name": {"additionalProperties": {"pattern": "^(a|a)*$"}}}},
        {"$schema": "http://json-schema.org/draft-04/schema#", "additionalProperties": False, "properties": {"b": {}}},
    ],
)
def test_patterns_within_a_json_schema_take_linear_time(schema: dict[str, Any], tmp_path: Path) -> None:
    """As jsonschema finds them, also where that would try 2^40 ways."""
    import jsonschema
    from drivetrain.data.expectations.gx import run_on_rows

    long = "a" * 40 + "!"
    values = [{"name": "aaa"}, {"name": "é"}, {"aa": 1}, {"aa": "x", "b": 2}, {"b": "é"}, [], "a", 3, {long: long}]
    texts = [json.dumps(value) for value in values]
    source = write(pa.table({"c": texts}), tmp_path / "x.parquet")
    expectation = expect("column_values_to_match_json_schema", column="c", json_schema=schema)
    outcomes = run_on_rows(source, statistics(source).state("data"), {0: expectation})
    linear = json.loads(json.dumps(schema).replace("(?=a)(a+)+", "a+").replace("(a+)+", "a+").replace("(a|a)*", "a*"))
    draft = jsonschema.validators.validator_for(linear)  # of the same texts
    odd = [text for text, value in zip(texts, values, strict=True) if not draft(linear).is_valid(value)]
    assert outcomes[0].result["partial_unexpected_list"] == odd
    assert odd


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({"items": {"pattern": r"(a)\1"}}, "could take forever on some texts: it has a back reference"),
        ({"anyOf": [{"patternProperties": {r"(a)\1": {}}}]}, "could take forever on some texts"),
        ({"patternProperties": {"a": {}}, "unevaluatedProperties": False}, "write additionalProperties"),
        ({"items": {"$schema": "http://json-schema.org/draft-04/schema#"}}, "has a \\$schema of its own"),
    ],
)
def test_patterns_within_a_json_schema_that_could_take_forever_are_refused(
    schema: dict[str, Any], says: str, tmp_path: Path
) -> None:
    source = write(pa.table({"c": ["{}"]}), tmp_path / "x.parquet")
    suite = Suite("s", (expect("column_values_to_match_json_schema", column="c", json_schema=schema),))
    with pytest.raises(InputError, match=says):
        check_expectations(statistics(source), suite, {"data": source})
