"""Decimals that float64 rounds: of 16 to 18 digits what is told equals Python's decimal, of more it is flagged."""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from drivetrain.data import infer_schema, statistics, validate
from drivetrain.data.stats.accumulator import StatisticsAccumulator
from hypothesis import given
from hypothesis import strategies as st

D = Decimal
KIND = pa.decimal128(18, 4)
NEAR = [D("12345678901234.5678"), D("12345678901234.5679"), D("12345678901234.5679"), None, D("-0.0001")]


def described(*arrays: Any, limit: int | None = None, store: bool = False) -> dict[str, Any]:
    """What is told of a column that comes in parts, each in a shard of its own."""
    states = []
    for array in arrays:
        state = StatisticsAccumulator(limit)
        state.add_batch(pa.RecordBatch.from_arrays([array], ["x"]))
        states.append(StatisticsAccumulator.from_bytes(state.to_bytes()) if store else state)
    for state in states[1:]:
        states[0].merge(state)
    feature: dict[str, Any] = states[0].result()["features"][0]
    return feature


def test_neighbours_that_float64_takes_for_one_are_two() -> None:
    assert float(D("12345678901234.5678")) == float(D("12345678901234.5679"))
    feature = described(pa.array(NEAR, KIND))
    assert feature["unique"] == {"value": 3, "exact": True}
    assert feature["min"]["value"] == -0.0001
    assert feature["max"] == {"value": "12345678901234.5679", "exact": True}
    assert feature["median"]["value"] == pytest.approx(12345678901234.5679, rel=1e-15)
    assert feature["top_values"]["value"][0] == {"value": "12345678901234.5679", "count": 2}
    assert feature["histogram"]["exact"] is False


units = st.integers(-(10**18) + 1, 10**18 - 1)
decimals = st.lists(st.one_of(units, st.integers(-3, 3), st.none()), min_size=1, max_size=30)


@given(decimals, st.integers(0, 30), st.integers(0, 18), st.booleans())
def test_equals_decimal(whole: list[int | None], cut: int, places: int, store: bool) -> None:
    kind = pa.decimal128(18, places)
    values = [None if value is None else D(value).scaleb(-places) for value in whole]
    # The first part is a slice with something before it, so that its buffer does not begin where it does.
    first = pa.array([D(0), *values[:cut]], kind).slice(1)
    feature = described(first, pa.array(values[cut:], kind), store=store)
    there = sorted(value for value in values if value is not None)
    if not there:
        assert feature["min"]["value"] is None
        return
    exact = [Fraction(value) for value in there]
    assert Fraction(str(feature["min"]["value"])) == exact[0]
    assert Fraction(str(feature["max"]["value"])) == exact[-1]
    mean = sum(exact, Fraction(0)) / len(exact)
    assert feature["mean"]["value"] == float(mean)
    with localcontext(prec=60):
        variance = sum(((value - mean) ** 2 for value in exact), Fraction(0)) / len(exact)
        spread = float((D(variance.numerator) / D(variance.denominator)).sqrt())
    assert feature["std"]["value"] == pytest.approx(spread, rel=1e-15)
    assert feature["unique"]["value"] == len(set(there))
    middle = (exact[(len(exact) - 1) // 2] + exact[len(exact) // 2]) / 2
    assert float(feature["median"]["value"]) == float(middle)
    spelled = [Fraction(str(item["value"])) for item in feature["top_values"]["value"]]
    assert set(spelled) <= set(exact)
    assert [item["count"] for item in feature["top_values"]["value"]] == [exact.count(value) for value in spelled]
    assert all(float(low) <= float(high) for low, high in pairwise(feature["quantiles"]["value"]))


def test_beyond_the_limit_the_ends_and_moments_stay_exact() -> None:
    values = [D(10**17 + 7 * step).scaleb(-4) for step in range(500)]
    feature = described(pa.array(values[:250], KIND), pa.array(values[250:], KIND), limit=100, store=True)
    assert (feature["min"]["value"], feature["max"]["value"]) == (10000000000000.0, "10000000000000.3493")
    assert feature["mean"] == {"value": float(sum(map(Fraction, values)) / 500), "exact": True}
    assert feature["median"]["exact"] is False


@pytest.mark.parametrize("store", [False, True])
def test_places_that_differ_leave_floats_that_say_so(store: bool) -> None:
    parts = [pa.array(NEAR, KIND), pa.array([D("1.25")], pa.decimal128(18, 2)), pa.array([D("2.5")], KIND)]
    for order in (parts, parts[::-1], [pa.nulls(2), *parts], [parts[0], pa.array([0.5]), parts[2]]):
        feature = described(*order, store=store)
        assert feature["max"] == {"value": 12345678901234.568, "exact": False, "error": 2.0**-53, "method": "float64"}
    batches = StatisticsAccumulator()
    for part in parts:
        batches.add_batch(pa.RecordBatch.from_arrays([part], ["x"]))
    assert batches.result()["features"][0]["max"]["exact"] is False
    assert described(pa.nulls(2), parts[0], store=store)["max"]["exact"] is True
    longer = pa.array([D(10) ** 20 + 1], pa.decimal128(30, 2))
    assert described(longer, store=store)["max"]["exact"] is False


def test_other_widths_and_lists_of_decimals() -> None:
    for arrow in (pa.decimal64(18, 4), pa.decimal256(18, 4)):
        assert described(pa.array(NEAR, arrow))["max"]["value"] == "12345678901234.5679"
    nested = pa.array([NEAR[:2], [], None, NEAR[3:]], pa.list_(KIND))
    assert described(nested)["values"]["max"]["value"] == "12345678901234.5679"
    assert described(nested, nested)["values"]["unique"]["value"] == 3


def test_the_rest_goes_on_with_decimals_that_are_text() -> None:
    measured = statistics(pa.table({"x": pa.array(NEAR, KIND)}))
    schema = infer_schema(measured, slack=0.1)
    assert validate(measured, schema).passed
    assert "12345678901234.5679" in measured.to_html()
    assert "12345678901234.5679" in schema.features[0].evidence
