"""One thread keeps every claim of a process alive, as long as work is done under it."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from drivetrain.metadata import Claim, MetadataStore, Owner
from drivetrain.pipelines.launching.heartbeat import heartbeat

UNSEEN = Owner("elsewhere", "b", 1, "")
OTHER = Owner("elsewhere", "b", 2, "")
LEASE = 0.6


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MetadataStore]:
    with MetadataStore.open(tmp_path / "metadata.db") as opened:
        yield opened


def held(store: MetadataStore, key: str, lease: float = LEASE) -> Claim:
    claim = store.claim(key, owner=UNSEEN, lease=lease)  # nobody can see that process: its lease alone counts
    assert claim is not None
    return claim


def beating() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "drivetrain-heartbeat"]


def test_one_thread_keeps_all_claims_and_only_within_the_block(store: MetadataStore) -> None:
    with ExitStack() as stack:
        for key in "abc":
            stack.enter_context(heartbeat.of(store, held(store, key)))
        assert len(beating()) == 1
        until = time.monotonic() + 1.8 * LEASE
        while time.monotonic() < until:
            assert [store.claim(key, owner=OTHER) for key in "abc"] == [None] * 3
            time.sleep(0.05)
    time.sleep(1.1 * LEASE)
    assert all(store.claim(key, owner=OTHER) for key in "abc")


def test_a_lost_claim_or_a_closed_store_does_not_end_it(store: MetadataStore, tmp_path: Path) -> None:
    lost = held(store, "lost", lease=0.06)
    closed = MetadataStore.open(tmp_path / "other.db")
    gone = held(closed, "gone", lease=0.06)
    store.release(lost)
    closed.close()
    with heartbeat.of(store, lost), heartbeat.of(closed, gone), heartbeat.of(store, held(store, "kept")):
        time.sleep(1.8 * LEASE)
        assert store.claim("kept", owner=OTHER) is None


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc which signals a thread blocks")
def test_signals_go_to_the_main_thread() -> None:
    heartbeat.start()
    (thread,) = beating()
    status = Path(f"/proc/self/task/{thread.native_id}/status")
    until = time.monotonic() + 5
    blocked = 0
    while not blocked and time.monotonic() < until:  # it may just have begun
        (line,) = (line for line in status.read_text().splitlines() if line.startswith("SigBlk"))
        blocked = int(line.split()[1], 16)
    assert all(blocked >> (number - 1) & 1 for number in (signal.SIGINT, signal.SIGTERM))


FORKED = """
import os, sys, time
from drivetrain.metadata import MetadataStore, Owner
from drivetrain.pipelines.launching.heartbeat import heartbeat
path = sys.argv[1]
heartbeat.start()
child = os.fork()
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
with MetadataStore.open(path) as store:
    with heartbeat.of(store, store.claim("k", owner=Owner("elsewhere", "b", 1, ""), lease=0.6)):
        time.sleep(1.1)
        taken = store.claim("k", owner=Owner("elsewhere", "b", 2, ""))
    os._exit(0 if taken is None else 7)
"""


def test_a_forked_process_has_a_thread_of_its_own(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", FORKED, str(tmp_path / "metadata.db")], check=True, timeout=60)
