"""The results of expectations as a page: what was expected, what was found, and which way each was decided."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from .html import Html, TableColumn, Tone, badge, bars, details, figures, html, join, number, page, section, table

_KINDS: Final[Mapping[str, Tone]] = {"critical": "bad", "warning": "warn", "info": "info"}
_WAYS: Final = {"statistics": "statistics", "rows": "rows, by GX", "sql": "rows, by SQL"}
_LONG: Final = 600  # characters of an argument or an observed value
_COLUMNS: Final = 8  # of a quoted row


def expectations_page(document: Mapping[str, Any], *, title: str = "Expectations") -> str:
    """A self-contained page.

    Args:
        document: Of `ExpectationResults`.
        title: The heading.
    """
    results = document["results"]
    blocking = sum(
        not result["success"] and result["expectation_config"]["severity"] == "critical" for result in results
    )
    counts = document["statistics"]
    rows = document["meta"]["drivetrain"]["rows"]
    ways = document["meta"]["drivetrain"]["evaluated_on"]
    head = figures(
        {"not met": counts["unsuccessful_expectations"], "checked": counts["evaluated_expectations"]}
        | {f"decided by {_WAYS[way]}": count for way, count in ways.items() if count}
    )
    parts = [
        section(
            split,
            join([_table([result for result in results if result["meta"]["split"] == split])]),
            note=f"{number(count)} rows",
        )
        for split, count in rows.items()
    ]
    mark = badge("blocked", "bad") if blocking else badge("passed", "good")
    return page(title, join([head, *parts]), subtitle=f"suite {document['suite_name']}", badges=[mark])


def _table(results: list[Mapping[str, Any]]) -> Html:
    ordered = sorted(results, key=lambda result: result["success"])  # what failed comes first, else the suite's order
    return table(
        ["", "expectation", "observed", "decided by"],
        (
            [_status(result), _expected(result), _observed(result), _WAYS[result["meta"]["evaluated_on"]]]
            for result in ordered
        ),
        empty="The suite expects nothing.",
    )


def _status(result: Mapping[str, Any]) -> Html:
    severity = result["expectation_config"]["severity"]
    return badge("met", "good") if result["success"] else badge(severity, _KINDS.get(severity, "plain"))


def _expected(result: Mapping[str, Any]) -> Html:
    config = result["expectation_config"]
    kwargs = dict(config["kwargs"])
    title = config["meta"].get("description") or config["type"].removeprefix("expect_").replace("_", " ")
    subject = kwargs.pop("column", None)
    shown: list[object] = [Html("<b>"), subject, Html("</b> ")] if subject is not None else []
    shown.append(title)
    query = kwargs.pop("unexpected_rows_query", None)
    if query is not None:
        shown += [Html("<br><code>"), _cut(str(query)), Html("</code>")]
    arguments = ", ".join(f"{key} {_cut(json.dumps(value, ensure_ascii=False))}" for key, value in kwargs.items())
    if arguments:
        shown += [Html('<br><span class="soft">'), arguments, Html("</span>")]
    return join(shown)


def _observed(result: Mapping[str, Any]) -> Html:
    details_of = result["result"]
    parts: list[object] = []
    if result["exception_info"]["raised_exception"]:
        parts.append(result["exception_info"]["exception_message"])
    rows = (details_of.get("details") or {}).get("unexpected_rows")
    if rows is not None:
        parts.append(f"{number(details_of['observed_value'])} rows")
        if rows:
            parts.append(details(f"the first {number(len(rows))}", _rows(rows)))
    elif details_of.get("observed_value") is not None:
        parts.append(_text(details_of["observed_value"]))
    elif details_of.get("element_count") is not None:
        share = details_of.get("unexpected_percent")
        odd = f"{number(details_of['unexpected_count'])} of {number(details_of['element_count'])} rows do not meet it"
        parts.append(odd + (f" ({number(share)} % of those present)" if share else ""))
    counts = details_of.get("partial_unexpected_counts")
    if counts:
        parts.append(bars([(_text(item["value"]), item["count"]) for item in counts]))
    elif details_of.get("partial_unexpected_list"):
        values = dict.fromkeys(map(_text, details_of["partial_unexpected_list"]))
        parts += [Html('<br><span class="soft">'), f"e.g. {_cut(', '.join(values))}", Html("</span>")]
    return join(parts)


def _rows(rows: list[Mapping[str, Any]]) -> Html:
    names = list(rows[0])
    cells = ([html(None) if row[name] is None else _text(row[name]) for name in names[:_COLUMNS]] for row in rows)
    more = len(names) - _COLUMNS
    note = Html(f'<p class="note">{number(more)} more columns are in the JSON.</p>') if more > 0 else ""
    return join([table([TableColumn(name) for name in names[:_COLUMNS]], cells), note])


def _text(value: object) -> str:
    if isinstance(value, float):
        return number(value)
    return _cut(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _cut(text: str) -> str:
    return text if len(text) <= _LONG else text[:_LONG] + "…"
