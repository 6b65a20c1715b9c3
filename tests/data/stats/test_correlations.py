"""Correlations against numpy and pandas."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from drivetrain.data import statistics
from drivetrain.data.stats.correlations import MOST, PairSums
from drivetrain.errors import InputError
from hypothesis import given, settings
from hypothesis import strategies as st


def correlations(data: Any, **more: Any) -> dict[str, Any]:
    return dict(statistics(data, correlations=True, **more).document["datasets"][0]["correlations"])


def test_all_pairs_over_the_rows_that_have_both() -> None:
    random = np.random.default_rng(0)
    frame = pd.DataFrame(random.normal(size=(5_000, 4)) @ random.normal(size=(4, 4)), columns=list("abcd"))
    frame["n"] = random.integers(-1000, 1000, 5_000)
    frame["big"] = 1e9 + frame.a * 1e-3
    frame.loc[random.random(5_000) < 0.3, "b"] = math.nan
    frame.loc[random.random(5_000) < 0.3, "d"] = math.nan
    computed = correlations(frame.assign(text="x"))
    assert computed["features"] == list(frame)
    frame["big"] -= 1e9  # exactly; pandas loses digits to the offset, we do not
    present = frame.notna().to_numpy().astype(int)
    both = present.T @ present
    assert computed["count"] == both.tolist()
    np.testing.assert_allclose(np.array(computed["pearson"]), frame.corr().to_numpy(), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(np.array(computed["covariance"]), frame.cov().to_numpy() * (both - 1) / both, rtol=1e-9)


def test_infinities_and_nan_have_no_pair() -> None:
    computed = correlations(pa.table({"a": [1.0, math.inf, 2.0, 4.0, math.nan], "b": [1.0, 2.0, -math.inf, 3.0, 9.0]}))
    assert computed["count"] == [[3, 2], [2, 4]]
    assert computed["pearson"][0][1] == 1.0
    assert computed["covariance"][0][1] == np.cov([1, 4], [1, 3], ddof=0)[0, 1]


def test_what_has_no_correlation_is_null() -> None:
    computed = correlations(pa.table({"a": [1.0, 1.0, None], "b": [1, 2, None], "c": pa.array([None, None, 3.0])}))
    assert computed["pearson"][0][1] is None  # a constant
    assert computed["covariance"][0][1] == 0.0
    assert computed["covariance"][0][2] is None  # no row has both
    assert correlations(pa.table({"s": ["a"]}))["features"] == []


def test_extremes_do_not_overflow_and_offsets_do_not_cancel() -> None:
    values = np.array([1.0, 2.0, 4.0])
    computed = correlations(pa.table({"a": values * 1e300, "b": values * 1e-300, "c": values + 2.0**52}))
    np.testing.assert_allclose(np.array(computed["pearson"]), 1.0, rtol=1e-15)
    assert computed["covariance"][0][0] is None  # beyond float64
    assert computed["covariance"][2][2] == pytest.approx(values.var(), rel=1e-15)


def test_too_many_columns_are_refused() -> None:
    with pytest.raises(InputError, match="more than 300 numeric columns"):
        correlations(pa.table({f"c{number}": [1.0] for number in range(MOST + 1)}))


NUMBERS = st.none() | st.floats(allow_nan=True, allow_infinity=True) | st.floats(-10, 10)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(NUMBERS, NUMBERS, st.none() | st.booleans()), max_size=30), st.integers(0, 30))
def test_pairs_merge_to_the_same_sums(rows: list[Any], cut: int) -> None:
    def state(part: list[Any]) -> PairSums:
        sums = PairSums()
        kinds = {"a": pa.float64(), "b": pa.float64(), "c": pa.bool_()}
        columns = {name: pa.array([row[i] for row in part], kind) for i, (name, kind) in enumerate(kinds.items())}
        sums.add(pa.record_batch(columns), columns)
        return sums

    left = PairSums()
    left.load_parts(*state(rows[:cut]).to_parts())
    left.merge(state(rows[cut:]))
    assert left.to_parts() == state(rows).to_parts()
