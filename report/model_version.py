"""A version of a registered model as a page: who made and approved it, of what, how good it is, where it went."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .html import Html, TableColumn, Tone, badge, html, join, page, section, table

_VERDICTS: Mapping[bool | None, tuple[str, Tone]] = {
    True: ("pass", "good"),
    False: ("fail", "bad"),
    None: ("not judged", "info"),
}


def render(version: Mapping[str, Any]) -> str:
    """One HTML document.

    Args:
        version: `name` ("flights@3"), `description`, `tags`, `aliases`, `registered` (`by`, `at`, `why`), `rules` (by
            alias: `rule`, `approved`, `missing`), `answers` (`by`, `approved`, `comment`, `at`), `log` (`at`, `text`);
            `model`, `bundle`, `evaluations`, `approvals`, `pushed`, `code` and `data`: see `console.model_story`.
    """
    registered = version["registered"]
    model = version["model"]
    reason = f": {registered['why']}" if registered["why"] else ""
    said = f"registered {_time(registered['at'])} by {registered['by']}{reason}"
    facts = {
        "What it is": version["description"],
        "Made by": f"{model['node']} in run {model['run']}",
        "Lies at": _code(model["uri"]),
        "Bundle": _code(version["bundle"]),
        "Fingerprint": _code(model["fingerprint"]),
        "Tags": ", ".join(f"{name}={text}" if text else name for name, text in version["tags"].items()),
    }
    parts = [section("Model", table(["", ""], [(name, text) for name, text in facts.items() if text]))]
    parts += _evaluations(version)
    parts += [section("Approvals", _approvals(version)), section("Aliases", _aliases(version))]
    parts += [section("Pushed", _pushes(version)), section("Code", _digests(version)), section("Data", _data(version))]
    story = [(_time(entry["at"]), entry["text"]) for entry in version["log"]]
    parts.append(section("What happened", table(["When (UTC)", "What"], story)))
    return page(
        version["name"], join(parts), subtitle=said, badges=[badge(alias, "info") for alias in version["aliases"]]
    )


def _evaluations(version: Mapping[str, Any]) -> Iterator[Html]:
    for evaluation in version["evaluations"]:
        verdict = badge("blessed", "good") if evaluation["blessed"] else badge("not blessed", "bad")
        metrics = table(
            ["Metric", TableColumn("Value", numeric=True)],
            [(name, "undefined" if value is None else value) for name, value in evaluation["metrics"].items()],
        )
        checks = [
            (badge(*_VERDICTS[check.get("passed")]), check.get("metric"), check.get("slice"), check.get("value"),
             check.get("text"))
            for check in evaluation["thresholds"]
        ]  # fmt: skip
        heads: list[TableColumn | str] = ["", "Metric", "Slice", TableColumn("Value", numeric=True), "Why"]
        thresholds = table(heads, checks, empty="No thresholds are known.")
        overruled = [
            (_time(each["at"]), each["by"], "blessed" if each["blessed"] else "not blessed", each["reason"])
            for each in evaluation["decisions"]
        ]
        people = table(["When (UTC)", "Who", "Said", "Why"], overruled) if overruled else Html("")
        yield section(f"Judged by {evaluation['node']}", join([verdict, metrics, thresholds, people]),
                      note=evaluation["summary"])  # fmt: skip


def _approvals(version: Mapping[str, Any]) -> Html:
    rows = [
        (_time(each["at"]), each["by"], _said(each["approved"]), each["comment"], "registry")
        for each in version["answers"]
    ]
    rows += [
        ("", each["by"], _said(each["approved"]), each["comment"], f"{each['node']} in run {each['run']}")
        for each in version["approvals"]
    ]
    return table(["When (UTC)", "Who", "", "Comment", "Where"], rows, empty="Nobody was asked.")


def _said(approved: bool) -> Html:
    return badge("approved", "good") if approved else badge("rejected", "bad")


def _aliases(version: Mapping[str, Any]) -> Html:
    rows = [
        (alias, rule["rule"], badge("may move here", "good") if rule["approved"] else rule["missing"])
        for alias, rule in version["rules"].items()
    ]
    return table(["Alias", "Needs", "Here"], rows, empty="No alias needs approvals.")


def _pushes(version: Mapping[str, Any]) -> Html:
    rows = [
        (_time(each["created"]), each["destination"], each["version"], each.get("server") or "", each["run"])
        for each in version["pushed"]
    ]
    heads: list[TableColumn | str] = ["When (UTC)", "Where to", "As version", "Served at", "Run"]
    return table(heads, rows, empty="It was not pushed.")


def _digests(version: Mapping[str, Any]) -> Html:
    rows = [
        (each["node"], ", ".join(each["functions"].values()), _code(each["digest"]), each["run"])
        for each in version["code"]
    ]
    return table(["Node", "Functions", "Digest", "Run"], rows, empty="Nothing is known of it.")


def _data(version: Mapping[str, Any]) -> Html:
    rows = [
        (
            each["span"],
            each["node"],
            sum(each["rows"].values()),
            ", ".join(str(file["name"]) for file in each["files"][:10]),
            _code(each["fingerprint"]),
        )
        for each in version["data"]
    ]
    heads: list[TableColumn | str] = [
        TableColumn("Span", numeric=True), "Read by", TableColumn("Rows", numeric=True), "Files", "Fingerprint",
    ]  # fmt: skip
    return table(heads, rows, empty="Nothing is known of it.")


def _code(text: object) -> Html:
    return Html(f"<code>{html(text)}</code>") if text else Html("")


def _time(text: str) -> str:
    return text[:19].replace("T", " ")
