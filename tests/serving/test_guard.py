"""The guard's figures: percentiles, and the stability index against the one of the data package."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from drivetrain.data.drift_skew.measures import psi
from drivetrain.serving.guard import stability_index
from drivetrain.serving.latency import FINE_BUCKETS
from drivetrain.serving.version_tally import SlidingWindow, VersionTally, cells_of

RNG = np.random.default_rng(5)


@pytest.mark.parametrize("shift", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_the_index_of_numbers_is_that_of_deciles(shift: float, scale: float) -> None:
    old, new = RNG.normal(size=20_000), RNG.normal(size=20_000) + shift
    edges = np.quantile(old, np.linspace(0, 1, 11)[1:-1])
    counts = [np.bincount(np.searchsorted(edges, each), minlength=10) for each in (new, old)]
    expected = psi(counts[0], counts[1])
    index = stability_index(cells_of([(scale * new).astype(np.float32)]), cells_of([(scale * old).astype(np.float32)]))
    assert index == pytest.approx(expected, rel=0.1, abs=0.003)


def test_the_index_of_texts_and_classes_is_that_of_their_shares() -> None:
    old, new = (RNG.choice(["a", "b", "c"], 3000, p=p).astype(object) for p in ((0.2, 0.3, 0.5), (0.5, 0.3, 0.2)))
    counts = [np.array([Counter(each.tolist())[text] for text in "abc"]) for each in (new, old)]
    expected = psi(counts[0], counts[1])
    assert stability_index(cells_of([new]), cells_of([old])) == pytest.approx(expected, rel=1e-9)
    scores = [np.eye(3)[np.searchsorted(["a", "b", "c"], each.astype(str))] for each in (new, old)]
    assert stability_index(cells_of([scores[0]]), cells_of([scores[1]])) == pytest.approx(expected, rel=1e-9)


def test_a_constant_that_moves_either_way_is_seen() -> None:
    constant = cells_of([np.full(1000, 0.5, np.float32)])
    for value in (0.1, 0.9, -0.5):
        assert stability_index(cells_of([np.full(1000, value, np.float32)]), constant) > 5
    assert stability_index(constant, constant) == 0


def test_chance_alone_stays_below_the_limit() -> None:
    largest = 0.0
    for _ in range(300):
        old, new = RNG.beta(1, 9, (2, 500)).astype(np.float32)
        largest = max(largest, stability_index(cells_of([new]), cells_of([old])))
    assert largest < 0.15  # of a limit of 0.25


def test_cells_keep_the_order_of_numbers() -> None:
    values = np.sort(np.concatenate([RNG.normal(size=500), [0.0, -0.0, 1e-30, -1e30, np.inf, -np.inf]])).astype(
        np.float32
    )
    cells = [int(next(iter(cells_of([values[at : at + 1]])))) for at in range(len(values))]
    assert cells == sorted(cells)
    assert cells_of([np.array([np.nan, 1.0], np.float32)])["=nan"] == 1


def test_a_percentile_is_at_most_a_bucket_too_large() -> None:
    seconds = RNG.lognormal(-6, 1, 5000)
    tally = VersionTally(len(seconds))
    for each in seconds:
        tally.latencies[int(np.searchsorted(FINE_BUCKETS, each))] += 1
    exact = float(np.quantile(seconds, 0.99, method="inverted_cdf"))
    measured = tally.percentile(0.99)
    assert measured is not None
    assert exact <= measured <= exact * 1.15
    assert VersionTally().percentile(0.99) is None


def test_a_window_adds_up_what_is_in_it() -> None:
    window = SlidingWindow(10)
    for now in range(20):
        window.add(now, {1: VersionTally(1, predictions={"score": {"1": 2}})})
    assert window.of(1).answered == 10
    assert window.of(1).predictions == {"score": {"1": 20}}
    assert window.of(2).requests == window.of(None).requests == 0
    window.forget(1)
    assert window.of(1).requests == 0
