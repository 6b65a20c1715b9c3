"""What a drawing of a pipeline shows: nodes, loops, and what flows or waits between them."""

from __future__ import annotations

from collections.abc import Iterator

from .expressions import Json, dependencies, spelled
from .ir import (
    Edge,
    Loop,
    Node,
    Pipeline,
    Query,
    UidSource,
)


def dag(pipeline: Pipeline) -> Json:
    """A pipeline as `report.dag.drawing` takes it: nodes, loops, and edges as (source, target, whether data flows)."""
    edges: dict[tuple[str, str], bool] = {}
    for node in pipeline.nodes:
        edges |= {(name, node.id): False for name in node.upstream} | {(name, node.id): True for name in _taken(node)}
    for loop in pipeline.loops:
        name = f"loop:{loop.id}"
        edges |= {(need.node, name): False for need in loop.dependencies}
        edges |= {(need.node, name): True for need in dependencies(loop.over)}
    return {
        "nodes": [_node(pipeline, node) for node in pipeline.nodes],
        "loops": [_loop(pipeline, loop) for loop in pipeline.loops],
        "edges": [(source, target, flows) for (source, target), flows in edges.items()],
    }


def _taken(node: Node) -> Iterator[str]:
    """The nodes whose outputs or values a node takes; without those it only waits for."""
    for source in (source for _, sources in node.inputs for source in sources):
        if isinstance(source, Edge):
            yield source.node
        elif isinstance(source, UidSource):
            yield from (need.node for need in dependencies(source.uids))
        else:
            yield from (need.node for need in dependencies([value for _, value in source.arguments]))
            if source.of is not None:
                yield source.of.node
    yield from (need.node for need in dependencies([value for _, value in (*node.parameters, *node.options.env)]))


def _node(pipeline: Pipeline, node: Node) -> Json:
    outer = [condition for name in pipeline.scope(node.id) for condition in pipeline.loop(name).conditions]
    queries = [source for _, sources in node.inputs for source in sources if isinstance(source, Query)]
    options = node.options.to_json()
    return {
        "id": node.id,
        "component": node.component.rpartition(":")[2],
        "loop": node.loop,
        "exit": node.on_exit,
        "gate": node.gates is not None,
        "conditions": [spelled(condition) for condition in node.conditions if condition not in outer],
        "history": [_chosen(query) for query in queries],
        "details": [
            *(["a person decides"] if node.asks else []),
            *(f"{name} = {value}" for name, value in options.items() if name != "env"),
        ],
    }


def _chosen(query: Query) -> str:
    """What a query is for, in two words; of a registered model, its name."""
    name = dict(query.arguments)["name"] if query.strategy == "registered" else query.type
    return f"{query.strategy} {name}"


def _loop(pipeline: Pipeline, loop: Loop) -> Json:
    outer = pipeline.loop(loop.within).conditions if loop.within else ()
    parallel = f", {loop.parallel} at once" if loop.parallel else ""
    return {
        "id": loop.id,
        "within": loop.within,
        "title": f"{loop.id}: for each of {spelled(loop.over)}{parallel}",
        "conditions": [spelled(condition) for condition in loop.conditions if condition not in outer],
    }
