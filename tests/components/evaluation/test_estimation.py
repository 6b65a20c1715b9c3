"""`drivetrain.estimate`: what it says without labels, against the labels that it was not shown."""

from __future__ import annotations

import itertools
from decimal import Decimal
from typing import Any

import drivetrain as dt
import numpy as np
import pandas as pd
import pytest
from drivetrain.components.evaluation import Slice, direct_loss, metric
from drivetrain.errors import InputError
from sklearn import metrics as sk

PAIR, TRIPLE = [[0.2, 0.8]], [[0.2, 0.3, 0.5]]


def chances(z: Any) -> Any:
    return 1 / (1 + np.exp(-z))


def scored(seed: int, rows: int, shift: float = 0.0) -> pd.DataFrame:
    """Rows of a model that ranks well and promises too much; what a score means does not depend on the shift."""
    dice = np.random.default_rng(seed)
    x = dice.normal(shift, 1.2, (rows, 2))
    z = x @ [1.2, -0.6]
    return pd.DataFrame(
        {
            "y": (dice.random(rows) < chances(z)).astype(int),
            "p": chances(2 * z),  # overconfident: calibration has something to do
            "g": np.where(dice.random(rows) < 0.3, "few", "many"),
            "w": dice.random(rows) + 0.5,
        }
    )


def estimated(data: pd.DataFrame, reference: pd.DataFrame, **options: Any) -> dt.PerformanceEstimate:
    options = {"label": "y", "predictions": "p"} | options
    return dt.estimate(data.drop(columns="y"), reference=reference, **options)


def test_expected_labels_are_the_mean_over_all_labels_there_could_be() -> None:
    """Six scores whose rate of positives is known; all 2^6 labels of six rows, each as likely as it is."""
    scores = np.linspace(0.05, 0.95, 6)
    rates = np.array([0.1, 0.15, 0.4, 0.45, 0.7, 0.8])
    reference = pd.DataFrame(
        {
            "p": np.repeat(scores, 100),
            "y": np.concatenate([np.arange(100) < round(rate * 100) for rate in rates]).astype(int),
        }
    )
    result = estimated(pd.DataFrame({"p": scores, "y": 0}), reference, metrics=["accuracy", "precision", "log_loss"])
    expected = {"accuracy": 0.0, "precision": 0.0, "log_loss": 0.0}
    rates = (rates * 100 + rates.mean()) / 101  # a step of the calibration counts one row of the mean more
    for labels in itertools.product([0, 1], repeat=6):
        y = np.asarray(labels)
        likely = np.prod(np.where(y == 1, rates, 1 - rates))
        expected["accuracy"] += likely * sk.accuracy_score(y, scores > 0.5)
        expected["precision"] += likely * sk.precision_score(y, scores > 0.5)
        expected["log_loss"] += likely * sk.log_loss(y, scores, labels=[0, 1])
    assert result.overall == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("shift", [0.0, 0.8])
def test_the_metrics_that_labels_then_have(shift: float) -> None:
    data, reference = scored(1, 20_000, shift), scored(2, 20_000)
    result = estimated(data, reference, slices=[["g"]], metrics=["auc", "accuracy", "log_loss", "recall", "f1"])
    realised = {
        "auc": sk.roc_auc_score(data.y, data.p),
        "accuracy": sk.accuracy_score(data.y, data.p > 0.5),
        "log_loss": sk.log_loss(data.y, np.clip(data.p, 1e-7, 1 - 1e-7)),
        "recall": sk.recall_score(data.y, data.p > 0.5),
        "f1": sk.f1_score(data.y, data.p > 0.5),
    }
    assert result.overall == pytest.approx(realised, rel=0.03)
    frame = result.frame()
    few = frame[frame["slice"] == "g=few"].set_index("metric")
    some = data[data["g"] == "few"]
    assert few["n"].unique().tolist() == [len(some)]
    assert few["estimate"]["accuracy"] == pytest.approx(sk.accuracy_score(some.y, some.p > 0.5), rel=0.03)
    assert frame[frame["slice"] == "overall"]["changed"].any() == (shift > 0)
    assert (result.drift > 0.1) == (shift > 0)
    assert "20,000 rows without labels" in repr(result)
    assert "<table" in result._repr_html_()


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "weight"), [(500, None), (2_000, "w"), (20_000, None)])
def test_intervals_hold_what_labels_then_say(rows: int, weight: str | None) -> None:
    """Of 60 samples of 1,500 rows, each with a reference of its own."""
    hits = dict.fromkeys(("auc", "accuracy", "log_loss"), 0)
    errors: dict[str, list[float]] = {name: [] for name in hits}
    for seed in range(60):
        data, reference = scored(10_000 + seed, 1_500, 0.5), scored(seed, rows)
        frame = estimated(data, reference, weight=weight, metrics=list(hits), seed=seed).frame().set_index("metric")
        each = {} if weight is None else {"sample_weight": data[weight]}
        realised = {
            "auc": sk.roc_auc_score(data.y, data.p, **each),
            "accuracy": sk.accuracy_score(data.y, data.p > 0.5, **each),
            "log_loss": sk.log_loss(data.y, np.clip(data.p, 1e-7, 1 - 1e-7), **each),
        }
        for name, value in realised.items():
            hits[name] += frame["lower"][name] <= value <= frame["upper"][name]
            errors[name].append(frame["estimate"][name] - value)
    assert all(count >= 52 for count in hits.values()), hits  # 57 ± 1.7 of 60 were they exact
    assert all(abs(np.mean(each)) < 0.5 * np.std(each) for each in errors.values())


def test_a_changed_law_is_not_seen() -> None:
    """What the docs warn of: rows of the same score that turn out otherwise look the same."""
    data, reference = scored(1, 4_000), scored(2, 4_000)
    data["y"] = (np.random.default_rng(3).random(4_000) < 0.5).astype(int)
    result = estimated(data, reference, metrics=["auc"])
    estimate = result.overall["auc"]
    assert estimate is not None
    assert estimate > 0.7 > 0.55 > sk.roc_auc_score(data.y, data.p)
    assert not result.frame()["changed"].any()


def test_calibration_error_and_gaps_are_not_those_of_expected_sums() -> None:
    """Which are 0 for a calibrated model and for groups that do not differ, as no sample of rows is."""
    data, reference = scored(1, 1_000), scored(2, 20_000)
    data["p"] = reference["p"] = 0.5  # calibrated: half of all labels are 1
    data["g"] = np.random.default_rng(5).choice(["a", "b"], 1_000)
    reference["g"] = "a"
    names = ["expected_calibration_error", metric("gap", of="prevalence", by="g", name="gap")]
    overall = estimated(data, reference, metrics=names, slices=[["g"]]).overall
    expected = 0.5 * np.sqrt(2 / np.pi)  # σ·√(2/π), the mean of |a normal variable|
    assert overall["expected_calibration_error"] == pytest.approx(expected / np.sqrt(1_000), rel=0.35)
    assert overall["gap"] == pytest.approx(expected * np.sqrt(1 / 500 + 1 / 500), rel=0.35)


def test_of_several_classes() -> None:
    dice = np.random.default_rng(3)

    def draw(rows: int, tilt: float) -> pd.DataFrame:
        p = dice.dirichlet([1.0 + tilt, 1.0, 1.0], rows)
        y = (dice.random(rows)[:, None] > np.cumsum(p, axis=1)[:, :2]).sum(axis=1)
        return pd.DataFrame({"p": list(p), "y": np.array(["ant", "bee", "cat"])[y]})

    data, reference = draw(15_000, 3.0), draw(15_000, 0.0)
    result = estimated(
        data, reference, task="multiclass", classes=["ant", "bee", "cat"], metrics=["accuracy", "macro_f1", "log_loss"]
    )
    scores = np.stack(data["p"])
    called = np.array(["ant", "bee", "cat"])[scores.argmax(axis=1)]
    assert result.overall == pytest.approx(
        {
            "accuracy": sk.accuracy_score(data["y"], called),
            "macro_f1": sk.f1_score(data["y"], called, average="macro"),
            "log_loss": sk.log_loss(data["y"], scores),
        },
        rel=0.03,
    )


@pytest.mark.slow
def test_losses_of_numbers() -> None:
    """The error grows with x, of which the new rows have more."""
    dice = np.random.default_rng(4)

    def draw(rows: int, low: float) -> pd.DataFrame:
        x = dice.uniform(low, 10, rows)
        return pd.DataFrame({"x": x, "p": 3 * x, "y": 3 * x + dice.normal(0, 0.2 + x / 4), "late": x > 8})

    data, reference = draw(8_000, 6.0), draw(8_000, 0.0)
    result = estimated(data, reference, slices=[["late"]])
    error = (data["y"] - data["p"]).to_numpy()
    assert result.overall == pytest.approx({"mae": np.abs(error).mean(), "rmse": np.sqrt((error**2).mean())}, rel=0.04)
    frame = result.frame()
    assert frame["changed"][:2].all()
    late = frame[(frame["slice"] == "late=True") & (frame["metric"] == "mae")].iloc[0]
    assert late["estimate"] == pytest.approx(np.abs(error[data["late"]]).mean(), rel=0.08)
    assert late["lower"] < np.abs(error[data["late"]]).mean() < late["upper"]


def test_bins_are_those_of_the_reference() -> None:
    data, reference = scored(1, 3_000, 1.0), scored(2, 3_000)
    result = estimated(data, reference, slices=[Slice("score", sql="p", bins=4)], metrics=["accuracy"])
    lines = [line for line in result.lines if line["slice"] != "overall"]
    assert len(lines) == 4
    assert sum(line["n"] for line in lines) == 3_000
    assert len({line["n"] for line in lines}) == 4  # the reference has 750 in each


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"label": "z"}, r"the label.*'z'|'z'.*the label"),
        ({"predictions": "q"}, "'q'"),
        ({"slices": [["h"]]}, "'h'"),
        ({"metrics": ["flip_rate"]}, "'flip_rate' compares with a baseline, and there is none"),
        ({"metrics": ["r2"]}, "'r2' of numbers is not estimated without labels"),
        ({"metrics": ["ndcg"], "task": "ranking"}, "no query is named|performance of ranking is not estimated"),
        ({"task": "multilabel"}, "performance of multilabel is not estimated"),
    ],
)
def test_what_cannot_be_estimated_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        estimated(scored(1, 50), scored(2, 200), **change)


def test_bad_rows_are_counted_and_quoted() -> None:
    reference = scored(2, 200)
    with pytest.raises(InputError, match=r"row 3 \(7"):
        estimated(scored(1, 50), reference.assign(p=reference["p"].where(reference.index != 3, 7.0)))
    with pytest.raises(InputError, match=r"row 5 \(2"):
        estimated(scored(1, 50), reference.assign(y=reference["y"].where(reference.index != 5, 2)), task="binary")
    with pytest.raises(InputError, match="no rows"):
        estimated(scored(1, 50)[:0], reference)
    with pytest.raises(InputError, match="at least 100 to learn losses from"):
        estimated(scored(1, 50), reference[:50], task="regression")


@pytest.mark.parametrize(
    ("data", "reference", "options", "words"),
    [
        ({}, {"y": 1}, {"task": "binary"}, "labels 'y' of the reference are all of one class"),
        ({}, {"w": 0.0}, {"weight": "w"}, "weights 'w' of the reference are all 0"),
        ({"w": 0.0}, {}, {"weight": "w"}, "weights 'w' are all 0"),
        ({"w": 1e-100}, {}, {"weight": "w"}, "weight 'w' has values below 1e-80, which cannot be divided"),
        ({}, {"w": [0.0] * 101 + [1.0] * 99}, {"weight": "w"}, "has 99 rows of any weight, of at least 100"),
        ({"p": PAIR * 50}, {"p": TRIPLE * 200}, {"task": "multiclass"}, "'p' has 2 scores .* and 3 in"),
        ({"p": TRIPLE * 50}, {"p": PAIR * 200}, {"task": "multiclass"}, "'p' has 3 scores .* and 2 in"),
    ],
)  # fmt: skip
def test_a_reference_that_tells_nothing_is_refused(
    data: dict[str, Any], reference: dict[str, Any], options: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        estimated(scored(1, 50).assign(**data), scored(2, 200).assign(**reference), **options)


def test_a_small_reference_is_refused_rather_than_trusted() -> None:
    with pytest.raises(InputError, match="the reference has 99 rows, of at least 100 to learn what scores mean from"):
        estimated(scored(1, 50), scored(2, 99))


def test_decimals_are_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct_loss, "_FOLDS", 2)  # what intervals are drawn by, at which nobody looks here
    data, reference = (
        scored(seed, rows)[["y", "p"]].assign(y=lambda each: each["p"] * 3) for seed, rows in ((1, 50), (2, 100))
    )
    results = [
        estimated(data.assign(p=data["p"].map(kind)), reference.assign(p=reference["p"].map(kind)), task="regression")
        for kind in (float, lambda score: Decimal(repr(score)).quantize(Decimal(10) ** -18))
    ]
    assert results[1].overall == pytest.approx(results[0].overall, rel=1e-6)


@pytest.mark.parametrize("level", [0.5, 0.95])
def test_a_slice_that_the_calibration_does_not_fit_is_not_estimated(level: float) -> None:
    """Scores of B are the wrong way round: an AUC of 0.51 was expected of A, and said to be changed from 0.83."""
    generator = np.random.default_rng(0)
    scores, city = generator.random(8_000), generator.choice(["A", "B"], 8_000)
    chance = np.where(city == "A", scores, 1 - scores)
    frame = pd.DataFrame({"p": scores, "city": city, "y": (generator.random(8_000) < chance).astype(int)})
    for fits in (True, False):
        rows = frame
        if fits:
            rows = frame[frame["city"] == "A"]
            rows = rows.assign(city=generator.choice(["A", "B"], len(rows)))
        half = len(rows) // 2
        result = dt.estimate(
            rows[half:],
            reference=rows[:half],
            label="y",
            predictions="p",
            slices=[["city"]],
            metrics=["auc", "recall"],
            level=level,
        )
        slices = [line for line in result.lines if line["slice"] != "overall"]
        assert len(slices) == 4
        assert level < 0.95 or not any(line["changed"] for line in slices)
        assert all((line["estimate"] is not None) == fits for line in slices)
        assert all(fits or "turn out otherwise than others of their score" in line["undefined"] for line in slices)
