"""A schema as a page: one line per feature."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .html import Column, Html, badge, figures, join, number, page, percent, section, table


def schema_page(document: Mapping[str, Any], *, title: str = "Schema") -> str:
    """A self-contained page.

    Args:
        document: `{"min_rows", "max_rows", "features": [{"name", "type", "min_fraction", "min_count", "domain": text,
            "values": [text], "severity": {…}, "evidence"}]}`.
        title: The heading.
    """
    features = document["features"]
    rows = [
        [
            join([Html("<b>"), feature["name"], Html("</b>")]),
            badge(feature["type"]),
            _presence(feature),
            _domain(feature),
            join([Html('<span class="soft">'), feature["evidence"], Html("</span>")]),
        ]
        for feature in features
    ]
    required = sum(bool(feature["min_fraction"] or feature["min_count"]) for feature in features)
    numbers: dict[str, object] = {"features": len(features), "required": required}
    for key, label in (("min_rows", "rows at least"), ("max_rows", "rows at most")):
        if document.get(key) is not None:
            numbers[label] = document[key]
    columns = [Column("feature"), Column("type"), Column("presence"), Column("domain"), Column("evidence")]
    return page(title, join([figures(numbers), section("Features", table(columns, rows))]))


def _presence(feature: Mapping[str, Any]) -> str:
    parts = []
    if feature["min_fraction"]:
        parts.append("always" if feature["min_fraction"] == 1 else f"≥ {percent(feature['min_fraction'])} of rows")
    if feature["min_count"] and feature["min_fraction"] != 1:
        parts.append("at least once" if feature["min_count"] == 1 else f"≥ {number(feature['min_count'])} rows")
    return ", ".join(parts) or "optional"


def _domain(feature: Mapping[str, Any]) -> Html:
    parts: list[object] = [feature["domain"]]
    if feature["values"]:
        some = feature["values"][:40]
        text = ", ".join(some) + (
            f", … ({number(len(feature['values']))} in all)" if len(feature["values"]) > 40 else ""
        )
        parts += [Html("<br><code>"), text, Html("</code>")]
    if feature.get("bounds"):
        parts += [Html("<br>"), *(badge(text) for text in feature["bounds"])]
    if feature["severity"]:
        parts += [Html("<br>"), *(badge(f"{name}: {value}") for name, value in feature["severity"].items())]
    return join(parts)
