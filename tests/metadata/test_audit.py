"""An edit with the database's own shell is found and named; the chain holds whatever the store does."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from drivetrain.metadata import ArtifactRecord, ExecutionRecord, MetadataStore, StagedArtifact, StateError
from drivetrain.metadata.audit import AuditFinding, AuditHead, head, verify
from drivetrain.metadata.backup import upgrade
from drivetrain.metadata.journal import KEYS
from drivetrain.tests.metadata.conftest import StoreAddress, WrittenOnce
from hypothesis import given, settings
from hypothesis import strategies as st

Shell = Callable[..., list[tuple[Any, ...]]]

TRIGGERS = (
    "journal_goes_on",
    "journal_is_not_changed",
    "journal_is_not_shortened",
    "event_output_is_new",
    "event_inputs_first",
    "event_is_fixed",
)


def new(name: str, **properties: object) -> StagedArtifact:
    return StagedArtifact("Model", f"artifacts/{name}", "f" * 64, 3, properties)


def live(store: MetadataStore) -> None:
    """A small history with something of everything."""
    pipeline = store.context("pipeline", "flights")
    run = store.context("run", "r1", {"state": "RUNNING"}, [pipeline])
    node = store.context("node", "flights.Trainer", parents=[pipeline])
    store.context("approval", "r1/Approve", {"approved": False, "by": "ann"})
    store.context("run", "r0", {"state": "COMPLETE"})
    claim = store.claim("key-1")
    assert claim is not None
    make = store.start("Make", contexts=[pipeline, run], cache_key="key-1", preimage={"code": "abc"})
    rows = store.publish(make, {"rows": [new("rows", span=3)]}, claim=claim)["rows"][0]
    train = store.start("Train", name="the one", contexts=[pipeline, run, node], inputs={"rows": [rows]})
    store.publish(train, {"model": [new("model", auc=0.9)]}, properties={"seconds": 2})
    failed = store.start("Train", contexts=[run], inputs={"rows": [rows]})
    store.finish(failed, "FAILED", error="ValueError: no")
    store.record("Make", "CACHED", contexts=[run], cached_from=store.execution(make.id))
    store.record("Extra", "SKIPPED")
    store.start("Slow")
    store.update_context(run, {"state": "COMPLETE"})
    store.update_artifact(rows, properties={"blessed": True})


def live_at(where: str | Path) -> None:
    with MetadataStore.open(where) as store:
        live(store)


@pytest.fixture
def address(database_address: StoreAddress, written_once: WrittenOnce) -> str | Path:
    """Where a store with a history lies."""
    written_once(database_address("metadata"), live_at)
    return database_address("metadata")


@pytest.fixture
def shell(database_address: StoreAddress) -> Shell:
    """Runs SQL by the database's own driver, as who owns the database may: without its triggers and foreign keys."""
    where = database_address("metadata")

    def run(*statements: str) -> list[tuple[Any, ...]]:
        if isinstance(where, Path):
            with closing(sqlite3.connect(where)) as connection, connection:
                for trigger in TRIGGERS:
                    connection.execute(f"DROP TRIGGER IF EXISTS {trigger}")
                return [connection.execute(statement).fetchall() for statement in statements][-1]
        import psycopg

        with psycopg.connect(where) as session:
            session.execute("SET session_replication_role = replica")
            for statement in statements:
                cursor = session.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    return run


def findings(where: str | Path, known: AuditHead | None = None) -> list[AuditFinding]:
    with MetadataStore.open(where, readonly=True) as store:
        return verify(store, known).findings


def brief(reported: list[AuditFinding]) -> list[tuple[str, str, str, tuple[str, ...]]]:
    return [(finding.kind, finding.table, finding.key, finding.columns) for finding in reported]


Edit = tuple[str, list[tuple[str, str, str, tuple[str, ...]]]]


def changed(table: str, key: str, *columns: str) -> list[tuple[str, str, str, tuple[str, ...]]]:
    return [("changed", table, key, columns)]


def gone(table: str, key: str, kind: str = "deleted") -> list[tuple[str, str, str, tuple[str, ...]]]:
    return [(kind, table, key, ())]


ROW_EDITS: list[Edit] = [
    # -- update
    ("UPDATE execution SET state = 'COMPLETE' WHERE id = 3", changed("execution", "3", "state")),
    ("UPDATE execution SET error = 'ValueError: yes' WHERE id = 3", changed("execution", "3", "error")),
    ("UPDATE execution SET error = NULL WHERE id = 3", changed("execution", "3", "error")),
    ("UPDATE execution SET properties = '{}' WHERE id = 2", changed("execution", "2", "properties")),
    ("UPDATE execution SET properties = '{\"seconds\": 2}' WHERE id = 2", changed("execution", "2", "properties")),
    ("UPDATE execution SET owner = NULL WHERE id = 1", changed("execution", "1", "owner")),
    ("UPDATE execution SET cache_key = 'key-2' WHERE id = 1", changed("execution", "1", "cache_key")),
    ("UPDATE execution SET name = 'another' WHERE id = 2", changed("execution", "2", "name")),
    ("UPDATE execution SET started_at = started_at - 1 WHERE id = 2", changed("execution", "2", "started_at")),
    (
        "UPDATE execution SET finished_at = 7, updated_at = 7, version = 9 WHERE id = 2",
        changed("execution", "2", "version", "finished_at", "updated_at"),
    ),
    ("UPDATE execution SET cached_from = 2 WHERE id = 4", changed("execution", "4", "cached_from")),
    ("UPDATE execution SET uid = '2' WHERE id = 2", changed("execution", "2", "uid")),
    ("UPDATE execution SET id = 70 WHERE id = 5", [*gone("execution", "70", "inserted"), *gone("execution", "5")]),
    ("UPDATE artifact SET fingerprint = 'e' WHERE id = 2", changed("artifact", "2", "fingerprint")),
    ("UPDATE artifact SET size = 4 WHERE id = 2", changed("artifact", "2", "size")),
    ("UPDATE artifact SET uri = 'artifacts/other' WHERE id = 1", changed("artifact", "1", "uri")),
    ("UPDATE artifact SET state = 'DELETED' WHERE id = 2", changed("artifact", "2", "state")),
    ("UPDATE artifact SET properties = '{\"auc\":0.99}' WHERE id = 2", changed("artifact", "2", "properties")),
    ("UPDATE artifact SET producer_id = NULL WHERE id = 2", changed("artifact", "2", "producer_id")),
    (
        "UPDATE artifact SET type_id = (SELECT id FROM type WHERE name = 'Make') WHERE id = 2",
        changed("artifact", "2", "type_id"),
    ),
    (
        'UPDATE context SET properties = \'{"approved":true,"by":"ann"}\' WHERE name = \'r1/Approve\'',
        changed("context", "4", "properties"),
    ),
    ("UPDATE context SET name = 'r2' WHERE id = 2", changed("context", "2", "name")),
    ("UPDATE context SET created_at = 0 WHERE id = 2", changed("context", "2", "created_at")),
    ("UPDATE event SET artifact_id = 2 WHERE execution_id = 3", changed("event", "3/INPUT/rows/0", "artifact_id")),
    ("UPDATE event SET at = 1 WHERE execution_id = 1", changed("event", "1/OUTPUT/rows/0", "at")),
    (
        "UPDATE event SET key = 'x/y' WHERE execution_id = 3",
        [*gone("event", "3/INPUT/x/y/0", "inserted"), *gone("event", "3/INPUT/rows/0")],
    ),
    (
        "UPDATE association SET context_id = 5 WHERE context_id = 2 AND execution_id = 3",
        [*gone("association", "5/3", "inserted"), *gone("association", "2/3")],
    ),
    ("UPDATE type SET name = 'Trained' WHERE name = 'Train'", changed("type", "*", "name")),
    ("UPDATE cache_preimage SET preimage = '{}'", changed("cache_preimage", "key-1", "preimage")),
    # -- delete
    ("DELETE FROM execution WHERE id = 5", gone("execution", "5")),
    ("DELETE FROM artifact WHERE id = 2", gone("artifact", "2")),
    ("DELETE FROM context WHERE id = 4", gone("context", "4")),
    ("DELETE FROM context_parent WHERE child_id = 2", gone("context_parent", "1/2")),
    ("DELETE FROM event WHERE direction = 'INPUT' AND execution_id = 2", gone("event", "2/INPUT/rows/0")),
    ("DELETE FROM association WHERE context_id = 2 AND execution_id = 3", gone("association", "2/3")),
    ("DELETE FROM attribution WHERE context_id = 3", gone("attribution", "3/2")),
    ("DELETE FROM cache_preimage", gone("cache_preimage", "key-1")),
    # -- insert
    (
        "INSERT INTO execution (id, uid, type_id, state, properties, created_at, updated_at) "
        "SELECT 80, 'u', type_id, 'COMPLETE', '{}', 1, 1 FROM execution WHERE id = 1",
        gone("execution", "80", "inserted"),
    ),
    (
        "INSERT INTO artifact (id, uid, type_id, uri, fingerprint, size, state, properties, created_at, updated_at) "
        "SELECT 80, 'u', type_id, 'artifacts/u', 'f', 1, 'LIVE', '{}', 1, 1 FROM artifact WHERE id = 1",
        gone("artifact", "80", "inserted"),
    ),
    (
        "INSERT INTO context (id, uid, type_id, name, properties, created_at, updated_at) "
        "SELECT 80, 'u', type_id, 'r0/Approve', '{\"approved\":true}', 1, 1 FROM context WHERE id = 4",
        gone("context", "80", "inserted"),
    ),
    ("INSERT INTO event VALUES (5, 'INPUT', 'rows', 0, 1, 1)", gone("event", "5/INPUT/rows/0", "inserted")),
    ("INSERT INTO association VALUES (5, 2)", gone("association", "5/2", "inserted")),
    ("INSERT INTO attribution VALUES (5, 2)", gone("attribution", "5/2", "inserted")),
]


@pytest.mark.parametrize(("statement", "expected"), ROW_EDITS, ids=[statement[:60] for statement, _ in ROW_EDITS])
def test_an_edit_of_a_row_is_found_and_named(
    statement: str, expected: list[tuple[str, str, str, tuple[str, ...]]], address: str | Path, shell: Shell
) -> None:
    assert findings(address) == []
    shell(statement)
    reported = findings(address)
    assert [(kind, table, key if key_ != "*" else key_, columns) for (kind, table, key, columns), (_, _, key_, _) in
            zip(brief(reported), expected, strict=True)] == expected  # fmt: skip
    for finding in reported:
        assert finding.table in finding.text
        assert finding.kind == "inserted" or (
            finding.entry and finding.at and f"entry is {finding.entry} (" in finding.text
        )
        assert all(column in finding.text for column in finding.columns)


def test_a_row_is_named_by_its_uid_or_what_it_links(address: str | Path, shell: Shell) -> None:
    with MetadataStore.open(address, readonly=True) as store:
        uid = store.execution(5).uid, store.execution(3).uid
    shell("DELETE FROM execution WHERE id = 5", "DELETE FROM event WHERE execution_id = 3", "DELETE FROM association")
    reported = findings(address)
    assert [finding.name for finding in reported[:2]] == [uid[0], f"execution {uid[1]}"]
    assert {finding.name for finding in reported[2:]} == {"context flights", "context r1", "context flights.Trainer"}


def last(shell: Shell) -> int:
    return int(shell("SELECT max(number) FROM journal")[0][0])


JOURNAL_EDITS = {
    "who": ("UPDATE journal SET actor = 'somebody else' WHERE number = 7", [7]),
    "when": ("UPDATE journal SET at = at + 1 WHERE number = 7", [7]),
    "what for": ("UPDATE journal SET verb = 'upgrade' WHERE number = 7", [7]),
    "what": ("UPDATE journal SET changes = replace(changes, '\"insert\"', '\"update\"') WHERE number = 7", [7]),
    "its hash": ("UPDATE journal SET hash = substr(hash, 2) || substr(hash, 1, 1) WHERE number = 7", [7, 8]),
    "one taken out": ("DELETE FROM journal WHERE number = 7", [7]),
    "the first taken out": ("DELETE FROM journal WHERE number = 1", [1]),
    "several taken out": ("DELETE FROM journal WHERE number IN (6, 7, 8)", [6]),
    "no JSON": ("UPDATE journal SET changes = '[' WHERE number = 7", [7, 7]),
}


@pytest.mark.parametrize("edit", JOURNAL_EDITS)
def test_an_edit_of_the_journal_is_found_by_its_entry(edit: str, address: str | Path, shell: Shell) -> None:
    statement, entries = JOURNAL_EDITS[edit]
    shell(statement)
    reported = [finding for finding in findings(address) if finding.kind == "entry"]
    assert [finding.entry for finding in reported] == entries
    assert all(str(finding.entry) in finding.text for finding in reported)


def test_entries_in_another_order_are_found(address: str | Path, shell: Shell) -> None:
    shell(
        "UPDATE journal SET number = -1 WHERE number = 7",
        "UPDATE journal SET number = 7 WHERE number = 8",
        "UPDATE journal SET number = 8 WHERE number = -1",
    )
    assert [finding.entry for finding in findings(address) if finding.kind == "entry"] == [7, 8, 9]


def test_an_entry_taken_out_and_the_others_moved_up_is_found(address: str | Path, shell: Shell) -> None:
    end = last(shell)
    moves = [f"UPDATE journal SET number = {number - 1} WHERE number = {number}" for number in range(8, end + 1)]
    shell("DELETE FROM journal WHERE number = 7", *moves)
    assert [finding.entry for finding in findings(address) if finding.kind == "entry"] == [7]


def test_an_entry_put_in_at_the_end_is_found(address: str | Path, shell: Shell) -> None:
    shell(
        "INSERT INTO journal SELECT number + 1, at, actor, verb, changes, hash FROM journal "
        "WHERE number = (SELECT max(number) FROM journal)"
    )
    assert [finding.entry for finding in findings(address) if finding.kind == "entry"] == [last(shell)]


def forge(shell: Shell, first: int) -> None:
    """Make the chain whole from an entry on, as who knows how it is computed may."""
    rows = shell("SELECT number, at, actor, verb, changes, hash FROM journal ORDER BY number")
    before = rows[first - 2][5] if first > 1 else ""
    for number, at, actor, verb, changes, _ in rows[first - 1 :]:
        before = hashlib.sha256(f"{before}\n{at}\n{actor}\n{verb}\n{changes}".encode()).hexdigest()
        shell(f"UPDATE journal SET hash = '{before}' WHERE number = {number}")


def test_beside_a_head_that_was_kept_a_cut_end_is_found(address: str | Path, shell: Shell) -> None:
    with MetadataStore.open(address) as store:
        known = head(store)
        run = store.context("run", "late")
    end = known.entries
    assert findings(address, known) == []
    shell(f"DELETE FROM journal WHERE number > {end}", f"DELETE FROM context WHERE id = {run.id}")
    assert findings(address, known) == []  # what came after the head has no witness
    shell(f"DELETE FROM journal WHERE number = {end}")
    (*_, reported) = [finding for finding in findings(address, known) if finding.kind == "head"]
    assert f"entries {end} to {end}" in reported.text


def test_beside_a_head_that_was_kept_a_history_written_anew_is_found(address: str | Path, shell: Shell) -> None:
    with MetadataStore.open(address) as store:
        known = head(store)
    shell("UPDATE journal SET actor = 'somebody else' WHERE number = 7")
    forge(shell, 7)
    assert findings(address) == []  # the chain is whole
    (reported,) = findings(address, known)
    assert (reported.kind, reported.entry) == ("head", known.entries)
    assert "written anew" in reported.text
    shell("UPDATE journal SET actor = 'somebody else' WHERE number = 1")
    forge(shell, 1)
    (reported,) = findings(address, known)
    assert "another store" in reported.text


def test_a_row_put_back_to_an_earlier_version_is_found(address: str | Path, shell: Shell) -> None:
    with MetadataStore.open(address) as store:
        before = shell("SELECT CAST(properties AS TEXT), version, updated_at FROM artifact WHERE id = 2")[0]
        artifact = store.artifact(2)
        store.update_artifact(artifact, properties={"blessed": False})
    shell(
        f"UPDATE artifact SET properties = '{before[0]}', version = {before[1]}, updated_at = {before[2]} WHERE id = 2"
    )
    assert brief(findings(address)) == changed("artifact", "2", "properties", "version", "updated_at")


def test_bytes_that_are_no_text_are_found(tmp_path: Path) -> None:
    path = tmp_path / "metadata.db"
    with MetadataStore.open(path) as store:
        live(store)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE execution SET error = CAST(x'7B22C322' AS TEXT) WHERE id = 3")
        connection.execute("UPDATE cache_preimage SET cache_key = CAST(x'C322' AS TEXT)")
    assert brief(findings(path)) == [
        ("changed", "execution", "3", ("error",)),
        ("inserted", "cache_preimage", '\\udcc3"', ()),
        ("deleted", "cache_preimage", "key-1", ()),
    ]


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE journal SET actor = 'me'",
        "DELETE FROM journal",
        "DELETE FROM journal WHERE number = (SELECT max(number) FROM journal)",
        "INSERT INTO journal SELECT number + 5, at, actor, verb, changes, hash FROM journal WHERE number = 1",
        "",
    ],
)
def test_the_database_refuses_to_change_the_journal(statement: str, address: str | Path) -> None:
    if isinstance(address, Path):  # what deletes without asking the triggers of DELETE
        statement = (
            statement or "INSERT OR REPLACE INTO journal SELECT number, at, 'me', verb, changes, hash FROM journal"
        )
        with closing(sqlite3.connect(address)) as connection, pytest.raises(sqlite3.Error, match="drivetrain: "):
            connection.execute(statement)
    else:
        import psycopg

        statement = statement or "TRUNCATE journal"
        with psycopg.connect(address) as connection, pytest.raises(psycopg.Error, match="drivetrain: "):
            connection.execute(statement.encode())
    assert findings(address) == []


def test_the_chain_and_the_digests_are_what_the_documentation_says(address: str | Path, shell: Shell) -> None:
    before, last_digest = "", dict[tuple[str, str], object]()
    for at, actor, verb, changes, entry in shell("SELECT at, actor, verb, changes, hash FROM journal ORDER BY number"):
        before = hashlib.sha256(f"{before}\n{at}\n{actor}\n{verb}\n{changes}".encode()).hexdigest()
        assert entry == before
        last_digest |= {(table, key): state for _, table, key, state, *_ in json.loads(changes)}
    compared = 0
    for table, columns in KEYS.items():
        with MetadataStore.open(address, readonly=True) as store:
            rows = [dict(row) for row in store._db.all(f"SELECT * FROM {table}")]
        for row in rows:
            values = list(row.values())
            while values[-1] is None:
                values.pop()
            text = json.dumps(values, separators=(",", ":"))
            state = last_digest[table, "/".join(str(row[column]) for column in columns)]
            assert state == (values if isinstance(state, list) else hashlib.sha256(text.encode()).hexdigest())
            compared += 1
    assert compared == len(last_digest) > 40


def test_what_is_rolled_back_is_in_no_entry(address: str | Path) -> None:
    with MetadataStore.open(address) as store:
        before = head(store)
        with pytest.raises(StateError):
            store.publish(store.execution(5), {})
        assert head(store).entries == before.entries
        assert verify(store).sound


def test_an_older_store_begins_its_journal_with_every_row(address: str | Path, shell: Shell) -> None:
    postgres = [] if isinstance(address, Path) else ["DROP FUNCTION journal_law() CASCADE"]
    later = ["DROP INDEX context_by_type", "DROP INDEX context_by_change", "DROP TABLE answered"]
    shell("DROP TABLE journal", *later, *postgres, "DELETE FROM schema_version WHERE version > 1")
    done = upgrade(address)
    assert (done.before, done.now) == (1, 3)
    with MetadataStore.open(address) as store:
        (entry,) = store._db.all("SELECT * FROM journal")
        assert entry["verb"] == "upgrade"
        report = verify(store)
        assert report.sound
        assert len(json.loads(entry["changes"])) == report.rows
        store.context("run", "later")
        assert verify(store).sound
    shell("UPDATE execution SET state = 'COMPLETE', error = NULL WHERE id = 3")
    assert brief(findings(address)) == changed("execution", "3", "state", "error")
    if isinstance(address, Path):
        assert done.kept is not None
        with closing(sqlite3.connect(done.kept)) as kept:
            assert kept.execute("SELECT max(version) FROM schema_version").fetchone() == (1,)
    assert upgrade(address).kept is None


# -- any history


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(
            ["context", "update context", "start", "publish", "finish", "record", "update", "abandon", "claim"]
        ),
        st.integers(0, 5),
        st.sampled_from(["plain", "é", "e\u0301", "日本", "a/b", "\x01\u2028"]),
    ),
    max_size=25,
)


@settings(max_examples=60, deadline=None)
@given(OPERATIONS)
def test_any_history_verifies(operations: list[tuple[str, int, str]]) -> None:
    with tempfile.TemporaryDirectory() as folder, MetadataStore.open(Path(folder) / "metadata.db") as store:
        running, artifacts = list[ExecutionRecord](), list[ArtifactRecord]()
        for index, (what, number, text) in enumerate(operations):
            perform(store, what, number, text, index, running, artifacts)
        report = verify(store)
        assert report.findings == []
        assert verify(store, head(store)).sound
        changes = {
            (table, key)
            for row in store._db.all("SELECT changes FROM journal")
            for _, table, key, *_ in json.loads(row["changes"])
        }
        assert len(changes) == report.rows


def perform(
    store: MetadataStore,
    what: str,
    number: int,
    text: str,
    index: int,
    running: list[ExecutionRecord],
    artifacts: list[ArtifactRecord],
) -> None:
    context = store.context("run", f"{number} {text}")
    if what == "context":
        store.context("run", f"below {index} {text}", {"text": text}, [context])
    elif what == "update context":
        store.update_context(context, {text: number})
    elif what == "start":
        inputs = {"in": artifacts[:number]}
        running.append(store.start(text, contexts=[context], inputs=inputs, cache_key=text, preimage={"text": text}))
    elif what == "publish" and running:
        output = StagedArtifact(text, f"artifacts/{index}", "f" * 64, number, {"text": text})
        artifacts += store.publish(running.pop(), {text: [output]})[text]
    elif what == "finish" and running:
        store.finish(running.pop(), "FAILED", error=text)
    elif what == "record":
        store.record(text, "SKIPPED", contexts=[context], properties={"reason": text})
    elif what == "update" and artifacts:
        store.update_artifact(artifacts[0], properties={text: number})
    elif what == "abandon":
        store.abandon()
    elif what == "claim":
        store.claim(f"{text}{index}")


def test_a_large_change_is_several_entries(tmp_path: Path) -> None:
    with MetadataStore.open(tmp_path / "metadata.db") as store:
        run = store.context("run", "r")
        with store._db.write("many") as tx:
            changed_rows = tx.many(
                "INSERT INTO context (uid, type_id, name, properties, created_at, updated_at) "
                "VALUES (:name, 1, :name, '{}', 1, 1)",
                [{"name": f"run {number}"} for number in range(2500)],
            )
        assert changed_rows == 2500
        entries = store._db.all("SELECT changes FROM journal WHERE verb = 'many' ORDER BY number")
        assert [len(json.loads(entry["changes"])) for entry in entries] == [1000, 1000, 500]
        assert verify(store).sound
        assert run.id == 1
