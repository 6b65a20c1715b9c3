"""Correlations as a heat map of the features that correlate most, and a table of the strongest pairs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Final

from .html import Html, TableColumn, bar, details, html, join, number, table

_MOST: Final = 24  # features drawn; the pairs are listed whatever their number
_PAIRS: Final = 20


def heat_map(names: Sequence[str], matrix: Sequence[Sequence[float | None]]) -> Html:
    """A table of cells coloured by −1 … 1, each with its number, and the strongest pairs as a list.

    Args:
        names: The features.
        matrix: Coefficients; None where one is not defined.
    """
    pairs = [(value, i, j) for i, j in combinations(range(len(names)), 2) if (value := matrix[i][j]) is not None]
    pairs.sort(key=lambda pair: -abs(pair[0]))
    kept = sorted(_strongest(pairs))
    heads = "".join(f'<th scope="col"><span>{html(_clip(names[i]))}</span></th>' for i in kept)
    lines = "".join(
        f'<tr><th scope="row">{html(_clip(names[i]))}</th>'
        + "".join(_cell(matrix[i][j], f"{names[i]}, {names[j]}") for j in kept)
        + "</tr>"
        for i in kept
    )
    left = len(names) - len(kept)
    note = f'<p class="note">{left} more features vary too little, or correlate less; they are in the JSON.</p>'
    drawn = Html(
        '<div class="scroll" tabindex="0" role="group" aria-label="correlations"><table class="heat">'
        f"<thead><tr><td></td>{heads}</tr></thead><tbody>{lines}</tbody></table></div>{note if left else ''}"
    )
    rows = [
        [join([names[i], " · ", names[j]]), value, bar(abs(value), kind="info" if value > 0 else "bad", width=90)]
        for value, i, j in pairs[:_PAIRS]
    ]
    shown = table(["features", TableColumn("r", numeric=True), "strength"], rows, empty="no pair has a coefficient")
    return join([drawn, details("strongest pairs", shown)])


def _strongest(pairs: Sequence[tuple[float, int, int]]) -> set[int]:
    kept: set[int] = set()
    for _, i, j in pairs:
        if len(kept | {i, j}) > _MOST:
            break
        kept |= {i, j}
    return kept


def _cell(value: float | None, label: str) -> str:
    if value is None:
        return f'<td title="{html(label)}: none">·</td>'
    strength = round(abs(value) * 75)
    ink = "--warm" if value < 0 else "--ink"
    style = f"background:color-mix(in srgb,var({ink}) {strength}%,transparent)"
    return f'<td style="{style}" title="{html(label)}: {number(value)}">{value:.2f}</td>'


def _clip(name: str) -> str:
    return name if len(name) <= 18 else name[:17] + "…"
