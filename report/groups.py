"""The groups that metrics between slices compare: their sizes, and the values that lie apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .html import Html, TableColumn, aligned, bar, join, table


def groups_table(by: Sequence[str], models: Mapping[str, Sequence[Mapping[str, Any]]]) -> Html:
    """A row for each group; of a baseline the change from it, in small figures.

    Args:
        by: The columns whose values make the groups.
        models: The candidate and perhaps a baseline → each group's name (`group`), examples (`n`) and `values` by
            title: numbers, or the reasons why they are undefined.
    """
    groups, *before = models.values()
    titles = list(groups[0]["values"]) if groups else []
    columns = {title: [group["values"][title] for group in groups] for title in titles}
    texts = {title: aligned(values) for title, values in columns.items()}
    rows = []
    for at, group in enumerate(groups):
        cells = []
        for title in titles:
            old = before[0][at]["values"][title] if before else None
            drawn = all(isinstance(value, str) or 0 <= value <= 1 for value in columns[title])
            cells.append(_cell(columns[title][at], texts[title][at], old, drawn=drawn))
        rows.append((group["group"], group["n"], *cells))
    numeric = [TableColumn(title, numeric=True) for title in ("Examples", *titles)]
    return table([", ".join(by), *numeric], rows, empty="No group is large enough to be shown.", tight=True)


def _cell(value: float | str, text: object, old: float | str | None, *, drawn: bool) -> Html:
    if isinstance(value, str):
        return join([Html('<span class="soft" title="'), value, Html('">undefined</span>')])
    parts = [bar(value, width=60), " ", text] if drawn else [text]
    if isinstance(old, float):
        parts.append(join([Html('<div class="soft">'), f"{value - old:+.4f}", Html("</div>")]))
    return join(parts)
