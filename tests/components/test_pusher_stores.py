"""Pushing to an S3 that is not ours, and to memory: whole versions or none, killed pushers, several at once, faults."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from drivetrain import InputError, stores, versions
from drivetrain.components.pusher import Pusher, push, still_pushed
from drivetrain.digest import digest_tree
from drivetrain.errors import Canceled
from drivetrain.metadata import Model
from drivetrain.owner import Owner
from drivetrain.pipelines import Home, RunOptions, load_pipeline, run_pipeline
from drivetrain.pipelines.dsl.component import Withdrawn
from drivetrain.stores import StorageUnavailable, Store
from drivetrain.tests.s3 import S3, SECRET, bucket, s3, s3_server

__all__ = ["bucket", "s3", "s3_server"]

PUSH = """
import sys
from pathlib import Path
from drivetrain.components.pusher import push
for _ in range(int(sys.argv[3])):
    print(*push(Path(sys.argv[1]), sys.argv[2]))
"""


def bundle(folder: Path, text: str, size: int = 10) -> Path:
    (folder / "weights").mkdir(parents=True)
    (folder / "graph.json").write_text("{}")
    (folder / "manifest.json").write_text(json.dumps({"model": text}))
    (folder / "weights" / "w.bin").write_bytes(text.encode() * size)
    return folder


def contents(store: Store, version: int) -> dict[str, bytes]:
    return {path: store.read(f"{version}/{path}") for path in store.entries(str(version))}


def files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(params=["memory", pytest.param("s3", marks=pytest.mark.s3)])
def serving(request: pytest.FixtureRequest) -> Iterator[Store]:
    """An empty destination in each kind of store."""
    fsspec = pytest.importorskip("fsspec")
    if request.param == "s3":
        yield Store(f"{request.getfixturevalue('bucket')}/serving/flights")
        return
    name = secrets.token_hex(4)
    yield Store(f"memory://serving-{name}/flights")
    fsspec.filesystem("memory").rm(f"/serving-{name}", recursive=True)


def test_versions_count_up_and_the_newest_is_adopted(serving: Store, tmp_path: Path) -> None:
    first, second = bundle(tmp_path / "a", "a"), bundle(tmp_path / "b", "b")
    url = serving.address
    assert push(first, url) == (1, digest_tree(first).fingerprint)
    assert push(first, url) == (1, digest_tree(first).fingerprint)
    assert push(second, url)[0] == 2
    assert push(first, url)[0] == 3
    assert serving.names("") == ["1", "1.json", "2", "2.json", "3", "3.json"]
    assert contents(serving, 2) == files(second)
    assert contents(serving, 3) == files(first)


def test_versions_of_others_are_counted_and_left_alone(serving: Store, tmp_path: Path) -> None:
    for name in ("7/model", "notes", "08/model"):
        serving.write(name, b"mine")
    assert push(bundle(tmp_path / "a", "a"), serving.address, keep=1)[0] == 8
    assert serving.names("") == ["08", "7", "8", "8.json", "notes"]


def test_keep_removes_the_oldest(serving: Store, tmp_path: Path) -> None:
    for text in "abcd":
        push(bundle(tmp_path / text, text), serving.address, keep=2)
    assert serving.names("") == ["3", "3.json", "4", "4.json"]
    assert push(tmp_path / "d", serving.address, keep=1)[0] == 4
    assert serving.names("") == ["4", "4.json"]


@pytest.mark.parametrize("name", ["run[1]", "run*", "run?"])
def test_a_destination_is_no_pattern(serving: Store, tmp_path: Path, name: str) -> None:
    """What is pruned in `run[1]/` lies beside `run1/1/`, which fsspec would take for the same."""
    beside, here = Store(f"{serving.address}/run1"), Store(f"{serving.address}/{name}")
    for text in "ab":
        push(bundle(tmp_path / text, text), beside.address)
    for text in "ab":
        push(tmp_path / text, here.address, keep=1)
    assert sorted(here.entries("")) == ["2.json", "2/graph.json", "2/manifest.json", "2/weights/w.bin"]
    assert [contents(beside, version) for version in (1, 2)] == [files(tmp_path / text) for text in "ab"]


@pytest.mark.parametrize("how", ["changed", "missing", "more", "no record of ours"])
def test_a_changed_version_is_not_adopted(serving: Store, tmp_path: Path, how: str) -> None:
    source = bundle(tmp_path / "a", "a")
    push(source, serving.address)
    if how == "changed":
        serving.write("1/weights/w.bin", b"b" * 10)
    elif how == "missing":
        serving.delete("1/weights/w.bin")
    elif how == "more":
        serving.write("1/weights/v.bin", b"b")
    else:
        serving.write("1.json", b"[]")
    assert push(source, serving.address)[0] == 2
    assert contents(serving, 2) == files(source)


@pytest.mark.s3
def test_the_record_comes_last_and_the_manifest_before_it(s3: S3, bucket: str, tmp_path: Path) -> None:
    push(bundle(tmp_path / "a", "a"), f"{bucket}/flights")
    puts = s3.puts()
    assert puts[0] == "flights/1.claim"
    assert sorted(puts[1:3]) == ["flights/1/graph.json", "flights/1/weights/w.bin"]
    assert puts[3:] == ["flights/1/manifest.json", "flights/1.json"]
    assert len(s3.asked) <= 16  # each takes some hundredths of a second


@pytest.mark.s3
@pytest.mark.slow
def test_pushers_at_once_get_different_whole_versions(s3: S3, bucket: str, tmp_path: Path) -> None:
    store = Store(f"{bucket}/flights")
    sources = [bundle(tmp_path / text, text, 50_000) for text in "aabc"[1:]] + [tmp_path / "a"]
    running = [
        subprocess.Popen(
            [sys.executable, "-c", PUSH, str(source), store.address, "3"], stdout=subprocess.PIPE, text=True
        )
        for source in sources
    ]
    pushed = [line.split() for process in running for line in process.communicate()[0].splitlines()]
    assert [process.returncode for process in running] == [0] * 4
    assert len(pushed) == 12
    by_digest = {digest_tree(source).fingerprint: files(source) for source in sources}
    for version, digest in pushed:
        assert contents(store, int(version)) == by_digest[digest]
    recorded = {name.removesuffix(".json") for name in store.names("") if name.endswith(".json")}
    assert {version for version, _ in pushed} == recorded
    assert set(store.names("")) == recorded | {f"{version}.json" for version in recorded}


@pytest.mark.s3
def test_a_killed_push_is_no_version_and_the_next_one_removes_it(s3: S3, bucket: str, tmp_path: Path) -> None:
    source, store, ended = bundle(tmp_path / "a", "a", 1_000_000), Store(f"{bucket}/flights"), threading.Event()

    def before(request: str) -> int | None:
        if request.startswith("PUT ") and "/flights/1/weights" in request:
            ended.wait(280)
            return 503  # to nobody: what was sent to a dead server is not stored
        return None

    s3.before = before
    process = subprocess.Popen([sys.executable, "-c", PUSH, str(source), store.address, "1"])
    try:
        deadline = time.monotonic() + 60
        while "graph.json" not in store.entries("1") or not any("weights" in name for name in s3.puts()):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        other = bundle(tmp_path / "b", "b")
        assert store.names("") == ["1", "1.claim"]
        assert push(other, store.address)[0] == 2  # another pusher at work is neither waited for nor removed
        assert store.entries("1")
    finally:
        process.kill()
        process.wait()
        ended.set()
    s3.before = lambda request: None
    assert push(other, store.address)[0] == 2
    assert store.names("") == ["2", "2.json"]


@pytest.mark.parametrize("newer", [False, True])
def test_a_push_of_another_machine_counts_as_dead_after_a_day(
    serving: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, newer: bool
) -> None:
    """Of two sweepers the slower one removes what is below a dead number once more: nobody may have it anew by then."""
    source = bundle(tmp_path / "a", "a")
    elsewhere = {**Owner.current().to_dict(), "host": "elsewhere"}
    claim = {"version": 1, "owner": elsewhere, "begun": "2026-01-01T00:00:00+00:00", "token": "x"}
    serving.write("1.claim", json.dumps(claim).encode())
    serving.write("1/weights/w.bin", b"half")
    if newer:
        assert push(source, serving.address)[0] == 2  # what was written just now may be going on
        assert serving.entries("1")
    monkeypatch.setattr(versions, "ABANDONED", -versions.ABANDONED)
    assert push(source, serving.address)[0] == 2
    assert not serving.entries("1")
    push(bundle(tmp_path / "b", "b"), serving.address)
    assert serving.names("") == ["2", "2.json", "3", "3.json"]


def dead_owner() -> dict[str, str | int]:
    """A process of this machine that has ended."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        pid = process.pid
    return {**Owner.current().to_dict(), "pid": pid, "start_time": ""}


def test_a_version_whose_pusher_died_right_after_it_was_made_stays(
    serving: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record comes between the sweeper's listing and its look at the claim, which nobody takes away any more."""
    source = bundle(tmp_path / "a", "a")
    push(source, serving.address)
    record = serving.read("1.json")
    serving.delete("1.json")
    serving.write("1.claim", json.dumps({"version": 1, "owner": dead_owner(), "token": "x"}).encode())
    real = Store.read

    def recorded_meanwhile(this: Store, name: str) -> bytes:
        if name == "1.claim":
            this.write("1.json", record)
        return real(this, name)

    monkeypatch.setattr(Store, "read", recorded_meanwhile)
    assert push(source, serving.address)[0] == 1
    assert serving.names("") == ["1", "1.json"]
    assert contents(serving, 1) == files(source)


def test_a_pusher_that_slept_while_it_was_swept_makes_no_version(
    serving: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It sleeps between its last look at what it sent and its record, for longer than the pushers of others live."""
    real, slept = versions.StoredVersions._upload, False

    def asleep(*arguments: Any) -> Any:
        nonlocal slept
        sent = real(*arguments)
        if not slept:
            slept = True
            with monkeypatch.context() as patch:
                patch.setattr(versions.StoredVersions, "_is_dead", lambda *_: True)
                assert push(bundle(tmp_path / "b", "b"), serving.address)[0] == 2
        return sent

    monkeypatch.setattr(versions.StoredVersions, "_upload", asleep)
    with pytest.raises(InputError, match=r"version 1 at .*/flights was taken for abandoned, and removed"):
        push(bundle(tmp_path / "a", "a"), serving.address)
    assert serving.names("") == ["2", "2.json"]


@pytest.mark.parametrize("name", ["3.claim", "3.json"])
@pytest.mark.parametrize(
    "body", [b"[]", b"5", b"null", b"[" * 100_000, b'{"version": Infinity, "files": {}, "digest": ""}']
)
def test_files_of_others_with_the_names_of_ours_are_no_versions(
    serving: Store, tmp_path: Path, name: str, body: bytes
) -> None:
    serving.write(name, body)
    assert push(bundle(tmp_path / "a", "a"), serving.address)[0] == 4


def test_who_was_taken_for_dead_makes_no_version(
    serving: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Store.read

    def swept(this: Store, name: str) -> bytes:
        if name == "1.claim":
            this.remove("1")
            this.delete(name)
        return real(this, name)

    monkeypatch.setattr(Store, "read", swept)
    with pytest.raises(InputError, match=r"version 1 at .*/flights was taken for abandoned, and removed"):
        push(bundle(tmp_path / "a", "a"), serving.address)
    assert serving.names("") == []


@pytest.mark.parametrize("left", ["1.json", "1/manifest.json", "1/weights/w.bin", "1.claim"])
def test_a_removal_that_was_killed_is_finished(
    serving: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: str
) -> None:
    first, second = bundle(tmp_path / "a", "a"), bundle(tmp_path / "b", "b")
    push(first, serving.address)
    real_delete, real_remove = Store.delete, Store.remove

    def stop(this: Store, name: str) -> None:
        if name == left or (name == "1" and left.endswith("w.bin")):
            raise KeyboardInterrupt
        (real_delete if "." in name else real_remove)(this, name)

    with monkeypatch.context() as patch:
        patch.setattr(Store, "delete", stop)
        patch.setattr(Store, "remove", stop)
        with pytest.raises(KeyboardInterrupt):
            push(second, serving.address, keep=1)
    assert push(second, serving.address)[0] == 2
    assert serving.names("") == ["2", "2.json"]


@pytest.mark.s3
@pytest.mark.parametrize("status", [500, 503])
def test_requests_that_fail_now_and_then_are_asked_again(
    s3: S3, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setattr(stores, "PAUSES", [0.01] * 4)
    failed: set[str] = set()

    def before(request: str) -> int | None:
        """Fail each request once."""
        if request in failed:
            return None
        failed.add(request)
        return status

    s3.before = before
    source = bundle(tmp_path / "a", "a")
    assert push(source, f"{bucket}/flights")[0] == 1
    s3.before = lambda request: None
    store = Store(f"{bucket}/flights")
    assert contents(store, 1) == files(source)
    assert store.names("") == ["1", "1.json"]


@pytest.mark.s3
def test_a_claim_whose_answer_was_lost_is_ours(
    s3: S3, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store created it and could not say so: the second try finds it there."""
    monkeypatch.setattr(stores, "PAUSES", [0.01] * 2)
    files_of_s3 = Store(bucket)._files  # fsspec gives the same one for each address of this server
    real, lost = files_of_s3.pipe_file, []

    def pipe_file(path: str, *rest: Any, **options: Any) -> None:
        real(path, *rest, **options)
        if path not in lost:
            lost.append(path)
            raise ConnectionResetError("the answer was lost")

    monkeypatch.setattr(files_of_s3, "pipe_file", pipe_file)
    assert push(bundle(tmp_path / "a", "a"), f"{bucket}/flights")[0] == 1
    assert len(lost) == 2
    assert Store(f"{bucket}/flights").names("") == ["1", "1.json"]


@pytest.mark.s3
def test_a_store_that_fails_for_good_leaves_nothing(
    s3: S3, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "PAUSES", [0.01])
    source = bundle(tmp_path / "a", "a")
    s3.before = lambda request: 503 if request.startswith("PUT ") and "w.bin" in request else None
    with pytest.raises(StorageUnavailable, match=r"flights/1/weights/w\.bin cannot be written after 2 tries") as caught:
        push(source, f"{bucket}/flights")
    assert SECRET not in str(caught.value)
    assert Store(f"{bucket}/flights").names("") == []
    s3.before = lambda request: 403 if request.startswith("PUT ") else None
    with pytest.raises(InputError, match=r"flights/1\.claim may not be written .*\n  fix: give credentials"):
        push(source, f"{bucket}/flights")
    s3.before = lambda request: None
    with pytest.raises(InputError, match=r"there is no such bucket"):
        push(source, f"{bucket}-not/flights")
    assert push(source, f"{bucket}/flights")[0] == 1


def test_a_file_that_does_not_lie_there_as_it_was_sent(
    serving: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Store.send

    def send(this: Store, path: Path, name: str, *rest: Any) -> None:
        real(this, path, name, *rest)
        if name.endswith("w.bin"):
            this.write(name, b"b" * 10)

    with monkeypatch.context() as patch:
        patch.setattr(Store, "send", send)
        with pytest.raises(InputError, match=r"1/weights/w\.bin is not there as it was sent"):
            push(bundle(tmp_path / "a", "a"), serving.address)
    assert serving.names("") == []


def test_a_bundle_that_changes_meanwhile_is_not_pushed(
    serving: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, source = Store.send, bundle(tmp_path / "a", "a")

    def send(this: Store, path: Path, name: str, *rest: Any) -> None:
        (source / "graph.json").write_text("[]")
        real(this, path, name, *rest)

    monkeypatch.setattr(Store, "send", send)
    with pytest.raises(InputError, match="changed while it was pushed"):
        push(source, serving.address)
    assert serving.names("") == []


def test_progress_may_stop_a_push(serving: Store, tmp_path: Path) -> None:
    seen: list[tuple[int, int | None, str]] = []
    source = bundle(tmp_path / "a", "a")
    push(source, serving.address, progress=lambda *much: seen.append(much))
    size = digest_tree(source).size
    assert seen[-1] == (size, size, "bytes uploaded")

    def stop(done: int, total: int | None, unit: str) -> None:
        raise Canceled("enough")

    with pytest.raises(Canceled):
        push(bundle(tmp_path / "b", "b"), serving.address, progress=stop)
    assert serving.names("") == ["1", "1.json"]


def model_of(text: str) -> Model:
    model = Model.new()
    bundle(model.content / "inner", text)
    return model


def test_a_push_is_believed_while_the_destination_holds_it(serving: Store, tmp_path: Path) -> None:
    pushed = Pusher(model_of("a"), destination=serving.address)
    assert (pushed.destination, pushed.version) == (serving.address, 1)
    receipt = json.loads((pushed.content / "receipt.json").read_text())
    assert receipt == {"destination": serving.address, "version": 1, "digest": pushed.digest}

    def verdict() -> str | Withdrawn | None:
        return still_pushed({"pushed": pushed}, {}, tmp_path)

    assert verdict() is None
    Pusher(model_of("b"), destination=serving.address)
    assert verdict() == f"version 2 was pushed to {serving.address} since"
    assert Pusher(model_of("a"), destination=serving.address).version == 3
    assert verdict() is None
    serving.write("1/inner/manifest.json", b"{}")
    assert verdict() == f"version 1 at {serving.address} is no longer what was pushed"
    serving.delete("1.json")
    assert verdict() == f"version 1 is no longer at {serving.address}"
    pushed.version = 4  # of which nothing is there: it was rolled back
    assert verdict() == Withdrawn(
        f"version 4 was removed from {serving.address}, which goes back to version 3, and is not pushed again"
    )


def test_a_store_that_does_not_list_what_it_holds(
    serving: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    push(bundle(tmp_path / "a", "a"), serving.address)
    serving.write("2.claim", b"{}")
    monkeypatch.setattr(Store, "names", lambda this, folder: [])
    assert push(tmp_path / "a", serving.address)[0] == 3
    monkeypatch.setattr(Store, "create", lambda this, name, data: False)
    monkeypatch.setattr(versions, "_TRIES", 3)
    with pytest.raises(InputError, match="refused 3 numbers in turn"):
        push(tmp_path / "a", serving.address)


def test_a_store_that_cannot_claim_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    with pytest.raises(InputError, match="cannot create a file only where there is none"):
        push(bundle(tmp_path / "a", "a"), f"local://{tmp_path}/serving")
    assert not (tmp_path / "serving").exists()


def test_a_file_url_is_a_folder(tmp_path: Path) -> None:
    Pusher(model_of("a"), destination=(tmp_path / "serving").as_uri())
    assert sorted(path.name for path in (tmp_path / "serving").iterdir()) == ["1", "1.json"]


@pytest.mark.s3
def test_a_run_pushes_once_and_looks_again_before_it_believes_the_cache(
    s3: S3, bucket: str, project: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = project(
        "shop",
        pipeline=f"""
        import drivetrain as dt
        from drivetrain.components import Pusher
        from drivetrain.metadata import Model

        @dt.component
        def Trained() -> Model:
            model = Model.new()
            (model.content / "manifest.json").write_text("{{}}")
            return model

        @dt.pipeline
        def shop() -> None:
            Pusher(Trained(), destination="{bucket}/flights")
        """,
    )
    store = Store(f"{bucket}/flights")
    with closing(Home(tmp_path / "home" / ".drivetrain")) as home:

        def run() -> list[str]:
            return [node.state for node in run_pipeline(home, load_pipeline(folder), {}, RunOptions()).nodes.values()]

        assert run() == ["COMPLETE", "COMPLETE"]
        assert store.names("") == ["1", "1.json"]
        assert run() == ["CACHED", "CACHED"]
        store.write("1/manifest.json", b"[]")
        assert run() == ["CACHED", "COMPLETE"]
        assert store.names("") == ["1", "1.json", "2", "2.json"]
        monkeypatch.setattr(stores, "PAUSES", [])
        s3.before = lambda request: 503
        assert run() == ["CACHED", "FAILED"]  # nobody can say whether it still stands
        s3.before = lambda request: None
        assert run() == ["CACHED", "CACHED"]
