"""Loops with max_parallel, of which only so many items are worked on at once.

A place among them is free again when all nodes of an item have ended. So the nodes of such a loop are scheduled as a
group, item by item, and what is outside waits for the group or is waited for by it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

from .ir import Pipeline


@dataclass(frozen=True)
class NodeGroup:
    """Nodes that are scheduled as one: those of a loop with max_parallel, or a single node.

    Attributes:
        nodes: Ids, in topological order.
        loop: The outermost loop with max_parallel around them; "" for none, and then it is one node.
        upstream: What must have ended first, by first nodes.
    """

    nodes: tuple[str, ...]
    loop: str = ""
    upstream: tuple[str, ...] = ()


def node_groups(pipeline: Pipeline, nodes: Iterable[str], within: str = "") -> list[NodeGroup]:
    """Groups of these nodes, in topological order.

    Args:
        pipeline: Theirs.
        nodes: Ids, in topological order.
        within: A loop that they are all in; its own bound, and those of loops around it, do not count.

    Raises:
        graphlib.CycleError: Items wait for what waits for all of them.
    """
    loops = {name: _bound(pipeline, name, within) for name in nodes}
    grouped: dict[str, list[str]] = {}
    for name, loop in loops.items():
        grouped.setdefault(f"loop {loop}" if loop else name, []).append(name)
    # Each group is contracted to its first node. The nodes have no cycle, but the groups have one where an item waits
    # for what waits for all items: then the loop could never end.
    home = {name: group[0] for group in grouped.values() for name in group}
    groups: dict[str, NodeGroup] = {}
    for group in grouped.values():
        waits = {home[up] for name in group for up in pipeline.upstream(name) if up in home} - {group[0]}
        groups[group[0]] = NodeGroup(tuple(group), loops[group[0]], tuple(sorted(waits)))
    order = TopologicalSorter({name: each.upstream for name, each in groups.items()})
    return [groups[name] for name in order.static_order()]


def deadlocked_loop(pipeline: Pipeline) -> tuple[str, list[str]] | None:
    """A loop with max_parallel whose items could never end, and the nodes that they wait for; None for none."""
    return next(_deadlocks(pipeline, pipeline.ids, ""), None)


def _deadlocks(pipeline: Pipeline, nodes: tuple[str, ...], within: str) -> Iterator[tuple[str, list[str]]]:
    try:
        groups = node_groups(pipeline, nodes, within)
    except CycleError as error:
        cycle: list[str] = error.args[1]
        bounded = {name: _bound(pipeline, name, within) for name in cycle}
        loop = next(loop for loop in bounded.values() if loop)
        yield loop, sorted(name for name, bound in bounded.items() if bound != loop)
        return
    for group in groups:
        if group.loop:
            yield from _deadlocks(pipeline, group.nodes, group.loop)


def _bound(pipeline: Pipeline, node: str, within: str) -> str:
    """The outermost loop with max_parallel around a node, inside of the loop `within`; "" for none."""
    scope = pipeline.scope(node)
    inside = scope[scope.index(within) + 1 :] if within else scope
    return next((loop for loop in inside if pipeline.loop(loop).parallel), "")
