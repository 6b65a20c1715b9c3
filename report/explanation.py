"""An explanation as a page: what columns are worth, by slice, and how predictions move with each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from .html import Html, TableColumn, bar, curves, details, figures, html, join, number, page, section, table

_SLICES: Final = 60
_ROUGH: Final = 0.1  # of the largest change, beyond which attributions are not to be trusted
_TEXTS: Final = 12  # values of a text column that are shown
_LINES: Final = 5  # slices beside all rows in which dependence is shown


def explanation_page(document: Mapping[str, Any], *, title: str = "Explanation") -> str:
    """A self-contained page.

    Args:
        document: `importances` (`slice`, `n`, `column`, `importance`, `lower`, `upper`, `value`), `dependence`
            (`slice`, `column`, `value`, `output`, `mean`, `low`, `high`, `share`), `attributions` (column → mean of the
            size), `gap`, `metric`, `rows`, `left_out`.
        title: The heading.
    """
    importances = document["importances"]
    overall = [each for each in importances if each["slice"] == "overall"]
    head = {"rows": document["rows"]}
    if overall:
        head[document["metric"].replace("_", " ")] = overall[0]["value"]
    parts = [figures(head)]
    if overall:
        note = "How much worse the metric gets once the column is shuffled; ± what other shuffles might have given."
        parts.append(section("Importance", _importance(overall), note=note))
        slices = list(dict.fromkeys(each["slice"] for each in importances if each["slice"] != "overall"))
        if slices:
            parts.append(section("Importance by slice", _by_slice(importances, overall, slices), note=_more(slices)))
    if document["attributions"]:
        note = "Integrated gradients from the mean row: the mean size of what the column adds to a prediction. " + (
            f"Their sums are off by at most {document['gap']:.1%} of the largest change."
            if document["gap"] <= _ROUGH
            else "They do not add up to the predictions: the model jumps, as trees do, and these numbers say little."
        )
        parts.append(section("Attributions", _attributions(document["attributions"]), note=note))
    columns = list(dict.fromkeys(each["column"] for each in document["dependence"]))
    ranked = [each["column"] for each in overall]
    for column in sorted(columns, key=lambda name: ranked.index(name) if name in ranked else len(ranked)):
        points = [each for each in document["dependence"] if each["column"] == column]
        overall_points = [each for each in points if each["slice"] == "overall"]
        body = [_dependence(overall_points)]
        if len(overall_points) < len(points):
            body.append(details("by slice", _dependence_by_slice(points)))
        parts.append(section(f"Predictions by {column}", join(body)))
    if document["left_out"]:
        rows = list(document["left_out"].items())
        parts.append(section("Left out", table(["Column", "Why"], rows)))
    return page(
        title, join(parts), subtitle="which columns matter to the model, and how its predictions move with them"
    )


def _importance(lines: Sequence[Mapping[str, Any]]) -> Html:
    most = max((each["importance"] for each in lines), default=0.0)
    rows = [
        (
            each["column"],
            _bar(each["importance"], most),
            join([number(each["importance"]), *_half(each)]),
        )
        for each in lines
    ]
    return table(["Column", "", TableColumn("Importance", numeric=True)], rows)


def _half(line: Mapping[str, Any]) -> list[Html]:
    if line["lower"] is None:
        return []
    return [Html('<span class="soft"> ± '), html(number(line["importance"] - line["lower"])), Html("</span>")]


def _bar(value: float, most: float) -> Html:
    return bar(max(value, 0.0) / most if most > 0 else 0.0)


def _by_slice(
    importances: Sequence[Mapping[str, Any]], overall: Sequence[Mapping[str, Any]], slices: Sequence[str]
) -> Html:
    names = [each["column"] for each in overall[:6]]
    known = {(each["slice"], each["column"]): each for each in importances}
    rows = []
    for name in slices[:_SLICES]:
        first = next(each for each in importances if each["slice"] == name)
        cells = [known.get((name, column)) for column in names]
        rows.append((name, first["n"], *("–" if each is None else number(each["importance"]) for each in cells)))
    heads = [TableColumn(name, numeric=True) for name in names]
    return table(["Slice", TableColumn("Rows", numeric=True), *heads], rows, stacked=True)


def _more(slices: Sequence[str]) -> str:
    more = len(slices) - _SLICES
    return "The six most important columns." + (f" And {more} more slices, in importances.parquet." if more > 0 else "")


def _attributions(means: Mapping[str, float]) -> Html:
    most = max(means.values(), default=0.0)
    rows = [(name, _bar(value, most), number(value)) for name, value in means.items()]
    return table(["Column", "", TableColumn("Mean size", numeric=True)], rows)


def _dependence_by_slice(points: Sequence[Mapping[str, Any]]) -> Html:
    """The mean prediction at each value, on the first slices: lines, of texts and of several classes tables."""
    slices = list(dict.fromkeys(each["slice"] for each in points))[: _LINES + 1]
    if points[0]["output"] is None and _is_number(points[0]["value"]):
        lines = {name: [(each["value"], each["mean"]) for each in points if each["slice"] == name] for name in slices}
        return curves(lines, x=points[0]["column"], y="mean prediction")
    tables = []
    for output in dict.fromkeys(each["output"] for each in points):
        means = {(each["value"], each["slice"]): each["mean"] for each in points if each["output"] == output}
        values = list(dict.fromkeys(value for value, _ in means))
        rows = [
            (value if isinstance(value, float) else str(value), *(f"{means[value, name]:.4f}" for name in slices))
            for value in values
        ]
        first = "Value" if output is None else f"Value, class {output}"
        tables.append(table([first, *(TableColumn(name, numeric=True) for name in slices)], rows, tight=True))
    return join(tables)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _dependence(points: Sequence[Mapping[str, Any]]) -> Html:
    if _is_number(points[0]["value"]):
        outputs = list(dict.fromkeys(each["output"] for each in points))
        series: dict[str, list[tuple[float, float]]] = {}
        for output in outputs:
            mine = [each for each in points if each["output"] == output]
            lines = {"90 %": "high", "mean": "mean", "10 %": "low"} if output is None else {f"class {output}": "mean"}
            series |= {name: [(each["value"], each[key]) for each in mine] for name, key in lines.items()}
        return curves(series, x=points[0]["column"], y="prediction")
    numeric = [TableColumn(name, numeric=True) for name in ("Share of rows", "Mean", "10 %", "90 %")]
    rows = [
        (
            str(each["value"]) if each["output"] is None else f"{each['value']}, class {each['output']}",
            f"{each['share']:.1%}",
            *(number(each[name]) for name in ("mean", "low", "high")),
        )
        for each in points[:_TEXTS]
    ]
    return table(["Value", *numeric], rows)
