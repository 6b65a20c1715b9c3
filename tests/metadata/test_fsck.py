"""fsck finds what crashes and hands left behind, and puts it in order."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from drivetrain.errors import InputError
from drivetrain.metadata import ArtifactRecord, ExecutionRecord, LocalPayloads, MetadataStore, Owner, StagedArtifact
from drivetrain.metadata.dialect import microseconds
from drivetrain.metadata.fsck import fsck, undo
from drivetrain.metadata.payload_marker import MARKER, mark
from drivetrain.tests.metadata.conftest import StoreAddress

DEAD = replace(Owner.current(), start_time="1")


@pytest.fixture
def store(store_address: StoreAddress) -> Iterator[MetadataStore]:
    with MetadataStore.open(store_address("metadata")) as opened:
        yield opened


@pytest.fixture
def payloads(tmp_path: Path) -> LocalPayloads:
    return LocalPayloads(tmp_path)


def move(
    store: MetadataStore,
    payloads: LocalPayloads,
    owner: Owner | None = None,
    inputs: Sequence[ArtifactRecord] = (),
) -> tuple[ExecutionRecord, StagedArtifact]:
    """Everything of a publish but the commit."""
    execution = store.start("Make", owner=owner, cache_key="k", inputs={"in": list(inputs)} if inputs else {})
    staged = payloads.stage("Make", execution.uid, "out")
    (staged / "content" / "file.txt").write_text("hello")
    (staged / "extra").mkdir()
    (staged / "extra" / "log.txt").write_text("log")
    uri = f"artifacts/Make/{execution.uid}/out"
    tree = payloads.publish(staged, uri)
    return execution, StagedArtifact("Thing", uri, tree.fingerprint, tree.size)


def make(
    store: MetadataStore, payloads: LocalPayloads, *inputs: ArtifactRecord, owner: Owner | None = None
) -> ArtifactRecord:
    execution, new = move(store, payloads, owner, inputs=inputs)
    return store.publish(execution, {"out": [new]})["out"][0]


def test_an_empty_root_is_clean(store: MetadataStore, tmp_path: Path) -> None:
    assert fsck(store, tmp_path).clean
    assert fsck(store, tmp_path / "nowhere").clean


def test_everything_is_found_and_repaired(store: MetadataStore, payloads: LocalPayloads, tmp_path: Path) -> None:
    whole, missing, corrupt, scratched = (make(store, payloads) for _ in range(4))
    shutil.rmtree(payloads.local(missing.uri))
    file = payloads.local(corrupt.uri) / "content" / "file.txt"
    file.chmod(0o644)
    file.write_text("hellO")
    log = payloads.local(scratched.uri) / "extra" / "log.txt"
    log.chmod(0o644)
    log.write_text("")
    dead, orphan = move(store, payloads, DEAD)
    stale = payloads.stage("Make", dead.uid, "second")
    store.claim("held-by-the-dead", owner=DEAD, lease=3600)

    seen: list[tuple[int, int | None]] = []
    report = fsck(store, tmp_path, progress=lambda done, total, unit: seen.append((done, total)))
    assert not report.clean
    assert not report.repaired
    assert report.checked == 3
    assert report.missing == (missing.uri,)
    assert report.corrupt == (
        (scratched.uri, "extra/log.txt changed"),
        (corrupt.uri, "content/file.txt changed"),
    )
    assert report.orphans == (orphan.uri,)
    assert report.staging == (f"work/staging/{dead.uid}",)
    assert report.claims == ("held-by-the-dead",)
    assert report.executions == (dead.id,)
    assert seen[-1] == (4, 4)
    assert report == fsck(store, tmp_path)  # looking changes nothing

    assert fsck(store, tmp_path, repair=True).repaired
    assert fsck(store, tmp_path).clean
    assert store.artifact(missing.id).state == "DELETED"
    assert store.artifact(corrupt.id).state == store.artifact(scratched.id).state == "ABANDONED"
    assert store.artifacts() == [whole]
    assert store.execution(dead.id).state == "ABANDONED"
    assert not stale.exists()
    assert not payloads.local(orphan.uri).exists()
    assert payloads.local(corrupt.uri).exists()  # to be looked at
    hit = store.find_cached("k")
    assert hit is not None
    assert hit.id == whole.producer


def test_what_a_living_process_is_doing_is_left_alone(
    store: MetadataStore, payloads: LocalPayloads, tmp_path: Path
) -> None:
    execution, new = move(store, payloads)
    staged = payloads.stage("Make", execution.uid, "second")
    claim = store.claim("k")
    assert fsck(store, tmp_path, repair=True).clean
    assert staged.is_dir()
    assert claim is not None
    store.publish(execution, {"out": [new]}, claim=claim)


def test_an_old_orphan_is_found_although_something_runs(
    payloads: LocalPayloads, database_address: StoreAddress, tmp_path: Path
) -> None:
    with MetadataStore.open(database_address("metadata")) as store:
        _, orphan = move(store, payloads, DEAD)
        with MetadataStore.open(database_address("metadata"), clock=lambda: microseconds() + 5_000_000) as later:
            later.start("Make")
        assert fsck(store, tmp_path).orphans == (orphan.uri,)


def test_a_payload_swapped_for_another_is_corrupt(
    store: MetadataStore, payloads: LocalPayloads, tmp_path: Path
) -> None:
    execution = make(store, payloads)
    payloads.remove(execution.uri)
    staged = payloads.stage("Make", "other", "out")
    payloads.publish(staged, execution.uri)
    assert fsck(store, tmp_path).corrupt == ((execution.uri, "content is not what the store says"),)


def test_a_payload_behind_a_link_is_reported(store: MetadataStore, payloads: LocalPayloads, tmp_path: Path) -> None:
    execution = make(store, payloads)
    target = payloads.local(execution.uri)
    elsewhere = tmp_path / "elsewhere"
    target.rename(elsewhere)
    target.symlink_to(elsewhere)
    report = fsck(store, tmp_path)
    assert report.missing == ()
    assert report.corrupt[0][0] == execution.uri
    assert "link" in report.corrupt[0][1]
    fsck(store, tmp_path, repair=True)
    assert elsewhere.is_dir()


def change(payloads: LocalPayloads, artifact: ArtifactRecord, text: str) -> None:
    file = payloads.local(artifact.uri) / "content" / "file.txt"
    file.chmod(0o644)
    file.write_text(text)


def test_all_that_was_made_from_a_changed_payload_is_retired_and_comes_back_when_it_is_whole(
    store: MetadataStore, payloads: LocalPayloads, tmp_path: Path
) -> None:
    mark(store, tmp_path, is_new=True)
    first = make(store, payloads)
    second = make(store, payloads, first)
    third = make(store, payloads, second)
    apart = make(store, payloads)
    change(payloads, first, "hellO")
    report = fsck(store, tmp_path)
    assert report.derived == (second.uri, third.uri)
    assert fsck(store, tmp_path, repair=True).derived == report.derived
    assert store.artifacts() == [apart]
    assert fsck(store, tmp_path).clean
    assert undo(store, tmp_path) == ([], [first.uri, second.uri, third.uri])
    change(payloads, first, "hello")
    assert undo(store, tmp_path) == ([first.uri, second.uri, third.uri], [])
    assert [each.id for each in store.artifacts()] == [each.id for each in (apart, third, second, first)]
    assert fsck(store, tmp_path).clean
    with pytest.raises(InputError, match="no repair"):
        undo(store, tmp_path)


@pytest.mark.parametrize("marked", [True, False])
@pytest.mark.parametrize("how", ["away", "empty", "link"])
def test_payloads_that_are_merely_elsewhere_are_not_taken_for_lost(
    store: MetadataStore, payloads: LocalPayloads, tmp_path: Path, marked: bool, how: str
) -> None:
    if marked:
        mark(store, tmp_path, is_new=True)
    artifact = make(store, payloads)
    (tmp_path / "artifacts").rename(tmp_path / "kept")
    if how == "empty":
        (tmp_path / "artifacts").mkdir()
    elif how == "link":
        (tmp_path / "artifacts").symlink_to(tmp_path / "kept")
    mark(store, tmp_path, is_new=False)  # what the next run does: no marker for what may be a mount point
    with pytest.raises(InputError, match="is a link" if how == "link" else "may not be mounted"):
        fsck(store, tmp_path, repair=True)
    assert store.artifacts() == [artifact]
    shutil.rmtree(tmp_path / "artifacts") if how == "empty" else (tmp_path / "artifacts").unlink(missing_ok=True)
    (tmp_path / "kept").rename(tmp_path / "artifacts")
    assert fsck(store, tmp_path, repair=True).clean


def test_the_payloads_of_another_store_are_not_repaired(
    store: MetadataStore, payloads: LocalPayloads, store_address: StoreAddress, tmp_path: Path
) -> None:
    artifact = make(store, payloads)
    with MetadataStore.open(store_address("other")) as other:
        mark(other, tmp_path, is_new=True)
    with pytest.raises(InputError, match="belongs to another store"):
        fsck(store, tmp_path, repair=True)
    assert "belongs to another store" in fsck(store, tmp_path).marker[0]
    assert store.artifacts() == [artifact]
    (tmp_path / MARKER).write_text("no JSON")
    report = fsck(store, tmp_path)
    assert not report.clean
    assert ".store.json cannot be read" in report.marker[0]
    assert report.marker[0].endswith("; delete it; the next run writes it")
    with pytest.raises(InputError, match=r"\.store\.json cannot be read"):
        fsck(store, tmp_path, repair=True)
    (tmp_path / MARKER).unlink()
    os.mkfifo(tmp_path / MARKER)  # to read it would wait for ever
    with pytest.raises(InputError, match=r"\.store\.json cannot be read \(it is no plain file\)"):
        fsck(store, tmp_path, repair=True)


def test_what_lies_in_another_hosts_root_is_not_taken_for_lost(
    store: MetadataStore, payloads: LocalPayloads, tmp_path: Path
) -> None:
    roots = {host: tmp_path / host for host in ("here", "there")}
    for root in roots.values():
        mark(store, root, is_new=True)
    mine = make(store, LocalPayloads(roots["here"]))
    lost = make(store, LocalPayloads(roots["here"]))
    theirs = make(store, LocalPayloads(roots["there"]), owner=replace(Owner.current(), host="another"))
    shutil.rmtree(roots["here"] / lost.uri)
    report = fsck(store, roots["here"], repair=True)
    assert report.elsewhere == (theirs.uri,)
    assert report.missing == (lost.uri,)
    assert {each.id for each in store.artifacts()} == {mine.id, theirs.id}
