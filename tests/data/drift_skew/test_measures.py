"""Measures of drift equal scipy and numpy on raw values, and obey their laws."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from drivetrain.data.drift_skew import measures
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.spatial.distance import jensenshannon

counts = st.lists(st.integers(0, 50), min_size=2, max_size=12)


@st.composite
def two_counts(draw: st.DrawFn) -> tuple[Any, Any]:
    size = draw(st.integers(2, 12))
    sides = [np.array(draw(st.lists(st.integers(0, 60), min_size=size, max_size=size))) for _ in range(2)]
    assume(all(side.sum() for side in sides))
    return sides[0], sides[1]


def tables(a: Any, b: Any) -> tuple[Any, Any, Any]:
    """Distinct values and the rows of each side per value."""
    values = np.unique(np.concatenate((a, b)))
    return (values, *((values[:, None] == side).sum(axis=1) for side in (a, b)))


@pytest.mark.parametrize(("rows", "others"), [(1, 1), (7, 5), (400, 300), (2000, 2000)])
@pytest.mark.parametrize("kind", ["continuous", "ties"])
def test_kolmogorov_smirnov_and_wasserstein_equal_scipy_on_raw_values(rows: int, others: int, kind: str) -> None:
    rng = np.random.default_rng(rows)
    a, b = rng.normal(0.2, 1, rows), rng.normal(0, 1.3, others)
    if kind == "ties":
        a, b = a.round(1) + 0.0, b.round(1) + 0.0
    values, current, previous = tables(a, b)
    wanted = stats.ks_2samp(a, b)
    outcome = measures.kolmogorov_smirnov(current, previous)
    assert outcome.statistic == pytest.approx(wanted.statistic, rel=1e-12)
    assert outcome.p_value == pytest.approx(wanted.pvalue, rel=1e-9)
    distance = measures.wasserstein(values, current, previous)
    assert distance == pytest.approx(stats.wasserstein_distance(a, b), rel=1e-12)


def test_kolmogorov_smirnov_equals_scipy_where_it_is_asymptotic() -> None:
    rng = np.random.default_rng(3)
    a, b = rng.integers(0, 300, 30_000), rng.integers(2, 302, 12_000)
    _, current, previous = tables(a, b)
    wanted = stats.ks_2samp(a, b)
    outcome = measures.kolmogorov_smirnov(current, previous)
    assert (outcome.statistic, outcome.p_value) == pytest.approx((wanted.statistic, wanted.pvalue), rel=1e-9)


def test_wasserstein_of_integers_beyond_float_precision() -> None:
    low = 2**62
    values = np.array([low, low + 1, low + 3])
    assert measures.wasserstein(values, np.array([2, 0, 0]), np.array([0, 0, 2])) == 3.0
    assert measures.wasserstein(np.array([-(2**63), 2**63 - 1]), np.array([1, 0]), np.array([0, 1])) == 2.0**64


def test_chi_squared_equals_scipy_and_numpy() -> None:
    current, previous = np.array([90, 60, 50]), np.array([70, 40, 90])
    outcome = measures.chi_squared(current, previous)
    wanted = stats.chi2_contingency([current, previous], correction=False)
    assert outcome is not None
    assert (outcome.statistic, outcome.p_value) == pytest.approx((wanted.statistic, wanted.pvalue), rel=1e-12)
    assert outcome.effect == pytest.approx(stats.contingency.association(np.stack((current, previous))), rel=1e-12)
    table = np.stack((current, previous)).astype(float)
    expected = table.sum(axis=1, keepdims=True) * table.sum(axis=0) / table.sum()
    assert outcome.statistic == pytest.approx(((table - expected) ** 2 / expected).sum(), rel=1e-12)


def test_chi_squared_pools_rare_cells() -> None:
    current, previous = np.array([100, 3, 2, 100, 4, 0]), np.array([100, 2, 4, 100, 4, 0])
    pooled = measures.pool_rare(current, previous)
    assert pooled.tolist() == [[100, 100, 9], [100, 100, 10]]
    outcome = measures.chi_squared(current, previous)
    wanted = stats.chi2_contingency([[100, 100, 9], [100, 100, 10]], correction=False)
    assert outcome is not None
    assert outcome.p_value == pytest.approx(wanted.pvalue, rel=1e-12)
    # What is pooled is too rare itself: it joins the smallest other cell.
    assert measures.pool_rare(np.array([100, 50, 1]), np.array([100, 60, 1])).tolist() == [[100, 51], [100, 61]]


def test_chi_squared_of_identifiers_is_no_test() -> None:
    ones, zeros = np.ones(100, np.int64), np.zeros(100, np.int64)
    assert measures.chi_squared(np.concatenate((ones, zeros)), np.concatenate((zeros, ones))) is None


def test_new_values_of_identifiers_are_what_chance_gives() -> None:
    ones, zeros = np.ones(100, np.int64), np.zeros(100, np.int64)
    outcome = measures.new_values(np.concatenate((ones, zeros)), np.concatenate((zeros, ones)))
    assert outcome == (1.0, 1.0, 0.0)


def test_values_that_are_all_new_and_come_again_are_not_chance() -> None:
    threes, zeros = np.full(300, 3), np.zeros(300, np.int64)
    current, previous = np.concatenate((threes, zeros)), np.concatenate((zeros, threes))
    assert measures.chi_squared(current, previous) is None  # each is too rare for it
    outcome = measures.new_values(current, previous)
    assert outcome.statistic == 1.0
    assert outcome.p_value < 0.01
    assert outcome.effect > 0.7


@settings(deadline=None)
@given(two_counts())
def test_new_values_are_expected_as_often_as_when_rows_are_dealt_at_random(sides: tuple[Any, Any]) -> None:
    current, previous = sides
    rows, total = int(current.sum()), current + previous
    outcome = measures.new_values(current, previous)
    assert outcome.statistic == pytest.approx(current[previous == 0].sum() / rows)
    law = stats.hypergeom(total.sum(), total, rows)  # of a value's rows, how many come to the current side
    chance = law.pmf(total)
    beyond = max(current[previous == 0].sum() - float(total @ chance), 0.0)
    assert outcome.effect == pytest.approx(beyond / rows, abs=1e-7)
    variance = float(total**2 @ (chance * (1 - chance)))
    assert outcome.p_value == pytest.approx(
        variance / (variance + beyond**2) if beyond > 1e-9 * rows else 1.0, abs=1e-6
    )


def test_new_values_are_seldom_significant_where_nothing_changed() -> None:
    """Cantelli's bound holds for any law: at most a share alpha of the data sets is below alpha."""
    rng = np.random.default_rng(5)
    weights = rng.pareto(1.0, 2000) + 0.1
    below = 0
    for _ in range(200):
        sides = rng.multinomial(1500, weights / weights.sum(), size=2)
        below += measures.new_values(sides[0], sides[1]).p_value < 0.05
    assert below <= 10


@settings(deadline=None)  # the machine may be busy
@given(two_counts())
def test_pooling_keeps_the_rows_and_leaves_no_rare_cell(sides: tuple[Any, Any]) -> None:
    pooled = measures.pool_rare(*sides)
    assert pooled.sum(axis=1).tolist() == [int(side.sum()) for side in sides]
    if pooled.shape[1] > 1:
        assert stats.contingency.expected_freq(pooled).min() >= measures.LEAST_EXPECTED - 1e-9


@settings(deadline=None)
@given(two_counts())
def test_jensen_shannon_is_the_square_of_scipys_distance(sides: tuple[Any, Any]) -> None:
    with np.errstate(invalid="ignore"):  # scipy takes the root of a rounding error below 0
        wanted = np.nan_to_num(jensenshannon(*sides, base=2)) ** 2
    assert measures.jensen_shannon(*sides) == pytest.approx(wanted, abs=1e-12)


@settings(deadline=None)
@given(two_counts())
def test_psi_equals_numpy(sides: tuple[Any, Any]) -> None:
    p, q = (np.clip(side / side.sum(), 1e-4, None) for side in sides)
    assert measures.psi(*sides) == pytest.approx(np.sum((p - q) * np.log(p / q)), abs=1e-12)


@settings(deadline=None)
@given(two_counts())
def test_laws_of_distances(sides: tuple[Any, Any]) -> None:
    a, b = sides
    values = np.arange(len(a)) ** 2
    for distance in (
        measures.jensen_shannon,
        measures.psi,
        measures.normalized_abs_difference,
        lambda p, q: measures.l_infinity(p, q)[0],
        lambda p, q: measures.wasserstein(values, p, q),
        lambda p, q: measures.kolmogorov_smirnov(p, q).statistic,
    ):
        assert distance(a, a) == 0
        assert distance(a, b) == pytest.approx(distance(b, a), rel=1e-12, abs=1e-15)
        assert distance(a, b) >= 0
    assert measures.jensen_shannon(a, b) <= 1
    assert measures.l_infinity(a, b)[0] <= 1
    assert measures.kolmogorov_smirnov(a, b).statistic <= 1
    # Shares know nothing of the number of rows.
    assert measures.jensen_shannon(3 * a, b) == pytest.approx(measures.jensen_shannon(a, b), abs=1e-12)
    assert 0 <= measures.kolmogorov_smirnov(a, b).p_value <= 1


def test_disjoint_sides_are_as_far_apart_as_can_be() -> None:
    a, b = np.array([3, 4, 0, 0]), np.array([0, 0, 1, 9])
    assert measures.jensen_shannon(a, b) == 1
    assert measures.kolmogorov_smirnov(a, b).statistic == 1
    assert measures.l_infinity(a, b) == (0.9, 3)


def test_l_infinity_names_the_last_of_equals() -> None:
    assert measures.l_infinity(np.array([6, 4, 0]), np.array([3, 4, 3]))[1] == 2


@settings(deadline=None)
@given(st.integers(0, 50), st.integers(1, 50), st.integers(0, 50), st.integers(1, 50))
def test_two_proportions_equal_chi_squared_of_the_two_by_two_table(a: int, b: int, c: int, d: int) -> None:
    outcome = measures.two_proportions(a, a + b, c, c + d)
    assert outcome is not None
    if a + c == 0:
        assert outcome == (0.0, 1.0, 0.0)
        return
    wanted = stats.chi2_contingency([[a, b], [c, d]], correction=False)
    assert outcome.statistic**2 == pytest.approx(wanted.statistic, rel=1e-9, abs=1e-12)
    assert outcome.p_value == pytest.approx(wanted.pvalue, rel=1e-9)
    assert 0 <= outcome.effect <= math.pi


def test_two_proportions_without_rows() -> None:
    assert measures.two_proportions(0, 0, 1, 2) is None


p_values = st.lists(st.floats(0, 1), max_size=30)


@settings(deadline=None)
@given(p_values)
def test_benjamini_hochberg_equals_scipy(p_values: list[float]) -> None:
    wanted = stats.false_discovery_control(p_values).tolist() if p_values else []
    assert measures.benjamini_hochberg(p_values) == pytest.approx(wanted, rel=1e-12, abs=1e-300)


@settings(deadline=None)
@given(p_values)
def test_holm_is_between_benjamini_hochberg_and_bonferroni(p_values: list[float]) -> None:
    strict, loose = measures.holm(p_values), measures.benjamini_hochberg(p_values)
    for p_value, middle, low in zip(p_values, strict, loose, strict=True):
        assert low - 1e-12 <= middle <= min(p_value * len(p_values), 1) + 1e-12


def test_holm_by_hand() -> None:
    # 0.01 × 4, then 0.02 × 3 = 0.06, then 0.03 × 2 = 0.06, then max(0.06, 0.04)
    assert measures.holm([0.04, 0.01, 0.03, 0.02]) == pytest.approx([0.06, 0.04, 0.06, 0.06])
