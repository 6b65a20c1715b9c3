"""HTML and SVG pieces that work offline: escaped text, tables, bars, histograms, curves, and the page around them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final, Literal

from .script import SCRIPT, START
from .style import CSS

Tone = Literal["good", "bad", "warn", "info", "plain"]
"""How a badge or a bar is coloured, by what it says."""


class Html(str):
    """Markup that is already escaped. Everything else that reaches a helper is text and gets escaped."""

    __slots__ = ()

    def __add__(self, other: str) -> Html:
        """This markup, then the other, which is escaped if it is plain text."""
        return Html(str.__add__(self, html(other)))


@dataclass(frozen=True)
class TableColumn:
    """A table's column: its heading, and whether its cells are numbers (right-aligned, tabular figures)."""

    title: str
    numeric: bool = False


def html(value: object) -> Html:
    """The value as markup: `Html` as it is, None as an empty cell, a float in a readable form, all else escaped."""
    if isinstance(value, Html):
        return value
    if value is None:
        return Html("")
    if isinstance(value, bool):
        return Html("yes" if value else "no")
    if isinstance(value, (int, float)):
        return Html(escape(number(value)))
    return Html(escape(str(value), quote=True))


def join(parts: Iterable[object], separator: str = "") -> Html:
    """Markup of all parts, one after another."""
    return Html(str(html(separator)).join(html(part) for part in parts))


def number(value: float | int | None) -> str:
    """A number for people: integers with thousands separators, others to four significant digits, "" for None."""
    if value is None:
        return ""
    if isinstance(value, int) or (math.isfinite(value) and value == int(value) and abs(value) < 1e15):
        return f"{int(value):,}"
    if not math.isfinite(value):
        return {math.inf: "∞", -math.inf: "−∞"}.get(value, "NaN")
    if 1e-4 <= abs(value) < 1e9:
        digits = max(0, 3 - math.floor(math.log10(abs(value))))
        text = f"{value:,.{digits}f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    return f"{value:.3e}"


def percent(fraction: float | None) -> str:
    """A fraction as a percentage that never rounds something to nothing, or almost everything to 100 %."""
    if fraction is None:
        return ""
    if 0 < fraction < 0.0001:
        return "<0.01 %"
    if 0.9999 < fraction < 1:
        return ">99.99 %"
    return f"{fraction * 100:.2f}".rstrip("0").rstrip(".") + " %"


# The browser itself keeps a page from loading or sending anything, whatever a page may hold.
_POLICY: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
)
_HEAD: Final = (
    '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
    f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
)


BODY: Final = "<body><main>"
"""What a page's body begins with."""


def is_page(document: str) -> bool:
    """Whether a document begins as `page` writes it: with a policy that keeps it from loading or sending anything."""
    return document.startswith(_HEAD) and BODY in document


def page(
    title: str,
    body: object,
    *,
    subtitle: str = "",
    badges: Iterable[object] = (),
    data: object = None,
    script: str = "",
    small_script: str = "",
) -> str:
    """One whole document with its style inside: no network, and no script unless one is given.

    Args:
        title: Shown at the top and in the browser's tab.
        body: `Html` from the helpers, or text.
        subtitle: One line below the title.
        badges: Pieces (see `badge`) set beside the title.
        data: JSON-able values that the script reads.
        script: What draws the data (see `script`); it is ours, never a user's.
        small_script: One that stands by itself, without data (see `filtered`).
    """
    head = join([Html("<h1>"), title, Html("</h1>"), *badges])
    line = join([Html('<p class="subtitle">'), subtitle, Html("</p>")]) if subtitle else Html("")
    run = f"<script>{small_script}</script>" if small_script else ""
    if script:
        run = (
            f'<script type="application/json" id="data">{embedded(data)}</script>'
            f"<script>{SCRIPT}{script}{START}</script>"
        )
    return (
        f'{_HEAD}<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html(title)}</title><style>{CSS}</style></head>"
        f'{BODY}<header><div class="head">{head}</div>{line}</header>{html(body)}</main>{run}</body></html>\n'
    )


def embedded(data: object) -> str:
    """JSON that can stand in a script element: no markup, comment or line separator can end or change it."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")


def section(title: str, body: object, *, note: str = "") -> Html:
    """A titled part of a page; `note` is a sentence under its heading."""
    parts: list[object] = [Html("<section><h2>"), title, Html("</h2>")]
    if note:
        parts += [Html('<p class="note">'), note, Html("</p>")]
    return join([*parts, body, Html("</section>")])


def details(title: object, body: object, *, is_open: bool = False) -> Html:
    """A part that folds, without script."""
    return join(
        [Html(f"<details{' open' if is_open else ''}><summary>"), title, Html("</summary>"), body, Html("</details>")]
    )


def badge(text: object, kind: Tone = "plain") -> Html:
    """A small label in a frame whose colour says the tone."""
    return join([Html(f'<span class="badge {kind}">'), text, Html("</span>")])


def figures(pairs: Mapping[str, object]) -> Html:
    """The few numbers that matter, large, in a row."""
    cells = (
        join([Html('<div class="figure"><b>'), value, Html("</b><span>"), name, Html("</span></div>")])
        for name, value in pairs.items()
    )
    return join([Html('<div class="figures">'), *cells, Html("</div>")])


def table(
    columns: Sequence[TableColumn | str],
    rows: Iterable[Sequence[object]],
    *,
    empty: str = "nothing to show",
    stacked: bool = False,
    tight: bool = False,
) -> Html:
    """A table; cells are `Html`, numbers or text.

    Args:
        columns: Headings; a `TableColumn` says whether its cells are numbers.
        rows: Cells, as many per row as there are columns.
        empty: What stands there when there is no row.
        stacked: Whether a narrow screen shows each row as a block, its cells below one another.
        tight: Whether it has many columns of numbers, whose headings may break.
    """
    heads = [column if isinstance(column, TableColumn) else TableColumn(column) for column in columns]
    css = [' class="n"' if column.numeric else "" for column in heads]
    top = "".join(f'<th scope="col"{kind}>{html(column.title)}</th>' for kind, column in zip(css, heads, strict=True))
    if stacked:
        css = [f'{kind} data-label="{html(column.title)}"' for kind, column in zip(css, heads, strict=True)]
    body = "".join(
        "<tr>" + "".join(f"<td{kind}>{html(cell)}</td>" for kind, cell in zip(css, row, strict=True)) + "</tr>"
        for row in _aligned(heads, rows)
    )
    if not body:
        return join([Html('<p class="note">'), empty, Html("</p>")])
    css = [name for name, wanted in (("stack", stacked), ("tight", tight)) if wanted]
    of = f' class="{" ".join(css)}"' if css else ""
    return Html(f'<div class="scroll"><table{of}><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>')


def _aligned(heads: Sequence[TableColumn], rows: Iterable[Sequence[object]]) -> Iterable[Sequence[object]]:
    """The rows, the numbers of each numeric column with as many decimals: their digits stand below one another."""
    cells = [list(row) for row in rows]
    for at, head in enumerate(heads):
        if head.numeric:
            column = [row[at] for row in cells]
            for row, text in zip(cells, aligned(column), strict=True):
                row[at] = text
    return cells


def aligned(values: Sequence[object]) -> list[object]:
    """Fractions as texts with as many decimals each; whole numbers, large ones and all else as they are."""
    texts = [number(v) if isinstance(v, float) and (v == 0 or 1e-4 <= abs(v) < 1e3) else None for v in values]
    most = max((len(text.partition(".")[2]) for text in texts if text), default=0)
    return [value if text is None else f"{value:.{most}f}" for value, text in zip(values, texts, strict=True)]


def bar(fraction: float, *, kind: Tone = "plain", width: int = 120, title: str = "") -> Html:
    """A horizontal bar filled to `fraction` of its width (pixels)."""
    share = min(max(fraction, 0.0), 1.0) if math.isfinite(fraction) else 0.0
    return Html(
        f'<svg class="bar {kind}" width="{width}" height="10" role="img" aria-label="{html(title or percent(share))}">'
        f'<title>{html(title or percent(share))}</title><rect class="track" width="{width}" height="10" rx="2"/>'
        f'<rect class="fill" width="{share * width:.1f}" height="10" rx="2"/></svg>'
    )


def bars(pairs: Iterable[tuple[object, float]], *, limit: int = 10) -> Html:
    """Labelled horizontal bars, each relative to the largest, with the value beside it."""
    shown = list(pairs)[:limit]
    largest = max((value for _, value in shown), default=0.0) or 1.0
    lines = (
        join(
            [
                Html('<div class="bars"><span class="label">'), clip(label), Html("</span>"),
                bar(value / largest, title=f"{label}: {number(value)}"),
                Html('<span class="n">'), number(value), Html("</span></div>"),
            ]
        )
        for label, value in shown
    )  # fmt: skip
    return join(lines)


def clip(label: object, length: int = 28) -> str:
    """The text of a label, cut where it is too long."""
    text = str(label)
    return text if len(text) <= length else text[: length - 1] + "…"


def histogram(
    buckets: Sequence[tuple[object, object, float]], *, width: int = 220, height: int = 56, log: bool = False
) -> Html:
    """Adjacent columns for (low, high, count) buckets of equal width; hovering shows the bucket.

    Args:
        buckets: Edges are shown as they are (numbers are formatted); counts are drawn.
        width: Pixels.
        height: Pixels.
        log: Draw log(1 + count), so that rare buckets are seen.
    """
    if not buckets:
        return Html("")
    heights = [math.log1p(count) if log else float(count) for *_, count in buckets]
    largest = max(heights) or 1.0
    step = width / len(buckets)
    columns = []
    for index, ((low, high, count), tall) in enumerate(zip(buckets, heights, strict=True)):
        # One pixel at least for whatever is not empty.
        pixels = max(tall / largest * (height - 2), 1.0) if count else 0.0
        text = f"{html(low)} … {html(high)}: {number(count)}"
        columns.append(
            f'<g><title>{text}</title><rect class="hover" x="{index * step:.1f}" width="{step:.1f}" height="{height}"/>'
            f'<rect class="fill" x="{index * step + 0.5:.1f}" y="{height - pixels:.1f}" width="{step - 1:.1f}" '
            f'height="{pixels:.1f}"/></g>'
        )
    return Html(
        f'<svg class="histogram" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">'
        f'{"".join(columns)}<line x1="0" x2="{width}" y1="{height}" y2="{height}"/></svg>'
        f'<div class="edges" style="width:{width}px"><span>{html(buckets[0][0])}</span>'
        f"<span>{html(buckets[-1][1])}</span></div>"
    )


def curves(
    series: Mapping[str, Sequence[tuple[float, float]]],
    *,
    x: str,
    y: str,
    x_range: tuple[float, float] | None = None,
    y_range: tuple[float, float] | None = None,
    diagonal: bool = False,
    mark: float | None = None,
    width: int = 360,
    height: int = 260,
) -> Html:
    """Lines through (x, y) points, one per named series, with axes and a legend (ROC, calibration, loss by step).

    Args:
        series: Points in drawing order; points that are not finite are left out.
        x: What the horizontal axis shows.
        y: What the vertical axis shows.
        x_range: Smallest and largest x; from the points where None.
        y_range: Likewise for y.
        diagonal: Draw the line from corner to corner (a guess, or perfect calibration).
        mark: Draw an upright line at this x, which a script may move: "data-x" holds the pixels of x = 0 and x = 1.
        width: Pixels.
        height: Pixels.
    """
    finite = {
        name: [p for p in points if math.isfinite(p[0]) and math.isfinite(p[1])] for name, points in series.items()
    }
    x0, x1 = x_range or range_of(p[0] for points in finite.values() for p in points)
    y0, y1 = y_range or range_of(p[1] for points in finite.values() for p in points)
    labels = {tick: number(tick) for tick in ticks(y0, y1)}
    # Room for the longest label (7 pixels a figure) and, left of it, for the axis's name.
    left, bottom, top, right = 34 + 7 * max(map(len, labels.values()), default=1), 44, 10, 24
    wide, tall = width - left - right, height - top - bottom

    def point_at(px: float, py: float) -> str:
        return f"{left + (px - x0) / (x1 - x0) * wide:.1f},{top + (1 - (py - y0) / (y1 - y0)) * tall:.1f}"

    marks = []
    for tick, label in labels.items():
        at = top + (1 - (tick - y0) / (y1 - y0)) * tall
        marks.append(f'<line class="grid" x1="{left}" x2="{left + wide}" y1="{at:.1f}" y2="{at:.1f}"/>')
        marks.append(f'<text x="{left - 8}" y="{at + 4:.1f}" text-anchor="end">{label}</text>')
    for tick in _fitting(x0, x1, wide):
        at = left + (tick - x0) / (x1 - x0) * wide
        marks.append(f'<text x="{at:.1f}" y="{top + tall + 17}" text-anchor="middle">{number(tick)}</text>')
    if diagonal:
        marks.append(f'<polyline class="diagonal" points="{point_at(x0, y0)} {point_at(x1, y1)}"/>')
    if mark is not None:
        start, end, at = (left + (value - x0) / (x1 - x0) * wide for value in (0.0, 1.0, mark))
        line = f'x1="{at:.1f}" x2="{at:.1f}" y1="{top}" y2="{top + tall}"'
        marks.append(f'<line class="mark" data-x="{start:.1f} {end:.1f}" {line}/>')
    for index, (name, points) in enumerate(finite.items()):
        path = " ".join(point_at(*point) for point in points)
        marks.append(f'<polyline class="s{index % 6}" points="{path}"><title>{html(name)}</title></polyline>')
        if len(points) == 1:
            x_at, y_at = path.split(",")
            marks.append(
                f'<circle class="s{index % 6}" cx="{x_at}" cy="{y_at}" r="3"><title>{html(name)}</title></circle>'
            )
    marks.append(f'<text x="{left + wide / 2:.0f}" y="{height - 6}" text-anchor="middle">{html(x)}</text>')
    marks.append(
        f'<text transform="translate(12 {top + tall / 2:.0f}) rotate(-90)" text-anchor="middle">{html(y)}</text>'
    )
    legend = "".join(f'<span class="k{index % 6}">{html(name)}</span>' for index, name in enumerate(finite))
    return Html(
        f'<figure class="curves"><svg viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">'
        f"{''.join(marks)}</svg><figcaption>{legend}</figcaption></figure>"
    )


_FAR: Final = 1e300
"""Where an axis ends: twice as far has a length, and so has what is this small a part of 1."""


def range_of(values: Iterable[float]) -> tuple[float, float]:
    """The smallest and the largest, apart: what an axis spans."""
    numbers = [max(-_FAR, min(value, _FAR)) for value in values]
    low, high = min(numbers, default=0.0), max(numbers, default=1.0)
    half = max(0.5, abs(low) / 1000)  # relative, since 1e17 + 0.5 is 1e17
    return (low, high) if high - low > 1 / _FAR else (low - half, high + half)


def _fitting(low: float, high: float, width: float) -> list[float]:
    """Ticks as `ticks` gives them, as many as have room for their numbers in a row that wide (pixels)."""
    fitting = ticks(low, high)
    for most in (5, 4):
        fewer = ticks(low, high, most)
        if sum(7 * len(number(tick)) + 8 for tick in fitting) <= width or len(fewer) < 3:
            break
        fitting = fewer
    return fitting


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round numbers from low to high, at most `most` + 1: multiples of 1, 2, 2.5 or 5 times a power of ten."""
    least = (high - low) / most * (1 - 1e-9)
    power = 10.0 ** math.floor(math.log10((high - low) / most))
    step = next(size * power for size in (1.0, 2.0, 2.5, 5.0, 10.0) if size * power >= least)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [float(f"{multiple * step:.12g}") for multiple in range(first, last + 1)]


def framed(document: str, height: int = 640) -> str:
    """A whole page as it can stand within another (a notebook's cell), isolated: no style, name or script leaks.

    A script runs only where the document begins as `page` writes it, with the policy that keeps it from loading
    anything in force before the rest is read; and it runs without an origin, so it reaches neither the notebook nor its
    storage. Any other document is shown, and its scripts, forms and links do nothing.
    """
    allowed = "allow-scripts" if is_page(document) and "<script" in document else ""
    return (
        f'<iframe srcdoc="{escape(document, quote=True)}" style="width:100%;height:{height}px;border:0" '
        f'sandbox="{allowed}" loading="lazy" title="report"></iframe>'
    )
