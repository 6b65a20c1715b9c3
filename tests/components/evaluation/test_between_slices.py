"""Fairness and other metrics between slices, against Fairlearn and the slices themselves."""

from __future__ import annotations

import cProfile
import json
import pickle
from typing import Any

import fairlearn.metrics as fl
import numpy as np
import pandas as pd
import pytest
from drivetrain import InputError, evaluate
from drivetrain.components.evaluation import EvaluationConfig, Metric, Threshold, metric
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import f1_score, precision_score, roc_auc_score

NAMES = [
    "demographic_parity_difference", "demographic_parity_ratio", "equalized_odds_difference", "equalized_odds_ratio",
    "equal_opportunity_difference", "equal_opportunity_ratio",
]  # fmt: skip


def people(rows: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    sex, young = rng.choice(["f", "m", "x"], rows), rng.choice(["no", "yes"], rows)
    y = rng.integers(0, 2, rows)
    p = np.clip(0.5 * y + rng.random(rows) * 0.6 - 0.1 * (sex == "f"), 0, 1)
    return pd.DataFrame(
        {"y": y, "p": p, "q": rng.random(rows), "sex": sex, "young": young, "w": rng.choice([1.0, 2.0], rows)}
    )


def measured(rows: pd.DataFrame, metrics: list[Any], **options: Any) -> dict[str, Any]:
    result = evaluate(rows, label="y", predictions="p", metrics=metrics, **options)
    return {item["slice"]: item for item in result.models["p"]["metrics"]["slices"]}


@pytest.mark.slow
@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 10_000), threshold=st.sampled_from([0.3, 0.5, 0.7]), weighted=st.booleans())
def test_fairlearn_agrees(seed: int, threshold: float, weighted: bool) -> None:
    rows = people(300, seed)
    ours = measured(
        rows,
        [metric(name, by="sex", threshold=threshold, name=name) for name in NAMES],
        weight="w" if weighted else None,
    )["overall"]["metrics"]["candidate"]
    for name in NAMES:
        theirs = getattr(fl, name)(
            rows.y, rows.p > threshold, sensitive_features=rows.sex, sample_weight=rows.w if weighted else None
        )
        assert ours[name] == pytest.approx(theirs, rel=1e-9, abs=1e-12), name
    by_group = fl.MetricFrame(
        metrics=precision_score, y_true=rows.y, y_pred=rows.p > threshold, sensitive_features=rows.sex
    )
    parity = measured(rows, [metric("predictive_parity_difference", by="sex", threshold=threshold, name="parity")])
    assert parity["overall"]["metrics"]["candidate"]["parity"] == pytest.approx(by_group.difference())


def test_what_is_compared_is_kept_by_group() -> None:
    rows = people(400, 3)
    names = ("demographic_parity_ratio", "equalized_odds_difference")
    metrics = [metric(name, by="sex") for name in names] + [
        metric("predictive_parity_difference", by="sex"),
        metric("demographic_parity_ratio", by="sex", threshold=0.2, name="low"),
    ]
    result = evaluate(rows, label="y", predictions=["p", "q"], baseline="q", metrics=metrics, min_examples=100)
    drawn = result.models["p"]["metrics"]["plots"]
    for model, column in (("candidate", "p"), ("baseline", "q")):
        (part,) = drawn[model]["groups"]
        assert (part["by"], len(part["metrics"])) == (["sex"], 4)
        rates = {"Predicted positive rate": fl.selection_rate, "Recall": fl.true_positive_rate}
        rates |= {"False positive rate": fl.false_positive_rate, "Precision": precision_score}
        theirs = fl.MetricFrame(
            metrics=rates, y_true=rows.y, y_pred=rows[column] > 0.5, sensitive_features=rows.sex
        ).by_group
        low = rows[column].gt(0.2).groupby(rows.sex).mean()
        assert [group["n"] for group in part["groups"]] == rows.groupby("sex").size().tolist()
        for group in part["groups"]:
            values = dict(group["values"])
            assert values.pop("Predicted positive rate (low)") == pytest.approx(low[group["group"]])
            assert values == pytest.approx(theirs.loc[group["group"]].to_dict())
    rows["half"] = 0.45  # at both thresholds what is predicted differs, of the other model it does not
    rows["sure"] = np.where(rows.p > 0.5, 1.0, 0.0)
    thresholds = [metric("demographic_parity_ratio", by="sex", threshold=at, name=f"at {at}") for at in (0.5, 0.4)]
    both = evaluate(rows, label="y", predictions=["half", "sure"], baseline="sure", metrics=thresholds)
    drawn = both.models["half"]["metrics"]["plots"]
    titles = [[*part["groups"][0]["values"]] for model in drawn.values() for part in model["groups"]]
    assert titles == [["Predicted positive rate", "Predicted positive rate (at 0.4)"]] * 2
    assert "Groups by sex" in both._repr_html_()
    small = evaluate(rows, label="y", predictions="p", metrics=metrics, min_examples=int(rows.sex.eq("f").sum()) + 1)
    (part,) = small.models["p"]["metrics"]["plots"]["candidate"]["groups"]
    assert "f" not in [group["group"] for group in part["groups"]]


@pytest.mark.parametrize("exact_rows", [0, 200_000])
def test_a_gap_is_in_any_metric_and_between_any_groups(exact_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EvaluationConfig, "exact_rows", exact_rows)
    rows = people(600, 1)
    slices = measured(
        rows,
        [
            metric("gap", of="auc", by="sex", name="gap"),
            metric("gap_ratio", of="log_loss", by="sex", name="ratio"),
            metric("gap", of="mean_prediction", by="sex", between=["m", "f"], name="m - f"),
            metric("gap", of="auc", by=["sex", "young"], name="both"),
            "auc", "log_loss", "mean_prediction",
        ],
        slices=[["young"], ["young", "sex"]],
    )  # fmt: skip
    overall = slices["overall"]["metrics"]["candidate"]
    area = {sex: roc_auc_score(group.y, group.p) for sex, group in rows.groupby("sex")}
    near = 1e-3 if exact_rows == 0 else 1e-9
    assert overall["gap"] == pytest.approx(max(area.values()) - min(area.values()), abs=near)
    losses = [slices[f"sex={sex}"]["metrics"]["candidate"]["log_loss"] for sex in "fmx"]
    assert overall["ratio"] == pytest.approx(min(losses) / max(losses))
    means = rows.groupby("sex").p.mean()
    assert overall["m - f"] == pytest.approx(means["m"] - means["f"])
    crossed = [roc_auc_score(group.y, group.p) for _, group in rows.groupby(["sex", "young"])]
    assert overall["both"] == pytest.approx(max(crossed) - min(crossed), abs=near)
    young = rows[rows.young == "yes"].groupby("sex").p.mean()
    assert slices["young=yes"]["metrics"]["candidate"]["m - f"] == pytest.approx(young["m"] - young["f"])
    assert "m - f" not in slices["sex=m"]["metrics"]["candidate"]


def test_it_has_intervals_changes_and_thresholds() -> None:
    rows = people(3000, 2)
    names = [metric("demographic_parity_difference", by="sex", name="parity")]
    result = evaluate(
        rows, label="y", predictions=["p", "q"], baseline="q", metrics=names, confidence="jackknife",
        thresholds=[Threshold("parity", upper=0.05, judge="lenient"), Threshold("parity", change_absolute=0.02)],
    )  # fmt: skip
    (overall, *_) = result.models["p"]["metrics"]["slices"]
    low, high = overall["intervals"]["candidate"]["parity"]
    value, before = (overall["metrics"][model]["parity"] for model in ("candidate", "baseline"))
    assert 0.05 < low < value < high
    assert overall["intervals"]["change"]["parity"][0] < value - before < overall["intervals"]["change"]["parity"][1]
    checks = result.models["p"]["validation"]["thresholds"]
    assert [check["passed"] for check in checks] == [False, False]
    assert checks[0]["text"].startswith("overall parity 0.")


@pytest.mark.slow
def test_the_interval_of_a_difference_holds_the_truth() -> None:
    held = 0
    for seed in range(400):
        rng = np.random.default_rng(seed)
        sex = rng.choice(["f", "m"], 2000)
        rows = pd.DataFrame(
            {"y": rng.integers(0, 2, 2000), "sex": sex, "p": (rng.random(2000) < np.where(sex == "f", 0.3, 0.6)) * 1.0}
        )
        overall = measured(rows, [metric("demographic_parity_difference", by="sex", name="d")], confidence="jackknife")[
            "overall"
        ]
        low, high = overall["intervals"]["candidate"]["d"]
        held += low <= 0.3 <= high
    assert 0.92 <= held / 400 <= 0.98


def test_the_work_of_many_slices_grows_with_their_number() -> None:
    def calls(slices: int) -> int:
        rows = people(3 * slices, 0).assign(shop=np.arange(3 * slices) % slices)
        profile = cProfile.Profile()
        gaps = profile.runcall(
            measured, rows, [metric("gap", of="mean_label", by="sex", name="gap")], slices=[["shop"], ["shop", "sex"]]
        )
        for shop in (0, slices - 1):
            means = rows[rows["shop"] == shop].groupby("sex")["y"].mean()
            gap = means.max() - means.min() if len(means) > 1 else "fewer than two groups"
            assert gaps[f"shop={shop}"]["metrics"]["candidate"]["gap"] == gap
        return sum(entry.callcount for entry in profile.getstats())

    calls(10)  # imports
    assert calls(600) < 2.5 * calls(300)


def test_a_group_without_a_value_is_named() -> None:
    rows = pd.DataFrame({"y": [1, 0, 0, 0], "p": [0.9, 0.1, 0.2, 0.3], "sex": ["m", "m", None, None]})
    ours = measured(
        rows,
        [
            metric("equal_opportunity_difference", by="sex", name="opportunity"),
            metric("gap", of="mean_label", by="sex", between=["m", "f"], name="m - f"),
            metric("demographic_parity_ratio", by="sex", threshold=0.95, name="nobody"),
        ],
    )["overall"]["metrics"]["candidate"]
    assert ours["opportunity"] == "(missing): no positive labels"
    assert ours["m - f"] == "no group f"
    assert ours["nobody"] == "0 in every group"
    small = measured(rows, [metric("gap", of="recall", by="sex", name="gap")], min_examples=3)
    assert small["overall"]["metrics"]["candidate"]["gap"] == "fewer than two groups"


@pytest.mark.parametrize(
    ("item", "says"),
    [
        (metric("gap", of="aucc", by="sex"), "there is no metric 'aucc'"),
        (metric("gap", by="sex"), "needs the option 'of'"),
        (metric("gap", of=3, by="sex"), "of must be a metric, not 3"),
        (metric("gap", of="rmse", by="sex"), "'rmse' judges regression models"),
        (metric("gap", of="auc", by="sex", between=["m"]), "between must name two groups"),
        (metric("gap", of="auc", by="sex", between=["m", "m"]), "between names the group 'm' twice"),
        (metric("gap_ratio", of="auc", by="sex", between=[1, "1"]), "between names the group '1' twice"),
        (metric("equalized_odds_ratio"), "needs the option 'by'"),
    ],
)
def test_a_mistake_is_named(item: Any, says: str) -> None:
    with pytest.raises(InputError, match=says):
        EvaluationConfig("y", "p", task="binary", metrics=[item])


def lowest() -> Metric:
    return Metric.of_rows("Lowest", lambda rows: float(rows.prediction.min()))


def test_gaps_of_metrics_with_options_and_of_a_users_own() -> None:
    """Only bare names of ours could be compared."""
    rng = np.random.default_rng(8)
    frame = pd.DataFrame({"y": rng.integers(0, 2, 400), "g": ["a", "b"] * 200})
    frame["p"] = np.clip(0.3 * frame.y + rng.random(400) * 0.6, 0, 1)
    metrics = [
        metric("gap", of=metric("f1", threshold=0.3), by="g"),
        metric("gap", of=lowest, by="g"),
        metric("gap_ratio", of=metric(lowest), by="g", name="ratio"),
    ]
    result = evaluate(frame, label="y", predictions="p", metrics=metrics).overall["p"]
    groups = [frame[frame.g == name] for name in ("a", "b")]
    scores = [f1_score(each.y, each.p > 0.3) for each in groups]
    least = [each.p.min() for each in groups]
    assert list(result) == ["gap(by=g, of=f1(threshold=0.3))", "gap(by=g, of=lowest)", "ratio"]
    assert list(result.values()) == pytest.approx([abs(scores[0] - scores[1]), abs(least[0] - least[1]),
                                                   min(least) / max(least)])  # fmt: skip
    config = EvaluationConfig("y", "p", metrics=metrics)
    assert EvaluationConfig.from_json(json.loads(json.dumps(config.to_json()))) == config
    assert pickle.loads(pickle.dumps(config)) == config
    assert set(config.users) == {"gap(by=g, of=lowest)", "ratio"}
    assert ("g",) in config.specs


@pytest.mark.parametrize(
    ("of", "says"),
    [
        (5, "of must be a metric, not 5"),
        (metric("gap", of="auc", by="g"), "of compares slices itself"),
        (metric("f1", treshold=0.3), "metric 'f1' has no option 'treshold'"),
    ],
)
def test_what_gaps_cannot_compare(of: Any, says: str) -> None:
    with pytest.raises(InputError, match=says):
        EvaluationConfig("y", "p", metrics=[metric("gap", of=of, by="g")])
