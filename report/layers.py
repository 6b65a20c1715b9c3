"""A layered drawing of a directed graph: where each node stands and how the lines run, in pixels.

Sugiyama's method (1981): layers by the longest path, lines bent only at layers, order within a layer by barycentres,
places within a layer by least squares that keep the order (pool adjacent violators).
"""

from __future__ import annotations

import math
from bisect import bisect_right, insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_SWEEPS = 12
"""Sweeps over the layers; on graphs of a few hundred nodes later ones change nothing that is seen."""
_CHANNEL = 10.0  # pixels across that a passing line takes


@dataclass(frozen=True)
class Layout:
    """A drawing, its layers side by side from left to right.

    Attributes:
        places: Left and top of each node.
        lines: For each (source, target): points of straight pieces, two by two, with a curve from each to the next.
        width: Of all.
        height: Of all.
    """

    places: list[tuple[float, float]]
    lines: dict[tuple[int, int], list[tuple[float, float]]]
    width: float
    height: float

    def turned(self) -> Layout:
        """The same from top to bottom: of nodes whose sizes were given turned."""
        lines = {ends: [(y, x) for x, y in points] for ends, points in self.lines.items()}
        return Layout([(y, x) for x, y in self.places], lines, self.height, self.width)


def layout(
    sizes: Sequence[tuple[float, float]], edges: Sequence[tuple[int, int]], *, between: float = 46, beside: float = 14
) -> Layout:
    """Place nodes so that every edge leads to the right; parts that nothing ties together stand one below the other.

    Args:
        sizes: Width and height of each node.
        edges: (source, target), source before target: the nodes stand in an order in which they can run.
        between: Pixels from one layer to the next.
        beside: Pixels from one node to the next in its layer.
    """
    places: list[tuple[float, float]] = [(0.0, 0.0)] * len(sizes)
    lines: dict[tuple[int, int], list[tuple[float, float]]] = {}
    width, y = 0.0, 0.0
    for part in _parts(len(sizes), edges):
        number = {item: index for index, item in enumerate(part)}
        inside = [(number[a], number[b]) for a, b in edges if a in number]
        drawn = _whole([sizes[item] for item in part], inside, between, beside)
        for item, (left, top) in zip(part, drawn.places, strict=True):
            places[item] = (left, top + y)
        for (a, b), points in drawn.lines.items():
            lines[part[a], part[b]] = [(px, py + y) for px, py in points]
        width, y = max(width, drawn.width), y + drawn.height + beside
    return Layout(places, lines, width, max(y - beside, 0.0))


def extent(sizes: Sequence[tuple[float, float]], edges: Sequence[tuple[int, int]]) -> tuple[float, float]:
    """About how wide and how tall a layout would be, without making it: the layers' widths, and the tallest layer."""
    thick: dict[int, float] = {}
    deep: dict[int, float] = {}
    for at, (width, height) in zip(_layers(len(sizes), edges), sizes, strict=True):
        thick[at] = max(thick.get(at, 0.0), width)
        deep[at] = deep.get(at, 0.0) + height
    return sum(thick.values()), max(deep.values(), default=0.0)


def _parts(count: int, edges: Sequence[tuple[int, int]]) -> list[list[int]]:
    """The connected components, each as ascending nodes, in the order of their first nodes: by union-find."""
    leader = list(range(count))

    def first(item: int) -> int:
        while leader[item] != item:
            leader[item] = item = leader[leader[item]]  # halves the path for the next look-up
        return item

    for a, b in edges:
        a, b = sorted((first(a), first(b)))  # the smaller leads, so that a component is named by its first node
        leader[b] = a
    parts: dict[int, list[int]] = {}
    for item in range(count):
        parts.setdefault(first(item), []).append(item)
    return list(parts.values())


def _whole(
    sizes: Sequence[tuple[float, float]], edges: Sequence[tuple[int, int]], between: float, beside: float
) -> Layout:
    """The layout of one connected component."""
    count = len(sizes)
    layer = _layers(count, edges)
    # A line that passes a layer gets an item there, so that nodes make room for it. All lines from one node share it:
    # they run together and part only at the last layer before their targets.
    whose = list(range(count))
    links: list[tuple[int, int]] = []
    passing: dict[tuple[int, int], int] = {}
    for source, target in dict.fromkeys(edges):
        here = source
        for at in range(layer[source] + 1, layer[target]):
            if (source, at) not in passing:
                passing[source, at] = len(whose)
                whose.append(source)
                layer.append(at)
                links.append((here, passing[source, at]))
            here = passing[source, at]
        links.append((here, target))
    above: list[list[int]] = [[] for _ in whose]
    below: list[list[int]] = [[] for _ in whose]
    for a, b in links:
        below[a].append(b)
        above[b].append(a)
    rows: list[list[int]] = [[] for _ in range(max(layer, default=-1) + 1)]
    for item, at in enumerate(layer):
        rows[at].append(item)
    rows = _ordered(rows, above, below)
    deep = [sizes[item][1] if item < count else _CHANNEL for item in range(len(whose))]
    middle = _across(rows, above, below, deep, count, beside)
    chains: dict[int, list[int]] = {}
    for (source, _), item in sorted(passing.items()):
        chains.setdefault(source, []).append(item)
    _straighten(rows, chains.values(), middle, deep, count, beside)
    left, thick, x = [], [], 0.0
    for row in rows:
        left.append(x)
        thick.append(max((sizes[item][0] for item in row if item < count), default=0.0))
        x += thick[-1] + between
    places = [
        (left[layer[item]] + (thick[layer[item]] - sizes[item][0]) / 2, middle[item] - sizes[item][1] / 2)
        for item in range(count)
    ]
    ports = _ports(sizes, [(a, b, passing.get((a, layer[b] - 1), a)) for a, b in dict.fromkeys(edges)], middle)
    lines = {}
    for source, target in dict.fromkeys(edges):
        end = left[layer[source]] + thick[layer[source]]
        points = [(places[source][0] + sizes[source][0], middle[source]), (end, middle[source])]
        for at in range(layer[source] + 1, layer[target]):
            y = middle[passing[source, at]]
            points += [(left[at], y), (left[at] + thick[at], y)]
        points += [(left[layer[target]], ports[source, target]), (places[target][0], ports[source, target])]
        lines[source, target] = points
    tall = max((middle[item] + deep[item] / 2 for item in range(len(whose))), default=0.0)
    return Layout(places, lines, max(x - between, 0.0), tall)


def _layers(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """The longest path to each node; then what has more lines out than in moves to where it is read."""
    after: list[list[int]] = [[] for _ in range(count)]
    before = [0] * count
    layer = [0] * count
    for source, target in edges:
        after[source].append(target)
        before[target] += 1
    for source in range(count):
        for target in after[source]:
            layer[target] = max(layer[target], layer[source] + 1)
    # A node with more lines out than in, such as an input, stands just before the first that reads it: its lines are
    # shorter. From the last node back: those it moves towards have moved already.
    for source in reversed(range(count)):
        if len(after[source]) > before[source]:
            layer[source] = min(layer[target] for target in after[source]) - 1
    return layer


def _ordered(rows: list[list[int]], above: list[list[int]], below: list[list[int]]) -> list[list[int]]:
    """The order in each layer with the fewest crossings that barycentre sweeps found."""
    position = {item: float(at) for row in rows for at, item in enumerate(row)}
    best, fewest = [list(row) for row in rows], _crossings(rows, below, position)
    for sweep in range(_SWEEPS):
        near, order = (above, rows) if sweep % 2 == 0 else (below, rows[::-1])
        for row in order:
            weight = {
                item: sum(position[other] for other in near[item]) / len(near[item]) if near[item] else position[item]
                for item in row
            }
            row.sort(key=weight.__getitem__)
            position.update((item, float(at)) for at, item in enumerate(row))
        crossings = _crossings(rows, below, position)
        if crossings < fewest:
            best, fewest = [list(row) for row in rows], crossings
        if not fewest:
            break
    return best


def _crossings(rows: list[list[int]], below: list[list[int]], position: dict[int, float]) -> int:
    """How many pairs of lines between neighbouring layers cross: pairs whose ends stand in the other order."""
    total = 0
    for row in rows:
        seen: list[float] = []
        for item in row:
            ends = [position[other] for other in below[item]]
            total += sum(len(seen) - bisect_right(seen, end) for end in ends)
            for end in ends:
                insort(seen, end)
    return total


def _across(
    rows: list[list[int]], above: list[list[int]], below: list[list[int]], deep: list[float], count: int, beside: float
) -> list[float]:
    """The middle of each item across its layer: near what it is tied to, in order, apart."""
    middle = [0.0] * len(deep)
    offsets = []
    for row in rows:
        at, offset = 0.0, []
        for here, item in enumerate(row):
            if here:
                last = row[here - 1]
                gap = beside if last < count or item < count else 0.0
                at += (deep[last] + deep[item]) / 2 + gap
            offset.append(at)
        offsets.append(offset)
        for item, here_at in zip(row, offset, strict=True):
            middle[item] = here_at - at / 2

    def tied(near: Sequence[Sequence[int]]) -> list[tuple[list[tuple[int, float]], float]]:
        """For each item what pulls it, how much, and how much that is in all: a passing line shall run straight."""
        pulls = [
            [(o, 8.0 if o >= count and item >= count else 1.0) for o in others] for item, others in enumerate(near)
        ]
        return [(pull, sum(weight for _, weight in pull)) for pull in pulls]

    both = tied([up + down for up, down in zip(above, below, strict=True)])
    sides = tied(above), tied(below)
    for sweep in range(2 * _SWEEPS + 4):
        near = both if sweep >= 2 * _SWEEPS else sides[sweep % 2]
        for layer in reversed(range(len(rows))) if sweep % 2 else range(len(rows)):
            wanted, weights = [], []
            for item, shift in zip(rows[layer], offsets[layer], strict=True):
                pull, total = near[item]
                mean = sum([weight * middle[other] for other, weight in pull]) / total if pull else middle[item]
                wanted.append(mean - shift)
                weights.append(total or 0.1)
            for item, shift, base in zip(rows[layer], offsets[layer], _rising(wanted, weights), strict=True):
                middle[item] = base + shift
    top = min((middle[item] - deep[item] / 2 for item in range(len(deep))), default=0.0)
    return [each - top for each in middle]


def _straighten(
    rows: list[list[int]],
    chains: Iterable[list[int]],
    middle: list[float],
    deep: list[float],
    count: int,
    beside: float,
) -> None:
    """Move passing lines within the room that their neighbours leave, so that they bend seldom."""
    beside_of = {item: (row, at) for row in rows for at, item in enumerate(row)}

    def room(item: int) -> tuple[float, float]:
        row, at = beside_of[item]
        low, high = -math.inf, math.inf
        for other, sign in ((row[at - 1], 1) if at else (-1, 1), (row[at + 1], -1) if at + 1 < len(row) else (-1, -1)):
            if other >= 0:
                gap = (deep[other] + deep[item]) / 2 + (beside if other < count else 0.0)
                low, high = (middle[other] + gap, high) if sign == 1 else (low, middle[other] - gap)
        return low, high

    for chain in chains:
        start = 0
        while start < len(chain):
            low, high = room(chain[start])
            stop = start + 1
            while stop < len(chain):
                near = room(chain[stop])
                if max(low, near[0]) > min(high, near[1]):
                    break
                low, high, stop = max(low, near[0]), min(high, near[1]), stop + 1
            run = chain[start:stop]
            wanted = sum(middle[item] for item in run) / len(run)
            for item in run:
                middle[item] = max(low, min(high, wanted))
            start = stop


def _ports(
    sizes: Sequence[tuple[float, float]], ends: Sequence[tuple[int, int, int]], middle: list[float]
) -> dict[tuple[int, int], float]:
    """Where each line ends at its target, beside each other in the order in which they come."""
    into: dict[int, list[tuple[float, int]]] = {}
    for source, target, last in ends:
        into.setdefault(target, []).append((middle[last], source))
    ports = {}
    for target, coming in into.items():
        step = min(9.0, (sizes[target][1] - 16) / max(len(coming) - 1, 1))
        for slot, (_, source) in enumerate(sorted(coming)):
            ports[source, target] = middle[target] + (slot - (len(coming) - 1) / 2) * step
    return ports


def _rising(wanted: list[float], weights: list[float]) -> list[float]:
    """The values nearest to those wanted, by weighted squares, that never fall: pool adjacent violators."""
    pools: list[tuple[float, float, int]] = []
    for value, weight in zip(wanted, weights, strict=True):
        size = 1
        while pools and pools[-1][0] > value:
            other, more, many = pools.pop()
            value = (value * weight + other * more) / (weight + more)
            weight, size = weight + more, size + many
        pools.append((value, weight, size))
    return [value for value, _, size in pools for _ in range(size)]
