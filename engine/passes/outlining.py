"""Parts that a graph repeats on other tensors, such as one scaling of several columns, as calls of one function."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from ..graphs.graph import Graph
from ..graphs.nodes import DeviceOp, GraphNode, Tensor
from ..tracing.equations import aval_of, calling, function_of
from .structural import UNSHARED, Settings, bits

_LEAST: Final = 16  # nodes of a graph that is looked at
_CALL: Final = 2  # nodes that cost as much as a call to trace and lower
_FUNCTION: Final = 6  # as much as a function
_OTHERS: Final = 0.4  # as a share of the nodes, those that repeat no other
_NAME: Final = "repeated"


def outline(graph: Graph) -> Graph:
    """With parts that are alike but for what they read as one function, where calls of it cost less than they do.

    For programs as they are written: other passes, and what tells which outputs need which inputs, look into no calls.
    XLA puts the bodies in their place again.
    """
    nodes = graph.nodes
    if len(nodes) < _LEAST or not all(node.outputs for node in nodes):
        return graph
    shades, constants = _shades(graph)
    if len(set(shades)) > len(shades) * _OTHERS:
        return graph  # to look costs what there is to save
    if any(isinstance(node, DeviceOp) and node.equation.effects for node in nodes):
        return graph  # what has effects keeps its order
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
    made = [calls.get(at, nodes[at]) for at in kept]
    read = {root for name in graph.signatures for root in graph.roots(name)}
    read.update(name for node in made for name in node.inputs if name is not None)
    return replace(graph, nodes=tuple([n for n in made if n.outputs[0].id in read or n.outputs[0].id not in constants]))


def _shades(graph: Graph) -> tuple[list[int], dict[str, DeviceOp]]:
    """A number per node, equal where they do the same to what is alike; what reads no tensor, by what it makes."""
    of: dict[str, Hashable] = {t.id: (t.dtype, t.shape) for t in (*graph.inputs.values(), *graph.weights.values())}
    settings = Settings()
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
                if settings.equal(node, first):
                    shade = theirs
                    break
            else:
                others.append((node, at))
            if not reads:
                constants[node.outputs[0].id] = node
        shades.append(shade)
        for place, tensor in enumerate(node.outputs):
            if not isinstance(node, DeviceOp):
                of[tensor.id] = (tensor.dtype, tensor.shape)
            else:
                of[tensor.id] = (shade, place) if place else shade
    return shades, constants


class _Parts:
    """Nodes that hang together and come equally often.

    Attributes:
        level: Of each node, counted up wherever a part ends, so that no path leaves a part and comes back to it.
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
            made = {self._maker[name] for name in read if isinstance(name, str) and name in self._maker}
            level = max([self.level[each] + (marks[each] != mark) for each in made], default=0)
            self.level.append(level)
            for tensor in node.outputs:
                self._maker[tensor.id] = at
            if mark[0] > 1:
                self._next[at] = at
                for each in made:
                    if marks[each] == mark and self.level[each] == level:
                        self._next[self._top(each)] = self._top(at)

    def alike(self, shades: Sequence[int]) -> Iterator[list[list[int]]]:
        """The places of parts whose nodes are alike, one node of each shade, in an order in which they can run."""
        members: dict[int, list[int]] = {}
        for at in self._next:
            members.setdefault(self._top(at), []).append(at)
        found: dict[tuple[int, ...], list[list[int]]] = {}
        for places in members.values():
            places.sort(key=shades.__getitem__)
            key = tuple([shades[at] for at in places])
            if len(set(key)) == len(key):
                found.setdefault(key, []).append(places)
        yield from [each for each in found.values() if _pays(len(each), len(each[0]))]

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
    reads, given, held = _reads(first, constants)
    same = []
    for places, nodes in zip(alike, every, strict=True):
        others, names, _ = _reads(nodes, constants)
        if others == reads:
            same.append((places, nodes, names))
    if not _pays(len(same), len(first)):
        return []
    wanted = [
        (at, place)
        for at, node in enumerate(first)
        for place in range(len(node.outputs))
        if any(nodes[at].outputs[place].id in outside for _, nodes, _ in same)
    ]
    if not wanted:
        return []
    avals = {name: aval_of(tensors[name], graph.dims) for name in given}
    body = function_of(
        graph, [*held, *first], given, [first[at].outputs[place].id for at, place in wanted], avals=avals
    )
    equation = calling(body, _NAME).replace(source_info=first[0].equation.source_info)
    return [
        (places, DeviceOp(equation.primitive.name, names, _made(nodes, wanted), equation, nodes[0].device))
        for places, nodes, names in same
    ]


def _made(nodes: Sequence[DeviceOp], wanted: Sequence[tuple[int, int]]) -> tuple[Tensor, ...]:
    return tuple([nodes[at].outputs[place] for at, place in wanted])


def _reads(
    nodes: Sequence[DeviceOp], constants: Mapping[str, DeviceOp]
) -> tuple[list[object], tuple[str, ...], list[DeviceOp]]:
    """What each operand of a part is: the how manieth tensor given, a result of its own; the tensors; the constants."""
    own = {tensor.id: (at, place) for at, node in enumerate(nodes) for place, tensor in enumerate(node.outputs)}
    given: dict[str, int] = {}
    held: dict[str, DeviceOp] = {}
    found: list[object] = []
    for node in nodes:
        for operand in node.operands:
            if not isinstance(operand, str):
                found.append(None)
            elif operand in own:
                found.append(own[operand])
            elif operand in constants:
                held[operand] = constants[operand]
                found.append(None)
            else:
                found.append(given.setdefault(operand, len(given)))
    return found, tuple(given), list(held.values())
