"""Thresholds against metrics: bounds, changes, and which slices they are meant for."""

from __future__ import annotations

import json
from typing import Any

import pytest
from drivetrain import InputError
from drivetrain.components.evaluation import EvaluationConfig, Threshold
from drivetrain.components.evaluation.validation import matches, relative_change, summary, validate


def config(*thresholds: Any, **options: Any) -> EvaluationConfig:
    given: dict[str, Any] = {"label": "late", "prediction": "probability", "slices": [[], ["carrier"], ["month"]]}
    return EvaluationConfig(**given | options, thresholds=thresholds)


def result(value: float | str, before: float | str | None = None) -> dict[str, Any]:
    metrics = {"candidate": {"auc": value}} | ({} if before is None else {"baseline": {"auc": before}})
    item = {"slice": "overall", "key": "[]", "pairs": list[Any](), "n": 4, "metrics": metrics}
    return {"rows": 4, "slices": [item], "plots": {}}


@pytest.mark.parametrize(
    ("bounds", "value", "before", "passed"),
    [
        ({"lower": 0.75}, 0.75, None, True),
        ({"lower": 0.75}, 0.7499999, None, False),
        ({"upper": 0.75}, 0.75, None, True),
        ({"upper": 0.75}, 0.7500001, None, False),
        ({"lower": 0.5, "upper": 0.6}, 0.7, None, False),
        ({"change_absolute": -0.25}, 0.75, 1.0, True),  # TFMA's threshold_change_pass_and_inclusive
        ({"change_absolute": -0.3}, 0.75, 1.0, True),  # … threshold_change_abs_rel
        ({"change_absolute": -0.2}, 0.75, 1.0, False),
        ({"change_absolute": 0.01}, 0.91, 0.90, True),  # 0.91 - 0.90 is 0.010000000000000009
        ({"change_absolute": -0.01}, 0.90, 0.91, True),  # and the other way round -0.010000000000000009
        ({"change_absolute": -0.01, "change_relative": 0.0}, 0.90, 0.905, False),  # both must hold
        ({"change_absolute": -0.01, "change_relative": -0.01}, 0.90, 0.905, True),
        ({"lower": 0.8, "change_absolute": -0.5}, 0.75, 1.0, False),
        ({"change_relative": 0.01, "direction": "lower"}, 0.4125, 0.425, True),
        ({"change_absolute": 0.0, "direction": "lower"}, 0.5, 0.4, False),
        ({"change_relative": 0.1}, 0.5, 0.0, True),  # from nothing to something is infinitely better
        ({"change_relative": 0.0}, 0.0, 0.0, True),
        ({"change_relative": 0.1}, 0.0, 0.0, False),
        ({"lower": 0.1}, "only one class among the labels", None, False),
        ({"change_absolute": -1.0}, "only one class among the labels", 0.5, False),
        ({"change_absolute": -1.0}, 0.5, "only one class among the labels", False),
        ({"change_absolute": -1.0}, "only one class among the labels", None, None),
    ],
)
def test_bounds(bounds: dict[str, Any], value: float | str, before: float | str | None, passed: bool | None) -> None:
    judged = config(Threshold("auc", **bounds))
    verdict = validate(result(value, before), judged, baseline=before is not None)
    assert verdict["thresholds"][0]["passed"] is passed
    assert verdict["blessed"] is (passed is not False)
    json.dumps(verdict, allow_nan=False)
    assert summary(result(value, before), verdict)


@pytest.mark.parametrize(
    ("bounds", "value", "before", "text"),
    [
        ({"lower": 0.7}, 0.69998, None, "0.69998: < 0.7"),
        ({"lower": 0.7}, 0.7 - 2e-13, None, "0.6999999999998: < 0.7"),
        ({"lower": 0.70003}, 0.70004, None, "0.70004: ≥ 0.70003"),
        ({"upper": 0.7000001}, 0.7000002, None, "0.7000002: > 0.7000001"),
        ({"lower": 0.7}, 0.7, None, "0.7: ≥ 0.7"),
        ({"lower": 0.7}, 0.5123456, None, "0.5123: < 0.7"),
        ({"change_absolute": 0.01}, 0.91, 0.90, "0.91: change +0.01 ≥ +0.01 (baseline 0.9)"),
        ({"change_absolute": 0.1}, 0.5999999, 0.5, "0.6: change +0.0999999 < +0.1 (baseline 0.5)"),
        ({"change_relative": 0.2}, 0.5999999, 0.5, "0.6: change +19.99998% < +20.00000% (baseline 0.5)"),
    ],
)
def test_a_value_and_its_bound_read_as_they_compare(
    bounds: dict[str, Any], value: float, before: float | None, text: str
) -> None:
    judged = config(Threshold("auc", **bounds))
    verdict = validate(result(value, before), judged, baseline=before is not None)
    assert verdict["thresholds"][0]["text"] == f"overall AUC {text}"


@pytest.mark.parametrize(
    ("metric", "bounds", "said"),
    [
        ("auc", {"upper": 0.75}, True),
        ("auc", {"lower": 0.25}, False),
        ("auc", {"lower": 0.25, "upper": 0.75}, False),
        ("auc", {"upper": 0.75, "change_absolute": -1.0}, False),
        ("auc", {"upper": 0.75, "change_absolute": -1.0, "direction": "lower"}, True),
        ("auc", {"lower": 0.25, "change_absolute": -1.0, "direction": "lower"}, False),
        ("log_loss", {"lower": 0.25}, True),
        ("log_loss", {"upper": 0.75}, False),
        ("calibration", {"lower": 0.25}, False),
    ],
)
def test_a_bound_that_any_worse_model_keeps_is_said(metric: str, bounds: dict[str, Any], said: bool) -> None:
    judged = config(Threshold(metric, **bounds), metrics=[metric])
    item = {**result(0.5, None)["slices"][0], "metrics": {"candidate": {metric: 0.5}}}
    (check,) = validate({"rows": 4, "slices": [item], "plots": {}}, judged, baseline=False)["thresholds"]
    assert check["passed"]
    assert ("is better: any worse model keeps this" in check["text"]) is said


@pytest.mark.parametrize("value", [0.9, 0.7])
def test_a_model_without_a_baseline(value: float) -> None:
    """Refused, it fails for that beside its thresholds; with a baseline the word means nothing."""
    bound = Threshold("auc", lower=0.8)
    blessing, refusing = (config(bound, first_run=word) for word in ("bless", "refuse"))
    assert config(bound) == blessing
    kept = value > 0.8
    first = validate(result(value), blessing, baseline=False)
    assert first["blessed"] is kept
    refused = validate(result(value), refusing, baseline=False)
    assert refused["blessed"] is False
    assert len(refused["failures"]) == 1 + (not kept)
    assert refused["failures"][-1].startswith("no baseline yet")
    assert refused | {"blessed": kept, "failures": first["failures"]} == first
    assert validate(result(value, 0.9), refusing, baseline=True) == validate(
        result(value, 0.9), blessing, baseline=True
    )


def test_relative_change_over_zero() -> None:
    assert relative_change(0.5, 0.0) == float("inf")
    assert relative_change(-0.5, 0.0) == float("-inf")
    assert relative_change(0.0, 0.0) == 0.0
    assert relative_change(0.6, 0.5) == pytest.approx(0.2)


def test_a_slice_that_reads_alike_is_named() -> None:
    judged = config(Threshold("auc", lower=0.5, slice={"month": "1"}))
    overall = result(0.9)["slices"][0]
    january = overall | {"slice": "month=1", "pairs": [("month", 1)]}
    verdict = validate({"rows": 4, "slices": [overall, january], "plots": {}}, judged, baseline=False)
    assert verdict["failures"] == [
        "no examples in the slice month=1, which has a threshold: there is one that reads alike, write "
        "slice={'month': 1}"
    ]
    alone = validate(result(0.9), judged, baseline=False)
    assert alone["failures"] == ["no examples in the slice month=1, which has a threshold"]


def test_what_a_threshold_is_meant_for() -> None:
    every = Threshold("auc", lower=0, slice=["carrier"])
    assert matches(every, [("carrier", "AA")])
    assert matches(every, [("carrier", None)])
    assert not matches(every, [])
    assert not matches(every, [("month", 1)])
    assert not matches(every, [("carrier", "AA"), ("month", 1)])
    crossed = Threshold("auc", lower=0, slice=["month", ("carrier", "AA")])
    assert matches(crossed, [("carrier", "AA"), ("month", 1)])
    assert not matches(crossed, [("carrier", "UA"), ("month", 1)])
    assert matches(Threshold("auc", lower=0, slice={"carrier": None}), [("carrier", None)])
    assert not matches(Threshold("auc", lower=0, slice={"flag": True}), [("flag", 1)])


def test_what_is_withheld_is_not_judged() -> None:
    judged = config(
        Threshold("auc", lower=0.5, slice=["carrier"]),
        Threshold("auc", lower=0.5, slice={"carrier": "ZZ"}),
        Threshold("auc", lower=0.5, slice=["month"]),
        Threshold("auc", lower=0.5, slice={"month": 9}),
        min_examples=3,
    )
    measured = result(0.75)
    (overall,) = measured["slices"]
    measured["slices"].append({**overall, "slice": "carrier=AA", "pairs": [("carrier", "AA")]})
    measured["withheld"] = [{"columns": ["carrier"], "slices": 1, "rows": 2}]
    withheld: list[Any] = [([("carrier", "ZZ")], 2), ([("month", 1)], 1), ([("month", 2)], 1)]
    verdict = validate(measured, judged, baseline=False, withheld=withheld)
    assert [check["slice"] for check in verdict["thresholds"]] == ["carrier=AA"]
    some, all_of_it, every_month = verdict["withheld_thresholds"]
    assert (some["judged"], some["withheld"], some["passed"]) == (1, 1, None)
    assert some["text"] == "AUC of carrier=*: 1 slice judged, 1 withheld, with fewer than 3 examples"
    assert all_of_it["passed"] is every_month["passed"] is False
    assert verdict["missing_slices"] == ["month=9"]
    assert verdict["failures"] == [
        "the slice carrier=ZZ, which has a threshold, is withheld, with fewer than 3 examples",
        "the slices month=*, which have a threshold, are all withheld, with fewer than 3 examples",
        "no examples in the slice month=9, which has a threshold",
    ]
    assert verdict["withheld"][0]["text"] == ("1 slice by carrier withheld, with fewer than 3 examples: 2 examples")
    fine = validate(measured, config(judged.thresholds[0], min_examples=3), baseline=False, withheld=withheld)
    assert fine["blessed"]
    assert summary(measured, fine).endswith("; blessed (1 slice withheld)")


@pytest.mark.parametrize(
    ("bounds", "judge", "passed", "says"),
    [
        ({"lower": 0.75}, "value", False, "< 0.75"),
        (
            {"lower": 0.75},
            "lenient",
            True,
            "AUC 0.72: its interval, 0.65 to 0.8, reaches the bound ≥ 0.75 (judged leniently)",
        ),
        ({"lower": 0.81}, "lenient", False, "0.65 to 0.8, lies wholly beyond the bound ≥ 0.81 (judged leniently)"),
        (
            {"lower": 0.66},
            "strict",
            False,
            "AUC 0.72: its interval, 0.65 to 0.8, does not lie wholly ≥ 0.66 (judged strictly)",
        ),
        ({"lower": 0.65}, "strict", True, "its interval, 0.65 to 0.8, lies wholly ≥ 0.65 (judged strictly)"),
        ({"upper": 0.66}, "lenient", True, "reaches the bound ≤ 0.66"),
        ({"upper": 0.64}, "lenient", False, "lies wholly beyond the bound ≤ 0.64"),
        ({"upper": 0.79}, "strict", False, "does not lie wholly ≤ 0.79"),
        ({"change_absolute": 0.0}, "value", False, "change -0.02 < +0"),
        (
            {"change_absolute": 0.0},
            "lenient",
            True,
            "change -0.02, its interval, -0.05 to +0.01, reaches the bound ≥ +0",
        ),
        ({"change_absolute": 0.02}, "lenient", False, "-0.05 to +0.01, lies wholly beyond the bound ≥ +0.02"),
        ({"change_absolute": -0.04}, "strict", False, "-0.05 to +0.01, does not lie wholly ≥ -0.04 (judged strictly)"),
        ({"change_relative": -0.07}, "strict", True, "-7.0000% to +1.5000%, lies wholly ≥ -7.0000%"),
    ],
)
def test_a_threshold_may_judge_the_interval(bounds: dict[str, Any], judge: Any, passed: bool, says: str) -> None:
    measured = result(0.72, 0.74)
    measured["slices"][0]["intervals"] = {
        "candidate": {"auc": (0.65, 0.8)}, "change": {"auc": (-0.05, 0.01)}, "relative_change": {"auc": (-0.07, 0.015)}
    }  # fmt: skip
    judged = config(Threshold("auc", judge=judge, **bounds), confidence="jackknife")
    verdict = validate(measured, judged, baseline=True)
    (check,) = verdict["thresholds"]
    assert check["passed"] is passed is verdict["blessed"]
    assert says in check["text"]
    assert (check["interval"], check["change_interval"]) == ([0.65, 0.8], [-0.05, 0.01])
    assert verdict["confidence"]["method"] == "jackknife"
    json.dumps(verdict, allow_nan=False)


@pytest.mark.parametrize(("judge", "passed"), [("lenient", True), ("strict", False)])
def test_without_an_interval_the_lenient_judge_the_value_and_the_strict_refuse(judge: Any, passed: bool) -> None:
    measured = result(0.72)
    measured["slices"][0]["intervals"] = {"candidate": {"auc": "rows in 3 buckets only, of at least 10"}}
    verdict = validate(
        measured, config(Threshold("auc", lower=0.7, judge=judge), confidence="jackknife"), baseline=False
    )
    assert verdict["thresholds"][0]["passed"] is passed
    asks = {
        "lenient": "≥ 0.7 (without an interval",
        "strict": "must be ≥ 0.7 (a strict threshold asks for an interval, and there is none",
    }
    assert f"{asks[judge]}: rows in 3 buckets only, of at least 10)" in verdict["thresholds"][0]["text"]


def test_an_interval_is_judged_only_where_it_is_computed() -> None:
    with pytest.raises(InputError, match="judges an interval, and none is computed"):
        config(Threshold("auc", lower=0.7, judge="lenient"))
    with pytest.raises(InputError, match="judge must be 'value', 'lenient' or 'strict', not 'mild'"):
        Threshold("auc", lower=0.7, judge="mild")  # type: ignore[arg-type]
