"""Statistics as a page: data sets side by side, features drawn as they scroll into view, searched and sorted."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any, Final

from .explorer import Choice, explorer
from .html import Html, TableColumn, bar, bars, details, figures, html, join, number, page, percent, section, table
from .script_statistics import SCRIPT
from .statistics_data import page_data

_GROUPS: Final = {
    "numeric": "Numeric features",
    "text": "Categorical features",
    "time": "Times",
    "other": "Other features",
}
_LONGEST: Final = 20_000  # characters of a custom statistic
_LIFT: Final = (
    "How many times as often as in all rows the label has a value where the feature has another; "
    "1 where they are independent. The largest and the smallest of each."
)
_LIFTS: Final = 200  # rows of the table
_STATIC: Final = 200  # features of the table for readers without scripts
_MOST_CORRELATED: Final = 24  # features drawn; the pairs are listed whatever their number
_PAIRS: Final = 20


def statistics_page(
    document: Mapping[str, Any], *, title: str = "Statistics", distances: Mapping[str, float] | None = None
) -> str:
    """A self-contained page: every data set of the document, overlaid, and its slices to be chosen.

    The view can be linked: `#sort=missing&search=delay&log=1&chart=quantiles&unit=percent`.

    Args:
        document: `Statistics.document`: `{"datasets": [{"name", "rows", "features": [{"name", "type", "count",
            "missing", …}]}]}`, numbers as `{"value", "exact"}`.
        title: The heading.
        distances: By feature, how far it is from the first data set, to sort by, such as a drift report's divergences;
            where None, computed from the document's quantiles and top values.
    """
    data = page_data(document, distances)
    datasets = document["datasets"]
    several = len(datasets) > 1 or any(dataset.get("slices") for dataset in datasets)
    head = figures(
        {f"rows in {dataset['name']}": dataset["rows"] for dataset in datasets} | {"features": len(data["features"])}
    )
    sorts = {"schema": "schema order", "name": "name", "missing": "missing", "skew": "skewness, non-uniformity"}
    sorts |= {"zeros": "zeros"} | ({"drift": "distance between data sets"} if len(data["sets"]) > 1 else {})
    choices = [
        Choice("sort", "Sort by", sorts),
        Choice("chart", "Chart", {"standard": "histogram", "quantiles": "quantiles", "lengths": "list lengths"}),
        Choice("unit", "Values in", {"percent": "percent", "counts": "counts"} if several else
               {"counts": "counts", "percent": "percent"}),
        Choice("log", "log scale"),
    ]  # fmt: skip
    if any("weighted" in dataset for dataset in data["sets"]):
        choices.append(Choice("weighted", "weighted"))
    if len(data["sets"]) > 1:
        choices += [
            Choice(f"set{index}", dataset["name"], is_on=dataset["on"], css=f"s{index % 6}", group="Data sets")
            for index, dataset in enumerate(data["sets"])
        ]
    body = explorer(choices, _GROUPS, [feature["group"] for feature in data["features"]], _static(data))
    extras = [_extras(dataset, several=len(datasets) > 1) for dataset in datasets]
    return page(
        title,
        join([head, _notes(datasets, data["left"], compared=len(data["sets"]) > 1), body, *extras]),
        data=data,
        script=SCRIPT,
    )


def _notes(datasets: Sequence[Mapping[str, Any]], left: int, *, compared: bool) -> Html:
    said = []
    for dataset in datasets:
        if sample := dataset.get("sample"):
            said.append(f"{dataset['name']}: {percent(sample['rate'])} of the rows, sampled by seed {sample['seed']}.")
        if dataset.get("weight"):
            total = number(dataset["weighted_rows"])
            said.append(f"{dataset['name']}: rows weigh by {dataset['weight']}, {total} in all.")
    if any(not is_exact(feature) for dataset in datasets for feature in dataset["features"]):
        said.append("Numbers marked ≈ are estimates; their errors are shown with the feature. All others are exact.")
    else:
        said.append("Every number is exact.")
    if compared:
        said.append(
            f"Distance: how far a feature's values are from those of {datasets[0]['name']}, as the Jensen–Shannon "
            "divergence in bits: 0 where every value is as frequent, 1 where no value is in both."
        )
    if left:
        said.append(f"{number(left)} more slices are in statistics.json.")
    return join([Html('<p class="note">'), " ".join(said), Html("</p>")])


def is_exact(feature: Mapping[str, Any]) -> bool:
    """Whether every number of a feature is exact."""
    return all(item.get("exact", True) for item in feature.values() if isinstance(item, Mapping))


def _static(data: Mapping[str, Any]) -> Html:
    """What stands there without scripts: a mail's preview, a locked-down browser."""
    columns = [TableColumn("feature"), TableColumn("type")]
    columns += [
        TableColumn(f"{word}, {dataset['name']}", numeric=True)
        for dataset in data["sets"]
        for word in ("count", "missing")
    ]
    rows = []
    for feature in data["features"][:_STATIC]:
        row: list[object] = [feature["name"], feature["type"]]
        for dataset, description in zip(data["sets"], feature["sets"], strict=True):
            share = percent(description["missing"] / dataset["rows"]) if description and dataset["rows"] else ""
            row += [description["count"] if description else "", share]
        rows.append(row)
    more = len(data["features"]) - _STATIC
    note = f"{number(more)} more features are shown with scripts." if more > 0 else "Scripts would draw the charts."
    return join([table(columns, rows), Html('<p class="note">'), note, Html("</p>")])


def _extras(dataset: Mapping[str, Any], *, several: bool) -> Html:
    """Correlations, mutual information, lift and a user's statistics of one data set."""
    of = f", {dataset['name']}" if several else ""
    parts = []
    if correlations := dataset.get("correlations"):
        note = "Pearson's coefficient over the rows that have both."
        parts.append(
            section(f"Correlations{of}", _heat_map(correlations["features"], correlations["pearson"]), note=note)
        )
    if information := dataset.get("mutual_information"):
        pairs = [
            (feature["name"], feature["value"]) for feature in information["features"] if feature["value"] is not None
        ]
        pairs.sort(key=lambda pair: -pair[1])
        about = "all" if information["exact"] else f"a sample of {number(information['rows'])} of"
        note = f"In nats, over {about} {number(information['population'])} rows; the {min(len(pairs), 50)} largest."
        title = f"Mutual information with {information['label']}{of}"
        parts.append(section(title, bars(pairs, limit=50), note=note))
    if lift := dataset.get("lift"):
        parts.append(section(f"Lift for {lift['label']}{of}", _lift(lift), note=_LIFT))
    for name, value in dataset.get("custom", {}).items():
        text = json.dumps(value, indent=1, ensure_ascii=False)
        cut = text if len(text) <= _LONGEST else text[:_LONGEST] + "\n… more in statistics.json"
        shown = join([Html('<pre class="mono scroll">'), cut, Html("</pre>")])
        parts.append(details(f"custom: {name}{of}", shown, is_open=len(text) < 500))
    return join(parts)


def _lift(document: Mapping[str, Any]) -> Html:
    """For each feature and value of the label the values of the largest and the smallest lift."""
    columns = [TableColumn(document["label"]), TableColumn("feature"), TableColumn("value")]
    columns += [TableColumn(title, numeric=True) for title in ("rows", "of them with the label", "lift")]
    rows = [
        [str(of["y"]), feature["name"], str(document["x"]), document["x_count"], document["count"], document["lift"]]
        for feature in document["features"]
        for of in feature["values"]
        for document in (of["lift"] if len(of["lift"]) <= 2 else [of["lift"][0], of["lift"][-1]])
    ]
    said = []
    if len(rows) > _LIFTS:
        said.append(f"{number(len(rows) - _LIFTS)} more rows are in statistics.json.")
    if document["left_out"]:
        said.append(f"Left out, of too many values: {', '.join(document['left_out'][:50])}.")
    return join([table(columns, rows[:_LIFTS]), Html('<p class="note">'), " ".join(said), Html("</p>")])


def _heat_map(names: Sequence[str], matrix: Sequence[Sequence[float | None]]) -> Html:
    """A table of cells coloured by −1 … 1, each with its number, and the strongest pairs as a list.

    Args:
        names: The features.
        matrix: Coefficients; None where one is not defined.
    """
    pairs = [(value, i, j) for i, j in combinations(range(len(names)), 2) if (value := matrix[i][j]) is not None]
    pairs.sort(key=lambda pair: -abs(pair[0]))
    kept = sorted(_strongest(pairs))
    heads = "".join(f'<th scope="col"><span>{html(_clip(names[i]))}</span></th>' for i in kept)
    lines = "".join(
        f'<tr><th scope="row">{html(_clip(names[i]))}</th>'
        + "".join(_cell(matrix[i][j], f"{names[i]}, {names[j]}") for j in kept)
        + "</tr>"
        for i in kept
    )
    left = len(names) - len(kept)
    note = f'<p class="note">{left} more features vary too little, or correlate less; they are in the JSON.</p>'
    drawn = Html(
        '<div class="scroll" tabindex="0" role="group" aria-label="correlations"><table class="heat">'
        f"<thead><tr><td></td>{heads}</tr></thead><tbody>{lines}</tbody></table></div>{note if left else ''}"
    )
    rows = [
        [join([names[i], " · ", names[j]]), value, bar(abs(value), kind="info" if value > 0 else "bad", width=90)]
        for value, i, j in pairs[:_PAIRS]
    ]
    shown = table(["features", TableColumn("r", numeric=True), "strength"], rows, empty="no pair has a coefficient")
    return join([drawn, details("strongest pairs", shown)])


def _strongest(pairs: Sequence[tuple[float, int, int]]) -> set[int]:
    kept: set[int] = set()
    for _, i, j in pairs:
        if len(kept | {i, j}) > _MOST_CORRELATED:
            break
        kept |= {i, j}
    return kept


def _cell(value: float | None, label: str) -> str:
    if value is None:
        return f'<td title="{html(label)}: none">·</td>'
    strength = round(abs(value) * 75)
    ink = "--warm" if value < 0 else "--ink"
    style = f"background:color-mix(in srgb,var({ink}) {strength}%,transparent)"
    return f'<td style="{style}" title="{html(label)}: {number(value)}">{value:.2f}</td>'


def _clip(name: str) -> str:
    return name if len(name) <= 18 else name[:17] + "…"
