"""A statistics document cut down to what its page draws: short, by feature, with what features are sorted by."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from .distance import distance
from .html import number, percent

_TEXTS: Final = frozenset({"string", "bytes", "bool"})
_TIMES: Final = frozenset({"timestamp", "date", "time"})
_LONGEST: Final = 80  # characters of a value
_TOP: Final = 10  # most frequent values of texts, and
_FEW: Final = 5  # of numbers
_SLICES: Final = 24  # slices that a page holds, and
_CELLS: Final = 12_000  # features of all its data sets and slices
_SAID: Final = {"unique": "distinct", "top_values": "frequent values"}


def page_data(document: Mapping[str, Any], distances: Mapping[str, float] | None = None) -> dict[str, Any]:
    """`{"sets": [{"name", "rows", …}], "features": [{"name", "type", "group", "sort", "sets": [per set]}], "left"}`.

    Args:
        document: `Statistics.document`.
        distances: How far a feature is from the first data set, where that is known already.
    """
    chosen, left = _chosen(document["datasets"])
    flat = [dict(_flat(dataset["features"])) for dataset, _ in chosen]
    names = dict.fromkeys(name for features in flat for name in features)
    sets = []
    for index, (dataset, is_slice) in enumerate(chosen):
        said = {"name": dataset["name"], "rows": dataset["rows"], "slice": is_slice}
        if "weighted_rows" in dataset:
            said["weighted"] = _short(dataset["weighted_rows"])
        if "quantile_levels" in dataset:
            said["levels"] = dataset["quantile_levels"]
        sets.append(said | {"on": not is_slice and index < 6})
    whole = len(document["datasets"])
    compared = whole if whole > 1 else len(sets)  # of one data set, its slices
    features = [
        _feature(
            name,
            [(side.get(name), dataset["rows"]) for side, dataset in zip(flat, sets, strict=True)],
            compared,
            distances,
        )
        for name in names
    ]
    return {"sets": sets, "features": features, "left": left}


def _chosen(datasets: Sequence[Mapping[str, Any]]) -> tuple[list[tuple[Mapping[str, Any], bool]], int]:
    """The data sets, then their largest slices as far as a page holds them; and how many slices it does not."""
    slices = [
        ({**part, "name": f"{dataset['name']} [{part['name']}]"}, len(part["features"]))
        for dataset in datasets
        for part in dataset.get("slices", ())
    ]
    room = _CELLS - sum(len(dataset["features"]) for dataset in datasets)
    kept = []
    for part, size in sorted(slices, key=lambda item: -item[0]["rows"])[:_SLICES]:
        if size <= room:
            kept.append(part)
            room -= size
    return [(dataset, False) for dataset in datasets] + [(part, True) for part in kept], len(slices) - len(kept)


def _flat(features: Iterable[Mapping[str, Any]], path: str = "") -> Iterable[tuple[str, Mapping[str, Any]]]:
    """Every feature; fields of structs and lists within lists by their path."""
    for feature in features:
        name = path + str(feature.get("name", "items"))
        yield name, feature
        if "fields" in feature:
            yield from _flat(feature["fields"], f"{name} › ")
        values = feature.get("values")
        while values and values.get("type") == "list":
            name = f"{name} › items"
            yield name, values
            values = values.get("values")
        if values and "fields" in values:
            yield from _flat(values["fields"], f"{name} › ")


def _feature(
    name: str,
    sides: Sequence[tuple[Mapping[str, Any] | None, int]],
    compared: int,
    distances: Mapping[str, float] | None,
) -> dict[str, Any]:
    first = next(side for side, _ in sides if side is not None)
    values = first.get("values") if first["type"] == "list" else None
    kind = values["type"] if values and values["type"] != "list" else first["type"]
    descriptions = [None if side is None else _side_data(side) for side, _ in sides]
    present = [
        (description, rows)
        for description, (_, rows) in zip(descriptions, sides, strict=True)
        if description is not None
    ]
    sort: dict[str, float | None] = {
        "missing": max((description["missing"] / rows for description, rows in present if rows), default=0.0),
        "skew": max((s for side, _ in sides if side and (s := skewness(side)) is not None), default=None),
        "zeros": max(
            (
                _plain(description["zeros"]) / description["count"]
                for description, _ in present
                if description.get("zeros") and description["count"]
            ),
            default=None,
        ),
    }
    if distances is not None:
        sort["drift"] = distances.get(name)
    elif compared > 1:
        base = sides[0]
        far = [distance(base, side) for side in sides[1:compared]]
        sort["drift"] = max((value for value in far if value is not None), default=None)
    return {
        "name": name,
        "type": f"list of {values['type']}" if values else first["type"],
        "group": _group(kind, first),
        "sort": {key: _short(value) for key, value in sort.items() if value is not None},
        "sets": descriptions,
    }


def _group(kind: str, feature: Mapping[str, Any]) -> str:
    if kind in _TEXTS:
        return "text"
    if kind in _TIMES:
        return "time"
    described = feature.get("values") or feature
    return "numeric" if "mean" in described else "other"


def _side_data(feature: Mapping[str, Any]) -> dict[str, Any]:
    """One data set's description of one feature, cut down to what is drawn; a list's is that of its items."""
    values = feature.get("values") if feature["type"] == "list" else None
    described = values if values and values["type"] != "list" else feature
    described_set: dict[str, Any] = {"count": feature["count"], "missing": feature["missing"], **_numbers(described)}
    if described is not feature:
        described_set["items"] = described["count"]
    if "lengths" in feature:
        described_set["lengths"] = _numbers(feature["lengths"])
    if weighted := feature.get("weighted"):
        inner = weighted["values"] if described is not feature and "values" in weighted else weighted
        described_set["weighted"] = {key: _short(weighted[key]) for key in ("count", "missing")} | _numbers(inner)
        if "items" in described_set:
            described_set["weighted"]["items"] = _short(inner["count"])
    if images := described.get("images"):  # rather than bytes that say nothing
        described_set["top"] = [[item["value"], item["count"]] for item in images["formats"]]
    if notes := _notes(described, feature):
        described_set["notes"] = notes
    return described_set


def _numbers(feature: Mapping[str, Any]) -> dict[str, Any]:
    keys = (("mean",) * 2, ("std",) * 2, ("zeros",) * 2, ("min",) * 2, ("median",) * 2, ("max",) * 2,
            ("unique",) * 2, ("avg_length", "length"))  # fmt: skip
    numbers: dict[str, Any] = {}
    for key, short in keys:
        entry = feature.get(key)
        if entry is not None and entry["value"] is not None:
            value = _short(entry["value"])
            numbers[short] = value if entry["exact"] else [value]
    if buckets := feature.get("histogram", {}).get("value"):
        numbers["edges"] = [_short(bucket["low"]) for bucket in buckets] + [_short(buckets[-1]["high"])]
        numbers["counts"] = [_short(bucket["count"]) for bucket in buckets]
    if spread := feature.get("quantiles", {}).get("value"):
        # Of decimals those that no float64 holds are text.
        numbers["quantiles"] = [
            _short(float(quantile) if feature.get("type") == "float" else quantile) for quantile in spread
        ]
    if top := feature.get("top_values", {}).get("value"):
        numbers["top"] = [[_short(item["value"]), _short(item["count"])] for item in top[: _FEW if buckets else _TOP]]
    return numbers


def _notes(feature: Mapping[str, Any], whole: Mapping[str, Any]) -> list[str]:
    said = []
    for key, label in (("nan", "NaN"), ("positive_infinity", "+∞"), ("negative_infinity", "−∞")):
        if feature.get(key):
            said.append(f"{number(feature[key])} {label}, apart from the numbers shown")
    if broken := feature.get("invalid_utf8", {}).get("value"):
        said.append(f"{number(broken)} values are not UTF-8")
    if images := feature.get("images"):
        sides = [f"{side} {images[f'min_{side}']} to {images[f'max_{side}']}" for side in ("width", "height")
                 if f"max_{side}" in images]  # fmt: skip
        said.append(
            f"formats of images; {', '.join([*sides, 'pixels as headers say'])}" if sides else "formats of images"
        )
    if whole.get("semantic"):
        said.append("looks like " + ", ".join(f"{key}: {value}" for key, value in whole["semantic"].items()))
    rough: dict[tuple[str, float], list[str]] = {}
    for key, entry in feature.items():
        if isinstance(entry, Mapping) and entry.get("exact") is False:
            rough.setdefault((entry["method"], entry["error"]), []).append(_SAID.get(key, key))
    said += [f"≈ {', '.join(keys)}: {_error(*precision)}" for precision, keys in rough.items()]
    return said


def _error(method: str, error: float) -> str:
    if method == "hyperloglog":
        return f"standard error {percent(error)}"
    if method == "misra-gries":
        return f"a value may be short of up to {number(error)} rows"
    return f"within {percent(error)} of the rows in rank" if method == "compaction" else f"error {number(error)}"


def skewness(feature: Mapping[str, Any]) -> float | None:
    """How lopsided a feature is, 0 and up; None where it is not defined.

    Of numbers, Pearson's second coefficient |3 (mean − median) / std|; of texts, 1 − entropy / log(distinct), with what
    is not among the top values spread evenly over the other distinct values.
    """
    if feature["type"] == "list" and "values" in feature:
        return skewness(feature["values"])
    if "mean" in feature and feature["type"] != "bool":
        mean, std, median = (feature[key]["value"] for key in ("mean", "std", "median"))
        if mean is None or not std or (isinstance(median, str) and feature["type"] != "float"):
            return None
        skew: float = abs(3 * (mean - float(median)) / std)
        return skew if math.isfinite(skew) else None
    top = feature.get("top_values", {}).get("value")
    distinct = feature.get("unique", {}).get("value") or 0
    if not top or not feature["count"]:
        return None
    if distinct < 2:
        return 1.0
    shares = [item["count"] / feature["count"] for item in top]
    rest, others = max(1.0 - sum(shares), 0.0), max(distinct - len(top), 0)
    entropy = -sum(share * math.log(share) for share in shares if share > 0)
    if rest > 0 and others:
        entropy -= rest * math.log(rest / others)
    uneven: float = 1.0 - entropy / math.log(distinct)
    return min(max(uneven, 0.0), 1.0)


def _plain(value: Any) -> Any:
    return value[0] if isinstance(value, list) else value


def _short(value: Any) -> Any:
    """What a page shows of a value: six digits of a float, the start of a long text."""
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else str(value)
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 1 << 53:
        return f"{value:,}"  # JavaScript's numbers would round it
    if isinstance(value, str) and len(value) > _LONGEST:
        return value[: _LONGEST - 1] + "…"
    return value
