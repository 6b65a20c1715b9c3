"""A pipeline as steps that do not know each other's items: what a runner walks that must be told its graph beforehand.

A step is one node, opened into its items once all that the node waits for has ended; or all the nodes of a loop that
bounds how many of its items are worked on at once, so that one item is finished before its place is given to another.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from graphlib import TopologicalSorter

from ..form.ir import Pipeline
from ..form.tasks import Index, task_name
from ..launching.flow import Flow


@dataclass(frozen=True)
class Part:
    """What one worker does of a step, one task after another.

    Attributes:
        within: The items of the loops around.
        first: The first item of the step's loop; None where it has none.
        stride: Every how many of them are this part's.
    """

    within: Index
    first: int | None = None
    stride: int = 1


@dataclass(frozen=True)
class Step:
    """Nodes that are worked on together.

    Attributes:
        nodes: Ids, in topological order.
        loop: The outermost loop around them that bounds its items; "" where none does, and then it is one node.
        upstream: The steps that must have ended first, by their first nodes.
    """

    nodes: tuple[str, ...]
    loop: str = ""
    upstream: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The first node's."""
        return self.nodes[0]

    def parts(self, flow: Flow) -> Iterator[Part]:
        """What there is to do, once the steps upstream have ended."""
        if not self.loop:
            yield from (Part(index) for index in flow.tasks(self.name))
            return
        scope = flow.run.pipeline.scope(self.name)
        depth = scope.index(self.loop)
        for index in flow.opened(scope[:depth]):
            count = flow.count(self.loop, index) if len(index) == depth else None
            most = flow.run.pipeline.loop(self.loop).parallel or 1
            if count is None:
                yield Part(index)
            else:
                yield from (Part(index, first, most) for first in range(min(most, count)))

    def tasks(self, part: Part, flow: Flow) -> Iterator[str]:
        """The tasks of a part; each is to have ended before the next is asked for."""
        items: Iterable[Index] = [part.within]
        if part.first is not None:
            count = flow.count(self.loop, part.within) or 0
            items = [(*part.within, item) for item in range(part.first, count, part.stride)]
        for item in items:
            for node in self.nodes:
                yield from (task_name(node, index) for index in flow.tasks(node, item))


def steps(pipeline: Pipeline, nodes: Iterable[str]) -> list[Step]:
    """The steps of these nodes, in an order that they can be walked in."""
    loops = {name: next((loop for loop in pipeline.scope(name) if pipeline.loop(loop).parallel), "") for name in nodes}
    grouped: dict[str, list[str]] = {}
    for name, loop in loops.items():
        grouped.setdefault(f"loop {loop}" if loop else name, []).append(name)
    home = {name: inside[0] for inside in grouped.values() for name in inside}
    found: dict[str, Step] = {}
    for inside in grouped.values():
        waits = {home[up] for name in inside for up in pipeline.upstream(name) if up in home} - {inside[0]}
        found[inside[0]] = Step(tuple(inside), loops[inside[0]], tuple(sorted(waits)))
    order = TopologicalSorter({name: step.upstream for name, step in found.items()})
    return [found[name] for name in order.static_order()]
