"""Files that are not MLMD, or damaged, or too new or old: one clear error, and nothing of them in the store."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from drivetrain.errors import InputError
from drivetrain.metadata import MetadataStore
from drivetrain.metadata.mlmd import import_mlmd
from drivetrain.tests.metadata.mlmd.oracle import execute, make


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MetadataStore]:
    with MetadataStore.open(tmp_path / "metadata.db") as opened:
        yield opened


def refused(store: MetadataStore, path: Path, why: str) -> None:
    with pytest.raises(InputError, match=why) as raised:
        import_mlmd(store, path)
    assert raised.value.fix
    assert not store.artifacts(state=None)
    assert not store.executions()


def test_a_file_that_is_not_there(store: MetadataStore, tmp_path: Path) -> None:
    refused(store, tmp_path / "nowhere.sqlite", "there is no file")
    refused(store, tmp_path, "there is no file")


def test_a_file_that_is_no_database(store: MetadataStore, tmp_path: Path) -> None:
    path = tmp_path / "metadata.sqlite"
    path.write_text("this is not a database, but it is long enough to be read as one. " * 50)
    refused(store, path, "is not a SQLite database")
    path.write_bytes(b"")
    refused(store, path, "is not a store of ML Metadata")


def test_a_database_of_something_else(store: MetadataStore, tmp_path: Path) -> None:
    path = tmp_path / "other.sqlite"
    execute(path, "CREATE TABLE Artifact (id INTEGER)")
    refused(store, path, "is not a store of ML Metadata")
    refused(store, Path(store.location), "is a store of drivetrain's own")


@pytest.mark.parametrize(("version", "why"), [(11, "10 is the last known"), (5, "6 to 10 are read"), (0, "6 to 10")])
def test_another_schema(version: int, why: str, store: MetadataStore, tmp_path: Path) -> None:
    path = make(tmp_path, "tfx")
    execute(path, f"UPDATE MLMDEnv SET schema_version = {version}")
    refused(store, path, why)


def test_a_schema_that_is_not_said(store: MetadataStore, tmp_path: Path) -> None:
    path = make(tmp_path, "tfx")
    execute(path, "DELETE FROM MLMDEnv")
    refused(store, path, "does not say which MLMD schema")


def test_half_a_schema(store: MetadataStore, tmp_path: Path) -> None:
    path = make(tmp_path, "tfx")
    execute(path, "DROP TABLE EventPath")
    refused(store, path, "has no table EventPath")


def test_a_file_that_is_cut_short(store: MetadataStore, tmp_path: Path) -> None:
    path = make(tmp_path, "tfx")
    whole = path.read_bytes()
    for kept in (len(whole) // 2, len(whole) - 4096, 5000):
        path.write_bytes(whole[:kept])
        refused(store, path, "damaged|cannot be read")


def test_pages_that_are_overwritten(store: MetadataStore, tmp_path: Path) -> None:
    path = make(tmp_path, "tfx")
    body = bytearray(path.read_bytes())
    for page in range(2, len(body) // 4096):
        body[page * 4096 : page * 4096 + 64] = bytes(64)
    path.write_bytes(body)
    refused(store, path, "damaged|cannot be read")


def test_a_name_of_a_table_that_is_no_text(store: MetadataStore, tmp_path: Path) -> None:
    path = make(tmp_path, "tfx")
    path.write_bytes(path.read_bytes().replace(b"tableEventPath", b"tableEven\xffPath"))
    refused(store, path, "is damaged: 'utf-8' codec can't decode")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("UPDATE Artifact SET type_id = 777 WHERE id = 3", "artifact 3: its type 777 is not there"),
        ("UPDATE Context SET type_id = 777 WHERE id = 3", "context 3: its type 777 is not there"),
        ("UPDATE Artifact SET create_time_since_epoch = -1 WHERE id = 4", "artifact 4: -1 is not a time"),
        ("UPDATE Artifact SET create_time_since_epoch = 1e300 WHERE id = 4", "artifact 4: 1e.* is not a time"),
        ("UPDATE Artifact SET state = 'live' WHERE id = 5", "artifact 5: its state is 'live'"),
    ],
)
def test_rows_that_make_no_sense(change: str, why: str, tmp_path: Path) -> None:
    with MetadataStore.open(tmp_path / "metadata.db") as store:
        path = make(tmp_path, "tfx")
        execute(path, change)
        with pytest.raises(InputError, match=why) as raised:
            import_mlmd(store, path)
        assert str(path) in raised.value.message
        # The page that held it is not there at all; with the row mended, all of it comes.
        assert store.artifacts(state=None) == []
        assert import_mlmd(store, _mended(tmp_path)).artifacts == 30


def test_columns_that_are_gone_and_ids_that_are_text(store: MetadataStore, tmp_path: Path) -> None:
    path = make(tmp_path, "tfx")
    execute(path, "ALTER TABLE Event DROP COLUMN milliseconds_since_epoch")
    refused_by_import(store, path)
    path.unlink()
    path = make(tmp_path, "tfx")
    execute(path, "PRAGMA ignore_check_constraints = ON", "UPDATE Event SET artifact_id = 'x' WHERE id = 1")
    refused_by_import(store, path)


def refused_by_import(store: MetadataStore, path: Path) -> None:
    """Whatever came before is kept, as after an interruption."""
    with pytest.raises(InputError, match="holds what ML Metadata does not write"):
        import_mlmd(store, path)


def _mended(folder: Path) -> Path:
    (folder / "tfx.sqlite").unlink()
    return make(folder, "tfx")


def test_damaged_structures(store: MetadataStore, tmp_path: Path) -> None:
    path = make(tmp_path, "tfx")
    for text in ("mlmd-struct::!!!", "mlmd-struct::CgoKBG5vbm", "mlmd-struct:://///////////w=="):
        execute(path, f"UPDATE ArtifactProperty SET string_value = '{text}' WHERE name = 'blessed' AND artifact_id = 6")
        refused(store, path, "Artifact 6, property 'blessed' cannot be read")


def test_links_to_what_is_not_there_are_counted(store: MetadataStore, tmp_path: Path) -> None:
    path = make(tmp_path, "tfx")
    execute(
        path,
        "INSERT INTO Event VALUES (9000, 7777, 1, 3, 0), (9001, 1, 7777, 3, 0), (9002, 1, 9, 99, 0)",
        "INSERT INTO Association VALUES (9000, 7777, 1)",
        "INSERT INTO Attribution VALUES (9000, 1, 7777)",
        "INSERT INTO ParentContext VALUES (1, 7777), (1, 2)",  # the second closes a circle
    )
    assert import_mlmd(store, path).left_out == 5
    assert len(store.executions()) == 50


def test_names_that_we_do_not_store(store: MetadataStore, tmp_path: Path) -> None:
    path = make(tmp_path, "tfx")
    long = "ü" * 300
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE Type SET name = ? WHERE name = 'Model'", (f"Mo\0del{long}",))
        connection.execute("UPDATE Context SET name = ? WHERE id = 2", (long,))
        connection.execute("UPDATE Artifact SET uri = CAST(x'ff00fe' AS TEXT) WHERE id = 1")
        connection.execute("UPDATE ArtifactProperty SET double_value = 9e999 WHERE name = 'loss' AND artifact_id = 7")
    connection.close()
    import_mlmd(store, path)
    models = [model for model in store.artifacts(state=None) if model.type.startswith("Mo\\0")]
    assert len(models) == 5
    assert all(len(model.type) == 255 for model in models)
    assert {model.properties["mlmd"]["type"] for model in models} == {f"Mo\\0del{long}"}
    assert any(model.external == "\\xff\\0\\xfe" for model in store.artifacts(state=None))
    assert "inf" in [model.properties["mlmd"]["custom_properties"].get("loss") for model in models]


def test_a_file_that_may_only_be_read(store: MetadataStore, tmp_path: Path) -> None:
    folder = tmp_path / "readonly"
    folder.mkdir()
    path = make(folder, "tfx")
    path.chmod(0o444)
    folder.chmod(0o555)
    try:
        assert import_mlmd(store, path).artifacts == 30
    finally:
        folder.chmod(0o755)
    shutil.rmtree(folder)
