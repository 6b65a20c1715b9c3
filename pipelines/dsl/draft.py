"""From all the recorded calls to the nodes of the IR: what can only be decided once the last call is known.

These are: which nodes wait for a gate (it may be called after them), which node a query means by a name (it may be
added later), the topological order, that nothing waits for ever, and that the names fit into records and folders.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from ...errors import BuildError, suggest
from ...metadata.uri import is_plain
from ..ir.bounds import deadlocked_loop
from ..ir.ir import (
    Edge,
    Loop,
    Node,
    Pipeline,
    Query,
    Source,
)

_LONGEST: Final = 255
"""Characters of a name in the store, and of a folder's, which is ASCII: bytes."""
_MORE: Final = ".sent"
"""Beside the folder of an output that is sent elsewhere lies a file of its name with a dot before it and this."""


@dataclass(frozen=True)
class Draft:
    """What a builder recorded of a pipeline.

    Attributes:
        nodes: By id, in the order of their calls.
        loops: By id.
        lines: The user's line that added a node, by its id.
        within: The pipelines in the pipeline that a node is of, the outermost first, by its id.
    """

    nodes: Mapping[str, Node]
    loops: Mapping[str, Loop]
    lines: Mapping[str, str]
    within: Mapping[str, tuple[str, ...]]

    def finish(self) -> tuple[Node, ...]:
        """The nodes in topological order, with the control edges of gates.

        A gate may veto an artifact, so every other consumer of it must wait for the gate's verdict. Not those that
        gate the same artifact themselves (two gates would wait for each other), nor the gate's own ancestors, nor
        what runs on exit.

        Raises:
            BuildError: Nodes wait for each other, or one looks back at what no node makes.
        """
        seen = {node.id: replace(node, inputs=tuple(self._looking_back(node))) for node in self.nodes.values()}
        after: dict[str, list[str]] = {}
        for gate in self.nodes.values():
            for node in self._held_by(gate):
                after.setdefault(node.id, []).append(gate.id)
        nodes = {n.id: replace(n, after=(*n.after, *after.get(n.id, []))) for n in seen.values()}
        ordered = tuple(_ordered({name: (node, self._upstream(node)) for name, node in nodes.items()}))
        self._check_bounds(ordered)
        return ordered

    def scope(self, node: str) -> list[str]:
        """The loops that a node is in, the outermost first."""
        loops: list[str] = []
        name = self.nodes[node].loop
        while name:
            loops.insert(0, name)
            name = self.loops[name].within
        return loops

    def _check_bounds(self, nodes: tuple[Node, ...]) -> None:
        """Refuse a loop with max_parallel whose items could never end.

        With a bound, an item begins only when an earlier one has ended. Where a node in the loop waits, through a gate
        or a list of outputs, for every item, the first one never ends, and a run would hang without an error.
        """
        deadlock = deadlocked_loop(Pipeline("", (), nodes, tuple(self.loops.values())))
        if deadlock is not None:
            loop, waits = deadlock
            most = self.loops[loop].parallel
            raise BuildError(
                f"no item of {loop} could end, and max_parallel={most} lets no other begin: one waits for "
                f"{', '.join(waits)}, which waits for every item",
                where=self.lines[waits[0]],
                fix=f"leave max_parallel out, or let no gate see what is made in {loop}",
            )

    def _held_by(self, gate: Node) -> Iterator[Node]:
        """The nodes that wait for a gate's verdict, see `finish`."""
        gated = {(edge.node, edge.output) for edge in _edges(gate, gate.gates)}
        if gated:
            before = self._ancestors(gate.id)
            for node in self.nodes.values():
                also_gates = gated & {(edge.node, edge.output) for edge in _edges(node, node.gates)}
                waits = node.id not in before and not node.on_exit and not also_gates
                if waits and gated & {(edge.node, edge.output) for edge in node.edges}:
                    yield node

    def _upstream(self, node: Node) -> set[str]:
        """The ids of the nodes that a node waits for, itself or through a loop around it."""
        loops = [self.loops[name] for name in self.scope(node.id)]
        return set(node.upstream).union(need.node for loop in loops for need in loop.dependencies)

    def _looking_back(self, node: Node) -> Iterator[tuple[str, tuple[Source, ...]]]:
        """The inputs of a node, its queries with the full id of the node that they name."""
        for name, sources in node.inputs:
            yield name, tuple(self._with_maker(node.id, each) if isinstance(each, Query) else each for each in sources)

    def _with_maker(self, node: str, query: Query) -> Query:
        """A query with the full id of its node; one of another pipeline stays, of whose nodes nothing is known here."""
        of_this_pipeline = query.made_by and "pipeline" not in dict(query.arguments)
        return replace(query, made_by=self._maker(node, query)) if of_this_pipeline else query

    def _maker(self, node: str, query: Query) -> str:
        """The id of the node that a query means: of the consumer's own pipeline, else of the nearest one around it."""
        around = self.within[node]
        names = (".".join([*around[:depth], query.made_by]) for depth in range(len(around), -1, -1))
        maker = next((self.nodes[name] for name in names if name in self.nodes), None)
        if maker is None:
            raise BuildError(
                f"{node}: there is no node {query.made_by!r} whose {query.type} could be taken",
                where=self.lines[node],
                fix=suggest(query.made_by, list(self.nodes)),
            )
        if query.type not in dict(maker.outputs).values():
            raise BuildError(f"{node}: {maker.id} makes no {query.type}", where=self.lines[node])
        return maker.id

    def _ancestors(self, node: str) -> set[str]:
        todo, seen = [node], set()
        while todo:
            for name in self._upstream(self.nodes[todo.pop()]):
                if name not in seen:
                    seen.add(name)
                    todo.append(name)
        return seen


def _edges(node: Node, name: str | None) -> list[Edge]:
    return [source for source in dict(node.inputs).get(name or "", ()) if isinstance(source, Edge)]


def _ordered(nodes: dict[str, tuple[Node, set[str]]]) -> Iterator[Node]:
    """Topological order that keeps the order of the calls where it can; what runs on exit comes last.

    A heap of what is ready, by position: the result depends on the calls alone, so that the IR has the same bytes.
    """
    position = {name: (node.on_exit, index) for index, (name, (node, _)) in enumerate(nodes.items())}
    waiting = {name: len(upstream) for name, (_, upstream) in nodes.items()}
    consumers: dict[str, list[str]] = {name: [] for name in nodes}
    for name, (_, upstream) in nodes.items():
        for before in upstream:
            consumers[before].append(name)
    ready = [(position[name], name) for name, count in waiting.items() if not count]
    heapq.heapify(ready)
    while ready:
        _, name = heapq.heappop(ready)
        del waiting[name]
        yield nodes[name][0]
        for consumer in consumers[name]:
            waiting[consumer] -= 1
            if not waiting[consumer]:
                heapq.heappush(ready, (position[consumer], consumer))
    if waiting:
        raise BuildError(
            f"{', '.join(waiting)} wait for each other", fix="a gate's own inputs must not depend on what it gates"
        )


def check_names(pipeline: str, nodes: Iterable[Node], lines: Mapping[str, str]) -> None:
    """Check that the store takes the records' names, and a disk the folders', that are made of a pipeline's names.

    Args:
        pipeline: Its name.
        nodes: Its nodes.
        lines: Where each was added, and under "" where the pipeline begins.

    Raises:
        BuildError: It cannot, naming the user's line.
    """
    for node in nodes:
        _check_node(node, lines[node.id])
    room = _LONGEST - 1 - max(len(node.id) for node in nodes)  # a node is recorded as pipeline.node
    if len(pipeline) > room:
        raise BuildError(
            f"the pipeline's name {pipeline:.40}… is too long: {len(pipeline)} characters",
            where=lines[""],
            fix=f"shorten it to {room}, which leaves room for its nodes' names",
        )


def _check_node(node: Node, where: str) -> None:
    if len(node.component) > _LONGEST:
        raise BuildError(
            f"{node.id}: the component's name {node.component:.40}… is too long: {len(node.component)} characters",
            where=where,
            fix=f"shorten it to {_LONGEST - len(node.component.rpartition(':')[0]) - 1}",
        )
    for key, kind in node.outputs:
        if not is_plain(f"_{key}{_MORE}"):
            raise BuildError(
                f"{node.id}: the output {key!r:.60} has a name that no folder can have here",
                where=where,
                fix=f"use letters a-z, digits and _, at most {_LONGEST - 1 - len(_MORE)}",
            )
        number = f"-{len(node.outputs)}"
        if not is_plain(f"{node.id}.{kind}{number}"):  # it is staged there
            raise BuildError(
                f"{node.id}: the type {kind!r:.60} of its output {key!r:.60} has a name that no folder can have here",
                where=where,
                fix=f"use letters a-z, digits and _, at most {_LONGEST - len(node.id) - 1 - len(number)}",
            )
