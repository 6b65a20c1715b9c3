"""Decisions at a threshold that the reader moves: how scores lie by label, and what is decided above each score."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final

from .html import Html, TableColumn, curves, embedded, join, number, table

_MIDDLE: Final = 50  # the threshold of 0.5, where the slider begins
_BINS: Final = 25

Counts = tuple[float, float, float, float]
"""True positives, false positives, true negatives and false negatives, weighted."""

_RATES: Final[Mapping[str, tuple[Sequence[int], Sequence[int]]]] = {
    "Precision": ([0], [0, 1]),
    "Recall": ([0], [0, 3]),
    "F1": ([0, 0], [0, 0, 1, 3]),
    "False positive rate": ([1], [1, 2]),
    "Accuracy": ([0, 2], [0, 1, 2, 3]),
    "Predicted positive": ([0, 1], [0, 1, 2, 3]),
}
"""Each as a quotient of sums of `Counts`: which are above, and which below. `SLIDER` reads them."""
_COUNTS: Final = ("True positives", "False positives", "True negatives", "False negatives")

SLIDER: Final = r"""
'use strict';
const RATES = ALL_RATES;
const sum = (counts, which) => which.reduce((total, at) => total + counts[at], 0);
const shown = value => Number.isInteger(value) ? value.toLocaleString('en') : String(+value.toPrecision(4));
for (const part of document.querySelectorAll('.decisions')) {
  const models = JSON.parse(part.querySelector('script').textContent);
  const slider = part.querySelector('input'), mark = part.querySelector('.mark');
  const cells = [...part.querySelectorAll('tbody tr')].map(row => [...row.querySelectorAll('td.n')]);
  const [start, end] = mark.dataset.x.split(' ').map(Number);
  part.querySelector('.slider').hidden = false;
  slider.addEventListener('input', () => {
    const at = slider.valueAsNumber, x = start + (end - start) * at / 100;
    part.querySelector('output').textContent = (at / 100).toFixed(2);
    mark.setAttribute('x1', x);
    mark.setAttribute('x2', x);
    models.forEach((rows, model) => {
      const counts = rows[at].slice(1);
      const rates = RATES.map(parts => parts.map(which => sum(counts, which)))
        .map(([above, below]) => below ? (above / below).toFixed(4) : '–');
      [...rates, ...counts.map(shown)].forEach((text, row) => { cells[row][model].textContent = text; });
    });
  });
}
""".replace("ALL_RATES", json.dumps(list(_RATES.values())))
"""Moves the threshold; without it the table stands at 0.5."""


def decisions(models: Mapping[str, Sequence[Sequence[float]]]) -> Html:
    """How scores lie by label, a slider, and a table of what is decided.

    Args:
        models: Model → rows of threshold and `Counts`, for each hundredth from 0 to 1.
    """
    first = next(iter(models.values()))
    drawn = curves(
        {"label 1": _shares(first, (1, 4)), "label 0": _shares(first, (2, 3))},
        x="score", y="share of the label's examples", x_range=(0.0, 1.0), mark=0.5, width=460,
    )  # fmt: skip
    counts: dict[str, Counts] = {name: (*rows[_MIDDLE][1:],) for name, rows in models.items()}  # type: ignore[misc]
    lines = [
        (title, *(_quotient(sum(each[at] for at in above), sum(each[at] for at in below)) for each in counts.values()))
        for title, (above, below) in _RATES.items()
    ]
    lines += [(title, *(number(each[at]) for each in counts.values())) for at, title in enumerate(_COUNTS)]
    slider = Html(
        '<label class="slider" hidden><span>Threshold</span>'
        '<input type="range" min="0" max="100" value="50" aria-label="threshold in hundredths">'
        "<output>0.50</output></label>"
    )
    kept = Html(f'<script type="application/json">{embedded(list(models.values()))}</script>')
    return join(
        [
            Html('<div class="decisions beside"><div>'), drawn, slider, Html("</div><div>"),
            table(["Above the threshold", *(TableColumn(name, numeric=True) for name in models)], lines),
            kept, Html("</div></div>"),
        ]
    )  # fmt: skip


def _quotient(above: float, below: float) -> str:
    return f"{above / below:.4f}" if below else "–"


def _shares(rows: Sequence[Sequence[float]], at: tuple[int, int]) -> list[tuple[float, float]]:
    """The middle of each bin of scores, and the share of a label's examples in it.

    Args:
        rows: As of `decisions`.
        at: Where the label's examples above and below the threshold stand in a row.
    """
    step = (len(rows) - 1) // _BINS
    above = [rows[index][at[0]] for index in range(0, len(rows), step)]
    above[0] = total = rows[0][at[0]] + rows[0][at[1]]  # a score of 0 is above no threshold
    if not total:
        return []
    return [((bin_ + 0.5) / _BINS, (above[bin_] - above[bin_ + 1]) / total) for bin_ in range(_BINS)]


def precision_recall(rows: Sequence[Sequence[float]]) -> list[tuple[float, float]]:
    """Recall and precision at each threshold at which something is predicted to be positive."""
    return [(hits / (hits + missed), hits / (hits + alarms)) for _, hits, alarms, _, missed in rows if hits]
