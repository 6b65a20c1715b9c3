"""Evaluation without a pipeline and without a bundle: predictions are columns of the data, or functions of its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from ...data import LocalExecutor, Source, source_of
from ...data.frames import frame
from ...errors import InputError, suggest
from ...progress import Progress, no_progress
from ...redaction import printable
from .checks import check_columns, is_number, numbers_of
from .confidence import Confidence, Method
from .config import EvaluationConfig, Slice, SliceColumn, SliceValue, Threshold
from .metrics import DEFAULTS, configured, name_of
from .run import evaluate as evaluate_source
from .run import metrics_table
from .table_models import (
    BundleModel,
    Classes,
    Frames,
    Predictor,
    TableModel,
    check_name,
    classes_of_scores,
    columns_of,
    models_of,
    refuse_class_scores,
)

if TYPE_CHECKING:
    from .metrics import MetricLike
    from .rows import Task

_MOST_CLASSES: Final = 1_000
"""Distinct whole numbers up to which they may be classes."""
_RESULT_COLUMNS: Final = (
    "slice", "n", "metric", "value", "lower", "upper", "baseline", "change", "change_lower", "change_upper",
    "undefined",
)  # fmt: skip


def evaluate(
    data: object,
    *,
    label: str,
    predictions: Predictor | Mapping[str, Predictor],
    baseline: str | None = None,
    slices: Sequence[Slice | Sequence[SliceColumn]] = ((),),
    metrics: Sequence[MetricLike] | None = None,
    thresholds: Sequence[Threshold] = (),
    weight: str | None = None,
    query: str | None = None,
    threshold: float = 0.5,
    task: Task | None = None,
    classes: Sequence[str | int] | None = None,
    min_examples: int = 0,
    confidence: Confidence | Method | None = None,
    progress: Progress = no_progress,
) -> EvaluationResult:
    """Measure one or several models on a table, by slice, as `Evaluator` does in a pipeline.

    Args:
        data: What `data.source_of` takes: a DataFrame, an Arrow table, a DuckDB relation, a path of Parquet or CSV
            files, a mapping of columns, ….
        label: The column of labels.
        predictions: A column of predictions; or a list of them, each of a model; or a mapping from a model's name to
            its column; to the list of the columns of its class scores; to a function from a DataFrame of rows to an
            array, (n,) or (n, classes), such as `lambda rows: forest.predict_proba(rows[FEATURES])[:, 1]`; or to a
            bundle or its folder, whose `predict` has one output. A method of a fitted scikit-learn estimator gets the
            features that it was fitted on. Texts, and whole numbers with `task="multiclass"`, are predicted classes:
            they have no scores, and so no log-loss.
        baseline: The name of the model that the others are compared with.
        slices: See `EvaluationConfig`, as for all that follows.
        metrics: None: the usual ones of the task.
        thresholds: What each model must keep.
        weight: A column.
        query: A column; of rankings.
        threshold: Above which a prediction counts as positive.
        task: None: what the metrics judge; without metrics what label and predictions look like.
        classes: The class of each score; None: the `classes_` of a scikit-learn estimator, or the names of the columns
            of scores where the labels are texts.
        min_examples: Smaller slices are withheld.
        confidence: How intervals are computed.
        progress: Called with the rows done, for each model.

    Raises:
        InputError: A column that is not there, labels or predictions that cannot be judged, or no rows.
    """
    source = source_of(data)
    check_name(label, "label")
    models = models_of(predictions, source.columns)
    columns = {label: "the label"} | dict.fromkeys(columns_of(models), "the prediction")
    check_columns(columns | ({weight: "the weight"} if weight else {}), source.columns)
    if label in columns_of(models):
        raise InputError(f"{label!r} is the label and a prediction of it", fix="name the column of predictions")
    if baseline is not None and baseline not in models:
        raise InputError(
            f"there is no model {baseline!r} to compare with", fix=suggest(baseline, list(models), "there are")
        )
    if baseline is None and not isinstance(predictions, Mapping):
        refuse_class_scores(source, columns_of(models))
    frames = Frames(data) if any(map(callable, models.values())) and _is_dataframe(data) else None
    if frames is not None:
        source = frames.source
    excluded = tuple(name for name in (label, weight, query) if name is not None)
    first = TableModel(label, "prediction", next(iter(models.values())), frames, excluded)
    predicted = None if query is not None else predicted_classes(source, first, models, task, metrics, classes)
    if predicted is not None:
        task, classes, metrics = "multiclass", predicted, _without_scores(metrics)
    if classes is None:
        classes = classes_of_scores(models, text=_is_text(source, label))
    if task is None and metrics is None and classes is None and query is None:
        task = task_of_values(source, first)
    results = {}
    for name, predictor in models.items():
        # The model's name stands for its prediction, whatever the column is called.
        config = EvaluationConfig(
            label, name if name not in (label, weight, query) else f"{name} of the model", slices=slices,
            thresholds=thresholds,
            weight=weight, threshold=threshold, metrics=metrics, task=task, classes=classes,
            min_examples=min_examples, query=query, confidence=confidence,
        )  # fmt: skip
        model = replace(first, name=config.prediction, predictor=predictor, classes=predicted)
        before = None if baseline in (None, name) else replace(model, predictor=models[str(baseline)])
        called = any(callable(each.predictor) for each in (model, before) if each is not None)
        results[name] = evaluate_source(
            source,
            config,
            LocalExecutor(threads=1) if called else LocalExecutor(),  # a model of a user's may not bear threads
            model,
            before,
            progress=progress,
        )
    return EvaluationResult(results)


@dataclass(frozen=True)
class EvaluationResult:
    """The metrics of one or several models. A notebook shows them as the page that `Evaluator` writes.

    Attributes:
        models: Model → what `components.evaluation.run.evaluate` returns.
        selected: The columns and values that `where` named.
    """

    models: Mapping[str, Mapping[str, Any]]
    selected: frozenset[tuple[str, SliceValue]] = frozenset()

    @property
    def overall(self) -> dict[str, dict[str, float | None]]:
        """Model → metric → its value over all rows, or those that `where` named; None where it has none.

        Raises:
            InputError: These are only in slices by further columns.
        """
        values = {}
        for name, each in self.models.items():
            slices = each["metrics"]["slices"]
            item = next((item for item in slices if set(item["pairs"]) == self.selected), None)
            if item is None:
                columns = sorted(column for column, _ in self.selected)
                raise InputError(f"no slice is by {', '.join(columns)} alone", fix=f"add {columns} to slices")
            values[name] = item["metrics"]["candidate"]
        return {
            name: {metric: value if isinstance(value, float) else None for metric, value in metrics.items()}
            for name, metrics in values.items()
        }

    @property
    def blessed(self) -> dict[str, bool]:
        """Model → whether it keeps all thresholds; without thresholds, none does."""
        return {name: each["validation"]["blessed"] for name, each in self.models.items()}

    def frame(self) -> Any:  # a pandas.DataFrame: pandas ships no types
        """One row for each model, slice and metric, with its interval and what it changes against the baseline.

        Raises:
            DrivetrainError: pandas is not installed.
        """
        rows = []
        for name, each in self.models.items():
            table = metrics_table(each["metrics"]["slices"]).select(list(_RESULT_COLUMNS))
            rows += [(name, *row.values()) for row in table.to_pylist()]
        return frame(("model", *_RESULT_COLUMNS), rows)

    def compare(self, candidate: str, before: str) -> Any:  # a pandas.DataFrame
        """Two models side by side: for each slice and metric both values and their difference, the largest loss first.

        Metrics of which neither way is better, as the calibration, are in `frame`.

        Raises:
            InputError: There is no such model.
            DrivetrainError: pandas is not installed.
        """
        for name in (candidate, before):
            if name not in self.models:
                raise InputError(f"there is no model {name!r}", fix=suggest(name, list(self.models), "there are"))
        old = {item["key"]: item for item in self.models[before]["metrics"]["slices"]}
        directions = self.models[candidate]["directions"]
        rows = []
        for item in self.models[candidate]["metrics"]["slices"]:
            for metric, value in item["metrics"]["candidate"].items():
                was = old[item["key"]]["metrics"]["candidate"][metric] if item["key"] in old else None
                if isinstance(value, float) and isinstance(was, float) and directions[metric] is not None:
                    better = value - was if directions[metric] == "higher" else was - value
                    rows.append((better, (item["slice"], item["n"], metric, value, was, value - was)))
        rows.sort(key=lambda row: row[0])
        return frame(("slice", "n", "metric", candidate, before, "difference"), [row for _, row in rows])

    def where(self, **values: SliceValue) -> EvaluationResult:
        """Only the slices with these values of these columns, beside all rows: `result.where(carrier="AA")`.

        `overall` is then that of the slice.

        Raises:
            InputError: There is no such slice.
        """
        wanted = set(values.items())
        kept = {}
        for name, each in self.models.items():
            first, *others = each["metrics"]["slices"]
            some = [item for item in others if wanted <= {(column, value) for column, value in item["pairs"]}]
            if not some:
                known = list(dict.fromkeys(item["slice"] for item in others))
                asked = ", ".join(f"{column}={value}" for column, value in values.items())
                raise InputError(f"there is no slice {asked}", fix=suggest(asked, known, "there are"))
            kept[name] = {**each, "metrics": {**each["metrics"], "slices": [first, *some]}}
        return replace(self, models=kept, selected=self.selected | wanted)

    def __repr__(self) -> str:
        lines = []
        for name, each in self.models.items():
            summary = each["summary"]
            lines.append(
                f"{name}: {summary.partition('; ')[0] if each['validation']['missing_thresholds'] else summary}"
            )
        return printable("\n".join(lines))

    def _repr_html_(self) -> str:
        from ...report import framed
        from ...report.evaluation import render

        return "".join(
            framed(render(each, titles=each["titles"], bars=each["bars"], title=name))
            for name, each in self.models.items()
        )


def _is_dataframe(data: object) -> bool:
    return type(data).__module__.partition(".")[0] == "pandas" and type(data).__name__ == "DataFrame"


def _is_text(source: Source, label: str) -> bool:
    kind = source.schema.field(label).type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _first_predictions(source: Source, model: TableModel) -> pa.Array:
    """The predictions of the first two rows, classes as they are; a column's without reading the others."""
    if isinstance(model.predictor, str):
        source = source.select([model.predictor])
    for shard in source.shards:
        for batch in source.read(shard):
            if batch.num_rows:
                try:
                    return model.predictions(batch.slice(0, 2))
                except InputError:
                    return pa.nulls(0)  # which is said of all rows, where they are judged
    return pa.nulls(0)


def predicted_classes(
    source: Source,
    model: TableModel,
    models: Mapping[str, Predictor | BundleModel],
    task: Task | None,
    metrics: Sequence[MetricLike] | None,
    classes: Classes | None,
) -> Classes | None:
    """The classes, where what a model predicts are classes and not their scores; None where they are numbers.

    Args:
        source: The rows.
        model: The first of the models.
        models: All of them.
        task: What the user said of the task.
        metrics: Likewise of metrics.
        classes: Likewise of classes.

    Raises:
        InputError: Whole numbers that may be classes or amounts, and nobody says which.
    """
    if task not in (None, "multiclass"):
        return None
    column = _first_predictions(source, model)
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    whole = pa.types.is_integer(kind)
    if not (text or whole):
        return None
    named = [name for name in models.values() if isinstance(name, str)]
    if text or task is not None or classes is not None:
        if classes is not None:
            return classes
        values = _distinct(source, [model.label, *named])
        first_values = set(column.drop_null().to_pylist())
        if values is None or len({type(value) for value in values | first_values}) > 1:
            raise InputError(
                f"the predictions are classes, and the labels {model.label!r} are not of their type",
                fix="make both texts, or both whole numbers, or name the classes: classes=[…]",
            )
        return sorted(values)
    labels = _distinct(source, [model.label]) if metrics is None else None
    if labels is None or labels <= {0, 1} or not all(isinstance(value, int) for value in labels):
        return None
    predicted = _distinct(source, named[:1]) if named else set(column.drop_null().to_pylist())
    if predicted is not None and predicted <= labels:
        raise InputError(
            f"labels and predictions are whole numbers, {len(labels)} different ones: classes or amounts?",
            fix='say which: task="multiclass" counts those that are right, task="regression" measures how far off '
            "they are",
        )
    return None


def _distinct(source: Source, columns: Sequence[str]) -> set[str | int] | None:
    """The texts or whole numbers of some columns; None of other values, or of very many."""
    distinct: set[str | int] = set()
    chosen = source.select(list(dict.fromkeys(columns)))
    for shard in chosen.shards:
        for batch in chosen.read(shard):
            for values in batch.columns:
                kind = values.type.value_type if pa.types.is_dictionary(values.type) else values.type
                if is_number(kind):
                    numbers = numbers_of(values.cast(kind))
                    numbers = numbers[~np.isnan(numbers)]
                    if (numbers != np.rint(numbers)).any():
                        return None
                    distinct |= set(map(int, np.unique(numbers).tolist()))
                elif pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
                    distinct |= set(values.cast(kind).unique().drop_null().to_pylist())
                else:
                    return None
            if len(distinct) > _MOST_CLASSES:
                return None
    return distinct


def _without_scores(metrics: Sequence[MetricLike] | None) -> Sequence[MetricLike]:
    """The metrics of classes that were predicted without scores.

    Raises:
        InputError: One of them judges scores.
    """
    if metrics is None:
        return [name for name in DEFAULTS["multiclass"] if name != "log_loss"]
    for item in metrics:
        if name_of(configured(item)) == "log_loss":
            raise InputError(
                "the predictions are classes without scores, and log_loss judges scores",
                fix="give a score for each class, such as predict_proba(rows), or leave log_loss out",
            )
    return metrics


def task_of_values(source: Source, model: TableModel) -> Task:
    """What kind of model it is, by its labels and predictions; a function is asked about the first two rows."""
    lists = [
        pa.types.is_nested(_first_predictions(source, model).type),
        pa.types.is_nested(source.schema.field(model.label).type),
    ]
    if any(lists):
        return "multilabel" if all(lists) else "multiclass"
    return task_of_labels(source, model.label, "multiclass" if callable(model.predictor) else "binary")


def task_of_labels(source: Source, label: str, other: Task) -> Task:
    """What kind of model with one prediction for each row it is, by its labels; `other` where they are no numbers."""
    labels = source.select([label])
    for shard in labels.shards:
        for batch in labels.read(shard):
            column = batch.column(0)
            if pa.types.is_boolean(column.type):
                return "binary"
            if not is_number(column.type):
                return other
            values = numbers_of(column)
            if (~np.isnan(values) & (values != 0) & (values != 1)).any():
                return "regression"
    return "binary"
