"""Exact sums by slices: the same bits as math.fsum, and the same bytes as an ExactSum."""

from __future__ import annotations

import math

import numpy as np
from drivetrain.components.evaluation.states import add_exactly, exact_sum
from drivetrain.data.aggregates.sums import ExactSum
from hypothesis import given, settings
from hypothesis import strategies as st


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 10_000),
    rows=st.sampled_from([1, 7, 499, 500, 501, 3000]),
    spread=st.sampled_from([0, 1, 20, 100, 600]),
    signs=st.booleans(),
)
def test_the_same_bits_as_fsum(seed: int, rows: int, spread: int, signs: bool) -> None:
    rng = np.random.default_rng(seed)
    values = np.ldexp(rng.random(rows), rng.integers(-spread, spread + 1, rows))
    values *= rng.choice([-1.0, 1.0], rows) if signs else 1.0
    assert exact_sum(values) == math.fsum(values.tolist())
    quick, plain = ExactSum(), ExactSum()
    for part in np.array_split(values, 3):
        add_exactly(quick, part)
    plain.add(values)
    assert quick.to_bytes() == plain.to_bytes()


def test_what_is_not_finite_or_cancels() -> None:
    nothing, huge = np.zeros(600), np.full(600, 1e308)
    assert exact_sum(np.zeros(0)) == exact_sum(nothing) == 0.0
    assert exact_sum(huge) == math.inf
    assert exact_sum(np.concatenate([huge, -huge, [1.0]])) == 1.0
    assert math.isnan(exact_sum(np.append(nothing, np.nan)))
    assert exact_sum(np.append(nothing, -np.inf)) == -math.inf
    assert exact_sum(np.full(600, 5e-324)) == 600 * 5e-324
