"""fsck where payloads lie behind a URL, where their names mislead, and where pipelines run on while it reads."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from drivetrain.errors import InputError
from drivetrain.metadata import (
    ArtifactRecord,
    Claim,
    ExecutionRecord,
    MetadataStore,
    Payloads,
    StagedArtifact,
    open_payloads,
)
from drivetrain.metadata.fsck import fsck

pytest.importorskip("fsspec")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MetadataStore]:
    with MetadataStore.open(tmp_path / "metadata.db") as opened:
        yield opened


@pytest.fixture
def share(tmp_path: Path) -> Path:
    return tmp_path / "share"


@pytest.fixture
def payloads(store: MetadataStore, tmp_path: Path, share: Path) -> Payloads:
    return open_payloads(store, tmp_path, f"file://{share}")


def put(store: MetadataStore, payloads: Payloads, node: str = "Make", key: str = "out") -> tuple[int, StagedArtifact]:
    """Everything of a publish but the commit."""
    execution = store.start(node, cache_key=f"key of {node}")
    staged = payloads.stage(node, execution.uid, key)
    (staged / "content" / "file.txt").write_text("hello")
    uri = f"artifacts/{node}/{execution.uid}/{key}"
    tree = payloads.publish(staged, uri)
    shutil.rmtree(payloads.staging_folder(execution.uid), ignore_errors=True)
    return execution.id, StagedArtifact("Thing", uri, tree.fingerprint, tree.size)


def make(store: MetadataStore, payloads: Payloads, node: str = "Make", key: str = "out") -> ArtifactRecord:
    execution, new = put(store, payloads, node, key)
    return store.publish(store.execution(execution), {key: [new]})[key][0]


def left_behind(store: MetadataStore, payloads: Payloads) -> tuple[ExecutionRecord, StagedArtifact]:
    """An upload whose execution failed before its commit."""
    number, new = put(store, payloads)
    return store.finish(store.execution(number), "FAILED"), new


@pytest.mark.parametrize("where", ["local", "share"])
@pytest.mark.parametrize("node", ["content", "extra", "manifest.json", "Make"])
@pytest.mark.parametrize("key", ["content", "extra", "out"])
def test_names_of_nodes_and_outputs_mislead_nobody(
    store: MetadataStore, tmp_path: Path, share: Path, where: str, node: str, key: str
) -> None:
    payloads = open_payloads(store, tmp_path, f"file://{share}" if where == "share" else None)
    executions = [make(store, payloads, node, key), make(store, payloads, "Other", key)]
    assert {each.uri for each in payloads.published()} == {artifact.uri for artifact in executions}
    report = fsck(store, tmp_path, repair=True)
    assert report.clean, report.to_dict()
    assert all(payloads.problems(artifact.uri, artifact.fingerprint) == [] for artifact in executions)


def test_an_upload_that_is_gone_on_with_meanwhile_stays(
    store: MetadataStore, payloads: Payloads, tmp_path: Path
) -> None:
    """To read all payloads takes hours, in which a resumed run may publish what was an orphan at first."""
    make(store, payloads, "Other")
    begun, new = left_behind(store, payloads)

    def meanwhile(done: int, total: int | None, unit: str) -> None:
        if done == 0:
            assert begun.cache_key is not None
            claim = store.claim(begun.cache_key)
            store.publish(store.start("Make", cache_key=begun.cache_key), {"out": [new]}, claim=claim)

    assert fsck(store, tmp_path).orphans == (new.uri,)
    report = fsck(store, tmp_path, repair=True, progress=meanwhile)
    assert report.orphans == ()
    assert payloads.present(new.uri)
    assert fsck(store, tmp_path).clean


@pytest.mark.parametrize("without_cache", [False, True])
def test_an_upload_that_somebody_begins_to_go_on_with_stays(
    store: MetadataStore, payloads: Payloads, tmp_path: Path, without_cache: bool
) -> None:
    """As its claim says, also that of a task without the cache."""
    make(store, payloads, "Other")
    claimed = "a claim of its own" if without_cache else "key of Make"
    execution = store.start("Make", cache_key="key of Make", properties={"claim": claimed} if without_cache else {})
    uri = f"artifacts/Make/{execution.uid}/out"
    payloads.publish(payloads.stage("Make", execution.uid, "out"), uri)
    shutil.rmtree(payloads.staging_folder(execution.uid), ignore_errors=True)
    store.finish(execution, "FAILED")
    taken: list[Claim] = []

    def meanwhile(done: int, total: int | None, unit: str) -> None:
        if done == 0 and (claim := store.claim(claimed)) is not None:
            taken.append(claim)

    assert fsck(store, tmp_path, repair=True, progress=meanwhile).orphans == ()
    assert payloads.present(uri)
    store.release(taken[0])
    assert fsck(store, tmp_path, repair=True).orphans == (uri,)
    assert not payloads.present(uri)
    assert store.claim(claimed) is not None


def test_what_is_changed_meanwhile_is_left_to_the_next_time(
    store: MetadataStore, payloads: Payloads, tmp_path: Path
) -> None:
    make(store, payloads, "Other")
    lost, torn, back = (make(store, payloads) for _ in range(3))
    shutil.rmtree(tmp_path / "share" / lost.uri)
    (tmp_path / "share" / torn.uri / "content" / "file.txt").write_text("hellO")
    (tmp_path / "share" / back.uri).rename(tmp_path / "away")

    def meanwhile(done: int, total: int | None, unit: str) -> None:
        if done == total:
            for each in (lost, torn):
                store.update_artifact(each, properties={"looked": "at"})
            (tmp_path / "away").rename(tmp_path / "share" / back.uri)

    report = fsck(store, tmp_path, repair=True, progress=meanwhile)
    assert (report.missing, report.corrupt) == ((), ())
    assert {each.state for each in store.artifacts(state=None)} == {"LIVE"}
    report = fsck(store, tmp_path, repair=True)
    assert report.missing == (lost.uri,)
    assert report.corrupt == ((torn.uri, "content/file.txt changed"),)


def test_a_share_that_is_not_mounted_is_not_taken_for_an_empty_one(
    store: MetadataStore, payloads: Payloads, tmp_path: Path, share: Path
) -> None:
    executions = [make(store, payloads) for _ in range(2)]
    share.rename(tmp_path / "unmounted")
    share.mkdir()
    assert len(fsck(store, tmp_path).missing) == 2
    with pytest.raises(InputError, match=r"nothing is in file://.*, where 2 artifacts should\n  fix: see that it is"):
        fsck(store, tmp_path, repair=True)
    assert {each.state for each in store.artifacts(state=None)} == {"LIVE"}
    share.rmdir()
    (tmp_path / "unmounted").rename(share)
    assert fsck(store, tmp_path, repair=True).clean
    assert all(payloads.present(each.uri) for each in executions)
