"""Stores of every earlier schema, with data, are brought up to date on both databases; what was released stays."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import pytest
from drivetrain.metadata import MetadataStore, SchemaMismatch, StagedArtifact, database
from drivetrain.metadata.audit import verify
from drivetrain.metadata.dialect import parse
from drivetrain.metadata.journal import KEYS
from drivetrain.tests.metadata.conftest import StoreAddress

ROWS: Final[dict[str, list[dict[str, Any]]]] = json.loads(
    Path(__file__).with_name("schemas").joinpath("rows.json").read_text(encoding="utf-8")
)
"""Every row of a store of version 2, in an order in which they can be put in."""
SCHEMAS: Final = {
    "0001_core.sql": "1cbc211f221f0aed35e1ece4acdcc2b4859f523880c8d1d81adced200908aef5",
    "0002_journal.sql": "3fb6c9fc366fc3f0d1fc7ec57b949293826b0e4ac0d9d5bd4bc1304ae2d28c4f",
    "0003_lists_and_answers.sql": "3eb008a1bae0941a7896c5b2c3bfc787df8d18f69d00ddfdd4bac3ed4cb6a495",
    "postgres/0001_core.sql": "068f91a7ad88f6be56e704e9731e16488b785cf03a973ecabbd0b295c691a4ef",
    "postgres/0002_journal.sql": "ce92c9cb9f0e626b1a839e89026000633f48e5004c1c331df32b6804137985c8",
    "postgres/0003_lists_and_answers.sql": "833ab7e1486a73787a69dc8e711c4c92305118fdb1c78d88e36d19a8d7c9a233",
}
"""SHA-256 of each migration: stores have them, so one that is wrong is mended by another, and never changed."""
Older = Callable[[int], str | Path]


@pytest.fixture
def older(database_address: StoreAddress, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Older:
    """Makes a store as the release of a schema's version left it."""

    def make(version: int) -> str | Path:
        migrations, address = tmp_path / "migrations", database_address("metadata")
        shutil.copytree(database._MIGRATIONS, migrations)
        for path in migrations.rglob("0*.sql"):
            if int(path.name[:4]) > version:
                path.unlink()
        with monkeypatch.context() as patch:
            patch.setattr(database, "_MIGRATIONS", migrations)
            MetadataStore.open(address).close()
        with _unopened(address) as store:
            connection = store._db._connection()
            connection.execute("DELETE FROM schema_version")
            for table, table_rows in ROWS.items():
                for row in table_rows:
                    if table == "schema_version" and row["version"] > version:
                        continue
                    if table == "journal" and version < 2:
                        continue
                    names = ", ".join(f":{name}" for name in row)
                    connection.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({names})", row)
        return address

    return make


LATEST: Final = max(int(path.name[:4]) for path in database._MIGRATIONS.glob("0*.sql"))


def _unopened(address: str | Path) -> MetadataStore:
    """A store whose schema is not looked at."""
    return MetadataStore(database.Database(parse(address, readonly=False)))


@pytest.mark.parametrize("version", [1, 2])
def test_a_store_of_an_earlier_schema_is_brought_up_to_date_with_its_data(older: Older, version: int) -> None:
    address = older(version)
    with pytest.raises(SchemaMismatch, match=f"schema version {version}; this drivetrain writes {LATEST}"):
        MetadataStore.open(address)
    MetadataStore.open(address, upgrade=True).close()
    with MetadataStore.open(address) as store:
        assert store._db.versions() == (LATEST, LATEST)
        assert {(each.uri, each.properties["span"]) for each in store.artifacts(type="Model")} == {
            ("artifacts/Trainer/0/model", 0),
            ("artifacts/Trainer/1/model", 1),
        }
        newest = store.artifacts(type="Model")[0]
        assert len(store.lineage(newest).executions) == 2
        cached = store.find_cached("key-1")
        assert cached is not None
        assert store.outputs(cached)["model"] == [newest]
        assert [each.state for each in store.executions()] == ["FAILED", "CACHED", "COMPLETE", "COMPLETE"]
        assert [each.name for each in store.contexts("run", limit=1)] == ["run-1"]
        report = verify(store)
        assert report.findings == []
        assert report.rows == sum(len(ROWS[table]) for table in KEYS)


def test_an_upgraded_store_is_written_to_as_a_new_one(older: Older) -> None:
    address = older(1)
    MetadataStore.open(address, upgrade=True).close()
    with MetadataStore.open(address) as store:
        if isinstance(address, str):  # PostgreSQL counts by itself, and knows nothing of the ids that were put in
            for table in ("type", "artifact", "execution", "context"):
                top = f"SELECT setval(pg_get_serial_sequence('{table}', 'id'), max(id)) FROM {table}"
                store._db._connection().execute(top)
        execution = store.start("Trainer", inputs={"model": store.artifacts(type="Model")})
        store.publish(execution, {"model": [StagedArtifact("Model", "artifacts/new", "f" * 64, 1)]})
        assert store.lineage(execution).artifacts.keys() >= {1, 2}
        assert verify(store).findings == []


def test_what_was_released_is_never_changed() -> None:
    scripts = {
        str(path.relative_to(database._MIGRATIONS)): sha256(path.read_bytes()).hexdigest()
        for path in database._MIGRATIONS.rglob("0*.sql")
    }
    assert scripts == SCHEMAS
