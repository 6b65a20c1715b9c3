"""TFDV 1.16's answers beyond single columns (weights, slices, pairs of columns), each also counted by hand or numpy."""

from __future__ import annotations

import bisect
import itertools
import math
from collections import defaultdict
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from drivetrain.data.stats.document import Statistics
from drivetrain.tests.data.golden_tfdv_statistics import edges_of

# --- weights


def check_weighted(ours: dict[str, Any], theirs: dict[str, Any], rows: list[Any], weights: list[float | None]) -> None:
    """A feature's weighted twin.

    Args:
        ours: The feature's description.
        theirs: TFDV's.
        rows: The column's values; lists where it is one of lists.
        weights: Each row's, missing ones count 0.
    """
    twin = ours["weighted"]
    weighed = [(row, weight or 0.0) for row, weight in zip(rows, weights, strict=True)]
    present = [(row, weight) for row, weight in weighed if row is not None]
    assert twin["count"] == pytest.approx(sum(weight for _, weight in present))
    assert twin["missing"] == pytest.approx(sum(weight for row, weight in weighed if row is None))
    part = theirs.get("num_stats") or theirs.get("string_stats") or theirs.get("bytes_stats") or {}
    common = part.get("common_stats", {}).get("weighted_common_stats", {})
    assert twin["count"] == pytest.approx(common.get("num_non_missing", 0.0), rel=1e-6)
    values = twin
    if ours["type"] == "list":
        while "values" in values:
            count = sum(weight for _, weight in present)
            if count:
                lengths = sum(len(row) * weight for row, weight in present)
                assert values["lengths"]["mean"]["value"] == pytest.approx(lengths / count)
            present = [(item, weight) for row, weight in present for item in row]
            values = values["values"]
            if "values" in values:
                present = [(item, weight) for item, weight in present if item is not None]
        total = sum(weight for _, weight in present)
        assert total == pytest.approx(common.get("tot_num_values", 0.0), rel=1e-6)
        if twin["count"]:
            assert total / twin["count"] == pytest.approx(common.get("avg_num_values", 0.0), rel=1e-6)
    items = [(value, weight) for value, weight in present if value is not None]
    if "num_stats" in theirs:
        _check_numbers(values, part.get("weighted_numeric_stats", {}), items)
    elif "string_stats" in theirs:
        _check_texts(values, part.get("weighted_string_stats", {}), items)


def _check_numbers(ours: dict[str, Any], theirs: dict[str, Any], items: list[tuple[Any, float]]) -> None:
    pairs = [(value, weight) for value, weight in items if math.isfinite(value)]
    if not sum(weight for _, weight in pairs):
        assert ours["mean"]["value"] is None
        return
    numbers, weights = (np.array(column, np.float64) for column in zip(*pairs, strict=True))
    mean = np.average(numbers, weights=weights)
    expected = {"mean": mean, "std": math.sqrt(np.average((numbers - mean) ** 2, weights=weights))}
    for name, number in expected.items():
        assert ours[name]["value"] == pytest.approx(number, abs=1e-12)
    # The first value that reaches half of the weight, and the first beyond; we give their middle, TFDV one of them.
    heaps = {number: sum(Fraction(weight) for value, weight in pairs if value == number) for number in sorted(numbers)}
    ends, half = list(itertools.accumulate(heaps.values())), sum(heaps.values()) / 2
    lower, upper = (list(heaps)[find(ends, half)] for find in (bisect.bisect_left, bisect.bisect_right))
    assert ours["median"]["value"] == pytest.approx((lower + upper) / 2, abs=1e-12)
    buckets = ours["histogram"]["value"]
    counts, edges = np.histogram(numbers, edges_of(buckets, numbers), weights=weights)
    if numbers.min() < numbers.max():
        assert [bucket["count"] for bucket in buckets] == pytest.approx(counts)
        assert [bucket["low"] for bucket in buckets] == pytest.approx(edges[:-1])
    else:
        edges = np.array([numbers[0], numbers[0]])
    if len(pairs) < len(items):  # a single infinity makes TFDV's moments NaN
        return
    assert expected["mean"] == pytest.approx(theirs.get("mean", 0.0), rel=1e-6)
    assert expected["std"] == pytest.approx(theirs.get("std_dev", 0.0), rel=1e-6, abs=1e-6)
    assert any(theirs.get("median", 0.0) == pytest.approx(middle, rel=1e-6) for middle in (lower, upper))
    standard = [bucket for bucket in theirs["histograms"][0]["buckets"] if np.isfinite(_ends(bucket)).all()]
    assert sum(bucket.get("sample_count", 0.0) for bucket in standard) == pytest.approx(weights.sum(), rel=1e-2)
    if len(standard) == len(buckets) and edges[-1] <= numbers.max():  # ours of whole numbers are whole
        assert [_ends(bucket)[1] for bucket in standard] == pytest.approx(edges[1:])


def _ends(bucket: dict[str, Any]) -> tuple[float, float]:
    return float(bucket.get("low_value", 0)), float(bucket.get("high_value", 0))


def _check_texts(ours: dict[str, Any], theirs: dict[str, Any], items: list[tuple[Any, float]]) -> None:
    sums: dict[str, float] = defaultdict(float)
    for value, weight in items:
        sums[value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value] += weight
    expected = sorted(((weight, value) for value, weight in sums.items() if weight), reverse=True)[:20]
    found = [(item["count"], item["value"]) for item in ours["top_values"]["value"]]
    assert [value for _, value in found] == [value for _, value in expected]
    assert [weight for weight, _ in found] == pytest.approx([weight for weight, _ in expected])
    # TFDV drops what weighs less than one, and calls all that is not UTF-8 by one name.
    tops = [(item["value"], item["frequency"]) for item in theirs.get("top_values", ())]
    if not any(value == "__BYTES_VALUE__" for value, _ in tops):
        heavy = [(value, weight) for weight, value in expected if weight >= 1][: len(tops) or None]
        assert [value for value, _ in tops] == [value for value, _ in heavy]
        assert [weight for _, weight in tops] == pytest.approx([weight for _, weight in heavy], rel=1e-6)


# --- slices


def check_slices(case: dict[str, Any], found: Statistics, columns: dict[str, list[Any]]) -> None:
    """Every slice TFDV has, and those it lacks because a listed text is not the stored bytes.

    Args:
        case: The case.
        found: Ours.
        columns: The values.
    """
    rows = len(next(iter(columns.values())))
    expected: dict[str, list[int]] = {"All Examples": list(range(rows))}
    listed, twice = set(), False
    for spec in case["config"]["slice"]:
        for row in range(rows):
            cells = []
            for name, wanted in spec.items():
                value = columns[name][row]
                each = dict.fromkeys(map(_as_text, value if isinstance(value, list) else [value]))
                cells.append([(name, one) for one in each if one is not None and (wanted is None or one in wanted)])
            for cross in itertools.product(*cells):
                title = _title(cross)
                twice |= row in expected.get(title, ())
                if row not in expected.setdefault(title, []):
                    expected[title].append(row)
                if any(isinstance(one, str) for wanted in spec.values() for one in wanted or ()):
                    listed.add(title)
    dataset = found.document["datasets"][0]
    ours = {"All Examples": dataset} | {_title(part["key"]): part for part in dataset.get("slices", ())}
    assert {title: part["rows"] for title, part in ours.items()} == {title: len(at) for title, at in expected.items()}
    theirs = {part["name"]: part for part in case["expected"]}
    assert set(expected) - set(theirs) <= listed
    assert set(theirs) <= set(expected)
    for title, part in theirs.items():
        if not twice:  # TFDV counts a row once for each slicing that asks for the slice
            assert ours[title]["rows"] == int(part["num_examples"])
        for key, numbers in part.items():
            if key.endswith("_mean"):
                name = key.removesuffix("_mean")
                feature = next(feature for feature in ours[title]["features"] if feature["name"] == name)
                mean = feature.get("values", feature)["mean"]["value"]
                items = np.array(flat([columns[name][row] for row in expected[title]]), np.float64)
                finite = items[np.isfinite(items)]
                assert mean == (pytest.approx(finite.mean()) if len(finite) else None)
                if not np.isinf(items).any():  # TFDV's mean with an infinity is NaN, without a value 0
                    assert numbers == [pytest.approx(mean or 0.0, rel=1e-6)]


def _as_text(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value


def flat(values: list[Any]) -> list[Any]:
    """What is present, lists opened."""
    return [
        item
        for value in values
        if value is not None
        for item in (value if isinstance(value, list) else [value])
        if item is not None
    ]


def _title(pairs: Any) -> str:
    return "_".join(f"{name}_{value}" for name, value in sorted(pairs))


# --- pairs of columns


def check_pairs(case: dict[str, Any], found: Statistics, columns: dict[str, list[Any]]) -> None:
    """Every pair's rows, correlation and covariance; TFDV takes lists of one value for numbers, we take no lists.

    Args:
        case: The case.
        found: Ours.
        columns: The values.
    """
    ours = found.document["datasets"][0]["correlations"]
    for pair in case["expected"]:
        a, b = (pair[side]["step"][0] for side in ("path_x", "path_y"))
        if any(isinstance(value, list) for name in (a, b) for value in columns[name]):
            assert not {a, b} <= set(ours["features"])
            continue
        i, j = (ours["features"].index(name) for name in (a, b))
        both = [
            (x, y)
            for x, y in zip(columns[a], columns[b], strict=True)
            if x is not None and y is not None and math.isfinite(x) and math.isfinite(y)
        ]
        assert ours["count"][i][j] == len(both)
        if not both:
            assert ours["covariance"][i][j] is None
            continue
        # An infinity makes TFDV's numbers NaN; it computes in 32 bits.
        odd = any(value in (math.inf, -math.inf) for name in (a, b) for value in columns[name])
        numbers = pair.get("num_cross_stats", {})
        first, second = (np.array(column, np.float64) for column in zip(*both, strict=True))
        scale = first.std() * second.std()
        assert ours["covariance"][i][j] == pytest.approx(np.cov(first, second, ddof=0)[0, 1], abs=1e-12)
        if not odd:
            assert len(both) == int(pair.get("count", 0))
            assert ours["covariance"][i][j] == pytest.approx(numbers.get("covariance", 0.0), rel=1e-5, abs=1e-6 * scale)
        if scale:
            assert ours["pearson"][i][j] == pytest.approx(np.corrcoef(first, second)[0, 1], abs=1e-12)
            if not odd:
                assert ours["pearson"][i][j] == pytest.approx(numbers.get("correlation", 0.0), rel=1e-5, abs=1e-6)
        else:
            assert ours["pearson"][i][j] is None
