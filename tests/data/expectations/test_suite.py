"""Suites are read without Great Expectations, and statistics decide what they can, exactly."""

from __future__ import annotations

import html
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from drivetrain.data import ExpectationResults, Source, open_files, statistics
from drivetrain.data.expectations.check import check_expectations
from drivetrain.data.expectations.suite import read_suite
from drivetrain.errors import InputError


def source(tmp_path: Path, **columns: Any) -> Source:
    pq.write_table(pa.table(columns), tmp_path / "data.parquet")
    return open_files([tmp_path / "data.parquet"])


def suite(*expectations: dict[str, Any]) -> dict[str, Any]:
    return {"name": "mine", "id": "7", "expectations": list(expectations), "meta": {}}


def expect(name: str, severity: str = "critical", **kwargs: Any) -> dict[str, Any]:
    return {"type": f"expect_{name}", "kwargs": kwargs, "id": "1", "severity": severity}


def test_read_from_a_project(tmp_path: Path) -> None:
    folder = tmp_path / "gx" / "expectations"
    folder.mkdir(parents=True)
    (tmp_path / "gx" / "great_expectations.yml").write_text("")
    (folder / ".ge_store_backend_id").write_text("no suite")
    (folder / "one.json").write_text(json.dumps(suite(expect("column_to_exist", column="a"))))
    assert read_suite(tmp_path).expectations[0].type == "expect_column_to_exist"
    (folder / "two.json").write_text(json.dumps(suite()))
    assert read_suite(tmp_path, "two").expectations == ()
    with pytest.raises(InputError, match="there are: one, two"):
        read_suite(tmp_path)
    with pytest.raises(InputError, match="no suite 'three'"):
        read_suite(tmp_path, "three")


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({"name": "x"}, "lists no expectations"),
        (suite({"kwargs": {}}), "expectation 1 has no type"),
        (suite(expect("column_to_exist", "grave", column="a")), "severity 'grave'"),
        (suite(expect("table_row_count_to_equal", value={"$PARAMETER": "rows"})), "suite parameter 'rows'"),
        (suite(expect("column_to_exist", column="a") | {"meta": 5}), "expectation 1 has the meta 5"),
        (suite() | {"meta": "x"}, "has the meta 'x'"),
    ],
)
def test_bad_suites(data: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        read_suite(data)


def test_a_suite_nested_without_end(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text("[" * 100_000)
    with pytest.raises(InputError, match="cannot be read"):
        read_suite(tmp_path / "s.json")


def test_a_suite_that_json_still_reads_is_bounded_too(tmp_path: Path) -> None:
    kwargs = '{"column": "a", "value_set": ' + "[" * 400 + "]" * 400 + "}"
    item = f'{{"type": "expect_column_values_to_be_in_set", "kwargs": {kwargs}}}'
    (tmp_path / "s.json").write_text(f'{{"name": "s", "expectations": [{item}]}}')
    with pytest.raises(InputError, match="nested too deeply"):
        read_suite(tmp_path / "s.json")


def test_a_misspelled_argument_is_no_pass() -> None:
    """GX refuses it; statistics leave it to GX."""
    found, wanted = statistics(pa.table({"a": [1, 2]})), expect("column_values_to_be_between", column="a", max_vale=1)
    with pytest.raises(InputError, match="do not decide expect_column_values_to_be_between of a"):
        check_expectations(found, read_suite(suite(wanted)))


@pytest.mark.parametrize("kwargs", [{"regex": r"(a)\1"}, {"regex_list": ["a", r"(a)\1"]}])
def test_an_expression_that_could_take_forever(kwargs: dict[str, Any]) -> None:
    """Refused before any row is read: there are none here."""
    kind = f"column_values_to_match_{next(iter(kwargs))}"
    with pytest.raises(InputError, match=f"expect_{kind} of a: the regular expression .* it has a back reference"):
        check_expectations(statistics(pa.table({"a": ["b"]})), read_suite(suite(expect(kind, column="a", **kwargs))))


def test_an_argument_that_json_has_no_word_for() -> None:
    found, wanted = statistics(pa.table({"a": [1]})), expect("column_max_to_be_between", column="a", max_value=math.nan)
    assert json.loads(check_expectations(found, read_suite(suite(wanted))).to_json())["success"] is False


def test_statistics_decide(tmp_path: Path) -> None:
    data = source(tmp_path, a=[1, 2, 2, None], b=["x", "y", "zz", "y"])
    wanted = suite(
        expect("column_values_to_be_in_set", column="b", value_set=["x", "y"], mostly=0.75),
        expect("column_values_to_be_between", "warning", column="a", max_value=1),
        expect("column_values_to_not_be_null", column="a"),
    )
    results = check_expectations(statistics(data), read_suite(wanted))
    first, second, third = results.document["results"]
    assert [first["success"], second["success"], third["success"]] == [True, False, False]
    assert first["result"]["partial_unexpected_counts"] == [{"value": "zz", "count": 1}]
    assert second["result"]["unexpected_percent"] == pytest.approx(200 / 3)
    assert third["result"]["unexpected_count"] == 1
    assert results.errors == 1
    assert not results.passed
    assert results.summary.startswith("2 of 3 expectations not met (column_values_to_not_be_null of a;")
    assert results.document["meta"]["drivetrain"]["evaluated_on"] == {"statistics": 3, "rows": 0, "sql": 0}
    assert '"id": "1"' not in results.to_json()


def test_results_are_kept_and_shown(tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    markup = "<b>&'\""
    data = source(tmp_path, a=[1, 2, 2, None], b=["x", markup, "zz", "y"])
    wanted = suite(
        expect("column_values_to_be_in_set", column="b", value_set=["x", "y"]),
        expect("column_max_to_be_between", "info", column="a", max_value=1),
        expect("column_values_to_not_be_null", column="gone"),
        expect("table_row_count_to_equal", value=4),
    )
    results = check_expectations(statistics(data), read_suite(wanted))
    results.save(tmp_path / "results.json")
    loaded = ExpectationResults.load(tmp_path / "results.json")
    assert loaded.to_json() == results.to_json()
    frame = loaded.to_pandas()
    assert frame["success"].tolist() == [False, False, False, True]
    assert frame["decided_by"].unique().tolist() == ["statistics"]
    assert frame["severity"].tolist() == ["critical", "info", "critical", "critical"]
    assert frame["unexpected_count"][0] == 2
    assert frame["observed_value"][1] == 2
    assert pd.isna(frame["column"][3])
    assert "does not exist" in frame["error"][2]
    page = loaded.to_html()
    assert html.escape(markup, quote=True) in page
    assert markup not in page
    assert "://" not in page.replace("http://www.w3.org/2000/svg", "")
    assert "srcdoc" in loaded._repr_html_()
    for bad in ("{}", "[", '{"results": [], "meta": {}}'):
        (tmp_path / "bad.json").write_text(bad)
        with pytest.raises(InputError, match=r"bad\.json"):
            ExpectationResults.load(tmp_path / "bad.json")


def test_sketches_decide_what_they_know(tmp_path: Path) -> None:
    data = source(tmp_path, a=list(range(100)))
    small = statistics(data, limit=10)
    wanted = suite(
        expect("column_values_to_be_between", column="a", min_value=0, max_value=99),
        expect("column_mean_to_be_between", column="a", min_value=49.5, max_value=49.5),
        expect("column_max_to_be_between", column="a", max_value=99),
    )
    assert check_expectations(small, read_suite(wanted)).document["success"]
    for name in ("median_to_be_between", "unique_value_count_to_be_between"):
        with pytest.raises(InputError, match="statistics of data do not decide"):
            check_expectations(small, read_suite(suite(expect(f"column_{name}", column="a", min_value=1))))


def test_no_heavy_import(tmp_path: Path) -> None:
    source(tmp_path, a=[1])
    code = """
import sys
from drivetrain.data import open_files, statistics
from drivetrain.data.expectations.suite import read_suite
from drivetrain.data.expectations.check import check_expectations
one = {"type": "expect_column_values_to_be_unique", "kwargs": {"column": "a"}}
suite = read_suite({"name": "s", "expectations": [one]})
assert check_expectations(statistics(open_files([sys.argv[1]])), suite).passed
assert not {"great_expectations", "pandas"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "data.parquet")], check=True, timeout=60)
