"""What TFMA 0.47 printed for given rows and configurations, and what we measure for the same.

`golden_tfma_calls` turns a case into an `EvaluationConfig`. Where TFMA is wrong or can be bettered, the better answer
follows from the input, and the case must give that (docs/tfma-differences.md says why). `DRIVETRAIN_GOLDEN=folder`
reads `tfma_cases.json` from another folder.
"""

from __future__ import annotations

import base64
import json
import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drivetrain import InputError
from golden_tfma_calls import (  # type: ignore[import-not-found]  # conftest puts this folder on the path
    MATRICES,
    Asked,
    NotYetError,
    Run,
    one_class,
    runs,
)
from golden_tfma_text import parsed  # type: ignore[import-not-found]  # as above
from sklearn.metrics import precision_recall_curve, roc_auc_score

FOLDER = Path(os.environ.get("DRIVETRAIN_GOLDEN") or Path(__file__).parents[2] / "golden")
FILE = FOLDER / "tfma_cases.json"
# A folder of other cases may hold none of these; pytest then says that this test was skipped.
CASES: list[dict[str, Any]] = json.loads(FILE.read_text("utf-8"))["cases"] if FILE.is_file() else []


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_golden(case: dict[str, Any], tmp_path: Path) -> None:
    try:
        check(case, tmp_path)
    except NotYetError as reason:
        if "DRIVETRAIN_GOLDEN" not in os.environ:  # all that are kept here can be done
            raise
        pytest.xfail(str(reason))


def check(case: dict[str, Any], folder: Path) -> None:
    if "raises" in case:
        check_refused(case, folder)
        return
    unknown = [name for name in slice_columns(case) if name not in case["input"]]
    if unknown:
        # TFMA leaves such a slice out, or calls it missing. It is a mistake of whoever wrote it.
        with pytest.raises(InputError, match=re.escape(repr(unknown[0]))):
            runs(case, folder)
        return
    if not_sliced(case):
        # TFMA counts such a slice as missing, on every run.
        with pytest.raises(InputError, match="which are not measured"):
            runs(case, folder)
        return
    measured = runs(case, folder)
    compared = 0
    for run in measured:
        for item in case["expected"]["metrics"]:
            if "cross" in item["slice"]:
                compared += compare_gaps(run, item)
                continue
            ours = next(
                (each for each in run.result["metrics"]["slices"] if pairs(run, each["pairs"]) == key(item)), None
            )
            if run.config.min_examples and not item["values"]:
                # TFMA names slices that are too small, without values and without the reason.
                assert ours is None
                assert check_withheld(case, run, item)
                continue
            assert ours is not None, item["slice"]
            for value in item["values"]:
                compared += compare(case, run, ours, value)
        for plot in case["expected"].get("plots", []):
            for each in plot["plot_keys_and_values"]:
                compared += compare(case, run, run.result["metrics"]["slices"][0], each)
    assert compared == sum(len(item["values"]) for item in case["expected"]["metrics"]) + sum(
        len(plot["plot_keys_and_values"]) for plot in case["expected"].get("plots", [])
    )
    check_verdict(case["expected"]["validation"], measured[0])


def compare_gaps(run: Run, item: Mapping[str, Any]) -> int:
    """How many differences between two slices are the run's; fails where one differs."""
    sides = [
        dict(sorted(key({"slice": item["slice"]["cross"][f"{side}_slice_key"]}))) for side in ("baseline", "comparison")
    ]
    values = run.result["metrics"]["slices"][0]["metrics"]["candidate"]
    for value in item["values"]:
        asked = next(each for each in run.asked if each.theirs == value["key"]["name"])
        mine = values[f"{asked.ours} {sides[0]} - {sides[1]}"]
        assert mine == pytest.approx(float(value["value"]["double_value"]), rel=1e-6, abs=1e-6), asked
    return len(item["values"])


def check_withheld(case: dict[str, Any], run: Run, item: Mapping[str, Any]) -> bool:
    """Whether the slice is too small, and counted among those of its columns."""
    names = sorted(name for name, _ in key(item))
    rows = list(zip(*(case["input"][name] for name in names), strict=True))
    sizes = {values: rows.count(values) for values in rows}
    small = [size for size in sizes.values() if size < run.config.min_examples]
    groups = {tuple(group["columns"]): group for group in run.result["metrics"]["withheld"]}
    counted = groups[tuple(names)]
    return sizes[tuple(value for _, value in sorted(key(item)))] in small and (
        counted["slices"], counted["rows"]) == (len(small), sum(small))  # fmt: skip


def specs_of(case: dict[str, Any]) -> tuple[list[list[str]], list[list[str]]]:
    """The columns of each slice, and of each threshold's."""
    config = parsed(case["config"])
    judged = [
        spec
        for metrics in config["metrics_specs"]
        for each in metrics["metrics"]
        for per in each.get("per_slice_thresholds", [])
        for spec in per["slicing_specs"]
    ]
    named = [
        [
            sorted([*spec.get("feature_keys", []), *(pair["key"][0] for pair in spec.get("feature_values", []))])
            for spec in specs
        ]
        for specs in (config.get("slicing_specs", []), judged)
    ]
    return named[0], named[1]


def slice_columns(case: dict[str, Any]) -> list[str]:
    return [name for specs in specs_of(case) for spec in specs for name in spec]


def not_sliced(case: dict[str, Any]) -> list[list[str]]:
    slices, judged = specs_of(case)
    return [spec for spec in judged if spec not in [*slices, []]]


def key(item: Mapping[str, Any]) -> set[tuple[str, Any]]:
    """TFMA's slice as pairs."""
    return {
        (
            pair["column"],
            base64.b64decode(pair["bytes_value"]).decode()
            if "bytes_value" in pair
            else int(pair["int64_value"]) if "int64_value" in pair else pair["float_value"],
        )
        for pair in item["slice"].get("single_slice_keys", [])
    }  # fmt: skip


def pairs(run: Run, of_slice: Any) -> set[tuple[str, Any]]:
    """Our slice, without the condition that TFMA's names do not tell."""
    return {(name, value) for name, value in of_slice if name not in run.config.expressions}


def compare(case: dict[str, Any], run: Run, ours: Mapping[str, Any], value: Mapping[str, Any]) -> bool:
    """Whether the value is one of the run's; fails where it differs."""
    named = value["key"]
    rest = {name: named[name] for name in ("sub_key", "aggregation_type", "output_name") if name in named}
    # TFMA's calibration plots have no name.
    plots = [
        each
        for each in run.asked
        if "calibration_histogram_buckets" in value["value"] and each.kind == "CalibrationPlot"
    ]
    asked = next(
        (each for each in plots or run.asked if each.theirs == named.get("name", each.theirs) and each.key == rest),
        None,
    )
    if asked is None:
        return False
    values = ours["metrics"][named.get("model_name", "candidate")]
    if asked.kind == "CalibrationPlot":
        check_buckets(asked, run, value)
    elif asked.kind in MATRICES:
        check_matrix(case, run, value["value"]["multi_class_confusion_matrix_at_thresholds"]["matrices"])
    elif asked.kind == "ConfusionMatrixAtThresholds":
        check_matrices(asked, values, value["value"]["confusion_matrix_at_thresholds"]["matrices"])
    else:
        mine = values[asked.ours]
        if named.get("is_diff"):
            mine -= ours["metrics"]["baseline"][asked.ours]
        check_value(case, asked, mine, float(value["value"]["double_value"]), ours["n"])
    return True


def check_value(case: dict[str, Any], asked: Asked, mine: float | str, theirs: float, rows: int) -> None:
    if asked.kind == "ExampleCount":
        assert mine == rows  # TFMA's is the sum of weights as soon as there are weights
    elif asked.kind in ("AUC", "AUCPrecisionRecall") and one_class(case):
        assert mine == "only one class among the labels"  # TFMA prints 0 or 1
    elif asked.kind == "ExactMatch" and isinstance(case["input"]["prediction"][0], list) and theirs == 0:
        label, score = np.asarray(case["input"]["label"]), np.asarray(case["input"]["prediction"])
        assert mine == (score.argmax(axis=1) == label).mean()  # TFMA compares a class with a vector
    elif asked.option.get("curve") == "PR" and asked.option.get("summation_method") == "majoring":
        # TFMA leaves the first step out, where nothing called has no precision.
        precision, recall, _ = precision_recall_curve(case["input"]["label"], case["input"]["prediction"])
        precision[-1] = precision[-2]
        steps = np.maximum(precision[:-1], precision[1:]) * (recall[:-1] - recall[1:])
        assert mine == pytest.approx(steps.sum())
    elif not math.isfinite(theirs):
        assert isinstance(mine, str), asked
        assert mine
    elif asked.kind == "AUC" and mine != pytest.approx(theirs, rel=1e-6, abs=1e-6):
        # TFMA's thresholds lie too far apart for these scores.
        assert mine == pytest.approx(roc_auc_score(case["input"]["label"], case["input"]["prediction"])), asked
    else:
        assert mine == pytest.approx(theirs, rel=1e-6, abs=1e-6), asked


def check_buckets(asked: Asked, run: Run, value: Mapping[str, Any]) -> None:
    """TFMA prints empty buckets too, and leaves out edges of 0."""
    drawn = run.result["metrics"]["plots"]["candidate"][asked.ours]
    theirs = value["value"]["calibration_histogram_buckets"]["buckets"]
    full = [bucket for bucket in theirs if bucket["num_weighted_examples"]]
    for mine, bucket in zip(drawn, full, strict=True):
        for edge, name in (("low", "lower_threshold_inclusive"), ("high", "upper_threshold_exclusive")):
            edge_of = float(bucket.get(name, 0.0))
            assert mine[edge] == (pytest.approx(edge_of) if math.isfinite(edge_of) else None)
        assert mine["weight"] == bucket["num_weighted_examples"]
        for mean, total in (("label", "total_weighted_label"), ("prediction", "total_weighted_refined_prediction")):
            assert mine[mean] * mine["weight"] == pytest.approx(bucket[total])


def check_matrices(asked: Asked, values: Mapping[str, Any], matrices: list[dict[str, Any]]) -> None:
    """Those of yes or no at thresholds. A field that is not printed is 0; 0/0 is not printed, or 1."""
    ours = {"fall_out": "false_positive_rate"}
    for matrix, at in zip(matrices, asked.option["thresholds"], strict=True):
        assert matrix["threshold"] == pytest.approx(at)
        for name, value in values.items():
            if name.startswith(f"{asked.theirs} ") and name.endswith(f" {at}") and isinstance(value, float):
                short = name.split(" ")[1]
                assert matrix.get(ours.get(short, short), 0.0) == pytest.approx(value, rel=1e-6), (at, short)


def check_matrix(case: dict[str, Any], run: Run, matrices: list[dict[str, Any]]) -> None:
    """Of several classes. TFMA counts a row without a score above 0.5 as class -1: ours has its best class."""
    label, score = np.asarray(case["input"]["label"]), np.asarray(case["input"]["prediction"])
    ours = np.asarray(run.result["metrics"]["plots"]["candidate"]["confusion"])
    expected = np.zeros_like(ours)
    np.add.at(expected, (label, score.argmax(axis=1)), 1.0)
    np.testing.assert_array_equal(ours, expected)
    (matrix,) = matrices
    for entry in matrix["entries"]:
        actual, called = entry.get("actual_class_id", 0), entry.get("predicted_class_id", 0)
        if called >= 0:
            certain = (label == actual) & (score.argmax(axis=1) == called) & (score.max(axis=1) > matrix["threshold"])
            assert entry["num_weighted_examples"] == certain.sum()


def check_verdict(theirs: Mapping[str, Any], run: Run) -> None:
    verdict = run.result["validation"]
    assert verdict["blessed"] is theirs.get("validation_ok", False)
    assert verdict["missing_thresholds"] is theirs.get("missing_thresholds", False)
    failed = {
        (frozenset(key({"slice": item.get("slice_key", {})})), failure["metric_key"]["name"])
        for item in theirs.get("metric_validations_per_slice", [])
        for failure in item["failures"]
    }
    names = {each.ours: each.theirs for each in run.asked}
    ours = {
        (frozenset((name, value) for name, value in json.loads(check["key"])), names[check["metric"]])
        for check in verdict["thresholds"]
        if check["passed"] is False
    }
    assert ours == failed


def check_refused(case: dict[str, Any], folder: Path) -> None:
    """TFMA raises. Ours is one clear error, or, where TFMA cannot compare two columns, a verdict."""
    if "baseline is missing" not in case["raises"][0]["message"]:
        with pytest.raises(InputError) as error:
            runs(case, folder)
        message = str(error.value)
        asks = parsed(case["config"])["metrics_specs"][0]["metrics"][0]["class_name"][0]
        assert any(
            word in message for word in ("row 1 (missing)", "'label'", re.sub(r"(?<!^)([A-Z])", r"_\1", asks).lower())
        )
        return
    (run,) = runs(case, folder)
    compared = any("is_baseline" in spec for spec in parsed(case["config"])["model_specs"])
    overall = run.result["metrics"]["slices"][0]["metrics"]
    for check in run.result["validation"]["thresholds"]:
        assert check["skipped"] is not compared
        fine = check["lower"] is None or check["value"] >= check["lower"]
        if compared:
            value, before = overall["candidate"][check["metric"]], overall["baseline"][check["metric"]]
            sign = 1 if check["direction"] == "higher" else -1
            moved = math.inf if before == 0 != value else (value - before) / (before or 1)
            for bound, change in ((check["change_absolute"], value - before), (check["change_relative"], moved)):
                fine &= bound is None or sign * change >= sign * bound - 1e-12
        assert check["passed"] is fine
