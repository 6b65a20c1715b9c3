"""A model card as a page: what a model is for, what it was made of, how good it is, where it fails."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .html import Html, TableColumn, html, join, page, section, table

_CONSIDERATIONS: Mapping[str, str] = {
    "users": "Users",
    "use_cases": "Use cases",
    "limitations": "Limitations",
    "tradeoffs": "Tradeoffs",
}


def render(card: Mapping[str, Any]) -> str:
    """One HTML document.

    Args:
        card: Plain JSON with the fields of Model Card Toolkit's schema 0.0.2; those that are missing are left out.
    """
    details, parameters = card.get("model_details", {}), card.get("model_parameters", {})
    considerations = card.get("considerations", {})
    version = details.get("version", {})
    said = ", ".join(filter(None, [version.get("name"), version.get("date"), version.get("diff")]))
    facts = {
        "Owners": _each(
            " ".join(filter(None, [each.get("name"), each.get("contact")])) for each in details.get("owners", ())
        ),
        "Licence": _each(each.get("identifier") or each.get("custom_text") for each in details.get("licenses", ())),
        "References": _each(each.get("reference") for each in details.get("references", ())),
        "Citations": _each(each.get("citation") for each in details.get("citations", ())),
        "Architecture": parameters.get("model_architecture"),
        "Inputs": parameters.get("input_format"),
        "Outputs": parameters.get("output_format"),
    }
    parts = [_words(details.get("overview")), _words(details.get("documentation"))]
    parts.append(table(["", ""], [(name, text) for name, text in facts.items() if text]))
    for field, title in _CONSIDERATIONS.items():
        if entries := considerations.get(field):
            parts.append(section(title, _each(each.get("description") for each in entries)))
    if risks := considerations.get("ethical_considerations"):
        named = [(each.get("name"), each.get("mitigation_strategy")) for each in risks]
        parts.append(section("Ethical considerations", table(["Risk", "What is done about it"], named)))
    metrics = card.get("quantitative_analysis", {}).get("performance_metrics", ())
    rows = [
        (each.get("type"), each.get("slice"), each.get("value"), _interval(each), each.get("threshold"))
        for each in metrics
    ]
    heads: list[TableColumn | str] = ["Metric", "Slice", TableColumn("Value", numeric=True), "Interval", "Threshold"]
    parts.append(section("Quantitative analysis", table(heads, rows, empty="Nothing was measured.")))
    data = [(each.get("name"), each.get("description"), each.get("link")) for each in parameters.get("data", ())]
    parts.append(section("Data", table(["Name", "What it is", "Where"], data, empty="Nothing is known of it.")))
    return page(str(details.get("name") or "A model"), join(parts), subtitle=said)


def _words(text: str | None) -> Html:
    return join([Html("<p>"), text, Html("</p>")]) if text else Html("")


def _each(texts: Iterable[str | None]) -> Html:
    return join([html(text) for text in texts if text], Html("<br>"))


def _interval(metric: Mapping[str, Any]) -> str:
    ends = metric.get("confidence_interval")
    return f"{ends['lower_bound']} to {ends['upper_bound']}" if ends else ""
