"""A store behind a server: what is done once though answers are lost, who may what, whose processes live."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from drivetrain.errors import InputError
from drivetrain.metadata import ConflictError, MetadataStore, NotFound, Owner, StagedArtifact, StateError
from drivetrain.metadata.audit import verify
from drivetrain.metadata.errors import StoreUnavailable
from drivetrain.metadata.registry import Registry
from drivetrain.metadata.remote import client
from drivetrain.metadata.remote.client import KEY, KEY_FILE
from drivetrain.metadata.store import MetadataStore as LocalStore
from drivetrain.tests.metadata.remote.server import MetadataServerProcess

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MetadataServerProcess]:
    server = MetadataServerProcess(tmp_path_factory.mktemp("server"))
    server.start()
    yield server
    server.end()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[MetadataServerProcess]:
    """A server that a test may kill."""
    server = MetadataServerProcess(tmp_path)
    server.start()
    yield server
    server.kill()


@pytest.fixture
def opened(
    running: MetadataServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str], MetadataStore]]:
    """Opens the namespace of this test by a key of some role."""
    namespace = f"n{tmp_path.name}"
    url = running.namespace(namespace, tmp_path / "metadata.db")
    stores: list[MetadataStore] = []

    def by(role: str) -> MetadataStore:
        monkeypatch.setenv(KEY, running.add_key(f"a-{role}", [role], namespaces=[namespace]))
        stores.append(MetadataStore.open(url))
        return stores[-1]

    yield by
    for store in stores:
        store.close()


def publish(store: MetadataStore, name: str, type_: str = "Thing") -> Any:
    execution = store.start("Make")
    return store.publish(execution, {"out": [StagedArtifact(type_, f"artifacts/{name}", "f" * 64, 1)]})["out"][0]


# -- once


class LostAnswers:
    """Has the answers of some operations get lost on the way, after the server gave them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lost: list[str] = []
        post = client._Session.post

        def lossy(session: Any, path: str, body: bytes, key: str) -> tuple[int, bytes]:
            answer = post(session, path, body, key)
            name = path.rpartition("/")[2]
            if b'"again": false' in body and name not in self.lost:
                self.lost.append(name)
                raise ConnectionResetError("the answer was lost")
            return answer

        monkeypatch.setattr(client._Session, "post", lossy)


def everything(store: MetadataStore) -> None:
    """One of each change, which fails, or leaves a second row, where it is done twice."""
    context = store.context("run", "r", {"n": 1})
    assert store.update_context(context, {"n": 2}, expected_version=context.version).properties == {"n": 2}
    claim = store.claim("k")
    assert claim is not None
    assert claim.token == 1
    execution = store.start("Make", contexts=[context], cache_key="k")
    claim = store.heartbeat(claim)
    staged = StagedArtifact("Thing", "artifacts/a", "f" * 64, 1, {"x": [1]})
    artifact = store.publish(execution, {"out": [staged]}, claim=claim)["out"][0]
    changed = store.update_artifact(artifact, properties={"y": 1}, expected_version=artifact.version)
    assert store.update_artifacts([changed], state="MARKED_FOR_DELETION", properties={})[0].version == 3
    failed = store.start("Make", contexts=[context])
    assert store.finish(failed, "FAILED", error="odd \0 \ud800").state == "FAILED"
    store.record("Skip", "SKIPPED", contexts=[context])
    assert [each.component for each in store.executions()] == ["Skip", "Make", "Make"]
    assert store.claims() == []


def test_what_is_done_is_done_once_though_its_answer_is_lost(
    opened: Callable[[str], MetadataStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened("admin")
    lost = LostAnswers(monkeypatch)
    everything(store)
    assert {"start", "publish", "claim", "update_context", "update_artifact", "finish", "record"} <= set(lost.lost)
    report = verify(store)
    assert report.sound
    assert report.rows > 0


def test_an_answer_that_died_with_the_server_is_known_to_the_next(
    server: MetadataServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between the commit and the answer: the one after it finds both the change and the answer."""
    monkeypatch.setenv(KEY, server.secret("tests"))
    post, killed = client._Session.post, list[str]()

    def deadly(session: Any, path: str, body: bytes, key: str) -> tuple[int, bytes]:
        answer = post(session, path, body, key)
        name = path.rpartition("/")[2]
        if name in ("start", "claim", "publish") and name not in killed:
            killed.append(name)
            server.kill()
            threading.Timer(0.5, server.start).start()
            raise ConnectionResetError("the server died")
        return answer

    with MetadataStore.open(server.namespace("flights", tmp_path / "metadata.db")) as store:
        monkeypatch.setattr(client._Session, "post", deadly)
        everything(store)
        assert killed == ["claim", "start", "publish"]
        assert verify(store).sound


def test_a_request_that_comes_late_changes_nothing(opened: Callable[[str], MetadataStore]) -> None:
    """The first of two that are the same, held up on the way, after the second was done and another after it."""
    store: Any = opened("writer")
    requests: list[tuple[str, bytes]] = []
    session = store.remote._session()
    post = session.post

    def noted(path: str, body: bytes, key: str) -> tuple[int, bytes]:
        requests.append((path, body))
        status, answer = post(path, body, key)
        return status, answer

    session.post = noted
    store.start("Make", name="first")
    store.start("Make", name="second")
    path, body = requests[0]
    status, answer = post(path, body.replace(b'"first"', b'"third"'), store.remote._key)
    assert status == 400
    assert b"came after a later one" in answer
    assert [each.name for each in store.executions()] == ["second", "first"]


def test_a_request_that_comes_again_while_it_is_at_work_waits_for_its_answer(
    opened: Callable[[str], MetadataStore], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first of the two waits for the lock that this test holds, its client for as long as it cares to."""
    store: Any = opened("writer")
    store.start("Make", name="before")
    monkeypatch.setattr(client, "_ANSWER", 0.5)
    store.remote._session().drop()
    with LocalStore.open(tmp_path / "metadata.db") as local, local._db.write("hold"):
        waiting = threading.Thread(target=lambda: started.append(store.start("Make", name="once")))
        started: list[Any] = []
        waiting.start()
        time.sleep(1.5)  # it has asked twice or three times by now
    waiting.join()
    assert [each.name for each in started] == ["once"]
    assert [each.name for each in store.executions()] == ["once", "before"]


def test_who_was_never_there_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY, "dt_x")
    began = time.monotonic()
    with pytest.raises(StoreUnavailable, match="does not answer: Connection refused"):
        MetadataStore.open("http://127.0.0.1:9/flights")
    assert time.monotonic() - began < 5


def test_who_stays_away_is_waited_for_only_so_long(
    server: MetadataServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEY, server.secret("tests"))
    with MetadataStore.open(server.namespace("flights", tmp_path / "metadata.db")) as store:
        server.kill()
        monkeypatch.setattr(client, "_PATIENCE", 0.3)
        with pytest.raises(StoreUnavailable, match="does not answer"):
            store.start("Make")
        server.start()
        assert store.executions() == []


# -- who may


def refused(call: Callable[[], object]) -> str:
    with pytest.raises(InputError, match="may not do") as caught:
        call()
    return str(caught.value)


def test_a_reader_reads(opened: Callable[[str], MetadataStore]) -> None:
    writer = opened("writer")
    artifact = publish(writer, "a")
    context = writer.context("run", "r")
    claim = writer.claim("k")
    execution = writer.start("Make")
    assert claim is not None
    reader = opened("reader")
    assert reader.artifacts() == [artifact]
    assert reader.context("run", "r") == context  # it is there
    assert reader.lineage(artifact).edges
    for call in (
        lambda: reader.start("Make"),
        lambda: reader.publish(execution, {}),
        lambda: reader.finish(execution, "FAILED"),
        lambda: reader.record("Make", "SKIPPED"),
        lambda: reader.context("run", "other"),
        lambda: reader.context("run", "r", parents=[context]),
        lambda: reader.update_context(context, {"state": "COMPLETE"}),
        lambda: reader.claim("other"),
        lambda: reader.heartbeat(claim),
        lambda: reader.release(claim),
        reader.abandon,
        lambda: reader.bring_in({}),
        lambda: reader.index_property("artifact", "property.x"),
        lambda: reader.update_artifact(artifact, state="DELETED"),
        lambda: reader.update_artifacts([artifact], state="DELETED", properties={}),
        lambda: Registry(reader).register("flights", artifact, by="me"),
    ):
        assert "a-reader" in refused(call)
    assert writer.artifacts() == [artifact]
    assert writer.claims() == [claim]


def test_a_writer_neither_approves_nor_collects(opened: Callable[[str], MetadataStore]) -> None:
    writer = opened("writer")
    model = publish(writer, "m", "Model")
    Registry(writer).register("flights", model, by="somebody")
    log = writer.contexts("registry of flights")[0]
    for call in (
        lambda: Registry(writer).set_alias("flights", "champion", 1, by="me"),
        lambda: Registry(writer).answer("flights", 1, approved=True, by="me"),
        lambda: Registry(writer).require("flights", "champion", None, by="me"),
        lambda: writer.context("registry of flights", "2", {"kind": "alias", "alias": "champion", "version": 1}),
        lambda: writer.context("decision", "r/1", {"approved": True}),
        lambda: writer.update_context(log, {"by": "me"}),
        lambda: writer.update_context(replace(log, type="run"), {"by": "me"}),  # whatever it says of it
        lambda: writer.bring_in({"contexts": [["registry of flights", "2"]]}),
        lambda: writer.bring_in({"contexts": [], "source": {"contexts": [["decision", "r/1"]]}}),
        lambda: writer.update_artifact(model, properties={"blessed": True}),
        lambda: writer.update_artifact(model, state="DELETED"),
        lambda: writer.update_artifacts([model], state="MARKED_FOR_DELETION", properties={}),
        lambda: writer.context("garbage_collection", "1", {}),
    ):
        assert "role" in refused(call)
    assert writer.artifact(model.id) == model
    assert len(writer.contexts("registry of flights")) == 1


def test_an_approver_approves_by_the_name_of_its_key(opened: Callable[[str], MetadataStore]) -> None:
    writer = opened("writer")
    model = publish(writer, "m", "Model")
    version = Registry(writer).register("flights", model, by="ada")
    assert version.by == "a-writer"
    approver = opened("approver")
    registry = Registry(approver)
    moved = registry.set_alias("flights", "champion", 1, by="the queen")
    assert moved.log[-1].by == "a-approver"
    refused(lambda: approver.start("Make"))
    with opened("admin") as admin:
        assert Registry(admin).model("flights").aliases == {"champion": 1}


def test_gc_lets_go_and_no_more(opened: Callable[[str], MetadataStore]) -> None:
    artifact = publish(opened("writer"), "a")
    collector = opened("gc")
    marked = collector.update_artifacts([artifact], state="MARKED_FOR_DELETION", properties={})
    assert marked[0].state == "MARKED_FOR_DELETION"
    refused(lambda: collector.start("Make"))
    refused(lambda: collector.context("decision", "d", {}))


def test_the_journal_says_whose_key_it_was(opened: Callable[[str], MetadataStore], tmp_path: Path) -> None:
    publish(opened("writer"), "a")
    with LocalStore.open(tmp_path / "metadata.db") as store:
        actors = {row["actor"] for row in store._db.all("SELECT actor FROM journal WHERE verb = 'publish'")}
    assert actors == {f"a-writer, {Owner.current()}"}


# -- errors, and whose processes live


def test_errors_come_back_as_what_they_are(opened: Callable[[str], MetadataStore]) -> None:
    store = opened("writer")
    with pytest.raises(NotFound, match="there is no execution 7 in this store"):
        store.execution(7)
    execution = store.start("Make")
    store.finish(execution, "FAILED")
    with pytest.raises(StateError) as caught:
        store.publish(execution, {})
    assert caught.value.message
    context = store.context("run", "r")
    store.update_context(context, {"a": 1})
    with pytest.raises(ConflictError):
        store.update_context(context, {"a": 2}, expected_version=context.version)
    with pytest.raises(StateError, match="does not finish as COMPLETE") as other:
        store.finish(execution, "COMPLETE")  # type: ignore[arg-type]
    assert other.value.fix == "use publish for COMPLETE"


def elsewhere(owner: Owner) -> Owner:
    """A process of a machine that the server is not on, but whoever asks is."""
    return replace(owner, host="afar/0123", boot_id="another boot")


def test_the_machine_that_asks_says_whether_its_processes_live(
    opened: Callable[[str], MetadataStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened("writer")
    here = elsewhere(Owner.current())
    living, dead = replace(here, pid=2), replace(here, pid=3)
    asked: list[int] = []

    def liveness(owner: Owner) -> str:
        asked.append(owner.pid)
        return "dead" if owner.pid == 3 else "alive"

    monkeypatch.setattr(Owner, "current", classmethod(lambda _: here))
    monkeypatch.setattr(Owner, "liveness", liveness)
    stranger = replace(here, host="another/4567", pid=4)
    claims = {owner: store.claim(f"k{owner.pid}", owner=owner) for owner in (living, dead, stranger)}
    executions = {owner: store.start("Make", owner=owner) for owner in (living, dead, stranger)}
    assert all(claims.values())
    assert [each.id for each in store.abandon()] == [executions[dead].id]
    assert {claim.owner for claim in store.claims()} == {living, stranger}
    assert store.is_dead(executions[dead])
    assert not store.is_dead(executions[living])
    assert store.claim("k2", owner=here) is None
    assert store.claim("k3", owner=here) is not None
    assert set(asked) == {2, 3}  # of a process of another machine nobody here knows


def test_a_forked_child_has_a_connection_of_its_own(running: MetadataServerProcess, tmp_path: Path) -> None:
    url = running.namespace("forked", tmp_path / "metadata.db")
    code = (
        "import os, sys\nfrom drivetrain.metadata import MetadataStore\n"
        f"store = MetadataStore.open({url!r})\nchild = os.fork()\n"
        "for n in range(50): store.start('Make', name=f'{child == 0}{n}')\n"
        "if child == 0: os._exit(0)\nassert os.waitpid(child, 0)[1] == 0\nprint(len(store.executions()))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], env=running.environment(), capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "100\n"), done.stderr


# -- the URL and the key


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("http://127.0.0.1:1/", "is not a namespace"),
        ("http://127.0.0.1:1/a/b", "is not a namespace"),
        ("http://me:hunter2secret@127.0.0.1:1/flights", "cannot be used"),
        ("http://127.0.0.1:1/flights?key=hunter2secret", "cannot be used"),
        ("http://127.0.0.1:x/flights", "cannot be used"),
        ("http://metadata.example/flights", "by plain HTTP"),
    ],
)
def test_urls_that_cannot_be(url: str, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY, "dt_x")
    with pytest.raises(InputError, match=says) as caught:
        MetadataStore.open(url)
    assert "hunter2secret" not in str(caught.value)


def test_the_key_comes_from_a_file_and_is_shown_nowhere(
    running: MetadataServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = running.namespace("filed", tmp_path / "metadata.db")
    monkeypatch.delenv(KEY, raising=False)
    with pytest.raises(InputError, match="there is no key"):
        MetadataStore.open(url)
    (tmp_path / "key").write_text(running.secret("tests") + "\n")
    monkeypatch.setenv(KEY_FILE, str(tmp_path / "key"))
    with MetadataStore.open(url, readonly=True) as store:
        assert store.readonly
        assert store.location == url
        with pytest.raises(StoreUnavailable, match="opened to read only"):
            store.start("Make")
    monkeypatch.setenv(KEY, "dt_wrong")
    with pytest.raises(InputError, match="the key is not known") as caught:
        MetadataStore.open(url)
    assert "dt_wrong" not in str(caught.value)
    assert running.secret("tests") not in running.log
    assert os.environ[KEY] not in running.log
