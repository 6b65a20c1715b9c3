"""How good predictions are whose labels are not known yet, from a reference whose labels are."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import NormalDist
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...data import LocalExecutor, Source, source_of
from ...data.frames import frame
from ...errors import InputError, suggest
from ...redaction import printable
from .accumulator import CANDIDATE, MetricsAccumulator
from .checks import Problems, check_columns, is_number, labels_of, numbers_of, scores_of, weights_of
from .comparison import COMPARISON_METRICS
from .confidence import Confidence
from .config import EvaluationConfig, Slice, SliceColumn
from .definitions import Result
from .direct_loss import LOSSES, expected_losses
from .expected_labels import ClassProbabilities
from .intervals import within_bounds
from .metrics import COUNTS, MetricConfig, MetricLike, name_of
from .quantile_bins import with_bins
from .rows import Floats, Task
from .scoring import Scores
from .slice_sql import check_expressions
from .standalone import task_of_values
from .table_models import TableModel, check_name

_TASKS: Final = ("binary", "multiclass", "regression")
_FEWEST: Final = 100  # rows of a reference
_LIGHTEST: Final = 1e-80  # of the weights of rows above 0
_NEGLIGIBLE: Final = 1e-20  # probabilities that no sum of probabilities feels
_OUTCOMES: Final = 60
"""How often labels are drawn for the intervals."""
_COLUMNS: Final = ("slice", "n", "metric", "estimate", "lower", "upper", "reference", "changed", "undefined")


def estimate(
    data: object,
    *,
    reference: object,
    label: str,
    predictions: str,
    slices: Sequence[Slice | Sequence[SliceColumn]] = ((),),
    metrics: Sequence[MetricLike] | None = None,
    weight: str | None = None,
    threshold: float = 0.5,
    task: Task | None = None,
    classes: Sequence[str | int] | None = None,
    level: float = 0.95,
    seed: int = 0,
) -> PerformanceEstimate:
    """Estimate the metrics of predictions without labels.

    Of yes or no and of several classes, scores are calibrated on the reference, and each metric is that of the labels
    which the calibrated probabilities expect (see `expected_labels`); the calibration error and metrics between slices,
    for which that would be too small, are means over labels drawn from the probabilities. Of numbers, `mae`, `mse` and
    `rmse` are those of the losses that a model of the reference's losses expects (see `direct_loss`; it needs
    `pip install 'drivetrain[analysis]'`). Intervals count both what labels may turn out to be and what another
    reference would have said.

    This holds as long as rows of the same score turn out as they did in the reference, and of numbers those of the same
    columns. Where they do not, as after a change of a law, or where rows come that the model judges worse than others
    of their score, nothing in unlabelled rows tells of it and the estimate is wrong. All rows have one
    calibration: of a slice whose rows turn out otherwise than others of their score, which the reference tells, nothing
    is estimated.

    Args:
        data: Rows with predictions, as `data.source_of` takes them. They are held in memory.
        reference: Rows with predictions of the same model and their labels, which the model was not trained on; some
            thousands.
        label: The column of the reference's labels.
        predictions: The column of predictions, in both.
        slices: As of `EvaluationConfig`, as is what follows.
        metrics: None: the usual ones of the task that can be estimated.
        weight: A column, in both.
        threshold: Above which a prediction counts as positive.
        task: "binary", "multiclass" or "regression"; None: what label and prediction look like.
        classes: The class of each score.
        level: Of the intervals.
        seed: For the draws of the intervals.

    Raises:
        InputError: A column that is not there, labels or predictions that cannot be judged, no rows, a task or a metric
            that cannot be estimated; a reference with fewer than 100 rows of any weight, with only one class, or with
            another number of classes.
    """
    check_name(label, "label")
    check_name(predictions, "predictions")
    rows, known = source_of(data), source_of(reference)
    needed = {predictions: "the prediction"} | ({weight: "the weight"} if weight else {})
    check_columns(needed | {label: "the label"}, known.columns)
    check_columns(needed, rows.columns)
    if task is None and classes is None and metrics is None:
        task = task_of_values(known, TableModel(label, predictions, predictions))
    if task == "regression" and metrics is None:
        metrics = ("mae", "rmse")
    config = EvaluationConfig(
        label, predictions, slices=slices, metrics=metrics, weight=weight, threshold=threshold, task=task,
        classes=classes, confidence=Confidence("jackknife", level=level, seed=seed),
    )  # fmt: skip
    if config.task not in _TASKS:
        raise InputError(f"performance of {config.task} is not estimated", fix=f"of {', '.join(_TASKS)} it is")
    for item in config.items:
        if (item if isinstance(item, str) else item.metric) in COMPARISON_METRICS:
            raise InputError(f"{name_of(item)!r} compares with a baseline, and there is none", fix="leave it out")
    for source in (known, rows):
        check_columns(config.purposes, source.columns)
        check_expressions(config.expressions.values(), source.schema)
    config = with_bins(config, known, LocalExecutor())
    labelled = _Rows.read(known, config, labelled=True)
    unlabelled = _Rows.read(rows, config, labelled=False)
    _check_reference(config, unlabelled, labelled)
    generator = np.random.default_rng(seed)
    if config.task == "regression":
        features = _features(rows, known, config, (unlabelled.scores, labelled.scores))
        parts = _by_losses(config, unlabelled, labelled, features, generator)
    else:
        parts = _by_classes(config, unlabelled, labelled, generator)
    realised = {
        (each["key"], name): value for each in _measure(config, labelled.table) for name, value in _values(each)
    }
    likely = Confidence("bootstrap", resamples=_OUTCOMES, level=level)
    lines = [line for part in parts for line in part.lines(realised, likely)]
    return PerformanceEstimate(tuple(lines), _distance(unlabelled, labelled), len(unlabelled.scores))


@dataclass(frozen=True)
class PerformanceEstimate:
    """What `estimate` found; a notebook shows the table.

    Attributes:
        lines: For each slice and metric: `slice`, `n` (rows), `metric`, the `estimate`, between `lower` and `upper` the
            values that are likely once labels are known, the value on the `reference`, and whether it is `changed`: the
            estimate differs from it by more than chance explains, at the level of the intervals; `undefined`, why there
            is no estimate.
        drift: The largest difference between the distribution functions of predictions and of the reference's
            (Kolmogorov and Smirnov), from 0 to 1; of several classes, of the class for which it is largest.
        rows: How many rows have no labels.
    """

    lines: tuple[Mapping[str, Any], ...]
    drift: float
    rows: int

    @property
    def overall(self) -> dict[str, float | None]:
        """Metric → its estimate over all rows."""
        return {line["metric"]: line["estimate"] for line in self.lines if line["slice"] == "overall"}

    def frame(self) -> Any:  # a pandas.DataFrame: pandas ships no types
        """`lines` as a DataFrame.

        Raises:
            DrivetrainError: pandas is not installed.
        """
        return frame(_COLUMNS, [tuple(line[name] for name in _COLUMNS) for line in self.lines])

    def __repr__(self) -> str:
        lines = [f"{self.rows:,} rows without labels; predictions differ from the reference's by {self.drift:.3f}"]
        for line in self.lines:
            if line["slice"] == "overall":
                lines.append(f"  {line['metric']}: {_text(line)}")
        changed = sum(line["changed"] for line in self.lines if line["slice"] != "overall")
        if changed:
            lines.append(f"  in {changed} slices a metric changed: see frame()")
        return printable("\n".join(lines))

    def _repr_html_(self) -> str:
        return str(self.frame().to_html(index=False, float_format="{:.4f}".format, na_rep="–"))


def _text(line: Mapping[str, Any]) -> str:
    if line["estimate"] is None:
        return f"none: {line['undefined']}"
    between = "" if line["lower"] is None else f" ({line['lower']:.4f} to {line['upper']:.4f})"
    before = "" if line["reference"] is None else f", {line['reference']:.4f} on the reference"
    return f"{line['estimate']:.4f}{between}{before}{', changed' if line['changed'] else ''}"


@dataclass(frozen=True, eq=False)
class _Rows:
    """Rows as an accumulator takes them.

    Attributes:
        table: `candidate`, `weight` where there are weights, `slice:NAME`, and `label` where there are labels.
        scores: The predictions, (n,) or (n, k).
        weight: (n,).
        label: Of labelled rows: of yes or no 0 or 1, the position of the class, or the number.
    """

    table: pa.Table
    scores: Floats
    weight: Floats
    label: NDArray[Any]

    @classmethod
    def read(cls, source: Source, config: EvaluationConfig, *, labelled: bool) -> _Rows:
        """All rows of a source.

        Raises:
            InputError: Labels, predictions or weights that cannot be judged, or no rows.
        """
        columns = [config.prediction, *config.purposes, *([config.label] if labelled else [])]
        columns += [config.weight] if config.weight is not None else []
        source = source.select([name for name in source.schema.names if name in columns])
        scored = Scores(config, TableModel(config.label, config.prediction, config.prediction))
        batches = []
        for shard in source.shards:
            for batch in source.read(shard):
                if not labelled and config.label not in batch.schema.names:
                    batch = batch.append_column(config.label, pa.nulls(batch.num_rows))
                batches.append(scored(batch))
        if not sum(batch.num_rows for batch in batches):
            raise InputError("there are no rows" + (" in the reference" if labelled else " to estimate anything of"))
        table = pa.Table.from_batches(batches).combine_chunks()
        (batch,) = table.to_batches()
        problems = Problems()
        scores, _ = scores_of(batch.column("candidate"), repr(config.prediction), config, problems, 0)
        label: NDArray[Any] = np.zeros(0)
        if labelled:
            label, _ = labels_of(batch.column("label"), config, problems, 0)
        else:
            table = table.drop_columns("label")
        weight = np.ones(len(scores))
        if config.weight is not None:
            weight, _ = weights_of(batch.column("weight"), config.weight, problems, 0)
        problems.check(len(scores))
        return cls(table, scores, weight, label)


def _check_reference(config: EvaluationConfig, rows: _Rows, reference: _Rows) -> None:
    """Make sure that the reference tells something about the rows.

    Raises:
        InputError: It does not.
    """
    name = config.prediction
    if rows.scores.shape[1:] != reference.scores.shape[1:]:
        raise InputError(
            f"the prediction {name!r} has {rows.scores.shape[1]} scores in a row, and {reference.scores.shape[1]} in "
            "the reference",
            fix="give predictions of the same model",
        )
    for each, what in ((rows, ""), (reference, " of the reference")):
        if not each.weight.any():
            raise InputError(f"the weights {config.weight!r}{what} are all 0", fix="give some rows a weight")
    known = reference.label[reference.weight > 0]
    if len(known) < _FEWEST:
        raise InputError(
            f"the reference has {len(known)} rows{' of any weight' if config.weight is not None else ''}, of at least "
            f"{_FEWEST} to learn {'losses' if config.task == 'regression' else 'what scores mean'} from",
            fix="give more rows whose labels are known",
        )
    if config.task != "regression" and (known == known[0]).all():
        raise InputError(
            f"the labels {config.label!r} of the reference are all of one class: nothing tells what scores mean",
            fix="give rows of the other classes too",
        )
    weighed = rows.weight[rows.weight > 0].min()
    if config.task != "regression" and min(weighed, reference.weight[reference.weight > 0].min()) < _LIGHTEST:
        raise InputError(
            f"weight {config.weight!r} has values below {_LIGHTEST:g}, which cannot be divided among classes",
            fix="multiply all weights by one number",
        )


@dataclass(frozen=True, eq=False)
class _EstimatedPart:
    """Metrics that are estimated together.

    Attributes:
        config: What is measured.
        expected: The slices with the expected labels or losses.
        outcomes: The slices as they may turn out: labels or losses drawn from what a model expects that was fitted to
            another sample of the reference, once for each.
        copies: How many rows stand for one in `expected`.
        on_reference: What is expected of the reference, by a slice's key and the metric's name; without the overall
            slice, which the calibration fits.
    """

    config: EvaluationConfig
    expected: Sequence[Mapping[str, Any]]
    outcomes: Sequence[Sequence[Mapping[str, Any]]]
    copies: int
    on_reference: Mapping[tuple[str, str], _Value] = field(default_factory=dict)

    def lines(self, realised: Mapping[tuple[str, str], _Value], likely: Confidence) -> Iterator[dict[str, Any]]:
        """Of each slice and metric.

        Args:
            realised: Of the reference, by the slice's key and the metric's name.
            likely: Makes an interval of the outcomes.
        """
        drawn: dict[tuple[str, str], list[Result]] = {}
        for slices in self.outcomes:
            for each in slices:
                for name, outcome in each["metrics"][CANDIDATE].items():
                    drawn.setdefault((each["key"], name), []).append(outcome)
        curved = {name_of(item) for item in self.config.items if _is_curved(item, self.config)}
        for each in self.expected:
            rows = each["n"] // self.copies
            for name, value in _values(each):
                outcomes = drawn[each["key"], name]
                known = [outcome for outcome in outcomes if not isinstance(outcome, str)]
                if name in curved and value.number is not None and known:
                    value = _Value(float(np.mean(known)))
                interval = likely.interval(value.number if value.number is not None else "", outcomes, rows)
                ends = within_bounds(interval, self.config.measures[name])
                half = None if isinstance(interval, str) else (interval[1] - interval[0]) / 2
                before = realised.get((each["key"], name), _NOTHING)
                expected = self.on_reference.get((each["key"], name), _NOTHING)
                if name not in curved and expected.is_beyond(before, likely.level):
                    reason = "rows of this slice turn out otherwise than others of their score, on the reference too"
                    value, ends = _Value(reason=f"{reason}: {before.number:.4f}, not {expected.number:.4f}"), ""
                yield {
                    "slice": each["slice"],
                    "n": rows,
                    "metric": name,
                    "estimate": value.number,
                    "lower": None if isinstance(ends, str) else ends[0],
                    "upper": None if isinstance(ends, str) else ends[1],
                    "reference": before.number,
                    "changed": replace(value, half=half).differs(before),
                    "undefined": value.reason,
                }


def _is_curved(item: str | MetricConfig, config: EvaluationConfig) -> bool:
    """Whether a metric takes absolute values or extremes of sums, so that the one of expected sums is too small."""
    name = item if isinstance(item, str) else item.metric
    return name == "expected_calibration_error" or bool(config.measures[name_of(item)].by)


@dataclass(frozen=True)
class _Value:
    """A metric of a slice: its number or the reason why it has none, and half of the width of its interval."""

    number: float | None = None
    reason: str | None = None
    half: float | None = None

    def differs(self, other: _Value) -> bool:
        """Whether the two are further apart than the width of the interval of their difference."""
        if self.number is None or other.number is None or self.half is None or other.half is None:
            return False
        return abs(self.number - other.number) > math.hypot(self.half, other.half)

    def is_beyond(self, measured: _Value, level: float) -> bool:
        """Whether it is further than three standard errors from what was measured, whose interval is of this level."""
        if self.number is None or measured.number is None or measured.half is None:
            return False
        error = measured.half / NormalDist().inv_cdf((1 + level) / 2)
        return abs(self.number - measured.number) > 3 * error


_NOTHING: Final = _Value()


def _values(item: Mapping[str, Any]) -> Iterator[tuple[str, _Value]]:
    """The metrics of a slice, by name."""
    intervals = item["intervals"].get(CANDIDATE, {})
    for name, value in item["metrics"][CANDIDATE].items():
        ends = intervals.get(name)
        half = (ends[1] - ends[0]) / 2 if isinstance(ends, tuple) else None
        yield name, _Value(None, value) if isinstance(value, str) else _Value(value, half=half)


def _by_classes(
    config: EvaluationConfig, rows: _Rows, reference: _Rows, generator: np.random.Generator
) -> Iterator[_EstimatedPart]:
    """From the labels that calibrated probabilities expect."""
    # The rows themselves are known, and so is how many they are.
    config = replace(config, metrics=[item for item in config.items if name_of(item) not in COUNTS], confidence=None)
    labels = reference.label.astype(np.int64)
    probabilities_of = ClassProbabilities(rows.scores, reference.scores, labels)
    expected = probabilities_of(reference.weight)
    names = pa.array(range(expected.shape[1]) if config.classes is None else config.classes)

    def slices(each: _Rows, probabilities: Floats) -> Sequence[Mapping[str, Any]]:
        count, classes = probabilities.shape
        copies = each.table.select([name for name in each.table.column_names if name not in ("label", "weight")])
        copies = copies.take(np.repeat(np.arange(count), classes))
        copies = copies.append_column("label", names.take(np.tile(np.arange(classes), count)))
        likely = np.where(probabilities < _NEGLIGIBLE, 0.0, probabilities)
        weighed = pa.array((likely * each.weight[:, None]).ravel())
        return _measure(replace(config, weight="weight"), copies.append_column("weight", weighed))

    again = ClassProbabilities(reference.scores, reference.scores, labels)(reference.weight)
    on_reference = {
        (each["key"], name): value
        for each in slices(reference, again)
        if each["pairs"]
        for name, value in _values(each)
    }
    outcomes = []
    for _ in range(_OUTCOMES):
        resampled = reference.weight * generator.poisson(1.0, len(labels))
        likely = probabilities_of(resampled) if resampled.any() else expected
        drawn = (generator.random((len(expected), 1)) > np.cumsum(likely, axis=1)[:, :-1]).sum(axis=1)
        outcomes.append(_measure(config, rows.table.append_column("label", names.take(drawn))))
    yield _EstimatedPart(config, slices(rows, expected), outcomes, expected.shape[1], on_reference)


def _by_losses(
    config: EvaluationConfig,
    rows: _Rows,
    reference: _Rows,
    features: tuple[Floats, Floats],
    generator: np.random.Generator,
) -> Iterator[_EstimatedPart]:
    """From the losses that a model of them expects: labels that are that far from the predictions."""
    for name in map(name_of, config.items):
        if name not in LOSSES:
            raise InputError(
                f"{name!r} of numbers is not estimated without labels", fix=suggest(name, sorted(LOSSES), "there are")
            )
    share = reference.weight / reference.weight.sum()
    for name in map(name_of, config.items):
        losses = LOSSES[name](reference.label, reference.scores)
        seed = int(generator.integers(2**31))
        expected = expected_losses(*features, losses, reference.weight, seed)
        only = replace(config, metrics=(name,), confidence=None)

        def measured(each: Floats, name: str = name, only: EvaluationConfig = only) -> Sequence[Mapping[str, Any]]:
            apart = each if name == "mae" else np.sqrt(each)
            return _measure(only, rows.table.append_column("label", pa.array(rows.scores + apart)))

        outcomes = []
        for _ in range(_OUTCOMES):
            likely = expected.resampled(generator)
            outcomes.append(measured(np.maximum(likely + generator.choice(expected.apart, len(likely), p=share), 0)))
        yield _EstimatedPart(only, measured(expected.losses), outcomes, 1)


def _measure(config: EvaluationConfig, table: pa.Table) -> Sequence[Mapping[str, Any]]:
    """The metrics of scored rows with labels, by slice."""
    accumulator = MetricsAccumulator(config, plots=False)
    for batch in table.combine_chunks().to_batches():
        accumulator.add_batch(batch)
    slices: Sequence[Mapping[str, Any]] = accumulator.result()["slices"]
    return slices


def _features(
    rows: Source, reference: Source, config: EvaluationConfig, scores: tuple[Floats, Floats]
) -> tuple[Floats, Floats]:
    """The predictions and the columns of numbers that both have, without labels and weights.

    Returns:
        (n, d) and (m, d), NaN where missing.
    """
    names = [
        field.name
        for field in reference.schema
        if _is_number(field.type)
        and field.name not in (config.label, config.prediction, config.weight)
        and field.name in rows.schema.names
        and _is_number(rows.schema.field(field.name).type)
    ]
    features, known = (
        np.column_stack([predictions, *_numbers(source, names)])
        for predictions, source in zip(scores, (rows, reference), strict=True)
    )
    return features, known


def _is_number(kind: pa.DataType) -> bool:
    return is_number(kind) or bool(pa.types.is_boolean(kind))


def _numbers(source: Source, names: Sequence[str]) -> list[Floats]:
    if not names:
        return []
    source = source.select(names)
    batches = [batch for shard in source.shards for batch in source.read(shard)]
    columns = pa.Table.from_batches(batches).select(names).columns
    # Arrow casts booleans to floats by way of whole numbers only.
    return [numbers_of(column.cast(pa.int8()) if pa.types.is_boolean(column.type) else column) for column in columns]


def _distance(rows: _Rows, reference: _Rows) -> float:
    """The Kolmogorov-Smirnov distance of the weighted predictions; of several classes the largest of theirs."""
    sides = [(each.scores.reshape(len(each.scores), -1), each.weight) for each in (rows, reference)]
    return max(_apart(*((scores[:, k], weight) for scores, weight in sides)) for k in range(sides[0][0].shape[1]))


def _apart(rows: tuple[Floats, Floats], reference: tuple[Floats, Floats]) -> float:
    """The largest difference of two distribution functions, each of values and their weights, (n,)."""
    points, at = np.unique(np.concatenate([rows[0], reference[0]]), return_inverse=True)
    here, there = (
        np.cumsum(np.bincount(positions, weight, len(points))) / weight.sum()
        for positions, (_, weight) in zip(np.split(at, [len(rows[0])]), (rows, reference), strict=True)
    )
    return float(np.abs(here - there).max())
