"""Lineage against a breadth-first search in Python, on random graphs."""

from __future__ import annotations

import tempfile
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import pytest
from drivetrain.errors import InputError
from drivetrain.metadata import ArtifactRecord, ExecutionRecord, MetadataStore, StagedArtifact, StoreUnavailable
from drivetrain.tests.metadata.conftest import StoreAddress
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st


@pytest.fixture
def store(store_address: StoreAddress) -> Iterator[MetadataStore]:
    with MetadataStore.open(store_address("metadata")) as opened:
        yield opened


def make(
    store: MetadataStore, inputs: list[ArtifactRecord], outputs: int
) -> tuple[ExecutionRecord, list[ArtifactRecord]]:
    execution = store.start("Make", inputs={"in": inputs} if inputs else {})
    new = [StagedArtifact("Thing", f"artifacts/{execution.id}/{index}", "f", 1) for index in range(outputs)]
    return execution, store.publish(execution, {"out": new} if new else {}).get("out", [])


Node = tuple[str, int]


class Graph:
    """The same graph as plain sets, and the search that the store is compared with."""

    def __init__(self) -> None:
        self.after: dict[Node, set[Node]] = {}
        self.before: dict[Node, set[Node]] = {}

    def node(self, node: Node) -> None:
        self.after.setdefault(node, set())
        self.before.setdefault(node, set())

    def edge(self, source: Node, target: Node) -> None:
        self.node(source)
        self.node(target)
        self.after[source].add(target)
        self.before[target].add(source)

    def search(self, start: Node, direction: str, hops: int | None) -> tuple[set[Node], set[tuple[Node, Node]]]:
        neighbours = self.before if direction == "upstream" else self.after
        distance, queue, edges = {start: 0}, deque([start]), set()
        while queue:
            node = queue.popleft()
            if hops is not None and distance[node] == hops:
                continue
            for other in neighbours[node]:
                edges.add((other, node) if direction == "upstream" else (node, other))
                if other not in distance:
                    distance[other] = distance[node] + 1
                    queue.append(other)
        return set(distance), edges


# Every execution: which of the earlier artifacts it takes, and how many it makes. Every reuse: of which execution, and
# with which artifacts as inputs (of equal content, perhaps made later: so reuse can close circles, downstream).
plans = st.lists(st.tuples(st.lists(st.integers(0, 30), max_size=3), st.integers(0, 2)), max_size=10)
reuses = st.lists(st.tuples(st.integers(0, 30), st.lists(st.integers(0, 30), max_size=2)), max_size=4)


ways = (plans, reuses, st.sampled_from(["upstream", "downstream"]), st.none() | st.integers(0, 8))


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(*ways)
def test_lineage_is_what_a_search_finds(
    plan: list[tuple[list[int], int]],
    reused: list[tuple[int, list[int]]],
    direction: Literal["upstream", "downstream"],
    hops: int | None,
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        compare(Path(folder) / "metadata.db", plan, reused, direction, hops)


@pytest.mark.slow
@pytest.mark.postgres
@pytest.mark.slow
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(*ways)
def test_lineage_on_postgres_is_what_a_search_finds(
    schema: Callable[[str], str],
    plan: list[tuple[list[int], int]],
    reused: list[tuple[int, list[int]]],
    direction: Literal["upstream", "downstream"],
    hops: int | None,
) -> None:
    compare(schema(uuid.uuid4().hex), plan, reused, direction, hops)


def compare(
    address: str | Path,
    plan: list[tuple[list[int], int]],
    reused: list[tuple[int, list[int]]],
    direction: Literal["upstream", "downstream"],
    hops: int | None,
) -> None:
    with MetadataStore.open(address) as store:
        graph, artifacts, executions = Graph(), list[ArtifactRecord](), list[ExecutionRecord]()
        for wanted, count in plan:
            inputs = [artifacts[index % len(artifacts)] for index in wanted] if artifacts else []
            execution, outputs = make(store, inputs, count)
            graph.node(("execution", execution.id))
            for taken in inputs:
                graph.edge(("artifact", taken.id), ("execution", execution.id))
            for output in outputs:
                graph.edge(("execution", execution.id), ("artifact", output.id))
            artifacts += outputs
            executions.append(execution)
        for which, wanted in reused if executions else []:
            source = executions[which % len(executions)]
            inputs = [artifacts[index % len(artifacts)] for index in wanted] if artifacts else []
            cached = store.record("Make", "CACHED", cached_from=source, inputs={"in": inputs})
            graph.node(("execution", cached.id))
            for taken in inputs:
                graph.edge(("artifact", taken.id), ("execution", cached.id))
            for output in store.outputs(cached).get("out", []) if direction == "downstream" else []:
                graph.edge(("execution", cached.id), ("artifact", output.id))
        starts: list[ArtifactRecord | ExecutionRecord] = [*store.artifacts(), *store.executions()]
        for start in starts:
            node = ("artifact" if isinstance(start, ArtifactRecord) else "execution", start.id)
            nodes, edges = graph.search(node, direction, hops)
            reached = store.lineage(start, direction, max_hops=hops)
            assert {("artifact", n) for n in reached.artifacts} | {
                ("execution", n) for n in reached.executions
            } == nodes
            assert {
                (("artifact", e.artifact), ("execution", e.execution))
                if e.direction == "INPUT"
                else (("execution", e.execution), ("artifact", e.artifact))
                for e in reached.edges
            } == edges


def test_a_long_chain_has_no_cap(store: MetadataStore) -> None:
    outputs: list[ArtifactRecord] = []
    for _ in range(300):
        _, outputs = make(store, outputs, 1)
    first = store.artifact(1)
    assert len(store.lineage(outputs[0]).artifacts) == 300
    assert len(store.lineage(first, "downstream").executions) == 299
    assert len(store.lineage(outputs[0], max_hops=20).artifacts) == 11


def test_start_excludes_its_other_side(store: MetadataStore) -> None:
    _, first = make(store, [], 1)
    middle, second = make(store, first, 1)
    assert set(store.lineage(middle, "downstream").artifacts) == {second[0].id}
    assert set(store.lineage(middle, "upstream").artifacts) == {first[0].id}


def test_bad_directions_are_refused(store: MetadataStore) -> None:
    execution, _ = make(store, [], 0)
    with pytest.raises(InputError):
        store.lineage(execution, "sideways")  # type: ignore[arg-type]
    with pytest.raises(InputError):
        store.lineage(execution, max_hops=-1)


def test_records_are_read_as_they_are_asked_for(store: MetadataStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drivetrain.metadata.records._PAGE", 2)
    outputs: list[ArtifactRecord] = []
    for _ in range(5):
        execution, outputs = make(store, outputs, 1)
    graph = store.lineage(execution)
    assert 6 not in graph.artifacts
    assert graph.artifacts.get(6) is None
    marked = store.update_artifact(store.artifact(1), state="MARKED_FOR_DELETION")
    assert graph.artifacts[1] == marked  # as it is by now
    assert list(graph.artifacts.values()) == [store.artifact(number) for number in range(1, 5)]
    assert list(graph.executions.items()) == [(number, store.execution(number)) for number in range(1, 6)]


def test_a_graph_needs_its_store(store: MetadataStore) -> None:
    execution, _ = make(store, [], 1)
    graph = store.lineage(execution, "downstream")
    store.close()
    assert list(graph.executions) == [execution.id]
    assert [(edge.direction, edge.artifact) for edge in graph.edges] == [("OUTPUT", 1)]
    with pytest.raises(StoreUnavailable, match="closed"):
        graph.executions[execution.id]
