"""The store's promises: states, one producer, no cycles, optimistic versions, the text and JSON domain, reuse."""

from __future__ import annotations

import gc
import os
import shutil
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from drivetrain.errors import InputError
from drivetrain.metadata import (
    AlreadyExists,
    ArtifactRecord,
    ConflictError,
    ExecutionRecord,
    MetadataStore,
    NotFound,
    SchemaMismatch,
    StagedArtifact,
    StateError,
    StoreUnavailable,
    database,
    dialect,
)
from drivetrain.metadata.records import EXECUTION_MOVES
from drivetrain.tests.metadata.conftest import StoreAddress


@pytest.fixture
def store(store_address: StoreAddress) -> Iterator[MetadataStore]:
    with MetadataStore.open(store_address("metadata")) as opened:
        yield opened


@pytest.fixture
def database_store(database_address: StoreAddress) -> Iterator[MetadataStore]:
    with MetadataStore.open(database_address("metadata")) as opened:
        yield opened


def new(name: str, **properties: object) -> StagedArtifact:
    return StagedArtifact("Thing", f"artifacts/{name}", "f" * 64, 3, properties)


def produce(store: MetadataStore, name: str, inputs: object = None, **facts: object) -> ArtifactRecord:
    execution = store.start("Make", inputs=inputs, **facts)  # type: ignore[arg-type]
    return store.publish(execution, {"out": [new(name)]})["out"][0]


# -- opening


def test_urls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for url, address in (
        ("plain.db", "plain.db"),
        (Path("sub/deep.db"), "sub/deep.db"),
        ("sqlite:///relative.db", "relative.db"),
        (f"sqlite:///{tmp_path}/absolute.db", "absolute.db"),
        ("odd ?#%41 name.db", "odd ?#%41 name.db"),
    ):
        MetadataStore.open(url).close()
        assert (tmp_path / address).is_file()


@pytest.mark.parametrize("url", ["", "mysql://host/db", "sqlite://host/x.db", "sqlite:///", "http://x", "a\0b"])
def test_bad_urls_are_refused(url: str) -> None:
    with pytest.raises(InputError):
        MetadataStore.open(url)


def test_a_folder_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a folder"):
        MetadataStore.open(tmp_path)


def test_reopening_finds_everything_and_readonly_refuses_writes(tmp_path: Path) -> None:
    path = tmp_path / "metadata.db"
    with pytest.raises(InputError, match="no metadata store"):
        MetadataStore.open(path, readonly=True)
    with MetadataStore.open(path) as store:
        artifact = produce(store, "a")
    with MetadataStore.open(path, readonly=True) as store:
        assert store.artifact(artifact.uid) == artifact
        with pytest.raises(StoreUnavailable, match="read only"):
            store.context("run", "r")
    with pytest.raises(StoreUnavailable, match="was closed"):
        store.artifact(artifact.uid)


def test_a_newer_database_is_refused_and_an_older_one_waits_for_upgrade(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "metadata.db"
    with MetadataStore.open(path) as store:
        produce(store, "a")
    migrations = tmp_path / "migrations"
    shutil.copytree(database._MIGRATIONS, migrations)
    (migrations / "0004_more.sql").write_text("CREATE TABLE more (id INTEGER);\nINSERT INTO more VALUES (7);\n")
    with monkeypatch.context() as patch:
        patch.setattr(database, "_MIGRATIONS", migrations)
        with pytest.raises(SchemaMismatch, match="schema version 3; this drivetrain writes 4"):
            MetadataStore.open(path)
        MetadataStore.open(path, upgrade=True).close()
        with MetadataStore.open(path) as store:
            assert len(store.artifacts()) == 1
    with pytest.raises(SchemaMismatch, match=r"schema version 4; this drivetrain knows up to 3\n.*upgrade drivetrain"):
        MetadataStore.open(path)


def test_a_failed_migration_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "migrations"
    broken.mkdir()
    (broken / "0001_core.sql").write_text("CREATE TABLE artifact (id INTEGER);\nCREATE NONSENSE;\n")
    with monkeypatch.context() as patch:
        patch.setattr(database, "_MIGRATIONS", broken)
        with pytest.raises(StoreUnavailable, match="NONSENSE"):
            MetadataStore.open(tmp_path / "metadata.db")
    MetadataStore.open(tmp_path / "metadata.db").close()


def test_commits_are_durable_and_walled(tmp_path: Path) -> None:
    with MetadataStore.open(tmp_path / "metadata.db") as store, store._db.read() as tx:
        assert tx.first("PRAGMA journal_mode")["journal_mode"] == "wal"  # type: ignore[index]
        assert tx.first("PRAGMA synchronous")["synchronous"] == 2  # type: ignore[index]
        assert tx.first("PRAGMA foreign_keys")["foreign_keys"] == 1  # type: ignore[index]


def test_a_write_that_nobody_ended_is_rolled_back(database_store: MetadataStore) -> None:
    with pytest.raises(RuntimeError, match="already open"), database_store._db.write():
        database_store.context("run", "within")
    write = database_store._db.write()
    write.__enter__().run("DELETE FROM context")
    del write  # as Ctrl-C leaves it between a block and its end
    assert database_store.context("run", "r").id == 1


def test_properties_merge_in_whatever_spelling(store: MetadataStore) -> None:
    context = store.context("run", "r", {"caf\u00e9": 1, "b": 2})
    assert store.update_context(context, {"cafe\u0301": 3}).properties == {"caf\u00e9": 3, "b": 2}
    assert store.update_context(context, {}).properties == {"caf\u00e9": 3, "b": 2}
    with pytest.raises(InputError, match="key must be text"):
        store.update_context(context, {1: 2})  # type: ignore[dict-item]


def test_network_filesystems_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialect, "filesystem_of", lambda path: "nfs4")
    with pytest.raises(StoreUnavailable, match="network filesystem"):
        MetadataStore.open(tmp_path / "metadata.db")


# -- contexts


def test_context_is_made_once_and_keeps_its_properties(store: MetadataStore) -> None:
    context = store.context("run", "r", {"a": 1, "b": [1, 2.0, None, True]})
    assert store.context("run", "r", {"a": 2}) == context
    assert store.context("pipeline", "r").id != context.id
    assert store.find_context("run", "r") == context
    assert store.find_context("run", "other") is None
    assert store.find_context("nothing", "r") is None


def test_contexts_come_newest_first(store: MetadataStore) -> None:
    names = [f"r{index}" for index in range(103)]
    for name in names:
        store.context("run", name)
    assert [context.name for context in store.contexts("run", limit=2)] == ["r102", "r101"]
    assert [context.name for context in store.contexts("run", limit=None)] == names[::-1]
    assert len(store.contexts("run")) == 50
    with pytest.raises(InputError, match="limit"):
        store.contexts("run", limit=-1)


def test_update_merges_and_the_stale_second_writer_is_told(store: MetadataStore) -> None:
    first = store.context("run", "r", {"a": 1, "b": 2})
    second = store.update_context(first, {"b": 3, "c": 4}, expected_version=first.version)
    assert second.properties == {"a": 1, "b": 3, "c": 4}
    assert second.version == first.version + 1
    with pytest.raises(ConflictError, match="version 2, not 1"):
        store.update_context(first, {"b": 9}, expected_version=first.version)
    assert store.find_context("run", "r") == second


def test_parents_form_no_circle(store: MetadataStore) -> None:
    top = store.context("pipeline", "p")
    middle = store.context("run", "r", parents=[top])
    low = store.context("node", "n", parents=[middle, top])
    assert store.context("node", "n", parents=[middle]) == low
    assert store.parents(low) == [top, middle]
    with pytest.raises(StateError, match="parent"):
        store.context("pipeline", "p", parents=[low])
    with pytest.raises(StateError, match="parent"):
        store.context("pipeline", "p", parents=[top])


# -- text and JSON


TEXTS = [
    "'; DROP TABLE artifact; --", '"', "%", "_", "\\", "a\nb", "Ørsted", "日本", "🚂", "\u202eright to left",
    "x" * 255, " ", "NULL", "0", ":name", "?", "{}",
]  # fmt: skip


@pytest.mark.parametrize("text", TEXTS)
def test_text_comes_back_as_it_was(store: MetadataStore, text: str) -> None:
    context = store.context("run", text, {"text": text, text: 1})
    assert context.name == text
    assert store.find_context("run", text) == context
    assert context.properties == {"text": text, text: 1}
    execution = store.start(text, name=text, contexts=[context])
    assert store.executions(component=text) == [execution]


@pytest.mark.parametrize(
    "text", ["x' OR '1'='1", '" OR 1=1 --', "'); DELETE FROM artifact; --", "%", "_%", ":limit", "?"]
)
def test_no_text_becomes_sql(store: MetadataStore, text: str) -> None:
    """Wherever a text may be asked for: one that would be SQL finds what is called so, and nothing else."""
    kept = store.start("Make", cache_key="kept")
    store.publish(kept, {"out": [new("kept", text="kept")]})
    assert store.executions(component=text) == []
    assert store.executions(cache_key=text) == []
    assert store.executions(state=text) == []  # type: ignore[arg-type]
    assert store.find_cached(text) is None
    assert store.artifacts(type=text) == []
    assert store.artifacts(fingerprint=text) == []
    assert store.artifacts(state=text) == []  # type: ignore[arg-type]
    assert store.artifacts(where={"text": text}) == []
    with pytest.raises(InputError, match="is not a property name"):
        store.artifacts(where={text: "kept"})
    assert store.artifact_by_uri(text) is None
    assert store.contexts(text) == []
    assert store.claim_holder(text) is None
    named = store.start("Make", cache_key=text)
    store.publish(named, {text: [new("named", text=text)]})
    (artifact,) = store.artifacts(where={"text": text})
    assert store.outputs(named) == {text: [artifact]}
    assert store.find_cached(text) == store.execution(named.id)
    assert len(store.artifacts()) == 2


def test_names_are_normalised(store: MetadataStore) -> None:
    assert store.context("run", "e\u0301") == store.context("run", "\u00e9")


@pytest.mark.parametrize("name", ["", "a\0b", "\ud800", "x" * 256, 7, None])
def test_bad_names_are_refused(store: MetadataStore, name: str) -> None:
    with pytest.raises(InputError):
        store.context("run", name)
    with pytest.raises(InputError):
        store.start(name)
    assert store.contexts("run") == []
    assert store.executions() == []


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), 2**63, -(2**63) - 1, "a\0b", "\udfff", b"x", {1: 2}, object(), {1, 2}]
)
def test_values_that_are_no_json_are_refused(store: MetadataStore, value: object) -> None:
    with pytest.raises(InputError):
        store.context("run", "r", {"p": value})
    execution = store.start("Make")
    with pytest.raises(InputError):
        store.publish(execution, {"out": [new("a", p=value)]})
    assert store.execution(execution.id).state == "RUNNING"
    assert store.artifacts() == []


@pytest.mark.parametrize("value", [2**63 - 1, -(2**63), 0.1, 1e308, -0.0, "", [], {}, [[1, [2]]], None, True, 1, 1.0])
def test_values_keep_their_type(store: MetadataStore, value: object) -> None:
    execution = store.start("Make", properties={"p": value})
    artifact = store.publish(execution, {"out": [new("a", p=value)]})["out"][0]
    for back in (store.execution(execution.uid).properties["p"], store.artifact(artifact.uid).properties["p"]):
        assert back == value
        assert type(back) is type(value)
    assert store.artifacts(where={"p": value}) == [artifact]


def test_property_equality_is_json_equality(store: MetadataStore) -> None:
    for index, value in enumerate([True, 1, 1.0, "1", None, [1], {"a": 1}]):
        store.publish(store.start("Make"), {"out": [new(f"a{index}", p=value)]})
    for index, value in enumerate([True, 1, 1.0, "1", None, [1], {"a": 1}]):
        assert [a.uri for a in store.artifacts(where={"p": value})] == [f"artifacts/a{index}"]
    assert store.artifacts(where={"missing": 1}) == []
    with pytest.raises(InputError, match="not a property name"):
        store.artifacts(where={"p' OR 1=1 --": 1})


def test_a_traceback_is_kept_whatever_it_holds(store: MetadataStore) -> None:
    ended = store.finish(store.start("Make"), "FAILED", error="bad \0 and \ud800 text")
    assert ended.error == "bad \\0 and \\ud800 text"


# -- executions and artifacts


def test_publish_is_one_transaction(store: MetadataStore) -> None:
    run, node = store.context("run", "r"), store.context("node", "n")
    execution = store.start("Make", name="first", contexts=[run, node], properties={"a": 1}, cache_key="k")
    assert (execution.state, execution.finished_at, execution.owner.pid) == ("RUNNING", None, os.getpid())  # type: ignore[union-attr]
    outputs = store.publish(execution, {"b": [new("x"), new("y")], "a": [new("z")]}, properties={"b": 2})
    done = store.execution(execution.id)
    assert (done.state, done.properties) == ("COMPLETE", {"a": 1, "b": 2})
    assert done.seconds is not None
    assert done.seconds >= 0
    assert [a.uri for a in outputs["b"]] == ["artifacts/x", "artifacts/y"]
    assert store.outputs(done) == outputs
    assert {a.state for a in store.artifacts(context=run)} == {"LIVE"}
    assert len(store.artifacts(context=node)) == 3
    assert store.contexts_of(done) == [run, node]
    assert store.contexts_of(outputs["a"][0]) == [run, node]
    assert store.artifact_by_uri("artifacts/x") == outputs["b"][0]
    assert store.artifact_by_uri("artifacts/none") is None
    assert done.created_at.tzinfo is not None

    second = store.start("Make")
    with pytest.raises(AlreadyExists, match="artifacts/x"):
        store.publish(second, {"out": [new("fresh"), new("x")]})
    assert store.artifact_by_uri("artifacts/fresh") is None
    assert store.execution(second.id).state == "RUNNING"


def test_an_artifact_has_one_producer(store: MetadataStore) -> None:
    artifact = produce(store, "a")
    for twice in (replace(new("b"), uid=artifact.uid), new("a")):
        with pytest.raises(AlreadyExists, match="one producer"):
            store.publish(store.start("Make"), {"out": [twice]})
    named = replace(new("c"), name="best")
    store.publish(store.start("Make"), {"out": [named]})
    with pytest.raises(AlreadyExists, match="best"):
        store.publish(store.start("Make"), {"out": [replace(named, uri="artifacts/d")]})
    with pytest.raises(InputError, match="UUID"):
        store.publish(store.start("Make"), {"out": [replace(new("e"), uid="seven")]})
    with pytest.raises(InputError, match="payload URI"):
        store.publish(store.start("Make"), {"out": [replace(new("f"), uri="../f")]})


@pytest.mark.parametrize(
    ("rows", "law"),
    [
        ("(2, 'OUTPUT', 'out', 0, 1, 0)", "an output must be a new artifact"),  # a second producer
        ("(2, 'OUTPUT', 'out', 0, 2, 0)", "an output must be a new artifact"),  # its own input comes out again
        ("(1, 'INPUT', 'in', 0, 1, 0)", "takes no further input"),  # what it made goes in
        ("(1, 'INPUT', 'in', 0, 3, 0)", "takes no further input"),  # what was made from it goes in
    ],
)
def test_the_database_itself_refuses_cycles_and_second_producers(
    database_store: MetadataStore, rows: str, law: str
) -> None:
    first = produce(database_store, "a")  # execution 1 makes 1
    second = produce(database_store, "b")
    consumer = database_store.start("Use", inputs={"in": [second]})
    third = produce(database_store, "c", {"in": [first]})
    assert (first.id, second.id, third.id, consumer.id) == (1, 2, 3, 3)
    with pytest.raises(StateError, match=law), database_store._db.write() as tx:
        tx.run(f"INSERT INTO event VALUES {rows.replace('(2,', '(3,')}")


def test_unknown_references_are_named(store: MetadataStore, store_address: StoreAddress) -> None:
    artifact = produce(store, "a")
    run = store.context("run", "r")
    for call in (
        lambda: store.execution(99),
        lambda: store.execution("no-such-uid"),
        lambda: store.artifact(99),
        lambda: store.start("Use", inputs={"in": [replace(artifact, id=99)]}),
        lambda: store.start("Use", contexts=[replace(run, id=99)]),
        lambda: store.update_context(replace(run, id=99), {}),
    ):
        with pytest.raises(NotFound):
            call()
    with MetadataStore.open(store_address("other")) as other:
        produce(other, "z")
        with pytest.raises(NotFound, match="not in this store"):
            other.start("Use", inputs={"in": [artifact]})
    assert len(store.executions()) == 1


def test_inputs_keep_their_order_and_must_be_live(store: MetadataStore) -> None:
    a, b = produce(store, "a"), produce(store, "b")
    execution = store.start("Use", inputs={"many": [b, a, b], "one": [a]})
    assert store.inputs(execution) == {"many": [b, a, b], "one": [a]}
    store.update_artifact(a, state="DELETED")
    with pytest.raises(StateError, match="input 'in' is DELETED"):
        store.start("Use", inputs={"in": [a]})


def test_executions_are_found_by_every_filter(store: MetadataStore) -> None:
    run, node = store.context("run", "r"), store.context("node", "n")
    both = store.start("A", contexts=[run, node])
    only = store.start("B", contexts=[run])
    store.finish(only, "FAILED", error="boom")
    assert [e.id for e in store.executions()] == [only.id, both.id]
    assert [e.id for e in store.executions(context=run)] == [only.id, both.id]
    assert store.executions(contexts=[run, node]) == [both]
    assert store.executions(component="A") == [both]
    assert [e.error for e in store.executions(state="FAILED")] == ["boom"]
    assert [e.id for e in store.executions(limit=1)] == [only.id]
    with pytest.raises(AlreadyExists, match="named 'x'"):
        [store.start("A", name="x") for _ in range(2)]
    store.start("B", name="x")


def drive(store: MetadataStore, state: str) -> ExecutionRecord:
    """An execution brought to a state by the store's own methods."""
    if state in {"SKIPPED", "BLOCKED"}:
        return store.record("Make", state)  # type: ignore[arg-type]
    if state == "CACHED":
        source = store.start("Make")
        store.publish(source, {})
        return store.record("Make", "CACHED", cached_from=source)
    execution = store.start("Make")
    if state == "COMPLETE":
        store.publish(execution, {})
    elif state != "RUNNING":
        store.finish(execution, state)  # type: ignore[arg-type]
    return store.execution(execution.id)


@pytest.mark.parametrize("state", sorted(set(EXECUTION_MOVES) - {"NEW", "RUNNING"}))
def test_an_end_is_an_end(store: MetadataStore, state: str) -> None:
    ended = drive(store, state)
    assert ended.state == state
    assert ended.finished_at is not None
    with pytest.raises(StateError, match=f"is {state} and cannot become COMPLETE"):
        store.publish(ended, {"out": [new("a")]})
    with pytest.raises(StateError, match=f"is {state} and cannot become FAILED"):
        store.finish(ended, "FAILED")
    assert store.execution(ended.id) == ended


def test_artifact_states_go_one_way(store: MetadataStore) -> None:
    artifact = produce(store, "a")
    marked = store.update_artifact(artifact, state="MARKED_FOR_DELETION", properties={"why": "old"})
    assert (marked.state, marked.properties, marked.version) == ("MARKED_FOR_DELETION", {"why": "old"}, 2)
    store.update_artifact(marked, state="LIVE")
    gone = store.update_artifact(artifact, state="DELETED")
    for state in ("PENDING", "MARKED_FOR_DELETION", "ABANDONED", "REFERENCE"):  # LIVE: see `fsck.undo`
        with pytest.raises(StateError, match="is DELETED and cannot become"):
            store.update_artifact(gone, state=state)
    with pytest.raises(ConflictError):
        store.update_artifact(artifact, properties={"p": 1}, expected_version=artifact.version)
    assert produce(store, "a").uri == artifact.uri  # the place of a deleted artifact is free


def test_odd_ends_are_refused(store: MetadataStore) -> None:
    execution = store.start("Make")
    for state in ("COMPLETE", "RUNNING", "CACHED", "nonsense"):
        with pytest.raises(StateError):
            store.finish(execution, state)  # type: ignore[arg-type]
    for state in ("RUNNING", "COMPLETE", "NEW", "nonsense", "CACHED"):
        with pytest.raises(StateError):
            store.record("Make", state)  # type: ignore[arg-type]
    with pytest.raises(StateError, match="cached_from"):
        store.record("Make", "SKIPPED", cached_from=execution)
    with pytest.raises(StateError, match="only a COMPLETE one"):
        store.record("Make", "CACHED", cached_from=execution)


# -- reuse


def test_find_cached_gives_the_newest_whole_one(store: MetadataStore) -> None:
    run = store.context("run", "again")
    artifact = produce(store, "a", cache_key="k", preimage={"p": 1})
    two = produce(store, "b", cache_key="k", preimage={"p": 1})
    store.start("Make", cache_key="k")
    store.finish(store.start("Make", cache_key="k"), "FAILED")
    hit = store.find_cached("k")
    assert hit is not None
    assert hit.id == two.producer
    cached = store.record("Make", "CACHED", cached_from=hit, contexts=[run], cache_key="k")
    assert store.outputs(cached) == {"out": [two]}
    assert store.artifacts(context=run) == [two]
    again = store.record("Make", "CACHED", cached_from=cached)
    assert again.cached_from == hit.id
    store.update_artifact(two, state="ABANDONED")
    with pytest.raises(StateError, match="cannot be reused"):
        store.record("Make", "CACHED", cached_from=hit)
    hit = store.find_cached("k")
    assert hit is not None
    assert hit.id == artifact.producer
    store.update_artifact(artifact, state="DELETED")
    assert store.find_cached("k") is None
    assert store.find_cached("other") is None


def test_preimages(store: MetadataStore) -> None:
    node = store.context("node", "n")
    store.publish(store.start("Make", contexts=[node], cache_key="k1", preimage={"p": 1}), {})
    second = store.start("Make", contexts=[node], cache_key="k2", preimage={"p": 2})
    store.start("Make", contexts=[node])
    store.start("Other", cache_key="k3", preimage={"p": 3})
    assert store.preimage("k1") == {"p": 1}
    assert store.preimage("none") is None
    assert store.last_preimage("Make", node) == {"p": 2}
    assert store.last_preimage(context=node, before=second) == {"p": 1}
    assert store.last_preimage(outside=node) == {"p": 3}
    assert store.last_preimage("Make", outside=node) is None
    assert store.last_preimage("Other") == {"p": 3}
    assert store.last_preimage("Other", node) is None


# -- threads


def test_threads_share_a_store(store: MetadataStore) -> None:
    errors: list[BaseException] = []

    def work(worker: int) -> None:
        try:
            for index in range(25):
                produce(store, f"{worker}/{index}")
                context = store.context("run", "counter")
                while True:
                    try:
                        count = context.properties.get("n", 0) + 1
                        store.update_context(context, {"n": count}, expected_version=context.version)
                        break
                    except ConflictError:
                        context = store.context("run", "counter")
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(store.artifacts()) == 150
    assert store.context("run", "counter").properties == {"n": 150}


def test_a_store_that_is_left_to_the_garbage_collector_closes_itself(tmp_path: Path) -> None:
    """In a circle the order is any, and since Python 3.13 a connection that is not closed by then gives a warning."""
    held: list[object] = [MetadataStore.open(tmp_path / "metadata.db")]
    held.append(held)
    del held
    gc.collect()
