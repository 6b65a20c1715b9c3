"""What to measure, on which slices, and what a model must reach to be blessed: plain, checked when written."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias, get_args

from ...errors import InputError, suggest
from ...user_code import users_line
from .metrics import DEFAULT_METRICS, METRICS

Direction: TypeAlias = Literal["higher", "lower"]
FirstRun: TypeAlias = Literal["bless", "refuse"]
# As in data.slices, which is not imported: building a pipeline loads no Arrow.
SliceValue: TypeAlias = str | int | float | bool | None
SliceSpec: TypeAlias = tuple[str, ...]
"""The raw columns whose values make the slices; () is the overall slice."""

EXACT_ROWS = 200_000


@dataclass(frozen=True)
class Threshold:
    """A bound that a metric must keep, on every slice that `slice` names.

    Value bounds are inclusive. A change is candidate − baseline (relative: divided by the baseline's value), and with
    direction "higher" it must be at least the bound, with "lower" at most: `change_absolute=-0.01` on AUC allows a
    loss of 0.01. Several bounds in one threshold must all hold. Without a baseline a change bound does not apply.

    Args:
        metric: A name out of `METRICS`.
        lower: Least value, inclusive.
        upper: Greatest value, inclusive.
        change_absolute: Bound of candidate − baseline, in the metric's unit.
        change_relative: Bound of (candidate − baseline) / baseline. With a baseline of 0, no change counts as 0 and
            any other change as infinite in its direction.
        direction: Which way is better; only for change bounds, and only needed where the metric does not say.
        slice: Columns (every slice of these columns is held to the bound) or a mapping of column to value (one slice;
            None is the slice of missing values). Empty: the overall slice.

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

    def __post_init__(self) -> None:
        known = _known_metric(self.metric)
        bounds = {name: getattr(self, name) for name in ("lower", "upper", "change_absolute", "change_relative")}
        for name, bound in bounds.items():
            if bound is not None and not (_is_number(bound) and math.isfinite(bound)):
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
        if self.has_change and self.direction is None:
            if known.direction is None:
                raise InputError(
                    f"Threshold({self.metric!r}): a change bound needs to know which way is better",
                    fix="add direction='higher' or direction='lower'",
                )
            object.__setattr__(self, "direction", known.direction)
        object.__setattr__(self, "slice", _matcher(self.slice, f"Threshold({self.metric!r})"))

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
    """How a model is judged. Binary classification: labels 0 or 1, predictions a probability of 1.

    Args:
        label: The output of the bundle's `evaluate` signature that holds the label.
        prediction: The output that holds the probability.
        slices: Each a list of raw columns; every combination of their values that occurs is a slice, a missing value
            is the value "(missing)". The overall slice, [], is always measured, and first.
        thresholds: What the model must keep to be blessed. With none, no model is ever blessed.
        weight: An output of `evaluate`, or else a raw column, with each example's weight (≥ 0); None: all weigh 1.
        threshold: A prediction strictly above it counts as positive.
        metrics: Names out of `METRICS`.
        exact_rows: A slice with more rows than this is measured from a histogram of its scores (relative resolution
            2^-10 from the nearer of 0 and 1) instead of from the scores themselves; only AUC, PR-AUC and plots then
            lose anything, and the result bounds the error of the AUC.
        first_run: What becomes of a model for which there is no baseline, as in the first run: "bless" it where it
            keeps the bounds on values, or "refuse" it.

    Raises:
        InputError: An unknown or repeated metric, another word for `first_run`, a repeated slice, a threshold on
            something that is not measured.
    """

    label: str
    prediction: str
    slices: Sequence[Sequence[str]] = ((),)
    thresholds: Sequence[Threshold] = ()
    weight: str | None = None
    threshold: float = 0.5
    metrics: Sequence[str] = DEFAULT_METRICS
    exact_rows: int = EXACT_ROWS
    first_run: FirstRun = "bless"

    def __post_init__(self) -> None:
        object.__setattr__(self, "_where", users_line())  # no field: where it stands makes no difference
        for name in ("label", "prediction"):
            column: Any = getattr(self, name)
            if not isinstance(column, str) or not column:
                raise InputError(f"EvaluationConfig: {name} must name a column, not {column!r}")
        if not _is_number(self.threshold) or not 0 <= self.threshold <= 1:
            raise InputError(f"EvaluationConfig: threshold must lie in [0, 1], not {self.threshold!r}")
        if not _is_number(self.exact_rows) or int(self.exact_rows) != self.exact_rows or self.exact_rows < 0:
            raise InputError(f"EvaluationConfig: exact_rows must be a count of rows, not {self.exact_rows!r}")
        words = get_args(FirstRun)
        if self.first_run not in words:
            raise InputError(
                f"EvaluationConfig: first_run must be 'bless' or 'refuse', not {self.first_run!r}",
                fix=suggest(str(self.first_run), words, "use"),
            )
        object.__setattr__(self, "slices", _specs(self.slices))
        object.__setattr__(self, "metrics", _metrics(self.metrics))
        object.__setattr__(self, "thresholds", tuple(self.thresholds))
        for threshold in self.thresholds:
            self._check(threshold)
        _unique(self.thresholds, "EvaluationConfig: a threshold")

    def _check(self, threshold: Threshold) -> None:
        if not isinstance(threshold, Threshold):
            raise InputError(f"EvaluationConfig: {threshold!r} is no Threshold", fix='Threshold("auc", lower=0.85)')
        if threshold.metric not in self.metrics:
            raise InputError(
                f"EvaluationConfig: the threshold on {threshold.metric!r} has no metric of that name to judge",
                fix=f"add {threshold.metric!r} to metrics",
            )
        if frozenset(threshold.columns) not in {frozenset(spec) for spec in self.slices}:
            raise InputError(
                f"EvaluationConfig: the threshold on {threshold.metric!r} is for slices by "
                f"{list(threshold.columns)}, which are not measured",
                fix=f"add {list(threshold.columns)} to slices",
            )

    @property
    def where(self) -> str | None:
        """The user's "file:line" that wrote it, where that is known."""
        written: str | None = self.__dict__.get("_where")
        return written

    @property
    def purposes(self) -> dict[str, str]:
        """The raw columns that the slices need, and which slice it is."""
        return {name: f"the slice {list(spec)}" for spec in self.slices for name in spec}

    @property
    def slice_columns(self) -> SliceSpec:
        """Every raw column that some slice needs, each once, in the order first named."""
        return tuple(dict.fromkeys(column for spec in self.slices for column in spec))

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
            raise InputError(f"this is no EvaluationConfig: {error}") from error


def _known_metric(name: object) -> Any:
    if not isinstance(name, str) or name not in METRICS:
        near = suggest(name, list(METRICS), "there are") if isinstance(name, str) else f"one of {', '.join(METRICS)}"
        raise InputError(f"there is no metric {name!r}", fix=near)
    return METRICS[name]


def _metrics(names: Sequence[str]) -> tuple[str, ...]:
    if isinstance(names, str):
        raise InputError(f"EvaluationConfig: metrics must be a list of names, not {names!r}", fix=f"[{names!r}]")
    for name in names:
        _known_metric(name)
    return _unique(names, "EvaluationConfig: metric")


def _specs(slices: Sequence[Sequence[str]]) -> tuple[SliceSpec, ...]:
    specs: list[SliceSpec] = [()]
    given_slices: Any = slices  # Any: what a user wrote need not be what the annotation says
    if isinstance(given_slices, str) or not isinstance(given_slices, Iterable):
        raise InputError(f"EvaluationConfig: slices must be a list of lists of columns, not {slices!r}")
    named_slices = []
    for spec in given_slices:
        if isinstance(spec, str) or not isinstance(spec, Sequence) or not all(isinstance(name, str) for name in spec):
            raise InputError(
                f"EvaluationConfig: a slice is a list of column names, not {spec!r}", fix=f"write [{spec!r}]"
            )
        named_slices.append(_unique(spec, f"EvaluationConfig: in slice {list(spec)} column"))
    _unique([tuple(sorted(spec)) for spec in named_slices], "EvaluationConfig: slice")
    return tuple(specs + [spec for spec in named_slices if spec])


def _matcher(selection: Any, who: str) -> tuple[str | tuple[str, SliceValue], ...]:
    items: Iterable[Any] = selection.items() if isinstance(selection, Mapping) else selection
    if isinstance(selection, str) or not isinstance(items, Iterable):
        raise InputError(f"{who}: slice must be a list of columns or a mapping of column to value, not {selection!r}")
    matcher: list[str | tuple[str, SliceValue]] = []
    for item in items:
        if isinstance(item, str):
            matcher.append(item)
        elif isinstance(item, Sequence) and len(item) == 2 and isinstance(item[0], str):
            matcher.append((item[0], item[1]))
        else:
            raise InputError(f"{who}: {item!r} in slice is neither a column nor a (column, value) pair")
    _unique([item if isinstance(item, str) else item[0] for item in matcher], f"{who}: in slice column")
    return tuple(matcher)


def _unique(items: Iterable[Any], what: str) -> tuple[Any, ...]:
    seen = tuple(items)
    for index, item in enumerate(seen):
        if item in seen[:index]:
            raise InputError(f"{what} {item!r} is given twice", fix="remove one")
    return seen


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
