"""One thread keeps every claim of a process alive, as long as work is done under it."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from drivetrain.metadata import Claim, MetadataStore, Owner
from drivetrain.pipelines.launcher.heartbeat import heartbeat
from drivetrain.tests.pipelines.faulty import waits

UNSEEN = Owner("elsewhere", "b", 1, "")
OTHER = Owner("elsewhere", "b", 2, "")
LEASE = 0.15


class Time:
    """A clock that stands still but where it is set; a lease is over by it, while beats come by another."""

    def __init__(self) -> None:
        self.now = 1_700_000_000_000_000

    def __call__(self) -> int:
        return self.now

    def pass_(self, seconds: float) -> None:
        """Set it forward."""
        self.now += round(seconds * 1e6)


@pytest.fixture
def clock() -> Time:
    return Time()


@pytest.fixture
def store(tmp_path: Path, clock: Time) -> Iterator[MetadataStore]:
    with MetadataStore.open(tmp_path / "metadata.db", clock=clock) as opened:
        yield opened


def held(store: MetadataStore, key: str, lease: float = LEASE) -> Claim:
    claim = store.claim(key, owner=UNSEEN, lease=lease)  # nobody can see that process: its lease alone counts
    assert claim is not None
    return claim


def beaten(store: MetadataStore, *keys: str) -> Callable[[], bool]:
    """Whether the claims on these have each had a beat since now."""
    before = {claim.cache_key: claim.expires_at for claim in store.claims()}
    return lambda: all(
        claim.expires_at > before[claim.cache_key] for claim in store.claims() if claim.cache_key in keys
    )


def beating() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "drivetrain-heartbeat"]


def test_one_thread_keeps_all_claims_and_only_within_the_block(store: MetadataStore, clock: Time) -> None:
    with ExitStack() as stack:
        for key in "abc":
            stack.enter_context(heartbeat.of(store, held(store, key)))
        assert len(beating()) == 1
        for _ in range(3):
            since = beaten(store, *"abc")
            clock.pass_(0.9 * LEASE)
            waits(since)
            assert [store.claim(key, owner=OTHER) for key in "abc"] == [None] * 3
    clock.pass_(0.9 * LEASE)
    time.sleep(2 * LEASE)  # in which there would be six more
    clock.pass_(0.2 * LEASE)
    assert all(store.claim(key, owner=OTHER) for key in "abc")


def test_a_lost_claim_or_a_closed_store_does_not_end_it(store: MetadataStore, clock: Time, tmp_path: Path) -> None:
    lost = held(store, "lost", lease=0.03)
    closed = MetadataStore.open(tmp_path / "other.db")
    gone = held(closed, "gone", lease=0.03)
    store.release(lost)
    closed.close()
    with heartbeat.of(store, lost), heartbeat.of(closed, gone), heartbeat.of(store, held(store, "kept")):
        for _ in range(2):  # meanwhile the others had theirs
            since = beaten(store, "kept")
            clock.pass_(0.9 * LEASE)
            waits(since)
        assert store.claim("kept", owner=OTHER) is None


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc which signals a thread blocks")
def test_signals_go_to_the_main_thread() -> None:
    heartbeat.start()
    (thread,) = beating()
    status = Path(f"/proc/self/task/{thread.native_id}/status")

    def blocked() -> bool:
        (line,) = (line for line in status.read_text().splitlines() if line.startswith("SigBlk"))
        signals = int(line.split()[1], 16)
        return all(signals >> (number - 1) & 1 for number in (signal.SIGINT, signal.SIGTERM))

    waits(blocked)  # it may just have begun


FORKED = """
import os, sys
from drivetrain.metadata import MetadataStore
from drivetrain.pipelines.launcher.heartbeat import heartbeat
from drivetrain.tests.pipelines.launcher.test_heartbeat import LEASE, Time, beaten, held, waits
path = sys.argv[1]
heartbeat.start()
child = os.fork()
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
status = 7
try:
    clock = Time()
    with MetadataStore.open(path, clock=clock) as store, heartbeat.of(store, held(store, "k")):
        since = beaten(store, "k")
        clock.pass_(0.9 * LEASE)
        waits(since)
        status = 0
finally:
    os._exit(status)
"""


def test_a_forked_process_has_a_thread_of_its_own(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", FORKED, str(tmp_path / "metadata.db")], check=True, timeout=240)
