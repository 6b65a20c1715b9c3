"""Drift as a page: what moved first, then every feature of every pair of data sets, drawn as it scrolls into view."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from .explorer import Choice, explorer
from .html import Html, TableColumn, badge, details, figures, join, number, page, percent, section, table
from .script_drift import SCRIPT

_SHOWN: Final = (
    ("jensen_shannon_quantiles", "JSD"),
    ("psi", "PSI"),
    ("l_infinity", "L∞"),
    ("wasserstein", "Wasserstein / σ"),
    ("test", "test"),
    ("missing_rate", "missing"),
)
_CORRECTIONS: Final = {"bh": "Benjamini–Hochberg", "holm": "Holm", "none": "none"}
_LONGEST: Final = 60  # characters of a value
_MOVED: Final = 4  # values
_CLOCK: Final = re.compile(r"(?<=\d)T\d\d:[\d:.]*Z?")
_STATIC: Final = 200  # features of the table for readers without scripts


def drift_page(
    document: Mapping[str, Any], *, title: str = "Drift", passed: bool | None = None, summary: str = ""
) -> str:
    """A self-contained page; its view can be linked, as `#sort=psi&search=delay&drifted=1`.

    Args:
        document: `DriftReport.to_dict()`.
        title: The heading.
        passed: What a gate decided, if one did.
        summary: One line below the heading.
    """
    pairs = document["pairs"]
    data = _data(pairs)
    features = data["features"]
    drifted = sum(feature["drifted"] for feature in features)
    rough = any(not measure["exact"] for measure in _measures(pairs))
    marks = [badge(f"{drifted} drifted", "bad") if drifted else badge("nothing drifted", "good")]
    if passed is not None:
        marks = [badge("passed", "good") if passed else badge("blocked", "bad"), *marks]
    numbers = {
        "features compared": len(features),
        "drifted": drifted,
        "correction for many tests": _CORRECTIONS[document["correction"]],
    }
    sorts = {"drifted": "drifted first", "schema": "schema order", "name": "name"}
    sorts |= {key: label for key, label in _SHOWN if key != "test"} | {"test": "test's effect"}
    choices = [Choice("sort", "Sort by", sorts), Choice("drifted", "only drifted")]
    groups = {str(index): _headline(pair) for index, pair in enumerate(pairs)}
    body: list[object] = [
        figures(numbers),
        details("What the columns say", _legend(document["alpha"], rough=rough)),
        explorer(choices, groups, [feature["group"] for feature in features], _static(features)),
    ]
    if document["unpaired"]:
        body.append(section("Not compared", ", ".join(document["unpaired"]), note="data sets without a partner"))
    return page(title, join(body), subtitle=summary, badges=marks, data=data, script=SCRIPT)


def _headline(pair: Mapping[str, Any]) -> str:
    current, previous = pair["current"], pair["previous"]
    rows = f"{number(current['rows'])} rows against {number(previous['rows'])}"
    before, now = _sides(pair)
    return f"{now} against {before}: {rows}"


def _measures(pairs: Sequence[Mapping[str, Any]]) -> Iterable[Mapping[str, Any]]:
    return (measure for pair in pairs for feature in pair["features"] for measure in feature["measures"])


def _data(pairs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """`{"measures": titles, "pairs": [[previous, current]], "features": [...]}` as the script draws them."""
    return {
        "measures": [label for _, label in _SHOWN],
        "pairs": [_sides(pair) for pair in pairs],
        "features": [_feature(feature, str(index)) for index, pair in enumerate(pairs) for feature in pair["features"]],
    }


def _sides(pair: Mapping[str, Any]) -> list[str]:
    names = [pair["previous"]["name"], pair["current"]["name"]]
    return names if names[0] != names[1] else ["previous", "current"]


def _feature(feature: Mapping[str, Any], group: str) -> dict[str, Any]:
    measures = {measure["name"]: measure for measure in feature["measures"]}
    cells = [_cell(measures, name, feature) for name, _ in _SHOWN]
    sort = {name: cell["value"] for (name, _), cell in zip(_SHOWN, cells, strict=True) if cell}
    kind = (feature["current"] or feature["previous"])["type"]
    far = sort.get("jensen_shannon_quantiles") or 0.0
    return {
        "name": feature["name"],
        "group": group,
        "type": kind,
        "status": feature["status"],
        "drifted": bool(feature["drifted"]),
        "reason": feature["reason"],
        "sort": sort | {"drifted": far + 2 * bool(feature["drifted"])},
        "measures": cells,
        "moved": [
            [_value(item["value"], kind), _short(item["previous"]), _short(item["current"])]
            for item in feature["moved"][:_MOVED]
        ],
    }


def _cell(measures: Mapping[str, Mapping[str, Any]], name: str, feature: Mapping[str, Any]) -> dict[str, Any] | None:
    if name == "test":
        tests = (measures.get(test) for test in ("kolmogorov_smirnov", "chi_squared"))
        measure = next((test for test in tests if test and test["value"] is not None), None)
    else:
        measure = measures.get(name)
    if measure is None or measure["value"] is None:
        return None
    value = measure.get("effect") if name in ("test", "wasserstein") else measure["value"]
    if value is None:
        return None
    cell: dict[str, Any] = {"value": _short(value), "exact": measure["exact"]}
    if name == "test":
        cell["text"] = f"{measure['effect_name']} {number(value)}"
    if name == "missing_rate":
        cell["text"] = " → ".join(_missing(feature[side]) for side in ("previous", "current"))
    if name in ("test", "missing_rate") and (p_value := measure.get("adjusted_p")) is not None:
        cell["p"] = "p < 1e-300" if p_value < 1e-300 else f"p = {p_value:.2g}"
    return cell


def _value(value: object, kind: str) -> str:
    text = _CLOCK.sub("", str(value)) if kind == "timestamp" else str(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _short(value: float) -> float:
    return float(f"{value:.5g}")


def _missing(side: Mapping[str, Any]) -> str:
    return percent((side["missing"] + side["nan"]) / side["rows"]) if side["rows"] else ""


def _static(features: Sequence[Mapping[str, Any]]) -> Html:
    """What stands there without scripts: drifted features first."""
    ordered = sorted(features, key=lambda feature: -feature["sort"]["drifted"])[:_STATIC]
    columns = [
        TableColumn("feature"),
        TableColumn("drifted"),
        *(TableColumn(label, numeric=True) for _, label in _SHOWN),
    ]
    columns.append(TableColumn("what moved most"))
    rows = [
        [
            feature["name"],
            feature["reason"],
            *(cell and cell.get("text", cell["value"]) for cell in feature["measures"]),
            next((f"{value}: {percent(old)} → {percent(new)}" for value, old, new in feature["moved"]), ""),
        ]
        for feature in ordered
    ]
    left = len(features) - len(ordered)
    note = Html(f'<p class="note">{number(left)} more features are shown with scripts.</p>') if left else ""
    return join([table(columns, rows), note])


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
