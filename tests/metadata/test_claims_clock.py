"""A wall clock that is set: nobody loses a claim by it, nobody waits for an hour, nothing takes less than no time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from drivetrain.metadata import LocalPayloads, MetadataStore, Owner, StagedArtifact
from drivetrain.metadata.claims import LeaseWatch
from drivetrain.metadata.dialect import microseconds
from drivetrain.metadata.fsck import fsck
from drivetrain.tests.metadata.conftest import StoreAddress
from hypothesis import given, settings
from hypothesis import strategies as st

HOUR = 3600.0
HERE = Owner.current()
OTHER = replace(HERE, pid=1, start_time="")  # another process of this machine that lives: the first
AWAY = Owner("another-host", "another-boot", 7, "1")


class Clocks:
    """What time it is: by the wall, which can be set, and by a clock that only goes forward. Seconds."""

    def __init__(self) -> None:
        self.wall = 1_700_000_000.0
        self.steady = 0.0

    def wait(self, seconds: float) -> None:
        self.wall += seconds
        self.steady += seconds

    def open(self, path: str | Path) -> MetadataStore:
        store = MetadataStore.open(path, clock=lambda: round(self.wall * 1e6))
        store._lease_watch = LeaseWatch(lambda: self.steady)
        return store


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


@pytest.fixture
def store(database_address: StoreAddress, clocks: Clocks) -> Iterator[MetadataStore]:
    with clocks.open(database_address("metadata")) as opened:
        yield opened


def test_a_holder_that_lives_is_watched_before_it_is_displaced(store: MetadataStore, clocks: Clocks) -> None:
    claim = store.claim("k", owner=OTHER, lease=60)
    assert claim is not None
    clocks.wall += HOUR
    assert store.claim("k", owner=HERE) is None
    clocks.wait(20)
    store.heartbeat(claim)  # it had no time before
    clocks.wait(59)
    assert store.claim("k", owner=HERE) is None
    clocks.wait(2)  # now it is silent, if nobody set the clock
    assert store.claim("k", owner=HERE) is None
    clocks.wait(29)
    assert store.claim("k", owner=HERE) is None
    clocks.wait(2)
    taken = store.claim("k", owner=HERE)
    assert taken is not None
    assert taken.displaced == OTHER


def test_two_claims_are_watched_apart(store: MetadataStore, clocks: Clocks) -> None:
    for key in "ab":
        assert store.claim(key, owner=OTHER, lease=60)
    clocks.wait(61)
    assert store.claim("a", owner=HERE) is None
    clocks.wait(31)
    assert store.claim("b", owner=HERE) is None
    assert store.claim("a", owner=HERE) is not None


def test_a_lease_ends_although_the_clock_is_set_back(store: MetadataStore, clocks: Clocks) -> None:
    store.claim("k", owner=AWAY, lease=60)
    clocks.wall -= HOUR
    assert store.claim("k", owner=HERE) is None
    clocks.wait(59)
    assert store.claim("k", owner=HERE) is None
    clocks.wait(2)
    taken = store.claim("k", owner=HERE)
    assert taken is not None
    assert taken.displaced == AWAY


def test_what_was_running_is_found_dead_although_the_clock_is_set_back(store: MetadataStore, clocks: Clocks) -> None:
    store.claim("k", owner=AWAY, lease=60)
    running = store.start("Make", owner=AWAY, cache_key="k")
    clocks.wall -= HOUR
    assert store.abandon() == []
    clocks.wait(61)
    assert [execution.id for execution in store.abandon()] == [running.id]
    assert store.claims() == []


@given(st.lists(st.one_of(st.floats(-1e6, 1e6), st.floats(0.1, 15).map(lambda wait: (wait,))), max_size=40))
@settings(max_examples=40, deadline=None)
def test_however_the_clock_jumps_who_beats_keeps_and_who_is_silent_loses(
    tmp_path_factory: pytest.TempPathFactory, steps: list[float | tuple[float]]
) -> None:
    """The law of the lease, of two processes that see each other."""
    clocks = Clocks()
    with clocks.open(tmp_path_factory.mktemp("law") / "metadata.db") as store:
        claim = store.claim("k", owner=OTHER, lease=60)
        assert claim is not None
        beaten = 0.0
        for step in steps:
            if isinstance(step, tuple):
                clocks.wait(step[0])
            else:
                clocks.wall += step
            if clocks.steady - beaten >= 20:
                beaten = clocks.steady
                store.heartbeat(claim)
            assert store.claim("k", owner=HERE) is None
        for _ in range(100):  # from now on it is silent: a lease, half a lease, and a wait each before they are over
            clocks.wait(1)
            if store.claim("k", owner=HERE) is not None:
                break
        assert store.claim_holder("k") == HERE


def test_nothing_takes_less_than_no_time(store: MetadataStore, clocks: Clocks) -> None:
    heard, silent = store.start("Make"), store.start("Make")
    clocks.wall -= HOUR
    store.publish(heard, {}, properties={"seconds": 1.5})
    store.finish(silent, "FAILED")
    assert store.execution(heard.id).seconds == 1.5
    assert store.execution(silent.id).seconds == 0
    assert store.record("Make", "SKIPPED").seconds == 0


def test_the_newest_is_what_came_last(store: MetadataStore, clocks: Clocks) -> None:
    for number in range(3):
        execution = store.start("Make", contexts=[store.context("run", f"run {number}")], cache_key="k")
        new = StagedArtifact("Thing", f"artifacts/Make/{number}/out", "f" * 64, 1, {"number": number})
        store.publish(execution, {"out": [new]})
        clocks.wall -= HOUR
    assert [context.name for context in store.contexts("run")] == ["run 2", "run 1", "run 0"]
    assert [artifact.properties["number"] for artifact in store.artifacts(type="Thing")] == [2, 1, 0]
    hit = store.find_cached("k")
    assert hit is not None
    assert store.outputs(hit)["out"][0].properties["number"] == 2


@pytest.mark.parametrize("ahead", [HOUR, -HOUR])
def test_fsck_spares_what_is_being_published_whatever_the_clock_says(tmp_path: Path, ahead: float) -> None:
    payloads = LocalPayloads(tmp_path)
    with MetadataStore.open(tmp_path / "metadata.db", clock=lambda: microseconds() + round(ahead * 1e6)) as store:
        execution = store.start("Make")
        staged = payloads.stage("Make", execution.uid, "out")
        (staged / "content" / "file.txt").write_text("hello")
        uri = f"artifacts/Make/{execution.uid}/out"
        tree = payloads.publish(staged, uri)
        report = fsck(store, tmp_path, repair=True)
        assert report.clean, report.to_dict()
        store.publish(execution, {"out": [StagedArtifact("Thing", uri, tree.fingerprint, tree.size)]})
        assert fsck(store, tmp_path).clean
