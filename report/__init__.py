"""Plain dicts in, self-contained HTML out: works offline, in a notebook, in a file, in the UI."""

from .html import (
    Column,
    Html,
    badge,
    bar,
    bars,
    curves,
    details,
    figures,
    histogram,
    html,
    join,
    number,
    page,
    percent,
    section,
    table,
)

__all__ = [
    "Column",
    "Html",
    "badge",
    "bar",
    "bars",
    "curves",
    "details",
    "figures",
    "histogram",
    "html",
    "join",
    "number",
    "page",
    "percent",
    "section",
    "table",
]
