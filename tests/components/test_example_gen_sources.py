"""ExampleGen from where no local file lies: a query, a table in memory, a URI, images; and what of it is the key."""

from __future__ import annotations

import decimal
import os
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import drivetrain as dt
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from drivetrain import file_systems
from drivetrain.components.example_gen import ExampleGen
from drivetrain.components.import_schema import ImportSchema
from drivetrain.data import open_examples
from drivetrain.digest import digest_tree
from drivetrain.errors import BuildError, InputError
from drivetrain.metadata import Examples
from drivetrain.pipelines import Home, RunOptions, RunResult, load_pipeline, run_pipeline
from drivetrain.pipelines.launcher.observers import NullObserver
from drivetrain.pipelines.project.context import LaunchContext, enter
from drivetrain.redaction import redact
from drivetrain.tests.data.postgres import server  # noqa: F401 - a fixture
from drivetrain.tests.data.reading.test_remote import Web

Shop = Callable[..., tuple[Home, Callable[..., RunResult]]]


def rows(examples: Examples) -> list[dict[str, Any]]:
    sources = [open_examples(examples.content, split) for split in examples.rows]
    return [row for source in sources for shard in source.shards for b in source.read(shard) for row in b.to_pylist()]


@pytest.fixture(name="database")
def _database(tmp_path: Path) -> Path:
    path = tmp_path / "shop" / "sales.db"
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as database:
        database.execute("create table sales (id integer, price real, month integer)")
        database.executemany("insert into sales values (?, ?, ?)", [(i, i / 4, i % 3) for i in range(90)])
        database.commit()
    return path


def change(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.execute(statement)
        database.commit()


@pytest.fixture(name="shop")
def _shop(tmp_path: Path, project: Callable[..., Path]) -> Iterator[Shop]:
    homes = []

    def make(source: str, parameters: str = "") -> tuple[Home, Callable[..., RunResult]]:
        folder = project(
            "shop",
            pipeline=f"""
            import drivetrain as dt
            from drivetrain.components import ExampleGen, StatisticsGen

            @dt.pipeline
            def shop({parameters}) -> None:
                StatisticsGen(ExampleGen({source}))
            """,
        )
        home = Home(tmp_path / "home" / ".drivetrain")
        homes.append(home)
        return home, lambda *observer: run_pipeline(home, load_pipeline(folder), {}, RunOptions(), *observer)

    yield make
    for home in homes:
        home.close()


def states(result: RunResult) -> list[str]:
    return [node.state for node in result.nodes.values()]


def everything(root: Path) -> bytes:
    return b"\0".join(path.read_bytes() for path in root.rglob("*") if path.is_file())


def test_the_rows_of_a_query_are_the_key(database: Path, shop: Shop) -> None:
    query = 'dt.query("select * from sales where month = :month order by id", connection="sqlite:///sales.db",'
    home, run = shop(query + " parameters={'month': month})", "month: int = 1")
    result = run()
    assert states(result) == ["COMPLETE", "COMPLETE"]
    (record,) = result.nodes["ExampleGen"].outputs["examples"]
    got = rows(Examples.from_record(record, home.payloads.local(record.uri)))
    assert sorted(row["id"] for row in got) == [i for i in range(90) if i % 3 == 1]
    assert states(run()) == ["CACHED", "CACHED"]
    change(database, "update sales set price = 7 where id = 2")  # in another month
    assert states(run()) == ["CACHED", "CACHED"]
    change(database, "update sales set price = 7 where id = 1")
    assert states(run()) == ["COMPLETE", "COMPLETE"]


def test_a_watermark_saves_the_query(database: Path, shop: Shop) -> None:
    sql = "select * from sales order by id"
    _, run = shop(f'dt.query("{sql}", connection="sqlite:///sales.db", watermark="select max(id) from sales")')
    assert states(run()) == ["COMPLETE", "COMPLETE"]
    change(database, "update sales set price = 7")  # which the watermark does not see: so it was promised
    assert states(run()) == ["CACHED", "CACHED"]
    change(database, "insert into sales values (1000, 0.5, 1)")
    assert states(run()) == ["COMPLETE", "COMPLETE"]


def test_a_query_that_fails_fails_its_node(database: Path, shop: Shop) -> None:
    _, run = shop('dt.query("select absent from sales", connection="sqlite:///sales.db")')
    result = run()
    assert states(result) == ["FAILED", "BLOCKED"]
    assert "no such column: absent" in result.nodes["ExampleGen"].reason


def test_fetching_tells_how_far_it_is_and_can_be_stopped(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    web = Web()
    try:
        web.files = {"/a.csv": b"x\n" + b"1\n" * 500_000, "/b.csv": b"x\n1\n"}
        web.failures, web.failing = ["hang"] * 20, "/a.csv"
        # Another node beside it, so that neither runs in the main thread, which hears the signal
        home, run = shop(f'"{web.url}/a.csv")); (ExampleGen.options(id="Other")("{web.url}/b.csv"')
        told: list[tuple[int, int | None, str]] = []

        class Watch(NullObserver):
            def progress(self, node: str, done: int, total: int | None, unit: str) -> None:
                if total == 1_000_002 and done and not told:  # a second signal would not wait for the branches
                    told.append((done, total, unit))
                    os.kill(os.getpid(), signal.SIGTERM)

        with monkeypatch.context() as patch:
            patch.setattr(file_systems, "_HTTP_TIMEOUT", 0.3)
            assert run(lambda _: Watch()).state == "CANCELED"
        assert told[0][2] == "bytes fetched"
        assert {path.name for path in (home.root / "work" / "fetched").rglob("*.csv")} <= {"b.csv"}
        assert not list((home.root / "work" / "fetched").glob(".*"))
        web.failures.clear()
        web.released.set()
        assert run().nodes["ExampleGen"].state == "COMPLETE"
    finally:
        web.close()


def test_copies_that_no_run_uses_are_removed(tmp_path: Path, shop: Shop) -> None:
    web = Web()
    try:
        web.files = {"/a.csv": b"x\n" + b"1\n" * 100}
        home, run = shop(f'"{web.url}/a.csv"')
        assert states(run()) == ["COMPLETE", "COMPLETE"]
        fetched = home.root / "work" / "fetched"
        (copy,) = fetched.iterdir()
        for name, days in (("old", 8), ("new", 6), ("query-old", 2), (".old.tmp", 2), (".new.tmp", 0.1)):
            (fetched / name).mkdir() if "." not in name else (fetched / name).touch()
            then = time.time() - days * 86400
            os.utime(fetched / name, (then, then))
        os.utime(copy, (0, 0))
        busy = home.store.start("C")
        home.sweep()
        assert len(list(fetched.iterdir())) == 6  # while something runs, nothing is removed
        home.store.finish(busy, "FAILED")
        assert states(run()) == ["CACHED", "CACHED"]
        assert {path.name for path in fetched.iterdir()} == {copy.name, "new", ".new.tmp"}
        assert web.asked.count("GET /a.csv") == 2  # old as it was, the copy went; it was fetched, and is new
    finally:
        web.close()


@pytest.mark.postgres
def test_no_secret_is_written_anywhere(
    server: str,  # noqa: F811
    shop: Shop,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    secret = "hunter2%2Fslash"
    monkeypatch.setenv("SHOP_DB", server.replace("secret", secret))
    home, run = shop(
        'dt.query("select g, g * 0.5::float8 as h from generate_series(1, 99) g", connection="env:SHOP_DB")'
    )
    assert states(run()) == ["COMPLETE", "COMPLETE"]
    assert redact(f"{os.environ['SHOP_DB']} fails") == "*** fails"
    assert states(run()) == ["CACHED", "CACHED"]
    for broken in (
        "postgresql://me:hunter2/slash@h:x/db",
        server.replace("secret", secret).replace("/postgres", "/no"),
    ):
        monkeypatch.setenv("SHOP_DB", broken)
        result = run()
        assert states(result) == ["FAILED", "BLOCKED"]
        assert "env:SHOP_DB" in result.nodes["ExampleGen"].reason
        assert "hunter2" not in result.nodes["ExampleGen"].reason
    written = everything(home.root)
    assert b"SHOP_DB" in written
    assert b"hunter2" not in written
    assert "hunter2" not in "".join(capfd.readouterr())


@pytest.mark.parametrize(
    "connection",
    ["postgresql://me:hunter2@host/db", "postgresql://host/db?user=me&password=hunter2", "host=h password = hunter2"],
)
def test_a_password_in_a_pipeline_is_refused_and_not_shown(connection: str) -> None:
    with pytest.raises(InputError, match="environment variable") as caught:
        dt.query("select 1", connection=connection)
    assert "hunter2" not in str(caught.value)


def test_an_unset_variable_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SHOP_DB", raising=False)
    with pytest.raises(InputError, match="the environment variable SHOP_DB is not set"):
        ExampleGen(dt.query("select 1", connection="env:SHOP_DB"))


def test_a_table_in_memory_gives_what_its_file_does(tmp_path: Path) -> None:
    table = pa.table({"n": range(200), "s": [f"Nr. {i}" for i in range(200)]})
    pq.write_table(table, tmp_path / "x.parquet")
    expected = digest_tree(ExampleGen(str(tmp_path / "x.parquet")).content)
    for given in (table, table.to_pandas(), pa.RecordBatchReader.from_batches(table.schema, table.to_batches())):
        assert digest_tree(ExampleGen(given).content) == expected
    divided = ExampleGen({"train": table.slice(0, 150), "eval": table.slice(150).to_pandas()})
    assert divided.rows == {"train": 150, "eval": 50}
    assert rows(divided) == table.to_pylist()


@pytest.mark.beam
def test_a_table_gives_the_same_on_beam() -> None:
    pytest.importorskip("apache_beam")
    frame = pd.DataFrame({"n": range(100)})
    local = digest_tree(ExampleGen(frame).content)
    leave = enter(LaunchContext(executor="beam"))
    try:
        assert digest_tree(ExampleGen(frame).content) == local
    finally:
        leave()


def test_what_is_no_table_and_what_no_pipeline_can_hold(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the data is 3"):
        ExampleGen(3)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="null_values: a table in memory is read as it is"):
        ExampleGen(pa.table({"a": [1]}), null_values=["-"])
    with pytest.raises(InputError, match="the files of the split 'b' are"):
        ExampleGen({"a": "x.csv", "b": pa.table({"a": [1]})})

    @dt.pipeline
    def shop() -> None:
        ExampleGen(pd.DataFrame({"a": [1]}))

    @dt.pipeline
    def schema() -> None:
        ImportSchema(dt.query("select 1", connection="env:SHOP_DB"))  # type: ignore[arg-type]

    with pytest.raises(BuildError, match="'path' takes files, not a query"):
        schema.build()
    with pytest.raises(BuildError, match=r"a DataFrame in memory cannot be part of a pipeline.*\n  fix: write it"):
        shop.build()


def test_files_behind_a_uri_are_keyed_by_content(tmp_path: Path, shop: Shop) -> None:
    store = pytest.importorskip("fsspec").filesystem("memory")
    try:
        for month in (1, 2):
            store.pipe(f"/shop-test/{month}.csv", "".join(["n\n", *(f"{i * month}\n" for i in range(30))]).encode())
        _, run = shop('"memory://shop-test/*.csv"')
        assert states(run()) == ["COMPLETE", "COMPLETE"]
        assert states(run()) == ["CACHED", "CACHED"]
        for month in (1, 2):  # the same content elsewhere is the same work
            store.copy(f"/shop-test/{month}.csv", f"/shop-test/copy/{month}.csv")
        _, run = shop('"memory://shop-test/copy/*.csv"')
        assert states(run()) == ["CACHED", "CACHED"]
        store.pipe("/shop-test/copy/2.csv", b"n\n1\n2\n3\n")
        assert states(run()) == ["COMPLETE", "COMPLETE"]
        store.rm("/shop-test/copy", recursive=True)
        result = run()
        assert states(result) == ["FAILED", "BLOCKED"]
        assert "nothing matches memory://shop-test/copy/*.csv" in result.nodes["ExampleGen"].reason
    finally:
        store.store.clear()


def test_options_of_csv(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("zip,price,n\n00501,0.10,-\n10001,1234567890.05,3\n")
    examples = ExampleGen(
        str(path),
        splits={"all": 1},
        null_values=["-"],
        column_types={"zip": "string", "price": "decimal128(12, 2)", "n": "float64"},
    )
    assert rows(examples) == [
        {"zip": "00501", "price": decimal.Decimal("0.10"), "n": None},
        {"zip": "10001", "price": decimal.Decimal("1234567890.05"), "n": 3.0},
    ]
    for types, message in [
        ({"zip": "zipcode"}, "'zip' is declared 'zipcode', which names no type"),
        ({"city": "string"}, "has no column 'city'"),
        ({"n": "int64"}, r"x\.csv:2: column 'n' holds '-', not int64"),
        ({"price": "decimal128(4, 1)"}, r"x\.csv:3: column 'price' holds '1234567890.05'"),
    ]:
        with pytest.raises(InputError, match=message):
            ExampleGen(str(path), column_types=types)


def test_images_with_splits_of_their_own(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    for split, label, number in [("train", "a", 1), ("train", "b", 2), ("test", "a", 3)]:
        path = tmp_path / split / label / f"{number}.png"
        path.parent.mkdir(parents=True)
        image.new("L", (number, 1)).save(path)
    examples = ExampleGen({"train": f"{tmp_path}/train/*/*.png", "test": f"{tmp_path}/test/*/*.png"})
    assert [(row["label"], row["width"]) for row in rows(examples)] == [("a", 1), ("b", 2), ("a", 3)]
    assert examples.rows == {"train": 2, "test": 1}
    (tmp_path / "train/a/1.png").write_bytes(b"")
    notes: list[str] = []
    leave = enter(LaunchContext(note=notes.append))
    try:
        examples = ExampleGen(f"{tmp_path}/*/*/*.png", splits={"all": 1}, on_error="skip")
    finally:
        leave()
    assert examples.rows == {"all": 2}
    assert notes[0].startswith("1 of 3 images left out")
