"""How far apart descriptions are, against scipy's divergence of what they describe."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from drivetrain.data import statistics
from drivetrain.report.distance import distance, divergence
from drivetrain.report.statistics_data import page_data, skewness
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import jensenshannon
from scipy.stats import entropy

shares = st.lists(st.integers(0, 50), min_size=4, max_size=4).filter(any)


def described(values: Any, **options: Any) -> tuple[dict[str, Any], int]:
    found = statistics({"data": pa.table({"x": values})}, **options).features("data")["x"]
    return found, len(values)


@given(shares, shares)
def test_divergence_is_scipys(one: list[int], other: list[int]) -> None:
    p, q = (np.array(side) / sum(side) for side in (one, other))
    expected = np.nan_to_num(jensenshannon(p, q, base=2)) ** 2
    assert divergence(p.tolist(), q.tolist()) == pytest.approx(expected, abs=1e-9)


def test_texts_with_missing_rows() -> None:
    one, other = ["a"] * 6 + ["b"] * 3 + [None], ["a"] * 2 + ["c"] * 7 + [None]
    expected = jensenshannon([6, 3, 0, 1], [2, 0, 7, 1], base=2) ** 2
    assert distance(described(one), described(other)) == pytest.approx(expected)


def test_numbers_between_quantiles() -> None:
    random = np.random.default_rng(3)
    same, again = random.normal(size=20_000), random.normal(size=20_000)
    far = random.normal(1.0, 1.0, 20_000)
    grid = np.linspace(-4, 6, 2001)
    p, q = (np.histogram(side, grid)[0] for side in (same, far))
    near = distance(described(same.tolist()), described(again.tolist()))
    apart = distance(described(same.tolist()), described(far.tolist()))
    assert near is not None
    assert near < 0.005
    assert apart == pytest.approx(jensenshannon(p, q, base=2) ** 2, rel=0.15)
    # One outlier stretches a tenth of the rows at most; in cells of equal width it would hide the rest.
    spoilt = distance(described(same.tolist()), described([*far.tolist(), 1e12]))
    assert spoilt == pytest.approx(apart, abs=0.1)


def test_numbers_of_few_values() -> None:
    """Values that repeat are compared whole; ten equal steps say their shares to a tenth."""
    assert distance(described([0] * 50 + [1] * 50), described([0] * 50 + [1] * 50)) == 0.0
    assert distance(described([0] * 10), described([1] * 10)) == pytest.approx(1.0)
    assert distance(described([None, 1]), described([None, 1])) == 0.0


def test_times_are_compared_as_numbers() -> None:
    """Whatever a column's unit: days, instants, times of day."""
    one, other = list(range(100)), list(range(50, 150))
    wanted = distance(described(one), described(other))
    for plain, kind in (("int32", pa.date32()), ("int64", pa.timestamp("s", "UTC")), ("int32", pa.time32("s"))):
        sides = [described(pa.array(values, plain).cast(kind)) for values in (one, other)]
        assert distance(*sides) == pytest.approx(wanted, abs=0.02)


def test_what_one_side_lacks_is_as_far_as_can_be() -> None:
    assert distance(described([1, 2]), (None, 2)) == 1.0
    assert distance((None, 3), (None, 2)) is None
    assert distance(described([1, 2]), described([None, None])) == pytest.approx(1.0)


def test_skewness_and_non_uniformity() -> None:
    values = [1, 2, 2, 3, 40]
    expected = abs(3 * (np.mean(values) - np.median(values)) / np.std(values))
    assert skewness(described(values)[0]) == pytest.approx(expected)
    counts = [5, 2, 1]
    texts = [text for text, count in zip("abc", counts, strict=True) for _ in range(count)]
    assert skewness(described(texts)[0]) == pytest.approx(1 - entropy(counts) / np.log(3))
    assert skewness(described(["a", "a"])[0]) == 1.0
    assert skewness(described([None])[0]) is None


def test_a_page_holds_slices_weights_and_fields() -> None:
    table = pa.table(
        {"k": ["a", "a", "b"], "w": [1.0, 2.0, 3.0], "s": [{"x": 1}, {"x": 2}, None], "l": [[1, 2], [], None],
         "big": [2**60, 1, 2], "long": ["y" * 500, "z", "z"]}
    )  # fmt: skip
    data = page_data(statistics({"data": table}, weight="w", slices=["k"]).document)
    assert [one["name"] for one in data["sets"]] == ["data", "data [k=a]", "data [k=b]"]
    assert [one["on"] for one in data["sets"]] == [True, False, False]
    features = {feature["name"]: feature for feature in data["features"]}
    assert features["k"]["sets"][0]["weighted"]["count"] == 6.0
    assert features["l"]["sets"][0]["items"] == 2
    assert features["l"]["sets"][0]["weighted"]["items"] == 2.0
    assert "drift" in features["k"]["sort"]
    two = page_data(statistics({"one": table, "two": table}, slices=["k"]).document)
    assert {feature["name"]: feature["sort"]["drift"] for feature in two["features"]}["k"] == 0.0
    assert features["big"]["sets"][0]["max"] == f"{2**60:,}"
    assert max(len(value) for value, _ in features["long"]["sets"][0]["top"]) == 80
    assert features["l"]["sets"][0]["missing"] == 1
