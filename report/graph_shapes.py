"""The shapes of a graph's drawing: one for each kind of node, so that they differ without colours too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

NodeKind = Literal["input", "host", "analyzer", "device", "stage", "output", "update", "check"]

NAMES: Final[dict[NodeKind, str]] = {
    "input": "input",
    "host": "host op",
    "analyzer": "analyzer",
    "device": "device op",
    "stage": "device stage",
    "output": "output",
    "update": "next value of a weight",
    "check": "check of each row",
}

STYLE: Final = (
    ".graph{--p:#fff;--f:#1c2430;--s:#667085;--l:#98a2b3;--b:#3b6fd4;--bf:#eef3fd;--o:#b4610a;--of:#fdf3e7;--v:#8a45bd;"
    "--vf:#f6effb;--g:#1a7f4b;--gf:#eaf6ef;--r:#c0362c;--rf:#fcefee;font:11px ui-monospace,SFMono-Regular,Menlo,"
    "Consolas,monospace}"
    "@media(prefers-color-scheme:dark){.graph{--p:#12161c;--f:#e6e9ee;--s:#98a2b3;--l:#5d6878;--b:#7ea6f4;--bf:#18233a;"
    "--o:#f0b35a;--of:#2b2216;--v:#c99bf0;--vf:#261c30;--g:#4cc38a;--gf:#14281f;--r:#ff8a80;--rf:#301b1b}}"
    ".graph text{text-anchor:middle;font-size:11px;fill:var(--s)}.graph text.t{fill:var(--f);font-weight:600}"
    ".graph .k{text-anchor:start}"
    ".graph .line{fill:none;stroke:var(--l);stroke-width:1.2}.graph .head{fill:var(--l)}"
    ".graph .e{stroke-width:1.4;fill:var(--p);stroke:var(--s)}.graph .m{fill:var(--s);stroke:none}"
    ".graph .device .e,.graph .stage .e{stroke:var(--b);fill:var(--bf)}"
    ".graph .host .e{stroke:var(--o);fill:var(--of)}.graph .host .m{fill:var(--o)}"
    ".graph .analyzer .e{stroke:var(--v);fill:var(--vf)}"
    ".graph .output .e{stroke:var(--g);fill:var(--gf)}.graph .update .e{stroke:var(--g);fill:var(--gf);"
    "stroke-dasharray:4 3}"
    ".graph .check .e{stroke:var(--r);fill:var(--rf)}"
    ".graph .share{fill:var(--b)}.graph .host .share{fill:var(--o)}"
    ".graph g:hover>.e{stroke-width:2.4}"
)


def shape(kind: NodeKind, width: float, height: float, many: bool = False) -> str:
    """The outline of a node in SVG, from (0, 0); `many` draws a stack."""
    behind = ""
    if many:
        behind = "".join(_outline(kind, width, height, shift) for shift in (6.0, 3.0))
    inner = ""
    if kind == "stage":
        inner = f'<rect class="e" x="3.5" y="3.5" width="{width - 7:.1f}" height="{height - 7:.1f}" rx="4"/>'
    elif kind == "host":
        inner = f'<rect class="m" width="5" height="{height:.1f}"/>'
    return behind + _outline(kind, width, height, 0.0) + inner


def _outline(kind: NodeKind, width: float, height: float, shift: float) -> str:
    w, h = width + shift, height + shift
    if kind in ("input", "host", "device", "stage"):
        radius = {"input": height / 2, "host": 0.0, "device": 6.0, "stage": 8.0}[kind]
        rest = f' rx="{radius:.1f}"' if radius else ""
        return f'<rect class="e" x="{shift}" y="{shift}" width="{width:.1f}" height="{height:.1f}"{rest}/>'
    cut = min(9.0, height * 0.3) if kind == "check" else 9.0
    corners = {
        "analyzer": [(0, h / 2), (cut, 0), (w - cut, 0), (w, h / 2), (w - cut, h), (cut, h)],
        "check": [(0, cut), (cut, 0), (w - cut, 0), (w, cut), (w, h - cut), (w - cut, h), (cut, h), (0, h - cut)],
    }.get(kind, [(0, 0), (w - cut, 0), (w, h / 2), (w - cut, h), (0, h)])
    points = " ".join(
        f"{x + (shift if x < w / 2 else 0):.1f},{y + (shift if y < h / 2 else 0):.1f}" for x, y in corners
    )
    return f'<polygon class="e" points="{points}"/>'


def corners(width: float, height: float) -> str:
    """A box with its corners cut, as the points of a polygon."""
    cut, w, h = min(9.0, height * 0.3), width, height
    points = [(0, cut), (cut, 0), (w - cut, 0), (w, cut), (w, h - cut), (w - cut, h), (cut, h), (0, h - cut)]
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def line(points: Sequence[tuple[float, float]], downwards: bool) -> tuple[str, str]:
    """The path of a layout's line, and that of the arrow at its end."""
    path = f"M{points[0][0]:.1f} {points[0][1]:.1f}"
    for at in range(1, len(points)):
        (x0, y0), (x1, y1) = points[at - 1], points[at]
        if at % 2:
            path += f"L{x1:.1f} {y1:.1f}"
        elif downwards:
            path += f"C{x0:.1f} {(y0 + y1) / 2:.1f} {x1:.1f} {(y0 + y1) / 2:.1f} {x1:.1f} {y1:.1f}"
        else:
            path += f"C{(x0 + x1) / 2:.1f} {y0:.1f} {(x0 + x1) / 2:.1f} {y1:.1f} {x1:.1f} {y1:.1f}"
    x, y = points[-1]
    return path, f"M{x:.1f} {y:.1f}" + ("l-4 -6h8Z" if downwards else "l-6 -4v8Z")


def legend(kinds: Sequence[NodeKind], stacks: bool) -> tuple[str, float]:
    """What the shapes mean, in a row, and how wide it is."""
    parts, x = [], 0.0
    shown = [(kind, NAMES[kind], False) for kind in NAMES if kind in kinds]
    shown += [("device", "several nodes", True)] if stacks else []
    for kind, name, many in shown:
        parts.append(
            f'<g class="{kind}" transform="translate({x:.1f} 0)">{shape(kind, 24, 14, many)}'
            f'<text class="k" x="{36 if many else 30}" y="11">{name}</text></g>'
        )
        x += 54 + 6.7 * len(name)
    return "".join(parts), x
