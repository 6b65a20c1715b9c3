"""The claim law: one holder can publish; the dead lose at once, the silent at the end of their lease."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from drivetrain import owner
from drivetrain.errors import InputError
from drivetrain.metadata import Claim, LeaseLost, MetadataStore, StagedArtifact
from drivetrain.owner import Owner
from drivetrain.tests.metadata.conftest import StoreAddress
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule


class Clock:
    def __init__(self) -> None:
        self.now = 1_700_000_000_000_000

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(database_address: StoreAddress, clock: Clock) -> Iterator[MetadataStore]:
    with MetadataStore.open(database_address("metadata"), clock=clock) as opened:
        yield opened


ME = Owner.current()
ELSEWHERE = Owner("another-host", "another-boot", 7, "1")


def dead() -> Owner:
    """The owner that a process which has ended was."""
    code = "from drivetrain.metadata import Owner; o = Owner.current(); print(o.pid, o.start_time, sep='|')"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    pid, _, start = said.strip().partition("|")
    return replace(ME, pid=int(pid), start_time=start)


def test_owner_of_this_process_lives() -> None:
    assert ME.liveness() == "alive"
    assert ME.pid == os.getpid()
    assert Owner.from_dict(ME.to_dict()) == ME
    assert not ME.rebooted()


def test_the_dead_are_told_from_the_unknown() -> None:
    assert dead().liveness() == "dead"
    assert replace(ME, start_time="1").liveness() == "dead"  # the pid is another process's by now
    assert ELSEWHERE.liveness() == "unknown"
    assert replace(ME, boot_id="earlier").liveness() == "unknown"
    assert not ELSEWHERE.rebooted()


def test_another_machine_of_the_same_name_is_not_this_one_before_its_boot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, "_host", owner._host.__wrapped__)  # without its cache

    def named(machine: str | None) -> Owner:
        path = tmp_path / f"id-{machine}"
        if machine is not None:
            path.write_text(f"{machine}\n")
        monkeypatch.setattr(owner, "_MACHINE_IDS", (path,))
        return replace(ME, host=owner._host(), boot_id="earlier")

    theirs, mine = named("a" * 32), named("b" * 32)
    assert mine.rebooted()
    assert not theirs.rebooted()
    assert theirs.host.partition("/")[0] == mine.host.partition("/")[0] == socket.gethostname()
    assert "a" * 8 not in theirs.host  # only a digest of the id leaves the machine
    assert str(mine) == f"process {ME.pid} on {socket.gethostname()}"
    for machine in (None, "", "uninitialized"):  # as in most containers: a name alone does not say which one
        assert not named(machine).rebooted()
        assert named(machine).host == socket.gethostname()


def test_without_a_boot_id_no_other_process_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner, "_boot_id", lambda: "unknown")
    owner._current.cache_clear()
    try:
        assert Owner.current().liveness() == "alive"
        assert replace(Owner.current(), pid=2**22 - 1).liveness() == "unknown"
    finally:
        monkeypatch.undo()
        owner._current.cache_clear()


def test_a_zombie_is_dead() -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    start = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[19]
    owner = replace(ME, pid=child.pid, start_time=start)
    assert owner.liveness() == "alive"
    child.kill()
    deadline = time.monotonic() + 60
    while owner.liveness() == "alive" and time.monotonic() < deadline:  # killed, and not yet reaped
        time.sleep(0.01)
    assert owner.liveness() == "dead"
    child.wait()


def test_without_proc_the_system_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner, "_PROC", Path("/nowhere"))
    monkeypatch.setattr(owner, "_ask", lambda *command: "Sat Nov 21 09:00:00 2026")
    assert owner._start_time(os.getpid()) == "Sat Nov 21 09:00:00 2026"
    assert owner._start_time(dead().pid) is None


def test_one_holds_and_the_other_waits(store: MetadataStore, clock: Clock) -> None:
    claim = store.claim("k", owner=ME, lease=60)
    assert claim is not None
    assert store.claim("k", owner=ELSEWHERE) is None
    assert store.claim_holder("k") == ME
    assert store.claims() == [claim]
    store.release(claim)
    assert store.claim_holder("k") is None
    after = store.claim("k", owner=ELSEWHERE)
    assert after is not None
    assert after.token == claim.token + 1


def test_a_heartbeat_begins_the_lease_anew(store: MetadataStore, clock: Clock) -> None:
    claim = store.claim("k", owner=ELSEWHERE, lease=60)
    assert claim is not None
    for _ in range(5):
        clock.now += 50_000_000
        claim = store.heartbeat(claim)
    assert store.claim("k") is None
    clock.now += 60_000_000
    taken = store.claim("k")
    assert taken is not None
    assert taken.displaced == ELSEWHERE
    with pytest.raises(LeaseLost):
        store.heartbeat(claim)
    store.release(claim)  # of no effect
    assert store.claim_holder("k") == ME


def test_the_silent_who_was_not_replaced_goes_on(store: MetadataStore, clock: Clock) -> None:
    claim = store.claim("k", lease=1)
    assert claim is not None
    execution = store.start("Make", cache_key="k")
    clock.now += 10_000_000
    store.abandon()
    store.heartbeat(claim)
    store.publish(execution, {}, claim=claim)


def test_a_dead_holder_is_replaced_at_once_and_its_execution_abandoned(store: MetadataStore) -> None:
    gone = dead()
    old = store.claim("k", owner=gone, lease=3600)
    running = store.start("Make", cache_key="k", owner=gone)
    other = store.start("Make", cache_key="other", owner=ME)
    claim = store.claim("k")
    assert old is not None
    assert claim is not None
    assert claim.token == old.token + 1
    ended = store.execution(running.id)
    assert ended.state == "ABANDONED"
    assert ended.error is not None
    assert f"process {gone.pid}" in ended.error
    assert store.execution(other.id).state == "RUNNING"


def test_the_old_token_is_fenced(store: MetadataStore, clock: Clock) -> None:
    old = store.claim("k", owner=ELSEWHERE, lease=1)
    slow = store.start("Make", cache_key="k", owner=ELSEWHERE)
    clock.now += 2_000_000
    fresh = store.claim("k")
    assert old is not None
    assert fresh is not None
    mine = store.start("Make", cache_key="k")
    output = {"out": [StagedArtifact("Thing", "artifacts/slow", "f", 1)]}
    with pytest.raises(LeaseLost, match=r"token 1\) is lost"):
        store.publish(slow, output, claim=old)
    with pytest.raises(LeaseLost):
        store.finish(slow, "FAILED", claim=old)
    assert store.artifacts() == []
    store.publish(mine, output, claim=fresh)
    with pytest.raises(LeaseLost):  # done is done, for the winner too
        store.heartbeat(fresh)
    hit = store.find_cached("k")
    assert hit is not None
    assert hit.id == mine.id


def test_a_failed_publish_keeps_the_claim(store: MetadataStore) -> None:
    claim = store.claim("k")
    execution = store.start("Make", cache_key="k")
    with pytest.raises(InputError):
        store.publish(execution, {"out": [StagedArtifact("Thing", "/etc/passwd", "f", 1)]}, claim=claim)
    assert store.claim_holder("k") == ME
    store.finish(execution, "FAILED", claim=claim)
    assert store.claim_holder("k") is None


def test_abandon_ends_what_the_dead_were_running(
    store: MetadataStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = dead()
    store.claim("k", owner=gone, lease=3600)
    execution = store.start("Make", owner=gone, cache_key="k")
    monkeypatch.setattr(Owner, "rebooted", lambda self: self.boot_id == "earlier")
    two = store.start("Make", owner=replace(ME, boot_id="earlier"))
    alive = store.start("Make")
    unknown = store.start("Make", owner=ELSEWHERE)
    leased = store.start("Make", owner=ELSEWHERE, cache_key="far")
    store.claim("far", owner=ELSEWHERE, lease=60)
    assert [e.id for e in store.abandon()] == [execution.id, two.id]
    assert store.claim_holder("k") is None
    clock.now += 61_000_000
    assert [e.id for e in store.abandon()] == [leased.id]
    assert store.claims() == []
    assert {e.id for e in store.executions(state="RUNNING")} == {alive.id, unknown.id}


def test_a_lease_is_positive(store: MetadataStore) -> None:
    with pytest.raises(InputError):
        store.claim("k", lease=0)


class ClaimLaw(RuleBasedStateMachine):
    """Any order of claims, heartbeats, stalls and publishes: a key is published by its newest holder or not at all."""

    @initialize()
    def begin(self) -> None:
        self.clock = Clock()
        self.temporary = tempfile.TemporaryDirectory()
        self.store = MetadataStore.open(Path(self.temporary.name) / "metadata.db", clock=self.clock)
        self.claims: list[Claim] = []
        self.published = 0

    @rule(owner=st.sampled_from([replace(ELSEWHERE, pid=pid) for pid in range(3)]))
    def take(self, owner: Owner) -> None:
        holder, claim = self.claims[-1] if self.claims else None, self.store.claim("k", owner=owner, lease=10)
        if claim is not None:
            assert claim.token == len(self.claims) + 1
            assert holder is None or not self.current(holder) or self.expired()
            self.claims.append(claim)
            self.expires, self.closed = self.clock.now + 10_000_000, False
        else:
            assert holder is not None
            assert self.current(holder)
            assert not self.expired()

    def expired(self) -> bool:
        return self.clock.now >= self.expires

    def current(self, claim: Claim) -> bool:
        return claim.token == len(self.claims) and not self.closed

    @rule(seconds=st.integers(1, 12))
    def wait(self, seconds: int) -> None:
        self.clock.now += seconds * 1_000_000

    @rule(data=st.data(), what=st.sampled_from(["heartbeat", "publish", "fail", "release"]))
    def use(self, data: st.DataObject, what: str) -> None:
        if not self.claims:
            return
        claim = data.draw(st.sampled_from(self.claims))
        current = self.current(claim)
        try:
            if what == "heartbeat":
                self.store.heartbeat(claim)
                self.expires = self.clock.now + 10_000_000
            elif what == "publish":
                self.store.publish(self.store.start("Make", owner=claim.owner), {}, claim=claim)
                self.published += 1
            elif what == "fail":
                self.store.finish(self.store.start("Make", owner=claim.owner), "FAILED", claim=claim)
            else:
                self.store.release(claim)
                self.closed = self.closed or current
                return
        except LeaseLost:
            assert not current
        else:
            assert current
            self.closed = self.closed or what != "heartbeat"

    @invariant()
    def published_is_what_was_acknowledged(self) -> None:
        assert len(self.store.executions(state="COMPLETE")) == self.published

    def teardown(self) -> None:
        self.store.close()
        self.temporary.cleanup()


TestClaimLaw = ClaimLaw.TestCase
TestClaimLaw.settings = settings(
    max_examples=25, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck)
)
