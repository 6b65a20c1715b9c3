"""What an MLMD file knows is in the store after an import, as ml-metadata's own client reads it."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from drivetrain.metadata import ArtifactRecord, ExecutionRecord, MetadataStore
from drivetrain.metadata.fsck import fsck
from drivetrain.metadata.mlmd import MlmdImport, import_mlmd
from drivetrain.metadata.mlmd.executions import producers_first
from drivetrain.tests.metadata.conftest import StoreAddress
from drivetrain.tests.metadata.mlmd.oracle import (
    Json,
    execute,
    make,
    oracle,
    values,
)
from hypothesis import given, settings
from hypothesis import strategies as st

NAMES = {"ExampleStatistics": "Statistics", "ExampleAnomalies": "Anomalies", "ModelEvaluation": "Evaluation"}
TAKEN, GIVEN = ("INPUT", "DECLARED_INPUT", "INTERNAL_INPUT"), ("OUTPUT", "DECLARED_OUTPUT", "INTERNAL_OUTPUT")


@pytest.fixture
def store(database_address: StoreAddress) -> Iterator[MetadataStore]:
    with MetadataStore.open(database_address("metadata")) as opened:
        yield opened


def artifacts(store: MetadataStore) -> dict[str, ArtifactRecord]:
    """By their id there, which the client tells as text."""
    return {str(record.properties["mlmd"]["id"]): record for record in store.artifacts(state=None)}


def executions(store: MetadataStore) -> dict[str, ExecutionRecord]:
    return {str(record.properties["mlmd"]["id"]): record for record in store.executions()}


def at(milliseconds: str) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=int(milliseconds))


@pytest.mark.parametrize("name", ["tfx", "odd"])
def test_every_artifact_is_there_as_it_was(name: str, store: MetadataStore, tmp_path: Path) -> None:
    import_mlmd(store, make(tmp_path, name))
    stored, expected = artifacts(store), oracle(name)["artifacts"]
    assert stored.keys() == {row["id"] for row in expected}
    for row in expected:
        record, origin = stored[row["id"]], stored[row["id"]].properties["mlmd"]
        assert record.type == NAMES.get(row["type"], row["type"])
        assert (origin["type"], origin["uri"], record.external) == (row["type"], row["uri"], row["uri"])
        assert origin["state"] == row.get("state", "UNKNOWN")
        assert record.state == (
            origin["state"] if origin["state"] in ("PENDING", "DELETED", "ABANDONED") else "REFERENCE"
        )
        assert origin.get("name") == row.get("name")
        assert origin.get("external_id") == row.get("external_id")
        for kind in ("properties", "custom_properties"):
            assert without_messages(origin.get(kind, {})) == without_messages(values(row.get(kind, {})))
        assert record.created_at == at(row["create_time_since_epoch"])
        assert record.updated_at == at(row["last_update_time_since_epoch"])
        assert (record.fingerprint, record.size) == ("", 0)


def without_messages(properties: Json) -> Json:
    """A packed message stays packed here, and is unpacked by the client, which has its class."""
    packed = {name: value for name, value in properties.items() if isinstance(value, dict) and "@type" in value}
    assert {value["@type"] for value in packed.values()} <= {"type.googleapis.com/google.protobuf.StringValue"}
    assert {value["value"] for value in packed.values()} <= {"inside", "CgZpbnNpZGU="}
    return {name: value for name, value in properties.items() if name not in packed}


@pytest.mark.parametrize("name", ["tfx", "odd"])
def test_every_execution_is_there_as_it_was(name: str, store: MetadataStore, tmp_path: Path) -> None:
    import_mlmd(store, make(tmp_path, name))
    stored, expected = executions(store), oracle(name)["executions"]
    assert stored.keys() == {row["id"] for row in expected}
    for row in expected:
        record, origin = stored[row["id"]], stored[row["id"]].properties["mlmd"]
        assert record.component == row["type"]
        assert origin["state"] == row.get("last_known_state", "UNKNOWN")
        assert origin.get("name") == row.get("name")
        for kind in ("properties", "custom_properties"):
            assert without_messages(origin.get(kind, {})) == without_messages(values(row.get(kind, {})))
        assert record.started_at == at(row["create_time_since_epoch"])
        assert record.finished_at == at(row["last_update_time_since_epoch"])
        assert not store.is_dead(record)
        if origin["state"] in ("COMPLETE", "FAILED", "CANCELED"):
            assert record.state == origin["state"]
        elif origin["state"] in ("NEW", "RUNNING"):
            assert record.state == "ABANDONED"
            assert record.error == f"it was {origin['state']} in MLMD when it was imported"
    assert store.executions(state="RUNNING") == []


def test_contexts_keep_their_members(store: MetadataStore, tmp_path: Path) -> None:
    import_mlmd(store, make(tmp_path, "tfx"))
    expected = oracle("tfx")
    types = {"pipeline": "pipeline", "node": "node"}
    contexts = {}
    for context in expected["contexts"]:
        record = store.find_context(types.get(context["type"], f"mlmd.{context['type']}"), context["name"])
        assert record is not None, context
        contexts[int(context["id"])] = record
    ids = {record.id: int(number) for number, record in executions(store).items()}
    assert sorted(expected["associations"]) == sorted(
        [number, ids[ran.id]] for number, record in contexts.items() for ran in store.executions(context=record)
    )
    ids = {record.id: int(number) for number, record in artifacts(store).items()}
    assert sorted(expected["attributions"]) == sorted(
        [number, ids[artifact.id]]
        for number, record in contexts.items()
        for artifact in store.artifacts(state=None, context=record)
    )
    ids = {record.id: number for number, record in contexts.items()}
    assert sorted(expected["parents"]) == sorted(
        [ids[above.id], number] for number, record in contexts.items() for above in store.parents(record)
    )


def test_lineage_is_what_ml_metadata_says(store: MetadataStore, tmp_path: Path) -> None:
    import_mlmd(store, make(tmp_path, "tfx"))
    by_number = artifacts(store)
    ids = {record.id: int(number) for number, record in by_number.items()}
    for number, before in oracle("tfx")["upstream"].items():
        graph = store.lineage(by_number[number], "upstream")
        assert sorted(ids[artifact] for artifact in graph.artifacts if artifact != by_number[number].id) == before, (
            number
        )


@pytest.mark.parametrize("name", ["tfx", "odd"])
def test_no_event_is_lost(name: str, store: MetadataStore, tmp_path: Path) -> None:
    """An artifact has one maker here: who gives what was made before takes it, or is CACHED from its maker."""
    import_mlmd(store, make(tmp_path, name))
    ran, stored = executions(store), artifacts(store)
    for event in oracle(name)["events"]:
        execution, artifact = ran[event["execution_id"]], stored[event["artifact_id"]]
        takes = [artifact for several in store.inputs(execution).values() for artifact in several]
        gives = [artifact for several in store.outputs(execution).values() for artifact in several]
        if event["type"] in TAKEN:
            assert artifact in takes, event
        elif event["type"] in GIVEN:
            passed = [
                artifact
                for key in execution.properties.get("passed_on", ())
                for artifact in store.inputs(execution)[key]
            ]
            assert artifact in gives + passed, event
        if name == "tfx":
            key, index = (next(iter(step.values())) for step in event["path"]["steps"])
            kept = {**store.inputs(execution), **store.outputs(execution)}
            assert kept[key][int(index)] == artifact


def test_what_tfx_took_from_its_cache_is_cached_here(store: MetadataStore, tmp_path: Path) -> None:
    import_mlmd(store, make(tmp_path, "tfx"))
    cached = [record for record in executions(store).values() if record.properties["mlmd"]["state"] == "CACHED"]
    assert len(cached) == sum(record["last_known_state"] == "CACHED" for record in oracle("tfx")["executions"]) > 10
    for record in cached:
        assert record.state == "CACHED"
        assert record.cached_from is not None
        source = store.execution(record.cached_from)
        assert (source.component, source.state) == (record.component, "COMPLETE")


def test_properties_that_mean_the_same_have_our_names(store: MetadataStore, tmp_path: Path) -> None:
    import_mlmd(store, make(tmp_path, "tfx"))
    (examples, *_) = store.artifacts(type="Examples", state="REFERENCE")
    assert (examples.properties["span"], examples.properties["version"]) == (3, 3)
    assert store.artifacts(type="Statistics", state="REFERENCE", where={"span": 2})
    (anomalies, *_) = store.artifacts(type="Anomalies", state="REFERENCE")
    assert (anomalies.properties["passed"], anomalies.properties["summary"]) == (False, "anomalies in eval")
    (pushed, *_) = store.artifacts(type="PushedModel", state="REFERENCE")
    assert (pushed.properties["destination"], pushed.properties["version"]) == ("/srv/taxi/1700000000", 1700000000)
    import_mlmd(store, make(tmp_path, "odd"))
    (old, *_) = store.artifacts(type="Examples", state="REFERENCE")
    assert old.properties["span"] == 17  # TFX wrote spans as text once


def test_odd_places_states_and_makers(store: MetadataStore, tmp_path: Path) -> None:
    report = import_mlmd(store, make(tmp_path, "odd"))
    ran, stored = executions(store), artifacts(store)
    assert (report.artifacts, report.executions, report.left_out) == (9, 10, 0)
    # Taken in by an earlier execution than the one that made it, by their ids.
    assert store.inputs(ran["4"])["late"] == [stored["2"]]
    assert store.outputs(ran["8"]) == {"made": [stored["2"]]}
    assert store.outputs(ran["4"]) == {"artifact": [stored["1"]], "deep/path": [stored["3"]]}
    assert store.inputs(ran["5"])["x"] == [stored["1"], stored["9"]]  # both at "x", without an index
    assert store.inputs(ran["4"])["2"] == [stored["7"]]  # a path of numbers
    # A second maker and a circle take what they give.
    assert set(store.inputs(ran["9"])) >= {"second", "circle"}
    assert store.outputs(ran["9"]) == {}
    assert ran["9"].properties["passed_on"] == ["circle", "second"]
    # CACHED, but of two makers: it is not an other execution's work.
    assert (ran["10"].state, ran["10"].properties["mlmd"]["state"]) == ("COMPLETE", "CACHED")
    assert store.inputs(ran["10"])["from"] == [stored["1"], stored["2"]]
    assert ran["5"].error == "Traceback: no space left"
    assert (ran["1"].state, ran["1"].properties["mlmd"]["state"]) == ("ABANDONED", "UNKNOWN")
    assert all(len(key) <= 255 for record in ran.values() for key in store.inputs(record))
    types = next(record for record in store.contexts("mlmd")).properties["types"]
    data = next(record for record in types if record["name"] == "Data")
    assert (data["version"], data["description"], data["is_a"]) == ("2", "rows", ["mlmd.Dataset"])


@pytest.mark.parametrize("version", [6, 7, 8, 9])
def test_older_schemas_are_read(version: int, store: MetadataStore, tmp_path: Path) -> None:
    """The same store taken back by ml-metadata: what the schema could not hold yet is missing, all else is equal."""
    import_mlmd(store, make(tmp_path, f"odd-v{version}"))
    (tmp_path / "new").mkdir()
    with MetadataStore.open(tmp_path / "new" / "metadata.db") as newest:
        import_mlmd(newest, make(tmp_path, "odd"))
        new, old = artifacts(newest), artifacts(store)
        assert new.keys() == old.keys()
        for number, record in new.items():
            before, after = dict(old[number].properties["mlmd"]), dict(record.properties["mlmd"])
            if version < 9:
                after.pop("external_id", None)
            for kind in ("properties", "custom_properties"):
                kept = before.pop(kind, {})
                now = after.pop(kind, {})
                assert kept == {name: None if name in "pb" else value for name, value in now.items()}
            assert before == after
            assert old[number].uid == record.uid
        assert [(record.uid, record.state) for record in store.executions()] == [
            (o.uid, o.state) for o in newest.executions()
        ]
        assert len(store.contexts("mlmd.experiment")) == 2


def test_twice_is_once(store: MetadataStore, tmp_path: Path) -> None:
    path = make(tmp_path, "tfx")
    before = hashlib.sha256(path.read_bytes()).hexdigest()
    first = import_mlmd(store, path)
    everything = dump(tmp_path)
    moved = path.rename(tmp_path / "elsewhere.sqlite")
    second = import_mlmd(store, moved)
    assert second == MlmdImport(first.source, runs=first.runs)  # nobody has described them
    assert dump(tmp_path) == everything
    assert hashlib.sha256(moved.read_bytes()).hexdigest() == before
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith("elsewhere")) == ["elsewhere.sqlite"]


def dump(folder: Path) -> list[str]:
    """All rows but the note of where the file lay; of the journal no entry that begins with one."""
    with sqlite3.connect(folder / "metadata.db") as connection:
        moved = '\'[["update","context",'
        dump = [line for line in connection.iterdump() if '"schema_version"' not in line and moved not in line]
    connection.close()
    return dump


def test_what_was_added_and_what_has_changed_comes_with_the_next_import(store: MetadataStore, tmp_path: Path) -> None:
    path = make(tmp_path, "tfx")
    running = next(row for row in oracle("tfx")["executions"] if row.get("last_known_state") == "RUNNING")["id"]
    import_mlmd(store, path)
    execute(
        path,
        f"UPDATE Execution SET last_known_state = 3, last_update_time_since_epoch = 1900000000000 WHERE id = {running}",
        "INSERT INTO Artifact VALUES (1000, 19, '/srv/late', 2, NULL, NULL, 1900000000000, 1900000000000)",
        f"INSERT INTO Event VALUES (5000, 1000, {running}, 4, 1900000000000)",
        "INSERT INTO EventPath VALUES (5000, 0, NULL, 'model'), (5000, 1, 0, NULL)",
        "UPDATE Artifact SET state = 4, last_update_time_since_epoch = 1900000000000 WHERE id = 1",
        "INSERT INTO Execution SELECT 900, type_id, 3, 'late', NULL, 1900000000000, 1900000000000 "
        f"FROM Execution WHERE id = {running}",
        "INSERT INTO Event VALUES (5001, 1000, 900, 3, 1900000000000)",
    )
    report = import_mlmd(store, path)
    assert (report.artifacts, report.executions, report.events, report.updated, report.left_out) == (1, 1, 2, 2, 0)
    record = executions(store)[running]
    assert (record.state, record.error, record.finished_at) == ("COMPLETE", None, at("1900000000000"))
    assert [row.external for row in store.outputs(record)["model"]] == ["/srv/late"]
    assert artifacts(store)["1"].state == "DELETED"
    assert import_mlmd(store, path).updated == 0


def test_two_stores_with_equal_ids_are_kept_apart(store: MetadataStore, tmp_path: Path) -> None:
    first_file, other = make(tmp_path, "tfx"), tmp_path / "other.sqlite"
    other.write_bytes(first_file.read_bytes())
    execute(other, "UPDATE Context SET create_time_since_epoch = create_time_since_epoch + 1")
    assert import_mlmd(store, first_file).artifacts == import_mlmd(store, other).artifacts == 30
    assert len(store.artifacts(state="REFERENCE")) == 60
    assert len(store.contexts("pipeline")) == 1
    runs = {context.name for context in store.contexts("mlmd.pipeline_run")}
    assert len(runs) == 12
    assert sum("@" in name for name in runs) == 6


def test_an_import_that_was_killed_is_finished_by_the_next(store: MetadataStore, tmp_path: Path) -> None:
    path = make(tmp_path, "tfx")

    def stop(count: int, total: int | None, what: str) -> None:
        if what == "executions":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        import_mlmd(store, path, stop)
    assert len(store.executions()) == 50  # its page was whole
    import_mlmd(store, path)
    (tmp_path / "whole").mkdir()
    with MetadataStore.open(tmp_path / "whole" / "metadata.db") as whole:
        import_mlmd(whole, path)
        assert [record.uid for record in whole.executions()] == [record.uid for record in store.executions()]
        for first, second in zip(store.executions(), whole.executions(), strict=True):
            names = [
                [context.name for context in each.contexts_of(record)]
                for each, record in ((store, first), (whole, second))
            ]
            assert names[0] == names[1]


def test_what_is_imported_is_external_to_fsck(store: MetadataStore, tmp_path: Path) -> None:
    import_mlmd(store, make(tmp_path, "tfx"))
    report = fsck(store, tmp_path, repair=True)
    assert report.clean
    assert (report.external, report.checked) == (30, 0)
    assert len(store.artifacts(state="REFERENCE")) == 30


def test_a_reader_that_waits_does_not_lock_the_file(store: MetadataStore, tmp_path: Path) -> None:
    path = make(tmp_path, "tfx")
    written = []

    def write(count: int, total: int | None, what: str) -> None:
        execute(path, f"INSERT INTO Type (name, type_kind) VALUES ('{what}-{count}', 1)")
        written.append(what)

    import_mlmd(store, path, write)
    assert set(written) == {"contexts", "artifacts", "executions", "links"}


@given(
    st.lists(st.tuples(st.integers(1, 12), st.integers(1, 12), st.sampled_from([3, 4])), max_size=40),
)
def test_makers_come_before_takers_unless_they_go_round(events: list[tuple[int, int, int]]) -> None:
    order = producers_first(range(1, 13), events, (3,), (4,))
    assert sorted(order) == list(range(1, 13))
    makers: dict[int, int] = {}
    for execution, artifact, kind in events:
        if kind == 4:
            makers[artifact] = min(execution, makers.get(artifact, execution))
    edges = {(makers[a], e) for e, a, _ in events if a in makers and makers[a] != e}
    late = {(a, b) for a, b in edges if order.index(a) > order.index(b)}
    assert all(reaches(b, a, edges) for a, b in late)  # only within, or behind, a circle
    assert order == list(range(1, 13)) or edges


def reaches(start: int, end: int, edges: set[tuple[int, int]]) -> bool:
    """Whether one can go from start to a circle, or to end."""
    seen, todo = set(), [start]
    while todo:
        number = todo.pop()
        for a, b in edges:
            if a == number and b not in seen:
                seen.add(b)
                todo.append(b)
    return end in seen or bool(late_circle(edges))


def late_circle(edges: set[tuple[int, int]]) -> set[int]:
    """What is on a circle, or behind one: what is left when all that waits for nothing is taken away, over and over."""
    left = {number for edge in edges for number in edge}
    while free := {number for number in left if not any(b == number and a in left for a, b in edges)}:
        left -= free
    return left


def test_a_struct_is_read_as_protobuf_writes_it() -> None:
    pytest.importorskip("google.protobuf")
    from base64 import b64encode

    from drivetrain.metadata.mlmd.values import decoded
    from google.protobuf import json_format, struct_pb2

    scalars = st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
    json_values = st.recursive(
        scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=10
    )

    @settings(max_examples=30, deadline=None)
    @given(st.dictionaries(st.text(), json_values, max_size=4))
    def check(value: Json) -> None:
        packed = struct_pb2.Struct()
        json_format.ParseDict(value, packed)
        text = "mlmd-struct::" + b64encode(packed.SerializeToString()).decode()
        row = {"int_value": None, "double_value": None, "string_value": text}
        assert decoded(row, "here") == json.loads(json.dumps(json_format.MessageToDict(packed)))

    check()
