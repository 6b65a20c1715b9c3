"""Rows of a SQL query: SQLite for real, PostgreSQL against a server of its own."""

import pickle
import sqlite3
from contextlib import closing
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from drivetrain.data import Source
from drivetrain.data.reading import sql_rows
from drivetrain.data.reading.sql_rows import open_query
from drivetrain.errors import DrivetrainError, InputError
from drivetrain.tests.data.postgres import server  # noqa: F401 - a fixture


def rows(source: Source) -> list[dict[str, Any]]:
    return [row for shard in range(len(source.shards)) for batch in source.read(shard) for row in batch.to_pylist()]


def types(source: Source) -> dict[str, str]:
    return {field.name: str(field.type) for field in source.schema}


@pytest.fixture(name="database")
def _database(tmp_path: Path) -> Path:
    path = tmp_path / "my data.db"
    with closing(sqlite3.connect(path)) as database:
        database.execute("create table t (i integer, x real, s text, b blob, n text, w)")
        database.executemany(
            "insert into t values (?, ?, ?, ?, ?, ?)",
            [(2**63 - 1, 0.5, "ü", b"\xff", None, 1), (None, None, None, None, None, 2.5), (-1, 2.0, "", b"", None, 2)],
        )
        database.execute("create table bad (v)")
        database.executemany("insert into bad values (?)", [(1,), (None,), ("x",)])
        database.commit()
    return path


def test_sqlite_gives_its_values(database: Path, tmp_path: Path) -> None:
    source = open_query(f"sqlite:///{database}", "select * from t order by rowid", tmp_path / "rows")
    assert types(source) == {"i": "int64", "x": "double", "s": "string", "b": "binary", "n": "string", "w": "double"}
    expected = [
        {"i": 2**63 - 1, "x": 0.5, "s": "ü", "b": b"\xff", "n": None, "w": 1.0},
        {"i": None, "x": None, "s": None, "b": None, "n": None, "w": 2.5},
        {"i": -1, "x": 2.0, "s": "", "b": b"", "n": None, "w": 2.0},
    ]
    assert rows(source) == expected
    database.unlink()
    assert rows(pickle.loads(pickle.dumps(source))) == expected  # asked once, read as often as needed


def test_pandas_reads_the_same(database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql_rows, "_ROWS", 1)
    query = "select s, x, w from t order by rowid"
    with closing(sqlite3.connect(database)) as connection:
        expected = pd.read_sql_query(query, connection)
    source = open_query(f"sqlite:///{database}", query, tmp_path / "rows")
    assert len(source.shards) == 3
    pd.testing.assert_frame_equal(pd.DataFrame(rows(source)).astype(expected.dtypes), expected)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("select v from bad", "row 3: column 'v' holds string where rows before it have int64"),
        ("select absent from t", "the query failed: no such column: absent"),
        ("delete from t", "attempt to write a readonly database"),
        ("select * from t where i = 7", "gives no rows"),
        ("select i, i from t", "two columns are named 'i'"),
        ("select cast(b as text) from t", "Could not decode to UTF-8"),
        ("select 1; select 2", "one statement at a time"),
    ],
)
def test_what_cannot_be_read_is_an_error(database: Path, tmp_path: Path, query: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        open_query(f"sqlite:///{database}", query, tmp_path / "rows")
    assert message in str(caught.value)
    assert caught.value.fix


@pytest.mark.parametrize(
    ("query", "parameters"),
    [("select '\ud83d'", {}), ("select :x", {"x": "\ud83d"}), ("select :x", {"x": 2**70})],
    ids=["query", "text", "number"],
)
def test_what_no_driver_can_send(database: Path, tmp_path: Path, query: str, parameters: dict[str, object]) -> None:
    with pytest.raises(InputError, match="the query failed"):
        open_query(f"sqlite:///{database}", query, tmp_path / "rows", parameters=parameters)


def test_no_such_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="no such database file"):
        open_query(f"sqlite:///{tmp_path}/none.db", "select 1", tmp_path)
    with pytest.raises(InputError, match="mysql://host/db: not a kind of database") as caught:
        open_query("mysql://me:secret@host/db", "select 1", tmp_path)
    assert "secret" not in str(caught.value)
    monkeypatch.setitem(__import__("sys").modules, "psycopg", None)
    with pytest.raises(DrivetrainError, match=r"drivetrain\[postgres\]"):
        open_query("postgresql://host/db", "select 1", tmp_path)


@pytest.mark.postgres
def test_postgresql_gives_its_values(server: str, tmp_path: Path) -> None:  # noqa: F811
    query = """
        select * from (values
            (1::bigint, 0.1::float8, 1.25::numeric, 'ü', true, date '2013-01-02', timestamptz '2013-01-02 07:00+02',
             array[1, null], '{"a": 1}'::jsonb, '\\xff'::bytea, '00000000-0000-0000-0000-000000000001'::uuid),
            (null, 'nan', null, null, null, null, null, null, null, null, null)
        ) as t (i, x, d, s, b, day, at, l, j, y, u)"""
    source = open_query(server, query, tmp_path)
    assert list(types(source).values()) == [
        *("int64", "double", "double", "string", "bool", "date32[day]", "timestamp[us, tz=UTC]"),
        *("list<element: int64>", "string", "binary", "string"),
    ]
    first, second = rows(source)
    assert list(first.values()) == [
        *(1, 0.1, 1.25, "ü", True, date(2013, 1, 2), datetime(2013, 1, 2, 5, tzinfo=UTC), [1, None]),
        *('{"a": 1}', b"\xff", "00000000-0000-0000-0000-000000000001"),
    ]
    assert second.pop("x") != first["x"]
    assert set(second.values()) == {None}


@pytest.mark.postgres
def test_numeric_is_exact_or_told(server: str, tmp_path: Path) -> None:  # noqa: F811
    query = """
        select p::numeric(20, 2), x from (
            select null as p, null as x from generate_series(1, 20000)
            union all select 123456789012345678.25, 0.1 union all select -0.05, 9007199254740992
        ) as t"""
    source = open_query(server, query, tmp_path)
    assert types(source) == {"p": "decimal128(20, 2)", "x": "double"}
    assert [list(row.values()) for row in rows(source)[20000:]] == [
        [Decimal("123456789012345678.25"), 0.1],
        [Decimal("-0.05"), 2.0**53],
    ]
    with pytest.raises(InputError, match=r"the query's row 2: column 'x' holds 9007199254740993, which float64 rounds"):
        open_query(server, "select 1::numeric as x union all select 9007199254740993", tmp_path)
    with pytest.raises(InputError, match="the query's column 'p' cannot be read as decimal"):
        open_query(server, "select 'nan'::numeric(5, 2) as p", tmp_path)


def test_whole_numbers_that_fractions_would_round_are_told(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "x.db")) as connection:
        connection.execute("create table t (v)")
        connection.executemany("insert into t values (?)", [(0.5,), (2**53,), (2**53 + 1,)])
        with pytest.raises(InputError, match=r"row 3: column 'v' holds 9007199254740993, which float64 rounds"):
            open_query(connection, "select v from t order by rowid", tmp_path / "rows")


@pytest.mark.postgres
def test_postgresql_streams_and_tells_errors_without_the_password(server: str, tmp_path: Path) -> None:  # noqa: F811
    source = open_query(server, "select g as g, g / 2.0 as h from generate_series(1, 50000) g", tmp_path)
    assert len(source.shards) == 4
    assert sum(row["g"] for row in rows(source)) == 50000 * 50001 // 2
    for query, message in [
        ("select absent", "does not exist"),
        ("create table t ()", "syntax error"),  # a cursor takes nothing but a query
        ("select 1 / (g - 20000) from generate_series(1, 50000) g", "failed after row 16384: division by zero"),
    ]:
        with pytest.raises(InputError, match=message) as caught:
            open_query(server, query, tmp_path)
        assert "secret" not in str(caught.value)
    with pytest.raises(InputError, match="cannot be opened") as caught:
        open_query(server.replace("/postgres", "/none"), "select 1", tmp_path)
    assert "secret" not in str(caught.value)


def test_open_connections_of_other_drivers(database: Path, tmp_path: Path) -> None:
    query = "select i, x, s from t order by rowid"
    expected = rows(open_query(f"sqlite:///{database}", query, tmp_path / "url"))
    with closing(sqlite3.connect(database)) as connection:
        assert rows(open_query(connection, query, tmp_path / "dbapi")) == expected
        assert connection.execute("select 1").fetchone() == (1,)  # still open
    adbc = pytest.importorskip("adbc_driver_sqlite.dbapi")
    with closing(adbc.connect(str(database))) as connection:
        source = open_query(connection, query, tmp_path / "adbc")
        assert rows(source) == expected
        assert types(source) == {"i": "int64", "x": "double", "s": "string"}
        with pytest.raises(InputError, match=r"the adbc_driver_\w+ connection: the query failed.*absent"):
            open_query(connection, "select absent from t", tmp_path / "bad")
        with pytest.raises(InputError, match="the query gives no rows"):
            open_query(connection, "select * from t where i = 7", tmp_path / "none")
        with pytest.raises(InputError, match="two columns are named 'i'"):
            open_query(connection, "select i, i from t", tmp_path / "twice")


def test_duckdb_gives_arrow(tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    with closing(duckdb.connect()) as connection:
        query = "select g, g::decimal(20, 2) / 4 as d, [g] as l from range($low, 5) r(g) order by g"
        source = open_query(connection, query, tmp_path, parameters={"low": 3})
    assert [row["g"] for row in rows(source)] == [3, 4]
    assert types(source)["l"] == "list<element: int64>"


def test_parameters_are_bound(database: Path, tmp_path: Path) -> None:
    found = open_query(
        f"sqlite:///{database}",
        "select s from t where s = :s",
        tmp_path,
        parameters={"s": "ü"},
    )
    assert rows(found) == [{"s": "ü"}]
    with pytest.raises(InputError, match="gives no rows"):
        open_query(f"sqlite:///{database}", "select s from t where s = :s", tmp_path, parameters={"s": "' or 1=1 --"})


def test_a_variable_names_the_database(database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_DB", f"sqlite:///{database}")
    assert len(rows(open_query("env:SHOP_DB", "select * from t", tmp_path))) == 3
    for secret in ("mysql://me:hunter2@h/d", "host=h password=hunter2", "postgresql://me:hunter2/x@h:port/d"):
        monkeypatch.setenv("SHOP_DB", secret)
        with pytest.raises(InputError, match="env:SHOP_DB") as caught:
            open_query("env:SHOP_DB", "select 1", tmp_path)
        assert "hunter2" not in str(caught.value)
        with pytest.raises(InputError) as caught:
            open_query(secret, "select 1", tmp_path)
        assert "hunter2" not in str(caught.value)
