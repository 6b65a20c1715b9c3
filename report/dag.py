"""A pipeline as a drawing: nodes and what flows between them, loops as boxes around theirs, branches dashed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Any, Final

from .graph_shapes import STYLE, corners, line
from .html import Html, Tone, html
from .layers import Layout, layout

_WIDE: Final = 900  # pixels of boxes side by side that a page has room for
_CHARACTER: Final = 6.7  # pixels of 11 px monospace
_LONGEST: Final = 34
_PAD, _HEAD = 12.0, 24.0  # pixels between a loop's border and what is in it, and above it
_EXIT: Final = "on exit"

_STYLE: Final = (
    ".dag .node .e{stroke:var(--s);fill:var(--p)}.dag .if>.e{stroke-dasharray:5 3}"
    ".dag .group>.e{fill:none;stroke:var(--l)}.dag .group>text{text-anchor:start}"
    ".dag .good .e{stroke:var(--g);fill:var(--gf)}.dag .bad .e{stroke:var(--r);fill:var(--rf);stroke-width:2}"
    ".dag .warn .e{stroke:var(--o);fill:var(--of)}.dag .info .e{stroke:var(--b);fill:var(--bf)}"
    ".dag .plain .e{stroke:var(--l)}.dag .wait{stroke-dasharray:2 4}"
)


@dataclass(frozen=True)
class Drawing:
    """An SVG in an element that scrolls, and its size in pixels."""

    markup: Html
    width: float
    height: float


@dataclass
class _Part:
    """What is drawn of a scope: its own pieces of SVG, and the size they take."""

    pieces: list[str] = field(default_factory=list)
    width: float = 0.0
    height: float = 0.0


def drawing(dag: Mapping[str, Any], states: Mapping[str, tuple[Tone, str]] | None = None) -> Drawing:
    """The pipeline as one SVG with its style inside, light and dark.

    Args:
        dag: `nodes`, in an order in which they can run: `id`, `component`, `loop` ("" for none), `exit`, `gate`,
            `conditions` (as texts), `history` (what is chosen from earlier runs, as texts), `details` (lines);
            `loops`: `id`, `within` ("" for none), `title`, `conditions`; `edges`: (node, node or "loop:" and a loop's
            id, whether something flows or one only waits for the other).
        states: Of the nodes of a run: how each is coloured, and what is said of it.
    """
    states = states or {}
    across = _arrange(dag, states, "", down=False)
    below = _arrange(dag, states, "", down=True) if across.width > _WIDE else across
    part = min(across, below, key=lambda part: part.width)
    keys = _keys(dag)
    width = max([part.width, *(_CHARACTER * len(key) for key in keys)]) + 16
    height = part.height + 15 * len(keys) + 28
    said = "".join(
        f'<text class="k" y="{part.height + 24 + 15 * row:.1f}">{key}</text>' for row, key in enumerate(keys)
    )
    markup = (
        f'<div class="scroll" style="overflow-x:auto" tabindex="0" aria-label="drawing of the pipeline">'
        f'<svg xmlns="http://www.w3.org/2000/svg" class="graph dag" viewBox="-8 -8 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" role="img" aria-label="{len(dag["nodes"])} nodes">'
        f"<style>{STYLE}{_STYLE}</style>{''.join(part.pieces)}{said}</svg></div>"
    )
    return Drawing(Html(markup), width, height)


def _keys(dag: Mapping[str, Any]) -> list[str]:
    """What the looks mean, of those that are there."""
    there = {
        "dashed border: runs only if what it says holds": any(x["conditions"] for x in (*dag["nodes"], *dag["loops"])),
        "cut corners: a gate, whose veto holds back what follows": any(node["gate"] for node in dag["nodes"]),
        "dotted line: waits for it, and takes nothing from it": any(not flows for *_, flows in dag["edges"]),
    }
    return [key for key, shown in there.items() if shown]


def _chains(dag: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """For each node and "loop:" id: the boxes it is in, the outermost first, and itself."""
    within = {f"loop:{loop['id']}": f"loop:{loop['within']}" if loop["within"] else "" for loop in dag["loops"]}
    chains: dict[str, tuple[str, ...]] = {}
    for name in within:
        chain, at = [name], within[name]
        while at:
            chain.insert(0, at)
            at = within[at]
        chains[name] = tuple(chain)
    for node in dag["nodes"]:
        outer = (_EXIT,) if node["exit"] else chains[f"loop:{node['loop']}"] if node["loop"] else ()
        chains[node["id"]] = (*outer, node["id"])
    return chains


def _arrange(dag: Mapping[str, Any], states: Mapping[str, tuple[Tone, str]], scope: str, *, down: bool) -> _Part:
    """Draw what is directly in a scope (a "loop:" id, the exit, or all): its nodes, and inner loops as boxes."""
    chains = _chains(dag)
    depth = len(chains[scope]) if scope in chains else 1 if scope else 0
    prefix = chains.get(scope, (scope,) if scope else ())
    nodes = {node["id"]: node for node in dag["nodes"]}
    loops = {f"loop:{loop['id']}": loop for loop in dag["loops"]}
    items = list(dict.fromkeys(c[depth] for c in chains.values() if len(c) > depth and c[:depth] == prefix))
    links: dict[tuple[str, str], bool] = {}
    for source, target, flows in dag["edges"]:
        source_chain, target_chain = chains[source], chains[target]
        if (
            min(len(source_chain), len(target_chain)) > depth
            and source_chain[:depth] == target_chain[:depth] == prefix
            and source_chain[depth] != target_chain[depth]
        ):
            links[source_chain[depth], target_chain[depth]] = (
                links.get((source_chain[depth], target_chain[depth]), False) or flows
            )
    items = _ordered(items, list(links), [node["id"] for node in dag["nodes"]], chains)
    position = {name: at for at, name in enumerate(items)}
    drawn = [
        _node(nodes[name], states.get(name))
        if name in nodes
        else _group(loops.get(name), _arrange(dag, states, name, down=down))
        for name in items
    ]
    sizes = [(part.width, part.height) for part in drawn]
    edges = [(position[a], position[b]) for a, b in links if position[a] < position[b]]
    arranged = (
        layout([(h, w) for w, h in sizes], edges, between=34, beside=18).turned() if down else layout(sizes, edges)
    )
    pieces = [_lines(arranged, {(position[a], position[b]): flows for (a, b), flows in links.items()}, down)]
    for (x, y), part in zip(arranged.places, drawn, strict=True):
        pieces.append(f'<g transform="translate({x:.1f} {y:.1f})">{"".join(part.pieces)}</g>')
    return _Part(pieces, arranged.width, arranged.height)


def _ordered(
    items: Sequence[str], links: Sequence[tuple[str, str]], order: Sequence[str], chains: Mapping[str, tuple[str, ...]]
) -> list[str]:
    """The boxes of a scope in an order in which they can run: a loop is one, whose nodes may lie among others'."""
    first = {name: at for at, node in reversed(list(enumerate(order))) for name in chains[node]}
    waits = {name: sum(b == name for _, b in links) for name in items}
    ready = [(first.get(name, len(order)), name) for name in items if not waits[name]]
    heapify(ready)
    ordered = []
    while ready:
        _, name = heappop(ready)
        ordered.append(name)
        for source, target in links:
            if source == name:
                waits[target] -= 1
                if not waits[target]:
                    heappush(ready, (first.get(target, len(order)), target))
    return ordered


def _node(node: Mapping[str, Any], state: tuple[Tone, str] | None) -> _Part:
    lines = [_clip(node["id"])]
    if node["component"] not in (node["id"], node["id"].rsplit(".", 1)[-1]):
        lines.append(_clip(node["component"]))
    lines += [_clip(f"if {condition}") for condition in node["conditions"][:2]]
    lines += [_clip(f"← {chosen}") for chosen in node["history"][:2]]
    if state:
        lines.append(_clip(state[1]))
    hover = [f"{node['id']}: {node['component']}", *(f"if {c}" for c in node["conditions"]), *node["details"]]
    hover += [f"from earlier runs: {chosen}" for chosen in node["history"]] + ([state[1]] if state else [])
    width, height = max(map(len, lines)) * _CHARACTER + 26, 15.0 * len(lines) + 15
    shape = f'<rect class="e" width="{width:.1f}" height="{height:.1f}" rx="6"/>'
    if node["gate"]:
        shape = f'<polygon class="e" points="{corners(width, height)}"/>'
    looks = " ".join(["node", *(["if"] if node["conditions"] else []), *([state[0]] if state else [])])
    texts = "".join(
        f'<text x="{width / 2:.1f}" y="{17 + 15 * row}"{"" if row else _TITLE}>{html(text)}</text>'
        for row, text in enumerate(lines)
    )
    piece = f'<g class="{looks}"><title>{html(chr(10).join(hover))}</title>{shape}{texts}</g>'
    return _Part([piece], width, height)


_TITLE: Final = ' class="t"'


def _group(loop: Mapping[str, Any] | None, inner: _Part) -> _Part:
    """A box around what is in a loop; around what runs on exit where it is None."""
    title = _EXIT if loop is None else loop["title"]
    conditions = loop["conditions"] if loop else []
    lines = [_clip(title, 60), *(_clip(f"if {condition}", 60) for condition in conditions[:2])]
    head = _HEAD + 15 * (len(lines) - 1)
    width = max(inner.width, max(map(len, lines)) * _CHARACTER) + 2 * _PAD
    height = inner.height + head + _PAD
    texts = "".join(
        f'<text x="{_PAD}" y="{16 + 15 * row}"{"" if row else _TITLE}>{html(text)}</text>'
        for row, text in enumerate(lines)
    )
    piece = (
        f'<g class="group{" if" if conditions else ""}">'
        f'<rect class="e" width="{width:.1f}" height="{height:.1f}" rx="10"/>{texts}</g>'
        f'<g transform="translate({_PAD} {head})">{"".join(inner.pieces)}</g>'
    )
    return _Part([piece], width, height)


def _lines(arranged: Layout, flows: Mapping[tuple[int, int], bool], down: bool) -> str:
    pieces = []
    for kind in (True, False):
        drawn = [line(points, down) for ends, points in arranged.lines.items() if flows[ends] is kind]
        if drawn:
            path = "".join(dict.fromkeys(path for path, _ in drawn))
            head = "".join(dict.fromkeys(head for _, head in drawn))
            pieces.append(f'<path class="line{"" if kind else " wait"}" d="{path}"/><path class="head" d="{head}"/>')
    return "".join(pieces)


def _clip(text: str, length: int = _LONGEST) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"
