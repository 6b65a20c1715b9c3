"""A pipeline as steps that do not know each other's items: for a runner that must know its graph beforehand.

A step is one node, opened into its items once all that the node waits for has ended; or all the nodes of a loop that
bounds how many of its items are worked on at once, so that one item is finished before its place is given to another.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ..ir.bounds import NodeGroup, node_groups
from ..ir.ir import Pipeline
from ..ir.tasks import Index, task_name
from ..launcher.flow import Flow


@dataclass(frozen=True)
class StepShare:
    """What one worker does of a step, one task after another.

    Attributes:
        within: The items of the loops around.
        first: The first item of the step's loop; None where it has none.
        stride: Every how many of them are this share's.
    """

    within: Index
    first: int | None = None
    stride: int = 1


@dataclass(frozen=True)
class LaunchStep(NodeGroup):
    """Nodes that are worked on together.

    Attributes:
        in_loop: Whether there may be several shares of it, or none; else there is one.
    """

    in_loop: bool = False

    @property
    def name(self) -> str:
        """The step is called like the first of its nodes."""
        return self.nodes[0]

    def shares(self, flow: Flow, outer: Index = ()) -> Iterator[StepShare]:
        """What there is to do within items of the loops around, once the steps upstream have ended."""
        if not self.loop:
            yield from (StepShare(index) for index in flow.tasks(self.name, outer))
            return
        scope = flow.run.pipeline.scope(self.name)
        depth = scope.index(self.loop)
        for index in flow.expand(scope[:depth], outer):
            count = flow.count(self.loop, index) if len(index) == depth else None
            most = flow.run.pipeline.loop(self.loop).parallel or 1
            if count is None:
                yield StepShare(index)
            else:
                yield from (StepShare(index, first, most) for first in range(min(most, count)))

    def tasks(self, share: StepShare, flow: Flow) -> Iterator[str]:
        """The tasks of a share; each is to have ended before the next is asked for."""
        if share.first is None:
            yield from (task_name(node, share.within) for node in self.nodes)
            return
        for item in range(share.first, flow.count(self.loop, share.within) or 0, share.stride):
            for step in steps(flow.run.pipeline, self.nodes, self.loop):
                for inner in step.shares(flow, (*share.within, item)):
                    yield from step.tasks(inner, flow)


def steps(pipeline: Pipeline, nodes: Iterable[str], within: str = "") -> list[LaunchStep]:
    """The steps of these nodes, all of which are in a loop where one is given, in an order to walk them in."""
    return [
        LaunchStep(each.nodes, each.loop, each.upstream, bool(pipeline.scope(each.nodes[0])))
        for each in node_groups(pipeline, nodes, within)
    ]
