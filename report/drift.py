"""Drift as a page: what moved first, then every feature of every pair of data sets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .html import Column, Html, badge, bar, details, figures, html, join, number, page, percent, section, table

_SHOWN = (
    ("jensen_shannon_quantiles", "JSD"),
    ("psi", "PSI"),
    ("l_infinity", "L∞"),
    ("wasserstein", "Wasserstein / σ"),
    ("test", "test"),
    ("missing_rate", "missing"),
)


def drift_page(document: Mapping[str, Any], *, title: str = "Drift") -> str:
    """A self-contained page.

    Args:
        document: `DriftReport.to_dict()`.
        title: The heading.
    """
    pairs = document["pairs"]
    compared = sum(len(pair["features"]) for pair in pairs)
    drifted = sum(feature["drifted"] for pair in pairs for feature in pair["features"])
    rough = any(not measure["exact"] for measure in _measures(pairs))
    mark = badge(f"{drifted} drifted", "bad") if drifted else badge("nothing drifted", "good")
    numbers = {"features compared": compared, "drifted": drifted, "correction": _CORRECTIONS[document["correction"]]}
    body: list[object] = [figures(numbers)]
    for pair in pairs:
        head = f"{pair['current']['name']} against {pair['previous']['name']}"
        rows = f"{number(pair['current']['rows'])} rows against {number(pair['previous']['rows'])}"
        body.append(section(head, _pair(pair["features"]), note=rows + "; drifted features first"))
    if document["unpaired"]:
        body.append(section("Not compared", ", ".join(document["unpaired"]), note="data sets without a partner"))
    body.append(section("What the columns say", _legend(document["alpha"], rough=rough)))
    return page(title, join(body), badges=[mark])


_CORRECTIONS = {"bh": "Benjamini–Hochberg", "holm": "Holm", "none": "none"}


def _measures(pairs: Sequence[Mapping[str, Any]]) -> Iterable[Mapping[str, Any]]:
    return (measure for pair in pairs for feature in pair["features"] for measure in feature["measures"])


def _pair(features: Sequence[Mapping[str, Any]]) -> Html:
    columns = [Column("feature"), *(Column(label, numeric=True) for _, label in _SHOWN), Column("what moved")]
    ordered = sorted(features, key=lambda feature: not feature["drifted"])
    return table(columns, [_row(feature) for feature in ordered])


def _row(feature: Mapping[str, Any]) -> list[object]:
    measures = {measure["name"]: measure for measure in feature["measures"]}
    kind = (feature["current"] or feature["previous"])["type"]
    parts: list[object] = [Html("<b>"), feature["name"], Html("</b><br>"), badge(kind)]
    if feature["status"] != "compared":
        parts += [" ", badge(feature["status"], "warn")]
    if feature["drifted"]:
        parts += [" ", badge("drifted", "bad"), Html('<br><span class="soft">'), feature["reason"], Html("</span>")]
    cells = [_cell(measures, name, feature) for name, _ in _SHOWN]
    return [join(parts), *cells, _moved(feature["moved"])]


def _cell(measures: Mapping[str, Mapping[str, Any]], name: str, feature: Mapping[str, Any]) -> Html:
    if name == "test":
        found = [measures[test] for test in ("kolmogorov_smirnov", "chi_squared") if test in measures]
        return join([_test(test) for test in found if test["value"] is not None], Html("<br>"))
    measure = measures.get(name)
    if measure is None or measure["value"] is None:
        return Html("")
    value: object = measure["value"]
    if name == "missing_rate":
        shares = [_missing(feature[side]) for side in ("previous", "current")]
        return join([shares[0], " → ", shares[1], *_significance(measure)])
    if name == "wasserstein":
        value = measure.get("effect")
    return join(["" if measure["exact"] else "≈ ", html(value)])


def _test(measure: Mapping[str, Any]) -> Html:
    about = "" if measure["exact"] else "≈ "
    return join([measure["effect_name"], " ", about, number(measure["effect"]), *_significance(measure)])


def _significance(measure: Mapping[str, Any]) -> list[object]:
    p_value = measure.get("adjusted_p")
    if p_value is None:
        return []
    text = "p < 1e-300" if p_value < 1e-300 else f"p = {p_value:.2g}"
    return [Html('<br><span class="soft">'), text, Html("</span>")]


def _missing(side: Mapping[str, Any]) -> str:
    return percent((side["missing"] + side["nan"]) / side["rows"]) if side["rows"] else ""


def _moved(items: Sequence[Mapping[str, Any]]) -> Html:
    if not items:
        return Html("")
    rows = [
        [
            item["value"],
            join([percent(item["previous"]), " → ", percent(item["current"])]),
            join([bar(item["previous"], width=60), Html("<br>"), bar(item["current"], kind="info", width=60)]),
        ]
        for item in items
    ]
    first = items[0]
    head = join([html(first["value"]), f": {percent(first['previous'])} → {percent(first['current'])}"])
    return details(head, table(["value", Column("share", numeric=True), "previous, current"], rows))


def _legend(alpha: float, *, rough: bool) -> Html:
    lines = [
        "JSD: Jensen–Shannon divergence in bits, 0 to 1, over values or cells of equal mass, which no outlier moves.",
        "PSI: population stability index over tenths of the control; below 0.1 little, above 0.25 much has changed.",
        "L∞: largest change of the share of one value or cell.",
        "Wasserstein / σ: how far numbers moved on average, in standard deviations of the control.",
        f"Tests: p-values are corrected for all tests of a pair; below {alpha:g} is significant. D, V and Cohen's h "
        "say how large the change is, whatever the number of rows.",
        "Missing: rows that are null or NaN, control → current.",
    ]
    if rough:
        lines.append("≈: from sketches, because a column has too many distinct values for an exact table.")
    return join([join([Html("<p>"), line, Html("</p>")]) for line in lines])
