"""Intervals: that they hold the truth as often as they say, whatever the method, and what they are made of."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from drivetrain import InputError
from drivetrain.components.evaluation import Confidence, EvaluationConfig
from drivetrain.components.evaluation.accumulator import MetricsAccumulator
from drivetrain.components.evaluation.confidence import hash_of
from scipy import stats

SHIFT = 1.2
"""By how much the positives' scores lie higher than the negatives', which are normal of variance 1."""


def batch(rows: int, seed: int, *, weighted: bool = False) -> pa.RecordBatch:
    rng = np.random.default_rng(seed)
    label = rng.random(rows) < 0.3
    score = 1 / (1 + np.exp(-(rng.normal(size=rows) + SHIFT * label - 1)))
    columns: dict[str, Any] = {"label": label.astype(np.int64), "candidate": score}
    if weighted:
        columns["weight"] = rng.random(rows) * 3
    return pa.record_batch(columns)


def intervals(config: EvaluationConfig, rows: pa.RecordBatch) -> dict[str, Any]:
    accumulator = MetricsAccumulator(config)
    accumulator.add_batch(rows)
    candidate: dict[str, Any] = accumulator.result()["slices"][0]["intervals"]["candidate"]
    return candidate


@pytest.mark.slow
def test_an_interval_for_many_looks_holds_at_all_of_them() -> None:
    """150 sets of rows that grow, looked at eight times each: what fixed intervals hold at every look, and these."""
    looks = [200, 300, 450, 700, 1000, 1500, 2200, 3000]
    truth = float(stats.norm.cdf(SHIFT / math.sqrt(2)))
    held = Counter[str]()
    for seed in range(150):
        rows = batch(looks[-1], seed)
        for name, until in (("one look", None), ("many looks", 3000)):
            config = EvaluationConfig("y", "p", metrics=["auc"], confidence=Confidence("delong", looks_until=until))
            ends = [intervals(config, rows.slice(0, look))["auc"] for look in looks]
            held[name] += all(low <= truth <= high for low, high in ends)
    assert held["one look"] < 132  # 88 %
    assert held["many looks"] >= 143  # 95 %


def test_an_interval_for_many_looks_is_that_of_the_paper() -> None:
    """It is least beside one look's at the rows that were said, and grows without end for fewer and more."""
    one = Confidence()
    ratios = {
        rows: np.ptp(Confidence(looks_until=1000).around(0.0, 0.1, math.inf, rows))
        / np.ptp(one.around(0.0, 0.1, math.inf, rows))
        for rows in (1, 100, 800, 1000, 1200, 10_000, 10**9)
    }
    assert min(ratios, key=lambda rows: ratios[rows]) in (800, 1000, 1200)
    assert 1.4 < ratios[1000] < 1.6
    rho = (-2 * math.log(0.05) + math.log(-2 * math.log(0.05) + 1)) / 1000
    half = 0.1 * math.sqrt(2 * (100 * rho + 1) / (100 * rho) * math.log(math.sqrt(100 * rho + 1) / 0.05))
    assert Confidence(looks_until=1000).around(0.0, 0.1, math.inf, 100) == pytest.approx((-half, half))
    with pytest.raises(InputError, match="looks_until must be a whole number"):
        Confidence(looks_until=0)


@pytest.mark.slow
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("method", ["jackknife", "bootstrap", "delong"])
def test_intervals_at_95_hold_the_truth_in_93_to_97_of_100(method: Any, weighted: bool) -> None:
    if method == "delong" and weighted:
        with pytest.raises(InputError, match="DeLong's interval has no weights"):
            EvaluationConfig("y", "p", confidence=method, weight="w")
        return
    names = ["auc", "log_loss", "precision"]
    config = EvaluationConfig("y", "p", metrics=names, confidence=method, weight="w" if weighted else None)
    many = batch(4_000_000, 99)
    label, score = many["label"].to_numpy() == 1, many["candidate"].to_numpy()
    truth = {
        "auc": float(stats.norm.cdf(SHIFT / math.sqrt(2))),  # of two normal distributions
        "log_loss": float(-np.mean(np.log(np.where(label, score, 1 - score)))),
        "precision": float((label & (score > 0.5)).sum() / (score > 0.5).sum()),
    }
    held: Counter[str] = Counter()
    for seed in range(1000):
        each = intervals(config, batch(2000, seed, weighted=weighted))
        held.update(name for name in names if each[name][0] <= truth[name] <= each[name][1])
    assert all(930 <= held[name] <= 970 for name in names), held


def test_the_jackknife_of_a_mean_is_that_of_its_buckets() -> None:
    config = EvaluationConfig("y", "p", metrics=["brier_score"], confidence=Confidence(buckets=10, level=0.9))
    rows = batch(500, 1)
    label, score = rows["label"].to_numpy(), rows["candidate"].to_numpy()
    losses = (score - label) ** 2
    bucket = config.resampling.bucket_of(hash_of(0, [label.astype(bool), score]))
    without = np.array([losses[bucket != each].mean() for each in range(10)])
    error = math.sqrt(0.9 * float(np.sum((without - without.mean()) ** 2)))
    half = float(stats.t.ppf(0.95, 9)) * error
    expected = (losses.mean() - half, losses.mean() + half)
    assert intervals(config, rows)["brier_score"] == pytest.approx(expected, rel=1e-12)


def test_delong_is_the_variance_of_the_placements() -> None:
    config = EvaluationConfig("y", "p", metrics=["auc"], confidence="delong")
    rows = batch(300, 2)
    label, score = rows["label"].to_numpy() == 1, np.round(rows["candidate"].to_numpy(), 1)
    rows = rows.set_column(1, "candidate", pa.array(score))
    wins = (score[label][:, None] > score[~label]) + 0.5 * (score[label][:, None] == score[~label])
    variance = wins.mean(axis=1).var(ddof=1) / label.sum() + wins.mean(axis=0).var(ddof=1) / (~label).sum()
    half = 1.959963984540054 * math.sqrt(variance)
    assert intervals(config, rows)["auc"] == pytest.approx((wins.mean() - half, wins.mean() + half), rel=1e-12)


def test_rows_spread_evenly_over_buckets_even_where_all_are_equal() -> None:
    confidence = Confidence(buckets=20)
    for columns in ([np.zeros(10_000)], [np.zeros((10_000, 3)), np.ones(10_000, dtype=bool)]):
        counts = np.bincount(confidence.bucket_of(hash_of(7, columns)), minlength=20)
        assert stats.chisquare(counts).pvalue > 1e-4
    first = [
        int(confidence.bucket_of(hash_of(0, [np.array([value])]))[0]) for value in np.random.default_rng(0).random(2000)
    ]
    assert stats.chisquare(np.bincount(first, minlength=20)).pvalue > 1e-4


def test_a_seed_gives_the_same_buckets_and_another_seed_others() -> None:
    scores = np.random.default_rng(0).random(1000)
    same, again, other = (Confidence(seed=seed).bucket_of(hash_of(0, [scores])) for seed in (5, 5, 6))
    assert (same == again).all()
    assert (same != other).mean() > 0.9
    assert (Confidence("bootstrap", seed=1).draws() != Confidence("bootstrap", seed=2).draws()).any()


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([(1, 0.9), (0, 0.1)] * 3, "buckets only, of at least 10"),
        ([(1, 0.9)] + [(0, 0.1)] * 200, "undefined in 1 of 20 resamples"),
        ([(0, 0.1)] * 50, "only one class among the labels"),
    ],
)
def test_no_interval_without_its_reason(rows: list[tuple[int, float]], reason: str) -> None:
    label, score = zip(*rows, strict=True)
    config = EvaluationConfig("y", "p", metrics=["auc"], confidence="jackknife")
    assert reason in intervals(config, pa.record_batch({"label": list(label), "candidate": list(score)}))["auc"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"method": "jacknife"}, "method must be one of"),
        ({"level": 95}, "level must lie between 0 and 1"),
        ({"buckets": 5}, "buckets must be a whole number from 10"),
        ({"resamples": 1.5}, "resamples must be a whole number"),
        ({"seed": -1}, "seed must be a whole number"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        Confidence(**options)
    with pytest.raises(InputError, match="confidence must be a Confidence"):
        EvaluationConfig("y", "p", confidence=0.95)  # type: ignore[arg-type]


def test_what_grows_with_the_rows_has_no_interval() -> None:
    names = ["example_count", "weighted_example_count", "true_positives", "false_negatives", "mean_label", "auc"]
    assert (
        list(intervals(EvaluationConfig("y", "p", metrics=names, confidence="jackknife"), batch(200, 1))) == names[4:]
    )


def test_an_interval_of_a_share_ends_at_0_and_1() -> None:
    rows = pa.record_batch({"label": [1] * 59 + [0], "candidate": [0.9] * 60})
    config = EvaluationConfig("y", "p", metrics=["precision"], confidence="bootstrap")
    low, high = intervals(config, rows)["precision"]
    assert 0.9 < low < 59 / 60
    assert high == 1
