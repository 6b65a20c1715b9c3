"""Anomalies as a page: what is wrong, the values, the rows that show it, and the fix."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from .html import Column, Html, Kind, badge, bars, details, figures, join, number, page, section, table

_KINDS: Final[Mapping[str, Kind]] = {"ERROR": "bad", "WARNING": "warn", "INFO": "info"}
_COLUMNS: Final = 8  # of a quoted row; all are in the JSON


def anomalies_page(document: Mapping[str, Any], *, title: str = "Validation") -> str:
    """A self-contained page.

    Args:
        document: `{"passed", "errors", "summary", "datasets": [{"name", "rows"}], "anomalies": [{"type", "severity",
            "split", "feature", "message", "expected", "observed", "fix", "values", "rows"}]}`.
        title: The heading.
    """
    passed = bool(document["passed"])
    rows = sum(dataset["rows"] for dataset in document["datasets"])
    head = figures(
        {
            "errors": document["errors"],
            "warnings and notes": len(document["anomalies"]) - document["errors"],
            "rows checked": rows,
            "data sets": len(document["datasets"]),
        }
    )
    cards = [_card(anomaly) for anomaly in document["anomalies"]]
    body = join(cards) if cards else Html('<p class="note">Every data set is as the schema says.</p>')
    return page(
        title,
        join([head, section("What was found", body)]),
        subtitle=document["summary"],
        badges=[badge("passed", "good") if passed else badge("blocked", "bad")],
    )


def _card(anomaly: Mapping[str, Any]) -> Html:
    parts: list[object] = [
        Html(f'<div class="anomaly {_css(anomaly["severity"])}"><h3>'), anomaly["message"], Html("</h3><p>"),
        badge(anomaly["severity"], _KINDS.get(anomaly["severity"], "plain")), " ", badge(anomaly["type"]), " ",
        Html('<span class="soft">'), anomaly["split"], Html("</span></p>"),
        Html("<p>expected: "), anomaly["expected"], Html("<br>observed: "), anomaly["observed"], Html("</p>"),
        Html("<p><b>fix:</b> "), anomaly["fix"], Html("</p>"),
    ]  # fmt: skip
    if anomaly["values"]:
        pairs = [(repr(item["value"]), item["count"]) for item in anomaly["values"]]
        parts.append(bars(pairs))
    if anomaly["rows"]:
        parts.append(details(f"example rows ({number(len(anomaly['rows']))})", _rows(anomaly["rows"]), is_open=True))
    return join([*parts, Html("</div>")])


def _css(severity: str) -> str:
    return severity if severity in _KINDS else "INFO"


def _rows(rows: list[Mapping[str, Any]]) -> Html:
    names = list(rows[0]["values"])[:_COLUMNS]
    more = len(rows[0]["values"]) - len(names)
    shown = table(
        [Column("row", numeric=True), *names],
        ([row["row"], *(_cell(row["values"].get(name)) for name in names)] for row in rows),
    )
    note = Html(f'<p class="note">{number(more)} more columns are in anomalies.json.</p>') if more > 0 else ""
    return join([shown, note])


def _cell(value: object) -> object:
    if value is None:
        return Html('<span class="soft">missing</span>')
    return str(value)
