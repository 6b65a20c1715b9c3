"""A chart of slices below one another: a point for each model's value, and a line for its interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from .html import Html, clip, html, number, range_of, ticks

Measured = tuple[float, tuple[float, float] | None]
"""A value, and the two ends of its interval where there is one."""

_ROW: Final = 22
_LEFT, _RIGHT, _TOP, _BOTTOM = 190, 20, 6, 40
MOST: Final = 40
"""Slices that a chart shows at most."""


def forest(slices: Sequence[tuple[str, Mapping[str, Measured]]], *, x: str, width: int = 720) -> Html:
    """One row for each slice.

    Args:
        slices: Name and model → what was measured, in the order of the rows.
        x: What the horizontal axis shows.
        width: Pixels.
    """
    ends = [end for _, models in slices for value, interval in models.values() for end in (value, *(interval or ()))]
    x0, x1 = range_of(ends)
    wide, tall = width - _LEFT - _RIGHT, _ROW * len(slices)

    def at(value: float) -> str:
        return f"{_LEFT + (value - x0) / (x1 - x0) * wide:.1f}"

    marks = []
    for tick in ticks(x0, x1):
        marks.append(f'<line class="grid" x1="{at(tick)}" x2="{at(tick)}" y1="{_TOP}" y2="{_TOP + tall}"/>')
        marks.append(f'<text x="{at(tick)}" y="{_TOP + tall + 15}" text-anchor="middle">{number(tick)}</text>')
    names = dict.fromkeys(name for _, models in slices for name in models)
    for row, (label, models) in enumerate(slices):
        middle = _TOP + _ROW * (row + 0.5)
        marks.append(
            f'<text x="{_LEFT - 10}" y="{middle + 4}" text-anchor="end">{html(clip(label))}'
            f"<title>{html(label)}</title></text>"
        )
        for index, name in enumerate(names):
            if name not in models:
                continue
            value, interval = models[name]
            y = middle + (index - (len(names) - 1) / 2) * 7
            said = f"{label}, {name}: {number(value)}"
            if interval is not None:
                low, high = interval
                marks.append(f'<line class="s{index}" x1="{at(low)}" x2="{at(high)}" y1="{y}" y2="{y}"/>')
                said += f" ({number(low)} to {number(high)})"
            marks.append(
                f'<circle class="f{index}" cx="{at(value)}" cy="{y}" r="4"><title>{html(said)}</title></circle>'
            )
    height = _TOP + tall + _BOTTOM
    marks.append(f'<text x="{_LEFT + wide / 2}" y="{height - 6}" text-anchor="middle">{html(x)}</text>')
    legend = "".join(f'<span class="k{index}">{html(name)}</span>' for index, name in enumerate(names))
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    return Html(
        f'<figure class="curves forest"><svg {size} role="img">'
        f"{''.join(marks)}</svg><figcaption>{legend if len(names) > 1 else ''}</figcaption></figure>"
    )
