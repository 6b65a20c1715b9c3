"""What ML Metadata does and what it lets pass: thirty behaviours that hold here too, and its weak points, refused here.

The acceptance checks A1 to A16 of the store are the tests named in `CHECKS`: a test of this module sees that each is
there, and runs on both databases where a database takes part.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import drivetrain as dt
import pytest
from drivetrain.errors import InputError
from drivetrain.metadata import (
    AlreadyExists,
    ArtifactRecord,
    ConflictError,
    MetadataStore,
    NotFound,
    SchemaMismatch,
    StagedArtifact,
    StateError,
)
from drivetrain.metadata.finding import RecordQuery
from drivetrain.metadata.types import artifact_type
from drivetrain.tests.metadata.conftest import StoreAddress

TESTS: Final = Path(__file__).resolve().parents[1]
BOTH: Final = frozenset({"sqlite", "postgres"})
NEITHER: Final = frozenset[str]()

CHECKS: Final[dict[str, tuple[frozenset[str], list[str]]]] = {
    "A1 the thirty behaviours": (
        BOTH,
        [f"metadata/test_acceptance.py::test_{number:02}_" for number in range(2, 31) if number != 3],
    ),
    "A1 those of them that need no database": (
        NEITHER,
        ["metadata/test_acceptance.py::test_01_", "metadata/test_acceptance.py::test_03_"],
    ),
    "A2 every weak point is a named error": (BOTH, ["metadata/test_acceptance.py::test_weak_"]),
    "A3 8 x 200 publishes, and the chain": (
        BOTH,
        ["metadata/test_store_faults.py::test_eight_processes_publish_two_hundred_each"],
    ),
    "A4 8 first opens, 25 times": (BOTH, ["metadata/test_store_faults.py::test_eight_first_opens_twenty_five_times"]),
    "A5 claims under kills and stalls, and the stale token": (
        BOTH,
        [
            "metadata/test_store_faults.py::test_each_key_is_published_once_under_kills",
            "metadata/test_claims.py::test_the_old_token_is_fenced",
        ],
    ),
    "A6 40 kills": (
        BOTH,
        ["metadata/test_store_faults.py::test_forty_kills_while_publishing_leave_no_row_without_its_payload"],
    ),
    # How fast, and beside MLMD: benchmarks/store.py; a timing is no test.
    "A7 a publish is about one sync": (NEITHER, ["metadata/test_acceptance.py::test_a_publish_is_about_one_sync"]),
    "A8 no cap on hops": (
        BOTH,
        [
            "metadata/test_lineage.py::test_a_long_chain_has_no_cap",
            "metadata/test_acceptance.py::test_26_",
        ],
    ),
    "A9 the cache key": (
        NEITHER,
        [
            "metadata/test_cache.py::test_collisions_of_the_peers_differ",
            "pipelines/launcher/test_launcher.py::test_an_edited_helper_reruns_what_uses_it_and_nothing_else",
            "pipelines/launcher/test_launcher.py::test_a_changed_parameter_reruns_and_equal_content_cuts_off",
            "metadata/test_fsck.py::test_everything_is_found_and_repaired",
        ],
    ),
    "A10 the resolver": (
        NEITHER,
        [
            "metadata/test_uri.py::test_bad_uris_are_refused_everywhere",
            "metadata/test_uri.py::test_bad_uris_are_refused_behind_a_url",
            "metadata/test_uri.py::test_links_are_not_followed",
        ],
    ),
    "A11 text and JSON": (
        BOTH,
        [
            "metadata/test_store.py::test_text_comes_back_as_it_was",
            "metadata/test_store.py::test_bad_names_are_refused",
            "metadata/test_store.py::test_values_that_are_no_json_are_refused",
            "metadata/test_store.py::test_values_keep_their_type",
            "metadata/test_filters.py::test_a_text_fits_a_pattern_as_python_says",
        ],
    ),
    "A12 gc removes nothing that is needed": (
        BOTH,
        [
            "metadata/test_retention.py::test_nothing_that_is_needed_ever_goes",
            "metadata/test_retention.py::test_what_is_needed_since_the_plan_was_made_stays",
            "metadata/test_retention.py::test_what_is_marked_goes_after_the_grace_and_can_be_taken_back",
        ],
    ),
    "A13 the audit": (
        BOTH,
        [
            "metadata/test_audit.py::test_an_edit_of_a_row_is_found_and_named",
            "metadata/test_audit.py::test_entries_in_another_order_are_found",
            "metadata/test_audit.py::test_an_edit_of_the_journal_is_found_by_its_entry",
            "metadata/test_audit.py::test_beside_a_head_that_was_kept_a_cut_end_is_found",
        ],
    ),
    "A14 what a role may not": (  # a file has no roles, but may be opened to read
        NEITHER,
        [
            "metadata/test_namespaces.py::test_a_role_may_do_by_sql_what_it_needs_and_no_more",
            "metadata/test_store.py::test_reopening_finds_everything_and_readonly_refuses_writes",
            "metadata/test_audit.py::test_the_database_refuses_to_change_the_journal",
        ],
    ),
    "A15 upgrades, and a newer database": (
        BOTH,
        [
            "metadata/test_migrations.py::test_a_store_of_an_earlier_schema_is_brought_up_to_date_with_its_data",
            "metadata/test_acceptance.py::test_28_",
        ],
    ),
    "A16 OpenLineage's schema": (
        NEITHER,
        ["console/test_openlineage.py::test_a_receiver_takes_every_event_of_every_kind_of_end"],
    ),
}
"""Each check: on which databases its tests run, and what their names begin with."""


@pytest.fixture(scope="module")
def collected() -> list[str]:
    """What pytest collects of the files that `CHECKS` names."""
    files = sorted({f"tests/{test.partition('::')[0]}" for _, tests in CHECKS.values() for test in tests})
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "", *files]
    output = subprocess.run(command, cwd=TESTS.parent, capture_output=True, text=True, check=True).stdout
    return [line.removeprefix("tests/") for line in output.splitlines() if "::" in line]


@pytest.mark.slow
@pytest.mark.parametrize("check", CHECKS)
def test_a_check_has_its_tests(check: str, collected: list[str]) -> None:
    databases, tests = CHECKS[check]
    for test in tests:
        items = [item for item in collected if item.startswith(test)]
        assert items, f"{test} is not there"
        ids = {each for item in items for each in re.split(r"[\[\]-]", item)}
        assert databases <= ids, f"{test} does not run on {', '.join(databases - ids)}"


class Span(dt.Artifact):
    """What the behaviours publish."""

    number: int = 0
    note: str = ""


@pytest.fixture
def store(database_address: StoreAddress) -> Iterator[MetadataStore]:
    with MetadataStore.open(database_address("metadata")) as opened:
        yield opened


def produce(store: MetadataStore, name: str, *inputs: ArtifactRecord, **properties: object) -> ArtifactRecord:
    execution = store.start("Make", inputs={"in": inputs} if inputs else {})
    staged = StagedArtifact("Span", f"artifacts/{name}", "f" * 64, 1, properties)
    return store.publish(execution, {"out": [staged]})["out"][0]


# -- A1: the thirty behaviours


def test_01_a_store_that_is_not_named_is_an_error() -> None:
    with pytest.raises(InputError, match="no metadata store is named"):
        MetadataStore.open("")


def test_02_a_type_is_stored_once(store: MetadataStore) -> None:
    produce(store, "a")
    produce(store, "b")
    (row,) = store._db.all("SELECT count(*) AS n FROM type WHERE kind = 'artifact' AND name = 'Span'")
    assert row["n"] == 1


def test_03_a_property_that_a_type_has_not_is_refused_until_its_class_declares_it(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="Span has no property 'size'"):
        Span(tmp_path, size=3)


def test_04_what_a_class_declares_no_more_stays_in_the_row_and_can_be_read(
    store: MetadataStore, tmp_path: Path
) -> None:
    record = produce(store, "a", number=7, dropped="still here")
    assert store.artifact(record.id).properties == {"number": 7, "dropped": "still here"}
    assert Span.from_record(record, tmp_path).properties["dropped"] == "still here"


def test_05_a_property_that_is_new_in_a_class_has_its_default_in_older_rows(
    store: MetadataStore, tmp_path: Path
) -> None:
    older = Span.from_record(produce(store, "a", number=7), tmp_path)
    assert (older.number, older.note) == (7, "")


def test_06_two_types_of_one_name_are_told_by_their_kind(store: MetadataStore) -> None:
    """Types have no versions here: what a row holds says itself. An execution's type is no artifact's."""
    context = store.context("Span", "s")
    execution = store.start("Span", contexts=[context])
    artifact = produce(store, "a")
    assert store.executions(component="Span") == [execution]
    assert store.artifacts(type="Span") == [artifact]
    assert store.contexts("Span") == [context]


def test_07_a_type_that_is_not_there_has_nothing_and_is_the_base_class(store: MetadataStore) -> None:
    assert store.artifacts(type="Nothing") == []
    assert artifact_type("Nothing") is dt.Artifact


def test_08_what_is_asked_for_by_a_name_that_is_not_there_is_none(store: MetadataStore) -> None:
    assert store.find_context("run", "nowhere") is None
    assert store.artifact_by_uri("artifacts/nowhere") is None


def test_09_a_name_is_given_once_in_a_type(store: MetadataStore) -> None:
    store.start("Make", name="first")
    with pytest.raises(AlreadyExists, match="named 'first'"):
        store.start("Make", name="first")
    store.start("Other", name="first")


def test_10_a_context_without_a_name_is_refused(store: MetadataStore) -> None:
    with pytest.raises(InputError, match="context name has 1 to 255 characters"):
        store.context("run", "")


def test_11_no_ids_give_no_records(store: MetadataStore) -> None:
    produce(store, "a")
    assert store.artifacts_by_id([]) == []


def test_12_a_limit_gives_the_newest(store: MetadataStore) -> None:
    records = [produce(store, name) for name in "abc"]
    assert store.artifacts(limit=2) == [records[2], records[1]]


def test_13_pages_together_are_all_in_order(store: MetadataStore) -> None:
    numbers = [store.start("Make").id for _ in range(103)]
    assert [each.id for each in store.executions(limit=103)] == numbers[::-1]
    read: list[int] = []
    after: str | None = None
    while not read or after is not None:
        page = store.find_executions(RecordQuery(order="id", limit=50, after=after))
        read += [each.id for each in page.records]
        after = page.next
    assert read == numbers


def test_14_a_filter_of_a_property_and_a_name(store: MetadataStore) -> None:
    for number in range(30):
        store.start("Make", name=f"node_{number}", properties={"number": number})
    query = RecordQuery("property.number < 21 and name like 'node_2%'", "id")
    assert [each.name for each in store.find_executions(query).records] == ["node_2", "node_20"]


def test_15_a_filter_that_is_none_is_refused(store: MetadataStore) -> None:
    for where in ("name = ", "nonsense", "state = 'LIVE'; DROP TABLE artifact"):
        with pytest.raises(InputError, match="the filter"):
            store.find_artifacts(RecordQuery(where))


def test_16_an_event_has_its_execution_and_its_artifact(store: MetadataStore) -> None:
    record = produce(store, "a")
    with pytest.raises(NotFound):
        store.start("Use", inputs={"in": [replace(record, id=record.id + 1)]})
    for columns in ("NULL, 'INPUT', 'in', 0, 1, 0", "1, 'INPUT', 'in', 0, NULL, 0", "9, 'INPUT', 'in', 0, 1, 0"):
        with pytest.raises((InputError, StateError)), store._db.write() as tx:
            tx.run(f"INSERT INTO event VALUES ({columns})")


def test_17_an_artifact_has_its_key_in_each_execution(store: MetadataStore) -> None:
    record = produce(store, "a")
    first = store.start("Use", inputs={"left": [record]})
    second = store.start("Use", inputs={"right": [record, record]})
    assert store.inputs(first) == {"left": [record]}
    assert store.inputs(second) == {"right": [record, record]}


def test_18_an_execution_needs_no_context_and_no_output(store: MetadataStore) -> None:
    execution = store.start("Make", contexts=[])
    assert store.publish(execution, {}) == {}
    assert store.contexts_of(store.execution(execution.id)) == []


def test_19_a_context_has_the_execution_and_what_it_made(store: MetadataStore) -> None:
    contexts = [store.context("pipeline", "p"), store.context("run", "r")]
    execution = store.start("Make", contexts=contexts)
    (record,) = store.publish(execution, {"out": [StagedArtifact("Span", "artifacts/a", "f", 1)]})["out"]
    for context in contexts:
        assert [each.id for each in store.executions(context=context)] == [execution.id]
        assert store.artifacts(context=context) == [record]


def test_20_the_same_context_again_is_the_same(store: MetadataStore) -> None:
    first = store.start("Make", contexts=[store.context("run", "r")])
    second = store.start("Make", contexts=[store.context("run", "r")])
    (run,) = store.contexts("run")
    assert [each.id for each in store.executions(context=run)] == [second.id, first.id]


def test_21_what_is_asked_for_again_keeps_its_properties(store: MetadataStore) -> None:
    store.context("run", "r", {"by": "ann"})
    assert store.context("run", "r", {"by": "bob", "more": 1}).properties == {"by": "ann"}


def test_22_an_execution_that_is_not_there_is_not_ended(store: MetadataStore) -> None:
    nobody = replace(store.start("Make"), uid="00000000-0000-4000-8000-000000000000")
    with pytest.raises(NotFound):
        store.publish(nobody, {"out": [StagedArtifact("Span", "artifacts/a", "f", 1)]})
    with pytest.raises(NotFound):
        store.finish(nobody, "FAILED")
    assert store.artifacts(state=None) == []


def test_23_an_update_changes_what_it_names(store: MetadataStore) -> None:
    record = produce(store, "a", number=1, note="kept")
    assert store.update_artifact(record, properties={"number": 2}).properties == {"number": 2, "note": "kept"}
    assert store.update_artifact(record, properties={}).properties == {"number": 2, "note": "kept"}


def test_24_what_is_linked_twice_is_linked_once(store: MetadataStore) -> None:
    run = store.context("run", "r")
    execution = store.start("Make", contexts=[run, run])
    (record,) = store.publish(execution, {"out": [StagedArtifact("Span", "artifacts/a", "f", 1)]})["out"]
    for _ in range(2):
        store.record("Make", "CACHED", cached_from=store.execution(execution.id), contexts=[run])
    assert store.artifacts(context=run) == [record]
    assert store.contexts_of(record) == [run]


def test_25_a_parent_is_linked_once_and_must_be_there(store: MetadataStore) -> None:
    parent = store.context("pipeline", "p")
    for _ in range(2):
        child = store.context("run", "r", parents=[parent])
    assert store.parents(child) == [parent]
    for absent in (replace(parent, id=99, uid="x"), replace(parent, id=-1), replace(parent, id=99)):
        with pytest.raises(NotFound):
            store.context("run", "r", parents=[absent])
    with pytest.raises(NotFound):
        store.context("run", "new", parents=[replace(parent, uid="x")])
    for link in ("1, NULL", "NULL, 1", "1, 99", "99, 1"):
        with pytest.raises(InputError), store._db.write() as tx:
            tx.run(f"INSERT INTO context_parent (parent_id, child_id) VALUES ({link})")
    (run,) = store.contexts("run")
    assert store.parents(run) == [parent]


def test_26_downstream_has_no_inputs_and_upstream_no_outputs_of_the_start(store: MetadataStore) -> None:
    first = produce(store, "a")
    second = produce(store, "b", first)
    assert second.producer is not None
    middle = store.execution(second.producer)
    assert set(store.lineage(middle, "downstream").artifacts) == {second.id}
    assert set(store.lineage(middle, "upstream").artifacts) == {first.id}
    last = first
    for number in range(101):  # MLMD follows 100 edges and stops
        last = produce(store, f"chain-{number}", last)
    assert len(store.lineage(last).artifacts) == 102


def test_27_a_value_that_is_none_of_json_is_refused(store: MetadataStore) -> None:
    for value in (object(), b"bytes", float("nan")):
        with pytest.raises(InputError):
            store.start("Make", properties={"value": value})
    assert store.start("Make", properties={"value": None}).properties == {"value": None}


def test_28_a_database_of_another_release_is_refused_until_it_is_upgraded(database_address: StoreAddress) -> None:
    """An older one, with its data, is brought up to date in `test_migrations`."""
    address = database_address("metadata")
    with MetadataStore.open(address) as store:
        produce(store, "a")
        known = store._db.versions()[1]
        store._db._connection().execute(f"INSERT INTO schema_version VALUES ({known + 1}, 0)")
    for upgrade in (False, True):
        with pytest.raises(SchemaMismatch, match=f"version {known + 1}; this drivetrain knows up to {known}"):
            MetadataStore.open(address, upgrade=upgrade)


def test_29_of_several_outputs_all_are_stored_or_none(store: MetadataStore) -> None:
    taken = produce(store, "taken")
    execution = store.start("Make")
    fresh, twice = (StagedArtifact("Span", uri, "f", 1) for uri in ("artifacts/fresh", taken.uri))
    with pytest.raises(AlreadyExists):
        store.publish(execution, {"out": [fresh, twice]})
    assert store.artifacts() == [taken]
    assert store.execution(execution.id).state == "RUNNING"


def test_30_types_and_the_order_of_contexts_stay(store: MetadataStore, tmp_path: Path) -> None:
    record = produce(store, "a", number=1)
    assert store.update_artifact(replace(record, type="Other"), properties={"number": 2}).type == "Span"
    with pytest.raises(InputError, match=r"Span\.number is an integer, not 'seven'"):
        Span(tmp_path, number="seven")
    top = store.context("pipeline", "p")
    below = store.context("run", "r", parents=[top])
    with pytest.raises(StateError, match="cannot be a parent"):
        store.context("pipeline", "p", parents=[below])


# -- A2: what MLMD lets pass


def test_weak_01_an_update_does_not_drop_what_it_does_not_name(store: MetadataStore) -> None:
    run = store.context("run", "r", {"by": "ann", "note": "n"})
    assert store.update_context(run, {"note": "m"}).properties == {"by": "ann", "note": "m"}


def test_weak_02_a_stale_second_writer_is_told(store: MetadataStore) -> None:
    record = produce(store, "a")
    store.update_artifact(record, properties={"p": 1}, expected_version=record.version)
    with pytest.raises(ConflictError, match="version 2, not 1"):
        store.update_artifact(record, properties={"p": 2}, expected_version=record.version)
    assert store.update_artifacts([record], state="MARKED_FOR_DELETION", properties={}) == []
    assert store.artifact(record.id).properties == {"p": 1}


def test_weak_03_no_state_goes_back(store: MetadataStore) -> None:
    """A DELETED artifact is LIVE again where `fsck --undo` sees its payload whole, and nothing else asks for that."""
    record = produce(store, "a")
    assert record.producer is not None
    complete = store.execution(record.producer)
    with pytest.raises(StateError, match="is COMPLETE and cannot become"):
        store.publish(complete, {})
    for state in ("RUNNING", "NEW", "COMPLETE"):
        with pytest.raises(StateError):
            store.finish(complete, state)  # type: ignore[arg-type]
    deleted = store.update_artifact(record, state="DELETED")
    for state in ("PENDING", "MARKED_FOR_DELETION", "ABANDONED", "REFERENCE"):
        with pytest.raises(StateError, match=f"is DELETED and cannot become {state}"):
            store.update_artifact(deleted, state=state)  # type: ignore[arg-type]


def test_weak_04_an_artifact_has_one_producer(store: MetadataStore) -> None:
    record = produce(store, "a")
    execution = store.start("Make")
    again = StagedArtifact("Span", "artifacts/b", "f", 1, uid=record.uid)
    with pytest.raises(AlreadyExists, match="one producer"):
        store.publish(execution, {"out": [again]})
    with pytest.raises(StateError, match="must be a new artifact"), store._db.write() as tx:
        tx.run(f"INSERT INTO event VALUES ({execution.id}, 'OUTPUT', 'out', 0, {record.id}, 0)")


def test_weak_05_nothing_is_made_of_itself(store: MetadataStore) -> None:
    record = produce(store, "a")
    execution = store.start("Make", inputs={"in": [record]})
    with pytest.raises(StateError, match="must be a new artifact"), store._db.write() as tx:
        tx.run(f"INSERT INTO event VALUES ({execution.id}, 'OUTPUT', 'out', 0, {record.id}, 0)")
    with pytest.raises(StateError, match="takes no further input"), store._db.write() as tx:
        tx.run(f"INSERT INTO event VALUES ({record.producer}, 'INPUT', 'in', 0, {record.id}, 0)")


def test_weak_06_a_uri_is_of_one_artifact(store: MetadataStore) -> None:
    produce(store, "a")
    with pytest.raises(AlreadyExists, match="artifacts/a"):
        produce(store, "a")


def test_weak_07_an_id_that_is_not_there_is_named(store: MetadataStore) -> None:
    for ask in (store.artifact, store.execution):
        for reference in (99, "no-such-uid"):
            with pytest.raises(NotFound, match=repr(reference)):
                ask(reference)
    absent = replace(produce(store, "a"), id=99)
    with pytest.raises(NotFound, match="99"):
        store.update_artifact(absent, properties={"p": 1})
    with pytest.raises(NotFound, match="99"):
        store.update_artifacts([absent], state="DELETED", properties={})


def test_weak_08_a_name_that_would_not_come_back_is_refused(store: MetadataStore) -> None:
    for name in ("a\0b", "\ud800", "x" * 256):
        with pytest.raises(InputError):
            store.context("run", name)
        with pytest.raises(InputError):
            store.start("Make", name=name)


def test_weak_09_a_number_that_is_none_is_refused_by_its_name(store: MetadataStore) -> None:
    for value in (float("nan"), float("inf"), 2**63):
        with pytest.raises(InputError, match="metric"):
            store.context("run", "r", {"metric": value})
    assert store.contexts("run") == []


# -- A7

PUTS = 100
PUBLISH = """
import sys
from drivetrain.metadata import MetadataStore, StagedArtifact

with MetadataStore.open(sys.argv[1]) as store:
    for number in range(int(sys.argv[2])):
        claim = store.claim(f"key-{number}")
        execution = store.start("Make", cache_key=f"key-{number}")
        new = StagedArtifact("Span", f"artifacts/{number}", "f", 1)
        store.publish(execution, {"out": [new]}, claim=claim)
"""


@pytest.mark.slow
def test_a_publish_is_about_one_sync(tmp_path: Path) -> None:
    """Of claim, start and publish only the last is durable by itself: 1.3 syncs a node, with those of the log."""
    syncs = []
    for count in (0, PUTS):
        log = tmp_path / f"{count}.strace"
        child = [sys.executable, "-c", PUBLISH, str(tmp_path / f"{count}.db"), str(count)]
        traced = ["strace", "-f", "-qq", "-e", "trace=fsync,fdatasync", "-o", str(log)]
        try:
            subprocess.run([*traced, *child], check=True)
        except FileNotFoundError:
            pytest.skip("strace is not installed")
        syncs.append(len(re.findall(r"\bf(?:data)?sync\(", log.read_text())))
    assert PUTS <= syncs[1] - syncs[0] <= 1.3 * PUTS
