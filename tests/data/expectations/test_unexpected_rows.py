"""SQL over rows against pandas' and Python's own counts; what a query may not do."""

from __future__ import annotations

import decimal
import json
import os
import signal
import socket
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from drivetrain.data import check_expectations, check_sql, open_files, read_suite, statistics
from drivetrain.errors import InputError
from drivetrain.tests.data.flights import month

EARLY = "SELECT * FROM {batch} WHERE arr_time < dep_time AND air_time < 60"


def results(data: Any, *queries: str, timeout: float = 60) -> list[dict[str, Any]]:
    return [one["result"] for one in check_sql(data, queries, timeout=timeout).document["results"]]


@pytest.fixture(scope="module")
def january(tmp_path_factory: pytest.TempPathFactory) -> tuple[pa.Table, Path]:
    table, folder = month(1), tmp_path_factory.mktemp("rows' data")
    pq.write_table(table.slice(0, 10_000), folder / "a.parquet", row_group_size=3_000)
    pq.write_table(table.slice(10_000), folder / "b.parquet", row_group_size=3_000)
    return table, folder


def test_every_kind_of_source_gives_the_same(january: tuple[pa.Table, Path], tmp_path: Path) -> None:
    table, folder = january
    frame = table.to_pandas()
    odd = frame[(frame.arr_time < frame.dep_time) & (frame.air_time < 60)]
    pairs = frame.groupby(["carrier", "flight", "day", "origin"]).size()
    queries = [
        EARLY,
        "SELECT carrier, flight, day, origin, count(*) AS n FROM data GROUP BY ALL HAVING n > 1 ORDER BY ALL",
        "SELECT l.day FROM data l JOIN data r ON l.day = r.day - 40",
    ]
    pyarrow.csv.write_csv(table.select(["arr_time", "dep_time", "air_time"]), tmp_path / "rows.csv")
    files = open_files(sorted(folder.glob("*.parquet")))
    found = [results(data, *queries) for data in (table, [str(folder / "a.parquet"), str(folder / "b.parquet")], files)]
    assert found[0] == found[1] == found[2]
    first, groups, none = found[0]
    assert first["observed_value"] == len(odd)
    assert [row["flight"] for row in first["details"]["unexpected_rows"]] == odd.flight[:20].tolist()
    assert groups["observed_value"] == int((pairs > 1).sum())
    assert none == {"observed_value": 0, "details": {"unexpected_rows": []}}
    assert results(str(tmp_path / "rows.csv"), EARLY)[0]["observed_value"] == len(odd)
    half = files.shards[: len(files.shards) // 2]  # part of a file: not what DuckDB would read
    some = type(files)(half, files.schema)
    count = sum(shard.rows for shard in half)
    assert results(some, "SELECT 1 FROM data")[0]["observed_value"] == count < len(frame)
    narrow = results(files.select(["day"]), "SELECT * FROM data WHERE day = 1")[0]
    assert set(narrow["details"]["unexpected_rows"][0]) == {"day"}


def test_in_a_suite(january: tuple[pa.Table, Path], tmp_path: Path) -> None:
    table, folder = january
    sources = {"data": open_files(sorted(folder.glob("*.parquet")))}
    suite = {
        "name": "mine",
        "expectations": [
            {"type": "expect_column_to_exist", "kwargs": {"column": "day"}},
            {"type": "unexpected_rows_expectation", "kwargs": {"unexpected_rows_query": EARLY}, "severity": "warning",
             "description": "lands before it starts"},
            {"type": "unexpected_rows_expectation",
             "kwargs": {"unexpected_rows_query": "SELECT * FROM {batch} WHERE day > 31;"}},
        ],
    }  # fmt: skip
    (tmp_path / "suite.json").write_text(json.dumps(suite))
    found = check_expectations(statistics(sources), read_suite(tmp_path / "suite.json"), sources)
    assert found.document["meta"]["drivetrain"]["evaluated_on"] == {"statistics": 1, "rows": 0, "sql": 2}
    assert [one["success"] for one in found.document["results"]] == [True, False, True]
    assert found.summary == "1 of 3 expectations not met (lands before it starts)"
    assert found.passed
    with pytest.raises(InputError, match="do not decide unexpected_rows_expectation"):
        check_expectations(statistics(table), read_suite(suite))


def test_half_a_character() -> None:
    with pytest.raises(InputError, match="has half a character"):
        check_sql(pa.table({"a": ["x"]}), ["SELECT * FROM data WHERE a = '\ud83d'"])


def test_values_are_json() -> None:
    table = pa.table({
        "when": pa.array([0], pa.timestamp("us", "UTC")), "bytes": pa.array([b"\xff\x00"]), "nan": [float("nan")],
        "list": [[1, 2]], "long": ["x" * 5000], "decimal": pa.array([decimal.Decimal("1.00")]), "quote\"d": [None],
    })  # fmt: skip
    found = check_sql(table, ["SELECT *, l.long FROM data l"])
    row = json.loads(found.to_json())["results"][0]["result"]["details"]["unexpected_rows"][0]
    assert row["bytes"] == "\\xff\\x00"
    assert row["nan"] == "nan"
    assert row["list"] == "[1, 2]"
    assert len(row["long"]) == 201
    assert row["decimal"] == "1.00"
    assert row['quote"d'] is None
    assert row["when"].startswith("1970-01-01 00:00:00")
    assert len(row) == 8


def test_times_that_python_has_none_of() -> None:
    """In whole columns, nested, and without end."""
    query = """SELECT d, [d] AS list, {'d': d} AS struct, MAP {'d': d} AS map, d::TIMESTAMP AS at,
               'infinity'::DATE IS NOT NULL AS known, d + 1 AS next FROM data"""
    (result,) = results(pa.table({"d": pa.array([6_585_442], pa.int32()).cast(pa.date32())}), query)
    assert result["details"]["unexpected_rows"] == [{
        "d": "20000-04-30", "list": "['20000-04-30']", "struct": "{'d': '20000-04-30'}",
        "map": "[{'key': 'd', 'value': '20000-04-30'}]", "at": "20000-04-30T00:00:00.000000", "known": True,
        "next": "20000-05-01",
    }]  # fmt: skip
    assert results(pa.table({"x": [1]}), "SELECT DATE 'infinity' AS d FROM data")[0]["observed_value"] == 1


def test_types_that_duckdb_reads_from_parquet_alone(tmp_path: Path) -> None:
    halves = pa.array([0.5, None, 1.5], pa.float16())
    table = pa.table({
        "half": halves, "list": pa.ListArray.from_arrays([0, 1, 1, 3], halves),
        "wide": pa.array([decimal.Decimal(10**45), None, decimal.Decimal(1)], pa.decimal256(50, 2)),
    })  # fmt: skip
    pq.write_table(table, tmp_path / "x.parquet")
    query = "SELECT * FROM data WHERE half > 1 OR wide > 2"
    (result,) = results(table, query)
    assert result["observed_value"] == 2
    assert result == results(tmp_path / "x.parquet", query)[0]


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("SELECT * FROM read_csv('{secret}')", "Permission Error"),
        ("SELECT * FROM '{secret}'", "Permission Error"),
        ("SELECT * FROM read_text('{secret}')", "Permission Error"),
        ("SELECT * FROM glob('/*')", "Permission Error"),
        ("SELECT * FROM read_parquet('http://127.0.0.1:{port}/x.parquet')", "Error"),
        ("COPY data TO '{secret}'", "not one SELECT"),
        ("ATTACH '{secret}'", "not one SELECT"),
        ("INSTALL httpfs", "not one SELECT"),
        ("SET threads = 8", "not one SELECT"),
        ("SELECT 1; DROP VIEW data", "not one SELECT"),
        ("SELECT * FROM table", "Parser Error"),
        ("SELECT * FROM secret", "Table with name secret does not exist"),  # a variable of this process
        ("SELECT nothing FROM data", 'Referenced column "nothing" not found'),
        ("SELECT {{x}} FROM {{batch}}", "in braces"),
        ("SELECT '{{batch.__class__}}' FROM {{batch}}", "in braces"),
        ("SELECT CASE WHEN range > 3000000 THEN 'x'::INT END FROM range(4000000)", "Could not convert string 'x'"),
    ],
)
def test_refused(query: str, says: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret.csv"
    secret.write_text("a\n1\n")
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.05)
        query = query.format(secret=secret, port=server.getsockname()[1])
        with pytest.raises(InputError, match=says) as caught:
            check_sql(pa.table({"a": [1]}), {"my check": query})
        with pytest.raises(TimeoutError):
            server.accept()  # nobody called
    assert "my check" in str(caught.value)
    assert secret.read_text() == "a\n1\n"


ENDLESS = ("max(x.a * y.a * z.a)", "x.a")  # before its first row; while its rows stream


@pytest.mark.parametrize("what", ENDLESS)
def test_out_of_time(what: str) -> None:
    before = set(threading.enumerate())
    query = f"SELECT {what} FROM data x, data y, data z, data w"
    with pytest.raises(InputError, match=r"'slow' took more than 0\.05 s"):
        check_sql(pa.table({"a": range(1000)}), {"slow": query}, timeout=0.05)
    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize("what", ENDLESS)
def test_ctrl_c(what: str) -> None:
    query = f"SELECT {what} FROM data x, data y, data z, data w"
    data = pa.table({"a": range(1000)})
    check_sql(data, ["SELECT a FROM data"])  # all is imported
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012 - the signal, too, may come only here
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
        check_sql(data, [query], timeout=250)


@pytest.mark.slow
def test_more_than_memory_spills(tmp_path: Path) -> None:
    from drivetrain.data.duckdb_session import open_session

    table = pa.table({"a": pa.array(range(2_000_000)), "b": pc.cast(pa.array(range(2_000_000)), pa.string())})
    pq.write_table(table, tmp_path / "big.parquet")
    session = open_session([tmp_path / "big.parquet"], scratch=tmp_path / "spill", memory=64 << 20)
    query = f"SELECT count(*) FROM (SELECT b, a FROM read_parquet('{tmp_path}/big.parquet') ORDER BY b DESC, a)"
    assert session.execute(query).fetchall() == [(2_000_000,)]


def test_a_single_query_needs_no_list() -> None:
    (result,) = check_sql(pa.table({"a": [1, -1]}), "SELECT * FROM data WHERE a < 0").document["results"]
    assert result["result"]["observed_value"] == 1
