"""A schema as a page: what is demanded of each feature, and the domains' values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from .filtered import FILTER, field, is_many, searched
from .html import Html, badge, details, figures, join, number, page, percent, section, table

_VALUES: Final = 12  # of a domain within its feature's row; all stand below
_ROWS: Final = (("rows_drift", "rows against the span before"), ("rows_version", "rows against the version before"))


def schema_page(document: Mapping[str, Any], *, title: str = "Schema") -> str:
    """A self-contained page.

    Args:
        document: `{"min_rows", "max_rows", "rows_drift", "rows_version", "environments", "severity", "checks",
            "expectations", "weighted", "features": [{"name", "type", "min_fraction", "min_count", "valency": [text],
            "domain": text, "values": [text], "stage", "environments": [text], "bounds": [text], "severity": {…},
            "evidence"}]}`.
        title: The heading.
    """
    features = document["features"]
    required = sum(bool(feature["min_fraction"] or feature["min_count"]) for feature in features)
    numbers: dict[str, object] = {"features": len(features), "required": required}
    for key, label in (("min_rows", "rows at least"), ("max_rows", "rows at most")):
        if document.get(key) is not None:
            numbers[label] = document[key]
    columns = ["feature", "type", "presence", "valency", "domain", "bounds", "evidence"]
    parts = [figures(numbers), _whole(document)]
    cells = [_row(feature) for feature in features]
    used = [index for index in range(len(columns)) if any(row[index] for row in cells)]
    rows = [[row[index] for index in used] for row in cells]
    shown = table([columns[index] for index in used], rows, stacked=True, empty="it demands nothing of any feature")
    many = is_many(len(features))
    parts.append(section("Features", join([field(), searched(shown, "tbody>tr")]) if many else shown))
    domains = [feature for feature in features if feature["values"]]
    if domains:
        note = "The values a feature may take."
        listed = join(_domain(feature) for feature in domains)
        parts.append(section("Domains", searched(listed, ":scope>details") if many else listed, note=note))
    if document.get("weighted"):
        rows = [[pair["name"], pair["value"], pair["weight"], pair["stage"]] for pair in document["weighted"]]
        note = "Values and weights that must go together in every row."
        shown = table(["name", "values", "weights", "stage"], rows, stacked=True)
        parts.append(section("Weighted features", shown, note=note))
    if document.get("checks"):
        keys = ("feature", "sql", "severity", "description")
        rows = [[_code(check[key]) if key == "sql" else check[key] for key in keys] for check in document["checks"]]
        parts.append(section("Checks", table(["feature", "SQL", "severity", "says"], rows, stacked=True)))
    if document.get("expectations"):
        rows = [
            [
                _code(expectation["type"]),
                _code(", ".join(f"{key}={value!r}" for key, value in expectation["kwargs"].items())),
            ]
            for expectation in document["expectations"]
        ]
        parts.append(section("Expectations", table(["expectation", "with"], rows, stacked=True)))
    return page(title, join(parts), small_script=FILTER if many else "")


def _whole(document: Mapping[str, Any]) -> Html:
    """What is said of the data set as a whole."""
    facts: list[tuple[str, object]] = []
    if document.get("environments"):
        facts.append(("default environments", _badges(document["environments"])))
    for key, label in _ROWS:
        if ratio := document.get(key):
            low, high = ratio.get("min"), ratio.get("max")
            span = " to ".join("any" if end is None else number(end) for end in (low, high))
            facts.append((label, f"{span} times as many"))
    if document.get("severity"):
        facts.append(("severities", _badges(f"{name}: {value}" for name, value in document["severity"].items())))
    if not facts:
        return Html("")
    lines = (join([Html("<dt>"), name, Html("</dt><dd>"), said, Html("</dd>")]) for name, said in facts)
    return join([Html('<dl class="facts">'), *lines, Html("</dl>")])


def _row(feature: Mapping[str, Any]) -> list[object]:
    also = [*feature.get("environments", ()), *feature.get("bounds", ())]
    also += [f"{name}: {value}" for name, value in feature["severity"].items()]
    stage = [badge(feature["stage"], "warn")] if feature.get("stage") else []
    evidence = join([Html('<span class="soft">'), feature["evidence"], Html("</span>")]) if feature["evidence"] else ""
    values = feature["values"]
    some = ", ".join(values[:_VALUES]) + (", …" if len(values) > _VALUES else "")
    return [
        join([Html("<b>"), feature["name"], Html("</b>")]),
        badge(feature["type"]),
        _presence(feature),
        join(feature.get("valency", ()), Html("<br>")),
        join([feature["domain"], *([Html("<br>"), _code(some)] if values else [])]),
        _badges(also, stage),
        evidence,
    ]


def _badges(texts: Iterable[str], first: Iterable[Html] = ()) -> Html:
    badges = [*first, *map(badge, texts)]
    return join([Html('<span class="tags">'), *badges, Html("</span>")]) if badges else Html("")


def _presence(feature: Mapping[str, Any]) -> str:
    parts = []
    if feature["min_fraction"]:
        parts.append("always" if feature["min_fraction"] == 1 else f"≥ {percent(feature['min_fraction'])} of rows")
    if feature["min_count"] and feature["min_fraction"] != 1:
        parts.append("at least once" if feature["min_count"] == 1 else f"≥ {number(feature['min_count'])} rows")
    return ", ".join(parts) or "optional"


def _domain(feature: Mapping[str, Any]) -> Html:
    values = feature["values"]
    head = join([feature["name"], Html(' <span class="soft">'), feature["domain"], Html("</span>")])
    return details(head, _code(", ".join(values)), is_open=len(values) <= 200)


def _code(text: str) -> Html:
    return join([Html("<code>"), text, Html("</code>")])
