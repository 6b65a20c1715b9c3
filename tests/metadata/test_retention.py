"""Retention: what a policy keeps, in which steps the rest goes, and that nothing needed ever does."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from drivetrain.metadata import MetadataStore, open_payloads
from drivetrain.metadata.errors import StateError
from drivetrain.metadata.fsck import fsck
from drivetrain.metadata.records import ArtifactRecord, ContextRecord, ExecutionRecord, StagedArtifact
from drivetrain.metadata.registry import Registry
from drivetrain.metadata.retention import (
    Collected,
    Protection,
    RetentionPlan,
    RetentionPolicy,
    RetentionRule,
    collect,
    pin,
    plan,
    take_back,
    unpin,
)
from drivetrain.tests.metadata.conftest import StoreAddress
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

DAY = 86_400_000_000
LAST = RetentionPolicy((RetentionRule(keep_last=1),), grace=timedelta(0))


class Root:
    """A root with a clock that a test sets, in which runs of a pipeline are recorded with real payloads."""

    def __init__(self, address: str | Path, root: Path, url: str | None = None) -> None:
        self.path = root
        self.now = 1_700_000_000_000_000
        self.store = MetadataStore.open(address, clock=self._tick)
        self.payloads = open_payloads(self.store, root, url)
        self._runs = 0

    def _tick(self) -> int:
        self.now += 1
        return self.now

    def days(self, number: float) -> None:
        self.now += int(number * DAY)

    def run(self) -> ContextRecord:
        self._runs += 1
        return self.store.context("run", f"run-{self._runs}")

    def contexts(self, run: ContextRecord, node: str, pipeline: str = "p") -> list[ContextRecord]:
        return [self.store.context("pipeline", pipeline), run, self.store.context("node", f"{pipeline}.{node}")]

    def make(
        self,
        run: ContextRecord,
        node: str,
        inputs: Sequence[ArtifactRecord] = (),
        type_: str = "Thing",
        size: int = 10,
        pipeline: str = "p",
    ) -> ArtifactRecord:
        """An artifact that a node makes in a run, of `size` bytes beside what its report takes."""
        execution = self.store.start(
            node, contexts=self.contexts(run, node, pipeline), inputs={"in": list(inputs)} if inputs else {}
        )
        staged = self.payloads.stage(node, execution.uid, "out")
        (staged / "content" / "file").write_bytes(execution.uid.encode()[:10].ljust(size, b"."))
        (staged / "extra").mkdir()
        (staged / "extra" / "report").write_bytes(b"r" * 5)
        uri = f"artifacts/{node}/{execution.uid}/out"
        tree = self.payloads.publish(staged, uri)
        return self.store.publish(execution, {"out": [StagedArtifact(type_, uri, tree.fingerprint, tree.size)]})["out"][
            0
        ]

    def reuse(self, run: ContextRecord, node: str, artifact: ArtifactRecord) -> ExecutionRecord:
        """A node of a run takes what an earlier one made from the cache."""
        assert artifact.producer is not None
        source = self.store.execution(artifact.producer)
        return self.store.record(node, "CACHED", contexts=self.contexts(run, node), cached_from=source)

    def plan(self, policy: RetentionPolicy, *protections: Protection) -> RetentionPlan:
        return plan(self.store, self.path, policy, protections)

    def collect(self, policy: RetentionPolicy, *protections: Protection) -> Collected:
        return collect(self.store, self.path, self.plan(policy, *protections), "ann")

    def state(self, artifact: ArtifactRecord) -> str:
        return self.store.artifact(artifact.id).state

    def there(self, artifact: ArtifactRecord) -> bool:
        return self.payloads.present(artifact.uri)


@pytest.fixture
def root(database_address: StoreAddress, tmp_path: Path) -> Iterator[Root]:
    fresh = Root(database_address("metadata"), tmp_path)
    yield fresh
    fresh.store.close()


def marked(planned: RetentionPlan) -> set[int]:
    return {artifact.id for artifact, _ in planned.mark}


def test_the_last_runs_that_differ_are_kept(root: Root) -> None:
    outputs = [root.make(root.run(), "Train") for _ in range(3)]
    for _ in range(5):  # runs that reuse do not count
        root.reuse(root.run(), "Train", outputs[1])
    planned = root.plan(RetentionPolicy((RetentionRule(keep_last=2),)))
    assert marked(planned) == {outputs[0].id}
    assert planned.kept == {each.id: "of the last runs" for each in outputs[1:]}
    # What the newest runs use goes last, although it was made earlier.
    assert marked(root.plan(LAST)) == {outputs[0].id, outputs[2].id}


def test_all_that_a_loop_made_in_a_run_is_kept_or_goes(root: Root) -> None:
    first, second = root.run(), root.run()
    older = [root.make(first, "Each") for _ in range(4)]
    newer = [root.make(second, "Each") for _ in range(4)]
    assert marked(root.plan(LAST)) == {each.id for each in older}
    for each in older[:2]:  # two of the items of the next run come from the cache
        root.reuse(last := root.run(), "Each", each)
    fresh = root.make(last, "Each")
    assert marked(root.plan(LAST)) == {each.id for each in (*older[:1], *older[2:], *newer)}
    assert fresh.id in root.plan(LAST).kept


def test_what_was_used_lately_is_kept(root: Root) -> None:
    read, reused, unused = (root.make(root.run(), node) for node in ("A", "B", "C"))
    root.days(40)
    root.make(root.run(), "D", [read])
    root.reuse(root.run(), "B", reused)
    planned = root.plan(RetentionPolicy((RetentionRule(keep_for=timedelta(days=30)),)))
    assert marked(planned) == {unused.id}
    assert marked(root.plan(RetentionPolicy((RetentionRule(keep_for=timedelta(days=41)),)))) == set()


def test_the_first_rule_that_fits_decides_and_what_none_fits_stays(root: Root) -> None:
    def both(node: str, type_: str, pipeline: str = "p") -> list[ArtifactRecord]:
        return [root.make(root.run(), node, type_=type_, pipeline=pipeline) for _ in range(2)]

    models, schemas, data, others = (
        both("Train", "Model"),
        both("Import", "Schema"),
        both("Read", "Examples"),
        both("Read", "Examples", pipeline="q.r"),
    )
    rules = (
        RetentionRule(type="Schema"),
        RetentionRule(keep_last=5, type="Model", node="Tr*"),
        RetentionRule(keep_last=1, pipeline="p"),
    )
    planned = root.plan(RetentionPolicy(rules))
    assert marked(planned) == {data[0].id}
    assert {planned.kept[each.id] for each in schemas} == {"a rule keeps all of its kind"}
    assert {planned.kept[each.id] for each in models} == {"of the last runs"}
    assert {planned.kept[each.id] for each in others} == {"no rule fits it"}
    assert marked(root.plan(RetentionPolicy((RetentionRule(keep_last=1, pipeline="q.r"),)))) == {others[0].id}


def test_an_output_of_no_run_stays(root: Root) -> None:
    execution = root.store.start("Alone")
    staged = root.payloads.stage("Alone", execution.uid, "out")
    uri = f"artifacts/Alone/{execution.uid}/out"
    tree = root.payloads.publish(staged, uri)
    new = StagedArtifact("Thing", uri, tree.fingerprint, tree.size)
    [alone] = root.store.publish(execution, {"out": [new]})["out"]
    assert root.plan(LAST).kept == {alone.id: "the output of no run"}


def test_beyond_the_quota_the_longest_unused_goes(root: Root) -> None:
    outputs = []
    for _ in range(5):
        outputs.append(root.make(root.run(), "Train", size=95))  # 100 bytes with its report
        root.days(1)
    root.reuse(root.run(), "Train", outputs[0])
    rules = (RetentionRule(keep_last=10),)
    assert marked(root.plan(RetentionPolicy(rules, quota=500))) == set()
    planned = root.plan(RetentionPolicy(rules, quota=300))
    assert marked(planned) == {outputs[1].id, outputs[2].id}
    assert {reason for _, reason in planned.mark} == {"longest unused, beyond the quota"}
    assert planned.size(each for each, _ in planned.mark) == 200
    least = root.plan(RetentionPolicy(rules, quota=10))
    assert marked(least) == {each.id for each in outputs[1:]}  # never what the newest run uses
    assert least.over_quota == 90
    # Nor what is kept for good.
    assert marked(root.plan(RetentionPolicy((RetentionRule(),), quota=10))) == set()
    assert root.plan(RetentionPolicy((RetentionRule(),), quota=10)).over_quota == 490


def test_what_is_marked_goes_after_the_grace_and_can_be_taken_back(root: Root) -> None:
    old, new = root.make(root.run(), "Train"), root.make(root.run(), "Train")
    policy = RetentionPolicy((RetentionRule(keep_last=1),), grace=timedelta(days=7))
    assert root.collect(policy).marked == 1
    assert root.state(old) == "MARKED_FOR_DELETION"
    assert root.there(old)
    assert fsck(root.store, root.path).clean
    assert root.store.artifacts() == [new]
    with pytest.raises(StateError, match="MARKED_FOR_DELETION"):
        root.store.start("Read", inputs={"in": [old]})

    assert [each.id for each in take_back(root.store)] == [old.id]
    assert root.state(old) == "LIVE"
    assert root.collect(policy) == Collected(1, 0, 0, 0, ())
    root.days(6.9)
    assert root.collect(policy) == Collected(0, 0, 0, 0, ())
    assert root.plan(policy).waiting == (root.store.artifact(old.id),)
    root.days(0.2)
    assert root.collect(policy) == Collected(0, 0, 1, 15, ())
    assert root.state(old) == "DELETED"
    assert not root.there(old)
    assert root.there(new)
    assert fsck(root.store, root.path).clean
    assert take_back(root.store) == []
    deleted = root.store.artifact(old.id)
    assert deleted.collected is not None
    assert deleted.collected.endswith("no rule keeps it")
    assert root.store.lineage(deleted).executions.keys() == {old.producer}


def test_a_pin_keeps_what_led_to_it_and_brings_back_what_is_marked(root: Root) -> None:
    data = root.make(root.run(), "Read")
    model = root.make(root.run(), "Train", [data])
    for node in ("Read", "Train"):
        root.make(root.run(), node)
    policy = RetentionPolicy((RetentionRule(keep_last=1),))
    assert root.collect(policy).marked == 2
    pinned = pin(root.store, root.store.artifact(model.id), "ann", "for the audit")
    assert pinned.state == "LIVE"
    planned = root.plan(policy)
    assert planned.kept[model.id] == "pinned"
    assert [each.id for each in planned.restore] == [data.id]
    assert root.collect(policy).restored == 1
    assert root.plan(policy).kept[data.id] == "led to what is pinned"
    assert marked(root.plan(RetentionPolicy(policy.rules, lineage=False))) == {data.id}
    unpin(root.store, root.store.artifact(model.id))
    assert marked(root.plan(policy)) == {data.id, model.id}


def test_what_an_execution_at_work_reads_stays(root: Root) -> None:
    data = root.make(root.run(), "Read")
    root.make(root.run(), "Read")
    reading = root.store.start("Train", inputs={"data": [data]})
    assert root.collect(LAST).marked == 1
    assert root.collect(LAST) == Collected(0, 0, 0, 0, (data.uri,))
    assert root.there(data)
    root.store.finish(reading, "FAILED")
    assert root.collect(LAST).deleted == 1
    assert not root.there(data)


def test_what_changed_since_the_plan_is_left(root: Root) -> None:
    old = root.make(root.run(), "Train")
    root.make(root.run(), "Train")
    planned = root.plan(LAST)
    pin(root.store, old, "ann", "")
    assert collect(root.store, root.path, planned, "ben") == Collected(0, 0, 0, 0, (old.uri,))
    assert root.state(old) == "LIVE"


def register(root: Root, artifact: ArtifactRecord) -> None:
    Registry(root.store).register("flights", artifact, by="ann")


def champion(root: Root, artifact: ArtifactRecord) -> None:
    registry = Registry(root.store)
    registry.set_alias("flights", "champion", registry.versions_of(artifact)[0].number, by="ann")


def registered(root: Root, *, with_lineage: bool = False) -> Iterator[Protection]:
    """What the registry keeps, as it is when it is asked for."""
    registry = Registry(root.store)
    for model in map(registry.model, registry.names()):
        for version in model.versions:
            named = with_lineage and bool(model.aliases_of(version))
            yield Protection(frozenset([registry.artifact(version).id]), "registered", lineage=named)


def pinned_by_ann(root: Root, artifact: ArtifactRecord) -> None:
    pin(root.store, artifact, "ann", "")


@pytest.mark.parametrize("keep", [champion, pinned_by_ann])
def test_what_is_needed_since_the_plan_was_made_stays(
    root: Root, keep: Callable[[Root, ArtifactRecord], object]
) -> None:
    """A plan may be minutes old when its last payload goes: by then an alias or a pin may need what it lets go."""
    data = root.make(root.run(), "Read")
    model = root.make(root.run(), "Train", [root.store.artifact(data.id)], type_="Model")
    register(root, model)
    root.make(root.run(), "Read")
    root.collect(LAST, *registered(root))
    planned = root.plan(LAST, *registered(root))
    assert [each.id for each in planned.delete] == [data.id]
    keep(root, model)
    assert collect(root.store, root.path, planned, "ben") == Collected(0, 0, 0, 0, (data.uri,))
    assert root.there(data)
    assert root.collect(LAST, *registered(root, with_lineage=True)).restored == 1
    assert root.state(data) == "LIVE"


def gone_within(root: Root, monkeypatch: pytest.MonkeyPatch, artifact: ArtifactRecord, owner: Any, name: str) -> None:
    """Have two collections remove an artifact right after the next call of a method, whose caller saw it LIVE."""
    method, calls = getattr(owner, name), list[int]()

    def overtaken(*arguments: Any, **options: Any) -> Any:
        result = method(*arguments, **options)
        if not calls:
            calls.append(1)
            for _ in range(2):
                root.collect(LAST, *registered(root))
            assert root.state(artifact) == "DELETED"
        return result

    monkeypatch.setattr(owner, name, overtaken)


def test_what_went_meanwhile_is_not_registered(root: Root, monkeypatch: pytest.MonkeyPatch) -> None:
    old = root.make(root.run(), "Train", type_="Model")
    root.make(root.run(), "Train", type_="Model")
    gone_within(root, monkeypatch, old, Registry, "_trained_by")
    with pytest.raises(StateError, match="is DELETED, and cannot be registered"):
        register(root, old)
    assert Registry(root.store).model("flights").versions == ()
    assert fsck(root.store, root.path).clean


def test_what_went_meanwhile_is_not_pinned(root: Root, monkeypatch: pytest.MonkeyPatch) -> None:
    old = root.make(root.run(), "Train")
    root.make(root.run(), "Train")
    root.collect(LAST)
    stale = root.store.artifact(old.id)  # marked: it would be LIVE again
    gone_within(root, monkeypatch, old, root.store, "now")
    with pytest.raises(StateError, match="is DELETED, and cannot be pinned"):
        pin(root.store, stale, "ann", "")
    assert root.state(old) == "DELETED"
    assert fsck(root.store, root.path).clean


def test_what_is_marked_while_the_protections_are_read_waits(root: Root) -> None:
    """Whoever registered it before it was marked is among them, or was not asked yet."""
    old = root.make(root.run(), "Train", type_="Model")
    root.make(root.run(), "Train", type_="Model")

    def late() -> Iterator[Protection]:
        yield from registered(root)
        register(root, old)
        root.collect(LAST)  # somebody else's, of another policy

    planned = plan(root.store, root.path, LAST, late())
    assert planned.delete == ()


@pytest.mark.slow
def test_beside_a_collection_that_never_ends_what_is_registered_or_pinned_stays(
    database_address: StoreAddress, tmp_path: Path
) -> None:
    root = Root(database_address("metadata"), tmp_path)
    stop, kept, refused, errors = threading.Event(), list[ArtifactRecord](), list[str](), list[BaseException]()

    def collecting() -> None:
        with MetadataStore.open(database_address("metadata")) as store:
            while not stop.is_set():
                fresh = Root.__new__(Root)
                fresh.store = store
                collect(store, tmp_path, plan(store, tmp_path, LAST, registered(fresh)), "ben")

    def keeping(number: int) -> None:
        chance = random.Random(number)
        for index in range(15):
            model = root.make(root.run(), f"Train{number}", type_="Model")
            root.make(root.run(), f"Train{number}", type_="Model")
            time.sleep(chance.uniform(0, 0.05))
            try:
                if index % 2:
                    pin(root.store, model, "ann", "")
                else:
                    register(root, model)
            except StateError as error:
                refused.append(str(error))
            else:
                kept.append(model)

    def guarded(work: Callable[..., None], *arguments: int) -> None:
        try:
            work(*arguments)
        except BaseException as error:
            errors.append(error)

    collectors = [threading.Thread(target=guarded, args=(collecting,)) for _ in range(2)]
    keepers = [threading.Thread(target=guarded, args=(keeping, number)) for number in range(3)]
    for thread in (*collectors, *keepers):
        thread.start()
    for thread in keepers:
        thread.join()
    stop.set()
    for thread in collectors:
        thread.join()
    assert errors == []
    assert len(kept) + len(refused) == 45
    assert all("is MARKED_FOR_DELETION" in each or "is DELETED" in each for each in refused)
    for each in kept:
        assert root.there(each)
    assert not fsck(root.store, root.path).missing
    root.store.close()


def test_payloads_behind_a_url_go_too(database_address: StoreAddress, tmp_path: Path) -> None:
    objects = tmp_path / "objects"
    objects.mkdir()
    root = Root(database_address("metadata"), tmp_path / "root", objects.as_uri())
    old, new = root.make(root.run(), "Train"), root.make(root.run(), "Train")
    assert root.plan(LAST).sizes[old.uri] > 15  # the manifest takes some
    root.collect(LAST)
    assert root.collect(LAST).deleted == 1
    assert root.there(new)
    assert not any(path.is_file() for path in objects.rglob(f"*{old.uri.split('/')[2]}*/**/*"))
    report = fsck(root.store, root.path)
    assert not [*report.missing, *report.corrupt, *report.orphans]
    root.store.close()


def test_each_collection_is_on_record(root: Root) -> None:
    old = root.make(root.run(), "Train")
    root.make(root.run(), "Train")
    root.collect(LAST)
    root.collect(LAST)
    [record] = root.store.contexts("garbage_collection")
    assert record.properties["by"] == "ann"
    assert record.properties["artifacts"] == [old.id]
    assert record.properties["finished"] is True


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[int, list[int], int | None]]:
    """Steps: the node, which earlier artifacts go in, and which earlier one of the node it takes from the cache."""
    steps: list[tuple[int, list[int], int | None]] = []
    for index in range(draw(st.integers(1, 12))):
        node = draw(st.integers(0, 2))
        same = [number for number, step in enumerate(steps) if step[0] == node and step[2] is None]
        reused = draw(st.none() | st.sampled_from(same)) if same else None
        earlier = [number for number in range(index) if steps[number][2] is None]
        inputs = draw(st.lists(st.sampled_from(earlier), max_size=3, unique=True)) if earlier else []
        steps.append((node, inputs, reused))
    return steps


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    history=histories(),
    pinned=st.sets(st.integers(0, 11)),
    protected=st.sets(st.integers(0, 11)),
    reading=st.none() | st.integers(0, 11),
    keep_last=st.none() | st.integers(1, 3),
    days=st.none() | st.integers(0, 12),
    quota=st.none() | st.integers(0, 200),
)
def test_nothing_that_is_needed_ever_goes(
    database_address: StoreAddress,
    tmp_path_factory: pytest.TempPathFactory,
    history: list[tuple[int, list[int], int | None]],
    pinned: set[int],
    protected: set[int],
    reading: int | None,
    keep_last: int | None,
    days: int | None,
    quota: int | None,
) -> None:
    root = Root(database_address(uuid.uuid4().hex), tmp_path_factory.mktemp("root"))
    artifacts: list[ArtifactRecord] = []
    for node, inputs, reused in history:
        root.days(1)
        if reused is not None:
            root.reuse(root.run(), f"N{node}", artifacts[reused])
            artifacts.append(artifacts[reused])
        else:
            artifacts.append(root.make(root.run(), f"N{node}", [artifacts[each] for each in inputs]))

    def above(index: int) -> set[int]:
        index = history[index][2] if history[index][2] is not None else index  # type: ignore[assignment]
        return {index}.union(*(above(each) for each in history[index][1]))

    count = len(artifacts)
    for index in pinned:
        if index < count:
            pin(root.store, root.store.artifact(artifacts[index].id), "ann", "")
    if reading is not None and reading < count:
        root.store.start("Reader", inputs={"in": [artifacts[reading]]})
    keep_for = None if days is None else timedelta(days=days)
    policy = RetentionPolicy((RetentionRule(keep_last, keep_for),), timedelta(0), quota)
    protection = Protection(frozenset(artifacts[each].id for each in protected if each < count), "in service")
    for _ in range(2):
        root.collect(policy, protection)
    needed: set[int] = set().union(*(above(each) for each in pinned | protected if each < count))
    for index in needed:
        assert root.state(artifacts[index]) == "LIVE"
        assert root.payloads.problems(artifacts[index].uri, artifacts[index].fingerprint) == []
    if reading is not None and reading < count:
        assert root.payloads.problems(artifacts[reading].uri, artifacts[reading].fingerprint) == []
    newest = {node: artifacts[index] for index, (node, _, _) in enumerate(history)}
    for each in newest.values():
        assert keep_last is None or root.state(each) == "LIVE"
    for each in artifacts:
        assert (root.state(each) == "DELETED") == (not root.there(each))
    if quota is None and keep_last == 1 and keep_for is None and not needed:
        assert {each.id for each in root.store.artifacts()} == {each.id for each in newest.values()}
    assert fsck(root.store, root.path).clean
    root.store.close()


KILLED = """
import os, signal, sys
from datetime import timedelta
from pathlib import Path
from drivetrain.metadata import MetadataStore
from drivetrain.metadata.retention import RetentionPolicy, RetentionRule, collect, plan

root, calls, last = Path(sys.argv[1]), 0, int(sys.argv[2])

def count(frame, event, argument):
    global calls
    calls += event in ("call", "c_call")
    if calls == last:
        os.kill(os.getpid(), signal.SIGKILL)

with MetadataStore.open(root / "metadata.db") as store:
    policy = RetentionPolicy((RetentionRule(keep_last=1),), timedelta(0))
    sys.setprofile(count)
    for _ in range(2):
        collect(store, root, plan(store, root, policy), "ann")
    sys.setprofile(None)
print(calls)
"""
"""Two collections in a process of its own, which kills itself at a call; else it prints how many calls there were."""


def _collect(root: Path, last: int = -1) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", KILLED, str(root), str(last)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.slow
def test_a_kill_at_any_moment_loses_nothing_and_the_next_collection_ends_it(tmp_path: Path) -> None:
    root = Root(tmp_path / "metadata.db", tmp_path)
    for _ in range(4):
        new = root.make(root.run(), "Train")
    calls = int(_collect(tmp_path).stdout)
    killed = 0
    for moment in range(1, 25):
        old = [new, *(root.make(root.run(), "Train") for _ in range(2))]
        new = root.make(root.run(), "Train")
        killed += _collect(tmp_path, int(calls * moment / 25)).returncode == -signal.SIGKILL
        report = fsck(root.store, root.path)
        assert not [*report.missing, *report.corrupt, *report.derived, *report.orphans, *report.claims]
        assert root.state(new) == "LIVE"
        assert root.there(new)
        assert _collect(tmp_path).returncode == 0
        assert [root.state(each) for each in old] == ["DELETED"] * 3
        assert not any(root.there(each) for each in old)
        assert fsck(root.store, root.path).clean
    assert killed >= 20
    root.store.close()
