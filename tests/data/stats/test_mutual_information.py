"""Mutual information of columns with a label equals scikit-learn's, and the sample it is taken on merges."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from drivetrain.data import statistics
from drivetrain.data.stats.sample import RowSample
from drivetrain.errors import InputError
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.feature_selection import mutual_info_classif
from sklearn.metrics import adjusted_mutual_info_score, mutual_info_score


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
    information = statistics(frame, label="late").document["datasets"][0]["mutual_information"]
    assert (information["label"], information["rows"], information["population"], information["exact"]) == (
        "late",
        2_000,
        2_000,
        True,
    )
    by_name = {feature["name"]: feature for feature in information["features"]}
    assert by_name["carrier"]["value"] == pytest.approx(mutual_info_score(frame.late, frame.carrier))
    assert by_name["carrier"]["adjusted"] == pytest.approx(adjusted_mutual_info_score(frame.late, frame.carrier))
    [delay] = mutual_info_classif(frame[["delay"]], frame.late, random_state=0)
    assert by_name["delay"]["value"] == pytest.approx(delay, abs=0.02)
    assert by_name["noise"]["value"] < 0.02
    assert "adjusted" not in by_name["delay"]


def test_a_number_as_label() -> None:
    information = statistics(flights_like(1_000), label="delay").document["datasets"][0]["mutual_information"]
    values = {feature["name"]: feature["value"] for feature in information["features"]}
    assert values["late"] > 0.2 > 0.05 > values["noise"]


def test_a_sample_says_so_and_is_near_the_whole() -> None:
    frame = flights_like(30_000)
    information = statistics(frame, label="late").document["datasets"][0]["mutual_information"]
    assert (information["rows"], information["population"], information["exact"]) == (10_000, 30_000, False)
    carrier = next(feature for feature in information["features"] if feature["name"] == "carrier")
    assert carrier["value"] == pytest.approx(mutual_info_score(frame.late, frame.carrier), abs=0.02)


def test_many_copies_of_few_rows_keep_their_proportions() -> None:
    frame = pd.DataFrame({"a": [0, 0, 0, 1] * 10_000, "b": ["x", "x", "y", "y"] * 10_000})
    information = statistics(frame, label="b").document["datasets"][0]["mutual_information"]
    assert (information["rows"], information["exact"]) == (10_000, False)
    assert information["features"][0]["value"] == pytest.approx(mutual_info_score(frame.b, frame.a), rel=1e-3)


def test_missing_values() -> None:
    frame = pa.table(
        {"a": ["x", None, "x", None, "y", "x"] * 5, "n": [1.0, 2, None, 4, 5, 6] * 5, "b": [1, 0, 1, 0, None, 1] * 5}
    )
    information = statistics(frame, label="b").document["datasets"][0]["mutual_information"]
    assert information["rows"] == 25
    a, n = information["features"]
    assert (a["rows"], n["rows"]) == (25, 20)
    assert a["value"] == pytest.approx(mutual_info_score([1, 0, 1, 0, 1], ["x", "-", "x", "-", "x"]))


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 9), st.none() | st.text(max_size=2)), max_size=60),
    st.lists(st.integers(0, 60), max_size=3),
)
def test_samples_do_not_depend_on_the_split(rows: list[Any], cuts: list[int]) -> None:
    def sample(part: list[Any]) -> RowSample:
        row_sample = RowSample(seed=1, size=8)
        columns = {
            "n": pa.array([row[0] for row in part], pa.int64()),
            "s": pa.array([row[1] for row in part], pa.string()),
        }
        row_sample.add(pa.record_batch(columns))
        return row_sample

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
            "id": [f"k{row}" for row in range(rows)],
            "constant": [1] * rows,
            "real": np.random.default_rng(0).normal(size=rows),
            "day": pa.array(np.arange(rows, dtype=np.int32), pa.date32()),
            "nothing": pa.nulls(rows, pa.float64()),
            "lists": [[1]] * rows,
            "even": [row % 2 == 0 for row in range(rows)],
        }
    )
    with pytest.raises(InputError, match="the label 'lists' is list"):
        statistics(frame, label="lists")
    for label in [name for name in frame.column_names if name != "lists"]:
        information = statistics(frame, label=label).document["datasets"][0]["mutual_information"]
        values = {feature["name"]: feature["value"] for feature in information["features"]}
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
