"""Anomalies as a page: what is wrong, the values, the rows that show it, and the fix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from .filtered import FILTER, field, is_many, searched
from .html import Html, TableColumn, Tone, badge, bars, details, figures, join, number, page, section, table

_KINDS: Final[Mapping[str, Tone]] = {"ERROR": "bad", "WARNING": "warn", "INFO": "info"}
_COLUMNS: Final = 8  # of a quoted row; all are in the JSON
_VALUES: Final = 8


def anomalies_page(document: Mapping[str, Any], *, title: str = "Validation") -> str:
    """A self-contained page.

    Args:
        document: `{"passed", "errors", "summary", "datasets": [{"name", "rows"}], "anomalies": [{"type", "severity",
            "split", "feature", "message", "expected", "observed", "fix", "values", "rows"}], "notes": [line]}`; notes
            may be absent.
        title: The heading.
    """
    passed = bool(document["passed"])
    rows = sum(dataset["rows"] for dataset in document["datasets"])
    # As the summary counts: what several data sets have is one problem, though each of them has a card.
    problems = {(each["severity"], each["type"], each["feature"]) for each in document["anomalies"]}
    errors = sum(severity == "ERROR" for severity, _, _ in problems)
    head = figures(
        {
            "errors": errors,
            "warnings and notes": len(problems) - errors,
            **({"by data set": len(document["anomalies"])} if len(document["anomalies"]) > len(problems) else {}),
            "rows checked": rows,
            "data sets": len(document["datasets"]),
        }
    )
    cards = [_card(anomaly) for anomaly in document["anomalies"]]
    body = join(cards) if cards else Html('<p class="note">Every data set is as the schema says.</p>')
    if is_many(len(cards)):
        body = join([field(), searched(body, ":scope>article")])
    return page(
        title,
        join([head, section("What was found", body), *_notes(document.get("notes", ()))]),
        subtitle=document["summary"],
        badges=[badge("passed", "good") if passed else badge("blocked", "bad")],
        small_script=FILTER if is_many(len(cards)) else "",
    )


def _notes(notes: Sequence[str]) -> list[Html]:
    lines = (join([Html("<li>"), note, Html("</li>")]) for note in notes)
    return [section("Notes", join([Html("<ul>"), *lines, Html("</ul>")]))] if notes else []


def _card(anomaly: Mapping[str, Any]) -> Html:
    severity = anomaly["severity"]
    tags = [badge(severity, _KINDS.get(severity, "plain")), badge(anomaly["type"])]
    split = join([Html('<span class="soft">in '), anomaly["split"], Html("</span>")])
    text = join([Html('<div class="tags">'), *tags, split, Html("</div>"), _facts(anomaly)])
    if anomaly["values"]:
        pairs = [(repr(item["value"]), item["count"]) for item in anomaly["values"]]
        drawn = join([Html("<h4>rows by value</h4>"), bars(pairs, limit=_VALUES)])
        text = join([Html('<div class="two"><div>'), text, Html("</div><div>"), drawn, Html("</div></div>")])
    parts: list[object] = [text]
    if anomaly["rows"]:
        parts.append(details(f"example rows ({number(len(anomaly['rows']))})", _rows(anomaly["rows"]), is_open=True))
    css = severity if severity in _KINDS else "INFO"
    head = join([Html(f'<article class="anomaly {css}"><h3>'), anomaly["message"], Html("</h3>")])
    return join([head, *parts, Html("</article>")])


def _facts(anomaly: Mapping[str, Any]) -> Html:
    facts = (("expected", anomaly["expected"]), ("observed", anomaly["observed"]), ("fix", anomaly["fix"]))
    lines = (join([Html("<dt>"), name, Html("</dt><dd>"), said, Html("</dd>")]) for name, said in facts)
    return join([Html('<dl class="facts">'), *lines, Html("</dl>")])


def _rows(rows: list[Mapping[str, Any]]) -> Html:
    names = list(rows[0]["values"])[:_COLUMNS]
    more = len(rows[0]["values"]) - len(names)
    shown = table(
        [TableColumn("row", numeric=True), *names],
        ([row["row"], *(_cell(row["values"].get(name)) for name in names)] for row in rows),
    )
    note = Html(f'<p class="note">{number(more)} more columns are in anomalies.json.</p>') if more > 0 else ""
    return join([shown, note])


def _cell(value: object) -> object:
    if value is None:
        return Html('<span class="soft">missing</span>')
    return str(value)
