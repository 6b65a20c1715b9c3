"""Statistics as a page: numbers with their histograms, text with its frequent values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .html import Column, Html, badge, bars, figures, histogram, html, join, number, page, percent, section, table


def statistics_page(document: Mapping[str, Any], *, title: str = "Statistics") -> str:
    """A self-contained page.

    Args:
        document: `{"datasets": [{"name", "rows", "features": [{"name", "type", "count", "missing", …}]}]}`, numbers as
            `{"value", "exact"}`.
        title: The heading.
    """
    datasets = document["datasets"]
    features = max((len(dataset["features"]) for dataset in datasets), default=0)
    head = figures({f"rows in {dataset['name']}": dataset["rows"] for dataset in datasets} | {"features": features})
    parts = [section(dataset["name"], _dataset(dataset), note=_note(dataset)) for dataset in datasets]
    return page(title, join([head, *parts]))


def _note(dataset: Mapping[str, Any]) -> str:
    rough = [feature["name"] for feature in dataset["features"] if not is_exact(feature)]
    if not rough:
        return f"{number(dataset['rows'])} rows; every number is exact."
    return f"{number(dataset['rows'])} rows; numbers marked ≈ are estimates: {', '.join(rough)}."


def is_exact(feature: Mapping[str, Any]) -> bool:
    """Whether every number of a feature is exact."""
    return all(item.get("exact", True) for item in feature.values() if isinstance(item, Mapping))


def _dataset(dataset: Mapping[str, Any]) -> Html:
    rows = dataset["rows"]
    numbers = [feature for feature in dataset["features"] if "mean" in feature and feature["type"] != "bool"]
    texts = [feature for feature in dataset["features"] if "avg_length" in feature or feature["type"] == "bool"]
    times = [feature for feature in dataset["features"] if feature["type"] in ("timestamp", "date", "time")]
    known = {feature["name"] for feature in (*numbers, *texts, *times)}
    others = [feature for feature in dataset["features"] if feature["name"] not in known]
    parts = []
    columns: list[Column | str]
    if numbers:
        columns = [
            "feature",
            *_numeric("missing", "mean", "std", "zeros", "min", "median", "max", "distinct"),
            "values",
        ]
        parts.append(table(columns, [_number_row(feature, rows) for feature in numbers]))
    if texts:
        columns = ["feature", *_numeric("missing", "distinct", "length"), "most frequent"]
        parts.append(table(columns, [_text_row(feature, rows) for feature in texts]))
    if times:
        columns = ["feature", *_numeric("missing", "distinct"), "first", "median", "last", "values"]
        parts.append(table(columns, [_time_row(feature, rows) for feature in times]))
    if others:
        columns = ["feature", *_numeric("missing"), "lengths"]
        parts.append(table(columns, [_other_row(feature, rows) for feature in others]))
    return join(parts)


def _numeric(*titles: str) -> list[Column]:
    return [Column(title, numeric=True) for title in titles]


def _name(feature: Mapping[str, Any]) -> Html:
    return join([Html("<b>"), feature["name"], Html("</b><br>"), badge(feature["type"])])


def _missing(feature: Mapping[str, Any], rows: int) -> Html:
    share = feature["missing"] / rows if rows else 0.0
    parts: list[object] = [percent(share)]
    for key, label in (("nan", "NaN"), ("positive_infinity", "+∞"), ("negative_infinity", "−∞")):
        if feature.get(key):
            parts += [Html('<br><span class="warn">'), f"{number(feature[key])} {label}", Html("</span>")]
    if feature.get("invalid_utf8", {}).get("value"):
        parts += [
            Html('<br><span class="warn">'),
            f"{number(feature['invalid_utf8']['value'])} not UTF-8",
            Html("</span>"),
        ]
    css = ' class="bad"' if share > 0.2 else ""
    return join([Html(f"<span{css}>"), *parts, Html("</span>")])


def shown(entry: Mapping[str, Any] | None) -> Html:
    """A `{"value", "exact"}` number, marked ≈ where it is an estimate."""
    if entry is None or entry["value"] is None:
        return Html("")
    return join(["" if entry["exact"] else "≈ ", html(entry["value"])])


def _histogram(feature: Mapping[str, Any]) -> Html:
    buckets = [(bucket["low"], bucket["high"], bucket["count"]) for bucket in feature["histogram"]["value"]]
    return histogram([(_brief(low), _brief(high), count) for low, high, count in buckets])


def _brief(edge: object) -> object:
    return str(edge)[:10] if isinstance(edge, str) and "T" in edge else edge


def _number_row(feature: Mapping[str, Any], rows: int) -> Sequence[object]:
    keys = ("mean", "std", "zeros", "min", "median", "max", "unique")
    return [_name(feature), _missing(feature, rows), *(shown(feature[key]) for key in keys), _histogram(feature)]


def _text_row(feature: Mapping[str, Any], rows: int) -> Sequence[object]:
    pairs = [(item["value"], item["count"]) for item in feature["top_values"]["value"]]
    length = shown(feature.get("avg_length"))
    return [_name(feature), _missing(feature, rows), shown(feature["unique"]), length, bars(pairs, limit=5)]


def _time_row(feature: Mapping[str, Any], rows: int) -> Sequence[object]:
    times = (shown(feature[key]) for key in ("min", "median", "max"))
    return [_name(feature), _missing(feature, rows), shown(feature["unique"]), *times, _histogram(feature)]


def _other_row(feature: Mapping[str, Any], rows: int) -> Sequence[object]:
    lengths = feature.get("lengths")
    if not lengths or lengths["min"]["value"] is None:
        return [_name(feature), _missing(feature, rows), ""]
    text = join([shown(lengths["min"]), " to ", shown(lengths["max"]), ", mean ", shown(lengths["mean"])])
    return [_name(feature), _missing(feature, rows), text]
