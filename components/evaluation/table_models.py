"""What may stand for a model of a table: a column, columns of class scores, a function of rows, or a bundle."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from ...data import Source, source_of
from ...data.frames import dataframe
from ...data.reading.source_of import table_of
from ...errors import InputError, suggest
from .checks import check_columns, is_number, numbers_of

if TYPE_CHECKING:
    from ...engine import Bundle

Predictor: TypeAlias = "str | Sequence[str] | Callable[[Any], Any] | Path | Bundle"
"""A column of predictions; the columns of a model's scores, one for each class; a function from a DataFrame of rows to
an array of predictions; or a bundle or its folder, whose `predict` has one output."""
Classes: TypeAlias = Sequence[str | int]

PREDICTIONS: Final = 'predictions={"forest": lambda rows: forest.predict_proba(rows[FEATURES])[:, 1]}'


@dataclass
class TableModel:
    """A batch function that gives label and prediction.

    Attributes:
        label: The column of labels.
        name: What the prediction is called.
        predictor: The model.
        frames: The user's rows as they are; None where they are no DataFrame.
        excluded: Columns that are never a model's features: label, weight, query.
        classes: Where the predictions are classes instead of scores, all there are: a prediction becomes a score of 1
            for its class and of 0 for the others.
    """

    label: str
    name: str
    predictor: Predictor | BundleModel
    frames: Frames | None = None
    excluded: Sequence[str] = ()
    classes: Classes | None = None

    def setup(self) -> None:
        """Nothing to prepare."""

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Label and prediction of each row."""
        return pa.record_batch([batch.column(self.label), self.scores(batch)], names=[self.label, self.name])

    def scores(self, batch: pa.RecordBatch) -> pa.Array:
        """The prediction of each row."""
        column = self.predictions(batch)
        return column if self.classes is None else _one_hot_scores(column, self.classes, self.name)

    def predictions(self, batch: pa.RecordBatch) -> pa.Array:
        """What the model gives for each row, classes as they are."""
        predictor = self.predictor
        if isinstance(predictor, BundleModel):
            return predictor(batch)
        if callable(predictor):
            rows = features_of(predictor, self._rows(batch), self.name, self.excluded)
            return _column(predictor(rows), self.name, batch.num_rows)
        if isinstance(predictor, str):
            return batch.column(predictor)
        return _joined(batch, list(predictor))  # type: ignore[arg-type]  # paths and bundles became a BundleModel

    def _rows(self, batch: pa.RecordBatch) -> Any:  # Any: a pandas.DataFrame
        return dataframe(batch) if self.frames is None else self.frames.rows(batch)


@dataclass(frozen=True, eq=False)
class BundleModel:
    """A batch function that gives the only output of a bundle's `predict`."""

    bundle: Bundle
    output: str

    def __call__(self, batch: pa.RecordBatch) -> pa.Array:
        """The prediction of each row."""
        return self.bundle.run_arrow("predict", batch).column(self.output)


_ROW: Final = "number of the row in the DataFrame"


class Frames:
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


def features_of(function: Callable[[Any], Any], rows: Any, name: str, excluded: Sequence[str] = ()) -> Any:
    """The columns that a model gets: all, or where it is a method of a fitted scikit-learn estimator, its features.

    Args:
        function: The model.
        rows: A DataFrame.
        name: What the model is called, for errors.
        excluded: Columns that are no features of an estimator that was fitted without names.

    Raises:
        InputError: The rows lack a feature, or have more columns than an estimator without names was fitted on.
    """
    estimator = getattr(function, "__self__", None)
    features = getattr(estimator, "feature_names_in_", None)
    if features is not None:
        check_columns(dict.fromkeys(map(str, features), f"the model {name!r}"), [str(each) for each in rows.columns])
        return rows[list(features)]
    count = getattr(estimator, "n_features_in_", None)
    if not isinstance(count, int):
        return rows
    rows = rows.drop(columns=[column for column in (*excluded, _ROW) if column in rows.columns])
    if rows.shape[1] != count:
        raise InputError(
            f"the model {name!r} was fitted on {count} columns without names, and the rows have {rows.shape[1]} beside "
            "label and weight",
            fix=f"say which: {PREDICTIONS}",
        )
    return rows.to_numpy()


def _column(values: Any, name: str, rows: int) -> pa.Array:
    """What a function gave, as a column of numbers, texts or lists of numbers; what a mask hides is missing.

    Raises:
        InputError: It is no array with a prediction for each row.
    """
    masked = np.ma.getmaskarray(values) if isinstance(values, np.ma.MaskedArray) else None
    array = np.asarray(values)
    if array.ndim == 2 and array.shape[1] == 1:
        array, masked = array[:, 0], None if masked is None else masked[:, 0]
    texts = array.ndim == 1 and array.dtype.kind in "UOT" and all(isinstance(each, str) for each in array.tolist())
    if array.ndim not in (1, 2) or len(array) != rows or not (texts or array.dtype.kind in "biuf"):
        raise InputError(
            f"the model {name!r} gave an array of shape {array.shape} and type {array.dtype} for {rows} rows",
            fix="return a number, or one for each class, for each row: predict_proba(rows)[:, 1]",
        )
    if array.ndim == 1:
        return pa.array(array.tolist() if texts else array, mask=masked)
    if masked is not None:
        array = np.where(masked, np.nan, array)
    return pa.FixedSizeListArray.from_arrays(pa.array(np.ascontiguousarray(array).reshape(-1)), array.shape[1])


def _joined(batch: pa.RecordBatch, columns: Sequence[str]) -> pa.Array:
    """Columns of numbers as one of lists.

    Raises:
        InputError: A column holds no numbers.
    """
    for column in columns:
        kind = batch.schema.field(column).type
        if not is_number(kind):
            raise InputError(f"the column {column!r} of class scores is of type {kind}", fix="give columns of numbers")
    scores = np.stack([numbers_of(batch.column(column)) for column in columns], axis=1)
    return pa.FixedSizeListArray.from_arrays(pa.array(scores.reshape(-1)), len(columns))


def _one_hot_scores(column: pa.Array, classes: Classes, name: str) -> pa.Array:
    """A score of 1 for the class that each row holds, and of 0 for the others; NaN where it is missing.

    Raises:
        InputError: A value is none of the classes.
    """
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    encoded = column.dictionary_encode()
    values = encoded.dictionary.to_pylist()
    positions = {each: index for index, each in enumerate(classes)}
    for value in values:
        if value not in positions:
            raise InputError(
                f"the prediction {name!r} is {value!r}, none of the {len(classes)} classes of the labels",
                fix="name all classes: classes=[…]",
            )
    of_value = np.array([*(positions[value] for value in values), -1], dtype=np.int64)
    position = of_value[encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)]
    scores = (position[:, None] == np.arange(len(classes))).astype(np.float64)
    scores[position < 0] = np.nan
    return pa.FixedSizeListArray.from_arrays(pa.array(scores.reshape(-1)), len(classes))


def is_bundle(model: object) -> bool:
    """Whether it is a loaded bundle; the class would bring JAX along."""
    return hasattr(model, "run_arrow") and hasattr(model, "signatures")


def models_of(
    predictions: Predictor | Mapping[str, Predictor], columns: Sequence[str] = ()
) -> dict[str, Predictor | BundleModel]:
    """Each model by its name: that of its column, folder or function, unless a mapping says another.

    Args:
        predictions: What a user wrote.
        columns: Of the data: a text that is none of them may be a bundle's folder.

    Raises:
        InputError: Something is no model.
    """
    if isinstance(predictions, (str, Path)) or is_bundle(predictions):
        name = str(predictions) if isinstance(predictions, (str, Path)) else "bundle"
        return {name: _resolved(predictions, name, columns)}
    if callable(predictions):
        return {getattr(predictions, "__name__", "model").strip("<>"): predictions}
    named_models: Any = predictions
    if not isinstance(named_models, (Mapping, list, tuple)):
        raise InputError(f"predictions are columns or functions, not a {type(named_models).__name__}", fix=PREDICTIONS)
    models: Mapping[Any, Any] = (
        named_models if isinstance(named_models, Mapping) else {_name(each): each for each in named_models}
    )
    if not models:
        raise InputError("there are no predictions to judge", fix='predictions="probability"')
    if len(models) < len(named_models):
        repeated = next(name for name in models if sum(_name(each) == name for each in named_models) > 1)
        raise InputError(f"the predictions {repeated!r} are named twice", fix="name each column, or folder, once")
    return {name: _resolved(predictor, name, columns) for name, predictor in models.items()}


def _name(predictor: Any) -> Any:
    return str(predictor) if isinstance(predictor, Path) else predictor


def _resolved(predictor: Any, name: Any, columns: Sequence[str]) -> Any:  # Any: what a user wrote
    several = isinstance(predictor, (list, tuple))
    texts = several and len(predictor) > 1 and all(isinstance(each, str) for each in predictor)
    known = isinstance(predictor, (str, Path)) or callable(predictor) or is_bundle(predictor)
    if not isinstance(name, str) or not (texts or known):
        raise InputError(
            f"the model {name!r} is {predictor!r}, neither a column nor a function of rows", fix=PREDICTIONS
        )
    if isinstance(predictor, str) and (
        predictor in columns or not (Path(predictor).is_dir() or (columns and "/" in predictor))
    ):
        return predictor
    if isinstance(predictor, (str, Path)):
        if not Path(predictor).is_dir():
            raise InputError(
                f"the model {name!r} is neither a column nor a bundle: there is no folder {predictor!s}",
                fix=suggest(str(predictor), columns, "name the folder that holds manifest.json, or one of the columns"),
            )
        from ...engine import Bundle  # late: JAX

        try:
            predictor = Bundle.load(predictor)
        except InputError as error:
            raise InputError(
                f"the model {name!r} is neither a column nor a bundle: {error.message}", fix=error.fix
            ) from error
    if not is_bundle(predictor):
        return predictor
    if "predict" not in predictor.signatures:
        raise InputError(
            f"the bundle of the model {name!r} has no signature 'predict'",
            fix=f"it has {', '.join(predictor.signatures)}: give a model's bundle",
        )
    outputs = list(predictor.signatures["predict"].outputs)
    if len(outputs) != 1:
        raise InputError(
            f"predict of the model {name!r} gives {', '.join(outputs)}",
            fix=f'say which: predictions={{"model": lambda rows: bundle.run("predict", rows)[{outputs[0]!r}]}}, with '
            "bundle = drivetrain.engine.Bundle.load(…)",
        )
    return BundleModel(predictor, outputs[0])


def check_name(column: Any, what: str) -> None:  # Any: what a user wrote
    """Refuse what names no column.

    Raises:
        InputError: It is no text.
    """
    if not isinstance(column, str):
        raise InputError(f"{what} is the name of a column, not a {type(column).__name__}", fix=f'write {what}="…"')


def columns_of(models: Mapping[str, Any]) -> list[str]:
    """The columns that hold predictions."""
    named = [[each] if isinstance(each, str) else each for each in models.values()]
    return [column for each in named if isinstance(each, (list, tuple)) for column in each]


def classes_of_scores(models: Mapping[str, Any], *, text: bool) -> Classes | None:
    """The class of each score; None where no model says it, or they are the positions.

    A fitted scikit-learn estimator says it of its `predict_proba`; the names of columns do where labels are text.

    Raises:
        InputError: Two models have the same classes in another order.
    """
    classes: list[str | int] = []
    for name, model in models.items():
        named: list[Any] = []
        if isinstance(model, (list, tuple)):
            named = list(model) if text else []
        elif getattr(model, "__name__", None) == "predict_proba":
            named = np.asarray(getattr(getattr(model, "__self__", None), "classes_", [])).tolist()
        if named == list(range(len(named))) or not all(type(each) in (str, int) for each in named):
            continue
        if classes and named != classes and sorted(named, key=repr) == sorted(classes, key=repr):
            raise InputError(
                f"the scores of the model {name!r} are of the classes {named}, those of another of {classes}",
                fix="give the scores of all models in one order",
            )
        classes = classes or named
    return classes or None


def refuse_class_scores(source: Source, columns: Sequence[str]) -> None:
    """Refuse columns that a list names as several models, where they are the scores of one model's classes.

    Raises:
        InputError: They are from 0 to 1, differ, and sum to 1 in each of the first rows.
    """
    if len(columns) < 2 or not all(is_number(source.schema.field(column).type) for column in columns):
        return
    for shard in source.shards:
        for batch in source.read(shard):
            scores = np.stack([numbers_of(batch.column(column)) for column in columns], axis=1)
            if not len(scores):
                continue
            shares = (scores >= 0) & (scores <= 1)
            if shares.all() and np.allclose(scores.sum(axis=1), 1, atol=1e-3) and np.ptp(scores, axis=1).any():
                names = ", ".join(map(repr, columns[:6])) + (", …" if len(columns) > 6 else "")
                raise InputError(
                    f"the columns {names} sum to 1 in each row: they are scores of the classes of one model, and a "
                    "list names several models",
                    fix=f'predictions={{"model": [{names}]}}, with the class of each in classes=[…]; or, of several '
                    'models, {"first": "…", "second": "…"}',
                )
            return
