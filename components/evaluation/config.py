"""What to measure, on which slices, and what a model must reach to be blessed: plain, checked when written."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from ...errors import InputError, suggest
from ...pipelines import FunctionRef
from ...user_code import users_line
from .confidence import Confidence, Method
from .definitions import Direction, Metric, is_finite
from .metrics import (
    DEFAULTS,
    METRICS,
    MetricConfig,
    MetricLike,
    build,
    columns_compared,
    configured,
    is_users,
    name_of,
    task_of,
    tasks_of,
    users_function,
    without_options,
)
from .rows import TASKS, Task

FirstRun: TypeAlias = Literal["bless", "refuse"]
Judgement: TypeAlias = Literal["value", "lenient", "strict"]
# As in data.slices, which is not imported: building a pipeline loads no Arrow.
SliceValue: TypeAlias = str | int | float | bool | None
SliceSpec: TypeAlias = tuple[str, ...]
"""The raw columns whose values make the slices; () is the overall slice."""


_MOST_BINS = 10_000


@dataclass(frozen=True)
class Slice:
    """A column to slice by that an expression gives, where a raw column's name could stand.

    Args:
        name: What the slices are called by; a threshold names it as it would a column. No raw column has this name.
        sql: A DuckDB expression over the raw columns of one row. Of a condition, the rows for which it is true are the
            slice `name=True`, and the others are in none. Any other value is a slice, and a row without a value is in
            none.
        bins: Of a number, the bins whose rows make a slice each: how many of equal counts, or the numbers at which all
            but the first begin. A threshold names a bin by its position from 1, or by its name. A row without a number
            is in none.
        groups: How many groups the values are put into, by a hash that is the same on every machine: of a column with
            too many values to slice by. Groups are numbered from 0.

    Raises:
        InputError: No name, no expression, or bins or groups that cannot be.
    """

    name: str
    sql: str
    bins: int | Sequence[float] | None = None
    groups: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "_where", users_line())  # no field: where it stands makes no difference
        for field in ("name", "sql"):
            text: Any = getattr(self, field)
            if not isinstance(text, str) or not text.strip():
                raise InputError(
                    f"Slice: {field} must be a text, not {text!r}", fix='Slice("late_evening", sql="hour >= 20")'
                )
        bins: Any = self.bins
        if hasattr(bins, "tolist"):  # NumPy's
            object.__setattr__(self, "bins", bins.tolist())
        if self.bins is not None and self.groups is not None:
            raise InputError(f"Slice({self.name!r}) has bins and groups", fix="give one of them", where=self.where)
        for field, number in (("bins", self.bins), ("groups", self.groups)):
            if number is None or (field == "bins" and _is_edges(number)):
                continue
            if isinstance(number, bool) or not isinstance(number, int) or not 2 <= number <= _MOST_BINS:
                raise InputError(
                    f"Slice({self.name!r}): {field} must be a number from 2 to {_MOST_BINS:,}"
                    f"{' or ascending numbers' if field == 'bins' else ''}, not {number!r}",
                    fix=f"{field}=4",
                    where=self.where,
                )
        if self.bins is not None and not isinstance(self.bins, int):
            object.__setattr__(self, "bins", tuple(map(float, self.bins)))

    @property
    def bin_names(self) -> tuple[str, ...]:
        """The slice that each bin is, in their order: its position, and where it begins and ends.

        Where it does is written to six digits, or to as many as tell the edges apart; whole numbers in full. Of bins
        that are only counted, whose edges are not known yet, a name for all rows.
        """
        edges = () if self.bins is None or isinstance(self.bins, int) else self.bins
        texts = next(texts for digits in range(6, 18) if len(set(texts := _short(edges, digits))) == len(edges))
        if not texts:
            return ("1: all",)
        ranges = [f"< {texts[0]}", *(f"[{low}, {high})" for low, high in pairwise(texts)), f">= {texts[-1]}"]
        width = len(str(len(ranges)))
        return tuple(f"{position:0{width}}: {text}" for position, text in enumerate(ranges, 1))

    @property
    def where(self) -> str | None:
        """The user's "file:line" that wrote it, where that is known."""
        written: str | None = self.__dict__.get("_where")
        return written


def _short(edges: Sequence[float], digits: int) -> list[str]:
    """Numbers to so many digits, at least one of them behind the point; whole ones in full."""
    texts = []
    for edge in edges:
        before_point = math.floor(math.log10(abs(edge))) + 1 if edge else 0
        texts.append(repr(round(edge, max(digits - before_point, 1))).removesuffix(".0"))
    return texts


def _is_edges(bins: Any) -> bool:  # Any: what a user wrote
    """Whether these are numbers at which bins begin."""
    if isinstance(bins, str) or not isinstance(bins, Sequence) or len(bins) >= _MOST_BINS:
        return False
    return all(is_finite(edge) for edge in bins) and all(a < b for a, b in pairwise(bins))


SliceColumn: TypeAlias = str | Slice
"""What slices are made of: a raw column by its name, or an expression."""

EXACT_ROWS = 200_000
_OF_CLASSES: tuple[Task, ...] = ("multiclass", "multilabel")


def _take_numpy(of: object, names: Iterable[str]) -> None:
    """Make the NumPy scalars among fields, as a computation gives them, numbers of Python's, which JSON can hold."""
    for name in names:
        value = getattr(of, name)
        if isinstance(value, np.generic):
            object.__setattr__(of, name, value.item())


@dataclass(frozen=True)
class Threshold:
    """A bound that a metric must keep, on every slice that `slice` names.

    Value bounds are inclusive. A change is candidate − baseline (relative: divided by the baseline's value), and with
    direction "higher" it must be at least the bound, with "lower" at most: `change_absolute=-0.01` on AUC allows a
    loss of 0.01. Several bounds in one threshold must all hold. Without a baseline a change bound does not apply.

    Args:
        metric: The name of a metric of the configuration.
        lower: Least value, inclusive.
        upper: Greatest value, inclusive.
        change_absolute: Bound of candidate − baseline, in the metric's unit.
        change_relative: Bound of (candidate − baseline) / baseline. With a baseline of 0, no change counts as 0 and
            any other change as infinite in its direction.
        direction: Which way is better; only for change bounds, and only needed where the metric does not say.
        slice: Columns (every slice of these columns is held to the bound) or a mapping of column to value (one slice;
            None is the slice of missing values). Empty: the overall slice.
        judge: What must keep the bounds, where the configuration asks for `confidence`: the "value"; any part of its
            interval ("lenient": only what is surely too bad fails); or all of it ("strict": only what is surely good
            enough passes).

    Raises:
        InputError: An unknown metric, no bound, bounds that nothing can keep, or a direction nobody can guess.
    """

    metric: str
    lower: float | None = None
    upper: float | None = None
    change_absolute: float | None = None
    change_relative: float | None = None
    direction: Direction | None = None
    slice: Sequence[str | Sequence[SliceValue]] | Mapping[str, SliceValue] = ()
    judge: Judgement = "value"

    def __post_init__(self) -> None:
        object.__setattr__(self, "_where", users_line())  # no field: where it stands makes no difference
        names = ("lower", "upper", "change_absolute", "change_relative")
        _take_numpy(self, names)
        bounds = {name: getattr(self, name) for name in names}
        for name, bound in bounds.items():
            if bound is not None and not is_finite(bound):
                raise InputError(f"Threshold({self.metric!r}): {name} must be a finite number, not {bound!r}")
        if all(bound is None for bound in bounds.values()):
            raise InputError(f"Threshold({self.metric!r}) has no bound", fix="give lower, upper or a change bound")
        if self.lower is not None and self.upper is not None and self.lower > self.upper:
            raise InputError(
                f"Threshold({self.metric!r}): lower {self.lower} is above upper {self.upper}", fix="exchange them"
            )
        if self.direction not in (None, "higher", "lower"):
            raise InputError(
                f"Threshold({self.metric!r}): direction must be 'higher' or 'lower', not {self.direction!r}"
            )
        words = get_args(Judgement)
        if self.judge not in words:
            raise InputError(
                f"Threshold({self.metric!r}): judge must be 'value', 'lenient' or 'strict', not {self.judge!r}",
                fix=suggest(str(self.judge), words, "use"),
            )
        known = without_options(self.metric)
        if known is not None:
            object.__setattr__(self, "direction", self.directed(known.direction))
        object.__setattr__(self, "slice", _matcher(self.slice, f"Threshold({self.metric!r})"))

    def directed(self, natural: Direction | None) -> Direction | None:
        """Which way is better for a metric of this direction, where a bound is on its change.

        Raises:
            InputError: Nobody said.
        """
        if not self.has_change or self.direction is not None:
            return self.direction
        if natural is None:
            raise InputError(
                f"Threshold({self.metric!r}): a change bound needs to know which way is better",
                fix="add direction='higher' or direction='lower'",
            )
        return natural

    @property
    def where(self) -> str | None:
        """The user's "file:line" that wrote it, where that is known."""
        written: str | None = self.__dict__.get("_where")
        return written

    @property
    def has_value(self) -> bool:
        """Whether a bound of this threshold is on the value itself."""
        return self.lower is not None or self.upper is not None

    @property
    def has_change(self) -> bool:
        """Whether a bound of this threshold compares with a baseline."""
        return self.change_absolute is not None or self.change_relative is not None

    @property
    def pinned(self) -> dict[str, SliceValue]:
        """The columns whose value is fixed; empty where every slice of the columns is meant."""
        return {str(item[0]): item[1] for item in self.slice if not isinstance(item, str)}

    @property
    def columns(self) -> SliceSpec:
        """The raw columns that the slice is made of."""
        return tuple(item if isinstance(item, str) else str(item[0]) for item in self.slice)


@dataclass(frozen=True)
class EvaluationConfig:
    """How a model is judged.

    The metrics decide what labels and predictions must be. Binary: labels 0 or 1, predictions a probability of 1.
    Regression: finite numbers. Ranking: how relevant a document is, ≥ 0, and a number to rank it by. Multi-class: the
    label is the position of a class or one of `classes`, the prediction a list of one probability for each class.
    Multi-label: lists, of 0 or 1 and of probabilities.

    Args:
        label: The output of the bundle's `evaluate` signature that holds the label.
        prediction: The output that holds the prediction.
        slices: Each a list of raw columns and `Slice` expressions, or one such expression; every combination of their
            values that occurs is a slice, a missing value of a column is the value "(missing)", and a list puts a row
            into the slice of each value in it. Once written out, an
            expression can be repeated by its name. The overall slice, [], is always measured, and first.
        thresholds: What the model must keep to be blessed. With none, no model is ever blessed.
        weight: An output of `evaluate`, or else a raw column, with each example's weight (≥ 0); None: all weigh 1.
        threshold: A prediction strictly above it counts as positive, where a metric has no threshold of its own.
        metrics: Names out of `METRICS`, configured ones (`metric("precision", threshold=0.3)`), and your own: functions
            that return a `Metric`, or their "module:attribute". None: the usual ones of the task.
        exact_rows: A slice with more rows than this is measured from a histogram of its scores (relative resolution
            2^-10 from the nearer of 0 and 1) instead of from the scores themselves; only curves and their areas then
            lose anything, and the result bounds the error of the AUC.
        first_run: What becomes of a model for which there is no baseline, as in the first run: "bless" it where it
            keeps the bounds on values, or "refuse" it.
        task: "binary", "regression", "multiclass", "multilabel" or "ranking"; None: the first of them that all metrics
            can judge.
        classes: The class of each score of a prediction, in their order, where multi-class labels are not positions.
        min_examples: A slice with fewer rows is withheld: neither its name nor its metrics are written anywhere, only
            how many such slices and rows there are. The overall slice never is. 0: every slice is shown.
        query: Of rankings, an output of `evaluate`, or else a raw column, that says which query a document is of.
        confidence: How intervals are computed, or only the method's name; None: without intervals.

    Raises:
        InputError: Metrics that judge different kinds of model, an unknown or repeated metric, another word for
            `first_run`, a repeated slice, a threshold on something that is not measured.
    """

    label: str
    prediction: str
    slices: Sequence[Slice | Sequence[SliceColumn]] = ((),)
    thresholds: Sequence[Threshold] = ()
    weight: str | None = None
    threshold: float = 0.5
    metrics: Sequence[MetricLike] | None = None
    exact_rows: int = EXACT_ROWS
    first_run: FirstRun = "bless"
    task: Task | None = None
    classes: Sequence[str | int] | None = None
    min_examples: int = 0
    query: str | None = None
    confidence: Confidence | Method | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "_where", users_line())  # no field: where it stands makes no difference
        for name in ("label", "prediction"):
            column: Any = getattr(self, name)
            if not isinstance(column, str) or not column:
                raise InputError(f"EvaluationConfig: {name} must name a column, not {column!r}")
        for name in ("weight", "query"):
            column = getattr(self, name)
            if column is not None and (not isinstance(column, str) or not column):
                raise InputError(f"EvaluationConfig: {name} must name a column, not {column!r}")
        if self.label == self.prediction:
            raise InputError(
                f"EvaluationConfig: label and prediction are both {self.label!r}: any model would be right",
                fix="name the output of predict as prediction, e.g. 'probability'",
            )
        _take_numpy(self, ("threshold", "exact_rows", "min_examples"))
        if not is_finite(self.threshold) or not 0 <= self.threshold <= 1:
            raise InputError(f"EvaluationConfig: threshold must lie in [0, 1], not {self.threshold!r}")
        for name in ("exact_rows", "min_examples"):
            count: Any = getattr(self, name)
            if not is_finite(count) or int(count) != count or count < 0:
                raise InputError(f"EvaluationConfig: {name} must be a count of rows, not {count!r}")
        words = get_args(FirstRun)
        if self.first_run not in words:
            raise InputError(
                f"EvaluationConfig: first_run must be 'bless' or 'refuse', not {self.first_run!r}",
                fix=suggest(str(self.first_run), words, "use"),
            )
        if self.confidence is not None:
            object.__setattr__(self, "confidence", _confidence(self.confidence))
            if self.resampling.method == "delong" and self.weight is not None:
                raise InputError("Confidence: DeLong's interval has no weights", fix='take method="jackknife"')
        object.__setattr__(self, "slices", _specs(self.slices))
        if self.task not in (None, *TASKS):
            raise InputError(
                f"EvaluationConfig: task must be one of {', '.join(TASKS)}, not {self.task!r}",
                fix=suggest(str(self.task), TASKS, "use"),
            )
        if self.classes is not None:
            classes = map(_plain, self.classes)
            object.__setattr__(self, "classes", _unique(classes, "EvaluationConfig: class"))
        if self.query is not None and self.task is None:
            object.__setattr__(self, "task", "ranking")
        items = (
            DEFAULTS[self.task or ("binary" if self.classes is None else "multiclass")]
            if self.metrics is None
            else _metrics(self.metrics)
        )
        object.__setattr__(self, "metrics", items)
        wanted = (self.task,) if self.task is not None else TASKS if self.classes is None else _OF_CLASSES
        object.__setattr__(self, "task", task_of(items, wanted))
        if (self.task == "ranking") is not (self.query is not None):
            raise InputError(
                f"EvaluationConfig: {self.task} models are judged without query={self.query!r}"
                if self.query is not None
                else "EvaluationConfig: rankings are judged query by query, and no query is named",
                fix="remove it"
                if self.query is not None
                else 'query="…", the column that says which query a row is of',
                where=self.where,
            )
        object.__setattr__(self, "_built", {name_of(item): self._build(item) for item in items if not is_users(item)})
        for item in items:
            by = columns_compared(item)
            if by and frozenset(by) not in {frozenset(spec) for spec in self.specs}:
                object.__setattr__(self, "slices", _specs((*self.slices, by)))
        object.__setattr__(self, "thresholds", tuple(self._checked(threshold) for threshold in self.thresholds))
        _unique(self.thresholds, "EvaluationConfig: a threshold")

    def __getstate__(self) -> dict[str, Any]:
        """All but the metrics that were built, whose functions do not pickle."""
        return {name: value for name, value in self.__dict__.items() if name != "_built"}

    def within(self, project: Path | None) -> EvaluationConfig:
        """The same, whose user's metrics are looked for in this project."""
        config = copy(self)
        object.__setattr__(config, "_within", project)
        return config

    def only(self, metric: MetricLike) -> EvaluationConfig:
        """The same with this metric alone, without thresholds and intervals."""
        return replace(self, metrics=[metric], thresholds=(), confidence=None).within(self._project)

    def with_edges(self, edges: Mapping[str, Sequence[float]]) -> EvaluationConfig:
        """The same with these edges of the bins of its slices, by name.

        Raises:
            InputError: A threshold names a bin that there is not.
        """

        def known(column: SliceColumn) -> SliceColumn:
            if not isinstance(column, Slice) or column.name not in edges:
                return column
            cut = replace(column, bins=tuple(edges[column.name]))
            object.__setattr__(cut, "_where", column.where)
            return cut

        config = replace(self, slices=[[known(column) for column in spec] for spec in self._columns])
        object.__setattr__(config, "_where", self.where)
        return config.within(self._project)

    @property
    def items(self) -> tuple[str | MetricConfig, ...]:
        """`metrics`, as what it holds once it was checked."""
        return tuple(self.metrics or ())  # type: ignore[arg-type]  # __post_init__ replaced all else

    @property
    def measures(self) -> dict[str, Metric]:
        """Each metric by its name, in the order in which they are shown; a user's own is imported.

        Raises:
            InputError: A user's metric is none, or judges other models.
        """
        built: dict[str, Metric] = self.__dict__.setdefault("_built", {})
        for item in self.items:
            if name_of(item) not in built:
                built[name_of(item)] = self._build(item)
        return {name_of(item): built[name_of(item)] for item in self.items}

    @property
    def users(self) -> dict[str, FunctionRef]:
        """Where the user's own metrics are, by name."""
        return {name_of(item): users_function(item, self._project) for item in self.items if is_users(item)}

    @property
    def _project(self) -> Path | None:
        project: Path | None = self.__dict__.get("_within")
        return project

    def _build(self, item: str | MetricConfig) -> Metric:
        context = {"threshold": self.threshold, "classes": self.classes}
        return build(item, self.task or "binary", context, self._project)

    def _checked(self, threshold: Threshold) -> Threshold:
        if not isinstance(threshold, Threshold):
            raise InputError(f"EvaluationConfig: {threshold!r} is not a Threshold", fix='Threshold("auc", lower=0.85)')
        names = [name_of(item) for item in self.items]
        if threshold.metric not in names:
            base = threshold.metric.partition("(")[0]
            with_options = next((f"did you mean {name!r}?" for name in names if name.startswith(f"{base}(")), None)
            if threshold.metric not in METRICS and ":" not in threshold.metric:
                near = with_options or suggest(threshold.metric, list(dict.fromkeys([*names, *METRICS])), "there are")
                raise InputError(f"there is no metric {threshold.metric!r}", fix=near, where=threshold.where)
            judges = () if ":" in threshold.metric else tasks_of(threshold.metric)
            if judges and self.task not in judges:
                raise InputError(
                    f"EvaluationConfig: the threshold on {threshold.metric!r} judges {' or '.join(judges)} models, and "
                    f"this configuration {self.task} ones",
                    fix=f"write task={judges[0]!r}, or name metrics of that kind",
                    where=threshold.where,
                )
            raise InputError(
                f"EvaluationConfig: the threshold on {threshold.metric!r} has no metric of that name to judge",
                fix=with_options or f"add {threshold.metric!r} to metrics",
            )
        if frozenset(threshold.columns) not in {frozenset(spec) for spec in self.specs}:
            raise InputError(
                f"EvaluationConfig: the threshold on {threshold.metric!r} is for slices by "
                f"{list(threshold.columns)}, which are not measured",
                fix=f"add {list(threshold.columns)} to slices",
            )
        if threshold.judge != "value" and self.confidence is None:
            raise InputError(
                f"EvaluationConfig: the threshold on {threshold.metric!r} judges an interval, and none is computed",
                fix='add confidence="jackknife" to the configuration',
                where=threshold.where,
            )
        threshold = self._with_bins(threshold)
        known = self.__dict__["_built"].get(threshold.metric)
        if known is None:
            return threshold
        _refuse_out_of_range(threshold, known)
        directed = replace(threshold, direction=threshold.directed(known.direction))
        object.__setattr__(directed, "_where", threshold.where)
        return directed

    def _with_bins(self, threshold: Threshold) -> Threshold:
        """The threshold with the names of bins in place of their positions, where their edges are known."""
        pinned = threshold.pinned
        for name, column in self.expressions.items():
            position = pinned.get(name)
            if column.bins is None or name not in pinned:
                continue
            if isinstance(position, str) and (isinstance(column.bins, int) or position in column.bin_names):
                continue  # how bins of equal counts are called is known once they are
            most = column.bins if isinstance(column.bins, int) else len(column.bin_names)
            names = f": {', '.join(map(repr, column.bin_names[:5]))}" if isinstance(position, str) else ""
            if isinstance(position, bool) or not isinstance(position, int) or not 1 <= position <= most:
                raise InputError(
                    f"EvaluationConfig: the threshold on {threshold.metric!r} is for the bin {position!r} of {name!r}, "
                    f"which has {most}{names}",
                    fix=f"give a position from 1 to {most}",
                    where=threshold.where,
                )
            if not isinstance(column.bins, int):
                pinned[name] = column.bin_names[position - 1]
        if pinned == threshold.pinned:
            return threshold
        items = [item if isinstance(item, str) else (str(item[0]), pinned[str(item[0])]) for item in threshold.slice]
        named = replace(threshold, slice=items)
        object.__setattr__(named, "_where", threshold.where)
        return named

    @property
    def where(self) -> str | None:
        """The user's "file:line" that wrote it, where that is known."""
        written: str | None = self.__dict__.get("_where")
        return written

    @property
    def resampling(self) -> Confidence:
        """`confidence`, as what it holds once it was checked; only where there are intervals."""
        assert isinstance(self.confidence, Confidence)
        return self.confidence

    @property
    def specs(self) -> tuple[SliceSpec, ...]:
        """The names that the slices are made of, those of expressions among them."""
        return tuple(tuple(_name(column) for column in spec) for spec in self._columns)

    @property
    def expressions(self) -> dict[str, Slice]:
        """The columns to slice by that are expressions, by name."""
        return {column.name: column for spec in self._columns for column in spec if isinstance(column, Slice)}

    @property
    def purposes(self) -> dict[str, str]:
        """The raw columns that the slices need, and which slice it is.

        Raises:
            InputError: An expression is wrong.
        """
        expressions = self.expressions
        wanted = {name: f"the slice {list(spec)}" for spec in self.specs for name in spec if name not in expressions}
        if expressions:
            from .slice_sql import columns_of  # late: DuckDB

            for expression in expressions.values():
                wanted |= dict.fromkeys(columns_of(expression), f"the slice {expression.name!r}")
        return wanted

    @property
    def slice_columns(self) -> SliceSpec:
        """Every raw column and expression that some slice is made of, each once, in the order first named."""
        return tuple(dict.fromkeys(name for spec in self.specs for name in spec))

    @property
    def _columns(self) -> tuple[tuple[SliceColumn, ...], ...]:
        return self.slices  # type: ignore[return-value]  # as __post_init__ left it

    def to_json(self) -> dict[str, Any]:
        """Plain JSON of the configuration; `from_json` gives it back."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> EvaluationConfig:
        """The configuration that `to_json` wrote.

        Raises:
            InputError: It is not one.
        """
        try:
            thresholds = [Threshold(**item) for item in value.get("thresholds", ())]
            return cls(**{**value, "thresholds": thresholds})
        except TypeError as error:
            raise InputError(f"this is not an EvaluationConfig: {error}") from error


def _confidence(value: Any) -> Confidence:  # Any: what a user wrote
    if isinstance(value, Confidence):
        return value
    if isinstance(value, str):
        return Confidence(value)  # type: ignore[arg-type]  # which it checks
    if isinstance(value, Mapping):  # out of JSON
        return Confidence(**value)
    raise InputError(f"EvaluationConfig: confidence must be a Confidence, not {value!r}", fix='write "jackknife"')


def _metrics(metrics: Any) -> tuple[str | MetricConfig, ...]:  # Any: what a user wrote
    if isinstance(metrics, (str, MetricConfig)) or not isinstance(metrics, Iterable):
        raise InputError(f"EvaluationConfig: metrics must be a list of names, not {metrics!r}", fix=f"[{metrics!r}]")
    items = tuple(configured(item) for item in metrics)
    if not items:
        raise InputError(
            "EvaluationConfig: there are no metrics", fix="name one, or leave metrics= out for the task's own"
        )
    _unique([name_of(item) for item in items], "EvaluationConfig: metric")
    return items


def _refuse_out_of_range(threshold: Threshold, metric: Metric) -> None:
    """Refuse a bound that no model keeps.

    Raises:
        InputError: It lies beyond what the metric can be.
    """
    lower, upper = threshold.lower, threshold.upper
    if metric.bar and ((lower is not None and lower > 1) or (upper is not None and upper < 0)):
        raise InputError(
            f"Threshold({threshold.metric!r}): no model keeps this, as the metric lies between 0 and 1",
            fix="give a share, e.g. 0.9",
        )


def _specs(slices: Any) -> tuple[tuple[SliceColumn, ...], ...]:  # Any: what a user wrote
    if isinstance(slices, (str, Mapping, Slice)) or not isinstance(slices, Iterable):
        fix = "write [[]] for all examples, and a list of columns for each further kind of slice"
        raise InputError(
            f"EvaluationConfig: slices must be a list of lists of columns, not {slices!r}",
            fix=f"write [[{slices!r}]]" if isinstance(slices, str) else fix,
        )
    specs = [_spec(spec) for spec in slices]
    expressions: dict[str, Slice] = {}
    for column in (column for spec in specs for column in spec if isinstance(column, Slice)):
        if expressions.setdefault(column.name, column) != column:
            raise InputError(
                f"EvaluationConfig: two expressions have the name {column.name!r}",
                fix="give each a name of its own",
                where=column.where,
            )
    specs = [tuple(expressions.get(_name(column), column) for column in spec) for spec in specs]
    for spec in specs:
        names = [_name(column) for column in spec]
        _unique(names, f"EvaluationConfig: in slice {names} column")
    _unique([tuple(sorted(map(_name, spec))) for spec in specs], "EvaluationConfig: slice")
    return ((), *(spec for spec in specs if spec))


def _spec(spec: Any) -> tuple[SliceColumn, ...]:
    if isinstance(spec, (Slice, Mapping)):
        return (_column(spec),)
    if isinstance(spec, Sequence) and not isinstance(spec, str):
        columns = tuple(_column(column) for column in spec)
        if all(isinstance(column, (str, Slice)) for column in columns):
            return columns
    raise InputError(f"EvaluationConfig: a slice is a list of column names, not {spec!r}", fix=f"write [{spec!r}]")


def _column(column: Any) -> SliceColumn:
    if not isinstance(column, Mapping):
        return column  # type: ignore[no-any-return]  # which _spec looks at
    try:
        return Slice(**column)
    except TypeError as error:
        raise InputError(f"EvaluationConfig: {dict(column)!r} is not a slice", fix='{"name": …, "sql": …}') from error


def _name(column: SliceColumn) -> str:
    return column.name if isinstance(column, Slice) else column


def _matcher(selection: Any, who: str) -> tuple[str | tuple[str, SliceValue], ...]:
    items: Iterable[Any] = selection.items() if isinstance(selection, Mapping) else selection
    if isinstance(selection, str) or not isinstance(items, Iterable):
        raise InputError(f"{who}: slice must be a list of columns or a mapping of column to value, not {selection!r}")
    matcher: list[str | tuple[str, SliceValue]] = []
    for item in items:
        if isinstance(item, str):
            matcher.append(item)
        elif isinstance(item, Sequence) and len(item) == 2 and isinstance(item[0], str):
            matcher.append((item[0], _plain(item[1])))
        else:
            raise InputError(f"{who}: {item!r} in slice is neither a column nor a (column, value) pair")
    _unique([item if isinstance(item, str) else item[0] for item in matcher], f"{who}: in slice column")
    return tuple(matcher)


def _plain(value: Any) -> Any:  # Any: what a user wrote
    """A number of NumPy's as one of Python's, which JSON knows."""
    return value.item() if hasattr(value, "item") else value


def _unique(items: Iterable[Any], what: str) -> tuple[Any, ...]:
    seen = tuple(items)
    for index, item in enumerate(seen):
        if item in seen[:index]:
            raise InputError(f"{what} {item!r} is given twice", fix="remove one")
    return seen
