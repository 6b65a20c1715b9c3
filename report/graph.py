"""A dataflow graph as a page: the drawing, and every node with what it reads, gives and costs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from .graph_shapes import STYLE, NodeKind, legend, line, shape
from .html import Html, TableColumn, figures, html, join, number, page, section, table
from .layers import Layout, extent, layout
from .segments import Segment, segments

LIMIT: Final = 60
"""Nodes drawn one by one; of larger graphs those of one line of code, or that repeat, are one box."""

_WIDE: Final = 900  # pixels of boxes side by side that a page has room for
_CHARACTER: Final = 6.7  # pixels of 11 px monospace
_LONGEST: Final = 30
_MOST: Final = 500  # nodes in the table
_ROLES: Final = {"inputs": "input", "outputs": "output", "updates": "next value of"}
_CELL: Final = re.compile(r".*[/\\]ipykernel_\d+[/\\]\d+\.py:")


@dataclass
class Box:
    """What is drawn as one box: its lines of text, the title first, and the lines that hovering shows."""

    kind: NodeKind
    lines: list[str]
    hover: list[str]
    many: bool = False
    share: float = 0.0
    reads: list[str] = field(default_factory=list)
    makes: list[str] = field(default_factory=list)

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in pixels."""
        return (
            max(len(line) for line in self.lines) * _CHARACTER + (34 if self.kind == "analyzer" else 26),
            15.0 * len(self.lines) + 15,
        )


def render(graph: Mapping[str, Any], title: str = "Graph", *, limit: int = LIMIT) -> str:
    """One HTML document.

    Args:
        graph: `inputs`: tensors (`id`, `name`, `type`); `weights`: `id`, `type`, `bytes`; `nodes`: `op`, `called` (a
            function's name), `kind` (host, device, stage, analyzer), `inputs`, `outputs` (`id`, `type`), `weights`,
            `assets`, `settings`, `where`, `device`, `flops`, `bytes`, `exact`, and of a stage `ops` (op → count);
            `signatures`: name → `inputs`, `outputs` (name → tensor), `updates` (weight → tensor), `checks` (`tensor`,
            `message`, `where`); `rows`: of the batch that the costs are of; `total`: `flops`, `bytes`, `exact`.
        title: Of the page.
        limit: Nodes drawn one by one at most.
    """
    nodes = graph["nodes"]
    kinds = Counter(node["kind"] for node in nodes)
    held = sum(weight["bytes"] for weight in graph["weights"])
    shown: dict[str, object] = {"nodes": len(nodes)}
    names = {"host": "host op", "device": "device op", "stage": "device stage", "analyzer": "analyzer"}
    shown |= {said + ("s" if kinds[kind] > 1 else ""): kinds[kind] for kind, said in names.items() if kinds[kind]}
    if graph["weights"]:
        shown["weights" if len(graph["weights"]) != 1 else "weight"] = len(graph["weights"])
    if held:
        shown["in weights"] = units(held, "B")
    shown[f"for {number(graph['rows'])} rows"] = units(graph["total"]["flops"], "FLOP", graph["total"]["exact"])
    shown["read and written"] = units(graph["total"]["bytes"], "B")
    note = "Hover a box for what it reads, gives and costs, and for the line of code that made it."
    if len(nodes) > limit:
        note += f" A stack of boxes stands for several of the {number(len(nodes))} nodes."
    drawn = join([figures(shown), section("Drawing", drawing(graph, limit=limit), note=note)])
    return page(title, join([drawn, _signatures(graph), section("Nodes", _table(graph))]))


def units(value: float, unit: str, exact: bool = True) -> str:
    """A number with the unit's prefix: "1.2 MB"; one that is a lower bound begins with "≥"."""
    size, prefixes = float(value), ["", "k", "M", "G", "T", "P"]
    while size >= 999.5 and len(prefixes) > 1:
        size /= 1000
        prefixes.pop(0)
    text = number(int(size)) if size == int(size) or size >= 100 else f"{size:.1f}" if size >= 10 else f"{size:.2g}"
    return f"{'' if exact else '≥ '}{text} {prefixes[0]}{unit}"


def drawing(graph: Mapping[str, Any], *, limit: int = LIMIT) -> Html:
    """The graph as one SVG with its style inside, light and dark; see `render` for the argument."""
    boxes = _boxes(graph, limit)
    makers = {name: position for position, box in enumerate(boxes) for name in box.makes}
    edges = list(
        dict.fromkeys(
            (makers[name], position)
            for position, box in enumerate(boxes)
            for name in box.reads
            if makers.get(name, position) < position
        )
    )
    sizes = [box.size for box in boxes]
    turned = [(h, w) for w, h in sizes]
    downwards = extent(sizes, edges)[0] > max(_WIDE, extent(turned, edges)[1])
    chosen = layout(turned, edges, between=34, beside=18).turned() if downwards else layout(sizes, edges)
    keys, key_width = legend([box.kind for box in boxes], any(box.many for box in boxes))
    width, height = max(chosen.width, key_width) + 16, chosen.height + 56
    parts = [_edges(chosen, downwards)]
    parts += [_box(box, position, size) for box, position, size in zip(boxes, chosen.places, sizes, strict=True)]
    return Html(
        f'<div class="scroll" tabindex="0" aria-label="drawing of the graph"><svg xmlns="http://www.w3.org/2000/svg" '
        f'class="graph" viewBox="-8 -8 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}" role="img" '
        f'aria-label="{len(graph["nodes"])} nodes in {len(boxes)} boxes"><style>{STYLE}</style>{"".join(parts)}'
        f'<g transform="translate(0 {chosen.height + 26:.1f})">{keys}</g></svg></div>'
    )


# --- boxes ---


def _boxes(graph: Mapping[str, Any], limit: int) -> list[Box]:
    types = _types(graph)
    weights = {weight["id"]: weight for weight in graph["weights"]}
    boxes = [
        Box("input", [_clip(item["name"]), item["type"]], [f"input {item['name']}: {item['type']}"], makes=[item["id"]])
        for item in graph["inputs"]
    ]
    if len(boxes) > limit:
        said = [line for box in boxes[:20] for line in box.hover]
        boxes = [
            Box("input", [f"{len(boxes)} inputs"], [*said, "…"], True, makes=[item["id"] for item in graph["inputs"]])
        ]
    nodes = graph["nodes"]
    largest = max((node["flops"] for node in nodes), default=0)
    total = graph["total"]["flops"]
    keys = [(node["kind"], node["where"] or node["op"], node["device"]) for node in nodes]
    read = Counter(name for node in nodes for name in node["inputs"])
    last = {tensor for signature in graph["signatures"].values() for tensor in _asked(signature)}
    for part in segments(keys, limit):
        inside = [nodes[index] for index in range(part.start, part.stop)]
        box = _node_box(inside[0], graph["rows"]) if len(inside) == 1 else _segment_box(inside, part)
        outputs = [tensor["id"] for node in inside for tensor in node["outputs"]]
        box.makes = [name for name in outputs if read[name] or name in last]
        box.reads = [name for node in inside for name in node["inputs"] if name not in outputs]
        taken = list(
            dict.fromkeys([name for name in box.reads if name in weights] + [w for n in inside for w in n["weights"]])
        )
        box.lines += _weights(taken, weights)
        if taken:
            box.hover.append("weights: " + _list([f"{w} {weights[w]['type']}" if w in weights else w for w in taken]))
        work = sum(node["flops"] for node in inside)
        if total and largest and work / total >= 0.01:
            box.share = work / total
            box.hover.append(f"{work / total:.0%} of all operations")
        boxes.append(box)
    return boxes + _ends(graph, types, weights)


def _types(graph: Mapping[str, Any]) -> dict[str, str]:
    """The type of every tensor, by its id."""
    types = {tensor["id"]: tensor["type"] for tensor in (*graph["inputs"], *graph["weights"])}
    return types | {tensor["id"]: tensor["type"] for node in graph["nodes"] for tensor in node["outputs"]}


def _node_box(node: Mapping[str, Any], rows: int) -> Box:
    outputs = node["outputs"]
    output_text = outputs[0]["type"] if len(outputs) == 1 else f"{len(outputs)} results" if outputs else "nothing"
    called = node["called"] or node["op"]
    constants = f" {node['settings']}" if node["kind"] == "device" and node["settings"] else ""
    lines = [_clip(called + constants), output_text, *(_clip(f"▪ {asset}") for asset in node["assets"])]
    hover = [
        f"{node['kind']}: {node['op']}" + (f" {called}" if node["called"] else "") + constants,
        "gives " + _list([f"{o['id']} {o['type']}" for o in outputs]),
    ]
    if node["inputs"]:
        hover.insert(1, "reads " + _list(node["inputs"]))
    if node["settings"] and not constants:
        hover.append(_clip(node["settings"], 200))
    if node["ops"]:
        counted = [f"{count} {op}" if count > 1 else op for op, count in node["ops"].items()]
        lines += [_clip(", ".join(counted[at : at + 2])) for at in range(0, min(len(counted), 8), 2)]
        if len(counted) > 8:
            lines.append(f"and {sum(list(node['ops'].values())[8:])} more ops")
        hover.append("ops: " + ", ".join(counted))
    cost = []
    if node["flops"]:
        cost.append(units(node["flops"], "FLOP", node["exact"] or node["kind"] == "stage"))
    cost.append(f"{units(node['bytes'], 'B')} read and written")
    hover.append(f"for {number(rows)} rows: {', '.join(cost)}")
    if node["kind"] == "stage" and node["flops"]:
        lines.append(f"{units(node['flops'] / rows, 'FLOP')} per row")
    if node["device"]:
        lines.append(f"on {node['device']}")
        hover.append(f"on {node['device']}")
    if node["where"]:
        hover.append(node["where"])
    return Box(node["kind"], lines, hover)


def _segment_box(nodes: Sequence[Mapping[str, Any]], part: Segment) -> Box:
    kinds = Counter(node["kind"] for node in nodes)
    ops = Counter(node["called"] or node["op"] for node in nodes)
    places = dict.fromkeys(_short(node["where"]) for node in nodes if node["where"])
    title = _span(list(places)) if places else f"{len(nodes)} nodes"
    counted = [f"{count} {op}" if count > 1 else op for op, count in ops.most_common()]
    lines = [_clip(title) + (f" × {part.times}" if part.times > 1 else ""), f"{len(nodes)} nodes"]
    lines += [_clip(", ".join(counted[at : at + 2])) for at in range(0, min(len(counted), 4), 2)]
    if len(counted) > 4:
        lines[-1] = _clip(lines[-1], _LONGEST - 3) + ", …"
    hover = [", ".join(f"{count} {kind}" for kind, count in kinds.items()) + " nodes", ", ".join(counted)]
    hover.append(f"{units(sum(node['flops'] for node in nodes), 'FLOP', all(node['exact'] for node in nodes))}")
    hover += list(places)[:12]
    return Box(kinds.most_common(1)[0][0], lines, hover, many=True)


def _weights(names: Sequence[str], known: Mapping[str, Mapping[str, Any]]) -> list[str]:
    if not names:
        return []
    if len(names) == 1:
        return [_clip(f"▪ {names[0]}")]
    size = sum(known[name]["bytes"] for name in names if name in known)
    return [f"▪ {len(names)} weights" + (f", {units(size, 'B')}" if size else "")]


def _asked(signature: Mapping[str, Any]) -> list[str]:
    checks = (check["tensor"] for check in signature["checks"])
    return [*signature["outputs"].values(), *signature["updates"].values(), *checks]


def _ends(graph: Mapping[str, Any], types: Mapping[str, str], weights: Mapping[str, Any]) -> list[Box]:
    """Outputs, next values and checks; one box where several signatures ask for the same by one name."""
    ends: dict[tuple[NodeKind, str, str], list[str]] = {}
    wheres: dict[str, str] = {}
    for name, signature in graph["signatures"].items():
        for key, tensor in signature["outputs"].items():
            ends.setdefault(("output", key, tensor), []).append(name)
        for key, tensor in signature["updates"].items():
            ends.setdefault(("update", key, tensor), []).append(name)
        for check in signature["checks"]:
            ends.setdefault(("check", check["message"], check["tensor"]), []).append(name)
            wheres[check["message"]] = check["where"] or ""
    boxes = []
    several = len(graph["signatures"]) > 1
    for (kind, key, tensor), names in ends.items():
        words = {"output": "output", "update": "next value of", "check": "each row must hold:"}[kind]
        lines = [_clip(f"next {key}" if kind == "update" else key)]
        if kind != "check":
            lines.append(types.get(tensor, ""))
        if tensor in weights:
            lines.append(_clip(f"▪ {tensor}"))
        hover = [f"{words} {key}", f"{tensor} {types.get(tensor, '')}", f"signature {', '.join(names)}"]
        if kind == "check" and wheres[key]:
            hover.append(wheres[key])
        boxes.append(Box(kind, lines + ([_clip(", ".join(names))] if several else []), hover, reads=[tensor]))
    return boxes


def _clip(text: str, length: int = _LONGEST) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


def _list(items: Sequence[str], most: int = 8) -> str:
    return ", ".join(items[:most]) + (f" and {len(items) - most} more" if len(items) > most else "")


def _short(where: str) -> str:
    """The place without its folder; a notebook's cells lie in files with numbers for names."""
    return _CELL.sub("cell:", where).replace("\\", "/").rsplit("/", 1)[-1]


def _span(places: Sequence[str]) -> str:
    """Give "model.py:31", "model.py:31–33", "model.py:train+2–5" or "model.py, loss.py"."""
    if len(places) == 1:
        return places[0]
    numbered = [re.fullmatch(r"(.*:(?:.*\+)?)([0-9]+)", each) for each in places]
    numbers = [int(match[2]) for match in numbered if match]
    if len(numbers) == len(places) and len({match[1] for match in numbered if match}) == 1:
        return f"{places[0].rstrip('0123456789')}{min(numbers)}–{max(numbers)}"
    return ", ".join(dict.fromkeys(each.rpartition(":")[0] for each in places))


# --- drawing ---


def _box(box: Box, position: tuple[float, float], size: tuple[float, float]) -> str:
    (x, y), (width, height) = position, size
    first = ' class="t"'
    texts = "".join(
        f'<text x="{width / 2:.1f}" y="{17 + 15 * row}"{"" if row else first}>{html(line)}</text>'
        for row, line in enumerate(box.lines)
    )
    bar = ""
    if box.share:
        bar = f'<rect class="share" x="8" y="{height - 5:.1f}" width="{(width - 16) * box.share:.1f}" height="2.5"/>'
    return (
        f'<g class="{box.kind}" transform="translate({x:.1f} {y:.1f})"><title>{html(chr(10).join(box.hover))}</title>'
        f"{shape(box.kind, width, height, box.many)}{bar}{texts}</g>"
    )


def _edges(drawn: Layout, turned: bool) -> str:
    pieces = [line(points, turned) for points in drawn.lines.values()]
    lines, heads = (dict.fromkeys(column) for column in (zip(*pieces, strict=True) if pieces else ((), ())))
    return f'<path class="line" d="{"".join(lines)}"/><path class="head" d="{"".join(heads)}"/>'


# --- tables ---


def _signatures(graph: Mapping[str, Any]) -> Html:
    types = _types(graph)
    rows: list[Sequence[object]] = []
    for name, signature in graph["signatures"].items():
        for role in ("inputs", "outputs", "updates"):
            rows += [(name, _ROLES[role], key, types.get(of), of) for key, of in signature[role].items()]
        rows += [(name, "check", check["message"], None, check["tensor"]) for check in signature["checks"]]
    note = "A type is the numbers' kind, ? where values may be missing, and the shape, b being the rows of a batch."
    return section("Signatures", table(["Signature", "", "Name", "Type", "Tensor"], rows), note=note)


def _table(graph: Mapping[str, Any]) -> Html:
    heads: list[TableColumn | str] = [
        "Op",
        "Where it runs",
        "Reads",
        "Gives",
        TableColumn("Operations", numeric=True),
        TableColumn("Bytes", numeric=True),
        "Line",
    ]
    rows = [
        (
            node["op"],
            node["kind"] + (f" on {node['device']}" if node["device"] else ""),
            _list([*node["inputs"], *node["assets"]], 4),
            _list([f"{out['id']} {out['type']}" for out in node["outputs"]], 4),
            node["flops"] or None,
            node["bytes"],
            _short(node["where"]) if node["where"] else None,
        )
        for node in graph["nodes"][:_MOST]
    ]
    more = len(graph["nodes"]) - _MOST
    said = f"{number(more)} more nodes are not listed." if more > 0 else ""
    return join([table(heads, rows), Html(f'<p class="note">{html(said)}</p>')])
