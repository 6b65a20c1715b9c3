"""Evaluation without a pipeline and without a bundle: predictions are columns of the data, or functions of its rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from ...data import LocalExecutor, Source, source_of
from ...data.frames import frame
from ...data.reading.source_of import table_of
from ...errors import InputError, missing_extra, suggest
from ...progress import Progress, no_progress
from ...redaction import printable
from .checks import check_columns, is_number, numbers_of
from .confidence import Confidence, Method
from .config import EvaluationConfig, Slice, SliceColumn, SliceValue, Threshold
from .run import evaluate as evaluate_source
from .run import metrics_table

if TYPE_CHECKING:
    from .metrics import MetricLike
    from .rows import Task

Predictor: TypeAlias = str | Callable[[Any], Any]
"""A column of predictions, or a function from a DataFrame of rows to an array of them."""

_PREDICTIONS: Final = 'predictions={"forest": lambda rows: forest.predict_proba(rows[FEATURES])[:, 1]}'
_RESULT_COLUMNS: Final = (
    "slice", "n", "metric", "value", "lower", "upper", "baseline", "change", "change_lower", "change_upper",
    "undefined",
)  # fmt: skip


def evaluate(
    data: object,
    *,
    label: str,
    predictions: Predictor | Sequence[str] | Mapping[str, Predictor],
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
        predictions: A column of predictions; or several; or a mapping from a model's name to its column, or to a
            function from a DataFrame of rows to an array, (n,) or (n, classes), such as
            `lambda rows: forest.predict_proba(rows[FEATURES])[:, 1]`.
        baseline: The name of the model that the others are compared with.
        slices: See `EvaluationConfig`, as for all that follows.
        metrics: None: the usual ones of the task.
        thresholds: What each model must keep.
        weight: A column.
        query: A column; of rankings.
        threshold: Above which a prediction counts as positive.
        task: None: what the metrics judge; without metrics what label and predictions look like.
        classes: The class of each score.
        min_examples: Smaller slices are withheld.
        confidence: How intervals are computed.
        progress: Called with the rows done, for each model.

    Raises:
        InputError: A column that is not there, labels or predictions that cannot be judged, or no rows.
    """
    source = source_of(data)
    check_name(label, "label")
    models = models_of(predictions)
    columns = {label: "the label"} | {name: "the prediction" for name in models.values() if isinstance(name, str)}
    check_columns(columns | ({weight: "the weight"} if weight else {}), source.columns)
    if label in models.values():
        raise InputError(f"{label!r} is the label and a prediction of it", fix="name the column of predictions")
    if baseline is not None and baseline not in models:
        raise InputError(
            f"there is no model {baseline!r} to compare with", fix=suggest(baseline, list(models), "there are")
        )
    if task is None and metrics is None and classes is None and query is None:
        task = task_of_values(source, label, next(iter(models.values())))
    results = {}
    frames = _Frames(data) if any(map(callable, models.values())) and _is_dataframe(data) else None
    if frames is not None:
        source = frames.source
    for name, predictor in models.items():
        # The model's name stands for its prediction, whatever the column is called.
        config = EvaluationConfig(
            label, name if name not in (label, weight, query) else f"{name} of the model", slices=slices,
            thresholds=thresholds,
            weight=weight, threshold=threshold, metrics=metrics, task=task, classes=classes,
            min_examples=min_examples, query=query, confidence=confidence,
        )  # fmt: skip
        before = (
            None if baseline in (None, name) else TableModel(label, config.prediction, models[str(baseline)], frames)
        )
        called = any(callable(each) for each in (predictor, before and before.predictor))
        results[name] = evaluate_source(
            source,
            config,
            LocalExecutor(threads=1) if called else LocalExecutor(),  # a model of a user's may not bear threads
            TableModel(label, config.prediction, predictor, frames),
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


@dataclass
class TableModel:
    """A batch function that gives label and prediction."""

    label: str
    name: str
    predictor: Predictor
    frames: _Frames | None = None  # the user's rows as they are; None where they are no DataFrame

    def setup(self) -> None:
        """Nothing to prepare."""

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Label and prediction of each row."""
        column = (
            batch.column(self.predictor)
            if isinstance(self.predictor, str)
            else _column(self.predictor(self._rows(batch)), self.name, batch.num_rows)
        )
        return pa.record_batch([batch.column(self.label), column], names=[self.label, self.name])

    def _rows(self, batch: pa.RecordBatch) -> Any:  # Any: a pandas.DataFrame
        return _dataframe(batch) if self.frames is None else self.frames.rows(batch)


_ROW: Final = "number of the row in the DataFrame"


class _Frames:
    """A DataFrame as a source, from which functions get its own rows: its index, its types.

    Attributes:
        source: Its rows, with their numbers.
    """

    def __init__(self, data: Any) -> None:  # Any: a pandas.DataFrame
        self._data = data
        table = table_of(data)
        self.source = source_of(table.append_column(_ROW, pa.array(np.arange(table.num_rows))))

    def rows(self, batch: pa.RecordBatch) -> Any:  # Any: likewise
        """The rows of a batch of the source."""
        return self._data.iloc[batch.column(_ROW).to_numpy()]


def _is_dataframe(data: object) -> bool:
    return type(data).__module__.partition(".")[0] == "pandas" and type(data).__name__ == "DataFrame"


def _dataframe(batch: pa.RecordBatch) -> Any:
    try:
        return batch.to_pandas()
    except ModuleNotFoundError as error:
        raise missing_extra("pandas", "pandas") from error


def _column(values: Any, name: str, rows: int) -> pa.Array:
    """What a function gave, as a column of numbers or lists.

    Raises:
        InputError: It is no array with a prediction for each row.
    """
    array = np.asarray(values)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim not in (1, 2) or len(array) != rows or array.dtype.kind not in "biuf":
        raise InputError(
            f"the model {name!r} gave an array of shape {array.shape} and type {array.dtype} for {rows} rows",
            fix="return a number, or one for each class, for each row: predict_proba(rows)[:, 1]",
        )
    if array.ndim == 1:
        return pa.array(array)
    return pa.FixedSizeListArray.from_arrays(pa.array(np.ascontiguousarray(array).reshape(-1)), array.shape[1])


def models_of(predictions: Predictor | Sequence[str] | Mapping[str, Predictor]) -> dict[str, Predictor]:
    """Each model by its name: that of its column or function, unless a mapping says another."""
    if isinstance(predictions, str):
        return {predictions: predictions}
    if callable(predictions):
        return {getattr(predictions, "__name__", "model").strip("<>"): predictions}
    named_models: Any = predictions
    if not isinstance(named_models, (Mapping, list, tuple)):
        raise InputError(f"predictions are columns or functions, not a {type(named_models).__name__}", fix=_PREDICTIONS)
    models: dict[str, Predictor] = {}
    models |= predictions if isinstance(predictions, Mapping) else {name: name for name in predictions}
    for name, predictor in models.items():
        named: Any = name
        if not isinstance(named, str) or not (isinstance(predictor, str) or callable(predictor)):
            raise InputError(
                f"the model {name!r} is {predictor!r}, neither a column nor a function of rows",
                fix=_PREDICTIONS,
            )
    if not models:
        raise InputError("there are no predictions to judge", fix='predictions="probability"')
    return models


def check_name(column: Any, what: str) -> None:  # Any: what a user wrote
    """Refuse what names no column.

    Raises:
        InputError: It is no text.
    """
    if not isinstance(column, str):
        raise InputError(f"{what} is the name of a column, not a {type(column).__name__}", fix=f'write {what}="…"')


def _gives_lists(source: Source, predictor: Predictor) -> bool:
    """Whether a row has several scores; a function is asked about the first two rows."""
    if isinstance(predictor, str):
        return bool(pa.types.is_nested(source.schema.field(predictor).type))
    for shard in source.shards:
        for batch in source.read(shard):
            if batch.num_rows:
                scores = np.asarray(predictor(_dataframe(batch.slice(0, 2))))
                return scores.ndim == 2 and scores.shape[1] > 1
    return False


def task_of_values(source: Source, label: str, predictor: Predictor) -> Task:
    """What kind of model it is, by its labels and predictions."""
    lists = [_gives_lists(source, predictor), pa.types.is_nested(source.schema.field(label).type)]
    if any(lists):
        return "multilabel" if all(lists) else "multiclass"
    return task_of_labels(source, label, "multiclass" if callable(predictor) else "binary")


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
