"""Many processes, kills, full disks: nothing acknowledged is lost, nothing half done is seen."""

from __future__ import annotations

import gc
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from drivetrain.metadata import (
    DiskFull,
    LocalPayloads,
    MetadataStore,
    SchemaMismatch,
    StoreUnavailable,
    database,
)
from drivetrain.metadata.audit import verify
from drivetrain.metadata.backup import back_up
from drivetrain.metadata.dialect import Connection, Sqlite, Statement
from drivetrain.metadata.fsck import fsck
from drivetrain.metadata.payload import explain_full_disk
from drivetrain.tests.metadata.conftest import StoreAddress

WORKERS = Path(__file__).with_name("workers.py")


def spawn(*arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, str(WORKERS), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(processes: list[subprocess.Popen[str]]) -> None:
    for process in processes:
        _, errors = process.communicate(timeout=240)
        assert process.returncode == 0, errors


def first_opens(meetings: Path, workers: int, addresses: Sequence[str | Path]) -> None:
    finish([spawn("first_open", meetings, workers, *addresses) for _ in range(workers)])
    for address in addresses:
        with MetadataStore.open(address) as store:
            assert len(store.contexts("pipeline")) == 1


def test_first_opens_at_once(tmp_path: Path) -> None:
    first_opens(tmp_path, 4, [tmp_path / f"{number}.db" for number in range(3)])


@pytest.mark.slow
def test_eight_first_opens_twenty_five_times(database_address: StoreAddress, tmp_path: Path) -> None:
    first_opens(tmp_path, 8, [database_address(str(number)) for number in range(25)])


@pytest.mark.slow
def test_eight_processes_publish_two_hundred_each(database_address: StoreAddress) -> None:
    address = database_address("metadata")
    finish([spawn("publish", address, worker, 200) for worker in range(8)])
    with MetadataStore.open(address) as store:
        run = store.find_context("run", "shared")
        assert run is not None
        executions = store.executions(context=run)
        assert len(executions) == 1600
        assert {execution.state for execution in executions} == {"COMPLETE"}
        assert Counter(a.properties["worker"] for a in store.artifacts(context=run)) == dict.fromkeys(range(8), 200)
        report = verify(store)
        assert report.findings == []
        assert report.entries >= 3200
        assert store.integrity() == []


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_each_key_is_published_once_under_kills(database_address: StoreAddress) -> None:
    address, keys, chance = database_address("metadata"), 100, random.Random(4)
    MetadataStore.open(address).close()
    workers = [spawn("work_on_keys", address, keys, seed) for seed in range(8)]
    killed = 0
    deadline = time.monotonic() + 500
    with MetadataStore.open(address) as store:
        while time.monotonic() < deadline:
            time.sleep(chance.uniform(0.05, 0.2))
            for worker in [worker for worker in workers if worker.poll() is not None]:
                _, errors = worker.communicate()
                assert worker.returncode == 0, errors
                workers.remove(worker)
            if not workers and killed >= 3:
                break
            if not workers:  # they were too fast for us
                keys += 50
                workers = [spawn("work_on_keys", address, keys, seed) for seed in range(8)]
            victim = chance.choice(workers)
            at_work = {each.owner.pid for each in store.executions(state="RUNNING") if each.owner is not None}
            if killed < 12 and victim.pid in at_work and victim.poll() is None:
                victim.send_signal(signal.SIGKILL)
                victim.communicate()
                killed += 1
                workers.remove(victim)
                workers.append(spawn("work_on_keys", address, keys, 100 + killed))
        assert not workers
        store.abandon()
        complete = store.executions(state="COMPLETE")
        assert Counter(execution.cache_key for execution in complete) == {f"key-{i}": 1 for i in range(keys)}
        assert len(store.artifacts()) == keys
        assert {e.state for e in store.executions()} == {"COMPLETE", "ABANDONED"}
        assert store.claims() == []


@pytest.mark.slow
def test_forty_kills_while_publishing_leave_no_row_without_its_payload(
    database_address: StoreAddress, tmp_path: Path
) -> None:
    address, chance = database_address("metadata"), random.Random(7)
    for _ in range(40):
        process = spawn("publish_payloads", tmp_path, address)
        assert process.stdout is not None
        took = float(process.stdout.readline())
        time.sleep(chance.uniform(0, 10 * took))
        process.kill()
        process.communicate()
    with MetadataStore.open(address) as store:
        report = fsck(store, tmp_path, repair=True)
        assert report.checked >= 40
        assert report.missing == ()
        assert report.corrupt == ()
        assert report.database == ()
        assert fsck(store, tmp_path).clean
        assert store.executions(state="RUNNING") == []


def test_a_forked_child_has_a_connection_of_its_own(tmp_path: Path) -> None:
    # In a process of its own: what else this one has imported, JAX say, may warn of forks.
    path = tmp_path / "metadata.db"
    subprocess.run([sys.executable, str(WORKERS), "fork", str(path)], check=True)
    with MetadataStore.open(path) as store:
        assert [context.name for context in store.contexts("run")] == ["parent again", "child", "parent"]


def test_a_file_size_limit_gives_one_clear_error(tmp_path: Path) -> None:
    process = subprocess.run(
        [sys.executable, str(WORKERS), "fill_disk", str(tmp_path), "300000"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert process.stdout.startswith("DiskFull: disk full while writing"), process.stdout + process.stderr
    assert "free space and try again; a run by `drivetrain resume`" in process.stdout


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", str(disk)], capture_output=True, text=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("cannot mount a tmpfs here (needs root)")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def fill(store: MetadataStore) -> None:
    for _ in range(1000):
        store.start("Filler", properties={"text": "x" * 10_000})


def test_a_full_disk_publishes_nothing_and_the_store_stays_whole(small_disk: Path) -> None:
    payloads = LocalPayloads(small_disk)
    with MetadataStore.open(small_disk / "metadata.db") as store:
        execution = store.start("Producer")
        staged = payloads.stage("Producer", execution.uid, "out")
        with pytest.raises(DiskFull, match="disk full"), explain_full_disk("writing"):
            (staged / "content" / "big.bin").write_bytes(b"x" * 1_000_000)
        with pytest.raises(StoreUnavailable, match="free space"):
            fill(store)
        before = len(store.executions())
        payloads.discard(staged)
        assert store.integrity() == []
        store.finish(execution, "FAILED", error="disk full")
        assert len(store.executions()) == before
        store.abandon()


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user, which needs root")
def test_what_may_not_be_written_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    MetadataStore.open(tmp_path / "metadata.db").close()
    with tempfile.TemporaryDirectory() as folder:  # pytest's own folders are closed to others
        shutil.copy(tmp_path / "metadata.db", folder)
        Path(folder).chmod(0o755)
        for what, readonly, said in (
            ("metadata.db", "", "is read-only"),
            ("metadata.db", "readonly", "was opened to read only"),
            ("new.db", "", "cannot open"),
            ("sub/new.db", "", "cannot make the folder"),
        ):
            process = spawn("open_as_nobody", Path(folder, what), readonly)
            assert said in process.communicate()[0]


def test_a_store_in_a_folder_that_may_not_be_written_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "metadata.db"
    with MetadataStore.open(path) as store:
        store.context("run", "first")
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # as of another user, whom root is not
    before = path.stat()
    with MetadataStore.open(path, readonly=True) as store:
        assert [context.name for context in store.contexts("run")] == ["first"]
        assert [each.name for each in tmp_path.iterdir()] == ["metadata.db"]
        back_up(path, tmp_path / "copies" / "a.db")
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    copy = sqlite3.connect(tmp_path / "copies" / "a.db")
    assert copy.execute("PRAGMA journal_mode").fetchone() == ("wal",)  # as the store it may once replace
    copy.close()
    with MetadataStore.open(path) as writer, MetadataStore.open(path, readonly=True) as store:
        writer.context("run", "second")  # in the log alone, which is read where there is one
        assert {context.name for context in store.contexts("run")} == {"first", "second"}


def test_a_store_that_was_written_while_it_was_read_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "metadata.db"
    MetadataStore.open(path).close()
    os.utime(path, (0, 0))  # so that any clock shows that it was written since
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    read = Path.read_bytes
    reads: list[Path] = []

    def read_and_write(self: Path) -> bytes:
        image = read(self)
        if self == path and not reads:
            with MetadataStore.open(path) as store:
                store.context("run", "meanwhile")
        reads.append(self)
        return image

    monkeypatch.setattr(Path, "read_bytes", read_and_write)
    with MetadataStore.open(path, readonly=True) as store:
        assert [context.name for context in store.contexts("run")] == ["meanwhile"]
    assert reads == [path, path]


def test_a_store_whose_files_were_closed_is_used_no_more(tmp_path: Path) -> None:
    path = tmp_path / "metadata.db"
    process = spawn("close_files", path)
    said, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    what = f"Closer closed files that are not its own, those of {path} among them"
    assert said.splitlines()[0::2] == [what, what]
    assert "run by --runner process" in said
    assert Path(f"{path}.log").read_bytes() == b""
    with MetadataStore.open(path) as store:
        assert store.integrity() == []
        assert [context.name for context in store.contexts("run")] == ["before"]


def test_files_that_a_block_opened_or_threads_of_its_own_are_not_missed(tmp_path: Path) -> None:
    path = tmp_path / "metadata.db"
    with MetadataStore.open(path) as store:
        store.context("run", "one")
        earlier = threading.Thread(target=store.contexts, args=("run",))  # has a connection, which ends with it
        with store.files_kept("Honest"):
            earlier.start()
            earlier.join()
            with MetadataStore.open(path, readonly=True) as other:
                assert other.contexts("run")
            gc.collect()
        assert store.context("run", "two").name == "two"


@pytest.mark.parametrize("version", [-1, 0, "one", None, 1.5])
def test_a_schema_version_that_is_none_is_damage(version: object, tmp_path: Path) -> None:
    MetadataStore.open(tmp_path / "metadata.db").close()
    with sqlite3.connect(tmp_path / "metadata.db") as held:
        held.execute("DROP TABLE schema_version")
        held.execute("CREATE TABLE schema_version (version, applied_us)")
        held.execute("INSERT INTO schema_version VALUES (?, 0)", (version,))
    held.close()
    with pytest.raises(StoreUnavailable, match=rf"metadata\.db is damaged: its schema version is {version!r}"):
        MetadataStore.open(tmp_path / "metadata.db")


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "metadata.db"
    path.write_text("this is not a database at all, just some text that is long enough")
    with pytest.raises(StoreUnavailable, match=r"metadata\.db is damaged"):
        MetadataStore.open(path)
    other = tmp_path / "other.db"
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE somebody (else_ TEXT)")
    connection.close()
    with pytest.raises(SchemaMismatch, match="not a drivetrain store"):
        MetadataStore.open(other)


def test_a_busy_database_is_waited_for_then_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "metadata.db"
    with MetadataStore.open(path) as store:
        blocker = sqlite3.connect(path, isolation_level=None)
        blocker.execute("BEGIN IMMEDIATE")
        monkeypatch.setattr(database, "_PATIENCE", 0.2)
        with pytest.raises(StoreUnavailable, match="locked by another process"):
            store.context("run", "r")
        assert store.contexts("run") == []  # readers are not held up
        blocker.execute("ROLLBACK")
        blocker.close()
        store.context("run", "r")


def test_report_is_json(tmp_path: Path) -> None:
    with MetadataStore.open(tmp_path / "metadata.db") as store:
        assert json.loads(json.dumps(fsck(store, tmp_path).to_dict()))["clean"] is True


def test_ctrl_c_right_after_the_lock_was_taken_gives_it_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begin = Sqlite.begin_write

    def interrupted(self: Sqlite, connection: Connection, first: Sequence[Statement], *, durable: bool) -> None:
        begin(self, connection, first, durable=durable)
        raise KeyboardInterrupt

    path = tmp_path / "metadata.db"
    with MetadataStore.open(path) as store, MetadataStore.open(path) as other:
        with monkeypatch.context() as patch:
            patch.setattr(Sqlite, "begin_write", interrupted)
            with pytest.raises(KeyboardInterrupt):
                store.context("run", "lost")
        other.context("run", "another's")
        store.context("run", "own")
        assert [context.name for context in store.contexts("run")] == ["own", "another's"]
