"""What befalls a store on PostgreSQL: servers that die or are not there; and who may know a password."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from drivetrain.errors import DrivetrainError, InputError
from drivetrain.metadata import (
    MetadataStore,
    NoStore,
    SchemaMismatch,
    StagedArtifact,
    StateError,
    StoreUnavailable,
    database,
    writes,
)
from drivetrain.metadata.audit import verify
from drivetrain.metadata.namespaces import create_namespace
from drivetrain.tests.data.postgres import Server

pytestmark = [pytest.mark.postgres, pytest.mark.slow]
WORKERS = Path(__file__).with_name("workers.py")
Fresh = Callable[[], str]


def spawn(*arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, str(WORKERS), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(processes: list[subprocess.Popen[str]]) -> None:
    for process in processes:
        _, errors = process.communicate(timeout=240)
        assert process.returncode == 0, errors


@pytest.fixture
def server() -> Iterator[Server]:
    """A server that a test may kill."""
    server = Server()
    server.start()
    yield server
    server.close()


def publish(store: MetadataStore, name: str) -> None:
    execution = store.start("Make")
    store.publish(execution, {"out": [StagedArtifact("Thing", f"artifacts/{name}", "f" * 64, 1)]})


def test_a_server_that_is_killed_loses_nothing_and_is_found_again(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with MetadataStore.open(server.url) as store:
        claim = store.claim("k")
        assert claim is not None
        publish(store, "before")
        execution = store.start("Make", cache_key="k")
        with pytest.raises(StoreUnavailable, match="does not answer"), store._db.write() as tx:  # noqa: PT012
            tx.run("UPDATE execution SET state = 'FAILED' WHERE id = :id", id=execution.id)
            server.kill()
            tx.run("UPDATE execution SET error = 'half' WHERE id = :id", id=execution.id)
        with monkeypatch.context() as patch:
            patch.setattr(database, "_PATIENCE", 0.3)
            for ask in (store.executions, lambda: store.heartbeat(claim), store.now):
                with pytest.raises(StoreUnavailable, match="see that the server runs"):
                    ask()
        again = threading.Timer(1.0, server.start)
        again.start()
        store.heartbeat(claim)  # waits until it is there again
        again.join()
        assert store.execution(execution.id).state == "RUNNING"
        store.publish(execution, {"out": [StagedArtifact("Thing", "artifacts/after", "f" * 64, 1)]}, claim=claim)
        assert {artifact.uri for artifact in store.artifacts()} == {"artifacts/before", "artifacts/after"}
        assert store.integrity() == []


def test_a_connection_that_idles_is_replaced_without_a_word(postgres: Server, schema: Fresh) -> None:
    import psycopg

    with MetadataStore.open(schema()) as store:
        execution = store.start("Make")
        for ask in (lambda: store.context("run", "r"), store.executions, lambda: store.lineage(execution)):
            pid = store._db.first("SELECT pg_backend_pid() AS pid")
            assert pid is not None
            with psycopg.connect(postgres.url, autocommit=True) as other:
                other.execute("SELECT pg_terminate_backend(%s, 5000)", (pid["pid"],))
            ask()


@pytest.mark.slow
def test_acknowledged_writes_survive_kills_of_the_server(server: Server) -> None:
    done: list[str] = []
    stop = threading.Event()

    def work(number: int) -> None:
        with MetadataStore.open(server.url) as store:
            index = 0
            while not stop.is_set():
                name = f"{number}-{index}"
                index += 1
                try:
                    publish(store, name)
                except StoreUnavailable:
                    continue
                done.append(name)

    MetadataStore.open(server.url).close()
    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(3):
            before = len(done)
            while len(done) < before + 10:
                assert all(thread.is_alive() for thread in threads)
                time.sleep(0.01)
            server.kill()
            server.start()
    finally:
        stop.set()
    for thread in threads:
        thread.join()
    with MetadataStore.open(server.url) as store:
        there = {artifact.uri for artifact in store.artifacts()}
        assert len(done) >= 30
        assert {f"artifacts/{name}" for name in done} <= there
        for execution in store.executions(state="COMPLETE"):
            assert store.outputs(execution)


class Lost:
    """Has a store's next transaction lose its connection as it commits: before the server hears of it, or after."""

    def __init__(self, store: MetadataStore, postgres: Server, *, after: bool) -> None:
        self._connection = store._db._connection()
        self._postgres, self._after = postgres, after

    def __enter__(self) -> None:
        self._connection.commit_after = lambda last: self._lose("commit_after", last)
        self._connection.execute = self._execute

    def __exit__(self, *_: object) -> None:
        assert self._connection.closed

    def _execute(self, sql: str, *arguments: Any) -> Any:
        if sql == "COMMIT":
            self._lose("execute", sql)
        return type(self._connection).execute(self._connection, sql, *arguments)

    def _lose(self, method: str, argument: object) -> None:
        import psycopg

        pid = self._execute("SELECT pg_backend_pid() AS pid").fetchone()["pid"]
        if self._after:
            getattr(type(self._connection), method)(self._connection, argument)
        with psycopg.connect(self._postgres.url, autocommit=True) as other:
            other.execute("SELECT pg_terminate_backend(%s, 5000)", (pid,))
        self._execute("SELECT 1")


@pytest.mark.parametrize("after", [False, True])
def test_what_loses_its_connection_is_stored_once(postgres: Server, schema: Fresh, after: bool) -> None:
    with MetadataStore.open(schema()) as store:
        publish(store, "first")
        with Lost(store, postgres, after=after):
            run = store.context("run", "r", {"by": "ada"})
        with Lost(store, postgres, after=after):
            claim = store.claim("k")
        assert claim is not None
        with Lost(store, postgres, after=after):
            execution = store.start("Make", contexts=iter([run]), cache_key="k")
        with Lost(store, postgres, after=after):
            claim = store.heartbeat(claim)
        with Lost(store, postgres, after=after):
            staged = StagedArtifact("Thing", "artifacts/a", "f" * 64, 1)
            (artifact,) = store.publish(execution, {"out": [staged]}, claim=claim)["out"]
        assert store.executions(context=run, state=None) == [store.execution(execution.id)]
        assert store.outputs(execution) == {"out": [artifact]}
        assert [each.id for each in store.artifacts()] == [artifact.id, 1]
        assert store.claims() == []
        with Lost(store, postgres, after=after):
            assert store.update_artifact(artifact, properties={"n": 1}, expected_version=1).version == 2
        assert verify(store).findings == []


def test_what_loses_its_connection_amid_it_is_done_again(
    postgres: Server, schema: Fresh, monkeypatch: pytest.MonkeyPatch
) -> None:
    import psycopg

    with MetadataStore.open(schema()) as store:
        execution, whole, tries = store.start("Make"), writes.Publishing.publish, list[int]()

        def interrupted(publishing: writes.Publishing, tx: Any, properties: Any) -> Any:
            published = whole(publishing, tx, properties)
            tries.append(tx.first("SELECT pg_backend_pid() AS pid")["pid"])
            if len(tries) < 3:
                with psycopg.connect(postgres.url, autocommit=True) as other:
                    other.execute("SELECT pg_terminate_backend(%s, 5000)", (tries[-1],))
                tx.first("SELECT 1")
            return published

        monkeypatch.setattr(writes.Publishing, "publish", interrupted)
        store.publish(execution, {"out": [StagedArtifact("Thing", "artifacts/a", "f" * 64, 1)]})
        assert len(set(tries)) == 3
        assert [artifact.version for artifact in store.artifacts()] == [1]
        assert verify(store).findings == []


def test_a_failover_loses_nothing_that_was_acknowledged() -> None:
    """With a synchronous standby. Whoever publishes hears nothing of it: the next call waits for the new primary."""
    import psycopg

    primary = Server()
    primary.start()
    create_namespace(primary.url, "team_a")
    standby = Server(primary)
    standby.start()
    url = f"postgresql://me@{primary.host},{standby.host}/postgres?target_session_attrs=read-write&namespace=team_a"
    done: list[str] = []
    goal = threading.Event()

    def work(number: int) -> None:
        with MetadataStore.open(url) as store:
            for index in count():
                publish(store, f"{number}-{index}")
                done.append(f"{number}-{index}")
                if goal.is_set():
                    break

    def waits(for_: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 60
        while not for_():
            assert time.monotonic() < deadline
            time.sleep(0.01)

    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(4)]
    try:
        with MetadataStore.open(url) as store, psycopg.connect(primary.url, autocommit=True) as admin:
            waits(
                lambda: (
                    admin.execute("SELECT 1 FROM pg_stat_replication WHERE state = 'streaming'").fetchone() is not None
                )
            )
            facts = store.durability()
            assert [text for fine, text in facts if "synchronous_standby_names is not set" in text and not fine]
            admin.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            admin.execute("SELECT pg_reload_conf()")
            waits(
                lambda: (
                    admin.execute("SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'").fetchone() is not None
                )
            )
            assert any(fine and "synchronous_standby_names = *" in text for fine, text in store.durability())
        for thread in threads:
            thread.start()
        waits(lambda: len(done) >= 40)
        primary.kill()
        acknowledged = list(done)
        standby.promote()
        waits(lambda: len(done) >= len(acknowledged) + 40)
        goal.set()
        for thread in threads:
            thread.join()
        with MetadataStore.open(url) as store:
            stored = Counter(artifact.uri for artifact in store.artifacts())
            assert stored == {f"artifacts/{name}": 1 for name in done}
            assert set(acknowledged) <= set(done)
            assert all(store.outputs(execution) for execution in store.executions(state="COMPLETE"))
            assert verify(store).findings == []
    finally:
        standby.close()
        primary.close()


def test_a_forked_child_has_a_connection_of_its_own(schema: Fresh) -> None:
    url = schema()
    subprocess.run([sys.executable, str(WORKERS), "fork", url], check=True)
    with MetadataStore.open(url) as store:
        assert [context.name for context in store.contexts("run")] == ["parent again", "child", "parent"]


def test_a_writer_waits_for_another_and_readers_do_not(schema: Fresh) -> None:
    url = schema()
    with MetadataStore.open(url) as store, MetadataStore.open(url) as other:
        with other._db.write() as tx:
            tx.run("INSERT INTO type (kind, name) VALUES ('artifact', 'T')")
            assert store.contexts("run") == []
            store._db._connection().execute("SET lock_timeout = '200ms'")
            with pytest.raises(StoreUnavailable, match="locked by another process"):
                store.context("run", "r")
        store.context("run", "r")


def test_what_a_killed_writer_held_is_free_at_once(schema: Fresh) -> None:
    url = schema()
    MetadataStore.open(url).close()
    code = (
        "import sys, time; from drivetrain.metadata import MetadataStore\n"
        "with MetadataStore.open(sys.argv[1])._db.write() as tx:\n"
        "    tx.run(\"INSERT INTO type (kind, name) VALUES ('artifact', 'Half')\")\n"
        "    print('ready', flush=True); time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", code, url], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.kill()
    process.communicate()
    with MetadataStore.open(url) as store:
        store.context("run", "r")
        assert store._db.all("SELECT * FROM type WHERE name = 'Half'") == []


def test_limits_of_a_role_do_not_end_who_waits(postgres: Server, schema: Fresh) -> None:
    import psycopg

    with psycopg.connect(postgres.url, autocommit=True) as admin:
        admin.execute("CREATE ROLE hasty LOGIN SUPERUSER")
        admin.execute("ALTER ROLE hasty SET statement_timeout = '300ms'")
    url = schema()
    with MetadataStore.open(url) as store, MetadataStore.open(url.replace("//me:secret@", "//hasty@")) as hasty:
        with store._db.write():
            waiting = threading.Thread(target=hasty.context, args=("run", "r"))
            waiting.start()
            time.sleep(0.6)
        waiting.join()
        assert [context.name for context in store.contexts("run")] == ["r"]


def test_a_machine_that_vanishes_is_noticed(schema: Fresh) -> None:
    """What was sent and is not acknowledged; keepalives are for connections that idle."""
    with MetadataStore.open(schema()) as store, socket.socket(fileno=os.dup(_descriptor(store))) as connection:
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 30_000
        assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)


def test_a_transaction_that_a_lost_machine_left_open_ends(schema: Fresh) -> None:
    with MetadataStore.open(schema()) as store:
        for setting, value in (("idle_in_transaction_session_timeout", "45s"), ("lock_timeout", "1min")):
            assert store._db.all(f"SHOW {setting}")[0][setting] == value


def _descriptor(store: MetadataStore) -> int:
    return int(store._db._connection()._opened.fileno())


def test_a_commit_that_stores_nothing_is_an_error(schema: Fresh) -> None:
    """The server takes the COMMIT of a transaction in which a statement failed, and rolls back."""
    import psycopg

    with MetadataStore.open(schema()) as store:
        with pytest.raises(StoreUnavailable, match="nothing was stored"), store._db.write() as tx:  # noqa: PT012
            tx.run("INSERT INTO type (kind, name) VALUES ('artifact', 'Lost')")
            with suppress(psycopg.Error):
                tx.run("SELECT nonsense")
        assert store._db.all("SELECT * FROM type WHERE name = 'Lost'") == []
        store.context("run", "r")


def test_a_schema_that_is_not_there_is_named(postgres: Server) -> None:
    with pytest.raises(StoreUnavailable, match=r"has no such schema.*\n  fix: create it: CREATE SCHEMA"):
        MetadataStore.open(f"{postgres.url}?options=-csearch_path%3Dnowhere")


def test_the_clock_is_the_servers(schema: Fresh, monkeypatch: pytest.MonkeyPatch) -> None:
    with MetadataStore.open(schema()) as store:
        monkeypatch.setattr(time, "time_ns", lambda: 0)
        before = store.now()
        execution = store.start("Make")
        assert before > 1_600_000_000_000_000
        assert abs(execution.created_at.timestamp() - before / 1e6) < 60


def test_readonly_and_foreign_schemas(postgres: Server, schema: Fresh) -> None:
    import psycopg

    url = schema()
    with pytest.raises(NoStore, match="is empty"):
        MetadataStore.open(url, readonly=True)
    with pytest.raises(NoStore, match="is empty"):
        MetadataStore.open(url, create=False)
    with MetadataStore.open(url) as store:
        context = store.context("run", "r")
    with MetadataStore.open(url, readonly=True) as store:
        assert store.find_context("run", "r") == context
        with pytest.raises(StoreUnavailable, match="read only"):
            store.context("run", "other")
    with psycopg.connect(url, autocommit=True) as other:
        other.execute("DROP TABLE claim, artifact CASCADE")
    with pytest.raises(SchemaMismatch, match="not a drivetrain store"):
        MetadataStore.open(url)


def test_the_driver_may_not_change_an_event(schema: Fresh) -> None:
    with MetadataStore.open(schema()) as store:
        publish(store, "a")
        with pytest.raises(StateError, match="never changed"), store._db.write() as tx:
            tx.run("UPDATE event SET key = 'other'")


def test_orders_are_those_of_sqlite(schema: Fresh, tmp_path: Path) -> None:
    names = ["b", "B", "a", "Z", "é", "_", "aa", "a b", "日"]
    errors = []
    for url in (schema(), tmp_path / "metadata.db"):
        with MetadataStore.open(url) as store:
            for name in names:
                store.claim(name)
            errors.append([claim.cache_key for claim in store.claims()])
    assert errors[0] == errors[1] == sorted(names)


SECRET = "s3cr3t-w0rd"


@pytest.mark.parametrize(
    ("url", "says"),
    [
        (f"postgresql://me:{SECRET}@127.0.0.1:1/db", "refused"),
        (f"postgresql://me:{SECRET}@no-such-host.invalid/db", "does not answer"),
        (f"postgresql://me:x@{SECRET}@127.0.0.1:1/db", "cannot parse the metadata store's URL"),
        (f"postgresql://me:{SECRET}/x@127.0.0.1:1/db", "cannot parse the metadata store's URL"),
        (f"postgresql://me:123/{SECRET}@127.0.0.1:1/db", "cannot parse the metadata store's URL"),
        (f"postgresql://me:{SECRET}@127.0.0.1:1/db?nonsense=1", "cannot parse the metadata store's URL"),
        (f"postgresql://127.0.0.1:1/db?password={SECRET}&user=me", "refused"),
    ],
)
def test_no_message_holds_a_password(url: str, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(database, "time", SimpleNamespace(monotonic=time.monotonic, sleep=pauses.append))
    with pytest.raises(DrivetrainError, match=says) as raised:
        MetadataStore.open(url)
    assert SECRET not in str(raised.value)
    assert pauses == []  # a first look does not wait


def test_what_the_server_refuses_is_named(postgres: Server) -> None:
    import psycopg

    with pytest.raises(StoreUnavailable, match=r"does not exist\n.*CREATE DATABASE"):
        MetadataStore.open(postgres.url.replace("/postgres", "/nowhere"))
    with psycopg.connect(postgres.url, autocommit=True) as admin:
        admin.execute("CREATE DATABASE latin ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
        admin.execute("CREATE ROLE one LOGIN CONNECTION LIMIT 1")
        admin.execute("CREATE DATABASE apart OWNER one")
    with pytest.raises(InputError, match="does not hold Unicode"):
        MetadataStore.open(postgres.url.replace("/postgres", "/latin"))
    alone = postgres.url.replace("//me:secret@", "//one@").replace("/postgres", "/apart")
    with MetadataStore.open(alone), pytest.raises(StoreUnavailable, match="too many connections"):
        MetadataStore.open(alone)


def test_without_the_driver_one_line_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(DrivetrainError, match=r"psycopg is not installed\n.*drivetrain\[postgres\]"):
        MetadataStore.open("postgresql://me@127.0.0.1/db")
