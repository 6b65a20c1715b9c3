"""Row-level differences as a page: the features that differ first, what became what, and rows that show it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from .html import (
    Html,
    TableColumn,
    badge,
    bar,
    details,
    figures,
    histogram,
    join,
    number,
    page,
    percent,
    section,
    table,
)

_KEYS: Final = {
    "only_in_base": "only in the base data",
    "only_in_test": "only in the test data",
    "duplicate_keys": "in several rows of a side",
}
_CONFUSED: Final = 20  # pairs of values shown; all are in the JSON


def example_diff_page(document: Mapping[str, Any], *, title: str = "Differences of rows") -> str:
    """A self-contained page.

    Args:
        document: `ExamplesDiff.document`.
        title: The heading.
    """
    odd = sum(pair["counts"]["different_pairs"] for pair in document["pairs"])
    every = sum(pair["counts"]["pairs"] for pair in document["pairs"])
    mark = badge("no pairs", "warn") if not every else badge("all equal", "good")
    if odd:
        mark = badge(f"{number(odd)} pairs differ", "bad")
    line = f"rows are paired by {', '.join(document['key'])}"
    if document["float_digits"] is not None:
        line += f"; floats are rounded to {document['float_digits']} decimals"
    return page(title, join(_pair(pair) for pair in document["pairs"]), subtitle=line, badges=[mark])


def _pair(pair: Mapping[str, Any]) -> Html:
    counts = pair["counts"]
    head = figures(
        {
            "pairs of rows": counts["pairs"],
            "that differ": counts["different_pairs"],
            "keys only in base": counts["only_in_base"],
            "keys only in test": counts["only_in_test"],
            "keys in several rows": counts["duplicate_keys"],
            "rows without a key": counts["base_without_key"] + counts["test_without_key"],
        }
    )
    ordered = sorted(pair["features"], key=lambda feature: -_different(feature))
    columns: list[TableColumn | str] = [
        "feature",
        TableColumn("differ", numeric=True),
        TableColumn("mismatch", numeric=True),
        TableColumn("only base", numeric=True),
        TableColumn("only test", numeric=True),
        "difference",
        "what became what",
        "rows",
    ]
    features = table(columns, [_row(feature, counts["pairs"]) for feature in ordered])
    samples = [
        details(f"keys {text} ({number(counts[name])})", _keys(pair["key_samples"][name]))
        for name, text in _KEYS.items()
        if pair["key_samples"][name]
    ]
    return section(
        f"{pair['base']} against {pair['test']}",
        join([head, features, *samples]),
        note=f"{number(counts['base_rows'])} rows against {number(counts['test_rows'])}; features that differ first",
    )


def _different(feature: Mapping[str, Any]) -> int:
    return int(feature["mismatches"] + feature["base_only"] + feature["test_only"])


def _row(feature: Mapping[str, Any], pairs: int) -> list[object]:
    share = _different(feature) / pairs if pairs else 0.0
    name: list[object] = [Html("<b>"), feature["name"], Html("</b><br>")]
    name.append(badge(feature["base_type"] or feature["test_type"]))
    if feature["status"] != "compared":
        name += [" ", badge(feature["status"], "warn")]
    if feature["status"] == "type changed":
        name += [Html('<br><span class="soft">'), f"{feature['base_type']} → {feature['test_type']}", Html("</span>")]
    differ = join([percent(share), Html("<br>"), bar(share, kind="bad" if share else "plain", width=60)])
    counts = [feature[column] for column in ("mismatches", "base_only", "test_only")]
    return [join(name), differ, *counts, _change(feature), _confusion(feature), _samples(feature["samples"])]


def _change(feature: Mapping[str, Any]) -> Html:
    change = feature["difference"]
    if change is None:
        return Html("")
    about = "" if change["exact"] else "≈ "
    text = f"{about}{number(change['median'])} ({number(change['min'])} to {number(change['max'])})"
    buckets = [(bucket["low"], bucket["high"], bucket["count"]) for bucket in change["histogram"]]
    return details(text, join([Html('<p class="note">test − base, median and ends</p>'), histogram(buckets)]))


def _confusion(feature: Mapping[str, Any]) -> Html:
    odd = [item for item in feature["confusion"] or () if item["base"] != item["test"]]
    if not odd:
        return Html("")
    rows = [[_value(item["base"]), _value(item["test"]), item["count"]] for item in odd[:_CONFUSED]]
    first = join([_value(odd[0]["base"]), " → ", _value(odd[0]["test"]), f": {number(odd[0]['count'])}"])
    return details(first, table(["base", "test", TableColumn("rows", numeric=True)], rows))


def _samples(samples: Sequence[Mapping[str, Any]]) -> Html:
    if not samples:
        return Html("")
    rows = [[_key(item["key"]), _value(item["base"]), _value(item["test"])] for item in samples]
    return details("examples", table(["key", "base", "test"], rows))


def _keys(samples: Sequence[Mapping[str, Any]]) -> Html:
    rows = [[_key(item["key"]), item["base_rows"], item["test_rows"]] for item in samples]
    return table(["key", TableColumn("base rows", numeric=True), TableColumn("test rows", numeric=True)], rows)


def _key(key: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in key.items())


def _value(value: object) -> object:
    if value is None:
        return Html('<span class="soft">missing</span>')
    return repr(value) if isinstance(value, str) else value if isinstance(value, (int, float)) else str(value)
