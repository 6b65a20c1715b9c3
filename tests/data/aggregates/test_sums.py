"""Exact sums against math.fsum, Fraction and statistics."""

import decimal
import math
import statistics
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from drivetrain.data import ExactMoments, ExactSum
from drivetrain.errors import InputError
from hypothesis import given
from hypothesis import strategies as st

finite = st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=60)


def exact(values: Any, counts: Any = None) -> ExactSum:
    total = ExactSum()
    total.add(np.array(values, dtype=np.float64), counts)
    return total


@given(finite, st.randoms())
def test_every_split_and_order_gives_fsum(values: Any, random: Any) -> None:
    expected: float
    try:
        expected = math.fsum(values)
    except OverflowError:  # fsum gives up where a partial sum leaves the range; rationals do not
        whole = sum(map(Fraction, values), Fraction())
        try:
            expected = float(whole)
        except OverflowError:
            expected = math.inf if whole > 0 else -math.inf
    shuffled = random.sample(values, len(values))
    parts, start = [], 0
    while start < len(shuffled):
        size = random.randint(1, 7)
        parts.append(exact(shuffled[start : start + size]))
        start += size
    random.shuffle(parts)
    total = ExactSum()
    for part in parts:
        total.merge(ExactSum.from_bytes(part.to_bytes()))
    assert total.to_bytes() == exact(values).to_bytes()
    assert total.value() == expected
    assert total.count == len(values)


@given(finite)
def test_squares_are_exact(values: Any) -> None:
    squares = ExactSum()
    squares.add_squares(np.array(values))
    assert squares.fraction() == sum(Fraction(value) ** 2 for value in values)


@given(st.lists(st.tuples(st.floats(allow_nan=False, allow_infinity=False), st.integers(0, 10**9)), max_size=30))
def test_counts_stand_for_repetition(pairs: list[tuple[float, int]]) -> None:
    values = np.array([value for value, _ in pairs])
    counts = np.array([count for _, count in pairs], dtype=np.int64)
    moments = ExactMoments()
    moments.add(values, counts)
    assert moments.sum.fraction() == sum(Fraction(value) * count for value, count in pairs)
    assert moments.squares.fraction() == sum(Fraction(value) ** 2 * count for value, count in pairs)
    assert moments.count == sum(counts.tolist())


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.int64, np.uint64, np.bool_])
def test_integers_do_not_pass_through_floats(dtype: Any) -> None:
    random = np.random.default_rng(0)
    if dtype is np.bool_:
        values = random.random(1000) < 0.3
    else:
        info = np.iinfo(dtype)
        values = random.integers(info.min, info.max, size=1000, dtype=dtype, endpoint=True)
        values[:2] = info.min, info.max
    moments = ExactMoments()
    moments.add(values)
    assert moments.sum.fraction() == sum(map(int, values))
    assert moments.squares.fraction() == sum(int(value) ** 2 for value in values)


def test_a_large_block_of_every_exponent() -> None:
    bits = np.random.default_rng(1).integers(0, 2**63, size=100_000, dtype=np.uint64)
    values = bits.view(np.float64)
    values = values[np.isfinite(values)]
    values[:3] = 5e-324, 1.7e308, -0.0
    ratios = [value.as_integer_ratio() for value in values.tolist()]  # denominators are powers of 2, of at most 2^1074
    total = sum(numerator << (1075 - denominator.bit_length()) for numerator, denominator in ratios)
    assert exact(values).fraction() == Fraction(total, 1 << 1074)


@pytest.mark.parametrize(
    ("values", "expected"),
    [([], 0.0), ([math.inf, 1.0], math.inf), ([-math.inf], -math.inf), ([1.7e308, 1.7e308], math.inf)],
)
def test_what_is_not_finite(values: Any, expected: float) -> None:
    assert exact(values).value() == expected


def test_nan_and_opposite_infinities() -> None:
    assert math.isnan(exact([math.nan, 1.0]).value())
    assert math.isnan(exact([math.inf, -math.inf]).value())
    assert not exact([math.nan]).finite


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=40))
def test_moments_equal_rational_statistics(values: Any) -> None:
    moments = ExactMoments()
    moments.add(np.array(values))
    again = ExactMoments.from_bytes(moments.to_bytes())
    exactly = [Fraction(value) for value in values]
    assert again.mean() == float(statistics.mean(exactly))
    assert again.variance() == float(statistics.pvariance(exactly))
    assert again.variance(ddof=1) == float(statistics.variance(exactly))


def test_variance_does_not_cancel() -> None:
    moments = ExactMoments()
    moments.add(np.array([1e15, 1e15 + 1, 1e15 + 2]))
    assert moments.variance() == pytest.approx(2 / 3, rel=1e-15)


def test_damaged_bytes_are_refused() -> None:
    for data in (b"", b"DTXS", b"DTXS\x02" + bytes(60), bytes(80)):
        with pytest.raises(InputError, match="exact sum"):
            ExactSum.from_bytes(data)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=20))
def test_the_deviation_is_right_where_its_square_leaves_float64(values: list[float]) -> None:
    moments = ExactMoments()
    moments.add(np.array(values))
    mean = sum(map(Fraction, values), Fraction()) / len(values)
    spread = sum(((Fraction(value) - mean) ** 2 for value in values), Fraction()) / len(values)
    with decimal.localcontext(prec=50, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN):
        wanted = float((decimal.Decimal(spread.numerator) / spread.denominator).sqrt())
    assert moments.std() == pytest.approx(wanted, rel=1e-15, abs=5e-324)
