"""Executions that one store recorded and another takes in: whole, once, in their place."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator

import pytest
from drivetrain.errors import InputError
from drivetrain.metadata import ExecutionRecord, MetadataStore, StagedArtifact, described
from drivetrain.tests.metadata.conftest import StoreAddress

PLACE = ("run", "node", "task")


@pytest.fixture
def stores(store_address: StoreAddress) -> Iterator[tuple[MetadataStore, MetadataStore]]:
    ours, theirs = (MetadataStore.open(store_address(name)) for name in ("ours", "theirs"))
    yield ours, theirs
    ours.close()
    theirs.close()


def _publish(store: MetadataStore, node: str, *reads: ExecutionRecord, uri: str = "") -> ExecutionRecord:
    contexts = [store.context("run", "one"), store.context("node", f"p.{node}")]
    inputs = {"given": [record for each in reads for record in store.outputs(each)["made"]]}
    execution = store.start(
        f"parts:{node}", contexts=contexts, inputs=inputs, cache_key=f"key of {node}", preimage={"node": node},
        properties={"node": node},
    )  # fmt: skip
    new = StagedArtifact("Text", uri or f"artifacts/{node}/{execution.uid}/made", "f" * 64, 3, {"value": node})
    store.publish(execution, {"made": [new]}, properties={"seconds": 1.5})
    return store.execution(execution.id)


def test_what_is_brought_in_is_as_it_was(stores: tuple[MetadataStore, MetadataStore]) -> None:
    ours, theirs = stores
    first = _publish(theirs, "First")
    second = _publish(theirs, "Second", first)
    reused = theirs.record("parts:Second", "CACHED", cached_from=second, contexts=[theirs.context("run", "one")])
    for execution in (first, second, reused):
        assert ours.bring_in(json.loads(json.dumps(described(theirs, execution))), PLACE)
    for execution in (first, second, reused):
        here = ours.execution(execution.uid)
        for name in ("uid", "component", "cache_key", "state", "properties", "error", "owner", "created_at",
                     "started_at", "finished_at", "seconds"):  # fmt: skip
            assert getattr(here, name) == getattr(execution, name), name
        assert _names(ours, here) == _names(theirs, execution)
    graph = ours.lineage(ours.outputs(ours.execution(second.uid))["made"][0])
    assert {each.uid for each in graph.executions.values()} == {first.uid, second.uid}
    assert ours.find_cached("key of Second") == ours.execution(second.uid)
    assert ours.preimage("key of First") == {"node": "First"}
    run = ours.find_context("run", "one")
    assert run is not None
    assert len(ours.artifacts(context=run)) == 2


def test_it_is_brought_in_once(stores: tuple[MetadataStore, MetadataStore]) -> None:
    ours, theirs = stores
    bodies = [described(theirs, _publish(theirs, f"Node{number}")) for number in range(20)]
    fresh: list[bool] = []

    def bring() -> None:
        for body in bodies:
            fresh.append(ours.bring_in(body, PLACE))

    threads = [threading.Thread(target=bring) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(fresh) == [False] * 40 + [True] * 20
    assert len(ours.executions()) == len(ours.artifacts()) == 20


def test_an_older_one_does_not_stand_before_a_newer_one(stores: tuple[MetadataStore, MetadataStore]) -> None:
    ours, theirs = stores
    older, other = _publish(theirs, "Node"), _publish(theirs, "Other")
    newer = _publish(ours, "Node")
    for execution in (older, other):
        assert ours.bring_in(described(theirs, execution), PLACE)
    run, node, beside = (ours.context(*name) for name in (("run", "one"), ("node", "p.Node"), ("node", "p.Other")))
    assert [each.uid for each in ours.executions(contexts=[run, node])] == [newer.uid]
    assert [each.uid for each in ours.executions(contexts=[run, beside])] == [other.uid]
    assert ours.execution(older.uid).state == "COMPLETE"


def test_an_input_that_nobody_here_publish(stores: tuple[MetadataStore, MetadataStore]) -> None:
    ours, theirs = stores
    first = _publish(theirs, "First")
    second = _publish(theirs, "Second", first)
    assert ours.bring_in(described(theirs, second), PLACE)
    (input_artifact,) = ours.inputs(ours.execution(second.uid))["given"]
    assert input_artifact.producer is None
    assert input_artifact.fingerprint == theirs.outputs(first)["made"][0].fingerprint


@pytest.mark.parametrize("lost", ["uid", "state", "contexts", "created"])
def test_what_is_no_record_changes_nothing(stores: tuple[MetadataStore, MetadataStore], lost: str) -> None:
    ours, theirs = stores
    body = described(theirs, _publish(theirs, "Node"))
    with pytest.raises(InputError, match="not a record of an execution"):
        ours.bring_in({name: value for name, value in body.items() if name != lost}, PLACE)
    assert ours.executions() == []
    assert ours.artifacts(state=None) == []


@pytest.mark.parametrize("state", ["NEW", "RUNNING", "nonsense", None, ["COMPLETE"]])
def test_what_has_not_ended_is_not_brought_in(stores: tuple[MetadataStore, MetadataStore], state: object) -> None:
    """Nobody would end it here."""
    ours, theirs = stores
    with pytest.raises(InputError, match="not a record of an execution"):
        ours.bring_in({**described(theirs, _publish(theirs, "Node")), "state": state}, PLACE)
    assert ours.executions() == []


@pytest.mark.parametrize("changes", [{"uri": "../../etc/passwd"}, {"uri": "s3://other/x"}, {"size": 2**70}])
def test_an_input_of_nonsense_is_not_brought_in(
    stores: tuple[MetadataStore, MetadataStore], changes: dict[str, object]
) -> None:
    ours, theirs = stores
    body = json.loads(json.dumps(described(theirs, _publish(theirs, "Second", _publish(theirs, "First")))))
    body["inputs"]["given"][0] |= changes
    with pytest.raises(InputError):
        ours.bring_in(body, PLACE)
    assert ours.executions() == []
    assert ours.artifacts(state=None) == []


def _names(store: MetadataStore, execution: ExecutionRecord) -> list[object]:
    linked = (store.inputs(execution), store.outputs(execution))
    contexts = [(context.type, context.name) for context in store.contexts_of(execution)]
    return [contexts, *({key: [each.uid for each in several] for key, several in by_key.items()} for by_key in linked)]
