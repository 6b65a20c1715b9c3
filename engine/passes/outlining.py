"""Parts that a graph repeats on other tensors, such as one scaling of several columns, as calls of one function."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from ..graphs.graph import Graph
from ..graphs.nodes import DeviceOp, GraphNode, Tensor
from ..tracing.equations import aval_of, calling, function_of
from .structural import UNSHARED, NodeEquality, bits

# Measured as time to trace and lower, in units of one node.
_LEAST: Final = 16  # a smaller graph is not searched
_CALL: Final = 2  # what one call costs
_FUNCTION: Final = 6  # what one function costs
_OTHERS: Final = 0.4  # where more than this share of the nodes repeat no other, the search costs what it would save
_NAME: Final = "repeated"


def outline(graph: Graph) -> Graph:
    """With parts that are alike but for what they read as one function, where calls of it cost less than they do.

    The last step before a program is written: other passes do not look into calls, nor does the search for the inputs
    that an output needs. XLA inlines the calls again.
    """
    nodes = graph.nodes
    if len(nodes) < _LEAST or not all(node.outputs for node in nodes):
        return graph
    shades, constants = _shades(graph)
    if len(set(shades)) > len(shades) * _OTHERS:
        return graph
    if any(isinstance(node, DeviceOp) and node.equation.effects for node in nodes):
        return graph  # calls are put in order by level, and effects must keep theirs
    parts = _Parts(nodes, shades, constants)
    calls: dict[int, GraphNode] = {}  # by the first place of what they replace
    gone: set[int] = set()
    tensors: dict[str, Tensor] = {}
    for alike in parts.alike(shades):
        tensors = tensors or graph.tensors()
        for places, call in _calls(graph, alike, constants, parts.outside(graph), tensors):
            calls[places[0]] = call
            gone.update(places)
    if not calls:
        return graph
    kept = [at for at in range(len(nodes)) if at in calls or at not in gone]
    kept.sort(key=parts.level.__getitem__)
    kept_nodes = [calls.get(at, nodes[at]) for at in kept]
    read = {root for name in graph.signatures for root in graph.roots(name)}
    read.update(name for node in kept_nodes for name in node.inputs if name is not None)
    return replace(
        graph, nodes=tuple([n for n in kept_nodes if n.outputs[0].id in read or n.outputs[0].id not in constants])
    )


def _shades(graph: Graph) -> tuple[list[int], dict[str, DeviceOp]]:
    """A shade per node, and the nodes that read no tensor by their output.

    Two nodes have one shade where they do the same to operands of equal shades: the work above them is alike, up to the
    inputs and weights, of which dtype and shape count. A shade is the place of the first node that has it.
    """
    of: dict[str, Hashable] = {t.id: (t.dtype, t.shape) for t in (*graph.inputs.values(), *graph.weights.values())}
    equality = NodeEquality()
    known: dict[Hashable, list[tuple[DeviceOp, int]]] = {}
    shades: list[int] = []
    constants: dict[str, DeviceOp] = {}
    for at, node in enumerate(graph.nodes):
        shade = at
        if isinstance(node, DeviceOp) and node.op not in UNSHARED:
            key: list[Hashable] = [node.op]
            reads = False
            for operand in node.operands:
                if isinstance(operand, str):
                    reads = True
                    key.append(of[operand])
                else:
                    key.append((operand.dtype, bits(operand.value)))
            others = known.setdefault(tuple(key), [])
            for first, theirs in others:
                if equality.equal(node, first):
                    shade = theirs
                    break
            else:
                others.append((node, at))
            if not reads:
                constants[node.outputs[0].id] = node
        shades.append(shade)
        for position, tensor in enumerate(node.outputs):
            if not isinstance(node, DeviceOp):
                of[tensor.id] = (tensor.dtype, tensor.shape)
            else:
                of[tensor.id] = (shade, position) if position else shade
    return shades, constants


class _Parts:
    """Connected nodes whose shades come equally often: what may become one function.

    Parts are the sets of a union-find forest; `_next` leads from a node towards the last one of its set.

    Attributes:
        level: Of each node: how many parts the longest path to it crosses. A call runs as a whole, so a part must not
            need what was made of its own results. Nodes join on one level only: no path leaves a part and comes back.
    """

    def __init__(self, nodes: Sequence[GraphNode], shades: Sequence[int], constants: Collection[str]) -> None:
        self.level: list[int] = []
        self._nodes = nodes
        self._maker: dict[str, int] = {}  # tensor → the place of its node; not of constants
        self._next: dict[int, int] = {}  # of what is repeated: a node of the same part, or itself
        self._outside: set[str] | None = None
        times = Counter(shades)
        marks: list[tuple[int, str | None]] = []
        for at, node in enumerate(nodes):
            mark = (times[shades[at]], node.device) if isinstance(node, DeviceOp) else (0, None)
            marks.append(mark)
            if node.outputs[0].id in constants:
                self.level.append(-1)
                continue
            read = node.operands if isinstance(node, DeviceOp) else node.inputs
            makers = {self._maker[name] for name in read if isinstance(name, str) and name in self._maker}
            level = max([self.level[each] + (marks[each] != mark) for each in makers], default=0)
            self.level.append(level)
            for tensor in node.outputs:
                self._maker[tensor.id] = at
            if mark[0] > 1:
                self._next[at] = at
                for each in makers:
                    if marks[each] == mark and self.level[each] == level:
                        self._next[self._top(each)] = self._top(at)

    def alike(self, shades: Sequence[int]) -> Iterator[list[list[int]]]:
        """The places of parts whose nodes are alike, one node of each shade, in an order in which they can run."""
        members: dict[int, list[int]] = {}
        for at in self._next:
            members.setdefault(self._top(at), []).append(at)
        parts_by_shades: dict[tuple[int, ...], list[list[int]]] = {}
        for places in members.values():
            places.sort(key=shades.__getitem__)
            key = tuple([shades[at] for at in places])
            if len(set(key)) == len(key):
                parts_by_shades.setdefault(key, []).append(places)
        yield from [each for each in parts_by_shades.values() if _pays(len(each), len(each[0]))]

    def outside(self, graph: Graph) -> set[str]:
        """The tensors that are read outside of the part that makes them."""
        if self._outside is None:
            self._outside = {root for name in graph.signatures for root in graph.roots(name)}
            tops = {at: self._top(at) for at in self._next}
            for at, node in enumerate(self._nodes):
                mine = tops.get(at)
                for name in node.operands if isinstance(node, DeviceOp) else node.inputs:
                    if isinstance(name, str) and (mine is None or tops.get(self._maker.get(name, -1)) != mine):
                        self._outside.add(name)
        return self._outside

    def _top(self, at: int) -> int:
        while (after := self._next[at]) != at:
            at = after
        return at


def _pays(times: int, nodes: int) -> bool:
    return (times - 1) * nodes > times * _CALL + _FUNCTION


def _calls(
    graph: Graph,
    alike: Sequence[Sequence[int]],
    constants: Mapping[str, DeviceOp],
    outside: Collection[str],
    tensors: Mapping[str, Tensor],
) -> list[tuple[Sequence[int], DeviceOp]]:
    """A call in the place of each part that reads as the first one does; none where that does not pay."""
    every = [[node for at in places if isinstance(node := graph.nodes[at], DeviceOp)] for places in alike]
    first = every[0]
    reads, operands_of_first, held_constants = _reads(first, constants)
    same = []
    for places, nodes in zip(alike, every, strict=True):
        others, names, _ = _reads(nodes, constants)
        if others == reads:
            same.append((places, nodes, names))
    if not _pays(len(same), len(first)):
        return []
    # One function for all parts: it gives what any of them has read from outside, even where this one has not.
    wanted = [
        (at, position)
        for at, node in enumerate(first)
        for position in range(len(node.outputs))
        if any(nodes[at].outputs[position].id in outside for _, nodes, _ in same)
    ]
    if not wanted:
        return []
    avals = {name: aval_of(tensors[name], graph.dims) for name in operands_of_first}
    body = function_of(
        graph,
        [*held_constants, *first],
        operands_of_first,
        [first[at].outputs[position].id for at, position in wanted],
        avals=avals,
    )
    equation = calling(body, _NAME).replace(source_info=first[0].equation.source_info)
    return [
        (places, DeviceOp(equation.primitive.name, names, _outputs(nodes, wanted), equation, nodes[0].device))
        for places, nodes, names in same
    ]


def _outputs(nodes: Sequence[DeviceOp], wanted: Sequence[tuple[int, int]]) -> tuple[Tensor, ...]:
    return tuple([nodes[at].outputs[position] for at, position in wanted])


def _reads(
    nodes: Sequence[DeviceOp], constants: Mapping[str, DeviceOp]
) -> tuple[list[object], tuple[str, ...], list[DeviceOp]]:
    """What each operand of a part is: the how manieth tensor given, a result of its own; the tensors; the constants."""
    results = {
        tensor.id: (at, position) for at, node in enumerate(nodes) for position, tensor in enumerate(node.outputs)
    }
    numbers: dict[str, int] = {}
    held: dict[str, DeviceOp] = {}
    reads: list[object] = []
    for node in nodes:
        for operand in node.operands:
            if not isinstance(operand, str):
                reads.append(None)
            elif operand in results:
                reads.append(results[operand])
            elif operand in constants:
                held[operand] = constants[operand]
                reads.append(None)
            else:
                reads.append(numbers.setdefault(operand, len(numbers)))
    return reads, tuple(numbers), list(held.values())
