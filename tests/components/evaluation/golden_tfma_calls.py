"""What a TFMA case measures, as an EvaluationConfig; and what we measure for it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from drivetrain.components.evaluation import EvaluationConfig, Slice, Threshold, metric
from drivetrain.components.evaluation.run import evaluate
from drivetrain.data import LocalExecutor, open_parquet
from golden_tfma_text import options_of, parsed  # type: ignore[import-not-found]  # conftest puts this folder on the path


class NotYetError(Exception):
    """The case asks for what we cannot do yet."""


AT_THRESHOLD = {
    "BinaryAccuracy": "accuracy", "Precision": "precision", "PPV": "precision", "Recall": "recall", "TPR": "recall",
    "Specificity": "specificity", "TNR": "specificity", "FallOut": "fall_out", "FPR": "fall_out",
    "MissRate": "miss_rate", "FNR": "miss_rate", "NegativePredictiveValue": "negative_predictive_value",
    "NPV": "negative_predictive_value", "FalseDiscoveryRate": "false_discovery_rate",
    "FalseOmissionRate": "false_omission_rate", "Prevalence": "prevalence",
    "PrevalenceThreshold": "prevalence_threshold", "ThreatScore": "threat_score",
    "BalancedAccuracy": "balanced_accuracy", "F1Score": "f1",
    "MatthewsCorrelationCoefficient": "matthews_correlation", "FowlkesMallowsIndex": "fowlkes_mallows",
    "Informedness": "informedness", "Markedness": "markedness",
    "PositiveLikelihoodRatio": "positive_likelihood_ratio", "NegativeLikelihoodRatio": "negative_likelihood_ratio",
    "DiagnosticOddsRatio": "diagnostic_odds_ratio", "PredictedPositiveRate": "predicted_positive_rate",
    "TruePositives": "true_positives", "FalsePositives": "false_positives", "TrueNegatives": "true_negatives",
    "FalseNegatives": "false_negatives",
}  # fmt: skip
OTHERS = {
    "AUC": "auc", "AUCPrecisionRecall": "pr_auc", "SensitivityAtSpecificity": "sensitivity_at_specificity",
    "SpecificityAtSensitivity": "specificity_at_sensitivity", "PrecisionAtRecall": "precision_at_recall",
    "RecallAtPrecision": "recall_at_precision", "ThresholdAtRecall": "threshold_at_recall", "MaxRecall": "max_recall",
    "MeanLabel": "mean_label", "MeanPrediction": "mean_prediction", "Calibration": "calibration",
    "CoefficientOfDiscrimination": "coefficient_of_discrimination",
    "RelativeCoefficientOfDiscrimination": "relative_coefficient_of_discrimination",
    "BinaryCrossEntropy": "log_loss", "BinaryCrossentropy": "log_loss", "ExampleCount": "example_count",
    "WeightedExampleCount": "weighted_example_count", "MeanSquaredError": "mse", "RootMeanSquaredError": "rmse",
    "MeanAbsoluteError": "mae", "MeanAbsolutePercentageError": "mape", "MeanSquaredLogarithmicError": "msle",
    "SquaredPearsonCorrelation": "squared_pearson_correlation", "SparseCategoricalAccuracy": "accuracy",
    "CategoricalAccuracy": "accuracy", "SparseCategoricalCrossentropy": "log_loss",
    "CategoricalCrossentropy": "log_loss", "ExactMatch": "exact_match",
    "SymmetricPredictionDifference": "symmetric_prediction_difference", "MinLabelPosition": "min_label_position",
}  # fmt: skip
NUMBERS = {"mse", "rmse", "mae", "mape", "msle", "squared_pearson_correlation"}
SAME_OPTIONS = ("specificity", "sensitivity", "recall", "precision")
IGNORED = ("curve", "num_thresholds")  # the first chooses among ours; ours are exact
MATRICES = {"MultiClassConfusionMatrixAtThresholds", "MultiClassConfusionMatrixPlot"}
NOT_YET = {
    "compute_confidence_intervals": "confidence intervals",
}  # fmt: skip


@dataclass
class Asked:
    """A metric that a case asks for.

    Attributes:
        theirs: What TFMA calls its value.
        ours: What we call it; for a matrix at thresholds, the start of our names.
        key: The rest of TFMA's key: `sub_key` or `aggregation_type`, `output_name`.
        option: TFMA's options.
        kind: TFMA's class.
    """

    theirs: str
    ours: str
    key: dict[str, Any]
    option: dict[str, Any]
    kind: str


@dataclass
class Run:
    """What we measured for one output of a case."""

    config: EvaluationConfig
    asked: list[Asked]
    result: dict[str, Any] = field(default_factory=dict)


@dataclass
class Columns:
    """A model that is a column of the data."""

    names: Mapping[str, str]

    def setup(self) -> None:
        pass

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch({ours: batch.column(theirs) for ours, theirs in self.names.items()
                                if theirs in batch.schema.names})  # fmt: skip


def snake(name: str) -> str:
    special = {"AUC": "auc", "AUCPrecisionRecall": "auc_precision_recall", "BinaryCrossEntropy": "binary_crossentropy"}
    return special.get(name) or re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def runs(case: Mapping[str, Any], folder: Path) -> list[Run]:
    """Measure a case, each output apart.

    Raises:
        NotYetError: It asks for what we cannot do yet.
        InputError: Ours, where TFMA raises as well.
    """
    config = parsed(case["config"])
    options = config.get("options", [{}])[0]
    for name in options:
        if name not in ("include_default_metrics", "min_slice_size"):
            raise NotYetError(NOT_YET.get(name, name))
    specs = config["model_specs"]
    baseline = next((spec for spec in specs if spec.get("is_baseline", [False])[0]), None)
    candidate = next(spec for spec in specs if spec is not baseline)
    if "label_keys" in candidate:
        labels = {pair["key"][0]: pair["value"][0] for pair in candidate["label_keys"]}
        predictions = {pair["key"][0]: pair["value"][0] for pair in candidate["prediction_keys"]}
    else:
        labels, predictions = ({None: candidate[f"{name}_key"][0]} for name in ("label", "prediction"))
    return [
        _run(case, folder, config, candidate, baseline, labels[output], predictions[output], output)
        for output in labels
    ]


def _run(
    case: Mapping[str, Any],
    folder: Path,
    config: Mapping[str, Any],
    candidate: Mapping[str, Any],
    baseline: Mapping[str, Any] | None,
    label: str,
    prediction: str,
    output: str | None,
) -> Run:
    several = _shape(case, label, prediction)
    asked: list[Asked] = []
    metrics: list[Any] = []
    thresholds: list[Threshold] = []
    for spec in config["metrics_specs"]:
        for each in spec["metrics"]:
            for one, configured in _measures(each, spec, several, output):
                asked.append(one)
                metrics += configured
                metrics += [gap_of(configured[0], *slices) for slices in crosses(config)]
                thresholds += _thresholds(each, one.ours, case["input"])
    slices = [_columns(spec) for spec in config.get("slicing_specs", [{}])]
    unique = {item.name: item for item in metrics}
    weight = candidate.get("example_weight_key", [None])[0]
    task = {"classes": "multiclass", "labels": "multilabel"}.get(several)
    query = next((spec["query_key"][0] for spec in config["metrics_specs"] if "query_key" in spec), None)
    # Ours has one label, by which a document has a gain and is relevant where that is above 0.
    label = next((each.option["gain_key"] for each in asked if "gain_key" in each.option), label)
    beyond = [value for value in case["input"][prediction] if several == "" and not 0 <= value <= 1]
    if several == "" and (beyond or any(item.metric in NUMBERS for item in unique.values())):
        task = "regression"
    judged = EvaluationConfig(
        "label", "prediction", metrics=list(unique.values()), thresholds=thresholds, weight=weight, task=task,  # type: ignore[arg-type]
        slices=list(dict.fromkeys(slices)), min_examples=_least(config), query=query,
    )  # fmt: skip
    source = folder / "rows.parquet"
    pq.write_table(_table(case["input"]), source)
    model = Columns({"label": label, "prediction": prediction})
    before = None if baseline is None else Columns({"prediction": baseline["prediction_key"][0]})
    return Run(judged, asked, evaluate(open_parquet([source]), judged, LocalExecutor(threads=1), model, before))


def crosses(config: Mapping[str, Any]) -> list[tuple[dict[str, str], dict[str, str]]]:
    """The pairs of slices whose difference a case asks for."""
    pairs = []
    for cross in config.get("cross_slicing_specs", []):
        for spec in cross["slicing_specs"]:
            slices = [
                {pair["key"][0]: pair["value"][0] for pair in each.get("feature_values", [])}
                for each in (cross["baseline_spec"][0], spec)
            ]
            if not slices[0] or slices[0].keys() != slices[1].keys() or "feature_keys" in spec:
                raise NotYetError("a difference between slices of other columns")
            pairs.append((slices[0], slices[1]))
    return pairs


def gap_of(item: Any, first: Mapping[str, str], second: Mapping[str, str]) -> Any:
    """The metric between two slices, TFMA's baseline first."""
    between = [", ".join(str(each[column]) for column in first) for each in (first, second)]
    name = f"{item.name} {dict(first)} - {dict(second)}"
    return metric("gap", of=item.metric, by=list(first), between=between, name=name)


def _least(config: Mapping[str, Any]) -> int:
    size = config.get("options", [{}])[0].get("min_slice_size", [{"value": [0]}])[0]
    return int(size["value"][0])


def _table(rows: Mapping[str, Any]) -> pa.Table:
    return pa.table(
        {name: pa.array([float("nan") if value == "nan" else value for value in values])
         for name, values in rows.items()}
    )  # fmt: skip


def _shape(case: Mapping[str, Any], label: str, prediction: str) -> str:
    """Whether rows have several classes, and several labels."""
    rows = case["input"]
    if not isinstance(rows[prediction][0], list):
        return ""
    return "labels" if isinstance(rows[label][0], list) else "classes"


def _columns(spec: Mapping[str, Any]) -> tuple[str | Slice, ...]:
    if "slice_keys_sql" in spec:
        text = " ".join(spec["slice_keys_sql"][0].split())
        sql = re.fullmatch(r"SELECT STRUCT\(([\w, ]+)\) FROM .*?(?: WHERE (.*?);?)?", text, re.IGNORECASE)
        if sql is None:
            raise NotYetError(f"the slices of {spec}")
        columns, condition = re.findall(r"\w+", sql[1]), re.sub(r'"([^"]*)"', r"'\1'", sql[2] or "")
        return (*columns, Slice(condition, sql=condition)) if condition else tuple(columns)
    return tuple(sorted([*spec.get("feature_keys", []), *(pair["key"][0] for pair in spec.get("feature_values", []))]))


def _measures(
    each: Mapping[str, Any], spec: Mapping[str, Any], several: str, output: str | None
) -> list[tuple[Asked, list[Any]]]:
    """What a metric of a case is in ours: once, or for each class or k."""
    kind = each["class_name"][0]
    option = options_of(each.get("config", [""])[0])
    if kind in NOT_YET:
        raise NotYetError(NOT_YET[kind])
    theirs = option.pop("name", snake(kind))
    key: dict[str, Any] = {} if output is None else {"output_name": output}
    if kind in MATRICES:
        return [(Asked(theirs, "confusion", key, option, kind), [metric("accuracy", name="accuracy")])]
    if kind == "CalibrationPlot":
        sides = {
            ours: option[theirs_of] for theirs_of, ours in (("left", "low"), ("right", "high")) if theirs_of in option
        }
        buckets = int(option.get("num_buckets", 1000))
        ece = metric("expected_calibration_error", name=theirs, buckets=buckets, **sides)
        return [(Asked(theirs, theirs, key, option, kind), [ece])]
    if kind == "ConfusionMatrixAtThresholds":
        names = ["true_positives", "false_positives", "true_negatives", "false_negatives", "precision", "recall", "f1",
                 "accuracy", "fall_out", "false_omission_rate"]  # fmt: skip
        measures = [
            metric(name, threshold=at, name=f"{theirs} {name} {at}") for at in option["thresholds"] for name in names
        ]
        return [(Asked(theirs, theirs, key, option, kind), measures)]
    if kind == "QueryStatistics":
        counts = {"total_queries": "query_count", "total_documents": "example_count"}
        return [
            (Asked(name, name, key, option, kind), [metric(counts.get(name, name), name=name)])
            for name in ("total_queries", "total_documents", "min_documents", "max_documents")
        ]
    if kind == "NDCG":
        return [
            (
                Asked(theirs, f"{theirs} {k}", key | {"sub_key": {"top_k": k}}, option, kind),
                [metric("ndcg", name=f"{theirs} {k}", k=k)],
            )
            for k in option["top_k_list"]
        ]
    ours = AT_THRESHOLD.get(kind) or OTHERS.get(kind) or snake(kind)
    if kind == "ExactMatch" and several == "classes":
        ours = "accuracy"  # of one class out of several, TFMA compares the class with the vector of scores
    if kind == "AUC" and option.get("curve") == "PR":
        ours = "pr_auc"
    options: dict[str, Any] = {name: option[name] for name in SAME_OPTIONS if name in option}
    if "summation_method" in option:
        options["method"] = option["summation_method"]
    if "thresholds" in option:
        at = option["thresholds"]
        options["threshold"] = at[0] if isinstance(at, list) else at
    chosen = {name: option[name] for name in ("class_id", "top_k") if name in option}
    options |= chosen
    unknown = option.keys() - {*SAME_OPTIONS, *IGNORED, "class_id", "top_k", "summation_method", "thresholds"}
    if unknown:
        raise NotYetError(f"{kind} with {', '.join(sorted(unknown))}")
    averaged = spec.get("aggregate", [{}])[0]
    if "top_k_list" in averaged:
        raise NotYetError("averages of the best k")
    weighing = {each["key"][0]: each["value"][0] for each in averaged.get("class_weights", [])}
    more_of = {"class_weights": [weighing.get(index, 0.0) for index in range(max(weighing) + 1)]} if weighing else {}
    binarized = spec.get("binarize", [{}])[0]
    parts: list[tuple[dict[str, Any], dict[str, Any]]] = []
    for index in (value for values in binarized.get("class_ids", []) for value in values["values"]):
        parts.append(({"sub_key": {"class_id": index}}, {"class_id": index}))
    for index in (value for values in binarized.get("top_k_list", []) for value in values["values"]):
        parts.append(({"sub_key": {"top_k": index}}, {"top_k": index}))
    for index in (value for values in binarized.get("k_list", []) for value in values["values"]):
        parts.append(({"sub_key": {"k": index}}, {"kth": index}))
    for theirs_of, ours_of in (("micro", "micro"), ("macro", "macro"), ("weighted_macro", "weighted")):
        if averaged.get(f"{theirs_of}_average", [False])[0]:
            # TFMA prints weighted averages as macro averages.
            printed = "micro_average" if theirs_of == "micro" else "macro_average"
            parts.append(({"aggregation_type": {printed: True}}, {"average": ours_of, **more_of}))
    return [
        (
            Asked(theirs, f"{theirs} {more}", key | sub_key, option, kind),
            [metric(ours, name=f"{theirs} {more}", **options, **more)],
        )
        for sub_key, more in parts or [({"sub_key": chosen} if chosen else {}, {})]
    ]


def _thresholds(each: Mapping[str, Any], name: str, rows: Mapping[str, Any]) -> list[Threshold]:
    thresholds = [_threshold(name, bounds, ()) for bounds in each.get("threshold", [])]
    for per_slice in each.get("per_slice_thresholds", []):
        for spec in per_slice["slicing_specs"]:
            thresholds.append(_threshold(name, per_slice["threshold"][0], _matcher(spec, rows)))
    return thresholds


def _matcher(spec: Mapping[str, Any], rows: Mapping[str, Any]) -> list[Any]:
    """Columns, and pairs of a column and the value that it must have; TFMA writes all values as text."""
    pinned = [(pair["key"][0], pair["value"][0]) for pair in spec.get("feature_values", [])]
    kinds = {name: type(rows[name][0]) for name, _ in pinned if name in rows}
    return [*spec.get("feature_keys", []), *((name, kinds.get(name, str)(value)) for name, value in pinned)]


def _threshold(name: str, bounds: Mapping[str, Any], columns: Sequence[Any]) -> Threshold:
    value = bounds.get("value_threshold", [{}])[0]
    change = bounds.get("change_threshold", [{}])[0]
    direction = {"HIGHER_IS_BETTER": "higher", "LOWER_IS_BETTER": "lower"}.get(change.get("direction", [""])[0])

    def bound(of: Mapping[str, Any], side: str) -> float | None:
        return of[side][0]["value"][0] if side in of else None

    return Threshold(
        name, lower=bound(value, "lower_bound"), upper=bound(value, "upper_bound"),
        change_absolute=bound(change, "absolute"), change_relative=bound(change, "relative"),
        direction=direction, slice=columns,  # type: ignore[arg-type]
    )  # fmt: skip


def one_class(case: Mapping[str, Any]) -> bool:
    """Whether all labels are equal."""
    return "label" in case["input"] and len(np.unique(np.asarray(case["input"]["label"], dtype=object))) == 1
