"""The split: its shares, and that nobody changes sides but by growing shares."""

from __future__ import annotations

from collections import Counter

import pytest
from drivetrain.errors import InputError
from drivetrain.serving.traffic import TrafficSplit
from hypothesis import given
from hypothesis import strategies as st

KEYS = [f"customer-{number}" for number in range(100_000)]


def test_shares_of_a_hundred_thousand_keys() -> None:
    split = TrafficSplit({4: 10, 5: 0.5}, "net")
    counts = Counter(map(split.version_for, KEYS))
    assert 9_700 <= counts[4] <= 10_300
    assert 430 <= counts[5] <= 570
    drawn = Counter(split.version_for(None) for _ in range(100_000))
    assert 9_500 <= drawn[4] <= 10_500


def test_a_growing_share_loses_nobody() -> None:
    for less, more in ((10, 20), (0, 0.01), (20, 100)):
        before, after = TrafficSplit({4: less}, "net"), TrafficSplit({4: more}, "net")
        assert all(after.version_for(key) == 4 for key in KEYS if before.version_for(key) == 4)


def test_other_models_share_otherwise() -> None:
    first, second = ([TrafficSplit({4: 50}, salt).version_for(key) for key in KEYS[:2000]] for salt in ("a", "b"))
    assert 0.4 < sum(a == b for a, b in zip(first, second, strict=True)) / 2000 < 0.6


@given(st.text(), st.text(max_size=5))
def test_any_key_has_its_side(key: str, salt: str) -> None:
    split = TrafficSplit({4: 50}, salt)
    assert split.version_for(key) == TrafficSplit({4: 50}, salt).version_for(key)
    assert TrafficSplit({4: 100}, salt).version_for(key) == 4
    assert TrafficSplit({4: 0}, salt).version_for(key) is None


@pytest.mark.parametrize("shares", [{4: -1}, {4: 101}, {4: 60, 5: 41}, {4: float("nan")}])
def test_shares_that_cannot_be(shares: dict[int, float]) -> None:
    with pytest.raises(InputError, match="percent"):
        TrafficSplit(shares)
