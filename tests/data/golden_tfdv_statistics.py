"""TFDV 1.16's statistics of single columns, each also counted by hand or numpy."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from drivetrain.data.aggregates.tables import NumberTable, histogram, quantiles


def check_column(ours: dict[str, Any], theirs: dict[str, Any], values: list[Any], table: Any) -> None:
    """Numbers that TFDV has right are equal; the others equal numpy's or a count."""
    common = _part(theirs)["common_stats"]
    assert ours["count"] == int(common.get("num_non_missing", 0)) == len(values)
    assert ours["missing"] == int(common.get("num_missing", 0))
    _check_values(ours, theirs, values, table)


def check_lists(ours: dict[str, Any], theirs: dict[str, Any], rows: list[Any], table: Any) -> None:
    """Presence and numbers of values by level, then the values themselves."""
    common = _part(theirs)["common_stats"]
    nested = common.get("presence_and_valency_stats") or [common]
    level, values, per_row = 0, ours, [[row] for row in rows if row is not None]
    while "lengths" in values:
        present = [row for row in rows if row is not None]
        lengths = [len(row) for row in present]
        assert values["count"] == len(present)
        assert values["missing"] == len(rows) - len(present)
        _check_lengths(values["lengths"], lengths)
        if level < len(nested):
            said = nested[level]
            assert len(present) == int(said.get("num_non_missing", 0))
            assert len(rows) - len(present) == int(said.get("num_missing", 0))
            if lengths:
                ends = int(said.get("min_num_values", 0)), int(said.get("max_num_values", 0))
                assert ends == (min(lengths), max(lengths))
            assert sum(lengths) == int(said.get("tot_num_values", 0))
        rows = [item for row in present for item in row]
        per_row = [[item for part in parts if part is not None for item in part] for parts in per_row]
        level, values = level + 1, values["values"]
    assert level == len(nested)
    # Of nested lists TFDV's own numbers are of the innermost values of a row.
    sizes = [len(items) for items in per_row]
    assert sum(sizes) == int(common.get("tot_num_values", 0)) == values["count"] + values["missing"]
    if sizes:
        assert sum(sizes) / len(sizes) == pytest.approx(common.get("avg_num_values", 0), rel=1e-6)
        assert (values["count"] + values["missing"]) / ours["count"] == pytest.approx(np.mean(sizes))
        assert (min(sizes), max(sizes)) == tuple(int(common.get(f"{end}_num_values", 0)) for end in ("min", "max"))
        buckets = common["num_values_histogram"]["buckets"]
        assert sum(bucket.get("sample_count", 0) for bucket in buckets) == pytest.approx(len(sizes), rel=1e-3)
        assert (_ends(buckets[0])[0], _ends(buckets[-1])[1]) == (min(sizes), max(sizes))
    found = [value for value in rows if value is not None]
    assert (values["count"], values["missing"]) == (len(found), len(rows) - len(found))
    _check_values(values, theirs, found, table)


def _check_lengths(ours: dict[str, Any], lengths: list[int]) -> None:
    """Numbers of values per list: numpy's, exact, where TFDV's histogram is of a sketch."""
    assert ours["unique"]["value"] == len(set(lengths))
    if not lengths:
        assert ours["mean"]["value"] is None
        return
    names: dict[str, Any] = {"mean": np.mean, "std": np.std, "min": np.min, "max": np.max, "median": np.median}
    assert {name: ours[name]["value"] for name in names} == pytest.approx(
        {name: find(lengths) for name, find in names.items()}
    )
    check_histogram(ours["histogram"]["value"], np.asarray(lengths, np.float64))
    assert ours["quantiles"]["value"] == pytest.approx(np.quantile(lengths, np.linspace(0, 1, 11)))


def check_histogram(buckets: list[dict[str, Any]], values: Any) -> None:
    """numpy's histogram; equal values are in one bucket of no width. Buckets of whole numbers are whole."""
    if values.min() == values.max():
        assert buckets == [{"low": values[0], "high": values[0], "count": len(values)}]
        return
    counts, edges = np.histogram(values, edges_of(buckets, values))
    assert [bucket["count"] for bucket in buckets] == counts.tolist()
    assert [bucket["low"] for bucket in buckets] == pytest.approx(edges[:-1])
    assert [bucket["high"] for bucket in buckets] == pytest.approx(edges[1:])


def edges_of(buckets: list[dict[str, Any]], values: Any) -> Any:
    """The edges that buckets should have: numpy's, or of those that reach beyond the values whole numbers."""
    if buckets[-1]["high"] <= values.max():
        return np.linspace(values.min(), values.max(), len(buckets) + 1)
    width = max(1, round((values.max() - values.min()) // len(buckets) + 1))
    edges = values.min() + width * np.arange(len(buckets) + 1)
    assert edges[-2] <= values.max() < edges[-1]
    return edges


def _part(theirs: dict[str, Any]) -> dict[str, Any]:
    return next(theirs[name] for name in ("num_stats", "string_stats", "bytes_stats") if name in theirs)


def _check_values(ours: dict[str, Any], theirs: dict[str, Any], values: list[Any], table: Any) -> None:
    part = _part(theirs)
    if "num_stats" in theirs:
        _check_numbers(ours, part, np.asarray(values, np.float64), table)
    elif "string_stats" in theirs:
        _check_texts(ours, part, values)
    else:
        assert ours["unique"]["value"] == int(part.get("unique", 0)) == len(set(values))
        if values:
            assert ours["avg_length"]["value"] == pytest.approx(part["avg_num_bytes"])


def _check_numbers(ours: dict[str, Any], part: dict[str, Any], values: Any, table: NumberTable) -> None:
    finite = values[np.isfinite(values)]
    if not len(finite):
        assert ours["mean"]["value"] is None
        return
    if len(finite) < len(values):  # one infinity makes TFDV's mean NaN and its deviation 0; NaN is in none of both's
        nan = sum(int(found.get("num_nan", 0)) for found in part["histograms"][:1])
        assert nan in (ours["nan"], ours["nan"] + ours["missing"])  # a null within a list it takes for NaN
        assert ours["nan"] == np.isnan(values).sum()
        assert ours["positive_infinity"] == np.isposinf(values).sum()
        assert ours["negative_infinity"] == np.isneginf(values).sum()
        if len(finite) == len(values) - ours["nan"]:
            assert ours["mean"]["value"] == pytest.approx(part["mean"])
    else:
        for key, name in (("mean", "mean"), ("std_dev", "std"), ("min", "min"), ("max", "max")):
            assert ours[name]["value"] == pytest.approx(part.get(key, 0), rel=1e-6)
    assert ours["zeros"]["value"] == int(part.get("num_zeros", 0)) == (values == 0).sum()
    expected = {"mean": finite.mean(), "std": finite.std(), "min": finite.min(), "max": finite.max()}
    for name, number in expected.items():
        assert ours[name]["value"] == pytest.approx(number)
    # TFDV's median is the upper middle of a sketch; its histogram counts fractions. Its numbers have nine digits.
    assert ours["median"]["value"] == pytest.approx(np.median(finite), rel=1e-12)
    ordered = np.sort(finite)
    if len(finite) == len(values):
        assert part.get("median", 0) == pytest.approx(ordered[len(ordered) // 2], rel=1e-6)
    check_histogram(ours["histogram"]["value"], finite)
    # TFDV's buckets are closed above and come from a sketch; numpy's and ours are closed below, the last on both sides.
    theirs = [bucket for bucket in part["histograms"][0]["buckets"] if np.isfinite(_ends(bucket)).all()]
    total = sum(bucket.get("sample_count", 0) for bucket in theirs)
    assert total == pytest.approx(len(finite), rel=1e-3, abs=0.05)
    counts, edges = np.histogram(finite, len(theirs))
    assert histogram(table.values, table.counts, edges).tolist() == counts.tolist()
    if len(finite) == len(values):
        if finite.min() == finite.max():
            edges = np.array([finite[0], finite[0]])
        assert [_ends(bucket)[1] for bucket in theirs] == pytest.approx(edges[1:])
        # Its quantiles are values of the data, the upper of two; numpy's and ours lie between the two.
        uppers = [_ends(bucket)[1] for bucket in part["histograms"][1]["buckets"]]
        levels = [(i + 1) / len(uppers) for i in range(len(uppers) - 1)]
        assert quantiles(table, levels) == pytest.approx(np.quantile(finite, levels))
        if len(finite) % len(uppers) == 0:
            assert uppers[:-1] == pytest.approx([ordered[round(level * len(finite))] for level in levels])


def _ends(bucket: dict[str, Any]) -> tuple[float, float]:
    return float(bucket.get("low_value", 0)), float(bucket.get("high_value", 0))


def _check_texts(ours: dict[str, Any], part: dict[str, Any], values: list[Any]) -> None:
    """Counted by hand. A text's length is in characters, TFDV's in bytes, where a null within a list has none."""
    counts = Counter(values)
    assert ours["unique"]["value"] == int(part.get("unique", 0)) == len(counts)
    assert [(value["value"], value["count"]) for value in ours["top_values"]["value"]] == [
        (spelled(value), count) for value, count in _ranked(counts)
    ][:20]
    if not values:
        assert ours["avg_length"]["value"] is None
        return
    assert ours["avg_length"]["value"] == pytest.approx(np.mean([len(value) for value in values]))
    items = int(part["common_stats"]["tot_num_values"])
    assert part.get("avg_length", 0) == pytest.approx(sum(len(_encoded(value)) for value in values) / items)
    # What is not UTF-8 has one label in TFDV, and here is spelled by its bytes.
    labels: Counter[str] = Counter()
    for value, count in counts.items():
        labels[BROKEN if _broken(value) else spelled(value)] += count
    assert int(part.get("invalid_utf8_count", 0)) == labels[BROKEN]
    theirs = [(found.get("value", ""), int(found["frequency"])) for found in part.get("top_values", ())]
    ranks = [
        (bucket.get("label", ""), int(bucket["sample_count"])) for bucket in part["rank_histogram"].get("buckets", ())
    ]
    for found in (theirs, ranks):
        assert found == [(value, count) for value, count in _ranked(labels) if count][: len(found)]


BROKEN = "__BYTES_VALUE__"


def _ranked(counts: Counter[Any]) -> list[tuple[Any, int]]:
    """The most frequent first; what is equally frequent backwards by its bytes, as TFDV has it."""
    return sorted(counts.items(), key=lambda pair: (pair[1], _encoded(pair[0])), reverse=True)


def spelled(value: str | bytes) -> str:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value


def _encoded(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


def _broken(value: str | bytes) -> bool:
    return isinstance(value, bytes) and value.decode("utf-8", "ignore").encode() != value
