"""Correlations against numpy and pandas, mutual information against scikit-learn."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from drivetrain.data import statistics
from drivetrain.data.stats.correlations import MOST, PairSums
from drivetrain.data.stats.sample import RowSample
from drivetrain.errors import InputError
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.feature_selection import mutual_info_classif
from sklearn.metrics import adjusted_mutual_info_score, mutual_info_score


def correlations(data: Any, **more: Any) -> dict[str, Any]:
    return dict(statistics(data, correlations=True, **more).document["datasets"][0]["correlations"])


def test_all_pairs_over_the_rows_that_have_both() -> None:
    random = np.random.default_rng(0)
    frame = pd.DataFrame(random.normal(size=(5_000, 4)) @ random.normal(size=(4, 4)), columns=list("abcd"))
    frame["n"] = random.integers(-1000, 1000, 5_000)
    frame["big"] = 1e9 + frame.a * 1e-3
    frame.loc[random.random(5_000) < 0.3, "b"] = math.nan
    frame.loc[random.random(5_000) < 0.3, "d"] = math.nan
    found = correlations(frame.assign(text="x"))
    assert found["features"] == list(frame)
    frame["big"] -= 1e9  # exactly; pandas loses digits to the offset, we do not
    present = frame.notna().to_numpy().astype(int)
    both = present.T @ present
    assert found["count"] == both.tolist()
    np.testing.assert_allclose(np.array(found["pearson"]), frame.corr().to_numpy(), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(np.array(found["covariance"]), frame.cov().to_numpy() * (both - 1) / both, rtol=1e-9)


def test_infinities_and_nan_have_no_pair() -> None:
    found = correlations(pa.table({"a": [1.0, math.inf, 2.0, 4.0, math.nan], "b": [1.0, 2.0, -math.inf, 3.0, 9.0]}))
    assert found["count"] == [[3, 2], [2, 4]]
    assert found["pearson"][0][1] == 1.0
    assert found["covariance"][0][1] == np.cov([1, 4], [1, 3], ddof=0)[0, 1]


def test_what_has_no_correlation_is_null() -> None:
    found = correlations(pa.table({"a": [1.0, 1.0, None], "b": [1, 2, None], "c": pa.array([None, None, 3.0])}))
    assert found["pearson"][0][1] is None  # a constant
    assert found["covariance"][0][1] == 0.0
    assert found["covariance"][0][2] is None  # no row has both
    assert correlations(pa.table({"s": ["a"]}))["features"] == []


def test_extremes_do_not_overflow_and_offsets_do_not_cancel() -> None:
    values = np.array([1.0, 2.0, 4.0])
    found = correlations(pa.table({"a": values * 1e300, "b": values * 1e-300, "c": values + 2.0**52}))
    np.testing.assert_allclose(np.array(found["pearson"]), 1.0, rtol=1e-15)
    assert found["covariance"][0][0] is None  # beyond float64
    assert found["covariance"][2][2] == pytest.approx(values.var(), rel=1e-15)


def test_too_many_columns_are_refused() -> None:
    with pytest.raises(InputError, match="more than 300 numeric columns"):
        correlations(pa.table({f"c{place}": [1.0] for place in range(MOST + 1)}))


NUMBERS = st.none() | st.floats(allow_nan=True, allow_infinity=True) | st.floats(-10, 10)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(NUMBERS, NUMBERS, st.none() | st.booleans()), max_size=30), st.integers(0, 30))
def test_pairs_merge_to_the_same_sums(rows: list[Any], cut: int) -> None:
    def state(part: list[Any]) -> PairSums:
        made = PairSums()
        kinds = {"a": pa.float64(), "b": pa.float64(), "c": pa.bool_()}
        made.add({name: pa.array([row[i] for row in part], kind) for i, (name, kind) in enumerate(kinds.items())})
        return made

    left = PairSums.from_json(state(rows[:cut]).to_json())
    left.merge(state(rows[cut:]))
    assert left.to_json() == state(rows).to_json()


# --- mutual information


def flights_like(rows: int) -> pd.DataFrame:
    random = np.random.default_rng(4)
    carrier = random.choice(["AA", "UA", "DL"], rows)
    late = (random.random(rows) < np.where(carrier == "AA", 0.8, 0.2)).astype(bool)
    return pd.DataFrame(
        {
            "carrier": carrier,
            "delay": random.normal(size=rows) + 3 * late,
            "noise": random.normal(size=rows),
            "late": late,
        }
    )


def test_mutual_information_is_scikit_learns() -> None:
    frame = flights_like(2_000)
    found = statistics(frame, label="late").document["datasets"][0]["mutual_information"]
    assert (found["label"], found["rows"], found["population"], found["exact"]) == ("late", 2_000, 2_000, True)
    by_name = {feature["name"]: feature for feature in found["features"]}
    assert by_name["carrier"]["value"] == pytest.approx(mutual_info_score(frame.late, frame.carrier))
    assert by_name["carrier"]["adjusted"] == pytest.approx(adjusted_mutual_info_score(frame.late, frame.carrier))
    [delay] = mutual_info_classif(frame[["delay"]], frame.late, random_state=0)
    assert by_name["delay"]["value"] == pytest.approx(delay, abs=0.02)
    assert by_name["noise"]["value"] < 0.02
    assert "adjusted" not in by_name["delay"]


def test_a_number_as_label() -> None:
    found = statistics(flights_like(1_000), label="delay").document["datasets"][0]["mutual_information"]
    values = {feature["name"]: feature["value"] for feature in found["features"]}
    assert values["late"] > 0.2 > 0.05 > values["noise"]


def test_a_sample_says_so_and_is_near_the_whole() -> None:
    frame = flights_like(30_000)
    found = statistics(frame, label="late").document["datasets"][0]["mutual_information"]
    assert (found["rows"], found["population"], found["exact"]) == (10_000, 30_000, False)
    carrier = next(feature for feature in found["features"] if feature["name"] == "carrier")
    assert carrier["value"] == pytest.approx(mutual_info_score(frame.late, frame.carrier), abs=0.02)


def test_many_copies_of_few_rows_keep_their_proportions() -> None:
    frame = pd.DataFrame({"a": [0, 0, 0, 1] * 10_000, "b": ["x", "x", "y", "y"] * 10_000})
    found = statistics(frame, label="b").document["datasets"][0]["mutual_information"]
    assert (found["rows"], found["exact"]) == (10_000, False)
    assert found["features"][0]["value"] == pytest.approx(mutual_info_score(frame.b, frame.a), rel=1e-3)


def test_missing_values() -> None:
    frame = pa.table(
        {"a": ["x", None, "x", None, "y", "x"] * 5, "n": [1.0, 2, None, 4, 5, 6] * 5, "b": [1, 0, 1, 0, None, 1] * 5}
    )
    found = statistics(frame, label="b").document["datasets"][0]["mutual_information"]
    assert found["rows"] == 25
    a, n = found["features"]
    assert (a["rows"], n["rows"]) == (25, 20)
    assert a["value"] == pytest.approx(mutual_info_score([1, 0, 1, 0, 1], ["x", "-", "x", "-", "x"]))


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 9), st.none() | st.text(max_size=2)), max_size=60),
    st.lists(st.integers(0, 60), max_size=3),
)
def test_samples_do_not_depend_on_the_split(rows: list[Any], cuts: list[int]) -> None:
    def sample(part: list[Any]) -> RowSample:
        made = RowSample(seed=1, size=8)
        columns = {
            "n": pa.array([row[0] for row in part], pa.int64()),
            "s": pa.array([row[1] for row in part], pa.string()),
        }
        made.add(pa.record_batch(columns))
        return made

    edges = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    parts = [sample(rows[a:b]) for a, b in itertools.pairwise(edges)]
    merged = parts[0]
    for part in parts[1:]:
        merged.merge(RowSample.from_parts(*part.to_parts()))
    expected = sample(rows)
    tables = [state.table() for state in (merged, expected)]
    assert tables[0] is not None
    assert tables[1] is not None
    assert tables[0].to_pylist() == tables[1].to_pylist()
    assert (merged.rows, merged.exact) == (expected.rows, expected.exact)
    distinct = set(rows)
    assert expected.exact == (len(distinct) <= 8)


def test_labels_of_every_kind_and_columns_of_none() -> None:
    rows = 300
    frame = pa.table(
        {
            "id": [f"k{place}" for place in range(rows)],
            "constant": [1] * rows,
            "real": np.random.default_rng(0).normal(size=rows),
            "day": pa.array(np.arange(rows, dtype=np.int32), pa.date32()),
            "nothing": pa.nulls(rows, pa.float64()),
            "lists": [[1]] * rows,
            "even": [place % 2 == 0 for place in range(rows)],
        }
    )
    with pytest.raises(InputError, match="the label 'lists' is list"):
        statistics(frame, label="lists")
    for label in [name for name in frame.column_names if name != "lists"]:
        found = statistics(frame, label=label).document["datasets"][0]["mutual_information"]
        values = {feature["name"]: feature["value"] for feature in found["features"]}
        assert set(values) == set(frame.column_names) - {label, "lists"}
        assert values.get("nothing") is None
        if label in ("even", "day", "real"):
            assert values["constant"] == pytest.approx(0, abs=1e-9)
    even = statistics(frame, label="even").document["datasets"][0]["mutual_information"]
    assert even["features"][0] == {
        "name": "id",
        "rows": rows,
        "value": pytest.approx(math.log(2)),
        "adjusted": pytest.approx(0),
    }
