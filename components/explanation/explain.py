"""Explanations of a model on a table, or on examples: all that is measured, and the tables that it becomes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...data import LocalExecutor, Source, source_of
from ...data.frames import frame
from ...data.slices import SliceTable, distinct_titles
from ...engine.attribution import Scorer, integrated_gradients
from ...errors import InputError, suggest
from ...progress import Progress, no_progress
from ...redaction import printable
from ..evaluation.accumulator import CANDIDATE
from ..evaluation.checks import check_columns
from ..evaluation.config import EvaluationConfig, Slice, SliceColumn
from ..evaluation.quantile_bins import with_bins
from ..evaluation.scoring import Scores
from ..evaluation.slice_sql import check_expressions
from ..evaluation.slicing import encode
from ..evaluation.standalone import task_of_labels
from ..evaluation.table_models import TableModel
from .model_scores import ModelLike, scorer_of
from .partial_dependence import DependencePoint, partial_dependence
from .permutation import ColumnImportance, importances

if TYPE_CHECKING:
    from ..evaluation.metrics import MetricLike
    from ..evaluation.rows import Task

METRIC: Final[Mapping[str, str]] = {
    "binary": "log_loss", "multiclass": "log_loss", "regression": "rmse", "multilabel": "hamming_loss",
    "ranking": "ndcg",
}  # fmt: skip
"""What importance is measured by where nobody says: task → metric."""


@dataclass(frozen=True)
class Effort:
    """How much is measured.

    Args:
        repeats: Shuffles of each column.
        max_rows: Rows beyond which a random sample of so many is looked at.
        points: Values of each column at which the dependence is measured, at most.
        attributed: Rows whose predictions are divided among their columns by integrated gradients; 0: none.
        steps: Parts of the line that the gradients are integrated along.
        level: Of the intervals.
        seed: For the sample and the shuffles.

    Raises:
        InputError: A number that cannot be.
    """

    repeats: int = 5
    max_rows: int = 10_000
    points: int = 20
    attributed: int = 100
    steps: int = 32
    level: float = 0.95
    seed: int = 0

    def __post_init__(self) -> None:
        least = {"repeats": 1, "max_rows": 2, "points": 2, "attributed": 0, "steps": 1, "seed": 0}
        for name, bound in least.items():
            number: Any = getattr(self, name)
            if isinstance(number, bool) or not isinstance(number, int) or number < bound:
                raise InputError(f"{name} must be a whole number of at least {bound}, not {number!r}")
        if not 0 < self.level < 1:
            raise InputError(f"level must lie between 0 and 1, not {self.level!r}", fix="0.95 is usual")


@dataclass(frozen=True)
class ModelExplanation:
    """What `explain` found; a notebook shows it as a page.

    Attributes:
        importances: For each column and slice how much the metric loses without it, the most important first.
        dependence: For each slice and column the predictions at some of its values.
        attributions: A column for each column of floats, a row for each attributed row and class, with `row`, its
            number among the rows looked at, and `output`, the class's number, null of a single output. Rows with an
            infinite number are left out; there are none without such columns, or where predictions are not finite.
        gap: The largest |f(x) − f(b) − Σ attributions| of a row beside the largest |f(x) − f(b)|: how far integration
            and rounding are off. None where nothing was attributed.
        metric: The metric's name; "" without labels.
        rows: How many rows were looked at.
        left_out: Columns that were not looked at, each with the reason.
    """

    importances: tuple[ColumnImportance, ...]
    dependence: tuple[DependencePoint, ...]
    attributions: pa.Table
    gap: float | None
    metric: str
    rows: int
    left_out: Mapping[str, str]

    def importance(self, slice: str = "overall") -> Any:  # noqa: A002  # a pandas.DataFrame; the word of evaluations
        """`importances` of a slice as a DataFrame.

        Raises:
            InputError: There is no such slice.
            DrivetrainError: pandas is not installed.
        """
        known = list(dict.fromkeys(each.slice for each in self.importances))
        if slice not in known and known:
            raise InputError(f"there is no slice {slice!r}", fix=suggest(slice, known, "there are"))
        lines = [each for each in self.importances if each.slice == slice]
        return _frame(ColumnImportance, lines)

    def dependence_on(self, column: str, slice: str = "overall") -> Any:  # noqa: A002  # as `importance`
        """`dependence` on a column in a slice, as a DataFrame.

        Raises:
            InputError: There is no such column or slice.
            DrivetrainError: pandas is not installed.
        """
        known = list(dict.fromkeys(each.column for each in self.dependence))
        if column not in known:
            raise InputError(f"there is no dependence on {column!r}", fix=suggest(column, known, "there is one on"))
        slices = list(dict.fromkeys(each.slice for each in self.dependence))
        if slice not in slices:
            raise InputError(f"there is no slice {slice!r}", fix=suggest(slice, slices, "there are"))
        return _frame(
            DependencePoint, [each for each in self.dependence if (each.slice, each.column) == (slice, column)]
        )

    def mean_attributions(self) -> dict[str, float]:
        """Column of floats → the mean of |attribution| over rows and classes, the largest first."""
        names = [name for name in self.attributions.column_names if name not in ("row", "output")]
        means = {
            name: float(np.abs(self.attributions[name].to_numpy()).mean()) for name in names if self.gap is not None
        }
        return dict(sorted(means.items(), key=lambda item: -item[1]))

    def __repr__(self) -> str:
        lines = [f"{self.rows:,} rows looked at"]
        overall = [each for each in self.importances if each.slice == "overall"]
        if overall:
            lines[0] += f"; {self.metric} {overall[0].value:.4f}, worse without"
        for each in overall[:10]:
            half = "" if each.lower is None else f" ± {each.importance - each.lower:.4f}"
            lines.append(f"  {each.column}: {each.importance:.4f}{half}")
        lines += [f"  left out: {name} ({reason})" for name, reason in self.left_out.items()]
        return "\n".join(printable(line).replace("\n", "\\n") for line in lines)

    def _repr_html_(self) -> str:
        from ...report import framed
        from ...report.explanation import explanation_page

        return framed(explanation_page(self.document()))

    def document(self) -> dict[str, Any]:
        """All as plain JSON, for a page."""
        return {
            "importances": [asdict(each) for each in self.importances],
            "dependence": [asdict(each) for each in self.dependence],
            "attributions": self.mean_attributions(),
            "gap": self.gap,
            "metric": self.metric,
            "rows": self.rows,
            "left_out": dict(self.left_out),
        }


def _frame(kind: type, lines: Sequence[object]) -> Any:
    names = [field.name for field in fields(kind)]
    return frame(names, [tuple(getattr(line, name) for name in names) for line in lines])


def explain(
    data: object,
    model: ModelLike,
    *,
    label: str | None = None,
    prediction: str | None = None,
    columns: Sequence[str] | None = None,
    metric: MetricLike | None = None,
    slices: Sequence[Slice | Sequence[SliceColumn]] = ((),),
    weight: str | None = None,
    task: Task | None = None,
    classes: Sequence[str | int] | None = None,
    effort: Effort | None = None,
    progress: Progress = no_progress,
) -> ModelExplanation:
    """Explain a model by what it predicts: which columns matter, how predictions move with each, row by row.

    Args:
        data: Rows as `data.source_of` takes them.
        model: A function from a DataFrame of rows to an array, (n,) or (n, classes), which of a method of a fitted
            scikit-learn estimator are its features; a bundle, or its folder.
        label: The column of labels, for the importance of columns; None: without it.
        prediction: Of a bundle, the output of `predict`; None: its only one.
        columns: What to look at; None: all columns that the bundle reads, or all but label and weight.
        metric: What importance is measured by, as in `EvaluationConfig.metrics`; None: the task's loss.
        slices: As of `EvaluationConfig`, where there is a label; of importance and dependence.
        weight: A column; of the metric.
        task: None: what label and predictions look like.
        classes: The class of each score.
        effort: How much is measured.
        progress: Called with the shuffles done.

    Raises:
        InputError: A column that is not there, a model that gives no predictions, labels or predictions that cannot be
            judged, or fewer than two rows.
    """
    effort = effort or Effort()
    scorer = scorer_of(model, prediction, [name for name in (label, weight) if name is not None])
    source = source_of(data)
    wanted = dict.fromkeys(columns or (), "what is looked at")
    wanted |= {name: role for name, role in ((label, "the label"), (weight, "the weight")) if name is not None}
    check_columns(wanted, source.columns)
    rows = sample(source, effort)
    if columns is None:
        read = _read_by(model)
        columns = [name for name in source.schema.names if name not in (label, weight) and (not read or name in read)]
    if label is None:
        return explained(rows, None, scorer, columns, None, effort, progress)
    if task is None and classes is None:
        task = _task_of(source, label, scorer, rows)
    config = importance_config(label, metric, task, slices=slices, weight=weight, classes=classes)
    check_columns(config.purposes, source.columns)
    check_expressions(config.expressions.values(), source.schema)
    config = with_bins(config, source_of(rows), LocalExecutor())
    # The label stands for the prediction, which comes with each shuffle.
    scores = Scores(config, TableModel(label, config.prediction, label))
    scored = pa.Table.from_batches([scores(batch) for batch in rows.to_batches()]).drop_columns(CANDIDATE)
    return explained(rows, scored, scorer, columns, config, effort, progress)


def importance_config(label: str, metric: MetricLike | None, task: Task | None, **options: Any) -> EvaluationConfig:
    """The configuration of the one metric that importance is measured by.

    Raises:
        InputError: No such metric, or none for this task.
    """
    if metric is None:
        if task is not None and task not in METRIC:
            raise InputError(f"importance for {task} has no usual metric", fix="name one: metric=…")
        metric = METRIC[task or ("binary" if options.get("classes") is None else "multiclass")]
    config = EvaluationConfig(label, f"prediction of {label}", metrics=[metric], task=task, **options)
    ((name, measure),) = config.measures.items()
    if measure.by:
        raise InputError(f"{name} compares slices, and importance is measured on each", fix="choose another metric")
    return config


def explained(
    rows: pa.Table,
    scored: pa.Table | None,
    scorer: Scorer,
    columns: Sequence[str],
    config: EvaluationConfig | None,
    effort: Effort,
    progress: Progress,
) -> ModelExplanation:
    """Measure all of it.

    Args:
        rows: What the model looks at, at least two.
        scored: `label`, weights and slices of the rows; None without labels.
        scorer: The model.
        columns: What to look at; those of lists and structs are left out.
        config: The metric and the slices; None without labels.
        effort: How much.
        progress: Called with the shuffles done.
    """
    left_out = {name: f"it holds {kind}" for name in columns if _nested(kind := rows.schema.field(name).type)}
    left_out |= {name: "all its values are missing" for name in columns if rows[name].null_count == rows.num_rows}
    columns = [name for name in columns if name not in left_out]
    worth: list[ColumnImportance] = []
    if scored is not None and config is not None:
        worth = list(
            importances(
                rows,
                scored,
                scorer,
                columns,
                config,
                repeats=effort.repeats,
                level=effort.level,
                seed=effort.seed,
                progress=progress,
            )
        )
    worth.sort(key=lambda each: (each.slice != "overall", each.slice, -each.importance))
    slices = {} if scored is None or config is None else _slices(scored, config)
    dependence = tuple(partial_dependence(rows, scorer, columns, slices, points=effort.points))
    attributions, gap = _attributions(rows, scorer, columns, effort)
    name = "" if config is None else next(iter(config.measures))
    return ModelExplanation(tuple(worth), dependence, attributions, gap, name, rows.num_rows, left_out)


def _slices(scored: pa.Table, config: EvaluationConfig) -> dict[str, NDArray[np.int64]]:
    """The rows of each slice that is large enough to be shown, by its name.

    Slices of one title are told apart as `distinct_titles` does.
    """
    table = SliceTable(config.specs)
    columns = {name: scored[f"slice:{name}"].combine_chunks() for name in config.slice_columns}
    positions, codes = encode(table, columns, scored.num_rows, config.expressions)
    rows = []
    for key, code in table.codes.items():
        at = np.flatnonzero((codes == code).any(axis=1))
        if key[1] and len(at) >= config.min_examples:
            rows.append((table.pairs(key), at if positions is None else positions[at]))
    titles = distinct_titles([pairs for pairs, _ in rows])
    return dict(sorted(zip(titles, (at for _, at in rows), strict=True)))


def _attributions(
    rows: pa.Table, scorer: Scorer, columns: Sequence[str], effort: Effort
) -> tuple[pa.Table, float | None]:
    floats = [name for name in columns if pa.types.is_floating(rows.schema.field(name).type)]
    numbers = {name: rows[name].to_numpy() for name in floats}
    floats = [name for name in floats if np.isfinite(numbers[name]).any()]
    nothing = pa.table({"row": pa.array([], pa.int64()), "output": pa.array([], pa.int64())})
    bounded = np.logical_and.reduce([~np.isinf(numbers[name]) for name in floats]) if floats else np.zeros(0)
    # No straight line leads to an infinite number.
    at = np.flatnonzero(bounded)[: effort.attributed]
    if not len(at):
        return nothing, None
    finite = {name: numbers[name][np.isfinite(numbers[name])] for name in floats}
    some = rows.take(at)
    with np.errstate(over="ignore", invalid="ignore"):  # such predictions are not attributed
        values, off = integrated_gradients(
            some,
            scorer,
            floats,
            {name: float(each.mean()) for name, each in finite.items()},
            {name: float(each.std()) for name, each in finite.items()},
            steps=effort.steps,
        )
    if not np.isfinite(off).all():
        return nothing, None
    moved = np.abs(values.sum(axis=1) + off).max()
    outputs = values.shape[2]
    which = np.tile(np.arange(outputs), len(at)) if outputs > 1 else [None] * len(at)
    numbered = {"row": np.repeat(at, outputs), "output": pa.array(which, pa.int64())}
    table = pa.table(numbered | {name: values[:, index].reshape(-1) for index, name in enumerate(floats)})
    return table, float(np.abs(off).max() / moved) if moved else 0.0


def sample(source: Source, effort: Effort) -> pa.Table:
    """At most `max_rows` rows at random, in their order.

    Raises:
        InputError: There are fewer than two.
    """
    total = source.rows
    if total < 2:
        raise InputError(f"a model is explained by two rows or more, and there is {total}")
    chosen = np.arange(total)
    if total > effort.max_rows:
        chosen = np.sort(np.random.default_rng(effort.seed).choice(total, effort.max_rows, replace=False))
    taken, done = [], 0
    for shard in source.shards:
        for batch in source.read(shard):
            mine = chosen[np.searchsorted(chosen, done) : np.searchsorted(chosen, done + batch.num_rows)] - done
            taken.append(batch.take(pa.array(mine)))
            done += batch.num_rows
    return pa.Table.from_batches(taken).combine_chunks()


def _read_by(model: ModelLike) -> Sequence[str]:
    """The columns that a bundle reads; of a function nobody knows."""
    if callable(model):
        return ()
    from ...engine import Bundle  # late: JAX

    bundle = model if isinstance(model, Bundle) else Bundle.load(model)
    return list(bundle.signatures["predict"].inputs)


def _task_of(source: Source, label: str, scorer: Scorer, rows: pa.Table) -> Task:
    several = scorer(rows.slice(0, 2)).ndim == 2
    if several:
        return "multilabel" if pa.types.is_nested(source.schema.field(label).type) else "multiclass"
    return task_of_labels(source, label, "multiclass")


def _nested(kind: pa.DataType) -> bool:
    return bool(pa.types.is_nested(kind) or pa.types.is_null(kind))
